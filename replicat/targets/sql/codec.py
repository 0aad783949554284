"""Rows of values to rows as a target takes them, column by column.

Rule: a value that its column's rule refuses is told with table, column, value and key (RefusedError); a column without
a rule is told before any row (OperatorError). What a rule loses is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from replicat.model.forms import columns_of, text_of
from replicat.model.target import RefusedError
from replicat.targets.sql.canonical import UnfitError
from replicat.targets.sql.types import Native, Rule, rule_for
from trails.errors import OperatorError

NO_NULL = "23502"
BAD_TEXT = "22021"
NO_VALUE = "22018"
_NOT_UTF8 = "text that is not UTF-8"
_LONGEST_SHOWN = 60
PIECE_ROWS = 4000
_SURROGATE = b"\xed"
"""What no UTF-8 has begins with it, among other things."""

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

    `key`: indexes of the key columns among them.
    """

    def __init__(self, table: str, specs: Sequence[Spec], key: Sequence[str] = ()) -> None:
        """`key`: names of the key columns, for messages."""
        self.table = table
        self.specs = tuple(specs)
        self.rules = tuple(_rule(table, spec) for spec in specs)
        self.lost = 0
        self.key = [i for i, spec in enumerate(specs) if spec.name in key]

    def rows(self, data: bytes) -> list[tuple[Any, ...]]:
        """Rows of the form ROWS, converted."""
        return list(chain.from_iterable(self.pieces(data)))

    def pieces(self, data: bytes) -> Iterator[list[tuple[Any, ...]]]:
        """The same, some thousands at a time; a value is refused where its piece is asked for."""
        columns = columns_of(data)
        if not columns:
            return
        if _SURROGATE in data:
            self._check_text(columns)
        for start in range(0, len(columns[0]), PIECE_ROWS):
            yield self._converted([column[start : start + PIECE_ROWS] for column in columns])

    def _converted(self, columns: list[Column]) -> list[tuple[Any, ...]]:
        for i, spec in enumerate(self.specs):
            if spec.logical == "bytes":
                columns[i] = list(map(text_of, columns[i]))
        return list(zip(*[self._column(i, columns) for i in range(len(self.specs))], strict=True))

    def _check_text(self, columns: list[Column]) -> None:
        for text in (value for column in columns for value in column if isinstance(value, str)):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                what = f"{_NOT_UTF8}: {text[error.start :][:20]!r}"
                raise RefusedError(self.table, what, BAD_TEXT, shown=_NOT_UTF8) from None

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
        except (UnfitError, ValueError):
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
            except ValueError:
                self._refuse(i, number, columns, UnfitError("it is no value of its type", NO_VALUE))

    def _refuse(self, i: int, number: int, columns: list[Column], error: UnfitError) -> None:
        spec, key = self.specs[i], [columns[k][number] for k in self.key]
        raise unfit(self.table, spec.name, spec.native.text, spec.logical, key, columns[i][number], error)


def unfit(
    table: str, name: str, kind: str, logical: str, key: Sequence[Any], text: str | None, error: UnfitError
) -> RefusedError:
    """The refusal of a value of a column of type `kind`, in the row with this key."""
    of = f" of row ({', '.join(map(str, key))})" if key else ""
    value = "NULL" if text is None else _shown(text)
    column = f"column {name} ({kind or 'no type'}){of}: {logical} value"
    return RefusedError(table, f"{column} {value}: {error}", error.sqlstate, shown=f"{column} does not fit: {error}")


def without_rule(table: str, name: str, logical: str, kind: str) -> OperatorError:
    """No value of a logical type can go into a column of type `kind`."""
    return OperatorError(
        f"target table {table}, column {name}: values of type {logical} can't go into "
        f"{kind or 'a column without a type'}",
        hint="Give the column another type (docs/types.md lists what goes into what), or leave it out of the MAP",
    )


def _shown(text: str) -> str:
    short = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"
    return repr(short)


def _rule(table: str, spec: Spec) -> Rule:
    rule = rule_for(spec.logical, spec.native)
    if rule is None:
        raise without_rule(table, spec.name, spec.logical, spec.native.text)
    return rule
