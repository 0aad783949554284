"""What the load waits for at a PostgreSQL source, while the changes of all tables go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from replicat.targets.kinds import admin_for
from tests.support.capturing import Capture
from tests.support.loading import LoadBench
from tests.support.loadkv import kv_bench, kv_source, rows, settle, sql

pytestmark = pytest.mark.e2e

FREE = "CREATE TABLE free (id bigint PRIMARY KEY, v text)"


@pytest.fixture
def capture(source_db: str, tmp_path: Path) -> Capture:
    """The source of `kv`, and of a table that is not loaded."""
    made = kv_source(source_db, tmp_path)
    made.sql(FREE)
    return made


@pytest.fixture
def bench(capture: Capture, target_db: str, tmp_path: Path) -> Iterator[LoadBench]:
    """Its target."""
    with kv_bench(capture, target_db, tmp_path) as made:
        sql(target_db, FREE)
        yield made


@pytest.mark.parametrize("pipes", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_changes_go_on_while_a_table_is_locked_at_the_source(capture: Capture, bench: LoadBench, pipes: bool):
    """An ALTER TABLE that somebody left open: its table waits, is told of, and is loaded once the lock is free."""
    bench.pipes = pipes
    capture.register()
    with capture.running() as extract, psycopg.connect(capture.url) as locker:
        capture.drain(extract)
        bench.instantiate("kv")
        bench.start()
        locker.execute("LOCK TABLE kv IN ACCESS EXCLUSIVE MODE")
        bench.until(lambda: any("has locked it" in note for note in bench.notes))
        for number in range(3):
            capture.sql(f"INSERT INTO free VALUES ({number}, 'meanwhile')")
            capture.drain(extract)
            bench.until(lambda: len(rows(bench.url, "free")) == number + 1)  # noqa: B023  -- called before it changes
        assert rows(bench.url) == []
        locker.rollback()
        settle(capture, extract, bench)
    assert rows(bench.url) == rows(capture.url)


def test_changes_go_on_while_a_transaction_is_open_that_began_before_a_reload(capture: Capture, bench: LoadBench):
    """A copy must see it ended, as its changes may have been left out; until then others go on."""
    capture.register()
    with capture.running() as extract, psycopg.connect(capture.url) as old:
        capture.drain(extract)
        bench.instantiate("kv")
        process = bench.start()
        settle(capture, extract, bench)
        old.execute("UPDATE kv SET v = 'open' WHERE id = 2")
        assert [one["notes"] for one in bench.reload("kv")] == [["was live"]]
        process.flush()  # which sees that it was not told
        bench.until(lambda: any("had not ended at the source" in note for note in bench.notes))
        for number in range(3):
            capture.sql(f"INSERT INTO free VALUES ({number}, 'meanwhile')")
            capture.drain(extract)
            bench.until(lambda: len(rows(bench.url, "free")) == number + 1)  # noqa: B023  -- called before it changes
        old.commit()
        settle(capture, extract, bench)
    assert rows(bench.url) == rows(capture.url)


def test_numbers_that_a_crash_of_the_source_took_back_are_not_waited_for_for_ever(capture: Capture, bench: LoadBench):
    """At a source where nobody writes, no transaction would ever have the number that INSTANTIATE noted."""
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("kv")
        ((given,),) = sql(capture.url, "SELECT pg_current_xact_id()::text")
        with admin_for(bench.url).statements(bench.url) as run:
            run(*bench.tables.sees_all(int(given) + 10))
        bench.start()
        bench.until(lambda: bench.states()["kv"] == "catching up")
        settle(capture, extract, bench)
    assert rows(bench.url) == rows(capture.url)
