"""A task's part by the kernel, where all of it is usual: plain plans of tables with a key, whole rows, no changed key.

Rule: either the whole task is made so, or nothing of it: then the plain code does it from its first block on. What it
comes to is the same, and every check of a block is made by one or the other.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any

from replicat.model.plan import TablePlan
from replicat.model.target import Blob, Rows, Work
from replicat.work import kernel
from replicat.work.net.part import Part
from trails.codec import raw_of
from trails.unpacking import UNCOUNTED

NO_CHANGES = (0, 0, 0)


def part_of(task: Any, payloads: Generator[Any, None, None]) -> Part | None:
    """What a decode.Task comes to; None where the plain code has to say it. `payloads`: as decode.payloads has them."""
    if task.skip or task.until is not None:
        return None
    tables = _Tables(task)
    if any(plan.gives_up for plan in tables.every):
        return None
    taker = kernel.Taker(tables.net, task.head[1] if task.head else None)
    with closing(payloads):
        for _, header, payload, where in payloads:
            if header.is_ddl or header.is_heartbeat or header.raw_len > UNCOUNTED:
                return None
            raw = bytes(raw_of(header, payload, where))
            if not taker.block(raw, header.indicator, header.changes, header.transactions):
                return None
    return tables.part(taker)


class _Tables:
    """The plans of a task, as the kernel asks for them."""

    def __init__(self, task: Any) -> None:
        self._task = task
        self.every = [plan for plans in task.plans.values() for plan in plans]
        maps = any(plan.asks_facts for plan in self.every)
        self._closed = {plan.layout.place for plan in self.every if plan.lenient} if maps else set()
        """Target tables that are not, or no more, to be taken here."""
        self._plans: dict[bytes, TablePlan] = {}

    def net(self, table: bytes) -> Any:
        """An empty net effect for a table; None where it is not a usual one."""
        plans, width = self._task.plans.get(table), self._task.columns.get(table)
        if plans is None or not 0 < (width or 0) <= kernel.WIDEST or len(plans) > 1:
            return None
        if not plans:
            return kernel.Net(width, (), (), numbered=False, taken=False, extras=False)
        (plan,) = plans
        place = plan.layout.place
        if not _is_usual(plan) or place in self._closed:
            return None
        self._closed.add(place)
        self._plans[table] = plan
        pick = range(width) if plan.pick is None else plan.pick
        return kernel.Net(
            width, plan.key, tuple(pick), numbered=plan.integer_key, taken=True, extras=bool(plan.layout.extras)
        )

    def part(self, taker: Any) -> Part | None:
        """What they came to."""
        rows, counts, skipped = [], {}, {}
        for table, net in taker.nets.items():
            plan = self._plans.get(table)
            counted = net.inserts, net.updates, net.deletes
            if plan is None or counted == NO_CHANGES:
                continue
            if (found := net.finish()) is None:
                return None
            inserts, updates, deletes, void = (Blob(*one) for one in found)
            rows.append(Rows(plan.layout, deletes=deletes, inserts=inserts, void=void, updates=updates))
            pair = plan.source, plan.target
            counts[pair] = [*counted, 0]
            if plan.skipped:
                skipped[pair] = sum(counted)
        steps = (Work(tuple(rows), ()),) if rows else ()
        return Part(steps, counts, taker.xid, ends=taker.ends, skipped=skipped)


def _is_usual(plan: TablePlan) -> bool:
    """Whether rows need nothing but to be carried to a table with a key, each change by itself."""
    odd = plan.error or plan.mapping or plan.zero_dates or plan.loading or plan.ignored or plan.conflict or plan.lenient
    return not odd and bool(plan.key) and plan.layout.form.lines
