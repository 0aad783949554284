"""Units of a trail up to a place: for a table that catches up with its group."""

from __future__ import annotations

from trails.errors import MismatchError
from trails.plan import Planner, Unit
from trails.position import Position
from trails.reader import BlockReader


class PlannerUpTo(Planner):
    """Gives what lies before `until`, a border between units; `reached` once all of that was given."""

    def __init__(self, reader: BlockReader, until: Position) -> None:
        super().__init__(reader)
        self._until = until
        self.reached = False

    def next(self) -> Unit | None:
        if self.reached or (self.position is not None and self.position >= self._until):
            self.reached = True
            return None
        unit = super().next()
        if unit is None or unit.end <= self._until:
            return unit  # None: the trail's writer has to recover first what was durable before
        if unit.blocks and unit.blocks[0].start < self._until:
            raise MismatchError(
                f"the group stands at {self._until}, inside of what stands in the trail from {unit.blocks[0].start} to "
                f"{unit.end}: a paused table can't come to that place",
                hint="Wait until the group is past it, then RESUME TABLE",
            )
        self.reached = True
        return None
