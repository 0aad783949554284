"""What is done by hand in a PostgreSQL target."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from psycopg import pq

from replicat.targets.contract import RunStatement, Table
from replicat.targets.postgres.link import connect, mapped
from replicat.targets.sql.admin import SqlAdmin
from replicat.targets.sql.quoting import dotted
from trails.runtime.process import checking


class PostgresAdmin(SqlAdmin):
    """Administration of this database: what is different from any other that speaks SQL."""

    who = "SELECT current_user, current_database(), version()"
    catalog = """
        SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND n.nspname <> 'information_schema'
        AND n.nspname NOT LIKE 'pg\\_%' ORDER BY 1, 2"""
    remark = "SELECT obj_description(to_regclass(quote_ident(%s) || '.' || quote_ident(%s)), 'pg_class')"

    @contextlib.contextmanager
    def statements(self, url: str) -> Iterator[RunStatement]:
        conn = connect(url, "trailgate admin")
        with conn, mapped(conn):
            conn.execute("SET synchronous_commit = on")

            def run(statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
                cursor = conn.execute(statement, params or None)
                return cursor.fetchall() if cursor.description else []

            yield run

    def unverified(self, url: str) -> str:
        """By sslmode, from URL or environment."""
        options = [*pq.Conninfo.get_defaults(), *pq.Conninfo.parse(url.encode())]
        return checking.unverified_options(options, "sslmode=verify-full&sslrootcert=/path/ca.crt")

    def make(self, url: str, table: Table, made: str, remark: str) -> list[str]:  # noqa: ARG002
        beside = f"COMMENT ON TABLE {dotted(*table)} IS '{remark}'"
        return ["BEGIN", *self.words.make_schema(table[0]), made, beside, "COMMIT"]
