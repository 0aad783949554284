"""Lines -> statements, still as text: one parameter a line, `&` goes on, TABLE and MAP end with `;`, a list may.

Rule: what matters for where a statement ends is known of each line by itself: strings (and strings that never close),
comments, the semicolon, parentheses. Each line is looked at once, so the time a file takes grows with its length only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trails.runtime.language.prmtext import LISTS, UNTIL_SEMICOLON, Line

_TOKEN = re.compile(
    r"""(?P<string>'(?:[^'\n]|'')*'|"(?:[^"\n]|"")*")|(?P<open>['"])|(?P<comment>(?:(?<=\s)|^)--.*)"""
    r"""|(?P<url>\b[A-Za-z][A-Za-z0-9+.-]{0,40}://\S*[^\s;])|(?P<end>;)|(?P<par>[()])""",
    re.MULTILINE,
)
KEYWORD = re.compile(r"\s*([^\s,;()'\"]+)")


@dataclass(slots=True)
class Raw:
    """A statement as lines of text, before its arguments are parsed. `numbers`: one for each line of `text`."""

    keyword: str
    file: str
    line: int
    via: str = ""
    text: str = ""
    fault: str = ""
    numbers: list[int] = field(default_factory=list)

    def add(self, scanned: _Scanned, text: str) -> None:
        """One more line; a line of another file (INCLUDE) counts as the statement's own first."""
        self.text += text
        self.numbers.append(scanned.line.number if scanned.line.file == self.file else self.line)
        self.fault = self.fault or scanned.line.fault or scanned.fault


@dataclass(slots=True)
class _Scanned:
    """A line, its first word, its text without comment and from `;` on, what follows the `;`, and its parentheses."""

    line: Line
    word: str
    text: str
    rest: str | None
    fault: str
    depth: int


def split(lines: Sequence[Line]) -> Iterator[Raw]:
    """Cut lines into statements."""
    scanned = [_scan(line) for line in lines]
    last_end = max((at for at, each in enumerate(scanned) if each.rest is not None), default=-1)
    at = 0
    while at < len(scanned):
        first = scanned[at]
        if not first.word or first.word == "COMMENT" or first.word.startswith("--"):
            at += 1
            continue
        raw = Raw(first.word, first.line.file, first.line.number, first.line.via)
        if first.word in LISTS:
            at = _list(raw, scanned, at)
        elif first.word in UNTIL_SEMICOLON:
            at = _until_semicolon(raw, scanned, at, last_end)
        else:
            at = _one_line(raw, scanned, at)
        yield raw


def _one_line(raw: Raw, scanned: Sequence[_Scanned], at: int) -> int:
    """A statement of one line, and of those that `&` adds. Returns the next line's index."""
    while at < len(scanned):
        each = scanned[at]
        at += 1
        more = each.text.rstrip().endswith("&")
        raw.add(each, each.text.rstrip()[:-1] + "\n" if more else each.text)
        raw.fault = raw.fault or ("no ';' after this parameter" if each.rest is not None else "")
        if not more:
            return at
    raw.fault = raw.fault or "a line after '&', found the end of the file"
    return at


def _list(raw: Raw, scanned: Sequence[_Scanned], at: int) -> int:
    """A list of tables: up to its `;`, or without one as far as commas and `&` lead. Returns the next line's index."""
    goes_on = True
    while at < len(scanned) and (goes_on or scanned[at].word in (",", ";")):
        each = scanned[at]
        at += 1
        text = each.text.strip()
        raw.add(each, text.removesuffix("&") + "\n")
        if each.rest is not None:
            raw.fault = raw.fault or _behind(each.rest)
            return at
        if text:
            goes_on = text.endswith((",", "&")) or text.upper() == raw.keyword
    return at


def _behind(rest: str) -> str:
    """The fault of what stands behind a `;`."""
    return f"a new line after ';', found {rest!r}" if rest else ""


def _until_semicolon(raw: Raw, scanned: Sequence[_Scanned], start: int, last_end: int) -> int:
    """A statement up to its `;`. Where that is missing only its first line is taken, so what follows is checked too."""
    depth = 0
    for at in range(start, last_end + 1):
        each = scanned[at]
        if at > start and depth <= 0 and each.word in UNTIL_SEMICOLON | LISTS:
            break
        raw.add(each, each.text.rstrip().removesuffix("&") + "\n")
        depth += each.depth
        if each.rest is not None:
            raw.fault = raw.fault or _behind(each.rest)
            return at + 1
    fault = raw.fault
    raw.text, raw.numbers, raw.fault = "", [], ""
    raw.add(scanned[start], scanned[start].text)
    raw.fault = fault or raw.fault or "';' at its end, found none"
    return start + 1


def _scan(line: Line) -> _Scanned:
    match = KEYWORD.match(line.text)
    word = match[1].upper() if match else line.text.strip()[:1]
    text, rest, fault = _cut(line.text)
    depth = sum({"(": 1, ")": -1}.get(m[0], 0) for m in _TOKEN.finditer(text))
    return _Scanned(line, word, text, rest, fault, depth)


def _cut(text: str) -> tuple[str, str | None, str]:
    """(the line without comment and from `;` on, what follows the `;` or None, fault)."""
    for match in _TOKEN.finditer(text):
        if match["open"]:
            return text[: match.start()], None, f"a closing {match['open']}, found the end of the line"
        if match["comment"]:
            return text[: match.start()], None, ""
        if match["end"]:
            behind = text[match.end() :].strip()
            return text[: match.start()], "" if behind.startswith("--") else behind, ""
    return text, None, ""
