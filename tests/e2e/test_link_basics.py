"""Pump and Collector as processes, on a good link: everything arrives once and in order, through STOP and START."""

from __future__ import annotations

import pytest

from tests.support.link import LinkBench, Source

pytestmark = pytest.mark.e2e


@pytest.fixture
def bench(tmp_path):
    made = LinkBench(tmp_path)
    yield made
    made.close()


def test_everything_arrives_record_for_record(bench):
    """Small, large and abandoned transactions, over several files on both sides; STOP saves a checkpoint at the end."""
    source = Source(bench.fs, bench.local, max_bytes=60_000)
    source.mixed(60)
    bench.start()
    bench.drain()
    source.mixed(40)
    bench.drain()
    assert bench.assert_equal() > 100
    assert bench.stop() == 0
    checkpoint = bench.checkpoint()
    assert checkpoint.stop_status == "G"
    last = source.writer.durable
    assert (checkpoint.reads[0].current.seqno, checkpoint.reads[0].current.rba) == (last.seqno, last.rba)
    assert checkpoint.writes[0].type == "RMTTRAIL"
