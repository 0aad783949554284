"""Rows of values to rows as a target takes them, column by column.

Rule: a value that its column's rule refuses is told with table, column, value and key (RefusedError); a column without
a rule is told before any row (OperatorError). What a rule loses is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from replicat.model.copytext import render, rows_of
from replicat.model.target import RefusedError
from replicat.targets.sql import kernel
from replicat.targets.sql.canonical import NO_VALUES, UnfitError
from replicat.targets.sql.types import Native, Rule, rule_for
from replicat.targets.sql.ways import KEPT, Way
from trails.errors import OperatorError

NO_NULL = "23502"
BAD_TEXT = "22021"
NO_VALUE = "22018"
_NOT_UTF8 = "text that is not UTF-8"
_LONGEST_SHOWN = 60
PIECE_BYTES = 1 << 20

Column = list[Any]


@dataclass(frozen=True, slots=True)
class Spec:
    """One column as the codec needs it. `required`: NULL is refused (a key; a column that would make up a value)."""

    name: str
    logical: str
    native: Native
    required: bool = False


class Codec:
    """Some columns of one table. `key`: indexes of the key columns among them."""

    def __init__(self, table: str, specs: Sequence[Spec], key: Sequence[str] = ()) -> None:
        """`key`: names of the key columns, for messages."""
        self.table = table
        self.specs = tuple(specs)
        self.rules = tuple(_rule(table, spec) for spec in specs)
        self._lost = 0
        self.key = [i for i, spec in enumerate(specs) if spec.name in key]
        ways = list(map(_way, self.rules))
        self._rest = [i for i, way in enumerate(ways) if way is None]  # columns that a kernel leaves as they are
        fits = kernel.Converter is not None and 0 < len(ways) <= kernel.WIDEST
        required = [spec.required for spec in specs]
        self._converter: Any = kernel.Converter([way or KEPT for way in ways], required) if fits else None

    def take_lost(self) -> int:
        """How many values declared rules have changed since it was asked last."""
        lost, self._lost = self._lost, 0
        if self._converter is not None:
            lost, self._converter.lost = lost + self._converter.lost, 0
        return lost

    def rows(self, data: bytes) -> list[tuple[Any, ...]]:
        """Lines of rows (copytext.py), converted."""
        return list(chain.from_iterable(self.pieces(data)))

    def pieces(self, data: bytes) -> Iterator[list[tuple[Any, ...]]]:
        """The same, some thousands at a time; a value is refused where its piece is asked for."""
        for piece, usual in self._cut(data):
            yield self._piece(piece, usual=usual)

    def lines(self, data: bytes) -> Iterator[bytes]:
        """The same as lines again, for a target that takes text alone."""
        for piece, usual in self._cut(data):
            found = self._converter.lines(piece) if usual and not self._rest else None
            yield render(self._piece(piece, usual=usual))[0] if found is None else found

    def _cut(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """Whole lines, and whether they may be usual."""
        at = 0
        while at < len(data) and self.specs:
            end = data.find(b"\n", at + PIECE_BYTES) + 1 or len(data)
            piece, at = data[at:end], end
            yield piece, self._converter is not None and _is_utf8(piece)

    def _piece(self, piece: bytes, *, usual: bool) -> list[tuple[Any, ...]]:
        found = self._usual(piece) if usual else None
        return self._converted(piece) if found is None else found

    def _usual(self, piece: bytes) -> list[tuple[Any, ...]] | None:
        """Rows of which the kernel converted what it can; None: something in them is not usual."""
        rows: list[tuple[Any, ...]] | None = self._converter.rows(piece)
        if not rows or not self._rest:
            return rows
        columns: list[Column] = list(map(list, zip(*rows, strict=True)))
        try:
            for i in self._rest:
                columns[i] = self._column(i, columns)
        except RefusedError:
            return None  # the plain code tells it, with the key as it came
        return list(zip(*columns, strict=True))

    def _converted(self, piece: bytes) -> list[tuple[Any, ...]]:
        columns: list[Column] = list(map(list, zip(*rows_of(piece), strict=True)))
        if not _is_utf8(piece):
            self._check_text(columns)
        return list(zip(*[self._column(i, columns) for i in range(len(self.specs))], strict=True))

    def _check_text(self, columns: list[Column]) -> None:
        for text in (value for column in columns for value in column if value is not None):
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
            self._lost += sum([1 for text in texts if text is not None and lossy(text)])
        convert = rule.convert
        if convert is None:
            return texts
        try:
            return [None if text is None else convert(text) for text in texts]
        except (UnfitError, *NO_VALUES):
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
            except NO_VALUES:
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


def _way(rule: Rule) -> Way | None:
    return KEPT if rule.convert is None and rule.lossy is None else rule.way


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _rule(table: str, spec: Spec) -> Rule:
    rule = rule_for(spec.logical, spec.native)
    if rule is None:
        raise without_rule(table, spec.name, spec.logical, spec.native.text)
    return rule
