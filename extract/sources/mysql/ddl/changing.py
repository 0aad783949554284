"""What one statement does to the tables that are known: pure; it looks at what is there, and says what becomes of it.

Rule: nothing is changed here. `run` gives an Effect, whole, or raises UnreadError; whoever called it makes it durable
and takes it over.

An online change of a table by a tool (gh-ost, pt-online-schema-change) is a copy under another name that takes the
table's place: RENAME TABLE t TO _t_del, _t_gho TO t. By the names of these tools it is told as one ALTER of t, as the
copy holds the same rows. Any other exchange of names is told as what it is: renames.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from extract.sources.mysql.ddl import known as tables
from extract.sources.mysql.ddl.asking import SourceServer
from extract.sources.mysql.ddl.filling import StatementSession
from extract.sources.mysql.ddl.journal import Entry, Key, ShapeChange
from extract.sources.mysql.ddl.known import Altering, KnownTable
from extract.sources.mysql.ddl.lexer import UnreadError
from extract.sources.mysql.ddl.query import Truncated
from extract.sources.mysql.ddl.reader import TableName
from extract.sources.mysql.ddl.syntax import (
    Alter,
    Create,
    Drop,
    DropDatabase,
    MakeDatabase,
    MovesRows,
    Rename,
    Statement,
    TruncateTable,
)
from trails.ddl import ALTER, CREATE, DDL_FILLED, DDL_MOVED, DDL_USING, DROP, RENAME, DdlChange, TableShape

_COPY: Final = re.compile(r"_+(.+)_(?:gho|new)\Z", re.IGNORECASE)
_GONE: Final = re.compile(r"_+(.+?)_(?:\d{14}_)?(?:del|old)\Z", re.IGNORECASE)


@dataclass(slots=True)
class Effect:
    """`change`: for the journal; `told`: for the trail, in order; `built_on`: tables whose shape before was needed."""

    change: ShapeChange = field(default_factory=ShapeChange)
    told: list[DdlChange | Truncated] = field(default_factory=list)
    built_on: set[Key] = field(default_factory=set)


class Changing:
    """One statement."""

    def __init__(
        self,
        server: SourceServer,
        present: Mapping[Key, Entry],
        databases: Mapping[str, str],
        schema: str,
        session: StatementSession,
        captures: Callable[[str, str], bool],
        sql: str,
    ) -> None:
        """`schema`: the default database."""
        self._server = server
        self._present = present
        self._databases = databases
        self._schema = schema
        self._session = session
        self._captures = captures
        self._sql = sql
        self._effect = Effect()

    def run(self, statement: Statement) -> Effect:
        """What it does."""
        match statement:
            case Create():
                self._create(statement)
            case Alter():
                self._alter(statement)
            case Rename(pairs):
                self._rename_all([(self._placed(old), self._placed(new)) for old, new in pairs])
            case Drop(named):
                for name in named:
                    self._drop(self._placed(name))
            case TruncateTable(name):
                self._truncate(self._placed(name))
            case MakeDatabase():
                self._database(statement)
            case DropDatabase(database):
                self._drop_database(self._server.fold(database))
        return self._effect

    # --- looking ------------------------------------------------------------------------------------------------------

    def _placed(self, name: TableName) -> TableName:
        schema = name.schema or self._schema
        if not schema:
            raise UnreadError(f"a database was expected for table {name.name[:64]}: the session has none")
        return TableName(self._server.fold(schema), self._server.fold(name.name))

    def _entry(self, name: TableName) -> Entry:
        key = self._server.key(*name)
        changed = self._effect.change.tables
        return changed[key] if key in changed else self._present.get(key)

    def _old(self, name: TableName) -> KnownTable | None:
        """A table that a change builds on. Raises UnreadError of a captured one that is not known."""
        self._effect.built_on.add(self._server.key(*name))
        found = self._entry(name)
        if isinstance(found, KnownTable):
            return found
        if self._captures(*name):
            raise UnreadError(found or f"no statement before made table {name.schema}.{name.name}")
        return None

    def _collation(self, schema: str) -> str:
        return self._databases.get(self._server.fold(schema)) or self._server.charsets.server

    def _set(self, name: TableName, entry: Entry) -> None:
        self._effect.change.tables[self._server.key(*name)] = entry

    def _tell(self, op: str, old: TableShape | None, new: TableShape | None, flags: int = 0) -> None:
        self._effect.told.append(DdlChange(op, old, new, self._sql, flags))

    # --- whole tables -------------------------------------------------------------------------------------------------

    def _create(self, made: Create) -> None:
        name = self._placed(made.table)
        before = self._entry(name)
        if made.if_not_exists and before is not None:
            self._effect.built_on.add(self._server.key(*name))
            return
        if made.selects:
            raise UnreadError("its columns and rows are those of a query")
        new = self._made(made, name)
        if made.or_replace and isinstance(before, KnownTable):
            self._tell(DROP, before.shape, None)
        self._set(name, new)
        if isinstance(new, KnownTable):
            self._tell(CREATE, None, new.shape)

    def _made(self, made: Create, name: TableName) -> Entry:
        charsets, flavour = self._server.charsets, self._server.flavour
        if made.like is None:
            own, default = self._collation(name.schema), self._collation(self._schema)
            return tables.create(made, name.schema, own, charsets, flavour, default).named(*name)
        like = self._placed(made.like)
        self._effect.built_on.add(self._server.key(*like))
        other = self._entry(like)
        if isinstance(other, KnownTable):
            return tables.like(other, *name)
        why = other or f"table {like.schema}.{like.name}, which it is made after, is not known"
        if self._captures(*name):
            raise UnreadError(why)
        return why

    def _drop(self, name: TableName) -> None:
        found = self._entry(name)
        if isinstance(found, KnownTable):
            self._tell(DROP, found.shape, None)
        if found is not None:
            self._set(name, None)

    def _truncate(self, name: TableName) -> None:
        if not self._captures(*name):
            return
        found = self._old(name)
        self._effect.built_on.clear()  # whatever its shape is, its rows are gone
        if found is not None:
            self._effect.told.append(Truncated(found.definition))

    def _database(self, made: MakeDatabase) -> None:
        schema = self._server.fold(made.name or self._schema)
        there = schema in self._databases
        if made.or_replace and there:
            self._drop_database(schema)
        if made.creates and there and made.if_not_exists:
            return
        before = self._databases.get(schema, "") if not made.creates else ""
        default = before or self._server.charsets.server
        self._effect.change.databases[schema] = tables.text_collation(made.text, default, self._server.charsets)

    def _drop_database(self, schema: str) -> None:
        for place in [key for key, entry in self._present.items() if key[0] == schema and entry is not None]:
            self._drop(TableName(*place))
        if schema in self._databases:
            self._effect.change.databases[schema] = None

    # --- changes ------------------------------------------------------------------------------------------------------

    def _alter(self, made: Alter) -> None:
        name = self._placed(made.table)
        old = self._old(name)
        new_name = self._placed(made.renamed) if made.renamed else name
        if old is None:
            self._unknown(name, new_name)
            return
        altering = Altering(old, self._server.charsets, self._session, self._collation(self._schema))
        try:
            new = altering.run(made.actions, made.text, ignore=made.ignore)
        except UnreadError as error:
            if self._captures(*name) or self._captures(*new_name):
                raise
            self._set(name, None)
            self._set(new_name, str(error))
            return
        self._move(name, old, new_name, new.named(*new_name), altering.flags)
        for other in (action.other for action in made.actions if isinstance(action, MovesRows) and action.other):
            self._moved_rows(self._placed(other), new)

    def _unknown(self, name: TableName, new_name: TableName) -> None:
        """A table that is not captured, and not known: under its new name it is as little known."""
        found = self._entry(name)
        if name == new_name:
            return
        reason = found if isinstance(found, str) else f"it was {name.schema}.{name.name}, which is not known"
        if self._captures(*new_name):
            raise UnreadError(reason)
        self._set(name, None)
        self._set(new_name, reason)

    def _move(self, name: TableName, old: KnownTable, new_name: TableName, new: KnownTable, flags: int) -> None:
        """A changed table takes its place, which may be under another name."""
        if name != new_name:
            self._set(name, None)
        if new != old:
            self._set(new_name, new)
        if old.shape != new.shape or flags & DDL_MOVED:
            self._tell(ALTER if name == new_name else RENAME, old.shape, new.shape, flags)

    def _moved_rows(self, name: TableName, like: KnownTable) -> None:
        """The other table of an exchanged partition; CONVERT PARTITION makes it."""
        found = self._entry(name)
        if isinstance(found, KnownTable):
            self._tell(ALTER, found.shape, found.shape, DDL_MOVED)
            return
        made = tables.like(like, *name)
        self._set(name, made)
        self._tell(CREATE, None, made.shape, DDL_MOVED)

    def _rename_all(self, pairs: list[tuple[TableName, TableName]]) -> None:
        if copied := _copied(pairs):
            gone, table, copy = copied
            old, new = self._entry(table), self._entry(copy)
            is_known = isinstance(old, KnownTable) and isinstance(new, KnownTable)
            if is_known and self._captures(*table) and not self._captures(*gone):
                assert isinstance(old, KnownTable) and isinstance(new, KnownTable)
                self._effect.built_on |= {self._server.key(*table), self._server.key(*copy)}
                self._taken_over(table, gone, copy, old, new)
                return
        for one, other in pairs:
            self._rename(one, other)

    def _rename(self, name: TableName, new_name: TableName) -> None:
        old = self._old(name)
        if old is None:
            self._unknown(name, new_name)
        else:
            self._move(name, old, new_name, old.named(*new_name), 0)

    def _taken_over(self, table: TableName, gone: TableName, copy: TableName, old: KnownTable, new: KnownTable) -> None:
        """The copy is the table from here on; its columns are the old ones by their names."""
        made, flags = _continued(old, new.named(*table))
        self._set(gone, old.named(*gone))
        self._set(copy, None)
        self._set(table, made)
        if made.shape != old.shape or flags:
            self._tell(ALTER, old.shape, made.shape, flags)


def _copied(pairs: list[tuple[TableName, TableName]]) -> tuple[TableName, TableName, TableName] | None:
    """(old name, table, copy) of `t TO _t_del, _t_gho TO t`."""
    if len(pairs) != 2:
        return None
    (table, gone), (copy, again) = pairs
    found, left = _COPY.match(copy.name), _GONE.match(gone.name)
    if table != again or found is None or left is None:
        return None
    # Long names are cut by these tools.
    fits = all(table.name.lower().startswith(each[1].lower()) for each in (found, left))
    return (gone, table, copy) if fits else None


def _continued(old: KnownTable, new: KnownTable) -> tuple[KnownTable, int]:
    """The new table with the numbers of the old one; and flags where names alone don't say what rows hold."""
    numbers = {c.name.lower(): c.number for c in old.shape.columns}
    by_number = old.shape.by_number
    number, flags, columns = old.next, 0, []
    for one in new.shape.columns:
        if (known := numbers.get(one.name.lower())) is not None:
            columns.append(replace(one, number=known, missing=by_number[known].missing))
            continue
        columns.append(replace(one, number=number))
        number += 1
        if one.missing is None and (one.not_null or one.default not in (None, "") or one.identity or one.generated):
            flags |= DDL_FILLED
    added = any(one.name.lower() not in numbers for one in new.shape.columns)
    gone = set(numbers) - {one.name.lower() for one in new.shape.columns}
    if added and gone:
        flags |= DDL_USING | DDL_FILLED  # a column may have got another name
    return replace(new, shape=replace(new.shape, columns=tuple(columns)), next=number), flags
