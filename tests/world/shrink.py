"""A life that was violated, made smaller: faults and commits are left out as long as the same rule is still broken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tests.world.plan import Plan
from tests.world.rules import ViolationError
from tests.world.world import World

MOST_LIVES = 200


def kind_of(text: str) -> str:
    """Which rule it was, whatever the places and names in it."""
    return re.sub(r"'[^']*'|\S*\d\S*", "", text)[:60]


def broken_by(plan: Plan) -> tuple[str, World]:
    """What the life breaks, and the world in which it did; empty if all holds."""
    world = World(plan)
    try:
        world.live()
    except ViolationError as error:
        return str(error), world
    return "", world


def shrink(plan: Plan) -> tuple[Plan, World]:
    """The smallest life found that breaks the same rule as this one does, and its world."""
    text, world = broken_by(plan)
    assert text, f"life {plan.seed} breaks nothing"
    best, lives = (plan, world), 0
    again = True
    while again and lives < MOST_LIVES:
        again = False
        for smaller in _smaller(best[0]):
            lives += 1
            found, lived = broken_by(smaller)
            if found and kind_of(found) == kind_of(text):
                best, again = (smaller, lived), True
                break
            if lives >= MOST_LIVES:
                break
    return best


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Half of the faults, then a quarter, ... then one; and half of the commits."""
    size = len(plan.faults) // 2
    while size:
        for start in range(0, len(plan.faults), size):
            yield plan.without(*plan.faults[start : start + size])
        size //= 2
    if len(plan.commits) > 1:
        yield replace(plan, commits=plan.commits[: len(plan.commits) // 2])
        yield replace(plan, commits=plan.commits[:-1])
