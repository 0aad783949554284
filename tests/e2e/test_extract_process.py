"""The Extract process itself: killed while it captures, refused with an exit code, stopped in order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from demo.patience import PATIENCE, wait_for
from demo.proxy import Proxy
from demo.servers import PostgresServer
from tests.support.capturing import Capture
from trails.checkpoint import load
from trails.fs import RealFs
from trails.plan import Planner
from trails.position import TrailName
from trails.reader import BlockReader, last_header
from trails.record import Op
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration, TrailReg
from trails.runtime.home.status import Status, status_of

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]


@pytest.fixture
def capture(source_db: str, tmp_path: Path) -> Iterator[Capture]:
    """A group, its home, and a database with a table without a key: a double or a loss shows."""
    home = Home(str(tmp_path / "home"))
    home.fs.makedirs(home.root)
    home.create_subdirs()
    made = Capture(source_db, Path(home.folder("dirdat")))
    made.sql("CREATE TABLE t (v text)", "CREATE TABLE big (id int PRIMARY KEY, v text)")
    made.register()
    trails = (TrailReg("./dirdat/lt", "EXTTRAIL", 1),)
    registration.save(home, Registration("EXT1", "EXTRACT", "TRANLOG", trails=trails, registered=made.registered))
    parameters(made, source_db)
    return made


def parameters(capture: Capture, url: str) -> None:
    """Write ext1.prm."""
    path = capture.folder.parent / "dirprm" / "ext1.prm"
    path.write_text(f"EXTRACT ext1\nSOURCEDB {url}\nEXTTRAIL ./dirdat/lt\nTABLE public.*;\nCHECKPOINTSECS 1\n")


def start(capture: Capture, *program: str) -> subprocess.Popen[str]:
    """As the Manager does."""
    command = [sys.executable, "-P", "-m", *(program or ("extract",)), "--home", str(capture.folder.parent), "EXT1"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env)


def until_captured(capture: Capture, rows: int, process: subprocess.Popen[str]) -> None:
    """Until the trail holds that many changes, by its block headers."""
    deadline = time.monotonic() + PATIENCE
    planner, found = Planner(BlockReader(RealFs(), capture.settings.trail)), 0
    while found < rows:
        if (unit := planner.next()) is not None:
            found += unit.changes
            continue
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.soak
def test_GG_08_killed_again_and_again_while_it_captures(capture: Capture) -> None:
    """I3, I10, CW-04: SIGKILL at random times; every change is in the trail once, all tables in order of commits."""
    random.seed(7)
    written = 0
    for round_ in range(8):
        process = start(capture)
        for _ in range(5):
            capture.sql(f"INSERT INTO t SELECT n::text FROM generate_series({written}, {written + 9}) n")
            written += 10
        first = round_ * 20_000
        capture.sql(f"INSERT INTO big SELECT n, repeat('v', 200) FROM generate_series({first}, {first + 19_999}) n")
        time.sleep(random.uniform(0.3, 1.5))
        process.kill()
        process.wait()
    process = start(capture)
    until_captured(capture, written + 8 * 20_000, process)  # which those before it may have captured already
    home = Home(str(capture.folder.parent))
    group = registration.load(home, "EXT1")
    wait_for(lambda: status_of(home, group).status is Status.RUNNING)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, process.communicate()[1]
    found = capture.changes()
    assert [c.after["v"] for t in found for c in t if c.after and c.table.name == "t"] == [
        str(n) for n in range(written)
    ]
    assert [t[0].table.name for t in found] == (["t"] * 5 + ["big"]) * 8
    large = [t for t in found if t[0].table.name == "big"]
    assert [len(t) for t in large] == [20_000] * 8
    assert all(c.op == Op.INSERT for t in large for c in t)
    assert (capture.folder.parent / "dirchk" / "EXT1.cpe").exists()


def test_GG_17_what_was_open_at_a_kill_is_read_again_whole(capture: Capture) -> None:
    """It began before Current, as Recovery says: the next process reads it from there, also what the killed one had."""
    home = Home(str(capture.folder.parent))

    def is_known() -> bool:
        saves = load(RealFs(), home.checkpoint("EXT1", "EXTRACT"))
        read = saves[0].reads[0] if saves and saves[0].reads else None
        return bool(read and read.recovery and (read.recovery.csn or "") < (read.current.csn or ""))

    process = start(capture)
    with psycopg.connect(capture.url) as holder:
        holder.execute("INSERT INTO big SELECT n, 'early' FROM generate_series(1, 1000) n")
        capture.sql("INSERT INTO t VALUES ('before')")
        until_captured(capture, 1, process)
        wait_for(is_known, told="Recovery before Current")
        process.kill()
        process.wait()
        process = start(capture)
        capture.sql("INSERT INTO t VALUES ('after')")
        until_captured(capture, 2, process)
        holder.execute("INSERT INTO big SELECT n, 'late' FROM generate_series(1001, 1010) n")
        holder.commit()
    until_captured(capture, 2 + 1010, process)
    process.terminate()
    assert process.wait(PATIENCE) == 0
    before, after, whole = capture.changes()
    assert [(c.after or {})["v"] for c in (*before, *after)] == ["before", "after"]
    assert [(c.after or {})["id"] for c in whole] == [str(n) for n in range(1, 1011)]


def test_a_lost_checkpoint_file_costs_nothing(capture: Capture) -> None:
    """I3: the trail knows where to go on. And the report of a whole run, in GoldenGate's order."""
    for n in range(2):
        process = start(capture)
        capture.sql(f"INSERT INTO t VALUES ('{n}')")
        until_captured(capture, n + 1, process)
        process.terminate()
        assert process.wait(PATIENCE) == 0
        (capture.folder.parent / "dirchk" / "EXT1.cpe").unlink()
    report = (capture.folder.parent / "dirrpt" / "EXT1.rpt").read_text()
    order = [
        "Trailgate Capture", "Operating System Version:", "Running with the following parameters",
        "Database Version:\nPostgreSQL", "Run Time Messages", "TABLE resolved: TABLE public.t. Key columns: ",
        "Run Time Statistics",
        "Last record for the last committed transaction is the following:", "From Table public.t to public.t:",
    ]  # fmt: skip
    assert sorted(order, key=report.index) == order
    assert [c.after for t in capture.changes() for c in t] == [{"v": "0"}, {"v": "1"}]


def test_a_trail_file_deleted_under_it_is_noticed_before_anything_is_acknowledged(capture: Capture) -> None:
    """I2: `rm` of the current file. The process ends and names it; the source keeps what came after; START goes on."""
    process = start(capture)
    capture.sql("INSERT INTO t VALUES ('0')")
    until_captured(capture, 1, process)
    (capture.folder / "lt000000000").unlink()
    capture.sql("INSERT INTO t VALUES ('1')")
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3  # nothing is lost, so AUTORESTART may start it again
    assert "lt000000000 was removed while it was written" in said
    process = start(capture)
    capture.sql("INSERT INTO t VALUES ('2')")
    until_captured(capture, 3, process)
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert [c.after for t in capture.changes() for c in t] == [{"v": "0"}, {"v": "1"}, {"v": "2"}]
    for file in capture.folder.glob("lt*"):
        file.unlink()
    _, said = start(capture).communicate(timeout=PATIENCE)
    assert "lt000000001 were deleted, and the source no longer has what they held" in said
    assert not list(capture.folder.glob("lt*"))


def test_what_an_operator_must_mend_ends_it_with_code_2(capture: Capture) -> None:
    """One line on stderr and in the report; no file of the trail was made; a password is never shown."""
    parameters(capture, capture.url.replace("postgres@", "nobody_here:secret@"))
    process = start(capture)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "refused the connection" in said
    assert "nobody_here" in said
    assert "secret" not in said
    assert "refused the connection" in (capture.folder.parent / "dirrpt" / "EXT1.rpt").read_text()
    assert last_header(Home(str(capture.folder.parent)).fs, TrailName(str(capture.folder), "lt")) is None


def test_a_database_that_is_away_ends_it_with_code_3(capture: Capture) -> None:
    """The Manager starts it again."""
    parameters(capture, "postgresql://postgres@127.0.0.1:1/x")
    process = start(capture)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert "can't be reached" in said


def test_what_changed_at_the_source_while_it_was_down_is_a_warning_in_the_log(capture: Capture) -> None:
    """TG-01813: without DDL nobody else hears of a renamed label and of another type."""
    capture.sql("CREATE TYPE mood AS ENUM ('sad')", "ALTER TABLE t ADD m mood", "INSERT INTO t VALUES ('a', 'sad')")
    log = capture.folder.parent / "ggserr.log"
    journal = capture.folder.parent / "dirpcs" / "EXT1.journal"
    process = start(capture)
    until_captured(capture, 1, process)
    wait_for(journal.exists)
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert "TG-01813" not in log.read_text()
    capture.sql("ALTER TYPE mood RENAME VALUE 'sad' TO 'bad'", "ALTER TABLE t ALTER v TYPE varchar(9)")
    capture.sql("INSERT INTO t VALUES ('b', 'bad')")
    process = start(capture)
    until_captured(capture, 2, process)
    wait_for(lambda: log.read_text().count("TG-01813") == 2, log.read_text)
    process.terminate()
    assert process.wait(PATIENCE) == 0
    told = [line for line in log.read_text().splitlines() if "TG-01813" in line]
    assert all("WARNING" in line for line in told)
    assert any("v was text, is character varying(9)." in line for line in told)
    assert any("enum public.mood: 'sad' was renamed to 'bad'." in line for line in told)


@pytest.mark.parametrize("streams", [True, False], ids=["while it streams", "while it connects"])
def test_a_stop_ends_it_over_a_silent_link(capture: Capture, pg_source: PostgresServer, streams: bool) -> None:
    """What the source's system acknowledges and nobody answers holds up no STOP for ever."""
    home = Home(str(capture.folder.parent))
    group = registration.load(home, "EXT1")
    proxy = Proxy(lambda: ("127.0.0.1", pg_source.port))
    try:
        direct = pg_source.url(urlsplit(capture.url).path[1:], tcp=True)
        parameters(capture, direct.replace(f":{pg_source.port}/", f":{proxy.port}/") + "?connect_timeout=2")
        if not streams:
            proxy.stall.set()
        process = start(capture, "tests.support.hasty", "extract")
        if streams:
            capture.sql("INSERT INTO t VALUES ('one')")
            until_captured(capture, 1, process)
            proxy.stall.set()
            capture.sql("INSERT INTO t VALUES ('two')")
        expected = Status.RUNNING if streams else Status.STARTING

        def is_so() -> bool:  # with its process file, before which no signal is listened to
            found = status_of(home, group)
            return found.status is expected and found.is_process

        wait_for(lambda: process.poll() is not None or is_so())
        process.send_signal(signal.SIGTERM)
        code, told = process.wait(PATIENCE), process.communicate()[1]
        assert code == (0 if streams else 3), told
    finally:
        proxy.close()
