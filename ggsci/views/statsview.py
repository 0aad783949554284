"""The layout of STATS: periods and tables in, lines out. Nothing here reads a file or a clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ggsci.views.view import stamp
from trails.runtime.report.stats import (
    CDR,
    CDR_CONFLICTS,
    CDR_FAILED,
    CDR_SUCCEEDED,
    COUNTERS,
    DATA_OPERATIONS,
    PERIODS,
    RARE,
    TOTAL,
    TOTAL_OPERATIONS,
)

RATES = {"HR": (3600, "hour"), "MIN": (60, "minute"), "SEC": (1, "second")}
NOTHING = "No database operations have been performed."
_BACK_TO_BACK = 1_000_000


def period_of(reply: dict[str, Any], name: str) -> dict[str, Any]:
    """One period of an answer to STATS: its `since_us` and `tables`."""
    nothing: dict[str, Any] = {"since_us": reply["since_us"], "tables": []}
    return reply if name == TOTAL else reply.get("periods", {}).get(name, nothing)


def keep_tables(reply: dict[str, Any], wanted: Callable[[str], bool]) -> None:
    """Leave out tables of which `wanted` takes neither the source's name nor the target's."""
    for name in PERIODS:
        period = period_of(reply, name)
        period["tables"] = [table for table in period["tables"] if wanted(table["from"]) or wanted(table["to"])]


def sum_tables(reply: dict[str, Any], label: str) -> None:
    """TOTALSONLY: one row for all tables together, under the pattern that chose them."""
    for name in PERIODS:
        period = period_of(reply, name)
        if period["tables"]:
            period["tables"] = [_summed(period["tables"], label)]


def _summed(tables: Sequence[dict[str, Any]], label: str) -> dict[str, Any]:
    more: dict[str, int] = {}
    for table in tables:
        for name, number in (table.get("more") or {}).items():
            more[name] = more.get(name, 0) + number
    row = {name: sum(table.get(name, 0) for table in tables) for name in (*COUNTERS, TOTAL_OPERATIONS)}
    return {"from": label, "to": label, **row, "more": more}


def stats(
    program: str,
    reply: dict[str, Any],
    now_us: int,
    *,
    periods: Sequence[str] = (TOTAL,),
    rate: str = "",
    cdr: bool = False,
) -> list[str]:
    """The answer to STATS. `rate`: one of RATES, to show counts by time; `cdr`: with those of conflict detection."""
    lines = ["", f"Start of Statistics at {stamp(now_us)}.", "", *_ddl(program, reply.get("ddl"))]
    if reply.get("output"):
        lines += [f"Output to {reply['output']}:", ""]
    if reply.get("note"):
        lines += [str(reply["note"]), ""]
    verb = "Extracting" if program == "EXTRACT" else "Replicating"
    for number, table in enumerate(reply["tables"]):
        lines += [f"{verb} from {table['from']} to {table['to']}:", ""]
        for name in periods:
            period = period_of(reply, name)
            lines.append(f"*** {name.capitalize()} statistics since {stamp(period['since_us'])} ***")
            row = period["tables"][number] if number < len(period["tables"]) else table | dict.fromkeys(COUNTERS, 0)
            lines += [*_rows(row, _per(rate, now_us - period["since_us"]), cdr=cdr), ""]
    if not reply["tables"]:
        lines += [f"No active {'extraction' if program == 'EXTRACT' else 'replication'} maps", ""]
    return [*lines, "End of Statistics.", ""]


def _ddl(program: str, counts: dict[str, int] | None) -> list[str]:
    """Schema changes since the start; nothing where they are not carried."""
    if counts is None:
        return []
    where = " (for all trails)" if program == "EXTRACT" else ""
    title = f"*** Total statistics since {program.lower()} started     ***"
    rows = [_row(name.capitalize(), count, "") for name, count in counts.items()]
    return [f"DDL replication statistics{where}:", "", title, *rows, ""]


def _per(rate: str, passed_us: int) -> tuple[float, str]:
    """(what to divide by, what that is called)."""
    if not rate:
        return 1.0, ""
    seconds, unit = RATES[rate]
    return max(passed_us, _BACK_TO_BACK) / 1_000_000 / seconds, f"/{unit}"


def _rows(table: dict[str, Any], per: tuple[float, str], *, cdr: bool) -> list[str]:
    by, unit = per
    if not table.get(TOTAL_OPERATIONS) and not table.get("more") and not any(table.get(name) for name in COUNTERS):
        return [f"\t{NOTHING}"] if not cdr else [_row(name, n / by, unit) for name, n in _rarer(table, cdr=cdr)]
    shown = [name for name in (*COUNTERS, TOTAL_OPERATIONS) if name not in RARE or table.get(name)]
    if table.get(TOTAL_OPERATIONS, 0) != sum(table.get(name, 0) for name in DATA_OPERATIONS):
        shown = [TOTAL_OPERATIONS]  # of a pump that passes blocks on undecoded
    lines = [_row(f"Total {name}", table.get(name, 0) / by, unit) for name in shown]
    return lines + [_row(name, number / by, unit) for name, number in _rarer(table, cdr=cdr)]


def _row(label: str, value: float, unit: str) -> str:
    return f"\t{label + unit:35}\t{value:15.2f}"


def _rarer(table: dict[str, Any], *, cdr: bool) -> list[tuple[str, int]]:
    """Counters that are there only for who uses what they count."""
    more: dict[str, int] = table.get("more") or {}
    if cdr:
        more = dict.fromkeys((CDR_CONFLICTS, CDR_SUCCEEDED, CDR_FAILED), 0) | more
    shown = [(name, number) for name, number in more.items() if cdr or not name.startswith(CDR)]
    return [(name if name.startswith(CDR + "res") else f"Total {name}", number) for name, number in shown]
