"""The Collector's clock while a link is up: by the quickest PONG."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from demo.patience import wait_for
from pump.job import PumpJob
from pump.params import PumpParams
from pump.phase import LinkPhase
from pump.pump import Pump
from tests.support.homes import make_home
from tests.support.link import Source
from trails.fs import RealFs
from trails.link import wire
from trails.link.channel import Channel
from trails.link.wire import Side
from trails.position import START, TrailName
from trails.reader import last_header
from trails.runtime.language.remotehost import RemoteHost
from trails.runtime.report.report import Log
from trails.testing import FakeClock

SECOND = 1_000_000


class Link:
    """A pump, and the Collector's end of its session; both hosts' time moves only when told to, one is `ahead_us`."""

    def __init__(self, folder: Any) -> None:
        home = make_home(folder / "home")
        trail = TrailName.parse("./dirdat/lt", home.root)
        Source(RealFs(), trail).writer.close()
        self.ggserr = home.ggserr
        self.clock = FakeClock()
        self.ahead_us = 0
        params = PumpParams("PMP1", RemoteHost("127.0.0.1", 1), "./dirdat/rt")
        job = PumpJob(params, home.id, "here", trail, "./dirdat/lt", 1, home.pinned("PMP1"))
        self.pump = Pump(job, RealFs(), Log(home, "Trailgate Pump", "", self.clock), self.clock)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._near = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
        self.collector = Channel(far, Side.COLLECTOR, "pump", 60, self.clock.monotonic())
        self.pump._source = last_header(RealFs(), trail)
        self.pump._caller._dialler = self
        self.pump._phase = LinkPhase.DIALLING
        self.pump.step()
        (hello,) = self._heard()
        assert isinstance(hello, wire.Hello)
        self.collector.now_us = self.now_us
        self.collector.send(wire.Welcome(START, b"r" * 16, False, 0, START, self.now_us()))
        self._until(lambda: self.pump._phase is LinkPhase.STREAMING)

    def result(self) -> socket.socket:
        """As a Dialler that got the link."""
        return self._near

    def close(self) -> None:
        """As a Dialler."""

    def now_us(self) -> int:
        return self.clock.now_us() + self.ahead_us

    def _heard(self) -> list[Any]:
        """What the pump has sent; its PINGs are answered on the way."""
        return wait_for(lambda: self.collector.receive(self.clock.monotonic()))

    def _until(self, condition: Any) -> None:
        wait_for(lambda: self.pump.step() or condition())

    def _count(self, what: str) -> int:
        """Messages that the pump has sent or got."""
        return int(self.pump.command("GETTCPSTATS", {})[what])

    def ask(self, there: float = 0.0, back: float = 0.0) -> None:
        """A PING and its PONG, so many seconds on their way."""
        self.clock.sleep(4)
        sent = self._count("messages_out")
        self._until(lambda: self._count("messages_out") > sent)
        self.clock.sleep(there)
        asked = self._count("messages_out")
        wait_for(lambda: self.collector.receive(self.clock.monotonic()) or self.collector.traffic.messages_in == asked)
        self.clock.sleep(back)
        self.take()

    def take(self) -> None:
        """Whatever the Collector has sent."""
        self._until(lambda: self._count("messages_in") == self.collector.traffic.messages_out)

    def known(self) -> tuple[Any, Any]:
        """(difference, how far it may be off) of METRICS."""
        extra = self.pump.command("METRICS", {})["extra"]
        return extra["clock_offset_us"], extra["clock_error_us"]

    def warnings(self) -> int:
        with open(self.ggserr) as log:
            return log.read().count("the clock of the Collector's host 127.0.0.1 is")


@pytest.fixture
def linked(tmp_path):
    """Makes links, and ends them."""
    made: list[Link] = []

    def link(**how: Any) -> Link:
        made.append(Link(tmp_path, **how))
        return made[-1]

    yield link
    for one in made:
        one.collector.close()
        one.pump.close()


def test_a_clock_that_drifts_while_the_link_is_up_is_noticed(linked):
    """In METRICS, STATUS and stamps with the next answer; warned of once a crossing."""
    link = linked()
    assert link.known() == (0, 0)
    for ahead, warned in ((1, 0), (5, 1), (6, 1), (-7, 1), (0, 1), (3, 2), (1.5, 2), (3, 2)):
        link.ahead_us = int(ahead * SECOND)
        link.ask()
        assert link.known() == (link.ahead_us, 0)
        assert link.pump._heartbeats.ahead_us == link.ahead_us
        assert link.warnings() == warned, ahead
    assert link.pump.command("STATUS", {})["clocks"] == {"ahead_us": 3 * SECOND, "error_us": 0, "age_us": 0}
    link.clock.sleep(2)
    assert link.pump.command("STATUS", {})["clocks"]["age_us"] == 2 * SECOND


def test_an_answer_that_took_long_does_not_blur_what_is_known(linked):
    """Half of a round trip is all that may be wrong: on the way there alone, or back alone."""
    link = linked()
    link.ahead_us = 5 * SECOND
    link.ask(there=2.0)
    ahead, error = link.known()
    assert abs(ahead - 5 * SECOND) <= error == SECOND
    link.ask(there=0.01, back=0.03)
    ahead, error = link.known()
    assert abs(ahead - 5 * SECOND) <= error == 20_000
    link.ask(back=3.0)
    assert link.known() == (ahead, error)


def test_a_pong_of_nothing_that_was_asked_is_passed_over(linked):
    """A number later than our clock was no question of ours."""
    link = linked()
    number = int(link.clock.monotonic() * SECOND) + 1
    link.collector.send(wire.Pong(number, link.now_us() + 60 * SECOND))
    link.take()
    assert link.known() == (0, 0)


def test_of_a_session_that_tells_no_time_nothing_is_known(linked):
    """Nor how far it may be off: the Collector may be another host's than that of the session before."""
    link = linked()
    link.pump._heartbeats.greeted(0, 0)
    assert link.known() == (None, None)
    assert link.pump.command("STATUS", {})["clocks"] == {}
