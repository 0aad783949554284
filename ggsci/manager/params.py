"""The Manager's parameters (dirprm/mgr.prm): its keyword table and the frozen value that a checked file becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ggsci.manager import access, rules
from ggsci.manager import ports as manager_ports
from ggsci.manager.rules import GroupSpec, PurgeRule, Ranges, RestartRule
from ggsci.manager.webparams import KEYWORDS as WEB_KEYWORDS
from ggsci.manager.webparams import WebParams, address
from trails.errors import OperatorError
from trails.runtime.language import accepted, params
from trails.runtime.language.params import Keyword, Statement

DEFAULT_PORT = 7809
DEFAULT_BIND = "127.0.0.1"
DEFAULT_CHECK_MINUTES = 10
# Without DYNAMICPORTLIST Collectors get one of so many ports above PORT.
PORTS_ABOVE = 256
DEFAULT_REASSIGN_SECONDS = 3
MOST_PER_HOME = 64


@dataclass(frozen=True, slots=True)
class ManagerParams:
    """mgr.prm, checked."""

    port: int = DEFAULT_PORT
    bind: str = DEFAULT_BIND
    ports: Ranges = ((DEFAULT_PORT + 1, DEFAULT_PORT + PORTS_ABOVE),)
    reassign_s: float = DEFAULT_REASSIGN_SECONDS
    per_home: int = 0
    boot_delay_s: float = 0
    autostart: tuple[GroupSpec, ...] = ()
    autorestart: tuple[RestartRule, ...] = ()
    purge: tuple[PurgeRule, ...] = field(default=())
    check_s: float = DEFAULT_CHECK_MINUTES * 60
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
        check: float = found.one("CHECKSECONDS") or found.one("CHECKMINUTES", DEFAULT_CHECK_MINUTES) * 60
        return cls(
            port=port,
            bind=found.one("BIND", DEFAULT_BIND),
            ports=ports,
            reassign_s=found.one("DYNAMICPORTREASSIGNDELAY", DEFAULT_REASSIGN_SECONDS),
            per_home=found.one("COLLECTORSPERHOME", 0),
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

    @property
    def collectors_per_home(self) -> int:
        """How many Collectors one home may have at once: by itself three quarters of four or more ports."""
        ports = len(manager_ports.numbers(self.ports))
        return self.per_home or min(MOST_PER_HOME, ports - ports // 4)

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
    *accepted.MANAGER,
    params.COMMON["COMMENT"],
    Keyword("PORT", "n", f"The TCP port for pumps; {DEFAULT_PORT} if not given.", "PORT 7809", params.number(1, 65535)),
    Keyword(
        "BIND", "address",
        f"The address that the Manager and its Collectors listen on. If not given it is {DEFAULT_BIND}, so that only "
        "this host can write trails. 0.0.0.0 is every address.",
        "BIND 0.0.0.0", address,
    ),
    Keyword(
        "ACCESSRULE", access.SHAPE,
        "From which addresses pumps may ask for Collectors. The first rule that matches decides: rules are tried by "
        f"PRI (1 to {access.DEFAULT_PRIORITY}, {access.DEFAULT_PRIORITY} if not given), then in the order of the file. "
        "If there are rules, an address that none of them matches is denied, but for this host's loopback. If there "
        "are none, everybody who reaches the port (BIND) may ask.",
        "ACCESSRULE, PROG COLLECTOR, IPADDR 10.1.*, ALLOW", access.parse, repeatable=True,
    ),
    Keyword(
        "NOTLS", "",
        "Pumps and Collectors of this home talk in plain TCP: anybody on the way can read and change the data. "
        "Without NOTLS they need the certificates of CREATE CERTIFICATES.",
        "NOTLS", params.nothing,
    ),
    Keyword(
        "DYNAMICPORTLIST", "{port | first-last} [, ...]",
        f"The ports for Collectors, one each, tried in this order; if not given, the {PORTS_ABOVE} above PORT.",
        "DYNAMICPORTLIST 7840-7850, 7900", rules.port_list,
    ),
    Keyword(
        "DYNAMICPORTREASSIGNDELAY", "n",
        f"A port whose Collector ended less than n seconds ({DEFAULT_REASSIGN_SECONDS}) ago is given out only if no "
        "other is free.",
        "DYNAMICPORTREASSIGNDELAY 5", params.number(0, 3600),
    ),
    Keyword(
        "COLLECTORSPERHOME", "n",
        "How many Collectors the pumps of one home may have at once. If not given it is three quarters of "
        f"DYNAMICPORTLIST's ports, and {MOST_PER_HOME} at most, so that one home can't hold every port. Of a list of "
        "up to three ports it may have all.",
        "COLLECTORSPERHOME 8", params.number(1, 5000),
    ),
    Keyword(
        "BOOTDELAYMINUTES", "n",
        "After a boot of this machine, AUTOSTART and AUTORESTART wait until it has been up for n minutes, so that "
        "databases and networks are there. START does not wait.",
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
        "Start these groups again if their process was killed, if its database or peer was away, or if the disk was "
        "full; after a bug twice at most. They are not started again if somebody must mend something first, nor while "
        "the disk is below DISKSTOP. There are at most RETRIES starts (2) within RESETMINUTES (20), each after a wait "
        "(2 minutes).",
        "AUTORESTART ER *, RETRIES 5, WAITSECONDS 10", rules.autorestart, repeatable=True,
    ),
    Keyword(
        "PURGEOLDEXTRACTS",
        "trail [, USECHECKPOINTS] [, {MINKEEPHOURS | MINKEEPDAYS | MINKEEPFILES} n] "
        "[, {FREQUENCYMINUTES | FREQUENCYHOURS} n]",
        "Remove files of these trails that every registered reader is past, if the rule no longer keeps them:\n"
        "- MINKEEPHOURS and MINKEEPDAYS keep a file for that time after it was last written. Of two times the last "
        "one counts.\n"
        "- MINKEEPFILES keeps the newest n files (1 if not given). It does not count beside a time.\n"
        "The first rule for a trail counts. The Manager looks each CHECKMINUTES, or as often as FREQUENCYMINUTES "
        "says, and at once when the disk falls below DISKWARN.",
        "PURGEOLDEXTRACTS ./dirdat/*, USECHECKPOINTS, MINKEEPHOURS 48", rules.purge, repeatable=True,
    ),
    Keyword(
        "CHECKMINUTES", "n",
        f"How often to purge, and to look after what has no time of its own; {DEFAULT_CHECK_MINUTES} if not given.",
        "CHECKMINUTES 10", params.number(1, 10_000),
    ),
    Keyword("CHECKSECONDS", "n", "The same in seconds.", "CHECKSECONDS 30", params.number(1, 100_000)),
)  # fmt: skip
