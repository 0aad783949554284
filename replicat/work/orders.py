"""What a driver and its resident tasks say to each other, over a link of bytes.

    hello    task to driver    who it is, once: a fixed number of bytes, so that nothing of a stranger is ever unpickled
    order    driver to task    one Task, pickled; its plans and the like only where the link had others before
    answer   task to driver    what came of it, pickled; it bears the order's number
    alive    task to driver    now and then while an order takes long

Each is a head (kind, number, length of what follows) and that many bytes. Numbers count a link's orders from 1 on.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from trails.controlflow import ControlFlowError
from trails.keepalive import keep_alive

Kept = tuple[Any, Any]
"""Plans and columns of a Task, which are the same for many orders."""

_HEAD: Final = struct.Struct(">BIQ")
_HELLO: Final = struct.Struct(">H16s32sIIQ")
VERSION: Final = 1
ALIVE_SECONDS: Final = 5.0
"""How often a task that works says so."""


class Says(IntEnum):
    """The kind of a message."""

    HELLO = 1
    ORDER = 2
    ANSWER = 3
    ALIVE = 4


class HungUpError(ControlFlowError):
    """The other end has closed the link."""


@dataclass(frozen=True, slots=True)
class Summons:
    """Where a driver waits for the tasks of one job, and by what it knows them. All of it is new for each job."""

    address: str
    """A unix socket's path; with a certificate host:port, where whoever answers must have it."""
    run: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    certificate: str = ""


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who a task is. `attempt`: 0, unless Spark runs its partition again."""

    partition: int
    attempt: int
    pid: int

    def packed(self, call: Summons) -> bytes:
        """With what shows that it was called."""
        return _HELLO.pack(VERSION, call.run, call.secret, self.partition, self.attempt, self.pid)

    @classmethod
    def unpacked(cls, data: bytes, call: Summons) -> Greeting | None:
        """None for whoever was not called so."""
        if len(data) != _HELLO.size:
            return None
        version, run, secret, *rest = _HELLO.unpack(data)
        known = hmac.compare_digest(run, call.run) & hmac.compare_digest(secret, call.secret)
        return cls(*rest) if known and version == VERSION else None


def kept_alive(end: socket.socket) -> None:
    """A TCP link whose other host is lost ends within half a minute."""
    keep_alive(end, idle=10, every=5)


class OrderLink:
    """One end of a link. A silence longer than the socket's own limit is TimeoutError, and any other fault OSError."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, kind: Says, number: int, data: bytes = b"") -> None:
        """A whole message."""
        self._end.sendall(_HEAD.pack(kind, number, len(data)))
        if data:
            self._end.sendall(data)

    def receive(self, most: int | None = None) -> tuple[Says, int, bytes]:
        """The next message, of at most so many bytes. Raises HungUpError, and ValueError where it is none."""
        kind, number, length = _HEAD.unpack(self._exactly(_HEAD.size))
        if most is not None and length > most:
            raise ValueError(f"a message of {length} bytes: expected at most {most}")
        return Says(kind), number, self._exactly(length)

    def hello(self, call: Summons) -> Greeting | None:
        """Who has connected; None for a stranger, who may say anything."""
        try:
            kind, _, data = self.receive(most=_HELLO.size)
        except (OSError, HungUpError, ValueError):
            return None
        return Greeting.unpacked(data, call) if kind is Says.HELLO else None

    def wait_at_most(self, seconds: float | None) -> None:
        """So long for each part of a message from now on; None: as long as it takes."""
        self._end.settimeout(seconds)

    def shut(self) -> None:
        """Who waits at either end learns at once that nothing more comes.

        TLS's own shutdown would forget its state under a thread that waits in it.
        """
        with contextlib.suppress(OSError):  # the other end was quicker
            socket.socket.shutdown(self._end, socket.SHUT_RDWR)

    def close(self) -> None:
        """For whom nobody waits any more."""
        self._end.close()

    def _exactly(self, size: int) -> bytes:
        found = bytearray(size)
        view, at = memoryview(found), 0
        while at < size:
            more = self._end.recv_into(view[at:])
            if not more:
                raise HungUpError("the other end has hung up")
            at += more
        return bytes(found)
