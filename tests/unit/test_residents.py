"""Resident tasks and their driver over real sockets; what Spark would run is a script of each test, on threads."""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo.patience import PATIENCE, wait_for
from replicat.batches import residents
from replicat.batches.door import Door, seals
from replicat.batches.residents import LostError, ResidentJob, Residents, resident_tasks, with_room
from replicat.work import resident
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


@pytest.fixture(autouse=True)
def _decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a piece comes to."""
    monkeypatch.setattr(resident, "run_partition", lambda tasks: ((task.skip, dict(task.plans)) for task in tasks))
    monkeypatch.setattr(residents, "CAUSE_SECONDS", 0.5)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="tgr-") as made:
        yield Path(made)


def here(folder: Path) -> Door:
    """For tasks of this host."""
    return Door.here(str(folder))


def abroad(folder: Path) -> Door:
    """For tasks of any host."""
    return Door.abroad(str(folder), "127.0.0.1", "127.0.0.1")


@pytest.fixture(params=[here, abroad])
def begin(short: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., ResidentJob]]:
    """Begins jobs; nothing of them is left afterwards."""
    made: list[tuple[ResidentJob | None, Spark]] = []
    before = set(threading.enumerate())

    def begun(*scripts: Script, tasks: int = 1) -> ResidentJob:
        spark = Spark(*scripts)
        made.append((None, spark))
        job = ResidentJob(spark, tasks, request.param(short))
        made[-1] = job, spark
        return job

    yield begun
    for job, spark in made:
        if job is not None:
            job.hang_up()
        for thread in spark.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
    wait_for(lambda: not set(threading.enumerate()) - before, "threads to end")
    assert list(short.iterdir()) == []


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


def test_a_stranger_is_hung_up_on(begin: Callable[..., ResidentJob]) -> None:
    """Noise, a greeting too long, another run's secret, nothing at all: the tasks that were called come in beside."""

    def crowd(call: Summons, number: int) -> None:
        hello = Greeting(number, 0, 1)
        others = Summons(call.address).run, Summons(call.address).secret
        wrong = [replace(call, run=others[0]), replace(call, secret=others[1])]
        frames = [b"", b"\0" * 13, b"\xff" * 4000, os.urandom(100)]
        for sent in frames:
            with connected(call) as end:
                end.sendall(sent)
                socket.socket.shutdown(end, socket.SHUT_WR)
                with suppress(OSError):  # what it has not read is thrown away
                    assert end.recv(1) == b""
        for one in wrong:
            link = OrderLink(connected(call))
            link.send(Says.HELLO, 0, hello.packed(one))
            with pytest.raises((HungUpError, OSError)):
                link.receive()
            link.close()
        stays(call, number)

    assert begin(crowd).ask([piece(7)]) == [(7, {})]


def test_no_stranger_keeps_a_task_waiting(begin: Callable[..., ResidentJob], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that speaks another language, one that says nothing, one that says a byte now and then: who was called comes
    in beside, and each of them is sent away.
    """
    monkeypatch.setattr(residents, "HELLO_SECONDS", 0.4)
    over: list[int] = []

    def crowd(call: Summons, number: int) -> None:
        silent, noisy, slow = (stranger(call) for _ in range(3))
        noisy.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(OSError, match=r"reset|Broken pipe|aborted"):
            drip(slow, first_words(call))
        link = OrderLink(connected(call))
        link.send(Says.HELLO, 0, Greeting(number, 0, 1).packed(call))
        assert link.receive()[0] is Says.ORDER
        for end in (silent, noisy, slow):
            with suppress(OSError):
                while end.recv(100):
                    pass
            end.close()
            over.append(1)
        link.send(Says.ANSWER, 1, pickle.dumps("done"))
        with pytest.raises(HungUpError):
            link.receive()
        link.close()

    assert begin(crowd).ask([piece(1)]) == ["done"]
    assert len(over) == 3


def test_who_is_still_at_the_door_when_all_have_come_is_sent_away(
    begin: Callable[..., ResidentJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before its time to say hello is over."""
    monkeypatch.setattr(residents, "HELLO_SECONDS", 10 * PATIENCE)
    left: list[socket.socket] = []

    def beside(call: Summons, number: int) -> None:
        left.append(stranger(call))
        stays(call, number)

    assert begin(beside).ask([piece(1)]) == [(1, {})]
    (end,) = left
    end.settimeout(PATIENCE)
    with suppress(ConnectionResetError):
        assert end.recv(1) == b""
    end.close()


def stranger(call: Summons) -> socket.socket:
    """Who has connected, and says nothing yet."""
    host, _, port = call.address.rpartition(":")
    end = socket.socket(socket.AF_INET if call.certificate else socket.AF_UNIX)
    end.connect((host, int(port)) if call.certificate else call.address)
    return end


def drip(end: socket.socket, words: bytes) -> None:
    """A byte now and then, for half a minute and longer."""
    for byte in words:
        end.sendall(bytes([byte]))
        time.sleep(0.1)


def first_words(call: Summons) -> bytes:
    """What begins as a task's own words do: TLS's, or a head."""
    if not call.certificate:
        return b"\x01" + bytes(4) + (66).to_bytes(8, "big") + bytes(300)
    said = ssl.MemoryBIO()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    with suppress(ssl.SSLWantReadError):
        tls.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()


def test_a_task_calls_nobody_else(short: Path) -> None:
    """Who has another certificate, at the same address, hears nothing of the secret."""
    ours, other = abroad(short), abroad(short)
    heard: list[object] = []

    def come() -> socket.socket | None:
        try:
            return other.accept()
        except TimeoutError:
            return None

    def answer() -> None:
        with suppress(ssl.SSLError):
            heard.append(other.welcome(wait_for(come), PATIENCE).recv(1))

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            connected(replace(other.call, certificate=ours.call.certificate))
    finally:
        thread.join(PATIENCE)
        ours.close()
        other.close()
    assert heard == []
    assert list(short.iterdir()) == []


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


class Cluster(Spark):
    """Where executors have so many slots."""

    def __init__(self, slots: int) -> None:
        super().__init__(stays)
        self.slots = slots
        self.looks = 0
        self._jsc = self

    def sc(self) -> Cluster:
        """As Spark's own context has the rest."""
        return self

    def resourceProfileManager(self) -> Cluster:
        return self

    def defaultResourceProfile(self) -> str:
        return "default"

    def maxNumConcurrentTasks(self, profile: str) -> int:
        assert profile == "default"
        self.looks += 1
        return self.slots

    def count(self) -> int:
        """Of the job that comes before the look."""
        return 1

    def getConf(self) -> dict[str, str]:
        return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@pytest.mark.parametrize(("slots", "tasks"), [(1, 0), (2, 1), (3, 1), (8, 4)])
def test_half_of_a_cluster_is_left_to_other_jobs(short: Path, slots: int, tasks: int) -> None:
    """With one slot no task stays, or nothing else would ever run; that is looked at once in a job's life."""
    spark, there = Cluster(slots), Residents.abroad(str(short))
    for _ in range(2):
        assert there.ask(spark, [piece(1)]) == ([(1, {})] if tasks else None)
    assert len(there.pids) == tasks
    assert spark.looks == 1
    there.hang_up()
    for thread in spark.threads:
        thread.join(PATIENCE)


def test_a_job_elsewhere_lasts_its_time(short: Path) -> None:
    """Never while somebody waits for an answer of it; the next one counts the slots anew."""
    spark = Cluster(2)
    there = Residents(lambda _: 1, lambda _: abroad(short), life=0.0)
    answers = [there.ask(spark, [piece(n)]) for n in range(3)]
    assert answers == [[(n, {})] for n in range(3)]
    assert len(spark.calls) == 3
    there._asking += 1
    job = there._job
    assert there.ask(spark, [piece(4)]) == [(4, {})]
    assert there._job is job
    there.hang_up()
    for thread in spark.threads:
        thread.join(PATIENCE)


@pytest.mark.parametrize(
    ("options", "sealed"),
    [
        ({}, False),
        ({"spark.authenticate": "true"}, False),
        ({"spark.network.crypto.enabled": "true"}, False),
        ({"spark.authenticate": "true", "spark.network.crypto.enabled": "false"}, False),
        ({"spark.authenticate": "TRUE ", "spark.network.crypto.enabled": "true"}, True),
        ({"spark.authenticate": "true", "spark.ssl.rpc.enabled": "true"}, True),
    ],
)
def test_a_secret_travels_only_in_a_spark_that_seals(options: dict[str, str], sealed: bool) -> None:
    """Whoever reads it could give answers."""
    assert seals(options.items()) is sealed
