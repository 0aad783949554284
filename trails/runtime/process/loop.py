"""What a process is (`Process`), the one loop that drives it (`run`), and how it stops (`Stop`).

    step -> step -> ... -> save(flush()) each CHECKPOINTSECS, busy or idle -> ... -> stop: save(flush()) -> close

`flush()` makes output durable and only then says how far, so nobody can save a place too early. An error skips the
last save and takes the same road as a crash: recovery at the next start. startup.py puts it together.

Signals: the handler only sets a flag; `signal.set_wakeup_fd` makes a socket readable in the same poll as the
control socket, so a stop wakes an idle process at once and none is lost between the check and the wait.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Protocol

from trails.checkpoint import Checkpoint
from trails.clock import Clock
from trails.errors import EXIT_AWAY, GateError
from trails.host import THIS_HOST, Host, Wait
from trails.runtime.process.control import ControlServer
from trails.runtime.report.metrics import Counters, Meter
from trails.runtime.report.stats import Stats

FIRST_SAVE = 1.0
BUSY_LOOK = 0.02
"""Seconds between two looks at the control socket while there is work: a poll a step would cost small steps dear."""


class Process(Protocol):
    """One process. Inherit from it for the defaults."""

    stats: Stats | None = None
    """What it counts by table, for STATS and the report; None if it counts nothing (Manager)."""

    def step(self) -> bool:
        """Do one bounded piece of work, well under a second. True: there is more to do at once.

        False: nothing to do now; whatever `waits()` names must then not be readable for old news, or the loop spins.
        """
        ...

    def flush(self) -> Checkpoint | None:
        """Make the output durable, then say how far; None keeps no checkpoint."""
        ...

    def close(self) -> None:
        """Let go of everything; also called after an error, and then without flush."""
        ...

    def waits(self) -> Sequence[Wait]:
        """What wakes the process while it is idle."""
        return []

    def command(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """Answer STATUS, GETLAG, LOGEND, ...; control.unknown() for a verb it doesn't know."""
        ...

    def idle_seconds(self) -> float:
        """Longest wait when idle, should no event come."""
        return 1.0

    def finished(self) -> str:
        """Why the process has done all that it ever will, and ends as after a STOP; empty while it has not."""
        return ""

    def counters(self) -> Counters:
        """What it has done since it started; asked for each second, so plain numbers that are there already."""
        return Counters()

    def before_file(self, _ask: Callable[[], None], /) -> None:
        """Who writes a trail is to call what it is given before each new file."""
        return

    def waits_for(self) -> str:
        """For whom its work waits, and the last error; empty while it does its work, or could. Asked after each step.

        A text that changes is written down: it has no counts and no times in it.
        """
        return ""

    def blocked(self) -> bool:
        """Whether it is idle because its output takes nothing more, not for want of input."""
        return False


class Stop:
    """The wish that the process ends: by SIGTERM, SIGINT, or the control socket. A second signal ends it at once."""

    def __init__(self) -> None:
        self.requested = False
        self.forced = False
        self.error: GateError | None = None
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def install(self) -> None:
        """Take the process's signals (main thread only)."""
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def request(self, *, forced: bool = False, error: GateError | None = None) -> None:
        """Ask for the end, from any thread; forced: without the last save, as a crash would end it.

        error: the process saves and ends cleanly, and then with this error (the disk guard).
        """
        self.requested = True
        self.forced = self.forced or forced
        self.error = self.error or error
        with contextlib.suppress(BlockingIOError):
            self._writer.send(b"\0")

    def fileno(self) -> int:
        """Readable after a signal or a request."""
        return self._reader.fileno()

    def clear(self) -> None:
        """Take back what made `fileno()` readable; `requested` stays."""
        try:
            while self._reader.recv(512):
                pass
        except BlockingIOError:
            return

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  -- the system's signature
        if self.requested:
            os._exit(EXIT_AWAY)
        self.requested = True


Chore = Callable[[float], None]
"""Called with the monotonic time after each step, at least every `idle_seconds`; does something now and then."""


def run(
    process: Process,
    save: Callable[[Checkpoint], None],
    stop: Stop,
    *,
    clock: Clock,
    checkpoint_every: float = 10.0,
    control: ControlServer | None = None,
    chores: Sequence[Chore] = (),
    meter: Meter | None = None,
    host: Host = THIS_HOST,
) -> None:
    """Drive the process until a stop is asked for. Any error of it comes out of here, after close()."""
    try:
        _loop(
            process, save, stop, clock, checkpoint_every, control, chores, meter or Meter(process.counters, clock), host
        )
    except BaseException:
        _close_after_error(process)
        raise
    process.close()
    if stop.error is not None:
        raise stop.error


def _loop(
    process: Process,
    save: Callable[[Checkpoint], None],
    stop: Stop,
    clock: Clock,
    checkpoint_every: float,
    control: ControlServer | None,
    chores: Sequence[Chore],
    meter: Meter,
    host: Host,
) -> None:
    # The first one as soon as there is one: until then INFO can say nothing of this run.
    every = min(checkpoint_every, FIRST_SAVE)
    due = clock.monotonic() + every
    looked = 0.0
    while not stop.requested and not process.finished():
        more = process.step()
        now = clock.monotonic()
        if now >= due:
            if _save(process, save):
                every = checkpoint_every
            now = clock.monotonic()
            due = now + every
        meter(now)
        for chore in chores:
            chore(now)
        if more and now - looked < BUSY_LOOK:
            continue
        looked = now
        seconds = 0.0 if more else max(0.0, min(process.idle_seconds(), due - now))
        blocked = not more and process.blocked()
        _wait([] if more else process.waits(), stop, control, seconds, clock, host)
        if not more:
            meter.rested(clock.monotonic() - now, blocked=blocked)
    if not stop.forced:
        _save(process, save, stop_status="A" if stop.error else "G")


def _save(process: Process, save: Callable[[Checkpoint], None], stop_status: str = "A") -> bool:
    """Whether there was anything to save."""
    checkpoint = process.flush()
    if checkpoint is not None:
        save(dataclasses.replace(checkpoint, stop_status=stop_status))
    return checkpoint is not None


def _wait(
    waits: Sequence[Wait], stop: Stop, control: ControlServer | None, seconds: float, clock: Clock, host: Host
) -> None:
    """Wait for whatever comes first; serve the control socket."""
    served = dict(control.interest()) if control else {}
    ready = host.poll([stop.fileno(), *waits, *served.items()], seconds)
    for fd, events in ready:
        if events & select.POLLNVAL:
            raise ValueError(f"waits() named descriptor {fd}, which is closed")
    if any(fd == stop.fileno() for fd, _ in ready):
        stop.clear()
    if control:
        control.handle([fd for fd, _ in ready if fd in served], clock.monotonic())


def _close_after_error(process: Process) -> None:
    """close() when an error is on its way: the first error is the one to tell."""
    try:
        process.close()
    except Exception:  # noqa: BLE001  -- whatever it is, it follows from the error that is on its way
        return
