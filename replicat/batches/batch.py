"""From units of whole transactions to batches and Spark jobs; only block headers are looked at, but for cut blocks.

A batch is what one target transaction holds: every whole transaction that waits, up to the bounds; or one larger
transaction by itself; or one in which a table's shape changes. Jobs cut a batch so that memory stays bounded (I9): a
small batch is one job, a large transaction several. Tasks cut a job for parallel decoding, between transactions where
that can be; later parts are applied after earlier ones, so order holds. Where a unit can be cut is in pieces.py; when
one transaction is, in splitting.py.

Heartbeats are no part of a job: a batch carries their blocks beside it, and may hold nothing else.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from replicat.batches.pieces import Share, UnitPart
from replicat.batches.splitting import Head, Splitting, begun_before, head_behind, head_of
from replicat.model.borders import Border, Look
from replicat.model.plan import Plans
from replicat.model.sourceplace import source_place
from replicat.work.decode import Task, columns_of
from replicat.work.decode import blocks as read_blocks
from trails.format import COMPLETE
from trails.fs import Fs
from trails.plan import Planner, Unit
from trails.position import Position, TrailName
from trails.reader import Block, BlockReader
from trails.record import TableDef
from trails.walk import Walked, transactions

# Decoding so many rows takes a Spark worker a sixth of a second; more workers for less would only spoil compaction.
TASK_ROWS = 100_000
# Of the rows that a batch may hold: so many has one that the target waits for, as nothing is decoded yet.
FIRST_SHARE = 4
_ANY_SIZE = 1 << 62  # a job's bytes are bounded already
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
    `size`: bytes of its blocks in the trail. `beats`: the heartbeats before its end. A batch of nothing else has one
    job without tasks. `early`: it is a part of a transaction that is begun before its end has come (early.py), and this
    is where that begins in the trail. `opens`, `closes`: whether the target's transaction begins and ends with it; of
    such parts only the first does, and the last.
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
    size: int = 0
    beats: tuple[Block, ...] = ()
    early: Position | None = None
    opens: bool = True
    closes: bool = True

    @property
    def blocks(self) -> list[Block]:
        """All blocks, in order."""
        return [block for job in self.jobs for block in job.blocks]

    def begun_before(self, block: Block) -> tuple[str, int]:
        """Of the transaction that a block goes on with: its CSN, and its changes before there."""
        csn, done = begun_before(self.blocks, self.before, block)
        return csn or self.csn, done


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
class _OpenBatch:
    """What the next batch holds so far."""

    pieces: list[Share] = field(default_factory=list)
    beats: list[Unit] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    since: float = 0.0

    @property
    def anything(self) -> bool:
        """Whether there is something to commit."""
        return bool(self.pieces or self.beats)


def _no_look(block: Block) -> Sequence[Walked]:
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
        self._skipped_last = ""
        self._splitting = Splitting(self._cutting.split, self._cutting.cut_ddl, note)
        self._note = note
        self._now = now
        # Whether it says of any unit where it is to be cut.
        self._cuts = bool(self._cutting.group or self._cutting.split or self._cutting.before)
        self._held: UnitPart | None = None
        self._gathered = _OpenBatch()
        self._passed: Unit | None = None  # the last unit that was read whole
        self._stop = ""
        self._fitted = False
        self._hole: Unit | None = None
        self._ahead: deque[Unit] = deque()  # what was looked at behind a hole, to be read next
        self.at_end = False

    @property
    def position(self) -> Position | None:
        """The place behind all that was given out. None if nothing was read yet, or something read is not given out."""
        return self._passed.end if self._passed and self._is_idle else None

    @property
    def origin(self) -> Position | None:
        """The source's place that belongs to `position`, as far as it is known."""
        if self._passed is None or not self._is_idle:
            return None
        return source_place(self._passed.origin, self._passed.csn, copied=self._passed.copied)

    @property
    def _is_idle(self) -> bool:
        return not (self._gathered.anything or self._held)

    @property
    def ended(self) -> str:
        return self._stop if self._is_idle else ""

    @property
    def gathers_for(self) -> float:
        """Seconds until what is gathered may be given out; 0 if nothing waits for that."""
        if not self._gathered.pieces or not self.at_end:
            return 0.0
        return max(0.0, self._gathered.since + self._cutting.seconds - self._now())

    @property
    def hole(self) -> Block | None:
        """The hole that comes next, once all before it was given out: nothing behind it is read before `pass_hole`."""
        return self._hole.hole if self._hole and self._is_idle else None

    def pass_hole(self) -> None:
        """Go on behind it."""
        if self._hole is not None:
            self._passed, self._hole = self._hole, None

    def stop(self, why: str) -> None:
        """Read nothing more."""
        self._stop = self._stop or why

    @property
    def unended(self) -> Sequence[Block]:
        """What was read of a transaction whose end is not there, where all before it is given out.

        None of it where something is ordered that needs to know its end first.
        """
        ordered = self._stop or self._end or self._skip or self._resume or self._cutting.at_eof or self._hole
        if ordered or not self._is_idle or self._cutting.split or self._cutting.before or self._ahead:
            return ()
        return self._planner.unended

    def next(self, *, alone: bool = False, awaited: bool = False) -> Batch | None:
        """The next batch, or None if no change waits; `position` then also passes what carried no change.

        `alone`: it holds one unit, whatever waits behind that. `awaited`: the target has nothing to do until it is
        decoded, so that it is a smaller one, and the next is decoded while it is applied.
        """
        most = self._max_rows // FIRST_SHARE if awaited else self._max_rows
        while (rest := self._take()) is not None:
            if not self._add(rest, most) or alone:
                break
        else:
            if self.gathers_for and not self._stop:
                return None
        return self._close() if self._gathered.anything else None

    # Units

    def _take(self) -> UnitPart | None:
        """What is left of the unit before, or the next unit of which something is to be applied."""
        rest, self._held = self._held, None
        if rest is not None:
            return rest
        while self._may_read and (unit := self._ahead.popleft() if self._ahead else self._planner.next()) is not None:
            self.at_end = False
            if unit.hole is not None and not self._is_left_out(unit):
                self._hole = unit
                return None
            rest = None
            if unit.blocks:
                whole = unit.transactions if unit.transactions > 1 else len(unit.blocks)
                rest = UnitPart(unit, 0, whole, self._look, whole, unit.transactions > 1)
                if self._resume or self._skip is not None or self._end is not None:
                    rest = self._admitted(rest)
            if rest is not None and not unit.is_heartbeat:
                return rest
            if rest is not None:
                self._gathered.beats.append(unit)
            if rest is not None or not self._stop:
                self._passed = unit
        if self._may_read:
            self.at_end = True
            if self._cutting.at_eof:
                self._stop = "the end of the trail is reached"
        return None

    @property
    def _may_read(self) -> bool:
        return not self._stop and self._hole is None and len(self._gathered.beats) < MOST_BEATS

    def _admitted(self, rest: UnitPart) -> UnitPart | None:
        """The part of a unit that lies between the begin and the end that were ordered, if any does."""
        self._fit(rest.unit)
        rest.low, self._resume = self._resume, 0
        if self._skip is not None and not self._begins(rest):
            return None
        if self._end is not None:
            self._ends(rest, self._end)
        return rest if rest.low < rest.high else None

    def _is_left_out(self, hole: Unit) -> bool:
        """Whether a hole lies before a transaction that is left out: whoever applied that has passed it.

        FILTERDUPTRANSACTIONS must meet the transaction that it names, so that one is left out wherever it stands.
        """
        if self._skip is None or self._skip.kind == "@":
            return False
        if self._skip.kind == ">>":
            return hole.csn < self._skip.csn
        behind = self._behind()
        return bool(behind) and behind <= self._skip.csn

    def _behind(self) -> str:
        """The CSN of the first transaction behind what was read; empty if none is there yet."""
        unit = next((unit for unit in self._ahead if unit.blocks), None)
        while unit is None and (found := self._planner.next()) is not None:
            if self._ahead and self._ahead[-1].hole is None and found.hole is None:
                self._ahead.pop()  # a place: the later one says the same, and more
            self._ahead.append(found)
            unit = found if found.blocks else None
        if unit is None:
            return ""
        self._fit(unit)
        return self._look(unit.blocks[0])[0].csn if unit.transactions > 1 else unit.csn

    def _fit(self, unit: Unit) -> None:
        if self._fitted:
            return
        self._fitted = True
        self._skip = self._skip and self._skip.fitting(unit.csn, "START or ALTER REPLICAT")
        self._end = self._end and self._end.fitting(unit.csn, "END CSN")

    def _begins(self, rest: UnitPart) -> bool:
        """Leave out what lies before the border; False: all of the unit does."""
        assert self._skip is not None
        unit = rest.unit
        if not self._skip.is_before(unit.csn, unit.time_us):
            self._skipped += unit.transactions
            self._skipped_last = unit.csn
            return False
        if rest.many:
            first = max(rest.low, self._skip.first(rest.transactions))
            self._skipped += first - rest.low
            rest.low = first
            self._skipped_last = rest.transactions[first - 1].csn if first else self._skipped_last
        begins = rest.transactions[rest.low].csn if rest.many else unit.csn
        self._skip.must_follow(self._skipped_last, begins, unit.start)
        self._note(f"{self._skipped} transactions left out, up to position {unit.start}: beginning as ordered")
        self._skip = None
        return True

    def _ends(self, rest: UnitPart, end: Border) -> None:
        """Stop behind what lies before the border."""
        unit = rest.unit
        if end.is_before(unit.csn, unit.time_us):
            rest.high = end.first(rest.transactions) if rest.many else 0
            beyond = rest.transactions[rest.high].csn if rest.many else unit.csn
            self._stop = f"the next transaction, CSN {beyond} at position {unit.start}, lies beyond it"
        elif end.kind == ">" and unit.csn == end.csn:
            self._stop = f"CSN {unit.csn} is the last transaction that was to be applied"

    # Cuts

    def _add(self, rest: UnitPart, most: int) -> bool:
        """Take what of a unit belongs into the batch of so many rows at most; False: that takes nothing more."""
        gathered, alone, high = self._gathered, False, rest.high
        if self._cuts or rest.low or rest.unit.has_ddl:
            alone, high = self._cut(rest)
        piece = rest.upto(high)
        rows, size = gathered.rows + piece.changes, gathered.size + piece.size
        full = rows > most or size > self._max_bytes
        if gathered.anything and (full or high == rest.low):
            self._held = rest
            return False
        if not gathered.pieces:
            gathered.since = self._now()
        gathered.rows, gathered.size = rows, size
        gathered.pieces.append(piece)
        rest.low = high
        if high < rest.high:
            self._held = rest
        elif high == rest.whole:
            self._passed = rest.unit
        return not (alone or full or self._held is not None or 0 < self._cutting.group <= rows)

    def _cut(self, rest: UnitPart) -> tuple[bool, int]:
        """Whether a unit is a batch by itself, and up to where this one takes it: its `low` if nothing of it."""
        others = self._gathered.anything
        if self._lies_before(rest) == rest.low:
            if others:
                return False, rest.low
            self._before = None
        if self._splitting.is_alone(rest):
            return True, rest.low if others else self._splitting.border(rest)
        return False, self._share_of(rest)

    def _share_of(self, rest: UnitPart) -> int:
        """Up to where a unit is taken: all of it, or up to the transaction with which the batch has enough."""
        group, rows, high = self._cutting.group, self._gathered.rows, self._lies_before(rest) or rest.high
        if not group or not rest.many or rows + rest.changes(rest.low, high) <= group:
            return high
        at = rest.low
        while at < high and rows < group:
            rows += rest.transactions[at].changes
            at += 1
        return at

    def _lies_before(self, rest: UnitPart) -> int:
        """Up to where a unit lies before the transaction that is to begin a batch."""
        if self._before is None or not self._before.is_before(rest.unit.csn, rest.unit.time_us):
            return rest.high
        return min(rest.high, max(rest.low, self._before.first(rest.transactions))) if rest.many else rest.low

    # Batches

    def _close(self) -> Batch:
        """What is gathered, as a batch."""
        gathered, self._gathered = self._gathered, _OpenBatch()
        pieces, rows, beats = gathered.pieces, gathered.rows, gathered.beats
        beaten = tuple(block for unit in beats for block in unit.blocks)
        if not pieces:
            assert self._passed is not None
            last_beat = beats[-1]
            return Batch((Job(),), self._passed.end, last_beat.csn, last_beat.time_us, 0, 0, beats=beaten)
        first, last = pieces[0], pieces[-1]
        assert last.is_cut or self._passed is not None
        end = last.unit.start if last.is_cut or self._passed is None else self._passed.end
        blocks = tuple(block for piece in pieces for block in piece.blocks)
        small = rows <= min(self._max_rows, TASK_ROWS) and gathered.size <= self._max_bytes
        plain = small and not (first.low or last.is_cut or first.unit.has_ddl)
        csn, time_us = last.csn, last.time_us
        if beats and beats[-1].start > last.unit.start:
            csn, time_us = beats[-1].csn, beats[-1].time_us
        return Batch(
            jobs=(Job((blocks,)),) if plain else tuple(self._jobs(first, last, blocks)),
            end=end,
            csn=csn,
            time_us=time_us,
            transactions=sum(p.high - p.low if p.many else not p.is_cut for p in pieces),
            changes=rows,
            split=last.high if last.is_cut else 0,
            partial=last.is_cut and not last.many,
            before=first.before,
            size=sum(block.end.rba - block.start.rba for block in blocks),
            beats=beaten,
        )

    def _jobs(self, first: Share, last: Share, blocks: Sequence[Block]) -> Iterable[Job]:
        """Of blocks that are too many for one job or task, or in which transactions are cut or shapes change."""
        jobs = list(jobs_of(blocks, self._max_rows, self._max_bytes, head_of(first)))
        if first.many and jobs[0].tasks:
            jobs[0] = replace(jobs[0], skip=first.low)
        if last.many and last.is_cut and jobs[-1].tasks:
            jobs[-1] = replace(jobs[-1], until=last.high)
        return jobs


def jobs_of(blocks: Iterable[Block], max_rows: int, max_bytes: int, head: Head | None) -> Iterable[Job]:
    """Blocks as jobs within the bounds. `head`: of a transaction that goes on from before them."""
    for run in _runs(blocks, max_rows, max_bytes):
        is_ddl = run[0].header.is_ddl
        yield Job(ddl=run[0], head=head) if is_ddl else Job(tuple(_tasks(run)), head=head)
        head = head_behind(run, head)


def _runs(blocks: Iterable[Block], max_rows: int, max_bytes: int) -> Iterable[list[Block]]:
    """Blocks of one job each; a block that changes a shape is one by itself."""
    run: list[Block] = []
    for block in blocks:
        if block.header.is_ddl:
            yield from _cut(run, max_rows, max_bytes)
            yield [block]
            run = []
        else:
            run.append(block)
    yield from _cut(run, max_rows, max_bytes)


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


def _tasks(run: Iterable[Block]) -> Iterable[tuple[Block, ...]]:
    """A job's blocks as tasks of up to TASK_ROWS changes.

    A transaction is cut only where it is larger than that by itself, and from its own begin on: what is refused of it
    must not depend on what stands before it.
    """
    task: list[Block] = []
    rows = 0
    for unit in _units(run):
        changes = sum(block.header.changes for block in unit)
        if task and rows + changes > TASK_ROWS:
            yield tuple(task)
            task, rows = [], 0
        if changes > TASK_ROWS:
            yield from map(tuple, _cut(unit, TASK_ROWS, _ANY_SIZE))
        else:
            task += unit
            rows += changes
    if task:
        yield tuple(task)


def _units(run: Iterable[Block]) -> Iterable[list[Block]]:
    """Blocks of one transaction, or one block of many."""
    unit: list[Block] = []
    for block in run:
        unit.append(block)
        if block.header.indicator in COMPLETE:
            yield unit
            unit = []
    if unit:
        yield unit


def looker(fs: Fs, trail: TrailName, reader: BlockReader) -> Look:
    """Reads blocks of many transactions, which `reader` has seen durable, for a Batcher."""

    def look(block: Block) -> Sequence[Walked]:
        trail_id = reader.header.trail_id if reader.header else b""
        return transactions([(block.start, [], read_records(fs, trail, trail_id, reader.definitions, block))])

    return look


def read_records(
    fs: Fs, trail: TrailName, trail_id: bytes, definitions: Mapping[bytes, TableDef], block: Block
) -> list[Any]:
    """What stands in one block. `definitions`: all that come before it."""
    columns = columns_of(definitions)
    task = Task(trail.folder, trail.prefix, trail_id, (block,), {}, columns, wallet=trail.wallet, sealed=trail.sealed)
    return [record for _, _, records in read_blocks(task, fs) for record in records]


def tasks_of(
    job: Job, trail: TrailName, trail_id: bytes, plans: Plans, columns: Mapping[bytes, int], spill: str
) -> list[Task]:
    """A job's tasks, ready to be sent."""
    tasks = []
    head, last = job.head, len(job.tasks) - 1
    for number, blocks in enumerate(job.tasks):
        tasks.append(
            Task(
                trail.folder,
                trail.prefix,
                trail_id,
                blocks,
                plans,
                columns,
                spill,
                job.skip if number == 0 else 0,
                job.until if number == last else None,
                head,
                trail.wallet,
                trail.sealed,
            )
        )
        if number < last:
            head = head_behind(blocks, head)
    return tasks
