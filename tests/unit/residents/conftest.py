"""Resident tasks over real sockets, by both kinds of door; nothing of them is left."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.patience import PATIENCE, wait_for
from replicat.batches import residents
from replicat.batches.residents import ResidentJob
from replicat.work import resident
from tests.support.resident_jobs import Script, Spark, abroad, here


@pytest.fixture(autouse=True)
def _decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a piece comes to."""
    monkeypatch.setattr(resident, "run_partition", lambda tasks: ((task.skip, dict(task.plans)) for task in tasks))
    monkeypatch.setattr(residents, "CAUSE_SECONDS", 0.5)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="tgr-") as made:
        yield Path(made)


@pytest.fixture(params=[here, abroad])
def begin(short: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., ResidentJob]]:
    """Begins jobs; nothing of them is left afterwards."""
    made: list[tuple[ResidentJob | None, Spark]] = []
    before = set(threading.enumerate())

    def begun(*scripts: Script, tasks: int = 1) -> ResidentJob:
        spark = Spark(*scripts)
        made.append((None, spark))
        job = ResidentJob(spark, tasks, request.param(short))
        made[-1] = job, spark
        return job

    yield begun
    for job, spark in made:
        if job is not None:
            job.hang_up()
        for thread in spark.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
    wait_for(lambda: not set(threading.enumerate()) - before, "threads to end")
    assert list(short.iterdir()) == []
