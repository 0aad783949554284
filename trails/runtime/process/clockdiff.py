"""Clocks of two hosts compared: how far another one is ahead of ours, by a question that takes one round trip.

Rule: whoever was asked looked at his clock somewhere between our question and his answer; half of the round trip is
the best guess, and never wrong by more than that half. Of several answers the quickest is the truest, as long as none
contradicts it. A difference over CLOCKDIFFSECS is told once, and again only after it was gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from trails.clock import Clock

DEFAULT_SECONDS = 2
CODE = "TG-00951"
WINDOW = 8
"""So many of the last comparisons are kept."""


@dataclass(frozen=True, slots=True)
class Difference:
    """So far is the other clock ahead, give or take `error_us`."""

    ahead_us: int
    error_us: int

    @classmethod
    def of(cls, theirs_us: int, now_us: int, took_us: int) -> Difference:
        """From the time that was told, ours as the answer came, and how long after the question that was."""
        half = took_us // 2
        return cls(theirs_us - (now_us - half), took_us - half)

    def agrees(self, other: Difference) -> bool:
        """Whether both can be true of two clocks that go alike."""
        return abs(self.ahead_us - other.ahead_us) <= self.error_us + other.error_us


class Nearest:
    """The last comparisons of one other clock, of which that with the least error counts.

    A new one that contradicts it says that a clock has moved since: then the older ones are forgotten.
    """

    def __init__(self) -> None:
        self._last: deque[Difference] = deque(maxlen=WINDOW)

    def add(self, found: Difference) -> Difference:
        """What counts from now on."""
        if self._last and not found.agrees(self._best):
            self._last.clear()
        self._last.append(found)
        return self._best

    def clear(self) -> None:
        """It may be another clock from now on."""
        self._last.clear()

    @property
    def _best(self) -> Difference:
        return min(reversed(self._last), key=lambda one: one.error_us)


def compare(ask: Callable[[], int], clock: Clock) -> Difference:
    """Ask another clock for its microseconds since 1970."""
    begun = clock.monotonic()
    theirs = ask()
    now_us = clock.now_us()  # before the other clock is looked at: then no pause between makes us too sure
    took = int((clock.monotonic() - begun) * 1_000_000)  # the wall clock may jump meanwhile
    return Difference.of(theirs, now_us, took)


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
        if abs(ahead_us) - error_us > self._limit_us and not self._told:
            self._told = True
            side = "ahead of" if ahead_us > 0 else "behind"
            self._warn(
                f"the clock of {self._whose} is {abs(ahead_us) / 1_000_000:.3f} s {side} this host's (CLOCKDIFFSECS "
                f"{self._limit_us / 1_000_000:g}): lag that crosses the two is corrected by that; let NTP mend it"
            )
        elif abs(ahead_us) + error_us <= self._limit_us // 2:
            self._told = False  # surely gone, and not only unknown for now
