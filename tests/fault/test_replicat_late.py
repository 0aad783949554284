"""Unique values that change hands inside one transaction larger than a job: as the whole of it has them, or not at all.

The source checks its constraint at the end of the transaction; the target here checks with each call.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicat.apply.late import Late
from replicat.params import ReplicatParams
from tests.fault.test_replicat_discards import PARAMS, SHAPES
from tests.fault.test_replicat_discards import params as discard_params
from tests.support.list_target import ListTarget, shape
from tests.support.replicat_lives import FailAt, Lives, calls_of, killed_at
from tests.support.replicat_trail import TrailFeed, table
from trails.errors import AwayError
from trails.record import Column, Op
from trails.runtime.language.params import parse_text
from trails.testing import After

KV, LOG = table("s", "kv", "id v", "id"), table("s", "log", "note")
NOISE = [(Op.INSERT, LOG, [f"n{n}"]) for n in range(12)]
ABENDS = discard_params()


def swap(feed: TrailFeed) -> None:
    """Two rows change values, twelve changes apart; then one of them moves to another key, and somebody takes it."""
    feed.tx((Op.INSERT, KV, ["1", "a"]), (Op.INSERT, KV, ["2", "b"]))
    feed.tx(
        (Op.UPDATE, KV, ["1", "b"]), *NOISE, (Op.UPDATE, KV, ["2", "a"]), (Op.UPDATE, KV, ["3", "b"], ["1", "b"]),
        (Op.INSERT, KV, ["1", "c"]), pieces=5,
    )  # fmt: skip
    feed.tx((Op.UPDATE, KV, ["2", "z"]))


SWAPPED = {
    ("s", "kv"): {(k,): (k, v) for k, v in (("1", "c"), ("2", "z"), ("3", "b"))},
    ("s", "log"): [(f"n{n}",) for n in range(12)],
}


def test_a_swap_over_the_borders_of_jobs():
    """The first half waits for the second; what has nothing to do with it is not held up."""
    run = Lives(swap, ABENDS, SHAPES, SWAPPED, [])
    counted = {row["from"]: row for row in run().stats.to_reply()["tables"]}
    run.check("clean")
    assert {k: counted["s.kv"][k] for k in ("inserts", "updates")} == {"inserts": 3, "updates": 4}
    assert counted["s.log"]["inserts"] == 12


def test_a_kill_or_a_loss_at_any_call():
    """What waits is in memory only, as all of the open transaction."""
    for number in range(1, calls_of(Lives(swap, ABENDS, SHAPES, SWAPPED, [])) + 1):
        killed_at(Lives(swap, ABENDS, SHAPES, SWAPPED, []), number, After.KILL)
        run = Lives(swap, ABENDS, SHAPES, SWAPPED, [])
        run(run.target(FailAt(number, AwayError("gone")))) if number > 3 else run()
        run.check(number)


def test_what_the_end_does_not_permit_is_judged_there():
    """With all that came of the row meanwhile, each change by itself; the record stands once."""

    def script(feed: TrailFeed) -> None:
        feed.tx((Op.INSERT, KV, ["1", "a"]))
        feed.tx((Op.INSERT, KV, ["2", "a"]), *NOISE, (Op.UPDATE, KV, ["2", "c"]), (Op.INSERT, KV, ["3", "d"]), pieces=4)

    wanted = {("s", "kv"): {(k,): (k, v) for k, v in (("1", "a"), ("3", "d"))}, ("s", "log"): SWAPPED["s", "log"]}
    # Together they are a row with a value of its own: nothing is refused in the end.
    wanted["s", "kv"]["2",] = ("2", "c")
    run = Lives(script, PARAMS, SHAPES, wanted, [])
    run()
    run.check("made good")

    def refused(feed: TrailFeed) -> None:
        feed.tx((Op.INSERT, KV, ["1", "a"]))
        feed.tx((Op.INSERT, KV, ["2", "a"]), *NOISE, (Op.INSERT, KV, ["3", "d"]), pieces=4)

    del wanted["s", "kv"]["2",]
    run = Lives(refused, PARAMS, SHAPES, wanted, [(2, 0)])
    run()
    run.check("refused")


def test_a_truncate_takes_what_waits_with_it():
    """Nobody misses the row that would have had the other's value; what comes behind is new."""

    def script(feed: TrailFeed) -> None:
        feed.tx((Op.INSERT, KV, ["1", "a"]), (Op.INSERT, KV, ["2", "b"]))
        feed.tx((Op.UPDATE, KV, ["1", "b"]), *NOISE, (Op.TRUNCATE, [KV], 0), (Op.INSERT, KV, ["1", "z"]), pieces=4)

    wanted = {("s", "kv"): {("1",): ("1", "z")}, ("s", "log"): SWAPPED["s", "log"]}
    run = Lives(script, ABENDS, SHAPES, wanted, [])
    counted = {row["from"]: row for row in run().stats.to_reply()["tables"]}
    run.check("clean")
    assert {k: counted["s.kv"][k] for k in ("inserts", "updates", "truncates")} == {
        "inserts": 3, "updates": 1, "truncates": 1,
    }  # fmt: skip


def test_a_condemned_transaction_behind_one_that_waits():
    """In one job: what waits comes first, whatever becomes of the next transaction."""

    def script(feed: TrailFeed) -> None:
        feed.tx((Op.INSERT, KV, ["1", "a"]), (Op.INSERT, KV, ["2", "b"]))
        feed.tx((Op.UPDATE, KV, ["1", "b"]), *NOISE, (Op.UPDATE, KV, ["2", "a"]), pieces=4)
        feed.tx((Op.INSERT, KV, ["3", "c"]), (Op.INSERT, KV, ["4", "a"]))
        feed.tx((Op.UPDATE, KV, ["1", "d"]))

    wanted = {("s", "kv"): {(k,): (k, v) for k, v in (("1", "d"), ("2", "a"))}, ("s", "log"): SWAPPED["s", "log"]}
    for rows in (4, 100):  # in jobs of their own, or together
        asked = discard_params("REPERROR (23505, TRANSDISCARD)")
        run = Lives(script, replace(asked, batch_rows=rows), SHAPES, wanted, [(3, 0), (3, 1)])
        run()
        run.check(rows)


@pytest.mark.parametrize("bound", [{"MOST": 1}, {"MOST_BYTES": 1}], ids=["rows", "bytes"])
def test_beyond_the_bound_nothing_waits_and_no_order_is_lost(bound: dict[str, int], monkeypatch: pytest.MonkeyPatch):
    """A change that would have to wait for its row has what waits judged first; memory does not grow with the row."""
    for name, value in bound.items():
        monkeypatch.setattr(f"replicat.apply.late.{name}", value)
    most = []
    add = Late.add
    monkeypatch.setattr(Late, "add", lambda self, *args: (add(self, *args), most.append(len(self.parts))))

    def script(feed: TrailFeed) -> None:
        feed.tx((Op.INSERT, KV, ["1", "a"]), (Op.INSERT, KV, ["2", "b"]))
        changes = [(Op.UPDATE, KV, ["1", value]) for value in "bcde"]
        feed.tx(*changes[:1], *NOISE, *changes[1:], (Op.UPDATE, KV, ["2", "a"]), pieces=5)

    wanted = {("s", "kv"): {("1",): ("1", "e"), ("2",): ("2", "a")}, ("s", "log"): SWAPPED["s", "log"]}
    run = Lives(script, PARAMS, SHAPES, wanted, [(2, 0)])
    run()
    run.check(bound)
    assert max(most) == 1


CDR = """
MAP s.kv, TARGET s.kv, COMPARECOLS (ON UPDATE ALL),
    RESOLVECONFLICT (UPDATEROWEXISTS, (sums, USEDELTA, COLS (n)), (DEFAULT, OVERWRITE));
MAP s.log, TARGET s.log;
"""


def test_a_conflict_of_a_change_that_waits_is_resolved_all_the_same():
    """The target's n is somebody else's: it moves by as much as the source's, and is not written over."""
    n = Column("n", "integer", "integer")
    kv = replace(KV, columns=(*KV.columns, n))
    theirs = {("1",): ("1", "a", "10"), ("2",): ("2", "b", "0")}

    def script(feed: TrailFeed) -> None:
        free = (Op.UPDATE, kv, ["2", "c", "0"], ["2", "b", "0"])
        feed.tx((Op.UPDATE, kv, ["1", "b", "2"], ["1", "a", "1"]), *NOISE, free, pieces=4)

    text = f"REPLICAT rep1\nTARGETDB postgresql://x/y\nBATCHROWS 4\n{CDR}"
    asked = ReplicatParams.from_statements(parse_text(text, "p"))
    wanted = {("s", "kv"): {("1",): ("1", "b", "11"), ("2",): ("2", "c", "0")}, ("s", "log"): SWAPPED["s", "log"]}
    run = Lives(script, asked, [shape("s", "kv", "id v n", "id"), SHAPES[1]], wanted, [])
    run.store.tables = {("s", "kv"): dict(theirs)}
    counted = {row["from"]: row for row in run().stats.to_reply()["tables"]}
    run.check()
    assert counted["s.kv"]["updates"] == 2
    assert counted["s.kv"]["more"]["CDR conflicts"] == 1, counted["s.kv"]["more"]


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12),
    noise=st.lists(st.integers(0, 12), max_size=10),
    pieces=st.integers(2, 9),
)
def test_any_change_of_hands_arrives(steps: list[tuple[int, int]], noise: list[int], pieces: int):
    """Rows swap values in any order and at any distance: the target ends as the source did."""
    values = [f"v{n}" for n in range(5)]
    changes = []
    for one, other in steps:
        if one != other:
            values[one], values[other] = values[other], values[one]
            changes += [(Op.UPDATE, KV, [str(n), values[n]]) for n in (one, other)]
    for n, at in enumerate(noise):
        changes.insert(min(at, len(changes)), (Op.INSERT, LOG, [str(n)]))

    def script(feed: TrailFeed) -> None:
        feed.tx(*((Op.INSERT, KV, [str(n), f"v{n}"]) for n in range(5)))
        feed.tx(*changes, pieces=pieces) if changes else None

    run = Lives(script, ABENDS, SHAPES, {}, [])
    target: ListTarget = run.target()
    run(target)
    assert run.store.tables["s", "kv"] == {(str(n),): (str(n), value) for n, value in enumerate(values)}
    assert len(run.store.tables.get(("s", "log"), [])) == len(noise)
