"""Keys of MySQL and MariaDB as ranges, and their values as canonical text.

Rule: a value that SELECT gives becomes the text that the binary log's reader makes of the same value
(extract/sources/mysql/forms.py): ZEROFILL and idle zeros of a fraction are left out, a FLOAT is the shortest text of
its four bytes, which only arithmetic makes the server tell.

An order agrees with Python's as it is for whole numbers, dates, moments, bits, bytes, and text whose collation compares
code points without padding. Of other text the UTF-8 bytes are compared, and no index helps. Of what is left (floats,
times with a fraction, numbers with ZEROFILL) the server can't compare the canonical text: such a key has no ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from replicat.model.loading import BYTES, INT
from replicat.reading.contract import OtherShapeError, Range
from replicat.targets.sql.quoting import ident
from trails.floats import double_text, real_text
from trails.record import Column, TableDef, Value

_PLAIN_ORDER: Final = ("utf8mb4_0900_bin", "utf8mb4_nopad_bin")
_SRID: Final = 4
_WITH_SRID: Final = 0x20000000


def _whole(value: Any) -> str:
    return str(int(value))


def _decimal(value: Any) -> str:
    text = str(value)
    if text[:1] != "0":
        return text
    text = text.lstrip("0")
    return text if text and text[0] != "." else f"0{text}"


def _moment(value: Any) -> str:
    text = _text(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _utc(value: Any) -> str:
    return _moment(value) + "+00"


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def _same(value: Any) -> Value:
    return value  # type: ignore[no-any-return]


def _geometry(value: bytes) -> str:
    """EWKB in hexadecimal digits: the server's number of the reference system stands inside, where it is not zero."""
    if value[:_SRID] == bytes(_SRID):
        return value[_SRID:].hex().upper()
    kind = int.from_bytes(value[5:9], "little")
    return (b"\x01" + (kind | _WITH_SRID).to_bytes(4, "little") + value[:_SRID] + value[9:]).hex().upper()


def _bits(width: int) -> Callable[[Any], Value]:
    return lambda value: f"{int.from_bytes(value, 'big'):0{width}b}"


_WRITTEN: Final[dict[str, Callable[[Any], Value]]] = {
    **dict.fromkeys(("smallint", "integer", "bigint"), _whole),
    "real": lambda value: real_text(float(value)),
    "double": lambda value: double_text(float(value)),
    "decimal": _decimal, "time": _moment, "timestamp": _moment, "timestamptz": _utc, "geometry": _geometry,
    "bytes": _same,
}  # fmt: skip


def written(column: Column) -> Callable[[Any], Value]:
    """How a value that SELECT gives becomes the trail's."""
    if column.type == "bits":
        return _bits(_width(column))
    return _WRITTEN.get(column.type, _text)


def selected(column: Column) -> str:
    """What SELECT asks for. The product is a double, which the server prints with all of its digits."""
    return f"{ident(column.name)} * 1e0" if column.type in ("real", "double") else ident(column.name)


def _width(column: Column) -> int:
    return int(column.native.partition("(")[2].partition(")")[0] or 1)


@dataclass(frozen=True)
class OrderedColumn:
    """A column of a key. `native`: the server's own order agrees; `compared`, `literal`: both sides of a comparison."""

    order: str
    native: bool
    compared: str
    literal: Callable[[str], str]


@dataclass(frozen=True)
class TableKey:
    """A table's key up to the first column without an order. `indexed`: so many columns are the first of `index`."""

    columns: tuple[OrderedColumn, ...]
    indexed: int = 0
    index: str = ""

    @property
    def chunked(self) -> tuple[OrderedColumn, ...]:
        """The columns that chunks go by."""
        return self.columns[: max(1, self.indexed)]


def key_column(column: Column, collation: str) -> OrderedColumn | None:
    """None where the server can't compare as Python does."""
    name, native = ident(column.name), column.native.lower()
    if native.startswith("year"):
        # It takes a number below 100 for a year of this century.
        return OrderedColumn(INT, False, f"({name} + 0)", _digits)
    if column.type in ("smallint", "integer", "bigint") or (column.type == "decimal" and _has_no_point(native)):
        return OrderedColumn(INT, True, name, _digits)
    if column.type == "bytes":
        return OrderedColumn(BYTES, True, name, lambda text: f"X'{text}'")
    if column.type == "bits":
        return OrderedColumn(BYTES, True, name, lambda text: f"B'{text}'")
    if column.type in ("date", "timestamp"):
        return OrderedColumn(BYTES, True, name, _quoted)
    if column.type == "timestamptz":
        return OrderedColumn(BYTES, True, name, lambda text: _quoted(text.removesuffix("+00")))
    if column.type in ("real", "double", "json", "geometry") or "zerofill" in native:
        return None
    if column.type == "time" and "(" in native:
        return None
    if column.type == "text" and collation in _PLAIN_ORDER:
        return OrderedColumn(BYTES, True, name, lambda text: f"_utf8mb4 {_bytes(text)}")
    return OrderedColumn(BYTES, False, f"CAST(CONVERT({name} USING utf8mb4) AS BINARY)", _bytes)


def _has_no_point(native: str) -> bool:
    """Of a decimal: `bigint unsigned` and `decimal(20,0)`."""
    return ",0)" in native or "(" not in native or not native.startswith("decimal")


def _digits(text: str) -> str:
    return str(int(text))


def _bytes(text: str) -> str:
    return f"X'{text.encode().hex()}'"


def _quoted(text: str) -> str:
    """Digits and signs."""
    return "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"


def condition(key: TableKey, table: TableDef, part: Range) -> str:
    """A range as a condition in SQL. Raises OperatorError where the key is not what the range was made of."""
    columns = key.columns[: len(part.orders)]
    if tuple(column.order for column in columns) != part.orders:
        raise OtherShapeError(
            f"table {table.full_name} has a key of {', '.join(c.order for c in key.columns) or 'no order'}, "
            f"expected {', '.join(part.orders)}, by which its chunks were made",
            hint="Its shape has changed since: begin its load anew",
        )
    found = [
        _beyond(columns, border, sign, last)
        for sign, last, border in ((">", ">=", part.low), ("<", "<", part.high or ()))
        if border
    ]
    return " AND ".join(found) or "TRUE"


def behind(key: TableKey, low: Sequence[str]) -> str:
    """The keys that are greater than one."""
    return _beyond(key.chunked, low, ">", ">")


def _beyond(columns: Sequence[OrderedColumn], border: Sequence[str], sign: str, last: str) -> str:
    """Column by column, as no index serves these servers for a comparison of rows."""
    first, literal = columns[0], columns[0].literal(border[0])
    if len(columns) == 1:
        return f"{first.compared} {last} {literal}"
    rest = _beyond(columns[1:], border[1:], sign, last)
    return f"({first.compared} {sign} {literal} OR ({first.compared} = {literal} AND {rest}))"
