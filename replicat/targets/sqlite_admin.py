"""Administration of an SQLite target, for replicat/admin.py: see replicat.targets.Admin."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from typing import Any

from replicat.target import Row, Run
from replicat.targets import rowtable
from replicat.targets.sqlite_link import SCHEMA, connect, ident, mapped, path_of
from trails.errors import OperatorError

KIND = "sqlite"
Table = tuple[str, str]


@contextlib.contextmanager
def _linked(url: str) -> Iterator[sqlite3.Connection]:
    conn = connect(url)
    try:
        with mapped():
            yield conn
    finally:
        conn.close()


@contextlib.contextmanager
def statements(url: str) -> Iterator[Run]:
    """Run statements one by one, as read() and write() of a target do."""
    with _linked(url) as conn:
        yield lambda statement, params=(): conn.execute(statement, tuple(params)).fetchall()


def database_info(url: str) -> dict[str, str]:
    """Who we are where."""
    with _linked(url) as conn:
        (version,) = conn.execute("SELECT sqlite_version()").fetchone()
    return {"user": "", "database": os.path.realpath(path_of(url)), "server": f"SQLite {version}"}


def add_row_table(url: str, table: Table) -> None:
    """ADD CHECKPOINTTABLE."""
    with _linked(url) as conn:
        conn.execute(rowtable.create(quoted(table), KIND))


def drop_row_table(url: str, table: Table) -> None:
    """DELETE CHECKPOINTTABLE."""
    with _linked(url) as conn:
        conn.execute(f"DROP TABLE {quoted(table)}")


def tables(url: str) -> list[Table]:
    """LIST TABLES."""
    with _linked(url) as conn:
        found = conn.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1"
        ).fetchall()
    return [(SCHEMA, name) for (name,) in found]


def rows_of_table(url: str, table: Table) -> list[dict[str, Any]] | None:
    """INFO CHECKPOINTTABLE."""
    fields = ("group", "group_key", "seqno", "rba", "csn", "alter_no", "created", "updated")
    with _linked(url) as conn:
        if not _columns(conn, table):
            return None
        found = conn.execute(
            "SELECT group_name, CAST(group_key AS TEXT), seqno, rba, log_csn, alter_no, create_ts, last_update_ts "
            f"FROM {quoted(table)} ORDER BY 1, 2"
        ).fetchall()
    return [dict(zip(fields, row, strict=True)) for row in found]


def delete_row(url: str, table: Table, group: str, group_key: int) -> bool:
    """DELETE REPLICAT."""
    with _linked(url) as conn:
        return conn.execute(rowtable.delete(quoted(table), "?"), [group, group_key]).rowcount > 0


def read_row(url: str, table: Table, group: str, group_key: int) -> Row | None:
    """One group's row."""
    with _linked(url) as conn:
        upgrade_row_table(conn, table)
        return load_row(conn, table, group, group_key)


def quoted(table: Table) -> str:
    """The table's name in SQL; SQLite has one schema."""
    if table[0].lower() != SCHEMA:
        raise OperatorError(
            f"table {table[0]}.{table[1]}: SQLite has one schema, {SCHEMA}", hint=f"Write {SCHEMA}.{table[1]}"
        )
    return f"{SCHEMA}.{ident(table[1])}"


def _columns(conn: sqlite3.Connection, table: Table) -> list[str]:
    quoted(table)
    return [row[0] for row in conn.execute("SELECT name FROM pragma_table_info(?)", [table[1]])]


def upgrade_row_table(conn: sqlite3.Connection, table: Table) -> None:
    """Refuse a missing one; add what an older one lacks."""
    found = _columns(conn, table)
    if not found:
        raise OperatorError(
            f"checkpoint table {table[0]}.{table[1]} does not exist in the target",
            hint=f"ADD CHECKPOINTTABLE {table[0]}.{table[1]}",
        )
    for statement in rowtable.upgrades(quoted(table), KIND, found):
        conn.execute(statement)


def load_row(conn: sqlite3.Connection, table: Table, group: str, group_key: int) -> Row | None:
    """The group's row; None if it has none yet."""
    found = conn.execute(rowtable.select(quoted(table), "?"), [group, group_key]).fetchone()
    return rowtable.row_of(found) if found else None
