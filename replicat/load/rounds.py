"""Rounds of the load, each in steps of a moment, so that the process can be asked and stopped meanwhile.

    plan     a thread asks the source where the chunks begin; one transaction writes them down
    copy     Spark's tasks copy chunks, each by a snapshot of its own, and mark each in the same transaction: one after
             the other for some seconds, while nothing waits to be applied. Where rows are mapped, some chunks are
             read; then each is applied, and marked in the same transaction
    end      what was to be made behind the last chunk is made

Rule: a round leaves a chunk as it was or loaded, wherever it is cut off. What goes wrong with the source is told and
tried again later, while changes are applied; what goes wrong with a table is its own matter, and others go on.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from replicat.apply.applying import Applying
from replicat.batches.engine import Engine
from replicat.batches.pipeline import BatchPipeline, Begin, Bounds, RunningJob
from replicat.batches.planning import Planning
from replicat.load.chunk import ChunkTask, Copied, FailedError, Must, Refused, SourceAwayError, SourceOf
from replicat.load.load import Load
from replicat.load.loadtables import COPYING, ChunkRow, TableRow
from replicat.load.piping import PipeTask, fits, pipe_partition
from replicat.load.staging import PREFIX, bounds_of, stage_partition
from replicat.load.streams import Streams
from replicat.model.again import PlaceLostError
from replicat.model.loading import LoadFailedError
from replicat.model.plan import Plans, TablePlan
from replicat.model.reperror import (
    ABEND,
    DISCARD,
    EXCEPTION,
    TRANSABORT,
    TRANSDISCARD,
    TRANSEXCEPTION,
    ErrorRule,
)
from replicat.model.target import CheckpointRow, Layout
from replicat.reading.contract import KeyBounds
from replicat.reading.kinds import branch_of, tells_xids
from replicat.targets.contract import Table, Target, TargetSettings
from replicat.targets.kinds import SOURCES
from trails.errors import AwayError, GateError, OperatorError
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.reader import last_header
from trails.record import TableDef
from trails.runtime.report.metrics import trail_backlog, trail_end

T = TypeVar("T")
Note = Callable[[str], None]
FOLDER = "chunk-"
PAUSE_SECONDS = 5.0
"""So long a source that is away is left alone."""
WAITING_BYTES = 1 << 16
"""So much of the trail behind Replicat's place is changes that wait; less may be heartbeats and places alone."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """`url`: the source; empty if the parameter file names none. `tasks`: chunks at once; `rows`: of a chunk, about.

    `table`: the checkpoint table, beside which the load's own stand. `folder`: where chunks are staged.
    `target`: how a task connects to the target by itself; None: none does. `rate`: rows a second at most; 0: no limit.
    `turn`: so many seconds a round goes on with further chunks, while nothing waits.
    """

    url: str = field(default="", repr=False)
    target: TargetSettings | None = field(default=None, repr=False)
    table: Table = ("", "")
    tasks: int = 2
    rows: int = 250_000
    rate: int = 0
    folder: str = ""
    turn: float = 10.0


@dataclass(slots=True)
class _Round:
    """What is under way, for one table: a question to the source, or chunks; of these one is being applied."""

    table: TableRow
    must: Must
    bounds: Future[KeyBounds] | None = None
    streams: Streams | None = None
    copies: Future[list[Any]] | None = None
    copied: list[Copied] | None = None
    pipeline: BatchPipeline | None = None
    source: SourceOf = field(default_factory=SourceOf)
    failed: str = ""
    away: str = ""


class Rounds:
    """Runs them, one at a time."""

    def __init__(
        self,
        load: Load,
        settings: LoadSettings,
        target: Target,
        engine: Engine,
        planning: Planning,
        applying: Applying,
        fs: Fs,
        trail: TrailName,
        bounds: Bounds,
        note: Note,
    ) -> None:
        """`trail`: whose source must be the one that is read. `bounds`: of the jobs in which a chunk is applied."""
        self._load = load
        self._settings = settings
        self._target = target
        self._engine = engine
        self._planning = planning
        self._applying = applying
        self._fs = fs
        self._trail = trail
        self._bounds = bounds
        self._note = note
        load.by_xid = self._by_xid
        load.branch = self._branch
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="load")
        self._round: _Round | None = None
        self._staged: set[tuple[str, str]] = set()  # tables of which the target has refused a piped row
        self._number = 0
        self._began = 0.0
        self._turn = 0.0  # from then on a round may begin although changes wait
        self._waited: Position | None = None  # so far the trail was when the last round was over
        self._pause = 0.0  # and none before
        self._rows = 0  # that this round copies: about, until it is known
        self._trouble = ""

    @property
    def running(self) -> bool:
        """Whether a round is under way."""
        return self._round is not None

    @property
    def is_open(self) -> bool:
        """Whether a chunk is being applied, in a transaction of several steps."""
        return self._round is not None and self._round.pipeline is not None

    def due(self, row: CheckpointRow, *, at_end: bool) -> bool:
        """Whether a round is to begin once no batch is under way. `at_end`: nothing waits to be applied."""
        now = time.monotonic()
        if self._round is not None or now < self._pause or self._load.next_table() is None:
            return False
        return at_end or now >= self._turn or (self._waited is not None and row.position >= self._waited)

    def begin(self, row: CheckpointRow) -> None:
        """Begin a round; `row` stays where it is until it is over."""
        table = self._load.next_table()
        assert table is not None
        self._began = time.monotonic()
        self._rows = 0
        self._number += 1
        found = self._round = _Round(table, must=self._load.must(row))
        self._sweep()
        try:
            self._start(found)
        except FailedError as error:
            found.failed = str(error)

    def _start(self, found: _Round) -> None:
        """Ask the source for what comes next of the table; nothing where all of it is copied."""
        table, header = found.table, last_header(self._fs, self._trail)
        if not self._settings.url:
            raise FailedError("the parameter file does not name the source database. Add SOURCEDB to it")
        if header is None:
            found.away = f"the trail {self._trail} has no file yet, so nobody captures what changes meanwhile"
        elif table.state != COPYING:
            source = found.source = SourceOf(self._settings.url, header.source)
            found.bounds = self._pool.submit(bounds_of, source, table.definition, self._settings.rows)
        elif planned := self._load.planned(table.pair):
            self._load.check_branch()
            found.source = SourceOf(self._settings.url, header.source)
            self._rows = self._about(table) * min(self._settings.tasks, len(planned))
            self._copy(found, [self._task(found, chunk, high) for chunk, high in planned])

    def _about(self, table: TableRow) -> int:
        """The rows of a chunk, as far as they are known before it is copied."""
        return table.estimate // len(self._load.chunks_of(table.pair)) or self._settings.rows

    def _copy(self, found: _Round, tasks: Sequence[ChunkTask]) -> None:
        """Have chunks copied: piped where rows need nothing but to be carried, else staged."""
        layout, settings, at_once = self._pours(found.table), self._settings.target, self._settings.tasks
        if layout is None or settings is None:
            if not self._settings.folder:
                raise FailedError(
                    "the trail is encrypted, and memory has no room for chunks, which would stand plain on the disk. "
                    "Make room in /dev/shm"
                )
            found.copies = self._engine.run_all(stage_partition, tasks[:at_once])
        else:
            piped = [PipeTask(task, layout, settings, self._load.fence) for task in tasks]
            found.streams = Streams(lambda task: self._engine.run_all(pipe_partition, [task]), iter(piped), at_once)

    def _pours(self, table: TableRow) -> Layout | None:
        """Where the table's rows go, if they need nothing but to be carried there."""
        kind = self._target.kind
        if table.pair in self._staged or not kind.pours or SOURCES.get(self._planning.source) is not kind:
            return None
        plans = self._plans(table.target, table.definition)
        return plans[0].layout if len(plans) == 1 and fits(plans[0], table.definition) else None

    def _sweep(self) -> None:
        """Rows that an earlier round has left are nobody's."""
        for entry in os.scandir(self._settings.folder) if self._settings.folder else ():
            if entry.name.startswith(FOLDER):
                shutil.rmtree(entry.path, ignore_errors=True)

    def step(self, row: CheckpointRow, seconds: float) -> bool:
        """Go on for a moment; whether the round is over. Raises LoadFailedError, and what the target raises."""
        found = self._round
        assert found is not None
        try:
            over = self._step(found, row, seconds)
        except SourceAwayError as error:
            self._later(error)
            self._load.postpone(row, found.table, str(error) if error.changed else "")
            over = True
        except FailedError as error:
            raise LoadFailedError(found.table.pair, str(error)) from error
        if over:
            self._over()
        return over

    def drop(self) -> None:
        """Forget the round: nothing of it that is not committed is there. What the source had to read counts."""
        if self._round is not None:
            self._pause = max(self._pause, rested(self._began, self._rows, self._settings.rate))
            if self._round.pipeline is not None:
                self._round.pipeline.close()
            if self._round.streams is not None:
                self._round.streams.drop()
        self._round = None

    def close(self) -> None:
        """No more rounds."""
        self.drop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # Steps

    def _step(self, found: _Round, row: CheckpointRow, seconds: float) -> bool:
        if found.failed:
            raise FailedError(found.failed)
        if found.away:
            raise SourceAwayError(found.away, hint="START the Extract, and what carries its trail here")
        if found.bounds is not None:
            if (bounds := answer(found.bounds, seconds)) is None:
                return False
            self._load.plan(row, found.table, self._parted(found.table, bounds))
            return True
        if found.streams is not None:
            return self._stream(found, found.streams, row, seconds)
        if found.copies is None:
            self._load.done(row, found.table)
            return True
        if found.copied is None:
            if (results := answer(found.copies, seconds)) is None:
                return False
            found.copied = self._copied(found, results)
        return self._apply(found, row, seconds)

    def _parted(self, table: TableRow, bounds: KeyBounds) -> KeyBounds:
        """One chunk where the target may refuse a row because of another one, such as by a unique index.

        A value that goes from one row to another at the source would else be met twice: in the chunk that was copied
        before, and in that which is copied then. One snapshot has it once, and changes come in order behind it.
        """
        plans = self._planning.plan(table.definition)
        if not bounds.lows or not any(plan.target == table.target and meets_others(plan, table) for plan in plans):
            return bounds
        self._note(f"{table.source} is copied as one chunk: its target has a unique index beside the key, or the like")
        return KeyBounds(estimate=bounds.estimate)

    def _copied(self, found: _Round, results: Sequence[Copied | Refused | GateError]) -> list[Copied]:
        """Those that were copied: where they are staged they are to be applied."""
        refused = [one for one in results if isinstance(one, Refused)]
        for one in refused:
            self._staged.add(found.table.pair)
            self._note(f"{one.chunk.source}: the target refuses a row of chunk {one.chunk.number}: {one.shown}")
        self._rows = sum(one.rows for one in results if isinstance(one, Copied))
        ready = copied(results) if len(refused) < len(results) else []
        if any(isinstance(one, Copied) for one in results):
            self._load.proved(found.must)
        self._told()
        return ready

    def _stream(self, found: _Round, streams: Streams, row: CheckpointRow, seconds: float) -> bool:
        """Chunks that commit by themselves; whether none is on its way any more."""
        for one in streams.step(seconds, lambda: self._goes_on(row)):
            if isinstance(one, Copied):
                self._load.progress.copied(found.table.pair, one.rows, one.bytes)
        if streams.over:
            self._copied(found, streams.results)
        return streams.over

    def _goes_on(self, row: CheckpointRow) -> bool:
        """Whether another chunk may begin in this round."""
        if self._settings.rate or time.monotonic() > self._began + self._settings.turn:
            return False
        return trail_backlog(self._fs, self._trail, row.position) < WAITING_BYTES

    def _apply(self, found: _Round, row: CheckpointRow, seconds: float) -> bool:
        """The next job of the chunk that is applied; whether no chunk is left."""
        if not found.copied:
            return True
        one = found.copied[0]
        if not one.rows:
            self._target.begin(row, row)
            self._mark(one)
            self._target.commit()
        elif not self._job(found, one, row, seconds):
            return False
        shutil.rmtree(self._folder(one.chunk), ignore_errors=True)
        found.copied.pop(0)
        return not found.copied

    def _job(self, found: _Round, one: Copied, row: CheckpointRow, seconds: float) -> bool:
        """Apply the chunk's next job if it is decoded; whether it was the last one."""
        if found.pipeline is None:
            found.pipeline = self._pipeline(found, one)
        pipeline = found.pipeline
        pipeline.fill()
        running = pipeline.head(seconds)
        if running is None:
            return False
        pipeline.fill()
        self._applied(one, running, row)
        pipeline.drop()
        if running.last:
            pipeline.close()
            found.pipeline = None
        return running.last

    def _applied(self, one: Copied, running: RunningJob, row: CheckpointRow) -> None:
        running.future.result()
        if running.first:
            self._target.begin(row, row)
        try:
            self._applying.apply(running)
        except OperatorError as error:  # a change that ends a batch, or such as a right that was revoked
            raise FailedError(f"chunk {one.chunk.number}: {error.message}") from error
        if running.last:
            self._mark(one)
            here = replace(running.batch, end=row.position, csn="")
            self._applying.commit(replace(running, batch=here))

    def _mark(self, one: Copied) -> None:
        """In the transaction of its rows: the chunk is loaded."""
        done = replace(one.chunk, seen=one.seen, past=str(one.past), rows=one.rows, bytes=one.bytes)
        statements = self._load.statements
        marks = statements.set_chunk(done), statements.chunk_done(self._load.fence)
        if [self._target.write(*statement) for statement in marks] != [1, 1]:
            raise PlaceLostError(f"chunk {done.number} of {done.source} was changed by another process meanwhile")

    def _by_xid(self) -> bool:
        header = last_header(self._fs, self._trail)
        return header is None or tells_xids(header.source)

    def _branch(self) -> str | None:
        header = last_header(self._fs, self._trail)
        return None if header is None else branch_of(header.source)

    # What goes into it

    def _pipeline(self, found: _Round, one: Copied) -> BatchPipeline:
        """Of a staged chunk, through the MAP that it is of."""
        trail = TrailName(self._folder(one.chunk), PREFIX)
        target = found.table.target

        def plans(definitions: Mapping[bytes, TableDef]) -> Plans:
            return {key: self._plans(target, definition) for key, definition in definitions.items()}

        return BatchPipeline(
            self._fs, trail, Begin(None), self._bounds, self._engine, plans, self._settings.folder, self._note
        )

    def _plans(self, target: str, definition: TableDef) -> tuple[TablePlan, ...]:
        every = self._planning.plan(definition)
        ours = [plan for plan in every if plan.target == target] or [plan for plan in every if plan.error]
        if not ours:
            raise FailedError(f"no MAP takes {definition.full_name} to {target} any more")
        return tuple(replace(plan, loading=None, error_rules=_single(plan.error_rules)) for plan in ours)

    def _task(self, found: _Round, chunk: ChunkRow, high: tuple[str, ...] | None) -> ChunkTask:
        folder = self._folder(chunk)
        return ChunkTask(found.source, found.table.definition, chunk, high, found.must, folder)

    def _folder(self, chunk: ChunkRow) -> str:
        return os.path.join(self._settings.folder, f"{FOLDER}{self._number}-{chunk.number}")

    # Turns

    def _over(self) -> None:
        """What came meanwhile is applied; for as long as the round took, if so many changes wait."""
        self.drop()
        self._waited = trail_end(self._fs, self._trail)
        now = time.monotonic()
        self._turn = now + (now - self._began)

    def _later(self, error: SourceAwayError) -> None:
        self._pause = time.monotonic() + PAUSE_SECONDS
        if not self._trouble:
            self._note(f"The load waits for its source, and tries again each {PAUSE_SECONDS:g} seconds: {error}")
        self._trouble = str(error)

    def _told(self) -> None:
        if self._trouble:
            self._note("The load goes on: the source database answers again")
        self._trouble = ""


def rested(began: float, rows: int, rate: int) -> float:
    """When the next round may begin after one of so many rows, at `rate` rows a second; 0 is no limit."""
    return began + rows / rate if rate else began


def meets_others(plan: TablePlan, table: TableRow) -> bool:
    """Whether the target may take two rows of different keys at the source for one, or refuse one for the other."""
    if plan.error:
        return False
    slots = None if plan.mapping is None else [plan.mapping.slots[at] for at in plan.key]
    key = set(plan.key) if slots is None else {slot.index for slot in slots if slot.kind == "column"}
    return bool(plan.across) or not set(table.definition.key) <= key


def _single(rules: tuple[ErrorRule, ...]) -> tuple[ErrorRule, ...]:
    """What a rule does with a whole transaction, it does with a row of a chunk: that is none of the source's."""
    return tuple(replace(rule, action=_ALONE.get(rule.action, rule.action)) for rule in rules)


_ALONE = {TRANSDISCARD: DISCARD, TRANSEXCEPTION: EXCEPTION, TRANSABORT: ABEND}


def answer(asked: Future[T], seconds: float) -> T | None:
    """What came of it, if it came within a moment. Raises SourceAwayError or FailedError."""
    wait([asked], timeout=seconds)
    if not asked.done():
        return None
    try:
        return asked.result()
    except AwayError as error:
        raise SourceAwayError.of(error) from error
    except OperatorError as error:
        raise FailedError(str(error)) from error


def copied(results: Sequence[Copied | Refused | GateError]) -> list[Copied]:
    """The chunks that were copied. Raises as `answer` does where none was, or one will never be."""
    failed = [one for one in results if isinstance(one, GateError)]
    away = [error for error in failed if isinstance(error, AwayError)]
    for error in failed:
        if error not in away:
            raise FailedError(str(error)) from error
    found = [one for one in results if isinstance(one, Copied)]
    if away and not found:
        raise SourceAwayError.of(away[0]) from away[0]
    return found
