"""The open target transaction: a batch's parts go into it one after the other, and only what is committed counts.

Rule: it begins by moving the checkpoint row, and ends by commit() or by losing the connection; nothing in here outlives
either. Refused rows go down the ladder (refused/ladder.py); what the judge gives up there (REPERROR: refused/judge.py)
is durable before the commit (refused/discard.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from replicat.apply.discard import OPS, Discards
from replicat.apply.discardrecord import Reason
from replicat.apply.exceptions import Exceptions
from replicat.apply.judge import Judge
from replicat.apply.ladder import Ladder, Note
from replicat.apply.late import Late
from replicat.batches.engine import Engine
from replicat.batches.pipeline import RunningJob
from replicat.model.target import RefusedError
from replicat.targets.contract import Target
from replicat.work.decode import Spot, transactions
from replicat.work.net.part import Part, Unmapped
from trails.ddl import DdlChange
from trails.errors import OperatorError
from trails.fs import Fs
from trails.record import Op
from trails.runtime.report.stats import COLLISIONS, CONVERTED, DISCARDS, FILTERED, SKIPPED, DdlCounts, Stats


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
        self._seen_ddls: list[tuple[bool, bool]] = []  # of this transaction: mapped, passes
        self.ddl_counts = DdlCounts(errors=True)
        self._late = Late()
        self.xid = ""
        """Of the last transaction that was applied."""

    def reset(self, xid: str = "") -> None:
        """A new connection, or none: nothing is open."""
        self._done.clear()
        self._ddls.clear()
        self._seen_ddls.clear()
        self._late.clear()
        self.xid = xid

    def take_xid(self, running: RunningJob, records: Sequence[Any] = ()) -> None:
        """The row of a job's batch is to name the transaction that the job (or its DDL block's `records`) ends in."""
        self.xid = next((record[2] for record in records if record[0] == Op.BEGIN), self.xid)
        for task, part in zip(running.tasks, running.future.result(), strict=True):
            xid = transactions(task, self._fs)[-1].xid if isinstance(part, Unmapped) else part.xid
            self.xid = xid or self.xid

    def apply(self, running: RunningJob) -> None:
        """Apply a job's parts in order."""
        judge = Judge(self._discards, self._exceptions, running.batch, self._note)
        # Nothing waits beyond what is committed by itself (MAXTRANSOPS), nor for rows of another shape.
        cut = running.batch.partial or running.batch.before or any(job.ddl for job in running.batch.jobs)
        late = None if cut else self._late
        ladder = Ladder(
            self._target,
            judge,
            self._note,
            self._fs,
            self._engine,
            late,
            self._discards.verdicts,
            running.first,
            done=self._done,
        )
        for task, part in zip(running.tasks, running.future.result(), strict=True):
            ladder.apply(task, part)

    def apply_early(self, running: RunningJob) -> str:
        """Apply a job of a transaction that was begun before its end had come; what is in the way, if something is.

        Nothing is tried in another way, and nobody judges: that is for who has the whole transaction.
        """
        if self._discards.verdicts:
            return "a transaction was condemned"
        for number, part in enumerate(running.future.result()):
            if isinstance(part, Unmapped):
                return "a change of it cannot be mapped"
            try:
                self._target.apply(part.steps, first=running.first and not number, border=part.ends)
            except RefusedError as error:
                return f"the target refused a part of it (SQLSTATE {error.sqlstate}, {error.table})"
            self._done.append(replace(part, steps=(), mapped=()))
        return ""

    def waits(self, running: RunningJob, before: str) -> set[str]:
        """Transactions that change tables which are being loaded; none too few. `before`: that in which it begins."""
        found: set[str] = set()
        for task, part in zip(running.tasks, running.future.result(), strict=True):
            if isinstance(part, Part):
                found |= part.waits
            else:
                found |= {one.xid or before for one in transactions(task, self._fs)}
        return found

    def count_ddl(self, source: str, target: str) -> None:
        """A change of shape was applied."""
        self._ddls.append((source, target))

    def saw_ddl(self, *, mapped: bool, passes: bool) -> None:
        """A change of shape was met; it counts once its transaction is committed."""
        self._seen_ddls.append((mapped, passes))

    def discard_ddl(self, running: RunningJob, change: DdlChange, reason: Reason, trail_id: bytes) -> None:
        """A change of shape is given up: its statement goes to the discard file."""
        assert running.ddl is not None
        block = running.ddl
        csn, before = running.batch.begun_before(block)
        name = change.full_name
        spot = Spot(block.start, csn, before, name, "ddl", "", after=(change.sql,), columns=("statement",))
        self._discards.write(spot, reason, trail_id, ())
        self._discards.count(name, name, DISCARDS)
        self._discards.because(DISCARDS, name, reason.label)

    def commit(self, running: RunningJob) -> None:
        """Commit what was applied in the open transaction."""
        batch = running.batch
        assert not self._late.parts, "a transaction ended, and changes of it still wait"
        if batch.partial:  # else the ladder has asked, behind each whole transaction
            self._check(batch.csn)
        if self._discards.given_up.reasons:
            self._discards.sync()  # before the commit that skips their changes (I8)
        self._target.commit()
        for place, numbers in self._target.tally.collisions.items():
            for counter, number in zip(COLLISIONS, numbers, strict=True):
                if number:
                    self._stats.count(*self._pair(place), counter, number)
        for place, number in self._target.tally.converted.items():
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

    def _pair(self, place: tuple[str, str]) -> tuple[str, str]:
        """Source and target of a count; of several sources of one table the first that the batch had rows of."""
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
            for (source, target), number in part.zeroed.items():
                self._stats.count(source, target, CONVERTED, number)
        self._done.clear()
        for source, target in self._ddls:
            self._stats.count(source, target, Op.DDL)
        self._ddls.clear()
        for mapped, passes in self._seen_ddls:
            self.ddl_counts.seen(None, mapped=mapped, passes=passes)
        self._seen_ddls.clear()
