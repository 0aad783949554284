"""Heartbeats on their way into the trail: which rows are one, which are dropped, and the thread that writes them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from demo.patience import PATIENCE, wait_for
from extract.assemble import Assembler
from extract.heartbeat import SEED, Heart, Heartbeats, Owner
from tests.unit.test_extract_assemble import Blocks, transaction
from trails.clock import Clock, RealClock
from trails.errors import AwayError
from trails.heartbeat import Beat, Stamp, beat_of
from trails.position import Position
from trails.record import Column, Op, TableDef
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.testing import FakeClock

OWNER = Owner("e" * 32, "EXT1")
NAMES = ("extract_key", "local_database", "heartbeat_timestamp", "frequency")
SEED_TABLE = TableDef("gg", "gg_heartbeat_seed", tuple(Column(n, "text", "text", n == NAMES[0]) for n in NAMES))


def heartbeats(clock: FakeClock | None = None) -> Heartbeats:
    return Heartbeats(HeartbeatTable(), OWNER, clock or FakeClock())


def seed(sink: Assembler, owner: Owner = OWNER, op: Op = Op.UPDATE, at: str = "1970-01-01 00:00:02.5+00") -> None:
    """One row of the seed table, as pgoutput gives it."""
    image = [owner.key.encode(), b"shop", at.encode(), b"60"]
    index = sink.cache.get("seed")
    if index is None:
        index = sink.cache["seed"] = sink.table(SEED_TABLE)
    sink.records.append((int(op), index, image, None) if op is Op.UPDATE else (int(op), index, image))
    sink.grew(40)


def made(**options: Any) -> tuple[Assembler, Blocks, Heartbeats]:
    blocks, beats = Blocks(), heartbeats()
    sink = Assembler(blocks, Position(0, 10), "csn10", block_bytes=100, now_us=lambda: 99, heartbeats=beats, **options)
    return sink, blocks, beats


def test_a_heartbeat_is_a_block_of_its_own_behind_what_was_gathered():
    """With the place and CSN of its transaction, no table and no change; at once, and each time anew."""
    sink, blocks, beats = made()
    transaction(sink, 11)
    for place, op in ((12, Op.INSERT), (13, Op.UPDATE)):
        sink.begin(f"csn{place}", str(place), place)
        seed(sink, op=op)
        sink.commit(Position(0, place), f"csn{place}", place)
    transaction(sink, 14)
    sink.cut()
    assert blocks.indicators() == ["WHOLE"] * 4
    _, beat, again, last = blocks.blocks
    assert [b.get("heartbeat", False) for b in blocks.blocks] == [False, True, True, False]
    assert (beat["changes"], beat["transactions"], beat["origin"].rba, beat["csn"], beat["tables"]) == (
        0, 1, 12, "csn12", [],
    )  # fmt: skip
    begin, found = beat_of(beat["records"], "here")
    assert begin == (Op.BEGIN, "csn12", "12", 12)
    assert (found.database, found.us, found.every_s, found.path) == ("shop", 2_500_000, 60, "EXT1")
    assert (again["csn"], last["records"][1][1]) == ("csn13", 0)
    assert [entry["path"] for entry in beats.arrivals.entries()] == ["EXT1"]
    assert sink.is_empty


def test_rows_of_another_extract_and_rows_among_others_are_dropped():
    """They are no heartbeat of ours, and never a change; only their place is left."""
    sink, blocks, _ = made()
    sink.begin("csn11", "11", 11)
    seed(sink, Owner("f" * 32, "EXT1"))
    sink.commit(Position(0, 11), "csn11", 11)
    assert (blocks.blocks, sink.origin.rba) == ([], 11)
    sink.begin("csn12", "12", 12)
    seed(sink)
    sink.records.append((int(Op.INSERT), sink.table(TableDef("s", "a", (Column("id", "text", "text", True),))), ["1"]))
    sink.grew(10)
    seed(sink)
    sink.records.append((int(Op.TRUNCATE), (SEED, 0), 0))
    sink.commit(Position(0, 12), "csn12", 12)
    sink.begin("csn13", "13", 13)
    sink.records.append((int(Op.TRUNCATE), (sink.table(SEED_TABLE),), 0))
    sink.commit(Position(0, 13), "csn13", 13)
    sink.cut()
    (block,) = blocks.blocks
    assert [record[0] for record in block["records"]] == [Op.BEGIN, Op.INSERT, Op.TRUNCATE, Op.COMMIT]
    assert (block["records"][2][1], block["changes"], "heartbeat" in block) == ((0,), 2, False)


def test_in_a_large_transaction_they_leave_no_hole():
    """Dropped with each part; one of nothing else never begins."""
    sink, blocks, _ = made()
    sink.begin("csn11", "11", 11)
    for number in range(12):
        sink.records.append((int(Op.INSERT), sink.table(TableDef("s", "a", ())), [str(number)]))
        sink.grew(10)
        seed(sink)
    sink.commit(Position(0, 11), "csn11", 11)
    sink.begin("csn12", "12", 12)
    for _ in range(10):
        seed(sink)
    sink.commit(Position(0, 12), "csn12", 12)
    assert blocks.indicators()[0] == "BEGIN"
    assert blocks.indicators()[-2:] == ["MIDDLE", "END"]
    assert sum(b["changes"] for b in blocks.blocks) == 12
    assert all(record[1] != SEED for b in blocks.blocks for record in b["records"] if record[0] in (2, 3))
    assert (sink.origin.rba, sink.is_empty) == (12, True)


def test_an_abandoned_heartbeat_comes_again():
    """The connection broke inside it."""
    sink, blocks, _ = made()
    sink.begin("csn11", "11", 11)
    seed(sink)
    sink.abandon()
    sink.begin("csn11", "11", 11)
    seed(sink)
    sink.commit(Position(0, 11), "csn11", 11)
    (block,) = blocks.blocks
    assert block["heartbeat"]


@pytest.mark.parametrize(
    "at",
    ["yesterday", "infinity", "0044-03-15 00:00:00+00 BC", "294276-01-01 00:00:00+00", "2026-01-01 00:00:00"],
)
def test_what_anybody_else_wrote_under_our_key_never_ends_capture(at: str):
    """It would come again with each start, for ever: dropped, and told once."""
    told: list[str] = []
    blocks, heart = Blocks(), Heart(FakeSeed, RealClock(), 2, told.append)
    beats = Heartbeats(HeartbeatTable(), OWNER, FakeClock(), heart)
    sink = Assembler(blocks, Position(0, 10), "csn10", heartbeats=beats)
    for place in (11, 12):
        sink.begin(f"csn{place}", str(place), place)
        seed(sink, at=at)
        sink.commit(Position(0, place), f"csn{place}", place)
    beats.heart.tell()
    assert (blocks.blocks, sink.origin.rba, sink.is_empty) == ([], 12, True)
    (line,) = told
    assert "gg.gg_heartbeat_seed: expected a heartbeat of this release" in line


@pytest.mark.parametrize("every", ["-1", "8000", "2147483647"])
def test_a_frequency_that_nobody_can_set_is_none(every: str):
    """It would make a stale figure look healthy for years."""
    row = (Op.INSERT, SEED, [OWNER.key, "shop", "2026-01-01 00:00:00+00", every])
    assert heartbeats().beat(SEED_TABLE, [row]) is None


class FakeSeed:
    """A database's end that the test commands."""

    def __init__(self, ahead_us: int = 0, every: int | None = 3600, clock: Clock | None = None) -> None:
        self.ahead_us, self.every, self.last, self.clock = ahead_us, every, -1, clock or RealClock()
        self.beats = self.closed = 0
        self.fails = ""
        self.held = threading.Event()

    def clock_us(self) -> int:
        if self.fails:
            raise AwayError(self.fails)
        return self.clock.now_us() + self.ahead_us

    def frequency(self) -> int | None:
        return self.every

    def beat(self, every: int) -> None:
        self.beats += 1
        self.last = every
        if every == 7:
            self.held.wait(PATIENCE)

    def close(self) -> None:
        self.closed += 1


def test_the_thread_compares_clocks_and_writes():
    """A difference is told on the caller's thread, and corrects the heartbeat."""
    clock, told = FakeClock(), []
    database = FakeSeed(ahead_us=5_000_000, clock=clock)
    heart = Heart(lambda: database, clock, 2, told.append)
    heart.start()
    wait_for(lambda: database.beats)
    assert heart.ahead_us == 5_000_000
    heart.tell()
    assert len(told) == 1
    assert "ahead of" in told[0]
    beats = Heartbeats(HeartbeatTable(), OWNER, RealClock(), heart)
    found = beats.beat(SEED_TABLE, [(Op.INSERT, SEED, [OWNER.key, "shop", "2026-01-01 00:00:00+00", "60"])])
    assert isinstance(found, Beat)
    assert found.ahead_us == -heart.ahead_us
    assert found.stamps == (Stamp("EXTRACT", "EXT1", found.stamps[0].us, 0),)
    heart.close()
    wait_for(lambda: database.closed)


def test_each_is_written_when_it_is_due_and_a_pause_is_said_once():
    """However often the thread looks at clock and settings in between; a shorter FREQUENCY counts at once."""
    clock, database = FakeClock(), FakeSeed(every=600)
    heart = Heart(lambda: database, clock, 2, lambda text: None)
    looked = []
    for _ in range(20):
        looked.append(heart._round(database))
        clock.sleep(60)
    assert (database.beats, set(looked)) == (2, {60.0})
    database.every = 30
    assert (heart._round(database), database.beats) == (30, 3)
    clock.sleep(10)
    assert (heart._round(database), database.beats) == (20, 3)
    for every, beats in ((0, 4), (0, 4), (None, 4), (5, 5)):
        database.every = every
        heart._round(database)
        assert database.beats == beats
        clock.sleep(60)
    assert database.last == 5


def test_a_database_that_is_away_is_told_once_and_tried_again(monkeypatch):
    """Each time on a new connection; nothing of it reaches capture but the line."""
    monkeypatch.setattr("extract.heartbeat.RETRY_SECONDS", 0.01)
    seeds: list[FakeSeed] = []

    def connect() -> FakeSeed:
        seeds.append(FakeSeed())
        seeds[-1].fails = "gone fishing" if len(seeds) < 4 else ""
        return seeds[-1]

    told: list[str] = []
    heart = Heart(connect, RealClock(), 2, told.append)
    heart.start()
    wait_for(lambda: len(seeds) == 4 and seeds[-1].beats)
    heart.tell()
    heart.close()
    assert told == ["no heartbeat was written: gone fishing"]
    assert [database.closed for database in seeds[:3]] == [1, 1, 1]


def test_a_database_that_hangs_holds_nobody_up():
    """close() leaves the thread alone."""
    database = FakeSeed(every=7)
    heart = Heart(lambda: database, RealClock(), 0, lambda text: None)
    heart.start()
    wait_for(lambda: database.beats)
    heart.close()
    assert heart._thread.is_alive()
    database.held.set()
    wait_for(lambda: database.closed)
