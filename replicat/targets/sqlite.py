"""An SQLite file as a target: embedded, no server; the target to try things with, and a small one to keep.

Strategy: BEGIN IMMEDIATE takes the file's one write lock, so nobody else writes while a batch is applied. Rows are
converted here and bound as parameters into temporary tables in memory; from there by joined statements. Everything of a
batch is in the one transaction that also moves the checkpoint row.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from replicat.target import Blob, Layout, Match, PlaceLostError, RefusedError, Row, TargetTable, Truncate
from replicat.targets import TargetSettings, rowtable
from replicat.targets.converting import ConvertingTarget
from replicat.targets.sqlite_admin import KIND, load_row, quoted, upgrade_row_table
from replicat.targets.sqlite_link import (
    TYPE_STRICT,
    as_ours,
    connect,
    identity,
    path_of,
    primary_key,
    rowid_alias,
    rowid_name,
    table_of,
)
from replicat.targets.sqlite_sql import SqliteSql
from replicat.targets.staged_sql import NUMBER, StagedSql
from replicat.targets.types import Native, sqlite_type
from trails.errors import AwayError
from trails.record import Image


class SqliteTarget(ConvertingTarget):
    """See replicat.target.Target."""

    kind = KIND
    transactional_ddl = True
    errors = (sqlite3.Error, UnicodeEncodeError, OverflowError)

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__(settings)
        self._conn: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self.row_table = quoted(settings.checkpoint_table)

    # Connection

    def connect(self) -> None:
        """See Target."""
        self.close()
        self._conn = connect(self.settings.url, self.settings.home)
        self._file = identity(self.settings.url, self.settings.home)
        with self.mapped():
            upgrade_row_table(self._conn, self.settings.checkpoint_table)

    def close(self) -> None:
        """See Target."""
        self.forget_stages()
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()

    def _check_file(self) -> None:
        """SQLite would go on writing to a file that was removed or replaced."""
        if identity(self.settings.url, self.settings.home) != self._file:
            raise AwayError(f"{path_of(self.settings.url, self.settings.home)} is not the file it was")

    # The checkpoint row

    def load_row(self) -> Row | None:
        """See Target."""
        with self.mapped():
            return load_row(self.conn, self.settings.checkpoint_table, self.settings.group, self.settings.group_key)

    def add_row(self, row: Row) -> None:
        """See Target."""
        values = rowtable.insert_values(self.settings.group, self.settings.group_key, row, self.settings.home)
        with self.mapped():
            self.conn.execute(rowtable.insert(self.row_table, KIND, "?"), values)

    def begin(self, old: Row, new: Row) -> None:
        """See Target."""
        with self.mapped():
            self._check_file()
            self.run("BEGIN IMMEDIATE")
            self.forget_rows()
            self._move_row(old, new)

    def flush(self, old: Row, new: Row) -> None:
        """See Target. Each commit waits for the disk, so this is one like others."""
        with self.mapped():
            self._check_file()
            self.run("BEGIN IMMEDIATE")
            self._move_row(old, new)
            self.run("COMMIT")

    def commit(self) -> None:
        """See Target."""
        with self.mapped():
            self.run("COMMIT")
            self.forget_rows()

    def _move_row(self, old: Row, new: Row) -> None:
        values = rowtable.move_values(self.settings.group, self.settings.group_key, old, new, self.settings.home)
        if self.conn.execute(rowtable.move(self.row_table, KIND, "?"), values).rowcount != 1:
            self.run("ROLLBACK")
            raise PlaceLostError(self.place_lost(old))

    # Hooks of StagedTarget

    @property
    def conn(self) -> sqlite3.Connection:
        """The connection."""
        if self._conn is None:
            raise AwayError("the target connection is closed")
        return self._conn

    def run(self, statement: str) -> int:
        """See StagedTarget."""
        return self.conn.execute(statement).rowcount

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """See StagedTarget."""
        return self.conn.execute(statement).fetchall()

    def run_with(self, statement: str, params: Sequence[object]) -> int:
        """See StagedTarget."""
        return self.conn.execute(statement, tuple(params)).rowcount

    def make_sql(self, layout: Layout, number: int) -> StagedSql:
        """See StagedTarget."""
        natives = {kind: self.native(kind) for kind in (*layout.types, *layout.extra_types)}
        row = primary_key(self.conn, layout.name) or (rowid_name((*layout.columns, *layout.extras)),)
        return SqliteSql(layout, number, natives, row)

    def native(self, column_type: str) -> Native:
        """See ConvertingTarget."""
        strict = column_type.endswith(TYPE_STRICT)
        return sqlite_type(column_type.removesuffix(TYPE_STRICT), strict=strict)

    def required(self, layout: Layout) -> frozenset[str]:
        """See ConvertingTarget."""
        alias = rowid_alias(self.conn, layout.name)
        return frozenset([alias] if alias else [])

    def load(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> None:
        """See StagedTarget."""
        self._insert(sql, sql.stage(letter), columns, blob)

    def copy_new(self, sql: StagedSql, blob: Blob) -> int:
        """See StagedTarget."""
        return self._insert(sql, sql.table, sql.layout.columns, blob)

    def _insert(self, sql: StagedSql, table: str, columns: Sequence[str], blob: Blob) -> int:
        assert isinstance(sql, SqliteSql)
        codec = self.codec(sql, columns)
        data = blob.read()
        self.taken += len(data)
        rows = codec.rows(data)
        self.count_lost(codec, sql.layout)
        return self.conn.executemany(sql.insert_values(table, columns), rows).rowcount if rows else 0

    def fetch(self, layout: Layout, relation: str) -> list[Image]:
        """See StagedTarget. The file's write lock holds for all rows."""
        sql = self.sql_of(layout)
        assert isinstance(sql, SqliteSql)
        return [self.back(layout, row) for row in self.ask(sql.fetch(relation))]

    def match(self, sql: StagedSql, match: Match) -> int:
        """See StagedTarget."""
        assert isinstance(sql, SqliteSql)
        self.stage(sql, "b", sql.match_columns(match), match.rows)
        statement = sql.match_one(match.nulls, update=match.update)
        numbers = self.ask(f"SELECT {NUMBER} FROM {sql.stage('b')} ORDER BY {NUMBER}")
        return sum(self.conn.execute(statement, number).rowcount for number in numbers)

    def truncate(self, step: Truncate) -> None:
        """See StagedTarget."""
        super().truncate(step)
        if step.restart and self.ask("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'"):
            for _, name in step.tables:
                self.conn.execute("DELETE FROM sqlite_sequence WHERE name = ? COLLATE NOCASE", [name])

    def refusal(self, error: Exception) -> RefusedError | None:
        """See StagedTarget."""
        found = as_ours(error)
        return found if isinstance(found, RefusedError) else None

    @contextlib.contextmanager
    def mapped(self) -> Iterator[None]:
        """See StagedTarget."""
        try:
            yield
        except self.errors as error:
            raise as_ours(error) from error

    # Shapes

    def table(self, schema: str, name: str) -> TargetTable | None:
        """See Target."""
        with self.mapped():
            return table_of(self.conn, schema, name)

    def tables(self, places: Iterable[tuple[str, str]]) -> dict[tuple[str, str], TargetTable]:
        """See Target."""
        found = {place: self.table(*place) for place in places}
        return {place: table for place, table in found.items() if table is not None}

    def ddl(self, statements: tuple[str, ...]) -> None:
        """See Target."""
        before = self.mark()
        for statement in statements:
            try:
                self.run(statement)
            except sqlite3.Error as error:
                ours = as_ours(error)
                if isinstance(ours, AwayError):
                    raise ours from error
                self.undo(before)
                raise RefusedError(statement, str(error), "", getattr(error, "sqlite_errorname", "") or "") from error
