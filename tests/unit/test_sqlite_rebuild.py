"""A table of SQLite that is made anew without the key that it was made with: a replaced primary key is carried."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from replicat.model.target import RefusedError
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import admin_for, open_target
from replicat.targets.sql.target import SqlTarget

DROP = 'ALTER TABLE "main"."t""1" DROP PRIMARY KEY'
ADD = 'CREATE UNIQUE INDEX "main"."tg_key_t""1" ON "t""1" ("b")'
MADE = [
    """CREATE TABLE "t""1" (a integer, [b c] text NOT NULL /* it's CHECKed */, "check" decimal(5,2) DEFAULT 1.5,
        b varchar(9) DEFAULT 'CHECK', d DEFAULT (1 + 1), PRIMARY KEY (a, "b c"))""",
    """CREATE INDEX by_b ON "t""1" (b COLLATE NOCASE) WHERE b > ''""",
    "CREATE TABLE log (a)",
    """CREATE TRIGGER fires AFTER INSERT ON "t""1" BEGIN INSERT INTO log VALUES (new.a); END""",
    """CREATE TRIGGER goes AFTER DELETE ON "t""1" BEGIN INSERT INTO log VALUES (-old.a); END""",
    """CREATE TRIGGER other AFTER DELETE ON log BEGIN UPDATE "t""1" SET d = old.a; END""",
    """CREATE VIEW seen AS SELECT b FROM "t""1" """,
    "CREATE VIEW seen_again AS SELECT b FROM seen",
    'CREATE TABLE "tg_anew_T""1" (taken)',
    """INSERT INTO "t""1" (rowid, a, "b c", b) VALUES (7, 1, 'x', 'p'), (5, 1, 'y', 'q'), (9, NULL, '3', NULL)""",
    """UPDATE "t""1" SET "check" = x'00ff', d = 2.0 WHERE rowid = 5""",
]
ROWS = """SELECT rowid, *, typeof("check"), typeof(d) FROM "t""1" ORDER BY rowid"""
REST = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT IN ('t\"1', 'tg_key_t\"1') ORDER BY 1, 2"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[SqlTarget]:
    """A target with the table of all that can be carried."""
    url = f"sqlite:///{tmp_path}/t.db"
    admin_for(url).add_row_table(url, ("main", "chk"))
    made = open_target(TargetSettings(url, ("main", "chk"), "REP1", 77, str(tmp_path)))
    made.connect()
    with contextlib.closing(made):
        for statement in MADE:
            made.database.run(statement)
        yield made


def whole(target: SqlTarget) -> list[list[tuple[object, ...]]]:
    """Everything in the file that may change."""
    asked = ("SELECT * FROM sqlite_schema WHERE type <> 'x'", ROWS, "SELECT * FROM log", "PRAGMA legacy_alter_table")
    found = [target.database.ask(each) for each in asked]
    return [[row[:3] + row[4:] if len(row) == 5 else row for row in found[0]], *found[1:]]  # no page numbers


def test_rows_and_what_hangs_on_the_table_are_kept(target: SqlTarget):
    """A key of two columns becomes one of another: values, rowids, indexes, triggers and views are as they were."""
    rows, rest = target.database.ask(ROWS), target.database.ask("SELECT * FROM seen_again ORDER BY b")
    hanging = [row for row in target.database.ask(REST) if row[1] != 'sqlite_autoindex_t"1_1']
    xinfo = 'SELECT name, type, "notnull", dflt_value, hidden FROM pragma_table_xinfo(\'t"1\')'
    columns = target.database.ask(xinfo)
    target.database.run("BEGIN IMMEDIATE")
    target.ddl((DROP, ADD))
    target.database.run("COMMIT")
    assert (target.database.ask(ROWS), target.database.ask("SELECT * FROM seen_again ORDER BY b")) == (rows, rest)
    assert (target.database.ask(xinfo), target.database.ask(REST)) == (columns, hanging)
    assert target.database.ask("SELECT * FROM log") == [(1,), (1,), (None,)]
    target.database.run("""INSERT INTO "t""1" (a, "b c", b) VALUES (1, 'x', 'what the old key refused')""")
    assert target.database.ask("SELECT count(*) FROM log") == [(4,)]
    with pytest.raises(sqlite3.IntegrityError):
        target.database.run("""INSERT INTO "t""1" (a, "b c", b) VALUES (8, 'x', 'p')""")
    table = target.table("main", 't"1')
    assert table is not None and (table.primary, table.primary_name) == (("b",), 'tg_key_t"1')
    assert target.database.ask("PRAGMA integrity_check") == [("ok",)]
    assert target.database.ask("PRAGMA legacy_alter_table") == [(0,)]


def test_the_rowid_is_a_plain_column_afterwards(target: SqlTarget):
    """An INTEGER PRIMARY KEY is the rowid: it takes a second row of the number, and is no longer asked for."""
    target.database.run("CREATE TABLE r (k INTEGER PRIMARY KEY, v INTEGER)")
    target.database.run("INSERT INTO r VALUES (4, 1), (2, 2)")
    target.database.run("BEGIN")
    target.ddl(('ALTER TABLE "main"."r" DROP PRIMARY KEY', 'CREATE UNIQUE INDEX "main"."tg_key_r" ON "r" ("k", "v")'))
    target.database.run("COMMIT")
    target.database.run("INSERT INTO r VALUES (4, 2)")
    assert target.database.ask("SELECT rowid, * FROM r") == [(2, 2, 2), (4, 4, 1), (5, 4, 2)]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("k int PRIMARY KEY, v int CHECK (v > 0)", "a clause CHECK"),
        ("k int PRIMARY KEY, -- it's\n v int UNIQUE -- it's\n", "a clause UNIQUE"),
        ("k text COLLATE nocase PRIMARY KEY", "a clause COLLATE"),
        ("k integer PRIMARY KEY AUTOINCREMENT", "a clause AUTOINCREMENT"),
        ("k int PRIMARY KEY ON CONFLICT REPLACE", "a clause CONFLICT"),
        ("k int PRIMARY KEY REFERENCES log", "a clause REFERENCES"),
        ("k int PRIMARY KEY, v AS (k + 1)", "a clause AS"),
        ("k int PRIMARY KEY) STRICT --", "a clause STRICT"),
        ("k int PRIMARY KEY) WITHOUT ROWID --", "a clause WITHOUT"),
        ('k int PRIMARY KEY, v "not null"', "column v, which is no plain one"),
        ("rowid int PRIMARY KEY, oid int, _rowid_ int", "columns by all names of the rowid"),
        ("k int PRIMARY KEY); CREATE TABLE child (k int REFERENCES R", "a foreign key of table child to it"),
    ],
)
def test_what_cannot_be_carried_for_sure_is_refused(target: SqlTarget, made: str, why: str):
    """The table stays, and DDLERROR gets the cause."""
    target.database.conn.executescript(f"CREATE TABLE r ({made})")
    before = whole(target)
    target.database.run("BEGIN IMMEDIATE")
    with pytest.raises(RefusedError, match=f"^r: it has {why}, so it can't be made anew without its key$"):
        target.ddl(('ALTER TABLE "main"."r" DROP PRIMARY KEY',))
    target.database.run("COMMIT")
    assert whole(target) == before


def test_an_error_at_any_step_leaves_the_old_table(target: SqlTarget):
    """Each thing that SQLite is asked to do fails once; the last one is a new key that the rows do not have."""
    before = whole(target)
    failed, steps = 0, 0
    while failed <= steps:
        failed, steps = failed + 1, 0

        def deny(action: int, *what: object, at: int = failed) -> int:
            nonlocal steps
            if action == sqlite3.SQLITE_SAVEPOINT or "OFF" in what:  # the way back
                return sqlite3.SQLITE_OK
            steps += 1
            return sqlite3.SQLITE_DENY if steps == at else sqlite3.SQLITE_OK

        target.database.run("BEGIN IMMEDIATE")
        target.database.conn.set_authorizer(deny)
        with pytest.raises(RefusedError):
            target.ddl((DROP, ADD.replace('("b")', '("a")')))
        target.database.conn.set_authorizer(None)
        target.database.run("COMMIT")
        assert whole(target) == before, f"step {failed}"
    assert failed > 50


def test_a_process_that_is_killed_leaves_the_old_table(target: SqlTarget):
    """Nothing of it is in the file before the commit."""
    before = whole(target)
    target.database.run("BEGIN IMMEDIATE")
    target.ddl((DROP, ADD))
    assert whole(target) != before
    target.connect()
    assert whole(target) == before
