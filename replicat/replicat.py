"""The Replicat process: trail -> Spark job -> one target transaction with the checkpoint row.

    away ──connect, read the row──> ready ──first job of a batch──> open ──its last job──> commit ──> ready
     ^                                │                               │
     └─── AwayError, or PlaceLostError: the row is not where we left it; ShapeChangedError; TryLaterError ─┘

applying.py holds the open transaction, planning.py the plans, ddl/apply.py applies changes of shape.
Rule: the row is the only truth (I3). Each new connection starts from it, never from memory: a killed predecessor's
commit may have landed meanwhile (CW-01), an asynchronous commit may be gone after a crash of the target (CW-16).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from replicat import startup
from replicat.applying import Applying
from replicat.batch import Cutting
from replicat.ddl.apply import DdlApply, TryLaterError
from replicat.engine import Engine
from replicat.heartbeat import ReplicatHeartbeats
from replicat.measures import Measures
from replicat.params import ReplicatParams
from replicat.pipeline import Begin, Bounds, Pipeline, Running
from replicat.planning import Planning
from replicat.refused.discard import Discards
from replicat.refused.judge import BeginAgainError
from replicat.refused.ladder import AbendError
from replicat.target import PlaceLostError, Row, ShapeChangedError, Target
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.errors import AwayError, OperatorError
from trails.fs import Fs
from trails.heartbeat import lag_of
from trails.position import Position, TrailName
from trails.runtime.clock import Clock
from trails.runtime.control import unknown
from trails.runtime.metrics import Counters, trail_backlog
from trails.runtime.params import Pattern
from trails.runtime.process import Process, Wait
from trails.runtime.registration import Registration
from trails.runtime.stats import Stats
from trails.watch import Watch

# How long a step waits for a job before it lets the main loop look around.
LOOK_SECONDS = 0.05
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0

Note = Callable[[str], None]


class Replicat(Process):
    """One Replicat group."""

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
        tell: Note = lambda _text: None,
        seen: int | None = None,
        discards: Discards | None = None,
        heartbeats: ReplicatHeartbeats | None = None,
    ) -> None:
        """Connect, find the place, check what is mapped; any error here is told at START.

        `seen`: the ALTER number that the group's row bore when it was last seen; None if it never was.
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
        self._seen = seen
        self._discards = discards or Discards()
        self._heartbeats = heartbeats
        self._pipeline: Pipeline | None = None
        self._row = Row(Position(0, 0))
        self._startup: Place | None = None
        self._lag_us: int | None = None
        self._lag_why = ""
        self._lag_at = 0.0  # when that was true
        self._away = False
        self._failing_since: float | None = None  # since when nothing was committed, for RECONNECTSECS
        self._try_at = 0.0
        self._pause = FIRST_PAUSE
        self._watch: Watch | None = None
        self._end = startup.end_border(params.end, clock.now_us())
        self._finished = ""
        self._refused = ""  # CSN of a transaction that ends the process once those before it are applied
        self._reshaped: tuple[Position, int] | None = None  # the row's place when a table had last changed under us
        self.stats: Stats = Stats(clock.now_us)
        self._measures = Measures()
        self._planning = Planning(params, target, lambda: engine.sql, tell)
        self._applying = Applying(target, self._discards, self.stats, note, fs, engine)
        self._ddl = DdlApply(params, target, self._planning, self._applying, note, lambda: self._pipeline_now.trail_id)
        self._attach()
        self._planning.check_start(fs, trail, self._begin, self._row.trail_id, began=bool(self._row.csn))

    # Process

    def step(self) -> bool:
        """See Process: start jobs, wait shortly for the oldest, apply it."""
        if self._watch is not None:
            self._watch.clear()
        try:
            return self._work()
        except PlaceLostError as error:
            self._note(f"{error}; starting again from the row")
            self._detach()
            return True
        except ShapeChangedError as error:
            self._look_again(error)
            return True
        except (TryLaterError, BeginAgainError) as error:
            self._note(str(error))
            self._detach()
            self._away, self._try_at = True, self._clock.monotonic() + error.seconds
            return not error.seconds
        except AwayError as error:
            self._be_away(error)
            return False

    def _work(self) -> bool:
        if self._pipeline is None and not self._reattach():
            return False
        pipeline = self._pipeline
        assert pipeline is not None
        pipeline.fill()
        running = pipeline.head(LOOK_SECONDS)
        if running is not None:
            pipeline.fill()  # the next job decodes while this one is applied
            with self._measures.in_target():
                self._apply(running)
            pipeline.drop()
        if pipeline.at_end:
            self._lag_is(0)
        self._look_for_end(pipeline)
        return pipeline.busy or running is not None

    def _look_for_end(self, pipeline: Pipeline) -> None:
        if pipeline.ended:
            self._finished = f"END is reached at position {self._row.position}: {pipeline.ended}"

    def finished(self) -> str:
        """See Process: END."""
        return self._finished

    def flush(self) -> Checkpoint:
        """See Process: what is committed becomes durable in the target; only that may be purged (CW-16)."""
        if self._pipeline is not None and not self._applying.is_open:
            try:
                self._flush_row(self._pipeline)
                if self._row.flushed == self._row.position:
                    self._discards.roll()
            except PlaceLostError:
                self._detach()
            except AwayError as error:
                self._be_away(error)
        return self._checkpoint()

    def close(self) -> None:
        """See Process. An open transaction is rolled back by the server when the connection goes."""
        self._target.close()
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None
        self._engine.close()
        self._discards.close()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def waits(self) -> Sequence[Wait]:
        """See Process: the trail's folder wakes us."""
        if self._away:
            return []
        if self._watch is None and self._fs.exists(self._trail.folder):
            self._watch = Watch(self._trail.folder)
        return [self._watch.fileno()] if self._watch is not None else []

    def idle_seconds(self) -> float:
        """See Process."""
        if self._away:
            return max(0.01, min(1.0, self._try_at - self._clock.monotonic()))
        return (self._pipeline.gathers_for if self._pipeline else 0.0) or 1.0

    def command(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """See Process."""
        if verb in ("HANDLECOLLISIONS", "NOHANDLECOLLISIONS"):
            return self._handle_collisions(str(args.get("tables") or "*.*"), verb == "HANDLECOLLISIONS")
        answers = self._commands()
        if verb not in answers:
            raise unknown("a Replicat", verb, (*answers, "HANDLECOLLISIONS", "NOHANDLECOLLISIONS"))
        return answers[verb]()

    def _handle_collisions(self, tables: str, on: bool) -> dict[str, Any]:
        """Until the process ends. What was decoded under the old plans is thrown away, and done again from the row."""
        try:
            pattern = Pattern(tables)
        except ValueError as error:
            raise OperatorError(f"source tables {tables!r}: expected {error}") from None
        self._planning.handle_collisions(pattern, on)
        self._note(f"{'HANDLECOLLISIONS' if on else 'NOHANDLECOLLISIONS'} for {tables} by SEND, until the process ends")
        if self._pipeline is not None:
            self._detach()
        return {"ok": True}

    def _commands(self) -> dict[str, Callable[[], dict[str, Any]]]:
        return {
            "STATUS": self._status,
            "GETLAG": lambda: {
                "ok": True,
                "lag_us": self._lag(),
                "lag_why": self._lag_why,
                "at_eof": self._at_eof,
                "heartbeats": self._arrivals,
            },
            "LOGEND": lambda: {"ok": True, "logend": self._at_eof},
            "METRICS": self._metrics,
            "DISCARDROLLOVER": self._discards.roll_soon,
        }

    # Applying

    def _apply(self, running: Running) -> None:
        running.future.result()  # an error of the job, before anything is opened for it
        if running.ddl and not self._target.transactional_ddl:
            self._apply_alone(running)
            return
        records = self._pipeline_now.records(running.ddl) if running.ddl else []
        self._applying.take_xid(running, records)
        if running.first:
            self._take_beats(running)
            self._measures.begun(self._target.taken)
            self._applying.begin(self._row, self._moved(running))
        if running.ddl:
            self._ddl.apply(running, records)
        else:
            self._apply_rows(running)
        if running.last:
            if self._heartbeats is not None:
                self._heartbeats.write()
            self._applying.commit(running)
            self._committed(running)

    def _take_beats(self, running: Running) -> None:
        """Read the batch's heartbeats; the row names the last one's transaction, if nothing comes behind it."""
        if self._heartbeats is None:
            return
        batch = running.batch
        found = [(f"{self._trail} {block.start}", self._pipeline_now.records(block)) for block in batch.beats]
        begin = self._heartbeats.read(found)
        if begin and begin[1] == batch.csn:
            self._applying.xid = begin[2]

    def _apply_rows(self, running: Running) -> None:
        """What is refused ends the process; but what lies before its transaction is applied first.

        So the row then stands right before it, where START's SKIPTRANSACTION leaves it out and nothing else.
        """
        try:
            self._applying.apply(running)
        except AbendError as error:
            if running.batch.transactions < 2 or error.csn == self._refused:
                raise
            self._refused = error.csn
            raise BeginAgainError(
                f"A change of transaction CSN {error.csn} is refused: rolled back; those before it are applied first"
            ) from error

    def _apply_alone(self, running: Running) -> None:
        """A change of shape that the target commits by itself: then the row. Between both, it is found done already.

        Before it the row is durable where it stands, and ours: rows of the old shape never come again behind it.
        """
        assert running.ddl
        here = dataclasses.replace(self._row, flushed=self._row.position)
        self._target.flush(self._row, here)
        self._row = here
        records = self._pipeline_now.records(running.ddl)
        self._applying.take_xid(running, records)
        self._ddl.apply(running, records)
        self._measures.begun(self._target.taken)
        self._applying.begin(self._row, self._moved(running))
        self._applying.commit(running)
        self._committed(running)

    def _committed(self, running: Running) -> None:
        self._row = self._moved(running)
        self._measures.committed(running.batch, self._target.taken)
        skew = None
        if self._heartbeats is not None:
            self._heartbeats.committed()
            skew = self._heartbeats.skew_us
        self._lag_is(*lag_of(self._clock.now_us(), running.batch.time_us, skew))
        self._works()

    def _moved(self, running: Running) -> Row:
        batch = running.batch
        return dataclasses.replace(
            self._row,
            position=batch.end,
            split=batch.split,
            skip_until="",
            trail_id=self._pipeline_now.trail_id,
            csn=self._row.csn if batch.partial else batch.csn,
            xid=self._applying.xid,
            time_us=batch.time_us,
            flushed=batch.end if self._params.commit_wait else self._row.flushed,
        )

    def _flush_row(self, pipeline: Pipeline) -> None:
        position = pipeline.idle_position or self._row.position
        position = max(position, self._row.position)
        # After a loss, with nothing to apply: the row as it stands proves that the target works again.
        unproven = self._failing_since is not None and pipeline.at_end
        if position == self._row.position == self._row.flushed and not unproven:
            return
        new = dataclasses.replace(
            self._row,
            position=position,
            split=self._row.split if position == self._row.position else 0,
            flushed=position,
            trail_id=pipeline.trail_id or self._row.trail_id,
        )
        self._target.flush(self._row, new)
        self._row = new
        self._works()

    # Where we stand

    def _attach(self) -> None:
        """Connect, and make a pipeline from the row."""
        self._target.connect()
        if self._heartbeats is not None:
            self._heartbeats.attached()
        self._row = startup.find_row(
            self._target, self._registration, self._fs, self._trail, self._note, seen=self._seen
        )
        self._seen = self._row.alter_no
        self._discards.attach(self._row.position)
        self._applying.reset(self._row.xid)
        self._planning.forget()
        self._pipeline = Pipeline(
            self._fs,
            self._trail,
            Begin(self._begin, self._row.trail_id, self._row.split, self._row.skip_until),
            self._bounds(),
            self._engine,
            self._planning.plans,
            self._spill,
            self._note,
        )
        if self._end is not None and (why := startup.is_beyond(self._row, self._end)):
            self._pipeline.stop(why)
            self._look_for_end(self._pipeline)
        self._startup = self._startup or self._place(self._row.position)

    def _bounds(self) -> Bounds:
        params = self._params
        cutting = Cutting(
            group=params.group_trans_ops,
            split=params.max_trans_ops,
            end=self._end,
            at_eof=params.end is not None and not params.end.csn and params.end.time_us is None,
            cut_ddl=not self._target.transactional_ddl,
            before=self._refused,
        )
        return Bounds(params.batch_rows, params.batch_bytes, cutting, params.batch_seconds)

    @property
    def _pipeline_now(self) -> Pipeline:
        assert self._pipeline is not None
        return self._pipeline

    @property
    def _begin(self) -> Position | None:
        """Where reading begins; None stands for the first file there is."""
        fresh = self._row.position == Position(0, 0) and not self._row.trail_id
        return None if fresh else self._row.position

    def _reattach(self) -> bool:
        """After a loss: connect again when it is time. False: not yet."""
        if self._away and self._clock.monotonic() < self._try_at:
            return False
        self._attach()
        self._away = False
        return True

    def _detach(self) -> None:
        """Forget everything but what the target knows."""
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None
        self._applying.reset()
        self._target.close()

    def _be_away(self, error: AwayError) -> None:
        """Try again a little later, up to RECONNECTSECS; then the process ends and AUTORESTART's turn comes."""
        self._detach()
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
            self._note(f"{error}; trying again for {self._params.reconnect_seconds} seconds")
        if now - self._failing_since >= self._params.reconnect_seconds:
            raise error
        self._away = True
        self._try_at = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

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
        self._detach()

    def _works(self) -> None:
        """Something was committed: a connection alone proves nothing. The next loss is another one."""
        self._failing_since = None
        self._pause = FIRST_PAUSE

    # Telling

    @property
    def _at_eof(self) -> bool:
        return self._pipeline is not None and self._pipeline.at_end

    def _lag_is(self, us: int | None, why: str = "") -> None:
        self._lag_us, self._lag_why, self._lag_at = us, why, self._clock.monotonic()

    def _lag(self) -> int | None:
        """That of the last commit, or none at the trail's end, and all the time since: it grows while nothing moves."""
        if self._at_eof:
            return 0
        return None if self._lag_us is None else self._lag_us + int((self._clock.monotonic() - self._lag_at) * 1e6)

    @property
    def _arrivals(self) -> list[dict[str, Any]]:
        return self._heartbeats.arrivals.entries() if self._heartbeats is not None else []

    def _status(self) -> dict[str, Any]:
        if self._away:
            text = "Waiting for the target database"
        else:
            text = "At EOF" if self._at_eof else "Processing data"
        return {
            "ok": True,
            "status": text,
            "read": dataclasses.asdict(self._place(self._row.position)),
            "write": [],
            "in_transaction": None,
        }

    def counters(self) -> Counters:
        """See Process."""
        return self._measures.counters()

    def _metrics(self) -> dict[str, Any]:
        """What METRICS can't know of by itself; `newest_us`: commit time of the last transaction in the target."""
        begun = self._row.position if self._begin is not None else None
        waiting = 0 if self._at_eof else trail_backlog(self._fs, self._trail, begun)
        status = self._status()
        return {
            "read": status["read"],
            "write": None,
            "backlog_bytes": waiting,
            "backlog_us": None if waiting else 0,
            "extra": {
                "state": status["status"] if self._away else "",
                "newest_us": self._row.time_us or None,
                "clock_offset_us": self._heartbeats.ahead_us if self._heartbeats is not None else None,
                **self._measures.extra(self.stats),
            },
        }

    def _place(self, position: Position) -> Place:
        path = self._trail.path(position.seqno)
        return Place(position.seqno, position.rba, self._row.time_us, self._row.csn, path)

    def _checkpoint(self) -> Checkpoint:
        current = self._place(self._row.position)
        read = ReadCheckpoint(
            "GGS Log Trail", self._startup or current, current, recovery=self._place(self._row.flushed)
        )
        extra = {
            "group_key": self._registration.group_key,
            "trail_id": self._row.trail_id.hex(),
            "alter_no": self._row.alter_no,
            "heartbeats": self._arrivals,
        }
        return Checkpoint(self._registration.name, "REPLICAT", reads=(read,), lag_us=self._lag(), extra=extra)
