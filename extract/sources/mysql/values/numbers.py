"""Whole numbers, decimals, bits, and the members of ENUM and SET.

Strategy: most whole numbers of most tables are small, and formatting one costs more than looking it up. So the texts of
all numbers of one and two bytes stand in lists (a negative number counts from the end, as Python's indexes do).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from extract.sources.mysql.values.unread import UnreadValueError

SMALL: Final = 4096
TEXTS: Final = tuple(map(str, range(SMALL)))
"""Of the numbers below SMALL."""
YEARS: Final = ("0", *map(str, range(1901, 2156)))
"""YEAR: zero, or a number of years since 1900."""
_MOST_SETS: Final = 1024
_GROUP: Final = 9
_GROUP_BYTES: Final = 4
_REST_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""So many bytes hold so many digits beside the groups of nine."""
_MOST_DIGITS: Final = 65

Text = Callable[[bytes], str]


@cache
def signed(bits: int) -> tuple[str, ...]:
    """The texts of all signed numbers of so many bits."""
    half = 1 << bits - 1
    return tuple(map(str, (*range(half), *range(-half, 0))))


@cache
def unsigned(bits: int) -> tuple[str, ...]:
    """The texts of all numbers of so many bits."""
    return tuple(map(str, range(1 << bits)))


def decimal_size(precision: int, scale: int) -> int:
    """How many bytes a DECIMAL has. Raises UnreadValueError where there is no such DECIMAL."""
    if not (0 < precision <= _MOST_DIGITS and scale <= precision):
        raise UnreadValueError(f"expected a DECIMAL of at most {_MOST_DIGITS} digits, found ({precision},{scale})")
    return sum(groups * _GROUP_BYTES + _REST_BYTES[rest] for groups, rest in _parts(precision, scale))


def _parts(precision: int, scale: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(groups of nine digits, digits beside them) before the point and behind it."""
    return divmod(precision - scale, _GROUP), divmod(scale, _GROUP)


@cache
def decimal(precision: int, scale: int) -> Text:
    """Reads a DECIMAL of this precision and scale.

    The whole number's incomplete group comes first, the fraction's last. All bits of a negative number are turned over,
    and then the first bit of any.
    """
    (groups, rest), (tail_groups, tail) = _parts(precision, scale)
    bits = 8 * decimal_size(precision, scale)
    top, everything = 1 << bits - 1, (1 << bits) - 1
    widths = [(rest, _REST_BYTES[rest])] if rest else []
    widths += [(_GROUP, _GROUP_BYTES)] * (groups + tail_groups)
    widths += [(tail, _REST_BYTES[tail])] if tail else []
    fields, shift = [], bits
    for digits, size in widths:
        shift -= 8 * size
        fields.append((shift, (1 << 8 * size) - 1, 10**digits))
    ten = 10**scale

    def text(raw: bytes) -> str:
        number = int.from_bytes(raw, "big") ^ top
        sign = ""
        if number & top:
            number ^= everything
            sign = "-"
        value = 0
        for shift, mask, ten_power in fields:
            group = number >> shift & mask
            if group >= ten_power:
                raise UnreadValueError(f"expected groups of decimal digits, found {raw.hex()}")
            value = value * ten_power + group
        if not scale:
            return f"{sign}{value}"
        whole, fraction = divmod(value, ten)
        return f"{sign}{whole}.{fraction:0{scale}d}"

    return text


@cache
def bits(width: int) -> Text:
    """Reads a BIT column of this width."""

    def text(raw: bytes) -> str:
        made = f"{int.from_bytes(raw, 'big'):0{width}b}"
        if len(made) > width:
            raise UnreadValueError(f"expected {width} bits, found {len(made)}")
        return made

    return text


class Sets(dict[int, str]):
    """A SET's number to its labels, with commas between them."""

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        self._labels = labels

    def __missing__(self, number: int) -> str:
        if number >> len(self._labels):
            raise UnreadValueError(f"expected some of {len(self._labels)} labels, found the number {number}")
        if len(self) >= _MOST_SETS:
            self.clear()
        made = self[number] = ",".join(label for i, label in enumerate(self._labels) if number >> i & 1)
        return made
