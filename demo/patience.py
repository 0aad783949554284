"""The one limit of every wait in demo and tests. It only ends a hang: how long something takes is no fault.

A machine that is busy with other work may need minutes for what takes a second else, such as a start of Spark. So who
waits takes PATIENCE, tells what was waited for and how far it came, and measures nothing. pytest's own limit for a
whole test (`timeout` in pyproject.toml) is above it: a wait ends with its words before its test is ended without.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 240.0
"""Seconds."""


class WaitError(RuntimeError):
    """What was waited for did not come about; the text tells it, and how far it came."""


def wait_for(
    condition: Callable[[], T], told: str | Callable[[], str] = "the condition", *, every: float = 0.02,
    seconds: float = PATIENCE,
) -> T:  # fmt: skip
    """The condition's first true value. Raises WaitError after `seconds`, with what `told` says then.

    What takes long to ask is asked seldom, a fifth of the time: who waits must not take the machine from those who are
    waited for.
    """
    end = (begin := time.monotonic()) + seconds
    while not (value := condition()):
        if (now := time.monotonic()) > end:
            raise WaitError(f"not within {seconds:g} s: {told if isinstance(told, str) else told()}")
        time.sleep(max(every, 4 * (now - begin)))
        begin = time.monotonic()
    return value
