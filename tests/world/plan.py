"""What a life has in store, drawn from its number before it begins: sizes, commits, and a list of faults.

As the faults are a list, one can be left out and the life lived again: so a long story becomes a short one. Sizes are
drawn once a life, as lives without pauses and lives that pause everywhere find different things.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

HEADER = 4096


@dataclass(frozen=True)
class Sizes:
    """Shares are of 1, sizes in bytes, times in seconds."""

    pause: float
    near_file: int
    far_file: int
    block: int
    batch: int
    decode: bool
    only_kv: bool
    checkpoint: float
    source_lost: float
    slow: float
    sync: float
    answer_lost: float
    retries: int
    restart: int
    purge: int
    tls: bool
    window: int
    target: str
    encrypted: bool


@dataclass(frozen=True, order=True)
class Fault:
    """What happens at a moment (us); `seed` says to whom, and how long."""

    at: int
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind} at {self.at / 1e6:.3f} s"


@dataclass(frozen=True)
class Plan:
    """One life. `commits`: when the source commits its transactions (us)."""

    seed: int
    sizes: Sizes
    commits: tuple[int, ...]
    faults: tuple[Fault, ...]

    def without(self, *faults: Fault) -> Plan:
        """The same life with fewer faults."""
        return replace(self, faults=tuple(fault for fault in self.faults if fault not in faults))


WEIGHTS: Mapping[str, int] = MappingProxyType({
    "kill": 10, "kill at start": 5, "kill at greeting": 3,
    "freeze": 5, "zombie": 3, "sync fails": 3, "power": 3, "cut": 5,
    "silence": 2, "unreachable": 1,
    "target crash": 3, "target away": 1, "disk": 5, "checkpoints lost": 1, "checkpoints restored": 2,
    "locks lost": 1, "clock jumps": 1,
    "byte flipped": 1, "trail file removed": 1, "trail restored": 1, "trail file replaced": 1,
    "connected twice": 3, "strangers": 3,
    "manager killed": 3, "notes lost": 1,
    "space low": 3,
    "rollover": 2, "alter": 2, "info": 6, "stop": 3, "kill by name": 2, "delete and add": 2, "renew master key": 2,
})  # fmt: skip
TAMPERING = frozenset(("byte flipped", "trail file removed", "trail restored", "trail file replaced"))
"""What ends many a life early: most have none of it."""
ORDERS = frozenset(("rollover", "alter", "info", "stop", "kill by name", "delete and add", "renew master key"))
"""What an operator does; all others are faults."""


def draw(seed: int) -> Plan:
    """The life of this number."""
    rnd = random.Random(f"{seed} plan")
    sizes = Sizes(
        pause=rnd.choice((0.0, 0.01, 0.05, 0.3)),
        near_file=HEADER + rnd.choice((800, 3000, 9000)),
        far_file=HEADER + rnd.choice((700, 3000, 9000)),
        block=rnd.choice((200, 600, 3000)),
        batch=rnd.choice((4, 20, 1000)),
        decode=rnd.random() < 0.5,
        only_kv=rnd.random() < 0.3,
        checkpoint=rnd.choice((0.3, 1.0, 5.0)),
        source_lost=rnd.choice((0.0, 0.0, 0.01)),
        slow=rnd.choice((0.0, 0.1, 0.5)),
        sync=rnd.choice((0.0, 0.001, 0.01)),
        answer_lost=rnd.choice((0.0, 0.05, 0.2)),
        retries=rnd.choice((1, 5)),
        restart=rnd.choice((0, 1)),
        purge=rnd.choice((1, 3)),
        tls=rnd.random() < 0.25,
        window=rnd.choice((500, 3000, 1 << 24)),
        target=rnd.choice(("postgresql", "mysql")),
        encrypted=rnd.random() < 0.25,
    )
    if sizes.only_kv and rnd.random() < 0.5:
        sizes = replace(sizes, target="apart")  # where each table needs a key
    gap, at, commits = rnd.choice((0.02, 0.2)), 1_000_000, []
    for _ in range(rnd.randint(6, 22)):
        commits.append(at)
        at += int(rnd.expovariate(1 / gap) * 1e6)
    end = at + 2_000_000
    tampered = rnd.random() < 0.4
    kinds = [kind for kind in WEIGHTS if tampered or kind not in TAMPERING]
    weights = [WEIGHTS[kind] for kind in kinds]
    count = rnd.choice((6, 9, 14))
    faults = [Fault(rnd.randrange(1_000_000, end), rnd.choices(kinds, weights)[0], rnd.randrange(1 << 30))
              for _ in range(count)]  # fmt: skip
    return Plan(seed, sizes, tuple(commits), tuple(sorted(faults)))
