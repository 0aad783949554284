"""A table that is being loaded: its chunks, what each one's snapshot sees, and what that means for a change.

    planned    the chunk's rows are still to be copied, by a snapshot of later: a change of one is left out
    loaded     they were copied by a snapshot: a change is left out exactly if the snapshot sees its transaction

Rule: each change is judged by the chunk of its row's key in the source, and by nothing else. Nothing here asks anybody:
it is plain data that travels to Spark's workers. docs/initial-load.md has the proof that nothing is lost or doubled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trails.controlflow import ControlFlowError
from trails.record import Image, Value

INT: Final = "int"
"""Whole numbers, by value."""
BYTES: Final = "bytes"
"""Canonical text, by its UTF-8 bytes; a value of bytes by its lower-case hexadecimal text, which is the same order."""
ORDERS: Final = (INT, BYTES)
_HALF: Final = 1 << 31
_CYCLE: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Seen:
    """What a snapshot of the source sees, told in the terms of the trail. Its text is `str()`, and `parse` reads it.

    xid 700:702:700    the transactions below 700, and of the others below 702 those that are not listed
    csn 0:7:1548       the transactions up to this CSN
    tick 42            the same; but one of a higher CSN may hold changes that it sees as well, and others
    """

    kind: str
    csn: str = ""
    xmin: int = 0
    xmax: int = 0
    open: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Seen:
        """Raises ValueError."""
        kind, _, rest = text.partition(" ")
        if kind in ("csn", "tick") and rest:
            return cls(kind, rest)
        if kind == "xid":
            xmin, xmax, running = rest.split(":")
            return cls(kind, "", int(xmin), int(xmax), frozenset(int(xid) for xid in running.split(",") if xid))
        raise ValueError(f"expected xid, csn or tick and what it sees, found {text!r:.60}")

    def __str__(self) -> str:
        if self.kind == "xid":
            return f"xid {self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.open)))}"
        return f"{self.kind} {self.csn}"

    def sees(self, csn: str, xid: str) -> bool | None:
        """Whether it sees that transaction of the trail; None: perhaps a part of it."""
        if self.kind == "xid":
            return self.sees_xid(int(xid))
        return True if csn <= self.csn else None if self.kind == "tick" else False

    def sees_xid(self, xid: int) -> bool:
        """Whether that transaction had ended."""
        full = self._full(xid)
        return full < self.xmin or (full < self.xmax and full not in self.open)

    def is_past(self, xid: int) -> bool:
        """Whether that transaction, and each one that began before it, had ended."""
        return self._full(xid) < self.xmin

    def _full(self, xid: int) -> int:
        """The trail has a transaction's number in 32 bits: the full one is that which is near to the snapshot."""
        return self.xmax + (xid - self.xmax + _HALF) % _CYCLE - _HALF


def newest(xids: Iterable[int]) -> int:
    """The one that began last, of numbers that go round: no two of a server's log are half a round apart."""
    some = list(xids)
    return max(some, key=lambda xid: (xid - some[0] + _HALF) % _CYCLE)


def ordered(orders: Sequence[str], values: Sequence[Value]) -> tuple[Any, ...]:
    """A key, or the first columns of one, as Python compares it like the source does. Raises ValueError."""
    return tuple(map(_comparable, orders, values))


def _comparable(order: str, value: Value) -> Any:
    if isinstance(value, bytes):
        return value.hex().encode()
    if not isinstance(value, str):
        raise ValueError("a key with a column that is NULL or missing")
    return int(value) if order == INT else value.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Loading:
    """A table's chunks. `columns`: the chunks' key, by index of an image; `orders`: of each. `lows`: where each
    chunk but the first begins, as `ordered` gives it. `seen`: of each chunk; None while it is planned.

    A table of which nothing is known but that it is to be loaded has one chunk, which is planned.
    """

    columns: tuple[int, ...] = ()
    orders: tuple[str, ...] = ()
    lows: tuple[tuple[Any, ...], ...] = ()
    seen: tuple[Seen | None, ...] = (None,)
    ticks: bool = field(init=False, repr=False, compare=False)
    """Whether some change's verdict may be that nobody knows."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ticks", any(one is not None and one.kind == "tick" for one in self.seen))

    def chunk(self, image: Image) -> int:
        """The chunk of a row, by number. Raises ValueError where its key is not whole."""
        if not self.lows:
            return 0
        return bisect_right(self.lows, ordered(self.orders, [image[i] for i in self.columns]))


class LoadFailedError(ControlFlowError):
    """A table's load can't go on before somebody acts; its text is for them."""

    def __init__(self, pair: tuple[str, str], reason: str) -> None:
        super().__init__(reason)
        self.pair = pair


class LoadAgainError(ControlFlowError):
    """A table's load is to begin anew: the place in the trail has come to something that chunks can't be judged by."""

    def __init__(self, source: str, place: tuple[str, str], why: str) -> None:
        """`place`: schema and name of the target table."""
        super().__init__(source, place, why)
        self.source, self.place, self.why = source, place, why
        self.target = ".".join(place)

    def __str__(self) -> str:
        return f"{self.source}: its load begins anew: {self.why}"
