"""The heartbeat tables and views of a target: their statements for every kind of database. Pure text, no driver.

Times in them are of the database's own clock, so they compare with its `now`: Replicat moves every stamp there. Where
the clocks on the way are not known, or the figure is stale, the views' lag is NULL, and the age says since when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trails.errors import OperatorError
from trails.heartbeat import GRACE_US, MISSED
from trails.runtime.heartbeattable import HeartbeatSettings, HeartbeatTable

_KINDS = ("postgresql", "sqlite", "mysql")
_TYPES: dict[str, tuple[str, str, str]] = {
    "key": ("varchar(32)", "TEXT", "varchar(32) CHARACTER SET ascii COLLATE ascii_bin"),
    "name": ("varchar(128)", "TEXT", "varchar(128)"),
    "path": ("varchar(512)", "TEXT", "varchar(512)"),
    "moment": ("timestamptz", "TEXT", "datetime(6)"),
    "seconds": ("numeric(18,6)", "REAL", "decimal(18,6)"),
    "number": ("integer", "INTEGER", "integer"),
}
COLUMNS = (
    ("local_database", "name"), ("remote_database", "name"), ("incoming_extract", "name"),
    ("incoming_routing_path", "path"), ("incoming_replicat", "name"), ("incoming_path", "path"),
    ("incoming_heartbeat_ts", "moment"), ("incoming_extract_ts", "moment"), ("incoming_routing_ts", "moment"),
    ("incoming_replicat_ts", "moment"), ("incoming_lag", "seconds"), ("frequency", "number"),
)  # fmt: skip
NAMES = tuple(name for name, _ in COLUMNS)
SETTINGS = ("frequency", "retention_days", "purge_days")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_US = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_NOW = {
    "postgresql": "clock_timestamp()",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "mysql": "utc_timestamp(6)",
}
CLOCK_US = {
    "postgresql": "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    "mysql": "SELECT timestampdiff(MICROSECOND, '1970-01-01 00:00:00', utc_timestamp(6))",
}
"""How a database is asked for its clock; an SQLite file has none of its own."""


@dataclass(frozen=True, slots=True)
class HeartbeatSql:
    """The statements for one kind of target; `mark` stands for a parameter."""

    kind: str
    table: HeartbeatTable

    @classmethod
    def of(cls, kind: str, table: HeartbeatTable) -> HeartbeatSql:
        """SQLite has one schema."""
        return cls(kind, HeartbeatTable("main", table.base) if kind == "sqlite" else table)

    @property
    def mark(self) -> str:
        """What stands for a parameter."""
        return "?" if self.kind == "sqlite" else "%s"

    def named(self, name: str, *, beside: bool = False) -> str:
        """A table of the schema in SQL; `beside` parameters, for drivers that take any other % for one too."""
        text = ".".join('"' + part.replace('"', '""') + '"' for part in (self.table.schema, name))
        return text.replace("%", "%%") if beside and self.mark == "%s" else text

    def moment(self, us: int) -> str:
        """A time as a parameter; what no calendar has is its first or last."""
        us = min(max(us, 0), _LAST_US)
        text = (_EPOCH + timedelta(microseconds=us)).strftime("%Y-%m-%d %H:%M:%S.%f")
        return text + "+00" if self.kind == "postgresql" else text

    # making

    def create_settings(self) -> list[str]:
        """The settings' table."""
        columns = ", ".join(f"{name} {self._type('number')} NOT NULL" for name in SETTINGS)
        return [
            *self._schema(),
            f"CREATE TABLE {self.named(self.table.settings)} (id {self._type('number')} PRIMARY KEY, {columns})"
            + self._engine,
        ]

    def create_target(self, there: Sequence[str] = (), *, older: bool = False) -> list[str]:
        """Table, history with its index, and views; tables that are `there` are left as they are.

        Views are replaced where they stand: who may read them still may, and finds them at any moment. Only those of
        an `older` release (has_older_views) are dropped first, as PostgreSQL takes no column from a view.
        """
        columns = ", ".join(
            f"{name} {self._type(kind)}{' NOT NULL' * (name == 'incoming_heartbeat_ts')}" for name, kind in COLUMNS
        )
        base, history = self.named(self.table.base), self.named(self.table.history)
        made = [*self._schema(), *(self._drop_views() if older else [])]
        if self.table.base not in there:
            made.append(f"CREATE TABLE {base} (path_key {self._type('key')} PRIMARY KEY, {columns}){self._engine}")
        if self.table.history not in there:
            # With a key: a database may be a source as well, and publish all its tables.
            more = f"path_key {self._type('key')} NOT NULL, heartbeat_received_ts {self._type('moment')} NOT NULL"
            key = "PRIMARY KEY (path_key, incoming_heartbeat_ts)"
            made += [f"CREATE TABLE {history} ({columns}, {more}, {key}){self._engine}", self._index(history)]
        made.append(self._view("gg_lag", self.table.base, ""))
        made.append(self._view("gg_lag_history", self.table.history, "heartbeat_received_ts, "))
        return made

    def drop_target(self) -> list[str]:
        """The reverse, whichever is there."""
        tables = [f"DROP TABLE IF EXISTS {self.named(n)}" for n in (self.table.history, self.table.base)]
        return [*self._drop_views(), *tables]

    def has_older_views(self) -> tuple[str, list[object]]:
        """A query that gives a row if gg_lag has columns that it has no more; with its parameters."""
        if self.kind == "sqlite":
            return "SELECT 1 FROM pragma_table_info('gg_lag') WHERE name = 'outgoing_lag'", []
        columns = "SELECT 1 FROM information_schema.columns WHERE table_schema = %s AND table_name = 'gg_lag'"
        return f"{columns} AND column_name = 'outgoing_lag'", [self.table.schema]

    def _drop_views(self) -> list[str]:
        return [f"DROP VIEW IF EXISTS {self.named(name)}" for name in ("gg_lag_history", "gg_lag")]

    def drop_settings(self) -> str:
        """The settings' table."""
        return f"DROP TABLE IF EXISTS {self.named(self.table.settings)}"

    def exists(self, name: str) -> tuple[str, list[object]]:
        """A query that gives a row if the schema has this table; with its parameters."""
        if self.kind == "sqlite":
            return "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", [name]
        return (
            "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            [self.table.schema, name],
        )

    def _schema(self) -> list[str]:
        if self.kind == "postgresql":
            return [f'CREATE SCHEMA IF NOT EXISTS "{self.table.schema}"']
        return [f'CREATE DATABASE IF NOT EXISTS "{self.table.schema}"'] if self.kind == "mysql" else []

    @property
    def _engine(self) -> str:
        return " ENGINE = InnoDB" if self.kind == "mysql" else ""

    def _index(self, history: str) -> str:
        name = f"{self.table.history}_ts"
        if self.kind == "sqlite":
            return f'CREATE INDEX {self.named(name)} ON "{self.table.history}" (heartbeat_received_ts)'
        return f'CREATE INDEX "{name}" ON {history} (heartbeat_received_ts)'

    def _type(self, name: str) -> str:
        return _TYPES[name][_KINDS.index(self.kind)]

    def _view(self, view: str, table: str, more: str) -> str:
        """A lag is shown only while it is true. No outgoing_*, as GoldenGate has: of a way back nothing comes here."""
        received = "heartbeat_received_ts" if more else "incoming_replicat_ts"
        age = self._age(received)
        lag = "incoming_lag"
        if not more:
            bound = f"{MISSED} * frequency + {GRACE_US // 1_000_000}"
            lag = f"CASE WHEN {age} <= {bound} THEN incoming_lag END AS incoming_lag"
        create = "CREATE VIEW IF NOT EXISTS" if self.kind == "sqlite" else "CREATE OR REPLACE VIEW"
        return (
            f"{create} {self.named(view)} AS SELECT local_database, {_NOW[self.kind]} AS current_local_ts, {more}"
            f"remote_database, {age} AS incoming_heartbeat_age, incoming_path, {lag} FROM {self.named(table)}"
        )

    def _age(self, column: str) -> str:
        if self.kind == "postgresql":
            return f"extract(epoch FROM clock_timestamp() - {column})::numeric(18,6)"
        if self.kind == "mysql":
            return f"timestampdiff(MICROSECOND, {column}, utc_timestamp(6)) / 1000000"
        return f"round((julianday('now') - julianday({column})) * 86400.0, 3)"

    # settings

    def settings(self) -> str:
        """A query for the settings' row."""
        return f"SELECT {', '.join(SETTINGS)} FROM {self.named(self.table.settings)} WHERE id = 1"

    def set_settings(self, settings: HeartbeatSettings, *, new: bool) -> tuple[str, list[object]]:
        """A statement that writes the settings' row."""
        table, mark = self.named(self.table.settings, beside=True), self.mark
        values: list[object] = [settings.frequency, settings.retention, settings.purge]
        if new:
            return f"INSERT INTO {table} (id, {', '.join(SETTINGS)}) VALUES (1, {mark}, {mark}, {mark})", values
        return f"UPDATE {table} SET {', '.join(f'{name} = {mark}' for name in SETTINGS)} WHERE id = 1", values

    # heartbeats

    def put(self) -> str:
        """One path's row, whether or not it is there; parameters: COLUMNS, then the path's key."""
        return self._put(self.table.base, (*NAMES, "path_key"), ("path_key",))

    def put_history(self) -> str:
        """One heartbeat received, also again after an ALTER; parameters: COLUMNS, the path's key, when."""
        columns = (*NAMES, "path_key", "heartbeat_received_ts")
        return self._put(self.table.history, columns, ("path_key", "incoming_heartbeat_ts"))

    def _put(self, name: str, columns: Sequence[str], key: Sequence[str]) -> str:
        marks = ", ".join([self.mark] * len(columns))
        row = f"INTO {self.named(name, beside=True)} ({', '.join(columns)}) VALUES ({marks})"
        if self.kind != "postgresql":
            return f"REPLACE {row}"
        sets = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in key)
        return f"INSERT {row} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}"

    def purge(self) -> str:
        """Drop history; parameter: what was received before then."""
        return f"DELETE FROM {self.named(self.table.history, beside=True)} WHERE heartbeat_received_ts < {self.mark}"

    def lags(self) -> str:
        """The last heartbeat of each path: databases, path, age and lag in seconds."""
        return (
            "SELECT local_database, remote_database, incoming_path, incoming_heartbeat_age, incoming_lag "
            f"FROM {self.named('gg_lag')} ORDER BY 2, 3"
        )

    def days(self) -> str:
        """LAG ..., HISTORY: date, least, mean and greatest lag in seconds of each path, the newest day first."""
        day = {
            "postgresql": "(heartbeat_received_ts AT TIME ZONE 'UTC')::date::text",
            "sqlite": "date(heartbeat_received_ts)",
            "mysql": "cast(date(heartbeat_received_ts) AS char)",
        }[self.kind]
        return (
            f"SELECT {day}, incoming_path, min(incoming_lag), avg(incoming_lag), max(incoming_lag), count(*) "
            f"FROM {self.named(self.table.history)} GROUP BY 1, 2 ORDER BY 1 DESC, 2"
        )


def first_number(rows: Sequence[Sequence[Any]], what: str) -> int:
    """A query's one number; OperatorError names what was asked."""
    try:
        return int(rows[0][0])
    except (IndexError, TypeError, ValueError):
        raise OperatorError(f"{what}: expected a number from the target, found {list(rows)[:1]!r:.80}") from None
