"""Backlogs: capture to the local trail, and source to target, over workloads W1 to W4.

Method: the same log is read again by every run, through copies of one slot. Clocks start when the measured process is
made (the peer's: when it is told to go), connecting included, and stop when the last row is durable in the trail, or
visible at the target. End to end, pump, Replicat and Spark run already; the tables are compared after the clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from benchmarks import machine, peers
from benchmarks.bed import Bed
from benchmarks.options import Run
from benchmarks.ours import JVM, REPLICAT, WORKERS, Ours, Progress, started
from benchmarks.results import OURS, Line
from benchmarks.workloads import Workload
from demo.embedded import processes_in

RECV_TCP, RECV_UNIX = "pg_recvlogical, TCP", "pg_recvlogical, socket"
NATIVE = "PostgreSQL's own"
MARKER_ROWS = 1


def measure(run: Run, workload: Workload, wanted: set[str]) -> None:
    """Capture and end to end over one workload's backlog."""
    with Bed(tcp=run.tcp) as bed, Ours.on(bed) as ours:
        run.say(f"{workload.name}: {workload.title}: {workload.rows:,} rows")
        bed.prepare(workload.base)
        ours.create()
        bed.hold(ours.slot)
        run.say(f"{workload.name}: backlog made in {bed.load(workload):.1f} s")
        if "capture" in wanted:
            _Capture(run, bed, ours, workload).measure()
        if "e2e" in wanted:
            EndToEnd(run, bed, ours, workload).measure()


@dataclass(slots=True)
class _Capture:
    """The log to a synced trail, and the peer's to a file."""

    run: Run
    bed: Bed
    ours: Ours
    workload: Workload
    found: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def measure(self) -> None:
        """All runs, then the lines."""
        rivals = [lambda: self._peer(True), lambda: self._peer(False)] if self.run.peers else []
        self.run.interleaved(*rivals, self._extract)
        for (who, what), values in self.found.items():
            peer = (RECV_TCP if self.run.tcp else RECV_UNIX) if who == OURS else ""
            bar = self.run.bar(self.workload, f"capture {what}", self.found.get((peer, what)))
            case = f"{self.workload.name} {self.workload.title}"
            self.run.take(Line("capture", case, who, what, tuple(values), bar, peer, less=what != "rows/s"))

    def _note(self, who: str, what: str, value: float) -> None:
        self.found.setdefault((who, what), []).append(value)

    def _peer(self, tcp: bool) -> None:
        who = RECV_TCP if tcp else RECV_UNIX
        taken = peers.recvlogical(self.bed, tcp=tcp)
        self._note(who, "rows/s", self.workload.rows / taken.seconds)
        self._note(who, "CPU us/row", taken.cpu / self.workload.rows * 1e6)
        self._note(who, "bytes/row", taken.size / self.workload.rows)

    def _extract(self) -> None:
        ours, rows = self.ours, self.workload.rows
        ours.restore()
        self.bed.copy_slot(ours.slot)
        ours.source.run("START MANAGER")
        starting = ours.start_soon(ours.source, "START EXTRACT EXT1")
        pid = ours.await_pid(ours.source, "EXT1")
        began = started(pid)
        progress = Progress(ours.trail(ours.source, "lt"))
        end = progress.wait(rows + MARKER_ROWS, ours.check_alive)
        cpu, memory = machine.cpu_seconds(pid), machine.peak_megabytes(pid)
        starting.result()
        ours.stop()
        self._note(OURS, "rows/s", rows / (end - began))
        if progress.first and end > progress.first[0]:
            at, before, _ = progress.first
            self._note(OURS, "rows/s once running", (rows - before) / (end - at))
        self._note(OURS, "CPU us/row", cpu / rows * 1e6)
        self._note(OURS, "bytes/row", progress.size / rows)
        self._note(OURS, "MB resident", memory)


@dataclass(slots=True)
class EndToEnd:
    """The log to the target's table."""

    run: Run
    bed: Bed
    ours: Ours
    workload: Workload
    found: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def measure(self) -> None:
        """All runs, then the lines."""
        self.run.interleaved(*([self.native] if self.run.peers else []), self.whole_path)
        for (who, what), values in self.found.items():
            peer = NATIVE if who == OURS else ""
            bar = self.run.bar(self.workload, f"e2e {what}", self.found.get((peer, what)))
            case = f"{self.workload.name} {self.workload.title}"
            self.run.take(Line("e2e", case, who, what, tuple(values), bar, peer, less=what != "rows/s"))

    def _note(self, who: str, what: str, value: float) -> None:
        self.found.setdefault((who, what), []).append(value)

    def native(self) -> None:
        """PostgreSQL's own, once."""
        self.bed.fresh_target()
        with peers.subscription(self.bed, backlog=True):
            before, began = self._machine(), peers.enable(self.bed)
            self._done(NATIVE, began, self.bed.await_marker(lambda: None), before)

    def whole_path(self) -> None:
        """Trailgate, once."""
        ours, bed = self.ours, self.bed
        ours.restore()
        bed.fresh_target()
        bed.copy_slot(ours.slot)
        ours.target.run("START MANAGER")
        asked = time.monotonic()
        ours.target.run("START REPLICAT REP1")
        self._note(OURS, "s until Replicat runs", time.monotonic() - asked)
        ours.source.run("START MANAGER", "START EXTRACT PMP1")
        idle = self._cpu()  # what starting costs, Spark's seconds above all, is not the backlog's
        before = self._machine()
        starting = ours.start_soon(ours.source, "START EXTRACT EXT1")
        began = started(ours.await_pid(ours.source, "EXT1"))
        self._done(OURS, began, bed.await_marker(ours.check_alive), before)
        starting.result()
        self._note_processes(idle)
        ours.stop()

    def _machine(self) -> dict[str, float]:
        """CPU seconds so far, of everything and of each server with what serves there."""
        servers = {"source server": self.bed.source, "target server": self.bed.target}
        found = {name: machine.cpu_seconds(*processes_in(server.data)) for name, server in servers.items()}
        return {"whole machine": machine.busy_seconds(), **found}

    def _done(self, who: str, began: float, end: float, before: dict[str, float]) -> None:
        rows = self.workload.rows
        self._note(who, "rows/s", rows / (end - began))
        for name, seconds in self._machine().items():
            self._note(who, f"CPU us/row, {name}", (seconds - before[name]) / rows * 1e6)
        self.bed.compare(self.workload.tables)

    def _pids(self) -> dict[str, list[int]]:
        """Each process that lives; Replicat's with Spark's JVM and workers."""
        found = self.ours.programs()
        spark = {"Replicat with Spark": found[REPLICAT] + found[JVM] + found[WORKERS]}
        return {name: found[name] for name in ("Extract", "pump", "Collector")} | spark

    def _cpu(self) -> dict[str, float]:
        return {name: machine.cpu_seconds(*pids) for name, pids in self._pids().items()}

    def _note_processes(self, idle: dict[str, float]) -> None:
        """What each process used for the backlog, and the most memory it had."""
        cpu = self._cpu()
        for name, pids in self._pids().items():
            self._note(OURS, f"CPU us/row, {name}", (cpu[name] - idle[name]) / self.workload.rows * 1e6)
            self._note(OURS, f"MB resident, {name}", sum(map(machine.peak_megabytes, pids)))
