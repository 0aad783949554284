"""Values compared by logical type, not by text: `1.50` is `1.5`, and `10` is above `9`.

Rule: pure, over canonical text (docs/values.md). A text that is no value of its type is compared as text.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any

from trails.record import Value

NUMBERS = frozenset(("smallint", "integer", "bigint", "decimal", "money"))
FLOATS = frozenset(("real", "double"))
TIMES = frozenset(("date", "time", "timetz", "timestamp", "timestamptz"))
_MOMENT = re.compile(
    r"(?:(?P<year>\d+)-(?P<month>\d\d)-(?P<day>\d\d))?[ T]?(?:(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:\.(?P<f>\d+))?)?"
    r"(?P<zone>Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?(?P<bc> BC)?\Z"
)


def same(logical: str, one: Value, other: Value) -> bool:
    """Whether two values are equal; NULL is equal to NULL."""
    if one is None or other is None:
        return one is other
    if one == other:
        return True
    return sort_key(logical, one) == sort_key(logical, other)


def below(logical: str, one: Value, other: Value) -> bool:
    """Whether `one` comes before `other`; NULL comes before everything."""
    if one is None or other is None:
        return one is None and other is not None
    return bool(sort_key(logical, one) < sort_key(logical, other))


def number(logical: str, value: Value) -> Decimal | None:
    """The value as a finite number, or None if it is none."""
    if not isinstance(value, str) or logical not in NUMBERS | FLOATS:
        return None
    found = _decimal(value)
    return found if found is not None and found.is_finite() else None


def sort_key(logical: str, value: Value) -> tuple[Any, ...]:
    """What orders values of one type among each other; those that are none of it come after, as text."""
    if isinstance(value, bytes):
        return (0, value)
    text = str(value)
    if logical == "bytes" and text.startswith("\\x"):
        return (0, bytes.fromhex(text[2:]))
    made = _typed(logical, text)
    return (1, text) if made is None else (0, made)


def _typed(logical: str, text: str) -> Any:
    if logical in NUMBERS:
        return _ranked(_decimal(text))
    if logical in FLOATS:
        try:
            return _ranked(Decimal(float(text)))
        except ValueError:
            return None
    if logical in TIMES:
        return _moment(text)
    if logical == "boolean":
        return {"true": 1, "t": 1, "1": 1, "false": 0, "f": 0, "0": 0}.get(text)
    if logical == "char":
        return text.rstrip(" ")
    if logical == "uuid":
        return text.lower().replace("-", "")
    if logical == "json":
        return _json(text)
    return text


def _decimal(text: str) -> Decimal | None:
    plain = text.replace("$", "").replace(",", "") if "$" in text else text
    try:
        return Decimal(plain)
    except InvalidOperation:
        return None


def _ranked(value: Decimal | None) -> Any:
    """NaN is above all numbers, and equal to itself, as databases have it."""
    if value is None:
        return None
    return (1, Decimal(0)) if value.is_nan() else (0, value)


def _moment(text: str) -> tuple[Any, ...] | None:
    if text in ("infinity", "-infinity"):
        return (1 if text == "infinity" else -1,)
    match = _MOMENT.match(text)
    if match is None:
        return None
    year = int(match["year"] or 0)
    year = 1 - year if match["bc"] else year
    days = _days(year, int(match["month"] or 1), int(match["day"] or 1))
    seconds = int(match["h"] or 0) * 3600 + int(match["m"] or 0) * 60 + int(match["s"] or 0) - _offset(match["zone"])
    return (0, days * 86_400 + seconds, (match["f"] or "").rstrip("0"))


def _days(year: int, month: int, day: int) -> int:
    """Days since some day long ago, by the calendar that goes on in both directions."""
    year, month = (year - 1, month + 9) if month < 3 else (year, month - 3)
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day


def _offset(zone: str | None) -> int:
    if not zone or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:6])
    return -seconds if zone[0] == "-" else seconds


def _json(text: str) -> Any:
    """Order of keys and blanks don't count."""
    try:
        return json.dumps(json.loads(text, parse_float=Decimal), sort_keys=True, default=lambda n: f"{n.normalize():f}")
    except (ValueError, RecursionError):
        return None
