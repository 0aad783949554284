"""`describe_tables`: PostgreSQL's tables as they are now, by shape, definition, indexes and foreign keys.

Rule: what a shape is stands in ddl.sql alone. Its function is asked here as a plain query, so that nothing need be
installed, and a standby answers too. A definition has what the log of this server would have: its generated columns
only where the publication has them, and the key by which the log names old rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from extract.source import Reply, Request
from extract.sources.postgres import ddl as pgddl
from extract.sources.postgres.driver import Session
from extract.sources.postgres.tables import logical
from trails.described import DescribedTable, ForeignKey, Index
from trails.errors import OperatorError
from trails.record import Column, TableDef
from trails.runtime.language.params import Pattern

PUBLISHES_GENERATED: Final = 180000
"""From this server version on a publication may have generated columns, those that are stored."""
STORED: Final = "s"

# Pages of now by rows a page as ANALYZE saw them; of a table that it never saw, by a row of about 100 bytes.
_TABLES: Final = """
SELECT c.oid, n.nspname, c.relname, c.relreplident,
    (CASE WHEN c.reltuples >= 0 AND c.relpages > 0 THEN c.reltuples / c.relpages * pg_relation_size(c.oid)
        / current_setting('block_size')::int ELSE pg_relation_size(c.oid) / 100 END)::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname NOT LIKE 'pg\\_%'
AND n.nspname NOT IN ('information_schema', 'trailgate', 'trailgate_queue') ORDER BY 2, 3
"""

_IDENTITY_INDEX: Final = """
SELECT json_agg(k.attname)::text FROM pg_index i
JOIN pg_attribute k ON k.attrelid = i.indrelid AND k.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = $1::bigint::oid AND i.indisreplident
"""

_INDEXES: Final = """
SELECT x.relname, i.indisunique AND i.indimmediate,
    m.amname = 'btree' AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
        AND (i.indimmediate OR NOT i.indisunique)
        AND NOT coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::bool, false),
    (SELECT json_agg(a.attname ORDER BY k.place)
        FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum)::text
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
WHERE i.indrelid = $1::bigint::oid AND NOT i.indisprimary AND NOT i.indisexclusion ORDER BY 1
"""

_CONSTRAINTS: Final = """
SELECT c.conname, c.contype, n.nspname, f.relname,
    (SELECT json_agg(a.attname ORDER BY k.place) FROM unnest(c.conkey) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum)::text,
    (SELECT json_agg(a.attname ORDER BY k.place) FROM unnest(c.confkey) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum)::text
FROM pg_constraint c LEFT JOIN pg_class f ON f.oid = c.confrelid LEFT JOIN pg_namespace n ON n.oid = f.relnamespace
WHERE c.conrelid = $1::bigint::oid AND c.contype IN ('f', 'c', 'x') ORDER BY 1
"""
_LEFT: Final = {"c": "check constraint", "x": "exclusion constraint"}

Shape = Mapping[str, Any]
Define = Callable[[Session, int, str, Shape], TableDef]
"""The definition by oid, replica identity, and the shape as ddl.sql has it."""
Unfit = Callable[[Session, int], str]


def describe_tables(session: Session, request: Request) -> Reply:
    """For the log."""
    return described(session, request, _definition)


def described(session: Session, request: Request, define: Define, unfit: Unfit = lambda _session, _oid: "") -> Reply:
    """The tables that the pattern names. `define`, `unfit`: what the way of capture makes of them."""
    try:
        pattern = Pattern(str(request["pattern"]))
    except ValueError as error:
        raise OperatorError(f"table {request['pattern']!r}: expected {error}") from None
    found = []
    session.query("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    for oid, schema, name, identity, rows in session.query(_TABLES):
        if not pattern.matches(schema or "", name or ""):
            continue
        shape = _shape(session, int(oid or 0))
        if shape is not None:
            made = define(session, int(oid or 0), identity or "", shape)
            why = unfit(session, int(oid or 0))
            found.append(_table(session, int(oid or 0), shape, made, max(0, int(rows or 0)), why).to_wire())
    session.query("COMMIT")
    return {"tables": found}


def _shape(session: Session, oid: int) -> Shape | None:
    """None of a table that was dropped since."""
    (text,) = session.one(pgddl.shape_query(), oid)
    found: Shape | None = json.loads(text or "null")
    return found


def _table(session: Session, oid: int, shape: Shape, definition: TableDef, rows: int, unfit: str) -> DescribedTable:
    indexes, keys, left = [], [], []
    for name, unique, plain, columns in session.query(_INDEXES, oid):
        if plain == "t":
            indexes.append(Index(name or "", tuple(json.loads(columns or "[]")), unique == "t"))
        else:
            left.append(f"index {name}")
    for name, kind, schema, table, columns, others in session.query(_CONSTRAINTS, oid):
        if kind == "f":
            own, theirs = tuple(json.loads(columns or "[]")), tuple(json.loads(others or "[]"))
            keys.append(ForeignKey(name or "", own, schema or "", table or "", theirs))
        else:
            left.append(f"{_LEFT[kind or 'c']} {name}")
    made = pgddl.table_shape(shape)
    return DescribedTable(made, definition, rows, tuple(indexes), tuple(keys), tuple(left), unfit)


def _definition(session: Session, oid: int, identity: str, shape: Shape) -> TableDef:
    """As a Relation message has it, its key as tables.Catalogue believes it."""
    key: list[str] = []
    if identity in "df":
        key = shape["key"]
    elif identity == "i":
        (found,) = session.one(_IDENTITY_INDEX, oid)
        key = json.loads(found or "[]")
    sent = ("", STORED) if session.server_version >= PUBLISHES_GENERATED else ("",)
    columns = tuple(
        Column(c["name"], logical(str(c["base"]), c["kind"], c["category"]), c["native"], c["name"] in key)
        for c in shape["columns"]
        if c["generated"] in sent
    )
    return TableDef(shape["schema"], shape["name"], columns)
