"""Where a target of each kind is tried: all that the contract suite must be told of a database.

A new target joins here: a class with the members of Place, and its name in conftest.py.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any, Protocol

import psycopg

from demo.mysql import MysqlServer
from demo.mysqld import Mysqld
from demo.servers import PostgresServer
from replicat.targets.contract import Target
from replicat.targets.sqlite.link import path_of

Line = tuple[str | None, ...]


class Place(Protocol):
    """An empty database of one kind. `schema`: where the tests' tables are.

    `trigger`: statements that make a trigger of table `kv` by the name of `fire`. `pads`: keys that differ in blanks at
    their end alone are one key there.
    """

    pads: bool
    url: str
    schema: str
    trigger: tuple[str, ...]

    def sql(self, statement: str) -> list[Line]:
        """Run a statement beside the target, in a connection of its own; what it finds, as text."""

    def cut(self, target: Target) -> None:
        """End the target's connection, as a network or a server's crash does."""

    def crash(self) -> None:
        """The server dies and comes back: what was not durable is lost."""

    def waits(self) -> bool:
        """Whether somebody waits for a lock."""


def _as_text(rows: list[tuple[Any, ...]]) -> list[Line]:
    return [tuple(None if value is None else str(value) for value in row) for row in rows]


class PostgresPlace:
    """See Place."""

    pads = False
    schema = "public"
    trigger = (
        "CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.a := 'fired'; RETURN NEW; END$$",
        "CREATE TRIGGER fire BEFORE INSERT ON kv FOR EACH ROW EXECUTE FUNCTION fire()",
    )

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server, self.url = server, url

    def sql(self, statement: str) -> list[Line]:
        with psycopg.connect(self.url, autocommit=True) as conn:
            cursor = conn.execute(statement)
            return _as_text(cursor.fetchall()) if cursor.description else []

    def cut(self, target: Target) -> None:
        self.sql(
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    def crash(self) -> None:
        self._server.kill()
        self._server.start()

    def waits(self) -> bool:
        return bool(self.sql("SELECT 1 FROM pg_locks WHERE NOT granted"))


class MysqlPlace:
    """See Place."""

    trigger = ("CREATE TRIGGER fire BEFORE INSERT ON kv FOR EACH ROW SET NEW.a = 'fired'",)

    def __init__(self, server: Mysqld, database: str) -> None:
        self._server, self.schema, self.url = server, database, server.url(database)
        self.pads = isinstance(server, MysqlServer)  # 8.0.12 has no collation that does not

    def sql(self, statement: str) -> list[Line]:
        return self._server.sql(statement, self.schema)

    def cut(self, target: Target) -> None:
        self._server.end_sessions(f"db = '{self.schema}'")

    def crash(self) -> None:
        self._server.kill()
        self._server.start()

    def waits(self) -> bool:
        own = isinstance(self._server, MysqlServer)
        waits = "performance_schema.data_lock_waits" if own else "information_schema.innodb_lock_waits"
        return bool(self.sql(f"SELECT 1 FROM {waits}"))


class SqlitePlace:
    """See Place. There is no server: nobody cuts a connection from outside, and nobody is seen to wait."""

    pads = False
    schema = "main"
    trigger = ("CREATE TRIGGER fire BEFORE INSERT ON kv FOR EACH ROW BEGIN SELECT 1; END",)

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/target.db"

    def sql(self, statement: str) -> list[Line]:
        with contextlib.closing(sqlite3.connect(path_of(self.url), isolation_level=None)) as conn:
            return _as_text(conn.execute(statement).fetchall())

    def cut(self, target: Target) -> None:
        target.close()

    def crash(self) -> None: ...

    def waits(self) -> bool:
        return False
