"""Floating-point numbers as canonical text (docs/values.md): the shortest that reads back as the same number."""

from __future__ import annotations

import struct
from typing import Final

_EXPONENT_FROM: Final = 15
"""Digits before the point from which on a double is written with an exponent."""
_SINGLE_FROM: Final = 6
_LEAST_NORMAL: Final = 2.0**-126  # smaller ones have fewer digits
_NAMES: Final = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
_SINGLE = struct.Struct("<f")


def double_text(value: float) -> str:
    """The canonical text of a double."""
    return _canonical(repr(value), _EXPONENT_FROM)


def real_text(value: float) -> str:
    """The canonical text of a single float, given as the double that it is."""
    for digits in range(_SINGLE_FROM if abs(value) >= _LEAST_NORMAL else 1, 10):
        text = format(value, f".{digits}g")
        try:
            if _SINGLE.unpack(_SINGLE.pack(float(text)))[0] == value:
                break
        except OverflowError:
            continue  # rounded up, beyond the largest one
    # By repr() again, so that both are laid out by one rule.
    return _canonical(repr(float(text)), _SINGLE_FROM)


def _canonical(made: str, exponent_from: int) -> str:
    """`repr()` of a number; whole parts of more digits than that are written with an exponent."""
    whole, point, rest = made.partition(".")
    digits = whole.lstrip("-")
    if "e" in made or not point:
        return _NAMES.get(made, made)
    if len(digits) <= exponent_from:
        return whole if rest == "0" else made
    sign = whole[: len(whole) - len(digits)]
    tail = (digits[1:] + rest).rstrip("0")
    return f"{sign}{digits[0]}{'.' if tail else ''}{tail}e+{len(digits) - 1:02d}"
