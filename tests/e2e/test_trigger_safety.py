"""PostgreSQL captured by triggers: what would lose or double changes, or lend somebody the login's rights."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from demo.servers import PostgresServer
from extract.heartbeat import Owner
from extract.segments import SourceSegment
from extract.sources.postgres.triggers.heartbeat import TriggerSeed
from extract.sources.postgres.triggers.reader import TriggerReader
from tests.support.mirror import Mirror
from tests.support.syncrep import WAITS, commits_wait
from tests.support.trail_script import TRAIL
from tests.support.trigger_source import HOME_ID, TriggeredDb, capture
from trails.clock import RealClock
from trails.errors import AwayError, MismatchError
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.testing import FaultFs

pytestmark = pytest.mark.e2e

ITEM = "CREATE TABLE item (id int PRIMARY KEY, v text)"


def reader_of(db: TriggeredDb) -> TriggerReader:
    """One that is not open yet."""
    made = db.source()._method
    assert isinstance(made, TriggerReader)
    return made


def first_tick(db: TriggeredDb) -> int:
    """Where REGISTER EXTRACT began."""
    assert db.registered is not None
    return db.registered.place.rba


def taken(reader: TriggerReader, after: int) -> SourceSegment:
    """The next segment, read whole."""
    segment = reader.settled(after)
    assert segment is not None
    assert list(reader.changes(after, segment))
    return segment


@pytest.fixture
def thief(plain_db: str) -> Iterator[str]:
    """A role that has made a queue of its own, in which whatever is asked notes whose rights it has."""
    db = TriggeredDb(plain_db)
    role = f"thief_{db.rows('SELECT current_database()')[0][0]}"
    trap = "LANGUAGE plpgsql AS $$ BEGIN INSERT INTO ran VALUES (current_user); RETURN 'x'; END $$"
    db.run(
        ITEM, "CREATE TABLE ran (who text)", "GRANT INSERT ON ran TO PUBLIC",
        f"CREATE ROLE {role}", f"CREATE SCHEMA trailgate_queue AUTHORIZATION {role}",
        f"CREATE FUNCTION trailgate_queue.trap() RETURNS text {trap}",
        f"CREATE FUNCTION trailgate_queue.triggers_of(oid) RETURNS text {trap}",
        "CREATE TABLE trailgate_queue.captured (relid oid PRIMARY KEY, triggers text NOT NULL)",
        "CREATE VIEW trailgate_queue.install AS SELECT trailgate_queue.trap() AS id, 1 AS version, ''::text AS reader",
        f"ALTER FUNCTION trailgate_queue.trap() OWNER TO {role}",
        f"ALTER VIEW trailgate_queue.install OWNER TO {role}",
    )  # fmt: skip
    yield role
    db.run(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def test_nothing_of_a_queue_that_is_a_trap_runs_with_the_logins_rights(plain_db: str, thief: str) -> None:
    """Somebody who may create schemas made it before ADD TRANDATA came."""
    db = TriggeredDb(plain_db)
    asked = {
        "add_trandata": {"pattern": "public.*"}, "info_trandata": {"pattern": "public.*"},
        "delete_trandata": {"pattern": "public.*"}, "register": {"group": "EXT1", "home_id": "0" * 16},
        "unregister": {"made": {"queue": "x"}},
    }  # fmt: skip
    for verb, request in asked.items():
        assert f"schema trailgate_queue, or something in it, belongs to {thief}" in db.refused(verb, **request)
    assert db.rows("ran") == []


def test_a_connection_that_comes_back_to_another_database_is_refused(plain_db: str) -> None:
    """One that was loaded from a dump has the tick, but its transactions have other numbers."""
    db = TriggeredDb.make(plain_db, ITEM)
    assert db.registered is not None
    reader = reader_of(db)
    reader.open(first_tick(db), "")
    reader.close()
    db.registered = replace(db.registered, identity={**db.registered.identity, "system": "7"})
    with pytest.raises(MismatchError, match="the source's system is"):
        reader_of(db).open(first_tick(db), "")


def test_CW_29_a_trail_that_lost_its_end_finds_no_tick_whose_rows_are_partly_gone(
    plain_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two pieces of what it deletes."""
    monkeypatch.setattr("extract.sources.postgres.triggers.reader.FORGET_ROWS", 1)
    db = TriggeredDb.make(plain_db, ITEM)
    db.run("INSERT INTO item VALUES (1)", "INSERT INTO item VALUES (2)")
    reader = reader_of(db)
    reader.open(first_tick(db), "")
    segment = taken(reader, first_tick(db))
    assert reader.forget(segment.end), "there is more to delete"
    reader.close()
    assert len(db.rows("trailgate_queue.log")) == 1
    with pytest.raises(MismatchError, match="changes are lost"):
        reader.open(first_tick(db), "")
    reader.open(segment.end, segment.state)
    while reader.forget(segment.end):
        pass
    assert db.rows("trailgate_queue.log") == []
    reader.close()


def test_two_readers_at_once_wait_for_each_other(plain_db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that was copied has the same name for its reader; a killed process's session may live on."""
    db = TriggeredDb.make(plain_db, ITEM)
    one, other = reader_of(db), reader_of(db)
    one.open(first_tick(db), "")
    with monkeypatch.context() as patch:
        patch.setattr("extract.sources.postgres.triggers.reader.LOCK_MS", 1)
        with pytest.raises(AwayError, match="being read by another session"):
            other.open(first_tick(db), "")
    one.close()
    other.open(first_tick(db), "")
    other.close()


def test_a_tick_waits_for_the_synchronous_standby(pg_source: PostgresServer, source_db: str) -> None:
    """Else a failover to it would find a trail that knows more than it, and refuse to go on."""
    db = TriggeredDb.make(source_db, ITEM)
    reader, found = reader_of(db), []
    settling = threading.Thread(target=lambda: found.append(reader.settled(first_tick(db))))
    try:
        with commits_wait(pg_source, source_db):
            reader.open(first_tick(db), "")
            db.run("SET synchronous_commit = local", "INSERT INTO item VALUES (1)")
            settling.start()
            while settling.is_alive() and len(db.rows(WAITS)) < 2:
                RealClock().sleep(0.01)
            assert settling.is_alive(), "it did not wait for what the standby does not have"
    finally:
        if settling.ident:
            settling.join()
        reader.close()
    assert found and found[0] is not None


def test_rows_before_a_TRUNCATE_stay_before_it(plain_db: str) -> None:
    """A trigger changed a row, and behind the TRUNCATE another row stands in its place."""
    db, fs = TriggeredDb.make(
        plain_db, ITEM, "CREATE TABLE stat (id int PRIMARY KEY, n int)", "INSERT INTO stat VALUES (0, 0)",
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN UPDATE stat SET n = n + 1; RETURN NULL; END'",
        "CREATE TRIGGER f AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION f()",
    ), FaultFs()  # fmt: skip
    db.run("TRUNCATE stat", "INSERT INTO stat VALUES (1, 0)")
    capture(db, fs, TRAIL)
    with db.connect() as conn, conn.transaction():
        conn.execute("INSERT INTO item VALUES (1)")
        conn.execute("TRUNCATE stat")
        conn.execute("INSERT INTO stat VALUES (1, 100)")
    capture(db, fs, TRAIL)
    assert Mirror.of(fs, TRAIL).sorted("stat") == [("1", "100")]


def test_a_heartbeat_with_other_rows_in_its_transaction_is_no_border(plain_db: str) -> None:
    """Its snapshot is older than the change that one of those rows builds upon."""
    db, fs, table = TriggeredDb.make(plain_db, ITEM), FaultFs(), HeartbeatTable()
    db.ask("add_heartbeat", heartbeat=table.text, made=[])
    made = TriggerSeed(db.settings(), Owner(HOME_ID, "EXT1"))
    made.beat(30)
    made.close()
    db.run("INSERT INTO item VALUES (1, 'a')")
    capture(db, fs, TRAIL)
    with db.connect() as conn, conn.transaction():
        conn.execute(f"UPDATE {table.schema}.{table.seed} SET frequency = 31".encode())
        db.run("UPDATE item SET v = v || 'b'")
        conn.execute("UPDATE item SET v = v || 'c'")
    capture(db, fs, TRAIL)
    assert Mirror.of(fs, TRAIL).sorted("item") == [("1", "abc")]
