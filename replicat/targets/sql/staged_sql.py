"""The SQL that applies net effects from staged rows: pure text from a Layout, no driver.

Strategy: every statement joins the target table, `t`, with staged rows, `s`: a temporary table, or whatever else a
dialect can put into a FROM clause (a "relation" below is such text with its alias `s`). A dialect overrides quoting,
how staging tables are made, and the forms of a joined UPDATE and DELETE; the conditions are the same everywhere.

    r   rows to write, whole or some columns        f   rows to fill from the target (see fill_columns)
    k   keys                                        x   extras of rows that are deleted only to be written again
    b   rows of a table without a key: a number, the row as it was without its NULLs, and as it became
"""

from __future__ import annotations

from collections.abc import Sequence

from replicat.model.target import Compare, Layout, Match
from replicat.targets.sql import quoting

FOUND, THERE, NUMBER, ALTERNATIVE, GROUP = "tg_found", "tg_there", "tg_no", "tg_alt", "tg_group"
"""Columns of `f`: its row is in the target; its key was there; which fill, and which of its bases; what it lacks."""
WAS = "tg_was_"
"""In `b`: begins the name of a column as it was."""


class StagedSql:
    """All statements for one layout; `number` keeps the staging tables of layouts apart."""

    integer = "integer"
    """The type of our own numbers."""
    prefix = ""
    """What stands before a staging table's name."""
    inserts = "INSERT"
    """How a statement that writes new rows begins."""

    def __init__(self, layout: Layout, number: int) -> None:
        self.layout = layout
        self.number = number
        self.table = self.dotted(layout.schema, layout.name)
        self.bases = tuple(f"tg_base_{i}" for i in range(len(layout.key)))
        self._types = dict(zip(layout.columns, layout.types, strict=True))
        self._types |= dict(zip(layout.extras, layout.extra_types, strict=True))
        self._types |= {base: self._types[key] for base, key in zip(self.bases, layout.key, strict=True)}
        self._types |= {self.was(i): kind for i, kind in enumerate(layout.types)}
        self._types |= dict.fromkeys((FOUND, THERE, NUMBER, ALTERNATIVE, GROUP), self.integer)

    # What a dialect overrides

    def ident(self, name: str) -> str:
        """A quoted identifier."""
        return quoting.ident(name)

    def dotted(self, schema: str, name: str) -> str:
        """A quoted schema.name."""
        return f"{self.ident(schema)}.{self.ident(name)}"

    def create_stage(self, letter: str) -> str:
        """One staging table, with the target's own column types; its rows end with the transaction."""
        columns = ", ".join(f"{self.ident(name)} {self.type_of(name)}" for name in self.stage_columns(letter))
        return f"CREATE TEMPORARY TABLE {self.stage(letter)} ({columns})"

    def clear_stage(self, letter: str) -> str:
        """Empty it."""
        return f"DELETE FROM {self.stage(letter)}"

    def update_from(self, target: str, sets: Sequence[tuple[str, str]], relation: str, where: str) -> str:
        """UPDATE of `target` (text with its alias) joined with a relation; `sets`: (column, value)."""
        assigned = ", ".join(f"{self.ident(name)} = {value}" for name, value in sets)
        return f"UPDATE {target} SET {assigned} FROM {relation} WHERE {where}"

    def delete_from(self, relation: str, where: str) -> str:
        """DELETE of the target's rows joined with a relation."""
        return f"DELETE FROM {self.table} AS t USING {relation} WHERE {where}"

    def insert_words(self) -> str:
        """What stands between an INSERT's columns and its SELECT."""
        return ""

    def same(self, column: str, kind: str, staged: str) -> str:
        """Equal in text, as a table without a key knows no other identity; neither side is NULL."""
        raise NotImplementedError

    def change_matches(self, match: Match, relation: str) -> str:
        """Change as many rows of a table without a key as are staged; equal ones are paired off by number."""
        raise NotImplementedError

    def compared(self, compare: Compare, relation: str) -> str:
        """A query for how many staged rows are in the table as they are staged, NULL equal to NULL; it locks them."""
        raise NotImplementedError

    def fetch(self, relation: str) -> str:
        """A query for the target's rows at staged keys; it locks them."""
        raise NotImplementedError

    # Staging tables

    def stage(self, letter: str) -> str:
        """The name of a staging table."""
        return f"{self.prefix}tg_{letter}{self.number}"

    def type_of(self, name: str) -> str:
        """A column's type in a staging table."""
        return self._types[name]

    def stage_columns(self, letter: str) -> tuple[str, ...]:
        """The columns of a staging table."""
        layout = self.layout
        return {
            "r": layout.columns,
            "k": layout.key,
            "x": layout.key + layout.extras,
            "f": (NUMBER, ALTERNATIVE, GROUP, THERE, FOUND, *self.bases, *layout.columns, *layout.extras),
            "b": (NUMBER, *map(self.was, range(len(layout.columns))), *layout.columns),
        }[letter]

    @staticmethod
    def was(index: int) -> str:
        """In `b`: the column as it was."""
        return f"{WAS}{index}"

    def match_columns(self, match: Match) -> tuple[str, ...]:
        """The columns of `b` that a Match gives, in the order of its text."""
        count = range(len(self.layout.columns))
        now = self.layout.columns if match.update else ()
        return (NUMBER, *(self.was(i) for i in count if i not in match.nulls), *now)

    # Tables with a key

    def delete(self, relation: str) -> str:
        """Delete the target's rows at staged keys."""
        return self.delete_from(relation, self.at_key())

    def keep_extras(self, relation: str) -> str:
        """Remember the extras of rows that delete() is going to delete."""
        kept = self.names(self.layout.key + self.layout.extras, "t.")
        return f"INSERT INTO {self.stage('x')} SELECT {kept} FROM {self.table} AS t JOIN {relation} ON {self.at_key()}"

    def settable(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Those of the columns that an UPDATE may set."""
        return tuple(name for name in columns if name not in self.layout.key + self.layout.fixed)

    def update(self, relation: str, columns: Sequence[str], condition: str = "") -> str:
        """Write these columns over rows with the same key. There must be something settable among them."""
        sets = [(name, f"s.{self.ident(name)}") for name in self.settable(columns)]
        return self.update_from(f"{self.table} AS t", sets, relation, _and(self.at_key(), condition))

    def insert(self, relation: str, columns: Sequence[str], condition: str = "", *, missing: bool = False) -> str:
        """Write staged rows as new ones; with `missing` only those whose key is not there."""
        absent = f"NOT EXISTS (SELECT 1 FROM {self.table} AS t WHERE {self.at_key()})" if missing else ""
        where = _and(condition, absent)
        return (
            f"{self.inserts} INTO {self.table} ({self.names(columns)}){self.insert_words()} "
            f"SELECT {self.names(columns, 's.')} FROM {relation}{' WHERE ' if where else ''}{where}"
        )

    def insert_defaults(self) -> str:
        """Write one new row of which the source gives no column."""
        return f"{self.inserts} INTO {self.table} DEFAULT VALUES"

    def insert_again(self, relation: str) -> list[str]:
        """Write deleted rows again: with the extras kept in `x`, and without where there was no row before."""
        own, extras = self.layout.columns, self.layout.extras
        match = self.equal(self.layout.key, "x.", self.layout.key, "s.")
        kept = f"{self.stage('x')} AS x"
        return [
            (
                f"{self.inserts} INTO {self.table} ({self.names(own + extras)}){self.insert_words()} "
                f"SELECT {self.names(own, 's.')}, {self.names(extras, 'x.')} FROM {relation} JOIN {kept} ON {match}"
            ),
            (
                f"{self.inserts} INTO {self.table} ({self.names(own)}){self.insert_words()} "
                f"SELECT {self.names(own, 's.')} FROM {relation} WHERE NOT EXISTS (SELECT 1 FROM {kept} WHERE {match})"
            ),
        ]

    def count(self, relation: str, condition: str = "") -> str:
        """How many staged keys are there."""
        there = f"EXISTS (SELECT 1 FROM {self.table} AS t WHERE {self.at_key()})"
        return f"SELECT count(*) FROM {relation} WHERE {_and(there, condition)}"

    def doubled(self, relation: str) -> str:
        """A row if two staged keys are equal for the target."""
        keys = self.names(self.layout.key, "s.")
        return f"SELECT 1 FROM {relation} GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"

    # Fills

    def fill_columns(self, missing: Sequence[int]) -> list[str]:
        """The columns of `f` that a fill gives itself."""
        given = [name for i, name in enumerate(self.layout.columns) if i not in missing]
        return [NUMBER, ALTERNATIVE, GROUP, THERE, FOUND, *self.bases, *given]

    def read_fills(self, group: int, missing: Sequence[int]) -> str:
        """Complete the staged rows of one group from the target's rows at their base keys."""
        wanted = [self.layout.columns[i] for i in missing] + list(self.layout.extras)
        sets = [(FOUND, "1"), *((name, f"t.{self.ident(name)}") for name in wanted)]
        where = f"s.{GROUP} = {group} AND {self.equal(self.layout.key, 't.', self.bases, 's.')}"
        return self.update_from(f"{self.stage('f')} AS s", sets, f"{self.table} AS t", where)

    def found_fills(self) -> str:
        """(number, first alternative found, how many were) of each fill that has a row."""
        stage = self.stage("f")
        return f"SELECT {NUMBER}, min({ALTERNATIVE}), count(*) FROM {stage} WHERE {FOUND} = 1 GROUP BY {NUMBER}"

    def drop_fills(self, number: int, above: int) -> str:
        """Forget the alternatives of one fill behind the one that was taken."""
        return f"DELETE FROM {self.stage('f')} WHERE {NUMBER} = {number} AND {ALTERNATIVE} > {above}"

    def drop_unfound(self) -> str:
        """Forget those whose base is not there."""
        return f"DELETE FROM {self.stage('f')} WHERE {FOUND} = 0"

    # Text

    def names(self, columns: Sequence[str], prefix: str = "") -> str:
        """Quoted column names with commas between."""
        return ", ".join(prefix + self.ident(column) for column in columns)

    def at_key(self) -> str:
        """`t` and `s` have the same key."""
        return self.equal(self.layout.key, "t.", self.layout.key, "s.")

    def equal(self, left: Sequence[str], left_of: str, right: Sequence[str], right_of: str) -> str:
        """Keys are equal, by the target's own operators."""
        equal = self.layout.key_equal or ("=",) * len(left)
        pairs = zip(left, equal, right, strict=True)
        return " AND ".join(f"{left_of}{self.ident(a)} {op} {right_of}{self.ident(b)}" for a, op, b in pairs)


def _and(*conditions: str) -> str:
    return " AND ".join(condition for condition in conditions if condition)
