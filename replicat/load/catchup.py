"""A paused table catches up: what it has missed is read from its own place on, and applied, up to the group's place.

    begin   the next table that is resumed; the group's row stays where it is until the turn is over
    batch   its changes alone, in a target transaction of their own that moves its place: so each counts once
    end     at the group's place the table is like any other; or the turn is over, and the group's turn comes

Rule: a turn and a batch of the group are never under way together, so the table's older changes never meet newer ones.
What goes wrong with the table pauses it again, where it has come to; all else is begun again from both rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from replicat.apply.applying import Applying
from replicat.batches.engine import Engine
from replicat.batches.pipeline import BatchPipeline, Begin, Bounds, RunningJob
from replicat.batches.planning import Planning
from replicat.load.pausedtable import PausedRow
from replicat.load.pausing import Pausing
from replicat.model.again import BeginAgainError, ShapeChangedError
from replicat.model.pausing import ChangesGoneError, PausePlace, TablePausedError
from replicat.model.plan import Plans, TablePlan
from replicat.model.target import CheckpointRow
from replicat.targets.contract import Target
from trails.ddl import DdlChange
from trails.errors import DiskFullError, OperatorError
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.reader import Block
from trails.record import Op, TableDef

Note = Callable[[str], None]
TURN_SECONDS = 5.0
"""So long a turn goes on beginning batches, while changes of other tables wait."""


@dataclass(slots=True)
class _Turn:
    """One table's turn. `row`: its row as it stands in the target, or as the open transaction has moved it."""

    row: PausedRow
    pipeline: BatchPipeline
    ends: float
    open: bool = False


class CatchUp:
    """Runs turns, one at a time."""

    def __init__(
        self,
        pausing: Pausing,
        target: Target,
        engine: Engine,
        planning: Planning,
        applying: Applying,
        fs: Fs,
        trail: TrailName,
        bounds: Bounds,
        spill: str,
        note: Note,
    ) -> None:
        """`bounds`: of the table's own batches. `spill`: where workers leave large results."""
        self._pausing = pausing
        self._target = target
        self._engine = engine
        self._planning = planning
        self._applying = applying
        self._fs = fs
        self._trail = trail
        self._bounds = bounds
        self._spill = spill
        self._note = note
        self._turn: _Turn | None = None
        self._after = 0.0  # from then on a turn may begin although changes wait
        self._rests = 0.0  # and none before
        self._reshaped: PausePlace | None = None  # the place when the target's table had last changed under us

    @property
    def running(self) -> bool:
        """Whether a turn is under way."""
        return self._turn is not None

    @property
    def is_open(self) -> bool:
        """Whether it has a transaction open."""
        return self._turn is not None and self._turn.open

    def due(self, row: CheckpointRow, *, at_end: bool) -> bool:
        """Whether a turn is to begin once no batch is under way. `at_end`: nothing waits to be applied."""
        now = time.monotonic()
        if now < self._rests or (now < self._after and not at_end):
            return False
        return self._pausing.next(row) is not None

    def begin(self, row: CheckpointRow) -> None:
        """Begin a turn. Raises ChangesGoneError, TablePausedError."""
        found = self._pausing.next(row)
        assert found is not None
        if why := self._pausing.gone(found, row):
            raise ChangesGoneError(found.pair, why)
        at = found.at
        begin = None if at.position == Position(0, 0) else at.position
        plans = _CatchUpPlans(self._planning, found)
        try:
            pipeline = BatchPipeline(
                self._fs, self._trail, Begin(begin, at.trail_id, at.split, at.skip_until), self._bounds, self._engine,
                plans.plans, self._spill, self._note, until=row.position,
            )  # fmt: skip
        except OperatorError as error:
            raise TablePausedError(found.pair, str(error)) from error
        self._turn = _Turn(found, pipeline, time.monotonic() + TURN_SECONDS)

    def step(self, row: CheckpointRow, seconds: float) -> bool:
        """Go on for a moment; whether the turn is over. Raises TablePausedError, ChangesGoneError, and what begins both
        again.
        """
        turn = self._turn
        assert turn is not None
        try:
            over = self._step(turn, row, seconds)
        except DiskFullError:
            raise
        except OperatorError as error:
            if why := self._pausing.gone(turn.row, row):
                raise ChangesGoneError(turn.row.pair, why) from error
            raise TablePausedError(turn.row.pair, f"catching up: {error}") from error
        except ShapeChangedError as error:
            if self._reshaped == turn.row.at:
                raise TablePausedError(turn.row.pair, f"{error}; so it was again after a new look at it") from error
            self._reshaped = turn.row.at
            raise BeginAgainError(f"{error}: looking at the target's table anew") from error
        if over:
            self.drop()
            self._after = time.monotonic() + TURN_SECONDS
        return over

    def drop(self) -> None:
        """Forget the turn: nothing of it that is not committed is there."""
        if self._turn is not None:
            self._turn.pipeline.close()
            self._turn = None

    # Steps

    def _step(self, turn: _Turn, row: CheckpointRow, seconds: float) -> bool:
        pipeline = turn.pipeline
        more = time.monotonic() < turn.ends
        pipeline.fill(more=more)
        running = pipeline.head(seconds)
        if running is not None:
            pipeline.fill(more=more)  # the next job decodes while this one is applied
            self._apply(turn, running, row)
            pipeline.drop()
            return False
        if pipeline.begun:
            return False
        if pipeline.hole is not None:  # the group has passed it
            self._note(f"{turn.row.source} catches up: going on behind the hole at position {pipeline.hole.start}")
            pipeline.pass_hole()
            return False
        if pipeline.reached:
            self._pausing.done(row, turn.row)
            self._note(f"{turn.row.source} to {turn.row.target} has caught up, and is live")
            return True
        if pipeline.at_end:  # the trail's writer is down, and has lost what was not on its disk
            self._rests = time.monotonic() + TURN_SECONDS
        return not more or pipeline.at_end

    def _apply(self, turn: _Turn, running: RunningJob, row: CheckpointRow) -> None:
        running.future.result()  # an error of the job, before anything is opened for it
        if running.first:
            self._target.begin(row, row)
            turn.open = True
        if running.ddl:
            self._check(turn.row, running.ddl, turn.pipeline)
        else:
            self._applying.apply(running)
        if running.last:
            batch = running.batch
            csn = turn.row.at.csn if batch.partial else batch.csn
            at = PausePlace(batch.end, batch.split, turn.pipeline.trail_id, csn)
            turn.row = self._pausing.moved(turn.row, at)
            self._applying.commit(replace(running, batch=replace(batch, end=row.position)))
            turn.open = False

    def _check(self, one: PausedRow, block: Block, pipeline: BatchPipeline) -> None:
        """A change of shape: other tables' are applied already, and none of this one can have been passed."""
        for record in pipeline.records(block):
            if record[0] == Op.DDL:
                change = DdlChange.from_wire(record[1], f"position {block.start}")
                if one.source in {".".join(name) for name in change.names}:
                    raise ChangesGoneError(one.pair, f"its shape changed at the source, at position {block.start}")


class _CatchUpPlans:
    """The plans of one table; of all others there are none."""

    def __init__(self, planning: Planning, one: PausedRow) -> None:
        self._planning = planning
        self._one = one
        self._made: dict[bytes, tuple[TablePlan, ...]] = {}

    def plans(self, definitions: Mapping[bytes, TableDef]) -> Plans:
        """Plans for every definition met; a new dict only when there are new ones."""
        new = {
            identity: self._of(definition) if definition.full_name == self._one.source else ()
            for identity, definition in definitions.items()
            if identity not in self._made
        }
        if new:
            self._made = self._made | new
        return self._made

    def _of(self, definition: TableDef) -> tuple[TablePlan, ...]:
        found = self._planning.plans_to(definition, self._one.target)
        if not found:
            raise OperatorError(
                f"no MAP takes {self._one.source} to {self._one.target} any more",
                hint="Write it again, STOP and START, then RESUME TABLE; or give up what it missed: RESUME TABLE ..., "
                "SKIP",
            )
        return found
