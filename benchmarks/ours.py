"""Trailgate on the bed: the two homes of demo.pipeline, built once for a backlog and put back as new before each run.

Rule: built and run by ggsci's commands, as by hand. What is read besides is what anybody may read: the trail's block
headers and /proc.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks import machine
from benchmarks.bed import Bed
from demo.pipeline import Host, Options, Pipeline, PipelineError
from trails.format import BlockKind
from trails.fs import RealFs
from trails.position import TrailName
from trails.reader import BlockReader
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.status import status_of

SLOW = 600.0
REPLICAT, JVM, WORKERS = "Replicat", "Replicat's JVM", "Replicat's workers"
PROGRAMS = {
    "extract": "Extract", "pump": "pump", "collector": "Collector", "replicat": REPLICAT,
    "replicat.work.sparkdaemon": WORKERS, "ggsci.manager": "Managers",
}  # fmt: skip
"""By the module that Python runs."""


class Ours:
    """Both homes while a `with` block lasts; nothing runs and no file is left afterwards."""

    def __init__(self, source_url: str, target_url: str, options: Options | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tg-bench-"))
        self._fresh = self._folder / "fresh"
        self._pool = ThreadPoolExecutor(1)
        try:
            self.pipeline = Pipeline(
                self._folder / "homes", source_url, target_url, options or Options(tables=("bench.*",))
            )
        except BaseException:
            self._remove()
            raise
        self.slot = ""

    @classmethod
    def on(cls, bed: Bed) -> Self:
        """For the bed's databases."""
        return cls(bed.source_url(), bed.target_url())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.pipeline.close()
        finally:
            self._remove()

    def _remove(self) -> None:
        self._pool.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def source(self) -> Host:
        """Where Extract and pump run."""
        return self.pipeline.source

    @property
    def target(self) -> Host:
        """Where Collector and Replicat run."""
        return self.pipeline.target

    def create(self) -> None:
        """Make everything, register, and remember the homes as they are now."""
        self.pipeline.create()
        noted = registration.load(Home(str(self.source.home)), "EXT1").registered
        assert noted is not None
        self.slot = noted.made["slot"]
        self.keep()

    def create_source(self) -> None:
        """Only what Extract needs; no other group may be started."""
        self.pipeline.make_homes()
        self.pipeline.write_params()
        self.pipeline.create_source()
        self.keep()

    def keep(self) -> None:
        """The homes as they are now are what restore() brings back."""
        shutil.rmtree(self._fresh, ignore_errors=True)
        for host in (self.source, self.target):
            shutil.copytree(host.home, self._fresh / host.home.name)

    def restore(self) -> None:
        """Homes as they were before anything ran."""
        for host in (self.source, self.target):
            shutil.rmtree(host.home)
            shutil.copytree(self._fresh / host.home.name, host.home)

    def start_soon(self, host: Host, *lines: str) -> Future[object]:
        """Give commands to ggsci without waiting for their end, so that the clock can be watched meanwhile."""
        return self._pool.submit(host.run, *lines)

    def pid(self, host: Host, group: str) -> int | None:
        """A group's process, if it lives."""
        home = Home(str(host.home))
        return status_of(home, registration.load(home, group)).pid

    def await_pid(self, host: Host, group: str, seconds: float = 60) -> int:
        """A group's process, as soon as it is there."""
        deadline = time.monotonic() + seconds
        while not (pid := self.pid(host, group)):
            if time.monotonic() > deadline:
                raise PipelineError(f"{group} does not start:\n{self.pipeline.state()}")
            time.sleep(0.005)
        return pid

    def programs(self) -> dict[str, list[int]]:
        """Each process of ours that lives, by what it is; ggsci's commands left out."""
        found: dict[str, list[int]] = {name: [] for name in (*PROGRAMS.values(), JVM)}
        for pid in self.pipeline.guard.pids():
            command = machine.arguments(pid)
            if command and command[0].endswith("java"):
                found[JVM].append(pid)
            elif name := next((PROGRAMS[one] for one in command if one in PROGRAMS), ""):
                found[name].append(pid)
        return found

    def cpu(self) -> dict[str, float]:
        """What each of them has used so far, in seconds."""
        return {name: machine.cpu_seconds(*pids) for name, pids in self.programs().items()}

    def collector_pid(self) -> int:
        """The Collector's process."""
        return self.pipeline.pid("collector") or 0

    def check_alive(self) -> None:
        """Raise with both logs if a group that was started has ended by an error."""
        for host in (self.source, self.target):
            home = Home(str(host.home))
            for group in registration.all(home):
                if status_of(home, group).status == "ABENDED":
                    raise PipelineError(f"{group.name} has abended:\n{self.pipeline.state()}")

    def stop(self) -> None:
        """Stop whatever runs, and see that nothing is left."""
        for host in (self.source, self.target):
            try:
                host.run("STOP ER *", "STOP MANAGER!", check=False, timeout=60)
            except subprocess.TimeoutExpired:
                continue
        deadline = time.monotonic() + 15
        while left := self.pipeline.guard.pids():
            if time.monotonic() > deadline:
                raise PipelineError(f"processes {left} do not stop:\n{self.pipeline.state()}")
            time.sleep(0.05)

    def trail(self, host: Host, prefix: str) -> TrailName:
        """A trail of a home."""
        return TrailName.parse(f"./dirdat/{prefix}", str(host.home))


@dataclass(slots=True)
class Progress:
    """A trail as it grows, seen through its durable block headers. `first`: clock, rows and bytes at the first rows."""

    trail: TrailName
    rows: int = 0
    size: int = 0
    first: tuple[float, int, int] | None = None
    _reader: BlockReader | None = field(default=None)

    def look(self) -> None:
        """Take in what has become durable since."""
        if self._reader is None:
            self._reader = BlockReader(RealFs(), self.trail)
        while (block := self._reader.read(payload=False)) is not None:
            self.size += block.header.size
            if block.header.kind == BlockKind.DATA:
                self.rows += block.header.changes
        if self.rows and self.first is None:
            self.first = (time.monotonic(), self.rows, self.size)

    def wait(self, rows: int, alive: Callable[[], None]) -> float:
        """Wait until so many rows are durable; returns the clock (monotonic) of that moment."""
        deadline = time.monotonic() + SLOW
        next_check = time.monotonic() + 1
        while True:
            self.look()
            if self.rows >= rows:
                self.close()
                return time.monotonic()
            if time.monotonic() > next_check:
                alive()
                next_check += 1
            if time.monotonic() > deadline:
                raise PipelineError(f"{self.trail} has {self.rows} of {rows} rows after {SLOW:.0f} s")
            time.sleep(0.01)

    def close(self) -> None:
        """Give the file back."""
        if self._reader is not None:
            self._reader.close()


def started(pid: int) -> float:
    """When a live process was made."""
    when = machine.started(pid)
    if when is None:
        raise PipelineError(f"process {pid} has ended at once")
    return when
