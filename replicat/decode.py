"""Blocks of a trail to target steps: what a Spark partition does, and what the driver does by hand after a refusal.

Rule: everything here works from a Task alone (paths, places, plans), reads only below positions that the driver saw
durable, checks every CRC, and returns its whole result: a retried or orphaned run of it changes nothing anywhere.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from replicat.builder import Builder
from replicat.part import Part, spill_part
from replicat.plan import Plans
from trails.codec import decode_data
from trails.errors import AwayError, GateError, MismatchError
from trails.format import check_payload
from trails.fs import Fs, RealFs
from trails.position import Position, TrailName
from trails.record import Image, Op
from trails.segment import Segment, open_segment

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


def _spot(task: Task, position: Position, csn: str, index: int, tables: list[bytes], record: list[Any]) -> Spot:
    op = Op(record[0])
    named = record[1] if op == Op.TRUNCATE else [record[1]]
    plans = [plan for t in named for plan in task.plans.get(tables[t], ())[:1]]
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
