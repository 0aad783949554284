"""Trails over several tables, and a marker that tells when all before it was applied.

Rule: the first file ends with a transaction of its own, marker 1. `write_updates` puts all else behind it, `write_many`
one batch a file. The marker's number is that of the batch, from 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.trailfiles import DEFINITION, image
from trails.format import Indicator
from trails.fs import RealFs
from trails.position import Position, TrailName
from trails.record import Column, Op, Record, TableDef
from trails.recovery import Mark
from trails.writer import TrailWriter, WriterIdentity

MARKER = TableDef("bench", "marker", (Column("id", "integer", "integer", True), Column("n", "bigint", "bigint")))
BLOCK_ROWS = 4000
WARM_ROWS = 20_000
"""Of the first file of `write_updates`: with them every program that a MAP has was planned and has run."""
NAME = [column.name for column in DEFINITION.columns].index("name")
_TIME = 1_790_000_000_000_000


def tables(count: int) -> list[TableDef]:
    """Tables t0, t1, ... of the workloads' shape."""
    return [replace(DEFINITION, name=f"t{number}") for number in range(count)]


def write_updates(folder: Path, rows: int, keys: int, count: int) -> None:
    """Updates of ten rows a transaction over all tables; each table has `keys / count` keys, in no order."""
    feed = _Feed(folder, tables(count))
    _update(feed, min(WARM_ROWS, rows), keys, count)
    feed.up()
    _update(feed, rows, keys, count)
    feed.mark(2)
    feed.close()


def _update(feed: _Feed, rows: int, keys: int, count: int) -> None:
    share = keys // count
    for number in range(0, rows, 10):
        feed.begin()
        for i in range(number, min(number + 10, rows)):
            key = i * 0x9E3779B1 % keys
            feed.records.append((Op.UPDATE, key % count + 1, image(i, key // count % share + 1), None))
        feed.commit()


def write_inserts(folder: Path, rows: int, per_transaction: int) -> None:
    """Inserts into t0, with keys from 1."""
    feed = _Feed(folder, tables(1))
    feed.up()
    for number in range(0, rows, per_transaction):
        feed.begin()
        feed.records += [(Op.INSERT, 1, row) for row in inserted(number, min(number + per_transaction, rows))]
        feed.commit()
    feed.mark(2)
    feed.close()


def inserted(first: int, last: int) -> Iterator[list[bytes]]:
    """The rows of those inserts, from number `first` (0 is the first of all) to the one before `last`."""
    return (image(number, number + 1) for number in range(first, last))


def write_many(folder: Path, count: int, changes: int, batches: int) -> list[str]:
    """One transaction a file: every table gets `changes` updates. Returns the tables' names."""
    defs = tables(count)
    feed = _Feed(folder, defs)
    feed.up()
    for batch in range(batches):
        feed.begin()
        for t in range(count):
            feed.records += [(Op.UPDATE, t + 1, image(batch * 7 + i, i + 1), None) for i in range(changes)]
        feed.records.append((Op.UPDATE, 0, [b"1", str(batch + 2).encode()], None))
        feed.commit(cut=True)
        if batch < batches - 1:
            feed.writer.roll()
    feed.close()
    return [table.name for table in defs]


def write_swap(folder: Path, rows: int) -> None:
    """Three batches, a file each: every row of t0 is updated and keeps its name, `unique_name` of its key; in the last
    one the two keys in the middle exchange their names, by way of a third one.
    """
    feed = _Feed(folder, tables(1))
    feed.up()
    middle = rows // 2
    for batch in range(3):
        feed.begin()
        for key in range(1, rows + 1):
            if batch < 2 or key not in (middle, middle + 1):
                _rename(feed, key, unique_name(key))
            elif key == middle:
                for one, name in ((0, "between"), (1, unique_name(key)), (0, unique_name(key + 1))):
                    _rename(feed, key + one, name)
            if key % 1000 == 0:
                feed.commit()
                feed.begin()
        feed.records.append((Op.UPDATE, 0, [b"1", str(batch + 2).encode()], None))
        feed.commit(cut=True)
        if batch < 2:
            feed.writer.roll()
    feed.close()


def unique_name(key: int) -> str:
    """A name that no other key has."""
    return f"u{key}"


def _rename(feed: _Feed, key: int, name: str) -> None:
    row = list(image(feed.number, key))
    row[NAME] = name.encode()
    feed.records.append((Op.UPDATE, 1, row, None))


class _Feed:
    """A trail under way: transactions gathered to blocks. Table 0 is the marker."""

    def __init__(self, folder: Path, defs: list[TableDef]) -> None:
        identity = WriterIdentity("bench", "EXT1", "bench", {"kind": "postgresql"})
        folder.mkdir(mode=0o700)
        trail = TrailName(str(folder), "rt")
        self.writer = TrailWriter.open(RealFs(), trail, identity, start=Mark(), restart_open=True)
        self._defs = [MARKER, *defs]
        self.records: list[Record] = []
        self.number = self._began = 0
        self._changes = self._transactions = 0
        self.writer.define(self._defs)

    def up(self) -> None:
        """End the first file."""
        self.mark(1)
        self.writer.roll()

    def begin(self) -> None:
        """Open a transaction."""
        self.number += 1
        self._began = len(self.records)
        self.records.append((Op.BEGIN, f"{self.number:016X}", str(self.number), _TIME + self.number))

    def commit(self, *, cut: bool = False) -> None:
        """End it, and the block if it is full or `cut` says so."""
        changes = len(self.records) - self._began - 1
        self.records.append((Op.COMMIT, changes))
        self._changes += changes
        self._transactions += 1
        if cut or len(self.records) >= BLOCK_ROWS:
            self._cut()

    def mark(self, number: int) -> None:
        """A transaction that moves the marker, in a block's end."""
        self.begin()
        self.records.append((Op.UPDATE, 0, [b"1", str(number).encode()], None))
        self.commit(cut=True)

    def close(self) -> None:
        """Sync, and let the files go."""
        self.writer.sync()
        self.writer.close()

    def _cut(self) -> None:
        self.writer.append_data(
            Indicator.WHOLE,
            [table.id for table in self._defs],
            self.records,
            changes=self._changes,
            transactions=self._transactions,
            origin=Position(0, self.number),
            csn=f"{self.number:016X}",
            time_us=_TIME + self.number,
        )
        self.records = []
        self._changes = self._transactions = 0
