"""Changes to blocks: gathers small transactions, and cuts large ones into begin, middle and end.

What is gathered at any time, in one list of records:

    | whole transactions ... | the open one, so far |
                             ^ _open_at

Rules. A block holds either whole transactions (WHOLE) or part of one large one. The open transaction becomes a large
one only when it alone outgrows a block; until then it stays behind when the whole ones before it go out. So memory is
bounded by two blocks and the largest single change. A block never names two shapes of one table: a file that begins
between them would open with the newer only. A transaction without a captured change leaves nothing but its place.

A DDL record gets a block of its own, cut off before and after: it waits alone, with the transaction's begin if it is
the first, until what follows says whether the commit goes with it.

A source holds on to `records` and `cache` (extract/source.py, Sink), so both are only changed in place. The cache is
emptied together with the list of tables, always: an index that it still has is one of the block being gathered.

Changes that TABLE's filters or a switch leave out are dropped when their transaction commits, or before a part of it
goes out: so COMMIT counts what is there, and a transaction without anything left vanishes.

Rows of the heartbeat's seed table never stay among the others: alone in their transaction they become a heartbeat's
block, else they are dropped.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Protocol

from extract.heartbeat import SEED, Heartbeats, split
from extract.source import BLOCK_KIB
from trails.choosing import Choice
from trails.columns import Project, Projection
from trails.ddl import DdlChange
from trails.format import Indicator, bounded
from trails.heartbeat import Beat, block_records
from trails.position import Position
from trails.record import BEGIN, COMMIT, DDL, DELETE, INSERT, TRUNCATE, UPDATE, Op, Record, TableDef
from trails.runtime.report.stats import Stats

BLOCK_BYTES = BLOCK_KIB << 10

Resolved = Callable[[TableDef], None]
Reshaped = Callable[[TableDef, TableDef, str], None]
End = tuple[Position, str, str]
"""Where a transaction ended: origin, CSN and the source's state there."""
_op_and_table = itemgetter(0, 1)
_ROWS = frozenset((INSERT, UPDATE, DELETE))


class Output(Protocol):
    """What of a TrailWriter is used here."""

    def define(
        self, defs: Sequence[TableDef], origin: Position | None = None
    ) -> Sequence[tuple[TableDef, TableDef]]: ...

    def append_data(
        self,
        indicator: Indicator,
        tables: Sequence[bytes],
        records: Sequence[Record],
        *,
        changes: int,
        transactions: int,
        origin: Position,
        csn: str,
        time_us: int,
        ddl: bool = False,
        heartbeat: bool = False,
        state: str = "",
    ) -> None: ...

    def append_place(self, origin: Position, time_us: int | None = None, state: str = "") -> None: ...

    def append_restart(self) -> None: ...


class Assembler:
    """The sink of a source (extract.source.Sink); puts blocks out to a trail writer."""

    def __init__(
        self,
        output: Output,
        origin: Position,
        csn: str,
        state: str = "",
        *,
        block_bytes: int = BLOCK_BYTES,
        stats: Stats | None = None,
        resolved: Resolved = lambda _definition: None,
        reshaped: Reshaped = lambda _old, _new, _csn: None,
        project: Project | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        heartbeats: Heartbeats | None = None,
        leaves_out: Callable[[str], bool] | None = None,
    ) -> None:
        """The first three are of the trail's last complete transaction; `stats` counts what goes out.

        `resolved` is told of each table once, as it goes into the trail. `reshaped` is told where the trail had another
        definition of it, with the CSN of the first transaction that has a row of it.
        `project`: where TABLE has options. Records of such tables are changed when their block goes out.
        `leaves_out`: whether the transaction of a CSN is left out whole; None: none is.
        """
        self.records: list[Record] = []
        self.cache: dict[Any, Any] = {}
        self.time_us = 0
        """Commit time of the last transaction handed over, or the time at which the source said it was idle."""
        self.operations = self.transactions = self.bytes_in = 0
        """Put out and taken in since the start."""
        self.left_out = 0
        """Transactions left out by their CSN."""
        self._leaves_out = leaves_out
        self._leaving_out = False  # the open one
        self._output = output
        self._block_bytes = block_bytes
        self._stats = stats
        self._resolved = resolved
        self._reshaped = reshaped
        self._met: set[tuple[str, str]] = set()
        self._project = project
        self._projections: dict[int, Projection] = {}  # by table index, of the tables with options only
        self._choices: dict[int, Choice] = {}  # of those of them whose changes are chosen
        self._begun: Record = ()  # the last BEGIN
        self._given: list[TableDef] = []  # as the source gave them
        self._tables: list[TableDef] = []  # as they go into the trail
        self._names: dict[tuple[str, str], int] = {}
        self._size = 0
        self._open_size = 0
        self._open_at = 0
        self._is_open = False
        self._first = 0  # where its first change stands, or would stand if none had gone out
        self._began = False  # its begin block went out
        self._ddl: DdlChange | None = None  # what was gathered is this one's block
        self._transactions = 0
        self._reached = origin, state
        self._gathered: End = (origin, csn, state)  # of the last transaction with a change
        self._written: End = self._gathered
        self._commit_us = 0
        self._now_us = now_us
        self._heartbeats = heartbeats
        self._seed: TableDef | None = None  # the seed table, if the open transaction may have rows of it

    def packs(self, records: Any) -> bool:
        """Gather in these, which are `Packed`, from the first record on; False where records are looked into."""
        if self._project is not None or self._leaves_out is not None or self.records:
            return False
        self.records = records
        return True

    @property
    def origin(self) -> Position:
        """Everything that committed before this place was handed over: gathered, written, or not captured."""
        return self._reached[0]

    @property
    def state(self) -> str:
        """What the source said with that place."""
        return self._reached[1]

    @property
    def in_transaction(self) -> int | None:
        """Changes of the open transaction so far; None if there is none."""
        return len(self.records) - self._first if self._is_open else None

    @property
    def open_transaction(self) -> tuple[str, str] | None:
        """(CSN, transaction id) of the open transaction; None if there is none."""
        return (str(self._begun[1]), str(self._begun[2])) if self._is_open else None

    @property
    def has_whole(self) -> bool:
        """Whether `cut` has something to put out."""
        return self._open_at > 0

    @property
    def is_empty(self) -> bool:
        """Nothing gathered and nothing open: the source's place is the trail's."""
        return not self.records and not self._is_open

    # What a source calls

    def table(self, definition: TableDef) -> int:
        """The index of a table in the block that is being gathered."""
        name = (definition.schema, definition.name)
        if self._heartbeats is not None and name == self._heartbeats.seed:
            self._seed = definition
            return SEED
        if self._ddl is not None:
            self._put_out_part()
        index = self._names.get(name)
        if index is not None and self._given[index] != definition:
            self._put_out_all()
            index = None
        if index is None:
            projection = None if self._project is None else self._project(definition)
            index = self._names[name] = len(self._tables)
            self._given.append(definition)
            self._tables.append(definition if projection is None else projection.definition)
            if projection is not None:
                self._projections[index] = projection
                if projection.choice is not None:
                    self._choices[index] = projection.choice
            if name not in self._met:
                self._met.add(name)
                self._resolved(self._tables[index])
        return index

    def keeps(self, definition: TableDef, column: int) -> bool:
        """Whether the trail gets this column of the table."""
        projection = None if self._project is None else self._project(definition)
        return projection is None or column in projection.kept

    def ddl(self, change: DdlChange) -> None:
        """Inside a transaction: a table changes its shape here."""
        self.cache.clear()
        if self._leaving_out:
            return
        left = change if self._project is None else self._project.ddl(change)
        if left is None:
            return
        self._put_out_all()
        self.records.append((DDL, left.to_wire()))
        self._ddl = left

    def begin(self, csn: str, xid: str, commit_us: int) -> None:
        """A transaction begins."""
        self._is_open = True
        self._leaving_out = self._leaves_out is not None and self._leaves_out(csn)
        self._open_at = len(self.records)
        self._open_size = 0
        self._begun = (BEGIN, csn, xid, bounded(commit_us))
        self.records.append(self._begun)
        self._first = len(self.records)

    def commit(self, origin: Position, csn: str, commit_us: int, state: str = "") -> None:
        """The transaction ends."""
        self._reached, self.time_us, self._is_open = (origin, state), commit_us, False
        beat = None if self._seed is None else self._drop_seeds()
        if self._leaving_out:
            self.left_out += 1
            beat = None
        if self._choices or self._leaving_out:
            self._choose()
        changes = len(self.records) - self._first
        if not changes:
            del self.records[self._open_at :]
            if not self.records:
                self._size = 0
            if beat is not None:
                self._put_out_beat(beat, (origin, csn, state), commit_us)
            return
        self.records.append((COMMIT, changes))
        self._gathered, self._commit_us = (origin, csn, state), commit_us
        self._transactions += 1
        self._open_at = len(self.records)
        if self._began:
            self._began = False
            self._put_out(Indicator.END, len(self.records))
        elif self._ddl is not None:
            self._put_out(Indicator.WHOLE, len(self.records))
        elif self._size >= self._block_bytes:
            self.cut()

    @property
    def is_full(self) -> bool:
        """Whether the next commit puts a block out."""
        return self._size >= self._block_bytes

    def gathered(self, transactions: int, origin: Position, csn: str, commit_us: int) -> None:
        """So many whole transactions were appended with their begins and commits; the rest is of the last one."""
        self._reached, self.time_us, self._is_open = (origin, ""), commit_us, False
        self._gathered, self._commit_us = (origin, csn, ""), commit_us
        self._transactions += transactions
        self._open_at = len(self.records)

    def opened(self, at: int, csn: str, xid: str, commit_us: int) -> None:
        """The record at `at` was appended as the begin of a transaction, and all behind it is of that."""
        self._is_open, self._leaving_out = True, False
        self._open_at, self._open_size, self._first = at, 0, at + 1
        self._begun = (BEGIN, csn, xid, bounded(commit_us))

    def grew(self, size: int) -> None:
        """So many bytes were gathered since the last call."""
        self._size += size
        self.bytes_in += size
        if not self._is_open:
            return
        self._open_size += size
        if self._open_size < self._block_bytes or len(self.records) - self._open_at < 2 - self._began:
            if self._size >= 2 * self._block_bytes:
                self.cut()
            return
        self.cut()
        self._put_out_part()

    def reached(self, origin: Position, time_us: int, state: str = "") -> None:
        """Outside a transaction: nothing before `origin` is still to come."""
        last, said = self._reached
        if not self._is_open and (origin > last or (state != said and origin == last)):
            self._reached, self.time_us = (origin, state), time_us

    def abandon(self) -> None:
        """Drop the open transaction: it comes again, whole, or never."""
        if not self._is_open:
            return
        del self.records[self._open_at :]
        self._size -= self._open_size
        if self._seed is not None:  # the next such row is to be told by table() again
            self._seed = None
            self.cache.clear()
        self._is_open, self._open_size, self._ddl = False, 0, None
        if self._began:
            self._began = False
            self._output.append_restart()

    # Blocks

    def cut(self) -> None:
        """Put out the whole transactions gathered so far."""
        if self._open_at:
            self._put_out(Indicator.WHOLE, self._open_at)

    def put_place(self) -> bool:
        """Put out the source's own place, if it is news and nothing is pending; blocks of an open one repeat it."""
        (origin, state), (written, csn, said) = self._reached, self._written
        if not self.is_empty or (origin <= written and state == said):
            return False
        self._written = origin, csn, state
        self._output.append_place(origin, self.time_us, state)
        return True

    def _put_out_all(self) -> None:
        """Begin a new block with nothing in it but, at most, a begin: for a table that changed its shape."""
        self.cut()
        if len(self.records) > 1 - self._began:
            self._put_out_part()
        self._forget_tables()

    def _put_out_part(self) -> None:
        """Put out what there is of the open transaction."""
        if self._seed is not None:
            self._drop_seeds()
        if self._choices or self._leaving_out:
            self._choose()
            if len(self.records) == max(self._first, 0):
                self._size -= self._open_size
                self._open_size = 0
                return
        if len(self.records) == self._first:
            return
        indicator = Indicator.MIDDLE if self._began else Indicator.BEGIN
        self._began = True
        self._put_out(indicator, len(self.records))

    def _put_out(self, indicator: Indicator, end: int) -> None:
        """Write the first `end` records as one block."""
        all_of_it = end == len(self.records)
        records = self.records if all_of_it else self.records[:end]
        if self._projections:
            records = self._projected(records)
        complete = indicator in (Indicator.WHOLE, Indicator.END)
        if complete:
            self._written = self._gathered
        origin, csn, state = self._written
        for old, new in self._output.define(self._tables):
            self._reshaped(old, new, self._first_csn(records, self._tables.index(new)))
        changes = self._tally(records)
        self._output.append_data(
            indicator,
            [definition.id for definition in self._tables],
            records,
            changes=changes,
            transactions=self._transactions,
            origin=origin,
            csn=csn,
            time_us=self._commit_us if complete else self._now_us(),
            ddl=self._ddl is not None,
            state=state,
        )
        self.operations += changes
        self.transactions += self._transactions
        self._ddl = None
        # In place: a source holds on to this very list.
        del self.records[:end]
        self._transactions, self._open_at, self._first = 0, 0, self._first - end
        self._open_size = 0 if all_of_it else self._open_size
        self._size = self._open_size
        if all_of_it:
            self._forget_tables()

    def _drop_seeds(self) -> Beat | None:
        """Take rows of the seed table out of the open transaction; the heartbeat that they are by themselves."""
        if self._seed is None or self._heartbeats is None:
            return None
        seed, self._seed = self._seed, None
        self.cache.clear()  # so that the next such row is told by table() again
        return self._heartbeats.beat(seed, split(self.records, self._open_at))

    def _put_out_beat(self, beat: Beat, end: End, commit_us: int) -> None:
        """A heartbeat's transaction as a block of its own; it waits for nobody, and nobody for it."""
        self.cut()
        self._gathered = self._written = end
        self._commit_us = commit_us
        origin, csn, state = end
        self._output.append_data(
            Indicator.WHOLE, [], block_records(beat, self._begun), changes=0, transactions=1, origin=origin, csn=csn,
            time_us=commit_us, heartbeat=True, state=state,
        )  # fmt: skip
        assert self._heartbeats is not None
        self._heartbeats.arrivals.met(beat)

    def _projected(self, records: Sequence[Record]) -> list[Record]:
        """The block's records, those of tables with options as the trail gets them."""
        begin = self._begun  # of the open transaction, if the block is a later part of it
        out: list[Record] = []
        for record in records:
            if record[0] == BEGIN:
                begin = record
            projection = self._projections.get(record[1]) if record[0] in _ROWS else None
            out.append(record if projection is None else projection.record(record, begin))
        return out

    def _first_csn(self, records: Sequence[Record], table: int) -> str:
        """Of the first transaction of the block that has a row of the table."""
        csn = self._begun[1]  # of the open transaction, if the block is a later part of it
        for record in records:
            if record[0] == BEGIN:
                csn = record[1]
            elif record[0] in _ROWS and record[1] == table:
                break
        return str(csn)

    def _choose(self) -> None:
        """Leave out of the open transaction what TABLE's filters, the switches and START leave out."""
        at = max(self._first, 0)  # what went out already was chosen then
        if self._leaving_out:
            del self.records[at:]
            return
        chosen = [self._chosen(record) for record in self.records[at:]]
        self.records[at:] = [record for record in chosen if record is not None]

    def _chosen(self, record: Record) -> Record | None:
        op = record[0]
        if op in _ROWS:
            choice = self._choices.get(record[1])
            return record if choice is None else choice.record(record, self._begun)
        if op != TRUNCATE:
            return record
        tables = tuple(t for t in record[1] if t not in self._choices or self._choices[t].truncates)
        return (TRUNCATE, tables, record[2]) if tables else None

    def _forget_tables(self) -> None:
        self._projections.clear()
        self._choices.clear()
        self._given.clear()
        self._tables.clear()
        self._names.clear()
        self.cache.clear()

    def _tally(self, records: Sequence[Record]) -> int:
        """Count what goes out, by table and operation. Returns the changes."""
        changes = 0
        if self._ddl is not None:
            if self._stats is not None:
                name = self._ddl.shape.full_name
                self._stats.count(name, name, Op.DDL)
            return 1
        counts = records.tally() if hasattr(records, "tally") else Counter(map(_op_and_table, records))
        for (op, table), n in counts.items():
            if op in (BEGIN, COMMIT):
                continue
            changes += n
            for index in table if isinstance(table, tuple) else (table,):
                if self._stats is not None:
                    name = self._tables[index].full_name
                    self._stats.count(name, name, Op(op), n)
        return changes
