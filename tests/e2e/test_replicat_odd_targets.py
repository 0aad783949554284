"""Targets that are not quite what the source is, and targets that change while Replicat runs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from replicat.run.replicat import Replicat
from tests.e2e.test_replicat_postgres import KV, Bench, bench
from tests.support.replicat_bench import REG
from tests.support.replicat_trail import table
from trails.errors import OperatorError
from trails.record import MISSING, TRUNCATE_CASCADE, Column, Op, TableDef

pytestmark = pytest.mark.e2e

I, U, D, T = Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE  # noqa: E741
__all__ = ["bench"]


def drain(process: Replicat) -> None:
    """Step until nothing waits."""
    while process.step():
        pass


def test_new_rows_that_a_second_unique_index_refuses(bench: Bench):
    """COPY is refused, and so is the upsert that is tried next: the message still names the row."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text UNIQUE, b text)")
    bench.sql("INSERT INTO kv VALUES (100, 'taken', '')")
    bench.feed.tx((I, KV, ["1", "x", ""]), (I, KV, ["2", "taken", ""]))
    with pytest.raises(OperatorError, match=r"insert of row \(2\).*kv_a_key"):
        bench.run()


def test_a_column_added_to_both_sides_while_replicat_runs(bench: Bench):
    """First the target, then the source, as one does: nothing stops."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.feed.tx((I, KV, ["1", "x", ""]))
    process = bench.replicat()
    try:
        while process.step():
            pass
        bench.sql("ALTER TABLE kv ADD COLUMN c text")
        wider = TableDef("src", "kv", (*KV.columns, Column("c", "text", "text")))
        bench.feed.tx((I, wider, ["2", "x", "", "c"]))
        while process.step():
            pass
    finally:
        process.close()
    assert bench.sql("SELECT id, c FROM kv ORDER BY id") == [(1, None), (2, "c")]


def test_a_value_too_large_for_the_targets_index(bench: Bench):
    """A limit of the target is a refusal with its place, not a lost connection."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.sql("CREATE INDEX ON kv (a)")
    big = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20000))
    bench.feed.tx((I, KV, ["1", "x", ""]), (I, KV, ["2", big, ""]))
    with pytest.raises(OperatorError, match=r"insert of row \(2\).*index row"):
        bench.run()


def test_a_key_change_where_the_target_has_an_identity_of_its_own(bench: Bench):
    """A GENERATED ALWAYS column that only the target has moves with its row."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text, own int GENERATED ALWAYS AS IDENTITY)")
    bench.feed.tx((I, KV, ["1", "x", ""]), (I, KV, ["2", "y", ""]))
    bench.run()
    bench.feed.tx((U, KV, ["3", "z", ""], ["1", "x", ""]), (U, KV, ["2", "yy", ""]))
    bench.run()
    assert bench.sql("SELECT id, a, own FROM kv ORDER BY id") == [(2, "yy", 2), (3, "z", 1)]


def test_the_row_is_gone_while_replicat_runs(bench: Bench):
    """A checkpoint row that vanishes is no reason to apply the trail from its start again."""
    log = table("src", "log", "n")
    bench.sql("CREATE TABLE log (n text)")
    bench.feed.tx((I, log, ["1"]))
    process = bench.replicat()
    try:
        while process.step():
            pass
        bench.sql("DELETE FROM gg.chk")
        bench.feed.tx((I, log, ["2"]))
        with pytest.raises(OperatorError, match="no row of group REP1, which had one"):
            drain(process)
    finally:
        process.close()
    assert bench.sql("SELECT n FROM log") == [("1",)]


def test_alter_past_a_definition_that_does_not_fit(bench: Bench):
    """START looks at the definitions where reading begins, not at those of the trail's first file."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text)")
    bench.feed.tx((I, KV, ["1", "x", ""]))
    bench.feed.writer.roll()
    narrow = TableDef("src", "kv", KV.columns[:2])
    bench.feed.tx((I, narrow, ["2", "x"]))
    bench.feed.writer.roll()
    bench.feed.tx((I, narrow, ["3", "x"]))
    bench.registration = replace(REG, alter_no=1, alter={"seqno": 2, "rba": 0})
    bench.run()
    assert bench.sql("SELECT id FROM kv") == [(3,)]


def test_keyless_odd_types(bench: Bench):
    """json, floats and the like have no equality of their own."""
    bag = table("src", "bag", "j f p c")
    bench.sql('CREATE TABLE bag (j json, f float8, p point, c "char")')
    row = ['{"a":  1, "a": 2}', "-0", "(1,2)", "q"]
    bench.feed.tx((I, bag, row), (I, bag, [row[0], "NaN", None, None]))
    bench.feed.tx((U, bag, [row[0], "0", None, "r"], row), (D, bag, [row[0], "NaN", None, None]))
    bench.run()
    assert bench.sql("SELECT f, c FROM bag") == [(0.0, "r")]


def test_a_truncate_leaves_alone_what_only_the_target_has(bench: Bench):
    """The source's TRUNCATE names every table that it emptied; one that only hangs on them here is not among them."""
    bench.sql("CREATE TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.sql("CREATE TABLE own (id int PRIMARY KEY, kv int REFERENCES kv)")
    bench.feed.tx((I, KV, ["1", "x", ""]))
    bench.run()
    bench.sql("INSERT INTO own VALUES (1, 1)")
    bench.feed.tx((T, [KV], TRUNCATE_CASCADE))
    with pytest.raises(OperatorError, match="own"):
        bench.run()
    assert bench.sql("SELECT count(*) FROM own") == [(1,)]


def test_staging_tables_do_not_add_up(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """Each one costs every later commit, and a schema has hundreds of tables."""
    monkeypatch.setattr("replicat.targets.postgres.target.PostgresDatabase.most_stages", 3)
    tables = [table("src", f"t{n}", "id a", "id") for n in range(5)]
    monkeypatch.setattr("replicat.targets.postgres.target.FEW_ROWS", 0)
    monkeypatch.setattr("replicat.targets.postgres.target.MORE_BYTES", 0)
    for each in tables:
        bench.sql(f"CREATE TABLE {each.name} (id int PRIMARY KEY, a text)")
        bench.sql(f"INSERT INTO {each.name} VALUES (1, ''), (2, ''), (3, ''), (4, '')")
    process = bench.replicat()
    count = "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relname LIKE 'tg%'"
    try:
        for key, value in enumerate("xyz", 2):
            for each in tables:
                bench.feed.tx((U, each, ["1", value]), (D, each, [str(key), None]))
                drain(process)
                assert bench.sql(count)[0][0] <= 3
    finally:
        process.close()
    assert [bench.sql(f"SELECT a FROM {each.name}") for each in tables] == [[("z",)]] * 5


def test_more_hot_tables_than_staging_tables_make_none_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """The catalog would swell: rows of further tables stand in the statements instead."""
    monkeypatch.setattr("replicat.targets.postgres.target.PostgresDatabase.most_stages", 3)
    monkeypatch.setattr("replicat.targets.postgres.target.FEW_ROWS", 0)
    tables = [table("src", f"t{n}", "id a", "id") for n in range(6)]
    for each in tables:
        bench.sql(f"CREATE TABLE {each.name} (id int PRIMARY KEY, a text)")
        bench.sql(f"INSERT INTO {each.name} SELECT n, '' FROM generate_series(1, 9) n")
    process = bench.replicat()
    found = []
    try:
        for value in "xyz":
            bench.feed.tx(*((U, each, [str(key), value]) for each in tables for key in range(1, 9)))
            drain(process)
            found.append(bench.sql("SELECT oid FROM pg_class WHERE relpersistence = 't' AND relname LIKE 'tg%'"))
    finally:
        process.close()
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 3
    assert [bench.sql(f"SELECT count(*) FROM {each.name} WHERE a = 'z'") for each in tables] == [[(8,)]] * 6


def test_a_key_of_an_extensions_type(bench: Bench):
    """Its equality is the type's own (citext: without case), wherever the extension lives, and its index serves."""
    bench.sql("CREATE SCHEMA ext")
    bench.sql("CREATE EXTENSION vector SCHEMA ext")
    bench.sql("CREATE TABLE kv (id ext.vector(2) PRIMARY KEY, a text, b text, own int DEFAULT 7)")
    own = TableDef("src", "kv", (Column("id", "other", "ext.vector(2)", key=True), *KV.columns[1:]))
    bench.feed.tx(*((I, own, [f"[{n},2]", "x", ""]) for n in range(4)))
    bench.run()
    bench.feed.tx(
        (U, own, ["[1.0,2]", "y", ""]),
        (D, own, ["[2,2.0]", None, None]),
        (U, own, ["[9,9]", "m", ""], ["[3,2]", MISSING, MISSING]),
    )
    bench.run()
    assert bench.sql("SELECT id::text, a, own FROM kv ORDER BY 1") == [
        ("[0,2]", "x", 7), ("[1,2]", "y", 7), ("[9,9]", "m", 7),
    ]  # fmt: skip


def test_an_unlogged_table_is_refused(bench: Bench):
    """A crash of the target would empty it behind the checkpoint row's back."""
    bench.sql("CREATE UNLOGGED TABLE kv (id int PRIMARY KEY, a text, b text)")
    bench.feed.tx((I, KV, ["1", "x", ""]))
    with pytest.raises(OperatorError, match=r"UNLOGGED.*SET LOGGED"):
        bench.run()
    assert bench.sql("SELECT count(*) FROM kv") == [(0,)]
