"""Statements that change shapes of SQLite tables, and the types of columns that Replicat makes there.

Rule: a column gets the type that takes every value of the source's exactly (sqlite/types.py has the rules by which
values arrive in it); where there is none, text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from replicat.ddl.definition import CannotError, Definition
from replicat.ddl.dialect import Script
from replicat.model.target import TargetTable
from replicat.targets.sql.ddl import ConvertingDialect, converted, no_generated
from replicat.targets.sql.types import Native
from replicat.targets.sqlite.sql import KEY_INDEX
from replicat.targets.sqlite.types import sqlite_type
from trails.record import TableId

_TYPES = {
    "smallint": "INTEGER", "integer": "INTEGER", "bigint": "INTEGER", "boolean": "BOOLEAN", "real": "REAL",
    "double": "REAL", "bytes": "BLOB", "any": "",
}  # fmt: skip


class SqliteDialect(ConvertingDialect):
    """SQLite: declared types are affinities, and of a table that is there only names and columns can be changed."""

    def native(self, declared: str) -> Native:
        return sqlite_type(declared)

    def column_type(self, column: Definition, keys: int = 0) -> str:  # noqa: ARG002  -- any type can be in a key
        """The source's own declaration where that is of this kind too; a value's storage class depends on it."""
        if self.like and column.type is not None and column.logical != "any":
            return column.type.sql()
        return _TYPES.get(column.logical, "TEXT")

    def literal(self, column: Definition, value: str, native: Native) -> str:
        known = converted(column, value, native)
        if isinstance(known, bytes):
            return f"X'{known.hex()}'"
        if isinstance(known, int | float) and math.isfinite(known):
            return repr(known)
        return self.text(str(known))

    def new_column(self, script: Script, column: Definition, keys: int) -> str:
        """NOT NULL is for the key alone: SQLite could not drop it again."""
        column = self.ungenerated(script, column)
        default = self._now(column) or self.constant(script, column, self.column_type(column))
        made = f"{self.ident(column.name)} {self.column_type(column)}"
        return made + (f" DEFAULT {default}" if default is not None else "") + (" NOT NULL" if keys else "")

    def _now(self, column: Definition) -> str | None:
        """The present time in UTC, to the second."""
        formula = column.formula
        return "CURRENT_TIMESTAMP" if formula and formula.now == 0 and column.logical == "timestamp" else None

    def add(self, script: Script, place: TableId, column: Definition) -> None:
        """The value of the rows that are there is a default in SQLite, and stays one."""
        no_generated(column)
        declared = self.column_type(column)
        made = f"{self.ident(column.name)} {declared}"
        if column.missing is not None:
            made += f" DEFAULT {self.literal(column, column.missing, self.native(declared))}"
        script.statements.append(f"ALTER TABLE {self.dotted(place)} ADD COLUMN {made}")

    def retype(self, script: Script, place: TableId, old: Definition, new: Definition, present: str, keys: int) -> str:  # noqa: ARG002
        """Where the new type is the same to SQLite nothing is to be done."""
        wanted = self.column_type(new)
        if self.native(present).family != self.native(wanted).family:
            raise CannotError(f"SQLite cannot turn column {new.name} from {present or 'no type'} into {wanted}")
        script.notes.append(f"column {new.name} stays {present}, which takes the new type's values too")
        return present

    def set_not_null(self, script: Script, place: TableId, column: Definition, present: str) -> None:  # noqa: ARG002
        word = "set" if column.not_null else "dropped"
        script.notes.append(f"NOT NULL of column {column.name} is not {word} here: SQLite has no statement for it")

    def set_default(self, script: Script, place: TableId, column: Definition) -> None:  # noqa: ARG002
        script.notes.append(f"the default of column {column.name} is left as it is: SQLite has no statement for it")

    def add_key(self, script: Script, place: TableId, key: Sequence[tuple[Definition, str]]) -> None:
        """A unique index does for a key."""
        self._add_index(script, place, [column.name for column, _ in key])

    def _add_index(self, script: Script, place: TableId, columns: Sequence[str]) -> None:
        index = self.dotted((place[0], KEY_INDEX + place[1]))
        script.statements.append(f"CREATE UNIQUE INDEX {index} ON {self.ident(place[1])} ({self.names(columns)})")

    def index(self, script: Script, place: TableId, name: str, columns: Sequence[Definition], *, unique: bool) -> None:
        """It stands in the schema of its table, whose name has none here."""
        what, names = "UNIQUE INDEX" if unique else "INDEX", self.names([column.name for column in columns])
        script.statements.append(f"CREATE {what} {self.dotted((place[0], name))} ON {self.ident(place[1])} ({names})")

    def foreign_key(
        self,
        script: Script,  # noqa: ARG002
        place: TableId,  # noqa: ARG002
        name: str,  # noqa: ARG002
        columns: Sequence[str],  # noqa: ARG002
        other: TableId,  # noqa: ARG002
        others: Sequence[str],  # noqa: ARG002
    ) -> None:
        """SQLite has no statement for it."""
        raise CannotError("SQLite gives a table that is there no foreign key")

    def drop_key(self, script: Script, place: TableId, name: str, gone: int, left: int) -> None:  # noqa: ARG002
        """First of all: no column can be dropped that is in an index."""
        if name:
            script.statements.insert(0, f"DROP INDEX {self.dotted((place[0], name))}")

    def drop_made_key(self, script: Script, place: TableId) -> None:
        """SQLite lacks this statement: the target makes the table anew (rebuild.py)."""
        script.statements.insert(0, f"ALTER TABLE {self.dotted(place)} DROP PRIMARY KEY")
        script.notes.append("the table is made anew without the key that it was made with")

    def exactly(self, column: str) -> str:
        return f"{column} COLLATE BINARY"

    def rename(self, script: Script, old: TableId, new: TableId) -> None:
        script.statements.append(f"ALTER TABLE {self.dotted(old)} RENAME TO {self.ident(new[1])}")

    def rename_key(self, script: Script, place: TableId, present: TargetTable) -> None:
        """A table of the old name may come, and have a key too."""
        if present.primary_name:
            script.statements.append(f"DROP INDEX {self.dotted((place[0], present.primary_name))}")
            self._add_index(script, place, present.primary)
