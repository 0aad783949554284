"""PostgreSQL's keys as ranges: which order Python and the server agree on, as SQL.

A column's order agrees as it is where it is a whole number, a uuid, bytea, or text with a byte-order collation. Of any
other column the canonical text is compared by its bytes, and no index helps. Text of a database whose encoding does not
sort as UTF-8 does is converted for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from replicat.model.loading import BYTES, INT
from replicat.reading.contract import OtherShapeError, Range, no_columns
from replicat.targets.sql.quoting import dotted, ident
from trails.errors import OperatorError
from trails.record import TableDef

_WHOLE: Final = ("smallint", "integer", "bigint")
_AS_UTF8: Final = ("UTF8", "SQL_ASCII", "LATIN1")
"""Encodings whose bytes sort as the UTF-8 of the same text, or as the bytes that readers get."""

# A domain is its base type all the way down.
_COLUMNS: Final = """
WITH RECURSIVE base AS (
    SELECT a.attnum, a.atttypid AS oid FROM pg_attribute a WHERE a.attrelid = %(table)s
    UNION ALL SELECT b.attnum, t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
)
SELECT a.attname::text, a.attnum, t.oid::bigint, CASE co.collprovider
    WHEN 'b' THEN true WHEN 'c' THEN co.collcollate IN ('C', 'POSIX')
    WHEN 'd' THEN CASE coalesce(to_jsonb(d) ->> 'datlocprovider', 'c') WHEN 'b' THEN true
        WHEN 'c' THEN d.datcollate IN ('C', 'POSIX') ELSE false END
    ELSE false END
FROM pg_attribute a JOIN base b ON b.attnum = a.attnum JOIN pg_type t ON t.oid = b.oid AND t.typtype <> 'd'
LEFT JOIN pg_collation co ON co.oid = a.attcollation CROSS JOIN pg_database d
WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped AND d.datname = current_database()
"""
_INDEXES: Final = """
SELECT (i.indkey[0:i.indnkeyatts - 1])::int[] FROM pg_index i
JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
WHERE i.indrelid = %(table)s AND m.amname = 'btree' AND i.indisvalid AND i.indpred IS NULL
AND NOT EXISTS (SELECT FROM unnest(i.indkey[0:i.indnkeyatts - 1]::int[], i.indcollation[0:i.indnkeyatts - 1]::oid[])
    AS k (attnum, coll) JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE a.attcollation <> k.coll)
"""


@dataclass(frozen=True)
class KeyColumn:
    """A column of a key. `order`: of loading.ORDERS; `native`: the server's own order is that; `shown`: the canonical
    text in SQL; `compared`: what is compared in SQL, and `literal` its other side, with %s for a quoted text.
    """

    order: str
    native: bool
    shown: str
    compared: str
    literal: str = "%s"


@dataclass(frozen=True)
class Keys:
    """A table as ranges see it. `source`: it, for FROM; `indexed`: so many columns of the key, a range of which an
    index finds. `types`: by column, the number of its type, or of what its domain is made of.
    """

    oid: int
    source: str
    columns: tuple[KeyColumn, ...]
    indexed: int
    types: Mapping[str, int]

    @property
    def chunked(self) -> tuple[KeyColumn, ...]:
        """The columns that chunks go by."""
        return self.columns[: max(1, self.indexed)]


def keys_of(conn: psycopg.Connection[Any], table: TableDef) -> Keys:
    """Ask the catalog. Raises OperatorError where the table is not that of the definition."""
    name = dotted(table.schema, table.name)
    found = conn.execute(
        "SELECT c.oid::bigint, c.relkind::text, current_setting('server_encoding') FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s "
        "AND c.relkind IN ('r', 'p')",
        [table.schema, table.name],
    ).fetchone()
    if found is None:
        raise OperatorError(f"the source database has no table {table.full_name}", hint="Mend SOURCEDB, or the MAP")
    oid, kind, encoding = found
    columns = {row[0]: row[1:] for row in conn.execute(_COLUMNS, {"table": oid})}
    if missing := [c.name for c in table.columns if c.type != "token" and c.name not in columns]:
        raise no_columns(table, missing)
    indexes = [row[0] for row in conn.execute(_INDEXES, {"table": oid})]
    made = []
    for i in table.key:
        _, base, bytewise = columns[table.columns[i].name]
        made.append(_key_column(table.columns[i].name, table.columns[i].type, base, encoding, bytewise=bool(bytewise)))
    key = [columns[table.columns[i].name][0] for i in table.key]
    indexed = 0
    while indexed < len(key) and made[indexed].native and any(key[: indexed + 1] == x[: indexed + 1] for x in indexes):
        indexed += 1
    # A parent's rows never are its children's: each table is captured under its own name.
    types = {column: row[1] for column, row in columns.items()}
    return Keys(oid, name if kind == "p" else f"ONLY {name}", tuple(made), indexed, types)


def _key_column(name: str, logical: str, base: int, encoding: str, *, bytewise: bool) -> KeyColumn:
    it = ident(name)
    if logical in _WHOLE:
        return KeyColumn(INT, True, f"{it}::text", it)
    if logical == "uuid":
        return KeyColumn(BYTES, True, f"{it}::text", it)
    if logical == "bytes":
        return KeyColumn(BYTES, True, f"encode({it}, 'hex')", it, "decode(%s, 'hex')")
    if base in _TEXTS and bytewise and encoding in _AS_UTF8:
        return KeyColumn(BYTES, True, f"{it}::text", it)
    # What concat() gives is the type's own output: a cast would take the padding from char(n).
    shown = f"CASE WHEN {it} THEN 'true' ELSE 'false' END" if logical == "boolean" else f"concat({it})"
    if encoding in _AS_UTF8:
        return KeyColumn(BYTES, False, shown, f'({shown}) COLLATE "C"')
    return KeyColumn(BYTES, False, shown, f"convert_to({shown}, 'UTF8')", "convert_to(%s, 'UTF8')")


_TEXTS: Final = (25, 1043, 19)
"""text, varchar and name."""


def condition(keys: Keys, table: TableDef, part: Range) -> str:
    """A range as a condition in SQL. Raises OperatorError where the key is not what the range was made of."""
    count = len(part.orders)
    columns = keys.columns[:count]
    if tuple(column.order for column in columns) != part.orders:
        raise OtherShapeError(
            f"table {table.full_name} has a key of {', '.join(c.order for c in keys.columns) or 'no columns'}, "
            f"expected {', '.join(part.orders)}, by which its chunks were made",
            hint="Its shape has changed since: begin its load anew",
        )
    row = f"({', '.join(column.compared for column in columns)})"
    found = [
        f"{row} {sign} ({', '.join(c.literal % literal(text) for c, text in zip(columns, border, strict=True))})"
        for sign, border in ((">=", part.low), ("<", part.high or ()))
        if border
    ]
    return " AND ".join(found) or "true"


def literal(text: str) -> str:
    """Text in SQL, whatever the server's settings are."""
    text = text.replace("'", "''")
    return "E'" + text.replace("\\", "\\\\") + "'" if "\\" in text else f"'{text}'"


def wire(statement: str) -> bytes:
    """A statement as the server gets it: text of an SQL_ASCII database may be no UTF-8."""
    return statement.encode("utf-8", "surrogateescape")
