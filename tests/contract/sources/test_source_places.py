"""Every source: where it goes on, what it refuses to begin behind, and what it lets the database forget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extract import kinds
from extract.params import check_start
from extract.source import Source
from tests.contract.sources.bench import KV, Collected, SourceBench
from trails.errors import MismatchError, OperatorError
from trails.position import Position
from trails.testing import After, FaultFs

pytestmark = pytest.mark.e2e

LIFE = (
    "INSERT INTO kv VALUES (1, 'a', 1)", "INSERT INTO kv VALUES (2, 'b', NULL)", "UPDATE kv SET b = 5 WHERE id = 1",
    "UPDATE kv SET id = 3 WHERE id = 2", "DELETE FROM kv WHERE id = 1",
)  # fmt: skip


def image(bench: SourceBench) -> object:
    """All that the trail's files hold."""
    assert isinstance(bench.fs, FaultFs)
    return bench.fs.image()


def test_PF_03_it_resumes_at_any_origin(bench: SourceBench):
    """Of two transactions that a process was handed, the second is lost with it: the next one gets that, and no other.

    So it goes on at the origin of the first, with its state, wherever the last process stood.
    """
    bench.register(KV)
    source = bench.source()
    mark, csns = (source.first_origin(), "", ""), [""]
    for pair in (LIFE[:2], LIFE[2:4], (LIFE[4], "INSERT INTO kv VALUES (9, 'last', 9)")):
        first = Collected(*mark[:2])
        source = begun(bench, first)
        for statement in pair:
            bench.sql(statement)
            first.read(source, bench.place)
        source.close()
        assert [len(records) for records in first.found] == [1, 1]
        again = Collected(*first.ends[0][:2])
        source = begun(bench, again)
        again.read(source, bench.place)
        source.close()
        assert again.found == first.found[1:]
        csns += [first.ends[0][2], again.ends[0][2]]
        mark = again.ends[0]
    assert csns == sorted(set(csns)), "in commit order"


def begun(bench: SourceBench, sink: Collected) -> Source:
    """A source that has begun where the sink ends."""
    source = bench.source()
    source.identify(None)
    source.start(sink.origin, sink.state, sink)  # type: ignore[arg-type]
    return source


def test_CW_31_what_the_trails_last_block_says_is_given_back(bench: SourceBench):
    """No checkpoint was saved, and no file's header has it: after a loss of power it goes on there."""
    bench.register(KV)
    extract = bench.start()
    bench.sees(extract, *LIFE[:2])
    mark = extract._writer.last
    bench.die(extract)
    assert isinstance(bench.fs, FaultFs)
    bench.fs.reboot(After.POWER)
    bench.sql(*LIFE[2:])
    given: list[tuple[Position, str]] = []
    source = bench.source()
    start = source.start
    source.start = lambda origin, state, sink: (given.append((origin, state)), start(origin, state, sink))[1]  # type: ignore[method-assign]
    extract = bench.start(source)
    assert given == [(mark.origin, mark.state)]
    bench.drain(extract)
    bench.same(bench.mirror(), "kv")


def test_an_ALTER_to_a_place_ahead_passes_over_what_lies_before_it(bench: SourceBench):
    """One to a place that the source has let go of, or that is none, is refused and writes nothing."""
    bench.register(KV)
    bench.sql(LIFE[0])
    bench.capture()
    bench.sql(LIFE[1])
    source = bench.source()
    source.identify(None)
    ahead, gone = bench.place.csn(), source.place(Position(0, 0), None).csn
    source.close()
    bench.sql("INSERT INTO kv VALUES (7, 'later', 7)")
    before = image(bench)
    for wrong in (gone, "no place at all"):
        with pytest.raises(OperatorError, match="ALTER EXTRACT"):
            bench.start(alter_no=1, alter=(("csn", wrong),))
        assert image(bench) == before
    mirror = bench.capture(alter_no=1, alter=(("csn", ahead),))
    assert [record[2][0] for record in mirror.records] == ["1", "7"]


def test_START_with_a_CSN_leaves_out_exactly_what_lies_before_it(bench: SourceBench):
    """ATCSN and AFTERCSN, by CSNs that a trail would have; what the trail has already is refused, and comes once.

    A source that numbers transactions as it reads them refuses both.
    """
    bench.register(KV)
    told = bench.told()
    if not kinds.method(kinds.of(told.url), told.method).keeps_csns:
        with pytest.raises(OperatorError, match="gets its CSNs as it is read, so none is known before"):
            check_start(told.url, told.method, "EXT1")
        return
    extract = bench.start()
    bench.sees(extract, LIFE[0])
    mark = extract._writer.last
    bench.stop(extract)
    seen = Collected(mark.origin, mark.state)
    source = begun(bench, seen)
    for key in (4, 5, 6, 7):
        bench.sql(f"INSERT INTO kv VALUES ({key}, 'x', NULL)")
        seen.read(source, bench.place)
    source.close()
    csns = [csn for _, _, csn in seen.ends]
    assert len(csns) == 4
    with pytest.raises(OperatorError, match="which would come twice"):
        bench.start(start_no=1, start=(("at_csn", mark.csn),))
    mirror = bench.capture(start_no=1, start=(("at_csn", csns[1]),))
    assert [record[2][0] for record in mirror.records] == ["1", "5", "6", "7"]
    bench.sql("INSERT INTO kv VALUES (8, 'x', NULL)")
    mirror = bench.capture(start_no=2, start=(("after_csn", csns[3]),))
    assert [record[2][0] for record in mirror.records] == ["1", "5", "6", "7", "8"]


def test_another_database_is_refused_before_anything_is_written(bench: SourceBench):
    """By what REGISTER EXTRACT noted, and where that says nothing by the trail's own header."""
    bench.register(KV)
    bench.sql(LIFE[0])
    bench.capture()
    other, before = bench.place.other(), image(bench)
    registered = bench.registered
    assert registered is not None
    for known in (registered, replace(registered, identity=dict.fromkeys(registered.identity, ""))):
        bench.registered = known
        with pytest.raises(MismatchError, match="belongs to"):
            bench.start(bench.source(other))
        assert image(bench) == before
    bench.registered = registered
    bench.sql(LIFE[1])
    bench.same(bench.capture(), "kv")


def test_CW_13_PF_02_changes_that_are_gone_are_never_passed_over(bench: SourceBench):
    """The source has let go of them, whoever told it: refused as often as it is started."""
    bench.register(KV)
    bench.sql(LIFE[0])
    bench.capture()
    bench.sql(*LIFE[1:])
    bench.place.lose_history()
    bench.sql("INSERT INTO kv VALUES (9, 'behind the hole', 9)")
    before = bench.mirror()
    for _ in range(2):
        with pytest.raises(MismatchError):
            bench.start()
    assert bench.mirror() == before


def test_GG_02_the_source_forgets_only_what_is_in_synced_files(bench: SourceBench):
    """What its log or queue has is in files first: all is read and written, on a disk that takes for ever, and nothing
    is let go. Then it is, soon.
    """
    bench.register(KV)
    extract = bench.start()
    bench.sees(extract, "INSERT INTO kv VALUES (0, 'before', 0)")
    sync, extract._writer.sync_soon = extract._writer.sync_soon, lambda: False  # type: ignore[method-assign]
    durable, goals = extract._writer.durable, []
    for statement in LIFE:
        bench.sql(statement)
        goals.append(bench.place.end())
    bench.until(extract, lambda: bench.place.has_read(extract._writer.last.origin, goals[-1]))
    for _ in range(20):
        extract.step()
    assert extract._writer.durable == durable
    assert not bench.place.has_forgotten(goals[0])
    extract._writer.sync_soon = sync  # type: ignore[method-assign]
    bench.until(extract, lambda: bench.place.has_forgotten(goals[-1]))
    bench.same(bench.mirror(), "kv")


def test_CW_29_killed_between_the_sync_and_the_release(bench: SourceBench):
    """The next one is told again what the trail has, or passes over it; and then the source forgets it."""
    bench.register(KV)
    bench.sql(*LIFE)
    extract = bench.start()
    extract._source.release = lambda _origin: None  # type: ignore[method-assign]
    bench.drain(extract)
    bench.die(extract)
    assert not bench.place.has_forgotten(bench.place.end())
    bench.sql("INSERT INTO kv VALUES (9, 'later', 9)")
    extract = bench.start()
    bench.drain(extract)
    bench.same(bench.mirror(), "kv")
    goal = bench.place.end()
    bench.until(extract, lambda: bench.place.has_forgotten(goal))


def test_PF_11_an_idle_group_lets_the_source_advance(bench: SourceBench):
    """Only tables that are not captured change: their place goes into the trail, and from there to the source."""
    bench.tables = "TABLE {}.kv;"
    bench.register(KV, KV.replace("kv", "other"))
    extract = bench.start()
    bench.sees(extract, *LIFE)
    bench.insert("other", *((n, "x", n) for n in range(200)))
    goal = bench.place.end()
    bench.until(extract, lambda: bench.place.has_forgotten(goal))
    assert set(bench.mirror().tables) == {"kv"}
    bench.stop(extract)
    bench.sql("INSERT INTO kv VALUES (9, 'later', 9)")
    bench.same(bench.capture(), "kv")
