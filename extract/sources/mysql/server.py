"""What a server says of itself: who it is, how it is set, which logs it has. Only questions are asked here.

Rule: whatever changed its name between releases (MASTER, BINARY LOG; SLAVE, REPLICA) is asked by one function here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.link import MysqlError, MysqlSession
from extract.sources.mysql.places import file_number

TITLE: Final = "Binary Log"
"""How SHOWCH names the log."""
CSN_LABEL: Final = "Log Position"
"""And its CSN: epoch, file and position."""
SYSTEM: Final = ("mysql", "sys", "information_schema", "performance_schema")
"""Schemas of the server's own, which nobody captures."""
IS_SYSTEM: Final = f"({', '.join(repr(name) for name in SYSTEM)})"

TABLE_THERE: Final = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"

_DENIED: Final = frozenset((1044, 1045, 1142, 1143, 1227))
_NO_LOG: Final = 1381

_MASTER_GONE: Final = (8, 2)
"""From this MySQL on SHOW BINARY LOG STATUS stands for SHOW MASTER STATUS."""
_REPLICA_COMES: Final = (8, 0, 22)
"""From this MySQL on SHOW REPLICA STATUS stands for SHOW SLAVE STATUS."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the binary log, and its size of now."""

    name: str
    size: int

    @property
    def number(self) -> int:
        """7 of `binlog.000007`."""
        return file_number(self.name)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the binary log ends, with the set of GTIDs up to there; and the filters over what is written."""

    file: str
    pos: int
    gtids: str
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


def is_denied(error: MysqlError) -> bool:
    """Whether the user lacks a privilege."""
    return error.number in _DENIED


def settings(session: MysqlSession) -> dict[str, str]:
    """All global settings, by name."""
    return {str(name).lower(): str(value) for name, value in session.query("SHOW GLOBAL VARIABLES")}


def is_on(value: str | None) -> bool:
    """A switch, as servers print it."""
    return (value or "").upper() in ("ON", "1")


def identity(session: MysqlSession) -> str:
    """What tells a server from others: the UUID of MySQL, the number of MariaDB, which has nothing else that lasts."""
    name = "server_id" if session.flavour is Flavour.MARIADB else "server_uuid"
    return str(session.one(f"SELECT @@global.{name}")[0])


def logs(session: MysqlSession) -> list[LogFile]:
    """The files that the server has, the oldest first. Raises MysqlError where there is no log, or no right to ask."""
    return [LogFile(name or "", int(size or 0)) for name, size, *_ in session.query("SHOW BINARY LOGS")]


def log_end(session: MysqlSession) -> LogEnd | None:
    """Where the log ends now, between two transactions; None where there is no log. Raises MysqlError."""
    mysql = session.flavour is Flavour.MYSQL
    renamed = mysql and session.release >= _MASTER_GONE
    rows = session.rows("SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS")
    if not rows:
        return None
    row = {name: value or "" for name, value in rows[0].items()}
    name, pos = row["file"], int(row["position"])
    gtids = row["executed_gtid_set"].replace("\n", "") if mysql else _gtids_at(session, name, pos)
    return LogEnd(name, pos, gtids, _names(row["binlog_do_db"]), _names(row["binlog_ignore_db"]))


def _gtids_at(session: MysqlSession, name: str, pos: int) -> str:
    """MariaDB: the last GTID of each domain up to a place."""
    (found,) = session.one("SELECT BINLOG_GTID_POS(%s, %s)", name, pos)
    return str(found or "")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def is_replica(session: MysqlSession) -> bool | None:
    """Whether it replicates from another server; None where this user may not know."""
    if session.flavour is Flavour.MARIADB:
        ask = "SHOW ALL SLAVES STATUS"
    else:
        ask = "SHOW REPLICA STATUS" if session.release >= _REPLICA_COMES else "SHOW SLAVE STATUS"
    try:
        return bool(session.query(ask))
    except MysqlError as error:
        if is_denied(error):
            return None
        raise


def logs_cascades(session: MysqlSession) -> bool:
    """Whether what foreign keys change stands in the log: MySQL 9.6 and newer, unless InnoDB is to do it as before.

    A replica does it as its source does, whatever its own setting says.
    """
    native = session.setting("innodb_native_foreign_keys")
    return bool(native) and not is_on(native) and is_replica(session) is False


def has_no_log(error: MysqlError) -> bool:
    """Whether a question failed because the binary log is off."""
    return error.number == _NO_LOG


def expires(found: Mapping[str, str]) -> tuple[float, str]:
    """(seconds after which the server deletes a log file, the setting that says so); 0 where it deletes none."""
    if found.get("binlog_expire_logs_auto_purge", "ON").upper() == "OFF":
        return 0.0, "binlog_expire_logs_auto_purge"
    seconds = float(found.get("binlog_expire_logs_seconds", 0) or 0)
    if seconds:
        return seconds, "binlog_expire_logs_seconds"
    return float(found.get("expire_logs_days", 0) or 0) * 86_400, "expire_logs_days"


def replicas(session: MysqlSession) -> str:
    """The statement that lists who reads this server's log: server id, host, ..."""
    renamed = session.flavour is Flavour.MYSQL and session.release >= _REPLICA_COMES
    return "SHOW REPLICAS" if renamed else "SHOW SLAVE HOSTS"
