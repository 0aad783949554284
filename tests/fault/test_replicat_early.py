"""A transaction that is applied while it comes (replicat/batches/early.py): a target without a database, no Spark.

Its pieces come into the trail between the steps of the process. Whatever happens in between, the target ends as if it
had come whole, and no part of it is ever committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from replicat.batches.early import MOST_WAIT_SECONDS
from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from replicat.targets.kinds import kind_of
from tests.support.beating import beat, write_beat
from tests.support.ddl_target import table_shape
from tests.support.list_target import ListTarget, Store, shape
from tests.support.replicat_lives import REG, TRAIL, FailAt, apply_all
from tests.support.replicat_trail import InlineEngine, TrailFeed, table
from trails.ddl import CREATE, DdlChange
from trails.errors import AwayError, OperatorError
from trails.record import Op
from trails.runtime.language.params import parse_text
from trails.testing import Crash, FakeClock, FaultFs

MADE = DdlChange(CREATE, None, table_shape("x", "other", "1:note", key=""), "CREATE TABLE x.other (note text)")
KV, LOG = table("s", "kv", "id v", "id"), table("s", "log", "note")
SHAPES = [shape("s", "kv", "id v", "id"), shape("s", "log", "note")]
TEXT = "REPLICAT rep1\nTARGETDB postgresql://x/y\nBATCHROWS 8\nRECONNECTSECS 60\n{more}MAP s.*, TARGET s.*;\n"
ROWS = [(Op.INSERT, LOG, [str(number)]) for number in range(29)]
LARGE = [(Op.INSERT, KV, ["9", "big"]), *ROWS, (Op.UPDATE, KV, ["9", "bigger"])]
PIECES = 11
BEFORE = {("s", "kv"): {("1",): ("1", "a")}}
WANTED = {("s", "kv"): {("1",): ("1", "b"), ("9",): ("9", "bigger")}, ("s", "log"): [(str(n),) for n in range(29)]}


class World:
    """A trail into which a transaction comes piece by piece, and the processes that read it, one after the other."""

    def __init__(self, more: str = "", changes: Sequence[Any] = LARGE, pieces: int = PIECES) -> None:
        self.fs, self.store, self.said = FaultFs(), Store(), list[str]()
        self.params = ReplicatParams.from_statements(parse_text(TEXT.format(more=more), "p"))
        self.feed = TrailFeed(self.fs, TRAIL)
        self.feed.tx((Op.INSERT, KV, ["1", "a"]))
        self.coming = self._coming(changes, pieces)
        self.faults: Callable[[str], None] = lambda call: None
        self.clock = FakeClock()
        self.target = self.new_target()

    def _coming(self, changes: Sequence[Any], pieces: int) -> Iterator[int]:
        yield from self.feed.pieces(*changes, pieces=pieces)
        self.feed.tx((Op.UPDATE, KV, ["1", "b"]))

    def _call(self, call: str) -> None:
        self.faults(call)

    def new_target(self) -> ListTarget:
        target = ListTarget(self.store, SHAPES, unique=(("s.kv", "v"),))
        target.faults = self._call
        target.kind = replace(target.kind, can=replace(target.kind.can, waits_open=True))
        return target

    def start(self) -> Replicat:
        """A process, begun."""
        self.target = self.new_target()
        return Replicat(
            self.params, REG, TRAIL, fs=self.fs, clock=self.clock, target=self.target, engine=InlineEngine(self.fs),
            note=self.said.append, early_rows=5,
        )  # fmt: skip

    def come(self, process: Replicat, pieces: int | None = None) -> None:
        """So many pieces come, or all; behind each the process does what it can."""
        rest = range(pieces) if pieces is not None else iter(int, 1)
        for _ in rest:
            if next(self.coming, None) is None:
                break
            self.work(process)

    def work(self, process: Replicat) -> None:
        """Step until nothing is to be done."""
        for _ in range(100):
            if not process.step():
                return
        raise AssertionError("a process that is never idle")

    def end(self, process: Replicat) -> None:
        """All comes, is applied and flushed."""
        self.come(process)
        apply_all(process)
        process.close()

    @property
    def open_rows(self) -> int:
        """Rows that the open transaction of the target has more than anybody sees."""
        inside = self.target._tables
        return 0 if inside is None else len(inside.get(("s", "log"), [])) - len(self.store.tables.get(("s", "log"), []))


def test_rows_are_in_the_target_before_the_transaction_has_ended_and_nobody_sees_them():
    world = World()
    process = world.start()
    world.come(process, PIECES - 2)
    assert world.open_rows >= 20
    assert world.store.tables == BEFORE
    assert world.store.row is not None and world.store.row.csn.endswith("1")
    commits = world.target.log.count("commit")
    world.come(process, 1)
    assert world.store.tables == BEFORE, "its last piece is not there"
    world.come(process, 1)
    assert world.store.tables[("s", "log")] == WANTED[("s", "log")]
    assert world.target.log.count("commit") == commits + 1
    assert world.store.row.csn.endswith("2")
    world.end(process)
    assert world.store.tables == WANTED
    assert not [text for text in world.said if "rolled back" in text]
    assert process.counters().operations == len(LARGE) + 2


def _calls() -> int:
    world, counter = World(), FailAt(10**9, Crash())
    world.faults = counter
    world.end(world.start())
    assert world.store.tables == WANTED
    return 10**9 - counter.left


def test_I7_killed_at_every_call_of_the_target():
    """The next process ends with the same rows, once each; what is committed is a state of the source."""
    calls = _calls()
    assert calls > 20
    states = [BEFORE, {**WANTED, ("s", "kv"): {("1",): ("1", "a"), ("9",): ("9", "bigger")}}, WANTED, {}]
    for number in range(1, calls + 1):
        world = World()
        world.faults = FailAt(number, Crash())
        with pytest.raises(Crash):
            world.end(world.start())
        assert world.store.tables in states, number
        world.faults = lambda call: None
        world.end(world.start())
        assert world.store.tables == WANTED, number


def test_away_at_every_call_of_the_target():
    """The same process goes on; and it does not try the transaction early again."""
    for number in range(4, _calls() + 1):  # at START it ends the process
        world = World()
        world.faults = FailAt(number, AwayError("gone"))
        process = world.start()
        for _ in world.coming:
            process.step()
            world.clock.sleep(1)
        apply_all(process)
        process.close()
        assert world.store.tables == WANTED, number


def test_a_transaction_that_its_writer_begins_anew_is_rolled_back():
    """RESTART: an Extract died inside it. The second time it is another one: it has a row less."""
    world = World()
    process = world.start()
    world.come(process, 7)
    assert world.open_rows >= 10
    world.feed.writer.abandon()
    world.feed = TrailFeed(world.fs, TRAIL)
    world.coming = world._coming(LARGE[:-2], PIECES)
    world.end(process)
    wanted = {("s", "kv"): {("1",): ("1", "b"), ("9",): ("9", "big")}, ("s", "log"): WANTED[("s", "log")][:-1]}
    assert world.store.tables == wanted
    assert [text for text in world.said if "its writer began it anew: rolled back" in text]


def test_a_heartbeat_behind_what_its_writer_abandoned():
    """It comes alone, before the transaction is written anew: no block of rows stands where that began."""
    world = World()
    process = world.start()
    world.come(process, 7)
    world.feed.writer.abandon()
    world.feed = TrailFeed(world.fs, TRAIL)
    write_beat(world.feed.writer, beat(7), world.feed.number + 1)
    world.feed.writer.sync()
    world.work(process)
    assert world.open_rows == 0
    assert [text for text in world.said if "its writer began it anew: rolled back" in text]
    world.feed.number += 1
    world.coming = world._coming(LARGE, PIECES)
    world.end(process)
    assert world.store.tables == WANTED


@pytest.mark.parametrize("place", [2, 17, len(LARGE) - 1])
def test_a_change_of_shape_inside_has_it_wait_for_its_end(place: int):
    """In its first piece, later, and before its last change; the shape is of no mapped table and passes."""
    world = World(changes=[*LARGE[:place], (Op.DDL, MADE.to_wire()), *LARGE[place:]], pieces=PIECES)
    process = world.start()
    for _ in world.coming:
        world.work(process)
        assert world.open_rows <= place
    assert bool([text for text in world.said if "it changes a table's shape: rolled back" in text]) == (place > 6)
    world.end(process)
    assert world.store.tables == WANTED


def test_what_is_refused_is_judged_with_the_whole_transaction():
    """Rolled back at the refusal, tried no second time, and refused by its place once the whole of it is there."""
    world = World(changes=[*LARGE[:9], (Op.INSERT, KV, ["5", "a"]), *LARGE[9:]])
    process = world.start()
    world.come(process, 8)
    assert world.open_rows == 0
    assert len([text for text in world.said if "the target refused a part of it (SQLSTATE 23505, s.kv)" in text]) == 1
    assert world.target.log.count("apply") < 6
    with pytest.raises(OperatorError, match=r"s\.kv: the target refuses the insert of row \(5\): .*, change 9"):
        world.end(process)
    assert world.store.tables == BEFORE


def test_what_only_its_end_makes_right_arrives():
    """Two rows hold one unique value for a while, which the source checks at the end (CW-25)."""
    world = World(changes=[*LARGE[:9], (Op.INSERT, KV, ["5", "big"]), *LARGE[9:]])
    world.end(world.start())
    assert world.store.tables[("s", "kv")] == {**WANTED[("s", "kv")], ("5",): ("5", "big")}
    assert [text for text in world.said if "rolled back" in text]


def test_locks_are_not_held_while_nothing_comes():
    """The link broke in the middle of it: what is open ends soon, and is done once when all has come."""
    world = World()
    process = world.start()
    world.come(process, 6)
    assert world.open_rows
    world.clock.sleep(MOST_WAIT_SECONDS - 1)
    world.work(process)
    assert world.open_rows
    world.clock.sleep(MOST_WAIT_SECONDS)
    world.work(process)
    assert not world.open_rows and world.target._tables is None
    assert [text for text in world.said if "no more of it came for" in text]
    begun = world.target.log.count("begin")
    world.come(process, 3)
    assert world.target.log.count("begin") == begun, "it is not tried early again"
    world.end(process)
    assert world.store.tables == WANTED


def test_a_wait_counts_for_its_own_transaction_alone():
    """The first one was waited for; long after it the next one comes, and is not given up at its first wait."""
    world = World()
    process = world.start()
    world.come(process)
    world.work(process)
    assert world.store.tables == WANTED
    world.clock.sleep(10 * MOST_WAIT_SECONDS)
    world.coming = world._coming([(Op.INSERT, LOG, [str(number)]) for number in range(29, 58)], PIECES)
    world.come(process, 6)
    world.work(process)
    assert world.open_rows
    world.end(process)
    assert world.store.tables == {**WANTED, ("s", "log"): [(str(number),) for number in range(58)]}
    assert not [text for text in world.said if "rolled back" in text]


@pytest.mark.parametrize("more", ["MAXTRANSOPS 7\n", "END CSN 3\n", "END RUNTIME\n"])
def test_where_borders_are_ordered_nothing_is_begun_before_its_end_is_known(more: str):
    world = World(more)
    process = world.start()
    world.come(process, PIECES - 1)
    assert world.target.log.count("begin") <= 1
    assert world.target._tables is None
    process.close()


def test_a_target_in_which_an_open_transaction_stops_all_others_waits_for_the_end():
    world = World()
    process = world.start()
    world.target.kind = kind_of("sqlite")
    world.come(process, PIECES - 1)
    assert world.target._tables is None
    world.end(process)
    assert world.store.tables == WANTED


def test_an_order_between_two_pieces_rolls_back_what_is_open():
    """SEND ... has the pipeline made anew from the row: PAUSE TABLE, a load, REPERROR."""
    world = World()
    process = world.start()
    world.come(process, 6)
    assert world.open_rows
    process._drop()
    assert world.target._tables is None
    world.end(process)
    assert world.store.tables == WANTED
