"""Heartbeats among transactions: whatever stands between them, each is taken once, in its place, never as a change."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replicat.batches.batch import Batch, Cutting
from replicat.model.borders import Border
from tests.support.batches import Change, Shaped, csn_of, lived

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=4)
UNITS = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), st.just([])),
        st.tuples(st.just("whole"), SIZES),
        st.tuples(st.just("large"), st.lists(st.integers(1, 6), min_size=2, max_size=5)),
        st.tuples(st.just("place"), st.just([])),
    ),
    max_size=14,
)
OPTIONS = st.fixed_dictionaries({"group": st.integers(0, 12), "split": st.integers(0, 8)})


def beats_of(batches: list[tuple[Batch, list[Change]]]) -> list[str]:
    return [block.header.csn for batch, _ in batches for block in batch.beats]


@settings(max_examples=150)
@given(units=UNITS, options=OPTIONS, lives=st.lists(st.integers(0, 3), max_size=4))
def test_each_heartbeat_once_and_in_its_place(units: Any, options: dict[str, int], lives: list[int]):
    """A commit tells of all before it and of none behind it; no job ever holds one."""
    made = Shaped.of(units)
    batches = lived(made, Cutting(**options), lives)
    assert beats_of(batches) == made.beats
    assert [change for _, changes in batches for change in changes] == made.changes
    for batch, changes in batches:
        assert not any(block.header.is_heartbeat for block in batch.blocks)
        assert bool(batch.transactions or batch.partial) == bool(changes)
        assert all(block.end <= batch.end for block in batch.beats)
        done = [*(csn for csn, _ in changes), *(block.header.csn for block in batch.beats)]
        if not batch.partial:
            assert batch.csn == max(done)
        if batch.partial or batch.split:
            assert batch.beats == () or changes


@settings(max_examples=100)
@given(
    units=UNITS, options=OPTIONS, border=st.integers(0, 40), kind=st.sampled_from([">=", ">", "@"]),
    lives=st.lists(st.integers(0, 3), max_size=3),
)  # fmt: skip
def test_begin_and_end_hold_for_heartbeats_too(
    units: Any, options: dict[str, int], border: int, kind: str, lives: list[int]
):
    """They are transactions with a CSN and a time of their own."""
    made = Shaped.of(units)
    begin = Border("@", time_us=border) if kind == "@" else Border(kind, csn_of(border))
    behind = beats_of(lived(made, Cutting(**options), lives, skip=begin.text))
    assert behind == [c for c in made.beats if int(c) > border or (kind != ">" and int(c) == border)]
    end = Border("@", time_us=border + 1) if kind == "@" else Border(">", csn_of(border))
    before = beats_of(lived(made, Cutting(**options, end=end), lives))
    assert before == [c for c in made.beats if int(c) <= border]


def test_a_day_of_nothing_but_heartbeats_is_more_than_one_batch():
    """So a transaction, and what it holds in memory, stays small."""
    made = Shaped()
    for _ in range(1200):
        made.beat()
    made.sync()
    batcher = made.batcher()
    sizes = []
    while (batch := batcher.next()) is not None:
        sizes.append(len(batch.beats))
        assert not batcher.at_end or len(sizes) == 3
    assert sizes == [500, 500, 200]
    assert batcher.at_end
