"""One long Spark job of resident tasks: they take orders one after the other, so that none costs a job.

    down     before the first order, and after a loss with nothing under way
    calling  the job is submitted; each task connects and says who it is
    ready    each task has a link; an order goes to one that is free
    lost     something of the job is gone: all links are closed, and what was under way has failed

Rule: a resident job lives and dies as one, and nothing is repaired inside it. What failed has failed as a job of Spark
fails: the process ends (exit code 3), and the checkpoint row decides. Address, run and secret are new for each job, so
nobody of another one can say hello.

On a cluster half of Spark's slots stay ours, over TLS, where Spark itself seals what it sends (door.py). An executor
that is asked to go waits for such a job, and one that has come later has no task of it: so it lasts an hour.
"""

from __future__ import annotations

import functools
import math
import os
import pickle
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from replicat.batches.door import Door
from replicat.work.decode import Task
from replicat.work.orders import Greeting, HungUpError, Kept, OrderLink, Says, Summons
from replicat.work.resident import serve
from trails.controlflow import ControlFlowError

HELLO_SECONDS = 5.0
"""So long one that has connected may take to say who it is."""
CALL_SECONDS = 120.0
"""And all tasks together to connect: Spark gives a worker's start 60 s."""
SILENT_SECONDS = 60.0
"""A task that works says so each 5 s (orders.ALIVE_SECONDS). One that is stopped shows no other sign."""
CAUSE_SECONDS = 5.0
"""So long Spark may take to tell why a job has failed of which a link has closed."""
LIFE_SECONDS = 3600.0
"""Of a job whose tasks are elsewhere."""
MOST_AT_THE_DOOR = 200
"""So many may be about to say who they are; whoever comes then is sent away."""
_MASTER = re.compile(r"local(\[(?P<threads>\*|\d+)(?P<rest>\s*,\s*\d+)?\])?")


def resident_tasks(master: str) -> int:
    """How many tasks stay: as many as the master has threads; 0 where workers are elsewhere."""
    found = _MASTER.fullmatch(master.strip())
    if found is None:
        return 0
    threads = found["threads"] or "1"
    return (os.cpu_count() or 1) if threads == "*" else int(threads)


def with_room(master: str, jobs: int) -> str:
    """The master with threads for resident tasks and for as many of other jobs: those would else never begin."""
    found, tasks = _MASTER.fullmatch(master.strip()), resident_tasks(master)
    return master if found is None or not tasks else f"local[{tasks + max(tasks, jobs)}{found['rest'] or ''}]"


class LostError(ControlFlowError):
    """Something of the job is gone."""


class ResidentJob:
    """A job, from its submission to its end."""

    def __init__(self, context: Any, tasks: int, door: Door) -> None:
        """Begin it. `context`: Spark's. `door`: made for this job; it is closed when all have come in.

        Raises LostError, and what Spark fails with.
        """
        self._context = context
        self._tasks = tasks
        self.begun = time.monotonic()
        self._links: dict[int, _Ordered] = {}
        self._free: queue.SimpleQueue[_Ordered] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(max_workers=tasks, thread_name_prefix="resident")
        self._why: BaseException | None = None  # in Spark's words
        self._first: LostError | None = None  # that was lost: all others are, because of it
        self._lost = threading.Event()
        self._ended = threading.Event()
        self._meeting = threading.Lock()
        try:
            threading.Thread(target=self._run, args=(door.call,), name="resident-job", daemon=True).start()
            self._gather(door)
        except BaseException:
            self.hang_up()
            raise
        finally:
            door.close()
        for link in self._links.values():
            self._free.put(link)

    @property
    def lost(self) -> bool:
        """Whether it takes no more orders."""
        return self._lost.is_set()

    @property
    def pids(self) -> list[int]:
        """The tasks' processes; none where it is lost."""
        return [] if self.lost else [link.pid for link in list(self._links.values())]

    def ask(self, tasks: Sequence[Task]) -> list[Any]:
        """What each came to, in their order. Raises as __init__ does."""
        if len(tasks) == 1:
            return [self._ask(tasks[0])]
        try:
            asked = [self._pool.submit(self._ask, task) for task in tasks]
        except RuntimeError:  # nobody is there to ask any more: it was lost just now
            raise self._cause() from None
        return [one.result() for one in asked]

    def hang_up(self) -> None:
        """Nothing counts any more that a task of the job does; they end, and the job with them."""
        self._lost.set()
        for link in list(self._links.values()):
            link.hang_up()
        self._pool.shutdown(wait=False)

    # The job

    def _run(self, call: Summons) -> None:
        """The job's own thread; it lasts as long as the job."""
        try:
            rows = self._context.parallelize(range(self._tasks), self._tasks)
            rows.mapPartitions(functools.partial(serve, call)).collect()
        except BaseException as error:  # noqa: BLE001  -- it is raised by who waits for an order
            self._why = error
        finally:
            self._ended.set()
            self.hang_up()

    def _gather(self, door: Door) -> None:
        """A link of each task. Who is slow to say who it is keeps nobody else waiting."""
        until, at_door = time.monotonic() + CALL_SECONDS, _AtTheDoor()
        try:
            while len(self._links) < self._tasks:
                at_door.send_away(HELLO_SECONDS)
                if self.lost:
                    raise self._cause()
                if time.monotonic() > until:
                    raise LostError(
                        f"{len(self._links)} of {self._tasks} resident tasks have begun within {CALL_SECONDS:g} seconds"
                    )
                try:
                    end = door.accept()
                except TimeoutError:
                    continue
                threading.Thread(target=self._take, args=(door, end, at_door), name="hello", daemon=True).start()
        finally:
            at_door.close()
        if self.lost:
            raise self._cause()

    def _take(self, door: Door, end: socket.socket, at_door: _AtTheDoor) -> None:
        """Whoever has connected: a task that was called, or nobody."""
        try:
            end = door.welcome(end, HELLO_SECONDS)
        except OSError:  # it has gone again
            end.close()
            return
        link = _Ordered(end)
        with at_door.waits(end) as may_come:
            hello = link.hello(door.call) if may_come else None
        if hello is None:
            link.hang_up()
            return
        with self._meeting:
            again = hello.attempt > 0 or hello.partition in self._links
            if not again:
                self._links[hello.partition] = link
        if again:
            self._first = LostError(f"Spark runs resident task {hello.partition} once more (attempt {hello.attempt})")
            self.hang_up()
        if self.lost:  # perhaps just now, by who did not know this link
            link.hang_up()

    # Orders

    def _ask(self, task: Task) -> Any:
        link = self._free.get()
        try:
            return link.ask(task)
        except LostError as error:
            self._first = self._first or error
            self.hang_up()
            raise self._cause() from error
        finally:
            self._free.put(link)

    def _cause(self) -> BaseException:
        """What Spark says of the loss, where that comes in time; else what was seen first."""
        self._ended.wait(CAUSE_SECONDS)
        return self._why or self._first or LostError("the job of resident tasks has ended")


class _Ordered:
    """The driver's end of a link: one order is under way at a time, and only the answer to that one counts."""

    def __init__(self, end: socket.socket) -> None:
        self.pid = 0
        """Of the task's process, once it has said who it is."""
        self._link = OrderLink(end)
        self._asking = threading.Lock()
        self._number = 0
        self._kept: Kept | None = None

    def hello(self, call: Summons) -> Greeting | None:
        """Who it is; None for a stranger."""
        hello = self._link.hello(call)
        self._link.wait_at_most(SILENT_SECONDS)
        self.pid = hello.pid if hello else 0
        return hello

    def ask(self, task: Task) -> Any:
        """What the task came to. Raises LostError."""
        with self._asking:
            self._number += 1
            order = self._order(task)
            try:
                self._link.send(Says.ORDER, self._number, order)
            except OSError as error:
                raise self._lost(f"takes no order: {error}") from None
            kind = Says.ALIVE
            while kind is not Says.ANSWER:
                kind, data = self._said()
        return pickle.loads(data)

    def hang_up(self) -> None:
        """Whoever waits at either end learns it. It is closed with nobody in it: its number may be another's then."""
        self._link.shut()
        with self._asking:
            self._link.close()

    def _order(self, task: Task) -> bytes:
        """Plans and columns travel where the link had others before."""
        kept = task.plans, task.columns
        known = self._kept is not None and all(one is other for one, other in zip(kept, self._kept, strict=True))
        self._kept = kept
        return pickle.dumps((replace(task, plans={}, columns={}), None if known else kept), pickle.HIGHEST_PROTOCOL)

    def _said(self) -> tuple[Says, bytes]:
        """What the task says of the order: that it is alive, or the answer."""
        try:
            kind, number, data = self._link.receive()
        except TimeoutError:
            raise self._lost(f"has said nothing for {SILENT_SECONDS:g} seconds") from None
        except (HungUpError, OSError) as error:
            raise self._lost(f"has hung up: {error}") from None
        except ValueError as error:
            raise self._lost(f"says what is no message: {error}") from None
        if number != self._number or kind not in (Says.ANSWER, Says.ALIVE):
            raise self._lost(f"answers order {number}, expected {self._number}")
        return kind, data

    def _lost(self, what: str) -> LostError:
        return LostError(f"the resident task in process {self.pid} {what}")


class _AtTheDoor:
    """Who has connected and has not yet said who it is."""

    def __init__(self) -> None:
        self._since: dict[socket.socket, float] = {}
        self._closed = False

    @contextmanager
    def waits(self, end: socket.socket) -> Iterator[bool]:
        """One of them, meanwhile; False if there are too many, or nobody is awaited any more."""
        self._since[end] = time.monotonic()
        try:
            yield not self._closed and len(self._since) <= MOST_AT_THE_DOOR
        finally:
            del self._since[end]

    def send_away(self, seconds: float) -> None:
        """Who has been here for so long: a byte now and then keeps nobody here."""
        for end, since in list(self._since.items()):
            if time.monotonic() >= since + seconds:
                with suppress(OSError):  # it has gone by itself
                    socket.socket.shutdown(end, socket.SHUT_RDWR)

    def close(self) -> None:
        """All who are awaited have come, or none will."""
        self._closed = True
        self.send_away(0)


def _half_of_the_slots(context: Any) -> int:
    """Of Spark's executors, once those have come that it expects."""
    from py4j.protocol import Py4JError

    context.parallelize([0], 1).count()
    spark = context._jsc.sc()  # noqa: SLF001
    try:
        return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile())) // 2
    except Py4JError:  # another Spark, whose inner parts have other names: each batch is a job
        return 0


class Residents:
    """The resident job there is: a new one where that was lost with nothing under way, or has lasted its time."""

    def __init__(self, tasks: Callable[[Any], int], door: Callable[[Any], Door], life: float = math.inf) -> None:
        """`tasks`, `door`: of a new job, by Spark's context. `life`: of a job, in seconds."""
        self._tasks = tasks
        self._door = door
        self._life = life
        self._beginning = threading.Lock()
        self._job: ResidentJob | None = None
        self._asking = 0
        self._full_until = -math.inf
        self._closed = False

    @classmethod
    def here(cls, tasks: int, folder: str) -> Residents:
        """So many on this host. `folder`: private."""
        return cls(lambda _: tasks, lambda _: Door.here(folder))

    @classmethod
    def abroad(cls, folder: str) -> Residents:
        """On Spark's executors: half of the slots that there are; the others are for other jobs."""

        def door(context: Any) -> Door:
            conf = context.getConf()
            return Door.abroad(folder, conf.get("spark.driver.host"), conf.get("spark.driver.bindAddress"))

        return cls(_half_of_the_slots, door, LIFE_SECONDS)

    def ask(self, context: Any, tasks: Sequence[Task]) -> list[Any] | None:
        """What each came to, in their order; None where Spark has no room for tasks that stay.

        Raises as ResidentJob does.
        """
        with self._beginning:
            job = self._job
            if job is None or job.lost or (not self._asking and time.monotonic() > job.begun + self._life):
                job = self._job = self._next(context, job)
            self._asking += 1
        try:
            return job.ask(tasks) if job is not None else None
        finally:
            with self._beginning:
                self._asking -= 1

    def _next(self, context: Any, last: ResidentJob | None) -> ResidentJob | None:
        if last is not None:
            last.hang_up()
        if self._closed:
            raise LostError("the process ends")
        if time.monotonic() < self._full_until:
            return None
        if count := self._tasks(context):
            return ResidentJob(context, count, self._door(context))
        self._full_until = time.monotonic() + self._life
        return None

    @property
    def pids(self) -> list[int]:
        """The tasks' processes."""
        return self._job.pids if self._job is not None else []

    def hang_up(self) -> None:
        """The tasks end, and no more of them begin. A job that is just begun ends with its JVM."""
        self._closed = True
        if self._job is not None:
            self._job.hang_up()
