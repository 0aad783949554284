"""What ggsci's commands do in a PostgreSQL source for TRIGGERLOG: those verbs of `extract.source.SourceKind.verbs` that
are others than for the log, by VERBS.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from extract.queueguard import QueueLimits, kept_facts, retained
from extract.source import Reply, Request, SourceSettings
from extract.sources.postgres import describing, typeparts
from extract.sources.postgres.driver import Session
from extract.sources.postgres.triggers import install
from extract.sources.postgres.triggers.check import identity
from extract.sources.postgres.triggers.install import INSTALL, LOG, TriggeredTable
from extract.sources.postgres.triggers.shapes import NotedShape, QueueTable
from extract.sources.postgres.triggers.snapshot import XidSnapshot, seen
from extract.sources.postgres.triggers.source import TITLE, place
from trails.errors import OperatorError
from trails.record import TableDef
from trails.runtime.home.registration import Registered
from trails.runtime.language.params import Pattern
from trails.runtime.report.answers import KeptAnswer, plain

LOOK_SECONDS: Final = 0.1
_KEPT: Final = "updates and deletes keep the whole old row"


def register(session: Session, request: Request) -> Reply:
    """Note who reads the queue, and where it begins to. The queue is made where ADD TRANDATA has not made it yet."""
    reader = f"tg_{request['home_id'][:8]}_{request['group']}".lower()
    made = install.install(session)
    if made.reader:
        raise OperatorError(
            f"the queue of this database is read by {made.reader} already; a database has one queue and one reader",
            hint=f"UNREGISTER that one. If it is no more: UPDATE {INSTALL} SET reader = ''",
        )
    tick = install.begin(session, reader)
    who = identity(session)
    at = place(tick.at_us, who["database"])
    typeparts.begin(session, str(request.get("journal") or ""), who)
    return asdict(Registered("PostgreSQL", who["database"], TITLE, who, {"queue": reader}, at))


def unregister(session: Session, request: Request) -> Reply:
    """Take the queue and all triggers away: nobody would read what they write."""
    made = install.installed(session, admin=True)
    if made is not None and made.reader not in ("", request["made"]["queue"]):
        raise OperatorError(
            f"the queue of this database is read by {made.reader}, not by this group", hint="UNREGISTER that group"
        )
    install.uninstall(session)
    return {}


def add_trandata(session: Session, request: Request) -> Reply:
    """Have the changes of tables logged."""
    install.install(session)
    return _each(session, request, _add)


def _add(session: Session, table: TriggeredTable) -> str:
    if table.unfit:
        return f"It can't be captured: {table.unfit}."
    if table.is_captured:
        install.note_shape(session, table)
        return f"Triggers are there already: {_KEPT}."
    install.add(session, table)
    if table.noted:
        return "Triggers made again. What changed while they were gone, or off, is not captured."
    return f"Triggers made: {_KEPT}."


def add_seed(session: Session, schema: str, name: str) -> bool:
    """Have the heartbeat's table logged. Whether it was not before."""
    for table in install.tables(session):
        if (table.schema, table.name) == (schema, name) and not table.is_captured:
            install.add(session, table, beats=True)
            return True
    return False


def info_trandata(session: Session, request: Request) -> Reply:
    """Say what is logged of each table."""
    if install.installed(session, admin=True) is None:
        raise OperatorError("this database has no queue", hint="ADD TRANDATA with TRIGGERLOG makes it")
    return _each(session, request, _info)


def _info(_: Session, table: TriggeredTable) -> str:
    if table.unfit:
        return f"It can't be captured: {table.unfit}."
    if table.is_captured:
        return f"Triggers are there: {_KEPT}."
    if table.noted:
        return "The triggers are not those that were made, so changes were missed; ADD TRANDATA is needed."
    return "There are no triggers; ADD TRANDATA is needed."


def delete_trandata(session: Session, request: Request) -> Reply:
    """Log the changes of tables no more. What the queue has of them is still read."""
    if install.installed(session, admin=True) is None:
        raise OperatorError("this database has no queue, so there are no triggers", hint="There is nothing to do")
    return _each(session, request, _delete)


def _delete(session: Session, table: TriggeredTable) -> str:
    if not table.noted and not table.there:
        return "There were no triggers."
    install.remove(session, table)
    return "Triggers dropped."


def describe_tables(session: Session, request: Request) -> Reply:
    """As the queue's reader has them."""
    unfit = {table.oid: table.unfit for table in install.tables(session)} if install.installed(session) else {}
    return describing.described(session, request, _definition, lambda _, oid: unfit.get(oid, ""))


def _definition(_: Session, oid: int, __: str, shape: describing.Shape) -> TableDef:
    noted = NotedShape(0, oid, dict(shape), None)
    found = QueueTable(noted, len(shape["columns"]), lambda *_: True, lambda *_: False).definition
    assert found is not None, "the rule takes every table"
    return found


def _each(session: Session, request: Request, do: Callable[[Session, TriggeredTable], str]) -> Reply:
    try:
        pattern = Pattern(request["pattern"])
    except ValueError as error:
        raise OperatorError(f"table {request['pattern']!r}: expected {error}") from None
    found = [table.oid for table in install.tables(session) if pattern.matches(table.schema, table.name)]
    if not found:
        raise OperatorError(
            f"no table matches {pattern}", hint="Name it like schema.table, in quotes if it has capitals"
        )
    done = []
    for oid in found:  # looked at anew each time: one partition takes its siblings along
        table = next((one for one in install.tables(session) if one.oid == oid), None)
        if table is not None:
            done.append({"table": table.full_name, "message": do(session, table)})
    return {"tables": done}


VERBS: Final[dict[str, Callable[[Session, Request], Reply]]] = {
    "describe_tables": describe_tables,
    "register": register,
    "unregister": unregister,
    "add_trandata": add_trandata,
    "info_trandata": info_trandata,
    "delete_trandata": delete_trandata,
}


# --- a group that does not run ----------------------------------------------------------------------------------------


def kept(session: Session, settings: SourceSettings) -> Reply:
    """How much waits in the queue; `level` 0 to 2 and `text` by the group's own limits."""
    name, made = settings.noted.made["queue"], install.installed(session)
    if made is None or made.reader != name:
        why = "the queue is gone: START can't go on. REGISTER EXTRACT again, and load the target anew"
        return plain(KeptAnswer(f"queue {name}", "missing", level=0, text="", lost=why))
    found = install.waiting(session)
    judged = retained(found.rows, QueueLimits.of(settings))
    return plain(judged.judged(kept_facts(name, found.rows, found.bytes, found.at_us)))


def captured(session: Session, goal: str, seconds: float) -> Reply:
    """Whether all that the snapshot `goal` sees stands in the trail; without one it is the snapshot of now.

    The queue keeps what is not synced in the trail, so it knows.
    """
    goal = goal or session.one("SELECT pg_current_snapshot()::text")[0] or ""
    left = f"SELECT EXISTS (SELECT FROM {LOG} WHERE {seen(XidSnapshot.of(goal))})"
    deadline = time.monotonic() + seconds
    while not (reached := session.one(left)[0] == "f") and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return {"goal": goal, "reached": reached}
