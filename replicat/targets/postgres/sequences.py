"""FOLLOWSEQUENCES: sequences that belong to a column stay ahead of the values that replication writes there.

Whoever makes the target the source one day inserts rows of his own: without this he meets values that are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from replicat.targets.postgres.sql import literal
from replicat.targets.sql.quoting import dotted, ident

Ask = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]

_OWNED = """
SELECT n.nspname::text, c.relname::text, a.attname::text, sn.nspname::text, sc.relname::text, s.seqincrement > 0
FROM unnest(%s::text[], %s::text[]) AS w(schema, name)
JOIN pg_namespace n ON n.nspname = w.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.classid = 'pg_class'::regclass
    AND d.deptype IN ('a', 'i') AND d.refobjsubid > 0
JOIN pg_sequence s ON s.seqrelid = d.objid JOIN pg_class sc ON sc.oid = d.objid
JOIN pg_namespace sn ON sn.oid = sc.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid
"""


def follow(ask: Ask, places: Sequence[tuple[str, str]]) -> None:
    """Move the sequences of these tables' columns to the largest value there, never back."""
    owned = ask(_OWNED, [[schema for schema, _ in places], [name for _, name in places]])
    for schema, name, column, sequence_schema, sequence, up in owned:
        own, most, beyond = dotted(sequence_schema, sequence), "max" if up else "min", ">" if up else "<"
        ask(
            f"SELECT setval({literal(own)}::regclass, t.most) FROM (SELECT {most}({ident(column)}) AS most "
            f"FROM {dotted(schema, name)}) t, {own} s "
            f"WHERE t.most {beyond} s.last_value OR (t.most = s.last_value AND NOT s.is_called)",
            [],
        )
