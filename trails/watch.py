"""Know within milliseconds that a folder changed, without asking it all the time.

This is the way of systems without inotify, through watchdog: an event only sets a flag and wakes a descriptor; what
changed is for the reader to look at. Linux has inotify.py. Whoever uses either polls slowly as well: events are a hint,
and a full event queue or an exotic file system loses them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from trails.host import RealSignal
from trails.watching import refused

# What watchdog logs, of an event that came in the moment of close() or of a full event queue, says that events are
# lost: they are hints, so that is nothing. Without a handler Python would print it to a process's standard error.
logging.getLogger("watchdog").addHandler(logging.NullHandler())


class FolderWatch(FileSystemEventHandler):
    """`fileno()` is readable after something in `folder` changed, until clear()."""

    def __init__(self, folder: str, tell: Callable[[str], None]) -> None:
        """Raises OperatorError if there is no such folder. `tell`: hears that the system watches too many already; then
        nothing is ever signalled.
        """
        self._signal = RealSignal()
        self._observer = Observer()
        self._observer.daemon = True
        self._observer.schedule(self, folder, recursive=False)
        try:
            self._observer.start()
        except OSError as error:
            refused(folder, error, tell)

    def fileno(self) -> int:
        """For select and poll."""
        return self._signal.fileno()

    def clear(self) -> None:
        """Forget what was signalled; call it before looking, so that nothing later is missed."""
        self._signal.clear()

    def close(self) -> None:
        """Stop watching."""
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join()
        self._signal.close()

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Called on watchdog's thread. Opening and reading are no changes: waking on them would feed itself."""
        if event.event_type in ("modified", "created", "moved"):
            self._signal.set()
