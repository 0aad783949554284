"""A folder watched by inotify's own descriptor, which stands in the process's poll: no thread, no object an event.

A trail's file is written twice before there is more to read: a block, and behind its sync the durable end. Who wakes on
writes wakes once for nothing. So that is not listened to: a writer announces the second one (File.announce), which
changes the file's times; and what anybody else brings is closed, or renamed, behind its last byte.
The kernel's interface is asked by ctypes, as Python has none. Numbers are those of inotify(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable
from typing import Final

from trails.watching import refused

_ANNOUNCED, _WRITTEN, _MOVED_TO, _CREATED, _ONLY_FOLDERS = 0x4, 0x8, 0x80, 0x100, 0x01000000
_CHANGES: Final = _ANNOUNCED | _WRITTEN | _MOVED_TO | _CREATED | _ONLY_FOLDERS
"""IN_ATTRIB, IN_CLOSE_WRITE, IN_MOVED_TO, IN_CREATE, IN_ONLYDIR."""
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_MOST: Final = 1 << 16
_LONGEST: Final = 16 + 256
"""Bytes of one event."""


def has_inotify() -> bool:
    """Whether this system has it."""
    return hasattr(ctypes.CDLL(None), "inotify_init1")


class InotifyWatch:
    """fs.Watch on one folder."""

    def __init__(self, folder: str, tell: Callable[[str], None]) -> None:
        """Raises OperatorError if there is no such folder. `tell`: hears that the system watches too many already; then
        nothing is ever signalled.
        """
        self._fd = -1
        try:
            self._fd = _watched(folder)
        except OSError as error:
            refused(folder, error, tell)
            self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self._fd, _MOST)) > _MOST - _LONGEST:
                pass  # there is more

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def _watched(folder: str) -> int:
    """The descriptor. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.inotify_init1(_FLAGS))
    if fd < 0:
        raise _error(errno.EMFILE, "inotify instance limit reached")
    if libc.inotify_add_watch(fd, os.fsencode(folder), _CHANGES) < 0:
        error = _error(errno.ENOSPC, "inotify watch limit reached")
        os.close(fd)
        raise error
    return fd


def _error(limit: int, words: str) -> OSError:
    """What the last call came to. `words`: for this number, which means something else elsewhere."""
    number = ctypes.get_errno()
    return OSError(number, words if number == limit else os.strerror(number))
