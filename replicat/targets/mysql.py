"""MySQL and MariaDB as a target (MariaDB is the one that is tested).

Strategy: rows go by LOAD DATA LOCAL into temporary InnoDB tables of the target's own column types, where each warning
is a refusal; from there by joined statements in strict SQL mode. LOAD DATA never meets a table of the user's: LOCAL
makes it skip duplicate rows. Everything of a batch is in the one transaction that also moves the checkpoint row.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pymysql

from replicat.net.copytext import render
from replicat.target import Blob, Layout, Match, PlaceLostError, RefusedError, Row, TargetTable
from replicat.targets import TargetSettings, rowtable
from replicat.targets.codec import Codec, parse
from replicat.targets.converting import ConvertingTarget
from replicat.targets.mysql_admin import KIND, dotted, load_row, upgrade_row_table
from replicat.targets.mysql_link import Link, MysqlUrl, as_ours, connect, number_of, refusal, without_values
from replicat.targets.mysql_shape import AUTO, NOT_NULL, tables_of
from replicat.targets.mysql_sql import MysqlSql
from replicat.targets.staged_sql import NUMBER, StagedSql
from replicat.targets.types import Native, mysql_type
from trails.errors import AwayError, OperatorError
from trails.record import Image

INSERT_ROWS = 500
DROP_ROWS = 1000
"""A staging table that held more rows is dropped after the commit: to empty it row by row costs more."""
_AT_ROW = re.compile(r"at row (\d+)")


class MysqlTarget(ConvertingTarget):
    """See replicat.target.Target."""

    kind = KIND
    transactional_ddl = False
    errors = (pymysql.MySQLError,)

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__(settings)
        self._link: Link | None = None
        self.row_table = dotted(*settings.checkpoint_table)
        self._database = MysqlUrl.parse(settings.url).database
        self._infile = True  # the server permits LOAD DATA LOCAL
        self._folds = False  # the server ignores case in table names
        self._durable = True  # a commit is on disk when it returns
        self._packet = 1 << 24
        self._large: set[str] = set()

    # Connection

    def connect(self) -> None:
        """See Target."""
        self.close()
        self._link = connect(self.settings.url)
        with self.mapped():
            infile, folds, trx, log_bin, sync, packet = self.ask(_SERVER)[0]
            self._infile, self._folds = bool(int(infile)), int(folds) != 0
            self._durable = int(trx) == 1 and (not int(log_bin) or int(sync) == 1)
            self._packet = int(packet)
            upgrade_row_table(self._link, self.settings.checkpoint_table)
            if not self._durable:
                self._check_flush()

    def _check_flush(self) -> None:
        """Where the server does not write each commit to disk, we must be able to have it do so."""
        try:
            self.run("FLUSH ENGINE LOGS")
        except pymysql.MySQLError as error:
            raise OperatorError(
                "the target server does not write each commit to disk, and this user may not have it done: "
                f"{error.args[-1]}",
                hint="SET GLOBAL innodb_flush_log_at_trx_commit = 1 and sync_binlog = 1, or GRANT RELOAD to this user",
            ) from error

    def close(self) -> None:
        """See Target."""
        self.forget_stages()
        self._large.clear()
        link, self._link = self._link, None
        if link is not None and link.open:
            with contextlib.suppress(pymysql.MySQLError):
                link.close()

    # The checkpoint row

    def load_row(self) -> Row | None:
        """See Target."""
        with self.mapped():
            return load_row(self.link, self.settings.checkpoint_table, self.settings.group, self.settings.group_key)

    def add_row(self, row: Row) -> None:
        """See Target."""
        values = rowtable.insert_values(self.settings.group, self.settings.group_key, row, self.settings.home)
        with self.mapped():
            self.run_with(rowtable.insert(self.row_table, KIND), values)
            self._sync()

    def begin(self, old: Row, new: Row) -> None:
        """See Target. The update waits for a killed predecessor's commit, if one is on its way, then finds no row."""
        with self.mapped():
            self.run("START TRANSACTION")
            self.forget_rows()
            self._move_row(old, new)

    def flush(self, old: Row, new: Row) -> None:
        """See Target."""
        with self.mapped():
            self.run("START TRANSACTION")
            self._move_row(old, new)
            self.run("COMMIT")
            self._sync()

    def commit(self) -> None:
        """See Target."""
        with self.mapped():
            self.run("COMMIT")
            if self.settings.commit_wait:
                self._sync()
            self.forget_rows()
            for name in self._large:
                self.run(f"DROP TEMPORARY TABLE IF EXISTS {name}")
            self._stages -= self._large
            self._loaded -= self._large
            self._large.clear()

    def _move_row(self, old: Row, new: Row) -> None:
        values = rowtable.move_values(self.settings.group, self.settings.group_key, old, new, self.settings.home)
        if self.run_with(rowtable.move(self.row_table, KIND), values) != 1:
            self.run("ROLLBACK")
            raise PlaceLostError(self.place_lost(old))

    def _sync(self) -> None:
        if not self._durable:
            self.run("FLUSH ENGINE LOGS")

    @contextlib.contextmanager
    def _told(self, sql: StagedSql) -> Iterator[None]:
        """A refusal that names the target's table and not the staging table."""
        try:
            yield
        except pymysql.MySQLError as error:
            ours = as_ours(error, self._link, sql.layout.full_name)
            if isinstance(ours, RefusedError):
                raise ours from error
            raise

    # Hooks of StagedTarget

    @property
    def link(self) -> Link:
        """The connection."""
        if self._link is None:
            raise AwayError("the target connection is closed")
        return self._link

    def run(self, statement: str) -> int:
        """See StagedTarget."""
        return int(self.link.query(statement) or 0)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """See StagedTarget."""
        return self.query(statement)

    def query(self, statement: str, params: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        """A query with parameters."""
        with self.link.cursor() as cursor:
            cursor.execute(statement, params)
            return list(cursor.fetchall())

    def run_with(self, statement: str, params: Sequence[object]) -> int:
        """See StagedTarget."""
        with self.link.cursor() as cursor:
            return int(cursor.execute(statement, params))

    def make_sql(self, layout: Layout, number: int) -> StagedSql:
        """See StagedTarget."""
        return MysqlSql(layout, number, self._database)

    def native(self, column_type: str) -> Native:
        """See ConvertingTarget."""
        return mysql_type(column_type)

    def required(self, layout: Layout) -> frozenset[str]:
        """See ConvertingTarget."""
        pairs = zip(layout.columns, layout.types, strict=True)
        return frozenset(name for name, kind in pairs if kind.endswith((AUTO, NOT_NULL)))

    def load(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> None:
        """See StagedTarget: each warning is a refusal, told with the first row that it is about."""
        assert isinstance(sql, MysqlSql)
        codec = self.codec(sql, columns)
        data = blob.read()
        if not codec.passes:
            data, _, _ = render(codec.rows(data))
            self.count_lost(codec, sql.layout)
        wraps = [rule.wrap for rule in codec.rules]
        if blob.rows > DROP_ROWS:
            self._large.add(sql.stage(letter))
        with self._told(sql):
            self.taken += len(data)
            if self._infile:
                taken, warnings = self.link.load(sql.load(letter, columns, wraps), data)
            else:
                taken, warnings = self._insert_rows(sql.insert_values(letter, columns), wraps, codec, data)
        if warnings or taken != blob.rows:
            raise self._warned(codec, data, taken, blob.rows)

    def _insert_rows(self, into: str, wraps: Sequence[str], codec: Codec, data: bytes) -> tuple[int, int]:
        """Rows as statements, for a server without LOAD DATA LOCAL."""
        columns = parse(codec.table, data)
        taken = warnings = size = 0
        waiting: list[str] = []
        for row in zip(*columns, strict=True):
            values = [
                "NULL" if value is None else wrap.replace("{}", self.link.escape(value))
                for value, wrap in zip(row, wraps, strict=True)
            ]
            text = f"({', '.join(values)})"
            if (need := len(text.encode())) + len(into) >= self._packet:
                raise RefusedError(
                    codec.table,
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
        return int(self.link._result.warning_count)  # noqa: SLF001  -- the driver tells it nowhere else

    def _warned(self, codec: Codec, data: bytes, taken: int, wanted: int) -> Exception:
        """The first warning, as the error that it would have been outside LOAD DATA LOCAL."""
        found = self.query("SHOW WARNINGS LIMIT 1")
        if not found:
            return OperatorError(f"{codec.table}: the target took {taken} of {wanted} rows, and does not say why")
        _, number, text = found[0]
        at = _AT_ROW.search(text)
        row = f" (row {self._key_of(codec, data, int(at[1]) - 1)})" if at else ""
        return refusal(int(number), text + row, codec.table) or RefusedError(
            codec.table, text + row, "22000", str(number), shown=without_values(int(number), text) + row
        )

    @staticmethod
    def _key_of(codec: Codec, data: bytes, number: int) -> str:
        columns = parse(codec.table, data)
        return ", ".join(str(columns[i][number]) for i in codec.key if number < len(columns[i])) or "?"

    def join(self, sql: StagedSql, statement: str) -> int:
        """See StagedTarget."""
        with self._told(sql):
            return self.run(statement)

    def copy_new(self, sql: StagedSql, blob: Blob) -> int:
        """See StagedTarget."""
        relation = self.stage(sql, "r", sql.layout.columns, blob)
        return self.join(sql, sql.insert(relation, sql.layout.columns))

    def fetch(self, layout: Layout, relation: str) -> list[Image]:
        """See StagedTarget."""
        sql = self.sql_of(layout)
        assert isinstance(sql, MysqlSql)
        return [self.back(layout, row) for row in self.ask(sql.fetch(relation))]

    def match(self, sql: StagedSql, match: Match) -> int:
        """See StagedTarget."""
        assert isinstance(sql, MysqlSql)
        self.stage(sql, "b", sql.match_columns(match), match.rows)
        numbers = [int(number) for (number,) in self.ask(f"SELECT {NUMBER} FROM {sql.stage('b')} ORDER BY {NUMBER}")]
        return sum(self.join(sql, sql.match_one(number, match.nulls, update=match.update)) for number in numbers)

    def _back_to(self, name: str, fresh: int, counts: Any) -> None:
        """Staging tables are not made in a transaction here: they stay."""
        del fresh
        self.run(f"ROLLBACK TO SAVEPOINT {name}")
        self._collisions = dict(counts)

    def refusal(self, error: Exception) -> RefusedError | None:
        """See StagedTarget."""
        if not isinstance(error, pymysql.MySQLError):
            return None
        found = as_ours(error, self._link)
        return found if isinstance(found, RefusedError) else None

    @contextlib.contextmanager
    def mapped(self) -> Iterator[None]:
        """See StagedTarget."""
        try:
            yield
        except pymysql.MySQLError as error:
            raise as_ours(error, self._link) from error

    # Shapes

    def table(self, schema: str, name: str) -> TargetTable | None:
        """See Target."""
        return self.tables([(schema, name)]).get((schema, name))

    def tables(self, places: Iterable[tuple[str, str]]) -> dict[tuple[str, str], TargetTable]:
        """See Target."""
        with self.mapped():
            return tables_of(self.query, places, folds=self._folds)

    def ddl(self, statements: tuple[str, ...]) -> None:
        """See Target. Each commits by itself."""
        for statement in statements:
            try:
                self.run(statement)
            except pymysql.MySQLError as error:
                ours = as_ours(error, self._link)
                if isinstance(ours, AwayError):
                    raise ours from error
                number = str(number_of(error))
                told = without_values(number_of(error), str(error.args[-1]))
                raise RefusedError(
                    statement, f"{error.args[-1]} ({number})", "", number, shown=f"{told} ({number})"
                ) from error


_SERVER = """
SELECT @@local_infile, @@lower_case_table_names, @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog,
@@max_allowed_packet
"""
