"""A target without a database: tables as dicts (with a key) and lists (without), the row beside them, atomic commits.

It takes the very steps that a database target takes, so it also shows what the steps mean. `faults` makes calls fail.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from replicat.target import (
    NO_ROW,
    Bag,
    Blob,
    PlaceLostError,
    RefusedError,
    Row,
    Rows,
    Step,
    TargetColumn,
    TargetTable,
    Truncate,
    Work,
)
from trails.record import MISSING


@dataclass
class Store:
    """What survives a target's connection: committed tables and row. `flushed` is what also survives its crash."""

    tables: dict[tuple[str, str], Any] = field(default_factory=dict)
    row: Row | None = None
    flushed: Any = None

    def crash(self) -> None:
        """Lose what was committed but not flushed."""
        self.tables, self.row = copy.deepcopy(self.flushed) if self.flushed else ({}, None)


def parse(data: bytes) -> list[tuple[str | None, ...]]:
    """COPY text back to rows."""
    if not data:
        return []
    return [tuple(_field(text) for text in row.split("\t")) for row in data.decode("utf-8")[:-1].split("\n")]


def _field(text: str) -> str | None:
    if text == "\\N":
        return None
    parts = text.split("\\\\")
    return "\\".join(p.replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r") for p in parts)


class ListTarget:
    """See replicat.target.Target. `shapes`: the tables that exist; `unique`: (table, column) with unique values."""

    def __init__(self, store: Store, shapes: list[TargetTable], unique: tuple[tuple[str, str], ...] = ()) -> None:
        self.store = store
        self.shapes = {(shape.schema, shape.name): shape for shape in shapes}
        self.unique = unique
        self.log: list[str] = []
        self.faults: Callable[[str], None] = lambda call: None
        self._tables: dict[tuple[str, str], Any] | None = None
        self._new: Row | None = None

    def _call(self, name: str) -> None:
        self.log.append(name)
        self.faults(name)

    def connect(self) -> None:
        self._call("connect")
        self._tables = None

    def load_row(self) -> Row | None:
        self._call("load_row")
        return self.store.row

    def add_row(self, row: Row) -> None:
        self._call("add_row")
        self.store.row = row
        self._flushed()

    def table(self, schema: str, name: str) -> TargetTable | None:
        return self.shapes.get((schema, name))

    def begin(self, old: Row, new: Row) -> None:
        self._call("begin")
        self._check(old)
        self._tables, self._new = copy.deepcopy(self.store.tables), new

    def apply(self, steps: tuple[Step, ...], *, rewrite: bool = False) -> None:
        self._call("rewrite" if rewrite else "apply")
        before = copy.deepcopy(self._tables)
        try:
            for step in steps:
                self._truncate(step) if isinstance(step, Truncate) else self._work(step, rewrite)
        except RefusedError:
            self._tables = before
            raise

    def commit(self) -> None:
        self._call("commit")
        assert self._tables is not None
        self.store.tables, self.store.row, self._tables = self._tables, self._new, None
        self.faults("committed")

    def flush(self, old: Row, new: Row) -> None:
        self._call("flush")
        self._check(old)
        self.store.row = new
        self._flushed()

    def close(self) -> None:
        self._tables = None

    def _flushed(self) -> None:
        self.store.flushed = copy.deepcopy((self.store.tables, self.store.row))

    def _check(self, old: Row) -> None:
        found = self.store.row
        if found is None or (found.position, found.trail_id, found.alter_no) != (
            old.position,
            old.trail_id,
            old.alter_no,
        ):
            raise PlaceLostError(f"row at {found and found.position}, expected {old.position}")

    def _truncate(self, step: Truncate) -> None:
        assert self._tables is not None
        for table in step.tables:
            self._tables.pop(table, None)

    def _work(self, work: Work, rewrite: bool) -> None:
        for rows in work.rows:
            self._rows(rows, rewrite)
        for bag in work.bags:
            self._bag(bag)

    def _rows(self, rows: Rows, rewrite: bool) -> None:
        assert self._tables is not None
        layout = rows.layout
        table = self._tables.setdefault((layout.schema, layout.name), {})
        at = [layout.columns.index(name) for name in layout.key]
        filled = []
        for fill in rows.fills:
            if fill.base not in table:
                raise RefusedError(layout.full_name, f"no row {fill.base}", NO_ROW)
            base = table[fill.base]
            filled.append(tuple(b if v is MISSING else v for v, b in zip(fill.row, base, strict=True)))
        for key in parse(rows.deletes.read()):
            table.pop(key, None)
        written = [*filled, *parse(rows.upserts.read()), *parse(rows.inserts.read())]
        if rewrite:
            for row in written:
                table.pop(tuple(row[i] for i in at), None)
        for row in written:
            key = tuple(row[i] for i in at)
            self._check_unique(layout.full_name, layout.columns, table, key, row)
            table[key] = row

    def _check_unique(self, name: str, columns: tuple[str, ...], table: Any, key: Any, row: Any) -> None:
        for where, column in self.unique:
            if where == name and column in columns:
                i = columns.index(column)
                if any(other[i] == row[i] and at != key for at, other in table.items()):
                    raise RefusedError(name, f"{column} {row[i]} is there already", "23505")

    def _bag(self, bag: Bag) -> None:
        assert self._tables is not None
        table = self._tables.setdefault((bag.layout.schema, bag.layout.name), [])
        for run in bag.runs:
            if isinstance(run, Blob):
                table.extend(parse(run.read()))
                continue
            if tuple(run.before) not in table:
                raise RefusedError(bag.layout.full_name, f"no row {run.before}", NO_ROW)
            at = table.index(tuple(run.before))
            table[at : at + 1] = [] if run.after is None else [tuple(run.after)]


def shape(schema: str, name: str, columns: str, key: str = "") -> TargetTable:
    """`shape("s", "t", "id v", "id")`: a table of text columns with a unique key."""
    unique = (frozenset(key.split()),) if key else ()
    return TargetTable(schema, name, tuple(TargetColumn(c, "text") for c in columns.split()), unique)
