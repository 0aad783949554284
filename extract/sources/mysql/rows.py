"""Tables as TABLE_MAP events name them, and the fixed part of row events: what stands before the rows themselves.

    rows: table id u48, flags u16; version 2: length of more u16, which counts itself
          number of columns, packed; a bit for each column that is here; of an update two times such bits

Strategy: a TABLE_MAP is known by all of its bytes but the id: so one that comes again, by whatever id, is looked up. A
row event of a captured table must have all columns: one that begins as the last one of its kind did has them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from extract.sources.mysql.events import BinlogError, UncapturedError, packed
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.tablemap import TableMap, head, parse
from trails.record import Record, TableDef

INSERTS, UPDATES, DELETES, PARTIAL_UPDATES = range(4)
NO_TABLE: Final = 0xFFFFFF
"""The id in a row event that has no rows, and only ends a statement."""
_MOST: Final = 10_000
"""So many shapes are remembered; then all are forgotten, as most of them are of tables that are gone."""
_U16 = struct.Struct("<H").unpack_from

Append = Callable[[Record], None]
Apply = Callable[[bytes, int, int, int, Append], int]
"""Reads the rows in data[at:upto] as records with this table number, and returns how many they are."""


class RowReader(Protocol):
    """What reads the rows of one shape: rowcode.py makes it. Each method is an `Apply`."""

    def inserts(self, data: bytes, at: int, upto: int, number: int, append: Append) -> int:
        """Rows that are new."""
        ...

    def deletes(self, data: bytes, at: int, upto: int, number: int, append: Append) -> int:
        """Rows that were there."""
        ...

    def updates(self, data: bytes, at: int, upto: int, number: int, append: Append, partial: bool = False) -> int:
        """Pairs of rows. `partial`: of JSON columns the second has what changed, or all."""
        ...


@dataclass(frozen=True, slots=True)
class RowShape:
    """What the records of a captured table need: its definition, and what reads its rows."""

    definition: TableDef
    rows: RowReader


Wants = Callable[[str, str], bool]
Describe = Callable[[TableMap], RowShape | None]


class LogTable:
    """One shape of one table. Where `captured` is not set, nothing else is."""

    __slots__ = ("applies", "begins", "captured", "definition", "name", "width")

    def __init__(self, name: str, table: TableMap | None = None, shape: RowShape | None = None) -> None:
        self.name = name
        self.captured = shape is not None
        if table is None or shape is None:
            return
        self.definition = shape.definition
        self.width = len(table.columns)
        code = shape.rows
        self.applies: tuple[Apply, ...] = (
            code.inserts, code.updates, code.deletes, partial(code.updates, partial=True)
        )  # fmt: skip
        self.begins = [b""] * len(self.applies)  # how the last row event of each kind began, which had all columns


class LogTables:
    """Those that the open group has named, by id, and the shapes of all that were met."""

    def __init__(self, flavour: Flavour, wants: Wants, describe: Describe) -> None:
        """`wants(schema, name)`: whether anything of a table is captured. `describe` may say None all the same."""
        self.by_id: dict[int, LogTable] = {}
        self._met: dict[bytes, LogTable] = {}
        self._flavour = flavour
        self._wants = wants
        self._describe = describe

    def meet(self, data: bytes, at: int, upto: int) -> None:
        """A TABLE_MAP: from here on its id means this table."""
        content = data[at + 6 : upto]
        table = self._met.get(content)
        if table is None:
            table = self._met[content] = self._made(data, at, upto)
        self.by_id[int.from_bytes(data[at : at + 6], "little")] = table

    def anew(self) -> None:
        """Shapes may have changed: ask for each again."""
        self.by_id.clear()
        self._met.clear()

    def wants(self, data: bytes, at: int, upto: int) -> int | None:
        """The id in a TABLE_MAP of a table that is captured; None of another."""
        begin = head(data, at, upto)
        return begin.table_id if self._wants(begin.schema, begin.name) else None

    def _made(self, data: bytes, at: int, upto: int) -> LogTable:
        if len(self._met) >= _MOST:
            self._met.clear()
        begin = head(data, at, upto)
        name = f"{begin.schema}.{begin.name}"
        if not self._wants(begin.schema, begin.name):
            return LogTable(name)
        _, table = parse(data, at, upto, self._flavour)
        return LogTable(name, table, self._describe(table))


def rows_at(table: LogTable, kind: int, data: bytes, at: int, *, second: bool) -> int:
    """Where the rows begin. Raises errors where the event has not all columns."""
    at = behind_fixed(data, at, second=second)
    begin = table.begins[kind]
    if begin and data.startswith(begin, at):
        return at + len(begin)
    end = _behind_images(table, kind, data, at)
    table.begins[kind] = data[at:end]
    return end


def behind_fixed(data: bytes, at: int, *, second: bool) -> int:
    """Where the number of columns stands."""
    return at + 8 + (_U16(data, at + 8)[0] if second else 0)


def _behind_images(table: LogTable, kind: int, data: bytes, at: int) -> int:
    """Behind the bits of an event that may be the first of its kind; those behind the last column may be anything."""
    width, at = packed(data, at)
    if width != table.width:
        raise BinlogError(f"table {table.name}: expected rows of {table.width} columns, found {width}")
    size = (width + 7) // 8
    for _ in range(1 if kind in (INSERTS, DELETES) else 2):
        bits = int.from_bytes(data[at : at + size], "little") & ((1 << width) - 1)
        if bits.bit_count() != width:
            raise UncapturedError(
                f"table {table.name}: a change has {bits.bit_count()} of {width} columns, as its session's "
                "binlog_row_image was not FULL",
                hint="SET GLOBAL binlog_row_image = FULL, and end the sessions that have another. ALTER EXTRACT past "
                "this change, and load the table again",
            )
        at += size
    return at
