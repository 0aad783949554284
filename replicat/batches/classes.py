"""An archive of the classes that Spark loads (Java's CDS): with it the JVM starts in half of the time.

    none yet      the JVM that starts is told to leave one when it ends
    STOP          it ends in order, which takes some seconds, and leaves it under the group's own name
    behind that   it gets its name, and each JVM of the home that starts uses it

There are two: Replicats with expressions load a third more, and would find none of that in one that another left.

Rule: an archive changes how classes are loaded, never what runs. A JVM that can't use it loads them as ever; one that
is killed leaves none, and the next one is told again.
Java checks its content (VerifySharedSpaces), but dies of one that was cut. So its name has its size, besides what it
was made of: another Java or other jars make another one. And if a JVM dies of it all the same, it goes.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_STEM: Final = "spark-classes-"
_WITH_SQL: Final = "spark-sql-classes-"
_SET: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
"""Where somebody may have named an archive of his own."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """`stem`: the paths of archives that fit begin so; `all`: of those as well that were made of another Java or other
    jars; `left`: where a JVM of this group leaves one.
    """

    stem: str
    all: str
    left: str

    @classmethod
    def of(cls, folder: str, group: str, *, sql: bool = False) -> ClassArchive | None:
        """That of a home, for what has expressions (`sql`) or none; None where there can be none."""
        home = os.environ.get("JAVA_HOME")
        java, spark = shutil.which(os.path.join(home, "bin", "java") if home else "java"), find_spec("pyspark")
        named = any("SharedArchiveFile" in os.environ.get(name, "") for name in _SET)
        if java is None or spark is None or spark.origin is None or named or len(folder.split()) != 1:
            return None
        files = Path(java).resolve().parents[1] / "lib" / "modules", Path(spark.origin).parent / "jars"
        facts = [(str(path), path.stat().st_mtime_ns) for path in files if path.exists()]
        every = os.path.join(folder, _WITH_SQL if sql else _STEM)
        stem = f"{every}{zlib.crc32(repr(facts).encode()):08x}-"
        return cls(stem, every, f"{stem}{group}.new")

    @property
    def path(self) -> str:
        """The archive, if there is a whole one; else empty."""
        for path in glob.glob(f"{glob.escape(self.stem)}*.jsa"):
            with contextlib.suppress(OSError):
                if path == self._named(os.stat(path).st_size):
                    return path
        return ""

    def _named(self, size: int) -> str:
        return f"{self.stem}{size}.jsa"

    @property
    def option(self) -> str:
        """For Java."""
        if path := self.path:
            return f"-XX:SharedArchiveFile={path} -XX:+VerifySharedSpaces"
        return f"-XX:ArchiveClassesAtExit={self.left} -Xlog:cds*=error"  # or it names each class that it leaves out

    def keep(self) -> None:
        """A JVM has ended in order: what it has left becomes the home's, and all others go."""
        with contextlib.suppress(OSError):  # it has left none, or the disk is full: then as before
            path = self._named(os.stat(self.left).st_size)
            os.replace(self.left, path)
            self.forget(keep=path)

    def forget(self, keep: str = "") -> None:
        """Remove what a JVM has not left whole, and all archives of the kind but this one."""
        for path in [self.left, *glob.glob(f"{glob.escape(self.all)}*.jsa")]:
            with contextlib.suppress(OSError):
                if path != keep:
                    os.unlink(path)  # who uses it keeps it
