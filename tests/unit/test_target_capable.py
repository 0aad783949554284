"""Each capability is decided by: what a kind of target cannot do is refused, told, or done in another way."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from replicat.apply.ladder import Ladder
from replicat.batches.planning import Planning
from replicat.model.target import CheckpointRow, Layout, Rows, Work
from replicat.params import ReplicatParams
from replicat.targets.contract import Capabilities
from replicat.targets.kinds import kind_of
from replicat.work.net.part import Part
from tests.support.list_target import ListTarget, Store, shape
from tests.support.replicat_trail import table
from trails.errors import OperatorError
from trails.position import Position
from trails.runtime.language.params import parse_text

ROOT = Path(__file__).parents[2]
KV, LOG = table("s", "kv", "id v", "id"), table("s", "log", "id v")
SHAPES = [shape("main", "kv", "id v", "id"), shape("main", "log", "id v")]


def target(**can: bool) -> ListTarget:
    """A target that can do all that is not named."""
    able = {"holds_triggers": True, "defers_constraints": True, "follows_sequences": True}
    made = ListTarget(Store(row=CheckpointRow(Position(0, 0))), SHAPES)
    made.kind = replace(kind_of("sqlite"), title="Tiny", can=Capabilities(**{**able, **can}))
    return made


def planning(lines: str = "", told: list[str] | None = None, **can: bool) -> Planning:
    text = f"REPLICAT rep1\nTARGETDB 'sqlite:///t.db'\n{lines}\nMAP s.*, TARGET main.*;\n"
    params = ReplicatParams.from_statements(parse_text(text, "rep1.prm"))
    return Planning(params, target(**can), tell=[].append if told is None else told.append)


def test_each_capability_is_read_by_code_that_decides():
    """Beside the contract, the kinds and the tests."""
    code = "\n".join(
        file.read_text() for file in (ROOT / "replicat").rglob("*.py") if file.name not in ("contract.py", "kind.py")
    )
    assert [each.name for each in fields(Capabilities) if f"can.{each.name}" not in code] == []


@pytest.mark.parametrize(
    ("word", "capability"),
    [
        ("SUPPRESSTRIGGERS", "holds_triggers"),
        ("DEFERREFCONST", "defers_constraints"),
        ("FOLLOWSEQUENCES", "follows_sequences"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(word: str, capability: str):
    assert planning(f"DBOPTIONS {word}").faults([KV]) == []
    assert planning(**{capability: False}).faults([KV]) == []
    (error,) = planning(f"DBOPTIONS {word}", **{capability: False}).faults([KV])
    assert f"DBOPTIONS {word}: a Tiny target cannot" in str(error)


@pytest.mark.parametrize("capability", ["keyless_tables", "exactly_once"])
def test_a_table_without_a_key_is_refused_where_it_needs_one(capability: str):
    assert planning().faults([KV, LOG]) == []
    (error,) = planning(**{capability: False}).faults([KV, LOG])
    assert "s.log has no key, and a Tiny target finds no row without one" in str(error)


def test_what_may_come_twice_is_overlaid():
    """I6: where the checkpoint row is committed apart from the rows."""
    for exactly in (True, False):
        (plan,) = planning(exactly_once=exactly).plan(KV)
        assert plan.layout.collisions is not exactly


def test_tables_that_are_not_seen_together_are_told_once():
    told: list[str] = []
    for able in (True, False):
        made = planning(told=told, several_tables=able)
        for definition in (KV, LOG, KV):
            made.plan(definition)
    assert [line for line in told if "Warning" in line] == [
        "Warning: a Tiny target shows a transaction of several tables one table after the other"
    ]


def test_what_is_refused_ends_the_process_where_nothing_can_be_undone():
    """And nothing else is tried."""
    made = target(savepoints=False)
    made.begin(CheckpointRow(Position(0, 0)), CheckpointRow(Position(0, 1)))
    layout = Layout("main", "kv", ("id", "v"), ("text",) * 2, ("id",))
    gone, _ = layout.blob([["1"]])

    judge: Any = None
    task: Any = None
    with pytest.raises(OperatorError, match=r"refuses a batch: .*a Tiny target cannot undo a part of it"):
        Ladder(made, judge, [].append).apply(task, Part((Work((Rows(layout, deletes=gone),)),)))
    assert made.log.count("apply") == 1
    assert "rewrite" not in made.log
