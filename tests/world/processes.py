"""Processes of a machine of the world, as its Manager starts, finds, hears and ends them. See ggsci.spawning.Processes.

Process ids are few and come again soon, so that whoever trusts a number alone meets a stranger. A dead child keeps its
number until its Manager has asked how it ended, or has died itself.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trails.runtime.home.home import Home

if TYPE_CHECKING:
    from tests.world.fibers import Proc

TICK_US = 10_000
"""The unit of a process's birth."""


class ReadyPipe:
    """What a Collector says to the Manager that started it. `writers`: who could still write."""

    def __init__(self, proc: Proc) -> None:
        self.data = bytearray()
        self.writers = [proc]
        self.reader, self.writer = proc.world.descriptor(self), proc.world.descriptor(self)

    @property
    def is_over(self) -> bool:
        """Nobody can write any more."""
        return all(writer.dead for writer in self.writers)

    def readable(self) -> bool:
        return bool(self.data) or self.is_over


class Handle:
    """An open descriptor of a process."""

    def __init__(self, proc: Proc) -> None:
        self.proc = proc

    def readable(self) -> bool:
        return self.proc.dead


class Child:
    """See Spawned."""

    def __init__(self, proc: Proc) -> None:
        self.proc, self.pid = proc, proc.pid
        self.returncode: Any = None

    def poll(self) -> int | None:
        if self.returncode is None and self.proc.dead:
            self.returncode = self.proc.code
            self.proc.parent = None
            self.proc.machine.forget(self.proc)
        return self.returncode

    def kill(self) -> None:
        self.proc.world.kill(self.proc, "by its Manager")

    def wait(self) -> int:
        self.proc.world.wait(lambda: self.proc.dead, None)
        return self.poll() or 0


class SimProcesses:
    """Of one Manager's process."""

    def __init__(self, proc: Proc) -> None:
        self._proc, self._world = proc, proc.world

    def spawn(self, home: Home, command: Sequence[str], name: str, keep: Sequence[int] = ()) -> Child:
        self._world.edge("spawn", name)
        assert home is self._proc.machine.home
        self._world.rules.spawns(self._proc, name)
        at = command.index("-m") + 1
        made = self._world.start(command[at], self._proc.machine, command[at + 1 :])
        made.parent = self._proc
        for number in keep:
            made.pipe = self._world.ends[number]
            made.pipe.writers.append(made)
        self._world.edge("spawned", name)
        return Child(made)

    def open(self, pid: int) -> int:
        self._world.edge("pidfd_open", "")
        if pid not in self._proc.machine.pids:
            raise ProcessLookupError(pid)
        return self._world.descriptor(Handle(self._proc.machine.pids[pid]))

    def signal(self, fd: int, number: signal.Signals) -> None:
        self._world.edge("signal", "")
        proc = self._world.ends[fd].proc
        if proc.machine.pids.get(proc.pid) is not proc:
            raise ProcessLookupError(proc.pid)
        self._world.rules.signals(self._proc, proc)
        if number == signal.SIGTERM:
            proc.stop.request()
        elif not proc.dead:
            self._world.kill(proc, "by its Manager")

    def pipe(self) -> tuple[int, int]:
        made = ReadyPipe(self._proc)
        return made.reader, made.writer

    def read(self, fd: int, size: int) -> bytes:
        self._world.edge("read", "pipe")
        pipe = self._world.ends[fd]
        data = bytes(pipe.data[:size])
        del pipe.data[:size]
        if not data and not pipe.is_over:
            raise BlockingIOError(fd)
        return data

    def close(self, fd: int) -> None:
        end = self._world.ends.pop(fd)
        if isinstance(end, ReadyPipe) and fd == end.writer:
            end.writers.remove(self._proc)
