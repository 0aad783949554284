"""Blocks of a trail to target steps: what a Spark partition does, and what the driver does by hand after a refusal.

Rule: everything here works from a Task alone (paths, places, plans), reads only below positions that the driver saw
durable, checks every CRC and every record before it is used, and returns its whole result: a retried or orphaned run
of it changes nothing anywhere.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

from replicat.model.loading import LoadAgainError
from replicat.model.plan import Plans, TablePlan
from replicat.model.target import RefusedError, UnmappedError
from replicat.work import kernel, usual
from replicat.work.builder import CHANGES, Builder
from replicat.work.net.part import Part, Unmapped, spilled
from replicat.work.resultcolumns import ResultColumns
from replicat.work.roles import ChangeFacts, Failure, Result
from trails.codec import decode_data
from trails.errors import AwayError, GateError, MismatchError
from trails.format import BlockHeader
from trails.fs import Fs, RealFs
from trails.position import Position, TrailName
from trails.reader import Block, shapes_of
from trails.record import MISSING, Image, Op, TableDef, Value
from trails.segment import Segment, open_segment
from trails.walk import NO_CHANGES, Records, Walked, WalkedRecord, walk
from trails.walk import transactions as walked
from trails.wellformed import Opened

Payloads = tuple[Position, BlockHeader, bytes, str]
"""Of one block: where it begins, its header as before encryption, its payload, and where that is, for messages."""


@dataclass(frozen=True, slots=True)
class Task:
    """One partition's share of a batch. `spill`: folder that driver and worker share for large results, or empty.

    `blocks`: without their payloads; the driver has read and checked their headers.
    `columns`: how many each table has that the trail has defined so far.
    `skip`, `until`: of the transactions in the first block those numbered below `skip` are left out, and in the last
    block those from `until` on (None: none): a batch may begin and end inside a block of many transactions.
    `head`: of a transaction that goes on from before the task, the block where it begins, and its changes before here.
    `wallet`: the folder of the trail's keys, where TrailName knows it; no key ever stands in a task. `sealed`: its.
    """

    folder: str
    prefix: str
    trail_id: bytes
    blocks: tuple[Block, ...]
    plans: Plans
    columns: Mapping[bytes, int]
    spill: str = ""
    skip: int = 0
    until: int | None = None
    head: tuple[Block, int] | None = None
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


def attempt(
    task: Task, fs: Fs | None = None, results: Iterator[Result | Failure] | ResultColumns | None = None
) -> Part | Unmapped:
    """Decode, map, compact and render a task's blocks. `results`: of all its evaluations, in order.

    Where no row can be made of some change, nobody knows yet which.
    """
    columns, each = (results, None) if isinstance(results, ResultColumns) else (None, results)
    if kernel.Taker and each is None and (part := usual.part_of(task, payloads(task, fs), columns)) is not None:
        return part
    if columns is not None:
        each = columns.rows()
    collects = gc.isenabled()
    gc.disable()  # records hold no cycles, and looking for some takes a third of the time
    try:
        builder = Builder(task.plans, results=each, facts=facts_of(task, fs) if task.head else None)
        for position, tables, records in blocks(task, fs):
            builder.add(tables, records, position)
        return builder.finish()
    except UnmappedError as error:
        return Unmapped("", error.message, error.shown)
    finally:
        if collects:
            gc.enable()


def facts_of(task: Task, fs: Fs | None = None) -> ChangeFacts:
    """Of the transaction that is open where the task begins, if any of its plans may ask."""
    facts = ChangeFacts()
    if task.head is None or not any(plan.asks_facts for plans in task.plans.values() for plan in plans):
        return facts
    block, done = task.head
    begun, _ = next(walk(blocks(replace(task, blocks=(block,), skip=0, until=None, head=None), fs)))
    facts.begin(begun.csn, begun.xid, begun.time_us)
    facts.index = done
    return facts


@functools.cache
def settle() -> None:
    """For a worker, once, behind its first task: what it has loaded stays for life.

    Spark has all of Python's objects looked through for garbage after each task, which for those takes longer than a
    small task.
    """
    gc.collect()
    gc.freeze()


def run_partition(tasks: Iterable[Task]) -> Iterator[Part | Unmapped | GateError | LoadAgainError]:
    """`attempt` for mapPartitions. An expected error is a result: raised, the driver would see a stack trace."""
    results: list[Part | Unmapped | GateError | LoadAgainError] = []
    for task in tasks:
        try:
            part = attempt(task)
            results.append(spilled(part, task.spill) if task.spill and isinstance(part, Part) else part)
        except (GateError, LoadAgainError) as error:
            results.append(error)
        except OSError as error:  # no space for a spilled result, most likely; reading says its own errors
            results.append(AwayError(f"decoding failed: {error}", hint=f"Make space in {task.spill or 'memory'}"))
    settle()
    return iter(results)


def transactions(task: Task, fs: Fs | None = None) -> list[Walked]:
    """Each transaction that begins in the task, or goes on from before it."""
    return walked(blocks(task, fs))


def run_some(
    task: Task, low: int, high: int, fs: Fs | None = None, evaluated: Evaluated | None = None, *, keep: bool = False
) -> Part:
    """As attempt(), for the transactions numbered low <= n < high in the task; `keep`: with the changes one by one.

    RefusedError where an expression fails, or no row can be made.
    """
    before = 0  # changes in front of the first chosen record

    def results() -> Iterator[Result | Failure]:
        assert evaluated is not None
        yield from evaluated.since(before)

    builder = Builder(task.plans, keep=keep, results=results() if evaluated else None, facts=facts_of(task, fs))
    for position, found in groupby(walk(blocks(task, fs)), lambda one: one[1].position):
        chosen, tables = [], []
        for transaction, change in found:
            tables = change.tables
            if low <= transaction.number < high:
                chosen.append(change.record)
            before += transaction.number < low and change.record[0] in CHANGES
        builder.add(tables, chosen, position)
    return builder.finish()


def run_each(
    task: Task, number: int, fs: Fs | None = None, evaluated: Evaluated | None = None
) -> Iterator[tuple[Spot, Part]]:
    """Every change of transaction `number` of the task by itself, in source order; once for each MAP that takes it.

    A change whose expression fails, or of which no row can be made, gives a part with that `error`.
    """
    before = 0  # evaluated changes in front of this one
    facts = facts_of(task, fs)
    for transaction, change in walk(blocks(task, fs)):
        op = change.op
        if op == Op.BEGIN:
            facts.begin(transaction.csn, transaction.xid, transaction.time_us)
        if op in NO_CHANGES:
            continue
        if transaction.number == number:
            for i, plans in enumerate(_by_map(task, change)):
                results = evaluated.since(before, i) if evaluated and op in CHANGES else None
                part = _alone(plans, change, replace(facts), results)
                yield _spot(task, plans, i, transaction, change, part), part
        facts.index += 1
        before += op in CHANGES


def _alone(plans: Plans, change: WalkedRecord, facts: ChangeFacts, results: Iterator[Result | Failure] | None) -> Part:
    """One change under one plan."""
    builder = Builder(plans, keep=True, results=results, facts=facts)
    try:
        builder.add(change.tables, [change.record], change.position)
        return builder.finish()
    except RefusedError as error:
        counts = [int(change.op == op) for op in (*CHANGES, Op.TRUNCATE)]
        return Part(counts={(plan.source, plan.target): counts for plan in _plans_of(plans, change)}, error=error)


def _plans_of(plans: Plans, change: WalkedRecord) -> list[TablePlan]:
    """Those of the tables that a change is of."""
    named = change.record[1] if change.op == Op.TRUNCATE else [change.record[1]]
    return [plan for t in named for plan in plans.get(change.tables[t], ())]


def _by_map(task: Task, change: WalkedRecord) -> Iterator[Plans]:
    """The plans that a change goes through, one MAP after the other; a TRUNCATE is one step for all its tables."""
    found = _plans_of(task.plans, change)
    if change.op == Op.TRUNCATE:
        yield from [task.plans] if found else []
        return
    for plan in found:
        yield {**dict.fromkeys(change.tables, ()), change.tables[change.record[1]]: (plan,)}


def blocks(task: Task, fs: Fs | None = None) -> Iterator[Records]:
    """(place, table ids, records) of each block, all of it checked; only the task's own transactions are given."""
    last = len(task.blocks) - 1
    opened = Opened(task.head[1] if task.head else None)
    with closing(payloads(task, fs)) as found:
        for number, (start, header, payload, where) in enumerate(found):
            widths = functools.partial(shapes_of, known=task.columns, where=where)
            tables, records = decode_data(header, payload, where, widths, opened, lists=False)
            low, high = task.skip if number == 0 else 0, task.until if number == last else None
            if low or high is not None:
                wanted = range(low, len(records) if high is None else high)
                whole = start, tables, records
                records = [change.record for one, change in walk([whole]) if one.number in wanted]
            yield start, tables, records


def payloads(task: Task, fs: Fs | None = None) -> Generator[Payloads, None, None]:
    """(place, header, payload, where that is) of each block, its CRC checked."""
    trail = TrailName(task.folder, task.prefix, task.wallet, task.sealed)
    segment: Segment | None = None
    try:
        for block in task.blocks:
            seqno, rba = block.start.seqno, block.start.rba
            if segment is not None and segment.header.seqno != seqno:
                segment.close()
                segment = None  # nor is it kept, if the next one can't be opened
            if segment is None:
                segment = _open(fs, trail, seqno, task.trail_id)
            where = f"{segment.path}, RBA {rba}"
            plain, payload = segment.plain(rba, block.header)
            yield block.start, plain, payload, where
    finally:
        if segment is not None and fs is None:
            _last_read.clear()
            _last_read[trail, segment.header.seqno] = segment
        elif segment is not None:
            segment.close()


def columns_of(definitions: Mapping[bytes, TableDef]) -> dict[bytes, int]:
    """For a Task."""
    return {identity: len(definition.columns) for identity, definition in definitions.items()}


_last_read: dict[tuple[TrailName, int], Segment] = {}
"""Of a worker: the one file that it read last, its header checked. The next task nearly always reads on in it."""


def _open(fs: Fs | None, trail: TrailName, seqno: int, trail_id: bytes) -> Segment:
    if fs is None and (last := _last_read.pop((trail, seqno), None)) is not None:
        if last.header.trail_id == trail_id and last.file.is_at(last.path):
            return last
        last.close()
    try:
        segment = open_segment(fs or RealFs(), trail, seqno)
    except FileNotFoundError:
        raise MismatchError(
            f"{trail.path(seqno)}: this trail file was removed while it was read",
            hint="Put it back; else see docs/recovery.md#missing-trail-file",
        ) from None
    if segment.header.trail_id != trail_id:
        segment.close()
        raise MismatchError(
            f"{segment.path}: expected trail {trail_id.hex()}, found {segment.header.trail_id.hex()}",
            hint="Put it back; else see docs/recovery.md#missing-trail-file",
        )
    return segment


def _spot(task: Task, plans: Plans, number: int, transaction: Walked, change: WalkedRecord, part: Part) -> Spot:
    """Where a change stands, under the MAP of this number."""
    op, record = change.op, change.record
    found = _plans_of(plans, change)
    spot = Spot(
        change.position, transaction.csn, transaction.changes, ", ".join(dict.fromkeys(plan.source for plan in found)),
        op.name.lower(), "", ", ".join(dict.fromkeys(plan.target for plan in found)),
        plan=found[0] if len(found) == 1 else None, xid=transaction.xid, time_us=transaction.time_us,
    )  # fmt: skip
    if op == Op.TRUNCATE:
        return spot
    (plan,) = found
    before, after = _images(op, record)
    # Messages name a row by its key and say no other value of it.
    shown = _shown(_key(plan, part) or [record[2][i] for i in _source_key(plan)] or ["no key"])
    if op == Op.UPDATE and (was := _key_before(plan, part, before)):
        shown = f"{was} -> {shown}"
    targets = [one.target for one in _plans_of(task.plans, change)]
    return replace(
        spot, key=shown, columns=plan.columns or plan.layout.columns, before=before, after=after,
        shared=len(targets) > 1, twin=targets[:number].count(targets[number]),
    )  # fmt: skip


def _key(plan: TablePlan, part: Part) -> list[Value]:
    """The key that the change names in its target table."""
    for mapped in part.mapped:
        row = mapped.after if mapped.after is not None else mapped.before
        if row is not None:
            return [row[plan.layout.columns.index(name)] for name in plan.layout.key]
    return []


def _key_before(plan: TablePlan, part: Part, before: Image | None) -> str:
    """The key that an update looks for, where it becomes another: that row is missing, if one is."""
    for mapped in part.mapped:
        if mapped.before is not None and mapped.after is not None:
            at = [plan.layout.columns.index(name) for name in plan.layout.key]
            was, now = ([row[i] for i in at] for row in (mapped.before, mapped.after))
            return "" if MISSING in was or was == now else _shown(was)
    if not part.mapped and before is not None:
        return _shown([before[i] for i in _source_key(plan)])
    return ""


def _shown(key: Iterable[Value]) -> str:
    return ", ".join(map(str, key))


def _source_key(plan: TablePlan) -> tuple[int, ...]:
    return plan.key if plan.mapping is None else plan.mapping.source_key


def _images(op: Op, record: list[Any]) -> tuple[Image | None, Image | None]:
    if op == Op.UPDATE:
        return record[3], record[2]
    return (record[2], None) if op == Op.DELETE else (None, record[2])
