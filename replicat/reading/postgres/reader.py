"""PostgreSQL read in chunks: values as COPY writes them, under the settings that the capture has.

What a snapshot sees. For capture from the log it is the server's own snapshot, transaction by transaction. For capture
by triggers the trail's transactions are ticks: of each, the queue has a row that was committed behind all that it
holds. So the ticks whose rows the snapshot sees are those that it sees whole; a later one it may see in part.
"""

from __future__ import annotations

import binascii
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.generators import fetch_many

from replicat.model.loading import Seen
from replicat.reading.contract import MOST_SCANS, WHOLE, KeyBounds, Range, Snapshot, ascending, inside
from replicat.reading.hashing import Hashes, by_part
from replicat.reading.postgres.hashes import PROBE, sent, statement
from replicat.reading.postgres.keys import Keys, condition, keys_of, wire
from replicat.targets.postgres.link import connect, mapped
from replicat.targets.sql.quoting import ident
from trails.errors import AwayError, OperatorError
from trails.position import Position
from trails.record import Image, TableDef, Value

KIND: Final = "postgresql"
QUIET_SECONDS: Final = 60.0
"""So long a standby is asked for a moment in which nothing is open, unless `bound_waits` says less."""
SURE_ROWS: Final = 500_000
"""Up to so many rows their keys are counted one by one; of more some pages are looked at."""
_SAMPLED: Final = 100_000
_PAGE, _PAGE_HEADER, _FILE_HEADER = 8192, 24, 40
_NUMBERS: Final = 1 << 32
"""The trail's numbers of transactions go round behind so many."""
_LOOK_SECONDS: Final = 0.02
_QUEUE: Final = "trailgate_queue.tick"

# As extract/sources/postgres/driver.py has them; a row that a policy would hide is an error, and nothing is left out.
_SESSION: Final = (
    "SET DateStyle = ISO", "SET IntervalStyle = postgres", "SET TimeZone = 'UTC'", "SET extra_float_digits = 1",
    "SET bytea_output = hex", "SET lc_monetary = 'C'", "SET xmloption = content", "SET client_encoding = 'UTF8'",
    "SET row_security = off", "SET jit = off",
    (
        "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', "
        "'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout')"
    ),
)  # fmt: skip

# Pages of now by rows a page as ANALYZE saw them; of a table that it never saw, by a row of about 100 bytes.
_ESTIMATE: Final = """
SELECT coalesce(sum(CASE WHEN c.reltuples >= 0 AND c.relpages > 0 THEN c.reltuples / c.relpages
    * pg_relation_size(c.oid) / current_setting('block_size')::int ELSE pg_relation_size(c.oid) / 100 END), 0)::bigint
FROM pg_class c WHERE c.relkind = 'r'
AND (c.oid = %(table)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(table)s)))
"""
_PLACE: Final = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END) - '0/0',
    pg_size_bytes(current_setting('wal_segment_size')), pg_is_in_recovery()
"""
_SHAPE: Final = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), c.oid::text FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# As extract/sources/postgres/check.py asks.
_IDENTITY: Final = """
SELECT system_identifier::text, current_database(), (CASE WHEN pg_is_in_recovery()
    THEN (SELECT timeline_id FROM pg_control_checkpoint())
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END)::text
FROM pg_control_system()
"""
# Commits that wait for a synchronous standby: they are in the log, and no snapshot shows them. The one who commits a
# prepared transaction has no number of his own. Who may not see what others wait for takes any of them for such a one.
_HANGING: Final = """
WITH waiting AS (SELECT backend_xid FROM pg_stat_activity WHERE datname = current_database()
    AND current_setting('synchronous_standby_names') <> '' AND pid <> pg_backend_pid()
    AND (wait_event = 'SyncRep' OR query = '<insufficient privilege>'))
SELECT backend_xid::text FROM waiting WHERE backend_xid IS NOT NULL
UNION SELECT transaction::text FROM pg_prepared_xacts
    WHERE database = current_database() AND EXISTS (SELECT FROM waiting WHERE backend_xid IS NULL)
"""
_FLUSHED: Final = """
SELECT CASE WHEN pg_is_in_recovery() THEN true ELSE pg_current_wal_flush_lsn() - '0/0' >= %(at)s END
"""


class PostgresReader:
    """One connection; replicat.reading.contract.Reader says what each method does."""

    def __init__(self, url: str, trail: Mapping[str, str]) -> None:
        """`trail`: its headers' identity, which has a queue where the capture is by triggers."""
        self._ticks = "queue" in trail
        self._conn = connect(url, "trailgate load", "source")
        self._keys: dict[bytes, Keys] = {}
        self._ended: dict[str, int] | None = None  # where the log ended when the snapshot was taken
        self._quiet_seconds = QUIET_SECONDS
        self._surely = 0.0  # from then on all before that is on the disk
        self._wide = False
        with mapped(self._conn, "source"):
            for statement in _SESSION:
                self._conn.execute(statement)

    def identity(self) -> dict[str, str]:
        with mapped(self._conn, "source"):
            system, database, timeline = self._one(_IDENTITY)
        branch = {} if self._ticks else {"timeline": timeline}
        return {"kind": KIND, "system": system, "database": database, **branch}

    def bound_waits(self, seconds: float) -> None:
        self._quiet_seconds = seconds
        with mapped(self._conn, "source"):
            self._conn.execute(wire(f"SET lock_timeout = {int(seconds * 1000)}"))

    # --- chunks -----------------------------------------------------------------------------------------------------

    def bounds(self, table: TableDef, rows: int) -> KeyBounds:
        with mapped(self._conn, "source"):
            keys = self._keys_of(table)
            (estimate,) = self._one(_ESTIMATE, {"table": keys.oid})
            if not table.key:
                return KeyBounds(estimate=estimate)
            chunked = keys.chunked
            orders = tuple(column.order for column in chunked)
            if not keys.indexed:
                rows = max(rows, -(-estimate // MOST_SCANS))
            part = min(1.0, max(_SAMPLED, 500 * estimate // rows) / estimate) if estimate > SURE_ROWS else 1.0
            sample = f"TABLESAMPLE SYSTEM ({part * 100:.6f}) REPEATABLE (1)" if part < 1 else ""
            found = self._conn.execute(
                wire(f"{_numbered(keys, sample)} WHERE n > 0 AND n % {max(1, int(rows * part))} = 0")
            ).fetchall()
        lows = ascending(orders, found)
        if not keys.indexed and len(lows) >= MOST_SCANS:
            lows = lows[:: -(-len(lows) // (MOST_SCANS - 1))]
        return KeyBounds(orders, lows, estimate)

    def splits(self, table: TableDef, part: Range, rows: int) -> tuple[tuple[str, ...], ...]:
        with mapped(self._conn, "source"):
            keys = self._keys_of(table)
            if not keys.indexed:
                return ()
            found = self._conn.execute(
                wire(f"{_numbered(keys, f'WHERE {condition(keys, table, part)}')} WHERE n > 0 AND n % {rows} = 0")
            ).fetchall()
        return inside(part, found)

    # --- hashes -----------------------------------------------------------------------------------------------------

    def hashing(self, table: TableDef, columns: Sequence[str]) -> str:
        with mapped(self._conn, "source"):
            try:
                self._conn.execute(PROBE)
            except (errors.InternalError_, errors.UndefinedFunction):
                return ""  # of a server that must not use MD5, or is too old, rows are read
            return " ".join([KIND, *sent(self._keys_of(table).types, columns)])

    def hashes(
        self, table: TableDef, columns: Sequence[str], part: Range, lows: Sequence[tuple[str, ...]], secret: str
    ) -> Hashes:
        """Under a lock, so that no column becomes another type, which a cast would round, behind this look at it."""
        with mapped(self._conn, "source"):
            keys = self._keys_of(table)
            below = [condition(keys, table, Range(part.orders, (), low)) for low in lows]
            asked = statement(keys.types, columns, keys.source, condition(keys, table, part), below, secret)
            self._conn.execute("BEGIN READ ONLY")
            try:
                self._conn.execute(wire(f"LOCK TABLE {keys.source} IN ACCESS SHARE MODE"))
                if keys_of(self._conn, table) != keys:
                    return [None] * (len(lows) + 1)
                return by_part(self._conn.execute(wire(asked)).fetchall(), len(lows) + 1)
            finally:
                self.end()

    # --- the snapshot -----------------------------------------------------------------------------------------------

    def begin(self, table: TableDef, csn: str = "") -> Snapshot:
        self.end()
        with mapped(self._conn, "source"):
            return self._tick(table) if self._ticks or csn.isdecimal() else self._exact(table, csn)

    def shape(self, schema: str, name: str) -> list[list[str]]:
        with mapped(self._conn, "source"):
            return [list(row) for row in self._conn.execute(_SHAPE, [schema, name])]

    def check(self, table: TableDef) -> None:
        with mapped(self._conn, "source"):
            names = ", ".join(ident(column.name) for column in table.columns if column.type != "token")
            self._conn.execute(wire(f"SELECT {names} FROM {keys_of(self._conn, table).source} LIMIT 0"))

    def newest(self) -> int | None:
        """A standby has replayed what it shows: `begin` goes by the place in the log."""
        if self._ticks:
            return None
        with mapped(self._conn, "source"):
            (standby,) = self._one("SELECT pg_is_in_recovery()")
            if standby:
                return None
            # A snapshot's end would not do: it is behind those that have ended, not behind those that have begun.
            self._conn.execute("BEGIN READ WRITE")
            (own,) = self._one("SELECT pg_current_xact_id()::text")
            self._conn.execute("ROLLBACK")
        return (int(own) - 1) % _NUMBERS

    def _exact(self, table: TableDef, csn: str) -> Snapshot:
        """A standby does not say which transactions are open: there it must be a moment in which none is, behind all
        that is applied.
        """
        deadline = time.monotonic() + self._quiet_seconds
        while True:
            hanging = frozenset(int(xid) for (xid,) in self._conn.execute(_HANGING))
            self._start(table)
            (text,) = self._one("SELECT pg_current_snapshot()::text")
            past, segment, standby = self._one(_PLACE)
            seen = Seen.parse(f"xid {text}")
            if not standby or (seen.xmin == seen.xmax and int(past) > _lsn(csn)):
                self._ended = {"at": _end_of_record(int(past), int(segment))}
                self._surely = time.monotonic() + self._flush_seconds()
                return Snapshot(str(seen), Position(0, _end_of_record(int(past), int(segment))), hanging)
            self.end()
            if time.monotonic() > deadline:
                raise AwayError(
                    f"for {self._quiet_seconds:.0f} s there was no moment without open transactions on the source's "
                    "standby",
                    hint="Name the primary in SOURCEDB",
                )
            time.sleep(0.02)

    def _flush_seconds(self) -> float:
        """After so long the WAL writer has flushed every commit, as the server's documentation says."""
        (milliseconds,) = self._one("SELECT setting::int FROM pg_settings WHERE name = 'wal_writer_delay'")
        return float(max(1.0, 4 * milliseconds / 1000))

    def _tick(self, table: TableDef) -> Snapshot:
        if not table.key:
            raise OperatorError(
                f"table {table.full_name} has no key, and its source is captured by triggers: what a snapshot sees of "
                "a transaction in the trail can't be told from the rest",
                hint="Give the table a primary key, or load it by other means",
            )
        self._start(table)
        (tick,) = self._one(f"SELECT max(tick) FROM {_QUEUE}")
        if tick is None:
            raise OperatorError("the source's queue has no tick", hint="REGISTER EXTRACT, then START")
        return Snapshot(f"tick {tick:020d}", Position(0, tick))

    def _start(self, table: TableDef) -> None:
        """The lock comes before the snapshot: a rewrite between both would leave that an empty table to see."""
        source = self._keys_of(table).source
        self._conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        self._conn.execute(wire(f"LOCK TABLE {source} IN ACCESS SHARE MODE"))

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows(self, table: TableDef, columns: Sequence[str], part: Range = WHOLE) -> Iterator[Image]:
        types = {column.name: column.type for column in table.columns}
        fixes = [(i, _FIXES[types[name]]) for i, name in enumerate(columns) if types[name] in _FIXES]
        for lines in self._lines(table, columns, part):
            for line in lines:
                image: list[Value] = [
                    None if value == "\\N" else _plain(value) if "\\" in value else value
                    for value in bytes(line[:-1]).decode("utf-8", "surrogateescape").split("\t")
                ]
                for i, fix in fixes:
                    value = image[i]
                    if isinstance(value, str):
                        image[i] = fix(value)
                yield image

    def copy(self, table: TableDef, columns: Sequence[str], part: Range = WHOLE) -> Iterator[bytes]:
        """The same rows as the text of COPY, in pieces that each end with a row."""
        for lines in self._lines(table, columns, part):
            yield b"".join(lines)

    def _lines(self, table: TableDef, columns: Sequence[str], part: Range) -> Iterator[list[Any]]:
        """Rows as COPY's text, some at once.

        What has come is taken from libpq without a detour: the driver's own way costs a row as much as the server does.
        """
        with mapped(self._conn, "source"):
            keys = self._keys_of(table)
            names = ", ".join(map(ident, columns))
            where = condition(keys, table, part)
            statement = f"COPY (SELECT {names} FROM {keys.source} WHERE {where}) TO STDOUT"
            self._widen()
            with self._conn.cursor() as cursor, cursor.copy(wire(statement)) as copy:
                more = True
                while more:
                    lines: list[Any] = []
                    more = self._gulp(copy, lines)
                    yield lines

    def _widen(self) -> None:
        """Libpq's buffer grows with a value and stays so: each look at the socket then takes many rows, not 70."""
        if not self._wide:
            self._conn.execute(_WIDE)
            self._wide = True

    def _gulp(self, copy: psycopg.Copy, lines: list[Any]) -> bool:
        """Take rows up to the size of a piece; whether there may be more."""
        get: Callable[[int], tuple[int, Any]] = self._conn.pgconn.get_copy_data
        size = 0
        while size < _PIECE:
            length, line = get(1)
            if length == 0:  # nothing is here: wait
                line = copy.read()
                length = len(line)
            if length == 0:
                return False
            if length < 0:
                self._conclude()
                return False
            lines.append(line)
            size += length
        return True

    def _conclude(self) -> None:
        """The server's last word on a COPY, which may be an error."""
        last = self._conn.wait(fetch_many(self._conn.pgconn))[-1]
        if last.status != psycopg.pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(last)

    def settle(self) -> None:
        """Commits that don't wait for the disk are seen before they are there; the WAL writer is soon behind them."""
        with mapped(self._conn, "source"):
            while self._ended is not None and time.monotonic() < self._surely:
                (there,) = self._one(_FLUSHED, self._ended)
                if there:
                    break
                time.sleep(_LOOK_SECONDS)

    # --- ends -------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        if not self._conn.closed and self._conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            with mapped(self._conn, "source"):
                self._conn.execute("ROLLBACK")

    def close(self) -> None:
        self._conn.close()

    def _keys_of(self, table: TableDef) -> Keys:
        found = self._keys.get(table.id)
        if found is None:
            found = self._keys[table.id] = keys_of(self._conn, table)
        return found

    def _one(self, sql: str, values: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        row = self._conn.execute(sql, values).fetchone()
        if row is None:
            raise OperatorError("the source database gave no row where it always has one", hint="Is it PostgreSQL?")
        return tuple(row)


def _lsn(csn: str) -> int:
    """Where the commit's record begins; -1 where nothing is applied yet."""
    high, _, low = csn.partition("/")
    return int(high, 16) << 32 | int(low, 16) if low else -1


def _numbered(keys: Keys, which: str) -> str:
    """Keys as text, k0 and so on, of which each has its place n. `which`: what stands behind FROM."""
    order = ", ".join(column.compared for column in keys.chunked)
    shown = ", ".join(f"{column.shown} AS k{n}" for n, column in enumerate(keys.chunked))
    names = ", ".join(f"k{n}" for n in range(len(keys.chunked)))
    numbered = f"SELECT {shown}, row_number() OVER (ORDER BY {order}) - 1 AS n FROM {keys.source} {which}"
    return f"SELECT {names} FROM ({numbered}) s"


_PIECE: Final = 256 * 1024
_WIDE: Final = "SELECT repeat('x', 500000)"
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}


def _plain(value: str) -> str:
    """A value of COPY's text as it was."""
    return _ESCAPED.sub(lambda found: _ESCAPES[found[1]], value)


def _boolean(value: str) -> str:
    return "true" if value == "t" else "false"


def _bytes(value: str) -> bytes:
    return binascii.unhexlify(value[2:])


_FIXES: Final[dict[str, Callable[[str], Value]]] = {"boolean": _boolean, "bytes": _bytes}


def _end_of_record(lsn: int, segment: int) -> int:
    """Where the last record ends, of the place where the next one begins: a page's header belongs to the next."""
    if lsn % _PAGE == _PAGE_HEADER or lsn % segment == _FILE_HEADER:
        return lsn - lsn % _PAGE
    return lsn
