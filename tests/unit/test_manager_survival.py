"""The Manager outlives its own death, its children's, a full disk and damaged files; on a clock that a test moves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from demo.patience import PATIENCE, wait_for
from ggsci.flow import pipelines
from ggsci.manager import children as manager_children
from ggsci.manager.children import CENSUS_SECONDS, HELD_SECONDS, SPACE_SECONDS
from ggsci.views.view import stamp
from ggsci.web import panels
from tests.support.homes import answering, as_json, bad, good, group
from tests.support.managing import Team, by_hand, home_of_a_manager, like_a_group, log_text, params
from trails.host import THIS_HOST
from trails.runtime.home import registration, status
from trails.runtime.home.home import MANAGER
from trails.runtime.home.registration import Registration
from trails.runtime.home.status import ProcessFile
from trails.testing import FakeClock


@pytest.fixture
def home(tmp_path):
    yield from home_of_a_manager(tmp_path)


# --- deaths -----------------------------------------------------------------------------------------------------------


def test_a_manager_killed_in_the_middle_of_a_start_leaves_one_process(home):
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
    wait_for(lambda: status_pid(home) in both)
    wait_for(lambda: any(p.poll() is not None for p in home.__dict__["started"]))
    wait_for(settled)
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
    wait_for(lambda: status.status_of(home, group(home, "R1")).is_process)
    team.later(CENSUS_SECONDS + 1)
    assert (team.child.pid, team.child.alive, team.child.row("R1")["watched"]) == (pid, True, "adopted")
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: team.children.look() or not team.child.alive or team.child.pid != pid)
    assert "is down (exit code 3)" in log_text(home)
    events = [json.loads(line) for line in Path(home.ggserr_json).read_text().splitlines()]
    about = {"program": "REPLICAT", "group": "R1", "exit_code": 3}
    assert any(event["fields"] == about | {"process": pid} for event in events)
    assert any(event["fields"] == about | {"retry": 1, "retries": 2, "seconds": 0.0} for event in events)


def test_what_a_person_started_dies_between_two_looks(home):
    """Nobody watched it, and yet its death is a death: by its process file, which says of another run than before."""
    team = Team(home, "AUTORESTART ER *, WAITSECONDS 30")
    team.children.adopt_and_start()
    for _ in range(2):
        before = status_started(home)
        pid = by_hand(home)
        wait_for(lambda before=before: status_started(home) not in (None, before))
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not status.status_of(home, group(home, "R1")).status.is_alive)
        team.later(CENSUS_SECONDS + 1)
        assert (team.child.code, team.child.alive, team.child.retry_at is not None) == (3, False, True)
        team.child.retry_at = None
        team.later(CENSUS_SECONDS + 1)
        assert team.child.retry_at is None
    assert log_text(home).count("died without a word") == 2


@pytest.mark.parametrize("at_start", [True, False])
def test_a_process_that_had_lost_its_lock_for_a_moment_is_watched_again(home, at_start):
    """It takes its lock anew between two looks of the Manager; its death behind that is a death as any other."""
    team = Team(home, "AUTORESTART ER *, WAITSECONDS 1")
    pid = by_hand(home)
    wait_for(lambda: status.status_of(home, group(home, "R1")).is_process)
    if not at_start:
        team.children.adopt_and_start()
    lock, aside = home.lock("R1"), f"{home.lock('R1')}.aside"
    os.rename(lock, aside)
    team.children._census() if at_start else team.children.look()
    os.rename(aside, lock)
    team.children._start_automatically() if at_start else team.later(1.5)
    assert (team.child.pid, team.child.alive) == (pid, True)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: team.children.look() or not team.child.alive)
    assert (team.child.code, team.child.retry_at is not None) == (3, True)


def test_the_end_of_an_earlier_run_with_the_same_process_number_is_not_this_ones(home):
    """After a boot numbers begin anew: the process file tells of an end for good, and this one was killed."""
    status.write(home.fs, home.status("R1", "REPLICAT"), ProcessFile(4711, 1, "ENDED", "A", 2, "no such column"))
    team = Team(home, "AUTORESTART ER *, WAITSECONDS 30", lambda *_: ["sleep", "100"])
    team.children.start("R1")
    process = team.child.process
    home.__dict__["started"].append(process)
    team.child.pid = 4711
    process.kill()
    process.wait()
    team.children.look()
    assert (team.child.code, team.child.retry_at is not None) == (3, True)
    assert "no such column" not in log_text(home)


def test_a_start_that_another_was_before_and_the_others_death_between_two_looks(home):
    """The child says that the group is held (exit code 2); who held it is dead since, and that is what counts."""
    gate = Path(home.root, "gate")
    team = Team(home, "AUTORESTART ER *, WAITSECONDS 30", lambda *_: like_a_group(home, gate))
    team.children.adopt_and_start()
    team.children.start("R1")
    other = by_hand(home)
    wait_for(lambda: status_pid(home) == other and status_started(home))
    gate.touch()
    assert team.child.process.wait(PATIENCE) == 2
    os.kill(other, signal.SIGKILL)
    wait_for(lambda: not status.status_of(home, group(home, "R1")).status.is_alive)
    team.later(CENSUS_SECONDS + 1)
    team.later(CENSUS_SECONDS + 1)
    assert (team.child.code, team.child.alive, team.child.retry_at is not None) == (3, False, True)


def status_started(home):
    """When the last run of R1 began."""
    return status.status_of(home, group(home, "R1")).started_us


def test_a_command_with_the_number_of_a_dead_process_is_not_that_process(home):
    """It holds the lock, as ALTER does; the process file of before the boot names its number, and another birth."""
    lock = home.fs.lock(home.lock("R1"))
    for birth, shown in (("1 ticks after boot of long ago", "STARTING"), (THIS_HOST.birth(os.getpid()), "RUNNING")):
        note = ProcessFile(os.getpid(), 1, "RUNNING", birth=birth)
        status.write(home.fs, home.status("R1", "REPLICAT"), note)
        assert status.status_of(home, group(home, "R1")).status == shown
    lock.release()


def test_a_start_that_meets_a_command_of_ggsci_is_tried_again(home):
    """ALTER holds the group's lock for a moment: that is nothing a person must mend."""
    gate = Path(home.root, "gate")
    team = Team(home, "AUTORESTART ER *, WAITSECONDS 5", lambda *_: like_a_group(home, gate))
    team.children.start("R1")
    lock = home.fs.lock(home.lock("R1"))
    gate.touch()
    team.child.process.wait(PATIENCE)
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


def test_a_group_that_waits_for_disk_space_says_so(home):
    """The Manager holds it back: INFO, SEND STATUS, JSON and the page's stage say for what; then it is only down."""
    status.write(home.fs, home.status("R1", "REPLICAT"), ProcessFile(2**22 + 1, 1, "ENDED", "A", 3, "disk full"))
    full = ["dirdat: 1 MB of 100 GB free, less than DISKSTOP in GLOBALS allows"]
    team = Team(home, "AUTORESTART ER *", lambda *_: ["sleep", "100"])
    team.children.no_space = lambda _group: full[0]
    team.children.adopt_and_start()
    waits = f"Waiting for disk space: {full[0]}"
    with answering(home, MANAGER, lambda _verb, _args: {"children": team.children.rows()}):
        text = good(home, "INFO r1")
        assert f"Waits                {waits}" in text
        assert "Last Error           disk full" in text
        assert as_json(home, "INFO r1")[0]["waits"] == waits
        assert f"is not currently running (status ABENDED): {waits}" in bad(home, "SEND r1, STATUS")
        found = pipelines.gather(home, 0)
        (problem,) = panels.problems(found, [])
        assert (found[0].stages[-1].lag_why, problem.text) == (f"ABENDED: {waits}", waits)
        team.children.hold("R1")
        assert "Waits" not in good(home, "INFO r1")
    assert "Last Error           disk full" in good(home, "INFO r1")  # and nobody waits for a Manager that is down


def test_a_group_that_waits_for_its_restart_says_so(home):
    """AUTORESTART's time comes: until then INFO and the page say when, and for what it ended, once."""
    why = "the target database can't be reached"
    status.write(home.fs, home.status("R1", "REPLICAT"), ProcessFile(2**22 + 1, 1, "ENDED", "A", 3, why))
    team = Team(home, "AUTORESTART ER *, WAITMINUTES 5", lambda *_: ["sleep", "100"])
    team.children.adopt_and_start()
    team.child.retry_us = 1_700_000_000_000_000
    waits = f"Waiting for its restart (AUTORESTART) at {stamp(team.child.retry_us)}: {why}"
    with answering(home, MANAGER, lambda _verb, _args: {"children": team.children.rows()}):
        text = good(home, "INFO r1")
        assert f"Waits                {waits}" in text
        assert text.count(why) == 1
        (problem,) = panels.problems(pipelines.gather(home, 0), [])
        assert problem.text == waits
    assert f"Last Error           {why}" in good(home, "INFO r1")


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
                team.child.process.wait(PATIENCE)
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
            started.wait(PATIENCE)
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
    team.child.process.wait(PATIENCE)
    team.children.look()
    team.later(1)
    team.child.process.wait(PATIENCE)
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
        team.child.process.wait(PATIENCE)
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
        team.children.children[name].process.wait(PATIENCE)
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
        child.process.wait(PATIENCE)


def test_a_process_whose_registration_is_damaged_is_still_there(home):
    """What runs is told by its lock: an adopted process is not taken for dead."""
    by_hand(home)
    wait_for(lambda: status.status_of(home, group(home, "R1")).is_process)
    team = Team(home, "AUTORESTART ER *")
    team.children.adopt_and_start()
    Path(home.registration("R1")).write_text("{")
    team.later(CENSUS_SECONDS + 1)
    assert team.child.alive
    assert "is down" not in log_text(home)


def test_a_deleted_group_is_forgotten_and_a_task_is_left_alone(home):
    """CHILDSTATUS shows what is registered; AUTOSTART and AUTORESTART are not for tasks, which begin anew."""
    team = Team(home, "AUTOSTART ER *\nAUTORESTART ER *, WAITSECONDS 60", lambda *_: ["sh", "-c", "exit 3"])
    registration.save(home, Registration("LOAD1", "EXTRACT", "SOURCEISTABLE"))
    team.children.adopt_and_start()
    assert sorted(team.children.children) == ["R1"]
    team.children.start("LOAD1")
    task = team.children.children["LOAD1"]
    for child in (task, team.child):
        assert child.process is not None
        child.process.wait(PATIENCE)
    team.children.look()
    assert (task.code, task.retry_at) == (3, None) and team.child.retry_at is not None
    good(home, "DELETE REPLICAT r1")
    good(home, "DELETE EXTRACT load1")
    team.later(CENSUS_SECONDS + 1)
    assert team.children.rows() == []


def test_refresh_takes_back_a_restart_that_no_rule_wants_any_more(home):
    """AUTORESTART was taken out of mgr.prm while a restart waited."""
    team = Team(home, "AUTORESTART ER *, WAITSECONDS 60", lambda *_: ["sh", "-c", "exit 3"])
    team.children.start("R1")
    team.child.process.wait(PATIENCE)
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
