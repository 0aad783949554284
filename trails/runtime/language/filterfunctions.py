"""The functions of TABLE's FILTER: words to a tree that trails/computing.py binds to a table.

    @STREQ (column, 'text')   @STRFIND (column, 'part' [, from])   @RANGE (part, parts [, column, ...])
    @COMPUTE (sum)     sum: product {+|- product}     product: factor {* factor}
                       factor: [-] column | number | ( sum )

Rule: what is not in these lines is refused, by what was expected and found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

from trails.computing import FUNCTIONS, TAKEN, Arithmetic, Call, Computed, KeyPart, Number
from trails.naming import ColumnName
from trails.runtime.language.params import Group, Literal, Word

MOST_DEEP = 100
_SUM = re.compile(r'"(?:[^"]|"")*"|[-+*/]|[^-+*/"]+')
_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+", re.ASCII)
_WHOLE = re.compile(r"\d{1,9}", re.ASCII)

Column = Callable[[str], ColumnName]
Wrong = Callable[[str], Exception]


def called(name: str, given: Group, column: Column, wrong: Wrong) -> Computed:
    """`@NAME (...)`. `column` reads a column's name, `wrong` makes the error of what it is given; both may raise it."""
    if name == "COMPUTE":
        return _Sum(given, column, wrong).whole()
    if name == "RANGE":
        return _range(given, column, wrong)
    if name not in FUNCTIONS:
        raise wrong(f"TABLE computes no function @{name[:40]}, only {TAKEN}. Put others into a MAP of a Replicat")
    return _call(name, given, column, wrong)


def _range(given: Sequence[Word], column: Column, wrong: Wrong) -> KeyPart:
    numbers = [int(str(word)) for word in given[:2] if _is_whole(word)]
    if len(numbers) < 2 or not 1 <= numbers[0] <= numbers[1]:
        raise wrong("@RANGE: expected two whole numbers, part of how many, such as @RANGE (1, 3)")
    return KeyPart(numbers[0], numbers[1], tuple(column(_plain(word, "@RANGE", wrong)) for word in given[2:]))


def _call(name: str, given: Sequence[Word], column: Column, wrong: Wrong) -> Call:
    function = FUNCTIONS[name]
    least, most = (function.texts + count for count in function.numbers)
    if not least <= len(given) <= most:
        expected = f"{least}" if least == most else f"{least} to {most}"
        raise wrong(f"@{name}: expected {expected} arguments, found {len(given)}")
    terms: list[ColumnName | str | int] = [
        str(word) if isinstance(word, Literal) else column(_plain(word, f"@{name}", wrong))
        for word in given[: function.texts]
    ]
    for word in given[function.texts :]:
        if not _is_whole(word):
            raise wrong(f"@{name}: expected a whole number, found {_shown(word)}")
        terms.append(int(str(word)))
    return Call(name, tuple(terms))


def _is_whole(word: Word) -> bool:
    return isinstance(word, str) and not isinstance(word, Literal) and _WHOLE.fullmatch(word) is not None


def _plain(word: Word, where: str, wrong: Wrong) -> str:
    if isinstance(word, Group | Literal):
        raise wrong(f"{where}: expected a column, found {_shown(word)}")
    return word


def _shown(word: Word) -> str:
    return "(...)" if isinstance(word, Group) else repr(str(word)[:40])


class _Sum:
    """By recursive descent."""

    def __init__(self, words: Sequence[Word], column: Column, wrong: Wrong, depth: int = 0) -> None:
        self._column, self._wrong, self._depth = column, wrong, depth
        self._words: list[Word] = []
        for word in words:
            self._words += [word] if isinstance(word, Group | Literal) else _SUM.findall(word)

    def whole(self) -> Number:
        """The sum, and nothing behind it."""
        if self._depth > MOST_DEEP:
            raise self._wrong(f"@COMPUTE: parentheses are more than {MOST_DEEP} deep")
        found = self._many("+-", lambda: self._many("*", self._factor))
        if self._words:
            raise self._wrong(f"@COMPUTE: expected +, -, * or the end, found {_shown(self._words[0])}")
        return found

    def _many(self, ops: str, part: Callable[[], Number]) -> Number:
        found = part()
        while self._words and isinstance(self._words[0], str) and self._words[0] in tuple(ops):
            op = str(self._words.pop(0))
            found = Arithmetic(op, found, part())
        return found

    def _factor(self) -> Number:
        if not self._words:
            raise self._wrong("@COMPUTE: expected a column or a number, found its end")
        word = self._words.pop(0)
        if isinstance(word, Group):
            return _Sum(word, self._column, self._wrong, self._depth + 1).whole()
        if word == "-" and not isinstance(word, Literal):
            return Arithmetic("-", Decimal(0), self._factor())
        if not isinstance(word, Literal) and _NUMBER.fullmatch(word):
            return Decimal(word)
        return self._column(_plain(word, "@COMPUTE", self._wrong))
