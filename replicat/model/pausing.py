"""A table that is paused: where its changes begin that are not applied, and how long they are kept for it.

Rule: plain values, of which the target keeps the places (load/pausedtable.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from replicat.model.target import CheckpointRow
from trails.controlflow import ControlFlowError
from trails.position import Position

Pair = tuple[str, str]
"""A source table and a target table, each as `schema.name`."""
KEEP_HOURS: Final = 7 * 24
MOST_HOURS: Final = 366 * 24


@dataclass(frozen=True, slots=True)
class PausePlace:
    """Up to where a table has all its changes: as of the checkpoint row, a place by itself. See CheckpointRow."""

    position: Position
    split: int = 0
    trail_id: bytes = b""
    csn: str = ""
    skip_until: str = ""

    @classmethod
    def of(cls, row: CheckpointRow) -> PausePlace:
        """Where the group stands."""
        return cls(row.position, row.split, row.trail_id, row.csn, row.skip_until)


class TablePausedError(ControlFlowError):
    """A table is to be paused where the group stands, or where its own catching up does; its text says why."""

    def __init__(self, pair: Pair, reason: str, hours: int = KEEP_HOURS) -> None:
        super().__init__(reason)
        self.pair, self.hours = pair, hours


class ChangesGoneError(ControlFlowError):
    """What a paused table has missed can't be read any more; its text says what is gone."""

    def __init__(self, pair: Pair, reason: str) -> None:
        super().__init__(reason)
        self.pair = pair
