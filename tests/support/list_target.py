"""A target without a database: tables as dicts (with a key) and lists (without), the row beside them, atomic commits.

It takes the very steps that a database target takes, so it also shows what the steps mean. `faults` makes calls fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from replicat.model.again import PlaceLostError
from replicat.model.copytext import rows_of
from replicat.model.target import (
    NO_ROW,
    ROW_EXISTS,
    Bag,
    Blob,
    CheckpointRow,
    Compare,
    Fill,
    Layout,
    Patch,
    RefusedError,
    Rows,
    Step,
    Tally,
    TargetColumn,
    TargetTable,
    Truncate,
    Work,
)
from replicat.targets.kinds import kind_of
from trails.record import MISSING, Image, Value


@dataclass
class Store:
    """What survives a target's connection: committed tables and rows. `flushed` is what also survives its crash.

    `row`: the group's; `others`: rows that somebody else speaks for.
    """

    tables: dict[tuple[str, str], Any] = field(default_factory=dict)
    row: CheckpointRow | None = None
    flushed: Any = None
    others: dict[tuple[str, int], CheckpointRow] = field(default_factory=dict)

    def crash(self) -> None:
        """Lose what was committed but not flushed."""
        tables, self.row, others = self.flushed or ({}, None, {})
        self.tables, self.others = copied(tables), dict(others)


def copied(tables: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """Tables of their own; rows are never changed, only replaced."""
    return {name: table.copy() for name, table in tables.items()}


def parse(data: bytes) -> list[tuple[Value, ...]]:
    """What a worker made of rows, back to rows."""
    return [tuple(row) for row in rows_of(data)]


def held(blob: Blob) -> list[tuple[Value, ...]]:
    """A blob's rows."""
    return parse(blob.read())


class ListTarget:
    """See Target. `shapes`: the tables that exist; `unique`: (table, column) with unique values."""

    kind = kind_of("sqlite")  # for what it can do, and because it has no clock of its own either
    row_table = ""

    def __init__(self, store: Store, shapes: list[TargetTable], unique: tuple[tuple[str, str], ...] = ()) -> None:
        self.store = store
        self.shapes = {(shape.schema, shape.name): shape for shape in shapes}
        self.unique = unique
        self.log: list[str] = []
        self.faults: Callable[[str], None] = lambda call: None
        self.tally = Tally()
        self.checks: Callable[[str, Any], str] = lambda table, row: ""
        """What a row by itself may violate: the complaint, or nothing."""
        self.whole: Callable[[Any], str] = lambda tables: ""
        """What only a whole transaction may violate: the complaint, or nothing."""
        self._who: tuple[str, int] | None = None
        self._tables: dict[tuple[str, str], Any] | None = None
        self._new: CheckpointRow | None = None

    def _call(self, name: str) -> None:
        self.log.append(name)
        self.faults(name)

    def connect(self) -> None:
        self._call("connect")
        self._tables = None

    def load_row(self) -> CheckpointRow | None:
        self._call("load_row")
        return self.store.row if self._who is None else self.store.others.get(self._who)

    def add_row(self, row: CheckpointRow) -> None:
        self._call("add_row")
        self._set_row(row)
        self._flushed()

    def _set_row(self, row: CheckpointRow | None) -> None:
        if self._who is None:
            self.store.row = row
        elif row is not None:
            self.store.others[self._who] = row

    def table(self, schema: str, name: str) -> TargetTable | None:
        return self.shapes.get((schema, name))

    def tables(self, places: Iterable[tuple[str, str]]) -> dict[tuple[str, str], TargetTable]:
        return {place: self.shapes[place] for place in places if place in self.shapes}

    def speak_for(self, group: str, group_key: int) -> None:
        self._who = (group, group_key) if " " in group else None

    def check_layout(self, layout: Any) -> None:
        return

    def begin(self, old: CheckpointRow, new: CheckpointRow) -> None:
        self._call("begin")
        self._check(old)
        self._tables, self._new = copied(self.store.tables), new
        self.tally.collisions = {}

    def move_on(self, new: CheckpointRow) -> None:
        self._call("move_on")
        assert self._tables is not None
        self._new = new

    def apply(
        self,
        steps: tuple[Step, ...],
        *,
        first: bool = False,
        rewrite: bool = False,
        single: bool = False,
        border: bool = False,
    ) -> None:
        self._call("rewrite" if rewrite else "apply")
        before = self.mark()
        try:
            for step in steps:
                self._truncate(step) if isinstance(step, Truncate) else self._work(step, rewrite)
                if isinstance(step, Work) and step.border:
                    self._check_whole()
            if border:
                self._check_whole()
        except RefusedError:
            self.undo(before)
            raise

    def check_commit(self) -> None:
        self._call("check_commit")
        self._check_whole()

    def _check_whole(self) -> None:
        if complaint := self.whole(self._tables):
            raise RefusedError(complaint.partition(":")[0], complaint, "23503")

    def mark(self) -> object:
        assert self._tables is not None
        return copied(self._tables), dict(self.tally.collisions)

    def undo(self, token: object) -> None:
        tables, collided = token  # type: ignore[misc]
        self._tables, self.tally.collisions = copied(tables), dict(collided)

    def current(self, layout: Layout, key: tuple[Value, ...]) -> Image | None:
        assert self._tables is not None
        row = self._tables.get((layout.schema, layout.name), {}).get(key)
        return None if row is None else tuple(row[: len(layout.columns)])

    def put(self, layout: Layout, row: Image) -> None:
        assert self._tables is not None
        table = self._tables.setdefault((layout.schema, layout.name), {})
        key = tuple(row[layout.columns.index(name)] for name in layout.key)
        there = table.get(key, (MISSING,) * len(row))
        now = tuple(old if new is MISSING else new for old, new in zip(there, row, strict=False))
        self._check_unique(layout.full_name, layout.columns, table, key, now)
        table[key] = now

    def remove(self, layout: Layout, key: tuple[Value, ...]) -> bool:
        assert self._tables is not None
        return self._tables.get((layout.schema, layout.name), {}).pop(key, None) is not None

    def cautions(self) -> list[str]:
        """None."""
        return []

    def dialect(self, source: Any) -> Any:
        """As the kind has it."""
        return self.kind.dialect(source)

    def check_types(self, types: Any) -> None:
        """Every type is trusted."""

    def read(self, statement: str, params: Any = ()) -> list[tuple[Any, ...]]:
        """Only its clock is asked for: here are no tables for heartbeats."""
        return [(0,)]

    def ddl(self, statements: tuple[str, ...]) -> None:
        raise NotImplementedError("no statements here")

    def commit(self) -> None:
        self._call("commit")
        assert self._tables is not None
        self.store.tables, self._tables = self._tables, None
        self._set_row(self._new)
        self.faults("committed")

    def flush(self, old: CheckpointRow, new: CheckpointRow) -> None:
        self._call("flush")
        self._check(old)
        self._set_row(new)
        self._flushed()

    def close(self) -> None:
        self._tables = None

    def _flushed(self) -> None:
        self.store.flushed = copied(self.store.tables), self.store.row, dict(self.store.others)

    def _check(self, old: CheckpointRow) -> None:
        found = self.store.row if self._who is None else self.store.others.get(self._who)
        if found is None or not found.is_at(old):
            raise PlaceLostError(f"row at {found and found.position}, expected {old.position}")

    def _truncate(self, step: Truncate) -> None:
        assert self._tables is not None
        for table in step.tables:
            self._tables.pop(table, None)

    def _work(self, work: Work, rewrite: bool) -> None:
        for rows in work.rows:
            Effect(self, rows, rewrite).apply()
        for bag in work.bags:
            self._bag(bag)

    def _check_unique(self, name: str, columns: tuple[str, ...], table: Any, key: Any, row: Any) -> None:
        if complaint := self.checks(name, row):
            raise RefusedError(name, complaint, "23514")
        for where, column in self.unique:
            if where == name and column in columns:
                i = columns.index(column)
                if any(other[i] == row[i] and at != key for at, other in table.items()):
                    raise RefusedError(name, f"{column} {row[i]} is there already", ROW_EXISTS, "1062")

    def _bag(self, bag: Bag) -> None:
        assert self._tables is not None
        table = self._tables.setdefault((bag.layout.schema, bag.layout.name), [])
        for match in bag.matches:
            for _, *given in held(match.rows):
                fields = iter(given)
                was = tuple(None if i in match.nulls else next(fields) for i in range(len(bag.layout.columns)))
                if was not in table:
                    raise RefusedError(bag.layout.full_name, f"no row {was}", NO_ROW)
                at = table.index(was)
                table[at : at + 1] = [tuple(fields)] if match.update else []
        table.extend(held(bag.inserts))


class Effect:
    """One table's net effect on a dict of its rows: what Rows means, said a second time and as plainly as can be.

    A row is its columns, then the target's own (Layout.extras), which begin as None.
    """

    def __init__(self, target: ListTarget, rows: Rows, rewrite: bool) -> None:
        assert target._tables is not None
        self.target, self.rows, self.layout, self.rewrite = target, rows, rows.layout, rewrite
        self.table = target._tables.setdefault((self.layout.schema, self.layout.name), {})
        self.at = [self.layout.columns.index(name) for name in self.layout.key]
        self.width = len(self.layout.columns)

    def key(self, row: Any) -> tuple[Any, ...]:
        return tuple(row[i] for i in self.at)

    def collided(self, which: int, what: Any) -> None:
        """Counted, or refused."""
        if not (self.layout.collisions or (self.layout.insert_missing and which == 1)):
            raise RefusedError(self.layout.full_name, f"{what}", ROW_EXISTS if which == 0 else NO_ROW)
        counts = list(self.target.tally.collisions.get((self.layout.schema, self.layout.name), (0, 0, 0)))
        counts[which] += 1
        self.target.tally.collisions[self.layout.schema, self.layout.name] = (counts[0], counts[1], counts[2])

    def apply(self) -> None:
        for compare in self.rows.compares:
            self.compare(compare)
        for which, number in enumerate(self.rows.collisions):
            for _ in range(number):
                self.collided(which, "an impossible change")
        filled = [(fill, row) for fill in self.rows.fills if (row := self.fill(fill)) is not None]
        self.delete()
        written = [self.moved(fill, row) for fill, row in filled]
        written += [self.update(row) for row in held(self.rows.updates)]
        for patch in self.rows.patches:
            written += [row for given in held(patch.rows) if (row := self.patch(patch, given)) is not None]
        if self.rewrite:
            for row in written:
                self.table.pop(self.key(row), None)
        for row in written:
            self.write(row)
        for row in held(self.rows.upserts):
            self.write((*row, *self.table.get(self.key(row), self.fresh(row))[self.width :]))
        for row in held(self.rows.inserts):
            there = self.table.get(self.key(row))
            if there is not None:
                self.collided(0, f"row {self.key(row)} is there already")
            self.write((*row, *(there or self.fresh(row))[self.width :]))

    def compare(self, compare: Compare) -> None:
        for given in held(compare.rows):
            row = self.table.get(given[: len(self.at)])
            if row is None or tuple(row[i] for i in compare.columns) != given[len(self.at) :]:
                raise RefusedError(self.layout.full_name, f"row {given} is not as it was before", NO_ROW)

    def delete(self) -> None:
        for key in held(self.rows.deletes):
            if self.table.pop(key, None) is None:
                self.collided(2, f"no row {key} to delete")
        for key in held(self.rows.removes):
            self.table.pop(key, None)
        for key in held(self.rows.void):
            if key in self.table:
                self.collided(0, f"row {key} is there already")
                del self.table[key]

    def moved(self, fill: Fill, row: Any) -> Any:
        if fill.must and fill.there != (self.key(row) in self.table):
            self.collided(1, f"row {self.key(row)} is there, or not, as it should not be")
        return row

    def fresh(self, row: Any) -> Any:
        return (*row, *(None for _ in self.layout.extras))

    def write(self, row: Any) -> None:
        key = self.key(row)
        self.target._check_unique(self.layout.full_name, self.layout.columns, self.table, key, row)
        self.table[key] = row

    def update(self, row: Any) -> Any:
        there = self.table.get(self.key(row))
        if there is None:
            self.collided(1, f"no row {self.key(row)} to update")
        return (*row, *(there or self.fresh(row))[self.width :])

    def patch(self, patch: Patch, given: Any) -> Any:
        values = dict(zip(patch.given, given, strict=True))
        key = tuple(values[i] for i in self.at)
        there = self.table.get(key)
        if there is None:
            if patch.must and not self.layout.collisions:
                raise RefusedError(self.layout.full_name, f"no row {key} to update", NO_ROW)
            if patch.must:
                self.collided(1, f"no row {key}")
            return None
        return tuple(values.get(i, value) for i, value in enumerate(there))

    def fill(self, fill: Fill) -> Any:
        for number, (base, row) in enumerate(((fill.base, fill.row), *fill.others)):
            if base in self.table:
                if number and fill.must:
                    self.collided(1, f"no row {fill.base}")
                there = self.table[base]
                own = (old if new is MISSING else new for old, new in zip(there, row, strict=False))
                return (*own, *there[self.width :])
        if fill.must and fill.new is None and not self.layout.collisions:
            raise RefusedError(self.layout.full_name, f"no row {fill.base}", NO_ROW)
        if fill.must:
            self.collided(1, f"no row {fill.base}")
        return None if fill.new is None else self.fresh(fill.new)


def shape(schema: str, name: str, columns: str, key: str = "") -> TargetTable:
    """`shape("s", "t", "id v", "id")`: a table of text columns with a unique key."""
    unique = (frozenset(key.split()),) if key else ()
    return TargetTable(schema, name, tuple(TargetColumn(c, "text") for c in columns.split()), unique)
