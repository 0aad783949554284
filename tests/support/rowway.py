"""A whole way in one process: Extract, pump and Collector, Replicat, driven by hand, with a profile of each stage.

Spark alone is not there: what its job would run in a worker runs in the thread that asks for the job, or is the job of
the one resident task.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psycopg
from pyspark import TaskContext

from collector.collector import Collector
from collector.door import PumpDoor
from collector.server import Server, listen
from extract.extract import Extract
from extract.sources.postgres import driver
from extract.sources.postgres import source as postgres
from pump.job import PumpJob
from pump.params import PumpParams
from pump.pump import Pump
from replicat.batches.engine import SparkEngine, SparkSettings
from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import admin_for, open_target
from replicat.work import decode
from tests.support.capturing import Capture
from tests.support.homes import make_home
from tests.support.replicat_bench import REG
from tests.support.rowpath import CAME, ROOT, Chain, Passed, Profile, functions
from trails import reader, writer
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.language.params import parse_text
from trails.runtime.language.remotehost import RemoteHost
from trails.runtime.process.group import GroupProcess
from trails.runtime.process.loop import Stop
from trails.runtime.report.report import Log
from trails.testing import FakeClock

NEVER = float("inf")
SECONDS = 60.0
PATIENCE = 5.0
CHECKPOINTS = ("public", "chk")
ENTRIES = {"extract": ("Extract.step",), "link": ("Pump.step", "Server.run"), "replicat": ("Replicat.step",)}
WORKER = (os.path.relpath(decode.__file__, ROOT), decode.run_partition.__name__)
TARGET = ("replicat/run/replicat.py", "Replicat._apply")
PLACES = frozenset((("trails/writer.py", "TrailWriter.append_place"), ("extract/assemble.py", "Assembler.reached")))
"""What a place calls that the server names because others write on it."""
FIRST = SimpleNamespace(partitionId=lambda: 0, attemptNumber=lambda: 0)
"""What Spark says of the one task of a job."""
Stage = tuple[Callable[[], Any], Callable[[], Any]]
"""What makes an idle turn, and what takes one row through."""


class Here:
    """In a SparkContext's place: the partitions of a job run here and now, one after the other."""

    def __init__(self) -> None:
        self._parts: list[list[Any]] = []
        self._work: Callable[[Any], Any] = iter

    def parallelize(self, items: list[Any], slices: int) -> Here:
        self._parts = [items[i::slices] for i in range(slices)]
        return self

    def mapPartitions(self, work: Callable[[Any], Any]) -> Here:
        self._work = work
        return self

    def collect(self) -> list[Any]:
        with mock.patch.object(TaskContext, "_taskContext", FIRST):
            return self._collected()

    def _collected(self) -> list[Any]:
        return [result for part in self._parts for result in self._work(iter(part))]

    def cancelAllJobs(self) -> None:
        """There are none."""


class EngineHere(SparkEngine):
    """The real engine on such a context."""

    def _start(self) -> Any:
        return Here()


class Way:
    """Three groups between a source and a target database, each of which has a table `pets`."""

    def __init__(self, folder: Path, source: str, target: str) -> None:
        self.profile = Profile()
        self.clock = FakeClock()
        self.home = make_home(folder / "home")
        self.log = Log(self.home, "Trailgate", "", self.clock)
        dirdat = self.home.folder("dirdat")
        self.local, self.remote = TrailName(dirdat, "lt"), TrailName(dirdat, "rt")
        self.capture = Capture(source, Path(dirdat))
        self.capture.sql("CREATE TABLE pets (id bigint PRIMARY KEY, name text)")
        self.capture.register()
        self.target = target
        self._ask("CREATE TABLE pets (id bigint PRIMARY KEY, name text)")
        admin_for(target).add_row_table(target, CHECKPOINTS)
        self._rows = 0

    def arrived(self) -> bool:
        """Whether the target holds each row that was written, once."""
        found = [number for (number,) in self._ask("SELECT id FROM pets ORDER BY id")]
        return self._rows > 1 and found == list(range(1, self._rows + 1))

    def _ask(self, statement: str) -> list[Any]:
        with psycopg.connect(self.target, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def passed(self) -> dict[str, list[Passed]]:
        """The functions that a row after the first passes, by stage, in the order of their first calls there."""
        with contextlib.ExitStack() as stack:
            # Where a trail ends its readers look into the folder once a second, by the machine's clock.
            stack.enter_context(mock.patch.object(reader, "LIST_SECONDS", NEVER))
            # And who heard nothing of the server for a second looks whether anything has come.
            stack.enter_context(mock.patch.object(driver, "_QUIET_SECONDS", NEVER))
            stack.enter_context(mock.patch.object(postgres, "DEAD_SECONDS", NEVER))
            # A sync is at once, however long the one before it took.
            stack.enter_context(mock.patch.object(writer, "QUICK_SECONDS", NEVER))
            stack.enter_context(self.profile.listening())
            stages: dict[str, Stage] = {}
            # Each begins on what the one before it has made.
            for name, begin in (("extract", self._extract), ("link", self._link), ("replicat", self._replicat)):
                stages[name] = stack.enter_context(begin())
                stages[name][1]()
            chains = self._chains(stages)
            while any(PLACES.intersection(chain) for chain in chains["extract"]):  # one came in the midst of the row
                chains = self._chains(stages)
        last = chains.pop("replicat")
        parts: dict[str, list[Chain]] = {"plan": [], "worker": [], "target": []}
        for chain in last:
            parts["worker" if WORKER in chain else "target" if TARGET in chain else "plan"].append(chain)
        # Whoever waits for the worker, or begins the target's transaction, stands in the plan.
        parts["worker"] = [chain[chain.index(WORKER) :] for chain in parts["worker"]]
        parts["target"] = [chain[chain.index(TARGET) :] for chain in parts["target"]]
        return {name: functions(found) for name, found in (chains | parts).items()}

    def _chains(self, stages: dict[str, Stage]) -> dict[str, list[Chain]]:
        """What the next row calls, by stage."""
        quiet, chains = {}, {}
        for name, (idle, _) in stages.items():
            self.profile.entries = ENTRIES[name]
            quiet[name] = self.profile.quiet(idle)
        while stages["extract"][0]() is CAME:  # a place, while the other stages were looked at
            pass
        for name, (_, row) in stages.items():
            self.profile.entries = ENTRIES[name]
            chains[name] = self.profile.path(row, quiet[name])
        return chains

    @contextlib.contextmanager
    def _extract(self) -> Iterator[Stage]:
        """From the server's bytes to the release of what is durable."""
        source = self.capture.source()
        extract = Extract.start(RealFs(), self.capture.settings, source, self.clock)
        source._status_due = NEVER  # that timer is the machine's

        def through() -> None:
            self._rows += 1
            before = extract.counters().transactions  # places alone move too: others write on this server
            self.capture.sql(f"INSERT INTO pets VALUES ({self._rows}, 'Rex')")

            def done() -> bool:
                """A sync ends before the next step: asked for it too early, `sync_done` would stand before `sync`."""
                futures.wait([sync] if (sync := extract._writer._syncer._future) else [])
                return extract.counters().transactions > before and extract._writer.last.origin == source.released

            drive(extract, self.clock, done)

        def idle() -> str:
            """Others write on this server, so a place may come, and is synced."""
            before = extract._writer.last
            settled = before.origin == source.released
            extract.step()
            return "" if settled and before == extract._writer.last else CAME

        try:
            yield idle, through
        finally:
            extract.close()

    @contextlib.contextmanager
    def _link(self) -> Iterator[Stage]:
        """From the local trail to the acknowledgement of what is durable in the remote one."""
        stop = Stop()
        listener = listen("127.0.0.1", [0])
        collector = Collector(RealFs(), self.remote, "./dirdat/rt", "f" * 32)
        server = Server(collector, PumpDoor(listener, self.log), self.log, stop, SECONDS)
        server._look_due = NEVER
        serving = threading.Thread(target=server.run, name="collector")
        serving.start()
        with _manager(listener.getsockname()[1]) as port:
            remote = RemoteHost("127.0.0.1", port, 300, tls=False)
            job = PumpJob(
                PumpParams("PMP1", remote, "./dirdat/rt"), self.home.id, "here", self.local, "./dirdat/lt", 1,
                self.home.pinned("PMP1"),
            )  # fmt: skip
            pump = Pump(job, RealFs(), self.log, self.clock)

            def idle() -> str:
                """A place of the Extract's may be on its way still: sent in this turn, or acknowledged in it."""
                settled, before = pump.at_end, pump.status().read
                pump.step()
                settled = settled and pump.at_end and before == pump.status().read
                self._turn(stop)
                return "" if settled else CAME

            def through() -> None:
                before = pump.counters().transactions
                drive(pump, self.clock, lambda: pump.counters().transactions > before)

            try:
                yield idle, through
            finally:
                pump.close()
                serving.join(SECONDS)

    def _turn(self, stop: Stop) -> None:
        """A turn of the Collector in which nothing comes: its wait ends as at a signal, and nobody wants its end."""
        stop._writer.send(b"\0")
        deadline = time.monotonic() + SECONDS
        while ("trails/host.py", "RealHost.poll") not in self.profile.heard:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        stop.clear()

    @contextlib.contextmanager
    def _replicat(self) -> Iterator[Stage]:
        """From the remote trail to the commit in the target."""
        text = f"REPLICAT rep1\nTARGETDB '{self.target}'\nMAP public.*, TARGET public.*;\n"
        params = ReplicatParams.from_statements(parse_text(text, "rep1.prm"))
        target = open_target(TargetSettings(self.target, CHECKPOINTS, "REP1", REG.group_key, self.home.root))
        scratch = tempfile.mkdtemp(prefix="tgw-")  # short enough for a socket; the engine removes it
        log = os.path.join(self.home.folder("dirrpt"), "spark.log")
        engine = EngineHere(SparkSettings("test", scratch, log, master="local[1]", warm=False))
        replicat = Replicat(
            params, REG, self.remote, fs=RealFs(), clock=self.clock, target=target, engine=engine, spill=scratch,
            note=lambda _text: None,
        )  # fmt: skip

        def through() -> None:
            before = replicat.counters().transactions
            drive(replicat, self.clock, lambda: replicat.counters().transactions > before)

        def idle() -> str:
            before = replicat._pipeline_now.idle_position
            replicat.step()
            return "" if before is not None and before == replicat._pipeline_now.idle_position else CAME

        try:
            yield idle, through
        finally:
            replicat.close()


def drive(process: GroupProcess, clock: FakeClock, done: Callable[[], bool]) -> None:
    """As the main loop does, until `done()`. Who waits for long may wait for a second try: then time goes on."""
    began = time.monotonic()
    while not done():
        waited = time.monotonic() - began
        assert waited < SECONDS, process.command("STATUS", {})
        if waited > PATIENCE:
            clock.sleep(0.1)
        if process.step() or done():
            continue
        poller = select.poll()
        for wait in process.waits():
            poller.register(*(wait if isinstance(wait, tuple) else (wait, select.POLLIN)))
        poller.poll(min(100, int(process.idle_seconds() * 1000) + 1))


@contextlib.contextmanager
def _manager(collector: int) -> Iterator[int]:
    """A port at which one caller is told the Collector's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.makefile().readline()
                sock.sendall(json.dumps({"ok": True, "port": collector}).encode() + b"\n")

        thread = threading.Thread(target=answer, name="manager")
        thread.start()
        yield listener.getsockname()[1]
        thread.join(SECONDS)
