"""What is on its way between source and target: until when to wait, and which rows nobody can judge.

A row that differs is read again: the source by a snapshot whose contents are known, then, once the group's checkpoint
row is past that snapshot, the target. What the target has of a row is then the source's snapshot, and beside it only
changes that stand in the trail, that the checkpoint row is past, and that the snapshot does not see. So:

    no such change of that row     what differs is out of sync
    there is one                   it proves nothing: the row is read once more, and at last called unknown

Rule: the trail is read from where the row stood before the snapshot to where it stands behind the target's rows. A
change that the snapshot may see in part counts as one that it does not see.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from replicat.compare.ranges import Key, Pair
from replicat.model.loading import Seen
from replicat.model.sourceplace import source_place
from replicat.model.target import CheckpointRow
from replicat.reading.contract import Snapshot
from trails.codec import decode_data
from trails.errors import OperatorError
from trails.format import COMPLETE, BlockKind
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.reader import Block, BlockReader
from trails.record import MISSING, Image, Op, Record, TableDef
from trails.walk import Walked, walk

LOOK_SECONDS = 0.1
_QUIET = 2
"""By this look a trail that is written to has told something new; in any other, what it has is read from its file."""
_ROWS = (Op.INSERT, Op.UPDATE, Op.DELETE)


@dataclass
class Flight:
    """One group's trail and checkpoint row. `load_row` asks the target; `seconds`: so long a place is waited for."""

    fs: Fs
    trail: TrailName
    load_row: Callable[[], CheckpointRow | None]
    seconds: float = 60.0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def row(self) -> CheckpointRow:
        """Where the group stands now."""
        found = self.load_row()
        if found is None:
            raise OperatorError("the group has no row in its checkpoint table: it has never run", hint="START it first")
        return found

    def wait(self, begin: CheckpointRow, past: Position) -> CheckpointRow | None:
        """Where the group stands once all of the trail up to the source's place `past` is applied; None: not in time.

        A target that crashed may stand further back again: who relies on this looks at the row once more.
        """
        reader = BlockReader(self.fs, self.trail, begin.position, begin.trail_id or None)
        deadline = time.monotonic() + self.seconds
        held: Block | None = None
        looks = 0
        try:
            while True:
                row = self.row()
                while (held := held or reader.read(payload=False)) is not None and _is_behind(held, row):
                    if (place := _place(held)) is not None and place >= past:
                        return row
                    held = None
                looks += 1
                if looks == _QUIET and held is None and self._reached(begin) >= past:
                    return begin
                if time.monotonic() > deadline:
                    return None
                self.sleep(LOOK_SECONDS)
        finally:
            reader.close()

    def _reached(self, row: CheckpointRow) -> Position:
        """The source's place up to which a row's trail is applied: a source at rest writes no newer one."""
        with contextlib.closing(BlockReader(self.fs, self.trail, Position(row.position.seqno, 0))) as reader:
            found: Position | None = None
            while (block := reader.read(payload=False)) is not None and block.start < row.position:
                found = _place(block) or found
            header = reader.header
        if found is None and header is not None:
            found = source_place(header.last_origin, header.last_csn, copied=bool(header.copies))
        return found or Position(0, 0)

    def late(self, past: Position) -> str:
        """What wait() says if it was in vain."""
        return (
            f"the group did not come past the source's place {past} within {self.seconds:.0f} s: rows that differ may "
            "be on their way. Behind a pump only a captured transaction shows that it did: ADD HEARTBEATTABLE"
        )

    def touched(self, begin: CheckpointRow, end: CheckpointRow, pair: Pair, of: Snapshot) -> frozenset[Key] | None:
        """Keys whose rows may have been changed behind the snapshot; None: any of the table."""
        return self.changed(begin, end, pair, Seen.parse(of.seen)) if _shows(of, begin) else None

    def changed(self, begin: CheckpointRow, end: CheckpointRow, pair: Pair, seen: Seen) -> frozenset[Key] | None:
        """Keys of rows with a change between two places that the snapshot may not see whole; None: any row."""
        keys: set[Key] = set()
        for transaction, tables, record in self._records(begin, end):
            if seen.sees(transaction.csn, transaction.xid) is True:
                continue
            found = _keys(record, tables, pair)
            if found is None:
                return None
            keys |= found
        return frozenset(keys)

    def _records(self, begin: CheckpointRow, end: CheckpointRow) -> Iterator[tuple[Walked, list[TableDef], Record]]:
        reader = BlockReader(self.fs, self.trail, begin.position, begin.trail_id or None)

        def blocks() -> Iterator[tuple[Position, list[bytes], list[Record]]]:
            while (block := reader.read()) is not None:
                if not end.split and block.start >= end.position:
                    return
                if block.header.kind == BlockKind.HOLE:
                    raise OperatorError(
                        f"the trail has a hole at {block.start}: nobody knows which rows were changed there",
                        hint="COMPARE once the group is past it",
                    )
                if block.header.kind == BlockKind.DATA:
                    yield block.start, *decode_data(block.header, block.payload)

        try:
            for transaction, one in walk(blocks()):
                yield transaction, [reader.definitions[table] for table in one.tables], one.record
        finally:
            reader.close()


@dataclass
class Touched:
    """The keys of rows that may have been changed behind a snapshot, up to a place that only goes forward.

    `keys`: None for any row of the table.
    """

    flight: Flight
    pair: Pair
    seen: Seen
    at: CheckpointRow
    keys: frozenset[Key] | None

    @classmethod
    def since(cls, flight: Flight, begin: CheckpointRow, pair: Pair, of: Snapshot) -> Touched:
        """`begin`: where the group stood before the snapshot was taken."""
        return cls(flight, pair, Seen.parse(of.seen), begin, frozenset() if _shows(of, begin) else None)

    def up_to(self, row: CheckpointRow) -> frozenset[Key] | None:
        """`row`: where the group stands now."""
        at, was = self.at, (self.at.trail_id or row.trail_id, self.at.alter_no, self.at.added_us)
        if row.position < at.position or (row.trail_id, row.alter_no, row.added_us) != was:
            raise OperatorError(
                f"the group was moved meanwhile, from position {at.position} to {row.position}",
                hint="COMPARE once it stands where it belongs",
            )
        if self.keys is not None and not row.is_at(at):
            more = self.flight.changed(at, row, self.pair, self.seen)
            self.keys = None if more is None else self.keys | more
        self.at = row
        return self.keys


def _shows(of: Snapshot, begin: CheckpointRow) -> bool:
    """Whether the snapshot sees what the group had applied before: a commit may be in the log before it is shown."""
    seen = Seen.parse(of.seen)
    if not all(map(seen.sees_xid, of.hanging)):
        return False
    return not (begin.csn and begin.xid) or seen.sees(begin.csn, begin.xid) is True


def _is_behind(block: Block, row: CheckpointRow) -> bool:
    """Whether what the block has is applied; one without changes has nothing that could be."""
    header = block.header
    changes = header.kind in (BlockKind.DATA, BlockKind.HOLE) and not header.is_heartbeat
    return block.start < row.position or not changes


def _place(block: Block) -> Position | None:
    """The source's place up to which the trail goes behind this block, if it tells one."""
    header = block.header
    if header.kind != BlockKind.PLACE and not (header.kind == BlockKind.DATA and header.indicator in COMPLETE):
        return None
    return source_place(header.origin, header.csn, copied=block.copied)


def _keys(record: Record, tables: list[TableDef], pair: Pair) -> set[Key] | None:
    """The keys of the pair's table that a record is about; None: it may be about any of its rows."""
    op = record[0]
    if op == Op.DDL:
        return None
    if op == Op.TRUNCATE:
        return None if any(tables[i].full_name == pair.source.full_name for i in record[1]) else set()
    if op not in _ROWS or tables[record[1]].full_name != pair.source.full_name:
        return set()
    if pair.keyless:
        return None
    return _keys_of(tables[record[1]], [image for image in record[2:] if image is not None], pair)


def _keys_of(table: TableDef, images: list[Image], pair: Pair) -> set[Key] | None:
    places = {column.name: i for i, column in enumerate(table.columns)}
    names = [pair.source.columns[i].name for i in pair.source.key]
    if any(name not in places for name in names):
        return None
    found = [tuple(image[places[name]] for name in names) for image in images]
    return None if any(value is MISSING for key in found for value in key) else set(found)
