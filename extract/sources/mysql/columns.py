"""A column of the log as a column of the trail: its logical type (docs/values.md) and its native type's text.

Rule: TABLE_MAP says how a value is stored, and that is what the logical type follows. What it can't say is asked of
`known`, the column of the table's shape (shapes.py): that a text of MariaDB is JSON, that 16 bytes are a UUID or an
address, the labels' character set of MySQL before 9, and whether times of the old format have fractions.

An unsigned number has the next wider type. CHAR is text, as the server gives it without its padding.
"""

from __future__ import annotations

import re
from typing import Final

from extract.sources.mysql import tablemap as t
from extract.sources.mysql.events import UncapturedError
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.tablemap import MapColumn, TableMap
from extract.sources.mysql.values.charsets import BINARY
from extract.sources.mysql.values.unread import UnreadValueError
from trails.ddl import DdlColumn, TableShape
from trails.record import Column, TableDef

_LOGICAL: Final = {
    t.TINY: "smallint", t.SHORT: "smallint", t.INT24: "integer", t.LONG: "integer", t.LONGLONG: "bigint",
    t.FLOAT: "real", t.DOUBLE: "double", t.NEWDECIMAL: "decimal", t.BIT: "bits", t.YEAR: "smallint", t.DATE: "date",
    t.NEWDATE: "date", t.TIME: "time", t.TIME2: "time", t.DATETIME: "timestamp", t.DATETIME2: "timestamp",
    t.TIMESTAMP: "timestamptz", t.TIMESTAMP2: "timestamptz", t.ENUM: "enum", t.SET: "text", t.JSON: "json",
    t.GEOMETRY: "geometry",
}  # fmt: skip
_WIDER: Final = {t.SHORT: "integer", t.LONG: "bigint", t.LONGLONG: "decimal"}
_NATIVE: Final = {
    t.TINY: "tinyint", t.SHORT: "smallint", t.INT24: "mediumint", t.LONG: "int", t.LONGLONG: "bigint",
    t.FLOAT: "float", t.DOUBLE: "double", t.YEAR: "year", t.DATE: "date", t.NEWDATE: "date", t.TIME: "time",
    t.TIME2: "time", t.DATETIME: "datetime", t.DATETIME2: "datetime", t.TIMESTAMP: "timestamp",
    t.TIMESTAMP2: "timestamp", t.JSON: "json",
}  # fmt: skip
_SECONDS: Final = frozenset((t.TIME2, t.DATETIME2, t.TIMESTAMP2))
_BLOBS: Final = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_GEOMETRIES: Final = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection",
)  # fmt: skip
_TEXTS: Final = frozenset(
    (t.STRING, t.VAR_STRING, t.VARCHAR, t.BLOB, t.TINY_BLOB, t.MEDIUM_BLOB, t.LONG_BLOB, t.BLOB_COMPRESSED,
     t.VARCHAR_COMPRESSED)
)  # fmt: skip
_IN_BYTES: Final = {"uuid": "uuid", "inet4": "other", "inet6": "other"}
_BASE: Final = re.compile(r"[a-z0-9]+")


def base_of(known: DdlColumn | None) -> str:
    """The name of the type that the shape has: `varchar` of `varchar(20) ...`; empty if there is none."""
    found = _BASE.match(known.native) if known is not None else None
    return found[0] if found else ""


def hidden_type(one: MapColumn, known: DdlColumn | None, flavour: Flavour) -> str:
    """The type of MariaDB that looks like bytes or text in the log: uuid, inet4, inet6, json; else nothing."""
    base = base_of(known)
    if flavour is not Flavour.MARIADB or one.type not in _TEXTS:
        return ""
    if one.collation == BINARY:
        return base if base in _IN_BYTES and one.type == t.STRING else ""
    return base if base == "json" else ""


def column(one: MapColumn, known: DdlColumn | None, flavour: Flavour, *, key: bool = False) -> Column:
    """The column. Raises UnreadValueError where its type is none that is read."""
    return Column(one.name, _logical(one, known, flavour), known.native if known else _native(one), key)


def definition(table: TableMap, shape: TableShape | None, flavour: Flavour) -> TableDef:
    """The whole table; its key is the shape's, or else the log's. Raises UncapturedError, which names a column."""
    known = known_columns(table, shape)
    keys = shape.key if shape is not None else [table.columns[i].name for i in table.key]
    made = []
    for one, found in zip(table.columns, known, strict=True):
        try:
            made.append(column(one, found, flavour, key=one.name in keys))
        except UnreadValueError as error:
            raise UncapturedError(f"table {table.full_name}, column {one.name}: {error}", hint=error.hint) from error
    return TableDef(table.schema, table.name, tuple(made))


def known_columns(table: TableMap, shape: TableShape | None) -> tuple[DdlColumn | None, ...]:
    """What the shape says of each column of the log."""
    found = {known.name: known for known in shape.columns} if shape is not None else {}
    return tuple(found.get(one.name) for one in table.columns)


def _logical(one: MapColumn, known: DdlColumn | None, flavour: Flavour) -> str:
    if one.type in _TEXTS:
        hidden = hidden_type(one, known, flavour)
        return _IN_BYTES.get(hidden) or hidden or ("bytes" if one.collation == BINARY else "text")
    if one.unsigned and one.type in _WIDER:
        return _WIDER[one.type]
    found = _LOGICAL.get(one.type)
    if found is None:
        raise UnreadValueError(
            f"it is of the type {one.type} of the binary log, which this release can't read",
            hint="Change the column's type, or leave the table out (TABLEEXCLUDE)",
        )
    return found


def _native(one: MapColumn) -> str:
    """What the log alone tells, as information_schema's COLUMN_TYPE has it; lengths in bytes."""
    if one.type in _TEXTS:
        return _text_native(one)
    if one.type == t.NEWDECIMAL:
        return f"decimal({one.meta & 255},{one.meta >> 8}){_sign(one)}"
    if one.type == t.BIT:
        return f"bit({bit_width(one)})"
    if one.type in (t.ENUM, t.SET):
        return "enum" if one.type == t.ENUM else "set"
    if one.type == t.GEOMETRY:
        return dict(enumerate(_GEOMETRIES)).get(one.geometry or 0, "geometry")
    digits = f"({one.meta})" if one.type in _SECONDS and one.meta else ""
    return f"{_NATIVE[one.type]}{digits}{_sign(one)}"


def bit_width(one: MapColumn) -> int:
    """The width of a BIT: so many bits beside so many whole bytes."""
    return (one.meta & 255) + 8 * (one.meta >> 8)


def _sign(one: MapColumn) -> str:
    return " unsigned" if one.unsigned else ""


def _text_native(one: MapColumn) -> str:
    is_bytes = one.collation == BINARY
    if one.type in (t.VARCHAR, t.VAR_STRING, t.VARCHAR_COMPRESSED):
        return f"{'varbinary' if is_bytes else 'varchar'}({one.meta})"
    if one.type == t.STRING:
        return f"{'binary' if is_bytes else 'char'}({one.meta})"
    return f"{_BLOBS.get(one.meta, '')}{'blob' if is_bytes else 'text'}"
