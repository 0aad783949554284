"""The heartbeat's seed row in an SQLite source: one row an Extract, changed in a transaction of its own.

Rule: nothing else is written with it, as the reader takes each of its changes for a whole transaction. The file has no
clock of its own: its time is this host's.
"""

from __future__ import annotations

import sqlite3
import time
from datetime import UTC, datetime
from typing import Any

from extract.heartbeat import Owner
from extract.source import SourceSettings
from extract.sources.sqlite import queue
from extract.sources.sqlite.link import connect, ident, mapped, path_of, writing
from extract.sources.sqlite.tables import describe
from trails.errors import OperatorError
from trails.record import us_of
from trails.runtime.language.heartbeattable import HeartbeatTable


class SqliteSeed:
    """The seed row of a heartbeat in this database; extract.heartbeat.Seed says what each method does."""

    def __init__(self, settings: SourceSettings, owner: Owner) -> None:
        self._conn = connect(settings.url)
        self._table = settings.heartbeat
        self._owner = owner
        self._database = path_of(settings.url).rpartition("/")[2][:128]

    def clock_us(self) -> int:
        return time.time_ns() // 1000

    def frequency(self) -> int | None:
        with mapped():
            if not (_exists(self._conn, self._table.seed) and _exists(self._conn, self._table.settings)):
                return None
            found = self._conn.execute(f"SELECT frequency FROM {ident(self._table.settings)}").fetchone()
        return int(found[0]) if found else None

    def beat(self, every: int) -> None:
        with mapped():
            self._check_logged()
            self._conn.execute(
                f"INSERT INTO {ident(self._table.seed)} VALUES (?, ?, ?, ?) ON CONFLICT (extract_key) DO UPDATE SET "
                "local_database = excluded.local_database, heartbeat_timestamp = excluded.heartbeat_timestamp, "
                "frequency = excluded.frequency",
                (self._owner.key, self._database, _now(), every),
            )

    def _check_logged(self) -> None:
        there = queue.triggered(self._conn) if queue.installed(self._conn) else {}
        if self._table.seed not in there.values():
            raise OperatorError(
                f"table main.{self._table.seed} has no triggers, so no heartbeat would come",
                hint="DBLOGIN, then ADD HEARTBEATTABLE again",
            )

    def close(self) -> None:
        self._conn.close()


def add(conn: sqlite3.Connection, table: HeartbeatTable) -> bool:
    """Make the seed table; False if it was there. Inside a transaction."""
    if _exists(conn, table.seed):
        return False
    conn.execute(
        f"CREATE TABLE {ident(table.seed)} (extract_key TEXT NOT NULL PRIMARY KEY, local_database TEXT NOT NULL, "
        "heartbeat_timestamp TEXT NOT NULL, frequency INTEGER NOT NULL)"
    )
    return True


def info(conn: sqlite3.Connection, table: HeartbeatTable) -> dict[str, Any]:
    """Whether the seed table exists, and its rows."""
    if not _exists(conn, table.seed):
        return {"exists": False, "seeds": []}
    rows = conn.execute(
        f"SELECT extract_key, local_database, heartbeat_timestamp FROM {ident(table.seed)} ORDER BY 1"
    ).fetchall()
    now = datetime.now(UTC)
    seeds = [
        {"extract": str(key).rpartition("/")[2], "database": database, "age_us": _age_us(now, str(at))}
        for key, database, at in rows
    ]
    return {"exists": True, "seeds": seeds}


def delete(conn: sqlite3.Connection, table: HeartbeatTable) -> bool:
    """Drop the seed table; False if there was none.

    Each Extract's last heartbeat says that no more come: so nobody downstream waits for the next.
    """
    if not _exists(conn, table.seed):
        return False
    keys = [key for (key,) in conn.execute(f"SELECT extract_key FROM {ident(table.seed)}").fetchall()]
    for key in keys:  # each in a transaction of its own
        conn.execute(
            f"UPDATE {ident(table.seed)} SET heartbeat_timestamp = ?, frequency = 0 WHERE extract_key = ?",
            (_now(), key),
        )
    with writing(conn):
        for one in queue.logged(conn) if queue.installed(conn) else []:
            if one.is_on and one.table.name == table.seed:
                queue.remove(conn, one)
        conn.execute(f"DROP TABLE {ident(table.seed)}")
    return True


def _exists(conn: sqlite3.Connection, name: str) -> bool:
    return describe(conn, name) is not None


def _now() -> str:
    return datetime.now(UTC).isoformat(" ", "microseconds")


def _age_us(now: datetime, at: str) -> int:
    try:
        return us_of(now) - us_of(datetime.fromisoformat(at))
    except (ValueError, TypeError):
        return 0
