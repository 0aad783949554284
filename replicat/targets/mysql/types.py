"""What a value becomes in MySQL and MariaDB: a table of rules (replicat/targets/sql/types.py) by column type.

The text of each column type is information_schema's COLUMN_TYPE. docs/types.md shows what comes of the rules.
"""

from __future__ import annotations

import re
from functools import partial

from replicat.targets.mysql import jsontext as j
from replicat.targets.sql import canonical as c
from replicat.targets.sql import ways as w
from replicat.targets.sql.types import (
    ALL_TEXT,
    FLOATS,
    INTEGERS,
    ONLY_TEXT,
    TEXTS,
    Native,
    Rule,
    RuleRow,
    by,
    row,
    same,
)


def _char(native: Native) -> Rule:
    return Rule("exact", partial(c.unpadded, native.size), way=w.UNPADDED)


def _padded_char(native: Native) -> Rule:
    return Rule("padding left out", c.strip_padding, back=partial(c.pad, native.size), way=w.STRIPPED)


def _float(native: Native) -> Rule:
    if native.family == "double":
        return Rule("exact", c.float_text, c.is_negative_zero, back=c.double_back, way=w.FLOAT)
    return Rule("exact", c.single_text, c.is_negative_zero, back=c.real_back)


def _real(_native: Native) -> Rule:
    return Rule("exact", c.real_text, c.is_negative_zero, back=c.real_back)


def _real_as_double(_native: Native) -> Rule:
    return Rule("exact", c.float_text, c.is_negative_zero, back=c.real_of_double_back, way=w.FLOAT)


def _decimal_as_double(_native: Native) -> Rule:
    return Rule("nearest number, all digits kept up to 15", c.decimal_as_double, c.has_idle_zeros, back=c.plain)


def _moment(native: Native, *, zone: bool, name: str) -> Rule:
    back = c.moment_zone_back if zone else c.moment_back
    since = native.family == "timestamp"
    check = c.unix_moment if since else c.moment
    way = w.Way(w.Usual.UTC if zone else w.Usual.MOMENT, native.size, since)
    return Rule(name, partial(check, native.size, zone), back=back, way=way)


def _time(native: Native) -> Rule:
    return Rule(
        "exact", partial(c.time_of_day, native.size), back=c.fraction_back, way=w.Way(w.Usual.TIME, native.size)
    )


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
_RULES: tuple[RuleRow, ...] = (
    row(INTEGERS, "int decimal text", same("exact")),
    row(INTEGERS, "char", _char),
    row(INTEGERS, "bit", by("the number's bits", c.whole, wrap=_BIT, way=w.WHOLE)),
    row(INTEGERS, "year", by("exact", c.year)),
    row(INTEGERS, "double float", by("exact", c.whole_as_double, c.whole_back)),
    row("boolean", "int decimal double float", by("true as 1, false as 0", c.one_or_zero, c.boolean_back,
                                                  way=w.TRUTH)),
    row("boolean", "bit", by("true as 1, false as 0", c.one_or_zero, c.boolean_back, wrap=_BIT, way=w.TRUTH)),
    row("decimal", "decimal", by("exact number, the column's scale", c.finite, way=w.NUMBER)),
    row("decimal", "int", by("exact number, whole ones only", c.whole, way=w.WHOLE)),
    row("decimal", "double", _decimal_as_double),
    row("real", "float", _real),
    row("real", "double", _real_as_double),
    row("double", "double float", _float),
    row(FLOATS, "decimal", by("digits of the shortest text", c.finite_plain, c.plain, lossy=c.is_negative_zero)),
    row(FLOATS, "int", by("exact number, whole ones only", c.whole, lossy=c.is_negative_zero)),
    row("char", "char", _padded_char),
    row("bytes", "binary", lambda _n: Rule("exact", wrap=_UNHEX, back=c.bytes_back)),
    row("bytes", "text", same("hexadecimal text")),
    row("bytes", "bin", _binary),
    row("date", "date", by("exact", c.date, way=w.DATE)),
    row("date", "datetime timestamp", by("midnight", c.date, c.date_of_moment, way=w.DATE)),
    row("time", "time", _time),
    row("timestamp", "datetime", partial(_moment, zone=False, name="exact")),
    row("timestamp", "timestamp", partial(_moment, zone=False, name="taken as UTC")),
    row("timestamptz", "datetime timestamp", partial(_moment, zone=True, name="UTC, without the offset")),
    row("money", "decimal", by("number without sign and commas", c.money, c.money_back)),
    row("uuid", "uuid", same("exact")),
    row("uuid", "bin", lambda n: Rule("its 16 bytes", partial(c.uuid_bytes, n.size), wrap="UNHEX({})",
                                       back=c.uuid_of_bytes)),
    row("bits", "bit", _bits),
    row("geometry", "geometry", by("exact", c.geometry, c.geometry_back, wrap="UNHEX({})")),
    row("other", "inet4 inet6", lambda n: Rule("exact", partial(c.inet, n.family))),
    row("json", "json", by("blanks, order of keys and numbers as MySQL has them", j.kept, wrap=j.KEPT,
                           lossy=j.is_changed)),
    row(TEXTS, "json", by("text that the column prints as it is", j.only_kept, wrap=j.KEPT)),
    row(TEXTS | {"char", "boolean"}, "enum set", _member),
    row(TEXTS | {"char"}, "int", by("text of a whole number", c.whole_text)),
    row(TEXTS | {"char"}, "decimal", by("text of a number", c.number_text, c.plain)),
    row(TEXTS | {"char"}, "date", by("text of a date", c.date_text)),
    row(TEXTS | {"char"}, "datetime", lambda n: Rule("text of a timestamp", partial(c.moment_text, n.size),
                                                      back=c.moment_back)),
    row(TEXTS | {"char"}, "uuid", by("text of a UUID", c.uuid_text)),
    row(ALL_TEXT, "text", same("exact")),
    row(ALL_TEXT, "char", _char),
    row(TEXTS | {"char"} | ONLY_TEXT, "binary", same("UTF-8 bytes", c.utf8_back)),
    row(TEXTS | {"char"} | ONLY_TEXT, "bin", _utf8_fixed),
)  # fmt: skip


# --- column types ---------------------------------------------------------------------------------------------------

_FAMILIES = {
    "int": ("tinyint", "smallint", "mediumint", "int", "integer", "bigint"),
    "decimal": ("decimal", "numeric"),
    "text": ("varchar", "tinytext", "text", "mediumtext", "longtext"),
    "bin": ("binary",),
    "binary": ("varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
    "geometry": (
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
        "geomcollection",
    ),
}
_FAMILY = {name: family for family, names in _FAMILIES.items() for name in names}
_TYPE = re.compile(r"(\w+)(?:\(([^)]*)\))?", re.ASCII)
_MEMBER = re.compile(r"'((?:[^']|'')*)'")


def mysql_type(text: str) -> Native:
    """information_schema's COLUMN_TYPE, with whatever follows it."""
    found = _TYPE.match(text)
    if found is None:
        return Native(_RULES, "unknown", text)
    name = found[1].lower()
    if name in ("enum", "set"):
        members = tuple(m.replace("''", "'").replace("\\\\", "\\") for m in _MEMBER.findall(text))
        return Native(_RULES, name, text, members=members)
    # float(7,3) and double(7,3) round what they are given: a decimal by another name, and not an exact one.
    rounds = name in ("float", "double") and "," in (found[2] or "")
    family = "unknown" if rounds else _FAMILY.get(name, name)
    numbers = [int(n) for n in (found[2] or "").split(",") if n.strip().isdigit()]
    size = numbers[0] if numbers else 1 if name in ("bit", "char", "binary") else 0
    return Native(_RULES, family, text, size, numbers[1] if len(numbers) > 1 else 0)
