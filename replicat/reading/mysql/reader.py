"""MySQL and MariaDB read in chunks, by snapshots of which the place in the binary log is known.

MariaDB tells the place of a snapshot itself. MySQL does not: a second connection locks the table against writers for
the moment in which the snapshot is taken and the log's end is read. Who writes the table holds its lock until the
commit is in the log and in the table, so of this table the snapshot has exactly what the log has up to that place. The
lock is waited for a second at a time, as writers queue behind it.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pymysql
from pymysql.cursors import SSCursor

from replicat.model.loading import ordered
from replicat.reading.contract import MOST_SCANS, WHOLE, KeyBounds, Range, Snapshot, ascending, inside, no_columns
from replicat.reading.hashing import Hashes, by_part
from replicat.reading.mysql.hashes import HASHING, statement
from replicat.reading.mysql.keys import TableKey, behind, condition, key_column, selected, written
from replicat.targets.mysql.link import connect, mapped, number_of, query
from replicat.targets.sql.quoting import dotted, ident
from trails.errors import AwayError, OperatorError
from trails.position import Position
from trails.record import Image, TableDef, Value

LOCK_SECONDS: Final = 60.0
"""So long a moment is looked for in which nobody has the table open for writing, unless `bound_waits` says less."""
_SAMPLED: Final = 20_000
_LOCK_TIMEOUT: Final = 1205
_DENIED: Final = (1044, 1045, 1142, 1227)
_SESSION: Final = ("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET SESSION net_write_timeout = 3600")
_MAYBE: Final = ("SET SESSION max_execution_time = 0", "SET SESSION information_schema_stats_expiry = 0")
_FILE: Final = re.compile(r".*\.(\d+)\Z", re.DOTALL)
_STATUS_RENAMED: Final = (8, 2)
"""From this release on SHOW BINARY LOG STATUS stands for SHOW MASTER STATUS."""

_COLUMNS: Final = (
    "SELECT column_name, COALESCE(collation_name, '') FROM information_schema.columns "
    "WHERE table_schema = %s AND table_name = %s"
)
_SHAPE: Final = (
    "SELECT column_name, column_type, COALESCE(collation_name, '') FROM information_schema.columns "
    "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)
_INDEXES: Final = (
    "SELECT index_name, column_name, sub_part, index_type FROM information_schema.statistics "
    "WHERE table_schema = %s AND table_name = %s ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index"
)
_ROWS: Final = (
    "SELECT COALESCE(table_rows, 0) FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
)


class MysqlReader:
    """One connection, and one more for a moment; replicat.reading.contract.Reader says what each method does."""

    def __init__(self, url: str, trail: Mapping[str, str]) -> None:
        self._epoch = int(trail.get("epoch") or 0)
        self._url = url
        self._lock_seconds = LOCK_SECONDS
        self._link = connect(url, "source")
        self._keys: dict[bytes, TableKey] = {}
        with self._ours():
            for statement in _SESSION:
                self._link.query(statement)
            for statement in _MAYBE:  # what one of the two servers has
                with contextlib.suppress(pymysql.err.OperationalError):
                    self._link.query(statement)
            self._version = str(query(self._link, "SELECT @@version")[0][0])
        self._maria = "mariadb" in self._version.lower()

    def _ours(self) -> contextlib.AbstractContextManager[None]:
        return mapped(self._link, "source", "source")

    def identity(self) -> dict[str, str]:
        with self._ours():
            ((server,),) = query(self._link, f"SELECT @@global.{'server_id' if self._maria else 'server_uuid'}")
        return {"kind": "mariadb" if self._maria else "mysql", "server": str(server)}

    def bound_waits(self, seconds: float) -> None:
        self._lock_seconds = seconds
        with self._ours():
            self._link.query(f"SET SESSION lock_wait_timeout = {math.ceil(seconds)}")

    # --- chunks -----------------------------------------------------------------------------------------------------

    def bounds(self, table: TableDef, rows: int) -> KeyBounds:
        with self._ours():
            key = self._key(table)
            found = query(self._link, _ROWS, [table.schema, table.name])
            estimate = int(found[0][0]) if found else 0
            if not key.columns:
                return KeyBounds(estimate=estimate)
            lows = list(self._steps(table, key, rows) if key.indexed else self._sampled(table, key, rows, estimate))
        orders = tuple(column.order for column in key.chunked)
        return KeyBounds(orders, ascending(orders, lows), estimate)

    def splits(self, table: TableDef, part: Range, rows: int) -> tuple[tuple[str, ...], ...]:
        with self._ours():
            key = self._key(table)
            return inside(part, self._steps(table, key, rows, part)) if key.indexed else ()

    def _steps(self, table: TableDef, key: TableKey, rows: int, part: Range = WHOLE) -> Iterator[tuple[str, ...]]:
        """By the index, from one bound to the next."""
        columns = [table.columns[i] for i in table.key[: len(key.chunked)]]
        makers = [written(column) for column in columns]
        orders = tuple(column.order for column in key.chunked)
        by = ", ".join(column.compared for column in key.chunked)
        ask = (
            f"SELECT {', '.join(map(selected, columns))} FROM {dotted(table.schema, table.name)} "
            f"FORCE INDEX ({ident(key.index)}) WHERE "
        )
        low, below = part.low, condition(key, table, Range(orders, (), part.high))
        while True:
            where = condition(key, table, Range(orders, low, part.high))
            found = query(self._link, f"{ask}{where} ORDER BY {by} LIMIT 1 OFFSET {max(1, rows)}")
            if found and low and ordered(orders, _texts(makers, found[0])) == ordered(orders, low):
                # So many rows have the same values.
                found = query(self._link, f"{ask}{behind(key, low)} AND {below} ORDER BY {by} LIMIT 1")
            if not found:
                return
            low = _texts(makers, found[0])
            yield low

    def _sampled(self, table: TableDef, key: TableKey, rows: int, estimate: int) -> list[tuple[str, ...]]:
        """Of some rows, as each range scans the table anyway."""
        count = min(MOST_SCANS, -(-estimate // max(1, rows)))
        if count < 2:
            return []
        column = table.columns[table.key[0]]
        found = query(
            self._link,
            f"SELECT {selected(column)} FROM {dotted(table.schema, table.name)} "
            f"WHERE RAND() < {min(1.0, _SAMPLED / estimate)} ORDER BY {key.columns[0].compared}",
        )
        maker = written(column)
        step = max(1, -(-len(found) // count))
        return [_texts([maker], row) for row in found[step::step]]

    def _key(self, table: TableDef) -> TableKey:
        made = self._keys.get(table.id)
        if made is None:
            made = self._keys[table.id] = self._ask_key(table)
        return made

    def _ask_key(self, table: TableDef) -> TableKey:
        place = [table.schema, table.name]
        there = {str(name): str(collation) for name, collation in query(self._link, _COLUMNS, place)}
        if not there:
            raise OperatorError(
                f"the source database has no table {table.full_name}, or this user may not see it",
                hint="Mend SOURCEDB, or the MAP",
            )
        if missing := [c.name for c in table.columns if c.type != "token" and c.name not in there]:
            raise no_columns(table, missing)
        columns = []
        for column in (table.columns[i] for i in table.key):
            made = key_column(column, there[column.name])
            if made is None:
                break
            columns.append(made)
        indexes: dict[str, list[str]] = {}
        for index, name, prefix, kind in query(self._link, _INDEXES, place):
            indexes.setdefault(str(index), []).append(str(name) if prefix is None and kind == "BTREE" else "")
        names = [table.columns[i].name for i in table.key]
        indexed, best = 0, ""
        for index, parts in indexes.items():
            same = 0
            while same < min(len(columns), len(parts)) and parts[same] == names[same] and columns[same].native:
                same += 1
            if same > indexed:
                indexed, best = same, index
        return TableKey(tuple(columns), indexed, best)

    # --- hashes -----------------------------------------------------------------------------------------------------

    def hashing(self, _table: TableDef, _columns: Sequence[str]) -> str:
        return HASHING

    def hashes(
        self, table: TableDef, columns: Sequence[str], part: Range, lows: Sequence[tuple[str, ...]], secret: str
    ) -> Hashes:
        with self._ours():
            key = self._key(table)
            found = {column.name: column for column in table.columns}
            below = [condition(key, table, Range(part.orders, (), low)) for low in lows]
            name, where = dotted(table.schema, table.name), condition(key, table, part)
            asked = statement([found[one] for one in columns], name, where, below, secret)
            return by_part(query(self._link, asked), len(lows) + 1)

    # --- the snapshot -----------------------------------------------------------------------------------------------

    def begin(self, table: TableDef, csn: str = "") -> Snapshot:
        self.end()
        # Of the trail's newest file, or of what is applied already where a failover has come since.
        epoch = max(self._epoch, int(csn.partition(":")[0] or 0))
        with self._ours():
            file, pos = self._told() if self._maria else self._locked(table)
        found = _FILE.match(file)
        if found is None:
            raise OperatorError(
                "the source database has no binary log, or does not tell its place", hint="Set log_bin at the server"
            )
        number = int(found[1])
        return Snapshot(f"csn {epoch:04d}:{number:010d}:{pos:015d}", Position(epoch << 32 | number, pos))

    def _start(self) -> None:
        self._link.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def _told(self) -> tuple[str, int]:
        self._start()
        status = {str(name).lower(): str(value) for name, value in query(
            self._link, "SHOW STATUS LIKE 'binlog_snapshot_%'")}  # fmt: skip
        return status.get("binlog_snapshot_file", ""), int(status.get("binlog_snapshot_position") or 0)

    def _locked(self, table: TableDef) -> tuple[str, int]:
        deadline = time.monotonic() + self._lock_seconds
        locker = connect(self._url, "source")
        try:
            with mapped(locker, "source", "source"):
                locker.query("SET SESSION lock_wait_timeout = 1")
                while True:
                    try:
                        locker.query(f"LOCK TABLES {dotted(table.schema, table.name)} READ")
                        break
                    except pymysql.MySQLError as error:
                        self._refuse(error, table, deadline)
                    time.sleep(0.2)  # those who have queued behind the lock go first
                self._start()
                rows = query(locker, self._ask_end)
                return (str(rows[0][0]), int(rows[0][1])) if rows else ("", 0)
        finally:
            locker.close()

    @property
    def _ask_end(self) -> str:
        release = tuple(int(part) for part in re.findall(r"\d+", self._version)[:2])
        return "SHOW BINARY LOG STATUS" if release >= _STATUS_RENAMED else "SHOW MASTER STATUS"

    def _refuse(self, error: pymysql.MySQLError, table: TableDef, deadline: float) -> None:
        """Raise, unless the lock is worth another try."""
        if number_of(error) in _DENIED:
            raise OperatorError(
                f"the user of SOURCEDB may not lock table {table.full_name} for the moment of a snapshot",
                hint=f"GRANT SELECT, LOCK TABLES ON {table.schema}.* TO it",
            ) from None
        if number_of(error) != _LOCK_TIMEOUT:
            raise error
        if time.monotonic() > deadline:
            raise AwayError(
                f"for {self._lock_seconds:.0f} s there was no moment in which no transaction had changes of table "
                f"{table.full_name} open",
                hint="End the transaction that has been open for so long: information_schema.innodb_trx has it",
            ) from None

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows(self, table: TableDef, columns: Sequence[str], part: Range = WHOLE) -> Iterator[Image]:
        with self._ours():
            where = condition(self._key(table), table, part)
            found = {column.name: column for column in table.columns}
            wanted = [found[name] for name in columns]
            makers = [written(column) for column in wanted]
            cursor = self._link.cursor(SSCursor)
            try:
                cursor.execute(
                    f"SELECT {', '.join(map(selected, wanted))} FROM {dotted(table.schema, table.name)} WHERE {where}"
                )
                while (row := cursor.fetchone()) is not None:
                    yield [None if value is None else make(value) for make, value in zip(makers, row, strict=True)]
            finally:
                cursor.close()

    # --- ends -------------------------------------------------------------------------------------------------------

    def shape(self, schema: str, name: str) -> list[list[str]]:
        with self._ours():
            return [[str(part) for part in row] for row in query(self._link, _SHAPE, [schema, name])]

    def check(self, table: TableDef) -> None:
        with self._ours():
            self._ask_key(table)
            columns = ", ".join(selected(column) for column in table.columns if column.type != "token")
            query(self._link, f"SELECT {columns} FROM {dotted(table.schema, table.name)} LIMIT 0")

    def newest(self) -> None:
        """Snapshots are told by their CSN."""

    def settle(self) -> None:
        """With sync_binlog = 1 nobody sees a commit before it is on the disk; without it the server takes back any."""

    def end(self) -> None:
        if self._link.open:
            with self._ours():
                self._link.rollback()

    def close(self) -> None:
        with contextlib.suppress(pymysql.MySQLError):
            self._link.close()


def _texts(makers: Sequence[Any], row: Sequence[Any]) -> tuple[str, ...]:
    made: list[Value] = [make(value) for make, value in zip(makers, row, strict=True)]
    return tuple(value.hex() if isinstance(value, bytes) else str(value) for value in made)
