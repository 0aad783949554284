"""How far a group's trail is durable: for sources whose database is not told, so that nobody but the trail knows.

Rule: the trail is only read, up to its durable end, whether or not its writer runs.
"""

from __future__ import annotations

from contextlib import closing

from extract.source import Durable
from trails.codec import state_of
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.reader import BlockReader, last_header


class DurableEnd:
    """Each call looks again, and reads only the headers of what came since."""

    def __init__(self, fs: Fs, trail: TrailName) -> None:
        self._fs = fs
        self._trail = trail
        self._at: Position | None = None
        self._found: Durable | None = None

    def __call__(self) -> Durable | None:
        """None where the trail has no file, so nothing was captured yet."""
        if self._found is None and not self._begin():
            return None
        with closing(BlockReader(self._fs, self._trail, self._at)) as reader:
            while (block := reader.read(payload=False)) is not None:
                assert self._found is not None
                state = self._state(block.start) if block.header.has_state else self._found.state
                self._found = Durable(block.header.origin, state, block.header.time_us or self._found.time_us)
            self._at = reader.position or self._at
        return self._found

    def _begin(self) -> bool:
        header = last_header(self._fs, self._trail)
        if header is None:
            return False
        self._at = Position(header.seqno, 0)
        self._found = Durable(header.last_origin, header.last_state, None)
        return True

    def _state(self, start: Position) -> str:
        with closing(BlockReader(self._fs, self._trail, start)) as reader:
            block = reader.read()
        assert block is not None
        return state_of(block.payload, f"{self._trail}, {start}")
