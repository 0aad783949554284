"""Looks at all known homes each few seconds, and keeps what it saw: the last picture whole, a few figures over time.

Rule: pages are drawn from here and never wait for a process or another host. A picture is true for a moment only: from
a home that can't be seen, and from a watch that hangs, the last picture stays, with every state UNKNOWN and its age.
"""

from __future__ import annotations

import dataclasses
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from ggsci.flow import pipelines
from ggsci.flow.pipelines import Pipeline, Stage
from ggsci.manager.webparams import WebHome, WebParams
from ggsci.views.view import span
from ggsci.web import remote
from ggsci.web.kept import KeptHistory
from ggsci.web.ring import History
from trails.errors import GateError, OperatorError
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.home.status import manager_status
from trails.runtime.process.control import ask

HISTORY_SECONDS = 6 * 3600.0
PATIENCE_SECONDS = 6.0
STALE_US = 20_000_000
UNKNOWN = "UNKNOWN"

Gather = Callable[[Home, int], Sequence[Pipeline]]
_Seen = tuple[float, "HomeView", tuple[Pipeline, ...]]


@dataclass(frozen=True, slots=True)
class HomeView:
    """One known home: its Manager, its disks, and what is wrong with looking at it."""

    name: str
    folder: str = ""
    url: str = ""
    manager: str = UNKNOWN
    trouble: str = ""
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """What was seen at one time. `own` holds this home's pipelines alone, for the pages of other homes."""

    at_us: int
    age_us: int = 0
    homes: tuple[HomeView, ...] = ()
    pipelines: tuple[Pipeline, ...] = ()
    own: tuple[Pipeline, ...] = ()

    def home(self, name: str) -> HomeView | None:
        """The known home of that name."""
        return next((home for home in self.homes if home.name == name), None)


@dataclass(slots=True)
class _Source:
    """One home as it was seen last (at `seen`, monotonic), and the look that is under way."""

    name: str
    folder: str = ""
    other: WebHome | None = None
    view: HomeView = dataclasses.field(default_factory=lambda: HomeView(""))
    pipelines: tuple[Pipeline, ...] = ()
    seen: float = 0.0
    looking: Future[_Seen] | None = None


class HomesWatch:
    """A thread that looks; everything it shows is replaced whole, so readers need no lock."""

    def __init__(self, home: Home, params: WebParams, gather: Gather = pipelines.gather) -> None:
        self.home = home
        self.every = params.every
        self._gather = gather
        self._sources = _sources(home, params)
        self._pool = ThreadPoolExecutor(max(2, min(16, len(self._sources))), "look")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._picture = Picture(0)
        self._looked = time.monotonic()
        self.history = History(HISTORY_SECONDS, self.every, KeptHistory(home))
        self.failure: BaseException | None = None

    @property
    def name(self) -> str:
        """What this home is called."""
        return self._sources[0].name

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking; a look that hangs is left alone."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def picture(self) -> Picture:
        """The last picture; one that is too old shows every state as UNKNOWN."""
        picture = self._picture
        age = int((time.monotonic() - self._looked) * 1_000_000)
        if age <= STALE_US:
            return replace(picture, age_us=age)
        why = f"not looked at for {span(age)}"
        shown, own = faded(picture.pipelines, age, why), faded(picture.own, age, why)
        homes = tuple(unseen(view, view.name, why) for view in picture.homes)
        return replace(picture, age_us=age, homes=homes, pipelines=shown, own=own)

    def local(self, name: str) -> Home | None:
        """A known home of this host by its name. Raises OperatorError if it can't be used."""
        folder = next((source.folder for source in self._sources if source.name == name), "")
        return Home.at(folder) if folder else None

    def _run(self) -> None:
        try:
            self.history.load(_now_us() / 1_000_000)
            while not self._stop.is_set():
                begin = time.monotonic()
                self.look()
                self._stop.wait(max(0.5, self.every - (time.monotonic() - begin)))
        except BaseException as error:  # noqa: BLE001  -- told by whoever serves; without a watch nothing may be served
            self.failure = error

    def look(self) -> None:
        """Look once at every home; those that hang are waited for a moment only."""
        now_us, begin = _now_us(), time.monotonic()
        for source in self._sources:
            if source.looking is None:
                source.looking = self._pool.submit(self._see, source)
        seen = [self._take(source, begin + PATIENCE_SECONDS) for source in self._sources]
        ids = [source.view.id for source in self._sources if source.view.id]
        joined = tuple(pipelines.join([pipeline for found in seen for pipeline in found], ids))
        joined = _each(joined, _unjudged)
        joined = _named(joined, {source.folder: source.name for source in self._sources if source.folder})
        self._picture = Picture(now_us, 0, tuple(source.view for source in self._sources), joined, seen[0])
        self._looked = begin
        self.history.add(now_us / 1_000_000, _stages(joined))

    def _take(self, source: _Source, end: float) -> tuple[Pipeline, ...]:
        """What the look at this home found; what it was, as UNKNOWN, if it found nothing."""
        looking = source.looking
        assert looking is not None
        try:
            source.seen, source.view, source.pipelines = looking.result(max(0.0, end - time.monotonic()))
            source.looking, trouble = None, source.view.trouble
        except TimeoutError:
            trouble = f"no answer within {PATIENCE_SECONDS:g} seconds"
        except (GateError, OSError) as error:
            source.looking, trouble = None, str(error)
        age = int((time.monotonic() - source.seen) * 1_000_000) if source.seen > 0 else 0
        if not trouble and age > STALE_US:
            trouble = f"looking took {span(age)}"
        if not trouble:
            return source.pipelines
        source.view = unseen(source.view, source.name, trouble)
        return faded(source.pipelines, age, f"last seen {span(age)} ago: {trouble}")

    def _see(self, source: _Source) -> _Seen:
        return self._see_page(source.other) if source.other else self._see_folder(source)

    def _see_folder(self, source: _Source) -> _Seen:
        begin, home = time.monotonic(), Home.at(source.folder)
        found = tuple(self._gather(home, _now_us()))
        alive = manager_status(home).status.is_alive
        details = _asked(home) if alive else {}
        found = _with_slots(found, details.get("slots"))
        manager = "RUNNING" if alive else "STOPPED"
        return begin, HomeView(source.name, home.root, "", manager, "", details, home.id), found

    def _see_page(self, other: WebHome) -> _Seen:
        begin, answer = time.monotonic(), remote.fetch(self.home, other)
        found = _of(other.name, other.url, answer.home, answer.pipelines)
        trouble = f"its own watch is {span(answer.age_us)} behind" if answer.age_us > STALE_US else ""
        seen = begin - answer.age_us / 1_000_000
        details = {"page_name": answer.home}
        return seen, HomeView(other.name, "", other.url, answer.manager, trouble, details, answer.id), found


def _sources(home: Home, params: WebParams) -> list[_Source]:
    own = own_name(home)
    found = [_Source(own, folder=home.root)]
    for other in params.homes:
        if other.name in {source.name for source in found}:
            raise OperatorError(f"WEBHOME {other.name}: this name is taken by another home", hint="Choose another name")
        folder = os.path.abspath(other.folder) if other.folder else ""
        found.append(_Source(other.name, folder, None if folder else other))
    return found


def own_name(home: Home) -> str:
    """What the page calls its own home: its folder's name, of those characters that any home's name may have."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", os.path.basename(home.root))[:32] or "home"


def _asked(home: Home) -> dict[str, Any]:
    """What the Manager tells of itself; nothing if it has no time."""
    try:
        return ask(home, MANAGER, "STATUS", timeout=1)
    except GateError:
        return {}


def _now_us() -> int:
    return time.time_ns() // 1000


def unseen(view: HomeView, name: str, trouble: str) -> HomeView:
    """A home of which nothing is known now: neither its Manager nor its disks."""
    kept = {key: value for key, value in view.details.items() if key == "page_name"}
    return replace(view, name=name, manager=UNKNOWN, trouble=trouble, details=kept)


# --- stages of several homes ------------------------------------------------------------------------------------------


def home_name(stage: Stage) -> str:
    """What the page calls this stage's home."""
    return str(stage.extra.get("web_home") or os.path.basename(stage.home) or stage.home)


def key(stage: Stage) -> str:
    """A stage's key in the history, and in the page."""
    return f"{home_name(stage)}/{stage.name}"


def _stages(found: Sequence[Pipeline]) -> list[tuple[str, Stage]]:
    """Each stage once, though it may stand in several pipelines."""
    return list({key(stage): stage for pipeline in found for stage in pipeline.stages}.items())


def _with_slots(found: Sequence[Pipeline], slots: Any) -> tuple[Pipeline, ...]:
    """Of Extracts that don't run the Manager looks how much log their slots keep back; when, is among the figures."""

    def change(stage: Stage) -> Stage:
        facts = slots.get(stage.name) if isinstance(slots, dict) else None
        if not facts or stage.status not in ("STOPPED", "ABENDED"):
            return stage
        return _with(stage, **facts)

    return _each(found, change)


def _with(stage: Stage, **more: Any) -> Stage:
    return replace(stage, extra={**stage.extra, **more})


def _each(found: Sequence[Pipeline], change: Callable[[Stage], Stage]) -> tuple[Pipeline, ...]:
    return tuple(replace(pipeline, stages=tuple(map(change, pipeline.stages))) for pipeline in found)


def _named(found: Sequence[Pipeline], names: dict[str, str]) -> tuple[Pipeline, ...]:
    def change(stage: Stage) -> Stage:
        name = names.get(stage.home)
        if name is None or "web_home" in stage.extra:
            return stage
        return _with(stage, web_home=name)

    return _each(found, change)


def _of(name: str, url: str, page_name: str, found: Sequence[Pipeline]) -> tuple[Pipeline, ...]:
    """Mark the stages of another page, so that a click leads there."""
    return _each(found, lambda stage: _with(stage, web_home=name, web_url=url, web_page_name=page_name))


def _unjudged(stage: Stage) -> Stage:
    """Joining judges who holds the others back; of what can't be seen nobody knows that."""
    return stage if stage.status != UNKNOWN else replace(stage, holds_back=False, why=stage.lag_why)


_LASTING = (
    "web_home",
    "web_url",
    "web_page_name",
    "home_id",
    "fed_by",
    "source",
    "writer",
    "writer_host",
    "holder",
    "host",
)
"""What of a stage's `extra` is true for longer than a moment: where it belongs, never what it counts."""


def faded(found: Sequence[Pipeline], more_us: int, why: str) -> tuple[Pipeline, ...]:
    """The same pipelines, of which nothing is known now: their last truth is `more_us` older."""

    def change(stage: Stage) -> Stage:
        age = None if stage.lag_age_us is None else stage.lag_age_us + more_us
        return replace(
            stage, status=UNKNOWN, pid=None, lag_us=None, lag_age_us=age, lag_why=why, backlog_bytes=None,
            backlog_us=None, ops_s=None, bytes_s=None, bytes_out_s=None, busy=None, holds_back=False, why=why,
            extra={name: value for name, value in stage.extra.items() if name in _LASTING},
        )  # fmt: skip

    def whole(pipeline: Pipeline) -> Pipeline:
        age = None if pipeline.lag_age_us is None else pipeline.lag_age_us + more_us
        return replace(pipeline, lag_us=None, lag_age_us=age, state=UNKNOWN, why=why)

    return tuple(whole(pipeline) for pipeline in _each(found, change))
