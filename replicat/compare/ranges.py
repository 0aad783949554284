"""One range of keys, compared at both ends: plain data in, plain data out, so that any worker can do it.

Where both databases hash alike, their hashes say which ranges differ, and rows are read of these alone.

Rule: a value is equal if its canonical text is, to the byte; whether that may be asked of two columns at all is looked
at before (pairing.py). Rows of a range are held in memory once, those of the other end stream past them. Each end is
one statement, so it is one moment of its own: what differs here may be on its way, which flight.py finds out.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from replicat.load.chunk import SourceOf
from replicat.load.staging import opened
from replicat.reading.contract import WHOLE, Range, Reader
from replicat.reading.hashing import RangeHash, alike
from replicat.reading.kinds import open_reader
from trails.record import Image, TableDef, Value

Key = tuple[Value, ...]
LEAF_ROWS: Final = 250
"""A range whose hashes differ is cut into parts of so many rows, and those that differ are read."""
SECRET_BYTES: Final = 16
MISSING, TOO_MANY, DIFFERENT = "missing", "too many", "different"


@dataclass(frozen=True, slots=True)
class Pair:
    """A source table and its target's. Both have the compared columns alone, in one order, under each end's names."""

    source: TableDef
    target: TableDef

    @property
    def keyless(self) -> bool:
        """Whether nothing tells one row from another like it."""
        return not self.source.key

    def key_of(self, row: Image) -> Key:
        """By which a row is found at the other end."""
        return tuple(row[i] for i in self.source.key)


@dataclass(frozen=True, slots=True)
class RangeTask:
    """A range of one table. `url`: the target's."""

    source: SourceOf
    url: str = field(repr=False)
    pair: Pair
    part: Range = WHOLE


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that is not the same at both ends. `columns`: indexes of those that differ; `number`: so many like it."""

    key: Key
    what: str
    columns: tuple[int, ...] = ()
    source: tuple[Value, ...] | None = field(default=None, repr=False)
    target: tuple[Value, ...] | None = field(default=None, repr=False)
    number: int = 1


@dataclass(frozen=True, slots=True)
class ComparedRange:
    """What came of a range. `rows`: of the source; `found`: what differs, by the part of the range that was read;
    `hashed`: so many of the rows were not read, as their hashes are equal.
    """

    rows: int
    found: Mapping[Range, tuple[RowDifference, ...]]
    hashed: int = 0

    @property
    def number(self) -> int:
        """Of the differences."""
        return sum(map(len, self.found.values()))


def compare_range(task: RangeTask) -> ComparedRange:
    """Look at both ends now, by connections of its own."""
    source = opened(task.source)
    try:
        target = open_reader(task.url)
        try:
            return BothEnds(task.pair, source, target).compare(task.part)
        finally:
            target.close()
    finally:
        source.close()


class BothEnds:
    """A range by its hash, then what differs in it by the hashes of its parts, and what differs of these row by row."""

    def __init__(self, pair: Pair, source: Reader, target: Reader) -> None:
        self._pair = pair
        self._source, self._target = source, target
        self._columns = [column.name for column in pair.source.columns]
        self._columns_there = [column.name for column in pair.target.columns]

    def compare(self, part: Range) -> ComparedRange:
        """What differs, row by row."""
        if not self._hash_alike():
            return self._read([part])
        ((mine, same),) = self._hashed(part, ())
        if same and mine is not None:
            return ComparedRange(mine.rows, {}, mine.rows)
        cut = not self._pair.keyless and (mine is None or mine.rows > LEAF_ROWS)
        lows = self._source.splits(self._pair.source, part, LEAF_ROWS) if cut else ()
        if not lows:
            return self._read([part])
        ends = [*lows, part.high]
        parts = [Range(part.orders, low, high) for low, high in zip([part.low, *lows], ends, strict=True)]
        looked = list(zip(parts, self._hashed(part, lows), strict=True))
        equal = sum(mine.rows for _, (mine, same) in looked if same and mine is not None)
        found = self._read([one for one, (_, same) in looked if not same])
        return replace(found, rows=found.rows + equal, hashed=equal)

    def _hash_alike(self) -> bool:
        mine = self._source.hashing(self._pair.source, self._columns)
        return bool(mine) and mine == self._target.hashing(self._pair.target, self._columns_there)

    def _hashed(self, part: Range, lows: Sequence[tuple[str, ...]]) -> Iterable[tuple[RangeHash | None, bool]]:
        """Of each part the source's hash, and whether the target has the same rows."""
        secret = secrets.token_hex(SECRET_BYTES)
        mine = self._source.hashes(self._pair.source, self._columns, part, lows, secret)
        theirs = self._target.hashes(self._pair.target, self._columns_there, part, lows, secret)
        return [(one, alike(one, other)) for one, other in zip(mine, theirs, strict=True)]

    def _read(self, parts: Iterable[Range]) -> ComparedRange:
        rows, found = 0, {}
        for part in parts:
            mine = RangeRows(self._pair, read(self._source, self._pair.source, part))
            differences = tuple(mine.against(read(self._target, self._pair.target, part)))
            rows += mine.count
            if differences:
                found[part] = differences
        return ComparedRange(rows, found)


def read(reader: Reader, table: TableDef, part: Range) -> Iterator[Image]:
    """The rows of a range with all compared columns."""
    return reader.rows(table, [column.name for column in table.columns], part)


class RangeRows:
    """The source's rows of a range, or some of them; `against` uses them up."""

    def __init__(self, pair: Pair, rows: Iterable[Image], only: frozenset[Key] | None = None) -> None:
        self._pair = pair
        self._only = only
        self._rows: dict[Key, tuple[Value, ...]] = {}
        self._bag: Counter[Key] = Counter()
        self.count = 0
        for row in rows:
            self.count += 1
            if pair.keyless:
                self._bag[_digest(row)] += 1
            elif only is None or pair.key_of(row) in only:
                self._rows[pair.key_of(row)] = tuple(row)

    def against(self, rows: Iterable[Image]) -> Iterator[RowDifference]:
        """What differs in the target's rows."""
        return self._bags(rows) if self._pair.keyless else self._keyed(rows)

    def _keyed(self, rows: Iterable[Image]) -> Iterator[RowDifference]:
        for image in rows:
            row, key = tuple(image), self._pair.key_of(image)
            if self._only is not None and key not in self._only:
                continue
            mine = self._rows.pop(key, None)
            if mine is None:
                yield RowDifference(key, TOO_MANY, (), None, row)
            elif mine != row:
                columns = tuple(i for i, value in enumerate(row) if value != mine[i])
                yield RowDifference(key, DIFFERENT, columns, mine, row)
        for key, mine in self._rows.items():
            yield RowDifference(key, MISSING, (), mine, None)

    def _bags(self, rows: Iterable[Image]) -> Iterator[RowDifference]:
        for row in rows:
            self._bag[_digest(row)] -= 1
        for key, number in self._bag.items():
            if number:
                yield RowDifference(key, MISSING if number > 0 else TOO_MANY, number=abs(number))


def shown_value(value: Value) -> str | None:
    """Bytes as hexadecimal text; text that is no UTF-8 with its odd bytes escaped."""
    if isinstance(value, bytes):
        return value.hex()
    return None if value is None else str(value).encode("utf-8", "backslashreplace").decode()


def _digest(row: Image) -> Key:
    """A whole row in a few bytes: a table without a key has no other name for it."""
    made: Any = hashlib.blake2b(digest_size=16)
    for value in row:
        if value is None:
            made.update(b"n")
            continue
        data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
        made.update(b"%d:" % len(data))
        made.update(data)
    return (made.digest(),)
