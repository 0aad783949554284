"""A trail of numbered changes in blocks of any shape, and what a Batcher makes of it, change by change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from replicat.batches.batch import Batch, Batcher, Cutting, looker, tasks_of
from replicat.model.borders import Border
from replicat.work.decode import Task, blocks
from tests.support.beating import beat, write_beat
from tests.support.replicat_trail import IDENTITY, TrailFeed, table
from trails.format import Indicator
from trails.fs import Fs
from trails.hole import Hole
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import BlockReader
from trails.record import Op
from trails.recovery import Mark
from trails.testing import FaultFs
from trails.writer import TrailWriter

TRAIL = TrailName("/home/dirdat", "rt")
KV = table("s", "kv", "id v")  # no key: what is applied twice stands there twice
Change = tuple[str, int]


def csn_of(number: int) -> str:
    """As TrailFeed numbers its transactions."""
    return f"{number:016d}"


@dataclass
class Shaped:
    """The trail, and every change in it as (CSN, number in its transaction), in order."""

    fs: FaultFs = field(default_factory=FaultFs)
    changes: list[Change] = field(default_factory=list)
    beats: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.feed = TrailFeed(self.fs, TRAIL)

    @classmethod
    def of(cls, units: Sequence[tuple[str, list[int]]]) -> Shaped:
        """A trail of these units: (whole, large, beat or place; sizes)."""
        made = cls()
        for kind, sizes in units:
            getattr(made, kind)(*sizes)
        made.sync()
        return made

    def whole(self, *sizes: int) -> None:
        """A block of as many whole transactions, of so many changes."""
        records: list[Any] = []
        for size in sizes:
            records += self._transaction(size)
        self._append(Indicator.WHOLE, records, len(sizes))

    def large(self, *sizes: int) -> None:
        """One transaction in as many blocks, of so many changes."""
        records = self._transaction(sum(sizes))
        at = 0
        for number, size in enumerate(sizes):
            last = number == len(sizes) - 1
            end = len(records) if last else at + size + (number == 0)
            kind = Indicator.END if last else Indicator.MIDDLE if number else Indicator.BEGIN
            self._append(kind, records[at:end], int(last))
            at = end

    def beat(self) -> None:
        """A heartbeat."""
        self.feed.number += 1
        self.beats.append(csn_of(self.feed.number))
        write_beat(self.feed.writer, beat(self.feed.number), self.feed.number)

    def place(self) -> None:
        """A block without changes."""
        self.feed.writer.append_place(Position(0, self.feed.number))

    def hole(self) -> Hole:
        """The writer was altered to go on further ahead: what the next number would have been is missing."""
        feed, last = self.feed, self.feed.writer.last
        feed.writer.close()
        made = Hole("ALTER EXTRACT EXT1", str(feed.number), str(feed.number + 1))
        feed.number += 1
        feed.writer = TrailWriter.open(
            self.fs, TRAIL, IDENTITY, alter=last.alter + 1, start=Mark(last.csn, Position(0, feed.number)),
            restart_open=True, hole=lambda _found: made,
        )  # fmt: skip
        return made

    def sync(self) -> None:
        """All of it may be read."""
        self.feed.writer.sync()

    def _transaction(self, size: int) -> list[Any]:
        self.feed.number += 1
        csn = csn_of(self.feed.number)
        self.changes += [(csn, index) for index in range(size)]
        inserts = [(Op.INSERT, 0, [csn, str(index)]) for index in range(size)]
        return [(Op.BEGIN, csn, str(self.feed.number), self.feed.number), *inserts, (Op.COMMIT, size)]

    def _append(self, kind: Indicator, records: list[Any], transactions: int) -> None:
        writer = self.feed.writer
        writer.define([KV])
        before = writer.last
        writer.append_data(
            kind,
            [KV.id],
            records,
            changes=sum(record[0] == Op.INSERT for record in records),
            transactions=transactions,
            origin=Position(0, self.feed.number) if transactions else before.origin,
            csn=csn_of(self.feed.number) if transactions else before.csn,
            time_us=self.feed.number,
        )

    def batcher(
        self,
        cutting: Cutting | None = None,
        *,
        rows: int = 1000,
        at: tuple[Position | None, int] = (None, 0),
        skip: str = "",
        now: Callable[[], float] = lambda: 0.0,
    ) -> Batcher:
        """A Batcher that begins at a checkpoint row's place."""
        reader = BlockReader(self.fs, TRAIL, at[0])
        return Batcher(
            Planner(reader),
            rows,
            64 << 20,
            cutting,
            look=looker(self.fs, TRAIL, reader),
            split=at[1],
            skip=Border.of(skip),
            now=now,
        )

    def read(self, batch: Batch) -> list[Change]:
        """The changes that a batch's tasks decode."""
        return list(changes_of(self.fs, batch, trail_id(self.fs)))


def lived(
    made: Shaped,
    cutting: Cutting,
    lives: Sequence[int] = (),
    rows: int = 5,
    at: tuple[Position | None, int] = (None, 0),
    skip: str = "",
) -> list[tuple[Batch, list[Change]]]:
    """Batches of processes that each live for so many commits; the row is all that goes from one to the next."""
    found: list[tuple[Batch, list[Change]]] = []
    for life in [*lives, 10**9]:
        batcher = made.batcher(cutting, rows=rows, at=at, skip=skip)
        for _ in range(life):
            if (batch := batcher.next()) is None:
                break
            found.append((batch, made.read(batch) if batch.changes else []))
            at, skip = (batch.end, batch.split), ""
    return found


def trail_id(fs: Fs) -> bytes:
    """Of the trail."""
    reader = BlockReader(fs, TRAIL)
    reader.read(payload=False)
    header = reader.header
    assert header is not None
    reader.close()
    return header.trail_id


def changes_of(fs: Fs, batch: Batch, identity: bytes) -> Iterator[Change]:
    """See Shaped.read."""
    for job in batch.jobs:
        for task in tasks_of(job, TRAIL, identity, {}, {KV.id: len(KV.columns)}, ""):
            records = [record for _, _, some in blocks(task, fs) for record in some]
            found = [(record[2][0], int(record[2][1])) for record in records if record[0] == Op.INSERT]
            _check_head(fs, task, records, found)
            yield from found


def _check_head(fs: Fs, task: Task, records: list[Any], found: list[Change]) -> None:
    """A task that begins inside a transaction says where that began, and how much of it stands before."""
    if records[0][0] == Op.BEGIN:
        assert task.head is None
        return
    assert task.head is not None
    place, done = task.head
    (begins,) = blocks(replace(task, blocks=(place,), skip=0, until=None), fs)
    assert begins[2][0][0] == Op.BEGIN
    assert not found or (begins[2][0][1], done) == found[0]


def drained(batcher: Batcher) -> list[Batch]:
    """All batches that wait."""
    found = []
    while (batch := batcher.next()) is not None:
        found.append(batch)
    return found


def csns(changes: Sequence[Change]) -> list[int]:
    """The numbers of the transactions that changes belong to, each once."""
    return list(dict.fromkeys(int(csn) for csn, _ in changes))
