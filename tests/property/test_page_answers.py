"""What the page of another home answers, and what a stranger asks the Manager: one named error, or plain figures."""

from __future__ import annotations

import contextlib
import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggsci.flow.pipelines import Pipeline, Stage, to_json
from ggsci.manager.collectors import _object
from ggsci.manager.door import Refusal
from ggsci.web import remote
from tests.support.hostile import hostile

LOADS = {
    "load_states": {"live": 1},
    "loading": [
        {
            "source": "s.t", "target": "s.t", "state": "loading", "chunks": 3, "chunks_done": 1, "rows": 5, "bytes": 6,
            "left_us": 7, "rows_s": 1.5, "bytes_s": 2.5,
        }
    ],
}  # fmt: skip
EXTRA = {"home_id": "a", "fed_by": "b/PMP1", "read": {"seqno": 1, "rba": 2}, "operations": 3, "heartbeat_late": "late"}
STAGE = Stage("/home", "REPLICAT", "REP1", "RUNNING", 7, 1, 2, writes=("./dirdat/lt",), extra={**EXTRA, **LOADS})
ANSWER = {
    "home": "/home", "id": "a", "manager": "RUNNING", "age_us": 5,
    "pipelines": json.loads(json.dumps(to_json([Pipeline("REP1", "a", "b", (STAGE, STAGE))]))),
}  # fmt: skip
ODD = st.one_of(
    st.sampled_from(
        (None, True, 0, -1, 2**70, 1e308, math.inf, math.nan, "", "x", "\x1b[2J\n", "\udcff", [], [[]], {})
    ),
    st.text(max_size=3), st.recursive(st.none() | st.integers(), lambda some: st.lists(some, max_size=3), max_leaves=5),
)  # fmt: skip


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in it, but the whole."""
    for name, inner in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield (*path, name)
        yield from places(inner, (*path, name))


PLACES = list(places(ANSWER))


@hostile(200)
@given(st.lists(st.tuples(st.sampled_from(PLACES), ODD | st.just("gone")), min_size=1, max_size=4))
def test_any_answer_of_another_page_is_drawn_or_refused(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    """What is taken is finite, short and plain, so that nothing behind it meets anything else."""
    tree = copy.deepcopy(ANSWER)
    for path, value in changes:
        at: Any = tree
        try:
            for name in path[:-1]:
                at = at[name]
            if value == "gone":
                del at[path[-1]]
            else:
                at[path[-1]] = value
        except (KeyError, TypeError, IndexError):
            continue  # an earlier change took it away
    try:
        found = remote._parsed(tree)
    except remote._NO_ANSWER:
        return
    text = json.dumps(to_json(found.pipelines), allow_nan=False)
    assert len(text) < 100_000
    assert all(stage.name.isascii() and stage.status.isupper() for one in found.pipelines for stage in one.stages)


@hostile(200)
@given(st.binary(max_size=40) | ODD.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass")))
def test_any_line_that_a_stranger_sends_is_an_object_or_refused(line: bytes) -> None:
    """The Manager's port is open to whoever has a certificate, and without TLS to all."""
    with contextlib.suppress(Refusal):
        assert isinstance(_object(line), dict)


def test_a_line_as_deep_as_may_be_is_refused() -> None:
    """Python's parser gives up by an error of its own."""
    with pytest.raises(Refusal):
        _object(b"[" * 60_000)
