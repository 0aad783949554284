"""What the templates draw of a stage: every figure as text, and where a click leads; panels.py puts them together.

Rule: templates decide nothing. A figure that is not known says UNKNOWN, and why; a lag that is not known says how old
the last truth is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from ggsci.flow.health import MISSING
from ggsci.flow.pipelines import Stage
from ggsci.web import words
from ggsci.web.watch import home_name, key

COLOURS = 6
LATE_US = 60_000_000
"""A lag from here on is shown in another colour."""

_TITLES = {"EXTRACT": "Extract", "PUMP": "Pump", "REPLICAT": "Replicat"}
_STATES = ("RUNNING", "STARTING", "STOPPED", "ABENDED", MISSING)
_OWN_EXTRA = (
    "web_home", "web_url", "web_page_name", "home_id", "fed_by", "unanswered", "source", "own_lag_us",
    "own_lag_age_us", "own_lag_why", "writer_program", "heartbeat_every_s", "heartbeat_trouble",
)  # fmt: skip
_WIDTH = 100
_SECOND = 1_000_000
NONE = "–"
"""The rate of what does not run."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow: what is read, where that can be browsed, and what waits there."""

    label: str
    title: str
    href: str
    backlog: str
    waits: bool
    flows: bool


@dataclass(frozen=True, slots=True)
class Box:
    """One stage as it is drawn."""

    key: str
    name: str
    kind: str
    home: str
    href: str
    status: str
    state: str
    colour: int
    lag: str
    lag_note: str
    lag_state: str
    rate: str
    speed: str
    written: str
    busy: str
    busy_width: int | None
    why: str
    holds_back: bool
    link: Arrow


def box(stage: Stage, number: int = 0) -> Box:
    """One stage; `number` gives its colour."""
    lag, note, lag_state = lag_words(stage.lag_us, stage.lag_age_us, stage.lag_why)
    status = stage.status if stage.status in _STATES else "UNKNOWN"
    down = status in ("STOPPED", "ABENDED", MISSING)
    # It lives, and may hang; or nobody knows it; or it runs, and nobody sees it work.
    hidden = stage.extra.get("unanswered") or status == MISSING or (status == "RUNNING" and stage.lag_us is None)
    return Box(
        key=key(stage),
        name=stage.name,
        kind=_TITLES.get(stage.program, stage.program.title()),
        home=home_name(stage),
        href=href(stage),
        status=status,
        state="unknown" if hidden else status.lower(),
        colour=number % COLOURS,
        lag=lag,
        lag_note=note,
        lag_state=lag_state,
        rate=NONE if down else _rate(stage.ops_s, "changes/s"),
        speed=NONE if down else _speed(stage.bytes_s),
        written=NONE if down else _speed(stage.bytes_out_s),
        busy=NONE if down else words.percent(stage.busy),
        busy_width=None if stage.busy is None else round(_WIDTH * min(1.0, max(0.0, stage.busy))),
        why=stage.why,
        holds_back=stage.holds_back,
        link=_link(stage),
    )


def lag_words(lag_us: int | None, age_us: int | None, why: str) -> tuple[str, str, str]:
    """(lag, what to add, class). An unknown lag tells the age of the last truth, and why."""
    if lag_us is not None and lag_us >= 0:
        return words.duration(lag_us), "", "late" if lag_us >= LATE_US else "fine"
    parts = [] if age_us is None else [f"last known {words.duration(age_us)} ago"]
    return words.UNKNOWN, "; ".join([*parts, *([why] if why else [])]), "unknown"


def _rate(rate: float | None, unit: str) -> str:
    return words.UNKNOWN if rate is None else f"{words.number(rate)} {unit}"


def _speed(bytes_s: float | None) -> str:
    return words.UNKNOWN if bytes_s is None else f"{words.size(bytes_s)}/s"


def _link(stage: Stage) -> Arrow:
    backlog = "" if stage.backlog_bytes is None else words.size(stage.backlog_bytes)
    if stage.backlog_bytes and stage.backlog_us is not None and stage.backlog_us >= _SECOND:
        backlog += f", {words.duration(stage.backlog_us)}"
    if stage.backlog_bytes is None:
        backlog = words.UNKNOWN
    trail = stage.program != "EXTRACT"
    label = os.path.basename(stage.reads) if trail else "log"
    return Arrow(
        label, f"{stage.name} reads {stage.reads}", _trail_href(stage) if trail else "", backlog,
        bool(stage.backlog_bytes), bool(stage.ops_s),
    )  # fmt: skip


def href(stage: Stage) -> str:
    """The stage's own page, at the page of its home; of one that is not registered there the home's."""
    if stage.status == MISSING:
        return f"{_page(stage)}/home/{_page_home(stage)}"
    return f"{_page(stage)}/stage/{_page_home(stage)}/{quote(stage.name)}"


def _trail_href(stage: Stage) -> str:
    return f"{_page(stage)}/trail/{_page_home(stage)}/{quote(trail_key(stage.reads))}"


def trail_key(shown: str) -> str:
    """How an address names a trail: `lt` for ./dirdat/lt, else its path."""
    return shown.removeprefix("./dirdat/").removeprefix("dirdat/").lstrip("/")


def _page(stage: Stage) -> str:
    return str(stage.extra.get("web_url", ""))


def _page_home(stage: Stage) -> str:
    return quote(str(stage.extra.get("web_page_name") or home_name(stage)))


Row = tuple[str, str, int | None]
"""A figure: its title, its text, and the moment it is, if it is one, for a reader in another time zone."""

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "State": ("status", "process", "state", "busy", "blocked", "output share", "last turn of its loop", "message",
              "trouble", "host"),
    "Lag": ("lag", "heartbeat", "newest change", "clock"),
    "Work": ("waiting", "changes", "bytes", "operations", "transactions", "batches", "rows", "collisions", "values"),
    "Places": ("reads", "writes", "input", "writer"),
    "Log kept at the source": ("holder", "log "),
    "Link": ("peer", "inflight", "window"),
}  # fmt: skip
"""Which figures stand together: those whose title begins so."""


def groups(stage: Stage) -> list[tuple[str, list[Row]]]:
    """Every figure of a stage, for its own page, in groups."""
    made: dict[str, list[Row]] = {name: [] for name in (*_GROUPS, "More")}
    for row in figures(stage):
        title = row[0].lower()
        made[next((name for name, begins in _GROUPS.items() if title.startswith(begins)), "More")].append(row)
    return [(name, rows) for name, rows in made.items() if rows]


def figures(stage: Stage) -> list[Row]:
    """Every figure of a stage."""
    one = box(stage)
    rows = [
        ("Status", one.status),
        ("Process", str(stage.pid) if stage.pid else "none"),
        ("Lag", f"{one.lag}{f' ({one.lag_note})' if one.lag_note else ''}"),
        ("Reads", stage.reads),
        ("Writes", ", ".join(stage.writes)),
        ("Waiting", one.link.backlog),
        ("Changes", one.rate),
        ("Bytes read", one.speed),
        ("Bytes written", one.written),
        ("Busy", one.busy),
        ("State", stage.why),
    ]
    found: list[Row] = [(name, text, None) for name, text in rows]
    unlimited = bool(stage.extra.get("log_status")) and stage.extra.get("log_limit_bytes", 0) is None
    for name, value in plain(stage.extra):
        title, text = _title(name), _figure(name, value)
        found.append((title, "no limit" if unlimited and title in _LIMITED else text, words.moment(name, value)))
    return [row for row in found if row[1]]


_TITLED = {
    "newest_us": "newest change", "input_us": "input written", "turn_age_us": "last turn of its loop",
    "bytes_in": "bytes in", "bytes_out": "bytes out", "read": "reads at", "write": "writes at",
}  # fmt: skip


_LIMITED = ("log headroom", "log limit")
"""Of log that was looked at: where the source keeps any amount it has none."""


def _title(name: str) -> str:
    words_of = name.removesuffix("_us").removesuffix("_bytes").split("_")
    return _TITLED.get(name) or " ".join(words_of)


def _figure(name: str, value: object) -> str:
    if name in ("bytes_in", "bytes_out") and isinstance(value, int):
        return words.size(value)
    if name == "blocked" and isinstance(value, int | float):
        return words.percent(value)
    return words.figure(name, value)


def plain(extra: dict[str, object]) -> list[tuple[str, object]]:
    """What only this kind of stage knows, one value each."""
    flat: list[tuple[str, object]] = []
    for name, value in sorted(extra.items()):
        if name in _OWN_EXTRA:
            continue
        if name in ("read", "write"):
            flat += [(name, f"{value['seqno']}/{value['rba']}")] if isinstance(value, dict) and "rba" in value else []
        elif not isinstance(value, list | tuple | dict):
            flat.append((name, value))
    return flat
