"""Units of whole transactions in pieces, where a batch takes a part of one.

    a block of many whole transactions     between two of them       split = transactions before the cut
    one larger transaction                 between two blocks        split = blocks before the cut (splitting.py)

Rule: nothing here reads a payload but `transactions`, and that only of a block of many through which a cut runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replicat.model.borders import Look
from trails.plan import Unit
from trails.reader import Block
from trails.walk import Walked


@dataclass(frozen=True, slots=True)
class Share:
    """What a batch takes of a unit: from `low` to `high`, as UnitPart counts.

    `blocks`: those in which it stands; `csn` and `time_us`: of its last transaction; `is_cut`: something of the unit
    comes behind it; `before`: changes of the transaction that goes on in it from before.
    """

    unit: Unit
    low: int
    high: int
    many: bool
    blocks: tuple[Block, ...]
    changes: int
    size: int
    csn: str
    time_us: int
    is_cut: bool = False
    before: int = 0


@dataclass(slots=True)
class UnitPart:
    """What is left of a unit. `many`: it is a block of many transactions; `whole`: how many it has, or else blocks.

    It has `low` to `high` of these.
    """

    unit: Unit
    low: int
    high: int
    look: Look
    whole: int
    many: bool
    _looked: Sequence[Walked] = ()

    @property
    def transactions(self) -> Sequence[Walked]:
        """Those of the block, read when they are asked for."""
        if not self._looked:
            self._looked = self.look(self.unit.blocks[0])
        return self._looked

    def changes(self, low: int, high: int) -> int:
        """How many changes stand between two cuts."""
        if (low, high) == (0, self.whole):
            return self.unit.changes
        if self.many:
            return sum(transaction.changes for transaction in self.transactions[low:high])
        return sum(block.header.changes for block in self.unit.blocks[low:high])

    def upto(self, high: int) -> Share:
        """What a batch takes of it that takes it up to there; nearly always that is all of the unit."""
        unit, low, many = self.unit, self.low, self.many
        if (low, high) == (0, self.whole):
            return Share(unit, low, high, many, unit.blocks, unit.changes, unit.raw_bytes, unit.csn, unit.time_us)
        csn, time_us, is_cut = unit.csn, unit.time_us, high < self.whole
        if many and is_cut:
            last = self.transactions[high - 1]
            csn, time_us = last.csn, last.time_us or 0
        blocks = unit.blocks if many else unit.blocks[low:high]
        # Of a part of a block, its share or a little more.
        size = unit.raw_bytes * (high - low) // self.whole + 1 if many else sum(b.header.raw_len for b in blocks)
        before = 0 if many else self.changes(0, low)
        return Share(unit, low, high, many, blocks, self.changes(low, high), size, csn, time_us, is_cut, before)
