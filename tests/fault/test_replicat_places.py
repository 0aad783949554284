"""Where a Replicat begins, cuts and ends: ordered places, split transactions and END, killed at every call."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from replicat.batches.batch import Cutting
from replicat.model.again import PlaceLostError, ShapeChangedError
from replicat.params import End, ReplicatParams
from replicat.run.replicat import Replicat
from tests.support.batches import TRAIL, Shaped, csn_of
from tests.support.list_target import ListTarget, Store, shape
from tests.support.replicat_lives import REG, FailAt
from tests.support.replicat_trail import InlineEngine
from trails.errors import AnewError, MismatchError, OperatorError
from trails.runtime.home.registration import Registration
from trails.runtime.language.params import parse_text
from trails.testing import Crash, FakeClock

SHAPES = [shape("s", "kv", "id v")]


def params(more: str = "") -> ReplicatParams:
    """As the file would say it."""
    text = f"REPLICAT rep1\nTARGETDB postgresql://x/y\nRECONNECTSECS 60\n{more}\nMAP s.*, TARGET s.*;\n"
    return ReplicatParams.from_statements(parse_text(text, "p"))


@pytest.fixture
def trail() -> Shaped:
    """Transactions 1 to 3 in one block, 4 alone, 5 in four, 6 to 9 in one block, 10 alone; committed at 1 to 10 us."""
    made = Shaped()
    made.whole(1, 2, 1)
    made.whole(1)
    made.large(2, 2, 2, 2)
    made.place()
    made.whole(1, 3, 1, 1)
    made.whole(2)
    made.sync()
    return made


def process(
    trail: Shaped, store: Store, settings: ReplicatParams, reg: Registration, notes: list[str], fail: Any = None
) -> Replicat:
    """One start of the group."""
    target = ListTarget(store, SHAPES)
    if fail is not None:
        target.faults = fail
    return Replicat(
        settings, reg, TRAIL, fs=trail.fs, clock=FakeClock(20), target=target, engine=InlineEngine(trail.fs),
        note=notes.append,
    )  # fmt: skip


def run(
    trail: Shaped,
    store: Store,
    settings: ReplicatParams,
    reg: Registration = REG,
    notes: list[str] | None = None,
    fail: Any = None,
) -> Replicat:
    """Start, apply all there is, flush, stop."""
    made = process(trail, store, settings, reg, notes if notes is not None else [], fail)
    for _ in range(200):
        if made.finished() or (not made.step() and made._at_eof):
            break
    made.flush()
    made.close()
    return made


def rows(store: Store) -> list[tuple[int, int]]:
    """(transaction, number in it) of all rows, in the order in which they came."""
    return [(int(csn), int(index)) for csn, index in store.tables.get(("s", "kv"), [])]


def changes(trail: Shaped, wanted: Callable[[int], bool] = lambda _number: True) -> list[tuple[int, int]]:
    """The same of the trail."""
    return [(int(csn), index) for csn, index in trail.changes if wanted(int(csn))]


def killed_everywhere(
    trail: Shaped, settings: ReplicatParams, reg: Registration, begin: Store, wanted: list[tuple[int, int]]
) -> None:
    """Killed at each call of the target there is, then started again twice: the same rows, once each."""
    for number in itertools.count(1):
        store = Store(copy.deepcopy(begin.tables), begin.row, copy.deepcopy(begin.flushed))
        try:
            run(trail, store, settings, reg, fail=FailAt(number, Crash()))
        except Crash:
            run(trail, store, settings, reg)
            run(trail, store, settings, reg)
            assert rows(store) == wanted, number
        else:
            assert rows(store) == wanted
            assert number > 5
            return


@pytest.mark.parametrize("error", [PlaceLostError, ShapeChangedError])
def test_what_begins_a_batch_again_never_ends_a_process(trail: Shaped, error: type[Exception]):
    """At each call of the target: a new process at START; from then on all rows come, once each."""
    for number in itertools.count(1):
        store, fail = Store(), FailAt(number, error("it is not what it was"))
        if number < 4:  # connect, load the row, make it
            with pytest.raises(AnewError, match="START again"):
                run(trail, store, params(), fail=fail)
            continue
        run(trail, store, params(), fail=fail)
        assert rows(store) == changes(trail)
        if fail.left > 0:
            assert number > 8
            return


@pytest.mark.parametrize(
    "more", ["", "GROUPTRANSOPS 1", "GROUPTRANSOPS 3", "MAXTRANSOPS 3", "GROUPTRANSOPS 2\nMAXTRANSOPS 2"]
)
def test_cut_batches_killed_at_every_call(trail: Shaped, more: str):
    """I10: the row stands inside a block of many transactions, or of one, and the next process goes on there."""
    killed_everywhere(trail, params(more), REG, Store(), changes(trail))


def test_grouptransops_1_commits_each_transaction_by_itself(trail: Shaped):
    """Also those of one block; what is seen at each commit is a state of the source."""
    seen: list[int] = []
    store = Store()
    run(
        trail, store, params("GROUPTRANSOPS 1"),
        fail=lambda call: seen.append(len(rows(store))) if call == "committed" else None,
    )  # fmt: skip
    assert seen == [1, 3, 4, 5, 13, 14, 17, 18, 19, 21]


def test_maxtransops_says_that_atomicity_is_given_up(trail: Shaped):
    """Parts at block borders; one line for the transaction."""
    seen: list[int] = []
    store, notes = Store(), []
    run(
        trail, store, params("MAXTRANSOPS 4"), notes=notes,
        fail=lambda call: seen.append(len(rows(store))) if call == "committed" else None,
    )  # fmt: skip
    assert seen == [5, 9, 13, 21]
    said = [note for note in notes if "MAXTRANSOPS 4" in note]
    assert len(said) == 1
    assert f"CSN {csn_of(5)}, 8 changes, is split" in said[0]


ORDERS = [
    ({"after_csn": csn_of(2)}, lambda n: n > 2),
    ({"at_csn": csn_of(2)}, lambda n: n >= 2),
    ({"at_csn": "7"}, lambda n: n >= 7),
    ({"after_csn": csn_of(5)}, lambda n: n > 5),
    ({"at_csn": csn_of(0)}, lambda n: True),
    ({"after_csn": csn_of(9)}, lambda n: n > 9),
    ({"skip": 1}, lambda n: n > 1),
]


@pytest.mark.parametrize(("order", "wanted"), ORDERS)
@pytest.mark.parametrize("more", ["", "GROUPTRANSOPS 1\nMAXTRANSOPS 2"])
def test_start_orders_are_obeyed_once(trail: Shaped, order: dict[str, Any], wanted: Callable[[int], bool], more: str):
    """ATCSN, AFTERCSN, SKIPTRANSACTION from the first file, the place also inside a block; killed at every call."""
    killed_everywhere(trail, params(more), replace(REG, start_no=3, start=order), Store(), changes(trail, wanted))


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ({"csn": csn_of(3)}, lambda n: n >= 3),
        ({"csn": csn_of(5)}, lambda n: n >= 5),
        ({"begin_us": 8}, lambda n: n >= 8),
        ({"csn": csn_of(1)}, lambda n: True),
    ],
)
def test_alter_orders_are_as_exact(trail: Shaped, order: dict[str, Any], wanted: Callable[[int], bool]):
    """CW-19: ALTER by CSN or time, back as well as forth."""
    store = Store()
    run(trail, store, params())
    store.tables = {}
    killed_everywhere(trail, params(), replace(REG, alter_no=2, alter=order), store, changes(trail, wanted))


@pytest.mark.parametrize("order", [{"after_csn": csn_of(12)}, {"at_csn": csn_of(13)}])
def test_a_csn_that_is_still_to_come(trail: Shaped, order: dict[str, Any]):
    """What comes before it later is left out too, by later processes as well; from there on all is applied."""
    reg = replace(REG, start_no=3, start=order)
    store, notes = Store(), []
    run(trail, store, params(), reg)
    assert rows(store) == []
    trail.whole(1, 2)
    trail.sync()
    run(trail, store, params(), reg)
    assert rows(store) == []
    assert store.row is not None
    assert store.row.skip_until
    trail.whole(2, 1)
    trail.sync()
    killed_everywhere(trail, params(), reg, store, changes(trail, lambda n: n > 12))
    run(trail, store, params(), reg, notes)
    assert store.row.skip_until == ""
    assert any("beginning as ordered" in note for note in notes)
    trail.whole(1)
    trail.sync()
    run(trail, store, params(), reg)
    assert rows(store) == changes(trail, lambda n: n > 12)


def test_an_alter_behind_a_start_makes_it_void(trail: Shaped):
    """Its number is higher; and a START behind an ALTER is obeyed from where that points."""
    reg = replace(REG, start_no=3, start={"after_csn": csn_of(9)}, alter_no=4, alter={"csn": csn_of(8)})
    store = Store()
    run(trail, store, params(), reg)
    assert rows(store) == changes(trail, lambda n: n >= 8)
    store.tables = {}
    run(trail, store, params(), replace(reg, alter_no=5, start_no=6, start={"skip": 1}))
    assert rows(store) == changes(trail, lambda n: n > 8)


def refused(trail: Shaped, store: Store, settings: ReplicatParams, number: int, reg: Registration, fail: Any) -> None:
    """A start on a target that does not take this transaction."""
    made = process(trail, store, settings, reg, [], fail)
    made._target.whole = lambda tables: "s.kv: no" if number in dict(rows(Store(tables or {}))) else ""  # type: ignore[attr-defined]
    try:
        for _ in range(200):
            made.step()
    finally:
        made.close()


@pytest.mark.parametrize("more", ["", "GROUPTRANSOPS 3"])
@pytest.mark.parametrize("number", range(1, 10))
def test_a_refused_transaction_is_the_next_one(trail: Shaped, number: int, more: str):
    """ABEND: those before it arrive, whatever batch they were in; so SKIPTRANSACTION leaves out it alone."""
    store = Store()
    with pytest.raises(OperatorError, match=f"refuses transaction CSN {csn_of(number)} as a whole"):
        refused(trail, store, params(more), number, REG, None)
    assert rows(store) == changes(trail, lambda n: n < number)
    killed_everywhere(
        trail, params(more), replace(REG, start_no=3, start={"skip": 1}), store, changes(trail, lambda n: n != number)
    )


def test_killed_while_a_refused_transaction_is_looked_for(trail: Shaped):
    """Between the rollback and the commit of what lies before it: found out again, and nothing twice."""
    for at in itertools.count(1):
        store, fail = Store(), FailAt(at, Crash())
        with pytest.raises((Crash, OperatorError)) as caught:
            refused(trail, store, params(), 8, REG, fail)
        with pytest.raises(OperatorError, match=csn_of(8)):
            refused(trail, store, params(), 8, REG, None)
        assert rows(store) == changes(trail, lambda n: n < 8), at
        if caught.type is not Crash:
            break
    run(trail, store, params())
    assert rows(store) == changes(trail)


def test_a_csn_before_the_place_is_told(trail: Shaped):
    """It leaves nothing out; where the trail's first files are purged, something may be missing."""
    store, notes = Store(), []
    run(trail, store, params(), REG)
    run(trail, store, params(), replace(REG, start_no=3, start={"after_csn": csn_of(2)}), notes)
    assert [note for note in notes if f"CSN {csn_of(2)} is older than {csn_of(10)}, the last one applied" in note]
    assert rows(store) == changes(trail, lambda n: True)
    trail.feed.writer.roll()
    trail.whole(1)
    trail.sync()
    trail.fs.remove(TRAIL.path(0))
    for order, told in (({"at_csn": csn_of(4)}, True), ({"after_csn": csn_of(10)}, False)):
        notes, store = [], Store()
        run(trail, store, params(), replace(REG, start_no=3, start=order), notes)
        older = f"transactions up to CSN {csn_of(10)} stood before its first file"
        assert any(older in note for note in notes) is told
        assert rows(store) == changes(trail, lambda n: n > 10)


def test_skiptransaction_at_the_end_of_the_trail(trail: Shaped):
    """Nothing waits, so nothing is skipped, and the order is spent: a transaction that comes later is applied."""
    store, notes = Store(), []
    run(trail, store, params())
    reg = replace(REG, start_no=3, start={"skip": 1})
    run(trail, store, params(), reg, notes)
    assert any("nothing is skipped" in note for note in notes)
    trail.whole(1)
    trail.sync()
    run(trail, store, params(), reg)
    assert rows(store) == changes(trail)


@pytest.mark.parametrize(("typed", "error"), [("0/16B3748", "such as 0000000000000003"), ("x", "such as")])
def test_a_csn_of_another_form_is_refused(trail: Shaped, typed: str, error: str):
    """Its order would mean nothing; another START replaces the order."""
    store = Store()
    with pytest.raises(OperatorError, match=f"START or ALTER REPLICAT: expected a CSN {error}"):
        run(trail, store, params(), replace(REG, start_no=3, start={"at_csn": typed}))
    run(trail, store, params(), replace(REG, start_no=4, start={"at_csn": csn_of(9)}))
    assert rows(store) == changes(trail, lambda n: n >= 9)


@pytest.mark.parametrize(
    ("end", "wanted"),
    [
        (f"END CSN {csn_of(2)}", lambda n: n <= 2),
        ("END CSN 5", lambda n: n <= 5),
        (f"END CSN {csn_of(8)}\nGROUPTRANSOPS 1\nMAXTRANSOPS 3", lambda n: n <= 8),
        (f"END CSN {csn_of(10)}", lambda n: True),
        ("END RUNTIME", lambda n: True),
    ],
)
def test_end_killed_at_every_call(trail: Shaped, end: str, wanted: Callable[[int], bool]):
    """Every transaction up to it and none behind; then the process has finished and says why, at a later START too."""
    killed_everywhere(trail, params(end), REG, Store(), changes(trail, wanted))
    store, notes = Store(), []
    ended = run(trail, store, params(end), notes=notes)
    assert ended.finished().startswith("END is reached at position ")
    assert rows(store) == changes(trail, wanted)
    again = run(trail, store, params(end))
    assert again.finished()
    assert rows(store) == changes(trail, wanted)
    run(trail, store, params())
    assert rows(store) == changes(trail)


def test_end_at_a_time_waits_for_what_lies_behind_it(trail: Shaped):
    """At the trail's end more may come from before it; the first transaction behind it ends the process."""
    settings = replace(params(), end=End(time_us=11))
    store = Store()
    assert not run(trail, store, settings).finished()
    trail.whole(1, 1)
    trail.sync()
    assert "lies beyond it" in run(trail, store, settings).finished()
    assert rows(store) == changes(trail, lambda n: n <= 11)
    assert run(trail, store, replace(params(), end=End(time_us=9))).finished()
    assert "applied already" in run(trail, store, replace(params(), end=End(time_us=10))).finished()


def test_end_runtime_leaves_what_came_later(trail: Shaped):
    """The clock stands at 20 us: a transaction of 21 is not applied; one of 20 is."""
    trail.feed.number = 19
    trail.whole(1, 1)
    trail.sync()
    store = Store()
    assert run(trail, store, params("END RUNTIME")).finished()
    assert rows(store) == changes(trail, lambda n: n <= 20)


def test_batchsecs_gathers(trail: Shaped):
    """What waits is not given out before its time, and then all of it at once."""
    now = [100.0]
    batcher = trail.batcher(Cutting(seconds=5), now=lambda: now[0])
    assert batcher.next() is None
    assert batcher.gathers_for == 5
    assert batcher.position is None
    trail.whole(1)
    trail.sync()
    now[0] += 4
    assert batcher.next() is None
    now[0] += 1
    batch = batcher.next()
    assert batch is not None
    assert trail.read(batch) == trail.changes
    assert batcher.position == batch.end


AGAIN = replace(REG, alter={"seqno": 0, "rba": 0}, alter_no=1, start={"filter_dup": 1}, start_no=2)


@pytest.mark.parametrize("upto", [1, 2, 3, 4, 5, 7, 9, 10])
def test_what_was_applied_is_left_out_of_a_trail_that_is_read_again(trail: Shaped, upto: int):
    """GG: FILTERDUPTRANSACTIONS after an ALTER to the first file, killed at each call: nothing twice, nothing lost."""
    store = Store()
    run(trail, store, params(f"END CSN {csn_of(upto)}"))
    assert rows(store) == changes(trail, lambda n: n <= upto)
    if upto < 10:
        killed_everywhere(trail, params(), AGAIN, store, changes(trail))
    run(trail, store, params(), AGAIN)
    assert rows(store) == changes(trail)


def test_a_trail_without_the_last_transaction_applied_is_refused(trail: Shaped):
    """What lies between it and the first that is there would be lost in silence: both are named, nothing is applied."""
    store = Store()
    run(trail, store, params(f"END CSN {csn_of(3)}"))
    other = Shaped()
    other.feed.number = 4
    other.whole(1, 1)
    other.sync()
    made = process(other, store, params(), AGAIN, [])
    with pytest.raises(MismatchError, match=f"CSN {csn_of(3)}, is not in the trail .* CSN {csn_of(5)} at 0/"):
        made.step()
    made.close()
    assert rows(store) == changes(trail, lambda n: n <= 3)


def test_filterdup_of_a_row_without_a_csn_is_refused(trail: Shaped):
    """Nobody can tell what it has applied."""
    store = Store()
    run(trail, store, params(f"END CSN {csn_of(3)}"))
    run(trail, store, params(f"END CSN {csn_of(3)}"), replace(REG, alter={"seqno": 1, "rba": 0}, alter_no=1))
    with pytest.raises(OperatorError, match="names no transaction that it has applied"):
        process(trail, store, params(), replace(AGAIN, alter_no=2, start_no=3), [])
