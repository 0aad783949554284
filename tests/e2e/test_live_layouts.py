"""GG-10 to GG-19 on live groups: the whole of what SHOWCH, INFO, STATS and SEND print, and that it is true.

An Extract on PostgreSQL, a pump, a Collector and a Replicat (without Spark) run; a schema change goes through, and a
transaction stays open. Times and numbers are replaced by words (tests/support/layouts.py), all else is held.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from demo.patience import PATIENCE, wait_for
from demo.pipeline import Host, Options, Pipeline
from demo.servers import PostgresServer
from ggsci.views import view
from replicat.batches.scratch import sweep
from tests.support.layouts import blocks, normal
from tests.support.pipelines import databases, folder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.xdist_group("pipeline-layouts")]

ROOT = Path(__file__).parents[2]
EXPECTED = Path(__file__).parents[1] / "support" / "layouts"
STATES = (
    "fresh extract", "fresh pump", "fresh replicat", "running extract", "running pump", "running replicat",
    "stats extract", "stats pump", "stats replicat", "status extract", "status pump", "status replicat", "children",
    "checkpoint table", "again extract", "again pump", "nothing extract", "nothing pump",
)  # fmt: skip


class Live:
    """The pipeline, and what was printed in each state."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.replicat: subprocess.Popen[bytes] | None = None
        self.printed: dict[str, str] = {}
        self.shown: dict[str, str] = {}
        self.open: dict[str, Any] = {}
        self.holder_us = self.commit_us = (0, 0)
        """The server's clock around the begin of the open transaction, and around the last commit."""

    def start_replicat(self) -> None:
        """The real Replicat without Spark."""
        target = self.pipeline.target
        self.replicat = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.support.sparkless", "--home", str(target.home), "REP1"],
            env={**target.environment, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_for(lambda: target.statuses()["REP1"]["status"] == "RUNNING", self.pipeline.state)

    def print(self, key: str, host: Host, line: str) -> str:
        """Keep what a command printed, figures as words; returns it as it was."""
        result = host.look(line)
        assert result.code == 0, result.text
        names = {
            str(self.pipeline.source.home): "SOURCE_HOME", str(self.pipeline.target.home): "TARGET_HOME",
            self.pipeline.source_url.rpartition("/")[2]: "SOURCE_DB",
        }  # fmt: skip
        self.printed[key] = normal(result.text, names)
        return result.text

    def drain(self) -> None:
        """All that was committed so far is applied, and saved."""
        pipeline = self.pipeline
        for host, group in ((pipeline.source, "EXT1"), (pipeline.source, "PMP1"), (pipeline.target, "REP1")):
            wait_for(lambda host=host, group=group: host.at_end(group), pipeline.state)

    def saved_behind(self, host: Host, group: str, begin: int) -> None:
        """Until a checkpoint was saved behind that moment."""
        wait_for(lambda: host.info(group)["checkpoints"][0]["saved_us"] > begin, self.pipeline.state)


@pytest.fixture(scope="module")
def live(postgres16: PostgresServer, postgres18: PostgresServer) -> Iterator[Live]:
    """What was printed before the first START, while all ran, and after a second START."""
    with databases(postgres16, postgres18) as (source_url, target_url), folder() as homes:
        options = Options(
            tables=("live.*", "shop.*"), checkpoint_seconds=1, restart_seconds=None,
            extract=["DDL INCLUDE MAPPED, EXCLUDE OPTYPE DROP"], replicat=["DDL INCLUDE MAPPED"],
        )  # fmt: skip
        pipeline = Pipeline(homes, source_url, target_url, options)
        live = Live(pipeline)
        for url in (source_url, target_url):
            with psycopg.connect(url, autocommit=True) as link:
                link.execute("CREATE SCHEMA live; CREATE TABLE live.t (id int PRIMARY KEY, note text)")
        try:
            pipeline.create()
            pipeline.source.run(f"DBLOGIN SOURCEDB {source_url}", "ADD DDLCAPTURE")
            fresh(live)
            running(live)
            again(live)
            yield live
        finally:
            pipeline.abandon()
            if live.replicat is not None:
                live.replicat.kill()
                live.replicat.wait()
            sweep()


def fresh(live: Live) -> None:
    """Added, and never started; then altered."""
    source, target = live.pipeline.source, live.pipeline.target
    live.print("fresh extract", source, "INFO EXT1, SHOWCH, DETAIL")
    live.print("fresh pump", source, "INFO PMP1, SHOWCH")
    live.print("fresh replicat", target, "INFO REP1, SHOWCH")


def running(live: Live) -> None:
    """All run, at the trail's end, with a transaction open."""
    pipeline = live.pipeline
    source, target = pipeline.source, pipeline.target
    for host, groups in ((source, "EXTRACT *"), (target, "")):
        host.run("START MANAGER", *([f"START {groups}"] if groups else []))
    live.start_replicat()
    with psycopg.connect(pipeline.source_url, autocommit=True) as link:
        link.execute("INSERT INTO live.t VALUES (1, 'one'), (2, 'two')")
        link.execute("UPDATE live.t SET note = 'zwei' WHERE id = 2")
        link.execute("ALTER TABLE live.t ADD COLUMN n int")
        link.execute("CREATE TABLE live.u (id int PRIMARY KEY); DROP TABLE live.u")
        with psycopg.connect(pipeline.source_url) as holder:
            live.holder_us = (moment(link), 0)
            holder.execute("INSERT INTO live.t VALUES (3, 'open')")
            live.holder_us = (live.holder_us[0], moment(link))
            link.execute("INSERT INTO live.t VALUES (4, 'four', 4)")
            live.commit_us = (live.holder_us[1], moment(link))
            live.drain()
            open_shown(live)
            holder.rollback()
        live.drain()
    begin = time.time_ns() // 1000
    for host, group in ((source, "EXT1"), (source, "PMP1"), (target, "REP1")):
        live.saved_behind(host, group, begin)
        name = {"EXT1": "extract", "PMP1": "pump", "REP1": "replicat"}[group]
        live.shown[name] = live.print(f"running {name}", host, f"INFO {group}, SHOWCH, DETAIL")
        live.print(f"stats {name}", host, f"STATS {group}")
        status = (
            f"SEND {group}, STATUS"  # an idle Extract appends a place each second, which is on its way for a moment
        )
        wait_for(lambda h=host, s=status, n=name: "At EOF" in live.print(f"status {n}", h, s), pipeline.state)
    live.print("children", source, "SEND MANAGER CHILDSTATUS")
    said = target.run(f"DBLOGIN TARGETDB {pipeline.target_url}", "INFO CHECKPOINTTABLE").text
    live.printed["checkpoint table"] = normal(said, {})


def moment(link: psycopg.Connection[Any]) -> int:
    """The server's clock."""
    ((now,),) = link.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").fetchall()
    return int(now)


def open_shown(live: Live) -> None:
    """The Extract's checkpoint knows of the open transaction once its guard has looked."""
    source = live.pipeline.source
    begin = time.time_ns() // 1000

    def is_shown() -> bool:
        save = source.info("EXT1")["checkpoints"][0]
        live.open = save["reads"][0]
        return save["saved_us"] > begin and live.open["recovery"]["time_us"] < live.holder_us[1]

    wait_for(is_shown, live.pipeline.state)


def again(live: Live) -> None:
    """Stopped and started again in another second, with nothing new to read."""
    source = live.pipeline.source
    source.run("STOP EXTRACT *")
    stopped = int(time.time())
    wait_for(lambda: int(time.time()) > stopped)
    source.run("START EXTRACT *")
    for group, name in (("EXT1", "extract"), ("PMP1", "pump")):
        wait_for(lambda group=group: source.at_end(group), live.pipeline.state)
        live.saved_behind(source, group, time.time_ns() // 1000)
        live.shown[f"again {name}"] = live.print(f"again {name}", source, f"INFO {group}, SHOWCH, DETAIL")
        live.print(f"nothing {name}", source, f"STATS {group}")


@pytest.mark.parametrize("state", STATES)
def test_the_whole_output_is_held(live: Live, state: str) -> None:
    """GG-10 to GG-19: label for label; a change of a layout is a change of its file in tests/support/layouts/."""
    assert live.printed[state] == (EXPECTED / f"{state.replace(' ', '_')}.txt").read_text().rstrip("\n")


def test_places_and_times_are_true(live: Live) -> None:
    """Startup and Recovery are never past Current; Replicat's last place is the transaction that was committed last.

    Recovery may be before Startup: while a transaction is open it is the slot's restart_lsn, and that of a new slot is
    the record before its first place.
    """
    extract, pump, replicat = (blocks(live.shown[name]) for name in ("extract", "pump", "replicat"))
    for place in ("Read Startup", "Read Recovery"):
        assert "00000000/00000000" < extract[place]["LSN"] <= extract["Read Current"]["LSN"]
    assert extract["Read Startup"]["Timestamp"] <= extract["Read Current"]["Timestamp"]
    low, high = (view.stamp(us, micros=True) for us in live.commit_us)
    assert low <= replicat["Read Current"]["Timestamp"] <= high
    assert low <= pump["Read Current"]["Timestamp"]
    for writer, reader in ((extract, pump), (pump, replicat)):  # an idle Extract appends its place each second
        assert writer["Write Current"]["Sequence #"] == reader["Read Current"]["Sequence #"]
        assert int(reader["Read Startup"]["RBA"]) < int(reader["Read Current"]["RBA"])
    for found in (extract, pump, replicat):
        assert found["Status"]["Start Time"] <= found["Status"]["Last Update Time"]
    created = replicat["Database Checkpoint"]["Create Time"]
    assert replicat["Status"]["Start Time"] <= created <= replicat["Status"]["Last Update Time"]


def test_recovery_is_the_oldest_open_transaction(live: Live) -> None:
    """Its begin by the server's clock, at a place before all that was committed since."""
    begun, after = live.holder_us
    assert begun <= live.open["recovery"]["time_us"] <= after
    assert live.open["recovery"]["csn"] < live.open["current"]["csn"]


def test_a_run_begins_where_the_last_one_ended(live: Live) -> None:
    """Startup has the time of its record, not that of START; a pump that reads nothing new is at no First Record."""
    for name in ("extract", "pump"):
        before, now = blocks(live.shown[name]), blocks(live.shown[f"again {name}"])
        assert now["Read Startup"]["Timestamp"] != "Not Available"
        assert before["Read Current"]["Timestamp"] <= now["Read Startup"]["Timestamp"]
        assert now["Read Startup"]["Timestamp"] <= now["Read Current"]["Timestamp"]
        assert now["Read Startup"]["Timestamp"][:19] < now["Status"]["Start Time"]


def test_GG_04_extract_and_replicat_stop_and_die_without_each_other(live: Live) -> None:
    """Stopped or killed, neither takes the other along; Replicat drains later what came meanwhile, without Extract."""
    pipeline = live.pipeline
    source, target = pipeline.source, pipeline.target
    query = "SELECT id, note FROM live.t ORDER BY id"
    with (
        psycopg.connect(pipeline.source_url, autocommit=True) as link,
        psycopg.connect(pipeline.target_url, autocommit=True) as copy,
    ):

        def arrived() -> bool:
            return copy.execute(query).fetchall() == link.execute(query).fetchall()

        def replicat_down(number: int) -> None:
            """A change comes meanwhile, and reaches the remote trail."""
            assert live.replicat is not None
            extract = source.statuses()["EXT1"]["pid"]
            live.replicat.send_signal(number)
            live.replicat.wait(PATIENCE)
            link.execute("INSERT INTO live.t SELECT max(id) + 1, 'meanwhile' FROM live.t")
            for group in ("EXT1", "PMP1"):
                wait_for(lambda group=group: source.at_end(group), pipeline.state)
            assert not arrived()
            assert (source.statuses()["EXT1"]["status"], source.statuses()["EXT1"]["pid"]) == ("RUNNING", extract)

        def extract_down(*lines: str) -> None:
            assert live.replicat is not None
            source.run(*lines)
            assert source.statuses()["EXT1"]["status"] in ("STOPPED", "ABENDED")
            found = target.statuses()["REP1"]
            assert (found["status"], found["pid"]) == ("RUNNING", live.replicat.pid)

        source.run("START EXTRACT *")
        replicat_down(signal.SIGTERM)
        live.start_replicat()
        wait_for(arrived, pipeline.state)
        extract_down("KILL EXTRACT EXT1")
        source.run("START EXTRACT EXT1")
        replicat_down(signal.SIGKILL)
        source.run("STOP EXTRACT *")
        live.start_replicat()
        wait_for(arrived, pipeline.state)
        extract_down("INFO EXT1")
