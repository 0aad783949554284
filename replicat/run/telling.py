"""What a Replicat tells of itself: how old the last change is that it has applied, and its checkpoint."""

from __future__ import annotations

from typing import Any

from replicat.model.target import CheckpointRow
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.clock import Clock
from trails.heartbeat import lag_of
from trails.position import Position, TrailName
from trails.runtime.home.registration import Registration


class ApplyLag:
    """That of the last commit, or none at the trail's end, and all the time since: it grows while nothing moves."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: tuple[int, int, int | None] | None = None
        self._at = 0.0  # when that was true

    def is_now(self, now_us: int, time_us: int, skew_us: int | None) -> None:
        """What `lag_of` takes, of the last commit."""
        self._last, self._at = (now_us, time_us, skew_us), self._clock.monotonic()

    @property
    def why(self) -> str:
        """Why it is not known; "" if it is, or nothing was applied yet."""
        return lag_of(*self._last)[1] if self._last else ""

    def now(self, *, at_eof: bool) -> int | None:
        """It as it stands; `at_eof`: nothing waits to be applied."""
        if at_eof:
            return 0
        us = lag_of(*self._last)[0] if self._last else None
        return None if us is None else us + int((self._clock.monotonic() - self._at) * 1e6)


def place(row: CheckpointRow, position: Position, trail: TrailName) -> Place:
    """A place in the trail, by what the row says of its last transaction."""
    return Place(position.seqno, position.rba, row.time_us, row.csn, trail.path(position.seqno))


def checkpoint(
    registration: Registration,
    row: CheckpointRow,
    trail: TrailName,
    startup: Place | None,
    hold: Position | None,
    lag_us: int | None,
    **extra: Any,
) -> Checkpoint:
    """For the checkpoint file. `hold`: the oldest place that a paused table needs: no file is purged from there on."""
    current = place(row, row.position, trail)
    needed = place(row, row.flushed, trail)
    if hold is not None and hold < row.flushed:  # what stands before it is not known here
        needed = Place(hold.seqno, hold.rba, file=trail.path(hold.seqno))
    read = ReadCheckpoint("GGS Log Trail", startup or current, current, recovery=needed)
    known = {"group_key": registration.group_key, "trail_id": row.trail_id.hex(), "alter_no": row.alter_no}
    extra = {**known, "row_created_us": row.created_us, **extra}
    return Checkpoint(registration.name, "REPLICAT", reads=(read,), lag_us=lag_us, extra=extra)
