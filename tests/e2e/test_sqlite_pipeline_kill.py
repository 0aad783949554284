"""From an SQLite file to another: every process of the pipeline is killed at random times while applications write.

Somebody looks at the target all the while: a transaction that was torn, doubled or left out shows in a sum that does
not add up. The interleavings of the trails are the simulated world's; what is real here are the files, and the queue.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.patience import PATIENCE, wait_for
from demo.pipeline import Options, Pipeline
from replicat.batches.scratch import sweep
from tests.support.killing import kill_of_a_pipeline
from tests.support.pipelines import folder
from tests.support.sqlite_bank import ACCOUNTS, SCHEMA, TABLES, writing
from tests.support.sqlite_source import SourceFile

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("pipeline-sqlite")]

KILLS = int(os.environ.get("SQLITE_KILLS", "300"))
VICTIMS = ("extract", "extract", "pump", "extract", "collector", "extract", "source manager", "extract", "replicat")


@contextmanager
def pipeline_of(source: SourceFile, target: SourceFile, homes: Path) -> Iterator[Pipeline]:
    """A pipeline that runs; its trails roll over and are purged."""
    options = Options(
        tables=("main.*",), checkpoint_table="main.checkpoint", checkpoint_seconds=1, purge_seconds=2, megabytes=1
    )
    pipeline = Pipeline(homes, source.url, target.url, options)
    try:
        pipeline.create()
        pipeline.start()
        yield pipeline
    finally:
        pipeline.abandon()
        sweep()  # the killed Replicat's folder in memory


class SumLooker(threading.Thread):
    """Looks at the target's accounts again and again; `wrong`: the sums that no state of the source ever had."""

    def __init__(self, target: SourceFile) -> None:
        super().__init__()
        self._target, self._end = target, threading.Event()
        self.looks, self.wrong = 0, list[tuple[int, int]]()

    def run(self) -> None:
        """Look until the end. One that is told to wait too long looks again."""
        conn = sqlite3.connect(self._target.path, isolation_level=None, timeout=PATIENCE)
        while not self._end.wait(0.02):
            (found,) = conn.execute("SELECT count(*), coalesce(sum(balance), 0) FROM account")
            self.looks += found[0] == ACCOUNTS
            if found[1] != 100 * found[0]:
                self.wrong.append(found)
        conn.close()

    def stop(self) -> None:
        """No more looks."""
        self._end.set()
        self.join()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_killed_at_random_times_from_file_to_file(tmp_path: Path) -> None:
    """I1, I3, I7: nothing lost, nothing doubled, no transaction torn; each table ends equal, row by row."""
    source, target, dice = SourceFile(tmp_path / "shop.db"), SourceFile(tmp_path / "copy.db"), random.Random(11)
    for file in (source, target):
        file.run("PRAGMA journal_mode = WAL", *SCHEMA)
    with folder() as homes, pipeline_of(source, target, homes) as pipeline:
        looker = SumLooker(target)
        looker.start()
        try:
            with writing(source):
                for number in range(KILLS):
                    kill_of_a_pipeline(pipeline, VICTIMS[number % len(VICTIMS)], dice, 0.5)
            ends_equal(pipeline, source, target)
        finally:
            looker.stop()
        assert looker.looks > KILLS
        assert not looker.wrong


def ends_equal(pipeline: Pipeline, source: SourceFile, target: SourceFile) -> None:
    """Each table, row by row, once the target has come so far."""

    def differences() -> dict[str, object]:
        sides = {table: [sorted(file.rows(table), key=repr) for file in (source, target)] for table in TABLES}
        assert all(rows for rows, _ in sides.values())
        return {table: both for table, both in sides.items() if both[0] != both[1]}

    wait_for(lambda: not differences(), lambda: f"{differences()}\n{pipeline.state()}", every=0.5)
