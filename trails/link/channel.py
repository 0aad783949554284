"""A wire session on a non-blocking socket, plain or TLS; pump and Collector both have one.

Rule: nothing here waits. `fileno()` is an epoll descriptor: readable when there is something to do, be it that bytes
came or that queued bytes can go out, so an owner needs one descriptor for both. PINGs are sent and answered here; the
owner sees the other messages, and PONGs that tell the time. After a failed send the peer's last words are still read: a
refusal often comes before the reset. On a TLS socket a handshake that is not yet done is done by the first reads and
writes; bytes that TLS holds decrypted wake nobody, so a read goes on until there are none. What the peer's certificate
says is read once, with the first bytes behind the handshake: they may come together with the end of the link.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import astuple, dataclass

from trails.errors import AwayError, GateError, ProtocolError, VersionError
from trails.host import THIS_HOST, Host
from trails.link import tls, wire
from trails.link.wire import NEED_DATA, Side, Type, WireSession, WireState

MAX_PIECES = 64
RECEIVE_BUDGET = 8 << 20
# Small pieces are joined up to this for TLS: each write is a record and a system call of its own.
TLS_JOIN = 16 << 10
# A peer that sends PINGs and reads nothing must not make us hoard PONGs: any byte under way is a sign of life too.
PONG_UNSENT = 64 << 10


class Heartbeat:
    """When to send a PING and when a silent peer is dead; both ends have one. Times are monotonic seconds.

    A PING's number is when it was sent, in microseconds: it comes back in the PONG.
    """

    def __init__(self, dead: float, now: float) -> None:
        self.dead = dead
        self.heard_at = now
        """When bytes came last: then the peer lived."""
        self._next = now + dead / 3

    def due(self, now: float) -> wire.Ping | None:
        """A PING every third of the dead time, whatever else is sent."""
        if now < self._next:
            return None
        self._next = now + self.dead / 3
        return wire.Ping(int(now * 1_000_000))

    def silent(self, now: float) -> bool:
        """True once nothing was heard for the whole dead time."""
        return now - self.heard_at >= self.dead

    def wait(self, now: float) -> float:
        """Seconds until this heartbeat wants to be asked again."""
        return max(0.0, min(self._next, self.heard_at + self.dead) - now)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What went over a socket: bytes, messages, and the calls of send and recv that moved any."""

    bytes_out: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    messages_in: int = 0
    sends: int = 0
    receives: int = 0

    def plus(self, other: Traffic) -> Traffic:
        """Both together."""
        return Traffic(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def minus(self, other: Traffic) -> Traffic:
        """What came since `other`."""
        return Traffic(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


class Channel:
    """One session's socket, its unsent bytes and its heartbeat. `peer` names the other end in messages."""

    def __init__(
        self, sock: socket.socket, side: Side, peer: str, dead: float, now: float, host: Host = THIS_HOST
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._peer = peer
        self._session = WireSession(side)
        self._heart = Heartbeat(dead, now)
        self._unsent: deque[memoryview] = deque()
        self.unsent = 0
        self._broken = False  # nothing can be sent any more
        self.failed: GateError | None = None
        """What stands behind the events that were given: the next receive() raises it."""
        self._epoll = host.epoll()
        self._epoll.register(sock, select.EPOLLIN)
        self._armed = False
        self._bytes_out = self._bytes_in = self._messages_out = self._messages_in = self._sends = self._receives = 0
        self._tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self._shown: tls.Shown | None = None
        self._held: bytes | memoryview | None = None  # what TLS asked to be given again, unchanged
        self._read_wants_write = False
        self.now_us: Callable[[], int] = lambda: 0
        """The clock to tell in each PONG; a pump tells none."""
        if self._tls is not None and self._tls.version():  # hands were shaken already
            self._shown = tls.shown(self._tls, peer)

    def fileno(self) -> int:
        """Readable when receive() or flush() has something to do."""
        return self._epoll.fileno()

    @property
    def state(self) -> WireState:
        """The session's state."""
        return self._session.state

    @property
    def peer(self) -> str:
        """Who is at the other end."""
        return self._peer

    @property
    def traffic(self) -> Traffic:
        """Everything so far, PINGs and PONGs too; before TLS."""
        return Traffic(
            self._bytes_out, self._bytes_in, self._messages_out, self._messages_in, self._sends, self._receives
        )

    def ends(self) -> tuple[str, str, bool]:
        """Our address and the peer's, as host:port, and whether the link is TLS; empty once it is broken."""
        try:
            local, remote = self._sock.getsockname()[:2], self._sock.getpeername()[:2]
        except OSError:
            return "", "", self._tls is not None
        return f"{local[0]}:{local[1]}", f"{remote[0]}:{remote[1]}", self._tls is not None

    def check_home(self, said: str) -> None:
        """Raise OperatorError if the peer's certificate is another home's than it says; AwayError if none came."""
        if self._tls is not None and self._shown is None:
            raise AwayError(f"{self._peer}: the link is lost")
        tls.check_home(self._shown, said, self._peer)

    def live_by(self, dead: float, now: float) -> None:
        """Take another dead time from now on."""
        self._heart = Heartbeat(dead, now)

    # sending

    def may_send(self, kind: Type) -> bool:
        """Whether the session allows this message now."""
        return self._session.may_send(kind)

    def send(self, message: wire.Message) -> None:
        """Queue a message and send what can be sent at once."""
        idle = not self._unsent
        self._messages_out += 1
        for piece in self._session.send(message):
            if len(piece):
                self._unsent.append(memoryview(piece))
                self.unsent += len(piece)
        if idle:
            self.flush()

    def flush(self) -> None:
        """Send what the socket takes. A broken link is told by receive(), after the peer's last words."""
        while self._unsent and not self._broken:
            try:
                pieces = [self._unsent[i] for i in range(min(len(self._unsent), MAX_PIECES))]
                if self._tls is None:
                    count = self._sock.sendmsg(pieces, (), socket.MSG_NOSIGNAL)
                else:
                    count = self._send_tls(self._tls, pieces)
                self.unsent -= count
                self._bytes_out += count
                self._sends += 1
                while count and count >= len(self._unsent[0]):
                    count -= len(self._unsent.popleft())
                if count:
                    self._unsent[0] = self._unsent[0][count:]
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                break
            except OSError:
                self._broken = True
        if self._broken:
            self._unsent.clear()
            self.unsent = 0
        self._arm(bool(self._unsent) or self._read_wants_write)

    def _send_tls(self, sock: ssl.SSLSocket, pieces: list[memoryview]) -> int:
        """Write the first piece, or several small ones joined. TLS takes all of it, or wants the very same again."""
        if self._held is None:
            count, size = 0, 0
            while count < len(pieces) and size + len(pieces[count]) <= TLS_JOIN:
                size += len(pieces[count])
                count += 1
            self._held = b"".join(pieces[:count]) if count > 1 else pieces[0]
        sent = sock.send(self._held)
        self._held = None
        return sent

    def _arm(self, wanted: bool) -> None:
        if wanted != self._armed:
            self._epoll.modify(self._sock, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))
            self._armed = wanted

    # receiving

    def receive(self, now: float, budget: int = RECEIVE_BUDGET) -> list[wire.Event]:
        """Events that have come, up to about `budget` bytes of them; [] if there are none.

        Raises AwayError if the link is lost, ProtocolError or VersionError if the peer misbehaves; never before every
        event that came earlier was given.
        """
        if self.failed is not None:
            raise self.failed
        events: list[wire.Event] = []
        try:
            while (budget > 0 or self._has_decrypted()) and (count := self._read()):
                budget -= count
                self._heart.heard_at = now
                while (event := self._session.next_event()) is not NEED_DATA:
                    self._messages_in += 1
                    if isinstance(event, wire.Ping):
                        self._answer(event)
                    elif not isinstance(event, wire.Pong) or event.now_us:
                        events.append(event)
        except GateError as error:
            if isinstance(error, ProtocolError | VersionError):
                error.message = f"{self._peer}: {error.message}"
            if not events:
                raise
            self.failed = error
        return events

    def _answer(self, ping: wire.Ping) -> None:
        if self.may_send(Type.PONG) and self.unsent < PONG_UNSENT:
            self.send(wire.Pong(ping.number, self.now_us()))

    def _has_decrypted(self) -> bool:
        return self._tls is not None and self._tls.pending() > 0

    def _read(self) -> int:
        """Bytes read into the session; 0 if none are there, or if the session closed and so did the peer."""
        try:
            count = self._sock.recv_into(self._session.get_buffer())
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            if self._broken and self.state is not WireState.CLOSED:
                raise AwayError(f"{self._peer}: the link is lost") from None
            self._read_wants_write = isinstance(error, ssl.SSLWantWriteError)
            self._arm(bool(self._unsent) or self._read_wants_write)
            return 0
        except OSError as error:
            if self.state is WireState.CLOSED:
                return 0
            if isinstance(error, ssl.SSLError):
                known = self._session.side is Side.PUMP or self._bytes_in > 0  # the handshake is done
                raise tls.explain(error, self._peer, trusted=known) from None
            raise AwayError(f"{self._peer}: the link is lost: {error.strerror}") from None
        if count:
            if self._tls is not None and self._shown is None:
                self._shown = tls.shown(self._tls, self._peer)
            self._bytes_in += count
            self._receives += 1
            self._session.received(count)
        elif self.state is not WireState.CLOSED:
            raise AwayError(f"{self._peer} closed the link")
        return count

    # time

    def tick(self, now: float) -> None:
        """Send a PING if one is due. Raises AwayError if the peer was silent for too long; receive() before."""
        if self.state is WireState.CLOSED:
            return
        if self._heart.silent(now):
            raise AwayError(f"{self._peer}: nothing was heard for {self._heart.dead:g} seconds")
        ping = self._heart.due(now)
        if ping is not None and self.may_send(Type.PING):
            self.send(ping)

    def wait(self, now: float) -> float:
        """Seconds until tick() is due."""
        return self._heart.wait(now)

    # the end

    def finish_sending(self) -> None:
        """Tell the peer that nothing more comes: it reads what is under way, then the end."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._broken = True

    def drained(self) -> bool:
        """After the session closed: drop what comes; True once the peer has closed too.

        Closing with unread bytes in the socket resets the link, and the reset can overtake our last words.
        """
        scratch = bytearray(1 << 16)
        try:
            # A bounded piece at a time: the caller has a deadline, and the peer may send without end.
            return not all(self._sock.recv_into(scratch) for _ in range(MAX_PIECES))
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Give the descriptors back."""
        self._epoll.close()
        self._sock.close()
