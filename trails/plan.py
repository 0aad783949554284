"""From block headers to units of whole transactions: what a reader of records may apply, and up to where.

A unit is one WHOLE block, or all blocks of one large transaction, begin to end; only headers are read for it.
Blocks of a transaction that RESTART abandons are dropped here, so nobody above ever sees them.
"""

from __future__ import annotations

from dataclasses import dataclass

from trails.errors import DamageError
from trails.format import Indicator, Kind
from trails.position import Position
from trails.reader import Block, BlockReader
from trails.record import TableDef


@dataclass(frozen=True, slots=True)
class Unit:
    """Whole transactions that stand next to each other; without `blocks` it only moves the position.

    `end` is the position after it, `csn` and `time_us` those of its last transaction, `raw_bytes` the size before LZ4.
    """

    blocks: tuple[Block, ...]
    start: Position
    end: Position
    changes: int = 0
    transactions: int = 0
    raw_bytes: int = 0
    csn: str = ""
    time_us: int = 0

    @property
    def has_ddl(self) -> bool:
        """Whether one of its blocks is a DDL block (`block.header.is_ddl`)."""
        return any(block.header.is_ddl for block in self.blocks)

    @property
    def is_heartbeat(self) -> bool:
        """Whether it is a heartbeat: one transaction, without any change of the user's."""
        return len(self.blocks) == 1 and self.blocks[0].header.is_heartbeat


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

    def next(self) -> Unit | None:
        """The next unit, or None if no whole one is durable yet. Never blocks; raises what BlockReader raises."""
        while True:
            before = self._reader.position
            block = self._reader.read(payload=False)
            if block is None:
                return None
            if self.position is None:
                self.position = before or block.start
            unit = self._take(block)
            if unit is not None:
                self.position = unit.end
                return unit

    def _take(self, block: Block) -> Unit | None:
        kind, indicator = block.header.kind, block.header.indicator
        if kind == Kind.DATA:
            return self._take_data(block, indicator)
        if kind == Kind.RESTART:
            self._open.clear()
        return None if self._open else self._unit([], block)

    def _take_data(self, block: Block, indicator: Indicator) -> Unit | None:
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
        return self._unit(blocks, block)

    def _unit(self, blocks: list[Block], last: Block) -> Unit:
        headers = [block.header for block in blocks]
        return Unit(
            blocks=tuple(blocks),
            start=self.position or last.start,
            end=last.end,
            changes=sum(h.changes for h in headers),
            transactions=sum(h.transactions for h in headers),
            raw_bytes=sum(h.raw_len for h in headers),
            csn=last.header.csn,
            time_us=last.header.time_us,
        )
