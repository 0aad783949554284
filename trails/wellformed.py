"""Whether what was unpacked is what trails/FORMAT.md says: every table, every record, every value.

Rule: CRCs tell accidents, not what a writer meant; whoever could write a trail could write anything under a right CRC.
So nothing beyond this file meets an operation that it doesn't know, a list that is too short, or a value that is none;
and every reader has every record looked at, also those of which it makes nothing.

Strategy: records of one kind are looked at as one, field by field. Their types, lengths and tables are few, and sets of
them are made without a step of Python for each record; only where a set holds what it should not, the record is looked
for. Nearly all rows are texts only: joining a row tells so in half the time that asking each value for its type takes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from operator import itemgetter
from typing import Any, Final

from trails.ddl import DdlChange
from trails.errors import DamageError
from trails.format import TIMES, BlockHeader, Indicator
from trails.heartbeat import Beat
from trails.record import (
    BEGIN,
    COMMIT,
    DDL,
    DELETE,
    HEARTBEAT,
    INSERT,
    TRUNCATE,
    TRUNCATE_CASCADE,
    TRUNCATE_RESTART_IDENTITY,
    UPDATE,
    Op,
)

ID_SIZE: Final = 16
ROWS: Final = frozenset((INSERT, UPDATE, DELETE))
VALUES: Final = frozenset((str, bytes, bool, type(None)))
_LISTS: Final = frozenset((list, tuple))
_NUMBERS: Final = frozenset((int,))

_LENGTHS: Final = {BEGIN: 4, INSERT: 3, UPDATE: 4, DELETE: 3, TRUNCATE: 3, COMMIT: 2, DDL: 2, HEARTBEAT: 2}
_ONLY: Final = {kind: bytes(number == kind for number in range(256)) for kind in _LENGTHS}
_ORDER: Final = {
    # A byte a record: 1 is BEGIN, 6 is COMMIT.
    Indicator.WHOLE: re.compile(rb"(?:\x01[^\x01\x06]*+\x06)*+"),
    Indicator.BEGIN: re.compile(rb"\x01[^\x01\x06]*+"),
    Indicator.MIDDLE: re.compile(rb"[^\x01\x06]*+"),
    Indicator.END: re.compile(rb"[^\x01\x06]*+\x06"),
}
"""Whole transactions; or the begin, a part, the end of one: each change between its BEGIN and its COMMIT."""
_FLAGS: Final = range((TRUNCATE_CASCADE | TRUNCATE_RESTART_IDENTITY) + 1)

Widths = Callable[[list[bytes]], Sequence[int | None]]
"""How many columns each of a block's tables has; None: it is not known. Raises DamageError where it must be."""
_Fields = dict[int, list[tuple[Any, ...]]]
"""By kind: each field of all the block's records of that kind."""


@dataclass(slots=True)
class Opened:
    """For who reads block after block: the open transaction's changes before the next one; None: it is not known."""

    changes: int | None = None


def check(
    header: BlockHeader,
    tables: list[Any],
    records: Sequence[Any],
    where: str,
    widths: Widths | None = None,
    opened: Opened | None = None,
) -> None:
    """Raise DamageError unless these are a table list, and records over it that fit the block's header."""
    for table in tables:
        if type(table) is not bytes or len(table) != ID_SIZE:
            raise _wrong(where, f"table ids of {ID_SIZE} bytes", table)
    kinds, fields = _parted(records, where)
    _check_borders(fields, where)
    shapes = widths(tables) if widths else [None] * len(tables)
    for kind in fields.keys() & ROWS:
        _, numbers, images, *befores = fields[kind]
        _check_images(numbers, images, shapes, where)
        # An update's before image is one only where it has one.
        if befores and (given := [i for i, image in enumerate(befores[0]) if image is not None]):
            _check_images([numbers[i] for i in given], [befores[0][i] for i in given], shapes, where)
    if TRUNCATE in fields:
        _check_truncates(fields[TRUNCATE], len(tables), where)
    if header.is_ddl or header.is_heartbeat or fields.keys() & (DDL, HEARTBEAT):
        _check_alone(header, kinds, fields, where)
    if (order := _ORDER.get(header.indicator)) is not None and not order.fullmatch(kinds):
        expected = f"BEGIN, changes and COMMIT as indicator {header.indicator.name.lower()} has them"
        raise _wrong(where, expected, list(kinds))
    _check_counts(header, kinds, fields, opened or Opened(), where)


def _parted(records: Sequence[Any], where: str) -> tuple[bytes, _Fields]:
    """The kind of each record, a list that begins with a known one; and the fields of each kind."""
    if set(map(type, records)) - _LISTS:
        raise _wrong(where, "a record", _odd(records, _LISTS))
    try:
        kinds = list(map(itemgetter(0), records))
    except IndexError:
        raise _wrong(where, "a record", []) from None
    if set(map(type, kinds)) - {int} or set(kinds) - _LENGTHS.keys():
        found = next(record for record in records if type(record[0]) is not int or record[0] not in _LENGTHS)
        raise _wrong(where, "a record of a known kind and length", found)
    packed, fields = bytes(kinds), {}
    for kind in set(kinds):
        group = list(compress(records, packed.translate(_ONLY[kind])))
        try:
            fields[kind] = list(zip(*group, strict=True))
        except ValueError:
            fields[kind] = []
        if len(fields[kind]) != _LENGTHS[kind]:
            found = next(record for record in group if len(record) != _LENGTHS[kind])
            raise _wrong(where, "a record of a known kind and length", found)
    return packed, fields


def _check_borders(fields: _Fields, where: str) -> None:
    """What BEGIN and COMMIT say."""
    counts = fields.get(COMMIT, [(), ()])[1]
    if set(map(type, counts)) - _NUMBERS:
        raise _wrong(where, "a number of changes", _odd(counts, _NUMBERS))
    if BEGIN not in fields:
        return
    _, csns, xids, times = fields[BEGIN]
    right = {*map(type, csns), *map(type, xids)} == {str} and set(map(type, times)) == {int}
    if not right or min(times) not in TIMES or max(times) not in TIMES:
        raise _wrong(where, "CSN, transaction id and time", [BEGIN, csns[0], xids[0], times[0]])


def _check_images(numbers: Sequence[Any], images: Sequence[Any], widths: Sequence[int | None], where: str) -> None:
    """Images, and the number of each one's table."""
    if {*map(type, numbers)} != {int} or min(numbers) < 0 or max(numbers) >= len(widths):
        raise _no_table(numbers, len(widths), where)
    if set(map(type, images)) - _LISTS:
        raise _wrong(where, "a row as a list", _odd(images, _LISTS))
    for table, columns in dict.fromkeys(zip(numbers, map(len, images), strict=True)):
        if (width := widths[table]) not in (None, columns):
            raise _wrong(where, f"a row of {width} columns", [None] * columns)
    try:
        deque(map("".join, images), maxlen=0)
    except TypeError:
        _check_values(images, where)


def _check_values(images: Sequence[Any], where: str) -> None:
    kinds = set(map(type, chain.from_iterable(images)))
    if kinds - VALUES:
        raise _wrong(where, "text, bytes, NULL or missing as a value", _odd(chain.from_iterable(images), VALUES))
    if bool in kinds and True in chain.from_iterable(images):
        raise _wrong(where, "text, bytes, NULL or missing as a value", True)


def _no_table(numbers: Sequence[Any], count: int, where: str) -> DamageError:
    """One of them is not the number of a table."""
    if set(map(type, numbers)) - _NUMBERS:
        return _wrong(where, "a table's number", _odd(numbers, _NUMBERS))
    wrong = next(number for number in numbers if not 0 <= number < count)
    return _wrong(where, f"a table's number below {count}", wrong)


def _check_truncates(fields: list[tuple[Any, ...]], count: int, where: str) -> None:
    _, tables, flags = fields
    for some, flag in zip(tables, flags, strict=True):
        if type(some) not in (list, tuple) or type(flag) is not int or flag not in _FLAGS:
            raise _wrong(where, "a TRUNCATE's tables and flags", [TRUNCATE, some, flag])
    numbers = list(chain.from_iterable(tables))
    if numbers and ({*map(type, numbers)} != {int} or min(numbers) < 0 or max(numbers) >= count):
        raise _no_table(numbers, count, where)


def _check_alone(header: BlockHeader, kinds: bytes, fields: _Fields, where: str) -> None:
    """A change of shape, or a heartbeat, stands alone in a block that says so, and nowhere else."""
    alone = Op.DDL if header.is_ddl else Op.HEARTBEAT if header.is_heartbeat else None
    found = [kind for kind in kinds if kind not in (BEGIN, COMMIT)]
    if found != [alone]:
        expected = f"one {alone.name} record and no change beside it" if alone else "changes of rows only"
        raise _wrong(where, expected, f"kinds {found[:5]}")
    read: Callable[[Any, str], object] = DdlChange.from_wire if alone == Op.DDL else Beat.from_wire
    read(fields[found[0]][1][0], where)


def _check_counts(header: BlockHeader, kinds: bytes, fields: _Fields, opened: Opened, where: str) -> None:
    """The header counts what is in the block, and each COMMIT the changes since its BEGIN. A heartbeat is no change."""
    counts: list[int | None] = []  # of each transaction, as far as it is known from its begin on
    changes = 0
    for part in kinds.replace(b"\x08", b"").split(b"\x06"):
        begins = part.startswith(b"\x01")
        here = len(part) - begins
        changes += here
        before = 0 if begins or counts else opened.changes
        counts.append(None if before is None else before + here)
    opened.changes = counts.pop()
    if changes != header.changes:
        raise _wrong(where, f"{header.changes} changes, as its header says", changes)
    if len(counts) != header.transactions:
        raise _wrong(where, f"{header.transactions} ends of transactions, as its header says", len(counts))
    for said, count in zip(fields[COMMIT][1] if counts else (), counts, strict=True):
        if count not in (None, said):
            raise _wrong(where, f"a COMMIT of {count} changes, as many as stand before it", said)


def _odd(values: Iterable[Any], known: frozenset[Any]) -> Any:
    """The first type that is not known: all readers say the same, in whatever order a set has its members."""
    return next(kind for kind in map(type, values) if kind not in known)


def _wrong(where: str, expected: str, found: Any) -> DamageError:
    return DamageError(
        f"{where}: damaged: expected {expected}, found {_shown(found)}",
        hint="Its CRCs are right: a writer made it so. Make the trail anew from its source",
    )


def _shown(found: Any) -> str:
    """What it is, without any row's values: messages go into logs."""
    if isinstance(found, list | tuple | bytes):
        first = (
            f" that begins with {found[0]}"
            if isinstance(found, list | tuple) and found and type(found[0]) is int
            else ""
        )
        return f"{'bytes' if isinstance(found, bytes) else 'list'} of {len(found)}{first}"
    if isinstance(found, type):
        return "list" if found is tuple else found.__name__
    return repr(found)
