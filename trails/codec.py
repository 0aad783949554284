"""Records and table definitions to block payloads and back: the only place that packs and compresses payloads.

Encoding takes text as `str` or, to spare a copy, as UTF-8 `bytes`; a binary value must be wrapped by `binary()`.
Decoding gives text as `str` (bytes that are no UTF-8, from an SQL_ASCII source, as surrogate escapes: encode them
back with the same error handler), binary values as `bytes`, NULL as None and a missing column as MISSING (False).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lz4.block
import msgpack

from trails.errors import DamageError
from trails.format import FLAG_LZ4, MAX_PAYLOAD, BlockHeader
from trails.record import Record, TableDef

# Below this LZ4 saves less than it costs.
MIN_COMPRESS = 256
# No LZ4 block grows by more: memory for it is taken by what came, not by what its header says.
LZ4_RATIO = 255
# The msgpack extension type that marks bytes, so that its str family is free for text in either form.
EXT_BYTES = 1


@dataclass(frozen=True, slots=True)
class Payload:
    """A block's payload as it stands in the file, with what the header must say of it."""

    data: bytes
    raw_len: int
    flags: int

    @property
    def crc(self) -> int:
        """CRC for the block header."""
        return zlib.crc32(self.data)


EMPTY = Payload(b"", 0, 0)


def binary(data: bytes) -> msgpack.ExtType:
    """Wrap a binary value (not text) for encode_data."""
    return msgpack.ExtType(EXT_BYTES, data)


def encode_data(tables: Sequence[bytes], records: Sequence[Record]) -> Payload:
    """Payload of a DATA block. Raises OverflowError beyond MAX_PAYLOAD."""
    # use_bin_type=False packs bytes as text, which spares decoding every column that the source gave as UTF-8 bytes.
    packer = msgpack.Packer(use_bin_type=False, unicode_errors="surrogateescape", autoreset=False)
    packer.pack_array_header(2)
    packer.pack([binary(table) for table in tables])
    packer.pack(records)
    return _compress(packer.bytes())


def decode_data(header: BlockHeader, payload: bytes, where: str = "block") -> tuple[list[bytes], list[Any]]:
    """(table ids, records as lists) of a DATA block whose payload CRC was checked."""
    unpacked = _unpack(header, payload, where)
    if not (isinstance(unpacked, list) and len(unpacked) == 2 and all(isinstance(part, list) for part in unpacked)):
        raise DamageError(f"{where}: expected a table list and a record list, found something else")
    return unpacked[0], unpacked[1]


def encode_defs(defs: Sequence[TableDef]) -> Payload:
    """Payload of a METADATA block."""
    return _compress(msgpack.packb([d.to_wire() for d in defs], unicode_errors="surrogateescape"))


def decode_defs(header: BlockHeader, payload: bytes, where: str = "block") -> list[TableDef]:
    """Definitions of a METADATA block whose payload CRC was checked."""
    try:
        return [TableDef.from_wire(wire) for wire in _unpack(header, payload, where)]
    except (TypeError, ValueError, IndexError) as error:
        raise DamageError(f"{where}: expected table definitions, found {error!r}") from error


def _bytes_of_ext(code: int, data: bytes) -> bytes:
    if code != EXT_BYTES:
        raise ValueError(f"msgpack extension type {code}; expected {EXT_BYTES} (bytes)")
    return data


def _compress(raw: bytes) -> Payload:
    if len(raw) > MAX_PAYLOAD:
        raise OverflowError(f"a block of {len(raw)} bytes is over the format's bound of {MAX_PAYLOAD}")
    if len(raw) >= MIN_COMPRESS:
        packed: bytes = lz4.block.compress(raw, store_size=False)
        if len(packed) < len(raw):
            return Payload(packed, len(raw), FLAG_LZ4)
    return Payload(raw, len(raw), 0)


def _unpack(header: BlockHeader, payload: bytes, where: str) -> Any:
    try:
        raw = payload
        if header.flags & FLAG_LZ4:
            if header.raw_len > LZ4_RATIO * len(payload):
                raise DamageError(f"{where}: expected fewer bytes from {len(payload)} of LZ4, found {header.raw_len}")
            raw = lz4.block.decompress(payload, uncompressed_size=header.raw_len)
        if len(raw) != header.raw_len:
            raise DamageError(f"{where}: expected {header.raw_len} bytes after decompression, found {len(raw)}")
        return msgpack.unpackb(
            raw, raw=False, unicode_errors="surrogateescape", strict_map_key=False, ext_hook=_bytes_of_ext
        )
    except (ValueError, lz4.block.LZ4BlockError, msgpack.exceptions.UnpackException) as error:
        raise DamageError(f"{where}: expected an LZ4 block of msgpack, found {error!r}") from error
