"""Clocks of two hosts compared: how far another one is ahead of ours, by a question that takes one round trip.

Rule: whoever was asked looked at his clock somewhere between our question and his answer; half of the round trip is
the best guess, and never wrong by more than that half. A difference over CLOCKDIFFSECS is told once, and again only
after it was gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trails.runtime.clock import Clock

DEFAULT_SECONDS = 2
CODE = "TG-00951"


@dataclass(frozen=True, slots=True)
class Difference:
    """So far is the other clock ahead, give or take `error_us`."""

    ahead_us: int
    error_us: int


def compare(ask: Callable[[], int], clock: Clock) -> Difference:
    """Ask another clock for its microseconds since 1970."""
    asked = clock.now_us()
    begun = clock.monotonic()
    theirs = ask()
    took = int((clock.monotonic() - begun) * 1_000_000)  # the wall clock may jump meanwhile
    return Difference(theirs - asked - took // 2, took - took // 2)


class ClockWatch:
    """Watches one other clock; `whose` names it. `warn` takes a line for the operator."""

    def __init__(self, whose: str, limit_s: float, warn: Callable[[str], None]) -> None:
        self._whose = whose
        self._limit_us = int(limit_s * 1_000_000)
        self._warn = warn
        self._told = False
        self.ahead_us: int | None = None
        """How far it is ahead of ours; None while that is not known."""

    def found(self, ahead_us: int | None, error_us: int = 0) -> None:
        """It was compared; None: it could not be."""
        self.ahead_us = ahead_us
        if ahead_us is None:
            return
        size = abs(ahead_us) - error_us
        if size > self._limit_us and not self._told:
            self._told = True
            side = "ahead of" if ahead_us > 0 else "behind"
            self._warn(
                f"the clock of {self._whose} is {abs(ahead_us) / 1_000_000:.3f} s {side} this host's (CLOCKDIFFSECS "
                f"{self._limit_us / 1_000_000:g}): lag that crosses the two is corrected by that; let NTP mend it"
            )
        elif size <= self._limit_us // 2:
            self._told = False
