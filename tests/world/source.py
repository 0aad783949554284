"""The source database of the world: a log of committed transactions that outlives its readers, and its connection.

A transaction's place is ten times its number, so that there are places between two, where the log has what nobody
captures. Each place has a state, and the source wants it back with that very place.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from extract.longtrans import Outstanding
from extract.source import Sink, SourceFacts, ThreadPlaces
from tests.support.ddl_target import definition, table_shape
from tests.support.replicat_trail import table
from trails.checkpoint import Place
from trails.ddl import ALTER, CREATE, DROP, RENAME, DdlChange, DdlColumn, TableShape
from trails.errors import MismatchError, OperatorError
from trails.position import Position
from trails.record import Op, TableDef

if TYPE_CHECKING:
    from tests.world.world import World

KV, NOTES = table("s", "kv", "id v", "id"), table("s", "notes", "note")
ODDS = table("s", "odds", "id v", "id")
"""Of its rows the target refuses the odd ones."""
ODD, EVEN = "odd", "even"
WIDE = table_shape("s", "wide", "1:id 2:a")
"""The first of the tables that change their shapes, come and go."""
STEP = 10
"""Places between one transaction and the next."""

CHANGE_BYTES = 60
"""What a change is said to take."""
LARGE = 10
"""Changes; of a larger transaction the source may pause between two."""

MOST_COLUMNS, MOST_TABLES = 5, 3
Tables = dict[str, Any]
"""`kv` and `odds`: rows by key; `notes`: rows, sorted; `shaped`: of each other table the columns, and rows by key."""


@dataclass(frozen=True)
class Change:
    """One change, as a record has it: `values` is the image, and the one before; of TRUNCATE its flags, of DDL what
    became of which table's shape.
    """

    op: Op
    table: TableDef | None
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Commit:
    """One transaction."""

    number: int
    changes: tuple[Change, ...]

    @property
    def csn(self) -> str:
        """Sorts as the number does."""
        return f"{self.number:016d}"

    @property
    def place(self) -> int:
        """Behind it."""
        return self.number * STEP


_EMPTY: Tables = {"kv": {}, "odds": {}, "notes": [], "shaped": {"wide": (("id", "a"), {})}}


@dataclass
class SourceLog:
    """The server. What is at or below `confirmed` is gone for good; `states` are its tables after each transaction, but
    for what the target refuses: the keys of those rows are `odd`, by transaction.
    """

    identity: dict[str, str] = field(default_factory=lambda: {"kind": "simulated", "system": "1"})
    commits: list[Commit] = field(default_factory=list)
    confirmed: int = 0
    odd: dict[str, int] = field(default_factory=dict)
    states: list[Tables] = field(default_factory=lambda: [_EMPTY])


def state_of(place: int) -> str:
    """What the source says with a place; a new trail has none."""
    return f"<{place}>" * (place * 7 % 5 + 1) if place else ""


class Workload:
    """Makes transactions that fit to what the tables hold."""

    def __init__(self, seed: int, log: SourceLog) -> None:
        self._draw = random.Random(f"{seed} workload")
        self._log = log
        self._kv: dict[str, str] = {}
        self._notes: list[str] = []
        self._even: set[str] = set()
        self._shaped: dict[str, tuple[TableShape, dict[str, tuple[str, ...]]]] = {"wide": (WIDE, {})}

    def commit(self) -> Commit:
        """One more transaction."""
        number = len(self._log.commits) + 1
        size = self._draw.randint(15, 50) if self._draw.random() < 0.15 else self._draw.randint(1, 5)
        made = Commit(number, tuple(self._change(f"{number}.{n}") for n in range(size)))
        self._log.commits.append(made)
        self._log.states.append({
            "kv": {(k,): (k, v) for k, v in self._kv.items()},
            "odds": {(key,): (key, EVEN) for key in self._even},
            "notes": self._sorted_notes(),
            "shaped": {
                name: (tuple(column.name for column in shape.columns), {(key,): row for key, row in rows.items()})
                for name, (shape, rows) in self._shaped.items()
            },
        })  # fmt: skip
        return made

    def _sorted_notes(self) -> list[tuple[str]]:
        return sorted((note,) for note in self._notes)

    def _change(self, value: str) -> Change:
        kind = self._draw.random()
        if kind < 0.3:
            return self._note(value)
        if kind < 0.31:
            self._kv.clear()
            return Change(Op.TRUNCATE, KV, (0,))
        if kind < 0.33:
            return self._ddl(value)
        if kind < 0.37:
            return self._odd_or_even(value)
        return self._shaped_row(value) if kind < 0.5 and self._shaped else self._row(value)

    def _ddl(self, value: str) -> Change:
        """CREATE TABLE, or of one of them ALTER TABLE ADD, DROP or RENAME COLUMN, RENAME, DROP TABLE."""
        kind = self._draw.random()
        if not self._shaped or (kind < 0.2 and len(self._shaped) < MOST_TABLES):
            return self._reshaped(None, table_shape("s", f"t{value}", "1:id 2:b"), {})
        name = self._draw.choice(sorted(self._shaped))
        shape, rows = self._shaped[name]
        number = max(column.number for column in shape.columns) + 1
        if kind < 0.3:
            return self._reshaped(shape, None, {})
        if kind < 0.4:
            return self._reshaped(shape, replace(shape, name=f"r{value}"), rows)
        at = self._draw.randrange(1, len(shape.columns)) if len(shape.columns) > 1 else 0
        if at and (kind < 0.6 or len(shape.columns) > MOST_COLUMNS):
            left = {key: row[:at] + row[at + 1 :] for key, row in rows.items()}
            return self._reshaped(shape, _with(shape, shape.columns[:at] + shape.columns[at + 1 :]), left)
        if at and kind < 0.7:
            other = replace(shape.columns[at], name=f"n{value}")
            return self._reshaped(shape, _with(shape, (*shape.columns[:at], other, *shape.columns[at + 1 :])), rows)
        added = DdlColumn(number, f"c{value}", "text", "text", default=f"'{value}'", missing=value)
        filled = {key: (*row, value) for key, row in rows.items()}
        return self._reshaped(shape, _with(shape, (*shape.columns, added)), filled)

    def _reshaped(self, old: TableShape | None, new: TableShape | None, rows: dict[str, tuple[str, ...]]) -> Change:
        if old is not None:
            del self._shaped[old.name]
        if new is not None:
            self._shaped[new.name] = new, rows
        op = CREATE if old is None else DROP if new is None else RENAME if old.name != new.name else ALTER
        return Change(Op.DDL, None, (DdlChange(op, old, new, f"{op} TABLE ..."),))

    def _shaped_row(self, value: str) -> Change:
        name = self._draw.choice(sorted(self._shaped))
        shape, rows = self._shaped[name]
        key, named = str(self._draw.randrange(6)), definition(shape)
        before = rows.get(key)
        if before is not None and self._draw.random() < 0.3:
            del rows[key]
            return Change(Op.DELETE, named, (list(before),))
        rows[key] = (key, *(f"{value}{column.number}" for column in shape.columns[1:]))
        if before is None:
            return Change(Op.INSERT, named, (list(rows[key]),))
        return Change(Op.UPDATE, named, (list(rows[key]), list(before)))

    def _odd_or_even(self, value: str) -> Change:
        if self._draw.random() < 0.5:
            self._even.add(value)
            return Change(Op.INSERT, ODDS, ([value, EVEN],))
        self._log.odd[value] = len(self._log.commits) + 1
        return Change(Op.INSERT, ODDS, ([value, ODD],))

    def _note(self, value: str) -> Change:
        if self._notes and self._draw.random() < 0.3:
            gone = self._notes.pop(self._draw.randrange(len(self._notes)))
            return Change(Op.DELETE, NOTES, ([gone],))
        self._notes.append(value)
        return Change(Op.INSERT, NOTES, ([value],))

    def _row(self, value: str) -> Change:
        """Any key of few, so that the same rows are met again and again."""
        few, many = (8, 8) if self._draw.random() < 0.4 else (40, 100)
        kv, key, kind = self._kv, str(self._draw.randrange(few)), self._draw.random()
        before = kv.get(key)
        if before is None:
            kv[key] = value
            return Change(Op.INSERT, KV, ([key, value],))
        if kind < 0.3:
            del kv[key]
            return Change(Op.DELETE, KV, ([key, before],))
        other = str(self._draw.randrange(many))
        if kind < 0.5 and other not in kv:
            del kv[key]
        else:
            other = key
        kv[other] = value
        return Change(Op.UPDATE, KV, ([other, value], [key, before]))


def _with(shape: TableShape, columns: tuple[DdlColumn, ...]) -> TableShape:
    return replace(shape, columns=columns)


class SimSource:
    """One connection to it. See extract.source.Source."""

    def __init__(self, world: World) -> None:
        self.world, self.log = world, world.log
        self._draw = world.draws["source"]
        self._sink: Sink | None = None
        self._released = 0
        self._steps: Iterator[bool] = iter(())

    def identify(self, known: dict[str, str] | None) -> dict[str, str]:
        if known is not None and known != self.log.identity:
            raise MismatchError(f"another source: expected {known}, found {self.log.identity}")
        return dict(self.log.identity)

    def first_origin(self) -> Position:
        return Position(0, 0)

    def origin_of(self, order: dict[str, Any]) -> Position:
        place = int(order["csn"])
        if place < self.log.confirmed:
            raise OperatorError(f"the source has let go of changes before {self.log.confirmed}")
        return Position(0, place)

    def fits(self, origin: Position, state: str) -> None:
        self._check_state(origin.rba, state)

    def _check_state(self, place: int, state: str) -> None:
        if state != state_of(place):
            self.world.rules.broken(f"the source's state of place {place} came back as {state!r}")

    def start(self, origin: Position, state: str, sink: Sink) -> None:
        self._check_state(origin.rba, state)
        if self.log.confirmed > origin.rba:
            raise MismatchError(f"confirmed up to {self.log.confirmed}, the trail ends at {origin.rba}")
        self._sink = sink
        self._confirm(origin)  # the trail has been recovered up to here: it is durable
        self._steps = self._walk(origin.rba)

    def _confirm(self, origin: Position) -> None:
        if origin.rba > self.log.confirmed:
            self.world.rules.source_told(origin)
            self.log.confirmed = origin.rba

    def poll(self) -> bool:
        self.world.edge("source", "poll")
        return next(self._steps, False)

    def _walk(self, origin: int) -> Iterator[bool]:
        """Hand over what stands behind a place, as it comes."""
        sink = self._sink
        assert sink is not None
        number, idle = divmod(origin, STEP)
        while True:
            if number < len(self.log.commits):
                for more in self._hand_over(sink, self.log.commits[number]):
                    if more is None:
                        self.world.met("source lost")
                        self.world.tell("source", f"the connection is lost inside transaction {number + 1}")
                        sink.abandon()
                        self._check_state(sink.origin.rba, sink.state)
                        self._steps = self._walk(sink.origin.rba)
                        yield False
                        return
                    yield more
                number, idle = number + 1, 0
            else:
                if idle < STEP - 1 and self._draw.random() < 0.3:
                    idle += 1
                    if self.log.confirmed < number * STEP:
                        self.world.windows.met("CW-27")
                    place = number * STEP + idle
                    sink.reached(Position(0, place), self.world.now, state_of(place))
                yield False

    def _hand_over(self, sink: Sink, commit: Commit) -> Iterator[bool | None]:
        """Begin, changes, commit. None where the connection breaks."""
        sink.begin(commit.csn, str(commit.number), commit.number)
        slow = len(commit.changes) > LARGE and self._draw.random() < self.world.plan.sizes.slow
        for change in commit.changes:
            if self.world.hostile and self._draw.random() < self.world.plan.sizes.source_lost:
                yield None
            self._change(sink, change)
            if self._draw.random() < 0.3:
                yield True
            elif slow and self._draw.random() < 0.1:
                yield False
        sink.commit(Position(0, commit.place), commit.csn, commit.number, state_of(commit.place))
        yield commit.number < len(self.log.commits)

    def _change(self, sink: Sink, change: Change) -> None:
        if change.table is None:
            sink.ddl(*change.values)
            return
        index, op = sink.table(change.table), int(change.op)
        record = (op, (index,), *change.values) if change.op == Op.TRUNCATE else (op, index, *change.values)
        sink.records.append(record)
        sink.grew(CHANGE_BYTES)
        self.world.rules.gathered(sink._size)  # type: ignore[attr-defined]

    def release(self, origin: Position) -> None:
        self._confirm(origin)

    def waits(self) -> list[int]:
        return []

    def idle_seconds(self) -> float:
        return 0.2

    def outstanding(self) -> Outstanding:
        return Outstanding()

    waits_for = ""

    def place(self, origin: Position, time_us: int | None) -> Place:
        return Place(origin.seqno, origin.rba, time_us, f"{origin.rba:016d}")

    def facts(self, origin: Position, state: str, time_us: int | None) -> SourceFacts:
        self._check_state(origin.rba, state)
        current = self.place(self._sink.origin if self._sink is not None else Position(0, 0), None)
        return SourceFacts("Simulated Log", [ThreadPlaces(self.place(origin, time_us), current)])

    def close(self) -> None: ...
