"""A chunk's rows as a small trail in the scratch folder: one transaction of inserts, as Extract would write it.

So everything that changes go through holds for loaded rows too: MAP, filters, conversions, REPERROR, the discard file.

Rule: a staged trail belongs to one round of one process. Whoever finds one of another throws it away.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager

from replicat.load.chunk import ChangedAwayError, ChunkTask, Copied, SourceOf
from replicat.model.again import ShapeChangedError
from replicat.model.loading import Seen
from replicat.model.target import RefusedError
from replicat.reading.contract import KeyBounds, OtherShapeError, Range, Reader, Snapshot
from replicat.reading.kinds import BRANCH, open_reader
from trails.codec import binary
from trails.errors import AwayError, GateError, MismatchError
from trails.format import Indicator
from trails.fs import RealFs
from trails.position import Position, TrailName
from trails.record import BEGIN, COMMIT, INSERT, Image, Record, TableDef
from trails.writer import TrailWriter, WriterIdentity

PREFIX = "ld"
BLOCK_BYTES = 1 << 20
LOOK_SECONDS = 0.05
LOCK_SECONDS = 2.0
"""So long a copy waits for a lock on its table, and `MOST_SECONDS` for a snapshot: changes wait as long."""
MOST_SECONDS = 1.0


def opened(source: SourceOf, lock_seconds: float | None = None) -> Reader:
    """A reader of the source whose changes the trail has. Raises MismatchError for another database.

    A server of another branch of the source's history than the trail's last file is AwayError: after a failover Extract
    says, by the next file, that it takes the new one for the same source.
    lock_seconds: what `Reader.bound_waits` is told, where anybody waits meanwhile.
    """
    reader = open_reader(source.url, source.trail)
    try:
        if lock_seconds is not None:
            reader.bound_waits(lock_seconds)
        for name, found in reader.identity().items():
            expected = source.trail.get(name)
            if expected is None or expected == found:
                continue
            if name in BRANCH:
                raise AwayError(
                    f"SOURCEDB is a server of {name} {found}, and the trail's last file is of {name} {expected}",
                    hint="After a failover START the Extract on the new server; else name its server in SOURCEDB",
                )
            raise MismatchError(
                f"SOURCEDB is another database than the trail is of: expected {name} {expected}, found {found}",
                hint="Name the database that the Extract captures",
            )
    except BaseException:
        reader.close()
        raise
    return reader


def bounds_of(source: SourceOf, table: TableDef, rows: int) -> KeyBounds:
    """Where the chunks of a table begin that have about so many rows."""
    with steady(), closing(opened(source, LOCK_SECONDS)) as reader:
        return reader.bounds(table, rows)


@contextmanager
def steady() -> Iterator[None]:
    """A table of the source that changes under its reader, or has since its definition, is read again later."""
    try:
        yield
    except (ShapeChangedError, RefusedError, OtherShapeError) as error:
        raise ChangedAwayError(f"the source has changed: {error}") from error


def stage_partition(tasks: Iterable[ChunkTask]) -> Iterator[Copied | GateError]:
    """For mapPartitions; an expected error is a result."""
    found: list[Copied | GateError] = []
    for task in tasks:
        try:
            with steady():
                found.append(stage(task))
        except GateError as error:
            found.append(error)
        except OSError as error:
            found.append(AwayError(f"a chunk can't be staged: {error}", hint=f"Make space in {task.folder}"))
    return iter(found)


def stage(task: ChunkTask) -> Copied:
    """Read the chunk by a snapshot of its own."""
    shutil.rmtree(task.folder, ignore_errors=True)
    os.makedirs(task.folder, mode=0o700)
    reader = opened(task.source, LOCK_SECONDS)
    try:
        snapshot = snapshot_of(reader, task)
        part = Range(task.chunk.orders, task.chunk.low, task.high)
        rows, size = _write(task, reader.rows(task.table, [column.name for column in task.table.columns], part))
        reader.settle()
        reader.end()
    finally:
        reader.close()
    return Copied(task.chunk, snapshot.seen, snapshot.past, rows, size)


def snapshot_of(reader: Reader, task: ChunkTask) -> Snapshot:
    """A snapshot that sees all it must. Raises AwayError where none does for a moment; later ones are tried again.

    A crash or a failover of the source takes numbers back that were given to transactions that are lost: where nothing
    is open there, asking for a number takes the source's count on until it has passed them.
    """
    until = time.monotonic() + MOST_SECONDS
    while True:
        snapshot = reader.begin(task.table, task.must.csn)
        seen = Seen.parse(snapshot.seen)
        lacks = task.must.lacks(seen)
        if not lacks:
            return snapshot
        reader.end()
        if not seen.open:
            reader.newest()
        if time.monotonic() > until:
            raise AwayError(
                f"{task.table.full_name}: {lacks} transactions that a copy must see had not ended at the source within "
                f"{MOST_SECONDS:g} seconds",
                hint="One is open for long, a commit waits for a standby, or the trail is of another source",
            )
        time.sleep(LOOK_SECONDS)


def _write(task: ChunkTask, rows: Iterator[Image]) -> tuple[int, int]:
    """How many rows, and bytes of the trail."""
    trail = TrailName(task.folder, PREFIX)
    now = time.time_ns() // 1000
    writer = TrailWriter.open(RealFs(), trail, WriterIdentity("", "LOAD", "", {}), restart_open=True)
    name = f"load {task.table.full_name} {os.path.basename(task.folder)}"
    try:
        out = _Blocks(writer, task.table, name, now)
        for row in rows:
            out.add(row)
        out.end()
        writer.sync()
        return out.rows, writer.written_bytes
    finally:
        writer.close()


class _Blocks:
    """Puts rows out as the blocks of one transaction."""

    def __init__(self, writer: TrailWriter, table: TableDef, csn: str, now_us: int) -> None:
        self._writer = writer
        self._table = table
        self._csn = csn
        self._now_us = now_us
        self._records: list[Record] = [(BEGIN, csn, csn, now_us)]
        self._size = 0
        self._began = False
        self.rows = 0

    def add(self, row: Image) -> None:
        """One row; a full block goes out before it."""
        if self._size >= BLOCK_BYTES:
            self._put(Indicator.MIDDLE if self._began else Indicator.BEGIN)
            self._began = True
        values = [binary(value) if isinstance(value, bytes) else value for value in row]
        self._records.append((INSERT, 0, values))
        self._size += sum(len(value) for value in row if value) + 8 * len(row)
        self.rows += 1

    def end(self) -> None:
        """The last block; none for no rows."""
        if self.rows:
            self._records.append((COMMIT, self.rows))
            self._put(Indicator.END if self._began else Indicator.WHOLE)

    def _put(self, indicator: Indicator) -> None:
        whole = indicator in (Indicator.END, Indicator.WHOLE)
        self._writer.define([self._table])
        self._writer.append_data(
            indicator, [self._table.id], self._records,
            changes=sum(record[0] == INSERT for record in self._records), transactions=int(whole),
            origin=Position(0, self.rows), csn=self._csn if whole else "", time_us=self._now_us,
        )  # fmt: skip
        self._records, self._size = [], 0
