"""Canonical text (docs/values.md) to what a target takes whose types are others, and back. Pure functions of one value.

Rule: each gives a value that means the same, or raises UnfitError with the reason; table, column and key are told by
the caller. `..._back` functions are inverse: what the target gave, as canonical text. What somebody else wrote there,
and no value of the logical type became, they give as it is, so that a comparison sees it.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from datetime import date as calendar
from decimal import Decimal
from typing import Any

from trails.controlflow import ControlFlowError

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?\Z", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d+))?\Z", re.ASCII)
_TIME = re.compile(r"-?(\d{2,3}):[0-5]\d:[0-5]\d(?:\.(\d+))?\Z", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_SRID = 0x20000000
_MOST_DIGITS = 15  # what a double gives back of any decimal

WHOLE = re.compile(r"-?(?:0|[1-9]\d*)\Z", re.ASCII)

OUT_OF_RANGE = "22003"
BAD_MOMENT = "22008"
BAD_CAST = "22018"
TOO_LONG = "22001"
NO_VALUES = ValueError, ArithmeticError
"""What Python's own readers of numbers, dates and bytes raise where a text is none."""


class UnfitError(ControlFlowError):
    """The column cannot hold this value; `sqlstate` for REPERROR."""

    def __init__(self, reason: str, sqlstate: str = BAD_CAST) -> None:
        super().__init__(reason)
        self.sqlstate = sqlstate


# --- numbers --------------------------------------------------------------------------------------------------------


def finite(text: str) -> str:
    """A decimal as it is; NaN and infinities are refused."""
    if text[-1:].isdigit():
        return text
    raise UnfitError(f"{text} is no number to this column", OUT_OF_RANGE)


def float_text(text: str) -> str:
    """A float's shortest text; NaN and infinities are refused."""
    return finite(text)


def single_text(text: str) -> str:
    """A double's text, if a single float holds the same number."""
    number = float(finite(text))
    try:
        same = struct.unpack("<f", struct.pack("<f", number))[0] == number
    except OverflowError:
        same = False
    if not same:
        raise UnfitError("a FLOAT would change this number", OUT_OF_RANGE)
    return text


def real_text(text: str) -> str:
    """A real as the very number that a single float is: read by its shortest text, the largest one would not fit."""
    try:
        return repr(struct.unpack("<f", struct.pack("<f", float(finite(text))))[0])
    except OverflowError:
        raise UnfitError("too large for a FLOAT", OUT_OF_RANGE) from None


def finite_plain(text: str) -> str:
    """A float's shortest text without an exponent."""
    return format(Decimal(finite(text)), "f")


def whole(text: str) -> str:
    """A whole number, however it is written; a fraction other than zero is refused."""
    if WHOLE.match(text):
        return text
    number = Decimal(finite(text))
    if number != number.to_integral_value():
        raise UnfitError("the column takes whole numbers only", OUT_OF_RANGE)
    return format(number.to_integral_value(), "f").replace("-0", "0") if not number else format(number, ".0f")


def whole_text(text: str) -> str:
    """Text that is exactly what a whole number looks like."""
    if not WHOLE.match(text) or text == "-0":
        raise UnfitError("a number column would change this text")
    return text


def number_text(text: str) -> str:
    """Text that is exactly what a decimal number looks like."""
    is_minus_zero = text[:1] == "-" and not text.strip("-0.")
    if is_minus_zero or not _NUMBER.match(text) or not WHOLE.match(text.partition(".")[0]):
        raise UnfitError("a number column would change this text")
    return text


def whole_as_double(text: str) -> str:
    """A whole number that a double holds exactly."""
    if int(float(text)) != int(text):
        raise UnfitError("a floating-point column would change this number", OUT_OF_RANGE)
    return text


def decimal_as_double(text: str) -> str:
    """A decimal whose digits a double gives back."""
    as_double(text)
    return text


def as_double(text: str) -> float:
    """A double that gives all digits back."""
    number = Decimal(finite(text))
    near = float(number)
    if math.isinf(near) or Decimal(repr(near)) != number or len(number.normalize().as_tuple().digits) > _MOST_DIGITS:
        raise UnfitError(f"a floating-point column keeps {_MOST_DIGITS} digits, this number needs more", OUT_OF_RANGE)
    return near


def has_idle_zeros(text: str) -> bool:
    """Whether a decimal's text shows a scale that a plain number does not keep, or a zero's sign."""
    return ("." in text and "e" not in text and text.endswith("0")) or text == "-0"


def is_negative_zero(text: str) -> bool:
    """Which targets keep as zero."""
    return text == "-0"


def year(text: str) -> str:
    """A year as YEAR takes it without guessing a century."""
    if text == "0":
        return "0000"
    if not ("1901" <= text <= "2155" and len(text) == 4):
        raise UnfitError("YEAR holds 0 and 1901 to 2155", OUT_OF_RANGE)
    return text


def one_or_zero(text: str) -> str:
    """A boolean as a number's text."""
    if text not in ("true", "false"):
        raise UnfitError("neither true nor false")
    return "1" if text == "true" else "0"


def money(text: str) -> str:
    """`-$1,234.50` as a number."""
    number = text.replace("$", "").replace(",", "")
    if not _NUMBER.match(number):
        raise UnfitError("this is no amount of money")
    return number


def money_back(value: Any) -> str:
    """A number as the C locale prints money."""
    number = Decimal(str(value))
    digits = 2 if number * 100 == int(number * 100) else -int(number.as_tuple().exponent)
    return f"{'-' if number < 0 else ''}${abs(number):,.{digits}f}"


def plain(value: Any) -> str:
    """A number without exponent and without idle zeros."""
    text = format(Decimal(str(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


# --- numbers back ---------------------------------------------------------------------------------------------------


def boolean_back(value: Any) -> str:
    """0 as false, 1 as true."""
    return {"0": "false", "1": "true"}.get(whole_back(value)) or str(value)


def number_back(value: Any) -> str:
    """An int, or a float's digits without exponent."""
    return str(value) if isinstance(value, int) else plain(repr(value)) if isinstance(value, float) else str(value)


def whole_back(value: Any) -> str:
    """A whole number out of a floating-point column."""
    try:
        number = float(value)
    except ValueError:
        return str(value)
    return str(int(number)) if number.is_integer() else str(value)


def double_back(value: Any) -> str:
    """A double as docs/values.md has it."""
    return _float_text(float(value), repr(float(value)), 15)


def real_back(value: Any) -> str:
    """A single float, given as the double that it is."""
    number = float(value)
    for digits in range(1, 10):
        text = format(number, f".{digits}g")
        if _single(float(text)) == _single(number):
            break
    return _float_text(number, text, 6)


def _single(number: float) -> bytes:
    """As a single float; what is too large is infinite."""
    try:
        return struct.pack("<f", number)
    except OverflowError:
        return struct.pack("<f", math.inf)


def real_of_double_back(value: Any) -> str:
    """A real that was stored as the double of its shortest text."""
    return _float_text(float(value), repr(float(value)), 6)


def _float_text(number: float, shortest: str, plain_below: int) -> str:
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    parts = Decimal(shortest).normalize()
    sign, digits, _ = parts.as_tuple()
    power = parts.adjusted() if parts else 0
    if -4 <= power < plain_below:
        return format(parts, "f") if parts else ("-0" if sign else "0")
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


# --- text -----------------------------------------------------------------------------------------------------------


def unpadded(_size: int, text: str) -> str:
    """Text for a CHAR column, which gives no blanks back at the end."""
    if text.endswith(" "):
        raise UnfitError("CHAR drops blanks at the end: make it VARCHAR", TOO_LONG)
    return text


def strip_padding(text: str) -> str:
    """char(n) without its padding."""
    return text.rstrip(" ")


def pad(size: int, value: Any) -> str:
    """char(n) with its padding."""
    return str(value).ljust(size)


def member(members: Sequence[str], text: str) -> str:
    """One of an ENUM's values, letter by letter: the server would also take an index, or another case."""
    if text not in members:
        raise UnfitError(f"not one of the column's values ({', '.join(members)})")
    return text


def members(known: Sequence[str], text: str) -> str:
    """A SET's values, in the column's order."""
    parts = text.split(",") if text else []
    if parts != [name for name in known if name in parts]:
        raise UnfitError(f"not a subset, in order, of the column's values ({', '.join(known)})")
    return text


def uuid_text(text: str) -> str:
    """Text that is exactly what a UUID looks like."""
    if not _UUID.match(text):
        raise UnfitError("not the text of a UUID")
    return text


def inet(family: str, text: str) -> str:
    """An address; INET6 would change the look of one of version 4."""
    if family == "inet6" and ":" not in text:
        raise UnfitError("INET6 would change this address")
    return text


# --- bytes and bits -------------------------------------------------------------------------------------------------


def bytes_of(text: str) -> bytes:
    r"""`\x...` as bytes."""
    return bytes.fromhex(text[2:])


def hex_of_length(size: int, text: str) -> str:
    r"""`\x...` of exactly `size` bytes: BINARY would add zeros."""
    if len(text) != 2 + 2 * size:
        raise UnfitError(f"BINARY({size}) holds exactly {size} bytes: make it VARBINARY", TOO_LONG)
    return text


def utf8_of(text: str) -> bytes:
    """Text as bytes."""
    return text.encode()


def utf8_of_length(size: int, text: str) -> str:
    """Text of exactly `size` bytes."""
    if len(text.encode()) != size:
        raise UnfitError(f"BINARY({size}) holds exactly {size} bytes: make it VARBINARY", TOO_LONG)
    return text


def uuid_bytes(size: int, text: str) -> str:
    """A UUID as hexadecimal digits for BINARY(16)."""
    if size != 16:
        raise UnfitError("a UUID has 16 bytes: make it BINARY(16) or CHAR(36)", TOO_LONG)
    return text.replace("-", "")


def uuid_of_bytes(value: Any) -> str:
    """16 bytes as a UUID."""
    text = bytes(value).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def bytes_back(value: Any) -> Any:
    """Bytes are a trail's own value."""
    return bytes(value)


def hex_back(value: Any) -> Any:
    """Bytes as they are."""
    return value if isinstance(value, str) else bytes(value)


def utf8_back(value: Any) -> str:
    """Bytes as text."""
    return value if isinstance(value, str) else bytes(value).decode()


def geometry(text: str) -> str:
    """EWKB as hexadecimal digits of the servers' own form: the reference system's number, then plain WKB."""
    kind = int.from_bytes(bytes.fromhex(text[2:10]), "little") if text[:2] == "01" else 0
    if kind & ~_SRID not in range(1, 8):
        raise UnfitError("the column holds plain geometries of two dimensions")
    if kind & _SRID:
        return text[10:18] + "01" + (kind & ~_SRID).to_bytes(4, "little").hex() + text[18:]
    return "00000000" + text


def geometry_back(value: Any) -> str:
    """The servers' own form as EWKB."""
    raw = bytes(value)
    if raw[:4] == bytes(4):
        return raw[4:].hex().upper()
    kind = int.from_bytes(raw[5:9], "little") | _SRID
    return (raw[4:5] + kind.to_bytes(4, "little") + raw[:4] + raw[9:]).hex().upper()


def bits(size: int, text: str) -> str:
    """A bit string of exactly the column's width: BIT would add zeros."""
    if len(text) != size:
        raise UnfitError(f"BIT({size}) holds exactly {size} bits: make it VARCHAR", TOO_LONG)
    return text


def bits_back(size: int, value: Any) -> str:
    """BIT(n), read as a number, as text."""
    return format(int(value), f"0{size}b")


# --- dates and times ------------------------------------------------------------------------------------------------


def date(text: str) -> str:
    """A date of the years up to 9999; also a zero, a partial and an impossible one, where the source has such."""
    if not _DATE.match(text):
        raise UnfitError("the column holds dates of the years 1 to 9999", BAD_MOMENT)
    return text


def date_text(text: str) -> str:
    """Text that is exactly what a date of the calendar looks like."""
    _check_day(date(text))
    return text


def moment_text(digits: int, text: str) -> str:
    """Text that is exactly what a timestamp looks like, of a date of the calendar."""
    _check_day(moment(digits, False, text)[:10])
    return text


def _check_day(text: str) -> None:
    try:
        calendar.fromisoformat(text)
    except ValueError:
        raise UnfitError("there is no such day", BAD_MOMENT) from None


def moment(digits: int, zone: bool, text: str) -> str:
    """A timestamp of the years up to 9999, in UTC where it has an offset; `digits`: of a second. As to date()."""
    if zone:
        if not text.endswith("+00"):
            raise UnfitError("the column holds moments of the years 1 to 9999", BAD_MOMENT)
        text = text[:-3]
    found = _MOMENT.match(text)
    if found is None:
        raise UnfitError("the column holds moments of the years 1 to 9999", BAD_MOMENT)
    _check_fraction(digits, found[2])
    return text


def unix_moment(digits: int, zone: bool, text: str) -> str:
    """As moment(), for TIMESTAMP: not before 1970, and the server knows up to when."""
    plain = moment(digits, zone, text)
    if plain < "1970-01-01 00:00:01" and plain.strip("0-:. "):
        raise UnfitError("TIMESTAMP holds moments since 1970: make it DATETIME", BAD_MOMENT)
    return plain


def time_of_day(digits: int, text: str) -> str:
    """A time, of up to 838 hours before or after midnight; `digits`: of a second that the column keeps."""
    found = _TIME.match(text)
    if found is None or int(found[1]) > 838:
        raise UnfitError("not a time of at most 838 hours", BAD_MOMENT)
    _check_fraction(digits, found[2])
    return text


def _check_fraction(digits: int, fraction: str | None) -> None:
    if fraction is not None and len(fraction.rstrip("0")) > digits:
        raise UnfitError(f"the column keeps {digits} digits of a second, this value has more", BAD_MOMENT)


def fraction_back(value: Any) -> str:
    """Without zeros at the end of a fraction."""
    text = str(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def moment_back(value: Any) -> str:
    """DATETIME as a timestamp."""
    return fraction_back(value)


def moment_zone_back(value: Any) -> str:
    """DATETIME as a timestamptz."""
    return fraction_back(value) + "+00"


def date_of_moment(value: Any) -> str:
    """DATETIME at midnight as a date."""
    text = str(value)
    return moment_back(value) if text[10:].strip(" 0:.") else text[:10]
