"""Every SQL database as a target: steps become staged rows and joined statements, inside savepoints, strictly counted.

Rule: what differs between databases is asked of an SqlDatabase (database.py), which this target is given. What one
table's net effect needs, step by step, is in merge.py.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from replicat.ddl.dialect import Dialect
from replicat.model.again import PlaceLostError
from replicat.model.target import (
    NO_ROW,
    NOT_TAKEN,
    Bag,
    Blob,
    CheckpointRow,
    Layout,
    Patch,
    RefusedError,
    Rows,
    Step,
    TargetTable,
    Truncate,
    Work,
)
from replicat.targets.contract import Kind
from replicat.targets.sql import rowtable
from replicat.targets.sql.database import SqlDatabase
from replicat.targets.sql.forbidden import check_places
from replicat.targets.sql.merge import Merge
from replicat.targets.sql.staged_sql import StagedSql
from trails.record import MISSING, Image, TableId, Value

NEVER = -1
"""In place of the row's number where it was not read: then nothing is moved."""
_PARENTS_FIRST = attrgetter("layout.weight", "layout.rank")


class SqlTarget:
    """The target that Replicat is given for any of these databases."""

    def __init__(self, database: SqlDatabase) -> None:
        self.database = database
        self.kind = database.kind
        self.row_table = database.row_table
        self.tally = database.tally
        self._move = rowtable.move(self.row_table, self.kind.words)
        self._who = self._own = database.settings.group, database.settings.group_key
        self._marks = 0
        self._moved: list[CheckpointRow] = []
        """The row before and behind its move in the open transaction."""
        self._moves = self._next = NEVER
        """The number of our own row as this connection has read it, or raised it since; and behind the open commit."""

    def connect(self) -> None:
        self.database.close()
        self._moves = self._next = NEVER
        self.database.connect()
        with self.database.mapped(brief=True):
            rowtable.check(self.database.ask, self.kind.words, self.database.settings.checkpoint_table)

    def close(self) -> None:
        self.database.close()

    # The checkpoint row

    def speak_for(self, group: str, group_key: int) -> None:
        self._who = group, group_key

    def load_row(self) -> CheckpointRow | None:
        with self.database.mapped(brief=True):
            return self._read(lock=False)

    def lock_row(self) -> CheckpointRow | None:
        with self.database.mapped():
            return self._read(lock=True)

    def _read(self, *, lock: bool) -> CheckpointRow | None:
        found = rowtable.load(self.database.ask, self.row_table, self.kind.words, *self._who, lock=lock)
        row, moves = found or (None, NEVER)
        if self._who == self._own and self._next == self._moves:  # else what was read is our own open move
            self._moves = self._next = moves
        return row

    def bound_waits(self, lock_seconds: float, idle_seconds: float) -> None:
        with self.database.mapped(brief=True):
            for statement in self.database.bounds_waits(round(lock_seconds * 1000), round(idle_seconds * 1000)):
                self.database.run(statement)

    def add_row(self, row: CheckpointRow) -> None:
        values = rowtable.insert_values(*self._who, row, self.database.settings.home)
        with self.database.mapped(brief=True):
            self.database.start(durable=True)
            self.database.run(rowtable.insert(self.row_table, self.kind.words), values)
            self.database.finish(durable=True)
        if self._who == self._own:
            self._moves = self._next = 0

    def begin(self, old: CheckpointRow, new: CheckpointRow) -> None:
        """The update waits for a killed predecessor's commit, if one is on its way, then finds no row."""
        with self.database.mapped(brief=True):
            self.database.start(durable=False)
            self.database.forget_rows()
            self._move_row(old, new)

    def move_on(self, new: CheckpointRow) -> None:
        with self.database.mapped(brief=True):
            self._move_row(self._moved[1], new, again=True)

    def flush(self, old: CheckpointRow, new: CheckpointRow) -> None:
        """A commit that waits for the disk makes all earlier ones durable too."""
        with self.database.mapped(brief=True):
            self.database.start(durable=True)
            self._move_row(old, new)
            self.database.finish(durable=True)
        self._moves = self._next

    def commit(self) -> None:
        with self.database.mapped(brief=True):
            self.database.finish(durable=False)
            self._moves = self._next  # where the answer is lost nobody knows it, and the row is read anew
            if self.database.crowded:
                self.database.ended()

    def _move_row(self, old: CheckpointRow, new: CheckpointRow, *, again: bool = False) -> None:
        """Raises PlaceLostError where anybody has moved our own row since it was read, also to where it was.

        Other rows are those of several processes, and go by their place alone. `again`: in this
        transaction it was moved before.
        """
        self._next = self._next if again else self._moves
        known = self._next if self._who == self._own else None
        values = rowtable.move_values(*self._who, old, new, self.database.settings.home, known)
        if self.database.run(self._move, values) != 1:
            self.database.roll_back()
            raise PlaceLostError(
                f"checkpoint row of {self._who[0]}: expected position {old.position}, found another, or somebody has "
                "moved it meanwhile"
            )
        self._moved = [old, new]
        self._next += known is not None

    # Shapes

    def table(self, schema: str, name: str) -> TargetTable | None:
        return self.tables([(schema, name)]).get((schema, name))

    def tables(self, places: Iterable[TableId]) -> dict[TableId, TargetTable]:
        wanted = list(places)
        check_places(wanted, self.database.settings.checkpoint_table, self.database.is_system)
        with self.database.mapped(brief=True):
            return self.database.look_up(wanted)

    def check_layout(self, layout: Layout) -> None:
        with self.database.mapped():
            self.database.check_layout(layout)

    def dialect(self, source: Kind | None) -> Dialect:
        with self.database.mapped(brief=True):
            return self.kind.dialect(source, self.database.types())

    def ddl(self, statements: tuple[str, ...]) -> None:
        database = self.database
        with database.mapped():
            database.before_ddl()
        before = self.mark() if self.kind.can.ddl_in_transaction else None
        expected: tuple[type[Exception], ...] = (*database.errors, RefusedError)
        for statement in statements:
            try:
                database.run_ddl(statement)
            except expected as error:
                refused = error if isinstance(error, RefusedError) else database.refused_ddl(statement, error)
                if before is not None:
                    self.undo(before)
                raise refused from (None if refused is error else error)

    def cautions(self) -> list[str]:
        with self.database.mapped(brief=True):
            return self.database.cautions()

    def check_types(self, types: Mapping[str, bool]) -> None:
        with self.database.mapped(brief=True):
            self.database.check_types(types)

    # Our own tables

    def read(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self.database.mapped():
            return self.database.ask(statement, params)

    def write(self, statement: str, params: Sequence[object]) -> int:
        with self.database.mapped():
            return self.database.run(statement, params)

    # Transactions

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self.database.mapped():
            self.database.start(durable=True)
            self.database.forget_rows()
        self._next = self._moves
        yield
        with self.database.mapped():
            self.database.finish(durable=True)

    def pour(self, layout: Layout, pieces: Iterable[bytes]) -> int:
        expected: tuple[type[Exception], ...] = (*self.database.errors, RefusedError)
        with self.database.mapped():
            try:
                return self.database.pour(self.database.sql_of(layout), pieces)
            except expected as error:
                raise self.database.as_refused(error) from error

    def mark(self) -> object:
        self._marks += 1
        name = f"tg_mark_{self._marks}"
        with self.database.mapped(brief=True):
            return name, self.database.mark(name)

    def undo(self, token: object) -> None:
        assert isinstance(token, tuple)
        with self.database.mapped():
            self.database.undo(*token)

    def check_commit(self) -> None:
        with self.database.mapped(), self.database.savepoint("tg_check"):
            self.database.check_deferred()

    # Applying

    def apply(
        self,
        steps: tuple[Step, ...],
        *,
        first: bool = False,
        rewrite: bool = False,
        single: bool = False,
        border: bool = False,
    ) -> None:
        whole = self._all_or_anew() if first else self.database.savepoint("tg_apply")
        with self.database.mapped(), whole:
            for step in steps:
                if isinstance(step, Truncate):
                    self.database.truncate(step)
                else:
                    self._work(step, rewrite=rewrite, single=single)
                    if step.border and self.database.checks_late:
                        self.database.check_deferred()
            if border and self.database.checks_late:
                self.database.check_deferred()

    @contextlib.contextmanager
    def _all_or_anew(self) -> Iterator[None]:
        """As a savepoint right behind begin(), but a refusal begins the transaction anew: nothing is to be kept."""
        expected: tuple[type[Exception], ...] = (*self.database.errors, RefusedError)
        try:
            yield
        except expected as error:
            refused, moved = self.database.as_refused(error), self._moved
            self.database.roll_back()
            self.begin(*moved)
            raise refused from (None if refused is error else error)

    def _work(self, work: Work, *, rewrite: bool, single: bool) -> None:
        ordered = sorted(work.rows, key=_PARENTS_FIRST)
        merges = [Merge(self.database, rows, rewrite=rewrite, single=single) for rows in ordered]
        others = [merge for merge in merges if not merge.only_new]
        for merge in others:
            merge.read()
        for merge in reversed(others):
            merge.delete()
        for merge in merges:
            merge.write()
            if any(merge.counts):
                self._count(merge.layout, merge.counts)
        for bag in sorted(work.bags, key=_PARENTS_FIRST):
            self._bag(bag)

    def _count(self, layout: Layout, counts: Sequence[int]) -> None:
        had = self.tally.collisions.get(layout.place, (0, 0, 0))
        self.tally.collisions[layout.place] = (had[0] + counts[0], had[1] + counts[1], had[2] + counts[2])

    def _bag(self, bag: Bag) -> None:
        sql = self.database.sql_of(bag.layout)
        lost: Counter[int] = Counter()
        for match in bag.matches:
            found = self.database.match(sql, match)
            lost[1 if match.update else 2] += match.rows.rows - found
            if found != match.rows.rows and not bag.layout.collisions:
                verb = "update" if match.update else "delete"
                raise RefusedError(
                    bag.layout.full_name,
                    f"for {match.rows.rows - found} of {match.rows.rows} rows to {verb} no row is equal in all columns",
                    NO_ROW,
                )
        if bag.inserts.rows and (made := self._new(sql, bag.inserts)) != bag.inserts.rows:
            what = f"the target took {made} of {bag.inserts.rows} inserts: a trigger or rule there takes no more"
            raise RefusedError(bag.layout.full_name, what, NOT_TAKEN)
        if any(lost.values()):
            self._count(bag.layout, (0, lost[1], lost[2]))

    def _new(self, sql: StagedSql, blob: Blob) -> int:
        """Rows of a table without columns have nothing to copy: each is a row of the target's defaults."""
        if sql.layout.columns:
            return self.database.copy_new(sql, blob)
        return sum(self.database.run(sql.insert_defaults()) for _ in range(blob.rows))

    # One row, for who resolves conflicts

    def _at(self, layout: Layout, key: tuple[Value, ...]) -> tuple[StagedSql, str]:
        sql = self.database.sql_of(layout)
        return sql, self.database.stage(sql, "k", layout.key, layout.blob([key])[0])

    def current(self, layout: Layout, key: tuple[Value, ...]) -> Image | None:
        with self.database.mapped():
            found = self.database.fetch(layout, self._at(layout, key)[1])
        return found[0] if found else None

    def put(self, layout: Layout, row: Image) -> None:
        """Columns that are MISSING keep what they have."""
        given = tuple(at for at, value in enumerate(row) if value is not MISSING)
        one, _ = layout.blob([[row[at] for at in given]])
        whole = len(given) == len(row)
        rows = Rows(layout, upserts=one) if whole else Rows(layout, patches=(Patch(given, one),))
        with self.database.mapped(), self.database.savepoint("tg_put"):
            merge = Merge(self.database, rows, rewrite=False, single=True)
            merge.read()
            merge.delete()
            merge.write()
            if any(merge.counts):
                raise RefusedError(layout.full_name, "the row to update is not there, and lacks columns", NO_ROW)

    def remove(self, layout: Layout, key: tuple[Value, ...]) -> bool:
        with self.database.mapped(), self.database.savepoint("tg_remove"):
            sql, relation = self._at(layout, key)
            return self.database.join(sql, sql.delete(relation)) > 0
