"""Records to steps: each table's changes go to a worker for each MAP, and come out as what a target applies.

    record -> [mapped: mapping/mapped.py] -> [kept one by one] -> Net, Overlay, Keyless: net/workers.py -> Work

Rule: order is kept where it matters: a truncate, or another shape of the same target table, closes the current Work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from replicat.mapping.mapped import Evaluations, MappedWorker, Mapper
from replicat.mapping.programs import Programs, programs_of
from replicat.mapping.roles import Facts, Failure, Result
from replicat.net.part import Mapped, Part
from replicat.net.rows import picker
from replicat.net.workers import Worker, is_lenient, result_of, worker_of
from replicat.plan import Plans, TablePlan
from replicat.target import Bag, Rows, Step, Truncate, UnmappedError, Work
from trails.errors import DamageError
from trails.position import Position
from trails.record import TRUNCATE_RESTART_IDENTITY, Image, Op

CHANGES = (Op.INSERT, Op.UPDATE, Op.DELETE)


class _Skip:
    """A table that no MAP wants."""

    def insert(self, _row: Image) -> None:
        return

    def update(self, _after: Image, _before: Image | None) -> None:
        return

    def delete(self, _before: Image) -> None:
        return


class _Keeper:
    """Passes changes on to a worker, and keeps each as its target table gets it."""

    def __init__(self, plan: TablePlan, worker: Any, kept: list[Mapped]) -> None:
        self._plan = plan
        # Mapped rows are in the layout's order already.
        self._pick = picker(plan)
        self._worker = worker
        self._kept = kept

    def insert(self, row: Image) -> None:
        self._worker.insert(row)
        self._keep("insert", None, row)

    def update(self, after: Image, before: Image | None, **may: bool) -> None:
        self._worker.update(after, before, **may)
        self._keep("upsert" if may else "update", before, after)

    def delete(self, before: Image, **may: bool) -> None:
        self._worker.delete(before, **may)
        self._keep("remove" if may else "delete", before, None)

    def upsert(self, row: Image) -> None:
        self._worker.upsert(row)
        self._keep("upsert", None, row)

    def _keep(self, op: str, before: Image | None, after: Image | None) -> None:
        rows = (None if image is None else self._pick(image) for image in (before, after))
        self._kept.append(Mapped(self._plan, op, *rows))


class _Fan:
    """A table that several MAPs take."""

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self.workers = workers

    def insert(self, row: Image) -> None:
        for worker in self.workers:
            worker.insert(row)

    def update(self, after: Image, before: Image | None) -> None:
        for worker in self.workers:
            worker.update(after, before)

    def delete(self, before: Image) -> None:
        for worker in self.workers:
            worker.delete(before)


_SKIP = _Skip()
_Worker = Worker | _Skip | _Keeper | MappedWorker | _Fan
_Plans = Sequence[tuple[TablePlan, ...]]


class Builder:
    """Gathers records into steps. A truncate, or another shape of the same target table, closes the current Work."""

    def __init__(
        self,
        plans: Plans,
        *,
        keep: bool = False,
        results: Iterator[Result | Failure] | None = None,
        facts: Facts | None = None,
    ) -> None:
        """`keep`: the part tells its changes one by one too; `results`: of Spark's evaluations, in the order in which
        the changes ask for them; `facts`: of the transaction that is open where the first record stands.
        """
        self._plans = plans
        self._kept: list[Mapped] | None = [] if keep else None
        self._steps: list[Step] = []
        self._open: dict[tuple[str, str], tuple[TablePlan, Worker]] = {}
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._filtered: dict[tuple[str, str], list[int]] = {}
        self._skipped: dict[tuple[str, str], int] = {}
        self._xid = ""
        self._ends = False
        self._facts = facts or Facts()
        self._evaluations = Evaluations(results)
        self._maps = any(plan.mapping is not None for some in plans.values() for plan in some)
        self._lenient = {_place(p) for some in plans.values() for p in some if is_lenient(p)} if self._maps else set()
        self._programs: Programs | None = None
        self._mappers: dict[int, Mapper] = {}

    def add(self, tables: list[bytes], records: list[Any], position: Position | None = None) -> None:
        """Take one block's records."""
        if records:
            self._ends = records[-1][0] == Op.COMMIT
        plans = [self._plans_of(table) for table in tables]
        used = [plan for some in plans for plan in some]
        shapes = {plan.shape for plan in used}
        self._facts.position = position
        if len({(layout.schema, layout.name) for layout, *_ in shapes}) < len(shapes):
            self._add_each(plans, records)  # one target in two shapes: what is open may change at each record
        elif self._maps and any(plan.mapping is not None for plan in used):
            self._add_mapped(plans, records)
        else:
            self._add(plans, records)
            if self._maps:
                self._follow(records)

    def finish(self) -> Part:
        """Everything taken so far."""
        self._close()
        for pair, left_out in self._filtered.items():
            self._counts[pair] = [n - left for n, left in zip(self._counts[pair], left_out, strict=True)]
        return Part(
            tuple(self._steps),
            self._counts,
            self._xid,
            tuple(self._kept or ()),
            self._ends,
            {pair: left_out for pair, left_out in self._filtered.items() if any(left_out)},
            self._skipped,
        )

    def _add(self, plans: _Plans, records: list[Any]) -> None:
        workers = self._workers(plans, records)
        inserts, updates, deletes = ([0] * len(plans) for _ in range(3))
        for record in records:
            op = record[0]
            if op == 3:
                t = record[1]
                updates[t] += 1
                workers[t].update(record[2], record[3])
            elif op == 2:
                t = record[1]
                inserts[t] += 1
                workers[t].insert(record[2])
            elif op == 4:
                t = record[1]
                deletes[t] += 1
                workers[t].delete(record[2])
            elif op == 1:
                self._xid = record[2]
            elif op == 5:
                self._truncate([plan for t in record[1] for plan in plans[t]], record[2])
                workers = self._workers(plans, records)
            elif op != 6:
                raise DamageError(f"a record of unknown kind {op!r} in a block whose CRCs are right")
        for some, *counted in zip(plans, inserts, updates, deletes, strict=True):
            self._count(some, (*counted, 0))

    def _add_mapped(self, plans: _Plans, records: list[Any]) -> None:
        """As _add(), where a change's facts may be asked for."""
        facts = self._facts
        workers = self._workers(plans, records)
        counts = [[0, 0, 0, 0] for _ in plans]
        for record in records:
            op = record[0]
            if op == 3:
                counts[record[1]][1] += 1
                workers[record[1]].update(record[2], record[3])
            elif op == 2:
                counts[record[1]][0] += 1
                workers[record[1]].insert(record[2])
            elif op == 4:
                counts[record[1]][2] += 1
                workers[record[1]].delete(record[2])
            elif op == 1:
                facts.begin(record[1], record[2], record[3])
                self._xid = record[2]
                continue
            elif op == 5:
                self._truncate([plan for t in record[1] for plan in plans[t]], record[2])
                workers = self._workers(plans, records)
            elif op != 6:
                raise DamageError(f"a record of unknown kind {op!r} in a block whose CRCs are right")
            facts.index += 1
        for some, counted in zip(plans, counts, strict=True):
            self._count(some, counted)

    def _add_each(self, plans: _Plans, records: list[Any]) -> None:
        """One change and one MAP at a time."""
        for record in records:
            if record[0] not in CHANGES:
                self._add_mapped(plans, [record])
                continue
            t, index = record[1], self._facts.index
            for plan in plans[t]:
                self._facts.index = index
                self._add_mapped([(plan,) if i == t else () for i in range(len(plans))], [record])
            self._facts.index = index + 1

    def _follow(self, records: list[Any]) -> None:
        """Which transaction is open behind these records, and how many of its changes stand in them."""
        changes = 0
        for record in reversed(records):
            if record[0] == Op.BEGIN:
                self._facts.begin(record[1], record[2], record[3])
                self._facts.index = changes
                return
            changes += record[0] != Op.COMMIT
        self._facts.index += changes

    # --- workers ------------------------------------------------------------------------------------------------------

    def _workers(self, plans: _Plans, records: list[Any]) -> list[_Worker]:
        used = range(len(plans)) if len(records) > 1 else _tables_of(records)
        for t in used:
            for plan in plans[t]:
                self._inner(plan)  # may close what is open: only after the last one is none of them stale
        return [self._fan(plans[t]) if t in used else _SKIP for t in range(len(plans))]

    def _fan(self, plans: tuple[TablePlan, ...]) -> _Worker:
        if len(plans) == 1:
            return self._worker(plans[0])
        return _Fan([self._worker(plan) for plan in plans]) if plans else _SKIP

    def _worker(self, plan: TablePlan) -> _Worker:
        inner: Worker | _Keeper = self._inner(plan)
        if self._kept is not None:
            inner = _Keeper(plan, inner, self._kept)
        if plan.mapping is None:
            return inner
        left_out = self._filtered.setdefault((plan.source, plan.target), [0, 0, 0, 0])
        self._counts.setdefault((plan.source, plan.target), [0, 0, 0, 0])
        return MappedWorker(self._mapper(plan), inner, self._evaluations, self._facts, left_out)

    def _inner(self, plan: TablePlan) -> Worker:
        """Who takes the rows of a plan's target table."""
        if plan.error:
            raise UnmappedError(plan.source, plan.error)
        place = _place(plan)
        found = self._open.get(place)
        if found is not None and found[0] is not plan and found[0].shape != plan.shape:
            self._close()
            found = None
        if found is None:
            found = self._open[place] = (plan, worker_of(plan, lenient=place in self._lenient))
        return found[1]

    def _mapper(self, plan: TablePlan) -> Mapper:
        found = self._mappers.get(id(plan))
        if found is None:
            if self._programs is None:
                self._programs = programs_of(self._plans)
            found = self._mappers[id(plan)] = Mapper(plan, self._programs)
        return found

    def _plans_of(self, table: bytes) -> tuple[TablePlan, ...]:
        try:
            return self._plans[table]
        except KeyError:
            raise DamageError(f"a block names table {table.hex()}, which nothing before it defines") from None

    # --- truncates ----------------------------------------------------------------------------------------------------

    def _truncate(self, plans: Sequence[TablePlan], flags: int) -> None:
        self._close()
        for plan in plans:
            self._inner(plan)
            self._count((plan,), (0, 0, 0, 1))
        emptied = [plan for plan in plans if _is_emptied(plan)]
        for plan in plans:
            if plan not in emptied:  # a table of changes keeps them
                self._filtered.setdefault((plan.source, plan.target), [0, 0, 0, 0])[3] += 1
        if emptied:
            tables = dict.fromkeys(_place(plan) for plan in emptied)
            self._check_shared({plan.target: plan.source for plan in emptied}, {plan.source for plan in emptied})
            self._steps.append(Truncate(tuple(tables), bool(flags & TRUNCATE_RESTART_IDENTITY)))

    def _check_shared(self, emptied: dict[str, str], sources: set[str]) -> None:
        """Refuse to empty a target table that also holds the rows of a source table that was not truncated."""
        for plan in (plan for plans in self._plans.values() for plan in plans):
            if not plan.error and plan.target in emptied and plan.source not in sources:
                raise UnmappedError(
                    emptied[plan.target],
                    f"TRUNCATE of {emptied[plan.target]}: it would empty {plan.target}, which also takes the rows of "
                    f"{plan.source}",
                    hint="Delete the rows in the target by hand, and ALTER REPLICAT past it (logdump shows where)",
                )

    # --- results ------------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        rows: list[Rows] = []
        bags: list[Bag] = []
        for plan, worker in self._open.values():
            if not worker:
                continue
            result = result_of(plan, worker)
            bags.append(result) if isinstance(result, Bag) else rows.append(result)
        self._open.clear()
        if rows or bags:
            self._steps.append(Work(tuple(rows), tuple(bags)))

    def _count(self, plans: Sequence[TablePlan], added: Sequence[int]) -> None:
        if not any(added):
            return
        for plan in plans:
            pair = (plan.source, plan.target)
            counts = self._counts.setdefault(pair, [0, 0, 0, 0])
            counts[:] = [a + b for a, b in zip(counts, added, strict=True)]
            if plan.skipped:
                self._skipped[pair] = self._skipped.get(pair, 0) + sum(added[:3])


def _place(plan: TablePlan) -> tuple[str, str]:
    return plan.layout.schema, plan.layout.name


def _is_emptied(plan: TablePlan) -> bool:
    """Whether a TRUNCATE empties the target: not a table of changes, and not one that keeps deleted rows."""
    mapping = plan.mapping
    if mapping is None or mapping.insert_all:
        return mapping is None
    if mapping.insert_deletes or mapping.update_deletes:
        raise UnmappedError(
            plan.source,
            f"TRUNCATE of {plan.source}: {plan.target} keeps its deleted rows (INSERTDELETES, UPDATEDELETES), and a "
            "TRUNCATE does not tell which they are",
            hint="Mark the rows in the target by hand, and ALTER REPLICAT past it (logdump shows where)",
        )
    return True


def _tables_of(records: list[Any]) -> list[int]:
    return [record[1] for record in records if record[0] in CHANGES]
