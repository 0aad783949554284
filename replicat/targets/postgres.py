"""PostgreSQL as a target: the only file that knows psycopg.

Strategy: new rows go by COPY straight into their table, all else by COPY into temporary tables and one statement a
table and kind. Everything of a batch, staging included, lives in the one transaction that also moves the checkpoint
row: a crash anywhere, of this process or of the server, leaves all of it or nothing (CW-01, CW-14, CW-15).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from replicat.copytext import line
from replicat.target import (
    NO_ROW,
    Bag,
    Blob,
    Fill,
    Layout,
    PlaceLostError,
    RefusedError,
    Row,
    Rows,
    Step,
    TargetColumn,
    TargetTable,
    Truncate,
    Work,
)
from replicat.targets.postgres_sql import CHECKPOINT_COLUMNS, ROW_COLUMNS, SESSION, LayoutSql, dotted, ident
from trails.errors import AwayError, OperatorError
from trails.position import Position
from trails.record import MISSING

ROW_VERSION = 1
# Each staging table there is costs every commit a sixth of a millisecond, whether it was used or not.
MOST_STAGES = 100
_T = TypeVar("_T")
_REFUSED = (
    errors.IntegrityError, errors.DataError, errors.NotSupportedError, errors.RaiseException,
    # psycopg files these under its classes for a lost connection and for a wrong statement.
    errors.ProgramLimitExceeded, errors.CardinalityViolation, errors.WithCheckOptionViolation,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """What a PostgresTarget needs to know of its group."""

    url: str
    checkpoint_table: tuple[str, str]
    group: str
    group_key: int
    home: str = ""
    commit_wait: bool = False


class PostgresTarget:
    """See replicat.target.Target."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._conn: psycopg.Connection[Any] | None = None
        self._row_table = dotted(*settings.checkpoint_table)
        self._layouts: dict[Layout, LayoutSql] = {}
        self._stages: set[str] = set()  # staging tables of this connection
        self._fresh: list[str] = []  # those made in the open transaction
        self._used: set[str] = set()  # those with rows of the open transaction
        self.replica_role = False

    # Connection

    def connect(self) -> None:
        """See Target."""
        self.close()
        self._conn = connect(self._settings.url, f"trailgate {self._settings.group}")
        with _mapped(self._conn):
            self._conn.execute(SESSION)
            if not self._settings.commit_wait:
                self._conn.execute("SET synchronous_commit = off")
            self.replica_role = self._be_replica()
            self._check_row_table()

    def close(self) -> None:
        """See Target."""
        self._layouts.clear()
        self._stages.clear()
        self._fresh.clear()
        self._used.clear()
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(psycopg.Error):
                conn.close()

    def _be_replica(self) -> bool:
        """Triggers and cascades don't fire: their effects are in the trail already (CW-20)."""
        try:
            self._execute("SET session_replication_role = replica")
        except errors.InsufficientPrivilege:
            return False
        return True

    def _check_row_table(self) -> None:
        schema, name = self._settings.checkpoint_table
        if self._execute("SELECT to_regclass(%s)", [self._row_table]).fetchone() == (None,):
            raise OperatorError(
                f"checkpoint table {schema}.{name} does not exist in the target",
                hint=f"ADD CHECKPOINTTABLE {schema}.{name}",
            )

    # The checkpoint row

    def load_row(self) -> Row | None:
        """See Target."""
        with _mapped(self._conn):
            found = self._execute(
                f"SELECT {ROW_COLUMNS} FROM {self._row_table} WHERE group_name = %s AND group_key = %s", self._group
            ).fetchone()
        return _row(found) if found else None

    def add_row(self, row: Row) -> None:
        """See Target."""
        marks = ", ".join(["%s"] * 12)
        with _mapped(self._conn), self._durable():
            self._execute(
                f"INSERT INTO {self._row_table} (group_name, group_key, {ROW_COLUMNS}, create_ts, last_update_ts, "
                f"current_dir, version) VALUES ({marks}, now(), now(), %s, %s)",
                [*self._group, *_columns(row), self._settings.home, ROW_VERSION],
            )

    def begin(self, old: Row, new: Row) -> None:
        """See Target. The update waits for a killed predecessor's commit, if one is on its way, then finds no row."""
        with _mapped(self._conn):
            self._execute("BEGIN")
            self._move_row(old, new)

    def flush(self, old: Row, new: Row) -> None:
        """See Target. A commit that waits for the disk makes all earlier ones durable too."""
        with _mapped(self._conn), self._durable():
            self._move_row(old, new)

    def _move_row(self, old: Row, new: Row) -> None:
        sets = ", ".join(f"{name.strip()} = %s" for name in ROW_COLUMNS.split(","))
        moved = self._execute(
            f"UPDATE {self._row_table} SET {sets}, audit_ts = %s, log_cmplt_csn = log_csn, log_cmplt_xids = %s, "
            "last_update_ts = now(), current_dir = %s WHERE group_name = %s AND group_key = %s "
            "AND seqno = %s AND rba = %s AND trail_id = %s AND alter_no = %s AND added_us = %s",
            [
                *_columns(new), _timestamp(new.time_us), new.xid, self._settings.home, *self._group,
                old.position.seqno, old.position.rba, old.trail_id.hex(), old.alter_no, old.added_us,
            ],
        )  # fmt: skip
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
            self._execute("COMMIT")
        except PlaceLostError:
            self._execute("ROLLBACK")
            raise

    # Transactions

    def commit(self) -> None:
        """See Target."""
        with _mapped(self._conn):
            self._execute("COMMIT")
            self._fresh.clear()
            self._used.clear()
            if len(self._stages) > MOST_STAGES:
                self._execute("DISCARD TEMPORARY")
                self._stages.clear()

    def apply(self, steps: tuple[Step, ...], *, rewrite: bool = False) -> None:
        """See Target."""
        with _mapped(self._conn):
            self._make_stages(steps, rewrite)
            made = len(self._fresh)
            self._execute("SAVEPOINT tg_apply")
            try:
                for step in steps:
                    if isinstance(step, Truncate):
                        self._truncate(step)
                    else:
                        self._work(step, rewrite)
            except (*_REFUSED, RefusedError) as error:
                self._execute("ROLLBACK TO SAVEPOINT tg_apply")
                self._forget_stages(self._fresh[made:])
                raise error if isinstance(error, RefusedError) else _refused(error) from error
            self._execute("RELEASE SAVEPOINT tg_apply")

    def _truncate(self, step: Truncate) -> None:
        tables = ", ".join(dotted(*table) for table in step.tables)
        restart = " RESTART IDENTITY" if step.restart else ""
        self._execute(f"TRUNCATE TABLE {tables}{restart}")

    def _work(self, work: Work, rewrite: bool) -> None:
        parents_first = sorted(work.rows, key=lambda rows: rows.layout.rank)
        for rows in parents_first:
            self._stage(rows, rewrite or not rows.layout.arbiter)
        for rows in reversed(parents_first):
            self._delete(rows, rewrite or not rows.layout.arbiter)
        for rows in parents_first:
            self._write(rows, rewrite or not rows.layout.arbiter)
        for bag in work.bags:
            self._apply_bag(bag)

    # Tables with a key

    def _stage(self, rows: Rows, rewrite: bool) -> None:
        sql = self._sql(rows.layout)
        if rows.deletes.rows:
            self._copy_stage(sql, "k", rows.layout.key, [rows.deletes])
        staged = [rows.upserts, rows.inserts] if rewrite else [rows.upserts]
        if any(blob.rows for blob in staged):
            self._copy_stage(sql, "r", rows.layout.columns, staged)
        if rows.fills:
            self._fill(sql, rows.fills)

    def _fill(self, sql: LayoutSql, fills: Sequence[Fill]) -> None:
        """Read what is missing before anything is deleted."""
        groups: dict[tuple[int, ...], list[Fill]] = {}
        for fill in fills:
            groups.setdefault(tuple(i for i, v in enumerate(fill.row) if v is MISSING), []).append(fill)
        self._clear_stage(sql, "f")
        for number, (missing, members) in enumerate(groups.items()):
            lines = [
                line((str(number), *fill.base, *(value for value in fill.row if value is not MISSING)))
                for fill in members
            ]
            data = "".join(lines).encode("utf-8", "surrogateescape")
            self._copy(sql.copy_stage("f", sql.fill_columns(missing)), data)
            if self._execute(sql.read_fills(number, missing)).rowcount != len(members):
                found = self._execute(sql.unfilled()).fetchone()
                raise RefusedError(
                    sql.layout.full_name,
                    f"no row with key ({found[0] if found else '?'}) to take unchanged columns from",
                    NO_ROW,
                )

    def _delete(self, rows: Rows, rewrite: bool) -> None:
        sql = self._sql(rows.layout)
        if rows.deletes.rows:
            self._execute(sql.delete("k"))
        if not rewrite:
            return
        if rows.upserts.rows or rows.inserts.rows:
            if rows.layout.extras:
                self._clear_stage(sql, "x")
                self._execute(sql.keep_extras("r"))
            else:
                self._execute(sql.delete("r"))
        if rows.fills:
            self._execute(sql.delete("f"))

    def _write(self, rows: Rows, rewrite: bool) -> None:
        sql = self._sql(rows.layout)
        if rewrite:
            if rows.upserts.rows or rows.inserts.rows:
                statements = sql.insert_with_extras() if rows.layout.extras else [sql.insert("r")]
                for statement in statements:
                    self._execute(statement)
            if rows.fills:
                self._execute(sql.insert("f"))
            return
        if rows.fills:
            self._execute(sql.upsert("f"))
        if rows.upserts.rows:
            self._execute(sql.upsert("r"))
        if rows.inserts.rows:
            self._insert(sql, rows.inserts)

    def _insert(self, sql: LayoutSql, blob: Blob) -> None:
        """COPY; where some rows are there already (a load overlaps, a batch is done again), upsert."""
        self._execute("SAVEPOINT tg_copy")
        try:
            self._copy(sql.copy_rows(), blob.read())
        except errors.UniqueViolation:
            self._execute("ROLLBACK TO SAVEPOINT tg_copy")
            self._make_stage(sql, "r")
            self._copy_stage(sql, "r", sql.layout.columns, [blob])
            self._execute(sql.upsert("r"))
        self._execute("RELEASE SAVEPOINT tg_copy")

    # Tables without a key

    def _apply_bag(self, bag: Bag) -> None:
        sql = self._sql(bag.layout)
        for run in bag.runs:
            if isinstance(run, Blob):
                self._copy(sql.copy_rows(), run.read())
                continue
            done = self._execute(sql.change_one(run.before, run.after), sql.change_params(run.before, run.after))
            if done.rowcount != 1:
                raise RefusedError(
                    bag.layout.full_name,
                    f"no row equal to ({', '.join(str(value) for value in run.before)}) to "
                    f"{'delete' if run.after is None else 'update'}",
                    NO_ROW,
                )

    # Staging

    def _sql(self, layout: Layout) -> LayoutSql:
        found = self._layouts.get(layout)
        if found is None:
            found = self._layouts[layout] = LayoutSql(layout, len(self._layouts))
        return found

    def _make_stages(self, steps: tuple[Step, ...], rewrite: bool) -> None:
        """Before the savepoint, so that its rollback leaves them."""
        for step in steps:
            for rows in step.rows if isinstance(step, Work) else ():
                sql, again = self._sql(rows.layout), rewrite or not rows.layout.arbiter
                wanted = {
                    "k": rows.deletes.rows,
                    "r": rows.upserts.rows or (again and rows.inserts.rows),
                    "f": rows.fills,
                    "x": again and rows.layout.extras,
                }
                for letter, needed in wanted.items():
                    if needed:
                        self._make_stage(sql, letter)

    def _make_stage(self, sql: LayoutSql, letter: str) -> None:
        name = sql.stages[letter]
        if name not in self._stages:
            self._execute(sql.create_stage(letter))
            self._stages.add(name)
            self._fresh.append(name)

    def _forget_stages(self, names: Sequence[str]) -> None:
        """They were made behind a place that was rolled back to."""
        self._stages.difference_update(names)
        self._used.difference_update(names)
        self._fresh = [name for name in self._fresh if name not in names]

    def _copy_stage(self, sql: LayoutSql, letter: str, columns: Sequence[str], blobs: Sequence[Blob]) -> None:
        self._clear_stage(sql, letter)
        for blob in blobs:
            if blob.rows:
                self._copy(sql.copy_stage(letter, columns), blob.read())

    def _clear_stage(self, sql: LayoutSql, letter: str) -> None:
        name = sql.stages[letter]
        if name in self._used:
            self._execute(f"TRUNCATE {name}")
        self._used.add(name)

    # Statements

    def _execute(self, statement: str, params: Sequence[object] | None = None) -> psycopg.Cursor[Any]:
        if self._conn is None:
            raise AwayError("the target connection is closed")
        # Planned anew each time: a staging table holds one row now and a hundred thousand next.
        return self._conn.execute(statement, params, prepare=False)

    def _copy(self, statement: str, data: bytes) -> None:
        assert self._conn is not None
        with self._conn.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(data)

    # Shapes

    def table(self, schema: str, name: str) -> TargetTable | None:
        """See Target."""
        with _mapped(self._conn):
            found = self._execute(_OID, [schema, name]).fetchone()
            if found is None:
                return None
            oid, unlogged = found
            if unlogged:
                raise OperatorError(
                    f"target table {schema}.{name} is UNLOGGED: a crash of the server would empty it, and the "
                    "checkpoint row would not know",
                    hint=f"ALTER TABLE {schema}.{name} SET LOGGED",
                )
            columns = self._execute(_TABLE_COLUMNS, [oid]).fetchall()
            unique = self._execute(_UNIQUE, [oid]).fetchall()
            fires = () if self.replica_role else tuple(r[0] for r in self._execute(_FIRES, [oid, oid]).fetchall())
            rank = 0 if self.replica_role else self._execute(_RANK, [oid]).fetchall()[0][0]
        return TargetTable(
            schema, name, tuple(TargetColumn(*column) for column in columns),
            tuple(frozenset(row[0]) for row in unique), fires, rank,
        )  # fmt: skip


def connect(url: str, application: str) -> psycopg.Connection[Any]:
    """A connection in autocommit; AwayError if the server can't be reached, OperatorError if it refuses us."""
    try:
        return psycopg.connect(**_alive(url), autocommit=True, application_name=application)
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        if isinstance(error, psycopg.ProgrammingError) or any(mark in text for mark in _OURS_TO_MEND):
            raise OperatorError(f"the target database refuses the connection: {text}", hint="Mend TARGETDB") from None
        raise AwayError(f"the target database can't be reached: {text}") from None


def _alive(url: str) -> dict[str, Any]:
    """The URL's own options, and what finds out within a minute that the other host is gone without a word."""
    ours = {
        "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    }  # fmt: skip
    return ours | conninfo_to_dict(url)


_OURS_TO_MEND = (
    "authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied", "permission denied",
    "invalid connection option", "Name or service not known",
)  # fmt: skip


@contextlib.contextmanager
def _mapped(conn: psycopg.Connection[Any] | None) -> Iterator[None]:
    """Psycopg's errors as ours, by who must act."""
    try:
        yield
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        # A read-only server is a standby, or has just become one: waiting, or the URL's other host, helps.
        if conn is None or conn.closed or isinstance(error, _AWAY):
            raise AwayError(f"the target database went away: {text}") from error
        raise OperatorError(f"the target database refused a statement: {text}") from error


_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction)


def _refused(error: psycopg.Error) -> RefusedError:
    diag = error.diag
    table = f"{diag.schema_name}.{diag.table_name}" if diag.table_name else "target"
    parts = [diag.message_primary, diag.message_detail, (diag.context or "").split("\n")[0]]
    return RefusedError(table, "; ".join(" ".join(part.split()) for part in parts if part), error.sqlstate or "")


def _row(found: tuple[Any, ...]) -> Row:
    seqno, rba, trail_id, csn, xid, time_us, alter_no, added_us, flush_seqno, flush_rba = found
    return Row(
        Position(seqno, rba), bytes.fromhex(trail_id), csn or "", xid or "", time_us, alter_no, added_us,
        Position(flush_seqno, flush_rba),
    )  # fmt: skip


def _columns(row: Row) -> list[object]:
    return [
        row.position.seqno, row.position.rba, row.trail_id.hex(), row.csn, row.xid, row.time_us, row.alter_no,
        row.added_us, row.flushed.seqno, row.flushed.rba,
    ]  # fmt: skip


def _timestamp(us: int | None) -> str | None:
    if us is None:
        return None
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


# Administration, for replicat/admin.py


def database_info(url: str) -> dict[str, str]:
    """Who we are where."""
    conn = connect(url, "trailgate admin")
    with _mapped(conn), conn:
        found = conn.execute("SELECT current_user, current_database(), version()").fetchone()
    assert found is not None
    return dict(zip(("user", "database", "server"), found, strict=True))


def add_row_table(url: str, table: tuple[str, str]) -> None:
    """ADD CHECKPOINTTABLE."""

    def make(conn: psycopg.Connection[Any]) -> None:
        with conn.transaction():
            conn.execute(f"CREATE SCHEMA IF NOT EXISTS {ident(table[0])}")
            conn.execute(f"CREATE TABLE {dotted(*table)} ({CHECKPOINT_COLUMNS})")

    _admin(url, make)


def drop_row_table(url: str, table: tuple[str, str]) -> None:
    """DELETE CHECKPOINTTABLE."""
    _admin(url, lambda conn: conn.execute(f"DROP TABLE {dotted(*table)}"))


def rows_of_table(url: str, table: tuple[str, str]) -> list[dict[str, Any]] | None:
    """INFO CHECKPOINTTABLE: every group's row; None if there is no such table."""

    def read(conn: psycopg.Connection[Any]) -> list[dict[str, Any]] | None:
        if conn.execute("SELECT to_regclass(%s)", [dotted(*table)]).fetchone() == (None,):
            return None
        fields = ("group", "group_key", "seqno", "rba", "csn", "alter_no", "created", "updated")
        found = conn.execute(
            "SELECT group_name, group_key::text, seqno, rba, log_csn, alter_no, create_ts::text, last_update_ts::text "
            f"FROM {dotted(*table)} ORDER BY 1, 2"
        ).fetchall()
        return [dict(zip(fields, row, strict=True)) for row in found]

    return _admin(url, read)


def delete_row(url: str, table: tuple[str, str], group: str, group_key: int) -> bool:
    """DELETE REPLICAT: forget how far the group was. True if there was a row."""

    def remove(conn: psycopg.Connection[Any]) -> bool:
        statement = f"DELETE FROM {dotted(*table)} WHERE group_name = %s AND group_key = %s"
        return conn.execute(statement, [group, group_key]).rowcount > 0

    return _admin(url, remove)


def read_row(url: str, table: tuple[str, str], group: str, group_key: int) -> Row | None:
    """One group's row, as a process would find it."""

    def read(conn: psycopg.Connection[Any]) -> Row | None:
        statement = f"SELECT {ROW_COLUMNS} FROM {dotted(*table)} WHERE group_name = %s AND group_key = %s"
        found = conn.execute(statement, [group, group_key]).fetchone()
        return _row(found) if found else None

    return _admin(url, read)


def _admin(url: str, work: Callable[[psycopg.Connection[Any]], _T]) -> _T:
    conn = connect(url, "trailgate admin")
    with conn, _mapped(conn):
        conn.execute("SET synchronous_commit = on")
        return work(conn)


_OID = """
SELECT c.oid, c.relpersistence = 'u' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
"""
_TABLE_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), attgenerated <> '', attidentity = 'a', coalesce(own.equal, '=')
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN LATERAL (
    SELECT format('OPERATOR(%%I.%%s)', n.nspname, o.oprname) AS equal
    FROM pg_opclass c JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amopstrategy = 3
        AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
    JOIN pg_am ON pg_am.oid = c.opcmethod AND amname = 'btree'
    JOIN pg_operator o ON o.oid = m.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
    WHERE c.opcdefault AND c.opcintype IN (t.oid, t.typbasetype) AND n.nspname <> 'pg_catalog' LIMIT 1
) own ON true WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_UNIQUE = """
SELECT array_agg(a.attname::text) FROM pg_index i
JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts - 1]) AS k(attnum) ON true
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""
_FIRES = """
SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgrelid = %s AND NOT tgisinternal AND tgenabled IN ('O', 'A')
UNION ALL
SELECT 'cascade of ' || conname FROM pg_constraint
WHERE confrelid = %s AND contype = 'f' AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))
"""
_RANK = """
WITH RECURSIVE up(oid, depth, path) AS (
    SELECT %s::oid, 0, ARRAY[]::oid[]
    UNION ALL
    SELECT c.confrelid, depth + 1, path || up.oid
    FROM up JOIN pg_constraint c ON c.conrelid = up.oid AND c.contype = 'f'
    WHERE c.confrelid <> up.oid AND c.confrelid <> ALL(path)
)
SELECT max(depth)::integer FROM up
"""
