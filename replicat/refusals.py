"""REPERROR and DISCARDFILE: what the parameter file says is to become of a change that the target refuses.

Rule: the first REPERROR with exactly this SQLSTATE counts, then the first with DEFAULT, then ABEND. What GoldenGate
knows beyond that is refused by name: an action that is not obeyed would skip, or keep, what the operator did not mean.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from trails.runtime import params
from trails.runtime.params import Group, Statement

ABEND = "ABEND"
DISCARD = "DISCARD"
DEFAULT = "DEFAULT"
DEFAULT_MEGABYTES = 50
MOST_MEGABYTES = 2047
FOLDERS = ("dirdsc", "dirrpt")
SUFFIX = ".dsc"

_ACTIONS = (ABEND, DISCARD)
_NOT_YET = ("EXCEPTION", "IGNORE", "RETRYOP", "TRANSABORT", "TRANSDISCARD", "TRANSEXCEPTION")
_SQLSTATE = re.compile(r"[0-9A-Z]{5}\Z")


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """One REPERROR: `code` is a SQLSTATE or DEFAULT."""

    code: str
    action: str


@dataclass(frozen=True, slots=True)
class DiscardSetting:
    """DISCARDFILE. `path` lies in the home; empty for the group's own."""

    path: str = ""
    purge: bool = False
    megabytes: int = DEFAULT_MEGABYTES


def action_of(rules: Sequence[ErrorRule], sqlstate: str) -> str:
    """What the rules say of an error."""
    for code in (sqlstate, DEFAULT):
        for rule in rules:
            if rule.code == code:
                return rule.action
    return ABEND


def error_rule(statement: Statement) -> ErrorRule:
    """REPERROR (code, action)."""
    words = statement.words[0] if len(statement.words) == 1 else None
    if statement.text.upper() == "RESET":
        raise statement.wrong("RESET is not supported yet")
    if not isinstance(words, Group) or len(words) < 2:
        raise statement.error(f"({DEFAULT} | SQLSTATE, {ABEND} | {DISCARD})")
    code, action = (str(word).upper() for word in words[:2])
    if action in _NOT_YET:
        raise statement.wrong(f"action {action} is not supported yet; expected {ABEND} or {DISCARD}")
    if len(words) > 2 or action not in _ACTIONS:
        raise statement.error(f"({DEFAULT} | SQLSTATE, {ABEND} | {DISCARD})")
    if code == "DEFAULT2":
        raise statement.wrong("DEFAULT2 is not supported yet; expected DEFAULT or a SQLSTATE")
    if code != DEFAULT and not _SQLSTATE.match(code):
        raise statement.error("DEFAULT or a SQLSTATE of five characters, such as 23514", words[0])
    return ErrorRule(code, action)


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
