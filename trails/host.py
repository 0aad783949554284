"""The machine that a process runs on, but for its files (`Fs`): its clocks, its threads, and waiting for them.

Whoever has an `Fs` has the host of it (`Fs.host`). Code that takes the time from there, and waits nowhere else, runs
unchanged in a simulated world, where one seed says what comes when (tests/world).
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import Any, Final, Protocol

from trails.clock import Clock, RealClock

Wait = int | tuple[int, int]
"""What to wake on: a file descriptor to read from, or (descriptor, select.POLLIN | select.POLLOUT)."""


class Signal(Protocol):
    """What one thread sets, so that another wakes from its poll."""

    def fileno(self) -> int:
        """Readable while it is set; -1 once it was closed."""
        ...

    def set(self, _done: object = None, /) -> None:
        """From any thread, also after its owner has closed it; a Future may call it when it is done."""
        ...

    def clear(self) -> None:
        """Forget it; call it before looking at what it tells of, so that nothing later is missed."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class Epoll(Protocol):
    """One descriptor that stands for a socket, and says what it is ready for. See select.epoll."""

    def register(self, fd: Any, eventmask: int, /) -> None:
        """Wait for this socket, for these events."""
        ...

    def modify(self, fd: Any, eventmask: int, /) -> None:
        """For other events of it."""
        ...

    def fileno(self) -> int:
        """Readable when the socket is ready."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class Host(Clock, Protocol):
    """A machine; its clocks are those of `Clock`."""

    def random_bytes(self, size: int) -> bytes:
        """Bytes that nobody can guess, and that never come again."""
        ...

    def birth(self, pid: int) -> str | None:
        """When that process began, and after which boot; None if it is gone, or dead and not yet reaped.

        A process id alone may have been given to a stranger since.
        """
        ...

    def cpu_seconds(self) -> float:
        """What this process has used of processors, with all its threads; only differences mean anything."""
        ...

    def poll(self, waits: Sequence[Wait], seconds: float) -> list[tuple[int, int]]:
        """Wait until one of them is ready, or that long; (descriptor, events) of those that are."""
        ...

    def epoll(self) -> Epoll:
        """A new one."""
        ...

    def signal(self) -> Signal:
        """A new one, not set."""
        ...

    def executor(self, name: str) -> Executor:
        """One thread for work after work; the process ends no sooner than it."""
        ...

    def thread(self, name: str, work: Callable[[], None]) -> None:
        """Do it beside all else; the process may end before it has ended."""
        ...

    def wait(self, future: Future[Any], seconds: float | None = None) -> bool:
        """Whether the work is done, at the latest after so long."""
        ...


class RealSignal:
    """An eventfd."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()

    def fileno(self) -> int:
        return self._fd

    def set(self, _done: object = None, /) -> None:
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def close(self) -> None:
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # Not close(): the last to let go may be the thread that is in set().
        if self._fd >= 0:
            os.close(self._fd)


class RealHost(RealClock):
    """This machine."""

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)

    def cpu_seconds(self) -> float:
        return time.process_time()

    def birth(self, pid: int) -> str | None:
        try:
            # The second field is the program's name in parentheses and may hold anything.
            fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] == "Z" else f"{fields[19]} ticks after boot {_boot()}"

    def poll(self, waits: Sequence[Wait], seconds: float) -> list[tuple[int, int]]:
        poller = select.poll()
        for item in waits:
            poller.register(*((item, select.POLLIN) if isinstance(item, int) else item))
        # Rounded up: rounding down would spin through the last millisecond.
        return poller.poll(max(0, int(seconds * 1000 + 0.999)))

    def epoll(self) -> Epoll:
        return select.epoll()

    def signal(self) -> Signal:
        return RealSignal()

    def executor(self, name: str) -> Executor:
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def thread(self, name: str, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=name, daemon=True).start()

    def wait(self, future: Future[Any], seconds: float | None = None) -> bool:
        return future in wait([future], timeout=seconds).done


def is_younger(birth: str, than: str) -> bool:
    """Whether of two processes of one boot the first began later, by what `Host.birth` said of them.

    No clock of the day is asked, as that may have been set back between the two.
    """
    (ticks, _, boot), (others, _, its) = birth.partition(" "), than.partition(" ")
    return boot == its and ticks.isdecimal() and others.isdecimal() and int(ticks) > int(others)


def _boot() -> str:
    """Which boot of this machine that is; some containers do not tell, and there the ticks must do."""
    try:
        return _read("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return "(unknown)"


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


THIS_HOST: Final = RealHost()
