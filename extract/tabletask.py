"""An Extract with SOURCEISTABLE: the rows of tables as they all stood at one CSN, as inserts in one file; then it ends.

    snapshot -> rows -> assembler -> a trail of one file under a hidden folder -> synced -> its name, in one rename

Rule: under its name the file is always whole, of one run: what reads it never waits for more. So a run that is killed
leaves the file of the run before as it was, and the next START begins anew. There is no place to go on from, as another
run has another snapshot. The file's header says which one (SNAPSHOT), and so tells a load from the trail of a pipeline.

Each piece of rows is a transaction of that CSN, so that who applies the file can do it in parts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from extract.assemble import BLOCK_BYTES, Assembler
from extract.source import TableReader, TablesSnapshot
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.clock import Clock
from trails.columns import Project
from trails.errors import OperatorError
from trails.format import SNAPSHOT
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.reader import last_header
from trails.record import INSERT, Image, TableDef
from trails.runtime.process.group import GroupProcess, Request
from trails.runtime.report.answers import LagAnswer, MetricsAnswer, StatusAnswer, WriteAnswer
from trails.runtime.report.metrics import Counters
from trails.runtime.report.stats import Stats
from trails.writer import TrailWriter, WriterIdentity

ONE_FILE: Final = 1 << 62
WAITS: Final = "Waiting for the source: a snapshot begins when the transactions that are open now have ended"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """`file`: where the rows go, and `file_text` as the operator wrote it. `project`: where TABLE has options."""

    group: str
    home_id: str
    host: str
    file: TrailName
    file_text: str
    block_bytes: int = BLOCK_BYTES
    project: Project | None = None
    encrypt: bool = False


class TableTask(GroupProcess):
    """Reads tables once."""

    called = "an Extract with SOURCEISTABLE"

    def __init__(self, fs: Fs, settings: TaskSettings, reader: TableReader, clock: Clock, say: Say) -> None:
        """Refuses a file that is not its own to replace."""
        self._fs = fs
        self._settings = settings
        self._reader = reader
        self._clock = clock
        self._say = say
        self._snapshot: TablesSnapshot | None = None
        self._writer: TrailWriter | None = None
        self._assembler: Assembler | None = None
        self._work: Iterator[bool] = self._all_rows()
        self._rows = 0
        self._table = ""
        self._waiting = True
        self._finished = ""
        self.stats: Stats = Stats(clock.now_us, settings.file_text)
        name = settings.file
        hidden = os.path.join(name.folder, f".{name.prefix}.{settings.group}.task")
        self._hidden = TrailName(hidden, name.prefix, name.wallet_folder)
        check_replaceable(fs, settings)
        if fs.exists(name.path(0)):
            say(f"SOURCEISTABLE begins anew: {name.path(0)} stays as it is until the new file is whole")
        self._clear()

    # Process

    def step(self) -> bool:
        if self._snapshot is None:
            self._snapshot = self._reader.poll()
            if self._snapshot is None:
                return False
            self._begin(self._snapshot)
        more = next(self._work, None)
        if more is None:
            self._end(self._snapshot)
            return False
        return more

    def _begin(self, found: TablesSnapshot) -> None:
        if not found.tables:
            raise OperatorError("TABLE names no table of the source today", hint="Mend TABLE in the parameter file")
        told = self._settings
        identity = WriterIdentity(told.home_id, told.group, told.host, {**self._reader.identity(), SNAPSHOT: found.csn})
        self._writer = TrailWriter.open(
            self._fs, self._hidden, identity, max_bytes=ONE_FILE, restart_open=True, encrypt=told.encrypt
        )
        self._assembler = Assembler(
            self._writer, Position(0, 0), found.csn, block_bytes=told.block_bytes, stats=self.stats,
            project=told.project, now_us=self._clock.now_us,
        )  # fmt: skip
        self._waiting = False
        self._say(f"A snapshot of {len(found.tables)} tables is taken: {found.label} {found.csn}")

    def _all_rows(self) -> Iterator[bool]:
        """Whether there is more at once."""
        assert self._snapshot is not None
        for table in self._snapshot.tables:
            self._table, before = table.full_name, self._rows
            for rows, size in self._reader.rows(table):
                if rows:
                    self._hand_over(table, rows, size)
                yield bool(rows)
            self._say(f"TABLE {table.full_name}: {self._rows - before} rows")

    def _hand_over(self, table: TableDef, rows: Sequence[Image], size: int) -> None:
        sink, found = self._assembler, self._snapshot
        assert sink is not None and found is not None
        sink.begin(found.csn, str(self._rows), found.time_us)
        index = sink.table(table)
        sink.records += [(INSERT, index, row) for row in rows]
        sink.grew(size)
        self._rows += len(rows)
        sink.commit(Position(0, self._rows), found.csn, found.time_us)

    def _end(self, found: TablesSnapshot) -> None:
        """The file gets its name when all of it is on disk."""
        assert self._writer is not None and self._assembler is not None
        self._assembler.cut()
        self._writer.finish()
        check_replaceable(self._fs, self._settings)
        path, rows = self._settings.file.path(0), self._assembler.operations
        self._fs.rename(self._hidden.path(0), path)
        self._fs.sync_dir(self._settings.file.folder)
        self._clear()
        self._table = ""
        self._finished = (
            f"{path} has {rows} rows of {len(found.tables)} tables as of {found.label} {found.csn}. Behind it "
            f"changes begin with START REPLICAT ..., AFTERCSN {found.csn}"
        )

    def _clear(self) -> None:
        """Remove what an earlier run has left."""
        folder = self._hidden.folder
        self._fs.makedirs(folder)
        for name in self._fs.listdir(folder):
            self._fs.remove(os.path.join(folder, name))

    def finished(self) -> str:
        return self._finished

    def flush(self) -> Checkpoint | None:
        """For INFO alone: there is no place to go on from."""
        found = self._snapshot
        if found is None or self._waiting:
            return None
        place = Place(0, 0, found.time_us, found.csn)
        read = ReadCheckpoint("Tables", place, place, csn_label=found.label)
        task = {"table": self._table, "rows": self._rows, "csn": found.csn, "label": found.label}
        whole = {"whole": bool(self._finished)}
        return Checkpoint(self._settings.group, "EXTRACT", (read,), (self._write(),), extra={"task": task | whole})

    def _write(self) -> WriteCheckpoint:
        end = self._writer.position.rba if self._writer is not None else 0
        return WriteCheckpoint(0, end, self._clock.now_us(), self._settings.file_text, "EXTFILE")

    def close(self) -> None:
        """Let go; what is not whole is removed."""
        self._reader.close()
        if self._writer is not None and not self._finished:
            self._writer.abandon()
            self._clear()

    def waits(self) -> Sequence[int]:
        return self._reader.waits()

    def waits_for(self) -> str:
        return WAITS if self._waiting else ""

    def counters(self) -> Counters:
        if self._assembler is None or self._writer is None:
            return Counters()
        done = self._assembler
        return Counters(done.operations, done.transactions, done.bytes_in, self._writer.written_bytes)

    # Telling

    def requests(self) -> Mapping[str, Request]:
        return {}

    def status(self) -> StatusAnswer:
        text = WAITS if self._waiting else f"Reading table {self._table}, record {self._rows}"
        return StatusAnswer(text, write=(WriteAnswer.of(self._write()),))

    def lag(self) -> LagAnswer:
        return LagAnswer(None, "a task that reads tables has no lag", bool(self._finished))

    def metrics(self) -> MetricsAnswer:
        return MetricsAnswer(write=WriteAnswer.of(self._write()), extra={"state": self.waits_for()})


def check_replaceable(fs: Fs, settings: TaskSettings) -> None:
    """Raise OperatorError where EXTFILE names the trail of a pipeline, or the file of another group."""
    name = settings.file
    header = last_header(fs, name)
    if fs.exists(name.lock_path()) or fs.exists(name.last_path()) or (header and SNAPSHOT not in header.source):
        raise OperatorError(
            f"EXTFILE {settings.file_text}: a trail is there, which other groups write and read",
            hint="Give EXTFILE two characters that no trail has",
        )
    if header and (header.home_id, header.group) != (settings.home_id, settings.group):
        raise OperatorError(
            f"EXTFILE {settings.file_text}: {name.path(0)} was written by group {header.group} of host {header.host}",
            hint="Move that file away, or name another one",
        )
