"""Resident tasks on a real Spark: killed while they wait and while they work, stopped, orphaned; other jobs beside."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from demo.guard import Guard, end_now
from demo.patience import PATIENCE, wait_for
from replicat.batches import residents
from replicat.batches.engine import SparkEngine
from replicat.work.decode import Task
from trails.errors import AnewError, MismatchError
from trails.format import BlockHeader, BlockKind
from trails.position import Position, TrailName
from trails.reader import Block

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]


def piece(folder: Path) -> Task:
    """Work on a trail's first file in a folder."""
    block = Block(Position(0, 0), Position(0, 1), BlockHeader(BlockKind.DATA), b"", 0, copied=False)
    trail = TrailName(str(folder), "rt")
    return Task(trail.folder, trail.prefix, b"x" * 16, (block,), {}, {})


class Held:
    """Work that lasts until it is let go: its trail's file is a pipe, which nobody has opened to write."""

    def __init__(self, folder: Path) -> None:
        self.task = piece(folder)
        self._path = TrailName(str(folder), "rt").path(0)
        os.mkfifo(self._path)

    def let_go(self, done: Callable[[], bool]) -> None:
        """Each who waits for it finds an empty file."""

        def opened() -> bool:
            try:
                os.close(os.open(self._path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:  # nobody waits just now
                pass
            return done()

        wait_for(opened, "work to be let go")


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


def begun(engine: SparkEngine, task: Task, count: int = 1) -> list[Future[Any]]:
    """So many orders that are on their way."""
    assert answers(engine)
    asked = [engine.submit([task]) for _ in range(count)]
    job = engine._residents._job  # type: ignore[union-attr]
    wait_for(lambda: job._free.qsize() == 2 - count, "orders to be on their way")  # type: ignore[union-attr]
    return asked


def answers(engine: SparkEngine) -> bool:
    """Whether an order is answered: that its trail is nowhere."""
    with pytest.raises(MismatchError, match="this trail file was removed while it was read"):
        engine.submit([piece(Path("/nowhere"))]).result(timeout=PATIENCE)
    return True


def pids(engine: SparkEngine) -> list[int]:
    """The tasks' processes."""
    assert engine._residents is not None
    return engine._residents.pids


def test_a_worker_that_is_killed_at_work_is_a_failed_job(spark_engine: SparkEngine, held: Held) -> None:
    """CW-14: and nothing of the batch is there. Whoever asks next finds new tasks."""
    asked = begun(spark_engine, held.task, 2)
    before = pids(spark_engine)
    end_now(before[0])
    for one in asked:
        with pytest.raises(AnewError, match="the Spark job failed: a Python worker was killed, or has crashed"):
            one.result(timeout=PATIENCE)
    assert answers(spark_engine)
    assert not set(before) & set(pids(spark_engine))
    held.let_go(lambda: not any(Path(f"/proc/{pid}").exists() for pid in before))


def test_a_worker_that_is_killed_while_it_waits_is_nobodys_loss(spark_engine: SparkEngine) -> None:
    """Nothing was under way: the next order goes to new tasks."""
    assert answers(spark_engine)
    before = pids(spark_engine)
    end_now(before[1])
    wait_for(lambda: pids(spark_engine) == [], "the loss to be seen")
    assert answers(spark_engine)
    assert len(set(pids(spark_engine)) - set(before)) >= 1


def test_a_worker_that_is_stopped_is_given_up(
    spark_engine: SparkEngine, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark sees nothing, for ever."""
    assert answers(spark_engine)
    spark_engine._residents._job.hang_up()  # type: ignore[union-attr]
    monkeypatch.setattr(residents, "SILENT_SECONDS", 2.0)
    asked = begun(spark_engine, held.task, 2)
    before = pids(spark_engine)
    for pid in before:
        os.kill(pid, signal.SIGSTOP)
    try:
        for one in asked:
            with pytest.raises(AnewError, match=r"in process \d+ has said nothing for 2 seconds"):
                one.result(timeout=PATIENCE)
    finally:
        for pid in before:
            end_now(pid)
    monkeypatch.undo()
    assert answers(spark_engine)


def test_other_jobs_run_beside(spark_engine: SparkEngine, held: Held) -> None:
    """While each resident task is at work: two at once, each of as many tasks."""
    asked = begun(spark_engine, held.task, 2)
    beside = spark_engine._context.parallelize([1, 2], 2).map(lambda n: n + 1)
    assert [beside.collect() for _ in range(3)] == [[2, 3]] * 3
    held.let_go(lambda: all(one.done() for one in asked))
    assert all(one.exception() is not None for one in asked)
    assert answers(spark_engine)


DRIVER = """
import sys
from pathlib import Path

from demo.patience import PATIENCE
from replicat.batches.engine import SparkEngine, SparkSettings
from tests.e2e.test_resident_tasks import Held, begun, pids

folder = Path(sys.argv[1])
(folder / "trail").mkdir()
engine = SparkEngine(SparkSettings("test", str(folder / "scratch"), str(folder / "log"), warm=False))
asked = begun(engine, Held(folder / "trail").task, 2)
print(*pids(engine), flush=True)
asked[0].result(PATIENCE)
"""


def test_CW_14_an_orphan_at_work_ends_by_itself() -> None:
    """Daemon and driver are dead, so nobody ends it: its answer reaches nobody, and it goes."""
    guard = Guard()
    short = Path(tempfile.mkdtemp(prefix="tgs-"))
    driver = subprocess.Popen(
        [sys.executable, "-P", "-c", DRIVER, str(short)], stdout=subprocess.PIPE,
        env=guard.environment | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert driver.stdout is not None
        workers = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(workers) == 2
        end_now(_parent(workers[0]))
        end_now(driver.pid)
        driver.wait()
        held = Held.__new__(Held)
        held._path = TrailName(str(short / "trail"), "rt").path(0)
        held.let_go(lambda: not guard.pids())
    finally:
        guard.kill_rest()
        guard.dismiss()
        driver.stdout.close()  # type: ignore[union-attr]
        shutil.rmtree(short)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_stop_comes_through_while_tasks_are_at_work() -> None:
    """The process does not wait for them."""
    short = Path(tempfile.mkdtemp(prefix="tgs-"))
    script = DRIVER.replace("asked[0].result(PATIENCE)", "engine.close()\nprint(type(asked[0].exception(1)).__name__)")
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, str(short)], capture_output=True, text=True, timeout=PATIENCE, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    shutil.rmtree(short)
    assert done.stderr == ""
    assert done.stdout.splitlines()[1:] == ["AnewError"]
