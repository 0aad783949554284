"""Shapes of PostgreSQL tables, read from the catalog: however many tables are asked for, the same few queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from replicat.model.target import TargetColumn, TargetTable
from replicat.targets.sql.ranks import ranks
from trails.errors import OperatorError
from trails.record import TableId

Ask = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]


def shapes(ask: Ask, places: Iterable[TableId], *, fires: bool) -> dict[TableId, TargetTable]:
    """Those of these tables that exist. `fires`: triggers and cascades would fire, and foreign keys are checked.

    Else, in the replica role, only those triggers and rules fire that are enabled as REPLICA or ALWAYS.
    """
    wanted = list(dict.fromkeys(places))
    found = ask(_TABLES, [[schema for schema, _ in wanted], [name for _, name in wanted]]) if wanted else []
    for schema, name, _, unlogged in found:
        if unlogged:
            raise OperatorError(
                f"target table {schema}.{name} is UNLOGGED: a crash of the server would empty it, and the "
                "checkpoint row would not know",
                hint=f"ALTER TABLE {schema}.{name} SET LOGGED",
            )
    oids = [oid for _, _, oid, _ in found]
    columns = _grouped(ask(_COLUMNS, [oids])) if oids else {}
    primary = {oid: (tuple(names), name) for oid, names, name in ask(_PRIMARY, [oids])} if oids else {}
    unique = _grouped(ask(_UNIQUE, [oids])) if oids else {}
    others = {oid for (oid,) in ask(_OTHER_UNIQUE, [oids])} if oids else set()
    fired = _grouped(ask(_FIRES, [oids, ["O", "A"] if fires else ["R", "A"], oids, fires])) if oids else {}
    edges = ask(_EDGES, []) if oids and fires else []
    ranked = ranks((child, parent) for child, parent, *_ in edges if child != parent)
    cascaded = {child for child, _, cascades, _ in edges if cascades}
    cascades = {parent for _, parent, _, acts in edges if acts}
    others |= {oid for child, parent, *_ in edges for oid in (child, parent)}
    return {
        (schema, name): TargetTable(
            schema,
            name,
            tuple(_column(*column) for column in columns.get(oid, ())),
            tuple(frozenset(names) for (names,) in unique.get(oid, ())),
            tuple(what for (what,) in fired.get(oid, ())),
            ranked.get(oid, 0),
            oid in cascaded,
            oid in cascades,
            *primary.get(oid, ((), "")),
            across=oid in others,
        )
        for schema, name, oid, _ in found
    }


def _column(*facts: Any) -> TargetColumn:
    *known, labels = facts
    return replace(TargetColumn(*known), labels=tuple(labels or ()))


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    groups: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for oid, *rest in rows:
        groups[oid].append(tuple(rest))
    return groups


_TABLES = """
SELECT n.nspname::text, c.relname::text, c.oid::bigint, c.relpersistence = 'u'
FROM unnest(%s::text[], %s::text[]) AS w(schema, name)
JOIN pg_namespace n ON n.nspname = w.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
WHERE c.relkind IN ('r', 'p')
"""
# Not soft: two values are equal only if their canonical texts are. A precision of the column's own is coarser.
_COLUMNS = """
SELECT a.attrelid::bigint, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '',
    a.attidentity = 'a', coalesce(own.equal, '='),
    NOT (CASE WHEN b.typtype = 'e' THEN true
        WHEN b.typname IN ('int2', 'int4', 'int8', 'oid', 'uuid', 'bool', 'date', 'bytea') THEN true
        WHEN b.typname IN ('timestamp', 'timestamptz', 'time') THEN a.atttypmod = -1 AND t.typtypmod = -1
        WHEN b.typname IN ('text', 'varchar', 'name') THEN coalesce(l.collisdeterministic, true)
        ELSE false END),
    (SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e
        WHERE e.enumtypid IN (b.oid, CASE WHEN b.typcategory = 'A' THEN b.typelem END))
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_collation l ON l.oid = a.attcollation
LEFT JOIN LATERAL (
    SELECT format('OPERATOR(%%I.%%s)', n.nspname, o.oprname) AS equal
    FROM pg_opclass c JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amopstrategy = 3
        AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
    JOIN pg_am ON pg_am.oid = c.opcmethod AND amname = 'btree'
    JOIN pg_operator o ON o.oid = m.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
    WHERE c.opcdefault AND c.opcintype IN (t.oid, t.typbasetype) AND n.nspname <> 'pg_catalog' LIMIT 1
) own ON b.oid >= 16384 WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
_PRIMARY = """
SELECT c.conrelid::bigint, (SELECT array_agg(a.attname::text ORDER BY k.place)
    FROM unnest(c.conkey) WITH ORDINALITY AS k(attnum, place)
    JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum), c.conname::text
FROM pg_constraint c WHERE c.conrelid = ANY(%s::oid[]) AND c.contype = 'p'
"""
_UNIQUE = """
SELECT i.indrelid::bigint, array_agg(a.attname::text) FROM pg_index i
JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts - 1]) AS k(attnum) ON true
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = ANY(%s::oid[]) AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
    AND i.indexprs IS NULL
GROUP BY i.indrelid, i.indexrelid
"""
_OTHER_UNIQUE = """
SELECT DISTINCT indrelid::bigint FROM pg_index
WHERE indrelid = ANY(%s::oid[]) AND indisready AND (indisexclusion OR (
    indisunique AND NOT (indisvalid AND indimmediate AND indpred IS NULL AND indexprs IS NULL)))
"""
# Rows of a partitioned table fire the triggers of their partitions too.
_FIRES = """
WITH of AS (
    SELECT t.oid, p.relid FROM unnest(%s::oid[]) AS t(oid), LATERAL (
        SELECT t.oid AS relid UNION SELECT relid::oid FROM pg_partition_tree(t.oid)) AS p
), states AS (SELECT %s::text[] AS firing)
SELECT DISTINCT of.oid::bigint, 'trigger ' || tgname FROM of JOIN pg_trigger ON tgrelid = of.relid, states
WHERE NOT tgisinternal AND tgenabled::text = ANY(firing)
UNION ALL
SELECT DISTINCT of.oid::bigint, 'rule ' || rulename FROM of JOIN pg_rewrite ON ev_class = of.relid, states
WHERE ev_type <> '1' AND ev_enabled::text = ANY(firing)
UNION ALL
SELECT confrelid::bigint, 'cascade of ' || conname FROM pg_constraint
WHERE confrelid = ANY(%s::oid[]) AND %s AND contype = 'f'
    AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))
ORDER BY 1, 2
"""
_EDGES = """
SELECT conrelid::bigint, confrelid::bigint, confdeltype = 'c', confdeltype IN ('c', 'n', 'd')
FROM pg_constraint WHERE contype = 'f'
"""

TYPES = """
SELECT w.name, t.typtype = 'e', r.rolsuper OR r.rolname = current_user, r.rolname::text
FROM unnest(%s::text[]) AS w(name) JOIN pg_type t ON t.oid = to_regtype(w.name) JOIN pg_roles r ON r.oid = t.typowner
"""
"""Types by their quoted names: whether it is an enum, whether its owner is trusted, who that is."""
