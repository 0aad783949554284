"""Holes: changes that somebody's ALTER left out. The trail says so where they are missing, each hand passes it on, and
no Replicat goes past it in silence."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from collector.collector import Collector
from pump.feed import Feed
from replicat.run.replicat import Replicat
from tests.fault.test_replicat_places import changes, killed_everywhere, params, process, rows, run
from tests.support.batches import TRAIL, Shaped, csn_of
from tests.support.crashing import crash_everywhere
from tests.support.list_target import Store
from tests.support.replicat_lives import REG
from tests.support.trail_script import holes
from trails.errors import DamageError, OperatorError
from trails.fs import Fs
from trails.hole import Hole
from trails.link import wire
from trails.position import START, Position, TrailName
from trails.reader import BlockReader, last_header
from trails.runtime.home.registration import Registration
from trails.show.printing import show_blocks, show_records
from trails.show.rows import DumpSource, Wanted
from trails.show.verifying import verify
from trails.testing import FaultFs

pytestmark = pytest.mark.fault

FAR = TrailName("/far/dirdat", "rt")
PAST = replace(REG, start={"past_hole": 1}, start_no=1)


@pytest.fixture
def trail() -> Shaped:
    """Transactions 1 and 2; then 3 is missing; then 4 and 5."""
    made = Shaped()
    made.whole(2, 1)
    made.hole()
    made.whole(1)
    made.whole(1)
    made.sync()
    return made


def work(made: Replicat) -> None:
    """Apply all there is."""
    for _ in range(50):
        made.step()


def stopped(
    trail: Shaped, store: Store, more: str = "", reg: Registration = REG, notes: list[str] | None = None
) -> str:
    """What ended a Replicat that has applied what it could."""
    made = process(trail, store, params(more), reg, notes if notes is not None else [])
    with pytest.raises(OperatorError) as caught:
        work(made)
    made.close()
    return str(caught.value)


@pytest.mark.parametrize("more", ["", "GROUPTRANSOPS 1", "BATCHSECS 5"])
def test_a_replicat_stops_before_a_hole(trail: Shaped, more: str):
    """I8: all before it is applied, the message names both places and the way on, and a second START says the same."""
    store = Store()
    said = stopped(trail, store, more)
    assert rows(store) == changes(trail, lambda n: n <= 2)
    assert said.startswith("changes between 2 and 3 are not in the trail (ALTER EXTRACT EXT1)")
    assert "START REPLICAT REP1, PASTHOLE" in said
    assert stopped(trail, store) == said
    assert rows(store) == changes(trail, lambda n: n <= 2)


def test_pasthole_goes_on_behind_it_once(trail: Shaped):
    """CW-19: the order is spent by the row: it passes this hole and no later one, killed at any call of the target."""
    store = Store()
    stopped(trail, store)
    notes: list[str] = []
    killed_everywhere(trail, params(), PAST, store, changes(trail, lambda n: n != 3))
    run(trail, store, params(), PAST, notes)
    assert any(note.startswith("PASTHOLE: changes between 2 and 3 are not in the trail") for note in notes)
    assert rows(store) == changes(trail, lambda n: n != 3)
    trail.hole()
    trail.sync()
    assert stopped(trail, store, reg=PAST).startswith("changes between 5 and 6")


def test_pasthole_skips_no_transaction(trail: Shaped):
    """Where a transaction comes first there is nothing to pass; the order is spent all the same."""
    store, notes = Store(), list[str]()
    assert stopped(trail, store, "", PAST, notes).startswith("changes between 2 and 3")
    assert any("no hole comes next" in note for note in notes)
    assert rows(store) == changes(trail, lambda n: n <= 2)


def test_holes_report_warns_and_goes_on(trail: Shaped):
    """The warning comes when all before the hole is applied; killed at any call of the target nothing is lost."""
    killed_everywhere(trail, params("HOLES REPORT"), REG, Store(), changes(trail))
    notes: list[str] = []
    store = Store()
    run(trail, store, params("HOLES REPORT"), notes=notes)
    assert [note for note in notes if "HOLES REPORT: changes between 2 and 3" in note]
    assert rows(store) == changes(trail)


@pytest.mark.parametrize("together", [False, True], ids=["a block each", "one block"])
@pytest.mark.parametrize(
    ("order", "first"),
    [
        ({"after_csn": csn_of(2)}, None), ({"after_csn": csn_of(5)}, None), ({"after_csn": csn_of(7)}, 8),
        ({"at_csn": csn_of(2)}, None), ({"at_csn": csn_of(5)}, None), ({"at_csn": csn_of(7)}, 7),
        ({"at_csn": csn_of(8)}, 8),
    ],
)  # fmt: skip
def test_a_csn_inside_a_hole_does_not_pass_it(order: dict[str, str], first: int | None, together: bool):
    """I8: transactions 1, 2; 3 to 6 are missing; 7, 8. Only who has applied one behind the hole has passed it."""
    made = Shaped()
    made.whole(1, 1)
    made.feed.number += 3
    made.hole()
    made.place()
    made.whole(1, 1) if together else (made.whole(1), made.whole(1))
    made.sync()
    for key, reg in (
        ("START", replace(REG, start=order, start_no=1)),
        ("ALTER", replace(REG, alter={"csn": order.get("at_csn", "")}, alter_no=1)),
    ):
        if key == "ALTER" and "at_csn" not in order:
            continue
        store = Store()
        if first is not None:
            run(made, store, params(), reg)
            assert rows(store) == changes(made, lambda n: n >= first)
            continue
        assert "are not in the trail" in stopped(made, store, reg=reg), key
        assert not [n for n, _ in rows(store) if n > 2]
        past = replace(reg, start={"past_hole": 1}, start_no=2)
        run(made, store, params(), past)
        assert [n for n, _ in rows(store) if n > 2] == [7, 8]


def test_a_csn_behind_the_trails_end_waits_before_a_hole():
    """No transaction stands behind the hole yet, so nobody knows if it is passed: the ALTER stays before it."""
    made, store = Shaped(), Store()
    made.whole(1)
    made.hole()
    made.sync()
    reg = replace(REG, alter={"csn": csn_of(2)}, alter_no=1)
    assert "are not in the trail" in stopped(made, store, reg=reg)
    made.whole(1)
    made.sync()
    assert "are not in the trail" in stopped(made, store, reg=reg)
    assert not rows(store)


def test_what_an_alter_leaves_out_is_counted(trail: Shaped):
    """A Replicat that was sent ahead says how many transactions and changes it does not apply."""
    store = Store()
    stopped(trail, store)
    reader = BlockReader(trail.fs, TRAIL, Position(1, 0))
    places = []
    while (block := reader.read(payload=False)) is not None:
        places.append((block.end, block.header.changes))
    reader.close()
    behind = next(end for end, count in places if count)
    order = replace(REG, alter={"seqno": behind.seqno, "rba": behind.rba}, alter_no=1)
    notes: list[str] = []
    run(trail, store, params(), order, notes)
    left = "; 1 transactions with 1 changes are left out; changes between 2 and 3 are not in the trail"
    assert any(note.endswith(f"{left} (ALTER EXTRACT EXT1)") for note in notes)
    assert rows(store) == changes(trail, lambda n: n not in (3, 4))


def _hello(near: Fs, **changes: object) -> wire.Hello:
    header = last_header(near, TRAIL)
    assert header is not None
    plain = {
        "home": "a" * 32, "group": "PMP1", "host": "here", "trail": "./dirdat/rt", "trail_id": header.trail_id,
        "source": header.source, "alter": 0, "start": None, "megabytes": 1, "dead": 1000,
    }  # fmt: skip
    return wire.Hello(**plain | changes)  # type: ignore[arg-type]


def _sent(near: Fs, far: Fs, **changes: object) -> None:
    """One session of a pump and a Collector."""
    collector = Collector(far, FAR, "./dirdat/rt")
    try:
        hello = _hello(near, **changes)
        welcome = collector.greet(hello)
        feed = Feed(near, TRAIL, hello.trail_id, welcome.origin, welcome.open, None)
        while not feed.at_end:
            for outgoing in feed.read(0.0):
                collector.take(outgoing.block)
        collector.sync()
        feed.close()
    finally:
        collector.close()


def test_pump_and_collector_pass_a_hole_on(trail: Shaped):
    """The remote trail tells of the same hole at the same place between transactions."""
    far = FaultFs()
    _sent(trail.fs, far)
    assert holes(far, FAR) == holes(trail.fs, TRAIL) == [Hole("ALTER EXTRACT EXT1", "2", "3")]


def test_a_pump_that_was_sent_ahead_leaves_a_hole(trail: Shaped):
    """CW-19: the file that spends the ALTER tells of it, once, whatever call of the Collector's start crashes."""
    end = Position(0, 0)
    reader = BlockReader(trail.fs, TRAIL)
    while (block := reader.read(payload=False)) is not None:
        end = block.end
    reader.close()
    first = FaultFs()
    _sent(trail.fs, first, start=Position(1, 0), alter=1)
    assert not holes(first, FAR)[1:]

    class Life:
        """See crashing.World."""

        def __init__(self, fs: FaultFs) -> None:
            self.fs = fs

        def outside(self) -> Position:
            return START

        def with_fs(self, fs: FaultFs) -> Life:
            return Life(fs)

    def live(life: Life) -> None:
        _sent(trail.fs, life.fs)
        trail_end = end
        _sent(trail.fs, life.fs, start=Position(trail_end.seqno + 1, 0), alter=1)

    def check(life: Life) -> None:
        found = holes(life.fs, FAR)
        assert [hole.by for hole in found] == ["ALTER EXTRACT EXT1", "ALTER EXTRACT PMP1"]
        assert found[1].next == f"{Position(end.seqno + 1, 0)} of its trail"

    assert crash_everywhere(Life(FaultFs()), live, check) > 20


def test_logdump_shows_a_hole(trail: Shaped):
    """Among the blocks, and among the records with its text; verify reads it."""
    said: list[str] = []
    source = DumpSource(TRAIL)
    show_blocks(trail.fs, source, Wanted(), said.append)
    assert any(re.search(r"\bHOLE\b", line) for line in said)
    said.clear()
    show_records(trail.fs, source, Wanted(), said.append)
    at = next(i for i, line in enumerate(said) if " HOLE " in line)
    assert said[at].endswith("changes between 2 and 3 are not in the trail (ALTER EXTRACT EXT1)")
    assert any(csn_of(2) in line for line in said[:at])
    assert any(csn_of(4) in line for line in said[at:])
    assert verify(trail.fs, source, said.append)


@pytest.mark.parametrize("wire_form", [[], ["a", "b"], ["a", 1, "b"], "abc", 7, [["a"], "b", "c"]])
def test_a_hole_of_another_shape_is_damage(wire_form: object):
    """Bytes with fitting CRCs from elsewhere are an error of Trailgate, not a bug."""
    import msgpack

    from trails.codec import decode_hole
    from trails.format import BlockHeader, BlockKind

    payload = msgpack.packb(wire_form)
    header = BlockHeader(BlockKind.HOLE, payload_len=len(payload), raw_len=len(payload))
    with pytest.raises(DamageError, match="expected a hole"):
        decode_hole(header, payload)
