"""Statements that change shapes, for each kind of target: pure text from a source's columns and the target's names.

Rule: a target row must come out as the source's did. So an added column is given the source's stored value for the rows
that are there first, and its default only then; a default that is no constant is carried to PostgreSQL alone, and left
out elsewhere: the trail carries every value anyway. What a database has no statement for is an NoStatementError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from replicat.ddl.types import column_type
from replicat.targets.types import Native, mysql_type, rule_for, sqlite_type
from trails.ddl import DdlColumn

Place = tuple[str, str]

_TEXT = re.compile(r"'((?:[^']|'')*)'(?:::.*)?\Z", re.DOTALL)
_NUMBER = re.compile(r"\(?(-?\d+(?:\.\d+)?)\)?(?:::[\w\s(),]+)?\Z", re.ASCII)
_NUMBERS = frozenset({"smallint", "integer", "bigint", "decimal", "real", "double"})
_SEQUENCE = re.compile(r"\bnextval\s*\(", re.IGNORECASE)


class NoStatementError(ValueError):
    """The target's kind of database cannot do it by a statement; the message says what, and why."""


@dataclass(slots=True)
class Script:
    """Statements in order, and what a person should know of them."""

    statements: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Dialect:
    """What all kinds have in common; PostgreSQL's words where they do not differ."""

    kind = ""
    quote = '"'

    def ident(self, name: str) -> str:
        """A quoted name."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def dotted(self, place: Place) -> str:
        """A quoted schema.table."""
        return f"{self.ident(place[0])}.{self.ident(place[1])}"

    def names(self, columns: Sequence[str]) -> str:
        """Quoted names with commas between."""
        return ", ".join(map(self.ident, columns))

    def create(self, script: Script, place: Place, columns: Sequence[DdlColumn], key: Sequence[str]) -> None:
        """A new table."""
        keys = {name: len(key) for name in key}
        parts = [self.new_column(script, column, keys.get(column.name, 0)) for column in columns]
        if key:
            parts.append(f"PRIMARY KEY ({self.names(key)})")
        script.statements.append(f"CREATE TABLE {self.dotted(place)} ({', '.join(parts)}){self.table_options}")

    table_options = ""

    def new_column(self, script: Script, column: DdlColumn, keys: int) -> str:
        """A column of a new table."""
        raise NotImplementedError

    def add(self, script: Script, place: Place, column: DdlColumn) -> None:
        """A column for a table that may have rows."""
        raise NotImplementedError

    def drop_column(self, script: Script, place: Place, name: str) -> None:
        """Without it."""
        script.statements.append(f"ALTER TABLE {self.dotted(place)} DROP COLUMN {self.ident(name)}")

    def rename_column(self, script: Script, place: Place, old: str, new: str) -> None:
        """Another name."""
        names = f"{self.ident(old)} TO {self.ident(new)}"
        script.statements.append(f"ALTER TABLE {self.dotted(place)} RENAME COLUMN {names}")

    def retype(self, script: Script, place: Place, old: DdlColumn, new: DdlColumn, present: str) -> str:
        """Another type; `present` is the target's own, now. Returns what it then is."""
        raise NotImplementedError

    def set_not_null(self, script: Script, place: Place, column: DdlColumn, present: str) -> None:
        """NOT NULL set or dropped, as the column says."""
        raise NotImplementedError

    def set_default(self, script: Script, place: Place, column: DdlColumn) -> None:
        """The column's default, or none."""
        raise NotImplementedError

    def add_key(self, script: Script, place: Place, key: Sequence[str]) -> None:
        """A key for a table without one."""
        script.statements.append(f"ALTER TABLE {self.dotted(place)} ADD PRIMARY KEY ({self.names(key)})")

    def rename(self, script: Script, old: Place, new: Place) -> None:
        """Another name for the table."""
        raise NotImplementedError

    def drop(self, script: Script, place: Place) -> None:
        """No table any more."""
        script.statements.append(f"DROP TABLE {self.dotted(place)}")

    def _alter(self, script: Script, place: Place, column: str, what: str) -> None:
        script.statements.append(f"ALTER TABLE {self.dotted(place)} ALTER COLUMN {self.ident(column)} {what}")


class Postgres(Dialect):
    """Like to like: types and expressions as they are."""

    kind = "postgresql"

    def new_column(self, script: Script, column: DdlColumn, keys: int) -> str:  # noqa: ARG002  -- a key needs no other type
        """See Dialect."""
        made = f"{self.ident(column.name)} {column.native}{self._made(script, column)}"
        return made + (" NOT NULL" if column.not_null else "")

    def _made(self, script: Script, column: DdlColumn) -> str:
        """Where its values come from if none is given."""
        if column.generated:
            return f" GENERATED ALWAYS AS ({column.default}) STORED"
        if column.identity:
            return f" GENERATED {'ALWAYS' if column.identity == 'a' else 'BY DEFAULT'} AS IDENTITY"
        default = self._default(script, column)
        return f" DEFAULT {default}" if default else ""

    def _default(self, script: Script, column: DdlColumn) -> str:
        if column.default and _SEQUENCE.search(column.default):
            script.notes.append(f"column {column.name} has no default here: the source's is a sequence of its own")
            return ""
        return column.default or ""

    def add(self, script: Script, place: Place, column: DdlColumn) -> None:
        """See Dialect."""
        made = f"{self.ident(column.name)} {column.native}"
        default = ""
        if column.generated or column.identity:
            made += self._made(script, column)
        else:
            default = self._default(script, column)
            if column.missing is not None:
                made += f" DEFAULT {_literal(column.missing)}::{column.native}"
        null = " NOT NULL" if column.not_null else ""
        script.statements.append(f"ALTER TABLE {self.dotted(place)} ADD COLUMN {made}{null}")
        if default:
            self._alter(script, place, column.name, f"SET DEFAULT {default}")
        elif column.missing is not None and not column.generated and not column.identity:
            self._alter(script, place, column.name, "DROP DEFAULT")

    def retype(self, script: Script, place: Place, old: DdlColumn, new: DdlColumn, present: str) -> str:
        """See Dialect. A default of the old type must not be in the way."""
        if present == new.native:
            return present
        if old.default != new.default:
            self._alter(script, place, new.name, "DROP DEFAULT")
        self._alter(script, place, new.name, f"TYPE {new.native}")
        return new.native

    def set_not_null(self, script: Script, place: Place, column: DdlColumn, present: str) -> None:  # noqa: ARG002  -- the type stays
        """See Dialect."""
        self._alter(script, place, column.name, "SET NOT NULL" if column.not_null else "DROP NOT NULL")

    def set_default(self, script: Script, place: Place, column: DdlColumn) -> None:
        """See Dialect."""
        default = self._default(script, column)
        self._alter(script, place, column.name, f"SET DEFAULT {default}" if default else "DROP DEFAULT")

    def rename(self, script: Script, old: Place, new: Place) -> None:
        """See Dialect."""
        if old[0] != new[0]:
            script.statements.append(f"ALTER TABLE {self.dotted(old)} SET SCHEMA {self.ident(new[0])}")
        if old[1] != new[1]:
            script.statements.append(f"ALTER TABLE {self.dotted((new[0], old[1]))} RENAME TO {self.ident(new[1])}")


class Sqlite(Dialect):
    """SQLite: declared types are affinities, and of a table that is there only names and columns can be changed."""

    kind = "sqlite"

    def new_column(self, script: Script, column: DdlColumn, keys: int) -> str:
        """See Dialect. NOT NULL is for the key alone: SQLite could not drop it again."""
        _no_generated(column)
        default = constant(column, sqlite_type(column_type(self.kind, column)))
        if column.default and default is None:
            script.notes.append(f"column {column.name} has no default here: {column.default}")
        made = f"{self.ident(column.name)} {column_type(self.kind, column)}"
        return made + (f" DEFAULT {default}" if default is not None else "") + (" NOT NULL" if keys else "")

    def add(self, script: Script, place: Place, column: DdlColumn) -> None:
        """See Dialect. The value of the rows that are there is a default in SQLite, and stays one."""
        _no_generated(column)
        declared = column_type(self.kind, column)
        made = f"{self.ident(column.name)} {declared}"
        if column.missing is not None:
            made += f" DEFAULT {_sqlite_literal(column, column.missing, sqlite_type(declared))}"
        script.statements.append(f"ALTER TABLE {self.dotted(place)} ADD COLUMN {made}")

    def retype(self, script: Script, place: Place, old: DdlColumn, new: DdlColumn, present: str) -> str:  # noqa: ARG002
        """See Dialect. Where the new type is the same to SQLite nothing is to be done."""
        wanted = column_type(self.kind, new)
        if sqlite_type(present).family != sqlite_type(wanted).family:
            raise NoStatementError(f"SQLite cannot turn column {new.name} from {present or 'no type'} into {wanted}")
        script.notes.append(f"column {new.name} stays {present}, which takes the new type's values too")
        return present

    def set_not_null(self, script: Script, place: Place, column: DdlColumn, present: str) -> None:  # noqa: ARG002
        """See Dialect."""
        word = "set" if column.not_null else "dropped"
        script.notes.append(f"NOT NULL of column {column.name} is not {word} here: SQLite has no statement for it")

    def set_default(self, script: Script, place: Place, column: DdlColumn) -> None:  # noqa: ARG002
        """See Dialect."""
        script.notes.append(f"the default of column {column.name} is left as it is: SQLite has no statement for it")

    def add_key(self, script: Script, place: Place, key: Sequence[str]) -> None:
        """See Dialect. A unique index does for a key."""
        index = self.dotted((place[0], f"{place[1]}_key"))
        script.statements.append(f"CREATE UNIQUE INDEX {index} ON {self.ident(place[1])} ({self.names(key)})")

    def rename(self, script: Script, old: Place, new: Place) -> None:
        """See Dialect."""
        script.statements.append(f"ALTER TABLE {self.dotted(old)} RENAME TO {self.ident(new[1])}")


class Mysql(Dialect):
    """MySQL and MariaDB. Each statement is whole or not at all, and none names what it does not change."""

    kind = "mysql"
    quote = "`"
    # Keys are then equal where their text is, trailing spaces apart.
    table_options = " ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

    def new_column(self, script: Script, column: DdlColumn, keys: int) -> str:
        """See Dialect."""
        _no_generated(column)
        return self._defined(script, column, column_type(self.kind, column, keys), bool(keys))

    def _defined(self, script: Script, column: DdlColumn, declared: str, key: bool = False) -> str:
        default = constant(column, mysql_type(declared))
        if column.default and default is None:
            script.notes.append(f"column {column.name} has no default here: {column.default}")
        made = f"{self.ident(column.name)} {declared}{' NOT NULL' if column.not_null or key else ' NULL'}"
        return made + (f" DEFAULT ({default})" if default is not None else "")

    def add(self, script: Script, place: Place, column: DdlColumn) -> None:
        """See Dialect. One statement adds and fills it: done again after a crash it is found done, and filled."""
        _no_generated(column)
        declared = column_type(self.kind, column)
        made = f"{self.ident(column.name)} {declared}{' NOT NULL' if column.not_null else ' NULL'}"
        if column.missing is not None:
            made += f" DEFAULT ({_mysql_literal(column, column.missing, mysql_type(declared))})"
        script.statements.append(f"ALTER TABLE {self.dotted(place)} ADD COLUMN {made}")
        if column.default is not None or column.missing is not None:
            self.set_default(script, place, column)

    def retype(self, script: Script, place: Place, old: DdlColumn, new: DdlColumn, present: str) -> str:
        """See Dialect."""
        wanted = column_type(self.kind, new)
        if wanted == column_type(self.kind, old) or wanted == present:
            script.notes.append(f"column {new.name} stays {present}, which takes the new type's values too")
            return present
        self._modify(script, place, new, wanted)
        return wanted

    def set_not_null(self, script: Script, place: Place, column: DdlColumn, present: str) -> None:
        """See Dialect."""
        self._modify(script, place, column, present)

    def _modify(self, script: Script, place: Place, column: DdlColumn, declared: str) -> None:
        made = self._defined(script, column, declared)
        script.statements.append(f"ALTER TABLE {self.dotted(place)} MODIFY COLUMN {made}")

    def set_default(self, script: Script, place: Place, column: DdlColumn) -> None:
        """See Dialect."""
        default = constant(column, mysql_type(column_type(self.kind, column)))
        if column.default and default is None:
            script.notes.append(f"column {column.name} has no default here: {column.default}")
        self._alter(script, place, column.name, "DROP DEFAULT" if default is None else f"SET DEFAULT ({default})")

    def rename(self, script: Script, old: Place, new: Place) -> None:
        """See Dialect."""
        script.statements.append(f"RENAME TABLE {self.dotted(old)} TO {self.dotted(new)}")


DIALECTS: dict[str, Dialect] = {dialect.kind: dialect for dialect in (Postgres(), Sqlite(), Mysql())}


def is_retyped(kind: str, old: DdlColumn, new: DdlColumn, present: str) -> bool:
    """Whether a target's column is of the new type already; where both types are one there, nobody can tell."""
    if kind == "postgresql":
        return present == new.native
    native = mysql_type if kind == "mysql" else sqlite_type
    made = [native(text) for text in (column_type(kind, old), column_type(kind, new), present)]
    was, wanted, found = ((each.family, each.size, each.scale) for each in made)
    return found[0] == wanted[0] != was[0] or (found == wanted != was)


def _no_generated(column: DdlColumn) -> None:
    if column.generated:
        raise NoStatementError(
            f"column {column.name} is generated by an expression of the source's own: {column.default}"
        )


def constant(column: DdlColumn, native: Native) -> str | None:
    """A default that is a constant, as SQL of this kind of target; None if it is none, or says nothing."""
    text = column.default or ""
    value: str | None = None
    if column.type in _NUMBERS and (found := _NUMBER.match(text)):
        value = found[1]
    elif column.type == "boolean" and text in ("true", "false"):
        value = text
    elif column.type != "bytes" and (quoted := _TEXT.match(text)):
        value = quoted[1].replace("''", "'")
    if value is None or column.identity or column.generated:
        return None
    try:
        return (_mysql_literal if native.kind == "mysql" else _sqlite_literal)(column, value, native)
    except NoStatementError:
        return None


def _literal(text: str) -> str:
    """PostgreSQL's, whatever is in it."""
    return "'" + text.replace("'", "''") + "'"


def _converted(column: DdlColumn, value: str, native: Native) -> object:
    """The value as rows of the trail arrive in a column of this type."""
    rule = rule_for(column.type, native)
    if rule is None:
        raise NoStatementError(
            f"column {column.name}: a {column.type} does not fit into {native.text or native.family}"
        )
    try:
        return rule.convert(value) if rule.convert else value
    except ValueError as error:
        raise NoStatementError(f"column {column.name}: {error}") from None


def _sqlite_literal(column: DdlColumn, value: str, native: Native) -> str:
    converted = _converted(column, value, native)
    if isinstance(converted, bytes):
        return f"X'{converted.hex()}'"
    return repr(converted) if isinstance(converted, int | float) else _literal(str(converted))


def _mysql_literal(column: DdlColumn, value: str, native: Native) -> str:
    """Quoted text, as our sessions read it; bytes by a function, as MariaDB writes a literal of theirs down wrongly."""
    if column.type == "bytes":
        return f"UNHEX('{value.removeprefix(chr(92) + 'x')}')"
    converted = str(_converted(column, value, native))
    if column.type in _NUMBERS or column.type == "boolean":
        return converted
    return "'" + converted.replace("\\", "\\\\").replace("'", "''") + "'"
