"""A source without a database: a log of transactions that outlives the process, and a script of what happens on the
way.

`ScriptedLog` is the server: what was committed, how far the reader has let it forget, and who it is. `ScriptedSource`
is one process's connection to it. The script's items are transactions and events: IDLE (nothing captured committed up
to a place, and the server wants an answer), LOST (the connection breaks, also inside a transaction), CRASH (the process
dies here).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from extract.extract import Extract
from extract.longtrans import Outstanding
from extract.source import Sink, SourceFacts, ThreadPlaces
from tests.support.trail_script import Tx
from trails.checkpoint import Place
from trails.errors import MismatchError, OperatorError
from trails.position import Position
from trails.record import Op
from trails.testing import Crash, FakeClock, FaultFs


@dataclass(frozen=True)
class Idle:
    """Nothing captured up to `place`; the server asks for an answer."""

    place: int


@dataclass(frozen=True)
class Inside:
    """A transaction inside which, after `after` rows, something happens once: `event` is "lost" or "crash"."""

    tx: Tx
    after: int
    event: str


Item = Tx | Idle | Inside


@dataclass
class ScriptedLog:
    """The server's side. A transaction's origin is its number; what is at or below `confirmed` is gone for good."""

    items: list[Item]
    identity: dict[str, str] = field(default_factory=lambda: {"kind": "scripted", "system": "1", "slot": "s"})
    confirmed: int = 0
    happened: set[int] = field(default_factory=set)
    answered: list[int] = field(default_factory=list)
    open: Outstanding = field(default_factory=Outstanding)
    states: bool = False
    """Whether each place has a state, of some hundred characters at most; it is asked for whenever reading begins."""
    altered: int = -1
    """A place that an ALTER named: it has no state until something is handed over behind it."""
    given: list[tuple[int, str]] = field(default_factory=list)
    """Place and state of each start and reconnect."""

    def state(self, place: int) -> str:
        """The state that belongs to a place; a new trail and an ALTER have none."""
        return f"<{place}>" * (place * 7 % 50 + 1) if self.states and place else ""

    def end(self) -> int:
        """The last place there is."""
        return max((_place(item) for item in self.items), default=0)


def _place(item: Item) -> int:
    return item.place if isinstance(item, Idle) else item.tx.number if isinstance(item, Inside) else item.number


class ScriptedSource:
    """See extract.source.Source. Each poll hands over one change, or one event, of the log."""

    def __init__(self, log: ScriptedLog, *, rows_per_poll: int = 1) -> None:
        self.log = log
        self._rows_per_poll = rows_per_poll
        self._released = 0
        self._steps: Iterator[bool] = iter(())
        self._sink: Sink | None = None

    def identify(self, known: dict[str, str] | None) -> dict[str, str]:
        """See Source."""
        if known is not None and known != self.log.identity:
            raise MismatchError(f"another source: expected {known}, found {self.log.identity}")
        return dict(self.log.identity)

    def first_origin(self) -> Position:
        """See Source."""
        return Position(0, 0)

    def origin_of(self, order: dict[str, Any]) -> Position:
        """See Source."""
        if order.get("begin") == "now":
            return Position(0, self.log.altered)
        place = int(order["csn"])
        if place < self.log.confirmed:
            raise OperatorError(f"the source has let go of changes before {self.log.confirmed}")
        return Position(0, place)

    def fits(self, origin: Position, state: str) -> None:
        """See Source: it has no branches."""
        self._check_state(origin.rba, state)

    def _check_state(self, place: int, state: str) -> None:
        self.log.given.append((place, state))
        expected = self.log.state(place) if place != self.log.altered else ""
        assert state == expected, f"state of place {place}: expected {expected!r}, found {state!r}"

    def start(self, origin: Position, state: str, sink: Sink) -> None:
        """See Source."""
        self._check_state(origin.rba, state)
        if self.log.confirmed > origin.rba:
            raise MismatchError(f"confirmed up to {self.log.confirmed}, the trail ends at {origin.rba}")
        self._sink = sink
        self._released = origin.rba
        self._answer()  # the trail has been recovered up to here: it is durable
        self._steps = self._walk(origin.rba)

    def poll(self) -> bool:
        """See Source."""
        return next(self._steps, False)

    def _walk(self, origin: int) -> Iterator[bool]:
        assert self._sink is not None
        for n, item in enumerate(self.log.items):
            if _place(item) <= origin:
                continue
            if isinstance(item, Idle):
                self._sink.reached(Position(0, item.place), item.place, self.log.state(item.place))
                self.log.answered.append(self._answer())
                yield False
                continue
            tx = item.tx if isinstance(item, Inside) else item
            event = item if isinstance(item, Inside) and n not in self.log.happened else None
            for rows in self._hand_over(tx, event):
                if rows is None:
                    self.log.happened.add(n)
                    self._sink.abandon()
                    self._check_state(self._sink.origin.rba, self._sink.state)
                    self._steps = self._walk(self._sink.origin.rba)
                    yield False
                    return
                yield rows
            yield n % 2 == 0

    def _hand_over(self, tx: Tx, event: Inside | None) -> Iterator[bool | None]:
        """Begin, rows, commit. Yields None where the connection breaks."""
        assert self._sink is not None
        sink = self._sink
        sink.begin(tx.csn, str(tx.number), tx.number)
        for i, record in enumerate(tx.records()[1:-1]):
            if event is not None and i == event.after:
                if event.event == "crash":
                    self.log.happened.add(self.log.items.index(event))
                    raise Crash(f"inside {tx.csn}")
                yield None
            if i == tx.ddl:
                sink.ddl(tx.change)
            index = sink.table(tx.table)
            assert record[0] == Op.INSERT
            sink.records.append((int(Op.INSERT), index, record[2]))
            sink.grew(100)
            if i % self._rows_per_poll == 0:
                yield True
        sink.commit(Position(0, tx.number), tx.csn, tx.number, self.log.state(tx.number))

    def release(self, origin: Position) -> None:
        """See Source: the server may forget now, and does at once."""
        self._released = max(self._released, origin.rba)
        self._answer()

    def _answer(self) -> int:
        """What the server is told: the durable place, whatever it asked."""
        self.log.confirmed = max(self.log.confirmed, self._released)
        return self._released

    def waits(self) -> list[int]:
        """See Source."""
        return []

    def idle_seconds(self) -> float:
        """See Source."""
        return 0.0

    def outstanding(self) -> Outstanding:
        """See Source: what the test says."""
        return self.log.open

    def place(self, origin: Position, time_us: int | None) -> Place:
        """See Source."""
        return Place(origin.seqno, origin.rba, time_us, str(origin.rba))

    waits_for = ""

    def facts(self, origin: Position, state: str, time_us: int | None) -> SourceFacts:
        """See Source."""
        self._check_state(origin.rba, state)
        current = self.place(self._sink.origin if self._sink is not None else Position(0, 0), None)
        return SourceFacts("Scripted Log", [ThreadPlaces(self.place(origin, time_us), current)])

    def close(self) -> None:
        """See Source."""


@dataclass
class ScriptedWorld:
    """See crashing.World: the Extract's files, and the server."""

    fs: FaultFs
    log: ScriptedLog

    def outside(self) -> tuple[int, frozenset[int]]:
        """See World."""
        return self.log.confirmed, frozenset(self.log.happened)

    def with_fs(self, fs: FaultFs) -> ScriptedWorld:
        """See World."""
        return ScriptedWorld(fs, replace(self.log, happened=set(self.log.happened), answered=[]))


def run_until_released(extract: Extract, log: ScriptedLog, clock: FakeClock) -> None:
    """Run until the log is handed over and released; then end in order."""
    end = log.end()
    for _ in range(100_000):
        extract.step()
        clock.sleep(0.01)
        if log.confirmed >= end:
            break
    else:
        raise AssertionError(f"stuck at {log.confirmed}")
    extract.flush()
    extract.close()
