"""What all targets do alike: steps become staged rows and joined statements, inside savepoints, strictly counted.

A target is built on StagedTarget with a dialect's SQL (replicat/targets/staged_sql.py), a way to load COPY text into a
staging table, and a table of its errors:

    run, ask        a statement: rows changed, rows found
    run_with        a statement with parameters
    load            a blob into a staging table
    copy_new        a blob of new rows straight into the table, which itself refuses a second row of one key
    relation        optional: few rows as something else than a staging table; each of these three counts `taken`
    join            optional: a statement that joins staged rows with the table (planner settings)
    match           optional: how a table without a key finds its rows
    refusal         which of the driver's errors is a refusal of rows; None if it is not

What one table's net effect needs, step by step, is in replicat/targets/merge.py.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from replicat.net.copytext import line
from replicat.target import NO_ROW, Bag, Blob, Layout, Match, RefusedError, Rows, Step, Truncate, Work
from replicat.targets.merge import Merge
from replicat.targets.staged_sql import StagedSql
from trails.record import MISSING, Image, Value

Counts = dict[tuple[str, str], tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class _Mark:
    """A savepoint, and what was known then."""

    name: str
    fresh: int
    collisions: Counts


class StagedTarget:
    """Base of the targets; see replicat.target.Target for the calls that are not hooks."""

    kind = ""
    transactional_ddl = True
    errors: tuple[type[Exception], ...] = ()
    """What the driver raises."""

    def __init__(self) -> None:
        self._layouts: dict[Layout, StagedSql] = {}
        self._stages: set[str] = set()  # staging tables of this connection
        self._fresh: list[str] = []  # those made in the open transaction
        self._loaded: set[str] = set()  # those with rows of the open transaction
        self._collisions: Counts = {}
        self._marks = 0
        self.taken = 0

    # Hooks

    def run(self, statement: str) -> int:
        """Run a statement; how many rows it changed."""
        raise NotImplementedError

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a query."""
        raise NotImplementedError

    def run_with(self, statement: str, params: Sequence[object]) -> int:
        """Run a statement with parameters, marked as the driver has it; how many rows it changed."""
        raise NotImplementedError

    def load(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> None:
        """Load rows of these columns into a staging table that is there."""
        raise NotImplementedError

    def copy_new(self, sql: StagedSql, blob: Blob) -> int:
        """Write new rows straight into the table, identity columns as given; how many."""
        raise NotImplementedError

    def make_sql(self, layout: Layout, number: int) -> StagedSql:
        """The dialect's statements for a layout."""
        raise NotImplementedError

    def refusal(self, error: Exception) -> RefusedError | None:
        """The driver's error as a refusal of rows; None if it is something else."""
        raise NotImplementedError

    def mapped(self) -> contextlib.AbstractContextManager[None]:
        """Other errors of the driver as ours: AwayError, ShapeChangedError, OperatorError."""
        raise NotImplementedError

    def fetch(self, layout: Layout, relation: str) -> list[Image]:
        """The target's rows at staged keys as canonical text, locked."""
        raise NotImplementedError

    def truncate(self, step: Truncate) -> None:
        """Empty tables."""
        for table in step.tables:
            self.run(f"DELETE FROM {self.sql_of(Layout(*table, (), (), ())).table}")

    def join(self, sql: StagedSql, statement: str) -> int:  # noqa: ARG002  -- for those who set the planner by it
        """Run a statement that joins staged rows with the table; how many rows it changed."""
        return self.run(statement)

    def count(self, sql: StagedSql, statement: str) -> int:  # noqa: ARG002  -- as above
        """Run a query that joins staged rows with the table and counts."""
        return int(self.ask(statement)[0][0])

    def relation(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> str:  # noqa: ARG002
        """Few rows as something that stands in FROM, with alias `s`; "" to have them staged in a table."""
        return ""

    def check_layout(self, layout: Layout) -> None:
        """See Target."""

    def check_deferred(self) -> None:
        """Have constraints checked that wait for the end of the transaction."""

    def match(self, sql: StagedSql, match: Match) -> int:
        """Change rows of a table without a key; how many were found."""
        return self.join(sql, sql.change_matches(match, self.stage(sql, "b", sql.match_columns(match), match.rows)))

    # Our own tables

    def read(self, statement: str) -> list[tuple[Any, ...]]:
        """See Target."""
        with self.mapped():
            return self.ask(statement)

    def write(self, statement: str, params: Sequence[object]) -> int:
        """See Target."""
        with self.mapped():
            return self.run_with(statement, params)

    # Transactions: what is to be called around them

    def forget_stages(self) -> None:
        """The connection is gone."""
        self._layouts.clear()
        self._stages.clear()
        self.forget_rows()

    def forget_rows(self) -> None:
        """The transaction has ended, and staging tables are empty again."""
        self._fresh.clear()
        self._loaded.clear()
        self._collisions.clear()

    @contextlib.contextmanager
    def savepoint(self, name: str) -> Iterator[None]:
        """All or nothing; a refusal is raised as RefusedError, and the transaction is as it was before."""
        self.run(f"SAVEPOINT {name}")
        fresh, counts = len(self._fresh), dict(self._collisions)
        expected: tuple[type[Exception], ...] = (*self.errors, RefusedError)
        try:
            yield
        except expected as error:
            refused = error if isinstance(error, RefusedError) else self.refusal(error)
            if refused is None:
                raise
            self._back_to(name, fresh, counts)
            self.run(f"RELEASE SAVEPOINT {name}")
            raise refused from (None if refused is error else error)
        self.run(f"RELEASE SAVEPOINT {name}")

    def _back_to(self, name: str, fresh: int, counts: Counts) -> None:
        self.run(f"ROLLBACK TO SAVEPOINT {name}")
        gone = self._fresh[fresh:]
        del self._fresh[fresh:]
        self._stages.difference_update(gone)
        self._loaded.difference_update(gone)
        self._collisions = dict(counts)

    def tried(self, work: Callable[[], object]) -> bool:
        """Do something; False, and undone, if the target refuses it."""
        try:
            with self.savepoint("tg_try"):
                work()
        except RefusedError:
            return False
        return True

    def mark(self) -> object:
        """See Target."""
        with self.mapped():
            self._marks += 1
            name = f"tg_mark_{self._marks}"
            self.run(f"SAVEPOINT {name}")
        return _Mark(name, len(self._fresh), dict(self._collisions))

    def undo(self, token: object) -> None:
        """See Target."""
        assert isinstance(token, _Mark)
        with self.mapped():
            self._back_to(token.name, token.fresh, token.collisions)

    def collisions(self) -> Counts:
        """See Target."""
        found, self._collisions = self._collisions, {}
        return found

    def converted(self) -> dict[tuple[str, str], int]:
        """See Target."""
        return {}

    # Applying

    def apply(
        self, steps: tuple[Step, ...], *, rewrite: bool = False, single: bool = False, border: bool = False
    ) -> None:
        """See Target."""
        with self.mapped(), self.savepoint("tg_apply"):
            for step in steps:
                if isinstance(step, Truncate):
                    self.truncate(step)
                else:
                    self._work(step, rewrite=rewrite, single=single)
            if border:
                self.check_deferred()

    def check_commit(self) -> None:
        """See Target."""
        with self.mapped(), self.savepoint("tg_check"):
            self.check_deferred()

    def _work(self, work: Work, *, rewrite: bool, single: bool) -> None:
        ordered = sorted(work.rows, key=lambda rows: (rows.layout.weight, rows.layout.rank))
        merges = [Merge(self, rows, rewrite=rewrite, single=single) for rows in ordered]
        for merge in merges:
            merge.read()
        for merge in reversed(merges):
            merge.delete()
        for merge, rows in zip(merges, ordered, strict=True):
            merge.write()
            self._count(rows.layout, merge.counts)
        for bag in sorted(work.bags, key=lambda bag: (bag.layout.weight, bag.layout.rank)):
            self._bag(bag)

    def _count(self, layout: Layout, counts: Sequence[int]) -> None:
        if any(counts):
            place = layout.schema, layout.name
            had = self._collisions.get(place, (0, 0, 0))
            self._collisions[place] = (had[0] + counts[0], had[1] + counts[1], had[2] + counts[2])

    def _bag(self, bag: Bag) -> None:
        sql = self.sql_of(bag.layout)
        lost: Counter[int] = Counter()
        for match in bag.matches:
            found = self.match(sql, match)
            lost[1 if match.update else 2] += match.rows.rows - found
            if found != match.rows.rows and not bag.layout.collisions:
                verb = "update" if match.update else "delete"
                raise RefusedError(
                    bag.layout.full_name,
                    f"for {match.rows.rows - found} of {match.rows.rows} rows to {verb} no row is equal in all columns",
                    NO_ROW,
                )
        if bag.inserts.rows and (made := self.copy_new(sql, bag.inserts)) != bag.inserts.rows:
            raise RefusedError(bag.layout.full_name, f"of {bag.inserts.rows} new rows {made} were inserted", NO_ROW)
        self._count(bag.layout, (0, lost[1], lost[2]))

    # One row, for who resolves conflicts

    def current(self, layout: Layout, key: tuple[Value, ...]) -> Image | None:
        """See Target."""
        sql = self.sql_of(layout)
        with self.mapped():
            found = self.fetch(layout, self.stage(sql, "k", layout.key, _one(key)))
        return found[0] if found else None

    def put(self, layout: Layout, row: Image) -> None:
        """See Target. Columns that are MISSING keep what they have."""
        sql = self.sql_of(layout)
        columns = [name for name, value in zip(layout.columns, row, strict=True) if value is not MISSING]
        given = _one([value for value in row if value is not MISSING])
        with self.mapped(), self.savepoint("tg_put"):
            relation = self.stage(sql, "r", columns, given)
            if layout.rewrite and len(columns) == len(layout.columns):
                Merge(self, Rows(layout, upserts=given), rewrite=True, single=True).write()
            elif sql.settable(columns):
                found = self.join(sql, sql.update(relation, columns))
                if not found and len(columns) < len(layout.columns):
                    raise RefusedError(layout.full_name, "the row to update is not there, and lacks columns", NO_ROW)
                if not found:
                    self.join(sql, sql.insert(relation, columns))
            else:
                self.join(sql, sql.insert(relation, columns, missing=True))

    def remove(self, layout: Layout, key: tuple[Value, ...]) -> bool:
        """See Target."""
        sql = self.sql_of(layout)
        with self.mapped(), self.savepoint("tg_remove"):
            return self.join(sql, sql.delete(self.stage(sql, "k", layout.key, _one(key)))) > 0

    # Staging

    def sql_of(self, layout: Layout) -> StagedSql:
        """The statements for a layout, and the numbers of its staging tables."""
        found = self._layouts.get(layout)
        if found is None:
            found = self._layouts[layout] = self.make_sql(layout, len(self._layouts))
        return found

    def stage(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> str:
        """Rows where a statement can join them, as text for FROM with alias `s`."""
        if few := self.relation(sql, letter, columns, blob):
            return few
        self.clear(sql, letter)
        self.load(sql, letter, columns, blob)
        return f"{sql.stage(letter)} AS s"

    def clear(self, sql: StagedSql, letter: str) -> None:
        """Have a staging table, and have it empty."""
        name = sql.stage(letter)
        if name not in self._stages:
            self.run(sql.create_stage(letter))
            self._stages.add(name)
            self._fresh.append(name)
        elif name in self._loaded:
            self.run(sql.clear_stage(letter))
        self._loaded.add(name)


def _one(row: Sequence[Value]) -> Blob:
    return Blob(line(row).encode("utf-8", "surrogateescape"), 1)
