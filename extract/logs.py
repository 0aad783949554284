"""Sources that send their log: a connection through which the database pushes what was committed, in its order.

    connect ──> read, read, ... ──> lost: abandon, hang up, pause ──> connect again ...
                     └────────────> renew: hang up ─────────────────> connect again, at once

Everything happens on the main loop: `poll` connects or reads, a bounded piece each time. A loss is the database's
absence (absence.py): it is told once, tried again with growing pauses, and given up after RECONNECTSECS. Only a
connection that held for STEADY_SECONDS ends it: one that comes up and breaks is the same loss.

To add such a database: inherit from LogSource, fill in `connect`, `read`, `hang_up` and `fileno`, and write the rest of
extract.source.Source, which needs no stream: identify, first_origin, origin_of, fits, place, facts, outstanding.

Rule: what is told to the database is `released` and nothing else, from `read` or from `close`.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from typing import Final

from extract.absence import Absence
from extract.retention import RetentionGuard
from extract.source import Say, Sink
from trails.checkpoint import Place
from trails.errors import AwayError
from trails.position import START, Position

STEADY_SECONDS: Final = 5.0
"""A connection that held so long was back; the loss of one that did not goes on with the time and pause of before."""


class LogSource(ABC):
    """Inherit from it. `say` takes one line for the operator: lost and regained connections."""

    def __init__(self, reconnect_seconds: float, say: Say, guard: RetentionGuard) -> None:
        self._absence = Absence(reconnect_seconds, say)
        self._guard = guard
        self._sink: Sink | None = None
        self._connected_at: float | None = None
        self._retry_at = 0.0
        self.released: Position = START
        """Everything before it is durable: the database may forget that, and no more."""

    # --- what a database fills in -------------------------------------------------------------------------------------

    @abstractmethod
    def connect(self, sink: Sink, *, again: bool) -> None:
        """Begin to read just behind `sink.origin`, with `sink.state`, by the rules of `Source.start`.

        The first time `identify` has checked the database; `again`: after a loss, so check it first. Raises AwayError
        where waiting can help: then it is called again. Raises AnewError where the process must begin anew.
        """

    @abstractmethod
    def read(self, sink: Sink, now: float) -> bool:
        """Hand over what is here, a bounded piece, and tell the database what is released. True: there is more.

        Raises AwayError where the connection is lost. May call `renew`.
        """

    @abstractmethod
    def hang_up(self) -> None:
        """Let go of the connection, also of a broken one or of none. Never raises."""

    @abstractmethod
    def fileno(self) -> int:
        """Readable when there is something to read; asked while connected."""

    def due(self) -> float:
        """The moment at which `read` must be called, readable or not; asked while connected."""
        return math.inf

    @abstractmethod
    def place(self, origin: Position, time_us: int | None) -> Place:
        """Of extract.source.Source."""

    # --- what is the same for all -------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether changes can come."""
        return self._connected_at is not None

    @property
    def waits_for(self) -> str:
        """As `Source.waits_for`."""
        return self._absence.waits_for

    def start(self, origin: Position, state: str, sink: Sink) -> None:  # noqa: ARG002  -- the sink has it too
        """A connection that the database still thinks alive is waited for like a lost one."""
        self._sink, self.released = sink, origin
        try:
            self._connect(sink, again=False)
        except AwayError as error:
            self._lost(error, sink)

    def poll(self) -> bool:
        sink, now = self._sink, time.monotonic()
        assert sink is not None
        self._guard.judge(now)
        try:
            if self._connected_at is not None:
                return self.read(sink, now)
            if now < self._retry_at:
                return False
            self._connect(sink, again=True)
        except AwayError as error:
            self._lost(error, sink)
            return False
        self._absence.connected(self.place(sink.origin, None).csn)
        return True

    def _connect(self, sink: Sink, *, again: bool) -> None:
        sink.cache.clear()  # the new session makes its own
        self.connect(sink, again=again)
        self._connected_at = time.monotonic()

    def _lost(self, error: AwayError, sink: Sink) -> None:
        """Drop what is open, and try again until the time allowed is over."""
        now = time.monotonic()
        if self._connected_at is not None and now - self._connected_at > STEADY_SECONDS:
            self._absence.over()
        sink.abandon()
        self._hang_up()
        self._retry_at = self._absence.lost(error, now)

    def renew(self, reason: str) -> None:
        """End the session, which did its work; the next poll begins another, behind the last transaction."""
        self._hang_up()
        self._absence.renewed(reason)
        self._retry_at = 0.0

    def _hang_up(self) -> None:
        self._connected_at = None
        self.hang_up()

    def release(self, origin: Position) -> None:
        """The database is told soon, not at once: it only matters for how much log it keeps."""
        self.released = max(self.released, origin)

    def waits(self) -> list[int]:
        return [self.fileno()] if self.connected else []

    def idle_seconds(self) -> float:
        due = self.due() if self.connected else self._retry_at
        return max(0.0, due - time.monotonic())

    def close(self) -> None:
        self._hang_up()
