"""PostgreSQL captured by triggers, on a real server without logical decoding: what is captured, and what is refused."""

from __future__ import annotations

import re
import threading
from typing import Any

import psycopg
import pytest

from demo.servers import PostgresServer
from extract.sources.postgres.driver import SETTINGS
from extract.sources.postgres.triggers.reader import TriggerReader
from tests.support.capturing import step_until
from tests.support.mirror import Mirror
from tests.support.trail_script import TRAIL
from tests.support.trigger_lives import ITEM, caught, changes, mirrored, refusal
from tests.support.trigger_source import TriggeredDb, capture, run_until_captured
from trails.errors import OperatorError
from trails.testing import After, FaultFs

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """One change a piece, three rows a fetch: a transaction goes out as begin, middle ..., end."""
    monkeypatch.setattr("extract.sources.postgres.triggers.reader.PIECE_BYTES", 1)
    monkeypatch.setattr("extract.sources.postgres.triggers.reader.FETCH_ROWS", 3)


# --- the order of commits ---------------------------------------------------------------------------------------------


def test_CW_30_a_lower_id_commits_after_a_higher_one(plain_db: str) -> None:
    """Two transactions, numbered in one order and committed in the other, with a look and a release between."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    extract = db.extract(fs, TRAIL)
    with psycopg.connect(plain_db) as first, psycopg.connect(plain_db) as second:
        first.execute("INSERT INTO item VALUES (1, 'begins first')")
        second.execute("INSERT INTO item VALUES (2, 'commits first')")
        second.commit()
        run_until_captured(extract, db)
        assert db.rows("SELECT count(*) FROM trailgate_queue.log") == [(0,)]
        assert [change[2][0] for change in changes(fs)] == ["2"]
        first.commit()
    run_until_captured(extract, db)
    extract.close()
    assert [change[2][0] for change in changes(fs)] == ["2", "1"]
    assert db.rows("SELECT count(*) FROM trailgate_queue.log") == [(0,)]


def test_CW_30_a_savepoints_change_shows_with_its_whole_transaction(plain_db: str) -> None:
    """A row that a savepoint wrote has a number of its own in the server; the queue has that of the transaction."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    extract = db.extract(fs, TRAIL)
    with psycopg.connect(plain_db) as conn:
        conn.execute("INSERT INTO item VALUES (1)")
        conn.execute("SAVEPOINT a")
        conn.execute("INSERT INTO item VALUES (2)")
        conn.execute("RELEASE a")
        conn.execute("SAVEPOINT b")
        conn.execute("DELETE FROM item")
        conn.execute("ROLLBACK TO b")
        db.run("INSERT INTO item VALUES (9)")
        run_until_captured(extract, db)
        conn.execute("INSERT INTO item VALUES (3)")
    run_until_captured(extract, db)
    extract.close()
    mirror = Mirror.of(fs, TRAIL)
    assert mirror.changes == [1, 3]
    mirrored(db, fs, "item")


def test_a_prepared_transaction_comes_once_it_is_committed(plain_db: str) -> None:
    """However long it stood open, and whatever was released meanwhile."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run("BEGIN; INSERT INTO item VALUES (1); PREPARE TRANSACTION 'p'")
    db.run("INSERT INTO item VALUES (2)")
    assert [change[2][0] for change in caught(db, fs)] == ["2"]
    db.run("COMMIT PREPARED 'p'")
    assert [change[2][0] for change in caught(db, fs)] == ["2", "1"]


def test_rows_that_a_trigger_changes_within_the_statement_stand_in_their_order(plain_db: str) -> None:
    """The application's trigger runs between ours: what it changes is logged before the statement's own change."""
    follow = """CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF new.v = 'set' THEN UPDATE item SET v = v || '+' WHERE id > new.id; END IF; RETURN NULL; END $$"""
    chain = "CREATE TABLE node (id int PRIMARY KEY, up int REFERENCES node ON UPDATE CASCADE ON DELETE CASCADE)"
    db, fs = TriggeredDb.make(plain_db, ITEM, chain), FaultFs()
    db.run(
        follow,
        "CREATE TRIGGER a AFTER INSERT OR UPDATE ON item FOR EACH ROW EXECUTE FUNCTION follow()",
        "INSERT INTO item VALUES (1, 'set'), (2, 'set'), (3, 'set')",
        "UPDATE item SET v = 'set'",
        "INSERT INTO node VALUES (1, NULL), (2, 1), (3, 2), (4, 1)",
        "UPDATE node SET id = id + 10",
        "DELETE FROM node WHERE id = 12",
    )
    capture(db, fs, TRAIL)
    mirrored(db, fs, "item", "node")


# --- crashes ----------------------------------------------------------------------------------------------------------

STATEMENTS = (
    "INSERT INTO item VALUES (1, 'a'), (2, 'b'), (3, '')",
    "UPDATE item SET id = id + 10",
    "UPDATE item SET v = NULL WHERE id = 12",
    "DELETE FROM item WHERE id = 13",
)


def test_CW_29_killed_between_the_sync_of_the_trail_and_the_delete_from_the_queue(
    plain_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start passes over what the trail has, and deletes it then."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run(*STATEMENTS)
    with monkeypatch.context() as patched:
        patched.setattr(TriggerReader, "forget", lambda _self, _upto: False)  # the kill comes before it
        extract = db.extract(fs, TRAIL)
        first = extract._writer.last.origin.rba
        step_until(extract, lambda: extract._writer.last.origin.rba > first and extract._assembler.is_empty)
        extract.flush()
        extract._source.close()
        extract._writer.abandon()
    fs.reboot(After.KILL)
    assert db.rows("SELECT count(*) FROM trailgate_queue.log") == [(8,)]
    mirrored(db, fs, "item")
    db.run("INSERT INTO item VALUES (4, 'later')")
    capture(db, fs, TRAIL)
    mirrored(db, fs, "item")
    assert db.rows("SELECT count(*), (SELECT count(*) FROM trailgate_queue.tick) FROM trailgate_queue.log") == [(0, 1)]


def test_CW_29_nothing_is_deleted_before_the_trail_is_synced(plain_db: str) -> None:
    """A disk that takes for ever: the changes are read and written, and the queue keeps them all."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run(*STATEMENTS)
    extract = db.extract(fs, TRAIL)
    extract._writer.sync_soon = lambda: False  # type: ignore[method-assign]
    first = extract._writer.last.origin.rba
    step_until(extract, lambda: extract._writer.last.origin.rba > first)
    for _ in range(20):
        extract.step()
    assert db.rows("SELECT count(*) FROM trailgate_queue.log") == [(8,)]
    extract._source.close()
    extract._writer.abandon()


def test_CW_31_without_checkpoints_the_trails_blocks_say_where_to_go_on(plain_db: str) -> None:
    """No checkpoint is there, and no file's header has the last state: it stands in the last block only."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run(*STATEMENTS[:2])
    extract = db.extract(fs, TRAIL)
    run_until_captured(extract, db)
    state = extract._writer.last.state
    extract._source.close()
    extract._writer.abandon()
    fs.reboot(After.POWER)
    db.run(*STATEMENTS[2:])
    again = db.extract(fs, TRAIL)
    assert re.fullmatch(r"\d+:\d+:@\d+", state)
    assert again._writer.last.state == state
    run_until_captured(again, db)
    again.close()
    mirrored(db, fs, "item")


def test_CW_31_a_database_that_was_restored_is_refused(plain_db: str, postgres_plain: PostgresServer) -> None:
    """Behind the trail's end, and also once its ticks have gone past that on a way of their own."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    name = db.rows("SELECT current_database()")[0][0]
    db.run(STATEMENTS[0])
    capture(db, fs, TRAIL)
    postgres_plain.sql(f"CREATE DATABASE backup_{name} TEMPLATE {name}")
    db.run(STATEMENTS[1])
    capture(db, fs, TRAIL)
    postgres_plain.sql(f"DROP DATABASE {name} WITH (FORCE)")
    postgres_plain.sql(f"ALTER DATABASE backup_{name} RENAME TO {name}")
    assert "the database was restored, or is a copy" in refusal(db, fs)
    db.run("INSERT INTO trailgate_queue.tick SELECT max(tick) + 1, max(state) FROM trailgate_queue.tick")
    assert "the database is a copy that went its own way" in refusal(db, fs)


def test_BEGIN_NOW_in_a_database_that_was_restored_begins_behind_all_that_the_trail_has(plain_db: str) -> None:
    """Its own ticks are those of the backup, but CSNs never go back."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run(STATEMENTS[0])
    capture(db, fs, TRAIL)
    (backup,) = db.rows("trailgate_queue.tick")
    for statement in STATEMENTS[1:4]:
        db.run(statement)
        extract = db.extract(fs, TRAIL)
        run_until_captured(extract, db)
        last = extract._writer.last
        extract.close()
    db.run(f"UPDATE trailgate_queue.tick SET tick = {backup[0]}, state = '{backup[1]}'")
    extract = db.extract(fs, TRAIL, alter_no=1, alter=(("begin", "now"),))
    db.run("INSERT INTO item VALUES (100)")
    run_until_captured(extract, db)
    assert (extract._writer.last.origin, extract._writer.last.csn) > (last.origin, last.csn)
    extract.close()
    assert changes(fs)[-1] == ("INSERT", "item", ["100", None, None])


def test_a_large_backlog_stops_between_its_pieces_and_comes_again_whole(plain_db: str) -> None:
    """Killed inside one large transaction of the trail, with rows that other transactions wrote meanwhile."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run("INSERT INTO item SELECT g, repeat('x', 100) FROM generate_series(1, 500) g")
    extract = db.extract(fs, TRAIL, block_bytes=2000)
    step_until(extract, lambda: extract._assembler._began)
    extract.flush()
    extract._source.close()
    extract._writer.abandon()
    fs.reboot(After.KILL)
    db.run("UPDATE item SET v = 'short' WHERE id % 2 = 0")
    capture(db, fs, TRAIL, block_bytes=2000)
    mirror = Mirror.of(fs, TRAIL)
    assert mirror.changes == [750]
    mirrored(db, fs, "item")


def test_a_lost_connection_is_gone_on_with(plain_db: str) -> None:
    """Cut by the server in the middle, any number of times."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    extract = db.extract(fs, TRAIL)
    for n in range(5):
        db.run(f"INSERT INTO item VALUES ({n}, 'v')")
        db.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'trailgate EXT1'")
        run_until_captured(extract, db)
    extract.close()
    mirrored(db, fs, "item")
    assert any("trying again for" in line for line in db.told)


# --- what statements become -------------------------------------------------------------------------------------------


def test_statements_of_every_kind(plain_db: str) -> None:
    """COPY, upserts, key changes, a table without a key, cascades, a row that moves between partitions."""
    db = TriggeredDb.make(
        plain_db, ITEM, "CREATE TABLE loose (a int, b text)",
        "CREATE TABLE part (id int, k int, v text, PRIMARY KEY (id, k)) PARTITION BY LIST (k)",
        "CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1)",
        "CREATE TABLE part2 PARTITION OF part FOR VALUES IN (2) PARTITION BY RANGE (id)",
        "CREATE TABLE part2a PARTITION OF part2 DEFAULT",
        "CREATE TABLE made (id int PRIMARY KEY, a int, twice int GENERATED ALWAYS AS (a * 2) STORED)",
    )  # fmt: skip
    fs = FaultFs()
    with psycopg.connect(plain_db) as conn, conn.cursor().copy("COPY item FROM STDIN") as copy:
        copy.write("1\tone\t1.50\n2\t\\N\t2\n")
    db.run(
        "INSERT INTO item VALUES (1, 'again') ON CONFLICT (id) DO UPDATE SET v = excluded.v",
        "UPDATE item SET id = 3 WHERE id = 2",
        "INSERT INTO loose VALUES (1, 'x'), (1, 'x')", "UPDATE loose SET b = 'y'", "DELETE FROM loose",
        "INSERT INTO part VALUES (1, 1, 'moves')", "UPDATE part SET k = 2", "INSERT INTO made (id, a) VALUES (1, 21)",
    )  # fmt: skip
    assert caught(db, fs) == [
        ("INSERT", "item", ["1", "one", "1.50"]),
        ("INSERT", "item", ["2", None, "2"]),
        ("UPDATE", "item", ["1", "again", "1.50"], None),
        ("UPDATE", "item", ["3", None, "2"], ["2", None, "2"]),
        ("INSERT", "loose", ["1", "x"]),
        ("INSERT", "loose", ["1", "x"]),
        ("UPDATE", "loose", ["1", "y"], ["1", "x"]),
        ("UPDATE", "loose", ["1", "y"], ["1", "x"]),
        ("DELETE", "loose", ["1", "y"]),
        ("DELETE", "loose", ["1", "y"]),
        ("INSERT", "part1", ["1", "1", "moves"]),
        ("DELETE", "part1", ["1", "1", "moves"]),
        ("INSERT", "part2a", ["1", "2", "moves"]),
        ("INSERT", "made", ["1", "21", "42"]),
    ]


def test_TRUNCATE_is_told_as_one_for_all_tables_of_a_statement(plain_db: str) -> None:
    """With rows of others in between, and at its place among the rows of its own tables."""
    db = TriggeredDb.make(
        plain_db, ITEM, "CREATE TABLE line (id int PRIMARY KEY, item int REFERENCES item)",
        "CREATE TABLE other (id int PRIMARY KEY)",
    )  # fmt: skip
    fs = FaultFs()
    db.run("INSERT INTO item VALUES (1)", "INSERT INTO line VALUES (1, 1)")
    with psycopg.connect(plain_db) as conn:
        conn.execute("TRUNCATE item, line")
        db.run("INSERT INTO other VALUES (1)")
        conn.execute("INSERT INTO item VALUES (2)")
    db.run("INSERT INTO item VALUES (3)", "TRUNCATE item CASCADE")
    found = caught(db, fs)
    assert [change[:2] for change in found] == [
        ("INSERT", "item"), ("INSERT", "line"), ("INSERT", "other"), ("TRUNCATE", ("item", "line")),
        ("INSERT", "item"), ("INSERT", "item"), ("TRUNCATE", ("item", "line")),
    ]  # fmt: skip


def test_what_a_session_in_the_role_of_a_replica_writes_is_captured(plain_db: str) -> None:
    """Ordinary triggers would not fire, and nobody would miss the change."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run("SET session_replication_role = replica; INSERT INTO item VALUES (1)")
    assert caught(db, fs) == [("INSERT", "item", ["1", None, None])]


def test_large_values_and_whole_old_rows(plain_db: str) -> None:
    """An update that leaves a large value as it was has it all the same; GETUPDATEBEFORES needs nothing more."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    large = "ü" * 400_000
    db.run(f"INSERT INTO item VALUES (1, '{large}', 1)", "UPDATE item SET n = 2")
    found = caught(db, fs, source=db.source("GETUPDATEBEFORES"))
    assert found == [("INSERT", "item", ["1", large, "1"]), ("UPDATE", "item", ["1", large, "2"], ["1", large, "1"])]


VALUES = {
    "boolean": ["true", "false"], "real": ["'NaN'", "0.1", "1e-45"], "float8": ["'-Infinity'", "1.0/3", "5e-324"],
    "numeric": ["'NaN'", "1.10", "1e-100"], "text": ["''", "'a\"b\\,()'", "E'\\t\\n\\r '", "'ü𝄞'", "'NULL'"],
    "char(5)": ["'ab'", "''"], '"char"': ["'c'"], "bytea": ["'\\x00ff5c22'", "''"], "date": ["'0044-03-15 BC'"],
    "timestamp": ["'2024-02-29 23:59:59.123456'", "'infinity'"], "timestamptz": ["'2024-03-31 02:30:00+02'"],
    "timetz": ["'12:00:00+05:30:15'"], "time": ["'24:00:00'"], "interval": ["'-1 mons +2 days -03:04:05.678'"],
    "timestamptz[]": ["ARRAY['2024-03-31 02:30:00+02'::timestamptz, NULL]"], "tstzrange": ["'[2024-01-01,)'"],
    "json": ["'{\"b\" : 1}'"], "jsonb": ["'{\"b\": 1e400}'"], "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "bit(5)": ["B'10101'"], "inet": ["'10.0.0.1/8'"], "regclass": ["'item'"], "pair": ["ROW('2024-01-01', 'x \"y\"')"],
    "mood": ["'so \"so\"'"], "oid": ["4294967295"], "tsvector": ["'''it''''s'':1A'"], "point": ["'(1,-0)'"],
}  # fmt: skip
HOSTILE = (
    "SET DateStyle = 'German, DMY'; SET IntervalStyle = iso_8601; SET TimeZone = 'Asia/Kolkata'; "
    "SET extra_float_digits = -15; SET bytea_output = escape; SET client_encoding = LATIN1; "
    "SET search_path = public, pg_catalog; SET lc_numeric = 'C'"
)


def test_values_have_one_text_whatever_the_applications_session_says(plain_db: str) -> None:
    """The same as the log's: that of a session with the settings by which capturing reads."""
    columns = {f"c{n}": kind for n, kind in enumerate(VALUES)}
    table = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    db = TriggeredDb.make(
        plain_db, ITEM, "CREATE TYPE pair AS (a timestamptz, b text)", "CREATE TYPE mood AS ENUM ('so \"so\"')",
        f"CREATE TABLE odd (id int PRIMARY KEY, {table})",
    )  # fmt: skip
    fs = FaultFs()
    for n in range(max(map(len, VALUES.values()))):
        given = [values[n] if n < len(values) else "NULL" for values in VALUES.values()]
        db.run(f"INSERT INTO odd VALUES ({n}, {', '.join(given)})")
    db.run(f"{HOSTILE}; UPDATE odd SET id = id + 100")
    with psycopg.connect(plain_db, options=SETTINGS) as conn:
        names = ", ".join(
            f"{name}::text" if kind not in ("char(5)", "bytea") else name for name, kind in columns.items()
        )
        expected = [list(row) for row in conn.execute(f"SELECT id::text, {names} FROM public.odd ORDER BY id".encode())]
    found = caught(db, fs)
    updates = [change[2] for change in found if change[0] == "UPDATE"]
    assert [[_plain(v) for v in row] for row in updates] == expected
    before = [[str(int(row[0]) - 100), *row[1:]] for row in updates]
    assert [change[3] for change in found if change[0] == "UPDATE"] == before


def _plain(value: Any) -> Any:
    return value


# --- who may do what --------------------------------------------------------------------------------------------------


def test_an_ordinary_user_of_the_application_has_no_way_to_the_queue(plain_db: str) -> None:
    """He writes his tables, and whatever he puts in the way of names, casts and operators is not found."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    role = f"app_{db.rows('SELECT current_database()')[0][0]}"
    db.run(f"CREATE ROLE {role} LOGIN", f"GRANT ALL ON SCHEMA public TO {role}", f"GRANT ALL ON item TO {role}")
    try:
        with psycopg.connect(plain_db, user=role, autocommit=True) as conn:
            for statement in (
                "CREATE TABLE own (id int PRIMARY KEY, v text)",
                "CREATE FUNCTION public.nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT 1/0'",
                "CREATE FUNCTION public.pg_trigger_depth() RETURNS int LANGUAGE sql AS 'SELECT 1/0'",
                "CREATE FUNCTION public.shown(own) RETURNS text LANGUAGE sql AS 'SELECT (1/0)::text'",
                "CREATE CAST (own AS text) WITH FUNCTION public.shown(own) AS IMPLICIT",
                "CREATE FUNCTION public.to_regclass(text) RETURNS regclass LANGUAGE sql AS 'SELECT (1/0)::regclass'",
                "SET search_path = public, pg_catalog",
                "INSERT INTO item VALUES (1, 'mine')",
            ):
                conn.execute(statement.encode() if isinstance(statement, str) else statement)
            db.ask("add_trandata", pattern="public.own")
            conn.execute("INSERT INTO own VALUES (1, 'x')")
            for statement in (
                "SELECT * FROM trailgate_queue.log",
                "INSERT INTO trailgate_queue.log (relid, op) VALUES (1, 'I')",
                "DELETE FROM trailgate_queue.log",
                "TRUNCATE trailgate_queue.log",
                "SELECT nextval('trailgate_queue.log_id_seq')",
                "CREATE TRIGGER t AFTER INSERT ON own FOR EACH ROW EXECUTE FUNCTION trailgate_queue.log_delete()",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(statement.encode())
        assert caught(db, fs) == [("INSERT", "item", ["1", "mine", None]), ("INSERT", "own", ["1", "x"])]
    finally:
        db.run(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def test_names_that_need_quotes_and_a_schema_that_is_somebody_elses(
    plain_db: str, postgres_plain: PostgresServer
) -> None:
    """Whoever owns the queue's schema could put a trap in it."""
    db = TriggeredDb.make(plain_db, 'CREATE TABLE "T "" \'1;" (id int PRIMARY KEY, "a""b" text)')
    fs = FaultFs()
    db.run('INSERT INTO "T "" \'1;" VALUES (1, \'x\')')
    assert caught(db, fs) == [("INSERT", "T \" '1;", ["1", "x"])]
    db.ask("unregister", made=db.registered.made if db.registered else {})
    role = f"thief_{db.rows('SELECT current_database()')[0][0]}"
    db.run(f"CREATE ROLE {role}", f"CREATE SCHEMA trailgate_queue AUTHORIZATION {role}")
    try:
        assert f"schema trailgate_queue, or something in it, belongs to {role}" in db.refused(
            "register", group="EXT1", home_id="0" * 16
        )
    finally:
        db.run(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def test_an_Extract_with_the_least_rights_captures(plain_db: str) -> None:
    """Those that its refusal names; it owns nothing, and may not read a captured table."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    role = f"capture_{db.rows('SELECT current_database()')[0][0]}"
    db.run(f"CREATE ROLE {role} LOGIN", "INSERT INTO item VALUES (1)")
    owner = db.url
    try:
        db.url = db.url.replace("postgres@", f"{role}@")
        text = refusal(db, fs)
        print(text)
        grants = re.findall(r"GRANT [^;]*?TO \w+", text)
        assert len(grants) == 2
        TriggeredDb(owner).run(*grants)
        capture_as_owner_waits(db, owner, fs)
        assert changes(fs) == [("INSERT", "item", ["1", None, None])]
    finally:
        TriggeredDb(owner).run(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def capture_as_owner_waits(db: TriggeredDb, owner: str, fs: FaultFs) -> None:
    """A life whose end another user looks for."""
    extract = db.extract(fs, TRAIL)
    run_until_captured(extract, TriggeredDb(owner))
    extract.close()


# --- places -----------------------------------------------------------------------------------------------------------


def test_BEGIN_NOW_and_a_CSN_are_places(plain_db: str) -> None:
    """BEGIN NOW leaves out what waits; a CSN must be one of the queue's ticks."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run("INSERT INTO item VALUES (1)")
    extract = db.extract(fs, TRAIL, alter_no=1, alter=(("begin", "now"),))
    db.run("INSERT INTO item VALUES (2)")
    run_until_captured(extract, db)
    csn = extract._writer.last.csn
    extract.close()
    assert [change[2][0] for change in changes(fs)] == ["2"]
    assert re.fullmatch(r"\d{20}", csn)
    db.run("INSERT INTO item VALUES (3)")
    assert [change[2][0] for change in caught(db, fs, alter_no=2, alter=(("csn", csn),))] == ["2", "3"]
    for place, expected in (("0/1A", "expected BEGIN NOW or a CSN"), ("7", "the source's queue has ticks")):
        with pytest.raises(OperatorError, match=expected):
            db.extract(fs, TRAIL, alter_no=3, alter=(("csn", place),))


def test_several_writers_at_once_end_in_the_same_rows(plain_db: str) -> None:
    """Conflicting transactions on few rows, captured while they run."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run("INSERT INTO item SELECT g, '0', 100 FROM generate_series(1, 5) g")
    threads = [threading.Thread(target=transfer, args=(plain_db, n)) for n in range(4)]
    extract = db.extract(fs, TRAIL)
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        extract.step()
    run_until_captured(extract, db)
    extract.close()
    mirrored(db, fs, "item")


def transfer(url: str, seed: int) -> None:
    """Move amounts between rows, in an order that locks none for ever."""
    with psycopg.connect(url) as conn:
        for n in range(60):
            one, other = sorted(((seed + n) % 5 + 1, (seed * n) % 5 + 1))
            conn.execute("UPDATE item SET n = n - 7, v = (v::int + 1)::text WHERE id = %s", (one,))
            conn.execute("UPDATE item SET n = n + 7 WHERE id = %s", (other,))
            conn.commit()
