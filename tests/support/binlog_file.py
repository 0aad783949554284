"""Row events of a server's binary log, read from its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.mysqld import Mysqld
from extract.sources.mysql import events as e
from extract.sources.mysql import tablemap
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.tablemap import TableMap

_INSERTS = (e.WRITE_ROWS_V1, e.WRITE_ROWS_V2)
_DELETES = (e.DELETE_ROWS_V1, e.DELETE_ROWS_V2)
_UPDATES = (e.UPDATE_ROWS_V1, e.UPDATE_ROWS_V2, e.PARTIAL_UPDATE_ROWS)


@dataclass(frozen=True)
class Rows:
    """A row event: its rows are `data[at:upto]`."""

    verb: str
    table: TableMap
    data: bytes = field(repr=False)
    at: int
    upto: int
    partial: bool

    def records(self, code: Any) -> list[Any]:
        """Read by a decoder (rowcode.RowCode)."""
        made: list[Any] = []
        more = {"partial": True} if self.partial else {}
        count = getattr(code, self.verb)(self.data, self.at, self.upto, 7, made.append, **more)
        assert count == len(made)
        return made


def rows_of(server: Mysqld, database: str, flavour: Flavour) -> Iterator[Rows]:
    """All row events of a database, in order."""
    for path in sorted(Path(server.data).glob("binlog.[0-9]*")):
        yield from _rows(path.read_bytes(), database, flavour)


def _rows(data: bytes, database: str, flavour: Flavour) -> Iterator[Rows]:
    frame, at = e.Frame(checksums=False), 4
    maps: dict[int, TableMap] = {}
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        event = frame.event(data, at, at + size)
        at += size
        if event.type == e.TABLE_MAP:
            if tablemap.head(data, event.at, event.upto).schema == database:
                number, table = tablemap.parse(data, event.at, event.upto, flavour)
                maps[number] = table
        elif event.type in (*_INSERTS, *_DELETES, *_UPDATES):
            number = int.from_bytes(data[event.at : event.at + 6], "little")
            if number in maps:
                yield _event(event, maps[number], data)


def _event(event: e.Event, table: TableMap, data: bytes) -> Rows:
    begin = event.at + 8
    if event.type >= e.WRITE_ROWS_V2:
        begin += int.from_bytes(data[begin : begin + 2], "little")
    width, begin = e.packed(data, begin)
    updates = event.type in _UPDATES
    begin += (width + 7) // 8 * (2 if updates else 1)
    verb = "updates" if updates else "inserts" if event.type in _INSERTS else "deletes"
    return Rows(verb, table, data, begin, event.upto, event.type == e.PARTIAL_UPDATE_ROWS)
