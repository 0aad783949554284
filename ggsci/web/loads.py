"""The tables that a Replicat loads, as they are drawn: state, chunks, rows, bytes, rate and the time left of each.

Rule: it is what the running process says of itself. Of one that does not answer nothing is shown; INFO TABLES asks the
target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ggsci.flow.pipelines import Stage
from ggsci.web import words
from ggsci.web.drawing import NONE, href

_PILLS = {"waiting": "stopped", "copying": "starting", "catching up": "running", "failed": "abended"}
_ORDER = ("failed", "copying", "catching up", "waiting", "live")
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """One line. `part`: of its chunks in percent, for a bar; None before they are planned."""

    name: str
    state: str
    pill: str
    chunks: str
    part: int | None
    rows: str
    size: str
    rate: str
    left: str


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """What one Replicat loads. `summary`: how many tables are in which state; `more`: so many have no line."""

    group: str
    href: str
    summary: str
    tables: tuple[LoadedTable, ...]
    more: int


def loads(stages: Iterable[Stage]) -> list[GroupLoad]:
    """Of those stages that load tables; none where all of them are live."""
    found = []
    for stage in stages:
        states: Mapping[str, int] = stage.extra.get("load_states") or {}
        counts = [(states[state], state) for state in _ORDER if states.get(state)]
        loading = sum(count for count, state in counts if state != "live")
        if loading:
            tables = tuple(_table(one) for one in stage.extra.get("loading") or [])
            summary = ", ".join(f"{words.number(count)} {state}" for count, state in counts)
            found.append(GroupLoad(stage.name, href(stage), summary, tables, max(0, loading - len(tables))))
    return found


def _table(one: Mapping[str, Any]) -> LoadedTable:
    state, chunks, done = one["state"], one["chunks"], one["chunks_done"]
    copying = state == "copying"
    speed = f"{words.number(one['rows_s'])} rows/s, {words.size(one['bytes_s'])}/s"
    return LoadedTable(
        name=one["source"] if one["source"] == one["target"] else f"{one['source']} → {one['target']}",
        state=state,
        pill=_PILLS.get(state, "unknown"),
        chunks=f"{words.number(done)} of {words.number(chunks)}" if chunks else NONE,
        part=_WIDTH * done // chunks if chunks else None,
        rows=words.number(one["rows"]) if chunks else NONE,
        size=words.size(one["bytes"]) if chunks else NONE,
        rate=NONE if not copying else words.UNKNOWN if one["rows_s"] is None else speed,
        left=words.duration(one["left_us"]) if state in ("copying", "waiting") else NONE,
    )
