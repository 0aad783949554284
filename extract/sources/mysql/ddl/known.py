"""A table as it is known at one place of the log, and what statements make of it: pure, no file and no server.

Rule: a column keeps its number for life, and no number is used twice. What a statement does to columns and keys is done
here in the server's own order: columns are dropped, changed where they stand, and then put where FIRST and AFTER say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from extract.sources.mysql.ddl import natives
from extract.sources.mysql.ddl.filling import StatementSession, missing
from extract.sources.mysql.ddl.lexer import UnreadError
from extract.sources.mysql.ddl.natives import Charsets
from extract.sources.mysql.ddl.syntax import (
    PRIMARY,
    Action,
    AddColumn,
    ChangeColumn,
    ColumnSpec,
    ConvertText,
    Create,
    DropColumn,
    DropIndex,
    IndexSpec,
    MovesRows,
    RenameColumn,
    RenameIndex,
    SetDefault,
    TextOptions,
)
from extract.sources.mysql.flavour import Flavour
from trails.ddl import DDL_FILLED, DDL_MOVED, DDL_USING, DdlColumn, TableShape
from trails.record import Column, TableDef

_JSON_TEXT: Final = ("longtext", "json")


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table. `next`: the number of the next column; `indexes` in the server's order; `collation`: of new columns."""

    shape: TableShape
    next: int
    indexes: tuple[IndexSpec, ...] = ()
    collation: str = ""

    def to_json(self) -> list[Any]:
        """Plain lists."""
        indexes = [[i.name, list(i.columns), i.unique, i.primary, i.whole] for i in self.indexes]
        return [self.shape.to_wire(), self.next, indexes, self.collation]

    @classmethod
    def of(cls, wire: list[Any]) -> KnownTable:
        """Inverse of to_json. Raises TypeError or ValueError."""
        shape, number, indexes, collation = wire
        made = tuple(IndexSpec(name, tuple(columns), *rest) for name, columns, *rest in indexes)
        return cls(TableShape.from_wire(shape), number, made, collation)

    def named(self, schema: str, name: str) -> KnownTable:
        """Under another name."""
        return replace(self, shape=replace(self.shape, schema=schema, name=name))

    @property
    def definition(self) -> TableDef:
        """As the trail describes its rows."""
        shape = self.shape
        columns = tuple(Column(c.name, c.type, c.native, c.name in shape.key) for c in shape.columns)
        return TableDef(shape.schema, shape.name, columns)


def create(
    made: Create, schema: str, collation: str, charsets: Charsets, flavour: Flavour, session: str = ""
) -> KnownTable:
    """The table that a CREATE TABLE makes; `collation`: its database's, `session`: that of the session's database."""
    own = text_collation(made.text, collation, charsets, session)
    specs = tuple(replace(spec, place=None) for spec in made.columns)
    columns = [column(spec, number, own, charsets, flavour) for number, spec in enumerate(specs, 1)]
    indexes = _named([*_inline(specs), *made.indexes], [])
    return _known(schema, made.table.name, columns, len(columns) + 1, indexes, own)


def like(other: KnownTable, schema: str, name: str) -> KnownTable:
    """The table that CREATE TABLE ... LIKE makes: with numbers of its own."""
    columns = tuple(replace(c, number=number, missing=None) for number, c in enumerate(other.shape.columns, 1))
    shape = TableShape(schema, name, columns, other.shape.key)
    return KnownTable(shape, len(columns) + 1, other.indexes, other.collation)


def text_collation(text: TextOptions, before: str, charsets: Charsets, session: str = "") -> str:
    """A table's or database's collation, by what a statement says of it; `session`: by default."""
    if text.collation:
        return natives.collation_name(text.collation)
    if text.default and session:
        return session
    return charsets.collation(text.charset) if text.charset else before


def column(spec: ColumnSpec, number: int, collation: str, charsets: Charsets, flavour: Flavour) -> DdlColumn:
    """A column as a shape has it."""
    kind = spec.type
    native = kind.native(collation, charsets)
    if spec.is_json and flavour is Flavour.MARIADB and natives.base_of(native) in _JSON_TEXT:
        native = "json"
    default = spec.generated if spec.generated is not None else _default(spec, native)
    return DdlColumn(
        number,
        spec.name,
        natives.logical(native),
        native,
        spec.null is False,
        default,
        None,
        "d" if spec.auto_increment else "",
        spec.generated is not None,
    )


def _default(spec: ColumnSpec, native: str) -> str | None:
    """A constant is a string or a number as the type has it, whichever was written."""
    default = spec.default if spec.default is None else as_typed(spec.default, native)
    if spec.on_update:
        return f"{default or 'NULL'} ON UPDATE {spec.on_update}"
    return default


def as_typed(default: str, native: str) -> str:
    """MySQL prints '0' where MariaDB prints 0."""
    logical = natives.logical(native)
    if logical in ("smallint", "integer", "bigint", "decimal", "real", "double") and default.startswith("'"):
        inside = default[1:-1]
        return inside if _is_number(inside) else default
    plain = default[:1].isdigit() or default[:1] in "-."
    if plain and not default.startswith(("0x", "0b")) and logical in ("text", "char", "enum", "json"):
        return f"'{default}'"
    return default


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text and text[-1:].isdigit()


# --- keys -------------------------------------------------------------------------------------------------------------


def _inline(specs: Sequence[ColumnSpec]) -> list[IndexSpec]:
    """Keys that stand with their columns."""
    found = []
    for spec in specs:
        if spec.primary:
            found.append(IndexSpec(PRIMARY, (spec.name,), True, True))
        if spec.unique:
            found.append(IndexSpec("", (spec.name,), True))
    return found


def _named(new: Sequence[IndexSpec], there: Sequence[IndexSpec]) -> list[IndexSpec]:
    """All of them: an index without a name gets its first column's, or that and a number."""
    made = list(there)
    taken = {index.name.lower() for index in (*there, *new) if index.name}
    for index in new:
        if index.if_not_exists and any(index.name.lower() == other.name.lower() for other in made):
            continue
        if not index.name:
            base = index.columns[0] if index.columns else "functional_index"
            names = [base, *(f"{base}_{n}" for n in range(2, 100))]
            free = next((n for n in names if n.lower() not in taken and n.upper() != PRIMARY), base)
            taken.add(free.lower())
            index = replace(index, name=free)  # noqa: PLW2901  -- the same index, with its name
        made.append(index)
    return made


def _sorted(indexes: Sequence[IndexSpec], columns: Sequence[DdlColumn]) -> tuple[IndexSpec, ...]:
    """In the server's order: the primary key, then unique ones without NULL, whole ones first."""
    nullable = {c.name.lower() for c in columns if not c.not_null}

    def rank(index: IndexSpec) -> tuple[bool, bool, bool, bool]:
        nulls = any(name.lower() in nullable for name in index.columns)
        return not index.unique, nulls and not index.primary, not index.primary, not index.whole

    return tuple(sorted(indexes, key=rank))


def _key(indexes: Sequence[IndexSpec], columns: Sequence[DdlColumn]) -> tuple[str, ...]:
    """The primary key, or what the server takes for one: the first unique key of whole columns that are NOT NULL."""
    by_name = {c.name.lower(): c for c in columns}
    for index in indexes:
        found = [by_name.get(name.lower()) for name in index.columns]
        fits = index.whole and found and all(c is not None and c.not_null for c in found)
        if index.primary or (index.unique and fits):
            return tuple(c.name for c in found if c is not None)
    return ()


def _known(
    schema: str, name: str, columns: Sequence[DdlColumn], number: int, indexes: Sequence[IndexSpec], collation: str
) -> KnownTable:
    """Columns and keys put together: those of a primary key are NOT NULL."""
    primary = {name.lower() for index in indexes if index.primary for name in index.columns}
    made = tuple(replace(c, not_null=c.not_null or c.name.lower() in primary) for c in columns)
    ordered = _sorted(indexes, made)
    return KnownTable(TableShape(schema, name, made, _key(ordered, made)), number, ordered, collation)


# --- ALTER ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Place:
    """A column on its way; `place` as in ColumnSpec."""

    column: DdlColumn
    place: str | None = None


def _doubles(action: Action, indexes: Sequence[IndexSpec]) -> bool:
    """Whether rows may get a unique value twice by it. With IGNORE, MariaDB drops such rows and logs none of them."""
    unique = {name.lower() for index in indexes if index.unique for name in index.columns}
    match action:
        case IndexSpec():
            return action.unique
        case AddColumn(column):
            return column.unique or column.primary
        case ChangeColumn(name, column):
            return column.unique or column.primary or name.lower() in unique
        case DropColumn(name):
            return name.lower() in unique
        case ConvertText():
            return bool(unique)
    return False


class Altering:
    """One ALTER TABLE on one table. `made` is the table behind it, `flags` what the shapes don't say."""

    def __init__(self, old: KnownTable, charsets: Charsets, session: StatementSession, database: str) -> None:
        """`database`: the collation of the session's database."""
        self._charsets = charsets
        self._session = session
        self._database = database
        self._columns = list(old.shape.columns)
        self._indexes = list(old.indexes)
        self._collation = old.collation
        self._number = old.next
        self._new: list[IndexSpec] = []
        self._old = old
        self.flags = 0

    def run(self, actions: Sequence[Action], text: TextOptions, *, ignore: bool) -> KnownTable:
        """Everything that the statement says."""
        self._collation = text_collation(text, self._collation, self._charsets, self._database)
        for convert in (action for action in actions if isinstance(action, ConvertText)):
            self._convert(convert)
        self._drop(actions)
        added = self._change(actions)
        for each in added:
            self._put(each)
        self._index(actions)
        if any(isinstance(one, MovesRows) or (ignore and _doubles(one, self._old.indexes)) for one in actions):
            self.flags |= DDL_MOVED
        shape = self._old.shape
        made = _known(shape.schema, shape.name, self._columns, self._number, self._indexes, self._collation)
        if ignore or not self._session.strict:
            self._judge(made)
        return made

    def _find(self, name: str) -> int | None:
        low = name.lower()
        return next((i for i, c in enumerate(self._columns) if c.name.lower() == low), None)

    def _need(self, name: str) -> int:
        at = self._find(name)
        if at is None:
            raise UnreadError(f"{self._old.shape.full_name} is not known to have a column {name[:64]}")
        return at

    def _convert(self, action: ConvertText) -> None:
        collation = text_collation(action.text, self._database, self._charsets, self._database)
        self._collation = collation
        for i, one in enumerate(self._columns):
            native = natives.converted(one.native, collation)
            self._columns[i] = replace(one, native=native, type=natives.logical(native))

    def _drop(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if not isinstance(action, DropColumn):
                continue
            at = self._find(action.name) if action.if_exists else self._need(action.name)
            if at is None:
                continue
            gone = self._columns.pop(at).name.lower()
            kept = [replace(i, columns=tuple(n for n in i.columns if n.lower() != gone)) for i in self._indexes]
            self._indexes = [i for i, was in zip(kept, self._indexes, strict=True) if i.columns or not was.columns]

    def _change(self, actions: Sequence[Action]) -> list[_Place]:
        """Change columns where they stand; gives those that are to be put somewhere."""
        later: list[_Place] = []
        was = {c.name.lower(): c.name for c in self._columns}
        numbers = {c.name.lower(): c.number for c in self._columns}
        for action in actions:
            match action:
                case AddColumn(spec, unless):
                    if not (unless and self._find(spec.name) is not None):
                        later.append(_Place(self._added(spec), spec.place))
                case ChangeColumn(old, spec, exists) if not exists or old.lower() in was:
                    self._changed(numbers.get(old.lower()), old, spec, later)
                case RenameColumn(old, new, exists) if not exists or old.lower() in was:
                    at = self._at(numbers.get(old.lower()), old)
                    self._renamed(self._columns[at].number, was[old.lower()], new)
                case SetDefault(name, default, exists) if not exists or name.lower() in was:
                    at = self._need(name)
                    native = self._columns[at].native
                    value = None if default is None else as_typed(default, native)
                    tail = (self._columns[at].default or "").partition(" ON UPDATE ")[2]
                    if tail and (value or self._session.flavour is Flavour.MYSQL):  # MariaDB drops both at once
                        value = f"{value or 'NULL'} ON UPDATE {tail}"
                    self._columns[at] = replace(self._columns[at], default=value)
        return later

    def _at(self, number: int | None, name: str) -> int:
        """Where a column stands, by its number: others may have taken its name by now."""
        found = [i for i, c in enumerate(self._columns) if c.number == number]
        return found[0] if found else self._need(name)

    def _added(self, spec: ColumnSpec) -> DdlColumn:
        made = column(spec, self._number, self._collation, self._charsets, self._session.flavour)
        self._number += 1
        value, known = missing(spec, made, self._session)
        if not known:
            self.flags |= DDL_FILLED
        self._new += _inline([spec])
        return replace(made, missing=value)

    def _changed(self, number: int | None, old: str, spec: ColumnSpec, later: list[_Place]) -> None:
        at = self._at(number, old)
        before = self._columns[at]
        made = column(spec, before.number, self._collation, self._charsets, self._session.flavour)
        made = replace(made, missing=before.missing)
        self._columns[at] = made
        if before.name != made.name:
            self._renamed_in_keys(before.name, made.name)
        self._new += _inline([spec])
        if spec.place is not None:
            later.append(_Place(self._columns.pop(at), spec.place))

    def _renamed(self, number: int, old: str, new: str) -> None:
        at = self._at(number, old)
        self._columns[at] = replace(self._columns[at], name=new)
        self._renamed_in_keys(old, new)

    def _renamed_in_keys(self, old: str, new: str) -> None:
        """Marked first, so that two columns may exchange their names."""
        mark = f"\0{new}"
        self._indexes = [
            replace(i, columns=tuple(mark if n.lower() == old.lower() else n for n in i.columns)) for i in self._indexes
        ]

    def _put(self, one: _Place) -> None:
        if one.place is None:
            self._columns.append(one.column)
        elif not one.place:
            self._columns.insert(0, one.column)
        else:
            self._columns.insert(self._need(one.place) + 1, one.column)

    def _index(self, actions: Sequence[Action]) -> None:
        self._indexes = [replace(i, columns=tuple(n.removeprefix("\0") for n in i.columns)) for i in self._indexes]
        for action in actions:
            match action:
                case DropIndex(name):
                    self._indexes = [i for i in self._indexes if i.name.lower() != name.lower()]
                case RenameIndex(old, new):
                    self._indexes = [
                        replace(i, name=new) if i.name.lower() == old.lower() else i for i in self._indexes
                    ]
        self._new += [action for action in actions if isinstance(action, IndexSpec)]
        self._indexes = _named(self._new, self._indexes)

    def _judge(self, made: KnownTable) -> None:
        """Where the session is not strict, a value that does not fit becomes another without an error."""
        before = self._old.shape.by_number
        for one in made.shape.columns:
            was = before.get(one.number)
            if was is not None and (was.native != one.native or (one.not_null and not was.not_null)):
                self.flags |= DDL_USING
