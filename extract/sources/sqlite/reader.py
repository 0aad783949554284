"""The queue, read: one look at the file's end, then what lies before it in pieces; and the change of a table's shape.

Rule: what a segment holds was written by triggers that fit the tables. So each look reads the file's schema version and
the queue's last id in one state of the file. Where the version is another one, each table is compared with the shape
that its triggers were made for, and what differs is mended before anything more is read: under the file's write lock
triggers are made anew, and the rows that the queue has of the table are logged again, as the old triggers did not see
an added column. That is one transaction at the source, and goes through the queue like any other (SHAPE, REFRESH). What
can't be mended exactly ends the process, by the table's name.

What a commit in WAL mode wrote may still be on its way to the disk, when the application runs with synchronous =
NORMAL. It is synced before it is handed over: else the source could forget, by a loss of power, what the trail has.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from extract.segments import PIECE_BYTES, Piece, Row, SourceSegment
from extract.sources.sqlite import queue
from extract.sources.sqlite.check import check_history, differing, state_text, untriggered
from extract.sources.sqlite.link import (
    BUSY_SECONDS,
    connect,
    ident,
    identity,
    mapped,
    number,
    path_of,
    reading,
    writing,
)
from extract.sources.sqlite.queue import BEGUN, DELETE, DROPPED, INSERT, LOG, SHAPE, UPDATE, Logged
from extract.sources.sqlite.statement import hidden
from extract.sources.sqlite.tables import LOST, SourceTable, changed
from extract.sources.sqlite.values import Convert, OtherClassError, column, converters, refused
from trails.ddl import ALTER, CREATE, DDL_ROWS, DROP, RENAME, DdlChange
from trails.errors import AwayError, MismatchError
from trails.record import MISSING, Op, TableDef

LOOK_SECONDS: Final = 0.05
LOG_ROWS: Final = 4000
FORGET_ROWS: Final = 20_000
"""So many rows are deleted under one lock."""
_DAY_US: Final = 86_400_000_000
_INSERT, _UPDATE, _DELETE = int(Op.INSERT), int(Op.UPDATE), int(Op.DELETE)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Capture:
    """What the parameter file makes of a table: its definition, None if it is not captured; and its changes of shape.

    `befores`: updates carry their whole old rows. `wants`: which changes of shape go into the trail.
    """

    definition: Callable[[SourceTable], TableDef | None]
    anys: Callable[[SourceTable], tuple[str, ...]]
    befores: Callable[[str], bool]
    wants: Callable[[DdlChange], bool]
    is_seed: Callable[[str], bool]


@dataclass(slots=True)
class QueueFacts:
    """What the asker knows of the queue, for others to look at."""

    first: int = 0
    last: int = 0
    row_bytes: float = 0.0
    looked_us: int = 0


class _QueueTable:
    """A table number as its rows are read. `definition` is None where they are passed over."""

    def __init__(self, one: Logged, capture: Capture) -> None:
        self.one = one
        table = one.table
        self.definition = capture.definition(table)
        self.width = len(table.columns)
        self.befores = capture.befores(table.name)
        self.key = tuple(i for i, c in enumerate(table.columns) if c.key)
        self.loose = tuple(i for i in self.key if not table.columns[i].not_null)
        self.old = tuple(range(self.width)) if one.allcols else self.key
        self.old_key = tuple(self.width + 1 + self.old.index(i) for i in self.key)
        self.new_key = tuple(1 + i for i in self.key)
        self.convert: tuple[Convert, ...] = converters(self.definition) if self.definition else ()
        self.columns = [column(one.type) for one in self.definition.columns] if self.definition else []
        kinds = (
            [c.type for c in self.definition.columns] if self.definition else [table.logical(c) for c in table.columns]
        )
        self.wide = tuple(1 + i for i, kind in enumerate(kinds) if kind not in ("bigint", "double"))
        self.fixed = 16 + 8 * (self.width - len(self.wide))
        columns = ", ".join(f"c{n}" for n in range(1, self.width + 1))
        old = "".join(f", o{i + 1}" for i in self.old)
        self.select = (
            f"SELECT id, {columns}{old} FROM {queue.values_table(one.number)} WHERE id > ? AND id <= ? ORDER BY id"
        )
        self.replaced = f"SELECT id, {columns} FROM {queue.replaced_table(one.number)} WHERE id = ?"

    def size(self, row: tuple[Any, ...]) -> int:
        """About how many bytes a row has."""
        size = self.fixed
        for i in self.wide:
            value = row[i]
            if value.__class__ is str or value.__class__ is bytes:
                size += len(value)
            elif value is not None:
                size += 8
        return size

    def image(self, row: tuple[Any, ...]) -> list[Any]:
        """The row itself, without its id."""
        made = [convert(value) for convert, value in zip(self.convert, row[1 : 1 + self.width], strict=True)]
        for i in self.loose:
            if made[i] is None:
                raise OtherClassError
        return made

    def images(self, rows: list[tuple[Any, ...]]) -> list[list[Any]]:
        """The same of many rows, column by column."""
        values = list(zip(*rows, strict=True))[1 : 1 + self.width]
        made = [convert(given) for convert, given in zip(self.columns, values, strict=True)]
        for i in self.loose:
            if None in made[i]:
                raise OtherClassError
        return list(map(list, zip(*made, strict=True)))

    def befores_of(self, rows: list[tuple[Any, ...]]) -> list[list[Any] | None]:
        """The rows that updates changed, where somebody needs them."""
        if not self.befores:
            columns = list(zip(*rows, strict=True))
            pairs = [(columns[old], columns[new]) for old, new in zip(self.old_key, self.new_key, strict=True)]
            if all(old == new and [*map(type, old)] == [*map(type, new)] for old, new in pairs):
                return [None] * len(rows)
        return [self.before(row) for row in rows]

    def is_refused(self, op: int, row: tuple[Any, ...]) -> bool:
        """Whether it is one that `images` or `befores_of` can't take."""
        try:
            self.image(row)
            if op == UPDATE and len(row) > 1 + self.width:
                self.before(row)
        except OtherClassError:
            return True
        return False

    def before(self, row: tuple[Any, ...]) -> list[Any] | None:
        """The row that an update changed, where somebody needs it."""
        if not self.befores and all(
            _alike(row[old], row[new]) for old, new in zip(self.old_key, self.new_key, strict=True)
        ):
            return None
        made: list[Any] = [MISSING] * self.width
        for i, value in zip(self.old, row[1 + self.width :], strict=True):
            made[i] = self.convert[i](value)
        return made


def _alike(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def _alike_from(
    log: list[Any], at: int, rows: Iterator[tuple[Any, ...]], table: _QueueTable, most: int
) -> tuple[list[tuple[Any, ...]], int]:
    """The rows from `at` on of one table and op that replaced nothing, or the one that did; and their bytes.

    They end where `most` bytes are reached: a row more than that may be had, and not two.
    """
    _, tab, op, more = log[at]
    found: list[tuple[Any, ...]] = []
    size, wanted = 0, table.definition is not None
    for n in range(at, len(log)):
        change, its, what, replaces = log[n]
        if found and (its != tab or what != op or replaces or more or size >= most):
            break
        row = next(rows, None)
        if row is None or row[0] != change:
            raise changed(f"has change {change} of table number {tab} without its values")
        found.append(row)
        if wanted:
            size += table.size(row)
    return found, size


def _records(table: _QueueTable, op: int, rows: list[tuple[Any, ...]]) -> list[Row]:
    if op == INSERT:
        return [(_INSERT, image) for image in table.images(rows)]
    if op == DELETE:
        return [(_DELETE, image) for image in table.images(rows)]
    old = table.befores_of(rows) if op == UPDATE else [None] * len(rows)
    return list(zip([_UPDATE] * len(rows), table.images(rows), old, strict=True))


class QueueReader:
    """The queue as segments; extract.segments.Method says what each method does."""

    def __init__(self, url: str, expected: str, capture: Capture, say: Say) -> None:
        """`expected`: the install id that the trail or the registration knows; `say` takes a line for the operator."""
        self._url = url
        self._expected = expected
        self._capture = capture
        self._say = say
        self._conn: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._wal = ""
        self._version: int | None = None
        self._seen: int | None = None
        self._tables: dict[int, _QueueTable] = {}
        self._logged: dict[int, Logged] = {}
        self._missed: set[str] = set()
        self.facts = QueueFacts()

    # --- the method's verbs -------------------------------------------------------------------------------------------

    def open(self, after: int, state: str) -> None:
        self.close()
        self._file = identity(self._url)
        self._conn = connect(self._url)
        with mapped():
            (mode,) = self._conn.execute("PRAGMA journal_mode").fetchone()
            self._wal = path_of(self._url) + "-wal" if mode == "wal" else ""
            check_history(self._conn, self._expected, after, state)

    def close(self) -> None:
        conn, self._conn = self._conn, None
        self._version = self._seen = None
        if conn is not None:
            conn.close()

    def pause(self) -> float:
        return LOOK_SECONDS

    def settled(self, after: int) -> SourceSegment | None:
        """A heartbeat is a segment of its own: whoever writes it writes nothing else with it."""
        if identity(self._url) != self._file:
            raise AwayError(f"{path_of(self._url)} is not the file it was")
        with mapped():
            seen = number(self.conn, "PRAGMA data_version")
            if seen == self._seen:
                self.facts.looked_us = time.time_ns() // 1000
                return None
            with reading(self.conn):
                end, fits = queue.last_id(self.conn), self._fits(after)
            if not fits:
                end = self._mend(after)
            self._note(end)
            if end <= after:
                self._seen = seen
                return None
            self._sync()
            return self._segment(self._cut_at_heartbeat(after, end))

    def changes(self, after: int, segment: SourceSegment) -> Iterator[Piece]:
        while after < segment.end:
            with mapped():
                try:
                    piece, after = self._piece(after, segment.end)
                except sqlite3.OperationalError as error:
                    if "decode to UTF-8" not in str(error) or self.conn.text_factory is not str:
                        raise
                    self.conn.text_factory = _any_text  # slower, so only once it is needed
                    continue
            yield piece

    def forget(self, upto: int) -> bool:
        with mapped():
            first = number(self.conn, f"SELECT min(id) FROM {LOG}")
            if first >= upto:
                return False
            end = min(upto, first + FORGET_ROWS)
            # A lock that somebody has is no reason to wait: there is a next time.
            self.conn.execute("PRAGMA busy_timeout = 0")
            try:
                with writing(self.conn):
                    numbers = queue.numbers(self.conn)
                    queue.forget(self.conn, numbers, end)
                    on = {one.number for one in self._logged.values() if one.is_on}
                    if end == upto and self._logged and set(numbers) - on:
                        queue.retire(self.conn, end)
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorname", "") not in ("SQLITE_BUSY", "SQLITE_LOCKED"):
                    raise
                time.sleep(0.005)
                return True
            finally:
                self.conn.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1000)}")
        self.facts.first = end
        return end < upto

    # --- a look -------------------------------------------------------------------------------------------------------

    @property
    def conn(self) -> sqlite3.Connection:
        """The connection."""
        if self._conn is None:
            raise AwayError("the source database is closed")
        return self._conn

    def _note(self, end: int) -> None:
        if not self.facts.first:
            self.facts.first = number(self.conn, f"SELECT min(id) FROM {LOG}")
        self.facts.last, self.facts.looked_us = end, time.time_ns() // 1000

    def _sync(self) -> None:
        """What was committed is on the disk before anybody builds on it. No lock of SQLite's is on this file."""
        if not self._wal:
            return
        try:
            log = os.open(self._wal, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # its last user has put all of it into the file itself, and synced that
        try:
            os.fsync(log)
        except OSError as error:
            raise AwayError(f"{self._wal} can't be synced: {error}") from error
        finally:
            os.close(log)

    def _cut_at_heartbeat(self, after: int, end: int) -> int:
        for n, table in self._tables.items():
            if self._capture.is_seed(table.one.table.name):
                beat = number(
                    self.conn, f"SELECT min(id) FROM {queue.values_table(n)} WHERE id > ? AND id <= ?", (after, end)
                )
                if beat:
                    end = beat - 1 if beat > after + 1 else beat
        return end

    def _segment(self, end: int) -> SourceSegment:
        at = queue.logged_at(self.conn.execute(f"SELECT at FROM {LOG} WHERE id = ?", (end,)).fetchone(), end)
        return SourceSegment(end, csn_text(end), str(end), round((at - queue.FIRST_DAY) * _DAY_US), state_text(at))

    # --- shapes -------------------------------------------------------------------------------------------------------

    def _fits(self, after: int) -> bool:
        """Whether all triggers fit their tables, in the state that is being read. Raises where it can't be mended."""
        version = number(self.conn, "PRAGMA schema_version")
        if version == self._version:
            return True
        self._known(again=True)
        if differing(self.conn, list(self._logged.values()), after):
            return False
        self._tell_missed()
        self._version = version
        return True

    def _mend(self, after: int) -> int:
        """Make triggers anew where they don't fit. Returns the queue's end behind that."""
        with writing(self.conn):
            self._known(again=True)
            for one, now in differing(self.conn, list(self._logged.values()), after):
                if now is None:
                    queue.dropped(self.conn, one)
                    self._say(f"table {one.table.full_name} was dropped at the source")
                    continue
                made = queue.add(self.conn, now, allcols=one.allcols, before=one, renamed=True)
                if len(now.columns) > len(one.table.columns):
                    queue.refresh(self.conn, one, made, after)
                self._say(f"table {now.full_name} changed its shape at the source; its triggers were made anew")
            self._known(again=True)
            self._tell_missed()
            self._version = number(self.conn, "PRAGMA schema_version")
            return queue.last_id(self.conn)

    def _known(self, *, again: bool = False) -> dict[int, Logged]:
        if again or not self._logged:
            self._logged = {one.number: one for one in queue.logged(self.conn)}
            self._tables = {n: _QueueTable(one, self._capture) for n, one in self._logged.items()}
        return self._logged

    def _tell_missed(self) -> None:
        """Say once of each table that TABLE names and that has no triggers: START would refuse it."""
        on = {one.table.name for one in self._logged.values() if one.is_on}
        missed = {name for name, _ in untriggered(self.conn, on, self._captured)}
        for name in sorted(missed - self._missed):
            self._say(f"table main.{name} is new and is not captured yet: ADD TRANDATA main.{name}")
        self._missed = missed

    def _captured(self, table: SourceTable) -> bool:
        return self._capture.definition(table) is not None

    # --- pieces -------------------------------------------------------------------------------------------------------

    def _piece(self, after: int, end: int) -> tuple[Piece, int]:
        """(what comes next, the last id that is in it)."""
        found = self.conn.execute(
            f"SELECT id, tab, op, more FROM {LOG} WHERE id > ? AND id <= ? ORDER BY id LIMIT {LOG_ROWS}", (after, end)
        ).fetchall()
        log = [queue.log_row(row) for row in found]
        last = log[-1][0] if log else after
        if not log or last - after != len(log):
            raise MismatchError(
                f"the source's queue lacks rows between {after} and {min(end, last + 1)}: somebody has deleted them",
                hint=f"Changes are lost: {LOST}",
            )
        rows = {
            n: self.conn.execute(self._of(n).select, (after, last))
            for n in {tab for _, tab, op, _ in log if op < SHAPE}
        }
        runs: list[tuple[TableDef, list[Row]] | DdlChange] = []
        size = 0
        try:
            at = 0
            while at < len(log) and size < PIECE_BYTES:
                last, tab, op, more = log[at]
                if op >= SHAPE:
                    runs += self._shape_change(tab, op) if op != BEGUN else []
                    at += 1
                    continue
                table = self._tables[tab]
                alike, taken = _alike_from(log, at, rows[tab], table, PIECE_BYTES - size)
                last, at = log[at + len(alike) - 1][0], at + len(alike)
                size += taken + self._add(runs, table, op, alike, more)
        finally:
            for cursor in rows.values():
                cursor.close()
        self.facts.row_bytes = size / (last - after)
        return Piece(runs, size), last

    def _of(self, tab: int) -> _QueueTable:
        if tab not in self._tables:
            self._known(again=True)
        if tab not in self._tables:
            raise changed(f"names table number {tab}, which {queue.TABLE} does not have")
        return self._tables[tab]

    def _add(
        self,
        runs: list[tuple[TableDef, list[Row]] | DdlChange],
        table: _QueueTable,
        op: int,
        rows: list[tuple[Any, ...]],
        more: int,
    ) -> int:
        """Rows of one table and op, and what the only one of them has replaced: how many bytes that has."""
        definition = table.definition
        if definition is None:
            return 0
        last = runs[-1] if runs else None
        if isinstance(last, tuple) and last[0] is definition:
            out = last[1]
        else:
            out = []
            runs.append((definition, out))
        replaced = self.conn.execute(table.replaced, (rows[0][0],)).fetchall() if more else []
        try:
            out += [(_DELETE, table.image(row)) for row in replaced]
            out += _records(table, op, rows)
        except OtherClassError:
            row = next(row for row in (*replaced, *rows) if table.is_refused(op, row))
            raise refused(table.one.table, definition, row[1 : 1 + table.width], f"change {row[0]}") from None
        return sum(map(table.size, replaced))

    def _shape_change(self, tab: int, op: int) -> list[DdlChange]:
        change = self._change(self._of(tab).one, op)
        return [change] if change is not None and self._capture.wants(change) else []

    def _change(self, one: Logged, op: int) -> DdlChange | None:
        """What a SHAPE or DROPPED of the log means; None if nothing that a reader would see."""
        new = one.table.shape(self._capture.anys(one.table))
        if op == DROPPED:
            return DdlChange(DROP, new, None, f"DROP TABLE {ident(one.table.name)}")
        if one.before is None:
            return DdlChange(CREATE, None, new, hidden(one.sql), DDL_ROWS if one.rows else 0)
        before = self._of(one.before).one.table
        old = before.shape(self._capture.anys(before))
        if old == new:
            return None
        return DdlChange(ALTER if old.name == new.name else RENAME, old, new, hidden(one.sql))


def _any_text(data: bytes) -> str:
    """Text whose bytes may be no UTF-8; they are kept."""
    return data.decode("utf-8", "surrogateescape")


def csn_text(place: int) -> str:
    """A place in the queue as a CSN: texts sort as the numbers do."""
    return f"{place:020d}"
