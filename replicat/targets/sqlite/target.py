"""An SQLite file as a target: embedded, no server; the target to try things with, and a small one to keep.

Strategy: BEGIN IMMEDIATE takes the file's one write lock, so nobody else writes while a batch is applied. Rows are
converted here and bound as parameters into temporary tables in memory; from there by joined statements. Everything of a
batch is in the one transaction that also moves the checkpoint row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from replicat.model.target import (
    Blob,
    Layout,
    Match,
    RefusedError,
    TargetTable,
    Truncate,
)
from replicat.targets.contract import Kind, TargetSettings
from replicat.targets.sql.converting import ConvertingDatabase
from replicat.targets.sql.staged_sql import NUMBER, StagedSql
from replicat.targets.sql.target import SqlTarget
from replicat.targets.sql.types import Native
from replicat.targets.sqlite.link import (
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
from replicat.targets.sqlite.rebuild import OLD_MANNER, drop_key, drops_key
from replicat.targets.sqlite.sql import SqliteSql
from replicat.targets.sqlite.types import sqlite_type
from trails.errors import AwayError


def sqlite_target(kind: Kind, settings: TargetSettings) -> SqlTarget:
    """For the kind."""
    return SqlTarget(SqliteDatabase(kind, settings))


class SqliteDatabase(ConvertingDatabase):
    """What SqlTarget asks of this database."""

    errors = (sqlite3.Error, UnicodeEncodeError, OverflowError)
    begins = "BEGIN IMMEDIATE"

    def __init__(self, kind: Kind, settings: TargetSettings) -> None:
        super().__init__(kind, settings)
        self._file: tuple[int, int] | None = None

    # Connection

    def connect(self) -> None:
        self.conn = connect(self.settings.url, self.settings.home)
        self._file = identity(self.settings.url, self.settings.home)

    def bounds_waits(self, lock_ms: int, idle_ms: int) -> list[str]:  # noqa: ARG002  -- there is no server
        return [f"PRAGMA busy_timeout = {lock_ms}"]

    def start(self, *, durable: bool) -> None:
        """Each commit waits for the disk."""
        self._check_file()
        super().start(durable=durable)

    def finish(self, *, durable: bool) -> None:
        """What was committed to a file without its name is not there: the checkpoint may not pass it."""
        super().finish(durable=durable)
        self._check_file()

    def _check_file(self) -> None:
        """SQLite would go on writing to a file that was removed or replaced."""
        if identity(self.settings.url, self.settings.home) != self._file:
            raise AwayError(f"{path_of(self.settings.url, self.settings.home)} is not the file it was")

    # Statements, and rows

    def run(self, statement: str, params: Sequence[object] = ()) -> int:
        return int(self.conn.execute(statement, tuple(params)).rowcount)

    def ask(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.conn.execute(statement, tuple(params)).fetchall()
        return found

    def make_sql(self, layout: Layout, number: int) -> StagedSql:
        natives = {kind: self.native(kind) for kind in (*layout.types, *layout.extra_types)}
        row = primary_key(self.conn, layout.name) or (rowid_name((*layout.columns, *layout.extras)),)
        return SqliteSql(layout, number, natives, row)

    def native(self, column_type: str) -> Native:
        strict = column_type.endswith(TYPE_STRICT)
        return sqlite_type(column_type.removesuffix(TYPE_STRICT), strict=strict)

    def required(self, layout: Layout) -> frozenset[str]:
        alias = rowid_alias(self.conn, layout.name)
        return frozenset([alias] if alias else [])

    def load(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> None:
        self._insert(sql, sql.stage(letter), columns, blob)

    def copy_new(self, sql: StagedSql, blob: Blob) -> int:
        return self._insert(sql, sql.table, sql.layout.columns, blob)

    def _insert(self, sql: StagedSql, table: str, columns: Sequence[str], blob: Blob) -> int:
        assert isinstance(sql, SqliteSql)
        codec = self.codec(sql, columns)
        data = blob.read()
        self.tally.taken += len(data)
        codec.take_lost()  # of rows that were refused
        rows = chain.from_iterable(codec.pieces(data))
        taken: int = self.conn.executemany(sql.insert_values(table, columns), rows).rowcount
        self.count_lost(codec, sql.layout)
        return taken

    def match(self, sql: StagedSql, match: Match) -> int:
        assert isinstance(sql, SqliteSql)
        self.stage(sql, "b", sql.match_columns(match), match.rows)
        statement = sql.match_one(match.nulls, update=match.update)
        numbers = self.ask(f"SELECT {NUMBER} FROM {sql.stage('b')} ORDER BY {NUMBER}")
        return sum(self.conn.execute(statement, number).rowcount for number in numbers)

    def truncate(self, step: Truncate) -> None:
        super().truncate(step)
        if step.restart and self.ask("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'"):
            for _, name in step.tables:
                self.conn.execute("DELETE FROM sqlite_sequence WHERE name = ? COLLATE NOCASE", [name])

    def ours(self, error: Exception) -> Exception:
        return as_ours(error)

    # Shapes

    def look_up(self, places: Sequence[tuple[str, str]]) -> dict[tuple[str, str], TargetTable]:
        """The file's own tables (`sqlite_...`) are never found."""
        found = {place: table_of(self.conn, *place) for place in places}
        return {place: table for place, table in found.items() if table is not None}

    def refused_ddl(self, statement: str, error: Exception) -> RefusedError:
        self.run(f"{OLD_MANNER}OFF")
        ours = as_ours(error)
        if isinstance(ours, AwayError):
            raise ours from error
        return RefusedError(statement, str(error), "", getattr(error, "sqlite_errorname", "") or "")

    def run_ddl(self, statement: str) -> None:
        table = drops_key(statement)
        if table is None:
            self.run(statement)
        else:
            drop_key(self.conn, table)
