"""The Manager's parameters (dirprm/mgr.prm): its keyword table and the frozen value that a checked file becomes."""

from __future__ import annotations

import fnmatch
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from trails.runtime import params
from trails.runtime.params import Keyword, Statement

DEFAULT_PORT = 7809
DEFAULT_CHECK_SECONDS = 600
# Without DYNAMICPORTLIST Collectors get one of so many ports above PORT.
PORTS_ABOVE = 256
KINDS = {"ER": ("EXTRACT", "REPLICAT"), "EXTRACT": ("EXTRACT",), "REPLICAT": ("REPLICAT",)}


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
    """AUTORESTART: for which groups, how many times in a row, after which wait, and when the count starts anew."""

    groups: GroupSpec
    retries: int = 2
    wait_s: float = 120
    reset_s: float = 1200


@dataclass(frozen=True, slots=True)
class PurgeRule:
    """PURGEOLDEXTRACTS: which trails, and how many files stay at least."""

    pattern: str
    min_files: int = 1


@dataclass(frozen=True, slots=True)
class ManagerParams:
    """mgr.prm, checked."""

    port: int = DEFAULT_PORT
    bind: str = "127.0.0.1"
    ports: tuple[int, int] = (DEFAULT_PORT + 1, DEFAULT_PORT + PORTS_ABOVE)
    autostart: tuple[GroupSpec, ...] = ()
    autorestart: tuple[RestartRule, ...] = ()
    purge: tuple[PurgeRule, ...] = field(default=())
    check_s: float = DEFAULT_CHECK_SECONDS
    lag_report_s: float | None = None
    lag_info_s: float | None = None
    lag_critical_s: float | None = None

    @classmethod
    def from_statements(cls, statements: Sequence[Statement], file: str = "") -> ManagerParams:
        """Check the whole file. Raises ParamErrors with every mistake in it."""
        found = params.check(statements, KEYWORDS, "MANAGER", file=file)
        port = found.one("PORT", DEFAULT_PORT)
        default_ports = (min(port + 1, 65535), min(port + PORTS_ABOVE, 65535))
        check = found.one("CHECKSECONDS") or found.one("CHECKMINUTES", 10) * 60
        return cls(
            port=port,
            bind=found.one("BIND", "127.0.0.1"),
            ports=found.one("DYNAMICPORTLIST", default_ports),
            autostart=tuple(found.all("AUTOSTART")),
            autorestart=tuple(found.all("AUTORESTART")),
            purge=tuple(found.all("PURGEOLDEXTRACTS")),
            check_s=check,
            lag_report_s=_first(found, "LAGREPORT"),
            lag_info_s=_first(found, "LAGINFO"),
            lag_critical_s=_first(found, "LAGCRITICAL"),
        )

    def restart_rule(self, kind: str, name: str) -> RestartRule | None:
        """The first AUTORESTART that is for this group."""
        return next((rule for rule in self.autorestart if rule.groups.matches(kind, name)), None)


_UNITS = {"SECONDS": 1, "MINUTES": 60, "HOURS": 3600}


def _first(found: params.Values, name: str) -> float | None:
    """A length of time in seconds, given in any unit; None if it is not given."""
    lengths = [found.one(name + unit) * factor for unit, factor in _UNITS.items() if found.has(name + unit)]
    return lengths[0] if lengths else None


# --- parsers ----------------------------------------------------------------------------------------------------------


def _words(statement: Statement) -> list[str]:
    if not all(isinstance(word, str) for word in statement.words):
        raise statement.error("words without parentheses")
    return [str(word) for word in statement.words]


def _spec(statement: Statement, words: list[str]) -> GroupSpec:
    if len(words) < 2 or words[0].upper() not in KINDS:
        raise statement.error("ER, EXTRACT or REPLICAT and a group name, such as ER *")
    return GroupSpec(KINDS[words[0].upper()], words[1].upper())


def _autostart(statement: Statement) -> GroupSpec:
    words = _words(statement)
    if len(words) > 2:
        raise statement.error("ER, EXTRACT or REPLICAT and one group name")
    return _spec(statement, words)


# Option -> (field of RestartRule, factor, least, most).
_RESTART = {
    "RETRIES": ("retries", 1, 0, 10_000),
    "WAITMINUTES": ("wait_s", 60, 0, 10_000),
    "WAITSECONDS": ("wait_s", 1, 0, 100_000),
    "RESETMINUTES": ("reset_s", 60, 1, 100_000),
    "RESETSECONDS": ("reset_s", 1, 1, 1_000_000),
}


def _autorestart(statement: Statement) -> RestartRule:
    words = _words(statement)
    values: dict[str, int] = {}
    for name, value in _pairs(statement, words[2:]):
        if name not in _RESTART:
            raise statement.error("RETRIES n, WAITMINUTES n, WAITSECONDS n, RESETMINUTES n", name)
        key, factor, low, high = _RESTART[name]
        values[key] = params.whole(statement, value, low, high) * factor
    return RestartRule(_spec(statement, words), **values)


def _pairs(statement: Statement, words: list[str]) -> list[tuple[str, str]]:
    if len(words) % 2:
        raise statement.error("a number behind each option")
    return [(words[i].upper(), words[i + 1]) for i in range(0, len(words), 2)]


def _purge(statement: Statement) -> PurgeRule:
    words = _words(statement)
    if not words:
        raise statement.error("a trail such as ./dirdat/*")
    rest = [word for word in words[1:] if word.upper() != "USECHECKPOINTS"]
    if any(word.upper() == "NOUSECHECKPOINTS" for word in rest):
        raise statement.wrong("a file that a reader still needs is never purged, so NOUSECHECKPOINTS can't be had")
    keep = 1
    for name, value in _pairs(statement, rest):
        if name != "MINKEEPFILES":
            raise statement.error("USECHECKPOINTS or MINKEEPFILES n", name)
        keep = params.whole(statement, value, 1, 1_000_000)
    return PurgeRule(words[0], keep)


def _port_list(statement: Statement) -> tuple[int, int]:
    words = _words(statement)
    first, dash, last = words[0].partition("-") if len(words) == 1 else ("", "", "")
    low = params.whole(statement, first, 1, 65535)
    high = params.whole(statement, last, 1, 65535) if dash else low
    if high < low:
        raise statement.error("ports from low to high, such as 7840-7850")
    return low, high


def _address(statement: Statement) -> str:
    text = params.word(statement)
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise statement.error("an IP address of this host, or 0.0.0.0 for all of them") from None


_LAG_HELP = {
    "LAGREPORT": "Look at the lag of all running groups each n {}; never if not given.",
    "LAGINFO": "A lag of n {} or more is an INFO line in ggserr.log.",
    "LAGCRITICAL": "A lag of n {} or more is a WARNING line in ggserr.log, as is one that can't be known.",
}

_LAG = params.table(
    *(
        Keyword(name + unit, "n", text.format(unit.lower()), f"{name}{unit} 5", params.number(1, 1_000_000))
        for name, text in _LAG_HELP.items()
        for unit in _UNITS
    )
)

KEYWORDS = _LAG | params.table(
    params.COMMON["COMMENT"],
    Keyword("PORT", "n", "The TCP port for pumps; 7809 if not given.", "PORT 7809", params.number(1, 65535)),
    Keyword(
        "BIND", "address",
        "The address that the Manager and its Collectors listen on; 127.0.0.1 if not given, so that only this host can "
        "write trails. 0.0.0.0 is every address.",
        "BIND 0.0.0.0", _address,
    ),
    Keyword(
        "DYNAMICPORTLIST", "first-last",
        "The ports for Collectors, one each; if not given, the 256 above PORT.",
        "DYNAMICPORTLIST 7840-7850", _port_list,
    ),
    Keyword(
        "AUTOSTART", "{ER | EXTRACT | REPLICAT} group",
        "Start these groups when the Manager starts.", "AUTOSTART ER *", _autostart, repeatable=True,
    ),
    Keyword(
        "AUTORESTART",
        "{ER | EXTRACT | REPLICAT} group [, RETRIES n] [, WAITMINUTES n | WAITSECONDS n] [, RESETMINUTES n]",
        "Start these groups again when their process was killed, or when its database or peer was away; not when "
        "somebody must mend something first. RETRIES times in a row (2), each after a wait (2 minutes); counted anew "
        "once a group ran for RESETMINUTES (20).",
        "AUTORESTART ER *, RETRIES 5, WAITSECONDS 10", _autorestart, repeatable=True,
    ),
    Keyword(
        "PURGEOLDEXTRACTS", "trail [, USECHECKPOINTS] [, MINKEEPFILES n]",
        "Remove files of these trails that every registered reader is past; at least MINKEEPFILES (1) stay.",
        "PURGEOLDEXTRACTS ./dirdat/*, USECHECKPOINTS, MINKEEPFILES 3", _purge, repeatable=True,
    ),
    Keyword(
        "CHECKMINUTES", "n", "How often to purge; each 10 minutes if not given.", "CHECKMINUTES 10",
        params.number(1, 10_000),
    ),
    Keyword("CHECKSECONDS", "n", "The same in seconds.", "CHECKSECONDS 30", params.number(1, 100_000)),
)  # fmt: skip
