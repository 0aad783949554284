"""Changes of a batch in layers, where REPERROR gives up what is refused: every state that a source transaction left is
tried, also one that a later transaction of the batch replaced. What is given up then is the same whatever the batch.

    a row that an earlier transaction of the batch changed      one layer behind that change
    a table in which one row's change can refuse another's       each transaction a layer of its own; inserts share one
    (unique beside the key, exclusion, triggers, foreign keys)   where it is only for unique values, or a missing key
    any table beside one where anything may (ANY)                the same, also if its own rules give nothing up

Rule: layers are applied one after the other; inside one, a row is of one transaction. Where a layer is refused the
ladder parts the batch between transactions, and a transaction by itself has one layer: it is judged by its net effect.
So more layers than needed cost time, never another result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from replicat.model.plan import ANY, UNIQUE, TablePlan
from replicat.work.net.compact import known
from replicat.work.workers import Worker, worker_of
from trails.record import Image, TableId

_Last = tuple[int, int]  # layer, and the number of the transaction that was there last


@dataclass(slots=True)
class Turns:
    """Which transaction it is, and which layer the tables that depend on each other have come to."""

    number: int = 0
    changed: _Last = (-1, -1)  # of all tables with ANY
    freed: dict[TableId, _Last] = field(default_factory=dict)  # of a table with UNIQUE: updates and deletes
    taken: dict[TableId, _Last] = field(default_factory=dict)  # the same and inserts

    def clear(self) -> None:
        """Everything so far is in earlier steps."""
        self.changed = (-1, -1)
        self.freed.clear()
        self.taken.clear()

    def behind(self, last: _Last) -> int:
        """The first layer behind what another transaction did; that of our own."""
        layer, turn = last
        return layer if turn == self.number else layer + 1


class Layered:
    """Takes a table's changes and gives each to the worker of its layer. See replicat.work.workers."""

    def __init__(self, plan: TablePlan, turns: Turns, across: str, *, lenient: bool) -> None:
        """`across`: by what its changes can have others refused (plan.across); ANY: or it others', or others its."""
        self.layers: list[Worker] = []
        self._make: Callable[[], Worker] = lambda: worker_of(plan, lenient=lenient)
        self._place = plan.layout.schema, plan.layout.name
        self._across = across
        self._turns = turns
        self._last: dict[Hashable, _Last] = {}
        self._key: Any = itemgetter(*plan.key) if plan.key else None

    def __bool__(self) -> bool:
        return any(self.layers)

    def insert(self, row: Image) -> None:
        """A new row."""
        self._layer(row, None, new=True).insert(row)

    def update(self, after: Image, before: Image | None, **may: bool) -> None:
        """A row as it became."""
        self._layer(after, before).update(after, before, **may)

    def delete(self, before: Image, **may: bool) -> None:
        """A row that is gone."""
        self._layer(before, None).delete(before, **may)

    def upsert(self, row: Image) -> None:
        """A row that may be there or not."""
        worker: Any = self._layer(row, None)
        worker.upsert(row)

    def _layer(self, row: Image, before: Image | None, *, new: bool = False) -> Any:
        turns = self._turns
        keys = self._keys(row, before)
        at = max((turns.behind(self._last[key]) for key in keys if key in self._last), default=0)
        if self._across == ANY:
            at = max(at, turns.behind(turns.changed))
            turns.changed = at, turns.number
        elif self._across == UNIQUE:
            # Within a layer rows are deleted and changed before new ones come: an insert may follow those.
            layer, _ = turns.freed.get(self._place, (0, 0))
            at = max(at, layer if new else turns.behind(turns.taken.get(self._place, (-1, -1))))
            if not new:
                turns.freed[self._place] = at, turns.number
            self._take(at)
        for key in keys:
            self._last[key] = at, turns.number
        while len(self.layers) <= at:
            self.layers.append(self._make())
        return self.layers[at]

    def _take(self, at: int) -> None:
        """Remember who took unique values last: no transaction (-1) where several did in one layer."""
        taken, number = self._turns.taken, self._turns.number
        layer, turn = taken.get(self._place, (-1, -1))
        if at > layer:
            taken[self._place] = at, number
        elif at == layer and turn != number:
            taken[self._place] = at, -1

    def _keys(self, row: Image, before: Image | None) -> tuple[Hashable, ...]:
        if self._key is None:
            return ()
        key = self._key(row)
        return (key,) if before is None else (key, known(self._key(before), key))
