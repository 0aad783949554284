"""Statements that change shapes of MySQL and MariaDB tables, and the types of columns that Replicat makes there.

Rule: a column gets the type that takes every value of the source's exactly (mysql/types.py has the rules by which
values arrive in it); where there is none, text. From a source of this kind that is the source's own type.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from replicat.ddl.definition import CannotError, Definition, checked_text
from replicat.ddl.dialect import Script
from replicat.ddl.formula import Formula
from replicat.targets.mysql.shapes import AUTO, NOT_NULL
from replicat.targets.mysql.types import mysql_type
from replicat.targets.mysql.words import EXACT_TEXT
from replicat.targets.sql.ddl import ConvertingDialect, converted, no_generated
from replicat.targets.sql.types import Native, rule_for
from trails.record import TableId

# InnoDB's longest key, in characters of four bytes; a key of several columns shares it.
_KEY_CHARACTERS = 768
_KEY_BYTES = 3072
# A row's columns share 65,535 bytes, large objects apart.
_LONGEST_VARCHAR = 1000
_DIGITS, _SCALE = 65, 30

_TYPES = {
    "smallint": "smallint", "integer": "int", "bigint": "bigint", "boolean": "tinyint(1)", "real": "float",
    "double": "double", "date": "date", "time": "time(6)", "timestamp": "datetime(6)", "timestamptz": "datetime(6)",
    "uuid": "char(36)", "bytes": "longblob",
}  # fmt: skip
_NUMBER = re.compile(r"-?\d{1,400}(?:\.\d{1,400})?(?:[eE][-+]?\d{1,4})?\Z", re.ASCII)
_HEX = re.compile(r"\\x((?:[0-9a-f]{2})*)\Z", re.ASCII)
_FIRST_WORD = re.compile(r"[a-z]+", re.ASCII)
_CHARACTERS = re.compile(r"(?:var)?char\((\d+)\)", re.ASCII)
_BITS = re.compile(r"[01]{1,64}\Z", re.ASCII)
# Of these each server has its own, and none takes the text of the source as it is.
_NEVER = frozenset(("json",))
# Only some servers have these.
_SOME = frozenset(("uuid", "inet4", "inet6"))
_NO_KEY = frozenset(
    {"tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob", "json"}
)
_NUMBERS = frozenset({"smallint", "integer", "bigint", "decimal", "real", "double"})


class MysqlDialect(ConvertingDialect):
    """MySQL and MariaDB. Each statement is whole or not at all, and none names what it does not change."""

    quote = "`"
    table_options = f" ENGINE=InnoDB DEFAULT {EXACT_TEXT}"

    def native(self, declared: str) -> Native:
        return mysql_type(declared)

    def create(self, script: Script, place: TableId, columns: Sequence[Definition], key: Sequence[str]) -> None:
        """Only the first column of a key can count by itself."""
        made = [column if column.name in key[:1] else replace(column, identity="") for column in columns]
        super().create(script, place, made, key)

    def _own_type(self, column: Definition, keys: int) -> str:
        """The source's type, if this server has it and it takes the source's values; empty if not."""
        if not self.like or column.type is None or column.type.name in _NEVER | (_SOME - self.has):
            return ""
        own = column.type.sql()
        fits = rule_for(column.logical, self.native(own)) is not None
        return own if fits and not (keys and column.type.name in _NO_KEY) else ""

    def column_type(self, column: Definition, keys: int = 0) -> str:
        if own := self._own_type(column, keys):
            return own
        if column.logical == "bytes" and keys:
            return f"varbinary({_KEY_BYTES // keys})"
        if column.logical in _TYPES:
            return _TYPES[column.logical]
        numbers = column.bounds
        if column.logical == "decimal" and numbers:
            precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
            if precision <= _DIGITS and 0 <= scale <= min(_SCALE, precision):
                return f"decimal({precision},{scale})"
        longest = _KEY_CHARACTERS // keys if keys else _LONGEST_VARCHAR
        if numbers and column.logical in ("char", "text") and numbers[0] <= longest:
            # Padding is part of a char(n) value here, and MySQL's own char would lose it.
            return f"varchar({numbers[0]})"
        return f"varchar({longest})" if keys else "longtext"

    def literal(self, column: Definition, value: str, native: Native) -> str:
        """Bytes by a function, as MariaDB writes a literal of theirs down wrongly."""
        if column.logical == "bytes":
            if (found := _HEX.match(value)) is None:
                raise CannotError(f"column {column.name}: bytes were expected, found another text")
            return f"UNHEX('{found[1]}')"
        known = str(converted(column, value, native))
        if native.family == "bit" and _BITS.match(known):
            return f"b'{known}'"
        if column.logical in _NUMBERS or column.logical == "boolean":
            return _number(column, known)
        return self.text(known)

    def new_column(self, script: Script, column: Definition, keys: int) -> str:
        if column.generated and self.like:
            return self._generated(column)
        column = self.ungenerated(script, column)
        counts = f" {AUTO.upper()}" if column.identity and keys and self.like else ""
        return self._defined(script, column, self.column_type(column, keys), bool(keys)) + counts

    def _generated(self, column: Definition) -> str:
        made = f"{self.ident(column.name)} {column.known_type.sql()}"
        return f"{made} GENERATED ALWAYS AS ({column.known_formula.sql}) STORED"

    def _defined(self, script: Script, column: Definition, declared: str, key: bool = False) -> str:
        made = f"{self.ident(column.name)} {declared}{' NOT NULL' if column.not_null or key else ' NULL'}"
        return made + self._default(script, column, declared)

    def _default(self, script: Script, column: Definition, declared: str) -> str:
        """Of a source of this kind as it stands there; of another one, if it is a constant."""
        formula = column.formula
        if self.like and formula is not None and not column.identity and declared == self._own_type(column, 0):
            return f" DEFAULT {formula.sql if _is_simple(formula) else f'({formula.sql})'}"
        default = self.constant(script, column, declared)
        return f" DEFAULT {_as_default(declared, default)}" if default is not None else ""

    def add(self, script: Script, place: TableId, column: Definition) -> None:
        """One statement adds and fills it: done again after a crash it is found done, and filled."""
        if column.generated and self.like:
            script.statements.append(f"ALTER TABLE {self.dotted(place)} ADD COLUMN {self._generated(column)}")
            return
        no_generated(column)
        declared = self.column_type(column)
        made = f"{self.ident(column.name)} {declared}{' NOT NULL' if column.not_null else ' NULL'}"
        if column.missing is not None:
            made += f" DEFAULT {_as_default(declared, self.literal(column, column.missing, self.native(declared)))}"
        script.statements.append(f"ALTER TABLE {self.dotted(place)} ADD COLUMN {made}")
        if column.has_default or column.missing is not None:
            self.set_default(script, place, column)

    def add_key(self, script: Script, place: TableId, key: Sequence[tuple[Definition, str]]) -> None:
        """A column of a type without a length, which can be in no key, gets one that can be."""
        for column, present in key:
            if self.native(present).text.split()[0].lower() in _NO_KEY:
                _, sign, of = present.partition(" CHARACTER SET ")
                wanted = self.column_type(column, len(key))
                self._modify(script, place, column, f"{wanted}{sign}{of}", key=True)
        super().add_key(script, place, key)

    def index(self, script: Script, place: TableId, name: str, columns: Sequence[Definition], *, unique: bool) -> None:
        """Where the columns, whole, can be in one."""
        types = [(column, self.column_type(column)) for column in columns]
        for column, declared in types:
            if (word := _FIRST_WORD.match(declared)) and word[0] in _NO_KEY:
                raise CannotError(f"column {column.name} is {word[0]} here, which is indexed in part alone")
        wide = sum(4 * int(found[1]) for _, declared in types if (found := _CHARACTERS.match(declared)))
        if wide > _KEY_BYTES:
            raise CannotError(f"its columns have up to {wide} bytes, and an index here takes {_KEY_BYTES}")
        super().index(script, place, name, columns, unique=unique)

    def drop_key(self, script: Script, place: TableId, name: str, gone: int, left: int) -> None:  # noqa: ARG002
        """With its last column the key goes by itself; with any other it would hold for the rest."""
        if name and left:
            script.statements.append(f"ALTER TABLE {self.dotted(place)} DROP PRIMARY KEY")

    def exactly(self, column: str) -> str:
        return f"BINARY {column}"

    def text(self, value: str) -> str:
        """As our sessions read it, where a backslash stands for itself only when doubled."""
        return "'" + checked_text(value, "a value").replace("\\", "\\\\").replace("'", "''") + "'"

    def retype(self, script: Script, place: TableId, old: Definition, new: Definition, present: str, keys: int) -> str:
        wanted = self.column_type(new, keys)
        if wanted == self.column_type(old, keys) or wanted == present:
            script.notes.append(f"column {new.name} stays {present}, which takes the new type's values too")
            return present
        self._modify(script, place, new, wanted + (f" {AUTO}" if present.endswith(AUTO) else ""), key=bool(keys))
        return wanted

    def set_not_null(self, script: Script, place: TableId, column: Definition, present: str) -> None:
        self._modify(script, place, column, present)

    def _modify(self, script: Script, place: TableId, column: Definition, declared: str, *, key: bool = False) -> None:
        bare, sign, _ = declared.partition(f" {AUTO}")
        if column.generated:
            script.statements.append(f"ALTER TABLE {self.dotted(place)} MODIFY COLUMN {self._generated(column)}")
            return
        made = self._defined(script, column, bare.removesuffix(f" {NOT_NULL}"), key) + (sign and f" {AUTO.upper()}")
        script.statements.append(f"ALTER TABLE {self.dotted(place)} MODIFY COLUMN {made}")

    def set_default(self, script: Script, place: TableId, column: Definition) -> None:
        declared, formula = self.column_type(column), column.formula
        if formula is not None and declared == self._own_type(column, 0):
            if formula.bare:
                self.alter(script, place, column.name, f"SET DEFAULT {formula.sql}")
            else:
                self._modify(script, place, column, declared)  # ALTER COLUMN takes constants alone
            return
        default = self.constant(script, column, declared)
        made = "DROP DEFAULT" if default is None else f"SET DEFAULT {_as_default(declared, default)}"
        self.alter(script, place, column.name, made)

    def rename(self, script: Script, old: TableId, new: TableId) -> None:
        script.statements.append(f"RENAME TABLE {self.dotted(old)} TO {self.dotted(new)}")


def _as_default(declared: str, value: str) -> str:
    """A literal behind DEFAULT: MySQL wants parentheses around those of large texts, and before 8.0.13 knows none."""
    found = _FIRST_WORD.match(declared)
    return f"({value})" if value.startswith("UNHEX(") or (found and found[0] in _NO_KEY) else value


def _is_simple(formula: Formula) -> bool:
    """Whether it needs no parentheses around it."""
    return formula.bare or formula.constant is not None or formula.is_null or formula.now is not None


def _number(column: Definition, text: str) -> str:
    """A number's digits, which stand in a statement without quotes."""
    if not _NUMBER.match(text):
        raise CannotError(f"column {column.name}: a number was expected, found another text")
    return text
