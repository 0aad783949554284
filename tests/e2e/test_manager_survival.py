"""A Manager killed while it starts groups, and disks that fill up: real processes, real file systems."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demo.guard import end_now
from demo.patience import PATIENCE, wait_for
from demo.ports import free_port
from tests.support.homes import as_json, bad, end_all, good, make_home, status, write
from tests.support.link import Source
from trails.fs import RealFs
from trails.position import TrailName
from trails.reader import BlockReader
from trails.runtime.home.status import manager_status
from trails.runtime.language.freespace import Bound
from trails.runtime.process.diskguard import Limits

pytestmark = pytest.mark.e2e

PUMP = "EXTRACT pmp1\nRMTHOST 127.0.0.1, MGRPORT {port}, NOTLS\nRMTTRAIL ./dirdat/rt\nPASSTHRU\n"
EXTRACT = "EXTRACT ext1\nSOURCEDB postgresql://gate@127.0.0.1:{port}/nowhere\nEXTTRAIL ./dirdat/xt\nTABLE public.*;\n"


@pytest.fixture
def homes(tmp_path):
    """(source home with a pump, target home)."""
    here, there, port = make_home(tmp_path / "here"), make_home(tmp_path / "there"), free_port()
    low = free_port()
    write(there, "mgr", f"PORT {port}\nNOTLS\nDYNAMICPORTLIST {low}-{min(low + 20, 65535)}\n")
    write(here, "mgr", f"PORT {free_port()}\nNOTLS\nAUTOSTART ER *\nAUTORESTART ER *, RETRIES 3, WAITSECONDS 0\n")
    write(here, "pmp1", PUMP.format(port=port))
    good(here, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    good(here, "ADD RMTTRAIL ./dirdat/rt, EXTRACT pmp1")
    yield here, there
    end_all(here)
    end_all(there)


def log(home) -> str:
    """ggserr.log."""
    return Path(home.ggserr).read_text() if os.path.exists(home.ggserr) else ""


def pumps(home) -> list[int]:
    """The processes of its pump, whatever the home knows of them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().decode(errors="replace").split("\0")
            found += [int(entry.parent.name)] if "pump" in words and home.root in words else []
    return found


def space(home):
    """The file system of its dirdat."""
    return Limits(Bound(0), Bound(0)).look([home.folder("dirdat")])[0]


def arrived(home) -> int:
    """How many records the remote trail has."""
    reader, count = BlockReader(RealFs(), TrailName.parse("./dirdat/rt", home.root)), 0
    while block := reader.read(payload=False):
        count += block.header.changes
    reader.close()
    return count


def test_a_manager_killed_while_it_starts_groups_leaves_each_once_and_watched(homes):
    """CW-26: SIGKILL right after the fork, before, while and after the group takes its lock; AUTOSTART each time."""
    here, _ = homes
    for pause in (0.0, 0.2):
        before = log(here).count("starting as process")
        good(here, "START MGR")
        wait_for(lambda old=before: log(here).count("starting as process") > old or status(here, "PMP1").pid)
        time.sleep(pause)
        assert end_now(manager_status(here).pid)
        good(here, "START MGR")
        wait_for(lambda: str(status(here, "PMP1").status) == "RUNNING")

        def watched():
            child = next(iter(as_json(here, "SEND MGR CHILDSTATUS DEBUG")["children"]), {})
            return child.get("pid") == status(here, "PMP1").pid

        wait_for(watched)
        # A second one, started while the first had no lock yet, has ended by itself.
        wait_for(lambda: pumps(here) == [status(here, "PMP1").pid], told="one pump")
        assert end_now(manager_status(here).pid)
        assert end_now(status(here, "PMP1").pid)


def what_send_manager_shows(here, there) -> None:
    """SEND MANAGER's tables, while a pump runs and has a Collector."""
    text = good(there, "SEND MGR GETPORTINFO DETAIL")
    assert "assigned to a Collector" in text
    assert "free" in text
    assert "Ports" not in good(there, "SEND MGR GETPORTINFO")
    assert "as a child" in good(here, "SEND MGR CHILDSTATUS DEBUG")
    assert "as a child" not in good(here, "SEND MGR CHILDSTATUS")
    assert "DEBUG belongs to CHILDSTATUS" in bad(here, "SEND MGR GETPORTINFO DEBUG")
    text = good(here, "SEND MGR GETPURGEOLDEXTRACTS")
    assert "PurgeOldExtracts Rules" in text
    assert any("./dirdat/lt0" in line and "the trail's last file" in line for line in text.splitlines())
    answer = as_json(there, "SEND MGR GETPURGEOLDEXTRACTS")
    assert {"file", "goes", "reason", "who", "rule", "size", "modified_us"} <= set(answer["files"][0])


def test_a_collector_ends_before_the_disk_is_full_and_all_goes_on_after(homes):
    """CW-28: below DISKSTOP it acknowledges what it has and ends; its pump waits, and nothing is lost or doubled."""
    here, there = homes
    gap = min(space(there).free // 8, 1 << 30)
    Path(there.globals).write_text(f"DISKWARN 0\nDISKSTOP {space(there).free - gap}\n")
    source = Source(RealFs(), TrailName.parse("./dirdat/lt", here.root))
    source.mixed(20)
    good(there, "START MGR")
    good(here, "START MGR")
    wait_for(lambda: arrived(there) > 0)
    what_send_manager_shows(here, there)
    ballast = os.path.join(there.root, "ballast")
    fd = os.open(ballast, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 2 * gap)
    os.close(fd)
    wait_for(lambda: "ended before the disk is full" in log(there), told="the Collector to end")
    source.mixed(20)
    source.writer.close()
    wait_for(lambda: "less than DISKSTOP in GLOBALS allows" in log(there), told="the Manager to refuse")
    assert str(status(here, "PMP1").status) == "RUNNING"
    os.unlink(ballast)
    reader, sent = BlockReader(RealFs(), TrailName.parse("./dirdat/lt", here.root)), 0
    while block := reader.read(payload=False):
        sent += block.header.changes
    reader.close()
    wait_for(lambda: arrived(there) >= sent, told="all records")
    assert arrived(there) == sent


def test_an_extract_is_not_started_on_a_full_disk_until_there_is_space(homes):
    """START says why; AUTORESTART waits without spending tries; REFRESH with another bound lets it go on."""
    here, _ = homes
    good(here, "DELETE EXTRACT pmp1!")
    good(here, "ADD EXTRACT ext1, TRANLOG")
    good(here, "ADD EXTTRAIL ./dirdat/xt, EXTRACT ext1")
    write(here, "ext1", EXTRACT.format(port=free_port()))
    now = space(here)
    Path(here.globals).write_text(f"DISKSTOP {(now.free + now.size) // 2}\n")
    good(here, "START MGR")
    wait_for(lambda: "EXTRACT EXT1 is not started yet" in log(here))
    assert "DISKWARN" in log(here)  # the early warning
    assert "** STOP **" in good(here, "INFO MGR DETAIL")
    text = bad(here, "START EXTRACT ext1")
    assert "less than DISKSTOP" in text
    assert status(here, "EXT1").exit_code == 3
    Path(here.globals).write_text("DISKSTOP 0\nDISKWARN 0\n")
    assert "Manager refreshed" in good(here, "REFRESH MGR")
    wait_for(lambda: "DISKSTOP" not in status(here, "EXT1").message, told="a start that gets further")
    assert "state" in as_json(here, "INFO MGR")["disk"]


def test_a_manager_starts_on_a_disk_that_takes_no_more(homes):
    """CW-28: it is who purges. No report, no log, no output file can be written; it starts all the same."""
    _, there = homes
    process = subprocess.Popen([sys.executable, "-P", "-m", "ggsci.manager", "--home", there.root])
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (400, 400))  # long before it has begun to write
    try:
        wait_for(lambda: str(manager_status(there).status) == "RUNNING", told="the Manager to run")
        assert as_json(there, "INFO MGR")["pid"] == process.pid
        good(there, "STOP MGR!")
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    assert os.path.getsize(there.report("MGR")) <= 400
