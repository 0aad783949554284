"""What GETTCPSTATS shows of the link: bytes, messages, compression, and where time went waiting.

Counted per block and per read or write of the socket, since the process started or RESETTCPSTATS. Two waits say which
side is slow. Sending waits while a block could go out and may not, because the window or the socket's queue is full:
the link or the Collector's disk. Acknowledging is the time from handing a block to the link until the Collector said
that it is synced: a round trip, the way over the link, and the sync.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pump.window import Window
from trails.clock import Clock
from trails.link.channel import Channel, Traffic


class LinkStats:
    """One pump's figures, over all its sessions. The window counts the blocks."""

    def __init__(self, clock: Clock, window: Window) -> None:
        self._clock = clock
        self._window = window
        self._channel: Channel | None = None
        self._past = Traffic()  # of sessions that are over
        self.reset()

    def reset(self) -> dict[str, Any]:
        """Begin anew."""
        self.since_us, self._since = self._clock.now_us(), self._clock.monotonic()
        self._before, self._blocks_before = self._traffic(), self._blocks()
        self._sessions, self._full_seconds = 0, 0.0
        self._full_since: float | None = None
        return {}

    def opened(self, channel: Channel) -> None:
        """A session begins."""
        self._channel = channel
        self._sessions += 1

    def closed(self) -> None:
        """It is over."""
        self._past, self._channel = self._traffic(), None
        self.room(free=True)

    def _traffic(self) -> Traffic:
        now = self._channel.traffic if self._channel is not None else Traffic()
        return self._past.plus(now)

    def _blocks(self) -> dict[str, int]:
        """Of the process's life."""
        done = self._window
        return {
            "blocks": done.sent, "raw_bytes": done.sent_raw, "stored_bytes": done.sent_stored,
            "acknowledged": done.acknowledged, "ack_wait_us": int(done.ack_seconds * 1e6),
        }  # fmt: skip

    def room(self, *, free: bool) -> None:
        """Whether another block may go out now."""
        now = self._clock.monotonic()
        if free and self._full_since is not None:
            self._full_seconds += now - self._full_since
            self._full_since = None
        elif not free and self._full_since is None:
            self._full_since = now

    def reply(self) -> dict[str, Any]:
        """The answer to GETTCPSTATS; times in microseconds."""
        now = self._clock.monotonic()
        full = self._full_seconds + (now - self._full_since if self._full_since is not None else 0.0)
        channel = self._channel
        local, remote, secure = channel.ends() if channel is not None else ("", "", False)
        return {
            "since_us": self.since_us, "elapsed_us": int((now - self._since) * 1e6), "sessions": self._sessions,
            "local": local, "remote": remote, "tls": secure, "unsent": channel.unsent if channel is not None else 0,
            **asdict(self._traffic().minus(self._before)),
            **{name: number - self._blocks_before[name] for name, number in self._blocks().items()},
            "send_wait_us": int(full * 1e6),
        }  # fmt: skip
