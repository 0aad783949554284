"""When a process looks for more: what comes in small pieces, one by one, is taken together.

Whatever is taken by itself costs about the same, however small it is.

Rule: behind a piece nothing more is taken until it has cost no more than a share of a processor. The first one after a
pause is taken at once.
"""

from __future__ import annotations

from trails.host import Host


class Gathering:
    """What one process's last piece has cost, and until when it gathers."""

    def __init__(self, host: Host, share: float, most: float) -> None:
        """`share` of a processor; `most`: seconds, however much a piece has cost."""
        self._host = host
        self._share, self._most = share, most
        self._until = self._cost = self._used = 0.0

    def begin(self, *, afresh: bool, rests: bool) -> None:
        """A piece begins. `afresh`: nothing that the process did until now is for it. `rests`: the next one gathers."""
        if afresh:
            self._used = self._host.cpu_seconds()
        if rests:
            self._until = self._host.monotonic() + min(self._most, self._cost / self._share)

    def end(self) -> None:
        """A piece is done; what the process did since the one before, or since it began afresh, was for it."""
        used = self._host.cpu_seconds()
        self._cost, self._used = used - self._used, used

    @property
    def seconds(self) -> float:
        """For so long nothing more is taken; 0: it is taken at once."""
        return max(0.0, self._until - self._host.monotonic())
