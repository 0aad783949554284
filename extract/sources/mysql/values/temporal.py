"""Dates and times: as the binary log has them, to canonical text.

Rule: a value is given as the server prints it, zeros at the end of a fraction left out. Zero and partial dates
(`0000-00-00`, `2024-00-15`) and days that no calendar has (`2024-02-31`) are values of these servers, so they stay what
they are; what a target does with them is its own rule. A TIMESTAMP is a moment: UTC, with `+00`.

Strategy: the moments of neighbouring rows are alike, so texts are kept: of whole moments by their bytes, and below
these of each minute. All tables of texts are emptied when they are full.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from extract.sources.mysql.values.unread import UnreadValueError

_MOST: Final = 4096
_TWO: Final = tuple(f"{n:02d}" for n in range(100))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATETIME_ZERO: Final = 0x8000000000
_TIME_ZERO: Final = 0x800000
_SCALES: Final = {1: 10_000, 2: 100, 3: 1}
"""What a fraction of so many bytes counts, in microseconds."""

Text = Callable[[bytes], str]


class _ByNumber(dict[int, str]):
    """Texts of numbers, made when they are first asked for."""

    def __init__(self, make: Callable[[int], str]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, number: int) -> str:
        if len(self) >= _MOST:
            self.clear()
        made = self[number] = self._make(number)
        return made


class _ByBytes(dict[bytes, str]):
    """The same by a value's bytes."""

    def __init__(self, make: Text) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, raw: bytes) -> str:
        if len(self) >= _MOST:
            self.clear()
        made = self[raw] = self._make(raw)
        return made


def fraction_size(digits: int) -> int:
    """How many bytes so many digits of a second have. Raises UnreadValueError where they are too many."""
    if digits > 6:
        raise UnreadValueError(f"expected at most 6 digits of a second, found {digits}")
    return (digits + 1) // 2


def fraction(raw: bytes) -> str:
    """A fraction of a second with its point; nothing for zero."""
    micros = int.from_bytes(raw, "big") * _SCALES[len(raw)]
    if micros > 999_999:
        raise UnreadValueError(f"expected a fraction of a second, found {raw.hex()}")
    return f".{micros:06d}".rstrip("0") if micros else ""


# --- dates ----------------------------------------------------------------------------------------------------------


def _date(number: int) -> str:
    year, month, day = number >> 9, number >> 5 & 15, number & 31
    return _day(year, month, day)


def _day(year: int, month: int, day: int) -> str:
    if year > 9999 or month > 12:
        raise UnreadValueError(f"expected a date of the years 0 to 9999, found year {year}, month {month}, day {day}")
    return f"{year:04d}-{_TWO[month]}-{_TWO[day]}"


DATES: Final = _ByNumber(_date)
"""By the three bytes of a DATE as a number."""


# --- TIMESTAMP ------------------------------------------------------------------------------------------------------


def _unix_minute(minute: int) -> str:
    return f"{_EPOCH + timedelta(minutes=minute):%Y-%m-%d %H:%M:}"


_UNIX_MINUTES: Final = _ByNumber(_unix_minute)


def unix(seconds: int) -> str:
    """Seconds since 1970 as a moment without its offset; zero stands for the zero moment."""
    if not seconds:
        return "0000-00-00 00:00:00"
    minute, second = divmod(seconds, 60)
    return _UNIX_MINUTES[minute] + _TWO[second]


MOMENTS: Final = _ByBytes(lambda raw: unix(int.from_bytes(raw, "big")))
"""By the four bytes of a TIMESTAMP's seconds."""


# --- DATETIME -------------------------------------------------------------------------------------------------------


def _minute(packed: int) -> str:
    days, hours = packed >> 11, packed >> 6 & 31
    year, month = divmod(days >> 5, 13)
    return f"{_day(year, month, days & 31)} {_clock(hours, 23)}:{_clock(packed & 63)}:"


_MINUTES: Final = _ByNumber(_minute)


def _clock(number: int, most: int = 59) -> str:
    if number > most:
        raise UnreadValueError(f"expected an hour, minute or second of at most {most}, found {number}")
    return _TWO[number]


def _moment(raw: bytes) -> str:
    packed = int.from_bytes(raw, "big") - _DATETIME_ZERO
    if packed < 0:
        raise UnreadValueError(f"expected a DATETIME, found {raw.hex()}")
    return _MINUTES[packed >> 6] + _clock(packed & 63)


DATETIMES: Final = _ByBytes(_moment)
"""By the five bytes of a DATETIME without its fraction."""


# --- TIME -----------------------------------------------------------------------------------------------------------


def _time(raw: bytes) -> str:
    """The fraction is part of the number of which a negative time is the complement."""
    bits = 8 * (len(raw) - 3)
    packed = int.from_bytes(raw, "big") - (_TIME_ZERO << bits)
    sign = "-" if packed < 0 else ""
    packed = abs(packed)
    whole = packed >> bits
    rest = fraction((packed & (1 << bits) - 1).to_bytes(bits >> 3, "big")) if bits else ""
    hours = whole >> 12 & 1023
    if whole >> 22:
        raise UnreadValueError(f"expected a TIME, found {raw.hex()}")
    return f"{sign}{hours:02d}:{_clock(whole >> 6 & 63)}:{_clock(whole & 63)}{rest}"


@cache
def times(size: int) -> dict[bytes, str]:
    """By the bytes of a TIME, which are so many."""
    assert 3 <= size <= 6
    return _ByBytes(_time)


# --- old formats, without fractions ---------------------------------------------------------------------------------


def old_datetime(number: int) -> str:
    """`20240229235959` as a moment."""
    day, clock = divmod(number, 1_000_000)
    return f"{_day(day // 10_000, day // 100 % 100, day % 100)} {_digits(clock, 23)}"


def old_time(number: int) -> str:
    """`-8385959` as a time."""
    return f"{'-' if number < 0 else ''}{_digits(abs(number), 838)}"


def _digits(clock: int, most: int) -> str:
    hours, rest = divmod(clock, 10_000)
    if hours > most:
        raise UnreadValueError(f"expected an hour of at most {most}, found {hours}")
    return f"{hours:02d}:{_clock(rest // 100)}:{_clock(rest % 100)}"


# --- inside JSON ----------------------------------------------------------------------------------------------------


def packed_time(packed: int) -> str:
    """A TIME as JSON has it: 24 bits of fraction, all six digits printed."""
    sign, packed = ("-" if packed < 0 else ""), abs(packed)
    whole, micros = packed >> 24, packed & 0xFFFFFF
    return f"{sign}{whole >> 12 & 1023:02d}:{_clock(whole >> 6 & 63)}:{_clock(whole & 63)}.{micros:06d}"


def packed_moment(packed: int) -> str:
    """A DATETIME as JSON has it."""
    whole, micros = packed >> 24, packed & 0xFFFFFF
    if packed < 0:
        raise UnreadValueError(f"expected a DATETIME, found the number {packed}")
    return f"{_MINUTES[whole >> 6]}{_clock(whole & 63)}.{micros:06d}"


def packed_date(packed: int) -> str:
    """A DATE as JSON has it: a DATETIME at midnight."""
    return packed_moment(packed)[:10]
