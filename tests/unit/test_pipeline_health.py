"""GG-19 for whole pipelines: green means seen to work. Every combination of stages and heartbeats, offline."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from ggsci.doubt import Doubt, believed
from ggsci.flow import pipelines
from ggsci.flow.pipelines import Pipeline, Stage
from trails.heartbeat import entry_of, judged
from trails.runtime.report.answers import LagAnswer
from trails.runtime.report.metrics import checked

SECOND = 1_000_000
HOUR = 3600 * SECOND
NAMES = (("EXTRACT", "EXT1"), ("PUMP", "PMP1"), ("REPLICAT", "REP1"))

# --- what a stage may be, and what heartbeat it may have met ----------------------------------------------------------

STAGES: dict[str, dict[str, Any]] = {
    "works": {},
    "stopped": {"status": "STOPPED", "lag_us": None, "lag_age_us": 90 * SECOND, "lag_why": "STOPPED"},
    "abended": {"status": "ABENDED", "lag_us": None, "lag_age_us": 90 * SECOND, "lag_why": "ABENDED"},
    "starting": {"status": "STARTING", "lag_us": None, "lag_age_us": 90 * SECOND, "lag_why": "STARTING"},
    "unseen": {"status": "UNKNOWN", "lag_us": None, "lag_age_us": 90 * SECOND, "lag_why": "last seen 90 s ago"},
    "silent": {"lag_us": None, "lag_age_us": 90 * SECOND, "lag_why": "it does not tell", "unanswered": True},
    "waits": {"state": "Waiting for the remote host", "trouble": "refused"},
    "clock": {"lag_us": None, "lag_age_us": None, "lag_why": "clocks differ"},
    "gone": {},
}
BEATS: dict[str, dict[str, Any]] = {
    "none": {},
    "paused": {"heartbeat_every_s": 0, "heartbeat_age_us": HOUR, "heartbeat_late": "", "heartbeat_lag_us": None},
    "fresh": {"heartbeat_every_s": 10, "heartbeat_age_us": 3 * SECOND, "heartbeat_late": "", "heartbeat_lag_us": 9},
    "overdue": {
        "heartbeat_every_s": 10, "heartbeat_age_us": 300 * SECOND, "heartbeat_lag_us": None,
        "heartbeat_late": "no heartbeat for 300 s; one each 10 s was due",
    },
    "put back": {
        "heartbeat_every_s": 10, "heartbeat_age_us": 0, "heartbeat_late": "this host's clock was put back since",
        "heartbeat_lag_us": None,
    },
}  # fmt: skip
_FIELDS = ("status", "lag_us", "lag_age_us", "lag_why")


def made(kind: str, place: int, lag_us: int = 0, **extra: Any) -> Stage:
    """Stage `place` of a path; at the end of its input unless it is `lag_us` behind."""
    program, name = NAMES[place]
    facts = {"status": "RUNNING", "lag_us": lag_us, "lag_age_us": 0, "backlog_bytes": 0} | STAGES[kind]
    given = {key: value for key, value in facts.items() if key in (*_FIELDS, "backlog_bytes")}
    more = {key: value for key, value in facts.items() if key not in given}
    home = "a" if place < 2 else "b"
    fed = {"fed_by": f"a/{NAMES[place - 1][1]}", "input_age_us": 5 * SECOND} if place else {}
    return Stage(
        f"/{home}", program, name, reads="./dirdat/lt", extra={"home_id": home, **fed, **more, **extra}, **given
    )


def joined(*stages: Stage, ids: tuple[str, ...] = ("a", "b")) -> Pipeline:
    """The pipeline that ends in the last of these."""
    found = pipelines.join([Pipeline("", "", "", stages)], ids)
    return next(one for one in found if one.stages[-1].name == stages[-1].name)


ALL = list(itertools.product(STAGES, STAGES, [kind for kind in STAGES if kind != "gone"], BEATS, (0, 400 * SECOND)))


def test_GG_19_no_combination_of_stages_and_heartbeats_is_green_unless_all_of_it_works():
    """I12: RUNNING is said of what was seen to work alone; an idle stage behind a dead one never says 0."""
    for extract, pump, replicat, beat, lag in ALL:
        kinds = (extract, pump, replicat)
        about = f"{kinds} heartbeat {beat}, Replicat {lag // SECOND} s behind"
        given = [made(extract, 0), made(pump, 1), made(replicat, 2, lag, **BEATS[beat])]
        found = joined(*(one for one, kind in zip(given, kinds, strict=True) if kind != "gone"))
        last = found.stages[-1]
        late = beat in ("overdue", "put back")
        dead = [kind for kind in kinds[:2] if kind in ("stopped", "abended", "starting", "gone", "waits")]
        if extract == "gone" and pump == "gone":
            dead = ["gone"]
        if dead or (late and replicat == "works"):
            assert last.lag_us != 0, about
        healthy = set(kinds) == {"works"} and not (late and lag < 300 * SECOND)
        assert (found.state == "RUNNING") <= healthy or _is_behind(kinds, lag), f"{about}: {found.state}, {found.why}"
        if healthy:
            assert (found.state, found.why, found.lag_us) == ("RUNNING", "", lag), about
        else:
            assert found.why or found.state == "RUNNING", about
        if last.lag_us is None:
            assert last.lag_why, about


def _is_behind(kinds: tuple[str, ...], lag: int) -> bool:
    """Whoever waits for his peer, and is that far behind, says so himself."""
    return set(kinds) <= {"works", "waits"} and kinds[:2] == ("works", "works") and lag > 0


TOLD: list[tuple[str, tuple[str, str, str], str, str, str, int | None]] = [
    # what happened, stages, heartbeat at the Replicat, state, why the Replicat's lag is not known, age in seconds
    ("all works, heartbeats", ("works", "works", "works"), "fresh", "RUNNING", "", 0),
    ("all works, none wanted", ("works", "works", "works"), "paused", "RUNNING", "", 0),
    ("all works, no heartbeats", ("works", "works", "works"), "none", "RUNNING", "", 0),
    ("Extract stopped", ("stopped", "works", "works"), "none", "STOPPED", "EXTRACT EXT1 is STOPPED", 90),
    ("Extract stopped just now", ("stopped", "works", "works"), "fresh", "STOPPED", "EXTRACT EXT1 is STOPPED", 90),
    ("Extract stopped long ago", ("stopped", "works", "works"), "overdue", "STOPPED", "EXTRACT EXT1 is STOPPED", 300),
    ("Extract abended", ("abended", "works", "works"), "overdue", "ABENDED", "EXTRACT EXT1 is ABENDED", 300),
    ("Extract deleted", ("gone", "works", "works"), "overdue", "UNKNOWN", "EXTRACT EXT1 is MISSING", 300),
    ("Extract deleted, no heartbeats", ("gone", "works", "works"), "none", "UNKNOWN", "EXTRACT EXT1 is MISSING", 5),
    ("pump stopped", ("works", "stopped", "works"), "fresh", "STOPPED", "PUMP PMP1 is STOPPED", 90),
    ("pump deleted", ("works", "gone", "works"), "none", "UNKNOWN", "EXTRACT PMP1 is MISSING", 5),
    ("remote Manager or Collector gone", ("works", "waits", "works"), "none", "UNKNOWN",
     "PUMP PMP1: Waiting for the remote host (refused)", None),
    ("Replicat stopped", ("works", "works", "stopped"), "fresh", "STOPPED", "STOPPED", 90),
    ("seed row not written", ("works", "works", "works"), "overdue", "UNKNOWN",
     "no heartbeat for 300 s; one each 10 s was due", 300),
    ("clock put back", ("works", "works", "works"), "put back", "UNKNOWN", "this host's clock was put back since", 0),
    ("source's home not seen", ("unseen", "unseen", "works"), "none", "UNKNOWN",
     "EXTRACT EXT1 is UNKNOWN (last seen 90 s ago)", 90),
    ("source's home not seen, heartbeats come", ("unseen", "unseen", "works"), "fresh", "UNKNOWN", "", 0),
    ("Extract hangs", ("silent", "works", "works"), "none", "UNKNOWN", "EXTRACT EXT1: it does not tell", 90),
    ("Extract's clock unknown, heartbeats come", ("clock", "works", "works"), "fresh", "UNKNOWN", "", 0),
]  # fmt: skip


@pytest.mark.parametrize(("kinds", "beat", "state", "why", "age"), [row[1:] for row in TOLD], ids=[r[0] for r in TOLD])
def test_GG_19_each_way_to_stand_still_is_told(
    kinds: tuple[str, str, str], beat: str, state: str, why: str, age: int | None
):
    """The state of the pipeline, and of its idle Replicat why its lag is not known and how old the last truth is."""
    given = [made(kind, place) for place, kind in enumerate(kinds) if kind != "gone"]
    given[-1] = replace(given[-1], extra={**given[-1].extra, **BEATS[beat]})
    found = joined(*given)
    last = found.stages[-1]
    assert (found.state, last.lag_why, last.lag_us is None) == (state, why, bool(why))
    assert last.lag_age_us == (None if age is None else age * SECOND)
    assert bool(found.why) == (state != "RUNNING")


def test_B4_a_table_that_stays_behind_is_told_and_no_pipeline_is_green_with_it():
    """The lag stays: it is that of all other tables."""
    stages = [made("works", place) for place in range(3)]
    stages[-1] = replace(stages[-1], extra={**stages[-1].extra, **BEATS["fresh"], "tables_amiss": "s.t is paused"})
    found = joined(*stages)
    assert (found.state, found.why) == ("UNKNOWN", "REPLICAT REP1: s.t is paused")
    assert found.stages[-1].lag_us is not None


@pytest.mark.parametrize(
    ("beat", "input_age", "why"),
    [
        ("none", 5, ""),
        ("none", 61, "nothing came from PMP1, which is not seen from here, and there are no heartbeats"),
        ("paused", 61, "nothing came from PMP1, which is not seen from here, and there are no heartbeats"),
        ("fresh", 9999, ""),
        ("overdue", 5, "no heartbeat for 300 s; one each 10 s was due"),
    ],
)
def test_GG_19_a_replicat_alone_in_its_home(beat: str, input_age: int, why: str):
    """Its home knows nothing of the source's: heartbeats tell, else only what has just been written."""
    alone = made("works", 2, **BEATS[beat], writer="PMP1")
    alone = replace(alone, extra={**alone.extra, "input_age_us": input_age * SECOND})
    found = joined(alone, ids=("b",))
    assert [one.name for one in found.stages] == ["REP1"]
    assert (found.state, found.stages[0].lag_why) == ("UNKNOWN" if why else "RUNNING", why)


def test_a_trail_that_nobody_has_written():
    """A Replicat at the end of nothing is not up to date."""
    alone = replace(made("works", 2), extra={"home_id": "b"})
    assert joined(alone, ids=("b",)).stages[0].lag_why == "nobody has written ./dirdat/lt yet"


def test_a_missing_stage_is_drawn_and_comes_back():
    """It stands in the path, also after a trip through JSON, until a group of that name is registered again."""
    found = pipelines.join([Pipeline("", "", "", (made("works", 1),))])
    (path,) = pipelines.join(pipelines.from_json(pipelines.to_json(found)))
    assert [(one.name, one.status) for one in path.stages] == [("EXT1", "MISSING"), ("PMP1", "RUNNING")]
    assert path.stages[0].holds_back
    (path,) = pipelines.join([path, Pipeline("", "", "", (made("works", 0),))])
    assert [(one.name, one.status) for one in path.stages] == [("EXT1", "RUNNING"), ("PMP1", "RUNNING")]
    assert path.state == "RUNNING"


@pytest.mark.parametrize(
    ("lag", "age", "shown"),
    [
        (0, 5, None),
        (4, 5, None),
        (5, 5, 5),
        (600, 5, 600),
        (0, None, None),
        (1, None, 1),
        (None, 5, None),
        (0, 0, None),
    ],
)
def test_a_lag_is_held_against_the_last_truth(lag: int | None, age: int | None, shown: int | None):
    """One that is as long as nothing was seen says so itself; a shorter one is contradicted."""
    doubt = Doubt("x", None if age is None else age * SECOND)
    assert believed(None if lag is None else lag * SECOND, doubt) == (None if shown is None else shown * SECOND)
    assert believed(0, None) == 0


def test_GG_19_a_process_that_is_idle_says_so_only_while_heartbeats_come():
    """GETLAG and METRICS of the process itself, with nobody else to ask."""
    from tests.support.beating import beat, piped

    now = 10_000 * SECOND
    old = entry_of(piped(beat(now - 300 * SECOND, every=10)))
    new = entry_of(piped(beat(now - 5 * SECOND, every=10)))
    assert checked(LagAnswer(0, "", True, [new]), now).lag_us == 0
    assert checked(LagAnswer(0, "", True, []), now).lag_us == 0
    told = checked(LagAnswer(0, "", True, [old]), now)
    assert (told.lag_us, told.lag_at_us) == (None, old["at_us"])
    assert re.fullmatch(r"no heartbeat for 299 s; one each 10 s was due", told.lag_why)
    behind = LagAnswer(400 * SECOND, "", True, [old])
    assert checked(behind, now) == behind, "it is as far behind as its last heartbeat: that is why"
    assert judged(old, now)["late"]
    assert not judged({**old, "every_s": 0}, now)["late"]
