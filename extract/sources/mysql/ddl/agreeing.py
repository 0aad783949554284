"""Whether a TABLE_MAP is of the shape that is known: the same columns in the same order, each of a type that fits.

Rule: the log is the truth of its place. What it can't say (defaults, which texts are JSON) is not compared; lengths of
texts are compared in characters, whatever the character set is.
"""

from __future__ import annotations

import re
from typing import Final

from extract.sources.mysql import tablemap as t
from extract.sources.mysql.ddl import natives
from extract.sources.mysql.tablemap import MapColumn, TableMap
from extract.sources.mysql.values import charsets
from extract.sources.mysql.values.unread import UnreadValueError
from trails.ddl import DdlColumn, TableShape

_PLAIN: Final = {
    "tinyint": (t.TINY,), "smallint": (t.SHORT,), "mediumint": (t.INT24,), "int": (t.LONG,), "bigint": (t.LONGLONG,),
    "float": (t.FLOAT,), "double": (t.DOUBLE,), "date": (t.DATE, t.NEWDATE), "year": (t.YEAR,),
    "time": (t.TIME, t.TIME2), "datetime": (t.DATETIME, t.DATETIME2), "timestamp": (t.TIMESTAMP, t.TIMESTAMP2),
    "vector": (t.VECTOR, t.VARCHAR, t.VAR_STRING, t.BLOB),
}  # fmt: skip
_VARIABLE: Final = (t.VARCHAR, t.VAR_STRING, t.VARCHAR_COMPRESSED)
_BLOBS: Final = (t.BLOB, t.TINY_BLOB, t.MEDIUM_BLOB, t.LONG_BLOB, t.BLOB_COMPRESSED)
_SIZES: Final = {"tiny": 1, "": 2, "medium": 3, "long": 4}
_FIXED: Final = {"uuid": 16, "inet6": 16, "inet4": 4}
_MOST_BYTES: Final = 4
_NUMBERS: Final = re.compile(r"\(([\d,]+)\)")


def disagreement(shape: TableShape, table: TableMap) -> str:
    """What differs first, for people; empty if nothing does."""
    if len(shape.columns) != len(table.columns):
        return f"{len(shape.columns)} columns were expected, found {len(table.columns)}"
    for number, (known, found) in enumerate(zip(shape.columns, table.columns, strict=True), 1):
        if known.name != found.name:
            return f"column {number} was expected to be {known.name}, found {found.name}"
        if not fits(known, found):
            return f"column {known.name} was expected to be {known.native}, found type {found.type}"
    return ""


def fits(known: DdlColumn, found: MapColumn) -> bool:
    """Whether values of this type are stored so."""
    native = known.native
    base = natives.base_of(native)
    if base in _PLAIN:
        return found.type in _PLAIN[base] and (
            natives.logical(native) not in ("smallint", "integer", "bigint", "decimal")
            or base == "year"
            or found.unsigned == (" unsigned" in native)
        )
    numbers = _numbers(native)
    if base == "decimal":
        return found.type == t.NEWDECIMAL and numbers == (found.meta & 255, found.meta >> 8)
    if base == "bit":
        return found.type == t.BIT and numbers == ((found.meta & 255) + 8 * (found.meta >> 8),)
    if base in ("enum", "set"):
        return found.type == (t.ENUM if base == "enum" else t.SET) and _same_labels(native, found)
    if base == "json":
        return found.type == t.JSON or (found.type in _BLOBS and found.meta == _SIZES["long"])
    if base in _FIXED:
        return found.type == t.STRING and found.meta == _FIXED[base]
    if known.type == "geometry":
        return found.type == t.GEOMETRY
    return _is_text(base, numbers, native, found)


def _is_text(base: str, numbers: tuple[int, ...], native: str, found: MapColumn) -> bool:
    is_bytes = base.endswith(("binary", "blob"))
    if found.collation is not None and is_bytes != (found.collation == charsets.BINARY):
        return False
    if base.endswith(("text", "blob")):
        width = _SIZES.get(base.removesuffix("text").removesuffix("blob"))
        return found.type in _BLOBS and found.meta == width
    if base in ("varchar", "varbinary", "char", "binary"):
        types = _VARIABLE if base.startswith("var") else (t.STRING,)
        size = found.meta - (found.type == t.VARCHAR_COMPRESSED)  # a byte says how it is compressed
        return found.type in types and _is_long(numbers[0], size, 1 if is_bytes else _MOST_BYTES)
    return native == "other"


def _is_long(characters: int, size: int, most: int) -> bool:
    """Whether so many characters take so many bytes at most, in some character set."""
    if not characters:
        return not size
    return size % characters == 0 and 1 <= size // characters <= most


def _same_labels(native: str, found: MapColumn) -> bool:
    labels = natives.labels_of(native)
    if len(labels) != len(found.labels):
        return False
    collation = found.label_collation or found.collation
    try:
        name = charsets.charset(collation) if collation else natives.charset_of(natives.split(native)[1])
        decode = charsets.decoder(name)
        return all(label == decode(raw).rstrip(" ") for label, raw in zip(labels, found.labels, strict=True))
    except UnreadValueError:
        return True  # who decodes the rows says so, of the first one


def _numbers(native: str) -> tuple[int, ...]:
    found = _NUMBERS.search(native)
    return tuple(map(int, found[1].split(","))) if found else ()
