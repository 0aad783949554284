"""Where to begin and where to end, by CSN or commit time: ATCSN, AFTERCSN, END, and the row's `skip_until`.

    >=csn   transactions from this CSN on lie behind it     (ATCSN)
    >csn    those after this CSN                            (AFTERCSN; END CSN)
    >>csn   the same, and the one of this CSN must be met   (FILTERDUPTRANSACTIONS)
    @us     those committed at this time or later           (BEGIN; END at a time)

Strategy: what is not behind a beginning is left out, what is behind an end is not applied. Both are asked of whole
units by their headers, and of the transactions inside a block only where the border runs through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trails.csn import like
from trails.errors import MismatchError, OperatorError
from trails.position import Position
from trails.reader import Block
from trails.walk import Walked

Look = Callable[[Block], Sequence[Walked]]
"""Reads a block of whole transactions."""


@dataclass(frozen=True, slots=True)
class Border:
    """`kind` is `>=`, `>`, `>>` or `@`."""

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
        kind = next(kind for kind in (">=", ">>", ">") if text.startswith(kind))
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

    def must_follow(self, csn: str, found: str, place: Position) -> None:
        """Raise MismatchError unless the transaction just before the border, of this CSN, is the one to be met."""
        if self.kind == ">>" and csn != self.csn:
            raise MismatchError(
                f"the transaction applied last, CSN {self.csn}, is not in the trail from where it is read; the first "
                f"behind it there is CSN {found} at {place}: changes between would be lost",
                hint="Begin at an earlier file, or see docs/recovery.md#purged-place",
            )

    def is_before(self, csn: str, time_us: int) -> bool:
        """Whether a transaction lies behind the border."""
        if self.kind == "@":
            return time_us >= self.time_us
        return csn >= self.csn if self.kind == ">=" else csn > self.csn

    def first(self, transactions: Sequence[Walked]) -> int:
        """The number of the first transaction behind the border; their number, if none is."""
        return next((i for i, t in enumerate(transactions) if self.is_before(t.csn, t.time_us or 0)), len(transactions))
