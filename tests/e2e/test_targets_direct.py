"""SQLite and MariaDB as targets: what each step does to rows, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replicat.target import Bag, Fill, Match, Patch, PlaceLostError, RefusedError, ShapeChangedError, Truncate, Work
from tests.support.direct_target import Direct, blob, images
from trails.errors import AwayError, OperatorError
from trails.record import MISSING

pytestmark = pytest.mark.e2e
KINDS = ["sqlite", "mysql"]


@pytest.fixture(params=KINDS)
def direct(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Direct]:
    if request.param == "sqlite":
        made = Direct("sqlite", f"sqlite:///{tmp_path}/target.db", "main")
    else:
        server, name = request.getfixturevalue("mariadb"), request.getfixturevalue("maria_db")
        made = Direct("mysql", server.url(name), name, server)
    made.open()
    yield made
    made.close()


@pytest.fixture
def kv(direct: Direct) -> Any:
    direct.sql("CREATE TABLE kv (id bigint NOT NULL, a varchar(20), b varchar(20), PRIMARY KEY (id))")
    return direct.layout("kv", "id a b", "id", "bigint text text")


def _kv(direct: Direct) -> list[tuple[str, ...]]:
    return [tuple("-" if v is None else str(v) for v in row) for row in direct.sql("SELECT * FROM kv ORDER BY id")]


def test_a_net_effect_of_every_kind(direct: Direct, kv: Any):
    """Deletes, updates, patches, inserts, upserts, removes and fills in one step; the row moves with them."""
    direct.do(direct.rows(kv, inserts=images(["1 a b", "2 a b", "3 a b", "4 a b", "5 a b"])))
    direct.do(
        direct.rows(
            kv,
            deletes=images(["1"]),
            updates=images(["2 x y"]),
            patches=(Patch((0, 2), blob(["3", "patched"])),),
            inserts=images(["6 new -"]),
            upserts=images(["4 over over", "7 up up"]),
            removes=images(["99"]),
            fills=(Fill(("5",), ("50", MISSING, "moved"), there=False),),
        ),
        direct.rows(kv, deletes=images(["5"])),
    )
    assert _kv(direct) == [
        ("2", "x", "y"), ("3", "a", "patched"), ("4", "over", "over"), ("6", "new", "-"), ("7", "up", "up"),
        ("50", "a", "moved"),
    ]  # fmt: skip
    assert direct.target.load_row() == direct.row


@pytest.mark.parametrize("rewrite", [False, True])
@pytest.mark.parametrize(
    ("what", "sqlstate"),
    [
        ({"inserts": ["9 a b", "1 a b"]}, "23505"),
        ({"updates": ["1 x y", "9 x y"]}, "02000"),
        ({"deletes": ["1", "9"]}, "02000"),
        ({"void": ["1"]}, "23505"),
        ({"updates": ["1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b"]}, "22001"),
    ],
)
def test_strict_a_row_that_should_not_or_should_be_there(
    direct: Direct, kv: Any, what: dict[str, list[str]], sqlstate: str, rewrite: bool
):
    """The call is refused whole, and the transaction goes on as if it had not been."""
    if sqlstate == "22001" and direct.kind == "sqlite":
        return  # VARCHAR(20) has no length in SQLite
    direct.do(direct.rows(kv, inserts=images(["1 a b", "2 a b"])))
    new = direct.begin()
    work = direct.rows(kv, **{name: images(rows) for name, rows in what.items()})
    with pytest.raises(RefusedError) as caught:
        direct.target.apply((work,), rewrite=rewrite)
    assert caught.value.sqlstate == sqlstate
    direct.target.apply((direct.rows(kv, inserts=images(["3 a b"])),))
    direct.target.commit()
    direct.row = new
    assert _kv(direct) == [("1", "a", "b"), ("2", "a", "b"), ("3", "a", "b")]


def test_overlays_are_counted(direct: Direct):
    """HANDLECOLLISIONS: insert over a row, update of a missing one, delete of a missing one."""
    direct.sql("CREATE TABLE kv (id bigint NOT NULL PRIMARY KEY, a varchar(20), b varchar(20))")
    layout = direct.layout("kv", "id a b", "id", "bigint text text", collisions=True)
    direct.do(direct.rows(layout, inserts=images(["1 a b"])))
    new = direct.begin()
    work = direct.rows(layout, inserts=images(["1 x y", "2 x y"]), updates=images(["3 u u"]), deletes=images(["9"]))
    direct.target.apply((work,))
    assert direct.target.collisions() == {(direct.schema, "kv"): (1, 1, 1)}
    direct.target.commit()
    direct.row = new
    assert _kv(direct) == [("1", "x", "y"), ("2", "x", "y"), ("3", "u", "u")]


def test_cw25_a_swap_of_unique_values_needs_the_rewrite(direct: Direct):
    """And it never touches a row by its secondary key: no REPLACE, no ON DUPLICATE KEY."""
    extra = "ON CONFLICT REPLACE" if direct.kind == "sqlite" else ""
    direct.sql(
        f"CREATE TABLE kv (id bigint PRIMARY KEY, a varchar(9) UNIQUE {extra}, b varchar(9), n char DEFAULT 'n')"
    )
    layout = direct.layout("kv", "id a b", "id", "bigint text text")
    direct.do(direct.rows(layout, inserts=images(["1 x b", "2 y b", "3 z b"])))
    direct.sql("UPDATE kv SET n = 'k'")
    swap = direct.rows(layout, updates=images(["1 y b", "2 x b"]))
    new = direct.begin()
    with pytest.raises(RefusedError, match=r"(?i)unique|duplicate"):
        direct.target.apply((swap,))
    direct.target.apply((swap,), rewrite=True)
    with pytest.raises(RefusedError):
        direct.target.apply((direct.rows(layout, inserts=images(["9 z z"])),))
    direct.target.commit()
    direct.row = new
    assert direct.sql("SELECT a, n FROM kv ORDER BY id") == [("y", "k"), ("x", "k"), ("z", "k")]


def test_fills_swap_keys_and_keep_what_only_the_target_has(direct: Direct):
    """Two keys change places; a column of the target's own moves with its row."""
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY, a varchar(20), note varchar(20))")
    layout = direct.layout("kv", "id a", "id", "bigint text")
    direct.sql("INSERT INTO kv VALUES (1, 'a1', 'n1'), (2, 'a2', 'n2')")
    direct.do(
        direct.rows(layout, fills=(Fill(("2",), ("1", MISSING), there=True), Fill(("1",), ("2", "new"), there=True)))
    )
    assert direct.sql("SELECT a, note FROM kv ORDER BY id") == [("a2", "n2"), ("new", "n1")]
    with pytest.raises(RefusedError, match=r"no row with key \(77\)"):
        direct.do(direct.rows(layout, fills=(Fill(("77",), ("78", MISSING), there=False),)))


def test_tables_without_a_key(direct: Direct):
    """One row a change, NULL equal to NULL, text byte by byte, two equal changes change two equal rows."""
    direct.sql("CREATE TABLE bag (n double, v varchar(20))")
    layout = direct.layout("bag", "n v", "", "double text")
    direct.do(
        Work(bags=(Bag(layout, inserts=blob(["1.5", "a"], ["1.5", "a"], ["1.5", "A"], [None, None], ["2", "a "])),))
    )
    direct.do(
        Work(
            bags=(
                Bag(layout, (Match((), blob(["0", "1.5", "a"], ["1", "1.5", "a"])),)),
                Bag(layout, (Match((0, 1), blob(["0", "7", None]), update=True),)),
                Bag(layout, (Match((), blob(["0", "2", "a ", "3", "z"]), update=True),)),
            )
        )
    )
    found = sorted((float(n), v) for n, v in direct.sql("SELECT n, v FROM bag"))
    assert found == [(1.5, "A"), (3.0, "z"), (7.0, None)]
    with pytest.raises(RefusedError, match="no row is equal"):
        direct.do(Work(bags=(Bag(layout, (Match((), blob(["0", "1.5", "a"])),)),)))


def test_truncate_is_part_of_the_transaction(direct: Direct, kv: Any):
    """Rows that came before it are gone, those behind it are there; a rollback brings all back."""
    direct.do(direct.rows(kv, inserts=images(["1 a b"])))
    direct.begin()
    direct.target.apply((Truncate(((direct.schema, "kv"),), restart=True), direct.rows(kv, inserts=images(["1 c d"]))))
    direct.target.close()
    direct.open()
    assert _kv(direct) == [("1", "a", "b")]
    direct.do(Truncate(((direct.schema, "kv"),)), direct.rows(kv, inserts=images(["2 c d"])))
    assert _kv(direct) == [("2", "c", "d")]


def test_large_batches_and_values(direct: Direct):
    """Thousands of rows through staging, a second batch through the same staging tables, and a value of megabytes."""
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY, a longtext, b longblob)")
    layout = direct.layout("kv", "id a b", "id", "bigint text bytes")
    direct.do(direct.rows(layout, inserts=[[str(i), f"v{i}", b"\x00\xff" * 3] for i in range(5000)]))
    direct.do(direct.rows(layout, updates=[[str(i), f"w{i}", None] for i in range(4000)], deletes=[["4999"]]))
    direct.do(direct.rows(layout, updates=[["7", "x" * 3_000_000, b"\\\n\t\x00" * 500_000]]))
    count = direct.sql("SELECT count(*) FROM kv WHERE a = concat('w', id)" if direct.kind == "mysql" else
                       "SELECT count(*) FROM kv WHERE a = 'w' || id")  # fmt: skip
    assert int(count[0][0]) == 3999
    length = direct.sql("SELECT length(a), length(b), hex(substr(b, 1, 4)) FROM kv WHERE id = 7")[0]
    assert (int(length[0]), int(length[1]), length[2]) == (3_000_000, 2_000_000, "5C0A0900")


def test_the_row_of_another_process_is_noticed(direct: Direct, kv: Any):
    """Compare and set: whoever comes second finds the row elsewhere, and nothing of its own is committed."""
    other = Direct(direct.kind, direct.url, direct.schema, direct.server)
    other.open()
    direct.do(direct.rows(kv, inserts=images(["1 a b"])))
    with pytest.raises(PlaceLostError):
        other.begin()
    with pytest.raises(PlaceLostError):
        other.target.flush(other.row, direct.row)
    other.close()
    direct.target.flush(direct.row, direct.row)


def test_one_row_for_conflicts(direct: Direct):
    """current() gives canonical text, put() writes over or anew, remove() says whether there was one."""
    direct.sql(
        "CREATE TABLE kv (id bigint PRIMARY KEY, d double, f float, m text, n decimal(20,1), bo boolean, by_ longblob)"
        if direct.kind == "mysql" else
        "CREATE TABLE kv (id integer PRIMARY KEY, d double, f real, m text, n text, bo boolean, by_ blob)"
    )  # fmt: skip
    layout = direct.layout("kv", "id d f m n bo by_", "id", "bigint double real text decimal boolean bytes")
    row = ("1", "1e+16", "0.1", "ä\\n", "12.5", "true", b"\x00\x80")
    direct.begin()
    assert direct.target.current(layout, ("1",)) is None
    direct.target.put(layout, row)
    assert direct.target.current(layout, ("1",)) == row
    direct.target.put(layout, ("1", "-5e-324", "1e+06", None, "-0.5", "false", b""))
    assert direct.target.current(layout, ("1",)) == ("1", "-5e-324", "1e+06", None, "-0.5", "false", b"")
    assert direct.target.remove(layout, ("1",)) is True
    assert direct.target.remove(layout, ("1",)) is False
    direct.target.commit()


def test_marks(direct: Direct, kv: Any):
    """undo() goes back to a mark, more than once."""
    new = direct.begin()
    direct.target.apply((direct.rows(kv, inserts=images(["1 a b"])),))
    token = direct.target.mark()
    for _ in range(2):
        direct.target.apply((direct.rows(kv, inserts=images(["2 a b"]), updates=images(["1 x x"])),))
        direct.target.undo(token)
    direct.target.apply((direct.rows(kv, inserts=images(["3 a b"])),))
    direct.target.commit()
    direct.row = new
    assert _kv(direct) == [("1", "a", "b"), ("3", "a", "b")]


def test_a_table_that_changed_under_us(direct: Direct, kv: Any):
    """Not a refusal of rows, and not the operator's fault: look again."""
    direct.do(direct.rows(kv, inserts=images(["1 a b"])))
    direct.sql("ALTER TABLE kv DROP COLUMN b")
    direct.begin()
    with pytest.raises(ShapeChangedError):
        direct.target.apply((direct.rows(kv, inserts=images(["2 a b"])),))


def test_triggers_are_told(direct: Direct, kv: Any):
    """They can't be held back: START refuses the table unless ALLOWTARGETTRIGGERS."""
    body = "BEGIN SELECT 1; END" if direct.kind == "sqlite" else "SET NEW.a = 'fired'"
    direct.sql(f"CREATE TRIGGER fire BEFORE INSERT ON kv FOR EACH ROW {body}")
    assert direct.target.table(direct.schema, "kv").fires == ("trigger fire",)


def test_cascades_do_not_fire(direct: Direct):
    """CW-20: their effects are in the trail already."""
    engine = "ENGINE=InnoDB" if direct.kind == "mysql" else ""
    direct.sql(f"CREATE TABLE p (id bigint PRIMARY KEY) {engine}")
    direct.sql(
        f"CREATE TABLE c (id bigint PRIMARY KEY, p bigint, FOREIGN KEY (p) REFERENCES p(id) ON DELETE CASCADE) {engine}"
    )
    parent, child = direct.layout("p", "id", "id", "bigint"), direct.layout("c", "id p", "id", "bigint bigint")
    direct.do(direct.rows(child, inserts=images(["1 1", "2 1"])), direct.rows(parent, inserts=images(["1"])))
    direct.do(direct.rows(parent, deletes=images(["1"])))
    assert len(direct.sql("SELECT * FROM c")) == 2


def test_a_connection_that_is_gone(direct: Direct, kv: Any):
    """Any call on a closed one is AwayError, and the row read after the next connect() tells what landed."""
    direct.do(direct.rows(kv, inserts=images(["1 a b"])))
    landed = direct.row
    direct.begin()
    direct.target.apply((direct.rows(kv, inserts=images(["2 a b"])),))
    if direct.server is not None:
        direct.server.kill()
        direct.server.start()
    else:
        direct.target.close()
    with pytest.raises(AwayError):
        direct.target.commit()
    direct.target.connect()
    assert direct.target.load_row() == landed
    direct.row = landed
    assert _kv(direct) == [("1", "a", "b")]


def test_checkpoint_table_missing(direct: Direct):
    direct.sql("DROP TABLE chk")
    with pytest.raises(OperatorError, match="ADD CHECKPOINTTABLE"):
        direct.target.connect()
