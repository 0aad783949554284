"""The Extract process: source -> assembler -> trail -> sync -> release.

Rule: the trail knows where to go on. The checkpoint file is for SHOWCH and for fast looks, never for recovery. The
source hears of a place only when everything before it is synced: `_sync` starts one sync at a time in the background,
notes the place that it covers, and releases it when it has ended. What comes meanwhile is gathered and goes out with
the next one.

ALTER beats the trail once: its number stands in the header of the file that this start begins, so a crash before that
file is in place obeys it again, and one after it does not (CW-19).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from extract.assemble import BLOCK_BYTES, Assembler, Project
from extract.source import Source
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.errors import OperatorError
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.reader import last_header
from trails.record import Op, TableDef
from trails.runtime.clock import Clock
from trails.runtime.process import Process
from trails.runtime.stats import Stats
from trails.writer import Mark, TrailWriter, WriterIdentity

PLACE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What an Extract is told by its registration and parameters.

    `trail_text` is the trail as the operator wrote it; `project`: where TABLE has options for columns.
    """

    group: str
    home_id: str
    host: str
    trail: TrailName
    trail_text: str
    max_bytes: int = 100 << 20
    alter_no: int = 0
    alter: tuple[tuple[str, Any], ...] = ()
    flush_seconds: float = 0.1
    block_bytes: int = BLOCK_BYTES
    project: Project | None = None


class Extract(Process):
    """Captures one source into one trail."""

    def __init__(self, settings: Settings, source: Source, writer: TrailWriter, clock: Clock) -> None:
        """Use `start`, which recovers the trail first."""
        self._settings = settings
        self._source = source
        self._writer = writer
        self._clock = clock
        self._stats = Stats(clock.now_us(), settings.trail_text)
        mark = writer.last
        self._assembler = Assembler(
            writer,
            mark.origin,
            mark.csn,
            block_bytes=settings.block_bytes,
            count=self._count,
            project=settings.project,
            now_us=clock.now_us,
        )
        self._covered: Position | None = None  # the sync in flight makes everything before this durable
        self._gathered_since = clock.monotonic()
        self._place_due = 0.0
        self._written_us: int | None = None
        self._at_end = False
        source.start(mark.origin, self._assembler)
        self._startup = source.place(mark.origin, None)

    @classmethod
    def start(cls, fs: Fs, settings: Settings, source: Source, clock: Clock) -> Extract:
        """Look at the trail, look at the source, refuse what does not fit, recover, and begin."""
        header = last_header(fs, settings.trail)
        found = source.identify(None if header is None else header.source)
        begin = None if header else Mark(origin=source.first_origin())
        if settings.alter_no > (header.alter if header else 0) and set(dict(settings.alter)) - {"etrollover"}:
            # The CSN stays: it is that of the last transaction in the trail, and readers compare with it.
            begin = replace(
                begin or Mark(csn=header.last_csn if header else ""), origin=source.origin_of(dict(settings.alter))
            )
        identity = WriterIdentity(settings.home_id, settings.group, settings.host, found)
        if header is not None and header.source != found:
            cls._check_moved(fs, settings, source, replace(identity, source=dict(header.source)))
        writer = TrailWriter.open(
            fs,
            settings.trail,
            identity,
            max_bytes=settings.max_bytes,
            alter=settings.alter_no,
            start=begin,
            restart_open=True,
        )
        try:
            return cls(settings, source, writer, clock)
        except BaseException:
            writer.abandon()
            source.close()
            raise

    @staticmethod
    def _check_moved(fs: Fs, settings: Settings, source: Source, as_before: WriterIdentity) -> None:
        """The source is not quite what it was (a failover).

        The trail's files say so only when it was found to fit the trail's very end: said earlier, the next start would
        see nothing to check.
        """
        writer = TrailWriter.open(fs, settings.trail, as_before, max_bytes=settings.max_bytes, restart_open=True)
        try:
            source.fits(writer.last.origin)
        finally:
            writer.close()

    # --- the three verbs --------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One gulp from the source; then whatever is due: a block, a sync, a place."""
        more = self._source.poll()
        self._at_end = not more
        now = self._clock.monotonic()
        if not self._assembler.has_whole:
            self._gathered_since = now
        elif now - self._gathered_since >= self._settings.flush_seconds or not (more or self._writer.syncing):
            # While a sync is in flight, what comes is gathered: it can't be made durable sooner than the next one.
            self._assembler.cut()
            self._gathered_since = now
        self._append_place(now)
        self._sync()
        return more

    def flush(self) -> Checkpoint:
        """Everything handed over and complete is made durable and released."""
        self._assembler.cut()
        self._writer.sync()
        self._covered = None
        self._source.release(self._writer.last.origin)
        return self._checkpoint()

    def close(self) -> None:
        """Let go of source and trail."""
        try:
            self._source.close()
        finally:
            self._writer.close()

    def waits(self) -> Sequence[int]:
        """The source's socket, and the end of a sync."""
        syncing = [self._writer.fileno()] if self._covered is not None else []
        return [*self._source.waits(), *syncing]

    def idle_seconds(self) -> float:
        """Until the source's timer, the next place, or the end of the time to gather."""
        waiting = self._source.idle_seconds()
        if self._assembler.has_whole:
            return min(waiting, self._settings.flush_seconds)
        return min(waiting, PLACE_SECONDS)

    # --- parts of a step --------------------------------------------------------------------------------------------

    def _append_place(self, now: float) -> None:
        """Where nothing captured is pending, the source's own place goes into the trail, and is acknowledged then."""
        if now < self._place_due or not self._assembler.is_empty or self._assembler.origin <= self._writer.last.origin:
            return
        self._writer.append_place(self._assembler.origin, self._assembler.time_us)
        self._place_due = now + PLACE_SECONDS

    def _sync(self) -> None:
        """Release what a sync has made durable; begin the next one if there is anything to sync."""
        if self._covered is not None and (self._writer.sync_done() or not self._writer.syncing):
            # Not syncing: a rollover has waited for it.
            self._source.release(self._covered)
            self._covered = None
        if self._covered is None and self._writer.sync_soon():
            self._covered = self._writer.last.origin
            self._written_us = self._clock.now_us()

    def _count(self, definition: TableDef, op: Op, n: int) -> None:
        self._stats.count(definition.full_name, definition.full_name, op, n)

    # --- telling ----------------------------------------------------------------------------------------------------

    def command(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002  -- the protocol's signature
        """STATUS, STATS, GETLAG, LOGEND, ROLLOVER."""
        answer = {
            "STATUS": self._status,
            "STATS": self._stats.to_reply,
            "GETLAG": self._lag,
            "LOGEND": self._logend,
            "ROLLOVER": self._rollover,
        }.get(verb)
        if answer is None:
            raise OperatorError(
                f"an Extract has no command {verb}", hint="Use STATUS, STATS, GETLAG, LOGEND, REPORT, ROLLOVER or STOP"
            )
        return answer()

    @property
    def _at_eof(self) -> bool:
        return self._at_end and not self._source.state() and self._assembler.is_empty

    def _status(self) -> dict[str, Any]:
        read, write = self._source.read_place(), self._write_checkpoint()
        return {
            "status": self._source.state() or ("At EOF" if self._at_eof else "Processing data"),
            "read": _shown(read),
            "write": [{"seqno": write.seqno, "rba": write.rba, "time_us": write.time_us, "trail": write.trail}],
            "in_transaction": self._assembler.in_transaction,
        }

    def _lag(self) -> dict[str, Any]:
        return {"lag_us": self._lag_us(), "at_eof": self._at_eof}

    def _lag_us(self) -> int | None:
        if self._at_eof:
            return 0
        return max(0, self._clock.now_us() - self._assembler.time_us) if self._assembler.time_us else None

    def _logend(self) -> dict[str, Any]:
        return {"logend": self._at_eof}

    def _rollover(self) -> dict[str, Any]:
        self._assembler.cut()
        self._writer.roll()
        return {"seqno": self._writer.seqno}

    def _checkpoint(self) -> Checkpoint:
        # The source is asked to go on at the origin of the last complete transaction: that is the oldest place needed.
        recovery = self._source.place(self._writer.last.origin, self._assembler.time_us or None)
        read = ReadCheckpoint(self._source.title, self._startup, self._source.read_place(), recovery)
        return Checkpoint(self._settings.group, "EXTRACT", (read,), (self._write_checkpoint(),), lag_us=self._lag_us())

    def _write_checkpoint(self) -> WriteCheckpoint:
        place = self._writer.durable
        return WriteCheckpoint(place.seqno, place.rba, self._written_us, self._settings.trail_text, "EXTTRAIL")


def _shown(place: Place) -> dict[str, Any]:
    return {"seqno": place.seqno, "rba": place.rba, "time_us": place.time_us, "csn": place.csn, "file": place.file}
