"""The initial load over a failover of its source: what the new server never had, and what it tells in other words."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.mariadb import MariaServer
from demo.mysql import MysqlServer
from demo.mysqld import Mysqld
from demo.proxy import Proxy
from demo.servers import PostgresServer
from tests.support.load_sources import from_log
from tests.support.loading import LoadBench
from tests.support.loadkv import kv_bench, kv_source, rows, settle, sql
from tests.support.mysql_source import caught_up, follow, promote

pytestmark = pytest.mark.e2e

SERVERS = {"mariadb": MariaServer, "mysql": MysqlServer}
UPDATES = {"log-slave-updates": "ON", "relay-log": "relay", "skip-slave-start": "1"}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of its own: a promotion lasts."""
    with PostgresServer(version=16, tcp=True) as made:
        yield made


def copied(bench: LoadBench) -> bool:
    return bool(bench.state().chunks) and all(chunk.seen for chunk in bench.state().chunks)


def test_rows_that_the_new_primary_never_had_are_not_kept(server: PostgresServer, target_db: str, tmp_path: Path):
    """A standby that lacks the last commits is promoted; a chunk has them, and the trail does not."""
    (tmp_path / "bench").mkdir()
    capture = kv_source(server.url("postgres"), tmp_path / "bench")
    capture.register()
    with kv_bench(capture, target_db, tmp_path / "bench") as bench:
        with capture.running() as extract:
            capture.drain(extract)
        server.stop()
        shutil.copytree(server.data, tmp_path / "standby")
        server.start()
        capture.sql("INSERT INTO kv VALUES (500, 'lost')", "UPDATE kv SET v = 'lost' WHERE id = 2")
        bench.instantiate("kv")
        bench.start()
        bench.until(lambda: copied(bench))
        assert (500, "lost") in rows(bench.url)
        server.stop()
        shutil.copytree(tmp_path / "standby", server.data, dirs_exist_ok=True)
        (server.data / "standby.signal").touch()
        server.start()
        server.sql("SELECT pg_promote(true)")
        with capture.running() as extract:
            capture.drain(extract)
            bench.until(lambda: any("from timeline 1 to timeline 2" in note for note in bench.notes))
            settle(capture, extract, bench)
        assert rows(bench.url) == rows(capture.url)


@pytest.mark.parametrize("kind", ["mariadb", pytest.param("mysql", marks=pytest.mark.soak)])
def test_a_transaction_that_a_chunk_has_is_not_applied_again_behind_a_failover(
    kind: str, target_db: str, tmp_path: Path
):
    """The new server's places are all higher than those of the old one, which the chunk's snapshot names."""
    cls = SERVERS[kind]
    with (
        cls(options={**cls.BINLOG, **UPDATES, "server-id": 1}) as primary,
        cls(options={**cls.BINLOG, **UPDATES, "server-id": 2}) as replica,
    ):
        served: list[Mysqld] = [primary]
        proxy = Proxy(lambda: ("127.0.0.1", served[0].port))
        primary.sql("CREATE DATABASE shop")
        (tmp_path / "dirdat").mkdir()
        source = from_log(
            f"mysql://root@127.0.0.1:{proxy.port}/shop", "shop", tmp_path, ("bag",),
            "CREATE TABLE bag (id bigint, v varchar(40))", "INSERT INTO bag VALUES (1, 'old')",
        )  # fmt: skip
        sql(target_db, "CREATE TABLE bag (id bigint, v varchar(40))")
        bench = LoadBench(tmp_path, source, target_db, "public", schema_there="shop")
        try:
            follow(replica, primary)
            with source.running() as extract:
                source.sql("INSERT INTO bag VALUES (2, 'captured')")
                source.drain(extract)
            source.sql("INSERT INTO bag VALUES (3, 'once')")
            bench.instantiate("bag")
            bench.start()
            bench.until(lambda: copied(bench))
            assert (3, "once") in rows(target_db, "bag")
            caught_up(replica, primary)
            primary.kill()
            promote(replica)
            served[0] = replica
            with source.running() as extract:
                source.drain(extract)
                bench.until(lambda: any("failed over to another server" in note for note in bench.notes))
                bench.until(lambda: not {"copying", "waiting"} & set(bench.states().values()))
                source.sql("INSERT INTO bag VALUES (4, 'last')")
                source.drain(extract)
                bench.until(bench.all_done)
            assert rows(target_db, "bag") == source.rows("SELECT id, v FROM bag ORDER BY id")
        finally:
            if bench.process is not None:
                bench.process.close()
            proxy.close()
