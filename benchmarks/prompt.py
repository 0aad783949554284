"""From starting `ggsci` on a terminal to its first prompt; beside it psql, connected over the unix socket."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import tempfile
import time
from collections.abc import Sequence

from benchmarks.options import Run
from benchmarks.results import OURS, Line
from demo.servers import PostgresServer

BAR = 300.0
TIMES = 5
WHAT = "ms"
PSQL = "psql"


def measure(run: Run) -> None:
    """Each several times; the first start, which reads its modules from the disk, counts as well."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="tg-bench-") as home, PostgresServer(version=16) as server:
        ggsci = [sys.executable, "-P", "-m", "ggsci", "--home", home]
        psql = [str(server.bindir / "psql"), "-X", server.url()]
        for _ in range(run.runs * TIMES):
            if run.peers:
                found.setdefault(PSQL, []).append(first_prompt(psql, b"=# ") * 1000)
            found.setdefault(OURS, []).append(first_prompt(ggsci, b"1>") * 1000)
    for who, values in found.items():
        bar, peer = (BAR, PSQL) if who == OURS else (None, "")
        run.take(Line("ggsci", "first prompt", who, WHAT, tuple(values), bar, peer, less=True))


def first_prompt(command: Sequence[str], prompt: bytes, seconds: float = 20) -> float:
    """Seconds from the fork until the terminal shows the prompt."""
    began = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], list(command), os.environ | {"TERM": "xterm", "LC_ALL": "C.UTF-8"})
    try:
        _read_until(terminal, prompt, began + seconds)
        return time.monotonic() - began
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _read_until(terminal: int, prompt: bytes, deadline: float) -> None:
    shown = b""
    while prompt not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        try:
            data = os.read(terminal, 65536) if ready else b""
        except OSError:  # the other side has ended
            data = b""
        if not data:
            raise RuntimeError(f"no prompt; the terminal shows {shown[-500:]!r}")
        if b"\x1b[6n" in data:  # it asks where the cursor is, and may wait for the answer
            os.write(terminal, b"\x1b[1;1R")
        shown += data
