"""Figures as people read them. What is not known is a word, never a zero."""

from __future__ import annotations

from typing import Any

from ggsci.views.view import stamp

UNKNOWN = "UNKNOWN"
_MOMENT = 10**15
"""Microseconds beyond this are a time since 1970, not a length."""
_BYTES = ("B", "KB", "MB", "GB", "TB", "PB")


def duration(length_us: int | None) -> str:
    """`40 ms`, `0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`; UNKNOWN if not known or negative."""
    if length_us is None or length_us < 0:
        return UNKNOWN
    if 0 < length_us < 100_000:
        return f"{length_us / 1000:.{1 if length_us < 10_000 else 0}f} ms"
    seconds = length_us // 1_000_000
    if seconds < 10:
        return f"{length_us / 1_000_000:.1f} s"
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    if seconds < 86_400:
        return f"{seconds // 3600} h {seconds // 60 % 60:02d} min"
    return f"{seconds // 86_400} d {seconds // 3600 % 24} h"


def size(count: float | None) -> str:
    """`0 B`, `12.3 KB`, `1.20 GB`; UNKNOWN if not known. Units of 1024."""
    if count is None:
        return UNKNOWN
    value = float(count)
    for unit in _BYTES:
        if abs(value) < 1024 or unit == _BYTES[-1]:
            break
        value /= 1024
    if unit == "B":
        return f"{value:.0f} B"
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f} {unit}"


def number(value: float | None) -> str:
    """`1 234` with narrow blanks; small ones with a digit behind the point; UNKNOWN if not known."""
    if value is None:
        return UNKNOWN
    if value != int(value) and abs(value) < 100:
        return f"{value:.1f}"
    return f"{round(value):,}".replace(",", "\u202f")


def percent(share: float | None) -> str:
    """`34 %`."""
    return UNKNOWN if share is None else f"{share * 100:.0f} %"


def moment(name: str, value: Any) -> int | None:
    """The time that a figure tells, in microseconds since 1970; None for any other."""
    known = name.endswith("_us") and isinstance(value, int) and not isinstance(value, bool)
    return value if known and value > _MOMENT else None


def figure(name: str, value: Any) -> str:
    """A figure of unknown meaning, by what its name ends in."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if name.endswith("_us") and value > _MOMENT:
        return stamp(int(value))
    if name.endswith("_us"):
        # A difference between clocks may be negative, and then is told with its sign.
        return f"-{duration(-int(value))}" if value < 0 else duration(int(value))
    if name.endswith("_bytes"):
        return size(value)
    return percent(value) if name.endswith("_share") else number(value)
