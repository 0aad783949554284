"""A real JVM that is killed or stopped at the worst moments: each is an AnewError, and a stop always comes through.

Each script is a process of its own, as a process has one Spark in its life.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.patience import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]

KILLED = '''
import sys
from pathlib import Path

import pyspark.sql.classic.dataframe as dataframe

from demo.guard import end_now
from demo.patience import PATIENCE
from replicat.batches.engine import SparkEngine, SparkSettings
from replicat.maps.expressions.compiling import Compiler
from replicat.work.decode import run_each
from tests.e2e.test_replicat_mapped_jobs import KV, jobs, planned
from tests.support.replicat_trail import TrailFeed
from trails.fs import RealFs
from trails.position import TrailName
from trails.record import Op

folder = sys.argv[1]
feed = TrailFeed(RealFs(), TrailName(folder + "/dirdat", "rt"))
engine = SparkEngine(SparkSettings("test", folder + "/scratch", folder + "/log", warm=False))
plans = {KV.id: (planned(engine, "upper(v)"),)}
feed.tx((Op.INSERT, KV, ["1", "v", "1"]))
(tasks,) = jobs(feed, plans)
load = dataframe._load_from_socket


def killed(*args):
    """The job is over, its result not read."""
    end_now(engine._context._gateway.proc.pid)
    return load(*args)


def told(what, ask):
    """What comes of it."""
    try:
        ask()
    except Exception as error:
        print(f"{what}: {type(error).__name__}: {error}", flush=True)
    else:
        print(f"{what}: no error", flush=True)


dataframe._load_from_socket = killed
told("mapped job", lambda: engine.submit(tasks).result(PATIENCE))
told("job", lambda: engine.run_all(iter, [1]).result(PATIENCE))
told("expression", lambda: Compiler(engine.sql, KV).slot("lower(v)", "rep1.prm:7", "COLMAP x"))
told("ladder", lambda: list(run_each(tasks[0], 0, None, engine.evaluate(tasks[0]))))
engine.close()
feed.close()
'''

STOPPED = '''
import os, signal, sys, time
from pathlib import Path

from demo.patience import wait_for
from replicat.batches.engine import SparkEngine, SparkSettings

folder = sys.argv[1]
engine = SparkEngine(SparkSettings("test", folder + "/scratch", folder + "/log", warm=False))


def hanging(items):
    """A job that does not end."""
    Path(folder, "begun").touch()
    time.sleep(1000)
    return items


engine.sql
job = engine.run_all(hanging, [1])
wait_for(Path(folder, "begun").exists, "the job to begin")
os.kill(engine._context._gateway.proc.pid, signal.SIGSTOP)
engine.close()
print("closed", job.exception())
'''


CLASSES = """
import os, sys
from pathlib import Path

from demo.guard import end_now
from replicat.batches.classes import ClassArchive
from replicat.batches.engine import SparkEngine, SparkSettings

folder, how = Path(sys.argv[1]), sys.argv[2]
home = folder / "home"
home.mkdir(exist_ok=True)
classes = ClassArchive.of(str(home), "REP1")
engine = SparkEngine(SparkSettings("test", str(folder / "scratch"), str(folder / "log"), classes=classes))
engine.start()
command = Path(f"/proc/{engine._jvm.process.pid}/cmdline").read_bytes().decode()
print("uses" if f"SharedArchiveFile={classes.stem}" in command else "makes" if classes.left in command else "none")
if how == "killed":
    end_now(engine._jvm.process.pid)
engine.close()
print(sorted(name.partition("-")[0] for name in os.listdir(home)))
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for Spark's sockets."""
    with tempfile.TemporaryDirectory(prefix="tgs-") as made:
        yield Path(made)


def run(script: str, folder: Path, *more: str, **environment: str) -> str:
    """What a script prints; it ends by itself, and says nothing else."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, str(folder), *more], timeout=PATIENCE, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_jvm_that_is_killed_before_a_result_is_read(short: Path):
    """pyspark then raises what only a bug raises. All that comes behind knows that Spark is gone, and blames no MAP."""
    lines = run(KILLED, short).splitlines()
    wanted = "AnewError: Spark's JVM is gone: killed by signal 9."
    assert [line.partition(": ")[0] for line in lines] == ["mapped job", "job", "expression", "ladder"]
    assert [line for line in lines if wanted not in line] == []


@pytest.mark.soak
def test_a_jvm_that_is_stopped_is_closed(short: Path):
    """With a job that is under way, which would never end."""
    assert "closed Spark's JVM is gone: killed by signal 9." in run(STOPPED, short)


@pytest.mark.soak
def test_the_first_jvm_of_a_home_leaves_its_classes_to_the_next(short: Path):
    """One that is killed leaves none. What is damaged is passed over; and what Java dies of is there once."""

    def lived(how: str = "") -> list[str]:
        return run(CLASSES, short, how, SPARK_SUBMIT_OPTS="").splitlines()

    assert lived("killed") == ["makes", "[]"]
    assert lived() == ["makes", "['spark']"]
    (archive,) = (short / "home").iterdir()
    archive.chmod(0o600)
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.write_bytes(data)
    assert lived() == ["uses", "['spark']"]
    archive.unlink()
    archive = archive.with_name(f"{archive.name.rpartition('-')[0]}-{1 << 20}.jsa")
    archive.write_bytes(data[: 1 << 20])
    assert "Spark does not start: Java ended, killed by signal 6" in failed(CLASSES, short)
    assert list((short / "home").iterdir()) == []


def failed(script: str, folder: Path) -> str:
    """What it says on standard error."""
    with pytest.raises(AssertionError) as caught:
        run(script, folder, "", SPARK_SUBMIT_OPTS="")
    return str(caught.value)
