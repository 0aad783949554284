"""A source table `kv` of two columns that is loaded and written to, and what the tests of its load look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from extract.extract import Extract
from tests.support.capturing import Capture
from tests.support.loading import LoadBench

KEYS = 400


def kv_source(url: str, folder: Path) -> Capture:
    """A source with a table that has rows, and an Extract that is registered behind them."""
    made = Capture(url, folder / "dirdat")
    (folder / "dirdat").mkdir()
    made.sql(
        "CREATE TABLE kv (id bigint PRIMARY KEY, v text)",
        f"INSERT INTO kv SELECT n, 'old ' || n FROM generate_series(0, {KEYS - 1}, 2) n",
    )
    return made


@contextmanager
def kv_bench(capture: Capture, url: str, folder: Path) -> Iterator[LoadBench]:
    """A Replicat of an empty target, closed in the end."""
    made = LoadBench(folder, capture, url, "public", rows=30)
    sql(url, "CREATE TABLE kv (id bigint PRIMARY KEY, v text)")
    yield made
    if made.process is not None:
        made.process.close()


def sql(url: str, statement: str) -> list[Any]:
    """One statement, committed; its rows, if it has any."""
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def rows(url: str, table: str = "kv") -> list[Any]:
    """All rows, in the order of the first column."""
    return sql(url, f"SELECT * FROM {table} ORDER BY 1")


def settle(capture: Capture, extract: Extract, bench: LoadBench) -> None:
    """Everything is captured, copied and applied; a last change takes the trail past all snapshots."""
    bench.until(lambda: "copying" not in bench.states().values() and "waiting" not in bench.states().values())
    capture.sql("INSERT INTO kv VALUES (100000, 'last') ON CONFLICT (id) DO UPDATE SET v = 'last'")
    capture.drain(extract)
    bench.step(3)
    bench.until(bench.all_done)
