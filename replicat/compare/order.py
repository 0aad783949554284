"""COMPARE REPLICAT as asked for by ggsci: the group's own files say where source, target and trail are.

Rule: the reply has keys of rows, and values only where they were asked for. The same text goes to the report file
COMPARE-<group>.rpt, which a later COMPARE of the group overwrites.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from replicat.compare.comparing import DIFFERS, EQUAL, LEFT_OUT, UNKNOWN, Comparing, TableResult
from replicat.compare.flight import Flight
from replicat.compare.pairing import Wish, wishes
from replicat.compare.ranges import RowDifference, shown_value
from replicat.compare.repairfit import RepairFit, others_of
from replicat.compare.repairing import Repairing
from replicat.compare.repairorder import WantedRows, outcome_lines, repaired
from replicat.load.chunk import SourceOf
from replicat.load.group import LoadingGroup
from replicat.reading.kinds import check_readable
from trails.described import DescribedTable
from trails.errors import OperatorError
from trails.fs import RealFs
from trails.reader import last_header
from trails.record import TableDef
from trails.runtime.home.home import Home
from trails.runtime.language.params import Pattern

Reply = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CompareOrder:
    """What the command says. `sample`: percent of the ranges; `values`: tell values; `seconds`: wait for the group;
    `rate`: rows of the source a second at most, 0 for no limit; `repair`: tell which rows a REPAIR may be asked for.
    """

    pattern: Pattern | None = None
    sample: int = 100
    values: bool = False
    seconds: float = 60.0
    rate: int = 0
    repair: bool = False


@dataclass(frozen=True, slots=True)
class ComparedGroup:
    """A group with what it takes to compare it; its target is connected."""

    group: LoadingGroup
    source: SourceOf
    flight: Flight
    report: str

    @classmethod
    @contextmanager
    def of(cls, home: Home, name: str, seconds: float) -> Iterator[ComparedGroup]:
        """By its own files; the target is closed in the end."""
        group = LoadingGroup.of(home, name)
        check_readable(group.params.source_url)
        check_readable(group.params.target_url)
        fs = RealFs()
        header = last_header(fs, group.trail)
        if header is None:
            raise OperatorError(
                f"there is no trail {group.trail} yet, which says what is on its way", hint="START the group"
            )
        source = SourceOf(group.params.source_url, header.source)
        flight = Flight(fs, group.trail, group.target.load_row, seconds)
        group.target.connect()
        try:
            yield cls(group, source, flight, os.path.join(home.root, "dirrpt", f"COMPARE-{group.name}.rpt"))
        finally:
            group.target.close()

    def wishes(self, told: Sequence[Any], pattern: Pattern | None) -> list[Wish]:
        """What is to be compared. `told`: what describe_tables answered."""
        tables = [DescribedTable.from_wire(wire) for wire in told]
        found = wishes(self.group, tables, pattern, self.group.state())
        if not found:
            which = f"TABLE {pattern}" if pattern else "any table of the source"
            raise OperatorError(
                f"no MAP of {self.group.name} takes {which}", hint="LIST TABLES shows the source's names"
            )
        return found

    def report_lines(self, lines: Iterable[str], *, more: bool = False) -> None:
        """Into the report: a new one, or more of it."""
        how = os.O_APPEND if more else os.O_TRUNC
        with open(os.open(self.report, os.O_WRONLY | os.O_CREAT | how, 0o600), "a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))


def compare(home: Home, name: str, told: Sequence[Any], order: CompareOrder, tell: Callable[[str], None]) -> Reply:
    """Each table's result. `told`: what describe_tables answered."""
    with ComparedGroup.of(home, name, order.seconds) as ends:
        comparing = Comparing(
            ends.source, ends.group.params.target_url, ends.flight, order.sample, tell, rate=order.rate
        )
        results = [comparing.table(wish) for wish in ends.wishes(told, order.pattern)]
        fit = RepairFit.of(ends.group, ends.flight, others_of(home, ends.group)) if order.repair else None
        wanted = [WantedRows.of(result, fit) for result in results] if fit else []
    tables = [_told(result, values=order.values) for result in results]
    lines = [table_lines(table) for table in tables]
    ends.report_lines(line for some in lines for line in some)
    return {
        "tables": tables, "report": ends.report, "lines": lines, "wanted": [one.to_wire() for one in wanted],
    }  # fmt: skip


def repair(
    home: Home,
    name: str,
    told: Sequence[Any],
    wanted: Sequence[Reply],
    order: CompareOrder,
    tell: Callable[[str], None],
) -> Reply:
    """What became of each row that is wanted; by table, in the order in which they are named."""
    asked = [WantedRows.from_wire(wire) for wire in wanted]
    with ComparedGroup.of(home, name, order.seconds) as ends:
        connection = LoadingGroup.of(home, name).target
        repairing = Repairing(
            ends.source, ends.flight, lambda: connection, ends.group.tables, tell, paused=ends.group.paused
        )
        fit = RepairFit.of(ends.group, ends.flight, others_of(home, ends.group))
        found = []
        for one, outcomes in zip(asked, repaired(fit, repairing, ends.wishes(told, order.pattern), asked), strict=True):
            ends.report_lines(outcome_lines(one, outcomes), more=True)
            found.append(outcomes)
    return {"outcomes": found}


def _told(result: TableResult, *, values: bool) -> Reply:
    """For JSON."""
    wish, pair = result.wish, result.wish.pair
    found = [_difference(one, pair.source, values=values) for one in result.differences] if pair else []
    return {
        "source": wish.source, "target": wish.target, "state": result.state, "reason": result.reason,
        "rows": result.rows, "ranges": result.ranges, "of_ranges": result.of_ranges, "unknown": result.unknown,
        "hashed": result.hashed, "not_in_target": list(wish.skipped), "differences": found,
    }  # fmt: skip


def _difference(one: RowDifference, table: TableDef, *, values: bool) -> Reply:
    names = [column.name for column in table.columns]
    key = {names[i]: shown_value(value) for i, value in zip(table.key, one.key, strict=True)} if table.key else {}
    told: Reply = {"what": one.what, "key": key, "columns": [names[i] for i in one.columns], "rows": one.number}
    if not values:
        return told
    for side, row in (("source", one.source), ("target", one.target)):
        if row is not None:
            wanted = one.columns or range(len(names))
            told[side] = {names[i]: shown_value(row[i]) for i in wanted}
    return told


def table_lines(table: Reply) -> list[str]:
    """A table's result for people: one line, and one for each row that differs."""
    head = f"{table['source']} to {table['target']}: {_summary(table)}"
    lines = [head if not table["reason"] else f"{head} ({table['reason']})"]
    if table["not_in_target"]:
        lines.append(f"  columns that the target does not have: {', '.join(table['not_in_target'])}")
    return lines + [f"  {difference_line(one)}" for one in table["differences"]]


def _summary(table: Reply) -> str:
    state = table["state"]
    if state == LEFT_OUT:
        return LEFT_OUT
    part = "" if table["ranges"] == table["of_ranges"] else f" in {table['ranges']} of {table['of_ranges']} ranges"
    rows = f"{table['rows']} rows compared{part}"
    said = {EQUAL: EQUAL, DIFFERS: f"{len(table['differences'])} differences", UNKNOWN: UNKNOWN}[state]
    more = f", {table['unknown']} unknown" if table["unknown"] else ""
    return f"{rows}, {said}{more}"


def difference_line(one: Reply) -> str:
    """One row that differs: how, by its key, and in which columns."""
    key = ", ".join(f"{name}={value}" for name, value in one["key"].items()) or f"{one['rows']} rows without a key"
    columns = f": {', '.join(one['columns'])}" if one["columns"] else ""
    sides = [f"{side} {one[side]}" for side in ("source", "target") if side in one]
    return f"{one['what']} ({key}){columns}{'; ' + ', '.join(sides) if sides else ''}"
