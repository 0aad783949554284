"""The pipelines as trees: one Extract is drawn once, however many paths begin there. And what needs a person, first.

Rule: problems come before what works, each with its whole text. A panel is as bad as the worst of its paths; the worst
panels come first, so nobody has to scroll to find what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ggsci.flow.health import MISSING, UNKNOWN
from ggsci.flow.pipelines import Pipeline, Stage
from ggsci.web import drawing, words
from ggsci.web.drawing import LATE_US, Arrow, Box
from ggsci.web.loads import GroupLoad, loads
from ggsci.web.watch import HomeView, home_name, key

STATES = ("abended", "unknown", "stopped", "starting", "running")
"""Worst first."""
_BAD_SLOTS = ("lost", "missing", "unreserved")


@dataclass(frozen=True, slots=True)
class PathEnd:
    """Where one path ends, and how far the whole of it is behind."""

    name: str
    kind: str
    link: Arrow
    lag: str
    lag_note: str
    lag_state: str
    state: str


@dataclass(frozen=True, slots=True)
class StageNode:
    """A stage, and what goes on from it: other stages, or an end."""

    box: Box
    following: tuple[StageNode, ...]
    end: PathEnd | None


@dataclass(frozen=True, slots=True)
class Panel:
    """All paths from one first stage."""

    id: str
    name: str
    source: str
    state: str
    why: str
    root: StageNode
    boxes: tuple[Box, ...]
    has_slot: bool
    loads: tuple[GroupLoad, ...] = ()

    @property
    def keys(self) -> str:
        """The stages' keys in the history, for the script."""
        return " ".join(box.key for box in self.boxes)


def panels(found: Sequence[Pipeline]) -> list[Panel]:
    """Worst first, else in their order."""
    by_first: dict[str, list[Pipeline]] = {}
    for pipeline in found:
        if pipeline.stages:
            by_first.setdefault(key(pipeline.stages[0]), []).append(pipeline)
    made = [_panel(paths) for paths in by_first.values()]
    return sorted(made, key=lambda panel: STATES.index(panel.state))


def _panel(paths: Sequence[Pipeline]) -> Panel:
    stages = _stages_of(paths)
    boxes = {name: drawing.box(stage, number) for number, (name, stage) in enumerate(stages.items())}
    worst = min(paths, key=lambda path: STATES.index(path.state.lower()))
    first = paths[0].stages[0]
    shown = paths[0].name.replace(" > ", " → ") if len(paths) == 1 else f"{first.name} → {len(paths)} targets"
    return Panel(
        id=f"p-{home_name(first)}-{first.name}".replace(" ", ""),
        name=shown,
        source=paths[0].source,
        state=worst.state.lower(),
        why=worst.why if len(paths) == 1 else "",
        root=_node(paths, 0, boxes),
        boxes=tuple(boxes.values()),
        has_slot=any(stage.extra.get("holder") for stage in stages.values()),
        loads=tuple(loads(stages.values())),
    )


def _stages_of(paths: Iterable[Pipeline]) -> dict[str, Stage]:
    """Each stage once; whoever holds back one of its paths is shown so."""
    found: dict[str, Stage] = {}
    for stage in (stage for path in paths for stage in path.stages):
        known = found.get(key(stage))
        if known is None or (stage.holds_back and not known.holds_back):
            found[key(stage)] = stage
    return found


def _node(paths: Sequence[Pipeline], depth: int, boxes: Mapping[str, Box]) -> StageNode:
    """The stage at this depth, which all of these paths have in common."""
    box = boxes[key(paths[0].stages[depth])]
    further: dict[str, list[Pipeline]] = {}
    for path in paths:
        if len(path.stages) > depth + 1:
            further.setdefault(key(path.stages[depth + 1]), []).append(path)
    following = tuple(_node(some, depth + 1, boxes) for some in further.values())
    return StageNode(box, following, None if following else _end(paths[0]))


def _end(path: Pipeline) -> PathEnd:
    last = path.stages[-1]
    writes = ", ".join(last.writes)
    link = Arrow("", f"{last.name} writes to {writes or path.target}", "", "", waits=False, flows=bool(last.ops_s))
    # Why it is not known stands beside the state.
    lag, note, state = drawing.lag_words(path.lag_us, path.lag_age_us, "")
    # A pump whose Replicat is in a home that is not known here ends at its remote trail.
    kind = "Target" if last.program == "REPLICAT" else "Trail"
    return PathEnd(path.target or writes, kind, link, lag, note, state, path.state.lower())


# --- what needs a person ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, the whole of it. `state` gives its place and colour, `word` says what it is."""

    state: str
    word: str
    title: str
    text: str
    href: str

    @property
    def about(self) -> str:
        """For who has it read out: without what changes each moment."""
        return f"{self.title}: {self.word}"


def problems(
    found: Sequence[Pipeline], homes: Iterable[HomeView], notes: Iterable[tuple[str, str, str, str]] = ()
) -> list[Problem]:
    """Worst first. `notes`: (home, address, word, text) of what the caller knows of homes, such as low disks."""
    made = [problem for view in homes for problem in _of_home(view)]
    stages = _stages_of(found).values()
    named = {f"{stage.program} {stage.name}" for stage in stages if stage.status != "RUNNING"}
    for stage in stages:
        made += _of_stage(stage, named)
    made += [Problem("unknown", word, f"Home {name}", text, href) for name, href, word, text in notes]
    return sorted(made, key=lambda problem: STATES.index(problem.state))


def _of_home(view: HomeView) -> list[Problem]:
    who, href = f"Home {view.name}", f"{view.url}/" if view.url else f"/home/{view.name}"
    if view.trouble:
        return [Problem("unknown", UNKNOWN, who, f"It can't be seen: {view.trouble}", href)]
    if view.manager == "STOPPED":
        text = "Its Manager does not run: nothing is restarted, purged or handed out there."
        return [Problem("abended", "MANAGER DOWN", who, text, href)]
    return []


def _of_stage(stage: Stage, named: set[str]) -> list[Problem]:
    """What is wrong with it. What only follows from a stage that is named already is not said again."""
    who, href = f"{stage.program} {stage.name}", drawing.href(stage)
    error = str(stage.extra.get("message") or "")
    if stage.status in (MISSING, UNKNOWN):
        return [Problem("unknown", stage.status, who, f"{stage.lag_why}{_age(stage)}", href)]
    made = [_slot(stage, who, href)] if stage.extra.get("log_status") in _BAD_SLOTS else []
    if stage.status in ("ABENDED", "STOPPED"):
        text = error or ("It was stopped." if stage.status == "STOPPED" else "It left no message.")
        return [*made, Problem(stage.status.lower(), stage.status, who, text, href)]
    if failed := (stage.extra.get("load_states") or {}).get("failed"):
        what = "1 table" if failed == 1 else f"{failed} tables"
        text = f"{what} could not be loaded, so changes are left out. INFO TABLES {stage.name} says why."
        made.append(Problem("abended", "LOAD FAILED", who, text, href))
    if amiss := stage.extra.get("tables_amiss"):
        text = f"{amiss}. Its lag is that of all other tables; INFO TABLES {stage.name} says why"
        made.append(Problem("unknown", "TABLES LEFT OUT", who, text, href))
    if stage.lag_us is None and stage.status == "RUNNING":
        if not any(stage.lag_why.startswith(other) for other in named - {who}):
            text = f"It is not seen to work: {stage.lag_why}{_age(stage)}"
            made.append(Problem("unknown", UNKNOWN, who, text, href))
    elif stage.lag_us is not None and stage.lag_us >= LATE_US:
        why = f": {stage.why}" if stage.holds_back else ""
        text = f"{words.duration(stage.lag_us)} behind the source{why}"
        made.append(Problem("unknown", "LATE", who, text, href))
    return made


def _slot(stage: Stage, who: str, href: str) -> Problem:
    status, reason = str(stage.extra["log_status"]), stage.extra.get("log_reason")
    holder = str(stage.extra.get("holder"))
    text = f"{holder[:1].upper()}{holder[1:]} is {status}{f' ({reason})' if reason else ''}"
    what = "SLOT" if holder.startswith("slot ") else "LOG"
    return Problem("unknown" if status == "unreserved" else "abended", f"{what} {status.upper()}", who, text, href)


def _age(stage: Stage) -> str:
    return "" if stage.lag_age_us is None else f"; last known {words.duration(stage.lag_age_us)} ago"
