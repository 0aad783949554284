"""Events of the binary log to trail records: the state machine of groups, and rows to their decoders. No I/O.

    outside ── GTID ──> first ── BEGIN ──────────────────> inside ── XID, COMMIT ──> outside
       │                  │ a statement, alone: all of it    │ rows, statements
       │                  └──────────────> outside           └─ ROLLBACK, a torn file: abandoned
       └── GTID of MariaDB, which needs no BEGIN ──> inside

    passing   inside a group that was handed over already: rows are passed over
    keeping   inside one of which nobody knows yet what becomes of it: its events are kept (xa.py)

Strategy: one handler per event type, in a table for each of these states; what a table has not is an error, because a
reader that skips what it doesn't know loses data. A row event costs a few look-ups; all else is the row's own decoder.
A TABLE_MAP is known by its bytes, so of one that comes again nothing is read but the number. The sink hears of a group
at its first captured change: most of others' groups cost nothing.

Places. A group's CSN is where its first event ends, and its origin where its last one does: so each place that a server
tells (SHOW MASTER STATUS) has all CSNs of its past below it, and all later ones above. handed.py knows which groups the
trail has.

XA: the rows stand where the transaction was prepared, and count where it is committed. Also groups that are passed over
may prepare and decide: after a restart the log is read again from the oldest one that was not decided.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from extract.source import Sink
from extract.sources.mysql import begins
from extract.sources.mysql import events as ev
from extract.sources.mysql.begins import GroupBegin
from extract.sources.mysql.ddl.query import Statements
from extract.sources.mysql.events import CUT, BinlogError, Event, Frame, UncapturedError, name_of
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.groupfeed import PACKED, ROWS, GroupFeed, unpacked_rows
from extract.sources.mysql.handed import Handed, Start
from extract.sources.mysql.keeping import Keeper, without_rows
from extract.sources.mysql.logplace import LogPlace
from extract.sources.mysql.places import parts
from extract.sources.mysql.queries import Query, QueryVerb, plain_body, query_of, text_of
from extract.sources.mysql.rows import Describe, LogTables, Wants
from extract.sources.mysql.state import Again
from extract.sources.mysql.unwrap import payload
from extract.sources.mysql.xa import MEMORY, Kept, Shelf
from trails.position import Position

_OF_NO_CONCERN: Final = (
    ev.STOP, ev.IGNORED, ev.ROWS_QUERY, ev.INTVAR, ev.RAND, ev.USER_VAR, ev.TRANSACTION_CONTEXT, ev.VIEW_CHANGE,
    ev.PREVIOUS_GTIDS, ev.ANNOTATE_ROWS, ev.BINLOG_CHECKPOINT, ev.GTID_LIST, ev.START_ENCRYPTION,
)  # fmt: skip
"""They change no row. INTVAR and the like belong to a statement, which is told, and refused if it changes rows."""
_ELSEWHERE: Final = (ev.HEARTBEAT, ev.HEARTBEAT_V2)
"""Their place is none that they stand at."""
_STATEMENT_ROWS: Final = (6, 8, 9, 10, 11, 12, ev.BEGIN_LOAD_QUERY, ev.EXECUTE_LOAD_QUERY)
_OPENS: Final = b"START TRANSACTION"
"""How a CREATE TABLE ends whose rows follow in its group."""

Handler = Callable[[Event, bytes], None]
Handlers = dict[int, Handler]


class BinlogDecoder:
    """Feeds a sink. One decoder serves one session; its `close` lets go of what it keeps."""

    def __init__(
        self,
        sink: Sink,
        flavour: Flavour,
        start: Start,
        wants: Wants,
        describe: Describe,
        statements: Statements,
        scratch: str,
        *,
        checksums: bool | None = None,
        memory: int = MEMORY,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """`checksums`: whether events bear them, if it is known. `scratch`: the folder for what outgrows `memory`."""
        self._sink = sink
        self._feed = GroupFeed(sink, LogTables(flavour, wants, describe))
        self._statements = statements
        self._shelf = Shelf(scratch, memory)
        self._keeper = Keeper(self._shelf, self._feed.tables)
        self._now_us = now_us
        self._event = Frame(checksums=checksums).event
        self._log = LogPlace(parts(start.origin)[0])
        self._handed = Handed(flavour, start)
        # The open group.
        self._begin = GroupBegin(None, 0)
        self._starts = start.origin
        self._passed = False
        self._make_handlers()
        self._handlers = self._outside

    def _make_handlers(self) -> None:
        """The states, each with the events that may come in it."""
        anywhere: Handlers = dict.fromkeys(_OF_NO_CONCERN, self._pass)
        anywhere |= dict.fromkeys(_STATEMENT_ROWS, self._on_load)
        anywhere |= {
            ev.FORMAT_DESCRIPTION: self._on_format,
            ev.ROTATE: self._on_rotate,
            ev.HEARTBEAT: self._on_heartbeat,
            ev.HEARTBEAT_V2: self._on_heartbeat,
            ev.INCIDENT: self._on_incident,
        }
        self._outside = {
            **anywhere,
            ev.GTID: lambda event, data: self._open(begins.of_mysql(event, data)),
            ev.ANONYMOUS_GTID: lambda event, data: self._open(begins.of_mysql(event, data)),
            ev.GTID_TAGGED: lambda event, data: self._open(begins.of_tagged(event, data)),
            ev.MARIA_GTID: lambda event, data: self._open(begins.of_mariadb(event, data)),
            **self._queries(self._query_outside),
        }
        self._first = {**anywhere, **self._queries(self._query_first), ev.TRANSACTION_PAYLOAD: self._on_payload}
        ends = {**anywhere, ev.XID: self._on_xid, ev.XA_PREPARE: self._on_xa_prepare}
        unpack = dict.fromkeys(PACKED, lambda event, data: self._dispatch(*unpacked_rows(event, data)))
        self._inside = {**ends, **self._queries(self._query_inside), **unpack, ev.TABLE_MAP: self._feed.table_map}
        self._inside |= {kind: partial(self._feed.rows, *how) for kind, how in ROWS.items()}
        self._keeping = {**ends, **self._queries(self._query_keeping), **unpack, ev.TABLE_MAP: self._keeper.table_map}
        self._keeping |= dict.fromkeys(ROWS, self._keeper.rows)
        self._passing = {**self._inside, **dict.fromkeys((ev.TABLE_MAP, *ROWS, *PACKED), self._pass)}

    @staticmethod
    def _queries(take: Callable[[Query, Event, bytes], None]) -> Handlers:
        """Both forms of QUERY."""
        return {
            ev.QUERY: lambda event, data: take(query_of(event, data), event, data),
            ev.QUERY_COMPRESSED: lambda event, data: take(query_of(event, data, packed=True), event, data),
        }

    @property
    def open(self) -> bool:
        """Inside a group."""
        return self._handlers is not self._outside

    @property
    def place(self) -> Position:
        """How far the log was read."""
        return self._log.origin

    def close(self) -> None:
        """Forget what is kept."""
        self._keeper.drop()
        self._shelf.close()

    def decode(self, data: bytes, at: int, upto: int) -> None:
        """Take the event, with header and checksum, that stands in `data[at:upto]`.

        Raises BinlogError for bytes that are none of a log, and OperatorError for changes that can't be captured; then
        nothing more may be decoded.
        """
        try:
            event = self._event(data, at, upto)
            if event.end and event.type not in _ELSEWHERE and not event.flags & ev.ARTIFICIAL:
                self._log.moved(event.end, upto - at)
            handler = self._handlers.get(event.type)
            if handler is None:
                self._unknown(event)
            else:
                handler(event, data)
        except (BinlogError, UncapturedError) as error:
            raise error.placed(str(self._log)) from error
        except CUT as error:
            raise BinlogError(f"{self._log}: an event of {upto - at} bytes is cut off: {error}") from error

    def _dispatch(self, event: Event, data: bytes) -> None:
        handler = self._handlers.get(event.type)
        if handler is None:
            self._unknown(event)
        else:
            handler(event, data)

    # --- the log itself ---------------------------------------------------------------------------------------------

    def _pass(self, _event: Event, _data: bytes) -> None:
        """Nothing of it concerns us."""

    def _unknown(self, event: Event) -> None:
        if event.flags & ev.IGNORABLE and event.type not in ev.NAMES:
            return
        if event.type in ev.NAMES:
            raise BinlogError(f"event {name_of(event.type)} {'inside' if self.open else 'outside'} of a transaction")
        raise UncapturedError(
            f"an event {name_of(event.type)}, which may have changed rows",
            hint="A newer release may know it. Else ALTER EXTRACT past it, and load the tables again",
        )

    def _on_format(self, event: Event, data: bytes) -> None:
        ev.format_of(data, event.at, event.upto)
        self._tear()

    def _on_rotate(self, event: Event, data: bytes) -> None:
        known = self._log.known
        self._log.rotate(event, data)
        self._tear()
        if known:
            self._reached(event)

    def _on_heartbeat(self, event: Event, data: bytes) -> None:
        """Everything up to there was sent."""
        pos = self._log.heartbeat(event, data)
        if not self.open and pos >= self._log.pos:
            self._log.pos = pos
            self._reached(event)

    def _reached(self, event: Event) -> None:
        if self.place >= self._handed.origin:
            time_us = event.time * 1_000_000 or self._now_us()
            self._sink.reached(self.place, time_us, self._state())

    def _on_incident(self, event: Event, data: bytes) -> None:
        message = data[event.at + 3 : event.upto].decode("utf-8", "replace")
        raise UncapturedError(
            f"the server says that its log has a gap here: {message or 'no reason is given'}",
            hint="Rows were lost to the log: ALTER EXTRACT past this place, and load the tables again",
        )

    def _on_load(self, event: Event, _data: bytes) -> None:
        raise UncapturedError(
            f"event {name_of(event.type)}: rows were loaded by a statement, and stand in no event",
            hint="SET GLOBAL binlog_format = ROW, and end the sessions that have another. ALTER EXTRACT past these "
            "rows, and load the table again",
        )

    def _tear(self) -> None:
        """No file ends inside a group, unless the server died there: then the group was never committed."""
        if self.open:
            self._abandon()
            self._handlers = self._outside

    # --- groups -----------------------------------------------------------------------------------------------------

    def _open(self, begin: GroupBegin) -> None:
        """A group begins."""
        if not self._log.known:
            raise BinlogError("expected ROTATE, which names the file, before any transaction")
        self._begin, self._starts = begin, self._log.start
        self._passed = self._handed.has(self._starts, begin.gtid)
        self._feed.open(begin, self._log.csn)
        self._handlers = self._first
        if begin.started:
            self._enter()

    def _enter(self) -> None:
        """Changes follow."""
        if self._begin.prepares:
            self._keep(xa=True)
        else:
            self._handlers = self._passing if self._passed else self._inside

    def _close(self) -> None:
        """The group ends, and what it did counts."""
        self._handlers = self._outside
        if self._passed:
            self._handed.passed(self._begin.gtid)
        else:
            self._handed.took(self._begin.gtid)
            self._feed.commit(self.place, self._state())

    def _state(self) -> str:
        return self._handed.state(self._shelf.oldest)

    def _abandon(self) -> None:
        """What the group did counts for nothing."""
        self._keeper.drop()
        self._feed.abandon()

    def _on_xid(self, _event: Event, _data: bytes) -> None:
        self._commit()

    def _commit(self) -> None:
        """The group ends; rows that were kept count now."""
        if (kept := self._keeper.take()) is not None:
            self._replay(kept)
        self._close()

    def _on_payload(self, event: Event, data: bytes) -> None:
        """A whole transaction in one event; the events in it are as they would stand in the log."""
        frame = Frame(checksums=False)
        for inner, at, upto in payload(data, event.at, event.upto):
            if not self.open:
                raise BinlogError("TRANSACTION_PAYLOAD: expected the end behind a commit, found more")
            self._dispatch(frame.event(inner, at, upto), inner)
        if self.open:
            raise BinlogError("TRANSACTION_PAYLOAD: expected the end of the transaction in it, found none")

    # --- statements -------------------------------------------------------------------------------------------------

    def _query_outside(self, query: Query, event: Event, data: bytes) -> None:
        """A group without a GTID."""
        self._open(GroupBegin(None, event.time * 1_000_000))
        self._query_first(query, event, data)

    def _query_first(self, query: Query, event: Event, data: bytes) -> None:
        if query.verb is QueryVerb.BEGIN:
            self._enter()
        elif query.verb is QueryVerb.XA_START:
            self._keep(xa=True)
        elif query.verb in (QueryVerb.XA_COMMIT, QueryVerb.XA_ROLLBACK):
            self._decide(query)
        elif query.verb is QueryVerb.STATEMENT:
            self._tell(query.sql, event, data)
            if query.sql.rstrip().endswith(_OPENS):
                self._enter()
            else:
                self._close()
        else:
            raise _misplaced(query)

    def _query_inside(self, query: Query, event: Event, data: bytes) -> None:
        if query.verb is QueryVerb.COMMIT:
            self._close()
        elif query.verb is QueryVerb.ROLLBACK:
            self._abandon()
            self._close()
        elif query.verb is QueryVerb.STATEMENT:
            self._tell(query.sql, event, data)
        elif query.verb is QueryVerb.SAVEPOINT:
            if not self._passed:
                self._keep(xa=False).savepoint(query.name)
        elif query.verb is not QueryVerb.RELEASE and not (self._passed and query.verb is QueryVerb.ROLLBACK_TO):
            raise _misplaced(query)

    def _query_keeping(self, query: Query, event: Event, data: bytes) -> None:
        kept = self._keeper.kept
        assert kept is not None
        if query.verb is QueryVerb.COMMIT:
            self._commit()
        elif query.verb is QueryVerb.ROLLBACK:
            self._abandon()
            self._close()
        elif query.verb is QueryVerb.SAVEPOINT:
            kept.savepoint(query.name)
        elif query.verb is QueryVerb.ROLLBACK_TO:
            if not kept.back_to(query.name):
                raise _misplaced(query)
        elif query.verb is QueryVerb.STATEMENT:
            kept.add(ev.QUERY, plain_body(query.sql, event, data))
        elif query.verb not in (QueryVerb.RELEASE, QueryVerb.XA_END):
            raise _misplaced(query)

    def _tell(self, sql: bytes, event: Event, data: bytes) -> None:
        """A statement, to whoever reads them."""
        if self._passed or self._begin.void:
            return
        for change in self._statements.run(text_of(event, data, sql, str(self._log), self.place)):
            self._feed.change(change)
        self._feed.tables.anew()

    # --- XA and savepoints ------------------------------------------------------------------------------------------

    def _keep(self, *, xa: bool) -> Kept:
        """From here on it is not known which changes count."""
        self._handlers = self._keeping
        return self._keeper.begin(Again(self._starts, self._handed.read), xa=xa)

    def _on_xa_prepare(self, event: Event, data: bytes) -> None:
        xid, at_once = begins.prepared_of(event, data)
        kept = self._keeper.kept
        if kept is None or not self._keeper.is_xa:
            raise BinlogError(f"XA_PREPARE of {xid} in a transaction that is none of XA")
        if at_once and self._passed:
            self._keeper.drop()
        elif at_once:
            self._commit()
            return
        else:
            self._keeper.take()
            self._shelf.prepare(xid, kept)
        self._close()

    def _decide(self, query: Query) -> None:
        """XA COMMIT or XA ROLLBACK."""
        assert query.xid is not None
        kept = self._shelf.take(query.xid)
        if query.verb is QueryVerb.XA_COMMIT and not self._passed:
            if kept is None:
                raise without_rows(query.xid)
            self._replay(kept)
        elif kept is not None:
            kept.close()
        self._close()

    def _replay(self, kept: Kept) -> None:
        """Decode what was kept as if it stood here."""
        self._handlers = self._inside
        for kind, body in kept.events():
            self._dispatch(Event(kind, 0, 0, 0, 0, 0, len(body)), body)
        kept.close()


def _misplaced(query: Query) -> BinlogError:
    return BinlogError(f"QUERY {query.verb.name} where no transaction can have it")  # its text may hold rows
