"""What a run of the benchmarks was asked to do, and where it puts what it finds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.results import Line, Results
from benchmarks.workloads import WORKLOADS, Workload


@dataclass(slots=True)
class Run:
    """One run: its size, and its results. `peers`: whether they are measured too."""

    results: Results
    runs: int = 3
    scale: float = 1.0
    seconds: float = 30.0
    names: Sequence[str] = ()
    tcp: bool = True
    peers: bool = True
    began: float = field(default_factory=time.monotonic)

    @property
    def workloads(self) -> list[Workload]:
        """The backlog workloads that were chosen, at the size that was chosen."""
        return [w.scaled(self.scale) for w in WORKLOADS if not self.names or w.name in self.names]

    def bar(self, workload: Workload, figure: str, peers: Sequence[float] | None) -> float | None:
        """What is wanted beside the peer's values; of a smaller backlog nothing is, as connecting is most of it."""
        share = workload.share(figure)
        return share * statistics.median(peers) if share is not None and peers and self.scale >= 1 else None

    def say(self, text: str) -> None:
        """A line of progress."""
        print(f"[{time.monotonic() - self.began:6.1f} s] {text}", flush=True)

    def take(self, line: Line) -> None:
        """A figure, told at once."""
        if line.values:
            self.results.add(line)
            self.say(f"{line.benchmark} {line.case}: {line.who}: {line.median:,.4g} {line.what}")

    def interleaved(self, *measures: Callable[[], None]) -> None:
        """Each in turn, as often as there are runs: what changes on the machine meanwhile hits all alike."""
        for _ in range(self.runs):
            for measure in measures:
                measure()
