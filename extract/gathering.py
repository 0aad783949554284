"""When an Extract looks at its source again: small transactions that come one by one are taken together.

Whatever is made durable by itself wakes Extract, the pump, the Collector and Replicat.

Rule: behind it the source is left alone, as trails/gathering.py says. Where much comes nothing waits: a server whose
link is full would stand still.
"""

from __future__ import annotations

from typing import Final

from trails.gathering import Gathering
from trails.host import Host

SHARE: Final = 0.06
MOST_SECONDS: Final = 0.02
MUCH_BYTES: Final = 16 << 10
"""Some hundred messages; a unix socket holds no more."""


class BetweenSyncs(Gathering):
    """For how long an Extract leaves its source alone behind a sync."""

    def __init__(self, host: Host, most: float) -> None:
        """`most`: seconds, as FLUSHCSECS bounds them."""
        super().__init__(host, SHARE, min(MOST_SECONDS, most))
        self._taken = 0

    def synced(self, taken: int) -> None:
        """All that came is durable; `taken`: bytes of it, since the start.

        What the process did while nothing came counts as well, so the first time after a pause it may gather longer.
        """
        came, self._taken = taken - self._taken, taken
        self.end()
        self.begin(afresh=False, rests=0 < came < MUCH_BYTES)
