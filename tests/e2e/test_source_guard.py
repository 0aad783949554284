"""The source guard on a real server: what a slot keeps back is told, and a slot that is lost is said at once."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.patience import PATIENCE, wait_for
from demo.servers import PostgresServer
from tests.support.capturing import Capture
from tests.support.homes import as_json, good, make_home, write
from trails.errors import EXIT_OPERATOR, GateError
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration, TrailReg
from trails.runtime.process.control import ask

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
SEGMENT = 16 << 20


@pytest.fixture
def home(source_db: str, tmp_path: Path) -> Home:
    """A home with EXT1, registered in a database with one table."""
    made = make_home(tmp_path / "home")
    capture = Capture(source_db, Path(made.folder("dirdat")))
    capture.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    capture.register()
    capture.sql("SELECT pg_logical_emit_message(false, 'trailgate test', repeat('x', 100000))")
    trails = (TrailReg("./dirdat/lt", "EXTTRAIL", 1),)
    registration.save(made, Registration("EXT1", "EXTRACT", "TRANLOG", trails=trails, registered=capture.registered))
    lines = ("EXTRACT ext1", f"SOURCEDB {source_db}", "EXTTRAIL ./dirdat/lt", "TABLE public.*;", "WALWARN 1K")
    write(made, "ext1", "\n".join(lines) + "\n")
    return made


@contextlib.contextmanager
def running(home: Home) -> Iterator[subprocess.Popen[str]]:
    """The Extract's process, gone at the end whatever became of it."""
    command = [sys.executable, "-P", "-m", "extract", "--home", home.root, "EXT1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.communicate(timeout=PATIENCE)


def metrics(home: Home) -> dict[str, Any]:
    """Its answer to METRICS; nothing before it answers."""
    try:
        return ask(home, "EXT1", "METRICS", timeout=PATIENCE)
    except GateError:
        return {}


def looked(home: Home) -> dict[str, Any]:
    """The answer once the guard has looked."""
    found = metrics(home)
    return found if found.get("extra", {}).get("log_status") else {}


@pytest.fixture
def small_limit(pg_source: PostgresServer) -> Iterator[PostgresServer]:
    """The server keeps at most a segment for a slot."""
    _limit(pg_source, "16MB")
    yield pg_source
    _limit(pg_source, "-1")


def _limit(server: PostgresServer, size: str) -> None:
    server.configure(max_slot_wal_keep_size=size)
    server.reload()
    wait_for(lambda: server.sql("SHOW max_slot_wal_keep_size") == [(size,)], told="the server's new setting")


def lose_the_slot(server: PostgresServer) -> None:
    """Write several segments of log and let a checkpoint remove what is over the limit."""
    for _ in range(4):
        server.sql("SELECT pg_logical_emit_message(false, 'trailgate test', 'x')")
        server.sql("SELECT pg_switch_wal()")
    server.sql("CHECKPOINT")


def test_what_a_slot_keeps_back_is_told_while_the_extract_runs_and_when_it_does_not(
    home: Home, source_db: str, small_limit: PostgresServer
):
    """METRICS and INFO EXTRACT, DETAIL, running and stopped; WALWARN is a WARNING of its own code; pitfall 11."""
    del source_db
    with running(home) as process:
        found = wait_for(lambda: looked(home), told="a look at the slot")
        extra = found["extra"]
        assert (found["program"], found["group"]) == ("EXTRACT", "EXT1")
        assert (extra["log_status"], extra["log_limit_bytes"]) == ("reserved", SEGMENT)
        assert extra["log_kept_bytes"] > 1024
        assert extra["log_headroom_bytes"] > 0
        # The end of the log as of the look is read at once: nothing waits, and the lag is none.
        none = {"backlog_bytes": 0, "backlog_us": 0}.items()
        wait_for(lambda: none <= metrics(home).items(), told="an empty backlog")
        wait_for(lambda: "TG-01755" in Path(home.ggserr).read_text(), told="the warning")
        assert "(WALWARN 1.0 KB)" in Path(home.ggserr).read_text()
        text = good(home, "INFO EXTRACT ext1, DETAIL")
        holder = extra["holder"]
        assert f"Log Kept By          {holder}  reserved" in text
        assert "until the source gives it up (max_slot_wal_keep_size 16.0 MB)" in text
        process.terminate()
        process.wait(PATIENCE)
    # What was kept may be free by now, as the Extract may have come past it: this nobody has read.
    small_limit.sql("SELECT pg_logical_emit_message(false, 'trailgate test', repeat('x', 100000))")
    (stopped,) = as_json(home, "INFO EXTRACT ext1, DETAIL")
    assert stopped["kept"]["log_status"] == "reserved"
    assert stopped["kept"]["level"] == 1
    small_limit.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    (dropped,) = as_json(home, "INFO EXTRACT ext1, DETAIL")
    assert dropped["kept"]["log_status"] == "missing"
    assert "does not exist" in dropped["kept"]["lost"], "which the Manager says as it says that one is lost"
    assert "It was dropped, and changes are lost" in good(home, "INFO EXTRACT ext1, DETAIL")


def test_a_lost_slot_ends_the_extract_at_once_with_code_2(home: Home, source_db: str, small_limit: PostgresServer):
    """Pitfall 12: no retries, whether it is found while running, at START, or by INFO of a stopped Extract."""
    del source_db
    with running(home) as process:
        wait_for(lambda: looked(home), told="a look at the slot")
        process.send_signal(signal.SIGSTOP)
        lose_the_slot(small_limit)
        process.send_signal(signal.SIGCONT)
        assert process.wait(PATIENCE) == EXIT_OPERATOR
    log = Path(home.ggserr).read_text()
    assert "is lost: the server removed log that was not captured yet" in log
    assert "Trying again can't help: re-sync" in log
    (found,) = as_json(home, "INFO EXTRACT ext1, DETAIL")
    assert (found["status"], found["kept"]["log_status"]) == ("ABENDED", "lost")
    assert "re-sync" in good(home, "INFO EXTRACT ext1, DETAIL")
    with running(home) as process:
        assert process.wait(PATIENCE) == EXIT_OPERATOR
