"""INFO ALL, DETAIL over real processes and two homes: the stage that holds the others back is named, and why."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.patience import PATIENCE, wait_for
from ggsci.flow import pipelines, stages
from ggsci.flow.pipelines import Pipeline
from tests.support.homes import as_json, good
from tests.support.link import LinkBench, Source
from trails.runtime.home import registration
from trails.runtime.home.registration import Registration

pytestmark = pytest.mark.e2e


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LinkBench]:
    """Pump and Collector with a small window, and a Replicat on the far side that never ran."""
    monkeypatch.setattr(stages, "ASK_SECONDS", PATIENCE)  # a busy machine answers later than people wait
    made = LinkBench(tmp_path, parameters="WINDOW 1", timeout=60, megabytes=100)
    registration.save(made.far, Registration("REP1", "REPLICAT", "TRAIL", "./dirdat/rt"))
    yield made
    made.close()


def look(bench: LinkBench) -> Pipeline:
    """Both homes as one pipeline."""
    (found,) = pipelines.gather(bench.near, time.time_ns() // 1000, [bench.far])
    return found


def megabytes(source: Source, count: int) -> None:
    """So much in the local trail, durable, in rows that don't compress."""
    for _ in range(count * 8):
        source.small(transactions=1, rows=64)
    source.sync()


def test_a_collector_that_stands_still_a_link_that_catches_up_and_a_stopped_replicat(bench: LinkBench):
    """The pump's output is full; then nothing waits for it; then only what is not running holds the others back."""
    source = Source(bench.fs, bench.local, max_bytes=100 << 20, padding=2048)
    megabytes(source, 1)
    bench.start()
    bench.drain()
    found = look(bench)
    assert found.name == "PMP1 > REP1"
    pump, replicat = found.stages
    assert (pump.status, pump.backlog_bytes, pump.backlog_us, pump.lag_us, pump.holds_back) == (
        "RUNNING",
        0,
        0,
        0,
        False,
    )
    assert pump.extra["operations"] == bench.ask("STATS")["tables"][0]["operations"] > 0
    assert pump.extra["transactions"] == 8
    assert pump.extra["bytes_in"] >= 1 << 20
    assert (replicat.status, replicat.holds_back, replicat.lag_us) == ("STOPPED", True, None)
    assert replicat.backlog_bytes is not None
    assert replicat.backlog_bytes > 1 << 20
    assert replicat.why.startswith("it is STOPPED; waiting for it: ")

    collector = bench.manager.collector
    assert collector is not None
    os.kill(collector.pid, signal.SIGSTOP)
    megabytes(source, 4)
    # A share of the last ten seconds, which comes near 1 while nothing changes; half of it is taken for much.
    wait_for(lambda: (bench.ask("METRICS")["extra"]["blocked"] or 0) > 0.8, told="a full window")
    (alone,) = pipelines.gather(bench.near, time.time_ns() // 1000)
    pump = alone.stages[0]
    assert pump.holds_back
    assert pump.backlog_bytes is not None
    assert pump.backlog_bytes > 2 << 20
    assert "its output is full" in pump.why
    assert "link or Collector is slow" in pump.why
    text = good(bench.near, "INFO ALL, DETAIL")
    assert f"  Held back by PUMP PMP1: {pump.why[:20]}" in text
    assert [line for line in text.splitlines() if line.startswith("* PUMP      PMP1      RUNNING")]
    assert as_json(bench.near, "INFO ALL, DETAIL")["pipelines"][0]["stages"][0]["holds_back"] is True

    os.kill(collector.pid, signal.SIGCONT)
    bench.drain()
    assert bench.ask("METRICS")["backlog_bytes"] == 0
    assert bench.ask("METRICS")["bytes_s"] > 0
    assert bench.stop() == 0
    megabytes(source, 1)
    pump = look(bench).stages[0]
    assert (pump.status, pump.lag_us, pump.lag_why, pump.ops_s) == ("STOPPED", None, "STOPPED", None)
    assert pump.backlog_bytes is not None
    assert pump.backlog_bytes > 1 << 20
