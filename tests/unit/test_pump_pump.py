"""The pump's own states, where the link fails between two of them."""

from __future__ import annotations

import socket
import struct
from dataclasses import replace

import pytest

from demo.patience import wait_for
from pump.job import PumpJob
from pump.params import PumpParams, RemoteHost
from pump.phase import LIVE, NEXT, LinkEvent, LinkPhase
from pump.pump import Pump
from tests.support.homes import make_home
from tests.support.link import Source
from trails.checkpoint import Place
from trails.errors import MismatchError, OperatorError
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.clock import RealClock
from trails.runtime.report.report import Log


def test_a_collector_that_dies_before_we_look_is_a_lost_link(tmp_path):
    """CW-02: the connection was taken and reset at once: tried again, not a bug that ends the pump for the night."""
    home = make_home(tmp_path / "home")
    trail = TrailName.parse("./dirdat/lt", home.root)
    Source(RealFs(), trail).writer.close()
    remote = RemoteHost("127.0.0.1", 1)
    job = PumpJob(PumpParams("PMP1", remote, "./dirdat/rt"), home.id, "here", trail, "./dirdat/lt", 1)
    pump = Pump(job, RealFs(), Log(home, "Trailgate Pump", "", RealClock()), RealClock())
    try:
        with socket.create_server(("127.0.0.1", 0)) as collector:
            taken = socket.create_connection(collector.getsockname())
            other, _ = collector.accept()
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            other.close()
        wait_for(lambda: _is_reset(taken))
        pump._source = object()
        pump._caller._dialler = _Got(taken)
        pump._phase = LinkPhase.DIALLING
        assert not pump.step()
        assert pump._phase is LinkPhase.AWAY
        assert taken.fileno() == -1
    finally:
        pump.close()
    with open(home.ggserr) as log:
        assert "Collector at 127.0.0.1: the link is lost: Transport endpoint is not connected" in log.read()


def test_a_pump_pins_the_home_that_it_was_made_for(tmp_path):
    """On a plain or local link too: another home behind the same RMTHOST gets no block, before and after a restart."""
    home = make_home(tmp_path / "home")
    trail = TrailName.parse("./dirdat/lt", home.root)
    Source(RealFs(), trail).writer.close()
    job = PumpJob(PumpParams("PMP1", RemoteHost("127.0.0.1", 1), "./dirdat/rt"), home.id, "h", trail, "./dirdat/lt", 1)
    log = Log(home, "Trailgate Pump", "", RealClock())

    def pump(job, *previous):
        made = Pump(job, RealFs(), log, RealClock(), previous)
        made.close()
        return made

    first = pump(job)
    first._places.check_pin("a" * 32, "Collector")
    first._places.check_pin("a" * 32, "Collector")
    with pytest.raises(MismatchError, match=f"is of home {'b' * 32}; PMP1 has sent this trail to home {'a' * 32}"):
        first._places.check_pin("b" * 32, "Collector")
    first._places._current = first._places._startup = Place(0, 0)
    saved = first.flush()
    with pytest.raises(MismatchError, match="ALTER EXTRACT PMP1, ETROLLOVER"):
        pump(job, saved)._places.check_pin("b" * 32, "Collector")
    pump(replace(job, alter_no=1, alter={"etrollover": True}), saved)._places.check_pin("b" * 32, "Collector")
    elsewhere = replace(job.params, remote=RemoteHost("127.0.0.2", 1))
    pump(replace(job, params=elsewhere), saved)._places.check_pin("b" * 32, "Collector")


def test_the_phases_of_a_link_hold_together():
    """Each is reached from AWAY and left for it by a lost link; only who said that the session ends expects a BYE."""
    reached, found = set(), [LinkPhase.AWAY]
    while found:
        phase = found.pop()
        reached.add(phase)
        found += [to for (begin, _), to in NEXT.items() if begin is phase and to not in reached]
    assert reached == set(LinkPhase)
    assert {to for (_, event), to in NEXT.items() if event is LinkEvent.DROPPED} == {LinkPhase.AWAY}
    ends = {to for (_, event), to in NEXT.items() if event in (LinkEvent.ROLLOVER, LinkEvent.GOODBYE)}
    assert {begin for begin, event in NEXT if event is LinkEvent.BYE} == ends <= LIVE


def test_a_remote_trail_is_rolled_over_only_while_there_is_a_link(tmp_path):
    """A second request while the first is under way is the same one; else ROLLOVER is refused with the reason."""
    home = make_home(tmp_path / "home")
    trail = TrailName.parse("./dirdat/lt", home.root)
    job = PumpJob(PumpParams("PMP1", RemoteHost("127.0.0.1", 1), "./dirdat/rt"), home.id, "h", trail, "./dirdat/lt", 1)
    pump = Pump(job, RealFs(), Log(home, "Trailgate Pump", "", RealClock()), RealClock())
    for phase in LinkPhase:
        pump._phase = phase
        if phase in (LinkPhase.STREAMING, LinkPhase.ROLLING):
            assert pump.command("ROLLOVER", {}) == {}
            assert pump._phase is LinkPhase.ROLLING
        else:
            with pytest.raises(OperatorError, match="there is no link"):
                pump.command("ROLLOVER", {})
            assert pump._phase is phase
    pump.close()


def _is_reset(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return True
    return False


class _Got:
    """A try that has ended with this socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def result(self) -> socket.socket:
        return self._sock

    def close(self) -> None:
        pass
