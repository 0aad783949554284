"""The parameters of reports and of what begins anew by the clock, for all groups' programs; reporting.py obeys them.

A program's table is `SHARED | table(...)`, with ROLLOVER or DISCARDROLLOVER where it can do that.
"""

from __future__ import annotations

from trails.runtime.language import acceptedoptions, params
from trails.runtime.language.params import Keyword, Statement
from trails.runtime.language.schedule import COUNT_SHAPE, SHAPE, report_count, schedule


def _stat_options(statement: Statement) -> bool:
    words = [str(word).upper() for word in statement.words]
    if words == ["RESETREPORTSTATS"]:
        return True
    if words in ([], ["NORESETREPORTSTATS"]):
        return False
    raise statement.error("RESETREPORTSTATS or NORESETREPORTSTATS")


SHARED = params.COMMON | params.table(
    Keyword(
        "REPORT", SHAPE,
        "Write the statistics to the report each day at that time (midnight without AT), or once a week.",
        "REPORT AT 06:00", schedule, repeatable=True,
    ),
    Keyword(
        "REPORTCOUNT", COUNT_SHAPE,
        "Write the number of processed records to the report that often. RATE also writes how many there were a "
        "second, since the start and since the last such line.",
        "REPORTCOUNT EVERY 5 MINUTES, RATE", report_count,
    ),
    Keyword(
        "REPORTROLLOVER", SHAPE,
        "Begin a new report at that time. The ten reports before it are kept as <GROUP>.0.rpt (the youngest) to "
        "<GROUP>.9.rpt.",
        "REPORTROLLOVER AT 00:00 ON SUNDAY", schedule, repeatable=True,
    ),
    Keyword(
        "STATOPTIONS", "{RESETREPORTSTATS | NORESETREPORTSTATS}",
        "Whether the statistics in a report begin anew with each REPORTROLLOVER. They don't if this is not given. "
        "STATS has its own RESET.",
        "STATOPTIONS RESETREPORTSTATS", acceptedoptions.stripped(_stat_options),
    ),
)  # fmt: skip

ROLLOVER = Keyword(
    "ROLLOVER", SHAPE, "Begin a new trail file at that time, whatever the size of the last.", "ROLLOVER AT 02:00",
    schedule, repeatable=True,
)  # fmt: skip
DISCARDROLLOVER = Keyword(
    "DISCARDROLLOVER", SHAPE,
    "Begin a new discard file at that time. The ten files before it are kept as <GROUP>.0.dsc (the youngest) to "
    "<GROUP>.9.dsc.",
    "DISCARDROLLOVER AT 02:00 ON SUNDAY", schedule, repeatable=True,
)  # fmt: skip
TIMED_VERBS = params.table(ROLLOVER, DISCARDROLLOVER)
"""Schedules of a process's own verbs: a program's table has those that it knows."""
