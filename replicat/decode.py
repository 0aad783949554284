"""Blocks of a trail to target steps: what a Spark partition does, and what the driver does by hand after a refusal.

Rule: everything here works from a Task alone (paths, places, plans), reads only below positions that the driver saw
durable, checks every CRC, and returns its whole result: a retried or orphaned run of it changes nothing anywhere.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from replicat.mapping.roles import Facts, Failure, Result
from replicat.net.builder import CHANGES, Builder
from replicat.net.part import Part, Unmapped, spill_part
from replicat.plan import Plans, TablePlan
from replicat.target import RefusedError, UnmappedError
from trails.codec import decode_data
from trails.errors import AwayError, GateError, MismatchError
from trails.fs import Fs, RealFs
from trails.position import Position, TrailName
from trails.record import Image, Op, Value
from trails.segment import Segment, open_segment

Place = tuple[int, int, int]  # file, first RBA and end RBA of a block


@dataclass(frozen=True, slots=True)
class Task:
    """One partition's share of a batch. `spill`: folder that driver and worker share for large results, or empty.

    `skip`, `until`: of the transactions in the first block those numbered below `skip` are left out, and in the last
    block those from `until` on (None: none): a batch may begin and end inside a block of many transactions.
    `head`: of a transaction that goes on from before the task, the block where it begins, and its changes before here.
    `wallet`: the folder of the trail's keys, where TrailName knows it; no key ever stands in a task. `sealed`: its.
    """

    folder: str
    prefix: str
    trail_id: bytes
    blocks: tuple[Place, ...]
    plans: Plans
    spill: str = ""
    skip: int = 0
    until: int | None = None
    head: tuple[Place, int] | None = None
    wallet: str = ""
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class Spot:
    """Where one change stands and what it is, for messages and the discard file.

    `csn` is empty, and `index` counts from the task's start, where the transaction began before the task; then `xid`
    and `time_us` are not known either. `plan`: that of the one MAP; None for a TRUNCATE of several tables. `shared`:
    there are more MAPs that take the change; `twin`: how many MAPs before this one take it to the same target table.
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
    plan: TablePlan | None = None
    xid: str = ""
    time_us: int | None = None
    shared: bool = False
    twin: int = 0


class Evaluated(Protocol):
    """Results of a task's evaluations, failures among them (expressions/evaluate.py). Changes count from its start."""

    def since(self, change: int, plan: int = 0) -> Iterator[Result | Failure]:
        """From those on that this change asks for under its table's plan number `plan`."""


def run(task: Task, fs: Fs | None = None, results: Iterator[Result | Failure] | None = None) -> Part:
    """Decode, map, compact and render a task's blocks. `results`: of all its evaluations, in order."""
    with no_collection():
        builder = Builder(task.plans, results=results, facts=facts_of(task, fs))
        for position, tables, records in blocks(task, fs):
            builder.add(tables, records, position)
        return builder.finish()


def attempt(task: Task, fs: Fs | None = None, results: Iterator[Result | Failure] | None = None) -> Part | Unmapped:
    """As run(); but where no row can be made of some change, nobody knows yet which."""
    try:
        return run(task, fs, results)
    except UnmappedError as error:
        return Unmapped("", error.message, error.shown)


def facts_of(task: Task, fs: Fs | None = None) -> Facts:
    """Of the transaction that is open where the task begins, if any of its plans may ask."""
    facts = Facts()
    if task.head is None or not any(plan.mapping is not None for plans in task.plans.values() for plan in plans):
        return facts
    block, done = task.head
    for _, _, records in blocks(replace(task, blocks=(block,), skip=0, until=None), fs):
        facts.begin(records[0][1], records[0][2], records[0][3])
    facts.index = done
    return facts


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Records hold no cycles, and looking for some takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_settled: list[bool] = []
"""Not empty once this worker has. gc.get_freeze_count() would tell, but counts all objects each time."""


def settle() -> None:
    """For a worker, behind a task: what it has loaded stays for life. Spark has all of Python's objects looked through
    for garbage after each task, which for those takes longer than a small task.
    """
    if not _settled:
        gc.collect()
        gc.freeze()
        _settled.append(True)


def run_partition(tasks: Iterable[Task]) -> Iterator[Part | Unmapped | GateError]:
    """`attempt` for mapPartitions. An expected error is a result: raised, the driver would see a stack trace."""
    results: list[Part | Unmapped | GateError] = []
    for task in tasks:
        try:
            part = attempt(task)
            results.append(spill_part(part, task.spill) if task.spill and isinstance(part, Part) else part)
        except GateError as error:
            results.append(error)
        except OSError as error:  # no space for a spilled result, most likely; reading says its own errors
            results.append(AwayError(f"decoding failed: {error}", hint=f"Make space in {task.spill or 'memory'}"))
    settle()
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


def run_some(
    task: Task, low: int, high: int, fs: Fs | None = None, evaluated: Evaluated | None = None, *, keep: bool = False
) -> Part:
    """As run(), for the transactions numbered low <= n < high in the task; `keep`: with the changes one by one.

    RefusedError where an expression fails, or no row can be made.
    """
    before = 0  # changes in front of the first chosen record

    def results() -> Iterator[Result | Failure]:
        assert evaluated is not None
        yield from evaluated.since(before)

    builder = Builder(task.plans, keep=keep, results=results() if evaluated else None, facts=facts_of(task, fs))
    at = -1
    for position, tables, records in blocks(task, fs):
        chosen = []
        for record in records:
            if record[0] == Op.BEGIN or at < 0:
                at += 1
            if low <= at < high:
                chosen.append(record)
            before += at < low and record[0] in CHANGES
        builder.add(tables, chosen, position)
    return builder.finish()


def is_whole(task: Task, number: int, fs: Fs | None = None) -> bool:
    """Whether transaction `number` of the task ends in it."""
    at = -1
    for _, _, records in blocks(task, fs):
        for record in records:
            if record[0] == Op.BEGIN or at < 0:
                at += 1
            if at == number and record[0] == Op.COMMIT:
                return True
    return False


def run_each(
    task: Task, number: int, fs: Fs | None = None, evaluated: Evaluated | None = None
) -> Iterator[tuple[Spot, Part]]:
    """Every change of transaction `number` of the task by itself, in source order; once for each MAP that takes it.

    A change whose expression fails, or of which no row can be made, gives a part with that `error`.
    """
    at, index, change = -1, 0, 0
    facts = facts_of(task, fs)
    opened: tuple[str, str, int | None] = ("", "", None)
    for position, tables, records in blocks(task, fs):
        for record in records:
            if record[0] == Op.BEGIN or at < 0:
                at += 1
            if record[0] == Op.BEGIN:
                index, opened = 0, (record[1], record[2], record[3])
                facts.begin(*opened)
            elif record[0] != Op.COMMIT:
                if at == number:
                    for i, plans in enumerate(_by_map(task, tables, record)):
                        results = evaluated.since(change, i) if evaluated and record[0] in CHANGES else None
                        part = _alone(plans, tables, record, position, replace(facts), results)
                        spot = _spot(plans, position, opened, index, tables, record, part)
                        if record[0] != Op.TRUNCATE:
                            targets = [plan.target for plan in task.plans[tables[record[1]]]]
                            twin = targets[:i].count(targets[i])
                            spot = replace(spot, shared=len(targets) > 1, twin=twin)
                        yield spot, part
                index += 1
                facts.index += 1
                change += record[0] in CHANGES


def _alone(
    plans: Plans, tables: list[bytes], record: list[Any], position: Position, facts: Facts,
    results: Iterator[Result | Failure] | None,
) -> Part:  # fmt: skip
    """One change under one plan."""
    builder = Builder(plans, keep=True, results=results, facts=facts)
    try:
        builder.add(tables, [record], position)
        return builder.finish()
    except RefusedError as error:
        counts = [int(record[0] == op) for op in (*CHANGES, Op.TRUNCATE)]
        named = [plan for t in _named(record) for plan in plans.get(tables[t], ())]
        return Part(counts={(plan.source, plan.target): counts for plan in named}, error=error)


def _named(record: list[Any]) -> list[int]:
    """The numbers of the tables that a change is of."""
    return list(record[1]) if record[0] == Op.TRUNCATE else [record[1]]


def last_xid(task: Task, fs: Fs | None = None) -> str:
    """The transaction that begins last in the task, or nothing."""
    found = ""
    for _, _, records in blocks(task, fs):
        for record in records:
            if record[0] == Op.BEGIN:
                found = record[2]
    return found


def csns(task: Task, fs: Fs | None = None) -> list[str]:
    """CSN of each transaction of transactions(); empty for one that began before the task."""
    found: list[str] = []
    for _, _, records in blocks(task, fs):
        for record in records:
            if record[0] == Op.BEGIN:
                found.append(record[1])
            elif not found:
                found.append("")
    return found


def _by_map(task: Task, tables: list[bytes], record: list[Any]) -> Iterator[Plans]:
    """The plans that a change goes through, one MAP after the other; a TRUNCATE is one step for all its tables."""
    if record[0] == Op.TRUNCATE:
        if any(task.plans.get(tables[t]) for t in record[1]):
            yield task.plans
        return
    table = tables[record[1]]
    for plan in task.plans.get(table, ()):
        yield {**dict.fromkeys(tables, ()), table: (plan,)}


def blocks(task: Task, fs: Fs | None = None) -> Iterator[tuple[Position, list[bytes], list[Any]]]:
    """(place, table ids, records) of each block; every CRC checked, and only the task's own transactions given."""
    trail = TrailName(task.folder, task.prefix, task.wallet, task.sealed)
    segment: Segment | None = None
    last = len(task.blocks) - 1
    try:
        for number, (seqno, start, end) in enumerate(task.blocks):
            if segment is None or segment.header.seqno != seqno:
                if segment is not None:
                    segment.close()
                segment = _open(fs or RealFs(), trail, seqno, task.trail_id)
            header = segment.block_header(start, end)
            tables, records = decode_data(*segment.plain(start, header), f"{segment.path}, RBA {start}")
            skip, until = task.skip if number == 0 else 0, task.until if number == last else None
            if skip or until is not None:
                records = between(records, skip, until)
            yield Position(seqno, start), tables, records
    finally:
        if segment is not None:
            segment.close()


def between(records: list[Any], skip: int, until: int | None) -> list[Any]:
    """The transactions numbered skip <= n < until of a block that holds whole ones."""
    begins = [i for i, record in enumerate(records) if record[0] == Op.BEGIN]
    low = begins[skip] if skip < len(begins) else len(records)
    high = begins[until] if until is not None and until < len(begins) else len(records)
    return records[low:high]


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


def _spot(
    plans: Plans, position: Position, opened: tuple[str, str, int | None], index: int, tables: list[bytes],
    record: list[Any], part: Part,
) -> Spot:  # fmt: skip
    op = Op(record[0])
    csn, xid, time_us = opened
    found = [plan for t in _named(record) for plan in plans.get(tables[t], ())]
    source = ", ".join(dict.fromkeys(plan.source for plan in found))
    target = ", ".join(dict.fromkeys(plan.target for plan in found))
    if op == Op.TRUNCATE:
        plan = found[0] if len(found) == 1 else None
        return Spot(position, csn, index, source, "truncate", "", target, plan=plan, xid=xid, time_us=time_us)
    (plan,) = found
    before, after = _images(op, record)
    # Messages name a row by its key and say no other value of it.
    shown = ", ".join(map(str, _key(plan, part) or [record[2][i] for i in _source_key(plan)] or ["no key"]))
    columns = plan.columns or plan.layout.columns
    return Spot(
        position, csn, index, source, op.name.lower(), shown, target, columns, before, after, plan, xid, time_us
    )


def _key(plan: TablePlan, part: Part) -> list[Value]:
    """The key that the change names in its target table."""
    for mapped in part.mapped:
        row = mapped.after if mapped.after is not None else mapped.before
        if row is not None:
            return [row[plan.layout.columns.index(name)] for name in plan.layout.key]
    return []


def _source_key(plan: TablePlan) -> tuple[int, ...]:
    return plan.key if plan.mapping is None else plan.mapping.source_key


def _images(op: Op, record: list[Any]) -> tuple[Image | None, Image | None]:
    if op == Op.UPDATE:
        return record[3], record[2]
    return (record[2], None) if op == Op.DELETE else (None, record[2])
