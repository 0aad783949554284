"""How a batch is applied to a real PostgreSQL: strictly, with every constraint that a target may have."""

from __future__ import annotations

from typing import Any

import pytest

from replicat.model.again import ShapeChangedError
from replicat.run.replicat import Replicat
from tests.e2e.test_replicat_postgres import KV, Bench, bench, plain_user
from tests.support.replicat_trail import table
from trails.errors import OperatorError
from trails.position import Position
from trails.record import MISSING, Column, Op, TableDef

pytestmark = pytest.mark.e2e

I, U, D = Op.INSERT, Op.UPDATE, Op.DELETE  # noqa: E741
__all__ = ["bench", "plain_user"]


def drain(process: Replicat) -> None:
    """Step until nothing waits."""
    while process.step():
        pass


def counts(process: Replicat) -> dict[str, int]:
    """The rarer counters of the only table."""
    (only,) = process.stats.to_reply()["tables"]
    found: dict[str, int] = only.get("more", {})
    return found


# --- strict, or overlaid ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [1, 500])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ((I, KV, ["7", "x", ""]), r"insert of row \(7\).*kv_pkey"),
        ((U, KV, ["9", "x", ""]), r"update of row \(9\).*not there"),
        ((U, KV, ["9", "x", MISSING]), r"update of row \(9\).*not there"),
        ((D, KV, ["9", None, None]), r"delete of row \(9\).*not there"),
        ((U, KV, ["10", "x", ""], ["9", "x", ""]), r"update of row \(9 -> 10\).*not there"),
        ((U, KV, ["7", "x", ""], ["8", "x", ""]), r"update of row \(8 -> 7\).*kv_pkey"),
    ],
)
def test_a_row_that_is_missing_or_doubled_stops_the_group(bench: Bench, change: Any, what: str, many: int):
    """Off is strict: it is an out-of-sync alarm. One change among few and among many; HANDLECOLLISIONS is told of."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.sql("INSERT INTO kv VALUES (7, 'seven', ''), (8, 'eight', '')")
    bench.sql("INSERT INTO kv SELECT n, 'old', '' FROM generate_series(1000, 2000) n")
    verbs = {I: (I, KV, ["{}", "new", ""]), U: (U, KV, ["{}", "new", ""]), D: (D, KV, ["{}", None, None])}
    op, _, row = verbs[change[0]]
    first = 3000 if op == I else 1000
    bench.feed.tx(*((op, KV, [str(first + n), *row[1:]]) for n in range(many - 1)), change)
    with pytest.raises(OperatorError, match=rf"src\.kv: the target refuses the {what}.*HANDLECOLLISIONS"):
        bench.run()
    assert bench.sql("SELECT a FROM kv WHERE id < 100 ORDER BY id") == [("seven",), ("eight",)]
    assert bench.sql("SELECT count(*) FROM kv WHERE a = 'new'") == [(0,)]


def test_handlecollisions_overlays_and_counts(bench: Bench):
    """An insert over a row is an update, a missing row is made if it is whole, a missing delete is nothing."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text, own int DEFAULT 0)")
    bench.sql("INSERT INTO kv VALUES (1, 'old', 'old', 7), (5, 'old', 'old', 8)")
    bench.feed.tx((I, KV, ["1", "new", "new"]), (I, KV, ["2", "new", "new"]), (U, KV, ["3", "made", "made"]))
    bench.feed.tx((U, KV, ["4", "part", MISSING]), (D, KV, ["9", None, None]), (U, KV, ["5", "part", MISSING]))
    bench.feed.tx((U, KV, ["6", "moved", "moved"], ["8", "", ""]), (U, KV, ["2", "moved", "onto"], ["5", "", ""]))
    bench.maps = "HANDLECOLLISIONS\nMAP src.*, TARGET public.*;"
    done = bench.run()
    assert bench.sql("SELECT * FROM kv ORDER BY id") == [
        (1, "new", "new", 7), (2, "moved", "onto", 8), (3, "made", "made", 0), (6, "moved", "moved", 0),
    ]  # fmt: skip
    assert counts(done) == {"insert collisions": 1, "update collisions": 4, "delete collisions": 1}
    bench.feed.tx((U, KV, ["1", "last", ""]))
    assert counts(bench.run()) == {}


def test_insertmissingupdates_makes_whole_rows_and_nothing_else(bench: Bench):
    """Updates of missing rows alone; one that lacks columns, an insert over a row, a missing delete stay refused."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.sql("INSERT INTO kv VALUES (1, 'x', '')")
    bench.maps = "INSERTMISSINGUPDATES\nMAP src.*, TARGET public.*;"
    bench.feed.tx((U, KV, ["2", "made", ""]), (U, KV, ["1", "y", MISSING]))
    assert counts(bench.run()) == {"update collisions": 1}
    assert bench.sql("SELECT id, a FROM kv ORDER BY id") == [(1, "y"), (2, "made")]
    bench.feed.tx((U, KV, ["3", "made", MISSING]))
    with pytest.raises(OperatorError, match=r"update of row \(3\)"):
        bench.run()
    bench.sql("INSERT INTO kv VALUES (3, '', '')")
    bench.feed.tx((I, KV, ["3", "again", ""]))
    with pytest.raises(OperatorError, match=r"insert of row \(3\)"):
        bench.run()
    bench.maps = "HANDLECOLLISIONS\nMAP src.*, TARGET public.*;"
    bench.run()
    bench.maps = "INSERTMISSINGUPDATES\nMAP src.*, TARGET public.*;"
    bench.feed.tx((D, KV, ["4", None, None]))
    with pytest.raises(OperatorError, match=r"delete of row \(4\)"):
        bench.run()


def test_send_handlecollisions_while_it_runs(bench: Bench):
    """On for what comes from now on, and off again; the parameter file holds at the next START; a line says so."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    process = bench.replicat()
    process.command("HANDLECOLLISIONS", {"tables": "src.k*"})
    bench.feed.tx((U, KV, ["1", "made", ""]))
    drain(process)
    assert bench.sql("SELECT id FROM kv") == [(1,)]
    process.command("NOHANDLECOLLISIONS", {})
    bench.feed.tx((U, KV, ["2", "made", ""]))
    with pytest.raises(OperatorError, match=r"update of row \(2\)"):
        drain(process)
    process.close()
    assert [note for note in bench.notes if "by SEND" in note] == [
        "HANDLECOLLISIONS for src.k* by SEND, until the process ends",
        "NOHANDLECOLLISIONS for *.* by SEND, until the process ends",
    ]
    with pytest.raises(OperatorError, match="source tables"):
        process.command("HANDLECOLLISIONS", {"tables": "a.b.c.d"})


# --- keys as the target compares them ---------------------------------------------------------------------------------


def soft_tables(bench: Bench) -> None:
    bench.sql("CREATE TABLE padded (id char(5) PRIMARY KEY, v text)")
    bench.sql("CREATE TABLE num (id numeric PRIMARY KEY, v text)")
    bench.sql("CREATE TABLE real8 (id float8 PRIMARY KEY, v text)")


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [("padded", "a", "a  "), ("num", "1.0", "1.00"), ("real8", "0", "-0")],
)
@pytest.mark.parametrize("mode", ["", "HANDLECOLLISIONS"])
def test_two_texts_that_are_one_key_for_the_target(bench: Bench, name: str, one: str, other: str, mode: str):
    """Kept apart in compaction, one row there: the order of changes decides, in one batch and strictly too."""
    soft_tables(bench)
    native = {"padded": "character(5)"}.get(name, "text")
    soft = TableDef("src", name, (Column("id", "text", native, key=True), Column("v", "text", "text")))
    bench.maps = f"{mode}\nMAP src.*, TARGET public.*;"
    bench.feed.tx((I, soft, [one, "1"]), (U, soft, [other, "2"]), (I, soft, ["3", "3"]), (I, soft, ["4", "4"]))
    bench.feed.tx((D, soft, [one, None]), (I, soft, [other, "5"]))
    bench.run()
    assert bench.sql(f"SELECT v FROM {name} ORDER BY v") == [("3",), ("4",), ("5",)]
    bench.feed.tx((U, soft, [one, "6"]), (D, soft, [other, None]), (I, soft, [one, "7"]), (U, soft, [other, "8"]))
    bench.feed.tx((U, soft, ["9", "moved"], ["3", ""]), (U, soft, [one, "cased"], [other, "8"]))
    bench.run()
    assert bench.sql(f"SELECT v FROM {name} ORDER BY v") == [("4",), ("cased",), ("moved",)]


def test_which_keys_are_soft(bench: Bench):
    """Only where two canonical texts can be one value; a column with a precision of its own rounds."""
    bench.sql("CREATE DOMAIN whole AS int; CREATE DOMAIN fine AS timestamp(3); CREATE TYPE mood AS ENUM ('a')")
    bench.sql(
        "CREATE TABLE hard (a int, b bigint, c uuid, d text, e varchar(9), f date, g timestamptz, h bytea, i mood, "
        'j whole, k text COLLATE "C", l bool)'
    )
    bench.sql(
        "CREATE TABLE soft (a numeric(9,2), b char(3), c real, d timestamp(3), e fine, f interval, g jsonb, h timetz)"
    )
    target = bench.target()
    target.connect()
    assert not any(column.soft for column in target.table("public", "hard").columns)
    assert all(column.soft for column in target.table("public", "soft").columns)


# --- constraints ------------------------------------------------------------------------------------------------------

NODE = table("src", "node", "id up", "id")
A, B = table("src", "a", "id b", "id"), table("src", "b", "id a", "id")


def circle(bench: Bench, how: str) -> None:
    bench.sql("CREATE TABLE a (id int PRIMARY KEY, b int); CREATE TABLE b (id int PRIMARY KEY, a int)")
    bench.sql(f"ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b {how}")
    bench.sql(f"ALTER TABLE b ADD FOREIGN KEY (a) REFERENCES a {how}")
    bench.sql(f"CREATE TABLE node (id int PRIMARY KEY, up int REFERENCES node {how})")


@pytest.mark.parametrize("how", ["", "DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"])
@pytest.mark.parametrize("replica", [True, False])
def test_foreign_keys_in_circles(bench: Bench, plain_user: str, how: str, replica: bool):
    """Cyclic and self-referencing, deferrable or not, checked by the target or not: never a wrong row, or an ABEND."""
    circle(bench, how)
    user = plain_user.split("//")[1].split("@", maxsplit=1)[0]
    bench.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}")
    url = "" if replica else plain_user
    first = [(I, A, ["1", None]), (I, B, ["1", "1"]), (U, A, ["1", "1"])]
    bench.feed.tx(*first, *((I, NODE, [str(n), str(n - 1) if n > 1 else None]) for n in range(1, 9)))
    bench.feed.tx((I, A, ["2", "1"]), (I, B, ["2", "2"]), (U, A, ["1", "2"]), (U, NODE, ["1", "8"]))
    bench.run(url)
    assert bench.sql("SELECT a.id, a.b, b.a FROM a JOIN b ON b.id = a.id ORDER BY 1") == [(1, 2, 1), (2, 1, 2)]
    bench.feed.tx((U, NODE, ["1", None]), *((D, NODE, [str(n), None]) for n in range(8, 0, -1)))
    bench.feed.tx(
        (U, A, ["1", None]), (U, A, ["2", None]), (D, B, ["1", None]), (D, B, ["2", None]), (D, A, ["1", None])
    )
    bench.run(url)
    assert bench.sql("SELECT (SELECT count(*) FROM node), (SELECT count(*) FROM b), id FROM a") == [(0, 0, 2)]


def test_deferred_constraints_are_checked_before_the_commit(bench: Bench, plain_user: str):
    """What only whole transactions satisfy passes; what they violate is told with its transaction, not by COMMIT."""
    circle(bench, "DEFERRABLE INITIALLY DEFERRED")
    user = plain_user.split("//")[1].split("@", maxsplit=1)[0]
    bench.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}")
    bench.feed.tx((I, A, ["1", "1"]), (I, B, ["1", "1"]))
    bench.feed.tx((I, NODE, ["1", "2"]), (I, NODE, ["2", "1"]))
    bench.run(plain_user)
    bench.feed.tx((I, A, ["5", "1"]))
    csn = bench.feed.tx((I, A, ["6", "77"]), (I, A, ["7", "1"]))
    with pytest.raises(OperatorError, match=rf"{csn}.*a_b_fkey"):
        bench.run(plain_user)
    assert bench.sql("SELECT count(*) FROM a") == [(2,)]


def test_deferrefconst(bench: Bench):
    """Foreign keys that can wait are checked when the transaction is whole, though each is declared to be at once."""
    circle(bench, "DEFERRABLE INITIALLY IMMEDIATE")
    bench.lines = ["DBOPTIONS NOSUPPRESSTRIGGERS, DEFERREFCONST"]
    bench.feed.tx((I, A, ["1", "1"]), (I, B, ["1", "1"]))
    bench.run()
    bench.feed.tx((I, A, ["2", "77"]))
    with pytest.raises(OperatorError, match="a_b_fkey"):
        bench.run()
    assert (bench.sql("SELECT id FROM a"), bench.sql("SELECT id FROM b")) == ([(1,)], [(1,)])


def test_exclusion_and_check_constraints(bench: Bench):
    """Bookings that change places, and a table whose rows must fit together at the end of each transaction."""
    slot = table("src", "slot", "id during", "id")
    bench.sql("CREATE TABLE slot (id int PRIMARY KEY, during int4range, EXCLUDE USING gist (during WITH &&))")
    bench.feed.tx(*((I, slot, [str(n), f"[{n},{n + 1})"]) for n in range(5)))
    bench.run()
    bench.feed.tx(
        (U, slot, ["1", "[90,91)"]), (U, slot, ["2", "[1,2)"]), (U, slot, ["1", "[2,3)"]),
        (D, slot, ["3", None]), (I, slot, ["6", "[3,4)"]),
    )  # fmt: skip
    bench.run()
    assert bench.sql("SELECT id, lower(during) FROM slot ORDER BY id") == [(0, 0), (1, 2), (2, 1), (4, 4), (6, 3)]


@pytest.mark.parametrize("how", ["", "DEFERRABLE INITIALLY DEFERRED"])
def test_unique_values_change_places_across_a_slice(bench: Bench, plain_user: str, how: str):
    """In one transaction larger than BATCHROWS, as only a deferrable constraint permits; the target's need not be."""
    bench.sql(f"CREATE TABLE kv (id int PRIMARY KEY, a text, b text, UNIQUE (a) {how})")
    user = plain_user.split("//")[1].split("@", maxsplit=1)[0]
    bench.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}")
    bench.sql("INSERT INTO kv VALUES (1, 'one', ''), (2, 'two', '')")
    rows = [(I, KV, [str(n), f"u{n}", ""]) for n in range(10, 60)]
    bench.feed.tx((U, KV, ["1", "two", ""]), *rows, (U, KV, ["2", "one", ""]), pieces=10)
    bench.lines = ["BATCHROWS 10"]
    bench.run(plain_user if how else "")
    assert bench.sql("SELECT id, a FROM kv WHERE id < 10 ORDER BY id") == [(1, "two"), (2, "one")]


def test_PF_08_a_secondary_unique_key_never_chooses_the_row(bench: Bench):
    """A row that another unique index finds is not overwritten, under HANDLECOLLISIONS neither."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text UNIQUE, b text)")
    bench.sql("INSERT INTO kv VALUES (1, 'taken', 'mine')")
    bench.maps = "HANDLECOLLISIONS\nMAP src.*, TARGET public.*;"
    bench.feed.tx((I, KV, ["2", "taken", "other"]))
    with pytest.raises(OperatorError, match=r"insert of row \(2\).*kv_a_key"):
        bench.run()
    assert bench.sql("SELECT * FROM kv") == [(1, "taken", "mine")]


def test_rows_that_a_cascade_took_are_not_missed(bench: Bench, plain_user: str):
    """CW-20: where triggers can't be suppressed, the parent's delete takes the child before its own delete comes."""
    bench.sql("CREATE TABLE parent (id int PRIMARY KEY)")
    bench.sql("CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent ON DELETE CASCADE)")
    user = plain_user.split("//")[1].split("@", maxsplit=1)[0]
    bench.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}")
    parent, child = table("src", "parent", "id", "id"), table("src", "child", "id p", "id")
    bench.lines = ["DBOPTIONS NOSUPPRESSTRIGGERS"]
    bench.feed.tx((I, parent, ["1"]), (I, child, ["10", "1"]), (I, child, ["11", "1"]))
    bench.run(plain_user)
    bench.feed.tx((D, parent, ["1"]))
    bench.run(plain_user)
    bench.feed.tx((D, child, ["10", None]), (D, child, ["11", None]), (I, parent, ["2"]))
    bench.run(plain_user)
    assert bench.sql("SELECT id, (SELECT count(*) FROM child) FROM parent") == [(2, 0)]


def test_a_partitioned_table(bench: Bench):
    """Rows change their partition with their key; without a key they are found wherever they are."""
    kv, bag = table("src", "kv", "id part v", "id part"), table("src", "bag", "part v")
    for name, key in (("kv", ", PRIMARY KEY (id, part)"), ("bag", "")):
        bench.sql(f"CREATE TABLE {name} (id int, part int, v text{key}) PARTITION BY LIST (part)")
        for part in "12":
            bench.sql(f"CREATE TABLE {name}{part} PARTITION OF {name} FOR VALUES IN ({part})")
    bench.feed.tx(*((I, kv, [str(n), str(1 + n % 2), "x"]) for n in range(200)))
    bench.feed.tx(*((I, bag, [part, v]) for part in "12" for v in ("x", "x", "y")))
    bench.run()
    bench.feed.tx(*((U, kv, [str(n), "1", "y"], [str(n), str(1 + n % 2), "x"]) for n in range(150)))
    bench.feed.tx(*((D, kv, [str(n), str(1 + n % 2), None]) for n in range(150, 200)))
    bench.feed.tx((U, bag, ["2", "z"], ["1", "x"]), (D, bag, ["2", "x"]), (D, bag, ["2", "x"]), (D, bag, ["1", "y"]))
    bench.run()
    assert bench.sql("SELECT tableoid::regclass::text, v, count(*) FROM kv GROUP BY 1, 2") == [("kv1", "y", 150)]
    assert bench.sql("SELECT part, v FROM bag ORDER BY 1, 2") == [(1, "x"), (2, "y"), (2, "z")]


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
def test_a_swap_of_unique_values_sets_off_no_cascade(bench: Bench, action: str):
    """Where cascades fire, no row is deleted only to be inserted again: that would take its children along."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text UNIQUE, b text)")
    bench.sql(f"CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES kv ON DELETE {action})")
    child = table("src", "child", "id p", "id")
    bench.lines = ["DBOPTIONS NOSUPPRESSTRIGGERS"]
    bench.feed.tx((I, KV, ["1", "x", ""]), (I, KV, ["2", "y", ""]), (I, child, ["10", "1"]), (I, child, ["11", "2"]))
    bench.run()
    bench.feed.tx((U, KV, ["1", "t", ""]), (U, KV, ["2", "x", ""]), (U, KV, ["1", "y", ""]))
    bench.run()
    assert bench.sql("SELECT id, a FROM kv ORDER BY id") == [(1, "y"), (2, "x")]
    assert bench.sql("SELECT * FROM child ORDER BY id") == [(10, 1), (11, 2)]


def test_an_identity_that_can_only_be_rewritten_and_a_cascade_do_not_go_together(bench: Bench):
    """GENERATED ALWAYS: told before the first row, unless cascades are held back."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a int GENERATED ALWAYS AS IDENTITY, b text)")
    bench.sql("CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES kv ON DELETE CASCADE)")
    bench.feed.tx((I, KV, ["1", "3", ""]), (U, KV, ["1", "3", "new"]))
    bench.lines = ["DBOPTIONS NOSUPPRESSTRIGGERS"]
    with pytest.raises(OperatorError, match=r"MAP src\.kv: column a of public\.kv is GENERATED ALWAYS"):
        bench.run()
    bench.lines = []
    bench.run()
    assert bench.sql("SELECT * FROM kv") == [(1, 3, "new")]


def test_upserts_of_keys_that_are_one_for_the_target_keep_their_order(bench: Bench):
    """UPDATEINSERTS: 1 and 1.0 are one row of a numeric key; the last one of them stays, as one by one."""
    bench.sql("CREATE TABLE kv (id numeric PRIMARY KEY, a text, b text)")
    bench.lines = ["UPDATEINSERTS"]
    bench.feed.tx((I, KV, ["1", "x", ""]))
    bench.run()
    for last, keys in (("1.0", ("1", "1.0")), ("1", ("1.0", "1"))):
        bench.feed.tx(*((I, KV, [key, f"of {key}", ""]) for key in keys))
        bench.run()
        assert bench.sql("SELECT a FROM kv") == [(f"of {last}",)]


# --- session options --------------------------------------------------------------------------------------------------


def test_suppresstriggers_and_nosuppresstriggers(bench: Bench, plain_user: str):
    """Asked for, it must be possible; not wanted, triggers fire."""
    for suppress, wanted in ((None, True), (True, True), (False, False)):
        target = bench.target(suppress_triggers=suppress)
        target.connect()
        assert target.database.replica_role is wanted
        target.close()
    with pytest.raises(OperatorError, match=r"SUPPRESSTRIGGERS.*session_replication_role"):
        bench.target(plain_user, suppress_triggers=True).connect()


def test_followsequences(bench: Bench):
    """Serial and identity columns of tables that were written: the next value is a free one, and never goes back."""
    bench.sql("CREATE TABLE kv (id serial PRIMARY KEY, a text, b int GENERATED BY DEFAULT AS IDENTITY (INCREMENT -1))")
    bench.sql("CREATE TABLE untouched (id serial PRIMARY KEY)")
    bench.feed.tx((I, KV, ["41", "x", "-5"]))
    bench.lines = ["DBOPTIONS FOLLOWSEQUENCES"]
    bench.run()
    assert bench.sql("INSERT INTO kv (a) VALUES ('own') RETURNING id, b") == [(42, -6)]
    assert bench.sql("SELECT nextval('untouched_id_seq')") == [(1,)]
    bench.sql("SELECT setval('kv_id_seq', 1000)")
    bench.feed.tx((I, KV, ["50", "x", "-50"]))
    bench.run()
    assert bench.sql("INSERT INTO kv (a) VALUES ('own') RETURNING id, b") == [(1001, -51)]


def test_followsequences_behind_every_flush(bench: Bench):
    """Not only the first one of a connection."""
    bench.sql("CREATE TABLE kv (id serial PRIMARY KEY, a text, b text)")
    bench.lines = ["DBOPTIONS FOLLOWSEQUENCES"]
    process = bench.replicat()
    for number in ("41", "52"):
        bench.feed.tx((I, KV, [number, "x", ""]))
        drain(process)
        process.flush()
    process.close()
    assert bench.sql("SELECT nextval('kv_id_seq')") == [(53,)]


# --- tables without a key ---------------------------------------------------------------------------------------------


def test_many_changes_of_a_table_without_a_key(bench: Bench):
    """One statement for all of them, equal rows paired off, NULLs anywhere, columns of the target's own kept."""
    bag = table("src", "bag", "n v")
    bench.sql("CREATE TABLE bag (n int, v text, own serial)")
    bench.sql("INSERT INTO bag (n, v) SELECT i % 100, nullif(i % 3, 0)::text FROM generate_series(0, 2999) i")
    row = [(str(i % 100), None if i % 3 == 0 else str(i % 3)) for i in range(3000)]
    bench.feed.tx(*((U, bag, ["-1", f"was {r[0]}"], list(r)) for r in row[:1000]))
    bench.feed.tx(*((D, bag, list(r)) for r in row[1000:2000]))
    bench.feed.tx((I, bag, ["7", "new"]), (U, bag, ["8", None], ["7", "new"]), (I, bag, [None, None]))
    bench.feed.tx((D, bag, [None, None]), (D, bag, ["-1", "was 5"]), (I, bag, ["9", None]))
    bench.run()
    assert bench.sql("SELECT n, count(*) FROM bag WHERE n IN (8, 9, -1) AND own > 3000 GROUP BY n ORDER BY n") == [
        (8, 1), (9, 1),
    ]  # fmt: skip
    assert bench.sql("SELECT count(*), count(DISTINCT own) FROM bag WHERE n = -1") == [(999, 999)]
    assert bench.sql("SELECT count(*) FROM bag") == [(2001,)]


def test_text_that_is_no_utf8_in_a_table_without_a_key(bench: Bench, pg_target: Any):
    """An SQL_ASCII database on both sides: bytes arrive as they are, and find their row again."""
    name = "ascii_" + bench.sql("SELECT current_database()")[0][0]
    bench.sql(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    (bench.folder / "ascii").mkdir()
    other = Bench(bench.folder / "ascii", pg_target.url(name))
    try:
        bag, odd = table("src", "bag", "v"), b"caf\xe9".decode("utf-8", "surrogateescape")
        other.sql("CREATE TABLE bag (v text)")
        other.feed.tx((I, bag, [odd]), (I, bag, ["plain"]))
        other.run()
        other.feed.tx((U, bag, [odd + "!"], [odd]), (D, bag, ["plain"]))
        other.run()
        assert other.sql("SELECT encode(v::bytea, 'escape') FROM bag") == [(rb"caf\351!",)]
    finally:
        other.feed.close()
        bench.sql(f"DROP DATABASE {name} WITH (FORCE)")


# --- many tables, changed tables --------------------------------------------------------------------------------------


@pytest.fixture
def wide(bench: Bench) -> list[TableDef]:
    """200 tables."""
    tables = [table("src", f"t{n}", "id a b", "id") for n in range(200)]
    for each in tables:
        bench.sql(f"CREATE TABLE {each.name} (id int PRIMARY KEY, a text, b numeric(9,2))")
    return tables


def test_a_batch_over_many_tables(bench: Bench, wide: list[TableDef]):
    """200 tables, of each an insert, an update, a delete: few round trips to plan, no staging table for so few rows."""
    bench.feed.tx(*((I, each, [key, "x", "1.50"]) for each in wide for key in "12"))
    bench.run()
    of_each = [(U, ["1", "y", "2.5"]), (D, ["2", "", ""]), (I, ["3", "z", None])]
    bench.feed.tx(*((op, each, row) for each in wide for op, row in of_each))
    process = bench.replicat()
    drain(process)
    temporary = "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relname LIKE 'tg%'"
    assert bench.sql(temporary) == [(0,)]
    process.close()
    for each in wide[::50]:
        assert bench.sql(f"SELECT id, a, b::text FROM {each.name} ORDER BY id") == [(1, "y", "2.50"), (3, "z", None)]


def test_a_table_that_changed_under_a_running_replicat(bench: Bench):
    """It is looked at again, once; what then still does not fit is told."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.feed.tx((I, KV, ["1", "x", ""]))
    process = bench.replicat()
    drain(process)
    bench.sql("ALTER TABLE kv ALTER a TYPE varchar(9), ADD c int GENERATED ALWAYS AS (id + 1) STORED, DROP b")
    bench.sql("ALTER TABLE kv ADD b varchar(5) GENERATED ALWAYS AS ('g') STORED")
    bench.feed.tx((U, KV, ["1", "y", ""]), (I, KV, ["2", "y", ""]))
    drain(process)
    process.close()
    assert bench.sql("SELECT id, a, b, c FROM kv ORDER BY id") == [(1, "y", "g", 2), (2, "y", "g", 3)]


def test_one_row_at_a_time_for_who_resolves_conflicts(bench: Bench):
    """current, put and remove go exactly by key; mark and undo go back; a vanished column is told as such."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a bool, b bytea, c char(4), own int DEFAULT 5)")
    kinds = {"id": "integer", "a": "boolean", "b": "bytes", "c": "char"}
    typed = TableDef("src", "kv", tuple(Column(n, kind, kind, key=n == "id") for n, kind in kinds.items()))
    process = bench.replicat()
    (plan,) = process._planning.plan(typed)
    target, layout = process._target, plan.layout
    target.begin(process._row, process._row)
    target.put(layout, ["1", "true", b"\x00\xff", "ab"])
    assert target.current(layout, ("1",)) == ("1", "true", b"\x00\xff", "ab  ")
    mark = target.mark()
    target.put(layout, ["1", "false", MISSING, None])
    assert target.current(layout, ("1",)) == ("1", "false", b"\x00\xff", None)
    assert target.remove(layout, ("1",))
    assert not target.remove(layout, ("1",))
    assert target.current(layout, ("1",)) is None
    target.undo(mark)
    target.undo(mark)
    assert target.current(layout, ("1",)) == ("1", "true", b"\x00\xff", "ab  ")
    target.commit()
    bench.sql("ALTER TABLE kv DROP a")
    target.begin(process._row, process._row)
    with pytest.raises(ShapeChangedError, match="not what they were"):
        target.put(layout, ["1", "true", b"", "ab"])
    process.close()
    assert process._row.position == Position(0, 0)
