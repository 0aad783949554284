"""What the runtime puts in a report besides messages: statistics, counts, and new reports when they are due.

reportparams.py has the parameters that it obeys. ROLLOVER and DISCARDROLLOVER are the process's own work: when they are
due, its verb of the same name is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from trails.errors import OperatorError
from trails.runtime.clock import Clock, local_text
from trails.runtime.loop import Chore, Process
from trails.runtime.params import Values
from trails.runtime.report import Log
from trails.runtime.reportparams import TIMED_VERBS
from trails.runtime.schedule import CountLines, Due
from trails.runtime.stats import REPORT, report_lines

ROLLED = "TG-01975"
NOT_ROLLED = "TG-01976"
RULER = "_" * 67


class Reporting:
    """One run's statistics and schedules. `head` writes what a new report begins with."""

    def __init__(self, process: Process, found: Values, log: Log, clock: Clock, head: Callable[[], None]) -> None:
        self._process = process
        self._found = found
        self._log = log
        self._clock = clock
        self._head = head
        self.saves = 0
        """Checkpoints saved so far."""

    def chores(self) -> list[Chore]:
        """What the loop is to call."""
        timed: Sequence[tuple[str, Callable[[], object]]] = (
            ("REPORT", self.statistics),
            ("REPORTROLLOVER", self._roll_report),
            *((name, partial(self._ask_process, name)) for name in TIMED_VERBS),
        )
        chores: list[Chore] = [
            Due(self._found.all(name), do, self._clock) for name, do in timed if self._found.has(name)
        ]
        stats, count = self._process.stats, self._found.one("REPORTCOUNT")
        if count is not None and stats is not None:
            chores.append(CountLines(count, stats.total, self._line, self._clock))
        return chores

    def statistics(self) -> None:
        """The last record, and the counts by table."""
        stats, paper = self._process.stats, self._log.report
        if stats is None or paper is None:
            return
        period = stats.period(REPORT)
        paper.box("Run Time Statistics")
        paper.lines(self._last_record(stats.total()))
        since = local_text(period["since_us"])
        paper.lines([f"Report at {local_text(self._clock.now_us())} (activity since {since})", ""])
        paper.lines([*report_lines(period), f"Checkpoints saved: {self.saves}", ""])

    def _last_record(self, operations: int) -> list[str]:
        """Where the process stands, as the operator finds it with logdump or SHOWCH."""
        try:
            return last_record(self._process.command("STATUS", {}), operations)
        except Exception:  # noqa: BLE001  -- of a process that is ending; numbers must not decide how it ends
            return []

    def _line(self, text: str) -> None:
        if self._log.report is not None:
            self._log.report.lines([text])

    def _roll_report(self) -> None:
        paper, stats = self._log.report, self._process.stats
        if paper is None:
            return
        self.statistics()
        paper.lines([f"Report file rolled over at {local_text(self._clock.now_us())} by REPORTROLLOVER."])
        try:
            paper.age()
        except OperatorError as error:
            self._log.warning(NOT_ROLLED, f"REPORTROLLOVER was due: {error}")
            return
        self._head()
        if stats is not None and self._found.one("STATOPTIONS", False):
            stats.reset(REPORT)

    def _ask_process(self, verb: str) -> None:
        """Something can be in the way now (a link that is away): that is told, and the next time is not far."""
        try:
            self._process.command(verb, {})
        except OperatorError as error:
            self._log.warning(NOT_ROLLED, f"{verb} was due: {error}")
        else:
            self._log.info(ROLLED, f"{verb} was due, and is under way.")


def last_record(status: dict[str, Any], operations: int) -> list[str]:
    """The box around the last record of a report, from the answer to STATUS."""
    read = status.get("read") or {}
    if not read.get("csn") and not read.get("rba"):
        return []
    name = read.get("file") or "Not Available"
    rba, seqno = read.get("rba"), read.get("seqno")
    time_us = read.get("time_us")
    return [
        "Last record for the last committed transaction is the following:",
        RULER,
        f"File       : {name}",
        f"AuditRBA   : {rba}",
        f"Seqno      : {seqno}",
        f"CSN        : {read.get('csn') or 'Not Available'}",
        f"IO Time    : {local_text(time_us, fraction=True) if time_us else 'Not Available'}",
        RULER,
        "",
        f"Reading {name}, current RBA {rba}, {operations} records",
        "",
    ]
