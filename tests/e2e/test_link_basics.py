"""Pump and Collector as processes, on a good link: everything arrives once and in order, through STOP and START."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest

from demo.patience import wait_for
from tests.support.ddl_trail import SCRIPT, read_ddl_trail, write_ddl_trail
from tests.support.homes import good
from tests.support.link import LinkBench, Source
from trails.ddl import DdlChange
from trails.reader import last_header

pytestmark = pytest.mark.e2e


@pytest.fixture
def bench(tmp_path, request):
    made = LinkBench(tmp_path, **getattr(request, "param", {}))
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
    assert checkpoint.extra["trail_id"] == last_header(bench.fs, bench.local).trail_id.hex()


def test_schema_changes_pass_as_they_stand(tmp_path):
    """DB-02: PASSTHRU never looks into a DDL block; the remote trail has it in the same place, with its bit."""
    with contextlib.closing(LinkBench(tmp_path)) as bench:
        write_ddl_trail(bench.fs, bench.local)
        bench.start()
        bench.drain()
        assert read_ddl_trail(bench.fs, bench.remote) == SCRIPT


def test_a_filtering_pump_passes_schema_changes_of_the_tables_it_passes(tmp_path):
    """By the old or the new name; a column that COLSEXCEPT names is in no shape; STATS counts them."""
    lines = "TABLE sales.*, COLSEXCEPT (note, sum);\nTABLEEXCLUDE sales.items;"
    with contextlib.closing(LinkBench(tmp_path, parameters=lines)) as bench:
        write_ddl_trail(bench.fs, bench.local)
        bench.start()
        bench.drain()
        found = [item for transaction in read_ddl_trail(bench.fs, bench.remote) for item in transaction]
        shapes = [item.new or item.old for item in found if isinstance(item, DdlChange)]
        assert [(s.name, [c.name for c in s.columns]) for s in shapes] == [
            ("orders", ["id"]), ("orders", ["id", "naïve"]), ("old orders", ["id", "naïve"]),
            ("old orders", ["id", "naïve"]),
        ]  # fmt: skip
        assert [item[1] for item in found if not isinstance(item, DdlChange)] == ["1", "2", "3"]
        counted = {row["from"]: (row["inserts"], row["ddls"]) for row in bench.ask("STATS")["tables"]}
        assert counted == {"sales.orders": (3, 2), "sales.old orders": (0, 2)}


def test_tcp_statistics_tell_what_went_over_the_link(bench):
    """GETTCPSTATS: bytes, messages, compression, waits; RESETTCPSTATS begins anew; what a pump can't do is refused."""
    Source(bench.fs, bench.local, seed=9).mixed(40)
    bench.start()
    bench.drain()
    found = bench.ask("GETTCPSTATS")
    assert found["sessions"] == 1
    assert found["messages_out"] > found["blocks"] > 20
    assert found["acknowledged"] == found["blocks"]
    assert found["raw_bytes"] > found["stored_bytes"] > 0
    assert found["bytes_out"] > found["stored_bytes"]
    assert found["bytes_in"] > 0
    assert found["ack_wait_us"] > 0
    assert found["remote"].startswith("127.0.0.1:")
    assert bench.ask("RESETTCPSTATS")["ok"]
    again = bench.ask("GETTCPSTATS")
    assert (again["blocks"], again["sessions"]) == (0, 0)
    refused = bench.ask("SHOWTRANS")["error"]
    assert "a pump knows no request SHOWTRANS. It knows FORCESTOP, GETLAG, GETPARAMINFO, GETTCPSTATS," in refused


@pytest.mark.parametrize("bench", [{"timeout": 2}], indirect=True, ids=["TIMEOUT 2"])
def test_the_clocks_are_compared_as_long_as_the_link_is_up(bench):
    """With each answer to a PING. Here is one clock, so what is known of two is never further off than it says."""
    Source(bench.fs, bench.local, seed=11).mixed(2)
    bench.start()
    bench.drain()
    ages: list[int] = []

    def answers() -> int:
        found = bench.ask("STATUS")["clocks"]
        assert abs(found["ahead_us"]) <= found["error_us"] + 1, found
        ages.append(found["age_us"])
        return sum(later < earlier for earlier, later in pairwise(ages))

    wait_for(lambda: answers() > 3)
    extra = bench.ask("METRICS")["extra"]
    assert abs(extra["clock_offset_us"]) <= extra["clock_error_us"] + 1


def test_a_pump_that_decodes_nothing_says_what_it_counts(bench):
    """STATS with a table that was asked for shows what there is, all tables together, and why."""
    Source(bench.fs, bench.local, seed=12).mixed(5)
    bench.start()
    bench.drain()
    reply = bench.ask("STATS")
    (row,) = reply["tables"]
    for words in ("", ", TABLE sales.orders", ", TOTALSONLY sales.*"):
        text = good(bench.near, f"STATS EXTRACT PMP1, TOTAL{words}")
        assert "All tables are counted together: PASSTHRU sends blocks undecoded" in text
        assert "Extracting from *.* to *.*:" in text
        assert f"Total operations                   \t{row['operations']:15.2f}" in text
    assert bench.stop() == 0


def test_rollover_begins_a_new_remote_file_and_loses_nothing(bench):
    """SEND ..., ROLLOVER with blocks in flight: all are acknowledged first, then the next session writes a new file."""
    source = Source(bench.fs, bench.local, seed=10)
    source.mixed(30)
    bench.start()
    bench.drain()
    before = bench.ask("STATUS")["write"][0]["seqno"]
    source.mixed(30)
    assert bench.ask("ROLLOVER")["ok"]
    wait_for(lambda: bench.ask("STATUS")["write"][0]["seqno"] > before)
    bench.drain()
    assert bench.ask("GETTCPSTATS")["sessions"] == 2
    assert bench.assert_equal() > 60
    assert "closed the link" not in bench.log()
