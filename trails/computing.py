"""What FILTER of a TABLE computes of one row: GoldenGate's @RANGE, @COMPUTE and functions that measure a text.

    Call (name, terms)      @STRFIND (phone, '-')         a number
    Arithmetic (op, ...)    @COMPUTE (price * amount)     a number, exact to DIGITS digits; there is no division
    KeyPart (part, of)      @RANGE (1, 3)                 1 for the rows of this part, 0 for all others

Rule: a function gives what it gives in a MAP of a Replicat (docs/functions.md), but for @RANGE, whose hash is one of
its own: it must give the same in every process, for any release. With NULL the number is unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import partial
from typing import Any, Final

from trails.naming import ColumnName
from trails.record import Image, TableDef
from trails.rowvalues import NUMBERS, UnaskableError, index_of, number_of, text_of

DIGITS: Final = 10_000
_CONTEXT: Final = Context(prec=DIGITS, traps=[])
_NUMERIC: Final = "A column of numbers, or a number, stands there"


@dataclass(frozen=True, slots=True)
class Call:
    """A function of texts; a whole number among its terms is one of the places where it takes one."""

    name: str
    terms: tuple[ColumnName | str | int, ...]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left op right` of columns and numbers."""

    op: str
    left: Number
    right: Number


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Part `part` of `parts` of all rows, by a hash of the columns; of the key where none is named."""

    part: int
    parts: int
    columns: tuple[ColumnName, ...] = ()


Number = ColumnName | Decimal | Arithmetic
Computed = Call | Arithmetic | KeyPart | ColumnName | Decimal
Value = Callable[[Image], Decimal | None]


def _compared(left: str, right: str) -> int:
    return (left > right) - (left < right)


def _found(text: str, part: str, begin: int = 1) -> int:
    return text.find(part, begin - 1) + 1 if begin > 0 else 0


@dataclass(frozen=True, slots=True)
class TextFunction:
    """`texts`: how many texts it takes; `numbers`: the least and most whole numbers behind them."""

    texts: int
    numbers: tuple[int, int]
    of: Callable[..., int]


FUNCTIONS: Final = {
    "STRCMP": TextFunction(2, (0, 0), _compared),
    "STREQ": TextFunction(2, (0, 0), lambda left, right: int(left == right)),
    "STRFIND": TextFunction(2, (0, 1), _found),
    "STRLEN": TextFunction(1, (0, 0), len),
    "STRNCMP": TextFunction(
        2, (1, 1), lambda left, right, most: _compared(left[: max(0, most)], right[: max(0, most)])
    ),
}
TAKEN: Final = ", ".join(f"@{name}" for name in sorted([*FUNCTIONS, "COMPUTE", "RANGE"]))


def columns_of(computed: Computed) -> Iterator[ColumnName]:
    """The columns that it reads; those of a key that nobody names are not among them."""
    match computed:
        case ColumnName():
            yield computed
        case Call():
            yield from (term for term in computed.terms if isinstance(term, ColumnName))
        case Arithmetic():
            yield from columns_of(computed.left)
            yield from columns_of(computed.right)
        case KeyPart():
            yield from computed.columns


def bound(computed: Computed, table: TableDef) -> Value:
    """It as a question to images of a table. Raises UnaskableError.

    Where a definition has no types yet (START looks at names and key), types are not asked.
    """
    match computed:
        case Decimal():
            return lambda _image: computed
        case ColumnName():
            return _column(computed, table)
        case Arithmetic():
            return _arithmetic(computed, table)
        case KeyPart():
            return _key_part(computed, table)
    return _call(computed, table)


def _column(column: ColumnName, table: TableDef) -> Value:
    at = index_of(column, table)
    kind = table.columns[at].type
    if kind and kind not in NUMBERS:
        raise UnaskableError(f"{column} is of type {kind}, which is no number", _NUMERIC)

    def value(image: Image) -> Decimal | None:
        text = text_of(image, at)
        return None if text is None else number_of(text)

    return value


def _arithmetic(computed: Arithmetic, table: TableDef) -> Value:
    left, right = bound(computed.left, table), bound(computed.right, table)
    do = {"+": _CONTEXT.add, "-": _CONTEXT.subtract, "*": _CONTEXT.multiply}[computed.op]

    def value(image: Image) -> Decimal | None:
        one, other = left(image), right(image)
        return None if one is None or other is None else do(one, other)

    return value


def _call(call: Call, table: TableDef) -> Value:
    function = FUNCTIONS[call.name]
    takes: list[Callable[[Image], Any]] = []
    for term in call.terms:
        if isinstance(term, ColumnName):
            at = index_of(term, table)
            if table.columns[at].type == "bytes":
                raise UnaskableError(f"{term} is of type bytes, which is no text", "A column of text stands there")
            takes.append(partial(_text, at))
        else:
            takes.append(partial(_constant, term))

    def value(image: Image) -> Decimal | None:
        given = [take(image) for take in takes]
        if None in given:
            return Decimal(0) if call.name == "STREQ" else None  # as in a MAP
        return Decimal(function.of(*given))

    return value


def _text(at: int, image: Image) -> str | None:
    return text_of(image, at)


def _constant(term: str | int, _image: Image) -> str | int:
    return term


def _key_part(computed: KeyPart, table: TableDef) -> Value:
    if not computed.columns and not table.key:
        raise UnaskableError("the table has no key to hash", "Name columns: @RANGE (1, 3, column)")
    at = [index_of(column, table) for column in computed.columns] or list(table.key)

    def value(image: Image) -> Decimal | None:
        return Decimal(part_of([text_of(image, i) for i in at], computed.parts) == computed.part)

    return value


def part_of(texts: Sequence[str | None], parts: int) -> int:
    """Which part, from 1, has rows with these values. Never to be changed: processes share rows out by it."""
    made = hashlib.blake2b(digest_size=8)
    for text in texts:
        data = b"" if text is None else text.encode("utf-8", "surrogateescape")
        made.update((b"0" if text is None else b"1") + len(data).to_bytes(8, "big") + data)
    return int.from_bytes(made.digest(), "big") % parts + 1
