"""ZERODATE NULL: dates that no calendar has, and some sources have, become NULL on their way to the target.

Rule: a zero or partial date (`0000-00-00`, `2024-00-15`) and the year 0 become NULL, and each is counted. An impossible
day (`2024-02-31`) does not, as there somebody meant a day. Columns of the key never do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trails.record import Image, Value


def is_zero(date: Value) -> bool:
    """Whether a date's text, or a moment's, has a year, month or day of zero."""
    return isinstance(date, str) and (date[:4] == "0000" or date[5:7] == "00" or date[8:10] == "00")


class ZeroDates:
    """Passes changes on to a worker, without zero dates in some columns. `seen`: counts them, in its only item."""

    def __init__(self, columns: Sequence[int], worker: Any, seen: list[int]) -> None:
        self._columns = columns
        self._worker = worker
        self._seen = seen

    def insert(self, row: Image) -> None:
        """A new row."""
        self._worker.insert(self._without(row, count=True))

    def update(self, after: Image, before: Image | None, **may: bool) -> None:
        """A row as it became."""
        old = None if before is None else self._without(before, count=False)
        self._worker.update(self._without(after, count=True), old, **may)

    def delete(self, before: Image, **may: bool) -> None:
        """A row that is gone."""
        self._worker.delete(self._without(before, count=False), **may)

    def upsert(self, row: Image) -> None:
        """A row that may be there."""
        self._worker.upsert(self._without(row, count=True))

    def _without(self, row: Image, *, count: bool) -> Image:
        zeros = [i for i in self._columns if is_zero(row[i])]
        if not zeros:
            return row
        if count:
            self._seen[0] += len(zeros)
        made = list(row)
        for i in zeros:
            made[i] = None
        return made
