"""Which stage of a pipeline holds the others back, and why: facts in, the same facts with a verdict out.

Trails are unbounded buffers: a slow stage never slows those before it, its input grows. So the verdict is by input:

    a stage that is not running, while another one is          it holds back, and if anything waits for it also when
                                                               none is
    else one that does not answer, or waits for its peer       it holds back, if anything waits for it
    else the one with the most source time waiting for it      it holds back, if that is worth a word
    else                                                       nobody does

Rule: what is not known never counts as healthy, and never as slow: it is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ggsci.flow.stages import EXTRACT, PUMP, REPLICAT, RUNNING, Stage
from trails.runtime.language.freespace import human

WORTH_BYTES = 1 << 20
WORTH_US = 5_000_000
MUCH = 0.5


def judge(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages of one pipeline, from its source on, each with `holds_back`, `why` and the missing `backlog_us`."""
    known = _with_times(stages)
    guilty = _guilty(known)
    return tuple(
        replace(stage, holds_back=i in guilty, why=_reason(stage) if i in guilty else _doing(stage))
        for i, stage in enumerate(known)
    )


def _with_times(stages: Sequence[Stage]) -> list[Stage]:
    """Backlog as source time: from what a stage has done to what stands in its input.

    The newest in its input is what the stage before has put there; where that does not tell, the trail was last
    written then. Nothing waits for longer than the stage is behind: the first change after an idle night is not late
    by that night.
    """
    known: list[Stage] = []
    for stage in stages:
        made = stage
        if stage.program != EXTRACT:
            done = stage.extra.get("newest_us")
            newest = (known[-1].extra.get("newest_us") if known else None) or stage.extra.get("input_us")
            if stage.backlog_bytes == 0:
                made = replace(stage, backlog_us=0)
            elif done and newest:
                behind = newest - done if stage.lag_us is None else min(newest - done, stage.lag_us)
                made = replace(stage, backlog_us=max(0, behind))
        known.append(made)
    return known


def _guilty(stages: Sequence[Stage]) -> set[int]:
    alive = [stage.status == RUNNING for stage in stages]
    if not all(alive):
        # All of it stopped is nobody's fault, but for those that something waits for.
        all_of_them = any(alive) or _abended(stages)
        return {i for i, runs in enumerate(alive) if not runs and (all_of_them or stages[i].backlog_bytes)}
    stuck = {i for i, stage in enumerate(stages) if _is_stuck(stage) and stage.backlog_bytes != 0}
    if stuck:
        return stuck
    worst = max(range(len(stages)), key=lambda i: _weight(stages[i]), default=None)
    return {worst} if worst is not None and _worth(stages[worst]) else set()


def _abended(stages: Sequence[Stage]) -> bool:
    return any(stage.status == "ABENDED" for stage in stages)


def _is_stuck(stage: Stage) -> bool:
    return bool(stage.extra.get("unanswered") or stage.extra.get("state"))


def _weight(stage: Stage) -> tuple[int, int]:
    return stage.backlog_us or 0, stage.backlog_bytes or 0


def _worth(stage: Stage) -> bool:
    return bool(stage.backlog_bytes) and (
        (stage.backlog_us or 0) >= WORTH_US or (stage.backlog_bytes or 0) >= WORTH_BYTES
    )


def waiting(stage: Stage) -> str:
    """What waits for it, such as `12.3 MB of 00:00:34`."""
    if stage.backlog_bytes is None:
        return "an unknown amount"
    text = human(stage.backlog_bytes)
    return text if stage.backlog_us is None else f"{text} of {stage.backlog_us / 1_000_000:.0f} s"


def _reason(stage: Stage) -> str:
    """Why it holds the others back."""
    if stage.status != RUNNING:
        message = stage.extra.get("message")
        return f"it is {stage.status}{f' ({message})' if message else ''}; waiting for it: {waiting(stage)}"
    if stage.extra.get("unanswered"):
        return f"{stage.lag_why}; waiting for it: {waiting(stage)}"
    if state := stage.extra.get("state"):
        trouble = stage.extra.get("trouble")
        return f"{state}{f' ({trouble})' if trouble else ''}; waiting for it: {waiting(stage)}"
    return f"its input waits ({waiting(stage)}), {_bound(stage)}"


def _bound(stage: Stage) -> str:
    """What a stage that runs and has work is short of."""
    extra, busy = stage.extra, stage.busy
    if busy is None:
        return "it has only just started"
    if (extra.get("blocked") or 0) >= MUCH:
        flight, window = human(extra.get("inflight_bytes") or 0), human(extra.get("window_bytes") or 0)
        return f"its output is full ({flight} of a window of {window} not acknowledged): link or Collector is slow"
    if stage.program == REPLICAT and (extra.get("output_share") or 0) >= MUCH:
        return f"its output is the limit: the target takes {extra['output_share']:.2f} of the time, busy {busy:.2f}"
    if stage.program == EXTRACT and busy < MUCH:
        return f"and it waits for the server, which decodes or sends slowly, busy {busy:.2f}"
    if busy < MUCH:
        return f"though it is busy {busy:.2f} only: its disk, or the machine, is short of something"
    return f"its output is idle, busy {busy:.2f}"


def _doing(stage: Stage) -> str:
    """What a stage does that holds nobody back."""
    if stage.status != RUNNING:
        return f"it is {stage.status}"
    if _is_stuck(stage):
        return str(stage.extra.get("state") or stage.lag_why)
    if stage.backlog_bytes is None:
        return "what waits for it is not known"
    if not stage.backlog_bytes:
        ahead = {EXTRACT: "log", PUMP: "trail", REPLICAT: "trail"}[stage.program]
        return f"at the end of its {ahead}"
    return f"{waiting(stage)} on its way"
