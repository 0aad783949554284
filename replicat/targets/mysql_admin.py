"""Administration of a MySQL or MariaDB target, for replicat/admin.py: see replicat.targets.Admin."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from replicat.target import Row, Run
from replicat.targets import rowtable
from replicat.targets.mysql_link import Link, MysqlUrl, connect, mapped
from trails.errors import OperatorError

KIND = "mysql"
Table = tuple[str, str]


def ident(name: str) -> str:
    """A quoted identifier (ANSI_QUOTES is set)."""
    return '"' + name.replace('"', '""') + '"'


def dotted(schema: str, name: str) -> str:
    """A quoted database.table."""
    return f"{ident(schema)}.{ident(name)}"


def query(link: Link, statement: str, params: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
    """Run a statement; its rows as the server's text."""
    with link.cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall()) if cursor.description else []


@contextlib.contextmanager
def _linked(url: str) -> Iterator[Link]:
    link = connect(url)
    try:
        with mapped(link):
            yield link
    finally:
        if link.open:
            link.close()


@contextlib.contextmanager
def statements(url: str) -> Iterator[Run]:
    """Run statements one by one, as read() and write() of a target do."""
    with _linked(url) as link:
        yield lambda statement, params=(): query(link, statement, list(params) or None)


def database_info(url: str) -> dict[str, str]:
    """Who we are where."""
    with _linked(url) as link:
        user, database, server = query(link, "SELECT current_user(), database(), version()")[0]
    return {"user": user, "database": database, "server": server}


def add_row_table(url: str, table: Table) -> None:
    """ADD CHECKPOINTTABLE."""
    with _linked(url) as link:
        if table[0] != MysqlUrl.parse(url).database:
            query(link, f"CREATE DATABASE IF NOT EXISTS {ident(table[0])}")
        query(link, rowtable.create(dotted(*table), KIND) + " ENGINE = InnoDB")


def drop_row_table(url: str, table: Table) -> None:
    """DELETE CHECKPOINTTABLE."""
    with _linked(url) as link:
        query(link, f"DROP TABLE {dotted(*table)}")


def tables(url: str) -> list[Table]:
    """LIST TABLES: those of the databases that the user sees, but for the server's own."""
    with _linked(url) as link:
        found = query(
            link,
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' "
            "AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1, 2",
        )
    return [(schema, name) for schema, name in found]


def rows_of_table(url: str, table: Table) -> list[dict[str, Any]] | None:
    """INFO CHECKPOINTTABLE."""
    fields = ("group", "group_key", "seqno", "rba", "csn", "alter_no", "created", "updated")
    with _linked(url) as link:
        if not row_table_columns(link, table):
            return None
        found = query(
            link,
            "SELECT group_name, group_key, seqno, rba, log_csn, alter_no, create_ts, last_update_ts "
            f"FROM {dotted(*table)} ORDER BY 1, 2",
        )
    return [dict(zip(fields, row, strict=True)) for row in found]


def delete_row(url: str, table: Table, group: str, group_key: int) -> bool:
    """DELETE REPLICAT."""
    with _linked(url) as link, link.cursor() as cursor:
        return bool(cursor.execute(rowtable.delete(dotted(*table)), [group, group_key]) > 0)


def read_row(url: str, table: Table, group: str, group_key: int) -> Row | None:
    """One group's row."""
    with _linked(url) as link:
        upgrade_row_table(link, table)
        return load_row(link, table, group, group_key)


def row_table_columns(link: Link, table: Table) -> list[str]:
    """The checkpoint table's columns; none if there is no such table."""
    found = query(
        link,
        "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
        list(table),
    )
    return [row[0] for row in found]


def upgrade_row_table(link: Link, table: Table) -> None:
    """Refuse a missing one, and one that would not take part in a transaction; add what an older one lacks."""
    found = row_table_columns(link, table)
    if not found:
        raise OperatorError(
            f"checkpoint table {table[0]}.{table[1]} does not exist in the target",
            hint=f"ADD CHECKPOINTTABLE {table[0]}.{table[1]}",
        )
    engine = query(
        link, "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s", list(table)
    )
    if engine and str(engine[0][0]).lower() != "innodb":
        raise OperatorError(
            f"checkpoint table {table[0]}.{table[1]} is of engine {engine[0][0]}: it has no transactions",
            hint=f"ALTER TABLE {table[0]}.{table[1]} ENGINE = InnoDB",
        )
    for statement in rowtable.upgrades(dotted(*table), KIND, found):
        query(link, statement)


def load_row(link: Link, table: Table, group: str, group_key: int) -> Row | None:
    """The group's row; None if it has none yet."""
    found = query(link, rowtable.select(dotted(*table)), [group, group_key])
    return rowtable.row_of(found[0]) if found else None
