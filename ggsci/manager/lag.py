"""What the Manager says now and then in ggserr.log: lags over a bound, or unknown; groups that are down, or up."""

from __future__ import annotations

from typing import Any

from ggsci.facts import GroupFacts, gather
from ggsci.flow.pipelines import facts_of
from ggsci.manager.params import ManagerParams
from ggsci.views.view import doubt_text, span
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.report.report import Log

LAG, IS_DOWN, IS_UP = "TG-00947", "TG-00966", "TG-00967"


def report(home: Home, params: ManagerParams, log: Log, now_us: int) -> None:
    """One line for each lag of a running group over LAGINFO (INFO) or LAGCRITICAL (WARNING), or not known (WARNING).

    That is its own, and its last heartbeat's.
    """
    for group in facts_of(home, registrations.lasting(home), now_us):
        if group.status == "RUNNING":
            _report(group, params, log)


def _report(group: GroupFacts, params: ManagerParams, log: Log) -> None:
    text = f"{span(group.lag_us)} (checkpoint updated {span(group.since_us)} ago{_because(group)})"
    late = group.doubt is not None and any(beat["why"] == group.doubt.why for beat in group.heartbeats)
    unknown = group.checkpoint is not None and group.lag_us is None and not late  # said below
    fields = _about(group) | {"lag_us": group.lag_us, "age_us": group.since_us}
    _tell(f"Lag for {group.program} {group.name} is {text}.", fields, params, log, unknown=unknown)
    for beat in group.heartbeats:
        if beat["every_s"]:  # else they are paused, and nobody waits for one
            text = f"{span(beat['lag_us'])} (received {span(beat['age_us'])} ago{beat['why'] and ': ' + beat['why']})"
            text = f"Heartbeat lag of {beat['path']} at {group.name} is {text}."
            fields = _about(group) | {"lag_us": beat["lag_us"], "age_us": beat["age_us"], "path": beat["path"]}
            _tell(text, fields, params, log, unknown=bool(beat["why"]))


def _because(group: GroupFacts) -> str:
    return f"; {doubt_text(group)}" if group.doubt is not None and group.lag_us is None else ""


def _tell(text: str, fields: dict[str, Any], params: ManagerParams, log: Log, *, unknown: bool) -> None:
    lag_s = None if fields["lag_us"] is None else fields["lag_us"] / 1_000_000
    if unknown or (lag_s is not None and params.lag_critical_s is not None and lag_s >= params.lag_critical_s):
        log.warning(LAG, text, **fields)
    elif lag_s is not None and params.lag_info_s is not None and lag_s >= params.lag_info_s:
        log.info(LAG, text, **fields)


def report_down(home: Home, log: Log, now_us: int) -> None:
    """DOWNREPORT: one WARNING for each group that does not run; one that was stopped by mistake is news as well."""
    for registration in registrations.lasting(home):
        group = gather(home, registration, now_us)
        if group.status in ("STOPPED", "ABENDED"):
            ended = f", exit code {group.exit_code}" if group.exit_code else ""
            why = f": {group.message}" if group.message else "."
            text = f"{group.program} {group.name} is down ({group.status}{ended}){why}"
            log.warning(IS_DOWN, text, **_about(group), exit_code=group.exit_code)


def report_up(home: Home, log: Log, now_us: int) -> None:
    """UPREPORT: one INFO line for each group that runs."""
    for registration in registrations.lasting(home):
        group = gather(home, registration, now_us)
        if group.status == "RUNNING":
            log.info(IS_UP, f"{group.program} {group.name} is up (process {group.pid}).", **_about(group))


def _about(group: GroupFacts) -> dict[str, Any]:
    """The fields of a message about a group that is not the writer's own."""
    return {"program": group.program, "group": group.name, "state": str(group.status)}
