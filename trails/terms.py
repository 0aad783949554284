"""What WHERE and FILTER of a TABLE say, as a tree: terms have a value in a row, conditions are true of it or not.

    term        a column, a text (str), a number (Decimal), Arithmetic, KeyPart, Call
    condition   ColumnTest (column, op, constant)     ColumnState (column, NULL | PRESENT | ABSENT)
                ComputedTest (term, op, term)         Not, Join (AND, OR)

The language's words become such a tree in runtime/language; conditions.py and computing.py ask a row by it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from trails.naming import ColumnName

NULL, PRESENT, ABSENT = "NULL", "PRESENT", "ABSENT"
STATES: Final = (NULL, PRESENT, ABSENT)
OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "<>": operator.ne, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """`@NAME (...)`. `parts`: terms, or conditions where the function takes them."""

    name: str
    parts: tuple[Term | Condition, ...]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left op right` of numbers."""

    op: str
    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Part `part` of `parts` of all rows, by a hash of the columns; of the key where none is named."""

    part: int
    parts: int
    columns: tuple[ColumnName, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnTest:
    """`column op constant`; `quoted`: the constant stood in quotes."""

    column: ColumnName
    op: str
    constant: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class ColumnState:
    """`column = @NULL` and its like; `holds` is false for `<>`."""

    column: ColumnName
    state: str
    holds: bool = True


@dataclass(frozen=True, slots=True)
class ComputedTest:
    """`left op right`, of which one at least is computed."""

    left: Term
    op: str = ">"
    right: Term = Decimal(0)


@dataclass(frozen=True, slots=True)
class Not:
    """What is unknown stays so."""

    inner: Condition


@dataclass(frozen=True, slots=True)
class Join:
    """AND (`every`) or OR of its parts, from left to right."""

    every: bool
    parts: tuple[Condition, ...]


Term = ColumnName | str | Decimal | Arithmetic | KeyPart | Call
Condition = ColumnTest | ColumnState | ComputedTest | Not | Join


def columns(asked: Term | Condition) -> Iterator[ColumnName]:
    """The columns that it reads; those of a key that nobody names are not among them."""
    match asked:
        case ColumnName():
            yield asked
        case ColumnTest() | ColumnState():
            yield asked.column
        case KeyPart():
            yield from asked.columns
        case Not():
            yield from columns(asked.inner)
        case Call() | Join():
            for part in asked.parts:
                yield from columns(part)
        case Arithmetic() | ComputedTest():
            yield from columns(asked.left)
            yield from columns(asked.right)
