"""What conditions read of one row: a column by its name, its value as canonical text, and a number's place in order.

Rule: nothing is known of a column that did not come; `UnknownError` says so, and nobody guesses.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from trails.controlflow import ControlFlowError
from trails.naming import TOKEN, ColumnName
from trails.record import MISSING, Image, TableDef

NUMBERS: Final = ("smallint", "integer", "bigint", "decimal", "real", "double")


class UnknownError(ControlFlowError):
    """A row does not tell: `column` is the index of what did not come."""

    def __init__(self, column: int) -> None:
        super().__init__(column)
        self.column = column


class UnreadableError(ControlFlowError):
    """A row's text is not what a function (`by`) reads: no number, or no date."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


class UnaskableError(ControlFlowError):
    """A condition that a table can't be asked: what is wrong, and what to do."""

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(what)
        self.what, self.mend = what, mend


def index_of(column: ColumnName, table: TableDef) -> int:
    """Which of a table's columns is meant; tokens are none. Raises UnaskableError."""
    names = [one.name for one in table.columns if one.type != TOKEN]
    at = column.find(names)
    if len(at) > 1:
        which = ", ".join(f'"{names[i]}"' for i in at)
        raise UnaskableError(f"{column} may be {which}", "Name it in double quotes")
    if not at:
        raise UnaskableError(f"the table has no column {column}", f"Its columns are {', '.join(names)}")
    return at[0]


def text_of(image: Image, at: int) -> str | None:
    """A column's text; None for NULL. Raises UnknownError."""
    value = image[at]
    if value is None:
        return None
    if value is MISSING:
        raise UnknownError(at)
    return str(value, "utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def in_order(number: Decimal) -> tuple[int, Decimal]:
    """To compare by: NaN is equal to itself and above all others, as databases have it that know it."""
    return (1, Decimal(0)) if number.is_nan() else (0, number)


def number_of(text: str) -> Decimal:
    """A number from its digits. Raises ValueError and InvalidOperation for any other text."""
    number = Decimal(text)
    if number.is_snan() or "_" in text:
        raise ValueError(text)
    return number
