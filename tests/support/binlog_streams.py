"""Recorded binary logs for tests: fed as a server sends them, with a small decoder of rows, and a sink of tables.

tests/support/record_binlogs.py made the recordings.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from extract.sources.mysql import gtid
from extract.sources.mysql.ddl.query import QueryText, Truncated
from extract.sources.mysql.decoder import BinlogDecoder
from extract.sources.mysql.events import ARTIFICIAL, HEADER, ROTATE, BinlogError
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.handed import Start
from extract.sources.mysql.rows import RowShape
from extract.sources.mysql.state import State
from extract.sources.mysql.tablemap import LONG, TableMap
from trails.position import Position
from trails.record import DELETE, INSERT, TRUNCATE, UPDATE, Column, TableDef

FOLDER = Path(__file__).parent / "binlogs"
WHOLE = ("binlog.000001", "binlog.000002", "binlog.000003", "binlog.000004")
"""The files of a recording of which everything can be captured."""
THIN, NAMELESS = "binlog.000005", "binlog.000006"
"""One with an image that is not full, and one without names of columns."""
BORN = Position(0, 0)


@dataclass(frozen=True)
class Recording:
    """What one server wrote."""

    flavour: Flavour

    def data(self, file: str) -> bytes:
        """A log file's bytes."""
        return (FOLDER / self.flavour.value / file).read_bytes()

    def tables(self, file: str) -> dict[str, dict[str, list[str | None]]]:
        """What the tables held at its end, by table and id."""
        found = json.loads((FOLDER / self.flavour.value / "tables.json").read_text())[file]
        return {table: {row[0]: row for row in rows} for table, rows in found.items()}

    def events(self, file: str) -> list[bytes]:
        """As the server sends them: first where it is."""
        return [rotate(file), *cut(self.data(file))]


def cut(data: bytes, at: int = 4) -> Iterator[bytes]:
    """The events of a file."""
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        yield data[at : at + size]
        at += size


def event(kind: int, body: bytes, *, flags: int = 0, end: int = 0, crc: bool = True, time: int = 1) -> bytes:
    """One of our own making."""
    size = HEADER.size + len(body) + (4 if crc else 0)
    data = HEADER.pack(time, kind, 1, size, end, flags) + body
    return data + struct.pack("<I", zlib.crc32(data)) if crc else data


def rotate(file: str, pos: int = 4, **more: Any) -> bytes:
    """How each stream begins."""
    return event(ROTATE, struct.pack("<Q", pos) + file.encode(), flags=ARTIFICIAL, **more)


def bare(data: bytes) -> bytes:
    """An event without its checksum."""
    body = bytearray(data[:-4])
    struct.pack_into("<I", body, 9, len(body))
    return bytes(body)


class SmallRows:
    """Rows of int, varchar and text, all of which may be NULL but the first."""

    def __init__(self, table: TableMap) -> None:
        self.table = table
        self.count = len(table.columns)

    def inserts(self, data: bytes, at: int, upto: int, number: int, append: Any) -> int:
        return self._each(data, at, upto, lambda row: append((INSERT, number, row)))

    def deletes(self, data: bytes, at: int, upto: int, number: int, append: Any) -> int:
        return self._each(data, at, upto, lambda row: append((DELETE, number, row)))

    def updates(self, data: bytes, at: int, upto: int, number: int, append: Any, partial: bool = False) -> int:
        rows: list[Any] = []
        self._each(data, at, upto, rows.append)
        if len(rows) % 2:
            raise BinlogError("an update of one row")
        for before, after in zip(rows[::2], rows[1::2], strict=True):
            append((UPDATE, number, after, before))
        return len(rows) // 2

    def _each(self, data: bytes, at: int, upto: int, take: Any) -> int:
        count = 0
        while at < upto:
            bits = int.from_bytes(data[at : at + (self.count + 7) // 8], "little")
            at += (self.count + 7) // 8
            row: list[Any] = []
            for i, column in enumerate(self.table.columns):
                if bits >> i & 1:
                    row.append(None)
                    continue
                if column.type == LONG:
                    row.append(str(int.from_bytes(data[at : at + 4], "little", signed=True)))
                    at += 4
                    continue
                width = 2 if column.type != 15 or column.meta > 255 else 1
                size = int.from_bytes(data[at : at + width], "little")
                row.append(data[at + width : at + width + size].decode("utf-8", "replace"))
                at += width + size
            take(row)
            count += 1
        if at != upto:
            raise BinlogError(f"rows end at {at}, and their event at {upto}")
        return count


def described(table: TableMap) -> RowShape:
    """What the decoder asks for."""
    columns = tuple(Column(one.name, "text", "text", i in table.key) for i, one in enumerate(table.columns))
    return RowShape(TableDef(table.schema, table.name, columns), SmallRows(table))


@dataclass
class Told:
    """Reads only TRUNCATE, and notes the rest."""

    texts: list[QueryText] = field(default_factory=list)

    def run(self, query: QueryText) -> Sequence[Truncated]:
        self.texts.append(query)
        if query.sql.startswith(b"TRUNCATE TABLE "):
            return [Truncated(TableDef(query.schema, query.sql[15:].decode(), ()))]
        return []


class Tables:
    """A sink that keeps every commit, and what the tables hold by the first column of each row."""

    def __init__(self, origin: Position = BORN, state: str = "") -> None:
        self.records: list[Any] = []
        self.cache: dict[Any, Any] = {}
        self.origin, self.state = origin, state
        self.rows: dict[str, dict[str, Any]] = {}
        self.commits: list[tuple[str, Position, str]] = []
        """CSN, origin and state of each."""
        self.places: list[tuple[Position, str]] = []
        """All that was said, also without changes."""
        self.largest = 0
        self._defs: list[TableDef] = []
        self._csn = ""

    def table(self, definition: TableDef) -> int:
        self._defs.append(definition)
        return len(self._defs) - 1

    def keeps(self, _definition: TableDef, _column: int) -> bool:
        return True

    def ddl(self, change: Any) -> None:
        raise AssertionError(change)

    def begin(self, csn: str, _xid: str, _commit_us: int) -> None:
        assert not self.records and not self._csn
        assert csn > (self.commits[-1][0] if self.commits else "")
        self._csn = csn

    def commit(self, origin: Position, csn: str, _commit_us: int, state: str = "") -> None:
        assert csn == self._csn and origin > self.origin
        self._csn = ""
        for record in self.records:
            self._apply(record)
        self.records.clear()
        self.cache.clear()
        self.commits.append((csn, origin, state))
        self._at(origin, state)

    def grew(self, size: int) -> None:
        self.largest = max(self.largest, size)

    def reached(self, origin: Position, _time_us: int, state: str = "") -> None:
        assert not self._csn and origin >= self.origin
        self._at(origin, state)

    def _at(self, origin: Position, state: str) -> None:
        self.origin, self.state = origin, state
        self.places.append((origin, state))

    def abandon(self) -> None:
        self.records.clear()
        self._csn = ""

    def _apply(self, record: Any) -> None:
        op, number, *images = record
        images = [image[:3] for image in images if op != TRUNCATE]  # a fourth column comes and goes
        if op == TRUNCATE:
            self.rows[self._defs[number[0]].name] = {}
            return
        rows = self.rows.setdefault(self._defs[number].name, {})
        if op == INSERT:
            assert images[0][0] not in rows
            rows[images[0][0]] = images[0]
            return
        before = images[-1]
        assert rows.pop(before[0]) == before
        if op == UPDATE:
            assert images[0][0] not in rows
            rows[images[0][0]] = images[0]


def decoder(
    flavour: Flavour, sink: Tables, *, start: Start | None = None, told: Told | None = None, scratch: str = "/nowhere",
    **more: Any,
) -> BinlogDecoder:  # fmt: skip
    """One that captures the schema `shop`."""
    begin = start or Start(BORN, State(gtid.parse(flavour, "")))
    more = {"wants": lambda schema, _table: schema == "shop", "describe": described} | more
    return BinlogDecoder(sink, flavour, begin, statements=told or Told(), scratch=scratch, **more)


def feed(one: BinlogDecoder, events: Sequence[bytes]) -> None:
    """All of them, each in the middle of other bytes."""
    for data in events:
        one.decode(b"\0" * 5 + data + b"\xff" * 7, 5, 5 + len(data))


class Loose(Tables):
    """Doesn't know what is in the tables."""

    def _apply(self, record) -> None:
        pass


MARIADB, MYSQL = Recording(Flavour.MARIADB), Recording(Flavour.MYSQL)
BOTH = pytest.mark.parametrize("recording", [MARIADB, MYSQL], ids=["mariadb", "mysql"])


def whole(recording: Recording) -> Tables:
    """All that can be captured of a recording."""
    sink = Tables()
    one = decoder(recording.flavour, sink)
    for file in WHOLE:
        feed(one, recording.events(file))
    return sink


def names(data: bytes) -> int:
    """An event's type."""
    return data[4]
