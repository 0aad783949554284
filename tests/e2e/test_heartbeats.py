"""Heartbeats on real databases: written and captured in a source, kept in each kind of target.

Those of a whole pipeline, while it is killed at random, are in test_pipeline_kill.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from replicat.run.heartbeattables import add, alter, delete, history, info
from tests.support.beating import SECOND, BeatBench, beat, piped
from tests.support.capturing import Capture, ask, step_until
from tests.support.replicat_trail import table
from trails.clock import RealClock
from trails.fs import RealFs
from trails.plan import Planner
from trails.reader import BlockReader
from trails.record import Op
from trails.runtime.language.heartbeattable import HeartbeatTable

pytestmark = pytest.mark.e2e

TABLE = HeartbeatTable()
KV = table("src", "kv", "id v", "id")


# --- the source -------------------------------------------------------------------------------------------------------


@pytest.fixture
def capture(source_db: str, tmp_path: Path) -> Capture:
    """A registered group that captures public.*, on a database with the seed table and a heartbeat each second."""
    made = Capture(source_db, tmp_path, heartbeat=TABLE)
    made.sql("CREATE TABLE public.t (id int PRIMARY KEY)")
    made.register()
    add({"url": source_db, "heartbeat": TABLE.text, "target": False, "frequency": 1})
    ask("add_heartbeat", url=source_db, heartbeat=TABLE.text, made=[made.made])
    return made


def blocks_of(capture: Capture) -> list[Any]:
    planner = Planner(BlockReader(RealFs(), capture.settings.trail))
    units = []
    while (unit := planner.next()) is not None:
        units += [unit] if unit.blocks else []
    return units


def test_an_extract_writes_and_captures_its_own(capture: Capture):
    """Although TABLE does not name it; another Extract's row and one in a user's transaction are none."""
    with capture.running() as extract:
        beats = extract._heartbeats.arrivals
        step_until(extract, beats.entries)
        before = len([unit for unit in blocks_of(capture) if unit.is_heartbeat])
        capture.sql(
            "INSERT INTO gg.gg_heartbeat_seed VALUES ('other/EXT2', 'x', now(), 1)",
            "WITH s AS (UPDATE gg.gg_heartbeat_seed SET frequency = 1) INSERT INTO public.t VALUES (1)",
        )
        capture.drain(extract)
        step_until(extract, lambda: len([unit for unit in blocks_of(capture) if unit.is_heartbeat]) > before)
        (entry,) = extract.command("GETLAG", {})["heartbeats"]
    assert (entry["path"], entry["every_s"], entry["lag_us"] is not None) == ("EXT1", 1, True)
    assert entry["from"] in capture.url
    assert [[(c.op, c.table.name) for c in tx] for tx in capture.changes() if tx] == [[(Op.INSERT, "t")]]
    # A stall while they were compared is half a difference.
    assert abs(extract._heartbeats.heart.ahead_us) < 60 * SECOND
    assert capture.said == []
    (seed, _) = ask("info_heartbeat", url=capture.url, heartbeat=TABLE.text, made=[])["seeds"]
    assert seed["extract"] == "EXT1"


def confirmed(capture: Capture) -> int:
    """What the server may forget, in bytes of its log."""
    name = capture.made["slot"]
    sql = f"SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = '{name}'"
    return int(capture.sql(sql)[0][0])


def test_a_source_at_rest_lets_its_log_go(capture: Capture):
    """Pitfall 11: nothing but heartbeats, and the slot follows them."""
    with capture.running() as extract:
        step_until(extract, extract._heartbeats.arrivals.entries)
        before = confirmed(capture)
        capture.sql(
            f"UPDATE gg.gg_heartbeat_seed SET heartbeat_timestamp = now() WHERE extract_key = '{'0' * 32}/EXT1'"
        )
        step_until(extract, lambda: confirmed(capture) > before)


def test_a_publication_of_named_tables_gets_the_seed_table(capture: Capture):
    """Without it no heartbeat comes: said with the statement that mends it; ADD HEARTBEATTABLE again does that."""
    name = capture.made["publication"]
    capture.sql(f"DROP PUBLICATION {name}", f"CREATE PUBLICATION {name} FOR TABLE public.t")
    request = {"url": capture.url, "heartbeat": TABLE.text, "made": [capture.made, {"publication": "none_such"}]}
    assert ask("info_heartbeat", **request)["unpublished"] == [name]
    with capture.running() as extract:
        step_until(extract, lambda: capture.said)
        assert f'ALTER PUBLICATION "{name}" ADD TABLE "gg"."gg_heartbeat_seed"' in capture.said[0]
    assert ask("add_heartbeat", **request)["made"] == [f"table gg.gg_heartbeat_seed in publication {name}"]
    assert ask("add_heartbeat", **request)["made"] == []
    with capture.running() as extract:
        beats = extract._heartbeats.arrivals
        step_until(extract, beats.entries)
        extract._heartbeats.heart.close()  # so that none comes in between
        assert ask("delete_heartbeat", **request)["deleted"] == ["table gg.gg_heartbeat_seed"]
        step_until(extract, lambda: beats.entries()[0]["every_s"] == 0)  # the last one says that no more come
    assert ask("delete_heartbeat", **request)["deleted"] == []


def test_the_tables_of_heartbeats_are_nobodys_data(source_db: str, tmp_path: Path):
    """TABLE *.* captures none of them, nor does DDL; neither START nor GETUPDATEBEFORES wants their old rows."""
    made = Capture(source_db, tmp_path, tables="GETUPDATEBEFORES\nTABLE *.*;\n", ddl="INCLUDE ALL", heartbeat=TABLE)
    ask("add_ddlcapture", url=source_db)
    made.register(trandata=False)
    with made.running() as extract:
        add({"url": source_db, "heartbeat": TABLE.text, "target": True, "frequency": 1})
        ask("add_heartbeat", url=source_db, heartbeat=TABLE.text, made=[])
        made.sql("UPDATE gg.gg_heartbeat_settings SET retention_days = 3", "CREATE TABLE public.t (id int PRIMARY KEY)")
        made.sql(
            f"INSERT INTO gg.gg_heartbeat_seed VALUES ('{'0' * 32}/EXT1', 'x', now(), 5)",
            "UPDATE gg.gg_heartbeat_seed SET frequency = 6",
        )
        made.drain(extract)
        step_until(extract, lambda: [e["every_s"] for e in extract._heartbeats.arrivals.entries()] == [6])
    assert [[c.table.full_name for c in tx] for tx in made.changes() if tx] == [["public.t"]]


# --- the target -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["postgresql", "mysql"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BeatBench]:
    """A Replicat on a target of this kind that has the tables."""
    if request.param == "mysql":
        server, name = request.getfixturevalue("mariadb"), request.getfixturevalue("maria_db")
        made = BeatBench(tmp_path, server.url(name), name)
        made.sql = lambda statement: server.sql(statement, name)  # type: ignore[attr-defined]
    else:
        url = request.getfixturevalue("target_db")
        made = BeatBench(tmp_path, url, "gg")
        made.sql = lambda statement: _postgres(url, statement)  # type: ignore[attr-defined]
    made.sql(f"CREATE TABLE {made.schema}.kv (id varchar(20) PRIMARY KEY, v varchar(20))")  # type: ignore[attr-defined]
    yield made
    made.feed.close()


def _postgres(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_a_target_keeps_them_beside_the_rows(bench: Any):
    """Views tell lag and age by the database's own clock; history by day; ALTER, INFO and DELETE."""
    now = RealClock().now_us()
    for ago in (5, 3):
        bench.beat(piped(beat(now - ago * SECOND), after=2 * SECOND))
        bench.feed.tx((Op.INSERT, KV, [str(ago), "v"]))
    process = bench.run()
    assert abs(process._heartbeats.ahead_us) < 60 * SECOND  # see above
    assert bench.warned == []
    schema = bench.schema
    (lag,) = bench.sql(
        "SELECT incoming_path, incoming_lag >= 3 AND incoming_lag < 60, incoming_heartbeat_age >= 0 AND "
        f"incoming_heartbeat_age < 60 FROM {schema}.gg_lag"
    )
    assert (lag[0], [int(value) for value in lag[1:]]) == ("EXT1 ==> PMP1 ==> REP1", [1, 1])
    assert [int(n) for (n,) in bench.sql(f"SELECT count(*) FROM {schema}.gg_lag_history")] == [2]
    assert [int(n) for (n,) in bench.sql(f"SELECT count(*) FROM {schema}.kv")] == [2]
    (spread,) = bench.sql(
        "SELECT incoming_heartbeat_ts < incoming_extract_ts AND incoming_extract_ts < incoming_routing_ts AND "
        f"incoming_routing_ts < incoming_replicat_ts FROM {schema}.gg_heartbeat"
    )
    assert int(spread[0]) == 1
    request = {"url": bench.url, "heartbeat": bench.names.text}
    (day,) = history(request)["days"]
    assert (day["heartbeats"], day["min_s"] >= 3) == (2, True)
    (told,) = info(request)["lags"]
    assert (told["from"], told["database"]) == ("shop", "copy")
    # A figure that is old is none in the view.
    bench.sql(f"UPDATE {schema}.gg_heartbeat SET frequency = -10")
    assert bench.sql(f"SELECT incoming_lag FROM {schema}.gg_lag")[0][0] is None
    assert alter({**request, "retention": 1})["settings"]["retention"] == 1
    # Again it replaces the views, and takes nobody's right to read them.
    if schema == "gg":
        bench.sql("GRANT SELECT ON gg.gg_lag TO pg_monitor")
    assert add({**request, "target": True})["made"] == []
    if schema == "gg":
        assert bench.sql("SELECT has_table_privilege('pg_monitor', 'gg.gg_lag', 'SELECT')") == [(True,)]
    assert len(info(request)["lags"]) == 1
    assert len(delete(request)["deleted"]) == 3
    assert info(request)["exists"] is False
    # Without them the Replicat goes on.
    bench.beat(piped(beat(now)))
    bench.feed.tx((Op.INSERT, KV, ["9", "v"]))
    bench.run()
    assert [int(n) for (n,) in bench.sql(f"SELECT count(*) FROM {schema}.kv")] == [3]


def test_a_table_that_goes_while_replicat_runs_ends_nothing(bench: Any):
    """The rows beside the heartbeat are committed; it is told once."""
    process = bench.replicat()
    bench.sql(f"DROP TABLE {bench.schema}.gg_heartbeat_history{' CASCADE' * (bench.schema == 'gg')}")
    bench.beat(piped(beat(RealClock().now_us())))
    bench.feed.tx((Op.INSERT, KV, ["1", "v"]))
    while process.step():
        pass
    process.close()
    assert [int(n) for (n,) in bench.sql(f"SELECT count(*) FROM {bench.schema}.kv")] == [1]
    (line,) = bench.warned
    assert "gg_heartbeat_history" in line


def test_a_look_that_fails_inside_a_batch_ends_nothing(bench: Any):
    """PostgreSQL takes no statement more in a transaction that had an error: the look is undone like all else."""
    process = bench.replicat()
    beats, target = process._heartbeats, process._target
    beats._there, beats._look_at, look = False, 0.0, target.tables
    target.tables = lambda places: look(places) if "kv" in str(places) else target.read("SELECT no_such_function()")
    bench.beat(piped(beat(RealClock().now_us())))
    bench.feed.tx((Op.INSERT, KV, ["1", "v"]))
    while process.step():
        pass
    process.close()
    assert [int(n) for (n,) in bench.sql(f"SELECT count(*) FROM {bench.schema}.kv")] == [1]
    (line,) = bench.warned
    assert "no_such_function" in line
