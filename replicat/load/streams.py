"""The chunks of a round that are piped: so many at once, and the next one begins as soon as one is copied.

Rule: each chunk is a job of its own, so nobody waits for the slowest. All of a round see what the round began with:
its fence, and what their snapshots must see; both hold until the round is over, as no batch is applied meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from replicat.load.chunk import Copied
from replicat.load.piping import PipeTask

Submit = Callable[[PipeTask], Future[list[Any]]]


class Streams:
    """Some chunks on their way. `results`: what came of those that are over."""

    def __init__(self, submit: Submit, tasks: Iterator[PipeTask], at_once: int) -> None:
        """Begin the first ones."""
        self.results: list[Any] = []
        self._submit = submit
        self._tasks = tasks
        self._running: list[Future[list[Any]]] = []
        self._fill(at_once)

    def step(self, seconds: float, more: Callable[[], bool]) -> list[Any]:
        """What came within a moment. As many as that begin anew while all goes well and `more` says so."""
        wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED)
        done = [one for one in self._running if one.done()]
        self._running = [one for one in self._running if not one.done()]
        came = [result for one in done for result in one.result()]
        self.results += came
        if done and all(isinstance(one, Copied) for one in self.results) and more():
            self._fill(len(done))
        return came

    @property
    def over(self) -> bool:
        """Whether none is on its way."""
        return not self._running

    def drop(self) -> None:
        """Those that have not begun never do. The others find at their commit whether they still count."""
        for one in self._running:
            one.cancel()

    def _fill(self, number: int) -> None:
        for _, task in zip(range(number), self._tasks, strict=False):
            self._running.append(self._submit(task))
