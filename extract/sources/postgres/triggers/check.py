"""What a PostgreSQL source must be and have for TRIGGERLOG: its queue, with all behind a place, and fitting triggers.

Only questions are asked here, and each failure names what mends it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from extract.source import SourceSettings
from extract.sources.postgres import check as pgcheck
from extract.sources.postgres import ddl as pgddl
from extract.sources.postgres.driver import Session
from extract.sources.postgres.tables import QUEUE_SCHEMA as SCHEMA
from extract.sources.postgres.triggers import install
from extract.sources.postgres.triggers.install import TICK, TriggeredTable
from extract.sources.postgres.triggers.snapshot import Tick
from trails.errors import GateError, MismatchError
from trails.runtime.home.registration import Registered
from trails.runtime.process.checking import Findings

LOAD: Final = "the target must get the table anew; see docs/trigger-source.md#recovery"
Captures = Callable[[str, str], bool]


class Lost(Enum):
    """What is the matter with a table's triggers."""

    MISSED = "they were off, or made anew: changes were missed"
    NEVER = "there never were any"


def identity(session: Session) -> dict[str, str]:
    """Which database it is, for life."""
    system, database = session.one(
        "SELECT (SELECT system_identifier FROM pg_control_system())::text, current_database()::text"
    )
    return {"system": system or "", "database": database or ""}


def same(expected: dict[str, str], found: dict[str, str], who: str) -> None:
    """Raise MismatchError unless `found` is the source that `who` knows."""
    for key, value in expected.items():
        if value and found.get(key, "") != value:
            raise MismatchError(
                f"the source's {key} is {found.get(key) or '(none)'}, but {who} belongs to {value}",
                hint="Mend SOURCEDB; another database, or another way to capture, needs a group and a trail of its own",
            )


def check_history(session: Session, noted: Registered, after: int, state: str = "") -> Tick:
    """The tick after which to go on. Raises MismatchError unless this queue is the one, with all behind that tick.

    A copy, or a backup that was restored, is found out by the tick that the trail ends with: it has none of this
    number, or another one. One that was loaded from a dump has it too, but not the transactions' numbers.
    """
    same(noted.identity, identity(session), "REGISTER EXTRACT")
    reader, found = noted.made["queue"], install.installed(session)
    if found is None:
        raise MismatchError("the source has no queue", hint="DBLOGIN, then ADD TRANDATA and REGISTER EXTRACT")
    if found.reader != reader:
        raise MismatchError(
            f"the source's queue is read by {found.reader or 'nobody'}, not by {reader}",
            hint="UNREGISTER the other group, then REGISTER this one",
        )
    (first, last) = session.one(f"SELECT min(tick), max(tick) FROM {TICK}")
    rows = session.query(f"SELECT state FROM {TICK} WHERE tick = $1::bigint", after)
    if last is not None and int(last) < after:
        raise MismatchError(
            f"the source's queue ends at tick {last}, but the trail has changes up to {after}: the database was "
            "restored, or is a copy",
            hint=f"ALTER EXTRACT, BEGIN NOW goes on: {LOAD}",
        )
    if not rows:
        raise MismatchError(
            f"the source's queue begins at tick {first or 'nothing'}, but the trail ends at {after}: changes are lost",
            hint=f"To go on without them, ALTER EXTRACT, BEGIN NOW: {LOAD}",
        )
    if state and rows[0][0] != state:
        raise MismatchError(
            f"tick {after} of the source's queue is not the one that the trail ends with: the database is a copy that "
            "went its own way",
            hint="Mend SOURCEDB, or see docs/trigger-source.md#recovery",
        )
    return Tick.of(rows[0][0] or "")


def lost_triggers(session: Session, gives: Captures, tells: Captures) -> list[tuple[str, Lost]]:
    """The captured tables whose triggers are not those that were made; and those that TABLE names, without any."""
    found = []
    for table in install.tables(session):
        if table.noted and not table.is_captured and gives(table.schema, table.name):
            found.append((table.full_name, Lost.MISSED))
        elif not table.noted and tells(table.schema, table.name):
            found.append((table.full_name, Lost.NEVER))
    return found


def faults(session: Session, settings: SourceSettings, gives: Captures, tells: Captures) -> list[pgcheck.Fault]:
    """All that START would refuse of the queue and of the captured tables. The queue must be there."""
    found = []
    for table in install.tables(session):
        if not gives(table.schema, table.name):
            continue
        if fault := _fault(table, told=tells(table.schema, table.name)):
            found.append(fault)
    if settings.ddl is not None:
        found += _without_ddl(session)
    if settings.project is not None:
        found += pgcheck.columns(session, tells, settings.project)
    return found


def _fault(table: TriggeredTable, *, told: bool) -> pgcheck.Fault | None:
    name = table.full_name
    if table.unfit and told:
        return f"table {name} can't be captured: {table.unfit}", f"Mend that, or TABLEEXCLUDE {name};"
    if table.noted and not table.is_captured:
        what = f"the triggers of table {name} are not those that were made: changes of it were missed"
        return what, f"ADD TRANDATA {name}, TRIGGERLOG. Then {LOAD}"
    if not table.noted and told:
        return f"table {name} has no triggers, so its changes don't come", f"ADD TRANDATA {name}, TRIGGERLOG"
    return None


def _without_ddl(session: Session) -> list[pgcheck.Fault]:
    try:
        pgddl.ready(session)
    except GateError as error:
        return [(error.message, error.hint)]
    (owner, able) = session.one(
        "SELECT r.rolname, r.rolsuper FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner WHERE n.nspname = $1",
        SCHEMA,
    )
    if able == "t":
        return []
    return [
        (
            f"DDL: the queue belongs to {owner}, who is no superuser, so the event trigger writes nothing into it",
            "UNREGISTER EXTRACT, then ADD TRANDATA and REGISTER EXTRACT as a superuser",
        )
    ]


def check(session: Session, settings: SourceSettings, gives: Captures, tells: Captures, found: Findings) -> None:
    """CHECK PARAMS: all that START would refuse, at once."""
    if session.server_version < install.OLDEST_VERSION:
        found.mistakes.append(f"PostgreSQL {session.server_version // 10000} is too old. Version 13 or newer is needed")
        return
    there = install.installed(session)
    if there is not None:
        found.mistakes += [f"{what}. {mend}" for what, mend in faults(session, settings, gives, tells)]
    if there is None or settings.registered is None:
        found.notes.append(
            f"The queue was not checked: ADD TRANDATA, TRIGGERLOG and REGISTER EXTRACT {settings.group} make it"
        )
