"""The SQLite source when tables change their shape: exact at its place, or refused by the table's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mirror import Mirror
from tests.support.sqlite_source import SourceFile, run_until_captured
from tests.support.trail_script import TRAIL
from trails.ddl import ALTER, CREATE, DDL_ROWS
from trails.errors import OperatorError
from trails.testing import After, FaultFs

DDL = "DDL INCLUDE ALL"


class Running:
    """An Extract with DDL that runs on, and its trail."""

    def __init__(self, file: SourceFile, *lines: str) -> None:
        self.file, self.fs = file, FaultFs()
        self.extract = file.extract(self.fs, TRAIL, file.source(DDL, *lines))

    def sees(self, *statements: str) -> Mirror:
        """What the trail has once these are captured."""
        self.file.run(*statements)
        run_until_captured(self.extract, self.file)
        return Mirror.of(self.fs, TRAIL)

    def again(self) -> None:
        """Stop, and start."""
        self.extract.close()
        self.extract = self.file.extract(self.fs, TRAIL, self.file.source(DDL))

    def close(self) -> None:
        """Stop."""
        self.extract.close()


@pytest.mark.parametrize("stopped", [False, True])
def test_an_added_column_comes_with_its_values(tmp_path: Path, stopped: bool) -> None:
    """Rows that were written before the triggers knew it are read again, behind the change of shape."""
    file = SourceFile.make(tmp_path)
    running = Running(file)
    running.sees("INSERT INTO item (code) VALUES ('old'), ('touched'), ('gone')")
    if stopped:
        running.extract.close()
    file.run(
        "UPDATE item SET price = 1 WHERE code = 'touched'",
        "ALTER TABLE item ADD COLUMN more TEXT NOT NULL DEFAULT 'it''s'",
        "INSERT INTO item (code, more) VALUES ('new', 'mine')",
        "UPDATE item SET more = 'yours' WHERE code = 'touched'",
        "DELETE FROM item WHERE code = 'gone'",
    )
    if stopped:
        running.extract = file.extract(running.fs, TRAIL, file.source(DDL))
    mirror = running.sees("INSERT INTO item (code, more) VALUES ('newest', 'ours')")
    running.close()
    (change,) = mirror.ddl
    assert (change.op, change.old.columns, change.new.columns[-1].missing) == (  # type: ignore[union-attr]
        ALTER, change.new.columns[:-1], "it's"  # type: ignore[union-attr]
    )  # fmt: skip
    found = {row[1]: row[5:] for row in mirror.sorted("item")}
    assert found == {"old": (), "touched": ("yours",), "new": ("mine",), "newest": ("ours",)}
    assert any("changed its shape" in line for line in file.told)


def test_a_new_table_is_told_and_captured_from_add_trandata_on(tmp_path: Path) -> None:
    """Its rows of before are not in the trail, and the change says so."""
    file = SourceFile.make(tmp_path)
    running = Running(file)
    running.sees(
        "ALTER TABLE line ADD COLUMN more TEXT",
        "CREATE TABLE born (id INTEGER PRIMARY KEY, v)",
        "INSERT INTO born VALUES (1, 'early')",
        "INSERT INTO item (code) VALUES ('a')",
    )
    assert "table main.born is new and is not captured yet: ADD TRANDATA main.born" in file.told
    file.ask("add_trandata", pattern="main.born")
    mirror = running.sees("INSERT INTO born VALUES (2, 'late')")
    assert (mirror.ddl[-1].op, mirror.ddl[-1].flags) == (CREATE, DDL_ROWS)
    assert mirror.sorted("born") == [("2", "'late'")]
    running.close()


def test_a_column_is_dropped_between_delete_and_add_trandata(tmp_path: Path) -> None:
    """SQLite itself refuses to drop one that a trigger names; done so, the change goes into the trail."""
    file = SourceFile.make(tmp_path)
    running = Running(file)
    running.sees("INSERT INTO item (code, price) VALUES ('a', 1)")
    with pytest.raises(Exception, match="error in trigger trailgate_1"):
        file.run("ALTER TABLE item DROP COLUMN price")
    file.ask("delete_trandata", pattern="main.item")
    running.sees("ALTER TABLE item DROP COLUMN price")
    file.ask("add_trandata", pattern="main.item")
    mirror = running.sees("UPDATE item SET code = 'b'")
    change = mirror.ddl[-1]
    assert change.op == ALTER and change.new is not None
    assert [(c.number, c.name) for c in change.new.columns] == [(1, "id"), (2, "code"), (4, "n"), (5, "pic")]
    running.close()


def test_a_table_made_anew_without_triggers_ends_the_capture_by_name(tmp_path: Path) -> None:
    """As migrations do it: what changed since can't be known; ADD TRANDATA begins again."""
    file = SourceFile.make(tmp_path)
    running = Running(file)
    running.sees("INSERT INTO item (code) VALUES ('a')")
    file.run(
        "BEGIN",  # whoever looks between finds that it was dropped, and then another one
        "CREATE TABLE fresh (id INTEGER PRIMARY KEY, code TEXT)",
        "INSERT INTO fresh SELECT id, code FROM item",
        "DROP TABLE item",
        "ALTER TABLE fresh RENAME TO item",
        "INSERT INTO line VALUES (1, 'x', 'n')",
        "COMMIT",
    )
    with pytest.raises(
        OperatorError, match=r"table main\.item has lost its triggers.*ADD TRANDATA main\.item, then START"
    ):
        run_until_captured(running.extract, file)
    running.extract._writer.abandon()
    running.extract._source.close()
    running.fs.reboot(After.KILL)
    file.ask("add_trandata", pattern="main.item")
    running.extract = file.extract(running.fs, TRAIL, file.source(DDL))
    mirror = running.sees("UPDATE item SET code = 'b'")
    assert mirror.sorted("item") == [("1", "b")] and mirror.ddl[-1].op == ALTER
    running.close()


def test_a_unique_index_that_the_triggers_did_not_know(tmp_path: Path) -> None:
    """Made while nothing was written it is taken in; else a REPLACE may have removed rows that nothing tells of."""
    file = SourceFile.make(tmp_path)
    running = Running(file)
    running.sees("INSERT INTO item (code, n) VALUES ('a', 1), ('b', 2)")
    running.sees("CREATE UNIQUE INDEX by_n ON item (n)", "DELETE FROM line", "INSERT INTO line VALUES (1, 'x', '')")
    mirror = running.sees("REPLACE INTO item (id, code, n) VALUES (9, 'c', 2)")
    assert [row[1] for row in mirror.sorted("item")] == ["a", "c"] and not mirror.ddl
    running.extract.close()
    file.run("CREATE UNIQUE INDEX by_price ON item (price)", "INSERT INTO item (code) VALUES ('d')")
    again = file.extract(running.fs, TRAIL, file.source(DDL))
    with pytest.raises(OperatorError, match=r"table main.item got a unique index on \(price\) while it was written to"):
        run_until_captured(again, file)
    again._writer.abandon()


def test_no_value_of_a_statement_is_told(tmp_path: Path) -> None:
    """Others read the trail: names and types stay of a statement, literals, numbers and comments do not."""
    file = SourceFile.make(tmp_path)
    running = Running(file)
    running.sees(
        "CREATE TABLE s (id integer PRIMARY KEY, a varchar(20) DEFAULT 'it''s hunter2', \"b c\" int DEFAULT 4711, --k\n"
        "d text DEFAULT \"mine\", e blob DEFAULT x'c0ff', [f] real CHECK (f > 1.5e3), g text default ('u') /* pw */)",
        "INSERT INTO item (code) VALUES ('a')",
    )
    file.ask("add_trandata", pattern="main.s")
    mirror = running.sees("INSERT INTO s (id) VALUES (1)")
    running.close()
    assert mirror.ddl[-1].sql == (
        "CREATE TABLE s (id integer PRIMARY KEY, a varchar(...) DEFAULT '...', \"b c\" int DEFAULT ..., "
        "d text DEFAULT '...', e blob DEFAULT '...', [f] real CHECK (f > ...), g text default ('...') )"
    )
