"""Compaction against serial replay: whatever the order of changes, the net effect gives the rows that replay gives."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replicat.compact import Net
from replicat.netrows import net_rows
from replicat.plan import TablePlan
from replicat.target import Layout, Work
from tests.support.list_target import ListTarget, Store, parse
from trails.record import MISSING

LAYOUT = Layout("s", "t", ("k", "a", "b"), ("text",) * 3, ("k",))
PLAN = TablePlan("s.t", "s.t", LAYOUT, (0,))
KEYS = ("1", "2", "3")
Op = tuple[Any, ...]
Table = dict[str, tuple[Any, ...]]


def replay(table: Table, ops: list[Op]) -> Table | None:
    """Serial replay; None if the source could never have done this (a duplicate key, a row that is not there)."""
    table = dict(table)
    for number, (kind, key, *rest) in enumerate(ops):
        if kind == "I":
            if key in table:
                return None
            table[key] = (key, f"a{number}", f"b{number}")
            continue
        if key not in table:
            return None
        row = table.pop(key)
        if kind == "D":
            continue
        to, given_columns = rest
        if to in table:
            return None
        after = _after(to, number, given_columns)
        table[to] = tuple(old if new is MISSING else new for old, new in zip(row, after, strict=True))
    return table


def _after(to: str, number: int, given_columns: str) -> tuple[Any, ...]:
    return (to, *(f"{c}{number}" if c in given_columns else MISSING for c in "ab"))


def net_of(ops: list[Op]) -> Net:
    """What compaction makes of the same operations."""
    net = Net((0,))
    for number, (kind, key, *rest) in enumerate(ops):
        if kind == "I":
            net.insert((key, f"a{number}", f"b{number}"))
        elif kind == "D":
            net.delete((key, MISSING, MISSING))
        else:
            to, given_columns = rest
            net.update(_after(to, number, given_columns), None if to == key else (key, MISSING, MISSING))
    return net


def apply(table: Table, net: Net) -> Table:
    """The net effect, by the steps a target gets."""
    target = ListTarget(Store(), [])
    target._tables = {("s", "t"): {(key,): row for key, row in table.items()}}
    target.apply((Work((net_rows(PLAN, net),)),))
    return {key: row for (key,), row in target._tables[("s", "t")].items()}


def touched(ops: list[Op]) -> set[str]:
    """Every key that is named."""
    return {key for _, key, *rest in ops for key in (key, *(rest[:1]))}


def settled(net: Net) -> set[str]:
    """Keys that the net effect leaves as a delete, an insert or an upsert."""
    rows = net_rows(PLAN, net)
    blobs = (rows.deletes, rows.inserts, rows.upserts)
    return {row[0] for blob in blobs for row in parse(blob.read())} | {fill.row[0] for fill in rows.fills}


ALPHABET = [
    *(("I", k) for k in KEYS),
    *(("D", k) for k in KEYS),
    *(("U", k, to, "ab") for k in KEYS for to in KEYS),
]


def starts() -> list[Table]:
    """All sets of rows that may be there before."""
    return [
        {k: (k, f"old-a{k}", f"old-b{k}") for k, there in zip(KEYS, choice, strict=True) if there}
        for choice in product((False, True), repeat=len(KEYS))
    ]


def test_every_sequence_of_up_to_five_operations_over_three_keys():
    """Exhaustive, key changes included (OT-16): only sequences that a source can do are walked, from every start."""
    walked = 0

    def walk(start: Table, table: Table, ops: list[Op]) -> None:
        nonlocal walked
        for op in ALPHABET:
            if (op[0] == "I") == (op[1] in table) or (op[0] == "U" and op[2] != op[1] and op[2] in table):
                continue
            longer = [*ops, op]
            after = replay(start, longer)
            assert after is not None
            net = net_of(longer)
            assert apply(start, net) == after, (start, longer)
            assert settled(net) == touched(longer), longer
            walked += 1
            if len(longer) < DEPTH:
                walk(start, after, longer)

    for start in starts():
        walk(start, start, [])
    assert walked > 10_000


DEPTH = 5

operation = st.one_of(
    st.tuples(st.just("I"), st.sampled_from(KEYS)),
    st.tuples(st.just("D"), st.sampled_from(KEYS)),
    st.tuples(st.just("U"), st.sampled_from(KEYS), st.sampled_from(KEYS), st.sampled_from(["ab", "a", "b", ""])),
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(starts()), st.lists(operation, max_size=30))
def test_long_sequences_with_missing_columns(start: Table, wanted: list[Op]):
    """Random sequences, updates that give only some columns among them: operations that can't be are left out."""
    ops: list[Op] = []
    for op in wanted:
        if replay(start, [*ops, op]) is not None:
            ops.append(op)
    after = replay(start, ops)
    assert after is not None
    net = net_of(ops)
    assert apply(start, net) == after
    assert settled(net) == touched(ops)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(starts()), st.lists(operation, max_size=12), st.data())
def test_half_a_batch_applied_before_a_longer_one_ends_the_same(start: Table, wanted: list[Op], data: st.DataObject):
    """CW-21: a target without transactions keeps the first part of a batch; the next run's batch begins there again.

    Whole rows only: a target without transactions has no row left to fill a missing column from.
    """
    ops: list[Op] = []
    for op in wanted:
        whole = (*op[:3], "ab") if op[0] == "U" else op
        if replay(start, [*ops, whole]) is not None:
            ops.append(whole)
    done = data.draw(st.integers(0, len(ops)))
    half = apply(start, net_of(ops[:done]))
    assert apply(half, net_of(ops)) == replay(start, ops)


def test_key_chain_leaves_nothing_in_the_middle():
    """CW-21 by hand: k1 to k2 was applied, then the batch comes again as k1 to k2 to k3."""
    start = {"1": ("1", "x", "y")}
    first = [("U", "1", "2", "ab")]
    both = [*first, ("U", "2", "3", "ab")]
    half = apply(start, net_of(first))
    assert list(apply(half, net_of(both))) == ["3"]
