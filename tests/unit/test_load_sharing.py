"""Whose rows a target table may have, by MAPs alone: RELOAD TABLE empties it for one source table only."""

from __future__ import annotations

import pytest

from replicat.load.sharing import fills
from replicat.model.mapparams import MapRule
from trails.runtime.language.params import Pattern

SOURCE, TARGET = ("sales", "orders"), ("head", "orders")


@pytest.mark.parametrize(
    ("source", "target", "shared"),
    [
        ("sales.orders", "head.orders", False),
        ("sales.*", "head.*", False),
        ("sales.*", "head.o*", True),
        ("sales.*", "other.*", False),
        ("sales.x*", "head.*", False),
        ("sales.parts", "head.orders", True),
        ("parts.*", "head.*", True),
        ("*.*", "head.*", True),
        ("sales.o*", "head.orders", True),
        ("sales.*", "HEAD.ORDERS", True),
        ('"Sales".orders', "head.orders", True),
        ("*.orders", "*.orders", True),
        ("bye.*", "head.*", False),
    ],
)
def test_a_map_that_may_take_another_table_to_the_same_target(source: str, target: str, shared: bool):
    """Whether or not that table is there by now; one that is excluded never comes."""
    rule = MapRule(Pattern(source), Pattern(target), "rep1.prm:3")
    assert fills(rule, TARGET, [Pattern("bye.*")], but=SOURCE) is shared
    own = source in ("sales.orders", "sales.*", "bye.*") and target != "other.*"
    assert fills(rule, TARGET, []) is (shared or own)
