"""What the charts show: a few figures of each stage over the last hours, in memory, and on disk for the next page.

Rule: bounded. So many samples a stage, so many stages; a stage that is gone for the whole span is forgotten. What was
not known at a time is a gap (nan), never a zero or the last value again.
"""

from __future__ import annotations

import bisect
import math
import threading
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ggsci.flow.pipelines import Stage
from ggsci.web.kept import KeptHistory

FIGURES: Mapping[str, Callable[[Stage], float | None]] = {
    "lag": lambda stage: None if stage.lag_us is None else stage.lag_us / 1_000_000,
    "rate": lambda stage: stage.ops_s,
    "backlog": lambda stage: stage.backlog_bytes,
    "kept": lambda stage: stage.extra.get("log_kept_bytes"),
}
"""What is kept: lag in seconds, changes a second, backlog in bytes, bytes of log that the source keeps for a slot."""

_PEAKS = ("lag", "backlog", "kept")
MAX_STAGES = 256
MAX_SAMPLES = 4320
MISSED = 4
"""So many samples left out are a gap."""


class Ring:
    """The samples of one stage, oldest first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.columns = {name: array("d") for name in ("at", *FIGURES)}

    def add(self, at: float, figures: Mapping[str, float | None]) -> None:
        """One sample; a figure of None is a gap. Old ones go a quarter at a time, which is cheap."""
        for name, column in self.columns.items():
            value = at if name == "at" else figures.get(name)
            column.append(math.nan if value is None else value)
            if len(column) > self._size:
                del column[: max(1, self._size // 4)]

    @property
    def last(self) -> float:
        """Time of the newest sample."""
        return self.columns["at"][-1]

    def since(self, start: float) -> dict[str, list[float]]:
        """The samples after `start`, oldest first."""
        first = bisect.bisect_right(self.columns["at"], start)
        return {name: list(column[first:]) for name, column in self.columns.items()}


class History:
    """The rings of all stages, by a key of theirs. One thread adds while others read."""

    def __init__(self, span: float, every: float, kept: KeptHistory | None = None) -> None:
        self._kept = kept
        self._span = span
        self._every = every
        self._samples = min(MAX_SAMPLES, math.ceil(span / every))
        self._rings: dict[str, Ring] = {}
        self._lock = threading.Lock()

    @property
    def trouble(self) -> str:
        """Why the history will not outlive this process; empty if it will."""
        return self._kept.trouble if self._kept else ""

    def load(self, now: float) -> None:
        """What an earlier process has kept."""
        for at, stages in self._kept.load(now - self._span, now) if self._kept else ():
            self._add(at, stages)

    def add(self, at: float, stages: Iterable[tuple[str, Stage]]) -> None:
        """One sample of each."""
        seen = {key: {name: figure(stage) for name, figure in FIGURES.items()} for key, stage in stages}
        self._add(at, seen)
        if self._kept is not None:
            self._kept.add(at, seen)

    def _add(self, at: float, seen: Mapping[str, Mapping[str, float | None]]) -> None:
        """What was not seen for the whole span goes, and so does the oldest beyond MAX_STAGES."""
        with self._lock:
            for key, figures in seen.items():
                self._rings.setdefault(key, Ring(self._samples)).add(at, figures)
            by_age = sorted(self._rings, key=lambda key: self._rings[key].last)
            many = max(0, len(by_age) - MAX_STAGES)
            for number, key in enumerate(by_age):
                if number < many or self._rings[key].last < at - self._span:
                    del self._rings[key]

    def series(
        self, start: float, points: int, keys: Iterable[str] | None = None, before: float | None = None
    ) -> dict[str, dict[str, list[Any]]]:
        """The samples after `start`, about `points` a stage: peaks of lag and backlog, means of rates.

        `before`: when the last sample was that is known already, to see a gap behind it.
        """
        with self._lock:
            wanted = [key for key in (self._rings if keys is None else keys) if key in self._rings]
            found = {key: self._rings[key].since(start) for key in wanted}
        return {key: thinned(samples, points, self._every, before) for key, samples in found.items()}


def thinned(
    samples: Mapping[str, list[float]], points: int, every: float, before: float | None
) -> dict[str, list[Any]]:
    """Neighbours drawn together until `points` are left; None where nothing was known or no sample is."""
    step = max(1, math.ceil(len(samples["at"]) / points))
    made: dict[str, list[Any]] = {name: [] for name in samples}
    times, first = samples["at"], 0
    while first < len(times):
        if before is not None and times[first] - before > MISSED * every:
            _add(made, before + every, dict.fromkeys(FIGURES))
        last = first + 1
        while last < min(first + step, len(times)) and times[last] - times[last - 1] <= MISSED * every:
            last += 1
        before = times[last - 1]
        _add(made, before, {name: _drawn(samples[name][first:last], peak=name in _PEAKS) for name in FIGURES})
        first = last
    return made


def _add(made: dict[str, list[Any]], at: float, figures: Mapping[str, float | None]) -> None:
    made["at"].append(round(at, 3))
    for name, value in figures.items():
        made[name].append(value)


def _drawn(group: list[float], *, peak: bool) -> float | None:
    known = [value for value in group if not math.isnan(value)]
    if not known:
        return None
    return round(max(known) if peak else sum(known) / len(known), 6)
