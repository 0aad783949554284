"""The PostgreSQL source: a logical slot with pgoutput, protocol 1 (the server spills, so each transaction comes whole,
after its commit and in commit order).

Places. A transaction's CSN is its commit LSN; its origin is the end of its commit record, which is where the next one
may begin and what the server wants to have acknowledged. The server passes over what ended before the place we start
from, and what committed before it and still comes is dropped whole by the decoder.

Acknowledging. Status messages go out on a timer, whatever else happens, and repeat the last released (durable) place. A
keepalive never makes us acknowledge more: it only tells the sink that nothing before its place is still to come, the
sink's owner writes that into the trail, and when it is durable it comes back through `release` (CW-27).

Reading. When messages come thick they are taken in gulps, with naps between (`naps.py`); when they come one by one it
waits on the socket, and delay is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from extract.logs import LogSource
from extract.longtrans import Outstanding
from extract.retention import Retained, RetentionGuard, RetentionWatch
from extract.source import Say, Sink, SourceFacts, SourceSettings, ThreadPlaces
from extract.sources.postgres import check as pgcheck
from extract.sources.postgres import ddl as pgddl
from extract.sources.postgres import opened as pgopen
from extract.sources.postgres import typeparts
from extract.sources.postgres.driver import (
    DEAD_SECONDS,
    NoPublicationError,
    Row,
    Session,
    SilentError,
    Stream,
    strange,
    timeline_ends,
)
from extract.sources.postgres.guard import Look, watch
from extract.sources.postgres.kernel import PackedDecoder, PackedRecords
from extract.sources.postgres.limits import WalLimits
from extract.sources.postgres.pgoutput import (
    FIXES,
    MOST_TABLES,
    Decoder,
    ManyTablesError,
    Relation,
    Shape,
    lsn_text,
    parse_lsn,
)
from extract.sources.postgres.slots import SlotFacts, confirmed
from extract.sources.postgres.tables import QUEUE_SCHEMA, Catalogue
from trails.checkpoint import Place
from trails.ddl import DdlChange
from trails.errors import AnewError, AwayError, MismatchError, OperatorError
from trails.position import START, Position
from trails.runtime.report.answers import plain
from trails.runtime.report.stats import DdlCounts

GULP: Final = 1 << 18
RICH: Final = 2048
STATUS_SECONDS: Final = 10.0
RELEASE_SECONDS: Final = 1.0
PAGE_HEADER: Final = 40
NEVER_FACTOR: Final = 10
"""Where the server gives up no reader (wal_sender_timeout 0), its own silence is borne so many times as long."""
MOVING: Final = ("timeline", "publication")
"""What may change in the identity of one and the same source: a failover that keeps the slot, another publication."""

T = TypeVar("T")


class PostgresSource(LogSource):
    """This database's source; extract.source.Source and extract.logs.LogSource say what each method does."""

    def __init__(
        self,
        settings: SourceSettings,
        say: Say,
        warn: Say | None = None,
        ddl_counts: DdlCounts | None = None,
        most_tables: int = MOST_TABLES,
        dead_seconds: float | None = None,
    ) -> None:
        """`warn`: takes a line on the log that the slot keeps back; `say` takes it if there is none.

        `dead_seconds`: as a stream's; None: as patient as the server is with its readers, and at least a minute.
        """
        super().__init__(settings.reconnect_seconds, say, RetentionGuard(self._retained, warn or say))
        self._settings = settings
        self._slot = settings.noted.made["slot"]
        self._publication = settings.noted.made["publication"]
        self._most_tables = most_tables
        self._project = settings.project
        self._ddl_key = ""
        self._warned: set[int] = set()  # tables whose old rows are asked for and will not come
        self._say = say
        self._ddl_counts = ddl_counts or DdlCounts()
        self._application = f"trailgate {settings.group}"
        self._session: Session | None = None
        self._stream: Stream | None = None
        self._decode: Callable[[bytes, int], None]
        self._packs = False
        self._identity = pgcheck.Identity("", "", 0, 1 << 24)
        self._known: dict[str, str] = {}
        self._found: dict[str, str] = {}
        self._decoder: Decoder | None = None
        self._catalogue = Catalogue(self._open_session, self._described, self._whole_rows)
        self._told = START
        self._status_every = STATUS_SECONDS
        self._dead_given = dead_seconds
        self._dead_seconds = DEAD_SECONDS
        self._status_due = 0.0
        self._release_due = 0.0
        self._thick = False
        self._watch: RetentionWatch[Session, Look] | None = None
        self._types = typeparts.watch(settings, self._captures)
        self._settled: typeparts.TypesLook | None = None

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
            "slot": self._slot,
            "publication": self._publication,
            "timeline": str(self._identity.timeline),
        }
        _same(self._settings.noted.identity, found, "REGISTER EXTRACT")
        _same(self._known, found, "the trail")
        pgcheck.prerequisites(session, self._slot, self._publication)
        if self._settings.ddl is not None:
            self._ddl_key = pgddl.ready(session)
        timeout = int(session.setting("wal_sender_timeout") or 0) / 1000
        self._status_every = min(STATUS_SECONDS, timeout / 4) if timeout else STATUS_SECONDS
        # A server that decodes a large transaction of tables that nobody wants may say nothing for as long.
        patience = max(DEAD_SECONDS, timeout) if timeout else DEAD_SECONDS * NEVER_FACTOR
        self._dead_seconds = patience if self._dead_given is None else self._dead_given
        return session

    def first_origin(self) -> Position:
        """Where the slot was made: the first change of a new trail."""
        try:
            return Position(0, parse_lsn(self._settings.noted.place.csn))
        except ValueError:
            raise OperatorError(
                f"group {self._settings.group} is registered without a slot",
                hint="UNREGISTER EXTRACT, then REGISTER EXTRACT",
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
        let_go = confirmed(session, self._slot)
        if lsn < let_go:
            raise OperatorError(
                f"ALTER EXTRACT to {lsn_text(lsn)}: the server has let go of changes before {lsn_text(let_go)}, "
                "which are in the trail already; a slot never goes back",
                hint="ALTER EXTRACT to that place or later; to read older changes again, ALTER the trail's readers",
            )
        return Position(0, lsn)

    def start(self, origin: Position, state: str, sink: Sink) -> None:
        limits = WalLimits.of(self._settings)
        self._watch = watch(self._settings.url, self._application, self._slot, limits, self._types)
        self._told = origin
        self._packs = PackedRecords is not None and sink.packs(PackedRecords())
        super().start(origin, state, sink)

    def fits(self, origin: Position, _state: str) -> None:
        """After a failover: refuse if the trail holds changes that the new primary never got."""
        old, new = int(self._known.get("timeline", 0)), self._identity.timeline
        if not old or old == new:
            return
        ended = timeline_ends(self._settings.url, self._application, new).get(old)
        if ended is None or parse_lsn(ended) < origin.rba:
            raise MismatchError(
                f"the server is on timeline {new} and left timeline {old} at {ended or 'no place it knows of'}, "
                f"but the trail has changes of timeline {old} up to {lsn_text(origin.rba)}",
                hint=pgcheck.LOST,
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
        faults = pgcheck.tables(session, self._publication, self._captures)
        return faults + pgcheck.without_befores(session, self._captures, self._settings.tables.befores)

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
        """Ask on the ordinary connection, which may have been cut while nobody needed it: then on a new one.

        A server that was waited for in vain is not waited for twice in one turn of the main loop.
        """
        try:
            return do(self._open_session())
        except SilentError:
            self._close_session()
            raise
        except AwayError:
            self._close_session()
            return do(self._open_session())

    def _captures(self, schema: str, name: str) -> bool:
        """Whether a table's rows are captured; those of DDL capture and of heartbeats never are."""
        own = schema in (pgddl.SCHEMA, QUEUE_SCHEMA) or self._settings.heartbeat.owns(schema, name)
        return not own and self._settings.tables.wants(schema, name)

    def _described(self, schema: str, name: str) -> bool:
        """Whether rows of a table go to the sink: those that are captured, and the heartbeat's, whatever TABLE says."""
        table = self._settings.heartbeat
        return (schema, name) == (table.schema, table.seed) or self._captures(schema, name)

    def _whole_rows(self, schema: str, name: str) -> str:
        """Who wants the old rows of a table; of the heartbeat's nobody does, whatever TABLE says."""
        return self._settings.tables.befores(schema, name) if self._captures(schema, name) else ""

    def _wants(self, change: DdlChange) -> bool:
        """Whether a schema change goes into the trail. A renamed table counts by both of its names."""
        assert self._settings.ddl is not None
        if any(self._settings.heartbeat.owns(*name) for name in change.names):
            return False
        mapped = any(self._captures(*name) for name in change.names)
        passes = self._settings.ddl.passes(change, mapped)
        self._ddl_counts.seen(change, mapped=mapped, passes=passes)
        return passes

    # --- capturing --------------------------------------------------------------------------------------------------

    def connect(self, sink: Sink, *, again: bool) -> None:
        if again:
            self._identify_again(sink.origin)
        origin = sink.origin.rba
        self.fits(sink.origin, sink.state)
        pgcheck.check_origin(self._open_session(), self._slot, origin, lsn_text(origin))
        rules = self._settings.ddl
        self._stream = Stream(
            self._settings.url, self._application, self._slot, self._publication, origin, messages=rules is not None,
            dead_seconds=self._dead_seconds,
        )  # fmt: skip
        ddl = pgddl.DdlReader(self._ddl_key, self._ask, self._wants, self._say) if rules is not None else None
        decoder = self._decoder = Decoder(sink, self._describe, origin, ddl, self._most_tables)
        self._decode = decoder.decode
        if self._packs:
            self._decode = self._stream.direct(PackedDecoder(sink.records, decoder, sink, FIXES, strange))
        self._known = self._found
        self._status_due = 0.0
        self._thick = False
        if again:
            for what, mend in self._unfit(self._open_session()):
                self._say(f"{what}. {mend}")  # no reason to stop: it would refuse the next START

    def _identify_again(self, origin: Position) -> None:
        before = self._identity.timeline
        self._identify()
        if self._identity.timeline != before:
            self.fits(origin, "")
            raise AnewError(
                f"the server was promoted: it is on timeline {self._identity.timeline}, and was on {before}",
                hint="START goes on where the trail ends; AUTORESTART does it by itself",
            )

    def read(self, sink: Sink, now: float) -> bool:
        assert self._stream is not None and self._decoder is not None
        try:
            size = self._stream.gulp(self._decode, GULP)
        except NoPublicationError as error:
            raise pgcheck.missed_publication(self._publication) from error
        except ManyTablesError as error:
            self.renew(f"{error}: beginning a new session, to forget those that are gone")
            return True
        if self._stream.asked or now >= self.due():
            self._report(now)
        if self._stream.is_idle and not self._decoder.open:
            lsn, time_us = self._stream.place
            sink.reached(Position(0, lsn), time_us)
        if not size:
            # The last gulp was rich: what follows it is on its way, so look once more before waiting.
            self._thick = False
            self._stream.watch(self.released.rba)
            return False
        sink.grew(size)
        thick, self._thick = self._thick, size >= RICH
        if size < GULP and (thick or self._thick):
            nap = self._stream.naps.after(size)
            if nap:
                time.sleep(nap)
        return thick or self._thick

    def _report(self, now: float) -> None:
        """Send what is durable."""
        assert self._stream is not None
        self._stream.status(self.released.rba)
        self._told = self.released
        self._status_due, self._release_due = now + self._status_every, now + RELEASE_SECONDS

    def hang_up(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = self._decoder = None
        self._close_session()

    def fileno(self) -> int:
        assert self._stream is not None
        return self._stream.fileno()

    def due(self) -> float:
        """When to send what is durable though nobody asked: now and then, and a little after it has grown."""
        return self._status_due if self.released == self._told else min(self._status_due, self._release_due)

    # --- telling ----------------------------------------------------------------------------------------------------

    @property
    def _seen(self) -> SlotFacts | None:
        """What the last look at the slot found."""
        return self._watch.found[0] if self._watch and self._watch.found else None

    def _retained(self) -> Retained | None:
        if not (self._watch and self._watch.found):
            return None
        _, kept, types = self._watch.found
        if types is not None and types is not self._settled:
            self._settled = types
            self._types.settle(types)
        return kept

    def place(self, origin: Position, time_us: int | None) -> Place:
        return self._identity.place(origin.rba, time_us)

    def facts(self, origin: Position, state: str, time_us: int | None) -> SourceFacts:  # noqa: ARG002
        read, read_us = self._read_place()
        if not read_us and read == origin.rba:  # nothing has come since the start
            read_us = time_us or 0
        threads = [ThreadPlaces(self._oldest(origin, time_us), self._identity.place(read, read_us or None))]
        about = [
            "Database Version:", self._identity.version, "",
            "Database Language and Character Set:", self._identity.characters, "",
        ]  # fmt: skip
        return SourceFacts(pgcheck.TITLE, threads, self._measures(read), about, pgcheck.CSN_LABEL)

    def _read_place(self) -> tuple[int, int]:
        """The LSN read, and its time."""
        lsn, time_us = self._stream.place if self._stream is not None else (0, 0)
        # A Relation message has no place of its own, and neither has what was read before a reconnect.
        return max(lsn, self._sink.origin.rba if self._sink is not None else 0), time_us

    def _measures(self, read: int) -> dict[str, Any]:
        """The log's end is as of the guard's last look; what was read since is none of the backlog."""
        facts = self._seen if self._seen is not None and self._seen.is_news else None
        trouble = {"log_trouble": self._watch.trouble} if self._watch and self._watch.trouble else {}
        if facts is None or not self.connected:
            return {"holder": f"slot {self._slot}", **(plain(facts.kept) if facts else {}), **trouble}
        # The log's end may stand behind a page's header, which belongs to the next record.
        waiting = facts.end - read if facts.end - read > PAGE_HEADER else 0
        return {"backlog_bytes": waiting, **plain(facts.kept), **trouble}

    def _oldest(self, origin: Position, time_us: int | None) -> Place:
        """Where an open one begins exactly no server tells: its restart_lsn is the nearest before it."""
        facts = self._seen
        if facts is None or not facts.is_news or not facts.open or not 0 < facts.restart < origin.rba:
            return self.place(origin, time_us)
        return self.place(Position(0, facts.restart), facts.oldest_us)

    def outstanding(self) -> Outstanding:
        if not self.connected:
            raise AwayError("the source database is away")
        session = Session(self._settings.url, f"{self._application} looks")
        try:
            return pgopen.outstanding(session, self._slot)
        finally:
            session.close()

    def close(self) -> None:
        """Tell the server the last durable place, and free the slot."""
        if self._watch is not None:
            self._watch.close()
        if self._stream is not None:
            try:
                self._stream.status(self.released.rba)
            except AwayError:
                pass  # it will hear the same at the next start
        super().close()


def _same(expected: dict[str, str], found: dict[str, str], who: str) -> None:
    """Raise MismatchError unless `found` is the source that `who` knows."""
    for key, value in expected.items():
        if key not in MOVING and value and found.get(key, "") != value:
            raise MismatchError(
                f"the source's {key} is {found.get(key) or '(none)'}, but {who} belongs to {value}",
                hint="Mend SOURCEDB; another database needs a group and a trail of its own",
            )
