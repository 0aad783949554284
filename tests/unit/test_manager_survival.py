"""The Manager outlives its own death, its children's, a full disk and damaged files; on a clock that a test moves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from demo.ports import free_port
from ggsci.manager import children as manager_children
from ggsci.manager import lag as manager_lag
from ggsci.manager.children import CENSUS_SECONDS, HELD_SECONDS, SPACE_SECONDS, Children
from ggsci.manager.manager import FIXED, Manager, Timers
from ggsci.manager.notify import Notifier
from ggsci.manager.params import ManagerParams
from tests.support.homes import good, group, make_home, wait_for, write
from trails.errors import OperatorError, ParamError
from trails.runtime import registration, status
from trails.runtime.clock import RealClock
from trails.runtime.params import parse_text
from trails.runtime.process import Context, Stop
from trails.runtime.registration import Registration
from trails.runtime.report import Log, Report
from trails.runtime.status import ProcessFile
from trails.testing import FakeClock

# A group's process as the Manager knows one: it waits at a gate, takes the lock, writes the process file, and then has
# nothing to do.
GROUP = """
import os, sys, time
from trails.errors import LockedError
from trails.runtime import status
from trails.runtime.home import Home
from trails.runtime.status import ProcessFile
home = Home.at(sys.argv[1])
while sys.argv[2] and not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
try:
    lock = home.fs.lock(home.lock("R1"))
except LockedError as error:
    sys.exit(2)
status.write(home.fs, home.status("R1", "REPLICAT"), ProcessFile(os.getpid(), 1, "RUNNING"))
time.sleep(100)
"""


def params(text: str) -> ManagerParams:
    """mgr.prm with this text."""
    return ManagerParams.from_statements(parse_text(text, "mgr.prm"), "mgr.prm")


def log_of(home) -> Log:
    """A Manager's log."""
    return Log(home, "Trailgate Manager", "mgr.prm", RealClock())


def log_text(home) -> str:
    """ggserr.log."""
    return Path(home.ggserr).read_text() if os.path.exists(home.ggserr) else ""


@pytest.fixture
def home(tmp_path):
    """A home with a Replicat R1; what a test started in it is killed."""
    made = make_home(tmp_path / "home")
    good(made, "ADD REPLICAT r1, EXTTRAIL ./dirdat/rt")
    started: list[subprocess.Popen] = []
    made.__dict__["started"] = started
    yield made
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()


def like_a_group(home, gate: Path | str = ""):
    """The command line of GROUP in this home; it goes on once the file `gate` is there."""
    return [sys.executable, "-c", GROUP, home.root, str(gate)]


def by_hand(home) -> int:
    """Start the group's process without a Manager."""
    process = subprocess.Popen(like_a_group(home))
    home.__dict__["started"].append(process)
    return process.pid


class Team:
    """Children of one Manager, their program, and a clock that a test moves."""

    def __init__(self, home, rule: str, command=None, clock: FakeClock | None = None):
        self.home, self.clock = home, clock or FakeClock()
        self.children = Children(home, params(rule), log_of(home), self.clock, command or (lambda *_: ["false"]))

    @property
    def child(self):
        """What is known of R1."""
        return self.children.children.get("R1")

    @property
    def tries(self) -> int:
        """How often AUTORESTART has started R1 again."""
        return self.children.rows()[0]["retries"]

    def later(self, seconds: float) -> None:
        """Move time, and let the Manager look."""
        self.clock.sleep(seconds)
        self.children.look()


# --- deaths -----------------------------------------------------------------------------------------------------------


def test_cw_26_a_manager_killed_in_the_middle_of_a_start_leaves_one_process(home):
    """CW-26: its child has no lock yet, the next Manager starts another: one of them runs, and is watched."""
    gate = Path(home.root, "gate")
    first = Team(home, "AUTOSTART ER *", lambda *_: like_a_group(home, gate))
    first.children.adopt_and_start()
    home.__dict__["started"].append(first.child.process)  # from here on the first Manager is dead
    second = Team(home, "AUTOSTART ER *\nAUTORESTART ER *", lambda *_: like_a_group(home))
    second.children.adopt_and_start()
    home.__dict__["started"].append(second.child.process)
    gate.touch()

    def settled() -> bool:
        second.later(0.1)
        return bool(second.child and second.child.alive and second.child.pid == status_pid(home))

    both = {first.child.pid, second.child.pid}
    wait_for(lambda: status_pid(home) in both, 60)
    wait_for(lambda: any(p.poll() is not None for p in home.__dict__["started"]), 60)
    wait_for(settled, 60)
    assert "is down" not in log_text(home)


def status_pid(home):
    """Who holds R1."""
    return status.status_of(home, group(home, "R1")).pid


def test_what_a_person_started_by_hand_is_found_and_watched(home):
    """The census: no Manager started it, and yet its death is seen and mended; as JSON too, by its fields."""
    Path(home.globals).write_text("LOGFORMAT BOTH\n")
    team = Team(home, "AUTORESTART ER *, WAITSECONDS 0")
    team.children.adopt_and_start()
    assert team.child is None
    pid = by_hand(home)
    wait_for(lambda: status.status_of(home, group(home, "R1")).is_process, 60)
    team.later(CENSUS_SECONDS + 1)
    assert (team.child.pid, team.child.alive, team.child.row("R1")["watched"]) == (pid, True, "adopted")
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: team.children.look() or not team.child.alive or team.child.pid != pid, 60)
    assert "is down (exit code 3)" in log_text(home)
    events = [json.loads(line) for line in Path(home.ggserr_json).read_text().splitlines()]
    about = {"program": "REPLICAT", "group": "R1", "exit_code": 3}
    assert any(event["fields"] == about | {"process": pid} for event in events)
    assert any(event["fields"] == about | {"retry": 1, "retries": 2, "seconds": 0.0} for event in events)


def test_a_start_that_meets_a_command_of_ggsci_is_tried_again(home):
    """ALTER holds the group's lock for a moment: that is nothing a person must mend."""
    gate = Path(home.root, "gate")
    team = Team(home, "AUTORESTART ER *, WAITSECONDS 5", lambda *_: like_a_group(home, gate))
    team.children.start("R1")
    lock = home.fs.lock(home.lock("R1"))
    gate.touch()
    team.child.process.wait(60)
    team.children.look()
    lock.release()
    assert (team.child.code, team.child.retry_at is not None) == (3, True)
    assert f"process {os.getpid()} holds the group" in log_text(home)


def test_a_process_number_given_to_a_stranger_is_never_killed(home):
    """Between looking and killing the process may end and its number be given away: the lock is asked again."""
    team = Team(home, "")
    stranger = subprocess.Popen(["sleep", "100"])
    home.__dict__["started"].append(stranger)
    assert not team.children._kill(group(home, "R1"), stranger.pid)
    assert stranger.poll() is None
    assert not team.children._kill(group(home, "R1"), 2**22 + 1)


# --- starting by itself -----------------------------------------------------------------------------------------------


def test_gg_bootdelayminutes_waits_after_a_boot_only(home, monkeypatch):
    """Up for 1 of 3 minutes: AUTOSTART waits for 2; START does not; an old boot waits for nothing."""
    monkeypatch.setattr(manager_children, "uptime", lambda: 60.0)
    team = Team(home, "AUTOSTART ER *\nBOOTDELAYMINUTES 3", lambda *_: ["sleep", "100"])
    team.children.adopt_and_start()
    assert "BOOTDELAYMINUTES: nothing is started by itself for 2 minutes." in log_text(home)
    team.later(119)
    assert team.child is None
    team.later(2)
    assert team.child.alive
    home.__dict__["started"].append(team.child.process)
    monkeypatch.setattr(manager_children, "uptime", lambda: 600.0)
    again = Team(home, "AUTOSTART ER *\nBOOTDELAYMINUTES 3", lambda *_: ["sleep", "100"])
    again.children.adopt_and_start()
    assert again.child.alive
    home.__dict__["started"].append(again.child.process)


def test_nothing_is_started_while_the_disk_is_full_and_that_is_no_try(home):
    """Below DISKSTOP: said once, looked at again each few seconds, RETRIES untouched; then it starts."""
    full = ["dirdat: 1 MB of 100 GB free"]
    team = Team(home, "AUTOSTART ER *", lambda *_: ["sleep", "100"])
    team.children.no_space = lambda _group: full[0]
    team.children.adopt_and_start()
    for _ in range(5):
        team.later(SPACE_SECONDS)
    assert (team.child.alive, team.tries, team.child.row("R1")["waits_for"]) == (False, 0, full[0])
    assert log_text(home).count("REPLICAT R1 is not started yet: dirdat: 1 MB of 100 GB free") == 1
    full[0] = ""
    team.later(SPACE_SECONDS)
    assert team.child.alive
    home.__dict__["started"].append(team.child.process)


def test_a_program_that_could_not_be_started_is_tried_again_by_rule(home):
    """No memory or no descriptors for a moment: RETRIES bounds it, as any other try."""
    command = ["/nowhere/program"]
    team = Team(home, "AUTOSTART ER *\nAUTORESTART ER *, RETRIES 2, WAITSECONDS 1", lambda *_: command)
    team.children.adopt_and_start()
    assert team.child.retry_at is not None
    command[:] = ["sleep", "100"]
    team.later(2)
    assert team.child.alive
    home.__dict__["started"].append(team.child.process)


def test_tries_count_within_resetminutes(home):
    """RETRIES 2 within 100 seconds: a group that dies each 60 seconds is brought back for ever, each 20 is not."""
    for every, given_up in ((60, False), (20, True)):
        team = Team(
            home, "AUTORESTART ER *, RETRIES 2, WAITSECONDS 1, RESETSECONDS 100", lambda *_: ["sh", "-c", "exit 3"]
        )
        team.children.start("R1")
        for _ in range(6):
            if team.child.process:
                team.child.process.wait(60)
            team.children.look()
            team.later(every)
        assert ("did not help within 100 seconds" in log_text(home)) == given_up


TWICE = "AUTORESTART ER *, RETRIES 2, WAITSECONDS 1, RESETSECONDS 100"


def dying(*_):
    """A program that waiting could mend, and never does."""
    return ["sh", "-c", "exit 3"]


def test_tries_outlive_the_manager(home):
    """A group that dies again and again gets RETRIES in all within RESETMINUTES, not from each Manager anew."""
    status.write(home.fs, home.status("R1", "REPLICAT"), ProcessFile(2**22 + 1, 1, "ENDED", "A", 3, "away"))
    clock = FakeClock()

    def one_manager() -> tuple[int, bool]:
        """(tries, whether it started the group): it sees one death, and then dies itself."""
        team = Team(home, TWICE, dying, clock)
        team.children.adopt_and_start()
        team.later(0)
        if started := team.child.process:
            started.wait(60)
            team.children.look()
        return team.tries, started is not None

    assert [one_manager() for _ in range(4)] == [(1, True), (2, True), (2, False), (2, False)]
    assert log_text(home).count("2 restarts did not help within 100 seconds") == 3
    clock.sleep(100)
    assert one_manager() == (1, True)


def test_an_operators_start_and_a_deletion_forget_the_tries(home):
    """On disk too; a damaged note is told, and costs the count."""
    team = Team(home, TWICE, dying)
    path = Path(home.folder("dirpcs"), "MGR.tries")
    for name in ("R1", "GONE"):
        team.children._tries.add(name)
    team.children.start("R1")
    assert list(json.loads(path.read_text())) == ["GONE"]
    path.write_text('{"R1": 7}')
    assert Team(home, TWICE).children._tries.of("R1") == 0
    assert "AUTORESTART counts its tries anew" in log_text(home)
    team.child.process.wait(60)
    team.children.look()
    team.later(1)
    team.child.process.wait(60)
    team.children.look()
    good(home, "DELETE REPLICAT r1")
    team.later(CENSUS_SECONDS)
    assert path.read_text() == "{}"  # GONE was deleted while no Manager ran


@pytest.mark.parametrize("text", ["[]", '{"R1": [1]}', '{"R1": [1e400, 1]}', "[" * 100_000, "\xff"])
def test_a_damaged_note_of_tries_keeps_no_manager_from_starting(home, text):
    """Whatever stands there."""
    Path(home.folder("dirpcs"), "MGR.tries").write_text(text, encoding="latin-1")
    assert Team(home, TWICE).children._tries.of("R1") == 0
    assert "AUTORESTART counts its tries anew" in log_text(home)


def test_tries_are_counted_by_a_clock_that_may_be_wrong(home):
    """A count from a time that is yet to come begins now: it neither lasts for ever nor is lost."""
    clock = FakeClock()
    Team(home, TWICE, clock=clock).children._tries.add("R1")
    early = FakeClock(clock.now_us() - 3600 * 1_000_000)
    tries = Team(home, TWICE, clock=early).children._tries
    assert tries.within("R1", 100) == 1
    early.sleep(100)
    assert tries.within("R1", 100) == 0


def test_a_damaged_registration_hides_no_other_group(home):
    """Told once; R1 is started and watched all the same."""
    Path(home.registration("BAD")).write_text("{")
    team = Team(home, "AUTOSTART ER *", lambda *_: ["sleep", "100"])
    team.children.adopt_and_start()
    team.later(CENSUS_SECONDS + 1)
    assert team.child.alive
    home.__dict__["started"].append(team.child.process)
    assert log_text(home).count("Group BAD can't be looked after") == 1


def test_a_damaged_note_of_held_groups_is_told(home):
    """What an operator wants down may come up again: that must not be in silence."""
    Path(home.folder("dirpcs"), "MGR.held").write_text("{")
    assert Team(home, "").children._held == frozenset()
    assert "what was held down may be started again" in log_text(home)


def test_a_restart_that_meets_a_command_of_ggsci_is_made_after_it(home):
    """ALTER holds the group at the very moment: the restart, or AUTOSTART, is put off and not forgotten."""
    for rule in ("AUTOSTART ER *", "AUTORESTART ER *"):
        status.write(home.fs, home.status("R1", "REPLICAT"), ProcessFile(2**22 + 1, 1, "ENDED", "A", 3, "away"))
        team = Team(home, rule, lambda *_: ["sleep", "100"])
        if rule == "AUTORESTART ER *":
            team.children.adopt_and_start()
        lock = home.fs.lock(home.lock("R1"))
        team.children.adopt_and_start() if rule == "AUTOSTART ER *" else team.children.look()
        team.later(HELD_SECONDS)
        assert not (team.child and team.child.alive)
        lock.release()
        team.later(HELD_SECONDS)
        assert team.child.alive
        home.__dict__["started"].append(team.child.process)


def test_a_full_disk_never_makes_autorestart_give_up(home):
    """The disk is full, has space, is full again, ...: it is brought back each time, RETRIES untouched."""
    full = [""]
    team = Team(home, "AUTORESTART ER *, RETRIES 2, WAITSECONDS 60", lambda *_: ["sh", "-c", "exit 3"])
    team.children.no_space = lambda _group: full[0]
    team.children.start("R1")
    for _ in range(6):
        full[0] = "dirdat: 1 MB of 100 GB free"
        team.child.process.wait(60)
        ended = team.child.pid
        team.later(SPACE_SECONDS)
        assert (team.child.alive, team.child.waits_for) == (False, full[0])
        full[0] = ""
        team.later(SPACE_SECONDS)
        assert team.child.pid != ended
    assert team.tries == 0
    assert "did not help" not in log_text(home)


def test_a_group_that_cannot_be_looked_at_keeps_its_restart_and_its_neighbours(home):
    """A registration that can't be read for a while: told, the others are looked after, and then it is restarted."""
    good(home, "ADD REPLICAT r2, EXTTRAIL ./dirdat/rt")
    team = Team(home, "AUTORESTART ER *, WAITSECONDS 1", lambda *_: ["sh", "-c", "exit 3"])
    for name in ("R1", "R2"):
        team.children.start(name)
        team.children.children[name].process.wait(60)
    team.children.look()
    path, first = Path(home.registration("R1")), dict(team.children.children)
    text = path.read_text()
    path.write_text("{")
    for _ in range(20):
        team.later(1)
    assert team.children.children["R2"] is not first["R2"]
    assert team.child is first["R1"]
    assert log_text(home).count("Group R1 can't be looked after") == 1
    path.write_text(text)
    team.later(HELD_SECONDS)
    assert team.child is not first["R1"]
    for child in team.children.children.values():
        child.process.wait(60)


def test_a_process_whose_registration_is_damaged_is_still_there(home):
    """What runs is told by its lock: an adopted process is not taken for dead."""
    by_hand(home)
    wait_for(lambda: status.status_of(home, group(home, "R1")).is_process, 60)
    team = Team(home, "AUTORESTART ER *")
    team.children.adopt_and_start()
    Path(home.registration("R1")).write_text("{")
    team.later(CENSUS_SECONDS + 1)
    assert team.child.alive
    assert "is down" not in log_text(home)


def test_a_deleted_group_is_forgotten_and_a_task_is_left_alone(home):
    """CHILDSTATUS shows what is registered; AUTOSTART is not for tasks, and no program runs one."""
    team = Team(home, "AUTOSTART ER *", lambda *_: ["true"])
    registration.save(home, Registration("LOAD1", "EXTRACT", "SOURCEISTABLE"))
    team.children.adopt_and_start()
    assert sorted(team.children.children) == ["R1"]
    with pytest.raises(OperatorError, match="no program here runs such a group"):
        team.children.start("LOAD1")
    team.child.process.wait(60)
    team.children.look()
    good(home, "DELETE REPLICAT r1")
    team.later(CENSUS_SECONDS + 1)
    assert team.children.rows() == []


def test_refresh_takes_back_a_restart_that_no_rule_wants_any_more(home):
    """AUTORESTART was taken out of mgr.prm while a restart waited."""
    team = Team(home, "AUTORESTART ER *, WAITSECONDS 60", lambda *_: ["sh", "-c", "exit 3"])
    team.children.start("R1")
    team.child.process.wait(60)
    team.children.look()
    assert team.child.retry_at is not None
    team.children.refresh(params(""))
    team.later(61)
    assert (team.child.alive, team.child.retry_at) == (False, None)


def test_what_is_held_down_stays_so_when_that_cannot_be_noted(home):
    """KILL on a full disk: in force for this Manager, and told; START releases it."""
    os.mkdir(os.path.join(home.folder("dirpcs"), "MGR.held"))
    made = Team(home, "")
    made.children.hold("R1")
    assert made.children._held == {"R1"}
    assert "is known to this Manager only" in log_text(home)


# --- REFRESH, STATUS and reports --------------------------------------------------------------------------------------


@pytest.fixture
def manager(home):
    """A Manager made by hand, its mgr.prm on disk."""
    made = []

    def make(text: str):
        write(home, "mgr", f"PORT {free_port()}\nNOTLS\n{text}")
        path = home.prm("mgr")
        rules = params(Path(path).read_text())
        log = log_of(home)
        log.report = Report(home, "MGR")
        context = Context(home, home.fs, "MGR", "MANAGER", [], None, log.report, log, FakeClock(), Stop(), 7, path)
        made.append(Manager(context, rules))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_refresh_obeys_a_right_file_and_refuses_a_wrong_one_whole(home, manager):
    """REFRESH MANAGER: all but where it listens; a mistake leaves everything as it was."""
    made = manager("CHECKMINUTES 5\n")
    port = made.command("STATUS", {})["port"]
    write(home, "mgr", "PORT 7999\nNOTLS\nCHECKMINUTES 7\nAUTORESTART ER *\nFROBNICATE\n")
    with pytest.raises(ParamError, match="no such parameter"):
        made.command("REFRESH", {})
    assert made._params.check_s == 300
    assert "REFRESH refused, the parameters of before stay in force" in log_text(home)
    write(home, "mgr", "PORT 7999\nNOTLS\nCHECKMINUTES 7\nAUTORESTART ER *\n")
    assert made.command("REFRESH", {}) == {
        "changed": ["DYNAMICPORTLIST", "AUTORESTART", "CHECKMINUTES"], "kept": ["PORT"],
    }  # fmt: skip
    assert made._params.check_s == 420
    assert made._children._params.autorestart
    assert made._collectors._params.ports == ((8000, 8255),)
    assert made.command("STATUS", {})["port"] == port
    assert "port" in FIXED
    Path(home.globals).write_text("DISKWARN 1000%\n")
    with pytest.raises(ParamError, match="percentage"):
        made.command("REFRESH", {})


def test_status_tells_all_that_a_page_shows(home, manager):
    """Port, bind, start, children, Collectors, disk."""
    made = manager("")
    reply = made.command("STATUS", {})
    assert {"port", "bind", "started_us", "children", "collectors", "disk", "disks"} <= set(reply)
    assert (reply["bind"], reply["started_us"]) == ("127.0.0.1", 7)
    assert {"path", "free", "size", "warn", "stop", "state", "unit"} == set(reply["disk"])
    pool = made.command("GETPORTINFO", {})["pool"]
    assert sum(row["last"] - row["first"] + 1 for row in pool) == 256 or pool
    answer = made.command("GETPURGEOLDEXTRACTS", {})
    assert [row["group"] for row in answer["stale"]] == ["R1"]


def test_down_and_up_are_reported(home):
    """DOWNREPORT: a WARNING for what was stopped, by mistake perhaps, and for what abended; UPREPORT: INFO."""
    manager_lag.report_down(home, log_of(home), 1)
    assert "WARNING TG-00966" in log_text(home)
    assert "REPLICAT R1 is down (STOPPED)." in log_text(home)
    path = home.status("R1", "REPLICAT")
    status.write(home.fs, path, ProcessFile(1, 1, "ENDED", "A", 2, "wrong password"))
    manager_lag.report_down(home, log_of(home), 1)
    assert "REPLICAT R1 is down (ABENDED, exit code 2): wrong password" in log_text(home)
    manager_lag.report_up(home, log_of(home), 1)
    lock = home.fs.lock(home.lock("R1"))
    status.write(home.fs, path, ProcessFile(os.getpid(), 1, "RUNNING"))
    manager_lag.report_up(home, log_of(home), 1)
    lock.release()
    assert log_text(home).count("REPLICAT R1 is up") == 1


def test_chores_have_their_own_times():
    """At once or after the first time; None never; the loop sleeps until the next."""
    timers = Timers()
    assert [timers.turn("a", now, 10) for now in (0, 5, 10, 19, 21)] == [True, False, True, False, True]
    assert [timers.turn("b", now, 10, at_once=False) for now in (21, 30, 31)] == [False, False, True]
    assert not timers.turn("c", 0, None)
    assert timers.seconds(32) == 0
    assert timers.seconds(30) == 1


# --- systemd ----------------------------------------------------------------------------------------------------------


def test_systemd_is_told_what_the_manager_does(tmp_path, monkeypatch):
    """READY once, WATCHDOG three times within its time, STOPPING; children do not inherit the socket."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        server.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        monkeypatch.setenv("WATCHDOG_USEC", "30000000")
        notifier = Notifier()
        assert "NOTIFY_SOCKET" not in os.environ
        notifier.ready("Manager of here")
        for now in (1, 5, 12):
            notifier.alive(now)
        notifier.close()
        notifier.alive(100)
        said = [server.recv(1000).decode() for _ in range(4)]
    assert said == ["READY=1\nSTATUS=Manager of here", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"]
    Notifier().ready("nobody listens")


def test_what_a_manager_starts_at_once_does_not_inherit_systemds_socket(home, manager, monkeypatch, tmp_path):
    """AUTOSTART comes before READY."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    process = manager("AUTOSTART ER *\n")._children.children["R1"].process
    home.__dict__["started"].append(process)
    assert b"NOTIFY_SOCKET" not in Path(f"/proc/{process.pid}/environ").read_bytes()
