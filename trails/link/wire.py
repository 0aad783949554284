"""The pump-collector session: frames, states and order, without any I/O (docs/wire.md is this file in prose).

Rule: nothing here reads a socket, a file or a clock. What is said is trails/link/messages.py, whose classes are those
of this module too: `wire` is all that pump and Collector need. Strategy: what may come and go in which state is data
(RECEIVES, SENDS), a missing entry is the error. A frame's type and length are checked against the state and the
message's limit before its body is allocated. After any exception the session is DEAD for good.

How to drive one: fill `get_buffer()`, say how much by `received(n)`, then take `next_event()` until it returns
NEED_DATA. A large body lands in its final place: the buffer handed out is the rest of that body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum
from typing import Final

from trails.errors import ProtocolError
from trails.link.messages import (
    BLOCK_PLACES,
    BLOCK_PREFIX,
    GREETING,
    LIMITS,
    MAGIC,
    READERS,
    VERSION,
    Ack,
    BlockMessage,
    Buffer,
    Bye,
    Event,
    Foreign,
    Hello,
    Message,
    Ping,
    Pong,
    Refuse,
    Type,
    Welcome,
    body_of,
)
from trails.position import START, Position

__all__ = [
    "BLOCK_PLACES", "BLOCK_PREFIX", "FIRST_BODY", "FRAME", "GREETING", "LIMITS", "MAGIC", "NEED_DATA", "RECEIVES",
    "SCRATCH_SIZE", "SENDS", "VERSION", "Ack", "BlockMessage", "Buffer", "Bye", "Event", "Foreign", "Hello", "Message",
    "NeedData", "Ping", "Pong", "Refuse", "Side", "Type", "Welcome", "WireSession", "WireState",
]  # fmt: skip

SCRATCH_SIZE: Final = 64 << 10
# Memory for a body follows the bytes that came: a peer must send half of it before it costs more than this.
FIRST_BODY: Final = 4 << 20

FRAME: Final = struct.Struct(">BI")


class Side(Enum):
    """Which end of the session this is."""

    PUMP = "pump"
    COLLECTOR = "Collector"


class WireState(Enum):
    """Where a session stands; FOREIGN: the peer's HELLO has another version, only a refusal may follow."""

    NEW = "new"
    GREETING = "greeting"
    FOREIGN = "foreign version"
    STREAMING = "streaming"
    CLOSING = "closing"
    CLOSED = "closed"
    DEAD = "dead"


Table = dict[tuple[WireState, Type], WireState]

SENDS: Final[dict[Side, Table]] = {
    Side.PUMP: {
        (WireState.NEW, Type.HELLO): WireState.GREETING,
        (WireState.STREAMING, Type.BLOCK): WireState.STREAMING,
        (WireState.STREAMING, Type.PING): WireState.STREAMING,
        (WireState.STREAMING, Type.PONG): WireState.STREAMING,
        (WireState.STREAMING, Type.BYE): WireState.CLOSING,
        (WireState.CLOSING, Type.PONG): WireState.CLOSING,
    },
    Side.COLLECTOR: {
        (WireState.GREETING, Type.WELCOME): WireState.STREAMING,
        (WireState.STREAMING, Type.ACK): WireState.STREAMING,
        (WireState.STREAMING, Type.PING): WireState.STREAMING,
        (WireState.STREAMING, Type.PONG): WireState.STREAMING,
        (WireState.STREAMING, Type.BYE): WireState.CLOSED,
        (WireState.CLOSING, Type.ACK): WireState.CLOSING,
        (WireState.CLOSING, Type.PING): WireState.CLOSING,
        (WireState.CLOSING, Type.PONG): WireState.CLOSING,
        (WireState.CLOSING, Type.BYE): WireState.CLOSED,
        (WireState.NEW, Type.REFUSE): WireState.CLOSED,
        (WireState.GREETING, Type.REFUSE): WireState.CLOSED,
        (WireState.FOREIGN, Type.REFUSE): WireState.CLOSED,
        (WireState.STREAMING, Type.REFUSE): WireState.CLOSED,
        (WireState.CLOSING, Type.REFUSE): WireState.CLOSED,
    },
}

RECEIVES: Final[dict[Side, Table]] = {
    Side.PUMP: {
        (WireState.GREETING, Type.WELCOME): WireState.STREAMING,
        (WireState.GREETING, Type.REFUSE): WireState.CLOSED,
        (WireState.STREAMING, Type.ACK): WireState.STREAMING,
        (WireState.STREAMING, Type.PING): WireState.STREAMING,
        (WireState.STREAMING, Type.PONG): WireState.STREAMING,
        (WireState.STREAMING, Type.BYE): WireState.CLOSED,
        (WireState.STREAMING, Type.REFUSE): WireState.CLOSED,
        (WireState.CLOSING, Type.ACK): WireState.CLOSING,
        (WireState.CLOSING, Type.PING): WireState.CLOSING,
        (WireState.CLOSING, Type.PONG): WireState.CLOSING,
        (WireState.CLOSING, Type.BYE): WireState.CLOSED,
        (WireState.CLOSING, Type.REFUSE): WireState.CLOSED,
    },
    Side.COLLECTOR: {
        (WireState.NEW, Type.HELLO): WireState.GREETING,
        (WireState.STREAMING, Type.BLOCK): WireState.STREAMING,
        (WireState.STREAMING, Type.PING): WireState.STREAMING,
        (WireState.STREAMING, Type.PONG): WireState.STREAMING,
        (WireState.STREAMING, Type.BYE): WireState.CLOSING,
        (WireState.CLOSING, Type.PONG): WireState.CLOSING,
    },
}


class NeedData(Enum):
    """The type of NEED_DATA, a value and not an error: no whole message stands in the buffer."""

    NEED_DATA = "need data"


NEED_DATA: Final = NeedData.NEED_DATA


# --- The session ----------------------------------------------------------------------------------------------------


class WireSession:
    """One end of one session: tables above, a buffer, and the rule that places never go back."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.state = WireState.NEW
        self._scratch = bytearray(SCRATCH_SIZE)
        self._from = 0
        self._upto = 0
        self._type = Type.HELLO
        self._body: bytearray | None = None
        self._length = 0
        self._have = 0
        self._sent_end = START  # pump: end of the last block sent; Collector: of the last one received
        self._acked = START
        self._death = ""

    def get_buffer(self) -> memoryview:
        """Where the next bytes belong. Take every event first: only then is there surely room."""
        if self._body is not None:
            return memoryview(self._body)[self._have :]
        return memoryview(self._scratch)[self._upto :]

    def received(self, count: int) -> None:
        """`count` bytes now stand at the start of what get_buffer() gave."""
        if self._body is not None:
            self._have += count
        else:
            self._upto += count

    def receive(self, data: Buffer) -> Iterator[Event]:
        """Feed `data` whole and yield each event as soon as it is complete."""
        rest = memoryview(data)
        while rest:
            buffer = self.get_buffer()
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            buffer.release()
            rest = rest[count:]
            self.received(count)
            while (event := self.next_event()) is not NEED_DATA:
                yield event

    def next_event(self) -> Event | NeedData:
        """The next whole message, or NEED_DATA. Raises ProtocolError or VersionError, and is dead from then on."""
        if self.state is WireState.DEAD:
            raise ProtocolError(f"this session is dead: {self._death}")
        try:
            if self.state is WireState.CLOSED:
                return self._drop()
            if self._body is None and not self._open_frame():
                return NEED_DATA
            body = self._fill()
            if body is None:
                return NEED_DATA
            self._body = None
            event = READERS[self._type](body)
            self._take(event)
            return event
        except BaseException as error:
            self._die(error)
            raise

    def _drop(self) -> NeedData:
        """Forget what was on its way when the session closed."""
        self._from = self._upto = 0
        self._body = None
        return NEED_DATA

    def _open_frame(self) -> bool:
        """Read a frame's type and length; allocate its body only if state and limit allow both."""
        if self._upto - self._from < FRAME.size:
            count = self._upto - self._from  # the few bytes of an unfinished one go to the front
            self._scratch[:count] = self._scratch[self._from : self._upto]
            self._from, self._upto = 0, count
            return False
        number, length = FRAME.unpack_from(self._scratch, self._from)
        try:
            self._type = Type(number)
        except ValueError:
            raise ProtocolError(f"message type {number}: expected {Type.HELLO:d}..{Type.REFUSE:d}") from None
        if (self.state, self._type) not in RECEIVES[self.side]:
            raise ProtocolError(f"the {self.side.value} got {self._type.name} in state {self.state.value}")
        if length > LIMITS[self._type]:
            raise ProtocolError(f"{self._type.name}: {length} bytes, more than its limit of {LIMITS[self._type]}")
        self._from += FRAME.size
        self._body = bytearray(min(length, FIRST_BODY))
        self._length = length
        self._have = 0
        return True

    def _fill(self) -> bytearray | None:
        """Move scratch bytes into the body; return the body once it is whole."""
        body = self._body
        assert body is not None
        count = min(len(body) - self._have, self._upto - self._from)
        if count:
            body[self._have : self._have + count] = memoryview(self._scratch)[self._from : self._from + count]
            self._from += count
            self._have += count
        if self._from == self._upto:
            self._from = self._upto = 0
        if self._have < len(body):
            return None
        if self._have == self._length:
            return body
        self._body = bytearray(min(self._length, 2 * len(body)))
        self._body[: len(body)] = body
        return self._fill()

    def _take(self, event: Event) -> None:
        """Change state by the table, and hold the peer to the order of places."""
        new = RECEIVES[self.side].get((self.state, event.type))
        if new is None:
            raise ProtocolError(f"the {self.side.value} got {event.type.name} in state {self.state.value}")
        match event:
            case BlockMessage():
                if not self._sent_end <= event.start <= event.end:
                    raise _backwards(self._sent_end, event)
                self._sent_end = event.end
            case Ack():
                if not self._acked <= event.origin <= self._sent_end:
                    raise ProtocolError(f"ACK of {event.origin}: expected {self._acked} to {self._sent_end}")
                self._acked = event.origin
            case Pong() if event.now_us and self.side is Side.COLLECTOR:
                raise ProtocolError("PONG: a pump tells no time")
            case Welcome():
                self._sent_end = self._acked = event.origin
        self.state = WireState.FOREIGN if isinstance(event, Foreign) else new

    def send(self, message: Message) -> list[Buffer]:
        """The bytes of `message`, in pieces to be written one after the other.

        A message that the table doesn't allow here is our own mistake: RuntimeError, a bug.
        """
        if self.state is WireState.DEAD:
            raise ProtocolError(f"this session is dead: {self._death}")
        try:
            kind = message.type
            new = SENDS[self.side].get((self.state, kind))
            if new is None:
                raise RuntimeError(f"the {self.side.value} may not send {kind.name} in state {self.state.value}")
            pieces = body_of(message)
            length = sum(len(piece) for piece in pieces)
            if length > LIMITS[kind]:
                raise RuntimeError(f"{kind.name}: {length} bytes, more than its limit of {LIMITS[kind]}")
            if isinstance(message, BlockMessage):
                if not self._sent_end <= message.start <= message.end:
                    raise _backwards(self._sent_end, message)
                self._sent_end = message.end
            elif isinstance(message, Welcome):
                self._sent_end = message.origin
            self.state = new
            return [FRAME.pack(kind, length) + bytes(pieces[0]), *pieces[1:]]
        except BaseException as error:
            self._die(error)
            raise

    def may_send(self, kind: Type) -> bool:
        """Whether the table allows to send this message now."""
        return (self.state, kind) in SENDS[self.side]

    def _die(self, error: BaseException) -> None:
        self._drop()
        self.state = WireState.DEAD
        self._death = str(error) or type(error).__name__


def _backwards(last: Position, block: BlockMessage) -> ProtocolError:
    return ProtocolError(f"BLOCK from {block.start} to {block.end}: places never go back, the last end was {last}")
