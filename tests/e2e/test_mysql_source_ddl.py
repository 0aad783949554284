"""Schema changes captured from real servers: at their place among the rows, by a reader that is behind all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.mysqld import Mysqld
from tests.support.mysql_source import MysqlCapture
from trails.errors import OperatorError

pytestmark = pytest.mark.e2e


@pytest.fixture(params=["mariadb_source", "mysql_source"])
def capture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MysqlCapture]:
    """A group on each of the two, registered when its tables are there."""
    database: Mysqld = request.getfixturevalue(request.param)
    found = MysqlCapture(database.url(""), tmp_path, ddl="")
    found.sql("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    yield found
    found.sql("DROP DATABASE IF EXISTS shop")


def _told(capture: MysqlCapture) -> list[str]:
    return [
        f"{change.ddl.op} {change.ddl.full_name}" if change.ddl else f"{change.op.name} {change.after}"
        for changes in capture.changes()
        for change in changes
    ]


def test_CW_33_a_reader_behind_an_alter_that_swaps_two_columns_of_like_types(capture: MysqlCapture) -> None:
    """Rows before and after each have their own shapes, and the change stands between them; after a new start too."""
    capture.sql("CREATE TABLE shop.t (id int PRIMARY KEY, x int, y int)")
    capture.register()
    capture.sql(
        "INSERT INTO shop.t VALUES (1, 10, 20)",
        "ALTER TABLE shop.t MODIFY x int AFTER y",
        "INSERT INTO shop.t VALUES (2, 20, 10)",
        "ALTER TABLE shop.t RENAME TO shop.t2, ADD u bigint unsigned NOT NULL DEFAULT 7",
        "CREATE TABLE shop.t (id int PRIMARY KEY)",
        "INSERT INTO shop.t VALUES (5)",
        "UPDATE shop.t2 SET u = 8 WHERE id = 1",
        "TRUNCATE TABLE shop.t",
        "DROP TABLE shop.t2",
    )
    with capture.running() as extract:
        capture.drain(extract)
    capture.sql("ALTER TABLE shop.t ADD z int", "INSERT INTO shop.t VALUES (6, 7)", "DROP DATABASE shop")
    with capture.running() as extract:
        capture.drain(extract)
    assert _told(capture) == [
        "INSERT {'id': '1', 'x': '10', 'y': '20'}",
        "ALTER shop.t",
        "INSERT {'id': '2', 'y': '20', 'x': '10'}",
        "RENAME shop.t2",
        "CREATE shop.t",
        "INSERT {'id': '5'}",
        "UPDATE {'id': '1', 'y': '20', 'x': '10', 'u': '8'}",
        "TRUNCATE {'tables': ['t'], 'flags': 0}",
        "DROP shop.t2",
        "ALTER shop.t",
        "INSERT {'id': '6', 'z': '7'}",
        "DROP shop.t",
    ]
    changes = [change.ddl for found in capture.changes() for change in found if change.ddl]
    assert [c.number for c in changes[0].new.columns] == [1, 3, 2]
    assert changes[1].new.columns[-1].missing == "7"


@pytest.mark.parametrize("how", ["CREATE", "ALTER", "RENAME"])
def test_a_foreign_key_that_changes_rows_unlogged_stops_at_its_place(capture: MysqlCapture, how: str) -> None:
    """Before any row that it may have changed, though the key is gone by now; with ALLOWCASCADES it is passed."""
    key = "FOREIGN KEY (p) REFERENCES shop.p (id) ON DELETE CASCADE"
    capture.patterns = ("shop.p", "shop.c")
    capture.sql("CREATE TABLE shop.p (id int PRIMARY KEY)")
    capture.sql(f"CREATE TABLE shop.away (id int PRIMARY KEY, p int, CONSTRAINT k {key})")
    capture.register()
    capture.sql("INSERT INTO shop.p VALUES (1)")
    if how == "RENAME":
        capture.sql("RENAME TABLE shop.away TO shop.c")
    elif how == "CREATE":
        capture.sql(f"CREATE TABLE shop.c (id int PRIMARY KEY, p int, CONSTRAINT ck {key})")
    else:
        capture.sql("CREATE TABLE shop.c (id int PRIMARY KEY, p int)", f"ALTER TABLE shop.c ADD CONSTRAINT ck {key}")
    capture.sql("INSERT INTO shop.c VALUES (1, 1)", "DELETE FROM shop.p")
    assert capture.sql("SELECT COUNT(*) FROM shop.c") == [("0",)]
    with pytest.raises(OperatorError, match=r"^foreign key .* of table shop.c ") as told, capture.running():
        pass
    assert told.value.hint.startswith("ALTER TABLE `shop`.`c` DROP FOREIGN KEY")
    if how != "RENAME":
        capture.sql("ALTER TABLE shop.c DROP FOREIGN KEY ck")
        with (
            pytest.raises(OperatorError, match=r"\d+: foreign key ck of table shop.c \(ON DELETE CASCADE\)") as told,
            capture.running() as extract,
        ):
            capture.drain(extract)
        assert told.value.hint.startswith("It is gone by now: START with ALLOWCASCADES")
    capture.own = {"ALLOWCASCADES": None}
    with capture.running() as extract:
        capture.drain(extract)
    assert any("ALLOWCASCADES lets it pass" in line for line in capture.said)
    assert [told for told in _told(capture) if told[:2] in ("IN", "UP", "DE")] == [
        "INSERT {'id': '1'}", "INSERT {'id': '1', 'p': '1'}", "DELETE None",
    ]  # fmt: skip


def test_a_foreign_key_that_changes_rows_stops_a_running_process(capture: MysqlCapture) -> None:
    """The statement that mends it is told; rows before it are in the trail."""
    capture.sql("CREATE TABLE shop.p (id int PRIMARY KEY)", "CREATE TABLE shop.c (id int PRIMARY KEY)")
    capture.register()
    with capture.running() as extract:
        capture.sql("INSERT INTO shop.p VALUES (1)")
        capture.drain(extract)
        capture.sql("ALTER TABLE shop.c ADD FOREIGN KEY (id) REFERENCES shop.p (id) ON UPDATE CASCADE")
        with pytest.raises(OperatorError, match=r": a foreign key of table shop.c \(ON UPDATE CASCADE\)") as told:
            capture.drain(extract)
    assert _told(capture) == ["INSERT {'id': '1'}"]
    capture.sql(told.value.hint.partition(". Then")[0])
    assert "ON UPDATE CASCADE" not in str(capture.sql("SHOW CREATE TABLE shop.c"))


def test_a_change_that_the_log_does_not_have_stops_by_name(capture: MysqlCapture) -> None:
    """sql_log_bin = 0: the next row is of another shape; without the journal the server's answer is taken."""
    capture.sql("CREATE TABLE shop.t (id int PRIMARY KEY)")
    capture.register()
    with capture.session() as session:
        session.query("SET SESSION sql_log_bin = 0")
        session.query("ALTER TABLE shop.t ADD hidden int")
    capture.sql("INSERT INTO shop.t VALUES (1, 2)")
    with (
        pytest.raises(OperatorError, match=r"table shop.t is not of the shape known: 1 columns were expected, found 2"),
        capture.running() as extract,
    ):
        capture.drain(extract)
    Path(capture.journal).unlink()
    with capture.running() as extract:
        capture.drain(extract)
    assert _told(capture) == ["INSERT {'id': '1', 'hidden': '2'}"]


def test_another_type_is_told_where_no_ddl_is_captured(capture: MysqlCapture) -> None:
    """Labels of an ENUM are part of its type; where no row says 'b' any more the server lets it go."""
    capture.ddl = None
    capture.sql("CREATE TABLE shop.t (id int PRIMARY KEY, e enum('a','b'), s set('x'))")
    capture.register()
    with capture.running() as extract:
        capture.sql(
            "INSERT INTO shop.t VALUES (1, 'b', 'x')",
            "ALTER TABLE shop.t MODIFY e enum('a','b','c')", "UPDATE shop.t SET e = 'c'",
            "ALTER TABLE shop.t MODIFY e enum('a','c'), MODIFY s set('y','x')",
            "INSERT INTO shop.t VALUES (2, 'a', 'y')",
        )  # fmt: skip
        capture.drain(extract)
    first, second = capture.heard
    assert first.startswith("shop.t has another shape from CSN ")
    assert "e was enum('a','b')" in first and ", is enum('a','b','c')" in first
    assert "e was enum('a','b','c')" in second and "s was set('x')" in second
