"""What a trail carries: table definitions, and records as plain tuples.

A record is a tuple (in the trail: a msgpack array) whose first item is its Op:

    (BEGIN,    csn, xid, commit_us)        opens a transaction; csn and xid are text, time in us since 1970 UTC
    (INSERT,   t, after)
    (UPDATE,   t, after, before)           before is None where nobody asked for it: the key did not change
    (DELETE,   t, before)
    (TRUNCATE, [t, ...], flags)            flags: 1 cascade, 2 restart identity
    (COMMIT,   changes)                    closes it; the number of changes between, for checking
    (DDL,      change)                     a table's shape changed: the wire form of a trails.ddl.DdlChange
    (HEARTBEAT, beat)                      no change: the wire form of a trails.heartbeat.Beat, in a block of its own

`t` is an index into the table list of the record's block. An image is a sequence of values in column order:
text (str), bytes, None for SQL NULL, or MISSING where the source did not give the column. MISSING is not NULL.
Tuples rather than classes: millions of them pass a second's worth of CPU matters here, and nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, Final, Literal, Protocol

import msgpack

MISSING: Final = False
MAX_NAME: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
TEXT_UNIT: Final = 64
"""So many characters of names and types count as one column where definitions are bounded."""

Value = str | bytes | None | Literal[False]
Image = Sequence[Value]
Record = tuple[Any, ...]
TableId = tuple[str, str]
"""(schema, name), as the table's own database has them."""


def time_of(us: int) -> datetime:
    """A time of a record, or of a file's header."""
    return _EPOCH + us * _US


def us_of(time: datetime) -> int:
    """The inverse of time_of."""
    return (time - _EPOCH) // _US


class Packed(Protocol):
    """A sequence of records that are held as a block has them: nobody need pack them again.

    Whoever wants to know asks for its methods: `isinstance` with a protocol takes twenty times as long.
    """

    def packed(self) -> bytes:
        """All of them, as msgpack packs a list of them."""
        ...

    def tally(self) -> Mapping[tuple[int, Any], int]:
        """How many changes there are by operation and table; a TRUNCATE's table is a tuple of tables."""
        ...


class Op(IntEnum):
    """A record's kind. Zero is reserved, so that zeroed bytes are never a record."""

    BEGIN = 1
    INSERT = 2
    UPDATE = 3
    DELETE = 4
    TRUNCATE = 5
    COMMIT = 6
    DDL = 7
    HEARTBEAT = 8


BEGIN, INSERT, UPDATE, DELETE, TRUNCATE, COMMIT, DDL, HEARTBEAT = map(int, Op)
"""Plain numbers for loops over records: a comparison with a member of an enum takes as long as all else there."""

TRUNCATE_CASCADE = 1
TRUNCATE_RESTART_IDENTITY = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `type` is the logical type (docs/values.md), `native` the source's own type text."""

    name: str
    type: str
    native: str
    key: bool = False


@dataclass(frozen=True, slots=True)
class TableDef:
    """A table's shape at one time. Its `id` is a hash of the content: the same shape has the same id everywhere."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    id: bytes = b""
    key: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Indexes of the key columns, in column order; empty if the table has no key."""
    full_name: str = field(init=False, repr=False, compare=False)
    """`schema.name`, for people."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", tuple(i for i, column in enumerate(self.columns) if column.key))
        object.__setattr__(self, "full_name", f"{self.schema}.{self.name}")
        # Names of an SQL_ASCII database may be no UTF-8.
        wire = msgpack.packb(self.to_wire(), unicode_errors="surrogateescape")
        object.__setattr__(self, "id", hashlib.blake2b(wire, digest_size=16).digest())

    def __hash__(self) -> int:
        return hash(self.id)  # of all content; going through every column anew is dear where changes are counted

    @property
    def weight(self) -> int:
        """What it counts where definitions are bounded: one, its columns, and their texts, as a type has any length."""
        text = sum(len(c.name) + len(c.type) + len(c.native) for c in self.columns)
        return 1 + len(self.columns) + (len(self.schema) + len(self.name) + text) // TEXT_UNIT

    def to_wire(self) -> list[Any]:
        """Plain lists for msgpack; the hash covers exactly this."""
        return [self.schema, self.name, [[c.name, c.type, c.native, c.key] for c in self.columns]]

    @classmethod
    def from_wire(cls, wire: Any) -> TableDef:
        """Inverse of to_wire. Raises TypeError on a wrong shape."""
        if type(wire) is not list or len(wire) != 3 or type(wire[2]) is not list:
            raise TypeError("no list of schema, name and columns")
        schema, name, columns = wire
        if not (isinstance(schema, str) and isinstance(name, str)):
            raise TypeError("a table definition that does not begin with two names")
        if max(len(schema), len(name)) > MAX_NAME:
            raise TypeError(f"a table's name of more than {MAX_NAME} characters")
        return cls(schema, name, tuple(_column(column) for column in columns))


def _column(wire: Any) -> Column:
    if type(wire) is not list or tuple(map(type, wire)) != (str, str, str, bool):
        raise TypeError("a column that is not name, type, native type and whether it is of the key")
    if len(wire[0]) > MAX_NAME:
        raise TypeError(f"a column's name of more than {MAX_NAME} characters")
    return Column(*wire)
