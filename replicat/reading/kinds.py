"""The source databases that Replicat reads: one line for each scheme that SOURCEDB's URL may have.

Rule: a kind loads its driver only when a reader is opened. A new kind is a folder beside this file, and its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from replicat.reading.contract import Reader
from trails.errors import OperatorError


def _postgres(url: str, trail: Mapping[str, str]) -> Reader:
    from replicat.reading.postgres.reader import PostgresReader

    return PostgresReader(url, trail)


def _mysql(url: str, trail: Mapping[str, str]) -> Reader:
    from replicat.reading.mysql.reader import MysqlReader

    return MysqlReader(url, trail)


def _sqlite(url: str, _trail: Mapping[str, str]) -> Reader:
    from replicat.reading.sqlite.reader import SqliteReader

    return SqliteReader(url)


class Readable(NamedTuple):
    """`open`: its reader, connected, of a URL and of what the trail's headers say of the source.

    `by_xid`: what a snapshot sees is told by numbers of transactions, where the database's own log is captured.
    """

    open: Callable[[str, Mapping[str, str]], Reader]
    by_xid: bool = False


KINDS: Final[dict[str, Readable]] = {
    "postgresql": Readable(_postgres, by_xid=True),
    "postgres": Readable(_postgres, by_xid=True),
    "mysql": Readable(_mysql),
    "mariadb": Readable(_mysql),
    "sqlite": Readable(_sqlite),
}


def open_reader(url: str, trail: Mapping[str, str] | None = None) -> Reader:
    """A reader, connected. `trail`: what the headers of the trail say of its source: by that it must agree, and how it
    was captured.
    """
    return KINDS[check_readable(url)].open(url, trail or {})


BRANCH: Final = ("timeline", "server", "epoch")
"""What of a source's identity is another after a failover: its history may have branched off there."""


def branch_of(trail: Mapping[str, str]) -> str:
    """Which branch of the source's history a file of the trail is of; empty where a source can't fail over."""
    return ", ".join(f"{name} {trail[name]}" for name in BRANCH if name in trail)


def tells_xids(trail: Mapping[str, str]) -> bool:
    """Whether snapshots of that source are told by numbers of transactions; those of a queue are told by its ticks.

    `trail`: what its headers say of its source.
    """
    kind = KINDS.get(trail.get("kind", ""))
    return kind is not None and kind.by_xid and "queue" not in trail


def check_readable(url: str) -> str:
    """The scheme of a database that there is a reader for. Raises OperatorError for any other."""
    scheme = url.partition("://")[0].lower()
    if scheme not in KINDS:
        expected = ", ".join(f"{known}://" for known in KINDS)
        raise OperatorError(f"SOURCEDB: a URL of kind {scheme[:20]!r}", hint=f"Expected one of {expected}")
    return scheme
