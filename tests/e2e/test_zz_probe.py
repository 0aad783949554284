from __future__ import annotations
import threading, time
from pathlib import Path
from typing import Any
import psycopg, pytest
from demo.servers import PostgresServer
from extract.admin import answer
from tests.support.capturing import Capture, ask, step_until
from tests.e2e.test_extract_ddl import capture, ddls, shown, told, role
pytestmark = pytest.mark.e2e

def test_squat(source_db, tmp_path):
    capture = Capture(source_db, tmp_path, ddl="")
    db = capture.sql("select current_database()::text")[0][0]
    capture.sql("CREATE ROLE mallory", f'GRANT CREATE ON DATABASE "{db}" TO mallory')
    try:
        capture.sql("SET ROLE mallory; CREATE SCHEMA trailgate; CREATE TABLE trailgate.install (version int PRIMARY KEY, key text NOT NULL);")
        with psycopg.connect(source_db, autocommit=True) as c:
            c.execute("SET ROLE mallory")
            c.execute("CREATE FUNCTION trailgate.x() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'ALTER ROLE mallory SUPERUSER'; RETURN NEW; END $$")
            c.execute("CREATE TRIGGER x BEFORE INSERT ON trailgate.install FOR EACH ROW EXECUTE FUNCTION trailgate.x()")
        print(answer({"verb": "add_ddlcapture", "url": source_db}))
        sup = capture.sql("SELECT rolsuper FROM pg_roles WHERE rolname='mallory'")
        print("SUPER", sup)
        assert sup == [(False,)]
    finally:
        capture.sql("DROP OWNED BY mallory CASCADE", "DROP ROLE mallory")

def test_searchpath(source_db, tmp_path):
    capture = Capture(source_db, tmp_path, ddl="")
    db = capture.sql("select current_database()::text")[0][0]
    capture.sql("CREATE SCHEMA evil", "CREATE FUNCTION evil.gen_random_uuid() RETURNS uuid LANGUAGE sql AS $$ SELECT '00000000-0000-0000-0000-000000000000'::uuid $$",
       f'ALTER DATABASE "{db}" SET search_path = evil, pg_catalog')
    ask("add_ddlcapture", url=source_db)
    key = capture.sql("SELECT key FROM trailgate.install")
    print(key)
    assert not key[0][0].startswith("0000")

@pytest.mark.parametrize("deep", [100000, 900])
def test_deep(capture, deep):
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)")
    capture.register()
    capture.sql(f"SELECT pg_logical_emit_message(true, 'trailgate.ddl', repeat('[', {deep}))", "INSERT INTO t VALUES (1)")
    with capture.running() as extract:
        capture.drain(extract)
    print(told(capture.changes()), capture.said)

def test_schema_rename_rows(capture):
    capture.tables = "TABLE *.*;"
    capture.sql("CREATE SCHEMA s", "CREATE TABLE s.t (id int PRIMARY KEY)")
    capture.register()
    with capture.running() as extract:
        capture.sql("INSERT INTO s.t VALUES (1)", "ALTER SCHEMA s RENAME TO s2", "INSERT INTO s2.t VALUES (2)", "BEGIN; INSERT INTO s2.t VALUES (3); ALTER SCHEMA s2 RENAME TO s3; INSERT INTO s3.t VALUES (4); COMMIT")
        capture.drain(extract)
    out = [(c.op.name, c.table.schema, c.after) for tx in capture.changes() for c in tx]
    print(out)
    assert [o[1] for o in out] == ["s", "s2", "s2", "s2", "s3", "s3"]

def test_concurrent_schema_rename(capture):
    capture.tables = "TABLE *.*;"
    capture.sql("CREATE SCHEMA s", "CREATE TABLE s.t (id int PRIMARY KEY)")
    capture.register()
    with capture.running() as extract, psycopg.connect(capture.url) as a:
        a.execute("ALTER TABLE s.t ADD c int")
        t = threading.Thread(target=capture.sql, args=("ALTER SCHEMA s RENAME TO s2",))
        t.start(); time.sleep(1.0); a.commit(); t.join()
        capture.drain(extract)
    for d in ddls(capture.changes()): print(d.op, d.shape.full_name, shown(d.old), shown(d.new))
    last = ddls(capture.changes())[-1]
    assert shown(last.new) == "t(1 id integer*, 2 c integer; id)"
    assert last.op == "RENAME"

def test_lock_timeout(capture):
    capture.tables = "TABLE *.*;"
    capture.sql("CREATE SCHEMA s", "CREATE TABLE s.t (id int PRIMARY KEY)")
    capture.register()
    with capture.running() as extract, psycopg.connect(capture.url) as a:
        a.execute("ALTER TABLE s.t ADD c int")
        try:
            capture.sql("SET lock_timeout = '200ms'; ALTER SCHEMA s RENAME TO s2")
            print("rename went through")
        except Exception as e: print("raised", e)
        a.commit()
        capture.drain(extract)
    for d in ddls(capture.changes()): print(d.op, d.shape.full_name, shown(d.old), shown(d.new))
    print(capture.said)

def test_huge_default(capture):
    capture.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    capture.register()
    with capture.running() as extract:
        capture.sql("ALTER TABLE t ADD c text DEFAULT repeat('x', 40000000)", "ALTER TABLE t ADD d int")
        capture.drain(extract)
        print(capture.said, [len(d.new.columns[1].missing or "") for d in ddls(capture.changes())])

def test_detach_identity(tmp_path):
    with PostgresServer(version=18, tcp=True) as server:
        capture = Capture(server.url("postgres"), tmp_path, ("*.*",), ddl="")
        ask("add_ddlcapture", url=capture.url)
        capture.register(trandata=False)
        with capture.running() as extract:
            capture.sql("CREATE TABLE p (id int GENERATED ALWAYS AS IDENTITY, k int) PARTITION BY LIST (k)", "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)", "ALTER TABLE p DETACH PARTITION p1",
              "CREATE TABLE q (id int NOT NULL, k int)", "ALTER TABLE p ATTACH PARTITION q FOR VALUES IN (2)")
            capture.drain(extract)
        for d in ddls(capture.changes()): print(d.op, shown(d.old), shown(d.new), [c.identity for c in d.new.columns])
        print(capture.said)

def test_sql_ascii_bad(pg_source, tmp_path):
    database = "encoded_bad"
    pg_source.sql(f"CREATE DATABASE {database} ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    url = pg_source.url(database)
    capture = Capture(f"{url}{'&' if '?' in url else '?'}client_encoding=utf8", tmp_path, ddl="")
    ask("add_ddlcapture", url=capture.url)
    capture.register(trandata=False)
    with psycopg.connect(capture.url, autocommit=True) as connection:
        connection.execute("SET client_encoding = 'SQL_ASCII'")
        r = connection.pgconn.exec_(b'CREATE TABLE "t\xe9" (id int PRIMARY KEY, "c\xe9" int)'); print(r.status, r.error_message)
        r = connection.pgconn.exec_(b'INSERT INTO "t\xe9" VALUES (1,2)'); print(r.error_message)
    try:
        with capture.running() as extract:
            capture.drain(extract)
        print(ascii(told(capture.changes())))
    finally:
        print(capture.said)
        pg_source.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{database}'")
        pg_source.sql(f"DROP DATABASE {database} WITH (FORCE)")

def test_uninstall_foreign(source_db, tmp_path):
    capture = Capture(source_db, tmp_path, ddl="")
    capture.sql("CREATE SCHEMA trailgate", "CREATE TABLE trailgate.mine (a int)")
    print(answer({"verb": "delete_ddlcapture", "url": source_db}))
    capture.sql("SELECT * FROM trailgate.mine")
