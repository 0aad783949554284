"""Bytes of types that are not what they look like in the log: compressed columns, UUIDs, addresses, geometry."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from extract.sources.mysql.values.unread import UnreadValueError

Text = Callable[[bytes], str]

_RAW_DEFLATE: Final = 8
_SRID: Final = 4
_WITH_SRID: Final = 0x20000000
_KINDS: Final = range(1, 8)


def uncompressed(raw: bytes) -> bytes:
    """The value of MariaDB's COMPRESSED column: a byte tells how, then its length (high byte first) and zlib's data."""
    if not raw:
        return raw
    how = raw[0]
    if how == 0:
        return raw[1:]
    size = how & 7
    length = int.from_bytes(raw[1 : 1 + size], "big")
    if how >> 4 != 8 or not 0 < size <= 4:
        raise UnreadValueError(f"expected a COMPRESSED value of MariaDB, found one that begins with {how:02x}")
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS if how & _RAW_DEFLATE else zlib.MAX_WBITS)
    try:
        value = unpacker.decompress(raw[1 + size :], length + 1)
    except zlib.error as error:
        raise UnreadValueError(f"expected a COMPRESSED value of MariaDB, found other bytes ({error})") from error
    if len(value) != length or not unpacker.eof:
        raise UnreadValueError(f"expected {length} bytes in a COMPRESSED value, found {len(value)}")
    return value


def uuid(raw: bytes) -> str:
    """MariaDB's UUID."""
    text = _whole(raw, 16).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def inet4(raw: bytes) -> str:
    """An address of version 4."""
    return ".".join(map(str, _whole(raw, 4)))


def inet6(raw: bytes) -> str:
    """An address of version 6, as MariaDB prints it: a single zero is left out too, version 4 inside it has dots."""
    raw = _whole(raw, 16)
    parts = [raw[at] << 8 | raw[at + 1] for at in range(0, 16, 2)]
    size, start = _longest_zeros(parts)
    if start == 0 and (size == 6 or (size == 5 and parts[5] == 0xFFFF)):
        return f"::{'ffff:' if size == 5 else ''}{inet4(raw[12:])}"
    texts = [f"{part:x}" for part in parts]
    return ":".join(texts) if not size else f"{':'.join(texts[:start])}::{':'.join(texts[start + size :])}"


def _longest_zeros(parts: list[int]) -> tuple[int, int]:
    """(how many, from where), the first of those that are equally long."""
    best, start, run = 0, 0, 0
    for i, part in enumerate(parts):
        run = 0 if part else run + 1
        if run > best:
            best, start = run, i - run + 1
    return best, start


def _whole(raw: bytes, size: int) -> bytes:
    """Zeros at the end stand not in the log."""
    if len(raw) > size:
        raise UnreadValueError(f"expected {size} bytes, found {len(raw)}")
    return raw.ljust(size, b"\0")


def geometry(raw: bytes) -> str:
    """EWKB in hexadecimal digits: the server's number of the reference system stands inside, where it is not zero."""
    kind = int.from_bytes(raw[5:9], "little")
    if len(raw) < 9 or raw[4] != 1 or kind not in _KINDS:
        raise UnreadValueError(f"expected a geometry, found {raw[:20].hex()}")
    if raw[:_SRID] == bytes(_SRID):
        return raw[_SRID:].hex().upper()
    head = b"\x01" + (kind | _WITH_SRID).to_bytes(4, "little") + raw[:_SRID]
    return (head + raw[9:]).hex().upper()
