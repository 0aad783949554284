"""The SQL of targets/sql/staged_sql.py as MySQL and MariaDB take it (ANSI_QUOTES is set). Pure text, no driver.

Strategy: staged rows come first in every join (STRAIGHT_JOIN), and each finds its row by the key's index.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from replicat.model.target import Compare, Layout
from replicat.targets.mysql.shapes import stage_type
from replicat.targets.sql.staged_sql import NUMBER, WAS, StagedSql

TEXT = "CHARACTER SET"
"""Stands in the type of every column that has a collation."""

_LONG = re.compile(r"(varchar|varbinary)\(\d+\)")
_AS_LONG = {"varchar": "longtext", "varbinary": "longblob"}

LOAD = (
    "LOAD DATA LOCAL INFILE 'trailgate' INTO TABLE {table} CHARACTER SET utf8mb4 "
    "FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' ({columns}){sets}"
)


class MysqlSql(StagedSql):
    """All statements for one layout."""

    integer = "bigint"

    def __init__(self, layout: Layout, number: int, database: str) -> None:
        """`database`: where staging tables are made; they need one."""
        self.prefix = f"{self.ident(database)}."
        super().__init__(layout, number)

    def create_stage(self, letter: str) -> str:
        """InnoDB, so that a savepoint's rollback covers its rows."""
        columns = [f"{self.ident(name)} {stage_type(self._staged_as(name))}" for name in self.stage_columns(letter)]
        if letter == "b":
            columns.append(f"KEY ({NUMBER})")
        return f"CREATE TEMPORARY TABLE {self.stage(letter)} ({', '.join(columns)}) ENGINE = InnoDB"

    def _staged_as(self, name: str) -> str:
        """Rows as they were stand beside what they became: two of the widest would be more than a row may have."""
        kind = self.type_of(name)
        return _LONG.sub(lambda found: _AS_LONG[found[1]], kind) if name.startswith(WAS) else kind

    def update_from(self, target: str, sets: Sequence[tuple[str, str]], relation: str, where: str) -> str:
        alias = target[-1]
        first, second = (target, relation) if alias == "s" else (relation, target)
        assigned = ", ".join(f"{alias}.{self.ident(name)} = {value}" for name, value in sets)
        return f"UPDATE {first} STRAIGHT_JOIN {second} SET {assigned} WHERE {where}"

    def delete_from(self, relation: str, where: str) -> str:
        return f"DELETE t FROM {relation} STRAIGHT_JOIN {self.table} AS t WHERE {where}"

    def equal(self, left: Sequence[str], left_of: str, right: Sequence[str], right_of: str) -> str:
        """Text also byte by byte: 'A' must not change the row 'a', another one at the source."""
        exact = [
            f"BINARY {left_of}{self.ident(a)} <=> BINARY {right_of}{self.ident(b)}"
            for a, b, key in zip(left, right, self.layout.key, strict=True)
            if TEXT in self.type_of(key)
        ]
        return " AND ".join([super().equal(left, left_of, right, right_of), *exact])

    def insert_defaults(self) -> str:
        return f"INSERT INTO {self.table} () VALUES ()"

    def load(self, letter: str, columns: Sequence[str], wraps: Sequence[str]) -> str:
        """LOAD DATA; `wraps`: SQL around each column's value, `{}` for none."""
        return self._load(self.stage(letter), columns, wraps)

    def load_rows(self, wraps: Sequence[str]) -> str:
        """The same, into the table itself."""
        return self._load(self.table, self.layout.columns, wraps)

    def _load(self, table: str, columns: Sequence[str], wraps: Sequence[str]) -> str:
        into, sets = [], []
        for i, (name, wrap) in enumerate(zip(columns, wraps, strict=True)):
            if wrap == "{}":
                into.append(self.ident(name))
            else:
                into.append(f"@tg_{i}")
                sets.append(f"{self.ident(name)} = {wrap.replace('{}', f'@tg_{i}')}")
        more = f" SET {', '.join(sets)}" if sets else ""
        return LOAD.format(table=table, columns=", ".join(into), sets=more)

    def insert_values(self, letter: str, columns: Sequence[str]) -> str:
        """The beginning of an INSERT of rows into a staging table, where LOAD DATA LOCAL is not to be had."""
        return f"INSERT INTO {self.stage(letter)} ({self.names(columns)}) VALUES "

    def fetch(self, relation: str) -> str:
        """The target's rows at staged keys, locked; numbers of which text would lose digits as exact ones."""
        shown = ", ".join(self._shown(name) for name in self.layout.columns)
        return f"SELECT {shown} FROM {relation} STRAIGHT_JOIN {self.table} AS t WHERE {self.at_key()} FOR UPDATE"

    def _shown(self, name: str) -> str:
        kind, column = self.type_of(name).lower(), f"t.{self.ident(name)}"
        if kind.startswith("float"):
            return f"{column} * 1e0"  # CAST AS DOUBLE is not in every MySQL 8.0
        return f"CAST({column} AS UNSIGNED)" if kind.startswith("bit") else column

    def compared(self, compare: Compare, relation: str) -> str:
        """Text byte by byte, whatever the collation takes for equal."""
        tests = [self.at_key()]
        for i in compare.columns:
            name, binary = self.ident(self.layout.columns[i]), "CHARACTER SET" in self.layout.types[i]
            tests.append(f"BINARY t.{name} <=> BINARY s.{name}" if binary else f"t.{name} <=> s.{name}")
        joined = f"{relation} STRAIGHT_JOIN {self.table} AS t WHERE {' AND '.join(tests)}"
        return f"SELECT count(*) FROM {joined} FOR UPDATE"

    def match_values(self, number: int, *, update: bool) -> str:
        """Take the staged row with this number into variables: MySQL lets a statement name a temporary table once."""
        columns = range(len(self.layout.columns))
        taken = {"@tg_number": NUMBER} | {self._was(i): self.was(i) for i in columns}
        if update:
            taken |= {self._new(i): self.ident(self.layout.columns[i]) for i in columns}
        into = f"INTO {', '.join(taken)} FROM {self.stage('b')} WHERE {NUMBER} = {number}"
        return f"SELECT {', '.join(taken.values())} {into}"

    def match_one(self, nulls: Sequence[int], *, update: bool) -> str:
        """Change one row that is equal to the one in the variables; there is no other way to name just one."""
        where = (
            " AND ".join(
                f"{self.ident(name)} IS NULL" if i in nulls else self._same(i)
                for i, name in enumerate(self.layout.columns)
            )
            or "1"
        )
        if not update:
            return f"DELETE FROM {self.table} WHERE {where} LIMIT 1"
        sets = ", ".join(f"{self.ident(name)} = {self._new(i)}" for i, name in enumerate(self.layout.columns))
        return f"UPDATE {self.table} SET {sets} WHERE {where} LIMIT 1"

    def _same(self, i: int) -> str:
        column = self.ident(self.layout.columns[i])
        if self.layout.types[i].startswith("json"):
            return f"BINARY CAST({column} AS CHAR) = BINARY {self._was(i)}"  # a variable is text, and no JSON
        equal = f"{column} = {self._was(i)}"
        if TEXT not in self.layout.types[i]:
            return equal
        # As text, byte by byte: the collation may take more than equal text for equal, but an index may serve.
        return f"{equal} AND BINARY {column} = BINARY {self._was(i)}"

    @staticmethod
    def _was(i: int) -> str:
        return f"@tg_was_{i}"

    @staticmethod
    def _new(i: int) -> str:
        return f"@tg_new_{i}"
