"""The source guard's judgement: thresholds, hysteresis, and a lost slot; and the Manager's for what is stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo.patience import wait_for
from extract.extract import Extract, Settings
from extract.params import ExtractParams
from extract.retention import Retained, RetentionGuard
from extract.source import SourceFacts
from extract.sources.postgres.guard import retained
from extract.sources.postgres.limits import WalLimits
from extract.sources.postgres.slots import STALE_SECONDS, SlotFacts
from ggsci.manager.slots import FIRST_SECONDS, REPEAT_SECONDS, SlotChecks
from tests.support.homes import make_home
from tests.support.scripted import Idle, ScriptedLog, ScriptedSource
from tests.support.trail_script import TRAIL, Tx
from trails.clock import Clock, RealClock
from trails.errors import EXIT_OPERATOR, AwayError, OperatorError
from trails.position import Position
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registered, Registration
from trails.runtime.language.freespace import Bound
from trails.runtime.language.params import parse_text
from trails.runtime.report.answers import KeptAnswer
from trails.runtime.report.report import Log
from trails.testing import FakeClock, FaultFs

GB = 1 << 30


def facts(kept: int | None, status: str = "reserved", *, limit: int | None = None, **more: Any) -> SlotFacts:
    """What a server might say."""
    room = None if limit is None else limit - (kept or 0)
    return SlotFacts("tg_1", status, kept, room, limit, 1 << 40, **more)


def parameters(text: str = "") -> WalLimits:
    """The limits of a parameter file."""
    base = "EXTRACT ext1\nSOURCEDB postgresql://h/d\nEXTTRAIL ./dirdat/lt\nTABLE public.*;\n"
    params = ExtractParams.from_statements(parse_text(base + text, "ext1.prm"))
    return WalLimits.of(params.settings(None))


@pytest.mark.parametrize(
    ("text", "limit", "bounds"),
    [
        ("", None, (10 * GB, 50 * GB)),
        ("", 8 * GB, (4 * GB, 8 * GB * 80 // 100)),
        ("", 1000 * GB, (10 * GB, 50 * GB)),
        ("WALWARN 20G\nWALCRITICAL 90%\n", 100 * GB, (20 * GB, 90 * GB)),
        ("WALWARN 20%\n", None, (0, 50 * GB)),
        ("WALWARN 0\nWALCRITICAL 0\n", 8 * GB, (0, 0)),
    ],
    ids=["unlimited", "small limit", "large limit", "given", "share of nothing", "never"],
)
def test_bounds(text: str, limit: int | None, bounds: tuple[int, int]):
    """In bytes, or as a share of max_slot_wal_keep_size; without either the lower of both defaults."""
    assert parameters(text).bytes_of(limit) == bounds


@pytest.mark.parametrize("wrong", ["WALWARN lots\n", "WALCRITICAL 100%\n", "WALWARN 1G\nWALWARN 2G\n"])
def test_bad_bounds_are_refused(wrong: str):
    """With file and line."""
    with pytest.raises(OperatorError, match=r"ext1\.prm:[56]"):
        parameters(wrong)


class Guarded:
    """A guard and what it said."""

    def __init__(self) -> None:
        self.found: Retained | None = None
        self.said: list[str] = []
        self.limits = WalLimits((Bound(10),), (Bound(100),))
        self.guard = RetentionGuard(lambda: self.found, self.said.append)

    def sees(self, found: SlotFacts | None, now: float = 0.0) -> int:
        """How many lines were said in all after this look."""
        self.found = retained(found, self.limits) if found else None
        self.guard.judge(now)
        return len(self.said)


def test_a_level_is_said_once_when_it_is_crossed_and_again_each_hour():
    """Not at each look."""
    one = Guarded()
    assert [one.sees(None), one.sees(facts(9)), one.sees(facts(10), 1), one.sees(facts(20), 2)] == [0, 0, 1, 1]
    assert "keeps back 10 bytes of the server's log (WALWARN 10 bytes)" in one.said[0]
    assert [one.sees(facts(100), 3), one.sees(facts(101), 4)] == [2, 2]
    assert "(WALCRITICAL 100 bytes)" in one.said[1]
    assert [one.sees(facts(101), 3 + 3599), one.sees(facts(101), 3 + 3600), one.sees(facts(101), 3 + 3601)] == [2, 3, 3]


def test_a_slot_that_swings_around_a_bound_is_not_news_each_time():
    """Only a tenth below the bound the level is left."""
    one = Guarded()
    assert [one.sees(facts(100)), one.sees(facts(95)), one.sees(facts(100))] == [1, 1, 1]
    assert [one.sees(facts(89)), one.sees(facts(100))] == [1, 2]


def test_log_that_the_next_checkpoint_may_remove_is_critical_whatever_the_bounds():
    """wal_status unreserved."""
    one = Guarded()
    assert one.sees(facts(1, "unreserved", limit=1)) == 1
    assert "CRITICAL: it may be removed at the next checkpoint" in one.said[0]


def test_log_that_may_be_removed_again_is_news_again_also_without_a_bound():
    """WALCRITICAL 0: only the server's word counts, and is left when the server takes it back."""
    one = Guarded()
    one.limits = WalLimits((Bound(0),), (Bound(0),))
    found = [facts(5, "unreserved", limit=1), facts(5, limit=1), facts(5, "unreserved", limit=1)]
    assert [one.sees(each, now) for now, each in enumerate(found)] == [1, 1, 2]


def test_what_was_found_long_ago_is_not_told_as_what_is():
    """GG-19: looks that fail or hang leave no figure that looks like one of now."""
    now = facts(9)
    assert now.is_news
    assert not replace(now, checked_us=now.checked_us - int(STALE_SECONDS * 1_000_000) - 1).is_news


def test_the_same_look_is_judged_once():
    """The capturing thread asks thousands of times a second."""
    one = Guarded()
    assert one.sees(facts(50), 0.0) == 1
    one.guard.judge(1e9)
    assert len(one.said) == 1


def test_PF_12_a_lost_slot_ends_the_extract_with_code_2_and_a_remedy():
    """No retry brings the log back."""
    one = Guarded()
    with pytest.raises(OperatorError) as error:
        one.sees(facts(None, "lost", limit=16 << 20, reason="wal_removed"))
    assert error.value.exit_code == EXIT_OPERATOR
    assert "slot tg_1 is lost" in str(error.value)
    assert "reason wal_removed, max_slot_wal_keep_size is 16.0 MB" in str(error.value)
    assert "re-sync" in str(error.value)


def test_what_the_server_does_not_limit_is_said_to_be():
    """No headroom is known: the disk's free space is not the server's to tell."""
    assert "no limit (max_slot_wal_keep_size)" in retained(facts(50), WalLimits()).text(1)
    assert "after 30 bytes more" in retained(facts(50, limit=80), WalLimits()).text(1)


# --- the Extract ---


class Decoding(ScriptedSource):
    """A server that decodes a large transaction and sends nothing meanwhile; its log is known to go on."""

    waiting = 0

    def facts(self, origin: Position, state: str, time_us: int | None) -> SourceFacts:
        """As the PostgreSQL source's are after a look."""
        measures = {"backlog_bytes": self.waiting, "log_status": "reserved"}
        return replace(super().facts(origin, state, time_us), measures=measures)


def test_log_that_waits_is_lag_also_while_nothing_comes():
    """Pitfall 22: not at EOF, no zero lag, and METRICS has what waits in bytes and in time."""
    clock = FakeClock(5_000_000)
    log = ScriptedLog([Tx(1, 1), Idle(1), Idle(1)])
    source = Decoding(log)
    extract = Extract.start(FaultFs(), Settings("EXT1", "home", "host", TRAIL, "./dirdat/lt"), source, clock)
    while log.answered[-2:] != [1, 1]:
        extract.step()
        extract.flush()
    assert extract.command("LOGEND", {}) == {"logend": True}
    assert extract.command("METRICS", {})["backlog_us"] == 0
    source.waiting = 9000
    found = extract.command("METRICS", {})
    assert (found["backlog_bytes"], found["backlog_us"]) == (9000, 5_000_000 - 1)
    assert extract.command("LOGEND", {}) == {"logend": False}
    assert extract.command("GETLAG", {})["lag_us"] == 5_000_000 - 1
    assert extract.command("STATUS", {})["status"] == "Processing data"
    assert (extract.counters().operations, extract.counters().transactions) == (1, 1)
    extract.close()


# --- the Manager ------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """One stopped Extract with a slot, one without, and a pump."""
    made = make_home(tmp_path / "home")
    registration.save(made, Registration("EXT1", "EXTRACT", "TRANLOG", registered=Registered(made={"slot": "tg_1"})))
    registration.save(made, Registration("EXT2", "EXTRACT", "TRANLOG"))
    registration.save(made, Registration("PMP1", "EXTRACT", "TRAIL", "./dirdat/lt"))
    return made


def checks(home: Home, look: Callable[[Home, str], dict[str, Any]], clock: Clock | None = None) -> SlotChecks:
    """The Manager's part, at time zero."""
    return SlotChecks(home, Log(home, "Manager", "mgr.prm", clock or RealClock()), 0.0, look)


def said(home: Home) -> list[str]:
    """Lines of ggserr.log."""
    return Path(home.ggserr).read_text().splitlines() if Path(home.ggserr).exists() else []


def rounds(one: SlotChecks, *times: float) -> None:
    """A look at each time, and its lines."""
    for now in times:
        one.step(now, 60)
        wait_for(lambda: one._thread is None or not one._thread.is_alive())
        one.step(now, 60)


def test_the_manager_says_once_that_a_stopped_extracts_slot_is_lost(home: Home):
    """An ERROR line, again after an hour; groups without a slot of their own are not asked about."""
    asked: list[str] = []

    def look(_: Home, name: str) -> KeptAnswer:
        asked.append(name)
        return KeptAnswer(log_status="lost", lost="slot tg_1 is lost: re-sync")

    clock = FakeClock()
    one = checks(home, look, clock)
    rounds(one, 0)
    assert asked == []
    rounds(one, FIRST_SECONDS, FIRST_SECONDS + 30, FIRST_SECONDS + 60)
    assert asked == ["EXT1", "EXT1"]
    assert [line for line in said(home) if "ERROR" in line and "EXT1, which is not running: slot tg_1 is lost" in line]
    assert len(said(home)) == 1
    clock.sleep(REPEAT_SECONDS)
    rounds(one, FIRST_SECONDS + REPEAT_SECONDS)
    assert len(said(home)) == 2


def test_the_manager_warns_by_the_groups_own_limits_and_goes_on_without_its_database(home: Home):
    """A database that is away is no news; what is kept back is, once a level."""
    answers: list[KeptAnswer | AwayError] = [
        AwayError("down"),
        *(KeptAnswer(level=level, text=text) for level, text in ((1, "much"), (1, "much"), (2, "more"))),
    ]  # fmt: skip

    def look(_: Home, name: str) -> KeptAnswer:
        answer = answers.pop(0)
        if isinstance(answer, AwayError):
            raise answer
        return answer

    rounds(checks(home, look), *(FIRST_SECONDS + 60 * n for n in range(4)))
    assert [line.rpartition("EXTRACT ")[2] for line in said(home)] == [
        "EXT1 is not running: much.", "EXT1 is not running: more.",
    ]  # fmt: skip


def test_status_tells_what_the_managers_last_look_found(home: Home):
    """For the page and /metrics: the slot's figures alone, and none once the next look is overdue."""
    one = checks(home, lambda *_: KeptAnswer("slot tg_1", "reserved", log_kept_bytes=5, level=0))
    rounds(one, 0)
    assert one.rows(0) == {}
    rounds(one, FIRST_SECONDS)
    assert one.rows(FIRST_SECONDS + 60) == {"EXT1": {"log_status": "reserved", "log_kept_bytes": 5}}
    assert one.rows(FIRST_SECONDS + 121) == {}
