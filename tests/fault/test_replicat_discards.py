"""Discarding while everything crashes: each skipped change is in the discard file, durable before its commit, once."""

from __future__ import annotations

import pytest

from replicat.apply.discardfile import Examined
from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from tests.support.list_target import ListTarget, shape
from tests.support.replicat_lives import DISCARDS, REG, TRAIL, FailAt, Lives, calls_of
from tests.support.replicat_trail import InlineEngine, TrailFeed, table
from trails.errors import AwayError, OperatorError
from trails.record import MISSING, Op
from trails.runtime.language.params import parse_text
from trails.testing import FakeClock

KV, LOG = table("s", "kv", "id v", "id"), table("s", "log", "note")
SHAPES = [shape("s", "kv", "id v", "id"), shape("s", "log", "note")]
TEXT = "REPLICAT rep1\nTARGETDB postgresql://x/y\nBATCHROWS 4\nRECONNECTSECS 60\n"


def params(*lines: str) -> ReplicatParams:
    return ReplicatParams.from_statements(parse_text(TEXT + "\n".join([*lines, "MAP s.*, TARGET s.*;\n"]), "p"))


PARAMS = params("REPERROR (23505, DISCARD)", "REPERROR (02000, DISCARD)")


def script(feed: TrailFeed) -> None:
    """Refused: a value that is there already, twice in one batch; one deep in a large transaction; a row not there."""
    feed.tx((Op.INSERT, KV, ["1", "a"]), (Op.INSERT, LOG, ["1"]))
    feed.tx(
        (Op.INSERT, LOG, ["2"]), (Op.INSERT, KV, ["2", "a"]), (Op.INSERT, KV, ["3", "a"]), (Op.INSERT, KV, ["4", "d"])
    )
    large = [(Op.INSERT, LOG, [f"3-{n}"]) for n in range(20)]
    feed.tx(*large[:13], (Op.INSERT, KV, ["5", "d"]), *large[13:], (Op.INSERT, KV, ["6", "f"]), pieces=6)
    feed.tx((Op.UPDATE, KV, ["9", MISSING], ["9", MISSING]), (Op.INSERT, LOG, ["4"]), (Op.DELETE, LOG, ["none"]))


WANTED = {
    ("s", "kv"): {(k,): (k, v) for k, v in (("1", "a"), ("4", "d"), ("6", "f"))},
    ("s", "log"): [("1",), ("2",), *((f"3-{n}",) for n in range(20)), ("4",)],
}
# (CSN, change) of what is refused.
DISCARDED = [(2, 1), (2, 2), (3, 13), (4, 0), (4, 2)]


class Run(Lives):
    """See Lives."""

    def __init__(self) -> None:
        super().__init__(script, PARAMS, SHAPES, WANTED, DISCARDED)


def test_a_clean_run_counts_and_warns():
    """Counted as discards, not as operations; one warning a batch; a restart discards nothing again."""
    run = Run()
    counted = {row["from"]: row for row in run().stats.to_reply()["tables"]}
    run.check("clean")
    assert {k: counted["s.kv"][k] for k in ("inserts", "updates", "discards")} == {
        "inserts": 3, "updates": 0, "discards": 4,
    }  # fmt: skip
    assert {k: counted["s.log"][k] for k in ("inserts", "deletes", "discards")} == {
        "inserts": 23, "deletes": 0, "discards": 1,
    }  # fmt: skip
    assert len(run.said) == 3
    assert run.said[0].endswith(f"(s.kv SQLSTATE 23505: 2); see {DISCARDS}")
    assert run().stats.total() == 0
    assert len(run.said) == 3


def test_a_rollover_begins_a_new_file_once_all_is_durable():
    """DISCARDROLLOVER: at the flush, when no change of the file can come again; asked without a file it is refused."""
    run = Run()
    run(None, "DISCARDROLLOVER")
    assert not run.fs.exists(DISCARDS)
    aged = DISCARDS.removesuffix(".dsc") + ".0.dsc"
    assert len(list(Examined(run.fs.open(aged)))) == len(DISCARDED)
    process = Replicat(
        PARAMS, REG, TRAIL, fs=run.fs, clock=FakeClock(), target=run.target(), engine=InlineEngine(run.fs),
        note=lambda text: None,
    )  # fmt: skip
    with pytest.raises(OperatorError, match="there is no discard file"):
        process.command("DISCARDROLLOVER", {})
    process.close()


def test_a_crash_at_every_call_of_the_target_and_the_file_system():
    """I8, I10, CW-01: before and after each commit, inside a record's write, between write and sync, between sync and
    commit; and while the next process mends the end of the file."""
    assert Run().crash_everywhere(again=lambda n: 1 + n % 60) > 30


def test_away_at_every_call_of_the_target():
    """The same process tries again: the records are there, and are not written twice, nor counted twice."""
    for number in range(4, calls_of(Run()) + 1):
        run = Run()
        stats = run(run.target(FailAt(number, AwayError("gone")))).stats.to_reply()
        run.check(number)
        assert sum(row["discards"] for row in stats["tables"]) in (3, 4, 5), number  # a commit may have landed unseen
    assert run.records() == DISCARDED


def test_commits_that_the_target_lost_are_discarded_once():
    """CW-16: the row stands before committed discards again; their records are known again."""
    run = Run()
    run()
    run.store.tables, run.store.row = {}, None
    run()
    run.check("lost")


@pytest.mark.parametrize("operation", ["create", "write", "datasync", "sync_dir"])
def test_a_full_disk_under_the_discard_file(operation: str):
    """CW-28: one message, nothing of the batch is committed, and START goes on once there is space."""
    run = Run()

    def full(called: str, path: str) -> None:
        if called == operation and path in (DISCARDS, "/home/dirdsc"):
            raise OperatorError(f"cannot {called} {path}: No space left on device", hint="Make space")

    run.fs.fail = full
    for _ in range(3):
        with pytest.raises(OperatorError, match=r"dirdsc.*No space left on device\. Make space"):
            run()
        assert run.store.tables == {("s", "kv"): {("1",): ("1", "a")}, ("s", "log"): [("1",)]}
        assert run.said == []
    run.fs.fail = lambda *_: None
    run()
    run.check(operation)


def test_what_no_rule_gives_up_still_ends_the_process():
    """Only exactly this SQLSTATE; a discard of the same batch is in the file, but neither committed nor told."""
    run = Run()
    with pytest.raises(
        OperatorError, match=r"s\.kv: the target refuses the update of row \(9\): .*; position .*, CSN 0+4, change 0"
    ):
        run(params=params("REPERROR (23505, DISCARD)"))
    assert run.records() == DISCARDED[:3]
    assert ("4",) not in run.store.tables["s", "log"]


def test_the_abend_message_knows_the_place_in_a_large_transaction():
    """CSN and change are those of the transaction, though the job that met it began in its middle."""
    run = Run()
    with pytest.raises(OperatorError, match=r"insert of row \(5\): .*; position 0/\d+, CSN 0+3, change 13"):
        run(params=params("REPERROR (DEFAULT, DISCARD)", "REPERROR (23505, ABEND)"), target=Permissive(run))


class Permissive(ListTarget):
    """Lets the first transactions pass."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.store, SHAPES, unique=(("s.kv", "v"),))

    def _check_unique(self, name, columns, table, key, row):  # type: ignore[no-untyped-def]
        if key not in (("2",), ("3",)):
            super()._check_unique(name, columns, table, key, row)
