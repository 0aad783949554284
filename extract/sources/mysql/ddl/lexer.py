"""The words of a statement: comments taken out, those for this server left in, quotes by the session's sql_mode.

Rule: a text is cut as the server that wrote it into its log did, or it is an UnreadError. So a version comment counts
where this server ran it, and what it did not run is not there.

    /* ... */, # ..., -- ...      left out
    /*! ... */, /*!80011 ... */   words, where the server's version is as high; MariaDB leaves out 50700 to 99999
    /*M! ... */, /*M!100600 */    words on MariaDB, a comment on MySQL
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final, NamedTuple

from extract.sources.mysql.flavour import Flavour
from trails.controlflow import ControlFlowError

ANSI_QUOTES: Final = 0x4
NO_BACKSLASH_ESCAPES: Final = 0x100000
LONGEST: Final = 4 << 20
"""A longer statement is not read: a table of 4096 columns with all their comments is shorter."""
_LONG: Final = 40
_ONLY_MYSQL: Final = range(50700, 100000)
_VERSION: Final = re.compile(r"\d{5,6}")
_MARK: Final = re.compile(r"/\*|\*/")
_ESCAPE: Final = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPE_DOUBLE: Final = re.compile(r'\\(.)|""', re.DOTALL)
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


class UnreadError(ControlFlowError):
    """The statement is not understood; the message says what was expected, and what stood there."""


class WordKind(Enum):
    """What a token is."""

    WORD = "a word"
    NAME = "a name in quotes"
    STRING = "a string"
    NUMBER = "a number"
    BITS = "a literal of bits or bytes"
    SIGN = "a sign"
    END = "the end"


class Word(NamedTuple):
    """One token. `text`: a word as written, a name or string without its quotes, anything else as written."""

    kind: WordKind
    text: str
    at: int

    @property
    def told(self) -> str:
        """For people: what a literal holds is not told, as others read logs."""
        if self.kind in (WordKind.STRING, WordKind.NUMBER, WordKind.BITS):
            return str(self.kind.value)
        return repr(self.text if len(self.text) <= _LONG else f"{self.text[:_LONG]}...")


@dataclass(frozen=True, slots=True)
class StatementDialect:
    """How the server read the text. `version`: as its comments write it, such as 80012 or 101106."""

    flavour: Flavour
    version: int
    sql_mode: int = 0

    @property
    def ansi_quotes(self) -> bool:
        """Double quotes hold names."""
        return bool(self.sql_mode & ANSI_QUOTES)

    @property
    def backslashes(self) -> bool:
        """A backslash in a string stands for itself only when doubled."""
        return not self.sql_mode & NO_BACKSLASH_ESCAPES

    def runs(self, version: int, *, marias: bool) -> bool:
        """Whether the server runs what a version comment holds; `marias`: it begins with /*M!."""
        if self.flavour is Flavour.MYSQL:
            return not marias and version <= self.version
        return version <= self.version and (marias or version not in _ONLY_MYSQL)


@cache
def _scanner(*, ansi: bool, backslashes: bool) -> re.Pattern[str]:
    escaped = r"\\." if backslashes else r"\\"
    single = rf"'(?:[^'\\]|{escaped}|'')*'"
    double = r'"(?:[^"]|"")*"' if ansi else rf'"(?:[^"\\]|{escaped}|"")*"'
    parts = [
        r"(?P<space>[\s\x00]+|#[^\n]*|--(?=[\s\x00]|\Z)[^\n]*)",
        r"(?P<open>/\*)",
        r"(?P<bits>0x[0-9a-fA-F]+(?![\w$])|0b[01]+(?![\w$])|[xX]'[0-9a-fA-F]*'|[bB]'[01]*')",
        r"(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![0-9A-Za-z$_\x80-\U0010ffff]))",
        rf"(?P<string>{single}{'' if ansi else '|' + double})",
        rf"(?P<name>`(?:[^`]|``)*`{'|' + double if ansi else ''})",
        r"(?P<word>[0-9A-Za-z$_\x80-\U0010ffff]+)",
        r"(?P<close>\*/)",
        r"(?P<sign><=>|<<|>>|<>|!=|<=|>=|:=|\|\||&&|->>|->|[-+*/%=<>!~^&|(),.;:?{}\[\]@])",
    ]
    return re.compile("|".join(parts), re.DOTALL)


_KINDS: Final = {
    "bits": WordKind.BITS, "number": WordKind.NUMBER, "word": WordKind.WORD, "sign": WordKind.SIGN,
    "string": WordKind.STRING, "name": WordKind.NAME,
}  # fmt: skip


def tokens(text: str, dialect: StatementDialect) -> list[Word]:
    """All of them, with an END behind the last one."""
    if len(text) > LONGEST:
        raise UnreadError(f"the statement has {len(text)} characters, more than {LONGEST}")
    found = [Word(_KINDS[what], _value(what, raw, dialect), at) for what, raw, at in _pieces(text, dialect)]
    return [*found, Word(WordKind.END, "", len(text))]


def hidden(text: str, dialect: StatementDialect) -> str:
    """A statement as others may read it: '...' for each string, ... for each number and literal of bits, no comment.

    It ends with ... where it can't be read further, or is longer than a statement is read.
    """
    out, behind = "", 0
    try:
        for what, raw, at in _pieces(text[:LONGEST], dialect):
            # Nothing of what stood between two pieces is told: blanks and comments are one blank.
            out += " " if at > behind and out else ""
            out += "'...'" if what == "string" else "..." if what in ("number", "bits") else raw
            behind = at + len(raw)
    except UnreadError:
        return f"{out} ...".lstrip()
    return out


def _pieces(text: str, dialect: StatementDialect) -> Iterator[tuple[str, str, int]]:
    """(kind, text as written, place) of all that is neither blank nor comment."""
    scan = _scanner(ansi=dialect.ansi_quotes, backslashes=dialect.backslashes).match
    at, depth, end = 0, 0, len(text)
    while at < end:
        match = scan(text, at)
        if match is None:
            raise UnreadError(f"a word or a sign was expected at character {at}")
        what = match.lastgroup or ""
        if what == "space":
            at = match.end()
        elif what == "open":
            at, opened = _comment(text, at, dialect)
            depth += opened
        elif what == "close" and depth:
            depth -= 1
            at = match.end()
        elif what == "close":  # a star and a slash, with nothing open
            yield "sign", "*", at
            at += 1
        else:
            yield what, match[0], at
            at = match.end()


def _value(what: str, text: str, dialect: StatementDialect) -> str:
    if what == "name":
        return text[1:-1].replace(text[0] * 2, text[0])
    if what != "string":
        return text
    inside, quote = text[1:-1], text[0]
    if not dialect.backslashes:
        return inside.replace(quote * 2, quote)
    escape = _ESCAPE if quote == "'" else _ESCAPE_DOUBLE
    return escape.sub(lambda found: quote if found[1] is None else _ESCAPES.get(found[1], found[1]), inside)


def _comment(text: str, at: int, dialect: StatementDialect) -> tuple[int, int]:
    """Where to read on, and 1 if what follows is a version comment's inside."""
    marias = text.startswith("M!", at + 2)
    if marias or text.startswith("!", at + 2):
        at += 4 if marias else 3
        version = _VERSION.match(text, at)
        at = version.end() if version else at
        if dialect.runs(int(version[0]) if version else 0, marias=marias):
            return at, 1
    else:
        at += 2
    return _behind(text, at), 0


def _behind(text: str, at: int) -> int:
    """The place behind a comment that is not run; it may hold others."""
    depth = 1
    for mark in _MARK.finditer(text, at):
        depth += 1 if mark[0] == "/*" and depth == 1 and _holds(text, at) else -1 if mark[0] == "*/" else 0
        if not depth:
            return mark.end()
    raise UnreadError("a comment without an end")


def _holds(text: str, at: int) -> bool:
    """Only in a version comment do comments nest."""
    return text[at - 1 : at].isdigit() or text[at - 1 : at] == "!"
