"""Who takes the changes of one table: the net effect that its plan calls for, and what comes of it.

    Net       a table with a key, strict                                  net/compact.py
    Overlay   a table with a key, where a row may be there or not         net/overlay.py
    Keyless   a table without a key                                       net/heap.py
    Compared  around a Net or Overlay of a table with COMPARECOLS         conflicts/compared.py

All know insert(row), update(after, before or None), delete(before). An Overlay also knows upsert(row), remove(before)
and update(after, before, may=True), for changes whose row may be missing without that being a collision.
"""

from __future__ import annotations

from dataclasses import replace

from replicat.model.plan import TablePlan
from replicat.model.target import Bag, Rows, UnmappedError
from replicat.work.conflicts.compared import Compared
from replicat.work.net.compact import Net
from replicat.work.net.heap import Heap
from replicat.work.net.overlay import Overlay
from replicat.work.net.rows import heap_bag, net_rows, overlay_rows, picker
from trails.record import MISSING, Image


class Keyless:
    """Changes of a table without a key: images in, a Bag out."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan
        self._pick = picker(plan)
        self.heap = Heap()

    def __bool__(self) -> bool:
        return bool(self.heap)

    def insert(self, row: Image) -> None:
        """A new row."""
        self.heap.insert(self._pick(row))

    def update(self, after: Image, before: Image | None) -> None:
        """A row as it became."""
        self.heap.update(self._known(before), self._pick(after))

    def delete(self, before: Image) -> None:
        """A row that is gone."""
        self.heap.delete(self._known(before))

    def _known(self, before: Image | None) -> Image:
        picked = None if before is None else self._pick(before)
        if picked is None or MISSING in picked:
            raise UnmappedError(
                self._plan.source,
                "a change of a table without a key came without the whole row as it was",
                hint="ADD TRANDATA for this table at the source (REPLICA IDENTITY FULL)",
            )
        return picked


Worker = Net | Overlay | Keyless | Compared


def worker_of(plan: TablePlan, *, lenient: bool = False) -> Worker:
    """An empty worker for a table's changes. `lenient`: some plan of its target table is."""
    if not plan.key:
        return Keyless(plan)
    net = Overlay(plan.key, tolerant=plan.layout.collisions) if lenient or plan.lenient else Net(plan.key)
    return net if plan.conflict is None else Compared(plan, net)


def result_of(plan: TablePlan, worker: Worker) -> Rows | Bag:
    """What the changes came to."""
    if isinstance(worker, Keyless):
        return heap_bag(plan, worker.heap)
    net = worker.net if isinstance(worker, Compared) else worker
    rows = overlay_rows(plan, net) if isinstance(net, Overlay) else net_rows(plan, net)
    return replace(rows, compares=worker.compares()) if isinstance(worker, Compared) else rows
