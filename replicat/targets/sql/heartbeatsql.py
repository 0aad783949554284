"""The heartbeat tables and views of a target: their statements in any database's words. Pure text, no driver.

Times in them are of the database's own clock, so they compare with its `now`: Replicat moves every stamp there. Where
the clocks on the way are not known, or the figure is stale, the views' lag is NULL, and the age says since when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from replicat.targets.contract import Words
from trails.errors import OperatorError
from trails.heartbeat import GRACE_US, MISSED
from trails.record import time_of, us_of
from trails.runtime.language.heartbeattable import HeartbeatSettings, HeartbeatTable

_NAME, _PATH, _MOMENT = "varchar(128)", "varchar(512)", "timestamptz"
COLUMNS = (
    ("local_database", _NAME), ("remote_database", _NAME), ("incoming_extract", _NAME),
    ("incoming_routing_path", _PATH), ("incoming_replicat", _NAME), ("incoming_path", _PATH),
    ("incoming_heartbeat_ts", _MOMENT), ("incoming_extract_ts", _MOMENT), ("incoming_routing_ts", _MOMENT),
    ("incoming_replicat_ts", _MOMENT), ("incoming_lag", "numeric(18,6)"), ("frequency", "integer"),
)  # fmt: skip
"""Each column's name and its type, as the standard names it."""
_SENT = "incoming_heartbeat_ts"
NAMES = tuple(name for name, _ in COLUMNS)
SETTINGS = ("frequency", "retention_days", "purge_days")
_LAST_US = us_of(datetime(9999, 12, 31, tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class HeartbeatSql:
    """The statements for the tables of one name."""

    words: Words
    table: HeartbeatTable

    @classmethod
    def of(cls, words: Words, table: HeartbeatTable) -> HeartbeatSql:
        """In the database's one schema, where it has no other."""
        return cls(words, HeartbeatTable(words.schema or table.schema, table.base))

    def named(self, name: str, *, beside: bool = False) -> str:
        """A table of the schema in SQL; `beside` parameters, for drivers that take any other % for one too."""
        text = ".".join('"' + part.replace('"', '""') + '"' for part in (self.table.schema, name))
        return text.replace("%", "%%") if beside and self.words.mark == "%s" else text

    def moment(self, us: int) -> str:
        """A time as a parameter; what no calendar has is its first or last."""
        return f"{time_of(min(max(us, 0), _LAST_US)):%Y-%m-%d %H:%M:%S.%f}{self.words.zone}"

    # making

    def create_settings(self) -> list[str]:
        """The settings' table."""
        columns = [(name, "integer NOT NULL") for name in ("id", *SETTINGS)]
        made = self.words.create_table(self.named(self.table.settings), columns, ["id"])
        return [*self.words.make_schema(self.table.schema), made]

    def create_target(self, there: Sequence[str] = ()) -> list[str]:
        """Table, history with its index, and views; tables that are `there` are left as they are.

        Views are replaced where they stand: who may read them still may, and finds them at any moment.
        """
        base, history = self.named(self.table.base), self.named(self.table.history)
        columns = [(name, f"{kind} NOT NULL" if name == _SENT else kind) for name, kind in COLUMNS]
        columns.append(("path_key", "varchar(32) NOT NULL"))
        made = self.words.make_schema(self.table.schema)
        if self.table.base not in there:
            made.append(self.words.create_table(base, columns, ["path_key"]))
        if self.table.history not in there:
            # With a key: a database may be a source as well, and publish all its tables.
            columns.append(("heartbeat_received_ts", f"{_MOMENT} NOT NULL"))
            made += [self.words.create_table(history, columns, ["path_key", _SENT]), self._index(history)]
        made.append(self._view("gg_lag", self.table.base, ""))
        made.append(self._view("gg_lag_history", self.table.history, "heartbeat_received_ts, "))
        return made

    def drop_target(self) -> list[str]:
        """The reverse, whichever is there."""
        tables = [f"DROP TABLE IF EXISTS {self.named(n)}" for n in (self.table.history, self.table.base)]
        return [*self._drop_views(), *tables]

    def _drop_views(self) -> list[str]:
        return [f"DROP VIEW IF EXISTS {self.named(name)}" for name in ("gg_lag_history", "gg_lag")]

    def drop_settings(self) -> str:
        """The settings' table."""
        return f"DROP TABLE IF EXISTS {self.named(self.table.settings)}"

    def columns(self, name: str) -> tuple[str, list[object]]:
        """A query for a table's or view's columns, with its parameters; no rows where there is none of this name."""
        return self.words.columns, [self.table.schema, name]

    def _index(self, history: str) -> str:
        name = f"{self.table.history}_ts"
        if self.words.schema:  # which stands before the index then, and not before its table
            return f'CREATE INDEX {self.named(name)} ON "{self.table.history}" (heartbeat_received_ts)'
        return f'CREATE INDEX "{name}" ON {history} (heartbeat_received_ts)'

    def _view(self, view: str, table: str, more: str) -> str:
        """A lag is shown only while it is true. No outgoing_*, as GoldenGate has: of a way back nothing comes here."""
        received = "heartbeat_received_ts" if more else "incoming_replicat_ts"
        age = self.words.age.format(received)
        lag = "incoming_lag"
        if not more:
            bound = f"{MISSED} * frequency + {GRACE_US // 1_000_000}"
            lag = f"CASE WHEN {age} <= {bound} THEN incoming_lag END AS incoming_lag"
        return (
            f"{self.words.makes_view} {self.named(view)} AS "
            f"SELECT local_database, {self.words.clock} AS current_local_ts, {more}remote_database, "
            f"{age} AS incoming_heartbeat_age, incoming_path, {lag} FROM {self.named(table)}"
        )

    # settings

    def settings(self) -> str:
        """A query for the settings' row."""
        return f"SELECT {', '.join(SETTINGS)} FROM {self.named(self.table.settings)} WHERE id = 1"

    def set_settings(self, settings: HeartbeatSettings, *, new: bool) -> tuple[str, list[object]]:
        """A statement that writes the settings' row."""
        table, mark = self.named(self.table.settings, beside=True), self.words.mark
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
        return self._put(self.table.history, columns, ("path_key", _SENT))

    def _put(self, name: str, columns: Sequence[str], key: Sequence[str]) -> str:
        marks = ", ".join([self.words.mark] * len(columns))
        row = f"INTO {self.named(name, beside=True)} ({', '.join(columns)}) VALUES ({marks})"
        if self.words.replaces:
            return f"REPLACE {row}"
        sets = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in key)
        return f"INSERT {row} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}"

    def purge(self) -> str:
        """Drop history; parameter: what was received before then."""
        return (
            f"DELETE FROM {self.named(self.table.history, beside=True)} WHERE heartbeat_received_ts < {self.words.mark}"
        )

    def lags(self) -> str:
        """The last heartbeat of each path: databases, path, age and lag in seconds."""
        return (
            "SELECT local_database, remote_database, incoming_path, incoming_heartbeat_age, incoming_lag "
            f"FROM {self.named('gg_lag')} ORDER BY 2, 3"
        )

    def days(self) -> str:
        """LAG ..., HISTORY: date, least, mean and greatest lag in seconds of each path, the newest day first."""
        day = self.words.day.format("heartbeat_received_ts")
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
