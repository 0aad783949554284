"""Managers, pumps and Collectors as real processes: start, stop, kill, restart, adoption, hand-out of Collectors."""

from __future__ import annotations

import json
import os
import signal
import socket
import time

import pytest

from demo.guard import end_now
from demo.patience import PATIENCE, wait_for
from demo.ports import free_port
from tests.support.homes import (
    as_json,
    bad,
    end_all,
    ggsci,
    good,
    group,
    make_home,
    status,
    write,
)
from tests.support.link import Source
from tests.support.secure import certify
from trails.fs import RealFs
from trails.position import TrailName
from trails.reader import BlockReader
from trails.runtime.home.status import manager_status

pytestmark = pytest.mark.e2e

PUMP = "EXTRACT pmp1\nRMTHOST 127.0.0.1, MGRPORT {port}, NOTLS\nRMTTRAIL ./dirdat/rt\nPASSTHRU\nTABLE *.*;\n"


@pytest.fixture
def homes(tmp_path):
    """(source home with a pump, target home, the target Manager's port)."""
    here, there, port = make_home(tmp_path / "here"), make_home(tmp_path / "there"), free_port()
    low = free_port()
    write(there, "mgr", f"PORT {port}\nNOTLS\nDYNAMICPORTLIST {low}-{min(low + 20, 65535)}\n")
    write(here, "mgr", f"PORT {free_port()}\nNOTLS\nAUTORESTART ER *, RETRIES 3, WAITSECONDS 1\n")
    write(here, "pmp1", PUMP.format(port=port))
    good(here, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    good(here, "ADD RMTTRAIL ./dirdat/rt, EXTRACT pmp1")
    yield here, there, port
    end_all(here)
    end_all(there)


def fill(home, count=20):
    """Write a local trail."""
    source = Source(RealFs(), TrailName.parse("./dirdat/lt", home.root))
    source.mixed(count)
    source.writer.close()


def arrived(home):
    """Where the remote trail ends."""
    reader = BlockReader(RealFs(), TrailName.parse("./dirdat/rt", home.root))
    while reader.read(payload=False) is not None:
        pass
    reader.close()
    return reader.position


def state(home, name="PMP1"):
    """Its status as text."""
    return str(status(home, name).status)


def runs_anew(home, before):
    """Whether PMP1 runs as another process: by one look, as the one before may die between two."""
    found = status(home, "PMP1")
    return str(found.status) == "RUNNING" and found.pid not in (None, before)


def stays_down(home):
    """The Manager has seen the end of PMP1's process, and plans no other: that is decided in the same moment."""

    def is_left_alone():
        (child,) = as_json(home, "SEND MGR CHILDSTATUS")["children"]
        return child["pid"] is None and child["retry_us"] is None

    wait_for(is_left_alone, told="PMP1 to be left down")


def test_start_says_for_whom_a_pump_waits(homes):
    """START tells the truth: no Manager answers there, so the pump is still starting; INFO and SEND say it too."""
    here, _, port = homes
    good(here, "START MANAGER")
    assert "is running (process ID" in (text := good(here, "START pmp1"))
    assert "Waiting for trail ./dirdat/lt: it has no file yet." in text
    assert f"WARNING: Manager at 127.0.0.1:{port} can't be reached: " in text  # nobody dials yet, START has looked
    good(here, "STOP pmp1")
    fill(here)
    text = good(here, "START pmp1")
    assert "EXTRACT PMP1 is still starting (process ID" in text
    waits = f"Waiting for the remote host 127.0.0.1, Manager's port {port}: "
    assert waits in text
    assert "WARNING" not in text  # it was said already
    assert waits in good(here, "INFO pmp1")
    assert waits in good(here, "SEND pmp1 STATUS")


def test_GG_06_a_pump_is_started_through_managers_and_stopped(homes):
    """START waits until it runs, a Collector is handed out, STOP waits until it is stopped; INFO and SEND show it.

    Another pump gets another Collector, at another port, for another trail; the first one's it is refused.
    """
    here, there, port = homes
    fill(here)
    assert "Manager started." in ggsci(there, "START", "MANAGER")
    text = ggsci(here, stdin="START MGR\nSTART EXTRACT pmp1\nSTART pmp1\nINFO MGR\n")
    assert "Sending START request to MANAGER ..." in text
    assert "EXTRACT PMP1 starting" in text
    assert "EXTRACT PMP1 is running (process ID" in text
    assert "EXTRACT PMP1 is already running." in text
    wait_for(lambda: arrived(there) is not None)
    row = wait_for(lambda: as_json(there, "SEND MGR GETPORTINFO")["collectors"])[0]
    assert (row["trail"], row["pump"]) == ("./dirdat/rt", f"{here.id}/PMP1")
    assert not request(port, pump="b" * 32 + "/PMP2")["ok"]
    assert request(port, trail="./dirdat/xt", pump="b" * 32 + "/PMP2")["port"] != row["port"]
    both = {one["trail"]: one for one in as_json(there, "SEND MGR GETPORTINFO")["collectors"]}
    assert both["./dirdat/rt"]["pid"] == row["pid"] != both["./dirdat/xt"]["pid"]
    assert os.path.exists(there.folder("dirdat") + "/rt000000000")
    assert as_json(here, "SEND pmp1 STATUS")[0]["pid"] == status(here, "PMP1").pid
    assert as_json(here, "SEND MGR CHILDSTATUS")["children"][0]["group"] == "PMP1"
    assert "Manager is running (IP port" in good(there, "INFO MGR")
    text = good(here, "STOP EXTRACT pmp1")
    assert "Sending STOP request to EXTRACT PMP1 ..." in text
    assert "EXTRACT PMP1 stopped." in text
    assert state(here) == "STOPPED"
    assert "Stop Status = G" in good(here, "INFO EXTRACT pmp1, SHOWCH")
    assert "already stopped" in good(here, "STOP pmp1")

    def ended() -> bool:
        left = as_json(there, "SEND MGR GETPORTINFO")["collectors"]
        return "./dirdat/rt" not in [one["trail"] for one in left]

    wait_for(ended, told="the Collector to end")
    assert "Manager stopped." in good(here, "STOP MGR!")
    assert "Manager is DOWN!" in good(here, "INFO MGR")


def test_start_tells_at_once_why_a_group_abended(homes):
    """A mistake in the parameter file is refused before; a failing start-up is told with its reason."""
    here, _, port = homes
    good(here, "START MGR")
    write(here, "pmp1", PUMP.format(port=port) + "FROBNICATE\n")
    text = bad(here, "START pmp1")
    assert f"{here.prm('pmp1')}:6" in text
    assert state(here) == "STOPPED"
    write(here, "pmp1", PUMP.format(port=port))
    with open(here.checkpoint("PMP1", "EXTRACT"), "wb") as file:
        file.write(b"damaged")
    text = bad(here, "START pmp1")
    assert "EXTRACT PMP1 ABENDED at its start:" in text
    assert "damaged checkpoint file" in text
    assert state(here) == "ABENDED"
    stays_down(here)  # exit code 2: somebody must act
    os.unlink(here.checkpoint("PMP1", "EXTRACT"))
    certify(here, here, days=3)
    text = good(here, "START pmp1")
    assert "is running" in text
    assert "dircrd/tls/home.crt expires in 2 days, at " in text  # a warning of START's own


def test_a_killed_group_comes_back_and_a_kill_by_command_stays(homes):
    """A group that dies is restarted by AUTORESTART; after KILL it stays down until START."""
    here, _, _ = homes
    good(here, "START MGR")
    good(here, "START pmp1")
    first = status(here, "PMP1").pid
    assert end_now(first)
    wait_for(lambda: state(here) == "RUNNING", told="AUTORESTART")
    assert status(here, "PMP1").pid != first
    assert "Killed process" in good(here, "KILL EXTRACT pmp1")
    stays_down(here)
    assert state(here) == "ABENDED"
    good(here, "START pmp1")
    assert state(here) == "RUNNING"


def test_stop_waits_for_a_restart_that_is_on_its_way(homes):
    """A group dies, AUTORESTART makes its next process, STOP comes before that holds the lock: it ends stopped."""
    here, _, _ = homes
    write(here, "mgr", f"PORT {free_port()}\nNOTLS\nAUTORESTART ER *, RETRIES 50, WAITSECONDS 0\n")
    good(here, "START MGR")
    for pause in (0.0, 0.05, 0.1, 0.2):
        good(here, "START pmp1")
        os.kill(status(here, "PMP1").pid, signal.SIGKILL)
        time.sleep(pause)
        good(here, "STOP pmp1")
        stays_down(here)
        assert state(here) in ("STOPPED", "ABENDED")


def test_CW_26_manager_and_group_are_killed_and_come_back(homes):
    """CW-26: the group goes on without its Manager; the next one adopts it, and restarts what died meanwhile."""
    here, _, _ = homes
    good(here, "START MGR")
    good(here, "START pmp1")
    pid = status(here, "PMP1").pid
    assert end_now(manager_status(here).pid)
    assert status(here, "PMP1").pid == pid
    good(here, "START MGR")
    assert as_json(here, "SEND MGR CHILDSTATUS")["children"][0]["pid"] == pid
    os.kill(pid, signal.SIGKILL)  # adopted, so no child: its pidfd tells
    wait_for(lambda: runs_anew(here, pid), told="restart of an adopted group")
    assert end_now(manager_status(here).pid)
    last = status(here, "PMP1").pid
    assert end_now(last)
    assert state(here) == "ABENDED"  # at once
    good(here, "START MGR")
    wait_for(lambda: state(here) == "RUNNING", told="restart of what died unseen")
    assert status(here, "PMP1").pid != last


def test_autostart_starts_groups_with_the_manager(homes):
    """AUTOSTART ER *."""
    here, _, _ = homes
    write(here, "mgr", f"PORT {free_port()}\nNOTLS\nAUTOSTART ER *\n")
    good(here, "START MGR")
    wait_for(lambda: state(here) == "RUNNING")


def test_retries_are_bounded(homes):
    """A group that dies again and again is left down until RESETMINUTES have passed, and that is said."""
    here, _, _ = homes
    write(here, "mgr", f"PORT {free_port()}\nNOTLS\nAUTORESTART ER *, RETRIES 1, WAITSECONDS 0\n")
    good(here, "START MGR")
    good(here, "START pmp1")
    for _ in range(2):
        pid = wait_for(lambda: state(here) == "RUNNING" and status(here, "PMP1").pid)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda old=pid: status(here, "PMP1").pid != old)
    wait_for(lambda: "1 restarts did not help within 20 minutes; it is tried again in" in good(here, "VIEW GGSEVT"))
    (child,) = as_json(here, "SEND MGR CHILDSTATUS")["children"]
    assert child["pid"] is None and child["retry_us"] - time.time_ns() // 1000 > 60_000_000
    assert state(here) == "ABENDED"


def test_a_port_in_use_is_one_clear_message(homes):
    """Exit code 2 of the Manager, told by START MANAGER; a second Manager in one home is refused by the lock."""
    here, _, _ = homes
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        write(here, "mgr", f"PORT {taken.getsockname()[1]}\n")
        text = bad(here, "START MGR")
        assert f"PORT {taken.getsockname()[1]} at 127.0.0.1 can't be used" in text
        assert manager_status(here).exit_code == 2
    good(here, "START MGR")
    assert "Manager is already running." in good(here, "START MGR")


def request(port, **changes):
    """One START COLLECTOR request; the Manager's answer."""
    asked = {"trailgate": 1, "verb": "START COLLECTOR", "trail": "./dirdat/rt", "pump": "a" * 32 + "/PMP1"} | changes
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as link:
        link.sendall(json.dumps(asked).encode() + b"\n")
        return json.loads(link.makefile().readline())


def test_collectors_are_one_a_trail_and_the_older_of_a_pump_is_ended(homes):
    """The same pump takes over, also from a Collector of a killed Manager; another pump is refused."""
    _, there, port = homes
    good(there, "START MGR")
    first = request(port)
    assert first["ok"], first
    pid = as_json(there, "SEND MGR GETPORTINFO")["collectors"][0]["pid"]
    refused = request(port, pump="b" * 32 + "/PMP1")
    assert (refused["ok"], refused["permanent"]) == (False, True)
    assert request(port)["ok"]
    second = as_json(there, "SEND MGR GETPORTINFO")["collectors"][0]["pid"]
    assert second != pid
    assert end_now(manager_status(there).pid)
    good(there, "START MGR")
    assert as_json(there, "SEND MGR GETPORTINFO")["collectors"][0]["pid"] == second
    assert request(port)["ok"]
    assert as_json(there, "SEND MGR GETPORTINFO")["collectors"][0]["pid"] != second


def test_a_stopped_collector_is_killed_when_its_pump_comes_anew(homes):
    """CW-24: SIGTERM does nothing to a stopped process; after a while it is killed, and the pump is served."""
    _, there, port = homes
    good(there, "START MGR")
    assert request(port)["ok"]
    pid = as_json(there, "SEND MGR GETPORTINFO")["collectors"][0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    assert request(port)["ok"]
    assert as_json(there, "SEND MGR GETPORTINFO")["collectors"][0]["pid"] != pid


def test_groups_and_managers_survive_their_ggsci(homes):
    """The process that ran START MANAGER is gone; the Manager has a session of its own."""
    here, _, _ = homes
    ggsci(here, "START", "MGR")
    pid = manager_status(here).pid
    assert os.getsid(pid) == pid
    assert group(here, "PMP1").name == "PMP1"
