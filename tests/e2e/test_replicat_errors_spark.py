"""Refusals where MAPs have expressions: one that fails on some row is a refusal of that change, and exceptions MAPs may
have expressions of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from replicat.apply.discard import Discards
from replicat.apply.discardfile import DiscardFile
from replicat.batches.engine import SparkEngine
from replicat.load.rounds import LoadSettings
from replicat.run.replicat import Replicat
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import open_target
from replicat.work.decode import Evaluated, Task
from replicat.work.net.part import Part, Unmapped
from tests.e2e.test_replicat_discards import DiscardBench, counts
from tests.e2e.test_replicat_postgres import D, I, U
from tests.support.replicat_bench import REG
from trails.clock import RealClock
from trails.fs import Fs, RealFs
from trails.record import Column, TableDef

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.xdist_group("spark")]

KV = TableDef("src", "kv", (
    Column("id", "integer", "integer", key=True), Column("a", "text", "text"), Column("n", "integer", "integer"),
))  # fmt: skip


class Kept:
    """The session's Spark, which no process ends."""

    def __init__(self, engine: SparkEngine) -> None:
        self._engine = engine

    @property
    def sql(self) -> Any:
        return self._engine.sql

    def submit(self, tasks: Sequence[Task]) -> Future[list[Part | Unmapped]]:
        return self._engine.submit(tasks)

    def evaluate(self, task: Task, fs: Fs | None = None) -> Evaluated:
        return self._engine.evaluate(task, fs)

    def close(self) -> None:
        return


class SparkBench(DiscardBench):
    """A Bench with a real Spark."""

    def __init__(self, folder: Path, url: str, engine: SparkEngine) -> None:
        super().__init__(folder, url)
        self.engine = Kept(engine)

    def replicat(self, url: str = "") -> Replicat:
        params = self.params()
        file = DiscardFile(RealFs(), self.path, 1, title="A discard file")
        return Replicat(
            params, REG, self.trail, fs=RealFs(), clock=RealClock(), engine=self.engine, note=self.notes.append,
            target=open_target(TargetSettings(url or self.url, ("gg", "chk"), "REP1", 77, "/home")),
            discards=Discards("REP1", params.error_rules, file, warn=self.said.append),
            load=LoadSettings(table=("gg", "chk")),
        )  # fmt: skip

    def run(self, url: str = "") -> Replicat:
        process = self.replicat(url)
        try:
            while not process._at_eof:
                process.step()
            process.flush()
        finally:
            process.close()
        return process


@pytest.fixture
def bench(tmp_path: Path, target_db: str, spark_engine: SparkEngine) -> Iterator[SparkBench]:
    made = SparkBench(tmp_path, target_db, spark_engine)
    made.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, n int CHECK (n >= 0), part int)")
    made.sql("CREATE TABLE exc (id int, what text, type text, num text)")
    yield made
    made.feed.close()


def test_an_expression_that_fails_on_some_row(bench: SparkBench):
    """That change alone is refused, by Spark's SQLSTATE; its record names the expression and the values it read."""
    bench.lines = ["REPERROR (22012, DISCARD)", "REPERROR (23514, IGNORE)"]
    bench.maps = "MAP src.kv, TARGET public.kv, COLMAP (USEDEFAULTS, part = 100 div n), FILTER (id < 100);"
    bench.feed.tx(*[(I, KV, [str(n), "a", str(n % 7)]) for n in range(1, 20)])
    bench.feed.tx((I, KV, ["30", "b", "-1"]), (I, KV, ["31", "b", "5"]), (I, KV, ["300", "b", "0"]))
    done = bench.run()
    assert bench.sql("SELECT count(*), sum(part) FROM kv WHERE id < 20") == [
        (17, sum(100 // (n % 7) for n in range(1, 20) if n % 7))
    ]
    assert bench.sql("SELECT id, part FROM kv WHERE id >= 20") == [(31, 20)]
    assert counts(done) == {"src.kv": {"inserts": 18, "discards": 2, "ignored": 1, "left out by filters": 1}}
    assert bench.text().count("on action DISCARD on error 22012") == 2
    assert bench.text().count("No target record: no row of the target could be made of it: ") == 2
    assert "COLMAP part: 100 div n fails for n = '0': " in bench.text()


def test_an_exceptions_map_with_expressions(bench: SparkBench):
    """Evaluated for the refused changes alone; an expression of the MAP itself that failed is an error of kind MAP."""
    bench.lines = ["REPERROR (DEFAULT, EXCEPTION)"]
    bench.maps = (
        "MAP src.kv, TARGET public.kv, COLMAP (USEDEFAULTS, part = 100 div n), MAPEXCEPTION (TARGET public.exc, "
        "COLMAP (id = id, what = upper(concat(a, '-', change.operation)), type = @GETENV('LASTERR','ERRTYPE'), "
        "num = @STRCAT('E', @GETENV('LASTERR','DBERRNUM'))));"
    )
    bench.feed.tx(
        (I, KV, ["1", "a", "2"]), (I, KV, ["2", "b", "0"]), (I, KV, ["3", "c", "-2"]), (I, KV, ["4", "d", "4"])
    )
    bench.feed.tx((U, KV, ["1", "x", "-5"], ["1", "a", "2"]), (D, KV, ["9", "gone", "1"]))
    bench.run()
    assert bench.sql("SELECT id, part FROM kv ORDER BY id") == [(1, 50), (4, 25)]
    assert bench.sql("SELECT * FROM exc ORDER BY id") == [
        (1, "X-UPDATE", "DB", "E23514"), (2, "B-INSERT", "MAP", "E22012"), (3, "C-INSERT", "DB", "E23514"),
        (9, "GONE-DELETE", "DB", "E02000"),
    ]  # fmt: skip


def test_B4_an_expression_that_fails_pauses_its_table_and_is_not_asked_of_it_until_it_is_resumed(bench: SparkBench):
    """The other table's rows are mapped by an expression too; then the MAP is mended, and the table catches up."""
    bench.sql("CREATE TABLE log (id int PRIMARY KEY, a text, n int)")
    log = TableDef("src", "log", KV.columns)
    bench.lines = ["TABLEERROR (src.kv, PAUSE)"]
    mapped = "MAP src.kv, TARGET public.kv, COLMAP (USEDEFAULTS, part = 100 div {});\nMAP src.log, TARGET public.log, "
    bench.maps = mapped.format("n") + "COLMAP (USEDEFAULTS, a = upper(a));"
    bench.feed.tx((I, KV, ["1", "a", "2"]), (I, log, ["1", "a", "1"]))
    bench.feed.tx((I, KV, ["2", "a", "0"]), (I, log, ["2", "b", "1"]))
    bench.run()
    bench.feed.tx((U, KV, ["2", "b", "0"], ["2", "a", "0"]), (I, log, ["3", "c", "1"]))
    bench.run()
    assert bench.sql("SELECT a FROM log ORDER BY id") == [("A",), ("B",), ("C",)]
    assert bench.sql("SELECT id, part FROM kv") == [(1, 50)]
    bench.maps = bench.maps.replace("div n", "div greatest(n, 1)")
    process = bench.replicat()
    try:
        process.command("RESUMETABLE", {"table": "src.kv"})
        while not process._at_eof or process._pausing.rows:
            process.step()
    finally:
        process.close()
    assert bench.sql("SELECT id, a, part FROM kv ORDER BY id") == [(1, "a", 50), (2, "b", 100)]
