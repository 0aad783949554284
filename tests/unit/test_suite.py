"""`make test` tells a fault from a test that fails only beside others, and hides neither."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RACE = """
from pathlib import Path
import pytest

pytestmark = pytest.mark.xdist_group("planted")

def once(name):
    seen = Path(name)
    if not seen.exists():
        seen.touch()
        raise AssertionError(f"{name} was not there yet")
"""


SKIPPED = "def test_there(): pytest.skip('NO SERVER')\n"

DRAWN = "def test_drawn(record_property): record_property('first life', 7)\n"

SLOW_DISK = """
def test_the_disk_is_slow():
    import os, subprocess, sys
    said = subprocess.run([sys.executable, "-c", "import os; print(os.fsync.__name__)"], capture_output=True, text=True)
    assert (os.fdatasync.__name__, said.stdout) == ("slower", "slower\\n")
"""


def _suite(folder: Path, tests: str) -> tuple[int, str]:
    (folder / "test_planted.py").write_text(RACE + tests)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.suite", "-q", "-n", "1", "--dist", "loadgroup"],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_what_passes_alone_is_told_and_green(tmp_path):
    """The last lines name it with its first failure, behind what was skipped and why; a file keeps them."""
    code, text = _suite(tmp_path, "def test_race(): once('a')\n" + DRAWN + SKIPPED)
    assert code == 0
    assert "drawn anew: first life 7 (test_planted.py::test_drawn)\n" in text
    assert "SKIPPED: 1 test\ntest_planted.py::test_there\n    Skipped: NO SERVER\n" in text
    told = text[text.index("UNSTEADY: 1 test failed beside others and passed alone; mend") :]
    assert "test_planted.py::test_race\n" in told
    assert "a was not there yet" in told
    assert "test_planted.py::test_race" in (tmp_path / "build" / "unsteady.txt").read_text()
    code, text = _suite(tmp_path, "def test_race(): once('a')\n")
    assert (code, "UNSTEADY" in text, (tmp_path / "build" / "unsteady.txt").exists()) == (0, False, False)


@pytest.mark.parametrize(
    "fault",
    ["def test_fault(): assert False\n", "import no_such_module\n", "def test_ends():\n    import os; os._exit(3)\n"],
    ids=["fails", "not-collected", "ends-its-process"],
)
def test_a_fault_is_red(tmp_path, fault):
    """It fails twice; what is not even collected, or ends pytest, is no test that passed."""
    code, text = _suite(tmp_path, f"def test_race(): once('a')\n{fault}")
    assert code not in (0, 5), text


def test_many_unsteady_ones_are_red(tmp_path):
    """Four are more than three."""
    code, text = _suite(tmp_path, "".join(f"def test_{name}(): once('{name}')\n" for name in "abcd"))
    assert code == 1
    assert "UNSTEADY: 4 tests failed beside others and passed alone; more than 3, so this run is red" in text


@pytest.mark.soak
def test_steady_counts_who_fails_by_the_moment(tmp_path):
    """A race is red in the first round; syncs are slow there, also those of what a test starts."""
    (tmp_path / "test_planted.py").write_text(RACE + "def test_race(): once('a')\ndef test_good(): pass\n" + SLOW_DISK)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.steady", "--rounds", "2", "-q", "-n", "1", "--dist", "loadgroup"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert "steady: round 2 of 2: 0 failed" in done.stdout
    assert "steady: 1 of 3 tests failed in 2 rounds\n  1 of 2  test_planted.py::test_race\n" in done.stdout
