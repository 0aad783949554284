"""Where to begin and where to end, by CSN or commit time: ATCSN, AFTERCSN, END, and the row's `skip_until`.

    >=csn   transactions from this CSN on lie behind it     (ATCSN)
    >csn    those after this CSN                            (AFTERCSN; END CSN)
    @us     those committed at this time or later           (BEGIN; END at a time)

Strategy: what is not behind a beginning is left out, what is behind an end is not applied. Both are asked of whole
units by their headers, and of the transactions inside a block only where the border runs through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trails.csn import like
from trails.errors import OperatorError
from trails.reader import Block
from trails.record import Op


@dataclass(frozen=True, slots=True)
class Begun:
    """One transaction inside a block of whole ones."""

    csn: str
    time_us: int
    changes: int


Look = Callable[[Block], Sequence[Begun]]
"""Reads a block of whole transactions."""


def transactions_of(records: Sequence[Any]) -> list[Begun]:
    """What a block's records say of its transactions."""
    found: list[Begun] = []
    begin: Any = None
    changes = 0
    for record in records:
        if record[0] == Op.BEGIN:
            begin, changes = record, 0
        elif record[0] == Op.COMMIT:
            found.append(Begun(begin[1], begin[3], changes))
        else:
            changes += 1
    return found


@dataclass(frozen=True, slots=True)
class Border:
    """`kind` is `>=`, `>` or `@`."""

    kind: str
    csn: str = ""
    time_us: int = 0

    @classmethod
    def of(cls, text: str) -> Border | None:
        """Inverse of `text`; None of an empty one."""
        if not text:
            return None
        if text.startswith("@"):
            return cls("@", time_us=int(text[1:]))
        kind = ">=" if text.startswith(">=") else ">"
        return cls(kind, text[len(kind) :])

    @property
    def text(self) -> str:
        """As the checkpoint row has it."""
        return f"@{self.time_us}" if self.kind == "@" else f"{self.kind}{self.csn}"

    def fitting(self, sample: str, what: str) -> Border:
        """The border with its CSN in the trail's own form; OperatorError names `what` it was given as."""
        try:
            return self if self.kind == "@" else Border(self.kind, like(self.csn, sample))
        except ValueError as error:
            raise OperatorError(f"{what}: expected {error}", hint="logdump shows a trail's CSNs") from None

    def is_before(self, csn: str, time_us: int) -> bool:
        """Whether a transaction lies behind the border."""
        if self.kind == "@":
            return time_us >= self.time_us
        return csn >= self.csn if self.kind == ">=" else csn > self.csn

    def first(self, transactions: Sequence[Begun]) -> int:
        """The number of the first transaction behind the border; their number, if none is."""
        return next((i for i, t in enumerate(transactions) if self.is_before(t.csn, t.time_us)), len(transactions))
