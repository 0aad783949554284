"""Records to steps: each table's changes go to a worker for each MAP, and come out as what a target applies.

    record -> [mapped: mapping/mapped.py] -> [kept one by one] -> Net, Overlay, Keyless: net/workers.py -> Work

Rule: order is kept where it matters: a truncate, or another shape of the same target table, closes the current Work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from replicat.model.plan import ANY, Plans, TablePlan
from replicat.model.programs import Programs, programs_of
from replicat.model.target import Bag, Rows, Step, Truncate, UnmappedError, Work
from replicat.work.bychunk import ByChunk, ChunkJudge
from replicat.work.ignoring import Ignoring
from replicat.work.layers import Layered, Turns
from replicat.work.mapped import Evaluations, MappedWorker, RowMapper
from replicat.work.net.part import MappedChange, Part
from replicat.work.net.rows import picker
from replicat.work.roles import ChangeFacts, Failure, Result
from replicat.work.workers import Worker, result_of, worker_of
from replicat.work.zerodates import ZeroDates
from trails.errors import MEND, DamageError
from trails.position import Position
from trails.record import BEGIN, COMMIT, DELETE, INSERT, TRUNCATE, TRUNCATE_RESTART_IDENTITY, UPDATE, Image

CHANGES = (INSERT, UPDATE, DELETE)


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

    def __init__(self, plan: TablePlan, worker: Any, kept: list[MappedChange]) -> None:
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
        self._kept.append(MappedChange(self._plan, op, *rows))


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
_Worker = Worker | Layered | _Skip | _Keeper | ZeroDates | MappedWorker | ByChunk | _Fan | Ignoring
_Plans = Sequence[tuple[TablePlan, ...]]


class Builder:
    """Gathers records into steps. A truncate, or another shape of the same target table, closes the current Work."""

    def __init__(
        self,
        plans: Plans,
        *,
        keep: bool = False,
        results: Iterator[Result | Failure] | None = None,
        facts: ChangeFacts | None = None,
    ) -> None:
        """`keep`: the part tells its changes one by one too; `results`: of Spark's evaluations, in the order in which
        the changes ask for them; `facts`: of the transaction that is open where the first record stands.
        """
        self._plans = plans
        self._kept: list[MappedChange] | None = [] if keep else None
        self._steps: list[Step] = []
        self._open: dict[tuple[str, str], tuple[TablePlan, Worker | Layered]] = {}
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._filtered: dict[tuple[str, str], list[int]] = {}
        self._skipped: dict[tuple[str, str], int] = {}
        self._zeroed: dict[tuple[str, str], list[int]] = {}
        self._xid = ""
        self._ends = False
        self._facts = facts or ChangeFacts()
        self._loaded: dict[tuple[str, str], list[int]] = {}
        self._evaluations = Evaluations(results)
        every = [plan for some in plans.values() for plan in some]
        self._maps = any(plan.asks_facts for plan in every)
        self._lenient = {plan.layout.place for plan in every if plan.lenient} if self._maps else set()
        self._judges = {id(plan): ChunkJudge(plan, self._facts) for plan in every if plan.loading is not None}
        layered = [plan for plan in every if plan.gives_up]
        self._any = any(plan.across == ANY for plan in layered)  # they may depend on any other table
        self._layered = {plan.layout.place for plan in (every if self._any else layered)}
        self._turns = Turns()
        self._programs: Programs | None = None
        self._mappers: dict[int, RowMapper] = {}

    def add(self, tables: list[bytes], records: list[Any], position: Position | None = None) -> None:
        """Take one block's records."""
        if records:
            self._ends = records[-1][0] == COMMIT
        try:
            plans = [self._plans[table] for table in tables]
        except KeyError as error:
            table: bytes = error.args[0]
            raise DamageError(
                f"a block names table {table.hex()}, which nothing before it defines", hint=MEND
            ) from None
        used = [plan for some in plans for plan in some]
        shapes = {plan.shape for plan in used}
        self._facts.position = position
        if len({(layout.schema, layout.name) for layout, *_ in shapes}) < len(shapes):
            self._add_each(plans, records)  # one target in two shapes: what is open may change at each record
        else:
            self._add(plans, records)

    def finish(self) -> Part:
        """Everything taken so far."""
        self._close()
        for pair, left_out in (*self._filtered.items(), *self._loaded.items()):
            self._counts[pair] = [n - left for n, left in zip(self._counts[pair], left_out, strict=True)]
        return Part(
            tuple(self._steps),
            self._counts,
            self._xid,
            tuple(self._kept or ()),
            self._ends,
            {pair: left_out for pair, left_out in self._filtered.items() if any(left_out)},
            self._skipped,
            {pair: seen for pair, (seen,) in self._zeroed.items() if seen},
            waits=frozenset(xid for judge in self._judges.values() for xid in judge.met),
        )

    def _add(self, plans: _Plans, records: list[Any]) -> None:
        """The one loop that walks over records by itself; trails/walk.py says why.

        Where MAPs have expressions or facts, each change's place in its transaction is kept in `facts`.
        """
        facts, maps = self._facts, self._maps
        workers = self._workers(plans, records)
        inserts, updates, deletes = ([0] * len(plans) for _ in range(3))
        for record in records:
            op = record[0]
            if op == UPDATE:
                t = record[1]
                updates[t] += 1
                workers[t].update(record[2], record[3])
            elif op == INSERT:
                t = record[1]
                inserts[t] += 1
                workers[t].insert(record[2])
            elif op == DELETE:
                t = record[1]
                deletes[t] += 1
                workers[t].delete(record[2])
            elif op == BEGIN:
                self._xid = record[2]
                self._turns.number += 1
                if maps:
                    facts.begin(record[1], record[2], record[3])
                continue
            elif op == TRUNCATE:
                self._truncate([plan for t in record[1] for plan in plans[t]], record[2])
                workers = self._workers(plans, records)
            elif op != COMMIT:
                raise DamageError(f"a record of unknown kind {op!r} in a block whose CRCs are right", hint=MEND)
            if maps:
                facts.index += 1
        for some, *counted in zip(plans, inserts, updates, deletes, strict=True):
            if any(counted):
                self._count(some, (*counted, 0))

    def _add_each(self, plans: _Plans, records: list[Any]) -> None:
        """One change and one MAP at a time."""
        for record in records:
            if record[0] not in CHANGES:
                self._add(plans, [record])
                continue
            t, index = record[1], self._facts.index
            for plan in plans[t]:
                self._facts.index = index
                self._add([(plan,) if i == t else () for i in range(len(plans))], [record])
            self._facts.index = index + 1

    # --- workers ------------------------------------------------------------------------------------------------------

    def _workers(self, plans: _Plans, records: list[Any]) -> list[_Worker]:
        """Who takes the rows of each of the block's tables."""
        used = range(len(plans)) if len(records) > 1 else _tables_of(records)
        if self._open:
            self._close_others(plan for t in used for plan in plans[t])
        found: list[_Worker] = [_SKIP] * len(plans)
        for t in used:
            workers = [self._worker(plan) for plan in plans[t]]
            if workers:
                found[t] = workers[0] if len(workers) == 1 else _Fan(workers)
        return found

    def _close_others(self, plans: Iterable[TablePlan]) -> None:
        """Close what is open if one of these plans gives its target table another shape."""
        for plan in plans:
            found = self._open.get(plan.layout.place)
            if found is not None and found[0] is not plan and found[0].shape != plan.shape:
                self._close()
                return

    def _worker(self, plan: TablePlan) -> _Worker:
        """Who takes the rows that a plan's MAP takes."""
        if plan.error:
            raise UnmappedError(plan.source, plan.error)
        place = plan.layout.place
        found = self._open.get(place)
        if found is None:
            lenient = place in self._lenient
            if place in self._layered:
                across = ANY if self._any else plan.across
                found = self._open[place] = (plan, Layered(plan, self._turns, across, lenient=lenient))
            else:
                found = self._open[place] = (plan, worker_of(plan, lenient=lenient))
        plain = plan.mapping is None and not plan.zero_dates and plan.loading is None and not plan.ignored
        if plain and self._kept is None:
            return found[1]
        return self._around(plan, found[1])

    def _around(self, plan: TablePlan, inner: Worker | Layered | _Keeper | ZeroDates) -> _Worker:
        """Who judges and maps the rows, or keeps them one by one, before that worker gets them."""
        pair = plan.source, plan.target
        taking = self._taking(plan, pair, inner)
        return Ignoring(plan.ignored, taking, self._left_out(self._filtered, pair)) if plan.ignored else taking

    def _taking(self, plan: TablePlan, pair: tuple[str, str], inner: Worker | Layered | _Keeper | ZeroDates) -> _Worker:
        """The same for the changes that the MAP takes."""
        if self._kept is not None:
            inner = _Keeper(plan, inner, self._kept)
        if plan.zero_dates:
            inner = ZeroDates(plan.zero_dates, inner, self._zeroed.setdefault(pair, [0]))
        if plan.loading is not None:
            left_out = self._left_out(self._loaded, pair)
            return ByChunk(self._judges[id(plan)], inner, lambda taker: self._mapping(plan, taker), left_out)
        made: _Worker = self._mapping(plan, inner)
        return made

    def _mapping(self, plan: TablePlan, inner: Any) -> Any:
        """The MAP in front of a worker, if it asks for more than columns by name."""
        if plan.mapping is None:
            return inner
        left_out = self._left_out(self._filtered, (plan.source, plan.target))
        return MappedWorker(self._mapper(plan), inner, self._evaluations, self._facts, left_out)

    def _left_out(self, counts: dict[tuple[str, str], list[int]], pair: tuple[str, str]) -> list[int]:
        """Where changes that don't get to the target are counted."""
        self._counts.setdefault(pair, [0, 0, 0, 0])
        return counts.setdefault(pair, [0, 0, 0, 0])

    def _mapper(self, plan: TablePlan) -> RowMapper:
        found = self._mappers.get(id(plan))
        if found is None:
            if self._programs is None:
                self._programs = programs_of(self._plans)
            found = self._mappers[id(plan)] = RowMapper(plan, self._programs)
        return found

    # --- truncates ----------------------------------------------------------------------------------------------------

    def _truncate(self, plans: Sequence[TablePlan], flags: int) -> None:
        self._close()
        for plan in plans:
            if plan.error:
                raise UnmappedError(plan.source, plan.error)
            self._count((plan,), (0, 0, 0, 1))
        taken = [plan for plan in plans if TRUNCATE not in plan.ignored]
        emptied = [plan for plan in taken if _is_emptied(plan) and self._empties(plan)]
        for plan in plans:
            if plan not in emptied:  # a table of changes keeps them; of one that is loaded the snapshots see it
                self._filtered.setdefault((plan.source, plan.target), [0, 0, 0, 0])[3] += 1
        if emptied:
            tables = dict.fromkeys(plan.layout.place for plan in emptied)
            self._check_shared({plan.target: plan.source for plan in emptied}, {plan.source for plan in emptied})
            self._steps.append(Truncate(tuple(tables), bool(flags & TRUNCATE_RESTART_IDENTITY)))

    def _empties(self, plan: TablePlan) -> bool:
        """Not where snapshots see it, or will."""
        return plan.loading is None or self._judges[id(plan)].empties()

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
        layers: dict[int, list[Rows | Bag]] = {}
        for plan, worker in self._open.values():
            for layer, one in enumerate(worker.layers if isinstance(worker, Layered) else (worker,)):
                if one:
                    layers.setdefault(layer, []).append(result_of(plan, one))
        self._open.clear()
        if self._layered:
            self._turns.clear()
        for layer in sorted(layers):
            rows = tuple(one for one in layers[layer] if isinstance(one, Rows))
            bags = tuple(one for one in layers[layer] if isinstance(one, Bag))
            self._steps.append(Work(rows, bags, border=layer < max(layers)))

    def _count(self, plans: Sequence[TablePlan], added: Sequence[int]) -> None:
        for plan in plans:
            pair = (plan.source, plan.target)
            counts = self._counts.setdefault(pair, [0, 0, 0, 0])
            counts[:] = [a + b for a, b in zip(counts, added, strict=True)]
            if plan.skipped:
                self._skipped[pair] = self._skipped.get(pair, 0) + sum(added[:3])


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
