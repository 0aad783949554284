"""What happens by the clock: statistics by period, REPORT, REPORTCOUNT, REPORTROLLOVER, ROLLOVER, DISCARDROLLOVER."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from replicat.__main__ import notes
from tests.support.homes import make_home
from tests.support.zones import machine_in
from trails.checkpoint import Checkpoint
from trails.errors import OperatorError, ParamError
from trails.record import Op
from trails.runtime.home.home import Home
from trails.runtime.language import params
from trails.runtime.language.params import parse_text
from trails.runtime.language.reportparams import SHARED, TIMED_VERBS
from trails.runtime.language.schedule import CountLines, Due, ReportCount, Schedule, report_count, schedule
from trails.runtime.process.loop import Process
from trails.runtime.process.reporting import Reporting
from trails.runtime.report.report import Log, Report
from trails.runtime.report.stats import DAILY, HOURLY, LATEST, REPORT, TOTAL, Stats
from trails.testing import FakeClock

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture(autouse=True)
def berlin() -> Iterator[None]:
    """A machine whose clock changes twice a year."""
    with machine_in("Europe/Berlin"):
        yield


def at(text: str) -> int:
    """That moment in Berlin, in microseconds."""
    return int(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp() * 1_000_000)


# --- AT, ON ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "after", "expected"),
    [
        ("AT 06:30", "2026-03-10T06:29:59", "2026-03-10T06:30:00"),
        ("AT 06:30", "2026-03-10T06:30:00", "2026-03-11T06:30:00"),
        ("AT 6:30", "2026-12-31T07:00:00", "2027-01-01T06:30:00"),
        ("ON friday", "2026-03-10T12:00:00", "2026-03-13T00:00:00"),
        ("ON FRI AT 02:00", "2026-03-13T01:00:00", "2026-03-13T02:00:00"),
        ("AT 02:00 ON FRI", "2026-03-13T02:00:00", "2026-03-20T02:00:00"),
        ("AT 02:30", "2026-03-28T12:00:00", "2026-03-29T03:30:00"),  # 02:30 is left out that night
        ("AT 02:30", "2026-10-24T12:00:00", "2026-10-25T02:30:00"),  # and twice that night: once is meant
        ("ON SUNDAY", "2026-02-28T12:00:00", "2026-03-01T00:00:00"),
    ],
)
def test_when_it_is_due_next(words: str, after: str, expected: str) -> None:
    """Strictly behind the given moment, in the machine's own time."""
    (statement,) = parse_text(f"REPORT {words}", "x")
    assert schedule(statement).next_after(at(after)) == at(expected)


@pytest.mark.parametrize("words", ["", "AT", "AT 24:00", "AT 6", "ON", "ON FR", "ON XYZ", "AT 1:00 AT 2:00", "1:00"])
def test_what_is_no_time(words: str) -> None:
    """Told with what is expected."""
    (statement,) = parse_text(f"ROLLOVER {words}", "x.prm")
    with pytest.raises(ParamError, match=r"x.prm:1: ROLLOVER: expected {AT hh:mi \| ON day \| AT hh:mi ON day}"):
        schedule(statement)


def test_what_is_due_is_done_once() -> None:
    """Two schedules for one moment do it once; a clock that jumps over three days does it once."""
    clock = FakeClock(at("2026-03-10T01:00:00"))
    done: list[int] = []
    chore = Due([Schedule(120), Schedule(120, 1), Schedule(180)], lambda: done.append(clock.now_us()), clock)
    for hours in (0.5, 0.5, 0.1, 1, 72, 0.1):
        clock.sleep(hours * 3600)
        chore(clock.monotonic())
    assert [(us - at("2026-03-10T00:00:00")) // 3_600_000_000 for us in done] == [2, 3, 75]


def test_a_clock_that_was_years_ahead_is_noticed_when_it_is_set_right() -> None:
    """What was due in 2031 does not keep REPORT, or the hours of STATS, waiting until then."""
    clock = FakeClock(at("2031-03-10T01:10:00"))
    done: list[int] = []
    chore, stats = Due([Schedule(120)], lambda: done.append(1), clock), Stats(clock.now_us)
    stats.count("s.a", "s.a", Op.INSERT, 5)
    clock.sleep((at("2026-03-10T01:20:00") - clock.now_us()) / 1e6)
    chore(0)
    stats.count("s.a", "s.a", Op.INSERT, 7)
    assert [stats.period(name)["since_us"] for name in (HOURLY, DAILY)] == [
        at("2026-03-10T01:00:00"), at("2026-03-10T00:00:00")
    ]  # fmt: skip
    assert stats.period(HOURLY)["tables"][0]["operations"] == 7
    clock.sleep(40 * 60 + 1)
    chore(0)
    assert done == [1]


# --- REPORTCOUNT ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("EVERY 5 MINUTES", ReportCount(seconds=300)),
        ("EVERY 2 HOURS, RATE", ReportCount(seconds=7200, rate=True)),
        ("100 RECORDS", ReportCount(records=100)),
        ("EVERY 1 SEC, RATE", ReportCount(seconds=1, rate=True)),
    ],
)
def test_reportcount(words: str, expected: ReportCount) -> None:
    """As GoldenGate writes it; EVERY may be left out."""
    (statement,) = parse_text(f"REPORTCOUNT {words}", "x")
    assert report_count(statement) == expected


@pytest.mark.parametrize("words", ["", "EVERY", "EVERY 5", "EVERY x MINUTES", "EVERY 5 DAYS", "5 MINUTES FAST"])
def test_what_is_no_reportcount(words: str) -> None:
    """Told with what is expected."""
    (statement,) = parse_text(f"REPORTCOUNT {words}", "x")
    with pytest.raises(ParamError, match=r"expected EVERY n \{RECORDS"):
        report_count(statement)


def test_count_lines_by_records_and_by_time() -> None:
    """A line each hundred records, however many come at once; a line each minute, with the rates if asked."""
    clock, count = FakeClock(at("2026-03-10T01:00:00")), [0]
    lines: list[str] = []
    by_records = CountLines(ReportCount(records=100), lambda: count[0], lines.append, clock)
    by_time = CountLines(ReportCount(seconds=60, rate=True), lambda: count[0], lines.append, clock)
    for n in (60, 130, 199, 520):
        clock.sleep(20)
        count[0] = n
        by_records(clock.monotonic())
        by_time(clock.monotonic())
    assert lines == [
        "130 records processed as of 2026-03-10 01:00:40",
        "199 records processed as of 2026-03-10 01:01:00 (rate 3, delta 3)",
        "520 records processed as of 2026-03-10 01:01:20",
    ]


# --- periods --------------------------------------------------------------------------------------------------------


def test_each_count_belongs_to_the_hour_in_which_it_was_made() -> None:
    """TOTAL, DAILY, HOURLY, LATEST: whether anybody looks at the border or not, and over the change of the clock."""
    clock = FakeClock(at("2026-03-28T22:40:00"))
    stats = Stats(clock.now_us)

    def counted() -> list[int]:
        reply = stats.to_reply()
        return [
            sum(table["operations"] for table in period["tables"]) for period in (reply, *reply["periods"].values())
        ]

    stats.count("s.a", "s.a", Op.INSERT, 1)
    clock.sleep(30 * 60)  # 23:10
    stats.count("s.a", "s.a", Op.INSERT, 10)
    assert counted() == [11, 11, 10, 11]
    clock.sleep(60 * 60)  # 00:10 on the next day
    stats.count("s.b", "s.b", Op.DELETE, 100)
    assert counted() == [111, 100, 100, 111]
    stats.reset()
    clock.sleep(3 * 60 * 60)  # 04:10: there was no hour from two to three
    stats.count("s.a", "s.a", Op.UPDATE, 1000)
    assert counted() == [1111, 1100, 1000, 1000]
    assert stats.period(HOURLY)["since_us"] == at("2026-03-29T04:00:00")
    assert stats.period(DAILY)["since_us"] == at("2026-03-29T00:00:00")
    assert stats.period(LATEST)["since_us"] == at("2026-03-29T00:10:00")
    assert stats.period(TOTAL)["since_us"] == stats.since_us == at("2026-03-28T22:40:00")
    clock.sleep(24 * 60 * 60)
    assert counted() == [1111, 0, 0, 1000]


# --- reports --------------------------------------------------------------------------------------------------------


class Counting(Process):
    """Counts, stands somewhere, and knows one of the two timed verbs."""

    def __init__(self, clock: FakeClock) -> None:
        self.stats: Stats = Stats(clock.now_us)
        self.asked: list[str] = []

    def step(self) -> bool:
        """Nothing."""
        return False

    def flush(self) -> Checkpoint | None:
        """Nothing."""
        return None

    def close(self) -> None:
        """Nothing."""

    def command(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """STATUS and ROLLOVER."""
        self.asked.append(verb)
        if verb == "STATUS":
            place = {
                "seqno": 7,
                "rba": 4711,
                "csn": "0/16B3748",
                "time_us": at("2026-03-10T00:59:58"),
                "file": "./dirdat/lt7",
            }
            return {"status": "At EOF", "read": place}
        if verb == "ROLLOVER":
            return {}
        raise OperatorError("no REPERROR discards, so there is no discard file")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home."""
    return make_home(tmp_path)


def reporting(home: Home, clock: FakeClock, text: str) -> tuple[Counting, Reporting, Log]:
    """A run with those parameters."""
    log = Log(home, "Trailgate Capture", "ext1.prm", clock, Report(home, "EXT1"))
    known = SHARED | TIMED_VERBS
    values = params.check(parse_text(text, "ext1.prm"), known, "tiny", file="ext1.prm")
    process = Counting(clock)
    paper = log.report
    assert paper is not None
    return process, Reporting(process, values, log, clock, lambda: paper.box("Run Time Messages")), log


def report(home: Home, age: int | None = None) -> str:
    """The report, or an aged one."""
    return Path(home.report("EXT1", age)).read_text()


def test_statistics_have_the_last_record_and_the_counts_by_table(home: Home) -> None:
    """goldengate.md 8.3: box, last record, what was read, activity since, From Table blocks."""
    clock = FakeClock(at("2026-03-10T01:00:00"))
    process, run, _ = reporting(home, clock, "")
    process.stats.count("s.t", "s.t", Op.INSERT, 5)
    run.saves = 3
    run.statistics()
    text = report(home)
    order = [
        "Run Time Statistics", "Last record for the last committed transaction is the following:", "AuditRBA   : 4711",
        "CSN        : 0/16B3748", "IO Time    : 2026-03-10 00:59:58.000000",
        "Reading ./dirdat/lt7, current RBA 4711, 5 records",
        "Report at 2026-03-10 01:00:00 (activity since 2026-03-10 01:00:00)", "From Table s.t to s.t:",
        "       #                   inserts:         5", "Checkpoints saved: 3",
    ]  # fmt: skip
    assert sorted(order, key=text.index) == order


@pytest.mark.parametrize(("option", "left"), [("", 5), ("STATOPTIONS RESETREPORTSTATS\n", 0)])
def test_reportrollover_begins_a_new_report(home: Home, option: str, left: int) -> None:
    """The old one ends with its statistics and is aged; those of the new one go on, or begin anew as STATOPTIONS says.

    The counts that STATS shows are never touched.
    """
    clock = FakeClock(at("2026-03-10T01:00:00"))
    process, run, messages = reporting(home, clock, option + "REPORTROLLOVER AT 02:00\nREPORT AT 02:00\n")
    process.stats.count("s.t", "s.t", Op.INSERT, 5)
    clock.sleep(3600)
    for chore in run.chores():
        chore(clock.monotonic())
    assert "Run Time Statistics" not in report(home)  # chores() looked at the clock at two: both are due tomorrow
    chores = run.chores()
    clock.sleep(24 * 3600)
    for chore in chores:
        chore(clock.monotonic())
    messages.info("TG-00993", "behind the border")
    old, new = report(home, 0), report(home)
    assert old.count("Run Time Statistics") == 2  # REPORT, and the rollover's own
    assert "Report file rolled over at 2026-03-11 02:00:00 by REPORTROLLOVER." in old
    assert "Run Time Messages" in new
    assert "behind the border" in new
    assert "behind the border" not in old
    assert sum(table["operations"] for table in process.stats.period(REPORT)["tables"]) == left
    assert process.stats.total() == 5


def test_a_report_that_cannot_be_rolled_goes_on(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """REPORTROLLOVER: it is told, and the process goes on with the report that is there."""
    clock = FakeClock(at("2026-03-10T01:00:00"))
    _, run, messages = reporting(home, clock, "REPORTROLLOVER AT 02:00\n")
    chores = run.chores()
    clock.sleep(3600)

    def refuse(_old: str, _new: str) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        for chore in chores:
            chore(clock.monotonic())
    messages.info("TG-00993", "behind the border")
    assert "REPORTROLLOVER was due: " in report(home)
    assert "behind the border" in report(home)
    assert not os.path.exists(home.report("EXT1", 0))


def test_what_a_replicat_says_of_each_batch_does_not_fill_the_log(home: Home) -> None:
    """A batch a second that the target refuses as a whole: some lines, then one a minute with how many there were."""
    clock = FakeClock()
    note = notes(Log(home, "Trailgate Delivery", "rep1.prm", clock))
    for _ in range(600):
        note("The target refused a batch as a whole")
        clock.sleep(1)
    note("Something else")
    lines = Path(home.ggserr).read_text().splitlines()
    assert 10 <= len(lines) <= 20
    assert lines[-2].endswith("The target refused a batch as a whole (59 alike before it were not logged)")
    assert lines[-1].endswith("Something else")


def test_rollover_asks_the_process_and_a_refusal_is_told(home: Home) -> None:
    """ROLLOVER AT, DISCARDROLLOVER ON: the process's own verbs; what stands in the way ends nothing."""
    clock = FakeClock(at("2026-03-10T01:00:00"))
    process, run, _ = reporting(home, clock, "ROLLOVER AT 02:00\nDISCARDROLLOVER ON WED\n")
    chores = run.chores()
    clock.sleep(24 * 3600)
    for chore in chores:
        chore(clock.monotonic())
    assert process.asked == ["ROLLOVER", "DISCARDROLLOVER"]
    log = Path(home.ggserr).read_text()
    assert "INFO    TG-01975  Trailgate Capture, ext1.prm:  ROLLOVER was due, and is under way." in log
    assert "WARNING TG-01976  Trailgate Capture, ext1.prm:  DISCARDROLLOVER was due: no REPERROR discards" in log
