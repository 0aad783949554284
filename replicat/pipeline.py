"""Batches on their way: the next job decodes while the one before is applied, and at most two are in memory.

Rule: a pipeline belongs to one place in one trail. When anything goes wrong it is thrown away whole and made anew from
the checkpoint row; nothing in it is a truth.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass

from replicat.batch import Batch, Batcher, Job, tasks_of
from replicat.decode import Task
from replicat.engine import Engine
from replicat.part import Part, discard
from replicat.plan import Plans
from trails.errors import GateError
from trails.fs import Fs
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import BlockReader

# One job being decoded, and one decoded and waiting for the target.
DEPTH = 2
# A job costs 20 to 30 ms of CPU however small it is. While much comes, letting it gather for a moment makes fewer and
# larger ones; a batch of fewer changes than this never waits for company.
GATHER_CHANGES = 2000
GATHER_SECONDS = 0.25


@dataclass(slots=True)
class Running:
    """A job on its way; `first` and `last` of its batch open and close the target transaction."""

    batch: Batch
    tasks: list[Task]
    future: Future[list[Part]]
    first: bool
    last: bool


class Pipeline:
    """Reads one trail from one position, and keeps jobs running ahead."""

    def __init__(
        self,
        fs: Fs,
        trail: TrailName,
        position: Position | None,
        trail_id: bytes,
        bounds: tuple[int, int],
        engine: Engine,
        plans: Callable[[Planner], Plans],
        spill: str = "",
    ) -> None:
        """`bounds`: most rows and bytes of a job; `plans`: gives the plans for all definitions met."""
        self._reader = BlockReader(fs, trail, position, trail_id or None)
        self._planner = Planner(self._reader)
        self._batcher = Batcher(self._planner, *bounds)
        self._trail = trail
        self._engine = engine
        self._plans = plans
        self._spill = spill
        self._running: deque[Running] = deque()
        self._waiting: deque[tuple[Batch, Job]] = deque()  # jobs of a large batch that are not started yet
        self._gathers_until = 0.0

    @property
    def trail_id(self) -> bytes:
        """The trail being read; empty before its first file was found."""
        header = self._reader.header
        return header.trail_id if header else b""

    @property
    def idle_position(self) -> Position | None:
        """How far nothing is left to apply, if nothing is on its way."""
        return None if self._running or self._waiting else self._batcher.position

    @property
    def at_end(self) -> bool:
        """Whether all that is durable in the trail has been taken."""
        return self._batcher.at_end and not self._running and not self._waiting and not self.gathers_for

    @property
    def gathers_for(self) -> float:
        """Seconds until the next batch may be taken; 0 if at once."""
        return max(0.0, self._gathers_until - time.monotonic())

    def fill(self) -> None:
        """Start a job if the last one is done and not too many wait to be applied.

        Never one behind another that still runs: it would begin no sooner, and without what comes meanwhile.
        """
        while len(self._running) < DEPTH and (not self._running or self._running[-1].future.done()):
            if not self._waiting:
                batch = None if self.gathers_for else self._batcher.next()
                if batch is None:
                    return
                if self._batcher.at_end and batch.changes >= GATHER_CHANGES:
                    self._gathers_until = time.monotonic() + GATHER_SECONDS
                self._waiting.extend((batch, job) for job in batch.jobs)
            self._submit(*self._waiting.popleft())

    def head(self, seconds: float) -> Running | None:
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
        """The oldest job was applied; forget it."""
        self._forget(self._running.popleft())

    def close(self) -> None:
        """Give up everything."""
        for running in self._running:
            running.future.cancel()
        while self._running:
            self._forget(self._running.popleft())
        self._reader.close()

    def _submit(self, batch: Batch, job: Job) -> None:
        tasks = tasks_of(job, self._trail, self.trail_id, self._plans(self._planner), self._spill)
        future = self._engine.submit(tasks)
        self._running.append(Running(batch, tasks, future, job is batch.jobs[0], job is batch.jobs[-1]))

    @staticmethod
    def _forget(running: Running) -> None:
        if running.future.cancelled():
            return
        with contextlib.suppress(GateError):
            for part in running.future.result():
                discard(part)
