"""The chunks of a round that are piped: how many at once, when another begins, and when none does any more."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from replicat.load.chunk import Copied, Refused
from replicat.load.loadtables import ChunkRow
from replicat.load.streams import Streams
from trails.errors import AwayError
from trails.position import Position

CHUNK = ChunkRow("a", "b", 0)
DONE = Copied(CHUNK, "csn 1", Position(0, 1), 10, 100)


class Tasks:
    """Ten tasks, each a number, and the jobs that were begun for them."""

    def __init__(self) -> None:
        self.begun: list[tuple[Any, Future[list[Any]]]] = []
        self.streams = Streams(self._submit, iter(range(10)), 2)  # type: ignore[arg-type]

    def _submit(self, task: Any) -> Future[list[Any]]:
        job: Future[list[Any]] = Future()
        self.begun.append((task, job))
        return job

    def ends(self, number: int, result: Any, *, more: bool = True) -> list[Any]:
        self.begun[number][1].set_result([result])
        return self.streams.step(0, lambda: more)

    @property
    def numbers(self) -> list[int]:
        return [task for task, _ in self.begun]


def test_another_begins_as_soon_as_one_is_copied():
    tasks = Tasks()
    assert tasks.numbers == [0, 1]
    assert tasks.streams.step(0, lambda: True) == []
    assert tasks.ends(1, DONE) == [DONE]
    assert tasks.numbers == [0, 1, 2], "the first one goes on"
    tasks.ends(2, DONE, more=False)
    assert tasks.numbers == [0, 1, 2], "the round's time is over"
    assert not tasks.streams.over
    tasks.ends(0, DONE, more=False)
    assert tasks.streams.over
    assert tasks.streams.results == [DONE] * 3


def test_none_begins_behind_one_that_went_wrong_and_those_on_their_way_are_waited_for():
    for wrong in (Refused(CHUNK, "duplicate key"), AwayError("the source is away")):
        tasks = Tasks()
        tasks.ends(0, wrong)
        assert (tasks.numbers, tasks.streams.over) == ([0, 1], False)
        tasks.ends(1, DONE)
        assert (tasks.numbers, tasks.streams.over) == ([0, 1], True)
        assert tasks.streams.results == [wrong, DONE]


def test_what_has_not_begun_never_does_once_the_round_is_dropped():
    tasks = Tasks()
    tasks.begun[0][1].set_running_or_notify_cancel()
    tasks.streams.drop()
    assert [job.cancelled() for _, job in tasks.begun] == [False, True]
