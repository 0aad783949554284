"""Starting processes of a home: the Manager, groups and Collectors, which outlive their starter, and the page.

Each gets a session of its own (a terminal's signals don't reach it), the home as its folder, nothing or a pipe as
standard input, and `dirrpt/<NAME>.out` for what it says before it has a report: an import error, a wrong command line.
What a Manager does with other processes goes through `Processes`: in a simulated world they are simulated as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import IO, Final, Protocol

from trails.fs import NO_SPACE
from trails.runtime.home.home import Home


class Spawned(Protocol):
    """A process that was started here, as subprocess.Popen shows it."""

    pid: int
    returncode: int

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it lives."""

    def kill(self) -> None:
        """SIGKILL."""

    def wait(self) -> int:
        """As poll(), once it has ended."""


class Processes(Protocol):
    """The processes of this machine, as a Manager has to do with them."""

    def spawn(self, home: Home, command: Sequence[str], name: str, keep: Sequence[int] = ()) -> Spawned:
        """Start one, as the function of this module does."""

    def open(self, pid: int) -> int:
        """A descriptor, readable when the process has ended. ProcessLookupError if there is none, OSError."""

    def signal(self, fd: int, number: signal.Signals) -> None:
        """Send it to the process of an open descriptor. ProcessLookupError if that is gone."""

    def pipe(self) -> tuple[int, int]:
        """To read from without waiting, and to write to."""

    def read(self, fd: int, size: int) -> bytes:
        """From a pipe; empty when nobody can write any more. BlockingIOError if nothing is there."""

    def close(self, fd: int) -> None:
        """Give a descriptor back."""


class RealProcesses:
    """Those of this machine."""

    def spawn(self, home: Home, command: Sequence[str], name: str, keep: Sequence[int] = ()) -> Spawned:
        return spawn(home, command, name, keep=keep)

    def open(self, pid: int) -> int:
        return os.pidfd_open(pid)

    def signal(self, fd: int, number: signal.Signals) -> None:
        signal.pidfd_send_signal(fd, number)

    def pipe(self) -> tuple[int, int]:
        return os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def read(self, fd: int, size: int) -> bytes:
        return os.read(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)


THIS_SYSTEM: Final = RealProcesses()


def spawn(
    home: Home, command: Sequence[str], name: str, *, pipe: bool = False, keep: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start it; `keep`: descriptors that it inherits. Raises OSError."""
    with _output(home, name) as out:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE if pipe else subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            pass_fds=keep, start_new_session=True, cwd=home.root,
        )  # fmt: skip


def _output(home: Home, name: str) -> IO[bytes]:
    """Its file; on a full disk, nowhere."""
    try:
        return open(out_file(home, name), "wb")
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        return open(os.devnull, "wb")


def out_file(home: Home, name: str) -> str:
    """What it said outside its report; of its last start only."""
    return os.path.join(home.folder("dirrpt"), f"{name}.out")


def last_words(home: Home, name: str) -> str:
    """The last line of that."""
    try:
        with open(out_file(home, name), encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
    except OSError:
        lines = []
    return lines[-1] if lines else "it said nothing"
