"""One target on its place: tables made by its own dialect, steps in, rows out. Nothing here knows a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from replicat.ddl.dialect import Dialect, Script
from replicat.model.copytext import render
from replicat.model.target import Blob, CheckpointRow, Layout, Rows, TargetTable, Work
from replicat.targets.contract import Admin, Kind, Target, TargetSettings
from replicat.targets.kinds import kind_of
from tests.contract.targets.places import Line, Place
from trails.ddl import DdlColumn
from trails.position import Position
from trails.record import Image

GROUP, KEY = "REP1", 77
NATIVE = {
    "decimal": "numeric", "double": "double precision", "bytes": "bytea", "time": "time without time zone",
    "timetz": "time with time zone", "timestamp": "timestamp without time zone", "bits": "bit varying",
    "timestamptz": "timestamp with time zone", "array": "integer[]", "range": "int4range", "char": "character(5)",
    "other": "inet", "short": "character varying(40)",
}  # fmt: skip
"""What a source calls a column of a logical type, where that is another word; `short` is a text of few characters."""


def images(rows: Sequence[str]) -> list[list[str | None]]:
    """`["1 a", "2 -"]` as images; `-` is NULL."""
    return [[None if each == "-" else each for each in row.split()] for row in rows]


@dataclass
class Bench:
    """One target. `row`: the checkpoint row that it stands at."""

    place: Place
    checkpoints: tuple[str, str] = ("", "")
    target: Target = field(init=False)
    row: CheckpointRow = field(init=False)
    logical: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoints = self.checkpoints if self.checkpoints[1] else (self.place.schema, "chk")
        self.settings = TargetSettings(self.place.url, self.checkpoints, GROUP, KEY, "/home")

    @property
    def kind(self) -> Kind:
        return kind_of(self.place.url)

    @property
    def admin(self) -> Admin:
        return self.kind.admin()

    def open(self) -> Bench:
        """Connect, with the checkpoint table and row made where they are missing."""
        url = self.place.url
        if self.admin.rows_of_table(url, self.checkpoints) is None:
            self.admin.add_row_table(url, self.checkpoints)
        self.target = self.kind.open(self.settings)
        self.again()
        return self

    def again(self) -> CheckpointRow:
        """Connect anew; where the row stands."""
        self.target.connect()
        if self.target.load_row() is None:
            self.target.add_row(CheckpointRow(Position(0, 0)))
        found = self.target.load_row()
        assert found is not None
        self.row = found
        return found

    def second(self) -> Bench:
        """Another process for the same group."""
        other = Bench(self.place, self.checkpoints)
        other.logical = self.logical
        return other.open()

    def close(self) -> None:
        self.target.close()

    # --- tables

    @property
    def dialect(self) -> Dialect:
        """For changes of the source whose words NATIVE has."""
        return self.kind.dialect(kind_of("postgresql"))

    def script(self, table: str, columns: str, key: str = "") -> Script:
        """CREATE TABLE in the kind's dialect; `columns`: `name:type ...`, a type being a logical one, or of NATIVE."""
        named = dict(each.rpartition(":")[::2] for each in columns.split())
        return self.script_of(table, named, tuple(key.split()))

    def script_of(self, table: str, columns: dict[str, str], key: tuple[str, ...]) -> Script:
        """The same, for names that have blanks."""
        plain = {name: "text" if kind == "short" else kind for name, kind in columns.items()}
        made = [
            self.dialect.defined(DdlColumn(number, name, plain[name], NATIVE.get(kind, kind), not_null=name in key))
            for number, (name, kind) in enumerate(columns.items(), 1)
        ]
        self.logical[table] = plain
        script = Script()
        self.dialect.create(script, (self.place.schema, table), made, key)
        return script

    def make(self, table: str, columns: str, key: str = "") -> None:
        """Make a table, beside what else goes on."""
        for statement in self.script(table, columns, key).statements:
            self.place.sql(statement)

    def quoted(self, *names: str) -> str:
        """Names as the place's own SQL has them."""
        return self.dialect.names(names)

    def at(self, table: str) -> str:
        """A table as the place's own SQL has it."""
        return self.dialect.dotted((self.place.schema, table))

    def look(self, table: str = "kv", columns: str = "id a b") -> list[Line]:
        """What others see of a table."""
        names = self.quoted(*columns.split())
        return self.place.sql(f"SELECT {names} FROM {self.at(table)} ORDER BY {names}")

    def shape(self, table: str) -> TargetTable:
        found = self.target.table(self.place.schema, table)
        assert found is not None
        return found

    def layout(self, table: str = "kv", columns: str = "id a b", key: str = "id", **more: Any) -> Layout:
        return self.layout_of(table, tuple(columns.split()), tuple(key.split()), **more)

    def layout_of(self, table: str, names: tuple[str, ...], keys: tuple[str, ...], **more: Any) -> Layout:
        """A layout from the target's own shape."""
        logical = self.logical.get(table, {})
        return self.shape(table).layout(names, keys, [logical.get(name, "text") for name in names], **more)

    # --- transactions

    def begin(self) -> CheckpointRow:
        """Open a transaction that moves the row one further."""
        new = replace(self.row, position=Position(0, self.row.position.rba + 100), csn=str(self.row.position.rba))
        self.target.begin(self.row, new)
        return new

    def commit(self, new: CheckpointRow) -> None:
        self.target.commit()
        self.row = new

    def do(self, *steps: Any, **how: bool) -> None:
        """A whole transaction of these steps."""
        new = self.begin()
        self.target.apply(steps, **how)
        self.commit(new)

    def blob(self, *rows: Image) -> Blob:
        """Rows as the target is handed them."""
        data, count, partial = render(rows)
        assert not partial
        return Blob(data, count)

    def rows(self, layout: Layout, **what: Any) -> Work:
        """A Work of one table: rows and keys as lists of images."""
        plain = ("fills", "patches", "collisions", "compares")
        made = {name: value if name in plain else self.blob(*value) for name, value in what.items()}
        return Work((Rows(layout, **made),))
