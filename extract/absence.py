"""A source database that is away, for every source: what is said of it, when it is tried again, when to give up."""

from __future__ import annotations

from collections.abc import Callable

from trails.errors import AwayError
from trails.runtime.process.backoff import Backoff


class Absence:
    """One for each source; all of its calls come from the main loop. `say` takes a line for the operator."""

    def __init__(self, limit: float, say: Callable[[str], None]) -> None:
        """`limit`: RECONNECTSECS."""
        self._backoff = Backoff(limit)
        self._say = say
        self.trouble = ""
        """Why the database is away; empty while it is there."""

    @property
    def waits_for(self) -> str:
        """As `Source.waits_for`."""
        return f"Waiting for the source database: {self.trouble}" if self.trouble else ""

    def lost(self, error: AwayError, now: float) -> float:
        """The connection is gone, or a try failed. Returns the moment of the next try. Raises as `check`."""
        self.trouble = str(error)
        if not self._backoff.failing:
            self._say(f"{error}; trying again for {self._backoff.limit:g} s")
        again = self._backoff.again(now)
        if again is None:
            self.check(now)
        return again or now

    def check(self, now: float) -> None:
        """Raise AwayError when it has been away for too long."""
        if self._backoff.is_over(now):
            raise AwayError(
                f"{self.trouble}; gave up after {self._backoff.limit:g} s", hint="START again when it is back"
            )

    def connected(self, place: str) -> None:
        """It answers again. If it is lost soon, that is the same absence, until `over` is called."""
        self._say(f"connected to the source database, going on at {place}")
        self.trouble = ""

    def renewed(self, reason: str) -> None:
        """The connection did its work, and was ended for another one that comes at once."""
        self._say(reason)
        self.trouble = reason
        self.over()

    def over(self) -> None:
        """The connection did its work: a loss from now on is another one."""
        self._backoff.succeeded()
