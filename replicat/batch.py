"""From units of whole transactions to batches and Spark jobs; only block headers are looked at, but for cut blocks.

A batch is what one target transaction holds: every whole transaction that waits, up to the bounds; or one larger
transaction by itself; or one in which a table's shape changes. Jobs cut a batch so that memory stays bounded (I9): a
small batch is one job, a large transaction several. Tasks cut a job for parallel decoding; later parts are applied
after earlier ones, so order holds. Where a unit can be cut, and the place between, is in `_Rest`:

    a block of many whole transactions     between two of them       split = transactions before the cut
    one larger transaction                 between two blocks        split = blocks before the cut (MAXTRANSOPS, DDL)

Heartbeats are no part of a job: a batch carries their blocks beside it, and may hold nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from replicat.borders import Begun, Border, Look, transactions_of
from replicat.decode import Place, Task
from replicat.decode import blocks as read_blocks
from replicat.plan import Plans
from trails.format import Indicator
from trails.fs import Fs
from trails.plan import Planner, Unit
from trails.position import Position, TrailName
from trails.reader import Block, BlockReader

# Decoding so many rows takes a Spark worker a sixth of a second; more workers for less would only spoil compaction.
TASK_ROWS = 100_000
MOST_BEATS = 500


@dataclass(frozen=True, slots=True)
class Job:
    """The blocks of one Spark job, cut into tasks; or a block that changes a table's shape, and no task.

    `skip`, `until`: which transactions of the first and the last block are its own; `head`: of a transaction that goes
    on from before it, the block where it begins and its changes before here (see Task).
    """

    tasks: tuple[tuple[Block, ...], ...] = ()
    skip: int = 0
    until: int | None = None
    ddl: Block | None = None
    head: tuple[Block, int] | None = None

    @property
    def blocks(self) -> list[Block]:
        """All blocks, in order."""
        return [self.ddl] if self.ddl else [block for part in self.tasks for block in part]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one target transaction holds. `end` and `split` are where the row then stands.

    `partial`: the last transaction goes on behind it; `before`: how many of its changes stand in earlier batches.
    `beats`: the heartbeats before its end. A batch of nothing else has one job without tasks.
    """

    jobs: tuple[Job, ...]
    end: Position
    csn: str
    time_us: int
    transactions: int
    changes: int
    split: int = 0
    partial: bool = False
    before: int = 0
    beats: tuple[Block, ...] = ()

    @property
    def blocks(self) -> list[Block]:
        """All blocks, in order."""
        return [block for job in self.jobs for block in job.blocks]


@dataclass(frozen=True, slots=True)
class Cutting:
    """What the parameter file says of batches' borders.

    `group`: GROUPTRANSOPS, close a batch at so many changes; `split`: MAXTRANSOPS, cut larger transactions; 0: neither.
    `seconds`: BATCHSECS, gather that long. `end`: apply nothing behind it; `at_eof`: nor what comes after the trail's
    end is reached. `cut_ddl`: a change of shape commits in the target by itself: it is a batch of its own.
    `before`: the transaction of this CSN begins a batch: it is refused, and those before it are not to wait for it.
    """

    group: int = 0
    split: int = 0
    seconds: float = 0.0
    end: Border | None = None
    at_eof: bool = False
    cut_ddl: bool = False
    before: str = ""


@dataclass(slots=True)
class _Rest:
    """What is left of a unit: `low` to `high` of its transactions (if it is a block of many) or else of its blocks."""

    unit: Unit
    low: int
    high: int
    look: Look
    _looked: Sequence[Begun] = ()

    @property
    def many(self) -> bool:
        return self.unit.transactions > 1

    @property
    def whole(self) -> int:
        return self.unit.transactions if self.many else len(self.unit.blocks)

    @property
    def transactions(self) -> Sequence[Begun]:
        if not self._looked:
            self._looked = self.look(self.unit.blocks[0])
        return self._looked

    def changes(self, low: int, high: int) -> int:
        if (low, high) == (0, self.whole):
            return self.unit.changes
        if self.many:
            return sum(transaction.changes for transaction in self.transactions[low:high])
        return sum(block.header.changes for block in self.unit.blocks[low:high])

    def size(self, low: int, high: int) -> int:
        """Bytes before LZ4; of a part of a block, its share or a little more."""
        if self.many:
            return self.unit.raw_bytes * (high - low) // self.whole + 1
        return sum(block.header.raw_len for block in self.unit.blocks[low:high])


@dataclass(frozen=True, slots=True)
class _Piece:
    """A taken part of a unit."""

    rest: _Rest
    low: int
    high: int

    @property
    def unit(self) -> Unit:
        return self.rest.unit

    @property
    def is_cut(self) -> bool:
        """Whether something of the unit comes behind it."""
        return self.high < self.rest.whole

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.unit.blocks if self.rest.many else self.unit.blocks[self.low : self.high]

    @property
    def last(self) -> tuple[str, int]:
        """CSN and commit time of the last transaction in it."""
        if self.rest.many and self.is_cut:
            last = self.rest.transactions[self.high - 1]
            return last.csn, last.time_us
        return self.unit.csn, self.unit.time_us


@dataclass(slots=True)
class _Gathered:
    """What the next batch holds so far."""

    pieces: list[_Piece] = field(default_factory=list)
    beats: list[Unit] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    since: float = 0.0

    @property
    def anything(self) -> bool:
        """Whether there is something to commit."""
        return bool(self.pieces or self.beats)


def _no_look(block: Block) -> Sequence[Begun]:
    raise AssertionError(f"block at {block.start}: nobody said how to read it")


class Batcher:
    """Gathers units. `position` is a transaction border behind which nothing to apply was left out.

    `ended`: why nothing more will be applied; empty if that is not so. `split`, `skip`: the checkpoint row's place in
    the first unit, and the border before which everything is left out.
    """

    def __init__(
        self,
        planner: Planner,
        max_rows: int,
        max_bytes: int,
        cutting: Cutting | None = None,
        *,
        look: Look = _no_look,
        split: int = 0,
        skip: Border | None = None,
        note: Callable[[str], None] = lambda _text: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._planner = planner
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._cutting = cutting or Cutting()
        self._end = self._cutting.end
        self._before = Border(">=", self._cutting.before) if self._cutting.before else None
        self._look = look
        self._resume = split
        self._skip = skip
        self._skipped = 0
        self._note = note
        self._now = now
        self._held: _Rest | None = None
        self._gathered = _Gathered()
        self._behind: Position | None = None  # after the last unit that was read whole
        self._stop = ""
        self._fitted = False
        self.at_end = False

    @property
    def position(self) -> Position | None:
        """See above; None if nothing was read yet, or something read is not given out."""
        return None if self._gathered.anything or self._held else self._behind

    @property
    def ended(self) -> str:
        """See above."""
        return "" if self._gathered.anything or self._held else self._stop

    @property
    def gathers_for(self) -> float:
        """Seconds until what is gathered may be given out; 0 if nothing waits for that."""
        if not self._gathered.pieces or not self.at_end:
            return 0.0
        return max(0.0, self._gathered.since + self._cutting.seconds - self._now())

    def stop(self, why: str) -> None:
        """Read nothing more."""
        self._stop = self._stop or why

    def next(self) -> Batch | None:
        """The next batch, or None if no change waits; `position` then also passes what carried no change."""
        while (rest := self._take()) is not None:
            alone = rest.unit.has_ddl or self._is_too_large(rest)
            refused = self._lies_before(rest) == rest.low
            if refused and not self._gathered.anything:
                self._before, refused = None, False
            if self._gathered.anything and (alone or refused or self._would_overflow(rest)):
                self._held = rest
                break
            if alone:
                self._add(rest, self._border_of(rest))
                break
            self._add(rest, self._share_of(rest))
            if self._is_full:
                break
        else:
            if self.gathers_for and not self._stop:
                return None
        return self._close()

    # Units

    def _take(self) -> _Rest | None:
        """What is left of the unit before, or the next unit of which something is to be applied."""
        rest, self._held = self._held, None
        if rest is not None:
            return rest
        while not self._stop and len(self._gathered.beats) < MOST_BEATS and (unit := self._planner.next()) is not None:
            self.at_end = False
            rest = self._admitted(unit) if unit.blocks else None
            if rest is not None and not unit.is_heartbeat:
                return rest
            if rest is not None:
                self._gathered.beats.append(unit)
            if rest is not None or not self._stop:
                self._behind = unit.end
        if not self._stop and len(self._gathered.beats) < MOST_BEATS:
            self.at_end = True
            if self._cutting.at_eof:
                self._stop = "the end of the trail is reached"
        return None

    def _admitted(self, unit: Unit) -> _Rest | None:
        """The part of a unit that lies between the begin and the end that were ordered, if any does."""
        self._fit(unit)
        rest = _Rest(unit, self._resume, 0, self._look)
        rest.high, self._resume = rest.whole, 0
        if self._skip is not None and not self._begins(rest):
            return None
        if self._end is not None:
            self._ends(rest, self._end)
        return rest if rest.low < rest.high else None

    def _fit(self, unit: Unit) -> None:
        if self._fitted:
            return
        self._fitted = True
        self._skip = self._skip and self._skip.fitting(unit.csn, "START or ALTER REPLICAT")
        self._end = self._end and self._end.fitting(unit.csn, "END CSN")

    def _begins(self, rest: _Rest) -> bool:
        """Leave out what lies before the border; False: all of the unit does."""
        assert self._skip is not None
        unit = rest.unit
        if not self._skip.is_before(unit.csn, unit.time_us):
            self._skipped += unit.transactions
            return False
        if rest.many:
            first = max(rest.low, self._skip.first(rest.transactions))
            self._skipped += first - rest.low
            rest.low = first
        self._note(f"{self._skipped} transactions left out, up to position {unit.start}: beginning as ordered")
        self._skip = None
        return True

    def _ends(self, rest: _Rest, end: Border) -> None:
        """Stop behind what lies before the border."""
        unit = rest.unit
        if end.is_before(unit.csn, unit.time_us):
            rest.high = end.first(rest.transactions) if rest.many else 0
            beyond = rest.transactions[rest.high].csn if rest.many else unit.csn
            self._stop = f"the next transaction, CSN {beyond} at position {unit.start}, lies beyond it"
        elif end.kind == ">" and unit.csn == end.csn:
            self._stop = f"CSN {unit.csn} is the last transaction that was to be applied"

    # Cuts

    def _is_too_large(self, rest: _Rest) -> bool:
        """Whether MAXTRANSOPS cuts the transaction, or has cut it already."""
        if rest.many or not self._cutting.split:
            return bool(rest.low) and not rest.many
        return bool(rest.low) or rest.changes(rest.low, rest.high) > self._cutting.split

    def _would_overflow(self, rest: _Rest) -> bool:
        high = self._share_of(rest)
        rows = self._gathered.rows + rest.changes(rest.low, high)
        return rows > self._max_rows or self._gathered.size + rest.size(rest.low, high) > self._max_bytes

    @property
    def _is_full(self) -> bool:
        rows, group = self._gathered.rows, self._cutting.group
        over = rows > self._max_rows or self._gathered.size > self._max_bytes
        return over or bool(group and rows >= group) or self._held is not None

    def _share_of(self, rest: _Rest) -> int:
        """Up to where a unit is taken: all of it, or up to the transaction with which the batch has enough."""
        group, rows, high = self._cutting.group, self._gathered.rows, self._lies_before(rest) or rest.high
        if not group or not rest.many or rows + rest.changes(rest.low, high) <= group:
            return high
        at = rest.low
        while at < high and rows < group:
            rows += rest.transactions[at].changes
            at += 1
        return at

    def _lies_before(self, rest: _Rest) -> int:
        """Up to where a unit lies before the transaction that is to begin a batch."""
        if self._before is None or not self._before.is_before(rest.unit.csn, rest.unit.time_us):
            return rest.high
        return min(rest.high, max(rest.low, self._before.first(rest.transactions))) if rest.many else rest.low

    def _border_of(self, rest: _Rest) -> int:
        """Where a unit that is a batch by itself is cut: at a change of shape, or at a bound; else not at all."""
        blocks = rest.unit.blocks
        if rest.unit.has_ddl:
            if not self._cutting.cut_ddl:
                return rest.high
            at = rest.low
            while at < rest.high and not blocks[at].header.is_ddl:
                at += 1
            if not rest.low and at + 1 < rest.high:
                self._note(
                    f"The transaction with CSN {rest.unit.csn} changes a table's shape, which the target commits by "
                    "itself: until its last part is committed the target shows a part of it"
                )
            return max(at, rest.low + 1)
        if not self._cutting.split:
            return rest.high
        at = rest.low + 1
        while at < rest.high and rest.changes(rest.low, at + 1) <= self._cutting.split:
            at += 1
        if not rest.low and at < rest.high:
            self._note(
                f"The transaction with CSN {rest.unit.csn}, {rest.unit.changes} changes, is split: MAXTRANSOPS "
                f"{self._cutting.split}. Until its last part is committed the target shows a part of it"
            )
        return at

    def _add(self, rest: _Rest, high: int) -> None:
        gathered = self._gathered
        if not gathered.pieces:
            gathered.since = self._now()
        gathered.rows += rest.changes(rest.low, high)
        gathered.size += rest.size(rest.low, high)
        gathered.pieces.append(_Piece(rest, rest.low, high))
        rest.low = high
        if high < rest.high:
            self._held = rest
        elif high == rest.whole:
            self._behind = rest.unit.end

    # Batches

    def _close(self) -> Batch | None:
        pieces, rows, beats = self._gathered.pieces, self._gathered.rows, self._gathered.beats
        if not self._gathered.anything:
            return None
        self._gathered = _Gathered()
        blocks = tuple(block for unit in beats for block in unit.blocks)
        if not pieces:
            assert self._behind is not None
            last_beat = beats[-1]
            return Batch((Job(),), self._behind, last_beat.csn, last_beat.time_us, 0, 0, beats=blocks)
        first, last = pieces[0], pieces[-1]
        end = last.unit.start if last.is_cut else self._behind
        assert end is not None
        csn, time_us = last.last
        if beats and beats[-1].start > last.unit.start:
            csn, time_us = beats[-1].csn, beats[-1].time_us
        inside = not first.rest.many
        return Batch(
            jobs=tuple(self._jobs(pieces)),
            end=end,
            csn=csn,
            time_us=time_us,
            transactions=sum(p.high - p.low if p.rest.many else not p.is_cut for p in pieces),
            changes=rows,
            split=last.high if last.is_cut else 0,
            partial=last.is_cut and not last.rest.many,
            before=first.rest.changes(0, first.low) if inside else 0,
            beats=blocks,
        )

    def _jobs(self, pieces: Sequence[_Piece]) -> Iterable[Job]:
        blocks = [block for piece in pieces for block in piece.blocks]
        first, last = pieces[0], pieces[-1]
        skip = first.low if first.rest.many else 0
        until = last.high if last.rest.many and last.is_cut else None
        runs = list(self._runs(blocks))
        head = (first.unit.blocks[0], first.rest.changes(0, first.low)) if first.low and not first.rest.many else None
        for number, run in enumerate(runs):
            if run[0].header.is_ddl:
                yield Job(ddl=run[0], head=head)
            else:
                tasks = tuple(tuple(part) for part in _cut(run, TASK_ROWS, self._max_bytes))
                yield Job(tasks, skip if number == 0 else 0, until if number == len(runs) - 1 else None, head=head)
            head = _head_behind(run, head)

    def _runs(self, blocks: Iterable[Block]) -> Iterable[list[Block]]:
        """Blocks of one job each; a block that changes a shape is one by itself."""
        run: list[Block] = []
        for block in blocks:
            if block.header.is_ddl:
                yield from _cut(run, self._max_rows, self._max_bytes)
                yield [block]
                run = []
            else:
                run.append(block)
        yield from _cut(run, self._max_rows, self._max_bytes)


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


def _head_behind(blocks: Iterable[Block], head: tuple[Block, int] | None) -> tuple[Block, int] | None:
    """Of the transaction that goes on behind these blocks: where it begins, and its changes up to there."""
    for block in blocks:
        if block.header.indicator == Indicator.BEGIN:
            head = (block, block.header.changes)
        elif block.header.indicator == Indicator.MIDDLE and head is not None:
            head = (head[0], head[1] + block.header.changes)
        else:
            head = None
    return head


def begun_before(batch: Batch, place: Place) -> tuple[str, int]:
    """Of the transaction that the block at `place` goes on with: its CSN, and how many changes stand before there."""
    blocks = batch.blocks
    at = next(i for i, block in enumerate(blocks) if (block.start.seqno, block.start.rba) == place[:2])
    done = batch.before
    for block in blocks[:at]:
        begins = block.header.indicator in (Indicator.WHOLE, Indicator.BEGIN)
        done = block.header.changes + (0 if begins else done)
    ends = (block.header.csn for block in blocks[at:] if block.header.indicator == Indicator.END)
    return next(ends, batch.csn), done


def looker(fs: Fs, trail: TrailName, reader: BlockReader) -> Look:
    """Reads blocks of many transactions, which `reader` has seen durable, for a Batcher."""

    def look(block: Block) -> Sequence[Begun]:
        return transactions_of(read_records(fs, trail, reader.header.trail_id if reader.header else b"", block))

    return look


def read_records(fs: Fs, trail: TrailName, trail_id: bytes, block: Block) -> list[Any]:
    """What stands in one block."""
    place = (block.start.seqno, block.start.rba, block.end.rba)
    task = Task(trail.folder, trail.prefix, trail_id, (place,), {}, wallet=trail.wallet, sealed=trail.sealed)
    return [record for _, _, records in read_blocks(task, fs) for record in records]


def tasks_of(job: Job, trail: TrailName, trail_id: bytes, plans: Plans, spill: str) -> list[Task]:
    """A job's tasks, ready to be sent."""

    def place(block: Block) -> Place:
        return block.start.seqno, block.start.rba, block.end.rba

    tasks = []
    head, last = job.head, len(job.tasks) - 1
    for number, blocks in enumerate(job.tasks):
        tasks.append(
            Task(
                trail.folder,
                trail.prefix,
                trail_id,
                tuple(place(block) for block in blocks),
                plans,
                spill,
                job.skip if number == 0 else 0,
                job.until if number == last else None,
                head and (place(head[0]), head[1]),
                trail.wallet,
                trail.sealed,
            )
        )
        head = _head_behind(blocks, head)
    return tasks
