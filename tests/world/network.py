"""The network between the two machines: bytes are on their way until the scheduler lets them arrive."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.world.machines import Machine
    from tests.world.world import World

CAPACITY = 16 << 10
"""Bytes that one direction takes before its writer has to wait."""
WRITABLE = 4
NEAR = "10.0.0.1"
"""The address of near."""


class Pipe:
    """One direction: bytes on their way, and bytes that arrived. `over`: its end was sent; `over_here`: it came.

    `greetings`: messages of a TLS handshake on their way, before all else; `greeted`: bytes of them that arrived.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.flying, self.here = bytearray(), bytearray()
        self.greetings: list[bytes] = []
        self.greeted = 0
        self.over = self.over_here = False
        self.reader: SimSocket
        self.writer: SimSocket


@dataclass
class Said:
    """By one end: the messages of its handshake, and the bytes that came behind them."""

    greetings: list[bytes] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)


class Link:
    """One connection."""

    def __init__(self, world: World, near: Machine, far: Machine) -> None:
        self.world = world
        self.silent_until = 0
        self.said = Said()
        """All that near has sent."""
        self.pipes = [Pipe(self), Pipe(self)]
        self.near = SimSocket(world, near, self.pipes[0], self.pipes[1], far.name, self.said)
        self.far = SimSocket(world, far, self.pipes[1], self.pipes[0], near.name)

    @property
    def is_open(self) -> bool:
        """Whether anybody still has it."""
        return not (self.near.closed and self.far.closed)

    def moving(self) -> list[Pipe]:
        """Directions in which something is on its way."""
        if self.world.now < self.silent_until:
            return []
        return [p for p in self.pipes if p.flying or p.greetings or (p.over and not p.over_here)]

    def deliver(self, pipe: Pipe) -> None:
        """Some of what is on its way arrives."""
        if pipe.greetings:
            data = pipe.greetings.pop(0)
            pipe.greeted += len(data)
        else:
            count = self.world.piece(len(pipe.flying))
            data = bytes(pipe.flying[:count])
            del pipe.flying[:count]
        if not pipe.reader.closed:
            pipe.here += data
        elif data and (not pipe.reader.vanished or pipe.reader.machine.up):
            pipe.writer.reset = True  # the other end knows no such connection
        pipe.over_here = pipe.over_here or (pipe.over and not (pipe.flying or pipe.greetings))

    def cut(self) -> None:
        """Some of what is on its way still arrives; then both ends learn that it is over."""
        for pipe in self.pipes:
            if pipe.flying:
                pipe.here += pipe.flying[: self.world.piece(len(pipe.flying))]
            pipe.flying.clear()
            pipe.greetings.clear()
        self.near.reset = self.far.reset = True


class SimSocket:
    """What Channel and PumpDoor use of a socket."""

    def __init__(
        self, world: World, machine: Machine, out: Pipe, inn: Pipe, peer: str, said: Said | None = None
    ) -> None:
        self.world, self.machine, self.out, self.inn, self.peer = world, machine, out, inn, peer
        self._said = said
        out.writer = inn.reader = self
        self.reset = self.closed = self.vanished = False
        self._number = world.descriptor(self)

    def readable(self) -> bool:
        """For a poll."""
        return bool(self.inn.here or self.inn.over_here or self.reset)

    def writable(self) -> bool:
        """For an epoll that asks for it."""
        return self.reset or self._room() > 0

    def _room(self) -> int:
        return CAPACITY - len(self.out.flying) - len(self.out.here) + self.out.greeted

    def setblocking(self, flag: bool) -> None: ...

    def setsockopt(self, *args: Any) -> None: ...

    def fileno(self) -> int:
        return -1 if self.closed else self._number

    def getpeername(self) -> tuple[str, int]:
        if self.reset:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return self.peer, 7810

    def sendmsg(self, pieces: list[memoryview], _ancillary: Any = (), _flags: int = 0) -> int:
        self.world.edge("send", "link")
        if self.reset:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        data = b"".join(pieces)[: max(0, self._room())]
        if not data:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        self.out.flying += data
        if self._said is not None:
            self._said.data += data
        return len(data)

    def send(self, data: bytes) -> int:
        return self.sendmsg([memoryview(data)])

    def greet(self, data: bytes) -> None:
        """A message of a handshake: there is always room for it."""
        self.world.edge("send", "link")
        if self.reset:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        self.out.greetings.append(data)
        if self._said is not None:
            self._said.greetings.append(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.world.edge("recv", "link")
        if self.inn.here:
            data = bytes(self.inn.here[:size])
            if not flags & socket.MSG_PEEK:
                del self.inn.here[: len(data)]
                self.inn.greeted = max(0, self.inn.greeted - len(data))
            return data
        if self.reset:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        if self.inn.over_here:
            return b""
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    def recv_into(self, buffer: Any) -> int:
        view = memoryview(buffer)
        data = self.recv(len(view))
        view[: len(data)] = data
        return len(data)

    def shutdown(self, _how: int) -> None:
        self.out.over = True

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self.vanished:
            return
        if self.inn.here:
            self.out.reader.reset = True
        self.out.over = True


class SimListener:
    """Where a Collector is called."""

    def __init__(self, world: World) -> None:
        self.proc = world.running
        self.queue: list[SimSocket] = []
        self.closed = self.vanished = False
        self._number = world.descriptor(self)
        self.proc.sockets.append(self)

    def readable(self) -> bool:
        return bool(self.queue)

    def fileno(self) -> int:
        return self._number

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        if not self.queue:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return self.queue.pop(0), (NEAR, 5000)

    def close(self) -> None:
        self.closed = True
        for sock in self.queue:
            sock.close()


class SimEpoll:
    """See Epoll: ready when its socket can be read, or be written to where that was asked for."""

    def __init__(self, world: World) -> None:
        self._world, self._socket, self._events = world, None, 0
        self._number = world.descriptor(self)

    def register(self, sock: Any, events: int) -> None:
        self._socket, self._events = sock, events

    def modify(self, sock: Any, events: int) -> None:
        self._socket, self._events = sock, events

    def readable(self) -> bool:
        sock: Any = self._socket
        return sock is not None and (sock.readable() or bool(self._events & WRITABLE and sock.writable()))

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        self._socket = None
        self._world.ends.pop(self._number, None)
