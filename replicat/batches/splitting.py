"""One transaction in several batches: where MAXTRANSOPS cuts it, and where a change of shape does.

A target may commit a change of shape by itself. Then that change is a batch of its own, and so is what stands before it
and behind it. Of a transaction in parts each batch, job and task knows how much of it lies before: its messages name a
change by its number in the whole transaction.

Rule: this file and what it is asked for is all that there is of it. Without MAXTRANSOPS, and where a target can take
changes of shape inside a transaction, none is ever cut, and every answer here is `no`, `all of it` or zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from replicat.batches.pieces import Share, UnitPart
from trails.format import Indicator
from trails.reader import Block

Head = tuple[Block, int]
"""Of a transaction that goes on: the block where it begins, and how many of its changes stand before here."""


class Splitting:
    """Says of a unit whether it is a batch by itself, and up to where. `most`: MAXTRANSOPS, 0 for none."""

    def __init__(self, most: int, cut_ddl: bool, note: Callable[[str], None]) -> None:
        """`cut_ddl`: a change of shape commits in the target by itself."""
        self._most = most
        self._cut_ddl = cut_ddl
        self._note = note

    def is_alone(self, rest: UnitPart) -> bool:
        """Whether nothing else stands beside it in its batch: its shape changes, or it is cut, now or before."""
        if rest.unit.has_ddl or rest.many:
            return rest.unit.has_ddl
        return bool(rest.low) or 0 < self._most < rest.changes(rest.low, rest.high)

    def border(self, rest: UnitPart) -> int:
        """Up to which block its next batch goes: all of it, if nothing cuts it."""
        if rest.unit.has_ddl:
            return self._ddl_border(rest) if self._cut_ddl else rest.high
        if not self._most:
            return rest.high
        at = rest.low + 1
        while at < rest.high and rest.changes(rest.low, at + 1) <= self._most:
            at += 1
        if not rest.low and at < rest.high:
            self._note(
                f"The transaction with CSN {rest.unit.csn}, {rest.unit.changes} changes, is split: MAXTRANSOPS "
                f"{self._most}. Until its last part is committed the target shows a part of it"
            )
        return at

    def _ddl_border(self, rest: UnitPart) -> int:
        at = rest.low
        while at < rest.high and not rest.unit.blocks[at].header.is_ddl:
            at += 1
        if not rest.low and at + 1 < rest.high:
            self._note(
                f"The transaction with CSN {rest.unit.csn} changes a table's shape, which the target commits by "
                "itself: until its last part is committed the target shows a part of it"
            )
        return max(at, rest.low + 1)


def head_of(piece: Share) -> Head | None:
    """Of the transaction that goes on at a batch's first piece, if one does."""
    return (piece.unit.blocks[0], piece.before) if piece.low and not piece.many else None


def head_behind(blocks: Iterable[Block], head: Head | None) -> Head | None:
    """Of the transaction that goes on behind these blocks: where it begins, and its changes up to there."""
    for block in blocks:
        if block.header.indicator == Indicator.BEGIN:
            head = (block, block.header.changes)
        elif block.header.indicator == Indicator.MIDDLE and head is not None:
            head = (head[0], head[1] + block.header.changes)
        else:
            head = None
    return head


def begun_before(blocks: Sequence[Block], done: int, block: Block) -> tuple[str, int]:
    """Of the transaction that one of a batch's blocks goes on with: its CSN, and how many changes stand before there.

    `done`: what stands before the batch. The CSN is empty if the transaction ends in a later batch.
    """
    at = next(i for i, one in enumerate(blocks) if one.start == block.start)
    for one in blocks[:at]:
        begins = one.header.indicator in (Indicator.WHOLE, Indicator.BEGIN)
        done = one.header.changes + (0 if begins else done)
    ends = (one.header.csn for one in blocks[at:] if one.header.indicator == Indicator.END)
    return next(ends, ""), done
