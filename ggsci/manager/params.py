"""The Manager's parameters (dirprm/mgr.prm): its keyword table and the frozen value that a checked file becomes."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from ggsci import access
from ggsci.manager import ports as manager_ports
from ggsci.manager import rules
from ggsci.manager.rules import GroupSpec, PurgeRule, Ranges, RestartRule
from ggsci.web.params import KEYWORDS as WEB_KEYWORDS
from ggsci.web.params import WebParams
from trails.errors import OperatorError
from trails.runtime import params
from trails.runtime.params import Keyword, Statement

DEFAULT_PORT = 7809
DEFAULT_CHECK_SECONDS = 600
# Without DYNAMICPORTLIST Collectors get one of so many ports above PORT.
PORTS_ABOVE = 256
DEFAULT_REASSIGN_SECONDS = 3


@dataclass(frozen=True, slots=True)
class ManagerParams:
    """mgr.prm, checked."""

    port: int = DEFAULT_PORT
    bind: str = "127.0.0.1"
    ports: Ranges = ((DEFAULT_PORT + 1, DEFAULT_PORT + PORTS_ABOVE),)
    reassign_s: float = DEFAULT_REASSIGN_SECONDS
    boot_delay_s: float = 0
    autostart: tuple[GroupSpec, ...] = ()
    autorestart: tuple[RestartRule, ...] = ()
    purge: tuple[PurgeRule, ...] = field(default=())
    check_s: float = DEFAULT_CHECK_SECONDS
    lag_report_s: float | None = None
    lag_info_s: float | None = None
    lag_critical_s: float | None = None
    down_report_s: float | None = None
    up_report_s: float | None = None
    tls: bool = True
    access_rules: tuple[access.AccessRule, ...] = ()
    web: WebParams = field(default_factory=WebParams)

    @classmethod
    def from_statements(cls, statements: Sequence[Statement], file: str = "") -> ManagerParams:
        """Check the whole file. Raises ParamErrors with every mistake in it."""
        found = params.check(statements, KEYWORDS, "MANAGER", file=file)
        port = found.one("PORT", DEFAULT_PORT)
        default_ports = ((min(port + 1, 65535), min(port + PORTS_ABOVE, 65535)),)
        web = WebParams.from_values(found)
        # A Collector must not take the page's port while the page is being started again.
        ports = manager_ports.without(found.one("DYNAMICPORTLIST", default_ports), web.port)
        if web.port == port or not ports:
            raise OperatorError(
                f"{file or 'mgr.prm'}: WEBPORT {web.port}: this is the Manager's PORT, or all of DYNAMICPORTLIST",
                hint="Choose another WEBPORT",
            )
        check: float = found.one("CHECKSECONDS") or found.one("CHECKMINUTES", 10) * 60
        return cls(
            port=port,
            bind=found.one("BIND", "127.0.0.1"),
            ports=ports,
            reassign_s=found.one("DYNAMICPORTREASSIGNDELAY", DEFAULT_REASSIGN_SECONDS),
            boot_delay_s=found.one("BOOTDELAYMINUTES", 0) * 60,
            autostart=tuple(found.all("AUTOSTART")),
            autorestart=tuple(found.all("AUTORESTART")),
            purge=tuple(found.all("PURGEOLDEXTRACTS")),
            check_s=check,
            lag_report_s=_first(found, "LAGREPORT") or (check if _bounds_lag(found) else None),
            lag_info_s=_first(found, "LAGINFO"),
            lag_critical_s=_first(found, "LAGCRITICAL"),
            down_report_s=_first(found, "DOWNREPORT"),
            up_report_s=_first(found, "UPREPORT"),
            tls=not found.has("NOTLS"),
            access_rules=tuple(found.all("ACCESSRULE")),
            web=web,
        )

    def restart_rule(self, kind: str, name: str) -> RestartRule | None:
        """The first AUTORESTART that is for this group."""
        return next((rule for rule in self.autorestart if rule.groups.matches(kind, name)), None)


_UNITS = {"SECONDS": 1, "MINUTES": 60, "HOURS": 3600}


def _first(found: params.Values, name: str) -> float | None:
    """A length of time in seconds, given in any unit; None if it is not given."""
    lengths = [found.one(name + unit) * factor for unit, factor in _UNITS.items() if found.has(name + unit)]
    return lengths[0] if lengths else None


def _bounds_lag(found: params.Values) -> bool:
    return any(found.has(name + unit) for name in ("LAGINFO", "LAGCRITICAL") for unit in _UNITS)


def _address(statement: Statement) -> str:
    text = params.word(statement)
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise statement.error("an IP address of this host, or 0.0.0.0 for all of them") from None


_TIMED_HELP = {
    "LAGREPORT": "Look at the lag of all running groups each n {}; each CHECKMINUTES if only a bound is given.",
    "LAGINFO": "A lag of n {} or more is an INFO line in ggserr.log.",
    "LAGCRITICAL": "A lag of n {} or more is a WARNING line in ggserr.log, as is one that can't be known.",
    "DOWNREPORT": "Each n {} a WARNING line in ggserr.log for every group that is not running, with how it ended.",
    "UPREPORT": "Each n {} an INFO line in ggserr.log for every group that runs.",
}

_TIMED = params.table(
    *(
        Keyword(name + unit, "n", text.format(unit.lower()), f"{name}{unit} 5", params.number(1, 1_000_000))
        for name, text in _TIMED_HELP.items()
        for unit in _UNITS
    )
)

KEYWORDS = _TIMED | WEB_KEYWORDS | params.table(
    params.COMMON["COMMENT"],
    Keyword("PORT", "n", "The TCP port for pumps; 7809 if not given.", "PORT 7809", params.number(1, 65535)),
    Keyword(
        "BIND", "address",
        "The address that the Manager and its Collectors listen on; 127.0.0.1 if not given, so that only this host can "
        "write trails. 0.0.0.0 is every address.",
        "BIND 0.0.0.0", _address,
    ),
    Keyword(
        "ACCESSRULE", access.SHAPE,
        "From which addresses pumps may ask for Collectors: the first rule that matches decides, by PRI (1 to 99, 99 "
        "if not given), then in the order of the file. With rules, an address that none matches is denied, but for "
        "this host's loopback; without any, whoever reaches the port (BIND) may ask.",
        "ACCESSRULE, PROG COLLECTOR, IPADDR 10.1.*, ALLOW", access.parse, repeatable=True,
    ),
    Keyword(
        "NOTLS", "",
        "Pumps and Collectors of this home talk in plain TCP: anybody on the way can read and change the data. "
        "Without it they need the certificates of CREATE CERTIFICATES.",
        "NOTLS", params.nothing,
    ),
    Keyword(
        "DYNAMICPORTLIST", "{port | first-last} [, ...]",
        "The ports for Collectors, one each, tried in this order; if not given, the 256 above PORT.",
        "DYNAMICPORTLIST 7840-7850, 7900", rules.port_list,
    ),
    Keyword(
        "DYNAMICPORTREASSIGNDELAY", "n",
        "A port whose Collector ended less than n seconds (3) ago is given out only if no other is free.",
        "DYNAMICPORTREASSIGNDELAY 5", params.number(0, 3600),
    ),
    Keyword(
        "BOOTDELAYMINUTES", "n",
        "After a boot of this machine AUTOSTART and AUTORESTART wait until it has been up for n minutes, so that "
        "databases and networks are there; START does not wait.",
        "BOOTDELAYMINUTES 3", params.number(1, 1440),
    ),
    Keyword(
        "AUTOSTART", "{ER | EXTRACT | REPLICAT} group",
        "Start these groups when the Manager starts, however their last run ended.",
        "AUTOSTART ER *", rules.autostart, repeatable=True,
    ),
    Keyword(
        "AUTORESTART",
        "{ER | EXTRACT | REPLICAT} group [, RETRIES n] [, WAITMINUTES n | WAITSECONDS n] [, RESETMINUTES n]",
        "Start these groups again when their process was killed, its database or peer was away, or the disk was full; "
        "not when somebody must mend something first. At most RETRIES times (2) within RESETMINUTES (20), each after a "
        "wait (2 minutes); not while the disk is below DISKSTOP.",
        "AUTORESTART ER *, RETRIES 5, WAITSECONDS 10", rules.autorestart, repeatable=True,
    ),
    Keyword(
        "PURGEOLDEXTRACTS",
        "trail [, USECHECKPOINTS] [, {MINKEEPHOURS | MINKEEPDAYS | MINKEEPFILES} n] "
        "[, {FREQUENCYMINUTES | FREQUENCYHOURS} n]",
        "Remove files of these trails that every registered reader is past, and that were last written more than "
        "MINKEEPHOURS or MINKEEPDAYS ago, or are not among the newest MINKEEPFILES (1). A time beats a number of "
        "files; of two times the last counts. The first rule for a trail counts. Looked at each CHECKMINUTES, or as "
        "often as FREQUENCYMINUTES tells, and at once when the disk falls below DISKWARN.",
        "PURGEOLDEXTRACTS ./dirdat/*, USECHECKPOINTS, MINKEEPHOURS 48", rules.purge, repeatable=True,
    ),
    Keyword(
        "CHECKMINUTES", "n", "How often to purge, and to look after what has no time of its own; 10 if not given.",
        "CHECKMINUTES 10", params.number(1, 10_000),
    ),
    Keyword("CHECKSECONDS", "n", "The same in seconds.", "CHECKSECONDS 30", params.number(1, 100_000)),
)  # fmt: skip
