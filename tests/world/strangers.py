"""Strangers at far's doors: what anybody may say who reaches a port. He gets nothing by it, and nobody ends of it."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

from tests.world.machines import HOME_IDS
from trails.link.wire import FRAME, Hello, Side, Type, WireSession

if TYPE_CHECKING:
    from tests.world.plan import Sizes

HOME = "5e" * 16
"""A stranger's own."""
FAR_TRAIL = "./dirdat/rt"


def to_a_collector(draw: random.Random) -> bytes:
    """What one says there: nothing, noise, or something that is nearly right."""
    hello = _hello(HOME, "PMP1") if draw.random() < 0.5 else _hello(HOME_IDS["near"], "PMP2")
    return draw.choice((
        b"",
        draw.randbytes(draw.randint(1, 2000)),
        b"\x16\x03\x01" + draw.randbytes(draw.randint(1, 300)),
        hello,
        hello[: draw.randrange(len(hello))],
        hello + hello,
        FRAME.pack(Type.HELLO, 0xFFFFFFFF),
        FRAME.pack(Type.BLOCK, 100) + draw.randbytes(100),
    ))  # fmt: skip


def to_a_manager(draw: random.Random, sizes: Sizes) -> bytes:
    """What one asks there. Without TLS nobody can tell who asks: then it is nothing that another home may ask."""
    trails = ["../../etc/x", "", "./dirdat/rt/..", "/far/dirdat", 7, None] + [FAR_TRAIL] * (6 if sizes.tls else 0)
    asked = {
        "trailgate": draw.choice((1, 1, 1, 2, "1")),
        "verb": draw.choice(("START COLLECTOR", "START COLLECTOR", "STOP")),
        "trail": draw.choice(trails), "pump": f"{HOME_IDS['near']}/PMP1", "source_trail": draw.randbytes(16).hex(),
    }  # fmt: skip
    line = json.dumps(asked).encode()
    return draw.choice((line, line, line, line[: draw.randrange(len(line))], draw.randbytes(50), b"[" * 3000)) + b"\n"


def _hello(home: str, group: str) -> bytes:
    said = Hello(home, group, "near", "./dirdat/lt", b"s" * 16, {}, 0, None, 1, 2000)
    return b"".join(map(bytes, WireSession(Side.PUMP).send(said)))
