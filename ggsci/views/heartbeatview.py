"""How LAG and INFO show heartbeats. Each is a judged one (trails.heartbeat): its lag is None once it is not true."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

TITLE = "Lag Information From Heartbeat Table"


def seconds(us: int | None) -> str:
    """`0.42s`, or UNKNOWN."""
    return "UNKNOWN" if us is None else f"{us / 1_000_000:.2f}s"


def steps(taken: Iterable[dict[str, Any]]) -> str:
    """What each step of the last heartbeat took: `shop to EXT1 0.8 ms, EXT1 to REP1 12.3 ms`."""
    return ", ".join(f"{step['from']} to {step['to']} {_milliseconds(step['us'])}" for step in taken)


def _milliseconds(us: int | None) -> str:
    return "UNKNOWN" if us is None else f"{us / 1000:,.1f} ms"


def lag_lines(heartbeats: Iterable[dict[str, Any]]) -> list[str]:
    """The table of LAG: one line a path, and below it what each stage took."""
    rows = list(heartbeats)
    if not rows:
        return []
    lines = ["", TITLE, "", f"{'LAG':<12}{'AGE':<12}{'FROM':<16}{'TO':<16}PATH", ""]
    for row in rows:
        figures = f"{seconds(row['lag_us']):<12}{seconds(row['age_us']):<12}"
        lines.append(f"{figures}{row['from']:<16}{row['to'] or '-':<16}{row['path']}")
        lines.append(f"  {steps(row['stages'])}")
        if row["why"]:
            lines.append(f"  {_unknown(row)}")
    return [*lines, ""]


def info_lines(heartbeats: Iterable[dict[str, Any]], label: int) -> list[str]:
    """What INFO shows: a line for each path, and one for its steps."""
    lines = []
    for row in heartbeats:
        text = f"{seconds(row['lag_us'])} ({row['path']}, {row['age_us'] // 1_000_000} s ago)"
        lines.append(f"{'Heartbeat Lag':{label}}{text}{'; ' + _unknown(row) if row['why'] else ''}")
        lines.append(f"{'Heartbeat Steps':{label}}{steps(row['stages'])}")
    return lines


def _unknown(row: dict[str, Any]) -> str:
    last = "" if row["last_lag_us"] is None else f"; it was {seconds(row['last_lag_us'])}"
    return f"unknown because {row['why']}{last}"
