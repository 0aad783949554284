"""A tiny program run as real processes, in a home of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from demo.patience import PATIENCE
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.home.status import GroupStatus, Status, status_of
from trails.runtime.process import control

ask = partial(control.ask, timeout=PATIENCE)  # a loaded machine may need a while for any answer

TINY = """
import os, sys, time
from trails.checkpoint import Checkpoint
from trails.errors import AwayError, OperatorError
from trails.record import Op
from trails.runtime.language.params import Keyword, check, group, table, text
from trails.runtime.process.loop import Process
from trails.runtime.process.startup import main
from trails.runtime.language.reportparams import SHARED, TIMED_VERBS as ROLLOVERS
from trails.runtime.report.stats import Stats

KEYWORDS = SHARED | ROLLOVERS | table(
    Keyword("EXTRACT", "group", "", "", group),
    Keyword("DO", "what", "", "", text),
    Keyword("SOURCEDB", "url", "", "", text),
)

class Tiny(Process):
    def __init__(self, context):
        self.do = check(context.statements, KEYWORDS, "tiny").one("DO", "idle")
        self.context = context
        self.stats = Stats(context.clock.now_us)
        self.trail = None
        while self.do == "slow start" and not (context.stop.requested or os.path.exists(context.home.root + "/go")):
            time.sleep(0.01)
        if self.do == "refuse": raise OperatorError("slot ext1 is missing", hint="REGISTER EXTRACT ext1")
        if self.do == "away": raise AwayError("postgresql://me:geheim@there/db is away")
        if self.do == "bug": raise KeyError("oops")

    def step(self):
        if self.do == "bug in step": raise ZeroDivisionError("1/0")
        if self.do == "hang":
            self.context.log.info("TG-00001", "hanging")
            time.sleep(600)
        if self.do == "fill":
            self.trail = self.trail or self.context.fs.create(self.context.home.folder("dirdat") + f"/x{os.getpid()}")
            self.trail.write_at(self.trail.size(), bytes(8192))
            return True
        if self.do == "fill slowly":
            self.trail = self.trail or self.context.fs.create(self.context.home.folder("dirdat") + f"/x{os.getpid()}")
            self.trail.write_at(self.trail.size(), bytes(4096))
            time.sleep(0.1)
            return True
        if self.do == "log":
            self.context.log.info("TG-00001", f"{time.monotonic_ns()}")
            return True
        if self.do == "busy":
            self.stats.count("s.t", "s.t", Op.INSERT)
            time.sleep(0.001)
            return True
        return False

    def flush(self):
        return Checkpoint(self.context.group, self.context.kind, extra={"flushed": True})

    def close(self): print("closed", flush=True)

    def waits(self): return []

    def idle_seconds(self): return 600.0

    def waits_for(self):
        waits = self.do == "wait" and not os.path.exists(self.context.home.root + "/go")
        return "Waiting for a friend: refused" if waits else ""

    def command(self, verb, args):
        if verb == "STATUS": return {"status": "At EOF", "previous": len(self.context.previous)}
        raise OperatorError(f"{verb} is unknown")

sys.exit(main(sys.argv[1], sys.argv[2:], Tiny))
"""


class Running:
    """A tiny process and its home."""

    def __init__(self, home: Home, *argv: str, before: str = "") -> None:
        self.home = home
        script = before + TINY
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", script, *(argv or ("EXTRACT", "--home", home.root, "ext1"))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def up(self) -> Running:
        """Wait until it runs."""
        until_status(self.home, Status.RUNNING)
        return self

    def end(self, number: int = 0) -> tuple[int, str]:
        """(exit code, stderr), after that signal."""
        if number:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors


def group_status(home: Home) -> GroupStatus:
    """Of EXT1."""
    return status_of(home, registration.load(home, "EXT1"))


def until_status(home: Home, wanted: Status) -> GroupStatus:
    """Until EXT1 is in that status."""
    end = time.monotonic() + PATIENCE
    while (found := group_status(home)).status is not wanted:
        assert time.monotonic() < end, found
        time.sleep(0.01)
    return found


def parameters(home: Home, text: str) -> None:
    """EXT1's file."""
    Path(home.prm("EXT1")).write_text("EXTRACT ext1\n" + text)


def read(path: str) -> str:
    """A text file."""
    return Path(path).read_text()


def make_home(root: Path) -> Home:
    """A home with group EXT1 and a parameter file."""
    Home(str(root)).create_subdirs()
    found = Home.at(str(root))
    registration.save(found, Registration("EXT1", "EXTRACT", "TRANLOG"))
    parameters(found, "DO idle\n")
    return found


def no_process_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a failing test leaves is killed."""
    started: list[subprocess.Popen[str]] = []
    original = Running.__init__

    def noting(self: Running, home: Home, *argv: str, before: str = "") -> None:
        original(self, home, *argv, before=before)
        started.append(self.process)

    monkeypatch.setattr(Running, "__init__", noting)
    yield
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
