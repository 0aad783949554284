"""A target of any kind with its database beside it: steps in, rows out, without a trail."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from demo.mysqld import Mysqld
from replicat.model.copytext import render
from replicat.model.target import Blob, CheckpointRow, Layout, Rows, Work
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import admin_for, open_target
from replicat.targets.postgres.sql import SESSION
from replicat.targets.sqlite.link import path_of
from trails.position import Position
from trails.record import Image

GROUP, KEY = "REP1", 77


def blob(*rows: Image) -> Blob:
    """Rows as a converting target is handed them."""
    data, count, partial = render(rows)
    assert not partial
    return Blob(data, count)


@dataclass
class Direct:
    """One target and its database. `schema`: where tables are."""

    kind: str
    url: str
    schema: str
    server: Mysqld | None = None
    target: Any = None
    row: CheckpointRow = field(default_factory=lambda: CheckpointRow(Position(0, 0)))
    step: int = 0
    _beside: Any = None

    @property
    def checkpoint_table(self) -> tuple[str, str]:
        return self.schema, "chk"

    def settings(self, **more: Any) -> TargetSettings:
        return replace(TargetSettings(self.url, self.checkpoint_table, GROUP, KEY, "/home"), **more)

    def open(self, **more: Any) -> Any:
        """Connect, with the checkpoint table and row made where they are missing."""
        admin = admin_for(self.url)
        if admin.rows_of_table(self.url, self.checkpoint_table) is None:
            admin.add_row_table(self.url, self.checkpoint_table)
        self.target = open_target(self.settings(**more))
        self.target.connect()
        found = self.target.load_row()
        if found is None:
            self.target.add_row(self.row)
            found = self.target.load_row()
        self.row = found
        return self.target

    def close(self) -> None:
        for link in (self.target, self._beside):
            if link is not None:
                link.close()

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement beside the target; values as the driver gives them (MariaDB: text)."""
        if self.server is not None:
            return self.server.sql(statement, self.schema)
        if self.kind == "postgresql":
            if self._beside is None:
                self._beside = psycopg.connect(self.url, autocommit=True, prepare_threshold=None)
                self._beside.execute(f"{SESSION}; SET search_path = {self.schema}".encode())
            cursor = self._beside.execute(statement.encode())
            return list(cursor.fetchall()) if cursor.description else []
        conn = sqlite3.connect(path_of(self.url), isolation_level=None)
        try:
            return conn.execute(statement).fetchall()
        finally:
            conn.close()

    def begin(self) -> CheckpointRow:
        """Open a transaction that moves the row one further."""
        self.step += 1
        new = replace(self.row, position=Position(0, self.step * 100), csn=str(self.step))
        self.target.begin(self.row, new)
        return new

    def do(self, *steps: Any, **how: Any) -> None:
        """A whole transaction of these steps."""
        new = self.begin()
        self.target.apply(steps, **how)
        self.target.commit()
        self.row = new

    def rows(self, layout: Layout, **what: Any) -> Work:
        """A Work of one table: rows and keys as lists of images."""
        made = {
            name: value if name in ("fills", "patches", "collisions") else layout.blob(value)[0]
            for name, value in what.items()
        }
        return Work((Rows(layout, **made),))

    def layout(self, table: str, columns: str, key: str = "", logical: str = "", **more: Any) -> Layout:
        """A layout from the target's own shape; `logical`: types by column, text where none is given."""
        shape = self.target.table(self.schema, table)
        assert shape is not None
        names = columns.split()
        return shape.layout(names, key.split(), logical.split() or ["text"] * len(names), **more)


def images(rows: Sequence[str]) -> list[list[str | None]]:
    """`["1 a", "2 -"]` as images; `-` is NULL."""
    return [[None if field == "-" else field for field in row.split()] for row in rows]
