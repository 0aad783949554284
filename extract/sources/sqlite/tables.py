"""Tables of an SQLite file: their shapes as the file has them today, and as the trail describes them.

Rule: a column's logical type follows from its affinity, and the storage classes that it may then hold are those that
the type is exact for. What has another class is refused (extract/sources/sqlite/values.py), unless TABLE says `ANY` for
the column: then each value carries its own class.

    affinity                                   logical type   storage classes
    INTEGER                                    bigint         integer
    TEXT                                       text           text
    REAL                                       double         real
    BLOB (declared so)                         bytes          blob
    NUMERIC, declared as a date or a time      text           text
    NUMERIC, any other                         decimal        integer, real
    none (declared without a type), ANY        any            all
"""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from extract.sources.sqlite.link import SCHEMA
from trails.ddl import DdlColumn, TableShape
from trails.errors import MismatchError
from trails.record import Column, TableDef
from trails.runtime.home.plain import of as plain_of

PREFIX: Final = "trailgate_"
"""Tables and triggers of ours."""
HIDDEN: Final = 1
LOST: Final = "see docs/recovery.md#lost-queue"
_COLLATIONS: Final = ("BINARY", "NOCASE", "RTRIM")
_MOMENT: Final = re.compile("DATE|TIME", re.IGNORECASE)
_PLAIN_DEFAULT: Final = re.compile(
    r"[+-]?\d+(\.\d+)?|'(?:[^']|'')*'|TRUE|FALSE|NULL|CURRENT_(?:TIMESTAMP|DATE|TIME)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """One column. `number` it keeps for life; `key` is its place in the key, from 1; `hidden` is not 0 if generated."""

    name: str
    declared: str
    not_null: bool
    default: str | None
    key: int
    hidden: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class UniqueSet:
    """Columns of which no two rows have the same values, each with the collation that says what is the same."""

    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table's shape. `unfit` says why it can't be captured; empty if it can."""

    name: str
    columns: tuple[SourceColumn, ...]
    unique: tuple[UniqueSet, ...]
    strict: bool = False
    unfit: str = ""

    @property
    def key(self) -> tuple[SourceColumn, ...]:
        """The columns of the primary key, in its order."""
        return tuple(sorted((c for c in self.columns if c.key), key=lambda c: c.key))

    @property
    def full_name(self) -> str:
        """Its name for people."""
        return f"{SCHEMA}.{self.name}"

    def definition(self, schema: str = SCHEMA, anys: tuple[str, ...] = ()) -> TableDef:
        """As the trail has it. `anys`: columns whose values carry their own type."""
        columns = tuple(
            Column(c.name, "any" if c.name in anys else self.logical(c), c.declared, bool(c.key)) for c in self.columns
        )
        return TableDef(schema, self.name, columns)

    def logical(self, column: SourceColumn) -> str:
        """The logical type of a column."""
        return logical(column.declared, strict=self.strict)

    def shape(self, anys: tuple[str, ...] = ()) -> TableShape:
        """As a DDL record has it. A generated column is one like others there: its values are sent."""
        columns = tuple(
            DdlColumn(
                c.number, c.name, "any" if c.name in anys else self.logical(c), c.declared, c.not_null,
                _default(c.default), _missing(c.default),
            )
            for c in self.columns
        )  # fmt: skip
        return TableShape(SCHEMA, self.name, columns, tuple(c.name for c in self.key))

    def follows(self, old: SourceTable | None, *, renamed: bool = False) -> SourceTable:
        """The same with column numbers that continue those of `old`.

        `renamed`: the triggers saw every column that `old` has, so those in its places are its own, whatever they are
        called now. Else columns are known by their names.
        """
        if old is None:
            return self._numbered(tuple(range(1, len(self.columns) + 1)))
        known = {c.name.lower(): c.number for c in old.columns}
        free = max(known.values(), default=0) + 1
        numbers = []
        for place, column in enumerate(self.columns):
            found = (
                old.columns[place].number if renamed and place < len(old.columns) else known.get(column.name.lower())
            )
            if found is None:
                found, free = free, free + 1
            numbers.append(found)
        return self._numbered(tuple(numbers))

    def _numbered(self, numbers: tuple[int, ...]) -> SourceTable:
        columns = tuple(replace(c, number=n) for n, c in zip(numbers, self.columns, strict=True))
        return replace(self, columns=columns)

    def to_json(self) -> str:
        """For the table in the source that keeps the shapes of what the queue holds."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> SourceTable:
        """Inverse of to_json. Raises MismatchError for any text that it would not give."""
        try:
            given = json.loads(text)
            columns = tuple(plain_of(SourceColumn, column) for column in given["columns"])
            unique = tuple(UniqueSet(tuple((name, how) for name, how in one["columns"])) for one in given["unique"])
            made = plain_of(cls, {**given, "columns": columns, "unique": unique})
            made.check()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise changed(f"has a shape of a table that can't be read ({error})"[:300]) from None
        return made

    def check(self) -> None:
        """Raise ValueError unless columns, key and unique sets belong together."""
        names = {column.name for column in self.columns}
        if not names or len(names) < len(self.columns) or len({c.number for c in self.columns}) < len(self.columns):
            raise ValueError("a name or number of a column is there twice, or there is none")
        if min(column.number for column in self.columns) < 1 or min(column.key for column in self.columns) < 0:
            raise ValueError("a column's number is below 1, or its place in the key below 0")
        for one in self.unique:
            if not all(name in names and how in _COLLATIONS for name, how in one.columns):
                raise ValueError("a unique set has a column or a collation that is not there")
        if not self.unfit and {c.name for c in self.key} not in [{name for name, _ in u.columns} for u in self.unique]:
            raise ValueError("the key is no unique set")


def logical(declared: str, *, strict: bool = False) -> str:
    """The logical type of a declared type: by its affinity, by SQLite's own rules in SQLite's own order."""
    upper = declared.upper()
    if not upper or (strict and upper == "ANY"):
        return "any"
    if "INT" in upper:
        return "bigint"
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if "BLOB" in upper:
        return "bytes"
    if any(word in upper for word in ("REAL", "FLOA", "DOUB")):
        return "double"
    return "text" if _MOMENT.search(declared) else "decimal"


def names(conn: sqlite3.Connection) -> list[str]:
    """The ordinary tables of the file, ours left out."""
    found = conn.execute("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY 1")
    return [name for (name,) in found if not name.lower().startswith(("sqlite_", PREFIX))]


def describe(conn: sqlite3.Connection, name: str) -> SourceTable | None:
    """A table's shape as it is now; None if there is no such table."""
    found = conn.execute(
        "SELECT strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name = ?", [name]
    ).fetchone()
    if found is None:
        return None
    rows = conn.execute(
        'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid', [name]
    ).fetchall()
    columns = tuple(
        SourceColumn(column, declared, bool(not_null), default, key, hidden)
        for column, declared, not_null, default, key, hidden in rows
        if hidden != HIDDEN
    )
    unique, unfit = _unique(conn, name, columns)
    if not any(column.key for column in columns):
        unfit = "it has no PRIMARY KEY, and a rowid may change"
    return SourceTable(name, columns, unique, bool(found[0]), unfit)


def _unique(
    conn: sqlite3.Connection, name: str, columns: tuple[SourceColumn, ...]
) -> tuple[tuple[UniqueSet, ...], str]:
    """What REPLACE may remove a row for; and why that can't be known."""
    sets = []
    indexed_key = False
    for index, origin in conn.execute(
        'SELECT name, origin FROM pragma_index_list(?) WHERE "unique" ORDER BY name', [name]
    ).fetchall():
        parts = conn.execute(
            "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno", [index]
        ).fetchall()
        indexed_key = indexed_key or origin == "pk"
        if any(part is None for part, _ in parts):
            return (), f"its unique index {index} is over an expression, so what REPLACE removes can't be known"
        if unknown := [how for _, how in parts if how.upper() not in _COLLATIONS]:
            return (), f"its unique index {index} has collation {unknown[0]}, which only its application knows"
        sets.append(UniqueSet(tuple((part, how.upper()) for part, how in parts)))
    if not indexed_key:  # an INTEGER PRIMARY KEY is the rowid itself
        sets.append(UniqueSet(tuple((c.name, "BINARY") for c in columns if c.key)))
    return tuple(dict.fromkeys(sorted(sets, key=lambda one: one.columns))), ""


def key_set(table: SourceTable) -> UniqueSet:
    """The key as a unique set, with its collations."""
    key = {column.name for column in table.key}
    return next(one for one in table.unique if {name for name, _ in one.columns} == key)


def _default(text: str | None) -> str | None:
    """A default as another database may take it; an expression stays the source's own matter."""
    return text if text is not None and _PLAIN_DEFAULT.fullmatch(text) else None


def _missing(text: str | None) -> str | None:
    """What older rows have in an added column, as text; SQLite takes plain values only."""
    if text is None or not _PLAIN_DEFAULT.fullmatch(text) or text.upper().startswith(("CURRENT", "NULL")):
        return None
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return {"TRUE": "1", "FALSE": "0"}.get(text.upper(), text.removeprefix("+"))


def changed(what: str) -> MismatchError:
    """The queue holds what none of its triggers writes."""
    return MismatchError(f"the source's queue {what}", hint=f"Somebody has changed the queue: {LOST}")


def plain(value: Any) -> str:
    """A value for a message, short."""
    return repr(value)[:60]
