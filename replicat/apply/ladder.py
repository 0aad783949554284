"""What to do when the target refuses rows: four ways to apply the same task, each slower and surer than the one before.

    1  net effect: deletes, updates, new rows                       what nearly always works
    2  net effect by DELETE and INSERT                              two rows swap a unique value (CW-25)
    3  halves, cut at transaction borders, each by 1 and 2          narrows down what the target refuses
    4  change by change in source order                             what still fails is told with its place

Everything happens in the open target transaction; the state between two transactions is one that the source had. What
only a whole transaction satisfies is checked behind each that is complete (`border`), so such a refusal is narrowed
down to its transaction too. A transaction that is condemned (TRANSDISCARD, TRANSEXCEPTION) is not tried at all.
What still fails at 4 goes to the `Judging` (refused/judge.py), who raises, or returns: then the change is skipped. Of a
transaction larger than a job a change may wait for the others instead (refused/late.py).
A task in which some expression fails, or some change can't be mapped (Unmapped), begins at 3, its expressions evaluated
by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from replicat.apply.late import Late
from replicat.apply.resolving import ConflictError, apply_change
from replicat.model.pausing import Pair
from replicat.model.target import NO_ROW, ROW_EXISTS, RefusedError, UnmappedError
from replicat.targets.contract import Target
from replicat.work.decode import Evaluated, Spot, Task, run_each, run_some, transactions
from replicat.work.net.part import Part, Unmapped
from trails.errors import OperatorError
from trails.fs import Fs

Note = Callable[[str], None]
MEND = "Mend the row, then START; logdump --csn shows the change"
OUT_OF_STEP = (
    "Mend the row, or use HANDLECOLLISIONS where ALTER or a load overlaps; then START; logdump --csn shows the change"
)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one MAP; `part` applies it by itself."""

    task: Task
    spot: Spot
    part: Part


class Judging(Protocol):
    """Who says what becomes of what is refused. Each raises, or returns and what it was about is skipped."""

    def is_condemned(self, task: Task, csn: str) -> bool:
        """Whether the transaction is given up whole; `csn` is empty for one that began before the task."""

    def refused(self, change: Change, error: RefusedError, again: Callable[[], None]) -> None:
        """A change that is refused even by itself; `again` tries it once more."""

    def give_up(self, change: Change) -> None:
        """A change of a condemned transaction."""

    def refused_whole(self, task: Task, csn: str, error: RefusedError, changes: Callable[[], Iterator[Change]]) -> None:
        """A transaction whose changes are all applied, but not what they come to. They were undone."""

    def settled(self, change: Change, conflict: str, *, applied: bool, discard: bool) -> None:
        """A conflict was resolved: by a row that was written (`applied`), or by leaving the target's as it is."""

    def unsettled(self, change: Change, conflict: str) -> None:
        """A conflict that nothing resolves; refused() comes next."""

    def mark(self) -> Any:
        """What was given up so far."""

    def undo(self, mark: Any) -> None:
        """What was given up since the mark is to be done again."""


class AbendError(OperatorError):
    """Ends the process; `csn` is that of the transaction at fault. `pair`: source and target of the table whose change
    alone is, if one is.
    """

    def __init__(self, message: str, csn: str, *, hint: str, pair: Pair | None = None) -> None:
        super().__init__(message, hint=hint)
        self.csn = csn
        self.pair = pair


def abend(error: RefusedError, spot: Spot, more: str = "", hint: str = "") -> AbendError:
    """The error that ends the process; it names the change, and says no value of it but the key."""
    what = "no target row can be made of" if isinstance(error, UnmappedError) else "the target refuses"
    shown = spot.target + error.shown.removeprefix("target") if error.table == "target" else error.shown
    shown = shown.removeprefix(f"{spot.table}: ")  # it is named before
    if isinstance(error, UnmappedError):
        hint = f"{error.hint}. Then START again" if error.hint else "Mend that, then START"
    return AbendError(
        f"{spot.table}: {what} the {spot.op} of row ({spot.key}): {shown.rstrip('.')}{more}; "
        f"position {spot.position}, CSN {spot.csn or '?'}, change {spot.index}",
        spot.csn,
        hint=hint or (OUT_OF_STEP if error.sqlstate in (NO_ROW, ROW_EXISTS) else MEND),
        pair=(spot.plan.source, spot.plan.target) if spot.plan is not None else None,
    )


class Evaluates(Protocol):
    """The part of an Engine that is needed here."""

    def evaluate(self, task: Task, fs: Fs | None = None) -> Evaluated: ...


@dataclass(slots=True, eq=False)
class Ladder:
    """Applies tasks in the open transaction. `done`: the parts that were applied, without their steps.

    `_engine`: needed where MAPs have expressions. `_late`: what waits of the transaction that goes on. `_condemned`: by
    CSN, the transactions that are given up whole. `_first`: nothing was done in the open transaction yet.
    """

    _target: Target
    _judge: Judging
    _note: Note
    _fs: Fs | None = None
    _engine: Evaluates | None = None
    _late: Late | None = None
    _condemned: Mapping[str, object] = field(default_factory=dict)
    _first: bool = False
    _evaluated: Evaluated | None = None
    done: list[Part] = field(default_factory=list)

    def apply(self, task: Task, part: Part | Unmapped) -> None:
        """Apply a task's part; OperatorError names what the target refuses even by itself."""
        self._evaluated = None
        first, self._first = self._first, False
        if self._condemned:
            condemned = [self._judge.is_condemned(task, one.csn) for one in transactions(task, self._fs)]
            if any(condemned):
                self._by_hand(task)
                self._around(task, condemned)
                return
        if self._late is not None and self._late.parts:
            self._behind_late(task, part)
            return
        if isinstance(part, Unmapped):
            what = f"An expression fails on a row of a batch (SQLSTATE {part.sqlstate})"
            self._note(f"{what if part.sqlstate else 'A change of a batch cannot be mapped'}; looking for it")
        else:
            try:
                self._target.apply(part.steps, first=first, border=part.ends)
            except RefusedError as error:
                self._check_undone(error)
                # No row's values here: this line comes with each such batch, and most of them then arrive.
                what = f"SQLSTATE {error.sqlstate}, {error.table}"
                self._note(f"The target refused a batch as a whole ({what}); trying other ways")
            else:
                self._did(part)
                return
            if self._applied(part, rewrite=True):
                return
        self._by_hand(task)
        self._halve(task, 0, len(transactions(task, self._fs)))

    def _by_hand(self, task: Task) -> None:
        """From here on parts of the task are mapped here, not in Spark's workers."""
        programs = (plan.mapping for plans in task.plans.values() for plan in plans if not plan.error)
        if any(program is not None and program.expressions for program in programs):
            assert self._engine is not None, "expressions, and nobody to evaluate them"
            self._evaluated = self._engine.evaluate(task, self._fs)

    def _did(self, part: Part) -> None:
        self.done.append(replace(part, steps=(), mapped=()))

    def _behind_late(self, task: Task, part: Part | Unmapped) -> None:
        """Changes of the task's first transaction wait. What has nothing to do with them is applied as ever."""
        assert self._late is not None
        self._by_hand(task)
        if isinstance(part, Part) and self._is_apart(task, self._late) and self._applied(part):
            self._together(self._late)
        else:
            self._around(task, [False] * len(transactions(task, self._fs)))

    def _is_apart(self, task: Task, late: Late) -> bool:
        """Whether the task is the middle of the transaction, and no change in it is of a row that waits."""
        try:
            goes_on = not transactions(task, self._fs)[0].ends
            return goes_on and late.is_apart(run_some(task, 0, 1, self._fs, self._evaluated, keep=True))
        except RefusedError:
            return False

    def _around(self, task: Task, condemned: list[bool]) -> None:
        """Apply the runs of transactions between those that are condemned, and give those up."""
        at = 0
        if self._late:  # of the first one, which goes on
            self._one_by_one(task, 0)
            at = 1
        while at < len(condemned):
            end = at + 1
            while end < len(condemned) and condemned[end] == condemned[at]:
                end += 1
            if not condemned[at]:
                self._some(task, at, end)
            else:
                for number in range(at, end):
                    for change in self._changes(task, number):
                        self._judge.give_up(change)
            at = end

    def _some(self, task: Task, low: int, high: int) -> None:
        try:
            part = run_some(task, low, high, self._fs, self._evaluated)
        except RefusedError:  # an expression fails, or no row can be made
            part = None
        if part is None or not (self._applied(part) or self._applied(part, rewrite=True)):
            self._halve(task, low, high)

    def _halve(self, task: Task, low: int, high: int) -> None:
        if high - low <= 1:
            self._one_by_one(task, low)
            return
        middle = (low + high) // 2
        for start, end in ((low, middle), (middle, high)):
            self._some(task, start, end)

    def _applied(self, part: Part, *, rewrite: bool = False) -> bool:
        try:
            self._target.apply(part.steps, rewrite=rewrite, border=part.ends)
        except RefusedError as error:
            self._check_undone(error)
            return False
        self._did(part)
        return True

    def _check_undone(self, error: RefusedError) -> None:
        """Nothing else can be tried in a transaction of which no part can be undone."""
        kind = self._target.kind
        if not kind.can.savepoints:
            raise OperatorError(
                f"the target refuses a batch: {error.shown}; a {kind.title} target cannot undo a part of it", hint=MEND
            ) from error

    def _one_by_one(self, task: Task, number: int) -> None:
        walked = transactions(task, self._fs)[number]
        mark = self._target.mark() if walked.ends and self._target.kind.can.savepoints else None
        place = (mark, len(self.done), self._judge.mark()) if walked.ends else None
        late = self._late if self._late is not None and not (walked.ends and walked.csn) else None
        for change in self._changes(task, number):
            self._one(change, late)
        if late and walked.ends:
            self._settle(late)
        elif late:
            self._together(late)
        if place is None:
            return
        try:
            self._target.check_commit()
        except RefusedError as error:
            self._check_undone(error)
            self._target.undo(place[0])
            del self.done[place[1] :]
            self._judge.undo(place[2])
            self._judge.refused_whole(task, walked.csn, error, lambda: self._changes(task, number))

    def _settle(self, late: Late) -> None:
        """What waits has to be applied now, or is judged."""
        if not self._together(late):
            waited = [change for _, change in late.parts]
            late.clear()
            for change in waited:
                self._one(change)

    def _together(self, late: Late) -> bool:
        """Apply what waits; False if something is still in its way."""
        try:
            steps = late.together()
            if steps is None:
                return False
            self._target.apply(steps, rewrite=True)
        except RefusedError:
            return False
        for part, _ in late.parts:
            self._did(part)
        late.clear()
        return True

    def _one(self, change: Change, late: Late | None = None) -> None:
        """`late`: where it may wait."""
        if late and late.holds_back(change.part):
            if not late.is_full:
                late.add(change.part, change)
                return
            self._settle(late)
        try:
            self._try(change)
        except RefusedError as error:
            if change.part.error is None:
                self._check_undone(error)
            if late is not None and not isinstance(error, ConflictError) and late.may_wait(change.part, error):
                late.add(change.part, change)
                return
            if isinstance(error, ConflictError):
                self._judge.unsettled(change, error.conflict)
            self._judge.refused(change, error, lambda: self._try(change))
            return
        for part in late.behind(change.part) if late else ():
            self._did(part)

    def _try(self, change: Change) -> None:
        if change.part.error is not None:  # it could not be mapped: no target was asked
            raise change.part.error
        resolved = apply_change(self._target, change.part)
        if resolved is None or resolved.applied:
            self._did(change.part)
        if resolved is not None:
            self._judge.settled(change, resolved.conflict, applied=resolved.applied, discard=resolved.discard)

    def _changes(self, task: Task, number: int) -> Iterator[Change]:
        for spot, part in run_each(task, number, self._fs, self._evaluated):
            yield Change(task, spot, part)
