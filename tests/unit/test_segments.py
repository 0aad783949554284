"""Sources that are asked: one thread asks, the main loop hands over; a connection that breaks, a queue that is full."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from demo.patience import PATIENCE
from extract.assemble import Assembler
from extract.retention import RetentionGuard
from extract.segments import PIECES, Piece, SegmentSource, SourceSegment
from trails.errors import AwayError, OperatorError
from trails.position import Position
from trails.record import Column, Op, TableDef

TABLE = TableDef("s", "t", (Column("id", "bigint", "bigint", key=True),))


@dataclass
class Counted:
    """A method whose segments are ten rows each, a row a piece; `trouble` is called where something may go wrong."""

    end: int = 0
    trouble: Callable[[str, int], None] = lambda _what, _n: None
    opened: list[tuple[int, str]] = field(default_factory=list)
    given: int = 0
    forgotten: int = 0
    threads: set[str] = field(default_factory=set)

    def open(self, after: int, state: str) -> None:
        self.threads.add(threading.current_thread().name)
        self.opened.append((after, state))
        self.trouble("open", after)

    def settled(self, after: int) -> SourceSegment | None:
        self.trouble("settled", after)
        return (
            SourceSegment(after + 10, f"{after + 10:020d}", "x", after, f"s{after + 10}") if after < self.end else None
        )

    def changes(self, after: int, segment: SourceSegment) -> Iterator[Piece]:
        for n in range(after, segment.end):
            self.trouble("changes", n)
            self.given += 1
            yield Piece([(TABLE, [(int(Op.INSERT), [str(n)])])], 10)

    def forget(self, upto: int) -> bool:
        self.forgotten = min(upto, self.forgotten + 5)
        return self.forgotten < upto

    def pause(self) -> float:
        return 0.01

    def close(self) -> None:
        """Nothing is held."""


class Output:
    """What the assembler puts out: rows of whole transactions."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.restarts = 0

    def define(self, *_: object) -> tuple[()]:
        """No definitions here."""
        return ()

    def append_data(self, _indicator: object, _tables: object, records: list[tuple], **_facts: object) -> None:  # type: ignore[type-arg]
        self.rows += [record[2][0] for record in records if record[0] == Op.INSERT]

    def append_restart(self) -> None:
        self.restarts += 1


class Running:
    """A source on a method, and the sink behind it."""

    def __init__(self, method: Counted, reconnect_seconds: float = 30, origin: int = 0, state: str = "") -> None:
        self.said: list[str] = []
        self.output = Output()
        self.sink = Assembler(self.output, Position(0, origin), "", state)  # type: ignore[arg-type]
        self.source = SegmentSource(
            method, reconnect_seconds, self.said.append, RetentionGuard(lambda: None, self.said.append), "test"
        )
        self.source.start(Position(0, origin), state, self.sink)

    def until(self, place: int) -> None:
        """Poll until everything up to there was handed over."""
        end = time.monotonic() + PATIENCE
        while self.sink.origin.rba < place:
            if not self.source.poll():
                select.select(self.source.waits(), [], [], 0.05)
            assert time.monotonic() < end, self.sink.origin
        self.sink.cut()


def test_segments_come_whole_and_in_order_from_one_thread() -> None:
    """And what is released is forgotten, in pieces."""
    method = Counted(end=50)
    run = Running(method)
    run.until(50)
    assert run.output.rows == [str(n) for n in range(50)]
    assert (run.sink.state, run.source.read, run.source.read_us) == ("s50", 50, 40)
    run.source.release(Position(0, 50))
    run.source.close()
    assert method.forgotten == 50 and method.threads == {"test"}


def test_it_goes_on_behind_the_origin_with_its_state() -> None:
    """And what the trail has already may be forgotten at once."""
    method = Counted(end=50)
    run = Running(method, origin=30, state="s30")
    run.until(50)
    run.source.close()
    assert run.output.rows == [str(n) for n in range(30, 50)]
    assert method.opened == [(30, "s30")] and method.forgotten >= 30


def test_only_so_many_pieces_wait() -> None:
    """I9: a main loop that is busy holds the asker back."""
    method = Counted(end=1000)
    run = Running(method)
    time.sleep(0.3)
    assert 0 < method.given <= PIECES + 1
    run.source.close()


def test_a_segment_that_breaks_off_comes_again_whole() -> None:
    """The connection is lost in the middle of one: what was handed over of it is abandoned, the others stay."""
    lost = iter([AwayError("gone (test)")])

    def trouble(what: str, n: int) -> None:
        if (what, n) == ("changes", 25) and (error := next(lost, None)):
            raise error

    method = Counted(end=50, trouble=trouble)
    run = Running(method)
    run.until(50)
    run.source.close()
    assert run.output.rows == [str(n) for n in range(50)]
    assert method.opened == [(0, ""), (20, "s20")]
    assert run.said[0].startswith("gone (test); trying again") and run.said[1].startswith("connected")
    assert run.source.waits_for == ""


@pytest.mark.parametrize("where", ["open", "settled", "changes"])
def test_it_gives_up_after_the_time_that_is_allowed(where: str) -> None:
    """RECONNECTSECS: then the process ends, and AUTORESTART decides. To connect alone is not to be back."""

    def trouble(what: str, _n: int) -> None:
        if what == where:
            raise AwayError("gone (test)")

    run = Running(Counted(end=50, trouble=trouble), reconnect_seconds=0.1)
    with pytest.raises(AwayError, match=r"gave up after 0\.1 s"):
        run.until(50)
    assert run.source.waits_for.startswith("Waiting for the source database: gone")
    assert len(run.said) == 1
    run.source.close()


@pytest.mark.parametrize("error", [OperatorError("somebody must act (test)"), ZeroDivisionError("a bug (test)")])
def test_any_other_error_ends_the_process_that_polls(error: Exception) -> None:
    """A bug on the asker's thread is one of the process, and not swallowed."""

    def trouble(what: str, n: int) -> None:
        if (what, n) == ("changes", 3):
            raise error

    run = Running(Counted(end=10, trouble=trouble))
    with pytest.raises(type(error), match=r"\(test\)"):
        run.until(10)
    run.source.close()
