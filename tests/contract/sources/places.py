"""Where a source of each kind is tried: all that the contract suite must be told of a database.

A new source joins here: a class with the members of SourcePlace, and its name in conftest.py. The suite's SQL is the
standard's own, so only what no standard has is asked for.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import psycopg
from pymysql.constants import FIELD_TYPE
from pymysql.converters import encoders

from demo.mysqld import Mysqld
from demo.patience import PATIENCE
from demo.servers import PostgresServer
from extract.admin import answer
from extract.source import Source
from extract.sources.mysql.places import csn_text as binlog_csn
from extract.sources.mysql.places import file_number, parts
from extract.sources.postgres.driver import Session
from extract.sources.postgres.pgoutput import parse_lsn
from extract.sources.postgres.triggers.admin import captured
from extract.sources.postgres.triggers.install import LOG, TICK
from extract.sources.postgres.triggers.reader import csn_text
from extract.sources.postgres.triggers.snapshot import Tick, XidSnapshot, seen
from extract.sources.postgres.triggers.source import tick_now
from extract.sources.sqlite import queue
from trails.position import Position
from trails.runtime.home.methods import METHODS

Line = tuple[Any, ...]


class SourcePlace(Protocol):
    """An empty database of one kind. `schema`: where the tests' tables are. `mark`: a parameter, in SQL.

    `large`, `binary`, `double`: its types for long texts, bytes and floating-point numbers. `method`: how it is
    captured. `whole`: old rows come whole, whether or not that is asked for.
    """

    method: str
    whole: bool
    url: str
    schema: str
    mark: str
    large: str
    binary: str
    double: str

    def transaction(self) -> contextlib.AbstractContextManager[Any]:
        """A transaction of an application; it gives what has `execute`. An error rolls it back, its end commits it."""

    def rows(self, table: str) -> list[Line]:
        """What an application sees of a table."""

    def end(self) -> Any:
        """A goal: all that is committed now."""

    def has_read(self, origin: Position, goal: Any) -> bool:
        """Whether all of a goal lies before an origin."""

    def has_forgotten(self, goal: Any) -> bool:
        """Whether the source was told that all of a goal is durable elsewhere."""

    def csn(self) -> str:
        """A place for ALTER EXTRACT, just behind all that is committed now."""

    def cut(self, source: Source) -> None:
        """Break the source's connections, as a network does."""

    def go_away(self, source: Source) -> None:
        """The database answers nobody, until `come_back`."""

    def come_back(self) -> None:
        """It answers again, with all that was committed."""

    def lose_history(self) -> None:
        """The source lets go of all changes so far, whoever has not read them."""

    def other(self) -> str:
        """The URL of another database of the kind, registered too where two may be."""


class PostgresPlace:
    """See SourcePlace."""

    method, whole = "", False
    schema, mark = "public", "%s"
    large, binary, double = "text", "bytea", "double precision"

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server, self.url = server, url

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        with psycopg.connect(self.url) as conn:
            yield conn

    def rows(self, table: str) -> list[Line]:
        return self._ask(f"SELECT * FROM {table}")

    def _ask(self, statement: str) -> list[Line]:
        with psycopg.connect(self.url, autocommit=True) as conn:
            cursor = conn.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def end(self) -> int:
        return parse_lsn(self.csn())

    def has_read(self, origin: Position, goal: int) -> bool:
        return origin.rba >= goal

    def has_forgotten(self, goal: int) -> bool:
        where = "database = current_database()"
        ((confirmed,),) = self._ask(f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE {where}")
        return parse_lsn(confirmed) >= goal

    def csn(self) -> str:
        return str(self._ask("SELECT pg_current_wal_lsn()::text")[0][0])

    def cut(self, source: Source) -> None:
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        self._ask(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")

    def go_away(self, source: Source) -> None:
        self._server.kill()

    def come_back(self) -> None:
        self._server.start()

    def lose_history(self) -> None:
        ((slot,),) = self._ask("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
        self._ask(f"SELECT pg_drop_replication_slot('{slot}')")
        self._ask(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")

    def other(self) -> str:
        return self._server.url("postgres")


class TriggerPlace(PostgresPlace):
    """The same server, captured by triggers. A goal is a snapshot: which tick will have it, nobody knows yet."""

    method, whole = METHODS[1], True

    @contextlib.contextmanager
    def _session(self) -> Iterator[Session]:
        session = Session(self.url, "contract")
        try:
            yield session
        finally:
            session.close()

    def end(self) -> str:
        return str(self._ask("SELECT pg_current_snapshot()::text")[0][0])

    def has_read(self, origin: Position, goal: str) -> bool:
        rows = self._ask(f"SELECT state FROM {TICK} WHERE tick = {origin.rba}")
        if not rows:
            return False
        tick = Tick.of(rows[0][0])
        due = "".join(f" OR xid = '{xid}'::xid8" for xid in tick.due)
        left = f"{seen(XidSnapshot.of(goal))} AND (NOT ({seen(tick.snapshot)}){due})"
        return self._ask(f"SELECT EXISTS (SELECT FROM {LOG} WHERE {left})") == [(False,)]

    def has_forgotten(self, goal: str) -> bool:
        with self._session() as session:
            return bool(captured(session, goal, 0)["reached"])

    def csn(self) -> str:
        with self._session() as session:
            return csn_text(tick_now(session))

    def lose_history(self) -> None:
        self._ask(f"SET trailgate.reader = 'on'; DELETE FROM {LOG}")
        with self._session() as session:
            now = tick_now(session)
        self._ask(f"DELETE FROM {TICK} WHERE tick < {now}")


class _Broken:
    """A connection to a disk that cannot be read."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self.close = conn.close

    def __getattr__(self, name: str) -> Any:
        error = sqlite3.OperationalError("disk I/O error (test)")
        error.sqlite_errorname = "SQLITE_IOERR_READ"
        raise error


class SqlitePlace:
    """See SourcePlace. There is no server: its disk breaks, or another process keeps the whole file for itself."""

    method, whole = "", False
    schema, mark = "main", "?"
    large, binary, double = "text", "blob", "real"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._holder: sqlite3.Connection | None = None
        self.url = self._made("shop.db")

    def _made(self, name: str) -> str:
        with contextlib.closing(sqlite3.connect(self._folder / name)) as conn:
            conn.execute("PRAGMA user_version = 1")
        return f"sqlite:///{self._folder / name}"

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._folder / "shop.db", isolation_level=None, timeout=PATIENCE)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        with contextlib.closing(self._connect()) as conn:
            conn.execute("BEGIN")
            yield conn  # an error leaves without a commit
            conn.execute("COMMIT")

    def rows(self, table: str) -> list[Line]:
        with contextlib.closing(self._connect()) as conn:
            return conn.execute(f"SELECT * FROM {table}").fetchall()

    def end(self) -> int:
        with contextlib.closing(self._connect()) as conn:
            return queue.last_id(conn)

    def has_read(self, origin: Position, goal: int) -> bool:
        return origin.rba >= goal

    def has_forgotten(self, goal: int) -> bool:
        return int(self.rows(f"(SELECT min(id) FROM {queue.LOG})")[0][0]) >= goal

    def csn(self) -> str:
        return str(self.end())

    def cut(self, source: Source) -> None:
        asked = source._reader
        if isinstance(asked._conn, sqlite3.Connection):
            asked._conn = _Broken(asked._conn)

    def go_away(self, source: Source) -> None:
        self._holder = self._connect()
        self._holder.execute("BEGIN EXCLUSIVE")

    def come_back(self) -> None:
        assert self._holder is not None
        self._holder.close()

    def lose_history(self) -> None:
        with contextlib.closing(self._connect()) as conn:
            conn.execute(f"DELETE FROM {queue.LOG} WHERE id < (SELECT max(id) FROM {queue.LOG})")

    def other(self) -> str:
        url = self._made("other.db")
        assert answer({"verb": "register", "url": url, "group": "EXT1", "home_id": "0123456789abcdef"})["ok"]
        return url


class BinlogPlace:
    """See SourcePlace. MariaDB and MySQL: a server with a binary log, which it purges by its own rules.

    So it forgets nothing when it is told; what the source was told to let go of is seen by `released`.
    """

    method, whole = "", True
    mark = "%s"
    large, binary, double = "longtext", "longblob", "double"

    def __init__(self, server: Mysqld, database: str, other: Callable[[], Mysqld]) -> None:
        """`other`: a server of the other flavour; any of the same one may be a failover's."""
        self._server, self._other = server, other
        self.schema, self.url = database, server.url(database)
        self.released = Position(0, 0)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        with contextlib.closing(self._connect()) as conn:
            conn.begin()
            with conn.cursor() as cursor:
                yield cursor  # an error leaves without a commit
            conn.commit()

    def _connect(self) -> Any:
        return self._server.connect(self.schema, conv=dict(encoders) | {FIELD_TYPE.DOUBLE: float})

    def rows(self, table: str) -> list[Line]:
        with contextlib.closing(self._connect()) as conn, conn.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            return list(cursor.fetchall())

    def end(self) -> tuple[int, int]:
        ((file, pos, *_),) = self._server.sql("SHOW MASTER STATUS")
        return file_number(file), int(pos)

    def has_read(self, origin: Position, goal: tuple[int, int]) -> bool:
        return parts(origin)[1:] >= goal

    def has_forgotten(self, goal: tuple[int, int]) -> bool:
        return self.has_read(self.released, goal)

    def csn(self) -> str:
        return binlog_csn(0, *self.end())

    def cut(self, source: Source) -> None:
        """What the server had sent is lost too."""
        self._end_readers()
        stream = source._stream
        if stream is not None:
            with contextlib.suppress(OSError):
                stream._sock.settimeout(60)
                while stream._sock.recv(1 << 20):
                    pass

    def _end_readers(self) -> None:
        """Those of the log alone: other sessions come anew, as the guard's does."""
        self._server.end_sessions("command LIKE 'Binlog Dump%'")

    def go_away(self, source: Source) -> None:
        self._server.kill()

    def come_back(self) -> None:
        self._server.start()

    def lose_history(self) -> None:
        self._end_readers()  # no file that is being read is purged
        self._server.sql("FLUSH BINARY LOGS")
        ((newest, *_),) = self._server.sql("SHOW MASTER STATUS")
        until = time.monotonic() + PATIENCE
        while len(self._server.sql("SHOW BINARY LOGS")) > 1:  # MariaDB keeps one for a moment, and says nothing
            assert time.monotonic() < until, self._server.sql("SHOW PROCESSLIST")
            self._server.sql(f"PURGE BINARY LOGS TO '{newest}'")
            time.sleep(0.05)

    def other(self) -> str:
        return self._other().url("mysql")
