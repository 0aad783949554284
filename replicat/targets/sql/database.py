"""What a database has to say for itself so that targets/sql/target.py can be a target of it, and its staging tables.

Rule: a database knows its driver and its dialect's SQL (staged_sql.py), and nothing of steps. These are asked for:

    connect         open a connection, and check what is needed
    start, finish   a transaction; ended: what is to be cleaned up behind a commit, if `crowded` says so
    run, ask        a statement: rows changed, rows found
    load            a blob into a staging table
    copy_new        a blob of new rows straight into the table, which itself refuses a second row of one key
    relation        optional: few rows as something else than a staging table; each of these three counts `taken`
    join            optional: a statement that joins staged rows with the table (planner settings)
    match           optional: how a table without a key finds its rows
    refusal         which of the driver's errors is a refusal of rows; None if it is not
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replicat.model.target import Blob, Layout, Match, RefusedError, Tally, TargetTable, Truncate
from replicat.targets.contract import Kind, TargetSettings
from replicat.targets.sql import rowtable
from replicat.targets.sql.staged_sql import StagedSql
from trails.errors import AwayError
from trails.record import Image, TableId

Collisions = dict[TableId, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class _Known:
    """What was known at a savepoint."""

    fresh: int
    collisions: Collisions
    converted: dict[TableId, int]


class Closed:
    """Stands in the place of a connection while there is none."""

    closed, open = True, False
    answer_seconds: float | None = None

    def __getattr__(self, name: str) -> Any:
        raise AwayError("the target connection is closed")

    def close(self) -> None:
        """It is."""


class SqlDatabase:
    """One connection to a database of some kind. `tally`: what its target tells of the open transaction."""

    errors: tuple[type[Exception], ...] = ()
    """What the driver raises."""

    begins = "BEGIN"
    """The statement that opens a transaction."""

    answer_seconds = 60.0
    """How long a short statement may take: one that works on no rows but those of our own tables and the catalog's."""
    bounds_answers = False
    """The connection has `answer_seconds` too, which ends a wait; None there: as long as the server works."""

    rows_stay = False
    """Staged rows outlive their transaction, and are emptied when their table is used again."""
    stages_stay = False
    """Staging tables that were made outlive what is undone."""
    most_stages = 1 << 30
    """More staging tables than this are not kept."""
    checks_late = False
    """Constraints wait for the end of the transaction, unless they are checked by check_deferred()."""

    def __init__(self, kind: Kind, settings: TargetSettings) -> None:
        self.kind = kind
        self.settings = settings
        self.row_table = rowtable.quoted(kind, settings.checkpoint_table)
        self.tally = Tally()
        self.written: set[TableId] = set()  # tables that were written to; emptied by those who read it
        self.conn: Any = Closed()
        """The driver's connection."""
        self._layouts: dict[Layout, StagedSql] = {}
        self._stages: dict[str, None] = {}  # staging tables of this connection, that used last at the end
        self.crowded = False  # one of them is to be dropped behind the next commit
        self._fresh: list[str] = []  # those made in the open transaction
        self._loaded: set[str] = set()  # those with rows

    # Hooks

    def connect(self) -> None:
        """Connect, and check what is needed beside the checkpoint table; nothing is open."""
        raise NotImplementedError

    def run(self, statement: str, params: Sequence[object] = ()) -> int:
        """Run a statement, its parameters marked as the driver has it; how many rows it changed."""
        raise NotImplementedError

    def ask(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a query."""
        raise NotImplementedError

    def bounds_waits(self, lock_ms: int, idle_ms: int) -> list[str]:
        """Statements by which the connection waits for a lock, and the server for a transaction's client, so long."""
        raise NotImplementedError

    def start(self, *, durable: bool) -> None:  # noqa: ARG002  -- for those who say it beforehand
        """Open a transaction. `durable`: its commit will wait for the disk."""
        self.run(self.begins)

    def finish(self, *, durable: bool) -> None:  # noqa: ARG002  -- for those whose commits may not wait
        """Commit."""
        self.run("COMMIT")

    def ended(self) -> None:
        """A transaction of rows was committed, and there is something to clean up."""

    def is_system(self, schema: str) -> bool:  # noqa: ARG002  -- a file has one schema
        """Whether a schema, in lower case, is the database system's own."""
        return False

    def look_up(self, places: Sequence[TableId]) -> dict[TableId, TargetTable]:
        """The shapes of those of these tables that exist."""
        raise NotImplementedError

    def types(self) -> frozenset[str]:
        """Types that this server has, and others of its kind have not."""
        return frozenset()

    def before_ddl(self) -> None:
        """Statements that change shapes are going to be run."""

    def run_ddl(self, statement: str) -> None:
        """Run a statement that changes a shape."""
        self.run(statement)

    def refused_ddl(self, statement: str, error: Exception) -> RefusedError:
        """The driver's error as the refusal of such a statement; raises AwayError if it is none."""
        raise NotImplementedError

    def cautions(self) -> list[str]:
        """What CHECK PARAMS tells of who we are."""
        return []

    def check_types(self, types: Mapping[str, bool]) -> None:
        """Few databases have types of their users' making."""

    def load(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> None:
        """Load rows of these columns into a staging table that is there."""
        raise NotImplementedError

    def copy_new(self, sql: StagedSql, blob: Blob) -> int:
        """Write new rows straight into the table, identity columns as given; how many."""
        raise NotImplementedError

    def pour(self, sql: StagedSql, pieces: Iterable[bytes]) -> int:
        """New rows straight into the table, in the bulk form that the database gives itself; how many."""
        raise NotImplementedError

    def make_sql(self, layout: Layout, number: int) -> StagedSql:
        """The dialect's statements for a layout."""
        raise NotImplementedError

    def refusal(self, error: Exception) -> RefusedError | None:
        """The driver's error as a refusal of rows; None if it is something else."""
        raise NotImplementedError

    def ours(self, error: Exception) -> Exception:
        """An error of the driver, by who must act: AwayError, ShapeChangedError, OperatorError."""
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
        """OperatorError where values of a column's logical type can't go into it at all."""

    def check_deferred(self) -> None:
        """Have constraints checked that wait for the end of the transaction."""

    def match(self, sql: StagedSql, match: Match) -> int:
        """Change rows of a table without a key; how many were found."""
        return self.join(sql, sql.change_matches(match, self.stage(sql, "b", sql.match_columns(match), match.rows)))

    # Connection

    def close(self) -> None:
        """Close the connection, and forget what it knew."""
        self._layouts.clear()
        self._stages.clear()
        self._loaded.clear()
        self.forget_rows()
        conn, self.conn = self.conn, Closed()
        with contextlib.suppress(*self.errors):
            conn.close()

    def forget_rows(self) -> None:
        """A transaction begins."""
        self._fresh.clear()
        self.tally.collisions, self.tally.converted = {}, {}
        if not self.rows_stay:
            self._loaded.clear()

    @contextlib.contextmanager
    def mapped(self, *, brief: bool = False) -> Iterator[None]:
        """The driver's errors as ours. `brief`: for short statements; a server silent for `answer_seconds` is lost."""
        link, bounds = self.conn, brief and self.bounds_answers
        if bounds:
            before, link.answer_seconds = link.answer_seconds, self.answer_seconds
        try:
            yield
        except self.errors as error:
            raise self.ours(error) from error
        finally:
            if bounds:
                link.answer_seconds = before

    # Savepoints

    @contextlib.contextmanager
    def savepoint(self, name: str) -> Iterator[None]:
        """All or nothing; a refusal is raised as RefusedError, and the transaction is as it was before."""
        known = self.mark(name)
        expected: tuple[type[Exception], ...] = (*self.errors, RefusedError)
        try:
            yield
        except expected as error:
            refused = self.as_refused(error)
            self.undo(name, known)
            self.run(f"RELEASE SAVEPOINT {name}")
            raise refused from (None if refused is error else error)
        self.run(f"RELEASE SAVEPOINT {name}")

    def as_refused(self, error: Exception) -> RefusedError:
        """What is raised to say that rows are refused; raises the error itself where it says something else."""
        refused = error if isinstance(error, RefusedError) else self.refusal(error)
        if refused is None:
            raise error
        return refused

    def roll_back(self) -> None:
        """Nothing of the open transaction was done."""
        self.run("ROLLBACK")
        self._unmake(0)

    def mark(self, name: str) -> _Known:
        """Set a savepoint."""
        self.run(f"SAVEPOINT {name}")
        return _Known(len(self._fresh), dict(self.tally.collisions), dict(self.tally.converted))

    def undo(self, name: str, known: _Known) -> None:
        """Back to a savepoint, which stays."""
        self.run(f"ROLLBACK TO SAVEPOINT {name}")
        self._unmake(known.fresh)
        self.tally.collisions, self.tally.converted = dict(known.collisions), dict(known.converted)

    def _unmake(self, known: int) -> None:
        """Forget the staging tables that were made since so many were known, if they are gone."""
        if not self.stages_stay:
            for gone in self._fresh[known:]:
                self._stages.pop(gone, None)
                self._loaded.discard(gone)
            del self._fresh[known:]

    def tried(self, work: Callable[[], object]) -> bool:
        """Do something; False, and undone, if the target refuses it."""
        try:
            with self.savepoint("tg_try"):
                work()
        except RefusedError:
            return False
        return True

    # Staging

    def sql_of(self, layout: Layout) -> StagedSql:
        """The statements for a layout, and the numbers of its staging tables."""
        found = self._layouts.get(layout)
        if found is None:
            found = self._layouts[layout] = self.make_sql(layout, len(self._layouts))
        self.written.add((layout.schema, layout.name))
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
            self._fresh.append(name)
            self.crowded = self.crowded or len(self._stages) >= self.most_stages
        elif name in self._loaded:
            self.run(sql.clear_stage(letter))
        self._stages.pop(name, None)
        self._stages[name] = None
        self._loaded.add(name)

    def drop_stages(self, names: Sequence[str], words: str) -> None:
        """Staging tables that are not worth keeping; `words`: how the database drops them."""
        self.crowded = False
        if names:
            self.run(f"{words} {', '.join(names)}")
        for name in names:
            del self._stages[name]
            self._loaded.discard(name)
