"""Extract over a promotion of its server: another timeline, the same slot."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.servers import PostgresServer
from tests.support.capturing import Capture, step_until
from trails.errors import AnewError, MismatchError

pytestmark = pytest.mark.e2e


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of its own: a promotion lasts."""
    with PostgresServer(version=16, tcp=True) as made:
        yield made


def promote(server: PostgresServer) -> None:
    """The server becomes a standby of nobody, and then a primary on the next timeline."""
    server.stop("immediate")
    (server.data / "standby.signal").touch()
    server.start()
    server.sql("SELECT pg_promote(true)")


def test_a_promotion_is_followed_and_does_not_stop_the_next_start(server: PostgresServer, tmp_path: Path):
    """The trail's files must say which timeline they are of: else the start after next takes them for a lost branch."""
    capture = Capture(server.url("postgres"), tmp_path)
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)")
    capture.register()
    extract = capture.start()
    try:
        capture.sql("INSERT INTO t VALUES (1)")
        capture.drain(extract)
        promote(server)
        capture.sql("INSERT INTO t VALUES (2)")
        with pytest.raises(AnewError, match="timeline 2"):
            step_until(extract, lambda: False)
    finally:
        extract.close()
    for number in (3, 4, 5):
        with capture.running() as again:
            capture.sql(f"INSERT INTO t VALUES ({number})")
            capture.drain(again)
    assert [change.after for (change,) in capture.changes()] == [{"id": str(n)} for n in range(1, 6)]


def test_a_lost_branch_is_refused_as_often_as_it_is_started(server: PostgresServer, tmp_path: Path):
    """The new primary never had what the trail has: no start may make the next one forget that."""
    (tmp_path / "trail").mkdir(mode=0o700)
    capture = Capture(server.url("postgres"), tmp_path / "trail")
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)")
    capture.register()
    with capture.running() as extract:
        capture.sql("INSERT INTO t VALUES (1)")
        capture.drain(extract)
    server.stop()
    shutil.copytree(server.data, tmp_path / "standby")
    server.start()
    with capture.running() as extract:
        capture.sql("INSERT INTO t VALUES (2)")
        capture.drain(extract)
    server.stop()
    shutil.copytree(tmp_path / "standby", server.data, dirs_exist_ok=True)
    promote(server)
    capture.sql("INSERT INTO t SELECT generate_series(3, 1000)")
    for _ in range(3):
        with pytest.raises(MismatchError, match="timeline 2 and left timeline 1"):
            capture.start()
    assert [[c.after for c in change] for change in capture.changes()] == [[{"id": "1"}], [{"id": "2"}]]


def test_a_new_table_without_a_key_does_not_stop_a_reconnect(server: PostgresServer, tmp_path: Path):
    """START would refuse it; a process that runs says so and goes on capturing all else."""
    capture = Capture(server.url("postgres"), tmp_path)
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)")
    capture.register()
    with capture.running() as extract:
        capture.sql("CREATE TABLE bag (n int)", "INSERT INTO bag VALUES (1)")
        capture.drain(extract)
        server.restart("immediate")
        capture.sql("INSERT INTO t VALUES (2)")
        capture.drain(extract)
    assert [change.after for (change,) in capture.changes()] == [{"n": "1"}, {"id": "2"}]
    assert any("bag" in line and "ADD TRANDATA" in line for line in capture.said)
