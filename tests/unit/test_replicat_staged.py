"""The order in which tables are written, and what overlaid net effects count: no database."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from replicat.model.copytext import fields_of, line
from replicat.model.plan import TablePlan
from replicat.model.target import Blob, Layout, RefusedError, Rows, Work
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import kind_of
from replicat.targets.sql.database import SqlDatabase
from replicat.targets.sql.ranks import ranks
from replicat.targets.sql.staged_sql import StagedSql
from replicat.targets.sql.target import SqlTarget
from replicat.work.net.overlay import Overlay
from replicat.work.net.rows import overlay_rows
from trails.record import MISSING


class Recorder(SqlDatabase):
    """Says what it is told to do; each statement finds one row."""

    def __init__(self) -> None:
        super().__init__(kind_of("sqlite"), TargetSettings("sqlite:///t.db", ("main", "chk"), "REP1", 1))
        self.said: list[str] = []

    def run(self, statement: str, params: Sequence[object] = ()) -> int:
        self.said.append(statement)
        return 1

    def ask(self, statement: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        self.said.append(statement)
        return [(0,)]

    def load(self, sql: StagedSql, letter: str, columns: Sequence[str], blob: Blob) -> None:
        self.said.append(f"LOAD {sql.stage(letter)}")

    def copy_new(self, sql: StagedSql, blob: Blob) -> int:
        self.said.append(f"COPY {sql.table}")
        return 1

    def make_sql(self, layout: Layout, number: int) -> StagedSql:
        return StagedSql(layout, number)


def test_parents_and_light_tables_are_written_first_and_deleted_from_last():
    """OT-19: a reader that sees the product finds its detail; inside a weight foreign keys decide."""
    one = Blob(b"1\n", 1)
    orders = [("product", 10, 0), ("child", 5, 1), ("parent", 5, 0)]
    rows = [
        Rows(
            Layout("s", name, ("id",), ("int",), ("id",), rank=rank, weight=weight),
            deletes=one,
            inserts=one,
        )
        for name, weight, rank in orders
    ]
    target = Recorder()
    SqlTarget(target).apply((Work(tuple(rows)),))
    done = [said.split('"')[3] for said in target.said if said.startswith(('DELETE FROM "', "COPY"))]
    assert done == ["product", "child", "parent", "parent", "child", "product"]


def test_a_refusal_goes_back_to_the_savepoint_and_forgets_what_was_made_behind_it():
    """A staging table made in a transaction goes with what is rolled back."""
    layout = Layout("s", "t", ("id",), ("int",), ("id",))
    target, two = Recorder(), Blob(b"1\n2\n", 2)
    for _ in range(2):
        with pytest.raises(RefusedError, match="1 of 2 rows to delete are not there") as caught:
            SqlTarget(target).apply((Work((Rows(layout, deletes=two),)),))
        assert caught.value.sqlstate == "02000"
    assert len([said for said in target.said if said.startswith("CREATE")]) == 2
    assert target.said.count("ROLLBACK TO SAVEPOINT tg_apply") == 2


def test_ranks_of_foreign_keys():
    """Parents are lower; tables in a circle share a rank; a chain of thousands is no deeper than the stack."""
    found = ranks([("c", "b"), ("b", "a"), ("x", "y"), ("y", "x"), ("z", "x"), ("y", "a")])
    assert found == {"a": 0, "b": 1, "c": 2, "x": 1, "y": 1, "z": 2}
    assert ranks([(n, n + 1) for n in range(5000)])[0] == 5000
    complete = [(a, b) for a in range(60) for b in range(60) if a != b]
    assert set(ranks(complete).values()) == {0}


def test_ranks_hold_for_any_graph():
    """Every child that is not in a circle with its parent is higher."""
    dice = random.Random(4)
    for _ in range(200):
        edges = [(dice.randrange(9), dice.randrange(9)) for _ in range(12)]
        edges = [(child, parent) for child, parent in edges if child > parent]
        found = ranks(edges)
        assert all(found[child] > found[parent] for child, parent in edges)


@pytest.mark.parametrize("row", [("a\tb", "\\N", None, "\\", "\n\r", ""), ("plain", "x"), (None,)])
def test_a_row_of_copy_text_and_back(row: tuple[Any, ...]):
    """NULL is no text, whatever the text says."""
    text = line(row).encode()
    assert tuple(fields_of(text[:-1])) == row


WHOLE, PART, MOVED, KEY = ["1", "a", "b"], ["1", "p", MISSING], ["2", "m", MISSING], ["1", MISSING, MISSING]


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ([("update", PART, None), ("insert", WHOLE)], (1, 0, 0)),
        ([("update", WHOLE, None), ("insert", WHOLE)], (1, 0, 0)),
        ([("delete", WHOLE), ("update", WHOLE, None)], (0, 1, 0)),
        ([("delete", WHOLE), ("update", PART, None)], (0, 0, 1)),
        ([("delete", WHOLE), ("update", MOVED, KEY)], (0, 0, 1)),
        ([("delete", WHOLE), ("delete", WHOLE)], (0, 0, 1)),
        ([("upsert", WHOLE), ("remove", WHOLE), ("upsert", WHOLE), ("upsert", PART)], (0, 0, 0)),
    ],
)
def test_what_cannot_be_is_counted_where_updates_are_not_left_out(changes: list[Any], counts: tuple[int, int, int]):
    """INSERTMISSINGUPDATES puts right the second number alone: an update that lacks columns is none of them."""
    net = Overlay((0,), tolerant=False)
    for verb, *args in changes:
        getattr(net, verb)(*args)
    layout = Layout("s", "t", ("k", "a", "b"), ("text",) * 3, ("k",), insert_missing=True)
    assert overlay_rows(TablePlan("s.t", "s.t", layout, (0,)), net).collisions == counts
