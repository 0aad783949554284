"""What a Replicat counts of its own work, for METRICS: batches as they are committed, and the time the target took.

Rule: a batch counts once it is committed; what was rolled back never happened.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from replicat.batch import Batch
from trails.runtime.metrics import Counters
from trails.runtime.stats import COLLISIONS, CONVERTED, DISCARDS, TOTAL, Stats


class Measures:
    """Counters that only grow."""

    def __init__(self) -> None:
        self.batches = 0
        self._changes = 0
        self._transactions = 0
        self._bytes = 0
        self._begun = self._written = 0
        self._target_s = 0.0

    def begun(self, taken: int) -> None:
        """A batch begins; `taken` is the target's count of bytes."""
        self._begun = taken

    def committed(self, batch: Batch, taken: int) -> None:
        """It is in the target."""
        self._written += taken - self._begun
        self.batches += 1
        self._changes += batch.changes
        self._transactions += 0 if batch.partial else batch.transactions
        self._bytes += sum(block.header.size for block in batch.blocks)

    @contextmanager
    def in_target(self) -> Iterator[None]:
        """The time within is time that the target takes."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._target_s += time.monotonic() - begin

    def counters(self) -> Counters:
        """For the meter."""
        return Counters(self._changes, self._transactions, self._bytes, self._written, self._target_s)

    def extra(self, stats: Stats) -> dict[str, Any]:
        """For METRICS, over all tables."""
        found = {"batches": self.batches, "rows_discarded": 0, "collisions": 0, "values_converted": 0}
        for table in stats.period(TOTAL)["tables"]:
            more = table.get("more", {})
            found["rows_discarded"] += table[DISCARDS]
            found["collisions"] += sum(more.get(name, 0) for name in COLLISIONS)
            found["values_converted"] += more.get(CONVERTED, 0)
        return found
