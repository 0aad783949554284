"""A sync in the background: one at a time, on a thread of its own; the writer's loop is woken when it has ended."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Syncer:
    """One sync at a time on a thread of its own, with a descriptor that tells a select loop of its end."""

    def __init__(self) -> None:
        self.event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trail-sync")
        self._future: Future[None] | None = None
        self._lock = threading.Lock()

    def start(self, work: Callable[..., None], *args: Any) -> None:
        """Do `work` on the thread."""
        self._future = self._pool.submit(work, *args)
        self._future.add_done_callback(self._wake)

    def ended(self, *, wait: bool) -> bool:
        """Whether the work has ended, once; raises its error. Takes back the signal."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.event)  # before looking: what ends after the look signals again
        if self._future is None or not (wait or self._future.done()):
            return False
        future, self._future = self._future, None
        future.result()
        return True

    def close(self) -> None:
        """Wait for the thread, and give the descriptor back."""
        self._pool.shutdown(wait=True)
        with self._lock:
            event, self.event = self.event, -1
        if event >= 0:
            os.close(event)

    def __del__(self) -> None:
        # Not close(): the last to let go may be the thread itself.
        if self.event >= 0:
            os.close(self.event)

    def _wake(self, _: Future[None]) -> None:
        with self._lock:
            if self.event >= 0:
                os.eventfd_write(self.event, 1)
