"""The SQLite source's queue: what the triggers log, whatever a statement does, and in which order."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from extract.queueguard import QueueLimits, retained
from extract.retention import RetentionGuard
from extract.sources.sqlite import queue
from tests.support.mirror import Mirror
from tests.support.sqlite_source import SourceFile, capture, run_until_captured, same_rows
from tests.support.trail_script import TRAIL
from trails.errors import MismatchError
from trails.testing import After, FaultFs


def mirrored(file: SourceFile, *tables: str, fs: FaultFs | None = None) -> Mirror:
    """Capture what is there; the trail gives the source's rows."""
    fs = fs or FaultFs()
    capture(file, fs, TRAIL)
    mirror = Mirror.of(fs, TRAIL)
    same_rows(file, mirror, *(tables or ("item", "line")))
    return mirror


def ops(mirror: Mirror) -> str:
    """The operations in their order: I, U, D."""
    return "".join("..IUD"[record[0]] for record in mirror.records)


REPLACING = {
    "REPLACE of a row by its key": ("REPLACE INTO item (id, code) VALUES (1, 'z')", "DI"),
    "REPLACE of three rows by three keys": ("REPLACE INTO item (id, code) VALUES (1, 'B'), (3, 'C')", "DDIDI"),
    "REPLACE by a key of any case": ("REPLACE INTO item (id, code) VALUES (9, 'A')", "DI"),
    "UPDATE OR REPLACE": ("UPDATE OR REPLACE item SET code = 'B' WHERE id = 1", "DU"),
    "UPDATE OR REPLACE of the key": ("UPDATE OR REPLACE item SET id = 2 WHERE id = 1", "DU"),
    "OR IGNORE": ("INSERT OR IGNORE INTO item (id, code) VALUES (1, 'z'), (9, 'b'), (8, 'y')", "I"),
    "an upsert": ("INSERT INTO item (id, code) VALUES (1, 'z') ON CONFLICT DO UPDATE SET code = 'w'", "U"),
    "an upsert that does nothing": ("INSERT INTO item (id, code) VALUES (1, 'z') ON CONFLICT DO NOTHING", ""),
    "REPLACE in a table WITHOUT ROWID": ("REPLACE INTO line (a, b, note) VALUES (1, 'x', 'new')", "DI"),
    "UPDATE OR IGNORE": ("UPDATE OR IGNORE item SET code = 'b'", "U"),
    "an update of a key": ("UPDATE item SET id = id + 10", "UUU"),
    "a delete of all rows": ("DELETE FROM item", "DDD"),
}


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize("name", REPLACING)
def test_a_statement_is_logged_with_the_rows_that_it_replaces(tmp_path: Path, name: str, recursive: bool) -> None:
    """SQLite fires no delete triggers for these, unless recursive_triggers is on: then not twice."""
    file = SourceFile.make(tmp_path)
    file.run("INSERT INTO item (code) VALUES ('a'), ('b'), ('c')", "INSERT INTO line VALUES (1, 'x', 'old')")
    conn = file.connect()
    conn.execute(f"PRAGMA recursive_triggers = {int(recursive)}")
    statement, expected = REPLACING[name]
    conn.execute(statement)
    conn.close()
    assert sorted(ops(mirrored(file))[4:]) == sorted(expected)


def test_images_left_over_by_ignored_inserts_are_of_no_harm(tmp_path: Path) -> None:
    """What OR IGNORE has left is true as long as its row is as it was, and is never taken for a removed row else."""
    file = SourceFile.make(tmp_path)
    file.run(
        "INSERT INTO item (code) VALUES ('a'), ('b')",
        "INSERT OR IGNORE INTO item (id, code) VALUES (1, 'b')",
        "UPDATE item SET price = 5 WHERE id = 1",
        "DELETE FROM item WHERE id = 2",
        "INSERT INTO item (id, code) VALUES (2, 'b')",
        "REPLACE INTO item (id, code) VALUES (1, 'new')",
    )
    assert ops(mirrored(file, "item")) == "IIUDIDI"


def test_triggers_and_cascades_of_the_application_are_logged(tmp_path: Path) -> None:
    """Rows that its triggers and foreign keys change, also in the table itself, also while a row is replaced."""
    file = SourceFile.make(
        tmp_path,
        (
            "CREATE TABLE node (id INTEGER PRIMARY KEY, parent REFERENCES node ON DELETE CASCADE, label TEXT UNIQUE)",
            "CREATE TABLE log (n INTEGER PRIMARY KEY, what TEXT)",
            "CREATE TRIGGER noted AFTER INSERT ON node BEGIN INSERT INTO log (what) VALUES (NEW.label); END",
            (
                "CREATE TRIGGER twin AFTER INSERT ON node WHEN NEW.label LIKE 'p%' BEGIN "
                "INSERT INTO node (parent, label) VALUES (NEW.id, 'child of ' || NEW.id); END"
            ),
        ),
    )
    conn = file.connect()
    conn.execute("PRAGMA foreign_keys = ON")
    conn.execute("INSERT INTO node (id, label) VALUES (10, 'p1'), (20, 'p2')")
    conn.execute("REPLACE INTO node (id, label) VALUES (10, 'p2')")
    conn.execute("DELETE FROM node WHERE id = 10")
    conn.close()
    mirrored(file, "node", "log")


def test_what_is_rolled_back_is_not_there(tmp_path: Path) -> None:
    """Transactions, savepoints, statements that fail whole (ABORT) and half way (FAIL): ids without a hole."""
    file = SourceFile.make(tmp_path)
    conn = file.connect()
    conn.execute("INSERT INTO item (id, code) VALUES (1, 'a')")
    conn.execute("BEGIN")
    conn.execute("INSERT INTO item (code) VALUES ('lost')")
    conn.execute("ROLLBACK")
    conn.execute("BEGIN")
    conn.execute("INSERT INTO item (code) VALUES ('kept')")
    conn.execute("SAVEPOINT s")
    conn.execute("DELETE FROM item")
    conn.execute("ROLLBACK TO s")
    conn.execute("INSERT INTO item (code) VALUES ('kept too')")
    conn.execute("COMMIT")
    for resolution in ("ABORT", "FAIL"):
        with pytest.raises(sqlite3.IntegrityError):
            conn.execute(f"INSERT OR {resolution} INTO item (code) VALUES ('{resolution}'), ('a')")
    conn.close()
    mirror = mirrored(file, "item")
    assert [record[2][1] for record in mirror.records] == ["a", "kept", "kept too", "FAIL"]


def test_an_id_is_never_used_again_though_the_counter_was_not_moved(tmp_path: Path) -> None:
    """INSERT OR FAIL leaves sqlite_sequence behind the last row: only that row keeps its id from being given again."""
    file, fs = SourceFile.make(tmp_path), FaultFs()
    conn = file.connect()
    conn.execute("INSERT INTO item (id, code) VALUES (1, 'a')")
    with pytest.raises(sqlite3.IntegrityError):
        conn.execute("INSERT OR FAIL INTO item (code) VALUES ('b'), ('a')")
    counter = conn.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (queue.LOG,)).fetchone()[0]
    assert counter < file.last()
    mirrored(file, "item", fs=fs)
    conn.execute("INSERT INTO item (code) VALUES ('c')")
    conn.close()
    assert len(mirrored(file, "item", fs=fs).records) == 3


def test_CW_30_a_lower_id_never_commits_after_a_higher_one(tmp_path: Path) -> None:
    """The second writer gets no id before the first has ended, committed or rolled back: ids are in commit order."""
    file, fs = SourceFile.make(tmp_path), FaultFs()
    first, second = file.connect(), sqlite3.connect(file.path, isolation_level=None, timeout=0)
    source = file.source()
    extract = file.extract(fs, TRAIL, source)
    for end in ("COMMIT", "ROLLBACK"):
        first.execute("BEGIN")
        first.execute("INSERT INTO item (code) VALUES (?)", (f"first {end}",))
        held = file.last()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            second.execute("INSERT INTO item (code) VALUES ('second')")
        for _ in range(20):
            extract.step()  # between the two: what is not committed is not seen, and nothing is passed over
        assert source.read <= held
        first.execute(end)
        second.execute("PRAGMA busy_timeout = 30000")  # the source may be trimming its queue
        second.execute("INSERT INTO item (code) VALUES (?)", (f"second after {end}",))
        second.execute("PRAGMA busy_timeout = 0")
    first.close()
    second.close()
    extract.flush()
    extract.close()
    mirror = mirrored(file, "item", fs=fs)
    assert [record[2][1] for record in mirror.records] == [
        "first COMMIT",
        "second after COMMIT",
        "second after ROLLBACK",
    ]


def test_unregister_leaves_nothing_but_the_files_number(tmp_path: Path) -> None:
    """DELETE TRANDATA takes the triggers, UNREGISTER all values too; both leave the application's own alone.

    Registered again, the trail goes on behind a hole, and only by an order: what was not logged is not passed over.
    """
    file, fs = SourceFile.make(tmp_path, (*SCHEMA_WITH_TRIGGER,)), FaultFs()
    file.run("INSERT INTO item (code) VALUES ('a')")
    mirrored(file, "item", fs=fs)
    file.ask("delete_trandata", pattern="main.item")
    assert "There are no triggers" in str(file.ask("info_trandata", pattern="main.item"))
    file.ask("unregister", made={"queue": "tg_01234567_ext1"})
    names = {name for (name,) in file.rows("SELECT name FROM sqlite_schema WHERE name LIKE 'trailgate%'")}
    assert names == {"trailgate_install", "trailgate_log", "trailgate_table"}
    assert file.rows("SELECT name FROM sqlite_schema WHERE type = 'trigger'") == [("own",)]
    file.run("INSERT INTO item (code) VALUES ('missed')")
    file.ask("add_trandata", pattern="main.item")
    file.register()
    with pytest.raises(MismatchError, match="changes are lost"):
        file.extract(fs, TRAIL)
    fs.reboot(After.KILL)
    file.run("INSERT INTO item (code) VALUES ('later')")
    extract = file.extract(fs, TRAIL, alter_no=1, alter=(("csn", str(file.registered.place.rba)),))  # type: ignore[union-attr]
    run_until_captured(extract, file)
    extract.close()
    assert [record[2][1] for record in Mirror.of(fs, TRAIL).records] == ["a", "A", "later", "LATER"]


SCHEMA_WITH_TRIGGER = (
    "CREATE TABLE item (id INTEGER PRIMARY KEY, code TEXT)",
    "CREATE TRIGGER own AFTER INSERT ON item BEGIN UPDATE item SET code = upper(code) WHERE id = NEW.id; END",
)


def test_tables_that_cannot_be_captured_are_named_with_what_to_do(tmp_path: Path) -> None:
    """Without a key, with a unique index over an expression: ADD TRANDATA says so, and START refuses them."""
    file = SourceFile.make(
        tmp_path,
        (
            "CREATE TABLE keyless (a, b)",
            "CREATE TABLE odd (id INTEGER PRIMARY KEY, name TEXT)",
            "CREATE UNIQUE INDEX folded ON odd (lower(name))",
            "CREATE TABLE good (id INTEGER PRIMARY KEY)",
        ),
    )
    told = {row["table"]: row["message"] for row in file.ask("add_trandata", pattern="main.*")["tables"]}
    assert "no PRIMARY KEY" in told["main.keyless"] and "TABLEEXCLUDE main.keyless" in told["main.keyless"]
    assert "folded is over an expression" in told["main.odd"]
    assert told["main.good"].startswith("Triggers are there already")
    with pytest.raises(Exception, match=r"main\.keyless.*main\.odd"):
        file.extract(FaultFs(), TRAIL)


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """Nor is one found by a path that depends on who looks; nor one that is no database, or keeps text otherwise."""
    missing, other = SourceFile(tmp_path / "missing.db"), SourceFile(tmp_path / "utf16.db")
    assert "there is no file" in missing.refused("dblogin") and not missing.path.exists()
    assert "expected an absolute path" in SourceFile(Path("shop.db")).refused("dblogin")
    missing.path.write_text("no database" * 100)
    assert "can't be opened: file is not a database" in missing.refused("dblogin")
    other.run("PRAGMA encoding = 'UTF-16le'", "CREATE TABLE t (a PRIMARY KEY)")
    assert "keeps text as UTF-16le, expected UTF-8" in other.refused("dblogin")


def test_the_guard_warns_of_a_long_queue():
    """By the group's own bounds."""
    told = list[str]()
    rows = iter([5, 11, 12, 21])
    guard = RetentionGuard(lambda: retained(next(rows), QueueLimits(10, 20)), told.append)
    for now in range(4):
        guard.judge(float(now))
    assert [line.partition(" (")[0] for line in told] == [
        "11 changes wait in the source's queue", "21 changes wait in the source's queue",
    ]  # fmt: skip
    assert "CRITICAL" in told[1]
