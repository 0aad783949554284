"""Spark's JVMs of all tests load their classes from one archive (Java's CDS): each starts in half of its CPU time.

Rule: the archive changes how classes are loaded, never what runs; a JVM that can't use it loads them as ever.
It is made once per checkout, Java and pyspark, beside the servers' templates: by `make test` beside its lint, else
by the first test with Spark.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from functools import cache as once
from pathlib import Path

from demo.embedded import cache
from demo.patience import PATIENCE
from replicat.batches.classes import ClassArchive

OPTIONS = "SPARK_SUBMIT_OPTS"
SHORT_LIFE = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""As the product's own JVMs have it: a Spark session of somebody's own would optimize what runs a few times."""
KEPT_SECONDS = 2 * 86_400
"""So long that of a checkout is kept in which nothing is tested."""
ROOT = Path(__file__).parents[2]


def share_classes() -> None:
    """From now on the JVMs of this process and its children use the archive. Who comes first makes it, nobody waits:
    who finds another at it asks again before its next test.
    """
    if "SharedArchiveFile" in os.environ.get(OPTIONS, "") or not (archive := _archive()):
        return
    if not archive.path:
        with Path(f"{archive.stem}lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if not archive.path and not _made(archive):
                return
    os.environ[OPTIONS] = f"{os.environ.get(OPTIONS, '')} {SHORT_LIFE} {archive.option}".strip()


@once
def _archive() -> ClassArchive | None:
    """A checkout's own, of the Java and the jars of now. None where there is no Java: the test will tell."""
    with cache() as root:
        folder = root / f"spark-{zlib.crc32(str(ROOT).encode()):08x}"
        folder.mkdir(exist_ok=True)
        os.utime(folder)
        for other in root.glob("spark-*"):
            if other.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
        return ClassArchive.of(str(folder), "tests")


@once
def _made(archive: ClassArchive) -> bool:
    """Make it; False, and a warning, if this machine has no time for that now, or its Java makes none."""
    with tempfile.TemporaryDirectory(prefix="tgs-") as scratch:
        command = [sys.executable, "-m", "tests.support.spark_archive", scratch, os.path.dirname(archive.stem)]
        try:
            subprocess.run(command, cwd=ROOT, check=True, timeout=PATIENCE)
        except subprocess.SubprocessError as error:
            warnings.warn(f"Spark's tests start slower, without an archive of classes: {error}", stacklevel=2)
            return False
    if not archive.path:  # a Java without an archive of its own
        warnings.warn("Spark's tests start slower: this Java made no archive of classes", stacklevel=2)
    return bool(archive.path)


def main(scratch: str, folder: str) -> None:
    """What every Replicat does at its start, and what expressions need. It ends in order, and leaves the archive."""
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from replicat.batches import engine as engines
    from replicat.batches.engine import SparkEngine, SparkSettings

    engines.CLASSES_SECONDS = PATIENCE
    classes = ClassArchive.of(folder, "tests")
    engine = SparkEngine(SparkSettings("archive", f"{scratch}/spark", f"{scratch}/log", classes=classes))
    engine.start()
    frame = SparkSession(engine._context).createDataFrame(pa.table({"p": [1, 2], "c": ["a", None]}), "p int, c string")
    frame.selectExpr("p", "p > 1 AS f", "c").selectExpr("f", "upper(c) || '/' || p AS r", "round(p * 1.2, 2)").toArrow()
    engine.close()


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else share_classes()
