"""RMTFILE at the Collector: killed at every file-system call, the file is the old or the new one, whole."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import pytest

from collector.collector import Collector, refuse
from pump.feed import Feed
from tests.support.crashing import crash_everywhere
from tests.support.tabletask import FILE, sent, stands
from tests.support.trail_script import IDENTITY, open_writer
from trails.errors import MismatchError
from trails.link import wire
from trails.position import START, Position, TrailName
from trails.reader import last_header
from trails.testing import FaultFs
from trails.writer import TrailWriter

pytestmark = pytest.mark.fault

TITLE = "./dirdat/in"


@dataclass(frozen=True)
class Near:
    """A task's host: its file, finished, and where that ends."""

    fs: FaultFs
    file: TrailName
    whole: Position

    @classmethod
    def make(cls, csn: str) -> Near:
        fs = FaultFs()
        _task, sending = sent(fs, csn)
        return cls(fs, *sending.order[0])

    def hello(self, **changes: object) -> wire.Hello:
        header = last_header(self.fs, self.file)
        assert header is not None
        plain = wire.Hello(
            "a" * 32, "LOAD1", "here", TITLE, header.trail_id, header.source, 0, None, 1 << 40, 1000, whole=self.whole
        )
        return replace(plain, **changes)  # type: ignore[arg-type]


@dataclass
class Link:
    """See crashing.World: the Collector's files, and what its pump was told last."""

    near: Near
    fs: FaultFs
    acked: Position = START

    def outside(self) -> Hashable:
        return self.acked

    def with_fs(self, fs: FaultFs) -> Link:
        return Link(self.near, fs, self.acked)


def session(link: Link, every: int = 2) -> Position:
    """A whole one; the place that WELCOME said."""
    near, collector = link.near, Collector(link.fs, FILE, TITLE)
    try:
        welcome = collector.greet(near.hello())
        feed = Feed(near.fs, near.file, near.hello().trail_id, welcome.origin, welcome.open, None)
        sent = 0
        while not feed.at_end:
            for outgoing in feed.read(0.0):
                collector.take(outgoing.block)
                sent += 1
                if sent % every == 0:
                    link.acked = collector.sync().origin
        link.acked = collector.sync().origin
        return welcome.origin
    finally:
        collector.close()


def old(fs: FaultFs) -> None:
    """The file of the run before stands there."""
    session(Link(Near.make("1"), fs))
    assert stands(fs) == "1"


@pytest.mark.parametrize("before", [True, False])
def test_a_crash_at_any_call_leaves_the_old_file_or_the_new_one(before: bool):
    """What was acknowledged as the end has its name, durably; a session behind that sends nothing again."""
    link = Link(Near.make("2"), FaultFs())
    if before:
        old(link.fs)

    def found(left: Link) -> None:
        assert stands(left.fs) in ("2", "1" if before else "")
        assert left.acked != left.near.whole or stands(left.fs) == "2"

    def check(left: Link) -> None:
        assert stands(left.fs) == "2" and left.acked == left.near.whole
        assert session(left) == left.near.whole

    assert crash_everywhere(link, session, check, found=found) > 20


def test_a_lost_link_begins_the_file_anew():
    """What came before it is not taken for a part of the next run's file either."""
    link = Link(Near.make("2"), FaultFs())
    for near in (Near.make("1"), link.near, link.near):
        collector = Collector(link.fs, FILE, TITLE)
        assert collector.greet(near.hello()).origin == START
        block = Feed(near.fs, near.file, near.hello().trail_id, START, False, None).read(0.0)[0].block
        collector.take(block)
        collector.sync()
        collector.close()
        assert stands(link.fs) == ""
    assert session(link) == START and stands(link.fs) == "2"


def refused(fs: FaultFs, hello: wire.Hello, trail: TrailName = FILE) -> str:
    collector = Collector(fs, trail, hello.trail)
    with pytest.raises(MismatchError) as caught:
        collector.greet(hello)
    collector.close()
    assert refuse(caught.value).permanent
    return str(caught.value)


def test_nothing_else_is_replaced():
    """The file of another group or home, the trail of a pipeline; and no pump goes on in a task's file."""
    near, fs = Near.make("2"), FaultFs()
    old(fs)
    assert "was written by group LOAD1 of host" in refused(fs, near.hello(group="LOAD9"))
    assert "was written by group LOAD1 of host" in refused(fs, near.hello(home="b" * 32))
    assert "none of SOURCEISTABLE" in refused(fs, near.hello(source={"kind": "scripted"}))
    assert "is the file of a task, and no trail" in refused(fs, near.hello(whole=None))
    assert stands(fs) == "1"
    open_writer(fs).close()
    with pytest.raises(MismatchError, match="is written by Extract"):
        Collector(fs, TrailName("/home/dirdat", "lt"), "./dirdat/lt")
    copied = Near.make("1")
    collector = Collector(fs, TrailName("/home/dirdat", "rt"), "./dirdat/rt")
    collector.greet(copied.hello(trail="./dirdat/rt", whole=None))
    collector.close()
    told = refused(fs, near.hello(trail="./dirdat/rt"), TrailName("/home/dirdat", "rt"))
    assert "a trail is there, which other groups write and read" in told


def test_a_trail_that_takes_the_name_meanwhile_is_not_replaced():
    """The file is whole, and gets no name: the pump is told for good."""
    near, fs = Near.make("2"), FaultFs()
    collector = Collector(fs, FILE, TITLE)
    collector.greet(near.hello())
    feed = Feed(near.fs, near.file, near.hello().trail_id, START, False, None)
    while not feed.at_end:
        for outgoing in feed.read(0.0):
            collector.take(outgoing.block)
    TrailWriter.open(fs, FILE, IDENTITY, restart_open=True).close()
    with pytest.raises(MismatchError, match="a trail is there"):
        collector.sync()
    collector.close()
    header = last_header(fs, FILE)
    assert header is not None and header.group == IDENTITY.group
