"""The SQL that the PostgreSQL target sends: pure text from a Layout, no driver."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from replicat.model.copytext import fields_of
from replicat.model.target import Blob, Compare, Layout, Match
from replicat.targets.sql.quoting import ident
from replicat.targets.sql.staged_sql import NUMBER, StagedSql

_COMPARABLE = re.compile(
    r"(smallint|integer|bigint|numeric|text|character|uuid|date|time|interval|boolean|bytea|oid|inet|cidr|macaddr)\b[^\[]*\Z"
)
# What json_to_recordset reads as the type's own input function does: no arrays, no json, nothing that may be a domain.
_PLAIN = re.compile(
    r"(smallint|integer|bigint|numeric|text|character|uuid|date|time|timestamp|interval|boolean|bytea|oid|real"
    r"|double precision|inet|cidr|macaddr|bit)\b[^\[]*\Z"
)

SESSION = """
SET DateStyle = 'ISO, MDY'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC'; SET extra_float_digits = 1;
SET bytea_output = 'hex'; SET lc_monetary = 'C'; SET client_encoding = 'UTF8'; SET search_path = pg_catalog, pg_temp;
SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
SET client_min_messages = 'warning'; SET xmloption = 'content'; SET jit = off; SET standard_conforming_strings = on;
SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3
"""
BY_INDEX = "SET enable_hashjoin = off; SET enable_mergejoin = off"
"""Staged rows come in the order of the key's index: walking along it costs less than reading the table."""
BY_TABLE = "SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on"
"""For a table without such an index, which is read once for all staged rows."""


def literal(text: str) -> str:
    """A quoted string, standard_conforming_strings being on."""
    return "'" + text.replace("'", "''") + "'"


class PostgresSql(StagedSql):
    """All statements for one layout."""

    prefix = "pg_temp."

    def __init__(self, layout: Layout, number: int, *, asks: bool) -> None:
        """`asks`: the server is to be asked about values of some column (asked.py)."""
        super().__init__(layout, number)
        self.asks = asks
        self.copy_rows = f"COPY {self.table} ({self.names(layout.columns)}) FROM STDIN"
        """New rows straight into the target; COPY may give identity columns their values."""

    def create_stage(self, letter: str) -> str:
        """As StagedSql; emptied at each commit."""
        return f"{super().create_stage(letter)} ON COMMIT DELETE ROWS"

    def clear_stage(self, letter: str) -> str:
        """As StagedSql."""
        return f"TRUNCATE {self.stage(letter)}"

    def insert_words(self) -> str:
        """Identity columns take the source's values."""
        return " OVERRIDING SYSTEM VALUE"

    def copy_stage(self, letter: str, columns: Sequence[str]) -> str:
        """Rows into a staging table."""
        return f"COPY {self.stage(letter)} ({self.names(columns)}) FROM STDIN"

    def few(self, columns: Sequence[str], blob: Blob) -> str:
        """Rows as JSON in the statement itself, for FROM; "" where a type would not be read as COPY reads it."""
        types = [self.type_of(name) for name in columns]
        if not all(map(_PLAIN.match, types)):
            return ""
        try:
            blob.data.decode()
        except UnicodeDecodeError:
            return ""
        if b"\0" in blob.data:  # which COPY refuses by another SQLSTATE than JSON
            return ""
        rows = [dict(zip(columns, fields_of(row), strict=True)) for row in blob.data.split(b"\n")[:-1]]
        shape = ", ".join(f"{ident(name)} {kind}" for name, kind in zip(columns, types, strict=True))
        text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
        return f"json_to_recordset({literal(text)}) AS s({shape})"

    # Tables without a key

    def same(self, column: str, kind: str, staged: str) -> str:
        """Equal in text; `=` besides, so that an index may serve."""
        text = f'{column}::text COLLATE "C" = {staged}::text COLLATE "C"'
        return f"{column} = {staged} AND {text}" if _COMPARABLE.match(kind) else text

    def change_matches(self, match: Match, relation: str) -> str:
        """Change as many rows as are staged; equal ones are paired off by number."""
        columns = range(len(self.layout.columns))
        given = [i for i in columns if i not in match.nulls]
        texts = ", ".join(f'{self.was(i)}::text COLLATE "C"' for i in given)
        equal = f"PARTITION BY {texts}" if texts else ""
        tests = [f"t.{ident(self.layout.columns[i])} IS NULL" for i in match.nulls]
        tests += [
            self.same(f"t.{ident(self.layout.columns[i])}", self.layout.types[i], f"s.{self.was(i)}") for i in given
        ]
        equals = " AND ".join(tests) or "true"
        numbers = f"row_number() OVER ({equal}) AS tg_n, min({NUMBER}) OVER ({equal}) AS tg_g"
        head = (
            f"WITH s AS MATERIALIZED (SELECT *, {numbers} FROM {relation}), "
            "m AS MATERIALIZED (SELECT t.tableoid AS tg_o, t.ctid AS tg_c, s.tg_g AS tg_h, "
            f"row_number() OVER (PARTITION BY s.tg_g) AS tg_m FROM s JOIN {self.table} AS t ON {equals} "
            "WHERE s.tg_n = 1)"
        )
        where = "m.tg_h = s.tg_g AND m.tg_m = s.tg_n AND t.tableoid = m.tg_o AND t.ctid = m.tg_c"
        if not match.update:
            return f"{head} DELETE FROM {self.table} AS t USING s, m WHERE {where}"
        sets = ", ".join(f"{ident(name)} = s.{ident(name)}" for name in self.layout.columns)
        return f"{head} UPDATE {self.table} AS t SET {sets} FROM s, m WHERE {where}"

    # Conflicts

    def compared(self, compare: Compare, relation: str) -> str:
        """How many staged rows are in the table as they are staged; they are locked."""
        texts = [
            f't.{ident(name)}::text COLLATE "C" IS NOT DISTINCT FROM s.{ident(name)}::text COLLATE "C"'
            for name in (self.layout.columns[i] for i in compare.columns)
        ]
        tests = " AND ".join([self.at_key(), *texts])
        found = f"SELECT 1 FROM {self.table} AS t JOIN {relation} ON {tests} FOR UPDATE OF t"
        return f"SELECT count(*) FROM ({found}) AS locked"

    def fetch_as(self, relation: str, read: Mapping[str, str]) -> str:
        """As fetch(); `read`: how a column's value becomes one of the logical type again."""
        columns = ", ".join(read.get(name, "$c").replace("$c", f"t.{ident(name)}") for name in self.layout.columns)
        return f"SELECT {columns} FROM {self.table} AS t JOIN {relation} ON {self.at_key()} FOR UPDATE OF t"
