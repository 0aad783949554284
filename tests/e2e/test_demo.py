"""The demo as people run it: it ends equal, leaves nothing running, and the commands it prints at its end do work."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.__main__ import VICTIMS
from demo.embedded import processes_in
from demo.guard import end_now
from demo.patience import PATIENCE, wait_for
from demo.servers import PostgresServer
from tests.support.pipelines import folder

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.xdist_group("pipeline-demo")]

ROOT = Path(__file__).parents[2]
KINDS = ("postgres", "-m ggsci.manager", "-m extract", "-m pump", "-m collector", "-m replicat", "/java ")


@contextmanager
def staged() -> Iterator[Path]:
    """A folder for the demo; its servers are gone afterwards."""
    with folder() as path:
        path.chmod(0o711)  # the account of the servers must get in
        yield path / "demo"
        for base in (path / "demo").glob("postgres*"):
            PostgresServer.open(base).remove()


@pytest.fixture(scope="module")
def stage() -> Iterator[Path]:
    """Of the demo that is played to its end."""
    with staged() as path:
        yield path


@pytest.fixture(scope="module")
def played(stage: Path) -> str:
    """What that demo said."""
    done = subprocess.run(_demo(stage, 5_000), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not _running(stage)
    return done.stdout


def _demo(stage: Path, rows: int) -> list[str]:
    return [sys.executable, "-m", "demo", "--folder", str(stage), "--rows", str(rows)]


def _running(stage: Path) -> list[str]:
    """Command lines of what still works in the demo's folder, or was told of it."""
    inside, found = processes_in(stage), []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if (str(stage) in line and "guard" not in line) or int(entry.parent.name) in inside:
            found.append(line)
    return found


def test_demo_ends_equal(played: str) -> None:
    """Exit code 0, each process killed and back, every table equal, and nothing is left running."""
    for victim in VICTIMS:
        assert f"SIGKILL {victim}" in played
    assert played.count("rows, equal") == 8
    assert "Read Checkpoint #1" in played
    assert "Last record lag" in played


@pytest.mark.soak
def test_demo_can_be_gone_on_with_by_hand(stage: Path, played: str) -> None:
    """The commands that it prints at its end replicate a change, and stop everything."""
    text = played.partition("to go on by hand:")[2]
    commands = [line.strip() for line in text.splitlines() if line.strip()]
    assert len(commands) == 11
    for command in commands:
        if "STOP" in command and "REP1" not in command:
            _await_note(stage)
        done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    wait_for(lambda: not _running(stage), lambda: "\n".join(_running(stage)))


def _await_note(stage: Path) -> None:
    """The change that was made by hand is at the target."""
    target = PostgresServer.open(stage / "postgres18")

    def arrived() -> bool:
        return target.sql("SELECT note FROM shop.accounts WHERE id = 1") == [("by hand",)]

    wait_for(arrived)


@pytest.mark.soak
def test_killed_demo_leaves_nothing_running() -> None:
    """SIGKILL to the demo itself once all of it is there: Managers, groups, Spark and servers end by themselves."""
    with staged() as stage:
        _killed(stage)


def _killed(stage: Path) -> None:
    demo = subprocess.Popen(_demo(stage, 100), cwd=ROOT, stdout=subprocess.DEVNULL)

    def complete() -> bool:
        assert demo.poll() is None
        lines = _running(stage)
        return all(any(word in line for line in lines) for word in KINDS)

    try:
        wait_for(complete, lambda: "\n".join(_running(stage)))
    finally:
        end_now(demo.pid)
        demo.wait()
    wait_for(lambda: not _running(stage), lambda: "\n".join(_running(stage)))


@pytest.mark.soak
def test_a_pipeline_to_look_at_stays_until_it_is_taken_down() -> None:
    """`make try`: its command has ended, the pipeline runs, the page answers; `make try-down` leaves nothing."""
    with staged() as stage:
        command = [sys.executable, "-m", "demo.trying", "--folder", str(stage)]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, done.stdout + done.stderr
            (page,) = re.findall(r"http://127\.0\.0\.1:\d+/\?token=\S+", done.stdout)
            with urllib.request.urlopen(page, timeout=PATIENCE) as answer:
                assert answer.status == 200
            assert any("-m replicat" in line for line in _running(stage))
        finally:
            subprocess.run([*command, "--down"], cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)
        wait_for(lambda: not _running(stage), lambda: "\n".join(_running(stage)))
        assert not stage.exists()


def test_demo_refuses_a_folder_that_is_not_its_own(tmp_path: Path) -> None:
    """A folder with anything else in it is left alone."""
    (tmp_path / "letter").write_text("dear")
    done = subprocess.run(_demo(tmp_path, 1), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "name another with --folder" in done.stdout
    assert (tmp_path / "letter").read_text() == "dear"
