"""Getting a link: ask the Manager at RMTHOST for a Collector, connect to it; and how often to try again.

Rule: the pump's loop never waits for a name server, a handshake or a Collector's recovery. A Dialler does one try on a
thread of its own and wakes the loop by a descriptor; it is used once, and one that nobody waits for closes what it got.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

from trails.errors import AwayError, GateError, OperatorError, ProtocolError

MAX_REPLY = 64 << 10
# The Manager first ends an older Collector, then the new one recovers the trail: that may take its time.
ANSWER_SECONDS = 150.0
FIRST_DELAY = 0.1


@dataclass(frozen=True, slots=True)
class Request:
    """What the Manager is asked: a Collector for `trail`, for this pump and this source trail."""

    host: str
    port: int
    trail: str
    pump: str
    source_trail: bytes

    @property
    def manager(self) -> str:
        """The Manager's address, for messages."""
        return f"Manager at {self.host}:{self.port}"

    def line(self) -> bytes:
        """One line of JSON."""
        asked = {
            "trailgate": 1,
            "verb": "START COLLECTOR",
            "trail": self.trail,
            "pump": self.pump,
            "source_trail": self.source_trail.hex(),
        }
        return json.dumps(asked).encode() + b"\n"


def dial(request: Request, timeout: float, answer: float = ANSWER_SECONDS) -> socket.socket:
    """A socket connected to a Collector. Blocks up to `timeout` for each connection, `answer` for the Manager.

    Raises AwayError if Manager or Collector can't be reached or can't serve now, OperatorError if a person must act.
    """
    port = _ask(request, timeout, answer)
    return _connect(request.host, port, f"Collector at {request.host}:{port}", timeout)


def _connect(host: str, port: int, who: str, timeout: float) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout)
    except (OSError, UnicodeError) as error:
        raise AwayError(f"{who} can't be reached: {_reason(error)}") from None


def _ask(request: Request, timeout: float, answer: float) -> int:
    with _connect(request.host, request.port, request.manager, timeout) as sock:
        _notice_death(sock, timeout)
        try:
            sock.sendall(request.line())
            line = _read_line(sock, time.monotonic() + answer, request.manager)
        except OSError as error:
            raise AwayError(f"{request.manager} did not answer: {_reason(error)}") from None
    return parse_reply(line, request.manager)


def _notice_death(sock: socket.socket, seconds: float) -> None:
    """Let the system find out within about `seconds` if the Manager's host went away while we wait for its answer."""
    every = max(1, int(seconds / 3))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, every), (socket.TCP_KEEPINTVL, every), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _read_line(sock: socket.socket, deadline: float, who: str) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        more = sock.recv(4096)
        if not more:
            raise AwayError(f"{who} closed the link before it answered")
        data += more
        if len(data) > MAX_REPLY:
            raise ProtocolError(f"{who}: expected an answer of at most {MAX_REPLY} bytes")
    return data


def parse_reply(line: bytes, who: str) -> int:
    """The Collector's port in the Manager's answer; its refusal as OperatorError (permanent) or AwayError."""
    try:
        reply: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise ProtocolError(f"{who}: expected a line of JSON, found {line[:60]!r}") from None
    if not isinstance(reply, dict) or not isinstance(reply.get("ok"), bool):
        raise ProtocolError(f"{who}: expected an object with ok, found {line[:60]!r}")
    if not reply["ok"]:
        text = f"{who} refused: {str(reply.get('error', 'no reason given'))[:2000]}"
        raise OperatorError(text) if reply.get("permanent") is True else AwayError(text)
    port = reply.get("port")
    if type(port) is not int or not 0 < port < 65_536:
        raise ProtocolError(f"{who}: expected a port, found {port!r}")
    return port


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return getattr(error, "strerror", None) or str(error)


class Dialler:
    """One try, on a daemon thread. Select on fileno(); then result()."""

    def __init__(self, request: Request, timeout: float) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._outcome: socket.socket | Exception | None = None
        self._wanted = True
        threading.Thread(target=self._run, args=(request, timeout), name="dial", daemon=True).start()

    def fileno(self) -> int:
        """Readable once the try has ended."""
        return self._event

    def result(self) -> socket.socket | None:
        """The connected socket, or None while the try goes on. Raises what dial() raised."""
        with self._lock:
            outcome = self._outcome
            if isinstance(outcome, socket.socket):
                self._outcome = None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        """Nobody waits any more: what the try still gets is closed."""
        with self._lock:
            self._wanted = False
            if isinstance(self._outcome, socket.socket):
                self._outcome.close()
            os.close(self._event)

    def _run(self, request: Request, timeout: float) -> None:
        outcome: socket.socket | Exception
        try:
            outcome = dial(request, timeout)
        except Exception as error:  # noqa: BLE001  -- handed to the loop's thread, which raises it
            outcome = error
        with self._lock:
            if self._wanted:
                self._outcome = outcome
                os.eventfd_write(self._event, 1)
            elif isinstance(outcome, socket.socket):
                outcome.close()


class Backoff:
    """When to try again: after 0.1 s, then twice as long each time up to `longest`, for `limit` seconds in all."""

    def __init__(self, longest: float, limit: float) -> None:
        self._longest = longest
        self._limit = limit
        self._delay = FIRST_DELAY
        self._since: float | None = None

    def again(self, now: float, error: GateError) -> float:
        """The moment of the next try. Raises AwayError when the limit is passed."""
        if self._since is None:
            self._since = now
        if now - self._since >= self._limit:
            raise AwayError(
                f"{error.message}; tried again for {self._limit:g} seconds",
                hint=error.hint or "See the Manager's ggserr.log on the remote host",
            )
        delay, self._delay = min(self._delay, self._longest), min(self._delay * 2, self._longest)
        return now + delay

    def succeeded(self) -> None:
        """The link does its work: begin anew at the next loss."""
        self._delay = FIRST_DELAY
        self._since = None
