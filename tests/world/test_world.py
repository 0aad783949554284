"""Lives of the whole pipeline under every fault there is (see world.py): nothing is lost, doubled or torn.

`python -m tests.world` lives more of them; a violation is told on one page, with the number that brings it back.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.world.plan import draw
from tests.world.shrink import broken_by, shrink
from tests.world.story import digest, page
from tests.world.world import World

LIVES = 50
"""In one test."""


def live(seeds: range) -> None:
    """Each must hold."""
    for seed in seeds:
        text, _ = broken_by(draw(seed))
        if text:
            pytest.fail(f"{text}\n{page(*shrink(draw(seed)))}", pytrace=False)


@pytest.mark.parametrize("part", range(2))
def test_lives(part: int) -> None:
    """I1 to I5, I7, I10: the same lives each time."""
    live(range(1 + part * LIVES, 1 + (part + 1) * LIVES))


def test_lives_that_nobody_has_lived(record_property: pytest.RecordProperty) -> None:
    """Other ones each time; `make test` prints their numbers."""
    first = random.SystemRandom().randrange(1 << 32)
    record_property("lives", f"{first} to {first + LIVES - 1}")
    live(range(first, first + LIVES))


@pytest.mark.parametrize("seed", [201492, 209046, 215890, 217418, 218727])
def test_lives_that_ended_by_a_fault_once(seed: int) -> None:
    """Each fault is mended, and has a test of its own; a number is a life as long as plan.py draws the same for it."""
    live(range(seed, seed + 1))


@pytest.mark.parametrize("seed", [3, 8, 18])
def test_one_number_brings_a_life_back(seed: int) -> None:
    """Byte for byte, in this process and in one that hashes otherwise."""
    world = World(draw(seed))
    world.live()
    again = World(draw(seed))
    again.live()
    code = (
        "from tests.world.plan import draw; from tests.world.story import digest; from tests.world.world import World; "
        f"world = World(draw({seed})); world.live(); print(digest(world))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    assert {digest(world), digest(again), other.stdout.strip()} == {digest(world)}
