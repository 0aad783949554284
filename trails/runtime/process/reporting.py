"""What the runtime puts in a report besides messages: statistics, counts, and new reports when they are due.

reportparams.py has the parameters that it obeys. ROLLOVER and DISCARDROLLOVER are the process's own work: when they are
due, its verb of the same name is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from trails.clock import Clock, local_text
from trails.errors import OperatorError
from trails.runtime.language.params import Values
from trails.runtime.language.reportparams import TIMED_VERBS
from trails.runtime.language.schedule import CountLines, Due
from trails.runtime.process.loop import Chore, Process
from trails.runtime.report.answers import StatusAnswer, read_answer
from trails.runtime.report.report import Log
from trails.runtime.report.stats import REPORT, report_lines

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
            return last_record(read_answer(StatusAnswer, self._process.command("STATUS", {})), operations)
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


def last_record(status: StatusAnswer, operations: int) -> list[str]:
    """The box around the last record of a report."""
    place = status.read
    if place is None or not (place.csn or place.rba):
        return []
    name = place.file or "Not Available"
    return [
        "Last record for the last committed transaction is the following:",
        RULER,
        f"File       : {name}",
        f"AuditRBA   : {place.rba}",
        f"Seqno      : {place.seqno}",
        f"CSN        : {place.csn or 'Not Available'}",
        f"IO Time    : {local_text(place.time_us, fraction=True) if place.time_us else 'Not Available'}",
        RULER,
        "",
        f"Reading {name}, current RBA {place.rba}, {operations} records",
        "",
    ]
