"""Extract on a scripted source:

Killed at every file-system call, inside transactions, with lost links and lost checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from extract.extract import Ears, Extract, Settings
from extract.source import Sink
from tests.support.crashing import crash_everywhere
from tests.support.scripted import (
    Idle,
    Inside,
    Item,
    ScriptedLog,
    ScriptedSource,
    ScriptedWorld,
    run_until_released,
)
from tests.support.trail_script import SCRIPT, TABLE, TRAIL, WIDER, Tx, expected, holes, transactions
from trails.errors import MismatchError, OperatorError
from trails.hole import Hole
from trails.position import Position
from trails.reader import BlockReader, last_header
from trails.record import Op
from trails.testing import After, Crash, FakeClock, FaultFs

pytestmark = pytest.mark.fault

SETTINGS = Settings("EXT1", "home", "host", TRAIL, "./dirdat/lt", 4096 + 1500, block_bytes=1200)
ITEMS: list[Item] = [
    *SCRIPT[:2], Idle(2), Inside(SCRIPT[2], 25, "lost"), *SCRIPT[3:5],
    Inside(SCRIPT[5], 3, "lost"), *SCRIPT[6:], Idle(9), Idle(10), Tx(11, 30), Idle(12),
]  # fmt: skip


def run(fs: FaultFs, log: ScriptedLog, settings: Settings = SETTINGS) -> Extract:
    """Start and run until the log is handed over and released."""
    clock = FakeClock()
    extract = Extract.start(fs, settings, ScriptedSource(log), clock)
    run_until_released(extract, log, clock)
    return extract


def abandon(extract: Extract) -> None:
    """End as a killed process does, but free the thread."""
    extract._writer.abandon()


def assert_right(fs: FaultFs, wanted: list[tuple[str, list[str]]]) -> None:
    """These transactions, and places that never go back: a source was told of each of them."""
    assert transactions(fs) == wanted
    origins = [block.header.origin for block in iter(BlockReader(fs, TRAIL).read, None)]
    assert origins == sorted(origins)


def everywhere(items: list[Item], wanted: list[tuple[str, list[str]]], *, states: bool = False) -> int:
    """A crash at every call of a run over these items; the next one neither loses nor doubles.

    With `states` the source has another one at each place, and at each start it wants that of the place it is given.
    """

    def check(world: ScriptedWorld) -> None:
        assert_right(world.fs, wanted)

    world = ScriptedWorld(FaultFs(), ScriptedLog(items, states=states))
    return crash_everywhere(world, lambda world: run(world.fs, world.log), check)


def test_crash_at_every_call() -> None:
    """I2, I3, I10, CW-04: after any crash the next start neither loses nor doubles, and gets its origin's state."""
    assert everywhere(ITEMS, [*expected(), *expected([Tx(11, 30)])], states=True) > 100


def test_crash_at_every_call_around_schema_changes() -> None:
    """I1, I3: first, last and in the middle of a transaction, small or large, each change of shape is there once."""
    script = [Tx(1, 2), Tx(2, 1, ddl=0), Tx(3, 30, ddl=11), Tx(4, 3, ddl=2), Tx(5, 1)]
    items: list[Item] = [*script[:2], Inside(script[2], 20, "lost"), Inside(script[3], 2, "lost"), script[4]]
    assert everywhere(items, expected(script)) > 50


@pytest.mark.parametrize("after", range(0, 30, 3))
def test_a_process_that_dies_inside_a_transaction_gets_it_again_whole(after: int) -> None:
    """CW-04: the part that is in the trail already is dropped by readers at RESTART."""
    fs, log = FaultFs(), ScriptedLog([SCRIPT[0], SCRIPT[1], Inside(SCRIPT[2], after, "crash"), SCRIPT[3]])
    with pytest.raises(Crash):
        run(fs, log)
    fs.reboot(After.KILL)
    run(fs, log)
    assert transactions(fs) == expected(SCRIPT[:4])


@pytest.mark.parametrize("states", [False, True], ids=["origin alone", "CW-31: a state that stands in the trail only"])
def test_CW_12_all_files_but_the_last_are_purged_and_the_source_lags(states: bool) -> None:
    """CW-12: the last file's header alone tells where to go on; what the source still has is dropped."""
    script = [Tx(n, 3) for n in range(1, 60)]
    fs, log = FaultFs(), ScriptedLog(list(script[:50]), states=states)
    run(fs, log)
    log.confirmed = 0
    last = last_header(fs, TRAIL)
    assert last is not None and last.seqno > 1
    for name in fs.listdir(TRAIL.folder):
        if name != TRAIL.file_name(last.seqno):
            fs.remove(f"{TRAIL.folder}/{name}")
    kept = len(transactions(fs))
    log.items += script[50:]
    log.given.clear()
    run(fs, log)
    assert log.given[0] == (50, log.state(50)), "what the last file says of the files before it"
    assert transactions(fs) == expected(script[50 - kept :])


def test_CW_13_a_slot_made_anew_behind_a_hole_is_refused() -> None:
    """CW-13: the idle source moved on, the slot is another one: its confirmed place is past the trail's."""
    fs, log = FaultFs(), ScriptedLog([*SCRIPT[:3], Idle(20)])
    run(fs, log)
    log.items.append(Tx(30, 1))
    log.confirmed = 31
    with pytest.raises(MismatchError, match="confirmed up to 31, the trail ends at 20"):
        run(fs, log)


def test_another_source_is_refused_before_anything_is_written() -> None:
    """I3: the header of the trail knows where it comes from."""
    fs, log = FaultFs(), ScriptedLog(list(SCRIPT[:3]))
    run(fs, log)
    names = fs.listdir(TRAIL.folder)
    log.identity = {**log.identity, "system": "2"}
    with pytest.raises(MismatchError, match="another source"):
        run(fs, log)
    assert fs.listdir(TRAIL.folder) == names


def test_CW_27_a_question_is_answered_with_the_durable_place_only() -> None:
    """CW-27: the server asks while transactions are read and not synced."""
    fs = FaultFs()
    log = ScriptedLog([SCRIPT[0], Idle(1), SCRIPT[1], Idle(2), Idle(3)])
    clock = FakeClock()
    extract = Extract.start(fs, SETTINGS, ScriptedSource(log), clock)
    stuck = extract._writer.sync_soon
    extract._writer.sync_soon = lambda: False  # type: ignore[method-assign]  # a disk that takes for ever
    for _ in range(20):
        extract.step()
        clock.sleep(0.2)
    assert log.answered == [0, 0, 0]
    assert log.confirmed == 0
    extract._writer.sync_soon = stuck  # type: ignore[method-assign]
    extract.flush()
    assert log.confirmed == 3
    extract.close()


def test_an_idle_source_may_forget() -> None:
    """An idle or filtered source's place goes into the trail, and only then back to the source."""
    fs, log = FaultFs(), ScriptedLog([SCRIPT[0], *(Idle(n) for n in range(10, 2000, 10))])
    run(fs, log)
    assert log.confirmed >= 1990
    again = ScriptedLog([SCRIPT[0], Tx(3000, 1)], confirmed=log.confirmed)
    run(fs, again)
    assert transactions(fs) == expected([SCRIPT[0], Tx(3000, 1)])


def test_a_kill_inside_a_large_transaction_behind_an_idle_time_loses_no_place() -> None:
    """The source was told that it may forget: the place said so must stand in the trail, whatever block is its last."""
    fs = FaultFs()
    log = ScriptedLog([SCRIPT[0], Idle(10), Inside(Tx(30, 40), 35, "crash"), Tx(31, 1)], states=True)
    with pytest.raises(Crash):
        run(fs, log)
    assert log.confirmed == 10
    fs.reboot(After.KILL)
    run(fs, log)
    assert_right(fs, expected([SCRIPT[0], Tx(30, 40), Tx(31, 1)]))


def test_CW_19_an_alter_is_obeyed_exactly_once() -> None:
    """CW-19: killed at every call of the start that obeys it, and started again with the same registration."""
    altered = replace(SETTINGS, alter_no=1, alter=(("csn", "3"),))
    reference = FaultFs()
    run(reference, ScriptedLog(list(SCRIPT[:2]), states=True))
    begin = reference.calls
    run(reference, ScriptedLog(list(SCRIPT), states=True, altered=3), altered)
    wanted = expected([*SCRIPT[:2], *SCRIPT[3:]])
    assert transactions(reference) == wanted
    for n in range(begin + 1, reference.calls + 1):
        fs = FaultFs()
        run(fs, ScriptedLog(list(SCRIPT[:2]), states=True))
        fs.crash_at = n
        log = ScriptedLog(list(SCRIPT), states=True, altered=3)
        try:
            run(fs, log, altered)
        except Crash:
            pass
        fs.reboot(After.KILL)
        run(fs, log, altered)
        assert transactions(fs) == wanted, f"crash at call {n}"
        assert holes(fs, TRAIL) == [Hole("ALTER EXTRACT EXT1", "2", "3")], f"crash at call {n}"


def test_CW_19_an_alter_is_not_obeyed_again_where_the_trail_is_gone() -> None:
    """Everything in dirdat is deleted: the same order would leave out what was captured since; a new one may."""
    fs, noted = FaultFs(), list[int]()
    altered = replace(SETTINGS, alter_no=1, alter=(("csn", "3"),))
    log = ScriptedLog(list(SCRIPT), altered=3)
    made = Extract.start(fs, altered, ScriptedSource(log), FakeClock(), ears=Ears(obeyed=noted.append))
    run_until_released(made, log, FakeClock())
    assert noted == [1]
    for name in fs.listdir(TRAIL.folder):
        fs.remove(f"{TRAIL.folder}/{name}")
    spent = replace(altered, obeyed=1)
    with pytest.raises(MismatchError, match="has no file left, and the ALTER that says where it begins was obeyed"):
        run(fs, log, spent)
    assert not fs.listdir(TRAIL.folder)
    again = replace(spent, alter_no=2, alter=(("csn", str(log.confirmed)),))
    abandon(Extract.start(fs, again, ScriptedSource(log), FakeClock()))


def test_an_alter_to_the_trails_end_leaves_no_hole() -> None:
    """Nothing lies between: the trail says nothing, and nobody is warned."""
    fs, told = FaultFs(), list[Hole]()
    log = ScriptedLog(list(SCRIPT[:2]))
    run(fs, log)
    altered = replace(SETTINGS, alter_no=1, alter=(("csn", "2"),))
    abandon(Extract.start(fs, altered, ScriptedSource(log), FakeClock(), ears=Ears(hole=told.append)))
    assert not told
    assert not holes(fs, TRAIL)
    altered = replace(SETTINGS, alter_no=2, alter=(("csn", "3"),))
    abandon(Extract.start(fs, altered, ScriptedSource(log), FakeClock(), ears=Ears(hole=told.append)))
    assert told == holes(fs, TRAIL) == [Hole("ALTER EXTRACT EXT1", "2", "3")]
    abandon(Extract.start(fs, altered, ScriptedSource(log), FakeClock(), ears=Ears(hole=told.append)))
    assert len(told) == len(holes(fs, TRAIL)) == 1


def test_begin_now_at_a_source_that_went_back_is_refused_and_not_spent() -> None:
    """I3: a restored backup's next changes would have the CSNs of changes that the trail has: readers drop those."""
    fs, log = FaultFs(), ScriptedLog(list(SCRIPT[:4]))
    run(fs, log)
    log.altered = 2
    now = replace(SETTINGS, alter_no=1, alter=(("begin", "now"),))
    with pytest.raises(MismatchError, match="BEGIN NOW is 2, before the trail's end, 4: the source was reset"):
        Extract.start(fs, now, ScriptedSource(log), FakeClock())
    header = last_header(fs, TRAIL)
    assert header is not None and header.alter == 0
    assert not holes(fs, TRAIL)
    log.altered = 9
    abandon(Extract.start(fs, now, ScriptedSource(log), FakeClock()))
    assert holes(fs, TRAIL) == [Hole("ALTER EXTRACT EXT1", "4", "9")]


def test_an_alter_backwards_is_refused_and_not_spent() -> None:
    """The source has let go of it; the order stands until somebody gives another."""
    fs, log = FaultFs(), ScriptedLog(list(SCRIPT[:4]))
    run(fs, log)
    with pytest.raises(OperatorError, match="let go"):
        run(fs, log, replace(SETTINGS, alter_no=1, alter=(("csn", "2"),)))
    header = last_header(fs, TRAIL)
    assert header is not None and header.alter == 0


def test_etrollover_begins_a_new_file_once() -> None:
    """The number is spent by the new file's header; the place stays."""
    fs, log = FaultFs(), ScriptedLog(list(SCRIPT[:4]))
    run(fs, log)
    log.items += SCRIPT[4:]
    run(fs, log, replace(SETTINGS, alter_no=1, alter=(("etrollover", True),)))
    header = last_header(fs, TRAIL)
    assert header is not None and header.alter == 1
    assert transactions(fs) == expected()


def test_CW_08_a_failed_sync_ends_the_process_and_releases_nothing() -> None:
    """CW-08: fdatasync fails once; what it covered is not acknowledged, now or later."""
    fs, log = FaultFs(), ScriptedLog(list(SCRIPT))

    def fail(operation: str, path: str) -> None:
        if operation == "datasync" and fs.calls > 30:
            raise OperatorError("EIO (test)")

    fs.fail = fail
    with pytest.raises(OperatorError, match="EIO"):
        run(fs, log)
    confirmed = log.confirmed
    fs.fail = lambda operation, path: None
    fs.reboot(After.POWER)
    abandon(Extract.start(fs, SETTINGS, ScriptedSource(log), FakeClock()))  # readers wait until this has recovered
    assert all(int(csn) <= 8 for csn, _ in transactions(fs))
    assert confirmed <= max((int(csn) for csn, _ in transactions(fs)), default=0)
    run(fs, log)
    assert transactions(fs) == expected()


def test_a_table_that_changes_shape_inside_a_transaction() -> None:
    """Rows before and after name their own definition, in blocks of their own, across files."""
    fs, log = FaultFs(), ScriptedLog([])
    narrow, wide = Tx(1, 5), Tx(1, 5, table=WIDER)

    class Both(ScriptedSource):
        def _walk(self, origin):  # type: ignore[no-untyped-def]
            sink = self._sink
            assert sink is not None
            if origin >= 1:
                return
            sink.begin("00000001", "1", 1)
            for tx in (narrow, wide, narrow):
                for record in tx.records()[1:-1]:
                    sink.records.append((2, sink.table(tx.table), record[2]))
                    sink.grew(10)
            from trails.position import Position

            sink.commit(Position(0, 1), "00000001", 1)
            yield False

    extract = Extract.start(fs, SETTINGS, Both(log), FakeClock())
    extract.step()
    extract.flush()
    extract.close()
    assert [len(rows) for _, rows in transactions(fs)] == [15]


@dataclass(frozen=True)
class Redo:
    """One entry of a log in which transactions are mixed, as in redo: a row of a transaction, or its commit."""

    xid: int
    commit: bool = False


@dataclass
class RedoLog(ScriptedLog):
    """A place is that behind an entry. What lies before the oldest place that a state still needed is purged."""

    entries: tuple[Redo, ...] = ()

    def end(self) -> int:
        """See ScriptedLog."""
        return len(self.entries)

    def state(self, place: int) -> str:
        """Where the oldest transaction begins that is open at a place."""
        ended = {entry.xid: n for n, entry in enumerate(self.entries) if entry.commit}
        oldest = min((n for n in range(place) if ended[self.entries[n].xid] >= place), default=place)
        return str(oldest) if place else ""


class RedoSource(ScriptedSource):
    """Hands over a transaction at its commit. Its state is where the oldest transaction begins that is open there."""

    log: RedoLog

    def start(self, origin: Position, state: str, sink: Sink) -> None:
        """See Source: reads again from the state on, and hands over what commits behind the origin."""
        super().start(origin, state, sink)
        begin, purged = int(state or 0), int(self.log.state(self.log.confirmed) or 0)
        assert begin >= purged, f"the log from {begin} on is purged up to {purged}"
        self._steps = self._walk(origin.rba, begin)

    def _walk(self, origin: int, begin: int = 0) -> Iterator[bool]:
        assert self._sink is not None
        open_: dict[int, list[int]] = {}
        for n in range(begin, len(self.log.entries)):
            entry, place = self.log.entries[n], n + 1
            state = self.log.state(place)
            if not entry.commit:
                open_.setdefault(entry.xid, []).append(n)
                if place > origin:
                    self._sink.reached(Position(0, place), place, state)
            elif place > origin:
                self._sink.begin(f"{place:08d}", str(entry.xid), place)
                for row in open_.pop(entry.xid):
                    self._sink.records.append((int(Op.INSERT), self._sink.table(TABLE), [str(row), "v" * 200]))
                    self._sink.grew(300)
                self._sink.commit(Position(0, place), f"{place:08d}", place, state)
            else:
                open_.pop(entry.xid, None)
            yield n % 3 != 0


REDO = tuple(
    Redo(int(text[0]), text.endswith("c"))
    for part in ("1r 2r 1r 2c 3r 3r 1r 3r 3r 3r 3c 4r", "1r 4c 5r 1r 1c 6r 6r 5r 6c 5c 7r 7c")
    for text in part.split()
)


def test_GG_17_a_killed_Extract_reads_open_transactions_again_whole_from_its_recovery_place() -> None:
    """GG-17: at every call; also where the log before the recovery place is gone, as nobody is said to need it."""
    wanted = [
        (f"{n + 1:08d}", [str(m) for m in range(n) if REDO[m].xid == entry.xid])
        for n, entry in enumerate(REDO)
        if entry.commit
    ]
    clock = FakeClock()

    def live(world: ScriptedWorld) -> None:
        assert isinstance(world.log, RedoLog)
        run_until_released(Extract.start(world.fs, SETTINGS, RedoSource(world.log), clock), world.log, clock)

    def check(world: ScriptedWorld) -> None:
        assert_right(world.fs, wanted)

    world = ScriptedWorld(FaultFs(), RedoLog([], entries=REDO))
    assert crash_everywhere(world, live, check) > 20
