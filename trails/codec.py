"""Records and table definitions to block payloads and back: the only place that packs and compresses payloads.

Encoding takes text as `str` or, to spare a copy, as UTF-8 `bytes`; a binary value must be wrapped by `binary()`.
Decoding gives text as `str` (bytes that are no UTF-8, from an SQL_ASCII source, as surrogate escapes: encode them
back with the same error handler), binary values as `bytes`, NULL as None and a missing column as MISSING (False).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import lz4.block
import msgpack

from trails import wellformed
from trails.errors import DamageError
from trails.format import FLAG_LZ4, FLAG_STATE, MAX_PAYLOAD, MAX_STATE, STATE_LENGTH, BlockHeader, state_bytes
from trails.hole import Hole
from trails.record import Record, TableDef
from trails.unpacking import ALLOWANCE, EXT_BYTES, UNCOUNTED, UNPACK_ERRORS, unpack

# Below this LZ4 saves less than it costs.
MIN_COMPRESS = 256
# No LZ4 block grows by more: memory for it is taken by what came, not by what its header says.
LZ4_RATIO = 255
# Definitions are many small values; more of them than this go into a block of their own.
MAX_DEFS_RAW = 32 << 20
DEFS_UNCOUNTED, DEFS_ALLOWANCE = 1 << 18, 64 << 20
COLUMNS_A_BLOCK = 50_000
# Tables, their columns and texts of a whole trail: some hundred MiB of memory in whoever reads or writes it.
MOST_DEFINED = 1_000_000
MAX_SMALL_RAW = 1 << 16


@dataclass(frozen=True, slots=True)
class Payload:
    """A block's payload as it stands in the file, with what the header must say of it."""

    data: bytes
    raw_len: int
    flags: int
    crc: int


EMPTY = Payload(b"", 0, 0, zlib.crc32(b""))


def binary(data: bytes) -> msgpack.ExtType:
    """Wrap a binary value (not text) for encode_data."""
    return msgpack.ExtType(EXT_BYTES, data)


def encode_data(tables: Sequence[bytes], records: Sequence[Record]) -> Payload:
    """Payload of a DATA block. Raises OverflowError beyond MAX_PAYLOAD."""
    # use_bin_type=False packs bytes as text, which spares decoding every column that the source gave as UTF-8 bytes.
    packer = msgpack.Packer(use_bin_type=False, unicode_errors="surrogateescape", autoreset=False)
    packer.pack_array_header(2)
    packer.pack([msgpack.ExtType(EXT_BYTES, table) for table in tables])
    if hasattr(records, "packed"):
        return _compress(packer.bytes() + records.packed())
    packer.pack(records)
    return _compress(packer.bytes())


def decode_data(
    header: BlockHeader,
    payload: bytes,
    where: str = "block",
    widths: wellformed.Widths | None = None,
    opened: wellformed.Opened | None = None,
    *,
    lists: bool = True,
) -> tuple[list[bytes], list[Any]]:
    """(table ids, records as lists) of a DATA block whose payload CRC was checked; DamageError if it is malformed.

    `widths`: of who knows the tables; `opened`: of who reads block after block, whose COMMITs are held to it.
    Without `lists` records and images are tuples: made and read in a fifth less time.
    """
    if header.is_heartbeat and header.raw_len > MAX_SMALL_RAW:
        raise DamageError(f"{where}: damaged: expected a heartbeat's few bytes, found {header.raw_len}")
    unpacked = _unpack(header, payload, where, UNCOUNTED, ALLOWANCE, lists=lists)
    array = list if lists else tuple
    if not (isinstance(unpacked, array) and len(unpacked) == 2 and all(isinstance(part, array) for part in unpacked)):
        raise DamageError(f"{where}: expected a table list and a record list, found something else")
    tables, records = map(list, unpacked)
    wellformed.check(header, tables, records, where, widths, opened)
    return tables, records


def encode_defs(defs: Sequence[TableDef]) -> Payload:
    """Payload of a METADATA block."""
    return _compress(msgpack.packb([d.to_wire() for d in defs], unicode_errors="surrogateescape"))


def portions(defs: Sequence[TableDef]) -> Iterator[list[TableDef]]:
    """`defs` in parts that a METADATA block can hold."""
    part: list[TableDef] = []
    columns = 0
    for definition in defs:
        if part and columns + definition.weight > COLUMNS_A_BLOCK:
            yield part
            part, columns = [], 0
        part.append(definition)
        columns += definition.weight
    if part:
        yield part


def check_defined(weight: int, where: str) -> None:
    """Raise DamageError if tables of this weight are more than a trail may define."""
    if weight > MOST_DEFINED:
        raise DamageError(
            f"{where}: tables, columns and their texts count {weight}, more than a trail's bound of {MOST_DEFINED}",
            hint="Name fewer tables in the TABLE clauses, or share them between several Extracts",
        )


def decode_defs(header: BlockHeader, payload: bytes, where: str = "block") -> list[TableDef]:
    """Definitions of a METADATA block whose payload CRC was checked."""
    if header.raw_len > MAX_DEFS_RAW:
        raise DamageError(f"{where}: damaged: {header.raw_len} bytes of definitions; expected {MAX_DEFS_RAW} at most")
    unpacked = _unpack(header, payload, where, DEFS_UNCOUNTED, DEFS_ALLOWANCE)
    if not isinstance(unpacked, list):
        raise DamageError(f"{where}: damaged: expected a list of definitions, found {type(unpacked).__name__}")
    try:
        return [TableDef.from_wire(wire) for wire in unpacked]
    except (TypeError, ValueError) as error:
        raise DamageError(f"{where}: damaged: expected table definitions, found {error!s:.80}") from error


def encode_hole(hole: Hole) -> Payload:
    """Payload of a HOLE block."""
    return _compress(msgpack.packb(hole.to_wire(), unicode_errors="surrogateescape"))


def decode_hole(header: BlockHeader, payload: bytes, where: str = "block") -> Hole:
    """The hole of a HOLE block whose payload CRC was checked."""
    if header.raw_len > MAX_SMALL_RAW:
        raise DamageError(f"{where}: damaged: expected a hole's few bytes, found {header.raw_len}")
    try:
        return Hole.from_wire(_unpack(header, payload, where, UNCOUNTED, ALLOWANCE))
    except (TypeError, ValueError) as error:
        raise DamageError(f"{where}: expected a hole, found {error!s:.80}") from error


def with_state(payload: Payload, state: str) -> Payload:
    """The same with a source's state behind it. Raises OperatorError for a state that a trail can't hold."""
    said = state_bytes(state)
    data = b"".join((payload.data, said, len(said).to_bytes(STATE_LENGTH)))
    if len(data) > MAX_PAYLOAD:
        raise OverflowError(f"a block of {len(data)} bytes is over the format's bound of {MAX_PAYLOAD}")
    return Payload(data, payload.raw_len, payload.flags | FLAG_STATE, zlib.crc32(data))


def state_of(payload: bytes, where: str) -> str:
    """The state that a block bears, from its payload, whose CRC was checked; DamageError if it is malformed."""
    size = _state_size(payload, where)
    said = payload[len(payload) - STATE_LENGTH - size : len(payload) - STATE_LENGTH]
    if not said.isascii():
        raise DamageError(f"{where}: damaged: expected a source's state in ASCII, found other bytes")
    return said.decode("ascii")


def _state_size(payload: bytes, where: str) -> int:
    """The length of a block's state, without the length itself."""
    room = len(payload) - STATE_LENGTH
    size = int.from_bytes(payload[-STATE_LENGTH:])
    if not 0 <= size <= min(room, MAX_STATE):
        raise DamageError(f"{where}: damaged: expected a state of at most {min(room, MAX_STATE)} bytes, found {size}")
    return size


def _compress(raw: bytes) -> Payload:
    if len(raw) > MAX_PAYLOAD:
        raise OverflowError(f"a block of {len(raw)} bytes is over the format's bound of {MAX_PAYLOAD}")
    if len(raw) >= MIN_COMPRESS:
        packed: bytes = lz4.block.compress(raw, store_size=False)
        if len(packed) < len(raw):
            return Payload(packed, len(raw), FLAG_LZ4, zlib.crc32(packed))
    return Payload(raw, len(raw), 0, zlib.crc32(raw))


def _unpack(
    header: BlockHeader, payload: bytes, where: str, uncounted: int, allowance: int, *, lists: bool = True
) -> Any:
    try:
        return unpack(raw_of(header, payload, where), uncounted=uncounted, allowance=allowance, lists=lists)
    except UNPACK_ERRORS as error:
        raise DamageError(f"{where}: expected an LZ4 block of msgpack, found {error!r}") from error


def raw_of(header: BlockHeader, payload: bytes, where: str) -> bytes | memoryview:
    """The msgpack of a payload whose CRC was checked; DamageError if it is not as long as its header says."""
    raw: bytes | memoryview = payload
    if header.has_state:
        raw = memoryview(payload)[: len(payload) - STATE_LENGTH - _state_size(payload, where)]
    if header.flags & FLAG_LZ4:
        if header.raw_len > LZ4_RATIO * len(raw):
            raise DamageError(f"{where}: expected fewer bytes from {len(raw)} of LZ4, found {header.raw_len}")
        try:
            raw = lz4.block.decompress(raw, uncompressed_size=header.raw_len)
        except (*UNPACK_ERRORS, lz4.block.LZ4BlockError) as error:
            raise DamageError(f"{where}: expected an LZ4 block of msgpack, found {error!r}") from error
    if len(raw) != header.raw_len:
        raise DamageError(f"{where}: expected {header.raw_len} bytes after decompression, found {len(raw)}")
    return raw
