"""Where a Replicat begins: its checkpoint row, and what ADD, ALTER or START ordered.

row    order in the registration                          then
none   none                                               begin at the trail's first file
none   yes                                                begin where it says
gone   none, or one that the row bore already             refuse: applying the trail again could double what is there
there  none, or its number is already in the row          go on at the row (CW-18)
there  a higher number, or the group was added again      move the row there, once: the row then bears it (CW-19)

START's own order (ATCSN, AFTERCSN, SKIPTRANSACTION, FILTERDUPTRANSACTIONS, PASTHOLE) is numbered in the same count and
obeyed after ALTER's, relative to the row: it only leaves out. An ALTER behind it makes it void. The row bears the
highest number obeyed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TypeVar

from replicat.batches import holes
from replicat.batches.batch import Batcher, Cutting, looker, read_records
from replicat.batches.pipeline import BatchPipeline
from replicat.model.borders import Border
from replicat.model.loading import Loading
from replicat.model.mapparams import MapRule
from replicat.model.plan import TablePlan
from replicat.model.target import CheckpointRow, Layout, TargetTable
from replicat.params import End
from replicat.targets.contract import Target
from trails.codec import decode_data
from trails.csn import like
from trails.ddl import DdlChange
from trails.errors import MismatchError, OperatorError
from trails.format import BlockKind, FileHeader
from trails.fs import Fs
from trails.plan import Left, Planner, hole_of
from trails.position import Position, TrailName
from trails.reader import BlockReader, first_seqno, last_header
from trails.record import Op, TableDef
from trails.runtime.home.registration import Registration

Note = Callable[[str], None]
T = TypeVar("T")


BLOCKS_AHEAD = 5000
"""Headers of so many blocks are read in a fraction of a second."""
ROWS_AHEAD = 500
"""The rows of so many blocks are read in a few seconds; that is only done where something seems to be wrong."""


def find_row(
    target: Target,
    reg: Registration,
    fs: Fs,
    trail: TrailName,
    note: Note,
    *,
    warn: Note | None = None,
    seen: int | None = None,
) -> CheckpointRow:
    """The group's row, made or moved as the registration says. `warn`: takes a line on what is left out by it.

    `seen`: a row was there before, and bore this ALTER's number.
    """
    warn = warn or note
    row = load_row(target, reg, seen)
    if row is None:
        if not reg.alter and not {"at_csn", "after_csn"} & set(reg.start):
            _expect_first_file(reg, fs, trail)
        row = _started(_placed(reg, fs, trail) if reg.alter else _first(reg), reg, fs, trail, warn, "")
        target.add_row(row)
        first = first_seqno(fs, trail)
        if first and row.position == Position(0, 0):
            warn(f"The trail begins with {trail.path(first)}: what stood before it is purged, and is not applied")
        note(f"Starting at position {row.position}: the checkpoint table has no row of this group")
        return row
    again = row.added_us != reg.added_us
    if reg.alter and (again or reg.alter_no > row.alter_no):
        new = _placed(reg, fs, trail)
        left = _left_out(row, new, fs, trail)
        moving = f"ALTER number {reg.alter_no}: moving from position {row.position} to {new.position}"
        (warn if left else note)(f"{moving}{left}")
    elif again:
        new = dataclasses.replace(row, alter_no=reg.alter_no, added_us=reg.added_us)
        note(f"The group was added again; going on at position {row.position} of its checkpoint row")
    else:
        new = row
        if row.position == Position(0, 0) and not row.trail_id:  # nothing was applied yet: what went since is missed
            _expect_first_file(reg, fs, trail)
        note(f"Going on at position {row.position} of the checkpoint row")
    new = _started(new, reg, fs, trail, warn, row.csn)
    if new != row:
        target.flush(row, new)
    return new


def _expect_first_file(reg: Registration, fs: Fs, trail: TrailName) -> None:
    """What was purged before the group was added is nobody's fault; a file that went since then is missed."""
    first = first_seqno(fs, trail)
    if not first:
        return
    header = _first_header(fs, trail)
    begun = header.created_us if header is not None else 0
    if begun > reg.added_us:
        raise OperatorError(
            f"the trail begins with {trail.path(first)}, a file begun after {reg.name} was added: those before it are "
            "gone, and were never applied",
            hint="Put them back; else see docs/recovery.md#purged-place",
        )


def _left_out(row: CheckpointRow, new: CheckpointRow, fs: Fs, trail: TrailName) -> str:
    """What stands between two places and is not applied, in words; empty if nothing is known to."""
    if new.position <= row.position:
        return ""
    reader = BlockReader(fs, trail, row.position if row.trail_id else None, row.trail_id or None)
    try:
        left = Left.between(Planner(reader), new.position)
        found = [str(hole_of(fs, trail, row.trail_id, block)) for block in left.holes]
    except OperatorError as error:
        return f"; what is left out can't be counted: {error.message}"
    finally:
        reader.close()
    said = [f"{left} are left out"] if left.transactions else []
    return "".join(f"; {text}" for text in [*said, *found])


def load_row(target: Target, reg: Registration, seen: int | None) -> CheckpointRow | None:
    """The group's row; None if it has none and never had one, or is told to begin anew."""
    row = target.load_row()
    if row is None and seen is not None and reg.alter_no <= seen:
        raise OperatorError(
            f"the checkpoint table has no row of group {reg.name}, which had one: the target was restored, "
            "or somebody deleted the row",
            hint="See docs/recovery.md#target-restored",
        )
    return row


def _first(reg: Registration) -> CheckpointRow:
    return CheckpointRow(Position(0, 0), alter_no=reg.alter_no, added_us=reg.added_us)


def _placed(reg: Registration, fs: Fs, trail: TrailName) -> CheckpointRow:
    """A row where ALTER's order points: a file and RBA, or the first transaction at or after a CSN or time."""
    row, order = _first(reg), reg.alter
    if "seqno" in order:
        place = Position(int(order["seqno"]), int(order.get("rba") or 0))
        return dataclasses.replace(row, position=place, flushed=place)
    begin = order.get("begin_us", order.get("begin"))
    if isinstance(begin, int):
        return _at_border(row, Border("@", time_us=begin), fs, trail)
    if isinstance(begin, str) and begin.upper() == "NOW":
        return _at_border(row, None, fs, trail)
    if isinstance(order.get("csn"), str):
        return _at_border(row, Border(">=", order["csn"]), fs, trail)
    raise OperatorError(f"ALTER ordered {order!r}: expected a file and RBA, a time, or a CSN", hint="ALTER it again")


def _at_border(row: CheckpointRow, border: Border | None, fs: Fs, trail: TrailName) -> CheckpointRow:
    """Before the first transaction behind the border, also inside a block; at the trail's end, if none is there yet.

    Then what comes and still lies before it is left out when it comes. A CSN inside a hole is a place before the hole.
    """
    reader = BlockReader(fs, trail)
    try:
        planner = Planner(reader)
        at, split, skip = planner.position, 0, border
        hole: Position | None = None  # the first one of those that nothing has come behind
        while (unit := planner.next()) is not None:
            if unit.hole is not None:
                hole = hole or unit.start
            if border is not None and unit.blocks:
                border = skip = border.fitting(unit.csn, "ALTER REPLICAT")
                if border.is_before(unit.csn, unit.time_us):
                    found = looker(fs, trail, reader)(unit.blocks[0]) if unit.transactions > 1 else []
                    split = border.first(found)
                    inside = hole is not None and border.csn < (found[0].csn if found else unit.csn)
                    at, split, skip = (hole, 0, None) if inside else (unit.start, split, None)
                    break
                hole = None
            at = unit.end
        else:
            at = (hole if border is not None else None) or at
    finally:
        reader.close()
    place = at or Position(0, 0)
    return dataclasses.replace(row, position=place, flushed=place, split=split, skip_until=skip.text if skip else "")


def _started(
    row: CheckpointRow, reg: Registration, fs: Fs, trail: TrailName, note: Note, applied: str
) -> CheckpointRow:
    """What START ordered, if that is not obeyed yet. `applied`: the last CSN applied, as of before any move."""
    order = reg.start
    if not order or reg.start_no <= max(row.alter_no, reg.alter_no):
        return row
    if order.get("skip"):
        moved = _behind_next(row, fs, trail, note)
    elif order.get("past_hole"):
        moved = _behind_hole(row, fs, trail, note)
    elif order.get("filter_dup"):
        moved = dataclasses.replace(row, skip_until=f">>{_applied(applied, reg)}")
    elif isinstance(order.get("at_csn"), str):
        moved = dataclasses.replace(row, skip_until=f">={order['at_csn']}")
    elif isinstance(order.get("after_csn"), str):
        moved = dataclasses.replace(row, skip_until=f">{order['after_csn']}")
    else:
        known = "ATCSN, AFTERCSN, SKIPTRANSACTION, FILTERDUPTRANSACTIONS or PASTHOLE"
        raise OperatorError(f"START ordered {order!r}: expected {known}", hint="START again")
    if moved.skip_until != row.skip_until:
        note(f"START number {reg.start_no}: leaving out {_in_words(moved.skip_until)}")
    if "at_csn" in order or "after_csn" in order:
        _tell_older(Border.of(moved.skip_until), row, fs, trail, note)
    return dataclasses.replace(moved, alter_no=reg.start_no)


def _in_words(skip_until: str) -> str:
    if skip_until.startswith(">>"):
        return f"the transactions up to CSN {skip_until[2:]}, which are applied already"
    if skip_until.startswith(">="):
        return f"the transactions before CSN {skip_until[2:]}"
    return f"the transactions up to CSN {skip_until[1:]}"


def _tell_older(border: Border | None, row: CheckpointRow, fs: Fs, trail: TrailName, note: Note) -> None:
    """Say it where ATCSN or AFTERCSN names a CSN before the place at which reading begins: nothing is left out then.

    Of a group that begins with the trail it also means that what was committed between the two is not there.
    """
    before = row.csn or (_csn_before(fs, trail) if row.position == Position(0, 0) else "")
    try:
        older = border is not None and bool(before) and like(border.csn, before) < before
    except ValueError:
        return  # told with the first block
    if border is None or not older:
        return
    if row.csn:
        note(f"CSN {border.csn} is older than {before}, the last one applied: nothing is left out")
    else:
        note(
            f"CSN {border.csn} is older than what the trail holds: transactions up to CSN {before} stood before its "
            "first file. What was committed between the two is not applied"
        )


def _csn_before(fs: Fs, trail: TrailName) -> str:
    """That of the last transaction before the trail's first file; empty if there was none."""
    header = _first_header(fs, trail)
    return header.last_csn if header is not None else ""


def _first_header(fs: Fs, trail: TrailName) -> FileHeader | None:
    def look(reader: BlockReader) -> FileHeader | None:
        reader.read(payload=False)
        return reader.header

    return from_first_file(fs, trail, look)


def _applied(csn: str, reg: Registration) -> str:
    """The CSN behind which FILTERDUPTRANSACTIONS begins."""
    if not csn:
        raise OperatorError(
            f"FILTERDUPTRANSACTIONS: the row of {reg.name} names no transaction that it has applied",
            hint=f"START REPLICAT {reg.name}, AFTERCSN n names one; INFO {reg.name}, SHOWCH 10 shows earlier places",
        )
    return csn


def _behind_next(row: CheckpointRow, fs: Fs, trail: TrailName, note: Note) -> CheckpointRow:
    """Behind the first transaction that would have been applied; SKIPTRANSACTION."""
    fresh = row.position == Position(0, 0) and not row.trail_id
    reader = BlockReader(fs, trail, None if fresh else row.position, row.trail_id or None)
    try:
        batcher = Batcher(
            Planner(reader),
            1,
            1,
            Cutting(group=1),
            look=looker(fs, trail, reader),
            split=row.split,
            skip=Border.of(row.skip_until),
        )
        while (batch := batcher.next()) is not None and not batch.transactions:
            pass  # heartbeats only
    finally:
        reader.close()
    if batch is None:
        note("SKIPTRANSACTION: no transaction waits in the trail; nothing is skipped")
        return row
    note(
        f"SKIPTRANSACTION: the transaction with CSN {batch.csn}, {batch.changes} changes, before position {batch.end}, "
        "is skipped"
    )
    return dataclasses.replace(row, position=batch.end, split=batch.split, skip_until="")


def _behind_hole(row: CheckpointRow, fs: Fs, trail: TrailName, note: Note) -> CheckpointRow:
    """Behind the hole that comes next; PASTHOLE."""
    fresh = row.position == Position(0, 0) and not row.trail_id
    found = holes.next_hole(fs, trail, None if fresh else row.position, row.trail_id)
    if found is None:
        note(f"PASTHOLE: no hole comes next behind position {row.position}; nothing is passed")
        return row
    behind, hole = found
    note(f"PASTHOLE: {hole}; going on behind it, at position {behind}")
    return dataclasses.replace(row, position=behind, split=0)


def changed_tables(fs: Fs, trail: TrailName) -> set[tuple[str, str]]:
    """The source tables whose shape changes somewhere in the trail, as far as it is still there."""

    def look(reader: BlockReader) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        while (block := reader.read(payload=False)) is not None:
            if block.header.is_ddl and reader.header:
                for record in read_records(fs, trail, reader.header.trail_id, reader.definitions, block):
                    if record[0] == Op.DDL:
                        found.update(DdlChange.from_wire(record[1]).names)
        return found

    return from_first_file(fs, trail, look)


def from_first_file(fs: Fs, trail: TrailName, look: Callable[[BlockReader], T]) -> T:
    """What is found by reading from the trail's first file on; looks again where that was purged meanwhile.

    Nothing that is still to be applied is purged, but a group may start while files go that lie behind it.
    """
    while True:
        first, reader = first_seqno(fs, trail), BlockReader(fs, trail)
        try:
            return look(reader)
        except MismatchError:
            if first_seqno(fs, trail) == first:
                raise
        finally:
            reader.close()


def end_border(end: End | None, now_us: int) -> Border | None:
    """What END says is not to be applied. A transaction of that very CSN or time is; RUNTIME is the time of START."""
    if end is None or end.whole:
        return None
    if end.csn:
        return Border(">", end.csn)
    return Border("@", time_us=(now_us if end.time_us is None else end.time_us) + 1)


def check_whole(reg: Registration, pipeline: BatchPipeline, fs: Fs, trail: TrailName) -> None:
    """Of a task's file, at its end: a file that was removed, or that nobody has closed, has no end yet."""
    if reg.is_task and pipeline.ended and not pipeline.closed:
        found = "a part of it" if fs.exists(trail.path(0)) else "none"
        raise OperatorError(f"{trail.path(0)}: expected the whole file, found {found}", hint="Put it there; then START")


def is_beyond(row: CheckpointRow, end: Border) -> str:
    """Why a row is at END already; empty if that is not known."""
    if end.kind == ">" and row.csn:
        try:
            at = like(end.csn, row.csn)
        except ValueError:
            return ""  # told with the first block
        return f"CSN {row.csn} is applied already" if row.csn >= at else ""
    if end.kind == "@" and row.time_us is not None and row.time_us >= end.time_us:
        return "a transaction committed later is applied already"
    return ""


def source_kind(fs: Fs, trail: TrailName) -> str:
    """The kind of database that a trail's changes are of; empty as long as there is no trail."""
    header = last_header(fs, trail)
    return header.source.get("kind", "") if header is not None else ""


def definitions_at(fs: Fs, trail: TrailName, position: Position | None, trail_id: bytes) -> list[TableDef]:
    """Each table's definition in force where reading begins; refuses a place that is gone, and another trail."""
    reader = BlockReader(fs, trail, position, trail_id or None)
    try:
        reader.read(payload=False)
        return list({(d.schema, d.name): d for d in reader.definitions.values()}.values())
    finally:
        reader.close()


def definitions_behind(
    fs: Fs, trail: TrailName, position: Position | None, trail_id: bytes, known: Iterable[TableDef]
) -> list[TableDef]:
    """The first definition of each table that comes up only further on, as far as a short look at the trail goes.

    What is wrong with the trail there is for who comes to it.
    """
    found = {(definition.schema, definition.name): definition for definition in known}
    before = len(found)
    reader = BlockReader(fs, trail, position, trail_id or None)
    try:
        for _ in range(BLOCKS_AHEAD):
            block = reader.read(payload=False)
            if block is None:
                break
            if block.header.kind == BlockKind.METADATA:
                for definition in reader.definitions.values():
                    found.setdefault((definition.schema, definition.name), definition)
    except OperatorError:
        pass
    finally:
        reader.close()
    return list(found.values())[before:]


def shapes_waiting(fs: Fs, trail: TrailName, position: Position | None, trail_id: bytes) -> set[bytes]:
    """The definitions that rows behind a place have, as far as a short look at the trail goes.

    A definition goes from file to file with the trail. So one that no row has may be of a shape that was changed since,
    by statements that are purged by now. What is wrong with the trail is for who comes to it.
    """
    found: set[bytes] = set()
    reader = BlockReader(fs, trail, position, trail_id or None)
    try:
        for _ in range(ROWS_AHEAD):
            block = reader.read()
            if block is None:
                break
            if block.header.kind == BlockKind.DATA:
                found.update(decode_data(block.header, block.payload)[0])
    except OperatorError:
        pass
    finally:
        reader.close()
    return found


def unmatched(
    maps: Iterable[MapRule],
    fs: Fs,
    trail: TrailName,
    position: Position | None,
    trail_id: bytes,
    known: list[TableDef],
) -> list[str]:
    """The MAPs that name no table of which the trail tells, as far as a short look goes; if it tells of any."""
    missing = [rule for rule in maps if not _names_any(rule, known)]
    behind = definitions_behind(fs, trail, position, trail_id, known) if missing else []
    return [
        f"{rule.where}: MAP {rule.source} names no table that the trail tells of so far"
        for rule in missing
        if (known or behind) and not _names_any(rule, behind)
    ]


def _names_any(rule: MapRule, definitions: Iterable[TableDef]) -> bool:
    return any(rule.source.matches(definition.schema, definition.name) for definition in definitions)


def failing_plan(definition: TableDef, error: str, place: tuple[str, str] | None = None) -> TablePlan:
    """A plan that tells `error` at the first row. `place`: of the target table, where a MAP says which."""
    place = place or (definition.schema, definition.name)
    columns = tuple(column.name for column in definition.columns)
    layout = Layout(*place, (), (), ())
    return TablePlan(definition.full_name, ".".join(place), layout, definition.key, error=error, columns=columns)


def plan_without(definition: TableDef, place: tuple[str, str]) -> TablePlan:
    """A plan that leaves every change out: it asks for no column, no value and no target table."""
    layout = Layout(*place, (), (), ())
    return TablePlan(definition.full_name, ".".join(place), layout, (), loading=Loading())


def would_fire(rule: MapRule, table: TargetTable, mend: str) -> OperatorError:
    """Triggers and cascades whose effects the trail already carries. `mend`: how to keep them from firing."""
    return OperatorError(
        f"{rule.where}: MAP: target table {table.full_name} has {', '.join(table.fires)}: it would fire although its "
        "effects are in the trail already",
        hint=f"{mend}; or accept it by ALLOWTARGETTRIGGERS",
    )
