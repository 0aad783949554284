"""Canonical text (docs/values.md) to what Spark casts, and what Spark prints back to canonical text. Pure.

what Spark can't take exactly              then
a decimal beyond DECIMAL(38, digits)       the cast fails that row, with the value
NaN as a decimal, infinity as a date       the cast fails that row, with the value
digits of a second beyond the sixth        the cast fails that row, with the value
text that is no UTF-8                      fails the row (expressions/evaluate.py)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from trails.record import MISSING, Value

WIDE = re.compile(r"DECIMAL\(38,(\d+)\)\Z")
_TOO_FINE = re.compile(r"\.\d{6}\d*[1-9]")
_MICROSECONDS = 26  # letters of a time with six digits of a second


def to_spark(type_: str) -> Callable[[Value], str | None] | None:
    """A function from a value to the text that is cast to this Spark type; None if it is that text already."""
    if found := WIDE.match(type_):
        return partial(_wide, int(found[1]))
    return {"BINARY": _bytes, "DATE": _date, "TIMESTAMP": _date, "TIMESTAMP_NTZ": _date}.get(type_)


def from_spark(type_: str) -> Callable[[str], str | bytes] | None:
    """A function from a result's text, of this logical type, to canonical text; None if it is that already."""
    return _RESULTS.get(type_)


def _plain(value: Value) -> str | None:
    if value is None or value is MISSING:
        return None
    return value if isinstance(value, str) else _shown(value)


def _shown(value: Value) -> str:
    assert isinstance(value, bytes)
    return "\\x" + value.hex()


def _bytes(value: Value) -> str | None:
    if value is None or value is MISSING:
        return None
    return value.hex() if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape").hex()


def _wide(scale: int, value: Value) -> str | None:
    text = _plain(value)
    if text is None:
        return None
    whole, _, fraction = text.partition(".")
    if len(fraction) > scale and len(fraction.rstrip("0")) > scale:
        return f"{text} (more than {scale} digits behind the point, which is what there is room for here)"
    if len(whole) > 38 - scale and len(whole.lstrip("-0")) > 38 - scale:
        return f"{text} (more than {38 - scale} digits before the point, which is what there is room for here)"
    return text


def _date(value: Value) -> str | None:
    """Years before Christ count from 0 down."""
    text = _plain(value)
    if text is not None and len(text) > _MICROSECONDS and _TOO_FINE.search(text):
        return f"{text} (more than six digits of a second)"
    if text is None or text[-3:] != " BC":
        return text
    year, _, rest = text[:-3].partition("-")
    if not (year.isascii() and year.isdigit()):
        return text  # the cast fails that row
    number = 1 - int(year)
    return f"{'-' if number < 0 else ''}{abs(number):04d}-{rest}"


def _decimal(text: str) -> str:
    """Without zeros at the end of the fraction: how many Spark prints depends on how it came to the number."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _double(text: str) -> str:
    return _float_text(repr(float(text)))


def _real(text: str) -> str:
    import numpy as np

    return _float_text(str(np.float32(text)), plain_below=6)


def _float_text(text: str, plain_below: int = 15) -> str:
    """The shortest digits as docs/values.md has them: plain from 1e-4 up to `plain_below` digits before the point."""
    if text[-1] in "nfN":
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[text.lower()]
    sign, text = ("-", text[1:]) if text[0] == "-" else ("", text)
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))  # digits before the point
    digits = digits.rstrip("0")
    if not digits:
        return f"{sign}0"
    if -4 < point <= plain_below:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        tail = digits[point:]
        return sign + digits[:point].ljust(point, "0") + (f".{tail}" if tail else "")
    power = point - 1
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'-' if power < 0 else '+'}{abs(power):02d}"


def _moment(text: str, zone: str = "") -> str:
    first = text[0]
    if first == "+":
        return text[1:] + zone
    if first != "-" and not text.startswith("0000"):
        return text + zone
    year, _, rest = text.lstrip("-").partition("-")
    number = 1 + int(year) if first == "-" else 1
    return f"{number:04d}-{rest}{zone} BC"


_RESULTS: dict[str, Callable[[str], str | bytes]] = {
    "decimal": _decimal,
    "double": _double,
    "real": _real,
    "bytes": bytes.fromhex,
    "date": _moment,
    "timestamp": _moment,
    "timestamptz": lambda text: _moment(text, "+00"),
}
