"""The retention guard, for every source: what the source keeps until it is in the trail, and when to warn of it.

    amount < WARN bound                  nothing is said
    WARN bound <= amount < CRITICAL      a WARNING, and again each hour
    CRITICAL <= amount, or urgent        a WARNING that says so, and again each hour
    lost                                 the process ends at once with exit code 2: no retry brings it back

Rule: a look must never hold up capturing. It is made on a connection and a thread of its own, and each turn of the main
loop only judges what was found last. A look that fails changes nothing: what was found stays, with its age.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

from trails.errors import AwayError, GateError, OperatorError
from trails.runtime.report.answers import KeptAnswer

LOOK_SECONDS: Final = 10.0
REPEAT_SECONDS: Final = 3600.0
WARN, CRITICAL = 1, 2


@dataclass(frozen=True, slots=True)
class Retained:
    """What one look found: an amount, and the bounds of WARN and CRITICAL in the same unit, where 0 is never.

    `text`: the warning of a level. `urgent`: it is critical, whatever the amount. `lost`: why nothing can go on.
    """

    amount: int
    bounds: tuple[int, int]
    text: Callable[[int], str]
    urgent: bool = False
    lost: OperatorError | None = None

    @property
    def level(self) -> int:
        """0, WARN or CRITICAL."""
        warn, critical = self.bounds
        if self.urgent or (critical and self.amount >= critical):
            return CRITICAL
        return WARN if warn and self.amount >= warn else 0

    def judged(self, kept: KeptAnswer) -> KeptAnswer:
        """What is kept, with what this look means for a group that does not run."""
        if self.lost is not None:
            return replace(kept, level=0, text="", lost=str(self.lost))
        return replace(kept, level=self.level, text=self.text(self.level) if self.level else "", lost="")

    def holds(self, level: int) -> bool:
        """Whether a level that was reached is not left yet: it is only when a tenth less is kept.

        So an amount that swings around a bound is not news each time.
        """
        bound = self.bounds[level - 1] if level else 0
        return bool(bound) and self.amount >= bound * 9 // 10


class RetentionGuard:
    """Judges what was found last; called by the capturing thread, as often as it likes."""

    def __init__(self, found: Callable[[], Retained | None], warn: Callable[[str], None]) -> None:
        """`found`: None before the first look. The same object is judged once."""
        self._found = found
        self._warn = warn
        self._judged: Retained | None = None
        self._level = 0
        self._said = 0.0

    def judge(self, now: float) -> None:
        """Warn if what was found is worth it. Raises OperatorError if what was kept is lost."""
        kept = self._found()
        if kept is None or kept is self._judged:
            return
        self._judged = kept
        if kept.lost is not None:
            raise kept.lost
        level = kept.level
        if level > self._level or (level and now - self._said >= REPEAT_SECONDS):
            self._warn(kept.text(level))
            self._said = now
        if level >= self._level or not kept.holds(self._level):
            self._level = level


class _Closing(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closing)
F = TypeVar("F")


class RetentionWatch(Generic[C, F]):
    """Looks now and then, on a thread and a connection of its own. `look` has a bounded time."""

    def __init__(self, connect: Callable[[], C], look: Callable[[C], F], every: float = LOOK_SECONDS) -> None:
        self._connect = connect
        self._look = look
        self._every = every
        self._end = threading.Event()
        self.found: F | None = None
        """By the last look that did not fail."""
        self.trouble = ""
        """Why the last look failed."""
        threading.Thread(target=self._run, name="retention guard", daemon=True).start()

    def close(self) -> None:
        """Look no more; a look under way ends by itself."""
        self._end.set()

    def _run(self) -> None:
        connection: C | None = None
        while not self._end.is_set():
            try:
                connection = connection or self._connect()
                self.found = self._look(connection)
                self.trouble = ""
            except GateError as error:
                self.trouble = error.message
                if connection is not None and isinstance(error, AwayError):
                    connection.close()
                    connection = None
            self._end.wait(self._every)
        if connection is not None:
            connection.close()
