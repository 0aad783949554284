"""The initial load from sources whose snapshots are told in other words than those of PostgreSQL's log.

Rule: as in test_initial_load.py, chunks, batches, captures, writes and kills come in the order of a seed. A table that
has no key is one chunk. SQLite does not capture such a table, and PostgreSQL by triggers does not load it, so there it
is no part of the test.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from replicat.load.loadtables import LIVE
from tests.support.load_sources import LoadSource, Rows, from_log, queued
from tests.support.loading import LoadBench
from tests.support.sqlite_source import SourceFile
from tests.support.trigger_source import TriggeredDb

pytestmark = pytest.mark.e2e

KEYS = 120
KV = "CREATE TABLE kv (id bigint PRIMARY KEY, v varchar(40))"
LOOSE = "CREATE TABLE loose (id bigint, v varchar(40))"


def filled(*tables: str) -> list[str]:
    """Statements that make tables with rows; each row of one without a key is there three times."""
    made = [statement for name, statement in (("kv", KV), ("loose", LOOSE)) if name in tables]
    for name in tables:
        keys = range(0, KEYS, 2) if name == "kv" else [n // 3 for n in range(60)]
        made.append(f"INSERT INTO {name} VALUES " + ", ".join(f"({key}, 'old {key}')" for key in keys))
    return made


@pytest.fixture(params=[pytest.param("mysql", marks=pytest.mark.soak), "mariadb", "sqlite", "triggers"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> LoadSource:
    (tmp_path / "dirdat").mkdir()
    if request.param in ("mysql", "mariadb"):
        server = request.getfixturevalue(f"{request.param}_source")
        schema = request.getfixturevalue(f"{request.param}_source_db")
        return from_log(server.url(schema), schema, tmp_path, ("kv", "loose"), *filled("kv", "loose"))
    if request.param == "sqlite":
        return queued(SourceFile.make(tmp_path, filled("kv")), "main", tmp_path, ("kv",))
    url = request.getfixturevalue("source_db")
    made = TriggeredDb.make(url, *filled("kv"))
    return queued(made, "public", tmp_path, ("kv",))


@dataclass
class Head:
    """The target; MariaDB's rows go to SQLite."""

    url: str
    schema: str
    run: Callable[[str], Rows]


@pytest.fixture
def head(request: pytest.FixtureRequest, source: LoadSource, tmp_path: Path) -> Head:
    if "mariadb" in request.node.callspec.params.values():
        path = tmp_path / "head.db"

        def lite(statement: str) -> Rows:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as conn:
                return conn.execute(statement).fetchall()

        made = Head(f"sqlite:///{path}", "main", lite)
    else:
        url = request.getfixturevalue("target_db")

        def post(statement: str) -> Rows:
            with psycopg.connect(url, autocommit=True) as conn:
                cursor = conn.execute(statement.encode())
                return cursor.fetchall() if cursor.description else []

        made = Head(url, "public", post)
    made.run(KV)
    if "loose" in source.tables:
        made.run(LOOSE)
    return made


class Changes:
    """Writes one table after the other at random; a key change among them."""

    def __init__(self, source: LoadSource, seed: int) -> None:
        self.random = random.Random(seed)
        self._source = source

    def write(self) -> None:
        table = self.random.choice(self._source.tables)
        key, new, value = self.random.randrange(KEYS), self.random.randrange(KEYS), self.random.random()
        there = bool(self._source.rows(f"SELECT id FROM {table} WHERE id = {key}"))
        free = table == "loose" or not self._source.rows(f"SELECT id FROM {table} WHERE id = {new}")
        if not there:
            self._source.sql(f"INSERT INTO {table} VALUES ({key}, 'v{value}')")
            return
        match self.random.randrange(3):
            case 0:
                self._source.sql(f"DELETE FROM {table} WHERE id = {key}")
            case 1 if free:
                self._source.sql(f"UPDATE {table} SET id = {new} WHERE id = {key}")
            case _:
                self._source.sql(f"UPDATE {table} SET v = 'v{value}' WHERE id = {key}")


@pytest.mark.parametrize("seed", [0])
def test_GG_01_YG_01_tables_of_other_sources_are_loaded_while_they_are_written_to(
    source: LoadSource, head: Head, tmp_path: Path, seed: int
):
    """Writes, captures, batches, chunks and kills in a random order; in the end both sides have the same rows.

    Then the target differs, as somebody wrote to it, and RELOAD mends that.
    """
    bench = LoadBench(tmp_path, source, head.url, head.schema, rows=20, schema_there=source.schema)
    changes = Changes(source, seed)
    try:
        with source.running() as extract:
            changes.write()
            bench.instantiate(*source.tables)
            bench.start()
            for turn in range(100):
                match changes.random.randrange(6):
                    case 0 | 1:
                        changes.write()
                    case 2:
                        source.drain(extract)
                    case 3 if turn % 5 == 0:
                        bench.kill()
                        bench.start()
                    case _:
                        bench.step(2)
            bench.until(lambda: not {"copying", "waiting"} & set(bench.states().values()))
            source.sql("INSERT INTO kv VALUES (100000, 'last')")
            source.drain(extract)
            bench.step(3)
            bench.until(bench.all_done)
            head.run("DELETE FROM kv WHERE id = 100000")
            head.run("INSERT INTO kv VALUES (100001, 'too many')")
            changes.write()
            assert [one["done"] for one in bench.reload("kv")] == ["emptied"]
            assert [one["done"] for one in bench.reload("kv")] == ["left alone"]
            assert head.run("SELECT id FROM kv") == []
            changes.write()
            source.drain(extract)
            bench.process.flush()  # which sees that it was not told
            bench.until(lambda: not {"copying", "waiting"} & set(bench.states().values()))
            source.sql("INSERT INTO kv VALUES (100002, 'last')")
            source.drain(extract)
            bench.step(3)
            bench.until(bench.all_done)
    finally:
        if bench.process is not None:
            bench.process.close()
    assert set(bench.states().values()) == {LIVE}
    for table in source.tables:
        query = f"SELECT id, v FROM {table} ORDER BY id, v"
        assert sorted(head.run(query)) == sorted(source.rows(query)), table
    assert not bench.state().chunks
    assert bench.state().load.noted == ""  # numbers of transactions say nothing here
