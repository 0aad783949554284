"""`AT hh:mi`, `ON day`: when something is due each day or each week, in the machine's own time; and REPORTCOUNT.

A moment that passed while the process was down, or in the hour that a clock change leaves out, is not made up for
twice: what is due is done once, at the first look after it. A clock that was far ahead and is set right is noticed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trails.clock import Clock, local_text

if TYPE_CHECKING:
    from trails.runtime.language.params import Statement

SHAPE = "{AT hh:mi | ON day | AT hh:mi ON day}"
COUNT_SHAPE = "EVERY n {RECORDS | SECONDS | MINUTES | HOURS} [, RATE]"
DAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
LEAST_DAY = 3
_AT = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\Z")
_SECONDS = {"SECOND": 1, "SEC": 1, "MINUTE": 60, "MIN": 60, "HOUR": 3600, "HR": 3600}
_MOST = 1_000_000_000
_LONGEST_US = 8 * 86_400 * 1_000_000
"""No schedule has two moments so far apart."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Each day at `minute` of the day, or only on that day of the week (0 is Monday)."""

    minute: int = 0
    day: int | None = None

    def next_after(self, us: int) -> int:
        """The first moment behind `us`, in microseconds."""
        today = time.localtime(us // 1_000_000)
        for days in range(9):
            # mktime takes the 32nd of a month, and finds out whether summer time holds then.
            local = (
                today.tm_year,
                today.tm_mon,
                today.tm_mday + days,
                self.minute // 60,
                self.minute % 60,
                0,
                0,
                0,
                -1,
            )
            found = int(time.mktime(local))
            if found * 1_000_000 > us and self.day in (None, time.localtime(found).tm_wday):
                return found * 1_000_000
        raise ValueError(f"{self} has no moment within nine days of {us}")


def schedule(statement: Statement) -> Schedule:
    """The value of REPORT, REPORTROLLOVER, ROLLOVER and DISCARDROLLOVER."""
    words = [word.upper() if isinstance(word, str) else "" for word in statement.words]
    if len(words) not in (2, 4) or len(set(words[::2])) != len(words) // 2:
        raise statement.error(SHAPE)
    minute, day = 0, None
    for name, value in zip(words[::2], words[1::2], strict=True):
        at = _AT.match(value)
        if name == "AT" and at:
            minute = int(at[1]) * 60 + int(at[2])
        elif name == "ON" and (found := _day(value)) is not None:
            day = found
        else:
            raise statement.error(SHAPE)
    return Schedule(minute, day)


def _day(word: str) -> int | None:
    return next((i for i, name in enumerate(DAYS) if len(word) >= LEAST_DAY and name.startswith(word)), None)


@dataclass(frozen=True, slots=True)
class ReportCount:
    """REPORTCOUNT: every so many records, or seconds; `rate`: with how fast that was."""

    records: int = 0
    seconds: int = 0
    rate: bool = False


def report_count(statement: Statement) -> ReportCount:
    """The value of REPORTCOUNT."""
    words = [word.upper() if isinstance(word, str) else "" for word in statement.words]
    rate = words[-1:] == ["RATE"]
    words = words[:-1] if rate else words
    words = words[1:] if words[:1] == ["EVERY"] else words
    number, unit = words if len(words) == 2 else ("", "")
    unit = unit if unit in ("SEC", "MIN", "HR") else unit.removesuffix("S")
    if not (number.isascii() and number.isdecimal() and 0 < int(number[:12]) <= _MOST):
        raise statement.error(COUNT_SHAPE)
    if unit == "RECORD":
        return ReportCount(records=int(number), rate=rate)
    if unit not in _SECONDS:
        raise statement.error(COUNT_SHAPE)
    return ReportCount(seconds=int(number) * _SECONDS[unit], rate=rate)


class Due:
    """A chore that does something at each moment of its schedules; two for one moment do it once."""

    def __init__(self, schedules: Sequence[Schedule], do: Callable[[], object], clock: Clock) -> None:
        self._schedules = schedules
        self._do = do
        self._clock = clock
        self._next_us = self._next()

    def _next(self) -> int:
        now = self._clock.now_us()
        return min(one.next_after(now) for one in self._schedules)

    def __call__(self, _now: float) -> None:
        """Look."""
        left = self._next_us - self._clock.now_us()
        if left <= 0 or left > _LONGEST_US:
            self._next_us = self._next()
        if left <= 0:
            self._do()


class CountLines:
    """A chore that does what REPORTCOUNT says. `operations`: how many there were so far."""

    def __init__(
        self, setting: ReportCount, operations: Callable[[], int], write: Callable[[str], None], clock: Clock
    ) -> None:
        self._setting = setting
        self._operations = operations
        self._write = write
        self._clock = clock
        self._begin = self._last = clock.monotonic()
        self._count = 0

    def __call__(self, now: float) -> None:
        """Look."""
        count = self._operations()
        if self._setting.records:
            due = count // self._setting.records > self._count // self._setting.records
        else:
            due = now - self._last >= self._setting.seconds
        if not due or now <= self._last:
            return
        line = f"{count} records processed as of {local_text(self._clock.now_us())}"
        if self._setting.rate:
            delta = (count - self._count) / (now - self._last)
            line += f" (rate {count / (now - self._begin):.0f}, delta {delta:.0f})"
        self._write(line)
        self._last, self._count = now, count
