"""Random streams of pgoutput as a server may send them, and broken ones: for comparing two forms of the decoder.

Tables of each replica identity; booleans and binary values; NULLs, values out of line that are left out, changed keys;
changes of shape, heartbeats, tables that come again with other columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from extract.sources.postgres.pgoutput import EPOCH_US, FIXES, Relation, RelationColumn, Shape
from tests.support import pgwire
from tests.support.pgwire import UNCHANGED
from trails.ddl import DdlChange, DdlColumn, TableShape
from trails.record import Column, TableDef
from trails.runtime.language.heartbeattable import HeartbeatTable

TEXT, BOOL, BYTEA, NUMBER = 25, 16, 17, 20
_TYPES = {TEXT: "text", BOOL: "boolean", BYTEA: "bytes", NUMBER: "bigint"}
_SIZES = (0, 1, 2, 5, 31, 32, 33, 200, 255, 256, 300, 4000)
_POOLS = (b"abcdefgh", b"ab\tc\nd\\e\rf", b"\xff\xfe\x80a", "äöü".encode(), b"N\3x")
DDL = "trailgate.ddl"
OWNER = "home/EXT1"


def table(oid: int, name: str, identity: str, *columns: tuple[str, int, bool]) -> Relation:
    """Its columns: (name, type, whether it is part of the key)."""
    given = tuple(RelationColumn(n, kind, -1, key or identity == "f") for n, kind, key in columns)
    return Relation(oid, "public", name, identity, given)


_SEED = HeartbeatTable()
TABLES = (
    table(1, "plain", "d", ("id", NUMBER, True), ("a", TEXT, False), ("b", TEXT, False)),
    table(2, "flags", "d", ("x", TEXT, False), ("id", NUMBER, True), ("ok", BOOL, False), ("y", BYTEA, False)),
    table(3, "whole", "f", ("a", TEXT, False), ("id", NUMBER, True), ("ok", BOOL, False), ("t", TEXT, False)),
    table(4, "wide", "d", *((f"c{i}", NUMBER if i == 3 else TEXT, i == 3) for i in range(20))),
    table(5, "keyless", "f", ("a", TEXT, False), ("b", BYTEA, False)),
    table(6, "pair", "d", ("a", TEXT, True), ("b", BOOL, True), ("c", TEXT, False)),
    table(7, "nothing", "n", ("a", TEXT, False)),
    table(8, "left_out", "d", ("id", NUMBER, True)),
    table(9, "befores", "f", ("id", NUMBER, True), ("v", TEXT, False)),
)
SEED = Relation(
    20, _SEED.schema, _SEED.seed, "d",
    tuple(RelationColumn(name, TEXT, -1, name == "extract_key")
          for name in ("extract_key", "local_database", "heartbeat_timestamp", "frequency")),
)  # fmt: skip
_KEYS = {"whole": {"id"}, "keyless": set(), "befores": {"id"}}


def describe(relation: Relation, _xid: int) -> Shape | None:
    """As a catalogue would."""
    if relation.name == "left_out":
        return None
    key = _KEYS.get(relation.name, {c.name for c in relation.columns if c.key and relation.identity == "d"})
    columns = tuple(Column(c.name, _TYPES.get(c.type_oid, "text"), "x", c.name in key) for c in relation.columns)
    fixes = tuple((i, FIXES[c.type == "bytes"]) for i, c in enumerate(columns) if c.type in ("boolean", "bytes"))
    befores = "e.prm:4" if relation.name == "befores" else ""
    return Shape(TableDef(relation.schema, relation.name, columns), fixes, relation.name == "pair", befores)


class Ddl:
    """Tells of the change that a message names."""

    def change(self, content: bytes, born: set[int], where: str) -> DdlChange | None:
        """As DdlReader's."""
        shape = TableShape("public", content.decode("utf-8", "replace"), (DdlColumn("id", "bigint", "x", 1),))
        return DdlChange("CREATE", None, shape, "CREATE TABLE")

    def born(self, oid: int, xid: int, where: str) -> tuple[bool, DdlChange | None]:
        """As DdlReader's."""
        return oid == 6, None


@dataclass
class Stream:
    """Messages of some transactions. `ends`: of each, the LSN behind it and how many messages reach up to there."""

    chance: Random
    messages: list[bytes] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    _lsn: int = 1 << 33
    _fresh: int = 10_000
    _known: set[int] = field(default_factory=set)

    @classmethod
    def drawn(cls, chance: Random) -> Stream:
        """Some transactions; mostly small ones."""
        made = cls(chance)
        for number in range(chance.randint(1, 15)):
            made._transaction(number)
        return made

    def broken(self) -> list[bytes]:
        """The messages, one of them cut, lengthened or changed."""
        at = self.chance.randrange(len(self.messages))
        message = self.messages[at]
        where = self.chance.randrange(len(message))
        changed = message[:where] + bytes([self.chance.randrange(256)]) + message[where + 1 :]
        made = self.chance.choice([message[:-1], message + b"x", message[:where], changed, changed])
        return [*self.messages[:at], made, *self.messages[at + 1 :]]

    def _transaction(self, number: int) -> None:
        chance, final = self.chance, self._lsn + 5_000_000
        when = EPOCH_US + chance.choice([10**15, 10**15, 10**17, -(10**14)]) + number
        self.messages.append(pgwire.begin(final, 700 + number, when))
        if chance.random() < 0.1:
            self._say(SEED, pgwire.insert(SEED.oid, self._beat()))
        for _ in range(chance.choice([0, 1, 1, 2, 10, 60])):
            self._change(chance.choice(TABLES))
        self.messages.append(pgwire.commit(final, final + 100, when))
        self._lsn = final + 100
        self.ends.append((self._lsn, len(self.messages)))

    def _beat(self) -> list[bytes]:
        own = self.chance.choice([OWNER, OWNER, "other/EXT1"])
        return [own.encode(), b"shop", b"2026-01-01 00:00:00+00", self.chance.choice([b"60", b"60", b"x"])]

    def _say(self, relation: Relation, message: bytes) -> None:
        if relation.oid not in self._known or self.chance.random() < 0.01:
            self._known.add(relation.oid)
            self.messages.append(pgwire.relation(relation))
        self.messages.append(message)

    def _change(self, relation: Relation) -> None:
        chance, kind = self.chance, self.chance.random()
        if kind < 0.4:
            self._say(relation, pgwire.insert(relation.oid, self._row(relation)))
        elif kind < 0.8 and relation.identity != "n":
            self._say(relation, self._update(relation))
        elif kind < 0.97 and relation.identity != "n":
            old = self._row(relation) if relation.identity == "f" else self._key_row(relation)
            self._say(relation, pgwire.delete(relation.oid, old, b"O" if relation.identity == "f" else b"K"))
        elif kind > 0.99:
            self._say(relation, pgwire.truncate([relation.oid], chance.randint(0, 3)))
        elif kind > 0.98:
            self.messages.append(pgwire.message(chance.choice([DDL, "other"]), b"made"))

    def _update(self, relation: Relation) -> bytes:
        chance, new = self.chance, self._row(relation, holes=self.chance.random() < 0.3)
        if relation.identity == "f":
            old = self._row(relation)
            for i, column in enumerate(relation.columns):
                if column.name == "id" and chance.random() < 0.9:
                    old[i] = new[i]
            return pgwire.update(relation.oid, new, old)
        if chance.random() < 0.8:
            return pgwire.update(relation.oid, new)
        return pgwire.update(relation.oid, new, self._key_row(relation), b"K")

    def _key_row(self, relation: Relation) -> list[Any]:
        row = self._row(relation)
        return [value if column.key else None for value, column in zip(row, relation.columns, strict=True)]

    def _row(self, relation: Relation, *, holes: bool = False) -> list[Any]:
        return [
            UNCHANGED if holes and c.type_oid == TEXT and not c.key and self.chance.random() < 0.3 else self._value(c)
            for c in relation.columns
        ]

    def _value(self, column: RelationColumn) -> bytes | None:
        chance = self.chance
        if chance.random() < 0.1 and (column.name != "id" or chance.random() < 0.05):
            return None
        if column.type_oid == NUMBER:
            self._fresh += 1
            return b"%d" % chance.choice([self._fresh, chance.randint(-50, 50)])
        if column.type_oid == BOOL:
            return chance.choice([b"t", b"f"]) if chance.random() < 0.999 else b"x"
        size = chance.choice(_SIZES) if chance.random() < 0.99 else 70_000
        pool = chance.choice(_POOLS)
        text = (pool[chance.randrange(len(pool)) :] + pool * (size // len(pool) + 1))[:size]
        if column.type_oid == BYTEA:
            return b"\\x" + text.hex().encode() if chance.random() < 0.999 else text
        return text
