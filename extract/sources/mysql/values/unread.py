"""What the functions of this folder raise."""

from __future__ import annotations

from trails.controlflow import ControlFlowError


class UnreadValueError(ControlFlowError):
    """These bytes are no value of the column's type; table, column and place are told by the caller."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint
