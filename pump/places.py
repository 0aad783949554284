"""Where a pump stands: what it has read and written, and how far behind that is.

Rule: only what the Collector said moves a place. What is known before the first WELCOME is what the last run has saved,
so that nothing more is purged than it let go.
"""

from __future__ import annotations

from pump.job import PumpJob
from pump.window import Sent
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.clock import Clock
from trails.format import BlockKind
from trails.fs import Fs
from trails.heartbeat import Entry, lag_of
from trails.link import wire
from trails.position import Position
from trails.reader import time_before

SOURCE = "GGS Log Trail"


class PumpPlaces:
    """The read and write checkpoints of one run."""

    def __init__(self, job: PumpJob, fs: Fs, clock: Clock) -> None:
        self._job = job
        self._fs = fs
        self._clock = clock
        self._trail_id = ""  # of the trail that the checkpoint's positions are in
        # Their files are named when somebody asks.
        self._startup: Place | None = None
        self._current: Place | None = None
        self._recovery: Place | None = None
        self.write: WriteCheckpoint | None = None
        self._last: tuple[int, int, int | None] | None = None
        """Of the last block that was acknowledged, what `lag_of` takes; None: nothing was yet."""
        self._last_at = clock.monotonic()  # when that was true

    def remember(self, last: Checkpoint) -> None:
        """Stand where the last run stood, unless an ALTER came since."""
        if last.extra.get("alter_no", 0) != self._job.alter_no:
            return
        self._trail_id = str(last.extra.get("trail_id", ""))
        self._startup = self._current = last.reads[0].current
        self._recovery = last.reads[0].recovery
        self.write = last.writes[0] if last.writes else None

    def welcomed(self, welcome: wire.Welcome, trail_id: bytes, needed: Position | None) -> None:
        """A session begins at the Collector's origin; `needed`: where its open transaction begins."""
        self._trail_id = trail_id.hex()
        origin, before = welcome.origin, self._current
        self._current = Place(origin.seqno, origin.rba, self._time_at(origin), before.csn if before else "")
        self._recovery = Place(needed.seqno, needed.rba) if needed else None
        self._startup = self._startup or self._current
        place, now_us = welcome.position, self._clock.now_us()
        self.write = WriteCheckpoint(place.seqno, place.rba, now_us, self._job.params.trail, "RMTTRAIL")

    def passed_on(self, sent: Sent, position: Position, skew_us: int | None) -> None:
        """This block, and all before it, is in the remote trail, which is synced up to `position`."""
        header, before, now_us = sent.header, self._current or Place(0, 0), self._clock.now_us()
        end, needed = sent.end, sent.needed
        self._current = Place(end.seqno, end.rba, header.time_us or before.time_us, header.csn or before.csn)
        self._recovery = Place(needed.seqno, needed.rba) if needed else None
        self.write = WriteCheckpoint(position.seqno, position.rba, now_us, self._job.params.trail, "RMTTRAIL")
        if header.kind == BlockKind.DATA:
            self._last, self._last_at = (now_us, header.time_us, skew_us), self._clock.monotonic()

    def nothing_waits(self) -> None:
        """At the local trail's end."""
        self._last, self._last_at = (0, 0, None), self._clock.monotonic()

    @property
    def current(self) -> Place | None:
        """What is read, and synced in the remote trail."""
        return self._current and self._job.named(self._current)

    def lag(self, *, at_end: bool) -> tuple[int | None, str]:
        """That of the last block acknowledged, or none at the trail's end, and all the time since; or why it's unknown.

        So it grows while nothing moves, whatever the reason.
        """
        us, why = lag_of(*self._last) if self._last is not None else (None, "")
        if at_end or us is None:
            return 0 if at_end else None, why
        return us + int((self._clock.monotonic() - self._last_at) * 1_000_000), why

    def checkpoint(self, lag_us: int | None, heartbeats: list[Entry]) -> Checkpoint | None:
        """None before anything is known."""
        if self.current is None or self._startup is None:
            return None
        recovery = self._recovery and self._job.named(self._recovery)
        read = ReadCheckpoint(SOURCE, self._job.named(self._startup), self.current, recovery)
        return Checkpoint(
            self._job.params.group, "EXTRACT", (read,), (self.write,) if self.write else (), lag_us=lag_us,
            extra={"trail_id": self._trail_id, "alter_no": self._job.alter_no, "heartbeats": heartbeats},
        )  # fmt: skip

    def _time_at(self, origin: Position) -> int | None:
        """As it was known, or as the trail's blocks before it say; None before its first record."""
        now = self._current
        if now is not None and (now.seqno, now.rba) == (origin.seqno, origin.rba) and now.time_us is not None:
            return now.time_us
        return time_before(self._fs, self._job.trail, origin)
