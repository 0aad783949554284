"""IGNOREINSERTS, IGNOREUPDATES and IGNOREDELETES: changes that a MAP does not take, whatever they are.

Rule: they are counted as filtered, and nobody behind sees them: no filter is asked, nothing is mapped or kept.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from trails.record import DELETE, INSERT, UPDATE, Image


class Ignoring:
    """Passes the other changes on to a worker. `left_out`: counts inserts, updates, deletes."""

    def __init__(self, ignored: Container[int], worker: Any, left_out: list[int]) -> None:
        self._inserts, self._updates, self._deletes = (op in ignored for op in (INSERT, UPDATE, DELETE))
        self._worker = worker
        self._left_out = left_out

    def insert(self, row: Image) -> None:
        """A new row."""
        if self._inserts:
            self._left_out[0] += 1
        else:
            self._worker.insert(row)

    def update(self, after: Image, before: Image | None) -> None:
        """A row as it became."""
        if self._updates:
            self._left_out[1] += 1
        else:
            self._worker.update(after, before)

    def delete(self, before: Image) -> None:
        """A row that is gone."""
        if self._deletes:
            self._left_out[2] += 1
        else:
            self._worker.delete(before)
