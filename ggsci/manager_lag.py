"""Lag reports of the Manager: lines in ggserr.log for groups whose lag is over a bound, or can't be known."""

from __future__ import annotations

from ggsci.facts import GroupFacts, gather
from ggsci.manager_params import ManagerParams
from ggsci.view import span
from trails.runtime.home import Home
from trails.runtime.report import Log

LAG = "TG-00947"


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
