"""From MariaDB's binary log to PostgreSQL: every process of the pipeline is killed at random times under load.

Tables without a key, foreign keys, transactions of many rows, rollbacks, unique values that are exchanged. Somebody
looks at the target all the while: a transaction that was torn, doubled or left out shows in what then does not add up.
Replicat runs without Spark, which has no part in it: each life of one costs a second.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo import mariashop
from demo.mysqld import Mysqld
from demo.patience import wait_for
from demo.pipeline import Options, Pipeline
from demo.servers import PostgresServer
from demo.workload import Watcher
from replicat.batches.scratch import sweep
from tests.support import sparkless
from tests.support.killing import kill_of_a_pipeline
from tests.support.pipelines import folder

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("pipeline-binlog")]

KILLS = int(os.environ.get("BINLOG_KILLS", "6"))
VICTIMS = ("extract", "extract", "pump", "collector", "replicat", "source manager")
ROWS = 4000


@contextmanager
def _pipeline(source: Mysqld, target: str, homes: Path) -> Iterator[Pipeline]:
    options = Options(checkpoint_seconds=1, purge_seconds=2, megabytes=2, environment=sparkless.ENVIRONMENT)
    pipeline = Pipeline(homes, source.url(mariashop.SCHEMA), target, options)
    try:
        pipeline.create()
        mariashop.fill(source)
        pipeline.start()
        yield pipeline
    finally:
        pipeline.abandon()
        sweep()  # the killed Replicat's folder in memory


def test_CA_01_OT_05_killed_at_random_times_from_mariadb_to_postgresql(
    mariadb_source: Mysqld, pg_target: PostgresServer, target_db: str
) -> None:
    """I1, I3, I7: nothing lost, nothing doubled, no transaction torn; each table ends equal, row by row."""
    source, dice = mariadb_source, random.Random(10)
    source.sql(f"DROP DATABASE IF EXISTS {mariashop.SCHEMA}")  # another test of this server has one of that name
    mariashop.create_source(source)
    mariashop.create_target(target_db)
    try:
        with (
            folder() as homes,
            _pipeline(source, target_db, homes) as pipeline,
            Watcher(target_db) as watcher,
            mariashop.MariaWorkload(source, rate=40) as load,
        ):
            wait_for(lambda: bool(watcher.last and watcher.last.transfers), pipeline.state)
            large = threading.Thread(target=mariashop.large_transaction, args=(source, ROWS))
            large.start()
            for number in range(KILLS):
                kill_of_a_pipeline(pipeline, VICTIMS[number % len(VICTIMS)], dice, 0.7)
            large.join()
            assert load.stop() > KILLS
            ends_equal(pipeline, source, target_db)
            assert watcher.looks and not watcher.faults, watcher.faults[:5]
    finally:
        source.sql(f"DROP DATABASE {mariashop.SCHEMA}")


def ends_equal(pipeline: Pipeline, source: Mysqld, target: str) -> None:
    """Each table, row by row, once the target has come so far."""

    def differences() -> dict[str, object]:
        found = mariashop.differences(source, target)
        assert sum(rows for rows, _, _ in found.values()) > ROWS // 2
        return {name: sides for name, (_, *sides) in found.items() if any(sides)}

    wait_for(lambda: not differences(), lambda: f"{differences()}\n{pipeline.state()}", every=0.5)
