"""The kinds of target that Replicat is measured on: servers and files of the benchmark's own, with the same tables.

Rule: each run finds every table as it was before: the same keys, the marker at 0, no checkpoint row. Who waits for the
marker looks through one connection: a server that makes a new one for each look is what would be measured.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
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
    """One kind of target. `schema`: of the tables, as MAP names it; `checkpoint_schema`: of the checkpoint table."""

    url: str
    schema: str
    checkpoint_schema: str

    def prepare(self, names: Sequence[str], rows: int) -> None:
        """These tables anew, each with keys 1 to `rows`, and the marker."""

    def make_names_unique(self, table: str) -> None:
        """Every row of a table that was prepared gets its `manytables.unique_name`, under a unique constraint."""

    def add_checkpoint_table(self) -> None:
        """As ADD CHECKPOINTTABLE."""

    def await_marker(self, number: int, alive: Callable[[], None]) -> None:
        """Wait until the marker has this number; `alive` raises when Replicat has ended."""


class _Kind:
    """What all kinds share."""

    url = ""
    schema = "bench"
    checkpoint_schema = "gg"

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
            yield lambda: int((connection.execute("SELECT n FROM bench.marker", prepare=True).fetchone() or [0])[0])


class Maria(_Kind):
    """MariaDB, over TCP."""

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
            statements += [f"CREATE TABLE {name} ({columns})", f"INSERT INTO {name} {made}"]
        for statement in statements:
            self._server.sql(statement, "bench")

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
                connection.execute(f"INSERT INTO {name} {_NUMBERS.format(rows=rows)} {made}")

    @contextmanager
    def looker(self) -> Iterator[Callable[[], int]]:
        """See _Kind."""
        with closing(self._connect()) as connection:
            yield lambda: int(connection.execute("SELECT n FROM marker").fetchone()[0])

    def _connect(self) -> Any:
        return sqlite3.connect(self._path, timeout=60)


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
