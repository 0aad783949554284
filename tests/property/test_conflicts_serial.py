"""Conflicts in batches against conflicts one by one: whatever somebody else wrote, both end in the same rows.

The serial model takes each change by itself: the target's row, the decision, the write. The Replicat compacts, compares
by one join, narrows down what is refused, and resolves that. Rows and counts must be equal.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replicat.apply.discard import Discards
from replicat.model.plan import Conflict
from replicat.model.target import Layout, TargetColumn, TargetTable
from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from replicat.work.conflicts.deciding import Case, decide
from tests.support.list_target import ListTarget, Store
from tests.support.replicat_trail import InlineEngine, TrailFeed
from trails.position import TrailName
from trails.record import Column, Op, TableDef
from trails.runtime.home.registration import Registration
from trails.runtime.language.params import parse_text
from trails.testing import FakeClock, FaultFs

TRAIL = TrailName("/home/dirdat", "rt")
REG = Registration("REP1", "REPLICAT", "TRAIL", trail="./dirdat/rt", group_key=1, added_us=5)
COLUMNS, LOGICAL = ("id", "a", "n"), ("integer", "text", "integer")
KV = TableDef("s", "kv", tuple(Column(c, t, t, key=c == "id") for c, t in zip(COLUMNS, LOGICAL, strict=True)))
LAYOUT = Layout("s", "kv", COLUMNS, ("text",) * 3, ("id",), logical=LOGICAL)
SHAPE = TargetTable("s", "kv", tuple(TargetColumn(c, "text") for c in COLUMNS), (frozenset(["id"]),))
KEYS = ("1", "2", "3")
METHODS = {
    "INSERTROWEXISTS": ("", "(DEFAULT, OVERWRITE)", "(DEFAULT, IGNORE)", "(DEFAULT, USEMAX (n))"),
    "UPDATEROWEXISTS": (
        "", "(DEFAULT, OVERWRITE)", "(DEFAULT, IGNORE)", "(DEFAULT, USEMINEQ (n))",
        "(sums, USEDELTA, COLS (n)), (DEFAULT, IGNORE)", "(newest, USEMAX (n), COLS (a, n)), (DEFAULT, IGNORE)",
    ),
    "UPDATEROWMISSING": ("", "(DEFAULT, OVERWRITE)", "(DEFAULT, IGNORE)"),
    "DELETEROWEXISTS": ("", "(DEFAULT, OVERWRITE)", "(DEFAULT, IGNORE)"),
    "DELETEROWMISSING": ("", "(DEFAULT, IGNORE)"),
}  # fmt: skip
Row = tuple[str, str, str]

rows = st.tuples(st.sampled_from("ab"), st.sampled_from(("1", "5", "10")))
theirs = st.dictionaries(st.sampled_from(KEYS), rows, max_size=3)
steps = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS), st.sampled_from("iuumd"), rows, st.booleans()), max_size=8
)
rules = st.tuples(*(st.sampled_from(methods) for methods in METHODS.values()))


def history(ours: dict[str, Any], choices: list[Any]) -> list[list[tuple[Any, ...]]]:
    """Transactions that a source with these rows could have done."""
    source: dict[str, Row] = {key: (key, *row) for key, row in ours.items()}
    found: list[list[tuple[Any, ...]]] = [[]]
    for key, other, kind, row, commits in choices:
        new = (other if kind == "m" else key, *row)
        if kind == "i" and key not in source:
            found[-1].append((Op.INSERT, KV, new))
        elif (kind == "u" and key in source) or (kind == "m" and key in source and other not in source):
            found[-1].append((Op.UPDATE, KV, new, source.pop(key)))
        elif kind == "d" and key in source:
            found[-1].append((Op.DELETE, KV, source.pop(key)))
            new = ()
        else:
            continue
        if new:
            source[new[0]] = new
        if commits:
            found.append([])
    return [changes for changes in found if changes]


def serial(target: dict[str, Row], conflict: Conflict, transactions: list[list[tuple[Any, ...]]]) -> Counter[str]:
    """Each change by itself; what is refused is left out. Returns what REPORTCDR counts."""
    counted: Counter[str] = Counter()
    for op, _, image, *rest in (change for changes in transactions for change in changes):
        before = rest[0] if rest else image if op == Op.DELETE else None
        after = None if op == Op.DELETE else image
        key = (before or image)[0]
        decision = decide(Case(LAYOUT, conflict, op.name.lower(), before, after), target.get(key))
        written = decision.row if decision.kind == "put" else after
        in_the_way = written is not None and written[0] != key and written[0] in target
        refused = decision.kind == "refuse" or (decision.kind in ("put", "plain") and in_the_way)
        if decision.conflict and not (in_the_way and decision.kind == "put"):
            counted["CDR conflicts"] += 1
            counted["CDR resolutions " + ("failed" if refused else "succeeded")] += 1
        if refused or decision.kind == "keep":
            continue
        target.pop(key, None)
        if decision.kind != "remove" and written is not None:
            target[written[0]] = tuple(written)  # type: ignore[assignment]  # three texts
    return counted


@settings(max_examples=150)
@given(ours=theirs, elsewhere=theirs, choices=steps, chosen=rules, same=st.booleans())
def test_a_batch_ends_as_its_changes_one_by_one(
    ours: dict[str, Any], elsewhere: dict[str, Any], choices: list[Any], chosen: tuple[str, ...], same: bool
):
    """With `same` the target begins as the source did: then there is no conflict at all."""
    there = {key: (key, *row) for key, row in (ours if same else elsewhere).items()}
    transactions = history(ours, choices)
    options = [f"RESOLVECONFLICT ({kind}, {rule})" for kind, rule in zip(METHODS, chosen, strict=True) if rule]
    text = (
        "REPLICAT rep1\nTARGETDB postgresql://x/y\nREPERROR (DEFAULT, IGNORE)\n"
        f"MAP s.kv, TARGET s.kv, {', '.join(['COMPARECOLS (ON UPDATE ALL, ON DELETE ALL)', *options])};\n"
    )
    params = ReplicatParams.from_statements(parse_text(text, "p"))

    fs = FaultFs()
    feed = TrailFeed(fs, TRAIL)
    for changes in transactions:
        feed.tx(*changes)
    feed.close()
    store = Store({("s", "kv"): {(key,): row for key, row in there.items()}})
    process = Replicat(
        params, REG, TRAIL, fs=fs, clock=FakeClock(), target=ListTarget(store, [SHAPE]), engine=InlineEngine(fs),
        note=lambda text: None, discards=Discards("REP1", params.error_rules, clock=FakeClock()),
    )  # fmt: skip
    while process.step():
        pass
    tables = process.stats.to_reply()["tables"]
    process.close()

    conflict = Conflict((1, 2), (1, 2), params.maps[0].resolve)
    counted = serial(there, conflict, transactions)
    assert store.tables.get(("s", "kv"), {}) == {(key,): row for key, row in there.items()}
    more = tables[0].get("more", {}) if tables else {}
    assert {name: more.get(name, 0) for name in counted} == counted
    if same:
        assert not counted
