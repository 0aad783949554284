"""Where a Replicat stands with its target, as a table: in which phase what may happen, and which phase follows.

Rule: the table is the only place that says what follows; what has no entry can't happen there. Whatever goes wrong
leads to AWAY, where nothing is true but the checkpoint row (I3). docs/replicat.md shows the table.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class ApplyPhase(Enum):
    """What is open."""

    AWAY = "no connection: nothing is known of the row"
    READY = "the row is read, and no transaction is open; jobs may be decoding ahead"
    OPEN = "a transaction is open in the target, and the row has moved in it"


class ApplyEvent(Enum):
    """What changes the phase."""

    ATTACHED = "connected, and the row is read"
    BEGUN = "the first job of a batch is applied"
    COMMITTED = "the last job is applied, and the target has committed"
    DROPPED = "the connection is lost or given up: AwayError, PlaceLostError, ShapeChangedError, BeginAgainError, SEND"


NEXT: Final[dict[tuple[ApplyPhase, ApplyEvent], ApplyPhase]] = {
    (ApplyPhase.AWAY, ApplyEvent.ATTACHED): ApplyPhase.READY,
    (ApplyPhase.READY, ApplyEvent.BEGUN): ApplyPhase.OPEN,
    (ApplyPhase.OPEN, ApplyEvent.COMMITTED): ApplyPhase.READY,
    **{(phase, ApplyEvent.DROPPED): ApplyPhase.AWAY for phase in ApplyPhase},
}
