"""What counts as one row among changes that wait, and what takes them out again (replicat/apply/late.py)."""

from __future__ import annotations

from typing import Any

import pytest

from replicat.apply.late import Late
from replicat.model.plan import TablePlan
from replicat.model.target import Layout, RefusedError, Truncate
from replicat.work.net.part import MappedChange, Part

COLUMNS = ("id", "code", "v")


def plan(*key: str, **more: Any) -> TablePlan:
    layout = Layout("t", "kv", COLUMNS, ("text",) * 3, key, **more)
    return TablePlan("s.kv", "t.kv", layout, tuple(COLUMNS.index(name) for name in key))


def part(of: TablePlan, op: str, after: list[str] | None, before: list[str] | None = None) -> Part:
    return Part(mapped=(MappedChange(of, op, before, after),))


BY_ID, BY_CODE = plan("id"), plan("code")
TAKEN = RefusedError("t.kv", "a value is there already", "23505")


def waiting(*parts: Part) -> Late:
    late = Late()
    for number, each in enumerate(parts):
        late.add(each, number)
    return late


def test_changes_of_the_same_row_wait_behind_each_other():
    """By the keys before and after; other rows, and rows of other tables, go by."""
    late = waiting(part(BY_ID, "update", ["2", "b", "x"], ["1", "b", "x"]))
    assert late.holds_back(part(BY_ID, "insert", ["1", "c", "y"]))
    assert late.holds_back(part(BY_ID, "delete", None, ["2", "b", "x"]))
    assert not late.holds_back(part(BY_ID, "update", ["3", "b", "x"]))
    other = TablePlan("s.o", "t.o", Layout("t", "o", COLUMNS, ("text",) * 3, ("id",)), (0,))
    assert not late.holds_back(part(other, "update", ["1", "b", "x"]))


def test_where_two_maps_know_rows_by_other_keys_all_are_one():
    """Nobody can tell whether id 1 is the row with code 1: they stay in order, and don't come together."""
    late = waiting(part(BY_ID, "update", ["1", "b", "x"]))
    assert late.holds_back(part(BY_CODE, "update", ["7", "c", "y"]))
    late.add(part(BY_CODE, "update", ["7", "c", "y"]), 1)
    assert late.holds_back(part(BY_ID, "update", ["9", "d", "z"]))
    assert late.together() is None


@pytest.mark.parametrize(
    ("of", "op", "waits"),
    [
        (BY_ID, "update", True),
        (plan(), "insert", False),
        (plan("id", soft_key=True), "update", True),
        (plan("id", soft_key=True), "upsert", False),
        (plan("id", soft_key=True, collisions=True), "update", False),
    ],
    ids=["by key", "no key", "soft", "soft and loose", "soft under HANDLECOLLISIONS"],
)
def test_what_may_wait(of: TablePlan, op: str, waits: bool):
    """Only a change of whose row it can be told what else is of it."""
    assert Late().may_wait(part(of, op, ["1", "b", "x"]), TAKEN) is waits


def test_a_foreign_key_waits_once_something_does():
    """For a parent that waits."""
    child = part(BY_ID, "insert", ["1", "b", "x"])
    for state in ("23503", "23001"):
        error = RefusedError("t.kv", "no parent", state)
        assert not Late().may_wait(child, error)
        assert waiting(part(BY_ID, "insert", ["2", "c", "y"])).may_wait(child, error)


def test_a_truncate_takes_its_tables_changes_out_of_many():
    """In one pass: ten thousand of them are no reason to stand still."""
    other = TablePlan("s.o", "t.o", Layout("t", "o", COLUMNS, ("text",) * 3, ("id",)), (0,))
    taken = [part(BY_ID, "update", [str(n), "b", "x"]) for n in range(5000)]
    late = waiting(*taken, part(other, "update", ["1", "b", "x"]), *taken)
    gone = late.behind(Part(steps=(Truncate((("t", "kv"),), False),)))
    assert len(gone) == 10_000
    assert [owner for _, owner in late.parts] == [5000]
    assert not late.holds_back(taken[0])
    assert late.holds_back(part(other, "update", ["1", "c", "x"]))
