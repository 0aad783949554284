"""A sync in the background: one at a time, on a thread of its own; the writer's loop is woken when it has ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from trails.host import Host


class Syncer:
    """One sync at a time on a thread of its own, with a descriptor that tells a select loop of its end."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._signal = host.signal()
        self._executor = host.executor("trail-sync")
        self._future: Future[None] | None = None

    def fileno(self) -> int:
        """Readable when the work has ended."""
        return self._signal.fileno()

    def start(self, work: Callable[..., None], *args: Any) -> None:
        """Do `work` on the thread."""
        self._future = self._executor.submit(work, *args)
        self._future.add_done_callback(self._signal.set)

    def ended(self, *, wait: bool) -> bool:
        """Whether the work has ended, once; raises its error. Takes back the signal."""
        self._signal.clear()  # before looking: what ends after the look signals again
        if self._future is None or not (wait or self._future.done()):
            return False
        if not self._future.done():
            self._host.wait(self._future)
        future, self._future = self._future, None
        future.result()
        return True

    def close(self) -> None:
        """Wait for the thread, and give the descriptor back."""
        self._executor.shutdown(wait=True)
        self._signal.close()
