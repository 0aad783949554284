"""Counts of operations by table, over several periods, and how a report shows them.

A process owns one `Stats` and counts whole blocks at a time; `to_reply()` is the answer to STATS, which ggsci lays out.

There is one set of counters, from the start of the process. A period is a copy of them made at its begin, and what it
counted is the difference: TOTAL since the start, DAILY and HOURLY since midnight or the full hour in local time (or the
start, if that was later), LATEST since the last STATS ..., RESET, REPORT since the report was begun, if STATOPTIONS
RESETREPORTSTATS asks for that. A count belongs to the hour in which it was made: `count` looks at the clock first. A
clock that was ahead by hours and is set right begins a new hour and day.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trails.ddl import DdlChange
from trails.record import Op

DATA_OPERATIONS = ("inserts", "updates", "deletes", "truncates", "ddls")
COUNTERS = (*DATA_OPERATIONS, "discards")
RARE = ("truncates", "ddls")
"""Shown only where there were any."""
TOTAL_OPERATIONS = "operations"
"""The sum of the data operations; counted by this name alone where blocks are passed on undecoded."""
_BY_OP = {Op.INSERT: "inserts", Op.UPDATE: "updates", Op.DELETE: "deletes", Op.TRUNCATE: "truncates", Op.DDL: "ddls"}
DISCARDS = "discards"
DDL_COUNTERS = ("operations", "mapped operations", "unmapped operations", "other operations", "excluded operations")
DDL_ERRORS = ("errors", "retried errors", "discarded errors", "ignored errors")
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

TOTAL, DAILY, HOURLY, LATEST, REPORT = "TOTAL", "DAILY", "HOURLY", "LATEST", "REPORT"
PERIODS = (TOTAL, DAILY, HOURLY, LATEST)
"""Those that STATS shows, in its order."""

HOUR_US = 3_600_000_000

TablePair = tuple[str, str]
Tallies = dict[TablePair, dict[str, int]]


def cdr_conflicts(kind: str) -> str:
    """The counter of conflicts of one type, such as UPDATEROWEXISTS."""
    return f"{CDR}{kind} conflicts"


class DdlCounts:
    """What became of schema changes since the process started; `errors`: a Replicat's, which may be refused some."""

    def __init__(self, *, errors: bool = False, turned_away: Callable[[str], None] = lambda _text: None) -> None:
        """`turned_away`: takes a line on a change of a mapped table that the DDL parameter does not let through."""
        self._turned_away = turned_away
        names = (*DDL_COUNTERS, *(DDL_ERRORS if errors else ()))
        self.counts: dict[str, int] = dict.fromkeys(names, 0)

    def seen(self, change: DdlChange | None, *, mapped: bool, passes: bool) -> None:
        """One change of a table that TABLE or MAP names, or does not; `passes`: the DDL parameter lets it through.

        `change`: None where that is told elsewhere.
        """
        self.counts["operations"] += 1
        self.counts["mapped operations" if mapped else "unmapped operations"] += 1
        self.counts["excluded operations"] += not passes
        if change is not None and mapped and not passes:
            self._turned_away(
                f"{change.op} of {change.full_name} is left out by the DDL parameter, and no target hears of it: make "
                "the change there by hand"
            )

    def error(self, name: str) -> None:
        """One of DDL_ERRORS."""
        self.counts[name] += 1


@dataclass(slots=True)
class _Period:
    """What the counters were when it began."""

    since_us: int
    before: Tallies = field(default_factory=dict)


class Stats:
    """Counters by (source table, target table). `now_us` is the clock; `output` names what is written, for STATS."""

    def __init__(self, now_us: Callable[[], int], output: str = "", note: str = "") -> None:
        """`note`: why nothing is counted by table, where that is so; for STATS and report."""
        now = now_us()
        self.output = output
        self.note = note
        self.ddl: DdlCounts | None = None
        """Where schema changes are carried."""
        self._now_us = now_us
        self._rows: Tallies = {}
        self._total = 0
        self._periods = {name: _Period(now) for name in (*PERIODS, REPORT)}
        self._hour = _times_of(_hour(now))
        """While it is one of these times, no new hour begins."""

    @property
    def since_us(self) -> int:
        """When counting began."""
        return self._periods[TOTAL].since_us

    def count(self, source: str, target: str, op: Op | str, n: int = 1) -> None:
        """Add `n` operations; `op` is a data Op, one of COUNTERS (`"discards"`), or the name of a rarer counter."""
        if self._now_us() not in self._hour:
            self._turn()
        row = self._rows.get((source, target))
        if row is None:
            row = self._rows[source, target] = dict.fromkeys((*COUNTERS, TOTAL_OPERATIONS), 0)
        name = _BY_OP[op] if isinstance(op, Op) else op
        row[name] = row.get(name, 0) + n
        if name in DATA_OPERATIONS:
            row[TOTAL_OPERATIONS] += n
        if name in DATA_OPERATIONS or name == TOTAL_OPERATIONS:
            self._total += n

    def reset(self, period: str = LATEST) -> None:
        """Let a period begin now: LATEST or REPORT."""
        self._begin(period, self._now_us())

    def total(self) -> int:
        """All operations counted, discards apart. Asked for by REPORTCOUNT in each turn: it looks at no table."""
        return self._total

    def to_reply(self) -> dict[str, Any]:
        """The answer to STATS: the total, and each period by its name."""
        if self._now_us() not in self._hour:
            self._turn()
        return {
            "ok": True, "now_us": self._now_us(), "output": self.output, "note": self.note, **self.period(TOTAL),
            "ddl": dict(self.ddl.counts) if self.ddl else None,
            "periods": {name: self.period(name) for name in PERIODS[1:]},
        }  # fmt: skip

    def period(self, name: str) -> dict[str, Any]:
        """`since_us` of a period, and its `tables`; `more` is there for tables that have rarer counters."""
        period = self._periods[name]
        tables = [_table(pair, row, period.before.get(pair, {})) for pair, row in self._rows.items()]
        return {"since_us": period.since_us, "tables": tables}

    def report_lines(self) -> list[str]:
        """The per-table blocks of a report."""
        return report_lines(self.period(REPORT)) + ([self.note, ""] if self.note else [])

    def _begin(self, name: str, now_us: int) -> None:
        self._periods[name] = _Period(now_us, {pair: dict(row) for pair, row in self._rows.items()})

    def _turn(self) -> None:
        """Begin a new hour, and with its first one a new day."""
        now = self._now_us()
        hour, day = _hour(now), _day(now)
        self._begin(HOURLY, hour)
        if not day <= self._periods[DAILY].since_us <= now:
            self._begin(DAILY, day)
        self._hour = _times_of(hour)


def _times_of(hour: int) -> range:
    """Those that count to an hour; also of the hour before, where the clock is put back a little."""
    return range(hour - HOUR_US + 1, hour + HOUR_US)


def _hour(us: int) -> int:
    """The full hour before, in local time."""
    local = time.localtime(us // 1_000_000)
    return (us // 1_000_000 - local.tm_min * 60 - local.tm_sec) * 1_000_000


def _day(us: int) -> int:
    """The midnight before, in local time."""
    local = time.localtime(us // 1_000_000)
    return int(time.mktime((local.tm_year, local.tm_mon, local.tm_mday, 0, 0, 0, 0, 0, -1))) * 1_000_000


def _table(pair: TablePair, row: dict[str, int], before: dict[str, int]) -> dict[str, Any]:
    counted = {name: number - before.get(name, 0) for name, number in row.items()}
    shown: dict[str, Any] = {"from": pair[0], "to": pair[1]}
    shown |= {name: counted.pop(name) for name in (*COUNTERS, TOTAL_OPERATIONS)}
    more = {name: number for name, number in counted.items() if number}
    return shown | ({"more": more} if more else {})


def report_lines(period: dict[str, Any]) -> list[str]:
    """A period as a report shows it, table by table."""
    lines = []
    for table in period["tables"]:
        lines.append(f"From Table {table['from']} to {table['to']}:")
        shown = [name for name in COUNTERS if name not in RARE or table[name]]
        if table[TOTAL_OPERATIONS] != sum(table[name] for name in DATA_OPERATIONS):
            shown = [TOTAL_OPERATIONS]
        lines += [f"       # {name:>25}: {table[name]:>9}" for name in shown]
        lines += [f"       # {name:>25}: {number:>9}" for name, number in table.get("more", {}).items()] + [""]
    return lines or ["No database operations have been performed.", ""]
