"""A chunk piped from the source's bulk output straight into the target's bulk input, where both speak the same text.

Rule: rows and mark are one target transaction, which commits only under the fence that the round began with. Whoever
commits is the task itself: the driver learns it from the table of chunks, not from the task's answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from replicat.load.chunk import ChangedAwayError, ChunkTask, Copied, Refused
from replicat.load.loadtables import LoadTables
from replicat.load.staging import LOCK_SECONDS, opened, snapshot_of
from replicat.model.again import ShapeChangedError
from replicat.model.plan import TablePlan
from replicat.model.target import NOT_TAKEN, Layout, RefusedError
from replicat.reading.contract import OtherShapeError, Range
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import kind_of, open_target
from trails.errors import AwayError, GateError
from trails.record import TableDef


@dataclass(frozen=True, slots=True)
class PipeTask:
    """One chunk to pipe. `layout`: where its rows go; `fence`: under which it commits."""

    chunk: ChunkTask
    layout: Layout
    target: TargetSettings
    fence: int


def fits(plan: TablePlan, definition: TableDef) -> bool:
    """Whether rows need nothing but to be carried: same kind of database, same types, no more of a MAP than names."""
    if plan.error or plan.mapping is not None or plan.zero_dates or plan.conflict is not None:
        return False
    natives = {column.name: column.native for column in definition.columns}
    layout = plan.layout
    return all(natives.get(name) == type_ for name, type_ in zip(layout.columns, layout.types, strict=True))


def pipe_partition(tasks: Iterable[PipeTask]) -> Iterator[Copied | Refused | GateError]:
    """For mapPartitions; an expected error is a result."""
    found: list[Copied | Refused | GateError] = []
    for task in tasks:
        try:
            found.append(pipe(task))
        except RefusedError as error:
            found.append(Refused(task.chunk.chunk, error.shown))
        except ShapeChangedError as error:
            found.append(Refused(task.chunk.chunk, str(error)))
        except OtherShapeError as error:
            found.append(ChangedAwayError(f"the source has changed: {error}"))
        except GateError as error:
            found.append(error)
    return iter(found)


def pipe(task: PipeTask) -> Copied:
    """Copy the chunk by a snapshot of its own, and mark it."""
    asked = task.chunk
    statements = LoadTables(
        kind_of(task.target.url), task.target.checkpoint_table, task.target.group, task.target.group_key
    )
    target = open_target(task.target)
    reader: Any = opened(asked.source, LOCK_SECONDS)
    try:
        target.connect()
        snapshot = snapshot_of(reader, asked)
        part = Range(asked.chunk.orders, asked.chunk.low, asked.high)
        size = _Size()
        with target.alone():
            rows = target.pour(task.layout, size.of(reader.copy(asked.table, task.layout.columns, part)))
            if rows != size.rows:
                what = f"the target took {rows} of {size.rows} rows: a trigger or rule there takes no more"
                raise RefusedError(task.layout.full_name, what, NOT_TAKEN)
            reader.settle()
            done = replace(
                asked.chunk, seen=snapshot.seen, past=str(snapshot.past), rows=rows, bytes=size.bytes
            )  # fmt: skip
            marks = statements.set_chunk(done), statements.chunk_done(task.fence)
            if [target.write(*statement) for statement in marks] != [1, 1]:
                raise AwayError(f"chunk {done.number} of {done.source} was changed by another process meanwhile")
        reader.end()
    finally:
        reader.close()
        target.close()
    return Copied(asked.chunk, snapshot.seen, snapshot.past, rows, size.bytes)


class _Size:
    """Counts what passes."""

    def __init__(self) -> None:
        self.bytes = self.rows = 0

    def of(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same."""
        for piece in pieces:
            self.bytes += len(piece)
            self.rows += piece.count(b"\n")
            yield piece
