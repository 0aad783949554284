"""What a value becomes in SQLite: a table of rules (replicat/targets/sql/types.py) by a column's affinity.

docs/types.md shows what comes of the rules.
"""

from __future__ import annotations

from functools import partial

from replicat.targets.sql import canonical as c
from replicat.targets.sql import ways as w
from replicat.targets.sql.types import ALL_TEXT, FLOATS, INTEGERS, Native, Rule, RuleRow, by, row, same
from replicat.targets.sqlite import numbers


def _number(native: Native) -> Rule:
    """Into INTEGER and NUMERIC, where SQLite itself turns text that looks like a number into one."""
    if native.strict:
        return Rule("exact number, whole ones only", numbers.int_of, c.has_idle_zeros, back=c.number_back)
    name = "number, all digits kept up to 15"
    return Rule(name, numbers.number_of, c.has_idle_zeros, back=c.number_back, way=w.DECIMAL)


def _float_in_number(native: Native) -> Rule:
    if native.strict:
        return Rule("exact number, whole ones only", numbers.int_of, c.is_negative_zero, back=c.number_back)
    return Rule("exact", numbers.float_of, c.is_negative_zero, back=c.double_back, way=w.DOUBLE)


def _float(_native: Native) -> Rule:
    return Rule("exact", numbers.float_of, c.is_negative_zero, back=c.double_back, way=w.DOUBLE)


def _real(_native: Native) -> Rule:
    return Rule("exact", numbers.float_of, c.is_negative_zero, back=c.real_of_double_back, way=w.DOUBLE)


_NEVER_NUMERIC = frozenset(
    {"date", "time", "timetz", "timestamp", "timestamptz", "interval", "money", "uuid", "array", "range", "composite"}
)
"""Whose canonical text never looks like a number."""


def _text_in_number(native: Native) -> Rule:
    return Rule("exact, text that looks like another number refused", partial(numbers.keeps_text, native.family))


def _literal(native: Native) -> Rule:
    """A value with its storage class, which the column's affinity must leave as it is."""
    convert = partial(numbers.literal_for, native.family)
    return Rule("exact, another storage class refused", convert, back=numbers.literal)


_RULES: tuple[RuleRow, ...] = (
    row("any", "any blob", by("exact", numbers.value_of, numbers.literal)),
    row("any", "text integer real numeric", _literal),
    row(INTEGERS, "integer numeric any blob", by("exact", int, way=w.INT)),
    row(INTEGERS, "real", by("exact", numbers.int_as_float, c.whole_back)),
    row("boolean", "integer numeric any blob", by("true as 1, false as 0", numbers.int_of_boolean, c.boolean_back,
                                                           way=w.BIT)),
    row("decimal", "integer numeric", _number),
    row("decimal", "real", lambda _n: Rule("nearest number, all digits kept up to 15", c.as_double,
                                            c.has_idle_zeros, back=c.number_back)),
    row("real", "real any blob", _real),
    row("double", "real any blob", _float),
    row(FLOATS, "integer numeric", _float_in_number),
    row("bytes", "blob any", by("exact", c.bytes_of, c.hex_back, way=w.BYTES)),
    row("bytes", "text integer real numeric", lambda n: Rule("hexadecimal text") if n.strict else
         Rule("exact", c.bytes_of, back=c.hex_back, way=w.BYTES)),
    row(ALL_TEXT, "text any", same("exact")),
    row(ALL_TEXT, "blob", lambda n: Rule("UTF-8 bytes", c.utf8_of, back=c.utf8_back) if n.strict else Rule("exact")),
    row(_NEVER_NUMERIC, "integer real numeric", same("exact")),
    row(ALL_TEXT - INTEGERS - FLOATS - {"boolean", "decimal"}, "integer real numeric", _text_in_number),
)  # fmt: skip


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
    return Native(_RULES, family, declared, strict=strict)
