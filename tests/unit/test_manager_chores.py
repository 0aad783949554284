"""What a Manager does beside its children: REFRESH, STATUS, reports, and what systemd is told."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from demo.ports import free_port
from ggsci.manager import lag as manager_lag
from ggsci.manager.manager import FIXED, Manager, Timers
from ggsci.manager.notify import Notifier
from tests.support.homes import write
from tests.support.managing import home_of_a_manager, log_of, log_text, params
from trails.errors import ParamError
from trails.runtime.home import status
from trails.runtime.home.status import ProcessFile
from trails.runtime.process.loop import Stop
from trails.runtime.process.startup import Context
from trails.runtime.report.report import Report
from trails.testing import FakeClock


@pytest.fixture
def home(tmp_path):
    yield from home_of_a_manager(tmp_path)


# --- REFRESH, STATUS and reports --------------------------------------------------------------------------------------


@pytest.fixture
def manager(home):
    """A Manager made by hand, its mgr.prm on disk."""
    made = []

    def make(text: str):
        write(home, "mgr", f"PORT {free_port()}\nNOTLS\n{text}")
        path = home.prm("mgr")
        rules = params(Path(path).read_text())
        log = log_of(home)
        log.report = Report(home, "MGR")
        context = Context(home, home.fs, "MGR", "MANAGER", [], None, log.report, log, FakeClock(), Stop(), 7, path)
        made.append(Manager(context, rules))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_refresh_obeys_a_right_file_and_refuses_a_wrong_one_whole(home, manager):
    """REFRESH MANAGER: all but where it listens; a mistake leaves everything as it was."""
    made = manager("CHECKMINUTES 5\n")
    port = made.command("STATUS", {})["port"]
    write(home, "mgr", "PORT 7999\nNOTLS\nCHECKMINUTES 7\nAUTORESTART ER *\nFROBNICATE\n")
    with pytest.raises(ParamError, match="no such parameter"):
        made.command("REFRESH", {})
    assert made._params.check_s == 300
    assert "REFRESH refused, the parameters of before stay in force" in log_text(home)
    write(home, "mgr", "PORT 7999\nNOTLS\nCHECKMINUTES 7\nAUTORESTART ER *\n")
    assert made.command("REFRESH", {}) == {
        "changed": ["DYNAMICPORTLIST", "AUTORESTART", "CHECKMINUTES"], "kept": ["PORT"],
    }  # fmt: skip
    assert made._params.check_s == 420
    assert made._children._params.autorestart
    assert made._collectors._params.ports == ((8000, 8255),)
    assert made.command("STATUS", {})["port"] == port
    assert "port" in FIXED
    Path(home.globals).write_text("DISKWARN 1000%\n")
    with pytest.raises(ParamError, match="percentage"):
        made.command("REFRESH", {})


def test_a_fault_of_ours_in_a_chore_ends_nobody(home, manager, monkeypatch):
    """It is told once with its trace until the chore has worked again; the chores behind it are done."""
    made = manager("")
    done = []

    def fault() -> None:
        raise KeyError("forged")

    monkeypatch.setattr(made._web, "step", lambda: done.append(1))
    for step in (fault, fault, lambda: None, fault):
        monkeypatch.setattr(made._collectors, "step", step)
        made.step()
    assert len(done) == 4
    assert "Looking after Collectors failed: bug in Trailgate: KeyError: 'forged'" in log_text(home)
    assert Path(home.report("MGR")).read_text().count('raise KeyError("forged")') == 2


def test_status_tells_all_that_a_page_shows(home, manager):
    """Port, bind, start, children, Collectors, disk."""
    made = manager("")
    reply = made.command("STATUS", {})
    assert {"port", "bind", "started_us", "children", "collectors", "disk", "disks"} <= set(reply)
    assert (reply["bind"], reply["started_us"]) == ("127.0.0.1", 7)
    assert {"path", "free", "size", "warn", "stop", "state", "unit"} == set(reply["disk"])
    pool = made.command("GETPORTINFO", {})["pool"]
    assert sum(row["last"] - row["first"] + 1 for row in pool) == 256 or pool
    answer = made.command("GETPURGEOLDEXTRACTS", {})
    assert [row["group"] for row in answer["stale"]] == ["R1"]


def test_down_and_up_are_reported(home):
    """DOWNREPORT: a WARNING for what was stopped, by mistake perhaps, and for what abended; UPREPORT: INFO."""
    manager_lag.report_down(home, log_of(home), 1)
    assert "WARNING TG-00966" in log_text(home)
    assert "REPLICAT R1 is down (STOPPED)." in log_text(home)
    path = home.status("R1", "REPLICAT")
    status.write(home.fs, path, ProcessFile(1, 1, "ENDED", "A", 2, "wrong password"))
    manager_lag.report_down(home, log_of(home), 1)
    assert "REPLICAT R1 is down (ABENDED, exit code 2): wrong password" in log_text(home)
    manager_lag.report_up(home, log_of(home), 1)
    lock = home.fs.lock(home.lock("R1"))
    status.write(home.fs, path, ProcessFile(os.getpid(), 1, "RUNNING"))
    manager_lag.report_up(home, log_of(home), 1)
    lock.release()
    assert log_text(home).count("REPLICAT R1 is up") == 1


def test_chores_have_their_own_times():
    """At once or after the first time; None never; the loop sleeps until the next."""
    timers = Timers()
    assert [timers.turn("a", now, 10) for now in (0, 5, 10, 19, 21)] == [True, False, True, False, True]
    assert [timers.turn("b", now, 10, at_once=False) for now in (21, 30, 31)] == [False, False, True]
    assert not timers.turn("c", 0, None)
    assert timers.seconds(32) == 0
    assert timers.seconds(30) == 1


# --- systemd ----------------------------------------------------------------------------------------------------------


def test_systemd_is_told_what_the_manager_does(tmp_path, monkeypatch):
    """READY once, WATCHDOG three times within its time, STOPPING; children do not inherit the socket."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        server.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        monkeypatch.setenv("WATCHDOG_USEC", "30000000")
        notifier = Notifier()
        assert "NOTIFY_SOCKET" not in os.environ
        notifier.ready("Manager of here")
        for now in (1, 5, 12):
            notifier.alive(now)
        notifier.close()
        notifier.alive(100)
        said = [server.recv(1000).decode() for _ in range(4)]
    assert said == ["READY=1\nSTATUS=Manager of here", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"]
    Notifier().ready("nobody listens")


def test_what_a_manager_starts_at_once_does_not_inherit_systemds_socket(home, manager, monkeypatch, tmp_path):
    """AUTOSTART comes before READY."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    process = manager("AUTOSTART ER *\n")._children.children["R1"].process
    home.__dict__["started"].append(process)
    assert b"NOTIFY_SOCKET" not in Path(f"/proc/{process.pid}/environ").read_bytes()
