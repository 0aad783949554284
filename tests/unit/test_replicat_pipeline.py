"""When Replicat starts jobs: ahead of the target, and beside each other only where changes wait already."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from demo.patience import PATIENCE
from replicat.batches.pipeline import BatchPipeline, Begin, Bounds
from replicat.run.phase import NEXT, ApplyEvent, ApplyPhase
from replicat.work.decode import Task
from replicat.work.net.part import Part, Unmapped
from tests.support.replicat_trail import TrailFeed, table
from trails.fs import RealFs
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
