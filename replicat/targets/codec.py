"""Rows as COPY text (net/copytext.py) to rows as another target takes them, column by column.

Rule: a value that its column's rule refuses is told with table, column, value and key (RefusedError); a column without
a rule is told before any row (OperatorError). What a rule loses is counted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replicat.net.copytext import NULL, text_of
from replicat.target import RefusedError
from replicat.targets.types import Native, Rule, UnfitError, rule_for
from trails.errors import OperatorError
from trails.record import MISSING, Value

NO_NULL = "23502"
BAD_TEXT = "22021"
_NOT_UTF8 = "text that is not UTF-8"
_LONGEST_SHOWN = 60
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_UNESCAPED = {"t": "\t", "n": "\n", "r": "\r"}

Column = list[Any]


@dataclass(frozen=True, slots=True)
class Spec:
    """One column as the codec needs it. `required`: NULL is refused (a key; a column that would make up a value)."""

    name: str
    logical: str
    native: Native
    required: bool = False


class Codec:
    """Some columns of one table. `lost` counts values that a declared rule changed; whoever reads it empties it.

    `key`: indexes of the key columns among them. `passes`: text goes through as it is.
    """

    def __init__(self, table: str, specs: Sequence[Spec], key: Sequence[str] = ()) -> None:
        """`key`: names of the key columns, for messages."""
        self.table = table
        self.specs = tuple(specs)
        self.rules = tuple(_rule(table, spec) for spec in specs)
        self.lost = 0
        self.key = [i for i, spec in enumerate(specs) if spec.name in key]
        self.passes = not any(rule.convert or rule.lossy for rule in self.rules) and not any(
            spec.required for spec in specs
        )

    def columns(self, data: bytes) -> list[Column]:
        """COPY text as converted columns."""
        return self.convert(parse(self.table, data)) if data else [[] for _ in self.specs]

    def rows(self, data: bytes) -> list[tuple[Any, ...]]:
        """COPY text as converted rows."""
        return list(zip(*self.columns(data), strict=True))

    def row(self, values: Sequence[Value]) -> tuple[Any, ...]:
        """One row of values; none may be missing."""
        columns = [[text_of(_present(value))] for value in values]
        for (text,) in columns:
            if text is not None and not _encodes(text):
                raise RefusedError(self.table, _NOT_UTF8, BAD_TEXT)
        return tuple(column[0] for column in self.convert(columns))

    def convert(self, columns: list[Column]) -> list[Column]:
        """Columns of text as columns of what the target takes."""
        return [self._column(i, columns) for i in range(len(self.specs))]

    def _column(self, i: int, columns: list[Column]) -> Column:
        spec, rule, texts = self.specs[i], self.rules[i], columns[i]
        if spec.required and None in texts:
            self._refuse(i, texts.index(None), columns, UnfitError("NULL cannot stand in this column", NO_NULL))
        if rule.lossy is not None:
            lossy = rule.lossy
            self.lost += sum([1 for text in texts if text is not None and lossy(text)])
        convert = rule.convert
        if convert is None:
            return texts
        try:
            return [None if text is None else convert(text) for text in texts]
        except UnfitError:
            self._find(i, columns)
            raise

    def _find(self, i: int, columns: list[Column]) -> None:
        """Tell the first value that does not fit."""
        convert = self.rules[i].convert
        assert convert is not None
        for number, text in enumerate(columns[i]):
            try:
                if text is not None:
                    convert(text)
            except UnfitError as error:
                self._refuse(i, number, columns, error)

    def _refuse(self, i: int, number: int, columns: list[Column], error: UnfitError) -> None:
        spec, text = self.specs[i], columns[i][number]
        key = ", ".join(str(columns[k][number]) for k in self.key)
        of = f" of row ({key})" if key else ""
        value = "NULL" if text is None else _shown(text)
        column = f"column {spec.name} ({spec.native.text or 'no type'}){of}: {spec.logical} value"
        raise RefusedError(
            self.table, f"{column} {value}: {error}", error.sqlstate, shown=f"{column} does not fit: {error}"
        )


def parse(table: str, data: bytes) -> list[Column]:
    """COPY text as columns of text and None."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise RefusedError(
            table, f"{_NOT_UTF8}: {error.object[error.start :][:20]!r}", BAD_TEXT, shown=_NOT_UTF8
        ) from None
    rows = [line.split("\t") for line in text[:-1].split("\n")] if text else []
    columns = [list(column) for column in zip(*rows, strict=True)]
    if "\\" in text:
        columns = [[_field(field) for field in column] if _escaped(column) else column for column in columns]
    return columns


def _escaped(column: Sequence[str]) -> bool:
    return any("\\" in field for field in column)


def _field(text: str) -> str | None:
    if text == NULL:
        return None
    return _ESCAPE.sub(_unescape, text) if "\\" in text else text


def _unescape(found: re.Match[str]) -> str:
    return _UNESCAPED.get(found[1], found[1])


def _present(value: Value) -> Value:
    if value is MISSING:
        raise ValueError("a missing column has no value")
    return value


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(text: str) -> str:
    short = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"
    return repr(short)


def _rule(table: str, spec: Spec) -> Rule:
    rule = rule_for(spec.logical, spec.native)
    if rule is None:
        raise OperatorError(
            f"target table {table}, column {spec.name}: values of type {spec.logical} can't go into "
            f"{spec.native.text or 'a column without a type'}",
            hint="Give the column another type (docs/types.md lists what goes into what), or leave it out of the MAP",
        )
    return rule
