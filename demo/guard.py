"""Sees to it that nothing is left running, also when whoever started it is killed.

A pipeline's processes bear a mark in their environment, which their children (Spark's too) inherit. A shell waits for
the end of its input: a line first says that all is in order, without one its starter is dead and it cleans up.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

MARK = "TRAILGATE_PIPELINE"

# The mark is an argument and not in this shell's own environment, so it never finds itself.
_SCRIPT = r"""
trap '' HUP INT TERM
read -r word && exit 0
mark=$1; shift
tries=0
while [ $tries -lt 50 ]; do
    found=
    for file in $(grep -lszxF "$mark" /proc/[0-9]*/environ); do
        pid=${file#/proc/}; kill -KILL "${pid%/environ}" 2>/dev/null && found=1
    done
    [ -z "$found" ] && break
    tries=$((tries + 1)); sleep 0.2
done
for data in "$@"; do
    pid=$(head -n 1 "$data/postmaster.pid" 2>/dev/null) || continue
    [ "/proc/$pid/cwd" -ef "$data" ] && kill -INT "$pid"
done
"""


class Guard:
    """Marks the processes of one pipeline, and ends them when their time is over.

    `servers` are data directories of PostgreSQL servers that are kept, but must not outlive their starter's death.
    """

    def __init__(self, servers: Sequence[Path] = ()) -> None:
        self.id = uuid.uuid4().hex
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "guard", f"{MARK}={self.id}", *map(str, servers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal is for our starter
            cwd="/",
        )

    @property
    def environment(self) -> dict[str, str]:
        """The environment for processes to be guarded."""
        return {**os.environ, MARK: self.id}

    def pids(self) -> list[int]:
        """The marked processes that live."""
        needle = f"{MARK}={self.id}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def kill_rest(self, patience: float = 10.0) -> list[str]:
        """Wait for the marked processes to be gone; kill, and name, those that are not."""
        deadline = time.monotonic() + patience
        while (left := self.pids()) and time.monotonic() < deadline:
            time.sleep(0.1)
        names = [f"{pid}: {_command(pid)}" for pid in left]
        while left:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
            left = self.pids()
        return names

    def dismiss(self) -> None:
        """Tell the shell that all is in order."""
        if self._shell.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                self._shell.communicate(b"done\n", timeout=10)


def end_now(pid: int) -> bool:
    """SIGKILL, and wait until the process is gone with all its locks; False if it had gone before."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [], 60)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
    return True


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "(gone)"
