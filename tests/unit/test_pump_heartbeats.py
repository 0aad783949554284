"""Heartbeats through a pump: stamped, PASSTHRU too, whatever TABLE says; sent again they are stamped again."""

from __future__ import annotations

from typing import Any

import pytest

from pump.feed import Feed
from pump.filter import Filter
from pump.heartbeat import PumpHeartbeats
from replicat.batches.batch import read_records
from tests.support.beating import SECOND, beat, write_beat
from tests.support.link import Source
from trails.codec import decode_data
from trails.crypt import KEY_SIZE, MasterKey, Wallet, save_wallet
from trails.format import BlockKind, check_payload, file_seed, parse_block_header
from trails.heartbeat import Beat, beat_of
from trails.plan import Planner, Unit
from trails.position import START, Position, TrailName
from trails.reader import BlockReader, last_header
from trails.testing import FakeClock, FaultFs
from trails.writer import TrailWriter, WriterIdentity

TRAIL = TrailName("/near", "lt")


@pytest.fixture
def source():
    return Source(FaultFs(), TRAIL, max_bytes=1 << 20)


def heartbeats(clock: FakeClock | None = None) -> PumpHeartbeats:
    return PumpHeartbeats("PMP1", "there", clock or FakeClock(), 2, lambda text: None)


def sent(source: Any, stamps: PumpHeartbeats, *, origin: Position = START, keeps: bool | None = None) -> list[Any]:
    """Everything up to the trail's end but the definitions; `keeps`: what TABLE says of every table."""
    rules = None if keeps is None else Filter(lambda s, n: bool(keeps), lambda t, o, n: None)
    feed = Feed(source.fs, TRAIL, source.writer.last.trail_id, origin, False, rules, stamps.stamp)
    found = []
    while not feed.at_end:
        found += [o for o in feed.read(10.0) if o.header.kind is not BlockKind.METADATA]
    return found


def decoded(source: Any, outgoing: Any) -> Beat:
    """As a Collector checks it, and a reader behind it decodes it."""
    at = outgoing.block.start
    seed = file_seed(source.writer.last.trail_id, at.seqno)
    header = parse_block_header(outgoing.block.header, seed, at.rba, "sent")
    check_payload(header, outgoing.block.payload, "sent", at.rba)
    assert header == outgoing.header
    assert header.is_heartbeat
    return beat_of(decode_data(header, outgoing.block.payload)[1], "sent")[1]


@pytest.mark.parametrize("keeps", [None, True, False])
def test_a_heartbeat_passes_with_a_stamp(source, keeps):
    """Its header's facts stay; its neighbours stay as they are, or go."""
    source.small()
    source.lsn += 1
    write_beat(source.writer, beat(SECOND), source.lsn)
    csn = source.writer.last.csn
    source.small()
    source.sync()
    stamps = heartbeats()
    stamps.greeted(FakeClock().now_us() + 7, FakeClock().now_us())
    found = sent(source, stamps, keeps=keeps)
    (outgoing,) = [o for o in found if o.beat is not None]
    made = decoded(source, outgoing)
    assert made == outgoing.beat
    assert made.path == "EXT1 ==> PMP1"
    assert made.stamps[-1].ahead_us == 7
    assert (outgoing.header.transactions, outgoing.header.changes, outgoing.header.csn) == (1, 0, csn)
    others = [o.header.kind.name for o in found if o is not outgoing]
    assert others[:2] == (["PLACE"] if keeps is False else ["DATA", "DATA"])


def test_what_was_sent_is_not_sent_again_and_what_is_sent_again_has_a_new_stamp(source):
    """The Collector's origin decides: before it nothing, behind it all anew."""
    source.lsn += 1
    write_beat(source.writer, beat(SECOND), source.lsn)
    source.sync()
    clock = FakeClock()
    stamps = heartbeats(clock)
    (first,) = sent(source, stamps)
    clock.sleep(5)
    (again,) = sent(source, stamps)
    assert again.beat.stamps[-1].us - first.beat.stamps[-1].us == 5 * SECOND
    assert sent(source, stamps, origin=first.block.end) == []


def test_a_pump_remembers_when_it_was_acknowledged():
    """And takes the source's clock from what passes."""
    clock = FakeClock()
    stamps = heartbeats(clock)
    made = stamps.stamp(beat(clock.now_us() - SECOND, ahead=-3 * SECOND))
    assert stamps.skew_us == -3 * SECOND
    clock.sleep(2)
    stamps.passed(made)
    (entry,) = stamps.arrivals.entries()
    assert (entry["path"], entry["at_us"]) == ("EXT1 ==> PMP1", clock.now_us())
    assert made.stamps[-1].ahead_us is None


def test_in_encrypted_trails_it_is_found_by_its_header_and_read_by_who_has_the_key():
    """FLAG_AES beside FLAG_HEARTBEAT on both sides; on the link, inside TLS, it is plain."""
    fs = FaultFs()
    save_wallet(fs, "/near/dirwlt", Wallet("w", (MasterKey(1, 1, b"k" * KEY_SIZE),)))
    near, far = (TrailName.parse(path, "/near") for path in ("./dirdat/lt", "./dirdat/rt"))
    identity = WriterIdentity("e" * 32, "EXT1", "here", {"kind": "postgresql"})
    writer = TrailWriter.open(fs, near, identity, restart_open=True, encrypt=True)
    write_beat(writer, beat(SECOND), 1)
    writer.close()
    feed = Feed(fs, near, writer.last.trail_id, START, False, None, heartbeats().stamp)
    collected = TrailWriter.open(fs, far, identity, restart_open=True, encrypt=True)
    while not feed.at_end:
        for outgoing in feed.read(0.0):
            assert not outgoing.header.is_encrypted
            collected.append_block(outgoing.header, outgoing.block.payload, outgoing.block.end)
    collected.close()
    for trail, path in ((near, "EXT1"), (far, "EXT1 ==> PMP1")):
        (unit,) = [unit for unit in units(BlockReader(fs, trail)) if unit.blocks]
        assert unit.is_heartbeat
        assert unit.blocks[0].header.is_encrypted
        records = read_records(fs, trail, unit_id(fs, trail), {}, unit.blocks[0])
        assert beat_of(records, "here")[1].path == path


def units(reader: BlockReader) -> list[Unit]:
    planner = Planner(reader)
    return list(iter(planner.next, None))


def unit_id(fs: FaultFs, trail: TrailName) -> bytes:
    header = last_header(fs, trail)
    assert header is not None
    return header.trail_id
