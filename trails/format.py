"""Trail bytes: file header and block header, as pure functions on bytes. FORMAT.md has the tables.

Strategy: make/parse pairs. A parse function gets enough bytes and the place they came from; it returns a value, or
raises DamageError (bytes are wrong) or VersionError (bytes are of another version). It touches no file, keeps no state.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final

import msgpack

from trails.errors import MEND, OF_ITS_RELEASE, DamageError, OperatorError, VersionError
from trails.position import Position

MAGIC = b"TRLGATE\n"
VERSION = 1
HEADER_UNIT = 4096  # a page: the header never shares one with blocks that are still being written
DURABLE_OFFSET = 16
FILE_MEGABYTES = 100
"""At about this size a new file begins, where nobody says another."""
BODY_OFFSET = 36
MAX_HEADER = 1 << 20

BLOCK_MAGIC = b"TGBK"
BLOCK_HEADER_SIZE = 96
CSN_SIZE = 40
# The widest source can hand over one row of 1 GiB; an eighth more leaves room for its frame.
MAX_PAYLOAD = 1152 << 20
FLAG_LZ4 = 1
FLAG_DDL = 2
FLAG_HEARTBEAT = 4
FLAG_AES = 8
FLAG_STATE = 16
# Bytes that encrypting adds to a payload: a nonce before it, a tag behind it.
NONCE_SIZE = 12
SEAL_SIZE = NONCE_SIZE + 16
# The file key (32 bytes), sealed.
WRAPPED_SIZE = 32 + SEAL_SIZE
# How much of a file encryption holds together, see FORMAT.md: 1 payloads alone, 2 header, order and end too.
SEALING = 2
FLAGS = FLAG_LZ4 | FLAG_DDL | FLAG_HEARTBEAT | FLAG_AES | FLAG_STATE
# A source's state, and its length behind it.
MAX_STATE = 4096
STATE_LENGTH = 2

_STATE_HINT = "Nothing of it was written. START goes on at the last place in the trail"
"""What to do about damage."""

TIMES = range(-2_208_988_800_000_000, 253_370_764_800_000_000)
"""The us since 1970 UTC that a trail may hold: the years 1900 to 9998, which every calendar here can show."""


def bounded(time_us: int) -> int:
    """The nearest time that a trail may hold: a source's clock may be anywhere."""
    return min(max(time_us, TIMES.start), TIMES.stop - 1)


_FIXED = struct.Struct(">8sHHI")
_DURABLE = struct.Struct(">QI")
_BLOCK = struct.Struct(">4sBBHIIIIQQq40sI")
_CRC = struct.Struct(">I")


class BlockKind(IntEnum):
    """A block's kind; zero is reserved, so zeroed space is never a block."""

    DATA = 1
    METADATA = 2
    RESTART = 3
    END = 4
    PLACE = 5
    HOLE = 6


EMPTY_KINDS = frozenset((BlockKind.RESTART, BlockKind.END, BlockKind.PLACE))
"""They have no payload."""


class Indicator(IntEnum):
    """GoldenGate's transaction indicator, for a block."""

    NONE = 0
    WHOLE = 1
    BEGIN = 2
    MIDDLE = 3
    END = 4


COMPLETE = (Indicator.WHOLE, Indicator.END)
"""A transaction ends where such a block does."""


SNAPSHOT: Final = "snapshot"
"""In the header's source, of the one file that a task makes: the CSN as of which its rows were read."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What a file says of itself and of all that stood before it."""

    trail_id: bytes
    prefix: str
    seqno: int
    created_us: int
    home_id: str
    group: str
    host: str
    source: dict[str, str]
    copies: bytes = b""
    last_csn: str = ""
    last_origin: Position = field(default=Position(0, 0))
    open: bool = False
    alter: int = 0
    charset: str = "UTF-8"
    key_id: str = ""
    wrapped: bytes = field(default=b"", repr=False)
    follows: int | None = None
    """The file that this one goes on from, where files between the two were deleted; None: the one before."""
    last_state: str = ""
    """The source's own, which belongs to `last_origin`."""
    identity: bytes = field(default=b"", repr=False, compare=False)
    """What its key is bound to, of a header that was read."""

    @property
    def seed(self) -> int:
        """CRC seed of this file's durable end and blocks."""
        return file_seed(self.trail_id, self.seqno)


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The 96 bytes before a payload, without the CRC that depends on where the block stands."""

    kind: BlockKind
    indicator: Indicator = Indicator.NONE
    flags: int = 0
    payload_len: int = 0
    raw_len: int = 0
    changes: int = 0
    transactions: int = 0
    origin: Position = field(default=Position(0, 0))
    time_us: int = 0
    csn: str = ""
    payload_crc: int = 0
    size: int = field(init=False, repr=False, compare=False)
    """Bytes the whole block takes in a file."""
    is_ddl: bool = field(init=False, repr=False, compare=False)
    """Whether a table's shape changes in this block, and nothing else does."""
    is_heartbeat: bool = field(init=False, repr=False, compare=False)
    """Whether the block holds one heartbeat transaction and nothing else."""
    is_encrypted: bool = field(init=False, repr=False, compare=False)
    """Whether the payload is sealed with its file's key."""
    has_state: bool = field(init=False, repr=False, compare=False)
    """Whether a source's state stands behind the payload."""

    def __post_init__(self) -> None:
        settle, flags = object.__setattr__, self.flags
        settle(self, "size", BLOCK_HEADER_SIZE + self.payload_len)
        settle(self, "is_ddl", bool(flags & FLAG_DDL))
        settle(self, "is_heartbeat", bool(flags & FLAG_HEARTBEAT))
        settle(self, "is_encrypted", bool(flags & FLAG_AES))
        settle(self, "has_state", bool(flags & FLAG_STATE))

    @property
    def kind_name(self) -> str:
        """What people are told of its kind."""
        return "DDL" if self.is_ddl else "HEARTBEAT" if self.is_heartbeat else self.kind.name


def file_seed(trail_id: bytes, seqno: int) -> int:
    """CRC of what is common to all bytes of one file."""
    return zlib.crc32(_CRC.pack(seqno), zlib.crc32(trail_id))


def make_file_header(header: FileHeader) -> bytes:
    """Header bytes, padded to whole pages, with a durable end of zero."""
    start, framed = _framed(header)
    length = _FIXED.unpack(start)[-1]
    crc = zlib.crc32(framed, zlib.crc32(start))
    made = start + make_durable_end(0, header.seed) + b"\0" * 4 + framed + _CRC.pack(crc)
    return made.ljust(length, b"\0")


def header_identity(header: FileHeader) -> bytes:
    """What the key of a file about to be made is bound to: all of its header, but for durable end and key."""
    return b"".join(_framed(replace(header, wrapped=bytes(WRAPPED_SIZE))))


def _framed(header: FileHeader) -> tuple[bytes, bytes]:
    """The header's fixed start, and its body behind the body's length."""
    body: bytes = msgpack.packb(_body(header))
    length = -(-(BODY_OFFSET + len(body) + 4) // HEADER_UNIT) * HEADER_UNIT
    return _FIXED.pack(MAGIC, VERSION, 0, length), _CRC.pack(len(body)) + body


def parse_file_header(data: bytes, where: str) -> tuple[FileHeader, int]:
    """(header, header length). `data` is the file's start, at least header length bytes if the file has them.

    Raises VersionError for another version, DamageError for anything else that is wrong; `where` names the file.
    """
    length = parse_header_length(data, where)
    if len(data) < length:
        raise _damage(where, 0, f"a header of {length} bytes", f"{len(data)} bytes")
    (body_len,) = _CRC.unpack_from(data, BODY_OFFSET - 4)
    end = BODY_OFFSET + body_len
    if end + 4 > length:
        raise _damage(where, 32, f"a body of at most {length - BODY_OFFSET - 4} bytes", str(body_len))
    crc = zlib.crc32(data[BODY_OFFSET - 4 : end], zlib.crc32(data[:16]))
    _expect_crc(where, 0, crc, _CRC.unpack_from(data, end)[0])
    header = _header_from_body(data[BODY_OFFSET:end], where)
    if not header.key_id:
        return header, length
    framed = data[BODY_OFFSET - 4 : end].replace(header.wrapped, bytes(WRAPPED_SIZE), 1)
    return replace(header, identity=data[:16] + framed), length


def parse_header_length(data: bytes, where: str) -> int:
    """Check magic and version at the file's start, and give the header's length in bytes."""
    if len(data) < BODY_OFFSET:
        raise _damage(where, 0, f"a header of at least {BODY_OFFSET} bytes", f"{len(data)} bytes")
    magic, version, _, length = _FIXED.unpack_from(data)
    if magic != MAGIC:
        raise DamageError(f"{where}: expected a trail file's magic {MAGIC!r}, found {magic!r}: not a trail file")
    if version != VERSION:
        raise VersionError(
            f"{where}: trail format version {version}; this program reads version {VERSION}",
            hint=OF_ITS_RELEASE,
        )
    if length % HEADER_UNIT or not HEADER_UNIT <= length <= MAX_HEADER:
        raise _damage(where, 12, f"a header length that is a multiple of {HEADER_UNIT}", str(length))
    return int(length)


def make_durable_end(end: int, seed: int) -> bytes:
    """The 12 bytes at DURABLE_OFFSET."""
    return _DURABLE.pack(end, zlib.crc32(end.to_bytes(8, "big"), seed))


def parse_durable_end(data: bytes, seed: int, where: str) -> int:
    """The durable end in bytes; DamageError if its CRC is wrong."""
    if len(data) < _DURABLE.size:
        raise _damage(where, DURABLE_OFFSET, f"{_DURABLE.size} bytes of durable end", f"{len(data)} bytes")
    end, crc = _DURABLE.unpack_from(data)
    _expect_crc(where, DURABLE_OFFSET, zlib.crc32(data[:8], seed), crc)
    return int(end)


def make_block_header(header: BlockHeader, seed: int, rba: int) -> bytes:
    """The 96 bytes for a block that stands at `rba` in the file with CRC seed `seed`."""
    csn = header.csn.encode("ascii")
    if len(csn) > CSN_SIZE:
        raise OperatorError(
            f"CSN {header.csn!r} has {len(csn)} characters; a trail holds at most {CSN_SIZE}",
            hint="No source has one as long: report it",
        )
    made = _BLOCK.pack(
        BLOCK_MAGIC,
        header.kind,
        header.indicator,
        header.flags,
        header.payload_len,
        header.raw_len,
        header.changes,
        header.transactions,
        header.origin.seqno,
        header.origin.rba,
        header.time_us,
        csn,
        header.payload_crc,
    )
    return made + _CRC.pack(zlib.crc32(made, zlib.crc32(rba.to_bytes(8, "big"), seed)))


def block_identity(header: BlockHeader, trail_id: bytes, seqno: int, rba: int) -> bytes:
    """What an encrypted payload is bound to: its block's place, and all that its header says but the two CRCs."""
    said = make_block_header(header, 0, 0)[: -2 * _CRC.size]
    return trail_id + _CRC.pack(seqno) + rba.to_bytes(8, "big") + said


def parse_block_header(data: bytes, seed: int, rba: int, where: str) -> BlockHeader:
    """Inverse of make_block_header. Every field is checked before anybody allocates by it."""
    if len(data) < BLOCK_HEADER_SIZE:
        raise _damage(where, rba, f"a block header of {BLOCK_HEADER_SIZE} bytes", f"{len(data)} bytes")
    magic, kind, indicator, flags, size, raw, changes, txs, seqno, origin_rba, time_us, csn, payload_crc = (
        _BLOCK.unpack_from(data)
    )
    if magic != BLOCK_MAGIC:
        raise _damage(where, rba, f"block magic {BLOCK_MAGIC!r}", repr(magic))
    computed = zlib.crc32(data[: _BLOCK.size], zlib.crc32(rba.to_bytes(8, "big"), seed))
    _expect_crc(where, rba, computed, _CRC.unpack_from(data, _BLOCK.size)[0])
    if flags & ~FLAGS:
        raise VersionError(
            f"{where}, RBA {rba}: block flags {flags:#06x}; this program knows {FLAGS:#06x}",
            hint=OF_ITS_RELEASE,
        )
    seal = SEAL_SIZE if flags & FLAG_AES else 0
    stated = flags & FLAG_STATE
    if stated and ((kind, indicator) not in _STATED or size < seal + STATE_LENGTH):
        found = f"kind {kind}, indicator {indicator}, payload {size}"
        raise _damage(where, rba, "a state at a transaction's end", found)
    most = seal + (STATE_LENGTH + MAX_STATE if stated else 0)
    if kind in EMPTY_KINDS and (raw or not seal <= size <= most):
        raise _damage(where, rba, f"a {BlockKind(kind).name} block without a payload", f"payload {size}, raw {raw}")
    if size > MAX_PAYLOAD + seal or raw > MAX_PAYLOAD:
        raise _damage(where, rba, f"lengths up to {MAX_PAYLOAD}", f"payload {size}, raw {raw}")
    if time_us not in TIMES:
        raise _damage(where, rba, "a time of the years 1900 to 9998", f"{time_us} us since 1970")
    try:
        return BlockHeader(
            BlockKind(kind), Indicator(indicator), flags, size, raw, changes, txs, Position(seqno, origin_rba), time_us,
            csn.rstrip(b"\0").decode("ascii"), payload_crc,
        )  # fmt: skip
    except ValueError as error:
        raise _damage(where, rba, "a known block kind, indicator and CSN", str(error)) from error


_STATED = frozenset(((BlockKind.PLACE, Indicator.NONE), *((BlockKind.DATA, indicator) for indicator in COMPLETE)))
"""Kinds and indicators of the blocks that may bear a state."""


def state_bytes(state: str) -> bytes:
    """A source's state as a trail holds it. Raises OperatorError for one that it can't hold."""
    if not state.isascii():
        odd = next(letter for letter in state if not letter.isascii())
        where = f"found {odd!a} at {state.index(odd)}"
        raise OperatorError(f"the source's state: expected ASCII, {where}", hint=_STATE_HINT)
    if len(state) > MAX_STATE:
        raise OperatorError(
            f"the source's state: expected at most {MAX_STATE} characters, found {len(state)}", hint=_STATE_HINT
        )
    return state.encode("ascii")


def check_payload(header: BlockHeader, payload: bytes | memoryview, where: str, rba: int) -> None:
    """Raise DamageError unless `payload` is the one that `header` was made for."""
    if len(payload) != header.payload_len:
        raise _damage(where, rba, f"a payload of {header.payload_len} bytes", f"{len(payload)} bytes")
    _expect_crc(where, rba, zlib.crc32(payload), header.payload_crc)


def _body(header: FileHeader) -> dict[str, Any]:
    key: dict[str, Any] = {"wrapped": header.wrapped, "sealing": SEALING} if header.key_id else {}
    if header.follows is not None:
        key["follows"] = header.follows
    if header.last_state:
        key["state"] = state_bytes(header.last_state).decode("ascii")
    return key | {
        "trail": header.trail_id,
        "prefix": header.prefix,
        "seqno": header.seqno,
        "created": header.created_us,
        "home": header.home_id,
        "group": header.group,
        "host": header.host,
        "source": header.source,
        "copies": header.copies,
        "charset": header.charset,
        "keyid": header.key_id,
        "csn": header.last_csn,
        "origin": [header.last_origin.seqno, header.last_origin.rba],
        "open": header.open,
        "alter": header.alter,
    }


def _header_from_body(body: bytes, where: str) -> FileHeader:
    try:
        fields = {**_DEFAULTS, **msgpack.unpackb(body, max_array_len=2, max_map_len=64)}
        for name, kind in _KINDS.items():
            if not isinstance(fields[name], kind):
                raise TypeError(f"{name}: {fields[name]!r:.80} is of another kind")
        (seqno, rba), source, state = fields["origin"], fields["source"], fields["state"]
        if {*map(type, (seqno, rba))} != {int} or {*map(type, (*source, *source.values()))} - {str}:
            raise TypeError(f"origin {seqno!r}/{rba!r} and source {source!r}: one is not of numbers, or not of texts")
        if fields["created"] not in TIMES or not state.isascii() or len(state) > MAX_STATE:
            raise ValueError(f"created {fields['created']!r}, state {state!r:.80}: no time, or no state")
        key_id = fields["keyid"]
        if key_id and fields["sealing"] != SEALING:
            raise VersionError(
                f"{where}: sealing {fields['sealing']}; this program knows {SEALING}", hint=OF_ITS_RELEASE
            )
        wrapped = fields["wrapped"] if key_id else b""
        if len(wrapped) != (WRAPPED_SIZE if key_id else 0):
            raise ValueError(f"a wrapped key of {len(wrapped)} bytes")
        return FileHeader(
            trail_id=fields["trail"],
            prefix=fields["prefix"],
            seqno=fields["seqno"],
            created_us=fields["created"],
            home_id=fields["home"],
            group=fields["group"],
            host=fields["host"],
            source=source,
            copies=fields["copies"],
            charset=fields["charset"],
            key_id=key_id,
            wrapped=wrapped,
            last_csn=fields["csn"],
            last_origin=Position(seqno, rba),
            open=fields["open"],
            alter=fields["alter"],
            follows=fields["follows"],
            last_state=state,
        )
    except (ValueError, TypeError, KeyError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise _damage(where, BODY_OFFSET, "a header body with all its fields", repr(error)) from error


_DEFAULTS = {"wrapped": b"", "sealing": 1, "follows": None, "state": ""}
"""The fields of a file header's body that need not be there."""
_KINDS: dict[str, type | tuple[type, ...]] = {
    "trail": bytes, "prefix": str, "seqno": int, "created": int, "home": str, "group": str, "host": str,
    "source": dict, "copies": bytes, "charset": str, "keyid": str, "csn": str, "origin": list, "open": bool,
    "alter": int, "wrapped": bytes, "sealing": int, "follows": (int, type(None)), "state": str,
}  # fmt: skip


def _expect_crc(where: str, rba: int, computed: int, stored: int) -> None:
    if computed != stored:
        raise _damage(where, rba, f"CRC {computed:08x} (computed)", f"{stored:08x} (stored)")


def _damage(where: str, rba: int, expected: str, found: str) -> DamageError:
    return DamageError(
        f"{where}, RBA {rba}: damaged: expected {expected}, found {found}",
        hint=f"Nothing past this place was used. {MEND}",
    )
