"""The SQLite source under crashes: killed at every file-system call, with the source file restored or changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from demo.patience import PATIENCE
from tests.support.crashing import crash_everywhere
from tests.support.mirror import Mirror
from tests.support.sqlite_source import SourceFile, capture, run_until_captured, same_rows
from tests.support.trail_script import TRAIL, holes
from trails.clock import RealClock
from trails.errors import MismatchError
from trails.testing import After, FaultFs

pytestmark = pytest.mark.fault

STATEMENTS = (
    "INSERT INTO item (code, price) VALUES ('a', 1), ('b', 2), ('c', 3)",
    "REPLACE INTO item (id, code) VALUES (1, 'b')",
    "UPDATE item SET id = id + 10",
    "INSERT INTO line VALUES (1, 'x', 'n'), (1, 'y', 'n')",
    "UPDATE OR REPLACE line SET b = 'y' WHERE b = 'x'",
    "DELETE FROM item WHERE id = 13",
)
SMALL = {"block_bytes": 60, "max_bytes": 4096 + 1500}
_numbers = count()


@dataclass
class SqliteWorld:
    """See crashing.World: the Extract's files, and the source file."""

    fs: FaultFs
    file: SourceFile

    def outside(self) -> tuple[int, ...]:
        """What the queue holds."""
        return tuple(self.file.rows("SELECT min(id), max(id) FROM trailgate_log")[0])

    def with_fs(self, fs: FaultFs) -> SqliteWorld:
        """With a copy of the source."""
        copy = SourceFile(self.file.path.with_name(f"copy{next(_numbers)}.db"), self.file.registered)
        source, target = self.file.connect(), sqlite3.connect(copy.path)
        source.backup(target)
        source.close()
        target.close()
        return SqliteWorld(fs, copy)

    def live(self) -> None:
        """A whole life."""
        capture(self.file, self.fs, TRAIL, **SMALL)

    def check(self) -> None:
        """The trail has every change once, and the source has let go of them."""
        same_rows(self.file, Mirror.of(self.fs, TRAIL), "item", "line")
        assert self.outside() == (self.file.last(), self.file.last())


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """One change a piece: a transaction goes out as begin, middle ..., end."""
    monkeypatch.setattr("extract.sources.sqlite.reader.PIECE_BYTES", 1)


def test_killed_at_every_call(tmp_path: Path) -> None:
    """I2, I3, I10: whatever a kill or a loss of power leaves, the next start neither loses nor doubles a change."""
    file = SourceFile.make(tmp_path)
    file.run(*STATEMENTS)
    world = SqliteWorld(FaultFs(), file)
    states = crash_everywhere(world, SqliteWorld.live, SqliteWorld.check, ways=(After.KILL, After.POWER))
    assert states > 20


def test_killed_at_every_call_around_a_change_of_shape(tmp_path: Path) -> None:
    """The mending of the triggers is a transaction at the source: done once, and read once."""
    file = SourceFile.make(tmp_path)
    file.run(
        *STATEMENTS,
        "ALTER TABLE item ADD COLUMN more TEXT DEFAULT 'old'",
        "INSERT INTO item (code, more) VALUES ('d', 'new')",
    )
    world = SqliteWorld(FaultFs(), file)
    assert crash_everywhere(world, SqliteWorld.live, SqliteWorld.check, ways=(After.KILL, After.POWER)) > 40


def test_CW_31_a_file_that_was_restored_is_refused(tmp_path: Path) -> None:
    """Behind the trail's end, and also once it has gone past that on a way of its own."""
    file, fs = SourceFile.make(tmp_path, wal=False), FaultFs()
    file.run(STATEMENTS[0])
    capture(file, fs, TRAIL)
    shutil.copy(file.path, tmp_path / "backup.db")
    file.run(*STATEMENTS[1:3])
    capture(file, fs, TRAIL)
    shutil.copy(tmp_path / "backup.db", file.path)
    with pytest.raises(MismatchError, match="the file was restored"):
        file.extract(fs, TRAIL)
    now: dict[str, Any] = {"alter_no": 1, "alter": (("begin", "now"),)}
    with pytest.raises(MismatchError, match="before the trail's end"):
        file.extract(fs, TRAIL, **now)
    assert not holes(fs, TRAIL)
    file.run(*STATEMENTS[1:])
    with pytest.raises(MismatchError, match="is not the one that the trail ends with"):
        file.extract(fs, TRAIL)
    file.extract(fs, TRAIL, **now).close()
    assert [hole.by for hole in holes(fs, TRAIL)] == ["ALTER EXTRACT EXT1"]


def test_changes_that_somebody_deleted_are_missed(tmp_path: Path) -> None:
    """Out of the queue's middle."""
    file, fs = SourceFile.make(tmp_path), FaultFs()
    capture(file, fs, TRAIL)
    file.run(*STATEMENTS, "DELETE FROM trailgate_log WHERE id = (SELECT max(id) - 2 FROM trailgate_log)")
    extract = file.extract(fs, TRAIL)
    with pytest.raises(MismatchError, match="lacks rows between"):
        run_until_captured(extract, file)
    extract._writer.abandon()


def test_another_reader_is_refused(tmp_path: Path) -> None:
    """By who registered: a file has one queue, and a queue one reader."""
    file, fs = SourceFile.make(tmp_path), FaultFs()
    capture(file, fs, TRAIL)
    assert "is read by tg_01234567_ext1 already" in file.refused("register", group="EXT2", home_id="0123456789abcdef")
    file.run("UPDATE trailgate_install SET reader = 'somebody'")
    with pytest.raises(MismatchError, match="is read by somebody, not by tg_01234567_ext1"):
        file.extract(fs, TRAIL)


def test_nothing_is_handed_over_before_the_applications_commits_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With synchronous = NORMAL a loss of power could else take from the source what the trail has."""
    file, fs = SourceFile.make(tmp_path), FaultFs()
    file.run(*STATEMENTS)
    real, failing = os.fsync, [True]

    def fsync(handle: int) -> None:
        if failing[0] and os.readlink(f"/proc/self/fd/{handle}").endswith("-wal"):
            raise OSError(5, "EIO (test)")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    source = file.source()
    extract = file.extract(fs, TRAIL, source)
    clock = RealClock()
    end = clock.monotonic() + PATIENCE
    while "can't be synced" not in source.waits_for:
        assert clock.monotonic() < end, "the source does not say what it waits for"
        extract.step()
        clock.sleep(0.005)
    assert not Mirror.of(fs, TRAIL).records
    failing[0] = False
    run_until_captured(extract, file)
    extract.close()
    same_rows(file, Mirror.of(fs, TRAIL), "item", "line")
