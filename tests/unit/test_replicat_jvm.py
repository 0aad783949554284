"""What becomes of Spark's JVM that ends, hangs or never begins: always for AUTORESTART, never blamed on an expression.

Another program is in Java's place, and a few objects in that of py4j's gateway; the engine and what asks it are real.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from demo.guard import end_now
from demo.patience import PATIENCE, wait_for
from replicat.apply.discard import Discards
from replicat.batches import engine as engines
from replicat.batches import jvm as jvms
from replicat.batches.engine import SLOW_WORKER, SparkEngine, SparkSettings
from replicat.batches.jvm import Jvm, StopAskedError, within
from replicat.batches.planning import Planning
from replicat.maps.expressions.compiling import Compiler
from replicat.model.programs import Programs
from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from replicat.work.evaluate import MappedJobs, evaluate
from replicat.work.net.part import Part, Unmapped
from replicat.work.sparkparser import SparkSql, failure_of
from tests.support.fake_java import SLEEP, take_its_place
from tests.support.list_target import ListTarget, Store, shape
from tests.support.replicat_lives import REG, TRAIL, trail_with
from tests.support.replicat_trail import InlineEngine, table
from trails.errors import EXIT_AWAY, AnewError, OperatorError
from trails.record import Op
from trails.runtime.language.params import parse_text
from trails.testing import FakeClock

KV = table("s", "kv", "id v", "id")
ENVIRONMENT = ("PYTHONPATH", "PYTHONSAFEPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP")
TASK: Any = SimpleNamespace(plans={}, blocks=())
Made = Callable[..., SparkEngine]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """Makes an engine whose JVM is a shell text; all are closed with the test."""
    for name in ENVIRONMENT:  # the engine sets them for Spark's workers
        monkeypatch.setenv(name, os.environ.get(name, ""))
    found: list[SparkEngine] = []

    def make(jvm: str = SLEEP, is_stopping: Callable[[], bool] = lambda: False, **more: Any) -> SparkEngine:
        folder = tmp_path / str(len(found))
        folder.mkdir()
        monkeypatch.setenv("JAVA_HOME", take_its_place(folder, jvm))
        settings = replace(SparkSettings("test", str(folder / "scratch"), str(folder / "log")), **more)
        found.append(SparkEngine(settings, is_stopping=is_stopping))
        return found[-1]

    yield make
    for engine in found:
        engine.close()


class Refusing:
    """What asks a JVM by py4j, whatever it is: every call of it, and of what it gives, fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


class Job:
    """A SparkContext whose jobs end so: an error, or results."""

    def __init__(self, end: Exception | list[Any]) -> None:
        self._end = end

    def parallelize(self, items: Any, slices: int) -> Job:
        """See SparkContext."""
        return self

    def mapPartitions(self, function: Any) -> Job:
        """See RDD."""
        return self

    def collect(self) -> list[Any]:
        """See RDD."""
        if isinstance(self._end, Exception):
            raise self._end
        return self._end


def with_spark(engine: SparkEngine, context: Any, *, lives: bool) -> SparkEngine:
    """The engine as it is once Spark runs, with a JVM that answers or is gone."""
    settings = engine._settings
    Path(settings.scratch).mkdir(exist_ok=True)
    jvm = Jvm([], settings.scratch, engine._output, settings.log)
    system = SimpleNamespace(currentTimeMillis=lambda: 1)
    jvm.gateway = SimpleNamespace(jvm=SimpleNamespace(System=system), shutdown=lambda: None)
    if not lives:
        end_now(jvm.process.pid)
    engine._jvm, engine._context = jvm, context
    engine._sql = SparkSql(context, check=engine._check)
    engine._sql._session = context
    return engine


def java_error(*chain: str) -> Py4JJavaError:
    """An exception of Java, each cause by "class: message"; its text is that of all of them."""

    def exception(at: int) -> Any:
        name, _, message = chain[at].partition(": ")
        return SimpleNamespace(
            getClass=lambda: SimpleNamespace(getName=lambda: name),
            getMessage=lambda: message,
            getSqlState=lambda: None,
            getCause=lambda: exception(at + 1) if at + 1 < len(chain) else None,
            _target_id="o1",
            _gateway_client=SimpleNamespace(send_command=lambda command: f"ys{'; caused by '.join(chain)}"),
        )

    return Py4JJavaError("An error occurred while calling o1.\n", exception(0))


# --- one that hangs ---------------------------------------------------------------------------------------------------


def test_a_jvm_that_hangs_is_asked_with_a_bound(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an error asks of it does not stand for ever."""
    monkeypatch.setattr(jvms, "GONE_SECONDS", 0.1)
    never = threading.Event()
    engine = with_spark(made(), Job(Py4JNetworkError("words")), lives=True)
    assert engine._jvm is not None
    engine._jvm.gateway.jvm.System.currentTimeMillis = never.wait
    with pytest.raises(AnewError, match="it does not answer"):
        within(PATIENCE, engine._jvm.check)
    never.set()


def test_a_jvm_that_hangs_under_a_job_is_noticed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, so the job and each question to it fail, and say why."""
    monkeypatch.setattr(jvms, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(jvms, "SILENT_SECONDS", 0.1)
    engine = with_spark(made(), Job([]), lives=True)
    assert engine._jvm is not None
    os.killpg(engine._jvm.process.pid, signal.SIGSTOP)
    never, jvm = threading.Event(), engine._jvm
    jvm.gateway.jvm.System.currentTimeMillis = never.wait
    within(PATIENCE, jvm.watch)
    assert jvm.process.poll() == -signal.SIGKILL
    with pytest.raises(AnewError, match=r"has not answered for 0\.1 seconds"):
        jvm.check()
    never.set()


# --- the start --------------------------------------------------------------------------------------------------------


def test_the_jvm_that_was_launched_is_the_one_that_starts(made: Made, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    engine = made(f"echo $$ >> {ran}; exit 3")
    engine.launch()
    with pytest.raises(AnewError, match="Spark does not start: Java ended, exit code 3"):
        engine.start()
    assert len(ran.read_text().split()) == 1


def test_a_jvm_that_was_launched_for_nothing_ends(made: Made, tmp_path: Path) -> None:
    """Something else was found to be wrong, such as the target's password."""
    ran = tmp_path / "ran"
    engine = made(f"echo $$ > {ran}; {SLEEP}")
    engine.launch()
    wait_for(lambda: ran.exists() and ran.read_text(), "the JVM runs")
    engine.close()
    assert engine._jvm is not None
    assert engine._jvm.process.poll() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("jvm", "told"), [("kill -9 $$", "killed by signal 9"), ("exit 0", "exit code 0"), ("exit 1", "exit code 1")]
)
def test_a_jvm_that_ends_while_it_starts_is_started_again(made: Made, jvm: str, told: str):
    """The system's usual moment for killing it. pyspark waits for ever for one that ends with 0."""
    with pytest.raises(AnewError, match=f"Spark does not start: Java ended, {told}") as caught:
        made(jvm).start()
    assert caught.value.exit_code == EXIT_AWAY


def test_a_jvm_that_never_tells_its_port_is_given_up(made: Made, monkeypatch: pytest.MonkeyPatch):
    """A stopped one, or a machine that hangs: the group would be STARTING for ever."""
    monkeypatch.setattr(engines, "START_SECONDS", 0.2)
    engine = made()
    with pytest.raises(AnewError, match=r"Spark does not start: it was not up within 0.2 seconds"):
        engine.start()
    assert engine._jvm is not None
    assert engine._jvm.ended() == "killed by signal 9"


def test_a_stop_ends_the_start_and_all_that_it_runs(made: Made, tmp_path: Path):
    """Also what Spark's start scripts run beside the JVM."""
    begun = tmp_path / "begun"
    engine = made(f"{SLEEP} & echo $! > {begun}.new; mv {begun}.new {begun}; wait", begun.exists)
    engine.start()
    assert engine._context is None
    assert _is_over(int(begun.read_text()))
    with pytest.raises(StopAskedError):
        _ = engine.sql


def _is_over(pid: int) -> bool:
    """Whether a process ends; one that does not is ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], PATIENCE)[0])
    finally:
        os.close(process)
        end_now(pid)


# --- jobs -------------------------------------------------------------------------------------------------------------

GONE = "Spark's JVM is gone: killed by signal 9"


def _by(engine: SparkEngine, how: str) -> Future[list[Any]]:
    jobs: dict[str, Callable[[], Future[Any]]] = {
        "submit": lambda: engine.submit([TASK]),
        "run_all": lambda: engine.run_all(iter, [1]),
    }
    return jobs[how]()


@pytest.mark.parametrize("how", ["submit", "run_all"])
@pytest.mark.parametrize(
    ("end", "told"),
    [
        (UnboundLocalError("sockfile"), "the Spark job failed: sockfile"),
        (EOFError(), "the Spark job failed: EOFError"),
        (Py4JNetworkError("Answer from Java side is empty"), "the Spark job failed: Answer from Java side is empty"),
        ([], "the Spark job failed: (expected 1 results, found 0|the job of resident tasks has ended)"),
    ],
)
def test_a_job_that_ends_before_its_result_is_read(made: Made, how: str, end: Exception | list[Any], told: str):
    """pyspark has an error of its own for that, or a result that is too short; either way it was Spark."""
    with pytest.raises(AnewError, match=told):
        _by(with_spark(made(), Job(end), lives=True), how).result(PATIENCE)
    with pytest.raises(AnewError, match=GONE):
        _by(with_spark(made(), Job(end), lives=False), how).result(PATIENCE)


def test_only_a_living_jvm_makes_an_error_a_bug(made: Made):
    """Any exception of a job whose JVM is gone is a lost Spark."""
    with pytest.raises(TypeError, match="ours"):
        with_spark(made(), Job(TypeError("ours")), lives=True).submit([TASK]).result(PATIENCE)
    with pytest.raises(AnewError, match=GONE):
        with_spark(made(), Job(TypeError("ours")), lives=False).submit([TASK]).result(PATIENCE)


SLOW = java_error(
    "org.apache.spark.SparkException: Job aborted due to stage failure",
    f"org.apache.spark.SparkException: {SLOW_WORKER}.",
    "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back",
)


def test_a_worker_that_begins_too_late_is_nobodys_fault(made: Made):
    """Spark has its own limit of ten seconds for it: a busy machine, and neither a bug nor an expression."""
    assert failure_of(SLOW) is None
    engine = with_spark(made(), Job(SLOW), lives=True)
    with pytest.raises(AnewError, match="a Python worker did not begin within the seconds that Spark gives it"):
        engine.submit([TASK]).result(PATIENCE)


@pytest.mark.parametrize("lives", [True, False])
def test_mapped_jobs_are_no_other(made: Made, lives: bool):
    """Their results are read in the same way. An expression that fails on a row is told by a living JVM alone."""
    engine = with_spark(made(), Job([]), lives=lives)
    engine._last = (TASK.plans, MappedJobs(engine.sql, Programs([])))
    engine.sql._session = SimpleNamespace(
        sparkContext=SimpleNamespace(setLocalProperty=lambda name, value: None),
        range=lambda *args: Refusing(java_error("java.lang.ArithmeticException: / by zero")),
    )
    job = engine.submit([TASK])
    if lives:
        (unmapped,) = job.result(PATIENCE)
        assert isinstance(unmapped, Unmapped)
        assert (unmapped.sqlstate, unmapped.message) == ("22000", "ArithmeticException: / by zero")
    else:
        with pytest.raises(AnewError, match=GONE):
            job.result(PATIENCE)


# --- expressions ------------------------------------------------------------------------------------------------------

BROKEN = Py4JNetworkError("Answer from Java side is empty")


def test_an_expression_is_not_to_blame_for_a_jvm_that_is_gone(made: Made):
    """It is, where Spark lives and refuses it."""
    living = with_spark(made(), Refusing(java_error("java.lang.StackOverflowError: deep")), lives=True)
    with pytest.raises(OperatorError, match=r"rep1.prm:7: COLMAP x: upper\(v\): An error occurred"):
        Compiler(living.sql, KV).slot("upper(v)", "rep1.prm:7", "COLMAP x")
    gone = with_spark(made(), Refusing(BROKEN), lives=False)
    with pytest.raises(AnewError, match=GONE):
        Compiler(gone.sql, KV).slot("upper(v)", "rep1.prm:7", "COLMAP x")
    for ask in (
        lambda: gone.sql.names("v"),
        lambda: gone.sql.spans("v"),
        lambda: gone.sql.analysed("v", [("v", "STRING")]),
        lambda: evaluate(gone.sql, Programs([]), []),
    ):
        with pytest.raises(AnewError, match=GONE):
            ask()


def test_rows_that_spark_cannot_evaluate_for_no_fault_of_theirs(made: Made):
    """The ladder asks by hand: what is no expression's failure is for a new process, not a bug."""
    living = with_spark(made(), Refusing(java_error("java.lang.OutOfMemoryError: Java heap space")), lives=True)
    with pytest.raises(AnewError, match="Spark can't evaluate expressions"):
        evaluate(living.sql, Programs([]), [])


def test_a_plan_is_not_to_blame_either(made: Made):
    """It is not kept as one that fails at the table's first change."""
    gone = with_spark(made(), Refusing(BROKEN), lives=False)
    text = "REPLICAT rep1\nTARGETDB postgresql://x/y\nMAP s.kv, TARGET s.kv, COLMAP (USEDEFAULTS, v = upper(v));\n"
    params = ReplicatParams.from_statements(parse_text(text, "rep1.prm"))
    planning = Planning(params, ListTarget(Store(), [shape("s", "kv", "id v")]), lambda: gone.sql)
    with pytest.raises(AnewError, match=GONE):
        planning.plans({KV.id: KV})


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), (("spark.ui.enabled", "true"),)])
def test_a_jvm_that_is_stopped_is_ended_without_being_asked(
    made: Made, monkeypatch: pytest.MonkeyPatch, options: tuple[tuple[str, str], ...]
):
    """It would answer nothing. One with options is asked first, for a bounded time."""
    monkeypatch.setattr(engines, "STOP_SECONDS", 0.2)
    engine = with_spark(made(options=options), Job([]), lives=True)
    assert engine._jvm is not None
    process = engine._jvm.process
    process.send_signal(signal.SIGSTOP)
    for place, name in (
        (engine._context, "cancelAllJobs"),
        (engine._context, "stop"),
        (engine._jvm.gateway, "shutdown"),
    ):
        setattr(place, name, process.wait)  # as a call of py4j has no end while the JVM is stopped
    engine.close()
    assert process.returncode == -signal.SIGKILL


class Hanging(InlineEngine):
    """An engine whose JVM is stopped: a job ends when the JVM is ended."""

    def __init__(self) -> None:
        super().__init__()
        self.job: Future[list[Part | Unmapped]] = Future()

    def submit(self, tasks: Any) -> Future[list[Part | Unmapped]]:
        self.job.set_running_or_notify_cancel()
        return self.job

    def close(self) -> None:
        self.job.set_exception(AnewError(GONE))


def test_a_stop_does_not_wait_for_a_job_that_never_ends():
    """Nothing of it counts any more, and a stopped JVM ends none."""
    fs = trail_with(lambda feed: feed.tx((Op.INSERT, KV, ["1", "a"])) and None)
    text = "REPLICAT rep1\nTARGETDB postgresql://x/y\nMAP s.*, TARGET s.*;\n"
    params = ReplicatParams.from_statements(parse_text(text, "rep1.prm"))
    process = Replicat(
        params, REG, TRAIL, fs=fs, clock=FakeClock(), target=ListTarget(Store(), [shape("s", "kv", "id v")]),
        engine=Hanging(), note=lambda text: None, discards=Discards("REP1", params.error_rules),
    )  # fmt: skip
    process.step()
    assert process._pipeline_now.busy
    within(PATIENCE, process.close)
