"""What the servers compress: MariaDB's events by zlib, whole transactions of MySQL by zstd.

    MariaDB      a head of one byte (1aaaxnnn: algorithm a, n bytes of length), the length, big endian, a zlib stream
    MySQL        fields of type, length and value, each a packed number, up to type 0; then a zstd stream of events

Rule: nothing is allocated because a length says so. A payload is taken apart as it is unpacked, an event at a time, so
it takes no more memory than its largest event, however long the transaction is.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from extract.sources.mysql.events import HEADER_SIZE, BinlogError, packed

CHUNK: Final = 256 << 10
MOST: Final = 1 << 30
"""The servers' own limit for an event (max_allowed_packet)."""
_MARK, _ALGORITHM, _LENGTH = 0xE0, 0x70, 0x07
_SIZE = struct.Struct("<I")
_SIZE_AT = 9
_ENDS, _PACKED_SIZE, _KIND, _PLAIN_SIZE = range(4)
_ZSTD, _PLAIN = 0, 255

_Read = Callable[[int], bytes]
"""At most so many bytes of a stream; none at its end."""


def inflated(data: bytes, at: int, upto: int) -> bytes:
    """What MariaDB packed into `data[at:upto]`."""
    head = data[at] if at < upto else 0
    count = head & _LENGTH
    begin = at + 1 + count
    if head & _MARK != 0x80 or head & _ALGORITHM or not 1 <= count <= 4 or begin > upto:
        raise BinlogError(f"expected packed bytes: a head of zlib and a length, found {data[at : min(upto, at + 8)]!r}")
    size = int.from_bytes(data[at + 1 : begin], "big")
    if size > MOST:
        raise BinlogError(f"expected at most {MOST} bytes of an event, found packed bytes that say {size}")
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(memoryview(data)[begin:upto], size + 1)
    except zlib.error as error:
        raise BinlogError(f"expected packed bytes (zlib), found damaged ones: {error}") from error
    if len(found) != size or not unpacker.eof or unpacker.unused_data:
        raise BinlogError(f"expected {size} bytes in packed ones, and their end, found {len(found)}")
    return found


def payload(data: bytes, at: int, upto: int) -> Iterator[tuple[bytes, int, int]]:
    """The events of a TRANSACTION_PAYLOAD, as (data, from, up to) each; they bear no checksums."""
    fields = {_KIND: _ZSTD}
    while True:
        field, at = packed(data, at)
        if field == _ENDS:
            break
        length, at = packed(data, at)
        end = at + length
        if field in (_PACKED_SIZE, _KIND, _PLAIN_SIZE):
            fields[field], at = packed(data, at)
            if at != end:
                raise BinlogError(f"TRANSACTION_PAYLOAD: expected field {field} to end at byte {end}, found {at}")
        at = end
        if at > upto:
            break
    if at > upto or fields.get(_PACKED_SIZE, upto - at) != upto - at:
        raise BinlogError(f"TRANSACTION_PAYLOAD: expected {fields.get(_PACKED_SIZE)} packed bytes, found {upto - at}")
    if fields[_KIND] == _ZSTD and _PLAIN_SIZE not in fields:  # without it nobody sees where the stream was cut
        raise BinlogError("TRANSACTION_PAYLOAD: expected the size of what is packed, found no such field")
    if fields[_KIND] not in (_ZSTD, _PLAIN):
        raise BinlogError(f"TRANSACTION_PAYLOAD: expected compression 0 (zstd) or 255 (none), found {fields[_KIND]}")
    stream = io.BytesIO(memoryview(data)[at:upto])
    yield from _events(stream.read if fields[_KIND] == _PLAIN else _unpacked(stream), fields.get(_PLAIN_SIZE))


def _unpacked(stream: io.BytesIO) -> _Read:
    import zstandard  # only where it is met

    reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)

    def read(size: int) -> bytes:
        try:
            return reader.read(size)
        except zstandard.ZstdError as error:
            raise BinlogError(
                f"TRANSACTION_PAYLOAD: expected packed bytes (zstd), found damaged ones: {error}"
            ) from None

    return read


def _events(read: _Read, total: int | None) -> Iterator[tuple[bytes, int, int]]:
    """Cut a stream into events by the sizes in their headers. It ends behind one of them, after `total` bytes."""
    buffer, at, count = read(CHUNK), 0, 0
    while at < len(buffer):
        if len(buffer) - at < HEADER_SIZE:
            buffer, at = _filled(read, buffer[at:], HEADER_SIZE), 0
        (size,) = _SIZE.unpack_from(buffer, at + _SIZE_AT)
        if not HEADER_SIZE <= size <= MOST:
            raise BinlogError(f"TRANSACTION_PAYLOAD: expected the size of an event, found {size}")
        if len(buffer) - at < size:
            buffer, at = _filled(read, buffer[at:], size), 0
        yield buffer, at, at + size
        at, count = at + size, count + size
        if at == len(buffer):
            buffer, at = read(CHUNK), 0
    if total not in (None, count):
        raise BinlogError(f"TRANSACTION_PAYLOAD: expected events of {total} bytes, found {count}")


def _filled(read: _Read, have: bytes, size: int) -> bytes:
    """What is here and what follows, up to `size` bytes at least."""
    pieces, count = [have], len(have)
    while count < size:
        piece = read(CHUNK)
        if not piece:
            raise BinlogError(f"TRANSACTION_PAYLOAD: expected {size} bytes of an event, found {count}")
        pieces.append(piece)
        count += len(piece)
    return b"".join(pieces)
