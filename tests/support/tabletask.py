"""SOURCEISTABLE on a scripted reader, what sends its file when the test says so, and which run's file stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from extract.source import TablesSnapshot
from extract.tabletask import Sending, TableTask, TaskSettings
from tests.support.trail_script import TABLE
from trails.codec import decode_data
from trails.errors import AwayError
from trails.format import SNAPSHOT, BlockKind
from trails.position import Position, TrailName
from trails.reader import BlockReader
from trails.record import INSERT, Image, TableDef
from trails.testing import FakeClock, FaultFs

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
class ListSending:
    """Is told of the file; `done` says that it is there."""

    where: str = "there"
    sent: int = 0
    waits_for: str = ""
    done: bool = False
    order: list[tuple[TrailName, Position]] = field(default_factory=list)

    def begin(self, file: TrailName, whole: Position) -> None:
        self.order.append((file, whole))

    def step(self) -> bool:
        return self.done

    def fileno(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


def run(fs: FaultFs, reader: ListReader, settings: TaskSettings = SETTINGS) -> str:
    """A whole run; what it says at its end."""
    task = TableTask(fs, settings, reader, FakeClock(), lambda _text: None)
    step_on(task)
    task.flush()
    task.close()
    return task.finished()


def sent(fs: FaultFs, csn: str) -> tuple[TableTask, ListSending]:
    """A task whose file is finished, and waits to be sent."""
    sending = ListSending()
    known: Sending = sending
    task = TableTask(fs, SETTINGS, ListReader(csn), FakeClock(), lambda _text: None, known)
    for _ in range(100):
        task.step()
    return task, sending


def step_on(task: TableTask) -> None:
    """Until it has finished."""
    for _ in range(100):
        if task.finished():
            break
        task.step()


def stands(fs: FaultFs) -> str:
    """The CSN of the file that stands, all of whose rows are of one run; empty if there is none."""
    if not fs.exists(FILE.path(0)):
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
