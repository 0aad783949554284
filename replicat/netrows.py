"""Net effects to rows ready for a target: COPY text in the order of the target's index.

Rule: pure; what must be filled from the target, or checked there, is set apart and said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from replicat.compact import Net
from replicat.copytext import render
from replicat.plan import TablePlan
from replicat.target import Blob, Fill, Rows
from trails.errors import OperatorError
from trails.record import Image


def net_rows(plan: TablePlan, net: Net) -> Rows:
    """A net effect as COPY text, with what must be filled from the target set apart."""
    pick = picker(plan)
    fills = []
    if plan.layout.extras:
        fills = [Fill(_parts(base), pick(net.old.pop(key))) for key, base in net.base.items()]
    present = map(net.old.__getitem__, plan.in_key_order(net.old))
    data, count, partial = render(present, None if plan.pick is None else pick)
    for row in partial:
        key = net.key(row)
        fills.append(Fill(_parts(net.base.get(key, key)), pick(row)))
    return Rows(
        plan.layout,
        deletes=blob(map(_parts, plan.in_key_order(net.gone)), plan, None),
        upserts=Blob(data, count),
        inserts=blob(map(net.new.__getitem__, plan.in_key_order(net.new)), plan, pick),
        fills=tuple(fills),
    )


def blob(rows: Iterable[Image], plan: TablePlan, pick: Callable[[Image], Image] | None) -> Blob:
    """Whole rows as COPY text; OperatorError if one lacks a column."""
    data, count, partial = render(rows, None if plan.pick is None else pick)
    if partial:
        key = ", ".join(str(partial[0][i]) for i in plan.key)
        raise OperatorError(
            f"{plan.source}: the new row with key ({key}) came without all its columns",
            hint="ADD TRANDATA for this table at the source, and load the table again",
        )
    return Blob(data, count)


def picker(plan: TablePlan) -> Callable[[Image], Image]:
    """What of an image is written."""
    if plan.pick is None:
        return _same
    if len(plan.pick) == 1:
        (only,) = plan.pick
        return lambda row: (row[only],)
    return itemgetter(*plan.pick)


def _same(row: Image) -> Image:
    return row


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)
