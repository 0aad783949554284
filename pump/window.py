"""What is in flight: blocks that were sent and are not acknowledged yet, and the counts of those that are.

Rule: a block counts once, when the Collector says that it is synced, however often the link was lost before that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from trails.format import BlockHeader
from trails.heartbeat import Beat
from trails.position import Position
from trails.record import Op

# Blocks queued in our own memory: enough to keep the socket busy, no more.
QUEUE_BYTES = 2 << 20

Counts = Sequence[tuple[str, Op | str, int]]
"""Changes of one block by table and kind, for STATS."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One block in flight. `needed`: where reading must begin to resume after it, if that is before its end."""

    end: Position
    size: int
    header: BlockHeader
    needed: Position | None
    beat: Beat | None
    at: float
    counts: Counts


class Window:
    """The blocks in flight, of at most `size` bytes or one block."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.bytes = 0
        self._sent: deque[Sent] = deque()
        self.sent = self.sent_raw = self.sent_stored = 0
        """Since the process started: blocks handed to the link, their bytes before and after compression."""
        self.changes = self.transactions = self.synced = self.acknowledged = 0
        """Changes, transactions, bytes and blocks that were acknowledged."""
        self.ack_seconds = 0.0
        """How long these blocks took, all together."""

    @property
    def is_empty(self) -> bool:
        """Whether everything that was sent is acknowledged."""
        return not self._sent

    def has_room(self, unsent: int) -> bool:
        """Whether another block may go out, with so many bytes in the socket's queue. One block always may."""
        return not self._sent or (unsent < QUEUE_BYTES and self.bytes < self.size)

    def add(self, sent: Sent) -> None:
        """A block was handed to the link."""
        self._sent.append(sent)
        self.bytes += sent.size
        self.sent += 1
        self.sent_raw += sent.header.raw_len
        self.sent_stored += sent.header.payload_len

    def settle(self, origin: Position, now: float) -> list[Sent]:
        """The blocks up to `origin`, which are synced: they are counted and no longer in flight."""
        settled = []
        while self._sent and self._sent[0].end <= origin:
            sent = self._sent.popleft()
            settled.append(sent)
            self.bytes -= sent.size
            self.synced += sent.size
            self.changes += sent.header.changes
            self.transactions += 0 if sent.header.is_heartbeat else sent.header.transactions
            self.acknowledged += 1
            self.ack_seconds += now - sent.at
        return settled

    def clear(self) -> None:
        """A session begins: what of the last one was not settled is read and sent again."""
        self._sent.clear()
        self.bytes = 0
