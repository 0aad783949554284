"""The text of a MAP cut at its top level: words, groups in parentheses, and what commas part, each with its place.

Rule: what stands inside quotes or deeper parentheses is never looked at, as an expression may be any text; and every
piece knows its line, so that a mistake in the seventh line of a MAP is told there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trails.errors import ParamError
from trails.runtime.language.params import Statement
from trails.runtime.masking import mask, mask_parameters

_TOKEN = re.compile(
    r"""(?P<blank>\s+)|(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`)|(?P<unclosed>['"`])"""
    r"""|(?P<open>\()|(?P<close>\))|(?P<comma>,)|(?P<word>[^\s,()'"`]+)"""
)
_NAME = re.compile(r'"(?:[^"]|"")+"|`(?:[^`]|``)+`|[^\s,()\'"`=]+')
_ASSIGNMENT = re.compile(rf"({_NAME.pattern})\s*=(.*)", re.DOTALL)
LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of a statement: `text`, and the offset at which it begins there."""

    statement: Statement
    text: str
    at: int = 0

    @property
    def line(self) -> int:
        """The line in which it begins."""
        return self.statement.line_at(self.at)

    @property
    def where(self) -> str:
        """file:line, for messages."""
        return f"{self.statement.file}:{self.line}"

    def wrong(self, message: str) -> ParamError:
        """A mistake at this place."""
        return ParamError(f"{self.where}: {self.statement.keyword}: {mask(message)}")

    def expected(self, what: str, found: str | None = None) -> ParamError:
        """What was expected here, and what stands here."""
        shown = " ".join(mask_parameters(self.text if found is None else found).split())
        if len(shown) > LONGEST_SHOWN:
            shown = shown[: LONGEST_SHOWN - 3] + "..."
        return self.wrong(f"expected {what}, found {repr(shown) if shown else 'nothing'}")

    def part(self, start: int, end: int) -> Clause:
        """The text from `start` to `end` without blanks around it."""
        text = self.text[start:end]
        lead = len(text) - len(text.lstrip())
        return Clause(self.statement, text.strip(), self.at + start + (lead if text.strip() else 0))

    def items(self) -> list[Clause]:
        """What commas part; nothing between two commas is no item. ParamError if parentheses don't match."""
        found: list[Clause] = []
        begin = 0
        reader = ClauseReader(self)
        for kind, start, end in reader.tokens():
            if kind == "comma":
                found.append(self.part(begin, start))
                begin = end
        found.append(self.part(begin, len(self.text)))
        return [item for item in found if item.text]

    def name(self) -> str:
        """The whole text as one name, quotes kept."""
        if not _NAME.fullmatch(self.text):
            raise self.expected("a column name")
        return self.text

    def names(self) -> tuple[str, ...]:
        """A list of at least one column name, none twice."""
        found: list[str] = []
        for item in self.items():
            name = item.name()
            if name in found:
                raise item.wrong(f"column {name} is named twice")
            found.append(name)
        if not found:
            raise self.expected("(column, ...)", "()")
        return tuple(found)

    def assignment(self) -> tuple[str, Clause]:
        """`column = expression`."""
        match = _ASSIGNMENT.fullmatch(self.text)
        if match is None:
            raise self.expected("column = expression")
        value = self.part(*match.span(2))
        if not value.text:
            raise self.expected(f"an expression behind {match[1]} =")
        return match[1], value


class ClauseReader:
    """Reads a clause from its front, a word or a group at a time."""

    def __init__(self, clause: Clause) -> None:
        self._clause = clause
        self._at = 0

    def tokens(self) -> Iterator[tuple[str, int, int]]:
        """(kind, start, end) at top level; a group is one token."""
        while (token := self._token()) is not None:
            yield token

    def rest_is_empty(self) -> bool:
        """Whether only blanks and commas are left; they are skipped."""
        text = self._clause.text
        while self._at < len(text) and (text[self._at].isspace() or text[self._at] == ","):
            self._at += 1
        return self._at == len(text)

    def word(self) -> Clause | None:
        """The next word, quoted parts of it included; None if something else, or nothing, comes next."""
        self.rest_is_empty()
        begin = at = self._at
        while (match := _TOKEN.match(self._clause.text, at)) and match.lastgroup in ("word", "quoted"):
            at = match.end()
        if at == begin:
            return None
        self._at = at
        return self._clause.part(begin, at)

    def group(self) -> Clause | None:
        """What the parentheses that come next hold, None if none come next."""
        begin = self._at
        text = self._clause.text
        while begin < len(text) and text[begin].isspace():
            begin += 1
        if not text.startswith("(", begin):
            return None
        self._at = begin
        token = self._token()
        assert token is not None
        return self._clause.part(token[1] + 1, token[2] - 1)

    def stray(self) -> Clause:
        """What comes next, to be named in a message; it is skipped."""
        self.rest_is_empty()
        begin = self._at
        token = self._token()
        return self._clause.part(begin, token[2] if token else begin)

    def _token(self) -> tuple[str, int, int] | None:
        """The next token; a group is one, from `(` to `)`."""
        begin, depth = self._at, 0
        while (match := _TOKEN.match(self._clause.text, self._at)) is not None:
            self._at = match.end()
            kind = str(match.lastgroup)
            here = self._clause.part(match.start(), match.end())
            if kind == "unclosed":
                self._at = len(self._clause.text)
                raise here.wrong(f"expected a closing {match[0]}, found the end")
            depth += {"open": 1, "close": -1}.get(kind, 0)
            if depth < 0:
                raise here.wrong("expected no ')' here: no '(' belongs to it")
            if depth == 0:
                return ("group" if kind == "close" else kind), begin, self._at
        if depth:
            raise self._clause.part(begin, begin + 1).wrong("expected ')' to this '(', found the end")
        return None
