"""Bounds on free space, as parameters say them: DISKWARN, DISKSTOP, WALWARN; and sizes as people read them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trails.runtime.language.params import Statement

SMALL_SHARE = 10
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_BOUND = re.compile(r"(\d{1,15})\s*(%|[KMGT]?)B?\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound on free space: bytes, or a share of the file system.

    `at_most` keeps a share of a huge disk sensible, `at_least` that of a small one, up to a tenth of it.
    """

    amount: int
    percent: bool = False
    at_most: int | None = None
    at_least: int = 0

    def bytes_of(self, size: int) -> int:
        """In bytes, on a file system of this size."""
        if not self.percent:
            return self.amount
        share = max(size * self.amount // 100, min(self.at_least, size // SMALL_SHARE))
        return share if self.at_most is None else min(share, self.at_most)

    def __str__(self) -> str:
        return f"{self.amount}%" if self.percent else human(self.amount)


DEFAULT_WARN = Bound(10, percent=True, at_most=20 << 30)
DEFAULT_STOP = Bound(2, percent=True, at_most=4 << 30, at_least=64 << 20)


def parse_bound(statement: Statement) -> Bound:
    """DISKWARN's and DISKSTOP's argument: bytes with K, M, G or T, or a percentage; 0 is never."""
    match = _BOUND.match(statement.text)
    if match is None:
        raise statement.error("bytes such as 500M or 20G, or a percentage such as 10%", statement.text)
    amount = int(match[1])
    if match[2] == "%":
        if amount >= 100:
            raise statement.error("a percentage from 0% to 99%", statement.text)
        return Bound(amount, percent=True)
    return Bound(amount * _UNITS[match[2].upper()])


def human(size: int) -> str:
    """Bytes as people read them: `1.5 GB`."""
    value = float(size)
    for unit in ("bytes", "KB", "MB", "GB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TB"
