"""What a Replicat does where the trail says that changes are missing (a HOLE block).

    HOLES ABEND (the default)    everything before the hole is applied, then the process ends with exit code 2 and
                                 names both places. START ..., PASTHOLE moves the row behind it, once
    HOLES REPORT                 a WARNING in report and ggserr.log, and it goes on

Rule: the target of a trail with a hole is not the source's copy any more, whatever is applied behind it. Somebody must
know that, so nobody passes a hole in silence. A crash right after the warning gives it again; none loses it.
"""

from __future__ import annotations

from trails.errors import OperatorError
from trails.fs import Fs
from trails.hole import Hole
from trails.plan import Planner, hole_of
from trails.position import Position, TrailName
from trails.reader import BlockReader


def refused(group: str, trail: TrailName, place: Position, hole: Hole) -> OperatorError:
    """What ends the process before a hole."""
    return OperatorError(
        f"{hole}: trail {trail}, position {place}",
        hint=f"Copy the tables anew, then START REPLICAT {group}, PASTHOLE (docs/recovery.md#lost-slot)",
    )


def next_hole(fs: Fs, trail: TrailName, begin: Position | None, trail_id: bytes) -> tuple[Position, Hole] | None:
    """The position behind the hole that comes next, and the hole; None if a transaction comes before it, or nothing."""
    reader = BlockReader(fs, trail, begin, trail_id or None)
    try:
        planner = Planner(reader)
        while (unit := planner.next()) is not None and (unit.is_heartbeat or not unit.blocks):
            if unit.hole is not None:
                found = reader.header.trail_id if reader.header else trail_id
                return unit.end, hole_of(fs, trail, found, unit.hole)
        return None
    finally:
        reader.close()
