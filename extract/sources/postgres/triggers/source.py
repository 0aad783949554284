"""The source of TRIGGERLOG: a queue in the database, filled by triggers (queue.sql), read by a thread (reader.py).

Places. An origin is (0, tick), a CSN the same number in 20 digits, and `state` the snapshot up to which the tick goes.
What was committed between two looks is one transaction. The first tick of a queue is the time when it was made, in
microseconds, and so is that of BEGIN NOW: no number comes again that an older queue or database had.
"""

from __future__ import annotations

from typing import Any, Final

from extract.longtrans import Outstanding
from extract.queueguard import QueueLimits, kept_facts, retained
from extract.retention import Retained, RetentionGuard
from extract.segments import SegmentSource
from extract.source import Say, Sink, SourceFacts, SourceSettings, ThreadPlaces
from extract.sources.postgres import check as pgcheck
from extract.sources.postgres import ddl as pgddl
from extract.sources.postgres import opened as pgopen
from extract.sources.postgres import typeparts
from extract.sources.postgres.driver import Session
from extract.sources.postgres.heartbeat import dotted
from extract.sources.postgres.tables import QUEUE_SCHEMA
from extract.sources.postgres.triggers import install
from extract.sources.postgres.triggers.check import check_history, faults, identity, same
from extract.sources.postgres.triggers.install import NOW_US, TICK, QueueSize
from extract.sources.postgres.triggers.reader import TriggerCapture, TriggerReader, csn_text
from extract.sources.postgres.triggers.snapshot import Tick, XidSnapshot
from trails.checkpoint import Place
from trails.ddl import DdlChange
from trails.errors import MismatchError, OperatorError
from trails.position import Position
from trails.runtime.report.answers import plain
from trails.runtime.report.stats import DdlCounts

TITLE: Final = "PostgreSQL Queue"


class TriggerRules:
    """What the parameter file makes of the source's tables."""

    def __init__(self, settings: SourceSettings, counts: DdlCounts) -> None:
        self._settings = settings
        self._counts = counts

    def capture(self) -> TriggerCapture:
        """For the reader."""
        beats = self._settings.heartbeat
        return TriggerCapture(self.tells, self.gives, self.befores, self.wants, dotted(beats.schema, beats.seed))

    def tells(self, schema: str, name: str) -> bool:
        """Whether a table's rows are captured; those of our own tables never are."""
        own = schema in (pgddl.SCHEMA, QUEUE_SCHEMA) or self._settings.heartbeat.owns(schema, name)
        return not own and self._settings.tables.wants(schema, name)

    def gives(self, schema: str, name: str) -> bool:
        """Whether rows of a table go to the sink: those that are captured, and the heartbeat's, whatever TABLE says."""
        beats = self._settings.heartbeat
        return (schema, name) == (beats.schema, beats.seed) or self.tells(schema, name)

    def befores(self, schema: str, name: str) -> bool:
        """Whether updates carry their whole old rows."""
        return self.tells(schema, name) and bool(self._settings.tables.befores(schema, name))

    def wants(self, change: DdlChange) -> bool:
        """Whether a change of shape goes into the trail. A renamed table counts by both of its names."""
        rules = self._settings.ddl
        if rules is None or any(self._settings.heartbeat.owns(*name) for name in change.names):
            return False
        mapped = any(self.tells(*name) for name in change.names)
        passes = rules.passes(change, mapped)
        self._counts.seen(change, mapped=mapped, passes=passes)
        return passes


class TriggerSource(SegmentSource):
    """The source by triggers; extract.source.Source says what each method does."""

    def __init__(self, settings: SourceSettings, say: Say, warn: Say, counts: DdlCounts) -> None:
        self._settings = settings
        self._application = f"trailgate {settings.group}"
        self._queue = settings.noted.made["queue"]
        self._rules = TriggerRules(settings, counts)
        types = typeparts.watch(settings, self._rules.tells)
        self._reader = TriggerReader(
            settings.url, self._application, settings.noted, self._rules.capture(), say, types
        )  # fmt: skip
        self._limits = QueueLimits.of(settings)
        self._judged: QueueSize | None = None
        self._found: Retained | None = None
        guard = RetentionGuard(self._retained, warn)
        super().__init__(self._reader, settings.reconnect_seconds, say, guard, "trigger queue")
        self._database = settings.noted.database
        self._about: list[str] = []

    def _session(self) -> Session:
        return Session(self._settings.url, self._application)

    # --- before the start -------------------------------------------------------------------------------------------

    def identify(self, known: dict[str, str] | None) -> dict[str, str]:
        session = self._session()
        try:
            found = {"kind": "postgresql", **identity(session), "queue": self._queue}
            same(self._settings.noted.identity, found, "REGISTER EXTRACT")
            same(known or {}, found, "the trail")
            there = install.installed(session)
            if there is None:
                raise OperatorError(
                    "the source has no queue", hint=f"DBLOGIN, then REGISTER EXTRACT {self._settings.group}"
                )
            if there.reader != self._queue:
                raise MismatchError(
                    f"the source's queue is read by {there.reader or 'nobody'}, not by {self._queue}",
                    hint=f"UNREGISTER the other group, then REGISTER EXTRACT {self._settings.group}",
                )
            pgcheck.refuse(faults(session, self._settings, self._rules.gives, self._rules.tells))
            version, characters = session.one("SELECT version(), current_setting('server_encoding')")
            self._about = [
                "Database Version:", version or "", "", "Database Language and Character Set:", characters or "", ""
            ]  # fmt: skip
        finally:
            session.close()
        return found

    def first_origin(self) -> Position:
        return Position(0, self._settings.noted.place.rba)

    def origin_of(self, order: dict[str, Any]) -> Position:
        """The place of ALTER EXTRACT or ADD EXTRACT: BEGIN NOW, or a CSN."""
        session = self._session()
        try:
            if order.get("begin") == "now":
                return Position(0, tick_now(session))
            first, last = session.one(f"SELECT min(tick), max(tick) FROM {TICK}")
        finally:
            session.close()
        text = str(order.get("csn", ""))
        if not text.isdecimal():
            raise OperatorError(
                f"ALTER EXTRACT: place {text or order}: expected BEGIN NOW or a CSN such as {csn_text(int(last or 0))}",
                hint="ALTER EXTRACT again, with such a CSN",
            )
        if not int(first or 0) <= int(text) <= int(last or 0):
            raise OperatorError(
                f"ALTER EXTRACT to {text}: the source's queue has ticks {first} to {last}",
                hint="ALTER EXTRACT to one of these",
            )
        return Position(0, int(text))

    def fits(self, origin: Position, state: str) -> None:
        session = self._session()
        try:
            check_history(session, self._settings.noted, origin.rba, state)
        finally:
            session.close()

    def start(self, origin: Position, state: str, sink: Sink) -> None:
        self.fits(origin, state)
        super().start(origin, state, sink)

    # --- telling ----------------------------------------------------------------------------------------------------

    def _retained(self) -> Retained | None:
        kept = self._reader.kept
        if kept is not self._judged:
            self._judged = kept
            self._found = None if kept is None else retained(kept.rows, self._limits)
        return self._found

    def place(self, origin: Position, time_us: int | None) -> Place:
        return place(origin.rba, self._database, time_us)

    def facts(self, origin: Position, state: str, time_us: int | None) -> SourceFacts:  # noqa: ARG002
        """What is open is not in the queue yet, and needs nothing that was captured."""
        current = self.place(Position(0, self.read), self.read_us)
        threads = [ThreadPlaces(self.place(origin, time_us), current)]
        return SourceFacts(TITLE, threads, self._measures(), self._about)

    def _measures(self) -> dict[str, Any]:
        kept = self._reader.kept
        if kept is None:
            return {}
        return {
            "backlog_bytes": self._reader.backlog_bytes,
            "backlog_rows": self._reader.backlog_rows,
            "queue_rows": kept.rows,
            **plain(kept_facts(self._queue, kept.rows, kept.bytes, kept.at_us)),
        }

    def outstanding(self) -> Outstanding:
        session = Session(self._settings.url, f"{self._application} looks")
        try:
            return pgopen.opened(session, f"queue {self._queue}")
        finally:
            session.close()


def place(tick: int, database: str, time_us: int | None = None) -> Place:
    """A place in the queue as SHOWCH prints it."""
    return Place(0, tick, time_us, csn_text(tick), database)


def tick_now(session: Session) -> int:
    """A tick of now, behind all others; also behind those of a trail that knows more than a database restored since."""
    session.query("BEGIN ISOLATION LEVEL REPEATABLE READ")
    snapshot, now, last = session.one(f"SELECT pg_current_snapshot()::text, {NOW_US}, max(tick) FROM {TICK}")
    number = max(int(last or 0) + 1, int(now or 0))
    session.query(
        f"INSERT INTO {TICK} VALUES ($1::bigint, $2)", number, Tick(XidSnapshot.of(snapshot or ""), int(now or 0)).state
    )
    session.query("COMMIT")
    return number
