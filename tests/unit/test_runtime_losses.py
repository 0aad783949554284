"""Processes whose files are deleted under them, and those on a disk that takes no more."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.patience import PATIENCE, wait_for
from tests.support.tiny import Running, ask, group_status, make_home, no_process_stays, parameters
from trails import checkpoint
from trails.errors import AwayError
from trails.host import is_younger
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.status import Status


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with group EXT1."""
    return make_home(tmp_path / "home")


@pytest.fixture(autouse=True)
def _no_process_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from no_process_stays(monkeypatch)


# --- a disk that takes no more --------------------------------------------------------------------------------------

LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))\n"


def test_what_is_deleted_under_a_process_is_made_anew(home: Home) -> None:
    """Lock, process file, registration, control socket: within a second each stands there again, and that is told."""
    running = Running(home).up()
    wait_for(lambda: group_status(home).works, told="its first turn, after which it writes the process file again")
    pid = group_status(home).pid
    paths = [home.lock("EXT1"), home.status("EXT1", "EXTRACT"), home.registration("EXT1"), home.control("EXT1")]
    kept = Path(home.registration("EXT1")).read_text()
    for path in paths:
        os.unlink(path)
    deadline = time.monotonic() + PATIENCE
    while not all(map(os.path.exists, paths)) or group_status(home).status is not Status.RUNNING:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert group_status(home).pid == pid == ask(home, "EXT1", "PING")["pid"]
    assert json.loads(Path(home.registration("EXT1")).read_text()) == json.loads(kept)
    for what in ("lock", "process file", "registration", "control socket"):
        assert f"The {what} of this process was removed or replaced; it was made anew." in Path(home.ggserr).read_text()
    assert Running(home).end()[0] == 2  # no second one
    path, anew = Path(home.registration("EXT1")), Path(home.registration("EXT1")).read_text()
    older = json.loads(kept) | {"alter_no": json.loads(kept)["alter_no"] - 1}
    for other in (json.dumps(older), "{", kept.replace('"EXT1"', '"EXT2"')):
        path.write_text(other)
        wait_for(lambda: ask(home, "EXT1", "PING") and path.read_text() == anew, told=f"no {other}")
    assert running.end(signal.SIGTERM) == (0, "")


def test_a_process_whose_lock_another_has_ends(home: Home) -> None:
    """Its lock was deleted and somebody was faster: ours saves nothing, and says who has the group."""
    running = Running(home).up()
    lock = home.fs.lock(f"{home.lock('EXT1')}.faster")
    os.rename(f"{home.lock('EXT1')}.faster", home.lock("EXT1"))  # in one step: ours makes a deleted one anew at once
    code, errors = running.end()
    lock.release()
    assert (code, f"held by process {os.getpid()}" in errors) == (2, True)


def test_who_loses_the_group_leaves_the_other_as_it_is(home: Home) -> None:
    """The lock was deleted, and a second process came first: the end of ours is not noted as that one's (GG-19)."""
    first = Running(home).up()
    first.process.send_signal(signal.SIGSTOP)
    os.unlink(home.lock("EXT1"))
    second = Running(home).up()
    first.process.send_signal(signal.SIGCONT)
    assert first.end()[0] == 2
    assert ask(home, "EXT1", "PING")["pid"] == second.process.pid
    found = group_status(home)
    assert (found.status, found.pid) == (Status.RUNNING, second.process.pid)
    Path(home.status("EXT1", "EXTRACT")).write_text(json.dumps({"pid": 1, "started_us": 1, "state": "ENDED"}))
    wait_for(lambda: group_status(home).status is Status.RUNNING, told="the process file to be made anew")
    assert second.end(signal.SIGTERM) == (0, "")


def test_who_was_followed_while_its_lock_was_gone_ends(home: Home) -> None:
    """It stood still while a second process came and went: it saves no older place, and leaves how that one ended."""
    first = Running(home).up()
    wait_for(lambda: group_status(home).works, told="its first turn, after which it writes the process file again")
    first.process.send_signal(signal.SIGSTOP)
    os.unlink(home.lock("EXT1"))
    assert Running(home).up().end(signal.SIGTERM) == (0, "")
    files = [Path(home.status("EXT1", "EXTRACT")), Path(home.checkpoint("EXT1", "EXTRACT"))]
    left = [path.read_bytes() for path in files]
    first.process.send_signal(signal.SIGCONT)
    code, errors = first.end()
    assert (code, "had this group while the lock was gone" in errors) == (2, True)
    assert [path.read_bytes() for path in files] == left
    assert group_status(home).status is Status.STOPPED


def test_an_older_copy_of_the_process_file_is_no_follower(home: Home) -> None:
    """A home that was put back from a backup under a process: that goes on, and writes its files anew."""
    assert Running(home).up().end(signal.SIGTERM) == (0, "")
    path = Path(home.status("EXT1", "EXTRACT"))
    older = path.read_text()
    running = Running(home).up()
    running.process.send_signal(signal.SIGSTOP)
    path.write_text(older)
    os.unlink(home.lock("EXT1"))
    running.process.send_signal(signal.SIGCONT)
    wait_for(lambda: group_status(home).status is Status.RUNNING, told="its files to be made anew")
    assert running.end(signal.SIGTERM) == (0, "")


@pytest.mark.parametrize(
    ("birth", "than", "younger"),
    [
        ("12 ticks after boot a", "11 ticks after boot a", True),
        ("11 ticks after boot a", "11 ticks after boot a", False),
        ("9 ticks after boot a", "11 ticks after boot a", False),
        ("12 ticks after boot b", "11 ticks after boot a", False),
        ("", "11 ticks after boot a", False),
        ("12 ticks after boot a", "", False),
        ("", "", False),
    ],
)
def test_the_younger_of_two_processes(birth: str, than: str, younger: bool) -> None:
    """Of one boot alone, by ticks."""
    assert is_younger(birth, than) is younger


def test_a_file_size_limit_in_the_middle_of_the_work(home: Home) -> None:
    """A write that fails ends the process with one clear line."""
    parameters(home, "DO fill\n")
    code, errors = Running(home, before=LIMIT.format(100_000)).end()
    assert code == 2
    assert errors.startswith(f"EXTRACT EXT1: cannot write {home.folder('dirdat')}/x")
    assert errors.count("\n") == 1
    assert group_status(home).exit_code == 2


def test_a_process_goes_on_without_log_and_report(home: Home) -> None:
    """Neither takes a line more: STATUS tells so. Once the log takes lines again it says how many are missing."""
    parameters(home, "DO log\n")
    running = Running(home, before=LIMIT.format(50_000)).up()
    try:
        deadline = time.monotonic() + PATIENCE
        while "can't be written: File too large" not in ask(home, "EXT1", "STATUS").get("unwritten", ""):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.rename(home.ggserr, home.ggserr + ".full")
        while not os.path.exists(home.ggserr) or "TG-01978" not in Path(home.ggserr).read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "lines of log or report could not be written" in Path(home.ggserr).read_text()
    finally:
        ended = running.end(signal.SIGTERM)
    assert ended == (0, "")


def test_a_reader_starts_runs_and_saves_on_a_disk_without_a_byte(small_disk: Path) -> None:
    """What it reads can be purged only if it runs: without report, log, lock's text and room for a checkpoint file."""
    home = make_home(small_disk / "home")
    assert Running(home).up().end(signal.SIGTERM) == (0, "")
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(512)):
            pass
    assert os.statvfs(small_disk).f_bavail == 0
    before = checkpoint.load(home.fs, home.checkpoint("EXT1", "EXTRACT"))[0]
    assert Running(home).up().end(signal.SIGTERM) == (0, "")
    (after, *_) = checkpoint.load(home.fs, home.checkpoint("EXT1", "EXTRACT"))
    assert (after.stop_status, after.started_us > before.started_us) == ("G", True)
    assert (group_status(home).status, group_status(home).exit_code) == (Status.STOPPED, 0)
    os.unlink(small_disk / "filler")
    assert Running(home).up().end(signal.SIGTERM) == (0, "")
    assert len(checkpoint.load(home.fs, home.checkpoint("EXT1", "EXTRACT"))) > 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 KiB, where this user may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no right to mount: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_loses_nothing(small_disk: Path) -> None:
    """Full while it runs, full at a start: one line, ABENDED, exit code 3. With space again, START goes on."""
    home = make_home(small_disk / "home")
    assert Running(home).up().end(signal.SIGTERM) == (0, "")
    parameters(home, "DO fill\n")
    code, errors = Running(home).end()
    assert code == 3
    assert "No space left on device. Make space on this file system" in errors
    assert errors.count("\n") == 1
    assert (group_status(home).status, group_status(home).exit_code) == (Status.ABENDED, 3)
    code, errors = Running(home).end()
    assert code == 3
    assert "No space left on device" in errors
    assert errors.count("\n") == 1
    assert group_status(home).status is Status.ABENDED
    for name in os.listdir(home.folder("dirdat")):
        os.unlink(os.path.join(home.folder("dirdat"), name))
    parameters(home, "DO idle\n")
    tiny = Running(home).up()
    assert ask(home, "EXT1", "STATUS")["previous"] == 1
    assert tiny.end(signal.SIGTERM) == (0, "")


def test_a_disk_that_fills_up_is_noticed_before_it_is_full(small_disk: Path) -> None:
    """CW-28: a warning at DISKWARN; at DISKSTOP the last save, exit code 3, space left; START refuses till then."""
    home = make_home(small_disk / "home")
    writes = (registration.TrailReg("./dirdat/xt", "EXTTRAIL"),)
    registration.save(home, dataclasses.replace(registration.load(home, "EXT1"), trails=writes))
    Path(home.globals).write_text("DISKWARN 65%\nDISKSTOP 40%\n")
    parameters(home, "DO fill slowly\n")
    code, errors = Running(home).end()
    assert code == 3
    assert "less than DISKSTOP" in errors
    assert "ended before the disk is full" in errors
    assert errors.count("\n") == 1
    assert (group_status(home).status, group_status(home).exit_code) == (Status.ABENDED, 3)
    save = checkpoint.load(home.fs, home.checkpoint("EXT1", "EXTRACT"))[0]
    assert (save.stop_status, save.extra.get("flushed")) == ("A", True)
    assert os.statvfs(small_disk).f_bavail > 0
    assert "less than DISKWARN" in Path(home.ggserr).read_text()
    assert Running(home).end()[0] == 3
    for name in os.listdir(home.folder("dirdat")):
        os.unlink(os.path.join(home.folder("dirdat"), name))
    parameters(home, "DO idle\n")
    assert Running(home).up().end(signal.SIGTERM) == (0, "")


DELETED = """
from trails.runtime.home import registration; from trails.runtime.process import startup
take = startup._take_lock
def take_after_a_delete(home, group):
    registration.delete(home, group)
    return take(home, group)
startup._take_lock = take_after_a_delete
"""


def test_what_a_command_changed_while_the_start_waited_for_the_lock_is_obeyed(home: Home) -> None:
    """ALTER and DELETE hold the lock: the registration is read again once it is ours, or an old order would run."""
    code, errors = Running(home, before=DELETED).end()
    assert (code, "group EXT1 does not exist" in errors) == (2, True)


def test_a_read_only_home_is_one_clear_line(small_disk: Path) -> None:
    """Nothing can be noted there; what was noted before stays."""
    home = make_home(small_disk / "home")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    code, errors = Running(home).end()
    assert code == 2
    assert "Read-only file system. Mount the file system for writing" in errors
    assert errors.count("\n") == 1
    with contextlib.suppress(AwayError):
        ask(home, "EXT1", "PING")
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert Running(home).up().end(signal.SIGTERM) == (0, "")
