"""What a Replicat counts of its own work, for METRICS: batches as they are committed, and the time the target took.

Rule: a batch counts once it is committed; what was rolled back never happened.
"""

from __future__ import annotations

from typing import Any

from replicat.batches.batch import Batch
from trails.runtime.report.metrics import Counters
from trails.runtime.report.stats import COLLISIONS, CONVERTED, DISCARDS, TOTAL, Stats


class Measures:
    """Counters that only grow.

    `begun`: the target's count of bytes where the open batch begins; `target_s`: the seconds that the target took.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.begun = 0
        self.target_s = 0.0
        self._changes = 0
        self._transactions = 0
        self._bytes = 0
        self._written = 0

    def committed(self, batch: Batch, taken: int) -> None:
        """It is in the target, which has taken so many bytes by now."""
        self._written += taken - self.begun
        self.batches += 1
        self._changes += batch.changes
        self._transactions += 0 if batch.partial else batch.transactions
        self._bytes += batch.size

    def counters(self) -> Counters:
        """For the meter."""
        return Counters(self._changes, self._transactions, self._bytes, self._written, self.target_s)

    def extra(self, stats: Stats) -> dict[str, Any]:
        """For METRICS, over all tables; None where no table has counted any."""
        tables = stats.period(TOTAL)["tables"]
        rarer = [table.get("more", {}) for table in tables]
        collisions = [more[name] for more in rarer for name in COLLISIONS if name in more]
        converted = [more[CONVERTED] for more in rarer if CONVERTED in more]
        return {
            "batches": self.batches, "rows_discarded": sum(table[DISCARDS] for table in tables),
            "collisions": sum(collisions) if collisions else None,
            "values_converted": sum(converted) if converted else None,
        }  # fmt: skip
