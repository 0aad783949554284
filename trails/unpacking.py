"""Msgpack of a trail or a peer to Python values, at a price that is known before it is paid.

Rule: one byte of msgpack can cost 64 bytes of memory (an empty array), and LZ4 makes 255 bytes of one. So few bytes
are unpacked as they are, and more of them are first walked, value by value and without making any: what they
would cost beyond their own length is bounded. Maps and the bin family stand in no payload, so none is ever made.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

UNCOUNTED: Final = 2 << 20
"""So many bytes cost 128 MiB at most. A block of many small rows is no larger: its writer closes it at 1 MiB."""
ALLOWANCE: Final = 128 << 20
EXT_BYTES: Final = 1
"""The msgpack extension type that marks bytes, so that its str family is free for text in either form."""
UNPACK_ERRORS: Final = (ValueError, TypeError, OverflowError, RecursionError, msgpack.exceptions.UnpackException)

_LIST, _TEXT, _PLAIN = 64, 56, 8
_LENGTH = 1 << 16
"""Marks a first byte whose length field counts the bytes that follow."""


def unpack(
    raw: bytes | memoryview, *, uncounted: int = UNCOUNTED, allowance: int = ALLOWANCE, lists: bool = True
) -> Any:
    """The one value that `raw` is; arrays as lists, else as tuples. Raises one of UNPACK_ERRORS."""
    if len(raw) > uncounted:
        cost_of(raw, allowance)
    return msgpack.unpackb(
        raw, raw=False, unicode_errors="surrogateescape", strict_map_key=False, ext_hook=_bytes_of_ext,
        object_hook=_no_map, max_map_len=0, max_bin_len=0, use_list=lists,
    )  # fmt: skip


def cost_of(raw: bytes | memoryview, most: int) -> int:
    """Bytes of memory that the values in `raw` would take beyond their own text. Raises ValueError beyond `most`."""
    at, end, cost, steps = 0, len(raw), 0, _STEPS
    while at < end:
        width, size, price = steps[raw[at]]
        at += 1
        if width:
            length = int.from_bytes(raw[at : at + width])
            at += width
            if size & _LENGTH:
                at += length
            else:
                cost += length * _PLAIN
            size &= ~_LENGTH
        at += size
        cost += price
        if cost > most:
            raise ValueError(f"{end} bytes of msgpack that would take more than {most} bytes of memory")
    return cost


def _steps() -> list[tuple[int, int, int]]:
    """By first byte: width of the length field, bytes to go on by, and what the value costs."""
    steps = [(0, 0, _PLAIN)] * 256
    for first in range(0x80, 0xA0):  # fixmap, fixarray
        steps[first] = (0, 0, _LIST + (first & 0x0F) * _PLAIN)
    for first in range(0xA0, 0xC0):  # fixstr
        steps[first] = (0, first & 0x1F, _TEXT)
    for width, firsts in ((1, (0xC4, 0xD9)), (2, (0xC5, 0xDA)), (4, (0xC6, 0xDB))):  # bin, str
        for first in firsts:
            steps[first] = (width, _LENGTH, _TEXT)
    for width, first in ((1, 0xC7), (2, 0xC8), (4, 0xC9)):  # ext: its code is one byte more
        steps[first] = (width, _LENGTH | 1, _TEXT)
    for first, size in ((0xCA, 4), (0xCB, 8), (0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8), (0xD0, 1), (0xD1, 2),
                        (0xD2, 4), (0xD3, 8)):  # fmt: skip
        steps[first] = (0, size, _LIST)  # numbers are objects too
    for number in range(5):  # fixext 1, 2, 4, 8, 16
        steps[0xD4 + number] = (0, 1 + (1 << number), _TEXT)
    for width, firsts in ((2, (0xDC, 0xDE)), (4, (0xDD, 0xDF))):  # array, map
        for first in firsts:
            steps[first] = (width, 0, _LIST)
    return steps


_STEPS: Final = _steps()


def _bytes_of_ext(code: int, data: bytes) -> bytes:
    if code != EXT_BYTES:
        raise ValueError(f"msgpack extension type {code}; expected {EXT_BYTES} (bytes)")
    return data


def _no_map(_found: object) -> Any:
    raise ValueError("a msgpack map; no payload of a trail has one")
