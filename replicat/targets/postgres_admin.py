"""What replicat/admin.py does in a PostgreSQL target: the checkpoint table, and the rows in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg

from replicat.target import Row, Run
from replicat.targets import rowtable
from replicat.targets.postgres_link import connect, mapped
from replicat.targets.postgres_sql import dotted, ident

KIND = "postgresql"
_T = TypeVar("_T")


def database_info(url: str) -> dict[str, str]:
    """Who we are where."""
    conn = connect(url, "trailgate admin")
    with mapped(conn), conn:
        found = conn.execute("SELECT current_user, current_database(), version()").fetchone()
    assert found is not None
    return dict(zip(("user", "database", "server"), found, strict=True))


def add_row_table(url: str, table: tuple[str, str]) -> None:
    """ADD CHECKPOINTTABLE."""

    def make(conn: psycopg.Connection[Any]) -> None:
        with conn.transaction():
            conn.execute(f"CREATE SCHEMA IF NOT EXISTS {ident(table[0])}")
            conn.execute(rowtable.create(dotted(*table), KIND))

    _admin(url, make)


def upgrade_row_table(conn: psycopg.Connection[Any], table: str) -> None:
    """Add the columns that a checkpoint table made by an earlier release lacks; `table` is quoted."""
    found = conn.execute("SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0", [table])
    for statement in rowtable.upgrades(table, KIND, [name for (name,) in found.fetchall()]):
        # Another group of the same table may be doing it too.
        conn.execute(statement.replace(" ADD COLUMN ", " ADD COLUMN IF NOT EXISTS ", 1))


def drop_row_table(url: str, table: tuple[str, str]) -> None:
    """DELETE CHECKPOINTTABLE."""
    _admin(url, lambda conn: conn.execute(f"DROP TABLE {dotted(*table)}"))


def tables(url: str) -> list[tuple[str, str]]:
    """LIST TABLES."""
    statement = """
        SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND n.nspname <> 'information_schema'
        AND n.nspname NOT LIKE 'pg\\_%' ORDER BY 1, 2"""
    return _admin(url, lambda conn: [(schema, name) for schema, name in conn.execute(statement).fetchall()])


def rows_of_table(url: str, table: tuple[str, str]) -> list[dict[str, Any]] | None:
    """INFO CHECKPOINTTABLE: every group's row; None if there is no such table."""

    def read(conn: psycopg.Connection[Any]) -> list[dict[str, Any]] | None:
        if conn.execute("SELECT to_regclass(%s)", [dotted(*table)]).fetchone() == (None,):
            return None
        fields = ("group", "group_key", "seqno", "rba", "csn", "alter_no", "created", "updated")
        found = conn.execute(
            "SELECT group_name, group_key::text, seqno, rba, log_csn, alter_no, create_ts::text, last_update_ts::text "
            f"FROM {dotted(*table)} ORDER BY 1, 2"
        ).fetchall()
        return [dict(zip(fields, row, strict=True)) for row in found]

    return _admin(url, read)


def delete_row(url: str, table: tuple[str, str], group: str, group_key: int) -> bool:
    """DELETE REPLICAT: forget how far the group was. True if there was a row."""

    def remove(conn: psycopg.Connection[Any]) -> bool:
        return conn.execute(rowtable.delete(dotted(*table)), [group, group_key]).rowcount > 0

    return _admin(url, remove)


def read_row(url: str, table: tuple[str, str], group: str, group_key: int) -> Row | None:
    """One group's row, as a process would find it."""

    def read(conn: psycopg.Connection[Any]) -> Row | None:
        upgrade_row_table(conn, dotted(*table))
        found = conn.execute(rowtable.select(dotted(*table)), [group, group_key]).fetchone()
        return rowtable.row_of(found) if found else None

    return _admin(url, read)


@contextlib.contextmanager
def statements(url: str) -> Iterator[Run]:
    """Run statements one by one, as read() and write() of a target do."""
    conn = connect(url, "trailgate admin")
    with conn, mapped(conn):
        conn.execute("SET synchronous_commit = on")

        def run(statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
            cursor = conn.execute(statement, params or None)
            return cursor.fetchall() if cursor.description else []

        yield run


def _admin(url: str, work: Callable[[psycopg.Connection[Any]], _T]) -> _T:
    conn = connect(url, "trailgate admin")
    with conn, mapped(conn):
        conn.execute("SET synchronous_commit = on")
        return work(conn)
