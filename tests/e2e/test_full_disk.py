"""A disk that is much smaller than what passes through it: real processes, and a real small file system."""

from __future__ import annotations

import contextlib
import io
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.guard import end_now
from demo.patience import wait_for
from demo.ports import free_port
from ggsci.commands.session import OperatorSession
from tests.support.homes import as_json, end_all, good, make_home, status, write
from tests.support.link import Source, records_of
from trails import checkpoint
from trails.fs import RealFs
from trails.position import TrailName
from trails.reader import BlockReader
from trails.runtime.home.home import Home
from trails.runtime.home.status import manager_status

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

MEGABYTES = 12
PUMP = "EXTRACT {name}\nRMTHOST 127.0.0.1, MGRPORT {port}, NOTLS\nRMTTRAIL ./dirdat/rt\nPASSTHRU\nCHECKPOINTSECS 1\n"
AUTOMATIC = "AUTORESTART ER *, RETRIES 3, WAITSECONDS 0\nPURGEOLDEXTRACTS ./dirdat/*, FREQUENCYSECONDS 1\n"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MB; its bound DISKSTOP is a tenth of that."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", folder], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no right to mount: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def chain(tmp_path: Path, small: Path) -> Iterator[tuple[Home, Home, Home]]:
    """A source's home, one on the small disk that passes all on, and the last one."""
    homes = make_home(tmp_path / "here"), make_home(small / "middle"), make_home(tmp_path / "there")
    ports = [free_port() for _ in homes]
    for home, port, low in zip(homes, ports, (free_port() for _ in homes), strict=True):
        rules = f"NOTLS\nDYNAMICPORTLIST {low}-{min(low + 20, 65535)}\n"
        write(home, "mgr", f"PORT {port}\n{rules}{AUTOMATIC if home is homes[1] else ''}")
    for home, name, port, trail in ((homes[0], "pmp1", ports[1], "lt"), (homes[1], "pmp2", ports[2], "rt")):
        write(home, name, PUMP.format(name=name, port=port))
        good(home, f"ADD EXTRACT {name}, EXTTRAILSOURCE ./dirdat/{trail}")
        good(home, f"ADD RMTTRAIL ./dirdat/rt, EXTRACT {name}, MEGABYTES 1")
    yield homes
    for home in homes:
        end_all(home)


def log(home: Home) -> str:
    """ggserr.log."""
    return Path(home.ggserr).read_text() if os.path.exists(home.ggserr) else ""


def end_of(home: Home, prefix: str) -> int:
    """How many changes the trail has."""
    reader, count = BlockReader(RealFs(), TrailName.parse(f"./dirdat/{prefix}", home.root)), 0
    while block := reader.read(payload=False):
        count += block.header.changes
    reader.close()
    return count


def at_end(home: Home, group: str) -> bool:
    """Whether it has handled all that waits for it; not so while it has no answer."""
    out = io.StringIO()
    OperatorSession(home.root, out=out, err=io.StringIO()).run(f"SEND {group}, LOGEND")
    return "YES" in out.getvalue()


def fill(folder: Path) -> None:
    """Until not one byte is left."""
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(1024)):
            pass
    assert os.statvfs(folder).f_bavail == 0


def needed(home: Home, name: str) -> int:
    """From which file on a Replicat's checkpoint needs its trail."""
    found = checkpoint.load(RealFs(), home.checkpoint(name.upper(), "REPLICAT"))
    return found[0].reads[0].needed.seqno if found and found[0].reads else -1


def filled(chain: tuple[Home, Home, Home], small: Path) -> None:
    """Nobody reads on the small disk, and the Collector stops in time; then not one byte is left."""
    here, middle, _ = chain
    trail = TrailName.parse("./dirdat/lt", here.root)
    source = Source(RealFs(), trail, max_bytes=1 << 20, padding=2000)
    for _ in range(200):
        source.small(4, 8)
    source.writer.close()
    assert sum(file.stat().st_size for file in Path(trail.folder).glob("lt*")) > 5 * MEGABYTES << 18
    for home in chain:
        good(home, "START MGR")
    good(here, "START EXTRACT pmp1")
    wait_for(lambda: "ended before the disk is full" in log(middle), told="the Collector to end")
    wait_for(lambda: not as_json(middle, "SEND MGR GETPORTINFO")["collectors"], told="its end")
    wait_for(lambda: "Collector refused" in log(middle), told="the Manager to start none")
    floor = (MEGABYTES << 20) // 10
    assert floor // 2 < os.statvfs(small).f_bavail * os.statvfs(small).f_frsize < floor
    fill(small)


def all_passes(chain: tuple[Home, Home, Home]) -> None:
    """Everything arrives, once, by itself."""
    here, middle, there = chain
    changes = end_of(here, "lt")
    wait_for(lambda: end_of(there, "rt") >= changes, lambda: f"all to pass\n{log(middle)[-2000:]}")
    first, last = (TrailName.parse(f"./dirdat/{name}", home.root) for name, home in (("lt", here), ("rt", there)))
    assert records_of(RealFs(), last) == records_of(RealFs(), first)
    assert str(status(middle, "PMP2").status) == "RUNNING"


def test_a_full_disk_unlocks_itself(chain: tuple[Home, Home, Home], small: Path) -> None:
    """Where not one byte is left the reader still starts.

    What it has read is purged, the Collector comes back, and all goes through, more than the disk holds, by itself.
    """
    filled(chain, small)
    good(chain[1], "START EXTRACT pmp2")
    all_passes(chain)
    assert (small / "filler").exists()


def with_replicat(home: Home, database: Path) -> Callable[[], int]:
    """A Replicat rep1 for `rt`, registered; says how many rows its target has."""
    with contextlib.closing(sqlite3.connect(database)) as conn:
        for table in ("orders", "items"):
            conn.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, note TEXT)")
    url = f"sqlite:///{database}"
    write(home, "rep1", f"REPLICAT rep1\nTARGETDB {url}\nHANDLECOLLISIONS\nMAP sales.orders, TARGET main.orders;\n"
                        "MAP sales.items, TARGET main.items;\nCHECKPOINTSECS 1\n")  # fmt: skip
    good(home, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE main.ck")
    session = OperatorSession(home.root)
    good(home, f"DBLOGIN TARGETDB {url}", session)
    good(home, "ADD CHECKPOINTTABLE main.ck", session)

    def rows() -> int:
        with contextlib.closing(sqlite3.connect(database)) as conn:
            return sum(
                int(conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in ("orders", "items")
            )

    return rows


@pytest.mark.spark
def test_on_a_disk_that_was_enlarged_readers_start_before_writers(
    chain: tuple[Home, Home, Home], small: Path, tmp_path: Path
) -> None:
    """A Manager that is started anew with it, and the pump before it asks for a Collector all the time.

    Its reader is slow to come: a Collector that did not wait would have filled what was won before anything is read.
    """
    here, middle, _ = chain
    rows = with_replicat(middle, tmp_path / "target.db")
    good(middle, "DELETE EXTRACT pmp2!")
    filled(chain, small)
    assert end_now(manager_status(middle).pid)
    subprocess.run(["mount", "-o", f"remount,size={MEGABYTES + 4}m", small], check=True)
    with open(middle.prm("mgr"), "a") as file:
        file.write("AUTOSTART ER *\n")
    before = len(log(middle))
    good(middle, "START MGR")
    for home, name in ((here, "EXTRACT pmp1"), (middle, "REPLICAT rep1")):
        wait_for(lambda h=home, n=name: at_end(h, n), lambda: log(middle)[-2000:], every=0.5)
    assert rows() > 0
    said = log(middle)[before:]
    assert "after a full disk REPLICAT REP1, which reads this trail, starts first" in said
    assert -1 < said.find("REPLICAT REP1 started") < said.find("Waiting for a pump on port")


@pytest.mark.spark
def test_a_replicat_works_where_not_one_byte_is_left(tmp_path: Path, small: Path) -> None:
    """Spark starts, all is applied, the checkpoint is saved over the old one, so the trail can be purged; it stops."""
    home = make_home(small / "home")
    rows = with_replicat(home, tmp_path / "target.db")
    trail = TrailName.parse("./dirdat/rt", home.root)
    source = Source(RealFs(), trail, max_bytes=1 << 20, padding=2000)
    for _ in range(50):
        source.small(4, 8)
    source.writer.close()
    newest = max(trail.seqnos(os.listdir(trail.folder)))
    fill(small)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "replicat", "--home", home.root, "rep1"], stderr=subprocess.PIPE
    ) as replicat:
        try:
            wait_for(lambda: needed(home, "rep1") == newest or replicat.poll() is not None, "the trail to be read")
            assert replicat.poll() is None, replicat.stderr.read()
            assert os.statvfs(small).f_bavail == 0
            assert str(status(home, "REP1").status) in ("STARTING", "RUNNING")
            good(home, "STOP REPLICAT rep1")
        finally:
            replicat.kill()
    assert rows() > 0
