"""The embedded servers that the demo and all end-to-end tests stand on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from demo.embedded import ServerError, processes_in
from demo.mariadb import MariaServer
from demo.mysql import MysqlServer
from demo.mysqld import Mysqld
from demo.patience import PATIENCE
from demo.servers import Install, PostgresServer, main

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", [16, 18])
def test_committed_data_and_a_slot_survive_a_kill(version: int) -> None:
    with PostgresServer(version=version) as server:
        server.sql("CREATE TABLE t (id int PRIMARY KEY, name text)")
        server.sql("CREATE PUBLICATION p FOR TABLE t")
        server.sql("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        server.sql("INSERT INTO t VALUES (1, 'one')")
        server.kill()
        assert not server.running
        assert processes_in(server.base) == []
        server.start()
        assert server.sql("SELECT * FROM t") == [(1, "one")]
        changes = server.sql(
            "SELECT data FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, "
            "'proto_version', '1', 'publication_names', 'p')"
        )
        assert [bytes(row[0][:1]) for row in changes] == [b"B", b"R", b"I", b"C"]
    assert processes_in(server.base) == []
    assert not server.base.exists()


def test_settings_are_those_of_a_source(pg_source: PostgresServer) -> None:
    settings = dict(pg_source.sql("SELECT name, setting FROM pg_settings"))
    assert {k: settings[k] for k in ("wal_level", "fsync", "autovacuum", "max_wal_senders")} == {
        "wal_level": "logical",
        "fsync": "on",
        "autovacuum": "on",
        "max_wal_senders": "10",
    }


def test_options_win_and_can_be_changed() -> None:
    with PostgresServer(options={"fsync": False}) as server:
        assert server.sql("SHOW fsync") == [("off",)]
        server.configure(work_mem="7MB")
        server.restart()
        assert server.sql("SHOW work_mem") == [("7MB",)]
        assert server.sql("SHOW fsync") == [("off",)]


@pytest.mark.parametrize("kind", [MariaServer, pytest.param(MysqlServer, marks=pytest.mark.soak)])
def test_a_commit_and_its_place_in_the_binary_log_survive_a_kill(kind: type[Mysqld]) -> None:
    try:
        server = kind(options=kind.BINLOG)
    except ServerError as error:
        pytest.skip(f"NO {kind.NAME}: {error}")
    with server:
        server.sql("CREATE DATABASE d")
        server.sql("CREATE TABLE t (id int PRIMARY KEY) ENGINE = InnoDB", "d")
        server.sql("INSERT INTO t VALUES (1)", "d")
        (log,) = server.sql("SHOW MASTER STATUS")
        server.kill()
        assert not server.running
        assert processes_in(server.base) == []
        server.start()
        assert server.sql("SELECT * FROM t", "d") == [("1",)]
        events = server.sql(f"SHOW BINLOG EVENTS IN '{log[0]}'")
        assert events[-1][4] == log[1]
        assert "Write_rows_v1" in {event[2] for event in events} or "Write_rows" in {event[2] for event in events}
        settings = "log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata"
        assert server.sql("SELECT " + ", ".join(f"@@{name}" for name in settings)) == [("1", "ROW", "FULL", "FULL")]
    assert processes_in(server.base) == []
    assert not server.base.exists()


def test_a_password_is_asked_for_on_socket_and_tcp() -> None:
    with PostgresServer(tcp=True, password="it's") as server:
        for tcp in (False, True):
            psycopg.connect(server.url(tcp=tcp)).close()
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(server.url(tcp=tcp, password="wrong"))


def test_a_server_dies_with_its_starter(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from demo.servers import PostgresServer\n"
        "server = PostgresServer().start()\n"
        "print(server.base, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    base = Path(done.stdout.strip())
    deadline = time.monotonic() + PATIENCE
    while (base.exists() or processes_in(base)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert base.name.startswith("tg-")
    assert processes_in(base) == []
    assert not base.exists()


def test_a_kept_server_is_managed_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    server = PostgresServer(keep=True)
    try:
        with server:
            pass
        assert server.running
        again = PostgresServer.open(server.base)
        assert again.sql("SELECT 1") == [(1,)]
        assert main(["stop", str(server.base)]) == 0
        assert not server.running
        assert main(["start", str(server.base)]) == 0
        assert server.running
    finally:
        assert main(["remove", str(server.base)]) == 0
    assert not server.base.exists()
    assert main(["stop", str(server.base)]) == 2
    assert "holds no server" in capsys.readouterr().err


def test_a_directory_with_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(ServerError, match="is not empty"):
        PostgresServer(tmp_path)
    assert (tmp_path / "precious").exists()


@pytest.mark.skipif(not Install.of_system(), reason="no PostgreSQL of the system")
def test_a_server_of_the_system_works_the_same() -> None:
    with PostgresServer(version="system") as server:
        assert server.sql("SHOW wal_level") == [("logical",)]


def test_each_test_has_databases_of_its_own(source_db: str, target_db: str) -> None:
    with psycopg.connect(source_db) as source, psycopg.connect(target_db) as target:
        source.execute("SELECT pg_create_logical_replication_slot('dropped_after', 'pgoutput')")
        assert source.info.server_version // 10000 == 16
        assert target.info.server_version // 10000 == 18
