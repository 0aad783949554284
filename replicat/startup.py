"""Where a Replicat begins: its checkpoint row, and what ADD, ALTER or START ordered.

row    order in the registration                          then
none   none                                               begin at the trail's first file
none   yes                                                begin where it says
gone   none, or one that the row bore already             refuse: applying the trail again could double what is there
there  none, or its number is already in the row          go on at the row (CW-18)
there  a higher number, or the group was added again      move the row there, once: the row then bears it (CW-19)

START's own order (ATCSN, AFTERCSN, SKIPTRANSACTION) is numbered in the same count and obeyed after ALTER's, relative
to the row: it only leaves out. An ALTER behind it makes it void. The row bears the highest number obeyed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from replicat.batch import Batcher, Cutting, looker, read_records
from replicat.borders import Border
from replicat.mapping.params import MapRule
from replicat.params import End
from replicat.plan import TablePlan
from replicat.target import Layout, Row, Target, TargetTable
from trails.csn import like
from trails.ddl import DdlChange
from trails.errors import OperatorError
from trails.format import Kind
from trails.fs import Fs
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import BlockReader
from trails.record import Op, TableDef
from trails.runtime.registration import Registration

Note = Callable[[str], None]


BLOCKS_AHEAD = 5000
"""Headers of so many blocks are read in a fraction of a second."""


def find_row(
    target: Target, reg: Registration, fs: Fs, trail: TrailName, note: Note, *, seen: int | None = None
) -> Row:
    """The group's row, made or moved as the registration says.

    `seen`: a row was there before, and bore this ALTER's number.
    """
    row = load_row(target, reg, seen)
    if row is None:
        row = _started(_placed(reg, fs, trail) if reg.alter else _first(reg), reg, fs, trail, note)
        target.add_row(row)
        note(f"Starting at position {row.position}: the checkpoint table has no row of this group")
        return row
    again = row.added_us != reg.added_us
    if reg.alter and (again or reg.alter_no > row.alter_no):
        new = _placed(reg, fs, trail)
        note(f"ALTER number {reg.alter_no}: moving from position {row.position} to {new.position}")
    elif again:
        new = dataclasses.replace(row, alter_no=reg.alter_no, added_us=reg.added_us)
        note(f"The group was added again; going on at position {row.position} of its checkpoint row")
    else:
        new = row
        note(f"Going on at position {row.position} of the checkpoint row")
    new = _started(new, reg, fs, trail, note)
    if new != row:
        target.flush(row, new)
    return new


def load_row(target: Target, reg: Registration, seen: int | None) -> Row | None:
    """The group's row; None if it has none and never had one, or is told to begin anew."""
    row = target.load_row()
    if row is None and seen is not None and reg.alter_no <= seen:
        raise OperatorError(
            f"the checkpoint table has no row of group {reg.name}, which had one: the target was restored, "
            "or somebody deleted the row",
            hint=f"Find out how far the target's tables are, then ALTER REPLICAT {reg.name}, EXTSEQNO n, EXTRBA n",
        )
    return row


def _first(reg: Registration) -> Row:
    return Row(Position(0, 0), alter_no=reg.alter_no, added_us=reg.added_us)


def _placed(reg: Registration, fs: Fs, trail: TrailName) -> Row:
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


def _at_border(row: Row, border: Border | None, fs: Fs, trail: TrailName) -> Row:
    """Before the first transaction behind the border, also inside a block; at the trail's end, if none is there yet.

    Then what comes and still lies before it is left out when it comes.
    """
    reader = BlockReader(fs, trail)
    try:
        planner = Planner(reader)
        at, split, skip = planner.position, 0, border
        while (unit := planner.next()) is not None:
            if border is not None and unit.blocks:
                border = skip = border.fitting(unit.csn, "ALTER REPLICAT")
                if border.is_before(unit.csn, unit.time_us):
                    look = looker(fs, trail, reader)
                    split = border.first(look(unit.blocks[0])) if unit.transactions > 1 else 0
                    at, skip = unit.start, None
                    break
            at = unit.end
    finally:
        reader.close()
    place = at or Position(0, 0)
    return dataclasses.replace(row, position=place, flushed=place, split=split, skip_until=skip.text if skip else "")


def _started(row: Row, reg: Registration, fs: Fs, trail: TrailName, note: Note) -> Row:
    """What START ordered, if that is not obeyed yet."""
    order = reg.start
    if not order or reg.start_no <= max(row.alter_no, reg.alter_no):
        return row
    if order.get("skip"):
        moved = _behind_next(row, fs, trail, note)
    elif isinstance(order.get("at_csn"), str):
        moved = dataclasses.replace(row, skip_until=f">={order['at_csn']}")
    elif isinstance(order.get("after_csn"), str):
        moved = dataclasses.replace(row, skip_until=f">{order['after_csn']}")
    else:
        raise OperatorError(f"START ordered {order!r}: expected ATCSN, AFTERCSN or SKIPTRANSACTION", hint="START again")
    if moved.skip_until != row.skip_until:
        note(f"START number {reg.start_no}: leaving out transactions before CSN {moved.skip_until}")
    return dataclasses.replace(moved, alter_no=reg.start_no)


def _behind_next(row: Row, fs: Fs, trail: TrailName, note: Note) -> Row:
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


def changed_tables(fs: Fs, trail: TrailName) -> set[tuple[str, str]]:
    """The source tables whose shape changes somewhere in the trail, as far as it is still there."""
    found: set[tuple[str, str]] = set()
    reader = BlockReader(fs, trail)
    try:
        while (block := reader.read(payload=False)) is not None:
            if block.header.is_ddl and reader.header:
                for record in read_records(fs, trail, reader.header.trail_id, block):
                    if record[0] == Op.DDL:
                        found.update(DdlChange.from_wire(record[1]).names)
    finally:
        reader.close()
    return found


def end_border(end: End | None, now_us: int) -> Border | None:
    """What END says is not to be applied. A transaction of that very CSN or time is; RUNTIME is the time of START."""
    if end is None:
        return None
    if end.csn:
        return Border(">", end.csn)
    return Border("@", time_us=(now_us if end.time_us is None else end.time_us) + 1)


def is_beyond(row: Row, end: Border) -> str:
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
            if block.header.kind == Kind.METADATA:
                for definition in reader.definitions.values():
                    found.setdefault((definition.schema, definition.name), definition)
    except OperatorError:
        pass
    finally:
        reader.close()
    return list(found.values())[before:]


def failing_plan(definition: TableDef, error: str) -> TablePlan:
    """A plan that tells `error` at the first row."""
    layout = Layout(definition.schema, definition.name, (), (), ())
    columns = tuple(column.name for column in definition.columns)
    return TablePlan(definition.full_name, definition.full_name, layout, definition.key, error=error, columns=columns)


def would_fire(rule: MapRule, table: TargetTable, kind: str = "postgresql") -> OperatorError:
    """Triggers and cascades whose effects the trail already carries."""
    why, grant = "", "Drop them in the target"
    if kind == "postgresql":
        why = ", as the target user may not set session_replication_role"
        grant = "GRANT SET ON PARAMETER session_replication_role to that user"
    return OperatorError(
        f"{rule.where}: MAP: target table {table.full_name} has {', '.join(table.fires)}: it would fire although its "
        f"effects are in the trail already{why}",
        hint=f"{grant}, or accept it by ALLOWTARGETTRIGGERS",
    )
