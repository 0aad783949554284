"""GoldenGate's @DATE and @DATEDIFF of one row: texts to moments and back, by formats of parts.

A format is a run of parts of fixed width with any signs between them, so an input's parts are cut out by place. A
single part takes the whole value. What a MAP of a Replicat gives, this gives (docs/functions.md); a value that does not
fit its format raises ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

_PARTS = re.compile(r"YYYY|YY|CC|MMM|MM|DDD|DD|DOW0|DOW1|DOWA|HH|MI|SS|FFFFFF|JUL|JTSGMT|JTS|CDATE|[A-Z]+|[^A-Z]+")
_WIDTH: Final = {
    "YYYY": 4, "YY": 2, "CC": 2, "MMM": 3, "MM": 2, "DDD": 3, "DD": 2, "HH": 2, "MI": 2, "SS": 2, "FFFFFF": 6,
}  # fmt: skip
_WHOLE: Final = ("JUL", "JTS", "JTSGMT", "CDATE")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_JULIAN_US: Final = 210_866_760_000_000_000
_JULIAN_DAYS: Final = 2_440_588
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_INTEGER = re.compile(r"\s*[+-]?\d{1,20}\s*", re.ASCII)
_MOMENT = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?(?:\+00|Z)?\s*", re.ASCII
)

_OUT: Final[dict[str, Callable[[datetime], str]]] = {
    "YYYY": lambda at: f"{at.year:04d}", "YY": lambda at: f"{at.year % 100:02d}",
    "CC": lambda at: f"{at.year // 100:02d}", "MMM": lambda at: _MONTHS[at.month - 1],
    "MM": lambda at: f"{at.month:02d}", "DDD": lambda at: f"{at.timetuple().tm_yday:03d}",
    "DD": lambda at: f"{at.day:02d}", "DOW0": lambda at: f"{at.isoweekday() % 7}",
    "DOW1": lambda at: f"{at.isoweekday() % 7 + 1}", "DOWA": lambda at: _DAYS[at.isoweekday() % 7],
    "HH": lambda at: f"{at.hour:02d}", "MI": lambda at: f"{at.minute:02d}", "SS": lambda at: f"{at.second:02d}",
    "FFFFFF": lambda at: f"{at.microsecond:06d}", "JTS": lambda at: f"{_micros(at) + _JULIAN_US}",
    "JTSGMT": lambda at: f"{_micros(at) + _JULIAN_US}", "CDATE": lambda at: f"{_micros(at) // 1_000_000}",
    "JUL": lambda at: f"{(at - _EPOCH).days + _JULIAN_DAYS}",
}  # fmt: skip
OUTPUT: Final[Collection[str]] = tuple(_OUT)
INPUT: Final[Collection[str]] = (*_WIDTH, *_WHOLE)


def split(form: str, known: Collection[str]) -> list[str]:
    """The parts and signs of a format. Raises ValueError: it has none, or one that is not known."""
    found = _PARTS.findall(form.upper())
    if not found or any(piece[0].isalpha() and piece not in known for piece in found):
        raise ValueError(form)
    if known is INPUT and len(found) > 1 and any(piece in _WHOLE for piece in found):
        raise ValueError(form)
    return found


def made(output: Sequence[str], inputs: Sequence[tuple[Sequence[str], str]]) -> str:
    """@DATE: of texts by their formats, one text by `output`."""
    parts: dict[str, str] = {}
    for form, text in inputs:
        parts |= _cut(form, text)
    at = _moment(parts)
    return "".join(_OUT[piece](at) if piece in _OUT else piece for piece in output)


def difference(unit: str, first: str, second: str) -> int:
    """@DATEDIFF: days (DD) or seconds (SS) from the first to the second."""
    one, other = _read(first), _read(second)
    if unit == "DD":
        return (other.date() - one.date()).days
    micros = _micros(other) - _micros(one)
    return micros // 1_000_000 if micros >= 0 else -(-micros // 1_000_000)


def _read(text: str) -> datetime:
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    *numbers, fraction = found.groups()
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    return datetime(year, month, day, hour, minute, second, int((fraction or "0").ljust(6, "0")[:6]), UTC)


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def _cut(form: Sequence[str], text: str) -> dict[str, str]:
    if len(form) == 1:
        return {form[0]: text}
    found, at = {}, 0
    for piece in form:
        width = _WIDTH.get(piece, len(piece))
        if piece in _WIDTH:
            found[piece] = text[at : at + width]
        at += width
    return found


def _moment(parts: dict[str, str]) -> datetime:
    """Of cut out parts; what is not there counts as the beginning of 1970. No fraction counts as 0."""

    def number(name: str, default: int) -> int:
        return _integer(parts[name]) if name in parts else default

    try:
        for name, text in parts.items():
            if name in _WHOLE:
                return _EPOCH + _since(name, _integer(text))
        year = number("YYYY", 1970)
        if "YY" in parts:
            short = number("YY", 0)
            year = (number("CC", 0) * 100 if "CC" in parts else 2000 if short < 50 else 1900) + short
        month = _MONTHS.index(parts["MMM"].upper()) + 1 if "MMM" in parts else number("MM", 1)
        month, day = (1, 1) if "DDD" in parts else (month, number("DD", 1))
        micros = 0
        if "FFFFFF" in parts:  # what stands behind the digits is a zone
            digits = re.match(r"[0-9]*", parts["FFFFFF"])
            micros = int((digits[0] if digits else "").ljust(6, "0"))
        at = datetime(year, month, day, number("HH", 0), number("MI", 0), number("SS", 0), micros, UTC)
        return at + timedelta(days=number("DDD", 1) - 1)
    except OverflowError as error:
        raise ValueError(str(error)) from None


def _since(name: str, count: int) -> timedelta:
    if name == "JUL":
        return timedelta(days=count - _JULIAN_DAYS)
    return timedelta(seconds=count) if name == "CDATE" else timedelta(microseconds=count - _JULIAN_US)


def _integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)
