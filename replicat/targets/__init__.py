"""The kinds of target, by the scheme of TARGETDB's URL.

Rule: a driver is loaded only when a target of its kind is used. A new kind is its files beside this one and one line
in each of the two tables here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from replicat.target import Row, Run, Target
from trails.errors import OperatorError

Table = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """What any target needs to know of its group.

    Only PostgreSQL has use for the last three: `suppress_triggers` (None as the target permits it),
    `defer_constraints`: DEFERREFCONST, `follow_sequences`: FOLLOWSEQUENCES. SQLite and MySQL can't hold triggers back,
    check no foreign keys in our sessions, and their numbers follow the rows by themselves.
    """

    url: str
    checkpoint_table: Table
    group: str
    group_key: int
    home: str = ""
    commit_wait: bool = False
    suppress_triggers: bool | None = None
    defer_constraints: bool = False
    follow_sequences: bool = False


class Admin(Protocol):
    """What replicat/admin.py does in a target, each in a connection of its own. A module of functions."""

    def database_info(self, url: str) -> dict[str, str]:
        """Who we are where: user, database, server."""

    def tables(self, url: str) -> list[tuple[str, str]]:
        """LIST TABLES: schema and name of every table of a user's, by name."""

    def add_row_table(self, url: str, table: Table) -> None:
        """ADD CHECKPOINTTABLE."""

    def drop_row_table(self, url: str, table: Table) -> None:
        """DELETE CHECKPOINTTABLE."""

    def rows_of_table(self, url: str, table: Table) -> list[dict[str, Any]] | None:
        """INFO CHECKPOINTTABLE: every group's row; None if there is no such table."""

    def delete_row(self, url: str, table: Table, group: str, group_key: int) -> bool:
        """DELETE REPLICAT: forget how far the group was. True if there was a row."""

    def statements(self, url: str) -> AbstractContextManager[Run]:
        """A connection in which statements can be run one by one."""

    def read_row(self, url: str, table: Table, group: str, group_key: int) -> Row | None:
        """One group's row, as a process would find it."""


def _postgres(settings: TargetSettings) -> Target:
    from replicat.targets.postgres import PostgresSettings, PostgresTarget

    return PostgresTarget(PostgresSettings(**asdict(settings)))


def _mysql(settings: TargetSettings) -> Target:
    from replicat.targets.mysql import MysqlTarget

    return MysqlTarget(settings)


def _sqlite(settings: TargetSettings) -> Target:
    from replicat.targets.sqlite import SqliteTarget

    return SqliteTarget(settings)


_KINDS: dict[str, tuple[Callable[[TargetSettings], Target], str]] = {
    "postgresql": (_postgres, "replicat.targets.postgres_admin"),
    "postgres": (_postgres, "replicat.targets.postgres_admin"),
    "mysql": (_mysql, "replicat.targets.mysql_admin"),
    "sqlite": (_sqlite, "replicat.targets.sqlite_admin"),
}


def open_target(settings: TargetSettings) -> Target:
    """A target, not connected yet."""
    return _kind(settings.url)[0](settings)


def admin_for(url: str) -> Admin:
    """The module with Admin's functions for a URL."""
    return cast("Admin", import_module(_kind(url)[1]))


def kind_of(url: str) -> str:
    """What a target calls its kind: "postgresql", "sqlite" or "mysql"."""
    return str(import_module(_kind(url)[1]).KIND)


_ABOUT = {
    "postgresql": "SELECT version(), current_setting('server_encoding')",
    "mysql": "SELECT concat(@@version_comment, ' ', version()), @@character_set_database",
    "sqlite": "SELECT 'SQLite ' || sqlite_version(), 'UTF-8'",
}


def about(target: Target, url: str) -> list[str]:
    """For the report: the target's version and character set."""
    version, characters = target.read(_ABOUT[kind_of(url)])[0]
    return ["Database Version:", f"{version}", "", "Database Language and Character Set:", f"{characters}", ""]


def _kind(url: str) -> tuple[Callable[[TargetSettings], Target], str]:
    scheme = url.partition("://")[0].lower()
    try:
        return _KINDS[scheme]
    except KeyError:
        raise OperatorError(
            f"TARGETDB: a URL of kind {scheme[:20]!r}", hint=f"Expected one of {', '.join(f'{k}://' for k in _KINDS)}"
        ) from None
