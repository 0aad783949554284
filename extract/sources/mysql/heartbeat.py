"""The heartbeat's seed row in a MySQL or MariaDB source: one row an Extract, changed in a transaction of its own.

Rule: every wait is bounded. A lock or a statement that takes longer than a few seconds is given up: a heartbeat that
comes late would say that replication is late.
"""

from __future__ import annotations

from typing import Final

from extract.heartbeat import Owner
from extract.source import SourceSettings
from extract.sources.mysql import server
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.link import MysqlError, MysqlSession
from trails.errors import OperatorError
from trails.runtime.language.heartbeattable import HeartbeatTable

SECONDS: Final = 5
NOW_US: Final = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
HERE: Final = "LEFT(COALESCE(DATABASE(), @@hostname), 128)"
_NOT_THERE: Final = frozenset((1049, 1146))
"""No such database, no such table."""
_BOUNDS: Final = f"SET SESSION innodb_lock_wait_timeout = {SECONDS}, lock_wait_timeout = {SECONDS}"


class MysqlSeed:
    """The seed row of a heartbeat in this database; extract.heartbeat.Seed says what each method does."""

    def __init__(self, settings: SourceSettings, owner: Owner) -> None:
        self._table = settings.heartbeat
        self._owner = owner
        self._session = MysqlSession(settings.url, f"trailgate {owner.group} heartbeat")
        try:
            self._session.query(_BOUNDS)
            if self._session.flavour is Flavour.MARIADB:
                self._session.query(f"SET SESSION max_statement_time = {SECONDS}")
        except BaseException:
            self._session.close()
            raise

    def clock_us(self) -> int:
        return int(self._session.one(f"SELECT {NOW_US}")[0] or 0)

    def frequency(self) -> int | None:
        if not (_exists(self._session, self._table, self._table.seed)
                and _exists(self._session, self._table, self._table.settings)):  # fmt: skip
            self._check_rights()
            return None
        rows = self._session.query(f"SELECT frequency FROM {dotted(self._table.schema, self._table.settings)}")
        return int(rows[0][0] or 0) if rows else None

    def _check_rights(self) -> None:
        """The server shows nobody the tables in which he may do nothing: then nobody knows if they are there."""
        settings = dotted(self._table.schema, self._table.settings)
        try:
            self._session.query(f"SELECT frequency FROM {settings} LIMIT 0")
        except MysqlError as error:
            if error.number in _NOT_THERE:
                return
            if not server.is_denied(error):
                raise
            (user,) = self._session.one("SELECT CURRENT_USER()")
            who = "@".join(f"'{part}'" for part in str(user).rsplit("@", 1))
            raise OperatorError(
                f"user {user} may not see if there are tables of heartbeats in {self._table.schema}",
                hint=f"If there are: GRANT SELECT, INSERT, UPDATE ON `{self._table.schema}`.* TO {who}",
            ) from None

    def beat(self, every: int) -> None:
        seed = dotted(self._table.schema, self._table.seed)
        self._session.query(
            f"INSERT INTO {seed} (extract_key, local_database, heartbeat_timestamp, frequency) "
            f"VALUES (%s, {HERE}, NOW(6), %s) ON DUPLICATE KEY UPDATE local_database = {HERE}, "
            "heartbeat_timestamp = NOW(6), frequency = VALUES(frequency)",
            self._owner.key, every,
        )  # fmt: skip

    def close(self) -> None:
        self._session.close()


# --- ADD, ALTER, INFO and DELETE HEARTBEATTABLE ---------------------------------------------------------------------


def dotted(schema: str, name: str) -> str:
    """A table's name in SQL."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in (schema, name))


def add(session: MysqlSession, table: HeartbeatTable) -> list[str]:
    """Make the seed table; returns what was made, for the operator.

    Its settings stand in a table that source and target share: replicat.admin makes it.
    """
    if not session.query("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", table.schema):
        session.query(f"CREATE DATABASE IF NOT EXISTS `{table.schema.replace('`', '``')}`")
    if _exists(session, table, table.seed):
        return []
    session.query(
        f"CREATE TABLE {dotted(table.schema, table.seed)} (extract_key varchar(64) PRIMARY KEY, "
        "local_database varchar(128) NOT NULL, heartbeat_timestamp timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), "
        "frequency integer NOT NULL) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin"
    )
    return [f"table {table.schema}.{table.seed}"]


def info(session: MysqlSession, table: HeartbeatTable) -> dict[str, object]:
    """Whether the seed table exists, and its rows. The log has all tables: none is left unpublished."""
    if not _exists(session, table, table.seed):
        return {"exists": False, "seeds": [], "unpublished": []}
    rows = session.query(
        "SELECT extract_key, local_database, TIMESTAMPDIFF(MICROSECOND, heartbeat_timestamp, NOW(6)) "
        f"FROM {dotted(table.schema, table.seed)} ORDER BY 1"
    )
    seeds = [
        {"extract": str(key).rpartition("/")[2], "database": str(database), "age_us": int(age or 0)}
        for key, database, age in rows
    ]
    return {"exists": True, "seeds": seeds, "unpublished": []}


def delete(session: MysqlSession, table: HeartbeatTable) -> list[str]:
    """Drop the seed table.

    Each Extract's last heartbeat says that no more come: so nobody downstream waits for the next.
    """
    if not _exists(session, table, table.seed):
        return []
    seed = dotted(table.schema, table.seed)
    for (key,) in session.query(f"SELECT extract_key FROM {seed}"):
        session.query(f"UPDATE {seed} SET heartbeat_timestamp = NOW(6), frequency = 0 WHERE extract_key = %s", str(key))
    session.query(f"DROP TABLE {seed}")
    return [f"table {table.schema}.{table.seed}"]


def _exists(session: MysqlSession, table: HeartbeatTable, name: str) -> bool:
    return bool(session.query(server.TABLE_THERE, table.schema, name))
