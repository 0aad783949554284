"""Compares tables of two databases row by row: exact text of every row, in any order, doubles counted.

Rule: nothing is sampled and nothing is rounded. `digests` is only the cheap look while waiting for a backlog to end;
what is reported as equal was compared with `differences`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

# One text form on both sides, whatever the servers' defaults and versions are.
_SETTINGS = (
    "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=1 "
    "-c bytea_output=hex -c client_encoding=UTF8"
)
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Table:
    """A table by name, with its columns in the order of comparison."""

    schema: str
    name: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def relation(self) -> sql.Identifier:
        """For SQL."""
        return sql.Identifier(self.schema, self.name)

    @property
    def row(self) -> sql.Composed:
        """One row as one text."""
        columns = sql.SQL(", ").join(sql.Identifier(column) for column in self.columns)
        return sql.SQL('(ROW({})::text COLLATE "C")').format(columns)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing one table found."""

    table: Table
    rows: int
    missing: int
    extra: int
    examples: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether both sides hold the same rows, each as often."""
        return not self.missing and not self.extra

    def __str__(self) -> str:
        if self.equal:
            return f"{self.table}: {self.rows:,} rows, equal"
        wrong = f"{self.missing:,} missing and {self.extra:,} extra at the target"
        found = f"{self.table}: {self.rows:,} rows at the source, {wrong}"
        return "\n".join([found, *(f"    {example}" for example in self.examples)])


def connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection whose text output is the same on every server."""
    return psycopg.connect(url, autocommit=True, options=_SETTINGS)


def tables_of(url: str, schemas: Sequence[str]) -> list[Table]:
    """The tables of these schemas, by name."""
    query = (
        "SELECT n.nspname, c.relname, array_agg(a.attname::text ORDER BY a.attname::text)"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid"
        " WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND n.nspname = ANY(%s)"
        " GROUP BY 1, 2 ORDER BY 1, 2"
    )
    with connect(url) as connection:
        return [
            Table(schema, name, tuple(columns)) for schema, name, columns in connection.execute(query, [list(schemas)])
        ]


def digests(url: str, tables: Sequence[Table]) -> list[tuple[Any, ...]]:
    """Row count and an order-independent hash of each table, all in one snapshot."""
    if not tables:
        return []
    parts = [
        sql.SQL("(SELECT (count(*), sum(hashtextextended({}, 0)))::text FROM {})").format(table.row, table.relation)
        for table in tables
    ]
    with connect(url) as connection:
        return connection.execute(sql.SQL("SELECT ") + sql.SQL(", ").join(parts)).fetchall()


def compare(source_url: str, target_url: str, table: Table) -> Comparison:
    """Compare one table, row by row."""
    missing: Counter[str] = Counter()
    extra: Counter[str] = Counter()
    rows = 0
    with connect(source_url) as source, connect(target_url) as target:
        ours, theirs = _sorted_rows(source, table), _sorted_rows(target, table)
        left, right = next(ours, None), next(theirs, None)
        while left is not None or right is not None:
            rows += left is not None and (right is None or left <= right)
            if left == right:
                left, right = next(ours, None), next(theirs, None)
            elif right is None or (left is not None and left < right):
                assert left is not None
                missing[left.decode()] += 1
                left = next(ours, None)
            else:
                extra[right.decode()] += 1
                right = next(theirs, None)
    examples = [f"missing: {row}" for row in list(missing)[:_SHOWN]] + [f"extra: {row}" for row in list(extra)[:_SHOWN]]
    return Comparison(table, rows, missing.total(), extra.total(), tuple(examples))


def _sorted_rows(connection: psycopg.Connection[tuple[Any, ...]], table: Table) -> Iterator[bytes]:
    """Every row as text, in the order of its bytes, streamed."""
    query = sql.SQL("COPY (SELECT {row} FROM {relation} ORDER BY 1) TO STDOUT").format(
        row=table.row, relation=table.relation
    )
    with connection.cursor().copy(query) as copy:
        rest = b""
        for chunk in copy:
            lines = (rest + bytes(chunk)).split(b"\n")
            rest = lines.pop()
            yield from lines


def compare_all(source_url: str, target_url: str, schemas: Sequence[str]) -> list[Comparison]:
    """Compare every table that the source has in these schemas."""
    return [compare(source_url, target_url, table) for table in tables_of(source_url, schemas)]
