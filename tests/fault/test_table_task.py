"""SOURCEISTABLE on a scripted reader: killed at every file-system call, the file is the old or the new one, whole."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

import pytest

from extract.source import TablesSnapshot
from extract.tabletask import TableTask, TaskSettings
from tests.support.crashing import crash_everywhere
from tests.support.trail_script import TABLE, open_writer
from trails.codec import decode_data
from trails.errors import AwayError, OperatorError
from trails.format import SNAPSHOT, BlockKind
from trails.position import TrailName
from trails.reader import BlockReader
from trails.record import INSERT, Image, TableDef
from trails.testing import FakeClock, FaultFs

pytestmark = pytest.mark.fault

FILE = TrailName("/home/dirdat", "in")
SETTINGS = TaskSettings("LOAD1", "home", "host", FILE, "./dirdat/in", block_bytes=1200)
OTHER = TableDef("s", "other", TABLE.columns)
PIECE, PIECES = 7, 6


@dataclass
class ListReader:
    """Two tables of so many rows, as of a CSN; the connection may be lost before the last piece."""

    csn: str
    lost: bool = False
    asked: int = 0

    def identity(self) -> dict[str, str]:
        return {"kind": "scripted"}

    def poll(self) -> TablesSnapshot | None:
        self.asked += 1
        return None if self.asked < 3 else TablesSnapshot(self.csn, "CSN", (TABLE, OTHER), 5)

    def rows(self, table: TableDef) -> Iterator[tuple[list[Image], int]]:
        for piece in range(PIECES):
            yield [], 0
            if self.lost and table is OTHER and piece == PIECES - 1:
                raise AwayError("the source went away")
            yield [[f"{piece}/{n}", self.csn] for n in range(PIECE)], 100 * PIECE

    def waits(self) -> list[int]:
        return []

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class TaskWorld:
    """Files, and the snapshot of the next run."""

    fs: FaultFs
    csn: str = "1"

    def outside(self) -> Hashable:
        return self.csn

    def with_fs(self, fs: FaultFs) -> TaskWorld:
        return replace(self, fs=fs)


def run(fs: FaultFs, reader: ListReader, settings: TaskSettings = SETTINGS) -> str:
    """A whole run; what it says at its end."""
    task = TableTask(fs, settings, reader, FakeClock(), lambda _text: None)
    step_on(task)
    task.flush()
    task.close()
    return task.finished()


def step_on(task: TableTask) -> None:
    for _ in range(100):
        if task.finished():
            break
        task.step()


def stands(fs: FaultFs) -> str:
    """The CSN of the file that stands, all of whose rows are of one run; empty if there is none."""
    if FILE.path(0) not in [f"{FILE.folder}/{name}" for name in fs.listdir(FILE.folder)]:
        return ""
    reader, rows = BlockReader(fs, FILE), list[tuple[str, str, str]]()
    while (block := reader.read()) is not None:
        if block.header.kind == BlockKind.DATA:
            tables, records = decode_data(block.header, block.payload)
            for record in records:
                if record[0] == INSERT:
                    name = reader.definitions[tables[record[1]]].name
                    rows.append((name, *record[2]))
    assert reader.header is not None and reader.closed
    csn = reader.header.source[SNAPSHOT]
    names = [(table, f"{piece}/{n}") for table in ("t", "other") for piece in range(PIECES) for n in range(PIECE)]
    assert rows == [(*name, csn) for name in names]
    return csn


def test_the_file_is_replaced_whole_or_not_at_all():
    """A crash at any call, of the process or the power: the old file or the new one; the next run makes the new one."""
    world = TaskWorld(FaultFs(), "2")
    assert stands(world.fs) == ""
    assert "as of CSN 1" in run(world.fs, ListReader("1"))

    def found(left: TaskWorld) -> None:
        assert stands(left.fs) in ("1", "2")

    def check(left: TaskWorld) -> None:
        assert stands(left.fs) == "2"

    assert crash_everywhere(world, lambda one: run(one.fs, ListReader(one.csn)), check, found=found) > 20


def test_a_lost_connection_leaves_the_file_as_it_was():
    """Also where it comes at the last piece; nothing of the run is left."""
    fs = FaultFs()
    run(fs, ListReader("1"))
    before = fs.image()
    task = TableTask(fs, SETTINGS, ListReader("2", lost=True), FakeClock(), lambda _text: None)
    with pytest.raises(AwayError):
        step_on(task)
    task.close()
    assert stands(fs) == "1" and len(fs.image()) == len(before)


def test_a_file_that_is_not_its_own_is_not_replaced():
    """The trail of a pipeline, and the file of another group."""
    fs = FaultFs()
    run(fs, ListReader("1"))
    with pytest.raises(OperatorError, match="was written by group LOAD1"):
        run(fs, ListReader("2"), replace(SETTINGS, group="LOAD9"))
    assert stands(fs) == "1"
    open_writer(fs).close()
    with pytest.raises(OperatorError, match="a trail is there"):
        run(fs, ListReader("2"), replace(SETTINGS, file=TrailName("/home/dirdat", "lt")))
