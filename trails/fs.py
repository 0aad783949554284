"""The file system as Trailgate needs it: the only module that writes or reads a home's durable files.

Everything durable goes through an `Fs`, so that tests can run on one that crashes at the n-th call (trails/testing.py).
A failed write or sync is never retried: after a failed fsync the pages may look clean and yet be lost.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import time
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

from trails.errors import AnewError, DiskFullError, LockedError, OperatorError, ScarceError
from trails.host import THIS_HOST, Host

# Whoever looks if a lock is held (lock_holder) holds it shared for an instant: so it is tried for a moment.
LOCK_SECONDS = 1.0
REPLACE_TRIES = 3
NUMBER_SECONDS = 1.0
"""How long a number is waited for that the holder of a lock has not yet written."""
NETWORK_FILE_SYSTEMS = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "fuse.sshfs", "fuse.glusterfs", "glusterfs", "beegfs")
)


class File(Protocol):
    """One open file."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the file's end."""

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        """Write all of `data`; a short write is an error."""

    def size(self) -> int:
        """Length in bytes."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def datasync(self) -> None:
        """Make what was written, and the length, durable (fdatasync)."""

    def announce(self) -> None:
        """Wake who watches the file's folder: there is something to read. A hint, which may come to nobody."""

    def is_at(self, path: str) -> bool:
        """Whether this very file is what `path` leads to now; False if it leads to no file."""

    def links(self) -> int:
        """How many names the file has; 0: it is gone when the last process closes it."""

    def hold(self) -> None:
        """Let no other process hold this file until it is closed; LockedError: another holds it."""

    def close(self) -> None:
        """Give the descriptor back."""


class Lock(Protocol):
    """A lock held until release or the process's death."""

    def keep(self) -> bool:
        """Take it anew if its file was removed or replaced; True if that was so. LockedError: another has it now."""

    def release(self) -> None:
        """Let another process have it."""


class Watch(Protocol):
    """`fileno()` is readable after a file of a folder was announced, closed by who wrote it, made, or named anew, until
    clear(). Only a hint: it gets lost.
    """

    def fileno(self) -> int:
        """For select and poll."""

    def clear(self) -> None:
        """Forget what was signalled; call it before looking, so that nothing later is missed."""

    def close(self) -> None:
        """Stop watching."""


class Fs(Protocol):
    """Files by path. Every error names the path and what was tried."""

    host: Host
    """The machine that the files are on."""

    def create(self, path: str) -> File:
        """Make a new file, 0600, for reading and writing; an existing one is an error."""

    def open(self, path: str, *, write: bool = False) -> File:
        """Open an existing file; FileNotFoundError if there is none."""

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` in one step; durable after sync_dir."""

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is no error."""

    def listdir(self, folder: str) -> list[str]:
        """Base names in `folder`; empty if there is no such folder."""

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""

    def makedirs(self, folder: str) -> None:
        """Make `folder` and its parents, 0700; durable where it was made."""

    def sync_dir(self, folder: str) -> None:
        """Make creations, renames and removals in `folder` durable."""

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock at `path` (the file is made if needed); LockedError if another holds it.

        OperatorError if its folder does not exist.
        """

    def lock_holder(self, path: str) -> int | None:
        """Process id of the lock's holder; None if it is free, 0 if that can't be told (a full disk took no number)."""

    def touch(self, path: str, now_us: int) -> bool:
        """Say that a file was written at this time; False if there is no such file.

        Where the time can't be set the file looks older than it is, never younger.
        """

    def touched_us(self, path: str) -> int | None:
        """When it was last written or touched; None where that can't be told."""

    def watch_folder(self, folder: str, tell: Callable[[str], None]) -> Watch:
        """Watch it; OperatorError if there is no such folder. `tell` hears where the system watches too many already:
        then nothing is ever signalled.
        """


class RealFile:
    """A file descriptor with positioned reads and writes."""

    def __init__(self, path: str, flags: int) -> None:
        self._path = path
        self._fd = -1
        with _named(f"open {path}"):
            self._fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
            found = os.fstat(self._fd)
        self._identity = found.st_dev, found.st_ino

    def read_at(self, offset: int, size: int) -> bytes:
        try:
            data = os.pread(self._fd, size, offset)
            if len(data) in (0, size):
                return data
            parts = [data]
            while data and sum(map(len, parts)) < size:
                data = os.pread(self._fd, size - sum(map(len, parts)), offset + sum(map(len, parts)))
                parts.append(data)
            return b"".join(parts)
        except OSError as error:
            raise _failed(f"read {self._path}", error) from error

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        try:
            view = memoryview(data)
            while view:
                done = os.pwrite(self._fd, view, offset)
                view = view[done:]
                offset += done
        except OSError as error:
            raise _failed(f"write {self._path}", error) from error

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        with _named(f"truncate {self._path}"):
            os.ftruncate(self._fd, size)

    def datasync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise _failed(f"fdatasync {self._path}", error) from error

    def announce(self) -> None:
        with contextlib.suppress(OSError):  # they look by themselves too
            os.utime(self._fd)

    def is_at(self, path: str) -> bool:
        try:
            found = os.stat(path)
        except OSError:
            return False
        # Asked at each sync, so the open file's identity is kept: it never changes.
        return (found.st_dev, found.st_ino) == self._identity

    def links(self) -> int:
        return os.fstat(self._fd).st_nlink

    def hold(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                f"{self._path}: another process still writes it", hint="Stop that process first, or wait for its end"
            ) from None

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class RealLock:
    """flock on a file that holds the owner's process id; the system releases it at the owner's death."""

    def __init__(self, path: str) -> None:
        self._path = path
        with _named(f"open {path}"):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not self._take():
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise LockedError(
                f"{path}: held by process {holder or '(unknown)'}", hint="Stop that process first, or wait for its end"
            )
        try:
            with _named(f"write {path}"):
                # In this order: what is truncated first may find no space on a full disk.
                os.ftruncate(self._fd, os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0))
        except DiskFullError:
            pass  # it is held; whose it is can't be told

    def _take(self) -> bool:
        end = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    return False
                time.sleep(0.005)
            else:
                return True

    def keep(self) -> bool:
        held = os.fstat(self._fd)
        if identity_at(self._path) == (held.st_dev, held.st_ino):
            return False
        try:
            anew, old = RealLock(self._path), self._fd
        except FileNotFoundError:
            raise OperatorError(f"{self._path}: its folder was removed", hint="Put it back, then START") from None
        self._fd, anew._fd = anew._fd, -1
        os.close(old)
        return True

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealFs:
    """The machine's own file system."""

    host: Host = THIS_HOST

    def create(self, path: str) -> File:
        return RealFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open(self, path: str, *, write: bool = False) -> File:
        return RealFile(path, os.O_RDWR if write else os.O_RDONLY)

    def rename(self, source: str, target: str) -> None:
        with _named(f"rename {source} to {target}"):
            os.rename(source, target)

    def remove(self, path: str) -> None:
        with _named(f"remove {path}"), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def listdir(self, folder: str) -> list[str]:
        try:
            with _named(f"read folder {folder}"):
                return os.listdir(folder)
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def makedirs(self, folder: str) -> None:
        if os.path.isdir(folder):
            return
        parent = os.path.dirname(os.path.abspath(folder))
        self.makedirs(parent)
        with _named(f"make folder {folder}"), contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        self.sync_dir(parent)

    def sync_dir(self, folder: str) -> None:
        with _named(f"fsync folder {folder}"):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def lock(self, path: str) -> Lock:
        """Trails are refused on a network file system here, as each has a lock."""
        folder = os.path.dirname(path)
        try:
            refuse_network_file_system(folder)
            return RealLock(path)
        except FileNotFoundError:
            raise OperatorError(f"{folder}: there is no such folder", hint=f"mkdir -m 700 {folder}") from None

    def lock_holder(self, path: str) -> int | None:
        """Looking takes the lock shared for an instant; a process that starts tries longer than that.

        Who has just taken the lock writes its number a moment later, and until then the file has that of the last
        holder, which is dead: so the number is waited for, as nobody is to see half of a start.
        """
        end = time.monotonic() + NUMBER_SECONDS
        while (holder := _holder(path)) == 0 and time.monotonic() < end:
            time.sleep(0.002)
        return holder

    def touch(self, path: str, now_us: int) -> bool:
        # Whatever else is wrong with the disk is for those to tell who write to the file.
        with contextlib.suppress(OSError):
            try:
                os.utime(path, ns=(now_us * 1000, now_us * 1000))
            except FileNotFoundError:
                return False
        return True

    def touched_us(self, path: str) -> int | None:
        try:
            return os.stat(path).st_mtime_ns // 1000
        except OSError:
            return None

    def watch_folder(self, folder: str, tell: Callable[[str], None]) -> Watch:
        from trails.inotify import InotifyWatch, has_inotify  # these are for those who wait for files

        if has_inotify():
            return InotifyWatch(folder, tell)
        from trails.watch import FolderWatch

        return FolderWatch(folder, tell)


def _holder(path: str) -> int | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0).strip()
        return int(text) if text.isdigit() and _lives(int(text)) else 0
    else:
        return None
    finally:
        os.close(fd)


def _lives(pid: int) -> bool:
    """Whether there is such a process; one that has ended and was not waited for is none."""
    try:
        fd = os.pidfd_open(pid)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except OSError:
        return True  # the system does not tell
    try:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        return not poller.poll(0)
    finally:
        os.close(fd)


def identity_at(path: str) -> tuple[int, int] | None:
    """Device and inode of what `path` leads to; None if that is nothing, or can't be reached."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def replace_durably(fs: Fs, path: str, data: bytes) -> None:
    """Put `data` at `path` so that a crash at any moment leaves the old content or the new, whole.

    Somebody may empty the folder in between: then it is done anew, twice. Raises AnewError where that was of no use.
    """
    for _ in range(REPLACE_TRIES):
        with contextlib.suppress(FileNotFoundError):
            _replace(fs, path, data)
            return
    raise AnewError(
        f"{path} can't be written: its folder is gone, or is emptied again and again",
        hint="Find who removes files there; CREATE SUBDIRS in GGSCI makes missing folders",
    )


def _replace(fs: Fs, path: str, data: bytes) -> None:
    temp = path + ".tmp"
    fs.remove(temp)
    file = fs.create(temp)
    try:
        file.write_at(0, data)
        file.datasync()
    except DiskFullError:
        fs.remove(temp)  # half a file would keep what little space there is
        raise
    finally:
        file.close()
    fs.rename(temp, path)
    fs.sync_dir(os.path.dirname(path) or ".")


def overwrite(fs: Fs, path: str, data: bytes) -> None:
    """Put `data` into a file that is there: takes no space where the file has it, but a crash may leave a mixture."""
    with closing(fs.open(path, write=True)) as file:
        file.write_at(0, data)
        file.truncate(len(data))
        file.datasync()


def read_bytes(fs: Fs, path: str) -> bytes:
    """A whole small file; FileNotFoundError if there is none."""
    with closing(fs.open(path)) as file:
        return file.read_at(0, file.size())


@contextlib.contextmanager
def _named(what: str):  # type: ignore[no-untyped-def]  # a generator type would only repeat the decorator
    """Turn an operating system's error into one that says what was tried and what to do."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        raise _failed(what, error) from error


def _failed(what: str, error: OSError) -> OperatorError:
    return kind_of(error)(f"cannot {what}: {error.strerror}", hint=_HINTS.get(error.errno or 0, ""))


def kind_of(error: OSError) -> type[OperatorError]:
    """The kind of error that a file's owner is told: it says who must act."""
    if error.errno in NO_SPACE:
        return DiskFullError
    return ScarceError if error.errno in SCARCE else OperatorError


NO_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT))
"""Errors of a full disk: waiting can mend them."""
SCARCE = frozenset((errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM))
"""No descriptor, process, thread or memory more just now: who else uses them up may end."""

_HINTS = {
    errno.ENOSPC: "Make space on this file system, then START again; nothing acknowledged is lost",
    errno.EDQUOT: "Raise the quota, then START again; nothing acknowledged is lost",
    errno.EMFILE: "See ulimit -n",
    errno.ENFILE: "See sysctl fs.file-max",
    errno.EFBIG: "Raise the file size limit, then START again; nothing acknowledged is lost",
    errno.EROFS: "Mount the file system for writing, then START again",
    errno.EACCES: "Give this user access to the home, then START again",
    errno.EPERM: "Give this user access to the home, then START again",
    errno.EIO: "The disk failed to keep what was written; check it, then START again",
}


def refuse_network_file_system(folder: str) -> None:
    """Raise OperatorError if `folder` lies on a network file system."""
    kind = file_system_of(folder)
    if kind in NETWORK_FILE_SYSTEMS:
        raise OperatorError(
            f"{folder} lies on a network file system ({kind}), where locks and synced data don't hold",
            hint="Use a local disk",
        )


def file_system_of(folder: str, mountinfo: str = "/proc/self/mountinfo") -> str:
    """The type of the file system that holds `folder`, such as `ext4`; empty where the system doesn't tell."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(mountinfo, encoding="utf-8", errors="replace") as lines:
            fields = [line.split() for line in lines]
    except OSError:
        return ""
    return next((f[f.index("-") + 1] for f in fields if f[2] == wanted and "-" in f), "")
