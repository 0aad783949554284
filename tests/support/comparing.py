"""COMPARE and REPAIR inside a test's process, while a thread drives Extract and Replicat."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from demo.patience import PATIENCE
from extract.admin import answer as extract_admin
from extract.extract import Extract
from replicat.compare.comparing import Comparing, TableResult
from replicat.compare.flight import Flight
from replicat.compare.pairing import Wish, wishes
from replicat.compare.ranges import Key
from replicat.compare.repairfit import RepairFit
from replicat.compare.repairing import Repairing
from replicat.compare.repairorder import WantedRows, repaired
from replicat.compare.rowrepair import Outcome
from replicat.load.chunk import SourceOf
from replicat.load.group import LoadingGroup
from replicat.load.loadtables import LoadState, LoadTables
from replicat.load.pausedtable import PausedTable
from replicat.model.target import CheckpointRow
from replicat.targets.contract import Target
from tests.support.capturing import Capture
from tests.support.homes import make_home, write
from tests.support.loading import Captured, LoadBench
from tests.support.replicat_bench import REG
from trails.described import DescribedTable
from trails.fs import RealFs
from trails.position import Position, TrailName
from trails.reader import last_header
from trails.runtime.home import registration
from trails.runtime.home.home import Home


def sql(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in statements:
            cursor = conn.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


class Compare(LoadBench):
    """A bench that can compare; a thread drives Extract and Replicat while it does."""

    def __init__(
        self, folder: Path, capture: Captured, url: str, schema: str = "public", *, schema_there: str = "public"
    ) -> None:
        super().__init__(folder, capture, url, schema, schema_there=schema_there)
        self._stop = threading.Event()
        self._flows = False
        self.extract: Extract | None = None
        """Set: changes flow while the command waits for the group. A source's place goes on by what others write."""

    @contextmanager
    def flowing(self, extract: Extract) -> Iterator[None]:
        """Changes are captured and applied by a thread meanwhile."""
        with ThreadPoolExecutor(1) as pool:
            self._stop.clear()
            self._flows = True
            flow = pool.submit(self._flow, extract)
            try:
                yield
            finally:
                self._stop.set()
                self._flows = False
            flow.result()

    def _watched(self, flight: Flight) -> Flight:
        """Changes flow while it waits, unless they do anyway."""
        extract, wait = self.extract, flight.wait

        def flowing_wait(begin: CheckpointRow, past: Position) -> CheckpointRow | None:
            with nullcontext() if extract is None or self._flows else self.flowing(extract):
                return wait(begin, past)

        flight.wait = flowing_wait
        return flight

    def _flow(self, extract: Extract) -> None:
        assert self.process is not None
        while not self._stop.is_set():
            busy = extract.step()
            extract.flush()
            busy = self.process.step() or busy
            if not busy:
                self._stop.wait(0.01)

    def all_applied(self) -> bool:
        """Whether the target has the first row."""
        return bool(sql(self.url, "SELECT id FROM a"))

    def home(self, *maps: str) -> Home:
        """A home with the group, whose parameter file has these MAPs."""
        home = make_home(self.folder / "home")
        registration.save(home, replace(REG, trail=str(self.trail)))
        lines = ["REPLICAT rep1", f"TARGETDB '{self.url}'", f"SOURCEDB '{self.capture.url}'",
                 "CHECKPOINTTABLE public.chk", *maps]  # fmt: skip
        write(home, "rep1", "\n".join(lines) + "\n")
        return home

    def group(self, target: Target) -> LoadingGroup:
        """The group, as its files would say; the target is connected."""
        params = self.params()
        object.__setattr__(params, "source_url", self.capture.url)
        target.connect()
        tables = LoadTables(target.kind, self.table, "REP1", REG.group_key)
        paused = PausedTable(target.kind, self.table, "REP1", REG.group_key)
        return LoadingGroup(params, target, tables, "REP1", self.trail, paused)

    def described(self, pattern: str = "") -> list[DescribedTable]:
        """The source's tables."""
        pattern = pattern or f"{self.there}.*"
        reply = extract_admin({"verb": "describe_tables", "url": self.capture.url, "pattern": pattern})
        assert reply["ok"], reply
        return [DescribedTable.from_wire(one) for one in reply["tables"]]

    def source(self) -> SourceOf:
        """As the trail says."""
        header = last_header(RealFs(), TrailName(self.trail.folder, self.trail.prefix))
        assert header is not None
        return SourceOf(self.capture.url, header.source)

    def compare(self, pattern: str = "", seconds: float = PATIENCE, **options: Any) -> dict[str, TableResult]:
        """By the source table's name."""
        target = self.target()
        group = self.group(target)
        flight = self._watched(Flight(RealFs(), self.trail, target.load_row, seconds))
        comparing = Comparing(self.source(), self.url, flight, **options)
        try:
            found: list[Wish] = wishes(group, self.described(pattern), None, LoadState())
            return {wish.source.removeprefix(f"{self.there}."): comparing.table(wish) for wish in found}
        finally:
            target.close()

    def repair(
        self,
        found: Sequence[TableResult],
        *,
        flight: type[Flight] = Flight,
        connection: Callable[[], Target] | None = None,
    ) -> dict[str, dict[Key, Outcome]]:
        """What became of the rows that a compare() found, by the source table's name."""
        target = self.target()
        group = self.group(target)
        watch = self._watched(flight(RealFs(), self.trail, target.load_row))
        repairing = Repairing(self.source(), watch, connection or self.target, group.tables, paused=group.paused)
        try:
            fit = RepairFit.of(group, watch, {})
            asked = [WantedRows.of(one, fit) for one in found]
            done = list(repaired(fit, repairing, wishes(group, self.described(), None, group.state()), asked))
        finally:
            target.close()
        return {
            one.source.removeprefix(f"{self.there}."): _by_key(one, some) for one, some in zip(asked, done, strict=True)
        }


def _by_key(one: WantedRows, outcomes: Sequence[Outcome]) -> dict[Key, Outcome]:
    """Of a table that is not repaired: why not, without a key."""
    if one.why:
        return {(): ("not repaired", one.why)}
    return {key: outcome for (_, key), outcome in zip(one.rows, outcomes, strict=True)}


@contextmanager
def between(source: str, target: str, folder: Path) -> Iterator[Compare]:
    """From a PostgreSQL database to another, captured from its log."""
    (folder / "dirdat").mkdir()
    made = Compare(folder, Capture(source, folder / "dirdat"), target)
    try:
        yield made
    finally:
        if made.process is not None:
            made.process.close()


def both(bench: Compare, *statements: str) -> None:
    sql(bench.capture.url, *statements)
    sql(bench.url, *statements)


@contextmanager
def writer(url: str, write: Callable[[psycopg.Connection[Any], int], None]) -> Iterator[None]:
    """One transaction after the other until the end."""
    stop = threading.Event()

    def run() -> None:
        with psycopg.connect(url, autocommit=True) as conn:
            number = 0
            while not stop.wait(0.002):
                write(conn, number)
                number += 1

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run)
        try:
            yield
        finally:
            stop.set()
        done.result()
