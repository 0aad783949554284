"""A life told: who did what, and when; and in one page what a person needs to know of one that was violated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.world.plan import Plan

if TYPE_CHECKING:
    from tests.world.world import World

PAGE = 60
"""Lines."""


def lines(world: World, *, aside: bool = False) -> Iterator[str]:
    """In order; `aside`: also what the processes say of themselves."""
    for now, who, what, is_aside in world.story:
        if aside or not is_aside:
            yield f"{now / 1e6:10.6f}  {who:14} {what}"


def page(plan: Plan, world: World) -> str:
    """The life of a violation on one page: what was in store, and what was told up to it."""
    told = list(lines(world))
    asides = list(lines(world, aside=True))
    told = asides if len(asides) <= PAGE else told
    faults = ", ".join(map(str, plan.faults)) or "none"
    head = [
        f"Life {plan.seed}: {len(plan.commits)} transactions, {plan.sizes}",
        f"Faults: {faults}",
        f"To live it again: python -m tests.world --seed {plan.seed} --story",
    ]
    left = ["..."] if len(told) > PAGE else []
    return "\n".join([*head, *left, *told[-PAGE:]])


def digest(world: World) -> str:
    """Of all that was told, and of both disks: equal for the same life."""
    made = hashlib.sha256("\n".join(lines(world, aside=True)).encode())
    for machine in (world.near, world.far):
        for path, data, disk in machine.fs.image():
            made.update(path.encode() + data + disk)
    return made.hexdigest()[:16]
