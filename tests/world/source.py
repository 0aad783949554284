"""The source database of the world: a log of committed transactions that outlives its readers, and its connection.

A transaction's place is ten times its number, so that there are places between two, where the log has what nobody
captures. Each place has a state, and the source wants it back with that very place.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from extract.longtrans import Outstanding
from extract.source import Sink, SourceFacts, ThreadPlaces
from tests.support.replicat_trail import table
from trails.checkpoint import Place
from trails.errors import MismatchError, OperatorError
from trails.position import Position
from trails.record import Op, TableDef

if TYPE_CHECKING:
    from tests.world.world import World

KV, NOTES = table("s", "kv", "id v", "id"), table("s", "notes", "note")
STEP = 10
"""Places between one transaction and the next."""

LARGE = 10
"""Changes; of a larger transaction the source may pause between two."""

Tables = dict[str, Any]
"""`kv`: rows by key; `notes`: rows, sorted."""


@dataclass(frozen=True)
class Change:
    """One change, as a record has it: `values` is the image, and the one before; of TRUNCATE its flags."""

    op: Op
    table: TableDef
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


@dataclass
class SourceLog:
    """The server. What is at or below `confirmed` is gone for good; `states` are its tables after each transaction."""

    identity: dict[str, str] = field(default_factory=lambda: {"kind": "simulated", "system": "1"})
    commits: list[Commit] = field(default_factory=list)
    confirmed: int = 0
    states: list[Tables] = field(default_factory=lambda: [{"kv": {}, "notes": []}])


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

    def commit(self) -> Commit:
        """One more transaction."""
        number = len(self._log.commits) + 1
        size = self._draw.randint(15, 50) if self._draw.random() < 0.15 else self._draw.randint(1, 5)
        made = Commit(number, tuple(self._change(f"{number}.{n}") for n in range(size)))
        self._log.commits.append(made)
        self._log.states.append({"kv": {(k,): (k, v) for k, v in self._kv.items()}, "notes": self._sorted_notes()})
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
        return self._row(value)

    def _note(self, value: str) -> Change:
        if self._notes and self._draw.random() < 0.3:
            gone = self._notes.pop(self._draw.randrange(len(self._notes)))
            return Change(Op.DELETE, NOTES, ([gone],))
        self._notes.append(value)
        return Change(Op.INSERT, NOTES, ([value],))

    def _row(self, value: str) -> Change:
        """Any key of few, so that the same rows are met again and again."""
        kv, key, kind = self._kv, str(self._draw.randrange(40)), self._draw.random()
        before = kv.get(key)
        if before is None:
            kv[key] = value
            return Change(Op.INSERT, KV, ([key, value],))
        if kind < 0.3:
            del kv[key]
            return Change(Op.DELETE, KV, ([key, before],))
        other = str(self._draw.randrange(100))
        if kind < 0.5 and other not in kv:
            del kv[key]
        else:
            other = key
        kv[other] = value
        return Change(Op.UPDATE, KV, ([other, value], [key, before]))


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
            index = sink.table(change.table)
            op = int(change.op)
            record = (op, (index,), *change.values) if change.op == Op.TRUNCATE else (op, index, *change.values)
            sink.records.append(record)
            sink.grew(60)
            if self._draw.random() < 0.3:
                yield True
            elif slow and self._draw.random() < 0.1:
                yield False
        sink.commit(Position(0, commit.place), commit.csn, commit.number, state_of(commit.place))
        yield commit.number < len(self.log.commits)

    def release(self, origin: Position) -> None:
        self._confirm(origin)

    def waits(self) -> list[int]:
        return []

    def idle_seconds(self) -> float:
        return 0.2

    def outstanding(self) -> Outstanding:
        return Outstanding()

    def place(self, origin: Position, time_us: int | None) -> Place:
        return Place(origin.seqno, origin.rba, time_us, f"{origin.rba:016d}")

    def facts(self, origin: Position, state: str, time_us: int | None) -> SourceFacts:
        self._check_state(origin.rba, state)
        current = self.place(self._sink.origin if self._sink is not None else Position(0, 0), None)
        return SourceFacts("Simulated Log", [ThreadPlaces(self.place(origin, time_us), current)])

    def close(self) -> None: ...
