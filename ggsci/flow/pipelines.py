"""The pipelines of homes, from source to target: what each stage does now, and which one holds the others back.

Rule: this is the one place where "where is it slow" is answered; INFO ALL, DETAIL prints it, the web page draws it and
the metrics page exports it. stages.py says what is known of each group, holding.py gives the verdict.

A pipeline is one path from an Extract to a Replicat. Who feeds whom is read from the trails: a local trail has a writer
registered in its home, a remote one bears home and group of its pump in its header. So pipelines of several homes,
gathered wherever they are, join by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ggsci.flow import holding, stages
from ggsci.flow.stages import EXTRACT, PUMP, REPLICAT, Stage
from trails.errors import GateError
from trails.runtime.home import Home

__all__ = ["EXTRACT", "PUMP", "REPLICAT", "Pipeline", "Stage", "from_json", "gather", "join", "to_json"]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A path from source to target. A stage that feeds several stands in each of their pipelines.

    The target is as far behind as the stage with the greatest lag; not known, if that of any stage is not: one that
    has applied all that reached it says nothing of what did not. The age is that of the oldest of these figures.
    """

    name: str
    source: str
    target: str
    stages: tuple[Stage, ...]
    lag_us: int | None = None
    lag_age_us: int | None = None


def gather(home: Home, now_us: int, others: Sequence[Home] = ()) -> list[Pipeline]:
    """The pipelines of this home, joined with those of `others`.

    Takes a second a home at most, however many processes hang. Of the others one that can't be read is left out.
    """
    found = stages.of_home(home, now_us)
    for other in others:
        try:
            found += stages.of_home(other, now_us)
        except (GateError, OSError):
            continue
    return _paths(found)


def join(pipelines: Iterable[Pipeline]) -> list[Pipeline]:
    """Pipelines of several homes: a pump's goes on with those of the Replicats that read its remote trail."""
    return _paths([stage for pipeline in pipelines for stage in pipeline.stages])


def _paths(found: Iterable[Stage]) -> list[Pipeline]:
    every = {stage.key: stage for stage in found}
    feeds: dict[str, list[Stage]] = {}
    for stage in every.values():
        feeds.setdefault(stage.fed_by if stage.fed_by in every else "", []).append(stage)
    made: list[Pipeline] = []
    seen: set[str] = set()
    # What feeds itself in a ring has no first stage: any of it is taken.
    for stage in [*feeds.pop("", []), *every.values()]:
        if stage.key not in seen:
            _walk((stage,), feeds, seen, made)
    return made


def _walk(path: tuple[Stage, ...], feeds: dict[str, list[Stage]], seen: set[str], made: list[Pipeline]) -> None:
    last = path[-1]
    seen.add(last.key)
    further = [stage for stage in feeds.get(last.key, []) if stage.key not in {before.key for before in path}]
    if not further:
        made.append(_pipeline(path))
    for stage in further:
        _walk((*path, stage), feeds, seen, made)


def _pipeline(path: tuple[Stage, ...]) -> Pipeline:
    # The verdict is of this path: a stage that was judged in another one begins anew.
    judged = holding.judge([replace(stage, holds_back=False, why="") for stage in path])
    first, last = judged[0], judged[-1]
    source = str(first.extra.get("source") or first.reads)
    if first.program != EXTRACT and (writer := first.extra.get("writer")):
        source = f"{source} by {writer} of {first.extra.get('writer_host') or 'another home'}"
    target = last.writes[0] if last.writes else ""
    return Pipeline(" > ".join(s.name for s in judged), source, target, judged, *_lag(judged))


def _lag(stages: Sequence[Stage]) -> tuple[int | None, int | None]:
    """(lag, its age) of a path; without a lag the age is that of the last truth."""
    unknown = [stage for stage in stages if stage.lag_us is None]
    ages = [stage.lag_age_us for stage in unknown or stages if stage.lag_age_us is not None]
    lags = [stage.lag_us for stage in stages if stage.lag_us is not None]
    return None if unknown else max(lags), max(ages, default=None)


def to_json(pipelines: Iterable[Pipeline]) -> list[dict[str, Any]]:
    """Plain values, for JSON."""
    return [asdict(pipeline) for pipeline in pipelines]


def from_json(given: Iterable[dict[str, Any]]) -> list[Pipeline]:
    """Inverse of to_json, also after a trip through JSON text."""
    made = []
    for item in given:
        members = tuple(Stage(**{**stage, "writes": tuple(stage["writes"])}) for stage in item["stages"])
        made.append(Pipeline(**{**item, "stages": members}))
    return made
