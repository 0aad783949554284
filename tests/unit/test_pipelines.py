"""Pipelines: who feeds whom, what is not known, and which stage holds the others back. Homes and sockets are real."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggsci.commands import slow
from ggsci.flow import health, holding, pipelines, stages
from ggsci.flow.pipelines import Pipeline, Stage
from pump import pin
from pump.job import PumpJob
from pump.params import PumpParams
from tests.support.homes import answering, as_json, good, make_home, write
from trails import checkpoint as checkpoints
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.position import TrailName
from trails.record import Column, TableDef
from trails.runtime.home import registration, status
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registered, Registration, TrailReg
from trails.runtime.language.remotehost import RemoteHost
from trails.runtime.process.control import ControlServer
from trails.writer import TrailWriter, WriterIdentity

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
TABLE = TableDef("s", "t", (Column("id", "int8", "bigint", key=True),))


def stage(program: str, name: str, **facts: Any) -> Stage:
    """A healthy running stage at the end of its input, but for `facts`."""
    extra = {"home_id": "h", **facts.pop("extra", {})}
    given = {"status": "RUNNING", "lag_us": 0, "lag_age_us": 0, "backlog_bytes": 0, "busy": 0.1} | facts
    return Stage("/home", program, name, extra=extra, **given)


def path(*changed: Stage) -> list[Stage]:
    """EXT1, PMP1, REP1; those of `changed` in place of the healthy ones."""
    usual = [stage("EXTRACT", "EXT1"), stage("PUMP", "PMP1"), stage("REPLICAT", "REP1")]
    names = {one.name: one for one in changed}
    return [names.get(one.name, one) for one in usual]


def verdict(*changed: Stage) -> dict[str, str]:
    """Who holds back, and why."""
    return {one.name: one.why for one in holding.judge(path(*changed)) if one.holds_back}


# --- the verdict ------------------------------------------------------------------------------------------------------


def test_nobody_holds_back_where_nothing_waits():
    """Every stage is at the end of its input."""
    assert verdict() == {}
    assert [one.why for one in holding.judge(path())] == [
        "at the end of its log", "at the end of its trail", "at the end of its trail",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "lag"),
    [
        ([], (0, 0)),
        ([stage("PUMP", "PMP1", lag_us=9 * SECOND, lag_age_us=2 * SECOND)], (9 * SECOND, 2 * SECOND)),
        ([stage("PUMP", "PMP1", status="STOPPED", lag_us=None, lag_age_us=7 * SECOND)], (None, 7 * SECOND)),
        ([stage("EXTRACT", "EXT1", lag_us=None, lag_age_us=None)], (None, None)),
    ],
)
def test_GG_19_a_pipelines_lag_is_not_that_of_its_last_stage(changed: list[Stage], lag: tuple[int | None, int | None]):
    """A Replicat that has applied all that came knows nothing of what a stopped pump keeps from it."""
    fed = {"PMP1": {"fed_by": "h/EXT1"}, "REP1": {"fed_by": "h/PMP1"}}
    stages = [replace(one, extra={**one.extra, **fed.get(one.name, {})}) for one in path(*changed)]
    (found,) = pipelines.join([pipelines.Pipeline("x", "", "", tuple(stages))])
    assert [one.name for one in found.stages] == ["EXT1", "PMP1", "REP1"]
    assert (found.lag_us, found.lag_age_us) == lag


def test_a_little_on_its_way_is_no_verdict():
    """Less than a megabyte, and less than five seconds of source time."""
    assert verdict(stage("REPLICAT", "REP1", backlog_bytes=900_000, extra={"newest_us": NOW})) == {}


def test_the_stage_with_the_most_source_time_waiting_holds_back():
    """Both lag by bytes; the Replicat's input is the longer one in time."""
    behind = {"lag_us": 70 * SECOND}
    pump = stage("PUMP", "PMP1", backlog_bytes=8 << 20, extra={"newest_us": NOW - 10 * SECOND}, **behind)
    replicat = stage(
        "REPLICAT", "REP1", backlog_bytes=4 << 20, busy=0.98, extra={"newest_us": NOW - 60 * SECOND}, **behind
    )
    found = verdict(replace(pump), replicat, stage("EXTRACT", "EXT1", extra={"newest_us": NOW}))
    assert found == {"REP1": "its input waits (4.0 MB of 50 s), its output is idle, busy 0.98"}


_AWAY = "Waiting for the remote host"
_WINDOW = (
    "its input waits (2.0 MB), its output is full (32.0 MB of a window of 32.0 MB not acknowledged): "
    "link or Collector is slow"
)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (
            stage("REPLICAT", "REP1", backlog_bytes=2 << 20, busy=0.97, extra={"output_share": 0.9}),
            "its input waits (2.0 MB), its output is the limit: the target takes 0.90 of the time, busy 0.97",
        ),
        (
            stage(
                "PUMP", "PMP1", backlog_bytes=2 << 20, busy=0.1,
                extra={"blocked": 0.8, "inflight_bytes": 32 << 20, "window_bytes": 32 << 20},
            ),
            _WINDOW,
        ),
        (
            stage("EXTRACT", "EXT1", backlog_bytes=3 << 30, backlog_us=90 * SECOND, busy=0.03),
            "its input waits (3.0 GB of 90 s), and it waits for the server, which decodes or sends slowly, busy 0.03",
        ),
        (
            stage("REPLICAT", "REP1", backlog_bytes=2 << 20, busy=0.2),
            "its input waits (2.0 MB), though it is busy 0.20 only: its disk, or the machine, is short of something",
        ),
        (
            stage("PUMP", "PMP1", backlog_bytes=100, extra={"state": _AWAY, "trouble": "refused"}),
            "Waiting for the remote host (refused); waiting for it: 100 bytes",
        ),
        (
            stage("PUMP", "PMP1", backlog_bytes=100, lag_why="it does not tell", extra={"unanswered": True}),
            "it does not tell; waiting for it: 100 bytes",
        ),
        (
            stage("REPLICAT", "REP1", status="ABENDED", backlog_bytes=None, extra={"message": "no table t"}),
            "it is ABENDED (no table t); waiting for it: an unknown amount",
        ),
    ],
    ids=["target", "window", "server", "machine", "peer", "hung", "abended"],
)  # fmt: skip
def test_why(one: Stage, why: str):
    """Each cause in its own words."""
    assert verdict(one) == {one.name: why}


def test_what_is_stopped_holds_back_only_those_that_run():
    """A pipeline that was stopped as a whole is nobody's fault."""
    assert list(verdict(stage("EXTRACT", "EXT1", status="STOPPED"))) == ["EXT1"]
    stopped = [stage(one.program, one.name, status="STOPPED") for one in path()]
    assert verdict(*stopped) == {}
    assert list(verdict(*stopped[:2], stage("REPLICAT", "REP1", status="ABENDED"))) == ["EXT1", "PMP1", "REP1"]
    alone = holding.judge([stage("REPLICAT", "REP1", status="STOPPED", backlog_bytes=9)])
    assert alone[0].holds_back, "its home knows no other stage of the path, but its trail grows"


def test_backlog_in_seconds_is_from_what_is_done_to_what_stands_in_the_input():
    """By the stage before, or where that is not known by when the trail was last written."""
    extra = {"newest_us": NOW, "input_us": NOW + 9 * SECOND}
    replicat = stage("REPLICAT", "REP1", lag_us=None, backlog_bytes=5, extra=extra)
    alone = holding.judge([replicat])
    assert alone[0].backlog_us == 9 * SECOND
    pump = stage("PUMP", "PMP1", extra={"newest_us": NOW + 7 * SECOND})
    assert holding.judge([pump, *alone])[1].backlog_us == 7 * SECOND
    assert holding.judge([stage("REPLICAT", "REP1", backlog_bytes=5)])[0].backlog_us is None


def test_the_first_change_after_an_idle_night_is_not_late_by_that_night():
    """What waits came since the stage was last at the end of its input: no longer than it is behind."""
    night = 8 * 3600 * SECOND
    pump = stage("PUMP", "PMP1", extra={"newest_us": NOW})
    late = stage("REPLICAT", "REP1", backlog_bytes=500, lag_us=SECOND // 2, extra={"newest_us": NOW - night})
    assert verdict(pump, late) == {}
    assert holding.judge(path(pump, late))[2].backlog_us == SECOND // 2
    alone = replace(late, extra={**late.extra, "input_us": NOW})
    assert holding.judge([alone])[0].backlog_us == SECOND // 2


# --- who feeds whom ---------------------------------------------------------------------------------------------------


def chain(home: str, *names: str, fed_by: str = "") -> list[Stage]:
    """Stages of one home, each fed by the one before it; the first by `fed_by`."""
    made, last = [], fed_by
    for name in names:
        program = {"E": "EXTRACT", "P": "PUMP", "R": "REPLICAT"}[name[0]]
        extra = {"home_id": home, **({"fed_by": last} if last else {})}
        made.append(stage(program, name, extra=extra))
        last = f"{home}/{name}"
    return made


def names(found: list[pipelines.Pipeline]) -> list[str]:
    """What they are called."""
    return [pipeline.name for pipeline in found]


def test_pipelines_of_two_homes_join_by_the_pump_that_the_trail_names():
    """Gathered apart, also elsewhere: after a trip through JSON they are the same."""
    source = pipelines.join([pipelines.Pipeline("", "", "", tuple(chain("a", "EXT1", "PMP1")))])
    target = pipelines.join([pipelines.Pipeline("", "", "", tuple(chain("b", "REP1", fed_by="a/PMP1")))])
    assert (names(source), names(target)) == (["EXT1 > PMP1"], ["REP1"])
    travelled = pipelines.from_json(json.loads(json.dumps(pipelines.to_json([*source, *target]))))
    assert travelled == [*source, *target]
    assert names(pipelines.join(travelled)) == ["EXT1 > PMP1 > REP1"]


def test_a_stage_that_feeds_several_stands_in_each_path():
    """One Extract, two pumps, and a trail with two Replicats."""
    extract, one = chain("a", "EXT1", "PMP1")
    two = stage("PUMP", "PMP2", extra={"home_id": "a", "fed_by": "a/EXT1"})
    readers = [stage("REPLICAT", name, extra={"home_id": "b", "fed_by": "a/PMP1"}) for name in ("REP1", "REP2")]
    found = pipelines.join([pipelines.Pipeline("", "", "", (extract, one, two, *readers))])
    assert names(found) == ["EXT1 > PMP1 > REP1", "EXT1 > PMP1 > REP2", "EXT1 > PMP2"]


def test_groups_that_feed_each_other_in_a_ring_are_shown_once():
    """A mistake of the operator's must not hang who looks for it."""
    ring = chain("a", "PMP1", "PMP2", fed_by="a/PMP2")
    assert names(pipelines.join([pipelines.Pipeline("", "", "", tuple(ring))])) == ["PMP1 > PMP2"]


# --- homes on disk ----------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """EXT1 writes ./dirdat/lt, PMP1 reads it and sends it on; nothing runs."""
    made = make_home(tmp_path / "source")
    noted = Registered("PostgreSQL", "shop", made={"slot": "tg_1"})
    lt = (TrailReg("./dirdat/lt", "EXTTRAIL"),)
    registration.save(made, Registration("EXT1", "EXTRACT", "TRANLOG", trails=lt, registered=noted))
    trails = (TrailReg("./dirdat/rt", "RMTTRAIL"),)
    registration.save(made, Registration("PMP1", "EXTRACT", "TRAIL", "./dirdat/lt", trails=trails))
    write(made, "pmp1", "EXTRACT pmp1\nRMTHOST there, MGRPORT 7809, NOTLS\nRMTTRAIL ./dirdat/rt\n")
    return made


def fill(home: Home, prefix: str, identity: WriterIdentity, blocks: int = 1) -> TrailWriter:
    """A trail with some durable blocks."""
    writer = TrailWriter.open(home.fs, TrailName(home.folder("dirdat"), prefix), identity, restart_open=True)
    writer.define([TABLE])
    for _ in range(blocks):
        writer.append_place(writer.last.origin, NOW)
    writer.close()
    return writer


def extract_identity(home: Home) -> WriterIdentity:
    """EXT1's."""
    return WriterIdentity(home.id, "EXT1", "here", {"kind": "postgresql", "database": "shop"})


def test_two_homes_on_disk_make_one_pipeline(home: Home, tmp_path: Path):
    """The Replicat's trail bears home and group of the pump; the databases are named without user and password."""
    target = make_home(tmp_path / "target")
    local = fill(home, "lt", extract_identity(home))
    copied = WriterIdentity(home.id, "PMP1", "here", {"kind": "postgresql", "database": "shop"}, local.last.trail_id)
    fill(target, "rt", copied)
    registration.save(target, Registration("REP1", "REPLICAT", "TRAIL", "./dirdat/rt"))
    write(target, "rep1", "REPLICAT rep1\nTARGETDB postgresql://gate:secret@db:5432/copy\nMAP *.*, TARGET *.*;\n")
    apart = pipelines.gather(home, NOW) + pipelines.gather(target, NOW)
    assert names(apart) == ["EXT1 > PMP1", "REP1"]
    assert apart[1].source == "PostgreSQL shop by PMP1 of here"
    (whole,) = pipelines.gather(home, NOW, [target])
    assert names([whole]) == ["EXT1 > PMP1 > REP1"]
    assert (whole.source, whole.target) == ("PostgreSQL shop", "PostgreSQL copy at db:5432")
    assert whole.stages[1].writes == ("there:7809 ./dirdat/rt",)
    assert "secret" not in json.dumps(pipelines.to_json([whole]))
    assert pipelines.join(apart) == [whole]


def test_GG_19_a_trail_that_nobody_reads_is_not_green(home: Home, tmp_path: Path):
    """Its home was looked at, and no group there reads it: on this host, or where the pump's last link led."""
    target = make_home(tmp_path / "target")
    params = PumpParams("PMP1", RemoteHost("there", 7809), "./dirdat/rt")
    read = TrailName.parse("./dirdat/lt", home.root)
    job = PumpJob(params, home.id, "here", read, "./dirdat/lt", 1, home.pinned("PMP1"))
    pin.check(home.fs, job, target.id, "Collector")
    (known,) = pipelines.gather(home, NOW, [target])
    assert health.unread(known.stages[-1], {home.id, target.id}) == (
        "nobody reads there:7809 ./dirdat/rt: no pump and no Replicat"
    )
    assert known.lag_us is None and health.unread(known.stages[-1], {home.id}) == ""
    registration.delete(home, "PMP1")
    (alone,) = pipelines.gather(home, NOW)
    assert health.unread(alone.stages[-1], {home.id}) == "nobody reads ./dirdat/lt: no pump and no Replicat"
    works = stage("EXTRACT", "EXT1", writes=("./dirdat/lt",), extra={"writes_home": "h"})
    (shown,) = pipelines.join([Pipeline("", "", "", (works,))])
    assert (shown.state, shown.lag_us) == ("UNKNOWN", None)
    assert shown.why == "EXTRACT EXT1: nobody reads ./dirdat/lt: no pump and no Replicat"
    reader = stage("PUMP", "PMP1", extra={"fed_by": "h/EXT1"})
    assert [one.state for one in pipelines.join([Pipeline("", "", "", (works, reader))])] == ["RUNNING"]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://gate:secret@db:5432/copy?password=x", "PostgreSQL copy at db:5432"),
        ("postgresql://db/copy, USERIDALIAS gate", "PostgreSQL copy at db"),
        ("postgresql://db/copy USERID gate PASSWORD secret", "PostgreSQL copy at db"),
        ("postgresql://db/copy\n  userid gate", "PostgreSQL copy at db"),
        ("postgresql:///copy?host=/run/pg", "PostgreSQL copy"),
        ("mysql://gate@[::1]:3306/copy", "MySQL copy at ::1:3306"),
        ("sqlite:////data/copy.db", "SQLite /data/copy.db"),
        ("sqlite:///copy.db", "SQLite copy.db"),
        ("mysql://h:port/copy", ""),
        ("", ""),
    ],
)
def test_a_database_is_named_without_its_password(url: str, name: str):
    """Neither user nor options; nothing for what is no URL."""
    assert stages.database(url) == name


def test_a_stopped_stage_is_told_by_its_files(home: Home):
    """GG-19: its lag is not known any more, and that has an age; what waits for it is."""
    writer = fill(home, "lt", extract_identity(home), blocks=3)
    place = Place(0, writer.position.rba - 96, NOW - 9 * SECOND)
    read = ReadCheckpoint("GGS Log Trail", place, place)
    save = Checkpoint("PMP1", "EXTRACT", (read,), saved_us=NOW - 5 * SECOND, lag_us=0, stop_status="G")
    checkpoints.save(home.fs, home.checkpoint("PMP1", "EXTRACT"), save)
    extract, pump = pipelines.gather(home, NOW)[0].stages
    assert (pump.status, pump.lag_us, pump.lag_age_us, pump.backlog_bytes) == ("STOPPED", None, 5 * SECOND, 96)
    assert (pump.ops_s, pump.busy, pump.lag_why) == (None, None, "STOPPED")
    assert (extract.backlog_bytes, extract.lag_us, extract.lag_age_us) == (None, None, None)


def running(home: Home, name: str, waits: str = "") -> Any:
    """This test is the group's process: lock held, process file written."""
    lock = home.fs.lock(home.lock(name))
    note = status.ProcessFile(os.getpid(), NOW, "RUNNING", waits=waits)
    status.write(home.fs, home.status(name, "EXTRACT"), note)
    return lock


def test_a_running_stage_answers_for_itself(home: Home, monkeypatch: pytest.MonkeyPatch):
    """What METRICS says, with the age of its lag."""
    monkeypatch.setattr(stages, "ASK_SECONDS", 60.0)
    lock = running(home, "PMP1")
    answer = {
        "lag_us": 7, "lag_at_us": NOW - SECOND, "backlog_bytes": 0, "backlog_us": 0, "ops_s": 1.5, "bytes_s": 2.5,
        "bytes_out_s": 0.5, "busy": 0.25, "operations": 9, "extra": {"inflight_bytes": 3},
    }  # fmt: skip
    with answering(home, "PMP1", lambda *_: answer):
        pump = stages.of_home(home, NOW)[1]
    lock.release()
    assert (pump.status, pump.lag_us, pump.lag_age_us, pump.ops_s, pump.busy) == ("RUNNING", 7, SECOND, 1.5, 0.25)
    assert (pump.bytes_s, pump.bytes_out_s) == (2.5, 0.5)
    assert (pump.extra["inflight_bytes"], pump.extra["operations"], pump.pid) == (3, 9, os.getpid())


def test_processes_that_hang_are_never_waited_for_and_never_look_healthy(home: Home, monkeypatch: pytest.MonkeyPatch):
    """Two sockets that nobody serves: asked at once, given up, and both said to be silent."""
    monkeypatch.setattr(stages, "ASK_SECONDS", 0.2)
    locks = [running(home, name) for name in ("EXT1", "PMP1")]
    servers = [ControlServer(home, name, lambda verb, args: {}) for name in ("EXT1", "PMP1")]
    found = pipelines.gather(home, NOW)[0]
    for server in servers:
        server.close(0)
    for lock in locks:
        lock.release()
    assert [one.status for one in found.stages] == ["RUNNING", "RUNNING"]
    assert [one.lag_us for one in found.stages] == [None, None]
    assert all("did not answer METRICS" in one.lag_why and one.extra["unanswered"] for one in found.stages)
    assert found.stages[0].holds_back


def test_a_home_that_is_gone_leaves_the_others(home: Home, tmp_path: Path):
    """A neighbour whose registration can't be read is left out."""
    other = make_home(tmp_path / "other")
    Path(other.registration("BAD")).write_text("{")
    assert names(pipelines.gather(home, NOW, [other])) == ["EXT1 > PMP1"]


# --- INFO ALL, DETAIL -------------------------------------------------------------------------------------------------


def test_info_all_detail_prints_each_pipeline_and_the_verdict(home: Home):
    """A row a stage, UNKNOWN where it is unknown; the same as JSON."""
    fill(home, "lt", extract_identity(home), blocks=3)
    text = good(home, "INFO ALL, DETAIL")
    lines = text.splitlines()
    assert "Pipeline EXT1 > PMP1" in lines
    assert "  From PostgreSQL shop" in lines
    assert "  To   there:7809 ./dirdat/rt" in lines
    row = next(line for line in lines if line.startswith("* PUMP "))
    assert row.split()[:6] == ["*", "PUMP", "PMP1", "STOPPED", "UNKNOWN", "UNKNOWN"]
    assert [line for line in lines if line.startswith("  Held back by PUMP PMP1: it is STOPPED; waiting for it: ")]
    assert "  Is   STOPPED: EXTRACT EXT1 is STOPPED; PUMP PMP1 is STOPPED" in lines
    found = as_json(home, "INFO ALL, DETAIL")
    assert [one["name"] for one in found["pipelines"][0]["stages"]] == ["EXT1", "PMP1"]


def test_info_all_detail_of_a_home_without_groups(tmp_path: Path):
    """It says so."""
    assert "There are no groups" in good(make_home(tmp_path / "empty"), "INFO ALL, DETAIL")


def test_columns_stay_in_their_places_and_the_slow_one_is_marked():
    """A star before its row, and a line with the reason; what the slot keeps back stands below."""
    extract = stage(
        "EXTRACT",
        "EXT1",
        extra={
            "holder": "slot tg_1",
            "log_kept_bytes": 5 << 20,
            "log_headroom_bytes": None,
            "log_limit_name": "max_slot_wal_keep_size",
        },
    )
    replicat = stage(
        "REPLICAT", "REP1", lag_us=34 * SECOND, backlog_bytes=12 << 20, backlog_us=34 * SECOND, ops_s=1234.4,
        bytes_s=99.6, bytes_out_s=12.4, busy=0.98,
    )  # fmt: skip
    judged = holding.judge(path(extract, replicat))
    lines = slow.lines([pipelines.Pipeline("p", "s", "t", judged)])
    title, *rows = lines[6:10]
    assert len({len(line) for line in (title, *rows)}) == 1
    assert rows[2] == (
        "* REPLICAT  REP1      RUNNING     00:00:34  00:00:00     12.0 MB  00:00:34        1234         100"
        "          12  0.98"
    )
    assert "  Held back by REPLICAT REP1: its input waits (12.0 MB of 34 s), its output is idle, busy 0.98." in lines
    assert "  Slot tg_1 keeps back 5.0 MB of the source's log; no limit is set (max_slot_wal_keep_size)." in lines


def test_homes_that_the_managers_file_names_join_in(home: Home, tmp_path: Path):
    """WEBHOME with DIR; a folder that is no home is left out."""
    other = make_home(tmp_path / "other")
    write(home, "mgr", f"PORT 7809\nWEBHOME copy, DIR {other.root}\nWEBHOME gone, DIR {tmp_path / 'none'}\n")
    assert pipelines.neighbours(home) == [other]


# --- GG-19: INFO ALL, INFO and LAG of what stands still ---------------------------------------------------------------


def test_GG_19_an_idle_pump_behind_an_extract_that_is_gone(home: Home):
    """It runs, is at the end of its trail, and its checkpoint is fresh; yet nobody captures, and nothing says 0."""
    now = time.time_ns() // 1000
    writer = fill(home, "lt", extract_identity(home))
    place = Place(0, writer.position.rba, now)
    read = ReadCheckpoint("GGS Log Trail", place, place)
    beat = {
        "from": "shop", "to": "", "path": "EXT1 ==> PMP1", "home": home.id, "heartbeat_us": now - 200 * SECOND,
        "every_s": 10, "at_us": now - 200 * SECOND, "lag_us": 5, "why": "", "stages": [],
    }  # fmt: skip
    save = Checkpoint("PMP1", "EXTRACT", (read,), saved_us=now, lag_us=0, extra={"heartbeats": [beat]})
    checkpoints.save(home.fs, home.checkpoint("PMP1", "EXTRACT"), save)
    lock = running(home, "PMP1")
    try:
        for there, why in ((True, "EXTRACT EXT1 is STOPPED"), (False, "EXTRACT EXT1 is MISSING")):
            if not there:
                os.remove(home.registration("EXT1"))
            text = good(home, "INFO ALL")
            (row,) = [line for line in text.splitlines() if "PMP1" in line and line.startswith("EXTRACT")]
            assert row.split()[1:4] == ["RUNNING", "PMP1", "UNKNOWN"]
            assert f"Lag of EXTRACT PMP1 is UNKNOWN: {why}, last seen 00:03:2" in text
            pump = as_json(home, "INFO ALL")["groups"][-1]
            assert (pump["lag_us"], pump["lag_why"]) == (None, why)
            assert f"; {why}, last seen 00:03:2" in good(home, "INFO PMP1")
            with answering(home, "PMP1", lambda *_: {"ok": True, "lag_us": 0, "at_eof": True, "heartbeats": [beat]}):
                for ask in ("LAG PMP1", "SEND EXTRACT PMP1, GETLAG"):
                    assert f"Last record lag UNKNOWN: {why}, last seen 00:03:2" in good(home, ask)
    finally:
        lock.release()


def test_a_pump_that_waits_for_the_remote_manager(home: Home):
    """What it waits for stands in its process file; its 0 is not believed."""
    now = time.time_ns() // 1000
    place = Place(0, fill(home, "lt", extract_identity(home)).position.rba, now)
    works = Checkpoint("EXT1", "EXTRACT", saved_us=now, lag_us=0)
    checkpoints.save(home.fs, home.checkpoint("EXT1", "EXTRACT"), works)
    save = Checkpoint(
        "PMP1", "EXTRACT", (ReadCheckpoint("GGS Log Trail", place, place),), saved_us=now, lag_us=None,
    )  # fmt: skip
    checkpoints.save(home.fs, home.checkpoint("PMP1", "EXTRACT"), save)
    locks = [running(home, "EXT1"), running(home, "PMP1", "Waiting for the remote host (refused)")]
    try:
        text = good(home, "INFO ALL")
    finally:
        for lock in locks:
            lock.release()
    assert [line for line in text.splitlines() if line.startswith("Lag of ")] == [
        "Lag of EXTRACT PMP1 is UNKNOWN: PUMP PMP1: Waiting for the remote host (refused)."
    ]
