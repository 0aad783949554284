"""Many lives, on as many cores as there are, and their sum."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.world.plan import ORDERS, draw
from tests.world.shrink import broken_by

PIECE = 20
"""Lives that a process is given at once."""


@dataclass
class Sum:
    """Of lives from `first` on. `faults`: by kind, those that met somebody; `deaths`: where processes were killed."""

    first: int = 0
    lives: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    violated: dict[int, str] = field(default_factory=dict)
    wall: float = 0.0

    def add(self, other: Sum) -> None:
        """Of other lives."""
        self.lives += other.lives
        for mine, theirs in ((self.faults, other.faults), (self.counts, other.counts), (self.deaths, other.deaths)):
            mine.update(theirs)
        self.violated |= other.violated

    @property
    def faults_a_life(self) -> float:
        """That met somebody; what an operator does is none."""
        return sum(n for what, n in self.faults.items() if what not in ORDERS) / max(self.lives, 1)


def live(first: int, lives: int) -> Sum:
    """So many, here."""
    total = Sum(first, lives)
    for seed in range(first, first + lives):
        text, world = broken_by(draw(seed))
        if text:
            total.violated[seed] = text
        total.faults.update({key[7:]: n for key, n in world.counts.items() if key.startswith("fault: ")})
        total.counts.update({key: n for key, n in world.counts.items() if not key.startswith("fault: ")})
        total.counts.update(calls=world.edges, turns=world.turns, seconds=world.now // 1_000_000)
        total.deaths.update(world.deaths)
    return total


def live_long(first: int, lives: int, seconds: float, processes: int) -> Iterator[Sum]:
    """So many lives, or as many as begin in that time; the sum so far, again and again."""
    total, began = Sum(first), time.monotonic()
    starts = iter(range(first, first + lives, PIECE))
    running: set[Future[Sum]] = set()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        more = True
        while more or running:
            while more and len(running) < processes:
                start = next(starts, None) if time.monotonic() - began < seconds else None
                more = start is not None
                if start is not None:
                    running.add(pool.submit(live, start, min(PIECE, first + lives - start)))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                total.add(each.result())
            total.wall = time.monotonic() - began
            yield total
