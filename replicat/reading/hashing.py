"""Hashes of ranges, made by the database itself: what a range has, as a few numbers.

Rule: two ends may have equal hashes only if reading would find equal rows. So each row is written without any doubt of
where a value ends or whether it is NULL, by what `rows` would give or by what that is made of; and each row's hash goes
into a sum, so that the order does not matter and a row that is there twice counts twice. The secret is new for each
statement: who plants rows can't know what they will be hashed to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class RangeHash(NamedTuple):
    """What a part of a range has. `sums` are whole numbers as text, and None of no rows."""

    rows: int
    sums: tuple[str | None, ...]


NOTHING = RangeHash(0, (None, None))
Hashes = list[RangeHash | None]
"""One for each part of a range; None is like nothing, not even like itself."""


def part_number(below: Sequence[str], first: int = 0) -> str:
    """In SQL, how many of these ascending bounds a key is not below; `below`: the condition of each one."""
    if not below:
        return str(first)
    half = len(below) // 2
    lower, upper = part_number(below[:half], first), part_number(below[half + 1 :], first + half + 1)
    return f"CASE WHEN {below[half]} THEN {lower} ELSE {upper} END"


def by_part(rows: Iterable[Sequence[Any]], parts: int) -> Hashes:
    """Of rows (number of the part, its rows, hashed rows, sums ...); a part without rows is not among them.

    A row that the server did not hash, as its text is too long, makes its part None.
    """
    found: Hashes = [NOTHING] * parts
    for number, count, hashed, *sums in rows:
        whole = int(count) == int(hashed)
        found[int(number)] = (
            RangeHash(int(count), tuple(None if one is None else str(one) for one in sums)) if whole else None
        )
    return found


def alike(one: RangeHash | None, other: RangeHash | None) -> bool:
    """Whether both ends of a part have the same rows."""
    return one is not None and one == other
