"""How PostgreSQL writes what Replicat's own tables need. Plain data, no driver."""

from __future__ import annotations

from replicat.targets.contract import Words


def _make_schema(name: str) -> list[str]:
    """CREATE asks for its privilege on the database even where the schema is there: who may not is not asked to."""
    quoted, text = name.replace('"', '""'), name.replace("'", "''")
    missing = f"NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = '{text}')"
    return [f'DO $make$ BEGIN IF {missing} THEN CREATE SCHEMA IF NOT EXISTS "{quoted}"; END IF; END $make$']


WORDS = Words(
    mark="%s",
    types={"clob": "text"},
    now="now()",
    clock="clock_timestamp()",
    clock_us="SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    age="extract(epoch FROM clock_timestamp() - {})::numeric(18,6)",
    day="({} AT TIME ZONE 'UTC')::date::text",
    columns="SELECT attname::text FROM pg_attribute WHERE attnum > 0 AND attrelid = "
    "to_regclass(quote_ident(%s) || '.' || quote_ident(%s))",
    zone="+00",
    replaces=False,
    make_schema=_make_schema,
)
