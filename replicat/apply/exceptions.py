"""Refused changes as rows of an exceptions table: MAPEXCEPTION and EXCEPTIONSONLY.

Rule: the row is inserted in the very target transaction that leaves the change out, so there is never one without the
other. An exceptions table that refuses its row ends the process: there is nobody left to give the change to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from replicat.batches.engine import Engine
from replicat.model.plan import TablePlan
from replicat.model.programs import Programs, programs_of
from replicat.model.target import Bag, RefusedError, Work
from replicat.targets.contract import Target
from replicat.work.decode import Spot
from replicat.work.mapped import Evaluations, MappedWorker, RowMapper
from replicat.work.roles import ChangeFacts, Result
from trails.errors import OperatorError
from trails.record import MISSING, Image, Op, Value

_OPS = {"insert": Op.INSERT, "update": Op.UPDATE, "delete": Op.DELETE}
DATABASE = "DB"
MAPPING = "MAP"


@dataclass(frozen=True, slots=True)
class LastError:
    """What @GETENV('LASTERR', ...) gives."""

    number: str
    message: str
    op: str
    kind: str = DATABASE
    shown: str = ""  # the message without the row's values, for people

    @classmethod
    def of(cls, error: RefusedError, op: str, *, mapping: bool = False) -> LastError:
        """Of a refused change; `mapping`: its MAP's expression failed."""
        kind = MAPPING if mapping else DATABASE
        return cls(error.code or error.sqlstate, error.message, op.upper(), kind, error.shown)

    def facts(self) -> dict[str, Value]:
        """By the names that expressions use."""
        return {
            "lasterr.dberrnum": self.number,
            "lasterr.dberrmsg": self.message,
            "lasterr.optype": self.op,
            "lasterr.errtype": self.kind,
        }


class Exceptions:
    """Writes exceptions rows into the open target transaction."""

    def __init__(self, target: Target, engine: Engine) -> None:
        """`engine`: for MAPs with expressions."""
        self._target = target
        self._engine = engine

    def insert(self, spot: Spot, last: LastError) -> None:
        """A row in each exceptions table of the change's MAP."""
        assert spot.plan is not None
        for plan in spot.plan.exceptions:
            try:
                row = map_row(plan, spot, last, self._engine)
                if row is None:
                    continue
                layout = replace(plan.layout, key=())
                made, _ = layout.blob([[None if value is MISSING else value for value in row]])
                self._target.apply((Work(bags=(Bag(layout, inserts=made),)),), single=True)
            except RefusedError as error:
                raise OperatorError(
                    f"{plan.target}: the exceptions table refuses the row of change {spot.index} of CSN {spot.csn}, "
                    f"position {spot.position}: {error.shown}; the change itself was refused: {last.shown}",
                    hint="Nothing of the batch was committed. Mend the exceptions table or its MAP, then START again",
                ) from error


class _Row:
    """Takes the one row that an exceptions MAP makes of a change."""

    def __init__(self) -> None:
        self.row: Image | None = None

    def insert(self, row: Image) -> None:
        """The row."""
        self.row = row


def map_row(plan: TablePlan, spot: Spot, last: LastError, engine: Engine) -> Image | None:
    """A change as a row of an exceptions table; None if the MAP's filter leaves it out. RefusedError."""
    programs = programs_of({b"": (plan,)})
    mapper = RowMapper(plan, programs)
    facts = ChangeFacts(spot.csn, spot.xid or None, spot.time_us, spot.position, spot.index, last.facts())
    op, row, before = _OPS[spot.op], spot.after if spot.after is not None else spot.before, spot.before
    assert row is not None
    asks = [ask for ask in mapper.asks(op, row, before if op == Op.UPDATE else None) if ask is not None]
    wanted = [list(ask.role.operands(ask.image, ask.before, facts, ask.mask)) for ask in asks if ask.evaluates]
    taken = _Row()
    evaluations = Evaluations(iter(_evaluated(plan, engine, programs, wanted)) if wanted else None)
    worker = MappedWorker(mapper, taken, evaluations, facts, [0, 0, 0])
    if op == Op.UPDATE:
        worker.update(row, before)
    elif op == Op.INSERT:
        worker.insert(row)
    else:
        worker.delete(row)
    return taken.row


def _evaluated(plan: TablePlan, engine: Engine, programs: Programs, rows: Sequence[list[Any]]) -> list[Result]:
    from replicat.work.evaluate import EvaluationError, evaluate
    from replicat.work.sparkparser import SparkSql

    sql = engine.sql
    if sql is None:
        raise OperatorError(
            f"{plan.target}: the exceptions MAP has expressions, and there is no Spark to evaluate them",
            hint="STOP the Replicat, then START it: a start with expressions begins Spark",
        )
    try:
        return evaluate(cast("SparkSql", sql), programs, rows)
    except EvaluationError as error:
        failure = error.failure
        raise RefusedError(plan.target, failure.message, failure.sqlstate, shown=failure.shown) from error
