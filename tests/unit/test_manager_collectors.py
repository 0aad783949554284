"""The port where pumps ask a Manager for a Collector: who is answered, who is refused, and that nobody holds it up."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from demo.patience import wait_for
from demo.ports import free_port
from ggsci.manager.collectors import Collectors
from tests.support.homes import good, make_home
from tests.support.managing import log_of, log_text, params
from trails.clock import RealClock
from trails.host import THIS_HOST
from trails.position import TrailName
from trails.testing import FakeClock


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "home")


class Port:
    """Collectors on a port of this host, with a program of the test's as Collector."""

    def __init__(self, home, program: str = "pass", clock=None, rule: str = "") -> None:
        rules = params(f"PORT {free_port()}\nNOTLS\n{rule}")
        command = lambda home, trail, params, peer, pump, fd: [sys.executable, "-c", program, str(fd)]  # noqa: E731
        self.collectors = Collectors(home, rules, log_of(home), clock or RealClock(), command)

    def ask(self, data: bytes) -> dict:
        """Send, let the Manager work, and give the answer."""
        with socket.create_connection(("127.0.0.1", self.collectors.port)) as link:
            link.sendall(data)
            link.setblocking(False)
            got = b""

            def answered() -> bool:
                nonlocal got
                self.collectors.step()
                try:
                    got += link.recv(65536)
                except BlockingIOError:
                    return False
                return got.endswith(b"\n")

            wait_for(answered)
        return json.loads(got)


@pytest.fixture
def port(home):
    made = []

    def make(*args, **more):
        made.append(Port(home, *args, **more))
        return made[-1]

    yield make
    for each in made:
        each.collectors.close()


def wanted(**changes) -> bytes:
    """A request."""
    asked = {"trailgate": 1, "verb": "START COLLECTOR", "trail": "./dirdat/rt", "pump": "a" * 32 + "/PMP1"}
    return json.dumps(asked | changes).encode() + b"\n"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "expected one line of JSON"),
        (b"[1]\n", "expected one line of JSON"),
        (b"x" * 9000, "at most 8192 bytes"),
        (wanted(trailgate=2), "speaks version 1, the pump 2"),
        (wanted(verb="STOP"), "expected START COLLECTOR"),
        (wanted(pump="../../x"), "expected START COLLECTOR"),
        (wanted(trail=7), "expected START COLLECTOR"),
        (wanted(trail="/etc/rt"), "outside this home's dirdat"),
        (wanted(trail="./dirdat/../dirprm/rt"), "outside this home's dirdat"),
        (wanted(trail="./dirdat/link/rt"), "outside this home's dirdat"),
        (wanted(trail="./dirdat/long"), "two-character prefix"),
        (wanted(trail="./dirdat/\x00t"), "printable name"),
        (wanted(trail="./dirdat/a\x00/rt"), "printable name"),
        (wanted(trail="./dirdat/\n2026 ERROR/rt"), "printable name"),
        (wanted(trail="./dirdat/" + "a/" * 600 + "rt"), "at most 1024 characters"),
        (wanted(trail="rt"), "outside this home's dirdat"),
        (wanted(trail="./dirdat/lt"), "is written by EXTRACT EXT1"),
    ],
)
def test_what_is_no_proper_request_is_refused(home, port, data, told):
    """Bounded, checked, and never outside dirdat, links followed."""
    os.symlink("/tmp", os.path.join(home.folder("dirdat"), "link"))
    good(home, "ADD EXTRACT ext1, TRANLOG")
    good(home, "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1")
    answer = port().ask(data)
    assert (answer["ok"], answer["permanent"]) == (False, True)
    assert told in answer["error"]


def test_the_replicat_of_rmttask_is_started_and_no_other_group(home, port):
    """By the file that is its own: one that reads a trail, or names a file, is none; one that runs is waited for."""
    good(home, "ADD REPLICAT load2, SPECIALRUN, CHECKPOINTTABLE gg.chk")
    good(home, "ADD REPLICAT load3, SPECIALRUN, EXTFILE ./dirdat/in, CHECKPOINTTABLE gg.chk")
    started: list[str] = []
    made = port()
    made.collectors.start_task = started.append
    asked = {"verb": "START TASK", "trail": "./dirdat/.LOAD2.rmttask/in"}
    for other in ("./dirdat/in", "./dirdat/.LOAD3.rmttask/in", "./dirdat/.LOAD2.rmttask/ot", "/etc/.LOAD2.rmttask/in"):
        answer = made.ask(wanted(**asked | {"trail": other}))
        assert not answer["ok"] and answer["permanent"], other
    assert "ADD REPLICAT LOAD3, SPECIALRUN" in made.ask(wanted(trail="./dirdat/.LOAD3.rmttask/in"))["error"]
    assert made.ask(wanted(**asked | {"verb": "PING"}))["ok"] and started == []
    assert made.ask(wanted(**asked))["ok"] and started == ["LOAD2"]
    lock = home.fs.lock(home.lock("LOAD2"))
    for verb in ("START TASK", "START COLLECTOR"):
        answer = made.ask(wanted(**asked | {"verb": verb}))
        assert (answer["ok"], answer["permanent"]) == (False, False) and "REPLICAT LOAD2 is running" in answer["error"]
    lock.release()
    assert started == ["LOAD2"]


def test_a_registration_that_can_not_be_read_ends_no_manager(home, port):
    """Nobody knows whether an Extract of this home writes the trail: the pump is told, and tries again."""
    good(home, "ADD EXTRACT ext1, TRANLOG")
    Path(home.registration("EXT1")).write_bytes(b"junk")
    made = port("input()")
    answer = made.ask(wanted())
    assert (answer["ok"], answer["permanent"]) == (False, False)
    assert "EXT1" in answer["error"]
    assert f"no Collector: {answer['error']}" in log_text(home)


def test_a_silent_client_is_let_go(home, port):
    """After ten seconds, and without holding up anybody."""
    clock = FakeClock()
    made = port(clock=clock)
    with socket.create_connection(("127.0.0.1", made.collectors.port)) as link:
        wait_for(lambda: made.collectors.step() or made.collectors._door._visitors)
        clock.sleep(11)
        made.collectors.step()
        assert b"within 10 seconds" in link.recv(1000)
        clock.sleep(3)
        made.collectors.step()
        assert made.collectors._door._visitors == []


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("raise SystemExit(1)", "ended at its start"),
        ('import os,sys; os.write(int(sys.argv[1]), b\'{"error": "no port is free"}\\n\')', "no port is free"),
        ("import os,sys; os.write(int(sys.argv[1]), b'nonsense\\n')", "ended at its start"),
        ("import os,sys; os.write(int(sys.argv[1]), b'[' * 6000 + b'\\n')", "ended at its start"),
    ],
)
def test_a_collector_that_cannot_start_is_answered(port, program, told):
    """The pump hears why, and may try again."""
    answer = port(program).ask(wanted())
    assert (answer["ok"], answer["permanent"]) == (False, False)
    assert told in answer["error"]


def test_a_manager_that_waits_for_a_collector_tells_the_pump_that_it_lives(home, port):
    """A space each half second, before the answer's JSON: so TIMEOUT of silence is a dead Manager."""
    clock = FakeClock()
    made = port("input()", clock)
    with socket.create_connection(("127.0.0.1", made.collectors.port)) as link:
        link.sendall(wanted())
        wait_for(lambda: made.collectors.step() or made.collectors.busy)
        for _ in range(3):
            clock.sleep(1)
            made.collectors.step()
            assert link.recv(100) == b" "


def test_one_home_does_not_get_every_collector(home, port):
    """Neither those that run nor those just asked for may be more than its share; another home is served."""
    running = {
        "pid": os.getpid(),
        "port": 1,
        "assigned_us": 1,
        "birth": THIS_HOST.birth(os.getpid()),
        "pump": "a" * 32 + "/P1",
    }
    trails = [os.path.join(home.folder("dirdat"), prefix) for prefix in ("aa", "ab")]
    with open(os.path.join(home.folder("dirpcs"), "MGR.collectors"), "w") as file:
        json.dump([running | {"trail": trail} for trail in trails], file)
    made = port(rule="COLLECTORSPERHOME 2")
    refused = made.ask(wanted())
    assert not refused["permanent"] and "this home has 2 Collectors already" in refused["error"]
    assert "ended at its start" in made.ask(wanted(pump="b" * 32 + "/PMP1"))["error"]


def test_a_homes_share_of_the_ports():
    """Three quarters, and 64 at most; the one port of a small list is anybody's."""
    for ports, share in (("7840", 1), ("7840-7842", 3), ("7840-7843", 3), ("7840-7855", 12), ("7840-8839", 64)):
        assert params(f"DYNAMICPORTLIST {ports}").collectors_per_home == share
    assert params("DYNAMICPORTLIST 7840-7843\nCOLLECTORSPERHOME 4").collectors_per_home == 4


def test_the_trails_lock_of_a_stranger_is_respected(home, port):
    """Whoever holds the trail and was not handed out here is not killed; the pump tries again."""
    trail = TrailName.parse("./dirdat/rt", home.root)
    lock = home.fs.lock(trail.lock_path())
    answer = port().ask(wanted())
    lock.release()
    assert f"held by process {os.getpid()}" in answer["error"]
    assert not answer["permanent"]


def test_a_reused_process_id_is_no_collector(home, port):
    """The note of an earlier Manager names a process id that somebody else has now: it is left alone."""
    note = {"pid": os.getpid(), "pump": "a" * 32 + "/PMP1", "trail": "x", "port": 1, "assigned_us": 1, "birth": 1}
    with open(os.path.join(home.folder("dirpcs"), "MGR.collectors"), "w") as file:
        json.dump([note], file)
    made = port()
    assert made.collectors.rows() == []
    assert THIS_HOST.birth(os.getpid()) != 1
    assert THIS_HOST.birth(2**22 + 1) is None
