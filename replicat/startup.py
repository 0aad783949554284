"""Where a Replicat begins: its checkpoint row, and what ADD or ALTER ordered.

row    order in the registration                          then
none   none                                               begin at the trail's first file
none   yes                                                begin where it says
gone   none, or one that the row bore already             refuse: applying the trail again could double what is there
there  none, or its number is already in the row          go on at the row (CW-18)
there  a higher number, or the group was added again      move the row there, once: the row then bears it (CW-19)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from replicat.params import MapRule
from replicat.plan import TablePlan
from replicat.target import Layout, Row, Target, TargetTable
from trails.errors import OperatorError
from trails.fs import Fs
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import BlockReader
from trails.record import TableDef
from trails.runtime.registration import Registration


def find_row(
    target: Target,
    reg: Registration,
    fs: Fs,
    trail: TrailName,
    note: Callable[[str], None],
    *,
    seen: int | None = None,
) -> Row:
    """The group's row, made or moved as the registration says.

    `seen`: a row was there before, and bore this ALTER's number.
    """
    row = target.load_row()
    if row is None:
        if seen is not None and reg.alter_no <= seen:
            raise OperatorError(
                f"the checkpoint table has no row of group {reg.name}, which had one: the target was restored, "
                "or somebody deleted the row",
                hint=f"Find out how far the target's tables are, then ALTER REPLICAT {reg.name}, EXTSEQNO n, EXTRBA n",
            )
        begin = ordered_position(reg.alter, fs, trail) if reg.alter else Position(0, 0)
        row = Row(begin, alter_no=reg.alter_no, added_us=reg.added_us, flushed=begin)
        target.add_row(row)
        note(f"Starting at position {begin}: the checkpoint table has no row of this group")
        return row
    again = row.added_us != reg.added_us
    if reg.alter and (again or reg.alter_no > row.alter_no):
        begin = ordered_position(reg.alter, fs, trail)
        new = Row(begin, alter_no=reg.alter_no, added_us=reg.added_us, flushed=begin)
        note(f"ALTER number {reg.alter_no}: moving from position {row.position} to {begin}")
    elif again:
        new = dataclasses.replace(row, alter_no=reg.alter_no, added_us=reg.added_us)
        note(f"The group was added again; going on at position {row.position} of its checkpoint row")
    else:
        note(f"Going on at position {row.position} of the checkpoint row")
        return row
    target.flush(row, new)
    return new


def ordered_position(order: dict[str, Any], fs: Fs, trail: TrailName) -> Position:
    """Where an ALTER's (or ADD's) order points: a file and RBA, or the first transaction at or after a time."""
    if "seqno" in order:
        return Position(int(order["seqno"]), int(order.get("rba") or 0))
    begin = order.get("begin_us", order.get("begin"))
    if isinstance(begin, int):
        return _first_at(fs, trail, lambda unit_us, _: unit_us >= begin)
    if isinstance(begin, str) and begin.upper() == "NOW":
        return _first_at(fs, trail, lambda _, __: False)
    if isinstance(order.get("csn"), str):
        csn = order["csn"]
        return _first_at(fs, trail, lambda _, unit_csn: unit_csn >= csn)
    raise OperatorError(f"ALTER ordered {order!r}: expected a file and RBA, a time, or a CSN", hint="ALTER it again")


def _first_at(fs: Fs, trail: TrailName, wanted: Callable[[int, str], bool]) -> Position:
    """The border before the first unit that is wanted; the end, if none is."""
    reader = BlockReader(fs, trail)
    try:
        planner = Planner(reader)
        at = planner.position
        while (unit := planner.next()) is not None:
            if unit.blocks and wanted(unit.time_us, unit.csn):
                return unit.start
            at = unit.end
        return at or Position(0, 0)
    finally:
        reader.close()


def definitions_at(fs: Fs, trail: TrailName, position: Position | None, trail_id: bytes) -> list[TableDef]:
    """Each table's definition in force where reading begins; refuses a place that is gone, and another trail."""
    reader = BlockReader(fs, trail, position, trail_id or None)
    try:
        reader.read(payload=False)
        return list({(d.schema, d.name): d for d in reader.definitions.values()}.values())
    finally:
        reader.close()


def failing_plan(definition: TableDef, error: str) -> TablePlan:
    """A plan that tells `error` at the first row."""
    layout = Layout(definition.schema, definition.name, (), (), ())
    return TablePlan(definition.full_name, definition.full_name, layout, definition.key, error=error)


def would_fire(rule: MapRule, table: TargetTable) -> OperatorError:
    """Triggers and cascades whose effects the trail already carries."""
    return OperatorError(
        f"{rule.where}: MAP: target table {table.full_name} has {', '.join(table.fires)}: it would fire although its "
        "effects are in the trail already, as the target user may not set session_replication_role",
        hint="GRANT SET ON PARAMETER session_replication_role to that user, or accept it by ALLOWTARGETTRIGGERS",
    )
