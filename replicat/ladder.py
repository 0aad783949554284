"""What to do when the target refuses rows: four ways to apply the same task, each slower and surer than the one before.

    1  net effect: deletes, upserts, new rows                       what nearly always works
    2  net effect by DELETE and INSERT                              two rows swap a unique value (CW-25)
    3  halves, cut at transaction borders, each by 1 and 2          narrows down what the target refuses
    4  change by change in source order                             what still fails is told with its place

Everything happens in the open target transaction; the state between two transactions is one that the source had. What
still fails at 4 ends the process with nothing of the batch committed, unless `refused` (replicat/discard.py) takes it.
"""

from __future__ import annotations

from collections.abc import Callable

from replicat.decode import Spot, Task, run_each, run_some, transactions
from replicat.part import Part
from replicat.target import RefusedError, Target
from trails.errors import OperatorError
from trails.fs import Fs

Note = Callable[[str], None]
Refused = Callable[[Task, Spot, RefusedError, Part], None]
"""What becomes of a change that is refused even by itself: raises, or returns and the change is skipped."""


def abend(_task: Task, spot: Spot, error: RefusedError, _part: Part) -> None:
    """End the process; the message names the change."""
    raise OperatorError(
        f"{spot.table}: the target refuses the {spot.op} of row ({spot.key}), position {spot.position}, "
        f"CSN {spot.csn or '?'}, change {spot.index} of its transaction: {error}",
        hint="Nothing of the batch was committed. Mend the target's row or constraint, then START again",
    ) from error


def apply_task(
    target: Target, task: Task, part: Part, note: Note, fs: Fs | None = None, refused: Refused = abend
) -> None:
    """Apply a task's part; OperatorError names the change that the target refuses even by itself."""
    try:
        target.apply(part.steps)
        return
    except RefusedError as error:
        # No row's values here: this line comes with each such batch, and most of them then arrive.
        note(f"The target refused a batch as a whole (SQLSTATE {error.sqlstate}, {error.table}); trying other ways")
    if not _applied(target, part, rewrite=True):
        _halve(target, task, 0, len(transactions(task, fs)), fs, refused)


def _halve(target: Target, task: Task, low: int, high: int, fs: Fs | None, refused: Refused) -> None:
    if high - low <= 1:
        _one_by_one(target, task, low, fs, refused)
        return
    middle = (low + high) // 2
    for start, end in ((low, middle), (middle, high)):
        part = run_some(task, start, end, fs)
        if not (_applied(target, part) or _applied(target, part, rewrite=True)):
            _halve(target, task, start, end, fs, refused)


def _applied(target: Target, part: Part, *, rewrite: bool = False) -> bool:
    try:
        target.apply(part.steps, rewrite=rewrite)
    except RefusedError:
        return False
    return True


def _one_by_one(target: Target, task: Task, number: int, fs: Fs | None, refused: Refused) -> None:
    for spot, part in run_each(task, number, fs):
        try:
            target.apply(part.steps)
        except RefusedError as error:
            refused(task, spot, error, part)
