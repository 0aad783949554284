"""TRIGGERLOG as an operator meets it: commands, checks, heartbeats, what is kept, and a whole pipeline."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from demo.guard import end_now
from demo.patience import wait_for
from extract.extract import Extract, Settings
from extract.heartbeat import Heartbeats, Owner
from extract.sources.postgres.triggers.heartbeat import TriggerSeed
from ggsci.commands.session import OperatorSession
from tests.support.homes import bad, good, make_home, write
from tests.support.killing import start
from tests.support.mirror import Mirror
from tests.support.trail_script import TRAIL
from tests.support.trigger_source import HOME_ID, TriggeredDb, run_until_captured
from trails.clock import RealClock
from trails.errors import OperatorError
from trails.runtime.home.home import Home
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.testing import FaultFs

pytestmark = pytest.mark.e2e

TABLE, OWNER = HeartbeatTable(), Owner(HOME_ID, "EXT1")
ROOT = Path(__file__).parents[2]
ITEM = "CREATE TABLE item (id int PRIMARY KEY, v text, at timestamptz)"


def seed(db: TriggeredDb) -> TriggerSeed:
    """The end that writes the heartbeat's row."""
    return TriggerSeed(db.settings(), OWNER)


def test_a_heartbeat_is_a_transaction_of_its_own_behind_what_was_committed_with_it(plain_db: str) -> None:
    """Also if a look finds it together with other changes; and no row of it is captured as one."""
    db, fs, clock = TriggeredDb.make(plain_db, ITEM), FaultFs(), RealClock()
    made = seed(db)
    assert "triggers on table gg.gg_heartbeat_seed" in db.ask("add_heartbeat", heartbeat=TABLE.text, made=[])["made"]
    heartbeats = Heartbeats(TABLE, OWNER, clock)
    settings = Settings("EXT1", HOME_ID, "host", TRAIL, "./dirdat/lt")
    extract = Extract.start(fs, settings, db.source(), clock, heartbeats)
    run_until_captured(extract, db)
    for n in range(3):
        db.run(f"INSERT INTO item VALUES ({n})")
        made.beat(30)
        run_until_captured(extract, db)
    made.beat(30)
    run_until_captured(extract, db)
    made.close()
    extract.close()
    mirror = Mirror.of(fs, TRAIL)
    assert (mirror.heartbeats, [n for n in mirror.changes if n]) == (4, [1, 1, 1])
    assert set(mirror.tables) == {"item"}
    assert len(heartbeats.arrivals.entries()) == 1


def test_a_seed_table_without_triggers_is_told(plain_db: str) -> None:
    """Its heartbeats would never come; DELETE HEARTBEATTABLE takes it away."""
    db = TriggeredDb.make(plain_db, ITEM)
    made = seed(db)
    db.ask("add_heartbeat", heartbeat=TABLE.text, made=[])
    db.ask("delete_trandata", pattern="gg.gg_heartbeat_seed")
    with pytest.raises(OperatorError, match="has no triggers, so no heartbeat would come"):
        made.beat(30)
    made.close()
    assert db.ask("delete_heartbeat", heartbeat=TABLE.text)["deleted"] == ["table gg.gg_heartbeat_seed"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A new home."""
    return make_home(tmp_path / "gate")


def ready(home: Home, url: str, *more: str) -> OperatorSession:
    """A registered Extract that was never started, and a session that is logged in."""
    write(
        home, "ext1", "\n".join(["EXTRACT ext1", f"SOURCEDB {url}", "EXTTRAIL ./dirdat/lt", *more, "TABLE public.*;\n"])
    )
    session = OperatorSession(home.root)
    for line in (
        f"DBLOGIN SOURCEDB {url}", "ADD TRANDATA public.*, TRIGGERLOG", "ADD EXTRACT ext1, TRIGGERLOG",
        "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1", "REGISTER EXTRACT ext1",
    ):  # fmt: skip
        good(home, line, session)
    return session


def test_commands_of_a_group_that_captures_by_triggers(home: Home, plain_db: str) -> None:
    """From its tables to its end: what is there is shown, what is missing is named with what mends it."""
    db = TriggeredDb(plain_db)
    db.run(ITEM)
    session = ready(home, plain_db, "QUEUEWARN 2")
    assert "Triggers are there" in good(home, "INFO TRANDATA public.item, TRIGGERLOG", session)
    assert "no mistakes found" in good(home, "CHECK PARAMS ext1", session)
    db.run("CREATE TABLE fresh (id int PRIMARY KEY)", "INSERT INTO item VALUES (1), (2), (3)")
    assert "ADD TRANDATA public.fresh, TRIGGERLOG" in bad(home, "CHECK PARAMS ext1", session)
    good(home, "ADD TRANDATA public.fresh, TRIGGERLOG", session)
    shown = good(home, "INFO EXTRACT ext1, DETAIL", session)
    assert "queue tg_" in shown
    assert "3 changes" in shown
    process = start(home)
    try:
        wait_for(lambda: "RUNNING" in good(home, "INFO EXTRACT ext1", session), told="RUNNING")
        assert "has captured everything that was committed up to" in good(
            home, "WAIT EXTRACT ext1, SECONDS 200", session
        )
        with psycopg.connect(plain_db) as conn:
            conn.execute("INSERT INTO item VALUES (4)")
            assert "postgres" in good(home, "SEND EXTRACT ext1, SHOWTRANS", session)
        wait_for(lambda: "YES" in good(home, "SEND EXTRACT ext1, LOGEND", session), told="the log's end")
        shown = good(home, "INFO EXTRACT ext1, SHOWCH", session)
        assert "PostgreSQL Queue" in shown
        assert "Last record lag" in good(home, "LAG EXTRACT ext1", session)
    finally:
        end_now(process.pid)
        process.wait()
    good(home, "ADD EXTRACT ext2, TRIGGERLOG", session)
    assert "is read by tg_" in bad(home, "REGISTER EXTRACT ext2", session)
    assert "Triggers dropped" in good(home, "DELETE TRANDATA public.fresh, TRIGGERLOG", session)
    good(home, "UNREGISTER EXTRACT ext1", session)
    assert db.rows("SELECT count(*) FROM pg_trigger WHERE tgname LIKE '00_trailgate%'") == [(0,)]
    assert db.rows("SELECT to_regnamespace('trailgate_queue') IS NULL") == [(True,)]


def test_a_pipeline_by_triggers_to_another_PostgreSQL(home: Home, plain_db: str, target_db: str) -> None:
    """Real processes; the target ends as the source, DDL included."""
    db, target = TriggeredDb(plain_db), TriggeredDb(target_db)
    db.run(ITEM, "CREATE TABLE loose (a int, b text)")
    target.run(ITEM, "CREATE TABLE loose (a int, b text)")
    db.ask("add_ddlcapture")
    Path(home.globals).write_text("CHECKPOINTTABLE gate.checkpoint\n")
    session = ready(home, plain_db, "DDL INCLUDE MAPPED")
    write(home, "rep1", f"REPLICAT rep1\nTARGETDB {target_db}\nDDL INCLUDE MAPPED\nMAP public.*, TARGET public.*;\n")
    for line in (
        f"DBLOGIN TARGETDB {target_db}", "ADD CHECKPOINTTABLE gate.checkpoint",
        "ADD REPLICAT rep1, EXTTRAIL ./dirdat/lt",
    ):  # fmt: skip
        good(home, line, session)
    processes = [start(home)]
    processes.append(
        subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.support.sparkless", "--home", home.root, "REP1"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    )  # fmt: skip
    try:
        db.run(
            "INSERT INTO item SELECT g, g::text, now() FROM generate_series(1, 200) g",
            "DELETE FROM item WHERE id % 3 = 0",
            "UPDATE item SET id = id + 1000 WHERE id < 50", "INSERT INTO loose VALUES (1, 'x'), (1, 'x')",
            "UPDATE loose SET b = 'y'", "ALTER TABLE item ADD more int DEFAULT 5", "INSERT INTO item VALUES (2000)",
            "TRUNCATE loose", "INSERT INTO loose VALUES (2, NULL)",
        )  # fmt: skip
        for table in ("item", "loose"):
            rows = sorted(db.rows(table), key=repr)
            wait_for(lambda table=table, rows=rows: equal(target, table, rows), f"{table} at the target")
    finally:
        for process in processes:
            end_now(process.pid)
            process.wait()


def equal(target: TriggeredDb, table: str, rows: list[tuple[object, ...]]) -> bool:
    """Whether the target's table holds these rows."""
    return sorted(target.rows(table), key=repr) == rows
