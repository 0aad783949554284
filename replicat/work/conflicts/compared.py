"""COMPARECOLS over a whole batch: what each key's row must look like in the target before the batch changes it.

Rule: only the first change of a key says so; what the later ones expect is what the earlier ones made. So the usual
case, no conflict, is checked by one join a table and operation. Where the join finds fewer rows than it should, the
call is refused, and the ladder finds the one change (conflicts/deciding.py decides what becomes of it).
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from replicat.model.plan import Conflict, TablePlan
from replicat.model.target import Compare
from replicat.work.conflicts.deciding import DELETE, UPDATE, compared, lacking, no_before
from replicat.work.net.compact import Net
from replicat.work.net.overlay import Overlay
from replicat.work.net.rows import picker
from trails.record import MISSING, Image


class Compared:
    """A table's changes on their way to its net effect."""

    def __init__(self, plan: TablePlan, net: Net | Overlay) -> None:
        assert plan.conflict is not None
        self.net = net
        self._plan = plan
        self._conflict: Conflict = plan.conflict
        self._pick = picker(plan)
        self._key = itemgetter(*plan.key)
        self._met: set[Any] = set()
        self._first: dict[str, list[Image]] = {UPDATE: [], DELETE: []}

    def __bool__(self) -> bool:
        return bool(self.net)

    def insert(self, row: Image) -> None:
        """A new row: its key must be free, which is checked for every table."""
        self._met.add(self._key(row))
        self.net.insert(row)

    def update(self, after: Image, before: Image | None, *, may: bool = False) -> None:
        """The row must be as it was before; with `may` it need not be there, and nothing is compared."""
        if may:
            assert isinstance(self.net, Overlay)
            self._met.update((self._key(after), self._key(after if before is None else before)))
            self.net.update(after, before, may=True)
            return
        self._meet(UPDATE, before, after)
        self._met.add(self._key(after))
        self.net.update(after, before)

    def delete(self, before: Image, *, may: bool = False) -> None:
        """The row must be as it was before; `may` as for update()."""
        if may:
            assert isinstance(self.net, Overlay)
            self._met.add(self._key(before))
            self.net.delete(before, may=True)
            return
        self._meet(DELETE, before, before)
        self.net.delete(before)

    def upsert(self, row: Image) -> None:
        """Nothing is expected of the row before."""
        assert isinstance(self.net, Overlay)
        self._met.add(self._key(row))
        self.net.upsert(row)

    def remove(self, before: Image) -> None:
        """Nothing is expected of the row before."""
        assert isinstance(self.net, Overlay)
        self._met.add(self._key(before))
        self.net.remove(before)

    def compares(self) -> tuple[Compare, ...]:
        """What the target has to check before it writes."""
        key = [self._plan.layout.columns.index(name) for name in self._plan.layout.key]
        found = []
        for op, rows in self._first.items():
            if rows:
                columns = compared(self._conflict, op)
                given, _ = self._plan.layout.blob([row[i] for i in (*key, *columns)] for row in rows)
                found.append(Compare(columns, given))
        return tuple(found)

    def _meet(self, op: str, before: Image | None, row: Image) -> None:
        if not compared(self._conflict, op):
            return
        picked = None if before is None else self._pick(before)
        if column := lacking(self._conflict, self._plan.layout, op, picked):
            raise no_before(self._plan.source, column, op)
        assert before is not None
        whole = [old if old is not MISSING else new for old, new in zip(before, row, strict=True)]
        key = self._key(whole)
        if key not in self._met:
            self._met.add(key)
            self._first[op].append(self._pick(whole))
