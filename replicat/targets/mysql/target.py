"""MySQL and MariaDB as a target.

Strategy: rows go by LOAD DATA LOCAL into temporary InnoDB tables of the target's own column types, where each warning
is a refusal; from there by joined statements in strict SQL mode. Into a table of the user's LOAD DATA goes only with
many new rows, and counts only without any warning and with every row: LOCAL makes it pass over what is refused.
Everything of a batch is in the one transaction that also moves the checkpoint row.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pymysql

from replicat.model.target import Blob, Layout, Match, RefusedError, TargetTable
from replicat.targets.contract import Kind, TargetSettings
from replicat.targets.mysql.link import MysqlUrl, as_ours, connect, number_of, query, refusal, without_values
from replicat.targets.mysql.shapes import AUTO, NOT_NULL, check_engine, may_do_anything, tables_of
from replicat.targets.mysql.sql import MysqlSql
from replicat.targets.mysql.types import mysql_type
from replicat.targets.sql.codec import Codec
from replicat.targets.sql.converting import ConvertingDatabase
from replicat.targets.sql.staged_sql import NUMBER, StagedSql
from replicat.targets.sql.target import SqlTarget
from replicat.targets.sql.types import Native
from trails.errors import AwayError, OperatorError

INSERT_ROWS = 500
DROP_ROWS = 1000
"""A staging table that held more rows is dropped after the commit: to empty it row by row costs more."""
DIRECT_ROWS = 1000
"""Fewer new rows go by way of the staging table."""
_DIRECT = "tg_direct"
LOG_SECONDS = 60
"""So long a server may take to sync its log after a commit."""
SYSTEM = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
"""The server's own databases."""
_DENIED = frozenset({1044, 1045, 1142, 1227})
_SUPERUSER = (
    "Warning: TARGETDB's user {user} has SUPER or all privileges on the whole server. What stands in target tables "
    "(triggers, checks) runs as this user: give Replicat a user of its own (docs/security.md)"
)
_AT_ROW = re.compile(r"at row (\d+)")


def mysql_target(kind: Kind, settings: TargetSettings) -> SqlTarget:
    """For the kind."""
    return SqlTarget(MysqlDatabase(kind, settings))


class MysqlDatabase(ConvertingDatabase):
    """What SqlTarget asks of this database."""

    bounds_answers = True
    stages_stay = True

    errors = (pymysql.MySQLError,)
    begins = "START TRANSACTION"

    def __init__(self, kind: Kind, settings: TargetSettings) -> None:
        super().__init__(kind, settings)
        self._database = MysqlUrl.parse(settings.url).database
        self._infile = True  # the server permits LOAD DATA LOCAL
        self._folds = False  # the server ignores case in table names
        self._durable = True  # a commit is on disk when it returns
        self._packet = 1 << 24
        self._large: set[str] = set()
        self._plain: dict[str, bool] = {}  # by table, as this connection has found it

    # Connection

    def connect(self) -> None:
        self._plain.clear()
        self.conn = connect(self.settings.url)
        with self.mapped():
            infile, folds, trx, log_bin, sync, packet = self.ask(_SERVER)[0]
            self._infile, self._folds = bool(int(infile)), int(folds) != 0
            self._durable = int(trx) == 1 and (not int(log_bin) or int(sync) == 1)
            self._packet = int(packet)
            check_engine(self.ask, self.settings.checkpoint_table)
            if not self._durable:
                self._flush_log()

    def _flush_log(self) -> None:
        """Where the server does not write each commit to disk, and that may change at any time, we have it do so."""
        try:
            self.run("FLUSH ENGINE LOGS")
        except pymysql.MySQLError as error:
            if number_of(error) not in _DENIED:
                raise
            raise OperatorError(
                "the target server does not write each commit to disk, and this user may not have it done: "
                f"{error.args[-1]}",
                hint="SET GLOBAL innodb_flush_log_at_trx_commit = 1 and sync_binlog = 1, or GRANT RELOAD to this user",
            ) from error

    def bounds_waits(self, lock_ms: int, idle_ms: int) -> list[str]:
        """In whole seconds; of tables' locks beside those of rows."""
        lock, idle = max(1, lock_ms // 1000), max(1, idle_ms // 1000)
        return [
            f"SET SESSION innodb_lock_wait_timeout = {lock}", f"SET SESSION lock_wait_timeout = {lock}",
            f"SET SESSION wait_timeout = {idle}",
        ]  # fmt: skip

    # Transactions

    def finish(self, *, durable: bool) -> None:
        synced = durable and self._syncs_commits()
        self.run("COMMIT")
        if synced and self._syncs_commits():  # the setting may change under a connection
            return
        if durable or (self.settings.commit_wait and not self._durable):
            self._flush_log()
            self._await_log()

    def ended(self) -> None:
        self.drop_stages([name for name in self._stages if name in self._large], "DROP TEMPORARY TABLE IF EXISTS")
        self._large.clear()

    def _syncs_commits(self) -> bool:
        """Whether a commit is on disk when it is answered; the log may go on behind it, unsynced for a second."""
        return bool(int(self.ask(_SYNCS_COMMITS)[0][0]))

    def _await_log(self) -> None:
        """Until what was committed is on disk.

        MariaDB's FLUSH ENGINE LOGS syncs nothing that its settings don't ask for. But it tells how far its log is on
        disk, and syncs it in the background each second. MySQL obeys, and tells nothing.
        """
        deadline = time.monotonic() + LOG_SECONDS
        wanted = 0
        while found := dict(self.ask(_LOG)):
            wanted = wanted or int(found["Innodb_lsn_current"])
            if int(found["Innodb_lsn_flushed"]) >= wanted:
                return
            if time.monotonic() > deadline:
                raise OperatorError(
                    f"the target server has not synced its log for {LOG_SECONDS} s after a commit",
                    hint="SET GLOBAL innodb_flush_log_at_trx_commit = 1, or innodb_flush_log_at_timeout = 1",
                )
            time.sleep(0.02)

    @contextlib.contextmanager
    def _told(self, sql: StagedSql) -> Iterator[None]:
        """A refusal that names the target's table and not the staging table."""
        try:
            yield
        except pymysql.MySQLError as error:
            ours = as_ours(error, self.conn, sql.layout.full_name)
            if isinstance(ours, RefusedError):
                raise ours from error
            raise

    # Statements, and rows

    def run(self, statement: str, params: Sequence[object] = ()) -> int:
        if not params:
            return int(self.conn.query(statement) or 0)
        with self.conn.cursor() as cursor:
            return int(cursor.execute(statement, params))

    def ask(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return query(self.conn, statement, params)

    def make_sql(self, layout: Layout, number: int) -> StagedSql:
        return MysqlSql(layout, number, self._database)

    def native(self, column_type: str) -> Native:
        return mysql_type(column_type)

    def required(self, layout: Layout) -> frozenset[str]:
        pairs = zip(layout.columns, layout.types, strict=True)
        return frozenset(name for name, kind in pairs if kind.endswith((AUTO, NOT_NULL)))

    def load(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> None:
        """Each warning is a refusal, told with the first row that it is about."""
        assert isinstance(sql, MysqlSql)
        codec = self.codec(sql, columns)
        wraps = [rule.wrap for rule in codec.rules]
        if blob.rows > DROP_ROWS:
            self._large.add(sql.stage(letter))
            self.crowded = True
        with self._told(sql):
            if self._infile:
                taken, warnings = self._load(sql.load(letter, columns, wraps), codec, blob)
            else:
                codec.take_lost()  # as in _load
                rows = codec.rows(blob.read())
                taken, warnings = self._insert_rows(sql.insert_values(letter, columns), wraps, codec.table, rows)
        if warnings or taken != blob.rows:
            raise self._warned(codec, blob, taken)
        self.count_lost(codec, sql.layout)

    def _load(self, statement: str, codec: Codec, blob: Blob) -> tuple[int, int]:
        """(Rows taken, warnings)."""
        codec.take_lost()  # of rows that were refused

        def pieces() -> Iterator[bytes]:
            for data in codec.lines(blob.read()):
                self.tally.taken += len(data)
                yield data

        taken, warnings = self.conn.load(statement, pieces())
        return taken, warnings

    def _insert_rows(
        self, into: str, wraps: Sequence[str], table: str, rows: Sequence[tuple[Any, ...]]
    ) -> tuple[int, int]:
        """Rows as statements, for a server without LOAD DATA LOCAL."""
        taken = warnings = size = 0
        waiting: list[str] = []
        for row in rows:
            values = [
                "NULL" if value is None else wrap.replace("{}", self.conn.escape(value))
                for value, wrap in zip(row, wraps, strict=True)
            ]
            text = f"({', '.join(values)})"
            self.tally.taken += len(text)
            if (need := len(text.encode())) + len(into) >= self._packet:
                raise RefusedError(
                    table,
                    f"a row needs a statement of {need} bytes, and max_allowed_packet is {self._packet}: raise it at "
                    "the server, or set local_infile there",
                    "54000",
                    "1153",
                )
            if waiting and (size + len(text) * 4 > self._packet or len(waiting) >= INSERT_ROWS):
                taken, warnings = taken + self.run(into + ",".join(waiting)), warnings + self._warnings()
                waiting, size = [], 0
            waiting.append(text)
            size += len(text) * 4
        if waiting:
            taken, warnings = taken + self.run(into + ",".join(waiting)), warnings + self._warnings()
        return taken, warnings

    def _warnings(self) -> int:
        return int(self.conn._result.warning_count)  # noqa: SLF001  -- the driver tells it nowhere else

    def _warned(self, codec: Codec, blob: Blob, taken: int) -> Exception:
        """The first warning, as the error that it would have been outside LOAD DATA LOCAL."""
        found, rows = self.ask("SHOW WARNINGS LIMIT 1"), codec.rows(blob.read())
        codec.take_lost()
        if not found:
            return OperatorError(
                f"{codec.table}: the target took {taken} of {blob.rows} rows, and does not say why",
                hint="Look for triggers of that table, and into the server's error log",
            )
        _, number, text = found[0]
        at = _AT_ROW.search(text)
        row = f" (row {self._key_of(codec, rows, int(at[1]) - 1)})" if at else ""
        return refusal(int(number), text + row, codec.table) or RefusedError(
            codec.table, text + row, "22000", str(number), shown=without_values(int(number), text) + row
        )

    @staticmethod
    def _key_of(codec: Codec, rows: Sequence[tuple[Any, ...]], number: int) -> str:
        return ", ".join(str(rows[number][i]) for i in codec.key if number < len(rows)) or "?"

    def join(self, sql: StagedSql, statement: str) -> int:
        with self._told(sql):
            return self.run(statement)

    def copy_new(self, sql: StagedSql, blob: Blob) -> int:
        """Many rows go straight into a table where nothing but they themselves can bring a warning. With one, or with
        a row too few (LOCAL means IGNORE), it is as if nothing had been tried: by way of the staging table whatever is
        wrong is an error, and from then on all go that way.
        """
        assert isinstance(sql, MysqlSql)
        if self._infile and blob.rows > DIRECT_ROWS and self._is_plain(sql):
            codec = self.codec(sql, sql.layout.columns)
            known = self.mark(_DIRECT)
            taken, warnings = self._load(sql.load_rows([rule.wrap for rule in codec.rules]), codec, blob)
            if taken == blob.rows and not warnings:
                self.run(f"RELEASE SAVEPOINT {_DIRECT}")
                self.count_lost(codec, sql.layout)
                return taken
            codec.take_lost()
            self._plain[sql.table] = False
            self.undo(_DIRECT, known)
            self.run(f"RELEASE SAVEPOINT {_DIRECT}")
        relation = self.stage(sql, "r", sql.layout.columns, blob)
        return self.join(sql, sql.insert(relation, sql.layout.columns))

    def _is_plain(self, sql: StagedSql) -> bool:
        """Whether nothing fires in the table; a trigger that comes later brings warnings, or nothing to see."""
        if sql.table not in self._plain:
            table = self.look_up([sql.layout.place]).get(sql.layout.place)
            self._plain[sql.table] = table is not None and not table.fires
        return self._plain[sql.table]

    def match(self, sql: StagedSql, match: Match) -> int:
        assert isinstance(sql, MysqlSql)
        self.stage(sql, "b", sql.match_columns(match), match.rows)
        numbers = [int(number) for (number,) in self.ask(f"SELECT {NUMBER} FROM {sql.stage('b')} ORDER BY {NUMBER}")]
        change, changed = sql.match_one(match.nulls, update=match.update), 0
        for number in numbers:
            self.run(sql.match_values(number, update=match.update))
            changed += self.join(sql, change)
        return changed

    def ours(self, error: Exception) -> Exception:
        assert isinstance(error, pymysql.MySQLError)
        return as_ours(error, self.conn)

    # Shapes

    def is_system(self, schema: str) -> bool:
        return schema in SYSTEM

    def look_up(self, places: Sequence[tuple[str, str]]) -> dict[tuple[str, str], TargetTable]:
        return tables_of(self.ask, places, folds=self._folds)

    def types(self) -> frozenset[str]:
        return frozenset(name.lower() for (name,) in self.ask(_TYPES))

    def cautions(self) -> list[str]:
        return [_SUPERUSER.format(user=self.ask("SELECT current_user()")[0][0])] if may_do_anything(self.ask) else []

    def refused_ddl(self, statement: str, error: Exception) -> RefusedError:
        assert isinstance(error, pymysql.MySQLError)
        ours = as_ours(error, self.conn)
        if isinstance(ours, AwayError):
            raise ours from error
        number = number_of(error)
        shown = f"{without_values(number, str(error.args[-1]))} ({number})"
        return RefusedError(statement, f"{error.args[-1]} ({number})", "", str(number), shown=shown)


_LOG = "SHOW GLOBAL STATUS WHERE variable_name IN ('Innodb_lsn_current', 'Innodb_lsn_flushed')"
_SYNCS_COMMITS = "SELECT @@innodb_flush_log_at_trx_commit = 1 AND (NOT @@log_bin OR @@sync_binlog = 1)"
# MariaDB's own types are plugins of it, each from some version on. MySQL has none.
_TYPES = "SELECT plugin_name FROM information_schema.plugins WHERE plugin_type = 'DATA TYPE'"
_SERVER = """
SELECT @@local_infile, @@lower_case_table_names, @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog,
@@max_allowed_packet
"""
