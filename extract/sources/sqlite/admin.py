"""What ggsci's commands do in an SQLite source: the verbs of `extract.source.SourceKind.verbs`, by `verbs()`."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict

from extract.queueguard import QueueLimits, kept_facts, retained
from extract.source import Reply, Request, SourceSettings, Verb
from extract.sources.sqlite import describing, heartbeat, queue
from extract.sources.sqlite.link import SCHEMA, SCHEME, mapped, number, writing
from extract.sources.sqlite.queue import INSTALL, LOG, Logged
from extract.sources.sqlite.source import TITLE, place
from extract.sources.sqlite.tables import SourceTable, describe, names
from trails.errors import OperatorError
from trails.runtime.home.registration import Registered
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.language.params import Pattern
from trails.runtime.report.answers import KeptAnswer, plain

LOOK_SECONDS = 0.1


def dblogin(conn: sqlite3.Connection, request: Request) -> Reply:  # noqa: ARG001  -- all verbs look alike
    """Which file it is."""
    return {"user": "", "database": _path(conn), "server": f"SQLite {sqlite3.sqlite_version}"}


def list_tables(conn: sqlite3.Connection, request: Request) -> Reply:
    """The tables that can be captured, by name."""
    fit = [table for table in map(_described(conn), _matching(conn, request)) if not table.unfit]
    return {"tables": [table.full_name for table in fit]}


def describe_tables(conn: sqlite3.Connection, request: Request) -> Reply:
    """Those tables as they are."""
    return describing.described(conn, _matching(conn, request))


def register(conn: sqlite3.Connection, request: Request) -> Reply:
    """Note who reads the queue, and where it begins to. The queue is made where ADD TRANDATA has not made it yet."""
    reader = f"tg_{request['home_id'][:8]}_{request['group']}".lower()
    with writing(conn):
        made = queue.install(conn)
        if made.reader:
            raise OperatorError(
                f"the queue of {_path(conn)} is read by {made.reader} already; a file has one queue and one reader",
                hint=f"UNREGISTER that one. If it is no more: UPDATE {INSTALL} SET reader = ''",
            )
        conn.execute(f"UPDATE {INSTALL} SET reader = ?", (reader,))
        last = queue.last_id(conn)
    at = place(last, f"{SCHEME}{_path(conn)}")
    return asdict(Registered("SQLite", _path(conn), TITLE, {"system": made.id}, {"queue": reader}, at))


def unregister(conn: sqlite3.Connection, request: Request) -> Reply:
    """Take the queue and all triggers away: nobody would read what they write."""
    made = queue.installed(conn)
    if made is not None and made.reader not in ("", request["made"]["queue"]):
        raise OperatorError(
            f"the queue of {_path(conn)} is read by {made.reader}, not by this group", hint="UNREGISTER that group"
        )
    queue.uninstall(conn)
    return {}


# --- TRANDATA ---------------------------------------------------------------------------------------------------------


def add_trandata(conn: sqlite3.Connection, request: Request) -> Reply:
    """Have the changes of tables logged."""
    allcols = bool(request.get("allcols"))
    found = _matching(conn, request)
    with writing(conn):
        queue.install(conn)
        done = [(name, add_table(conn, name, allcols=allcols)) for name in found]
    return {"tables": [{"table": f"{SCHEMA}.{name}", "message": message} for name, message in done]}


def add_table(conn: sqlite3.Connection, name: str, *, allcols: bool = False) -> str:
    """Log one table's changes, whatever there was before. Returns what was done. Inside a transaction."""
    table = _described(conn)(name)
    if table.unfit:
        return f"It can't be captured: {table.unfit}. {queue.mend(table)}"
    there = queue.triggered(conn)
    known = [
        one for one in queue.logged(conn) if one.state != queue.GONE and there.get(one.number, one.table.name) == name
    ]
    before = known[-1] if known else None
    if before is None or not before.is_on:
        queue.add(conn, table, allcols=allcols, before=before)
        return f"Triggers made: {_kept(allcols)}."
    if before.number not in there:
        queue.add(conn, table, allcols=allcols or before.allcols, before=before)
        return "Triggers made again. What changed while they were gone is not captured."
    now = table.follows(before.table, renamed=True)
    if now == before.table and (before.allcols or not allcols):
        return f"Triggers are there already: {_kept(before.allcols)}."
    made = queue.add(conn, table, allcols=allcols or before.allcols, before=before, renamed=True)
    if len(now.columns) > len(before.table.columns):
        queue.refresh(conn, before, made)
    return f"Triggers made anew: {_kept(made.allcols)}."


def _kept(allcols: bool) -> str:
    return "updates keep the whole old row" if allcols else "updates keep the old key"


def info_trandata(conn: sqlite3.Connection, request: Request) -> Reply:
    """Say what is logged of each table."""
    there = queue.triggered(conn)
    on = {there[one.number]: one for one in _logged(conn) if one.is_on and one.number in there}
    return {
        "tables": [
            {"table": f"{SCHEMA}.{name}", "message": _info(_described(conn)(name), on.get(name))}
            for name in _matching(conn, request)
        ]
    }


def _info(table: SourceTable, one: Logged | None) -> str:
    if table.unfit:
        return f"It can't be captured: {table.unfit}."
    return f"Triggers are there: {_kept(one.allcols)}." if one else "There are no triggers; ADD TRANDATA is needed."


def delete_trandata(conn: sqlite3.Connection, request: Request) -> Reply:
    """Log the changes of tables no more. What the queue has of them is still read."""
    done = []
    found = _matching(conn, request)
    with writing(conn):
        on = {one.table.name: one for one in _logged(conn) if one.is_on}
        for name in found:
            if one := on.get(name):
                queue.remove(conn, one)
            done.append((name, "Triggers dropped." if one else "There were no triggers."))
    return {"tables": [{"table": f"{SCHEMA}.{name}", "message": message} for name, message in done]}


def _logged(conn: sqlite3.Connection) -> list[Logged]:
    return queue.logged(conn) if queue.installed(conn) else []


def _matching(conn: sqlite3.Connection, request: Request) -> list[str]:
    try:
        pattern = Pattern(request["pattern"])
    except ValueError as error:
        raise OperatorError(f"table {request['pattern']!r}: expected {error}") from None
    found = [name for name in names(conn) if pattern.matches(SCHEMA, name)]
    if not found:
        raise OperatorError(f"no table matches {pattern}", hint=f"Name it like {SCHEMA}.orders: a file has one schema")
    return found


def _described(conn: sqlite3.Connection) -> Callable[[str], SourceTable]:
    def of(name: str) -> SourceTable:
        table = describe(conn, name)
        if table is None:
            raise OperatorError(f"the source has no table {name}", hint="LIST TABLES * shows what is there")
        return table

    return of


# --- DDLCAPTURE and heartbeats ----------------------------------------------------------------------------------------


def ddlcapture(conn: sqlite3.Connection, request: Request) -> Reply:  # noqa: ARG001  -- all verbs look alike
    """There is nothing to install or to take away."""
    raise OperatorError(
        "SQLite needs no DDL capture: each look at the file compares its tables with what the triggers know",
        hint="Write DDL in the parameter file",
    )


def add_heartbeat(conn: sqlite3.Connection, request: Request) -> Reply:
    """Make the seed table, with its triggers."""
    table = HeartbeatTable.parse(str(request["heartbeat"]))
    done = []
    with writing(conn):
        if heartbeat.add(conn, table):
            done.append(f"table {SCHEMA}.{table.seed}")
        queue.install(conn)
        add_table(conn, table.seed)
    return {"made": done}


def info_heartbeat(conn: sqlite3.Connection, request: Request) -> Reply:
    """The seed table and its rows."""
    return {**heartbeat.info(conn, HeartbeatTable.parse(str(request["heartbeat"]))), "unpublished": []}


def delete_heartbeat(conn: sqlite3.Connection, request: Request) -> Reply:
    """Drop the seed table."""
    table = HeartbeatTable.parse(str(request["heartbeat"]))
    return {"deleted": [f"table {SCHEMA}.{table.seed}"] if heartbeat.delete(conn, table) else []}


# --- a group that does not run ---------------------------------------------------------------------------------------


def kept(conn: sqlite3.Connection, settings: SourceSettings) -> Reply:
    """How much waits in the queue; `level` 0 to 2 and `text` by the group's own limits."""
    with mapped():
        name, made = settings.noted.made["queue"], queue.installed(conn)
        if made is None or made.reader != name:
            why = "the queue is gone: START can't go on. REGISTER EXTRACT again, and load the target anew"
            return plain(KeptAnswer(f"queue {name}", "missing", level=0, text="", lost=why))
        rows = queue.last_id(conn) - number(conn, f"SELECT min(id) FROM {LOG}")
    found = retained(rows, QueueLimits.of(settings))
    return plain(found.judged(kept_facts(name, rows, None, time.time_ns() // 1000)))


def captured(conn: sqlite3.Connection, goal: str, seconds: float) -> Reply:
    """Whether all up to `goal` stands in the trail; without one the queue's end of now is the goal.

    The queue keeps what is not synced in the trail, so it knows.
    """
    with mapped():
        goal = goal or str(queue.last_id(conn))
        deadline = time.monotonic() + seconds
        while not (reached := number(conn, f"SELECT min(id) FROM {LOG}") >= int(goal)) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
    return {"goal": goal, "reached": reached}


def _path(conn: sqlite3.Connection) -> str:
    return os.path.realpath(str(conn.execute("PRAGMA database_list").fetchone()[2]))


_VERBS: dict[str, Callable[[sqlite3.Connection, Request], Reply]] = {
    "dblogin": dblogin,
    "list_tables": list_tables,
    "describe_tables": describe_tables,
    "register": register,
    "unregister": unregister,
    "add_trandata": add_trandata,
    "info_trandata": info_trandata,
    "delete_trandata": delete_trandata,
    "add_ddlcapture": ddlcapture,
    "info_ddlcapture": ddlcapture,
    "delete_ddlcapture": ddlcapture,
    "add_heartbeat": add_heartbeat,
    "info_heartbeat": info_heartbeat,
    "delete_heartbeat": delete_heartbeat,
}


def verbs() -> Mapping[str, Verb]:
    """What ggsci may ask of this database: functions by their verbs."""
    return {name: _with_our_errors(do) for name, do in _VERBS.items()}


def _with_our_errors(do: Callable[[sqlite3.Connection, Request], Reply]) -> Verb:
    def asked(conn: sqlite3.Connection, request: Request) -> Reply:
        with mapped():
            return do(conn, request)

    return asked
