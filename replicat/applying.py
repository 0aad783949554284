"""The open target transaction: a batch's parts go into it one after the other, and only what is committed counts.

Rule: it begins by moving the checkpoint row, and ends by commit() or by losing the connection; nothing in here outlives
either. Refused rows go down the ladder (refused/ladder.py); what the judge gives up there (REPERROR: refused/judge.py)
is durable before the commit (refused/discard.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from replicat.batch import begun_before
from replicat.decode import Spot, last_xid
from replicat.engine import Engine
from replicat.net.part import Part, Unmapped
from replicat.pipeline import Running
from replicat.refused.discard import OPS, Discards
from replicat.refused.discardrecord import Reason
from replicat.refused.exceptions import Exceptions
from replicat.refused.judge import Judge
from replicat.refused.ladder import Ladder, Note
from replicat.refused.late import Late
from replicat.target import RefusedError, Row, Target
from trails.ddl import DdlChange
from trails.errors import OperatorError
from trails.fs import Fs
from trails.record import Op
from trails.runtime.stats import COLLISIONS, CONVERTED, DISCARDS, FILTERED, SKIPPED, Stats


class Applying:
    """Applies the jobs of one batch after the other."""

    def __init__(self, target: Target, discards: Discards, stats: Stats, note: Note, fs: Fs, engine: Engine) -> None:
        self._target = target
        self._engine = engine
        self._exceptions = Exceptions(target, engine)
        self._discards = discards
        self._stats = stats
        self._note = note
        self._fs = fs
        self._done: list[Part] = []  # without their steps
        self._ddls: list[tuple[str, str]] = []
        self._late = Late()
        self.is_open = False
        self.xid = ""
        """Of the last transaction that was applied."""

    def reset(self, xid: str = "") -> None:
        """A new connection, or none: nothing is open."""
        self._done.clear()
        self._ddls.clear()
        self._late.clear()
        self.is_open = False
        self.xid = xid

    def take_xid(self, running: Running, records: Sequence[Any] = ()) -> None:
        """The row of a job's batch is to name the transaction that the job (or its DDL block's `records`) ends in."""
        self.xid = next((record[2] for record in records if record[0] == Op.BEGIN), self.xid)
        for task, part in zip(running.tasks, running.future.result(), strict=True):
            self.xid = (last_xid(task, self._fs) if isinstance(part, Unmapped) else part.xid) or self.xid

    def begin(self, old: Row, new: Row) -> None:
        """Open the transaction; the row moves first."""
        self._target.begin(old, new)
        self.is_open = True

    def apply(self, running: Running) -> None:
        """Apply a job's parts in order."""
        judge = Judge(self._discards, self._exceptions, running.batch, self._note)
        # Nothing waits beyond what is committed by itself (MAXTRANSOPS), nor for rows of another shape.
        cut = running.batch.partial or running.batch.before or any(job.ddl for job in running.batch.jobs)
        late = None if cut else self._late
        ladder = Ladder(self._target, judge, self._note, self._fs, self._engine, late)
        for task, part in zip(running.tasks, running.future.result(), strict=True):
            ladder.apply(task, part)
        self._done += ladder.done

    def count_ddl(self, source: str, target: str) -> None:
        """A change of shape was applied."""
        self._ddls.append((source, target))

    def discard_ddl(self, running: Running, change: DdlChange, reason: Reason, trail_id: bytes) -> None:
        """A change of shape is given up: its statement goes to the discard file."""
        assert running.ddl is not None
        block = running.ddl
        csn, before = begun_before(running.batch, (block.start.seqno, block.start.rba, block.end.rba))
        name = change.full_name
        spot = Spot(block.start, csn, before, name, "ddl", "", after=(change.sql,), columns=("statement",))
        self._discards.write(spot, reason, trail_id, ())
        self._discards.count(name, name, DISCARDS)
        self._discards.because(DISCARDS, name, reason.label)

    def commit(self, running: Running) -> None:
        """Commit what was applied since begin()."""
        batch = running.batch
        assert not self._late, "a transaction ended, and changes of it still wait"
        if batch.partial:  # else the ladder has asked, behind each whole transaction
            self._check(batch.csn)
        self._discards.sync()  # before the commit that skips their changes (I8)
        collisions, converted = self._target.collisions(), self._target.converted()
        self._target.commit()
        self.is_open = False
        self._count_collisions(collisions)
        for place, number in converted.items():
            self._stats.count(*self._pair(place), CONVERTED, number)
        self._count()
        self._discards.committed(self._stats, batch.end, "" if batch.partial else batch.csn)

    def _check(self, csn: str) -> None:
        try:
            self._target.check_commit()
        except RefusedError as error:
            raise OperatorError(
                f"the target refuses a part of a transaction larger than MAXTRANSOPS (behind CSN {csn}): {error.shown}",
                hint="Only the whole transaction satisfies the constraint: raise MAXTRANSOPS, or take it out",
            ) from error

    def _count_collisions(self, collisions: Mapping[tuple[str, str], Sequence[int]]) -> None:
        """By source and target; of several sources of one table the first that the batch had rows of."""
        for place, numbers in collisions.items():
            for counter, number in zip(COLLISIONS, numbers, strict=True):
                if number:
                    self._stats.count(*self._pair(place), counter, number)

    def _pair(self, place: tuple[str, str]) -> tuple[str, str]:
        target = ".".join(place)
        pairs = [pair for part in self._done for pair in part.counts if pair[1] == target]
        return pairs[0] if pairs else (target, target)

    def _count(self) -> None:
        for part in self._done:
            for (source, target), numbers in part.counts.items():
                for op, number in zip(OPS, numbers, strict=True):
                    if number:
                        self._stats.count(source, target, op, number)
            for (source, target), numbers in part.filtered.items():
                self._stats.count(source, target, FILTERED, sum(numbers))
            for (source, target), number in part.skipped.items():
                self._stats.count(source, target, SKIPPED, number)
        self._done.clear()
        for source, target in self._ddls:
            self._stats.count(source, target, Op.DDL)
        self._ddls.clear()
