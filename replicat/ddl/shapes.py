"""From a change of a table's shape at the source to what each mapped target table needs: pure, no database.

The two shapes are compared by column number, and what differs becomes statements (ddl/dialect.py):

    drop columns, rename, add, retype, defaults, NOT NULL, a first key

Rule: each step is left out where the target's present shape shows that it is done: by hand after an ABEND, by another
source table of the same target, or before a crash where the target commits each statement by itself. What a MAP does
not carry (columns that COLMAP or COLS govern, a history's NOT NULL and keys) is left alone, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from replicat.ddl.definition import CannotError, Definition, checked_name
from replicat.ddl.dialect import Dialect, Script
from replicat.ddl.typename import parse_type
from replicat.model.mapparams import MapRule
from replicat.model.target import TargetColumn, TargetTable
from trails.ddl import DDL_FILLED, DDL_MOVED, DDL_REASONS, DDL_ROWS, DDL_USING, DdlChange, DdlColumn, TableShape
from trails.record import TableId

Look = Callable[[TableId], TargetTable | None]
BY_HAND = (
    "Do it in the target by hand (logdump shows the change), then START: what is done is found done; or see DDLERROR"
)
# Names in quotes stay, whatever is in them. What stands between single quotes is a value, and so is a default's number.
_VALUES = re.compile(
    r"""("(?:[^"]|"")*"|`(?:[^`]|``)*`)|'(?:[^']|'')*'|(?<=DEFAULT )\(?[-+]?[0-9][0-9.eE+-]*\)?""", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class MappedTable:
    """A MAP that takes the table, and where to."""

    rule: MapRule
    place: TableId


@dataclass(frozen=True, slots=True)
class Carry:
    """What a change comes to for one target table; `types` as in Script."""

    target: str
    statements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    types: tuple[tuple[str, bool], ...] = ()


def shown(statement: str) -> str:
    """A statement of ours for people: no value of a row or default in it, on one line, not too long."""
    flat = " ".join(_VALUES.sub(lambda found: found[1] or "'...'", statement).split())
    flat = "".join(letter if letter.isprintable() else "?" for letter in flat)
    return flat if len(flat) <= 1000 else f"{flat[:1000]} ..."


def carry(
    change: DdlChange,
    old: Sequence[MappedTable],
    new: Sequence[MappedTable],
    look: Look,
    dialect: Dialect,
    others: Callable[[TableId], Collection[str]] = lambda _place: (),
) -> Iterator[Carry]:
    """What to do, target table by target table; each is looked at once the one before is done, which may be the same.

    `old`, `new`: the MAPs that take the table before and after.
    `others`: the source tables that a target table takes, as far as they are known. CannotError says what can't be
    carried, and why.
    """
    return _Carrier(change, look, dialect, others).run(old, new)


class _Carrier:
    def __init__(
        self, change: DdlChange, look: Look, dialect: Dialect, others: Callable[[TableId], Collection[str]]
    ) -> None:
        self._change = change
        self._look = look
        self._sql = dialect
        self._others = others

    def run(self, old: Sequence[MappedTable], new: Sequence[MappedTable]) -> Iterator[Carry]:
        change = self._change
        for name in (name for mapped in (*old, *new) for name in mapped.place):
            checked_name(name)
        if change.new is None:
            yield from map(self._drop, old)
        elif change.old is None:
            for mapped in new:
                yield self._create(mapped, change.new)
        else:
            yield from self._changed(old, new, change.old, change.new)

    def _changed(
        self, old: Sequence[MappedTable], new: Sequence[MappedTable], before: TableShape, after: TableShape
    ) -> Iterator[Carry]:
        both, gone, come = _pairs(old, new)
        for was, becomes in both:
            yield self._alter(was, becomes, before, after)
        for mapped in gone:
            yield Carry(_name(mapped.place), notes=("left alone: no MAP takes the table's new name",))
        yield from map(self._enters, come)

    # Whole tables

    def _create(self, mapped: MappedTable, shape: TableShape) -> Carry:
        place, rule = mapped.place, mapped.rule
        if self._look(place) is not None:
            return Carry(_name(place), notes=("is there already",))
        if rule.colmap or not rule.use_defaults:
            raise CannotError(f"the columns of {_name(place)} are COLMAP's ({rule.where})")
        if self._change.flags & (DDL_ROWS | DDL_MOVED):
            raise CannotError("the table held rows already, which are not in the trail")
        kept = shape.keeping(lambda name: is_named(rule, name))
        history = rule.toggles.insert_all
        key = () if history else _key(rule, kept)
        columns = [replace(c, not_null=False) for c in kept.columns] if history else kept.columns
        made = [self._sql.defined(column) for column in columns]
        natives = {column.name: column.native for column in columns}
        for column in made:
            self._check_reads(column, natives.get)
        script = Script()
        self._sql.create(script, place, made, key)
        return _carry(place, script)

    def _check_reads(self, column: Definition, type_of: Callable[[str], str | None]) -> None:
        """What a generated column takes must be of the database's own types: any other may bring a cast of its own."""
        matters = self._sql.own_types and column.generated
        for name in sorted(column.formula.reads) if column.formula and matters else ():
            found = parse_type(type_of(name) or "")
            if found is None or not found.is_built_in:
                raise CannotError(
                    f"column {column.name} is generated from column {name}, which is there of no built-in type"
                )

    def _drop(self, mapped: MappedTable) -> Carry:
        place = mapped.place
        if self._look(place) is None:
            return Carry(_name(place), notes=("is dropped already",))
        if mapped.rule.toggles.insert_all:
            return Carry(_name(place), notes=("left alone: it keeps a history (INSERTALLRECORDS)",))
        self._refuse_shared(place, "DROP TABLE")
        script = Script()
        self._sql.drop(script, place)
        return _carry(place, script)

    def _enters(self, mapped: MappedTable) -> Carry:
        """A table that no MAP took by its old name."""
        if self._look(mapped.place) is None:
            raise CannotError(f"by its new name it goes to {_name(mapped.place)}, and its rows are not in the trail")
        return Carry(_name(mapped.place), notes=("is mapped from here on; what it holds must be the source's rows",))

    def _refuse_shared(self, place: TableId, what: str) -> None:
        mine = {".".join(name) for name in self._change.names}
        if others := sorted(set(self._others(place)) - mine):
            raise CannotError(f"{what} of {_name(place)}, which also takes the rows of {others[0]}")

    # One table, changed

    def _alter(self, old: MappedTable, new: MappedTable, before: TableShape, after: TableShape) -> Carry:
        script = Script()
        place, present = self._renamed(script, old.place, new.place)
        if present is None:
            raise CannotError(f"target table {_name(old.place)} does not exist")
        self._columns(script, new.rule, place, present, _both_kept(old.rule, new.rule, before, after))
        return _carry(place, script)

    def _renamed(self, script: Script, old: TableId, new: TableId) -> tuple[TableId, TargetTable | None]:
        """The target's name after the change, and its shape as it is now."""
        before = self._look(old)
        if old == new:
            return new, before
        after = self._look(new)
        if before is None:
            script.notes.append(f"{_name(old)} is renamed already")
            return new, after
        if after is not None:
            raise CannotError(f"{_name(old)} becomes {_name(new)}, and both exist")
        self._refuse_shared(old, "RENAME")
        self._sql.rename(script, old, new)
        self._sql.rename_key(script, new, before)
        return new, before

    def _columns(
        self, script: Script, rule: MapRule, place: TableId, present: TargetTable, shapes: tuple[TableShape, TableShape]
    ) -> None:
        before, after = shapes[0].by_number, shapes[1].by_number
        have = _Names(present)
        self._refuse_flags(before, after, have)
        history = rule.toggles.insert_all
        gone = [before[n] for n in before.keys() - after.keys()]
        if not history and have.all_in(column.name for column in gone) and self._sql.stand_in:
            self._sql.add_stand_in(script, place)
            have.add(self._sql.stand_in, "integer")
        for column in gone:
            self._drop_column(script, rule, place, have, column)
        both = sorted(before.keys() & after.keys())
        self._rename_columns(script, place, have, [(before[n], after[n]) for n in both])
        for number in sorted(after.keys() - before.keys()):
            self._add_column(script, place, have, after[number], history)
        self._drop_stand_in(script, place, have, after)
        key = shapes[1].key
        for number in both:
            keys = len(key) if after[number].name in key else 0
            self._change_column(script, place, have, before[number], after[number], history, keys)
        self._change_key(script, rule, place, present, have, shapes)

    def _refuse_flags(self, before: dict[int, DdlColumn], after: dict[int, DdlColumn], have: _Names) -> None:
        """What only the source could do, unless the target's columns are as if it were done already."""
        flags, both = self._change.flags, before.keys() & after.keys()
        retyped = [n for n in both if (before[n].type, before[n].native) != (after[n].type, after[n].native)]
        undone = [after[n].name for n in retyped if not self._is_retyped(before[n], after[n], have)]
        if flags & DDL_USING and (undone or not retyped):
            what = f"column {', '.join(undone)}" if undone else "a column"
            raise CannotError(f"{what} got its values by an expression (USING), which is not carried")
        filled = [column.name for n, column in after.items() if n not in before and column.missing is None]
        lacking = [name for name in filled if have.find(name) is None]
        if flags & DDL_MOVED:
            raise CannotError(DDL_REASONS[DDL_MOVED])
        if flags & DDL_FILLED and lacking:
            raise CannotError(f"rows got values in column {', '.join(lacking)} that only the source knows")

    def _is_retyped(self, old: DdlColumn, new: DdlColumn, have: _Names) -> bool:
        found = have.find(new.name) or have.find(old.name)
        return found is not None and self._sql.is_retyped(
            self._sql.defined(old), self._sql.defined(new), have.type_of(found)
        )

    def _drop_column(self, script: Script, rule: MapRule, place: TableId, have: _Names, column: DdlColumn) -> None:
        found = have.find(column.name)
        if found is None:
            script.notes.append(f"column {column.name} is dropped already")
        elif rule.toggles.insert_all:
            script.notes.append(f"column {found} is left alone: the table keeps a history (INSERTALLRECORDS)")
        else:
            self._refuse_shared(place, f"DROP of column {found}")
            self._sql.drop_column(script, place, found)
            have.drop(found)

    def _drop_stand_in(self, script: Script, place: TableId, have: _Names, after: dict[int, DdlColumn]) -> None:
        """Once the table has a column of the source's."""
        found = have.find(self._sql.stand_in)
        if found and any(have.find(column.name) not in (None, found) for column in after.values()):
            self._sql.drop_column(script, place, found)
            have.drop(found)

    def _rename_columns(
        self, script: Script, place: TableId, have: _Names, pairs: Sequence[tuple[DdlColumn, DdlColumn]]
    ) -> None:
        """One after the other; by another name first where the new name is still another's."""
        renamed = [(old, new) for old, new in pairs if old.name != new.name]
        taken = {old.name for old, _ in renamed}
        later: list[tuple[str, str]] = []
        for old, new in renamed:
            found = have.find(old.name)
            if found is None or (have.find(new.name) not in (None, found) and new.name not in taken):
                if have.find(new.name) is None:
                    raise CannotError(f"{_name(place)} has no column {old.name}")
                if found is not None:
                    raise CannotError(f"{_name(place)} has columns {old.name} and {new.name}")
                script.notes.append(f"column {old.name} is renamed already")
                continue
            if have.find(new.name) in (None, found):
                self._sql.rename_column(script, place, found, new.name)
                have.rename(found, new.name)
            else:
                by = f"tg_renamed_{new.number}"
                self._sql.rename_column(script, place, found, by)
                have.rename(found, by)
                later.append((by, new.name))
        for by, name in later:
            self._sql.rename_column(script, place, by, name)
            have.rename(by, name)

    def _add_column(self, script: Script, place: TableId, have: _Names, column: DdlColumn, history: bool) -> None:
        found = have.find(column.name)
        if found is not None:
            script.notes.append(f"column {found} is there already, as {have.type_of(found)}")
            return
        made = self._sql.defined(replace(column, not_null=column.not_null and not history))
        self._check_reads(made, have.type_or_none)
        self._sql.add(script, place, made)
        have.add(column.name, column.native)

    def _change_column(
        self,
        script: Script,
        place: TableId,
        have: _Names,
        old: DdlColumn,
        new: DdlColumn,
        history: bool,
        keys: int,
    ) -> None:
        retyped = (old.type, old.native) != (new.type, new.native)
        relabelled = old.inner != new.inner and not retyped
        differs = retyped or relabelled or old.not_null != new.not_null or _made(old) != _made(new)
        found = have.find(new.name)
        if not differs:
            return
        if found is None:
            raise CannotError(f"{_name(place)} has no column {new.name}")
        if _generation(old) != _generation(new):
            script.notes.append(f"column {found}: GENERATED is left as it is here")
            return
        column, present = self._sql.defined(replace(new, name=found)), have.type_of(found)
        if retyped:
            present = self._sql.retype(script, place, self._sql.defined(old), column, present, keys)
        if relabelled and history:
            script.notes.append(f"column {found} keeps the values that it had: the table keeps a history")
        elif relabelled:
            self._sql.relabel(script, place, self._sql.defined(old), column, have.column(found))
        if old.default != new.default and not new.generated:
            self._sql.set_default(script, place, column)
        if old.not_null != new.not_null and not history:
            self._sql.set_not_null(script, place, column, present)

    def _change_key(
        self,
        script: Script,
        rule: MapRule,
        place: TableId,
        present: TargetTable,
        have: _Names,
        shapes: tuple[TableShape, TableShape],
    ) -> None:
        """The key that the source had is dropped, and the one that it has is made; one of the target's own stays."""
        after = shapes[1]
        numbers = [[c.number for name in s.key for c in s.columns if c.name == name] for s in shapes]
        if numbers[0] == numbers[1] or rule.toggles.insert_all:
            return
        if rule.key_columns:
            script.notes.append("the key is left as it is here: the MAP has KEYCOLS")
            return
        wanted = [
            (column, have.find(column.name)) for name in after.key for column in after.columns if column.name == name
        ]
        names = [found for _, found in wanted if found is not None]
        if len(names) < len(wanted):
            raise CannotError(f"{_name(place)} lacks a column of the key ({', '.join(after.key)})")
        if names and (set(names) == set(present.primary) or (set(names) in present.unique and not present.primary)):
            script.notes.append("the key is there already")
            return
        kept = [number for number in numbers[0] if number in after.by_number]
        if not self._drop_key(script, place, present, shapes, (len(numbers[0]) - len(kept), len(kept))):
            return
        if frozenset(names) in present.unique:
            script.notes.append("the key is unique here already")
        elif names:
            key = [
                (self._sql.defined(replace(column, name=found)), have.type_of(found))
                for column, found in wanted
                if found
            ]
            self._sql.add_key(script, place, key)

    def _drop_key(
        self,
        script: Script,
        place: TableId,
        present: TargetTable,
        shapes: tuple[TableShape, TableShape],
        counts: tuple[int, int],
    ) -> bool:
        """Drop the key that the source had; whether there is room for another one then."""
        before, after = shapes
        now = {
            after.by_number[c.number].name
            for c in before.columns
            if c.name in before.key and c.number in after.by_number
        }
        there = {name.lower() for name in present.primary}
        known = [{name.lower() for name in names} for names in (before.key, now) if names]
        if there and there not in known:
            script.notes.append(f"the key is left as it is here ({', '.join(present.primary)}): it is not the source's")
            return False
        if there and not present.primary_name:
            self._sql.drop_made_key(script, (present.schema, present.name))
        elif before.key:
            self._sql.drop_key(script, place, present.primary_name if there else "", *counts)
        return True


class _Names:
    """The target's columns while they change; the source's names find them whatever their case."""

    def __init__(self, table: TargetTable) -> None:
        self._types = {column.name: column.type for column in table.columns}
        self._columns = {column.name: column for column in table.columns}

    def find(self, name: str) -> str | None:
        if name in self._types:
            return name
        close = [known for known in self._types if known.lower() == name.lower()]
        return close[0] if len(close) == 1 else None

    def all_in(self, names: Iterable[str]) -> bool:
        """Whether no column would be left without these."""
        return self._types.keys() <= {self.find(name) for name in names}

    def type_of(self, name: str) -> str:
        return self._types[name]

    def type_or_none(self, name: str) -> str | None:
        return self._types.get(name)

    def column(self, name: str) -> TargetColumn:
        """As the catalog had it, under the name that it has by now."""
        return self._columns[name]

    def add(self, name: str, kind: str) -> None:
        self._types[name] = kind

    def drop(self, name: str) -> None:
        del self._types[name]

    def rename(self, old: str, new: str) -> None:
        self._types[new] = self._types.pop(old)
        if old in self._columns:
            self._columns[new] = replace(self._columns.pop(old), name=new)


def _pairs(
    old: Sequence[MappedTable], new: Sequence[MappedTable]
) -> tuple[list[tuple[MappedTable, MappedTable]], list[MappedTable], list[MappedTable]]:
    """Which target before is which after: those of one MAP first, then in their order; and what is left over."""
    both: list[tuple[MappedTable, MappedTable]] = []
    come = list(new)
    gone: list[MappedTable] = []
    for mapped in old:
        same = next((other for other in come if other.rule is mapped.rule or other.rule == mapped.rule), None)
        if same is None:
            gone.append(mapped)
        else:
            both.append((mapped, same))
            come.remove(same)
    pairs = min(len(gone), len(come))
    both += zip(gone[:pairs], come[:pairs], strict=True)
    return both, gone[pairs:], come[pairs:]


def _both_kept(old: MapRule, new: MapRule, before: TableShape, after: TableShape) -> tuple[TableShape, TableShape]:
    """The shapes with only the columns that the MAP carries by name, before as after."""
    left = {c.number for c in before.columns if not _is_carried(old, c.name)}
    left |= {c.number for c in after.columns if not _is_carried(new, c.name)}

    def kept(shape: TableShape) -> TableShape:
        names = {column.name for column in shape.columns if column.number not in left}
        return shape.keeping(names.__contains__)

    return kept(before), kept(after)


def _is_carried(rule: MapRule, name: str) -> bool:
    """Whether a target column has the source column's name and values."""
    assigned = {item.column.strip('"').lower() for item in rule.colmap}
    return rule.use_defaults and name.lower() not in assigned and is_named(rule, name)


def is_named(rule: MapRule, name: str) -> bool:
    """Whether COLS and COLSEXCEPT leave the column in."""
    cols, leave_out = ({n.strip('"').lower() for n in names} for names in (rule.columns, rule.columns_except))
    return (not cols or name.lower() in cols) and name.lower() not in leave_out


def _key(rule: MapRule, shape: TableShape) -> tuple[str, ...]:
    """The primary key of a new table: KEYCOLS if they can be one, else the source's."""
    by_name = {column.name.lower(): column for column in shape.columns}
    wanted = [by_name.get(name.strip('"').lower()) for name in rule.key_columns]
    if wanted and all(column is not None and column.not_null for column in wanted):
        return tuple(column.name for column in wanted if column is not None)
    return shape.key if not wanted else ()


def _made(column: DdlColumn) -> tuple[str | None, str, bool]:
    return column.default, column.identity, column.generated


def _generation(column: DdlColumn) -> tuple[str, bool]:
    return column.identity, column.generated


def _name(place: TableId) -> str:
    return ".".join(place)


def _carry(place: TableId, script: Script) -> Carry:
    return Carry(_name(place), tuple(script.statements), tuple(script.notes), tuple(script.types.items()))
