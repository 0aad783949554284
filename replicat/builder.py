"""Records to steps: each table's changes go to a worker (net effect, keyless), and come out as what a target applies.

Rule: order is kept where it matters: a truncate, or another shape of the same target table, closes the current Work.
"""

from __future__ import annotations

from typing import Any

from replicat.compact import Net
from replicat.netrows import blob, net_rows, picker
from replicat.part import Part
from replicat.plan import Plans, TablePlan
from replicat.target import Bag, Blob, Change, Rows, Step, Truncate, Work
from trails.errors import DamageError, OperatorError
from trails.record import MISSING, TRUNCATE_RESTART_IDENTITY, Image, Op


class _Skip:
    """A table that no MAP wants."""

    def insert(self, _row: Image) -> None:
        return

    def update(self, _after: Image, _before: Image | None) -> None:
        return

    def delete(self, _before: Image) -> None:
        return


class _Keyless:
    """Changes of a table without a key, in order."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan
        self._pick = picker(plan)
        self._run: list[Image] = []
        self._runs: list[Blob | Change] = []

    def insert(self, row: Image) -> None:
        self._run.append(row)

    def update(self, after: Image, before: Image | None) -> None:
        self._close_run()
        self._runs.append(Change(self._known(before), self._pick(after)))

    def delete(self, before: Image) -> None:
        self._close_run()
        self._runs.append(Change(self._known(before)))

    def bag(self) -> Bag:
        self._close_run()
        return Bag(self._plan.layout, tuple(self._runs))

    def _known(self, before: Image | None) -> Image:
        if before is None or MISSING in before:
            raise OperatorError(
                f"{self._plan.source}: a change of a table without a key came without the whole row as it was",
                hint="ADD TRANDATA for this table at the source (REPLICA IDENTITY FULL)",
            )
        return self._pick(before)

    def _close_run(self) -> None:
        if self._run:
            self._runs.append(blob(self._run, self._plan, self._pick))
            self._run = []


_SKIP = _Skip()
_Worker = Net | _Keyless | _Skip


class Builder:
    """Gathers records into steps. A truncate, or another shape of the same target table, closes the current Work."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._steps: list[Step] = []
        self._open: dict[tuple[str, str], tuple[TablePlan, Net | _Keyless]] = {}
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._xid = ""

    def add(self, tables: list[bytes], records: list[Any]) -> None:
        """Take one block's records."""
        plans = [self._plan(table) for table in tables]
        shapes = {plan.shape for plan in plans if plan}
        if len({(layout.schema, layout.name) for layout, *_ in shapes}) < len(shapes):
            for record in records:  # one target in two shapes: what is open may change at each record
                self._add(plans, [record])
        else:
            self._add(plans, records)

    def finish(self) -> Part:
        """Everything taken so far."""
        self._close()
        return Part(tuple(self._steps), self._counts, self._xid)

    def _add(self, plans: list[TablePlan | None], records: list[Any]) -> None:
        used = range(len(plans)) if len(records) > 1 else _tables_of(records)
        for t in used:
            self._worker(plans[t])  # may close what is open: only after the last one is none of them stale
        workers: list[_Worker] = [self._worker(plans[t]) if t in used else _SKIP for t in range(len(plans))]
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
                self._truncate([plans[t] for t in record[1]], record[2])
                workers = [self._worker(plan) for plan in plans]
            elif op != 6:
                raise DamageError(f"a record of unknown kind {op!r} in a block whose CRCs are right")
        for t, plan in enumerate(plans):
            self._count(plan, (inserts[t], updates[t], deletes[t], 0))

    def _plan(self, table: bytes) -> TablePlan | None:
        try:
            found = self._plans[table]
        except KeyError:
            raise DamageError(f"a block names table {table.hex()}, which nothing before it defines") from None
        return found[0] if found else None

    def _worker(self, plan: TablePlan | None) -> _Worker:
        if plan is None:
            return _SKIP
        if plan.error:
            raise OperatorError(plan.error)
        place = (plan.layout.schema, plan.layout.name)
        found = self._open.get(place)
        if found is not None and found[0] is not plan and found[0].shape != plan.shape:
            self._close()
            found = None
        if found is None:
            found = self._open[place] = (plan, Net(plan.key) if plan.key else _Keyless(plan))
        return found[1]

    def _truncate(self, plans: list[TablePlan | None], flags: int) -> None:
        self._close()
        wanted = [plan for plan in plans if plan is not None]
        for plan in wanted:
            self._worker(plan)
            self._count(plan, (0, 0, 0, 1))
        if wanted:
            tables = dict.fromkeys((plan.layout.schema, plan.layout.name) for plan in wanted)
            self._check_shared({plan.target: plan.source for plan in wanted}, {plan.source for plan in wanted})
            self._steps.append(Truncate(tuple(tables), bool(flags & TRUNCATE_RESTART_IDENTITY)))

    def _check_shared(self, emptied: dict[str, str], sources: set[str]) -> None:
        """Refuse to empty a target table that also holds the rows of a source table that was not truncated."""
        for plan in (plan for plans in self._plans.values() for plan in plans):
            if not plan.error and plan.target in emptied and plan.source not in sources:
                raise OperatorError(
                    f"TRUNCATE of {emptied[plan.target]}: it would empty {plan.target}, which also takes the rows of "
                    f"{plan.source}",
                    hint="Delete the rows in the target by hand, and ALTER REPLICAT past it (logdump shows where)",
                )

    def _close(self) -> None:
        rows: list[Rows] = []
        bags: list[Bag] = []
        for plan, worker in self._open.values():
            if isinstance(worker, _Keyless):
                if (bag := worker.bag()).runs:
                    bags.append(bag)
            elif worker:
                rows.append(net_rows(plan, worker))
        self._open.clear()
        if rows or bags:
            self._steps.append(Work(tuple(rows), tuple(bags)))

    def _count(self, plan: TablePlan | None, added: tuple[int, int, int, int]) -> None:
        if plan is not None and any(added):
            counts = self._counts.setdefault((plan.source, plan.target), [0, 0, 0, 0])
            counts[:] = [a + b for a, b in zip(counts, added, strict=True)]


def _tables_of(records: list[Any]) -> list[int]:
    return [record[1] for record in records if record[0] in (Op.INSERT, Op.UPDATE, Op.DELETE)]
