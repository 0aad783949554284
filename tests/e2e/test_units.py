"""docs/systemd: the units' lines, run as systemd would run them, do what the units and docs/manager.md promise."""

from __future__ import annotations

import configparser
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.patience import PATIENCE, wait_for
from demo.ports import free_port
from tests.support.homes import end_all, good, make_home, status, write
from trails.runtime.home.home import Home
from trails.runtime.home.status import manager_status

UNITS = Path(__file__).parents[2] / "docs" / "systemd"
OURS = "/opt/trailgate/.venv/bin"


class Systemd:
    """What it does with the two units of one home: command lines by execve, a clean environment, a notify socket."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home = home
        self._environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        self._path = str(folder / "n")
        self.told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.told.bind(self._path)
        self.told.settimeout(100)

    def unit(self, name: str) -> configparser.SectionProxy:
        """The section of the service."""
        found = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
        found.optionxform = str  # type: ignore[assignment,method-assign]
        found.read_string((UNITS / f"{name}@.service").read_text())
        return found["Service"]

    def words(self, name: str, key: str) -> list[str]:
        """A command line: systemd splits it, replaces %f, and asks no shell."""
        line = self.unit(name)[key].replace(OURS, os.path.dirname(sys.executable)).replace("%f", self.home.root)
        return shlex.split(line)

    def start(self) -> subprocess.Popen[bytes]:
        """Type=notify: started once it says so."""
        service = self.unit("trailgate")
        assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
        extra = {"NOTIFY_SOCKET": self._path, "WATCHDOG_USEC": f"{service['WatchdogSec']}000000"}
        main = subprocess.Popen(
            self.words("trailgate", "ExecStart"), cwd=self.home.root, env=self._environment | extra, umask=0o077,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.await_word("READY=1")
        return main

    def await_word(self, word: str) -> None:
        """Until the main process says this."""
        while word not in self.told.recv(4096).decode():
            pass

    def run(self, name: str, key: str) -> int:
        """The exit code of a control process."""
        words = self.words(name, key)
        return subprocess.run(
            words, cwd="/", env=self._environment, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False
        ).returncode


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    """A home with a pump whose target is away: it runs, and tries again."""
    home = make_home(tmp_path / "home")
    write(home, "mgr", f"PORT {free_port()}\nNOTLS\nAUTOSTART ER *\n")
    write(home, "pmp1", f"EXTRACT pmp1\nRMTHOST 127.0.0.1, MGRPORT {free_port()}, NOTLS\nRMTTRAIL ./dirdat/rt\n")
    good(home, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    good(home, "ADD RMTTRAIL ./dirdat/rt, EXTRACT pmp1")
    made = Systemd(home, tmp_path)
    yield made
    made.told.close()
    end_all(home)


def test_a_restart_of_the_unit_interrupts_no_group_and_the_other_unit_stops_them(systemd: Systemd) -> None:
    """start, watchdog, stop (KillMode=process: only the main process), start, stop of the groups, stop."""
    home, pump = systemd.home, lambda: status(systemd.home, "PMP1")
    main = systemd.start()
    assert manager_status(home).pid == main.pid
    systemd.await_word("WATCHDOG=1")
    wait_for(lambda: pump().status.value == "RUNNING")
    pid = pump().pid
    assert systemd.unit("trailgate")["KillMode"] == "process"
    assert systemd.run("trailgate", "ExecStop") == 0
    systemd.await_word("STOPPING=1")
    assert main.wait(PATIENCE) == 0
    assert (pump().pid, pump().status.value) == (pid, "RUNNING")
    assert systemd.run("trailgate", "ExecStop") == 0  # nothing runs any more: no failure either
    main = systemd.start()
    assert pump().pid == pid
    assert "runs already as process" in Path(home.ggserr).read_text()
    assert systemd.run("trailgate-groups", "ExecStart") == 0
    assert systemd.run("trailgate-groups", "ExecStop") == 0
    assert pump().status.value == "STOPPED"
    main.terminate()  # what systemd does where ExecStop is not enough
    assert main.wait(PATIENCE) == 0


def test_who_is_restarted_by_systemd(systemd: Systemd) -> None:
    """Restart=on-failure but for exit code 2: a Manager that was killed comes back, one with a wrong mgr.prm waits."""
    service = systemd.unit("trailgate")
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")
    main = systemd.start()
    wait_for(lambda: status(systemd.home, "PMP1").status.value == "RUNNING")  # or it is begun and has no lock yet
    main.kill()
    assert main.wait(PATIENCE) == -9
    write(systemd.home, "mgr", "PROT 1\n")
    words = systemd.words("trailgate", "ExecStart")
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, "did you mean PORT" in done.stderr) == (2, True)
