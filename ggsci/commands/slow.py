"""INFO ALL, DETAIL: where it is slow. The pipelines of this home, and which stage holds the others back.

Homes of this host that mgr.prm names (WEBHOME name, DIR path) join in: then one command shows source to target.
"""

from __future__ import annotations

from typing import Any

from ggsci.commands.session import OperatorSession
from ggsci.flow import pipelines
from ggsci.flow.pipelines import Pipeline, Stage
from ggsci.flow.slots import limit_name
from ggsci.views.view import span
from trails.runtime.language.freespace import human
from trails.runtime.report.answers import KeptAnswer, read_answer

_TITLE = (
    f"  {'Program':10}{'Group':10}{'Status':10}{'Lag':>10}{'Age':>10}{'Backlog':>12}{'Time':>10}{'Ops/s':>12}"
    f"{'Bytes/s':>12}{'Out/s':>12}{'Busy':>6}"
)
_UNKNOWN = "UNKNOWN"


def show(session: OperatorSession) -> list[dict[str, Any]]:
    """Print the pipelines; the same as plain values."""
    found = pipelines.gather(session.home, session.now_us(), pipelines.neighbours(session.home))
    session.say_lines(lines(found))
    return pipelines.to_json(found)


def lines(found: list[Pipeline]) -> list[str]:
    """Each pipeline as a block: its two ends, a row a stage, and the verdict."""
    if not found:
        return ["", "There are no groups, so there is no pipeline.", ""]
    made = [""]
    for pipeline in found:
        made += [f"Pipeline {pipeline.name}", f"  From {pipeline.source or _UNKNOWN}"]
        made += [f"  To   {pipeline.target or _UNKNOWN}", f"  Is   {_state(pipeline)}", "", _TITLE]
        made += [_row(stage) for stage in pipeline.stages] + [""]
        made += [*_notes(pipeline), ""]
    return made


def _state(pipeline: Pipeline) -> str:
    """Whether it is seen to work; else why not, and when it last was."""
    age = "" if pipeline.lag_age_us is None or not pipeline.why else f", last seen {span(pipeline.lag_age_us)} ago"
    return f"{pipeline.state}{age}{pipeline.why and ': ' + pipeline.why}"


def _row(stage: Stage) -> str:
    backlog = _UNKNOWN if stage.backlog_bytes is None else human(stage.backlog_bytes)
    time = span(stage.backlog_us)
    busy = "" if stage.busy is None else f"{stage.busy:.2f}"
    return (
        f"{'*' if stage.holds_back else ' '} {stage.program:10}{stage.name:10}{stage.status:10}{span(stage.lag_us):>10}"
        f"{span(stage.lag_age_us):>10}{backlog:>12}{time:>10}{_rate(stage.ops_s):>12}{_rate(stage.bytes_s):>12}"
        f"{_rate(stage.bytes_out_s):>12}{busy:>6}"
    )


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.0f}"


def _notes(pipeline: Pipeline) -> list[str]:
    """The verdict, why a lag is not known, and what the source keeps back."""
    slow = [stage for stage in pipeline.stages if stage.holds_back]
    made = [f"  Held back by {stage.program} {stage.name}: {stage.why}." for stage in slow]
    made = made or ["  No stage holds the others back."]
    last = pipeline.stages[-1].extra
    if last.get("heartbeat_steps"):
        ago = span(last["heartbeat_age_us"])
        made.append(f"  The heartbeat that came {ago} ago took: {last['heartbeat_steps']}.")
    for stage in pipeline.stages:
        if stage.lag_us is None and not stage.holds_back and stage.lag_why not in pipeline.why:
            made.append(f"  Lag of {stage.program} {stage.name} is {_UNKNOWN}: {stage.lag_why or stage.status}.")
        kept = read_answer(KeptAnswer, stage.extra)
        if kept.log_kept_bytes is not None:
            made.append(f"  {kept_back(kept, kept.log_kept_bytes)}.")
    return made


def kept_back(kept: KeptAnswer, size: int) -> str:
    """What the source keeps back, in words."""
    room, holder = kept.log_headroom_bytes, kept.holder
    limit = f"no limit is set{limit_name(kept)}" if room is None else f"{human(max(0, room))} more may be kept"
    return f"{holder[:1].upper()}{holder[1:]} keeps back {human(size)} of the source's log; {limit}"
