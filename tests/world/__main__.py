"""Lives by hand.

python -m tests.world --seed N [--story | --shrink]     one life: told, or if it is violated told on one page
python -m tests.world [--first N] [--lives N] [--minutes M] [--processes P] [--page FILE]     as many as fit
python -m tests.world --plant NAME                      with a planted fault, until that is found
python -m tests.world --first N --lives N --twice       each is lived twice, byte for byte
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import pytest

from tests.world.lives import Sum, live_long
from tests.world.plan import draw
from tests.world.plants import PLANTS
from tests.world.reliability import with_figures
from tests.world.shrink import broken_by, shrink
from tests.world.story import digest, lines, page


def main() -> int:
    """The exit status: whether any life was violated."""
    given = _arguments()
    if given.plant:
        next(plant for plant in PLANTS if plant.name == given.plant).do(pytest.MonkeyPatch())
        return _until_found(given)
    if given.seed is not None:
        return _one(given)
    if given.twice:
        return _twice(given)
    return _many(given)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--lives", type=int, default=1 << 40)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--story", action="store_true")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--plant", default="", choices=["", *(plant.name for plant in PLANTS)])
    parser.add_argument("--page", default="")
    return parser.parse_args()


def _one(given: argparse.Namespace) -> int:
    text, world = broken_by(draw(given.seed))
    if given.story:
        print("\n".join(lines(world, aside=True)))
    if text and given.shrink:
        print(page(*shrink(draw(given.seed))))
    print(f"seed {given.seed}: {text or 'all holds'}; {digest(world)}")
    return int(bool(text))


def _until_found(given: argparse.Namespace) -> int:
    began = time.process_time()
    for seed in range(given.first, given.first + given.lives):
        text, _ = broken_by(draw(seed))
        took = time.process_time() - began
        if text or took > 60 * given.minutes:
            print(f"seed {seed}: {text or 'not found'}; {took:.1f} s of CPU")
            return int(not text)
    return 1


def _twice(given: argparse.Namespace) -> int:
    for seed in range(given.first, given.first + given.lives):
        (_, one), (_, other) = broken_by(draw(seed)), broken_by(draw(seed))
        if digest(one) != digest(other):
            pairs = zip(one.story, other.story, strict=False)
            where = next((f"{a} | {b}" for a, b in pairs if a != b), "one is longer")
            print(f"seed {seed}: not the same twice: {where}")
            return 1
    return 0


def _many(given: argparse.Namespace) -> int:
    total, told = Sum(given.first), 0
    for total in live_long(given.first, given.lives, given.minutes * 60, given.processes):
        for seed, text in list(total.violated.items())[told:]:
            told += 1
            print(f"seed {seed}: {text[:300]}", flush=True)
    lives = max(total.lives, 1)
    print(f"{total.lives} lives from {total.first} on in {total.wall:.0f} s: {60 * lives / total.wall:.0f} a minute by "
          f"{given.processes} processes; {total.faults_a_life:.1f} faults a life met somebody")  # fmt: skip
    print("; ".join(f"{what} {n}" for what, n in sorted((total.faults + total.counts).items())))
    print(f"{len(total.deaths)} different calls at which one was killed; {len(total.violated)} lives violated")
    if given.page:
        file = Path(given.page)
        written = with_figures(file.read_text(encoding="utf-8"), total, time.strftime("%Y-%m-%d"))
        file.write_text(written, encoding="utf-8")
    return int(bool(total.violated))


if __name__ == "__main__":
    sys.exit(main())
