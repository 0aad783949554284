"""REPERROR and DISCARDFILE: what the parameter file says is to become of a change that the target refuses.

Rule: the first rule with exactly this error's SQLSTATE, or the database's own number or name of it, counts; then the
first with DEFAULT; then ABEND. An EXCEPTION of a table that has no exceptions MAP is DEFAULT2's, else ABEND.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from replicat.model.target import NO_ROW
from trails.errors import ParamError
from trails.runtime.language import params
from trails.runtime.language.params import Statement

ABEND = "ABEND"
DISCARD = "DISCARD"
EXCEPTION = "EXCEPTION"
IGNORE = "IGNORE"
RETRYOP = "RETRYOP"
TRANSABORT = "TRANSABORT"
TRANSDISCARD = "TRANSDISCARD"
TRANSEXCEPTION = "TRANSEXCEPTION"
ACTIONS = (ABEND, DISCARD, EXCEPTION, IGNORE, RETRYOP, TRANSABORT, TRANSDISCARD, TRANSEXCEPTION)
TO_FILE = (DISCARD, TRANSDISCARD)
TO_TABLE = (EXCEPTION, TRANSEXCEPTION)
GIVES_UP = (*TO_FILE, *TO_TABLE, IGNORE)

DEFAULT = "DEFAULT"
DEFAULT2 = "DEFAULT2"
RESET = "RESET"
GOLDENGATE = {
    "-1": "23505", "1403": NO_ROW, "-1403": NO_ROW, "-1400": "23502", "-1407": "23502", "-2290": "23514",
    "-2291": "23503", "-2292": "23503", "-1438": "22003", "-1401": "22001", "-12899": "22001",
}  # fmt: skip
"""Numbers of errors in files that were written for GoldenGate, and the SQLSTATE that each stands for."""

DEFAULT_MEGABYTES = 50
MOST_MEGABYTES = 2047
FOLDERS = ("dirdsc", "dirrpt")
SUFFIX = ".dsc"
DEFAULT_RETRIES = 3
MOST_RETRIES = 10_000
DEFAULT_DELAY_MS = 1000
MOST_DELAY_MS = 24 * 3600 * 1000
MOST_RETRYOP_DELAY_MS = 60 * 1000

SHAPE = "(DEFAULT | DEFAULT2 | SQLSTATE | error number or name, action)"
CODE = re.compile(r"[0-9A-Z]{5}\Z|[0-9]{1,9}\Z|[A-Z]{2,10}_[A-Z0-9_]{1,60}\Z")
"""A SQLSTATE, or a database's own number or name of an error."""
_WORDS = re.compile(r"'(?:[^']|'')*'|[^\s,()']+|[,()]|\S")


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """One REPERROR: `code` is a SQLSTATE, the database's own number or name of an error, DEFAULT or DEFAULT2.

    `retries`, `delay_ms`: of RETRYOP and TRANSABORT, how often and after how long the same is tried again.
    """

    code: str
    action: str
    retries: int = 0
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class DiscardSetting:
    """DISCARDFILE. `path` lies in the home; empty for the group's own."""

    path: str = ""
    purge: bool = False
    megabytes: int = DEFAULT_MEGABYTES


def rule_for(rules: Sequence[ErrorRule], sqlstate: str, code: str = "", *, exceptions: bool = True) -> ErrorRule:
    """What the rules say of an error. `exceptions`: whether the change has an exceptions table to go to."""
    found = _first(rules, [sqlstate, code]) or _first(rules, [DEFAULT]) or ErrorRule(DEFAULT, ABEND)
    if found.action in TO_TABLE and not exceptions:
        second = _first(rules, [DEFAULT2])
        return second if second is not None and second.action not in TO_TABLE else ErrorRule(DEFAULT2, ABEND)
    return found


def _first(rules: Sequence[ErrorRule], codes: Sequence[str]) -> ErrorRule | None:
    wanted = {code.upper() for code in codes if code}
    return next((rule for rule in rules if rule.code in wanted), None)


def needs_discard_file(rules: Sequence[ErrorRule]) -> bool:
    """Whether some rule writes to the discard file."""
    return any(rule.action in TO_FILE for rule in rules)


def error_rule(statement: Statement) -> ErrorRule:
    """REPERROR (code, action), or REPERROR RESET: then the code is RESET, and all rules before it are forgotten."""
    if statement.text.strip().upper() == RESET:
        return ErrorRule(RESET, ABEND)
    return rule_of_text(statement.text, statement.error)


def rule_of_text(text: str, error: Callable[[str, object], ParamError]) -> ErrorRule:
    """`(code, action)`, or the same without parentheses, as it stands behind REPERROR, also inside a MAP.
    `error(expected, found)` makes the mistake.
    """
    words = [word for word in _WORDS.findall(text) if word != ","]
    if words[:1] == ["("] and words[-1] == ")":
        words = words[1:-1]
    if len(words) < 2 or "(" in words or ")" in words:
        raise error(SHAPE, text)
    code, action, *rest = (word.strip("'").upper() for word in words)
    code = GOLDENGATE.get(code, code)
    if code not in (DEFAULT, DEFAULT2) and not CODE.match(code):
        raise error("DEFAULT, DEFAULT2, a SQLSTATE of five characters such as 23514, or a database's error", words[0])
    if action not in ACTIONS:
        raise error(f"one of {', '.join(ACTIONS)}{params.did_you_mean(action, ACTIONS)}", words[1])
    if action not in (RETRYOP, TRANSABORT):
        if rest:
            raise error(f"nothing behind {action}", " ".join(rest))
        return ErrorRule(code, action)
    return _with_retries(code, action, rest, error)


def _with_retries(code: str, action: str, rest: list[str], error: Callable[[str, object], ParamError]) -> ErrorRule:
    """MAXRETRIES n [DELAYSECS n | DELAYCSECS n]."""
    values: dict[str, int] = {}
    units = {"MAXRETRIES": 1, "DELAYSECS": 1000, "DELAYCSECS": 10}
    # RETRYOP waits with the target's transaction open, and rows locked in it.
    longest = MOST_DELAY_MS if action == TRANSABORT else MOST_RETRYOP_DELAY_MS
    bounds = {"MAXRETRIES": MOST_RETRIES, "DELAYSECS": longest // 1000, "DELAYCSECS": longest // 10}
    shape = f"{action} [MAXRETRIES n] [, DELAYSECS n | DELAYCSECS n]"
    while rest:
        name, number = rest.pop(0), rest.pop(0) if rest else ""
        kind = "DELAY" if name.startswith("DELAY") else name
        if name not in units or kind in values:
            raise error(shape, name)
        if not (number.isascii() and number.isdecimal() and int(number[:10]) <= bounds[name]):
            raise error(f"a whole number up to {bounds[name]} behind {name}", number)
        values[kind] = int(number) * units[name]
    return ErrorRule(code, action, values.get("MAXRETRIES", DEFAULT_RETRIES), values.get("DELAY", DEFAULT_DELAY_MS))


def accumulate(rules: tuple[ErrorRule, ...], rule: ErrorRule) -> tuple[ErrorRule, ...]:
    """The global rules in force behind one more REPERROR; a later one for the same code replaces the earlier."""
    if rule.code == RESET:
        return ()
    return (*(old for old in rules if old.code != rule.code), rule)


def discard_setting(statement: Statement) -> DiscardSetting:
    """DISCARDFILE file [, APPEND | PURGE] [, MEGABYTES n]."""
    words = list(statement.words)
    path = _path(statement, words.pop(0) if words else "")
    modes: list[str] = []
    megabytes: int | None = None
    while words:
        word = str(words.pop(0)).upper()
        if word in ("APPEND", "PURGE"):
            modes.append(word)
        elif word == "MEGABYTES" and megabytes is None:
            megabytes = params.whole(statement, words.pop(0) if words else None, 1, MOST_MEGABYTES)
        else:
            raise statement.error("file [, APPEND | PURGE] [, MEGABYTES n]")
    if len(modes) > 1:
        raise statement.error("one of APPEND and PURGE")
    return DiscardSetting(path, modes == ["PURGE"], megabytes or DEFAULT_MEGABYTES)


def _path(statement: Statement, word: object) -> str:
    """A discard file is appended to and renamed: it must not be able to hit a trail, a log or a parameter file."""
    path = os.path.normpath(word) if isinstance(word, str) and word else ""
    folder, name = os.path.split(path)
    if folder not in FOLDERS or not name.endswith(SUFFIX) or name.startswith("."):
        raise statement.error(
            f"a file *{SUFFIX} in the home's ./{FOLDERS[0]} or ./{FOLDERS[1]}, such as ./dirdsc/REP1.dsc",
            word if isinstance(word, str) and word else None,
        )
    return path
