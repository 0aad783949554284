"""Which records of a discard file were replayed: rows of the checkpoint table, and how many of them are kept.

    row of `GROUP replay`       key                          position
    of a record                 a hash of its place          the record's, once it is applied; FREE before
    the trail's floor           a hash of the trail's id     up to there rows were let go

Rule: the newest rows of a trail are kept, and of older ones the floor alone: a record at or below it that has no row
may have been replayed, so it is not applied again. Rows go, and the floor moves, in one transaction of the target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from replicat.model.target import CheckpointRow
from replicat.targets.contract import Target
from replicat.targets.sql import rowtable
from trails.position import Position

FREE = Position(0, 0)
KEPT_ROWS = 10_000
"""Of each trail; a row has some 200 bytes."""


def identity(text: str) -> int:
    """What a row is found by."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(slots=True)
class Replayed:
    """The rows of one group. `group`: the name that they bear; `keep`: how many of each trail."""

    target: Target
    group: str
    keep: int = KEPT_ROWS
    _floors: dict[bytes, Position] = field(default_factory=dict)

    def is_forgotten(self, trail_id: bytes, position: Position) -> bool:
        """Whether a record without a row may have had one. Nothing is open."""
        if trail_id not in self._floors:
            self.target.speak_for(self.group, _floor_key(trail_id))
            row = self.target.load_row()
            self._floors[trail_id] = FREE if row is None else row.position
        return position <= self._floors[trail_id]

    def bound(
        self, control: CheckpointRow, trails: Iterable[bytes], add: Callable[[CheckpointRow], CheckpointRow]
    ) -> None:
        """Let go of what is too much. `control`: the row to open a transaction by; `add`: makes a row, if none is."""
        table, words = self.target.row_table, self.target.kind.words
        for trail_id in trails:
            key = _floor_key(trail_id)
            newest = rowtable.newest_dropped(table, self.group, trail_id.hex(), key, self.keep)
            found = self.target.read(newest)
            if not found:
                continue
            self.target.speak_for(self.group, key)
            if self.target.load_row() is None:
                add(CheckpointRow(FREE, trail_id=trail_id))
            seqno, rba = (int(number) for number in found[0])
            self.target.speak_for(self.group, 0)
            self.target.begin(control, control)
            self.target.write(rowtable.drop_up_to(table, words), [self.group, trail_id.hex(), key, seqno, seqno, rba])
            self.target.write(rowtable.place(table, words), [seqno, rba, self.group, key])
            self.target.commit()
            self._floors[trail_id] = Position(seqno, rba)


def _floor_key(trail_id: bytes) -> int:
    return identity(f"floor {trail_id.hex()}")
