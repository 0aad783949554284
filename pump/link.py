"""Getting a link: ask the Manager at RMTHOST for a Collector, connect to it; and when to try again.

Rule: the pump's loop never waits for a name server, a handshake or a Collector's recovery. A Dialler does one try on a
thread of its own and wakes the loop by a descriptor; it is used once, and one that nobody waits for closes what it got.
On TLS nothing is taken from a peer before its certificate was checked, but for a plain refusal: a Manager that can't or
won't talk TLS with us says why in plain text, and that only delays the next try: anybody on the way may have said it.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pump.params import PumpParams
from trails.errors import AwayError, GateError, OperatorError, ProtocolError, UntrustedError
from trails.host import THIS_HOST, Host
from trails.keepalive import keep_alive
from trails.link import tls
from trails.runtime.home.home import Home
from trails.runtime.language.remotehost import RemoteHost
from trails.runtime.process.backoff import Backoff

MAX_REPLY = 64 << 10
PLAIN_ANSWER = b'{"ok"'
# The Manager first ends an older Collector, then the new one recovers the trail: that may take its time. Meanwhile it
# sends a space each half second; one that is silent for RMTHOST's TIMEOUT is not waited for.
ANSWER_SECONDS = 150.0
SAME_WARNING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """What the Manager is asked: a Collector for `trail`, for this pump and this source trail.

    `tls` is the folder of the home's certificates; empty: plain TCP.
    """

    host: str
    port: int
    trail: str
    pump: str
    source_trail: bytes
    tls: str = ""

    @property
    def manager(self) -> str:
        """The Manager's address, for messages."""
        return f"Manager at {self.host}:{self.port}"

    def line(self, verb: str) -> bytes:
        """One line of JSON."""
        asked = {
            "trailgate": 1, "verb": verb, "trail": self.trail, "pump": self.pump,
            "source_trail": self.source_trail.hex(),
        }  # fmt: skip
        return json.dumps(asked).encode() + b"\n"


def dial(request: LinkRequest, timeout: float, answer: float = ANSWER_SECONDS) -> socket.socket:
    """A socket connected to a Collector. Blocks up to `timeout` for each connection, handshake and silence, and
    `answer` for a Manager that gives signs of life.

    Raises AwayError if Manager or Collector can't be reached or can't serve now, OperatorError if a person must act.
    """
    port = ask(request, timeout, answer)
    return _connect(request, port, f"Collector at {request.host}:{port}", timeout)


def greet(remote: RemoteHost, home: Home, seconds: float) -> None:
    """Ask whether the Manager at RMTHOST answers us, certificates and access rules included. Raises as dial()."""
    folder = tls.folder_of(home.root) if remote.tls else ""
    ask(LinkRequest(remote.host, remote.port, "", home.id, b"", folder), seconds, seconds, "PING")


def _connect(request: LinkRequest, port: int, who: str, timeout: float) -> socket.socket:
    try:
        context = tls.client_context(request.tls) if request.tls else None
    except OperatorError as error:
        # At START they fitted: somebody may be copying another one there just now, and a copy is not made at once.
        raise AwayError(error.message, hint=error.hint) from None
    try:
        sock = socket.create_connection((request.host, port), timeout)
    except (OSError, UnicodeError) as error:
        raise AwayError(f"{who} can't be reached: {_reason(error)}") from None
    if context is None:
        return sock
    try:
        return secured(sock, context, request.host, who, time.monotonic() + timeout)
    except BaseException:
        sock.close()
        raise


def secured(
    sock: socket.socket, context: ssl.SSLContext, name: str, who: str, deadline: float, host: Host = THIS_HOST
) -> ssl.SSLSocket:
    """The same connection in TLS, the peer's certificate checked to be for `name` by then; closed if that fails."""
    sock.setblocking(False)
    try:
        secure = context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
    except (OSError, ValueError) as error:
        raise AwayError(f"{who} closed the link before a TLS handshake: {error}") from None
    try:
        _shake_hands(secure, who, deadline, host)
        tls.home_of(tls.shown(secure, who), who)  # from here on it is the peer's own word
    except ssl.SSLError as error:
        if tls.is_plain(error):
            with socket.socket(fileno=secure.detach()) as plain:
                _hear_plain_refusal(plain, who, deadline)
        secure.close()
        raise tls.explain(error, who) from None
    except OSError as error:
        secure.close()
        raise AwayError(f"{who} closed the link in the TLS handshake: {_reason(error)}") from None
    except BaseException:
        secure.close()
        raise
    return secure


def _shake_hands(secure: ssl.SSLSocket, who: str, deadline: float, host: Host) -> None:
    while True:
        try:
            secure.do_handshake()
            return
        except ssl.SSLWantReadError:
            wanted = select.POLLIN
        except ssl.SSLWantWriteError:
            wanted = select.POLLOUT
        if not host.poll([(secure.fileno(), wanted)], deadline - host.monotonic()):
            raise AwayError(f"{who}: no TLS handshake in time")


def _hear_plain_refusal(plain: socket.socket, who: str, deadline: float) -> None:
    """Raise what a Manager said in plain text instead of shaking hands, never for good; a plain yes is none.

    TLS has read the five bytes that every record begins with: of a Manager's answer they are `{"ok"`.
    """
    try:
        line = PLAIN_ANSWER + _read_line(plain, deadline, who)
        json.loads(line)
    except (GateError, OSError, ValueError, RecursionError):
        return  # no Manager: what TLS found is the better message
    try:
        parse_reply(line, who)
    except OperatorError as error:
        raise UntrustedError(error.message, hint=error.hint) from None
    raise ProtocolError(f"{who} answered in plain text where TLS was asked for")


def ask(request: LinkRequest, timeout: float, answer: float, verb: str = "START COLLECTOR") -> int:
    """Ask the Manager; the port that it tells. Raises as dial()."""
    with _connect(request, request.port, request.manager, timeout) as sock:
        every = max(1, int(timeout / 3))
        keep_alive(sock, idle=every, every=every)  # its host may go while we wait for its answer
        try:
            sock.settimeout(timeout)
            sock.sendall(request.line(verb))
            line = _read_line(sock, time.monotonic() + answer, request.manager, timeout)
        except ssl.SSLError as error:
            raise tls.explain(error, request.manager, trusted=True) from None
        except OSError as error:
            raise AwayError(f"{request.manager} did not answer: {_reason(error)}") from None
    return parse_reply(line, request.manager)


def _read_line(sock: socket.socket, deadline: float, who: str, silence: float = ANSWER_SECONDS) -> bytes:
    """Up to the newline, without the spaces before it. Raises AwayError for who says nothing for `silence` seconds."""
    data = b""
    while not data.endswith(b"\n"):
        left = deadline - time.monotonic()
        sock.settimeout(max(0.001, min(silence, left)))
        try:
            more = sock.recv(4096)
        except TimeoutError:
            said = f"nothing for {silence:g} seconds" if silence < left else "no answer in time"
            raise AwayError(f"{who} took the connection and said {said}") from None
        if not more:
            raise AwayError(f"{who} closed the link before it answered")
        data = (data + more).lstrip(b" ")
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
        said = str(reply.get("error", "no reason given"))[:2000]
        text = f"{who} refused: {''.join(char if char.isprintable() else ' ' for char in said)}"
        raise OperatorError(text) if reply.get("permanent") is True else AwayError(text)
    port = reply.get("port")
    if type(port) is not int or not 0 < port < 65_536:
        raise ProtocolError(f"{who}: expected a port, found {port!r}")
    return port


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return getattr(error, "strerror", None) or str(error)


Dial = Callable[[LinkRequest, float], socket.socket]
"""How a socket is got that a Collector has at its other end: dial()."""


class Dialler:
    """One try, on a thread of its own. Select on fileno(); then result()."""

    def __init__(self, request: LinkRequest, timeout: float, dial: Dial = dial, host: Host = THIS_HOST) -> None:
        self._signal = host.signal()
        self._lock = threading.Lock()
        self._outcome: socket.socket | Exception | None = None
        self._wanted = True
        host.thread("dial", lambda: self._run(dial, request, timeout))

    def fileno(self) -> int:
        """Readable once the try has ended."""
        return self._signal.fileno()

    def result(self) -> socket.socket | None:
        """The connected socket, or None while the try goes on. Raises what dial() raised."""
        with self._lock:
            outcome = self._outcome
            if isinstance(outcome, Exception):
                raise outcome
            self._outcome = None
        return outcome

    def close(self) -> None:
        """Nobody waits any more: what the try still gets is closed."""
        with self._lock:
            self._wanted = False
            if self._outcome is not None and not isinstance(self._outcome, Exception):
                self._outcome.close()
            self._signal.close()

    def _run(self, dial: Dial, request: LinkRequest, timeout: float) -> None:
        outcome: socket.socket | Exception
        try:
            outcome = dial(request, timeout)
        except Exception as error:  # noqa: BLE001  -- handed to the loop's thread, which raises it
            outcome = error
        with self._lock:
            if self._wanted:
                self._outcome = outcome
                self._signal.set()
            elif not isinstance(outcome, Exception):
                outcome.close()


class Caller:
    """Try after try for one pump: a Dialler at a time, Backoff between two, and what went wrong as a warning."""

    def __init__(self, params: PumpParams, warn: Callable[[str], None], now: float, dial: Dial, host: Host) -> None:
        self._remote = params.remote
        self._dial = dial
        self._host = host
        self._warn = warn
        self._backoff = Backoff(params.retry_seconds, params.retry_delay)
        self._dialler: Dialler | None = None
        self._dialled_at, self._told = 0.0, False
        self.retry_at = now
        self.trouble = ""
        """The last error; empty if there was none."""
        self._warned_at = -SAME_WARNING_SECONDS

    def dial(self, request: LinkRequest, now: float) -> None:
        """Begin a try."""
        self._dialler = Dialler(request, self._remote.dead_seconds, self._dial, self._host)
        self._dialled_at, self._told = now, False

    def fileno(self) -> int:
        """Readable once the try has ended."""
        assert self._dialler is not None
        return self._dialler.fileno()

    def result(self, now: float) -> socket.socket | None:
        """The connected socket, or None while the try goes on. Raises what dial() raised."""
        assert self._dialler is not None
        sock = self._dialler.result()
        if sock is None:
            self._tell_waiting(now)
        else:
            self.close()
        return sock

    def _tell_waiting(self, now: float) -> None:
        """A name server, or a Collector's recovery, may take longer than TIMEOUT: that is said once a try."""
        waited, remote = now - self._dialled_at, self._remote
        if waited > remote.dead_seconds and not self._told:
            self._told = True
            self._warn(
                f"Still waiting after {waited:.0f} s for a Collector of the Manager at {remote.host}:{remote.port}: "
                "the name is looked up, or the remote trail recovered. Its ggserr.log may say more."
            )

    def lost(self, error: GateError, now: float) -> None:
        """Plan the next try, and say so once. Raises AwayError when it was tried for long enough."""
        again = self._backoff.again(now)
        if again is None:
            raise AwayError(
                f"{error.message}; tried again for {self._backoff.limit:g} seconds",
                hint=error.hint or "See the Manager's ggserr.log on the remote host",
            )
        self.retry_at = again
        if error.message != self.trouble or now - self._warned_at >= SAME_WARNING_SECONDS:
            self.trouble, self._warned_at = error.message, now
            self._warn(f"{error}. Trying again in {self.retry_at - now:.1f} s.")

    def succeeded(self) -> None:
        """The link does its work: a loss from now on is another one."""
        self._backoff.succeeded()

    def close(self) -> None:
        """End the try, if there is one."""
        if self._dialler is not None:
            self._dialler.close()
            self._dialler = None
