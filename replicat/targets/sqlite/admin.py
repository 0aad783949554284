"""What is done by hand in an SQLite target."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from replicat.targets.contract import RunStatement, Table
from replicat.targets.sql.admin import SqlAdmin
from replicat.targets.sqlite.link import connect, mapped, path_of


class SqliteAdmin(SqlAdmin):
    """Administration of this database: what is different from any other that speaks SQL."""

    who = "SELECT '', '', 'SQLite ' || sqlite_version()"
    catalog = (
        "SELECT 'main', name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
        "ORDER BY 2"
    )
    remark = "SELECT sql FROM sqlite_schema WHERE name = ?2 AND ?1 IS NOT NULL"

    @contextlib.contextmanager
    def statements(self, url: str) -> Iterator[RunStatement]:
        with contextlib.closing(connect(url)) as conn, mapped():
            yield lambda statement, params=(): conn.execute(statement, tuple(params)).fetchall()

    def database_info(self, url: str) -> dict[str, str]:
        return super().database_info(url) | {"database": os.path.realpath(path_of(url))}

    def make(self, url: str, table: Table, made: str, remark: str) -> list[str]:  # noqa: ARG002
        """It has no comments on tables, and keeps the statement as it was written."""
        return [f"{made.removesuffix(')')} /* {remark} */)"]
