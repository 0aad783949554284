"""Batches on their way: the next job decodes while the one before is applied, and at most two are in memory.

Rule: a pipeline belongs to one place in one trail. When anything goes wrong it is thrown away whole and made anew from
the checkpoint row; nothing in it is a truth.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

from replicat.batches.batch import Batch, Batcher, Cutting, Job, looker, read_records, tasks_of
from replicat.batches.early import Early
from replicat.batches.engine import Engine
from replicat.batches.upto import PlannerUpTo
from replicat.model.borders import Border
from replicat.model.plan import Plans
from replicat.work.decode import Task, columns_of
from replicat.work.net.part import Part, Unmapped, discard
from trails.errors import GateError
from trails.fs import Fs
from trails.gathering import Gathering
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import Block, BlockReader
from trails.record import TableDef

# One job being decoded, and one decoded and waiting for the target.
DEPTH = 2
# A batch costs some milliseconds of CPU, however small it is, and so does its transaction at the target. The first
# change after a pause is applied at once. Where one batch follows the other and nothing is left waiting, the next one
# gathers until the one before has cost no more than this share of a processor; BATCHSECS overrides it.
SHARE = 0.2
MOST_GATHER_SECONDS = 0.25


@dataclass(slots=True)
class RunningJob:
    """A job on its way; `first` and `last` of its batch open and close the target transaction.

    `ddl`: the block of a change of shape, whose job does nothing: the driver reads and applies it itself. Nor does the
    job of a batch that holds heartbeats only.
    """

    batch: Batch
    tasks: list[Task]
    future: Future[list[Part | Unmapped]]
    first: bool
    last: bool
    ddl: Block | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """Where reading begins. `position` None: the trail's first file; `split`, `skip_until`: see model.target.Row."""

    position: Position | None
    trail_id: bytes = b""
    split: int = 0
    skip_until: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large a batch becomes, and how long it is gathered (BATCHSECS; None: a moment, where much comes)."""

    rows: int
    size: int
    cutting: Cutting = field(default_factory=Cutting)
    seconds: float | None = None


class BatchPipeline:
    """Reads one trail from one position, and keeps jobs running ahead.

    `trail_id`: of the trail being read; empty before its first file was found.
    """

    def __init__(
        self,
        fs: Fs,
        trail: TrailName,
        begin: Begin,
        bounds: Bounds,
        engine: Engine,
        plans: Callable[[Mapping[bytes, TableDef]], Plans],
        spill: str = "",
        note: Callable[[str], None] = lambda _text: None,
        until: Position | None = None,
        early: Early | None = None,
    ) -> None:
        """`plans`: gives the plans for all definitions met; asked for each job when it is started.

        `until`: nothing is read from there on. `early`: where transactions may be begun before their end has come.
        """
        self.trail_id = b""
        self._fs = fs
        self._reader = BlockReader(fs, trail, begin.position, begin.trail_id or None)
        self._planner = Planner(self._reader) if until is None else PlannerUpTo(self._reader, until)
        self._batcher = Batcher(
            self._planner,
            bounds.rows,
            bounds.size,
            replace(bounds.cutting, seconds=bounds.seconds or 0.0),
            look=looker(fs, trail, self._reader),
            split=begin.split,
            skip=Border.of(begin.skip_until),
            note=note,
            now=fs.host.monotonic,
        )
        self._gathers_by_itself = bounds.seconds is None
        self._trail = trail
        self._engine = engine
        self._plans = plans
        self._columns: dict[bytes, int] = {}  # of all tables defined so far
        self._spill = spill
        self._bounds = bounds.rows, bounds.size
        self._early = early or Early(lambda: False, fs.host.monotonic)
        self._early.forget()
        self._running: deque[RunningJob] = deque()
        self._waiting: deque[tuple[Batch, Job]] = deque()  # jobs of a large batch that are not started yet
        self._gathering = Gathering(fs.host, SHARE, MOST_GATHER_SECONDS)

    @property
    def idle_position(self) -> Position | None:
        """How far nothing is left to apply, if nothing is on its way."""
        return None if self.begun else self._batcher.position

    @property
    def idle_origin(self) -> Position | None:
        """The source's place up to which nothing is left to apply, if that is known and nothing is on its way."""
        return None if self.begun else self._batcher.origin

    @property
    def begun(self) -> bool:
        """Whether a batch is on its way."""
        return bool(self._running or self._waiting or self._early.begun)

    @property
    def at_end(self) -> bool:
        """Whether all that is durable in the trail has been taken."""
        return self._batcher.at_end and not self.begun and not self.gathers_for

    @property
    def reached(self) -> bool:
        """Whether all that lies before the place where reading ends has been taken, and nothing of it is on its way."""
        return isinstance(self._planner, PlannerUpTo) and self._planner.reached and self.at_end

    @property
    def rests_for(self) -> float:
        """Seconds until it is looked again what has come: the next batch gathers behind one that has cost its share."""
        return self._gathering.seconds

    @property
    def gathers_for(self) -> float:
        """Seconds until the next batch may be taken; 0 if at once."""
        return max(self.rests_for, self._batcher.gathers_for)

    @property
    def ended(self) -> str:
        """Why nothing more is to be applied (END), once all before it is; empty if that is not so."""
        return "" if self.begun else self._batcher.ended

    @property
    def closed(self) -> bool:
        """Whether the trail ends where its writer has closed a file."""
        return self._reader.closed

    @property
    def hole(self) -> Block | None:
        """The hole in the trail that comes next, once all before it is applied."""
        return None if self.begun else self._batcher.hole

    def pass_hole(self) -> None:
        """Go on behind it."""
        self._batcher.pass_hole()

    def stop(self, why: str) -> None:
        """Read nothing more."""
        self._batcher.stop(why)

    def fill(self, *, more: bool = True) -> None:
        """Start jobs while not too many wait to be applied; without `more` only those of a batch that is begun.

        One behind another that still runs only where more waits already: else it would begin without what comes
        meanwhile. And none behind a change of shape before that is applied: its plans are made from the target's new
        shape.
        """
        while len(self._running) < DEPTH:
            waits = self._waiting or not self._batcher.at_end
            if self._running and not (waits or self._running[-1].future.done()):
                return
            if self._running and self._running[-1].ddl:
                return
            if not self._waiting and not (more or self._early.begun):
                return
            if not self._waiting:
                batch = None
                if not self._gathering.seconds:
                    awaited = self._gathers_by_itself and not self._running
                    batch = self._batcher.next(alone=self._early.begun, awaited=awaited)
                    if batch is None or self._early.begun:
                        batch = self._part(batch)
                if not self.trail_id and (header := self._reader.header) is not None:
                    self.trail_id = header.trail_id
                if batch is None:
                    return
                rests = self._gathers_by_itself and self._batcher.at_end and batch.early is None
                self._gathering.begin(afresh=not self._running, rests=rests)
                self._waiting.extend((batch, job) for job in batch.jobs)
            self._submit(*self._waiting.popleft())

    def _part(self, batch: Batch | None) -> Batch | None:
        """What is there of a transaction whose end is not (`batch` is None then), or was not when it was begun."""
        if batch is None:
            return self._early.more(self._batcher.unended, *self._bounds, idle=not self._running)
        return self._early.rest(batch, *self._bounds)

    def head(self, seconds: float) -> RunningJob | None:
        """The oldest job if it is done within `seconds`; it stays until drop()."""
        if not self._running:
            return None
        running = self._running[0]
        wait([running.future], timeout=seconds)
        return running if running.future.done() else None

    @property
    def busy(self) -> bool:
        """Whether a job is on its way."""
        return bool(self._running)

    def drop(self) -> None:
        """The oldest job was applied, or never will be: forget it, and remove what it left."""
        running = self._running.popleft()
        if running.last:
            self._gathering.end()
        if not running.future.cancelled():
            with contextlib.suppress(GateError):
                for part in running.future.result():
                    if part.files:
                        discard(part)

    def close(self) -> None:
        """Give up everything."""
        for running in self._running:
            running.future.cancel()
        while self._running:
            self.drop()
        self._reader.close()

    def _submit(self, batch: Batch, job: Job) -> None:
        tasks: list[Task] = []
        future: Future[list[Part | Unmapped]] = Future()
        if not job.tasks:
            future.set_result([])
        else:
            definitions = self._reader.definitions
            plans = self._plans(definitions)
            if len(self._columns) < len(definitions):
                self._columns = columns_of(definitions)
            tasks = tasks_of(job, self._trail, self.trail_id, plans, self._columns, self._spill)
            future = self._engine.submit(tasks)
        first, last = batch.opens and job is batch.jobs[0], batch.closes and job is batch.jobs[-1]
        self._running.append(RunningJob(batch, tasks, future, first, last, job.ddl))

    def records(self, block: Block) -> list[Any]:
        """What stands in one block, read by the driver itself."""
        return read_records(self._fs, self._trail, self.trail_id, self._reader.definitions, block)
