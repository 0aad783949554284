"""The net-effect table of docs/replicat.md, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from replicat.work.net.compact import BORN, Net
from replicat.work.net.heap import Heap
from trails.record import MISSING

A, B = ["1", "a", "x"], ["1", "b", "y"]
PARTIAL = ["1", "p", MISSING]
MOVED = ["2", "m", "z"]


def net_of(*changes: tuple[Any, ...]) -> Net:
    net = Net((0,))
    for verb, *args in changes:
        getattr(net, verb)(*args)
    return net


def state(net: Net) -> dict[str, Any]:
    return {
        "new": net.new, "old": net.old, "gone": list(net.gone), "void": list(net.void), "base": net.base,
        "collisions": net.collisions,
    }  # fmt: skip


NOTHING: dict[str, Any] = {"new": {}, "old": {}, "gone": [], "void": [], "base": {}, "collisions": [0, 0, 0]}
INS, UPD, DEL = ("insert", A), ("update", B, None), ("delete", A)
PART = ("update", PARTIAL, None)
MOVE = ("update", MOVED, A)
BACK = ("update", B, MOVED)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((INS,), {"new": {"1": A}}),
        ((UPD,), {"old": {"1": B}}),
        ((DEL,), {"gone": ["1"]}),
        ((INS, UPD), {"new": {"1": B}}),
        ((INS, PART), {"new": {"1": ["1", "p", "x"]}}),
        ((INS, DEL), {"void": ["1"]}),
        ((INS, DEL, INS), {"new": {"1": A}}),
        ((UPD, UPD), {"old": {"1": B}}),
        ((UPD, PART), {"old": {"1": ["1", "p", "y"]}}),
        ((PART, UPD), {"old": {"1": B}}),
        ((UPD, DEL), {"gone": ["1"]}),
        ((DEL, INS), {"old": {"1": A}, "base": {"1": BORN}}),
        ((DEL, INS, DEL), {"gone": ["1"]}),
        ((MOVE,), {"new": {"2": MOVED}, "gone": ["1"], "base": {"2": "1"}}),
        ((MOVE, BACK), {"old": {"1": B}, "void": ["2"]}),
        ((INS, MOVE), {"new": {"2": MOVED}, "void": ["1"]}),
        ((MOVE, ("delete", MOVED)), {"gone": ["1"], "void": ["2"]}),
        ((MOVE, INS), {"new": {"2": MOVED}, "old": {"1": A}, "base": {"2": "1", "1": BORN}}),
        ((("delete", MOVED), MOVE), {"old": {"2": MOVED}, "gone": ["1"], "base": {"2": "1"}}),
        ((("delete", MOVED), INS, MOVE), {"old": {"2": MOVED}, "void": ["1"], "base": {"2": BORN}}),
        (
            (MOVE, ("update", ["3", "c", "c"], MOVED)),
            {"new": {"3": ["3", "c", "c"]}, "gone": ["1"], "void": ["2"], "base": {"3": "1"}},
        ),
        ((("update", PARTIAL, A),), {"old": {"1": PARTIAL}}),
        ((("update", B, [MISSING, "a", "x"]),), {"old": {"1": B}}),
        (
            (("update", ["2", "m", MISSING], ["1", "a", "whole"]),),
            {"new": {"2": ["2", "m", "whole"]}, "gone": ["1"], "base": {"2": "1"}},
        ),
    ],
)
def test_OT_15_DA_14_net_effect(changes: tuple[Any, ...], expected: dict[str, Any]):
    """OT-14: what is known before, the change, and what is known after."""
    assert state(net_of(*changes)) == NOTHING | expected


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ((INS, INS), [1, 0, 0]),
        ((UPD, INS), [1, 0, 0]),
        ((DEL, DEL), [0, 0, 1]),
        ((INS, DEL, DEL), [0, 0, 1]),
        ((DEL, UPD), [0, 1, 0]),
        ((INS, DEL, UPD), [0, 1, 0]),
        ((DEL, MOVE), [0, 1, 0]),
        ((INS, DEL, MOVE), [0, 1, 0]),
        ((("insert", MOVED), MOVE), [0, 1, 0]),
        ((("update", MOVED, None), MOVE), [0, 1, 0]),
    ],
)
def test_changes_that_no_source_can_make_are_counted(changes: tuple[Any, ...], counts: list[int]):
    """The target refuses them, whatever rows it has: an out-of-sync alarm that would else go by in silence."""
    assert net_of(*changes).collisions == counts


def test_composite_keys():
    """Several key columns make one key; a part that the old image does not give is unchanged."""
    net = Net((2, 0))
    net.update(["1", "v", "k"], ["0", "v", MISSING])
    assert list(net.gone) == [("k", "0")]
    assert list(net.new) == [("k", "1")]


def test_swap_of_two_keys():
    """Both rows stay, each with the other's origin; the key in between is gone."""
    net = net_of(
        ("update", ["9", "a", "x"], ["1", "a", "x"]),
        ("update", ["1", "b", "y"], ["2", "b", "y"]),
        ("update", ["2", "a", "x"], ["9", "a", "x"]),
    )
    assert state(net) == NOTHING | {
        "old": {"1": ["1", "b", "y"], "2": ["2", "a", "x"]}, "void": ["9"], "base": {"1": "2", "2": "1"},
    }  # fmt: skip


NONE: dict[str, Any] = {"inserts": [], "deletes": [], "updates": {}}


def heap_of(*changes: tuple[Any, ...]) -> dict[str, Any]:
    heap = Heap()
    for verb, *args in changes:
        getattr(heap, verb)(*args)
    return {"inserts": [tuple(row) for row in heap.inserts()], "deletes": heap.deletes, "updates": heap.updates}


def test_tables_without_a_key_fold_into_rows_to_delete_to_update_and_new_ones():
    """A change of a row that the batch brought or changed is folded into it; equal rows are counted, not merged."""
    assert heap_of(("insert", ["a"]), ("insert", ["a"]), ("delete", ["a"])) == NONE | {"inserts": [("a",)]}
    assert heap_of(("delete", ["a"]), ("insert", ["a"])) == NONE | {"deletes": [("a",)], "inserts": [("a",)]}
    assert heap_of(("update", ["a"], ["b"]), ("update", ["b"], ["c"])) == NONE | {"updates": {("c",): [("a",)]}}
    assert heap_of(("update", ["a"], ["b"]), ("delete", ["b"])) == NONE | {"deletes": [("a",)]}
    assert heap_of(("insert", ["a", "x"]), ("update", ["a", "x"], ["b", MISSING])) == NONE | {"inserts": [("b", "x")]}
    assert heap_of(("update", ["a"], ["b"]), ("update", ["a"], ["b"])) == NONE | {"updates": {("b",): [("a",)] * 2}}
