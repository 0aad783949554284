"""The batcher: whatever blocks there are and whatever bounds, every transaction is applied exactly once, in order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replicat.batches.batch import Cutting
from replicat.model.borders import Border
from tests.support.batches import Shaped, csn_of, csns, lived

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=5)
UNITS = st.lists(
    st.one_of(
        st.tuples(st.just("whole"), SIZES),
        st.tuples(st.just("large"), st.lists(st.integers(1, 6), min_size=2, max_size=6)),
        st.tuples(st.just("place"), st.just([])),
    ),
    max_size=12,
)
OPTIONS = st.fixed_dictionaries({"group": st.integers(0, 12), "split": st.integers(0, 8)})


@settings(max_examples=150)
@given(units=UNITS, options=OPTIONS, rows=st.integers(1, 20), lives=st.lists(st.integers(0, 3), max_size=4))
def test_every_change_once_and_in_order(units: Any, options: dict[str, int], rows: int, lives: list[int]):
    """I7, I10: with kills at any commits; only MAXTRANSOPS ends a batch inside a transaction."""
    made = Shaped.of(units)
    batches = lived(made, Cutting(**options), lives, rows)
    assert [change for _, changes in batches for change in changes] == made.changes
    sizes = {number: sum(int(csn) == number for csn, _ in made.changes) for number in csns(made.changes)}
    for number, (batch, changes) in enumerate(batches):
        assert batch.changes == len(changes)
        if not batch.partial:
            assert batch.csn == changes[-1][0]
            assert changes[-1][1] == sizes[int(changes[-1][0])] - 1
        if batch.partial:
            assert options["split"]
            assert batches[number + 1][1][0] == (changes[-1][0], changes[-1][1] + 1)
            assert batches[number + 1][0].before == changes[-1][1] + 1


@settings(max_examples=100)
@given(units=UNITS, group=st.integers(1, 12))
def test_grouptransops(units: Any, group: int):
    """A batch closes with the very transaction that makes it enough; only the last one may have less."""
    made = Shaped.of(units)
    batches = [changes for _, changes in lived(made, Cutting(group=group), rows=10**6)]
    assert [change for changes in batches for change in changes] == made.changes
    for number, changes in enumerate(batches):
        last = [change for change in changes if change[0] == changes[-1][0]]
        assert len(changes) - len(last) < group
        assert len(changes) >= group or number == len(batches) - 1
    if group == 1:
        assert all(len(csns(changes)) == 1 for changes in batches)


@settings(max_examples=100)
@given(
    units=UNITS,
    options=OPTIONS,
    end=st.integers(0, 40),
    lives=st.lists(st.integers(0, 3), max_size=3),
    at=st.booleans(),
)
def test_end(units: Any, options: dict[str, int], end: int, lives: list[int], at: bool):
    """END at a CSN or a time: all up to it, none behind, however often the process dies; then it says why it ends."""
    made = Shaped.of(units)
    border = Border("@", time_us=end + 1) if at else Border(">", csn_of(end))
    cutting = Cutting(**options, end=border)
    batches = lived(made, cutting, lives)
    assert [c for _, changes in batches for c in changes] == [c for c in made.changes if int(c[0]) <= end]
    last = (batches[-1][0].end, batches[-1][0].split) if batches else (None, 0)
    again = made.batcher(cutting, at=last)
    assert again.next() is None
    beyond = any(int(csn) > end for csn, _ in made.changes)
    assert bool(again.ended) == beyond


@settings(max_examples=100)
@given(
    units=UNITS, options=OPTIONS, begin=st.integers(0, 40), kind=st.sampled_from([">=", ">", "@"]),
    lives=st.lists(st.integers(0, 3), max_size=3),
)  # fmt: skip
def test_begin(units: Any, options: dict[str, int], begin: int, kind: str, lives: list[int]):
    """ATCSN, AFTERCSN and BEGIN leave out exactly what lies before, wherever in a block the border runs."""
    made = Shaped.of(units)
    border = Border("@", time_us=begin) if kind == "@" else Border(kind, csn_of(begin))
    batches = lived(made, Cutting(**options), lives, skip=border.text)
    wanted = [c for c in made.changes if int(c[0]) > begin or (kind != ">" and int(c[0]) == begin)]
    assert [c for _, changes in batches for c in changes] == wanted
