"""Resident tasks on a cluster's executors: how many, for how long, and where a secret may travel."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.patience import PATIENCE
from replicat.batches.door import seals
from replicat.batches.residents import Residents
from tests.support.resident_jobs import Spark, abroad, piece, stays


class Cluster(Spark):
    """Where executors have so many slots."""

    def __init__(self, slots: int) -> None:
        super().__init__(stays)
        self.slots = slots
        self.looks = 0
        self._jsc = self

    def sc(self) -> Cluster:
        """As Spark's own context has the rest."""
        return self

    def resourceProfileManager(self) -> Cluster:
        return self

    def defaultResourceProfile(self) -> str:
        return "default"

    def maxNumConcurrentTasks(self, profile: str) -> int:
        assert profile == "default"
        self.looks += 1
        return self.slots

    def count(self) -> int:
        """Of the job that comes before the look."""
        return 1

    def getConf(self) -> dict[str, str]:
        return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@pytest.mark.parametrize(("slots", "tasks"), [(1, 0), (2, 1), (3, 1), (8, 4)])
def test_half_of_a_cluster_is_left_to_other_jobs(short: Path, slots: int, tasks: int) -> None:
    """With one slot no task stays, or nothing else would ever run; that is looked at once in a job's life."""
    spark, there = Cluster(slots), Residents.abroad(str(short))
    for _ in range(2):
        assert there.ask(spark, [piece(1)]) == ([(1, {})] if tasks else None)
    assert len(there.pids) == tasks
    assert spark.looks == 1
    there.hang_up()
    for thread in spark.threads:
        thread.join(PATIENCE)


def test_a_job_elsewhere_lasts_its_time(short: Path) -> None:
    """Never while somebody waits for an answer of it; the next one counts the slots anew."""
    spark = Cluster(2)
    there = Residents(lambda _: 1, lambda _: abroad(short), life=0.0)
    answers = [there.ask(spark, [piece(n)]) for n in range(3)]
    assert answers == [[(n, {})] for n in range(3)]
    assert len(spark.calls) == 3
    there._asking += 1
    job = there._job
    assert there.ask(spark, [piece(4)]) == [(4, {})]
    assert there._job is job
    there.hang_up()
    for thread in spark.threads:
        thread.join(PATIENCE)


@pytest.mark.parametrize(
    ("options", "sealed"),
    [
        ({}, False),
        ({"spark.authenticate": "true"}, False),
        ({"spark.network.crypto.enabled": "true"}, False),
        ({"spark.authenticate": "true", "spark.network.crypto.enabled": "false"}, False),
        ({"spark.authenticate": "TRUE ", "spark.network.crypto.enabled": "true"}, True),
        ({"spark.authenticate": "true", "spark.ssl.rpc.enabled": "true"}, True),
    ],
)
def test_a_secret_travels_only_in_a_spark_that_seals(options: dict[str, str], sealed: bool) -> None:
    """Whoever reads it could give answers."""
    assert seals(options.items()) is sealed
