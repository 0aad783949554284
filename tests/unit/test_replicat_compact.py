"""The net-effect table of docs/replicat.md, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from replicat.compact import Net
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
    return {"new": net.new, "old": net.old, "gone": list(net.gone), "base": net.base}


INS, UPD, DEL = ("insert", A), ("update", B, None), ("delete", A)
PART = ("update", PARTIAL, None)
MOVE = ("update", MOVED, A)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((INS,), {"new": {"1": A}}),
        ((UPD,), {"old": {"1": B}}),
        ((DEL,), {"gone": ["1"]}),
        ((INS, UPD), {"new": {"1": B}}),
        ((INS, PART), {"new": {"1": ["1", "p", "x"]}}),
        ((INS, DEL), {"gone": ["1"]}),
        ((INS, INS), {"new": {"1": A}}),
        ((UPD, INS), {"old": {"1": A}}),
        ((UPD, UPD), {"old": {"1": B}}),
        ((UPD, PART), {"old": {"1": ["1", "p", "y"]}}),
        ((PART, UPD), {"old": {"1": B}}),
        ((UPD, DEL), {"gone": ["1"]}),
        ((DEL, INS), {"old": {"1": A}}),
        ((DEL, UPD), {"old": {"1": B}}),
        ((DEL, DEL), {"gone": ["1"]}),
        ((MOVE,), {"old": {"2": MOVED}, "gone": ["1"], "base": {"2": "1"}}),
        ((INS, MOVE), {"new": {"2": MOVED}, "gone": ["1"]}),
        ((MOVE, ("delete", MOVED)), {"gone": ["1", "2"]}),
        ((MOVE, INS), {"old": {"2": MOVED, "1": A}, "base": {"2": "1"}}),
        ((("delete", MOVED), MOVE), {"old": {"2": MOVED}, "gone": ["1"], "base": {"2": "1"}}),
        (
            (MOVE, ("update", ["3", "c", "c"], MOVED)),
            {"old": {"3": ["3", "c", "c"]}, "gone": ["1", "2"], "base": {"3": "1"}},
        ),
        ((("update", PARTIAL, A),), {"old": {"1": PARTIAL}}),
        ((("update", B, [MISSING, "a", "x"]),), {"old": {"1": B}}),
    ],
)
def test_net_effect(changes: tuple[Any, ...], expected: dict[str, Any]):
    """OT-14: what is known before, the change, and what is known after."""
    assert state(net_of(*changes)) == {"new": {}, "old": {}, "gone": [], "base": {}} | expected


def test_composite_keys():
    """Several key columns make one key; a part that the old image does not give is unchanged."""
    net = Net((2, 0))
    net.update(["1", "v", "k"], ["0", "v", MISSING])
    assert list(net.gone) == [("k", "0")]
    assert list(net.old) == [("k", "1")]


def test_swap_of_two_keys():
    """Both rows stay, each with the other's origin; the key in between is gone."""
    net = net_of(
        ("update", ["9", "a", "x"], ["1", "a", "x"]),
        ("update", ["1", "b", "y"], ["2", "b", "y"]),
        ("update", ["2", "a", "x"], ["9", "a", "x"]),
    )
    assert state(net) == {
        "new": {}, "old": {"1": ["1", "b", "y"], "2": ["2", "a", "x"]}, "gone": ["9"], "base": {"1": "2", "2": "1"},
    }  # fmt: skip
