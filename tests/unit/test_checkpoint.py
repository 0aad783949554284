"""trails/checkpoint.py: there and back, history, damage, version, and crashes while saving."""

from __future__ import annotations

import pytest

from trails import checkpoint as ckp
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.errors import DamageError, VersionError
from trails.fs import replace_durably
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


# --- runs -------------------------------------------------------------------------------------------------------------


def run_save(started_us: int, saved_us: int, rba: int) -> Checkpoint:
    """A save of the run that began at `started_us`, from place 100 * that on."""
    read = ReadCheckpoint("GGS Log Trail", Place(0, 100 * started_us), Place(0, rba, saved_us))
    return Checkpoint("EXT1", "EXTRACT", (read,), (), started_us, saved_us, "A", extra={"alter_no": 7})


def shown(fs: FaultFs) -> list[tuple[int, int, int]]:
    """(start, begin, end) of the runs in the file."""
    return [(run.started_us, run.begin.rba, run.end.rba) for run in ckp.runs(ckp.load(fs, PATH))]


def test_runs_outlive_their_saves() -> None:
    """Each run stays with its beginning and its last place, newest first, also when none of its saves is left."""
    fs = FaultFs()
    for run in (1, 2, 3):
        for save in range(15):
            ckp.save(fs, PATH, run_save(run, run * 100 + save, run * 1000 + save))
    assert shown(fs) == [(3, 300, 3014), (2, 200, 2014), (1, 100, 1014)]
    saves = ckp.load(fs, PATH)
    assert len(saves) == ckp.HISTORY
    assert saves[0].extra["alter_no"] == 7
    assert all("runs" not in save.extra for save in saves[1:])


def test_the_runs_are_bounded() -> None:
    """Run for years: the file does not grow."""
    fs = FaultFs()
    for run in range(1, ckp.RUNS + 20):
        ckp.save(fs, PATH, run_save(run, run, run))
    assert len(ckp.load(fs, PATH)[0].extra["runs"]) == ckp.RUNS - 1
    assert shown(fs)[0][0] == ckp.RUNS + 19


def test_a_folder_that_is_emptied_while_a_save_is_made_costs_no_process() -> None:
    """At each call, as by `rm dirchk/*`: the save is made once more."""
    fs = FaultFs()
    ckp.save(fs, PATH, sample(1))
    before = fs.calls
    ckp.save(fs, PATH, sample(2))
    for call in range(1, fs.calls - before + 1):
        fs = FaultFs()
        ckp.save(fs, PATH, sample(1))

        def watch(_what: str, fs: FaultFs = fs, at: int = fs.calls + call) -> None:
            if fs.calls == at:
                for path in list(fs._names):
                    fs.take_away(path)

        fs.watch = watch
        ckp.save(fs, PATH, sample(2))
        fs.watch = None
        ckp.save(fs, PATH, sample(3))
        assert ckp.load(fs, PATH)[0] == sample(3), call


def test_runs_of_a_file_of_an_earlier_release_are_those_of_its_saves() -> None:
    """It has no list of runs."""
    fs = FaultFs()
    fs.makedirs("/home/dirchk")
    replace_durably(fs, PATH, ckp.make([run_save(2, 20, 2), run_save(1, 11, 1), run_save(1, 10, 0)]))
    assert shown(fs) == [(2, 200, 2), (1, 100, 1)]


@pytest.mark.parametrize(("keep", "left"), [(0, [4]), (2, [4, 3, 2]), (9, [4, 3, 2, 1])])
def test_runs_are_forgotten_but_the_last(keep: int, left: list[int]) -> None:
    """The newest save stays as it is: it is what SHOWCH and purging read."""
    fs = FaultFs()
    for run in (1, 2, 3, 4):
        ckp.save(fs, PATH, run_save(run, run, run))
    newest = ckp.load(fs, PATH)[0]
    assert ckp.forget_runs(fs, PATH, keep) == (4 - len(left), len(left))
    assert [run[0] for run in shown(fs)] == left
    after = ckp.load(fs, PATH)[0]
    assert (after.reads, after.saved_us, after.extra["alter_no"]) == (newest.reads, newest.saved_us, 7)
    ckp.save(fs, PATH, run_save(5, 5, 5))
    assert [run[0] for run in shown(fs)] == [5, *left]


@pytest.mark.parametrize("how", After)
def test_crash_while_a_new_run_saves_first_loses_no_run(how: After) -> None:
    """The run goes into the history in the same replacement that the new run's save makes."""
    for n in range(1, 30):
        fs = FaultFs()
        ckp.save(fs, PATH, run_save(1, 1, 10))
        fs.crash_at = fs.calls + n
        try:
            ckp.save(fs, PATH, run_save(2, 2, 20))
        except Crash:
            pass
        fs.reboot(how)
        assert shown(fs) in ([(1, 100, 10)], [(2, 200, 20), (1, 100, 10)])
