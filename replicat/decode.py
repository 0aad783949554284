"""Blocks of a trail to target steps: what a Spark partition does, and what the driver does by hand after a refusal.

Rule: everything here works from a Task alone (paths, places, plans), reads only below positions that the driver saw
durable, checks every CRC, and returns its whole result: a retried or orphaned run of it changes nothing anywhere.
"""

from __future__ import annotations

import contextlib
import gc
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from replicat.compact import Net
from replicat.copytext import render
from replicat.target import Bag, Blob, Change, Fill, Layout, Rows, Step, Truncate, Work
from trails.codec import decode_data
from trails.errors import AwayError, DamageError, GateError, MismatchError, OperatorError
from trails.format import check_payload
from trails.fs import Fs, RealFs
from trails.position import Position, TrailName
from trails.record import MISSING, TRUNCATE_RESTART_IDENTITY, Image, Op
from trails.segment import Segment, open_segment

# Results from this size on go through a file.
SPILL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What becomes of a source table's rows. `pick`: image indexes that the target has (None: all).

    `integer_key`: one key column, of whole numbers. `error`: why it can't be applied; told when the first row of it is
    met, so that all before it still arrives.
    """

    source: str
    target: str
    layout: Layout
    key: tuple[int, ...]
    pick: tuple[int, ...] | None = None
    integer_key: bool = False
    error: str = ""
    columns: tuple[str, ...] = ()  # names of all columns of an image, where `pick` leaves some out

    @property
    def shape(self) -> tuple[Layout, tuple[int, ...], tuple[int, ...] | None]:
        """Plans of equal shape share one net effect."""
        return self.layout, self.key, self.pick

    def in_key_order(self, keys: Iterable[Any]) -> list[Any]:
        """Keys as the target's index has them, or nearly: rows that come so cost it half as much."""
        try:
            return sorted(keys, key=int) if self.integer_key else sorted(keys)
        except (TypeError, ValueError):
            return list(keys)


Plans = Mapping[bytes, TablePlan | None]  # by table id; None: no MAP wants this table
Place = tuple[int, int, int]  # file, first RBA and end RBA of a block


@dataclass(frozen=True, slots=True)
class Task:
    """One partition's share of a batch. `spill`: folder that driver and worker share for large results, or empty."""

    folder: str
    prefix: str
    trail_id: bytes
    blocks: tuple[Place, ...]
    plans: Plans
    spill: str = ""


@dataclass(slots=True)
class Part:
    """What a Task came to. `counts`: (source, target) -> inserts, updates, deletes, truncates."""

    steps: tuple[Step, ...] = ()
    counts: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    xid: str = ""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where one change stands and what it is, for messages and the discard file.

    `csn` is empty, and `index` counts from the task's start, where the transaction began before the task.
    """

    position: Position
    csn: str
    index: int
    table: str
    op: str
    key: str
    target: str = "?"
    columns: tuple[str, ...] = ()
    before: Image | None = None
    after: Image | None = None


def run(task: Task, fs: Fs | None = None) -> Part:
    """Decode, map, compact and render a task's blocks."""
    with _no_collection():
        builder = Builder(task.plans)
        for _, tables, records in blocks(task, fs):
            builder.add(tables, records)
        return builder.finish()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Records hold no cycles, and looking for some takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def run_partition(tasks: Iterable[Task]) -> Iterator[Part | GateError]:
    """`run` for mapPartitions. An expected error is a result: raised, it would reach the driver as a stack trace."""
    results: list[Part | GateError] = []
    for task in tasks:
        try:
            part = run(task)
            results.append(spill_part(part, task.spill) if task.spill else part)
        except GateError as error:
            results.append(error)
        except OSError as error:  # no space for a spilled result, most likely; reading says its own errors
            results.append(AwayError(f"decoding failed: {error}", hint=f"Make space in {task.spill or 'memory'}"))
    return iter(results)


def spill_part(part: Part, folder: str) -> Part:
    """Large blobs as files: through Spark's own channels they cost ten times as much."""

    def spilled(blob: Blob) -> Blob:
        if len(blob.data) < SPILL_BYTES:
            return blob
        path = os.path.join(folder, uuid.uuid4().hex)
        with open(path, "xb") as file:
            file.write(blob.data)
        return Blob(b"", blob.rows, path)

    def step(old: Step) -> Step:
        if isinstance(old, Truncate):
            return old
        rows = [
            replace(r, deletes=spilled(r.deletes), upserts=spilled(r.upserts), inserts=spilled(r.inserts))
            for r in old.rows
        ]
        bags = [replace(b, runs=tuple(spilled(r) if isinstance(r, Blob) else r for r in b.runs)) for b in old.bags]
        return Work(tuple(rows), tuple(bags))

    return replace(part, steps=tuple(step(old) for old in part.steps))


def transactions(task: Task, fs: Fs | None = None) -> list[int]:
    """Changes of each transaction that begins in the task, or goes on from before it."""
    found: list[int] = []
    for _, _, records in blocks(task, fs):
        for record in records:
            if record[0] == Op.BEGIN or not found:
                found.append(0)
            if record[0] not in (Op.BEGIN, Op.COMMIT):
                found[-1] += 1
    return found


def run_some(task: Task, low: int, high: int, fs: Fs | None = None) -> Part:
    """As run(), for the transactions numbered low <= n < high in the task."""
    builder = Builder(task.plans)
    at = -1
    for _, tables, records in blocks(task, fs):
        chosen = []
        for record in records:
            if record[0] == Op.BEGIN or at < 0:
                at += 1
            if low <= at < high:
                chosen.append(record)
        builder.add(tables, chosen)
    return builder.finish()


def run_each(task: Task, number: int, fs: Fs | None = None) -> Iterator[tuple[Spot, Part]]:
    """Every change of transaction `number` of the task by itself, in source order."""
    at, index, csn = -1, 0, ""
    for position, tables, records in blocks(task, fs):
        for record in records:
            if record[0] == Op.BEGIN or at < 0:
                at += 1
            if record[0] == Op.BEGIN:
                index, csn = 0, record[1]
            elif record[0] != Op.COMMIT:
                if at == number:
                    builder = Builder(task.plans)
                    builder.add(tables, [record])
                    yield _spot(task, position, csn, index, tables, record), builder.finish()
                index += 1


def blocks(task: Task, fs: Fs | None = None) -> Iterator[tuple[Position, list[bytes], list[Any]]]:
    """(place, table ids, records) of each block; every CRC checked."""
    trail = TrailName(task.folder, task.prefix)
    segment: Segment | None = None
    try:
        for seqno, start, end in task.blocks:
            if segment is None or segment.header.seqno != seqno:
                if segment is not None:
                    segment.close()
                segment = _open(fs or RealFs(), trail, seqno, task.trail_id)
            header = segment.block_header(start, end)
            payload = segment.payload(start, header)
            check_payload(header, payload, segment.path, start)
            tables, records = decode_data(header, payload, f"{segment.path}, RBA {start}")
            yield Position(seqno, start), tables, records
    finally:
        if segment is not None:
            segment.close()


def _open(fs: Fs, trail: TrailName, seqno: int, trail_id: bytes) -> Segment:
    try:
        segment = open_segment(fs, trail, seqno)
    except FileNotFoundError:
        raise MismatchError(
            f"{trail.path(seqno)}: this trail file was removed while it was read", hint="Restore it from a copy"
        ) from None
    if segment.header.trail_id != trail_id:
        segment.close()
        raise MismatchError(f"{segment.path}: expected trail {trail_id.hex()}, found {segment.header.trail_id.hex()}")
    return segment


class _Skip:
    """A table that no MAP wants."""

    def insert(self, _row: Image) -> None:
        return

    def update(self, _after: Image, _before: Image | None) -> None:
        return

    def delete(self, _before: Image) -> None:
        return


class _Keyless:
    """Changes of a table without a key, in order."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan
        self._pick = _picker(plan)
        self._run: list[Image] = []
        self._runs: list[Blob | Change] = []

    def insert(self, row: Image) -> None:
        self._run.append(row)

    def update(self, after: Image, before: Image | None) -> None:
        self._close_run()
        self._runs.append(Change(self._known(before), self._pick(after)))

    def delete(self, before: Image) -> None:
        self._close_run()
        self._runs.append(Change(self._known(before)))

    def bag(self) -> Bag:
        self._close_run()
        return Bag(self._plan.layout, tuple(self._runs))

    def _known(self, before: Image | None) -> Image:
        if before is None or MISSING in before:
            raise OperatorError(
                f"{self._plan.source}: a change of a table without a key came without the whole row as it was",
                hint="ADD TRANDATA for this table at the source (REPLICA IDENTITY FULL)",
            )
        return self._pick(before)

    def _close_run(self) -> None:
        if self._run:
            self._runs.append(_blob(self._run, self._plan, self._pick))
            self._run = []


_SKIP = _Skip()
_Worker = Net | _Keyless | _Skip


class Builder:
    """Gathers records into steps. A truncate, or another shape of the same target table, closes the current Work."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._steps: list[Step] = []
        self._open: dict[tuple[str, str], tuple[TablePlan, Net | _Keyless]] = {}
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._xid = ""

    def add(self, tables: list[bytes], records: list[Any]) -> None:
        """Take one block's records."""
        plans = [self._plan(table) for table in tables]
        shapes = {plan.shape for plan in plans if plan}
        if len({(layout.schema, layout.name) for layout, *_ in shapes}) < len(shapes):
            for record in records:  # one target in two shapes: what is open may change at each record
                self._add(plans, [record])
        else:
            self._add(plans, records)

    def finish(self) -> Part:
        """Everything taken so far."""
        self._close()
        return Part(tuple(self._steps), self._counts, self._xid)

    def _add(self, plans: list[TablePlan | None], records: list[Any]) -> None:
        used = range(len(plans)) if len(records) > 1 else _tables_of(records)
        for t in used:
            self._worker(plans[t])  # may close what is open: only after the last one is none of them stale
        workers: list[_Worker] = [self._worker(plans[t]) if t in used else _SKIP for t in range(len(plans))]
        inserts, updates, deletes = ([0] * len(plans) for _ in range(3))
        for record in records:
            op = record[0]
            if op == 3:
                t = record[1]
                updates[t] += 1
                workers[t].update(record[2], record[3])
            elif op == 2:
                t = record[1]
                inserts[t] += 1
                workers[t].insert(record[2])
            elif op == 4:
                t = record[1]
                deletes[t] += 1
                workers[t].delete(record[2])
            elif op == 1:
                self._xid = record[2]
            elif op == 5:
                self._truncate([plans[t] for t in record[1]], record[2])
                workers = [self._worker(plan) for plan in plans]
            elif op != 6:
                raise DamageError(f"a record of unknown kind {op!r} in a block whose CRCs are right")
        for t, plan in enumerate(plans):
            self._count(plan, (inserts[t], updates[t], deletes[t], 0))

    def _plan(self, table: bytes) -> TablePlan | None:
        try:
            return self._plans[table]
        except KeyError:
            raise DamageError(f"a block names table {table.hex()}, which nothing before it defines") from None

    def _worker(self, plan: TablePlan | None) -> _Worker:
        if plan is None:
            return _SKIP
        if plan.error:
            raise OperatorError(plan.error)
        place = (plan.layout.schema, plan.layout.name)
        found = self._open.get(place)
        if found is not None and found[0] is not plan and found[0].shape != plan.shape:
            self._close()
            found = None
        if found is None:
            found = self._open[place] = (plan, Net(plan.key) if plan.key else _Keyless(plan))
        return found[1]

    def _truncate(self, plans: list[TablePlan | None], flags: int) -> None:
        self._close()
        wanted = [plan for plan in plans if plan is not None]
        for plan in wanted:
            self._worker(plan)
            self._count(plan, (0, 0, 0, 1))
        if wanted:
            tables = dict.fromkeys((plan.layout.schema, plan.layout.name) for plan in wanted)
            self._check_shared({plan.target: plan.source for plan in wanted}, {plan.source for plan in wanted})
            self._steps.append(Truncate(tuple(tables), bool(flags & TRUNCATE_RESTART_IDENTITY)))

    def _check_shared(self, emptied: dict[str, str], sources: set[str]) -> None:
        """Refuse to empty a target table that also holds the rows of a source table that was not truncated."""
        for plan in self._plans.values():
            if plan and not plan.error and plan.target in emptied and plan.source not in sources:
                raise OperatorError(
                    f"TRUNCATE of {emptied[plan.target]}: it would empty {plan.target}, which also takes the rows of "
                    f"{plan.source}",
                    hint="Delete the rows in the target by hand, and ALTER REPLICAT past it (logdump shows where)",
                )

    def _close(self) -> None:
        rows: list[Rows] = []
        bags: list[Bag] = []
        for plan, worker in self._open.values():
            if isinstance(worker, _Keyless):
                if (bag := worker.bag()).runs:
                    bags.append(bag)
            elif worker:
                rows.append(net_rows(plan, worker))
        self._open.clear()
        if rows or bags:
            self._steps.append(Work(tuple(rows), tuple(bags)))

    def _count(self, plan: TablePlan | None, added: tuple[int, int, int, int]) -> None:
        if plan is not None and any(added):
            counts = self._counts.setdefault((plan.source, plan.target), [0, 0, 0, 0])
            counts[:] = [a + b for a, b in zip(counts, added, strict=True)]


def net_rows(plan: TablePlan, net: Net) -> Rows:
    """A net effect as COPY text, with what must be filled from the target set apart."""
    pick = _picker(plan)
    fills = []
    if plan.layout.extras:
        fills = [Fill(_parts(base), pick(net.old.pop(key))) for key, base in net.base.items()]
    present = map(net.old.__getitem__, plan.in_key_order(net.old))
    data, count, partial = render(present, None if plan.pick is None else pick)
    for row in partial:
        key = net.key(row)
        fills.append(Fill(_parts(net.base.get(key, key)), pick(row)))
    return Rows(
        plan.layout,
        deletes=_blob(map(_parts, plan.in_key_order(net.gone)), plan, None),
        upserts=Blob(data, count),
        inserts=_blob(map(net.new.__getitem__, plan.in_key_order(net.new)), plan, pick),
        fills=tuple(fills),
    )


def _blob(rows: Iterable[Image], plan: TablePlan, pick: Callable[[Image], Image] | None) -> Blob:
    data, count, partial = render(rows, None if plan.pick is None else pick)
    if partial:
        key = ", ".join(str(partial[0][i]) for i in plan.key)
        raise OperatorError(
            f"{plan.source}: the new row with key ({key}) came without all its columns",
            hint="ADD TRANDATA for this table at the source, and load the table again",
        )
    return Blob(data, count)


def _picker(plan: TablePlan) -> Callable[[Image], Image]:
    if plan.pick is None:
        return _same
    if len(plan.pick) == 1:
        (only,) = plan.pick
        return lambda row: (row[only],)
    return itemgetter(*plan.pick)


def _same(row: Image) -> Image:
    return row


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _tables_of(records: list[Any]) -> list[int]:
    return [record[1] for record in records if record[0] in (Op.INSERT, Op.UPDATE, Op.DELETE)]


def _spot(task: Task, position: Position, csn: str, index: int, tables: list[bytes], record: list[Any]) -> Spot:
    op = Op(record[0])
    named = record[1] if op == Op.TRUNCATE else [record[1]]
    plans = [plan for t in named if (plan := task.plans.get(tables[t])) is not None]
    source = ", ".join(plan.source for plan in plans) or "?"
    target = ", ".join(plan.target for plan in plans) or "?"
    if op == Op.TRUNCATE:
        return Spot(position, csn, index, source, "truncate", "", target)
    image = record[2]
    key = tuple(image[i] for plan in plans for i in plan.key)
    before, after = _images(op, record)
    columns = plans[0].columns or plans[0].layout.columns if plans else ()
    shown = ", ".join(map(str, key or image))
    return Spot(position, csn, index, source, op.name.lower(), shown, target, columns, before, after)


def _images(op: Op, record: list[Any]) -> tuple[Image | None, Image | None]:
    if op == Op.UPDATE:
        return record[3], record[2]
    return (record[2], None) if op == Op.DELETE else (None, record[2])


def discard(part: Part) -> None:
    """Remove the files of a part that was applied, or never will be."""
    for step in part.steps:
        if isinstance(step, Work):
            blobs = [blob for rows in step.rows for blob in (rows.deletes, rows.upserts, rows.inserts)]
            blobs += [run for bag in step.bags for run in bag.runs if isinstance(run, Blob)]
            for blob in blobs:
                if blob.path:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(blob.path)
