"""PostgreSQL as a target.

Strategy: new rows go by COPY straight into their table, all else as staged rows and one statement a table and kind (see
replicat/targets/sql/target.py): many by COPY into temporary tables, few as JSON in the statement itself. Everything of
a batch, staging included, lives in the one transaction that also moves the checkpoint row: a crash anywhere, of this
process or of the server, leaves all of it or nothing (CW-01, CW-14, CW-15).

Only postgres*.py know psycopg.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors

from replicat.model.target import Blob, Layout, RefusedError, TargetTable, Truncate
from replicat.targets.contract import Kind, TargetSettings
from replicat.targets.postgres.asked import AskedValues
from replicat.targets.postgres.link import as_ours, connect, heals, refusal, without_values
from replicat.targets.postgres.sequences import follow
from replicat.targets.postgres.shapes import TYPES, shapes
from replicat.targets.postgres.sql import BY_INDEX, BY_TABLE, SESSION, PostgresSql
from replicat.targets.sql.database import SqlDatabase
from replicat.targets.sql.quoting import dotted
from replicat.targets.sql.staged_sql import StagedSql
from replicat.targets.sql.target import SqlTarget
from trails.errors import AwayError, OperatorError
from trails.record import Image, Value

# Up to here rows stand in the statement: no staging table to make, to fill and to empty.
FEW_ROWS = 100
FEW_BYTES = 100_000
# And up to here where there are `most_stages` already: to make and drop a table with each batch bloats the catalog.
MORE_BYTES = 1_000_000

_WHO = "SELECT current_user::text, rolsuper FROM pg_roles WHERE rolname = current_user"
_PARTED = (
    "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = %s AND c.relname = %s AND c.relkind = 'p'"
)
_SUPERUSER = (
    "Warning: TARGETDB's user {user} is a superuser. What stands in target tables (checks, indexes, domains) runs as "
    "this user: give Replicat a role of its own (docs/security.md)"
)


def postgres_target(kind: Kind, settings: TargetSettings) -> SqlTarget:
    """For the kind."""
    return SqlTarget(PostgresDatabase(kind, settings))


class PostgresDatabase(SqlDatabase):
    """What SqlTarget asks of this database."""

    errors = (psycopg.Error,)
    # Each one that there is costs every commit a sixth of a millisecond, whether it was used or not.
    bounds_answers = True
    most_stages = 100

    def __init__(self, kind: Kind, settings: TargetSettings) -> None:
        super().__init__(kind, settings)
        self.replica_role = False
        self._asked = AskedValues(self.ask)

    # Connection

    def connect(self) -> None:
        self.conn = connect(self.settings.url, f"trailgate {self.settings.group}")
        # Statements are planned anew each time: a staging table holds one row now and a hundred thousand next.
        self.conn.prepare_threshold = None
        with self.mapped(brief=True):
            self.run(SESSION)
            self.run(BY_INDEX)
            if not self.settings.commit_wait:
                self.run("SET synchronous_commit = off")
            self.replica_role = self._be_replica()
            # A net effect has no order inside. In the replica role foreign keys are not checked at all.
            self.checks_late = self.settings.defer_constraints or not self.replica_role

    def _be_replica(self) -> bool:
        """Triggers and cascades don't fire: their effects are in the trail already (CW-20)."""
        if self.settings.suppress_triggers is False:
            return False
        try:
            self.run("SET session_replication_role = replica")
        except errors.InsufficientPrivilege:
            if self.settings.suppress_triggers:
                raise OperatorError(
                    "SUPPRESSTRIGGERS: the target user may not set session_replication_role",
                    hint="GRANT SET ON PARAMETER session_replication_role to that user, or take the option out",
                ) from None
            return False
        return True

    def bounds_waits(self, lock_ms: int, idle_ms: int) -> list[str]:
        return [f"SET lock_timeout = {lock_ms}", f"SET idle_in_transaction_session_timeout = {idle_ms}"]

    # Transactions

    def start(self, *, durable: bool) -> None:
        """Sequences follow before a commit that waits."""
        self.run("BEGIN")
        if durable:
            self.run("SET LOCAL synchronous_commit = on")
            if self.settings.follow_sequences and self.written:
                follow(self.ask, sorted(self.written))
        elif self.checks_late:
            self.run("SET CONSTRAINTS ALL DEFERRED")

    def finish(self, *, durable: bool) -> None:
        # A transaction that an error broke is rolled back by COMMIT, and the server calls that no error.
        done = self.conn.execute("COMMIT").statusmessage
        if done != "COMMIT":
            raise AwayError(f"the target answered COMMIT by {done}: nothing of the transaction was applied")
        if durable:
            self.written.clear()

    def ended(self) -> None:
        """Staging tables not used for the longest time go, where there are too many."""
        self.drop_stages(list(self._stages)[: max(0, len(self._stages) - self.most_stages)], "DROP TABLE")

    def check_deferred(self) -> None:
        if self.checks_late:
            self.run("SET CONSTRAINTS ALL IMMEDIATE")
            self.run("SET CONSTRAINTS ALL DEFERRED")

    def truncate(self, step: Truncate) -> None:
        """One statement for all its tables; not for those that inherit from them, whose rows are their own."""
        tables = ", ".join(f"{'' if self.ask(_PARTED, table) else 'ONLY '}{dotted(*table)}" for table in step.tables)
        self.run(f"TRUNCATE TABLE {tables}{' RESTART IDENTITY' if step.restart else ''}")

    def before_ddl(self) -> None:
        """A table with checks that wait cannot be altered: what is satisfied already is checked first."""
        if self.checks_late:
            self.tried(self.check_deferred)

    def refused_ddl(self, statement: str, error: Exception) -> RefusedError:
        assert isinstance(error, psycopg.Error)
        if heals(error, self.conn):
            raise as_ours(error, self.conn) from error
        code = error.sqlstate or ""
        return RefusedError(statement, " ".join(str(error).split()), code, code, shown=without_values(error))

    def cautions(self) -> list[str]:
        (user, is_super), *_ = self.ask(_WHO)
        return [_SUPERUSER.format(user=user)] if is_super else []

    def check_types(self, types: Mapping[str, bool]) -> None:
        """What a domain checks and how a type is cast is its owner's code, and would run as this user."""
        found = self.ask(TYPES, [list(types)])
        known = {name: (enum, trusted, owner) for name, enum, trusted, owner in found}
        for name, is_cast in types.items():
            if name not in known:
                raise RefusedError(name, "there is no such type here", "42704", "42704")
            enum, trusted, owner = known[name]
            if not (trusted or (enum and not is_cast)):
                raise RefusedError(
                    name, f"the type belongs to {owner}, who is neither this user nor a superuser", "42501", "42501"
                )

    # Statements, and rows

    def run(self, statement: str, params: Sequence[object] = ()) -> int:
        return int(self.conn.execute(statement, params or None).rowcount)

    def ask(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.conn.execute(statement, params or None).fetchall()
        return found

    def join(self, sql: StagedSql, statement: str) -> int:
        with self._planned(sql):
            return self.run(statement)

    def count(self, sql: StagedSql, statement: str) -> int:
        with self._planned(sql):
            return int(self.ask(statement)[0][0])

    @contextlib.contextmanager
    def _planned(self, sql: StagedSql) -> Iterator[None]:
        """By the key's index if there is one."""
        by_table = not (sql.layout.arbiter and sql.layout.key)
        if by_table:
            self.run(BY_TABLE)
        yield
        if by_table:
            self.run(BY_INDEX)

    def make_sql(self, layout: Layout, number: int) -> StagedSql:
        asks = any(rule.asks for _, rule in self._asked.rules(layout).values())
        return PostgresSql(layout, number, asks=asks)

    def load(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> None:
        assert isinstance(sql, PostgresSql)
        self._copy(sql.copy_stage(letter, columns), blob)
        self._check(sql, columns, blob)

    def copy_new(self, sql: StagedSql, blob: Blob) -> int:
        assert isinstance(sql, PostgresSql)
        copied = self._copy(sql.copy_rows, blob)
        if sql.asks:
            self._check(sql, sql.layout.columns, blob)
        return copied

    def pour(self, sql: StagedSql, pieces: Iterable[bytes]) -> int:
        assert isinstance(sql, PostgresSql)
        with self.conn.cursor() as cursor:
            with cursor.copy(sql.copy_rows.encode()) as copy:
                for piece in pieces:
                    copy.write(piece)
                    self.tally.taken += len(piece)
            return int(cursor.rowcount)

    def _check(self, sql: StagedSql, columns: Sequence[str], blob: Blob) -> None:
        """Behind the COPY, which names place and column of what is no value of the type at all."""
        if counted := self._asked.check(sql, columns, blob):
            place = sql.layout.place
            self.tally.converted[place] = self.tally.converted.get(place, 0) + counted

    def check_layout(self, layout: Layout) -> None:
        self._asked.rules(layout)

    def close(self) -> None:
        super().close()
        self._asked.forget()

    def relation(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> str:
        crowded = len(self._stages) >= self.most_stages and sql.stage(letter) not in self._stages
        few = blob.rows <= FEW_ROWS and len(blob.data) <= FEW_BYTES
        if blob.path or not (few or (crowded and len(blob.data) <= MORE_BYTES)):
            return ""
        assert isinstance(sql, PostgresSql)
        found = sql.few(columns, blob)
        if found:
            self.tally.taken += len(blob.data)
            self._check(sql, columns, blob)
        return found

    def fetch(self, layout: Layout, relation: str) -> list[Image]:
        sql = self.sql_of(layout)
        assert isinstance(sql, PostgresSql)
        read = {name: rule.read for name, (_, rule) in self._asked.rules(layout).items()}
        result = self.conn.execute(sql.fetch_as(relation, read)).pgresult
        assert result is not None
        return [
            tuple(
                _canonical(result.get_value(row, i), kind)
                for i, kind in enumerate(layout.logical or [""] * len(layout.columns))
            )
            for row in range(result.ntuples)
        ]

    def refusal(self, error: Exception) -> RefusedError | None:
        return refusal(error)

    def ours(self, error: Exception) -> Exception:
        assert isinstance(error, psycopg.Error)
        return as_ours(error, self.conn)

    def run_ddl(self, statement: str) -> None:
        """By the extended protocol (`binary` makes psycopg take it): the server refuses more than one statement."""
        self.conn.execute(statement, binary=True)

    def _copy(self, statement: str, blob: Blob) -> int:
        conn: psycopg.Connection[Any] = self.conn
        data = blob.read() if blob.path else blob.data
        # Such a server takes any bytes, but only from a client that doesn't claim to know what they mean.
        any_bytes = conn.info.parameter_status("server_encoding") == "SQL_ASCII"
        if any_bytes:
            self.run("SET client_encoding = 'SQL_ASCII'")
        with conn.cursor() as cursor:
            with cursor.copy(statement.encode()) as copy:
                copy.write(data)
            copied = cursor.rowcount
        self.tally.taken += len(data)
        if any_bytes:  # after an error going back to the savepoint does this
            self.run("SET client_encoding = 'UTF8'")
        return copied

    # Shapes

    def is_system(self, schema: str) -> bool:
        return schema.startswith("pg_") or schema == "information_schema"

    def look_up(self, places: Sequence[tuple[str, str]]) -> dict[tuple[str, str], TargetTable]:
        return shapes(self.ask, places, fires=not self.replica_role)


def _canonical(text: bytes | None, kind: str) -> Value:
    """A value as the type's output function gives it to canonical text (docs/values.md)."""
    if text is None:
        return None
    if kind == "boolean" and text in (b"t", b"f"):
        return "true" if text == b"t" else "false"
    if kind == "bytes":
        return bytes.fromhex(text[2:].decode())
    return text.decode("utf-8", "surrogateescape")
