"""The pages and their addresses. All of them look; none changes anything.

/                                  all pipelines, drawn                                         free on loopback
/api/history.json, /api/home.json  figures over time; this home for the pages of others         free on loopback
/metrics                           Prometheus                                                   free on loopback
/login, /static/...                the token's form; style, script, charts                      free
/home/H, /stage/H/G, /trail/H/T    the Manager, a group, a trail: texts, files and row data     token
"""

from __future__ import annotations

import time
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ggsci.flow.pipelines import to_json
from ggsci.manager.webparams import WebParams
from ggsci.manager.webtokens import Sessions
from ggsci.views.view import stamp
from ggsci.web import detailpages, figures, panels, words
from ggsci.web.guard import SESSION, Guard, Tell, safe_path
from ggsci.web.site import Site, Work
from ggsci.web.watch import HISTORY_SECONDS, STALE_US, HomesWatch, Picture
from trails.runtime.home.home import Home
from trails.runtime.process.diskguard import FILES

POINTS = 360
MINUTES = (15, 60, 360)
LATE_LOOKS = 4
STATIC_SECONDS = 3600

# --- pages ------------------------------------------------------------------------------------------------------------


def overview(site: Site, request: Request) -> Response:
    """All pipelines."""
    picture = site.watch.picture()
    drawn = panels.panels(picture.pipelines)
    rows = [_home_row(view) for view in picture.homes]
    notes = [
        (row["view"].name, row["href"], "LOW DISK", f"{disk['path']}: {disk['text']}")
        for row in rows for disk in row["disks"] if disk["low"]
    ]  # fmt: skip
    if trouble := site.watch.history.trouble:
        text = f"What the charts show is not kept: {trouble}"
        notes.append((site.watch.name, f"/home/{site.watch.name}", "HISTORY", text))
    return site.page(
        "overview.html", panels=drawn, homes=rows, minutes=minutes(request),
        problems=panels.problems(picture.pipelines, picture.homes, notes),
        choices=MINUTES, seen=_seen(picture, site.watch.every), summary=_summary(drawn),
        signed_in=request.scope.get(SESSION, False),
    )  # fmt: skip


def _summary(drawn: list[panels.Panel]) -> list[tuple[str, int]]:
    """How many stages are in each state, worst first."""
    states = {box.key: box.state for panel in drawn for box in panel.boxes}
    return [(state, n) for state in panels.STATES if (n := sum(one == state for one in states.values()))]


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
    at = None if never else picture.at_us
    return {"text": stamp(at, missing="not yet"), "at_us": at, "age": words.duration(picture.age_us), "late": late}


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


def make(home: Home, params: WebParams, watch: HomesWatch, tell: Tell = lambda _: None) -> Guard:
    """The whole site, behind its guard, which tells of wrong tokens."""
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
            *(Route(path, site.endpoint(work, quick=work in FROM_MEMORY)) for path, work in routes.items()),
            Mount("/static", _Static(packages=[("ggsci.web", "static")])),
        ],
        exception_handlers={HTTPException: _http_error(site)},
    )
    return Guard(app, params, Sessions(home), site.ask_token, tell)


def _http_error(site: Site) -> Any:
    async def handler(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return site.page("error.html", error.status_code, title=f"{error.status_code}", text=error.detail)

    return handler
