"""MySQL's binary JSON: read into a tree, and printed exactly as the server prints it.

    type u8, then by type
    object, array: count, size, entries of keys (place, length u16), entries of values (type u8, place or value), data
    literal: u8    whole numbers: 2, 4 or 8 bytes    double: 8    text: length, UTF-8
    opaque: a column's type u8, length, value

Counts, sizes and places have two bytes, or four in large ones; places count from the container's first byte behind its
type. Numbers are little endian. Small values stand in their entry.

Rule: the tree keeps what printing needs: whole numbers are int, doubles float, what JSON has no form for is Opaque. An
object is a dict whose keys stand as the server has them: shorter ones first, then by their bytes.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from extract.sources.mysql.values import numbers, temporal
from extract.sources.mysql.values.unread import UnreadValueError

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_DOUBLE, _TEXT, _OPAQUE = 0x0B, 0x0C, 0x0F
_NUMBERS: Final = {
    0x05: struct.Struct("<h"), 0x06: struct.Struct("<H"), 0x07: struct.Struct("<i"), 0x08: struct.Struct("<I"),
    0x09: struct.Struct("<q"), 0x0A: struct.Struct("<Q"), _DOUBLE: struct.Struct("<d"),
}  # fmt: skip
_LITERALS: Final = (None, True, False)
_DEEPEST: Final = 100
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_DECIMAL, _TIMESTAMP, _DATE, _TIME, _DATETIME = 246, 7, 10, 11, 12
_BASE64_LINE: Final = 76
_PLAIN_FROM, _PLAIN_UPTO = -14, 15
"""A double is written without an exponent where its point stands between these places of its digits."""
_ESCAPED: Final = re.compile('["\\\\\\x00-\\x1f]')
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}

Tree = Any


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value of a column's type: a decimal, a date, bytes."""

    type: int
    raw: bytes


def json_text(raw: bytes) -> str:
    """The text of a JSON column's value."""
    return printed(tree_of(raw))


def tree_of(raw: bytes) -> Tree:
    """The tree; no bytes at all stand for null."""
    if not raw:
        return None
    try:
        return _Reader(raw).value(raw[0], 1, len(raw), 0)
    except (IndexError, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise UnreadValueError(f"expected binary JSON, found {len(raw)} bytes that are none ({error})") from error


class _Reader:
    """Reads values at places of one document. Each stays inside its container."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._left = 2 * len(raw) + 16  # values of hostile bytes may share a place, so they are counted

    def value(self, kind: int, at: int, upto: int, depth: int) -> Tree:
        """The value that begins at `at` and ends before `upto`."""
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            raise UnreadValueError("expected binary JSON of at most 100 levels, found values that hold each other")
        if kind <= _LARGE_ARRAY:
            return self._container(kind, at, upto, depth)
        if kind == _LITERAL:
            return _LITERALS[self._raw[at]]
        if kind in _NUMBERS:
            return _NUMBERS[kind].unpack_from(self._raw, at)[0]
        if kind == _TEXT:
            return self._sized(at, upto).decode()
        if kind == _OPAQUE:
            return Opaque(self._raw[at], self._sized(at + 1, upto))
        raise UnreadValueError(f"expected a type of JSON, found {kind}")

    def _sized(self, at: int, upto: int) -> bytes:
        """What stands behind a length of up to five bytes, seven bits in each."""
        size = shift = 0
        while True:
            byte = self._raw[at]
            at += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128 or shift > 28:
                break
        if at + size > upto:
            raise UnreadValueError(f"expected a value of JSON inside its {upto} bytes, found one up to {at + size}")
        return self._raw[at : at + size]

    def _container(self, kind: int, at: int, upto: int, depth: int) -> Tree:
        number = _U32 if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else _U16
        width = number.size
        count, size = number.unpack_from(self._raw, at)[0], number.unpack_from(self._raw, at + width)[0]
        is_object = kind <= _LARGE_OBJECT
        entries = at + 2 * width
        values = entries + (count * (width + 2) if is_object else 0)
        if at + size > upto or values + count * (1 + width) > at + size:
            raise UnreadValueError(f"expected {count} values of JSON inside {upto - at} bytes, found {size}")
        found = [self._entry(values + i * (1 + width), number, at, at + size, depth + 1) for i in range(count)]
        if not is_object:
            return found
        keys = [self._key(entries + i * (width + 2), number, at, at + size) for i in range(count)]
        return dict(zip(keys, found, strict=True))

    def _key(self, entry: int, number: struct.Struct, start: int, upto: int) -> str:
        at = start + number.unpack_from(self._raw, entry)[0]
        end = at + _U16.unpack_from(self._raw, entry + number.size)[0]
        if end > upto:
            raise UnreadValueError(f"expected a key of JSON inside {upto} bytes, found one up to {end}")
        return self._raw[at:end].decode()

    def _entry(self, entry: int, number: struct.Struct, start: int, upto: int, depth: int) -> Tree:
        kind = self._raw[entry]
        if kind in (_LITERAL, 0x05, 0x06) or (number is _U32 and kind in (0x07, 0x08)):
            return self.value(kind, entry + 1, upto, depth)
        return self.value(kind, start + number.unpack_from(self._raw, entry + 1)[0], upto, depth)


# --- printing -------------------------------------------------------------------------------------------------------


def printed(tree: Tree) -> str:
    """As the server's SELECT gives it."""
    if isinstance(tree, str):
        return _quoted(tree)
    if isinstance(tree, dict):
        return "{" + ", ".join([f"{_quoted(key)}: {printed(value)}" for key, value in tree.items()]) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join([printed(value) for value in tree]) + "]"
    if isinstance(tree, float):
        return _double(tree)
    if isinstance(tree, Opaque):
        return _opaque(tree)
    return "null" if tree is None else str(tree).lower()


def _quoted(text: str) -> str:
    if _ESCAPED.search(text):
        text = _ESCAPED.sub(lambda found: _ESCAPES.get(found[0]) or f"\\u{ord(found[0]):04x}", text)
    return f'"{text}"'


def _double(number: float) -> str:
    """The shortest digits; a whole number ends in `.0`."""
    if number == 0:
        return "-0.0" if str(number)[0] == "-" else "0.0"
    mantissa, _, power = f"{number!r}e".partition("e")
    sign = "-" if number < 0 else ""
    whole, _, rest = mantissa.lstrip("-").partition(".")
    rest = "" if rest == "0" else rest
    digits = (whole + rest).lstrip("0")
    point = int(power.rstrip("e") or 0) + (len(whole) if whole != "0" else len(digits) - len(rest))
    digits = digits.rstrip("0")
    if not digits.isdigit():
        raise UnreadValueError(f"expected a number of JSON, found {number}")
    if not _PLAIN_FROM <= point <= _PLAIN_UPTO:
        return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"


def _opaque(value: Opaque) -> str:
    reader = _OPAQUES.get(value.type)
    if reader is not None:
        try:
            return reader(value.raw)
        except struct.error as error:
            raise UnreadValueError(f"expected a value of type {value.type} in JSON, found {value.raw.hex()}") from error
    text = base64.b64encode(value.raw).decode()
    lines = [text[at : at + _BASE64_LINE] for at in range(0, len(text), _BASE64_LINE)]
    return f'"base64:type{value.type}:{chr(10).join(lines)}"'


def _decimal(raw: bytes) -> str:
    if len(raw) < 2 or len(raw) != 2 + numbers.decimal_size(raw[0], raw[1]):
        raise UnreadValueError(f"expected a decimal in JSON, found {raw.hex()}")
    return numbers.decimal(raw[0], raw[1])(raw[2:])


def _temporal(text: Callable[[int], str]) -> Callable[[bytes], str]:
    return lambda raw: f'"{text(_I64.unpack(raw)[0])}"'


_OPAQUES: Final[dict[int, Callable[[bytes], str]]] = {
    _DECIMAL: _decimal,
    _DATE: _temporal(temporal.packed_date),
    _TIME: _temporal(temporal.packed_time),
    _DATETIME: _temporal(temporal.packed_moment),
    _TIMESTAMP: _temporal(temporal.packed_moment),
}
