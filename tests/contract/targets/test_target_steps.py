"""What every target makes of the steps that it is handed, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from replicat.model.again import PlaceLostError
from replicat.model.target import Bag, Compare, Fill, Match, Patch, RefusedError, Truncate, Work
from tests.contract.targets.bench import Bench, images
from trails.record import MISSING

pytestmark = pytest.mark.e2e

AB = [("1", "a", "b"), ("2", "a", "b")]


def test_a_net_effect_of_every_kind(bench: Bench, kv: Any):
    """Deletes, updates, patches, inserts, upserts, removes and fills in one step; the row moves with them."""
    bench.do(bench.rows(kv, inserts=images(["1 a b", "2 a b", "3 a b", "4 a b", "5 a b"])))
    bench.do(
        bench.rows(
            kv,
            deletes=images(["1"]),
            updates=images(["2 x y"]),
            patches=(Patch((0, 2), bench.blob(["3", "patched"])),),
            inserts=images(["6 new -"]),
            upserts=images(["4 over over", "7 up up"]),
            removes=images(["99"]),
            fills=(Fill(("5",), ("50", MISSING, "moved"), there=False),),
        ),
        bench.rows(kv, deletes=images(["5"])),
    )
    assert sorted(bench.look()) == [
        ("2", "x", "y"), ("3", "a", "patched"), ("4", "over", "over"), ("50", "a", "moved"), ("6", "new", None),
        ("7", "up", "up"),
    ]  # fmt: skip
    assert bench.target.load_row() == bench.row


REFUSED = [
    ({"inserts": ["9 a b", "1 a b"]}, "23505"),
    ({"updates": ["1 x y", "9 x y"]}, "02000"),
    ({"deletes": ["1", "9"]}, "02000"),
    ({"void": ["1"]}, "23505"),
    ({"updates": ["1 x y"], "inserts": ["odd a b"]}, ""),
]


@pytest.mark.parametrize("rewrite", [False, True])
def test_a_refused_call_is_undone_whole_and_the_transaction_goes_on(bench: Bench, kv: Any, rewrite: bool):
    """A row that should not, or should be there; a value that does not fit. Steps of the call before it are undone."""
    bench.do(bench.rows(kv, inserts=images(["1 a b", "2 a b"])))
    new = bench.begin()
    for what, sqlstate in REFUSED:
        first = bench.rows(kv, inserts=images(["7 a b"]), deletes=images(["2"]))
        with pytest.raises(RefusedError) as caught:
            bench.target.apply(
                (first, bench.rows(kv, **{name: images(rows) for name, rows in what.items()})), rewrite=rewrite
            )
        assert sqlstate in caught.value.sqlstate, what
        assert caught.value.sqlstate, what
    bench.target.apply((bench.rows(kv, inserts=images(["3 a b"])),))
    bench.commit(new)
    assert bench.look() == [*AB, ("3", "a", "b")]


def test_patches_lack_their_row(bench: Bench, kv: Any):
    """One that must be there is refused, one that need not is left out; a rewrite sees no difference."""
    bench.do(bench.rows(kv, inserts=images(["1 a b"])))
    for rewrite in (False, True):
        bench.do(bench.rows(kv, patches=(Patch((0, 2), bench.blob(["9", "x"]), must=False),)), rewrite=rewrite)
        new = bench.begin()
        with pytest.raises(RefusedError) as caught:
            bench.target.apply((bench.rows(kv, patches=(Patch((0, 2), bench.blob(["9", "x"])),)),), rewrite=rewrite)
        assert caught.value.sqlstate == "02000"
        bench.target.apply((bench.rows(kv, patches=(Patch((0, 2), bench.blob(["1", "z"])),)),), rewrite=rewrite)
        bench.commit(new)
    assert bench.look() == [("1", "a", "z")]


def test_what_is_refused_first_begins_the_transaction_anew(bench: Bench, kv: Any):
    """The row stands where begin() moved it, and nothing else was done; what comes then is as ever."""
    bench.do(bench.rows(kv, inserts=images(["1 a b"])))
    new = bench.begin()
    for steps in ((bench.rows(kv, inserts=images(["2 a b", "1 c d"])),), (bench.rows(kv, deletes=images(["9"])),)):
        with pytest.raises(RefusedError):
            bench.target.apply((bench.rows(kv, inserts=images(["3 x y"])), *steps), first=True)
    bench.target.apply((bench.rows(kv, updates=images(["1 u u"]), inserts=images(["3 a b"])),), first=True)
    with pytest.raises(RefusedError):
        bench.target.apply((bench.rows(kv, inserts=images(["4 a b", "3 c d"])),))
    bench.commit(new)
    assert bench.look() == [("1", "u", "u"), ("3", "a", "b")]


def test_another_process_comes_while_a_refused_transaction_is_begun_anew(bench: Bench, kv: Any, monkeypatch: Any):
    """Its commit stands, and what was refused finds the row moved: nothing of it goes on."""
    other, roll_back = bench.second(), bench.target.database.roll_back

    def roll_back_and_wait() -> None:
        roll_back()
        monkeypatch.undo()
        other.do(other.rows(kv, inserts=images(["7 r r"])))

    bench.begin()
    monkeypatch.setattr(bench.target.database, "roll_back", roll_back_and_wait)
    with pytest.raises(PlaceLostError):
        bench.target.apply((bench.rows(kv, inserts=images(["3 a b", "odd a b"])),), first=True)
    assert bench.again().position == other.row.position
    bench.do(bench.rows(kv, inserts=images(["3 a b"])))
    assert bench.look() == [("3", "a", "b"), ("7", "r", "r")]
    other.close()


def test_collisions_are_overlaid_and_counted(bench: Bench, kv: Any):
    """HANDLECOLLISIONS: insert over a row, update of a missing one, delete of a missing one; undone is not counted."""
    layout = bench.layout(collisions=True)
    bench.do(bench.rows(layout, inserts=images(["1 a b"])))
    new = bench.begin()
    work = bench.rows(layout, inserts=images(["1 x y", "2 x y"]), updates=images(["3 u u"]), deletes=images(["9"]))
    with pytest.raises(RefusedError):
        bench.target.apply((work, bench.rows(layout, inserts=images(["odd a b"]))))
    token = bench.target.mark()
    bench.target.apply((work,))
    bench.target.undo(token)
    bench.target.apply((work,))
    bench.commit(new)
    assert bench.target.tally.collisions == {(kv.schema, "kv"): (1, 1, 1)}
    bench.begin()
    assert bench.target.tally.collisions == {}
    bench.target.commit()
    assert bench.look() == [("1", "x", "y"), ("2", "x", "y"), ("3", "u", "u")]


def test_missing_updates_become_rows_where_they_may(bench: Bench, kv: Any):
    """INSERTMISSINGUPDATES: of whole rows; one that lacks columns is refused."""
    layout = bench.layout(insert_missing=True)
    bench.do(bench.rows(layout, updates=images(["1 a b"])))
    new = bench.begin()
    with pytest.raises(RefusedError):
        bench.target.apply((bench.rows(layout, patches=(Patch((0, 1), bench.blob(["9", "x"])),)),))
    with pytest.raises(RefusedError):
        bench.target.apply((bench.rows(layout, inserts=images(["1 a b"])),))
    bench.commit(new)
    assert bench.look() == [("1", "a", "b")]


def test_unique_values_are_swapped_by_the_rewrite(bench: Bench, kv: Any):
    """And no row is ever written over by a key that is not its own. What only the target has stays with its row."""
    bench.place.sql(f"CREATE UNIQUE INDEX kv_a ON {bench.quoted('kv')} ({bench.quoted('a')})")
    bench.do(bench.rows(kv, inserts=images(["1 x k", "2 y k", "3 z k"])))
    layout = bench.layout(columns="id a")
    swap = bench.rows(layout, updates=images(["1 y", "2 x"]))
    new = bench.begin()
    with pytest.raises(RefusedError) as caught:
        bench.target.apply((swap,))
    assert caught.value.sqlstate == "23505"
    bench.target.apply((swap,), rewrite=True)
    for rewrite in (False, True):
        with pytest.raises(RefusedError):
            bench.target.apply((bench.rows(layout, inserts=images(["9 z"])),), rewrite=rewrite)
    bench.commit(new)
    assert bench.look() == [("1", "y", "k"), ("2", "x", "k"), ("3", "z", "k")]


@pytest.mark.parametrize("rewrite", [False, True])
def test_keys_are_swapped_and_rows_keep_what_only_the_target_has(bench: Bench, kv: Any, rewrite: bool):
    """Two keys change places and a third moves away; a fill without a row to fill it from is refused."""
    bench.do(bench.rows(kv, inserts=images(["1 a1 n1", "2 a2 n2", "3 a3 n3"])))
    layout = bench.layout(columns="id a")
    swap = (
        Fill(("2",), ("1", MISSING), there=True), Fill(("1",), ("2", "new"), there=True),
        Fill(("3",), ("30", MISSING), there=False),
    )  # fmt: skip
    bench.do(bench.rows(layout, fills=swap, deletes=images(["3"])), rewrite=rewrite)
    assert sorted(bench.look()) == [("1", "a2", "n2"), ("2", "new", "n1"), ("30", "a3", "n3")]
    new = bench.begin()
    with pytest.raises(RefusedError, match=r"no row with key \(77\)|no row \('77',\)"):
        bench.target.apply((bench.rows(layout, fills=(Fill(("77",), ("78", MISSING), there=False),)),), rewrite=rewrite)
    others = Fill(("77",), ("78", MISSING), there=False, must=False, others=((("1",), ("78", MISSING)),))
    bench.target.apply((bench.rows(layout, fills=(others,)),), rewrite=rewrite)
    bench.commit(new)
    assert ("78", "a2", "n2") in bench.look()


def test_rows_are_compared_before_anything_is_changed(bench: Bench, kv: Any):
    """COMPARECOLS: NULL is equal to NULL, text is compared exactly; less than all is refused."""
    bench.do(bench.rows(kv, inserts=images(["1 a -", "2 a b"])))
    same = Compare((1, 2), bench.blob(["1", "a", None], ["2", "a", "b"]))
    bench.do(bench.rows(kv, compares=(same,), updates=images(["1 x -"])))
    new = bench.begin()
    for other in (bench.blob(["2", "A", "b"]), bench.blob(["2", "a", None]), bench.blob(["9", "a", "b"])):
        with pytest.raises(RefusedError) as caught:
            bench.target.apply((bench.rows(kv, compares=(Compare((1, 2), other),), deletes=images(["2"])),))
        assert caught.value.sqlstate == "02000"
    bench.commit(new)
    assert bench.look() == [("1", "x", None), ("2", "a", "b")]


def test_tables_without_a_key(bench: Bench):
    """One row a change, NULL equal to NULL, text exactly, two equal changes change two equal rows."""
    bench.make("bag", "n:double v:short")
    layout = bench.layout("bag", "n v", "")
    if not bench.kind.can.keyless_tables:
        with pytest.raises(RefusedError):
            bench.do(Work(bags=(Bag(layout, inserts=bench.blob(["1.5", "a"])),)))
        return
    rows = bench.blob(["1.5", "a"], ["1.5", "a"], ["1.5", "A"], [None, None], ["2", "a "])
    bench.do(Work(bags=(Bag(layout, inserts=rows),)))
    bench.do(
        Work(
            bags=(
                Bag(layout, (Match((), bench.blob(["0", "1.5", "a"], ["1", "1.5", "a"])),)),
                Bag(layout, (Match((0, 1), bench.blob(["0", "7", None]), update=True),)),
                Bag(layout, (Match((), bench.blob(["0", "2", "a ", "3", "z"]), update=True),)),
            )
        )
    )
    found = sorted((float(n or 0), v) for n, v in bench.look("bag", "n v"))
    assert found == [(1.5, "A"), (3.0, "z"), (7.0, None)]
    new = bench.begin()
    for match in (Match((), bench.blob(["0", "1.5", "a"])), Match((1,), bench.blob(["0", "7"], ["1", "7"]))):
        with pytest.raises(RefusedError) as caught:
            bench.target.apply((Work(bags=(Bag(layout, (match,), inserts=bench.blob(["8", "never"])),)),))
        assert caught.value.sqlstate == "02000"
    bench.commit(new)
    assert len(bench.look("bag", "n v")) == 3


def test_truncate_has_its_place_among_the_steps(bench: Bench, kv: Any):
    """Rows that came before it are gone, those behind it are there; a transaction that is lost brings all back."""
    bench.make("other", "id:bigint a:short b:short", "id")
    other = bench.layout("other")
    bench.do(bench.rows(kv, inserts=images(["1 a b"])), bench.rows(other, inserts=images(["1 a b"])))
    both = Truncate(((kv.schema, "kv"), (kv.schema, "other")), restart=True)
    bench.begin()
    bench.target.apply((both, bench.rows(kv, inserts=images(["1 c d"]))))
    bench.close()
    bench.again()
    assert bench.look() == bench.look("other") == [("1", "a", "b")]
    bench.do(bench.rows(kv, inserts=images(["9 a b"])), both, bench.rows(kv, inserts=images(["2 c d"])))
    assert (bench.look(), bench.look("other")) == ([("2", "c", "d")], [])


def test_several_tables_are_seen_together(bench: Bench, kv: Any):
    """Nobody sees one without the other, and a refusal in the second takes the first back."""
    bench.make("other", "id:bigint a:short b:short", "id")
    other = bench.layout("other")
    new = bench.begin()
    both = (bench.rows(kv, inserts=images(["1 a b"])), bench.rows(other, inserts=images(["1 a b"])))
    with pytest.raises(RefusedError):
        bench.target.apply((*both, bench.rows(other, deletes=images(["9"]))))
    bench.target.apply(both)
    assert bench.look() == bench.look("other") == []
    bench.commit(new)
    assert bench.look() == bench.look("other") == [("1", "a", "b")]


def test_a_batch_of_thousands_and_a_value_of_megabytes(bench: Bench):
    """Also through what a batch before it has used."""
    bench.make("kv", "id:bigint a:text b:bytes", "id")
    layout = bench.layout()
    bench.do(bench.rows(layout, inserts=[[str(i), f"v{i}", b"\x00\xff" * 3] for i in range(5000)]))
    bench.do(bench.rows(layout, updates=[[str(i), f"w{i}", None] for i in range(4000)], deletes=[["4999"]]))
    large = ("7", "x" * 3_000_000, b"\\\n\t\x00" * 500_000)
    bench.do(bench.rows(layout, updates=[large]))
    assert sum(a == f"w{key}" for key, a in bench.look(columns="id a")) == 3999
    new = bench.begin()
    assert bench.target.current(layout, ("7",)) == large
    assert bench.target.current(layout, ("4999",)) is None
    bench.commit(new)


def test_one_row_for_who_resolves_conflicts(bench: Bench, kv: Any):
    """current() finds it, put() writes it over or anew, and only what is given; remove() says whether there was one."""
    new = bench.begin()
    target = bench.target
    assert target.current(kv, ("1",)) is None
    with pytest.raises(RefusedError):
        target.put(kv, ("1", "a", MISSING))
    target.put(kv, ("1", "a", None))
    assert target.current(kv, ("1",)) == ("1", "a", None)
    target.put(kv, ("1", MISSING, "b"))
    assert target.current(kv, ("1",)) == ("1", "a", "b")
    with pytest.raises(RefusedError):
        target.put(kv, ("odd", "x", "x"))
    assert target.remove(kv, ("9",)) is False
    assert target.remove(kv, ("1",)) is True
    target.put(kv, ("2", "a", "b"))
    bench.commit(new)
    assert bench.look() == [("2", "a", "b")]


def test_a_mark_is_gone_back_to_more_than_once(bench: Bench, kv: Any):
    """Whatever came behind it, and later marks with it."""
    if not bench.kind.can.savepoints:
        return
    new = bench.begin()
    bench.target.apply((bench.rows(kv, inserts=images(["1 a b"])),))
    token = bench.target.mark()
    for _ in range(2):
        bench.target.apply((bench.rows(kv, inserts=images(["2 a b"]), updates=images(["1 x x"])),))
        bench.target.mark()
        bench.target.put(kv, ("5", "a", "b"))
        assert bench.target.remove(kv, ("1",))
        bench.target.undo(token)
    bench.target.apply((bench.rows(kv, inserts=images(["3 a b"])),))
    bench.target.check_commit()
    bench.commit(new)
    assert bench.look() == [("1", "a", "b"), ("3", "a", "b")]


def test_names_that_need_quoting(bench: Bench):
    """Of tables and columns, in every statement that names them."""
    name, columns = 'a "b"`c%s é', ("select", 'x"y', "a b", "%s", "q?1")
    for statement in bench.script_of(name, dict.fromkeys(columns, "short"), ("select", "a b")).statements:
        bench.place.sql(statement)
    layout = bench.layout_of(name, columns[:4], ("select", "a b"))
    bench.do(bench.rows(layout, inserts=images(["1 x y z", "2 x y z"])))
    for rewrite in (False, True):
        work = bench.rows(
            layout,
            updates=images(["1 u y w"]),
            patches=(Patch((0, 2, 3), bench.blob(["2", "y", "p"])),),
            upserts=images(["3 n n n"]),
            fills=(Fill(("2", "y"), ("4", MISSING, "k", "f"), there=False, must=False),) if rewrite else (),
        )
        bench.do(work, rewrite=rewrite)
    bag = bench.layout_of(name, columns[:4], ())
    bench.do(Work(bags=(Bag(bag, (Match((), bench.blob(["0", "3", "n", "n", "n"])),)),)))
    shown = bench.quoted(*columns[:4])
    found = bench.place.sql(f"SELECT {shown} FROM {bench.at(name)} ORDER BY {bench.quoted('select')}")
    assert found == [("1", "u", "y", "w"), ("2", "x", "y", "p"), ("4", "x", "k", "f")]
    new = bench.begin()
    assert bench.target.current(layout, ("1", "y")) == ("1", "u", "y", "w")
    bench.target.apply((Truncate(((bench.place.schema, name),)),))
    bench.commit(new)
