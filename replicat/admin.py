"""`python -P -m replicat.admin`: ggsci's hand in the target.

dblogin{url}                                     -> user, database, server
list_tables{url, pattern}                        -> tables
add_checkpointtable{url, table}                  makes the table (and its schema)
info_checkpointtable{url, table}                 -> exists, created_us, rows
delete_checkpointtable{url, table}
delete_row{url, table, group, group_key}         -> deleted
check_params{home, group}                        -> mistakes, notes: what START would find out
add_, alter_, info_, delete_heartbeattable{url, heartbeat, source, frequency, retention, purge}
                                                 -> made, settings, lags, deleted; `source`: the URL is a source's
heartbeat_history{url, heartbeat}                -> days: least, mean and greatest lag of each path
instantiate{home, group, tables: of describe_tables, create, truncate, pattern, running} -> tables: what is to become of
                                                   each: source, target, done, rows, notes
table_shapes{home, group, pattern}               -> shapes: of the loaded tables at the source, as of now
reload{home, group, tables: of describe_tables, shapes, pattern} -> tables: as of instantiate
compare{home, group, tables: of describe_tables, pattern, sample, values, rate, repair}
                                                 -> tables: what is equal, what differs; report, and lines of it for
                                                   each table; progress lines on stderr
table_order{home, group, order, table, hours}    -> tables: PAUSETABLE, RESUMETABLE, SKIPTABLE to a stopped group
info_tables{home, group}                         -> tables: how far the load of each is; commit_us of the group's row
repair{..., wanted: of compare}                  -> outcomes: what became of each row, by table
replay_discards{home, group, file, dry, compare} -> counts, records: what became of each; progress lines on stderr
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from replicat.model.again import PlaceLostError, ShapeChangedError
from replicat.params import exact_table
from replicat.targets.contract import Admin
from replicat.targets.kinds import admin_for
from trails.errors import GateError, OperatorError
from trails.runtime.language.params import Pattern
from trails.runtime.process.requests import replied, serve
from trails.runtime.report.report import mask
from trails.taming import tame

if TYPE_CHECKING:
    from replicat.compare.order import CompareOrder

Request = dict[str, Any]
Reply = dict[str, Any]
PROGRESS_SECONDS = 2.0


def answer(request: Request) -> Reply:
    """The reply to one request; an error is a reply too."""
    return replied(request, _done)


def _done(request: Request) -> Reply:
    try:
        return _VERBS.get(str(request.get("verb")), _unknown)(request)
    except (PlaceLostError, ShapeChangedError) as error:  # nothing stands here that could be begun again
        raise OperatorError(str(error)) from None


def _unknown(request: Request) -> Reply:
    raise OperatorError(f"unknown verb {request.get('verb')!r}; expected one of {', '.join(_VERBS)}")


def _dblogin(request: Request) -> Reply:
    return dict(_admin(request).database_info(request["url"]))


def _list_tables(request: Request) -> Reply:
    try:
        pattern = Pattern(str(request["pattern"]))
    except ValueError as error:
        raise OperatorError(f"table {request['pattern']!r}: expected {error}") from None
    found = _admin(request).tables(request["url"])
    return {"tables": [f"{schema}.{name}" for schema, name in found if pattern.matches(schema, name)]}


def _add_table(request: Request) -> Reply:
    _admin(request).add_row_table(request["url"], _table(request))
    return {}


def _info_table(request: Request) -> Reply:
    admin, table = _admin(request), _table(request)
    rows = admin.rows_of_table(request["url"], table)
    made = admin.row_table_made(request["url"], table) if rows is not None else None
    # Rows of REPLAY DISCARDS stand beside those of groups; their names have a blank.
    return {
        "exists": rows is not None,
        "created_us": made,
        "rows": [asdict(row) for row in rows or [] if " " not in row.group],
    }


def _delete_table(request: Request) -> Reply:
    _admin(request).drop_row_table(request["url"], _table(request))
    return {}


def _delete_row(request: Request) -> Reply:
    group, key = request["group"], int(request["group_key"])
    return {"deleted": _admin(request).delete_row(request["url"], _table(request), group, key)}


def _check_params(request: Request) -> Reply:
    from replicat.run.checking import check_group
    from trails.fs import RealFs
    from trails.runtime.home.home import Home

    home = Home.at(request["home"], RealFs())
    return check_group(home, str(request["group"]), str(request.get("path") or "")).to_reply()


def _replay_discards(request: Request) -> Reply:
    from collections import Counter

    from replicat.apply.replay import Outcome, replay_group
    from trails.runtime.home.home import Home

    counts: Counter[str] = Counter()
    told = time.monotonic()

    def tell(outcome: Outcome) -> None:
        nonlocal told
        counts[outcome.outcome] += 1
        if time.monotonic() - told >= PROGRESS_SECONDS:
            told = time.monotonic()
            print(tame(", ".join(f"{number} {what}" for what, number in counts.items())), file=sys.stderr, flush=True)

    home = Home.at(request["home"])
    found = replay_group(
        home, str(request["group"]), str(request["file"]),
        dry=bool(request["dry"]), compare=bool(request["compare"]), tell=tell,
    )  # fmt: skip
    records = [one.told() for one in found]
    return {"counts": dict(counts), "records": [{**one, "why": mask(one["why"])} for one in records]}


def _instantiate(request: Request) -> Reply:
    from replicat.load.instantiating import InstantiateOrder, instantiate
    from trails.runtime.home.home import Home

    pattern = _pattern(request)
    order = InstantiateOrder(bool(request["create"]), bool(request["truncate"]), pattern, bool(request["running"]))
    return instantiate(Home.at(request["home"]), str(request["group"]), list(request["tables"]), order)


def _table_shapes(request: Request) -> Reply:
    from replicat.load.reloading import table_shapes
    from trails.runtime.home.home import Home

    return table_shapes(Home.at(request["home"]), str(request["group"]), Pattern(str(request["pattern"])))


def _reload(request: Request) -> Reply:
    from replicat.load.reloading import reload_tables
    from trails.runtime.home.home import Home

    home, pattern = Home.at(request["home"]), Pattern(str(request["pattern"]))
    return reload_tables(home, str(request["group"]), list(request["tables"]), dict(request["shapes"]), pattern)


def _pattern(request: Request) -> Pattern | None:
    text = str(request.get("pattern") or "")
    try:
        return Pattern(text) if text else None
    except ValueError as error:
        raise OperatorError(f"TABLE {text!r}: expected {error}") from None


def _compare(request: Request) -> Reply:
    from replicat.compare.order import compare
    from trails.runtime.home.home import Home

    order = _compare_order(request)
    return compare(Home.at(request["home"]), str(request["group"]), list(request["tables"]), order, _teller())


def _repair(request: Request) -> Reply:
    from replicat.compare.order import repair
    from trails.runtime.home.home import Home

    home, group, order = Home.at(request["home"]), str(request["group"]), _compare_order(request)
    return repair(home, group, list(request["tables"]), list(request["wanted"]), order, _teller())


def _compare_order(request: Request) -> CompareOrder:
    from replicat.compare.order import CompareOrder

    return CompareOrder(
        _pattern(request), int(request["sample"]), bool(request["values"]), rate=int(request["rate"]),
        repair=bool(request["repair"]),
    )  # fmt: skip


def _teller() -> Callable[[str], None]:
    """Progress lines, not too many."""
    told = time.monotonic()

    def tell(line: str) -> None:
        nonlocal told
        if time.monotonic() - told >= PROGRESS_SECONDS:
            told = time.monotonic()
            print(tame(line), file=sys.stderr, flush=True)

    return tell


def _info_tables(request: Request) -> Reply:
    from replicat.load.group import info_tables
    from trails.runtime.home.home import Home

    return info_tables(Home.at(request["home"]), str(request["group"]))


def _table_order(request: Request) -> Reply:
    from replicat.load.tableorders import obey_stopped
    from trails.runtime.home.home import Home

    return obey_stopped(Home.at(request["home"]), str(request["group"]), str(request["order"]), request)


def _heartbeats(verb: str) -> Callable[[Request], Reply]:
    def do(request: Request) -> Reply:
        from replicat.run import heartbeattables

        try:
            return dict(getattr(heartbeattables, verb)(request))
        except GateError as error:
            if request.get("source"):
                _name_source(error)
            raise

    return do


def _name_source(error: GateError) -> None:
    """The settings of heartbeats stand in the source too, and a target's program makes them: it is not in fault."""
    error.message, error.hint = (
        text.replace("target database", "source database").replace("TARGETDB", "SOURCEDB")
        for text in (error.message, error.hint)
    )


def _admin(request: Request) -> Admin:
    return admin_for(request["url"])


def _table(request: Request) -> tuple[str, str]:
    try:
        return exact_table(str(request["table"]))
    except ValueError as error:
        raise OperatorError(f"table {request['table']!r}: expected {error}") from None


_VERBS: dict[str, Callable[[Request], Reply]] = {
    "dblogin": _dblogin,
    "list_tables": _list_tables,
    "add_checkpointtable": _add_table,
    "info_checkpointtable": _info_table,
    "delete_checkpointtable": _delete_table,
    "delete_row": _delete_row,
    "check_params": _check_params,
    "instantiate": _instantiate,
    "table_shapes": _table_shapes,
    "reload": _reload,
    "compare": _compare,
    "repair": _repair,
    "info_tables": _info_tables,
    "table_order": _table_order,
    "replay_discards": _replay_discards,
    "add_heartbeattable": _heartbeats("add"),
    "alter_heartbeattable": _heartbeats("alter"),
    "info_heartbeattable": _heartbeats("info"),
    "delete_heartbeattable": _heartbeats("delete"),
    "heartbeat_history": _heartbeats("history"),
}


if __name__ == "__main__":
    sys.exit(serve(answer))
