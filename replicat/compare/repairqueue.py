"""The rows of a table that a REPAIR has still to write, in an order in which they are likely to be taken.

    moved rows first, then those to delete, then the others: so a key, or a unique value, is free when it is needed
    what the target refuses comes once more behind the others, as long as some of them were written meanwhile

Rule: a batch that was lost (a lock that was not given, the connection) is tried again from one row on, and each batch
that is committed makes the next one larger. One row that is lost is given up, so it keeps no other back.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation

from replicat.compare.pairing import Wish
from replicat.compare.ranges import Key
from replicat.compare.rowrepair import KEPT, REPAIRED, Outcome, RowJob
from trails.record import Value

TURN_ROWS = 100


class RepairQueue:
    """Takes what became of rows into `outcomes`; those that a change may be about get none, and are done for now."""

    def __init__(self, jobs: Iterable[RowJob], outcomes: dict[Key, Outcome]) -> None:
        self._jobs = list(jobs)
        self._outcomes = outcomes
        self._refused: dict[RowJob, str] = {}
        self._written = False  # something, since the refused ones were tried
        self._limit = TURN_ROWS

    def batch(self) -> list[RowJob]:
        """What is to be tried next; nothing when all is done."""
        if not self._jobs and self._refused and self._written:
            self._jobs, self._refused, self._written = list(self._refused), {}, False
        if not self._jobs:
            for job, why in self._refused.items():
                self._note(job, (KEPT, why))
        return self._jobs[: self._limit]

    def done(self, done: Sequence[tuple[RowJob, Outcome | None]]) -> None:
        """These were the first ones, and are committed."""
        self._jobs = self._jobs[len(done) :]
        self._limit = min(TURN_ROWS, 2 * self._limit)
        for job, outcome in done:
            if outcome is not None and outcome[0] == KEPT:
                self._refused[job] = outcome[1]
            elif outcome is not None:
                self._note(job, outcome)
                self._written = self._written or outcome[0] == REPAIRED

    def lost(self, batch: Sequence[RowJob], why: str) -> None:
        """Nothing of this batch is known to be there."""
        self._limit = 1
        if len(batch) == 1:
            self._jobs = self._jobs[1:]
            self._note(batch[0], (KEPT, why))

    def _note(self, job: RowJob, outcome: Outcome) -> None:
        for key in job.keys:
            self._outcomes[key] = outcome


def jobs_of(rows: Mapping[Key, tuple[Value, ...] | None], wish: Wish) -> list[RowJob]:
    """One for each of the source's rows; `rows`: None where it has none with that key."""
    moved = _moved(rows) if wish.plan is not None and wish.plan.layout.soft_key and wish.plan.layout.extras else {}
    bases = set(moved.values())
    jobs = [RowJob(key, row, moved.get(key)) for key, row in rows.items() if key not in bases]
    return sorted(jobs, key=lambda job: 0 if job.base is not None else 1 if job.row is None else 2)


def _moved(rows: Mapping[Key, tuple[Value, ...] | None]) -> dict[Key, Key]:
    """Keys of rows, each with one that the source lacks and that may be the same row's for the target.

    The target alone says what it takes for equal; here it is enough that such keys are alike.
    """
    alike: dict[Key, tuple[list[Key], list[Key]]] = {}
    for key, row in rows.items():
        alike.setdefault(_form(key), ([], []))[row is None].append(key)
    return {there[0]: gone[0] for there, gone in alike.values() if len(there) == len(gone) == 1}


def _form(key: Key) -> Key:
    """A key without what collations and numeric types may pass over: case, accents, blanks at the end, scale."""
    return tuple(_plain(value) if isinstance(value, str) else value for value in key)


def _plain(value: str) -> str:
    try:
        return str(Decimal(value).normalize())
    except InvalidOperation:
        letters = (one for one in unicodedata.normalize("NFKD", value) if not unicodedata.combining(one))
        return "".join(letters).casefold().rstrip()
