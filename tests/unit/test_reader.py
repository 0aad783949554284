"""trails/reader.py and plan.py: following, damage by a table (CW-22), gaps, other trails, bad positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.trail_script import SCRIPT, TRAIL, expected, open_writer, run_script, transactions, write_tx
from trails.errors import DamageError, GateError, MismatchError, VersionError
from trails.format import DURABLE_OFFSET
from trails.position import Position
from trails.reader import Block, BlockReader, time_before
from trails.testing import FaultFs


def written() -> FaultFs:
    """A file system with the whole script in a trail of several files."""
    fs = FaultFs()
    run_script(fs, [0], [])
    return fs


def read_all(fs: FaultFs, begin: Position | None = None) -> list[Block]:
    """All blocks from `begin`."""
    reader, blocks = BlockReader(fs, TRAIL, begin), []
    while (block := reader.read()) is not None:
        blocks.append(block)
    return blocks


def flip(at: int) -> Callable[[bytearray], None]:
    """Change one bit."""

    def change(data: bytearray) -> None:
        data[at] ^= 4

    return change


def test_CW_22_any_flipped_byte_in_any_file_is_found() -> None:
    """CW-22: one bit anywhere below the durable end, oldest and newest file alike: an error that names file and RBA."""
    whole = written()
    files = TRAIL.seqnos(whole.listdir(TRAIL.folder))
    assert len(files) > 2
    for seqno in (files[0], files[1], files[-1]):
        path = TRAIL.path(seqno)
        used = len(whole.content(path)[:4096].rstrip(b"\0"))
        for at in [*range(0, used, 3), *range(4096, len(whole.content(path)), 7)]:
            if 28 <= at < 32:
                continue  # reserved, read by nobody
            fs = written()
            fs.corrupt(path, flip(at))
            with pytest.raises((DamageError, VersionError)) as caught:
                assert len(read_all(fs)) < 0
            assert TRAIL.file_name(seqno) in str(caught.value)


def test_CW_22_damage_below_the_durable_end_stops_the_writer_too() -> None:
    """CW-22: a new writer does not take damage for an unfinished tail."""
    fs = written()
    newest = TRAIL.path(TRAIL.seqnos(fs.listdir(TRAIL.folder))[-1])
    fs.corrupt(newest, flip(4100))
    with pytest.raises(DamageError, match=r"RBA 4096.*expected.*found"):
        open_writer(fs)


@pytest.mark.parametrize(
    ("name", "change", "error", "words"),
    [
        ("truncated", lambda d: d.__delitem__(slice(-1, None)), DamageError, "truncated"),
        ("empty", lambda d: d.clear(), DamageError, "found 0 bytes"),
        ("foreign", lambda d: d.__setitem__(slice(0, 4), b"\x7fELF"), DamageError, "not a trail file"),
        ("newer", lambda d: d.__setitem__(9, 2), VersionError, "format version 2"),
        (
            "durable end wiped",
            lambda d: d.__setitem__(slice(DURABLE_OFFSET, DURABLE_OFFSET + 12), bytes(12)),
            DamageError,
            "CRC",
        ),
    ],
)
def test_damages(name: str, change: Callable[[bytearray], None], error: type[GateError], words: str) -> None:
    """A table of damages to an old file: each has its error, none is skipped."""
    fs = written()
    fs.corrupt(TRAIL.path(1), change)
    with pytest.raises(error, match=words):
        read_all(fs)


def test_file_of_another_place_is_found() -> None:
    """A copy of one file under another's name is damage, not data."""
    fs = written()
    content = fs.content(TRAIL.path(1))
    fs.corrupt(TRAIL.path(2), lambda d: d.__setitem__(slice(None), content))
    with pytest.raises(DamageError, match="renamed or copied"):
        read_all(fs)


def test_gap_in_the_files_is_refused() -> None:
    """A missing file in the middle is never stepped over."""
    fs = written()
    fs.remove(TRAIL.path(1))
    for begin in (Position(0, 0), Position(1, 0)):
        with pytest.raises(MismatchError, match="purged or removed"):
            read_all(fs, begin)


def test_an_older_copy_with_a_gap_behind_it_is_refused() -> None:
    """It has no END, and the file that it would go on in is gone: nothing is to come, and nobody waits for it."""
    fs = FaultFs()
    writer = open_writer(fs)
    write_tx(writer, SCRIPT[0])
    writer.sync()
    older = bytes(fs._names[TRAIL.path(0)].data)
    writer.close()
    run_script(fs, [0], [])
    fs.take_away(TRAIL.path(0), by=older)
    fs.remove(TRAIL.path(1))
    with pytest.raises(DamageError, match="expected an END block, as a later file is in use"):
        read_all(fs)


def test_trail_made_anew_is_refused() -> None:
    """CW-02: a reader that knows the trail's id refuses another trail under the same name."""
    reader = BlockReader(written(), TRAIL, trail_id=b"x" * 16)
    with pytest.raises(MismatchError, match="made anew"):
        reader.read()


def test_position_inside_a_block_is_refused() -> None:
    """A position that is no block border is an operator's error, not data."""
    fs = written()
    with pytest.raises(MismatchError, match="block border"):
        read_all(fs, Position(0, 4100))


def test_any_block_border_is_a_start() -> None:
    """Reading from each block's start gives the same rest, with the definitions it needs."""
    fs = written()
    blocks = read_all(fs)
    for i, block in enumerate(blocks):
        assert read_all(fs, block.start) == blocks[i:]
        assert read_all(fs, block.end) == blocks[i + 1 :]


def test_reader_without_a_trail_waits() -> None:
    """No file yet: nothing to read, no error; it goes on when the writer begins."""
    fs = FaultFs()
    reader = BlockReader(fs, TRAIL)
    assert reader.read() is None
    run_script(fs, [0], [])
    assert reader.read() is not None


def test_unsynced_blocks_are_not_read() -> None:
    """I4: a block is there for readers only after its sync."""
    fs = FaultFs()
    writer = open_writer(fs)
    reader = BlockReader(fs, TRAIL)
    write_tx(writer, SCRIPT[0])
    assert reader.read() is None
    writer.sync()
    while reader.read() is not None:
        pass
    assert reader.position == writer.durable == writer.position


def test_script_reads_back_from_real_files(tmp_path: object) -> None:
    """The same script on the machine's own file system, with background syncs."""
    from trails.fs import RealFs
    from trails.position import TrailName

    fs, trail = RealFs(), TrailName(str(tmp_path), "lt")
    from tests.support.trail_script import IDENTITY, MAX_BYTES
    from trails.writer import TrailWriter

    writer = TrailWriter.open(fs, trail, IDENTITY, max_bytes=MAX_BYTES, restart_open=True)
    for tx in SCRIPT:
        write_tx(writer, tx)
        writer.sync_soon()
    writer.sync_done(wait=True)
    writer.close()
    assert transactions(fs, trail) == expected()


def test_file_that_comes_while_one_looks_is_waited_for() -> None:
    """A writer rolls over between a reader's open and its look at the folder: that is no gap."""
    fs = FaultFs()
    writer = open_writer(fs)
    write_tx(writer, SCRIPT[0])
    writer.sync()
    reader = BlockReader(fs, TRAIL)
    while reader.read() is not None:
        pass

    def roll_before_listing(operation: str, path: str) -> None:
        if operation == "listdir":
            fs.fail = lambda _operation, _path: None
            writer.roll()

    writer.roll()
    while reader.read() is not None:
        pass
    fs.fail = roll_before_listing
    assert reader.read() is None
    write_tx(writer, SCRIPT[1])
    writer.sync()
    assert reader.read() is not None


def test_the_time_at_a_place_is_that_of_the_last_block_before_it() -> None:
    """Also where that block is in an older file; none at the trail's begin, or where it is too far away to look."""
    fs = written()
    last = None
    for block in read_all(fs):
        assert time_before(fs, TRAIL, block.start) == last
        last = block.header.time_us or last
    assert last is not None
    assert time_before(fs, TRAIL, block.end, most_blocks=1) is None


def test_the_time_at_a_place_behind_a_purged_file_is_not_known() -> None:
    """A pump that is told to go on behind the gap only wants to show it: it is no reason to end."""
    fs = written()
    first, second = TRAIL.seqnos(fs.listdir(TRAIL.folder))[:2]
    fs.remove(TRAIL.path(first))
    assert time_before(fs, TRAIL, Position(second, 0)) is None
