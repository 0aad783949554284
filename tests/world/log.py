"""What processes of the world write into their logs: it is part of the story, and a fault of ours ends the life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggsci.manager.manager import PURGED
from trails.runtime.report.report import BUG

if TYPE_CHECKING:
    from tests.world.fibers import Proc


class LifeLog:
    """See report.Log."""

    report = None

    def __init__(self, proc: Proc) -> None:
        self._proc = proc

    def info(self, code: str, text: str, /, *, alike: str = "", **_fields: object) -> None:
        """See Log."""
        world = self._proc.world
        if code == PURGED:
            world.count("files purged")
        world.tell(self._proc.name, text, aside=True)
        if code == BUG:
            world.rules.broken(f"a bug in {self._proc.name}: {text}")

    warning = error = info
