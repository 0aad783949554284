"""The Collector over a file system that crashes at the n-th call, for every n: no acknowledged block is lost.

A script of blocks (small and large transactions, RESTART, places, definitions, rollovers) is sent through a Collector;
at the crash the file system forgets what was not synced, a new Collector recovers, and the pump's side goes on from the
origin that it states.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass, replace
from typing import Any

import pytest

from collector.collector import Collector, refuse
from pump.feed import Feed
from tests.support.crashing import crash_everywhere
from tests.support.link import Source, records_of
from trails.errors import GateError, LockedError, MismatchError, OperatorError, ProtocolError
from trails.link import wire
from trails.position import START, Position, TrailName
from trails.reader import last_header
from trails.testing import After, FaultFs

pytestmark = pytest.mark.fault

NEAR, FAR = TrailName("/near/dirdat", "lt"), TrailName("/far/dirdat", "rt")
FILE_BYTES = 12_000


@dataclass
class Near:
    """The source's home: a file system of its own that never fails, and what the pump was told."""

    fs: FaultFs
    acked: Position = START

    @classmethod
    def make(cls) -> Near:
        fs = FaultFs()
        source = Source(fs, NEAR, max_bytes=9_000, seed=11)
        for _ in range(3):
            source.small()
        source.large(3)
        source.large(2, finish=False)
        source.sync()
        source.die()
        source.writer.append_place(Position(0, source.lsn))
        source.large(4)
        source.small()
        source.sync()
        return cls(fs)

    def hello(self, **changes) -> wire.Hello:
        header = last_header(self.fs, NEAR)
        plain = {
            "home": "a" * 32, "group": "PMP1", "host": "here", "trail": "./dirdat/rt", "trail_id": header.trail_id,
            "source": header.source, "alter": 0, "start": None, "megabytes": 1, "dead": 1000,
        }  # fmt: skip
        return wire.Hello(**plain | changes)


def session(near: Near, far: FaultFs, every: int = 3, **changes) -> None:
    """One whole session: recover, greet, send all from the stated origin, sync now and then, end."""
    collector = Collector(far, FAR, "./dirdat/rt")
    try:
        welcome = collector.greet(near.hello(**changes))
        collector._alive().max_bytes = FILE_BYTES
        assert welcome.origin >= near.acked, "an acknowledged block is gone"
        feed = Feed(near.fs, NEAR, near.hello().trail_id, welcome.origin, welcome.open, None)
        sent = 0
        while not feed.at_end:
            for outgoing in feed.read(0.0):
                collector.take(outgoing.block)
                sent += 1
                if sent % every == 0:
                    near.acked = collector.sync().origin
        near.acked = collector.sync().origin
    finally:
        collector.close()


@dataclass
class Link:
    """See crashing.World: the Collector's files, and the pump."""

    near: Near
    fs: FaultFs

    def outside(self) -> Position:
        return self.near.acked

    def with_fs(self, fs: FaultFs) -> Link:
        return Link(replace(self.near), fs)


def test_CW_02_CW_03_a_crash_at_any_call_loses_and_doubles_nothing():
    """CW-04 too: at every call of a session; a second crash in the recovery; then the trails are equal.

    And whatever a crash left, a local trail that was made anew is not gone on with.
    """
    near = Near.make()
    expected = records_of(near.fs, NEAR)

    def check(link: Link) -> None:
        assert records_of(link.fs, FAR) == expected

    def live(link: Link) -> None:
        session(link.near, link.fs)
        with pytest.raises(MismatchError, match="made anew"):
            session(link.near, link.fs, trail_id=b"x" * 16)

    states = crash_everywhere(Link(near, FaultFs()), live, check, again=lambda n: 1 + n % 23)
    assert states > 50


def ordered(link: Link, wanted: Callable[[list[Any]], list[Any]], **changes: Any) -> None:
    """A session with an ALTER, crashing at every call; then the records are as wanted, and the ALTER is spent."""
    expected = wanted(records_of(link.near.fs, NEAR))

    def live(link: Link) -> None:
        link.near.acked = START
        session(link.near, link.fs, **changes)

    def check(link: Link) -> None:
        assert records_of(link.fs, FAR)[-len(expected) :] == expected
        assert last_header(link.fs, FAR).alter == changes["alter"]

    assert crash_everywhere(link, live, check) > 50


def test_CW_19_an_alter_is_spent_exactly_once_whatever_the_call_that_crashes():
    """CW-19: crashes around the new file's header; the records stand once before and once after the jump."""
    link = Link(Near.make(), FaultFs())
    session(link.near, link.fs)
    ordered(link, lambda records: records * 2, alter=3, start=Position(0, 0))
    assert len(records_of(link.fs, FAR)) == 2 * len(records_of(link.near.fs, NEAR))


def _left_open(near: Near) -> FaultFs:
    """A remote trail that ends inside a transaction."""
    far = FaultFs()
    collector = Collector(far, FAR, "./dirdat/rt")
    collector.greet(near.hello())
    feed = Feed(near.fs, NEAR, near.hello().trail_id, START, False, None)
    while not collector._alive().last.open:
        for outgoing in feed.read(0.0):
            collector.take(outgoing.block)
    collector.close()
    return far


def test_an_alter_inside_an_open_transaction_drops_it():
    """CW-19: a jump leaves a begun transaction behind: readers are told by RESTART, and the new place begins clean,

    whatever the call that crashes: the header that spends the ALTER never stands without the RESTART.
    """
    near = Near.make()
    ordered(Link(near, _left_open(near)), lambda records: records, alter=1, start=Position(0, 0))


@pytest.mark.parametrize("operation", ["write", "datasync"])
def test_a_failed_write_or_sync_ends_the_collector_and_loses_nothing(operation):
    """CW-08, CW-28: EIO or a full disk at any call; told as not permanent; never synced again; a new start goes on."""
    near = Near.make()
    expected = records_of(near.fs, NEAR)
    probe = FaultFs()
    session(near, probe)
    total = sum(line.startswith(operation) for line in probe.log)
    assert total > 10
    for at in range(1, total + 1):
        near.acked = START
        far = FaultFs()
        failing = _Failing(operation, at)
        far.fail = failing
        with pytest.raises(OperatorError) as caught:
            session(near, far)
        assert not refuse(caught.value).permanent
        far.fail = lambda operation, path: None
        if operation == "datasync":
            far.reboot(After.POWER)
        session(near, far)
        assert records_of(far, FAR) == expected


class _Failing:
    """Fails the n-th call of one operation, and every later sync: a process must not try again."""

    def __init__(self, operation: str, at: int) -> None:
        self.operation, self.left = operation, at

    def __call__(self, operation: str, path: str) -> None:
        if operation == self.operation:
            self.left -= 1
            if self.left == 0:
                raise OperatorError(f"cannot {operation} {path}: Input/output error")
            assert self.left > 0 or operation != "datasync", "a failed sync was tried again"


def test_what_does_not_fit_is_refused():
    """CW-02, CW-24: another source trail, another pump, another trail's name, a lock that is held: each is refused."""
    near, far = Near.make(), FaultFs()
    session(near, far)
    cases = [
        ({"trail_id": b"x" * 16}, MismatchError, "made anew"),
        ({"home": "b" * 32}, MismatchError, "belongs to pump"),
        ({"group": "PMP2"}, MismatchError, "belongs to pump"),
        ({"trail": "./dirdat/xx"}, ProtocolError, "serves ./dirdat/rt"),
    ]
    for changes, kind, text in cases:
        collector = Collector(far, FAR, "./dirdat/rt")
        with pytest.raises(kind, match=text) as caught:
            collector.greet(near.hello(**changes))
        assert refuse(caught.value).permanent == (kind is MismatchError)
        collector.close()
    holder = Collector(far, FAR, "./dirdat/rt")
    with pytest.raises(LockedError) as caught:
        Collector(far, FAR, "./dirdat/rt")
    assert not refuse(caught.value).permanent
    holder.close()


def test_blocks_that_are_wrong_never_reach_the_trail():
    """A changed header, payload or place, the rest of a transaction without its begin: refused, nothing written."""
    near, far = Near.make(), FaultFs()
    feed = Feed(near.fs, NEAR, near.hello().trail_id, START, False, None)
    blocks = [outgoing for _ in range(20) for outgoing in feed.read(0.0)]
    good = next(b for b in blocks if b.header.indicator == 1).block
    middle = next(b for b in blocks if b.header.indicator == 3).block
    flipped = bytes(good.payload[:-1]) + bytes([good.payload[-1] ^ 1])
    bad = [
        wire.BlockMessage(good.start, good.end, good.header, flipped),
        wire.BlockMessage(
            good.start, good.end, bytes(good.header[:60]) + b"\xff" + bytes(good.header[61:]), good.payload
        ),
        wire.BlockMessage(Position(good.start.seqno, good.start.rba + 1), good.end, good.header, good.payload),
        wire.BlockMessage(good.start, good.end, good.header, good.payload[:-1]),
        middle,
    ]
    collector = Collector(far, FAR, "./dirdat/rt")
    collector.greet(near.hello())
    before = collector._alive().position
    for block in bad:
        with pytest.raises(GateError):
            collector.take(block)
    assert collector._alive().position == before
    collector.take(good)
    collector.close()


def test_what_says_late_that_a_sync_has_ended_wakes_nobody() -> None:
    """The thread sets its signal behind the result, and by then the loop may have taken that: it would go round."""
    near, far = Near.make(), FaultFs()
    collector = Collector(far, FAR, "./dirdat/rt")
    welcome = collector.greet(near.hello())
    feed = Feed(near.fs, NEAR, near.hello().trail_id, welcome.origin, welcome.open, None)
    for outgoing in feed.read(0.0):
        collector.take(outgoing.block)
    assert collector.waits() == []
    assert collector.acknowledge() is None, "the first sync is done beside the loop"
    syncer = collector._alive()._syncer
    assert collector.waits() == [syncer.fileno()]
    wait([syncer._future])
    assert collector.acknowledge() is not None
    syncer._signal.set()
    assert collector.waits() == []
    collector.close()
