"""Resident tasks and their driver over real sockets; what Spark would run is a script of each test, on threads."""

from __future__ import annotations

import itertools
import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.patience import PATIENCE, wait_for
from replicat.batches import residents
from replicat.batches.residents import LostError, ResidentJob, Residents, resident_tasks, with_room
from replicat.work import resident
from replicat.work.decode import Task
from replicat.work.orders import Greeting, HungUpError, OrderLink, Says, Summons
from replicat.work.resident import _Task, connected
from tests.support.resident_jobs import Spark, fails, piece, says, stays


def test_each_piece_is_answered_in_its_place(begin: Callable[..., ResidentJob]) -> None:
    """Of more pieces than tasks too, and of one order after the other."""
    job = begin(stays, tasks=3)
    for turn in range(5):
        assert job.ask([piece(n) for n in range(turn * 4)]) == [(n, {}) for n in range(turn * 4)]
    assert not job.lost


def test_several_ask_at_once(begin: Callable[..., ResidentJob]) -> None:
    """Each gets its own answers."""
    job = begin(stays, tasks=2)
    found: dict[int, list[Any]] = {}

    def ask(number: int) -> None:
        found[number] = [job.ask([piece(number)] * 3) for _ in range(20)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [[(number, {})] * 3] * 20 for number in range(4)}


def test_plans_travel_once(begin: Callable[..., ResidentJob], monkeypatch: pytest.MonkeyPatch) -> None:
    """And again where they are others, even if they are equal."""
    sizes: list[int] = []
    send = OrderLink.send

    def measured(self: OrderLink, kind: Says, number: int, data: bytes = b"") -> None:
        if kind is Says.ORDER:
            sizes.append(len(data))
        send(self, kind, number, data)

    monkeypatch.setattr(OrderLink, "send", measured)
    job, columns = begin(stays), {b"t": 3}
    first, second = {b"t": ("plan" * 1000,)}, {b"t": ("plan" * 1000,)}
    for plans in (first, first, second):
        task = Task("dirdat", "rt", b"", (), plans, columns)  # type: ignore[arg-type]
        assert job.ask([task]) == [(0, plans)]
    assert [size > 4000 for size in sizes] == [True, False, True]


@pytest.mark.parametrize("hello", [Greeting(0, 1, 1), Greeting(0, 0, 1)], ids=["again", "twice"])
def test_a_task_that_is_run_again_is_a_loss(begin: Callable[..., ResidentJob], hello: Greeting) -> None:
    """Spark does so where it takes the first one for dead, which may still answer."""
    with pytest.raises(LostError, match=r"Spark runs resident task 0 once more \(attempt [01]\)"):
        begin(says(hello=Greeting(0, 0, 1)), says(hello=hello), tasks=2)


def test_a_job_that_ends_before_all_have_begun_says_why(begin: Callable[..., ResidentJob]) -> None:
    """In the words that Spark has for it."""

    def dies(_call: Summons, _number: int) -> None:
        raise RuntimeError("no worker could be started")

    with pytest.raises(RuntimeError, match="no worker could be started"):
        begin(dies)


def test_tasks_that_never_come_are_given_up(begin: Callable[..., ResidentJob], monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two is there."""
    monkeypatch.setattr(residents, "CALL_SECONDS", 0.3)
    with pytest.raises(LostError, match="1 of 2 resident tasks have begun within"):
        begin(stays, lambda _call, _number: None, tasks=2)


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], "in process 1 has hung up"),
        ([(Says.ANSWER, 2, "x")], "answers order 2, expected 1"),
        ([(Says.ANSWER, 0, "x")], "answers order 0, expected 1"),
        ([(Says.ORDER, 1, "x")], "answers order 1, expected 1"),
        ([(Says.ALIVE, 7, "x")], "answers order 7, expected 1"),
    ],
)
def test_CW_14_only_the_answer_to_the_order_that_is_waited_for_counts(
    begin: Callable[..., ResidentJob], messages: Any, told: str
) -> None:
    """Anything else is a loss, of all tasks: the other one's link is closed too."""
    job = begin(says(*messages), stays, tasks=2)
    with pytest.raises(LostError, match=told):
        job.ask([piece(n) for n in range(9)])
    assert job.lost
    with pytest.raises(LostError):
        job.ask([piece(1)])


def test_what_is_no_message_is_a_loss(begin: Callable[..., ResidentJob]) -> None:
    """Such as one whose kind does not exist."""

    def script(call: Summons, number: int) -> None:
        link = OrderLink(connected(call))
        link.send(Says.HELLO, 0, Greeting(number, 0, 1).packed(call))
        link.receive()
        link.send(9, 1)  # type: ignore[arg-type]
        with pytest.raises(HungUpError):
            link.receive()
        link.close()

    with pytest.raises(LostError, match="says what is no message: 9 is not a valid Says"):
        begin(script).ask([piece(1)])


def test_a_task_that_dies_is_told_in_the_words_of_spark(begin: Callable[..., ResidentJob]) -> None:
    """Which come a moment later than the end of its link."""
    with pytest.raises(RuntimeError, match="the worker has crashed"):
        begin(fails).ask([piece(1)])


def test_a_task_that_is_stopped_is_given_up(begin: Callable[..., ResidentJob], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its link stays open, and says nothing."""
    monkeypatch.setattr(residents, "SILENT_SECONDS", 0.3)

    def stopped(call: Summons, number: int) -> None:
        link = OrderLink(connected(call))
        link.send(Says.HELLO, 0, Greeting(number, 0, 1).packed(call))
        link.receive()
        with pytest.raises(HungUpError):
            link.receive()
        link.close()

    with pytest.raises(LostError, match=r"has said nothing for 0[.]3 seconds"):
        begin(stopped).ask([piece(1)])


def test_a_task_that_works_for_long_says_that_it_is_alive(
    begin: Callable[..., ResidentJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it may take longer than one that is silent."""
    monkeypatch.setattr(residents, "SILENT_SECONDS", 1.0)
    monkeypatch.setattr(resident, "ALIVE_SECONDS", 0.05)
    alive = threading.Event()
    told = itertools.count()
    send = OrderLink.send

    def counted(self: OrderLink, kind: Says, number: int, data: bytes = b"") -> None:
        send(self, kind, number, data)
        if kind is Says.ALIVE and next(told) == 40:  # two seconds
            alive.set()

    def slow(tasks: list[Task]) -> Iterator[Any]:
        assert alive.wait(PATIENCE)
        yield from (task.skip for task in tasks)

    monkeypatch.setattr(OrderLink, "send", counted)
    monkeypatch.setattr(resident, "run_partition", slow)
    assert begin(stays).ask([piece(3)]) == [3]


def test_a_loss_with_nothing_under_way_is_a_new_job(short: Path) -> None:
    """With an address, a run and a secret of its own: nobody of the old one can say hello."""
    spark, there = Spark(stays), Residents.here(1, str(short))
    assert there.ask(spark, [piece(1)]) == [(1, {})]
    old = there._job
    assert old is not None
    assert there.ask(spark, []) == []
    assert there._job is old
    old.hang_up()
    assert there.ask(spark, [piece(2)]) == [(2, {})]
    first, second = spark.calls
    assert len({first.address, second.address}) == len({first.run, second.run}) == 2
    assert first.secret != second.secret
    assert Greeting.unpacked(Greeting(0, 0, 1).packed(first), second) is None
    there.hang_up()
    with pytest.raises(LostError, match="the process ends"):
        there.ask(spark, [])
    for thread in spark.threads:
        thread.join(PATIENCE)


def test_CW_14_an_orphan_answers_nobody(begin: Callable[..., ResidentJob], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its driver has hung up while it worked, and the next one asks the same: it waits for its own task's answer."""
    working, go_on = threading.Event(), threading.Event()
    left: list[int] = []

    def held(tasks: list[Task]) -> Iterator[str]:
        if not working.is_set():
            working.set()
            assert go_on.wait(PATIENCE)
            yield from ("of the orphan" for _ in tasks)
        else:
            yield from ("of its own task" for _ in tasks)

    def orphan(call: Summons, number: int) -> None:
        left.append(_Task(OrderLink(connected(call))).run(Greeting(number, 0, 1).packed(call)))

    monkeypatch.setattr(resident, "run_partition", held)
    old = begin(orphan)

    def ask() -> None:
        with pytest.raises(LostError):
            old.ask([piece(1)])

    asking = threading.Thread(target=ask)
    asking.start()
    assert working.wait(PATIENCE)
    old.hang_up()
    new = begin(stays)
    assert new.ask([piece(1)]) == ["of its own task"]
    go_on.set()
    asking.join(PATIENCE)
    assert new.ask([piece(2)]) == ["of its own task"]
    wait_for(lambda: left == [0], "the orphan to end")


def test_a_task_whose_parent_is_another_answers_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon that Spark's workers are children of is dead, so nobody ends them any more but themselves."""
    parents = iter([1, 2])
    ours, its = socket.socketpair()
    with ours:
        monkeypatch.setattr(os, "getppid", lambda: next(parents))
        ours.sendall(b"")
        link = OrderLink(ours)
        link.send(Says.ORDER, 1, pickle.dumps((piece(1), ({}, {}))))
        assert _Task(OrderLink(its)).run(b"") == 0
        assert link.receive()[0] is Says.HELLO
        with pytest.raises(HungUpError):
            link.receive()


def test_who_has_nobody_to_call_ends(tmp_path: Path) -> None:
    """The driver was gone before the task began."""
    with pytest.raises(OSError, match="No such file"):
        connected(Summons(str(tmp_path / "s")))


@pytest.mark.parametrize(
    ("master", "tasks", "given"),
    [
        ("local", 1, "local[3]"),
        ("local[2]", 2, "local[4]"),
        (" local[4, 3] ", 4, "local[8, 3]"),
        ("local[1]", 1, "local[3]"),
        ("local-cluster[2,1,1024]", 0, "local-cluster[2,1,1024]"),
        ("spark://h:7077", 0, "spark://h:7077"),
        ("yarn", 0, "yarn"),
    ],
)
def test_other_jobs_find_threads_beside_the_tasks_that_stay(master: str, tasks: int, given: str) -> None:
    """Two of them side by side; or as many as tasks stay, where those are more."""
    assert (resident_tasks(master), with_room(master, 2)) == (tasks, given)


def test_all_threads_of_the_host() -> None:
    """As many as it has."""
    count = os.cpu_count() or 1
    assert resident_tasks("local[*]") == count
    assert with_room("local[*]", 2) == f"local[{count + max(count, 2)}]"
