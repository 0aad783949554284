"""Who the event trigger trusts, and whom it never harms: forged messages, ordinary users, squatters, hostile paths."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from extract.admin import answer
from tests.support.capturing import Capture, ask
from tests.support.ddl_capturing import capture_with_trigger, ddls, shown, told

pytestmark = pytest.mark.e2e


@pytest.fixture
def capture(source_db: str, tmp_path: Path) -> Capture:
    """A group with DDL on an empty database that has the event trigger."""
    return capture_with_trigger(source_db, tmp_path)


def test_messages_of_others_are_passed_over(capture: Capture) -> None:
    """dbz#2058: transactional or not, between transactions and inside; a forged one is told, and changes nothing."""
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)")
    capture.register()
    forged = '{"version": 1, "key": "guess", "op": "DROP"}'
    deep = "repeat('[', 200000)"
    emit = "SELECT pg_logical_emit_message"
    capture.sql(
        f"{emit}(false, 'other', 'between')", f"{emit}(true, 'other', 'alone')",
        "BEGIN; INSERT INTO t VALUES (1); SELECT pg_logical_emit_message(false, 'other', 'inside'); "
        "SELECT pg_logical_emit_message(true, 'other', 'inside'); INSERT INTO t VALUES (2); COMMIT",
        f"{emit}(true, 'trailgate.ddl', '{forged}')", f"{emit}(true, 'trailgate.ddl', {deep})",
        f"{emit}(false, 'trailgate.ddl', 'x')",
        "ALTER TABLE t ADD a int",
    )  # fmt: skip
    for _ in range(2):
        with capture.running() as extract:
            capture.drain(extract)
            capture.sql("SELECT pg_logical_emit_message(false, 'other', 'between')")
            capture.drain(extract)
    assert told(capture.changes()) == ["INSERT t id=1 | INSERT t id=2", "ALTER t(1 id integer*, 2 a integer; id)"]
    assert len(capture.said) == 2 and all("not of this database's event trigger" in line for line in capture.said)


@contextlib.contextmanager
def role(capture: Capture, name: str) -> Iterator[psycopg.Connection[Any]]:
    """A session of an ordinary user who may make tables."""
    capture.sql(f"CREATE ROLE {name}", f"GRANT CREATE ON SCHEMA public TO {name}")
    try:
        with psycopg.connect(capture.url, autocommit=True) as connection:
            connection.execute(f"SET ROLE {name}".encode())
            yield connection
    finally:
        capture.sql(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_a_users_command_never_fails_by_it(capture: Capture) -> None:
    """Ordinary owners, in any search_path; and with the store gone: warned, told to the reader, and done."""
    capture.register(trandata=False)
    with capture.running() as extract, role(capture, "owner_of_t") as connection:
        warned: list[str] = []
        connection.add_notice_handler(lambda note: warned.append(note.message_primary or ""))
        connection.execute("SET search_path = pg_temp, public")
        connection.execute('CREATE TABLE public."a.b c%s" (id int PRIMARY KEY, "x;y" text DEFAULT \'$1\')')
        connection.execute('ALTER TABLE public."a.b c%s" RENAME "x;y" TO "é\n"')
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM trailgate.install")
        capture.drain(extract)
        assert [shown(c.new) for c in ddls(capture.changes())] == [
            "a.b c%s(1 id integer*, 2 x;y text; id)", "a.b c%s(1 id integer*, 2 é\n text; id)",
        ]  # fmt: skip
        assert warned == []
        capture.sql("ALTER TABLE trailgate.shape RENAME TO hidden")
        connection.execute("CREATE TABLE public.unseen (a int)")
        assert len(warned) == 1 and "was not captured" in warned[0]
        capture.drain(extract)
        assert (
            "could not capture a schema change" in capture.said[-1]
            and "the statement was: CREATE TABLE" in capture.said[-1]
        )
        capture.sql("ALTER TABLE trailgate.hidden RENAME TO shape", "ALTER TABLE trailgate.install RENAME TO gone")
        connection.execute("CREATE TABLE public.unseen2 (a int)")
        assert "ADD DDLCAPTURE again" not in warned[-1] and "not captured" in warned[-1]
        capture.sql("ALTER TABLE trailgate.gone RENAME TO install")


def test_two_transactions_that_change_one_table_at_once(capture: Capture) -> None:
    """In REPEATABLE READ the second can't see what it changes: it must try again, as with rows; never a wrong shape."""
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)")
    capture.register()
    with capture.running() as extract, psycopg.connect(capture.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM pg_class")
        capture.sql("ALTER TABLE t ADD a int")
        with pytest.raises(psycopg.errors.SerializationFailure):
            connection.execute("ALTER TABLE t ADD b int")
        connection.rollback()
        connection.execute("ALTER TABLE t ADD b int")
        connection.commit()
        capture.drain(extract)
    assert told(capture.changes()) == [
        "ALTER t(1 id integer*, 2 a integer; id)", "ALTER t(1 id integer*, 2 a integer, 3 b integer; id)",
    ]  # fmt: skip
    assert capture.said == []


def test_its_own_objects_and_a_schema_of_that_name(source_db: str, tmp_path: Path) -> None:
    """TABLE *.* captures nothing of schema trailgate; a schema that somebody else made is left alone."""
    capture = Capture(source_db, tmp_path, ("*.*",), ddl="")
    capture.sql("CREATE SCHEMA trailgate", "CREATE TABLE trailgate.mine (a int)")
    reply = answer({"verb": "add_ddlcapture", "url": source_db})
    assert not reply["ok"] and "schema trailgate exists and is not of Trailgate" in reply["error"]
    assert not answer({"verb": "delete_ddlcapture", "url": source_db})["ok"]
    assert capture.sql("SELECT count(*) FROM trailgate.mine") == [(0,)]
    capture.sql("DROP SCHEMA trailgate CASCADE")
    ask("add_ddlcapture", url=source_db)
    assert ask("add_ddlcapture", url=source_db)["renewed"] is True
    capture.register(trandata=False)
    with capture.running() as extract:
        capture.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE trailgate.more (a int PRIMARY KEY)")
        capture.sql("INSERT INTO trailgate.more VALUES (1)")
        capture.drain(extract)
    assert told(capture.changes()) == ["CREATE t(1 id integer*; id)"]


@contextlib.contextmanager
def mallory(capture: Capture) -> Iterator[psycopg.Connection[Any]]:
    """An ordinary user who may make schemas."""
    (database,) = capture.sql("SELECT quote_ident(current_database())")[0]
    capture.sql("CREATE ROLE mallory", f"GRANT CREATE ON DATABASE {database} TO mallory")
    try:
        with psycopg.connect(capture.url, autocommit=True) as connection:
            connection.execute("SET ROLE mallory")
            yield connection
        assert capture.sql("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'") == [(False,)]
    finally:
        capture.sql("DROP OWNED BY mallory CASCADE", "DROP ROLE mallory")


EVIL = "LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'ALTER ROLE mallory SUPERUSER'; RETURN {}; END $$"
SQUATS = [
    ["CREATE TABLE trailgate.install (version int PRIMARY KEY, key text NOT NULL)",
     f"CREATE FUNCTION trailgate.x() RETURNS trigger {EVIL.format('NEW')}",
     "CREATE TRIGGER x BEFORE INSERT ON trailgate.install FOR EACH ROW EXECUTE FUNCTION trailgate.x()"],
    [f"CREATE FUNCTION trailgate.x() RETURNS text {EVIL.format(chr(39) * 2)}",
     "CREATE VIEW trailgate.install AS SELECT 1 AS version, trailgate.x() AS key",
     "CREATE VIEW trailgate.shape AS SELECT 1 AS a", "CREATE VIEW trailgate.born AS SELECT 1 AS a"],
]  # fmt: skip


@pytest.mark.parametrize("made", SQUATS, ids=["a trigger", "a view"])
def test_a_schema_made_to_become_superuser(made: list[str], source_db: str, tmp_path: Path) -> None:
    """What stands there is run by superusers: a schema of that name that is no superuser's is not touched, nor read."""
    capture = Capture(source_db, tmp_path)
    with mallory(capture) as connection:
        for statement in ("CREATE SCHEMA trailgate", *made):
            connection.execute(statement.encode())
        assert ask("info_ddlcapture", url=source_db)["installed"] is False
        for verb in ("add_ddlcapture", "delete_ddlcapture"):
            reply = answer({"verb": verb, "url": source_db})
            assert not reply["ok"] and "schema trailgate exists and is not of Trailgate" in reply["error"]
        assert connection.execute("SELECT count(*) FROM pg_class WHERE relname = 'install'").fetchall() == [(1,)]


def test_something_of_an_ordinary_user_in_the_schema(capture: Capture) -> None:
    """Where a superuser let others make things there, ADD DDLCAPTURE takes over none of them."""
    with mallory(capture) as connection:
        capture.sql("GRANT CREATE, USAGE ON SCHEMA trailgate TO mallory", "DROP FUNCTION trailgate.flags")
        connection.execute("CREATE FUNCTION trailgate.flags(old jsonb, new jsonb, said text, zone text) RETURNS int "
                           f"{EVIL.format(0)}".encode())  # fmt: skip
        reply = answer({"verb": "add_ddlcapture", "url": capture.url})
        assert not reply["ok"] and "belongs to mallory, who is no superuser" in reply["error"]
        connection.execute("DROP FUNCTION trailgate.flags")
        ask("add_ddlcapture", url=capture.url)


def test_a_path_that_begins_with_a_users_schema(source_db: str, tmp_path: Path) -> None:
    """A database's owner may set it: what a superuser's login then calls must be the system's all the same."""
    capture = Capture(source_db, tmp_path, ddl="")
    with mallory(capture) as connection:
        connection.execute("CREATE SCHEMA evil")
        for name, kind in (("gen_random_uuid", "uuid"), ("pg_get_expr", "text")):
            arguments = "" if kind == "uuid" else "pg_node_tree, oid"
            connection.execute(
                f"CREATE FUNCTION evil.{name}({arguments}) RETURNS {kind} {EVIL.format('NULL')}".encode()
            )
        connection.execute(f"CREATE FUNCTION evil.x() RETURNS name {EVIL.format('NULL')}".encode())
        connection.execute("CREATE VIEW evil.pg_namespace AS SELECT 1::oid AS oid, evil.x() AS nspname, 1 AS nspowner")
        (database,) = capture.sql("SELECT quote_ident(current_database())")[0]
        capture.sql(
            "GRANT ALL ON SCHEMA evil TO PUBLIC", f"ALTER DATABASE {database} SET search_path = evil, pg_catalog"
        )
        ask("add_ddlcapture", url=source_db)
        capture.register(trandata=False)
        with capture.running() as extract:
            capture.drain(extract)


def test_hostile_names_at_the_source_are_only_names(capture: Capture) -> None:
    """Tables are called as their owners like, and the event trigger, ADD TRANDATA and REGISTER run as superusers."""
    capture.sql("CREATE TABLE keep (id int PRIMARY KEY)")
    names = ['x"; DROP TABLE keep; --', "y'); DROP TABLE keep; --", "%I%s%", "a.b", "public.keep", "$1", "\\'"]

    def made(suffix: str) -> list[str]:
        quoted = ['"' + (name + suffix).replace('"', '""') + '"' for name in names]
        return [f"CREATE TABLE {name} ({name} int, big text)" for name in quoted]

    capture.sql(*made(""))
    assert len(ask("add_trandata", url=capture.url, pattern="*.*")["tables"]) == len(names) + 1
    capture.note(ask("register", url=capture.url, group="EXT1", home_id="0" * 32, tables=["public.*"]))
    capture.sql(*made("2"))
    with capture.running() as extract:
        capture.drain(extract)
    assert [change.shape.name for change in ddls(capture.changes())] == [name + "2" for name in names]
    identities = capture.sql("SELECT relname::text, relreplident::text FROM pg_class WHERE relkind = 'r' "
                             "AND relnamespace = 'public'::regnamespace")  # fmt: skip
    assert dict(identities) == {name + more: "f" for name in names for more in ("", "2")} | {"keep": "d"}
    published = capture.sql("SELECT tablename::text FROM pg_publication_tables")
    assert {name for (name,) in published} == set(dict(identities))
    assert capture.said == []
