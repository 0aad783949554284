"""The pace of the initial load: when the next round of chunks begins, and when the load rests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from replicat.load import rounds
from replicat.targets.kinds import admin_for
from tests.support.capturing import Capture
from tests.support.loading import LoadBench
from tests.support.loadkv import kv_bench, kv_source, rows, settle, sql

pytestmark = pytest.mark.e2e


@pytest.fixture
def capture(source_db: str, tmp_path: Path) -> Capture:
    """The source of `kv`."""
    return kv_source(source_db, tmp_path)


@pytest.fixture
def bench(capture: Capture, target_db: str, tmp_path: Path) -> Iterator[LoadBench]:
    """Its target."""
    with kv_bench(capture, target_db, tmp_path) as made:
        yield made


@pytest.mark.parametrize("pipes", [True, False])
def test_a_load_rests_between_its_rounds_as_its_rate_asks(capture: Capture, bench: LoadBench, monkeypatch, pipes: bool):
    """By a clock that stands: nothing more is copied until the rows that were are paid for."""
    bench.pipes, bench.rate, now = pipes, 50, [1000.0]
    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: now[0]))
    capture.register()
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("kv")
        process = bench.start()
        load = process._rounds
        bench.until(lambda: any(chunk.seen for chunk in bench.state().chunks) and not load.running)
        first = [chunk for chunk in bench.state().chunks if chunk.seen]
        rest = sum(chunk.rows for chunk in first) / bench.rate
        (told,) = process.metrics().extra["loading"]
        assert (told["chunks_done"], told["rows"]) == (len(first), sum(chunk.rows for chunk in first))
        assert told["rows_s"] > 0
        assert told["left_us"] > 0
        for seconds, rests in ((0, True), (rest - 0.01, True), (0.02, False)):
            now[0] += seconds
            bench.step(20)
            same = [chunk for chunk in bench.state().chunks if chunk.seen] == first
            assert (same and not load.running) is rests
        load.drop()  # as where the target is lost: what was being copied counts
        bench.step(20)
        assert not load.running


def test_a_load_goes_on_at_once_while_nothing_waits(capture: Capture, bench: LoadBench):
    """Between its rounds no turn says that there is nothing to do; with more time fewer rounds copy all chunks."""
    capture.register()
    bench.rows = 20
    with capture.running() as extract:
        capture.drain(extract)
        bench.instantiate("kv")
        (row,) = bench.state().tables
        began = []
        for turn in (0.0, 60.0):
            bench.turn = turn
            process = bench.start()
            process.step()  # looks for the trail's end
            while process._load.next_table() is not None:
                assert process.step(), "it would idle"
            chunks = bench.state().chunks
            assert len(chunks) > 2 * bench.tasks
            assert sum(chunk.rows for chunk in chunks) == len(rows(capture.url))
            began.append(process._rounds._number)
            bench.kill()
            with admin_for(bench.url).statements(bench.url) as run:
                run(*bench.tables.drop_chunks(row.pair))
                run(*bench.tables.set_table(row))
            sql(bench.url, "TRUNCATE kv")
        assert began == [2 + -(-len(chunks) // bench.tasks), 3], "beside planning and the end"


def test_a_load_goes_on_once_what_waited_is_applied_although_more_comes(
    capture: Capture, bench: LoadBench, monkeypatch
):
    """By a clock that stands, long before the round's time is paid back: with each job comes a change for the next."""
    now = [1000.0]
    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: now[0]))
    capture.register()
    with capture.running() as extract, psycopg.connect(capture.url, autocommit=True) as conn:
        capture.drain(extract)
        bench.rows, bench.turn = 20, -1.0
        bench.instantiate("kv")
        load = bench.start()._rounds
        bench.until(lambda: load.running and bool(bench.state().chunks))
        now[0] += 1e6
        assert bench.process is not None
        engine, number = bench.process._engine, load._number

        def change(tasks: Any = None, submit: Any = engine.submit) -> Any:
            conn.execute("UPDATE kv SET v = v || 'x' WHERE id = 2")
            capture.drain(extract)
            return submit(tasks) if tasks else None

        with monkeypatch.context() as patch:
            patch.setattr(engine, "submit", change)
            change()
            bench.step(40)
        assert load._number > number + 2
        settle(capture, extract, bench)
    assert rows(bench.url) == rows(capture.url)
