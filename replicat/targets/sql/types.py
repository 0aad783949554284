"""What a value becomes in a target: rules by logical type and column type. Each database has its table of them.

Rule: a value arrives exact, or by the rule that the table names (and is counted where that loses something), or is
refused with table, column and key. What no row of the table covers cannot be written at all: that is told before the
first row. Never a silent NULL, zero, epoch, `?`, rounding or cut. docs/types.md shows what comes of it.

Each rule takes canonical text (docs/values.md) and gives what the target is sent; None (NULL) never reaches a rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from replicat.targets.sql.ways import Way

Convert = Callable[[str], Any]
Back = Callable[[Any], str]
Lossy = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Native:
    """A target column's type, taken apart. `family`: what the rules go by; `size`: length, precision or width.

    `rules`: those of the database; a type means something only there.
    """

    rules: tuple[RuleRow, ...] = field(repr=False, compare=False)
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
    `way`: the name of such a conversion of usual texts, where there is one.
    """

    name: str
    convert: Convert | None = None
    lossy: Lossy | None = None
    wrap: str = "{}"
    back: Back = str
    way: Way | None = None


Maker = Callable[[Native], Rule]
RuleRow = tuple[frozenset[str], frozenset[str], Maker]
"""Logical types, families of column types, and the rule for any pair of them."""


def rule_for(logical: str, native: Native) -> Rule | None:
    """The rule for a logical type and a column; None if there is none."""
    for logicals, families, maker in native.rules:
        if logical in logicals and native.family in families:
            return maker(native)
    return None


INTEGERS = frozenset({"smallint", "integer", "bigint"})
FLOATS = frozenset({"real", "double"})
TEXTS = frozenset({"text", "json", "xml", "enum", "token"})
ONLY_TEXT = frozenset(
    {"interval", "timetz", "money", "array", "range", "composite", "other", "uuid", "bits", "geometry"}
)
ALL_TEXT = (
    INTEGERS | FLOATS | TEXTS | ONLY_TEXT
    | {"boolean", "decimal", "char", "date", "time", "timestamp", "timestamptz"}
)  # fmt: skip


def same(name: str, back: Back = str) -> Maker:
    """The canonical text is what the target takes; the target itself refuses what does not fit."""
    return lambda _native: Rule(name, back=back)


def by(
    name: str, convert: Convert, back: Back = str, wrap: str = "{}", lossy: Lossy | None = None, way: Way | None = None
) -> Maker:
    """The same rule for every column."""
    return lambda _native: Rule(name, convert, lossy, wrap, back, way)


def row(logicals: frozenset[str] | set[str] | str, families: str, maker: Maker) -> RuleRow:
    """A row of a table of rules."""
    named = frozenset(logicals.split()) if isinstance(logicals, str) else frozenset(logicals)
    return named, frozenset(families.split()), maker
