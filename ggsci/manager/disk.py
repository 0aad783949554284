"""The Manager's part of the disk guard: it warns, has old files purged at once, and starts nothing on a full disk.

Each process guards itself (trails.runtime.process.diskguard); the Manager looks on the same bounds for the whole home:

    below DISKWARN     a WARNING once; purging at once, and again each PURGE_SECONDS until there is space
    below DISKSTOP     no Extract and no Collector is started by a rule or for a pump; pumps and Replicats are, for what
                       they have read can be purged

Started again they are at a tenth more than they ended at, so that a disk just at its bound does not start and end them
in turns. And until all is well again, and for FIRST_SECONDS more, no writer is started while a reader of its trail is
on its way up: else it would have filled the disk anew before anybody reads. A disk that was enlarged is well at once,
and the Manager may have been started anew with it: so `dirpcs/MGR.full` stands there from a full disk on until then.
Where it can't be written (not one byte, not one inode), only this Manager knows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from trails.clock import Clock
from trails.errors import DiskFullError, GateError
from trails.position import TrailName
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.process.diskguard import DiskGuard, Limits, Space, folders_of
from trails.runtime.report.report import Log

LOOK_SECONDS = 2.0
PURGE_SECONDS = 60.0
FIRST_SECONDS = 60.0
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
        self._full_path = os.path.join(home.folder("dirpcs"), "MGR.full")
        self._was_full = home.fs.exists(self._full_path)
        self._readers_first_until = clock.monotonic() + FIRST_SECONDS
        self.reader_to_come: Callable[[TrailName], str] = lambda _trail: ""
        """Which reader of a trail is about to run, for people; empty if none is (the Manager's children know)."""
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
        states = [space.state for space in self.spaces()]
        low = any(state != "OK" for state in states)
        self._remember(now, full="STOP" in states, low=low)
        if not low:
            self._purge_at = now
            return False
        if now < self._purge_at:
            return False
        self._purge_at = now + PURGE_SECONDS
        return True

    def _remember(self, now: float, *, full: bool, low: bool) -> None:
        if full or low:
            self._was_full, self._readers_first_until = full or self._was_full, now + FIRST_SECONDS
        elif now >= self._readers_first_until:
            self._was_full = False
        with contextlib.suppress(GateError, OSError):
            if self._was_full != self._home.fs.exists(self._full_path):
                if self._was_full:
                    self._home.fs.create(self._full_path).close()
                else:
                    self._home.fs.remove(self._full_path)

    def spaces(self) -> list[Space]:
        """As they stand now; empty if the system does not tell."""
        try:
            return self._limits.look(folders_of(self._home))
        except OSError:
            return []  # the guard has said so

    def no_space(self, group: Registration | None = None, trail: TrailName | None = None) -> str:
        """Why this group, or a Collector for this trail, may not be started now; empty if it may."""
        written = [] if group is None else group.writes
        if group is not None and not written:
            return ""
        try:
            spaces = self._limits.look(folders_of(self._home, group))
        except OSError:
            return ""
        if short := [space for space in spaces if space.free < _enough(space.stop)]:
            # Noted now, not with the next look: a moment later there may be no byte left to note it with.
            self._remember(self._clock.monotonic(), full=True, low=True)
            return f"{short[0]}, less than DISKSTOP in GLOBALS allows"
        if not self._was_full:
            return ""
        trails = [TrailName.parse(path, self._home.root) for path in written] + ([trail] if trail else [])
        return next(filter(None, map(self.reader_to_come, trails)), "")

    def to_json(self) -> dict[str, Any]:
        """For STATUS: `disk` is that of dirdat, `disks` are all."""
        rows = [space.to_json() for space in self.spaces()]
        return {"disk": rows[0] if rows else None, "disks": rows}
