"""trails/checkpoint.py: there and back, history, damage, version, and crashes while saving."""

from __future__ import annotations

import pytest

from trails import checkpoint as ckp
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.errors import DamageError, VersionError
from trails.testing import After, Crash, FaultFs

PATH = "/home/dirchk/EXT1.cpe"


def sample(saved_us: int) -> Checkpoint:
    """A checkpoint with every field set."""
    place = Place(3, 1024, 1_700_000_000_000_000, "00000000/00000A10", "000000010000000000000003", 1)
    read = ReadCheckpoint("PostgreSQL WAL", place, place, place)
    write = WriteCheckpoint(7, 4096, 5, "./dirdat/lt", "EXTTRAIL")
    return Checkpoint("EXT1", "EXTRACT", (read,), (write,), 1, saved_us, "G", "A", 12, {"slot": "s"})


def test_round_trip_and_history() -> None:
    """The newest save comes first; ten are kept."""
    fs = FaultFs()
    for i in range(12):
        ckp.save(fs, PATH, sample(i))
    assert ckp.load(fs, PATH) == [sample(i) for i in range(11, 1, -1)]


def test_absent_file_is_no_checkpoint() -> None:
    """No file: an empty list, no error."""
    assert ckp.load(FaultFs(), PATH) == []


def test_every_flipped_byte_is_found() -> None:
    """Damage is named with file, expected and found; a newer version is not damage."""
    made = ckp.make([sample(1)])
    for i in range(len(made)):
        bad = bytearray(made)
        bad[i] ^= 1
        with pytest.raises((DamageError, VersionError), match=r"EXT1\.cpe"):
            ckp.parse(bytes(bad), PATH)
    with pytest.raises(VersionError, match="version 2"):
        ckp.parse(made[:9] + b"\2" + made[10:], PATH)


def test_damaged_file_is_replaced_by_the_next_save() -> None:
    """A damaged checkpoint costs its history, not the group."""
    fs = FaultFs()
    ckp.save(fs, PATH, sample(1))
    fs.corrupt(PATH, lambda data: data.__setitem__(20, data[20] ^ 1))
    ckp.save(fs, PATH, sample(2))
    assert ckp.load(fs, PATH) == [sample(2)]


@pytest.mark.parametrize("how", After)
def test_crash_while_saving_leaves_old_or_new(how: After) -> None:
    """At every call of a save: the old checkpoint or the new one is there, whole."""
    for n in range(1, 30):
        fs = FaultFs()
        ckp.save(fs, PATH, sample(1))
        fs.crash_at = fs.calls + n
        try:
            ckp.save(fs, PATH, sample(2))
        except Crash:
            pass
        fs.reboot(how)
        assert ckp.load(fs, PATH)[0] in (sample(1), sample(2))
