"""From block headers to units of whole transactions: what a reader of records may apply, and up to where.

A unit is one WHOLE block, or all blocks of one large transaction, begin to end; only headers are read for it.
Blocks of a transaction that RESTART abandons are dropped here, so nobody above ever sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trails.codec import decode_hole
from trails.errors import DamageError
from trails.format import BlockKind, Indicator
from trails.fs import Fs
from trails.hole import Hole
from trails.position import Position, TrailName
from trails.reader import Block, BlockReader
from trails.record import TableDef


@dataclass(frozen=True, slots=True)
class Unit:
    """Whole transactions that stand next to each other; without `blocks` it only moves the position.

    `end` is the position after it, `csn` and `time_us` those of its last transaction, `raw_bytes` the size before LZ4.
    `hole`: the block that tells of a hole, which a unit of its own stands for.
    `origin`: the place up to which all is handed over behind it: of the source, or, if it is `copied` by a Collector,
    of the trail that it was copied from.
    `has_ddl`: one of its blocks is a DDL block; `is_heartbeat`: it is a heartbeat, without any change of the user's.
    """

    blocks: tuple[Block, ...]
    start: Position
    end: Position
    changes: int = 0
    transactions: int = 0
    raw_bytes: int = 0
    csn: str = ""
    time_us: int = 0
    hole: Block | None = None
    has_ddl: bool = False
    is_heartbeat: bool = False
    origin: Position = field(default=Position(0, 0))
    copied: bool = False


class Planner:
    """Groups what a BlockReader gives. `position` is always a transaction border: a restart may begin there."""

    def __init__(self, reader: BlockReader) -> None:
        self._reader = reader
        self._open: list[Block] = []
        self.position: Position | None = reader.position

    @property
    def definitions(self) -> dict[bytes, TableDef]:
        """All definitions met so far, by id: enough to decode any unit given."""
        return self._reader.definitions

    @property
    def unended(self) -> Sequence[Block]:
        """The blocks read so far of a large transaction whose end was not there yet."""
        return self._open

    def next(self) -> Unit | None:
        """The next unit, or None if no whole one is durable yet. Never blocks; raises what BlockReader raises."""
        while True:
            before = self._reader.position
            block = self._reader.read(payload=False)
            if block is None:
                return None
            if self.position is None:
                self.position = before or block.start
            blocks = self._ended(block)
            if blocks is not None:
                break
        headers = [one.header for one in blocks]
        start, self.position = self.position, block.end
        return Unit(
            blocks=tuple(blocks),
            start=start,
            end=block.end,
            changes=sum(h.changes for h in headers),
            transactions=sum(h.transactions for h in headers),
            raw_bytes=sum(h.raw_len for h in headers),
            csn=block.header.csn,
            time_us=block.header.time_us,
            hole=block if block.header.kind == BlockKind.HOLE else None,
            has_ddl=any(h.is_ddl for h in headers),
            is_heartbeat=len(headers) == 1 and headers[0].is_heartbeat,
            origin=block.header.origin,
            copied=block.copied,
        )

    def _ended(self, block: Block) -> list[Block] | None:
        """The blocks of the unit that ends with this one, if one does."""
        kind, indicator = block.header.kind, block.header.indicator
        if kind != BlockKind.DATA:
            if kind == BlockKind.RESTART:
                self._open.clear()
            return None if self._open else []
        inside = indicator in (Indicator.MIDDLE, Indicator.END)
        if inside != bool(self._open) or indicator == Indicator.NONE:
            raise DamageError(
                f"trail position {block.start}: damaged: expected {'the rest' if self._open else 'the start'} of a "
                f"transaction, found a block with indicator {indicator.name.lower()}",
                hint="Read the trail from a position that is a transaction's border",
            )
        self._open.append(block)
        if indicator in (Indicator.BEGIN, Indicator.MIDDLE):
            return None
        blocks, self._open = self._open, []
        return blocks


@dataclass(frozen=True, slots=True)
class Left:
    """What is left out by going on at a later place. `holes`: their blocks, of which only the headers were read."""

    transactions: int = 0
    changes: int = 0
    holes: tuple[Block, ...] = ()

    @classmethod
    def between(cls, planner: Planner, there: Position) -> Left:
        """All that a planner has from where it stands up to a place."""
        transactions = changes = 0
        found: list[Block] = []
        while (unit := planner.next()) is not None and unit.end <= there:
            transactions += 0 if unit.is_heartbeat else unit.transactions
            changes += unit.changes
            found += [unit.hole] if unit.hole is not None else []
        return cls(transactions, changes, tuple(found))

    def __str__(self) -> str:
        return f"{self.transactions} transactions with {self.changes} changes"


def hole_of(fs: Fs, trail: TrailName, trail_id: bytes, block: Block) -> Hole:
    """What stands in a HOLE block of which only the header was read."""
    reader = BlockReader(fs, trail, block.start, trail_id or None)
    try:
        whole = reader.read()
        assert whole is not None
        return decode_hole(whole.header, whole.payload, f"{trail.path(block.start.seqno)}, RBA {block.start.rba}")
    finally:
        reader.close()
