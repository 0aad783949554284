"""Where a person stands in one file of a trail, and the records from there on.

Rule: a place is a block's begin (its RBA) and the number of a record in it. A record that can't be read is told as the
error that it is, and the cursor stays before its block: what is behind it is reached by SFH, or by POS.
Records BEGIN and COMMIT are no items: they show in the transaction indicator of those between them, as in GoldenGate.
A file is read in both directions: a block is decoded whole either way, so its records come in reverse as well.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from trails.codec import decode_defs
from trails.errors import DamageError
from trails.format import BlockKind, FileHeader, Indicator
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.reader import Block
from trails.record import Op
from trails.segment import open_segment
from trails.show.rows import DumpSource, RecordRow, Wanted, blocks, rows_by_block

NAMES = {
    Op.INSERT: "Insert", Op.UPDATE: "Update", Op.DELETE: "Delete", Op.TRUNCATE: "Truncate", Op.DDL: "DDL",
    Op.HEARTBEAT: "Heartbeat",
}  # fmt: skip
BLOCK_NAMES = {
    BlockKind.METADATA: "Metadata", BlockKind.RESTART: "RestartAbend", BlockKind.END: "End",
    BlockKind.PLACE: "Place", BlockKind.HOLE: "Hole",
}  # fmt: skip
TYPES = (*NAMES.values(), *BLOCK_NAMES.values())


class Transaction(Enum):
    """Where a record stands in its transaction; GoldenGate's TransInd."""

    FIRST = 0
    MIDDLE = 1
    LAST = 2
    WHOLE = 3


@dataclass(frozen=True, slots=True)
class Item:
    """A record, or a block without one. `number` of `total` in its block; `row` is None for a block without records."""

    type: str
    block: Block
    number: int
    total: int
    csn: str
    xid: str
    time_us: int
    row: RecordRow | None = None
    transaction: Transaction = Transaction.WHOLE
    shapes: str = ""

    @property
    def tables(self) -> str:
        """The names of its tables."""
        return self.shapes or ", ".join(table.full_name for table in (self.row.tables if self.row else ()) if table)

    @property
    def begins_transaction(self) -> bool:
        """Is it the first record of a transaction?"""
        return self.row is not None and self.transaction in (Transaction.FIRST, Transaction.WHOLE)

    @property
    def ends_transaction(self) -> bool:
        """Is it the last record of a transaction?"""
        return self.row is not None and self.transaction in (Transaction.LAST, Transaction.WHOLE)


@dataclass(frozen=True, slots=True)
class CursorPlace:
    """A block's begin, and how many of its records were taken."""

    rba: int
    taken: int = 0


@dataclass(frozen=True, slots=True)
class BegunTransaction:
    """A transaction as its BEGIN tells of it; nothing where that is in no file that is here."""

    csn: str = ""
    xid: str = ""
    time_us: int = 0


class Cursor:
    """One file, read forward by `next`, backward by `previous`; the cursor stands between two records."""

    def __init__(self, fs: Fs, trail: TrailName, seqno: int) -> None:
        """Raises OperatorError or DamageError if the file can't be opened."""
        segment = open_segment(fs, trail, seqno)
        segment.close()
        self.header: FileHeader = segment.header
        self.path = segment.path
        self.first_rba = segment.first_rba
        self.trail = trail
        self.seqno = seqno
        self._fs = fs
        self._open: BegunTransaction | None = None  # the transaction of the block read last
        self._starts: list[int] = []  # of the blocks known to `previous`
        self._block: list[Item] = []  # that `previous` is in
        self._behind = self.first_rba  # where the next block to be read begins
        self._stream: Iterator[tuple[Block, Iterator[RecordRow]]] | None = None
        self._ready: deque[Item] = deque()

    @property
    def rba(self) -> int:
        """The begin of the block in which the next record stands."""
        return self._ready[0].block.start.rba if self._ready else self._behind

    @property
    def place(self) -> CursorPlace:
        """What `seek` takes to come back here."""
        return CursorPlace(self.rba, self._ready[0].number - 1 if self._ready else 0)

    def seek(self, place: CursorPlace) -> None:
        """Go on with a block, behind some of its records. Raises DamageError."""
        self._behind, self._stream, self._open = place.rba, None, None
        self._ready.clear()
        for _ in range(place.taken):
            self.next()

    def next(self) -> Item | None:
        """The next record; None at what is durable now. Raises DamageError, and stays where it is."""
        while not self._ready:
            self._stream = self._stream or self._from(self.seqno, self._behind)
            found = next(self._stream, None)
            if found is None:
                self._stream = None
                return None
            try:
                self._ready.extend(self._items(*found))
            except BaseException:
                self._stream = None
                raise
            self._behind = found[0].end.rba
        return self._ready.popleft()

    def previous(self) -> Item | None:
        """The record before; None at the file's begin. Raises DamageError, and stays where it is."""
        rba, taken = self.place.rba, self.place.taken
        if not (taken and self._block and self._block[0].block.start.rba == rba):
            items = self._decoded(rba) if taken else []
            while not items[:taken]:
                before = self._before(rba)
                if before is None:
                    return None
                rba, items = before, self._decoded(before)
                taken = len(items)
            if rba != self.rba:
                self._ready.clear()
            self._block = items
        item = self._block[taken - 1]
        self._ready.appendleft(item)
        self._behind, self._stream, self._open = item.block.end.rba, None, None
        return item

    def _before(self, rba: int) -> int | None:
        """Where the block before this place begins."""
        if not self._starts or self._starts[-1] < rba:
            self._starts = [block.start.rba for block in self.borders()]
        at = bisect_left(self._starts, rba)
        return self._starts[at - 1] if at else None

    def _decoded(self, rba: int) -> list[Item]:
        """All records of one block."""
        self._open = None
        found = next(self._from(self.seqno, rba), None)
        return list(self._items(*found)) if found else []

    def _from(self, seqno: int, rba: int) -> Iterator[tuple[Block, Iterator[RecordRow]]]:
        return rows_by_block(self._fs, DumpSource(self.trail, seqno), Wanted(start=Position(seqno, rba)))

    def _begun(self, rba: int) -> BegunTransaction:
        """The transaction that is open at a block inside it; its BEGIN may stand some files before."""
        try:
            return self._begin_before(rba)
        except DamageError:
            return BegunTransaction()  # told when somebody comes to it; this block can be shown all the same

    def _begin_before(self, rba: int) -> BegunTransaction:
        bound, held = Position(self.seqno, rba), self.trail.seqnos(self._fs.listdir(self.trail.folder))
        for seqno in range(self.seqno, -1, -1):
            if seqno not in held:
                break
            begins = [block.start.rba for block in self._borders(seqno)
                      if block.start < bound and block.header.indicator is Indicator.BEGIN]  # fmt: skip
            if begins:
                _, rows = next(self._from(seqno, begins[-1]))
                first = next(rows)
                return BegunTransaction(first.csn, str(first.record[2]), first.time_us)
        return BegunTransaction()

    def _items(self, block: Block, rows: Iterator[RecordRow]) -> Iterator[Item]:
        header = block.header
        if header.kind is not BlockKind.DATA:
            yield self._block_item(block)
            return
        inside = header.indicator in (Indicator.MIDDLE, Indicator.END)
        if inside and self._open is None:
            self._open = self._begun(block.start.rba)
        found = list(rows)
        total = sum(row.op in NAMES for row in found)
        number = 0
        before: Op | None = None
        for at, row in enumerate(found):
            op = row.op
            if op is Op.BEGIN:
                self._open = BegunTransaction(row.csn, str(row.record[2]), row.time_us)
            if op in NAMES:
                number += 1
                last = at + 1 < len(found) and found[at + 1].op is Op.COMMIT
                place = _PLACES[before is Op.BEGIN, last]
                tx = self._open or BegunTransaction()
                # A block inside a transaction bears the CSN of the one before it.
                csn = tx.csn or ("" if header.indicator is Indicator.MIDDLE else header.csn)
                yield Item(NAMES[op], block, number, total, csn, tx.xid, tx.time_us or header.time_us, row, place)
            before = op

    def _block_item(self, block: Block) -> Item:
        """A block without records; the tables that a METADATA block describes."""
        header, shapes = block.header, ""
        if header.kind is BlockKind.METADATA and block.payload:
            found = decode_defs(header, block.payload, f"{self.path}, RBA {block.start.rba}")
            shapes = ", ".join(table.full_name for table in found)
        return Item(BLOCK_NAMES[header.kind], block, 1, 1, header.csn, "", header.time_us, shapes=shapes)

    def borders(self) -> Iterator[Block]:
        """The headers of all blocks from the file's first on; no payload is read."""
        return self._borders(self.seqno)

    def _borders(self, seqno: int) -> Iterator[Block]:
        start = Wanted(start=Position(seqno, 0))
        return (block for block, _ in blocks(self._fs, DumpSource(self.trail, seqno), start, payload=False))


_PLACES = {
    (True, True): Transaction.WHOLE, (True, False): Transaction.FIRST, (False, True): Transaction.LAST,
    (False, False): Transaction.MIDDLE,
}  # fmt: skip
