"""Reading a text with @functions in it: tokens, brackets, arguments. Pure; knows no single function.

Strategy: everything that is no @function passes through unchanged, so Spark says what it thinks of it. Here it is only
seen where quotes and brackets open and close.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from replicat.maps.expressions.exact import CONDITION
from trails.errors import ParamError
from trails.runtime.language.params import did_you_mean

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|--[^\n]*|/\*.*?\*/)+)
      | (?P<string>[rR]'[^']*' | '(?:[^'\\]|\\.|'')*')
      | (?P<quoted>"(?:[^"]|"")*" | `(?:[^`]|``)*`)
      | (?P<call>@[A-Za-z_][A-Za-z0-9_]*)
      | (?P<word>[A-Za-z0-9_$.\u0080-\uffff]+)
      | (?P<open>[(\[]) | (?P<close>[)\]]) | (?P<comma>,)
      | (?P<sign><=>|<>|!=|<=|>=|[^'"`])""",
    re.VERBOSE | re.DOTALL,
)
_SHOWN = 60
_NAMED = {"@PRESENT": "PRESENT", "@NULL": "NULL", "@ABSENT": "MISSING"}
REFUSED = {
    "GETVAL": "there is no SQLEXEC whose result it could give",
    "HIGHVAL": "it belongs to Enscribe and Base24 sources",
    "LOWVAL": "it belongs to Enscribe and Base24 sources",
    "DDL": "it belongs to DDL event actions",
}


@dataclass(frozen=True, slots=True)
class TextToken:
    """A piece of text and what it is."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class SparkText:
    """Spark SQL. `left_out`: a condition under which the column is left out (COLSTAT(MISSING)); `number`: a number that
    counts as a condition in GoldenGate.
    """

    sql: str
    left_out: str = ""
    number: bool = False


class Maker(Protocol):
    """What parse() needs of a function (replicat.maps.expressions.functions.Function)."""

    @property
    def shape(self) -> str:
        """Its arguments, for messages."""

    @property
    def least(self) -> int:
        """Fewest arguments."""

    @property
    def most(self) -> int:
        """Most arguments."""

    @property
    def make(self) -> Callable[[Sequence[Arg]], SparkText]:
        """Its Spark SQL."""


def parse(text: str, where: str, functions: Mapping[str, Any], *, condition: bool = False) -> SparkText:
    """Spark SQL for `text`; ParamError (beginning with `where`) names what is wrong."""
    reader = _FunctionReader(where, functions)
    tokens = reader.tokens(text)
    if not tokens:
        raise ParamError(f"{where}: expected an expression, found nothing")
    return reader.text(tokens, condition=condition)


def quoted(name: str) -> str:
    """A name as Spark takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


class Arg:
    """One argument of an @function."""

    def __init__(self, reader: _FunctionReader, tokens: Sequence[TextToken], call: str) -> None:
        """`call`: the function's name, for messages."""
        self._reader = reader
        self._tokens = tokens
        self._call = call

    @cached_property
    def text(self) -> SparkText:
        """As Spark SQL."""
        return self._reader.text(self._tokens)

    @property
    def sql(self) -> str:
        """As Spark SQL, a value."""
        return self._reader.value(self.text, self._call)

    @property
    def condition(self) -> str:
        """As Spark SQL, a condition: a number counts as true unless it is 0."""
        made = self._reader.text(self._tokens, condition=True)
        return f"CAST(({self._reader.value(made, self._call)}) AS {CONDITION} BOOLEAN)"

    @property
    def string(self) -> str:
        """As Spark SQL of type STRING."""
        return self.sql if self.literal is not None else f"CAST({self.sql} AS STRING)"

    def branch(self, as_text: bool) -> str:
        """As a result of @IF and the like, which may be COLSTAT(MISSING)."""
        plain = not as_text or self.literal is not None or self.text.sql == "NULL"
        return self.text.sql if plain else f"CAST({self.text.sql} AS STRING)"

    @property
    def literal(self) -> str | None:
        """What a 'literal' says; None if it is none."""
        only = self._only
        if only is None or only.kind != "string":
            return None
        return re.sub(r"\\(.)", r"\1", only.text.lstrip("rR")[1:-1].replace("''", "'"))

    @property
    def word(self) -> str:
        """A bare word in upper case; empty if it is none."""
        only = self._only
        return only.text.upper() if only is not None and only.kind == "word" else ""

    @property
    def number(self) -> int | None:
        """A bare whole number."""
        return int(self.word) if self.word.isascii() and self.word.isdecimal() and len(self.word) < 10 else None

    @property
    def name(self) -> str:
        """A name as 'literal', "quoted" or bare."""
        if self.literal is not None:
            return self.literal
        only = self._only
        if only is None or only.kind not in ("word", "quoted"):
            raise self.error("a name")
        return only.text[1:-1] if only.kind == "quoted" else only.text

    @property
    def is_column(self) -> bool:
        """Whether it is a column's name alone."""
        only = self._only
        if only is None:
            return False
        return only.kind == "quoted" or (
            only.kind == "word" and not only.text[0].isdigit() and only.text.upper() != "NULL"
        )

    @property
    def column(self) -> str:
        """A column's name as it is written."""
        only = self._only
        if only is None or not self.is_column:
            raise self.error("a column's name")
        return only.text

    @property
    def _only(self) -> TextToken | None:
        return self._tokens[0] if len(self._tokens) == 1 else None

    def error(self, expected: str) -> ParamError:
        """The argument is not what the function takes."""
        return self._reader.error(f"@{self._call}: expected {expected}, found {_show(self._tokens)}")


class _FunctionReader:
    def __init__(self, where: str, functions: Mapping[str, Maker]) -> None:
        self._where = where
        self._functions = functions

    def error(self, message: str) -> ParamError:
        return ParamError(f"{self._where}: {message}")

    def value(self, text: SparkText, call: str) -> str:
        if text.left_out:
            raise self.error(
                f"@{call}: @COLSTAT (MISSING) must be a whole value, or a result of @IF, @CASE or @EVAL that is one"
            )
        return text.sql

    def tokens(self, text: str) -> list[TextToken]:
        """Tokens without blanks at both ends; brackets are known to be balanced."""
        found: list[TextToken] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.error(f"expected a closing {text[at]}, found the end of: {text[at:][:_SHOWN]}")
            found.append(TextToken(str(match.lastgroup), match[0]))
            at = match.end()
        self._check_brackets(found)
        return _trim(found)

    def _check_brackets(self, tokens: Sequence[TextToken]) -> None:
        opened: list[str] = []
        for token in tokens:
            if token.kind == "open":
                opened.append(")" if token.text == "(" else "]")
            elif token.kind == "close" and (not opened or opened.pop() != token.text):
                raise self.error(f"expected no {token.text} here, in: {_show(tokens)}")
        if opened:
            raise self.error(f"expected {opened[-1]}, found the end of: {_show(tokens)}")

    def text(self, tokens: Sequence[TextToken], *, condition: bool = False) -> SparkText:
        """All tokens as Spark SQL."""
        made: list[SparkText] = []
        significant: list[int] = []  # of `made`, those that are no blanks
        at = 0
        while at < len(tokens):
            token = tokens[at]
            if token.kind != "call":
                made.append(SparkText(token.text))
                at += 1
            elif token.text.upper() in _NAMED and not _opens(tokens, at):
                self._compare_named(made, significant, token)
                at += 1
            else:
                at, text = self._call(tokens, at)
                made.append(text)
            if token.kind != "space":
                significant.append(len(made) - 1)
        if len(significant) == 1:
            only = made[significant[0]]
            return SparkText(_truth(only), only.left_out) if condition and only.number else only
        for i, text in enumerate(made):
            self.value(text, "COLSTAT")
            if condition and text.number and _stands_alone(made, i):
                made[i] = SparkText(_truth(text))
        return SparkText("".join(text.sql for text in made))

    def _compare_named(self, made: list[SparkText], significant: list[int], token: TextToken) -> None:
        """`column = @PRESENT`, GoldenGate's way of WHERE."""
        sign = made[significant[-1]].sql if significant else ""
        if sign not in ("=", "<>", "!=") or len(significant) < 2:
            raise self.error(f"{token.text}: expected it behind a column and = or <>")
        column = Arg(self, [TextToken("word", made[significant[-2]].sql)], token.text[1:])
        test = Arg(self, [TextToken("word", _NAMED[token.text.upper()])], "COLTEST")
        found = self._functions["COLTEST"].make([column, test]).sql
        del made[significant[-2] :]
        del significant[-2:]
        made.append(SparkText(found if sign == "=" else f"(NOT {found})"))

    def _call(self, tokens: Sequence[TextToken], at: int) -> tuple[int, SparkText]:
        name = tokens[at].text[1:].upper()
        function = self._functions.get(name)
        if function is None:
            if name in REFUSED:
                raise self.error(f"@{name} is not supported: {REFUSED[name]}")
            raise self.error(f"there is no function @{name}{did_you_mean(name, self._functions)}")
        if not _opens(tokens, at):
            raise self.error(f"@{name}: expected {function.shape} behind it")
        begin = next(i for i in range(at + 1, len(tokens)) if tokens[i].kind == "open")
        args, end = self._arguments(tokens, begin, name)
        if not function.least <= len(args) <= function.most:
            raise self.error(f"@{name}: expected {function.shape}, found {_count(args)}")
        return end + 1, function.make(args)

    def _arguments(self, tokens: Sequence[TextToken], begin: int, name: str) -> tuple[list[Arg], int]:
        """The arguments between the bracket at `begin` and its partner, and where that is."""
        found: list[list[TextToken]] = [[]]
        depth = 0
        for i in range(begin, len(tokens)):
            token = tokens[i]
            depth += (token.kind == "open") - (token.kind == "close")
            if not depth:
                break
            if token.kind == "comma" and depth == 1:
                found.append([])
            elif i > begin:
                found[-1].append(token)
        parts = [_trim(part) for part in found]
        if parts == [[]]:
            return [], i
        if [] in parts:
            raise self.error(f"@{name}: expected an argument between the commas, found nothing")
        return [Arg(self, part, name) for part in parts], i


def _opens(tokens: Sequence[TextToken], at: int) -> bool:
    following = next((token for token in tokens[at + 1 :] if token.kind != "space"), None)
    return following is not None and following.text == "("


def _stands_alone(made: Sequence[SparkText], i: int) -> bool:
    """Whether the i-th piece is a whole side of AND, OR or NOT."""
    before = next((text.sql.upper() for text in reversed(made[:i]) if text.sql.strip()), "(")
    after = next((text.sql.upper() for text in made[i + 1 :] if text.sql.strip()), ")")
    return before in ("(", "AND", "OR", "NOT") and after in (")", "AND", "OR")


def _truth(text: SparkText) -> str:
    return f"CAST(({text.sql}) AS BOOLEAN)"


def _trim(tokens: list[TextToken]) -> list[TextToken]:
    first = next((i for i, token in enumerate(tokens) if token.kind != "space"), len(tokens))
    last = next((i for i in reversed(range(len(tokens))) if tokens[i].kind != "space"), -1)
    return tokens[first : last + 1]


def _show(tokens: Sequence[TextToken]) -> str:
    text = "".join(token.text for token in tokens)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _count(args: Sequence[Arg]) -> str:
    return f"{len(args)} argument{'' if len(args) == 1 else 's'}"
