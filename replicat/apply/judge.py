"""What becomes of what the target refuses: REPERROR obeyed, inside the open transaction.

    action            the change                                  its transaction
    ABEND             ends the process                            nothing from it on is committed
    DISCARD           to the discard file                         goes on
    IGNORE            left out, counted and told                  goes on
    EXCEPTION         a row of the exceptions table               goes on
    RETRYOP           tried again after a pause, then ABEND       goes on; after a long pause the batch from its begin
    TRANSABORT        -                                           the batch from its begin, after a pause; then ABEND
    TRANSDISCARD      -                                           the batch from its begin, all of it to the file
    TRANSEXCEPTION    -                                           the batch from its begin, all of it to the tables

Rule: what begins the batch again (BeginAgainError) leaves nothing in the target. Whoever dies in between finds the same
out again: the verdict follows from the change, not from anything that was kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from replicat.apply.discard import Discards, Verdict
from replicat.apply.discardrecord import Reason
from replicat.apply.exceptions import Exceptions, LastError
from replicat.apply.ladder import MEND, AbendError, Change, Note, abend
from replicat.batches.batch import Batch
from replicat.model.again import BeginAgainError
from replicat.model.reperror import (
    ABEND,
    DEFAULT2,
    DISCARD,
    EXCEPTION,
    IGNORE,
    RETRYOP,
    TRANSABORT,
    TRANSDISCARD,
    TRANSEXCEPTION,
    ErrorRule,
    rule_for,
)
from replicat.model.target import RefusedError, UnmappedError
from replicat.work.decode import Spot, Task
from trails.runtime.report.stats import (
    CDR_CONFLICTS,
    CDR_FAILED,
    CDR_SUCCEEDED,
    DISCARDS,
    EXCEPTIONS,
    IGNORED,
    cdr_conflicts,
)

_COUNTER = {DISCARD: DISCARDS, IGNORE: IGNORED, EXCEPTION: EXCEPTIONS}
PATIENCE_MS = 5000
"""RETRYOP waits that long with the transaction open; longer, and nobody could stop the process."""
_SINGLE = {TRANSDISCARD: DISCARD, TRANSEXCEPTION: EXCEPTION}


@dataclasses.dataclass(frozen=True, slots=True)
class Judge:
    """Who says what becomes of what is refused in one batch, as ladder.Judging asks it."""

    _discards: Discards
    _exceptions: Exceptions
    _batch: Batch
    _note: Note

    # Condemned transactions

    def is_condemned(self, task: Task, csn: str) -> bool:
        return self._csn(task, csn) in self._discards.verdicts

    def give_up(self, change: Change) -> None:
        spot = self._placed(change)
        verdict = self._discards.verdicts[spot.csn]
        self._skip(_SINGLE.get(verdict.action, verdict.action), change, spot, _of(verdict, spot), verdict.action)

    # Refusals

    def refused(self, change: Change, error: RefusedError, again: Callable[[], None]) -> None:
        spot = self._placed(change)
        rule = ErrorRule("", ABEND) if isinstance(error, UnmappedError) else self._rule(spot, error)
        if rule.action == RETRYOP:
            self._retry(spot, error, rule, again)
        elif rule.action in _SINGLE or rule.action == TRANSABORT:
            self._transaction(spot, error, rule)
        elif rule.action == ABEND:
            raise abend(error, spot) from error
        else:
            self._skip(rule.action, change, spot, error)

    def refused_whole(self, task: Task, csn: str, error: RefusedError, changes: Callable[[], Iterator[Change]]) -> None:
        """The smallest thing that can be given up is the transaction."""
        found = list(_with_first(changes(), error.table))
        whole = bool(csn)
        csn = self._csn(task, csn)
        spot = dataclasses.replace(self._placed(found[0]), csn=csn) if found else None
        rule = self._rule(spot, error) if spot is not None else ErrorRule("", ABEND)
        if spot is None or rule.action == ABEND:
            named = spot is not None and spot.plan is not None and spot.target == error.table
            raise AbendError(
                f"the target refuses transaction CSN {csn} as a whole, at its end: {error.shown}", csn, hint=MEND,
                pair=(spot.plan.source, spot.plan.target) if named and spot and spot.plan else None,
            ) from error  # fmt: skip
        if rule.action in (RETRYOP, TRANSABORT):
            self._transaction(spot, error, dataclasses.replace(rule, action=TRANSABORT))
        if whole:
            verdict = Verdict(rule.action, -1, spot.table, error)
            for change in changes():
                one = self._placed(change)
                self._skip(_SINGLE.get(rule.action, rule.action), change, one, _of(verdict, one), rule.action)
        else:  # a part of it was applied before this task
            self._condemn(csn, Verdict(rule.action, -1, spot.table, error))

    def _transaction(self, spot: Spot, error: RefusedError, rule: ErrorRule) -> None:
        if rule.action == TRANSABORT:
            tried = self._discards.tries[spot.csn]
            if tried >= rule.retries:
                raise abend(error, spot, f" (its transaction was tried {tried + 1} times)", MEND) from error
            self._discards.tries[spot.csn] += 1
            raise BeginAgainError(
                f"{spot.table}: the target refuses change {spot.index} of transaction CSN {spot.csn} (SQLSTATE "
                f"{error.sqlstate or '(none)'}): rolled back, try {tried + 2} of {rule.retries + 1} in "
                f"{rule.delay_ms / 1000:g} seconds",
                rule.delay_ms / 1000,
            )
        self._condemn(spot.csn, Verdict(rule.action, spot.index, spot.table, error))

    def _condemn(self, csn: str, verdict: Verdict) -> None:
        self._discards.verdicts[csn] = verdict
        raise BeginAgainError(
            f"{verdict.table}: the target refuses a change of transaction CSN {csn} (SQLSTATE "
            f"{verdict.error.sqlstate or '(none)'}): rolled back; {verdict.action} takes all of it"
        )

    def _retry(self, spot: Spot, error: RefusedError, rule: ErrorRule, again: Callable[[], None]) -> None:
        tries, change = self._discards.tries, f"{spot.csn} {spot.index} {spot.target}"
        waited = 0
        while tries[change] < rule.retries:
            tries[change] += 1
            waited += rule.delay_ms
            if waited > PATIENCE_MS:
                raise BeginAgainError(
                    f"{spot.table}: the target refuses change {spot.index} of CSN {spot.csn} (SQLSTATE "
                    f"{error.sqlstate or '(none)'}): rolled back, retry {tries[change]} of {rule.retries} in "
                    f"{rule.delay_ms / 1000:g} seconds (RETRYOP)",
                    rule.delay_ms / 1000,
                )
            self._discards.clock.sleep(rule.delay_ms / 1000)
            try:
                again()
            except RefusedError as later:
                error = later
                continue
            self._note(
                f"{spot.table}: applied change {spot.index} of CSN {spot.csn} at retry {tries.pop(change)} (RETRYOP)"
            )
            return
        raise abend(error, spot, f" (tried {rule.retries + 1} times)", MEND) from error

    def _rule(self, spot: Spot, error: RefusedError) -> ErrorRule:
        rules = spot.plan.error_rules if spot.plan is not None else self._discards.rules
        exceptions = spot.plan is not None and bool(spot.plan.exceptions)
        return rule_for(rules, error.sqlstate, error.code, exceptions=exceptions)

    # Giving up one change

    def _skip(self, action: str, change: Change, spot: Spot, error: RefusedError, named: str = "") -> None:
        """`named`: the action that the parameter file says, where it is about the whole transaction."""
        if action == EXCEPTION and (spot.plan is None or not spot.plan.exceptions or spot.op == "truncate"):
            action = self._second(spot, error)
        label = error.sqlstate or "(none)"
        if action == DISCARD:
            failed = change.part.error
            unmade = f"no row of the target could be made of it: {failed.shown}" if failed is not None else ""
            reason = Reason(named or DISCARD, f"error {error.code or label}", error.message, unmade, bool(named))
            self._discards.write(spot, reason, change.task.trail_id, change.part.mapped)
        elif action == EXCEPTION:
            self._exceptions.insert(spot, LastError.of(error, spot.op, mapping=change.part.error is not None))
        self._give_up(change, _COUNTER[action], spot, f"SQLSTATE {label}")

    def _second(self, spot: Spot, error: RefusedError) -> str:
        """A change of a table without an exceptions MAP, in a transaction that goes to exceptions tables."""
        rules = spot.plan.error_rules if spot.plan is not None else self._discards.rules
        second = next((_SINGLE.get(rule.action, rule.action) for rule in rules if rule.code == DEFAULT2), ABEND)
        if second in (DISCARD, IGNORE):
            return second
        raise abend(
            error,
            spot,
            f"; the MAP of {spot.table} has no exceptions table for {TRANSEXCEPTION}",
            f"Give it MAPEXCEPTION or REPERROR (DEFAULT2, {DISCARD}), then START",
        ) from error

    def _give_up(self, change: Change, counter: str, spot: Spot, label: str) -> None:
        numbers = change.part.counts or {(spot.table, spot.target): [1, 0, 0, 0]}
        for (source, target), row in numbers.items():
            if number := sum(row):
                self._discards.count(source, target, counter, number)
        self._discards.because(counter, spot.table, label)

    # Conflicts

    def settled(self, change: Change, conflict: str, *, applied: bool, discard: bool) -> None:
        spot = self._placed(change)
        self._conflict(spot, conflict, CDR_SUCCEEDED)
        label = f"conflict {conflict}"
        if discard:
            reason = Reason(DISCARD, label, f"{spot.target}: the target's row is not as the {spot.op} expects it")
            self._discards.write(spot, reason, change.task.trail_id, change.part.mapped)
        if discard and applied:  # some columns were
            self._discards.count(spot.table, spot.target, DISCARDS)
            self._discards.because(DISCARDS, spot.table, label)
        elif not applied:
            self._give_up(change, DISCARDS if discard else IGNORED, spot, label)

    def unsettled(self, change: Change, conflict: str) -> None:
        self._conflict(self._placed(change), conflict, CDR_FAILED)

    def _conflict(self, spot: Spot, conflict: str, outcome: str) -> None:
        for counter in (CDR_CONFLICTS, outcome, cdr_conflicts(conflict)):
            self._discards.count(spot.table, spot.target, counter)

    # Places

    def mark(self) -> Any:
        return self._discards.mark()

    def undo(self, mark: Any) -> None:
        self._discards.undo(mark)

    def _csn(self, task: Task, csn: str) -> str:
        return csn or self._batch.begun_before(task.blocks[0])[0]

    def _placed(self, change: Change) -> Spot:
        """The change's place in its transaction, also where that began before the task."""
        spot = change.spot
        if spot.csn:
            return spot
        csn, done = self._batch.begun_before(change.task.blocks[0])
        return dataclasses.replace(spot, csn=csn, index=spot.index + done)


def _of(verdict: Verdict, spot: Spot) -> RefusedError:
    """What is said of a change of a condemned transaction; only one of them is at fault."""
    error = verdict.error
    if verdict.index == spot.index and verdict.table == spot.table:
        return error
    at = f"change {verdict.index} of its transaction" if verdict.index >= 0 else "its transaction, at its end,"
    shown = f"{at} was refused: {error.shown}"
    return RefusedError(error.table, f"{at} was refused: {error.message}", error.sqlstate, error.code, shown=shown)


def _with_first(changes: Iterator[Change], table: str) -> Iterator[Change]:
    """The change whose MAP decides over its whole transaction: of the table that the target named, or the first."""
    first: Change | None = None
    for change in changes:
        if change.spot.target == table:
            yield change
            return
        first = first or change
    if first is not None:
        yield first
