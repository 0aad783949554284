"""GoldenGate's initial load: SOURCEISTABLE reads tables into a file, SPECIALRUN applies it, AFTERCSN goes on behind.

By commands, with real processes and databases though without Spark, while rows are written and what works is killed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from demo.guard import Guard
from demo.patience import wait_for
from demo.pipeline import Host
from demo.ports import free_ports
from tests.support import sparkless
from tests.support.pipelines import folder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

ROWS = 6000
SHAPES = (
    "CREATE TABLE item (id bigint PRIMARY KEY, name text, data bytea, flag boolean, at timestamptz)",
    "CREATE TABLE part (item bigint, n int, note varchar(80), PRIMARY KEY (item, n))",
    "CREATE TABLE loose (v text)",
    'CREATE TABLE "Odd Name" ("K" text PRIMARY KEY, d double precision, a int[])',
)  # fmt: skip
ROWS_OF = (
    (
        "INSERT INTO item SELECT n, CASE n % 5 WHEN 0 THEN NULL WHEN 1 THEN E'tab\\tback\\\\slash\\nline' "
        f"ELSE 'ä' || n END, decode(md5(n::text), 'hex'), n % 2 = 0, now() FROM generate_series(1, {ROWS}) n"
    ),
    f"INSERT INTO part SELECT n, n % 3, '' FROM generate_series(1, {ROWS}) n",
    "INSERT INTO loose VALUES ('twice'), ('twice'), (NULL)",
    "INSERT INTO \"Odd Name\" VALUES ('\\N', '-0', '{1,NULL}'), ('', 'NaN', NULL)",
)  # fmt: skip
TABLES = ("item", "part", "loose", '"Odd Name"')


def sql(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in statements:
            cursor = conn.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def host(source_db: str, target_db: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A home with a Manager, an Extract that captures, and the groups of a load, none of which has run."""
    sql(source_db, *SHAPES, *ROWS_OF)
    sql(target_db, *SHAPES)
    for name, value in sparkless.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    guard = Guard()
    with folder() as place:
        host = Host(place / "home", free_ports(1)[0], guard.environment)
        host.home.mkdir()
        try:
            host.run("CREATE SUBDIRS")
            source, target = f"SOURCEDB '{source_db}'", f"TARGETDB '{target_db}'"
            host.params("mgr", f"PORT {host.port}", "AUTORESTART ER *, RETRIES 3, WAITMINUTES 1")
            host.params("ext1", "EXTRACT ext1", source, "EXTTRAIL ./dirdat/lt", "TABLE public.*;")
            host.params("load1", "EXTRACT load1", source, "EXTFILE ./dirdat/in", "CHECKPOINTSECS 1", "TABLE public.*;")
            host.params("load2", "REPLICAT load2", target, "GROUPTRANSOPS 1", "MAP public.*, TARGET public.*;")
            host.params("rep1", "REPLICAT rep1", target, "MAP public.*, TARGET public.*;")
            (host.home / "GLOBALS").write_text("CHECKPOINTTABLE gg.chk\n")
            host.run(
                "START MANAGER", f"DBLOGIN {source}", "ADD TRANDATA public.*", "ADD EXTRACT ext1, TRANLOG, BEGIN NOW",
                "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1", "REGISTER EXTRACT ext1", "START EXTRACT ext1",
                "ADD EXTRACT load1, SOURCEISTABLE", f"DBLOGIN {target}", "ADD CHECKPOINTTABLE",
                "ADD REPLICAT load2, SPECIALRUN, EXTFILE ./dirdat/in", "ADD REPLICAT rep1, EXTTRAIL ./dirdat/lt",
            )  # fmt: skip
            yield host
        finally:
            host.run("STOP EXTRACT ext1", "STOP REPLICAT rep1", "STOP MANAGER!", check=False)
            left = guard.kill_rest()
            guard.dismiss()
            assert not left, left


def csn(host: Host) -> str:
    """What INFO tells of the last snapshot."""
    found = re.search(r"LSN (\S+)", host.look("INFO EXTRACT load1").out)
    assert found
    return found[1]


def ended(host: Host, group: str) -> bool:
    kind = "EXTRACT" if group == "load1" else "REPLICAT"
    return "STOPPED" in host.look(f"STATUS {kind} {group}").out


def equal(source: str, target: str) -> None:
    for table in TABLES:
        rows = f"SELECT t::text FROM {table} t ORDER BY 1"
        assert sql(target, rows) == sql(source, rows), table


def test_a_load_by_file_while_rows_are_written(host: Host, source_db: str, target_db: str):
    """The snapshot's CSN is exact: what is behind it in the trail, and nothing else, is missing in the file."""
    done = threading.Event()

    def write(first: int) -> None:
        with psycopg.connect(source_db) as conn:
            for n in range(first, first + 50_000):
                if done.is_set():
                    return
                conn.execute(b"INSERT INTO item VALUES (%d, 'new')" % (ROWS + 1 + n))
                conn.execute(b"UPDATE part SET note = note || 'x' WHERE item = %d" % (n % ROWS + 1))
                conn.execute(b"INSERT INTO loose VALUES ('%d')" % n)
                conn.commit()

    writers = [threading.Thread(target=write, args=(n,)) for n in (0, 100_000)]
    for writer in writers:
        writer.start()
    try:
        host.run("START EXTRACT load1")
        wait_for(lambda: ended(host, "load1"), lambda: host.report("load1"))
    finally:
        done.set()
        for writer in writers:
            writer.join()
    told = host.look("INFO EXTRACT load1").out
    assert "Task                 SOURCEISTABLE" in told and "All tables" in told and "Checkpoint Lag" not in told
    assert f"AFTERCSN {csn(host)}" in host.report("load1")
    assert "LOAD1" not in host.look("INFO ALL").out and "EXT1" not in host.look("INFO ALL TASKS").out
    assert all(name in host.look("INFO ALL ALLPROCESSES").out for name in ("LOAD1", "LOAD2", "EXT1", "REP1"))
    assert "LOAD2" in host.look("INFO REPLICAT *, TASKS").out
    host.run("START REPLICAT load2")
    wait_for(lambda: ended(host, "load2"), lambda: host.report("load2"))
    assert "the end of the trail is reached" in host.report("load2")
    host.run(f"START REPLICAT rep1, AFTERCSN {csn(host)}", "WAIT EXTRACT ext1", "WAIT REPLICAT rep1")
    equal(source_db, target_db)
    host.run("START REPLICAT load2")
    wait_for(lambda: ended(host, "load2"), lambda: host.report("load2"))
    equal(source_db, target_db)


def test_a_load_over_the_network(host: Host, source_db: str, target_db: str):
    """RMTFILE: the file gets its name at the other host. Its Manager is away, the Extract is killed, and begins anew.

    Then RMTTASK: the other Manager starts the Replicat, and no file is named.
    """
    port, low = free_ports(1)[0], free_ports(1)[0]
    far = Host(host.home.parent / "far", port, host.environment)
    far.home.mkdir()
    far.run("CREATE SUBDIRS")
    far.params("mgr", f"PORT {port}", "NOTLS", f"DYNAMICPORTLIST {low}-{min(low + 20, 65535)}")
    far.params("load2", "REPLICAT load2", f"TARGETDB '{target_db}'", "MAP public.*, TARGET public.*;")
    (far.home / "GLOBALS").write_text("CHECKPOINTTABLE gg.chk\n")
    far.run("ADD REPLICAT load2, SPECIALRUN, EXTFILE ./dirdat/in")
    link = (
        "EXTRACT load1", f"SOURCEDB '{source_db}'", f"RMTHOST 127.0.0.1, MGRPORT {port}, NOTLS", "CHECKPOINTSECS 1"
    )  # fmt: skip
    host.params("load1", *link, "RMTFILE ./dirdat/in", "TABLE public.*;")
    file, left = far.home / "dirdat" / "in000000000", host.home / "dirdat" / ".in.LOAD1.task" / "in000000000"
    host.run("START EXTRACT load1")
    wait_for(lambda: "sent to 127.0.0.1" in host.look("INFO EXTRACT load1").out, lambda: host.report("load1"))
    told = host.look("INFO EXTRACT load1").out
    assert "All tables" in told and re.search(r"Extract File +0 of \d+ bytes sent to 127.0.0.1", told), told
    wait_for(
        lambda: re.search(r"sent to 127.0.0.1. Waiting .*refused", host.look("SEND EXTRACT load1, STATUS").out),
        lambda: host.look("SEND EXTRACT load1, STATUS").out,
    )
    host.run("KILL EXTRACT load1")
    assert left.exists() and not file.exists()
    try:
        far.run("START MANAGER")
        host.run("START EXTRACT load1")
        wait_for(lambda: ended(host, "load1"), lambda: host.report("load1"))
        assert "./dirdat/in000000000 at 127.0.0.1 has" in host.report("load1") and not left.exists()
        assert "Extract File         ./dirdat/in000000000 at 127.0.0.1" in host.look("INFO EXTRACT load1").out
        far.run("START REPLICAT load2")
        wait_for(lambda: ended(far, "load2"), lambda: far.report("load2"))
        equal(source_db, target_db)

        host.params("load1", *link, "RMTTASK REPLICAT, GROUP load2", "TABLE public.*;")
        host.run("START EXTRACT load1", check=False)
        wait_for(lambda: "REPLICAT LOAD2, SPECIALRUN" in host.report("load1"), lambda: host.report("load1"))
        assert "Reading table" not in host.report("load1")
        assert (
            "RMTTASK REPLICAT, GROUP LOAD2" in far.run("DELETE REPLICAT load2!", "ADD REPLICAT load2, SPECIALRUN").out
        )
        sql(target_db, 'TRUNCATE item, part, loose, "Odd Name"', "DELETE FROM gg.chk")
        sql(source_db, "INSERT INTO loose VALUES ('by task')")
        host.run("START EXTRACT load1")
        wait_for(lambda: ended(host, "load1"), lambda: host.report("load1"))
        assert "REPLICAT LOAD2 at 127.0.0.1 has" in host.report("load1")
        arrived = "SELECT 1 FROM loose WHERE v = 'by task'"
        wait_for(lambda: sql(target_db, arrived) and ended(far, "load2"), lambda: far.report("load2"))
        equal(source_db, target_db)
    finally:
        far.run("STOP REPLICAT load2", "STOP MANAGER!", check=False)


@pytest.mark.soak
def test_what_loads_is_killed_and_started_again(host: Host, source_db: str, target_db: str):
    """A file is replaced whole or not at all, and applied exactly once."""
    file = Path(host.home) / "dirdat" / "in000000000"
    sql(source_db, "INSERT INTO loose SELECT repeat(n::text, 200) FROM generate_series(1, 15000) n")

    def killed(group: str, seen: Any) -> None:
        host.run(f"START {'EXTRACT' if group == 'load1' else 'REPLICAT'} {group}")
        wait_for(seen, lambda: host.report(group))
        host.run(f"KILL ER {group}")

    hidden = Path(host.home) / "dirdat" / ".in.LOAD1.task" / "in000000000"
    blocker = psycopg.connect(source_db)
    blocker.execute(
        'ALTER TABLE "Odd Name" ALTER d TYPE double precision USING d + 0'
    )  # rewritten behind the first look
    killed("load1", lambda: "a snapshot begins when" in host.look("SEND EXTRACT load1, STATUS").out)
    assert not file.exists() and not hidden.exists()
    host.run("START EXTRACT load1")
    blocker.commit()
    blocker.close()
    wait_for(lambda: ended(host, "load1"), lambda: host.report("load1"))
    before, first = file.read_bytes(), csn(host)
    sql(source_db, "DELETE FROM part WHERE item < 10")
    host.run("START EXTRACT load1")
    wait_for(lambda: ended(host, "load1"), lambda: host.report("load1"))
    assert "begins anew" in host.report("load1")
    assert csn(host) > first and file.read_bytes() != before and not hidden.exists()
    for least in (1, 3000, 9000):
        killed("load2", lambda n=least: sql(target_db, f"SELECT count(*) >= {n} FROM loose")[0][0])
    host.run("START REPLICAT load2")
    wait_for(lambda: ended(host, "load2"), lambda: host.report("load2"))
    equal(source_db, target_db)
    host.run("START EXTRACT load1")
    wait_for(lambda: ended(host, "load1"), lambda: host.report("load1"))
    refused = host.run("START REPLICAT load2", check=False)
    assert refused.code and "the trail was made anew" in refused.text, refused.text


def test_an_extract_starts_behind_a_csn_and_its_readers_hear_of_the_hole(host: Host, source_db: str, target_db: str):
    """Also where it is killed at once: the order stands until it was obeyed. Given again, it is refused."""
    host.run("STOP EXTRACT ext1")
    sql(source_db, "INSERT INTO item VALUES (10001, 'left out')")
    ((behind,),) = sql(source_db, "SELECT pg_current_wal_lsn()::text")
    host.run(f"START EXTRACT ext1, AFTERCSN {behind}", "KILL EXTRACT ext1", "START EXTRACT ext1")
    sql(source_db, "INSERT INTO item VALUES (10002, 'captured')")
    host.run("WAIT EXTRACT ext1")
    assert "A hole begins here" in (host.home / "ggserr.log").read_text()
    said = host.run("START REPLICAT rep1", check=False).text
    assert "are not in the trail (START EXTRACT EXT1)" in said and "START REPLICAT REP1, PASTHOLE" in said, said
    host.run("START REPLICAT rep1, PASTHOLE", "WAIT REPLICAT rep1")
    assert sql(target_db, "SELECT id, name FROM item") == [(10002, "captured")]
    host.run("STOP EXTRACT ext1")
    refused = host.run(f"START EXTRACT ext1, ATCSN {behind}", check=False)
    assert refused.code and "which would come twice" in refused.text, refused.text
    host.run("START EXTRACT ext1")
    sql(source_db, "DELETE FROM item WHERE id = 10002")
    host.run("WAIT EXTRACT ext1", "WAIT REPLICAT rep1")
    assert sql(target_db, "SELECT id FROM item") == []
