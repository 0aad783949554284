"""Target tables made after their source tables: CREATE at once, indexes and foreign keys once the rows are there.

Rule: a table is made as DDL makes one (ddl/shapes.py), by the same dialects: types by docs/types.md, the primary key
with the table. What stands behind the load is statements, in order, foreign keys last. What can't be made is named in a
note, with why, and stops nothing: rows arrive without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from replicat.ddl.definition import CannotError
from replicat.ddl.dialect import Dialect, Script
from replicat.ddl.shapes import Carry, Look, MappedTable, carry, is_named
from replicat.model.mapparams import MapRule
from trails.ddl import CREATE, DdlChange
from trails.described import DescribedTable, ForeignKey, Index

LONGEST: Final = 60
"""No database takes names of more than 63 or 64 bytes."""

RulesOf = Callable[[str, str], Sequence[MapRule]]
"""The MAPs that take a source table."""


@dataclass(frozen=True, slots=True)
class BehindLoad:
    """Statements for when the rows are there, and what is left out, by name and why."""

    statements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def created(table: DescribedTable, mapped: MappedTable, look: Look, dialect: Dialect) -> Carry:
    """How the target table is made. CannotError says why it can't be."""
    (found,) = carry(DdlChange(CREATE, None, table.shape), [], [mapped], look, dialect)
    return found


def behind(table: DescribedTable, mapped: MappedTable, dialect: Dialect, rules_of: RulesOf) -> BehindLoad:
    """The indexes and foreign keys of a table that `created` makes."""
    made = _Behind(table, mapped, dialect, rules_of)
    for index in table.indexes:
        made.tried(f"index {index.name}", partial(made.index, index))
    for key in table.foreign_keys:
        made.tried(f"foreign key {key.name}", partial(made.foreign_key, key))
    notes = [*made.notes, *(f"{what} is not made: it is more than columns in order" for what in table.left)]
    return BehindLoad(tuple(made.script.statements), tuple(notes))


class _Behind:
    def __init__(self, table: DescribedTable, mapped: MappedTable, dialect: Dialect, rules_of: RulesOf) -> None:
        self._table = table
        self._mapped = mapped
        self._sql = dialect
        self._rules_of = rules_of
        self._columns = {column.name: column for column in table.shape.columns}
        self.script = Script()
        self.notes: list[str] = []

    def tried(self, what: str, make: Callable[[], None]) -> None:
        """Make it, or note why not."""
        try:
            make()
        except CannotError as error:
            self.notes.append(f"{what} is not made: {error}")

    def index(self, one: Index) -> None:
        """A history has a source's row many times."""
        rule = self._mapped.rule
        if one.unique and rule.toggles.insert_all:
            raise CannotError("the table keeps a history (INSERTALLRECORDS)")
        _check_carried(rule, one.columns)
        columns = [self._sql.defined(self._columns[name]) for name in one.columns]
        place = self._mapped.place
        self._sql.index(self.script, place, self._named(one.name), columns, unique=one.unique)

    def foreign_key(self, one: ForeignKey) -> None:
        """To where the other table's rows go, if that is one table that has them."""
        rule = self._mapped.rule
        if rule.toggles.insert_all:
            raise CannotError("the table keeps a history (INSERTALLRECORDS)")
        found = self._rules_of(one.schema, one.table)
        if len(found) != 1 or found[0].toggles.insert_all or found[0].colmap or not found[0].use_defaults:
            many = f"{len(found)} MAPs take" if len(found) != 1 else "COLMAP or a history has"
            raise CannotError(f"{many} the rows of {one.schema}.{one.table}")
        _check_carried(rule, one.columns)
        _check_carried(found[0], one.others)
        other = found[0].target.fill(one.schema, one.table)
        name = self._named(one.name)
        self._sql.foreign_key(self.script, self._mapped.place, name, one.columns, other, one.others)

    def _named(self, name: str) -> str:
        """The source's name where the table has that of the source, too; else one that begins with the table's."""
        schema, table = self._mapped.place
        if not (self._sql.like and (schema, table) == self._table.place):
            name = f"{table}_{name}"
        raw = name.encode()
        if len(raw) <= LONGEST:
            return name
        mark = hashlib.blake2b(raw, digest_size=4).hexdigest()
        return f"{raw[: LONGEST - len(mark) - 1].decode(errors='ignore')}_{mark}"


def _check_carried(rule: MapRule, columns: Sequence[str]) -> None:
    if missing := [name for name in columns if not is_named(rule, name)]:
        raise CannotError(f"the MAP leaves column {missing[0]} out ({rule.where})")
