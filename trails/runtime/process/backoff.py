"""When to try again, and when to give up: for whatever waits for a peer or a database."""

from __future__ import annotations

from typing import Final

FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 5.0


class Backoff:
    """A try after 0.1 s, then after twice as long each time up to `longest`; for `limit` seconds in all."""

    def __init__(self, limit: float, longest: float = LONGEST_DELAY) -> None:
        self.limit = limit
        self._longest = longest
        self._delay = FIRST_DELAY
        self._since: float | None = None
        self.failing = False
        """Whether there was a loss, and no success since."""

    def again(self, now: float) -> float | None:
        """Something was lost, or a try failed: the moment of the next one; None once the limit is passed."""
        if self._since is None:
            self._since, self.failing = now, True
        if self.is_over(now):
            return None
        delay, self._delay = min(self._delay, self._longest), min(self._delay * 2, self._longest)
        return now + delay

    def is_over(self, now: float) -> bool:
        """Whether it has been failing for as long as the limit allows."""
        return self._since is not None and now - self._since >= self.limit

    def succeeded(self) -> None:
        """What was tried does its work: a loss from now on is another one."""
        self._delay = FIRST_DELAY
        self._since, self.failing = None, False
