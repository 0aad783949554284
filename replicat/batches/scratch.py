"""A Replicat's private folder for Spark and for large results: in memory where there is enough, never left for long.

Rule: what lies in a place where everybody may write (/dev/shm, /tmp) has a name that nobody can know before it is made,
and is made by us, 0700, in one call: so no other account can have it first, neither to look into it nor to keep us out.
In the home, which is private, the name is fixed.

The folder itself is locked (flock on the directory) for its process's life, and for that of its JVM, which is given the
same descriptor: one whose folder is removed while it starts can't say where it listens, and lives on without an owner.
After SIGKILL nobody removes the folder, and in /dev/shm it would hold memory for ever; so each Replicat that starts
removes those of this account that nobody locks:

    a crash before the lock     an empty folder, removed by the next sweep
    a sweep before the lock     the folder is gone: it is made again, under another name
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time

from trails.errors import OperatorError
from trails.fs import identity_at

MEMORY = "/dev/shm"
MEMORY_NEEDED = 512 << 20
DISK_NEEDED = 64 << 20
LONGEST_FOLDER = 60
TRIES, PAUSE = 100, 0.05


class Scratch:
    """Owns a group's folder until release(); the engine empties it."""

    def __init__(self, root: str, dirtmp: str, group: str) -> None:
        """`root` is the home, `dirtmp` its folder for temporary files. The group's lock is held: we are alone."""
        sweep()
        in_memory, on_disk = stems_of(root, dirtmp, group)
        made = _made(in_memory) if _has_memory(dirtmp) else None
        if made is not None:
            shutil.rmtree(os.path.join(dirtmp, f"spark-{group}"), ignore_errors=True)
        if made is None and os.path.dirname(on_disk) != dirtmp:
            made = _made(on_disk)
            if made is None:  # never by a name that others could know before
                raise OperatorError(
                    f"no scratch folder can be made in {tempfile.gettempdir()}",
                    hint="Make space there, set TMPDIR to another folder, or give the home a shorter path",
                )
        self.folder, self.lock = made or (on_disk, -1)
        """The folder, and the descriptor that locks it; -1 in the home."""

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
        fd, self.lock = self.lock, -1
        if fd >= 0:
            os.close(fd)


def stems_of(root: str, dirtmp: str, group: str) -> tuple[str, str]:
    """What the path of a group's folder begins with: in memory, or else on disk.

    Spark puts unix sockets there, whose paths are short by nature.
    """
    home = hashlib.blake2b(root.encode(), digest_size=4).hexdigest()
    private = f"{_prefix()}{home}-{group}-"
    folder = os.path.join(dirtmp, f"spark-{group}")
    on_disk = folder if len(folder) <= LONGEST_FOLDER else os.path.join(tempfile.gettempdir(), private)
    return os.path.join(MEMORY, private), on_disk


def sweep() -> list[str]:
    """Remove this account's folders in shared places whose processes are dead. Returns them."""
    gone = []
    for place in {MEMORY, tempfile.gettempdir()}:
        with contextlib.suppress(OSError):
            for name in os.listdir(place):
                folder = os.path.join(place, name)
                if name.startswith(_prefix()) and (fd := _locked(folder)) is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(fd)
                    gone.append(folder)
    return gone


def _made(stem: str) -> tuple[str, int] | None:
    """A new folder that begins like this, and its lock; None if it can't be had."""
    for _ in range(TRIES):
        try:
            folder = tempfile.mkdtemp(prefix=os.path.basename(stem), dir=os.path.dirname(stem))
        except OSError:
            return None
        if (fd := _locked(folder)) is not None:
            return folder, fd
    return None


def _locked(folder: str) -> int | None:
    """The descriptor of a folder of ours, locked; None if a live process has it, it is another's, or it is gone."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if found.st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if identity_at(folder) == (found.st_dev, found.st_ino):  # not swept before it was locked
                return fd
    except OSError:
        pass  # locked: its process lives
    os.close(fd)
    return None


def _prefix() -> str:
    return f"trailgate-{os.geteuid()}-"


def _has_memory(dirtmp: str) -> bool:
    """Whether Spark's files lie better in memory: there is enough of it, or little of both and less on the disk.

    Replicat must run on a full disk: what it has read can be purged.
    """
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return False
    memory, disk = _free(MEMORY), _free(dirtmp)
    return memory >= MEMORY_NEEDED or disk < min(memory, DISK_NEEDED)


def _free(folder: str) -> int:
    try:
        return shutil.disk_usage(folder).free
    except FileNotFoundError:  # whoever makes it there finds out
        return DISK_NEEDED
