"""`python -P -m replicat.admin`: ggsci's hand in the target. One JSON request on stdin, one JSON reply on stdout.

dblogin{url}                                     -> user, database, server
list_tables{url, pattern}                        -> tables
add_checkpointtable{url, table}                  makes the table (and its schema)
info_checkpointtable{url, table}                 -> exists, rows
delete_checkpointtable{url, table}
row{url, table, group, group_key}                -> row, or null
delete_row{url, table, group, group_key}         -> deleted
check_params{home, group}                        -> mistakes, notes: what START would find out
add_, alter_, info_, delete_heartbeattable{url, heartbeat, frequency, retention, purge} -> made, settings, lags, deleted
heartbeat_history{url, heartbeat}                -> days: least, mean and greatest lag of each path
replay_discards{home, group, file, dry, compare} -> counts, records: what became of each; progress lines on stderr
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from replicat.params import exact_table
from replicat.targets import Admin, admin_for
from trails.errors import GateError, OperatorError
from trails.runtime.credentials import hide_url
from trails.runtime.params import Pattern
from trails.runtime.report import mask

Reply = dict[str, Any]
PROGRESS_SECONDS = 2.0


def answer(request: dict[str, Any]) -> Reply:
    """The reply to one request; an error is a reply too."""
    hide_url(str(request.get("url", "")))
    try:
        verb = _VERBS.get(str(request.get("verb")))
        if verb is None:
            raise OperatorError(f"unknown verb {request.get('verb')!r}; expected one of {', '.join(_VERBS)}")
        return {"ok": True, **verb(request)}
    except KeyError as error:
        return {"ok": False, "error": f"the request lacks {error}"}
    except GateError as error:
        return {"ok": False, "error": mask(str(error)), "exit_code": error.exit_code}


def _dblogin(request: dict[str, Any]) -> Reply:
    return dict(_admin(request).database_info(request["url"]))


def _list_tables(request: dict[str, Any]) -> Reply:
    try:
        pattern = Pattern(str(request["pattern"]))
    except ValueError as error:
        raise OperatorError(f"table {request['pattern']!r}: expected {error}") from None
    found = _admin(request).tables(request["url"])
    return {"tables": [f"{schema}.{name}" for schema, name in found if pattern.matches(schema, name)]}


def _add_table(request: dict[str, Any]) -> Reply:
    _admin(request).add_row_table(request["url"], _table(request))
    return {}


def _info_table(request: dict[str, Any]) -> Reply:
    rows = _admin(request).rows_of_table(request["url"], _table(request))
    # Rows of REPLAY DISCARDS stand beside those of groups; their names have a blank.
    return {"exists": rows is not None, "rows": [row for row in rows or [] if " " not in row["group"]]}


def _delete_table(request: dict[str, Any]) -> Reply:
    _admin(request).drop_row_table(request["url"], _table(request))
    return {}


def _row(request: dict[str, Any]) -> Reply:
    row = _admin(request).read_row(request["url"], _table(request), request["group"], int(request["group_key"]))
    if row is None:
        return {"row": None}
    return {
        "row": {
            "seqno": row.position.seqno,
            "rba": row.position.rba,
            "csn": row.csn,
            "xid": row.xid,
            "time_us": row.time_us,
            "trail_id": row.trail_id.hex(),
            "alter_no": row.alter_no,
            "flush_seqno": row.flushed.seqno,
            "flush_rba": row.flushed.rba,
        }
    }


def _delete_row(request: dict[str, Any]) -> Reply:
    group, key = request["group"], int(request["group_key"])
    return {"deleted": _admin(request).delete_row(request["url"], _table(request), group, key)}


def _check_params(request: dict[str, Any]) -> Reply:
    from replicat.checking import check_group
    from trails.fs import RealFs
    from trails.runtime.home import Home

    home = Home.at(request["home"], RealFs())
    return check_group(home, str(request["group"]), str(request.get("path") or "")).to_reply()


def _replay_discards(request: dict[str, Any]) -> Reply:
    from collections import Counter

    from replicat.refused.replay import Outcome, replay_group
    from trails.runtime.home import Home

    counts: Counter[str] = Counter()
    told = time.monotonic()

    def tell(outcome: Outcome) -> None:
        nonlocal told
        counts[outcome.outcome] += 1
        if time.monotonic() - told >= PROGRESS_SECONDS:
            told = time.monotonic()
            print(", ".join(f"{number} {what}" for what, number in counts.items()), file=sys.stderr, flush=True)

    home = Home.at(request["home"])
    found = replay_group(
        home, str(request["group"]), str(request["file"]),
        dry=bool(request["dry"]), compare=bool(request["compare"]), tell=tell,
    )  # fmt: skip
    records = [one.told() for one in found]
    return {"counts": dict(counts), "records": [{**one, "why": mask(one["why"])} for one in records]}


def _heartbeats(verb: str) -> Callable[[dict[str, Any]], Reply]:
    def do(request: dict[str, Any]) -> Reply:
        from replicat import heartbeattables

        return dict(getattr(heartbeattables, verb)(request))

    return do


def _admin(request: dict[str, Any]) -> Admin:
    return admin_for(request["url"])


def _table(request: dict[str, Any]) -> tuple[str, str]:
    try:
        return exact_table(str(request["table"]))
    except ValueError as error:
        raise OperatorError(f"table {request['table']!r}: expected {error}") from None


_VERBS: dict[str, Callable[[dict[str, Any]], Reply]] = {
    "dblogin": _dblogin,
    "list_tables": _list_tables,
    "add_checkpointtable": _add_table,
    "info_checkpointtable": _info_table,
    "delete_checkpointtable": _delete_table,
    "row": _row,
    "delete_row": _delete_row,
    "check_params": _check_params,
    "replay_discards": _replay_discards,
    "add_heartbeattable": _heartbeats("add"),
    "alter_heartbeattable": _heartbeats("alter"),
    "info_heartbeattable": _heartbeats("info"),
    "delete_heartbeattable": _heartbeats("delete"),
    "heartbeat_history": _heartbeats("history"),
}


def main() -> int:
    """One request, one reply."""
    try:
        request = json.load(sys.stdin)
    except ValueError as error:
        request = {"verb": f"(no JSON: {error})"}
    reply = answer(request if isinstance(request, dict) else {})
    json.dump(reply, sys.stdout)
    sys.stdout.write("\n")
    return 0 if reply["ok"] else 2


if __name__ == "__main__":
    sys.exit(main())
