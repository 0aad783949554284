"""Whole pipelines for end-to-end tests: databases of their own on the worker's servers, homes in a short path.

Rule: a fixture's pipeline is gone after it, with every process, slot and database, whatever the test did to it.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo import workload
from demo.embedded import BASES
from demo.patience import PATIENCE, wait_for
from demo.pipeline import Options, Pipeline
from demo.servers import PostgresServer
from demo.workload import SCHEMA, Watcher, Workload
from replicat.batches.scratch import sweep

DISK = "1g"
QUICKLY = "STRATEGY file_copy"
"""A new database of a server that is in memory and small: in half of the time that PostgreSQL takes by itself."""
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Rig:
    """A pipeline between two databases with the workload's tables, and the servers that hold them."""

    pipeline: Pipeline
    source_server: PostgresServer
    target_server: PostgresServer
    own_disks: bool

    def workload(self, *, rate: float = 60.0, ride_out: bool = False) -> Workload:
        """Writers on the source, each time with other random numbers."""
        return Workload(self.pipeline.source_url, rate=rate, seed=next(_numbers), ride_out=ride_out)

    @contextmanager
    def watched(self) -> Iterator[Watcher]:
        """Somebody looks at the target all the while, and never sees what no state of the source ever showed."""
        with Watcher(self.pipeline.target_url) as watcher:
            yield watcher
            before = watcher.looks
            wait_for(lambda: watcher.looks > before, lambda: "nobody looks at the target any more")
        assert not watcher.faults

    def is_linked(self) -> bool:
        """Whether the pump has a Collector, as it says itself."""
        (pump,) = self.pipeline.source.json("SEND PMP1, STATUS")
        return pump["status"] in ("Processing data", "At EOF")

    def ends_equal(self, timeout: float = PATIENCE) -> None:
        """The target ends as the source, row by row."""
        found = self.pipeline.wait_until_equal([SCHEMA], timeout)
        assert sum(table.rows for table in found) > 0


def drop(server: PostgresServer, database: str) -> None:
    """Drop a database with its slots; a walsender may take a moment to let go of one."""
    server.start()
    where = f"WHERE database = '{database}'"
    deadline = time.monotonic() + PATIENCE
    while server.sql(f"SELECT 1 FROM pg_replication_slots {where}"):
        server.sql(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots {where} AND active")
        server.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots {where} AND NOT active")
        assert time.monotonic() < deadline, f"slots of {database} stay in use"
    server.sql(f"DROP DATABASE {database} WITH (FORCE)")


@contextmanager
def databases(source: PostgresServer, target: PostgresServer) -> Iterator[tuple[str, str]]:
    """URLs of two new databases with the workload's empty tables."""
    number = next(_numbers)
    names = (f"e2e_source{number}", f"e2e_target{number}")
    try:
        for server, name in zip((source, target), names, strict=True):
            server.start()
            server.sql(f"CREATE DATABASE {name} {QUICKLY}")
            workload.create_tables(server.url(name))
        yield source.url(names[0]), target.url(names[1])
    finally:
        for server, name in zip((source, target), names, strict=True):
            drop(server, name)


@contextmanager
def folder() -> Iterator[Path]:
    """A private folder for homes."""
    path = Path(tempfile.mkdtemp(prefix=f"tg-homes-{os.getpid()}-", dir=os.environ.get(BASES)))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def disks(place: Path) -> Iterator[bool]:
    """A file system of its own for each home, which tests fill and make read-only; False if we may not mount."""
    mounted: list[Path] = []
    try:
        for name in ("source", "target"):
            home = place / name
            home.mkdir(mode=0o700)
            made = _mount("-t", "tmpfs", "-o", f"size={DISK},mode=0700", "tmpfs", home)
            mounted += [home] if made else []
        yield len(mounted) == 2
    finally:
        for home in mounted:
            subprocess.run(["umount", "--lazy", str(home)], check=False)


def remount(home: Path, options: str) -> None:
    """Change the file system of a home, such as `size=1m` or `ro`."""
    assert _mount("-o", f"remount,{options}", home), f"remount of {home} with {options} failed"


def _mount(*words: object) -> bool:
    try:
        return subprocess.run(["mount", *map(str, words)], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def rig(source: PostgresServer, target: PostgresServer, options: Options) -> Iterator[Rig]:
    """A created pipeline, not yet started; the source holds the first rows once it is.

    In the end all is killed: what it takes to stop in order is shown by a test, once.
    """
    with (
        databases(source, target) as (source_url, target_url),
        folder() as homes,
        disks(homes) as mounted,
    ):
        pipeline = Pipeline(homes, source_url, target_url, options)
        try:
            pipeline.create()
            workload.fill(source_url)
            yield Rig(pipeline, source, target, mounted)
        finally:
            pipeline.abandon()
            sweep()  # the killed Replicat's folder in memory
