"""The Replicat process: trail -> Spark job -> one target transaction with the checkpoint row.

    away ──connect, read the row──> ready ──first job of a batch──> open ──its last job──> commit ──> ready
     ^                                │                               │
     └─────────── AwayError, or PlaceLostError: the row is not where we left it ┘

Rule: the row is the only truth (I3). Each new connection starts from it, never from memory: a killed predecessor's
commit may have landed meanwhile (CW-01), an asynchronous commit may be gone after a crash of the target (CW-16).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from replicat import startup
from replicat.discard import Discards
from replicat.engine import Engine
from replicat.ladder import apply_task
from replicat.mapping import find_rule, missing_table, plan_table
from replicat.params import MapRule, ReplicatParams
from replicat.pipeline import Pipeline, Running
from replicat.plan import TablePlan
from replicat.target import PlaceLostError, Row, Target, TargetTable
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.errors import AwayError, GateError, OperatorError
from trails.fs import Fs
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.record import Op, TableDef
from trails.runtime.clock import Clock
from trails.runtime.process import Process, Wait
from trails.runtime.registration import Registration
from trails.runtime.stats import Stats
from trails.watch import Watch

# How long a step waits for a job before it lets the main loop look around.
LOOK_SECONDS = 0.05
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
_OPS = (Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE)

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
        seen: int | None = None,
        discards: Discards | None = None,
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
        self._pipeline: Pipeline | None = None
        self._open = False  # a batch's transaction is open
        self._row = Row(Position(0, 0))
        self._xid = ""
        self._pending_counts: list[dict[tuple[str, str], list[int]]] = []
        self._startup: Place | None = None
        self._lag_us: int | None = None
        self._lag_at = 0.0  # when that was true
        self._away = False
        self._failing_since: float | None = None  # since when nothing was committed, for RECONNECTSECS
        self._try_at = 0.0
        self._pause = FIRST_PAUSE
        self._plans: dict[bytes, tuple[TablePlan, ...]] = {}
        self._planned = 0
        self._watch: Watch | None = None
        self.stats = Stats(clock.now_us())
        self._attach()
        self._check_start()

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
            self._apply(running)
            pipeline.drop()
        if pipeline.at_end:
            self._lag_is(0)
        return pipeline.busy or running is not None

    def flush(self) -> Checkpoint:
        """See Process: what is committed becomes durable in the target; only that may be purged (CW-16)."""
        if self._pipeline is not None and not self._open:
            try:
                self._flush_row(self._pipeline)
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

    def command(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002  -- none of ours takes any
        """See Process."""
        answer = self._commands().get(verb)
        if answer is None:
            raise OperatorError(f"a Replicat does not know {verb}", hint=f"It knows {', '.join(self._commands())}")
        return answer()

    def _commands(self) -> dict[str, Callable[[], dict[str, Any]]]:
        return {
            "STATUS": self._status,
            "STATS": self.stats.to_reply,
            "GETLAG": lambda: {"ok": True, "lag_us": self._lag(), "at_eof": self._at_eof},
            "LOGEND": lambda: {"ok": True, "logend": self._at_eof},
        }

    # Applying

    def _apply(self, running: Running) -> None:
        parts = running.future.result()
        batch = running.batch
        if running.first:
            self._target.begin(self._row, self._moved(running))
            self._open = True
        refused = self._discards.handler(batch)
        for task, part in zip(running.tasks, parts, strict=True):
            apply_task(self._target, task, part, self._note, self._fs, refused)
            self._pending_counts.append(part.counts)
            self._xid = part.xid or self._xid
        if not running.last:
            return
        self._discards.sync()  # before the commit that skips their changes (I8)
        self._target.commit()
        self._open = False
        self._row = self._moved(running)
        self._lag_is(self._clock.now_us() - batch.time_us)
        self._works()
        self._count()
        self._discards.committed(self.stats, batch.end)

    def _moved(self, running: Running) -> Row:
        batch = running.batch
        assert self._pipeline is not None
        flushed = batch.end if self._params.commit_wait else self._row.flushed
        return dataclasses.replace(
            self._row,
            position=batch.end,
            trail_id=self._pipeline.trail_id,
            csn=batch.csn,
            xid=self._xid,
            time_us=batch.time_us,
            flushed=flushed,
        )

    def _count(self) -> None:
        """Only what is committed counts."""
        for counts in self._pending_counts:
            for (source, target), numbers in counts.items():
                for op, number in zip(_OPS, numbers, strict=True):
                    if number:
                        self.stats.count(source, target, op, number)
        self._pending_counts.clear()

    def _flush_row(self, pipeline: Pipeline) -> None:
        position = pipeline.idle_position or self._row.position
        position = max(position, self._row.position)
        if position == self._row.position == self._row.flushed:
            return
        new = dataclasses.replace(
            self._row, position=position, flushed=position, trail_id=pipeline.trail_id or self._row.trail_id
        )
        self._target.flush(self._row, new)
        self._row = new
        self._works()

    # Where we stand

    def _attach(self) -> None:
        """Connect, and make a pipeline from the row."""
        self._target.connect()
        self._row = startup.find_row(
            self._target, self._registration, self._fs, self._trail, self._note, seen=self._seen
        )
        self._seen = self._row.alter_no
        self._discards.attach(self._row.position)
        self._open = False
        self._xid = self._row.xid
        self._pending_counts.clear()
        self._plans = {}
        self._planned = 0
        self._pipeline = Pipeline(
            self._fs,
            self._trail,
            self._begin,
            self._row.trail_id,
            (self._params.batch_rows, self._params.batch_bytes),
            self._engine,
            self._plan_all,
            self._spill,
        )
        self._startup = self._startup or self._place(self._row.position)

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
        self._open = False
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

    def _works(self) -> None:
        """Something was committed: a connection alone proves nothing."""
        self._failing_since = None
        self._pause = FIRST_PAUSE

    # Mapping

    def _plan_all(self, planner: Planner) -> dict[bytes, tuple[TablePlan, ...]]:
        """Plans for every definition met; a new dict only when there are new ones."""
        if len(planner.definitions) != self._planned:
            plans = dict(self._plans)
            for identity, definition in planner.definitions.items():
                if identity not in plans:
                    plans[identity] = self._plan(definition)
            self._plans, self._planned = plans, len(planner.definitions)
        return self._plans

    def _plan(self, definition: TableDef) -> tuple[TablePlan, ...]:
        """A plan for each MAP that takes the table; an error in one is told when a row of it comes."""
        rule = find_rule(self._params.maps, self._params.excludes, definition.schema, definition.name)
        if rule is None:
            return ()
        try:
            table = self._target_table(rule, definition.full_name, definition.schema, definition.name)
            return (plan_table(rule, definition, table),)
        except AwayError:
            raise
        except GateError as error:
            return (startup.failing_plan(definition, str(error)),)

    def _target_table(self, rule: MapRule, source: str, schema: str, name: str) -> TargetTable:
        # Looked at for every new definition: whoever changed the source may have changed the target shortly before.
        place = rule.target.fill(schema, name)
        table = self._target.table(*place)
        if table is None:
            raise missing_table(rule, source, place)
        if table.fires and not self._params.allow_triggers:
            raise startup.would_fire(rule, table)
        return table

    def _check_start(self) -> None:
        """What can be known before the first row: tables named without wildcards, and definitions in force."""
        for rule in self._params.maps:
            exact = rule.source.exact
            if exact is not None and find_rule([rule], self._params.excludes, *exact) is not None:
                self._target_table(rule, ".".join(exact), *exact)
        for definition in startup.definitions_at(self._fs, self._trail, self._begin, self._row.trail_id):
            for plan in self._plan(definition):
                if plan.error:
                    raise OperatorError(plan.error)

    # Telling

    @property
    def _at_eof(self) -> bool:
        return self._pipeline is not None and self._pipeline.at_end

    def _lag_is(self, us: int) -> None:
        self._lag_us, self._lag_at = max(0, us), self._clock.monotonic()

    def _lag(self) -> int | None:
        """That of the last commit, or none at the trail's end, and all the time since: it grows while nothing moves."""
        if self._at_eof:
            return 0
        return None if self._lag_us is None else self._lag_us + int((self._clock.monotonic() - self._lag_at) * 1e6)

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
        }
        return Checkpoint(self._registration.name, "REPLICAT", reads=(read,), lag_us=self._lag(), extra=extra)
