"""Counts of operations by table, and how a report shows them.

A process owns one `Stats` and counts whole blocks at a time; `to_reply()` is the answer to STATS, which ggsci lays out.
"""

from __future__ import annotations

from typing import Any

from trails.record import Op

OPERATIONS = ("inserts", "updates", "deletes", "truncates", "ddls")
COUNTERS = (*OPERATIONS, "discards")
RARE = ("truncates", "ddls")
"""Shown only where there were any."""
_BY_OP = {Op.INSERT: 0, Op.UPDATE: 1, Op.DELETE: 2, Op.TRUNCATE: 3, Op.DDL: 4}
DISCARDS = "discards"
IGNORED = "ignored"
FILTERED = "left out by filters"
SKIPPED = "changes with columns that the target lacks"
EXCEPTIONS = "exceptions"
CONVERTED = "values converted"
"""Values that a declared rule changed in the target (docs/types.md)."""
COLLISIONS = ("insert collisions", "update collisions", "delete collisions")
CDR = "CDR "
CDR_CONFLICTS = "CDR conflicts"
CDR_SUCCEEDED = "CDR resolutions succeeded"
CDR_FAILED = "CDR resolutions failed"


def cdr_conflicts(kind: str) -> str:
    """The counter of conflicts of one type, such as UPDATEROWEXISTS."""
    return f"{CDR}{kind} conflicts"


class Stats:
    """Counters since `since_us`, one row a (source table, target table)."""

    def __init__(self, since_us: int, output: str = "") -> None:
        self.since_us = since_us
        self.output = output
        self._rows: dict[tuple[str, str], list[int]] = {}
        self._more: dict[tuple[str, str], dict[str, int]] = {}

    def count(self, source: str, target: str, op: Op | str, n: int = 1) -> None:
        """Add `n` operations; `op` is a data Op, one of COUNTERS (`"discards"`), or the name of a rarer counter."""
        row = self._rows.get((source, target))
        if row is None:
            row = self._rows[(source, target)] = [0] * len(COUNTERS)
        if isinstance(op, str) and op not in COUNTERS:
            more = self._more.setdefault((source, target), {})
            more[op] = more.get(op, 0) + n
            return
        row[_BY_OP[op] if isinstance(op, Op) else COUNTERS.index(op)] += n

    def reset(self, since_us: int) -> None:
        """Start again from zero."""
        self.since_us = since_us
        self._rows.clear()
        self._more.clear()

    def total(self) -> int:
        """All operations counted, discards apart."""
        return sum(sum(row[: len(OPERATIONS)]) for row in self._rows.values())

    def to_reply(self) -> dict[str, Any]:
        """The answer to STATS; `more` is there for tables that have rarer counters."""
        tables = [
            {
                "from": source,
                "to": target,
                **dict(zip(COUNTERS, row, strict=True)),
                "operations": sum(row[: len(OPERATIONS)]),
                **({"more": dict(self._more[source, target])} if (source, target) in self._more else {}),
            }
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
        shown = [name for name in COUNTERS if name not in RARE or table[name]]
        lines += [f"       # {name:>25}: {table[name]:>9}" for name in shown]
        lines += [f"       # {name:>25}: {number:>9}" for name, number in table.get("more", {}).items()] + [""]
    return lines or ["No database operations have been performed.", ""]
