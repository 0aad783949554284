"""A trail written by a script for Replicat's tests, and an engine that decodes in this very process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import groupby
from random import Random
from typing import Any

from replicat.work.decode import Task, attempt, columns_of
from replicat.work.net.part import Part, Unmapped
from trails.errors import GateError
from trails.format import Indicator
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.reader import BlockReader
from trails.record import Column, Op, Record, TableDef
from trails.testing import FaultFs
from trails.writer import TrailWriter, WriterIdentity

IDENTITY = WriterIdentity("home", "EXT1", "host", {"kind": "postgresql"})


def table(schema: str, name: str, columns: str, key: str = "") -> TableDef:
    """`table("s", "t", "id v", "id")`: a definition with text columns."""
    keys = key.split()
    return TableDef(schema, name, tuple(Column(c, "text", "text", key=c in keys) for c in columns.split()))


class TrailFeed:
    """Writes transactions of (op, table, ...) records to a trail."""

    def __init__(
        self, fs: Fs, trail: TrailName, max_bytes: int = 100 << 20, identity: WriterIdentity = IDENTITY
    ) -> None:
        fs.makedirs(trail.folder)
        self.trail = trail
        self.writer = TrailWriter.open(fs, trail, identity, max_bytes=max_bytes, restart_open=True)
        self.number = self.writer.last.origin.rba

    def tx(self, *changes: Sequence[Any], pieces: int = 1, sync: bool = True, time_us: int | None = None) -> str:
        """One transaction of (op, TableDef, image[, before]), (TRUNCATE, [TableDef], flags) or (DDL, change)."""
        for _ in self.pieces(*changes, pieces=pieces, sync=False, time_us=time_us):
            pass
        if sync:
            self.writer.sync()
        return f"{self.number:016d}"

    def pieces(
        self, *changes: Sequence[Any], pieces: int, sync: bool = True, time_us: int | None = None
    ) -> Iterator[int]:
        """The same piece by piece: it goes on when the next one is asked for."""
        self.number += 1
        csn = f"{self.number:016d}"
        commit = time_us or self.number
        tables: dict[TableDef, int] = {}
        records: list[Record] = [(Op.BEGIN, csn, str(self.number), commit)]
        for op, named, *rest in changes:
            if op == Op.DDL:
                records.append((op, named))
                continue
            if op == Op.TRUNCATE:
                records.append((op, [tables.setdefault(d, len(tables)) for d in named], *rest))
                continue
            no_before = [None] if op == Op.UPDATE and len(rest) == 1 else []
            records.append((op, tables.setdefault(named, len(tables)), *rest, *no_before))
        records.append((Op.COMMIT, len(changes)))
        self.writer.define(list(tables))
        for piece in self._write(list(tables), records, pieces, csn, commit):
            if sync:
                self.writer.sync()
            yield piece

    def _write(
        self, tables: list[TableDef], records: list[Record], pieces: int, csn: str, commit: int
    ) -> Iterator[int]:
        before = self.writer.last
        step = -(-len(records) // pieces)
        chunks = [
            list(alike)
            for i in range(0, len(records), step)
            for _, alike in groupby(records[i : i + step], key=lambda record: record[0] == Op.DDL)
        ]
        for i, chunk in enumerate(chunks):
            last = i == len(chunks) - 1
            kind = Indicator.END if last else Indicator.MIDDLE if i else Indicator.BEGIN
            self.writer.append_data(
                Indicator.WHOLE if len(chunks) == 1 else kind,
                [] if (ddl := chunk[0][0] == Op.DDL) else [definition.id for definition in tables],
                chunk,
                ddl=ddl,
                changes=sum(1 for r in chunk if r[0] not in (Op.BEGIN, Op.COMMIT)),
                transactions=int(last),
                origin=Position(0, self.number) if last else before.origin,
                csn=csn if last else before.csn,
                time_us=commit,
            )
            yield i

    def close(self) -> None:
        """As Extract stops."""
        self.writer.close()


def drawn_task(trail: TrailName, changes: Callable[[], list[Any]], chance: Random) -> tuple[FaultFs, Task]:
    """One to six transactions, each of what `changes` gives, as one task without plans; and the trail that holds it."""
    fs = FaultFs()
    feed = TrailFeed(fs, trail)
    for _ in range(chance.randint(1, 6)):
        feed.tx(*changes(), pieces=chance.choice([1, 1, 2, 3]), sync=False)
    feed.writer.sync()
    feed.close()
    reader, found = BlockReader(fs, trail, None), []
    while (block := reader.read()) is not None:
        if block.header.changes or block.header.transactions:
            found.append(replace(block, payload=b""))
    assert reader.header is not None
    known = columns_of(reader.definitions)
    return fs, Task(trail.folder, trail.prefix, reader.header.trail_id, tuple(found), {}, known)


class InlineEngine:
    """Decodes here and now, from any Fs; there is no Spark for expressions."""

    sql = None

    def __init__(self, fs: Fs | None = None) -> None:
        self._fs = fs

    def submit(self, tasks: Sequence[Task]) -> Future[list[Part | Unmapped]]:
        """See replicat.batches.engine.Engine."""
        future: Future[list[Part | Unmapped]] = Future()
        try:
            future.set_result([attempt(task, self._fs) for task in tasks])
        except GateError as error:
            future.set_exception(error)
        return future

    def run_all(self, function: Callable[[Iterable[Any]], Iterator[Any]], items: Sequence[Any]) -> Future[list[Any]]:
        """See replicat.batches.engine.Engine. Each item is by itself, as a Spark task has it."""
        future: Future[list[Any]] = Future()
        future.set_result([result for item in items for result in function([item])])
        return future

    def close(self) -> None:
        """See replicat.batches.engine.Engine."""
