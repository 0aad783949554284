"""What Spark evaluates for one row: programs, their numbers, and the SQL of all of them together.

A program is what one image under one plan needs: conditions of filters, then values. Plans whose programs read alike
share one (a MAP with wildcards: one for all its tables). Every row that goes to Spark has these columns:

    p      the program's number; REFUSE for a row that is known to fail, with the reason in c0; FIRST: no program's
    m      which of the program's expressions are not to be evaluated, as '0010'; NULL: none of them (the usual case)
    c0...  operands as text

and comes back with the verdict `f` (OUT, FAILS or PASSES) and the values r0... as text.
Pure: no Spark. The order of programs follows from the plans alone, so driver and workers agree without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from replicat.model.plan import Expression, Operand, Plans, TablePlan

REFUSE, FIRST = -1, -2
OUT, FAILS, PASSES = 0, 1, 2
"""Verdicts: a filter of operations fails, a filter of rows fails, or neither."""

INSERT, UPDATE, DELETE, OLD = "INSERT", "UPDATE", "DELETE", "OLD"
ROLES = (INSERT, UPDATE, DELETE, OLD)
"""What an image is: of an insert, a delete, or what an update made of a row, and what the row was before."""

_MARK = re.compile("\x1f(\\d+)\x1f")


def mark(number: int) -> str:
    """Operand `number` in an expression's SQL."""
    return f"\x1f{number}\x1f"


@dataclass(frozen=True, slots=True)
class Program:
    """Expressions in the order in which their results come. `operands`: in the order of the columns c0..."""

    op_filters: tuple[Expression, ...] = ()
    row_filters: tuple[Expression, ...] = ()
    values: tuple[Expression, ...] = ()
    operands: tuple[Operand, ...] = field(init=False)
    signature: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        operands = dict.fromkeys(operand for expression in self.all for operand in expression.operands)
        object.__setattr__(self, "operands", tuple(operands))
        places = {operand: i for i, operand in enumerate(operands)}
        verdict = self._verdict(places)
        values = [_masked(value_sql(value, places), self._at(i), "NULL") for i, value in enumerate(self.values)]
        object.__setattr__(self, "signature", (verdict, *values))

    @property
    def all(self) -> tuple[Expression, ...]:
        """All expressions, as the mask counts them."""
        return self.op_filters + self.row_filters + self.values

    def __bool__(self) -> bool:
        return bool(self.op_filters or self.row_filters or self.values)

    def _at(self, value: int) -> int:
        return len(self.op_filters) + len(self.row_filters) + value

    def _verdict(self, places: dict[Operand, int]) -> str:
        conditions = [
            _masked(f"coalesce({_placed(e.sql, e, places)}, false)", i, "true")
            for i, e in enumerate(self.op_filters + self.row_filters)
        ]
        ops, rows = conditions[: len(self.op_filters)], conditions[len(self.op_filters) :]
        if not conditions:
            return ""
        whens = [
            f"WHEN NOT ({' AND '.join(some)}) THEN {verdict}Y" for some, verdict in ((ops, OUT), (rows, FAILS)) if some
        ]
        return f"CASE {' '.join(whens)} ELSE {PASSES}Y END"


def _masked(sql: str, number: int, otherwise: str) -> str:
    return f"IF(m IS NULL OR substr(m, {number + 1}, 1) = '0', {sql}, {otherwise})"


def _placed(sql: str, expression: Expression, places: dict[Operand, int]) -> str:
    """An expression's SQL over the columns c0..."""

    def operand(match: re.Match[str]) -> str:
        wanted = expression.operands[int(match[1])]
        return cast_sql(f"c{places[wanted]}", wanted.type)

    return "(" + _MARK.sub(operand, sql) + "\n)"


def cast_sql(column: str, type_: str) -> str:
    """A text column as a value of a Spark type."""
    if type_ == "STRING":
        return column
    return f"unhex({column})" if type_ == "BINARY" else f"CAST({column} AS {type_})"


def value_sql(expression: Expression, places: dict[Operand, int]) -> str:
    """A value as text; where the column may be left out, `!` for that and `=` before any other."""
    sql = _placed(expression.sql, expression, places)
    text = f"hex({sql})" if expression.type == "bytes" else f"CAST({sql} AS STRING)"
    if not expression.left_out:
        return text
    return f"IF({_placed(expression.left_out, expression, places)}, '!', concat('=', {text}))"


class Programs:
    """The programs of all plans together. `numbers`: by signature."""

    def __init__(self, programs: Iterable[Program]) -> None:
        self.numbers: dict[tuple[str, ...], int] = {}
        self.width = 1  # operand columns
        for program in programs:
            self.width = max(self.width, len(program.operands))
            self.numbers.setdefault(program.signature, len(self.numbers))
        self.values = max((len(signature) - 1 for signature in self.numbers), default=0)

    def __bool__(self) -> bool:
        return bool(self.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Programs) and (self.width, self.numbers) == (other.width, other.numbers)

    __hash__ = None  # type: ignore[assignment]  # compared, never a key

    def number(self, program: Program) -> int:
        """A program's number; -1 for one that evaluates nothing."""
        return self.numbers[program.signature] if program else -1

    @property
    def verdict_sql(self) -> str:
        """`f`."""
        refuse = f"WHEN p = {REFUSE} THEN CAST(raise_error(c0) AS TINYINT)"
        return f"CASE {' '.join([*self._whens(0), refuse])} ELSE {PASSES}Y END"

    def value_sql(self, at: int) -> str:
        """`r<at>`: only of rows that pass."""
        return f"IF(f = {PASSES}Y, CASE {' '.join(self._whens(at + 1))} END, NULL)"

    @property
    def sql(self) -> str:
        """All of it."""
        return "\n".join(part for signature in self.numbers for part in signature)

    def _whens(self, at: int) -> list[str]:
        """One for each different part of the signatures."""
        found: dict[str, list[int]] = {}
        for signature, number in self.numbers.items():
            if len(signature) > at and signature[at]:
                found.setdefault(signature[at], []).append(number)
        return [f"WHEN {_among(numbers)} THEN {sql}" for sql, numbers in found.items()]


def _among(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    if high - low + 1 == len(numbers):
        return f"p = {low}" if low == high else f"p BETWEEN {low} AND {high}"
    return f"p IN ({', '.join(map(str, numbers))})"


def program_of(plan: TablePlan, role: str) -> Program:
    """What an image in this role needs evaluated."""
    mapping = plan.mapping
    assert mapping is not None
    expressions = mapping.expressions
    row_filters = [expressions[test.expr] for test in mapping.filters if not test.ops]
    op_filters = [expressions[test.expr] for test in mapping.filters if role in test.ops]
    wanted = wanted_slots(plan, role)
    values = {slot.index: None for i, slot in enumerate(mapping.slots) if slot.kind == "expr" and i in wanted}
    return Program(tuple(op_filters), tuple(row_filters), tuple(expressions[i] for i in values))


def wanted_slots(plan: TablePlan, role: str) -> Sequence[int]:
    """The columns of the layout that an image in this role must give: of a row that was, often its key alone."""
    mapping = plan.mapping
    assert mapping is not None
    makes_row = mapping.insert_all or mapping.insert_deletes or mapping.update_deletes
    keys_alone = role == OLD or (role == DELETE and not makes_row)
    return plan.key if keys_alone and plan.key and plan.conflict is None else range(len(mapping.slots))


def programs_of(plans: Plans) -> Programs:
    """The programs of all plans that have any, in the plans' order."""
    return Programs(programs(plan for some in plans.values() for plan in some))


def programs(plans: Iterable[TablePlan]) -> Iterable[Program]:
    """The programs of these plans."""
    for plan in plans:
        if plan.mapping is not None and plan.mapping.expressions and not plan.error:
            yield from filter(None, (program_of(plan, role) for role in ROLES))
