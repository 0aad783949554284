"""The test bed: a source and a target server, the backlog in the source's log, and a fresh target for each run.

Rule: every run of a workload reads the same bytes: the backlog is made once, behind a slot that nobody reads, and each
run gets a copy of that slot, and a copy of the target database as it was before the backlog.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import psycopg

from benchmarks.workloads import DDL, DIGEST, FILL, LOOK, MARK, PROCEDURES, SCHEMA, TABLE, Workload
from demo.servers import PostgresServer

SOURCE_DB = "bench"
TARGET_DB = "target"
BASE_DB = "base"
PUBLICATION = "bench_peer"
HELD = "bench_held"

# Enough memory and log space that neither side's checkpoints nor its buffers are what is measured.
OPTIONS: dict[str, object] = {
    "shared_buffers": "512MB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "autovacuum": False,
    "timezone": "UTC",
    "max_replication_slots": 20,
    "max_wal_senders": 20,
}


class Bed:
    """Both servers while a `with` block lasts. `tcp`: how replicating programs connect; else by unix socket."""

    def __init__(self, *, tcp: bool) -> None:
        self.tcp = tcp
        self.source = PostgresServer(version=16, options=OPTIONS, tcp=True)
        try:
            self.target = PostgresServer(version=18, options=OPTIONS, tcp=True)
        except BaseException:
            self.source.close()
            raise
        self.end = ""

    def __enter__(self) -> Self:
        try:
            self.source.start()
            self.target.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop and remove both servers."""
        self.source.close()
        self.target.close()

    def source_url(self, *, tcp: bool | None = None) -> str:
        """Where Extract and the peers read."""
        return self.source.url(SOURCE_DB, tcp=self.tcp if tcp is None else tcp)

    def target_url(self, dbname: str = TARGET_DB) -> str:
        """Where the changes go."""
        return self.target.url(dbname, tcp=self.tcp)

    # --- a workload's ground ------------------------------------------------------------------------------------------

    def prepare(self, base: int, ddl: str = "") -> None:
        """Both databases anew, with `base` equal rows and further tables by `ddl`, before anybody registers."""
        self.drop_slots()
        for server, name in ((self.source, SOURCE_DB), (self.target, TARGET_DB)):
            server.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            server.sql(f"CREATE DATABASE {name}")
            _fill(server.url(name), base, ddl)
        self.source.sql(f"CREATE PUBLICATION {PUBLICATION} FOR TABLES IN SCHEMA {SCHEMA}", SOURCE_DB)

    def hold(self, registered: str) -> None:
        """From here on is backlog: keep the registered slot's place, and the target as it is."""
        self.copy_slot(HELD, registered)
        self.target.sql(f"DROP DATABASE IF EXISTS {BASE_DB} WITH (FORCE)")
        self.target.sql(f"CREATE DATABASE {BASE_DB} TEMPLATE {TARGET_DB} STRATEGY file_copy")

    def load(self, workload: Workload) -> float:
        """Make the backlog; returns seconds."""
        started = time.monotonic()
        with psycopg.connect(self.source.url(SOURCE_DB), autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            connection.execute(workload.load.encode())
            connection.execute(MARK.encode())
        self.end = str(self.source.sql("SELECT pg_current_wal_insert_lsn()")[0][0])
        self.source.sql("CHECKPOINT")
        return time.monotonic() - started

    def fresh_target(self) -> None:
        """The target database as it was before the backlog."""
        self.target.sql(f"DROP DATABASE IF EXISTS {TARGET_DB} WITH (FORCE)")
        self.target.sql(f"CREATE DATABASE {TARGET_DB} TEMPLATE {BASE_DB} STRATEGY file_copy")
        self.target.sql("CHECKPOINT")

    # --- slots --------------------------------------------------------------------------------------------------------

    def make_slot(self, name: str) -> None:
        """A slot that keeps the log from here on."""
        self.drop_slots(name)
        self.source.sql(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')", SOURCE_DB)

    def copy_slot(self, name: str, held: str = HELD) -> None:
        """Put slot `name` to where the held one stands."""
        self.drop_slots(name)
        self.source.sql(f"SELECT pg_copy_logical_replication_slot('{held}', '{name}')", SOURCE_DB)

    def drop_slots(self, *names: str) -> None:
        """Drop these slots, or all; one that a dying reader still holds is waited for."""
        for (name,) in self.source.sql("SELECT slot_name FROM pg_replication_slots"):
            if not names or name in names:
                self._drop(str(name))

    def _drop(self, name: str) -> None:
        deadline = time.monotonic() + 20
        while True:
            try:
                self.source.sql(f"SELECT pg_drop_replication_slot('{name}')")
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    # --- what arrived -------------------------------------------------------------------------------------------------

    def await_marker(self, alive: Callable[[], None], seconds: float = 300) -> float:
        """Wait until the backlog's last transaction is visible at the target; returns the clock of that moment."""
        deadline = time.monotonic() + seconds
        next_check = time.monotonic() + 1
        with psycopg.connect(self.target.url(TARGET_DB), autocommit=True) as connection:
            while True:
                if connection.execute(LOOK.encode(), prepare=True).fetchone() == (1,):
                    return time.monotonic()
                if time.monotonic() > next_check:
                    alive()
                    next_check += 1
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the backlog has not arrived within {seconds:.0f} s")
                time.sleep(0.005)

    def compare(self, tables: Sequence[str] = (TABLE,)) -> None:
        """Raise unless each table of the target has as many rows as the source's, and the same ones."""
        for table in tables:
            look = DIGEST.format(table=table)
            expected, found = self.source.sql(look, SOURCE_DB)[0], self.target.sql(look, TARGET_DB)[0]
            if expected != found:
                raise AssertionError(f"{table} differs: expected (rows, hash) {expected}, found {found}")


def _fill(url: str, base: int, ddl: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for part in (DDL, ddl, PROCEDURES):
            connection.execute(part.encode())
        connection.execute(FILL.format(rows=base).encode())
        connection.execute("VACUUM (FREEZE, ANALYZE)")
