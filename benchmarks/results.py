"""What was measured: lines of repeated values, compared with the peer of the same run, printed, as JSON or as Markdown.

Rule: a figure is min / median / max of its runs; a ratio is ours over the peer's median, both from this very run.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OURS = "Trailgate"
BEGIN, END = "<!-- results: written by python -m benchmarks --write -->", "<!-- end of results -->"


@dataclass(frozen=True, slots=True)
class Line:
    """One figure. `bar` is what must be reached at least (`less`: at most); `peer` names whom it is compared with."""

    benchmark: str
    case: str
    who: str
    what: str
    values: tuple[float, ...]
    bar: float | None = None
    peer: str = ""
    less: bool = False

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.values)

    @property
    def passed(self) -> bool | None:
        """Whether the bar is reached; None without one."""
        if self.bar is None:
            return None
        return self.median <= self.bar if self.less else self.median >= self.bar


@dataclass(slots=True)
class Results:
    """All lines of a run, with the machine they come from and what went wrong."""

    machine: dict[str, str]
    options: dict[str, Any]
    lines: list[Line] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Take a line that has values."""
        if line.values:
            self.lines.append(line)

    def ratio(self, line: Line) -> float | None:
        """Ours over the peer's."""
        for other in self.lines:
            same = (other.benchmark, other.case, other.what) == (line.benchmark, line.case, line.what)
            if line.peer and same and other.who == line.peer and other.median:
                return line.median / other.median
        return None

    def table(self, benchmark: str) -> list[list[str]]:
        """One benchmark's lines as cells, heading first."""
        rows = [["case", "who", "what", "min", "median", "max", "ratio", "wanted", ""]]
        rows += [self._row(line) for line in self.lines if line.benchmark == benchmark]
        return rows

    @property
    def benchmarks(self) -> list[str]:
        """Names of the benchmarks that have lines, in their order."""
        return list(dict.fromkeys(line.benchmark for line in self.lines))

    def to_json(self) -> str:
        """Everything, for programs."""
        lines = [
            {
                **{name: getattr(line, name) for name in ("benchmark", "case", "who", "what", "bar", "peer")},
                "values": list(line.values),
                "median": line.median,
                "ratio": self.ratio(line),
                "passed": line.passed,
            }
            for line in self.lines
        ]
        whole = {"machine": self.machine, "options": self.options, "lines": lines, "failures": self.failures}
        return json.dumps(whole, indent=1) + "\n"

    def write_markdown(self, path: Path) -> None:
        """Put the tables into the page, between its two marks; a table that was not measured now stays as it is."""
        page = path.read_text()
        head, _, rest = page.partition(BEGIN)
        old, _, tail = rest.partition(END)
        first, tables = _tables(old)
        measured = {benchmark: "\n".join(self._markdown(benchmark)) for benchmark in self.benchmarks}
        if not tables.keys() - measured.keys():
            first = self._facts()
        elif first.strip() != self._facts():
            measured = {name: f"{self._facts()}\n\n{table}" for name, table in measured.items()}
        parts = [first.strip(), *(f"### {name}\n\n{table.strip()}" for name, table in (tables | measured).items())]
        path.write_text(head + BEGIN + "\n\n" + "\n\n".join(parts) + "\n\n" + END + tail)

    def _facts(self) -> str:
        machine = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        return f"Machine: {machine}.\nOptions: {', '.join(f'{name} {value}' for name, value in self.options.items())}."

    def _markdown(self, benchmark: str) -> Iterable[str]:
        heading, *rows = self.table(benchmark)
        yield "| " + " | ".join(heading) + " |"
        yield "|" + " --- |" * 3 + " ---: |" * 5 + " --- |"
        for row in rows:
            yield "| " + " | ".join(row) + " |"

    def _row(self, line: Line) -> list[str]:
        ratio = self.ratio(line)
        values = [min(line.values), line.median, max(line.values)]
        wanted = "" if line.bar is None else ("<= " if line.less else ">= ") + number(line.bar)
        verdict = {None: "", True: "pass", False: "FAIL"}[line.passed]
        shown = "" if ratio is None else f"{ratio:.2f}"
        return [line.case, line.who, line.what, *map(number, values), shown, wanted, verdict]


def _tables(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the first table's heading, and the tables by name."""
    first, *parts = re.split(r"(?m)^### ", text)
    return first, {name: table for name, _, table in (part.partition("\n") for part in parts)}


def number(value: float) -> str:
    """Three or so digits that matter."""
    if abs(value) >= 10_000:
        return f"{value / 1000:,.0f}k"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Cells as columns: words to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    out = []
    for row in rows:
        cells = [c.ljust(w) if i < 3 or i > 7 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        out.append("  ".join(cells).rstrip())
    return "\n".join(out)
