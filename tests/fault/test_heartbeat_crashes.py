"""Heartbeats through Extract, pump and Collector, killed at every file-system call: each of them once, in its place."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from collector.collector import Collector
from extract.extract import Extract
from extract.heartbeat import Heartbeats, Owner
from pump.feed import Feed
from pump.heartbeat import PumpHeartbeats
from tests.fault.test_collector_crashes import FAR, NEAR, Link, Near
from tests.fault.test_extract_crashes import SETTINGS
from tests.support.beating import beat, write_beat
from tests.support.crashing import crash_everywhere
from tests.support.link import Source
from tests.support.scripted import Idle, Item, ScriptedLog, ScriptedSource, ScriptedWorld, run_until_released
from tests.support.trail_script import TRAIL, Tx, payload_of, transactions
from trails.codec import decode_data
from trails.fs import Fs
from trails.heartbeat import beat_of
from trails.plan import Planner
from trails.position import TrailName
from trails.reader import BlockReader
from trails.record import Column, Op, Record, TableDef
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.testing import FakeClock, FaultFs

pytestmark = pytest.mark.fault

OWNER = Owner("home", "EXT1")
NAMES = ("extract_key", "local_database", "heartbeat_timestamp", "frequency")
SEED = TableDef("gg", "gg_heartbeat_seed", tuple(Column(n, "text", "text", n == NAMES[0]) for n in NAMES))


@dataclass(frozen=True)
class BeatTx(Tx):
    """A heartbeat's transaction, as a source hands it over."""

    rows: int = 1
    table: TableDef = SEED

    def records(self) -> list[Record]:
        """Its one row says when: the transaction's number in seconds."""
        image = [OWNER.key, "shop", f"1970-01-01 00:00:{self.number:02d}+00", "60"]
        return [(Op.BEGIN, self.csn, str(self.number), self.number), (Op.INSERT, 0, image), (Op.COMMIT, 1)]


ITEMS: list[Item] = [
    BeatTx(1), Tx(2, 3), BeatTx(3), BeatTx(4), Tx(5, 14), Tx(6, 1), BeatTx(7), Idle(8), BeatTx(9), Tx(10, 1),
]  # fmt: skip


def told(fs: Fs, trail: TrailName = TRAIL) -> list[tuple[str, str]]:
    """(CSN, path) of each heartbeat in a trail, whose time is that of its own transaction."""
    planner = Planner(BlockReader(fs, trail))
    found = []
    while (unit := planner.next()) is not None:
        if unit.is_heartbeat:
            (block,) = unit.blocks
            begin, made = beat_of(decode_data(block.header, payload_of(fs, trail, block))[1], "here")
            assert (begin[1], block.header.changes, block.header.transactions) == (unit.csn, 0, 1)
            found.append((unit.csn, made.path))
    return found


def run(fs: FaultFs, log: ScriptedLog) -> None:
    """One life of an Extract, until the log is released."""
    clock = FakeClock()
    beats = Heartbeats(HeartbeatTable(), OWNER, clock)
    extract = Extract.start(fs, SETTINGS, ScriptedSource(log), clock, beats)
    run_until_released(extract, log, clock)


def test_an_extract_that_crashes_at_any_call() -> None:
    """I3, I10: a heartbeat is a transaction; what is in the trail is not written again, and nothing is left out."""

    def check(world: ScriptedWorld) -> None:
        assert told(world.fs) == [(f"{n:08d}", "EXT1") for n in (1, 3, 4, 7, 9)]
        assert [csn for csn, _ in transactions(world.fs)] == [f"{n:08d}" for n in (1, 2, 3, 4, 5, 6, 7, 9, 10)]

    world = ScriptedWorld(FaultFs(), ScriptedLog(ITEMS))
    assert crash_everywhere(world, lambda world: run(world.fs, world.log), check) > 50


def near_with_beats() -> Near:
    """A local trail with heartbeats between small and large transactions."""
    fs = FaultFs()
    source = Source(fs, NEAR, max_bytes=9_000, seed=3)
    for number in range(2):
        source.lsn += 1
        write_beat(source.writer, beat(number), source.lsn)
        source.small()
        source.large(2)
    source.lsn += 1
    write_beat(source.writer, beat(9), source.lsn)
    source.sync()
    return Near(fs)


def session(near: Near, far: FaultFs, stamps: PumpHeartbeats) -> None:
    """One whole session of a pump that stamps, with a Collector that syncs now and then."""
    collector = Collector(far, FAR, "./dirdat/rt")
    try:
        welcome = collector.greet(near.hello())
        trail_id = near.hello().trail_id
        feed = Feed(near.fs, NEAR, trail_id, welcome.origin, welcome.open, None, stamps.stamp)
        while not feed.at_end:
            for number, outgoing in enumerate(feed.read(0.0)):
                collector.take(outgoing.block)
                if outgoing.beat is not None or number:
                    collector.sync()
        collector.sync()
    finally:
        collector.close()


def test_a_link_that_crashes_at_any_call() -> None:
    """CW-02, CW-03: sent again it has another stamp and another length, and the remote trail has it once."""
    near, clock = near_with_beats(), FakeClock()
    stamps = PumpHeartbeats("PMP1", "there", clock, 2, lambda text: None)
    expected = [(csn, "EXT1 ==> PMP1") for csn, _ in told(near.fs, NEAR)]

    def live(link: Link) -> None:
        clock.sleep(100)
        session(near, link.fs, stamps)

    def check(link: Link) -> None:
        assert told(link.fs, FAR) == expected

    assert crash_everywhere(Link(near, FaultFs()), live, check) > 50
