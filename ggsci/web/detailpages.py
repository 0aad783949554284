"""The pages behind the token: a home, a group, a trail. Texts as ggsci prints them, files a piece at a time.

Rule: names in an address are looked up among what the home has; one that isn't there is a 404, whatever it looks like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ggsci import facts
from ggsci.check import discard_path
from ggsci.web import details, drawing, trailpages
from ggsci.web.details import TextShown
from ggsci.web.loads import loads
from ggsci.web.site import Site
from ggsci.web.watch import home_name
from trails.position import Position, TrailName
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.home.registration import Registration
from trails.runtime.report.eventlog import current

Show = Callable[[Home, Request], TextShown]
GroupShow = Callable[[Home, Registration, Request], TextShown]


# --- a home -----------------------------------------------------------------------------------------------------------


def _piece(home: Home, name: str, request: Request) -> TextShown:
    """Of a report, or with `age` of an older one."""
    return details.piece(home, home.report(name, number(request, "age")), number(request, "end"))


HOME_TABS: Mapping[str, tuple[str, Show]] = {
    "info": ("All groups", lambda home, _: details.ggsci(home, "INFO ALL")),
    "slow": ("Where is it slow", lambda home, _: details.ggsci(home, "INFO ALL, DETAIL")),
    "children": ("Children", lambda home, _: details.ggsci(home, "SEND MANAGER CHILDSTATUS")),
    "ports": ("Collectors", lambda home, _: details.ggsci(home, "SEND MANAGER GETPORTINFO")),
    "purge": ("Purging", lambda home, _: details.ggsci(home, "SEND MANAGER GETPURGEOLDEXTRACTS")),
    "tls": ("Certificates", lambda home, _: details.ggsci(home, "INFO CERTIFICATES")),
    "log": (
        "Event log",
        lambda home, request: details.events(home, current(home), number(request, "end"), severity(request)),
    ),
    "params": ("Parameters", lambda home, _: details.parameters(home, MANAGER)),
    "report": ("Report", lambda home, request: _piece(home, MANAGER, request)),
}


def home_page(site: Site, request: Request) -> Response:
    """The Manager and what belongs to the whole home."""
    name, home = known_home(site, request)
    tab = chosen_tab(request, HOME_TABS)
    text = HOME_TABS[tab][1](home, request)
    path, chosen = f"/home/{quote(name)}", severity(request)
    kept = {"tab": tab, "severity": chosen if tab == "log" and chosen != "all" else ""}
    choices = [(one, f"{path}?tab=log&severity={one}", one == chosen) for one in details.SEVERITIES]
    return site.page(
        "home.html", name=name, folder=home.root, tabs=tabs(HOME_TABS, tab, path), text=text,
        pages=neighbours(path, kept, text), trails=list(trailpages.trails(home)),
        severities=choices if tab == "log" else [],
    )  # fmt: skip


def severity(request: Request) -> str:
    """What of the event log is asked for."""
    given = request.query_params.get("severity", "all")
    if given not in details.SEVERITIES:
        raise HTTPException(404, f"severity: expected {', '.join(details.SEVERITIES)}")
    return given


# --- a group ----------------------------------------------------------------------------------------------------------


GROUP_TABS: Mapping[str, tuple[str, GroupShow]] = {
    "detail": ("Detail", lambda home, group, _: details.ggsci(home, f"INFO {group.kind} {group.name}, DETAIL")),
    "showch": ("SHOWCH", lambda home, group, _: details.ggsci(home, f"INFO {group.kind} {group.name}, SHOWCH 10")),
    "stats": ("Statistics", lambda home, group, _: details.ggsci(home, f"STATS {group.kind} {group.name}")),
    "lag": ("Lag", lambda home, group, _: details.ggsci(home, f"LAG {group.kind} {group.name}")),
    "report": ("Report", lambda home, group, request: _piece(home, group.name, request)),
    "params": ("Parameters", lambda home, group, _: details.parameters(home, group.name)),
    "discard": (
        "Discards",
        lambda home, group, request: details.piece(home, discard_path(home, group), number(request, "end")),
    ),
}


def stage_page(site: Site, request: Request) -> Response:
    """One group: its figures, their course, and what INFO, SHOWCH, STATS, report and parameters say."""
    name, home = known_home(site, request)
    group = details.group(home, request.path_params["group"])
    if group is None:
        raise HTTPException(404, f"home {name} has no group {request.path_params['group']}")
    offered = {tab: one for tab, one in GROUP_TABS.items() if tab != "discard" or group.kind == "REPLICAT"}
    tab = chosen_tab(request, offered)
    text = offered[tab][1](home, group, request)
    path = f"/stage/{quote(name)}/{quote(group.name)}"
    stage = next(
        (s for p in site.watch.picture().pipelines for s in p.stages if (home_name(s), s.name) == (name, group.name)),
        None,
    )
    return site.page(
        "stage.html", name=name, group=group.name, tabs=tabs(offered, tab, path), tab=tab, text=text,
        pages=neighbours(path, {"tab": tab, "age": request.query_params.get("age", "")}, text),
        box=drawing.box(stage) if stage else None, groups=drawing.groups(stage) if stage else [],
        loads=loads([stage] if stage else []),
        has_slot=bool(stage and stage.extra.get("holder")),
        key=f"{name}/{group.name}", ages=details.reports(home, group.name) if tab == "report" else [], path=path,
        age=number(request, "age"), minutes=60,
    )  # fmt: skip


# --- a trail ----------------------------------------------------------------------------------------------------------


def trail_page(site: Site, request: Request) -> Response:
    """The files of a trail; with `at` its blocks, with `records` the records in them."""
    name, home = known_home(site, request)
    key = request.path_params["trail"]
    trail = trailpages.trails(home).get(key)
    if trail is None:
        raise HTTPException(404, f"home {name} has no trail {key}")
    path = f"/trail/{quote(name)}/{quote(key)}"
    shown = home.shown(str(trail))
    common: dict[str, Any] = {"name": name, "trail": shown, "path": path}
    if "records" in request.query_params:
        return _records(site, request, trail, common)
    if "at" in request.query_params:
        at = _place(request, trail)
        return site.page("blocks.html", at=str(at), page=trailpages.blocks(trail, at), **common)
    return site.page("trail.html", files=trailpages.files(trail, _readers(home, trail)), **common)


def _records(site: Site, request: Request, trail: TrailName, common: dict[str, Any]) -> Response:
    at = _place(request, trail)
    given = {name: request.query_params.get(name, "").strip()[:200] for name in ("table", "csn", "since")}
    search = trailpages.Search(**given)
    page = trailpages.records(trail, at, number(request, "skip") or 0, search)
    return site.page("records.html", at=str(at), page=page, search=search, **common)


def _place(request: Request, trail: TrailName) -> Position:
    try:
        return trailpages.place(request.query_params.get("at", ""), trail)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None


def _readers(home: Home, trail: TrailName) -> dict[int, list[str]]:
    """Which groups of this home stand in which file of the trail, by their checkpoints."""
    found: dict[int, list[str]] = {}
    for group in registrations.all(home):
        if group.trail and TrailName.parse(group.trail, home.root) == trail:
            checkpoint = facts.gather(home, group, 0).checkpoint
            for read in checkpoint.reads if checkpoint else ():
                found.setdefault(read.current.seqno, []).append(group.name)
    return found


# --- what they share --------------------------------------------------------------------------------------------------


def known_home(site: Site, request: Request) -> tuple[str, Home]:
    """The home that the address names."""
    name = request.path_params["home"]
    home = site.watch.local(name)
    if home is None:
        raise HTTPException(404, f"no home {name} of this host is known here; WEBHOME in mgr.prm adds one")
    return name, home


def number(request: Request, name: str) -> int | None:
    """A number of the query; None if it is not given. Anything else is a 400."""
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise HTTPException(400, f"{name}: expected a number")
    return int(text)


def chosen_tab(request: Request, offered: Mapping[str, Any]) -> str:
    """The tab that the address asks for; the first one if it asks for none."""
    tab = request.query_params.get("tab", next(iter(offered)))
    if tab not in offered:
        raise HTTPException(404, f"there is no {tab} here")
    return tab


def tabs(offered: Mapping[str, tuple[str, Any]], chosen: str, path: str) -> list[tuple[str, str, bool]]:
    """(title, address, chosen) of each."""
    return [(title, f"{path}?tab={name}", name == chosen) for name, (title, _) in offered.items()]


def neighbours(path: str, query: Mapping[str, str], text: TextShown) -> list[tuple[str, str]]:
    """(title, address) of the pieces of a file before and after this one."""
    kept = {name: value for name, value in query.items() if value}
    ends = (("Earlier", text.before), ("Later", text.after))
    return [(title, f"{path}?{urlencode({**kept, 'end': end})}") for title, end in ends if end is not None]


ROUTES: Mapping[str, Callable[[Site, Request], Response]] = {
    "/home/{home}": home_page,
    "/stage/{home}/{group}": stage_page,
    "/trail/{home}/{trail:path}": trail_page,
}
