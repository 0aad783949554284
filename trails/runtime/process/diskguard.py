"""The disk guard: whoever fills a file system stops before it is full, cleanly, and says so long before.

For each file system that a process writes to (its trail's folder, dirdat, dirchk, dirtmp), by its free bytes:

    DISKWARN <= free              all is well
    DISKSTOP <= free < DISKWARN   a WARNING, once until a tenth more than DISKWARN is free again
    free < DISKSTOP               who writes trails (Extract, Collector) ends: last save, trail synced, exit code 3
                                  who reads them (pump, Replicat) goes on

The same for free inodes, by bounds of their own: a file system without them takes no new file, however many bytes are
free. DISKWARN 0 and DISKSTOP 0 turn these off too.

Readers go on because they are the cure: what every reader is past can be purged. So the space below DISKSTOP is theirs,
for checkpoints, reports and status, and not even its end stops them: each of these can be done without (report.py,
checkpoint.py). The bound holds only if nobody outruns it. A writer looks each second, and sooner: before each new trail
file, whenever it has written a share of what is left above the bound, and before what is left is gone at the speed at
which it went last. So near the bound it looks after each few hundred kilobytes.

Each process guards itself, so none of this needs a Manager. Exit code 3 says that waiting can mend it: AUTORESTART
brings the process back, and a Manager waits with that until there is space.
A write that fails all the same (ENOSPC, quota) is a DiskFullError too, and takes the road of a crash.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trails.errors import DiskFullError, OperatorError
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.language.freespace import DEFAULT_STOP, DEFAULT_WARN, Bound, human
from trails.runtime.language.params import Values
from trails.runtime.report.report import Log

LOW, ENOUGH, UNKNOWN = "TG-01840", "TG-01841", "TG-01842"

EVERY_SECONDS = 1.0
SOON_SECONDS = 0.02
SHARE = 4
LEAST_BYTES = 256 << 10


FILES_WARN = Bound(10, percent=True, at_most=10_000)
FILES_STOP = Bound(2, percent=True, at_most=1_000)
BYTES, FILES = "bytes", "files"


@dataclass(frozen=True, slots=True)
class Space:
    """A file system as it stands now, in bytes or in files; `warn` and `stop` are its bounds, 0 if there is none."""

    path: str
    free: int
    size: int
    warn: int
    stop: int
    unit: str = BYTES

    @property
    def state(self) -> str:
        """OK, WARN or STOP."""
        if self.free < self.stop:
            return "STOP"
        return "WARN" if self.free < self.warn else "OK"

    @property
    def recovered(self) -> bool:
        """Is so much free again that a new shortage is worth a new warning?"""
        return self.free >= self.warn + self.warn // 10

    def floor(self, *, writes_trail: bool) -> int:
        """Below it a process of this kind ends."""
        return self.stop if writes_trail else 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"state": self.state}

    def __str__(self) -> str:
        return f"{self.path}: {free_of(self.free, self.size, self.unit)}"


@dataclass(frozen=True, slots=True)
class Limits:
    """DISKWARN and DISKSTOP of a home."""

    warn: Bound = DEFAULT_WARN
    stop: Bound = DEFAULT_STOP

    @classmethod
    def of(cls, found: Values) -> Limits:
        """As GLOBALS says."""
        return cls(found.one("DISKWARN", DEFAULT_WARN), found.one("DISKSTOP", DEFAULT_STOP))

    def look(self, folders: Iterable[str]) -> list[Space]:
        """The file systems of these folders, each once; a folder that is not there yet is left out.

        Raises OSError if the system does not tell.
        """
        found: dict[int, list[Space]] = {}
        for folder in folders:
            try:
                device = os.stat(folder).st_dev
            except FileNotFoundError:
                continue
            if device not in found:
                found[device] = self._spaces(folder)
        return [space for spaces in found.values() for space in spaces]

    def check(self, folders: Iterable[str]) -> None:
        """Raise OperatorError if a bound is more than its file system has in all; OSError as `look`.

        Only for a start: a file system may shrink later (a pool that others fill too), and that is a full disk.
        """
        for space in (each for each in self.look(folders) if each.unit == BYTES):
            for name, bound in (("DISKSTOP", self.stop), ("DISKWARN", self.warn)):
                if bound.bytes_of(space.size) >= space.size > 0:
                    raise OperatorError(
                        f"{name} {bound} in GLOBALS: the file system of {space.path} has only {human(space.size)} "
                        "in all",
                        hint="Give less, or a percentage",
                    )

    def _spaces(self, folder: str) -> list[Space]:
        # As df counts: what only root may use is neither free nor part of the whole.
        system = os.statvfs(folder)
        free = system.f_bavail * system.f_frsize
        size = (system.f_blocks - system.f_bfree + system.f_bavail) * system.f_frsize
        stop = self.stop.bytes_of(size)
        spaces = [
            Space(folder, free, size, max(stop + stop // 2, self.warn.bytes_of(size)) if self.warn.amount else 0, stop)
        ]
        files = system.f_files - system.f_ffree + system.f_favail
        if files > 0:  # some file systems make inodes as they need them
            warn, stop = (
                least.bytes_of(files) if bound.amount else 0
                for bound, least in ((self.warn, FILES_WARN), (self.stop, FILES_STOP))
            )
            spaces.append(Space(folder, system.f_favail, files, warn, stop, FILES))
        return spaces


def folders_of(home: Home, registration: Registration | None = None) -> list[str]:
    """Where a home's processes write; the trails that a group writes on this host first."""
    from trails.position import TrailName

    folders = [TrailName.parse(path, home.root).folder for path in (registration.writes if registration else ())]
    return [*folders, *map(home.folder, ("dirdat", "dirchk", "dirtmp"))]


class DiskGuard:
    """The guard of one process. Call it as a chore of the main loop, or ask `check()`."""

    def __init__(
        self,
        folders: Sequence[str],
        limits: Limits,
        log: Log,
        *,
        writes_trail: bool,
        stop: Callable[[DiskFullError], None],
    ) -> None:
        self._folders = folders
        self._limits = limits
        self._log = log
        self._writes_trail = writes_trail
        self._stop = stop
        self.written: Callable[[], int] = lambda: 0
        """How many bytes the process has written so far."""
        self._look_at_bytes = 0
        self._left = 1 << 62
        self._looked: tuple[float, int] | None = None  # when, and how many bytes were left above the floor
        self._warned: set[tuple[str, str]] = set()
        self._blind = False
        self._due = 0.0
        self._stopped = False

    def __call__(self, now: float) -> None:
        """Look when it is time; below the floor ask the process to end, once."""
        if not self._stopped and (now >= self._due or self.written() >= self._look_at_bytes):
            self.look()
            self._plan(now)

    def look(self) -> None:
        """Look now, as before each new trail file; below the floor ask the process to end, once."""
        if not self._stopped and (error := self.check()):
            self._stopped = True
            self._stop(error)

    def _plan(self, now: float) -> None:
        """When to look again: see the module."""
        left, seconds = self._left, EVERY_SECONDS
        if self._looked is not None and now > self._looked[0] and left < self._looked[1]:
            speed = (self._looked[1] - left) / (now - self._looked[0])
            seconds = min(seconds, max(SOON_SECONDS, left / speed / SHARE))
        self._looked = now, left
        self._due = now + seconds
        self._look_at_bytes = self.written() + max(LEAST_BYTES, left // SHARE)

    def at_start(self) -> None:
        """Raise OperatorError if a bound can never be met, DiskFullError if the process would have to end at once."""
        try:
            self._limits.check(self._folders)
        except OSError:
            pass  # told below
        if error := self.check():
            raise error

    def check(self) -> DiskFullError | None:
        """Warn of what is getting low; the error that the process must end with, if it must."""
        ends: DiskFullError | None = None
        self._left = 1 << 62
        for space in self._look():
            self._tell(space)
            floor = space.floor(writes_trail=self._writes_trail)
            if space.unit == BYTES:
                self._left = min(self._left, max(0, space.free - floor))
            if space.free < floor:
                ends = ends or full(space)
        return ends

    def _look(self) -> list[Space]:
        try:
            spaces = self._limits.look(self._folders)
        except OSError as error:
            # Not knowing is no reason to stop: a write that fails will.
            if not self._blind:
                self._log.warning(UNKNOWN, f"Free space is not known: {error}. The disk guard waits until it is.")
            self._blind = True
            return []
        self._blind = False
        return spaces

    def _tell(self, space: Space) -> None:
        what = space.path, space.unit
        if what in self._warned:
            if space.recovered:
                self._warned.discard(what)
                self._log.info(ENOUGH, f"{space}: enough again.", **space.to_json())
        elif space.free < space.warn:
            self._warned.add(what)
            self._log.warning(LOW, low(space), **space.to_json())


def low(space: Space) -> str:
    """The warning."""
    after = f"; at {amount(space.stop, space.unit)} (DISKSTOP) Extracts and Collectors stop" if space.stop else ""
    hint = "Make space, or see why files are kept: SEND MANAGER GETPURGEOLDEXTRACTS"
    return f"{space}, less than DISKWARN ({amount(space.warn, space.unit)}){after}. {hint}"


def full(space: Space) -> DiskFullError:
    """What a process ends with."""
    return DiskFullError(
        f"{space}, less than DISKSTOP ({amount(space.stop, space.unit)}); ended before the disk is full",
        hint="Make space, then START it; nothing acknowledged is lost. See docs/recovery.md#full-disk",
    )


def free_of(free: int, size: int, unit: str) -> str:
    """`1.5 GB of 20.0 GB free`, `1,200 of 100,000 files free`."""
    return f"{human(free)} of {human(size)} free" if unit == BYTES else f"{free:,} of {size:,} files free"


def amount(count: int, unit: str) -> str:
    """A bound as people read it: `1.5 GB`, `1,200 files`."""
    return human(count) if unit == BYTES else f"{count:,} files"
