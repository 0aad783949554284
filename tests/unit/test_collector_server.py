"""The Collector's command line, its port, and what it tells the Manager."""

from __future__ import annotations

import json
import os
import socket
import threading
from dataclasses import replace

import pytest

from collector import server
from collector.collector import Collector
from collector.door import PumpDoor
from collector.params import CollectorParams, parse_ports
from collector.server import Server, listen, tell_ready
from demo.patience import PATIENCE, wait_for
from tests.support.link import Source
from trails.errors import OperatorError
from trails.link import wire
from trails.link.wire import FRAME, Side, WireSession, WireState
from trails.position import Position, TrailName
from trails.runtime.process.loop import Stop
from trails.testing import FaultFs

ARGUMENTS = ["--home", "/h", "--trail", "./dirdat/rt", "--ports", "7840-7842,7900"]


class NoLog:
    """Keeps what was logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, code: str, text: str, *, alike: str = "") -> None:
        self.lines.append(text)

    warning = error = info


def test_the_command_line():
    """The contract's arguments, with their defaults."""
    found = CollectorParams.from_arguments([*ARGUMENTS, "--ready-fd", "5"])
    assert found.ports == (7840, 7841, 7842, 7900)
    assert (found.bind, found.ready_fd) == ("127.0.0.1", 5)


@pytest.mark.parametrize("ports", ["", "x", "7840-", "70000", "5-4"])
def test_wrong_ports_are_refused(ports):
    """One sentence, no traceback."""
    with pytest.raises(OperatorError, match="ports"):
        CollectorParams.from_arguments([*ARGUMENTS[:-1], ports])


def test_a_missing_argument_is_refused():
    """argparse does not end the process by itself."""
    with pytest.raises(OperatorError, match="--home"):
        CollectorParams.from_arguments(ARGUMENTS[2:])


@pytest.mark.parametrize(
    "trail", ["./dirdat/../dirchk/rt", "/etc/rt", "./dirprm/rt", "../dirdat/rt", "./dirdat/link/rt"]
)
def test_a_trail_outside_dirdat_is_refused(tmp_path, trail):
    """Also through a symbolic link."""
    (tmp_path / "dirdat").mkdir()
    (tmp_path / "dirdat" / "link").symlink_to("/tmp")
    params = CollectorParams.from_arguments(["--home", "x", "--trail", trail, "--ports", "1"])
    with pytest.raises(OperatorError, match="dirdat"):
        params.trail_name(str(tmp_path))


def test_the_first_free_port_is_taken():
    """A port in use is passed over; none free is one clear message."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with listen("127.0.0.1", (port, 0)) as listener:
            assert listener.getsockname()[1] != port
        with pytest.raises(OperatorError, match=r"no port of .* is free"):
            listen("127.0.0.1", (port,))
    with pytest.raises(OperatorError, match=r"can't listen on 203\.0\.113\.7"):
        listen("203.0.113.7", parse_ports("0"))


def test_ready_is_one_line_and_a_dead_manager_is_no_error():
    """The pipe is closed after the line."""
    reader, writer = os.pipe()
    tell_ready(writer, port=7840)
    assert json.loads(os.read(reader, 100)) == {"port": 7840}
    assert os.read(reader, 1) == b""
    os.close(reader)
    reader, writer = os.pipe()
    os.close(reader)
    tell_ready(writer, port=1)
    tell_ready(-1, port=1)


@pytest.fixture
def served():
    """A Server on a thread: (port, log, done)."""
    near = FaultFs()
    Source(near, TrailName("/near", "lt"))
    collector = Collector(FaultFs(), TrailName("/far", "rt"), "./dirdat/rt")
    listener = listen("127.0.0.1", (0,))
    log = NoLog()
    stop = Stop()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            Server(collector, PumpDoor(listener, log), log, stop, 20.0).run()
        except BaseException as error:  # noqa: BLE001  -- looked at by the test
            errors.append(error)

    port = listener.getsockname()[1]
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield port, log, errors, thread
    stop.requested = True
    thread.join(PATIENCE)
    assert not thread.is_alive()


HELLO = wire.Hello("a" * 32, "PMP1", "here", "./dirdat/rt", b"\1" * 16, {}, 0, None, 100, 60_000)


def talk(sock, session, *messages):
    """Send messages; the next event."""
    for message in messages:
        sock.sendall(b"".join(bytes(piece) for piece in session.send(message)))
    while data := sock.recv(1 << 16):
        for event in session.receive(data):
            return event
    return None


def test_strangers_do_not_end_the_collector(served):
    """A port scan, an HTTP request and a half HELLO are dropped; the pump after them is served."""
    port, log, _, _ = served
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\1\0\0"):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(data)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        welcome = talk(sock, WireSession(Side.PUMP), HELLO)
        assert isinstance(welcome, wire.Welcome)
        assert welcome.origin == Position(0, 0)
    wait_for(lambda: any("closed the link" in line for line in log.lines))


def test_another_version_is_refused_with_both_numbers(served):
    """Permanent, and the message reaches the pump."""
    port, _, errors, thread = served
    session = WireSession(Side.PUMP)
    data = bytearray(b"".join(bytes(piece) for piece in session.send(HELLO)))
    data[FRAME.size + 5] = 9
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(data)
        refuse = talk(sock, session)
        assert refuse.permanent
        assert "version 9" in refuse.text
        assert "speaks 1" in refuse.text
    thread.join(PATIENCE)
    assert isinstance(errors[0], OperatorError)


def test_a_pong_tells_the_time(served):
    with socket.create_connection(("127.0.0.1", served[0])) as sock:
        session = WireSession(Side.PUMP)
        welcome = talk(sock, session, HELLO)
        sock.sendall(b"".join(bytes(piece) for piece in session.send(wire.Ping(7))))
        while not isinstance(pong := talk(sock, session), wire.Pong):
            assert pong is not None
        assert pong.number == 7
        assert pong.now_us >= welcome.now_us > 0


def test_a_silent_pump_ends_the_session_within_the_bound(served):
    """CW-23: 0.6 s after the last byte, and not before."""
    port, log, errors, thread = served
    with socket.create_connection(("127.0.0.1", port)) as sock:
        session = WireSession(Side.PUMP)
        assert isinstance(talk(sock, session, replace(HELLO, dead=600)), wire.Welcome)
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert not errors
    assert any("nothing was heard for 0.6 seconds" in line for line in log.lines)


def test_a_pump_that_asks_for_an_hour_gets_five_minutes(served, monkeypatch):
    """A HELLO may not hold a port for as long as it likes: the bound is the Collector's. Here it is half a second."""
    assert server.MOST_DEAD == 300.0
    monkeypatch.setattr(server, "MOST_DEAD", 0.5)
    port, log, errors, thread = served
    with socket.create_connection(("127.0.0.1", port)) as sock:
        assert isinstance(talk(sock, WireSession(Side.PUMP), replace(HELLO, dead=3_600_000)), wire.Welcome)
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert not errors
    assert any("nothing was heard for 0.5 seconds" in line for line in log.lines)


def test_a_goodbye_is_answered(served):
    """BYE, final ACK, BYE; the session closes at both ends."""
    port, _, errors, thread = served
    with socket.create_connection(("127.0.0.1", port)) as sock:
        session = WireSession(Side.PUMP)
        talk(sock, session, HELLO)
        assert isinstance(talk(sock, session, wire.Bye("done")), wire.Ack)
        if not isinstance(session.next_event(), wire.Bye):
            talk(sock, session)
        assert session.state is WireState.CLOSED
    thread.join(PATIENCE)
    assert not errors
