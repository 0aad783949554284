"""PostgreSQL as a target.

Strategy: new rows go by COPY straight into their table, all else as staged rows and one statement a table and kind (see
replicat/targets/staged.py): many by COPY into temporary tables, few as JSON in the statement itself. Everything of a
batch, staging included, lives in the one transaction that also moves the checkpoint row: a crash anywhere, of this
process or of the server, leaves all of it or nothing (CW-01, CW-14, CW-15).

Only postgres*.py know psycopg.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import errors

from replicat.target import Blob, Layout, PlaceLostError, RefusedError, Row, TargetTable, Truncate
from replicat.targets import rowtable
from replicat.targets.postgres_admin import upgrade_row_table
from replicat.targets.postgres_link import connect, mapped, refusal, without_values
from replicat.targets.postgres_sequences import follow
from replicat.targets.postgres_shapes import shapes
from replicat.targets.postgres_sql import BY_INDEX, BY_TABLE, SESSION, PostgresSql, dotted
from replicat.targets.staged import StagedTarget
from replicat.targets.staged_sql import StagedSql
from trails.errors import AwayError, OperatorError
from trails.record import Image, Value

KIND = "postgresql"
# Each staging table there is costs every commit a sixth of a millisecond, whether it was used or not.
MOST_STAGES = 100
# Up to here rows stand in the statement: no staging table to make, to fill and to empty.
FEW_ROWS = 100
FEW_BYTES = 100_000
# And up to here where there are MOST_STAGES already: to make and drop a table with each batch bloats the catalog.
MORE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """What a PostgresTarget needs to know of its group.

    `suppress_triggers`: None as the target permits it, False for NOSUPPRESSTRIGGERS; `defer_constraints`:
    DEFERREFCONST; `follow_sequences`: FOLLOWSEQUENCES.
    """

    url: str
    checkpoint_table: tuple[str, str]
    group: str
    group_key: int
    home: str = ""
    commit_wait: bool = False
    suppress_triggers: bool | None = None
    defer_constraints: bool = False
    follow_sequences: bool = False


class PostgresTarget(StagedTarget):
    """See replicat.target.Target."""

    kind = KIND
    errors = (psycopg.Error,)

    def __init__(self, settings: PostgresSettings) -> None:
        super().__init__()
        self._settings = settings
        self._conn: psycopg.Connection[Any] | None = None
        self.row_table = dotted(*settings.checkpoint_table)
        self._written: set[tuple[str, str]] = set()  # tables whose sequences may have to follow
        self._recent: dict[str, None] = {}  # staging tables, that used last at the end
        self.replica_role = False

    # Connection

    def connect(self) -> None:
        """See Target."""
        self.close()
        self._conn = connect(self._settings.url, f"trailgate {self._settings.group}")
        with self.mapped():
            self._conn.execute(SESSION)
            self._conn.execute(BY_INDEX)
            if not self._settings.commit_wait:
                self._conn.execute("SET synchronous_commit = off")
            self.replica_role = self._be_replica()
            self._check_row_table()

    def close(self) -> None:
        """See Target."""
        self.forget_stages()
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(psycopg.Error):
                conn.close()

    def _be_replica(self) -> bool:
        """Triggers and cascades don't fire: their effects are in the trail already (CW-20)."""
        if self._settings.suppress_triggers is False:
            return False
        try:
            self._execute("SET session_replication_role = replica")
        except errors.InsufficientPrivilege:
            if self._settings.suppress_triggers:
                raise OperatorError(
                    "SUPPRESSTRIGGERS: the target user may not set session_replication_role",
                    hint="GRANT SET ON PARAMETER session_replication_role to that user, or take the option out",
                ) from None
            return False
        return True

    def _check_row_table(self) -> None:
        assert self._conn is not None
        schema, name = self._settings.checkpoint_table
        if self._execute("SELECT to_regclass(%s)", [self.row_table]).fetchone() == (None,):
            raise OperatorError(
                f"checkpoint table {schema}.{name} does not exist in the target",
                hint=f"ADD CHECKPOINTTABLE {schema}.{name}",
            )
        upgrade_row_table(self._conn, self.row_table)

    # The checkpoint row

    def speak_for(self, group: str, group_key: int) -> None:
        """See Target."""
        self._settings = replace(self._settings, group=group, group_key=group_key)

    def load_row(self) -> Row | None:
        """See Target."""
        with self.mapped():
            found = self._execute(rowtable.select(self.row_table), self._group).fetchone()
        return rowtable.row_of(found) if found else None

    def add_row(self, row: Row) -> None:
        """See Target."""
        values = rowtable.insert_values(self._settings.group, self._settings.group_key, row, self._settings.home)
        with self.mapped(), self._durable():
            self._execute(rowtable.insert(self.row_table, KIND), values)

    def begin(self, old: Row, new: Row) -> None:
        """See Target. The update waits for a killed predecessor's commit, if one is on its way, then finds no row."""
        with self.mapped():
            self._execute("BEGIN")
            self.forget_rows()
            self._move_row(old, new)
            if self._checks_late:
                self._execute("SET CONSTRAINTS ALL DEFERRED")

    def flush(self, old: Row, new: Row) -> None:
        """See Target. A commit that waits for the disk makes all earlier ones durable too."""
        with self.mapped(), self._durable():
            if self._written:
                follow(self._query, sorted(self._written))
            self._move_row(old, new)
        self._written.clear()

    def _move_row(self, old: Row, new: Row) -> None:
        values = rowtable.move_values(self._settings.group, self._settings.group_key, old, new, self._settings.home)
        moved = self._execute(rowtable.move(self.row_table, KIND), values)
        if moved.rowcount != 1:
            raise PlaceLostError(
                f"checkpoint row of {self._settings.group}: expected position {old.position}, found another"
            )

    @property
    def _group(self) -> list[object]:
        return [self._settings.group, self._settings.group_key]

    @contextlib.contextmanager
    def _durable(self) -> Iterator[None]:
        """A transaction whose commit waits for the disk."""
        self._execute("BEGIN")
        try:
            self._execute("SET LOCAL synchronous_commit = on")
            yield
            self._commit()
        except PlaceLostError:
            self._execute("ROLLBACK")
            raise

    # Transactions

    @property
    def _checks_late(self) -> bool:
        """Whether constraints that can wait for the transaction's end do so: a net effect has no order inside.

        In the replica role foreign keys are not checked at all.
        """
        return self._settings.defer_constraints or not self.replica_role

    def check_deferred(self) -> None:
        """See StagedTarget."""
        if self._checks_late:
            self.run("SET CONSTRAINTS ALL IMMEDIATE")
            self.run("SET CONSTRAINTS ALL DEFERRED")

    def commit(self) -> None:
        """See Target."""
        with self.mapped():
            self._commit()
            self._fresh.clear()
            self._loaded.clear()
            self._drop_stages()

    def _commit(self) -> None:
        # A transaction that an error broke is rolled back by COMMIT, and the server calls that no error.
        done = self._execute("COMMIT").statusmessage
        if done != "COMMIT":
            raise AwayError(f"the target answered COMMIT by {done}: nothing of the transaction was applied")

    def _drop_stages(self) -> None:
        """Those not used for the longest time, where there are too many."""
        self._recent = {name: None for name in self._recent if name in self._stages}
        if too_many := list(self._recent)[: max(0, len(self._recent) - MOST_STAGES)]:
            self._execute(f"DROP TABLE {', '.join(too_many)}")
            self._stages.difference_update(too_many)

    def truncate(self, step: Truncate) -> None:
        """One statement for all its tables."""
        tables = ", ".join(dotted(*table) for table in step.tables)
        self.run(f"TRUNCATE TABLE {tables}{' RESTART IDENTITY' if step.restart else ''}")

    def ddl(self, statements: tuple[str, ...]) -> None:
        """See Target. A table with checks that wait cannot be altered: what is satisfied already is checked first."""
        if self._checks_late:
            with self.mapped():
                self.tried(self.check_deferred)
        before = self.mark()
        for statement in statements:
            try:
                self.run(statement)
            except psycopg.Error as error:
                with self.mapped():
                    if self._conn is None or self._conn.closed:
                        raise
                self.undo(before)
                code = error.sqlstate or ""
                text = " ".join(str(error).split())
                raise RefusedError(statement, text, code, code, shown=without_values(error)) from error

    # What StagedTarget asks for

    def run(self, statement: str) -> int:
        """See StagedTarget."""
        return self._execute(statement).rowcount

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """See StagedTarget."""
        return self._execute(statement).fetchall()

    def run_with(self, statement: str, params: Sequence[object]) -> int:
        """See StagedTarget."""
        return self._execute(statement, params).rowcount

    def join(self, sql: StagedSql, statement: str) -> int:
        """By the key's index if there is one."""
        if sql.layout.arbiter and sql.layout.key:
            return self.run(statement)
        with self._by_table():
            return self.run(statement)

    def count(self, sql: StagedSql, statement: str) -> int:
        """As join()."""
        with contextlib.nullcontext() if sql.layout.arbiter and sql.layout.key else self._by_table():
            return int(self.ask(statement)[0][0])

    @contextlib.contextmanager
    def _by_table(self) -> Iterator[None]:
        self._execute(BY_TABLE)
        yield
        self._execute(BY_INDEX)

    def make_sql(self, layout: Layout, number: int) -> StagedSql:
        """See StagedTarget."""
        return PostgresSql(layout, number)

    def sql_of(self, layout: Layout) -> StagedSql:
        """See StagedTarget; whoever asks is going to write."""
        if self._settings.follow_sequences:
            self._written.add((layout.schema, layout.name))
        return super().sql_of(layout)

    def load(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> None:
        """See StagedTarget."""
        assert isinstance(sql, PostgresSql)
        self._copy(sql.copy_stage(letter, columns), blob.read())

    def copy_new(self, sql: StagedSql, blob: Blob) -> int:
        """See StagedTarget."""
        assert isinstance(sql, PostgresSql)
        return self._copy(sql.copy_rows(), blob.read())

    def clear(self, sql: StagedSql, letter: str) -> None:
        """See StagedTarget."""
        super().clear(sql, letter)
        self._recent.pop(sql.stage(letter), None)
        self._recent[sql.stage(letter)] = None

    def relation(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> str:
        """See StagedTarget."""
        crowded = len(self._stages) >= MOST_STAGES and sql.stage(letter) not in self._stages
        few = blob.rows <= FEW_ROWS and len(blob.data) <= FEW_BYTES
        if blob.path or not (few or (crowded and len(blob.data) <= MORE_BYTES)):
            return ""
        assert isinstance(sql, PostgresSql)
        found = sql.few(columns, blob)
        self.taken += len(blob.data) if found else 0
        return found

    def fetch(self, layout: Layout, relation: str) -> list[Image]:
        """See StagedTarget."""
        sql = self.sql_of(layout)
        assert isinstance(sql, PostgresSql)
        result = self._execute(sql.row(relation)).pgresult
        assert result is not None
        return [
            tuple(
                _canonical(result.get_value(row, i), kind)
                for i, kind in enumerate(layout.logical or [""] * len(layout.columns))
            )
            for row in range(result.ntuples)
        ]

    def refusal(self, error: Exception) -> RefusedError | None:
        """See StagedTarget."""
        return refusal(error)

    def mapped(self) -> contextlib.AbstractContextManager[None]:
        """See StagedTarget."""
        return mapped(self._conn)

    # Statements

    def _execute(self, statement: str, params: Sequence[object] | None = None) -> psycopg.Cursor[Any]:
        if self._conn is None:
            raise AwayError("the target connection is closed")
        # Planned anew each time: a staging table holds one row now and a hundred thousand next.
        return self._conn.execute(statement, params, prepare=False)

    def _query(self, statement: str, params: Sequence[object]) -> list[tuple[Any, ...]]:
        return self._execute(statement, params or None).fetchall()

    def _copy(self, statement: str, data: bytes) -> int:
        assert self._conn is not None
        # Such a server takes any bytes, but only from a client that doesn't claim to know what they mean.
        any_bytes = self._conn.info.parameter_status("server_encoding") == "SQL_ASCII"
        if any_bytes:
            self._execute("SET client_encoding = 'SQL_ASCII'")
        with self._conn.cursor() as cursor:
            with cursor.copy(statement.encode()) as copy:
                copy.write(data)
            copied = cursor.rowcount
        self.taken += len(data)
        if any_bytes:  # after an error going back to the savepoint does this
            self._execute("SET client_encoding = 'UTF8'")
        return copied

    # Shapes

    def table(self, schema: str, name: str) -> TargetTable | None:
        """See Target."""
        return self.tables([(schema, name)]).get((schema, name))

    def tables(self, places: Iterable[tuple[str, str]]) -> dict[tuple[str, str], TargetTable]:
        """See Target."""
        with self.mapped():
            return shapes(self._query, places, fires=not self.replica_role)


def _canonical(text: bytes | None, kind: str) -> Value:
    """A value as the type's output function gives it to canonical text (docs/values.md)."""
    if text is None:
        return None
    if kind == "boolean":
        return "true" if text == b"t" else "false"
    if kind == "bytes":
        return bytes.fromhex(text[2:].decode())
    return text.decode("utf-8", "surrogateescape")
