"""The conditions of TABLE's WHERE and FILTER: words to a tree that trails/conditions.py binds to a table.

    or:    and {OR and}            test:  column op constant      column = @NULL | @PRESENT | @ABSENT  (also <>)
    and:   not {AND not}                  column IS [NOT] NULL    ( or )
    not:   [NOT] test              op:    =  <>  !=  <  <=  >  >=

    only in FILTER (filterfunctions.py):  @FUNCTION (...) [op term]     column op column     column op @FUNCTION (...)
                                          without `op term` it is > 0, or <> 0 where @IF and @EVAL ask

Rule: what is not in these lines is refused by its name. Extract and pump compare exactly: a MAP of a Replicat knows
all of Spark SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from trails.choosing import TableFilter
from trails.naming import ColumnName
from trails.record import DELETE, INSERT, UPDATE
from trails.runtime.language.filterfunctions import NUMBER, called, term
from trails.runtime.language.params import Group, Literal, Statement, Word
from trails.terms import (
    ABSENT,
    NULL,
    OPERATORS,
    PRESENT,
    STATES,
    ColumnState,
    ColumnTest,
    ComputedTest,
    Condition,
    Join,
    Not,
    Term,
)

TAKEN = "column = constant (or <>, <, <=, >, >=), = @NULL, @PRESENT or @ABSENT, with AND, OR, NOT and parentheses"
MOST_DEEP = 100
OPERATIONS = {"INSERT": INSERT, "UPDATE": UPDATE, "DELETE": DELETE}
_PIECES = re.compile(r'"(?:[^"]|"")*"|[<>=!]+|[^<>=!"]+')
_COLUMN = re.compile(r'"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^"@+*/%|&?\d.<>=!-][^"@+*/%|&?.<>=!-]*)')
_WORDS = ("AND", "OR", "NOT", "IS", "NULL", "TRUE", "FALSE")


def row_filter(statement: Statement, keyword: str, given: Group) -> TableFilter:
    """A whole WHERE or FILTER. Raises ParamError."""
    words = list(given)
    ops = _operations(statement, words) if keyword == "FILTER" else frozenset[int]()
    parser = _ConditionParser(statement, keyword, _apart(words))
    return TableFilter(parser.whole(), ops, keyword)


def _operations(statement: Statement, words: list[Word]) -> frozenset[int]:
    """Takes ON and IGNORE with their operations from the front: the operations that are asked; empty: rows are."""
    on: set[int] = set()
    ignored: set[int] = set()
    while len(words) > 1 and _bare(words[0]) in ("ON", "IGNORE") and _bare(words[1]) in OPERATIONS:
        (on if _bare(words[0]) == "ON" else ignored).add(OPERATIONS[_bare(words[1])])
        del words[:2]
    if ignored:
        on = (on or set(OPERATIONS.values())) - ignored
        if not on:
            raise statement.wrong("FILTER ignores every operation")
    return frozenset(on)


def _bare(word: Word) -> str:
    return "" if isinstance(word, Group | Literal) else word.upper()


class _ConditionParser:
    """By recursive descent, over words in which operators stand alone."""

    def __init__(self, statement: Statement, keyword: str, words: list[Word], depth: int = 0, alone: str = ">") -> None:
        """It takes its words from the front of the list. `alone`: what is asked of a function without an operator."""
        self._statement = statement
        self._keyword = keyword
        self._words = words
        self._depth = depth
        self._alone = alone

    def whole(self) -> Condition:
        """The condition, and nothing behind it."""
        found = self.front()
        if self._words:
            raise self._refused(self._words[0], "AND, OR or the end")
        return found

    def front(self) -> Condition:
        """The condition; what stands behind it stays."""
        if self._depth > MOST_DEEP:
            raise self._statement.wrong(f"{self._keyword}: parentheses are more than {MOST_DEEP} deep")
        return self._joined("OR", lambda: self._joined("AND", self._not))

    def condition(self, words: list[Word], depth: int) -> Condition:
        """Of a function's arguments."""
        words[:] = _apart(words)
        return _ConditionParser(self._statement, self._keyword, words, self._depth + depth + 1, "<>").front()

    def wrong(self, why: str) -> Exception:
        """What a function is given."""
        return self._statement.wrong(f"{self._keyword}: {why}")

    def _joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._words and _bare(self._words[0]) == word:
            del self._words[0]
            parts.append(part())
        return parts[0] if len(parts) == 1 else Join(word == "AND", tuple(parts))

    def _not(self) -> Condition:
        turned = False
        while self._words and _bare(self._words[0]) == "NOT":
            del self._words[0]
            turned = not turned
        return Not(self._test()) if turned else self._test()

    def _test(self) -> Condition:
        word = self._take("a column")
        if isinstance(word, Group):
            inner = _apart(word)
            return _ConditionParser(self._statement, self._keyword, inner, self._depth + 1, self._alone).whole()
        if self._is_function(word):
            return self._computed(called(str(word)[1:].upper(), Group(self._words.pop(0)), self, self._depth))
        column = self.column(word)
        op = self._take("an operator such as =")
        if _bare(op) == "IS":
            return self._is_null(column)
        if not isinstance(op, str) or op not in OPERATORS:
            raise self._refused(op, "an operator such as =")
        value = self._take("a constant")
        if self._is_function(value) or self._is_column(value):
            self._words.insert(0, value)
            return ComputedTest(column, op, term(self._words, self, "FILTER", self._depth))
        if isinstance(value, str) and not isinstance(value, Literal) and value.startswith("@"):
            return self._state(column, op, value)
        return self._compared(column, op, value)

    def _is_function(self, word: Word) -> bool:
        follows = bool(self._words) and isinstance(self._words[0], Group)
        return self._keyword == "FILTER" and _bare(word).startswith("@") and follows

    def _is_column(self, word: Word) -> bool:
        return self._keyword == "FILTER" and bool(_COLUMN.fullmatch(_bare(word))) and _bare(word) not in _WORDS

    def _computed(self, left: Term) -> Condition:
        if not self._words or not isinstance(self._words[0], str) or self._words[0] not in OPERATORS:
            return ComputedTest(left, self._alone)
        op = str(self._words.pop(0))
        return ComputedTest(left, op, term(self._words, self, "FILTER", self._depth))

    def column(self, word: str) -> ColumnName:
        """A column's name."""
        found = None if isinstance(word, Literal) else _COLUMN.fullmatch(word)
        if found is None or word.upper() in _WORDS:
            raise self._refused(word, "a column")
        if found["quoted"] is not None:
            return ColumnName(found["quoted"].replace('""', '"'), quoted=True)
        return ColumnName(word)

    def _is_null(self, column: ColumnName) -> Condition:
        word = self._take("NULL")
        holds = _bare(word) != "NOT"
        if not holds:
            word = self._take("NULL")
        if _bare(word) != "NULL":
            raise self._refused(word, "NULL")
        return ColumnState(column, NULL, holds)

    def _state(self, column: ColumnName, op: str, value: str) -> Condition:
        state = value[1:].upper()
        if state not in STATES:
            raise self._refused(value, f"a constant, or @{NULL}, @{PRESENT} or @{ABSENT}")
        if op not in ("=", "<>", "!="):
            raise self._refused(op, f"= or <> before {value}")
        return ColumnState(column, state, op == "=")

    def _compared(self, column: ColumnName, op: str, value: Word) -> Condition:
        if isinstance(value, Literal):
            return ColumnTest(column, op, str(value), quoted=True)
        if isinstance(value, str) and (NUMBER.fullmatch(value) or value.upper() in ("TRUE", "FALSE")):
            return ColumnTest(column, op, value)
        if _bare(value) == "NULL":
            raise self._refused(value, f"@{NULL} or IS NULL")
        raise self._refused(value, "a constant, as 'text' or a number")

    def _take(self, expected: str) -> Word:
        if not self._words:
            raise self._statement.wrong(f"{self._keyword}: expected {expected}, found its end; it takes {TAKEN}")
        return self._words.pop(0)

    def _refused(self, word: Word, expected: str) -> Exception:
        if isinstance(word, str) and not isinstance(word, Literal) and word.startswith("@"):
            return self._statement.wrong(
                f"{self._keyword}: TABLE computes nothing such as {word[:40]} here; only FILTER takes @FUNCTION (...), "
                "and docs/extract.md has which. A MAP of a Replicat takes more"
            )
        shown = "(...)" if isinstance(word, Group) else repr(str(word)[:40])
        return self._statement.wrong(
            f"{self._keyword}: expected {expected}, found {shown}. TABLE takes {TAKEN}; a Replicat's MAP takes more"
        )


def _apart(words: Sequence[Word]) -> list[Word]:
    """`a>=5` as three words."""
    found: list[Word] = []
    for word in words:
        found += [word] if isinstance(word, Group | Literal) else _PIECES.findall(word)
    return found
