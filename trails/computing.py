"""What FILTER of a TABLE computes of one row: GoldenGate's functions, and arithmetic, bound to a table.

    BoundTerm     a term as a question to images of a table: its value (a number or a text), and its value as text

Rule: a function gives what it gives in a MAP of a Replicat (docs/functions.md), but for @RANGE, whose hash is one of
its own: it must give the same in every process, for any release. With NULL the value is unknown. What a text must be
and is not (a number, a date) is refused with its row: nothing is guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

from trails.dateforms import INPUT, OUTPUT, difference, made, split
from trails.naming import ColumnName
from trails.record import MISSING, Image, TableDef
from trails.rowvalues import (
    NUMBERS,
    UnaskableError,
    UnknownError,
    UnreadableError,
    in_order,
    index_of,
    number_of,
    text_of,
)
from trails.terms import OPERATORS, Arithmetic, Call, Condition, KeyPart, Term

DIGITS: Final = 10_000
QUOTIENT: Final = 38
LONGEST: Final = 1_000_000
"""So many characters may a text be filled up to, or grow to: rows may say by how much, and their writer be hostile."""
_CONTEXT: Final = Context(prec=DIGITS, traps=[])
_DIVISION: Final = Context(prec=QUOTIENT, rounding=ROUND_HALF_UP, traps=[])
_NUMERIC: Final = "A column of numbers, or a number, stands there"
NUMBER, TEXT = "number", "text"

Test = Callable[[Image], bool | None]
Ask = Callable[[Condition, TableDef], Test]
"""How a condition is bound: conditions.py's, which builds on this file."""


@dataclass(frozen=True, slots=True)
class BoundTerm:
    """`kind`: NUMBER, TEXT, or empty where a definition has no types yet. Each gives None for NULL."""

    kind: str
    value: Callable[[Image], Any]
    text: Callable[[Image], str | None]


# --- functions of values ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowFunction:
    """`takes`: a letter for each argument; `more`: what may come behind; `again`: what may come any number of times.

    t a text, n a whole number, b bytes or a text, o and i a format of @DATE for its result and for what it reads,
    u DD or SS, w how @STRNUM fills up. `null`: what it gives where one of them is NULL.
    """

    takes: str
    of: Callable[..., Any]
    kind: str = TEXT
    more: str = ""
    again: str = ""
    null: Decimal | None = None


WAYS: Final = ("LEFT", "LEFTSPACE", "RIGHT", "RIGHTZERO")
UNITS: Final = ("DD", "SS")


def _order(left: str, right: str) -> int:
    return (left > right) - (left < right)


def _found(text: str, part: str, begin: int = 1) -> int:
    return text.find(part, begin - 1) + 1 if begin > 0 else 0


def _extracted(text: str, first: int, last: int) -> str:
    begin = first - 1 if first > 0 else len(text) + first if first < 0 else 0
    return text[max(begin, 0) : max(begin + last - first + 1, 0)]


def _cut(*given: Any) -> str:
    return "".join(text[: max(0, most)] for text, most in zip(given[::2], given[1::2], strict=True))


def _replaced(text: str, *pairs: str) -> str:
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        grows = text.count(old) * (len(new) - len(old)) if old else 0
        if grows > 0 and len(text) + grows > LONGEST:
            raise ValueError(grows)
        text = text.replace(old, new) if old else text
    return text


def _filled(text: str, way: str, length: int = 0) -> str:
    if length > LONGEST:
        raise ValueError(length)
    if way == "LEFTSPACE":
        return text.ljust(length)
    if way == "RIGHT":
        return text.rjust(length)
    if way == "RIGHTZERO":
        return text.zfill(length) if text.startswith("-") else text.rjust(length, "0")
    return text


def _number_in(text: str) -> Decimal:
    found = number_of(text.strip(" "))
    if not found.is_finite():
        raise ValueError(text)
    _, digits, exponent = found.normalize(_CONTEXT).as_tuple()
    if len(digits) + int(exponent) > 20 or -int(exponent) > 18:
        raise ValueError(text)
    return found


def _big_endian(data: bytes) -> int | None:
    if len(data) > 8:
        raise ValueError(data)
    return int.from_bytes(data, "big", signed=len(data) == 8) if data else None


def _date(output: Sequence[str], *given: Any) -> str:
    return made(output, list(zip(given[::2], given[1::2], strict=True)))


FUNCTIONS: Final = {
    "BINTOHEX": RowFunction("b", lambda data: data.hex().upper()),
    "DATE": RowFunction("oit", _date, again="it"),
    "DATEDIFF": RowFunction("utt", difference, NUMBER),
    "NUMBIN": RowFunction("b", _big_endian, NUMBER),
    "NUMSTR": RowFunction("t", _number_in, NUMBER),
    "STRCAT": RowFunction("t", lambda *texts: "".join(texts), again="t"),
    "STRCMP": RowFunction("tt", _order, NUMBER),
    "STREQ": RowFunction("tt", lambda left, right: int(left == right), NUMBER, null=Decimal(0)),
    "STREXT": RowFunction("tnn", _extracted),
    "STRFIND": RowFunction("tt", _found, NUMBER, more="n"),
    "STRLEN": RowFunction("t", len, NUMBER),
    "STRLTRIM": RowFunction("t", lambda text: text.lstrip(" ")),
    "STRNCAT": RowFunction("tn", _cut, again="tn"),
    "STRNCMP": RowFunction(
        "ttn", lambda left, right, most: _order(left[: max(0, most)], right[: max(0, most)]), NUMBER
    ),
    "STRNUM": RowFunction("tw", _filled, more="n"),
    "STRRTRIM": RowFunction("t", lambda text: text.rstrip(" ")),
    "STRSUB": RowFunction("ttt", _replaced, again="tt"),
    "STRTRIM": RowFunction("t", lambda text: text.strip(" ")),
    "STRUP": RowFunction("t", str.upper),
}  # fmt: skip
COLUMN_TESTS: Final[dict[str, Callable[[Any], bool]]] = {
    "PRESENT": lambda value: value is not MISSING and value is not None,
    "MISSING": lambda value: value is MISSING,
    "NULL": lambda value: value is None,
    "INVALID": lambda _value: False,
}


# --- terms ------------------------------------------------------------------------------------------------------------


def bound(term: Term, table: TableDef, ask: Ask) -> BoundTerm:
    """A term as a question to images of a table. Raises UnaskableError.

    Where a definition has no types yet (START looks at names and key), types are not asked.
    """
    match term:
        case Decimal():
            return BoundTerm(NUMBER, lambda _image: term, lambda _image: plain(term))
        case str():
            return BoundTerm(TEXT, lambda _image: term, lambda _image: term)
        case ColumnName():
            return _column(term, table)
        case Arithmetic():
            return _arithmetic(term, table, ask)
        case KeyPart():
            return _computed(NUMBER, _key_part(term, table))
    if term.name in FUNCTIONS:
        return _call(term, table, ask)
    return _CHOICES[term.name](term, table, ask)


def plain(number: Decimal | int) -> str:
    """A number's text: digits, without an exponent or zeros behind the last one of the fraction."""
    found = Decimal(number)
    return f"{found.normalize(_CONTEXT):f}" if found.is_finite() else str(found)


def shown(term: Term) -> str:
    """For messages."""
    match term:
        case str():
            return repr(term[:40])
        case Call():
            return f"@{term.name} (...)"
        case KeyPart():
            return "@RANGE (...)"
        case Arithmetic():
            return "@COMPUTE (...)"
    return str(term)


def _computed(kind: str, value: Callable[[Image], Any]) -> BoundTerm:
    def text(image: Image) -> str | None:
        found = value(image)
        return found if found is None or isinstance(found, str) else plain(found)

    return BoundTerm(kind, value, text)


def _column(column: ColumnName, table: TableDef) -> BoundTerm:
    at = index_of(column, table)
    kind = table.columns[at].type
    text = partial(_text, at)
    if kind in NUMBERS:

        def value(image: Image) -> Decimal | None:
            found = text_of(image, at)
            return None if found is None else number_of(found)

        return BoundTerm(NUMBER, value, text)
    if kind == "char":
        return BoundTerm(TEXT, lambda image: None if (found := text(image)) is None else found.rstrip(" "), text)
    if kind in ("text", "enum", ""):
        return BoundTerm(TEXT if kind else "", text, text)
    raise UnaskableError(
        f"{column} is of type {kind}, which is no number and no text", f"Make it a text: @STRCAT ({column}, '')"
    )


def _number(term: Term, table: TableDef, ask: Ask) -> Callable[[Image], Decimal | None]:
    if isinstance(term, ColumnName) and table.columns[index_of(term, table)].type not in (*NUMBERS, ""):
        kind = table.columns[index_of(term, table)].type
        raise UnaskableError(f"{term} is of type {kind}, which is no number", _NUMERIC)
    found = bound(term, table, ask)
    if found.kind == TEXT:
        raise UnaskableError(f"{shown(term)} is no number", _NUMERIC)
    return found.value


def _arithmetic(term: Arithmetic, table: TableDef, ask: Ask) -> BoundTerm:
    left, right = _number(term.left, table, ask), _number(term.right, table, ask)
    do = {"+": _CONTEXT.add, "-": _CONTEXT.subtract, "*": _CONTEXT.multiply, "/": _quotient}[term.op]

    def value(image: Image) -> Decimal | None:
        one, other = left(image), right(image)
        return None if one is None or other is None else do(one, other)

    return _computed(NUMBER, value)


def _quotient(one: Decimal, other: Decimal) -> Decimal | None:
    return None if not other else _DIVISION.divide(one, other)


# --- calls ------------------------------------------------------------------------------------------------------------


def _call(call: Call, table: TableDef, ask: Ask) -> BoundTerm:
    function = FUNCTIONS[call.name]
    letters = function.takes + function.more + function.again * len(call.parts)
    takes = [_argument(letter, part, table, ask) for letter, part in zip(letters, call.parts, strict=False)]

    def value(image: Image) -> Any:
        given = [take(image) for take in takes]
        if None in given:
            return function.null
        try:
            found = function.of(*given)
        except (ValueError, InvalidOperation):
            raise UnreadableError(f"@{call.name}") from None
        return Decimal(found) if isinstance(found, int) else found

    return _computed(function.kind, value)


def _argument(letter: str, part: Any, table: TableDef, ask: Ask) -> Callable[[Image], Any]:
    if letter in "oi":
        form = split(part, OUTPUT if letter == "o" else INPUT)
        return lambda _image: form
    if letter in "uw":
        return lambda _image: part
    if letter == "n":
        number = _number(part, table, ask)
        return lambda image: _whole(number(image))
    return (_text_term if letter == "t" else _bytes_term)(part, table, ask)


def _whole(number: Decimal | None) -> int | None:
    return None if number is None else int(number) if number.is_finite() else 0


def _text_term(term: Term, table: TableDef, ask: Ask) -> Callable[[Image], str | None]:
    """Any value's text; a column's is the source's own."""
    if not isinstance(term, ColumnName):
        return bound(term, table, ask).text
    at = index_of(term, table)
    if table.columns[at].type == "bytes":
        raise UnaskableError(f"{term} is of type bytes, which is no text", "A column of text stands there")
    return partial(_text, at)


def _bytes_term(term: Term, table: TableDef, ask: Ask) -> Callable[[Image], bytes | None]:
    at = index_of(term, table) if isinstance(term, ColumnName) else -1
    text = partial(_text, at) if at >= 0 else bound(term, table, ask).text

    def data(image: Image) -> bytes | None:
        if at >= 0 and isinstance(raw := image[at], bytes):
            return raw
        found = text(image)
        return None if found is None else found.encode("utf-8", "surrogateescape")

    return data


def _text(at: int, image: Image) -> str | None:
    return text_of(image, at)


# --- choices ----------------------------------------------------------------------------------------------------------


def compared(left: Term, op: str, right: Term, table: TableDef, ask: Ask) -> Test:
    """`left op right`, two numbers or two texts."""
    return _tested(left, bound(left, table, ask), op, right, bound(right, table, ask))


def _tested(left: Term, one: BoundTerm, op: str, right: Term, other: BoundTerm) -> Test:
    if one.kind and other.kind and one.kind != other.kind:
        raise UnaskableError(
            f"{shown(left)} is a {one.kind}, and {shown(right)} is a {other.kind}", "Compare two numbers or two texts"
        )
    compare, number = OPERATORS[op], NUMBER in (one.kind, other.kind)

    def test(image: Image) -> bool | None:
        first, second = one.value(image), other.value(image)
        if first is None or second is None:
            return None
        return compare(in_order(first), in_order(second)) if number else compare(first, second)

    return test


def _chosen(pairs: Sequence[tuple[Test, BoundTerm]], otherwise: BoundTerm | None) -> BoundTerm:
    """The result behind the first test that is true. One text among the results makes all of them texts."""
    results = [result for _, result in pairs] + ([otherwise] if otherwise else [])
    kinds = {result.kind for result in results}
    kind = "" if "" in kinds else TEXT if TEXT in kinds else NUMBER

    def pick(image: Image) -> BoundTerm | None:
        return next((result for test, result in pairs if test(image) is True), otherwise)

    def value(image: Image) -> Any:
        found = pick(image)
        return None if found is None else found.value(image) if kind == NUMBER else found.text(image)

    def text(image: Image) -> str | None:
        found = pick(image)
        return None if found is None else found.text(image)

    return BoundTerm(kind, value, text)


def _if(call: Call, table: TableDef, ask: Ask) -> BoundTerm:
    test, *results = call.parts
    first, second = (bound(result, table, ask) for result in results)  # type: ignore[arg-type]
    return _chosen([(ask(test, table), first)], second)  # type: ignore[arg-type]


def _eval(call: Call, table: TableDef, ask: Ask) -> BoundTerm:
    pairs, last = _pairs(call.parts)
    return _chosen(
        [(ask(test, table), bound(result, table, ask)) for test, result in pairs],
        bound(last, table, ask) if last is not None else None,
    )


def _case(call: Call, table: TableDef, ask: Ask) -> BoundTerm:
    subject: Any = call.parts[0]
    one = bound(subject, table, ask)
    pairs, last = _pairs(call.parts[1:])
    return _chosen(
        [
            (_tested(subject, one, "=", test, bound(test, table, ask)), bound(result, table, ask))
            for test, result in pairs
        ],
        bound(last, table, ask) if last is not None else None,
    )


def _pairs(parts: Sequence[Any]) -> tuple[Iterator[tuple[Any, Any]], Any]:
    """By twos, and the one that is left."""
    return zip(parts[::2], parts[1::2], strict=False), parts[-1] if len(parts) % 2 else None


def _value_one_of(call: Call, table: TableDef, ask: Ask) -> BoundTerm:
    values = [bound(part, table, ask) for part in call.parts]  # type: ignore[arg-type]
    return _chosen([(partial(_is_there, value), value) for value in values], None)


def _is_there(value: BoundTerm, image: Image) -> bool:
    try:
        return value.value(image) is not None
    except UnknownError:
        return False


def _column_test(call: Call, table: TableDef, _ask: Ask) -> BoundTerm:
    column, *states = call.parts
    at = index_of(column, table)  # type: ignore[arg-type]
    tests = [COLUMN_TESTS[str(state)] for state in states]

    def holds(image: Image) -> bool:
        return any(test(image[at]) for test in tests)

    return BoundTerm(NUMBER, lambda image: Decimal(holds(image)), lambda image: str(holds(image)).lower())


_CHOICES: Final[dict[str, Callable[[Call, TableDef, Ask], BoundTerm]]] = {
    "CASE": _case, "COLTEST": _column_test, "EVAL": _eval, "IF": _if, "VALONEOF": _value_one_of,
}  # fmt: skip


# --- parts of a table -------------------------------------------------------------------------------------------------


def _key_part(term: KeyPart, table: TableDef) -> Callable[[Image], Decimal | None]:
    if not term.columns and not table.key:
        raise UnaskableError("the table has no key to hash", "Name columns: @RANGE (1, 3, column)")
    at = [index_of(column, table) for column in term.columns] or list(table.key)

    def value(image: Image) -> Decimal | None:
        return Decimal(part_of([text_of(image, i) for i in at], term.parts) == term.part)

    return value


def part_of(texts: Sequence[str | None], parts: int) -> int:
    """Which part, from 1, has rows with these values. Never to be changed: processes share rows out by it."""
    made = hashlib.blake2b(digest_size=8)
    for text in texts:
        data = b"" if text is None else text.encode("utf-8", "surrogateescape")
        made.update((b"0" if text is None else b"1") + len(data).to_bytes(8, "big") + data)
    return int.from_bytes(made.digest(), "big") % parts + 1
