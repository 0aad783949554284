"""Canonical text (docs/values.md) as the numbers that SQLite takes: functions of one value, as in sql/canonical.py."""

from __future__ import annotations

import re
from typing import Any

from replicat.targets.sql.canonical import (
    OUT_OF_RANGE,
    WHOLE,
    UnfitError,
    as_double,
    double_back,
    finite,
    one_or_zero,
    plain,
    whole,
    whole_as_double,
)

_ZEROS_AFTER_POINT = re.compile(r"\A(-?\d+)\.0+\Z", re.ASCII)  # anchored, or long numbers cost their square
_LOOKS_NUMERIC = re.compile(r"\s*[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d+)?\s*\Z", re.ASCII)
_LONGEST_DOUBLE = 400
_INT64 = range(-(1 << 63), 1 << 63)


def int_of_boolean(text: str) -> int:
    """1 or 0."""
    return int(one_or_zero(text))


def int_of(text: str) -> int:
    """A whole number of 64 bits."""
    number = whole(text)
    if not _in_64_bits(number):
        raise UnfitError("the column holds whole numbers of 64 bits", OUT_OF_RANGE)
    return int(number)


def _in_64_bits(number: str) -> bool:
    """Longer ones are not even read: Python refuses thousands of digits."""
    return len(number) <= 20 and int(number) in _INT64


def int_as_float(text: str) -> float:
    """A whole number that a double holds exactly."""
    return float(whole_as_double(text))


def number_of(text: str) -> int | float:
    """As SQLite's NUMERIC affinity has it: whole numbers of 64 bits, else a double that gives all digits back."""
    exact = _ZEROS_AFTER_POINT.sub(r"\1", text)
    if WHOLE.match(exact) and _in_64_bits(exact):
        return int(exact)
    if "e" in text:
        return float_of(text)
    # What an SQLite source has as a double is its shortest text, of up to 17 digits: read back it is that text again.
    near = float(finite(text)) if len(text) <= _LONGEST_DOUBLE else 0.0
    return near if text == plain(repr(near)) else as_double(text)


def float_of(text: str) -> float:
    """A double, infinities too; SQLite has no NaN (it would become NULL)."""
    if text == "NaN":
        raise UnfitError("SQLite has no NaN: it would become NULL", OUT_OF_RANGE)
    return float(text)


def keeps_text(family: str, text: str) -> str:
    """Text for a column with a number's affinity: SQLite would make a number of what looks like one."""
    if _LOOKS_NUMERIC.match(text) and not (
        family != "real" and WHOLE.match(text) and text != "-0" and _in_64_bits(text)
    ):
        raise UnfitError("SQLite would make another number of this text: declare the column TEXT")
    return text


# --- values that carry their own storage class ------------------------------------------------------------------------


def value_of(text: str) -> int | float | str | bytes:
    """The value of a literal of type `any`: 1, 1.0, 'it''s', x'00ff'."""
    try:
        if text[:1] == "'" == text[-1:] and len(text) > 1:
            return text[1:-1].replace("''", "'")
        if text[:2] == "x'":
            return bytes.fromhex(text[2:-1])
        return int(text) if WHOLE.match(text) and _in_64_bits(text) else float(text)
    except ValueError:
        raise UnfitError("it is no literal of a value of any type") from None


def literal_for(family: str, text: str) -> int | float | str | bytes:
    """The same for a column with an affinity. Refused where SQLite would make another class of it."""
    value = value_of(text)
    numeric = family in ("integer", "numeric")
    if isinstance(value, str) and family != "text":
        if _LOOKS_NUMERIC.match(value):
            raise UnfitError("SQLite would make a number of this text: declare the column without a type")
    elif isinstance(value, int) and not numeric:
        raise UnfitError(f"SQLite would make {family} of this integer: declare the column without a type")
    elif isinstance(value, float) and (family == "text" or (numeric and value.is_integer())):
        raise UnfitError("SQLite would make another class of this real: declare the column without a type")
    return value


def literal(value: Any) -> str:
    """Inverse of `value_of`."""
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        made = double_back(value)
        return made + ".0" if made.lstrip("-").isdigit() else made
    return str(value)
