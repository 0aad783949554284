"""The Extract process: source -> assembler -> trail -> sync -> release.

Rule: the trail knows where to go on. The checkpoint file is for SHOWCH and for fast looks, never for recovery. The
source hears of a place only when everything before it is synced: `_sync` starts one sync at a time in the background,
notes the place that it covers, and releases it when it has ended. What comes meanwhile is gathered and goes out with
the next one.

ALTER beats the trail once: its number stands in the header of the file that this start begins, so a crash before that
file is in place obeys it again, and one after it does not (CW-19).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from extract import reshaped
from extract.assemble import BLOCK_BYTES, Assembler
from extract.gathering import BetweenSyncs
from extract.heartbeat import Heartbeats, Owner
from extract.longtrans import COMMITTED, LongSetting, LongTransactions, OpenTransaction
from extract.params import FLUSH_CSECS
from extract.since import Since
from extract.source import Source, SourceFacts
from trails.checkpoint import Checkpoint, ReadCheckpoint, WriteCheckpoint
from trails.clock import Clock
from trails.columns import Project
from trails.errors import MismatchError
from trails.format import FileHeader
from trails.fs import Fs
from trails.hole import Hole
from trails.keeping import lost_text, read_last
from trails.position import START, Position, TrailName
from trails.reader import last_header, time_before
from trails.record import TableDef
from trails.recovery import Mark
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.process.group import GroupProcess, Request
from trails.runtime.report.answers import LagAnswer, MetricsAnswer, PlaceAnswer, StatusAnswer, WriteAnswer
from trails.runtime.report.metrics import Counters
from trails.runtime.report.stats import Stats
from trails.writer import TrailWriter, WriterIdentity

PLACE_SECONDS = 1.0
RECOVERY = "docs/recovery.md#missing-trail-file"
ANEW = "Give the source a group and trail of its own; copy the tables anew"
FAR_BLOCKS = 50_000
"""No start looks through more headers than these for a time that only SHOWCH shows."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What an Extract is told by its registration and parameters. `start`: the order of the last START, if it holds.

    `trail_text` is the trail as the operator wrote it; `project`: where TABLE has options for columns. For SHOWCH's
    Startup: `registered_us`, when the source's first place was made, and `times` of places that were saved, by CSN.
    """

    group: str
    home_id: str
    host: str
    trail: TrailName
    trail_text: str
    max_bytes: int = 100 << 20
    alter_no: int = 0
    alter: tuple[tuple[str, Any], ...] = ()
    obeyed: int = 0
    start_no: int = 0
    start: tuple[tuple[str, Any], ...] = ()
    flush_seconds: float = FLUSH_CSECS / 100
    block_bytes: int = BLOCK_BYTES
    project: Project | None = None
    encrypt: bool = False
    long: LongSetting = field(default_factory=LongSetting)
    registered_us: int | None = None
    times: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Ears:
    """Who hears what an Extract has to say.

    `long`: of a transaction that is open for long, with fields. `hole`: the one that obeying an ALTER or START has made
    in the trail. `obeyed`: the ALTER's number, once the trail's header has it and before anything is captured. `shape`:
    of a table whose shape has changed; None where changes of shape are captured.
    """

    long: Callable[..., None] = lambda _text, **_fields: None
    detail: Say = lambda _text: None
    hole: Callable[[Hole], None] = lambda _hole: None
    obeyed: Callable[[int], None] = lambda _number: None
    shape: Say | None = None


class Extract(GroupProcess):
    """Captures one source into one trail."""

    called = "an Extract"

    def __init__(
        self,
        settings: Settings,
        source: Source,
        writer: TrailWriter,
        clock: Clock,
        heartbeats: Heartbeats,
        ears: Ears,
        since: Since | None,
        gathering: BetweenSyncs,
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
            writer, mark.origin, mark.csn, mark.state, block_bytes=settings.block_bytes, stats=self.stats,
            resolved=self._resolved, reshaped=self._reshaped, project=settings.project, now_us=clock.now_us,
            heartbeats=heartbeats,
            leaves_out=since.leaves_out if since is not None and since.leaves_out(mark.csn) else None,
        )  # fmt: skip
        self._ears = ears
        self._gathering = gathering
        self._gathers = 0.0  # for so many seconds from the last step on
        self._left_out = 0
        self._long = LongTransactions(source.outstanding, ears.long, clock, settings.long)
        self._covered: Position | None = None  # the sync in flight makes everything before this durable
        self._gathered_since = clock.monotonic()
        self._place_due = 0.0
        self._look_due = 0.0
        self._roll_due = False
        self._written_us: int | None = clock.now_us()  # the new file's header
        self._at_end = False
        source.start(mark.origin, mark.state, self._assembler)
        begun = [one.recovery for one in source.facts(mark.origin, mark.state, None).threads]
        # By thread; a log without threads has one place, and that is the origin.
        self._startup = {place.thread: place for place in (*begun, source.place(mark.origin, None))}
        self._startup_us: int | None = None

    @classmethod
    def start(
        cls,
        fs: Fs,
        settings: Settings,
        source: Source,
        clock: Clock,
        heartbeats: Heartbeats | None = None,
        ears: Ears | None = None,
    ) -> Extract:
        """Look at the trail, look at the source, refuse what does not fit, recover, and begin."""
        ears = ears or Ears()
        heartbeats = heartbeats or Heartbeats(HeartbeatTable(), Owner(settings.home_id, settings.group), clock)
        header = last_header(fs, settings.trail)
        found = source.identify(None if header is None else header.source)
        if header is None:
            cls._check_not_lost(fs, settings)
        begin = None if header else Mark(origin=source.first_origin())
        if settings.alter_no > (header.alter if header else 0) and set(dict(settings.alter)) - {"etrollover"}:
            # The CSN stays: it is that of the last transaction in the trail, and readers compare with it.
            begin = replace(
                begin or Mark(csn=header.last_csn if header else ""), origin=source.origin_of(dict(settings.alter))
            )
        since = cls._since(settings, source, header)
        ordered = since if settings.start_no > (header.alter if header else 0) else None
        if ordered is not None and begin is not None and header is None:
            ordered.check_new(settings.group, source.place(begin.origin, None).csn)
        identity = WriterIdentity(settings.home_id, settings.group, settings.host, found)
        if header is not None and header.source != found:
            cls._check_moved(fs, settings, source, replace(identity, source=dict(header.source)))
        writer = TrailWriter.open(
            fs, settings.trail, identity, max_bytes=settings.max_bytes, alter=max(settings.alter_no, settings.start_no),
            start=begin, restart_open=True, encrypt=settings.encrypt,
            hole=lambda found: _hole(settings, source, found, begin, ordered),
        )  # fmt: skip
        if writer.hole is not None:
            ears.hole(writer.hole)
        try:
            if settings.alter_no > settings.obeyed:
                ears.obeyed(settings.alter_no)
            heartbeats.heart.start()
            made = cls(
                settings, source, writer, clock, heartbeats, ears, since, BetweenSyncs(fs.host, settings.flush_seconds)
            )
            made.date_startup(fs)
            return made
        except BaseException as error:
            if isinstance(error, MismatchError) and writer.lost:
                error.message = f"{lost_text(settings.trail, writer.lost)}. {error.message}"
                error.hint = "Put it back; else see docs/recovery.md#deleted-under-writer"
            writer.abandon()
            source.close()
            heartbeats.heart.close()
            raise

    @staticmethod
    def _since(settings: Settings, source: Source, header: FileHeader | None) -> Since | None:
        """What START ordered, in the form of the source's CSNs."""
        if not settings.start:
            return None
        last = header.last_csn if header else ""
        return Since.of(dict(settings.start), last or source.place(source.first_origin(), None).csn)

    @staticmethod
    def _check_not_lost(fs: Fs, settings: Settings) -> None:
        """All files are gone: where the source goes on lies behind what they held, unless an ALTER says where."""
        known = read_last(fs, settings.trail)
        if known is not None and settings.alter_no <= known.alter:
            raise MismatchError(
                f"{lost_text(settings.trail, (0, known.seqno))}, and the source no longer has what they held",
                hint=f"Put them back; else see {RECOVERY}",
            )
        if settings.alter_no <= settings.obeyed and set(dict(settings.alter)) - {"etrollover"}:
            raise MismatchError(
                f"{settings.trail_text} has no file left, and the ALTER that says where it begins was obeyed before: "
                "what was captured since is gone",
                hint=f"Put the files back; else see {RECOVERY}",
            )

    @staticmethod
    def _check_moved(fs: Fs, settings: Settings, source: Source, as_before: WriterIdentity) -> None:
        """The source is not quite what it was (a failover).

        The trail's files say so only when it was found to fit the trail's very end: said earlier, the next start would
        see nothing to check.
        """
        writer = TrailWriter.open(
            fs, settings.trail, as_before, max_bytes=settings.max_bytes, restart_open=True, encrypt=settings.encrypt,
        )  # fmt: skip
        try:
            source.fits(writer.last.origin, writer.last.state)
        finally:
            writer.close()

    @property
    def lost(self) -> str:
        """Which files of the trail were found deleted by this start; empty if none were."""
        return lost_text(self._settings.trail, self._writer.lost) if self._writer.lost else ""

    def date_startup(self, fs: Fs) -> None:
        """The time of the places where this run begins: as it was saved, or as the trail's last blocks say."""
        mark, saved = self._writer.last, dict(self._settings.times)
        at = saved.get(self._source.place(mark.origin, None).csn)
        if at is None and mark.origin == self._source.first_origin():
            at = self._settings.registered_us
        elif at is None:
            at = time_before(fs, self._settings.trail, self._writer.durable, FAR_BLOCKS)
        self._startup_us = at
        self._startup = {n: replace(place, time_us=saved.get(place.csn, at)) for n, place in self._startup.items()}

    # --- the three verbs --------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One gulp from the source; then whatever is due: a block, a sync, a place."""
        self._heartbeats.heart.tell()
        if self._roll_due:
            self._roll()
        more = self._source.poll()
        self._at_end = not more
        now = self._clock.monotonic()
        # While a sync is in flight, what comes is gathered: it can't be made durable sooner than the next one.
        gathers = more or self._writer.syncing is not None
        if not self._assembler.has_whole:
            self._gathered_since = now
        elif not gathers or now - self._gathered_since >= self._settings.flush_seconds:
            self._assembler.cut()
            self._gathered_since = now
        self._append_place(now)
        self._sync()
        if now >= self._look_due:
            self._look_due = now + PLACE_SECONDS
            self._writer.look()
            if self._assembler.left_out != self._left_out:
                self._left_out = self._assembler.left_out
                self._ears.detail(f"START's ATCSN or AFTERCSN has left out {self._left_out} transactions.")
        self._long.look(now)
        self._gathers = 0.0 if more else self._gathering.seconds
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
        self._heartbeats.heart.close()
        try:
            self._source.close()
        finally:
            self._writer.close()

    def waits(self) -> Sequence[int]:
        """The source's socket, but while it is left alone, and the end of a sync."""
        syncing = [self._writer.fileno()] if self._covered is not None else []
        return syncing if self._gathers else [*self._source.waits(), *syncing]

    def idle_seconds(self) -> float:
        """Until the source's timer, the next place, or the end of the time to gather."""
        if self._gathers:
            return self._gathers
        waiting = self._source.idle_seconds()
        if self._assembler.has_whole:
            return min(waiting, self._settings.flush_seconds)
        return min(waiting, PLACE_SECONDS)

    def waits_for(self) -> str:
        """The source, while the connection to it is lost."""
        return self._source.waits_for if self._at_end else ""

    def _facts(self) -> SourceFacts:
        """What the source tells, with its places as of the trail's last complete transaction."""
        mark = self._writer.last
        return self._source.facts(mark.origin, mark.state, self._assembler.time_us or self._startup_us)

    def counters(self) -> Counters:
        """What was captured, and what was written."""
        done = self._assembler
        return Counters(done.operations, done.transactions, done.bytes_in, self._writer.written_bytes)

    def before_file(self, ask: Callable[[], None], /) -> None:
        self._writer.before_file = ask

    # --- parts of a step --------------------------------------------------------------------------------------------

    def _roll(self) -> None:
        self._roll_due = False
        self._assembler.cut()
        self._writer.roll()

    def _append_place(self, now: float) -> None:
        """Where nothing captured is pending, the source's own place goes into the trail, and is acknowledged then."""
        if now >= self._place_due and self._assembler.put_place():
            self._place_due = now + PLACE_SECONDS

    def _sync(self) -> None:
        """Release what a sync has made durable; begin the next one if there is anything to sync."""
        if self._writer.syncing is not None:
            self._writer.sync_done()
        self._settle()
        if self._covered is None and self._writer.sync_soon():
            self._covered = self._writer.last.origin
            self._written_us = self._clock.now_us()
            self._settle()

    def _settle(self) -> None:
        """No sync is in flight: it has ended, was done at once, or a rollover has waited for it."""
        if self._covered is not None and self._writer.syncing is None:
            self._source.release(self._covered)
            self._covered = None
            self._gathering.synced(self._assembler.bytes_in)

    def _resolved(self, definition: TableDef) -> None:
        key = ", ".join(column.name for column in definition.columns if column.key) or "none"
        self._ears.detail(f"TABLE resolved: TABLE {definition.full_name}. Key columns: {key}.")

    def _reshaped(self, old: TableDef, new: TableDef, csn: str) -> None:
        if self._ears.shape is not None and (said := reshaped.text(old, new, csn)):
            self._ears.shape(said)

    # --- telling ----------------------------------------------------------------------------------------------------

    def requests(self) -> Mapping[str, Request]:
        return {
            "ROLLOVER": self._rollover,
            "SHOWTRANS": lambda args: self._long.reply(args, self._receiving),
            "WARNLONGTRANS": self._long.set,
        }

    @property
    def _receiving(self) -> OpenTransaction | None:
        """The transaction of which the source has handed over a part: committed there, and not yet whole here."""
        found, items = self._assembler.open_transaction, self._assembler.in_transaction
        return found and OpenTransaction(xid=found[1], csn=found[0], status=COMMITTED, items=items or 0)

    def _at_eof(self, facts: SourceFacts) -> bool:
        """Nothing came at the last look, and no log is known to wait: a server that decodes sends nothing either."""
        idle = self._at_end and not self._source.waits_for and self._assembler.is_empty
        return idle and not facts.measures.get("backlog_bytes")

    def status(self) -> StatusAnswer:
        facts = self._facts()
        return StatusAnswer(
            self._source.waits_for or ("At EOF" if self._at_eof(facts) else "Processing data"),
            read=PlaceAnswer.of(facts.read), write=(WriteAnswer.of(self._write_checkpoint()),),
            in_transaction=self._assembler.in_transaction,
        )  # fmt: skip

    def lag(self) -> LagAnswer:
        facts = self._facts()
        lag, why = self._lag_us(facts), "the database's clock was not compared with this host's yet"
        unknown = lag is None and self._assembler.time_us
        return LagAnswer(lag, why if unknown else "", self._at_eof(facts), self._arrivals)

    def _lag_us(self, facts: SourceFacts) -> int | None:
        return 0 if self._at_eof(facts) else self._behind_us()

    def _behind_us(self) -> int | None:
        """By the source's clock, which the commit times are of; not known while that was not compared with ours."""
        ahead = self._heartbeats.heart.ahead_us
        if not self._assembler.time_us or ahead is None:
            return None
        return max(0, self._clock.now_us() + ahead - self._assembler.time_us)

    @property
    def _arrivals(self) -> list[dict[str, Any]]:
        return self._heartbeats.arrivals.entries()

    @property
    def about(self) -> Sequence[str]:
        """The source database's version and character set, for the report."""
        return self._facts().about

    def metrics(self) -> MetricsAnswer:
        """`newest_us`: commit time of the newest that readers find in the trail.

        Log that waits makes the source's last word old, whether or not anything in it is captured.
        """
        facts = self._facts()
        found = dict(facts.measures)
        waiting, newest = found.pop("backlog_bytes", None), self._assembler.time_us
        heart = self._heartbeats.heart
        offset = heart.ahead_us
        error = {"heartbeat_error": heart.error} if heart.error else {}
        idle = not waiting if waiting is not None else self._at_eof(facts)
        return MetricsAnswer(
            read=PlaceAnswer.of(facts.read),
            write=WriteAnswer.of(self._write_checkpoint()),
            backlog_bytes=0 if waiting is None and idle else waiting,
            backlog_us=0 if idle else self._behind_us(),
            extra={
                "state": self._source.waits_for, "newest_us": newest or None, "clock_offset_us": offset,
                "heartbeat_trouble": heart.trouble, **error, **found,
            },
        )  # fmt: skip

    def _rollover(self, _args: dict[str, Any]) -> dict[str, Any]:
        """Not here: an error of the trail must end the process, and none that comes of a request does."""
        self._roll_due = True
        return {}

    def _checkpoint(self) -> Checkpoint:
        # The source is asked to go on at the origin of the last complete transaction; what was open there began before.
        facts = self._facts()
        reads = tuple(
            ReadCheckpoint(
                facts.title,
                self._startup.get(one.current.thread, one.recovery),
                one.current,
                one.recovery,
                facts.csn_label,
            )
            for one in facts.threads
        )
        return Checkpoint(
            self._settings.group, "EXTRACT", reads, (self._write_checkpoint(),), lag_us=self._lag_us(facts),
            extra={"heartbeats": self._arrivals, "alter_no": self._settings.alter_no},
        )  # fmt: skip

    def _write_checkpoint(self) -> WriteCheckpoint:
        place = self._writer.durable
        return WriteCheckpoint(place.seqno, place.rba, self._written_us, self._settings.trail_text, "EXTTRAIL")


def _hole(settings: Settings, source: Source, last: Mark, begin: Mark | None, ordered: Since | None) -> Hole | None:
    """What is left out by going on elsewhere than at the trail's end, by START or by ALTER.

    Before the trail's end stands what the trail has already. But BEGIN NOW is never there, unless the source is an
    older one, such as a restored backup: what it commits from now on would have CSNs that readers take for applied.
    Raises MismatchError then, and OperatorError where START orders what the trail has.
    """
    known = source.place(last.origin, None).csn if last.origin != START else ""
    there = source.place(begin.origin, None).csn if begin is not None else ""
    now = str(dict(settings.alter).get("begin", "")).lower() == "now"
    if begin is not None and begin.origin < last.origin and now:
        raise MismatchError(
            f"BEGIN NOW is {there}, before the trail's end, {known}: the source was reset, or restored from a backup",
            hint=f"Readers would drop new changes. {ANEW}",
        )
    if ordered is not None:
        ordered.check(settings.group, last.csn)
        if not ordered.goes_on_behind(last.csn):
            return Hole(f"START EXTRACT {settings.group}", known, str(ordered))
    if begin is None or begin.origin < last.origin:
        return None
    if begin.origin == last.origin and not (now and _is_another(source, last)):
        return None
    return Hole(f"ALTER EXTRACT {settings.group}", known, there)


def _is_another(source: Source, last: Mark) -> bool:
    """Whether the source has another history up to the trail's end than the trail."""
    try:
        source.fits(last.origin, last.state)
    except MismatchError:
        return True
    return False
