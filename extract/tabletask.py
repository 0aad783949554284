"""An Extract with SOURCEISTABLE: the rows of tables as they all stood at one CSN, as inserts in one file; then it ends.

    snapshot -> rows -> assembler -> a trail of one file under a hidden folder -> synced -> its name, in one rename
                                                                                  or sent to another host (RMTFILE)

Rule: the file is whole, or it has no name (trails/wholefile.py). A run that is killed, or whose link is given up,
leaves the file of the run before as it was, at either host, and the next START begins anew.

Each piece of rows is a transaction of that CSN, so that who applies the file can do it in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from extract.assemble import BLOCK_BYTES, Assembler
from extract.source import TableReader, TablesSnapshot
from trails import wholefile
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.clock import Clock
from trails.columns import Project
from trails.errors import OperatorError
from trails.format import SNAPSHOT
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.record import INSERT, Image, TableDef
from trails.runtime.process.group import GroupProcess, Request
from trails.runtime.report.answers import LagAnswer, MetricsAnswer, StatusAnswer, WriteAnswer
from trails.runtime.report.metrics import Counters
from trails.runtime.report.stats import Stats
from trails.writer import TrailWriter, WriterIdentity

WAITS: Final = "Waiting for the source: a snapshot begins when the transactions that are open now have ended"

Say = Callable[[str], None]


class Sending(Protocol):
    """What sends the file to another host."""

    where: str
    """The host, for people."""
    sent: int
    """Bytes of the file that are synced there."""
    waits_for: str
    """Why nothing goes on; empty while it does."""

    def begin(self, file: TrailName, whole: Position) -> None:
        """The file is finished, and ends at `whole`."""

    def step(self) -> bool:
        """Hear how far it is; whether the file is there. Raises GateError: it is not, and won't be."""

    def fileno(self) -> int:
        """Readable when there is something to hear."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """`file`: where the rows go, and `file_text` as the operator wrote it. `project`: where TABLE has options.

    `task`: the Replicat of another host that applies it (RMTTASK).
    """

    group: str
    home_id: str
    host: str
    file: TrailName
    file_text: str
    block_bytes: int = BLOCK_BYTES
    project: Project | None = None
    encrypt: bool = False
    task: str = ""


class TableTask(GroupProcess):
    """Reads tables once."""

    called = "an Extract with SOURCEISTABLE"

    def __init__(
        self, fs: Fs, settings: TaskSettings, reader: TableReader, clock: Clock, say: Say,
        sending: Sending | None = None,
    ) -> None:  # fmt: skip
        """Refuses a file that is not its own to replace. `sending`: how the file gets to the host that it is for."""
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
        self._whole: Position | None = None
        self._sending = sending
        self.stats: Stats = Stats(clock.now_us, settings.file_text)
        self._hidden = wholefile.hidden(settings.file, settings.group)
        if sending is None:
            self._check()
            if fs.exists(settings.file.path(0)):
                say(f"SOURCEISTABLE begins anew: {settings.file.path(0)} stays as it is until the new file is whole")
        wholefile.clear(fs, self._hidden)

    def _check(self) -> None:
        told = self._settings
        wholefile.check_replaceable(self._fs, told.file, f"EXTFILE {told.file_text}", told.home_id, told.group)

    # Process

    def step(self) -> bool:
        if self._sending is not None and self._sending.step():
            self._end(self._shown)
        if self._whole is not None:
            return False
        if self._snapshot is None:
            self._snapshot = self._reader.poll()
            if self._snapshot is None:
                return False
            self._begin(self._snapshot)
        more = next(self._work, None)
        if more is None:
            self._finish()
            return False
        return more

    def _begin(self, found: TablesSnapshot) -> None:
        if not found.tables:
            raise OperatorError("TABLE names no table of the source today", hint="Mend TABLE in the parameter file")
        told = self._settings
        identity = WriterIdentity(told.home_id, told.group, told.host, {**self._reader.identity(), SNAPSHOT: found.csn})
        self._writer = TrailWriter.open(
            self._fs, self._hidden, identity, max_bytes=wholefile.ONE_FILE, restart_open=True, encrypt=told.encrypt
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

    def _finish(self) -> None:
        """All of the file is on disk: it gets its name, or is sent to where it gets one."""
        assert self._writer is not None and self._assembler is not None
        self._assembler.cut()
        self._whole, self._table = self._writer.position, ""
        self._writer.finish()
        if self._sending is not None:
            self._sending.begin(self._hidden, self._whole)
            return
        self._check()
        self._end(wholefile.publish(self._fs, self._hidden, self._settings.file))

    def _end(self, what: str) -> None:
        found, sink = self._snapshot, self._assembler
        assert found is not None and sink is not None
        wholefile.clear(self._fs, self._hidden)
        self._finished = (
            f"{what} has {sink.operations} rows of {len(found.tables)} tables as of {found.label} {found.csn}. Behind "
            f"it changes begin with START REPLICAT ..., AFTERCSN {found.csn}"
        )

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
        whole = {"whole": bool(self._finished), "sending": self._says_sending(), "file": self._shown}
        return Checkpoint(self._settings.group, "EXTRACT", (read,), (self._write(),), extra={"task": task | whole})

    @property
    def _shown(self) -> str:
        """Where the rows go, for people."""
        told, there = self._settings, self._sending
        name = f"REPLICAT {told.task}" if told.task else f"{told.file_text}{0:09d}"
        return f"{name} at {there.where}" if there is not None else name

    def _says_sending(self) -> str:
        """How much of the file is at the other host; empty while there is nothing to send."""
        if self._sending is None or self._whole is None or self._finished:
            return ""
        return f"{self._sending.sent} of {self._whole.rba} bytes sent to {self._sending.where}"

    def _write(self) -> WriteCheckpoint:
        end = self._writer.position.rba if self._writer is not None else 0
        if self._sending is None:
            return WriteCheckpoint(0, end, self._clock.now_us(), self._settings.file_text, "EXTFILE")
        how = "RMTTASK" if self._settings.task else "RMTFILE"
        return WriteCheckpoint(0, self._sending.sent, self._clock.now_us(), self._settings.file_text, how)

    def close(self) -> None:
        """Let go; what is not whole is removed."""
        self._reader.close()
        if self._sending is not None:
            self._sending.close()
        if self._writer is not None and not self._finished:
            self._writer.abandon()
            wholefile.clear(self._fs, self._hidden)

    def waits(self) -> Sequence[int]:
        return [*self._reader.waits(), *([self._sending.fileno()] if self._sending is not None else [])]

    def waits_for(self) -> str:
        if self._waiting:
            return WAITS
        return self._sending.waits_for if self._sending is not None and self._whole is not None else ""

    def counters(self) -> Counters:
        if self._assembler is None or self._writer is None:
            return Counters()
        done = self._assembler
        return Counters(done.operations, done.transactions, done.bytes_in, self._writer.written_bytes)

    # Telling

    def requests(self) -> Mapping[str, Request]:
        return {}

    def status(self) -> StatusAnswer:
        says = [text for text in (self._says_sending(), self.waits_for()) if text]
        text = ". ".join(says) or f"Reading table {self._table}, record {self._rows}"
        return StatusAnswer(text, write=(WriteAnswer.of(self._write()),))

    def lag(self) -> LagAnswer:
        return LagAnswer(None, "a task that reads tables has no lag", bool(self._finished))

    def metrics(self) -> MetricsAnswer:
        return MetricsAnswer(write=WriteAnswer.of(self._write()), extra={"state": self.waits_for()})
