"""Values that a column of the target could change without a word: the server is asked about them, as they are sent.

Rule: which columns these are follows from the layout (types.py). In a table whose columns have the source's own types
there are none, and none of its rows is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from replicat.model.copytext import fields_of
from replicat.model.target import Blob, Layout, RefusedError
from replicat.targets.postgres.types import AskedRule, keeps, postgres_type
from replicat.targets.sql.canonical import UnfitError
from replicat.targets.sql.codec import unfit, without_rule
from replicat.targets.sql.quoting import dotted
from replicat.targets.sql.staged_sql import StagedSql
from replicat.targets.sql.types import ALL_TEXT, Native, rule_for

Ask = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]
_PIECE = 20_000
_HIGH = re.compile(rb"[\x80-\xff]")
_KNOWN = ALL_TEXT | {"bytes", "any"}
# A domain's rounding is that of what it is made of; c, d: a type whose values have parts of other types.
_BENEATH = """
WITH RECURSIVE b(name, oid, typmod) AS (
    SELECT attname::text, atttypid, atttypmod FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT b.name, t.typbasetype, t.typtypmod FROM b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
)
SELECT b.name, format_type(b.oid, b.typmod), t.typtype::text,
    coalesce(e.typtype, t.typtype) IN ('c', 'd') OR EXISTS (SELECT FROM pg_type d WHERE d.oid = a.atttypid
        AND d.typtype = 'd')
FROM b JOIN pg_type t ON t.oid = b.oid LEFT JOIN pg_type e ON t.typcategory = 'A' AND e.oid = t.typelem
JOIN pg_attribute a ON a.attrelid = to_regclass(%s) AND a.attname = b.name
WHERE t.typtype <> 'd'
"""


@dataclass(frozen=True, slots=True)
class AskedColumn:
    """A column to ask about, `at` its place among those of some rows."""

    at: int
    name: str
    native: Native
    rule: AskedRule

    def has_sign(self, data: bytes) -> bool:
        """Whether one of its rule's signs stands anywhere in COPY text."""
        return not self.rule.signs or any(sign in data for sign in self.rule.signs)

    def has_shape(self, lines: Sequence[bytes]) -> bool:
        """Whether a value in these lines of COPY text has the shape that its rule is about.

        To cut the value out of each line takes a quarter of the time of a regular expression that finds its place.
        """
        shape, at = self.rule.shape, self.at
        return not shape or any(
            re.search(shape, b"\n".join([line.split(b"\t", at + 1)[at] for line in lines[i : i + _PIECE]]))
            for i in range(0, len(lines), _PIECE)
        )

    def about(self, value: str, test: str) -> str:
        """A condition of the rule's, on a value's text."""
        return test.replace("$v", value).replace("$t", f"{value}::{self.native.text}".replace("%", "%%"))


class AskedValues:
    """The columns of one connection's layouts that must be asked about, and the asking."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._rules: dict[Layout, dict[str, tuple[Native, AskedRule]]] = {}
        self._places: dict[tuple[int, tuple[str, ...]], list[AskedColumn]] = {}

    def forget(self) -> None:
        """Tables may have changed."""
        self._rules.clear()
        self._places.clear()

    def rules(self, layout: Layout) -> dict[str, tuple[Native, AskedRule]]:
        """What becomes of the values of columns that are not the source's own; OperatorError where none can go in."""
        found = self._rules.get(layout)
        if found is None:
            found = self._rules[layout] = self._made(layout)
        return found

    def _made(self, layout: Layout) -> dict[str, tuple[Native, AskedRule]]:
        natives = layout.natives or ("",) * len(layout.columns)
        beneath: dict[str, tuple[Any, ...]] | None = None
        made = {}
        for name, logical, native, kind in zip(layout.columns, _logicals(layout), natives, layout.types, strict=True):
            if keeps(native, kind):
                continue
            found = postgres_type(kind)
            if found.family == "other":
                if beneath is None:
                    place = dotted(layout.schema, layout.name)
                    beneath = {column: tuple(facts) for column, *facts in self._ask(_BENEATH, [place] * 2)}
                base, how, parts = beneath.get(name, (kind, "b", False))
                if native == kind and not parts:
                    continue
                found = postgres_type(base, enum=how == "e")
            rule = rule_for(logical if logical in _KNOWN else "text", found)
            if rule is None:
                raise without_rule(layout.full_name, name, logical, kind)
            assert isinstance(rule, AskedRule)
            made[name] = found, rule
        return made

    def check(self, sql: StagedSql, columns: Sequence[str], blob: Blob) -> int:
        """How many values of the rows lose something by a declared rule; RefusedError if one does not fit."""
        place = sql.number, tuple(columns)
        found = self._places.get(place)
        if found is None:
            found = self._places[place] = self._columns(sql, columns)
        if not found or not blob.rows:
            return 0
        data = blob.read()
        found = [column for column in found if column.has_sign(data)]
        if not found:
            return 0
        lines = data.split(b"\n")[:-1]
        found = [column for column in found if column.has_shape(lines)]
        if not found:
            return 0
        names = _named(sql, columns)
        return sum(self._piece(sql.layout, names, found, lines[i : i + _PIECE]) for i in range(0, len(lines), _PIECE))

    def _columns(self, sql: StagedSql, columns: Sequence[str]) -> list[AskedColumn]:
        rules = {name: known for name, known in self.rules(sql.layout).items() if known[1].asks}
        return [AskedColumn(i, name, *rules[name]) for i, name in enumerate(_named(sql, columns)) if name in rules]

    def _piece(self, layout: Layout, names: Sequence[str], asked: Sequence[AskedColumn], lines: Sequence[bytes]) -> int:
        rows = _rows(lines)
        texts = [[_value(row[column.at]) for row in rows] for column in asked]
        for column, values in zip(asked, texts, strict=True):
            for number, text in enumerate(values if column.rule.convert else ()):
                try:
                    if column.rule.convert and text is not None:
                        column.rule.convert(text)
                except UnfitError as unfitting:
                    raise _unfit(layout, names, lines[number], column, unfitting) from None
        (answer,) = self._ask(_question(asked), list(map(_array, texts)))
        for column, first in zip(asked, answer, strict=False):
            if first is not None:
                why = UnfitError(column.rule.why, column.rule.sqlstate)
                raise _unfit(layout, names, lines[first - 1], column, why)
        return sum(answer[len(asked) :])


def _logicals(layout: Layout) -> tuple[str, ...]:
    return layout.logical or ("text",) * len(layout.columns)


def _named(sql: StagedSql, columns: Sequence[str]) -> list[str]:
    """The target's columns that those of a staging table stand for."""
    aliases = dict(zip(sql.bases, sql.layout.key, strict=True))
    aliases |= {sql.was(i): name for i, name in enumerate(sql.layout.columns)}
    return [aliases.get(name, name) for name in columns]


def _unfit(layout: Layout, names: Sequence[str], line: bytes, column: AskedColumn, error: UnfitError) -> RefusedError:
    values = fields_of(line)
    known = dict(zip(names, values, strict=True))
    logical = dict(zip(layout.columns, _logicals(layout), strict=True))[column.name]
    key = [known[name] for name in layout.key if name in known]
    return unfit(layout.full_name, column.name, column.native.text, logical, key, values[column.at], error)


def _question(asked: Sequence[AskedColumn]) -> str:
    """Of each column the first row that does not fit, and then of each how many values lose something."""
    fits = [column.about(f"s.c{n}", column.rule.fits) for n, column in enumerate(asked)]
    counted = [column.about(f"s.c{n}", column.rule.counted) for n, column in enumerate(asked)]
    wanted = [f"min(s.n) FILTER (WHERE NOT ({test}))" if test else "NULL" for test in fits]
    wanted += [f"count(*) FILTER (WHERE {test})" if test else "0" for test in counted]
    names = ", ".join(f"c{n}" for n in range(len(asked)))
    arrays = ", ".join(["%s::text[]"] * len(asked))
    return f"SELECT {', '.join(wanted)} FROM unnest({arrays}) WITH ORDINALITY AS s({names}, n)"


def _rows(lines: Sequence[bytes]) -> list[list[str]]:
    """The fields of COPY text. Of text that is not UTF-8, which only such a server takes, each byte is a character."""
    try:
        return [line.split("\t") for line in b"\n".join(lines).decode().split("\n")]
    except UnicodeDecodeError:
        return [[_decoded(field) for field in line.split(b"\t")] for line in lines]


def _decoded(field: bytes) -> str:
    try:
        return field.decode()
    except UnicodeDecodeError:
        return _HIGH.sub(b"?", field).decode()


def _value(field: str) -> str | None:
    return fields_of(field.encode())[0] if "\\" in field else field


def _array(values: Sequence[str | None]) -> str:
    """A text[] in PostgreSQL's own form; the driver takes three times as long."""
    try:
        text = '","'.join(values)  # type: ignore[arg-type]  # a NULL is what fails here
    except TypeError:
        text = '"'
    if "\\" not in text and text.count('"') == 2 * (len(values) - 1):
        return f'{{"{text}"}}'
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: str | None) -> str:
    return "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
