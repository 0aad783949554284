"""How far the tables are that are loaded, how fast that goes and how long it takes still: for STATUS and METRICS.

Rule: a rate is that of chunks which this process saw to be copied in the last minute or so, waiting and applying
included; it falls while none comes. What is left follows from the chunks that are left, by the mean of those that are
copied. What is not known is None, never a zero.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from replicat.load.loadtables import CATCHING_UP, COPYING, FAILED, LIVE, WAITING, LoadState, TableRow

KEPT_SECONDS = 60.0
MOST_TABLES = 100
"""So many are told one by one."""
_FIRST = (FAILED, COPYING, CATCHING_UP, WAITING)
_MB = 1_000_000
_UNKNOWN = "rate and time left not known yet"


class _Sample(NamedTuple):
    at: float
    rows: int
    bytes: int


@dataclass(slots=True)
class _Copying:
    """A table that is not live. `done`: its chunks that are copied; `samples`: what was seen, while it is copied."""

    row: TableRow
    chunks: int = 0
    done: int = 0
    rows: int = 0
    bytes: int = 0
    samples: deque[_Sample] = field(default_factory=deque)

    def add(self, now: float) -> None:
        """What was copied by now; old samples go, but for one at the window's beginning."""
        samples = self.samples
        if samples and samples[-1].rows > self.rows:
            samples.clear()  # it began anew
        if not samples or samples[-1].rows < self.rows:
            samples.append(_Sample(now, self.rows, self.bytes))
        while len(samples) > 2 and samples[1].at < now - KEPT_SECONDS:
            samples.popleft()

    def rates(self, now: float) -> tuple[float, float] | tuple[None, None]:
        """Rows and bytes a second; unknown until a chunk was seen to be copied."""
        if len(self.samples) < 2:
            return None, None
        first, last = self.samples[0], self.samples[-1]
        longest = max(after.at - before.at for before, after in pairwise(self.samples))
        seconds = max(last.at, now - longest) - first.at
        if seconds <= 0:
            return None, None
        return (last.rows - first.rows) / seconds, (last.bytes - first.bytes) / seconds

    def left_seconds(self, rate: float | None) -> float | None:
        """Until the last chunk is copied, at this rate."""
        if not rate or not self.done:
            return None
        return (self.chunks - self.done) * (self.rows / self.done) / rate


class LoadProgress:
    """Of one group's tables."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tables: dict[tuple[str, str], _Copying] = {}
        self._states: Counter[str] = Counter()

    def seen(self, state: LoadState) -> None:
        """What the target says."""
        now, before = self._clock(), self._tables
        self._states = Counter(row.state for row in state.tables)
        self._tables = {}
        for row in state.tables:
            if row.state != LIVE:
                self._tables[row.pair] = self._seen(row, state, before.get(row.pair), now)

    def _seen(self, row: TableRow, state: LoadState, known: _Copying | None, now: float) -> _Copying:
        chunks = state.by_pair.get(row.pair, [])
        copied = [chunk for chunk in chunks if chunk.seen]
        table = _Copying(row, len(chunks), len(copied), sum(c.rows for c in copied), sum(c.bytes for c in copied))
        if row.state == COPYING:
            table.samples = known.samples if known else table.samples
            table.add(now)
        return table

    def copied(self, pair: tuple[str, str], rows: int, size: int) -> None:
        """One more chunk is in the target."""
        table = self._tables.get(pair)
        if table is not None:
            table.done, table.rows, table.bytes = table.done + 1, table.rows + rows, table.bytes + size
            table.add(self._clock())

    def says(self) -> str:
        """What is copied now, as a line; empty where nothing is."""
        wanted = [table for table in self._tables.values() if table.row.state in (WAITING, COPYING)]
        if not wanted:
            return ""
        table = min(wanted, key=lambda one: (one.row.state != COPYING, one.row.pair))
        if not table.chunks:
            return f"Loading {table.row.source}"
        rate, _ = table.rates(self._clock())
        left = table.left_seconds(rate)
        pace = (
            _UNKNOWN
            if rate is None
            else f"{rate:,.0f} rows/s, {'an unknown time' if left is None else lasting(left)} left"
        )
        return (
            f"Loading {table.row.source}: {table.done} of {table.chunks} chunks, {table.rows:,} rows, "
            f"{table.bytes / _MB:,.1f} MB, {pace}"
        )

    def figures(self) -> dict[str, Any]:
        """For METRICS: how many tables are in which state, and those that are not live one by one; {} for none."""
        if not self._states:
            return {}
        now = self._clock()
        shown = sorted(self._tables.values(), key=lambda one: (_FIRST.index(one.row.state), one.row.pair))
        return {"load_states": dict(self._states), "loading": [_told(one, now) for one in shown[:MOST_TABLES]]}


def _told(table: _Copying, now: float) -> dict[str, Any]:
    rows_s, bytes_s = table.rates(now) if table.row.state == COPYING else (None, None)
    left = table.left_seconds(rows_s)
    return {
        "source": table.row.source, "target": table.row.target, "state": table.row.state, "chunks": table.chunks,
        "chunks_done": table.done, "rows": table.rows, "bytes": table.bytes, "estimate": table.row.estimate or None,
        "rows_s": rows_s, "bytes_s": bytes_s, "left_us": None if left is None else round(left * 1e6),
    }  # fmt: skip


def lasting(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 05 min`."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
