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
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Literal

import msgpack

MISSING: Final = False

Value = str | bytes | None | Literal[False]
Image = Sequence[Value]
Record = tuple[Any, ...]


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

    def __post_init__(self) -> None:
        # Names of an SQL_ASCII database may be no UTF-8.
        wire = msgpack.packb(self.to_wire(), unicode_errors="surrogateescape")
        object.__setattr__(self, "id", hashlib.blake2b(wire, digest_size=16).digest())

    @property
    def key(self) -> tuple[int, ...]:
        """Indexes of the key columns, in column order; empty if the table has no key."""
        return tuple(i for i, column in enumerate(self.columns) if column.key)

    @property
    def full_name(self) -> str:
        """`schema.name`, for people."""
        return f"{self.schema}.{self.name}"

    def to_wire(self) -> list[Any]:
        """Plain lists for msgpack; the hash covers exactly this."""
        return [self.schema, self.name, [[c.name, c.type, c.native, c.key] for c in self.columns]]

    @classmethod
    def from_wire(cls, wire: Any) -> TableDef:
        """Inverse of to_wire. Raises ValueError, TypeError or IndexError on a wrong shape."""
        schema, name, columns = wire
        if not (isinstance(schema, str) and isinstance(name, str)):
            raise TypeError("a table definition begins with two names")
        return cls(schema, name, tuple(Column(str(n), str(t), str(nat), bool(k)) for n, t, nat, k in columns))
