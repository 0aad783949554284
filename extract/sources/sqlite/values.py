"""Values of an SQLite file to the trail's canonical text (docs/values.md).

Rule: SQLite lets any column hold any storage class. A column's logical type says which classes it takes; a value of
another class is refused with table, column and key, because any text for it would be read back as another value. In a
column of type `any` each value is a literal that carries its class: `1`, `1.0`, `'it''s'`, `x'00ff'`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from extract.sources.sqlite.tables import SourceTable, plain
from trails.codec import binary
from trails.controlflow import ControlFlowError
from trails.errors import OperatorError
from trails.floats import double_text
from trails.record import TableDef

Convert = Callable[[Any], Any]
_CLASSES: Final = {int: "integer", float: "real", str: "text", bytes: "blob", type(None): "null"}


class OtherClassError(ControlFlowError):
    """The value's storage class is none that the column's type takes."""


def whole(value: Any) -> str | None:
    """An integer."""
    if type(value) is int:
        return str(value)
    if value is None:
        return None
    raise OtherClassError


def double(value: Any) -> str | None:
    """A real: the shortest text that reads back as the same number."""
    if type(value) is float:
        return double_text(value)
    if value is None:
        return None
    raise OtherClassError


def decimal(value: Any) -> str | None:
    """An integer, or a real: the digits of its shortest text, without an exponent."""
    if type(value) is int:
        return str(value)
    if value is None:
        return None
    if type(value) is float:
        text = double_text(value)
        return f"{Decimal(text):f}" if "e" in text else text
    raise OtherClassError


def text(value: Any) -> str | None:
    """Text, whatever is in it."""
    if value is None or type(value) is str:
        return value
    raise OtherClassError


def blob(value: Any) -> Any:
    """The bytes."""
    if type(value) is bytes:
        return binary(value)
    if value is None:
        return None
    raise OtherClassError


def literal(value: Any) -> str | None:
    """A value with its class."""
    if value is None:
        return None
    if type(value) is int:
        return str(value)
    if type(value) is float:
        made = double_text(value)
        return made if not made.lstrip("-").isdigit() else made + ".0"
    if type(value) is bytes:
        return f"x'{value.hex()}'"
    return "'" + str(value).replace("'", "''") + "'"


CONVERTERS: Final[dict[str, Convert]] = {
    "bigint": whole, "double": double, "decimal": decimal, "text": text, "bytes": blob, "any": literal,
}  # fmt: skip


def _wholes(values: Sequence[Any]) -> Sequence[Any]:
    kinds = set(map(type, values))
    return list(map(str, values)) if kinds == {int} else [whole(value) for value in values]


def _texts(values: Sequence[Any]) -> Sequence[Any]:
    return values if set(map(type, values)) <= {str, type(None)} else [text(value) for value in values]


_COLUMNS: Final[dict[str, Callable[[Sequence[Any]], Sequence[Any]]]] = {"bigint": _wholes, "text": _texts}


def column(kind: str) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The same for a column's values of many rows at once, which takes a fraction of the time for each."""
    convert = CONVERTERS[kind]
    return _COLUMNS.get(kind) or (lambda values: list(map(convert, values)))


def converters(definition: TableDef) -> tuple[Convert, ...]:
    """One for each column."""
    return tuple(CONVERTERS[column.type] for column in definition.columns)


def refused(table: SourceTable, definition: TableDef, row: Sequence[Any], where: str) -> OperatorError:
    """What ends the capture: the first value of a row that its column's type does not take, or a key without one."""
    nulls = [c.name for c, value in zip(definition.columns, row, strict=False) if c.key and value is None]
    if nulls:
        return OperatorError(
            f"table {table.full_name}, {where}: column {nulls[0]} of the key is NULL, so nothing tells this row from "
            "others like it",
            hint="Declare it NOT NULL. To leave the row out, ALTER EXTRACT past this change",
        )
    for column, value in zip(definition.columns, row, strict=False):
        try:
            CONVERTERS[column.type](value)
        except OtherClassError:
            break
    key = ", ".join(plain(row[definition.columns.index(c)]) for c in definition.columns if c.key)
    declared = f"declared {column.native}" if column.native else "declared without a type"
    return OperatorError(
        f"table {table.full_name}, row ({key}), {where}: column {column.name} holds {_CLASSES[type(value)]} "
        f"{plain(value)}, expected {_expected(column.type)}, as it is {declared}",
        hint=f"TABLE {table.full_name}, ANY ({column.name}); captures it as it is",
    )


def _expected(kind: str) -> str:
    return {"bigint": "integer", "double": "real", "decimal": "integer or real", "bytes": "blob"}.get(kind, "text")
