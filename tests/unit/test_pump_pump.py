"""The pump's own states, where the link fails between two of them."""

from __future__ import annotations

import socket
import struct
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from demo.patience import wait_for
from pump import pin
from pump.checking import check_group
from pump.job import PumpJob
from pump.params import PumpParams
from pump.phase import LIVE, NEXT, LinkEvent, LinkPhase
from pump.pump import Pump
from tests.support.homes import make_home, write
from tests.support.link import Source
from trails.clock import RealClock
from trails.errors import DamageError, MismatchError, OperatorError
from trails.fs import RealFs
from trails.position import TrailName
from trails.record import Column, TableDef
from trails.runtime.home import pinned, registration
from trails.runtime.home.registration import Registration
from trails.runtime.language.remotehost import RemoteHost
from trails.runtime.report.report import Log
from trails.testing import After, FaultFs
from trails.writer import TrailWriter, WriterIdentity


def test_a_collector_that_dies_before_we_look_is_a_lost_link(tmp_path):
    """CW-02: the connection was taken and reset at once: tried again, not a bug that ends the pump for the night."""
    home = make_home(tmp_path / "home")
    trail = TrailName.parse("./dirdat/lt", home.root)
    Source(RealFs(), trail).writer.close()
    remote = RemoteHost("127.0.0.1", 1)
    job = PumpJob(
        PumpParams("PMP1", remote, "./dirdat/rt"), home.id, "here", trail, "./dirdat/lt", 1, home.pinned("PMP1")
    )
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


A, B = "a" * 32, "b" * 32


@pytest.fixture
def job(tmp_path):
    """Of a pump that has met home A, and keeps that apart from its checkpoint."""
    home = make_home(tmp_path / "home")
    trail = TrailName.parse("./dirdat/lt", home.root)
    params = PumpParams("PMP1", RemoteHost("127.0.0.1", 1), "./dirdat/rt")
    made = PumpJob(params, home.id, "h", trail, "./dirdat/lt", 1, home.pinned("PMP1"), alter_no=4)
    pin.check(RealFs(), made, A, "Collector")
    return made


def meets(job, home):
    """A Collector of `home` answers this job's pump."""
    pin.check(RealFs(), job, home, "Collector")


def test_only_the_operator_leads_a_pump_to_another_home(job):
    """ETROLLOVER does, once; an ALTER of another kind, an older one, or the same one again does not."""
    meets(job, A)
    with pytest.raises(MismatchError, match=f"is of home {B}; PMP1 has sent this trail to home {A}.*ETROLLOVER"):
        meets(job, B)
    for number, order in ((4, {"etrollover": True}), (3, {"etrollover": True}), (5, {"seqno": 0, "rba": 0})):
        with pytest.raises(MismatchError):
            meets(replace(job, alter_no=number, alter=order), B)
    altered = replace(job, alter_no=5, alter={"seqno": 0, "rba": 0, "etrollover": True})
    meets(altered, B)
    meets(altered, B)
    with pytest.raises(MismatchError, match=f"is of home {A}"):
        meets(altered, A)
    meets(replace(job, params=replace(job.params, remote=RemoteHost("127.0.0.2", 1))), A)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"place": 1, "home": 2, "alter_no": 3}', "[" * 5000])
def test_a_pin_that_cannot_be_read_is_told(job, text):
    """Nobody guesses whom it named."""
    Path(job.pinned).write_text(text)
    with pytest.raises(DamageError, match=r"PMP1\.remote: expected the remote home of a pump"):
        meets(job, A)


def test_a_crash_leaves_a_pin_whole():
    """Wherever the power goes while an ALTER leads elsewhere, the old home stands there or the new one: never none."""
    params = PumpParams("PMP1", RemoteHost("127.0.0.1", 1), "./dirdat/rt")
    job = PumpJob(params, "f" * 32, "h", TrailName("/d", "lt"), "./dirdat/lt", 1, "/p/PMP1.remote", alter_no=4)
    fs, found = FaultFs(), set()
    pin.check(fs, job, A, "Collector")
    fs.watch = lambda _call: found.update(pinned.read(fs.left(how), job.pinned) for how in After)
    pin.check(fs, replace(job, alter_no=5, alter={"etrollover": True}), B, "Collector")
    fs.watch = None
    place = "127.0.0.1:1 ./dirdat/rt"
    assert found == {pinned.Pin(place, A, 4), pinned.Pin(place, B, 5)}
    assert pinned.read(fs.left(After.POWER), job.pinned) == pinned.Pin(place, B, 5)


def test_a_table_that_the_trail_does_not_have_is_told(tmp_path):
    """A misspelt TABLE would send nothing, and look well."""
    home = make_home(tmp_path / "home")
    registration.save(home, Registration("PMP1", "EXTRACT", "TRAIL", "./dirdat/lt"))
    text = "EXTRACT pmp1\nRMTHOST 127.0.0.1, MGRPORT 1, NOTLS\nRMTTRAIL ./dirdat/rt\nTABLE shpo.*;\nTABLE shop.*;\n"
    write(home, "pmp1", text)
    trail, who = TrailName.parse("./dirdat/lt", home.root), WriterIdentity(home.id, "EXT1", "h", {})
    with closing(TrailWriter.open(home.fs, trail, who, restart_open=True)) as writer:
        assert "names no table" not in "".join(check_group(home, "PMP1").notes)
        writer.define([TableDef("shop", "t", (Column("id", "int8", "bigint", key=True),))])
        writer.append_place(writer.last.origin, 1)
        writer.sync()
    notes = [note for note in check_group(home, "PMP1").notes if "names no table" in note]
    assert [note.partition(":")[2].partition(" that")[0] for note in notes] == ["4: TABLE shpo.* names no table"]
    assert str(trail.path(0)) in notes[0]


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
    job = PumpJob(
        PumpParams("PMP1", RemoteHost("127.0.0.1", 1), "./dirdat/rt"),
        home.id,
        "h",
        trail,
        "./dirdat/lt",
        1,
        home.pinned("PMP1"),
    )
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
