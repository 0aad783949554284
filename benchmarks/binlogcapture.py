"""Capture from a binary log to the local trail, of MariaDB or MySQL: inserts, updates, and one very large transaction.

Method: that of `capture`, on a server of its own. The log is there before; every run reads the same files of it. The
clock starts when the Extract process is made, connecting included, and stops when the last row is durable in the trail.
Beside it, over the same log: mysqlbinlog, which brings the log into a file and decodes nothing, and the library
mysql-replication, which decodes rows and keeps nothing; it is slow, and gets the first rows only.

`python -m benchmarks.binlogcapture --gigabytes N` captures one transaction of that size, and tells the time and the
most memory that the Extract process had.
"""

from __future__ import annotations

import argparse
import base64
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import machine
from benchmarks.options import Run
from benchmarks.ours import Ours, Progress, started
from benchmarks.results import OURS, Line
from demo.mariadb import MariaServer
from demo.mysql import MysqlServer
from demo.mysqld import Mysqld
from demo.pipeline import Options

SERVERS: dict[str, type[Mysqld]] = {"mariadb": MariaServer, "mysql": MysqlServer}
ROWS = 1_000_000
LIBRARY_ROWS = 40_000
BARS = {"inserts": 120_000.0, "updates": 70_000.0}
CLIENT, LIBRARY = "mysqlbinlog, into a file", "mysql-replication, decoded only"
A_TRANSACTION = 1000
TABLE = "CREATE TABLE item (id int PRIMARY KEY, name varchar(40), price double, stock decimal(10, 2), note varchar(80))"
# The log's files reach the disk when they are made, and no commit waits for it: only reading is measured.
SETTINGS: dict[str, object] = {
    "sync-binlog": 0,
    "innodb-flush-log-at-trx-commit": 0,
    "innodb-log-file-size": "1G",
    "max-binlog-size": "1G",
}
_NUMBERS = "WITH RECURSIVE n AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM n WHERE n < 1000) "
_ROW = "SELECT {first} + n, concat('item ', n), n * 1.1, n % 100, 'a note of some length' FROM n"
_WIDE_ROW = 100_000


def measure(run: Run) -> None:
    """Both kinds of change in MariaDB's log."""
    rows = max(A_TRANSACTION, int(ROWS * run.scale) // A_TRANSACTION * A_TRANSACTION)
    with _server("mariadb") as server:
        server.sql(TABLE, "shop")
        for what in ("inserts", "updates"):
            begin = _next_file(server)
            with _ours(server) as ours:
                for first in range(0, rows, A_TRANSACTION):
                    server.sql(_statement(what, first), "shop")
                run.say(f"binlog: {rows:,} {what} made")
                _Capture(run, server, ours, what, rows, begin).measure()


@contextmanager
def _server(kind: str, **settings: object) -> Iterator[Mysqld]:
    cls = SERVERS[kind]
    with cls(options={**cls.BINLOG, **SETTINGS, **settings}) as server:
        server.sql("CREATE DATABASE shop")
        yield server


@contextmanager
def _ours(server: Mysqld) -> Iterator[Ours]:
    """Registered at the log's end. Only the Extract is made and started, so there is no target."""
    with Ours(server.url("shop"), "", Options(tables=("shop.*",))) as ours:
        ours.create_source()
        yield ours


def _next_file(server: Mysqld) -> str:
    """The log's new file, which holds nothing yet."""
    server.sql("FLUSH BINARY LOGS")
    ((file, *_),) = server.sql("SHOW MASTER STATUS")
    return str(file)


def _statement(what: str, first: int) -> str:
    if what == "inserts":
        return "INSERT INTO item " + _NUMBERS + _ROW.format(first=first)
    where = f"id > {first} AND id <= {first + A_TRANSACTION}"
    return f"UPDATE item SET price = price + 1, stock = stock - 1 WHERE {where}"


@dataclass(slots=True)
class _Capture:
    """One kind of change, of which the log is full from the begin of a file on."""

    run: Run
    server: Mysqld
    ours: Ours
    what: str
    rows: int
    begin: str
    found: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def measure(self) -> None:
        """All runs, then the lines."""
        peers = [self._client, self._library] if self.run.peers else []
        self.run.interleaved(*peers, self._extract)
        for (who, what), values in self.found.items():
            ours = (who, what) == (OURS, "rows/s")
            bar = BARS[self.what] if ours and self.run.scale >= 1 else None
            case, peer = f"MariaDB, {self.what}, 1,000 a transaction", LIBRARY if ours else ""
            self.run.take(Line("binlog", case, who, what, tuple(values), bar, peer, less=what != "rows/s"))

    def _note(self, who: str, what: str, value: float) -> None:
        self.found.setdefault((who, what), []).append(value)

    def _extract(self) -> None:
        self.ours.restore()
        taken = _captured(self.ours, self.rows)
        self._note(OURS, "rows/s", self.rows / taken.seconds)
        self._note(OURS, "rows/s once running", taken.running)
        self._note(OURS, "CPU us/row", taken.cpu / self.rows * 1e6)
        self._note(OURS, "bytes/row", taken.size / self.rows)
        self._note(OURS, "MB resident", taken.memory)

    def _client(self) -> None:
        """Debian's client does not log in to MySQL 8; here is MariaDB."""
        program = shutil.which("mariadb-binlog") or shutil.which("mysqlbinlog")
        if program is None:
            raise FileNotFoundError("mysqlbinlog is not on PATH: install the server's client programs")
        with tempfile.TemporaryDirectory(prefix="tg-bench-") as folder:
            where = [f"--socket={self.server.socket}", "--user=root", "--read-from-remote-server", "--raw"]
            what = ["--to-last-log", f"--result-file={folder}/", self.begin]
            began = time.monotonic()
            subprocess.run([program, "--no-defaults", *where, *what], check=True, capture_output=True)
            took = time.monotonic() - began
            size = sum(path.stat().st_size for path in Path(folder).iterdir())
        self._note(CLIENT, "rows/s", self.rows / took)
        self._note(CLIENT, "bytes/row", size / self.rows)

    def _library(self) -> None:
        from pymysqlreplication import BinLogStreamReader

        where = {"host": "127.0.0.1", "port": self.server.port, "user": "root", "passwd": ""}
        stream = BinLogStreamReader(
            where, server_id=99, log_file=self.begin, log_pos=4, resume_stream=True, is_mariadb=True
        )
        rows, found = min(self.rows, LIBRARY_ROWS), 0
        began, busy = time.monotonic(), time.process_time()
        with closing(stream):
            while found < rows:
                found += len(getattr(stream.fetchone(), "rows", ()))
            took, cpu = time.monotonic() - began, time.process_time() - busy
        self._note(LIBRARY, "rows/s", found / took)
        self._note(LIBRARY, "CPU us/row", cpu / found * 1e6)


@dataclass(frozen=True, slots=True)
class _Taken:
    """`running`: rows a second once the first block was synced. `cpu`: seconds. `size`: bytes. `memory`: megabytes."""

    seconds: float
    running: float
    cpu: float
    size: int
    memory: float


def _captured(ours: Ours, rows: int) -> _Taken:
    """What the Extract process took until so many rows were durable in its trail."""
    ours.source.run("START MANAGER")
    starting = ours.start_soon(ours.source, "START EXTRACT EXT1")
    pid = ours.await_pid(ours.source, "EXT1")
    began = started(pid)
    progress = Progress(ours.trail(ours.source, "lt"))
    end = progress.wait(rows, ours.check_alive)
    cpu, memory = machine.cpu_seconds(pid), machine.peak_megabytes(pid)
    starting.result()
    ours.stop()
    assert progress.first is not None
    at, before, _ = progress.first
    return _Taken(end - began, (rows - before) / max(end - at, 1e-3), cpu, progress.size, memory)


def large(kind: str, gigabytes: float) -> None:
    """One transaction of rows of 100 KB that hardly compress, in the log before the Extract starts."""
    rows = int(gigabytes * 1e9 / _WIDE_ROW)
    with _server(kind, **{"max-binlog-cache-size": "64G", "innodb-doublewrite": 0}) as server, ExitStack() as stack:
        server.sql("CREATE TABLE wide (id int PRIMARY KEY, a longtext CHARACTER SET ascii)", "shop")
        ours = stack.enter_context(_ours(server))
        pool, dice = base64.b64encode(os.urandom(6_000_000)).decode(), random.Random(1)
        with closing(server.connect("shop")) as conn, conn.cursor() as cursor:
            conn.begin()
            for number in range(rows):
                at = dice.randrange(len(pool) - _WIDE_ROW)
                cursor.execute(f"INSERT INTO wide VALUES ({number}, '{pool[at : at + _WIDE_ROW]}')")
            conn.commit()
        taken = _captured(ours, rows)
    size = rows * _WIDE_ROW / 1e6
    print(f"one transaction of {size:,.0f} MB: {taken.seconds:.0f} s, {size / taken.seconds:,.0f} MB/s,")
    print(f"{taken.size / 1e6:,.0f} MB of trail, at most {taken.memory:.0f} MB of memory")


def main() -> None:
    """The large transaction alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=list(SERVERS), default="mariadb")
    parser.add_argument("--gigabytes", type=float, default=10.0)
    given = parser.parse_args()
    large(given.server, given.gigabytes)


if __name__ == "__main__":
    main()
