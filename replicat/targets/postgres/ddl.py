"""Statements that change shapes of PostgreSQL tables."""

from __future__ import annotations

import re
from typing import Final

from replicat.ddl.definition import CannotError, Definition
from replicat.ddl.dialect import Dialect, Script, renamed
from replicat.ddl.formula import parse_formula
from replicat.ddl.grammar import SourceGrammar
from replicat.ddl.typename import TypeName, parse_type
from replicat.model.target import TargetColumn
from replicat.targets.sql.ddl import no_generated
from trails.record import TableId

GRAMMAR: Final = SourceGrammar(parse_type, parse_formula, binds=True)
_NUMBERS: Final = frozenset({"smallint", "integer", "bigint", "decimal", "real", "double"})
_NUMBER: Final = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?\Z", re.ASCII)
_WHOLES: Final = frozenset({"smallint", "integer", "bigint"})
_PRESENT: Final = {"timestamptz": "CURRENT_TIMESTAMP", "timestamp": "LOCALTIMESTAMP"}
_WHOLE: Final = re.compile(r"[-+]?[0-9]{1,18}\Z", re.ASCII)
_TYPES: Final = {
    **{name: name for name in ("smallint", "integer", "bigint", "boolean", "real", "date", "interval", "money")},
    **{name: name for name in ("json", "uuid", "xml")},
    "decimal": "numeric", "double": "double precision", "bytes": "bytea", "bits": "bit varying",
    "time": "time without time zone", "timetz": "time with time zone", "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}  # fmt: skip
"""For the logical types of another kind of source; text for all others."""


class PostgresDialect(Dialect):
    """Like to like: the source's types, and those formulas that compute and do no more.

    From another kind of source: a type that takes all values of the logical type, and constants.
    """

    own_types = True
    longest = 63
    stand_in = ""

    def column_type(self, column: Definition, keys: int = 0) -> str:  # noqa: ARG002
        return self._type(column).sql()

    def _type(self, column: Definition) -> TypeName:
        if self.like:
            return column.known_type
        if column.logical == "any":
            raise CannotError(f"column {column.name} holds values of any type, and a column here is of one")
        return TypeName("", _TYPES.get(column.logical, "text"))

    def is_retyped(self, old: Definition, new: Definition, present: str) -> bool:  # noqa: ARG002
        return parse_type(present) == parse_type(self.column_type(new))

    def new_column(self, script: Script, column: Definition, keys: int) -> str:  # noqa: ARG002  -- a key needs no other type
        if not self.like:
            column = self.ungenerated(script, column)
        made = f"{self.ident(column.name)} {self._typed(script, column)}{self._made(script, column)}"
        return made + (" NOT NULL" if column.not_null else "")

    def _made(self, script: Script, column: Definition) -> str:
        """Where its values come from if none is given."""
        if not self.like:
            no_generated(column)
        if column.generated:
            return f" GENERATED ALWAYS AS ({column.known_formula.sql}) STORED"
        if column.identity and (self.like or column.logical in _WHOLES):
            return f" GENERATED {'ALWAYS' if column.identity == 'a' else 'BY DEFAULT'} AS IDENTITY"
        default = self._default(script, column)
        return f" DEFAULT {default}" if default else ""

    def _default(self, script: Script, column: Definition) -> str:
        if not self.like:
            return self._constant(script, column)
        if column.formula and column.formula.is_sequence:
            script.notes.append(f"column {column.name} has no default here: the source's is a sequence of its own")
            return ""
        return column.known_formula.sql if column.has_default else ""

    def _constant(self, script: Script, column: Definition) -> str:
        """A default of another kind of source, where it is a constant of the column's type; else left out."""
        formula = column.formula
        if formula and formula.now is not None and column.logical in _PRESENT:
            return f"{_PRESENT[column.logical]}({formula.now})"
        value = formula.constant if formula else None
        if value is None or not _is_of(column.logical, value):
            if column.has_default and not (formula and formula.is_null):
                script.notes.append(
                    f"column {column.name} has no default here: the source's is no constant of its type"
                )
            return ""
        return self._value(column, value)

    def _value(self, column: Definition, value: str) -> str:
        if not self.like and column.logical == "bytes":
            raise CannotError(f"column {column.name}: bytes were expected, found text")
        return f"{self.text(value)}::{self.column_type(column)}"

    def add(self, script: Script, place: TableId, column: Definition) -> None:
        made = f"{self.ident(column.name)} {self._typed(script, column)}"
        default = ""
        if column.generated or column.identity:
            made += self._made(script, column)
        else:
            default = self._default(script, column)
            if column.missing is not None:
                made += f" DEFAULT {self._value(column, column.missing)}"
        null = " NOT NULL" if column.not_null else ""
        script.statements.append(f"ALTER TABLE {self.dotted(place)} ADD COLUMN {made}{null}")
        if default:
            self.alter(script, place, column.name, f"SET DEFAULT {default}")
        elif column.missing is not None and not column.generated and not column.identity:
            self.alter(script, place, column.name, "DROP DEFAULT")

    def drop_key(self, script: Script, place: TableId, name: str, gone: int, left: int) -> None:  # noqa: ARG002
        """With a column of it the key goes by itself."""
        if name and not gone:
            script.statements.append(f"ALTER TABLE {self.dotted(place)} DROP CONSTRAINT {self.ident(name)}")

    def relabel(self, script: Script, place: TableId, old: Definition, new: Definition, present: TargetColumn) -> None:
        """Where the target's column is of an enum too, its type is changed, once for all its columns."""
        kind = parse_type(present.type)
        if kind is None or kind.is_built_in:
            super().relabel(script, place, old, new, present)
            return
        own = TypeName(kind.schema, kind.name)
        if not present.labels:
            script.notes.append(
                f"column {new.name}: type {own.sql()} is left as it is: change it by hand, as the source's was"
            )
            return
        labels = list(present.labels)
        for before, after in renamed(old, new):
            if before in labels and after not in labels:
                names = f"{self.text(before)} TO {self.text(after)}"
                script.statements.append(f"ALTER TYPE {own.sql()} RENAME VALUE {names}")
                labels[labels.index(before)] = after
        last = ""
        for _, label in new.inner:
            if label not in labels:
                where = f" AFTER {self.text(last)}" if last else f" BEFORE {self.text(labels[0])}" if labels else ""
                script.statements.append(f"ALTER TYPE {own.sql()} ADD VALUE IF NOT EXISTS {self.text(label)}{where}")
                labels.insert(labels.index(last) + 1 if last else 0, label)
            last = label

    def exactly(self, column: str) -> str:
        return f'{column}::text COLLATE "C"'

    def retype(self, script: Script, place: TableId, old: Definition, new: Definition, present: str, keys: int) -> str:  # noqa: ARG002
        """A default of the old type must not be in the way."""
        wanted = self._type(new)
        if parse_type(present) == wanted:
            return present
        for each in (wanted, parse_type(present)):
            if each is not None and not each.is_built_in:
                script.types[_bare(each)] = True
        if old.formula != new.formula or old.has_default != new.has_default:
            self.alter(script, place, new.name, "DROP DEFAULT")
        self.alter(script, place, new.name, f"TYPE {wanted.sql()}")
        return wanted.sql()

    def set_not_null(self, script: Script, place: TableId, column: Definition, present: str) -> None:  # noqa: ARG002  -- the type stays
        self.alter(script, place, column.name, "SET NOT NULL" if column.not_null else "DROP NOT NULL")

    def set_default(self, script: Script, place: TableId, column: Definition) -> None:
        default = self._default(script, column)
        if default:
            self._typed(script, column)
        self.alter(script, place, column.name, f"SET DEFAULT {default}" if default else "DROP DEFAULT")

    def rename(self, script: Script, old: TableId, new: TableId) -> None:
        if old[0] != new[0]:
            script.statements.append(f"ALTER TABLE {self.dotted(old)} SET SCHEMA {self.ident(new[0])}")
        if old[1] != new[1]:
            script.statements.append(f"ALTER TABLE {self.dotted((new[0], old[1]))} RENAME TO {self.ident(new[1])}")

    def _typed(self, script: Script, column: Definition) -> str:
        """A column's type, noted if it is none of the database's own."""
        found = self._type(column)
        if not found.is_built_in:
            script.types.setdefault(_bare(found), False)
        return found.sql()


def _is_of(logical: str, value: str) -> bool:
    """Whether a constant's text is surely one of a logical type's."""
    if logical in _WHOLES:
        return _WHOLE.match(value) is not None
    if logical in _NUMBERS:
        return _NUMBER.match(value) is not None
    if logical == "bits":
        return set(value) <= {"0", "1"}
    return value in ("true", "false") if logical == "boolean" else logical in ("text", "char", "enum")


def _bare(found: TypeName) -> str:
    return TypeName(found.schema, found.name).sql()
