"""What Replicat does between the batches of its group: rounds of the initial load, and tables that catch up.

Rule: one at a time, and none while a batch is under way.
"""

from __future__ import annotations

from replicat.load.catchup import CatchUp
from replicat.load.rounds import Rounds
from replicat.model.target import CheckpointRow


class TurnTaking:
    """Both, as one to take turns with."""

    def __init__(self, rounds: Rounds, catch_up: CatchUp) -> None:
        self._rounds = rounds
        self._catch_up = catch_up

    @property
    def running(self) -> bool:
        """Whether one is under way."""
        return self._rounds.running or self._catch_up.running

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open that is not the group's."""
        return self._rounds.is_open or self._catch_up.is_open

    def due(self, row: CheckpointRow, *, at_end: bool) -> bool:
        """Whether one is to begin once no batch is under way. `at_end`: nothing waits to be applied."""
        if self.running or row.split:  # in the middle of a large transaction nobody else's turn comes
            return False
        return self._catch_up.due(row, at_end=at_end) or self._rounds.due(row, at_end=at_end)

    def begin(self, row: CheckpointRow, *, at_end: bool) -> None:
        """Begin the one that is due; `row` stays where it is until it is over."""
        if self._catch_up.due(row, at_end=at_end):
            self._catch_up.begin(row)
        else:
            self._rounds.begin(row)

    def step(self, row: CheckpointRow, seconds: float) -> bool:
        """Go on for a moment; whether it is over."""
        return self._catch_up.step(row, seconds) if self._catch_up.running else self._rounds.step(row, seconds)

    def drop(self) -> None:
        """Forget what is under way."""
        self._rounds.drop()
        self._catch_up.drop()

    def close(self) -> None:
        """No more of either."""
        self._catch_up.drop()
        self._rounds.close()
