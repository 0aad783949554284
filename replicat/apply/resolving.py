"""One change applied by itself, and by what its table's conflict rules say where the target's row is not as expected.

Rule: the target's row is read and locked first, decided over (deciding.py), then written by key, so the next change
of the same key finds what this one left. All of a change is applied, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from replicat.model.plan import Conflict, TablePlan
from replicat.model.target import ROW_EXISTS, Layout, RefusedError, Step, Work
from replicat.targets.contract import Target
from replicat.work.conflicts.deciding import KEEP, PLAIN, REFUSE, REMOVE, Case, Decision, decide, lacking, no_before
from replicat.work.net.compact import Net
from replicat.work.net.part import MappedChange, Part
from replicat.work.net.rows import net_rows
from trails.record import MISSING, Image, Value


class ConflictError(RefusedError):
    """A conflict that no RESOLVECONFLICT resolves; `conflict` is its type."""

    def __init__(self, table: str, decision: Decision) -> None:
        super().__init__(table, f"{decision.conflict}: {decision.why}", decision.sqlstate)
        self.conflict = decision.conflict


@dataclass(frozen=True, slots=True)
class Resolved:
    """A conflict that was resolved: by a row that was written, or by leaving the target's."""

    conflict: str
    applied: bool
    discard: bool


def apply_change(target: Target, part: Part) -> Resolved | None:
    """Apply one change; RefusedError, the transaction then as it was. None: there was no conflict."""
    for mapped in part.mapped:
        if mapped.plan.conflict is not None and mapped.op in ("insert", "update", "delete"):
            return _apply_one(target, part, mapped, mapped.plan.conflict)
    target.apply(part.steps, single=True)
    return None


def _apply_one(target: Target, part: Part, mapped: MappedChange, conflict: Conflict) -> Resolved | None:
    layout = mapped.plan.layout
    case = Case(layout, conflict, mapped.op, mapped.before, mapped.after)
    if column := lacking(conflict, layout, mapped.op, mapped.before):
        raise no_before(mapped.plan.source, column, mapped.op)
    key = key_before(layout, mapped.before, mapped.after)
    decision = decide(case, target.current(layout, key))
    if decision.kind == REFUSE:
        raise ConflictError(layout.full_name, decision)
    if decision.kind == PLAIN:
        target.apply(tuple(_unchecked(step) for step in part.steps), single=True)
        return None
    if decision.kind != KEEP:
        _write(target, mapped.plan, key, decision)
    return Resolved(decision.conflict, decision.kind != KEEP, decision.discard)


def _write(target: Target, plan: TablePlan, key: tuple[Value, ...], decision: Decision) -> None:
    layout = plan.layout
    if decision.kind == REMOVE:
        target.remove(layout, key)
        return
    assert decision.row is not None
    if key_of(layout, decision.row) == key:
        target.put(layout, decision.row)
    else:
        _move(target, plan, key, decision.row)


def _move(target: Target, plan: TablePlan, key: tuple[Value, ...], row: Image) -> None:
    """A row whose key changes takes along what the target has in columns of its own, as without a conflict."""
    layout, new = plan.layout, key_of(plan.layout, row)
    if target.current(layout, new) is not None:
        raise RefusedError(
            layout.full_name, f"the key changes to ({', '.join(map(str, new))}), where a row is", ROW_EXISTS
        )
    old = target.current(layout, key)
    if old is None:
        target.put(layout, row)
        return
    # Of the target's own table, by its columns' names: no MAP has a say in it any more.
    at = tuple(layout.columns.index(name) for name in layout.key)
    worker = Net(at)
    worker.update(row, old)
    own = replace(plan, key=at, pick=None, mapping=None, conflict=None)
    target.apply((Work(rows=(net_rows(own, worker),)),), single=True)


def _unchecked(step: Step) -> Step:
    """What is to be as it was before has just been looked at, by its type and not by the target's operator."""
    return Work(tuple(replace(rows, compares=()) for rows in step.rows), step.bags) if isinstance(step, Work) else step


def key_of(layout: Layout, row: Image) -> tuple[Value, ...]:
    """The key's values in a mapped row."""
    return tuple(row[layout.columns.index(name)] for name in layout.key)


def key_before(layout: Layout, before: Image | None, after: Image | None) -> tuple[Value, ...]:
    """The key under which the row is in the target before the change."""
    after = before if after is None else after
    assert after is not None
    was = after if before is None else before
    return tuple(
        new if old is MISSING else old for old, new in zip(key_of(layout, was), key_of(layout, after), strict=True)
    )
