"""A large transaction is applied while it still comes: into one open transaction of the target, which ends with it.

By the time its COMMIT stands in the trail, most of its rows are in the target, where nobody sees them yet.

Rule: nothing of it is committed before its COMMIT stands in the trail, and only what is plain is done early. Whatever
else happens gives it up: all is rolled back, and it is applied as any other once the whole of it is there. So what a
refusal means is decided with all of it in sight, and each transaction is tried early once at most.

    state     open in the target                          left by
    none      nothing                                     enough of its rows are there: begun
    begun     its rows so far; the row has not moved yet  its last job: the row moves, COMMIT; else: given up
    given up  nothing                                     its end: a batch as any other

Given up is what the target refuses, what its writer begins anew (RESTART), what changes a table's shape, what is lost
with the connection, and what stops coming: locks in the target are held no longer than work and MOST_WAIT_SECONDS.
A crash leaves what a crash in any open transaction leaves: nothing of it, and the row where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from replicat.batches.batch import TASK_ROWS, Batch, jobs_of
from replicat.batches.splitting import Head, head_behind
from replicat.model.again import BeginAgainError
from trails.position import Position
from trails.reader import Block

MOST_WAIT_SECONDS = 5.0
"""An open transaction waits for more of its source's no longer than this, or than it has worked already."""


class Early:
    """The transaction that is applied early, if one is. It outlives pipelines: what was given up is not tried again."""

    def __init__(self, may_begin: Callable[[], bool], now: Callable[[], float], rows: int = TASK_ROWS) -> None:
        """`may_begin`: whether the target and all that was ordered permit it now. `rows`: so many make it worth it."""
        self._may_begin = may_begin
        self._now = now
        self._rows = rows
        self._begun: Position | None = None
        self._given_up: Position | None = None
        self._taken = 0
        self._head: Head | None = None
        self._opened = self._waited = 0.0
        self._waits_since: float | None = None

    @property
    def begun(self) -> bool:
        """Whether jobs of a transaction were given out whose end was not there then, and not all of them since."""
        return self._begun is not None

    def forget(self) -> None:
        """All that is open is rolled back, or was never begun."""
        self._given_up = self._begun or self._given_up
        self._begun = None

    def give_up(self, place: Position, why: str) -> NoReturn:
        """Roll back, and apply the transaction that begins at `place` once it is whole."""
        self._begun, self._given_up = None, place
        raise BeginAgainError(
            f"The transaction at position {place} was being applied before its end had come, and {why}: rolled back; "
            "it is applied once all of it is there"
        )

    def more(self, there: Sequence[Block], max_rows: int, max_bytes: int, *, idle: bool) -> Batch | None:
        """Jobs of what is there of a transaction whose end is not; None: too little came. `idle`: no job runs."""
        begun = self._begun
        if begun is None:
            if not there or there[0].start == self._given_up or not self._may_begin():
                return None
            self._taken, self._head = 0, None
            if any(block.header.is_ddl for block in there):
                self._given_up = there[0].start
                return None
        else:
            self._check(begun, there)
        new = there[self._taken :]
        changes = sum(block.header.changes for block in new)
        if changes < self._rows:
            if begun is not None:
                self._wait(begun, idle=idle)
            return None
        if begun is None:
            self._begun, self._opened, self._waited, self._waits_since = there[0].start, self._now(), 0.0, None
        self._works()
        head, self._head = self._head, head_behind(new, self._head)
        self._taken += len(new)
        jobs, place = tuple(jobs_of(new, max_rows, max_bytes, head)), there[0].start
        return Batch(jobs, place, "", 0, 0, changes, early=place, opens=begun is None, closes=False)

    def _check(self, begun: Position, blocks: Sequence[Block]) -> None:
        """Give it up, unless it goes on with these, and plainly."""
        if not blocks or blocks[0].start != begun:
            self.give_up(begun, "its writer began it anew")
        if any(block.header.is_ddl for block in blocks[self._taken :]):
            self.give_up(begun, "it changes a table's shape")

    def _works(self) -> None:
        if self._waits_since is not None:
            self._waited += self._now() - self._waits_since
            self._waits_since = None

    def _wait(self, begun: Position, *, idle: bool) -> None:
        if not idle:
            self._works()
            return
        now = self._now()
        self._waits_since = now if self._waits_since is None else self._waits_since
        waited = self._waited + now - self._waits_since
        worked = now - self._opened - waited
        if waited > max(MOST_WAIT_SECONDS, worked):
            self.give_up(begun, f"no more of it came for {waited:.0f} seconds")

    def rest(self, batch: Batch, max_rows: int, max_bytes: int) -> Batch:
        """The next batch, whose transactions are whole: without what of it was given out early."""
        begun, self._begun = self._begun, None  # from here on it is a batch that is on its way
        if begun is None:
            return batch
        blocks = batch.blocks
        self._check(begun, blocks)
        if batch.partial:
            self.give_up(begun, "it is to be cut")
        jobs = tuple(jobs_of(blocks[self._taken :], max_rows, max_bytes, self._head))
        return replace(batch, jobs=jobs, early=begun, opens=False)
