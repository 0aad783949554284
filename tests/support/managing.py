"""A Manager's children in a test: processes as it knows them, and a team of them on a clock that a test moves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from ggsci.manager.children import Children
from ggsci.manager.params import ManagerParams
from tests.support.homes import good, make_home
from trails.clock import RealClock
from trails.runtime.language.params import parse_text
from trails.runtime.report.report import Log
from trails.testing import FakeClock

# A group's process as the Manager knows one: it waits at a gate, takes the lock, writes the process file, and then has
# nothing to do.
GROUP = """
import os, sys, time
from trails.errors import LockedError
from trails.runtime.home import status
from trails.runtime.home.home import Home
from trails.runtime.home.status import ProcessFile
home = Home.at(sys.argv[1])
while sys.argv[2] and not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
try:
    lock = home.fs.lock(home.lock("R1"))
except LockedError as error:
    sys.exit(2)
status.write(home.fs, home.status("R1", "REPLICAT"), ProcessFile(os.getpid(), os.getpid(), "RUNNING"))
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


def home_of_a_manager(tmp_path):
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
