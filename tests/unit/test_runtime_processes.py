"""Real processes of a tiny program: how they start, stop, die, refuse, and what is left for the next one to find."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.patience import PATIENCE, wait_for
from ggsci import facts
from ggsci.commands import asking
from tests.support.homes import as_json, bad, good
from tests.support.tiny import Running, ask, group_status, make_home, no_process_stays, parameters, read, until_status
from trails import checkpoint
from trails.errors import AwayError
from trails.runtime.home.home import Home
from trails.runtime.home.status import GroupStatus, Status, manager_status


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with group EXT1."""
    return make_home(tmp_path / "home")


@pytest.fixture(autouse=True)
def _no_process_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from no_process_stays(monkeypatch)


# --- a run as asked -------------------------------------------------------------------------------------------------


def test_a_run_from_start_to_stop(home: Home) -> None:
    """SIGTERM wakes it out of ten minutes' sleep; it saves, closes, and shows STOPPED with code 0."""
    assert group_status(home) == GroupStatus(Status.STOPPED)
    parameters(home, "CHECKPOINTSECS 3600\n")
    tiny = Running(home).up()
    running = group_status(home)
    assert (running.status, running.pid) == (Status.RUNNING, tiny.process.pid)
    assert tiny.end(signal.SIGTERM) == (0, "")
    ended = group_status(home)
    assert (ended.status, ended.exit_code, ended.stop) == (Status.STOPPED, 0, "G")
    (saved,) = checkpoint.load(home.fs, home.checkpoint("EXT1", "EXTRACT"))
    assert (saved.stop_status, saved.started_us, saved.extra) == ("G", running.started_us, {"flushed": True})
    assert not os.path.exists(home.control("EXT1"))


def test_the_report_and_the_log_tell_the_run(home: Home) -> None:
    """Banner, parameters with hidden passwords, messages, statistics; the log has start and end."""
    secret = "SETENV (DB_KEY = geheim-1)\nGETENV (DB_KEY)\nSOURCEDB postgresql://me:?DB_KEY@h/d\n"
    parameters(home, f"DO busy\n{secret}REPORTCOUNT EVERY 1 SECONDS\n")
    tiny = Running(home).up()
    wait_for(lambda: "records processed as of" in read(home.report("EXT1")))
    tiny.end(signal.SIGTERM)
    report = read(home.report("EXT1"))
    order = [
        "Trailgate Capture", f"Process id: {tiny.process.pid}", "Running with the following parameters",
        "SOURCEDB postgresql://me:********@h/d", "Run Time Messages", "EXTRACT EXT1 started.",
        "records processed as of", "Run Time Statistics", "From Table s.t to s.t:", "EXTRACT EXT1 stopped normally.",
    ]  # fmt: skip
    assert sorted(order, key=report.index) == order
    log = read(home.ggserr)
    assert "INFO    TG-00993  Trailgate Capture, ext1.prm:  EXTRACT EXT1 started." in log
    assert "geheim" not in report + log


def test_the_control_socket_answers_and_stops(home: Home) -> None:
    """What the runtime answers, what the process answers, what nobody knows, and STOP."""
    parameters(home, "DO busy\nUSERID x, PASSWORD geheim\n".replace("USERID", "-- USERID"))
    tiny = Running(home).up()
    assert ask(home, "EXT1", "PING")["pid"] == tiny.process.pid
    assert ask(home, "EXT1", "STATUS")["status"] == "At EOF"
    assert ask(home, "EXT1", "NOPE")["error"] == "NOPE is unknown"
    shown = ask(home, "EXT1", "GETPARAMINFO")
    assert shown["parameters"][:2] == ["EXTRACT ext1", "DO busy"]
    assert "geheim" not in str(shown)
    assert ask(home, "EXT1", "REPORT")["report"] == home.report("EXT1")
    assert "Run Time Statistics" in read(home.report("EXT1"))
    assert ask(home, "EXT1", "STOP") == {"ok": True}
    assert tiny.end() == (0, "")
    assert "Command received: STOP." in read(home.ggserr)


def test_a_forced_stop_saves_nothing(home: Home) -> None:
    """It ends as a crash would, but as asked."""
    tiny = Running(home).up()
    assert ask(home, "EXT1", "FORCESTOP")["ok"]
    assert tiny.end() == (0, "")
    assert checkpoint.load(home.fs, home.checkpoint("EXT1", "EXTRACT")) == []
    assert group_status(home).status is Status.STOPPED


def test_a_slow_start_shows_starting(home: Home) -> None:
    """From the lock to the end of build; who asks meanwhile learns at once that nobody answers."""
    parameters(home, "DO slow start\n")
    tiny = Running(home)
    assert until_status(home, Status.STARTING).pid == tiny.process.pid
    with pytest.raises(AwayError):
        ask(home, "EXT1", "PING")
    Path(home.root, "go").touch()
    tiny.up()
    assert tiny.end(signal.SIGTERM)[0] == 0


def test_a_stop_while_it_starts_is_obeyed_once_it_is_up(home: Home) -> None:
    """STOP in ggsci: a Replicat takes its time to start Spark; it must not go on after the operator's STOP."""
    parameters(home, "DO slow start\n")
    tiny = Running(home)
    until_status(home, Status.STARTING)
    while not group_status(home).is_process:
        time.sleep(0.01)
    assert "EXTRACT EXT1 stopped." in good(home, "STOP ext1")
    assert tiny.end()[0] == 0
    assert group_status(home).status is Status.STOPPED


def test_the_manager_is_a_process_without_a_group(home: Home) -> None:
    """Its file is mgr.prm, its name MGR."""
    Path(home.prm("mgr")).write_text("COMMENT nothing\n")
    manager = Running(home, "MANAGER", "--home", home.root)
    end = time.monotonic() + PATIENCE
    while manager_status(home).status is not Status.RUNNING:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert ask(home, "MGR", "PING")["pid"] == manager.process.pid
    assert manager.end(signal.SIGTERM) == (0, "")
    assert manager_status(home).status is Status.STOPPED
    assert "Trailgate Manager, mgr.prm:  Manager started." in read(home.ggserr)


# --- deaths ---------------------------------------------------------------------------------------------------------


def test_a_killed_process_shows_abended_at_once_and_starts_again(home: Home) -> None:
    """Nobody noted anything: lock free and stop status A. Its socket is no obstacle; its report is aged."""
    tiny = Running(home).up()
    pid = tiny.process.pid
    os.kill(pid, signal.SIGKILL)
    tiny.process.wait()
    ended = group_status(home)
    assert (ended.status, ended.exit_code, ended.message) == (Status.ABENDED, 3, f"process {pid} died without a word")
    assert os.path.exists(home.control("EXT1"))
    again = Running(home).up()
    assert ask(home, "EXT1", "PING")["pid"] == again.process.pid
    assert again.end(signal.SIGTERM)[0] == 0
    assert f"Process id: {pid}\n" in read(home.report("EXT1", 0))


def test_a_start_after_a_kill_never_shows_the_dead_process(home: Home) -> None:
    """Who has just taken the lock has not written its number yet: that of the killed one is no sign of life (GG-19)."""
    tiny = Running(home).up()
    pid = tiny.process.pid
    tiny.process.kill()
    tiny.process.wait()
    with open(home.lock("EXT1")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert lock.read() == f"{pid}\n"
        found = group_status(home)
        assert (found.status, found.pid, found.is_process) == (Status.STARTING, 0, False)
    assert group_status(home).status is Status.ABENDED


def test_killed_at_any_moment_of_its_start(home: Home) -> None:
    """STOPPED before it took the lock, ABENDED after, and the next start works."""
    for delay in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3):
        tiny = Running(home)
        time.sleep(delay)
        tiny.process.kill()
        tiny.process.wait()
        assert group_status(home).status in (Status.ABENDED, Status.STOPPED)
    assert Running(home).up().end(signal.SIGTERM) == (0, "")


def test_a_second_signal_ends_a_process_that_hangs(home: Home) -> None:
    """The first waits for the step's end, which never comes. One that comes in the very moment in which the first is
    handled is noticed with the next: Python goes back to sleep between the two.
    """
    parameters(home, "DO hang\n")
    tiny = Running(home).up()
    while "hanging" not in read(home.ggserr):
        time.sleep(0.01)
    tiny.process.send_signal(signal.SIGTERM)

    def ended() -> bool:
        tiny.process.send_signal(signal.SIGINT)  # another one: two of a kind that wait together would be one
        return tiny.process.poll() is not None

    wait_for(ended, "the process to end", every=0.1)
    assert tiny.end()[0] == 3
    assert group_status(home).status is Status.ABENDED


def test_a_process_that_hangs_never_looks_healthy(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """GG-19: it holds its lock and answers nobody; its last loop turn tells since when, in INFO, JSON and errors."""
    monkeypatch.setattr(asking, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(asking, "HANGS_US", 0)
    monkeypatch.setattr(facts, "STALE_AFTER_US", 0)
    parameters(home, "DO hang\n")
    tiny = Running(home).up()
    wait_for(lambda: "hanging" in read(home.ggserr))
    turned = group_status(home).turned_us
    assert turned is not None
    said = bad(home, "SEND ext1, STATUS")
    assert "EXT1 did not answer STATUS within 0.2 seconds: its main loop has stood still for 00:0" in said
    assert "KILL EXT1 ends it" in said
    assert "Main Loop            stands still for 00:0" in good(home, "INFO ext1")
    (shown,) = as_json(home, "STATUS ext1")
    assert shown["turn_age_us"] > 0
    assert group_status(home).turned_us == turned
    tiny.process.kill()
    assert tiny.process.wait() == -signal.SIGKILL
    assert group_status(home).turned_us is None


def test_for_whom_a_process_waits_stands_in_its_process_file(home: Home) -> None:
    """From its first turn on, so that INFO shows it without asking; it works once it waits for nobody."""
    parameters(home, "DO wait\n")
    tiny = Running(home).up()
    wait_for(lambda: group_status(home).waits == "Waiting for a friend: refused")
    assert not group_status(home).works
    assert "Waits                Waiting for a friend: refused" in good(home, "INFO ext1")
    assert as_json(home, "INFO ext1")[0]["waits"] == "Waiting for a friend: refused"
    Path(home.root, "go").touch()
    ask(home, "EXT1", "PING")  # wakes it
    wait_for(lambda: group_status(home).works)
    assert "Waits" not in good(home, "INFO ext1")
    assert tiny.end(signal.SIGTERM) == (0, "")


def test_a_process_in_its_first_turn_is_still_starting(home: Home) -> None:
    """It runs, and nobody has seen it work yet."""
    parameters(home, "DO hang\n")
    tiny = Running(home).up()
    assert group_status(home).waits == "Waiting for its first turn of work"
    assert not group_status(home).works
    tiny.end(signal.SIGKILL)
    assert group_status(home).waits == ""


def test_a_process_that_works_shows_its_loop_turns(home: Home) -> None:
    """About each second, busy or idle."""
    parameters(home, "DO busy\n")
    tiny = Running(home).up()
    first = group_status(home).turned_us
    wait_for(lambda: (group_status(home).turned_us or 0) > (first or 0))
    assert tiny.end(signal.SIGTERM) == (0, "")


def test_statistics_by_period_and_parameters_of_a_running_process(home: Home) -> None:
    """STATS shows, then resets LATEST; GETPARAMINFO of one parameter; unknown requests are told what there is."""
    parameters(home, "DO busy\nSOURCEDB postgresql://me:geheim@h/d\n")
    tiny = Running(home).up()
    wait_for(lambda: ask(home, "EXT1", "STATS")["tables"])
    said = good(home, "STATS ext1, TOTAL, LATEST, RESET")
    assert said.count("*** Total statistics since") == said.count("*** Latest statistics since") == 1
    assert "Hourly" not in said
    reply = ask(home, "EXT1", "STATS")
    assert reply["periods"]["LATEST"]["since_us"] > reply["since_us"]
    assert "Command received: STATS, RESET." in read(home.ggserr)
    assert "SOURCEDB postgresql://me:********@h/d  (ext1.prm:3)" in good(home, "SEND ext1, GETPARAMINFO sourcedb")
    assert "CHECKPOINTSECS is not in " in good(home, "SEND ext1, GETPARAMINFO CHECKPOINTSECS")
    assert "COUNT belongs to SHOWTRANS" in bad(home, "SEND ext1, STATUS, COUNT 5")
    assert "REPORTRATE: expected HR, MIN, SEC, found DAY" in bad(home, "STATS ext1, REPORTRATE day")
    assert tiny.end(signal.SIGTERM)[0] == 0


@pytest.mark.parametrize(
    ("do", "code", "message"),
    [
        ("refuse", 2, "EXTRACT EXT1: slot ext1 is missing. REGISTER EXTRACT ext1\n"),
        ("away", 3, "EXTRACT EXT1: postgresql://me:********@there/db is away\n"),
        ("bug", 1, "EXTRACT EXT1: bug in Trailgate: KeyError: 'oops' (see the report)\n"),
        ("bug in step", 1, "EXTRACT EXT1: bug in Trailgate: ZeroDivisionError: 1/0 (see the report)\n"),
    ],
)
def test_an_error_is_one_line_and_its_exit_code_says_who_must_act(home: Home, do: str, code: int, message: str) -> None:
    """On stderr, in report and log, and recorded in the process file; a bug's traceback is in the report only."""
    parameters(home, f"DO {do}\n")
    Path(home.globals).write_text("LOGFORMAT BOTH\n")
    assert Running(home).end() == (code, message)
    events = [json.loads(line) for line in read(home.ggserr_json).splitlines()]
    assert [event["fields"].get("exit_code") for event in events][-2:] == [code, code]
    assert events[0]["fields"] == {"state": "STARTING"}
    assert events[-1]["fields"]["state"] == "ABENDED"
    ended = group_status(home)
    assert (ended.status, ended.exit_code, ended.stop) == (Status.ABENDED, code, "A")
    report, log = read(home.report("EXT1")), read(home.ggserr)
    for text in (report, log):
        assert message.removeprefix("EXTRACT EXT1: ").strip() in text
        assert "PROCESS ABENDING." in text
    assert ("Traceback" in report) is (code == 1)
    assert "Traceback" not in log


# --- refusals -------------------------------------------------------------------------------------------------------


def test_two_processes_for_one_group(home: Home) -> None:
    """The second names the first's pid and changes nothing of it."""
    tiny = Running(home).up()
    code, errors = Running(home).end()
    assert (code, errors) == (2, f"ERROR: EXT1 is already running as process {tiny.process.pid}. STOP it first\n")
    assert group_status(home).pid == tiny.process.pid
    assert ask(home, "EXT1", "PING")["pid"] == tiny.process.pid
    assert "already running" in read(home.ggserr)
    assert tiny.end(signal.SIGTERM)[0] == 0


def test_looking_at_the_status_never_hinders_a_start(home: Home) -> None:
    """Looking takes the lock for an instant; a start outwaits that."""
    for _ in range(3):
        # We may be stopped while we look, for longer than a start waits for a mere look.
        tiny = Running(home, before="import trails.fs; trails.fs.LOCK_SECONDS = 60\n")
        end = time.monotonic() + PATIENCE
        while group_status(home).status is not Status.RUNNING:
            assert time.monotonic() < end
        assert tiny.end(signal.SIGTERM) == (0, "")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("EXTRACT", "--home", "{home}", "ext9"), "ERROR: group EXT9 does not exist in {home}. ADD EXTRACT EXT9"),
        (("REPLICAT", "--home", "{home}", "ext1"), "ERROR: group EXT1 is registered as EXTRACT of TRANLOG, this"),
        (("EXTRACT", "--home", "{home}/none", "ext1"), "ERROR: {home}/none is no home: dirprm is missing. Run CREATE"),
        (("EXTRACT", "--home", "{home}", "a/b"), "ERROR: group name 'a/b': expected"),
        (("EXTRACT", "--home", "{home}"), "ERROR: command line: the following arguments are required: group"),
    ],
)
def test_what_cannot_start_says_why(home: Home, argv: tuple[str, ...], message: str) -> None:
    """One line, exit code 2, nothing touched."""
    code, errors = Running(home, *(word.format(home=home.root) for word in argv)).end()
    assert code == 2
    assert errors.startswith(message.format(home=home.root))
    assert errors.count("\n") == 1
    assert group_status(home) == GroupStatus(Status.STOPPED)


def test_a_missing_or_wrong_parameter_file_abends(home: Home) -> None:
    """Each mistake with its line; after mending, START goes on."""
    path = home.prm("EXT1")
    os.unlink(path)
    assert Running(home).end() == (
        2, f"EXTRACT EXT1: {path}: the parameter file does not exist. Write it with EDIT PARAMS\n"
    )  # fmt: skip
    assert group_status(home).status is Status.ABENDED
    parameters(home, "DOO idle\nCHECKPOINTSECS x\n")
    code, errors = Running(home).end()
    assert (code, errors.splitlines()) == (2, [
        f"EXTRACT EXT1: {path}:2: DOO: tiny has no such parameter; did you mean DO?",
        f"{path}:3: CHECKPOINTSECS: expected a whole number from 1 to 3600, found 'x'",
    ])  # fmt: skip
    Path(path).write_text("EXTRACT ext2\n")
    assert Running(home).end() == (
        2, f"EXTRACT EXT1: {path}:1: EXTRACT: expected the name of this group, EXT1, found 'ext2'\n"
    )  # fmt: skip
    parameters(home, "DO idle\n")
    assert Running(home).up().end(signal.SIGTERM) == (0, "")


def test_a_damaged_checkpoint_file_is_refused(home: Home) -> None:
    """Named, with what to do; once it is gone, START goes on."""
    path = Path(home.checkpoint("EXT1", "EXTRACT"))
    path.write_bytes(b"garbage")
    code, errors = Running(home).end()
    assert code == 2
    assert f"{path}: damaged checkpoint file" in errors
    path.unlink()
    tiny = Running(home).up()
    assert ask(home, "EXT1", "STATUS")["previous"] == 0
    assert tiny.end(signal.SIGTERM)[0] == 0
