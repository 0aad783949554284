"""From units of whole transactions to batches and Spark jobs; only block headers are looked at.

A batch is what one target transaction holds: every whole transaction that waits, up to the bounds; or one larger
transaction by itself. Jobs cut a batch so that memory stays bounded (I9): a small batch is one job, a large
transaction several. Tasks cut a job for parallel decoding; later parts are applied after earlier ones, so order holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from replicat.decode import Place, Task
from replicat.plan import Plans
from trails.format import Indicator
from trails.plan import Planner, Unit
from trails.position import Position, TrailName
from trails.reader import Block

# Decoding so many rows takes a Spark worker a sixth of a second; more workers for less would only spoil compaction.
TASK_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Job:
    """The blocks of one Spark job, cut into tasks."""

    tasks: tuple[tuple[Block, ...], ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one target transaction holds. `end` is where the row then stands."""

    jobs: tuple[Job, ...]
    end: Position
    csn: str
    time_us: int
    transactions: int
    changes: int


class Batcher:
    """Gathers units. `position` is a transaction border behind which nothing to apply was left out."""

    def __init__(self, planner: Planner, max_rows: int, max_bytes: int) -> None:
        self._planner = planner
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._held: Unit | None = None
        self.position: Position | None = None
        self.at_end = False

    def next(self) -> Batch | None:
        """The next batch, or None if no change waits; `position` then also passes what carried no change."""
        carrying: list[Unit] = []
        rows = size = 0
        while (unit := self._take()) is not None:
            rows += unit.changes
            size += unit.raw_bytes
            if carrying and (rows > self._max_rows or size > self._max_bytes):
                self._held = unit
                break
            self.position = unit.end
            if unit.blocks:
                carrying.append(unit)
            if rows > self._max_rows or size > self._max_bytes:
                break
        return self._batch(carrying, self.position) if carrying and self.position else None

    def _take(self) -> Unit | None:
        unit, self._held = self._held, None
        if unit is None:
            unit = self._planner.next()
            self.at_end = unit is None
        return unit

    def _batch(self, units: Sequence[Unit], end: Position) -> Batch:
        blocks = [block for unit in units for block in unit.blocks]
        return Batch(
            jobs=tuple(self._jobs(blocks)),
            end=end,
            csn=units[-1].csn,
            time_us=units[-1].time_us,
            transactions=sum(unit.transactions for unit in units),
            changes=sum(unit.changes for unit in units),
        )

    def _jobs(self, blocks: Iterable[Block]) -> Iterable[Job]:
        for chunk in _cut(blocks, self._max_rows, self._max_bytes):
            yield Job(tuple(tuple(part) for part in _cut(chunk, TASK_ROWS, self._max_bytes)))


def _cut(blocks: Iterable[Block], max_rows: int, max_bytes: int) -> Iterable[list[Block]]:
    """Runs of blocks within the bounds; a single block may be larger than they are."""
    chunk: list[Block] = []
    rows = size = 0
    for block in blocks:
        rows += block.header.changes
        size += block.header.raw_len
        if chunk and (rows > max_rows or size > max_bytes):
            yield chunk
            chunk, rows, size = [], block.header.changes, block.header.raw_len
        chunk.append(block)
    if chunk:
        yield chunk


def begun_before(batch: Batch, place: Place) -> tuple[str, int]:
    """Of the transaction that the block at `place` goes on with: its CSN, and how many changes stand before there."""
    blocks = [block for job in batch.jobs for part in job.tasks for block in part]
    at = next(i for i, block in enumerate(blocks) if (block.start.seqno, block.start.rba) == place[:2])
    done = 0
    for block in blocks[:at]:
        begins = block.header.indicator in (Indicator.WHOLE, Indicator.BEGIN)
        done = block.header.changes + (0 if begins else done)
    return next(block.header.csn for block in blocks[at:] if block.header.indicator == Indicator.END), done


def tasks_of(job: Job, trail: TrailName, trail_id: bytes, plans: Plans, spill: str) -> list[Task]:
    """A job's tasks, ready to be sent."""

    def place(block: Block) -> Place:
        return block.start.seqno, block.start.rba, block.end.rba

    return [
        Task(trail.folder, trail.prefix, trail_id, tuple(place(block) for block in blocks), plans, spill)
        for blocks in job.tasks
    ]
