"""CW-01 on a real PostgreSQL: a process dies, and its COMMIT is in the server's socket until the test lets it land."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from demo.patience import PATIENCE
from replicat.run.replicat import Replicat
from trails.testing import Crash


@contextlib.contextmanager
def commit_in_the_socket(process: Replicat) -> Iterator[int]:
    """The process dies when it has sent COMMIT, which the server reads only when the block ends; gives who serves it.

    Its connection stays open: what a server that stands still is sent is read before the end, killed or not.
    """
    target: Any = process._target.database
    link = target.conn.pgconn
    ((server,),) = target.ask("SELECT pg_backend_pid()")

    def send(*, durable: bool) -> None:
        os.kill(server, signal.SIGSTOP)
        link.send_query(b"COMMIT")
        assert link.flush() == 0
        raise Crash("COMMIT is sent")

    target.finish = send
    try:
        yield server
    finally:
        os.kill(server, signal.SIGCONT)


def until_it_waits(sql: Callable[[str], list[Any]], server: int, late: Future[Any]) -> None:
    """Until somebody waits for what the server's process holds. `late`: whose work it is."""
    deadline = time.monotonic() + PATIENCE
    while not sql(f"SELECT 1 FROM pg_stat_activity WHERE {server} = ANY (pg_blocking_pids(pid))"):
        assert not late.done() and time.monotonic() < deadline, "nobody waits for the COMMIT"
        time.sleep(0.01)
