"""A home for a test, and ggsci in it: within the process for what only looks, as a process for the whole of it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from demo import pipeline
from demo.patience import PATIENCE
from ggsci.commands.session import OperatorSession
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.home.status import manager_status, status_of
from trails.runtime.process.control import ControlServer


def make_home(root: Path) -> Home:
    """A home as CREATE SUBDIRS makes it."""
    Home(str(root)).create_subdirs()
    return Home.at(str(root))


def run(home: Home, line: str, session: OperatorSession | None = None) -> tuple[bool, str]:
    """(succeeded, text) of one command in a session of its own, or in `session`."""
    session = session or OperatorSession(home.root)
    session.out = session.err = out = io.StringIO()
    return session.run(line), out.getvalue()


def good(home: Home, line: str, session: OperatorSession | None = None) -> str:
    """The text of a command that must succeed."""
    succeeded, text = run(home, line, session)
    assert succeeded, text
    return text


def bad(home: Home, line: str, session: OperatorSession | None = None) -> str:
    """The text of a command that must fail."""
    succeeded, text = run(home, line, session)
    assert not succeeded, text
    return text


def as_json(home: Home, line: str) -> Any:
    """What a command prints with --json."""
    return json.loads(good(home, f"{line} --json"))


@contextlib.contextmanager
def answering(home: Home, name: str, answer: Callable[..., dict[str, Any]]) -> Iterator[None]:
    """A group's control socket, or the Manager's: it answers (verb, arguments) so, until the block ends."""
    server, end = ControlServer(home, name, answer), threading.Event()

    def serve() -> None:
        while not end.is_set():
            server.handle([fd for fd, _ in server.interest()], time.monotonic())
            time.sleep(0.005)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        server.close(0)


def ggsci(home: Home, *words: str, stdin: str = "", code: int | None = 0) -> str:
    """ggsci as a process; what it printed on both outputs."""
    command = [sys.executable, "-P", "-m", "ggsci", "--home", home.root, *words]
    done = pipeline.ggsci_process(command, input=stdin, timeout=PATIENCE, env=os.environ, cwd=Path.cwd())
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def write(home: Home, name: str, text: str) -> None:
    """A parameter file."""
    Path(home.prm(name)).write_text(text)


def status(home: Home, name: str) -> Any:
    """GroupStatus of a group."""
    return status_of(home, registration.load(home, name))


def group(home: Home, name: str) -> Registration:
    """Its registration."""
    return registration.load(home, name)


def end_all(home: Home) -> None:
    """End every process of a home, Collectors too, by what the home knows of them."""
    pids = [manager_status(home).pid, *(status_of(home, reg).pid for reg in registration.all(home))]
    notes = Path(home.folder("dirpcs"), "MGR.collectors")
    if notes.exists():
        pids += [row["pid"] for row in json.loads(notes.read_text())]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL) if pid else None
