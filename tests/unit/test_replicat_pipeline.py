"""When Replicat starts jobs: ahead of the target, and beside each other only where changes wait already."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest

from demo.patience import PATIENCE
from replicat.batches.pipeline import MOST_GATHER_SECONDS, SHARE, BatchPipeline, Begin, Bounds
from replicat.run.phase import NEXT, ApplyEvent, ApplyPhase
from replicat.work.decode import Task
from replicat.work.net.part import Part, Unmapped
from tests.support.replicat_bench import Bench
from tests.support.replicat_trail import TrailFeed, table
from trails.fs import RealFs
from trails.host import RealHost
from trails.position import TrailName
from trails.record import Op

KV = table("s", "kv", "id v", "id")


class Jobs:
    """An engine whose jobs are done when the test says so."""

    sql = None

    def __init__(self) -> None:
        self.given: list[Future[list[Part | Unmapped]]] = []

    def submit(self, tasks: Sequence[Task]) -> Future[list[Part | Unmapped]]:
        assert tasks
        self.given.append(Future())
        return self.given[-1]


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[TrailFeed]:
    made = TrailFeed(RealFs(), TrailName(str(tmp_path / "dirdat"), "rt"))
    yield made
    made.close()


def pipeline(feed: TrailFeed, jobs: Jobs, rows: int) -> BatchPipeline:
    """Batches of so many rows; every transaction has two."""
    bounds = Bounds(rows, 1 << 20, seconds=0.0)
    return BatchPipeline(RealFs(), feed.trail, Begin(None), bounds, jobs, lambda _: {KV.id: ()})  # type: ignore[arg-type]


def tx(feed: TrailFeed) -> None:
    feed.tx((Op.INSERT, KV, ["1", "a"]), (Op.INSERT, KV, ["2", "b"]))


def test_a_backlog_is_decoded_by_two_jobs_at_a_time(feed: TrailFeed):
    """Two are on their way, however long they take; the third begins when the first is applied."""
    for _ in range(4):
        tx(feed)
    jobs = Jobs()
    made = pipeline(feed, jobs, 2)
    made.fill()
    made.fill()
    assert len(jobs.given) == 2
    jobs.given[1].set_result([])
    made.fill()
    assert made.head(0) is None
    assert len(jobs.given) == 2
    jobs.given[0].set_result([])
    first = made.head(60)
    assert first is not None
    assert first.batch.changes == 2
    made.drop()
    made.fill()
    assert len(jobs.given) == 3
    for job in jobs.given[2:]:
        job.set_result([])
    made.close()


def test_what_comes_while_a_job_runs_waits_for_company(feed: TrailFeed):
    """All that was there is being decoded: the next batch holds everything that comes meanwhile."""
    tx(feed)
    jobs = Jobs()
    made = pipeline(feed, jobs, 100)
    made.fill()
    assert len(jobs.given) == 1
    for _ in range(3):
        tx(feed)
        made.fill()
    assert len(jobs.given) == 1
    jobs.given[0].set_result([])
    made.fill()
    assert len(jobs.given) == 2
    made.drop()
    jobs.given[1].set_result([])
    second = made.head(60)
    assert second is not None
    assert second.batch.changes == 6
    made.close()


class Paced(RealHost):
    """A machine whose time, and the CPU that is used, stand still until the test says otherwise."""

    def __init__(self) -> None:
        self.now = self.used = 100.0

    def monotonic(self) -> float:
        return self.now

    def cpu_seconds(self) -> float:
        return self.used


class Step:
    """A pipeline on such a machine, and what becomes of the batches that are there."""

    def __init__(self, feed: TrailFeed, seconds: float | None = None) -> None:
        self.host, self.jobs = Paced(), Jobs()
        fs = RealFs()
        fs.host = self.host  # type: ignore[misc]
        bounds = Bounds(100, 1 << 20, seconds=seconds)
        self.pipeline = BatchPipeline(fs, feed.trail, Begin(None), bounds, self.jobs, lambda _: {KV.id: ()})  # type: ignore[arg-type]

    def applied(self, cost: float) -> int:
        """The changes of the batch that is there by now, whose decoding and applying costs so much; 0 for none."""
        self.pipeline.fill()
        if not self.pipeline.busy:
            return 0
        for job in self.jobs.given:
            if not job.done():
                job.set_result([])
        running = self.pipeline.head(PATIENCE)
        assert running is not None
        self.host.used += cost
        self.pipeline.drop()
        return running.batch.changes


@pytest.fixture
def _gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process."""
    monkeypatch.setattr("replicat.batches.pipeline.MOST_GATHER_SECONDS", MOST_GATHER_SECONDS)


@pytest.mark.usefixtures("_gathers")
def test_batches_gather_until_they_cost_a_share_of_a_processor(feed: TrailFeed):
    """The first change after a pause is applied at once, and so is the next: what one costs is known behind it."""
    step = Step(feed)
    for _ in range(2):
        tx(feed)
        assert step.applied(cost=0.004) == 2
    assert not step.pipeline.at_end
    assert step.pipeline.gathers_for == step.pipeline.rests_for == pytest.approx(0.004 / SHARE)
    for _ in range(3):
        tx(feed)
        assert step.applied(cost=1) == 0
    step.host.now += 0.005 / SHARE
    assert step.applied(cost=0.001) == 6
    assert step.pipeline.gathers_for == pytest.approx(0.004 / SHARE)
    step.host.now += 0.005 / SHARE
    assert step.applied(cost=0) == 0
    assert step.pipeline.at_end
    tx(feed)
    assert step.applied(cost=0) == 2, "after a pause at once"
    step.pipeline.close()


def test_the_trail_wakes_nobody_who_would_not_look(tmp_path: Path):
    """Where a batch gathers by what the one before has cost, what comes meanwhile is seen at its end."""
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/target.db", "main")
    with closing(sqlite3.connect(tmp_path / "target.db")) as target:
        target.execute("CREATE TABLE kv (id TEXT PRIMARY KEY, v TEXT)")
    tx(bench.feed)
    with closing(bench.replicat()) as replicat:
        while replicat.step():
            pass
        (watched,) = replicat.waits()
        gathering = replicat._pipeline_now._gathering
        gathering._until = replicat._fs.host.monotonic() + 2 * PATIENCE
        assert replicat.waits() == []
        assert replicat.idle_seconds() > PATIENCE
        gathering._until = 0.0
        assert replicat.waits() == [watched]
    bench.feed.close()


@pytest.mark.usefixtures("_gathers")
def test_what_cost_much_makes_nobody_wait_for_long(feed: TrailFeed):
    """Such as the batch of a large transaction, behind which little comes."""
    step = Step(feed)
    for cost in (60, 0):
        tx(feed)
        assert step.applied(cost=cost) == 2
    assert step.pipeline.gathers_for == MOST_GATHER_SECONDS
    step.pipeline.close()


@pytest.mark.usefixtures("_gathers")
def test_a_backlog_does_not_gather(feed: TrailFeed):
    """Batches are full then, and wait for nothing; but the first is small, as the target waits for it."""
    for _ in range(200):
        tx(feed)
    step = Step(feed)
    assert [step.applied(cost=1) for _ in range(6)] == [24, 100, 100, 100, 76, 0]
    step.host.now += 60
    for _ in range(100):
        tx(feed)
    assert [step.applied(cost=1) for _ in range(3)] == [24, 100, 76], "after a pause"
    step.pipeline.close()


def test_batches_that_are_to_gather_are_full_from_the_first(feed: TrailFeed):
    """BATCHSECS is for who wants few of them."""
    for _ in range(200):
        tx(feed)
    step = Step(feed, seconds=0.0)
    assert [step.applied(cost=1) for _ in range(5)] == [100, 100, 100, 100, 0]
    step.pipeline.close()


@pytest.mark.usefixtures("_gathers")
def test_BATCHSECS_alone_says_how_long_is_gathered(feed: TrailFeed):
    """Not at all, with 0."""
    step = Step(feed, seconds=0.0)
    for _ in range(5):
        tx(feed)
        assert step.applied(cost=1) == 2
    step.pipeline.close()


def test_a_worker_keeps_what_it_has_loaded_out_of_the_search_for_garbage():
    """Spark's workers look for some behind each task."""
    look = "import gc; from replicat.work.decode import settle; settle(); n = gc.get_freeze_count(); settle(); "
    look += "assert 1000 < n == gc.get_freeze_count()"
    subprocess.run([sys.executable, "-c", look], check=True, timeout=PATIENCE)


def test_the_page_shows_the_table_of_phases():
    """docs/replicat.md has it, phase by phase; each is reached, and all are left for AWAY."""
    lines = (Path(__file__).parents[2] / "docs" / "replicat.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("| ")]
    head = next(row for row in rows if row[:1] == ["phase"])
    shown = {
        (ApplyPhase[row[0]], ApplyEvent[event]): ApplyPhase[to]
        for row in rows if row[0] in ApplyPhase.__members__
        for event, to in zip(head[2:], row[2:], strict=True) if to != "-"
    }  # fmt: skip
    assert shown == NEXT
    assert set(NEXT.values()) == set(ApplyPhase)
    assert {NEXT[phase, ApplyEvent.DROPPED] for phase in ApplyPhase} == {ApplyPhase.AWAY}
