"""The PostgreSQL source: a logical slot with pgoutput, protocol 1 (the server spills, so each transaction comes whole,
after its commit and in commit order).

Places. A transaction's CSN is its commit LSN; its origin is the end of its commit record, which is where the next one
may begin and what the server wants to have acknowledged. The server passes over what ended before the place we start
from, and what committed before it and still comes is dropped whole by the decoder.

Acknowledging. Status messages go out on a timer, whatever else happens, and repeat the last released (durable) place. A
keepalive never makes us acknowledge more: it only tells the sink that nothing before its place is still to come, the
sink's owner writes that into the trail, and when it is durable it comes back through `release` (CW-27).

Reading. A reader that wakes for each message slows the server's sender to half: when messages come thick it naps for a
moment and takes them in gulps; when they come one by one it waits on the socket, and delay is what counts. A unix
socket holds only some hundred messages, so there a nap would stop the sender: none is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from extract.longtrans import Outstanding
from extract.source import Sink
from extract.sources import pgcheck, pgddl, pgopen
from extract.sources.pgdriver import Row, Session, Stream, timeline_ends
from extract.sources.pgguard import SlotGuard, SlotWatch, WalLimits
from extract.sources.pgoutput import MOST_TABLES, Decoder, ManyTablesError, Relation, Shape, lsn_text, parse_lsn
from extract.sources.pgtables import Catalogue
from trails.checkpoint import Place
from trails.ddl import DdlChange
from trails.errors import AwayError, MismatchError, OperatorError
from trails.position import Position
from trails.runtime.ddlparams import DdlRules
from trails.runtime.heartbeattable import HeartbeatTable

GULP: Final = 1 << 18
RICH: Final = 2048
NAP: Final = 0.0005
STATUS_SECONDS: Final = 10.0
RELEASE_SECONDS: Final = 1.0
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
STEADY_SECONDS: Final = 5.0
"""A connection that held so long is back; one that was lost earlier goes on with the time and the pause of before."""
PAGE_HEADER: Final = 40
MOVING: Final = ("timeline", "publication")
"""What may change in the identity of one and the same source: a failover that keeps the slot, another publication."""

Say = Callable[[str], None]
T = TypeVar("T")


class PromotedError(AwayError):
    """The server writes another timeline now, which the trail's next file must say: the process begins anew."""


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """What the source needs to know.

    `first` is the slot's place when it was made; `expected` what REGISTER EXTRACT saw; `ddl` which schema changes are
    captured, None for none; `limits` when to warn of log that the slot keeps back; `heartbeat` where heartbeats are.
    """

    url: str
    group: str
    slot: str
    publication: str
    first: str
    expected: dict[str, str]
    reconnect_seconds: float = 60.0
    ddl: DdlRules | None = None
    limits: WalLimits = field(default_factory=WalLimits)
    heartbeat: HeartbeatTable | None = None
    most_tables: int = MOST_TABLES


class PostgresSource:
    """See extract.source.Source. `say` takes one line for the operator: lost and regained connections."""

    title = "PostgreSQL WAL"

    def __init__(
        self,
        settings: PostgresSettings,
        captures: Callable[[str, str], bool],
        say: Say,
        project: pgcheck.Project | None = None,
        befores: pgcheck.Befores = lambda _schema, _name: "",
        warn: Say | None = None,
    ) -> None:
        """`project`: what TABLE's options make of a table, to refuse at the start what can't be obeyed.

        `befores`: the file:line by which a table's updates must carry their whole old rows; empty if they need not.
        `warn`: takes a line on the log that the slot keeps back; `say` takes it if there is none.
        """
        self._settings = settings
        self._rules = captures
        self._ddl_key = ""
        self._project = project
        self._befores = befores
        self._warned: set[int] = set()  # tables whose old rows are asked for and will not come
        self._say = say
        self._application = f"trailgate {settings.group}"
        self._session: Session | None = None
        self._stream: Stream | None = None
        self._identity = pgcheck.Identity("", "", 0, 1 << 24)
        self._known: dict[str, str] = {}
        self._found: dict[str, str] = {}
        self._sink: Sink | None = None
        self._decoder: Decoder | None = None
        self._catalogue = Catalogue(self._open_session, self._described, self._whole_rows)
        self._released = 0
        self._told = 0
        self._begun = 0.0
        self._status_every = STATUS_SECONDS
        self._status_due = 0.0
        self._release_due = 0.0
        self._thick = False
        self._away_since: float | None = None
        self._pause = FIRST_PAUSE
        self._retry_at = 0.0
        self._trouble = ""
        self._watch: SlotWatch | None = None
        self._guard = SlotGuard(lambda: self._watch.facts if self._watch else None, settings.limits, warn or say)

    # --- before the start -------------------------------------------------------------------------------------------

    def identify(self, known: dict[str, str] | None) -> dict[str, str]:
        """Connect, check all prerequisites, compare with the registration and with `known`."""
        if known is not None:
            self._known = dict(known)
        session = self._identify()
        faults = self._unfit(session)
        if self._project is not None:
            faults += pgcheck.columns(session, self._captures, self._project)
        pgcheck.refuse(faults)
        if risky := pgcheck.risky(session, self._captures, self._project):
            shown = ", ".join(risky[:10]) + (f" and {len(risky) - 10} more" if len(risky) > 10 else "")
            self._say(
                f"an update that leaves a large value as it was will stop this group, as the replica identity is not "
                f"full: {shown}. ADD TRANDATA for them"
            )
        return dict(self._found)

    def _identify(self) -> Session:
        """The checks that every connection must pass."""
        session = self._open_session()
        self._identity = pgcheck.identity(session)
        self._found = found = {
            "kind": "postgresql",
            "system": self._identity.system,
            "database": self._identity.database,
            "slot": self._settings.slot,
            "publication": self._settings.publication,
            "timeline": str(self._identity.timeline),
        }
        _same(self._settings.expected, found, "REGISTER EXTRACT")
        _same(self._known, found, "the trail")
        pgcheck.prerequisites(session, self._settings.slot, self._settings.publication)
        if self._settings.ddl is not None:
            self._ddl_key = pgddl.ready(session)
        timeout = int(session.setting("wal_sender_timeout") or 0) / 1000
        self._status_every = min(STATUS_SECONDS, timeout / 4) if timeout else STATUS_SECONDS
        return session

    def first_origin(self) -> Position:
        """Where the slot was made: the first change of a new trail."""
        try:
            return Position(0, parse_lsn(self._settings.first))
        except ValueError:
            raise OperatorError(
                f"group {self._settings.group} is registered without a slot", hint="REGISTER EXTRACT, then ADD EXTRACT"
            ) from None

    def origin_of(self, order: dict[str, Any]) -> Position:
        """The place of ALTER EXTRACT:

        {"csn": LSN}, {"seqno": n, "rba": n} (WAL segment and offset) or {"begin": "now"}.
        """
        session = self._open_session()
        if str(order.get("begin", "")).lower() == "now":
            lsn = parse_lsn(session.one("SELECT pg_current_wal_flush_lsn()")[0] or "")
        elif "seqno" in order:
            lsn = int(order["seqno"]) * self._identity.segment_size + int(order.get("rba", 0))
        else:
            try:
                lsn = parse_lsn(str(order.get("csn", "")))
            except ValueError as error:
                raise OperatorError(f"ALTER EXTRACT: {error}", hint="ALTER EXTRACT again, with such a CSN") from None
        confirmed = pgcheck.slot_state(session, self._settings.slot).confirmed
        if lsn < confirmed:
            raise OperatorError(
                f"ALTER EXTRACT to {lsn_text(lsn)}: the server has let go of changes before {lsn_text(confirmed)}, "
                "which are in the trail already; a slot never goes back",
                hint="ALTER EXTRACT to that place or later; to read older changes again, ALTER the trail's readers",
            )
        return Position(0, lsn)

    def start(self, origin: Position, sink: Sink) -> None:
        """Begin behind `origin`. A slot that a dead process still holds is waited for like a lost connection."""
        self._sink = sink
        self._released = self._told = origin.rba
        self._watch = SlotWatch(self._settings.url, f"{self._application} guard", self._settings.slot)
        try:
            self._begin(origin.rba)
        except AwayError as error:
            self._lost(error)

    def _begin(self, origin: int) -> None:
        assert self._sink is not None
        slot = self._settings.slot
        self.fits(Position(0, origin))
        pgcheck.check_origin(self._open_session(), slot, origin, lsn_text(origin))
        rules = self._settings.ddl
        self._stream = Stream(
            self._settings.url, self._application, slot, self._settings.publication, origin, messages=rules is not None
        )
        self._sink.cache.clear()
        ddl = pgddl.DdlReader(self._ddl_key, self._ask, self._wants, self._say) if rules is not None else None
        self._decoder = Decoder(self._sink, self._describe, origin, ddl, self._settings.most_tables)
        self._known = self._found
        self._begun = time.monotonic()
        self._status_due = 0.0
        self._thick = False

    def fits(self, origin: Position) -> None:
        """After a failover: refuse if the trail holds changes that the new primary never got."""
        old, new = int(self._known.get("timeline", 0)), self._identity.timeline
        if not old or old == new:
            return
        ended = timeline_ends(self._settings.url, self._application, new).get(old)
        if ended is None or parse_lsn(ended) < origin.rba:
            raise MismatchError(
                f"the server is on timeline {new} and left timeline {old} at {ended or 'no place it knows of'}, "
                f"but the trail has changes of timeline {old} up to {lsn_text(origin.rba)}",
                hint=pgcheck.ANEW,
            )

    def _open_session(self) -> Session:
        if self._session is None:
            self._session = Session(self._settings.url, self._application)
        return self._session

    def _close_session(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    def _unfit(self, session: Session) -> list[pgcheck.Fault]:
        """Captured tables as they are today, of which changes would not come, or not whole."""
        faults = pgcheck.tables(session, self._settings.publication, self._captures)
        return faults + pgcheck.without_befores(session, self._captures, self._befores)

    def _describe(self, relation: Relation, xid: int) -> Shape | None:
        """A table's shape."""
        shape = self._asked(lambda _: self._catalogue.describe(relation, xid))
        unfit = shape is not None and shape.befores and relation.identity != "f"
        if shape is not None and unfit and relation.oid not in self._warned:
            self._warned.add(relation.oid)
            what, mend = pgcheck.no_befores(relation.schema, relation.name, relation.identity, shape.befores)
            self._say(f"{what}. The first one will stop this group. {mend}")
        return shape

    def _ask(self, sql: str, *values: str | int | None) -> list[Row]:
        """The rows of a query on the ordinary connection."""
        return self._asked(lambda session: session.query(sql, *values))

    def _asked(self, do: Callable[[Session], T]) -> T:
        """Ask on the ordinary connection, which may have been cut while nobody needed it: then on a new one."""
        try:
            return do(self._open_session())
        except AwayError:
            self._close_session()
            return do(self._open_session())

    def _captures(self, schema: str, name: str) -> bool:
        """Whether a table's rows are captured; those of DDL capture and of heartbeats never are."""
        own = self._settings.heartbeat is not None and self._settings.heartbeat.owns(schema, name)
        return schema != pgddl.SCHEMA and not own and self._rules(schema, name)

    def _described(self, schema: str, name: str) -> bool:
        """Whether rows of a table go to the sink: those that are captured, and the heartbeat's, whatever TABLE says."""
        table = self._settings.heartbeat
        seed = table is not None and (schema, name) == (table.schema, table.seed)
        return seed or self._captures(schema, name)

    def _whole_rows(self, schema: str, name: str) -> str:
        """Who wants the old rows of a table; of the heartbeat's nobody does, whatever TABLE says."""
        return self._befores(schema, name) if self._captures(schema, name) else ""

    def _wants(self, change: DdlChange) -> bool:
        """Whether a schema change goes into the trail. A renamed table counts by both of its names."""
        assert self._settings.ddl is not None
        if (own := self._settings.heartbeat) is not None and any(own.owns(*name) for name in change.names):
            return False
        return self._settings.ddl.passes(change, any(self._captures(*name) for name in change.names))

    # --- capturing --------------------------------------------------------------------------------------------------

    def poll(self) -> bool:
        """See Source."""
        now = time.monotonic()
        self._guard.judge(now)
        try:
            if self._stream is None or self._decoder is None:
                return self._again(now)
            size = self._stream.gulp(self._decoder.decode, self._on_keepalive, GULP)
            self._report(now)
        except PromotedError:
            raise
        except AwayError as error:
            self._lost(error)
            return False
        except ManyTablesError as error:
            self._renew(error)
            return True
        if not size:
            # The last gulp was rich: what follows it is on its way, so look once more before waiting.
            self._thick = False
            return False
        assert self._sink is not None
        self._sink.grew(size)
        thick, self._thick = self._thick, size >= RICH
        if size < GULP and (thick or self._thick) and not self._stream.local:
            time.sleep(NAP)
        return thick or self._thick

    def release(self, origin: Position) -> None:
        """See Source. The server is told soon, not at once: it only matters for how much log it keeps."""
        self._released = max(self._released, origin.rba)

    def _on_keepalive(self, end: int, time_us: int, reply: bool) -> None:
        if self._decoder is not None and not self._decoder.open and self._sink is not None:
            self._sink.reached(Position(0, end), time_us)
        if reply:
            self._status_due = 0.0

    def _report(self, now: float) -> None:
        """Send what is durable: when the timer or the server says so, and a little after it has grown."""
        if now < self._status_due and (self._released == self._told or now < self._release_due):
            return
        assert self._stream is not None
        self._stream.status(self._released)
        self._told = self._released
        self._status_due, self._release_due = now + self._status_every, now + RELEASE_SECONDS

    def _lost(self, error: AwayError) -> None:
        """The connection is gone: drop what is open, and try again until the time allowed is over."""
        now = time.monotonic()
        if self._stream is not None and now - self._begun > STEADY_SECONDS:
            self._away_since = None
        if self._sink is not None:
            self._sink.abandon()
        self._hang_up()
        if self._away_since is None:
            self._away_since, self._pause = now, FIRST_PAUSE
            self._say(f"{error}; trying again for {self._settings.reconnect_seconds:g} s")
        self._trouble = str(error)
        if now - self._away_since >= self._settings.reconnect_seconds:
            raise AwayError(
                f"{error}; gave up after {self._settings.reconnect_seconds:g} s", hint="START again when it is back"
            ) from error
        self._retry_at = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _renew(self, reason: ManyTablesError) -> None:
        """Have the next poll begin a session, from right behind the last transaction."""
        self._say(f"{reason}: beginning a new session, to forget those that are gone")
        self._hang_up()
        self._away_since, self._pause = None, FIRST_PAUSE  # it did its work: a loss from now on is another one
        self._trouble, self._retry_at = str(reason), 0.0

    def _again(self, now: float) -> bool:
        """Connect again when the pause is over, with the same checks as at the start."""
        if now < self._retry_at:
            return False
        assert self._sink is not None
        before = self._identity.timeline
        self._identify()
        origin = self._sink.origin.rba
        if self._identity.timeline != before:
            self.fits(self._sink.origin)
            raise PromotedError(
                f"the server was promoted: it is on timeline {self._identity.timeline}, and was on {before}",
                hint="START goes on where the trail ends; AUTORESTART does it by itself",
            )
        self._begin(origin)
        self._say(f"connected to the source database, going on at {lsn_text(origin)}")
        for what, mend in self._unfit(self._open_session()):
            self._say(f"{what}. {mend}")  # no reason to stop: it would refuse the next START
        self._trouble = ""
        return True

    def _hang_up(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = self._decoder = None
        self._close_session()

    # --- waiting and telling ----------------------------------------------------------------------------------------

    def waits(self) -> list[int]:
        """See Source."""
        return [self._stream.fileno()] if self._stream is not None else []

    def idle_seconds(self) -> float:
        """See Source."""
        now = time.monotonic()
        if self._stream is None:
            return max(0.0, self._retry_at - now)
        due = self._status_due if self._released == self._told else min(self._status_due, self._release_due)
        return max(0.0, due - now)

    def state(self) -> str:
        """See Source."""
        return f"Waiting for the source database: {self._trouble}" if self._stream is None else ""

    def read_place(self) -> Place:
        """See Source."""
        lsn, time_us = self._stream.read_place() if self._stream is not None else (0, 0)
        origin = self._sink.origin.rba if self._sink is not None else 0
        # A Relation message has no place of its own, and neither has what was read before a reconnect.
        return self.place(Position(0, max(lsn, origin)), time_us or None)

    def about(self) -> list[str]:
        """See Source."""
        version, characters = self._open_session().one("SELECT version(), current_setting('server_encoding')")
        return [
            "Database Version:", version or "", "", "Database Language and Character Set:", characters or "", ""
        ]  # fmt: skip

    def outstanding(self) -> Outstanding:
        """See Source."""
        if self._stream is None:
            raise AwayError("the source database is away")
        session = Session(self._settings.url, f"{self._application} looks")
        try:
            return pgopen.outstanding(session, self._settings.slot)
        finally:
            session.close()

    def measures(self) -> dict[str, Any]:
        """See Source. The log's end is as of the guard's last look; what was read since is none of the backlog."""
        facts = self._watch.facts if self._watch and self._watch.facts and self._watch.facts.is_news else None
        trouble = {"wal_trouble": self._watch.trouble} if self._watch and self._watch.trouble else {}
        if facts is None or self._stream is None:
            return {"slot": self._settings.slot, **(facts.to_json() if facts else {}), **trouble}
        lsn, _ = self._stream.read_place()
        read = max(lsn, self._sink.origin.rba if self._sink is not None else 0)
        # The log's end may stand behind a page's header, which belongs to the next record.
        waiting = facts.end - read if facts.end - read > PAGE_HEADER else 0
        return {"backlog_bytes": waiting, **facts.to_json(), **trouble}

    def place(self, origin: Position, time_us: int | None) -> Place:
        """Seqno is the WAL segment's number, RBA the offset in it."""
        size = self._identity.segment_size
        segment, offset = divmod(origin.rba, size)
        per_log = (1 << 32) // size
        name = f"{self._identity.timeline:08X}{segment // per_log:08X}{segment % per_log:08X}"
        return Place(segment, offset, time_us, lsn_text(origin.rba), name)

    def close(self) -> None:
        """Tell the server the last durable place, and free the slot."""
        if self._watch is not None:
            self._watch.close()
        if self._stream is not None:
            try:
                self._stream.status(self._released)
            except AwayError:
                pass  # it will hear the same at the next start
        self._hang_up()


def _same(expected: dict[str, str], found: dict[str, str], who: str) -> None:
    """Raise MismatchError unless `found` is the source that `who` knows."""
    for key, value in expected.items():
        if key not in MOVING and value and found.get(key, "") != value:
            raise MismatchError(
                f"the source's {key} is {found.get(key) or '(none)'}, but {who} belongs to {value}",
                hint="Mend SOURCEDB, or DELETE the group and its trail, REGISTER EXTRACT and ADD it again",
            )
