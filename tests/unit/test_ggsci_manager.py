"""The Manager's parts: parameters, purging, restarts by rule, lag reports. The Collector port has a file of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from demo.patience import PATIENCE
from demo.ports import free_port
from ggsci.manager import lag as manager_lag
from ggsci.manager import purge as manager_purge
from ggsci.manager.children import Children
from ggsci.manager.collectors import HandedOut
from ggsci.manager.manager import Manager
from ggsci.manager.params import ManagerParams
from ggsci.manager.rules import PurgeRule
from tests.support.beating import SECOND, beat, piped
from tests.support.homes import good, make_home
from tests.support.managing import log_of, log_text, params
from tests.support.trail_script import IDENTITY, SCRIPT, write_tx
from trails import checkpoint
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.clock import RealClock
from trails.errors import OperatorError, ParamError
from trails.fs import RealFs
from trails.heartbeat import entry_of
from trails.position import TrailName
from trails.runtime.home import status
from trails.runtime.home.status import ProcessFile
from trails.runtime.language.params import parse_text
from trails.runtime.process.loop import Stop
from trails.runtime.process.startup import Context
from trails.testing import FakeClock
from trails.writer import TrailWriter, WriterIdentity


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "home")


# --- mgr.prm ----------------------------------------------------------------------------------------------------------


def test_an_empty_file_has_safe_defaults():
    """The product's port, on this host only; nothing starts or goes by itself."""
    found = params("")
    assert (found.port, found.bind, found.ports, found.check_s) == (7809, "127.0.0.1", ((7810, 8065),), 600)
    assert not found.autostart + found.autorestart + found.purge


def test_every_keyword_is_understood():
    """Minutes and seconds, wildcards, kinds."""
    found = params(
        "PORT 7900\nBIND 0.0.0.0\nDYNAMICPORTLIST 7840-7850, 7900\nAUTOSTART ER *\nAUTOSTART EXTRACT ext*\n"
        "AUTORESTART REPLICAT r?, RETRIES 5, WAITMINUTES 1, RESETMINUTES 2\nAUTORESTART ER *, WAITSECONDS 3\n"
        "PURGEOLDEXTRACTS ./dirdat/*, USECHECKPOINTS, MINKEEPFILES 3\nCHECKSECONDS 7\n"
    )
    assert (found.port, found.bind, found.ports, found.check_s) == (7900, "0.0.0.0", ((7840, 7850), (7900, 7900)), 7)
    rule = found.restart_rule("REPLICAT", "R1")
    assert (rule.retries, rule.wait_s, rule.reset_s) == (5, 60, 120)
    assert found.restart_rule("EXTRACT", "R1").wait_s == 3
    assert found.purge == (PurgeRule("./dirdat/*", 3, keep="MINKEEPFILES 3"),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("PROT 1", "did you mean PORT"),
        ("PORT 0", "a whole number from 1 to 65535"),
        ("DYNAMICPORTLIST 9-8", "ports from low to high"),
        ("AUTOSTART *", "ER, EXTRACT or REPLICAT"),
        ("AUTORESTART ER *, RETRYS 1", "RETRIES n"),
        ("AUTORESTART ER *, RETRIES", "a number behind each option"),
        ("PURGEOLDEXTRACTS ./dirdat/*, NOUSECHECKPOINTS", "can't be had"),
        ("PURGEOLDEXTRACTS ./dirdat/*, MINKEEPFILES 0", "a whole number from 1"),
        ("BIND localhost", "an IP address"),
    ],
)
def test_mistakes_are_told_with_their_line(text, told):
    """File, line, what was expected."""
    with pytest.raises(ParamError) as error:
        params(f"-- comment\n{text}\n")
    assert "mgr.prm:2" in str(error.value)
    assert told in str(error.value)


# --- purging ----------------------------------------------------------------------------------------------------------

RULES = [PurgeRule("./dirdat/*")]


def purge(home, rules):
    """What a purge removes now."""
    return list(manager_purge.purge(home, rules, time.time_ns() // 1000))


def fill(home) -> list[int]:
    """A trail of several files; their numbers."""
    trail = TrailName.parse("./dirdat/lt", home.root)
    writer = TrailWriter.open(RealFs(), trail, IDENTITY, max_bytes=5600, restart_open=True)
    for tx in SCRIPT:
        write_tx(writer, tx)
    writer.sync()
    writer.close()
    return seqnos(home)


def seqnos(home) -> list[int]:
    """The files there are."""
    return TrailName.parse("./dirdat/lt", home.root).seqnos(os.listdir(home.folder("dirdat")))


def stands(home, name: str, kind: str, seqno: int) -> None:
    """Save the checkpoint of a reader that is at the beginning of this file."""
    place = Place(seqno, 4096)
    save = Checkpoint(name, kind, (ReadCheckpoint("GGS Log Trail", place, place),))
    checkpoint.save(home.fs, home.checkpoint(name, kind), save)


def test_nothing_unread_is_purged(home):
    """CW-17: a file goes when every registered reader is past it; without one checkpoint file nothing goes."""
    files = fill(home)
    assert purge(home, RULES) == []  # no registered reader
    good(home, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    good(home, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/lt")
    stands(home, "PMP1", "EXTRACT", files[-1])
    assert purge(home, RULES) == []  # REP1 has no checkpoint
    stands(home, "REP1", "REPLICAT", files[2])
    for name in os.listdir(home.folder("dirchk")):
        os.rename(os.path.join(home.folder("dirchk"), name), os.path.join(home.root, name))
    assert purge(home, RULES) == []  # every file in dirchk is gone
    for name in ("PMP1.cpe", "REP1.cpr"):
        os.rename(os.path.join(home.root, name), os.path.join(home.folder("dirchk"), name))
    gone = purge(home, RULES)
    assert [verdict.path for verdict in gone] == [
        TrailName.parse("./dirdat/lt", home.root).path(seqno) for seqno in files[:2]
    ]
    assert seqnos(home) == files[2:]


def test_minkeepfiles_and_the_pattern_bound_what_goes(home):
    """So many files stay, and other trails are left alone; the last file always stays."""
    files = fill(home)
    good(home, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    stands(home, "PMP1", "EXTRACT", files[-1] + 1)
    assert purge(home, [PurgeRule("./dirdat/rt")]) == []
    purge(home, [PurgeRule("./dirdat/l*", 3)])
    assert seqnos(home) == files[-3:]
    purge(home, RULES)
    assert seqnos(home) == files[-1:]
    reasons = [verdict.reason for verdict in manager_purge.verdicts(home, RULES, time.time_ns() // 1000)]
    assert reasons == ["the trail's last file always stays"]


def test_a_reader_through_a_symbolic_link_counts(home):
    """The same trail by another path (I2): its reader's files stay too."""
    files = fill(home)
    os.symlink(home.folder("dirdat"), os.path.join(home.root, "trails"))
    good(home, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    good(home, f"ADD REPLICAT rep1, EXTTRAIL {home.root}/trails/lt")
    stands(home, "PMP1", "EXTRACT", files[-1])
    stands(home, "REP1", "REPLICAT", files[1])
    purge(home, RULES)
    assert seqnos(home) == files[1:]


# --- restarts ---------------------------------------------------------------------------------------------------------


class Group:
    """Children with one Replicat whose program is `sh -c script`, on a clock that a test moves."""

    def __init__(self, home, script: str, rule: str = "AUTORESTART ER *, RETRIES 2, WAITSECONDS 60, RESETSECONDS 600"):
        good(home, "ADD REPLICAT r1, EXTTRAIL ./dirdat/rt")
        self.home, self.clock = home, FakeClock()
        self.children = Children(home, params(rule), log_of(home), self.clock, lambda *_: ["sh", "-c", script])

    @property
    def child(self):
        """What is known of it."""
        return self.children.children["R1"]

    @property
    def tries(self) -> int:
        """How often AUTORESTART has started it again."""
        return self.children.rows()[0]["retries"]

    def end(self) -> None:
        """Wait until its process has ended, and let the Manager see it."""
        process = self.child.process
        process.wait(PATIENCE)
        self.children.look()

    def later(self, seconds: float) -> None:
        """Move time, and let the Manager look."""
        self.clock.sleep(seconds)
        self.children.look()


@pytest.mark.parametrize(
    ("script", "code", "restarts"),
    [
        ("exit 0", 0, False),
        ("exit 1", 1, True),
        ("echo the target lacks a column; exit 2", 2, False),
        ("exit 3", 3, True),
        ("kill -9 $$", 3, True),
    ],
)
def test_who_must_act_decides_about_a_restart(home, script, code, restarts):
    """Only exit code 2 is not tried again: a person must act first."""
    group = Group(home, script)
    group.children.start("R1")
    group.end()
    assert group.child.code == code
    assert (group.child.retry_at is not None) == restarts
    if code == 2:
        assert "the target lacks a column" in log_text(home)


def test_a_recorded_code_is_believed_before_the_systems(home):
    """The process file of that very process tells; one of an earlier run does not."""
    group = Group(home, "exit 3")
    pid = group.children.start("R1")
    note = ProcessFile(pid, 1, "ENDED", "A", 2, "wrong password")
    status.write(home.fs, home.status("R1", "REPLICAT"), note)
    group.end()
    assert (group.child.code, group.child.message, group.child.retry_at) == (2, "wrong password", None)


def test_restarts_wait_are_counted_and_end(home):
    """RETRIES in a row, each after the wait; then the next come when RESETMINUTES have passed, and that is said."""
    group = Group(home, "exit 3")
    first = group.children.start("R1")
    group.end()
    group.later(59)
    assert group.child.pid == first
    for number in (1, 2):
        group.later(61)
        assert (group.tries, group.child.pid != first) == (number, True)
        group.end()
    assert "2 restarts did not help within 10 minutes; it is tried again in 7 minutes." in log_text(home)
    last = group.child.pid
    group.later(400)
    assert group.child.pid == last
    group.later(100)
    assert group.child.pid != last
    group.end()
    group.later(61)
    assert group.tries == 1


def test_a_fault_of_ours_is_tried_twice_and_counted_apart(home):
    """One bad moment is no reason to stand all night; a fault that comes again stays down, whatever RETRIES says."""
    group = Group(
        home, "if [ -e away ]; then rm away; exit 3; fi; exit 1", "AUTORESTART ER *, RETRIES 9, WAITSECONDS 60"
    )
    Path(home.root, "away").touch()
    group.children.start("R1")
    codes = []
    for _ in range(3):  # one after the lost peer, two after the fault
        group.end()
        codes.append(group.child.code)
        group.later(61)
    group.end()
    assert (codes, group.child.code, group.child.retry_at) == ([3, 1, 1], 1, None)
    assert "2 restarts did not help" in log_text(home)


def test_a_long_run_starts_the_count_anew(home):
    """RESETMINUTES: tries count within that time; a group that ran longer has its full number of them again."""
    group = Group(home, "read line < fifo; exit 3")
    os.mkfifo(os.path.join(home.root, "fifo"))
    group.children.start("R1")
    group.children._tries.add("R1")
    group.children._tries.add("R1")
    group.later(601)
    with open(os.path.join(home.root, "fifo"), "w") as fifo:
        fifo.write("go\n")
    group.end()
    assert (group.tries, group.child.retry_at is not None) == (0, True)


def test_what_the_operator_wants_down_stays_down(home):
    """HOLD cancels a restart that waits, and is remembered by the next Manager until START."""
    group = Group(home, "exit 3")
    group.children.start("R1")
    group.end()
    group.children.hold("R1")
    group.later(1000)
    assert not group.child.alive
    assert group.tries == 0
    note = ProcessFile(1, 1, "RUNNING", "A")
    status.write(home.fs, home.status("R1", "REPLICAT"), note)
    again = Children(home, params("AUTORESTART ER *"), log_of(home), FakeClock(), lambda *_: ["false"])
    again.adopt_and_start()
    assert again.children["R1"].retry_at is None


def test_a_program_that_cannot_be_started_is_an_error_of_the_request(home):
    """The Manager goes on."""
    group = Group(home, "")
    group.children._command = lambda *_: ["/nowhere/program"]
    with pytest.raises(OperatorError, match="can't be started"):
        group.children.start("R1")
    with pytest.raises(OperatorError, match="does not exist"):
        group.children.start("NOPE")
    with pytest.raises(OperatorError, match="is not running"):
        group.children.kill("R1")


def test_a_command_that_holds_the_lock_is_neither_killed_nor_watched(home):
    """ALTER or REGISTER in another ggsci: KILL leaves it alone, and its end is no death that AUTORESTART mends."""
    group = Group(home, "sleep 60")
    holder = home.fs.lock(home.lock("R1"))  # this very process, which would be killed
    group.children.adopt_and_start()
    assert "R1" not in group.children.children
    with pytest.raises(OperatorError, match=f"held by process {os.getpid()}, which is not its own"):
        group.children.kill("R1")
    holder.release()


# --- what must not end the Manager ------------------------------------------------------------------------------------


class Unfitting:
    """A Manager made by hand in a home, whose chores meet what they can't read."""

    def __init__(self, home, text: str = "CHECKSECONDS 1\nLAGREPORTSECONDS 1\nPURGEOLDEXTRACTS ./dirdat/*\n"):
        rules = ManagerParams.from_statements(parse_text(f"PORT {free_port()}\n{text}", "mgr.prm"), "mgr.prm")
        self.log, self.clock = log_of(home), FakeClock()
        path = home.prm("mgr")
        context = Context(home, home.fs, "MGR", "MANAGER", [], None, None, self.log, self.clock, Stop(), 0, path)
        self.manager = Manager(context, rules)


def test_a_damaged_registration_does_not_end_the_manager(home):
    """Purging and the lag report say so and are tried again; the other groups keep who restarts them."""
    made = Unfitting(home)
    try:
        with open(home.registration("BAD"), "w") as file:
            file.write("{")
        fill(home)
        made.manager.step()
    finally:
        made.manager.close()
    text = log_text(home)
    assert "Purging failed: " in text
    assert "The lag report failed: " in text
    assert home.registration("BAD") in text


def test_a_full_disk_does_not_end_the_manager(home):
    """CW-28: what can't be logged or noted is lost; a restart that is due is made all the same."""
    group = Group(home, "exit 3")
    made = Unfitting(home)
    group.children._log = made.log
    try:
        group.children.start("R1")
        os.rename(home.ggserr, home.ggserr + ".old")
        os.mkdir(home.ggserr)
        group.end()
        assert group.child.retry_at is not None
        made.manager._collectors._running["x"] = HandedOut(2**22 + 1, "p", "x", 1, 1, 1)
        os.mkdir(made.manager._collectors._noted.path)
        made.manager.step()
        assert made.manager._collectors.rows() == []
    finally:
        made.manager.close()


# --- lag reports ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_s", "lag_s", "severity"),
    [(1, 4, None), (1, 5, "INFO"), (1, 60, "WARNING"), (1000, 0, "WARNING")],
)
def test_a_lag_over_a_bound_is_reported(home, age_s, lag_s, severity):
    """INFO over LAGINFO, WARNING over LAGCRITICAL, and WARNING where the figure is stale and so can't be known."""
    good(home, "ADD REPLICAT r1, EXTTRAIL ./dirdat/rt")
    now = 1_700_000_000_000_000
    save = Checkpoint("R1", "REPLICAT", saved_us=now - age_s * 1_000_000, lag_us=lag_s * 1_000_000)
    checkpoint.save(home.fs, home.checkpoint("R1", "REPLICAT"), save)
    rules = params("LAGREPORTMINUTES 1\nLAGINFOSECONDS 5\nLAGCRITICALMINUTES 1\n")
    manager_lag.report(home, rules, log_of(home), now)
    assert "Lag for" not in log_text(home)  # it does not run
    lock = home.fs.lock(home.lock("R1"))
    status.write(home.fs, home.status("R1", "REPLICAT"), ProcessFile(os.getpid(), now, "RUNNING"))
    manager_lag.report(home, rules, log_of(home), now)
    lock.release()
    lines = [line for line in log_text(home).splitlines() if "Lag for REPLICAT R1" in line]
    assert [line.split()[2] for line in lines] == ([severity] if severity else [])
    if age_s == 1000:
        assert "is UNKNOWN (checkpoint updated 00:16:40 ago" in lines[0]


@pytest.mark.parametrize(
    ("ago_s", "every_s", "told"),
    [(5, 60, None), (300, 60, "WARNING"), (300, 0, None), (5, 60, "WARNING unknown")],
)
def test_GG_19_a_heartbeat_that_does_not_come_is_reported(home, ago_s, every_s, told):
    """Though the group itself, at the end of its trail, has no lag; heartbeats that are paused are no news."""
    good(home, "ADD REPLICAT r1, EXTTRAIL ./dirdat/rt")
    pump = WriterIdentity("e" * 32, "PMP1", "there", {"kind": "postgresql", "database": "shop"})
    TrailWriter.open(home.fs, TrailName(home.folder("dirdat"), "rt"), pump, restart_open=True).close()
    now = RealClock().now_us()
    entry = entry_of(piped(beat(now - ago_s * SECOND - SECOND, every=every_s)), "copy")
    lag = None if told == "WARNING unknown" else 0
    save = Checkpoint("R1", "REPLICAT", saved_us=now, lag_us=lag, extra={"heartbeats": [entry]})
    checkpoint.save(home.fs, home.checkpoint("R1", "REPLICAT"), save)
    lock = home.fs.lock(home.lock("R1"))
    status.write(home.fs, home.status("R1", "REPLICAT"), ProcessFile(os.getpid(), now, "RUNNING"))
    manager_lag.report(home, params("LAGREPORTMINUTES 1\nLAGINFOSECONDS 5\nLAGCRITICALMINUTES 1\n"), log_of(home), now)
    lock.release()
    lines = [line for line in log_text(home).splitlines() if "lag" in line.lower()]
    assert [line.split()[2] for line in lines] == ([told.split()[0]] if told else [])
    if told == "WARNING":
        assert "Heartbeat lag of EXT1 ==> PMP1 at R1 is UNKNOWN (received 00:05:00 ago: no heartbeat" in lines[0]
    elif told:
        assert "Lag for REPLICAT R1 is UNKNOWN" in lines[0]
