"""The queue, read by snapshots: what was committed between two of them is one transaction of the trail.

    settled   one look, in one snapshot s2: is there anything that s2 sees and the last one, s1, does not? Do the tables
              still have the shapes that were noted? Then s2 is kept as a tick, with a commit that waits for the disk
    changes   the rows between s1 and s2 by their numbers, from a cursor that holds neither a lock nor a snapshot
    forget    older ticks, then the rows that the released tick's snapshot sees, and no others (CW-29, CW-30)

Rule: the trail says which tick was handed over last, and the tick of that number says by its state that this is the
database, and the history of it, that the trail comes from. A tick that the trail does not have is passed over.

The tick's commit lies behind those of all that its snapshot sees. So once it is on the disk they are too, also where
the application commits asynchronously: the source can't forget, by a loss of power, what the trail has. Where the
database has a synchronous standby the commit waits for that as well, so a failover to it is gone on with.

Order. What waits for another transaction's end takes higher numbers than that one, so within one tick numbers are an
order in which each row and each table went through its changes. One statement is the exception: the triggers for its
rows fire when it has changed all of them, and a trigger that changes a row of the same statement is logged before that
row's own change (`depth`). Such rows are put right by where they stood and stand (`old_at`, `new_at`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from extract.segments import PIECE_BYTES, Emptied, Piece, Row, Run, SourceSegment
from extract.sources.postgres import ddl as pgddl
from extract.sources.postgres.driver import PassingError, Session
from extract.sources.postgres.tables import QUEUE_SCHEMA as SCHEMA
from extract.sources.postgres.triggers import install
from extract.sources.postgres.triggers.check import LOAD, Lost, check_history, lost_triggers
from extract.sources.postgres.triggers.install import LOG, NOW_US, SHAPE, TICK, QueueSize
from extract.sources.postgres.triggers.rowtext import fields
from extract.sources.postgres.triggers.shapes import NotedShape, QueueTable, noted, of_rows, only_adds
from extract.sources.postgres.triggers.snapshot import Tick, XidSnapshot, between, seen
from extract.sources.postgres.typeparts import TypesWatch
from trails.ddl import DdlChange
from trails.errors import AwayError, MismatchError, OperatorError
from trails.record import Op, TableDef
from trails.runtime.home.registration import Registered

LOOK_SECONDS: Final = 0.05
CHECK_SECONDS: Final = 10.0
COUNT_SHARE: Final = 20
"""What waits is counted so seldom that it takes at most one part in so many of the time."""
SHAPES: Final = "docs/trigger-source.md#changes-of-shape"
FETCH_ROWS: Final = 2000
FETCH_BYTES: Final = 4 << 20
FORGET_ROWS: Final = 20_000
MOST_DUE: Final = 5
LOCK_MS: Final = 3000
ANSWER_SECONDS: Final = 600.0
"""A look at a long queue takes its time, and a tick's commit may wait for a standby."""
_LOCK_TIMEOUT: Final = "55P03"
MOST_MOVED: Final = 200_000
"""So many rows of one tick may have been logged before the change that came first."""
_IMAGES: Final = {b"I": (True, False), b"U": (True, True), b"D": (False, True)}
"""Which rows an operation has: the new one, the old one."""
_INSERT, _UPDATE, _DELETE = int(Op.INSERT), int(Op.UPDATE), int(Op.DELETE)
_SESSION: Final = (
    "SET trailgate.reader = 'on'",
    "SET synchronous_commit = on",
    "SET enable_seqscan = off",
    "SET jit = off",
)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TriggerCapture:
    """What the parameter file makes of tables: which are captured (`tells`: named for the operator, `gives`: their rows
    go to the sink), whose updates carry their whole old rows, which changes of shape go into the trail.

    `seed`: the heartbeat's table.
    """

    tells: Callable[[str, str], bool]
    gives: Callable[[str, str], bool]
    befores: Callable[[str, str], bool]
    wants: Callable[[DdlChange], bool]
    seed: str


@dataclass(frozen=True, slots=True)
class QueueLook:
    """What stands between two snapshots. `largest`: bytes of the longest row; `nested`: some were logged by depth."""

    tick: Tick
    rows: int
    newest_us: int
    largest: int
    total: int
    nested: bool
    relids: tuple[int, ...]
    seeds: tuple[int, ...]
    seeds_us: int


@dataclass(frozen=True, slots=True)
class LoggedRow:
    """A row of the queue, or of `shape` (op S)."""

    id: int
    xid: bytes
    relid: int
    op: bytes
    old: bytes | None
    new: bytes | None
    old_at: bytes | None = None
    new_at: bytes | None = None


class TriggerReader:
    """The queue as segments; extract.segments.Method says what each method does."""

    def __init__(
        self,
        url: str,
        application: str,
        registered: Registered,
        capture: TriggerCapture,
        say: Say,
        types: TypesWatch,
    ) -> None:
        """`say` takes a line for the operator."""
        self._types = types
        self._url, self._application, self._registered = url, application, registered
        self._capture = capture
        self._say = say
        self._session: Session | None = None
        self._last = Tick(XidSnapshot(0, 0), 0)  # what was handed over whole
        self._next: tuple[int, Tick] | None = None  # what is being handed over
        self._looked: QueueLook | None = None
        self._tables: dict[int, QueueTable] = {}
        self._prints: dict[int, str] = {}
        self._odd: set[int] = set()
        self._told: set[str] = set()
        self._check_due = self._count_due = 0.0
        self.kept: QueueSize | None = None
        """As it was counted last."""
        self.backlog_rows = self.backlog_bytes = 0
        """What the last look has found, and is handed over since."""

    # --- the method's verbs -------------------------------------------------------------------------------------------

    def open(self, after: int, state: str) -> None:
        self.close()
        self._session = Session(self._url, self._application, ANSWER_SECONDS)
        for statement in _SESSION:
            self._session.query(statement)
        self._alone()
        self._last = check_history(self._session, self._registered, after, state)
        self._next = None

    def _alone(self) -> None:
        """Keep out every other reader while this session lasts: each would delete what the other one has not read.

        It may be the session of a killed process, which the server still thinks alive.
        """
        try:
            self.session.query(f"SET lock_timeout = {LOCK_MS}")
            self.session.query("SELECT pg_advisory_lock(hashtextextended($1, 0))", SCHEMA)
            self.session.query("SET lock_timeout = 0")
        except PassingError as error:
            if error.state != _LOCK_TIMEOUT:
                raise
            raise AwayError(
                "the source's queue is being read by another session",
                hint="If no other Extract runs with this one's home, end that session: pg_locks has it, as advisory",
            ) from error

    def close(self) -> None:
        session, self._session = self._session, None
        self._tables.clear()
        self._prints.clear()
        if session is not None:
            session.close()

    def pause(self) -> float:
        return LOOK_SECONDS

    def settled(self, after: int) -> SourceSegment | None:
        if self._next is not None and self._next[0] == after:
            self._last = self._next[1]
        self._watch()
        if self._last.due:
            return self._heartbeat(self._last)
        self.session.query("BEGIN ISOLATION LEVEL REPEATABLE READ")
        found = self._settle()
        self.session.query("ROLLBACK" if found is None else "COMMIT")
        return found

    def _settle(self) -> SourceSegment | None:
        look = self._look()
        if (border := self._first_beat(look)) is not None:
            look = self._look(border)
        self.backlog_rows, self.backlog_bytes = look.rows, look.total
        if not (look.rows or look.seeds) or not self._check_shapes(look):
            return None
        tick = look.tick if look.rows else Tick(look.tick.snapshot, look.tick.at_us)
        self._looked = look
        return self._segment(tick, look.newest_us if look.rows else look.seeds_us)

    def changes(self, after: int, segment: SourceSegment) -> Iterator[Piece]:  # noqa: ARG002  -- `settled` noted it
        assert self._next is not None
        tick, look = self._next[1], self._looked
        if look is None or not look.rows:
            yield from self._beats(tick if look is None else look.tick)
            return
        moved = self._moved(look) if look.nested else {}
        yield from self._pieces(self._rows(look), moved)

    def forget(self, upto: int) -> bool:
        rows = self.session.query(f"SELECT state FROM {TICK} WHERE tick = $1", upto)
        if not rows:
            return False
        # First the older ticks: as long as one is there, so is all behind it, and a trail that ends there can go on.
        self.session.query(f"DELETE FROM {TICK} WHERE tick < $1", upto)
        tick = Tick.of(rows[0][0] or "")
        due = f" AND xid <> ALL ('{{{','.join(map(str, tick.due))}}}'::xid8[])" if tick.due else ""
        (gone,) = self.session.one(
            f"WITH gone AS (DELETE FROM {LOG} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {LOG} "
            f"WHERE {seen(tick.snapshot)}{due} LIMIT {FORGET_ROWS})) RETURNING 1) SELECT count(*) FROM gone"
        )
        return int(gone or 0) == FORGET_ROWS

    # --- a look -------------------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The connection."""
        if self._session is None:
            raise AwayError("the source database is closed")
        return self._session

    def _first_beat(self, look: QueueLook) -> XidSnapshot | None:
        """Up to the first heartbeat between the last snapshot and this one, where it says what was before it.

        Not one with other rows in its transaction: they may build upon what was committed since that snapshot.
        """
        if not look.seeds:
            return None
        rows = self.session.query(
            f"SELECT xid, snapshot FROM {LOG} l WHERE xid = ANY ($1::xid8[]) AND relid = to_regclass($2) "
            f"AND snapshot IS NOT NULL AND NOT EXISTS (SELECT FROM {LOG} o WHERE o.xid = l.xid AND o.relid <> l.relid) "
            "ORDER BY id LIMIT 1",
            f"{{{','.join(map(str, look.seeds))}}}", self._capture.seed,
        )  # fmt: skip
        if not rows:
            return None
        border = XidSnapshot.of(rows[0][1] or "").seeing(int(rows[0][0] or 0))
        return border if border.covers(self._last.snapshot) else None

    def _look(self, upto: XidSnapshot | None = None) -> QueueLook:
        snapshot, now = self.session.one(f"SELECT pg_current_snapshot()::text, {NOW_US}")
        s2 = upto or XidSnapshot.of(snapshot or "")
        newest = "(extract(epoch FROM max(at)) * 1000000)::bigint"
        rows = self.session.query(
            f"SELECT relid = to_regclass($1) IS TRUE, count(*), {newest}, max(size), sum(size), bool_or(depth > 1), "
            "string_agg(DISTINCT relid::text, ','), string_agg(DISTINCT xid::text, ',') FILTER "
            f"(WHERE relid = to_regclass($1)) FROM (SELECT relid, xid, at, depth, coalesce(octet_length(old), 0) + "
            f"coalesce(octet_length(new), 0) AS size FROM {LOG} WHERE {between(self._last.snapshot, s2)} UNION ALL "
            f"SELECT relid, xid, clock_timestamp(), 0, 0 FROM {SHAPE} WHERE {between(self._last.snapshot, s2)}) b "
            "GROUP BY 1",
            self._capture.seed,
        )
        facts = next((row for row in rows if row[0] != "t"), None)
        beats = next((row for row in rows if row[0] == "t"), None)
        seeds = tuple(sorted(int(xid) for xid in (beats[7] or "").split(",") if xid))[-MOST_DUE:] if beats else ()
        tick = Tick(s2, int(now or 0), seeds)
        seeds_us = int(beats[2] or 0) if beats else 0
        if facts is None:
            return QueueLook(tick, 0, 0, 0, 0, False, (), seeds, seeds_us)
        _, count, at, largest, total, nested, relids, _ = facts
        some = tuple(int(oid) for oid in (relids or "").split(","))
        return QueueLook(
            tick, int(count or 0), int(at or 0), int(largest or 0), int(total or 0), nested == "t", some, seeds,
            seeds_us,
        )  # fmt: skip

    def _segment(self, tick: Tick, time_us: int) -> SourceSegment:
        """Keep the tick, in the transaction of the look. No number is used twice, whatever became of the last one."""
        (made,) = self.session.one(
            f"INSERT INTO {TICK} SELECT max(tick) + 1, $1 FROM {TICK} RETURNING tick", tick.state
        )
        number = int(made or 0)
        self._next = number, tick
        return SourceSegment(number, csn_text(number), str(number), time_us, tick.state)

    def _heartbeat(self, last: Tick) -> SourceSegment:
        """The heartbeats that the last tick has left: in a transaction of their own, behind all that it had."""
        tick = Tick(last.snapshot, last.at_us)
        self._looked = None
        return self._segment(tick, last.at_us)

    def _check_shapes(self, look: QueueLook) -> bool:
        """Whether the tables of the rows have the shapes that were noted. Raises OperatorError where they have not.

        Parts of a shape are told by the server's cache, which may be newer than the snapshot: so one look more decides.
        """
        rows = self.session.query(
            f"SELECT r, coalesce({SCHEMA}.print_of(r), '') FROM unnest(string_to_array($1, ',')::oid[]) r",
            ",".join(map(str, look.relids)),
        )
        prints = {int(oid or 0): found or "" for oid, found in rows}
        for relid, found in prints.items():
            if self._prints.get(relid) == found:
                continue
            if why := self._differs(relid):
                if relid not in self._odd:
                    self._odd.add(relid)
                    return False
                raise OperatorError(why[0], hint=why[1])
            self._odd.discard(relid)
            self._prints[relid] = found
        return True

    def _differs(self, relid: int) -> tuple[str, str] | None:
        """(what is wrong, what mends it) with the shape that was noted last."""
        shapes = self._shapes(relid)
        (text,) = self.session.one(f"SELECT {SCHEMA}.shape_of($1::bigint::oid)::text", relid)
        now = None if text is None else noted(("0", str(relid), text, None))
        name = now.full_name if now else ""
        if now is not None and now.shape and not self._capture.gives(now.shape["schema"], now.shape["name"]):
            return None
        if not shapes:
            return f"table {name or relid} has triggers, but its shape is not known: it is a new partition", (
                f"ADD TRANDATA {name}, TRIGGERLOG, then START; nothing is lost"
            )
        if now is not None and shapes[-1].shape is not None and of_rows(now.shape or {}) != of_rows(shapes[-1].shape):
            return f"table {name} changed its shape at the source, and nothing has told of it in the queue", (
                f"ADD TRANDATA {name}, TRIGGERLOG, then START; see {SHAPES}"
            )
        return None

    def _shapes(self, relid: int) -> list[NotedShape]:
        rows = self.session.query(
            f"SELECT id, relid, shape::text, message::text FROM {SHAPE} WHERE relid = $1::bigint::oid ORDER BY id",
            relid,
        )
        return [noted(row) for row in rows]

    # --- now and then -------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look after the triggers and the parts of types, and count what waits."""
        now = time.monotonic()
        if now >= self._check_due:
            self._check_due = now + CHECK_SECONDS
            self._check_triggers()
            if (look := self._types.look(self.session)) is not None:
                self._types.settle(look)
        if now >= self._count_due:
            self.kept = install.waiting(self.session)
            took = time.monotonic() - now
            self._count_due = now + took + max(CHECK_SECONDS, COUNT_SHARE * took)

    def _check_triggers(self) -> None:
        for table, how in lost_triggers(self.session, self._capture.gives, self._capture.tells):
            if how is Lost.MISSED:
                raise OperatorError(
                    f"the triggers of table {table} are not those that were made: changes of it were missed",
                    hint=f"ADD TRANDATA {table}, TRIGGERLOG, then START; {LOAD}",
                )
            if table not in self._told:
                self._told.add(table)
                self._say(f"table {table} has no triggers and is not captured: ADD TRANDATA {table}, TRIGGERLOG")

    # --- pieces -------------------------------------------------------------------------------------------------------

    def _source(self, look: QueueLook) -> str:
        """The rows of a look, as a query's FROM; those of heartbeats left out."""
        where = between(self._last.snapshot, look.tick.snapshot)
        seed = self._capture.seed.replace("'", "''")
        return (
            f"(SELECT id, xid, relid, op, depth, old_at, new_at, old, new FROM {LOG} WHERE {where} "
            f"AND (relid = to_regclass('{seed}')) IS NOT TRUE UNION ALL "
            f"SELECT id, xid, relid, 'S', 0, NULL, NULL, NULL, NULL FROM {SHAPE} WHERE {where}) b"
        )

    def _rows(self, look: QueueLook) -> Iterator[LoggedRow]:
        self.session.query(
            "DECLARE batch NO SCROLL CURSOR WITH HOLD FOR SELECT id, xid, relid, op, old, new, old_at, new_at "
            f"FROM {self._source(look)} ORDER BY id"
        )
        try:
            count = max(1, min(FETCH_ROWS, FETCH_BYTES // max(1, look.largest)))
            while rows := self.session.raw(f"FETCH {count} FROM batch"):
                for row in rows:
                    yield _logged(row)
        finally:
            if self._session is not None:
                self.session.query("CLOSE batch")

    def _moved(self, look: QueueLook) -> dict[int, int]:
        """Of each row that was logged before the change that it builds upon: the number of that one.

        No statement goes on over a TRUNCATE or a change of shape, behind which other rows stand in the same places.
        """
        rows = self.session.query(
            f"WITH b AS MATERIALIZED (SELECT id, xid, relid, op, depth, old_at, new_at FROM {self._source(look)}) "
            "SELECT late.id, early.id FROM b late JOIN b early ON early.xid = late.xid AND early.relid = late.relid "
            "AND early.new_at = late.old_at AND early.id > late.id WHERE late.depth > 1 AND NOT EXISTS (SELECT FROM b "
            "WHERE b.op IN ('T', 'S') AND b.xid = late.xid AND b.relid = late.relid "
            f"AND b.id BETWEEN late.id AND early.id) LIMIT {MOST_MOVED + 1}"
        )
        if len(rows) > MOST_MOVED:
            raise OperatorError(
                f"triggers of the application changed more than {MOST_MOVED} rows of one statement while it ran: more "
                "than can be put in order",
                hint="ALTER EXTRACT, BEGIN NOW leaves them out; see docs/trigger-source.md#limits",
            )
        return {int(late or 0): int(early or 0) for late, early in rows}

    def _beats(self, tick: Tick) -> Iterator[Piece]:
        """The rows of heartbeats."""
        due = self._last.due or tick.due
        seed = self._capture.seed.replace("'", "''")
        rows = self.session.raw(
            f"SELECT id, xid, relid, op, old, new, old_at, new_at FROM {LOG} "
            f"WHERE xid = ANY ('{{{','.join(map(str, due))}}}'::xid8[]) AND relid = to_regclass('{seed}') ORDER BY id"
        )
        yield from self._pieces(map(_logged, rows), {})

    def _pieces(self, rows: Iterator[LoggedRow], moved: dict[int, int]) -> Iterator[Piece]:
        made = _PieceMaker(self._table, self._shape_change)
        for row in in_order(rows, moved):
            made.take(row)
            if made.size >= PIECE_BYTES:
                yield made.piece()
        made.flush()
        yield made.piece()

    def _table(self, row: LoggedRow, width: int | None) -> QueueTable:
        """The table of a row with so many fields, as of its place."""
        known = self._tables.get(row.relid)
        if known is not None and (width is None or known.width == width):
            return known
        shapes = self._shapes(row.relid)
        earlier = [one for one in shapes if one.id < row.id] or shapes[:1]
        now = earlier[-1] if earlier else None
        if now is None or now.shape is None:
            raise MismatchError(
                f"change {row.id} of the source's queue is of a table with oid {row.relid}, of which no shape is noted",
                hint=f"Somebody has changed the queue: {LOAD}",
            )
        later = next((one for one in shapes if one.id > row.id), None)
        has = len(now.shape["columns"])
        if width is not None and width > has and later is not None and only_adds(now.shape, later.shape):
            now, has = later, min(width, _width(later))
        if width is not None and width != has:
            raise OperatorError(
                f"change {row.id} of table {now.full_name} has {width} columns, expected {has}: its shape has changed, "
                "and nothing has told of it in the queue",
                hint=f"ADD TRANDATA {now.full_name}, TRIGGERLOG, then START; see {SHAPES}",
            )
        made = self._tables[row.relid] = QueueTable(now, has, self._capture.gives, self._capture.befores)
        return made

    def _shape_change(self, row: LoggedRow) -> list[DdlChange]:
        """A shape was noted here: what follows has it. A change of shape that somebody wants to hear of is told."""
        self._tables.pop(row.relid, None)
        shapes = [one for one in self._shapes(row.relid) if one.id <= row.id]
        now, before = shapes[-1], shapes[-2] if len(shapes) > 1 else None
        if now.is_known_late and before is not None and before.shape is not None and now.shape is not None:
            same = of_rows(now.shape) == of_rows(before.shape) or only_adds(before.shape, now.shape)
            if not same and self._capture.gives(now.shape["schema"], now.shape["name"]):
                raise OperatorError(
                    f"table {now.full_name} changed its shape while changes of it waited in the queue, and nothing "
                    "tells which came first",
                    hint=f"ALTER EXTRACT, BEGIN NOW: {LOAD}",
                )
        if not now.message or "op" not in now.message:
            return []
        change = pgddl.parse(now.message, f"change {row.id} of the source's queue")[1]
        return [change] if self._capture.wants(change) else []


class _PieceMaker:
    """Makes runs of rows. TRUNCATE is logged table by table: what one statement emptied is told as one."""

    def __init__(
        self, table: Callable[[LoggedRow, int | None], QueueTable], shape: Callable[[LoggedRow], list[DdlChange]]
    ) -> None:
        self._table = table
        self._shape = shape
        self._runs: list[Run] = []
        self._emptied: dict[bytes, list[LoggedRow]] = {}  # by transaction
        self._relids: set[int] = set()
        self.size = 0

    def take(self, row: LoggedRow) -> None:
        """The next row."""
        if row.op == b"T":
            self._emptied.setdefault(row.xid, []).append(row)
            self._relids.add(row.relid)
            return
        if self._emptied and (row.relid in self._relids or row.xid in self._emptied):
            self.flush()
        if row.op == b"S":
            self._runs += self._shape(row)
            return
        new = None if row.new is None else fields(row.new)
        old = None if row.old is None else fields(row.old)
        given = new if new is not None else old
        if given is None or _IMAGES.get(row.op) != (new is not None, old is not None):
            raise MismatchError(
                f"change {row.id} of the source's queue is none that its triggers write (op {row.op.decode()!r})",
                hint=f"Somebody has changed the queue: {LOAD}",
            )
        table = self._table(row, len(given))
        if table.definition is None:
            return
        for other in (new, old):
            if other is not None and len(other) != len(given):
                raise MismatchError(
                    f"change {row.id} of table {table.noted.full_name} has {len(given)} columns, then {len(other)}",
                    hint=f"Somebody has changed the queue: {LOAD}",
                )
        self._add(table.definition, _row(table, new, old))
        self.size += len(row.new or b"") + (len(row.old or b"") if row.new is None or table.befores else 0) + 16

    def _add(self, definition: TableDef, row: Row) -> None:
        last = self._runs[-1] if self._runs else None
        if isinstance(last, tuple) and last[0] is definition:
            last[1].append(row)  # type: ignore[attr-defined]  # it is the list that was made here
        else:
            self._runs.append((definition, [row]))

    def flush(self) -> None:
        """Put out what was emptied."""
        for rows in self._emptied.values():
            tables = [self._table(row, None).definition for row in rows]
            if found := tuple(dict.fromkeys(one for one in tables if one is not None)):
                self._runs.append(Emptied(found))
                self.size += 16
        self._emptied.clear()
        self._relids.clear()

    def piece(self) -> Piece:
        """What was gathered."""
        made = Piece(self._runs, self.size)
        self._runs, self.size = [], 0
        return made


def _width(shape: NotedShape) -> int:
    return len(shape.shape["columns"]) if shape.shape else 0


def _row(table: QueueTable, new: list[Any] | None, old: list[Any] | None) -> Row:
    if new is None or old is None:
        return (_INSERT if old is None else _DELETE), table.image(new or old or [])
    after, before = table.image(new), table.image(old)
    alike = table.key and not table.befores and all(before[i] == after[i] for i in table.key)
    return _UPDATE, after, None if alike else before


def _logged(row: Sequence[bytes | None]) -> LoggedRow:
    number, xid, relid, op, old, new, old_at, new_at = row
    return LoggedRow(int(number or 0), xid or b"", int(relid or 0), op or b"", old, new, old_at, new_at)


def in_order(rows: Iterator[LoggedRow], moved: dict[int, int]) -> Iterator[LoggedRow]:
    """The rows, each behind the one that it builds upon. What must wait is kept until that has come.

    `moved` has those that come before it; what builds upon a row that waits has to wait for it too.
    """
    if not moved:
        yield from rows
        return
    waits: dict[int, list[LoggedRow]] = {}
    kept: dict[tuple[bytes, int, bytes | None], int] = {}
    for row in rows:
        early = moved.get(row.id) or kept.get((row.xid, row.relid, row.old_at))
        if early is not None:
            waits.setdefault(early, []).append(row)
            if row.new_at is not None:
                kept[row.xid, row.relid, row.new_at] = row.id
            continue
        todo = [row]
        while todo:
            one = todo.pop()
            kept.pop((one.xid, one.relid, one.new_at), None)
            yield one
            todo += reversed(waits.pop(one.id, []))


def csn_text(tick: int) -> str:
    """A tick as a CSN: texts sort as the numbers do."""
    return f"{tick:020d}"
