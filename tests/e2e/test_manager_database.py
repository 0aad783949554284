"""ggsci with a real source and target database: login, registration, TRANDATA, START, SHOWCH, checkpoint table."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from demo.patience import wait_for
from demo.ports import free_port
from ggsci.commands.groups import group_key
from ggsci.commands.session import OperatorSession
from replicat.model.target import CheckpointRow
from replicat.targets.kinds import kind_of
from replicat.targets.sql import rowtable
from tests.support.homes import (
    as_json,
    bad,
    end_all,
    good,
    group,
    make_home,
    run,
    status,
    write,
)
from trails.position import Position

pytestmark = pytest.mark.e2e


@pytest.fixture
def home(tmp_path):
    made = make_home(tmp_path / "home")
    write(made, "mgr", f"PORT {free_port()}\n")
    yield made
    end_all(made)


def execute(url: str, *statements: str) -> None:
    """Run SQL, each statement committed."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def test_an_extract_from_dblogin_to_showch(home, source_db):
    """The commands of the first ten minutes, in their order."""
    execute(source_db, "CREATE SCHEMA sales", "CREATE TABLE sales.orders (id int PRIMARY KEY, note text)")
    tables = "TABLE sales.*;\nTABLE sales.ordres;\nTABLE nope.*;\n"
    write(home, "ext1", f"EXTRACT ext1\nSOURCEDB {source_db}\nEXTTRAIL ./dirdat/lt\n{tables}")
    session = OperatorSession(home.root)
    assert "Successfully logged into database." in good(home, f"DBLOGIN SOURCEDB {source_db}", session)
    assert "sales.orders" in good(home, "ADD TRANDATA sales.*", session)
    assert "sales.orders" in good(home, "INFO TRANDATA sales.*", session)
    assert "no table matches nope.*" in bad(home, "ADD TRANDATA nope.*", session)
    good(home, "ADD EXTRACT ext1, TRANLOG, BEGIN NOW", session)
    good(home, "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1, MEGABYTES 5", session)
    assert "successfully registered" in good(home, "REGISTER EXTRACT ext1", session)
    assert group(home, "EXT1").registered.made["slot"]
    good(home, "START MGR", session)
    text = good(home, "START ext1", session)
    assert "is running (process ID" in text
    # TG-01812: what names nothing is told by START itself, in its order, and stands in the log.
    assert [line for line in text.splitlines() if "WARNING" in line] == [
        f"WARNING: {home.prm('ext1')}:{line}: TABLE {name} names no table of the source today."
        for line, name in ((5, "sales.ordres"), (6, "nope.*"))
    ]
    assert Path(home.ggserr).read_text().count("WARNING TG-01812") == 2
    execute(source_db, "INSERT INTO sales.orders SELECT n, 'x' FROM generate_series(1, 10) n")
    wait_for(lambda: any(t["inserts"] == 10 for t in as_json(home, "STATS ext1")[0]["tables"]))
    assert "Last record lag" in good(home, "LAG ext1", session)
    assert "Current write position:" in good(home, "SEND ext1, STATUS", session)
    assert "Output to ./dirdat/lt:" in good(home, "STATS ext1", session)
    assert "is running" in bad(home, "UNREGISTER EXTRACT ext1", session)
    assert "EXTRACT EXT1 stopped." in good(home, "STOP ext1", session)
    text = good(home, "INFO EXTRACT ext1, SHOWCH, DETAIL", session)
    for label in (
        "Log Read Checkpoint  PostgreSQL WAL", "Read Checkpoint #1", "  PostgreSQL WAL",
        "  Startup Checkpoint (starting position in the data source):", "    LSN: ",
        "  Recovery Checkpoint (position of oldest unprocessed transaction in the data source):",
        "Write Checkpoint #1", "    Extract Trail: ./dirdat/lt", "    Trail Type: EXTTRAIL", "  Stop Status = G",
    ):  # fmt: skip
        assert label in text
    assert as_json(home, "INFO EXTTRAIL *")[0]["rba"] > 0
    # Sent to the log's end, it leaves out what was committed while it was down; its runs are remembered.
    execute(source_db, "INSERT INTO sales.orders VALUES (11, 'left out')")
    assert "is lost to trail ./dirdat/lt" in bad(home, "ALTER EXTRACT ext1, BEGIN NOW", session)
    good(home, "ALTER EXTRACT ext1, BEGIN NOW!", session)
    assert "WARNING: A hole begins here: changes between " in good(home, "START ext1", session)
    execute(source_db, "INSERT INTO sales.orders VALUES (12, 'kept'), (13, 'kept')")
    wait_for(lambda: any(t["inserts"] == 2 for t in as_json(home, "STATS ext1")[0]["tables"]))
    good(home, "STOP ext1", session)
    runs = as_json(home, "INFO ext1")[0]["runs"]
    assert [run["stop_status"] for run in runs] == ["G", "G"]
    assert runs[0]["begin"]["csn"] > runs[1]["end"]["csn"]
    assert len(re.findall(r"(?m)^  [0-9A-F]{24}  +2\d{3}-", good(home, "INFO ext1, DETAIL"))) == 2
    assert "1 run forgotten, 1 run kept" in good(home, "CLEANUP EXTRACT ext1")
    assert "sales.orders" in good(home, "LIST TABLES sales.*", session)
    assert "Successfully unregistered" in good(home, "UNREGISTER EXTRACT ext1", session)
    assert "Deleted EXTRACT EXT1." in good(home, "DELETE EXTRACT ext1", session)
    good(home, "DELETE TRANDATA sales.*", session)


def test_schema_changes_from_add_ddlcapture_to_stats(home, source_db):
    """DB-02: installed by a command, asked for by a parameter; START names the command where it is missing."""
    execute(source_db, "CREATE SCHEMA sales", "CREATE TABLE sales.orders (id int PRIMARY KEY)")
    lines = "EXTRACT ext1\nSOURCEDB {}\nEXTTRAIL ./dirdat/lt\nDDL INCLUDE MAPPED, EXCLUDE OPTYPE DROP\nTABLE sales.*;\n"
    write(home, "ext1", lines.format(source_db))
    session = OperatorSession(home.root)
    assert "Use DBLOGIN" in bad(home, "ADD DDLCAPTURE", session)
    good(home, f"DBLOGIN SOURCEDB {source_db}", session)
    assert "not installed; ADD DDLCAPTURE" in good(home, "INFO DDLCAPTURE", session)
    for command in ("ADD EXTRACT ext1, TRANLOG", "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1", "REGISTER EXTRACT ext1"):
        good(home, command, session)
    good(home, "START MGR", session)
    text = bad(home, "START ext1", session)
    assert "no event trigger for it" in text and "ADD DDLCAPTURE" in text
    assert "installed DDL capture, version 3: 1 table is known." in good(home, "ADD DDLCAPTURE", session)
    assert "Successfully renewed DDL capture" in good(home, "ADD DDLCAPTURE", session)
    assert "version 3, and enabled: 1 table is known." in good(home, "INFO DDLCAPTURE", session)
    assert '"enabled": true' in good(home, "INFO DDLCAPTURE --json", session)
    assert "is running (process ID" in good(home, "START ext1", session)
    execute(source_db, "ALTER TABLE sales.orders ADD note text", "CREATE TABLE sales.items (id int)",
            "DROP TABLE sales.items", "CREATE TABLE public.elsewhere (id int)",
            "INSERT INTO sales.orders VALUES (1, 'x')")  # fmt: skip
    wait_for(lambda: any(t["inserts"] for t in as_json(home, "STATS ext1")[0]["tables"]))
    counted = {t["from"]: (t["ddls"], t["operations"]) for t in as_json(home, "STATS ext1")[0]["tables"]}
    assert counted == {"sales.orders": (1, 2), "sales.items": (1, 1)}
    assert "Total ddls" in good(home, "STATS ext1", session)
    good(home, "STOP ext1", session)
    assert "not confirmed" in bad(home, "DELETE DDLCAPTURE", session)
    assert "Successfully deleted DDL capture" in good(home, "DELETE DDLCAPTURE!", session)
    assert "was not installed" in good(home, "DELETE DDLCAPTURE!", session)


def test_a_wrong_database_is_told_at_dblogin_and_at_start(home, source_db):
    """One clear message each; a group that can't reach its database ends or waits, and says so."""
    wrong = source_db.rpartition("/")[0] + "/nowhere"
    assert "nowhere" in bad(home, f"DBLOGIN SOURCEDB {wrong}")
    good(home, "ADD EXTRACT ext1, TRANLOG")
    good(home, "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1")
    write(home, "ext1", f"EXTRACT ext1\nSOURCEDB {source_db}\nEXTTRAIL ./dirdat/lt\nTABLE s.*;\n")
    write(home, "mgr", f"PORT {free_port()}\nAUTORESTART ER *, RETRIES 3, WAITMINUTES 9\n")
    good(home, "START MGR")
    succeeded, text = run(home, "START ext1")  # not registered: the operator must act
    assert not succeeded, text
    assert "EXTRACT EXT1 ABENDED at its start:" in text
    assert "It is started again at" not in text
    assert status(home, "EXT1").exit_code == 2
    good(home, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE gg.ckpt")
    away = "TARGETDB postgresql://me:geheim@127.0.0.1:1/x"
    write(home, "rep1", f"REPLICAT rep1\n{away}\nMAP s.*, TARGET s.*;\n")
    text = bad(home, "START rep1")  # waiting can mend it: AUTORESTART's turn
    assert "REPLICAT REP1 ABENDED at its start: the target database can't be reached: " in text
    assert re.search(r"\? It is started again at 2\d{3}-\S+ \S+\. See VIEW REPORT REP1", text)
    assert "geheim" not in text


def test_a_checkpoint_table_is_made_shown_and_dropped(home, target_db):
    """CW-18: DELETE REPLICAT after DBLOGIN says what became of the row."""
    execute(target_db, "CREATE SCHEMA gg")
    session = OperatorSession(home.root)
    good(home, f"DBLOGIN TARGETDB {target_db}", session)
    assert "does not exist" in good(home, "INFO CHECKPOINTTABLE gg.ckpt", session)
    assert "Successfully created checkpoint table gg.ckpt" in good(home, "ADD CHECKPOINTTABLE gg.ckpt", session)
    assert re.search(
        r"gg.ckpt exists, created 2\d{3}-.*; 0 groups", good(home, "INFO CHECKPOINTTABLE gg.ckpt", session)
    )
    good(home, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE gg.ckpt", session)
    assert "row of REPLICAT REP1" in good(home, "DELETE REPLICAT rep1", session)
    row = CheckpointRow(Position(0, 0))
    with psycopg.connect(target_db) as connection:
        for key in (group_key(home, "GONE1"), 4711):
            values = rowtable.insert_values("GONE1", key, row, home.root)
            connection.execute(rowtable.insert("gg.ckpt", kind_of("postgresql").words), values)
    assert "Removed the row of REPLICAT GONE1" in good(home, "CLEANUP CHECKPOINTTABLE gg.ckpt!", session)
    assert "; 1 group keeps" in good(home, "INFO CHECKPOINTTABLE gg.ckpt", session)
    assert "gg.ckpt" in good(home, "LIST TABLES gg.*", session)
    assert "not confirmed" in bad(home, "DELETE CHECKPOINTTABLE gg.ckpt", session)
    assert "Successfully deleted checkpoint table" in good(home, "DELETE CHECKPOINTTABLE gg.ckpt!", session)
