"""A machine's disk: FaultFs, but each call is an edge of the world, and locks belong to processes.

A kill takes nothing of what was written. A loss of power takes what was not synced: of each folder the names together,
of each file the bytes, each in its own way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trails.errors import DiskFullError, LockedError, OperatorError
from trails.fs import File, Lock, Watch
from trails.testing import After, Crash, FaultFs, Inode, OpenFile, TornWrite, folder_of

if TYPE_CHECKING:
    from tests.world.fibers import Proc
    from tests.world.machines import Machine

WAYS = (After.POWER, After.TORN, After.HOLES, After.ZEROS)
FAILING = frozenset(("write", "datasync", "create", "rename", "sync_dir"))
INJECTED = "(injected)"


class Disk(FaultFs):
    """See Fs."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(host=machine)
        self.world, self.machine = machine.world, machine
        self.owners: dict[str, DiskLock] = {}
        self.watches: list[SimWatch] = []
        self.trouble: tuple[str, int, float] | None = None
        """(what: full, EIO; until when; the share of calls that fail)."""
        self.next_sync_fails = False

    def called(self, operation: str, path: str, torn: TornWrite | None = None) -> None:
        try:
            self.world.edge(operation, path)
            if operation == "datasync" and self.world.plan.sizes.sync and self.world.current is not None:
                self.world.wait(lambda: False, self.world.plan.sizes.sync)  # and only then it is on the disk
            if operation in FAILING and self.world.current is not None:
                self._fail(operation, path)
        except (Crash, OperatorError):
            if torn is not None and self.world.chance(0.5):
                torn.inode.put(torn.offset, torn.data)
            raise
        if self.watches and operation in ("write", "rename", "create"):
            folder = folder_of(path)
            for watch in self.watches:
                watch.changed = watch.changed or watch.folder == folder

    def _fail(self, operation: str, path: str) -> None:
        if self.next_sync_fails and operation == "datasync":
            self.next_sync_fails = False
            self._refuse("EIO", operation, path, "sync fails")
        if self.trouble is None:
            return
        what, until, share = self.trouble
        if self.world.now >= until:
            self.trouble = None
        elif self.world.chance(share):
            self._refuse(what, operation, path, "disk")

    def _refuse(self, what: str, operation: str, path: str, fault: str) -> None:
        self.world.met(fault)
        self.world.windows.disk(what, operation, path)
        self.world.tell(self.machine.name, f"{operation} {os.path.basename(path)} fails: {what}")
        if what == "full":
            raise DiskFullError(f"cannot {operation} {path}: No space left on device {INJECTED}")
        raise OperatorError(f"cannot {operation} {path}: Input/output error {INJECTED}")

    def create(self, path: str) -> File:
        self.called("create", path)
        if path in self._names:
            raise FileExistsError(path)
        self._names[path] = Inode()
        return DiskFile(self, path, self._names[path])

    def open(self, path: str, *, write: bool = False) -> File:  # modes are not modelled
        self.called("open", path)
        if path not in self._names:
            raise FileNotFoundError(path)
        return DiskFile(self, path, self._names[path])

    def exists(self, path: str) -> bool:
        self.called("exists", path)
        return path in self._names or path in self.machine.folders

    def lock(self, path: str) -> Lock:
        self.called("lock", path)
        return DiskLock(self, path)

    def lock_holder(self, path: str) -> int | None:
        self.called("lock_holder", path)
        owner = self.owners.get(path)
        return None if owner is None else owner.proc.pid if owner.proc else 0

    def watch_folder(self, folder: str, tell: Callable[[str], None]) -> Watch:  # nothing to tell
        return SimWatch(self, folder)

    @property
    def names(self) -> Mapping[str, Inode]:
        """What processes see."""
        return self._names

    @property
    def synced_names(self) -> Mapping[str, Inode]:
        """What a loss of power leaves for sure."""
        return self._synced_names

    def lose_power(self) -> list[str]:
        """What becomes of what was not synced; told in words."""
        draw, told = self.world.draws["disk"], []
        for folder in sorted({folder_of(path) for path in (*self._names, *self._synced_names)}):
            now, synced = (
                {path: inode for path, inode in names.items() if folder_of(path) == folder}
                for names in (self._names, self._synced_names)
            )
            if now != synced and draw.random() < 0.4:
                told.append(f"{folder} keeps names that were not synced")
                for path in synced:
                    del self._synced_names[path]
                self._synced_names |= now
            elif now != synced:
                told.append(f"{folder} is as it was synced")
        for path in sorted(self._synced_names):
            inode = self._synced_names[path]
            if inode.dirty:
                how = draw.choice(WAYS)
                told.append(f"{os.path.basename(path)}: {how.name}")
                inode.after(how)
                inode.dirty.clear()
        self.reboot(After.POWER)
        self.owners.clear()
        self.watches.clear()
        return told

    def died(self, proc: Proc) -> None:
        """The system lets go of what a dead process held."""
        for path, lock in list(self.owners.items()):
            if lock.proc is proc:
                del self.owners[path]
        for inode in self._names.values():
            if isinstance(inode.holder, DiskFile) and inode.holder.proc is proc:
                inode.holder = None
        self.watches = [watch for watch in self.watches if watch.proc is not proc]

    def forget_locks(self, folder: str) -> list[str]:
        """Somebody removes the files of its locks, which their holders do not notice."""
        gone = [path for path in self.owners if folder_of(path) == folder]
        for path in gone:
            del self.owners[path]
        return gone

    def files_of(self, folder: str) -> dict[str, bytes]:
        """A copy of its files, but for those that are just made."""
        paths = [path for path in self._names if folder_of(path) == folder and not path.endswith(".tmp")]
        return {path: bytes(self._names[path].data) for path in paths}

    def put_back(self, files: dict[str, bytes]) -> None:
        """Somebody replaces files by such a copy, durably."""
        for path, data in files.items():
            self.take_away(path, by=data)

    def empty(self, folder: str) -> list[str]:
        """Somebody removes every file of a folder, durably."""
        gone = [path for path in self._names if folder_of(path) == folder]
        for path in gone:
            self.take_away(path)
        return gone


class DiskFile(OpenFile):
    """An open file of one process, which it may hold against others."""

    def __init__(self, disk: Disk, path: str, inode: Inode) -> None:
        super().__init__(disk, path, inode)
        current = disk.world.current
        self.proc = current.proc if current is not None else None
        self._machine = disk.machine

    def write_at(self, offset: int, data: Any) -> None:
        super().write_at(offset, data)
        self._inode.touched_us = self._machine.now_us()

    def hold(self) -> None:
        if self._inode.holder not in (None, self):
            raise LockedError(f"{self._path}: another process still writes it")
        self._inode.holder = self

    def close(self) -> None:
        if self._inode.holder is self:
            self._inode.holder = None


class DiskLock:
    """A lock of one process."""

    def __init__(self, disk: Disk, path: str) -> None:
        current = disk.world.current
        self._disk, self._path, self.proc = disk, path, current.proc if current is not None else None
        if path in disk.owners:
            holder = disk.owners[path].proc
            raise LockedError(f"{path}: held by {holder.name if holder else 'nobody'}", hint="Stop that process first")
        disk.owners[path] = self

    def keep(self) -> bool:
        """See Lock."""
        owner = self._disk.owners.get(self._path)
        if owner is self:
            return False
        if owner is not None:
            raise LockedError(f"{self._path}: held by another process now", hint="Stop that process first")
        self._disk.owners[self._path] = self
        return True

    def release(self) -> None:
        """See Lock."""
        if self._disk.owners.get(self._path) is self:
            del self._disk.owners[self._path]


class SimWatch:
    """See Watch."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self.folder, self.changed, self._disk = folder, False, disk
        self.proc: Any = disk.world.current and disk.world.current.proc
        self._number = disk.world.descriptor(self)
        disk.watches.append(self)

    def readable(self) -> bool:
        return self.changed

    def fileno(self) -> int:
        return self._number

    def clear(self) -> None:
        self.changed = False

    def close(self) -> None:
        if self in self._disk.watches:
            self._disk.watches.remove(self)
