"""What a pump adds to heartbeats: its stamp, with the difference between the Collector's clock and ours.

Rule: the stamp is put on when the block is sent, and only what goes out carries it: a block that is sent again, after a
lost link, is stamped again, and the Collector has it once. What the pump itself remembers is when it was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trails.heartbeat import Arrivals, Beat, Stamp
from trails.runtime.clock import Clock
from trails.runtime.clockdiff import ClockWatch

LONGEST_WAY_US = 250_000
"""A WELCOME that comes later than twice this was not so long on its way: the Collector was mending its trail."""


class PumpHeartbeats:
    """One pump's part in heartbeats. `host`: the remote one; `limit_s`: CLOCKDIFFSECS, 0 for never."""

    def __init__(self, group: str, host: str, clock: Clock, limit_s: float, warn: Callable[[str], None]) -> None:
        self._group = group
        self._clock = clock
        self._watch = ClockWatch(f"the Collector's host {host}", limit_s or 1e9, warn)
        self.arrivals = Arrivals()
        self.skew_us: int | None = None
        """How far our clock is ahead of the source database's, by the last heartbeat; None without one."""

    @property
    def ahead_us(self) -> int | None:
        """How far the Collector's clock is ahead of ours; None: not known."""
        return self._watch.ahead_us

    def compared(self, ahead_us: int, error_us: int) -> None:
        """The Collector has told its time."""
        self._watch.found(ahead_us, error_us)

    def stamp(self, beat: Beat) -> Beat:
        """A heartbeat as it is sent."""
        self.skew_us = beat.skew_us
        return beat.stamped(Stamp("PUMP", self._group, self._clock.now_us(), self.ahead_us))

    def passed(self, beat: Beat) -> None:
        """The Collector has it, synced."""
        done = replace(beat.stamps[-1], us=self._clock.now_us())
        self.arrivals.met(replace(beat, stamps=(*beat.stamps[:-1], done)))
