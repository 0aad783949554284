"""What a pump is to do, from its parameter file and its registration."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

from pump.params import PumpParams
from trails.checkpoint import Place
from trails.errors import OperatorError
from trails.position import Position, TrailName
from trails.runtime.process import clockdiff


@dataclass(frozen=True, slots=True)
class PumpJob:
    """`title`: the local trail as its operator named it. `pinned`: the file of pin.py.

    `tls`: the folder of the home's certificates; empty: plain.
    """

    params: PumpParams
    home_id: str
    host: str
    trail: TrailName
    title: str
    megabytes: int
    pinned: str
    tls: str = ""
    alter_no: int = 0
    alter: dict[str, Any] = field(default_factory=dict)
    clock_diff_s: float = clockdiff.DEFAULT_SECONDS
    whole: Position | None = None
    """Where the file of a task ends, in place of a trail."""

    def start(self) -> Position | None:
        """Where the last ALTER wants to begin; None if it moves nothing. OperatorError for what no pump can obey."""
        if not self.alter or set(self.alter) == {"etrollover"}:
            return None
        try:
            return Position(int(self.alter["seqno"]), int(self.alter.get("rba", 0)))
        except (KeyError, TypeError, ValueError):
            known = ", ".join(sorted(self.alter))
            wrong = f"{self.params.group}: a pump can't be altered by {known}"
            raise OperatorError(wrong, hint="Use EXTSEQNO and EXTRBA, or ETROLLOVER") from None

    def named(self, place: Place) -> Place:
        """A place in the local trail, with its file as the operator would name it."""
        name = os.path.join(os.path.dirname(self.title), self.trail.file_name(place.seqno))
        return replace(place, file=name)
