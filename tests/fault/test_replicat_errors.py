"""REPERROR's other actions while everything crashes: whoever comes after finds the same out again, and ends the same.

Transactions given up whole (in a block with others, larger than a job, or violating what only the whole can violate),
exceptions tables, and what is ignored.
"""

from __future__ import annotations

from typing import Any

import pytest

from replicat.apply.recorded import units
from replicat.params import ReplicatParams
from tests.support.list_target import shape
from tests.support.replicat_lives import DISCARDS, FailAt, Lives, calls_of
from tests.support.replicat_trail import TrailFeed, table
from trails.errors import AwayError, OperatorError
from trails.record import MISSING, Op
from trails.runtime.language.params import parse_text

KV, LOG = table("s", "kv", "id v", "id"), table("s", "log", "note")
SHAPES = [shape("s", "kv", "id v", "id"), shape("s", "log", "note"), shape("s", "exc", "id v why")]
TEXT = """REPLICAT rep1
TARGETDB postgresql://x/y
BATCHROWS 4
RECONNECTSECS 60
REPERROR (1062, TRANSDISCARD)
REPERROR (23503, DISCARD)
REPERROR (02000, EXCEPTION)
REPERROR (DEFAULT2, IGNORE)
MAP s.kv, TARGET s.kv, MAPEXCEPTION (TARGET s.exc, COLMAP (USEDEFAULTS, why = lasterr.dberrnum));
MAP s.log, TARGET s.log;
"""
PARAMS = ReplicatParams.from_statements(parse_text(TEXT, "p"))


def script(feed: TrailFeed) -> None:
    """Transactions 2, 3 and 5 are given up whole; one change of 4 goes to a table, one of 6 nowhere."""
    feed.tx((Op.INSERT, KV, ["1", "a"]), (Op.INSERT, LOG, ["1"]))
    feed.tx((Op.INSERT, LOG, ["2"]), (Op.INSERT, KV, ["2", "a"]), (Op.INSERT, LOG, ["2b"]))
    large = [(Op.INSERT, LOG, [f"3-{n}"]) for n in range(12)]
    feed.tx(*large[:7], (Op.INSERT, KV, ["3", "a"]), *large[7:], pieces=4)
    feed.tx((Op.INSERT, KV, ["4", "d"]), (Op.UPDATE, KV, ["9", "x"], ["9", "w"]), (Op.INSERT, LOG, ["4"]))
    feed.tx((Op.INSERT, LOG, ["unpaired"]), (Op.INSERT, KV, ["5", "e"]))
    feed.tx((Op.DELETE, LOG, ["none"]), (Op.INSERT, LOG, ["6"]), (Op.DELETE, KV, ["9", MISSING]))


WANTED = {
    ("s", "kv"): {("1",): ("1", "a"), ("4",): ("4", "d")},
    ("s", "log"): [("1",), ("4",), ("6",)],
    ("s", "exc"): [("9", "x", "02000"), ("9", None, "02000")],
}
DISCARDED = [*((2, n) for n in range(3)), *((3, n) for n in range(13)), (5, 0), (5, 1)]


def unpaired(tables: Any) -> str:
    """What a transaction may not leave behind."""
    return "s.log: unpaired" if ("unpaired",) in tables.get(("s", "log"), []) else ""


class Run(Lives):
    """See Lives."""

    def __init__(self) -> None:
        super().__init__(script, PARAMS, SHAPES, WANTED, DISCARDED, unpaired)

    def check(self, where: object = "") -> None:
        super().check(where)
        assert self.replayed_whole() == DISCARDED, where

    def check_durable(self, where: object = "") -> None:
        """What a kill leaves of a transaction is no whole one for REPLAY DISCARDS."""
        super().check_durable(where)
        found = self.replayed_whole()
        assert found == [one for one in DISCARDED if one[0] in {csn for csn, _ in found}], where

    def replayed_whole(self) -> list[tuple[int, int]]:
        """(CSN, change) of what REPLAY DISCARDS takes for whole transactions."""
        if not self.fs.exists(DISCARDS):
            return []
        whole = [unit for unit in units(self.fs.open(DISCARDS)) if unit.whole and not unit.lacks]
        return sorted((int(one.csn), one.index) for unit in whole for one in unit.records)


def test_a_clean_run_counts_what_is_given_up():
    """Each change in one counter."""
    run = Run()
    counted = {row["from"]: row for row in run().stats.to_reply()["tables"]}
    run.check("clean")
    kv, log = counted["s.kv"], counted["s.log"]
    assert (kv["inserts"], kv["discards"], kv["more"]) == (2, 3, {"exceptions": 2})
    assert (log["inserts"], log["discards"], log["more"]) == (3, 15, {"ignored": 1})
    assert f"discarded (s.log SQLSTATE 23505: 2, s.kv SQLSTATE 23505: 1); see {DISCARDS}" in run.said[0]


def test_a_crash_at_every_call_of_the_target_and_the_file_system():
    """I8, I10: between a condemnation and its carrying out, too: it is found out again; and the process that mends it
    crashes as well."""
    assert Run().crash_everywhere(again=lambda n: 1 + n % 60) > 30


def test_away_at_every_call_of_the_target():
    """One process, whose verdicts outlive the connection: the same end, each change counted once."""
    for number in range(4, calls_of(Run()) + 1):
        run = Run()
        stats = run(run.target(FailAt(number, AwayError("gone")))).stats.to_reply()
        run.check(number)
        discards = sum(row["discards"] for row in stats["tables"])
        assert len(DISCARDED) - 13 <= discards <= len(DISCARDED), number  # a commit may have landed unseen


def test_a_full_disk_commits_nothing_of_a_condemned_transaction():
    """CW-28: START goes on once there is space."""
    run = Run()

    def full(called: str, path: str) -> None:
        if called == "datasync" and path == DISCARDS:
            raise OperatorError(f"cannot {called} {path}: No space left on device", hint="Make space")

    run.fs.fail = full
    with pytest.raises(OperatorError, match="No space left"):
        run()
    assert ("2",) not in run.store.tables.get(("s", "log"), [])
    run.fs.fail = lambda *_: None
    run()
    run.check("full")
