"""The pages and their addresses. All of them look; none changes anything.

    /                                  all pipelines, drawn                                         free on loopback
    /api/history.json, /api/home.json  figures over time; this home for the pages of others         free on loopback
    /metrics                           Prometheus                                                   free on loopback
    /login, /static/...                the token's form; style, script, charts                      free
    /home/H, /stage/H/G, /trail/H/T    the Manager, a group, a trail: texts, files and row data     token

Rule: what may wait (files, processes) runs in one of a few threads, and a browser waits for it only so long; what
hangs keeps its thread, so there are never more. Pages drawn from memory have threads of their own, and never wait
behind those.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ggsci.flow.pipelines import to_json
from ggsci.view import stamp
from ggsci.web import detailpages, drawing, figures, words
from ggsci.web.guard import Guard, safe_path
from ggsci.web.params import WebParams
from ggsci.web.tokens import Sessions
from ggsci.web.watch import HISTORY_SECONDS, STALE_US, Picture, Watch, home_name
from trails.errors import GateError
from trails.runtime.diskguard import FILES
from trails.runtime.home import Home

THREADS, QUICK_THREADS = 12, 2
POINTS = 360
MINUTES = (15, 60, 360)
FIGURES_SECONDS = 2.0
FIGURES_PATIENCE = 5.0
LATE_LOOKS = 4
STATIC_SECONDS = 3600
_log = logging.getLogger("ggsci.web")

Work = Callable[["Site", Request], Response]


class Site:
    """What the pages draw from."""

    def __init__(self, home: Home, params: WebParams, watch: Watch) -> None:
        self.home = home
        self.params = params
        self.watch = watch
        self._threads = ThreadPoolExecutor(THREADS, "page")
        self._quick = ThreadPoolExecutor(QUICK_THREADS, "quick")
        self._figures: tuple[float, Response] | None = None
        self._making_figures = threading.Lock()
        self._environment = Environment(
            loader=PackageLoader("ggsci.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page made from its template."""
        values = {"home_name": self.watch.name, "root": self.home.root, "every": self.watch.every, **values}
        return HTMLResponse(self._environment.get_template(template).render(values), status)

    def endpoint(self, work: Work) -> Callable[[Request], Awaitable[Response]]:
        """A route's function: the work in a thread; an error that names what is wrong is a page that says so."""
        threads = self._quick if work in FROM_MEMORY else self._threads

        @functools.wraps(work)
        async def run(request: Request) -> Response:
            return await asyncio.get_running_loop().run_in_executor(threads, self._done, work, request)

        return run

    def _done(self, work: Work, request: Request) -> Response:
        try:
            return work(self, request)
        except (GateError, OSError) as error:
            return self.page("error.html", 500, title="This can't be shown", text=str(error))
        except HTTPException:
            raise
        except Exception as error:  # noqa: BLE001  -- told by name, with its traceback in the page's own output
            _log.exception("%s", request.scope["path"])
            return self.page("error.html", 500, title="A bug in Trailgate", text=type(error).__name__)

    def ask_token(self, request: Request, following: str, wrong: str) -> Response:
        """The form that asks for the token; a program gets a line of text."""
        path = request.scope["path"]
        if path.startswith(("/api/", "/metrics")):
            return PlainTextResponse(
                "401 Unauthorized\nExpected: Authorization: Bearer <token of INFO WEBTOKEN>\n", 401
            )
        return self.page("login.html", 401, following=following, wrong=wrong)

    def figures(self) -> Response:
        """The figures for Prometheus, made anew every few seconds at most."""
        if not self._making_figures.acquire(timeout=FIGURES_PATIENCE):  # many that ask at once are one look
            return PlainTextResponse("503 a look that began before hangs\n", 503)
        try:
            made = self._figures
            if made is None or time.monotonic() - made[0] > FIGURES_SECONDS:
                answer = self._made_figures()
                made = self._figures = (time.monotonic(), answer)
            return made[1]
        finally:
            self._making_figures.release()

    def _made_figures(self) -> Response:
        picture = self.watch.picture()
        view = picture.homes[0] if picture.homes else None
        if view is None:
            return PlainTextResponse("503 nothing seen yet\n", 503)
        stages = [s for p in picture.pipelines for s in p.stages if home_name(s) == view.name]
        samples = figures.collect(self.home, view, picture.age_us, stages, time.time_ns() // 1000)
        body, kind = figures.exposition(samples)
        return Response(body, media_type=kind)


# --- pages ------------------------------------------------------------------------------------------------------------


def overview(site: Site, request: Request) -> Response:
    """All pipelines."""
    picture = site.watch.picture()
    panels = drawing.panels(picture.pipelines)
    return site.page(
        "overview.html", panels=panels, homes=[_home_row(view) for view in picture.homes], minutes=minutes(request),
        choices=MINUTES, seen=_seen(picture, site.watch.every), summary=_summary(panels),
    )  # fmt: skip


def _summary(panels: list[drawing.Panel]) -> list[tuple[str, int]]:
    """How many stages are in each state, worst first; a stage in several pipelines counts once."""
    states = {box.key: box.state for panel in panels for box in panel.boxes}
    order = ("abended", "unknown", "stopped", "starting", "running")
    return [(state, n) for state in order if (n := sum(one == state for one in states.values()))]


def _home_row(view: Any) -> dict[str, Any]:
    href = f"{view.url}/" if view.url else f"/home/{view.name}"
    disks = [
        _disk(disk, f"{words.size(disk.get('free'))} of {words.size(disk.get('size'))} free")
        for disk in figures.disks(view)
    ]
    files = [_disk(disk, f"{disk.get('free')} of {disk.get('size')} files free") for disk in figures.disks(view, FILES)]
    return {"view": view, "href": href, "disks": [*disks, *(disk for disk in files if disk["low"])]}


def _disk(disk: dict[str, Any], text: str) -> dict[str, Any]:
    low = disk.get("free") is not None and disk["free"] < (disk.get("warn") or 0)
    return {"path": disk.get("path"), "text": text, "low": low}


def _seen(picture: Picture, every: int) -> dict[str, Any]:
    """When the picture was made, and whether it is too old to be believed."""
    never = not picture.at_us
    late = picture.age_us > min(STALE_US, LATE_LOOKS * every * 1_000_000)
    return {"text": "not yet" if never else stamp(picture.at_us), "age": words.duration(picture.age_us), "late": late}


def minutes(request: Request) -> int:
    """How far back the charts go: one of MINUTES."""
    given = request.query_params.get("minutes", "")
    return int(given) if given in map(str, MINUTES) else MINUTES[1]


def login(site: Site, request: Request) -> Response:
    """The token's form."""
    return site.page("login.html", following=safe_path(request.query_params.get("next", "/")), wrong="")


# --- for programs -----------------------------------------------------------------------------------------------------


def history(site: Site, request: Request) -> Response:
    """Figures over time: all stages, or those named `key`; from `since` (seconds) on, or so many `minutes` back."""
    now = time.time()
    try:
        since = max(float(request.query_params.get("since", "0")), now - HISTORY_SECONDS)
    except ValueError:
        raise HTTPException(400, "since: expected seconds since 1970") from None
    start = max(since, now - minutes(request) * 60)
    keys = request.query_params.getlist("key") or None
    series = site.watch.history.series(start, POINTS, keys, before=since if since == start else None)
    return JSONResponse({"now": now, "series": series})


def home_json(site: Site, _request: Request) -> Response:
    """This home alone, for the pages of other homes."""
    picture = site.watch.picture()
    manager = picture.homes[0].manager if picture.homes else "UNKNOWN"
    return JSONResponse(
        {
            "home": site.watch.name, "id": site.home.id, "manager": manager, "at_us": picture.at_us,
            "age_us": picture.age_us, "pipelines": to_json(picture.own),
        }
    )  # fmt: skip


def metrics(site: Site, _request: Request) -> Response:
    """Prometheus."""
    return site.figures()


FROM_MEMORY = (overview, login, history, home_json)


class _Static(StaticFiles):
    """Style and script, which browsers may keep for a while."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        answer = super().file_response(*args, **kwargs)
        answer.headers["Cache-Control"] = f"max-age={STATIC_SECONDS}"
        return answer


def make(home: Home, params: WebParams, watch: Watch) -> Guard:
    """The whole site, behind its guard."""
    site = Site(home, params, watch)
    routes: dict[str, Work] = {
        "/": overview,
        "/login": login,
        "/api/history.json": history,
        "/api/home.json": home_json,
        "/metrics": metrics,
        **detailpages.ROUTES,
    }
    app = Starlette(
        routes=[
            *(Route(path, site.endpoint(work)) for path, work in routes.items()),
            Mount("/static", _Static(packages=[("ggsci.web", "static")])),
        ],
        exception_handlers={HTTPException: _http_error(site)},
    )
    return Guard(app, params, Sessions(home), site.ask_token)


def _http_error(site: Site) -> Any:
    async def handler(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return site.page("error.html", error.status_code, title=f"{error.status_code}", text=error.detail)

    return handler
