"""Replicat on a target without a database that fails at the n-th call, for every n: exactly once all the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from tests.support.list_target import ListTarget, Store, shape
from tests.support.replicat_lives import REG, TRAIL, FailAt, apply_all, trail_with
from tests.support.replicat_trail import InlineEngine, TrailFeed, table
from trails.errors import AwayError, MismatchError, OperatorError
from trails.position import Position
from trails.record import Op
from trails.runtime.home.registration import Registration
from trails.runtime.language.params import parse_text
from trails.testing import Crash, FakeClock, FaultFs

KV, LOG = table("s", "kv", "id v", "id"), table("s", "log", "note")
SHAPES = [shape("s", "kv", "id v", "id"), shape("s", "log", "note")]
PARAMS = ReplicatParams.from_statements(
    parse_text("REPLICAT rep1\nTARGETDB postgresql://x/y\nBATCHROWS 4\nRECONNECTSECS 60\nMAP s.*, TARGET s.*;\n", "p")
)


def script(feed: TrailFeed) -> None:
    """Small transactions, key changes, a truncate, and one larger than BATCHROWS."""
    feed.tx((Op.INSERT, KV, ["1", "a"]), (Op.INSERT, LOG, ["1"]))
    feed.tx((Op.UPDATE, KV, ["2", "a"], ["1", "a"]), (Op.INSERT, LOG, ["2"]))
    feed.tx(*((Op.INSERT, LOG, [f"3-{n}"]) for n in range(20)), (Op.INSERT, KV, ["9", "big"]), pieces=6)
    feed.tx((Op.UPDATE, KV, ["3", "a"], ["2", "a"]), (Op.INSERT, LOG, ["4"]), (Op.DELETE, LOG, ["1"]))
    feed.tx((Op.TRUNCATE, [KV], 0), (Op.INSERT, KV, ["5", "new"]), (Op.INSERT, LOG, ["5"]))


WANTED = {
    ("s", "kv"): {("5",): ("5", "new")},
    ("s", "log"): [("2",), *((f"3-{n}",) for n in range(20)), ("4",), ("5",)],
}


def made(fs: FaultFs, target: ListTarget, reg: Registration = REG, params: ReplicatParams = PARAMS) -> Replicat:
    return Replicat(
        params, reg, TRAIL, fs=fs, clock=FakeClock(), target=target, engine=InlineEngine(fs), note=lambda text: None
    )


def run(fs: FaultFs, target: ListTarget, reg: Registration = REG, params: ReplicatParams = PARAMS) -> None:
    """Start, apply all there is, flush, stop."""
    process = made(fs, target, reg, params)
    apply_all(process)
    process.close()


@pytest.fixture
def fs() -> FaultFs:
    """A trail with the script in it."""
    return trail_with(script)


def calls_of_a_clean_run(fs: FaultFs) -> int:
    counter = FailAt(10**9, Crash())
    target = ListTarget(Store(), SHAPES)
    target.faults = counter
    run(fs, target)
    assert target.store.tables == WANTED
    return 10**9 - counter.left


def test_SS_02_killed_at_every_call_of_the_target(fs: FaultFs):
    """I10, CW-01, CW-15: killed before and after each call; the next process ends with the same rows, once each."""
    for number in range(1, calls_of_a_clean_run(fs) + 1):
        store = Store()
        target = ListTarget(store, SHAPES)
        target.faults = FailAt(number, Crash())
        with pytest.raises(Crash):
            run(fs, target)
        run(fs, ListTarget(store, SHAPES))
        assert store.tables == WANTED, number


def test_SS_10_a_value_never_goes_back():
    """The trail has every value that a row had. Killed at any call, the next process shows none that is older than what
    was seen: the row of the checkpoint guards them, and the data of the same commit.
    """
    values = range(1, 7)

    def counting(feed: TrailFeed) -> None:
        feed.tx((Op.INSERT, KV, ["1", "1"]))
        for value in values[1:]:
            feed.tx((Op.UPDATE, KV, ["1", str(value)]))

    one_by_one = replace(PARAMS, batch_rows=1)
    number, killed = 0, True
    while killed:
        number += 1
        fs, store, seen = trail_with(counting), Store(), list[int]()
        fault = FailAt(number, Crash())
        for faults in (fault, lambda _call: None):
            target = ListTarget(store, SHAPES)
            target.faults = partial(_look, store, seen, faults)
            with contextlib.suppress(Crash):
                run(fs, target, params=one_by_one)
        killed = fault.left <= 0
        assert seen == sorted(seen)
        assert set(seen) == set(values)
    assert number > 20


def _look(store: Store, seen: list[int], faults: Callable[[str], None], call: str) -> None:
    """What anybody sees in the target at each of its calls."""
    seen += [int(row[1]) for row in store.tables.get(("s", "kv"), {}).values()]
    faults(call)


def test_away_at_every_call_of_the_target(fs: FaultFs):
    """A connection lost at any call, also after the commit landed: the same process goes on from the row."""
    for number in range(4, calls_of_a_clean_run(fs) + 1):  # at START it ends the process: exit code 3
        store = Store()
        target = ListTarget(store, SHAPES)
        target.faults = FailAt(number, AwayError("gone"))
        run(fs, target)
        run(fs, ListTarget(store, SHAPES))
        assert store.tables == WANTED, number


def test_CW_16_target_crash_between_commits_and_flush(fs: FaultFs):
    """CW-16: unflushed commits are lost with their rows; what is said to be needed was never beyond the flush."""
    for steps in range(1, 12):
        store = Store()
        process = made(fs, ListTarget(store, SHAPES))
        for _ in range(steps):
            process.step()
        needed = process._checkpoint().reads[0].needed
        assert Position(needed.seqno, needed.rba) == store.flushed[1].flushed
        store.crash()
        assert store.row is not None
        assert store.row.position >= Position(needed.seqno, needed.rba)
        process.close()
        run(fs, ListTarget(store, SHAPES))
        assert store.tables == WANTED, steps


def test_away_too_long_ends_the_process(fs: FaultFs):
    """RECONNECTSECS bounds the tries; then exit code 3 and AUTORESTART's turn."""
    target = ListTarget(Store(), SHAPES)
    process = made(fs, target)

    def gone(call: str) -> None:
        raise AwayError("gone")

    target.faults = gone
    assert process.step() is False
    begin = process._clock.now_us()

    def go_on() -> None:
        for _ in range(100):
            process.step()
            process._clock.sleep(process.idle_seconds())

    with pytest.raises(AwayError):
        go_on()
    assert 60 <= (process._clock.now_us() - begin) / 1e6 < 70


def test_losses_weeks_apart_are_no_streak(fs: FaultFs):
    """RECONNECTSECS counts one loss: on an idle trail, too, the first one is over once the target has taken a commit.

    A commit that landed while its answer was lost leaves nothing to commit and, with COMMITWAIT, nothing to flush.
    """
    target = ListTarget(Store(), SHAPES)
    process = made(fs, target, params=replace(PARAMS, commit_wait=True))

    def lose_the_last_answer(call: str) -> None:
        if call == "committed" and ("5",) in target.store.tables[("s", "kv")]:
            target.faults = lambda call: None
            raise AwayError("gone")

    target.faults = lose_the_last_answer
    apply_all(process)
    assert target.store.tables == WANTED
    process._clock.sleep(14 * 86_400)
    feed = TrailFeed(fs, TRAIL)
    feed.tx((Op.INSERT, KV, ["6", "later"]))
    feed.close()
    target.faults = FailAt(1, AwayError("gone again"))
    apply_all(process)
    assert target.store.tables[("s", "kv")][("6",)] == ("6", "later")
    process.close()


def test_a_part_of_a_large_transaction_is_never_committed(fs: FaultFs):
    """I7: at each commit the target holds whole transactions only."""
    store = Store()
    target = ListTarget(store, SHAPES)
    seen: list[int] = []
    target.faults = lambda call: seen.append(len(store.tables.get(("s", "log"), []))) if call == "committed" else None
    run(fs, target)
    assert set(seen) == {1, 2, 22, 23}
    assert target.log.count("apply") > target.log.count("begin")


def test_what_is_refused_is_halved_down_to_the_change(fs: FaultFs):
    """The message names table, operation, key, position and CSN; what comes before its transaction arrives."""
    store = Store()
    target = ListTarget(store, SHAPES, unique=(("s.kv", "v"),))
    feed = TrailFeed(fs, TRAIL)
    for number in range(20, 28):
        feed.tx((Op.INSERT, KV, [str(number), "new" if number == 25 else f"v{number}"]))
    feed.close()
    params = replace(PARAMS, batch_rows=1000)
    with pytest.raises(
        OperatorError, match=r"s\.kv: the target refuses the insert of row \(25\): .*; position 1/\d+, CSN 0+11"
    ):
        run(fs, target, params=params)
    assert sorted(int(key) for (key,) in store.tables[("s", "kv")])[-5:] == [20, 21, 22, 23, 24]
    assert "rewrite" in target.log
    target.unique = ()
    run(fs, target, params=params)
    assert len(store.tables["s", "kv"]) == 9


def test_CW_19_an_alter_is_spent_by_the_row(fs: FaultFs):
    """CW-19: killed before or after the row bears the ALTER, it is obeyed exactly once."""
    store = Store()
    run(fs, ListTarget(store, SHAPES))
    altered = replace(REG, alter_no=1, alter={"seqno": 0, "rba": 0})
    for number in range(1, 6):
        again = Store(tables={("s", "log"): []}, row=store.row)
        target = ListTarget(again, SHAPES)
        target.faults = FailAt(number, Crash())
        with pytest.raises(Crash):
            run(fs, target, altered)
        run(fs, ListTarget(again, SHAPES), altered)
        run(fs, ListTarget(again, SHAPES), altered)
        assert again.tables["s", "log"] == WANTED["s", "log"], number


def test_CW_18_added_again(fs: FaultFs):
    """CW-18: a group added again goes on at its row; an order given with ADD counts though its number is not higher."""
    store = Store()
    run(fs, ListTarget(store, SHAPES), replace(REG, alter_no=7, alter={"seqno": 0}))
    run(fs, ListTarget(store, SHAPES), replace(REG, added_us=6))
    assert store.tables == WANTED
    assert store.row is not None
    assert (store.row.alter_no, store.row.added_us) == (0, 6)
    store.tables = {("s", "log"): []}
    run(fs, ListTarget(store, SHAPES), replace(REG, added_us=7, alter_no=0, alter={"seqno": 0, "rba": 0}))
    assert store.tables["s", "log"] == WANTED["s", "log"]


def test_a_row_behind_a_purged_file_is_refused(fs: FaultFs):
    """A target restored to before what the trail still has: MismatchError names the file that is missing."""
    store = Store()
    target = ListTarget(store, SHAPES)
    process = made(fs, target)
    process.step()
    process.flush()
    process.close()
    TrailFeed(fs, TRAIL).close()
    fs.remove(TRAIL.path(0))
    with pytest.raises(MismatchError, match=r"rt000000000: expected this file.*purged"):
        run(fs, ListTarget(store, SHAPES))


def test_files_that_were_deleted_before_the_first_start_are_missed(fs: FaultFs):
    """What was purged before the group was added is warned of; what went since is refused, unless an order names it."""
    store = Store()
    TrailFeed(fs, TRAIL).close()
    fs.remove(TRAIL.path(0))
    with pytest.raises(OperatorError, match=r"begins with .*rt000000001, a file begun after REP1 was added"):
        run(fs, ListTarget(store, SHAPES))
    assert store.row is None
    for reg in (
        replace(REG, added_us=1 << 52),
        replace(REG, alter={"seqno": 1, "rba": 0}, alter_no=1),
        replace(REG, start={"after_csn": "0"}, start_no=1),
    ):
        run(fs, ListTarget(store := Store(), SHAPES), reg)
        assert store.row is not None


def test_a_first_file_that_was_deleted_while_nothing_of_it_was_applied_is_missed(fs: FaultFs):
    """I8: the target has only the group's row, as it was made, or crashed back to it; then the first file goes."""
    store = Store()
    made(fs, ListTarget(store, SHAPES)).close()
    assert store.row is not None
    assert store.row.position == Position(0, 0)
    TrailFeed(fs, TRAIL).close()
    fs.remove(TRAIL.path(0))
    with pytest.raises(OperatorError, match=r"begins with .*rt000000001, a file begun after REP1 was added"):
        run(fs, ListTarget(store, SHAPES))


def test_another_trail_of_the_same_name_is_refused(fs: FaultFs):
    """The row bears the trail's id; an ALTER to the new trail's start accepts it."""
    store = Store()
    run(fs, ListTarget(store, SHAPES))
    fs.remove(TRAIL.path(0))
    feed = TrailFeed(fs, TRAIL)
    script(feed)
    feed.close()
    with pytest.raises(MismatchError, match="the trail was made anew"):
        run(fs, ListTarget(store, SHAPES))
    store.tables = {}
    run(fs, ListTarget(store, SHAPES), replace(REG, alter_no=1, alter={"seqno": 0, "rba": 0}))
    assert store.tables == WANTED


def test_place_blocks_move_the_row_at_the_next_flush():
    """An idle trail's places let its files be purged, at the price of one small commit a flush."""
    fs = FaultFs()
    feed = TrailFeed(fs, TRAIL)
    store = Store()
    process = made(fs, ListTarget(store, SHAPES))
    assert process.step() is False
    feed.writer.append_place(Position(0, 9))
    feed.writer.sync()
    assert process.step() is False
    checkpoint = process.flush()
    assert store.row is not None
    assert store.row.position == store.row.flushed == feed.writer.position
    assert checkpoint.reads[0].needed.rba == feed.writer.position.rba
    process.close()
