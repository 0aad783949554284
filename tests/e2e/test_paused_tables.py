"""A table's life: one is paused and others go on, it catches up by itself, and each of its changes counts once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replicat.targets.kinds import admin_for
from tests.support.ddl_target import definition, feed_ddl, table_shape
from tests.support.pausing import Died, PauseBench
from tests.support.pausing_lives import PausedLife
from tests.support.replicat_trail import TrailFeed, table
from trails.ddl import ALTER, DROP, RENAME, DdlChange
from trails.errors import OperatorError
from trails.fs import RealFs
from trails.record import Column, Op, TableDef

pytestmark = pytest.mark.e2e

I, U, D, T = Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE  # noqa: E741  -- one letter an op keeps scripts readable
KV = TableDef("src", "kv", (Column("id", "integer", "integer", True), Column("a", "text", "text")))
LOG = table("src", "log", "t")
KINDS = ("sqlite", "mysql", "postgres")
MAKE = ("CREATE TABLE @kv (id bigint PRIMARY KEY, a varchar(40) UNIQUE)", "CREATE TABLE @log (t varchar(200))")


def made(request: pytest.FixtureRequest, folder: Path, kind: str) -> PauseBench:
    folder.mkdir(exist_ok=True)
    if kind == "mysql":
        server, name = request.getfixturevalue("mariadb"), request.getfixturevalue("maria_db")
        forget(server.url(name), name)
        found = PauseBench(folder, server.url(name), name)
    elif kind == "postgres":
        forget(request.getfixturevalue("target_db"), "public")
        found = PauseBench(folder, request.getfixturevalue("target_db"), "public")
    else:
        found = PauseBench(folder, f"sqlite:///{folder}/target.db", "main")
    found.sql(*MAKE)
    return found


def forget(url: str, schema: str) -> None:
    """What another life has left in the same database."""
    with admin_for(url).statements(url) as run:
        for name in ("kv", "log", "chk", "chk_paused"):
            run(f"DROP TABLE IF EXISTS {schema}.{name}")


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PauseBench]:
    found = made(request, tmp_path, request.param)
    yield found
    found.stop()
    found.feed.close()


def look(bench: PauseBench) -> tuple[list[str], list[str]]:
    """What stands in both tables."""
    kv = [f"{key} {a}" for key, a in bench.sql("SELECT id, a FROM @kv ORDER BY id")]
    return kv, [t for (t,) in bench.sql("SELECT t FROM @log ORDER BY t")]


def test_b4_a_paused_table_stays_behind_and_others_go_on_until_it_is_resumed(bench: PauseBench):
    """With transactions of both tables, a key change, a TRUNCATE of both, and a table without a key that is paused."""
    feed = bench.feed
    feed.tx((I, KV, ["1", "a"]), (I, LOG, ["1"]))
    bench.all()
    assert bench.order("PAUSETABLE", "src.kv")["tables"][0]["state"] == "paused"
    feed.tx((U, KV, ["2", "b"], ["1", "a"]), (I, LOG, ["2"]))
    feed.tx((T, [KV, LOG], 0), (I, KV, ["3", "c"]), (I, LOG, ["3"]))
    bench.all()
    assert look(bench) == (["1 a"], ["3"]) and bench.states() == {"src.kv": "paused"}
    bench.kill()
    assert bench.order("PAUSETABLE", "src.log")["tables"][0]["state"] == "paused"
    feed.tx((I, KV, ["4", "d"]), (I, LOG, ["4"]), (I, LOG, ["4"]))
    bench.all()
    with pytest.raises(OperatorError, match=r"src\.kv is paused already"):
        bench.order("PAUSETABLE", "src.kv")
    assert look(bench) == (["1 a"], ["3"])
    assert bench.order("RESUMETABLE", "src.kv")["tables"][0]["state"] == "resuming"
    bench.all()
    assert look(bench) == (["3 c", "4 d"], ["3"]) and bench.states() == {"src.log": "paused"}
    feed.tx((D, KV, ["4", "d"]), (I, LOG, ["5"]))
    bench.order("RESUMETABLE", "src.log")
    bench.all()
    assert look(bench) == (["3 c"], ["3", "4", "4", "5"]) and bench.states() == {}
    assert bench.run().stats.total() == 0


def script(bench: PauseBench, by_error: bool) -> None:
    """Paused, resumed with much waiting, and at an end; MAXTRANSOPS cuts the large transaction in parts."""
    feed = bench.feed
    feed.tx((I, KV, ["1", "a"]), (I, LOG, ["1"]))
    bench.all()
    if by_error:
        bench.sql("INSERT INTO @kv VALUES (99, 'n14')")
    else:
        insist(bench, "PAUSETABLE", {"src.kv": "paused"})
    feed.tx((U, KV, ["1", "b"], ["1", "a"]), (I, LOG, ["2"]))
    feed.tx(*((I, KV, [str(n), f"n{n}"]) for n in range(10, 16)), (I, LOG, ["3"]), pieces=4)
    feed.tx((U, KV, ["1", "c"], ["1", "b"]))
    bench.all()
    if by_error:
        assert look(bench)[1] == ["1", "2", "3"] and "insert of row (14)" in bench.rows()["src.kv"].reason
        assert bench.rows()["src.kv"].at.split, "the table was paused before its large transaction"
        bench.sql("DELETE FROM @kv WHERE id = 99")
    insist(bench, "RESUMETABLE", {"src.kv": "resuming"})
    feed.tx((U, KV, ["1", "d"], ["1", "c"]), (I, LOG, ["4"]))
    bench.all()


def insist(bench: PauseBench, verb: str, then: dict[str, str]) -> None:
    """An operator gives the command again if its process dies meanwhile, unless it was obeyed all the same."""
    while bench.states() != then:
        try:
            bench.order(verb, "src.kv")
        except Died:
            bench.process = None


WANTED = (["1 d", *(f"{n} n{n}" for n in range(10, 16))], ["1", "2", "3", "4"])


@pytest.fixture
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PauseBench]:
    """The cheapest target, for what no database has a part in."""
    found = made(request, tmp_path, "sqlite")
    yield found
    found.stop()
    found.feed.close()


def test_what_a_paused_table_needs_of_the_trail_is_kept_and_what_is_gone_is_never_a_silent_loss(small: PauseBench):
    """The checkpoint names its file, so none from there on is purged; a file that is gone all the same fails it."""
    small.feed.close()
    small.feed = TrailFeed(RealFs(), small.trail, max_bytes=4096)
    small.feed.tx((I, KV, ["1", "a"]))
    small.all()
    small.order("PAUSETABLE", "src.kv")
    at = small.rows()["src.kv"].at.position
    small.feed.tx((U, KV, ["1", "b"]))
    for number in range(60):
        small.feed.tx((I, LOG, [f"{number} {'x' * 200}"[:200]]))
    small.all()
    needed = small.start().flush().reads[0].needed
    assert (needed.seqno, needed.rba) == (at.seqno, at.rba) and small.start()._row.position.seqno > at.seqno
    assert small.start().flush().extra["tables_amiss"] == "src.kv is paused"
    Path(small.trail.path(at.seqno)).unlink()
    small.start().flush()
    lost = small.rows()["src.kv"]
    assert lost.state == "failed" and "which has its changes, is gone; it was paused because: by PAUSE" in lost.reason
    assert small.start().flush().reads[0].needed.seqno > at.seqno
    with pytest.raises(OperatorError, match="has failed"):
        small.order("RESUMETABLE", "src.kv")
    small.feed.tx((U, KV, ["1", "c"]), (I, LOG, ["on"]))
    small.all()
    assert look(small)[0] == ["1 a"] and len(look(small)[1]) == 61
    small.order("SKIPTABLE", "src.kv")
    small.feed.tx((U, KV, ["1", "d"]))
    small.all()
    assert look(small)[0] == ["1 d"] and small.states() == {}


def test_a_limit_that_is_reached_fails_the_table_and_lets_the_trail_go(small: PauseBench, monkeypatch):
    small.feed.tx((I, KV, ["1", "a"]))
    small.all()
    small.order("PAUSETABLE", "src.kv", hours=2)
    process, now = small.start(), time.time_ns() // 1000
    monkeypatch.setattr(process._pausing, "_now_us", lambda: now + 2 * 3_600_000_000 - 60_000_000)
    process.flush()
    assert small.states() == {"src.kv": "paused"}
    monkeypatch.setattr(process._pausing, "_now_us", lambda: now + 2 * 3_600_000_000 + 60_000_000)
    process.flush()
    assert "more than 2 hours (MAXKEEPHOURS)" in small.rows()["src.kv"].reason and process._pausing.hold is None


def test_an_error_while_a_table_catches_up_pauses_it_again_where_it_has_come_to(bench: PauseBench):
    """A row in its way in the target, then a MAP that is gone; nothing of it is applied twice, and others go on."""
    bench.lines = ["GROUPTRANSOPS 1"]
    bench.feed.tx((I, KV, ["1", "a"]))
    bench.all()
    bench.order("PAUSETABLE", "src.kv")
    bench.feed.tx((I, KV, ["2", "b"]))
    bench.feed.tx((I, KV, ["3", "c"]), (I, LOG, ["3"]))
    bench.all()
    bench.sql("INSERT INTO @kv VALUES (9, 'c')")
    bench.order("RESUMETABLE", "src.kv")
    bench.feed.tx((U, KV, ["3", "d"]), (I, LOG, ["4"]))
    bench.all()
    found = bench.rows()["src.kv"]
    assert found.state == "paused" and "catching up" in found.reason and "insert of row (3)" in found.reason
    assert look(bench) == (["1 a", "9 c"], ["3", "4"])
    bench.stop()
    bench.sql("DELETE FROM @kv WHERE id = 9")
    maps, bench.maps = bench.maps, f"MAP src.log, TARGET {bench.schema}.log;"
    bench.order("RESUMETABLE", "src.kv")
    bench.all()
    assert "no MAP takes src.kv" in bench.rows()["src.kv"].reason
    bench.stop()
    bench.maps = maps
    bench.order("RESUMETABLE", "src.kv")
    bench.all()
    assert look(bench) == (["1 a", "2 b", "3 d"], ["3", "4"]) and bench.states() == {}


def test_a_change_of_shape_fails_a_paused_table_and_its_target_has_the_new_shape(request, tmp_path: Path):
    """Rows of the old shape are never laid into the new one; a rename takes the state along, a drop ends nothing."""
    shapes = [table_shape("src", "kv", text) for text in ("1:id 2:a", "1:id 2:a 3:b")]
    moved = table_shape("src", "kw", "1:id 2:a 3:b")
    one, two, three = map(definition, (*shapes, moved))
    for kind in ("sqlite", "mysql"):
        bench = made(request, tmp_path / kind, kind)
        bench.lines = ["DDL INCLUDE MAPPED"]
        bench.sql("DROP TABLE @kv", "CREATE TABLE @kv (id varchar(9) PRIMARY KEY, a varchar(40))")
        bench.feed.tx((I, one, ["1", "a"]))
        bench.all()
        bench.order("PAUSETABLE", "src.kv")
        feed_ddl(bench.feed, (U, one, ["1", "b"]), DdlChange(ALTER, *shapes, "ALTER"), (I, two, ["2", "b", "c"]))
        bench.all()
        assert "its shape changed at the source" in bench.rows()["src.kv"].reason
        assert bench.sql("SELECT * FROM @kv") == [("1", "a", None)]
        feed_ddl(bench.feed, DdlChange(RENAME, shapes[1], moved, "RENAME"), (I, three, ["3", "c", "d"]))
        bench.all()
        assert bench.sql("SELECT * FROM @kw") == [("1", "a", None)] and bench.states() == {"src.kw": "failed"}
        feed_ddl(bench.feed, DdlChange(DROP, moved, None, "DROP"))
        bench.all()
        assert bench.states() == {"src.kw": "failed"}
        bench.order("SKIPTABLE", "src.kw")
        assert bench.states() == {}
        bench.stop()
        bench.feed.close()


@pytest.mark.parametrize(
    ("kind", "by_error", "lands", "each"),
    [("sqlite", False, False, 1), ("sqlite", True, True, 1), ("mysql", True, False, 13), ("postgres", False, True, 7)],
)
def test_b4_a_paused_table_has_each_change_once_wherever_its_replicat_dies(
    request, tmp_path: Path, kind: str, by_error: bool, lands: bool, each: int
):
    """At each commit of the whole life, paused by command or by TABLEERROR inside a transaction that is cut: one
    commit that is rolled back, or one that lands and is not heard of. On a server, at each so many'th.
    """
    died = True
    for number in range(1, 60, each):
        bench = made(request, tmp_path / str(number), kind)
        bench.lines = ["MAXTRANSOPS 3", "TABLEERROR (src.k*, PAUSE)"]
        bench.dies = (number, lands)
        script(bench, by_error)
        died = bench.dies is None
        bench.dies = None
        assert look(bench) == WANTED, number
        bench.stop()
        bench.feed.close()
        if not died:
            break
    assert not died and number > 12


def test_b4_an_error_of_one_table_pauses_it_and_no_other(bench: PauseBench):
    """A refused row, a target table that is missing, one that does not fit; without TABLEERROR it ends the process."""
    bad = TableDef("src", "bad", (*KV.columns, Column("more", "text", "text")))
    bench.feed.tx((I, KV, ["1", "a"]), (I, LOG, ["1"]))
    bench.all()
    bench.stop()
    bench.sql("INSERT INTO @kv VALUES (9, 'c')", "CREATE TABLE @bad (id bigint PRIMARY KEY)")
    bench.feed.tx((U, KV, ["1", "b"]), (I, LOG, ["2"]))
    bench.feed.tx((I, LOG, ["3"]), (I, KV, ["3", "c"]), (I, bad, ["1", "a", "x"]))
    bench.feed.tx((U, KV, ["3", "d"]), (I, table("src", "lacks", "id", "id"), ["1"]), (I, LOG, ["4"]))
    with pytest.raises(OperatorError, match=r"insert of row \(3\)"):
        bench.all()
    bench.stop()
    bench.lines = ["TABLEERROR (src.log, ABEND)", "TABLEERROR (src.*, PAUSE, MAXKEEPDAYS 2)"]
    bench.all()
    found = bench.rows()
    assert {name: one.state for name, one in found.items()} == dict.fromkeys(
        ("src.kv", "src.bad", "src.lacks"), "paused"
    )
    assert "insert of row (3)" in found["src.kv"].reason and found["src.kv"].hours == 48
    assert "more" in found["src.bad"].reason and "does not exist" in found["src.lacks"].reason
    assert look(bench) == (["1 b", "9 c"], ["1", "2", "3", "4"])
    bench.sql("DELETE FROM @kv WHERE id = 9", "CREATE TABLE @lacks (id varchar(9) PRIMARY KEY)", "DROP TABLE @bad")
    bench.sql("CREATE TABLE @bad (id bigint PRIMARY KEY, a varchar(40), more varchar(40))")
    for name in found:
        bench.order("RESUMETABLE", name)
    bench.all()
    assert look(bench)[0] == ["1 b", "3 d"] and bench.states() == {}
    assert (bench.sql("SELECT * FROM @bad"), bench.sql("SELECT * FROM @lacks")) == ([("1", "a", "x")], [("1",)])
    bench.stop()
    bench.feed.tx((I, LOG, ["5"]), (I, KV, ["1", "again"]))
    bench.lines = ["TABLEERROR (src.kv, ABEND)", "TABLEERROR (src.*, PAUSE)"]
    with pytest.raises(OperatorError, match=r"insert of row \(1\)"):
        bench.all()


@pytest.mark.parametrize("seed", range(12))
def test_b4_tables_are_equal_behind_any_order_of_changes_commands_errors_and_deaths(small: PauseBench, seed: int):
    """Two tables with keys and one without, as a seed draws it."""
    small.sql("DROP TABLE @kv", "CREATE TABLE @kv (id bigint PRIMARY KEY, a varchar(40))")
    small.sql("CREATE TABLE @kw (id bigint PRIMARY KEY, a varchar(40))")
    life = PausedLife(small, seed)
    life.live()
    assert life.found() == (life.rows, sorted(life.log))


def test_CW_01_a_process_that_looked_before_a_table_was_paused_applies_nothing_of_it(bench: PauseBench):
    """Another one has come and gone since, and the group's place is still the same."""
    feed = bench.feed
    feed.tx((I, LOG, ["1"]))
    bench.all()
    older = bench.replicat()
    while older.step():
        pass
    bench.order("PAUSETABLE", "src.log")
    bench.stop()
    feed.tx((I, KV, ["1", "a"]), (I, LOG, ["2"]))
    while older.step():
        pass
    assert look(bench) == (["1 a"], ["1"])
    older.close()
    bench.order("RESUMETABLE", "src.log")
    bench.all()
    assert look(bench) == (["1 a"], ["1", "2"])
