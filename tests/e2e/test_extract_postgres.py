"""Extract on real PostgreSQL servers: what arrives in the trail, and what is refused."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from demo.patience import PATIENCE, wait_for
from demo.servers import PostgresServer
from extract import longtrans
from extract.admin import answer
from extract.longtrans import Outstanding
from extract.sources.postgres import driver
from extract.sources.postgres.driver import Session
from extract.sources.postgres.opened import outstanding
from replicat.targets.kinds import admin_for
from tests.support.capturing import Capture, ask, step_until
from tests.support.replicat_bench import Bench
from trails.checkpoint import Place
from trails.errors import OperatorError
from trails.record import Op

pytestmark = pytest.mark.e2e


@pytest.fixture
def capture(source_db: str, tmp_path: Path) -> Capture:
    """A group on an empty database."""
    return Capture(source_db, tmp_path)


# type, its values as SQL literals, as (SQL, canonical text)
VALUES = [
    ("numeric", ["'NaN'", "'Infinity'", "'-Infinity'", "0", "'-0.00'", "1e-300", f"'{'9' * 200}.{'1' * 90}'"]),
    ("numeric(10,2)", ["1.005", "'-1'"]), ("real", ["'NaN'", "'-Infinity'", "'-0'", "1.1754944e-38", "0.1"]),
    ("double precision", ["'NaN'", "'Infinity'", "'-0'", "0.1", "5e-324", "1.7976931348623157e308"]),
    ("smallint", ["'-32768'", "32767"]), ("bigint", ["'-9223372036854775808'", "9223372036854775807"]),
    ("date", ["'infinity'", "'-infinity'", "'0002-11-30 BC'", "'5874897-12-31'", "'2024-02-29'"]),
    ("timestamp", ["'infinity'", "'4713-01-01 BC'", "'294276-12-31 23:59:59.999999'", "'1970-01-01 00:00:00.000001'"]),
    ("timestamptz", ["'-infinity'", "'2024-03-10 02:30:00+05:30'", "'0001-01-01 00:00:00+00 BC'"]),
    ("time", ["'24:00:00'", "'00:00:00.000001'"]), ("timetz", ["'12:34:56.789+05:30:10'"]),
    ("interval", ["'1 mon -3 days 04:05:06.789'", "'-178000000 years'", "'1 year -1 day'"]),
    ("money", ["'-1234567.89'"]), ("boolean", ["true", "false"]), ('"char"', ["'x'"]), ("char(5)", ["'ab'"]),
    ("name", ["'n'"]), ("varchar(9)", ["'é'"]), ("text", ["''", r"'a\b''c\"d'", "E'tab\\tnl\\n'", "'日本語 🙂'"]),
    ("bytea", ["''", r"'\x00ff5c78'"]), ("bit(3)", ["B'101'"]), ("varbit", ["B''", "B'1010101'"]),
    ("json", ["'{\"b\":1,\"a\":1e400,\"a\":2}'"]),
    ("jsonb", ["'{\"b\": [1, null], \"a\": 123456789012345678901234567890}'"]),
    ("uuid", ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"]), ("int[]", ["'{{1,NULL},{3,4}}'", "'[2:3]={1,2}'", "'{}'"]),
    ("text[]", ["""'{"a,b","",NULL,"NULL","q\\"x"}'"""]),
    ("mood", ["'happy one'"]), ("mood[]", ["'{sad,\"happy one\"}'"]),
    ("positive", ["7"]), ("yes", ["true"]), ("blob", [r"'\x01'"]), ("pair", ["ROW(1, 'x,y')"]),
    ("int4range", ["'empty'", "'[1,5)'", "'(,)'"]), ("datemultirange", ["'{[2024-01-01,2024-02-01)}'"]),
    ("inet", ["'::1/64'"]), ("cidr", ["'10.0.0.0/8'"]), ("macaddr8", ["'08:00:2b:01:02:03:04:05'"]),
    ("tsvector", ["'a:1A fat:2B,4C'"]), ("tsquery", ["'fat & !rat'"]), ("pg_lsn", ["'16/B374D848'"]),
    ("oid", ["4294967295"]), ("point", ["'(1.5,-2)'"]), ("path", ["'[(0,0),(1,1)]'", "'((0,0),(1,1))'"]),
    ("polygon", ["'((0,0),(1,1),(2,0))'"]), ("box", ["'(1,1),(0,0)'"]), ("circle", ["'<(0,0),1>'"]),
    ("line", ["'{1,-1,0}'"]),
]  # fmt: skip
TYPES = """CREATE TYPE mood AS ENUM ('sad', 'happy one'); CREATE DOMAIN positive AS int CHECK (value > 0);
CREATE DOMAIN yes AS boolean; CREATE DOMAIN blob AS bytea; CREATE TYPE pair AS (n int, t text)"""
SETTINGS = (
    "SET datestyle='ISO'; SET intervalstyle='postgres'; SET timezone='UTC'; "
    "SET extra_float_digits=1; SET lc_monetary='C'; SET bytea_output = 'hex'"
)


def test_every_type_arrives_as_its_canonical_text(capture: Capture) -> None:
    """E1: insert, update's before image, key position, NULL;

    Settings of database and role that say otherwise don't matter.
    """
    name = urlsplit(capture.url).path[1:]
    capture.sql(*TYPES.split(";"))
    for setting in (
        "datestyle = 'SQL'",
        "timezone = 'Asia/Kolkata'",
        "intervalstyle = 'iso_8601'",
        "bytea_output = 'escape'",
        "search_path = public, pg_catalog",
    ):
        capture.sql(f"ALTER DATABASE {name} SET {setting}")
    for i, (kind, _) in enumerate(VALUES):
        capture.sql(f"CREATE TABLE t{i} (n int PRIMARY KEY, v {kind}, w {kind})")
        capture.sql(f"ALTER TABLE t{i} REPLICA IDENTITY FULL")
    capture.register(trandata=False)
    for i, (kind, values) in enumerate(VALUES):
        for n, value in enumerate([*values, "NULL"]):
            capture.sql(f"INSERT INTO t{i} VALUES ({n}, {value}::{kind}, {value}::{kind})")
        capture.sql(f"UPDATE t{i} SET n = n + 100")
    with capture.running() as extract:
        capture.drain(extract)
    seen: dict[tuple[str, int], list[object]] = {}
    natives = {}
    for transaction in capture.changes():
        for change in transaction:
            image = change.after if change.op == Op.INSERT else change.before
            assert image is not None
            assert image["v"] == image["w"]
            natives[change.table.name] = change.table.columns[1].native
            seen.setdefault((change.table.name, int(image["n"])), []).append(image["v"])
    for i, (kind, values) in enumerate(VALUES):
        for n, value in enumerate(values):
            assert seen[f"t{i}", n] == [expected_text(capture, kind, value)] * 2, (kind, value)
        assert seen[f"t{i}", len(values)] == [None, None]
        where = f"attrelid = 'public.t{i}'::regclass AND attnum = 2"
        # With its schema, as a shape has it; whatever search_path the database or the role has.
        given = f"SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE {where}"
        native = capture.sql("SET search_path = pg_catalog", given)[0][0]
        assert natives[f"t{i}"] == native


def expected_text(capture: Capture, kind: str, value: str) -> object:
    """The server's own text under the canonical settings; bytes for bytea, true and false for boolean."""
    # Through a row: a cast of char(n) to text would take its padding off, and bool's output function says t.
    text = capture.sql(*SETTINGS.split(";"), f"SELECT format('%s', {value}::{kind})")[0][0]
    if kind in ("bytea", "blob"):
        return bytes.fromhex(text[2:])
    return {"t": "true", "f": "false"}[text] if kind in ("boolean", "yes") else text


def test_unchanged_toast_is_filled(capture: Capture) -> None:
    """Also in an update that changes the key; the rows in the trail are whole."""
    capture.sql("CREATE TABLE t (id int PRIMARY KEY, big text, n int)", "ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    capture.register()
    capture.sql(
        "INSERT INTO t VALUES (1, repeat('x', 100000), 0)", "UPDATE t SET n = 1", "UPDATE t SET id = 2", "DELETE FROM t"
    )
    with capture.running() as extract:
        capture.drain(extract)
    insert, update, moved, delete = (transaction[0] for transaction in capture.changes())
    big = "x" * 100000
    assert insert.after == {"id": "1", "big": big, "n": "0"}
    assert (update.after, update.before) == ({"id": "1", "big": big, "n": "1"}, None)
    assert (moved.after, moved.before) == ({"id": "2", "big": big, "n": "1"}, {"id": "1", "big": big, "n": "1"})
    assert delete.before == {"id": "2", "big": big, "n": "1"}
    assert insert.table.key == (0,)


def test_unchanged_toast_without_full_identity_is_refused(capture: Capture) -> None:
    """The error names table, column and statement; nothing of the transaction is in the trail."""
    capture.sql("CREATE TABLE t (id int PRIMARY KEY, big text, n int)", "ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    capture.register(trandata=False)
    capture.sql("INSERT INTO t VALUES (1, repeat('x', 100000), 0)", "UPDATE t SET n = 1")
    extract = capture.start()
    assert any("public.t. ADD TRANDATA" in line for line in capture.said)
    with pytest.raises(OperatorError, match=r"public\.t, row \(1\), CSN 0.*column big.*ADD TRANDATA"):
        step_until(extract, lambda: False)
    extract.close()
    assert len(capture.changes()) <= 1


def test_keys_truncates_rules_and_names(capture: Capture) -> None:
    """Key change with default identity, index as identity, no key, TRUNCATE of several, tables by rule, odd names."""
    capture.patterns = ("public.*", 'odd."Mixed ""Case"""')
    capture.sql(
        "CREATE TABLE narrow (a int, b int, n int, PRIMARY KEY (b, a))",
        "CREATE TABLE keyless (v text)",
        "CREATE TABLE by_index (a int NOT NULL, v int)", "CREATE UNIQUE INDEX by_a ON by_index (a)",
        "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_a",
        "CREATE SCHEMA odd", 'CREATE TABLE odd."Mixed ""Case""" ("Ünï,code" int PRIMARY KEY)',
        "CREATE TABLE odd.other (id int PRIMARY KEY)",
    )  # fmt: skip
    capture.register()
    capture.sql(
        "INSERT INTO narrow VALUES (1, 2, 3)", "UPDATE narrow SET a = 9", "UPDATE narrow SET n = 4",
        "INSERT INTO keyless VALUES ('x'), ('x')", "UPDATE keyless SET v = 'y'", "DELETE FROM keyless",
        "INSERT INTO by_index VALUES (1, 1)", "UPDATE by_index SET a = 2",
        'INSERT INTO odd."Mixed ""Case""" VALUES (1)', "INSERT INTO odd.other VALUES (1)",
        "TRUNCATE narrow, odd.other, keyless RESTART IDENTITY", "TRUNCATE odd.other",
    )  # fmt: skip
    with capture.running() as extract:
        capture.drain(extract)
        tables = {t["from"]: t["operations"] for t in extract.stats.to_reply()["tables"]}
    found = capture.changes()
    assert [len(t) for t in found] == [1, 1, 1, 2, 2, 2, 1, 1, 1, 1]
    assert found[1][0].before == {"a": "1", "b": "2", "n": False}
    assert found[1][0].table.key == (0, 1)
    assert found[2][0].before is None
    assert [c.before for c in found[4]] == [{"v": "x"}] * 2
    assert found[4][0].table.key == ()
    assert (found[7][0].before, found[7][0].table.key) == ({"a": "1", "v": False}, (0,))
    assert found[8][0].after == {"Ünï,code": "1"}
    assert found[9][0].after == {"tables": ["narrow", "keyless"], "flags": 2}
    assert tables['odd.Mixed "Case"'] == 1
    assert "odd.other" not in tables


def test_a_changed_table_inside_a_transaction(capture: Capture) -> None:
    """Rows before and after an ALTER each have their own columns, and a name that moves keeps its rows apart."""
    capture.sql("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY, v int)")
    capture.register()
    capture.sql(
        "BEGIN; INSERT INTO a VALUES (1); ALTER TABLE a ADD w text; INSERT INTO a VALUES (2, 'x'); "
        "ALTER TABLE a RENAME TO c; ALTER TABLE b RENAME TO a; INSERT INTO a VALUES (3, 4); COMMIT"
    )
    with capture.running() as extract:
        capture.drain(extract)
    (changes,) = capture.changes()
    assert [c.after for c in changes] == [{"id": "1"}, {"id": "2", "w": "x"}, {"id": "3", "v": "4"}]


def test_rows_from_before_a_primary_key_have_none(capture: Capture) -> None:
    """Two equal rows, then one is deleted and a key is made, all before Extract looks:

    By today's key one row would be lost.
    """
    capture.sql("CREATE TABLE t (id int, v int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    capture.register()
    capture.sql("INSERT INTO t VALUES (1, 1), (1, 1)", "DELETE FROM t WHERE ctid = '(0,1)'")
    capture.sql("ALTER TABLE t ADD PRIMARY KEY (id)", "INSERT INTO t VALUES (2, 2)")
    with capture.running() as extract:
        capture.drain(extract)
    assert [c.table.key for transaction in capture.changes() for c in transaction] == [(), (), (), (0,)]


def test_a_large_transaction_in_bounded_memory(capture: Capture) -> None:
    """300,000 rows, between two small transactions."""
    capture.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    capture.register()
    capture.sql(
        "INSERT INTO t VALUES (0, 'before')",
        "INSERT INTO t SELECT n, repeat('v', 100) FROM generate_series(1, 300000) n",
        "INSERT INTO t VALUES (-1, 'after')",
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with capture.running() as extract:
        capture.drain(extract)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
    first, large, last = capture.changes()
    assert (len(first), len(large), len(last)) == (1, 300_000, 1)
    assert [c.after["id"] for c in large if c.after] == [str(n) for n in range(1, 300_001)]


@pytest.mark.parametrize("said", ["", "4MB"])
def test_room_for_a_transaction_is_asked_of_the_server_where_nobody_has_said(
    capture: Capture, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """Here very little, so that it shows: the server writes what does not fit to its disk, and counts that."""
    monkeypatch.setattr(driver, "_ROOM", driver._ROOM.replace(str(driver.ROOM_KIB), "64"))
    if said:
        capture.sql(f"ALTER DATABASE {urlsplit(capture.url).path[1:]} SET logical_decoding_work_mem = '{said}'")
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)")
    capture.register()
    capture.sql("INSERT INTO t SELECT generate_series(1, 5000)")
    with capture.running() as extract:
        capture.drain(extract)
    slots = "pg_stat_replication_slots JOIN pg_replication_slots USING (slot_name)"
    counted = f"FROM {slots} WHERE database = current_database()"
    wait_for(lambda: capture.sql(f"SELECT total_txns > 0 {counted}") == [(True,)], "the server counts the transaction")
    assert capture.sql(f"SELECT spill_txns > 0 {counted}") == [(not said,)]


def test_missing_prerequisites_are_named_together(capture: Capture) -> None:
    """Each with the statement that mends it."""
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE keyless (v int)")
    capture.sql("CREATE UNLOGGED TABLE u (id int PRIMARY KEY)")
    with pytest.raises(AssertionError, match=r"public\.keyless.*ADD TRANDATA"):
        capture.register(trandata=False)
    capture.register()
    capture.sql("ALTER TABLE keyless REPLICA IDENTITY NOTHING")
    with pytest.raises(OperatorError, match=r"(?s)keyless.*no replica identity.*IDENTITY FULL.*unlogged.*SET LOGGED"):
        capture.start()
    publication = capture.made["publication"]
    capture.sql(f"ALTER PUBLICATION {publication} SET (publish = 'insert')")
    with pytest.raises(OperatorError, match=r"does not publish .*ALTER PUBLICATION"):
        capture.start()
    capture.sql(f"DROP PUBLICATION {publication}", f"CREATE PUBLICATION {publication}")
    with pytest.raises(OperatorError, match=r"not in publication .*ADD TABLE"):
        capture.start()
    capture.sql(f"DROP PUBLICATION {publication}")
    with pytest.raises(OperatorError, match=f"publication {publication} does not exist.*#dropped-publication"):
        capture.start()
    slot = capture.made["slot"]
    capture.sql(f"SELECT pg_drop_replication_slot('{slot}')")
    with pytest.raises(OperatorError, match=f"slot {slot} does not exist.*#lost-slot"):
        capture.start()


@pytest.mark.parametrize("database", ["source_db", "target_db"], ids=["16", "18"])
def test_a_publication_that_was_gone_for_a_while_is_never_passed_over(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Version 18 only warns, and leaves the changes out: the Extract ends before them, and again at each START."""
    capture = Capture(request.getfixturevalue(database), tmp_path)
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)")
    capture.register()
    name = capture.made["publication"]
    with capture.running() as extract:
        capture.sql("INSERT INTO t VALUES (1)")
        capture.drain(extract)
    capture.sql(f"DROP PUBLICATION {name}", "INSERT INTO t VALUES (2)")
    capture.sql(f"CREATE PUBLICATION {name} FOR ALL TABLES", "INSERT INTO t VALUES (3)")
    for _ in range(2):
        extract = capture.start()
        with pytest.raises(OperatorError, match=f"publication {name} did not exist.*#dropped-publication"):
            step_until(extract, lambda: False)
        extract.close()
        assert len(capture.changes()) == 1


def test_a_login_that_does_not_fit_is_refused() -> None:
    """Wrong password, no REPLICATION, wal_level: each names what mends it."""
    with PostgresServer(version=16, password="right", options={"wal_level": "replica"}) as server:
        reply = answer({"verb": "dblogin", "url": server.url(password="wrong")})
        assert not reply["ok"]
        assert "password authentication failed" in reply["error"]
        assert "Mend the password" in reply["error"]
        reply = answer({"verb": "register", "url": server.url(), "group": "EXT1", "home_id": "0" * 32})
        assert "wal_level = 'logical'" in reply["error"]
        server.sql("CREATE ROLE plain LOGIN PASSWORD 'right'")
        assert ask("dblogin", url=server.url(user="plain"))["user"] == "plain"
        server.stop()
        reply = answer({"verb": "dblogin", "url": server.url()})
        assert "can't be reached" in reply["error"]


def test_a_session_that_has_met_many_tables_ends_and_nothing_else_does(capture: Capture) -> None:
    """Also where one transaction alone names more of them: each arrives, once, and in order."""
    tables = [f"t{n}" for n in range(6)]
    capture.sql(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in tables))
    capture.register()
    with capture.running() as extract:
        source = extract._source
        source._most_tables = 2
        source._decoder._most_tables = 2
        capture.sql(*(f"INSERT INTO {name} VALUES (1)" for name in tables))
        capture.sql("; ".join(["BEGIN", *(f"INSERT INTO {name} VALUES (2)" for name in tables), "COMMIT"]))
        capture.sql("INSERT INTO t0 VALUES (3)")
        capture.drain(extract)
    found = [[(change.table.name, change.after["id"]) for change in one] for one in capture.changes()]
    assert found == [*([(name, "1")] for name in tables), [(name, "2") for name in tables], [("t0", "3")]]
    assert [line for line in capture.said if "tables were met since the session began" in line][2:]


def test_trandata_and_registration(capture: Capture) -> None:
    """Default identity only where no value can be stored out of line;

    Registering twice is refused; unregister leaves nothing.
    """
    capture.sql("CREATE TABLE n (id int PRIMARY KEY, v int)", "CREATE TABLE w (id int PRIMARY KEY, v text)")
    capture.sql("CREATE TABLE k (v int)")
    found = {t["table"]: t["message"] for t in ask("add_trandata", url=capture.url, pattern="public.*")["tables"]}
    assert "already default" in found["public.n"]
    assert "set to full" in found["public.w"]
    assert "set to full" in found["public.k"]
    assert "full" in ask("info_trandata", url=capture.url, pattern="public.w")["tables"][0]["message"]
    capture.register()
    again = answer({"verb": "register", "url": capture.url, "group": "EXT1", "home_id": "0" * 32})
    assert "exists already" in again["error"]
    ask("unregister", url=capture.url, made=capture.made)
    assert capture.sql("SELECT 1 FROM pg_publication") == []
    assert "refused" in ask("delete_trandata", url=capture.url, pattern="public.k")["tables"][0]["message"]
    assert "no table matches" in answer({"verb": "add_trandata", "url": capture.url, "pattern": "x.y"})["error"]
    assert "unknown request" in answer({"verb": "drop_all", "url": capture.url})["error"]


def test_places_are_those_of_the_wal(capture: Capture) -> None:
    """SHOWCH: segment number and offset, LSN, file name as the server gives it."""
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)")
    capture.register()
    capture.sql("INSERT INTO t VALUES (1)")
    with capture.running() as extract:
        capture.drain(extract)
        checkpoint = extract.flush()
    read = checkpoint.reads[0]
    assert read.recovery is not None
    lsn = f"{int(read.recovery.csn[:8], 16):X}/{int(read.recovery.csn[9:], 16):X}"
    name, offset = capture.sql(f"SELECT file_name, file_offset FROM pg_walfile_name_offset('{lsn}')")[0]
    assert (read.recovery.file, read.recovery.rba) == (name, offset)
    assert read.source == "PostgreSQL WAL"
    assert isinstance(read.current, Place)
    assert read.current.csn >= read.recovery.csn >= read.startup.csn
    assert checkpoint.writes[0].trail == "./dirdat/lt"


def test_light_load_reaches_the_trail_at_once(capture: Capture) -> None:
    """One small transaction after the other: each is durable at once, whatever the longest time to gather."""
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)")
    capture.register()
    with capture.running(flush_seconds=600.0) as extract:
        capture.drain(extract)
        for n in range(20):
            before = extract._writer.durable
            capture.sql(f"INSERT INTO t VALUES ({n})")
            step_until(extract, lambda before=before: extract._writer.durable > before)


def stranger(capture: Capture) -> Outstanding:
    """What a user sees who is no superuser and has no pg_read_all_stats: that there is one, not since when."""
    capture.sql("DROP ROLE IF EXISTS tg_stranger", "CREATE ROLE tg_stranger LOGIN")
    session = Session(capture.url.replace("postgres@", "tg_stranger@", 1), "stranger")
    try:
        return outstanding(session, capture.made["slot"])
    finally:
        session.close()
        capture.sql("DROP ROLE tg_stranger")


def test_showtrans_shows_what_holds_back_the_slot(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is open, one that is prepared; readers and other sessions are none. The oldest comes first."""
    monkeypatch.setattr(longtrans, "ANSWER_SECONDS", 60.0)
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)")
    capture.register()
    with capture.running() as extract, psycopg.connect(capture.url) as first, psycopg.connect(capture.url) as reader:
        capture.drain(extract)
        first.execute("INSERT INTO t VALUES (1)")
        reader.execute("SELECT * FROM t")
        capture.sql("BEGIN", "INSERT INTO t VALUES (2)", "PREPARE TRANSACTION 'forgotten'")
        try:
            shown = extract.command("SHOWTRANS", {})
            running, prepared = shown["transactions"]
            assert (running["pid"], running["state"]) == (first.info.backend_pid, "idle in transaction")
            assert running["xid"] == first.execute("SELECT pg_current_xact_id()::xid::text").fetchone()[0]
            assert (prepared["status"], prepared["name"], prepared["pid"]) == ("Prepared", "forgotten", None)
            assert running["age_us"] >= prepared["age_us"] >= 0
            assert shown["holder"] == f"slot {capture.made['slot']}"
            hidden, _ = stranger(capture).transactions
            assert (hidden.xid, hidden.age_us, hidden.start_us) == (running["xid"], None, None)
            assert shown["kept_bytes"] > 0
            (one,) = extract.command("SHOWTRANS", {"xid": prepared["xid"]})["transactions"]
            assert one["name"] == "forgotten"
        finally:
            capture.sql("ROLLBACK PREPARED 'forgotten'")
        first.rollback()
        assert extract.command("SHOWTRANS", {})["transactions"] == []


def test_the_process_is_told_what_is_wrong_with_its_group(tmp_path: Path) -> None:
    """`python -P -m extract` without a home: exit code 2 and one line."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "extract", "--home", str(tmp_path), "EXT1"],
        capture_output=True, text=True, env=environment, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 2
    assert "CREATE SUBDIRS" in done.stderr


def test_GG_20_an_update_carries_the_row_as_it_became(capture: Capture, target_db: str, tmp_path: Path) -> None:
    """`n = n + 1` is its result in the trail: so all may be applied again, over what is there, and ends the same."""
    capture.sql("CREATE TABLE t (id int PRIMARY KEY, n int)")
    capture.register()
    capture.sql("INSERT INTO t VALUES (1, 1), (2, 10)", *["UPDATE t SET n = n + 1"] * 3)
    with capture.running() as extract:
        capture.drain(extract)
    updates = [c for t in capture.changes() for c in t if c.op == Op.UPDATE]
    assert [c.after for c in updates] == [
        {"id": key, "n": str(n + first)} for n in (1, 2, 3) for key, first in (("1", 1), ("2", 10))
    ]
    bench = Bench(tmp_path, target_db, "public", feed=False)
    bench.trail, bench.maps = capture.settings.trail, "MAP public.t, TARGET public.t;"
    admin_for(target_db).add_row_table(target_db, bench.table)
    with psycopg.connect(target_db, autocommit=True) as target:
        target.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
        for turn in range(3):
            assert bench.run().stats.total() == 8
            assert target.execute("SELECT * FROM t ORDER BY id").fetchall() == [(1, 4), (2, 13)]
            bench.lines = ["HANDLECOLLISIONS"]
            bench.registration = replace(bench.registration, alter_no=turn + 1, alter={"seqno": 0, "rba": 0})
