"""Resident tasks on a cluster's executors, which are other JVMs: over TLS, where Spark seals what it tells them.

The cluster is Spark's own small one, of an executor with three slots. One task stays, so two slots are for other jobs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from demo.guard import Guard
from demo.patience import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]

DRIVER = """
import sys
from pathlib import Path

from demo.guard import end_now
from demo.patience import PATIENCE, wait_for
from replicat.batches.engine import SparkEngine, SparkSettings
from tests.e2e.test_resident_tasks import Held, _parent, answers, pids
from trails.errors import AnewError

folder = Path(sys.argv[1])
options = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "a secret of this test",
    "spark.network.crypto.enabled": "true",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
master = "local-cluster[1,3,1024]"
settings = SparkSettings("test", str(folder / "scratch"), str(folder / "log"), master, options=tuple(options.items()))
engine = SparkEngine(settings)


def lost(asked, victim):
    \"\"\"What comes of an order whose executor or worker is killed.\"\"\"
    end_now(victim)
    error = asked.exception(PATIENCE)
    print(type(error).__name__, "failed" if isinstance(error, AnewError) else error, flush=True)


try:
    print("answers", answers(engine), len(pids(engine)), engine._residents._job._links[0]._link._end.version())
    (folder / "trail").mkdir()
    held = Held(folder / "trail")
    asked, worker = engine.submit([held.task]), pids(engine)[0]
    wait_for(lambda: engine._residents._job._free.qsize() == 0, "the order to be on its way")
    print("beside", engine._context.parallelize([1, 2], 2).map(lambda n: n + 1).collect(), flush=True)
    lost(asked, worker)
    print("answers", answers(engine))
    asked, worker = engine.submit([held.task]), pids(engine)[0]
    wait_for(lambda: engine._residents._job._free.qsize() == 0, "the order to be on its way")
    lost(asked, _parent(_parent(worker)))
    print("answers", answers(engine), pids(engine) != [worker])
finally:
    engine.close()
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for Spark's sockets, with a place for what the executors leave."""
    with tempfile.TemporaryDirectory(prefix="tgs-") as made:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        home = Path(made) / "spark"
        home.mkdir()
        for part in Path(spec.origin).parent.iterdir():
            (home / part.name).symlink_to(part)
        yield Path(made)


@pytest.mark.soak
def test_tasks_stay_on_a_cluster_and_live_and_die_as_one(short: Path) -> None:
    """CW-14: an order whose worker or executor is killed has failed; who asks next finds new tasks."""
    guard = Guard()
    environment = guard.environment | {"PYTHONPATH": str(ROOT), "SPARK_HOME": str(short / "spark")}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", DRIVER, str(short)], capture_output=True, text=True, timeout=PATIENCE,
            check=False, env=os.environ | environment,
        )  # fmt: skip
        assert done.stdout.splitlines() == [
            "answers True 1 TLSv1.3",
            "beside [2, 3]",
            "AnewError failed",
            "answers True",
            "AnewError failed",
            "answers True True",
        ], done.stdout + done.stderr
        assert done.stderr == ""
    finally:
        guard.kill_rest()
        guard.dismiss()
