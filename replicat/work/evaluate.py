"""Expressions evaluated by Spark: in one job a batch, or by hand on the driver where that job failed on some row.

    stage A  Python worker  decodes the task's blocks, sends one row of operands for each evaluation  operand_batches
    JVM                     verdict and values of every row                                           select
    stage C  Python worker  decodes again, takes the results in the same order, returns the part      parts

A and C run side by side. What a row is, is in mapping/programs.py; which rows a change has, in mapping/mapped.py.
Where a batch is small, the driver does all of it by itself, which costs a thirtieth of a job: its Python decodes, and
its JVM evaluates by the plan's projections (projected.py).
Spark plans once for a set of programs, which costs it more than many a batch: the tasks are no part of the plan, they
travel beside it as the job's local properties. Not where something is drawn or asks for the time: Spark puts into the
plan what drawing begins with, and what time it is.
An expression that fails on some row fails the job; then `EvaluatedRows` evaluates the task's rows on the driver
(Spark folds the select over local rows, no job runs), halving until only the rows that fail are left.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import pickle
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from replicat.model.loading import LoadAgainError
from replicat.model.plan import Expression, Operand, TablePlan
from replicat.model.programs import FIRST, REFUSE, Program, Programs, mark, programs, programs_of
from replicat.work import kernel
from replicat.work.decode import Task, attempt, blocks, facts_of, payloads, settle
from replicat.work.mapped import RowMapper
from replicat.work.net.compact import whole
from replicat.work.net.part import Part, Unmapped, spilled
from replicat.work.projected import Projections
from replicat.work.resultcolumns import ResultColumns
from replicat.work.roles import ChangeFacts, Failure, Result, Role
from replicat.work.sparkparser import SparkSql, failure_of, message_of
from replicat.work.usual import operands_of
from trails.controlflow import ControlFlowError
from trails.errors import AnewError, AwayError, GateError
from trails.fs import Fs, RealFs
from trails.record import BEGIN, COMMIT, DELETE, INSERT, UPDATE

BATCH_ROWS = 4096
SMALL_CHANGES = 1000
SMALL_BYTES = 1 << 20
"""Of a batch that the driver evaluates by itself; py4j carries bytes as text."""
_SHOWN = 60
Row = Sequence[Any]
"""p, m, c0... of mapping/programs.py."""


def select(frame: Any, programs_: Programs) -> Any:
    """A DataFrame of operand rows to one of results: f, r0..."""
    judged = frame.selectExpr("p", "m", f"{programs_.verdict_sql} AS f", *(f"c{i}" for i in range(programs_.width)))
    return judged.selectExpr("f", *(f"{programs_.value_sql(i)} AS r{i}" for i in range(programs_.values)))


def frame_type(programs_: Programs) -> str:
    """The columns of operand rows."""
    return f"p int, m string{''.join(f', c{i} string' for i in range(programs_.width))}"


RESULT_TYPE = "result binary"
TASK = "trailgate.task."
"""The local property of a job that holds the task of the partition whose number follows."""
_WHEN = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Texts that Spark takes for a time when it plans: the plan does not tell."""


class MappedJobs:
    """Runs tasks whose plans evaluate these programs, in several threads if need be.

    What Spark makes of them is kept, one plan a number of tasks, if it is the same whenever it is made.
    """

    def __init__(self, sql: SparkSql, programs_: Programs) -> None:
        self.programs = programs_
        self._sql = sql
        self._frames: dict[int, Any] = {}
        self._here: Projections | None = None
        self._proved: bool | None = None
        """Whether projections gave the same as a query of the first rows that came; None before that."""

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """Parts (or expected errors) of tasks; EvaluationError if an expression fails on some row."""
        small = len(tasks) == 1 and is_small(tasks[0])
        if small and self._proved:
            with self._doubting():
                return [self._by_projections(tasks[0])]
        found = self._by_job(tasks)
        if small and self._proved is None and 1 in self._frames and isinstance(found[0], Part):
            self._prove(_operand_rows(tasks[0], self.programs))
        return found

    def _prove(self, rows: Sequence[Row]) -> None:
        """Whether projections come to the same as a query does. Where nothing was evaluated, nothing is known."""
        if not rows:
            return
        self._proved = False
        with self._doubting(), contextlib.suppress(EvaluationError):
            self._here = Projections(self._sql.session, self._judged(1))
            found = self._here.results(_batch(rows, self.programs))
            self._proved = found == evaluate(self._sql, self.programs, rows)

    @contextlib.contextmanager
    def _doubting(self) -> Iterator[None]:
        """What another Spark does not have as this one has it: jobs do without."""
        try:
            yield
        except EvaluationError:
            raise
        except Exception:  # noqa: BLE001  -- whatever it is
            self._sql.check()
            self._proved = False

    def _by_projections(self, task: Task) -> Any:
        """As `parts` does it."""
        assert self._here is not None
        rows = _operand_rows(task, self.programs)
        with _failing_rows(self._sql):
            results = self._here.results(_batch(rows, self.programs)) if rows else []
        try:
            return attempt(task, RealFs(), iter(results))
        except (GateError, LoadAgainError) as error:
            return error

    def _by_job(self, tasks: Sequence[Task]) -> list[Any]:
        context = self._sql.session.sparkContext
        try:
            with _failing_rows(self._sql):
                for number, task in enumerate(tasks):
                    context.setLocalProperty(f"{TASK}{number}", base64.b64encode(pickle.dumps(task)).decode())
                found = self._frame(len(tasks)).collect()
        finally:
            for number in range(len(tasks)):
                context.setLocalProperty(f"{TASK}{number}", None)
        return [pickle.loads(row[0]) for row in found]

    def _frame(self, tasks: int) -> Any:
        frame = self._frames.get(tasks)
        if frame is None:
            frame = self._judged(tasks).mapInArrow(parts, RESULT_TYPE)
            if self._sql.is_timeless(frame) and not _WHEN.search(self.programs.sql):
                self._frames[tasks] = frame
        return frame

    def _judged(self, tasks: int) -> Any:
        numbers = self._sql.session.range(0, tasks, 1, tasks)
        return select(numbers.mapInArrow(operand_batches, frame_type(self.programs)), self.programs)


def is_small(task: Task) -> bool:
    """Whether a job would cost more than it spares."""
    sizes = (block.header.raw_len for block in task.blocks)
    return sum(block.header.changes for block in task.blocks) <= SMALL_CHANGES and sum(sizes) <= SMALL_BYTES


def _operand_rows(task: Task, programs_: Programs) -> list[Row]:
    """Where an expected error ends them too early, whoever takes the results meets it as well."""
    rows: list[Row] = []
    with contextlib.suppress(GateError), _no_collection():
        for _ in gather(task, RealFs(), programs_, rows):
            pass
    return rows


def _task() -> Task:
    """The task of the partition that this worker has."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    found: Task = pickle.loads(base64.b64decode(context.getLocalProperty(f"{TASK}{context.partitionId()}") or ""))
    return found


# --- stage A ----------------------------------------------------------------------------------------------------------


def operand_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """Stage A for mapInArrow: a task's operand rows out. The first one is not its own, so that there always is one.

    Where an expected error ends them too early, stage C, which reads the same, meets it as well and tells it.
    """
    for _ in batches:  # a worker that leaves something unread is not used again
        pass
    task = _task()
    found = programs_of(task.plans)
    rows: list[Row] = [(FIRST, None, *(None,) * found.width)]
    if (usual := _usual_operands(task, found)) is not None:
        yield _batch(rows, found)
        yield from (usual.slice(at, BATCH_ROWS) for at in range(0, usual.num_rows, BATCH_ROWS))
        settle()
        return
    # Whoever takes the results reads the same: an error here ends them, and is told there.
    with contextlib.suppress(GateError), _no_collection():
        for _ in gather(task, None, found, rows):
            if len(rows) >= BATCH_ROWS:
                yield _batch(rows, found)
                rows.clear()
    if rows:
        yield _batch(rows, found)
    settle()


def _usual_operands(task: Task, programs_: Programs) -> Any:
    """All of a task's rows as one batch, by the kernel; None where the plain code has to make them."""
    import pyarrow as pa

    rows = None
    with contextlib.suppress(GateError):
        rows = operands_of(task, payloads(task), programs_) if kernel.Taker else None
    if rows is None:
        return None
    return pa.RecordBatch.from_arrays(arrays_of(rows), names=_names(rows.width))


def arrays_of(rows: Any) -> list[Any]:
    """Arrow's arrays of a kernel.OperandRows, without a copy."""
    import pyarrow as pa

    numbers, texts = rows.columns()
    return [
        pa.Array.from_buffers(pa.int32(), rows.count, [None, pa.py_buffer(numbers)]),
        pa.nulls(rows.count, pa.string()),
        *(pa.Array.from_buffers(pa.string(), rows.count, [*map(pa.py_buffer, column)]) for column in texts),
    ]


def _names(width: int) -> list[str]:
    return ["p", "m", *(f"c{i}" for i in range(width))]


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """As attempt() has it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def gather(
    task: Task,
    fs: Fs | None,
    programs_: Programs,
    rows: list[Row],
    starts: list[list[int]] | None = None,
) -> Iterator[None]:
    """Appends the rows of the task's evaluations, block by block. `starts`: of each insert, update and delete, plan by
    plan, where its rows begin.
    """
    facts = facts_of(task, fs)
    mappers: dict[bytes, list[RowMapper | None]] = {}
    for position, tables, records in blocks(task, fs):
        facts.position = position
        for table in tables:
            if table not in mappers:
                mappers[table] = [_mapper(plan, programs_) for plan in task.plans.get(table, ())]
        found = [mappers[table] for table in tables]
        alone = [_alone(some) if starts is None else _NO_ROLES for some in found]
        for record in records:
            op = record[0]
            if INSERT <= op <= DELETE:
                role = alone[record[1]][op]
                if role is not None and (op != UPDATE or record[3] is None) and whole(record[2]):
                    rows.append(role.operands(record[2], record[2], facts))
                else:
                    _all_rows(found[record[1]], record, facts, rows, starts)
                facts.index += 1
            elif op == BEGIN:
                facts.begin(record[1], record[2], record[3])
            elif op != COMMIT:
                facts.index += 1
        yield


def _mapper(plan: TablePlan, programs_: Programs) -> RowMapper | None:
    """A plan's mapper, if it has anything to evaluate."""
    if plan.mapping is None or plan.error or not plan.mapping.expressions:
        return None
    return RowMapper(plan, programs_)


_NO_ROLES: Sequence[Role | None] = (None,) * 5


def _alone(mappers: Sequence[RowMapper | None]) -> Sequence[Role | None]:
    """By operation: the role that a whole image's values are sent in as they are, where it is the only one."""
    (mapper,) = mappers if len(mappers) == 1 else (None,)
    return _NO_ROLES if mapper is None else [role if role and role.plain else None for role in mapper.swift]


def _all_rows(
    mappers: Iterable[RowMapper | None],
    record: Sequence[Any],
    facts: ChangeFacts,
    rows: list[Row],
    starts: list[list[int]] | None,
) -> None:
    begins = []
    for mapper in mappers:
        begins.append(len(rows))
        if mapper is not None:
            _rows(mapper, record, facts, rows)
    if starts is not None:
        starts.append(begins)


def _rows(mapper: RowMapper, record: Sequence[Any], facts: ChangeFacts, rows: list[Row]) -> None:
    op, after = record[0], record[2]
    before = record[3] if op == UPDATE else None
    if before is None and (role := mapper.swift[op]) is not None and whole(after):
        if role.number >= 0:
            rows.append(role.operands(after, mapper.nulls, facts))
        return
    asks = [ask for ask in mapper.asks(op, after, before) if ask is not None and ask.evaluates]
    rows += [ask.role.operands(ask.image, ask.before, facts, ask.mask) for ask in asks]


def _batch(rows: Sequence[Row], programs_: Programs) -> Any:
    import pyarrow as pa

    names = _names(programs_.width)
    values = list(chain.from_iterable(rows))  # zip(*rows) takes five times as long
    numbers, *texts = (values[i :: len(names)] for i in range(len(names)))
    try:
        arrays = [pa.array(column, pa.string()) for column in texts]
    except UnicodeEncodeError:
        return _batch([_utf8(row) for row in rows], programs_)
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int32()), *arrays], names=names)


def _utf8(row: Row) -> Row:
    """The row, or one that fails in its place: Spark's texts are UTF-8."""
    try:
        "".join(text for text in row[2:] if text is not None).encode()
    except UnicodeEncodeError:
        message = "an operand is text that is no UTF-8, which Spark does not take"
        return [REFUSE, None, message, *[None] * (len(row) - 3)]
    return row


# --- stage C ----------------------------------------------------------------------------------------------------------


def parts(batches: Iterable[Any]) -> Iterator[Any]:
    """Stage C for mapInArrow: results in (f, r0...), a pickled part (or an expected error) out."""
    import pyarrow as pa

    task = _task()
    results = ResultColumns(batches, skip=1)
    try:
        part: Part | Unmapped | GateError | LoadAgainError = attempt(task, None, results)
        if task.spill and isinstance(part, Part):
            part = spilled(part, task.spill)
    except (GateError, LoadAgainError) as error:
        part = error
    except OSError as error:
        part = AwayError(f"decoding failed: {error}", hint=f"Make space in {task.spill or 'memory'}")
    results.drain()
    settle()
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(part)], pa.binary())], names=["result"])


def _usual() -> Programs:
    """What expressions often do: some of it takes Java a second when it is done for the first time."""
    kinds = ("STRING", "INT", "DECIMAL(14,2)", "TIMESTAMP")
    text, number, decimal, moment = (Operand("column", i, type=kind) for i, kind in enumerate(kinds))
    filter_ = Expression(f"{mark(0)} < 2", "", "", (number,), "boolean")
    values = (
        Expression(f"upper(concat({mark(0)}, '-'))", "", "", (text,), "text"),
        Expression(f"round({mark(0)} * 1.1, 2)", "", "", (decimal,), "decimal"),
        Expression(f"{mark(0)} + INTERVAL '1' DAY", "", "", (moment,), "timestamptz"),
    )
    return Programs([Program(row_filters=(filter_,), values=values)])


WARM_BATCHES = 3
_ROW = (0, None, "1", "one", "1.50", "2001-02-03 04:05:06+00")


def warm_rows(batches: Iterable[Any]) -> Iterator[Any]:
    """In stage A's place."""
    for _ in batches:
        for _ in range(WARM_BATCHES):
            yield _batch([_ROW] * BATCH_ROWS, _usual())


def forget(batches: Iterable[Any]) -> Iterator[Any]:
    """In stage C's place: everything is read, nothing comes of it."""
    import pyarrow as pa

    for batch in batches:
        for column in batch.columns:
            column.to_numpy(zero_copy_only=False)
    yield pa.RecordBatch.from_arrays([pa.nulls(1, pa.binary())], names=["result"])


def warm(sql: SparkSql, jobs: int) -> None:
    """Some rows through all of it, as so many jobs: workers load what they need, Java compiles what it runs often."""
    usual = _usual()
    rows = sql.session.range(0, jobs, 1, jobs).mapInArrow(warm_rows, frame_type(usual))
    select(rows, usual).mapInArrow(forget, RESULT_TYPE).collect()


# --- on the driver ----------------------------------------------------------------------------------------------------


class EvaluatedRows:
    """A task's rows, evaluated as they are asked for, failures apart.

    As many rows as succeeded the last time are tried together, twice as many the next time; where that fails, half.
    """

    def __init__(self, sql: SparkSql, task: Task, fs: Fs | None = None) -> None:
        self._sql = sql
        self._programs = programs_of(task.plans)
        self._by_number = {self._programs.number(p): p for p in _programs_of(task)}
        self._rows: list[Row] = []
        self._starts: list[list[int]] = []
        for _ in gather(task, fs, self._programs, self._rows, self._starts):
            pass
        self._results: list[Result | Failure | None] = [None] * len(self._rows)
        self._size = BATCH_ROWS

    def since(self, change: int, plan: int = 0) -> Iterator[Result | Failure]:
        starts = self._starts[change] if change < len(self._starts) else []
        at = starts[plan] if plan < len(starts) else len(self._rows)
        while at < len(self._rows):
            yield self._result(at)
            at += 1

    def _result(self, at: int) -> Result | Failure:
        while (found := self._results[at]) is None:
            self._try(at)
        return found

    def _try(self, at: int) -> None:
        rows = self._rows[at : at + self._size]
        try:
            self._results[at : at + len(rows)] = evaluate(self._sql, self._programs, rows)
            self._size = min(self._size * 2, BATCH_ROWS)
        except EvaluationError as error:
            if len(rows) > 1:
                self._size = len(rows) // 2
                return
            self._results[at] = explained(self._sql, self._by_number.get(rows[0][0]), rows[0], error.failure)
            self._size = 2


class EvaluationError(ControlFlowError):
    """Some row fails."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def evaluate(sql: SparkSql, programs_: Programs, rows: Sequence[Row]) -> list[Result]:
    """Results of rows, on the driver; EvaluationError if any of them fails, AnewError if Spark does."""
    import pyarrow as pa

    batch = _batch([_utf8(row) for row in rows], programs_)
    try:
        frame = sql.session.createDataFrame(pa.Table.from_batches([batch]), frame_type(programs_))
        return [tuple(row) for row in select(frame, programs_).collect()]
    except GateError:
        raise
    except Exception as error:
        failure = _failure(sql, error)
        if failure is None:
            raise AnewError(
                f"Spark can't evaluate expressions: {message_of(error)}", hint="See Spark's log in dirrpt"
            ) from error
        raise EvaluationError(failure) from error


@contextlib.contextmanager
def _failing_rows(sql: SparkSql) -> Iterator[None]:
    """Where an expression fails on a row, that is EvaluationError."""
    try:
        yield
    except Exception as error:
        failure = _failure(sql, error)
        if failure is None:
            raise
        raise EvaluationError(failure) from error


def _failure(sql: SparkSql, error: Exception) -> Failure | None:
    """How an expression failed on a row; None where something else did, and AnewError where Spark is gone."""
    with sql.asking():
        found = failure_of(error)
    sql.check()
    return Failure(*found) if found else None


def explained(sql: SparkSql, program: Program | None, row: Row, failure: Failure) -> Failure:
    """A failed row's failure, with the expression that it is of and the values that this reads."""
    for at, expression in enumerate(program.all if program else ()):
        if row[1] is not None and row[1][at] == "1":
            continue
        alone = Program(values=(expression,))
        assert program is not None
        values = [row[2 + program.operands.index(operand)] for operand in alone.operands]
        padding = [None] * (1 - len(values))
        try:
            evaluate(sql, Programs([alone]), [[0, None, *values, *padding]])
        except EvaluationError as error:
            shown = ", ".join(f"{_named(o)} = {_short(v)}" for o, v in zip(alone.operands, values, strict=True))
            named = f"{expression.where}: {expression.keyword}: {expression.text} fails"
            message = error.failure.message
            kind = re.match(r"\[[A-Z0-9_.]+\]", message)  # Spark's name of the error; what follows may have values
            return Failure(
                error.failure.sqlstate,
                f"{named}{f' for {shown}' if shown else ''}: {message}",
                f"{named}{f': {kind[0]}' if kind else ''}",
            )
    return failure


def _named(operand: Operand) -> str:
    if operand.kind == "missing":
        return f"column {operand.index + 1} is missing"
    return f"before.{operand.name}" if operand.kind == "before" else operand.name


def _short(value: str | None) -> str:
    if value is None:
        return "NULL"
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}...")


def _programs_of(task: Task) -> Iterator[Program]:
    return iter(programs(plan for some in task.plans.values() for plan in some))
