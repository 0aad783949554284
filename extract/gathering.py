"""When an Extract looks at its source again: small transactions that come one by one are taken together.

Whatever is made durable by itself wakes Extract, the pump, the Collector and Replicat, and costs each of them about the
same, however small it is.

Rule: behind it the source is left alone until it has cost Extract no more than `SHARE` of a processor. The first change
after a pause is taken at once. Where much comes nothing waits: a server whose link is full would stand still.
"""

from __future__ import annotations

from typing import Final

from trails.host import Host

SHARE: Final = 0.06
MOST_SECONDS: Final = 0.02
MUCH_BYTES: Final = 16 << 10
"""Some hundred messages; a unix socket holds no more."""


class Gathering:
    """What one Extract's last sync has cost, and until when it gathers."""

    def __init__(self, host: Host, most: float) -> None:
        """`most`: seconds, as FLUSHCSECS bounds them."""
        self._host = host
        self._most = min(MOST_SECONDS, most)
        self._until = self._used = 0.0
        self._taken = 0

    def synced(self, taken: int) -> None:
        """All that came is durable; `taken`: bytes of it, since the start.

        What the process did while nothing came counts as well, so the first time after a pause it may gather longer.
        """
        came, self._taken = taken - self._taken, taken
        used = self._host.cpu_seconds()
        cost, self._used = used - self._used, used
        if 0 < came < MUCH_BYTES:
            self._until = self._host.monotonic() + min(self._most, cost / SHARE)

    @property
    def seconds(self) -> float:
        """For so long the source is left alone; 0: not at all."""
        return max(0.0, self._until - self._host.monotonic())
