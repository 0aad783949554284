"""The rules in mgr.prm that are more than a number: for which groups or trails, how often, how long, which ports.

Rule: each is a frozen value and the parser of its statement; ManagerParams puts them together. Where options of one
rule exclude each other, the one that counts is GoldenGate's, and the other is named in `notes`, which the Manager logs.
"""

from __future__ import annotations

import fnmatch
import math
from dataclasses import dataclass

from trails.runtime.language import params
from trails.runtime.language.params import Statement

KINDS = {"ER": ("EXTRACT", "REPLICAT"), "EXTRACT": ("EXTRACT",), "REPLICAT": ("REPLICAT",)}
HOUR = 3600
MAX_PORTS = 5000

Ranges = tuple[tuple[int, int], ...]
"""Ports as (first, last), in the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Which groups a rule is for: `ER *`, `EXTRACT ext*`."""

    kinds: tuple[str, ...]
    pattern: str

    def matches(self, kind: str, name: str) -> bool:
        """Is this group meant?"""
        return kind in self.kinds and fnmatch.fnmatchcase(name, self.pattern)


@dataclass(frozen=True, slots=True)
class RestartRule:
    """AUTORESTART: for which groups, how many times within `reset_s`, and after which wait."""

    groups: GroupSpec
    retries: int = 2
    wait_s: float = 120
    reset_s: float = 1200


@dataclass(frozen=True, slots=True)
class PurgeRule:
    """PURGEOLDEXTRACTS: which trails, what stays of them however far the readers are, and how often to look.

    `min_hours` beats `min_files`; `keep` is what a kept file's reason names; `every_s` None: each CHECKMINUTES.
    """

    pattern: str
    min_files: int = 1
    min_hours: int = 0
    keep: str = "MINKEEPFILES 1"
    every_s: float | None = None
    notes: tuple[str, ...] = ()


# --- parsers ----------------------------------------------------------------------------------------------------------


def words(statement: Statement) -> list[str]:
    """The statement's words; parentheses are a mistake."""
    if not all(isinstance(word, str) for word in statement.words):
        raise statement.error("words without parentheses")
    return [str(word) for word in statement.words]


def _spec(statement: Statement, found: list[str]) -> GroupSpec:
    if len(found) < 2 or found[0].upper() not in KINDS:
        raise statement.error("ER, EXTRACT or REPLICAT and a group name, such as ER *")
    return GroupSpec(KINDS[found[0].upper()], found[1].upper())


def autostart(statement: Statement) -> GroupSpec:
    """AUTOSTART {ER | EXTRACT | REPLICAT} group."""
    found = words(statement)
    if len(found) > 2:
        raise statement.error("ER, EXTRACT or REPLICAT and one group name")
    return _spec(statement, found)


# Option -> (field of RestartRule, factor, least, most).
_RESTART = {
    "RETRIES": ("retries", 1, 0, 10_000),
    "WAITMINUTES": ("wait_s", 60, 0, 10_000),
    "WAITSECONDS": ("wait_s", 1, 0, 100_000),
    "RESETMINUTES": ("reset_s", 60, 1, 100_000),
    "RESETSECONDS": ("reset_s", 1, 1, 1_000_000),
}


def autorestart(statement: Statement) -> RestartRule:
    """AUTORESTART spec [, RETRIES n] [, WAITMINUTES n] [, RESETMINUTES n]."""
    found = words(statement)
    values: dict[str, int] = {}
    for name, value in _pairs(statement, found[2:]):
        if name not in _RESTART:
            raise statement.error("RETRIES n, WAITMINUTES n, WAITSECONDS n, RESETMINUTES n", name)
        key, factor, low, high = _RESTART[name]
        values[key] = params.whole(statement, value, low, high) * factor
    return RestartRule(_spec(statement, found), **values)


def _pairs(statement: Statement, found: list[str]) -> list[tuple[str, str]]:
    if len(found) % 2:
        raise statement.error("a number behind each option")
    return [(found[i].upper(), found[i + 1]) for i in range(0, len(found), 2)]


# Option -> (what it sets, factor, most).
_PURGE = {
    "MINKEEPFILES": ("files", 1, 1_000_000),
    "MINKEEPHOURS": ("hours", 1, 100_000),
    "MINKEEPDAYS": ("hours", 24, 10_000),
    "FREQUENCYSECONDS": ("every", 1, 1_000_000),
    "FREQUENCYMINUTES": ("every", 60, 100_000),
    "FREQUENCYHOURS": ("every", HOUR, 10_000),
}


def purge(statement: Statement) -> PurgeRule:
    """PURGEOLDEXTRACTS trail [, USECHECKPOINTS] [, MINKEEP... n] [, FREQUENCY... n]."""
    found = words(statement)
    if not found:
        raise statement.error("a trail such as ./dirdat/*")
    rest = [word for word in found[1:] if word.upper() != "USECHECKPOINTS"]
    if any(word.upper() == "NOUSECHECKPOINTS" for word in rest):
        raise statement.wrong("a file that a reader still needs is never purged, so NOUSECHECKPOINTS can't be had")
    last: dict[str, tuple[str, int]] = {}  # what is set -> (option as written, value); the last one counts
    unused = []
    for name, value in _pairs(statement, rest):
        if name not in _PURGE:
            raise statement.error(f"USECHECKPOINTS or one of {', '.join(_PURGE)} with a number", name)
        sets, factor, most = _PURGE[name]
        if sets in last:
            unused.append(last[sets][0])
        last[sets] = (f"{name} {value}", params.whole(statement, value, 1, most) * factor)
    if "hours" in last and "files" in last:
        unused.append(last.pop("files")[0])
    return PurgeRule(
        found[0],
        min_files=last.get("files", ("", 1))[1],
        min_hours=last.get("hours", ("", 0))[1],
        keep=(last.get("hours") or last.get("files") or ("MINKEEPFILES 1", 1))[0],
        every_s=last["every"][1] if "every" in last else None,
        notes=tuple(f"{text} is not used, as another option of the rule beats it" for text in unused),
    )


def port_list(statement: Statement) -> Ranges:
    """DYNAMICPORTLIST {port | first-last} [, ...]."""
    ranges = tuple(_range(statement, word) for word in words(statement))
    if not ranges:
        raise statement.error("ports such as 7840-7850, 7900")
    if sum(last - first + 1 for first, last in ranges) > MAX_PORTS:
        raise statement.error(f"at most {MAX_PORTS} ports")
    return ranges


def _range(statement: Statement, text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    low = params.whole(statement, first, 1, 65535)
    high = params.whole(statement, last, 1, 65535) if dash else low
    if high < low:
        raise statement.error("ports from low to high, such as 7840-7850")
    return low, high


def minutes(seconds: float) -> str:
    """A length of time as a person reads it in a message: `90 seconds`, `2 minutes`."""
    if seconds < 120:
        return f"{seconds:g} seconds"
    return f"{math.ceil(seconds / 60)} minutes" if seconds < 2 * HOUR else f"{seconds / HOUR:.3g} hours"
