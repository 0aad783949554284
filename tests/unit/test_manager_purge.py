"""What a purge must never take, and what must never keep it from going on: trails made anew, other homes, clocks."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace

import pytest

from demo.ports import free_port
from ggsci.manager import purge as manager_purge
from ggsci.manager.manager import Manager
from ggsci.manager.params import ManagerParams
from ggsci.manager.rules import HOUR, PurgeRule
from tests.support.homes import bad, good, make_home
from tests.support.trail_script import IDENTITY, SCRIPT, write_tx
from trails import checkpoint
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.clock import RealClock
from trails.errors import OperatorError
from trails.fs import RealFs
from trails.position import TrailName
from trails.reader import last_header
from trails.runtime.language.params import parse_text
from trails.runtime.process.loop import Stop
from trails.runtime.process.startup import Context
from trails.runtime.report.report import Log
from trails.testing import FakeClock
from trails.writer import TrailWriter

RULES = [PurgeRule("./dirdat/*")]


def fill(home, prefix: str = "lt", **mark) -> list[int]:
    """A trail of several files; their numbers."""
    trail = TrailName.parse(f"./dirdat/{prefix}", home.root)
    writer = TrailWriter.open(RealFs(), trail, replace(IDENTITY, **mark), max_bytes=5600, restart_open=True)
    for tx in SCRIPT:
        write_tx(writer, tx)
    writer.sync()
    writer.close()
    return seqnos(home, prefix)


def seqnos(home, prefix: str = "lt") -> list[int]:
    """The files there are."""
    return TrailName.parse(f"./dirdat/{prefix}", home.root).seqnos(os.listdir(home.folder("dirdat")))


def stands(home, name: str, kind: str, seqno: int, **extra) -> None:
    """Save the checkpoint of a reader that is at the beginning of this file."""
    place = Place(seqno, 4096)
    save = Checkpoint(name, kind, (ReadCheckpoint("GGS Log Trail", place, place),), extra=extra)
    checkpoint.save(home.fs, home.checkpoint(name, kind), save)


def purge(home, rules, now_us: int | None = None):
    """What a purge removes."""
    return list(manager_purge.purge(home, rules, now_us or time.time_ns() // 1000))


def trail_id(home, prefix: str = "lt") -> str:
    """As a reader's checkpoint names it."""
    return last_header(RealFs(), TrailName.parse(f"./dirdat/{prefix}", home.root)).trail_id.hex()


@pytest.fixture
def home(tmp_path):
    """A home with a trail, and a Replicat that is at its last file."""
    made = make_home(tmp_path / "home")
    good(made, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/lt")
    stands(made, "REP1", "REPLICAT", fill(made)[-1])
    return made


def test_a_reader_whose_registration_somebody_deleted_still_keeps_its_files(home):
    """Its checkpoint in this trail says that there was one; DELETE removes both. One in another trail says nothing."""
    good(home, "ADD REPLICAT rep2, EXTTRAIL ./dirdat/lt")
    stands(home, "REP2", "REPLICAT", 0, trail_id=trail_id(home))
    os.unlink(home.registration("REP2"))
    before = seqnos(home)
    assert purge(home, RULES) == [] and seqnos(home) == before
    reasons = {verdict.reason for verdict in manager_purge.explain(home, RULES, time.time_ns() // 1000)}
    assert any("REP2 has a checkpoint in it, no registration" in each for each in reasons)
    stands(home, "REP2", "REPLICAT", 0, trail_id="00" * 16)
    assert purge(home, RULES)


def test_who_read_a_trail_that_was_made_anew_is_past_none_of_its_files(home):
    """CW-17: the numbers begin at 0 again, the reader's checkpoint is of the trail before: nothing unread goes."""
    stands(home, "REP1", "REPLICAT", seqnos(home)[-1], trail_id=trail_id(home))
    for seqno in seqnos(home):
        os.unlink(TrailName.parse("./dirdat/lt", home.root).path(seqno))
    files = fill(home)
    assert purge(home, RULES) == []
    verdict = manager_purge.verdicts(home, RULES, 0)[0]
    assert "REP1 stood in another trail of this name, which was deleted and made anew" in verdict.reason
    stands(home, "REP1", "REPLICAT", files[-1], trail_id=trail_id(home))
    purge(home, RULES)
    assert seqnos(home) == files[-1:]


def test_a_trail_whose_last_file_cannot_be_read_is_kept(home):
    """Whether it is the reader's own can't be told then."""
    files = seqnos(home)
    stands(home, "REP1", "REPLICAT", files[-1], trail_id=trail_id(home))
    with open(TrailName.parse("./dirdat/lt", home.root).path(files[-1]), "r+b") as file:
        file.write(b"nonsense")
    assert purge(home, RULES) == []
    assert "the trail's last file can't be read" in manager_purge.verdicts(home, RULES, 0)[0].reason


def test_the_trail_of_another_home_is_never_purged_and_never_read_from_here(home, tmp_path):
    """CW-17: each home knows only its own readers, so a purge from outside, or a reader outside, would lose changes."""
    other = make_home(tmp_path / "other")
    text = bad(other, f"ADD REPLICAT rep2, EXTTRAIL {home.root}/dirdat/lt")
    assert f"lies in the home {home.root}, whose Manager would purge what this group still needs" in text
    assert "lies in the home" in bad(other, f"ADD EXTRACT pmp2, EXTTRAILSOURCE {home.root}/dirdat/lt")
    shutil.copy(home.registration("REP1"), other.registration("REP1"))
    path = other.registration("REP1")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace("./dirdat/lt", f"{home.root}/dirdat/lt"))
    files = seqnos(home)
    stands(other, "REP1", "REPLICAT", files[-1])
    rule = PurgeRule(f"{home.root}/dirdat/*")
    assert purge(other, [rule]) == []
    assert f"it lies in the home {home.root}" in manager_purge.verdicts(other, [rule], 0)[0].reason
    assert seqnos(home) == files


def test_a_clock_that_was_ahead_does_not_keep_files_for_as_long(home):
    """MINKEEPHOURS: a file of next year is as old as the one behind it; else no file behind it could ever go."""
    files = seqnos(home)
    now_s, trail = 1_700_000_000, TrailName.parse("./dirdat/lt", home.root)
    ages = {seqno: 100 - number for number, seqno in enumerate(files)}
    for seqno, hours in ages.items():
        os.utime(trail.path(seqno), (now_s - hours * HOUR,) * 2)
    ahead = files[1]
    os.utime(trail.path(ahead), (now_s + 8760 * HOUR,) * 2)
    rule = PurgeRule("./dirdat/*", min_hours=ages[files[2]], keep="MINKEEPHOURS")
    purge(home, [rule], now_s * 1_000_000)
    assert seqnos(home) == files[2:]


def test_a_clock_that_was_ahead_until_now_takes_nothing(home):
    """All files are of next year: they count as written now."""
    files = seqnos(home)
    for seqno in files:
        os.utime(TrailName.parse("./dirdat/lt", home.root).path(seqno), (2_000_000_000,) * 2)
    assert purge(home, [PurgeRule("./dirdat/*", min_hours=1, keep="MINKEEPHOURS 1")], 1_700_000_000_000_000) == []
    assert seqnos(home) == files


def test_the_first_rule_counts_by_whatever_path(home):
    """The same trail through a symbolic link is no second trail, for which a later rule would keep less."""
    os.symlink(home.folder("dirdat"), os.path.join(home.root, "link"))
    files = seqnos(home)
    purge(home, [PurgeRule("./dirdat/*", min_files=len(files)), PurgeRule("./link/*")])
    assert seqnos(home) == files


class Stubborn(RealFs):
    """A file system on which files of one trail can't be removed."""

    def remove(self, path: str) -> None:
        """Refuse for lt."""
        if os.path.basename(path).startswith("lt"):
            raise OperatorError(f"cannot remove {path}: Operation not permitted")
        super().remove(path)


def test_a_trail_that_cannot_be_purged_keeps_no_other_waiting(home):
    """Told, and all that can go goes."""
    good(home, "ADD REPLICAT rep2, EXTTRAIL ./dirdat/rt")
    files = fill(home, "rt")
    stands(home, "REP2", "REPLICAT", files[-1])
    stubborn = replace(home, fs=Stubborn())
    with pytest.raises(OperatorError, match="Operation not permitted"):
        purge(stubborn, RULES)
    assert seqnos(home, "rt") == files[-1:]
    assert len(seqnos(home)) > 1


class Slow(FakeClock):
    """Each look at it costs a second: a disk on which removing takes long."""

    def monotonic(self) -> float:
        """A second later than the last time."""
        self.sleep(1)
        return super().monotonic()


def test_a_long_purge_does_not_hold_up_the_manager(home):
    """Some files a turn, with the loop told to come back at once; in between it starts, answers and is alive."""
    text = f"PORT {free_port()}\nNOTLS\nCHECKMINUTES 60\nPURGEOLDEXTRACTS ./dirdat/*\n"
    rules = ManagerParams.from_statements(parse_text(text, "mgr.prm"), "mgr.prm")
    log, clock = Log(home, "Trailgate Manager", "mgr.prm", RealClock()), Slow()
    context = Context(home, home.fs, "MGR", "MANAGER", [], None, None, log, clock, Stop(), 0, home.prm("mgr"))
    made, files = Manager(context, rules), seqnos(home)
    try:
        left = []
        while made.step():
            left.append(len(seqnos(home)))
    finally:
        made.close()
    assert left == list(range(len(files) - 1, 0, -1))
