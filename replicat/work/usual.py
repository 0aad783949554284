"""A task's part by the kernel, where all of it is usual: tables with a key, whole rows, no changed key, plans that are
plain or map as usualmaps.py says; and the operands of these that Spark evaluates.

Rule: either the whole task is made so, or nothing of it: then the plain code does it from its first block on. What it
comes to is the same, and every check of a block is made by one or the other.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from typing import Any

from replicat.model.plan import TablePlan
from replicat.model.programs import Programs, programs_of
from replicat.model.target import Blob, Rows, Work
from replicat.work import kernel
from replicat.work.net.part import Part
from replicat.work.resultcolumns import ResultColumns
from replicat.work.usualmaps import usual_map
from trails.codec import raw_of
from trails.unpacking import UNCOUNTED

NO_CHANGES = (0, 0, 0)


Payloads = Generator[Any, None, None]


def part_of(task: Any, payloads: Payloads, results: ResultColumns | None = None) -> Part | None:
    """What a decode.Task comes to; None where the plain code has to say it. `payloads`: as decode.payloads has them.

    `results`: of all its evaluations, in order.
    """
    tables = _Tables(task, results)
    taker = kernel.Taker(tables.net, task.head[1] if task.head else None)
    return tables.part(taker) if _is_taken(task, taker, payloads) else None


def operands_of(task: Any, payloads: Payloads, programs: Programs) -> Any:
    """The operand rows of a task's evaluations, as a kernel.OperandRows; None where the plain code has to make them."""
    rows = kernel.OperandRows(programs.width)

    def table(identity: bytes) -> Any:
        width, plans = task.columns.get(identity) or 0, task.plans.get(identity)
        if not 0 < width <= kernel.WIDEST or plans is None or len(plans) > 1 or any(plan.error for plan in plans):
            return None
        nothing = kernel.Asked(-1, (), (), judges=False)
        if not plans or plans[0].mapping is None:
            return kernel.Operands(width, rows, nothing, nothing, nothing)
        found = usual_map(plans[0], programs) if plans[0].usual else None
        return found and kernel.Operands(width, rows, found.insert, found.update, found.delete)

    taker = kernel.Taker(table, task.head[1] if task.head else None)
    return rows if _is_taken(task, taker, payloads) else None


def _is_taken(task: Any, taker: Any, payloads: Payloads) -> bool:
    """Whether the kernel has taken every block."""
    if task.skip or task.until is not None or any(plan.gives_up for plans in task.plans.values() for plan in plans):
        return False
    with closing(payloads):
        for _, header, payload, where in payloads:
            if header.is_ddl or header.is_heartbeat or header.raw_len > UNCOUNTED:
                return False
            raw = bytes(raw_of(header, payload, where))
            if not taker.block(raw, header.indicator, header.changes, header.transactions):
                return False
    return True


class _Tables:
    """The plans of a task, as the kernel asks for them."""

    def __init__(self, task: Any, results: ResultColumns | None) -> None:
        self._task = task
        every = [plan for plans in task.plans.values() for plan in plans]
        self._programs: Programs | None = None
        self._results = None if results is None else kernel.Results(results.fetch, results.skip)
        # Of a target table that several plans share, and of which one is not strict, all changes are overlaid.
        lenient = {plan.layout.place for plan in every if plan.lenient}
        self._closed = {plan.layout.place for plan in every if not plan.lenient} & lenient
        """Target tables that are not, or no more, to be taken here."""
        self._plans: dict[bytes, TablePlan] = {}

    def net(self, table: bytes) -> Any:
        """An empty net effect for a table; None where it is not a usual one."""
        plans, width = self._task.plans.get(table), self._task.columns.get(table) or 0
        if plans is None or not 0 < width <= kernel.WIDEST or len(plans) > 1:
            return None
        if not plans:
            return kernel.Net(width, (), (), numbered=False, taken=False, extras=False)
        (plan,) = plans
        place = plan.layout.place
        if not plan.usual or place in self._closed:
            return None
        self._closed.add(place)
        self._plans[table] = plan
        extras = bool(plan.layout.extras)
        if plan.mapping is not None:
            return self._mapped(plan, width, extras=extras)
        pick = range(width) if plan.pick is None else plan.pick
        return kernel.Net(width, plan.key, tuple(pick), numbered=plan.integer_key, taken=True, extras=extras)

    def _mapped(self, plan: TablePlan, width: int, *, extras: bool) -> Any:
        if self._programs is None:
            self._programs = programs_of(self._task.plans)
        how = usual_map(plan, self._programs)
        if how is None or (how.evaluates and self._results is None) or width != len(plan.columns):
            return None
        asked = how.insert, how.update, how.delete
        made = kernel.Mapped(
            self._results, how.changes, how.constants, *asked, upserts=how.upserts, lenient=plan.lenient
        )
        if width + made.width > kernel.WIDEST:
            return None
        return kernel.Net(
            width, how.key, how.written, numbered=plan.integer_key, taken=True, extras=extras, mapped=made
        )

    def part(self, taker: Any) -> Part | None:
        """What they came to."""
        rows, counts, filtered, skipped = [], {}, {}, {}
        for table, net in taker.nets.items():
            plan = self._plans.get(table)
            counted = net.inserts, net.updates, net.deletes
            if plan is None or (counted == NO_CHANGES and plan.mapping is None):
                continue
            if (found := net.finish()) is None:
                return None
            inserts, updates, deletes, void, upserts, removes = (Blob(*one) for one in found)
            if any(text for text, _ in found):
                gone = replace(Rows(plan.layout), deletes=deletes, void=void, removes=removes)
                rows.append(replace(gone, inserts=inserts, updates=updates, upserts=upserts))
            pair, left_out = (plan.source, plan.target), [*net.left_out, 0]
            counts[pair] = [n - left for n, left in zip((*counted, 0), left_out, strict=True)]
            if any(left_out):
                filtered[pair] = left_out
            if plan.skipped and counted != NO_CHANGES:
                skipped[pair] = sum(counted)
        steps = (Work(tuple(rows), ()),) if rows else ()
        return Part(steps, counts, taker.xid, ends=taker.ends, filtered=filtered, skipped=skipped)
