"""COMPARE REPLICAT on real databases: names exactly the rows that are out of sync, and none that are on their way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import psycopg
import pytest

from extract.extract import Extract
from replicat.compare.comparing import DIFFERS, EQUAL, LEFT_OUT, UNKNOWN, TableResult
from replicat.model.target import CheckpointRow
from replicat.targets.contract import Target
from replicat.targets.kinds import admin_for
from tests.support.comparing import Compare, between, both, sql, writer
from tests.support.homes import bad, good
from tests.support.load_sources import LoadSource, from_log, queued
from tests.support.sqlite_source import SourceFile

pytestmark = pytest.mark.e2e

WIDE = "id bigint PRIMARY KEY, t text, f double precision, n numeric, c varchar(20), u int"
ROWS = 2000


@pytest.fixture
def bench(source_db: str, target_db: str, tmp_path: Path) -> Iterator[Compare]:
    with between(source_db, target_db, tmp_path) as made:
        yield made


PLANTED = {
    range(75): ("DELETE FROM w WHERE id = {0}", "missing", ()),
    range(75, 150): ("INSERT INTO w SELECT {0} + 5000, t, f, n, c, u FROM w WHERE id = {0}", "too many", ()),
    range(150, 225): ("UPDATE w SET u = -1 WHERE id = {0}", "different", ("u",)),
    range(225, 300): ("UPDATE w SET t = NULL WHERE id = {0}", "different", ("t",)),
    range(300, 370): ("UPDATE w SET f = 0 WHERE id = {0}", "different", ("f",)),
    range(370, 435): ("UPDATE w SET n = 1.100 WHERE id = {0}", "different", ("n",)),
    range(435, 500): ("UPDATE w SET c = c || ' ' WHERE id = {0}", "different", ("c",)),
}


def test_B1_names_and_repairs_exactly_500_planted_differences_while_other_rows_change(bench: Compare):
    """Every kind of difference; a writer changes the rest, keys and the row that flips between two values too."""
    both(
        bench, f"CREATE TABLE w ({WIDE})",
        f"INSERT INTO w SELECT i, '', '-0', 1.10, 'ab', 0 FROM generate_series(0, {ROWS - 1}) i",
    )  # fmt: skip
    bench.capture.register()
    expected = {}
    for ids, (statement, what, columns) in PLANTED.items():
        for i in ids:
            expected[str(i + 5000 if what == "too many" else i)] = (what, columns)
        sql(bench.url, *(statement.format(i) for i in ids))

    def write(conn: psycopg.Connection[Any], number: int) -> None:
        conn.execute("UPDATE w SET u = 1 - u WHERE id BETWEEN 600 AND 609")
        conn.execute("UPDATE w SET u = %s WHERE id = %s", [number, 700 + number % 900])
        conn.execute("INSERT INTO w VALUES (%s, 'new', 1, 1, 'x', 1)", [10_000 + number])
        conn.execute("DELETE FROM w WHERE id = %s", [10_000 + number - 50])

    with bench.capture.running() as extract:
        bench.start()
        with bench.flowing(extract), writer(bench.capture.url, write):
            found = bench.compare(rows=900, waiting=100)["w"]
            repaired = bench.repair([found])["w"]
        bench.capture.sql("INSERT INTO w (id) VALUES (-1)")
        bench.capture.drain(extract)
        bench.until(lambda: bool(sql(bench.url, "SELECT 1 FROM w WHERE id = -1")))
    names = [c.name for c in found.wish.pair.source.columns] if found.wish.pair else []
    told = {str(one.key[0]): (one.what, tuple(names[i] for i in one.columns)) for one in found.differences}
    assert told == expected
    assert found.state == DIFFERS and found.ranges == found.of_ranges > 1 and found.hashed < found.rows
    assert repaired == {one.key: ("repaired", "") for one in found.differences}
    every = "SELECT w::text FROM w ORDER BY id"
    assert sql(bench.url, every) == sql(bench.capture.url, every)


def test_B1_rows_in_flight_are_never_called_different(bench: Compare):
    """With and without a key: equal or unknown while every row is written to, equal once nothing is."""
    both(
        bench, "CREATE TABLE hot (id int PRIMARY KEY, v boolean)", "CREATE TABLE bag (v int)",
        "ALTER TABLE bag REPLICA IDENTITY FULL", "INSERT INTO hot SELECT i, true FROM generate_series(1, 20) i",
        "INSERT INTO bag SELECT i % 7 FROM generate_series(1, 50) i",
    )  # fmt: skip
    bench.capture.register()

    def write(conn: psycopg.Connection[Any], number: int) -> None:
        conn.execute("UPDATE hot SET v = NOT v")
        conn.execute("INSERT INTO bag VALUES (%s)", [number % 7])

    with bench.capture.running() as extract:
        bench.start()
        with bench.flowing(extract):
            with writer(bench.capture.url, write):
                for _ in range(3):
                    found = bench.compare()
                    assert not any(one.differences for one in found.values()), found
            assert {name: one.state for name, one in bench.compare().items()} == {"hot": EQUAL, "bag": EQUAL}
            sql(bench.url, "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag WHERE v = 3)")
            (one,) = bench.compare()["bag"].differences
            assert (one.what, one.number) == ("missing", 1)


def test_B1_what_can_not_be_known_is_not_called_equal(bench: Compare):
    """A Replicat that does not come on; a scale that the target's column has; two tables that become one."""
    both(bench, "CREATE TABLE a (id int PRIMARY KEY, v int)")
    sql(bench.capture.url, "CREATE TABLE scaled (id int PRIMARY KEY, v numeric(10,2))")
    sql(bench.url, "CREATE TABLE scaled (id int PRIMARY KEY, v numeric(12,4))", "CREATE TABLE more (id int)")
    both(bench, "CREATE TABLE east (id int PRIMARY KEY)", "INSERT INTO east VALUES (1)")
    bench.capture.sql("CREATE TABLE west (id int PRIMARY KEY)")
    bench.maps = "MAP public.west, TARGET public.east;\n" + bench.maps
    bench.capture.register()
    with bench.capture.running() as extract:
        bench.start()
        bench.capture.sql("INSERT INTO a VALUES (1, 1)")
        bench.capture.drain(extract)
        bench.until(bench.all_applied)
        bench.capture.sql("INSERT INTO a VALUES (2, 2)")
        found = bench.compare(seconds=1)
    assert (found["a"].state, found["a"].unknown, found["a"].differences) == (UNKNOWN, 1, [])
    assert "did not come past" in found["a"].reason
    assert found["west"].state == LEFT_OUT and "takes the rows of public.east" in found["west"].reason
    assert found["scaled"].state == LEFT_OUT and "numeric(12,4)" in found["scaled"].reason


def test_B1_the_command_names_keys_fails_and_writes_a_report(bench: Compare, tmp_path: Path):
    """Values are told only where VALUES asks for them; what is equal succeeds."""
    both(bench, "CREATE TABLE a (id int PRIMARY KEY, v text)", "CREATE TABLE f (id int PRIMARY KEY)")
    home = bench.home("MAP public.f, TARGET public.f, WHERE (id > 1);", "MAP public.a, TARGET public.a;")
    bench.capture.register()
    with bench.capture.running() as extract:
        bench.start()
        with bench.flowing(extract):
            bench.capture.sql("INSERT INTO a VALUES (1, 'one'), (2, 'two')")
            text = good(home, "COMPARE REPLICAT rep1, TABLE public.a, RATE 5000")
            assert "public.a to public.a: 2 rows compared, equal" in text
            sql(bench.url, "UPDATE a SET v = 'secret' WHERE id = 2")
            text = bad(home, "COMPARE REPLICAT rep1")
            assert "2 rows compared, 1 differences\n  different (id=2): v\n" in text and "secret" not in text
            assert "public.f to public.f: not compared (its MAP has FILTER or WHERE" in text
            assert "of 2 tables 1 different, 1 not compared" in text
            report = (tmp_path / "home" / "dirrpt" / "COMPARE-REP1.rpt").read_text()
            assert "different (id=2): v" in report and "secret" not in report
            told = bad(home, "COMPARE REPLICAT rep1, TABLE public.a, VALUES --json")
    (one,) = json.loads(told[: told.rindex("}") + 1])["tables"][0]["differences"]
    assert (one["source"], one["target"]) == ({"v": "two"}, {"v": "secret"})


# Databases of another kind, and columns of another name

ITEM = "id bigint PRIMARY KEY, name varchar(40), price double, pic {0}"
MINE = "mine varchar(9) DEFAULT 'new'"
PAIRS = (pytest.param("mysql", marks=pytest.mark.soak), "mariadb", "sqlite")


def _made(schema: str, binary: str) -> list[str]:
    """Two tables, one of them with columns that have other names at the target."""
    item = ITEM.format(binary)
    return [
        f"CREATE TABLE {schema}.item ({item})",
        f"CREATE TABLE {schema}.code (k varchar(9), n bigint, v varchar(20), PRIMARY KEY (k, n))",
    ]


def _target(schema: str, binary: str) -> list[str]:
    """Where they go."""
    item = ITEM.format(binary)
    return [
        f"CREATE TABLE {schema}.goods ({item})",
        f"CREATE TABLE {schema}.code (v varchar(20), number bigint, k varchar(9), {MINE}, PRIMARY KEY (k, number))",
    ]


@pytest.fixture(params=PAIRS)
def like(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LoadSource, str, str, Callable[..., object]]:
    """A source, and a target of the same kind: its URL, schema, and what runs statements there."""
    (tmp_path / "dirdat").mkdir()
    if request.param == "sqlite":
        source = queued(SourceFile.make(tmp_path, _made("main", "blob")), "main", tmp_path, ("item", "code"))
        head = SourceFile(tmp_path / "head.db")
        head.run(*_target("main", "blob"))
        return source, head.url, "main", head.run
    server = request.getfixturevalue(f"{request.param}_source")
    there = request.getfixturevalue(f"{request.param}_source_db")
    here = request.getfixturevalue("maria_db" if request.param == "mariadb" else "mysql_db")
    target = request.getfixturevalue(request.param)
    source = from_log(server.url(there), there, tmp_path, ("item", "code"), *_made(there, "varbinary(20)"))
    for statement in _target(here, "varbinary(20)"):
        target.sql(statement)

    def run(*statements: str) -> None:
        for statement in statements:
            target.sql(statement)

    return source, target.url(here), here, run


def _check_B3(bench: Compare, wrong: TableResult, change: Callable[[], object], extract: Extract) -> None:
    """A change that is captured while a repair of its row holds the lock is applied behind it, never before."""
    names = f"SELECT name FROM {bench.schema}.goods WHERE id = 1"
    found: list[str] = []

    def name() -> str:
        with admin_for(bench.url).statements(bench.url) as ask:
            return str(ask(names)[0][0])

    def opened() -> Target:
        target: Any = bench.target()
        lock_row = target.lock_row

        def locked() -> CheckpointRow | None:
            row: CheckpointRow | None = lock_row()
            change()
            bench.capture.drain(extract)  # type: ignore[attr-defined]
            flows.append(pool.submit(bench.until, lambda: name() == "newer"))
            wait(flows, timeout=1)
            found.append(name())
            return row

        target.lock_row = locked
        return target

    with ThreadPoolExecutor(1) as pool:
        flows: list[Future[None]] = []
        bench.extract = extract
        assert bench.repair([wrong], connection=opened)["item"] == {("1",): ("repaired", "")}
        for flow in flows:
            flow.result()
    assert found == ["wrong"] and name() == "newer"


def test_B1_B3_pairs_of_other_kinds_and_tables_of_other_names(
    like: tuple[LoadSource, str, str, Callable[..., object]], tmp_path: Path
):
    """Names what was planted while other rows change, by the source's names of columns; and repairs exactly that.

    A key in another case is one row for MySQL: what the target alone has of it stays.
    """
    source, url, here, run = like
    there = source.schema
    bench = Compare(tmp_path, source, url, here, schema_there=there)
    bench.maps = (
        f"MAP {there}.item, TARGET {here}.goods;\n"
        f"MAP {there}.code, TARGET {here}.code, COLMAP (USEDEFAULTS, number = n);"
    )
    rows = ", ".join(f"({i}, 'n{i}', {i}.25, x'00ff{i:02x}')" for i in range(60))
    codes = ", ".join(f"('a{i % 5}', {i}, 'é')" for i in range(60))
    with source.running() as extract:
        bench.start()
        source.sql(f"INSERT INTO {there}.item VALUES {rows}", f"INSERT INTO {there}.code VALUES {codes}")
        source.drain(extract)
        bench.step(5)
        with bench.flowing(extract):
            found = bench.compare(rows=20)
            # Only a file's rows are read: it has no server that hashes them.
            hashed = 0 if bench.url.startswith("sqlite") else 60
            assert {name: (one.state, one.rows, one.hashed) for name, one in found.items()} == {
                "item": (EQUAL, 60, hashed), "code": (EQUAL, 60, hashed)
            }, found  # fmt: skip
            run(
                f"DELETE FROM {here}.goods WHERE id = 7", f"UPDATE {here}.goods SET price = 0 WHERE id = 33",
                f"UPDATE {here}.goods SET pic = NULL WHERE id = 50", f"INSERT INTO {here}.goods (id) VALUES (99)",
                f"UPDATE {here}.code SET v = 'e' WHERE number = 12", f"UPDATE {here}.code SET mine = 'kept'",
                f"UPDATE {here}.code SET k = 'A0' WHERE number = 20",
            )  # fmt: skip
            source.sql(
                f"UPDATE {there}.item SET name = 'new' WHERE id IN (1, 2)", f"DELETE FROM {there}.code WHERE n = 3"
            )
            rests: list[float] = []
            found = bench.compare(rows=20, rate=1, sleep=rests.append)
            repaired = bench.repair(list(found.values()))
            assert {name: one.state for name, one in bench.compare().items()} == {"item": EQUAL, "code": EQUAL}
            run(f"UPDATE {here}.goods SET name = 'wrong' WHERE id = 1")
            wrong = bench.compare()["item"]
        _check_B3(bench, wrong, lambda: source.sql(f"UPDATE {there}.item SET name = 'newer' WHERE id = 1"), extract)
    assert len(rests) == 6 and min(rests) > 0  # RATE: behind each range of a table
    assert bench.process is not None
    bench.process.close()
    told = {}
    for name, one in found.items():
        assert one.wish.pair is not None and not one.unknown, one
        names = [column.name for column in one.wish.pair.source.columns]
        told[name] = {(row.key, row.what, *(names[i] for i in row.columns)) for row in one.differences}
    assert told == {
        "item": {(("7",), "missing"), (("33",), "different", "price"), (("50",), "different", "pic"),
                 (("99",), "too many")},
        "code": {(("a2", "12"), "different", "v"), (("a0", "20"), "missing"), (("A0", "20"), "too many")},
    }  # fmt: skip
    assert repaired == {name: {one.key: ("repaired", "") for one in some.differences} for name, some in found.items()}
    with admin_for(url).statements(url) as ask:
        kept = [mine for (mine,) in ask(f"SELECT mine FROM {here}.code WHERE number IN (12, 20) ORDER BY number")]
    assert kept == ["kept", "new" if here == "main" else "kept"]
