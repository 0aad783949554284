"""Heartbeats at a Replicat: exactly once with the checkpoint row, without any MAP, and never an error (SQLite)."""

from __future__ import annotations

from typing import Any

import pytest

from replicat.batches import startup
from replicat.model.target import CheckpointRow
from replicat.run.datasource import _partitions, _rows
from replicat.run.heartbeattables import add, alter, delete, history, info
from replicat.targets.sql.target import SqlTarget
from tests.support.beating import SECOND, BeatBench, beat, piped
from tests.support.replicat_trail import table
from trails.errors import AwayError, OperatorError
from trails.fs import RealFs
from trails.position import Position
from trails.reader import BlockReader
from trails.record import Op
from trails.testing import FakeClock

KV = table("src", "kv", "id v", "id")


@pytest.fixture
def bench(tmp_path):
    made = BeatBench(tmp_path, f"sqlite:///{tmp_path}/copy.db", "main", clock=FakeClock())
    sql(made, "CREATE TABLE kv (id TEXT PRIMARY KEY, v TEXT)")
    yield made
    made.feed.close()


def sql(bench: BeatBench, statement: str) -> list[tuple[Any, ...]]:
    import sqlite3

    conn = sqlite3.connect(bench.folder / "copy.db", isolation_level=None)
    try:
        return conn.execute(statement).fetchall()
    finally:
        conn.close()


def row(bench: BeatBench, number: int) -> None:
    bench.feed.tx((Op.INSERT, KV, [str(number), "v"]))


def received(bench: BeatBench) -> list[str]:
    return [at for (at,) in sql(bench, "SELECT incoming_heartbeat_ts FROM gg_heartbeat_history ORDER BY 1")]


def now_beat(bench: BeatBench, seconds_ago: float = 1.0) -> Any:
    return piped(beat(bench.clock.now_us() - int(seconds_ago * SECOND)))


def test_a_heartbeat_alone_is_a_commit_of_its_own(bench):
    """The row moves with it; view, history and status tell path, lag and age; no job, no user's change."""
    bench.beat(now_beat(bench))
    process = bench.run()
    ((local, remote, path, lag),) = sql(
        bench, "SELECT local_database, remote_database, incoming_path, incoming_lag FROM gg_heartbeat"
    )
    assert (local, remote, path) == ("copy", "shop", "EXT1 ==> PMP1 ==> REP1")
    assert lag == pytest.approx(1.0)
    assert len(received(bench)) == 1
    assert process._row.csn == "0000000000000001"
    assert process._row.xid == "x1"
    (entry,) = process.command("GETLAG", {})["heartbeats"]
    assert (entry["from"], entry["to"], entry["path"], entry["lag_us"]) == ("shop", "copy", path, SECOND)
    assert process.stats.total() == 0
    assert process.flush().extra["heartbeats"] == [entry]


def test_among_rows_they_go_with_their_batch(bench):
    """Rows before, between and behind; one commit; nothing of them is decoded as a change."""
    row(bench, 1)
    for ago in (3, 2, 1):
        bench.beat(now_beat(bench, ago))
        row(bench, 10 + ago)
    bench.run()
    assert sql(bench, "SELECT count(*) FROM kv") == [(4,)]
    assert len(received(bench)) == 3
    assert len(sql(bench, "SELECT * FROM gg_heartbeat")) == 1
    assert sql(bench, "SELECT seqno, log_csn, log_xid FROM chk") == [(0, "0000000000000007", "7")]


@pytest.mark.parametrize("call", ["begin", "write", "commit before", "commit after", "flush"])
def test_a_crash_anywhere_leaves_each_of_them_once(bench, monkeypatch, call):
    """CW-01: also where the commit landed and its answer was lost."""
    happened: list[str] = []
    for name in ("begin", "write", "commit", "flush"):
        _break(monkeypatch, name, call, happened)
    for number in range(4):
        bench.beat(now_beat(bench, 10 - number))
        row(bench, number)
    bench.lines = ["GROUPTRANSOPS 1"]
    process = bench.replicat()
    for _ in range(200):
        bench.clock.sleep(0.2)
        process.step()
    process.flush()
    process.close()
    assert happened
    assert len(received(bench)) == 4
    assert sql(bench, "SELECT count(*) FROM kv") == [(4,)]


def _break(monkeypatch: Any, name: str, call: str, happened: list[str]) -> None:
    real = getattr(SqlTarget, name)

    def broken(self: SqlTarget, *args: Any) -> Any:
        breaks = call.partition(" ")[0] == name and len(happened) < 3
        if breaks and not call.endswith("after"):
            happened.append(call)
            raise AwayError("the target went away")
        result = real(self, *args)
        if breaks:
            happened.append(call)
            raise AwayError("the target went away")
        return result

    monkeypatch.setattr(SqlTarget, name, broken)


def test_without_the_tables_the_figures_live_on_in_status(tmp_path):
    """And once they are made, what comes then goes into them, without a restart."""
    bench = BeatBench(tmp_path, f"sqlite:///{tmp_path}/copy.db", "main", tables=False, clock=FakeClock())
    sql(bench, "CREATE TABLE kv (id TEXT PRIMARY KEY, v TEXT)")
    bench.beat(now_beat(bench))
    process = bench.replicat()
    while process.step():
        pass
    assert process.command("GETLAG", {})["heartbeats"][0]["lag_us"] == SECOND
    add({"url": bench.url, "heartbeat": bench.names.text, "target": True})
    bench.clock.sleep(61)
    bench.beat(now_beat(bench))
    while process.step():
        pass
    process.close()
    bench.feed.close()
    assert len(received(bench)) == 1
    assert bench.warned == []


def test_a_refusal_is_told_once_and_the_rows_go_on(bench):
    """A heartbeat never ends a Replicat, nor loses what stands beside it."""
    sql(bench, "CREATE TRIGGER no BEFORE INSERT ON gg_heartbeat_history BEGIN SELECT RAISE(ABORT, 'no'); END")
    for number in range(3):
        bench.beat(now_beat(bench))
        row(bench, number)
    bench.lines = ["GROUPTRANSOPS 1"]
    process = bench.run()
    assert sql(bench, "SELECT count(*) FROM kv") == [(3,)]
    assert received(bench) == []
    (line,) = bench.warned
    assert line.startswith("heartbeats are not written into the target: ")
    assert process.command("GETLAG", {})["heartbeats"][0]["path"] == "EXT1 ==> PMP1 ==> REP1"


def test_heartbeats_that_come_again_by_an_alter_replace_themselves(bench):
    """I6: the time of arrival is the new one, their number the old one."""
    for ago in (3, 2, 1):
        bench.beat(now_beat(bench, ago))
    bench.run()
    sql(bench, "UPDATE chk SET seqno = 0, rba = 0, trail_id = '', flush_rba = 0")
    bench.run()
    assert len(received(bench)) == 3


def test_clocks_that_were_not_compared_give_no_lag(bench):
    """The row is there with its age; the view has no lag, nor has LAG."""
    bench.beat(piped(beat(bench.clock.now_us() - SECOND), ahead=None))
    process = bench.run()
    assert sql(bench, "SELECT incoming_lag FROM gg_heartbeat") == [(None,)]
    (entry,) = process.command("GETLAG", {})["heartbeats"]
    assert entry["lag_us"] is None
    assert "PMP1 and REP1" in entry["why"]


def test_a_source_that_is_ahead_does_not_hide_its_lag(bench):
    """The heartbeat says by how much; the lag of ordinary commits is corrected by it too."""
    now = bench.clock.now_us()
    ahead = beat(now + 30 * SECOND - SECOND, ahead=-30 * SECOND)
    bench.beat(piped(ahead))
    process = bench.run()
    reply = process.command("GETLAG", {})
    assert reply["heartbeats"][0]["lag_us"] == SECOND
    assert process._heartbeats.skew_us == -30 * SECOND


@pytest.mark.parametrize("us", [-(10**18), 10**18])
def test_nonsense_never_ends_a_replicat(bench, us):
    """A time that no calendar has, and settings without their row: the heartbeat is kept as well as can be."""
    sql(bench, "DELETE FROM gg_heartbeat_settings")
    bench.beat(piped(beat(us)))
    row(bench, 1)
    bench.run()
    assert sql(bench, "SELECT count(*) FROM kv") == [(1,)]
    assert [at[:4] for at in received(bench)] == ["1970" if us < 0 else "9999"]
    assert bench.warned == []


def test_old_history_is_purged_by_the_settings(bench):
    """At the first heartbeat of a run, then each PURGE_FREQUENCY days; 0 is never."""
    request = {"url": bench.url, "heartbeat": bench.names.text}
    bench.beat(now_beat(bench))
    bench.run()
    alter({**request, "retention": 5, "purge": 0})
    bench.clock.sleep(6 * 86_400)
    bench.beat(now_beat(bench))
    bench.run()
    assert len(received(bench)) == 2
    alter({**request, "purge": 1})
    bench.clock.sleep(60)
    bench.beat(now_beat(bench))
    bench.run()
    assert len(received(bench)) == 2


def test_the_tables_are_made_shown_and_dropped(tmp_path):
    """Again makes what is missing only; settings that are not given stay."""
    request = {"url": f"sqlite:///{tmp_path}/copy.db", "heartbeat": "gg\ngg_heartbeat"}
    assert info(request)["settings"] is None
    with pytest.raises(OperatorError, match="ADD HEARTBEATTABLE"):
        alter({**request, "frequency": 5})
    with pytest.raises(OperatorError, match="ADD HEARTBEATTABLE"):
        history(request)
    made = add({**request, "target": False, "frequency": 10})
    assert made == {
        "made": ["table main.gg_heartbeat_settings"], "settings": {"frequency": 10, "retention": 30, "purge": 1},
    }  # fmt: skip
    more = add({**request, "target": True, "retention": 7})["made"]
    assert more == [
        "table main.gg_heartbeat", "table main.gg_heartbeat_history", "view main.gg_lag", "view main.gg_lag_history",
    ]  # fmt: skip
    assert add({**request, "target": True}) == {
        "made": [], "settings": {"frequency": 10, "retention": 7, "purge": 1},
    }  # fmt: skip
    assert (info(request)["exists"], info(request)["lags"]) == (True, [])
    assert len(delete(request)["deleted"]) == 3
    assert delete(request)["deleted"] == []


def test_a_view_that_is_there_stays(bench):
    """Somebody made it for himself."""
    sql(bench, "DROP VIEW gg_lag")
    sql(bench, "CREATE VIEW gg_lag AS SELECT 1 AS mine")
    add({"url": bench.url, "heartbeat": bench.names.text, "target": True})
    assert sql(bench, "SELECT name FROM pragma_table_info('gg_lag')") == [("mine",)]


def test_history_by_day(bench):
    """Of clocks that were not compared there is no figure."""
    bench.beat(now_beat(bench, 3))
    bench.beat(now_beat(bench, 1))
    bench.run()
    (day,) = history({"url": bench.url, "heartbeat": bench.names.text})["days"]
    assert (day["path"], day["heartbeats"]) == ("EXT1 ==> PMP1 ==> REP1", 2)
    assert (day["min_s"], day["avg_s"], day["max_s"]) == pytest.approx((1.0, 2.0, 3.0))


def test_skiptransaction_skips_a_transaction_and_no_heartbeat(bench):
    """Heartbeats in front of it are passed over with it."""
    for _ in range(2):
        bench.beat(now_beat(bench))
    row(bench, 1)
    row(bench, 2)
    notes: list[str] = []
    found = startup._behind_next(CheckpointRow(Position(0, 0)), RealFs(), bench.trail, notes.append)
    assert "CSN 0000000000000003, 1 changes" in notes[0]
    sql(bench, "DELETE FROM chk")
    reader = BlockReader(RealFs(), bench.trail, found.position)
    assert reader.read().header.csn == "0000000000000004"


def test_spark_read_gives_no_heartbeats(bench):
    """`spark.read.format("trail")`: changes only."""
    bench.beat(now_beat(bench))
    row(bench, 1)
    (partition,) = _partitions(bench.trail, None, None, pass_holes=False)
    assert len(partition.task.blocks) == 1
    assert [found[1] for found in _rows(partition)] == ["INSERT"]
