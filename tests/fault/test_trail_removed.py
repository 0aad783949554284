"""A trail file that is deleted or replaced under its writer: nothing in it is acknowledged, and nobody is silent.

What the path leads to is compared after each sync, before anything is called durable (trails/keeping.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.trail_script import (
    IDENTITY,
    SCRIPT,
    TRAIL,
    ScriptWorld,
    expected,
    open_writer,
    run_script,
    transactions,
    write_tx,
)
from trails import reader as trail_reader
from trails.errors import EXIT_AWAY, AnewError, GateError, LockedError, MismatchError, OperatorError
from trails.fs import RealFs
from trails.keeping import KEPT, read_last
from trails.position import Position, TrailName
from trails.reader import BlockReader
from trails.recovery import Mark
from trails.testing import After, Crash, FaultFs
from trails.writer import TrailWriter

pytestmark = pytest.mark.fault


def newest(fs: FaultFs) -> str:
    """The path of the last file."""
    return TRAIL.path(TRAIL.seqnos(fs.listdir(TRAIL.folder))[-1])


def removed_at(fs: FaultFs, call: int, take: Callable[[FaultFs, str], None]) -> None:
    """At this call, the trail's newest file is deleted or replaced by somebody else."""

    def watch(_what: str) -> None:
        if fs.calls == call:
            fs.watch = None
            if seqnos := TRAIL.seqnos([os.path.basename(path) for path in fs._names]):
                take(fs, TRAIL.path(seqnos[-1]))

    fs.watch = watch


def read_on(reader: BlockReader) -> None:
    """A few looks: one may only find that the file has lost its name."""
    for _ in range(50):
        reader.read()


def calls_of_the_script() -> int:
    fs = FaultFs()
    run_script(fs, [0], [])
    return fs.calls


def test_a_file_removed_while_it_is_made_ends_its_writer_for_a_new_start() -> None:
    """Somebody removes lt000000001.tmp before it has its name: that is no fault of ours, and a new start goes on."""
    fs = FaultFs()
    writer = open_writer(fs)
    write_tx(writer, SCRIPT[0])

    def fail(operation: str, path: str) -> None:
        if operation == "rename" and path == TRAIL.path(1):
            fs.take_away(TRAIL.temp_path(1))

    fs.fail = fail
    with pytest.raises(AnewError, match=r"lt000000001\.tmp was removed") as ended:
        writer.roll()
    assert ended.value.exit_code == EXIT_AWAY
    writer.abandon()
    fs.fail = lambda _operation, _path: None
    assert open_writer(fs).last.origin == Position(0, 1)


def test_a_file_removed_at_any_call_loses_nothing() -> None:
    """Deleted under its writer, whenever that happens: the writer ends, the next goes on, and all is there once."""
    told = 0
    for call in range(1, calls_of_the_script()):
        world = ScriptWorld()
        removed_at(world.fs, call, lambda fs, path: fs.take_away(path))
        try:
            world.live()
        except GateError as error:
            told += "written anew" in str(error)
            world.fs.reboot(After.KILL)
            world.live()
        world.fs.watch = None
        seqnos, last = TRAIL.seqnos(world.fs.listdir(TRAIL.folder)), read_last(world.fs, TRAIL)
        assert last is not None and last.seqno >= seqnos[-1]
        gone = [seqno for seqno in range(last.seqno) if seqno not in seqnos]
        if gone:  # it was ended, and not written any more: readers tell
            with pytest.raises(MismatchError, match=TRAIL.file_name(gone[0])):
                transactions(world.fs, begin=Position(gone[0], 0))
        elif last.seqno == seqnos[-1]:
            assert transactions(world.fs) == expected(), call
        else:  # deleted when the writer was through
            assert open_writer(world.fs).lost == (last.seqno, last.seqno)
    assert told > 50


def test_a_file_replaced_at_any_call_is_never_gone_on_in() -> None:
    """Another file in its place: what was written is kept beside it, and put back it is all there."""
    kept = 0
    for call in range(1, calls_of_the_script(), 3):
        world = ScriptWorld()
        removed_at(world.fs, call, lambda fs, path: fs.take_away(path, by=b"something else"))
        try:
            world.live()
        except GateError as error:
            world.fs.reboot(After.KILL)
            if KEPT not in str(error):
                continue  # replaced before it was opened, or while it was only temporary
            kept += 1
            with pytest.raises(GateError, match=os.path.basename(newest(world.fs))):
                world.live()
            world.fs.reboot(After.KILL)
            world.fs.rename(newest(world.fs) + KEPT, newest(world.fs))
            world.live()
            assert transactions(world.fs) == expected(), call
    assert kept > 15


def test_a_crash_while_the_file_is_written_anew() -> None:
    """Then it is as if nobody had noticed: its number is not used again, and what was not acknowledged comes again."""
    for after in range(12):
        fs = FaultFs()
        open_writer(fs).close()
        writer = open_writer(fs)
        write_tx(writer, SCRIPT[0])
        writer.sync()
        path, acknowledged = newest(fs), fs.content(newest(fs))
        fs.take_away(path)
        write_tx(writer, SCRIPT[1])
        fs.crash_at = fs.calls + 1 + after
        try:
            writer.sync()
        except (Crash, GateError):
            fs.reboot(After.POWER)
        again = open_writer(fs)
        whole = fs.exists(path)
        assert again.seqno == 2
        assert again.lost == (None if whole else (1, 1))
        assert not whole or fs.content(path)[4096:].startswith(acknowledged[4096:])
        assert again.last.origin in ((Position(0, 1), Position(0, 2)) if whole else (Position(0, 0),))
        again.abandon()


@pytest.fixture
def real(tmp_path: Path) -> tuple[RealFs, TrailName]:
    """A trail of real files."""
    (tmp_path / "dirdat").mkdir()
    return RealFs(), TrailName(str(tmp_path / "dirdat"), "lt")


def opened(fs: RealFs, trail: TrailName) -> TrailWriter:
    return TrailWriter.open(fs, trail, IDENTITY, start=Mark(), restart_open=True)


def swap_folder(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.mkdir()


def swap_link(folder: Path) -> None:
    folder.rename(folder.with_name("one"))
    folder.with_name("two").mkdir()
    folder.symlink_to("two")


@pytest.mark.parametrize(
    ("take", "says"),
    [
        (lambda path: path.unlink(), "removed.*written anew.*START"),
        (lambda path: path.rename(path.with_name("lt.bak")), "removed.*It was moved"),
        (lambda path: path.with_name("other").write_text("x") and path.with_name("other").replace(path), "kept"),
        (lambda path: swap_folder(path.parent), "removed.*its folder was"),
        (lambda path: swap_link(path.parent), "removed.*its folder was"),
    ],
)
def test_nothing_is_acknowledged_of_a_file_without_its_name(real, take, says) -> None:
    """unlink, rename, replaced by rename, the folder exchanged, a link in its place: told by the next sync."""
    fs, trail = real
    writer = opened(fs, trail)
    write_tx(writer, SCRIPT[0])
    before = writer.sync()
    take(Path(trail.path(0)))
    write_tx(writer, SCRIPT[1])
    writer.sync_soon()
    with pytest.raises(GateError, match=f"lt000000000 was .*{says}"):
        writer.sync_done(wait=True)
    assert writer.durable == before
    with pytest.raises(GateError):  # dead for good
        writer.append_place(Position(0, 9))
    writer.abandon()


def test_an_idle_writer_notices_too(real) -> None:
    """Nothing is to sync: the look each second tells. A link in place of the folder that leads to it is all right."""
    fs, trail = real
    writer = opened(fs, trail)
    folder = Path(trail.folder)
    folder.rename(folder.with_name("one"))
    folder.symlink_to("one")
    writer.look()
    Path(trail.path(0)).unlink()
    with pytest.raises(GateError, match="lt000000000 was removed"):
        writer.look()
    writer.abandon()
    assert opened(fs, trail).seqno == 1


def test_a_writer_that_is_stopped_notices_too(real) -> None:
    """Deleted since the last look, and nothing is to sync: the open file is still there to write it anew from."""
    fs, trail = real
    writer = opened(fs, trail)
    write_tx(writer, SCRIPT[0])
    writer.sync()
    stood = Path(trail.path(0)).read_bytes()
    Path(trail.path(0)).unlink()
    with pytest.raises(GateError, match=r"lt000000000 was removed.*written anew"):
        writer.close()
    assert Path(trail.path(0)).read_bytes() == stood
    assert opened(fs, trail).lost is None


def test_a_deleted_lock_is_taken_anew_and_two_writers_never_meet(real) -> None:
    """The lock's file is deleted: the writer takes it anew; if another was faster, ours acknowledges nothing more."""
    fs, trail = real
    writer = opened(fs, trail)
    Path(trail.lock_path()).unlink()
    writer.look()
    with pytest.raises(OperatorError, match="held by process"):
        opened(fs, trail)
    Path(trail.lock_path()).unlink()
    other = fs.lock(trail.lock_path())
    with pytest.raises(OperatorError, match="held by process"):
        writer.look()
    writer.abandon()
    other.release()


def test_a_second_writer_never_enters_the_file_of_a_living_one(real) -> None:
    """The lock's file is deleted, and another writer comes before ours has looked: the open file itself is held.

    The file that ours is just making, under a name of its own, is not removed either.
    """
    fs, trail = real
    writer = opened(fs, trail)
    write_tx(writer, SCRIPT[0])
    writer.sync()
    before = Path(trail.path(0)).read_bytes()
    Path(trail.lock_path()).unlink()
    coming = Path(trail.temp_path(1))
    coming.write_bytes(b"")
    with pytest.raises(LockedError, match="lt000000000: another process still writes it"):
        opened(fs, trail)
    assert coming.exists()
    coming.unlink()
    assert Path(trail.path(0)).read_bytes() == before
    write_tx(writer, SCRIPT[1])
    writer.look()
    writer.close()
    assert opened(fs, trail).last.origin == Position(0, 2)


@pytest.mark.parametrize(
    ("overwrite", "says"),
    [
        (lambda path, _older: os.truncate(path, 0), "was truncated"),
        (lambda path, older: path.write_bytes(older), "was truncated"),
        (lambda path, older: path.write_bytes(bytes(1 << 20)), "was overwritten"),
    ],
)
def test_a_file_written_over_in_place_is_told(real, overwrite, says) -> None:
    """`> FILE`, an older copy of it, another file: the name leads to the same file, and what it held is gone."""
    fs, trail = real
    writer = opened(fs, trail)
    path = Path(trail.path(0))
    older = path.read_bytes()
    write_tx(writer, SCRIPT[0])
    writer.sync()
    overwrite(path, older)
    with pytest.raises(MismatchError, match=f"lt000000000 {says}"):
        writer.look()
    with pytest.raises(MismatchError):  # dead for good
        writer.append_place(Position(0, 9))
    writer.abandon()


def test_a_file_cut_under_its_writer_takes_no_block_more(real) -> None:
    """While there is work the next look may come too late: each block is appended where the file ends."""
    fs, trail = real
    writer = opened(fs, trail)
    write_tx(writer, SCRIPT[0])
    writer.sync()
    os.truncate(trail.path(0), 4096)
    with pytest.raises(MismatchError, match="lt000000000 was truncated"):
        write_tx(writer, SCRIPT[1])
    with pytest.raises(MismatchError):
        writer.sync()
    writer.abandon()


def test_a_file_cut_before_its_sync_is_not_called_durable(real) -> None:
    """The last block before an idle time: no next one finds where the file ends."""
    fs, trail = real
    writer = opened(fs, trail)
    write_tx(writer, SCRIPT[0])
    before = writer.sync()
    write_tx(writer, SCRIPT[1])
    os.truncate(trail.path(0), before.rba)
    with pytest.raises(MismatchError, match="lt000000000 was truncated"):
        writer.sync()
    assert writer.durable == before
    writer.abandon()


def test_the_number_of_a_deleted_file_is_not_used_again_and_readers_name_it() -> None:
    """Deleted while nobody wrote: who had read all before it goes on behind it, who stood in it is told its name."""
    fs = FaultFs()
    run_script(fs, [0], [])
    last = TRAIL.seqnos(fs.listdir(TRAIL.folder))[-1]
    inside, before = BlockReader(fs, TRAIL, Position(last, 0)), BlockReader(fs, TRAIL, Position(last - 1, 0))
    assert inside.read() is not None
    while before.position != Position(last, 0) and before.read() is not None and before.position.seqno < last:
        pass
    ended = BlockReader(fs, TRAIL, Position(last - 1, 0))
    fs.take_away(TRAIL.path(last))
    while ended.read() is not None:
        pass
    writer = open_writer(fs)
    assert (writer.seqno, writer.lost) == (last + 1, (last, last))
    for tx in SCRIPT:
        if tx.number > writer.last.origin.rba:
            write_tx(writer, tx)
    writer.close()
    assert transactions(fs) == expected()
    assert ended.read() is not None and ended.position.seqno == last + 1
    for reader in (inside, BlockReader(fs, TRAIL, Position(last, 4200))):
        with pytest.raises(MismatchError, match=rf"{TRAIL.file_name(last)}: expected this file, found .* removed"):
            read_on(reader)


def test_a_gap_that_no_writer_knows_of_is_told_by_name() -> None:
    """A file between others is deleted: the next one does not say that it follows."""
    fs = FaultFs()
    run_script(fs, [0], [])
    fs.take_away(TRAIL.path(1))
    with pytest.raises(MismatchError, match=r"lt000000001: expected this file, found lt000000000 to lt"):
        transactions(fs)


def test_a_reader_goes_on_in_the_file_that_was_put_back(monkeypatch) -> None:
    """It read the deleted file; its writer writes it anew, ends, and the next goes on: the reader misses nothing."""
    monkeypatch.setattr(trail_reader, "BACK_SECONDS", 0.0)
    fs = FaultFs()
    writer = open_writer(fs)
    write_tx(writer, SCRIPT[0])
    writer.sync()
    reader, seen = BlockReader(fs, TRAIL), 0
    while reader.read() is not None:
        seen += 1
    fs.take_away(newest(fs))
    with pytest.raises(GateError, match="written anew"):
        writer.look()
    writer.abandon()
    again = open_writer(fs)
    write_tx(again, SCRIPT[1])
    again.sync()
    assert reader.read() is None  # it left the file that has no name
    assert [block.header.csn for block in iter(reader.read, None)][-1] == SCRIPT[1].csn
    again.abandon()
    fs.take_away(TRAIL.path(1))
    assert reader.read() is None  # it looks for the name from now on
    with pytest.raises(MismatchError, match=r"lt000000001: expected this file, found .* removed"):
        reader.read()


def test_another_trails_file_is_not_adopted() -> None:
    """The newest file was replaced by one of another trail with the same name: its places mean nothing here."""
    other = FaultFs()
    open_writer(other).close()
    fs = FaultFs()
    open_writer(fs).close()
    fs.take_away(TRAIL.path(0), by=other.content(TRAIL.path(0)))
    with pytest.raises(MismatchError, match="lt000000000: replaced by another trail's file"):
        open_writer(fs)
