"""Who may come in at a Collector's port: the pump that it was started for, from the address that asked the Manager.

Rule: a certificate of the CA opens no door by itself: the pump is the one that the Manager was asked for, and the
certificate is its home's. Nobody is waited for alone. Up to eight connections stand at the door at once, each with its
deadline, and the first that says the right HELLO is the pump; so a silent stranger costs the pump nothing. Each is told
from plain or TLS by its first byte, and a wrong one is told why where it can be. Strangers end no process, and the log
hears of few of them.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from trails.errors import AwayError, GateError, OperatorError, ProtocolError
from trails.host import THIS_HOST, Host
from trails.link import tls, wire
from trails.link.channel import Channel
from trails.link.wire import Side, WireSession
from trails.runtime.report.limits import EXHAUSTED, PAUSE_SECONDS, address_of, crowd_of
from trails.runtime.report.report import Log

GREETING_SECONDS = 10.0
MAX_WAITING = 8
DEFAULT_DEAD = 10.0

CODE_REFUSED = "TG-01227"

_NO_TLS = "this Collector talks no TLS (NOTLS in mgr.prm of its home), the pump does"
_ONLY_TLS = "this Collector talks TLS only, the pump's RMTHOST says NOTLS"


@dataclass(slots=True, eq=False)
class _Caller:
    """A connection that has not said HELLO; `channel` once its first byte was seen."""

    sock: socket.socket
    peer: str
    deadline: float
    channel: Channel | None = None

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        self.sock.close()

    def fileno(self) -> int:
        return self.channel.fileno() if self.channel is not None else self.sock.fileno()


class PumpDoor:
    """The listener and its callers. `folder`: of the certificates, empty for plain TCP; `only`: the one address;
    `pump`: the one pump, as home id and group (either is empty: any).
    """

    def __init__(
        self,
        listener: socket.socket,
        log: Log,
        folder: str = "",
        only: str = "",
        pump: str = "",
        host: Host = THIS_HOST,
        secure: Callable[[socket.socket, str], ssl.SSLSocket] = tls.answer,
    ) -> None:
        self._listener = listener
        self._host = host
        self._secure = secure
        self._log = log
        self._folder = folder
        self._only = only
        self._pump = pump
        self._callers: list[_Caller] = []
        self._pause_until = 0.0

    def waits(self) -> list[int]:
        """What to wake on."""
        fds = [caller.fileno() for caller in self._callers]
        if len(self._callers) < MAX_WAITING and self._host.monotonic() >= self._pause_until:
            fds.append(self._listener.fileno())
        return fds

    def close(self) -> None:
        """Let everybody go; no pump comes in any more."""
        self._listener.close()
        self._let_go(None)

    def step(self) -> tuple[Channel, wire.Event] | None:
        """The first caller who says HELLO (of whatever version), with it; all others are then let go."""
        self._accept()
        for caller in list(self._callers):
            event = self._hear(caller)
            if event is not None and caller.channel is not None:
                self._let_go(caller)
                return caller.channel, event
        return None

    def _let_go(self, kept: _Caller | None) -> None:
        for caller in self._callers:
            if caller is not kept:
                caller.close()
        self._callers = []

    def _accept(self) -> None:
        now = self._host.monotonic()
        while len(self._callers) < MAX_WAITING and now >= self._pause_until:
            try:
                sock, where = self._listener.accept()
            except OSError as error:
                # Not logged: without a descriptor no log can be opened either, and that must not end us.
                self._pause_until = now + PAUSE_SECONDS if error.errno in EXHAUSTED else 0.0
                return
            sock.setblocking(False)
            peer = f"pump at {where[0]}:{where[1]}"
            if self._only and address_of(where[0]) != address_of(self._only):
                sock.close()
                self._say(crowd_of(address_of(where[0])), f"{peer}: dropped; {self._only} asked for this Collector")
                continue
            self._callers.append(_Caller(sock, peer, now + GREETING_SECONDS))

    def _hear(self, caller: _Caller) -> wire.Event | None:
        """A caller's first message; None while there is none. One who errs is dropped."""
        try:
            if caller.channel is None and not self._look(caller):
                if caller.sock.fileno() < 0:
                    self._callers.remove(caller)
                return None
            assert caller.channel is not None
            caller.channel.flush()
            for event in caller.channel.receive(self._host.monotonic()):
                if isinstance(event, wire.Hello):
                    self._check_pump(caller.channel, event)
                return event
            if self._host.monotonic() > caller.deadline:
                raise AwayError(f"{caller.peer}: no greeting within {GREETING_SECONDS:g} seconds")
        except (AwayError, ProtocolError, OperatorError) as error:
            # OperatorError: a certificate that is refused. That is the caller's matter, not our end.
            self._drop(caller, error)
        return None

    def _check_pump(self, channel: Channel, hello: wire.Hello) -> None:
        """Another pump, or a home whose certificate is another's: told so, and dropped as any stranger."""
        try:
            channel.check_home(hello.home)
        except OperatorError as error:
            channel.send(wire.Refuse(True, str(error)))
            raise
        if self._pump and hello.pump != self._pump:
            # Not for good: who was too late for his own Collector may have come to a port that is another's now.
            channel.send(wire.Refuse(False, "this Collector was started for another pump"))
            raise OperatorError(
                f"{channel.peer} is pump {hello.pump}; this Collector was started for {self._pump}",
                hint="Its pump has to come through the Manager: see RMTHOST in its parameter file",
            )

    def _look(self, caller: _Caller) -> bool:
        """Make a channel of the kind that this home talks, once the first byte shows that the caller does too."""
        try:
            first = caller.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            if self._host.monotonic() > caller.deadline:
                raise AwayError(f"{caller.peer}: no greeting within {GREETING_SECONDS:g} seconds") from None
            return False
        except OSError as error:
            raise AwayError(f"{caller.peer}: the link is lost: {error.strerror}") from None
        if not first:
            raise AwayError(f"{caller.peer} closed the link")
        secure = first[0] == tls.FIRST_BYTE
        if secure and not self._folder:
            raise ProtocolError(f"{caller.peer}: {_NO_TLS}")
        if self._folder and not secure:
            self._answer_plain(caller)
            raise ProtocolError(f"{caller.peer}: {_ONLY_TLS}")
        caller.channel = self._channel(caller)
        return True

    def _channel(self, caller: _Caller) -> Channel:
        if self._folder:
            try:
                caller.sock = self._secure(caller.sock, self._folder)
            except (OSError, ValueError) as error:
                raise AwayError(f"{caller.peer} closed the link: {error}") from None
        return Channel(caller.sock, Side.COLLECTOR, caller.peer, DEFAULT_DEAD, self._host.monotonic(), self._host)

    @staticmethod
    def _answer_plain(caller: _Caller) -> None:
        try:
            caller.sock.recv(1 << 16)  # closing with bytes unread could reset the link before the answer is read
            caller.sock.send(b"".join(map(bytes, WireSession(Side.COLLECTOR).send(wire.Refuse(True, _ONLY_TLS)))))
        except (OSError, ssl.SSLError):
            pass  # he is gone, or was no pump

    def _drop(self, caller: _Caller, error: GateError) -> None:
        caller.close()
        self._callers.remove(caller)
        self._say(caller.peer.rpartition(":")[0], str(error))

    def _say(self, key: str, text: str) -> None:
        self._log.warning(CODE_REFUSED, text, alike=key)
