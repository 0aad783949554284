"""For tests of resident tasks: a context of Spark's whose job is a script on threads, and tasks that follow one."""

from __future__ import annotations

import functools
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from replicat.batches.door import Door
from replicat.work.decode import Task
from replicat.work.orders import Greeting, HungUpError, OrderLink, Says, Summons
from replicat.work.resident import _Task, connected

Script = Callable[[Summons, int], object]


class Spark:
    """A context whose job is a script, run for each partition by a thread; the first one that raises fails the job."""

    def __init__(self, *scripts: Script) -> None:
        """Of each partition; the last one is of all further ones."""
        self.calls: list[Summons] = []
        self._scripts = scripts
        self._tasks = 0
        self._told: list[BaseException] = []
        self._over: list[threading.Event] = []
        self.threads: list[threading.Thread] = []

    def parallelize(self, items: Sequence[int], slices: int) -> Spark:
        """As SparkContext has it."""
        assert list(items) == list(range(slices))
        self._tasks = slices
        return self

    def mapPartitions(self, function: functools.partial[Any]) -> Spark:
        """As RDD has it."""
        self.calls.append(function.args[0])
        return self

    def collect(self) -> list[int]:
        """Raises what a partition has."""
        failed, left = threading.Event(), threading.Semaphore(0)
        for number in range(self._tasks):
            script = self._scripts[min(number, len(self._scripts) - 1)]
            thread = threading.Thread(target=self._part, args=(script, number, failed, left), name=f"part-{number}")
            self.threads.append(thread)
            thread.start()
        for _ in range(self._tasks):
            left.acquire()
            if failed.is_set():
                raise self._told[0]
        return []

    def _part(self, script: Script, number: int, failed: threading.Event, left: threading.Semaphore) -> None:
        try:
            script(self.calls[-1], number)
        except Exception as error:  # noqa: BLE001  -- as Spark takes any
            self._told.append(error)
            failed.set()
        left.release()


def stays(call: Summons, number: int) -> None:
    """The product's own task."""
    _Task(OrderLink(connected(call))).run(Greeting(number, 0, os.getpid()).packed(call))


def says(*messages: tuple[Says, int, Any], hello: Greeting | None = None) -> Script:
    """A task that says so of its first order, whatever that is, then hangs up."""

    def script(call: Summons, number: int) -> None:
        link = OrderLink(connected(call))
        link.send(Says.HELLO, 0, (hello or Greeting(number, 0, 1)).packed(call))
        try:
            link.receive()
            for kind, order, value in messages:
                link.send(kind, order, pickle.dumps(value))
        except (HungUpError, OSError):
            pass
        link.shut()
        link.close()

    return script


def fails(call: Summons, number: int) -> None:
    """A task that dies of its first order; it takes as long as Spark does until that is told."""
    says()(call, number)
    raise RuntimeError("the worker has crashed")


def piece(number: int, plans: Any = None) -> Task:
    """An order's work."""
    return Task("dirdat", "rt", b"", (), {} if plans is None else plans, {}, skip=number)


def here(folder: Path) -> Door:
    """For tasks of this host."""
    return Door.here(str(folder))


def abroad(folder: Path) -> Door:
    """For tasks of any host."""
    return Door.abroad(str(folder), "127.0.0.1", "127.0.0.1")
