"""The initial load: a table that has rows, from one server to the other, beside two bare pipes of COPY.

Method: the table has no index but its key. The peer is two processes at once, each `psql COPY ... TO STDOUT` piped into
`psql COPY ... FROM STDIN` over half of the keys: what the two servers and a pipe can do. Ours is INSTANTIATE, then
START; the clock is the load's own, from the first chunk's planning to the last one's commit, Spark's start left out.
The same with COLMAP and FILTER, which let all rows pass as they are. Once more with 200 updates a second at the source:
then it counts how long the target takes to be equal after the last chunk. The tables are compared after the clock.
"""

from __future__ import annotations

import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

import psycopg

from benchmarks import machine
from benchmarks.bed import BASE_DB, SOURCE_DB, TARGET_DB, Bed
from benchmarks.options import Run
from benchmarks.ours import Ours
from benchmarks.results import OURS, Line
from benchmarks.workloads import TABLE
from demo.patience import wait_for
from demo.pipeline import Options

ROWS = 10_000_000
UPDATES_A_SECOND = 200
PIPES = "two pipes of COPY"
BAR = 0.9
CAUGHT_UP_SECONDS = 10.0
TASK_MEGABYTES = 64.0
LONGEST = 1800.0
_PLAIN = "MAP bench.*, TARGET bench.*;"
_MAPPED = f"MAP {TABLE}, TARGET {TABLE}, COLMAP (USEDEFAULTS, version = version + 0), FILTER (id > 0);"
_STATE = "SELECT state, reason, ended_us - started_us FROM gate.checkpoint_tables"


def measure(run: Run) -> None:
    """Quiet, then under updates."""
    rows = max(10_000, int(ROWS * run.scale))
    with Bed(tcp=run.tcp) as bed:
        run.say(f"load: {rows:,} rows")
        bed.prepare(0)
        bed.target.sql(f"CREATE DATABASE {BASE_DB} TEMPLATE {TARGET_DB} STRATEGY file_copy")
        bed.source.sql(f"CALL bench.insert_rows({rows}, 100000)", SOURCE_DB)
        bed.source.sql("VACUUM (FREEZE, ANALYZE)", SOURCE_DB)
        found = _Load(run, bed, rows)
        run.interleaved(*([found.pipes] if run.peers else []), found.ours, found.mapped)
        found.under_updates()
        found.tell()


@dataclass(slots=True)
class _Load:
    """One table, again and again into an empty one."""

    run: Run
    bed: Bed
    rows: int
    found: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)

    def tell(self) -> None:
        """The lines."""
        bars = {"MB resident, a task": TASK_MEGABYTES, "s from the last chunk to equal": CAUGHT_UP_SECONDS}
        pipes = sorted(self.found.get(("quiet", PIPES, "rows/s"), []))
        for (case, who, what), values in self.found.items():
            bar = bars.get(what)
            if (case, who, what) == ("quiet", OURS, "rows/s") and pipes:
                bar = BAR * pipes[len(pipes) // 2]
            peer = PIPES if who == OURS and case == "quiet" else ""
            title = f"{self.rows:,} rows, {case}"
            self.run.take(Line("load", title, who, what, tuple(values), bar, peer, less=what != "rows/s"))

    def _note(self, case: str, who: str, what: str, value: float) -> None:
        self.found.setdefault((case, who, what), []).append(value)

    def _empty(self) -> None:
        self.bed.fresh_target()

    def pipes(self) -> None:
        """The peer."""
        self._empty()
        before, began = machine.busy_seconds(), time.monotonic()
        half = self.rows // 2
        running = [self._pipe("id <= {}", half), self._pipe("id > {}", half)]
        for process in running:
            if process.wait():
                raise RuntimeError(f"the pipe of COPY ended with {process.returncode}")
        self._rate("quiet", PIPES, time.monotonic() - began, before)

    def _pipe(self, where: str, key: int) -> subprocess.Popen[bytes]:
        psql = self.bed.source.bindir / "psql"
        out = f"COPY (SELECT * FROM {TABLE} WHERE {where.format(key)}) TO STDOUT"
        reads = f"{psql} -qX '{self.bed.source_url()}' -c '{out}'"
        writes = f"{psql} -qX '{self.bed.target_url()}' -c 'COPY {TABLE} FROM STDIN'"
        return subprocess.Popen(["/bin/sh", "-c", f"{reads} | {writes}"])

    def ours(self) -> None:
        """INSTANTIATE and START."""
        with self._pipeline() as ours:
            before = machine.busy_seconds()
            seconds, megabytes = self._loaded(ours)
            self._rate("quiet", OURS, seconds, before)
            self._note("quiet", OURS, "MB resident, a task", megabytes)
            self.bed.compare()

    def mapped(self) -> None:
        """The same through expressions."""
        with self._pipeline() as ours:
            path = ours.target.home / "dirprm" / "rep1.prm"
            text = path.read_text()
            assert _PLAIN in text
            path.write_text(text.replace(_PLAIN, _MAPPED))
            before = machine.busy_seconds()
            seconds, megabytes = self._loaded(ours)
            self._rate("COLMAP, FILTER", OURS, seconds, before)
            self._note("COLMAP, FILTER", OURS, "MB resident, the largest worker", megabytes)
            self.bed.compare()

    def under_updates(self) -> None:
        """The same while rows change; equal in the end."""
        with self._pipeline() as ours, _Updates(self.bed.source.url(SOURCE_DB), self.rows) as updates:
            seconds, _ = self._loaded(ours)
            ended = time.monotonic()
            self._note("200 updates/s", OURS, "rows/s", self.rows / seconds)
            updates.stop()
            wait_for(lambda: self._is_equal(updates.number), lambda: "the target does not become equal")
            self._note("200 updates/s", OURS, "s from the last chunk to equal", time.monotonic() - ended)
            self.bed.compare()

    def _is_equal(self, updates: int) -> bool:
        found = self.bed.target.sql(f"SELECT sum(version) FROM {TABLE}", TARGET_DB)
        return int(found[0][0] or 0) >= updates

    def _pipeline(self) -> Ours:
        self._empty()
        options = Options(tables=("bench.*",), replicat=(f"SOURCEDB {self.bed.source_url()}",))
        ours = Ours(self.bed.source_url(), self.bed.target_url(), options)
        with suppress(psycopg.Error):
            self.bed.drop_slots()
        ours.create()
        return ours

    def _loaded(self, ours: Ours) -> tuple[float, float]:
        """Seconds by the load's own clock, and the most memory that a Python worker of Spark's had."""
        ours.source.run("START MANAGER", "START EXTRACT EXT1")
        ours.target.run("START MANAGER")
        ours.source.run("START EXTRACT PMP1")
        wait_for(lambda: bool(list(ours.target.home.glob("dirdat/rt*"))), lambda: "no trail arrives")
        ours.target.run("INSTANTIATE REPLICAT REP1, TABLE bench.accounts", "START REPLICAT REP1")
        most, deadline = 0.0, time.monotonic() + LONGEST
        with psycopg.connect(self.bed.target.url(TARGET_DB), autocommit=True) as conn:
            while True:
                # Not by INFO TABLES, whose processes would take half a core from what is measured.
                state, reason, micros = conn.execute(_STATE).fetchall()[0]
                most = max([most, *map(machine.peak_megabytes, self._workers(ours))])
                if state in ("catching up", "live"):
                    return micros / 1e6, most
                if state == "failed" or time.monotonic() > deadline:
                    raise RuntimeError(f"the load does not end: {state} {reason}")
                time.sleep(1)

    def _workers(self, ours: Ours) -> list[int]:
        """Spark's Python workers: not the driver, not the JVM, not the daemon that makes workers."""
        driver = ours.pid(ours.target, "REP1") or 0
        family = [pid for pid in machine.family(driver) if pid != driver]
        return [pid for pid in family if _parent(pid) in family and _parent(_parent(pid)) in family]

    def _rate(self, case: str, who: str, seconds: float, before: float) -> None:
        self._note(case, who, "rows/s", self.rows / seconds)
        self._note(case, who, "CPU us/row, whole machine", (machine.busy_seconds() - before) / self.rows * 1e6)


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


class _Updates:
    """A writer of so many updates a second, each a transaction. `number`: of those that were committed."""

    def __init__(self, url: str, rows: int) -> None:
        self._url, self._rows = url, rows
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.number = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Write no more."""
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as conn:
            began = time.monotonic()
            while not self._stop.is_set():
                key = self.number * 7919 % self._rows + 1
                conn.execute(f"UPDATE {TABLE} SET version = version + 1 WHERE id = %s", [key])
                self.number += 1
                time.sleep(max(0.0, began + self.number / UPDATES_A_SECOND - time.monotonic()))
