"""What a session reads from the local trail and in which order it sends it."""

from __future__ import annotations

import pytest

from pump.feed import Feed, find_begin, latest
from pump.filter import Filter
from tests.support.link import AUDIT, ITEMS, ORDERS, Source
from trails.codec import decode_data, decode_defs
from trails.errors import AwayError, MismatchError
from trails.format import DURABLE_OFFSET, BlockKind, Indicator
from trails.position import START, Position, TrailName
from trails.record import Column, TableDef
from trails.testing import FaultFs

TRAIL = TrailName("/near", "lt")


@pytest.fixture
def source():
    return Source(FaultFs(), TRAIL, max_bytes=1 << 20)


def feed_of(source, origin=START, opened=False, keep=None) -> Feed:
    rules = Filter(keep, lambda table, op, n: None) if keep else None
    return Feed(source.fs, TRAIL, source.writer.last.trail_id, origin, opened, rules)


def read_all(feed, now=10.0):
    """Everything up to the trail's end."""
    out = []
    while not feed.at_end:
        out += feed.read(now)
    return out


def sales(schema, name):
    return schema == "sales"


def test_a_session_begins_with_the_definitions_in_force(source):
    """Also where the origin lies past the METADATA block; its place does not move; then the blocks follow."""
    source.small()
    source.sync()
    origin = source.writer.durable
    source.small()
    source.sync()
    found = read_all(feed_of(source, origin))
    assert [o.header.kind for o in found] == [BlockKind.METADATA, BlockKind.DATA]
    assert (found[0].block.start, found[0].block.end) == (origin, origin)
    assert decode_defs(found[0].header, found[0].block.payload) == [ORDERS, ITEMS, AUDIT]
    assert found[1].block.start == origin


def test_the_last_definition_of_a_table_is_in_force():
    """An ALTER's new shape replaces the old one."""
    new = TableDef("sales", "orders", (*ORDERS.columns, Column("more", "text", "text")))
    assert latest([ORDERS, ITEMS, new]) == [new, ITEMS]


def test_every_block_but_end_is_passed_as_it_stands(source):
    """PASSTHRU over several files: DATA, METADATA, RESTART and PLACE with their own bytes."""
    source.writer.max_bytes = 12_000
    source.mixed(40)
    found = read_all(feed_of(source))[1:]
    assert {o.header.kind for o in found} == {BlockKind.DATA, BlockKind.METADATA, BlockKind.RESTART, BlockKind.PLACE}
    for outgoing in found:
        at = outgoing.block.start
        data = source.fs.content(TRAIL.path(at.seqno))
        assert data[at.rba : at.rba + 96] == outgoing.block.header
        assert data[at.rba + 96 : outgoing.block.end.rba] == outgoing.block.payload


def test_dropped_blocks_become_one_place_a_second(source):
    """CW-06: the place is that of the last one dropped; none more until a second has passed."""
    feed = feed_of(source, keep=lambda schema, name: False)
    for _ in range(5):
        source.small()
    source.sync()
    first = [o for _ in range(4) for o in feed.read(10.0)]
    assert [o.header.kind for o in first] == [BlockKind.PLACE]
    assert read_all(feed, 10.5) == []
    (place,) = feed.read(11.0)
    assert place.block.start == place.block.end == source.writer.durable
    assert read_all(feed, 20.0) == []


def test_inside_an_open_transaction_a_place_is_an_empty_middle(source):
    """CW-05, CW-06: begin and end stay; between them nothing but middle blocks may stand."""
    source.large(4, tables=(AUDIT,))
    source.sync()
    found = [o for o in read_all(feed_of(source, keep=sales)) if o.header.kind is not BlockKind.METADATA]
    assert [o.header.indicator for o in found] == [Indicator.BEGIN, Indicator.MIDDLE, Indicator.END]
    assert decode_data(found[1].header, found[1].block.payload) == ([], [])


def test_a_filtering_session_that_resumes_inside_a_transaction_counts_from_its_begin(source):
    """COMMIT counts what all sessions sent; what was sent is not sent again; the checkpoint keeps the begin."""
    source.small()
    source.large(5)
    source.sync()
    whole = read_all(feed_of(source, keep=sales))
    inside = next(o for o in whole if o.header.indicator is Indicator.MIDDLE)
    begin = next(o for o in whole if o.header.indicator is Indicator.BEGIN)
    assert inside.needed == begin.block.start
    assert whole[-1].needed is None
    resumed = read_all(feed_of(source, inside.block.end, True, sales))
    rest = whole[whole.index(inside) + 1 :]
    assert [o.block for o in resumed if o.header.kind is BlockKind.DATA] == [o.block for o in rest]


def test_a_begin_that_is_purged_is_refused(source):
    """Without it the count can't be made; the message names the files that are left."""
    source.large(2, finish=False)
    source.writer.roll()
    source.sync()
    origin = source.writer.durable
    assert find_begin(source.fs, TRAIL, source.writer.last.trail_id, origin).seqno == 0
    source.fs.remove(TRAIL.path(0))
    with pytest.raises(MismatchError, match="purged"):
        feed_of(source, origin, True, sales)


def test_a_trail_that_has_forgotten_how_far_it_goes_is_waited_for(source):
    """A loss of power took the durable end back, not the blocks: until its Extract has looked nobody must act."""
    source.small()
    source.sync()
    before = source.fs.content(TRAIL.path(0))[DURABLE_OFFSET : DURABLE_OFFSET + 12]
    source.large(2, finish=False)
    source.sync()
    origin = source.writer.durable
    begin = find_begin(source.fs, TRAIL, source.writer.last.trail_id, origin)
    after = source.fs.content(TRAIL.path(0))[DURABLE_OFFSET : DURABLE_OFFSET + 12]
    for end, gone in ((before, True), (after, False)):

        def say(data: bytearray, end: bytes = end) -> None:
            data[DURABLE_OFFSET : DURABLE_OFFSET + 12] = end

        source.fs.corrupt(TRAIL.path(0), say)
        if gone:
            with pytest.raises(AwayError, match=rf"expected blocks up to RBA {origin.rba}.*found the end at RBA \d"):
                feed_of(source, origin, True, sales)
        else:
            assert feed_of(source, origin, True, sales).needed == begin


def test_an_empty_remote_trail_needs_the_local_one_from_its_first_file(source):
    """Origin 0/0 behind a purged file 0 is a hole, not a fresh start."""
    source.writer.roll()
    source.fs.remove(TRAIL.path(0))
    with pytest.raises(MismatchError, match="EXTSEQNO 1"):
        feed_of(source)
    assert feed_of(source, Position(1, 0)).read(0.0) is not None
