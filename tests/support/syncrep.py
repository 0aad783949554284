"""A PostgreSQL server whose commits wait for a standby that never comes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg

from demo.patience import PATIENCE
from demo.servers import PostgresServer

WAITS = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()"
_PROBE = "SELECT pg_logical_emit_message(true, 'trailgate test', 'x')"


@contextmanager
def commits_wait(server: PostgresServer, url: str) -> Iterator[None]:
    """From here on each commit waits, and goes on behind the end of this.

    That the server has read the setting says nothing: its checkpointer puts it in force, when it comes to that. So a
    commit of no rows in that database is tried until one waits; it waits as long as this lasts.
    """
    with ThreadPoolExecutor(1) as pool:
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        try:
            server.reload()
            probe, end = pool.submit(_ask, url, _PROBE), time.monotonic() + PATIENCE
            while not _ask(url, WAITS):
                assert time.monotonic() < end, "no commit waits for the standby"
                if probe.done():
                    probe = _again(pool, url, probe)
                time.sleep(0.01)
            yield
        finally:  # before the pool waits for the commit
            server.sql("ALTER SYSTEM RESET synchronous_standby_names")
            server.reload()


def _again(pool: ThreadPoolExecutor, url: str, probe: Future[list[Any]]) -> Future[list[Any]]:
    probe.result()
    return pool.submit(_ask, url, _PROBE)


def _ask(url: str, query: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute(query.encode()).fetchall()
