"""Compaction against serial replay: whatever the order of changes, the net effect gives the rows that replay gives.

Three keys are alike, so only sequences whose keys appear in the order 1, 2, 3 are walked.
tests/e2e/test_replicat_replay.py runs a sample through real targets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicat.model.plan import TablePlan
from replicat.model.target import Layout, RefusedError, Rows
from replicat.work.net.compact import Net
from replicat.work.net.heap import Heap
from replicat.work.net.overlay import Entry, Overlay
from replicat.work.net.rows import heap_bag, net_rows, overlay_rows
from tests.support.hostile import MANY
from tests.support.list_target import Effect, ListTarget, Store
from tests.support.replay import KEYS, PARTLY, WHOLE, Change, Table, feed, overlaid, starts, strictly

STRICT = Layout("s", "t", ("k", "a", "b"), ("text",) * 3, ("k",), extras=("own",), extra_types=("text",))
BARE = replace(STRICT, extras=(), extra_types=())
LENIENT = replace(STRICT, collisions=True)


def plan_of(layout: Layout) -> TablePlan:
    return TablePlan("s.t", "s.t", layout, (0,))


def applied(start: Table, rows: Rows, *, rewrite: bool = False) -> Table:
    """The net effect on these rows."""
    target = ListTarget(Store(), [])
    extras = len(rows.layout.extras)
    target._tables = {("s", "t"): {(key,): row[: 3 + extras] for key, row in start.items()}}
    Effect(target, rows, rewrite).apply()
    return {key: row for (key,), row in target._tables[("s", "t")].items()}


def bare(table: Table) -> Table:
    return {key: row[:3] for key, row in table.items()}


def copied(net: Net | Overlay) -> Any:
    if isinstance(net, Overlay):
        # What is in an entry is never changed.
        twins = {
            key: Entry(entry.before, entry.alts, entry.sure, entry.partly, entry.left, entry.may, entry.firm)
            for key, entry in net.entries.items()
        }
        other = Overlay((0,))
        other.entries, other.collisions = twins, list(net.collisions)
        return other
    twin = Net((0,))
    for name in ("base", "gone", "new", "old", "void"):
        setattr(twin, name, dict(getattr(net, name)))
    twin.collisions = list(net.collisions)
    return twin


def in_order(seen: str, change: Change) -> str | None:
    """The keys named so far; None if this change names one before its turn."""
    for key in dict.fromkeys((change[1], *change[2:3])):
        if key in seen:
            continue
        if key != KEYS[len(seen)]:
            return None
        seen += key
    return seen


@pytest.mark.parametrize(("most", "walks"), [(4, 10_000), pytest.param(5, 100_000, marks=pytest.mark.soak)])
def test_OT_16_every_sequence_of_operations_over_three_keys(most: int, walks: int):
    """OT-14 to OT-16: all that a source can do, from every start, updates that lack columns among it: applied
    strictly, never refused, and columns of the target's own go where replay takes them."""
    walked = 0

    def walk(start: Table, table: Table, net: Net, seen: str, depth: int) -> None:
        nonlocal walked
        for change in [*WHOLE, *PARTLY]:
            after, named = strictly(table, depth, change), in_order(seen, change)
            if after is None or named is None:
                continue
            longer = copied(net)
            feed(longer, depth, change)
            assert applied(start, net_rows(plan_of(STRICT), copied(longer))) == after
            walked += 1
            if depth < most:
                walk(start, after, longer, named, depth + 1)

    for start in starts():
        walk(start, start, Net((0,)), "", 1)
    assert walked > walks


@pytest.mark.parametrize("kinds", ["II", "IU", "ID", "UI", "UU", "UD", "DI", "DU", "DD"])
def test_OT_14_two_changes_of_a_row_come_to_one(kinds: str):
    """As the later one has it: a row with its values, or none; whether the target had the row before or not. Some pairs
    come only where a load and the changes overlap, so this is HANDLECOLLISIONS.
    """
    for start in ({}, starts()[-1]):
        net, table = Overlay((0,)), dict(start)
        for number, kind in enumerate(kinds, 1):
            change = ("U", "1", "1", "ab") if kind == "U" else (kind, "1")
            table = overlaid(table, number, change)
            feed(net, number, change)
        found = applied(start, overlay_rows(plan_of(LENIENT), net))
        assert found == table
        assert [row[:3] for key, row in found.items() if key == "1"] == ([] if kinds[1] == "D" else [("1", "a2", "b2")])


def test_what_no_source_can_have_done_is_refused_and_nothing_else():
    """Strict: every sequence of up to four changes over three keys, from every start, is refused if any change of it
    finds a row missing or doubled; none that all fit is."""
    refused = fitting = 0

    def walk(tables: list[tuple[Table, Table | None]], net: Net, seen: str, depth: int) -> None:
        nonlocal refused, fitting
        for change in WHOLE:
            named = in_order(seen, change)
            if named is None:
                continue
            longer = copied(net)
            feed(longer, depth, change)
            rows = net_rows(plan_of(BARE), copied(longer))
            states = [(start, None if now is None else strictly(now, depth, change)) for start, now in tables]
            for start, now in states:
                if now is None:
                    refused += 1
                    with pytest.raises(RefusedError):
                        applied(start, rows)
                else:
                    fitting += 1
                    assert applied(start, rows) == bare(now)
            if depth < 4:
                walk(states, longer, named, depth + 1)

    walk([(start, start) for start in starts()], Net((0,)), "", 1)
    assert refused > 50_000 < fitting + refused


@pytest.mark.hostile  # in `make soak` one operation more
@pytest.mark.parametrize(
    ("alphabet", "most", "least"),
    [
        (WHOLE, 4 + bool(MANY), 100_000 if MANY else 5_000),
        ([*WHOLE, *PARTLY], 3 + bool(MANY), 50_000 if MANY else 2_000),
    ],
    ids=["whole", "partly"],
)
def test_every_sequence_under_handlecollisions(alphabet: list[Change], most: int, least: int):
    """Valid or not, whatever rows the target has: overlaid as replay overlays them, one change after the other."""
    walked = 0

    def walk(tables: list[tuple[Table, Table]], net: Overlay, seen: str, depth: int) -> None:
        nonlocal walked
        for change in alphabet:
            named = in_order(seen, change)
            if named is None:
                continue
            longer = copied(net)
            feed(longer, depth, change)
            rows = overlay_rows(plan_of(LENIENT), longer)
            walked += 1
            # The longest ones take turns at the eight starts; all others are tried from each.
            of_these = tables if depth < most else tables[walked % 8 :][:1]
            states = [(start, overlaid(now, depth, change)) for start, now in of_these]
            for start, now in states:
                assert applied(start, rows) == now
            if depth < most:
                walk(states, longer, named, depth + 1)

    walk([(start, start) for start in starts()], Overlay((0,)), "", 1)
    assert walked > least


change = st.one_of(
    st.tuples(st.just("I"), st.sampled_from(KEYS)),
    st.tuples(st.just("D"), st.sampled_from(KEYS)),
    st.tuples(st.just("U"), st.sampled_from(KEYS), st.sampled_from(KEYS), st.sampled_from(["ab", "a", "b", ""])),
)
quick = settings(max_examples=300)


@quick
@given(st.sampled_from(starts()), st.lists(change, max_size=30), st.booleans())
def test_long_sequences_with_missing_columns(start: Table, wanted: list[Change], rewrite: bool):
    """Random sequences, also by DELETE and INSERT: changes that can't be are left out."""
    table, net = start, Net((0,))
    for number, each in enumerate(wanted):
        after = strictly(table, number, each)
        if after is not None:
            table = after
            feed(net, number, each, old=number % 2 == 0)
    assert applied(start, net_rows(plan_of(STRICT), net), rewrite=rewrite) == table


@quick
@given(st.sampled_from(starts()), st.lists(change, max_size=30))
def test_long_sequences_under_handlecollisions(start: Table, wanted: list[Change]):
    """Any changes at all."""
    table, net = start, Overlay((0,))
    for number, each in enumerate(wanted):
        table = overlaid(table, number, each)
        feed(net, number, each)
    assert applied(start, overlay_rows(plan_of(LENIENT), net)) == table


@quick
@given(st.sampled_from(starts()), st.lists(change, max_size=12), st.integers(0, 12))
def test_CW_21_half_a_batch_applied_before_a_longer_one_ends_the_same(start: Table, wanted: list[Change], done: int):
    """CW-21: a target without transactions keeps the first part of a batch; the next run's batch begins there again,
    with collisions overlaid. Whole rows only: there is no row left to fill a missing column from."""
    table, half, both, number = start, Overlay((0,)), Overlay((0,)), 0
    for each in wanted:
        whole = (*each[:3], "ab") if each[0] == "U" else each
        after = strictly(table, number, whole)
        if after is None:
            continue
        table = after
        for net in (half, both) if number < done else (both,):
            feed(net, number, whole)
        number += 1
    layout = replace(BARE, collisions=True)
    first = applied(start, overlay_rows(plan_of(layout), half))
    assert applied(first, overlay_rows(plan_of(layout), both)) == bare(table)


def test_CW_21_key_chain_leaves_nothing_in_the_middle():
    """CW-21 by hand: k1 to k2 was applied, then the batch comes again as k1 to k2 to k3."""
    start = {"1": ("1", "x", "y")}
    plan, nets = plan_of(replace(BARE, collisions=True)), (Overlay((0,)), Overlay((0,)))
    for net in nets:
        feed(net, 1, ("U", "1", "2", "ab"))
    feed(nets[1], 2, ("U", "2", "3", "ab"))
    half = applied(start, overlay_rows(plan, nets[0]))
    assert list(applied(half, overlay_rows(plan, nets[1]))) == ["3"]


lines = st.lists(st.sampled_from("abc"), min_size=1, max_size=1).map(tuple)
heap_change = st.one_of(
    st.tuples(st.just("insert"), lines), st.tuples(st.just("delete"), lines), st.tuples(st.just("update"), lines, lines)
)


@quick
@given(st.lists(lines, max_size=4), st.lists(heap_change, max_size=15))
def test_tables_without_a_key(start: list[Any], wanted: list[Any]):
    """Equal rows are interchangeable, so all that counts is how many there are of each."""
    rows, heap = list(start), Heap()
    for verb, *args in wanted:
        if verb == "insert":
            rows.append(args[0])
        elif args[0] in rows:
            rows.remove(args[0])
            rows += args[1:]
        else:
            continue
        getattr(heap, verb)(*args)
    target = ListTarget(Store(), [])
    target._tables = {("s", "t"): list(start)}
    target._bag(heap_bag(TablePlan("s.t", "s.t", Layout("s", "t", ("v",), ("text",), ()), ()), heap))
    assert sorted(target._tables["s", "t"]) == sorted(rows)
