"""The kinds of target that Replicat is measured on: servers and files of the benchmark's own, with the same tables.

Rule: each run finds every table as it was before: the same keys, the marker at 0, no checkpoint row. Who waits for the
marker looks through one connection: a server that makes a new one for each look is what would be measured.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

from benchmarks.bed import OPTIONS
from demo.mariadb import MariaServer
from demo.servers import PostgresServer
from replicat.targets.kinds import admin_for

_COLUMNS = (
    "id {big} PRIMARY KEY, version int NOT NULL, name varchar(40) NOT NULL, note varchar(80) NOT NULL, "
    "amount {decimal} NOT NULL, created {time} NOT NULL, active {flag} NOT NULL, tag varchar(10), score int, "
    "updated {time} NOT NULL"
)
_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
_ROWS = "SELECT i, 0, 'customer', 'a remark of some words', 1.00, '{stamp}', {true}, 'tag', 1, '{stamp}' FROM {numbers}"
SECONDS = 300


class Kind(Protocol):
    """One kind of target. `schema`: of the tables, as MAP names it; `checkpoint_schema`: of the checkpoint table.

    `title`: the database's name; `own`: its way to take many rows.
    """

    title: str
    own: str
    url: str
    schema: str
    checkpoint_schema: str

    def prepare(self, names: Sequence[str], rows: int) -> None:
        """These tables anew, each with keys 1 to `rows`, and the marker."""

    def bulk(self, rows: Iterable[Sequence[bytes]]) -> float:
        """Put these rows, as `manytables.inserted` gives them, into t0 in its own way: the seconds, COMMIT included."""

    def add_markers(self, count: int) -> None:
        """So many in all, numbered from 1: the marker has moved where each of them has."""

    def make_names_unique(self, table: str) -> None:
        """Every row of a table that was prepared gets its `manytables.unique_name`, under a unique constraint."""

    def add_checkpoint_table(self) -> None:
        """As ADD CHECKPOINTTABLE."""

    def await_marker(self, number: int, alive: Callable[[], None]) -> None:
        """Wait until the marker has this number; `alive` raises when Replicat has ended."""


class _Kind:
    """What all kinds share."""

    title = own = url = ""
    schema = "bench"
    checkpoint_schema = "gg"

    def bulk(self, rows: Iterable[Sequence[bytes]]) -> float:
        """See Kind."""
        raise NotImplementedError

    def add_markers(self, count: int) -> None:
        """See Kind."""
        raise NotImplementedError

    def make_names_unique(self, table: str) -> None:
        """See Kind."""
        raise NotImplementedError

    def add_checkpoint_table(self) -> None:
        """See Kind."""
        admin_for(self.url).add_row_table(self.url, (self.checkpoint_schema, "chk"))

    def looker(self) -> AbstractContextManager[Callable[[], int]]:
        """What gives the marker's number, through one connection."""
        raise NotImplementedError

    def await_marker(self, number: int, alive: Callable[[], None]) -> None:
        """See Kind."""
        deadline = time.monotonic() + SECONDS
        with self.looker() as marker:
            while marker() < number:
                alive()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"marker {number} has not arrived within {SECONDS} s")
                time.sleep(0.01)


class Postgres(_Kind):
    """PostgreSQL 18, over TCP, with the settings of the other benchmarks."""

    title, own = "PostgreSQL", "COPY"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.url = server.url("apply", tcp=True)

    def prepare(self, names: Sequence[str], rows: int) -> None:
        """See Kind."""
        self._server.sql("DROP DATABASE IF EXISTS apply WITH (FORCE)")
        self._server.sql("CREATE DATABASE apply")
        columns = _COLUMNS.format(big="bigint", decimal="numeric(14,2)", time="timestamptz", flag="bool")
        made = _ROWS.format(stamp="2026-01-01 00:00:00+00", true="true", numbers=f"generate_series(1, {rows}) i")
        with psycopg.connect(self.url, autocommit=True) as connection:
            statements = ["CREATE SCHEMA bench", "CREATE TABLE bench.marker (id int PRIMARY KEY, n bigint NOT NULL)"]
            statements += ["INSERT INTO bench.marker VALUES (1, 0)"]
            for name in names:
                made_of = made.replace("'2026-01-01 00:00:00+00'", "timestamptz '2026-01-01 00:00:00+00'")
                statements += [f"CREATE TABLE bench.{name} ({columns})", f"INSERT INTO bench.{name} {made_of}"]
            for statement in [*statements, "VACUUM (FREEZE, ANALYZE)", "CHECKPOINT"]:
                connection.execute(statement.encode())

    def bulk(self, rows: Iterable[Sequence[bytes]]) -> float:
        """See Kind."""
        text = b"".join(b"\t".join(row) + b"\n" for row in rows)
        with psycopg.connect(self.url, autocommit=True) as connection, connection.cursor() as cursor:
            began = time.monotonic()
            with cursor.copy(b"COPY bench.t0 FROM STDIN") as copy:
                for at in range(0, len(text), 1 << 16):
                    copy.write(text[at : at + (1 << 16)])
            return time.monotonic() - began

    def add_markers(self, count: int) -> None:
        """See Kind."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(b"INSERT INTO bench.marker SELECT n, 0 FROM generate_series(2, %d) n" % count)

    def make_names_unique(self, table: str) -> None:
        """See Kind."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in (
                f"UPDATE bench.{table} SET name = 'u' || id",
                f"ALTER TABLE bench.{table} ADD UNIQUE (name)",
            ):
                connection.execute(statement.encode())
            connection.execute(b"VACUUM (FREEZE, ANALYZE)")

    @contextmanager
    def looker(self) -> Iterator[Callable[[], int]]:
        """See _Kind."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            look = b"SELECT min(n) FROM bench.marker"
            yield lambda: int((connection.execute(look, prepare=True).fetchone() or [0])[0])


class Maria(_Kind):
    """MariaDB, over TCP."""

    title, own = "MariaDB", "LOAD DATA"
    schema = checkpoint_schema = "bench"

    def __init__(self, server: MariaServer) -> None:
        self._server = server
        self.url = server.url("bench")

    def prepare(self, names: Sequence[str], rows: int) -> None:
        """See Kind."""
        columns = _COLUMNS.format(big="bigint", decimal="decimal(14,2)", time="datetime(6)", flag="boolean")
        made = _ROWS.format(stamp="2026-01-01 00:00:00", true="true", numbers=f"seq_1_to_{rows}")
        made = made.replace("SELECT i,", "SELECT seq,")
        self._server.sql("DROP DATABASE IF EXISTS bench")
        self._server.sql("CREATE DATABASE bench")
        statements = ["CREATE TABLE marker (id int PRIMARY KEY, n bigint NOT NULL)", "INSERT INTO marker VALUES (1, 0)"]
        for name in names:
            statements += [f"CREATE TABLE {name} ({columns})", *([f"INSERT INTO {name} {made}"] if rows else [])]
        for statement in statements:
            self._server.sql(statement, "bench")

    def bulk(self, rows: Iterable[Sequence[bytes]]) -> float:
        """See Kind."""
        with (
            tempfile.NamedTemporaryFile(prefix="tg-bench-") as file,
            closing(self._server.connect("bench", local_infile=True)) as connection,
            connection.cursor() as cursor,
        ):
            file.writelines(b"\t".join(map(_plain, row)) + b"\n" for row in rows)
            file.flush()
            began = time.monotonic()
            cursor.execute(f"LOAD DATA LOCAL INFILE '{file.name}' INTO TABLE t0 CHARACTER SET utf8mb4")
            return time.monotonic() - began

    @contextmanager
    def looker(self) -> Iterator[Callable[[], int]]:
        """See _Kind."""
        with closing(self._server.connect("bench")) as connection, connection.cursor() as cursor:

            def marker() -> int:
                cursor.execute("SELECT n FROM marker")
                return int(cursor.fetchone()[0])

            yield marker


class Sqlite(_Kind):
    """A SQLite file."""

    title, own = "SQLite", "executemany"
    schema = checkpoint_schema = "main"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"

    def prepare(self, names: Sequence[str], rows: int) -> None:
        """See Kind."""
        for path in self._path.parent.glob(f"{self._path.name}*"):
            path.unlink()
        columns = _COLUMNS.format(big="integer", decimal="numeric", time="text", flag="boolean")
        made = _ROWS.format(stamp="2026-01-01 00:00:00+00", true="1", numbers="n")
        with closing(self._connect()) as connection, connection:
            connection.execute("CREATE TABLE marker (id integer PRIMARY KEY, n integer NOT NULL)")
            connection.execute("INSERT INTO marker VALUES (1, 0)")
            for name in names:
                connection.execute(f"CREATE TABLE {name} ({columns})")
                if rows:
                    connection.execute(f"INSERT INTO {name} {_NUMBERS.format(rows=rows)} {made}")

    def bulk(self, rows: Iterable[Sequence[bytes]]) -> float:
        """See Kind."""
        values = [[_plain(value).decode() for value in row] for row in rows]
        marks = ", ".join("?" * len(values[0]))
        with closing(self._connect()) as connection:
            began = time.monotonic()
            with connection:
                connection.executemany(f"INSERT INTO t0 VALUES ({marks})", values)
            return time.monotonic() - began

    @contextmanager
    def looker(self) -> Iterator[Callable[[], int]]:
        """See _Kind."""
        with closing(self._connect()) as connection:
            yield lambda: int(connection.execute("SELECT n FROM marker").fetchone()[0])

    def _connect(self) -> Any:
        return sqlite3.connect(self._path, timeout=60)


def _plain(value: bytes) -> bytes:
    """A value of the trail's as a database without time zones and booleans takes it."""
    return {b"true": b"1", b"false": b"0"}.get(value, value.removesuffix(b"+00"))


@contextmanager
def servers() -> Iterator[dict[str, Kind]]:
    """Every kind, by its name, while the block lasts."""
    options = {"innodb-buffer-pool-size": "512M", "innodb-log-file-size": "1G"}
    with (
        PostgresServer(version=18, options=OPTIONS, tcp=True) as postgres,
        MariaServer(options=options) as maria,
        tempfile.TemporaryDirectory(prefix="tg-bench-") as folder,
    ):
        yield {"postgresql": Postgres(postgres), "mysql": Maria(maria), "sqlite": Sqlite(Path(folder) / "apply.db")}
