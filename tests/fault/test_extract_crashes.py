"""Extract on a scripted source:

Killed at every file-system call, inside transactions, with lost links and lost checkpoints.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from extract.extract import Extract, Settings
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
from tests.support.trail_script import SCRIPT, TRAIL, WIDER, Tx, expected, transactions
from trails.errors import MismatchError, OperatorError
from trails.reader import last_header
from trails.testing import After, Crash, FakeClock, FaultFs

pytestmark = pytest.mark.fault

SETTINGS = Settings("EXT1", "home", "host", TRAIL, "./dirdat/lt", 4096 + 1500, block_bytes=1200)
ITEMS: list[Item] = [
    *SCRIPT[:2], Idle(2), Inside(SCRIPT[2], 25, "lost"), *SCRIPT[3:5],
    Inside(SCRIPT[5], 3, "lost"), *SCRIPT[6:], Idle(9),
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


def everywhere(items: list[Item], wanted: list[tuple[str, list[str]]]) -> int:
    """A crash at every call of a run over these items; the next one neither loses nor doubles."""

    def check(world: ScriptedWorld) -> None:
        assert transactions(world.fs) == wanted

    return crash_everywhere(ScriptedWorld(FaultFs(), ScriptedLog(items)), lambda world: run(world.fs, world.log), check)


def test_crash_at_every_call() -> None:
    """I2, I3, I10, CW-04: after any crash the next start neither loses nor doubles."""
    assert everywhere(ITEMS, expected()) > 100


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


def test_all_files_but_the_last_are_purged_and_the_source_lags() -> None:
    """CW-12: the last file's header alone tells where to go on; what the source still has is dropped."""
    script = [Tx(n, 3) for n in range(1, 60)]
    fs, log = FaultFs(), ScriptedLog(list(script[:50]))
    run(fs, log)
    log.confirmed = 0
    last = last_header(fs, TRAIL)
    assert last is not None and last.seqno > 1
    for name in fs.listdir(TRAIL.folder):
        if name != TRAIL.file_name(last.seqno):
            fs.remove(f"{TRAIL.folder}/{name}")
    kept = len(transactions(fs))
    log.items += script[50:]
    run(fs, log)
    assert transactions(fs) == expected(script[50 - kept :])


def test_a_slot_made_anew_behind_a_hole_is_refused() -> None:
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


def test_a_question_is_answered_with_the_durable_place_only() -> None:
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


def test_an_alter_is_obeyed_exactly_once() -> None:
    """CW-19: killed at every call of the start that obeys it, and started again with the same registration."""
    altered = replace(SETTINGS, alter_no=1, alter=(("csn", "3"),))
    reference = FaultFs()
    run(reference, ScriptedLog(list(SCRIPT[:2])))
    begin = reference.calls
    run(reference, ScriptedLog(list(SCRIPT)), altered)
    wanted = expected([*SCRIPT[:2], *SCRIPT[3:]])
    assert transactions(reference) == wanted
    for n in range(begin + 1, reference.calls + 1):
        fs = FaultFs()
        run(fs, ScriptedLog(list(SCRIPT[:2])))
        fs.crash_at = n
        log = ScriptedLog(list(SCRIPT))
        try:
            run(fs, log, altered)
        except Crash:
            pass
        fs.reboot(After.KILL)
        run(fs, log, altered)
        assert transactions(fs) == wanted, f"crash at call {n}"


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


def test_a_failed_sync_ends_the_process_and_releases_nothing() -> None:
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
