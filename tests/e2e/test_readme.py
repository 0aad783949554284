"""README.md's two walks by hand: every block is run as it stands, and prints what the block below it shows.

Only folder and ports are put in place of the page's. In what is expected `...` stands for anything in a line, and a
line of it alone for any lines. A block without one below it must only succeed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.guard import Guard
from demo.ports import free_ports
from demo.servers import PostgresServer
from replicat.batches.scratch import sweep

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.xdist_group("readme")]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
STEP = re.compile(r"^```sh\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
END = "-- end of this step --"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """One shell for all steps, as somebody has it open; whatever it leaves is ended."""
    guard = Guard()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    bash = subprocess.Popen(
        ["bash", "-s"], cwd=ROOT, env={**guard.environment, "PATH": path}, text=True, bufsize=1,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        yield bash
    finally:
        os.killpg(bash.pid, signal.SIGKILL)
        bash.communicate()
        guard.kill_rest(patience=0)
        guard.dismiss()
        for base in walk_folder(tmp_path).glob("pg-*"):
            PostgresServer.open(base).remove()
        shutil.rmtree(walk_folder(tmp_path), ignore_errors=True)
        sweep()


def walk_folder(tmp_path: Path) -> Path:
    """A path short enough for a server's socket, and open to the account that it runs as."""
    return Path(f"/tmp/tg-walk-{os.getpid()}-{tmp_path.name[-8:]}")


def steps(title: str) -> list[tuple[str, str]]:
    """The steps of one of the page's parts, and what each shows."""
    found: list[tuple[str, str]] = STEP.findall(README.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0])
    return found


def run(bash: subprocess.Popen[str], commands: str) -> str:
    """What a step prints. It must end well: each of its last commands is shown by what the reader sees."""
    assert bash.stdin is not None
    assert bash.stdout is not None
    bash.stdin.write(f"{commands}\necho; echo '{END}' $?\n")
    bash.stdin.flush()
    lines = []
    for line in bash.stdout:
        if line.startswith(END):
            assert line.split()[-1] == "0", "".join([commands, *lines])
            return "".join(lines)
        lines.append(line)
    raise AssertionError("the shell has ended: " + "".join([commands, *lines]))


def pattern(expected: str) -> str:
    """The regular expression that a block of expected output is."""
    lines = [".*?\n" if line == "..." else f"{_line(line)} *\n" for line in expected.splitlines()]
    return r"\s*" + "".join(lines) + r"\s*\Z"


def _line(line: str) -> str:
    return r"[^\n]*?".join(re.escape(part) for part in line.rstrip().split("..."))


SLOW = re.compile(r"^(\w+ \w+) is still starting", re.MULTILINE)
STILL = re.compile(r"^[A-Z]+ .*: \d+ s so far\n", re.MULTILINE)
"""What START says where a process takes long to begin, and what commands say while they wait: the machine is busy."""


@pytest.mark.parametrize(
    ("title", "folder"),
    [("Three minutes without a server", "trailgate-first"), ("Ten minutes by hand", "trailgate-walk")],
)
def test_the_walks_of_the_readme_show_what_they_say(
    shell: subprocess.Popen[str], tmp_path: Path, title: str, folder: str
) -> None:
    """A newcomer's first steps: a pipeline without a server; two homes, and a filtered copy. No question is asked."""
    ports = free_ports(24)
    place = walk_folder(tmp_path)
    run(shell, "umask 022")
    for step, expected in steps(title):
        commands = step.replace(f"/tmp/{folder}", str(place)).replace(". .venv/bin/activate\n", "")
        commands = re.sub(r"\b178(09|1\d|2\d)\b", lambda found: str(ports[int(found[1]) - 9]), commands)
        said = STILL.sub("", SLOW.sub(r"\1 is running", run(shell, commands).replace(str(place), f"/tmp/{folder}")))
        assert re.match(pattern(expected), said, re.DOTALL) or not expected, f"{commands}\n{expected}\n{said}"
    assert not place.exists()
