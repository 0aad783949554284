"""What a source database must answer to be read in chunks: the words, and what all kinds of database share.

Rule: a value that a reader gives is byte for byte what the capture of that kind writes into the trail for the same row
(docs/values.md); what the capture refuses, the reader refuses. A range of keys means in SQL what
`model.loading.ordered` means in Python: each row is in exactly one of the ranges, whichever of the two asks.

One reader is one connection, for one thread:

    bounds    where chunks of about so many rows begin, as of any moment
    begin     a read transaction with a snapshot of its own, and what that snapshot sees
    rows      the rows of a range, as that snapshot sees them; often, or not at all
    end       the transaction's end, also after an error
    hashes    what the ranges of now have, as numbers; no transaction is needed for it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from replicat.model.loading import ordered
from replicat.reading.hashing import Hashes
from trails.errors import OperatorError
from trails.position import Position
from trails.record import Image, TableDef

MOST_SCANS: Final = 16
"""Chunks of a table in which no index finds a range: each one scans the table."""


class Snapshot(NamedTuple):
    """`seen`: what it sees, for `model.loading.Seen.parse`; `past`: an origin of the capture behind all of that.

    `hanging`: numbers of transactions whose commit may have been in the log, and hidden, right before it was taken.
    """

    seen: str
    past: Position
    hanging: frozenset[int] = frozenset()


@dataclass(frozen=True)
class KeyBounds:
    """Where the chunks of a table begin, but for the first one, which begins at the beginning.

    `lows`: canonical texts of the first `len(orders)` columns of the key, ascending. `estimate`: rows of the table.
    """

    orders: tuple[str, ...] = ()
    lows: tuple[tuple[str, ...], ...] = ()
    estimate: int = 0


@dataclass(frozen=True)
class Range:
    """The keys with `low` <= key < `high`. `low` empty: from the beginning; `high` None: to the end."""

    orders: tuple[str, ...] = ()
    low: tuple[str, ...] = ()
    high: tuple[str, ...] | None = None


WHOLE: Final = Range()
"""All rows of a table."""


class Reader(Protocol):
    """One connection to a source database. What fails raises AwayError or OperatorError."""

    def identity(self) -> dict[str, str]:
        """What the headers of a trail say of this source: kind, system, ...; what of it must be the same.

        Those of `kinds.BRANCH` are others after a failover.
        """
        ...

    def bound_waits(self, seconds: float) -> None:
        """Wait for a lock on a table no longer than that: AwayError. Without it, as long as the database does."""
        ...

    def bounds(self, table: TableDef, rows: int) -> KeyBounds:
        """Chunks of about `rows` rows; without bounds where the table is small, or has no key."""
        ...

    def splits(self, table: TableDef, part: Range, rows: int) -> tuple[tuple[str, ...], ...]:
        """Keys that cut a range into parts of about `rows` rows; none where no index finds them."""
        ...

    def hashing(self, table: TableDef, columns: Sequence[str]) -> str:
        """By which rules `hashes` are made; those of two connections compare if it is the same. Empty: it has none."""
        ...

    def hashes(
        self, table: TableDef, columns: Sequence[str], part: Range, lows: Sequence[tuple[str, ...]], secret: str
    ) -> Hashes:
        """What each part of a range has that is cut by `lows`, all as of one moment. `secret`: a new one each time."""
        ...

    def begin(self, table: TableDef, csn: str = "") -> Snapshot:
        """Take a snapshot of this table. `csn`: the last one that is applied, which tells what its numbers count."""
        ...

    def rows(self, table: TableDef, columns: Sequence[str], part: Range) -> Iterator[Image]:
        """The rows of a range as the snapshot sees them: text, bytes or None. Memory does not grow with them.

        Behind one that is left before its end, only `end` may follow.
        """
        ...

    def shape(self, schema: str, name: str) -> list[list[str]]:
        """A table's columns as they are now: name and type, in the words of the database. None of a table that is gone.

        Two equal answers mean that a definition from between them holds.
        """
        ...

    def check(self, table: TableDef) -> None:
        """Raises where rows of the table can't be read: it is gone, or has other columns, or this user may not."""
        ...

    def newest(self) -> int | None:
        """The number that a transaction had last, of all that have begun. None: snapshots are told in other words, and
        one that sees the last CSN which was applied sees all that was applied.
        """
        ...

    def settle(self) -> None:
        """Wait until all that the snapshot saw is on the source's disk: what a crash there takes back is not copied."""
        ...

    def end(self) -> None:
        """End the read transaction; nothing happens if there is none."""
        ...

    def close(self) -> None:
        """Disconnect; never raises."""
        ...


def ascending(orders: Sequence[str], lows: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Lower bounds in order, each once."""
    found: dict[tuple[Any, ...], tuple[str, ...]] = {ordered(orders, low): tuple(low) for low in lows}
    return tuple(found[key] for key in sorted(found))


def inside(part: Range, lows: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Lower bounds that cut a range: those above its own, in order."""
    low = ordered(part.orders, part.low) if part.low else None
    found = ascending(part.orders, lows)
    return tuple(one for one in found if low is None or ordered(part.orders, one) > low)


class OtherShapeError(OperatorError):
    """A table of the source is not as it was; the trail may tell of that later, at the place of the change."""


def no_columns(table: TableDef, missing: Iterable[str]) -> OtherShapeError:
    """A table of the source that is not the one that the trail defines."""
    names = ", ".join(missing)
    return OtherShapeError(
        f"table {table.full_name} of the source database has no column {names}, but its definition in the trail has",
        hint="Its shape has changed since: let Replicat come to that place of the trail",
    )
