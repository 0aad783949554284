"""The Extract process: source -> assembler -> trail -> sync -> release.

Rule: the trail knows where to go on. The checkpoint file is for SHOWCH and for fast looks, never for recovery. The
source hears of a place only when everything before it is synced: `_sync` starts one sync at a time in the background,
notes the place that it covers, and releases it when it has ended. What comes meanwhile is gathered and goes out with
the next one.

ALTER beats the trail once: its number stands in the header of the file that this start begins, so a crash before that
file is in place obeys it again, and one after it does not (CW-19).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from extract.assemble import BLOCK_BYTES, Assembler, Project
from extract.heartbeat import Heartbeats
from extract.longtrans import COMMITTED, LongSetting, LongTransactions, OpenTransaction
from extract.source import Source
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.reader import last_header
from trails.record import Op, TableDef
from trails.runtime.clock import Clock
from trails.runtime.control import unknown
from trails.runtime.metrics import Counters
from trails.runtime.process import Process
from trails.runtime.stats import Stats
from trails.writer import Mark, TrailWriter, WriterIdentity

PLACE_SECONDS = 1.0

Say = Callable[[str], None]


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
    encrypt: bool = False
    long: LongSetting = field(default_factory=LongSetting)


class Extract(Process):
    """Captures one source into one trail."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        writer: TrailWriter,
        clock: Clock,
        heartbeats: Heartbeats | None = None,
        warn: Callable[..., None] = lambda _text, **_fields: None,
        tell: Say = lambda _text: None,
    ) -> None:
        """Use `start`, which recovers the trail first."""
        self._settings = settings
        self._source = source
        self._writer = writer
        self._clock = clock
        self._heartbeats = heartbeats
        self.stats: Stats = Stats(clock.now_us, settings.trail_text)
        mark = writer.last
        self._assembler = Assembler(
            writer,
            mark.origin,
            mark.csn,
            block_bytes=settings.block_bytes,
            count=self._count,
            project=settings.project,
            now_us=clock.now_us,
            heartbeats=heartbeats,
        )
        self._tell = tell
        self._known: set[str] = set()
        self._long = LongTransactions(source.outstanding, warn, clock, settings.long)
        self._covered: Position | None = None  # the sync in flight makes everything before this durable
        self._gathered_since = clock.monotonic()
        self._place_due = 0.0
        self._roll_due = False
        self._written_us: int | None = None
        self._at_end = False
        source.start(mark.origin, self._assembler)
        self._startup = source.place(mark.origin, None)

    @classmethod
    def start(
        cls,
        fs: Fs,
        settings: Settings,
        source: Source,
        clock: Clock,
        heartbeats: Heartbeats | None = None,
        warn: Callable[..., None] = lambda _text, **_fields: None,
        tell: Say = lambda _text: None,
    ) -> Extract:
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
            encrypt=settings.encrypt,
        )
        try:
            if heartbeats is not None:
                heartbeats.start()
            return cls(settings, source, writer, clock, heartbeats, warn, tell)
        except BaseException:
            writer.abandon()
            source.close()
            if heartbeats is not None:
                heartbeats.close()
            raise

    @staticmethod
    def _check_moved(fs: Fs, settings: Settings, source: Source, as_before: WriterIdentity) -> None:
        """The source is not quite what it was (a failover).

        The trail's files say so only when it was found to fit the trail's very end: said earlier, the next start would
        see nothing to check.
        """
        writer = TrailWriter.open(
            fs,
            settings.trail,
            as_before,
            max_bytes=settings.max_bytes,
            restart_open=True,
            encrypt=settings.encrypt,
        )
        try:
            source.fits(writer.last.origin)
        finally:
            writer.close()

    # --- the three verbs --------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One gulp from the source; then whatever is due: a block, a sync, a place."""
        if self._heartbeats is not None:
            self._heartbeats.tell()
        if self._roll_due:
            self._roll()
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
        self._long.look(now)
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
        if self._heartbeats is not None:
            self._heartbeats.close()
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

    def counters(self) -> Counters:
        """What was captured, and what was written."""
        done = self._assembler
        return Counters(done.operations, done.transactions, done.bytes_in, self._writer.written_bytes)

    # --- parts of a step --------------------------------------------------------------------------------------------

    def _roll(self) -> None:
        self._roll_due = False
        self._assembler.cut()
        self._writer.roll()

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
        if definition.full_name not in self._known:
            self._known.add(definition.full_name)
            key = ", ".join(column.name for column in definition.columns if column.key) or "none"
            self._tell(f"TABLE resolved: TABLE {definition.full_name}. Key columns: {key}.")
        self.stats.count(definition.full_name, definition.full_name, op, n)

    # --- telling ----------------------------------------------------------------------------------------------------

    def command(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """See Process."""
        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "STATUS": self._status,
            "GETLAG": self._lag,
            "LOGEND": self._logend,
            "ROLLOVER": self._rollover,
            "METRICS": self._measures,
            "SHOWTRANS": lambda: self._long.reply(args, self._receiving),
            "WARNLONGTRANS": lambda: self._long.set(args),
        }
        if verb not in answers:
            raise unknown("an Extract", verb, answers)
        return answers[verb]()

    @property
    def _receiving(self) -> OpenTransaction | None:
        """The transaction of which the source has handed over a part: committed there, and not yet whole here."""
        found, items = self._assembler.open_transaction, self._assembler.in_transaction
        return found and OpenTransaction(xid=found[1], csn=found[0], status=COMMITTED, items=items or 0)

    @property
    def _at_eof(self) -> bool:
        """Nothing came at the last look, and no log is known to wait: a server that decodes sends nothing either."""
        idle = self._at_end and not self._source.state() and self._assembler.is_empty
        return idle and not self._source.measures().get("backlog_bytes")

    def _status(self) -> dict[str, Any]:
        read, write = self._source.read_place(), self._write_checkpoint()
        return {
            "status": self._source.state() or ("At EOF" if self._at_eof else "Processing data"),
            "read": _shown(read),
            "write": [{"seqno": write.seqno, "rba": write.rba, "time_us": write.time_us, "trail": write.trail}],
            "in_transaction": self._assembler.in_transaction,
        }

    def _lag(self) -> dict[str, Any]:
        lag, why = self._lag_us(), "the database's clock was not compared with this host's yet"
        unknown = lag is None and self._assembler.time_us
        return {"lag_us": lag, "lag_why": why if unknown else "", "at_eof": self._at_eof, "heartbeats": self._arrivals}

    def _lag_us(self) -> int | None:
        return 0 if self._at_eof else self._behind_us()

    def _behind_us(self) -> int | None:
        """By the source's clock, which the commit times are of; not known while that was not compared with ours."""
        ahead = self._heartbeats.ahead_us if self._heartbeats is not None else 0
        if not self._assembler.time_us or ahead is None:
            return None
        return max(0, self._clock.now_us() + ahead - self._assembler.time_us)

    @property
    def _arrivals(self) -> list[dict[str, Any]]:
        return self._heartbeats.arrivals.entries() if self._heartbeats is not None else []

    def _measures(self) -> dict[str, Any]:
        """What METRICS can't know of by itself. `newest_us`: commit time of the newest that readers find in the trail.

        Log that waits makes the source's last word old, whether or not anything in it is captured.
        """
        found = self._source.measures()
        waiting, write, newest = found.pop("backlog_bytes", None), self._write_checkpoint(), self._assembler.time_us
        offset = self._heartbeats.ahead_us if self._heartbeats is not None else None
        idle = not waiting if waiting is not None else self._at_eof
        return {
            "read": _shown(self._source.read_place()),
            "write": {"seqno": write.seqno, "rba": write.rba, "time_us": write.time_us, "trail": write.trail},
            "backlog_bytes": 0 if waiting is None and idle else waiting,
            "backlog_us": 0 if idle else self._behind_us(),
            "extra": {"state": self._source.state(), "newest_us": newest or None, "clock_offset_us": offset, **found},
        }

    def _logend(self) -> dict[str, Any]:
        return {"logend": self._at_eof}

    def _rollover(self) -> dict[str, Any]:
        """Not here: an error of the trail must end the process, and none that comes of a request does."""
        self._roll_due = True
        return {}

    def _checkpoint(self) -> Checkpoint:
        # The source is asked to go on at the origin of the last complete transaction: that is the oldest place needed.
        recovery = self._source.place(self._writer.last.origin, self._assembler.time_us or None)
        read = ReadCheckpoint(self._source.title, self._startup, self._source.read_place(), recovery)
        return Checkpoint(
            self._settings.group, "EXTRACT", (read,), (self._write_checkpoint(),), lag_us=self._lag_us(),
            extra={"heartbeats": self._arrivals},
        )  # fmt: skip

    def _write_checkpoint(self) -> WriteCheckpoint:
        place = self._writer.durable
        return WriteCheckpoint(place.seqno, place.rba, self._written_us, self._settings.trail_text, "EXTTRAIL")


def _shown(place: Place) -> dict[str, Any]:
    return {"seqno": place.seqno, "rba": place.rba, "time_us": place.time_us, "csn": place.csn, "file": place.file}
