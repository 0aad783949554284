"""The crash matrix: the writer (and a reader beside it) crash at every file-system call."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace

import pytest

from tests.support.crashing import crash_everywhere
from tests.support.trail_script import (
    SCRIPT,
    TRAIL,
    ScriptWorld,
    Tx,
    assert_stands,
    expected,
    open_writer,
    run_script,
    transactions,
    write_tx,
)
from trails.errors import OperatorError
from trails.format import BlockKind
from trails.position import Position
from trails.reader import BlockReader
from trails.testing import After, Crash, FaultFs

pytestmark = pytest.mark.fault


def check(fs: FaultFs, acknowledged: list[int]) -> None:
    """After a reboot: resume to the end; all is there once, and what was acknowledged still stands."""
    world = ScriptWorld(fs, acknowledged)
    world.live()
    world.check()


def test_CW_09_crash_at_every_call() -> None:
    """I1, I2, I4, I10; CW-09, CW-10: for every call and every way to lose what was not synced."""
    assert crash_everywhere(ScriptWorld(), ScriptWorld.live, ScriptWorld.check) > 100


def test_a_reader_at_every_call_sees_only_what_stays() -> None:
    """I4: a reader that looks between any two calls of the writer never sees a block that a crash then takes away."""
    world, quiet = ScriptWorld(), lambda operation, path: None

    def look(operation: str, path: str) -> None:
        world.fs.fail, watch, world.fs.watch = quiet, world.fs.watch, None
        reader = BlockReader(world.fs, TRAIL, world.seen[-1].end if world.seen else None)
        while (block := reader.read()) is not None:
            world.seen.append(block)
        world.fs.fail, world.fs.watch = look, watch

    def live(one: ScriptWorld) -> None:
        run_script(one.fs, [], [])
        one.fs.fail = quiet

    world.fs.fail = look
    assert crash_everywhere(world, live, ScriptWorld.check) > 100


def test_CW_08_bytes_of_a_failed_sync_are_written_again() -> None:
    """CW-08: a sync failed, the pages look clean; the next writer must not count on them: then the power goes."""
    total = sum(call.startswith("datasync") for call in run_and_log())
    for nth in range(2, total):
        fs, acknowledged, seen, turns = FaultFs(), [0], [], iter(range(10_000))

        def fail(operation: str, path: str, turns=turns, nth=nth) -> None:
            if operation == "datasync" and next(turns) == nth:
                raise OperatorError("EIO")

        fs.fail = fail
        with pytest.raises(OperatorError, match="EIO"):
            run_script(fs, acknowledged, seen)
        fs.reboot(After.KILL)
        fs.crash_at = fs.calls + 60
        with contextlib.suppress(Crash):  # near the script's end it is through before
            run_script(fs, acknowledged, seen)
        fs.reboot(After.POWER)
        check(fs, acknowledged)


def run_and_log() -> list[str]:
    """The calls of one undisturbed run."""
    fs = FaultFs()
    run_script(fs, [], [])
    return fs.log


def test_crash_again_during_recovery() -> None:
    """Recovery itself may crash at any call; the next recovery finds its work half done."""
    crash_everywhere(ScriptWorld(), ScriptWorld.live, ScriptWorld.check, again=lambda n: 1 + n % 60)


@pytest.mark.parametrize(("operation", "code"), [("datasync", "EIO"), ("write", "ENOSPC")])
def test_failed_call_ends_the_writer(operation: str, code: str) -> None:
    """CW-08, CW-28: one failed sync or write ends the writer for good; nothing unsynced is acknowledged after it."""
    total = len(run_and_log())
    for nth in range(1, total):
        fs, acknowledged, seen = FaultFs(), [0], []
        turns = iter(range(1, total * 2))

        def fail(op: str, path: str, turns=turns, nth=nth) -> None:
            if op == operation and next(turns) == nth:
                raise OperatorError(f"cannot {op} {path}: {code}")

        fs.fail = fail
        try:
            run_script(fs, acknowledged, seen)
            break  # fewer such calls than nth: all were tried
        except OperatorError:
            pass
        fs.fail = lambda op, path: None
        # The failed fsync left pages that look clean and are lost: only what was synced before is on the disk.
        fs.reboot(After.POWER)
        check(fs, acknowledged)
    assert nth > 5


def test_writer_is_dead_after_a_failed_sync() -> None:
    """CW-08: the error is raised again by every later call; a sync is never retried."""
    fs = FaultFs()
    writer = open_writer(fs)
    write_tx(writer, SCRIPT[0])

    def fail(operation: str, path: str) -> None:
        if operation == "datasync":
            raise OperatorError("cannot fdatasync: EIO")

    fs.fail = fail
    before = writer.durable
    for _ in range(2):
        with pytest.raises(OperatorError, match="EIO"):
            writer.sync()
        fs.fail = lambda op, path: None
    with pytest.raises(OperatorError, match="EIO"):
        write_tx(writer, SCRIPT[1])
    assert writer.durable == before


def test_CW_04_reader_drops_the_open_part_at_restart() -> None:
    """CW-04: Extract dies inside a large transaction; a reader sees it once, whole, after RESTART."""

    def found(world: ScriptWorld) -> None:
        partial = transactions(world.fs)
        assert partial == expected()[: len(partial)]

    crash_everywhere(ScriptWorld(), ScriptWorld.live, ScriptWorld.check, found=found, ways=[After.KILL])


def test_CW_10_reader_past_the_durable_end_waits() -> None:
    """CW-10: power loss took the durable end back; the reader waits for the writer's recovery, then goes on."""
    fs = FaultFs()
    writer = open_writer(fs)
    write_tx(writer, SCRIPT[0])
    writer.sync()
    reader = BlockReader(fs, TRAIL)
    seen = []
    while (block := reader.read()) is not None:
        seen.append(block)
    fs.reboot(After.POWER)
    reader = BlockReader(fs, TRAIL, seen[-1].end)
    assert reader.read() is None
    run_script(fs, [0], [])
    assert reader.read() is not None
    assert transactions(fs) == expected()


TAIL = [Tx(n, 2) for n in range(1, 10)]
LETTERS = "ABDE"
"""Rows that differ by one of these become blocks of the same length."""


@dataclass
class Rewriting(ScriptWorld):
    """Each life writes other rows of the same length, and syncs at its end only: a crash leaves a tail of many blocks.

    `life`: how many there were. `told`: whose rows a transaction had when it was acknowledged.
    """

    life: int = 0
    told: dict[int, str] = field(default_factory=dict)

    def outside(self) -> tuple[int, int]:
        """See World."""
        return self.life, len(self.told)

    def with_fs(self, fs: FaultFs) -> Rewriting:
        """See World."""
        return Rewriting(fs, [], list(self.seen), self.life, dict(self.told))

    def live(self) -> None:
        """From the trail's end on; a reader looks after each block, synced or not."""
        author = LETTERS[self.life]
        self.life += 1
        writer = open_writer(self.fs, max_bytes=1 << 20)
        reader = BlockReader(self.fs, TRAIL, self.seen[-1].end if self.seen else None)
        for tx in TAIL[writer.last.origin.rba :]:
            write_tx(writer, replace(tx, author=author))
            while (block := reader.read()) is not None:
                self.seen.append(block)
        writer.sync()
        self.told = dict(authors_of(self.fs))
        while (block := reader.read()) is not None:
            self.seen.append(block)
        reader.close()
        writer.close()

    def check(self) -> None:
        """Each once, and none of an earlier life behind one of a later; what was seen or told stands."""
        found = authors_of(self.fs)
        assert [number for number, _ in found] == [tx.number for tx in TAIL]
        letters = [letter for _, letter in found]
        assert letters == sorted(letters)
        assert self.told == dict(found)
        assert_stands(self.fs, self.seen)


def authors_of(fs: FaultFs) -> list[tuple[int, str]]:
    """(number, letter) of each whole transaction in the trail; fails on one in two lives' words."""
    found = []
    for csn, rows in transactions(fs):
        (letter,) = {row[-1] for row in rows}
        found.append((int(csn), letter))
    return found


@pytest.mark.parametrize("how", After)
def test_CW_11_an_unsynced_tail_is_rewritten_with_other_content_of_equal_length(how: After) -> None:
    """No old block is taken for a new one: the power goes before the tail is synced, and, wherever the next life is in
    writing it anew, again. What the old tail left behind the new one's end fits there by length and place.
    """
    alone = [Rewriting(life=life) for life in range(len(LETTERS))]
    for one in alone:
        one.live()
    assert len({tuple(block.end for block in one.seen) for one in alone}) == 1
    assert len({one.seen[-1].payload for one in alone}) == len(LETTERS)
    world = Rewriting(
        FaultFs(crash_at=max(n for n, call in enumerate(alone[0].fs.log, 1) if call.startswith("datasync")))
    )
    with pytest.raises(Crash):
        world.live()
    world.fs.reboot(how)
    assert crash_everywhere(world, Rewriting.live, Rewriting.check) > 20


def test_header_alone_tells_where_to_go_on() -> None:
    """CW-12: all files but the last are purged and no checkpoint is left; the last file's header says it all."""
    fs = FaultFs()
    writer = open_writer(fs)
    for tx in SCRIPT:
        write_tx(writer, tx)
    writer.roll()
    writer.close()
    mark = writer.last
    for seqno in TRAIL.seqnos(fs.listdir(TRAIL.folder))[:-1]:
        fs.remove(TRAIL.path(seqno))
    again = open_writer(fs)
    assert (again.last.csn, again.last.origin) == (mark.csn, mark.origin) == (SCRIPT[-1].csn, mark.origin)
    again.sync()
    reader = BlockReader(fs, TRAIL, Position(again.seqno, 0))
    assert [block.header.kind for block in iter(reader.read, None)] == [BlockKind.METADATA]
    assert list(reader.definitions.values()) == [SCRIPT[-1].table]


def test_alter_is_spent_by_the_new_files_header() -> None:
    """CW-19: an ALTER's number stands in the header that obeys it; a second start with it obeys nothing."""
    fs = FaultFs()
    run_script(fs, [0], [])
    from trails.recovery import Mark

    start = Mark(csn="00000003", origin=Position(0, 3))
    first = open_writer(fs, alter=1, start=start)
    assert (first.last.origin.rba, first.last.alter) == (3, 1)
    write_tx(first, SCRIPT[3])
    first.close()
    again = open_writer(fs, alter=1, start=start)
    assert (again.last.origin.rba, again.last.alter) == (4, 1)
