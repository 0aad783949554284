"""What a target is to Replicat: tables to look at, one transaction at a time, and the checkpoint row inside it.

Strategy: a target does no thinking of its own. It gets ready-made steps (net effects as COPY text, runs of a keyless
table, truncates) in the order they must be applied, and applies each call to apply() whole or not at all. What is
refused raises RefusedError and leaves the transaction usable: replicat/ladder.py decides what to try next.

States of one target: closed -> (connect) -> idle -> (begin) -> open -> (commit) -> idle. AwayError, from any
call, means closed: what was open is lost or landed, and only the row read after the next connect() tells which.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from trails.errors import GateError
from trails.position import Position
from trails.record import Image, Value


class RefusedError(GateError):
    """The target refused rows (a constraint, a value); the transaction is as it was before the call."""

    def __init__(self, table: str, message: str, sqlstate: str = "") -> None:
        super().__init__(f"{table}: {message}")
        self.table = table
        self.sqlstate = sqlstate


NO_ROW = "02000"
"""SQLSTATE of our own refusal of a change whose row is not there; the standard's "no data"."""


class PlaceLostError(GateError):
    """The checkpoint row is not where this process left it: another commit landed. Start again from the row."""


@dataclass(frozen=True, slots=True)
class Row:
    """A group's row in the checkpoint table: the truth about what is applied."""

    position: Position
    trail_id: bytes = b""
    csn: str = ""
    xid: str = ""
    time_us: int | None = None
    alter_no: int = 0
    added_us: int = 0
    flushed: Position = field(default=Position(0, 0))


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column as the target's catalog has it; `always` is GENERATED ALWAYS AS IDENTITY, `generated` a computed one.

    `equal`: the operator that its type's indexes take for equality.
    """

    name: str
    type: str
    generated: bool = False
    always: bool = False
    equal: str = "="


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A target table's shape. `unique`: column sets of its unique indexes; `fires`: what would run by itself."""

    schema: str
    name: str
    columns: tuple[TargetColumn, ...]
    unique: tuple[frozenset[str], ...] = ()
    fires: tuple[str, ...] = ()
    rank: int = 0

    @property
    def full_name(self) -> str:
        """`schema.name`, for people."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where rows go: the target's columns that are written, in image order.

    `key`: names of the key columns, empty for a table without one; `arbiter`: a unique index covers exactly the key;
    `extras`: target columns that the source lacks, whose values a moved row takes with it; `fixed`: those of them
    that can be inserted but never updated (GENERATED ALWAYS AS IDENTITY); `key_equal`: the operator
    for each key column, `=` where none is given; `rank`: parents are lower.
    """

    schema: str
    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...]
    arbiter: bool = True
    extras: tuple[str, ...] = ()
    extra_types: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    key_equal: tuple[str, ...] = ()
    rank: int = 0

    @property
    def full_name(self) -> str:
        """`schema.name`, for people."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Blob:
    """Rows as COPY text: here, or in the file `path` that whoever applies it may read as often as needed."""

    data: bytes = b""
    rows: int = 0
    path: str = ""

    def read(self) -> bytes:
        """The text."""
        if not self.path:
            return self.data
        with open(self.path, "rb") as file:
            return file.read()


@dataclass(frozen=True, slots=True)
class Fill:
    """A row to be completed from the target's row at key `base`: missing columns, and extras, come from there."""

    base: tuple[Value, ...]
    row: Image


@dataclass(frozen=True, slots=True)
class Rows:
    """The net effect on one table with a key. Order: read fills, delete, then write fills, upserts and inserts."""

    layout: Layout
    deletes: Blob = Blob()
    upserts: Blob = Blob()
    inserts: Blob = Blob()
    fills: tuple[Fill, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """One delete (`after` is None) or update of exactly one row of a table without a key."""

    before: Image
    after: Image | None = None


@dataclass(frozen=True, slots=True)
class Bag:
    """Changes of one table without a key, in order: runs of inserts as COPY text, other changes one by one."""

    layout: Layout
    runs: tuple[Blob | Change, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """Net effects on several tables, between which no order is needed but that of foreign keys."""

    rows: tuple[Rows, ...] = ()
    bags: tuple[Bag, ...] = ()


@dataclass(frozen=True, slots=True)
class Truncate:
    """Empty these (schema, name) tables in one statement, and no other: the source names all that a cascade emptied."""

    tables: tuple[tuple[str, str], ...]
    restart: bool = False


Step = Work | Truncate


class Target(Protocol):
    """One connection to a target; made new after an AwayError."""

    def connect(self) -> None:
        """Connect and check what is needed; AwayError or OperatorError. A second call starts anew."""

    def load_row(self) -> Row | None:
        """The group's checkpoint row, or None if it has none yet."""

    def add_row(self, row: Row) -> None:
        """Make the group's row, committed and durable."""

    def table(self, schema: str, name: str) -> TargetTable | None:
        """A table's shape, or None if there is no such table."""

    def begin(self, old: Row, new: Row) -> None:
        """Open a transaction and move the row from `old` to `new` in it; PlaceLostError if it is not at `old`."""

    def apply(self, steps: tuple[Step, ...], *, rewrite: bool = False) -> None:
        """Apply all steps or none; RefusedError. `rewrite`: delete and insert rather than update."""

    def commit(self) -> None:
        """Commit; visible at once, durable by the next flush at the latest."""

    def flush(self, old: Row, new: Row) -> None:
        """Move the row, and make this and every commit before it durable; PlaceLostError."""

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back by the server."""
