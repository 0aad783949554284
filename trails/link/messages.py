"""What the pump and the Collector say to each other: messages to bodies and back (docs/wire.md, sections 2 and 3).

Rule: the same classes are what is sent and what comes out at the other end. Every body is checked here, field by field;
frames, states and order are the session's (trails/link/wire.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, ClassVar, Final

import msgpack

from trails.errors import SAME_RELEASE, ProtocolError, VersionError
from trails.format import BLOCK_HEADER_SIZE, MAX_PAYLOAD
from trails.position import Position

VERSION: Final = 1
MAGIC: Final = b"TGWL"
MAX_TEXT: Final = 1024
MAX_KEYS: Final = 64

PLACE: Final = struct.Struct(">IQ")
BLOCK_PLACES: Final = struct.Struct(">IQIQ")
BLOCK_PREFIX: Final = BLOCK_PLACES.size + BLOCK_HEADER_SIZE
NUMBER: Final = struct.Struct(">Q")
TIMED: Final = struct.Struct(">QQ")
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


LIMITS: Final = {
    Type.HELLO: 65_536,
    Type.WELCOME: 65_536,
    Type.BLOCK: BLOCK_PREFIX + MAX_PAYLOAD,
    Type.ACK: 2 * PLACE.size,
    Type.PING: NUMBER.size,
    Type.PONG: TIMED.size,
    Type.BYE: 8_192,
    Type.REFUSE: 8_192,
}


@dataclass(frozen=True, slots=True)
class Hello:
    """The pump names itself, its source trail, and its last ALTER (`start` None: that ALTER moves nothing).

    `whole`: what is sent is the file of a task, and ends at this place of the source trail; None: it is a trail.
    """

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
    whole: Position | None = None
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
    home: str = ""
    type: ClassVar[Type] = Type.WELCOME


@dataclass(frozen=True, slots=True)
class BlockMessage:
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
    """Answers a Ping with its number; `now_us`: the Collector host's clock, and 0 from a pump."""

    number: int
    now_us: int = 0
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


Message = Hello | Welcome | BlockMessage | Ack | Ping | Pong | Bye | Refuse
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
    "whole": (list, type(None)),
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
        plain = msgpack.unpackb(body, max_array_len=MAX_KEYS, max_map_len=MAX_KEYS)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(f"{kind.type.name}: expected a msgpack map, found {error!r}") from None
    if not isinstance(plain, dict):
        raise ProtocolError(f"{kind.type.name}: expected a msgpack map, found {type(plain).__name__}")
    return {field.name: _checked(kind.type, field.name, plain) for field in fields(kind)}


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
        raise VersionError(
            f"the Collector speaks version {version} of the link's protocol, this pump speaks {VERSION}",
            hint=SAME_RELEASE,
        )
    return Welcome(**_unpack_map(Welcome, memoryview(body)[VERSION_FIELD.size :]))


def _read_block(body: bytearray) -> Event:
    if len(body) < BLOCK_PREFIX:
        raise ProtocolError(f"BLOCK: expected at least {BLOCK_PREFIX} bytes, found {len(body)}")
    seqno, rba, end_seqno, end_rba = BLOCK_PLACES.unpack_from(body)
    view = memoryview(body)
    header = bytes(view[BLOCK_PLACES.size : BLOCK_PREFIX])
    return BlockMessage(Position(seqno, rba), Position(end_seqno, end_rba), header, view[BLOCK_PREFIX:])


def _read_ack(body: bytearray) -> Event:
    if len(body) != 2 * PLACE.size:
        raise _wrong_size("ACK", body, 2 * PLACE.size)
    return Ack(Position(*PLACE.unpack_from(body)), Position(*PLACE.unpack_from(body, PLACE.size)))


def _read_ping(body: bytearray) -> Event:
    if len(body) != NUMBER.size:
        raise _wrong_size("PING", body, NUMBER.size)
    return Ping(*NUMBER.unpack(body))


def _read_pong(body: bytearray) -> Event:
    if len(body) != TIMED.size:
        raise _wrong_size("PONG", body, TIMED.size)
    number, now_us = TIMED.unpack(body)
    if now_us >= 1 << 63:
        raise ProtocolError(f"PONG: {now_us} is out of range for a time")
    return Pong(number, now_us)


def _wrong_size(name: str, body: bytearray, size: int) -> ProtocolError:
    return ProtocolError(f"{name}: expected {size} bytes, found {len(body)}")


def _read_text(body: Buffer) -> str:
    """A text for people: it goes into logs, where no line of a peer's making may look like one of ours."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in bytes(body).decode("utf-8", "replace"))


def _read_refuse(body: bytearray) -> Event:
    if not body or body[0] > 1:
        raise ProtocolError(f"REFUSE: expected 0 or 1 and a text, found {bytes(body[:8])!r}")
    return Refuse(bool(body[0]), _read_text(body[1:]))


READERS: Final[dict[Type, Callable[[bytearray], Event]]] = {
    Type.HELLO: _read_hello,
    Type.WELCOME: _read_welcome,
    Type.BLOCK: _read_block,
    Type.ACK: _read_ack,
    Type.PING: _read_ping,
    Type.PONG: _read_pong,
    Type.BYE: lambda body: Bye(_read_text(body)),
    Type.REFUSE: _read_refuse,
}
"""A whole body as its message. They raise ProtocolError, or VersionError for a WELCOME of another version."""


def body_of(message: Message) -> list[Buffer]:
    """The message's body in pieces, so that a payload is never copied to be sent."""
    match message:
        case BlockMessage():
            places = BLOCK_PLACES.pack(message.start.seqno, message.start.rba, message.end.seqno, message.end.rba)
            return [places + bytes(message.header), message.payload]
        case Ack():
            origin, position = message.origin, message.position
            return [PLACE.pack(origin.seqno, origin.rba) + PLACE.pack(position.seqno, position.rba)]
        case Ping():
            return [NUMBER.pack(message.number)]
        case Pong():
            return [TIMED.pack(message.number, message.now_us)]
        case Bye():
            return [message.text.encode("utf-8", "replace")[: LIMITS[Type.BYE]]]  # a text never fails for its length
        case Refuse():
            return [bytes([message.permanent]) + message.text.encode("utf-8", "replace")[: LIMITS[Type.REFUSE] - 1]]
        case Hello():
            return [GREETING.pack(MAGIC, VERSION) + _pack_map(message)]
        case Welcome():
            return [VERSION_FIELD.pack(VERSION) + _pack_map(message)]
