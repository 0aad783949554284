"""Whether a pipeline is seen to work: what each stage says, held against the stages before it and the heartbeats.

    the state                                         what is doubted is
    the one before it is stopped, abended, starting,  this stage and all behind it: they know only what has reached them
    missing, or waits for its database or peer
    the one before it is not seen, does not answer,   the same, unless a heartbeat has come through in time: that has
    or does not know its own lag                      passed all of them
    nobody here knows who writes its trail            the same, unless a heartbeat has come in time; without heartbeats
                                                      a trail that was just written is a sign of life as well
    a heartbeat is overdue                            this stage, and all behind it
    else                                              nothing

A stage that nobody has registered any more, though its trail stands there, is MISSING: a stage without figures. And a
path ends at a trail that nobody reads where the home in which that trail lies was looked at, and has no reader of it.

    a pipeline is     if
    ABENDED           a stage is
    UNKNOWN           a stage is missing, not seen or does not answer
    STOPPED           a stage is
    STARTING          a stage is
    UNKNOWN           the lag of a stage is not known, or a stage leaves a table out: its lag is that of the others
    UNKNOWN           it ends at a trail that nobody reads
    RUNNING           else: every stage runs and was seen to work

Rule: never healthier than the last truth. What is not known has its age.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ggsci.doubt import Doubt, believed, older
from ggsci.facts import STALE_AFTER_US
from ggsci.flow.stages import EXTRACT, REPLICAT, RUNNING, Stage

MISSING, UNKNOWN = "MISSING", "UNKNOWN"
_DOWN = ("STOPPED", "ABENDED", "STARTING", MISSING)


def completed(found: Iterable[Stage], homes: Collection[str] = ()) -> dict[str, Stage]:
    """The stages by their keys, with those that must have been there: of a known home, and not registered in it."""
    real = [_as_told(stage) for stage in found if stage.status != MISSING]
    every = {stage.key: stage for stage in real}
    known = {str(stage.extra.get("home_id")) for stage in real} | set(homes)
    for stage in real:
        home, _, name = stage.fed_by.rpartition("/")
        if name and stage.fed_by not in every and home in known:
            every[stage.fed_by] = _missing(stage, home, name, every)
    return every


def _missing(reader: Stage, home_id: str, name: str, every: Mapping[str, Stage]) -> Stage:
    home = next((other for other in every.values() if other.extra.get("home_id") == home_id), None)
    told: dict[str, Any] = {
        key: home.extra[key] for key in ("web_home", "web_url", "web_page_name") if home and key in home.extra
    }
    source = {"source": reader.extra["source"]} if "source" in reader.extra else {}
    return Stage(
        home.home if home else home_id, str(reader.extra.get("writer_program") or EXTRACT), name, MISSING,
        lag_age_us=reader.extra.get("input_age_us"), lag_why="it is not registered in its home",
        writes=(reader.reads,), extra={"home_id": home_id, "newest_us": None, **source, **told},
    )  # fmt: skip


def doubts(every: Mapping[str, Stage]) -> dict[str, Doubt]:
    """Of each stage that can't be believed, why, by its key."""
    found: dict[str, Doubt | None] = {}
    for key in every:
        path: list[str] = []
        at = key
        while at in every and at not in found and at not in path:  # a ring has no source
            path.append(at)
            at = every[at].fed_by
        for name in reversed(path):
            found[name] = _doubt(every[name], every.get(every[name].fed_by), found)
    return {key: doubt for key, doubt in found.items() if doubt is not None}


def _doubt(stage: Stage, before: Stage | None, found: Mapping[str, Doubt | None]) -> Doubt | None:
    own = _late(stage) or _waits(stage)
    above = _unseen(stage) if before is None else _passed_on(before, found.get(before.key))
    if above is not None and not above.stands and _is_fresh(stage):
        above = None
    if above is None or own is None:
        return above or own
    worse = own if own.stands and not above.stands else above
    return replace(worse, age_us=older(above.age_us, own.age_us))


def _late(stage: Stage) -> Doubt | None:
    """Its heartbeats are overdue."""
    why = str(stage.extra.get("heartbeat_late") or "")
    text = f"{why}{_in_brackets(stage.extra.get('heartbeat_trouble'))}"
    return Doubt(text, stage.extra.get("heartbeat_age_us")) if why else None


def _waits(stage: Stage) -> Doubt | None:
    """It waits for its database or peer: it may have nothing to do because nothing can reach it."""
    if stage.status != RUNNING or not (state := stage.extra.get("state")):
        return None
    text = f"{stage.program} {stage.name}: {state}{_in_brackets(stage.extra.get('trouble'))}"
    return Doubt(text, stage.extra.get("heartbeat_age_us"), stands=True)


def _is_fresh(stage: Stage) -> bool:
    """Has a heartbeat come through to it in time?"""
    return bool(stage.extra.get("heartbeat_every_s")) and not stage.extra.get("heartbeat_late")


def _unseen(stage: Stage) -> Doubt | None:
    """Nobody here knows who feeds it."""
    if (stage.program == EXTRACT and not stage.fed_by) or stage.status == MISSING:
        return None
    age = stage.extra.get("input_age_us")
    if not stage.fed_by:
        return Doubt(f"nobody has written {stage.reads} yet")
    if _late(stage) or age is None or age <= STALE_AFTER_US:
        return None
    writer = stage.extra.get("writer") or stage.fed_by.rpartition("/")[2]
    return Doubt(f"nothing came from {writer}, which is not seen from here, and there are no heartbeats", age)


def _passed_on(before: Stage, its: Doubt | None) -> Doubt | None:
    """What is true of all behind `before`, whose own doubt is `its`."""
    who, why = f"{before.program} {before.name}", before.lag_why
    if before.status in _DOWN:
        text = f"{who} is {before.status}"
    elif its is not None:
        return its
    elif before.status != RUNNING:
        text = f"{who} is {before.status}{_in_brackets(why)}"
    elif before.extra.get("unanswered") or before.lag_us is None:
        text = f"{who}: {why or 'its lag is not known'}"
    else:
        return None
    age = before.lag_age_us if before.lag_age_us is not None else before.extra.get("heartbeat_age_us")
    stands = before.status in _DOWN
    if its is not None and its.stands:
        return replace(its, age_us=older(its.age_us, age))
    return Doubt(text, older(age, its.age_us if its else None), stands)


def _in_brackets(text: object) -> str:
    return f" ({text})" if text else ""


def doubted(stage: Stage, doubt: Doubt | None) -> Stage:
    """The stage as it may be shown."""
    if doubt is None or believed(stage.lag_us, doubt) is not None:
        return stage
    if stage.lag_us is None and stage.status != RUNNING:
        return stage  # it says itself why nothing is known
    own = {"own_lag_us": stage.lag_us, "own_lag_age_us": stage.lag_age_us, "own_lag_why": stage.lag_why}
    return replace(stage, lag_us=None, lag_age_us=doubt.age_us, lag_why=doubt.why, extra={**stage.extra, **own})


def _as_told(stage: Stage) -> Stage:
    """The stage as it told of itself: where more homes are known it is judged anew."""
    if "own_lag_why" not in stage.extra:
        return stage
    extra = {key: value for key, value in stage.extra.items() if not key.startswith("own_lag_")}
    own = stage.extra
    return replace(
        stage, lag_us=own["own_lag_us"], lag_age_us=own["own_lag_age_us"], lag_why=own["own_lag_why"], extra=extra
    )


# --- of a whole pipeline ----------------------------------------------------------------------------------------------


def unread(last: Stage, homes: Collection[str]) -> str:
    """What is to be said if nothing leaves the last stage of a path; `homes`: those that were looked at."""
    if last.program == REPLICAT or last.status == MISSING or last.extra.get("writes_home") not in homes:
        return ""
    return f"nobody reads {' or '.join(last.writes) or 'what it writes'}: no pump and no Replicat"


def state(stages: Sequence[Stage], unread: str = "") -> tuple[str, str]:
    """(state, why) of a pipeline whose stages these are, as they may be shown."""
    asked = (
        ("ABENDED", [stage for stage in stages if stage.status == "ABENDED"]),
        (UNKNOWN, [stage for stage in stages if stage.status in (MISSING, UNKNOWN) or stage.extra.get("unanswered")]),
        ("STOPPED", [stage for stage in stages if stage.status == "STOPPED"]),
        ("STARTING", [stage for stage in stages if stage.status == "STARTING"]),
        (UNKNOWN, [stage for stage in stages if stage.lag_us is None or stage.extra.get("tables_amiss")]),
    )
    for name, found in asked:
        if found:
            return name, "; ".join(dict.fromkeys(map(_said, found)))
    return (UNKNOWN, f"{stages[-1].program} {stages[-1].name}: {unread}") if unread else (RUNNING, "")


def _said(stage: Stage) -> str:
    who = f"{stage.program} {stage.name}"
    if stage.status == RUNNING:
        if stage.lag_us is not None and (amiss := stage.extra.get("tables_amiss")):
            return f"{who}: {amiss}"
        return stage.lag_why if stage.lag_why.startswith(_PROGRAMS) else f"{who}: {stage.lag_why}"
    about = stage.extra.get("message") or (stage.lag_why if stage.status in (MISSING, UNKNOWN) else "")
    return f"{who} is {stage.status}{_in_brackets(about)}"


_PROGRAMS = ("EXTRACT ", "PUMP ", "REPLICAT ")
