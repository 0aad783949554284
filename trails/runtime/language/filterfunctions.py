"""The functions of TABLE's FILTER: words to a tree that trails/computing.py binds to a table.

    term:   'text' | number | column | @NAME (...)
    @IF (condition, term, term)     @EVAL (condition, term [, condition, term ...] [, term])
    @RANGE (part, parts [, column, ...])         all others: computing.FUNCTIONS says what they take
    @COMPUTE (sum)     sum: product {+|- product}     product: factor {*|/ factor}
                       factor: [-] column | number | @NAME (...) | ( sum )

Rule: what is not in these lines is refused, by what was expected and found. A comma is a blank, so arguments are told
apart by what they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from typing import Final, Protocol

from trails import dateforms
from trails.computing import COLUMN_TESTS, FUNCTIONS, UNITS, WAYS, RowFunction
from trails.naming import ColumnName
from trails.runtime.language.params import Group, Literal, Word
from trails.terms import Arithmetic, Call, Condition, KeyPart, Term

MOST_DEEP = 100
MOST_WORDS = 150
"""In one sum, with all that stands in its parentheses."""
_SUM = re.compile(r'"(?:[^"]|"")*"|[-+*/]|[^-+*/"]+')
_PLAIN_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+", re.ASCII)
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_WHOLE = re.compile(r"\d{1,9}", re.ASCII)
_TWO_ROWS: Final = "a condition is asked about one row, before its change or after it"
_BYTES: Final = "it gives bytes, which are not compared here. @BINTOHEX gives a text"
_WHY_NOT: Final = {
    "AFTER": _TWO_ROWS, "BEFORE": _TWO_ROWS, "BEFOREAFTER": _TWO_ROWS, "BINARY": _BYTES, "HEXTOBIN": _BYTES,
    "COLSTAT": "it is no value of a row. Ask with @COLTEST, or = @NULL",
    "DATENOW": "a row that passes now must pass at any time",
    "GETENV": "a condition is asked about a row, and not about its change",
    "TOKEN": "tokens are made behind the choice of rows",
}  # fmt: skip


class FilterGrammar(Protocol):
    """What stands around the functions."""

    def column(self, word: str) -> ColumnName:
        """A column's name. Raises ParamError."""

    def condition(self, words: list[Word], depth: int) -> Condition:
        """Takes a condition from the front of `words`. Raises ParamError."""

    def wrong(self, why: str) -> Exception:
        """The error of what is given."""


def term(words: list[Word], grammar: FilterGrammar, where: str, depth: int = 0) -> Term:
    """Takes a term from the front of `words`. `where`: the function's name, for errors, which are ParamError."""
    if not words:
        raise grammar.wrong(f"{where}: expected a value, found its end")
    word = words.pop(0)
    if isinstance(word, Literal):
        return str(word)
    if isinstance(word, Group):
        raise grammar.wrong(f"{where}: expected a column, found (...). Arithmetic stands in @COMPUTE (...)")
    if word.startswith("@") and words and isinstance(words[0], Group):
        return called(word[1:].upper(), Group(words.pop(0)), grammar, depth + 1)
    if NUMBER.fullmatch(word):
        return Decimal(word)
    return grammar.column(word)


def called(name: str, given: Group, grammar: FilterGrammar, depth: int = 0) -> Term:
    """`@NAME (...)`. Raises ParamError."""
    if depth > MOST_DEEP:
        raise grammar.wrong(f"@{name[:40]}: functions are more than {MOST_DEEP} deep")
    if name == "COMPUTE":
        if _size(given) > MOST_WORDS:
            raise grammar.wrong(f"@COMPUTE: expected {MOST_WORDS} words at most")
        return _Sum(given, grammar, depth).whole()
    if name == "RANGE":
        return _range(given, grammar)
    if name in FUNCTIONS:
        return _by_letters(name, FUNCTIONS[name], given, grammar, depth)
    if name in _CHOICES:
        words = list(given)
        found = _CHOICES[name](words, grammar, depth)
        if words:
            raise grammar.wrong(f"@{name}: expected its end, found {_shown(words[0])}")
        return Call(name, found)
    if name in _WHY_NOT:
        raise grammar.wrong(f"@{name}: {_WHY_NOT[name]}")
    raise grammar.wrong(
        f"TABLE computes no function @{name[:40]}. docs/extract.md has those that it does; a Replicat's MAP takes more"
    )


# --- functions of values ----------------------------------------------------------------------------------------------


def _by_letters(name: str, function: RowFunction, given: Group, grammar: FilterGrammar, depth: int) -> Call:
    _check_count(name, function, given, grammar)
    words, parts = list(given), list[Term | Condition]()
    letters = function.takes + function.more + function.again * len(given)
    while words:
        parts.append(_argument(letters[len(parts)], name, words, grammar, depth))
    if name == "STRNUM" and len(parts) == len(function.takes) and parts[1] != WAYS[0]:
        raise grammar.wrong(f"@STRNUM: expected a length behind {parts[1]}")
    return Call(name, tuple(parts))


def _check_count(name: str, function: RowFunction, given: Sequence[Word], grammar: FilterGrammar) -> None:
    """By words: a function's name and its parentheses are one argument."""
    before = [None, *given]
    count = sum(
        not (isinstance(word, Group) and isinstance(left, str) and left.startswith("@"))
        for left, word in zip(before, given, strict=False)
    )
    least, again = len(function.takes), len(function.again)
    fits = (count - least) % again == 0 if again else count <= least + len(function.more)
    if count < least or not fits:
        expected = f"{least}" if not function.more else f"{least} to {least + len(function.more)}"
        more = f", and {again} more as often as you like" if again else ""
        raise grammar.wrong(f"@{name}: expected {expected} arguments{more}, found {count}")


def _argument(letter: str, name: str, words: list[Word], grammar: FilterGrammar, depth: int) -> Term:
    if letter in "oi":
        return _format(words.pop(0), dateforms.OUTPUT if letter == "o" else dateforms.INPUT, grammar)
    if letter in "uw":
        return _one_of(UNITS if letter == "u" else WAYS, name, words.pop(0), grammar)
    return term(words, grammar, f"@{name}", depth)


def _format(word: Word, known: Collection[str], grammar: FilterGrammar) -> str:
    try:
        if isinstance(word, Literal):
            dateforms.split(word, known)
            return str(word)
    except ValueError:
        pass  # told below, as what is no text at all
    raise grammar.wrong(f"@DATE: expected a format of {', '.join(known)} in quotes, found {_shown(word)}")


def _one_of(known: Sequence[str], name: str, word: Word, grammar: FilterGrammar) -> str:
    if isinstance(word, str) and word.upper() in known:
        return word.upper()
    raise grammar.wrong(f"@{name}: expected {' or '.join(known)}, found {_shown(word)}")


# --- choices ----------------------------------------------------------------------------------------------------------

_Parts = tuple[Term | Condition, ...]


def _if(words: list[Word], grammar: FilterGrammar, depth: int) -> _Parts:
    test = grammar.condition(words, depth)
    return (test, *(term(words, grammar, "@IF", depth) for _ in range(2)))


def _eval(words: list[Word], grammar: FilterGrammar, depth: int) -> _Parts:
    parts = [grammar.condition(words, depth), term(words, grammar, "@EVAL", depth)]
    while words:
        alone = len(words) == 1 or (len(words) == 2 and isinstance(words[1], Group))
        parts += [term(words, grammar, "@EVAL", depth)] if alone else [
            grammar.condition(words, depth), term(words, grammar, "@EVAL", depth)
        ]  # fmt: skip
    return tuple(parts)


def _terms(name: str, least: int) -> Callable[[list[Word], FilterGrammar, int], _Parts]:
    def take(words: list[Word], grammar: FilterGrammar, depth: int) -> _Parts:
        parts = [term(words, grammar, name, depth) for _ in range(least)]
        while words:
            parts.append(term(words, grammar, name, depth))
        return tuple(parts)

    return take


def _column_test(words: list[Word], grammar: FilterGrammar, _depth: int) -> _Parts:
    if len(words) < 2:
        raise grammar.wrong("@COLTEST: expected a column, and what to test, such as @COLTEST (amount, PRESENT)")
    column, *states = words
    words.clear()
    return (
        grammar.column(_plain(column, "@COLTEST", grammar)),
        *(_one_of(tuple(COLUMN_TESTS), "COLTEST", state, grammar) for state in states),
    )


_CHOICES: Final[dict[str, Callable[[list[Word], FilterGrammar, int], _Parts]]] = {
    "CASE": _terms("@CASE", 3), "COLTEST": _column_test, "EVAL": _eval, "IF": _if, "VALONEOF": _terms("@VALONEOF", 1),
}  # fmt: skip


def _range(given: Sequence[Word], grammar: FilterGrammar) -> KeyPart:
    numbers = [int(str(word)) for word in given[:2] if _is_whole(word)]
    if len(numbers) < 2 or not 1 <= numbers[0] <= numbers[1]:
        raise grammar.wrong("@RANGE: expected two whole numbers, part of how many, such as @RANGE (1, 3)")
    columns = tuple(grammar.column(_plain(word, "@RANGE", grammar)) for word in given[2:])
    return KeyPart(numbers[0], numbers[1], columns)


def _is_whole(word: Word) -> bool:
    return isinstance(word, str) and not isinstance(word, Literal) and _WHOLE.fullmatch(word) is not None


def _plain(word: Word, where: str, grammar: FilterGrammar) -> str:
    if isinstance(word, Group | Literal):
        raise grammar.wrong(f"{where}: expected a column, found {_shown(word)}")
    return word


def _shown(word: Word) -> str:
    return "(...)" if isinstance(word, Group) else repr(str(word)[:40])


def _size(given: Group) -> int:
    return sum(_size(word) if isinstance(word, Group) else len(_SUM.findall(word)) for word in given)


class _Sum:
    """By recursive descent."""

    def __init__(self, words: Sequence[Word], grammar: FilterGrammar, depth: int = 0) -> None:
        self._grammar, self._depth = grammar, depth
        self._words: list[Word] = []
        for word in words:
            self._words += [word] if isinstance(word, Group | Literal) else _SUM.findall(word)

    def whole(self) -> Term:
        """The sum, and nothing behind it."""
        if self._depth > MOST_DEEP:
            raise self._grammar.wrong(f"@COMPUTE: parentheses are more than {MOST_DEEP} deep")
        found = self._many("+-", lambda: self._many("*/", self._factor))
        if self._words:
            raise self._grammar.wrong(f"@COMPUTE: expected +, -, *, / or the end, found {_shown(self._words[0])}")
        return found

    def _many(self, ops: str, part: Callable[[], Term]) -> Term:
        found = part()
        while self._words and isinstance(self._words[0], str) and self._words[0] in tuple(ops):
            op = str(self._words.pop(0))
            found = Arithmetic(op, found, part())
        return found

    def _factor(self) -> Term:
        if not self._words:
            raise self._grammar.wrong("@COMPUTE: expected a column or a number, found its end")
        word = self._words.pop(0)
        if isinstance(word, Group):
            return _Sum(word, self._grammar, self._depth + 1).whole()
        if word == "-" and not isinstance(word, Literal):
            return Arithmetic("-", Decimal(0), self._factor())
        if not isinstance(word, Literal) and _PLAIN_NUMBER.fullmatch(word):
            return Decimal(word)
        if word.startswith("@") and self._words and isinstance(self._words[0], Group):
            return called(word[1:].upper(), Group(self._words.pop(0)), self._grammar, self._depth + 1)
        return self._grammar.column(_plain(word, "@COMPUTE", self._grammar))
