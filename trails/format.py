"""Trail bytes: file header and block header, as pure functions on bytes. FORMAT.md has the tables.

Strategy: make/parse pairs. A parse function gets enough bytes and the place they came from; it returns a value, or
raises DamageError (bytes are wrong) or VersionError (bytes are of another version). It touches no file, keeps no state.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import msgpack

from trails.errors import DamageError, OperatorError, VersionError
from trails.position import Position

MAGIC = b"TRLGATE\n"
VERSION = 1
HEADER_UNIT = 4096  # a page: the header never shares one with blocks that are still being written
DURABLE_OFFSET = 16
BODY_OFFSET = 36
MAX_HEADER = 1 << 20

BLOCK_MAGIC = b"TGBK"
BLOCK_HEADER_SIZE = 96
CSN_SIZE = 40
# PostgreSQL, the widest source, can hand over one row of 1 GiB; an eighth more leaves room for its frame.
MAX_PAYLOAD = 1152 << 20
FLAG_LZ4 = 1
FLAG_DDL = 2
FLAG_HEARTBEAT = 4
FLAG_AES = 8
# Bytes that encrypting adds to a payload: a nonce before it, a tag behind it.
NONCE_SIZE = 12
SEAL_SIZE = NONCE_SIZE + 16
# The file key (32 bytes), sealed.
WRAPPED_SIZE = 32 + SEAL_SIZE
# How much of a file encryption holds together, see FORMAT.md: 1 payloads alone, 2 header, order and end too.
SEALING = 2
FLAGS = FLAG_LZ4 | FLAG_DDL | FLAG_HEARTBEAT | FLAG_AES

_FIXED = struct.Struct(">8sHHI")
_DURABLE = struct.Struct(">QI")
_BLOCK = struct.Struct(">4sBBHIIIIQQq40sI")
_CRC = struct.Struct(">I")


class Kind(IntEnum):
    """A block's kind; zero is reserved, so zeroed space is never a block."""

    DATA = 1
    METADATA = 2
    RESTART = 3
    END = 4
    PLACE = 5


EMPTY_KINDS = frozenset((Kind.RESTART, Kind.END, Kind.PLACE))
"""They have no payload."""


class Indicator(IntEnum):
    """GoldenGate's transaction indicator, for a block."""

    NONE = 0
    WHOLE = 1
    BEGIN = 2
    MIDDLE = 3
    END = 4


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
    sealing: int = 1
    identity: bytes = field(default=b"", repr=False, compare=False)
    """What its key is bound to, of a header that was read."""

    @property
    def seed(self) -> int:
        """CRC seed of this file's durable end and blocks."""
        return file_seed(self.trail_id, self.seqno)


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The 96 bytes before a payload, without the CRC that depends on where the block stands."""

    kind: Kind
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

    @property
    def is_ddl(self) -> bool:
        """Whether a table's shape changes in this block, and nothing else does."""
        return bool(self.flags & FLAG_DDL)

    @property
    def is_heartbeat(self) -> bool:
        """Whether the block holds one heartbeat transaction and nothing else."""
        return bool(self.flags & FLAG_HEARTBEAT)

    @property
    def is_encrypted(self) -> bool:
        """Whether the payload is sealed with its file's key."""
        return bool(self.flags & FLAG_AES)

    @property
    def size(self) -> int:
        """Bytes the whole block takes in a file."""
        return BLOCK_HEADER_SIZE + self.payload_len


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
            hint="Read it with the release that wrote it, or a newer one",
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
    made = _packed(header)
    return made + _CRC.pack(_block_crc(made, seed, rba))


def block_identity(header: BlockHeader, trail_id: bytes, seqno: int, rba: int) -> bytes:
    """What an encrypted payload is bound to: its block's place, and all that its header says but the payload's CRC."""
    return trail_id + _CRC.pack(seqno) + rba.to_bytes(8, "big") + _packed(header)[: -_CRC.size]


def _packed(header: BlockHeader) -> bytes:
    csn = header.csn.encode("ascii")
    if len(csn) > CSN_SIZE:
        raise OperatorError(f"CSN {header.csn!r} has {len(csn)} characters; a trail holds at most {CSN_SIZE}")
    return _BLOCK.pack(
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


def parse_block_header(data: bytes, seed: int, rba: int, where: str) -> BlockHeader:
    """Inverse of make_block_header. Every field is checked before anybody allocates by it."""
    if len(data) < BLOCK_HEADER_SIZE:
        raise _damage(where, rba, f"a block header of {BLOCK_HEADER_SIZE} bytes", f"{len(data)} bytes")
    magic, kind, indicator, flags, size, raw, changes, txs, seqno, origin_rba, time_us, csn, payload_crc = (
        _BLOCK.unpack_from(data)
    )
    if magic != BLOCK_MAGIC:
        raise _damage(where, rba, f"block magic {BLOCK_MAGIC!r}", repr(magic))
    _expect_crc(where, rba, _block_crc(data[: _BLOCK.size], seed, rba), _CRC.unpack_from(data, _BLOCK.size)[0])
    if flags & ~FLAGS:
        raise VersionError(
            f"{where}, RBA {rba}: block flags {flags:#06x}; this program knows {FLAGS:#06x}",
            hint="Read it with the release that wrote it, or a newer one",
        )
    seal = SEAL_SIZE if flags & FLAG_AES else 0
    if kind in EMPTY_KINDS and (size != seal or raw):
        raise _damage(where, rba, f"a {Kind(kind).name} block without a payload", f"payload {size}, raw {raw}")
    if size > MAX_PAYLOAD + seal or raw > MAX_PAYLOAD:
        raise _damage(where, rba, f"lengths up to {MAX_PAYLOAD}", f"payload {size}, raw {raw}")
    try:
        return BlockHeader(
            Kind(kind), Indicator(indicator), flags, size, raw, changes, txs, Position(seqno, origin_rba), time_us,
            csn.rstrip(b"\0").decode("ascii"), payload_crc,
        )  # fmt: skip
    except ValueError as error:
        raise _damage(where, rba, "a known block kind, indicator and CSN", str(error)) from error


def check_payload(header: BlockHeader, payload: bytes | memoryview, where: str, rba: int) -> None:
    """Raise DamageError unless `payload` is the one that `header` was made for."""
    if len(payload) != header.payload_len:
        raise _damage(where, rba, f"a payload of {header.payload_len} bytes", f"{len(payload)} bytes")
    _expect_crc(where, rba, zlib.crc32(payload), header.payload_crc)


def _block_crc(made: bytes, seed: int, rba: int) -> int:
    return zlib.crc32(made, zlib.crc32(rba.to_bytes(8, "big"), seed))


def _body(header: FileHeader) -> dict[str, Any]:
    key: dict[str, Any] = {"wrapped": header.wrapped} if header.key_id else {}
    if header.sealing > 1:
        key["sealing"] = header.sealing
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
        fields = msgpack.unpackb(body)
        key_id = _typed(fields["keyid"], str)
        wrapped = _typed(fields["wrapped"], bytes) if key_id else b""
        if len(wrapped) not in ((WRAPPED_SIZE,) if key_id else (0,)):
            raise ValueError(f"a wrapped key of {len(wrapped)} bytes")
        sealing = _typed(fields.get("sealing", 1), int) if key_id else 1
        return FileHeader(
            trail_id=_typed(fields["trail"], bytes),
            prefix=_typed(fields["prefix"], str),
            seqno=_typed(fields["seqno"], int),
            created_us=_typed(fields["created"], int),
            home_id=_typed(fields["home"], str),
            group=_typed(fields["group"], str),
            host=_typed(fields["host"], str),
            source={_typed(k, str): _typed(v, str) for k, v in _typed(fields["source"], dict).items()},
            copies=_typed(fields["copies"], bytes),
            charset=_typed(fields["charset"], str),
            key_id=key_id,
            wrapped=wrapped,
            sealing=sealing,
            last_csn=_typed(fields["csn"], str),
            last_origin=Position(*(_typed(part, int) for part in fields["origin"])),
            open=_typed(fields["open"], bool),
            alter=_typed(fields["alter"], int),
        )
    except (ValueError, TypeError, KeyError, msgpack.exceptions.UnpackException) as error:
        raise _damage(where, BODY_OFFSET, "a header body with all its fields", repr(error)) from error


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _expect_crc(where: str, rba: int, computed: int, stored: int) -> None:
    if computed != stored:
        raise _damage(where, rba, f"CRC {computed:08x} (computed)", f"{stored:08x} (stored)")


def _damage(where: str, rba: int, expected: str, found: str) -> DamageError:
    return DamageError(
        f"{where}, RBA {rba}: damaged: expected {expected}, found {found}",
        hint="Restore the file from a copy, or make the trail anew from its source; nothing past this place was used",
    )
