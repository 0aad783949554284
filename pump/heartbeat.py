"""What a pump adds to heartbeats: its stamp, with the difference between the Collector's clock and ours.

Rule: the stamp is put on when the block is sent, and only what goes out carries it: a block that is sent again, after a
lost link, is stamped again, and the Collector has it once. What the pump itself remembers is when it was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trails.clock import Clock
from trails.heartbeat import Arrivals, Beat, Stamp
from trails.runtime.process.clockdiff import ClockWatch, Difference, Nearest

LONGEST_WAY_US = 250_000
"""A WELCOME that comes later than twice this was not so long on its way."""


class PumpHeartbeats:
    """One pump's part in heartbeats. `host`: the remote one; `limit_s`: CLOCKDIFFSECS, 0 for never."""

    def __init__(self, group: str, host: str, clock: Clock, limit_s: float, warn: Callable[[str], None]) -> None:
        self._group = group
        self._clock = clock
        self._watch = ClockWatch(f"the Collector's host {host}", limit_s or 1e9, warn)
        self._nearest = Nearest()
        self._compared_us = 0
        self.error_us: int | None = None
        """How far `ahead_us` may be off."""
        self.arrivals = Arrivals()
        self.skew_us: int | None = None
        """How far our clock is ahead of the source database's, by the last heartbeat; None without one."""

    @property
    def ahead_us(self) -> int | None:
        """How far the Collector's clock is ahead of ours; None: not known."""
        return self._watch.ahead_us

    def greeted(self, theirs_us: int, asked_us: int) -> None:
        """A session begins, maybe with another host than the last one; 0: it does not tell its time.

        What came later than LONGEST_WAY_US allows was not so long on its way: the Collector was mending its trail.
        """
        self._nearest.clear()
        self._watch.found(None)
        self.error_us = None
        if theirs_us:
            self.answered(theirs_us, asked_us, longest_us=2 * LONGEST_WAY_US)

    def answered(self, theirs_us: int, asked_us: int, longest_us: int = 1 << 62) -> None:
        """The Collector has told its time; it was asked at `asked_us` of our monotonic clock."""
        now_us = self._clock.now_us()  # before the other clock is looked at: then no pause between makes us too sure
        took_us = min(int(self._clock.monotonic() * 1_000_000) - asked_us, longest_us)
        if took_us < 0:
            return  # no question of ours
        self._compared_us = now_us
        best = self._nearest.add(Difference.of(theirs_us, now_us, took_us))
        self.error_us = best.error_us
        self._watch.found(best.ahead_us, best.error_us)

    def clocks(self) -> dict[str, int]:
        """For STATUS: the difference, how far it may be off, and how long ago it was looked at; empty if unknown."""
        if self.ahead_us is None or self.error_us is None:
            return {}
        age = max(0, self._clock.now_us() - self._compared_us)
        return {"ahead_us": self.ahead_us, "error_us": self.error_us, "age_us": age}

    def stamp(self, beat: Beat) -> Beat:
        """A heartbeat as it is sent."""
        self.skew_us = beat.skew_us
        return beat.stamped(Stamp("PUMP", self._group, self._clock.now_us(), self.ahead_us))

    def passed(self, beat: Beat) -> None:
        """The Collector has it, synced."""
        done = replace(beat.stamps[-1], us=self._clock.now_us())
        self.arrivals.met(replace(beat, stamps=(*beat.stamps[:-1], done)))
