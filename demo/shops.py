"""The demo's source: a shop in PostgreSQL or in MariaDB, whose target is a shop in PostgreSQL.

Rule: what the demo does with its source it does by a Shop; what differs between databases stands here alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import psycopg

from demo import mariashop, workload
from demo.compare import compare, digests, tables_of
from demo.mariadb import MariaServer
from demo.servers import PostgresServer
from demo.workload import SCHEMA, Workload


class Shop(Protocol):
    """The source's server, with the shop's tables in it and in the target."""

    title: str

    @property
    def url(self) -> str:
        """For SOURCEDB."""

    def start(self, target: str) -> None:
        """Start the server, and make the tables here and there."""

    def stop(self) -> None:
        """Stop it."""

    def fill(self) -> None:
        """The first rows."""

    def work(self, rate: float) -> Workload:
        """Writers."""

    def large_transaction(self, rows: int) -> None:
        """Insert, change and delete many rows at once."""

    def transfers(self) -> int:
        """So many were committed."""

    def caught_up(self, target: str) -> bool:
        """Whether the target is where the source is, by a cheap look."""

    def compared(self, target: str) -> Iterator[tuple[str, bool]]:
        """Of each table what comparing all its rows found, and whether they are equal."""


class PostgresShop:
    """See Shop."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.title = "PostgreSQL"

    @property
    def url(self) -> str:
        return self._server.url()

    def start(self, target: str) -> None:
        self._server.start()
        self.title = f"PostgreSQL {self._server.sql('SHOW server_version')[0][0]}"
        for url in (self.url, target):
            workload.create_tables(url)

    def stop(self) -> None:
        self._server.stop()

    def fill(self) -> None:
        workload.fill(self.url)

    def work(self, rate: float) -> Workload:
        return Workload(self.url, rate=rate)

    def large_transaction(self, rows: int) -> None:
        workload.large_transaction(self.url, rows)

    def transfers(self) -> int:
        return transfers(self.url)

    def caught_up(self, target: str) -> bool:
        tables = tables_of(self.url, [SCHEMA])
        return digests(self.url, tables) == digests(target, tables)

    def compared(self, target: str) -> Iterator[tuple[str, bool]]:
        for table in tables_of(self.url, [SCHEMA]):
            found = compare(self.url, target, table)
            yield str(found), found.equal


class MariaShop:
    """See Shop. The server is gone after the demo."""

    def __init__(self) -> None:
        self._server = MariaServer(options=MariaServer.BINLOG)
        self.title = "MariaDB"

    @property
    def url(self) -> str:
        return self._server.url(mariashop.SCHEMA)

    def start(self, target: str) -> None:
        self._server.start()
        self.title = f"MariaDB {self._server.sql('SELECT version()')[0][0]}"
        mariashop.create_source(self._server)
        mariashop.create_target(target)

    def stop(self) -> None:
        self._server.close()

    def fill(self) -> None:
        mariashop.fill(self._server)

    def work(self, rate: float) -> Workload:
        return mariashop.MariaWorkload(self._server, rate=rate)

    def large_transaction(self, rows: int) -> None:
        mariashop.large_transaction(self._server, rows)

    def transfers(self) -> int:
        return int(self._server.sql("SELECT coalesce(sum(transfers), 0) FROM progress", mariashop.SCHEMA)[0][0])

    def caught_up(self, target: str) -> bool:
        return all(equal for _, equal in self.compared(target))

    def compared(self, target: str) -> Iterator[tuple[str, bool]]:
        for name, (rows, ours, theirs) in mariashop.differences(self._server, target).items():
            equal = not ours and not theirs
            wrong = f"{rows:,} rows at the source; only there: {ours}, only at the target: {theirs}"
            yield f"{mariashop.SCHEMA}.{name}: {f'{rows:,} rows, equal' if equal else wrong}", equal


def transfers(url: str) -> int:
    """So many have arrived in a PostgreSQL database."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT coalesce(sum(transfers), 0) FROM shop.progress").fetchone()
    return int(row[0]) if row else 0
