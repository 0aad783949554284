"""How often AUTORESTART has started each group again: kept in `dirpcs/MGR.tries`, so that RETRIES bounds a group that
dies again and again also where its Manager does; after faults of ours apart from that, in `dirpcs/MGR.faults`.

A try is noted before its process is started; a crash between the two counts one that was never made. On disk stands
wall time, as the machine may have been booted meanwhile; a time that is yet to come (the clock was ahead) is now. What
can't be read begins anew, what can't be written (a full disk) holds for this Manager only; both are told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ggsci.manager.noted import Noted
from trails.clock import Clock
from trails.errors import GateError
from trails.runtime.home.home import Home


class Tries:
    """Tries by group, each with the moment since when they are counted."""

    def __init__(self, home: Home, clock: Clock, tell: Callable[[str], None], file: str = "MGR.tries") -> None:
        self._noted = Noted(home, file)
        self._clock = clock
        self._tell = tell
        self._known = self._load()

    def of(self, name: str) -> int:
        """How many there were."""
        return self._known[name][0] if name in self._known else 0

    def within(self, name: str, seconds: float) -> int:
        """The same; where counting began so long ago, it begins anew."""
        now = self._clock.monotonic()
        tries, since = self._known.get(name, (0, now))
        if not tries or now - since >= seconds:
            tries, since = 0, now
        self._known[name] = (tries, since)
        return tries

    def left(self, name: str, seconds: float) -> float:
        """How long until counting begins anew, so many seconds after it began."""
        now = self._clock.monotonic()
        _, since = self._known.get(name, (0, now))
        return max(0.0, since + seconds - now)

    def add(self, name: str) -> None:
        """One more is about to be made."""
        tries, since = self._known.get(name, (0, self._clock.monotonic()))
        self._known[name] = (tries + 1, since)
        self._save()

    def forget(self, name: str) -> None:
        """An operator's START: counting begins anew."""
        if self.of(name):
            del self._known[name]
            self._save()

    def keep(self, names: Collection[str]) -> None:
        """Of these groups only: the others were deleted, maybe while no Manager ran."""
        if gone := self._known.keys() - set(names):
            for name in gone:
                del self._known[name]
            self._save()

    def _load(self) -> dict[str, tuple[int, float]]:
        now, now_us = self._clock.monotonic(), self._clock.now_us()

        def understood(rows: Any) -> dict[str, tuple[int, float]]:
            return {
                name: (int(tries), now - max(0, now_us - int(since_us)) / 1_000_000)
                for name, (tries, since_us) in rows.items()
            }

        tell = self._tell
        return self._noted.load(understood, {}, lambda why: tell(f"{why}: AUTORESTART counts its tries anew."))

    def _save(self) -> None:
        now, now_us = self._clock.monotonic(), self._clock.now_us()
        rows = {
            name: (tries, now_us - int((now - since) * 1_000_000))
            for name, (tries, since) in self._known.items() if tries
        }  # fmt: skip
        try:
            self._noted.save(rows)
        except GateError as error:
            self._tell(f"AUTORESTART's tries are known to this Manager only, not to the next: {error}")
