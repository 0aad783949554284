from __future__ import annotations
from collections.abc import Iterator
from pathlib import Path
from typing import Any
import pytest
from replicat.target import *
from tests.support.direct_target import Direct, blob, images
from trails.record import MISSING
pytestmark = pytest.mark.e2e
KINDS = ["sqlite", "mysql"]

@pytest.fixture(params=KINDS)
def direct(request, tmp_path):
    if request.param == "sqlite":
        made = Direct("sqlite", f"sqlite:///{tmp_path}/target.db", "main")
    else:
        server, name = request.getfixturevalue("mariadb"), request.getfixturevalue("maria_db")
        made = Direct("mysql", server.url(name), name, server)
    made.open()
    yield made
    made.close()

def test_empty_single(direct):
    direct.sql("CREATE TABLE kv (id varchar(20) NOT NULL PRIMARY KEY)")
    l = direct.layout("kv", "id", "id", "text")
    direct.do(direct.rows(l, inserts=[[""], ["a"], ["\\N"], ["\\."], ["\n"], ["NULL"], ["b"]]))
    print(direct.sql("select id from kv"))
    direct.do(direct.rows(l, deletes=[["a"], ["\\N"], ["\n"], ["NULL"], [""]]))
    assert len(direct.sql("select id from kv")) == 2

def test_empty_single_nokey(direct):
    direct.sql("CREATE TABLE kv (id varchar(20))")
    l = direct.layout("kv", "id", "", "text")
    direct.do(Work(bags=(Bag(l, inserts=blob([""], [None], ["a"], [""])),)))
    print(direct.sql("select id from kv"))
    direct.do(Work(bags=(Bag(l, matches=(Match((), blob(["0", ""])), Match((0,), blob(["0"])) )),)))
    print(direct.sql("select id from kv"))
    assert len(direct.sql("select id from kv")) == 2

@pytest.mark.parametrize("n", [10000, 15000])
def test_wide_keyless(direct, n):
    direct.sql(f"CREATE TABLE kv (id int, a varchar({n}))")
    l = direct.layout("kv", "id a", "", "integer text")
    direct.do(Work(bags=(Bag(l, inserts=blob(["1", "x"], ["2", "y"])),)))
    direct.do(Work(bags=(Bag(l, matches=(Match((), blob(["0", "1", "x", "1", "z"]), True),)),)))
    assert sorted(r[1] for r in direct.sql("select * from kv")) == ["y", "z"]

def test_wide_keyed(direct):
    direct.sql("CREATE TABLE kv (id int primary key, a varchar(16000), n varchar(300))")
    l = direct.layout("kv", "id a", "id", "integer text")
    direct.do(direct.rows(l, inserts=[["1", "x"], ["2", "y"]]))
    direct.do(direct.rows(l, deletes=[["1"]], fills=(Fill(("1",), ("5", MISSING), there=False),)))

def test_many_cols(direct):
    cols = [f"c{i}" for i in range(600)]
    direct.sql(f"CREATE TABLE kv ({', '.join(c + ' int' for c in cols)})")
    l = direct.layout("kv", " ".join(cols), "", " ".join(["integer"] * 600))
    direct.do(Work(bags=(Bag(l, inserts=blob(["1"] * 600)),)))
    direct.do(Work(bags=(Bag(l, matches=(Match((), blob(["0"] + ["1"] * 600 + ["2"] * 600), True),)),)))
    assert str(direct.sql("select c5 from kv")[0][0]) == "2"

@pytest.mark.parametrize("var", ["sql_notes=0", "max_error_count=0", "sql_safe_updates=1", "sql_select_limit=1", "sql_big_selects=0", "sql_auto_is_null=1"])
@pytest.mark.parametrize("what", [("decimal(5,2)", "decimal", "1.239"), ("varchar(3)", "text", "abc   "), ("varchar(3)", "text", "abcdef"), ("decimal(5,2)","decimal","0.001")])
def test_globals(mariadb, maria_db, var, what):
    d = Direct("mysql", mariadb.url(maria_db), maria_db, mariadb)
    mariadb.sql(f"SET GLOBAL {var}")
    try:
        d.open()
        d.sql(f"CREATE TABLE kv (id int primary key, a {what[0]})")
        l = d.layout("kv", "id a", "id", f"integer {what[1]}")
        try:
            d.do(d.rows(l, inserts=[["1", what[2]]]))
            r = d.sql("select * from kv")
            assert False, r
        except RefusedError as e:
            print(e)
        d.target.close()
    finally:
        name = var.split("=")[0]
        mariadb.sql(f"SET GLOBAL {name}=DEFAULT")

ODD = ['a"b', "a`b", "a%sb", "a'b", "a;b -- x", "ü", "a\\b", "x" * 64, "a.b", "{0}", "a b", "?", ":x", "tg_r0", "tg_no"]
@pytest.mark.parametrize("name", ODD)
def test_odd_names(direct, name):
    q = (lambda n: "`" + n.replace("`", "``") + "`") if direct.kind == "mysql" else (lambda n: '"' + n.replace('"', '""') + '"')
    direct.sql(f"CREATE TABLE {q(name)} ({q(name)} bigint NOT NULL PRIMARY KEY, a varchar(20))")
    shape = direct.target.table(direct.schema, name)
    cols = (name, "a")
    kinds = {c.name: c for c in shape.columns}
    l = Layout(shape.schema, shape.name, cols, tuple(kinds[n].type for n in cols), (name,), logical=("bigint", "text"), key_equal=(kinds[name].equal,))
    direct.do(direct.rows(l, inserts=[["1", "x"], ["2", "y"], ["3", "z"]]))
    direct.do(direct.rows(l, deletes=[["1"], ["3"]], updates=[["2", "q"]], fills=(Fill(("3",), ("4", MISSING), there=False),)))
    assert [tuple(map(str, r)) for r in direct.sql(f"SELECT * FROM {q(name)} ORDER BY 1")] == [("2", "q"), ("4", "z")]
    from dataclasses import replace
    l2 = replace(l, key=(), key_equal=())
    direct.do(Work(bags=(Bag(l2, matches=(Match((), blob(["0", "2", "q", "7", "r"]), True),)),)))
    assert [tuple(map(str, r)) for r in direct.sql(f"SELECT * FROM {q(name)} ORDER BY 1")] == [("4", "z"), ("7", "r")]
    direct.do(Truncate(((direct.schema, name),), True))
    assert direct.sql(f"SELECT * FROM {q(name)} ORDER BY 1") == []

@pytest.mark.parametrize("chk", ["a%chk", 'a"chk', "a`c"])
def test_odd_chk(request, direct, chk):
    direct.close()
    type(direct).checkpoint_table = property(lambda self: (self.schema, chk))
    try:
        direct.open()
        direct.sql("CREATE TABLE kv (id int primary key)")
        l = direct.layout("kv", "id", "id", "integer")
        direct.do(direct.rows(l, inserts=[["1"]]))
    finally:
        type(direct).checkpoint_table = property(lambda self: (self.schema, "chk"))
