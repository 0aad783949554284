"""The parameter-file language: text -> statements -> values checked against a table of keywords.

Rule: a file is looked at whole, and every mistake in it is reported at once with file, line and what was expected.
So reading never raises on a mistake: it gives a Statement with a `fault`, and `check` raises all of them together
with unknown keywords, wrong arguments, repetitions and missing keywords.

    -- a comment, as is a line that begins with COMMENT
    EXTRACT ext1
    EXTTRAIL ./dirdat/lt            one parameter a line, keywords in any case
    RMTHOST there, &                `&` at the end of a line goes on with the next
        MGRPORT 7809
    TABLE sales.*;                  TABLE, MAP and their EXCLUDEs end with `;` and may span lines
    MAP sales."Order Lines",
        TARGET copy."Order Lines";

'literals' are text, "identifiers" keep their case and blanks; * and ? are wildcards outside quotes.
Macros, INCLUDE and ?variables come before all that (prmtext.py), and prmsplit.py cuts statements. lark parses the
arguments and is imported at the first statement, so that ggsci's prompt does not wait for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from trails.controlflow import ControlFlowError
from trails.errors import OperatorError, ParamError
from trails.runtime.language import prmtext, wildcards
from trails.runtime.language.prmsplit import KEYWORD, Raw, split
from trails.runtime.masking import mask, mask_parameters

if TYPE_CHECKING:
    from lark import Lark

AS_TEXT = frozenset(("MAP",))  # its expressions are of another language: whoever reads it, reads its text


class Literal(str):
    """A word that stood in single quotes, without them."""

    __slots__ = ()


MOST_DEEP = 200


class Group(tuple["Word", ...]):
    """Words that stood in parentheses."""

    __slots__ = ()


Word = str | Group


class ParamErrors(ParamError):  # noqa: N818  -- it is several
    """All mistakes of one file: one line of the message each, `errors` one by one."""

    def __init__(self, errors: Sequence[ParamError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class Statement:
    """One parameter. `text` is what follows the keyword, as written; `fault` tells why `words` could not be made.

    `numbers` has the file's line for each line of `text`. `via` names the macro that made the statement.
    """

    keyword: str
    words: tuple[Word, ...]
    text: str
    file: str
    line: int
    fault: str = ""
    numbers: tuple[int, ...] = ()
    via: str = ""

    def line_at(self, offset: int) -> int:
        """The line of the file in which the text's character `offset` stands."""
        at = self.text.count("\n", 0, offset)
        return self.numbers[at] if at < len(self.numbers) else self.line

    def inner(self, keyword: str, text: str, offset: int) -> Statement:
        """A part of the text, from `offset` on, as a statement of its own: for options that are parameters too."""
        words, fault = _words(text)
        numbers = self.numbers[self.text.count("\n", 0, offset) :]
        return Statement(keyword, words, text, self.file, self.line_at(offset), fault, numbers, self.via)

    def error(self, expected: str, found: object = None) -> ParamError:
        """A ParamError at this place: what was expected, and what stood there (default: the argument text)."""
        shown = " ".join(mask_parameters(self.text if found is None else str(found)).split())
        what = f"found {shown!r}" if shown else "found nothing"
        return ParamError(f"{self.file}:{self.line}: {self.keyword}: expected {expected}, {what}{self._made_by}")

    def wrong(self, message: str) -> ParamError:
        """A ParamError at this place with a message of its own."""
        return ParamError(f"{self.file}:{self.line}: {self.keyword}: {mask(message)}{self._made_by}")

    @property
    def _made_by(self) -> str:
        return f" (made by {self.via})" if self.via else ""


# --- text -> statements ---------------------------------------------------------------------------------------------


def parse_file(path: str, environment: Mapping[str, str] | None = None) -> list[Statement]:
    """The statements of a parameter file, macros, INCLUDEs and ?variables replaced (`environment`: os.environ).

    Raises ParamError if the file itself can't be read.
    """
    return [_statement(raw) for raw in split(prmtext.read(path, environment).lines)]


def parse_text(text: str, name: str, environment: Mapping[str, str] | None = None) -> list[Statement]:
    """The statements of `text`; `name` stands for the file in messages."""
    return [_statement(raw) for raw in split(prmtext.expand(text, name, environment).lines)]


# --- a statement's arguments ----------------------------------------------------------------------------------------


def _statement(raw: Raw) -> Statement:
    match = KEYWORD.match(raw.text)
    rest = raw.text[match.end() if match else 0 :]
    text = rest.strip()
    skipped = raw.text[: len(raw.text) - len(rest.lstrip())].count("\n")
    words: tuple[Word, ...] = ()
    fault = raw.fault
    if not fault and raw.keyword not in AS_TEXT:
        words, fault = _words(text)
    return Statement(
        raw.keyword, words, text, raw.file, raw.line, fault, tuple(raw.numbers[skipped:]) or (raw.line,), raw.via
    )


def _words(text: str) -> tuple[tuple[Word, ...], str]:
    """(the words, "") or ((), what is wrong)."""
    if not text:
        return (), ""
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    try:
        tree: Any = _parser().parse(text)
    except UnexpectedCharacters as error:
        return (), f"a word, a 'literal' or '(', found {text[error.pos_in_stream :][:20]!r}"
    except UnexpectedToken as error:
        at_end = error.token.type == "$END"
        return (), "')', found the end" if at_end else f"a word or the end, found {str(error.token)!r}"
    try:
        return tuple(_word(child, MOST_DEEP) for child in tree.children), ""
    except TooDeepError:
        return (), f"parentheses {MOST_DEEP} deep at most, found more"


class TooDeepError(ControlFlowError):
    """Parentheses in each other, more than anybody means."""


def _word(tree: Any, left: int) -> Word:
    if tree.data == "group":
        if left == 0:
            raise TooDeepError
        return Group(_word(child, left - 1) for child in tree.children)
    token = str(tree.children[0])
    return Literal(token[1:-1].replace("''", "'")) if tree.data == "literal" else token


@cache
def _parser() -> Lark:
    from pathlib import Path

    from lark import Lark

    grammar = Path(__file__).with_name("params.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", start="arguments")


# --- statements -> values -------------------------------------------------------------------------------------------

Parser = Callable[[Statement], Any]


@dataclass(frozen=True, slots=True)
class Keyword:
    """One keyword of a program: how it is written, what it does, one example, and how its arguments become a value.

    `parse` raises the ParamError of `Statement.error` on anything it does not expect.
    `instead`: keywords by which a required one may be left out.
    `ignored`, `refused`: why it has no meaning here, or can't be obeyed (accepted.py).
    """

    name: str
    shape: str
    help: str
    example: str
    parse: Parser
    repeatable: bool = False
    required: bool = False
    instead: tuple[str, ...] = ()
    ignored: str = ""
    refused: str = ""


def table(*keywords: Keyword) -> dict[str, Keyword]:
    """A program's keyword table."""
    return {keyword.name: keyword for keyword in keywords}


@dataclass(frozen=True, slots=True)
class Values:
    """What a checked file says: for each keyword the statements and their parsed values, in file order.

    `failed`: keywords that were written wrong; only who looks at the file before it is checked whole meets any.
    """

    file: str
    found: Mapping[str, Sequence[tuple[Statement, Any]]] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()

    def one(self, keyword: str, default: Any = None) -> Any:
        """The keyword's value (the last, if repeated), or `default` if it is not in the file."""
        pairs = self.found.get(keyword)
        return pairs[-1][1] if pairs else default

    def all(self, keyword: str) -> list[Any]:
        """Each value of a repeatable keyword, in file order."""
        return [value for _, value in self.found.get(keyword, ())]

    def has(self, keyword: str) -> bool:
        """Whether the file names the keyword."""
        return keyword in self.found

    def statements(self, keyword: str) -> list[Statement]:
        """The keyword's statements, for messages that name their line."""
        return [statement for statement, _ in self.found.get(keyword, ())]


def check(
    statements: Sequence[Statement],
    keywords: Mapping[str, Keyword],
    program: str,
    *,
    first: str = "",
    file: str = "",
    also: Callable[[Values], object] = lambda _: None,
) -> Values:
    """Hold a file against the program's table. Raises ParamErrors with every mistake in it, in line order, then with
    what is missing or does not fit together.

    `first` is the keyword that must open the file (EXTRACT, REPLICAT); `file` names an empty file in messages.
    `also` raises the ParamError of several parameters that don't fit together.
    """
    file = statements[0].file if statements else file
    errors: list[ParamError] = []
    failed: set[str] = set()
    found: dict[str, list[tuple[Statement, Any]]] = {}
    if first and (not statements or statements[0].keyword != first):
        shown = statements[0].keyword if statements else "nothing"
        errors.append(ParamError(f"{file}:1: expected {first} {keywords[first].shape} first, found {shown}"))
    for statement in statements:
        try:
            value = _value(statement, keywords, program, found)
        except ParamErrors as several:
            errors += several.errors
            failed.add(statement.keyword)
        except ParamError as error:
            errors.append(error)
            failed.add(statement.keyword)
        else:
            found.setdefault(statement.keyword, []).append((statement, value))
    try:
        also(Values(file, found, frozenset(failed)))
    except ParamError as error:
        errors.append(error)
    named = {statement.keyword for statement in statements}
    errors += [
        ParamError(f"{file}: {k.name} is missing; expected {k.name} {k.shape}, such as: {k.example}")
        for k in keywords.values()
        if k.required and named.isdisjoint((k.name, *k.instead)) and k.name != first
    ]
    if errors:
        raise ParamErrors(errors)
    return Values(file, found)


def _value(
    statement: Statement,
    keywords: Mapping[str, Keyword],
    program: str,
    found: Mapping[str, Sequence[tuple[Statement, Any]]],
) -> Any:
    keyword = keywords.get(statement.keyword) or ALWAYS.get(statement.keyword)
    of_language = statement.keyword in LANGUAGE or statement.keyword[0] in prmtext.CHARACTERS
    if keyword is None and of_language and statement.fault:
        raise statement.wrong(f"expected {statement.fault}")
    if keyword is None:
        known = [*keywords, *ALWAYS, *LANGUAGE]
        raise statement.wrong(f"{program} has no such parameter{did_you_mean(statement.keyword, known)}")
    if statement.fault:
        raise statement.wrong(f"expected {statement.fault}")
    if statement.keyword in found and not keyword.repeatable:
        raise statement.wrong(f"expected once, found again (first in line {found[statement.keyword][0][0].line})")
    return keyword.parse(statement)


def did_you_mean(word: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    """`; did you mean TABLE?`, or nothing if no known word is near."""
    from difflib import get_close_matches

    near = get_close_matches(word.upper(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


# --- parsers for keyword tables -------------------------------------------------------------------------------------


def nothing(statement: Statement) -> bool:
    """For a switch: no argument, the value is True."""
    if statement.words:
        raise statement.error("no argument")
    return True


def word(statement: Statement) -> str:
    """Exactly one word (or 'literal')."""
    if len(statement.words) != 1 or not isinstance(statement.words[0], str):
        raise statement.error("one word")
    return statement.words[0]


def text(statement: Statement) -> str:
    """The whole argument as written, such as a URL; never empty."""
    if not statement.text:
        raise statement.error("an argument")
    only = statement.words[0] if len(statement.words) == 1 else None
    return str(only) if isinstance(only, Literal) else statement.text


def number(low: int, high: int) -> Parser:
    """A parser for one whole number within [low, high]."""

    def parse(statement: Statement) -> int:
        return whole(statement, statement.words[0] if len(statement.words) == 1 else None, low, high)

    return parse


def whole(statement: Statement, item: Word | None, low: int, high: int) -> int:
    """`item`, one word of the statement, as a whole number within [low, high]."""
    if isinstance(item, str) and item.isascii() and item.isdecimal() and len(item) <= 18 and low <= int(item) <= high:
        return int(item)
    raise statement.error(f"a whole number from {low} to {high}")


def group(statement: Statement) -> str:
    """A group's name, upper case."""
    from trails.runtime.home.home import group_name

    try:
        return group_name(word(statement))
    except OperatorError as error:
        raise statement.wrong(error.message) from None


def pattern(statement: Statement) -> Pattern:
    """One table pattern: schema.table, with wildcards."""
    return table_pattern(statement, statement.words[0] if len(statement.words) == 1 else None)


def table_pattern(statement: Statement, item: Word | None) -> Pattern:
    """`item`, one word of the statement, as a table pattern."""
    if isinstance(item, str) and not isinstance(item, Literal):
        try:
            return Pattern(item)
        except ValueError as error:
            raise statement.error(str(error), item) from None
    raise statement.error("schema.table, such as sales.*")


# --- table names ----------------------------------------------------------------------------------------------------

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


@dataclass(frozen=True, slots=True)
class Pattern:
    """`schema.table` as written in TABLE and MAP. Unquoted parts fold to lower case and may hold * and ?.

    Raises ValueError (what was expected) if the text is no such name.
    """

    text: str
    parts: tuple[tuple[str, bool], ...] = field(init=False, compare=False)  # (name, was quoted): schema, table
    _schema: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _table: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = _parts(self.text)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "_schema", _regex(*parts[0]))
        object.__setattr__(self, "_table", _regex(*parts[1]))

    def __str__(self) -> str:
        return self.text

    def matches(self, schema: str, name: str) -> bool:
        """Whether the table `schema.name`, as the database spells it, is meant."""
        return bool(self._schema.fullmatch(schema) and self._table.fullmatch(name))

    @property
    def exact(self) -> tuple[str, str] | None:
        """(schema, table) if there is no wildcard in it, else None."""
        if any(not quoted and ("*" in name or "?" in name) for name, quoted in self.parts):
            return None
        return self.parts[0][0], self.parts[1][0]

    def covers(self, other: Pattern) -> bool:
        """Whether every table that `other` matches, existing or not, is matched by this pattern too."""
        return all(wildcards.covers(wide, narrow) for wide, narrow in zip(self._globs(), other._globs(), strict=True))

    def _globs(self) -> list[wildcards.Glob]:
        return [wildcards.glob(name, quoted) for name, quoted in self.parts]

    def fill(self, schema: str, name: str) -> tuple[str, str]:
        """As a MAP target: in each part `*` stands for the source's whole name, in quotes for itself."""
        (s, s_quoted), (t, t_quoted) = self.parts
        return (s if s_quoted else s.replace("*", schema)), (t if t_quoted else t.replace("*", name))

    @property
    def is_target(self) -> bool:
        """Whether `fill` can be used: at most one `*` in each part, and no `?`."""
        return all(quoted or (part.count("*") < 2 and "?" not in part) for part, quoted in self.parts)


def narrowest(patterns: Sequence[Pattern]) -> list[int]:
    """Of patterns that all match one table, the indexes of those that no narrower one beats.

    An exact name beats wildcards, a narrower wildcard a wider one that covers it. Several are left if some are equal
    in what they match, or if wildcards merely overlap: then `patterns[a].covers(patterns[b])` is false for some pair.
    """
    return [
        i
        for i, wide in enumerate(patterns)
        if not any(wide.covers(narrow) and not narrow.covers(wide) for narrow in patterns)
    ]


def _parts(text: str) -> tuple[tuple[str, bool], ...]:
    parts: list[tuple[str, bool]] = []
    at = 0
    while match := _PART.match(text, at):
        quoted = match[1] is not None
        parts.append((match[1].replace('""', '"') if quoted else match[2].lower(), quoted))
        at = match.end() + 1
        if match.end() >= len(text) or text[match.end()] != ".":
            break
    if len(parts) != 2 or at != len(text) + 1:
        raise ValueError('schema.table, such as sales.* or sales."Orders"')
    return tuple(parts)


def _regex(name: str, quoted: bool) -> re.Pattern[str]:
    if quoted:
        return re.compile(re.escape(name))
    first, *parts = ["".join("." if c == "?" else re.escape(c) for c in part) for part in name.split("*")]
    if not parts:
        return re.compile(first, re.DOTALL)
    # The first place that fits a part is as good as any other, so there is no way back: names may be of any length.
    inner = "".join(f"(?>.*?{part})" for part in parts[:-1] if part)
    return re.compile(f"{first}{inner}.*{parts[-1]}", re.DOTALL)


# --- keywords of all programs ---------------------------------------------------------------------------------------


def _set_variable(statement: Statement) -> tuple[str, str]:
    match = prmtext.SETENV.match(statement.text)
    if match is None:
        raise statement.error("(NAME = value)")
    return match[1], next((value for value in match.groups()[1:] if value is not None), "").strip()


def _variable(statement: Statement) -> str:
    name = statement.words[0] if len(statement.words) == 1 else ""
    name = name[0] if isinstance(name, Group) and len(name) == 1 else name
    if not isinstance(name, str) or not name.isidentifier():
        raise statement.error("one (NAME)")
    return name


ALWAYS = table(
    Keyword(
        "SETENV", "(NAME = value)",
        "Set an environment variable of the process; `?NAME` in later lines stands for its value.",
        "SETENV (REGION = eu)", _set_variable, repeatable=True,
    ),
    Keyword(
        "GETENV", "(NAME)", "Write an environment variable to the report.", "GETENV (REGION)", _variable,
        repeatable=True,
    ),
)  # fmt: skip
"""Parameters that every file may hold, whatever its program."""

LANGUAGE = table(
    Keyword(
        "INCLUDE", "file",
        "Read the lines of another file here, such as a library of macros. Such files may include others, 16 deep. "
        "The path begins at the home.",
        "INCLUDE ./dirprm/library.inc", nothing, repeatable=True,
    ),
    Keyword(
        "OBEY", "file", "The parameters of another file stand here. A file that is obeyed obeys no other.",
        "OBEY ./dirprm/common.prm", nothing, repeatable=True,
    ),
    Keyword(
        "MACRO", "#name [PARAMS (#p1, ...)] BEGIN body END;",
        "Define a macro; `#name (value, ...)`, anywhere outside quotes, is replaced by its body. Macros may call "
        "others, 16 deep.",
        "MACRO #to PARAMS (#schema) BEGIN TARGET #schema.* END;", nothing, repeatable=True,
    ),
    Keyword(
        "MACROCHAR", "character", "Another character than `#` for macros, from here on.", "MACROCHAR $", nothing,
        repeatable=True,
    ),
    Keyword("LIST", "", "Show the lines that follow in the report, after NOLIST.", "LIST", nothing, repeatable=True),
    Keyword("NOLIST", "", "Leave the lines that follow out of the report.", "NOLIST", nothing, repeatable=True),
    Keyword(
        "CMDTRACE", "{ON | OFF | DETAIL}",
        "Show in the report what macros became. DETAIL shows each line of each macro on its way.",
        "CMDTRACE ON", nothing, repeatable=True,
    ),
)  # fmt: skip
"""Words of the language itself, obeyed while a file is read; a program's table meets them only when they are wrong."""

CHECKPOINT_SECONDS = 10
COMMON = table(
    Keyword(
        "CHECKPARAMS", "",
        "Only check: report every mistake of this file, also against the database, and stop. Nothing is captured, sent "
        "or applied.",
        "CHECKPARAMS", nothing,
    ),
    Keyword(
        "COMMENT", "text",
        "A comment, as is everything after `--`.",
        "COMMENT orders and customers", text, repeatable=True,
    ),
    Keyword(
        "CHECKPOINTSECS", "n",
        f"Save the checkpoint file every n seconds, 1 to 3600; {CHECKPOINT_SECONDS} if not given.",
        "CHECKPOINTSECS 10", number(1, 3600),
    ),
)  # fmt: skip
"""Keywords that every group's program takes; a program's table is `COMMON | table(...)`."""
