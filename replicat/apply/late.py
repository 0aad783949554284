"""Changes that wait for the end of their transaction, where it is larger than a job and its jobs are applied in turn.

A constraint that the source checks at the end of a transaction lets two of its rows hold one unique value for a while.
A target that checks at once takes them only together, and a job may hold one of them without the other. So of such a
transaction a change that is refused for another row's sake waits, and with it all later ones of the same row. What
waits is tried behind each task as one net effect, by DELETE and INSERT; what the end does not permit is judged.

Rule: changes of one row stay in their order; of different rows only a constraint ever saw an order, and it is the
target's own, which has the last word. Where two MAPs know the rows of one table by other keys, all of them count as
one row. What waits is bounded (MOST, MOST_BYTES): beyond, the next refusal is judged at once, and a change that has to
wait for its row ends the waiting of all. Nothing waits for what is behind a change of shape, or a border of
MAXTRANSOPS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from replicat.apply.resolving import key_of
from replicat.model.plan import TablePlan
from replicat.model.target import Bag, Blob, RefusedError, Step, Truncate, Work
from replicat.work.net.part import MappedChange, Part
from replicat.work.workers import Worker, result_of, worker_of
from trails.record import MISSING, TableId, Value

MOST = 10_000
MOST_BYTES = 64 << 20
FOR_ANOTHER = ("23505", "23P01")
"""SQLSTATEs of a refusal that another row's change may mend: unique and exclusion constraints."""
FOR_A_PARENT = ("23503", "23001")
"""So may those of a foreign key, once some row waits."""

Key = tuple[TableId, tuple[Value, ...]]


@dataclass(slots=True)
class Late:
    """What waits in the open batch, of the one transaction that goes on from job to job; parts, in source order."""

    parts: list[tuple[Part, Any]] = field(default_factory=list)  # and what else their owner keeps with them
    _keys: set[Key] = field(default_factory=set)
    _named: dict[TableId, tuple[str, ...] | None] = field(default_factory=dict)  # the key's columns; None: several
    _size: int = 0

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def is_full(self) -> bool:
        """Whether nothing more may wait."""
        return len(self.parts) >= MOST or self._size >= MOST_BYTES

    def holds_back(self, part: Part) -> bool:
        """Whether a change of the same row waits, so that this one must."""
        return any(
            self._named[one.plan.layout.place] != one.plan.layout.key or not self._keys.isdisjoint(_keys_of(one))
            for one in part.mapped
            if one.plan.layout.place in self._named
        )

    def is_apart(self, part: Part) -> bool:
        """Whether the changes of a part have nothing to do with what waits."""
        return not self.holds_back(part) and not _emptied(part)

    def may_wait(self, part: Part, error: RefusedError) -> bool:
        """Whether another change of the transaction may be what this one needs."""
        if self.is_full or not part.mapped or any(_is_nameless(one) for one in part.mapped):
            return False
        return error.sqlstate in FOR_ANOTHER or (error.sqlstate in FOR_A_PARENT and bool(self.parts))

    def add(self, part: Part, owner: Any) -> None:
        """Have it wait."""
        self.parts.append((part, owner))
        self._size += sum(len(blob.data) for step in part.steps for blob in _blobs(step))
        for one in part.mapped:
            key = one.plan.layout.key
            if self._named.setdefault(one.plan.layout.place, key) != key:
                self._named[one.plan.layout.place] = None
            self._keys.update(_keys_of(one))

    def behind(self, part: Part) -> list[Part]:
        """What needs wait no longer behind this one, which was applied: changes of rows that its TRUNCATE took."""
        if not (gone := _emptied(part)):
            return []
        waited = [
            (gone.issuperset(one.plan.layout.place for one in each.mapped), each, owner) for each, owner in self.parts
        ]
        self.clear()
        for is_gone, each, owner in waited:
            if not is_gone:
                self.add(each, owner)
        return [each for is_gone, each, _ in waited if is_gone]

    def clear(self) -> None:
        """Nothing waits any more."""
        self.parts.clear()
        self._keys.clear()
        self._named.clear()
        self._size = 0

    def together(self) -> tuple[Step, ...] | None:
        """All that waits, as one net effect; None where a table's rows came in several shapes."""
        workers: dict[TableId, tuple[TablePlan, Worker]] = {}
        mapped = [one for part, _ in self.parts for one in part.mapped]
        shapes = {(one.plan.layout.place, one.plan.layout, one.plan.conflict) for one in mapped}
        if len(shapes) > len({place for place, *_ in shapes}):
            return None
        lenient = {one.plan.layout.place for one in mapped if _is_loose(one) or one.plan.lenient}
        for one in mapped:
            if one.plan.layout.place not in workers:
                plan = _own(one.plan)
                workers[one.plan.layout.place] = plan, worker_of(plan, lenient=one.plan.layout.place in lenient)
            _give(workers[one.plan.layout.place][1], one)
        results = [result_of(plan, worker) for plan, worker in workers.values()]
        return (Work(rows=tuple(result for result in results if not isinstance(result, Bag))),)


def _emptied(part: Part) -> set[TableId]:
    return {place for step in part.steps if isinstance(step, Truncate) for place in step.tables}


def _is_loose(one: MappedChange) -> bool:
    """Whether its row may be there or not."""
    return one.op in ("upsert", "remove")


def _is_nameless(one: MappedChange) -> bool:
    """Whether nobody knows which other changes are of its row: it has no key, or two keys may be one for the target."""
    layout = one.plan.layout
    return not layout.key or (layout.soft_key and (_is_loose(one) or one.plan.lenient))


def _own(plan: TablePlan) -> TablePlan:
    """The plan of rows that are mapped already."""
    key = tuple(plan.layout.columns.index(name) for name in plan.layout.key)
    return replace(plan, key=key, pick=None, mapping=None, integer_key=False, columns=())


def _blobs(step: Step) -> Iterator[Blob]:
    if isinstance(step, Work):
        for rows in step.rows:
            yield from rows.blobs()
        for bag in step.bags:
            yield from bag.blobs()


def _keys_of(one: MappedChange) -> Iterator[Key]:
    layout = one.plan.layout
    now = None if one.after is None else key_of(layout, one.after)
    if now is not None:
        yield one.plan.layout.place, now
    if one.before is not None:
        was = key_of(layout, one.before)
        yield (
            one.plan.layout.place,
            tuple(new if old is MISSING else old for old, new in zip(was, now or was, strict=True)),
        )


def _give(worker: Any, one: MappedChange) -> None:
    may = {"may": True} if _is_loose(one) else {}
    if one.op == "insert":
        worker.insert(one.after)
    elif one.op in ("update", "upsert"):
        worker.update(one.after, one.before, **may)
    else:
        worker.delete(one.before, **may)
