"""Time, behind a protocol so that tests can set it (trails/testing.py has the settable one).

Wall time is in microseconds since 1970 UTC and may jump; only `monotonic()` measures how long something took.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Where every process takes its time from."""

    def now_us(self) -> int:
        """Wall time, microseconds since 1970 UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never jumps."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that long pass."""
        ...


class RealClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Wall time, microseconds since 1970 UTC."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds since boot."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let that long pass."""
        time.sleep(seconds)


def iso_text(us: int) -> str:
    """`2026-02-03T02:30:05.123456+01:00`, as programs read it."""
    seconds, rest = divmod(us, 1_000_000)
    return datetime.fromtimestamp(seconds).astimezone().replace(microsecond=rest).isoformat(timespec="microseconds")


def local_text(us: int, *, fraction: bool = False) -> str:
    """`2026-02-03 02:30:05` (with `.123456` if asked) in the machine's own time zone, as operators read it."""
    seconds, rest = divmod(us, 1_000_000)
    text = datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{rest:06d}" if fraction else text
