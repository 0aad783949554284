"""A heartbeat's values: stamps, clocks, what a stage remembers, and when a figure is no truth any more (GG-19)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.beating import SECOND, beat, piped
from trails.codec import decode_data, encode_data
from trails.errors import DamageError
from trails.format import FLAG_HEARTBEAT, BlockHeader, BlockKind
from trails.fs import RealFs
from trails.heartbeat import Arrivals, Beat, Stamp, beat_of, block_records, entry_of, judged, lag_of
from trails.record import Op
from trails.runtime.process.clockdiff import WINDOW, ClockWatch, Difference, Nearest, compare
from trails.show.printing import show_blocks, show_records
from trails.show.rows import DumpSource, Wanted
from trails.show.verifying import verify
from trails.testing import FakeClock

BEGIN = (int(Op.BEGIN), "0/1", "7", 5)


def arrived(made: Beat, *, ahead: int | None = 0, after: int = SECOND // 10) -> Beat:
    return made.stamped(Stamp("REPLICAT", "REP1", made.stamps[-1].us + after, ahead))


def through_a_block(records):
    """As a trail gives them back: lists, text as str."""
    made = encode_data([], records)
    flags = made.flags | FLAG_HEARTBEAT
    header = BlockHeader(BlockKind.DATA, flags=flags, payload_len=len(made.data), raw_len=made.raw_len, transactions=1)
    return decode_data(header, made.data)[1]


def test_it_survives_a_block():
    """Names of any text, and clocks that were not compared."""
    made = piped(replace(beat(10**15, ahead=None), database="größe"), ahead=-5)
    begin, found = beat_of(through_a_block(block_records(made, BEGIN)), "here")
    assert found == made
    assert tuple(begin) == BEGIN


@pytest.mark.parametrize(
    "records",
    [
        [],
        [[1, "0/1", "7", 5], [6, 0]],
        [[1, "0/1", "7", 5], [8, ["d", "h", 1, 60, 0]], [6, 0]],
        [[1, "0/1", "7", 5], [8, ["d", "h", "1", 60, 0, []]], [6, 0]],
        [[1, "0/1", "7", 5], [8, ["d", "h", 1, 60, True, []]], [6, 0]],
        [[1, "0/1", "7", 5], [8, ["d", "h", 1, 60, 0, [["PUMP", "P", None, 0]]]], [6, 0]],
        [[1, "0/1", "7", 5], [8, 7], [6, 0]],
    ],
)
def test_anything_else_is_damage(records):
    with pytest.raises(DamageError, match="here: damaged: expected"):
        beat_of(records, "here")


def test_hops_are_on_one_clock_each():
    """The database is 3 s ahead of the Extract's host, the Collector's host 1 s behind the pump's."""
    made = arrived(piped(beat(100 * SECOND, ahead=-3 * SECOND), ahead=-SECOND), after=-SECOND + 200_000)
    assert made.path == "EXT1 ==> PMP1 ==> REP1"
    assert made.hops() == [("shop", "EXT1", 100_000), ("EXT1", "PMP1", 100_000), ("PMP1", "REP1", 200_000)]
    assert made.lag_us == 400_000
    assert made.skew_us == -4 * SECOND
    # All on the Replicat's database's clock.
    assert made.times() == [96 * SECOND, 96_100_000, 96_200_000, 96_400_000]


def test_a_hop_across_clocks_that_nobody_compared_is_not_known():
    """Nor is the lag; and what is known of the rest stays."""
    made = arrived(piped(beat(100 * SECOND), ahead=None))
    assert [us for _, _, us in made.hops()] == [100_000, 100_000, None]
    assert (made.lag_us, made.skew_us) == (None, None)
    assert made.times()[-1] == made.stamps[-1].us
    assert made.why() == "the clocks of PMP1 and REP1 were not compared, or have moved since"


def test_a_hop_backwards_is_not_known():
    """A clock that was set back since it was compared; a little less than nothing is nothing."""
    assert piped(beat(100 * SECOND), after=-2 * SECOND).lag_us is None
    assert piped(beat(100 * SECOND), after=-1000).lag_us == 100_000


def test_a_commit_in_the_future_is_no_lag_of_zero():
    """The difference is named: it is nobody's lag."""
    lag, why = lag_of(100 * SECOND, 110 * SECOND, None)
    assert (lag, "10.000 s ahead of this host's clock" in why) == (None, True)
    assert lag_of(100 * SECOND, 110 * SECOND, -20 * SECOND) == (10 * SECOND, "")
    assert lag_of(100 * SECOND, 100 * SECOND + 1000, None) == (0, "")


def test_GG_19_a_stale_figure_is_unknown_with_its_age():
    """Three that are missed, and some seconds more: then the lag is no news, however small it was."""
    entry = entry_of(piped(beat(100 * SECOND, every=60)), "copy")
    at = entry["at_us"]
    fresh = judged(entry, at + 180 * SECOND)
    assert (fresh["lag_us"], fresh["age_us"], fresh["why"]) == (200_000, 180 * SECOND, "")
    stale = judged(entry, at + 200 * SECOND)
    assert (stale["lag_us"], stale["last_lag_us"], stale["age_us"]) == (None, 200_000, 200 * SECOND)
    assert stale["why"] == "no heartbeat for 200 s; one each 60 s was due"
    back = judged(entry, at - 5 * SECOND)
    assert (back["lag_us"], back["why"]) == (None, "this host's clock was put back since")


def test_a_stage_remembers_the_last_one():
    """What an earlier run knew stays until a newer one comes, whatever way that takes."""
    kept = Arrivals("copy")
    assert kept.entries() == []
    kept.load([entry_of(piped(beat(SECOND)), "copy"), "nonsense", {"path": "x"}])
    assert [entry["heartbeat_us"] for entry in kept.entries()] == [SECOND]
    kept.met(piped(replace(beat(6 * SECOND, group="EXT2"), home="f" * 32)))
    assert [(entry["heartbeat_us"], entry["path"]) for entry in kept.entries()] == [(6 * SECOND, "EXT2 ==> PMP1")]
    again = Arrivals()
    again.load(kept.entries())
    assert again.entries() == kept.entries()


def test_a_clock_is_compared_by_half_of_the_round_trip():
    clock = FakeClock()

    def ask() -> int:
        clock.sleep(0.2)
        theirs = clock.now_us() + 7 * SECOND
        clock.sleep(0.2)
        return theirs

    found = compare(ask, clock)
    assert abs(found.ahead_us - 7 * SECOND) <= 1
    assert abs(found.error_us - 200_000) <= 1


def test_a_difference_is_told_once_until_it_was_gone():
    """And only if it is more than what the question itself may be off."""
    told: list[str] = []
    watch = ClockWatch("the Collector's host", 2, told.append)
    watch.found(2_500_000, 600_000)
    assert told == []
    for ahead in (-3_000_000, -4_000_000, 0, 3_000_000):
        watch.found(ahead)
        watch.found(ahead, 10_000_000)  # an answer that says nothing changes nothing
    assert [("behind" in line, "3.000 s" in line) for line in told] == [(True, True), (False, True)]
    watch.found(None)
    assert watch.ahead_us is None


def test_of_several_answers_the_quickest_counts():
    """As long as it is among the last ones, and none contradicts it: then a clock has moved, and the new one counts."""
    near = Nearest()
    slow, quick = Difference(400_000, 500_000), Difference(1_000, 2_000)
    assert near.add(slow) == slow
    assert near.add(quick) == quick
    for _ in range(WINDOW - 1):
        assert near.add(slow) == quick
    assert near.add(slow) == slow
    near.add(quick)
    moved = Difference(5_000_000, 900_000)
    assert near.add(moved) == moved
    assert near.add(Difference(5_100_000, 900_000)).ahead_us == 5_100_000, "of two alike the newer one"
    near.clear()
    assert near.add(slow) == slow


def test_logdump_shows_every_stamp():
    """In blocks, records and VERIFY; the golden trail has one at its end."""
    source = DumpSource.of(str(Path(__file__).parents[1] / "compat" / "v1" / "dirdat" / "as"))
    lines: list[str] = []
    show_blocks(RealFs(), source, Wanted(), lines.append)
    assert sum("HEARTBEAT whole" in " ".join(line.split()).replace("WHOLE", "whole") for line in lines) == 1
    show_records(RealFs(), source, Wanted(), lines.append)
    shown = [line.split() for line in lines[-5:]]
    assert shown[0][1:3] == ["HEARTBEAT", "shop"]
    assert (shown[1][:2], shown[1][-3:]) == (["EXTRACT", "EXT1"], ["after", "0.000008", "s"])
    assert verify(RealFs(), source, lines.append)
