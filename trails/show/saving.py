"""SAVE of logdump: the records that NEXT would show, as a new trail.

Rule: nothing that is there is written to. A trail is only replaced (`!`) where all of its files were made by SAVE.
Records of one transaction stay one transaction, whatever of it was chosen; it has the CSN, the transaction id and the
time that it had. Definitions of its tables go with it. A trail saved from an encrypted one is encrypted with the same
home's keys. Places, heartbeats, holes and restarts are left out: they tell of the trail that they stood in.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trails.codec import binary
from trails.errors import OperatorError
from trails.format import FileHeader, Indicator
from trails.fs import Fs
from trails.keeping import forget_last
from trails.position import Position, TrailName, parse_file_name
from trails.record import Op, Record, TableDef
from trails.segment import open_segment
from trails.show.cursor import Item
from trails.show.filters import raw, values_of
from trails.writer import TrailWriter, WriterIdentity

GROUP: Final = "LOGDUMP"
BLOCK_RECORDS = 1000
BLOCK_BYTES = 1 << 20
_ROWS = (Op.INSERT, Op.UPDATE, Op.DELETE)


@dataclass(slots=True)
class _Pending:
    """A block that is being gathered: its tables, its records, and whether it holds a change of shape."""

    tables: list[TableDef] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    changes: int = 0
    bytes: int = 0
    ddl: bool = False


def new_trail(fs: Fs, path: str, source: TrailName, *, again: bool) -> TrailName:
    """The trail that `path` names, `./dirtmp/zz` or its file 0, with nothing there. Raises OperatorError if it is."""
    folder, name = os.path.split(path)
    found = parse_file_name(name)
    if found and found[1]:
        raise OperatorError(f"SAVE {path}: a new trail begins with file 0", hint=f"SAVE {path[: -len(name)]}{found[0]}")
    trail = TrailName.parse(os.path.join(folder or ".", found[0] if found else name))
    if os.path.abspath(str(trail)) == os.path.abspath(str(source)):
        raise OperatorError(f"SAVE {path}: this is the open trail", hint="Name a trail that is not there")
    for seqno in trail.seqnos(fs.listdir(trail.folder)):
        segment = open_segment(fs, trail, seqno)
        segment.close()
        if segment.header.group != GROUP or not again:
            hint = f"SAVE {path} ! replaces it" if segment.header.group == GROUP else "Name a trail that is not there"
            raise OperatorError(f"{segment.path} is there, written by {segment.header.group}", hint=hint)
    for seqno in trail.seqnos(fs.listdir(trail.folder)):
        fs.remove(trail.path(seqno))
    forget_last(fs, trail)
    return replace(trail, wallet=source.wallet_folder)


class Saved:
    """Writes records, one by one, to a new trail."""

    def __init__(self, fs: Fs, trail: TrailName, header: FileHeader) -> None:
        """`header`: that of the file which the records come from."""
        identity = WriterIdentity(header.home_id, GROUP, socket.gethostname(), header.source)
        self._writer = TrailWriter.open(fs, trail, identity, restart_open=True, encrypt=bool(header.key_id))
        self.path = trail.path(self._writer.seqno)
        self.records = self.transactions = self.bytes = 0
        self.left_out: Counter[str] = Counter()
        self._block = _Pending()
        self._item: Item | None = None  # the last one saved
        self._begun = False  # a block of its transaction was written
        self._changes = 0  # of its transaction
        self._done = ("", Position(0, 0))  # CSN and place of the last whole transaction

    def add(self, item: Item) -> None:
        """One record. Raises OperatorError if its table's definition is not there."""
        if item.row is None or item.row.op is Op.HEARTBEAT:
            self.left_out[item.type] += 1
            return
        last = self._item
        if last is not None and (last.csn, last.xid) != (item.csn, item.xid):
            self._commit()
        if self._item is None:
            self._block.records.append((Op.BEGIN, item.csn, item.xid, item.time_us))
        self._item = item
        block, ddl = self._block, item.row.op is Op.DDL
        if block.changes and (ddl or block.ddl or len(block.records) >= BLOCK_RECORDS or block.bytes >= BLOCK_BYTES):
            self._put(last=False)
        self._block.records.append(self._record(item))
        self._block.ddl = ddl
        self._count(item)

    def _count(self, item: Item) -> None:
        size = sum(map(len, map(raw, values_of(item))))
        self.bytes += size
        self.records += 1
        self._changes += 1
        self._block.bytes += size
        self._block.changes += 1

    def _record(self, item: Item) -> Record:
        """The record as it goes into the block that is gathered."""
        row = item.row
        assert row is not None
        if row.op is Op.DDL:
            return (Op.DDL, _packed(row.record[1]))
        where = f"{row.place}: {item.type}"
        tables = [self._table(table, where) for table in row.tables]
        if row.op in _ROWS:
            return (row.op, tables[0], *(_packed(image) for image in row.record[2:]))
        return (row.op, tables, *row.record[2:])

    def _table(self, table: TableDef | None, where: str) -> int:
        if table is None:
            raise OperatorError(
                f"{where}: the definition of its table is not in this trail", hint="Save from an earlier file on"
            )
        if table not in self._block.tables:
            self._block.tables.append(table)
        return self._block.tables.index(table)

    def _put(self, *, last: bool) -> None:
        """Write the gathered block."""
        block, self._block = self._block, _Pending()
        item = self._item
        assert item is not None
        if last:
            self._done = (item.csn, Position(item.block.end.seqno, item.block.end.rba))
        csn, origin = self._done
        indicators = {(False, True): Indicator.WHOLE, (False, False): Indicator.BEGIN, (True, False): Indicator.MIDDLE,
                      (True, True): Indicator.END}  # fmt: skip
        self._writer.define(block.tables)
        self._writer.append_data(
            indicators[self._begun, last], [table.id for table in block.tables], block.records, changes=block.changes,
            transactions=int(last), origin=origin, csn=csn, time_us=item.time_us, ddl=block.ddl,
        )  # fmt: skip
        self._begun = not last

    def _commit(self) -> None:
        self._block.records.append((Op.COMMIT, self._changes))
        self._put(last=True)
        self.transactions += 1
        self._item, self._changes = None, 0

    def close(self) -> None:
        """End the last transaction, and make all of it durable."""
        try:
            if self._item is not None:
                self._commit()
        finally:
            self._writer.close()

    def abandon(self) -> None:
        """Let go of a trail that could not be written."""
        self._writer.abandon()

    def lines(self) -> list[str]:
        """What was done."""
        lines = [
            f"Saved {self.records} records of {self.transactions} transactions, {self.bytes} bytes, to {self.path}"
        ]
        if self.left_out:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.left_out.items()))
            lines.append(f"Left out, as they tell of the trail that they stood in: {kinds}")
        return lines


def _packed(value: Any) -> Any:
    """A decoded value as it is encoded: bytes are no text."""
    if isinstance(value, bytes):
        return binary(value)
    return [_packed(one) for one in value] if isinstance(value, list | tuple) else value
