"""What the Manager says now and then in ggserr.log: lags over a bound, or unknown; groups that are down, or up."""

from __future__ import annotations

from ggsci.facts import GroupFacts, gather
from ggsci.manager_params import ManagerParams
from ggsci.view import span
from trails.runtime.home import Home
from trails.runtime.report import Log

LAG, IS_DOWN, IS_UP = "TG-00947", "TG-00966", "TG-00967"


def report(home: Home, params: ManagerParams, log: Log, now_us: int) -> None:
    """One line for each running group over LAGINFO (INFO) or LAGCRITICAL (WARNING); a stale figure is a warning."""
    for registration in home.groups():
        group = gather(home, registration, now_us)
        if group.status == "RUNNING":
            _report(group, params, log)


def _report(group: GroupFacts, params: ManagerParams, log: Log) -> None:
    text = (
        f"Lag for {group.program} {group.name} is {span(group.lag_us)} (checkpoint updated {span(group.since_us)} ago)."
    )
    lag_s = None if group.lag_us is None else group.lag_us / 1_000_000
    if group.stale or (lag_s is not None and params.lag_critical_s is not None and lag_s >= params.lag_critical_s):
        log.warning(LAG, text)
    elif lag_s is not None and params.lag_info_s is not None and lag_s >= params.lag_info_s:
        log.info(LAG, text)


def report_down(home: Home, log: Log, now_us: int) -> None:
    """DOWNREPORT: one WARNING for each group that does not run; one that was stopped by mistake is news as well."""
    for registration in home.groups():
        group = gather(home, registration, now_us)
        if group.status in ("STOPPED", "ABENDED"):
            ended = f", exit code {group.exit_code}" if group.exit_code else ""
            why = f": {group.message}" if group.message else "."
            log.warning(IS_DOWN, f"{group.program} {group.name} is down ({group.status}{ended}){why}")


def report_up(home: Home, log: Log, now_us: int) -> None:
    """UPREPORT: one INFO line for each group that runs."""
    for registration in home.groups():
        group = gather(home, registration, now_us)
        if group.status == "RUNNING":
            log.info(IS_UP, f"{group.program} {group.name} is up (process {group.pid}).")
