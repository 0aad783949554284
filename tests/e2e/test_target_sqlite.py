"""SQLite as a target: what is its own: affinities, rowids, names without case, one writer, a file that can vanish."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replicat.model.target import Bag, Match, RefusedError, Work
from replicat.targets.kinds import admin_for
from replicat.targets.sqlite import link
from replicat.targets.sqlite.link import path_of
from tests.support.direct_target import Direct, blob, images
from trails.errors import AwayError, OperatorError

pytestmark = pytest.mark.e2e


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[Direct]:
    made = Direct("sqlite", f"sqlite:///{tmp_path}/target.db", "main")
    made.open()
    yield made
    made.close()


def test_urls(tmp_path: Path):
    """Four slashes: absolute; three: in the home."""
    assert path_of("sqlite:////var/lib/a%20b.db", "/home/x") == "/var/lib/a b.db"
    assert path_of("sqlite:///dirdat/a.db", "/home/x") == "/home/x/dirdat/a.db"
    with pytest.raises(OperatorError, match=r"no folder .*nosuch.*four slashes"):
        link.connect(f"sqlite:///{tmp_path}/nosuch/a.db")
    (tmp_path / "text").write_text("this is no database" * 100)
    with pytest.raises(OperatorError, match="not a database"):
        link.connect(f"sqlite:///{tmp_path}/text")


def test_a_new_file_is_in_wal_mode_and_another_stays_as_it_is(direct: Direct, tmp_path: Path):
    assert direct.sql("PRAGMA journal_mode") == [("wal",)]
    with sqlite3.connect(tmp_path / "old.db") as conn:
        conn.execute("CREATE TABLE t (a)")
    conn.close()
    for table in ("old.db", "target.db"):
        opened = link.connect(f"sqlite:///{tmp_path}/{table}")
        assert opened.execute("PRAGMA synchronous").fetchone() == (3,)
        opened.close()
    with sqlite3.connect(tmp_path / "old.db") as conn:
        assert conn.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    conn.close()


def test_e5_names_have_no_case(direct: Direct):
    direct.sql('CREATE TABLE "My Kv" (Id INTEGER PRIMARY KEY, "A b" TEXT)')
    table = direct.target.table("MAIN", "my kV")
    assert (table.name, [column.name for column in table.columns]) == ("My Kv", ["Id", "A b"])
    assert direct.target.table("other", "my kv") is None
    assert direct.target.table("main", "sqlite_schema") is None
    direct.sql("CREATE VIEW v AS SELECT 1")
    assert direct.target.table("main", "v") is None


def test_shapes(direct: Direct):
    """The INTEGER PRIMARY KEY, which has no index; partial and expression indexes don't count; computed columns."""
    direct.sql("CREATE TABLE kv (id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE, b AS (id + 1), c REAL, UNIQUE (a, c))")
    direct.sql("CREATE UNIQUE INDEX p ON kv (c) WHERE c > 0")
    direct.sql("CREATE UNIQUE INDEX e ON kv (c + 1)")
    table = direct.target.table("main", "kv")
    assert set(table.unique) == {frozenset({"id"}), frozenset({"a", "c"})}
    assert [column.name for column in table.columns if column.generated] == ["b"]


@pytest.mark.parametrize(
    "shape",
    [
        "id INTEGER PRIMARY KEY, v TEXT",
        "id TEXT PRIMARY KEY, v TEXT",
        "id INTEGER PRIMARY KEY, v TEXT) WITHOUT ROWID --",
        "id INT PRIMARY KEY, v TEXT) STRICT --",
        "rowid TEXT, id INT PRIMARY KEY, v TEXT",
    ],
)
def test_e5_every_kind_of_table(direct: Direct, shape: str):
    direct.sql(f"CREATE TABLE kv ({shape}\n)" if "--" not in shape else f"CREATE TABLE kv ({shape}")
    layout = direct.layout("kv", "id v", "id", "bigint text")
    direct.do(direct.rows(layout, inserts=images(["1 a", "2 b", "3 c"])))
    for rewrite in (False, True):
        direct.do(direct.rows(layout, updates=images(["1 x", "2 y"])), rewrite=rewrite)
    direct.do(direct.rows(layout, deletes=images(["3"]), inserts=images(["4 z"])))
    bag = direct.layout("kv", "id v", "", "bigint text")
    direct.do(Work(bags=(Bag(bag, (Match((), blob(["0", "1", "x", "5", "x"]), update=True),)),)))
    found = direct.sql("SELECT id, v FROM kv ORDER BY id")
    assert [(int(key), value) for key, value in found] == [(2, "y"), (4, "z"), (5, "x")]


def test_e5_null_in_an_integer_primary_key_is_refused(direct: Direct):
    """It would mean the next number."""
    direct.sql("CREATE TABLE kv (id INTEGER PRIMARY KEY, v TEXT)")
    bag = direct.layout("kv", "id v", "", "bigint text")
    with pytest.raises(RefusedError) as caught:
        direct.do(Work(bags=(Bag(bag, inserts=blob([None, "made up"])),)))
    assert caught.value.sqlstate == "23502"


def test_e5_keys_under_nocase(direct: Direct):
    direct.sql("CREATE TABLE kv (id TEXT COLLATE NOCASE PRIMARY KEY, v TEXT)")
    layout = direct.layout("kv", "id v", "id", collisions=True)
    assert layout.soft_key
    direct.do(direct.rows(layout, inserts=images(["a 1"])))
    with pytest.raises(RefusedError, match="one for the target"):
        direct.do(direct.rows(layout, updates=images(["a x", "A y"])))
    direct.target.close()
    direct.open()
    with pytest.raises(RefusedError, match="UNIQUE"):
        direct.do(direct.rows(layout, updates=images(["A y"])), single=True)
    direct.target.close()
    direct.open()
    direct.do(direct.rows(layout, deletes=images(["A"])), single=True)
    assert direct.sql("SELECT * FROM kv") == [("a", "1")]


@pytest.mark.parametrize(
    ("column", "logical", "value", "sqlstate"),
    [
        ("v INTEGER", "decimal", "1.23456789012345678", "22003"),
        ("v INTEGER", "text", "1e3", "22018"),
        ("v REAL", "double", "NaN", "22003"),
        ("v REAL", "bigint", "9007199254740993", "22003"),
        ("v TEXT CHECK (v <> 'bad')", "text", "bad", "23514"),
        ("v TEXT NOT NULL", "text", None, "23502"),
    ],
)
def test_what_does_not_fit_is_refused(direct: Direct, column: str, logical: str, value: Any, sqlstate: str):
    direct.sql(f"CREATE TABLE kv (id INTEGER PRIMARY KEY, {column})")
    layout = direct.layout("kv", "id v", "id", f"bigint {logical}")
    direct.begin()
    with pytest.raises(RefusedError) as caught:
        direct.target.apply((direct.rows(layout, inserts=[["7", value]]),))
    assert caught.value.sqlstate == sqlstate


def test_strict_tables_refuse_other_types(direct: Direct):
    direct.sql("CREATE TABLE kv (id INTEGER PRIMARY KEY, v REAL) STRICT")
    with pytest.raises(RefusedError):
        direct.do(direct.rows(direct.layout("kv", "id v", "id", "bigint interval"), inserts=[["1", "1 day"]]))


def test_values_arrive_as_what_they_are(direct: Direct):
    """The class of each value, as SQLite stores it; what is lost by rule is counted, and not when it was undone."""
    direct.sql(
        "CREATE TABLE kv (id INTEGER PRIMARY KEY, i INTEGER, r REAL, t TEXT, b BLOB, n DECIMAL(10,2), o BOOLEAN)"
    )
    layout = direct.layout("kv", "id i r t b n o", "id", "bigint bigint double decimal bytes decimal boolean")
    rows = [
        ["1", "-9223372036854775808", "-0", "1.10", b"\x00'", "1.10", "true"],
        ["2", "0", "-Infinity", "NaN", b"", "7", "false"],
        ["3", None, None, None, None, None, None],
    ]
    new = direct.begin()
    with pytest.raises(RefusedError):
        direct.target.apply((direct.rows(layout, inserts=[*rows, rows[0]]),))
    direct.target.apply((direct.rows(layout, inserts=rows),))
    assert direct.target.tally.converted == {("main", "kv"): 2}
    direct.target.commit()
    direct.row = new
    kinds = ", ".join(f"typeof({name})" for name in "irtbno")
    assert direct.sql(f"SELECT {kinds} FROM kv") == [
        ("integer", "real", "text", "blob", "real", "integer"),
        ("integer", "real", "text", "blob", "integer", "integer"),
        ("null",) * 6,
    ]
    assert direct.sql("SELECT i, r, t, b, n, o FROM kv")[0] == (-(1 << 63), 0.0, "1.10", b"\x00'", 1.1, 1)


def test_one_writer_at_a_time(direct: Direct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that somebody else writes to is away, not broken; readers are no hindrance."""
    monkeypatch.setattr(link, "BUSY_SECONDS", 0.1)
    direct.open()
    reader = sqlite3.connect(tmp_path / "target.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM chk").fetchall()
    direct.do()
    writer = sqlite3.connect(tmp_path / "target.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(AwayError, match="locked"):
        direct.begin()
    writer.execute("ROLLBACK")
    direct.do()
    reader.close()
    writer.close()


def test_a_file_that_is_locked_while_a_table_is_planned_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without WAL a writer keeps readers out too."""
    monkeypatch.setattr(link, "BUSY_SECONDS", 0.05)
    other = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    other.execute("CREATE TABLE kv (id INTEGER PRIMARY KEY)")
    direct = Direct("sqlite", f"sqlite:///{tmp_path}/old.db", "main")
    direct.open()
    layout = direct.layout("kv", "id", "id", "bigint")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(AwayError, match="locked"):
        direct.target.check_layout(layout)
    other.close()
    direct.target.check_layout(layout)
    direct.close()


def test_a_file_that_is_replaced_under_us(direct: Direct, tmp_path: Path):
    """SQLite would go on writing to a file without a name."""
    direct.do()
    for name in os.listdir(tmp_path):
        (tmp_path / name).unlink()
    with pytest.raises(AwayError, match="is not the file it was"):
        direct.begin()
    with pytest.raises(OperatorError, match="ADD CHECKPOINTTABLE"):
        direct.target.connect()


def test_a_file_that_goes_before_the_commit_takes_no_checkpoint(direct: Direct, tmp_path: Path):
    """The COMMIT succeeds in a file without a name: nobody would find its rows, so it counts as lost."""
    direct.begin()
    for name in os.listdir(tmp_path):
        (tmp_path / name).rename(tmp_path / f"{name}.away")
    with pytest.raises(AwayError, match="is not the file it was"):
        direct.target.commit()


def test_truncate_restarts_autoincrement(direct: Direct):
    from replicat.model.target import Truncate

    direct.sql("CREATE TABLE kv (id INTEGER PRIMARY KEY AUTOINCREMENT, v TEXT)")
    layout = direct.layout("kv", "id v", "id", "bigint text")
    direct.do(direct.rows(layout, inserts=images(["41 a"])))
    direct.do(Truncate((("main", "kv"),), restart=True))
    assert direct.sql("INSERT INTO kv (v) VALUES ('x') RETURNING id") == [(1,)]
    direct.do(Truncate((("main", "kv"),)))
    assert direct.sql("INSERT INTO kv (v) VALUES ('x') RETURNING id") == [(2,)]


def test_the_checkpoint_table_is_in_the_only_schema(direct: Direct):
    with pytest.raises(OperatorError, match="one schema, main"):
        admin_for(direct.url).add_row_table(direct.url, ("gg", "chk"))
