"""The initial load as docs/initial-load.md tells it: real processes and Spark, by commands, while rows are written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from demo.guard import Guard
from demo.patience import PATIENCE, wait_for
from demo.pipeline import Host
from demo.ports import free_ports
from tests.support.pipelines import folder

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.xdist_group("spark")]

ROWS = 3000
TABLES = (
    "CREATE TABLE item (id bigint PRIMARY KEY, kind int, name text)",
    "CREATE TABLE part (id int, item bigint REFERENCES item, PRIMARY KEY (item, id))",
    "CREATE INDEX by_kind ON item (kind, id)",
    f"INSERT INTO item SELECT n, n % 7, 'old ' || n FROM generate_series(1, {ROWS}) n",
    f"INSERT INTO part SELECT n % 3, n FROM generate_series(1, {ROWS}) n",
)


def sql(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in statements:
            cursor = conn.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def host(source_db: str, target_db: str) -> Iterator[Host]:
    """A home with a Manager, an Extract that runs, and a Replicat that never ran; the target has no tables."""
    sql(source_db, *TABLES)
    guard = Guard()
    with folder() as place:
        host = Host(place / "home", free_ports(1)[0], guard.environment)
        host.home.mkdir()
        try:
            host.run("CREATE SUBDIRS")
            host.params("mgr", f"PORT {host.port}")
            host.params("ext1", "EXTRACT ext1", f"SOURCEDB '{source_db}'", "EXTTRAIL ./dirdat/lt", "TABLE public.*;")
            host.params(
                "rep1", "REPLICAT rep1", f"TARGETDB '{target_db}'", f"SOURCEDB '{source_db}'", "LOADCHUNK 1000",
                "CHECKPOINTTABLE gg.chk", "MAP public.*, TARGET public.*;",
            )  # fmt: skip
            host.run(
                "START MANAGER", f"DBLOGIN SOURCEDB '{source_db}'", "ADD TRANDATA public.*",
                "ADD EXTRACT ext1, TRANLOG, BEGIN NOW", "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1",
                "REGISTER EXTRACT ext1", "START EXTRACT ext1", f"DBLOGIN TARGETDB '{target_db}'",
                "ADD CHECKPOINTTABLE gg.chk", "ADD REPLICAT rep1, EXTTRAIL ./dirdat/lt, CHECKPOINTTABLE gg.chk",
            )  # fmt: skip
            yield host
        finally:
            host.run("STOP ER *", "STOP MANAGER!", check=False)
            left = guard.kill_rest()
            guard.dismiss()
            assert not left, left


def states(host: Host) -> dict[str, str]:
    return {one["source"].removeprefix("public."): one["state"] for one in host.json("INFO TABLES rep1")}


def test_DA_09_DA_11_DA_12_tables_are_loaded_and_join_while_rows_are_written(
    host: Host, source_db: str, target_db: str
):
    """Two tables before START, one under the running process; with what was to be made behind them."""
    told = host.run("INSTANTIATE REPLICAT rep1, CREATE").out
    assert "public.item to public.item: created" in told and "2 tables are to be loaded" in told
    done = threading.Event()

    def write() -> None:
        with psycopg.connect(source_db, autocommit=True) as conn:
            for n in range(1, 100_000):
                if done.wait(0.1):
                    return
                conn.execute(b"INSERT INTO item VALUES (%d, 1, 'new')" % (ROWS + n))
                conn.execute(b"UPDATE item SET name = 'now', kind = kind + 1 WHERE id = %d" % (n % ROWS + 1))
                conn.execute(b"DELETE FROM part WHERE item = %d" % (n * 2 % ROWS))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        host.run("START REPLICAT rep1", timeout=PATIENCE)
        wait_for(lambda: set(states(host).values()) == {"live"}, lambda: host.look("INFO TABLES rep1").out, every=1.0)
        sql(source_db, "CREATE TABLE late (id int PRIMARY KEY, v text)")
        assert "by the Replicat that runs" in host.run("ADD TABLE public.late, REPLICAT rep1, CREATE").out
        sql(source_db, "INSERT INTO late VALUES (1, 'a'), (2, 'b')", "UPDATE late SET v = 'c' WHERE id = 2")
        wait_for(lambda: states(host)["late"] == "live", lambda: host.look("INFO TABLES rep1").out, every=1.0)
        sql(target_db, "INSERT INTO part VALUES (77, 1)")
        told = host.run("RELOAD TABLE public.part, REPLICAT rep1!").out
        assert "public.part to public.part: emptied" in told and "was live" in told
    finally:
        done.set()
        writer.join()
    host.run("WAIT EXTRACT ext1, SECONDS 200", "WAIT REPLICAT rep1, SECONDS 200", timeout=PATIENCE)
    for table in ("item", "part", "late"):
        rows = f"SELECT t::text FROM {table} t ORDER BY 1"
        assert sql(target_db, rows) == sql(source_db, rows), table
    assert sql(target_db, "SELECT to_regclass('by_kind')") != [(None,)]
    keys = "SELECT conname FROM pg_constraint WHERE contype = 'f'"  # made once all tables are live, the last of all
    wait_for(
        lambda: sql(target_db, keys) == [("part_item_fkey",)], lambda: host.look("INFO TABLES rep1").out, every=1.0
    )
    live = "3 tables: 3 live."  # what was loaded anew has its foreign key since the first load
    wait_for(lambda: live in host.look("INFO TABLES rep1").out, lambda: host.look("INFO TABLES rep1").out, every=1.0)
    one_is_paused(host, source_db, target_db)


def one_is_paused(host: Host, source_db: str, target_db: str) -> None:
    """B4: by the commands, of a Replicat that runs and of one that is stopped."""
    assert "public.late to public.late is paused" in host.run("PAUSE TABLE public.late, REPLICAT rep1").out
    sql(source_db, "UPDATE late SET v = 'd'", "UPDATE item SET name = 'behind' WHERE id = 1")
    behind = "SELECT name FROM item WHERE id = 1"
    wait_for(lambda: sql(target_db, behind) == [("behind",)], lambda: host.look("INFO TABLES rep1").out, every=0.2)
    assert sql(target_db, "SELECT v FROM late ORDER BY id") == [("a",), ("c",)]
    assert "is left out, as it is paused" in host.look("WAIT REPLICAT rep1, SECONDS 200").err
    host.run("STOP REPLICAT rep1", timeout=PATIENCE)
    assert "public.late is paused" in host.look("INFO ALL").out and states(host)["late"] == "paused"
    assert "once you START" in host.run("RESUME TABLE public.late, REPLICAT rep1").out
    assert states(host)["late"] == "resuming"
    host.run("PAUSE TABLE public.late, REPLICAT rep1, MAXKEEPDAYS 2", "PAUSE TABLE public.part, REPLICAT rep1")
    assert "are kept for another 47:" in host.look("INFO TABLES rep1").out
    host.run("RESUME TABLE public.part, REPLICAT rep1, SKIP !", "RESUME TABLE public.late, REPLICAT rep1")
    host.run("START REPLICAT rep1", timeout=PATIENCE)
    host.run("WAIT REPLICAT rep1, SECONDS 200", timeout=PATIENCE)
    assert sql(target_db, "SELECT v FROM late ORDER BY id") == [("d",), ("d",)]
    assert set(states(host).values()) == {"live"}
