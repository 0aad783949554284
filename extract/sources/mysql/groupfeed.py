"""What the open group hands over: rows, statements, and at last its end. The sink hears of it at its first change.

Most groups of a log change nothing that is captured: they leave nothing but a place. A row event costs a few look-ups;
all else is the work of its table's own decoder. What is handed over and not known yet goes in pieces, so that a large
group needs no memory here.
"""

from __future__ import annotations

from typing import Final

from extract.source import Sink
from extract.sources.mysql import events as ev
from extract.sources.mysql.begins import GroupBegin
from extract.sources.mysql.ddl.query import Truncated
from extract.sources.mysql.events import BinlogError, Event, name_of, packed
from extract.sources.mysql.rows import (
    DELETES,
    INSERTS,
    NO_TABLE,
    PARTIAL_UPDATES,
    UPDATES,
    LogTables,
    behind_fixed,
    rows_at,
)  # fmt: skip
from extract.sources.mysql.unwrap import inflated
from trails.ddl import DdlChange
from trails.position import Position
from trails.record import TRUNCATE

PIECE: Final = 128 << 10
"""After so many bytes of rows the sink may put out what there is."""
ROWS: Final = {
    ev.WRITE_ROWS_V1: (INSERTS, False), ev.UPDATE_ROWS_V1: (UPDATES, False), ev.DELETE_ROWS_V1: (DELETES, False),
    ev.WRITE_ROWS_V2: (INSERTS, True), ev.UPDATE_ROWS_V2: (UPDATES, True), ev.DELETE_ROWS_V2: (DELETES, True),
    ev.PARTIAL_UPDATE_ROWS: (PARTIAL_UPDATES, True),
}  # fmt: skip
"""What a row event does, and whether it is of version 2."""
PACKED: Final = {
    ev.WRITE_ROWS_COMPRESSED_V1: ev.WRITE_ROWS_V1, ev.UPDATE_ROWS_COMPRESSED_V1: ev.UPDATE_ROWS_V1,
    ev.DELETE_ROWS_COMPRESSED_V1: ev.DELETE_ROWS_V1, ev.WRITE_ROWS_COMPRESSED: ev.WRITE_ROWS_V2,
    ev.UPDATE_ROWS_COMPRESSED: ev.UPDATE_ROWS_V2, ev.DELETE_ROWS_COMPRESSED: ev.DELETE_ROWS_V2,
}  # fmt: skip
"""MariaDB's packed row events, and what they are when they are unpacked."""


class GroupFeed:
    """One group after the other, to one sink."""

    def __init__(self, sink: Sink, tables: LogTables) -> None:
        self.tables = tables
        self._sink = sink
        self._append = sink.records.append
        self._cache = sink.cache
        self._by_id = tables.by_id
        self._begin = GroupBegin(None, 0)
        self._csn = ""
        self._begun = False
        self._size = 0  # of rows, since the sink heard of it

    def open(self, begin: GroupBegin, csn: str) -> None:
        """A group begins."""
        self._begin, self._csn, self._begun, self._size = begin, csn, False, 0
        self._by_id.clear()

    def commit(self, origin: Position, state: str) -> None:
        """It ends, and counts."""
        time_us = self._begin.commit_us
        if not self._begun:
            self._sink.reached(origin, time_us, state)
            return
        self._begun = False
        if self._size:
            self._sink.grew(self._size)
        self._sink.commit(origin, self._csn, time_us, state)

    def abandon(self) -> None:
        """What it did counts for nothing."""
        if self._begun:
            self._begun = False
            self._sink.abandon()

    def change(self, change: DdlChange | Truncated) -> None:
        """What a statement changed."""
        if not self._begun:
            self._tell_begin()
        if isinstance(change, Truncated):
            number = self._sink.table(change.definition)
            self._append((TRUNCATE, (number,), 0))
        else:
            self._sink.ddl(change)

    def table_map(self, event: Event, data: bytes) -> None:
        """From here on an id means this table."""
        self.tables.meet(data, event.at, event.upto)

    def rows(self, kind: int, second: bool, event: Event, data: bytes) -> None:
        """A row event; the first two as ROWS has them."""
        at, upto = event[5], event[6]
        table = self._by_id.get(int.from_bytes(data[at : at + 6], "little"))
        if table is None:
            _without_map(event, data)
            return
        if not table.captured:
            return
        begin = rows_at(table, kind, data, at, second=second)
        if not self._begun:
            self._tell_begin()
        number = self._cache.get(table)
        if number is None:
            number = self._sink.table(table.definition)
            self._cache[table] = number
        table.applies[kind](data, begin, upto, number, self._append)
        self._size += upto - at
        if self._size >= PIECE:
            self._sink.grew(self._size)
            self._size = 0

    def _tell_begin(self) -> None:
        self._begun = True
        self._sink.begin(self._csn, str(self._begin.gtid or ""), self._begin.commit_us)


def unpacked_rows(event: Event, data: bytes) -> tuple[Event, bytes]:
    """A packed row event as it would be without that: MariaDB packs the rows, and nothing before them."""
    kind, second = ROWS[PACKED[event.type]]
    width, begin = packed(data, behind_fixed(data, event.at, second=second))
    begin += (width + 7) // 8 * (2 if kind == UPDATES else 1)
    if begin > event.upto:
        raise BinlogError(f"event {name_of(event.type)}: expected rows at {begin}, found its end at {event.upto}")
    body = data[event.at : begin] + inflated(data, begin, event.upto)
    return Event(PACKED[event.type], event.time, event.server, 0, 0, 0, len(body)), body


def _without_map(event: Event, data: bytes) -> None:
    table_id = int.from_bytes(data[event.at : event.at + 6], "little")
    if table_id != NO_TABLE:
        raise BinlogError(f"event {name_of(event.type)} of table {table_id}, which no TABLE_MAP of its group names")
