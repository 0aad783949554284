"""The heartbeat's seed row in a PostgreSQL source: one row an Extract, updated in a transaction of its own.

Rule: every wait is bounded. A lock or a statement that takes longer than a few seconds is given up, and a commit waits
for no standby: a heartbeat that comes late would say that replication is late.
"""

from __future__ import annotations

from typing import Final

from extract.heartbeat import Owner
from extract.source import SourceSettings
from extract.sources.postgres.driver import Session
from extract.sources.postgres.pgoutput import quoted
from trails.errors import OperatorError
from trails.runtime.language.heartbeattable import HeartbeatTable

SECONDS: Final = 5
NOW_US: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_SESSION: Final = (
    f"SET statement_timeout = '{SECONDS}s'",
    f"SET lock_timeout = '{SECONDS}s'",
    "SET synchronous_commit = local",
)


class PostgresSeed:
    """The seed row of a heartbeat in this database; extract.heartbeat.Seed says what each method does."""

    def __init__(self, settings: SourceSettings, owner: Owner) -> None:
        self._table = settings.heartbeat
        self._owner = owner
        self._made = settings.noted.made
        self._session = Session(settings.url, f"trailgate {owner.group} heartbeat")
        self._captured = False
        try:
            for statement in _SESSION:
                self._session.query(statement)
        except BaseException:
            self._session.close()
            raise

    def clock_us(self) -> int:
        return int(self._session.one(f"SELECT {NOW_US}")[0] or 0)

    def frequency(self) -> int | None:
        seed, settings = dotted(self._table.schema, self._table.seed), dotted(self._table.schema, self._table.settings)
        (there,) = self._session.one(
            "SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL", seed, settings
        )
        return int(self._session.one(f"SELECT frequency FROM {settings}")[0] or 0) if there == "t" else None

    def beat(self, every: int) -> None:
        seed = dotted(self._table.schema, self._table.seed)
        if not self._captured:
            self._check_captured(seed)
            self._captured = True
        self._session.query(
            f"INSERT INTO {seed} AS s (extract_key, local_database, heartbeat_timestamp, frequency) "
            "VALUES ($1, current_database(), clock_timestamp(), $2) ON CONFLICT (extract_key) DO UPDATE SET "
            "local_database = excluded.local_database, heartbeat_timestamp = excluded.heartbeat_timestamp, "
            "frequency = excluded.frequency",
            self._owner.key, every,
        )  # fmt: skip

    def _check_captured(self, seed: str) -> None:
        """Raise OperatorError if the row would come to nobody."""
        publication = self._made["publication"]
        found = self._session.query(
            "SELECT FROM pg_publication_tables WHERE pubname = $1 AND schemaname = $2 AND tablename = $3",
            publication, self._table.schema, self._table.seed,
        )  # fmt: skip
        if not found:
            raise OperatorError(
                f"table {seed} is not in publication {publication}",
                hint=f"ADD HEARTBEATTABLE again, or ALTER PUBLICATION {quoted(publication)} ADD TABLE {seed}",
            )

    def close(self) -> None:
        self._session.close()


# --- ADD, ALTER, INFO and DELETE HEARTBEATTABLE ---------------------------------------------------------------------


def dotted(schema: str, name: str) -> str:
    """A table's name in SQL."""
    return f"{quoted(schema)}.{quoted(name)}"


def add(session: Session, table: HeartbeatTable, publications: list[str]) -> list[str]:
    """Make the seed table, and have the publications publish it. Returns what was made, for the operator.

    Its settings stand in a table that source and target share: replicat.admin makes it.
    """
    seed = dotted(table.schema, table.seed)
    done = []
    if not session.query("SELECT FROM pg_namespace WHERE nspname = $1", table.schema):  # it would take a right to ask
        session.query(f"CREATE SCHEMA IF NOT EXISTS {quoted(table.schema)}")
    if not _exists(session, seed):
        session.query(
            f"CREATE TABLE {seed} (extract_key varchar(64) PRIMARY KEY, local_database varchar(128) NOT NULL, "
            "heartbeat_timestamp timestamptz NOT NULL, frequency integer NOT NULL)"
        )
        done.append(f"table {table.schema}.{table.seed}")
    for name in publications:
        if _lacks(session, name, table):
            session.query(f"ALTER PUBLICATION {quoted(name)} ADD TABLE {seed}")
            done.append(f"table {table.schema}.{table.seed} in publication {name}")
    return done


def info(session: Session, table: HeartbeatTable, publications: list[str]) -> dict[str, object]:
    """What there is: whether the seed table exists, its rows, and which publications lack it."""
    seed = dotted(table.schema, table.seed)
    if not _exists(session, seed):
        return {"exists": False, "seeds": [], "unpublished": []}
    rows = session.query(
        f"SELECT extract_key, local_database, (extract(epoch FROM heartbeat_timestamp) * 1000000)::bigint, {NOW_US} "
        f"FROM {seed} ORDER BY 1"
    )
    seeds = [
        {"extract": str(key).rpartition("/")[2], "database": database, "age_us": int(now or 0) - int(at or 0)}
        for key, database, at, now in rows
    ]
    lacking = [name for name in publications if _lacks(session, name, table)]
    return {"exists": True, "seeds": seeds, "unpublished": lacking}


def delete(session: Session, table: HeartbeatTable) -> list[str]:
    """Drop the seed table; publications let go of it by themselves.

    Each Extract's last heartbeat says that no more come: so nobody downstream waits for the next.
    """
    seed = dotted(table.schema, table.seed)
    if not _exists(session, seed):
        return []
    for (key,) in session.query(f"SELECT extract_key FROM {seed}"):
        session.query(
            f"UPDATE {seed} SET heartbeat_timestamp = clock_timestamp(), frequency = 0 WHERE extract_key = $1", key
        )
    session.query(f"DROP TABLE {seed}")
    return [f"table {table.schema}.{table.seed}"]


def _exists(session: Session, seed: str) -> bool:
    return session.one("SELECT to_regclass($1) IS NOT NULL", seed)[0] == "t"


def _lacks(session: Session, publication: str, table: HeartbeatTable) -> bool:
    """Whether there is this publication here, of named tables, without ours."""
    return bool(
        session.query(
            "SELECT FROM pg_publication p WHERE pubname = $1 AND NOT puballtables AND NOT EXISTS (SELECT FROM "
            "pg_publication_tables t WHERE t.pubname = $1 AND t.schemaname = $2 AND t.tablename = $3)",
            publication, table.schema, table.seed,
        )
    )  # fmt: skip
