"""PostgreSQL's tables and types as the trail describes them: Relation messages, and what only the catalogue knows.

What a Relation message says (columns, types, replica identity at that place of the WAL) is exact and is used as it is.
Two things are asked of the catalogue, which knows only today: how the types are called, and, with REPLICA IDENTITY
FULL, which columns are the primary key (FULL flags them all).

The race: a Relation may describe the past while a DDL has changed the table since. A key that did not hold back then
would be harmful: two rows alike in it would count as one, and one of them would be lost. A missing key never is: with
FULL each change carries its whole old row, and a table without a key is applied change by change, by whole rows. So the
primary key of today counts only if the Relation's columns are among those of today, in order, and if the key's index
was made before the transaction began that the Relation belongs to (by transaction numbers). A DDL transaction that took
its number long before it touched the table can slip through. A key that was not believed is asked for again with the
next transaction. With identity default or index the key is the message's own: no race.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from extract.sources.postgres.driver import Session
from extract.sources.postgres.pgoutput import Fix, Relation, Shape, fix_bool, fix_bytea
from trails.record import Column, TableDef

LOGICAL: Final[dict[int, str]] = {
    16: "boolean", 17: "bytes", 21: "smallint", 23: "integer", 20: "bigint", 26: "bigint", 700: "real", 701: "double",
    1700: "decimal", 25: "text", 1043: "text", 1042: "char", 18: "text", 19: "text", 1082: "date", 1083: "time",
    1266: "timetz", 1114: "timestamp", 1184: "timestamptz", 1186: "interval", 114: "json", 3802: "json", 2950: "uuid",
    142: "xml", 1560: "bits", 1562: "bits", 790: "money",
}  # fmt: skip
"""Logical type by type oid; docs/values.md gives each one's text. All others are `array`, `enum`, ... or `other`."""

QUEUE_SCHEMA: Final = "trailgate_queue"
"""Where TRIGGERLOG keeps its queue."""
_BY_KIND: Final = {"e": "enum", "c": "composite", "r": "range", "m": "range"}
_FIXES: Final[dict[str, Fix]] = {"boolean": fix_bool, "bytes": fix_bytea}
_XIDS: Final = 1 << 32

# A domain is its base type all the way down; a type that is gone by now has no row here.
_TYPES: Final = """
WITH RECURSIVE given AS (
    SELECT n, oid::oid AS oid, typmod::int AS typmod
    FROM unnest(string_to_array($1, ',')::bigint[], string_to_array($2, ',')::int[]) WITH ORDINALITY AS g (oid, typmod,
    n) ), base AS ( SELECT n, oid AS base FROM given UNION ALL SELECT b.n, t.typbasetype FROM base b JOIN pg_type t ON
    t.oid = b.base WHERE t.typtype = 'd' ) SELECT g.n, format_type(g.oid, g.typmod), t.oid, t.typtype, t.typcategory
    FROM given g LEFT JOIN (base b JOIN pg_type t ON t.oid = b.base AND t.typtype <> 'd') ON b.n = g.n ORDER BY g.n
"""

_KEY: Final = """
SELECT (SELECT json_agg(attname ORDER BY attnum) FROM pg_attribute a
        WHERE a.attrelid = i.indrelid AND a.attnum > 0 AND NOT a.attisdropped)::text,
       json_agg(k.attname)::text, i.xmin::text, (pg_snapshot_xmax(pg_current_snapshot())::text::numeric %
       4294967296)::text FROM pg_index i JOIN pg_attribute k ON k.attrelid = i.indrelid AND k.attnum = ANY
       (i.indkey[0:i.indnkeyatts - 1]) WHERE i.indrelid = $1::bigint::oid AND i.indisprimary AND i.indisvalid AND
       i.indimmediate GROUP BY i.indrelid, i.xmin::text
"""


class Catalogue:
    """Gives the shape of tables; `session` gives the ordinary connection to ask."""

    def __init__(
        self,
        session: Callable[[], Session],
        captures: Callable[[str, str], bool],
        befores: Callable[[str, str], str] = lambda _schema, _name: "",
    ) -> None:
        """`befores`: who wants the whole old rows of a table (file:line); empty: nobody."""
        self._session = session
        self._captures = captures
        self._befores = befores

    def describe(self, relation: Relation, xid: int) -> Shape | None:
        """The shape of a captured table, None for any other. `xid` is the transaction that the Relation came in."""
        if not self._captures(relation.schema, relation.name):
            return None
        key, provisional = self._key(relation, xid)
        columns = tuple(
            Column(c.name, kind, native, c.name in key)
            for c, (kind, native) in zip(relation.columns, self._types(relation), strict=True)
        )
        fixes = tuple((i, _FIXES[c.type]) for i, c in enumerate(columns) if c.type in _FIXES)
        befores = self._befores(relation.schema, relation.name)
        return Shape(TableDef(relation.schema, relation.name, columns), fixes, provisional, befores)

    def _types(self, relation: Relation) -> list[tuple[str, str]]:
        """(logical type, native type) of each column."""
        if not relation.columns:
            return []
        oids = ",".join(str(c.type_oid) for c in relation.columns)
        typmods = ",".join(str(c.typmod) for c in relation.columns)
        rows = self._session().query(_TYPES, oids, typmods)
        return [(logical(oid, kind, category), native or "") for _, native, oid, kind, category in rows]

    def _key(self, relation: Relation, xid: int) -> tuple[set[str], bool]:
        """(names of the key columns, whether to ask again soon); see the module for when the catalogue is believed."""
        if relation.identity in "di":
            return {c.name for c in relation.columns if c.key}, False
        found = self._session().query(_KEY, relation.oid)
        if not found:
            return set(), False
        columns, key, made_by, newest = (json.loads(text or "0") for text in found[0])
        made_since = (made_by - xid) % _XIDS <= (newest - xid) % _XIDS
        names = [c.name for c in relation.columns]
        if made_since or not _is_within(names, columns) or not set(key) <= set(names):
            return set(), True
        return set(key), False


def _is_within(some: list[str], names: list[str]) -> bool:
    """Whether `some` are among `names`, in that order.

    A publication may leave columns out; it never changes their order.
    """
    rest = iter(names)
    return all(name in rest for name in some)


def logical(oid: str | None, kind: str | None, category: str | None) -> str:
    """The logical type of a base type, by its oid, kind (typtype) and category."""
    known = LOGICAL.get(int(oid or 0))
    if known:
        return known
    if category == "A":
        return "array"
    return _BY_KIND.get(kind or "", "other")
