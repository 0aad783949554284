"""The SQL of replicat/targets/sql/staged_sql.py as SQLite takes it. Pure text, no driver.

Every write says OR ABORT: a table's own ON CONFLICT REPLACE would delete another row for a secondary unique key.
"""

from __future__ import annotations

from collections.abc import Sequence

from replicat.model.target import Compare, Layout
from replicat.targets.sql.staged_sql import NUMBER, StagedSql
from replicat.targets.sql.types import Native

KEY_INDEX = "tg_key_"
"""A unique index of this name, and the table's behind it, is the key of a table that was made without one."""

_AFFINITIES = {"integer": "INTEGER", "real": "REAL", "numeric": "NUMERIC", "text": "TEXT", "blob": "", "any": ""}


class SqliteSql(StagedSql):
    """All statements for one layout."""

    integer = "INTEGER"
    prefix = "temp."
    inserts = "INSERT OR ABORT"

    def __init__(self, layout: Layout, number: int, natives: dict[str, Native], row: Sequence[str]) -> None:
        """`natives`: column types taken apart; `row`: what tells rows apart: the rowid, or the primary key."""
        super().__init__(layout, number)
        self._natives = natives
        self._row = tuple(row)

    def create_stage(self, letter: str) -> str:
        """Columns have the affinity of the target's, nothing else."""
        columns = ", ".join(f"{self.ident(name)} {self._affinity(name)}" for name in self.stage_columns(letter))
        return f"CREATE TABLE {self.stage(letter)} ({columns})"

    def _affinity(self, name: str) -> str:
        native = self._natives.get(self.type_of(name))
        return _AFFINITIES.get(native.family, "") if native else self.integer

    def update_from(self, target: str, sets: Sequence[tuple[str, str]], relation: str, where: str) -> str:
        return "UPDATE OR ABORT" + super().update_from(target, sets, relation, where).removeprefix("UPDATE")

    def delete_from(self, relation: str, where: str) -> str:
        """CROSS JOIN: the staged rows come first, each finds its row by the key's index."""
        rows = f"SELECT {self._rows('t.')} FROM {relation} CROSS JOIN {self.table} AS t WHERE {where}"
        return f"DELETE FROM {self.table} WHERE {self._tuple()} IN ({rows})"

    def equal(self, left: Sequence[str], left_of: str, right: Sequence[str], right_of: str) -> str:
        """Text also byte by byte: 'A' must not change the row 'a', another one at the source."""
        exact = [
            f"{left_of}{self.ident(a)} COLLATE BINARY IS {right_of}{self.ident(b)}"
            for a, b in zip(left, right, strict=True)
            if self.layout.soft_key
        ]
        return " AND ".join([super().equal(left, left_of, right, right_of), *exact])

    def insert_values(self, table: str, columns: Sequence[str]) -> str:
        """Rows as parameters, into a staging table or the target's own."""
        marks = ", ".join("?" * len(columns))
        return f"{self.inserts} INTO {table} ({self.names(columns)}) VALUES ({marks})"

    def doubled(self, relation: str) -> str:
        """The first part of the union has no rows, but its columns' collations hold for all of it."""
        keys = self.names(self.layout.key)
        rows = f"SELECT {keys} FROM {self.table} WHERE false UNION ALL SELECT {keys} FROM {relation}"
        return f"SELECT 1 FROM ({rows}) GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"

    def fetch(self, relation: str) -> str:
        """The target's rows at staged keys."""
        shown = self.names(self.layout.columns, "t.")
        return f"SELECT {shown} FROM {relation} CROSS JOIN {self.table} AS t WHERE {self.at_key()}"

    def compared(self, compare: Compare, relation: str) -> str:
        """The file's one write lock is held: no row needs one of its own."""
        names = [self.ident(self.layout.columns[i]) for i in compare.columns]
        tests = [self.at_key(), *(f"t.{name} COLLATE BINARY IS s.{name}" for name in names)]
        return f"SELECT count(*) FROM {relation} CROSS JOIN {self.table} AS t WHERE {' AND '.join(tests)}"

    def match_one(self, nulls: Sequence[int], *, update: bool) -> str:
        """Change one row that is equal to the staged one whose number is the parameter."""
        names = [self.ident(name) for name in self.layout.columns]
        where = (
            " AND ".join(
                f"t.{name} IS NULL" if i in nulls else self._same(name, self.was(i)) for i, name in enumerate(names)
            )
            or "1"
        )
        stage, number = f"{self.stage('b')} AS s", f"s.{NUMBER} = ?1"
        found = f"{stage} CROSS JOIN {self.table} AS t WHERE {number} AND {where}"
        row = f"SELECT {self._rows('t.')} FROM {found} LIMIT 1"
        if not update:
            return f"DELETE FROM {self.table} WHERE {self._tuple()} = ({row})"
        sets = ", ".join(f"{name} = s.{name}" for name in names)
        where = f"{number} AND {self._tuple(self.table)} = ({row})"
        return f"UPDATE OR ABORT {self.table} SET {sets} FROM {stage} WHERE {where}"

    @staticmethod
    def _same(column: str, was: str) -> str:
        return f"t.{column} COLLATE BINARY IS s.{was} AND typeof(t.{column}) = typeof(s.{was})"

    def _rows(self, prefix: str) -> str:
        return self.names(self._row, prefix)

    def _tuple(self, table: str = "") -> str:
        names = self.names(self._row, f"{table}." if table else "")
        return f"({names})" if len(self._row) > 1 else names
