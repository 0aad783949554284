"""mgr.prm's rules, the pool of ports, purging by age and number, and the answer to "why is this file kept"."""

from __future__ import annotations

import os
import socket
import time

import pytest

from ggsci.manager import ports as manager_ports
from ggsci.manager import purge as manager_purge
from ggsci.manager.params import ManagerParams
from ggsci.manager.ports import Pool
from ggsci.manager.rules import PurgeRule
from tests.support.homes import good, make_home
from tests.support.trail_script import IDENTITY, SCRIPT, write_tx
from trails import checkpoint
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.errors import ParamError
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.language.params import parse_text
from trails.writer import TrailWriter

HOUR_US = 3_600_000_000


def params(text: str) -> ManagerParams:
    """mgr.prm with this text."""
    return ManagerParams.from_statements(parse_text(text, "mgr.prm"), "mgr.prm")


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "home")


# --- parameters -------------------------------------------------------------------------------------------------------


def test_gg_manager_times_and_delays_are_understood():
    """BOOTDELAYMINUTES, DOWNREPORT, UPREPORT, DYNAMICPORTREASSIGNDELAY; a bound on lag alone is looked at too."""
    found = params("BOOTDELAYMINUTES 3\nDOWNREPORTHOURS 1\nUPREPORTMINUTES 30\nDYNAMICPORTREASSIGNDELAY 5\n")
    assert (found.boot_delay_s, found.down_report_s, found.up_report_s, found.reassign_s) == (180, 3600, 1800, 5)
    assert params("").lag_report_s is None
    assert params("LAGCRITICALSECONDS 5\nCHECKMINUTES 2\n").lag_report_s == 120
    assert params("LAGCRITICALSECONDS 5\nLAGREPORTSECONDS 7\n").lag_report_s == 7


@pytest.mark.parametrize(
    ("options", "rule", "unused"),
    [
        ("", PurgeRule("./dirdat/*"), []),
        ("USECHECKPOINTS, MINKEEPFILES 3", PurgeRule("./dirdat/*", 3, keep="MINKEEPFILES 3"), []),
        ("MINKEEPDAYS 2", PurgeRule("./dirdat/*", 1, 48, "MINKEEPDAYS 2"), []),
        ("MINKEEPHOURS 5, MINKEEPFILES 9", PurgeRule("./dirdat/*", 1, 5, "MINKEEPHOURS 5"), ["MINKEEPFILES 9"]),
        ("MINKEEPFILES 9, MINKEEPHOURS 5", PurgeRule("./dirdat/*", 1, 5, "MINKEEPHOURS 5"), ["MINKEEPFILES 9"]),
        ("MINKEEPHOURS 5, MINKEEPDAYS 2", PurgeRule("./dirdat/*", 1, 48, "MINKEEPDAYS 2"), ["MINKEEPHOURS 5"]),
        ("MINKEEPDAYS 2, MINKEEPHOURS 5", PurgeRule("./dirdat/*", 1, 5, "MINKEEPHOURS 5"), ["MINKEEPDAYS 2"]),
        ("FREQUENCYMINUTES 5", PurgeRule("./dirdat/*", every_s=300), []),
        ("FREQUENCYHOURS 2", PurgeRule("./dirdat/*", every_s=7200), []),
    ],
)
def test_what_purging_keeps_has_goldengates_precedence(options, rule, unused):
    """A time beats a number of files, the last of two times counts, and what is not used is told."""
    found = params(f"PURGEOLDEXTRACTS ./dirdat/*, {options}".rstrip(", ")).purge[0]
    assert (found.min_files, found.min_hours, found.keep, found.every_s) == (
        rule.min_files, rule.min_hours, rule.keep, rule.every_s,
    )  # fmt: skip
    assert [note.split(" is not used")[0] for note in found.notes] == unused


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("DYNAMICPORTLIST", "ports such as"),
        ("DYNAMICPORTLIST 7840-7850, 7860-7855", "ports from low to high"),
        ("DYNAMICPORTLIST 1-6000", "at most 5000 ports"),
        ("DYNAMICPORTLIST 0", "a whole number from 1 to 65535"),
        ("BOOTDELAYMINUTES x", "a whole number"),
        ("PURGEOLDEXTRACTS ./dirdat/*, MINKEEPWEEKS 1", "MINKEEPHOURS"),
        ("PURGEOLDEXTRACTS ./dirdat/*, FREQUENCYMINUTES", "a number behind each option"),
    ],
)
def test_mistakes_are_told(text, told):
    """File, line, what was expected."""
    with pytest.raises(ParamError) as error:
        params(f"-- comment\n{text}\n")
    assert "mgr.prm:2" in str(error.value)
    assert told in str(error.value)


# --- ports ------------------------------------------------------------------------------------------------------------


def test_a_port_rests_before_it_is_given_out_again():
    """DYNAMICPORTREASSIGNDELAY: offered last while it rests; a pool of one port still works."""
    pool, ranges = Pool(), ((7840, 7842), (7900, 7900))
    assert manager_ports.text(pool.offer(ranges, 0, 3)) == "7840-7842,7900"
    pool.ended(7841, 10)
    pool.ended(7840, 11)
    assert manager_ports.text(pool.offer(ranges, 12, 3)) == "7842,7900,7841,7840"
    assert manager_ports.text(pool.offer(ranges, 13.5, 3)) == "7841-7842,7900,7840"
    assert manager_ports.text(pool.offer(ranges, 15, 3)) == "7840-7842,7900"
    assert manager_ports.text(pool.offer(((7841, 7841),), 12, 3)) == "7841"


def test_the_pool_shows_every_port(home):
    """GETPORTINFO DETAIL: free, assigned, resting, and what another program took."""
    pool = Pool()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        pool.ended(4, 10)  # nobody listens down there
        rows = pool.rows(((port, port), (2, 6)), {2, 3}, 11, 3)
    assert [(row["first"], row["last"], row["state"], row["error"]) for row in rows] == [
        (port, port, "taken", 98), (2, 3, "assigned", 0), (4, 4, "resting", 0), (5, 6, "free", 0),
    ]  # fmt: skip


# --- purging by age ---------------------------------------------------------------------------------------------------


def fill(home, prefix: str = "lt") -> list[str]:
    """A trail of several files; their paths."""
    trail = TrailName.parse(f"./dirdat/{prefix}", home.root)
    writer = TrailWriter.open(RealFs(), trail, IDENTITY, max_bytes=5600, restart_open=True)
    for tx in SCRIPT:
        write_tx(writer, tx)
    writer.sync()
    writer.close()
    return [trail.path(seqno) for seqno in trail.seqnos(os.listdir(trail.folder))]


def stands(home, name: str, kind: str, seqno: int) -> None:
    """Save the checkpoint of a reader that is at the beginning of this file."""
    place = Place(seqno, 4096)
    save = Checkpoint(name, kind, (ReadCheckpoint("GGS Log Trail", place, place),))
    checkpoint.save(home.fs, home.checkpoint(name, kind), save)


def written(path: str, hours: float, now_us: int) -> None:
    """Make a file look last written so many hours before now."""
    at = now_us / 1e6 - hours * 3600
    os.utime(path, (at, at))


def goes(home, rule: PurgeRule, now_us: int) -> list[bool]:
    """Of each file: does it go?"""
    return [verdict.goes for verdict in manager_purge.verdicts(home, [rule], now_us)]


def test_minkeephours_keeps_what_is_young(home):
    """A file stays until its age is reached, however far the readers are; one from the future is as old as the next."""
    files, now = fill(home), time.time_ns() // 1000
    assert len(files) == 3
    good(home, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    stands(home, "PMP1", "EXTRACT", 1000)
    rule = PurgeRule("./dirdat/*", 1, 5, "MINKEEPHOURS 5")
    for path, hours in zip(files, (10, 4, 10), strict=True):
        written(path, hours, now)
    kept = manager_purge.verdicts(home, [rule], now)
    assert [verdict.goes for verdict in kept] == [True, False, False]
    assert kept[1].reason == "MINKEEPHOURS 5: last written 4.0 hours ago"
    assert goes(home, rule, now + 2 * HOUR_US) == [True, True, False]
    written(files[0], -3, now)
    kept = manager_purge.verdicts(home, [rule], now)
    assert [verdict.goes for verdict in kept] == [False] * 3
    assert kept[0].reason == "MINKEEPHOURS 5: last written 4.0 hours ago"
    written(files[0], 3, now)
    written(files[1], 10, now)
    kept = manager_purge.verdicts(home, [rule], now)
    assert [verdict.goes for verdict in kept] == [False] * 3
    assert kept[1].reason.startswith("an older file stays: MINKEEPHOURS 5")
    written(files[0], -3, now)
    assert goes(home, rule, now) == [True, True, False]


def test_only_the_rules_that_are_due_purge(home):
    """FREQUENCYMINUTES: each rule has its own time, and yet the first rule for a trail counts."""
    lt, rt = fill(home, "lt"), fill(home, "rt")
    for number, prefix in enumerate(("lt", "rt"), 1):
        good(home, f"ADD EXTRACT pmp{number}, EXTTRAILSOURCE ./dirdat/{prefix}")
        stands(home, f"PMP{number}", "EXTRACT", 1000)
    rules = [PurgeRule("./dirdat/lt"), PurgeRule("./dirdat/*")]
    now = time.time_ns() // 1000
    gone = list(manager_purge.purge(home, rules, now, {"./dirdat/*"}))
    assert [verdict.path for verdict in gone] == rt[:-1]
    gone = list(manager_purge.purge(home, rules, now, {"./dirdat/lt"}))
    assert [verdict.path for verdict in gone] == lt[:-1]


# --- why is this file kept --------------------------------------------------------------------------------------------


def test_every_file_has_an_answer(home):
    """Who still needs it, which rule is for it; files that no rule is for and trails that nobody reads too."""
    lt, rt, xx = fill(home, "lt"), fill(home, "rt"), fill(home, "xx")
    good(home, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    good(home, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/lt")
    good(home, "ADD REPLICAT rep2, EXTTRAIL ./dirdat/rt")
    seqno = TrailName.parse("./dirdat/lt", home.root).seqnos(os.listdir(home.folder("dirdat")))
    stands(home, "PMP1", "EXTRACT", seqno[2])
    stands(home, "REP1", "REPLICAT", seqno[1])
    stands(home, "REP2", "REPLICAT", 1000)
    answers = {v.path: v for v in manager_purge.explain(home, [PurgeRule("./dirdat/lt")], time.time_ns() // 1000)}
    assert set(answers) == {*lt, *rt, *xx}
    assert (answers[lt[0]].goes, answers[lt[0]].who, answers[lt[0]].rule) == (True, (), "./dirdat/lt")
    assert (answers[lt[1]].goes, answers[lt[1]].who) == (False, ("REP1",))
    assert answers[lt[1]].reason == f"REPLICAT REP1 needs file {seqno[1]} on; it is STOPPED"
    assert answers[lt[2]].who == ("REP1", "PMP1")
    assert (answers[rt[0]].goes, answers[rt[0]].reason, answers[rt[0]].rule) == (False, manager_purge.NO_RULE, "")
    assert answers[xx[0]].reason == "no registered group reads this trail"
    assert answers[xx[-1]].reason == "the trail's last file always stays"
    assert all(answers[path].size and answers[path].modified_us for path in answers)


def test_stale_registrations_are_named(home):
    """A reader that does not run and holds files, one whose trail is not there, one that is past a trail's end."""
    fill(home, "lt")
    good(home, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    good(home, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/zz")
    good(home, "ADD REPLICAT rep2, EXTTRAIL ./dirdat/lt")
    stands(home, "PMP1", "EXTRACT", 0)
    stands(home, "REP2", "REPLICAT", 1000)
    found = {row["group"]: row["why"] for row in manager_purge.stale(home)}
    assert "does not run and keeps" in found["PMP1"]
    assert "no file of the trail it reads" in found["REP1"]
    assert "was the trail deleted" in found["REP2"]
