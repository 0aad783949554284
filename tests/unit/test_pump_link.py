"""Asking the Manager, and how often."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from demo.patience import wait_for
from pump.link import Dialler, LinkRequest, _read_line, dial, parse_reply
from trails.errors import AwayError, OperatorError, ProtocolError


def manager(reply: bytes, seen: list[bytes] | None = None) -> socket.socket:
    """A listener that answers one line."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        with sock:
            line = sock.makefile("rb").readline()
            if seen is not None:
                seen.append(line)
            sock.sendall(reply)

    threading.Thread(target=serve, daemon=True).start()
    return listener


def request(port: int) -> LinkRequest:
    return LinkRequest("127.0.0.1", port, "./dirdat/rt", "aa/PMP1", b"\1" * 16)


def test_the_request_is_one_line_and_the_port_is_dialled():
    """The Manager's line has the contract's keys; the socket leads to the port that it names."""
    with socket.create_server(("127.0.0.1", 0)) as collector:
        port = collector.getsockname()[1]
        seen: list[bytes] = []
        with manager(json.dumps({"ok": True, "port": port}).encode() + b"\n", seen) as listener:
            dial(request(listener.getsockname()[1]), 60).close()
        assert json.loads(seen[0]) == {
            "trailgate": 1,
            "verb": "START COLLECTOR",
            "trail": "./dirdat/rt",
            "pump": "aa/PMP1",
            "source_trail": "01" * 16,
        }


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (b'{"ok": false, "error": "busy", "permanent": false}\n', AwayError, "busy"),
        (b'{"ok": false, "error": "other pump", "permanent": true}\n', OperatorError, "other pump"),
        (b'{"ok": false}\n', AwayError, "no reason given"),
        (b"not json\n", ProtocolError, "JSON"),
        (b"[1]\n", ProtocolError, "object"),
        (b'{"ok": true, "port": "x"}\n', ProtocolError, "port"),
        (b'{"ok": true, "port": 70000}\n', ProtocolError, "port"),
        (b"[" * 5000 + b"\n", ProtocolError, "JSON"),
    ],
)
def test_every_answer_is_a_port_or_a_named_error(reply, kind, text):
    """Permanent ones end the pump, others are tried again."""
    with pytest.raises(kind, match=text):
        parse_reply(reply, "Manager at h:1")


def test_a_manager_that_talks_without_end_or_not_at_all_is_an_error():
    """Bounded in bytes and in time."""
    with manager(b"x" * 100_000) as listener, pytest.raises(ProtocolError, match="at most"):
        dial(request(listener.getsockname()[1]), 60)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(AwayError, match="said no answer in time"):
        dial(request(silent.getsockname()[1]), 1, 0.2)


def test_a_manager_that_accepts_and_is_silent_is_given_up_after_TIMEOUT():
    """It took the connection and says nothing: the pump waited 150 s for that, without a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(AwayError, match="said nothing for 0"):
        dial(request(silent.getsockname()[1]), 0.3, 10**6)


class Wire:
    """A connection on which this was said, piece by piece; `waits` is how long each piece might have taken."""

    def __init__(self, *said: bytes) -> None:
        self.said, self.waits = list(said), []

    def settimeout(self, seconds: float) -> None:
        self.waits.append(seconds)

    def recv(self, _size: int) -> bytes:
        return self.said.pop(0)


def test_a_manager_that_works_on_its_answer_gives_signs_of_life():
    """Spaces before the JSON: each begins TIMEOUT anew, so a long recovery of the trail costs no try."""
    link = Wire(*[b" "] * 50, b'  {"ok": true,', b' "port": 7}\n')
    line = _read_line(link, time.monotonic() + 3600, "Manager", 10.0)  # type: ignore[arg-type]
    assert parse_reply(line, "Manager") == 7
    assert link.waits == [10.0] * 52


def test_a_name_that_does_not_resolve_is_away():
    """No traceback for a wrong RMTHOST."""
    with pytest.raises(AwayError, match="can't be reached"):
        dial(LinkRequest("no such host", 1, "t", "p", b""), 1)


def test_a_dialler_wakes_its_loop_and_gives_the_error():
    """The thread's error comes out of result()."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        dialler = Dialler(request(nobody.getsockname()[1]), 60)
        with pytest.raises(AwayError, match="Connection refused"):
            wait_for(dialler.result)
        dialler.close()


def test_a_dialler_that_nobody_waits_for_closes_what_it_got():
    """STOP during a try leaves no Collector with a silent pump."""
    with socket.create_server(("127.0.0.1", 0)) as collector:
        port = collector.getsockname()[1]
        with manager(json.dumps({"ok": True, "port": port}).encode() + b"\n") as listener:
            dialler = Dialler(request(listener.getsockname()[1]), 60)
            dialler.close()
            sock, _ = collector.accept()
            with sock:
                sock.settimeout(60)
                assert sock.recv(1) == b""
