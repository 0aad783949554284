"""The SQL that the PostgreSQL target sends: pure text from a Layout, no driver.

Staging tables are temporary, one set a layout, emptied at each commit:

    r   the rows to write           f   rows to fill from the target: key of their origin, the row, extras
    k   the keys to delete          x   extras of rows that are deleted only to be written again
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from replicat.copytext import text_of
from replicat.target import Layout
from trails.record import MISSING, Image

_COMPARABLE = re.compile(
    r"(smallint|integer|bigint|numeric|text|character|uuid|date|time|interval|boolean|bytea|oid|inet|cidr|macaddr)\b[^\[]*\Z"
)

CHECKPOINT_COLUMNS = """
    group_name varchar(64) NOT NULL,
    group_key numeric(20) NOT NULL,
    seqno bigint NOT NULL,
    rba bigint NOT NULL,
    audit_ts varchar(29),
    create_ts timestamptz NOT NULL,
    last_update_ts timestamptz NOT NULL,
    current_dir text NOT NULL,
    log_bsn varchar(128),
    log_csn varchar(128),
    log_xid varchar(128),
    log_cmplt_csn varchar(128),
    log_cmplt_xids varchar(2000),
    version integer NOT NULL,
    trail_id varchar(32) NOT NULL,
    commit_us bigint,
    alter_no bigint NOT NULL,
    added_us bigint NOT NULL,
    flush_seqno bigint NOT NULL,
    flush_rba bigint NOT NULL,
    PRIMARY KEY (group_name, group_key)
"""
ROW_COLUMNS = "seqno, rba, trail_id, log_csn, log_xid, commit_us, alter_no, added_us, flush_seqno, flush_rba"

SESSION = """
SET DateStyle = 'ISO, MDY'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC'; SET extra_float_digits = 1;
SET bytea_output = 'hex'; SET lc_monetary = 'C'; SET client_encoding = 'UTF8'; SET search_path = pg_catalog;
SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
SET client_min_messages = 'warning'; SET xmloption = 'content'; SET jit = off;
SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3
"""


def ident(name: str) -> str:
    """A quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def _no_placeholder(text: str) -> str:
    """Text that stands in a statement with placeholders."""
    return text.replace("%", "%%")


def dotted(schema: str, name: str) -> str:
    """A quoted schema.name."""
    return f"{ident(schema)}.{ident(name)}"


def names(columns: Sequence[str], prefix: str = "") -> str:
    """Quoted column names with commas between."""
    return ", ".join(prefix + ident(column) for column in columns)


class LayoutSql:
    """All statements for one layout; `number` keeps the staging tables of layouts apart."""

    def __init__(self, layout: Layout, number: int) -> None:
        self.layout = layout
        self.table = dotted(layout.schema, layout.name)
        self.stages = {letter: f"pg_temp.tg_{letter}{number}" for letter in "rkfx"}
        self._base = tuple(f"tg_base_{i}" for i in range(len(layout.key)))

    def create_stage(self, letter: str) -> str:
        """One staging table, with the target's own column types."""
        types = dict(zip(self.layout.columns, self.layout.types, strict=True))
        types |= dict(zip(self.layout.extras, self.layout.extra_types, strict=True))
        chosen = {
            "r": self.layout.columns,
            "k": self.layout.key,
            "f": self.layout.columns + self.layout.extras,
            "x": self.layout.key + self.layout.extras,
        }[letter]
        columns = [f"{ident(name)} {types[name]}" for name in chosen]
        if letter == "f":
            bases = [f"{ident(b)} {types[key]}" for b, key in zip(self._base, self.layout.key, strict=True)]
            columns = ["tg_group integer", *bases, *columns]
        return f"CREATE TEMPORARY TABLE {self.stages[letter]} ({', '.join(columns)}) ON COMMIT DELETE ROWS"

    def copy_rows(self) -> str:
        """New rows straight into the target; COPY may give identity columns their values."""
        return f"COPY {self.table} ({names(self.layout.columns)}) FROM STDIN"

    def copy_stage(self, letter: str, columns: Sequence[str]) -> str:
        """Rows into a staging table."""
        return f"COPY {self.stages[letter]} ({names(columns)}) FROM STDIN"

    def fill_columns(self, missing: Sequence[int]) -> list[str]:
        """Columns of `f` that a fill gives itself."""
        given = [name for i, name in enumerate(self.layout.columns) if i not in missing]
        return ["tg_group", *self._base, *given]

    def read_fills(self, group: int, missing: Sequence[int]) -> str:
        """Complete the staged rows of one group from the target's rows at their base keys."""
        wanted = [self.layout.columns[i] for i in missing] + list(self.layout.extras)
        sets = ", ".join(f"{ident(name)} = t.{ident(name)}" for name in wanted)
        where = f"s.tg_group = {group} AND {self._at_base()}"
        return f"UPDATE {self.stages['f']} s SET {sets} FROM {self.table} t WHERE {where}"

    def unfilled(self) -> str:
        """The base keys of fills whose row is not in the target."""
        keys = ", ".join(f"s.{ident(b)}::text" for b in self._base)
        return (
            f"SELECT concat_ws(', ', {keys}) FROM {self.stages['f']} s "
            f"WHERE NOT EXISTS (SELECT 1 FROM {self.table} t WHERE {self._at_base()}) LIMIT 1"
        )

    def delete(self, letter: str) -> str:
        """Delete the target's rows at the keys of a staging table."""
        return f"DELETE FROM {self.table} t USING {self.stages[letter]} s WHERE {self._at_key()}"

    def keep_extras(self, letter: str) -> str:
        """As delete(), but remember the extras of what is deleted."""
        kept = names(self.layout.key + self.layout.extras, "t.")
        return f"WITH d AS ({self.delete(letter)} RETURNING {kept}) INSERT INTO {self.stages['x']} SELECT * FROM d"

    def upsert(self, letter: str) -> str:
        """Write staged rows over those with the same key, or as new ones."""
        columns = self._staged(letter)
        rest = [name for name in columns if name not in self.layout.key + self.layout.fixed]
        sets = ", ".join(f"{ident(name)} = EXCLUDED.{ident(name)}" for name in rest)
        action = f"UPDATE SET {sets}" if sets else "NOTHING"
        return f"{self.insert(letter)} ON CONFLICT ({names(self.layout.key)}) DO {action}"

    def insert(self, letter: str) -> str:
        """Write staged rows as new ones."""
        columns = self._staged(letter)
        return (
            f"INSERT INTO {self.table} ({names(columns)}) OVERRIDING SYSTEM VALUE "
            f"SELECT {names(columns, 's.')} FROM {self.stages[letter]} s"
        )

    def insert_with_extras(self) -> list[str]:
        """Write the rows of `r` again: with the extras kept in `x`, and without where there was no row before."""
        own, extras = self.layout.columns, self.layout.extras
        match = self._equal(self.layout.key, "x.", "s.", self.layout.key)
        return [
            (
                f"INSERT INTO {self.table} ({names(own + extras)}) OVERRIDING SYSTEM VALUE "
                f"SELECT {names(own, 's.')}, {names(extras, 'x.')} "
                f"FROM {self.stages['r']} s JOIN {self.stages['x']} x ON {match}"
            ),
            f"{self.insert('r')} WHERE NOT EXISTS (SELECT 1 FROM {self.stages['x']} x WHERE {match})",
        ]

    def change_one(self, before: Image, after: Image | None) -> str:
        """Delete or update exactly one row equal to `before`; change_params gives the values for the placeholders."""
        table = _no_placeholder(self.table)
        found = f"SELECT tableoid AS tg_o, ctid AS tg_c FROM {table} WHERE {self._same(before)} LIMIT 1"
        where = "t.tableoid = s.tg_o AND t.ctid = s.tg_c"
        if after is None:
            return f"DELETE FROM {table} t USING ({found}) s WHERE {where}"
        given = [name for name, value in zip(self.layout.columns, after, strict=True) if value is not MISSING]
        sets = ", ".join(f"{_no_placeholder(ident(name))} = %s" for name in given)
        return f"UPDATE {table} t SET {sets} FROM ({found}) s WHERE {where}"

    def change_params(self, before: Image, after: Image | None) -> list[str | None]:
        """Values for change_one, in the order of its placeholders."""
        params = [text_of(value) for value in after or () if value is not MISSING]
        for kind, value in zip(self.layout.types, before, strict=True):
            if value is not None:
                params += [text_of(value)] * (2 if _COMPARABLE.match(kind) else 1)
        return params

    def _same(self, before: Image) -> str:
        """Equal in text, as a table without a key knows no other identity; `=` besides, so that an index may serve."""
        tests = []
        for name, kind, value in zip(self.layout.columns, self.layout.types, before, strict=True):
            column, cast = _no_placeholder(ident(name)), _no_placeholder(kind)
            if value is None:
                tests.append(f"{column} IS NULL")
                continue
            if _COMPARABLE.match(kind):
                tests.append(f"{column} = %s::{cast}")
            tests.append(f'{column}::text COLLATE "C" = (%s::{cast})::text COLLATE "C"')
        return " AND ".join(tests)

    def _staged(self, letter: str) -> tuple[str, ...]:
        return self.layout.columns + (self.layout.extras if letter == "f" else ())

    def _at_key(self) -> str:
        return self._equal(self.layout.key, "t.", "s.", self.layout.key)

    def _at_base(self) -> str:
        return self._equal(self.layout.key, "t.", "s.", self._base)

    def _equal(self, left: Sequence[str], left_of: str, right_of: str, right: Sequence[str]) -> str:
        equal = self.layout.key_equal or ("=",) * len(left)
        pairs = zip(left, equal, right, strict=True)
        return " AND ".join(f"{left_of}{ident(a)} {operator} {right_of}{ident(b)}" for a, operator, b in pairs)
