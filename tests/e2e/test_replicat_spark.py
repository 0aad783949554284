"""Replicat's engine and the trail data source on a real Spark."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException

from demo.patience import PATIENCE, wait_for
from replicat.batches.batch import Batcher, tasks_of
from replicat.batches.engine import SLOW_WORKER, SparkEngine, SparkSettings
from replicat.model.plan import TablePlan
from replicat.model.target import Layout, Work
from replicat.work.decode import Task, columns_of
from replicat.work.sparkdaemon import installed_first
from tests.support.list_target import parse
from tests.support.replicat_trail import TrailFeed, table
from trails.codec import binary
from trails.errors import AnewError, DamageError, OperatorError
from trails.fs import RealFs
from trails.plan import Planner
from trails.position import TrailName
from trails.reader import BlockReader
from trails.record import MISSING, Op

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.xdist_group("spark")]

KV = table("s", "kv", "id v", "id")
_LAYOUT = Layout("s", "kv", ("id", "v"), ("integer", "text"), ("id",))
PLANS = {KV.id: (TablePlan("s.kv", "s.kv", _LAYOUT, (0,), None, True),)}


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[TrailFeed]:
    """A trail of its own."""
    made = TrailFeed(RealFs(), TrailName(str(tmp_path / "dirdat"), "rt"), max_bytes=200_000)
    yield made
    made.close()


@pytest.fixture(scope="module")
def engine(spark_engine: SparkEngine) -> SparkEngine:
    """The session's engine."""
    return spark_engine


def jobs(feed: TrailFeed, rows: int, spill: str = "") -> Any:
    """The tasks of each job for all that is in the trail."""
    reader = BlockReader(RealFs(), feed.trail)
    batcher = Batcher(Planner(reader), rows, 64 << 20)
    while (batch := batcher.next()) is not None:
        for job in batch.jobs:
            assert reader.header is not None
            yield tasks_of(job, feed.trail, reader.header.trail_id, PLANS, columns_of(reader.definitions), spill)
    reader.close()


def test_a_job_gives_the_net_effect(engine: SparkEngine, feed: TrailFeed):
    """The partition function runs in a Spark worker and its parts come back in order."""
    for number in range(20):
        feed.tx((Op.INSERT, KV, [str(number), "x"]), (Op.UPDATE, KV, ["0", str(number)]))
    (tasks,) = jobs(feed, 1000)
    (part,) = engine.submit(tasks).result(timeout=PATIENCE)
    (work,) = part.steps
    assert isinstance(work, Work)
    assert parse(work.rows[0].inserts.read())[0] == ("0", "19")
    assert part.counts == {("s.kv", "s.kv"): [20, 20, 0, 0]}


def test_the_ports_of_spark_open_to_nobody_else(engine: SparkEngine):
    """They are on loopback, where every account of the host can reach them: blocks hold rows, messages are objects."""
    rpc = int(engine._context.getConf().get("spark.driver.port"))
    frame = struct.pack(">bqi", 3, 1, 5) + b"hello"  # a request of Spark's own protocol, from a stranger
    with socket.create_connection(("127.0.0.1", rpc), 60) as link:
        link.settimeout(60)
        link.sendall(struct.pack(">q", 8 + len(frame)) + frame)
        answer = b""
        while b"Expected SaslMessage" not in answer:
            more = link.recv(1 << 16)
            assert more, answer
            answer += more
    assert engine._context.getConf().get("spark.authenticate") == "true"


def test_the_jvm_remembers_no_socket_of_jobs_that_are_done(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch):
    """One name a job, kept until the JVM's end, would be hundreds of megabytes a day."""
    monkeypatch.setattr("replicat.batches.engine.FORGET_JOBS", 5)
    hook = engine._context._jvm.java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
    hook.setAccessible(True)
    for _ in range(15):
        engine.run_all(iter, [1]).result(timeout=PATIENCE)
    assert hook.get(None).size() <= 10


def test_a_worker_that_dies_is_told_in_its_own_words(engine: SparkEngine):
    """Not in Spark's, which say only that some job failed."""
    no_block: Any = None
    task = Task("dirdat", "rt", b"", (no_block,), {}, {})
    with pytest.raises(AnewError, match=r"the Spark job failed: AttributeError: 'NoneType' object has no attribute"):
        engine.submit([task]).result(timeout=PATIENCE)


def test_workers_are_forks_that_have_the_installed_pyspark_and_our_modules(engine: SparkEngine):
    """Not each its own copy, compiled from the zip that Spark names first."""
    places = engine.run_all(_loaded, [0, 1]).result(timeout=PATIENCE)
    assert places == [pyspark.__file__] * 2


def _loaded(items: Iterator[int]) -> Iterator[str]:
    """Where this worker's pyspark is from, if it had our modules before its first job."""
    for _ in items:
        yield pyspark.__file__ if gc.get_freeze_count() > 10_000 and "replicat.work.decode" in sys.modules else ""


def test_archives_of_spark_stay_where_nothing_else_is_installed():
    """On some executors pyspark is nowhere else."""
    archives = ["/s/pyspark.zip", "/s/py4j-0.10.9.9-src.zip", "/s/jars/spark-core_2.13-4.3.0.jar"]
    assert installed_first([*archives, "/nowhere"]) == [*archives, "/nowhere"]
    site = str(Path(pyspark.__file__).parents[1])
    assert installed_first([*archives, "/my.zip", site]) == ["/my.zip", site]


def test_large_results_come_as_files(engine: SparkEngine, feed: TrailFeed, tmp_path: Path):
    """Beyond a megabyte the text goes through a file in a folder that the driver owns."""
    feed.tx(*((Op.INSERT, KV, [str(number), "v" * 100]) for number in range(20_000)))
    (tasks,) = jobs(feed, 100_000, str(tmp_path))
    (part,) = engine.submit(tasks).result(timeout=PATIENCE)
    blob = part.steps[0].rows[0].inserts  # type: ignore[union-attr]
    assert blob.path.startswith(str(tmp_path))
    assert len(parse(blob.read())) == blob.rows == 20_000


def test_damage_found_by_a_worker_is_told_as_damage(engine: SparkEngine, feed: TrailFeed):
    """CW-22: file, RBA, expected and found, not a stack trace of Spark."""
    feed.tx((Op.INSERT, KV, ["1", "x" * 50]))
    (tasks,) = jobs(feed, 1000)
    path = feed.trail.path(0)
    data = bytearray(Path(path).read_bytes())
    data[-5] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(DamageError, match=r"rt000000000, RBA \d+: damaged: expected CRC"):
        engine.submit(tasks).result(timeout=PATIENCE)


def test_no_java_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """It says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(OperatorError, match=r"no Java found: Spark needs it[.] Install a Java runtime, 17 or newer"):
        SparkEngine(SparkSettings("test", str(tmp_path / "s"), str(tmp_path / "log")))


SCRIPT = """
import os, sys, time
from replicat.batches.engine import SparkEngine, SparkSettings
SparkEngine(SparkSettings("test", sys.argv[2], sys.argv[1] + "/log")).start()
print("up", flush=True)
time.sleep(60)
"""


def test_spark_dies_with_its_process(tmp_path: Path):
    """SIGKILL: neither the JVM nor a Python worker lingers, and nothing was printed to the terminal.

    What an orphaned worker of an earlier run left in the scratch folder is gone after the next start.
    """
    short = tempfile.mkdtemp(prefix="tgs-")
    orphan = Path(short, "orphaned-result")
    orphan.write_bytes(b"1\tx\n")
    marker = f"TG_TEST_SPARK={tmp_path}"
    env = os.environ | {"TG_TEST_SPARK": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(SCRIPT), str(tmp_path), short],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"up\n", process.stderr.read()
    assert not orphan.exists()
    assert len(_with_environment(marker)) >= 3
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + PATIENCE
    while left := _with_environment(marker):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert process.stderr.read() == b""
    process.stdout.close()
    process.stderr.close()
    shutil.rmtree(short)


def _with_environment(marker: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_bytes()[:60].decode())
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def spark(engine: SparkEngine) -> Any:
    """A session on the engine's context."""
    from pyspark.sql import SparkSession

    from replicat.run.datasource import register

    session = SparkSession(engine._context)
    register(session)
    return session


def test_the_trail_as_a_data_frame(spark: Any, feed: TrailFeed):
    """Every change with its transaction's facts; a missing column is not in the map, NULL is."""
    log = table("s", "log", "a b")
    feed.tx((Op.INSERT, KV, ["1", None]), (Op.UPDATE, KV, ["2", MISSING], ["1", None]), time_us=1_000_000)
    feed.tx((Op.DELETE, KV, ["2", MISSING]), (Op.TRUNCATE, [KV, log], 0), (Op.INSERT, log, ["x", binary(b"\x01\xff")]))
    rows = spark.read.format("trail").load(str(feed.trail)).collect()
    assert [(r.table, r.op, r.csn[-1], r.xid, r["index"], r.before, r.after) for r in rows] == [
        ("s.kv", "INSERT", "1", "1", 0, None, {"id": "1", "v": None}),
        ("s.kv", "UPDATE", "1", "1", 1, {"id": "1", "v": None}, {"id": "2"}),
        ("s.kv", "DELETE", "2", "2", 0, {"id": "2"}, None),
        ("s.kv", "TRUNCATE", "2", "2", 1, None, None),
        ("s.log", "TRUNCATE", "2", "2", 1, None, None),
        ("s.log", "INSERT", "2", "2", 2, None, {"a": "x", "b": "\\x01ff"}),
    ]
    assert rows[0].commit_time.timestamp() == 1
    second = rows[2].position
    late = spark.read.format("trail").option("begin", second).load(str(feed.trail))
    assert [r.op for r in late.select("op").collect()] == ["DELETE", "TRUNCATE", "TRUNCATE", "INSERT"]
    early = spark.read.format("trail").option("end", second).load(str(feed.trail))
    assert [r.op for r in early.filter("op <> 'INSERT'").collect()] == ["UPDATE"]


def test_the_trail_as_a_stream(spark: Any, feed: TrailFeed, tmp_path: Path):
    """Each row comes once, over several triggers and a restart from the stream's own checkpoint."""

    def begun() -> Any:
        """A query that has read all there is; None where Spark gave up its worker, as the page of the source says."""
        query = None
        try:
            stream = spark.readStream.format("trail").load(str(feed.trail))
            query = (
                stream.selectExpr("after['id'] AS id").writeStream.format("text").option("path", str(tmp_path / "out"))
                .option("checkpointLocation", str(tmp_path / "chk")).start()
            )  # fmt: skip
            query.processAllAvailable()
        except PySparkException as error:
            if query is not None:
                query.stop()
            if SLOW_WORKER not in str(error):
                raise
            return None
        return query

    def run() -> None:
        query = wait_for(begun, "a query whose worker begins in time")
        try:
            for number in range(10):
                feed.tx((Op.INSERT, KV, [f"{feed.number}-{number}", "v" * 5000]))
            query.processAllAvailable()
        finally:
            query.stop()

    feed.tx((Op.INSERT, KV, ["first", "x"]))
    run()
    run()
    ids = [row.value for row in spark.read.text(str(tmp_path / "out")).collect()]
    assert len(ids) == len(set(ids)) == 21
