"""The pump-collector session: bytes to messages and back, without any I/O (docs/wire.md is this file in prose).

Rule: nothing here reads a socket, a file or a clock. Strategy: what may come and go in which state is data
(RECEIVES, SENDS), a missing entry is the error. A frame's type and length are checked against the state and the
message's limit before its body is allocated. After any exception the session is DEAD for good.

How to drive one: fill `get_buffer()`, say how much by `received(n)`, then take `next_event()` until it returns
NEED_DATA. A large body lands in its final place: the buffer handed out is the rest of that body.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from enum import Enum, IntEnum
from typing import Any, ClassVar, Final

import msgpack

from trails.errors import ProtocolError, VersionError
from trails.format import BLOCK_HEADER_SIZE, MAX_PAYLOAD
from trails.position import START, Position

VERSION: Final = 1
MAGIC: Final = b"TGWL"
SCRATCH_SIZE: Final = 64 << 10
# Memory for a body follows the bytes that came: a peer must send half of it before it costs more than this.
FIRST_BODY: Final = 4 << 20
MAX_TEXT: Final = 1024

FRAME: Final = struct.Struct(">BI")
PLACE: Final = struct.Struct(">IQ")
BLOCK_PLACES: Final = struct.Struct(">IQIQ")
BLOCK_PREFIX: Final = BLOCK_PLACES.size + BLOCK_HEADER_SIZE
NUMBER: Final = struct.Struct(">Q")
GREETING: Final = struct.Struct(">4sH")
VERSION_FIELD: Final = struct.Struct(">H")

Buffer = bytes | bytearray | memoryview


class Type(IntEnum):
    """Message types; zero is reserved, so that zeroed bytes are never a message."""

    HELLO = 1
    WELCOME = 2
    BLOCK = 3
    ACK = 4
    PING = 5
    PONG = 6
    BYE = 7
    REFUSE = 8


class Side(Enum):
    """Which end of the session this is."""

    PUMP = "pump"
    COLLECTOR = "Collector"


class State(Enum):
    """Where a session stands; FOREIGN: the peer's HELLO has another version, only a refusal may follow."""

    NEW = "new"
    GREETING = "greeting"
    FOREIGN = "foreign version"
    STREAMING = "streaming"
    CLOSING = "closing"
    CLOSED = "closed"
    DEAD = "dead"


LIMITS: Final = {
    Type.HELLO: 65_536,
    Type.WELCOME: 65_536,
    Type.BLOCK: BLOCK_PREFIX + MAX_PAYLOAD,
    Type.ACK: 2 * PLACE.size,
    Type.PING: NUMBER.size,
    Type.PONG: NUMBER.size,
    Type.BYE: 8_192,
    Type.REFUSE: 8_192,
}

Table = dict[tuple[State, Type], State]

SENDS: Final[dict[Side, Table]] = {
    Side.PUMP: {
        (State.NEW, Type.HELLO): State.GREETING,
        (State.STREAMING, Type.BLOCK): State.STREAMING,
        (State.STREAMING, Type.PING): State.STREAMING,
        (State.STREAMING, Type.PONG): State.STREAMING,
        (State.STREAMING, Type.BYE): State.CLOSING,
        (State.CLOSING, Type.PONG): State.CLOSING,
    },
    Side.COLLECTOR: {
        (State.GREETING, Type.WELCOME): State.STREAMING,
        (State.STREAMING, Type.ACK): State.STREAMING,
        (State.STREAMING, Type.PING): State.STREAMING,
        (State.STREAMING, Type.PONG): State.STREAMING,
        (State.STREAMING, Type.BYE): State.CLOSED,
        (State.CLOSING, Type.ACK): State.CLOSING,
        (State.CLOSING, Type.PING): State.CLOSING,
        (State.CLOSING, Type.PONG): State.CLOSING,
        (State.CLOSING, Type.BYE): State.CLOSED,
        (State.NEW, Type.REFUSE): State.CLOSED,
        (State.GREETING, Type.REFUSE): State.CLOSED,
        (State.FOREIGN, Type.REFUSE): State.CLOSED,
        (State.STREAMING, Type.REFUSE): State.CLOSED,
        (State.CLOSING, Type.REFUSE): State.CLOSED,
    },
}

RECEIVES: Final[dict[Side, Table]] = {
    Side.PUMP: {
        (State.GREETING, Type.WELCOME): State.STREAMING,
        (State.GREETING, Type.REFUSE): State.CLOSED,
        (State.STREAMING, Type.ACK): State.STREAMING,
        (State.STREAMING, Type.PING): State.STREAMING,
        (State.STREAMING, Type.PONG): State.STREAMING,
        (State.STREAMING, Type.BYE): State.CLOSED,
        (State.STREAMING, Type.REFUSE): State.CLOSED,
        (State.CLOSING, Type.ACK): State.CLOSING,
        (State.CLOSING, Type.PING): State.CLOSING,
        (State.CLOSING, Type.PONG): State.CLOSING,
        (State.CLOSING, Type.BYE): State.CLOSED,
        (State.CLOSING, Type.REFUSE): State.CLOSED,
    },
    Side.COLLECTOR: {
        (State.NEW, Type.HELLO): State.GREETING,
        (State.STREAMING, Type.BLOCK): State.STREAMING,
        (State.STREAMING, Type.PING): State.STREAMING,
        (State.STREAMING, Type.PONG): State.STREAMING,
        (State.STREAMING, Type.BYE): State.CLOSING,
        (State.CLOSING, Type.PONG): State.CLOSING,
    },
}


class NeedData(Enum):
    """The type of NEED_DATA, a value and not an error: no whole message stands in the buffer."""

    NEED_DATA = "need data"


NEED_DATA: Final = NeedData.NEED_DATA


# --- Messages: the same classes are what is sent and what next_event() returns --------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """The pump names itself, its source trail, and its last ALTER (`start` None: that ALTER moves nothing)."""

    home: str
    group: str
    host: str
    trail: str
    trail_id: bytes
    source: dict[str, str]
    alter: int
    start: Position | None
    megabytes: int
    dead: int
    encrypt: bool = False
    type: ClassVar[Type] = Type.HELLO

    @property
    def pump(self) -> str:
        """Who sends: home id and group."""
        return f"{self.home}/{self.group}"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A HELLO of another protocol version: nothing in it but the version can be read."""

    version: int
    type: ClassVar[Type] = Type.HELLO


@dataclass(frozen=True, slots=True)
class Welcome:
    """The Collector states what stands synced in its trail; the pump goes on from `origin`."""

    origin: Position
    trail_id: bytes
    open: bool
    alter: int
    position: Position
    now_us: int = 0
    type: ClassVar[Type] = Type.WELCOME


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the source trail, from `start` to `end` there; `header` as it stands at start, CRC included."""

    start: Position
    end: Position
    header: Buffer
    payload: Buffer
    type: ClassVar[Type] = Type.BLOCK


@dataclass(frozen=True, slots=True)
class Ack:
    """All blocks up to `origin` are synced; the remote trail's durable end is `position`."""

    origin: Position
    position: Position
    type: ClassVar[Type] = Type.ACK


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a sign of life."""

    number: int
    type: ClassVar[Type] = Type.PING


@dataclass(frozen=True, slots=True)
class Pong:
    """Answers a Ping with its number."""

    number: int
    type: ClassVar[Type] = Type.PONG


@dataclass(frozen=True, slots=True)
class Bye:
    """The sender ends the session in good order, and says why."""

    text: str
    type: ClassVar[Type] = Type.BYE


@dataclass(frozen=True, slots=True)
class Refuse:
    """The Collector does not go on; `permanent`: trying again cannot help before a person has acted."""

    permanent: bool
    text: str
    type: ClassVar[Type] = Type.REFUSE


Message = Hello | Welcome | Block | Ack | Ping | Pong | Bye | Refuse
Event = Message | Foreign


# --- Bodies, in write and read pairs --------------------------------------------------------------------------------

_PLAIN: Final[dict[str, tuple[type, ...]]] = {
    "home": (str,),
    "group": (str,),
    "host": (str,),
    "trail": (str,),
    "trail_id": (bytes,),
    "source": (dict,),
    "alter": (int,),
    "start": (list, type(None)),
    "megabytes": (int,),
    "dead": (int,),
    "origin": (list,),
    "open": (bool,),
    "position": (list,),
    "encrypt": (bool,),
    "now_us": (int,),
}


def _pack_map(message: Hello | Welcome) -> bytes:
    plain = {}
    for field in fields(message):
        value = getattr(message, field.name)
        plain[field.name] = [value.seqno, value.rba] if isinstance(value, Position) else value
    return bytes(msgpack.packb(plain))


def _unpack_map(kind: type[Hello | Welcome], body: Buffer) -> dict[str, Any]:
    try:
        plain = msgpack.unpackb(body)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(f"{kind.type.name}: expected a msgpack map, found {error!r}") from None
    if not isinstance(plain, dict):
        raise ProtocolError(f"{kind.type.name}: expected a msgpack map, found {type(plain).__name__}")
    # what an older peer does not send has the value that the message's class gives
    names = [field.name for field in fields(kind) if field.name in plain or field.default is MISSING]
    return {name: _checked(kind.type, name, plain) for name in names}


def _checked(kind: Type, name: str, plain: dict[Any, Any]) -> Any:
    if name not in plain:
        raise ProtocolError(f"{kind.name}: the key {name!r} is missing")
    value = plain[name]
    # bool is an int in Python, and no number of ours is a truth value
    if not isinstance(value, _PLAIN[name]) or (isinstance(value, bool) and bool not in _PLAIN[name]):
        raise ProtocolError(f"{kind.name}: key {name!r}: found {type(value).__name__}, expected {_names(_PLAIN[name])}")
    if isinstance(value, list):
        return _place(kind, name, value)
    texts = [value] if isinstance(value, str) else []
    if isinstance(value, dict):
        texts = [*value, *value.values()]
        if not all(isinstance(text, str) for text in texts):
            raise ProtocolError(f"{kind.name}: key {name!r}: expected text keys and values")
    if isinstance(value, int) and not 0 <= value < 1 << 63:
        raise ProtocolError(f"{kind.name}: key {name!r}: {value} is out of range")
    if any(len(text) > MAX_TEXT or not text.isprintable() for text in texts):
        raise ProtocolError(f"{kind.name}: key {name!r}: expected at most {MAX_TEXT} printable characters")
    if isinstance(value, bytes) and len(value) != 16:
        raise ProtocolError(f"{kind.name}: key {name!r}: expected 16 bytes, found {len(value)}")
    return value


def _names(kinds: tuple[type, ...]) -> str:
    return " or ".join("nil" if kind is type(None) else kind.__name__ for kind in kinds)


def _place(kind: Type, name: str, value: list[Any]) -> Position:
    if len(value) != 2 or not all(type(item) is int for item in value):
        raise ProtocolError(f"{kind.name}: key {name!r}: expected [seqno, rba], found {value!r:.80}")
    seqno, rba = value
    if not (0 <= seqno < 1 << 32 and 0 <= rba < 1 << 64):
        raise ProtocolError(f"{kind.name}: key {name!r}: {seqno}/{rba} is out of range")
    return Position(seqno, rba)


def _read_hello(body: bytearray) -> Event:
    if len(body) < GREETING.size or body[:4] != MAGIC:
        raise ProtocolError(f"HELLO: expected {MAGIC!r} and a version, found {bytes(body[:6])!r}")
    version: int = GREETING.unpack_from(body)[1]
    if version != VERSION:
        return Foreign(version)
    return Hello(**_unpack_map(Hello, memoryview(body)[GREETING.size :]))


def _read_welcome(body: bytearray) -> Event:
    if len(body) < VERSION_FIELD.size:
        raise ProtocolError(f"WELCOME: expected a version, found {len(body)} bytes")
    version: int = VERSION_FIELD.unpack_from(body)[0]
    if version != VERSION:
        raise VersionError(f"the Collector speaks version {version} of the link's protocol, this pump speaks {VERSION}")
    return Welcome(**_unpack_map(Welcome, memoryview(body)[VERSION_FIELD.size :]))


def _read_block(body: bytearray) -> Event:
    if len(body) < BLOCK_PREFIX:
        raise ProtocolError(f"BLOCK: expected at least {BLOCK_PREFIX} bytes, found {len(body)}")
    seqno, rba, end_seqno, end_rba = BLOCK_PLACES.unpack_from(body)
    view = memoryview(body)
    header = bytes(view[BLOCK_PLACES.size : BLOCK_PREFIX])
    return Block(Position(seqno, rba), Position(end_seqno, end_rba), header, view[BLOCK_PREFIX:])


def _read_ack(body: bytearray) -> Event:
    _sized("ACK", body, 2 * PLACE.size)
    return Ack(Position(*PLACE.unpack_from(body)), Position(*PLACE.unpack_from(body, PLACE.size)))


def _read_number(body: bytearray) -> int:
    _sized("PING or PONG", body, NUMBER.size)
    return int(NUMBER.unpack(body)[0])


def _sized(name: str, body: bytearray, size: int) -> None:
    if len(body) != size:
        raise ProtocolError(f"{name}: expected {size} bytes, found {len(body)}")


def _read_text(body: Buffer) -> str:
    """A text for people: it goes into logs, where no line of a peer's making may look like one of ours."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in bytes(body).decode("utf-8", "replace"))


def _read_refuse(body: bytearray) -> Event:
    if not body or body[0] > 1:
        raise ProtocolError(f"REFUSE: expected 0 or 1 and a text, found {bytes(body[:8])!r}")
    return Refuse(bool(body[0]), _read_text(body[1:]))


_READERS: Final[dict[Type, Callable[[bytearray], Event]]] = {
    Type.HELLO: _read_hello,
    Type.WELCOME: _read_welcome,
    Type.BLOCK: _read_block,
    Type.ACK: _read_ack,
    Type.PING: lambda body: Ping(_read_number(body)),
    Type.PONG: lambda body: Pong(_read_number(body)),
    Type.BYE: lambda body: Bye(_read_text(body)),
    Type.REFUSE: _read_refuse,
}


def _body(message: Message) -> list[Buffer]:
    """The message's body in pieces, so that a payload is never copied to be sent."""
    match message:
        case Block():
            places = BLOCK_PLACES.pack(message.start.seqno, message.start.rba, message.end.seqno, message.end.rba)
            return [places + bytes(message.header), message.payload]
        case Ack():
            origin, position = message.origin, message.position
            return [PLACE.pack(origin.seqno, origin.rba) + PLACE.pack(position.seqno, position.rba)]
        case Ping() | Pong():
            return [NUMBER.pack(message.number)]
        case Bye():
            return [message.text.encode("utf-8", "replace")[: LIMITS[Type.BYE]]]  # a text never fails for its length
        case Refuse():
            return [bytes([message.permanent]) + message.text.encode("utf-8", "replace")[: LIMITS[Type.REFUSE] - 1]]
        case Hello():
            return [GREETING.pack(MAGIC, VERSION) + _pack_map(message)]
        case Welcome():
            return [VERSION_FIELD.pack(VERSION) + _pack_map(message)]


# --- The session ----------------------------------------------------------------------------------------------------


class Session:
    """One end of one session: tables above, a buffer, and the rule that places never go back."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.state = State.NEW
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
        self._alive()
        try:
            return self._next()
        except BaseException as error:
            self._die(error)
            raise

    def _next(self) -> Event | NeedData:
        if self.state is State.CLOSED:
            return self._drop()
        if self._body is None and not self._open_frame():
            return NEED_DATA
        body = self._fill()
        if body is None:
            return NEED_DATA
        self._body = None
        event = _READERS[self._type](body)
        self._take(event)
        return event

    def _drop(self) -> NeedData:
        """Forget what was on its way when the session closed."""
        self._from = self._upto = 0
        self._body = None
        return NEED_DATA

    def _open_frame(self) -> bool:
        """Read a frame's type and length; allocate its body only if state and limit allow both."""
        if self._upto - self._from < FRAME.size:
            self._compact()
            return False
        number, length = FRAME.unpack_from(self._scratch, self._from)
        self._type = self._expected(number)
        if length > LIMITS[self._type]:
            raise ProtocolError(f"{self._type.name}: {length} bytes, more than its limit of {LIMITS[self._type]}")
        self._from += FRAME.size
        self._body = bytearray(min(length, FIRST_BODY))
        self._length = length
        self._have = 0
        return True

    def _expected(self, number: int) -> Type:
        try:
            kind = Type(number)
        except ValueError:
            raise ProtocolError(f"message type {number}: expected {Type.HELLO:d}..{Type.REFUSE:d}") from None
        if (self.state, kind) not in RECEIVES[self.side]:
            raise ProtocolError(f"the {self.side.value} got {kind.name} in state {self.state.value}")
        return kind

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

    def _compact(self) -> None:
        """Move the few bytes of an unfinished frame header to the front."""
        count = self._upto - self._from
        self._scratch[:count] = self._scratch[self._from : self._upto]
        self._from, self._upto = 0, count

    def _take(self, event: Event) -> None:
        """Change state by the table, and hold the peer to the order of places."""
        new = RECEIVES[self.side].get((self.state, event.type))
        if new is None:
            raise ProtocolError(f"the {self.side.value} got {event.type.name} in state {self.state.value}")
        match event:
            case Block():
                self._sent_end = _forward(self._sent_end, event)
            case Ack():
                if not self._acked <= event.origin <= self._sent_end:
                    raise ProtocolError(f"ACK of {event.origin}: expected {self._acked} to {self._sent_end}")
                self._acked = event.origin
            case Welcome():
                self._sent_end = self._acked = event.origin
        self.state = State.FOREIGN if isinstance(event, Foreign) else new

    def send(self, message: Message) -> list[Buffer]:
        """The bytes of `message`, in pieces to be written one after the other.

        A message that the table doesn't allow here is our own mistake: RuntimeError, a bug.
        """
        self._alive()
        try:
            return self._send(message)
        except BaseException as error:
            self._die(error)
            raise

    def _send(self, message: Message) -> list[Buffer]:
        new = SENDS[self.side].get((self.state, message.type))
        if new is None:
            raise RuntimeError(f"the {self.side.value} may not send {message.type.name} in state {self.state.value}")
        pieces = _body(message)
        length = sum(len(piece) for piece in pieces)
        if length > LIMITS[message.type]:
            raise RuntimeError(f"{message.type.name}: {length} bytes, more than its limit of {LIMITS[message.type]}")
        if isinstance(message, Block):
            self._sent_end = _forward(self._sent_end, message)
        elif isinstance(message, Welcome):
            self._sent_end = message.origin
        self.state = new
        return [FRAME.pack(message.type, length) + bytes(pieces[0]), *pieces[1:]]

    def may_send(self, kind: Type) -> bool:
        """Whether the table allows to send this message now."""
        return (self.state, kind) in SENDS[self.side]

    def _alive(self) -> None:
        if self.state is State.DEAD:
            raise ProtocolError(f"this session is dead: {self._death}")

    def _die(self, error: BaseException) -> None:
        self._drop()
        self.state = State.DEAD
        self._death = str(error) or type(error).__name__


def _forward(last: Position, block: Block) -> Position:
    if not last <= block.start <= block.end:
        raise ProtocolError(f"BLOCK from {block.start} to {block.end}: places never go back, the last end was {last}")
    return block.end
