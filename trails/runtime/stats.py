"""Counts of operations by table, and the two layouts operators know them in.

A process owns one `Stats` and counts whole blocks at a time; `to_reply()` is the answer to STATS, from which ggsci
prints `stats_lines` and the report `report_lines`.
"""

from __future__ import annotations

from typing import Any

from trails.record import Op
from trails.runtime.clock import local_text

COUNTERS = ("inserts", "updates", "deletes", "truncates", "discards")
_BY_OP = {Op.INSERT: 0, Op.UPDATE: 1, Op.DELETE: 2, Op.TRUNCATE: 3}
DISCARDS = "discards"


class Stats:
    """Counters since `since_us`, one row a (source table, target table)."""

    def __init__(self, since_us: int, output: str = "") -> None:
        self.since_us = since_us
        self.output = output
        self._rows: dict[tuple[str, str], list[int]] = {}

    def count(self, source: str, target: str, op: Op | str, n: int = 1) -> None:
        """Add `n` operations; `op` is a data Op or one of COUNTERS (`"discards"`)."""
        row = self._rows.get((source, target))
        if row is None:
            row = self._rows[(source, target)] = [0] * len(COUNTERS)
        row[_BY_OP[op] if isinstance(op, Op) else COUNTERS.index(op)] += n

    def reset(self, since_us: int) -> None:
        """Start again from zero."""
        self.since_us = since_us
        self._rows.clear()

    def total(self) -> int:
        """All operations counted, discards apart."""
        return sum(sum(row[:4]) for row in self._rows.values())

    def to_reply(self) -> dict[str, Any]:
        """The answer to STATS."""
        tables = [
            {"from": source, "to": target, **dict(zip(COUNTERS, row, strict=True)), "operations": sum(row[:4])}
            for (source, target), row in self._rows.items()
        ]
        return {"ok": True, "since_us": self.since_us, "output": self.output, "tables": tables}

    def report_lines(self) -> list[str]:
        """The per-table blocks of a report."""
        return report_lines(self.to_reply())


def report_lines(reply: dict[str, Any]) -> list[str]:
    """A STATS answer as a report shows it, table by table."""
    lines = []
    for table in reply["tables"]:
        lines.append(f"From Table {table['from']} to {table['to']}:")
        shown = [name for name in COUNTERS if name != "truncates" or table[name]]
        lines += [f"       # {name:>25}: {table[name]:>9}" for name in shown] + [""]
    return lines or ["No database operations have been performed.", ""]


def stats_lines(reply: dict[str, Any], kind: str, now_us: int) -> list[str]:
    """A STATS answer as the STATS command prints it; `kind` is EXTRACT or REPLICAT."""
    lines = [f"Start of Statistics at {local_text(now_us)}.", ""]
    if reply["output"]:
        lines += [f"Output to {reply['output']}:", ""]
    if not reply["tables"]:
        lines += [f"No active {'extraction' if kind == 'EXTRACT' else 'replication'} maps", ""]
    verb = "Extracting" if kind == "EXTRACT" else "Replicating"
    for table in reply["tables"]:
        lines += [f"{verb} from {table['from']} to {table['to']}:", ""]
        lines.append(f"*** Total statistics since {local_text(reply['since_us'])} ***")
        shown = [name for name in (*COUNTERS, "operations") if name != "truncates" or table[name]]
        lines += [f"\t{'Total ' + name:<35}\t{table[name]:>15.2f}" for name in shown] + [""]
    return [*lines, "End of Statistics."]
