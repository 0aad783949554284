"""The Manager's part of the disk guard: it warns, has old files purged at once, and starts nothing on a full disk.

Each process guards itself (trails.runtime.diskguard); the Manager looks on the same bounds for the whole home:

    below DISKWARN     a WARNING once; purging at once, and again each PURGE_SECONDS until there is space
    below DISKSTOP     no Extract and no Collector is started by a rule or for a pump; pumps and Replicats are, as long
                       as a tenth of it is free, for what they have read can be purged

Started again they are at a tenth more than they ended at, so that a disk just at its bound does not start and end them
in turns.
"""

from __future__ import annotations

from typing import Any

from trails.errors import DiskFullError
from trails.runtime.clock import Clock
from trails.runtime.diskguard import DiskGuard, Limits, Space, folders_of
from trails.runtime.home import Home
from trails.runtime.registration import Registration
from trails.runtime.report import Log

LOOK_SECONDS = 2.0
PURGE_SECONDS = 60.0
MOST_MORE = 256 << 20


def _enough(floor: int) -> int:
    """So much must be free again, where less than `floor` ends a process."""
    return floor + min(floor // 10, MOST_MORE)


def _nothing(_error: DiskFullError) -> None:
    """The Manager itself goes on: it is who can purge."""


class Disk:
    """The file systems of the home, looked at now and then."""

    def __init__(self, home: Home, limits: Limits, log: Log, clock: Clock) -> None:
        self._home = home
        self._log = log
        self._clock = clock
        self._due = self._purge_at = clock.monotonic()
        self.refresh(limits)

    def refresh(self, limits: Limits) -> None:
        """REFRESH MANAGER: GLOBALS was read anew."""
        self._limits = limits
        self._guard = DiskGuard(folders_of(self._home), limits, self._log, writes_trail=True, stop=_nothing)

    def step(self) -> bool:
        """Look if it is time; should files be purged at once?"""
        now = self._clock.monotonic()
        if now < self._due:
            return False
        self._due = now + LOOK_SECONDS
        self._guard.check()
        low = any(space.state != "OK" for space in self.spaces())
        if not low:
            self._purge_at = now
            return False
        if now < self._purge_at:
            return False
        self._purge_at = now + PURGE_SECONDS
        return True

    def spaces(self) -> list[Space]:
        """As they stand now; empty if the system does not tell."""
        try:
            return self._limits.look(folders_of(self._home))
        except OSError:
            return []  # the guard has said so

    def no_space(self, group: Registration | None = None) -> str:
        """Why this group, or a Collector, may not be started now; empty if it may."""
        writes_trail = group is None or any(trail.type == "EXTTRAIL" for trail in group.trails)
        try:
            spaces = self._limits.look(folders_of(self._home, group))
        except OSError:
            return ""
        short = [space for space in spaces if space.free < _enough(space.floor(writes_trail=writes_trail))]
        return f"{short[0]}, less than DISKSTOP in GLOBALS allows" if short else ""

    def to_json(self) -> dict[str, Any]:
        """For STATUS: `disk` is that of dirdat, `disks` are all."""
        rows = [space.to_json() for space in self.spaces()]
        return {"disk": rows[0] if rows else None, "disks": rows}
