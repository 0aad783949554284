"""INSTANTIATE REPLICAT and INFO TABLES: from what a source says of its tables to tables and rows in a target."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from extract.admin import answer as extract_admin
from replicat.admin import answer as replicat_admin
from replicat.load.group import LoadingGroup
from replicat.load.loadtables import FAILED, LIVE, ChunkRow, TableRow
from replicat.load.pausedtable import PausedRow
from replicat.model.pausing import PausePlace
from tests.support.homes import answering, as_json, bad, good, make_home, write
from trails.described import DescribedTable
from trails.position import Position
from trails.record import TableDef
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration

pytestmark = pytest.mark.e2e

SHOP = (
    """CREATE TABLE orders (id integer NOT NULL, part integer NOT NULL, at timestamp NULL, note varchar(40) DEFAULT 'x',
    amount decimal(12,2), big {large}, PRIMARY KEY (part, id))""",
    """CREATE TABLE items (id integer PRIMARY KEY, oid integer, opart integer, qty integer NOT NULL,
    CONSTRAINT of_order FOREIGN KEY (opart, oid) REFERENCES orders (part, id))""",
    "CREATE INDEX by_note ON orders (note, amount)", "CREATE UNIQUE INDEX once ON items (oid, opart, qty)",
)  # fmt: skip


@dataclass
class Server:
    """A database that a test's tables are in. `run`: a statement in a connection of its own; its rows."""

    url: str
    schema: str
    run: Callable[[str], list[tuple[Any, ...]]]
    large: str = "text"


def _postgres(url: str) -> Server:
    def run(statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(url, autocommit=True) as conn:
            cursor = conn.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    return Server(url, "public", run)


def _sqlite(path: Path) -> Server:
    def run(statement: str) -> list[tuple[Any, ...]]:
        conn = sqlite3.connect(path, isolation_level=None)
        try:
            return conn.execute(statement).fetchall()
        finally:
            conn.close()

    run("PRAGMA journal_mode = WAL")
    return Server(f"sqlite:///{path}", "main", run)


def server(kind: str, role: str, get: Callable[[str], Any], folder: Path) -> Server:
    if kind == "postgresql":
        return _postgres(get(f"{role}_db"))
    if kind == "sqlite":
        return _sqlite(folder / f"{role}.db")
    mysqld, database = get("mariadb"), get(f"maria_{role}")
    return Server(mysqld.url(database), database, lambda statement: mysqld.sql(statement, database), "longtext")


@pytest.fixture
def maria_source(mariadb: Any, maria_db: str) -> str:
    return maria_db


@pytest.fixture
def maria_target(mariadb: Any) -> Iterator[str]:
    mariadb.sql("CREATE DATABASE instantiated")
    yield "instantiated"
    mariadb.sql("DROP DATABASE instantiated")


@dataclass
class Pair:
    """A source, a target, and a Replicat between them that never ran."""

    source: Server
    target: Server
    home: Home

    def maps(self, text: str = "MAP {0}.*, TARGET {1}.*;", *more: str) -> None:
        named = text.format(self.source.schema, self.target.schema)
        lines = ["REPLICAT rep1", f"TARGETDB '{self.target.url}'", f"SOURCEDB '{self.source.url}'",
                 f"CHECKPOINTTABLE {self.target.schema}.chk", *more, named]  # fmt: skip
        write(self.home, "rep1", "\n".join(lines) + "\n")

    def told(self, pattern: str = "*") -> list[Any]:
        asked = {"verb": "describe_tables", "url": self.source.url, "pattern": f"{self.source.schema}.{pattern}"}
        reply = extract_admin(asked)
        assert reply["ok"], reply
        return list(reply["tables"])

    def instantiate(self, pattern: str = "", **options: bool) -> Any:
        """The reply's tables by name; or the error's text."""
        given = {"create": False, "truncate": False, "running": False, **options}
        asked = {"verb": "instantiate", "home": self.home.root, "group": "REP1", "tables": self.told()}
        reply = replicat_admin({**asked, "pattern": pattern, **given})
        return {one["source"].partition(".")[2]: one for one in reply["tables"]} if reply["ok"] else reply["error"]

    def states(self) -> dict[str, TableRow]:
        group = LoadingGroup.of(self.home, "REP1")
        group.target.connect()
        try:
            return {row.source.partition(".")[2]: row for row in group.state().tables}
        finally:
            group.target.close()

    def change(self, *statements: tuple[str, list[Any]]) -> None:
        """As the Replicat does."""
        group = LoadingGroup.of(self.home, "REP1")
        group.target.connect()
        for statement in statements:
            group.target.write(*statement)
        group.target.close()

    def tables(self) -> Any:
        return LoadingGroup.of(self.home, "REP1").tables

    def shop(self) -> None:
        for statement in SHOP:
            self.source.run(statement.format(large=self.source.large))


def made(source: Server, target: Server, root: Path) -> Pair:
    home = make_home(root)
    registration.save(home, Registration("REP1", "REPLICAT", "TRAIL", trail="./dirdat/rt", group_key=77, added_us=5))
    found = Pair(source, target, home)
    found.maps()
    reply = replicat_admin({"verb": "add_checkpointtable", "url": target.url, "table": f"{target.schema}.chk"})
    assert reply["ok"], reply
    return found


@pytest.fixture
def pair(source_db: str, target_db: str, tmp_path: Path) -> Pair:
    """PostgreSQL to PostgreSQL."""
    return made(_postgres(source_db), _postgres(target_db), tmp_path / "home")


@pytest.mark.parametrize("target", ["postgresql", "mariadb", "sqlite"])
@pytest.mark.parametrize("source", ["postgresql", "mariadb", "sqlite"])
def test_target_tables_are_made_as_the_source_has_them(
    source: str, target: str, request: pytest.FixtureRequest, tmp_path: Path
):
    """Every kind from every kind: columns and key at once, and what waits for the rows can be run then."""
    get = request.getfixturevalue
    pair = made(server(source, "source", get, tmp_path), server(target, "target", get, tmp_path), tmp_path / "home")
    pair.shop()
    error = pair.instantiate()
    assert f"target table {pair.target.schema}.orders of {pair.source.schema}.orders does not exist" in error, error
    done = pair.instantiate(create=True)
    assert {name: one["done"] for name, one in done.items()} == {"orders": "created", "items": "created"}
    rows = pair.states()
    assert rows["orders"].definition == defined(pair, "orders")
    assert (rows["orders"].state, rows["items"].estimate) == ("waiting", 0)
    pair.target.run("INSERT INTO orders (id, part, note) VALUES (1, 2, 'a')")
    pair.target.run("INSERT INTO items (id, oid, opart, qty) VALUES (1, 1, 2, 3)")
    for statement in (*rows["orders"].behind, *rows["items"].behind):
        pair.target.run(statement)
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        pair.target.run("INSERT INTO items (id, oid, opart, qty) VALUES (2, 1, 2, 3)")
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        pair.target.run("INSERT INTO orders (id, part, note) VALUES (1, 2, 'b')")
    told = [note for one in done.values() for note in one["notes"]]
    if target == "sqlite":
        assert any("foreign key" in note and "is not made: SQLite" in note for note in told)
    else:
        with pytest.raises(Exception, match=r"(?i)foreign key"):
            pair.target.run("INSERT INTO items (id, oid, opart, qty) VALUES (9, 9, 9, 9)")


def defined(pair: Pair, name: str) -> TableDef:
    return DescribedTable.from_wire(pair.told(name)[0]).definition


def test_a_target_table_with_rows_is_refused_by_name_or_emptied(pair: Pair):
    """All that is refused is told at once, and nothing is changed by then."""
    pair.shop()
    pair.source.run("CREATE TABLE third (id int PRIMARY KEY)")
    pair.target.run("CREATE TABLE orders (id int, part int, at timestamp, note text, amount numeric, big text)")
    pair.target.run("ALTER TABLE orders ADD PRIMARY KEY (part, id)")
    pair.target.run("CREATE TABLE third (id int PRIMARY KEY)")
    pair.target.run("INSERT INTO third VALUES (1)")
    error = pair.instantiate()
    assert "- target table public.third of public.third has rows. TRUNCATE empties it" in error
    assert "- target table public.items of public.items does not exist. CREATE makes it" in error
    assert pair.states() == {} and pair.target.run("SELECT to_regclass('items')") == [(None,)]
    assert "TRUNCATE would empty its tables. STOP REPLICAT REP1 first" in pair.instantiate(truncate=True, running=True)
    done = pair.instantiate(create=True, truncate=True)
    found = {name: one["done"] for name, one in done.items()}
    assert found == {"items": "created", "orders": "emptied", "third": "emptied"}
    assert pair.target.run("SELECT * FROM third") == []
    assert pair.states()["orders"].behind == (), "a table that was there has what indexes its owner gave it"


def test_a_table_whose_columns_do_not_fit_is_refused_before_anything_is_copied(pair: Pair):
    pair.source.run("CREATE TABLE t (id int PRIMARY KEY, a text)")
    pair.target.run("CREATE TABLE t (id int PRIMARY KEY, b text NOT NULL)")
    assert "MAP public.t" in pair.instantiate() and pair.states() == {}


def test_maps_say_which_tables_are_loaded_and_where_to(pair: Pair):
    """MAPEXCLUDE, exact names before wildcards, TABLE; columns that COLMAP governs can't be guessed."""
    for name in ("a", "b", "c", "d"):
        pair.source.run(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
    pair.maps("MAP {0}.*, TARGET {1}.*;\nMAP {0}.b, TARGET {1}.other;\n", "MAPEXCLUDE public.c;")
    done = pair.instantiate("public.?", create=True)
    assert {name: one["target"] for name, one in done.items()} == {
        "a": "public.a", "b": "public.other", "d": "public.d",
    }  # fmt: skip
    assert "no MAP of REP1 takes TABLE public.zz" in pair.instantiate("public.zz")
    pair.maps("MAP {0}.c, TARGET {1}.c, COLMAP (usedefaults, v = 'x');")
    assert "target table public.c of public.c can't be created: the columns of" in pair.instantiate(create=True)
    pair.target.run("CREATE TABLE c (id int PRIMARY KEY, v text)")
    assert pair.instantiate()["c"]["done"] == "empty"


def test_tables_that_are_known_are_left_alone_and_one_that_failed_begins_anew(pair: Pair):
    for name in ("a", "b"):
        pair.source.run(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        pair.source.run(f"CREATE INDEX by_v_{name} ON {name} (v)")
    pair.instantiate(create=True)
    rows, tables = pair.states(), pair.tables()
    live = TableRow(*rows["a"].pair, rows["a"].definition, LIVE)
    failed = TableRow(*rows["b"].pair, rows["b"].definition, FAILED, "why", rows["b"].behind, rows=7)
    chunk = ChunkRow(*failed.pair, 0, seen="csn 1", past="1", rows=7)
    pair.change(tables.set_table(live), tables.set_table(failed), tables.add_chunk(chunk))
    pair.source.run("CREATE TABLE c (id int PRIMARY KEY)")
    done = pair.instantiate(create=True)
    assert [done[name]["done"] for name in "abc"] == ["left alone", "empty", "created"]
    found = pair.states()
    assert [found[name].state for name in "abc"] == ["live", "waiting", "waiting"]
    assert found["b"].behind == rows["b"].behind and len(found["b"].behind) == 1 and found["b"].rows == 0
    assert "public.a is loaded already. Leave it out by TABLE" in pair.instantiate("public.a")
    assert "public.b is being loaded already (waiting)" in pair.instantiate("public.b", truncate=True)


def test_a_paused_table_is_left_alone_or_loaded_anew_which_ends_its_pause(pair: Pair):
    pair.source.run("CREATE TABLE a (id int PRIMARY KEY)")
    pair.instantiate(create=True)
    row, group = pair.states()["a"], LoadingGroup.of(pair.home, "REP1")
    assert group.paused is not None
    pair.target.run(group.paused.create())
    paused = PausedRow(*row.pair, PausePlace(Position(0, 9)), reason="why", since_us=1)
    pair.change(pair.tables().set_table(TableRow(*row.pair, row.definition, LIVE)), group.paused.add(paused))
    pair.target.run("INSERT INTO a VALUES (1)")
    assert pair.instantiate()["a"]["notes"] == ["is paused already"]
    assert "public.a is paused, and REP1 is running. STOP REPLICAT REP1 first" in pair.instantiate(
        "public.a", running=True
    )
    assert "target table public.a of public.a has rows" in pair.instantiate("public.a")
    assert "START REPLICAT REP1 first" in bad(pair.home, "RESUME TABLE public.a, REPLICAT rep1")
    assert "behind position" in good(pair.home, "INFO TABLES rep1")
    assert pair.instantiate("public.a", truncate=True)["a"]["done"] == "emptied"
    assert pair.target.run("SELECT * FROM chk_paused") == [] and pair.states()["a"].state == "waiting"


def test_a_running_replicat_is_joined_only_where_its_batches_would_know(pair: Pair):
    """It looks for a row of its group when it starts. Where there was one, its batches see that tables were added."""
    pair.source.run("CREATE TABLE a (id int PRIMARY KEY)")
    error = pair.instantiate(create=True, running=True)
    assert "began before any of its tables was to be loaded. STOP REPLICAT REP1 first" in error
    assert pair.target.run("SELECT to_regclass('a'), to_regclass('chk_load')") == [(None, None)]
    pair.instantiate(create=True)
    pair.source.run("CREATE TABLE b (id int PRIMARY KEY)")
    before = pair.target.run("SELECT chunks FROM chk_load")
    assert pair.instantiate(create=True, running=True)["b"]["done"] == "created"
    assert pair.target.run("SELECT chunks FROM chk_load") > before


def test_the_commands(pair: Pair):
    """INSTANTIATE asks before it empties, tells what can't be made and what comes next; INFO TABLES shows it."""
    home = pair.home
    assert "No table is loaded" in good(home, "INFO TABLES rep1")
    pair.source.run("CREATE TABLE a (id int PRIMARY KEY, v text, CONSTRAINT few CHECK (id < 1000))")
    text = good(home, "INSTANTIATE REPLICAT rep1, TABLE public.a, CREATE")
    assert "public.a to public.a: created, about 0 rows at the source." in text
    assert "  check constraint few is not made" in text
    assert "1 table is to be loaded, once you START REPLICAT REP1." in text
    pair.source.run("CREATE TABLE b (id int PRIMARY KEY)")
    pair.target.run("CREATE TABLE b (id int PRIMARY KEY)")
    pair.target.run("INSERT INTO b VALUES (1)")
    assert "End the command with ! to confirm it" in bad(home, "INSTANTIATE REPLICAT rep1, TABLE public.b, TRUNCATE")
    told: list[str] = []

    def answer(verb: str, _: Any) -> dict[str, Any]:
        told.append(verb)
        return {"ok": True}

    lock = home.fs.lock(home.lock("REP1"))
    try:
        with answering(home, "REP1", answer):
            assert "STOP REPLICAT REP1 first" in bad(home, "INSTANTIATE REPLICAT rep1, TABLE public.b, TRUNCATE !")
            pair.target.run("DELETE FROM b")
            assert "by the Replicat that runs" in good(home, "INSTANTIATE REPLICAT rep1")
    finally:
        lock.release()
    assert told == ["LOAD"]
    text = good(home, "INFO TABLES rep1")
    assert "REPLICAT   REP1" in text and "2 tables: 2 waiting." in text
    assert [(one["source"], one["state"], one["rows_per_second"]) for one in as_json(home, "INFO TABLES rep1")] == [
        ("public.a", "waiting", None), ("public.b", "waiting", None),
    ]  # fmt: skip
    write(home, "rep1", f"REPLICAT rep1\nTARGETDB '{pair.target.url}'\nMAP public.*, TARGET public.*;\n")
    assert "has no SOURCEDB" in bad(home, "INSTANTIATE REPLICAT rep1")
