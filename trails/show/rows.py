"""What of a trail is to be shown: blocks and decoded records within bounds of table, CSN, time and place."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from trails.codec import decode_data
from trails.ddl import DdlChange
from trails.errors import OperatorError
from trails.format import BlockKind
from trails.fs import Fs
from trails.position import WALLET_FOLDER, Position, TrailName, parse_file_name
from trails.reader import Block, BlockReader
from trails.record import DDL, DELETE, INSERT, TRUNCATE, UPDATE, Op, TableDef
from trails.walk import Walked, walk

Definitions = dict[bytes, TableDef]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to show. Bounds are inclusive; None is no bound."""

    table: str = ""
    csn: str = ""
    since_us: int | None = None
    until_us: int | None = None
    start: Position | None = None
    end: Position | None = None
    limit: int | None = None

    def in_time(self, time_us: int) -> bool:
        """Does this time lie within the bounds?"""
        return (self.since_us is None or time_us >= self.since_us) and (
            self.until_us is None or time_us <= self.until_us
        )

    def is_table(self, definition: TableDef | None) -> bool:
        """Is this table meant?"""
        return not self.table or (definition is not None and fnmatch.fnmatchcase(definition.full_name, self.table))

    @property
    def picks(self) -> bool:
        """Is only a part of the transactions wanted?"""
        return bool(self.table or self.csn or self.since_us is not None or self.until_us is not None)


@dataclass(frozen=True, slots=True)
class DumpSource:
    """A trail, or one file of it."""

    trail: TrailName
    only: int | None = None

    @classmethod
    def of(cls, path: str, home: str = "") -> DumpSource:
        """`./dirdat/lt` or `./dirdat/lt000000003`. `home`: where its keys are, if it lies in another's dirdat.

        Raises OperatorError for anything else.
        """
        folder, name = os.path.split(path)
        found = parse_file_name(name)
        trail = TrailName.parse(os.path.join(folder or ".", found[0] if found else name))
        if home:
            trail = replace(trail, wallet=os.path.join(home, WALLET_FOLDER))
        return cls(trail, found[1] if found else None)

    def seqnos(self, fs: Fs) -> list[int]:
        """The files to show. Raises OperatorError if there is none."""
        found = self.trail.seqnos(fs.listdir(self.trail.folder))
        if self.only is not None:
            found = [seqno for seqno in found if seqno == self.only]
        if not found:
            raise OperatorError(
                f"{self.trail}: no such trail, or none of its files is here",
                hint="Look for its name in the INFO of its writer",
            )
        return found


def blocks(
    fs: Fs, source: DumpSource, wanted: Wanted, *, payload: bool, sealed: bool = False
) -> Iterator[tuple[Block, Definitions]]:
    """The blocks within the bounds, with the definitions in force at each; none without payload, or if `sealed`."""
    start = wanted.start or Position(source.seqnos(fs)[0], 0)
    with closing(BlockReader(fs, source.trail, start)) as reader:
        while (block := reader.read(payload=payload, sealed=sealed)) is not None:
            if source.only is not None and block.start.seqno != source.only:
                return
            if wanted.end is not None and block.start >= wanted.end:
                return
            yield block, reader.definitions if payload and not sealed else {}


@dataclass(frozen=True, slots=True)
class RecordRow:
    """A decoded record, with its transaction's CSN and time and its tables."""

    record: list[Any]
    place: Position
    csn: str
    time_us: int
    tables: tuple[TableDef | None, ...]

    @property
    def op(self) -> Op:
        """Its kind."""
        return Op(self.record[0])


def rows(fs: Fs, source: DumpSource, wanted: Wanted) -> Iterator[RecordRow]:
    """Every record of the wanted blocks. A large transaction's CSN is carried from its `begin` block on."""
    for _, found in rows_by_block(fs, source, wanted):
        yield from found


def rows_by_block(fs: Fs, source: DumpSource, wanted: Wanted) -> Iterator[tuple[Block, Iterator[RecordRow]]]:
    """The same with the blocks, also those without a record; each one's rows before the next block."""
    last: Walked | None = None

    def of(block: Block, definitions: Definitions) -> Iterator[RecordRow]:
        nonlocal last
        where = f"{source.trail.path(block.start.seqno)}, RBA {block.start.rba}"
        tables: list[TableDef | None] = []

        def widths(ids: list[bytes]) -> list[int | None]:
            tables.extend(map(definitions.get, ids))
            return [len(table.columns) if table else None for table in tables]

        ids, records = decode_data(block.header, block.payload, where, widths)
        for last, (_, _, record) in walk([(block.start, ids, records)], last):  # noqa: B020  -- it goes on with it
            yield RecordRow(record, block.start, last.csn, last.time_us or 0, _tables(record, tables, where))

    for block, definitions in blocks(fs, source, wanted, payload=True):
        yield block, of(block, definitions) if block.header.kind == BlockKind.DATA else iter(())


def _tables(record: list[Any], tables: list[TableDef | None], where: str) -> tuple[TableDef | None, ...]:
    op = record[0]
    if op in (INSERT, UPDATE, DELETE):
        return (tables[record[1]],)
    if op == TRUNCATE:
        return tuple(tables[index] for index in record[1])
    if op == DDL:
        # A renamed table is met by both of its names.
        return tuple(TableDef(schema, name, ()) for schema, name in DdlChange.from_wire(record[1], where).names)
    return ()


def chosen_rows(fs: Fs, source: DumpSource, wanted: Wanted) -> Iterator[RecordRow]:
    """The rows that the bounds of table, CSN and time leave; a search by table leaves BEGIN and COMMIT out."""
    return (row for row in rows(fs, source, wanted) if is_wanted(row, wanted))


def is_wanted(row: RecordRow, wanted: Wanted) -> bool:
    """Does the row lie within the bounds of table, CSN and time?"""
    if (wanted.csn and row.csn != wanted.csn) or not wanted.in_time(row.time_us):
        return False
    return not wanted.table or any(wanted.is_table(table) for table in row.tables)
