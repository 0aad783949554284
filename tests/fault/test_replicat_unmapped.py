"""A change that no row of the target can be made of: told with its row and place, and what is before it is applied."""

from __future__ import annotations

from typing import Any

import pytest

from replicat.apply.discard import Discards
from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from tests.fault.test_replicat_discards import SHAPES
from tests.fault.test_replicat_discards import params as discard_params
from tests.support.list_target import ListTarget, Store, shape
from tests.support.replicat_lives import DISCARDS, REG, TRAIL, Lives, apply_all, trail_with
from tests.support.replicat_trail import InlineEngine, TrailFeed, table
from trails.errors import OperatorError
from trails.record import MISSING, Op
from trails.runtime.language.params import parse_text
from trails.testing import FakeClock

KV, BAG, NEW = table("s", "kv", "id v", "id"), table("s", "bag", "note n"), table("s", "new", "id v", "id")
TEXT = "REPLICAT rep1\nTARGETDB postgresql://x/y\nREPERROR (DEFAULT, IGNORE)\nMAP s.*, TARGET s.*;\n"


def run(store: Store, *changes: Any, params: str = TEXT) -> list[str]:
    """Two good transactions around one of these changes, all in one batch; the process's notes."""

    def script(feed: TrailFeed) -> None:
        feed.tx((Op.INSERT, KV, ["1", "a"]))
        feed.tx((Op.INSERT, KV, ["2", "b"]), *changes)
        feed.tx((Op.INSERT, KV, ["3", "c"]))

    fs, notes = trail_with(script), []
    shapes = [shape("s", "kv", "id v", "id"), shape("s", "bag", "note n")]
    made = ReplicatParams.from_statements(parse_text(params, "rep1.prm"))
    process = Replicat(
        made, REG, TRAIL, fs=fs, clock=FakeClock(), target=ListTarget(store, shapes), engine=InlineEngine(fs),
        note=notes.append, discards=Discards("REP1", made.error_rules, clock=FakeClock()),
    )  # fmt: skip
    try:
        apply_all(process)
    finally:
        process.close()
    return notes


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            (Op.INSERT, NEW, ["9", "x"]),
            (
                r"s\.new: no target row can be made of the insert of row \(9\): "
                r".*MAP s\.new: .*s\.new.* does not exist\..*; position 0/\d+, CSN 0+2, change 1"
            ),
        ),
        (
            (Op.UPDATE, BAG, ["x", "2"]),
            (
                r"s\.bag: no target row can be made of the update of row \(no key\): .*"
                r"came without the whole row as it was; position .*change 1\. ADD TRANDATA .*\. Then START again"
            ),
        ),
        (
            (Op.INSERT, KV, ["9", MISSING]),
            r"s\.kv: no target row can be made of the insert of row \(9\): .*new row with key \(9\) came without v",
        ),
    ],
    ids=["no table", "no before image", "not whole"],
)
def test_the_change_is_named_and_what_lies_before_is_applied(change: Any, told: str):
    """One message with table, row, position and CSN; no REPERROR gives it up; START can skip just its transaction."""
    store = Store()
    with pytest.raises(OperatorError, match=told):
        run(store, change)
    assert store.tables == {("s", "kv"): {("1",): ("1", "a")}}
    assert store.row is not None
    assert store.row.csn == "0000000000000001"


def test_a_truncate_that_would_empty_too_much_is_named():
    """It has no one table or row of its own to be known by."""
    params = TEXT.replace("MAP s.*, TARGET s.*;", "MAP s.kv, TARGET s.kv;\nMAP s.new, TARGET s.kv;")
    store = Store()
    with pytest.raises(OperatorError, match=r"s\.kv: no target row can be made of the truncate .*rows of s\.new"):
        run(store, (Op.INSERT, NEW, ["8", "x"]), (Op.TRUNCATE, [KV], 0), params=params)
    assert store.tables == {("s", "kv"): {("1",): ("1", "a")}}


def test_a_condemned_transaction_takes_it_along():
    """TRANSDISCARD gives up all of the transaction: the record says what there is, and nobody asks for the table."""

    def script(feed: TrailFeed) -> None:
        feed.tx((Op.INSERT, KV, ["1", "a"]))
        feed.tx((Op.INSERT, KV, ["1", "b"]), (Op.INSERT, NEW, ["9", "x"]))
        feed.tx((Op.INSERT, KV, ["3", "c"]))

    asked = discard_params("REPERROR (23505, TRANSDISCARD)")
    run = Lives(script, asked, SHAPES, {("s", "kv"): {(k,): (k, v) for k, v in (("1", "a"), ("3", "c"))}}, [])
    run()
    assert run.store.tables == run.wanted
    assert run.records() == [(2, 0), (2, 1)]
    text = run.fs.open(DISCARDS).read_at(0, 1 << 20).decode()
    assert 'id = "9"\nv = "x"\n' in text
