"""pgoutput messages as a server makes them, for tests of the decoder."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from extract.sources.postgres.pgoutput import EPOCH_US, Relation, RelationColumn, Shape
from trails.ddl import DdlChange
from trails.position import Position
from trails.record import Column, Op, Record, TableDef

UNCHANGED = object()
"""A value that the server leaves out because it did not change (TOAST)."""


def begin(final: int, xid: int = 7, time_us: int = EPOCH_US) -> bytes:
    """B."""
    return b"B" + struct.pack(">QqI", final, time_us - EPOCH_US, xid)


def commit(final: int, end: int | None = None, time_us: int = EPOCH_US) -> bytes:
    """C."""
    return b"C" + struct.pack(">BQQq", 0, final, final + 8 if end is None else end, time_us - EPOCH_US)


def relation(r: Relation) -> bytes:
    """R."""
    columns = b"".join(
        struct.pack(">B", c.key) + c.name.encode() + b"\0" + struct.pack(">Ii", c.type_oid, c.typmod) for c in r.columns
    )
    names = r.schema.encode() + b"\0" + r.name.encode() + b"\0"
    return b"R" + struct.pack(">I", r.oid) + names + r.identity.encode() + struct.pack(">H", len(r.columns)) + columns


def image(values: Sequence[Any]) -> bytes:
    """A tuple of the wire: bytes, None or UNCHANGED."""
    made = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            made += b"n"
        elif value is UNCHANGED:
            made += b"u"
        else:
            made += b"t" + struct.pack(">I", len(value)) + value
    return made


def insert(oid: int, values: Sequence[Any]) -> bytes:
    """I."""
    return b"I" + struct.pack(">I", oid) + b"N" + image(values)


def update(oid: int, new: Sequence[Any], old: Sequence[Any] | None = None, kind: bytes = b"O") -> bytes:
    """U, with an old row or key if `old` is given."""
    before = b"" if old is None else kind + image(old)
    return b"U" + struct.pack(">I", oid) + before + b"N" + image(new)


def delete(oid: int, old: Sequence[Any], kind: bytes = b"O") -> bytes:
    """D."""
    return b"D" + struct.pack(">I", oid) + kind + image(old)


def truncate(oids: Sequence[int], flags: int = 0) -> bytes:
    """T."""
    return b"T" + struct.pack(f">IB{len(oids)}I", len(oids), flags, *oids)


def table(oid: int = 1, name: str = "t", identity: str = "d", columns: str = "id* v", kind: int = 25) -> Relation:
    """A relation `public.name`; `*` marks the columns of its replica identity."""
    return Relation(
        oid, "public", name, identity, tuple(RelationColumn(c.rstrip("*"), kind, -1, "*" in c) for c in columns.split())
    )


def message(prefix: str, content: bytes, *, transactional: bool = True, lsn: int = 1) -> bytes:
    """M."""
    head = struct.pack(">BQ", transactional, lsn) + prefix.encode() + b"\0"
    return b"M" + head + struct.pack(">I", len(content)) + content


@dataclass
class ListSink:
    """A sink that keeps everything: records, and what else was called."""

    records: list[Record] = field(default_factory=list)
    cache: dict[Any, Any] = field(default_factory=dict)
    tables: list[TableDef] = field(default_factory=list)
    commits: list[tuple[int, str]] = field(default_factory=list)
    begins: list[str] = field(default_factory=list)
    origin: Position = field(default=Position(0, 0))

    def table(self, definition: TableDef) -> int:
        """See Sink."""
        if definition not in self.tables:
            self.tables.append(definition)
        return self.tables.index(definition)

    def keeps(self, definition: TableDef, column: int) -> bool:
        """See Sink."""
        return True

    def ddl(self, change: DdlChange) -> None:
        """See Sink."""
        self.cache.clear()
        self.records.append((int(Op.DDL), change.to_wire()))

    def begin(self, csn: str, xid: str, commit_us: int) -> None:
        """See Sink."""
        self.begins.append(csn)

    def commit(self, origin: Position, csn: str, commit_us: int) -> None:
        """See Sink."""
        self.origin = origin
        self.commits.append((origin.rba, csn))

    def grew(self, size: int) -> None:
        """See Sink."""

    def reached(self, origin: Position, time_us: int) -> None:
        """See Sink."""

    def abandon(self) -> None:
        """See Sink."""


def shape_of(relation: Relation, xid: int) -> Shape:
    """Describe without a catalogue: the key is what the message says, but for full."""
    key = relation.identity in "di"
    columns = tuple(Column(c.name, "text", "text", key and c.key) for c in relation.columns)
    return Shape(TableDef(relation.schema, relation.name, columns))
