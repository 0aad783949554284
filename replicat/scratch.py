"""A Replicat's private folder for Spark and for large results: in memory where there is enough, never left for long.

Rule: beside the folder stands a lock file that its process keeps locked for life. After SIGKILL nobody removes the
folder, and in /dev/shm it would hold memory for ever; so each Replicat that starts removes those of dead ones.
Everybody may write to /dev/shm: a name that another account has there is left alone, and the home is taken instead.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import os
import shutil
import tempfile
import time

MEMORY = "/dev/shm"
MEMORY_NEEDED = 512 << 20
LONGEST_FOLDER = 60
TRIES, PAUSE = 100, 0.05
_LOCK = ".lock"


class Scratch:
    """Owns a group's folder until release(); the engine makes it and empties it."""

    def __init__(self, root: str, dirtmp: str, group: str) -> None:
        """`root` is the home, `dirtmp` its folder for temporary files. The group's lock is held: we are alone."""
        sweep()
        in_memory, on_disk = folders_of(root, dirtmp, group)
        for folder in (in_memory, on_disk):
            shutil.rmtree(folder, ignore_errors=True)
        self.folder, self._lock = on_disk, None
        if _has_memory() and not os.path.lexists(in_memory):
            self._lock = _locked(in_memory + _LOCK, create=True)
            self.folder = in_memory if self._lock is not None else on_disk
        if self._lock is None:
            self._lock = _locked(on_disk + _LOCK, create=True)

    @property
    def in_memory(self) -> bool:
        """Whether nothing in it reaches a disk (but for swap)."""
        return self.folder.startswith(MEMORY + os.sep)

    def release(self) -> None:
        """Remove it. A worker whose JVM is gone may still write there for a moment; nobody makes the folder anew."""
        for _ in range(TRIES):
            shutil.rmtree(self.folder, ignore_errors=True)
            if not os.path.lexists(self.folder):
                break
            time.sleep(PAUSE)
        _unlock(self.folder + _LOCK, self._lock)


def folders_of(root: str, dirtmp: str, group: str) -> tuple[str, str]:
    """Where a group's folder may be: in memory, or else in the home.

    Spark puts unix sockets there, whose paths are short by nature.
    """
    home = hashlib.blake2b(root.encode(), digest_size=8).hexdigest()
    private = f"{_prefix()}{home}-{group}"
    folder = os.path.join(dirtmp, f"spark-{group}")
    on_disk = folder if len(folder) <= LONGEST_FOLDER else os.path.join(tempfile.gettempdir(), private)
    return os.path.join(MEMORY, private), on_disk


def sweep() -> list[str]:
    """Remove this user's folders in memory whose processes are dead. Returns them."""
    gone = []
    for lock in glob.glob(os.path.join(MEMORY, f"{_prefix()}*{_LOCK}")):
        fd = _locked(lock, create=False)
        if fd is not None:
            gone.append(lock.removesuffix(_LOCK))
            shutil.rmtree(gone[-1], ignore_errors=True)
            _unlock(lock, fd)
    return gone


def _locked(path: str, *, create: bool) -> int | None:
    """The descriptor of a lock that is ours now; None if a live process has it, or it is gone."""
    fd = -1
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0), 0o600)
        if os.fstat(fd).st_uid != os.geteuid():
            raise PermissionError(f"{path} is another user's")  # who could take our folder for a dead one's
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if fd >= 0:
            os.close(fd)
        return None
    return fd


def _unlock(path: str, fd: int | None) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
    if fd is not None:
        os.close(fd)


def _prefix() -> str:
    return f"trailgate-{os.geteuid()}-"


def _has_memory() -> bool:
    return os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED
