"""What an SQLite source must be and have: the file that was registered, all changes behind a place, fitting triggers.

Only questions are asked here, and each failure names what mends it. Where triggers don't fit a table any more, but
nothing was missed, the reader makes them anew (reader.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from extract.sources.sqlite import queue
from extract.sources.sqlite.link import number
from extract.sources.sqlite.queue import INSERT, LOG, UPDATE, Logged
from extract.sources.sqlite.tables import LOST, PREFIX, SourceTable, describe
from trails.errors import MismatchError, OperatorError

LOAD: Final = "the target must get the table anew; see docs/sqlite-source.md#recovery"


def state_text(at: float) -> str:
    """When the last row of a segment was logged: it tells a copy of the file that went its own way."""
    return f"at={at!r}"


def check_history(conn: sqlite3.Connection, expected: str, after: int, state: str = "") -> None:
    """Raise unless this is the file that was registered, and it still has everything behind `after`.

    A copy, or a backup that was restored, has the same id. By the row that the trail ends with it is found out: where
    that is not there yet, or is another one.
    """
    found = queue.installed(conn)
    if found is None:
        raise MismatchError("the source file has no queue", hint="DBLOGIN, then REGISTER EXTRACT and ADD TRANDATA")
    if found.id != expected:
        raise MismatchError(
            f"the source file is {found.id}, but this group belongs to {expected}",
            hint="Mend SOURCEDB; another file needs a group and a trail of its own",
        )
    first, last = conn.execute(f"SELECT min(id), max(id) FROM {LOG}").fetchone()
    if first is None or first > after + 1:
        raise MismatchError(
            f"the source's queue begins at {first or 'nothing'}, but the trail ends at {after}: changes are lost",
            hint=f"Nobody has them any more: {LOST}",
        )
    if last < after:
        raise MismatchError(
            f"the source's queue ends at {last}, but the trail has changes up to {after}: the file was restored",
            hint="Put the right file back, or see docs/sqlite-source.md#recovery",
        )
    row = conn.execute(f"SELECT at FROM {LOG} WHERE id = ?", (after,)).fetchone()
    if state and row is not None and state_text(row[0]) != state:
        raise MismatchError(
            f"change {after} of the source's queue is not the one that the trail ends with: it is a backup, or a copy "
            "that went its own way",
            hint="Mend SOURCEDB, or see docs/sqlite-source.md#recovery",
        )


def differing(conn: sqlite3.Connection, known: list[Logged], after: int) -> list[tuple[Logged, SourceTable | None]]:
    """The tables whose triggers don't fit any more, with their shape as it is now; None: the table is gone.

    Raises OperatorError where changes may have been missed that nothing can tell.
    """
    there = queue.triggered(conn)
    found: list[tuple[Logged, SourceTable | None]] = []
    for one in known:
        if not one.is_on:
            continue
        name = there.get(one.number, one.table.name)
        now = describe(conn, name)
        if one.number not in there:
            if now is not None:
                raise OperatorError(
                    f"table {one.table.full_name} has lost its triggers (was it made anew?): changes of it were missed",
                    hint=f"ADD TRANDATA {one.table.full_name}, then START; {LOAD}",
                )
            found.append((one, None))
            continue
        assert now is not None
        now = now.follows(one.table, renamed=True)
        if now.unfit:
            raise OperatorError(f"table {now.full_name} can't be captured any more: {now.unfit}", hint=queue.mend(now))
        if now != one.table:
            _check_unique(conn, one, now, after)
            found.append((one, now))
    return found


def _check_unique(conn: sqlite3.Connection, one: Logged, now: SourceTable, after: int) -> None:
    """A REPLACE may have removed rows for a unique index that the triggers did not know."""
    numbers = {c.name: c.number for c in one.table.columns}
    known = {frozenset((numbers[name], how) for name, how in unique.columns) for unique in one.table.unique}
    numbers = {c.name: c.number for c in now.columns}
    new = [
        unique for unique in now.unique if frozenset((numbers[name], how) for name, how in unique.columns) not in known
    ]
    changed = number(
        conn, f"SELECT count(*) FROM {LOG} WHERE id > ? AND tab = ? AND op IN ({INSERT}, {UPDATE})", (after, one.number)
    )
    if new and changed:
        columns = ", ".join(name for name, _ in new[0].columns)
        raise OperatorError(
            f"table {now.full_name} got a unique index on ({columns}) while it was written to: a REPLACE may have "
            "removed rows unseen",
            hint=f"ADD TRANDATA {now.full_name}, then START; see docs/sqlite-source.md#recovery",
        )


def untriggered(
    conn: sqlite3.Connection, on: set[str], captured: Callable[[SourceTable], bool]
) -> list[tuple[str, str]]:
    """(name, why) of each table that TABLE names and that has no triggers; why is empty if it only lacks these."""
    found = []
    for (name,) in conn.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY 1"
    ).fetchall():
        if name in on or name.lower().startswith(("sqlite_", PREFIX)):
            continue
        table = describe(conn, name)
        if table is not None and captured(table):
            found.append((name, table.unfit))
    return found
