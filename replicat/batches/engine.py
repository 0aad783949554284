"""Where tasks are decoded: a Spark context that lives as long as the process.

A batch goes as orders to the tasks of one long job, which stay (residents.py): a job costs 20 to 45 ms of CPU, however
small it is. Where expressions are evaluated, or workers are elsewhere to which nothing goes sealed, a batch is a job.

Rule: nothing counts but what a job returns, or a resident task answers to the order that is waited for.
Spark's JVM reads our pipe: it ends when this process does, however that ends, and its Python workers end with it.
A job that fails, or gives too few results, is tried again by a new process (AnewError), never by a person.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, Any, Protocol, TypeVar

from replicat.batches.classes import ClassArchive
from replicat.batches.door import seals
from replicat.batches.jvm import Jvm, StopAskedError, within
from replicat.batches.residents import LostError, Residents, resident_tasks, with_room
from replicat.maps.expressions.compiling import Sql
from replicat.model.loading import LoadAgainError
from replicat.model.plan import Plans
from replicat.model.programs import programs_of
from replicat.params import DEFAULT_MASTER, DEFAULT_SPARK_MEGABYTES
from replicat.work.decode import Evaluated, Task, run_partition
from replicat.work.evaluate import EvaluatedRows, EvaluationError, MappedJobs, warm
from replicat.work.net.part import Part, Unmapped
from replicat.work.sparkparser import SparkSql
from trails import kernels
from trails.errors import AnewError, GateError, OperatorError
from trails.fs import NO_SPACE, Fs
from trails.runtime.masking import mask

T = TypeVar("T")

# At the same time; the next ones wait. One alone leaves cores idle at its begin and end.
JOBS = 2
# Each job's result comes through a socket file that the JVM would remember for ever.
FORGET_JOBS = 1000
# Far more than Spark ever takes to be up: a JVM that hangs is given up then, and AUTORESTART has its turn.
START_SECONDS = 300.0
# So long a Spark that is not all ours may take to stop in order.
STOP_SECONDS = 30.0
# And the one that leaves the archive of its classes.
CLASSES_SECONDS = 20.0
# What Spark says where a Python worker took longer to begin than the 10 seconds (a daemon's: 60) that it has for it.
SLOW_WORKER = "Python worker failed to connect back"
DEAD_WORKER = "Python worker exited unexpectedly"
JAVA_HINT = "Install a Java runtime, 17 or newer (apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
_ELSEWHERE = {
    "spark.task.maxFailures": "1",  # as on this host: what has failed is begun again from the row
    "spark.scheduler.minRegisteredResourcesRatio": "1",  # half of the slots is known once all executors are there
}
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.append = true
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


class Engine(Protocol):
    """Runs jobs, some at the same time, begun in the order in which they were submitted."""

    @property
    def sql(self) -> Sql | None:
        """Spark's parser and analyser; None where expressions can't be evaluated."""

    def submit(self, tasks: Sequence[Task]) -> Future[list[Part | Unmapped]]:
        """Start a job; its result has a part for each task, in their order.

        Where an expression fails on some row, nobody knows yet which, each of them is an Unmapped; where a task has a
        change of which no row can be made, its own is.
        """

    def run_all(self, function: Callable[[Iterable[Any]], Iterator[Any]], items: Sequence[Any]) -> Future[list[Any]]:
        """Start a job with a task for each item; `function` is for mapPartitions, and gives a result for each item."""

    def evaluate(self, task: Task, fs: Fs | None = None) -> Evaluated:
        """The task's evaluations, those that fail among them: for the ladder."""

    def close(self) -> None:
        """End everything."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """`scratch` is a private folder that is emptied at start; `log` takes what Spark says.

    `warm`: run a job before the first one; who only asks Spark's analyser saves the seconds. `encrypted`: the trail is,
    so what Spark writes there is too, under a key that it makes for itself. `jobs`: how many run at the same time.
    `lock`: the descriptor that locks `scratch`, which the JVM holds too (scratch.py); -1 for none. `classes`: the
    home's archive of Spark's classes, if it may have one.
    """

    name: str
    scratch: str
    log: str
    master: str = DEFAULT_MASTER
    megabytes: int = DEFAULT_SPARK_MEGABYTES
    options: tuple[tuple[str, str], ...] = field(default=())
    warm: bool = True
    encrypted: bool = False
    jobs: int = JOBS
    lock: int = -1
    classes: ClassArchive | None = None

    @property
    def local(self) -> bool:
        """Whether workers share this machine's memory and disks."""
        return self.master.startswith("local")


class SparkEngine:
    """Spark as the Engine. It runs from start() on, or from the first question or job: until then it costs nothing."""

    def __init__(
        self,
        settings: SparkSettings,
        release: Callable[[], None] = lambda: None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`release` is called when the scratch folder is no longer used. `is_stopping`: whether the process is asked
        to stop; then nobody waits until Spark is up.
        """
        self._settings = settings
        self._release = release
        self._is_stopping = is_stopping
        self._closed = False
        _need_java()
        _empty(settings.scratch)
        self._output = _output(settings.log)
        self._jobs = 0
        self._mapped: MappedJobs | None = None
        self._last: tuple[Plans | None, MappedJobs | None] = (None, None)
        """The plans of the last job, and what evaluates their expressions, if there are any."""
        self._pool = ThreadPoolExecutor(max_workers=settings.jobs, thread_name_prefix="spark")
        self._residents = _residents(settings)
        self._starting = threading.Lock()
        self._planning = threading.Lock()
        self._jvm: Jvm | None = None
        self._options: dict[str, str] = {}
        self._context: Any = None
        self._sql: SparkSql | None = None
        self._warmed = False

    def launch(self) -> None:
        """Start its JVM, which takes a second or two until it answers: start() goes on from there."""
        with self._starting, self._explained():
            self._launched()

    def start(self) -> None:
        """Start Spark, and run a first job, so that the first batch finds everything warm.

        Not where Spark was asked about expressions before: then it is at that already, in their own way.
        Where the process is asked to stop meanwhile it comes back at once: nobody needs Spark any more.
        """
        with contextlib.suppress(StopAskedError):
            self._up()
            if self._settings.warm and not self._warmed:
                self._awaited(lambda: self._run([]))

    @property
    def sql(self) -> SparkSql:
        return self._up()

    def submit(self, tasks: Sequence[Task]) -> Future[list[Part | Unmapped]]:
        return self._pool.submit(self._run, tasks)

    def run_all(self, function: Callable[[Iterable[Any]], Iterator[Any]], items: Sequence[Any]) -> Future[list[Any]]:
        return self._pool.submit(self._run_all, function, items)

    def _run_all(self, function: Callable[[Iterable[Any]], Iterator[Any]], items: Sequence[Any]) -> list[Any]:
        self._up()
        self._count_job()
        try:
            results = list(self._context.parallelize(list(items), len(items)).mapPartitions(function).collect())
        except Exception as error:  # Spark's own errors share no base
            self._tell(error)
            raise
        if len(results) != len(items):
            self._tell(_too_few(results, items))
        return results

    def _tell(self, error: Exception) -> None:
        """Why a job failed: AnewError if Spark is gone, or if it may be Spark's; any other error is a bug of ours."""
        self._check()
        if _is_of_spark(error):
            raise AnewError(f"the Spark job failed: {_cause(error)}", hint=f"See {self._settings.log}") from error

    def _check(self) -> None:
        """Raise AnewError if Spark is gone: then that is why, whatever seems to be wrong."""
        if self._jvm is not None:
            self._jvm.check()

    def evaluate(self, task: Task, fs: Fs | None = None) -> Evaluated:
        return EvaluatedRows(self.sql, task, fs)

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._residents is not None:
            self._residents.hang_up()
        if self._jvm is not None:
            if self._is_all_ours:
                self._hush()
            else:
                self._stop_in_order(self._jvm)
            self._leave_classes(self._jvm)
            self._jvm.kill()
        self._pool.shutdown(wait=True)
        self._output.close()
        shutil.rmtree(self._settings.scratch, ignore_errors=True)
        self._release()

    def _leave_classes(self, jvm: Jvm) -> None:
        """The first JVM of a home ends in order, as only so it leaves the archive of its classes."""
        classes = self._settings.classes
        if classes is None or self._context is None or classes.path:
            return
        jvm.leave(CLASSES_SECONDS)
        if jvm.process.poll() == 0:
            classes.keep()
        else:  # it may have left a part, on a disk that is full
            classes.forget(keep=classes.path)

    def _hush(self) -> None:
        """The server of pyspark would print to the terminal that its JVM is gone."""
        with contextlib.suppress(Exception):  # it is not there yet, or another pyspark has none
            self._context._accumulatorServer.handle_error = lambda *_: None  # noqa: SLF001

    def _stop_in_order(self, jvm: Jvm) -> None:
        """What of Spark is elsewhere learns that it is over, and what options have at its end is done, in good time."""
        with contextlib.suppress(Exception):  # what a Spark says that is gone or hangs does not matter now
            within(STOP_SECONDS, self._stop)
            jvm.leave(10)

    def _stop(self) -> None:
        self._context.cancelAllJobs()
        self._pool.shutdown(wait=True)
        self._context.stop()

    @property
    def _is_all_ours(self) -> bool:
        """Whether Spark may end by SIGKILL: nothing of it is elsewhere, and no option has work left at its end."""
        return self._settings.local and not self._settings.options

    def _up(self) -> SparkSql:
        """Spark runs."""
        with self._starting:
            if self._sql is None:
                self._context = self._start()
                self._sql = SparkSql(self._context, self._warm, self._check)
            return self._sql

    def _run(self, tasks: Sequence[Task]) -> list[Part | Unmapped]:
        """One job, or orders. No tasks: whoever will run some is begun, with our modules loaded there."""
        sql = self._sql or self._up()
        plans, mapped = self._last
        if tasks and tasks[0].plans is not plans:
            mapped = self._mapped_of(sql, tasks[0].plans)
        try:
            results = self._results(tasks, mapped if tasks else None)
        except EvaluationError as error:
            return [Unmapped(*error.failure)] * len(tasks)
        except LostError as error:
            self._check()
            raise AnewError(f"the Spark job failed: {error}", hint=f"See {self._settings.log}") from error
        except GateError:
            raise
        except Exception as error:  # Spark's own errors share no base
            self._tell(error)
            raise
        if len(results) != len(tasks):
            self._tell(_too_few(results, tasks))
        for result in results:
            if isinstance(result, GateError | LoadAgainError):
                raise result
        return results

    def _results(self, tasks: Sequence[Task], mapped: MappedJobs | None) -> list[Any]:
        """What each task came to, an expected error among them."""
        if mapped is None and self._residents is not None:
            answers = self._residents.ask(self._context, tasks)
            if answers is not None:
                return answers
        self._count_job()
        if mapped is not None:
            return mapped.run(tasks)
        return list(self._context.parallelize(list(tasks), max(1, len(tasks))).mapPartitions(run_partition).collect())

    def _warm(self) -> None:
        """There will be expressions: be ready for them before the first batch comes, which may be a large one."""
        if self._settings.warm:
            self._warmed = True
            self._pool.submit(warm, self.sql, JOBS)  # if that fails, so does the first batch, and tells it

    def _mapped_of(self, sql: SparkSql, plans: Plans) -> MappedJobs | None:
        """What runs tasks of these plans if they evaluate anything. Jobs of the same plans ask once."""
        with self._planning:
            programs = programs_of(plans)
            if programs and (self._mapped is None or self._mapped.programs != programs):
                self._mapped = MappedJobs(sql, programs)
            self._last = plans, self._mapped if programs else None
            return self._last[1]

    def _count_job(self) -> None:
        self._jobs += 1
        if self._jobs % FORGET_JOBS == 0:
            self._forget_sockets()

    def _forget_sockets(self) -> None:
        """Empty the JVM's list of files to delete at its exit: `close` removes the whole folder anyway."""
        with contextlib.suppress(Exception):  # another Java may not let us: then it grows by some 200 bytes a job
            java = self._context._jvm.java  # noqa: SLF001
            hook = java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
            hook.setAccessible(True)
            hook.get(None).clear()

    def _start(self) -> Any:
        """The SparkContext of its JVM."""
        if self._is_unwanted():
            raise StopAskedError("a stop is asked for")
        with self._explained():
            jvm = self._launched()
            context = self._awaited(lambda: _context_in(jvm, self._options))
            threading.Thread(target=jvm.watch, name="spark-watch", daemon=True).start()
            return context

    def _launched(self) -> Jvm:
        if self._jvm is None:
            _prepare_environment()
            self._options = spark_options(self._settings)
            held = [self._settings.lock] if self._settings.lock >= 0 else []
            self._jvm = Jvm(
                on_command_line(self._options), self._settings.scratch, self._output, self._settings.log, held
            )
        return self._jvm

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Why Spark does not start: AnewError, in one line."""
        try:
            yield
        except (StopAskedError, AnewError):
            raise
        except Exception as error:  # Spark's own errors share no base
            ended = self._jvm.ended() if self._jvm is not None else ""
            if ended and self._settings.classes is not None:
                self._settings.classes.forget()  # it may have died of them
            why = f"Java ended, {ended}" if ended else _text(error).split("\n", 1)[0]
            # A JVM that was killed looks like one that Java refuses to start: AUTORESTART's limit parts the two.
            raise AnewError(
                f"Spark does not start: {why}", hint=f"See {self._settings.log}; check SPARKMASTER and Java"
            ) from error

    def _is_unwanted(self) -> bool:
        return self._closed or self._is_stopping()

    def _awaited(self, work: Callable[[], T]) -> T:
        """What belongs to the start: it has a limit, and a stop ends it. Then the JVM's time is over too."""
        try:
            return within(START_SECONDS, work, self._is_unwanted)
        except (TimeoutError, StopAskedError) as error:
            if self._jvm is not None:
                self._jvm.kill()
            if isinstance(error, StopAskedError):
                raise
            raise AnewError(
                f"Spark does not start: it was not up within {START_SECONDS:g} seconds",
                hint=f"See {self._settings.log}",
            ) from error


def _residents(settings: SparkSettings) -> Residents | None:
    """Where tasks can stay: on this host; on others, if Spark seals what it tells them."""
    if tasks := resident_tasks(settings.master):
        return Residents.here(tasks, settings.scratch)
    return Residents.abroad(settings.scratch) if seals(settings.options) else None


def _context_in(jvm: Jvm, options: dict[str, str]) -> Any:
    from pyspark import SparkConf, SparkContext

    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    return SparkContext(gateway=jvm.connect(), conf=conf)


def _prepare_environment() -> None:
    """What Spark's Python workers need to find this very program: they are started by the JVM."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path))
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # or Spark asks the resolver for this host's name


def spark_options(settings: SparkSettings) -> dict[str, str]:
    """Spark's settings: small jobs, quickly, on little memory. Unix sockets alone take a small job from 64 to 17 ms."""
    log4j = os.path.join(settings.scratch, "log4j2.properties")
    with open(log4j, "w", encoding="utf-8") as file:
        file.write(_LOG4J.format(log=settings.log))
    return {
        "spark.master": with_room(settings.master, settings.jobs),
        "spark.app.name": settings.name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ui.retainedExecutions": "3",  # kept even without a UI, each with its whole plan
        "spark.sql.maxPlanStringLength": "2000",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.worker.reuse": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.locality.wait": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Or every account of this host could talk to the driver's ports. The secret is made by Spark, in memory.
        **({"spark.authenticate": "true"} if settings.local else {}),
        **({} if settings.local else _ELSEWHERE),
        **({f"spark.executorEnv.{kernels.SWITCH}": kernels.OFF} if kernels.are_off() else {}),
        # Executors elsewhere may get our package with the first task only.
        **({"spark.python.daemon.module": "replicat.work.sparkdaemon"} if settings.local else {}),
        **({"spark.io.encryption.enabled": "true"} if settings.encrypted else {}),
        "spark.driver.memory": f"{settings.megabytes}m",
        "spark.driver.maxResultSize": "0",
        "spark.local.dir": settings.scratch,
        # A heap that begins small: by itself it begins at a 64th of the machine's memory, and all of that is touched.
        "spark.driver.extraJavaOptions": "-Xms48m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=128m "
        "-XX:-UsePerfData "  # a file in /tmp, which SIGKILL would leave there
        f"-Xshare:auto {settings.classes.option if settings.classes else ''} "
        f"-XX:ErrorFile={settings.scratch}/java-crash.log "  # else in the folder where the process stands
        f"-Djava.io.tmpdir={settings.scratch} -Dlog4j2.configurationFile=file:{log4j}",
        **dict(settings.options),
    }


def on_command_line(options: dict[str, str]) -> list[tuple[str, str]]:
    """What the JVM is started with. Command lines are for all to see, so secrets follow when it runs."""
    return [(name, value) for name, value in options.items() if mask(f"{name}=x") == f"{name}=x"]


def _output(path: str) -> IO[bytes]:
    """What the JVM says, until close(); on a full disk nowhere."""
    try:
        return open(path, "ab")
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        return open(os.devnull, "ab")


def _empty(folder: str) -> None:
    """Make the folder, or remove what is in it. The folder itself stays: its owner has locked it (scratch.py)."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.path.islink(folder) or os.stat(folder).st_uid != os.geteuid():
        raise OperatorError(f"{folder} belongs to another account, or is a link", hint="Remove it, then START")
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not shutil.which(os.path.join(home, "bin", "java") if home else "java"):
        raise OperatorError(f"no Java found{f' in JAVA_HOME {home}' if home else ''}: Spark needs it", hint=JAVA_HINT)


def _too_few(results: Sequence[Any], tasks: Sequence[Any]) -> EOFError:
    """A result that breaks off is for pyspark one that is shorter."""
    return EOFError(f"expected {len(tasks)} results, found {len(results)}")


def _is_of_spark(error: BaseException) -> bool:
    """Whether an error of a job may be Spark's, and so another one's next time; any other is a bug of ours.

    UnboundLocalError: pyspark's own, where it could not connect to read a result.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, (Py4JError, PySparkException, OSError, EOFError, UnboundLocalError))


def _cause(error: BaseException) -> str:
    """What a worker died of, out of the pages that Spark writes about it: the last line of Python's own traceback."""
    if isinstance(error, UnboundLocalError) and error.__context__ is not None:
        error = error.__context__
    text = _text(error)
    if SLOW_WORKER in text:
        return "a Python worker did not begin within the seconds that Spark gives it, as this host is busy"
    if DEAD_WORKER in text:
        return "a Python worker was killed, or has crashed"
    if "Traceback (most recent call last)" in text:
        traceback = text.rpartition("Traceback (most recent call last)")[2].splitlines()[1:]
        for line in traceback:
            if line.strip() and not line.startswith((" ", "\t")):
                return line.strip()
    return text.split("\n", 1)[0]


def _text(error: BaseException) -> str:
    with contextlib.suppress(Exception):  # Java's errors ask the JVM for their text, and it may go just now
        return str(error).strip() or type(error).__name__
    return type(error).__name__
