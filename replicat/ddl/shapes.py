"""From a change of a table's shape at the source to what each mapped target table needs: pure, no database.

The two shapes are compared by column number, and what differs becomes statements (ddl/sql.py):

    drop columns, rename, add, retype, defaults, NOT NULL, a first key

Rule: each step is left out where the target's present shape shows that it is done: by hand after an ABEND, by another
source table of the same target, or before a crash where the target commits each statement by itself. What a MAP does
not carry (columns that COLMAP or COLS govern, a history's NOT NULL and keys) is left alone, with a note.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from replicat.ddl.sql import DIALECTS, Dialect, NoStatementError, Place, Script, is_retyped
from replicat.mapping.params import MapRule
from replicat.target import TargetTable
from trails.ddl import DDL_FILLED, DDL_ROWS, DDL_USING, DdlChange, DdlColumn, TableShape
from trails.errors import OperatorError

Look = Callable[[Place], TargetTable | None]
BY_HAND = "Do in the target by hand what it means, then START: what is done is found done; or see DDLERROR"


class CannotError(OperatorError):
    """A change that cannot be carried to the target."""

    def __init__(self, change: DdlChange, reason: str) -> None:
        super().__init__(
            f"DDL on {change.full_name}: {reason}. The source's statement: {shown(change.sql)}", hint=BY_HAND
        )


@dataclass(frozen=True, slots=True)
class Mapped:
    """A MAP that takes the table, and where to."""

    rule: MapRule
    place: Place


@dataclass(frozen=True, slots=True)
class Carry:
    """What a change comes to for one target table."""

    target: str
    statements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def shown(sql: str) -> str:
    """A statement on one line, not too long."""
    flat = " ".join(sql.split())
    return flat if len(flat) <= 1000 else f"{flat[:1000]} ..."


def carry(
    change: DdlChange,
    old: Sequence[Mapped],
    new: Sequence[Mapped],
    look: Look,
    kind: str,
    others: Callable[[Place], Collection[str]] = lambda _place: (),
) -> Iterator[Carry]:
    """What to do, target table by target table; each is looked at once the one before is done, which may be the same.

    `old`, `new`: the MAPs that take the table before and after.
    `others`: the source tables that a target table takes, as far as they are known. CannotError says what can't be
    carried, and why.
    """
    return _Carrier(change, look, DIALECTS[kind], others).run(old, new)


class _Carrier:
    def __init__(
        self, change: DdlChange, look: Look, dialect: Dialect, others: Callable[[Place], Collection[str]]
    ) -> None:
        self._change = change
        self._look = look
        self._sql = dialect
        self._others = others

    def run(self, old: Sequence[Mapped], new: Sequence[Mapped]) -> Iterator[Carry]:
        change = self._change
        try:
            if change.new is None:
                yield from map(self._drop, old)
            elif change.old is None:
                for mapped in new:
                    yield self._create(mapped, change.new)
            else:
                yield from self._changed(old, new, change.old, change.new)
        except NoStatementError as error:
            raise CannotError(change, str(error)) from None

    def _changed(
        self, old: Sequence[Mapped], new: Sequence[Mapped], before: TableShape, after: TableShape
    ) -> Iterator[Carry]:
        both, gone, come = _pairs(old, new)
        for was, becomes in both:
            yield self._alter(was, becomes, before, after)
        for mapped in gone:
            yield Carry(_name(mapped.place), notes=("left alone: no MAP takes the table's new name",))
        yield from map(self._enters, come)

    # Whole tables

    def _create(self, mapped: Mapped, shape: TableShape) -> Carry:
        place, rule = mapped.place, mapped.rule
        if self._look(place) is not None:
            return Carry(_name(place), notes=("is there already",))
        if rule.colmap or not rule.use_defaults:
            raise CannotError(self._change, f"the columns of {_name(place)} are COLMAP's ({rule.where})")
        if self._change.flags & DDL_ROWS:
            raise CannotError(self._change, "the table held rows already, which are not in the trail")
        kept = shape.keeping(lambda name: _is_named(rule, name))
        history = rule.toggles.insert_all
        key = () if history else _key(rule, kept)
        columns = [replace(c, not_null=False) for c in kept.columns] if history else kept.columns
        script = Script()
        self._sql.create(script, place, columns, key)
        return _carry(place, script)

    def _drop(self, mapped: Mapped) -> Carry:
        place = mapped.place
        if self._look(place) is None:
            return Carry(_name(place), notes=("is dropped already",))
        if mapped.rule.toggles.insert_all:
            return Carry(_name(place), notes=("left alone: it keeps a history (INSERTALLRECORDS)",))
        self._refuse_shared(place, "DROP TABLE")
        script = Script()
        self._sql.drop(script, place)
        return _carry(place, script)

    def _enters(self, mapped: Mapped) -> Carry:
        """A table that no MAP took by its old name."""
        if self._look(mapped.place) is None:
            raise CannotError(
                self._change, f"by its new name it goes to {_name(mapped.place)}, and its rows are not in the trail"
            )
        return Carry(_name(mapped.place), notes=("is mapped from here on; what it holds must be the source's rows",))

    def _refuse_shared(self, place: Place, what: str) -> None:
        mine = {".".join(name) for name in self._change.names}
        if others := sorted(set(self._others(place)) - mine):
            raise CannotError(self._change, f"{what} of {_name(place)}, which also takes the rows of {others[0]}")

    # One table, changed

    def _alter(self, old: Mapped, new: Mapped, before: TableShape, after: TableShape) -> Carry:
        script = Script()
        place, present = self._renamed(script, old.place, new.place)
        if present is None:
            raise CannotError(self._change, f"target table {_name(old.place)} does not exist")
        self._columns(script, new.rule, place, present, _both_kept(old.rule, new.rule, before, after))
        return _carry(place, script)

    def _renamed(self, script: Script, old: Place, new: Place) -> tuple[Place, TargetTable | None]:
        """The target's name after the change, and its shape as it is now."""
        before = self._look(old)
        if old == new:
            return new, before
        after = self._look(new)
        if before is None:
            script.notes.append(f"{_name(old)} is renamed already")
            return new, after
        if after is not None:
            raise CannotError(self._change, f"{_name(old)} becomes {_name(new)}, and both exist")
        self._refuse_shared(old, "RENAME")
        self._sql.rename(script, old, new)
        return new, before

    def _columns(
        self, script: Script, rule: MapRule, place: Place, present: TargetTable, shapes: tuple[TableShape, TableShape]
    ) -> None:
        before, after = shapes[0].by_number, shapes[1].by_number
        have = _Names(present)
        self._refuse_flags(before, after, have)
        history = rule.toggles.insert_all
        for column in (before[n] for n in before.keys() - after.keys()):
            self._drop_column(script, rule, place, have, column)
        both = sorted(before.keys() & after.keys())
        self._rename_columns(script, place, have, [(before[n], after[n]) for n in both])
        for number in sorted(after.keys() - before.keys()):
            self._add_column(script, place, have, after[number], history)
        for number in both:
            self._change_column(script, place, have, before[number], after[number], history)
        self._change_key(script, place, present, shapes, history)

    def _refuse_flags(self, before: dict[int, DdlColumn], after: dict[int, DdlColumn], have: _Names) -> None:
        """What only the source could do, unless the target's columns are as if it were done already."""
        flags, both = self._change.flags, before.keys() & after.keys()
        retyped = [n for n in both if (before[n].type, before[n].native) != (after[n].type, after[n].native)]
        undone = [after[n].name for n in retyped if not self._is_retyped(before[n], after[n], have)]
        if flags & DDL_USING and (undone or not retyped):
            what = f"column {', '.join(undone)}" if undone else "a column"
            raise CannotError(self._change, f"{what} got its values by an expression (USING), which is not carried")
        filled = [column.name for n, column in after.items() if n not in before and column.missing is None]
        lacking = [name for name in filled if have.find(name) is None]
        if flags & DDL_FILLED and lacking:
            raise CannotError(
                self._change, f"rows got values in column {', '.join(lacking)} that only the source knows"
            )

    def _is_retyped(self, old: DdlColumn, new: DdlColumn, have: _Names) -> bool:
        found = have.find(new.name) or have.find(old.name)
        return found is not None and is_retyped(self._sql.kind, old, new, have.type_of(found))

    def _drop_column(self, script: Script, rule: MapRule, place: Place, have: _Names, column: DdlColumn) -> None:
        found = have.find(column.name)
        if found is None:
            script.notes.append(f"column {column.name} is dropped already")
        elif rule.toggles.insert_all:
            script.notes.append(f"column {found} is left alone: the table keeps a history (INSERTALLRECORDS)")
        else:
            self._refuse_shared(place, f"DROP of column {found}")
            self._sql.drop_column(script, place, found)
            have.drop(found)

    def _rename_columns(
        self, script: Script, place: Place, have: _Names, pairs: Sequence[tuple[DdlColumn, DdlColumn]]
    ) -> None:
        """One after the other; by another name first where the new name is still another's."""
        renamed = [(old, new) for old, new in pairs if old.name != new.name]
        taken = {old.name for old, _ in renamed}
        later: list[tuple[str, str]] = []
        for old, new in renamed:
            found = have.find(old.name)
            if found is None or (have.find(new.name) not in (None, found) and new.name not in taken):
                if have.find(new.name) is None:
                    raise CannotError(self._change, f"{_name(place)} has no column {old.name}")
                if found is not None:
                    raise CannotError(self._change, f"{_name(place)} has columns {old.name} and {new.name}")
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

    def _add_column(self, script: Script, place: Place, have: _Names, column: DdlColumn, history: bool) -> None:
        found = have.find(column.name)
        if found is not None:
            script.notes.append(f"column {found} is there already, as {have.type_of(found)}")
            return
        self._sql.add(script, place, replace(column, not_null=column.not_null and not history))
        have.add(column.name)

    def _change_column(
        self, script: Script, place: Place, have: _Names, old: DdlColumn, new: DdlColumn, history: bool
    ) -> None:
        retyped = (old.type, old.native) != (new.type, new.native)
        differs = retyped or old.not_null != new.not_null or _made(old) != _made(new)
        found = have.find(new.name)
        if not differs:
            return
        if found is None:
            raise CannotError(self._change, f"{_name(place)} has no column {new.name}")
        if _generation(old) != _generation(new):
            script.notes.append(f"column {found}: GENERATED is left as it is here")
            return
        column, present = replace(new, name=found), have.type_of(found)
        if retyped:
            present = self._sql.retype(script, place, old, column, present)
        if old.default != new.default and not new.generated:
            self._sql.set_default(script, place, column)
        if old.not_null != new.not_null and not history:
            self._sql.set_not_null(script, place, column, present)

    def _change_key(
        self, script: Script, place: Place, present: TargetTable, shapes: tuple[TableShape, TableShape], history: bool
    ) -> None:
        before, after = shapes
        numbers = [[c.number for name in s.key for c in s.columns if c.name == name] for s in shapes]
        if numbers[0] == numbers[1] or history:
            return
        if frozenset(after.key) in present.unique:
            script.notes.append("the key is there already")
        elif before.key or not after.key:
            script.notes.append("the key is left as it is here: change it by hand")
        else:
            self._sql.add_key(script, place, after.key)


class _Names:
    """The target's columns while they change; the source's names find them whatever their case."""

    def __init__(self, table: TargetTable) -> None:
        self._types = {column.name: column.type for column in table.columns}

    def find(self, name: str) -> str | None:
        if name in self._types:
            return name
        close = [known for known in self._types if known.lower() == name.lower()]
        return close[0] if len(close) == 1 else None

    def type_of(self, name: str) -> str:
        return self._types[name]

    def add(self, name: str) -> None:
        self._types[name] = ""

    def drop(self, name: str) -> None:
        del self._types[name]

    def rename(self, old: str, new: str) -> None:
        self._types[new] = self._types.pop(old)


def _pairs(
    old: Sequence[Mapped], new: Sequence[Mapped]
) -> tuple[list[tuple[Mapped, Mapped]], list[Mapped], list[Mapped]]:
    """Which target before is which after: those of one MAP first, then in their order; and what is left over."""
    both: list[tuple[Mapped, Mapped]] = []
    come = list(new)
    gone: list[Mapped] = []
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
    return rule.use_defaults and name.lower() not in assigned and _is_named(rule, name)


def _is_named(rule: MapRule, name: str) -> bool:
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


def _name(place: Place) -> str:
    return ".".join(place)


def _carry(place: Place, script: Script) -> Carry:
    return Carry(_name(place), tuple(script.statements), tuple(script.notes))
