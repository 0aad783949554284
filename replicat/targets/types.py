"""What a value becomes in SQLite and MySQL/MariaDB: a table of rules by logical type, kind of target and column type.

Rule: a value arrives exact, or by the rule that the table names (and is counted where that loses something), or is
refused with table, column and key. What no row of the table covers cannot be written at all: that is told before the
first row. Never a silent NULL, zero, epoch, `?`, rounding or cut. docs/types.md shows what comes of it.

Each rule takes canonical text (docs/values.md) and gives what the target is sent; None (NULL) never reaches a rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from replicat.targets import canonical as c
from replicat.targets.canonical import UnfitError

Convert = Callable[[str], Any]
Back = Callable[[Any], str]
Lossy = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Native:
    """A target column's type, taken apart. `family`: what the rules go by; `size`: length, precision or width."""

    kind: str
    family: str
    text: str = ""
    size: int = 0
    scale: int = 0
    members: tuple[str, ...] = ()
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """How values of one logical type go into one column.

    `convert`: None passes the text as it is; `lossy`: whether a value loses something by it, None if none can;
    `wrap`: SQL around the value where the target needs a function for it; `back`: what was read, as canonical text.
    """

    name: str
    convert: Convert | None = None
    lossy: Lossy | None = None
    wrap: str = "{}"
    back: Back = str


Maker = Callable[[Native], Rule]


def rule_for(logical: str, native: Native) -> Rule | None:
    """The rule for a logical type and a column; None if there is none."""
    for logicals, families, maker in _TABLES[native.kind]:
        if logical in logicals and native.family in families:
            return maker(native)
    return None


# --- column types ---------------------------------------------------------------------------------------------------

_MYSQL_FAMILIES = {
    "int": ("tinyint", "smallint", "mediumint", "int", "integer", "bigint"),
    "decimal": ("decimal", "numeric"),
    "text": ("varchar", "tinytext", "text", "mediumtext", "longtext", "json"),
    "bin": ("binary",),
    "binary": ("varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
}
_MYSQL_FAMILY = {name: family for family, names in _MYSQL_FAMILIES.items() for name in names}
_MYSQL_TYPE = re.compile(r"(\w+)(?:\(([^)]*)\))?", re.ASCII)
_MEMBER = re.compile(r"'((?:[^']|'')*)'")


def mysql_type(text: str) -> Native:
    """information_schema's COLUMN_TYPE, with whatever follows it."""
    found = _MYSQL_TYPE.match(text)
    if found is None:
        return Native("mysql", "unknown", text)
    name = found[1].lower()
    if name in ("enum", "set"):
        members = tuple(m.replace("''", "'").replace("\\\\", "\\") for m in _MEMBER.findall(text))
        return Native("mysql", name, text, members=members)
    # float(7,3) and double(7,3) round what they are given: a decimal by another name, and not an exact one.
    rounds = name in ("float", "double") and "," in (found[2] or "")
    family = "unknown" if rounds else _MYSQL_FAMILY.get(name, name)
    numbers = [int(n) for n in (found[2] or "").split(",") if n.strip().isdigit()]
    size = numbers[0] if numbers else 1 if name in ("bit", "char", "binary") else 0
    return Native("mysql", family, text, size, numbers[1] if len(numbers) > 1 else 0)


def sqlite_type(declared: str, *, strict: bool = False) -> Native:
    """A column's declared type: its affinity, by SQLite's own rules in SQLite's own order."""
    upper = declared.upper()
    if strict:
        family = {"INT": "integer", "ANY": "any"}.get(upper, upper.lower())
    elif "INT" in upper:
        family = "integer"
    elif any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        family = "text"
    elif "BLOB" in upper or not upper:
        family = "blob"
    elif any(word in upper for word in ("REAL", "FLOA", "DOUB")):
        family = "real"
    else:
        family = "numeric"
    return Native("sqlite", family, declared, strict=strict)


# --- rules: MySQL/MariaDB -------------------------------------------------------------------------------------------

_INTEGERS = frozenset({"smallint", "integer", "bigint"})
_FLOATS = frozenset({"real", "double"})
_TEXTS = frozenset({"text", "json", "xml", "enum", "token"})
_ONLY_TEXT = frozenset({"interval", "timetz", "money", "array", "range", "composite", "other", "uuid", "bits"})
_ALL_TEXT = (
    _INTEGERS | _FLOATS | _TEXTS | _ONLY_TEXT
    | {"boolean", "decimal", "char", "date", "time", "timestamp", "timestamptz"}
)  # fmt: skip


def _same(name: str, back: Back = str) -> Maker:
    """The canonical text is what the target takes; the target itself refuses what does not fit."""
    return lambda _native: Rule(name, back=back)


def _by(name: str, convert: Convert, back: Back = str, wrap: str = "{}", lossy: Lossy | None = None) -> Maker:
    return lambda _native: Rule(name, convert, lossy, wrap, back)


def _char(native: Native) -> Rule:
    return Rule("exact", partial(c.unpadded, native.size))


def _padded_char(native: Native) -> Rule:
    return Rule("padding left out", c.strip_padding, back=partial(c.pad, native.size))


def _mysql_float(native: Native) -> Rule:
    convert = c.float_text if native.family == "double" else c.single_text
    return Rule("exact", convert, c.is_negative_zero, back=c.double_back if native.family == "double" else c.real_back)


def _mysql_real(_native: Native) -> Rule:
    return Rule("exact", c.real_text, c.is_negative_zero, back=c.real_back)


def _mysql_real_as_double(_native: Native) -> Rule:
    return Rule("exact", c.float_text, c.is_negative_zero, back=c.real_of_double_back)


def _decimal_as_double(_native: Native) -> Rule:
    return Rule("nearest number, all digits kept up to 15", c.decimal_as_double, c.has_idle_zeros, back=c.plain)


def _moment(native: Native, *, zone: bool, name: str) -> Rule:
    back = c.moment_zone_back if zone else c.moment_back
    check = c.unix_moment if native.family == "timestamp" else c.moment
    return Rule(name, partial(check, native.size, zone), back=back)


def _time(native: Native) -> Rule:
    return Rule("exact", partial(c.time_of_day, native.size), back=c.fraction_back)


def _bits(native: Native) -> Rule:
    return Rule("exact", partial(c.bits, native.size), wrap="CAST(CONV({}, 2, 10) AS UNSIGNED)",
                back=partial(c.bits_back, native.size))  # fmt: skip


def _binary(native: Native) -> Rule:
    return Rule("exact", partial(c.hex_of_length, native.size), wrap=_UNHEX, back=c.bytes_back)


def _member(native: Native) -> Rule:
    convert = partial(c.member if native.family == "enum" else c.members, native.members)
    return Rule("exact", convert)


def _utf8_fixed(native: Native) -> Rule:
    return Rule("UTF-8 bytes", partial(c.utf8_of_length, native.size), back=c.utf8_back)


_UNHEX = "UNHEX(SUBSTR({}, 3))"
_BIT = "CAST({} AS UNSIGNED)"
_Row = tuple[frozenset[str], frozenset[str], Maker]


def _row(logicals: frozenset[str] | set[str] | str, families: str, maker: Maker) -> _Row:
    named = frozenset(logicals.split()) if isinstance(logicals, str) else frozenset(logicals)
    return named, frozenset(families.split()), maker


_MYSQL: tuple[_Row, ...] = (
    _row(_INTEGERS, "int decimal text", _same("exact")),
    _row(_INTEGERS, "char", _char),
    _row(_INTEGERS, "bit", _by("the number's bits", c.whole, wrap=_BIT)),
    _row(_INTEGERS, "year", _by("exact", c.year)),
    _row(_INTEGERS, "double float", _by("exact", c.whole_as_double, c.whole_back)),
    _row("boolean", "int decimal double float", _by("true as 1, false as 0", c.one_or_zero, c.boolean_back)),
    _row("boolean", "bit", _by("true as 1, false as 0", c.one_or_zero, c.boolean_back, wrap=_BIT)),
    _row("decimal", "decimal", _by("exact number, the column's scale", c.finite)),
    _row("decimal", "int", _by("exact number, whole ones only", c.whole)),
    _row("decimal", "double", _decimal_as_double),
    _row("real", "float", _mysql_real),
    _row("real", "double", _mysql_real_as_double),
    _row("double", "double float", _mysql_float),
    _row(_FLOATS, "decimal", _by("digits of the shortest text", c.finite_plain, c.plain, lossy=c.is_negative_zero)),
    _row(_FLOATS, "int", _by("exact number, whole ones only", c.whole, lossy=c.is_negative_zero)),
    _row("char", "char", _padded_char),
    _row("bytes", "binary", lambda _n: Rule("exact", wrap=_UNHEX, back=c.bytes_back)),
    _row("bytes", "text", _same("hexadecimal text")),
    _row("bytes", "bin", _binary),
    _row("date", "date", _by("exact", c.date)),
    _row("date", "datetime timestamp", _by("midnight", c.date, c.date_of_moment)),
    _row("time", "time", _time),
    _row("timestamp", "datetime", partial(_moment, zone=False, name="exact")),
    _row("timestamp", "timestamp", partial(_moment, zone=False, name="taken as UTC")),
    _row("timestamptz", "datetime timestamp", partial(_moment, zone=True, name="UTC, without the offset")),
    _row("money", "decimal", _by("number without sign and commas", c.money, c.money_back)),
    _row("uuid", "uuid", _same("exact")),
    _row("uuid", "bin", lambda n: Rule("its 16 bytes", partial(c.uuid_bytes, n.size), wrap="UNHEX({})",
                                       back=c.uuid_of_bytes)),
    _row("bits", "bit", _bits),
    _row("other", "inet4 inet6", lambda n: Rule("exact", partial(c.inet, n.family))),
    _row(_TEXTS | {"char", "boolean"}, "enum set", _member),
    _row(_TEXTS | {"char"}, "int", _by("text of a whole number", c.whole_text)),
    _row(_TEXTS | {"char"}, "decimal", _by("text of a number", c.number_text, c.plain)),
    _row(_TEXTS | {"char"}, "date", _by("text of a date", c.date)),
    _row(_TEXTS | {"char"}, "datetime", partial(_moment, zone=False, name="text of a timestamp")),
    _row(_TEXTS | {"char"}, "uuid", _by("text of a UUID", c.uuid_text)),
    _row(_ALL_TEXT, "text", _same("exact")),
    _row(_ALL_TEXT, "char", _char),
    _row(_TEXTS | {"char"} | _ONLY_TEXT, "binary", _same("UTF-8 bytes", c.utf8_back)),
    _row(_TEXTS | {"char"} | _ONLY_TEXT, "bin", _utf8_fixed),
)  # fmt: skip


# --- rules: SQLite --------------------------------------------------------------------------------------------------


def _lite_number(native: Native) -> Rule:
    """Into INTEGER and NUMERIC, where SQLite itself turns text that looks like a number into one."""
    if native.strict:
        return Rule("exact number, whole ones only", c.int_of, c.has_idle_zeros, back=c.number_back)
    return Rule("number, all digits kept up to 15", c.number_of, c.has_idle_zeros, back=c.number_back)


def _lite_float_in_number(native: Native) -> Rule:
    if native.strict:
        return Rule("exact number, whole ones only", c.int_of, c.is_negative_zero, back=c.number_back)
    return Rule("exact", c.float_of, c.is_negative_zero, back=c.double_back)


def _lite_float(_native: Native) -> Rule:
    return Rule("exact", c.float_of, c.is_negative_zero, back=c.double_back)


def _lite_real(_native: Native) -> Rule:
    return Rule("exact", c.float_of, c.is_negative_zero, back=c.real_of_double_back)


_NEVER_NUMERIC = frozenset(
    {"date", "time", "timetz", "timestamp", "timestamptz", "interval", "money", "uuid", "array", "range", "composite"}
)
"""Whose canonical text never looks like a number."""


def _lite_text_in_number(native: Native) -> Rule:
    return Rule("exact, text that looks like another number refused", partial(c.keeps_text, native.family))


_SQLITE: tuple[_Row, ...] = (
    _row(_INTEGERS, "integer numeric any blob", _by("exact", int)),
    _row(_INTEGERS, "real", _by("exact", c.int_as_float, c.whole_back)),
    _row("boolean", "integer numeric any blob", _by("true as 1, false as 0", c.int_of_boolean, c.boolean_back)),
    _row("decimal", "integer numeric", _lite_number),
    _row("decimal", "real", lambda _n: Rule("nearest number, all digits kept up to 15", c.float_of_decimal,
                                            c.has_idle_zeros, back=c.number_back)),
    _row("real", "real any blob", _lite_real),
    _row("double", "real any blob", _lite_float),
    _row(_FLOATS, "integer numeric", _lite_float_in_number),
    _row("bytes", "blob any", _by("exact", c.bytes_of, c.hex_back)),
    _row("bytes", "text integer real numeric", lambda n: Rule("hexadecimal text") if n.strict else
         Rule("exact", c.bytes_of, back=c.hex_back)),
    _row(_ALL_TEXT, "text any", _same("exact")),
    _row(_ALL_TEXT, "blob", lambda n: Rule("UTF-8 bytes", c.utf8_of, back=c.utf8_back) if n.strict else Rule("exact")),
    _row(_NEVER_NUMERIC, "integer real numeric", _same("exact")),
    _row(_ALL_TEXT - _INTEGERS - _FLOATS - {"boolean", "decimal"}, "integer real numeric", _lite_text_in_number),
)  # fmt: skip

_TABLES = {"mysql": _MYSQL, "sqlite": _SQLITE}

__all__ = ["Native", "Rule", "UnfitError", "mysql_type", "rule_for", "sqlite_type"]
