"""Spark's JVMs of all tests load their classes from one archive (Java's CDS): each starts in half of its CPU time.

Rule: the archive changes how classes are loaded, never what runs; a JVM that can't use it loads them as ever.
It is made once per machine, Java and pyspark, beside the servers' templates.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
import zlib
from functools import cache as once
from importlib.util import find_spec
from pathlib import Path

from demo.embedded import cache
from demo.patience import PATIENCE

OPTIONS = "SPARK_SUBMIT_OPTS"
ROOT = Path(__file__).parents[2]


def share_classes() -> None:
    """From now on the JVMs of this process and its children use the archive. Who comes first makes it, nobody waits:
    who finds another at it asks again before its next test.
    """
    if "SharedArchiveFile" in os.environ.get(OPTIONS, "") or not (archive := _archive()):
        return
    if not archive.exists():
        with archive.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if not archive.exists() and not _made(archive):
                return
    os.environ[OPTIONS] = f"{os.environ.get(OPTIONS, '')} -XX:SharedArchiveFile={archive}".strip()


@once
def _archive() -> Path | None:
    """Named by what it is made from: a checkout's archive is replaced by the next one of other jars, another Java or
    another way to make it. None where there is no Java: the test will tell.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    spark = find_spec("pyspark")
    if not (java and spark and spark.origin):
        return None
    jars = Path(spark.origin).parent / "jars"
    files = (Path(java).resolve().parents[1] / "lib" / "modules", jars, Path(__file__))
    stamps = [path.stat().st_mtime_ns for path in files]
    with cache() as root:
        return root / f"spark-{_short(jars)}-{_short(java, *stamps)}.jsa"


def _short(*facts: object) -> str:
    return f"{zlib.crc32(repr(facts).encode()):08x}"


@once
def _made(archive: Path) -> bool:
    """Make it; False, and a warning, if this machine has no time for that now, or its Java makes none."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        made = Path(scratch) / archive.name
        command = [sys.executable, "-m", "tests.support.spark_archive", scratch]
        env = os.environ | {OPTIONS: f"-XX:ArchiveClassesAtExit={made}"}
        try:
            subprocess.run(command, cwd=ROOT, env=env, check=True, timeout=PATIENCE)
        except subprocess.SubprocessError as error:
            warnings.warn(f"Spark's tests start slower, without an archive of classes: {error}", stacklevel=2)
            return False
        if not made.exists():  # a Java without an archive of its own
            warnings.warn("Spark's tests start slower: this Java made no archive of classes", stacklevel=2)
            return False
        for old in archive.parent.glob(f"{archive.stem.rpartition('-')[0]}-*"):
            if old.stem != archive.stem:
                old.unlink()  # who uses it keeps it
        made.rename(archive)
    return True


def main(scratch: str) -> None:
    """What every Replicat does at its start, and what expressions need. Java writes the archive when it ends, and takes
    its time.
    """
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from replicat.batches.engine import SparkEngine, SparkSettings

    engine = SparkEngine(SparkSettings("archive", f"{scratch}/spark", f"{scratch}/log"))
    engine.start()
    frame = SparkSession(engine._context).createDataFrame(pa.table({"p": [1, 2], "c": ["a", None]}), "p int, c string")
    frame.selectExpr("p", "p > 1 AS f", "c").selectExpr("f", "upper(c) || '/' || p AS r", "round(p * 1.2, 2)").toArrow()
    engine._context.stop()
    assert engine._jvm is not None
    engine._jvm.leave(PATIENCE)
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1])
