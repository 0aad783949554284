"""WAIT: only what is behind the group is reached; groups in the order in which they feed each other."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from demo.patience import PATIENCE, wait_for
from ggsci import admin
from ggsci.commands import waiting
from ggsci.commands.waiting import _has_changes, _in_order
from tests.support.homes import bad, good, group, make_home
from tests.support.replicat_trail import TrailFeed, table
from trails.position import START, Position, TrailName
from trails.record import Op
from trails.runtime.home import registration
from trails.runtime.home.registration import Registration, TrailReg

T = table("s", "t", "id", "id")


@pytest.fixture
def home(tmp_path):
    """A home with an Extract, a pump that writes a trail of this very home, and a Replicat on that."""
    made = make_home(tmp_path)
    for one in (
        Registration("REP1", "REPLICAT", "TRAIL", trail="./dirdat/rt"),
        Registration("PMP1", "EXTRACT", "TRAIL", trail="./dirdat/lt", trails=(TrailReg("./dirdat/rt", "RMTTRAIL"),)),
        Registration("EXT1", "EXTRACT", "TRANLOG", trails=(TrailReg("./dirdat/lt", "EXTTRAIL"),)),
    ):
        registration.save(made, one)
    return made


def test_who_writes_a_trail_comes_before_who_reads_it(home):
    """So each group's goal is noted once all that was to come stands in its trail. A ring does not hang."""
    groups = registration.all(home)
    assert [found.name for found in _in_order(groups)] == ["EXT1", "PMP1", "REP1"]
    ring = replace(group(home, "EXT1"), trail="./dirdat/rt")
    assert len(_in_order([ring, group(home, "PMP1")])) == 2


def test_a_group_that_does_not_run_is_an_error_at_once(home):
    """It would never get there; the hint starts it."""
    assert "EXTRACT EXT1 is STOPPED, so it handles nothing. START EXTRACT EXT1" in bad(home, "WAIT EXTRACT ext1")
    assert "no REPLICAT matches X*" in bad(home, "WAIT REPLICAT x*")


@pytest.mark.parametrize("kind", ["REPLICAT", "EXTRACT"])
def test_only_changes_between_place_and_goal_keep_it_waiting(home, kind):
    """Empty blocks and heartbeats move no Replicat's row: block headers say that nothing is missing."""
    trail = TrailName.parse("./dirdat/rt", home.root)
    feed = TrailFeed(home.fs, trail)
    found = replace(group(home, "REP1"), kind=kind)
    begin = feed.writer.position
    feed.tx((Op.INSERT, T, ["1"]))
    middle = feed.writer.position
    feed.tx()  # a transaction without a change of the user's
    end = feed.writer.position
    assert _has_changes(home, found, trail, START, end)
    assert _has_changes(home, found, trail, begin, end)
    assert not _has_changes(home, found, trail, middle, end)
    feed.tx((Op.INSERT, T, ["2"]), (Op.INSERT, T, ["3"]), pieces=3)
    assert _has_changes(home, found, trail, end, feed.writer.position)
    assert not _has_changes(home, found, trail, middle, end)
    feed.close()


def test_it_ends_when_the_group_is_there_and_not_before(home, monkeypatch):
    """The goal is noted once; a later end of the trail does not move it, and a table that is to be copied keeps it
    waiting. SECONDS bounds it.
    """
    trail = TrailName.parse("./dirdat/rt", home.root)
    feed = TrailFeed(home.fs, trail)
    feed.tx((Op.INSERT, T, ["1"]))
    place, asked = Position(0, 0), threading.Event()
    monkeypatch.setattr(waiting, "_check_runs", lambda session, group: None)

    load: dict[str, list[str]] = {"not_copied": ["s.t"]}

    def answer(*_, **__):
        asked.set()
        return {"read": {"seqno": place.seqno, "rba": place.rba}, **load}

    monkeypatch.setattr(waiting, "ask", answer)
    assert "the initial load of s.t failed, so changes of it are left out" in bad(home, "WAIT REPLICAT rep1")
    load.clear()
    assert "has not handled all of its input within 0 seconds" in bad(home, "WAIT REPLICAT rep1, SECONDS 0")
    goal = waiting._durable_end(home, trail)
    assert goal is not None
    asked.clear()
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(good(home, "WAIT REPLICAT rep1")))
    thread.start()
    assert asked.wait(PATIENCE)
    feed.tx((Op.INSERT, T, ["2"]))
    assert not said
    load["to_copy"], place = ["s.t"], goal
    asked.clear()
    assert asked.wait(PATIENCE) and not said
    load.clear()
    wait_for(lambda: said, told="the end of WAIT")
    thread.join()
    assert f"REPLICAT REP1 has applied everything in ./dirdat/rt up to file 0, RBA {goal.rba}" in said[0]
    feed.close()


def test_an_extract_is_asked_of_its_slot(home, monkeypatch):
    """The goal is the log's end of now; the same goal is asked for until the slot has it."""
    asked = []

    def answer(program, verb, **request):
        asked.append((program, verb, request["goal"]))
        return {"ok": True, "goal": "0/5", "reached": len(asked) == 3}

    monkeypatch.setattr(admin, "ask", answer)
    monkeypatch.setattr(waiting, "_check_runs", lambda session, group: None)
    assert "EXTRACT EXT1 has captured everything that was committed up to 0/5." in good(home, "WAIT EXTRACT ext1")
    assert asked == [("extract", "captured", goal) for goal in ("", "0/5", "0/5")]
