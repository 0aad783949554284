"""The layouts of INSTANTIATE and INFO TABLES: answers in, lines out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ggsci.views.view import span

_MB = 1_000_000
_STATES = ("waiting", "copying", "catching up", "live", "paused", "resuming", "failed")


def instantiated(tables: Sequence[dict[str, Any]]) -> list[str]:
    """A line a table, and its notes below it."""
    lines = []
    for table in tables:
        rows = f", about {table['rows']:,} rows at the source" if table["done"] != "left alone" else ""
        lines.append(f"{table['source']} to {table['target']}: {table['done']}{rows}.")
        lines += [f"  {note}" for note in table["notes"]]
    return lines


def tables(found: Sequence[dict[str, Any]], now_us: int = 0) -> list[str]:
    """The table of INFO TABLES; what is to be known of a table beside its figures stands below its row."""
    if not found:
        return ["", "No table is loaded or paused. INSTANTIATE REPLICAT has tables loaded.", ""]
    names = max(12, *(len(f"{one['source']} to {one['target']}") for one in found)) + 2
    lines = [
        "",
        f"{'Table':{names}}{'State':13}{'Chunks':>13}{'Rows':>14}{'Est. Rows':>14}{'MB':>11}{'Rows/s':>10}{'Left':>11}",
    ]
    lines += [f"{'':{names}}".rstrip(), *(_line(one, names) for one in found), ""]
    counts = Counter(one["state"] for one in found)
    told = [f"{counts[state]} {state}" for state in _STATES if counts[state]]
    return [*lines, f"{len(found)} table{'s' if len(found) > 1 else ''}: {', '.join(told)}.", *_reasons(found, now_us)]


def _line(one: dict[str, Any], names: int) -> str:
    chunks = f"{one['chunks_done']} of {one['chunks']}" if one["chunks"] else ""
    estimate = f"{one['estimate']:,}" if one["estimate"] else ""
    rate = one["rows_per_second"]
    pace = f"{rate:,.0f}" if rate is not None else "UNKNOWN" if one["state"] == "copying" else ""
    left = span(one["left_us"]) if one["state"] in ("waiting", "copying") else ""
    figures = f"{one['rows']:>14,}{estimate:>14}{one['bytes'] / _MB:>11,.1f}{pace:>10}{left:>11}"
    return f"{one['source'] + ' to ' + one['target']:{names}}{one['state']:13}{chunks:>13}{figures}".rstrip()


def paced(one: dict[str, Any], told: dict[str, Any] | None) -> dict[str, Any]:
    """With rate and time left: of a table that is copied by what its process tells, of one that was the mean."""
    if one["state"] == "copying":
        rows_s, bytes_s, left = (told.get(name) if told else None for name in ("rows_s", "bytes_s", "left_us"))
    else:
        took = (one["ended_us"] or 0) - (one["started_us"] or 0)
        ended = one["ended_us"] and took > 0 and one["rows"]
        rows_s, bytes_s = (one[what] * 1e6 / took if ended else None for what in ("rows", "bytes"))
        left = None
    return {**one, "rows_per_second": rows_s, "bytes_per_second": bytes_s, "left_us": left}


def _reasons(found: Sequence[dict[str, Any]], now_us: int) -> list[str]:
    lines = []
    for one in found:
        if one["reason"]:
            lines.append(f"{one['source']}: {one['reason']}")
        if one.get("paused_us"):
            lines.append(_missing(one, now_us))
        if one["ended_us"] and one["started_us"]:
            lines.append(f"{one['source']}: copied in {span(one['ended_us'] - one['started_us'])}")
        if one["waiting"]:
            what = "1 statement waits" if one["waiting"] == 1 else f"{one['waiting']} statements wait"
            lines.append(f"{one['source']}: {what} for its last chunk (indexes, foreign keys)")
    return [*lines, ""]


def _missing(one: dict[str, Any], now_us: int) -> str:
    """From where on nothing of a table is applied, and until when that can be caught up."""
    csn = f" (CSN {one['paused_csn']})" if one["paused_csn"] else ""
    since = f"{one['source']}: its changes behind position {one['paused_at']}{csn} are not applied"
    left = one["paused_us"] + one["kept_hours"] * 3_600_000_000 - now_us
    if one["state"] == "paused":
        return f"{since}, and are kept for another {span(max(0, left))}"
    return since
