"""The pipelines of homes, from source to target: what each stage does now, and which one holds the others back.

Rule: this is the one place where "where is it slow" is answered; INFO ALL, DETAIL prints it, the web page draws it and
the metrics page exports it. stages.py says what is known of each group, holding.py gives the verdict.

A pipeline is one path from an Extract to a Replicat. Who feeds whom is read from the trails: a local trail has a writer
registered in its home, a remote one bears home and group of its pump in its header. So pipelines of several homes,
gathered wherever they are, join by themselves. health.py says what of it can be believed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ggsci import facts
from ggsci.doubt import Doubt
from ggsci.facts import GroupFacts
from ggsci.flow import health, holding, stages
from ggsci.flow.stages import EXTRACT, PUMP, REPLICAT, Stage
from trails.errors import GateError
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.language import params

__all__ = ["EXTRACT", "PUMP", "REPLICAT", "Pipeline", "Stage", "from_json", "gather", "join", "to_json"]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A path from source to target. A stage that feeds several stands in each of their pipelines.

    The target is as far behind as the stage with the greatest lag; not known, if that of any stage is not: one that
    has applied all that reached it says nothing of what did not. The age is that of the oldest of these figures.
    `state`: RUNNING is said only of what was seen to work (health.py), and `why` it is anything else.
    """

    name: str
    source: str
    target: str
    stages: tuple[Stage, ...]
    lag_us: int | None = None
    lag_age_us: int | None = None
    state: str = health.UNKNOWN
    why: str = ""


def gather(home: Home, now_us: int, others: Sequence[Home] = ()) -> list[Pipeline]:
    """The pipelines of this home, joined with those of `others`.

    Takes a second a home at most, however many processes hang. Of the others one that can't be read is left out.
    """
    found = stages.of_home(home, now_us)
    ids = {home.id}
    for other in others:
        try:
            found += stages.of_home(other, now_us)
            ids.add(other.id)
        except (GateError, OSError):
            continue
    return _paths(found, ids)


def join(pipelines: Iterable[Pipeline], ids: Collection[str] = ()) -> list[Pipeline]:
    """Pipelines of several homes: a pump's goes on with those of the Replicats that read its remote trail.

    `ids`: of homes that were looked at, whether or not they have a group.
    """
    return _paths([stage for pipeline in pipelines for stage in pipeline.stages], ids)


def facts_of(home: Home, groups: Iterable[Registration], now_us: int, others: Sequence[Home] = ()) -> list[GroupFacts]:
    """The facts of groups without asking any process, with what is to be doubted of them.

    That is what the other groups of this home, and those of `others`, say of the stages before. The Manager and the
    page name none: a folder of another home may hang.
    """
    found = [facts.gather(home, registration, now_us) for registration in registrations.lasting(home)]
    seen = stages.of_files(home, found)
    for other in others:
        with contextlib.suppress(GateError, OSError):
            theirs = [facts.gather(other, registration, now_us) for registration in registrations.lasting(other)]
            seen += stages.of_files(other, theirs)
    doubts = health.doubts(health.completed(seen, {home.id}))
    known = {group.name: replace(group, doubt=doubts.get(f"{home.id}/{group.name}")) for group in found}
    return [known.get(group.name) or facts.gather(home, group, now_us) for group in groups]


def neighbours(home: Home) -> list[Home]:
    """The other homes of this host that the Manager's file names. One that is none (any more) is left out."""
    found = []
    try:
        statements = params.parse_file(home.prm("mgr"))
    except (GateError, OSError):
        return []
    for statement in statements:
        words = [str(word) for word in statement.words]
        if statement.keyword == "WEBHOME" and len(words) == 3 and words[1].upper() == "DIR":
            try:
                found.append(Home.at(words[2]))
            except (GateError, OSError):
                continue
    return [other for other in found if other.id != home.id]


def _paths(found: Iterable[Stage], ids: Collection[str]) -> list[Pipeline]:
    every = health.completed(found, ids)
    doubts = health.doubts(every)
    feeds: dict[str, list[Stage]] = {}
    for stage in every.values():
        feeds.setdefault(stage.fed_by if stage.fed_by in every else "", []).append(stage)
    paths: list[tuple[Stage, ...]] = []
    seen: set[str] = set()
    # What feeds itself in a ring has no first stage: any of it is taken.
    for stage in [*feeds.pop("", []), *every.values()]:
        if stage.key not in seen:
            _walk((stage,), feeds, seen, paths)
    homes = {str(stage.extra.get("home_id")) for stage in every.values()} | set(ids)
    return [_pipeline(path, doubts, health.unread(path[-1], homes)) for path in paths]


def _walk(
    path: tuple[Stage, ...], feeds: dict[str, list[Stage]], seen: set[str], made: list[tuple[Stage, ...]]
) -> None:
    last = path[-1]
    seen.add(last.key)
    further = [stage for stage in feeds.get(last.key, []) if stage.key not in {before.key for before in path}]
    if not further:
        made.append(path)
    for stage in further:
        _walk((*path, stage), feeds, seen, made)


def _pipeline(path: tuple[Stage, ...], doubts: Mapping[str, Doubt], unread: str) -> Pipeline:
    # The verdict is of this path: a stage that was judged in another one begins anew.
    judged = holding.judge([replace(stage, holds_back=False, why="") for stage in path])
    judged = tuple(health.doubted(stage, doubts.get(stage.key)) for stage in judged)
    first, last = judged[0], judged[-1]
    source = str(first.extra.get("source") or first.reads)
    if first.program != EXTRACT and (writer := first.extra.get("writer")):
        source = f"{source} by {writer} of {first.extra.get('writer_host') or 'another home'}"
    target = last.writes[0] if last.writes else ""
    lag, age = _lag(judged)
    state, why = health.state(judged, unread)
    return Pipeline(
        " > ".join(s.name for s in judged), source, target, judged, None if unread else lag, age, state, why
    )


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
