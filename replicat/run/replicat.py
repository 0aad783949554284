"""The Replicat process: trail -> Spark job -> one target transaction with the checkpoint row.

phase.py has the phases, applying.py what is applied in the open transaction, planning.py the plans.
Rule: the row is the only truth (I3). Each new connection starts from it, never from memory: a killed predecessor's
commit may have landed meanwhile (CW-01), an asynchronous commit may be gone after a crash of the target (CW-16).
All of it is about one object, which holds the row, the phase and the connection together: what could stand apart does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from replicat.apply.applying import Applying
from replicat.apply.ddl import DdlApply
from replicat.apply.discard import Discards
from replicat.apply.ladder import AbendError
from replicat.batches import holes, startup
from replicat.batches.batch import TASK_ROWS, Cutting
from replicat.batches.early import Early
from replicat.batches.engine import Engine
from replicat.batches.measures import Measures
from replicat.batches.pipeline import BatchPipeline, Begin, Bounds, RunningJob
from replicat.batches.planning import Planning
from replicat.load import tableorders
from replicat.load.catchup import CatchUp
from replicat.load.load import Load
from replicat.load.loadtables import COPYING, FAILED, WAITING, LoadTables
from replicat.load.pausedtable import LOST, PAUSED, RESUMING, PausedTable
from replicat.load.pausing import Pausing
from replicat.load.rounds import LoadSettings, Rounds
from replicat.load.turns import TurnTaking
from replicat.maps.tableerror import hours_of_pair
from replicat.model.again import BeginAgainError, PlaceLostError, ShapeChangedError
from replicat.model.loading import LoadAgainError, LoadFailedError
from replicat.model.pausing import ChangesGoneError, TablePausedError
from replicat.model.target import CheckpointRow, RefusedError
from replicat.params import ReplicatParams
from replicat.run import telling
from replicat.run.heartbeat import HeartbeatEnd, ReplicatHeartbeats
from replicat.run.orders import ReplicatOrders
from replicat.run.phase import NEXT, ApplyEvent, ApplyPhase
from replicat.run.telling import ApplyLag
from replicat.targets.contract import Target
from trails.checkpoint import Checkpoint, Place
from trails.clock import Clock
from trails.ddl import DdlChange
from trails.errors import AnewError, AwayError, GateError, OperatorError
from trails.fs import Fs, Watch
from trails.host import Wait
from trails.plan import hole_of
from trails.position import Position, TrailName
from trails.reader import Block
from trails.runtime.home.registration import Registration
from trails.runtime.home.status import FOR_TRAIL
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.process.backoff import Backoff
from trails.runtime.process.group import GroupProcess, Request
from trails.runtime.report.answers import LagAnswer, MetricsAnswer, PlaceAnswer, StatusAnswer
from trails.runtime.report.metrics import Counters, trail_backlog
from trails.runtime.report.stats import Stats

# How long a step waits for a job before it lets the main loop look around.
LOOK_SECONDS = 0.05

Note = Callable[[str], None]


class Replicat(GroupProcess):
    """One Replicat group."""

    called = "a Replicat"

    def __init__(
        self,
        params: ReplicatParams,
        registration: Registration,
        trail: TrailName,
        *,
        fs: Fs,
        clock: Clock,
        target: Target,
        engine: Engine,
        spill: str = "",
        note: Note,
        warn: Note | None = None,
        tell: Note = lambda _text: None,
        seen: int | None = None,
        discards: Discards | None = None,
        heartbeats: ReplicatHeartbeats | None = None,
        load: LoadSettings | None = None,
        early_rows: int = TASK_ROWS,
    ) -> None:
        """Connect, find the place, check what is mapped; any error here is told at START.

        `seen`: the ALTER number that the group's row bore when it was last seen; None if it never was. `load`: how
        tables are loaded; None: none ever is. `early_rows`: so many rows of a transaction are applied before its end
        has come.
        """
        self._params = params
        self._registration = registration
        self._trail = trail
        self._fs = fs
        self._clock = clock
        self._target = target
        self._engine = engine
        self._spill = spill
        self._note = note
        self._warn = warn or note
        self._seen = seen
        self._discards = discards or Discards()
        end = HeartbeatEnd(registration.name, registration.group_key, "")
        self._heartbeats = heartbeats or ReplicatHeartbeats(HeartbeatTable(), end, target, clock, 0, self._warn)
        self._pipeline: BatchPipeline | None = None
        self._row = CheckpointRow(Position(0, 0))
        self._next_row = self._row  # as the open transaction has moved it
        self._startup: Place | None = None
        self._lag = ApplyLag(clock)
        self._phase = ApplyPhase.AWAY
        self._trouble = ""
        self._backoff = Backoff(params.reconnect_seconds)  # failing: nothing was committed since the last loss
        self._try_at = 0.0
        self._watch: Watch | None = None
        self._end = startup.end_border(params.end, clock.now_us())
        self._finished = ""
        self._refused = ""  # CSN of a transaction that ends the process once those before it are applied
        self._reshaped: tuple[Position, int] | None = None  # the row's place when a table had last changed under us
        self.stats: Stats = Stats(clock.now_us)
        self._measures = Measures()
        self._early = Early(self._may_begin_early, clock.monotonic, early_rows)
        self._planning = Planning(
            params, target, lambda: engine.sql, tell, lambda: startup.source_kind(self._fs, self._trail)
        )
        self._applying = Applying(target, self._discards, self.stats, note, fs, engine)
        tables = LoadTables(target.kind, load.table, registration.name, registration.group_key) if load else None
        self._load = Load(target, tables, note, self._warn, clock.now_us, self._planning.targets_of)
        self._planning.judging = self._load.judging
        self._rounds = Rounds(
            self._load, load or LoadSettings(), target, engine, self._planning, self._applying, fs, trail,
            Bounds(params.batch_rows, params.batch_bytes), note,
        )  # fmt: skip
        paused = PausedTable(target.kind, load.table, registration.name, registration.group_key) if load else None
        self._pausing = Pausing(target, paused, fs, trail, self._warn, clock.now_us, self._load.loads)
        self._planning.left_out = lambda: self._pausing.left_out
        own = Bounds(params.batch_rows, params.batch_bytes, Cutting(split=params.max_trans_ops))
        catch_up = CatchUp(self._pausing, target, engine, self._planning, self._applying, fs, trail, own, spill, note)
        self._turns = TurnTaking(self._rounds, catch_up)
        self.stats.ddl = self._applying.ddl_counts if params.ddl else None
        self._ddl = DdlApply(params, target, self._planning, self._applying, note, lambda: self._pipeline_now.trail_id)
        try:
            self._attach()
            if any(rule.pauses for rule in params.table_errors):  # or the first error would be of rights
                self._pausing.make(self._row)
            began = bool(self._row.csn)
            for text in self._planning.check_start(fs, trail, self._begin, self._row.trail_id, began=began):
                self._warn(text)
        except (PlaceLostError, ShapeChangedError) as error:
            raise AnewError(str(error), hint="It changed while this process was starting: START again") from error

    # Process

    def step(self) -> bool:
        """Start jobs, wait shortly for the oldest, apply it."""
        if self._watch is not None:
            self._watch.clear()
        try:
            if self._away:
                if self._clock.monotonic() < self._try_at:
                    return False
                self._attach()
            return self._take_turn() if self._turns.running else self._apply_on(self._pipeline_now)
        except (AwayError, PlaceLostError, ShapeChangedError, BeginAgainError) as error:
            return self._begin_again(error)
        except (LoadAgainError, LoadFailedError, TablePausedError, ChangesGoneError) as error:
            return self._table_upset(error)

    def _apply_on(self, pipeline: BatchPipeline) -> bool:
        """Start jobs, wait shortly for the oldest, apply it; no new ones where it is another's turn."""
        others = self._turns.due(self._row, at_end=pipeline.at_end)
        pipeline.fill(more=not others)
        running = pipeline.head(LOOK_SECONDS)
        if running is not None:
            pipeline.fill(more=not others)  # the next job decodes while this one is applied
            self._apply(running)
            pipeline.drop()
        if pipeline.at_end:
            self._lag.is_now(0, 0, None)
        self._look_for_end(pipeline)
        if pipeline.hole is not None:
            self._at_hole(pipeline, pipeline.hole)
            return True
        if not pipeline.begun:
            if self._load.tend(self._row, pipeline.idle_origin):
                self._open_pipeline()
            if others and self._turns.due(self._row, at_end=True):
                self._turns.begin(self._row, at_end=True)
        more = not pipeline.begun and self._turns.due(self._row, at_end=pipeline.at_end)
        return pipeline.busy or (running is not None and not pipeline.rests_for) or others or more

    def _take_turn(self) -> bool:
        """The turn of the load, or of a table that catches up: one step of it."""
        if self._turns.step(self._row, LOOK_SECONDS):
            self._load.look()
            self._pausing.look(self._row)
            self._open_pipeline()  # plans say what is loaded, and what is paused
        return True

    def _table_upset(self, error: LoadAgainError | LoadFailedError | TablePausedError | ChangesGoneError) -> bool:
        """Nothing of the batch or chunk is there: one table is loaded anew, or stays behind; then all goes on."""
        others = self._planning.sources_of(error.place) if isinstance(error, LoadAgainError) else set()
        try:
            self._drop()
            self._attach()
            if isinstance(error, LoadAgainError):
                self._empty_again(error, others)
            elif isinstance(error, LoadFailedError):
                self._load.fail(self._row, error)
            elif isinstance(error, TablePausedError):
                self._pausing.pause_again(self._row, error)
            else:
                self._pausing.fail(self._row, error)
            self._open_pipeline()
        except (AwayError, PlaceLostError, ShapeChangedError, BeginAgainError) as again:
            return self._begin_again(again)
        return True

    def _empty_again(self, error: LoadAgainError, others: set[str]) -> None:
        try:
            self._load.begin_again(self._row, error, others)
        except (LoadFailedError, RefusedError, OperatorError, ShapeChangedError) as refused:
            self._drop()
            self._attach()
            self._load.fail(self._row, LoadFailedError((error.source, error.target), f"{error.why}: {refused}"))

    def _look_for_end(self, pipeline: BatchPipeline) -> None:
        startup.check_whole(self._registration, pipeline, self._fs, self._trail)
        if pipeline.ended and self._load.next_table() is None and self._pausing.next(self._row) is None:
            self._finished = f"END is reached at position {self._row.position}: {pipeline.ended}"

    def _at_hole(self, pipeline: BatchPipeline, block: Block) -> None:
        """All before it is applied."""
        hole = hole_of(self._fs, self._trail, pipeline.trail_id, block)
        if not self._params.pass_holes:
            self._flush_row(pipeline)  # where INFO shows that it stands
            raise holes.refused(self._registration.name, self._trail, block.start, hole)
        self._warn(f"HOLES REPORT: {hole}; going on behind it, at position {block.end}")
        pipeline.pass_hole()

    def finished(self) -> str:
        """Whether END was reached."""
        return self._finished

    def flush(self) -> Checkpoint:
        """What is committed becomes durable in the target; only that may be purged (CW-16)."""
        if self._phase is ApplyPhase.READY and not self._turns.is_open:
            try:
                if not self._turns.running:
                    self._pausing.tend(self._row)
                    self._load.check_told()
                self._flush_row(self._pipeline_now)
                if self._row.flushed == self._row.position:
                    self._discards.roll()
            except (AwayError, PlaceLostError, ShapeChangedError) as error:
                self._begin_again(error)
        return self._checkpoint()

    def close(self) -> None:
        """An open transaction is rolled back by the server when the connection goes.

        Spark goes first: nobody waits for a job that is under way, of which nothing counts any more.
        """
        self._engine.close()
        self._drop()
        self._turns.close()
        self._discards.close()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def waits(self) -> Sequence[Wait]:
        """The trail's folder wakes us; not where nobody would look."""
        if self._away or (self._pipeline is not None and self._pipeline.rests_for):
            return []
        if self._watch is None and self._fs.exists(self._trail.folder):
            self._watch = self._fs.watch_folder(self._trail.folder, self._note)
        return [self._watch.fileno()] if self._watch is not None else []

    def idle_seconds(self) -> float:
        if self._away:
            return max(0.01, min(1.0, self._try_at - self._clock.monotonic()))
        return (self._pipeline.gathers_for if self._pipeline else 0.0) or 1.0

    def waits_for(self) -> str:
        if self._away:
            return f"Waiting for the target database: {self._trouble}" if self._trouble else ""
        if self._pipeline is not None and self._pipeline.at_end and not self._pipeline.trail_id:
            return f"{FOR_TRAIL} {self._registration.trail}: it has no file yet"
        return ""

    def requests(self) -> Mapping[str, Request]:
        return ReplicatOrders(
            self._planning, self._discards, self._note, self._drop, self._load.ask, self._table_order
        ).requests()

    def _table_order(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """PAUSE TABLE or RESUME TABLE, at a batch's border: what is open or decoded is begun again."""
        self._drop()
        try:
            self._attach()
            reply = tableorders.obey(verb, args, self._params, self._pausing, self._load.tables, self._row)
            self._open_pipeline()
        except (PlaceLostError, ShapeChangedError, BeginAgainError) as error:
            self._drop()
            raise OperatorError(f"{error}, just now", hint="Give the command again") from None
        except GateError:
            self._drop()
            raise
        return reply

    # Applying

    def _apply(self, running: RunningJob) -> None:
        """One job. The time that it takes is time that the target takes."""
        running.future.result()  # an error of the job, before anything is opened for it
        began = self._fs.host.monotonic()
        try:
            if running.ddl:
                self._apply_ddl(running, running.ddl)
                return
            before = self._applying.xid
            self._applying.take_xid(running)
            if running.first:
                self._begin_batch(running)
            if running.batch.early is not None:
                self._apply_early(running, running.batch.early)
            else:
                self._applying.apply(running)
            if self._load.active:
                self._load.left_out(self._applying.waits(running, before))
            if running.last:
                self._commit(running)
        except AbendError as error:
            self._abend(running, error)
        finally:
            self._measures.target_s += self._fs.host.monotonic() - began

    def _apply_early(self, running: RunningJob, begins: Position) -> None:
        """A job of a transaction that was begun before its end had come."""
        why = "a table is being loaded" if self._load.active else self._applying.apply_early(running)
        if why:
            self._early.give_up(begins, why)
        if running.last:
            self._begin_batch(running)

    def _may_begin_early(self) -> bool:
        can = self._target.kind.can
        return can.waits_open and can.exactly_once and can.savepoints and not self._load.active

    def _abend(self, running: RunningJob, error: AbendError) -> NoReturn:
        """What is refused ends the process, or pauses its table; but what lies before its transaction is applied first.

        So the row then stands right before it, where START's SKIPTRANSACTION leaves it out and nothing else.
        """
        if running.ddl or running.batch.transactions < 2 or error.csn == self._refused:
            hours = hours_of_pair(self._params.table_errors, error.pair)
            if error.pair is None or hours is None:
                raise error
            if self._load.is_loading(error.pair):
                raise LoadFailedError(error.pair, error.message) from error
            raise TablePausedError(error.pair, error.message, hours) from error
        self._refused = error.csn
        raise BeginAgainError(
            f"A change of transaction CSN {error.csn} is refused: rolled back; those before it are applied first"
        ) from error

    def _take_beats(self, running: RunningJob) -> None:
        """Read the batch's heartbeats; the row names the last one's transaction, if nothing comes behind it."""
        batch = running.batch
        found = [(f"{self._trail} {block.start}", self._pipeline_now.records(block)) for block in batch.beats]
        begin = self._heartbeats.read(found)
        if begin and begin[1] == batch.csn:
            self._applying.xid = begin[2]

    def _apply_ddl(self, running: RunningJob, block: Block) -> None:
        """A change of shape, in the batch's transaction where the target can do so."""
        if not self._target.kind.can.ddl_in_transaction:
            self._apply_alone(running, block)
            return
        records = self._pipeline_now.records(block)
        self._applying.take_xid(running, records)
        self._ddl.before(records, self._load.reshape)
        if running.first:
            self._begin_batch(running)
        self._ddl.apply(running, records)
        self._ddl.behind(records, self._reshaped_here)
        if running.last:
            self._commit(running)

    def _apply_alone(self, running: RunningJob, block: Block) -> None:
        """A change of shape that the target commits by itself: then the row. Between both, it is found done already.

        Before it the row is durable where it stands, and ours: rows of the old shape never come again behind it.
        """
        here = dataclasses.replace(self._row, flushed=self._row.position)
        self._target.flush(self._row, here)
        self._row = here
        records = self._pipeline_now.records(block)
        self._applying.take_xid(running, records)
        self._ddl.before(records, self._load.reshape)
        self._ddl.apply(running, records)
        self._begin_batch(running)
        self._ddl.behind(records, self._reshaped_here)
        self._commit(running)

    def _reshaped_here(self, change: DdlChange, targets: Sequence[str]) -> None:
        self._load.reshaped(change, targets)
        self._pausing.reshaped(change, targets)

    def _begin_batch(self, running: RunningJob) -> None:
        """Open the transaction; the row moves first. Where that will end (early.py) is known with its last batch."""
        batch = running.batch
        if batch.beats:
            self._take_beats(running)
        if batch.closes:
            self._next_row = dataclasses.replace(
                self._row, position=batch.end, split=batch.split, skip_until="", trail_id=self._pipeline_now.trail_id,
                csn=self._row.csn if batch.partial else batch.csn, xid=self._applying.xid, time_us=batch.time_us,
                flushed=batch.end if self._params.commit_wait else self._row.flushed,
            )  # fmt: skip
        else:
            self._next_row = self._row  # held where it is
        if not batch.opens:
            self._target.move_on(self._next_row)
            return
        self._measures.begun = self._target.tally.taken
        self._target.begin(self._row, self._next_row)
        if self._load.there:
            self._load.check()
        self._phase = NEXT[self._phase, ApplyEvent.BEGUN]

    def _commit(self, running: RunningJob) -> None:
        """Commit; from here on the row has its new place, and the batch counts."""
        batch = running.batch
        if batch.beats:
            self._heartbeats.write()
        left_out = self._load.commit() if self._load.there else None
        self._applying.commit(running)
        if self._load.there:
            self._load.committed(left_out)
        if self._pausing.reshaping:
            self._pausing.look(self._next_row)
        self._phase = NEXT[self._phase, ApplyEvent.COMMITTED]
        self._row = self._next_row
        self._measures.committed(batch, self._target.tally.taken)
        if batch.beats:
            self._heartbeats.committed()
        self._lag.is_now(self._clock.now_us(), batch.time_us, self._heartbeats.skew_us)
        if self._backoff.failing:  # a connection alone proves nothing
            self._backoff.succeeded()

    def _flush_row(self, pipeline: BatchPipeline) -> None:
        position = pipeline.idle_position or self._row.position
        position = max(position, self._row.position)
        # After a loss, with nothing to apply: the row as it stands proves that the target works again.
        unproven = self._backoff.failing and pipeline.at_end
        if position == self._row.position == self._row.flushed and not unproven:
            return
        new = dataclasses.replace(
            self._row, position=position, split=self._row.split if position == self._row.position else 0,
            flushed=position, trail_id=pipeline.trail_id or self._row.trail_id,
        )  # fmt: skip
        self._target.flush(self._row, new)
        self._row = new
        self._backoff.succeeded()

    # Where we stand

    def _attach(self) -> None:
        """Connect, and make a pipeline from the row."""
        self._target.connect()
        self._heartbeats.attached()
        self._row = startup.find_row(
            self._target, self._registration, self._fs, self._trail, self._note, warn=self._warn, seen=self._seen
        )
        self._row = dataclasses.replace(self._row, created_us=self._row.created_us or self._clock.now_us())
        self._seen = self._row.alter_no
        self._applying.reset(self._row.xid)
        self._load.look()
        self._pausing.look(self._row)
        self._discards.attach(min(self._row.position, self._pausing.hold or self._row.position))
        self._open_pipeline()
        self._phase = NEXT[self._phase, ApplyEvent.ATTACHED]
        if self._end is not None and (why := startup.is_beyond(self._row, self._end)):
            self._pipeline_now.stop(why)
            self._look_for_end(self._pipeline_now)
        self._startup = self._startup or self._place(self._row.position)

    def _open_pipeline(self) -> None:
        """From the row on, by plans that are made anew."""
        if self._pipeline is not None:
            self._pipeline.close()
        self._planning.forget()
        self._pipeline = BatchPipeline(
            self._fs, self._trail, Begin(self._begin, self._row.trail_id, self._row.split, self._row.skip_until),
            self._bounds(), self._engine, self._planning.plans, self._spill, self._note, early=self._early,
        )  # fmt: skip

    def _bounds(self) -> Bounds:
        params = self._params
        cutting = Cutting(
            group=params.group_trans_ops, split=params.max_trans_ops, end=self._end,
            at_eof=params.end is not None and not params.end.csn and params.end.time_us is None,
            cut_ddl=not self._target.kind.can.ddl_in_transaction, before=self._refused,
        )  # fmt: skip
        return Bounds(params.batch_rows, params.batch_bytes, cutting, params.batch_seconds)

    @property
    def _pipeline_now(self) -> BatchPipeline:
        assert self._pipeline is not None
        return self._pipeline

    @property
    def _begin(self) -> Position | None:
        """Where reading begins; None stands for the first file there is."""
        fresh = self._row.position == Position(0, 0) and not self._row.trail_id
        return None if fresh else self._row.position

    @property
    def _away(self) -> bool:
        return self._phase is ApplyPhase.AWAY

    def _drop(self) -> None:
        """Forget everything but what the target knows; the next step connects again."""
        self._phase = NEXT[self._phase, ApplyEvent.DROPPED]
        self._trouble, self._try_at = "", 0.0
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None
        self._turns.drop()
        self._applying.reset()
        self._target.close()

    def _begin_again(self, error: AwayError | PlaceLostError | ShapeChangedError | BeginAgainError) -> bool:
        """From the row: at once (True), or when it is time."""
        self._drop()
        if isinstance(error, AwayError):
            self._trouble, self._try_at = error.message, self._next_try(error)
        elif isinstance(error, BeginAgainError):
            self._note(str(error))
            if error.seconds:
                self._trouble, self._try_at = str(error), self._clock.monotonic() + error.seconds
        elif isinstance(error, ShapeChangedError):
            self._look_again(error)
        else:
            self._note(f"{error}; starting again from the row")
        return not self._try_at

    def _next_try(self, error: AwayError) -> float:
        """A little later, up to RECONNECTSECS; then the process ends and AUTORESTART's turn comes."""
        if not self._backoff.failing:
            self._note(f"{error}; trying again for {self._params.reconnect_seconds} seconds")
        again = self._backoff.again(self._clock.monotonic())
        if again is None:
            raise error
        return again

    def _look_again(self, error: ShapeChangedError) -> None:
        """A target table is not as it was looked at: plan anew from the row, once at each place."""
        place = self._row.position, self._row.split
        if self._reshaped == place:
            raise OperatorError(
                f"{error}; so it was again after the target's tables were looked at anew",
                hint="Mend the target's table or the MAP, then START again",
            ) from error
        self._reshaped = place
        self._note(f"{error}: looking at the target's tables anew")

    # Telling

    @property
    def _at_eof(self) -> bool:
        return self._pipeline is not None and self._pipeline.at_end

    @property
    def _arrivals(self) -> list[dict[str, Any]]:
        return self._heartbeats.arrivals.entries()

    def status(self) -> StatusAnswer:
        text = self.waits_for() or self._load.progress.says() or ("At EOF" if self._at_eof else "Processing data")
        to_copy, failed = self._load.named(WAITING, COPYING), self._load.named(FAILED)
        paused, behind = self._pausing.named(PAUSED, LOST), self._pausing.named(RESUMING)
        return StatusAnswer(
            text, read=self._shown, to_copy=to_copy, not_copied=failed, paused=paused, catching_up=behind
        )  # fmt: skip

    @property
    def _shown(self) -> PlaceAnswer:
        place = self._place(self._row.position)
        return PlaceAnswer.of(place, place.thread)

    def lag(self) -> LagAnswer:
        return LagAnswer(self._lag.now(at_eof=self._at_eof), self._lag.why, self._at_eof, self._arrivals)

    def counters(self) -> Counters:
        return self._measures.counters()

    def metrics(self) -> MetricsAnswer:
        """`newest_us`: commit time of the last transaction in the target."""
        begun = self._row.position if self._begin is not None else None
        waiting = 0 if self._at_eof else trail_backlog(self._fs, self._trail, begun)
        return MetricsAnswer(
            read=self._shown, backlog_bytes=waiting, backlog_us=None if waiting else 0,
            extra={
                "state": self.status().status if self._away else "", "newest_us": self._row.time_us or None,
                "clock_offset_us": self._heartbeats.ahead_us,
                **self._measures.extra(self.stats), **self._load.progress.figures(),
                "tables_amiss": self._pausing.says(),
            },
        )  # fmt: skip

    def _place(self, position: Position) -> Place:
        return telling.place(self._row, position, self._trail)

    def _checkpoint(self) -> Checkpoint:
        return telling.checkpoint(
            self._registration, self._row, self._trail, self._startup, self._pausing.hold,
            self._lag.now(at_eof=self._at_eof), heartbeats=self._arrivals, tables_amiss=self._pausing.says(),
            checkpoint_table=".".join(self._params.checkpoint_table or (self._registration.checkpoint_table,)),
        )  # fmt: skip
