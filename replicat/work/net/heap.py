"""The net effect of changes of a table without a key. Pure, as net/compact.py.

Rule: such a table is a heap of rows, equal ones interchangeable, each change of exactly one row that is equal in every
column. A change of a row that this very heap has brought or changed is folded into it, so what is left are rows of the
target to delete, rows of the target to update (each once, from what it was to what it is now), and new rows.
"""

from __future__ import annotations

from replicat.work.net.compact import merge
from trails.record import Image, Value

Line = tuple[Value, ...]


class Heap:
    """What a run of changes comes to for one table without a key."""

    __slots__ = ("_new", "_run", "deletes", "updates")

    def __init__(self) -> None:
        self._run: list[Image] = []  # new rows that nothing has looked for yet
        self._new: dict[Line, int] = {}  # new rows, how many of each
        self.deletes: list[Line] = []
        self.updates: dict[Line, list[Line]] = {}  # what rows are now -> what they were

    def __bool__(self) -> bool:
        return bool(self._run or self._new or self.deletes or self.updates)

    def insert(self, row: Image) -> None:
        """A new row."""
        self._run.append(row)

    def update(self, before: Image, after: Image) -> None:
        """One row equal to `before`, which is whole, as it became."""
        was, now = tuple(before), tuple(merge(before, after))
        if self._take(was):
            self._new[now] = self._new.get(now, 0) + 1
        else:
            origin = self._origin(was)
            self.updates.setdefault(now, []).append(origin)

    def delete(self, before: Image) -> None:
        """One row equal to `before` is gone."""
        was = tuple(before)
        if not self._take(was):
            self.deletes.append(self._origin(was))

    def inserts(self) -> list[Image]:
        """The new rows."""
        return [row for row, number in self._new.items() for _ in range(number)] + self._run

    def _take(self, was: Line) -> bool:
        """Take a new row equal to this out of the heap, if there is one."""
        for row in self._run:
            line = tuple(row)
            self._new[line] = self._new.get(line, 0) + 1
        self._run = []
        number = self._new.get(was, 0)
        if number > 1:
            self._new[was] = number - 1
        elif number:
            del self._new[was]
        return number > 0

    def _origin(self, was: Line) -> Line:
        """What the target's row was before it became this."""
        found = self.updates.get(was)
        if not found:
            return was
        origin = found.pop()
        if not found:
            del self.updates[was]
        return origin
