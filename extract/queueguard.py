"""The guard over a queue in a source: how many changes wait in it, which makes the source grow.

Bounds are QUEUEWARN and QUEUECRITICAL (retention.py has what follows). Nothing is lost by a long queue: the source
needs the room, and gives it back to later rows only. For an Extract that does not run ggsci asks `extract.admin` the
same question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from extract.retention import CRITICAL, Retained
from extract.source import SourceSettings
from trails.runtime.language.params import Keyword, number, table
from trails.runtime.report.answers import KeptAnswer

WARN_ROWS: Final = 1_000_000
CRITICAL_ROWS: Final = 10_000_000
KEYWORDS: Final = table(
    Keyword(
        "QUEUEWARN", "n",
        "Warn once so many changes wait in the queue of a source that is captured by triggers; 0 is never. "
        f"If not given it is {WARN_ROWS}.",
        "QUEUEWARN 100000", number(0, 1 << 62),
    ),
    Keyword(
        "QUEUECRITICAL", "n",
        f"As QUEUEWARN, but for when somebody must act. If not given it is {CRITICAL_ROWS}.",
        "QUEUECRITICAL 5000000", number(0, 1 << 62),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """QUEUEWARN and QUEUECRITICAL, in rows; 0 is never."""

    warn: int = WARN_ROWS
    critical: int = CRITICAL_ROWS

    @classmethod
    def of(cls, settings: SourceSettings) -> QueueLimits:
        """As the parameter file says."""
        own = settings.own
        return cls(own.get("QUEUEWARN", WARN_ROWS), own.get("QUEUECRITICAL", CRITICAL_ROWS))


def retained(rows: int, limits: QueueLimits) -> Retained:
    """What a look at the queue means to the guard."""
    return Retained(rows, (limits.warn, limits.critical), lambda at: _text(rows, limits, at))


def _text(rows: int, limits: QueueLimits, at: int) -> str:
    """The warning of a level."""
    name, bound = (("QUEUEWARN", limits.warn), ("QUEUECRITICAL", limits.critical))[at - 1]
    urgent = "; CRITICAL: it grows with every change" if at == CRITICAL else ""
    return (
        f"{rows} changes wait in the source's queue ({name} {bound}){urgent}. START the group, or find what holds it "
        "back with INFO ALL, DETAIL. UNREGISTER EXTRACT removes the queue, and what is in it is lost"
    )


def kept_facts(name: str, rows: int, size: int | None, checked_us: int) -> KeptAnswer:
    """What the queue keeps, as any source's log."""
    return KeptAnswer(f"queue {name}", "reserved", f"{rows} changes", size, log_checked_us=checked_us)
