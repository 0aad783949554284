"""Test doubles that ship with the kernel; imported by tests only.

FaultFs is a file system in memory that counts calls, crashes at the n-th, and then forgets what was not synced, in
the ways that real machines do; `left()` shows at any call what a crash there would leave. FakeClock stands still until
told otherwise.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from trails.errors import LockedError, OperatorError
from trails.fs import File, Lock, Watch
from trails.host import THIS_HOST, Host, RealSignal


class Crash(BaseException):
    """The machine stopped here. A BaseException, so that no handler for errors takes it for one."""


class After(Enum):
    """What is found after a crash."""

    KILL = "the process died, the system went on: all that was written is there"
    POWER = "the power went: only what was synced is there"
    TORN = "the power went: of unsynced bytes the first half is there"
    HOLES = "the power went: of unsynced bytes the last half is there, zeros before it"
    ZEROS = "the power went: the length is there, the last half of the unsynced bytes is zeros"


@dataclass
class Inode:
    """`data` is what processes see, `disk` what a power loss leaves; `dirty` are the ranges between the two."""

    data: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)
    dirty: list[tuple[int, int]] = field(default_factory=list)
    holder: object = None
    """Who holds it against others, where that is modelled."""
    touched_us: int | None = None
    """When a process said that it was written."""

    def put(self, offset: int, data: bytes) -> None:
        """Write, as processes see it."""
        self.data[offset : offset + len(data)] = data
        self.dirty.append((offset, offset + len(data)))

    def sync(self) -> None:
        """What was written is on the disk."""
        del self.disk[len(self.data) :]
        for start, end in self.dirty:
            self.disk.extend(bytes(max(0, min(end, len(self.data)) - len(self.disk))))
            self.disk[start:end] = self.data[start:end]
        self.dirty.clear()

    def after(self, how: After) -> None:
        """What a crash has left."""
        if how is not After.KILL:
            self.data = self._left(how)
            self.disk = bytearray(self.data)
        # After a mere kill the pages are still the system's to write, but a failed sync may have made them look clean.

    def _left(self, how: After) -> bytearray:
        kept, lost = len(self.disk), len(self.data) - len(self.disk)
        half = kept + lost // 2
        if how is After.POWER or lost <= 0:
            return bytearray(self.disk)
        if how is After.TORN:
            return self.disk + self.data[kept:half]
        if how is After.HOLES:
            return self.data[:kept] + bytes(half - kept) + self.data[half:]
        return self.disk + self.data[kept:half] + bytes(len(self.data) - half)


@dataclass(frozen=True)
class TornWrite:
    """Bytes on their way into a file."""

    inode: Inode
    offset: int
    data: bytes


@lru_cache(4096)
def folder_of(path: str) -> str:
    """Where it lies; asked so often, of so few paths, that the answer is kept."""
    return os.path.dirname(path)


class FaultFs:
    """The file system that crashes. `crash_at`: the call (1, 2, ...) that crashes instead of running; None: none does.

    `fail`: called with (operation, path) before each call; it may raise an OperatorError (EIO, disk full).
    `watch`: called before that, with what the call is; it may look at what is `left()` by a crash at this call.
    """

    def __init__(self, crash_at: int | None = None, host: Host = THIS_HOST) -> None:
        self.host = host
        self.calls = 0
        self.crash_at = crash_at
        self.fail: Callable[[str, str], None] = lambda _operation, _path: None
        self.watch: Callable[[str], None] | None = None
        self.appends = False
        """Whether the call that `fail` is asked about makes a file longer: what a full disk refuses."""
        self._torn: TornWrite | None = None
        self._log: list[tuple[str, str]] = []
        self._names: dict[str, Inode] = {}
        self._synced_names: dict[str, Inode] = {}
        self._locks: set[str] = set()
        self._generation = 0

    def reboot(self, how: After) -> None:
        """Be the file system that the next process finds; every open file and lock of before is void."""
        if how is not After.KILL:
            self._names = dict(self._synced_names)
        for inode in self._names.values():
            inode.after(how)
        self._synced_names = dict(self._names)
        self._locks.clear()
        self._generation += 1
        self.crash_at = None

    def left(self, how: After) -> FaultFs:
        """A file system of its own: this one, rebooted after a crash now, or in the call that is being watched."""
        twins: dict[int, Inode] = {}

        def twin(inode: Inode) -> Inode:
            made = twins.get(id(inode))
            if made is None:
                made = twins[id(inode)] = Inode(bytearray(inode.data), bytearray(inode.disk), list(inode.dirty))
            return made

        other = FaultFs()
        other._names = {path: twin(inode) for path, inode in list(self._names.items())}
        other._synced_names = {path: twin(inode) for path, inode in list(self._synced_names.items())}
        if self._torn is not None and id(self._torn.inode) in twins:
            twins[id(self._torn.inode)].put(self._torn.offset, self._torn.data)
        other.reboot(how)
        return other

    def image(self) -> tuple[tuple[str, bytes, bytes], ...]:
        """All that the next process can find here, and what of it a loss of power would leave."""
        return tuple(sorted((path, bytes(inode.data), bytes(inode.disk)) for path, inode in self._names.items()))

    def corrupt(self, path: str, change: Callable[[bytearray], None]) -> None:
        """Damage a file behind everybody's back."""
        inode = self._names[path]
        change(inode.data)
        inode.disk = bytearray(inode.data)

    def take_away(self, path: str, *, by: bytes | None = None) -> None:
        """Remove a file behind everybody's back, or put another one in its place; who has it open keeps what it had."""
        other = None if by is None else Inode(bytearray(by), bytearray(by))
        for names in (self._names, self._synced_names):
            names.pop(path, None)
            if other is not None:
                names[path] = other

    def holds(self, path: str, inode: Inode) -> bool:
        """Whether the path leads to this file."""
        return self._names.get(path) is inode

    def links(self, inode: Inode) -> int:
        """How many names it has."""
        return sum(each is inode for each in self._names.values())

    @property
    def log(self) -> list[str]:
        """The calls so far, as "write lt000000000"."""
        return [f"{operation} {os.path.basename(path)}" for operation, path in self._log]

    def content(self, path: str) -> bytes:
        """A file's bytes as they are now."""
        return bytes(self._names[path].data)

    def called(self, operation: str, path: str, torn: TornWrite | None = None) -> None:
        """Count a call, and crash or fail if it is its turn; then of a write only what is `torn` is done."""
        self.calls += 1
        self._log.append((operation, path))
        self.appends = torn is not None
        if self.watch is not None:
            self._torn = torn
            self.watch(f"call {self.calls}: {operation} {path}")
            self._torn = None
        try:
            if self.crash_at is not None and self.calls >= self.crash_at:
                raise Crash(f"call {self.calls}: {operation} {path}")
            self.fail(operation, path)
        except (Crash, OperatorError):
            if torn is not None:
                torn.inode.put(torn.offset, torn.data)
            raise

    # Fs

    def create(self, path: str) -> File:
        self.called("create", path)
        if path in self._names:
            raise FileExistsError(path)
        self._names[path] = Inode()
        return OpenFile(self, path, self._names[path])

    def open(self, path: str, *, write: bool = False) -> File:  # noqa: ARG002  # modes are not modelled
        self.called("open", path)
        if path not in self._names:
            raise FileNotFoundError(path)
        return OpenFile(self, path, self._names[path])

    def rename(self, source: str, target: str) -> None:
        self.called("rename", target)
        if source not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", source)
        self._names[target] = self._names.pop(source)

    def remove(self, path: str) -> None:
        self.called("remove", path)
        self._names.pop(path, None)

    def listdir(self, folder: str) -> list[str]:
        self.called("listdir", folder)
        begin = f"{folder}/" if folder else ""
        names = [path[len(begin) :] for path in self._names if path.startswith(begin)]
        return [name for name in names if "/" not in name]

    def exists(self, path: str) -> bool:
        self.called("exists", path)
        return path in self._names

    def makedirs(self, folder: str) -> None:
        """Nothing: folders are not modelled, only names in them."""
        self.called("makedirs", folder)

    def sync_dir(self, folder: str) -> None:
        self.called("sync_dir", folder)
        kept = {p: i for p, i in self._synced_names.items() if folder_of(p) != folder}
        self._synced_names = kept | {p: i for p, i in self._names.items() if folder_of(p) == folder}

    def lock(self, path: str) -> Lock:
        self.called("lock", path)
        if path in self._locks:
            raise LockedError(f"{path}: held by process (test)", hint="Stop that process first")
        self._locks.add(path)
        return _FaultLock(self, path)

    def lock_holder(self, path: str) -> int | None:
        return 0 if path in self._locks else None

    def touch(self, path: str, now_us: int) -> bool:
        self.called("touch", path)
        if path not in self._names:
            return False
        self._names[path].touched_us = now_us
        return True

    def touched_us(self, path: str) -> int | None:
        return self._names[path].touched_us if path in self._names else None

    def watch_folder(self, folder: str, tell: Callable[[str], None]) -> Watch:  # noqa: ARG002  # nothing to tell
        """One that signals nothing: whoever watches also looks from time to time."""
        return RealSignal()

    def release(self, path: str, generation: int) -> None:
        """Let a lock go, if it was taken since the last reboot."""
        if generation == self._generation:
            self._locks.discard(path)

    @property
    def generation(self) -> int:
        """Number of reboots so far; what was opened before the last one is void."""
        return self._generation


class _FaultLock:
    def __init__(self, fs: FaultFs, path: str) -> None:
        self._fs, self._path, self._generation = fs, path, fs.generation

    def keep(self) -> bool:
        return False  # locks have no files here

    def release(self) -> None:
        self._fs.release(self._path, self._generation)


class OpenFile:
    """One of its files, as one process has it open."""

    def __init__(self, fs: FaultFs, path: str, inode: Inode) -> None:
        self._fs, self._path, self._inode, self._generation = fs, path, inode, fs.generation

    def _called(self, operation: str, torn: TornWrite | None = None) -> None:
        if self._generation != self._fs.generation:
            raise Crash(f"{operation} {self._path}: this process is dead")
        self._fs.called(operation, self._path, torn)

    def read_at(self, offset: int, size: int) -> bytes:
        self._called("read")
        return bytes(self._inode.data[offset : offset + size])

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        # An append may stop half-way; the durable end, inside one sector, is never torn.
        appends = offset >= len(self._inode.data)
        self._called("write", TornWrite(self._inode, offset, bytes(data)[: len(data) // 2]) if appends else None)
        self._inode.put(offset, bytes(data))

    def size(self) -> int:
        self._called("size")
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._called("truncate")
        del self._inode.data[size:]

    def datasync(self) -> None:
        try:
            self._called("datasync")
        except OperatorError:
            self._inode.dirty.clear()  # as Linux does: the pages look clean, the bytes are nowhere
            raise
        self._inode.sync()

    def is_at(self, path: str) -> bool:
        # No call of its own: a look leaves nothing that the call before it did not leave.
        return self._fs.holds(path, self._inode)

    def announce(self) -> None:
        return  # nobody watches

    def links(self) -> int:
        return self._fs.links(self._inode)

    def hold(self) -> None:
        return  # as with keep()

    def close(self) -> None:
        return


class FakeClock:
    """Time that moves only when told to."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        """Wall-clock time, us since 1970 UTC."""
        return self._now_us

    def monotonic(self) -> float:
        """Seconds; only differences mean anything."""
        return self._now_us / 1e6

    def sleep(self, seconds: float) -> None:
        """Move time on."""
        self._now_us += int(seconds * 1e6)
