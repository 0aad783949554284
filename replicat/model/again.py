"""Why a batch is begun again from the checkpoint row: what run/replicat.py alone catches, and no person reads as such.

Rule: whoever raises one leaves nothing in the target; what is open is rolled back. Where there is nothing to begin
again (at START, and where ggsci asks) an error for people is made of its text.
"""

from __future__ import annotations

from trails.controlflow import ControlFlowError


class PlaceLostError(ControlFlowError):
    """The checkpoint row is not where this process left it: another commit landed. Start again from the row."""


class ShapeChangedError(ControlFlowError):
    """The target's table is not what it was when its plan was made: look again, plan again, and do the batch again."""


class BeginAgainError(ControlFlowError):
    """The batch is to be begun again, `seconds` from now."""

    def __init__(self, message: str, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds
