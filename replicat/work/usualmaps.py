"""Which MAPs the kernel knows: what it needs to read a table's operands, and to make rows of the results.

Rule: what it is told here is what mapped.py and roles.py would do; whatever asks for more is left to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replicat.maps.expressions.sparktext import WIDE, from_spark, to_spark
from replicat.model.plan import Expression, MapProgram, Operand, TablePlan
from replicat.model.programs import DELETE, INSERT, UPDATE, Programs
from replicat.work import kernel
from replicat.work.mapped import RowMapper
from replicat.work.roles import Role

_CHECKS = {"DATE": kernel.TIME, "TIMESTAMP": kernel.TIME, "TIMESTAMP_NTZ": kernel.TIME}
_CHANGES = {"decimal": kernel.SHORTENED, "date": kernel.MOMENT, "timestamp": kernel.MOMENT}
"""By type of an operand, and of a result: what the kernel does of what sparktext.py does. The rest of that is left to
the plain code; and what that leaves alone is left alone here.
"""


@dataclass(frozen=True, slots=True)
class UsualMap:
    """A MAP as the kernel takes it. `insert`, `update`, `delete`: a kernel.Asked, or None where it does none of them.

    `key`, `written`: which columns the target's key and row come from: behind the image's stand the values of a result,
    to each of which one of `changes` is done, and behind these the `constants`. `upserts`: as MappedWorker has it.
    """

    insert: Any
    update: Any
    delete: Any
    key: tuple[int, ...]
    written: tuple[int, ...]
    changes: tuple[int, ...]
    constants: tuple[bytes | None, ...]
    upserts: bool

    @property
    def evaluates(self) -> bool:
        """Whether any of its changes asks Spark."""
        return any(asked is not None and asked.number >= 0 for asked in (self.insert, self.update, self.delete))


def usual_map(plan: TablePlan, programs: Programs) -> UsualMap | None:
    """Of a plan with a program and a key; None: it asks for more."""
    mapper = RowMapper(plan, programs)
    mapping, roles = mapper.mapping, mapper.roles
    if _adds(mapping) or mapper.key_moves or not all(roles[kind].complete for kind in (INSERT, UPDATE)):
        return None
    changes = [_change(expression) for expression in roles[INSERT].program.values]
    same = roles[INSERT].program.values == roles[UPDATE].program.values and not roles[DELETE].program.values
    placed = _placed(mapping, roles[INSERT], len(plan.columns), len(changes))
    if not same or placed is None or None in changes or any(mapping.slots[i].kind != "column" for i in plan.key):
        return None
    written, constants = placed
    asked = {kind: _asked(roles[kind]) for kind in (INSERT, UPDATE, DELETE)}
    *_, swift_update, _ = mapper.swift
    return UsualMap(
        insert=asked[INSERT],
        update=asked[UPDATE] if swift_update is not None else None,
        delete=asked[DELETE],
        key=tuple(mapping.slots[i].index for i in plan.key),
        written=written,
        changes=tuple(change for change in changes if change is not None),
        constants=constants,
        upserts=mapper.blind,
    )


def _adds(mapping: MapProgram) -> bool:
    """Whether it makes of a change another one, or asks how its row was."""
    makes = mapping.insert_all or mapping.insert_deletes or mapping.insert_updates
    return makes or mapping.update_deletes or mapping.update_inserts or mapping.needs_before


def _placed(
    mapping: MapProgram, role: Role, width: int, values: int
) -> tuple[tuple[int, ...], tuple[bytes | None, ...]] | None:
    """Where each written column comes from, and the constants; None where one is a fact, or of the row before."""
    at = {id(expression): i for i, expression in enumerate(role.program.values)}
    written: list[int] = []
    constants: list[bytes | None] = []
    for slot in mapping.slots:
        if slot.kind == "column":
            written.append(slot.index)
        elif slot.kind == "expr":
            written.append(width + at[id(mapping.expressions[slot.index])])
        elif slot.kind == "const" and (slot.value is None or isinstance(slot.value, str)):
            written.append(width + values + len(constants))
            constants.append(None if slot.value is None else slot.value.encode("utf-8", "surrogateescape"))
        else:
            return None
    return tuple(written), tuple(constants)


def _asked(role: Role) -> Any:
    """A kernel.Asked; None where an operand is not just a column's value."""
    if role.number < 0:
        return kernel.Asked(-1, (), (), judges=False)
    operands = [_operand(operand) for operand in role.program.operands]
    if None in operands:
        return None
    needs = [_columns(expression.operands) for expression in role.program.all]
    return kernel.Asked(role.number, operands, needs, judges=bool(role.program.op_filters))


def _operand(operand: Operand) -> tuple[int, int, int] | None:
    """The column, what it is asked, and its digits behind the point."""
    if operand.kind != "column":
        return None
    if wide := WIDE.match(operand.type):
        return operand.index, kernel.DECIMAL, int(wide[1])
    check = _CHECKS.get(operand.type, kernel.UNCHECKED if to_spark(operand.type) is None else None)
    return None if check is None else (operand.index, check, 0)


def _change(expression: Expression) -> int | None:
    """What is done to its result; None where the kernel can't."""
    if expression.as_text or from_spark(expression.type) is None:
        return kernel.UNCHANGED
    return _CHANGES.get(expression.type)


def _columns(operands: Sequence[Operand]) -> tuple[int, ...]:
    return tuple(operand.index for operand in operands)
