"""ACCESSRULE, the limits of the Manager's and the Collector's door, and what a log hears of strangers."""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from dataclasses import replace

import pytest

from collector import door as collector_door
from collector.server import listen
from demo.patience import wait_for
from ggsci.manager import access
from ggsci.manager import door as manager_door
from ggsci.manager.params import ManagerParams
from tests.support.homes import make_home
from tests.support.secure import Listening
from trails.link import wire
from trails.link.wire import Side, WireSession
from trails.runtime.language.params import ParamErrors, parse_text
from trails.runtime.report.limits import MAX_KEYS, Rates, address_of, crowd_of
from trails.runtime.report.report import Log
from trails.testing import FakeClock

HELLO = wire.Hello("a" * 32, "PMP1", "here", "./dirdat/rt", b"\1" * 16, {}, 0, None, 100, 600)


def rules(text: str) -> tuple[access.AccessRule, ...]:
    """What mgr.prm's rules mean."""
    return ManagerParams.from_statements(parse_text(text, "mgr.prm"), "mgr.prm").access_rules


TEN = "ACCESSRULE, PROG COLLECTOR, IPADDR 10.*, ALLOW"


@pytest.mark.parametrize(
    ("text", "allowed", "denied"),
    [
        ("", ["127.0.0.1", "10.1.2.3", "fe80::1%eth0"], []),
        (TEN, ["10.9.9.9", "127.0.0.1", "::1", "::ffff:10.0.0.1"], ["11.0.0.1", "fe80::1"]),
        ("ACCESSRULE, PROG *, IPADDR 10.1.0.0/16, DENY\n" + TEN, ["10.2.0.1"], ["10.1.255.1", "192.168.0.1"]),
        (TEN + "\nACCESSRULE, PROG *, IPADDR 10.1.*, DENY, PRI 1", ["10.2.0.1"], ["10.1.255.1"]),
        ("ACCESSRULE, PROG *, IPADDR *, DENY", [], ["127.0.0.1", "10.0.0.1", "::1"]),
        ("ACCESSRULE IPADDR 10.0.0.5 ALLOW", ["10.0.0.5"], ["10.0.0.6"]),
        ("ACCESSRULE, IPADDR fd00::/8, ALLOW", ["fd12::1"], ["fe80::1", "10.0.0.1"]),
        ("ACCESSRULE, PROG SERVER, IPADDR 10.1.*.*, ALLOW", ["10.1.0.1"], ["10.2.0.1"]),
        ("ACCESSRULE, IPADDR ::ffff:10.1.0.0/112, DENY\n" + TEN, ["10.2.0.1"], ["10.1.0.1", "::ffff:10.1.0.1"]),
    ],
)
def test_the_first_rule_that_matches_decides(text, allowed, denied):
    """By priority, then in the file's order; loopback stays allowed unless denied; no rule, no limit."""
    for one in allowed:
        assert access.why_denied(rules(text), address_of(one)) == "", one
    for one in denied:
        assert "ACCESSRULE" in access.why_denied(rules(text), address_of(one)), one


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ACCESSRULE, PROG *, IPADDR 10.*", "ALLOW . DENY"),
        ("ACCESSRULE, PROG *, IPADDR 10.*, ALLOW, DENY", "ALLOW . DENY"),
        ("ACCESSRULE, PROG *, ALLOW", "IPADDR"),
        ("ACCESSRULE, PROG GGSCI, IPADDR *, ALLOW", "PROG COLLECTOR or PROG"),
        ("ACCESSRULE, PROG *, IPADDR 10.*.1, ALLOW", "stars only at the end"),
        ("ACCESSRULE, PROG *, IPADDR 10.0.0.1/16, ALLOW", "has host bits set"),
        ("ACCESSRULE, PROG *, IPADDR there, ALLOW", "10.1.0.0/16"),
        ("ACCESSRULE, PROG *, IPADDR *, ALLOW, PRI 100", "from 1 to 99"),
        ("ACCESSRULE, PROG *, IPADDR *, ALLOW, PRI", "PRI n"),
        ("ACCESSRULE, PROG *, PROG *, IPADDR *, ALLOW", "PRI n"),
    ],
)
def test_a_wrong_rule_is_refused(text, told):
    """A rule that would not do what it seems to say never starts a Manager."""
    with pytest.raises(ParamErrors, match=told):
        rules(text)


def test_rates_are_bounded_in_time_and_in_keys():
    """A burst, then the long run; memory has a bound."""
    rates = Rates(2.0, 3)
    assert [rates.take("a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert rates.take("b", 0.0)
    assert [rates.take("a", 0.5) for _ in range(2)] == [True, False]
    assert rates.take("a", 100.0)
    for number in range(3 * MAX_KEYS):
        rates.take(str(number), 100.0)
    assert len(rates._buckets) == MAX_KEYS


def test_limits_count_a_network_of_ipv6_as_one():
    """Its host could take another address each time; IPv4 addresses and loopback stand for themselves."""
    same = {crowd_of(address_of(one)) for one in ("2001:db8::1", "2001:db8::ffff:1", "2001:db8::2%eth0")}
    assert same == {"2001:db8::/64"}
    assert crowd_of(address_of("2001:db8:0:1::1")) not in same
    assert [crowd_of(address_of(one)) for one in ("10.0.0.1", "::ffff:10.0.0.2", "::1")] == [
        "10.0.0.1",
        "10.0.0.2",
        "::1",
    ]


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "home")


def served(manager) -> bool:
    """Whether the Manager answers a PING in plain text."""
    with socket.create_connection(("127.0.0.1", manager.port)) as link:
        link.settimeout(60)
        try:
            link.sendall(b'{"trailgate": 1, "verb": "PING"}\n')
            return bool(json.loads(link.makefile("rb").readline() or b"{}").get("ok"))
        except ConnectionError:
            return False


def test_a_denied_address_hears_why(home):
    """Before any handshake, and the log names address and rule."""
    manager = Listening(home, "ACCESSRULE, PROG *, IPADDR 127.0.0.1, DENY\n")
    try:
        with socket.create_connection(("127.0.0.1", manager.port)) as link:
            link.sendall(b"\x16\x03\x01")
            answer = json.loads(link.makefile("rb").readline())
        assert answer["permanent"] is True
        assert answer["error"] == "127.0.0.1 is denied by ACCESSRULE"
        assert "IPADDR 127.0.0.1, DENY denies 127.0.0.1" in manager.log()
    finally:
        manager.close()


def test_silent_strangers_of_one_address_do_not_fill_the_manager(home, monkeypatch):
    """So many of one address at once, no more; when they are gone the address is served again."""
    monkeypatch.setattr(manager_door, "MAX_PER_ADDRESS", 4)
    manager = Listening(home, "NOTLS")
    try:
        links = [socket.create_connection(("127.0.0.1", manager.port)) for _ in range(4)]
        wait_for(lambda: len(manager.collectors._door._visitors) == 4)
        assert not served(manager)
        for link in links:
            link.close()
        wait_for(lambda: served(manager))
        assert "asks too often or too much at once" in manager.log()
    finally:
        manager.close()


def test_requests_come_at_a_bounded_rate_and_are_logged_a_few_times(home, monkeypatch):
    """A pump gone wild costs a closed connection each, and some log lines in all."""
    monkeypatch.setattr(manager_door, "BURST", 10)
    monkeypatch.setattr(manager_door, "PER_SECOND", 0.001)
    manager = Listening(home, "NOTLS")
    try:
        assert sum(served(manager) for _ in range(60)) == 10
        assert manager.log().count("asks too often") == 1
    finally:
        manager.close()


class Endless:
    """A link on which more bytes always wait: a peer that sends faster than we read."""

    def __init__(self) -> None:
        self.reads = 0
        self.fd = 0

    def recv(self, size: int) -> bytes:
        self.reads += 1
        assert self.reads < 1000, "somebody reads without end"
        return bytes(size)

    def close(self) -> None:
        self.fd = -1

    def fileno(self) -> int:
        return self.fd


def test_who_sends_without_end_holds_nobody_up(home):
    """What a refused visitor goes on sending is dropped a piece each turn, until his time is over."""
    clock, link = FakeClock(), Endless()
    params = ManagerParams.from_statements(parse_text("PORT 7809\nNOTLS", "mgr.prm"), "mgr.prm")
    door = manager_door.ManagerDoor(replace(params, port=0), "", Log(home, "Manager", "mgr.prm", clock), clock)
    visitor = manager_door.Visitor(link, "10.0.0.1", "10.0.0.1", "10.0.0.1:9", 0.0)  # type: ignore[arg-type]
    visitor.phase, visitor.deadline = manager_door.VisitPhase.CLOSING, clock.monotonic() + manager_door.LINGER_SECONDS
    door._visitors.append(visitor)
    for _ in range(3):
        assert door.step() == []
    assert (link.reads, visitor.gone) == (3, False)
    clock.sleep(manager_door.LINGER_SECONDS + 1)
    door.step()
    assert (visitor.gone, door._visitors) == (True, [])
    door.close()


def test_no_descriptors_left_makes_nobody_spin(home):
    """EMFILE: the listener is left alone for a moment, said once, and works again afterwards."""
    manager = Listening(home, "NOTLS")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    link = socket.socket()
    door = manager.collectors._door
    try:
        low = os.dup(link.fileno())
        os.close(low)
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
        link.connect(("127.0.0.1", manager.port))
        wait_for(lambda: door._pause_until > time.monotonic() and door._listener.fileno() not in door.waits())
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        wait_for(lambda: "No pump could be served for a moment" in manager.log())
        link.sendall(b'{"trailgate": 1, "verb": "PING"}\n')
        link.settimeout(60)
        assert b'"ok": true' in link.recv(1000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        link.close()
        manager.close()


# --- the Collector's door ---------------------------------------------------------------------------------------------


class Lines:
    """Keeps what was logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, code: str, text: str, *, alike: str) -> None:
        self.lines.append(text)


def at_the_door(only: str = "", folder: str = "", pump: str = "") -> tuple[collector_door.PumpDoor, Lines, int]:
    """A Collector's door, its log, its port."""
    listener, log = listen("127.0.0.1", (0,)), Lines()
    return collector_door.PumpDoor(listener, log, folder, only, pump), log, listener.getsockname()[1]  # type: ignore[arg-type]


def test_a_collector_serves_the_address_that_asked_for_it():
    """Another one is dropped before it can say anything."""
    door, log, port = at_the_door(only="10.0.0.1")
    with socket.create_connection(("127.0.0.1", port)) as link:
        wait_for(lambda: door.step() or log.lines)
        assert link.recv(1) == b""
    assert "10.0.0.1 asked for this Collector" in log.lines[0]
    door.close()


def test_a_collector_serves_the_pump_it_was_started_for():
    """Another group, or another home, at the right address: told so and dropped, and the right one is still heard."""
    door, log, port = at_the_door(pump=HELLO.pump)
    for wrong in (replace(HELLO, group="PMP9"), replace(HELLO, home="b" * 32)):
        session, before = WireSession(Side.PUMP), len(log.lines)
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.sendall(b"".join(map(bytes, session.send(wrong))))
            wait_for(lambda before=before: door.step() or len(log.lines) > before)
            (told,) = session.receive(link.recv(10_000))
        assert isinstance(told, wire.Refuse) and not told.permanent
        assert f"is pump {wrong.pump}" in log.lines[-1]
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(b"".join(map(bytes, WireSession(Side.PUMP).send(HELLO))))
        channel, event = wait_for(door.step)
        assert event == HELLO
        channel.close()
    door.close()


def test_silent_callers_do_not_keep_the_pump_waiting():
    """Seven who say nothing, and then the pump: it is heard at once, the others are let go."""
    door, _, port = at_the_door(only="127.0.0.1")
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(7)]
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(b"".join(map(bytes, WireSession(Side.PUMP).send(HELLO))))
        channel, event = wait_for(door.step)
        assert event == HELLO
        channel.close()
    for one in silent:
        assert one.recv(1) == b""
        one.close()
    door.close()


def test_the_wrong_kind_of_caller_is_told(tmp_path):
    """TLS at a plain Collector; plain at one that talks TLS, which the pump reads as a refusal."""
    door, log, port = at_the_door()
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(b"\x16\x03\x01\x00\x05hello")
        wait_for(lambda: door.step() or log.lines)
    assert "talks no TLS" in log.lines[0]
    door.close()
    door, log, port = at_the_door(folder=str(tmp_path))
    session = WireSession(Side.PUMP)
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(b"".join(map(bytes, session.send(HELLO))))
        wait_for(lambda: door.step() or log.lines)
        told = list(session.receive(link.recv(10_000)))
    assert isinstance(told[0], wire.Refuse)
    assert "talks TLS only" in told[0].text
    door.close()
