"""What a Replicat loads, and how far it is: the part of the process that takes turns with applying changes.

    waiting      nothing is copied; the chunks are to be planned
    copying      chunks are planned, some are copied
    catching up  all are copied; a change may still come that a chunk's snapshot sees
    live         none can come any more: the table is like any other
    failed       somebody must act; its changes are left out, as its chunks are planned

Rule: a round and a batch are never under way together, so what a batch's plans say of chunks is true until it commits.
Another process cannot break this either: a chunk commits only under the fence that its round began with, and a batch
only while no chunk has committed that its plans do not know (loadtables.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from replicat.load.chunk import Must
from replicat.load.loadtables import (
    CATCHING_UP,
    COPYING,
    FAILED,
    LIVE,
    NONE,
    WAITING,
    ChunkRow,
    LoadRow,
    LoadState,
    LoadTables,
    Statement,
    TableRow,
    again,
)
from replicat.load.progress import LoadProgress
from replicat.model.again import PlaceLostError
from replicat.model.loading import LoadAgainError, LoadFailedError, Loading, Seen, ordered
from replicat.model.plan import TablePlan
from replicat.model.target import CheckpointRow, RefusedError, Truncate
from replicat.reading.contract import KeyBounds
from replicat.targets.contract import Target
from trails.ddl import DdlChange, TableShape
from trails.errors import OperatorError
from trails.position import Position
from trails.record import Column, TableDef

LATE = (" FOREIGN KEY ", " UNIQUE ")
"""What may not hold before all tables are live: two rows of chunks may have been copied at two moments."""
Pair = tuple[str, str]
Note = Callable[[str], None]


class Load:
    """The tables of one group that are loaded, as the target has them."""

    def __init__(
        self,
        target: Target,
        tables: LoadTables | None,
        note: Note,
        warn: Note,
        now_us: Callable[[], int],
        places: Callable[[str, str], Sequence[Pair]],
    ) -> None:
        """`tables`: None where there can be none. `places`: the target tables to which MAPs take a source table."""
        self._target = target
        self._places = places
        self._tables = tables
        self._note = note
        self._warn = warn
        self._now_us = now_us
        self.there = False
        """Whether the load's tables exist, since the last look: else nothing of this is asked for."""
        self._state = LoadState()
        self.progress = LoadProgress()
        self._postponed: Pair = ("", "")
        self._proved = Must()  # of what was left out: snapshots were seen to see it
        self.by_xid: Callable[[], bool] = lambda: True
        """Whether the source's snapshots are told by numbers of transactions."""
        self.branch: Callable[[], str | None] = lambda: None
        """The branch of the source's history that the trail's last file is of; None where there is no file."""
        self._waits: set[str] = set()  # of the open transaction
        self._reshaped = False  # by it, some table
        self._asked = False  # to look, and did not yet

    # What there is

    def look(self) -> None:
        """Read the tables anew: after each connection, and after each round."""
        self._waits.clear()
        self._reshaped = self._asked = False
        self.there = self._tables is not None and bool(self._target.read(*self._tables.there()))
        self._state = self.statements.read(self._target.read) if self.there else LoadState()
        self.progress.seen(self._state)

    @property
    def statements(self) -> LoadTables:
        """Those of the group's tables, which exist."""
        assert self._tables is not None
        return self._tables

    @property
    def tables(self) -> tuple[TableRow, ...]:
        """Each table's row."""
        return self._state.tables

    @property
    def active(self) -> bool:
        """Whether some table is not live."""
        return any(row.state != LIVE for row in self._state.tables)

    def is_loading(self, pair: Pair) -> bool:
        """Whether a table is not live, or not yet."""
        return any(row.pair == pair and row.state != LIVE for row in self._state.tables)

    def loads(self) -> set[Pair]:
        """The tables whose rows are copied, or whose load is not settled yet."""
        return {row.pair for row in self._state.tables if row.state not in (LIVE, FAILED)}

    def chunks_of(self, pair: Pair) -> list[ChunkRow]:
        """A table's chunks, in order."""
        return self._state.by_pair.get(pair, [])

    def ask(self) -> None:
        """Somebody has named tables: until the next look nobody knows which are to be copied."""
        self._asked = True

    def check_told(self) -> None:
        """Raises PlaceLostError where somebody has named tables to be loaded, and told nobody."""
        found = self._target.read(self.statements.counted()) if self.there else []
        if found and int(found[0][0]) != self._state.load.chunks:
            raise PlaceLostError("tables are to be loaded, or were loaded, since the target was looked at")

    def next_table(self) -> TableRow | None:
        """The table whose chunks are to be planned or copied next: one after the other."""
        wanted = [row for row in self._state.tables if row.state in (WAITING, COPYING)]
        last = self._postponed
        return min(wanted, key=lambda row: (row.pair == last, row.state != COPYING, row.pair), default=None)

    def named(self, *states: str) -> list[str] | None:
        """The source's names of the tables in these states; None for no table."""
        if self._asked:
            return ["those that were named just now"] if WAITING in states else None
        return [row.source for row in self._state.tables if row.state in states] or None

    def planned(self, pair: Pair) -> list[tuple[ChunkRow, tuple[str, ...] | None]]:
        """The chunks still to be copied, each with the beginning of the next one."""
        chunks = self.chunks_of(pair)
        ends = [*(chunk.low for chunk in chunks[1:]), None]
        return [(chunk, end) for chunk, end in zip(chunks, ends, strict=True) if not chunk.seen]

    def must(self, row: CheckpointRow) -> Must:
        """What the snapshots of the next round must see."""
        return Must(row.csn, self._state.load.left_out, self._state.load.below)

    @property
    def fence(self) -> int:
        """Under which the next round's chunks commit."""
        return self._state.load.fence

    # Judging

    def judging(self, plan: TablePlan, definition: TableDef) -> TablePlan:
        """The plan with the table's chunks, if it is being loaded."""
        found = next((row for row in self._state.tables if row.pair == (plan.source, plan.target)), None)
        if found is None or found.state == LIVE or plan.error:
            return plan
        return replace(plan, loading=self._loading(found, definition))

    def _loading(self, row: TableRow, definition: TableDef) -> Loading:
        chunks = self.chunks_of(row.pair)
        if not chunks:
            return Loading()
        orders = chunks[0].orders
        names = [row.definition.columns[i].name for i in row.definition.key[: len(orders)]]
        # The trail may take a key for none, where it is not sure of it: then each change has its whole old row.
        places = {column.name: i for i, column in enumerate(definition.columns)}
        if not all(name in places for name in names):
            raise OperatorError(
                f"{row.source} lacks a key column that it had when its load began: expected {', '.join(names)}",
                hint="INSTANTIATE the table again",
            )
        columns = tuple(places[name] for name in names)
        lows = tuple(ordered(orders, chunk.low) for chunk in chunks[1:])
        return Loading(columns, orders, lows, tuple(Seen.parse(c.seen) if c.seen else None for c in chunks))

    # In a batch's transaction

    def check(self) -> None:
        """The row has moved: a batch may go by what is known of the tables. Raises PlaceLostError, LoadAgainError."""
        self._check_known()
        self.check_branch()

    def _check_known(self) -> None:
        """No chunk has committed that the plans do not know. Raises PlaceLostError."""
        self._waits.clear()
        found = self._target.read(self.statements.locked())
        if found and int(found[0][0]) != self._state.load.chunks:
            raise PlaceLostError("a chunk was copied, or a table was to be loaded, since the batch was planned")

    def check_branch(self) -> None:
        """Raises LoadAgainError where chunks are of another branch of the source's history than the trail is by now.

        A chunk may have what the new server never had; and the trail may have again, in new words, what a chunk has.
        """
        begun = [table for table in self._state.tables if table.state in (COPYING, CATCHING_UP)]
        now = self.branch() if begun else None
        for table in begun:
            if now is not None and table.branch != now:
                why = f"its source failed over to another server: from {table.branch} to {now}"
                raise LoadAgainError(table.source, self._place_of(table), why)

    def left_out(self, xids: Iterable[str]) -> None:
        """Transactions of which the open batch leaves a change out, because a chunk is planned."""
        self._waits.update(xids)

    def commit(self) -> LoadRow | None:
        """Right before the commit: raise the fence, if something was left out. What `committed` is to be told."""
        if not self._waits or all(row.state in (LIVE, FAILED) for row in self._state.tables):
            return None  # what is loaded next, if anything is, is noted anew
        load = self._state.load
        xids = load.left_out - self._proved.xids
        if self.by_xid():
            xids |= {int(xid) for xid in self._waits if xid.isdecimal()}
        below = NONE if load.below == self._proved.below else load.below
        row = LoadRow(load.fence + 1, load.chunks, xids, below).bounded()
        self._write(self.statements.left_out(row))
        return row

    def committed(self, row: LoadRow | None) -> None:
        """The batch is committed."""
        self._waits.clear()
        if self._reshaped:
            self.look()
        elif row is not None:
            self._state = LoadState(row, self._state.tables, self._state.chunks)
            self._proved = Must()

    def proved(self, must: Must) -> None:
        """A snapshot saw all that it had to."""
        self._proved = must

    # Transactions of its own

    def write(self, row: CheckpointRow, *statements: Statement) -> None:
        """Several writes, or none of them; the checkpoint row stays, and must be ours."""
        self._begin(row)
        for statement in statements:
            self._write(statement)
        self._target.commit()
        self.look()

    def _begin(self, row: CheckpointRow) -> None:
        """What is known of the tables is so still. Raises PlaceLostError: INSTANTIATE or RELOAD came between."""
        self._target.begin(row, row)
        self._check_known()

    def _write(self, statement: Statement) -> int:
        return self._target.write(*statement)

    def plan(self, row: CheckpointRow, table: TableRow, bounds: KeyBounds) -> None:
        """A table's chunks are known."""
        lows = [(), *bounds.lows]
        made = [ChunkRow(*table.pair, number, tuple(low), bounds.orders) for number, low in enumerate(lows)]
        begun = replace(
            table, state=COPYING, reason="", estimate=bounds.estimate, started_us=self._now_us(),
            branch=self.branch() or "",
        )  # fmt: skip
        self.write(row, self.statements.set_table(begun), *map(self.statements.add_chunk, made))
        rows = f"about {bounds.estimate} rows" if bounds.estimate else "its rows"
        self._note(f"Load of {table.source} to {table.target}: {rows} in {len(made)} chunks")

    def postpone(self, row: CheckpointRow, table: TableRow, why: str) -> None:
        """Others go first. `why`: what INFO TABLES is to show of it, as it may last."""
        self._postponed = table.pair
        if why and why != table.reason:
            self.write(row, self.statements.set_table(replace(table, reason=why)))

    def done(self, row: CheckpointRow, table: TableRow) -> None:
        """All chunks are copied: make what waited for that, such as indexes."""
        chunks = self.chunks_of(table.pair)
        late = tuple(statement for statement in table.behind if any(word in statement for word in LATE))
        table = self._made(
            row, replace(table, reason=""), [statement for statement in table.behind if statement not in late]
        )
        ended = replace(
            table, state=CATCHING_UP, rows=sum(chunk.rows for chunk in chunks),
            bytes=sum(chunk.bytes for chunk in chunks), ended_us=self._now_us(),
        )  # fmt: skip
        self.write(row, self.statements.set_table(ended))
        seconds = max(0.001, (ended.ended_us - ended.started_us) / 1e6)
        self._note(f"Load of {table.source} to {table.target}: {ended.rows} rows copied in {seconds:.1f} seconds")

    def _made(self, row: CheckpointRow, table: TableRow, statements: Sequence[str]) -> TableRow:
        """Make each; the table's row then. What the target refuses is told, and stays as the table's reason.

        A statement is off the table's list by the transaction that makes it. Where DDL commits by itself, a kill
        between the two has it made again: the target refuses it by name, and that is told.
        """
        whole = self._target.kind.can.ddl_in_transaction
        for statement in statements:
            fault = ""
            if whole:
                self._begin(row)
            try:
                self._target.ddl((statement,))
            except RefusedError as error:
                fault = f"the target refuses {statement}: {error.shown}"
                self._warn(f"{table.target}: {fault}")
            if not whole:
                self._begin(row)
            left = tuple(one for one in table.behind if one != statement)
            table = replace(table, behind=left, reason="; ".join(filter(None, (table.reason, fault))))
            self._write(self.statements.set_table(table))
            self._target.commit()
        self.look()
        return table

    def fail(self, row: CheckpointRow, error: LoadFailedError) -> None:
        """The table's load needs somebody."""
        for table in self._state.tables:
            if table.pair == error.pair:
                self._warn(
                    f"The load of {table.source} to {table.target} failed: {error}. Mend that, then RELOAD "
                    "TABLE loads it anew; until then its changes are left out"
                )
                failed = replace(table, state=FAILED, reason=str(error))
                gone = self.statements.drop_chunks(table.pair)
                self.write(row, self.statements.left_out(self._raised), gone, self.statements.set_table(failed))

    def tend(self, row: CheckpointRow, origin: Position | None) -> bool:
        """Tables become live once the trail is past all their snapshots; whether one did, or an index was made."""
        self.check_branch()
        ready = [table for table in self._state.tables if table.state == CATCHING_UP and self._is_past(table, origin)]
        if not ready:
            return self._make_late(row)
        statements = []
        for table in ready:
            statements += [
                self.statements.set_table(replace(table, state=LIVE)), self.statements.drop_chunks(table.pair)
            ]  # fmt: skip
            self._note(f"{table.source} to {table.target} is live: all behind its load is applied")
        self.write(row, *statements)
        return True

    def _make_late(self, row: CheckpointRow) -> bool:
        """Foreign keys and unique indexes, once all tables are live; whether there were any.

        An INSTANTIATE that came meanwhile is known by now: what was decoded without knowing it must not be applied.
        """
        late = [] if self.active else [one for one in self._state.tables if one.behind]
        for table in late:
            self._made(row, table, table.behind)
        return bool(late)

    def _is_past(self, table: TableRow, origin: Position | None) -> bool:
        return origin is not None and all(Position.parse(chunk.past) <= origin for chunk in self.chunks_of(table.pair))

    def begin_again(self, row: CheckpointRow, error: LoadAgainError, others: Collection[str]) -> None:
        """Everything that was copied of the table goes, and the load begins anew.

        `others`: source tables whose rows the target table has too. Raises LoadFailedError and RefusedError.
        """
        found = [one for one in self._state.tables if one.target == error.target]
        if {one.source for one in found} | set(others) != {error.source}:
            raise LoadFailedError((error.source, error.target), f"{error.why}, and {error.target} has others' rows too")
        self._begin(row)
        self._target.apply((Truncate((error.place,)),))
        self._write(self.statements.left_out(self._raised))
        for one in found:
            self._write(self.statements.drop_chunks(one.pair))
            self._write(self.statements.set_table(again(one, error.why)))
        self._target.commit()
        self.look()
        self._note(str(error))

    @property
    def _raised(self) -> LoadRow:
        """With it no chunk commits that began before."""
        return replace(self._state.load, fence=self._state.load.fence + 1)

    # Changes of shape

    def reshape(self, change: DdlChange) -> None:
        """A change of shape comes next. Raises LoadAgainError where something was copied of the table before it."""
        for table in self._named(change):
            if any(chunk.seen for chunk in self.chunks_of(table.pair)):
                raise LoadAgainError(table.source, self._place_of(table), "its shape changed while it was loaded")

    def reshaped(self, change: DdlChange, targets: Sequence[str]) -> None:
        """It is applied in the open transaction: the load goes by the new shape. `targets`: where its MAPs go."""
        for table in self._named(change):
            self._reshaped = True
            self._write(self.statements.drop_table(table.pair))
            self._write(self.statements.drop_chunks(table.pair))
            if change.new is not None:
                self._write(self.statements.add_table(_reshaped(table, change.new, targets)))

    def _named(self, change: DdlChange) -> list[TableRow]:
        names = set(change.names)
        return [row for row in self._state.tables if _source(row) in names and row.state != LIVE]

    def _place_of(self, table: TableRow) -> Pair:
        """Schema and name of its target, each of which may have a dot in it. Raises LoadFailedError."""
        for place in self._places(*_source(table)):
            if ".".join(place) == table.target:
                return place
        raise LoadFailedError(table.pair, f"no MAP takes {table.source} to {table.target} any more")


def _source(table: TableRow) -> Pair:
    """Schema and name, each of which may have a dot in it."""
    return table.definition.schema, table.definition.name


def _reshaped(table: TableRow, shape: TableShape, targets: Sequence[str]) -> TableRow:
    """The table's row by its new shape; a table that was renamed may go to another target."""
    columns = tuple(Column(c.name, c.type, c.native, c.name in shape.key) for c in shape.columns)
    target = table.target if table.target in targets or len(targets) != 1 else targets[0]
    definition = TableDef(shape.schema, shape.name, columns)
    planned = table if table.state == FAILED else again(table)
    return replace(planned, source=shape.full_name, target=target, definition=definition)
