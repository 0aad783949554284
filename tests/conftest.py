"""Fixtures of all tests: real servers, databases of their own, no network where none belongs, nothing left running."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from demo import pipeline
from demo.embedded import BASE_PREFIX, BASES, ServerError, processes_in
from demo.mariadb import MariaServer
from demo.mysql import MysqlServer
from demo.mysqld import Mysqld
from demo.patience import PATIENCE
from demo.servers import PostgresServer
from ggsci import admin
from replicat.batches.scratch import sweep
from tests.support.mysql_place import Place, made
from tests.support.packed import ThroughKernel
from tests.support.pipelines import QUICKLY
from tests.support.spark_archive import share_classes
from tests.support.warm_ggsci import WarmGgsci
from trails.errors import LockedError

TESTS = Path(__file__).parent
OFFLINE = tuple(TESTS / name for name in ("unit", "property", "fault", "compat"))
MARKER = "TRAILGATE_TEST_RUN"
_numbers = itertools.count(1)

# Tests start hundreds of processes: they load bytecode, also where the machine is told to keep none. To compile this
# project anew takes each of them as long as all else that it does at its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
gc.disable()  # until all tests are collected

# Servers and homes of pipelines are in memory where there is enough of it. They sync as ever, and tests kill processes,
# not the machine: a new database takes a tenth of the time.
_MEMORY, _ENOUGH = "/dev/shm", 4 << 30
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ENOUGH:
    os.environ.setdefault(BASES, _MEMORY)

# How long an example, or making it, takes says nothing on a loaded machine. And no change is to fail by what was drawn
# for the first time: who looks for new examples says --hypothesis-profile=drawn.
_UNTIMED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("drawn", deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("same", settings.get_profile("drawn"), derandomize=True)
settings.load_profile("same")


# --- the order --------------------------------------------------------------------------------------------------------

LONGEST_FIRST = (
    "spark", "pipeline-bad", "pipeline-kill", "pipeline-recovery", "test_target_mysql", "readme", "test_mysql_source",
    "pipeline-demo", "test_link_refusals", "test_types_conformance", "own-database", "test_world",
    "test_source_outages", "test_initial_load", "test_mysql_values", "test_recovery_sources",
    "test_mysql_source_checks", "test_manager_processes", "test_paused_tables", "test_mysql_source_lasting",
    "test_load_tasks", "test_target_row", "test_any_bytes", "test_replicat_errors", "test_full_disk",
    "pipeline-layouts", "test_cuts", "test_initial_load_waits", "test_runtime_losses", "test_lost_peers",
    "test_compact_replay", "test_source_places", "test_mysql_source_ddl", "test_replicat_apply", "test_compare",
    "test_runtime_processes", "test_world_can_fail", "test_link_crashes", "test_extract_postgres",
    "test_replicat_ddl", "siege", "pipeline-secrets", "pipeline-binlog", "web",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file is a group, so that what its tests share is made once; what takes longest comes first, so that none of
    it is left over at the end.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=_group_rank)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected stays. A group that is not held together makes its servers and pipelines once in each process:
    nobody would notice.
    """
    gc.collect()
    gc.freeze()  # thousands of tests and what they import, through which every collection would go
    gc.enable()
    if session.config.getoption("loadgroup", None) is not True:
        return
    for item in session.items:
        if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
            raise pytest.UsageError(f"pytest-xdist ignores the groups of tests with pytest {pytest.__version__}")


def _group_rank(item: pytest.Item) -> int:
    marker = item.get_closest_marker("xdist_group")
    assert marker is not None
    group = marker.args[0]
    return LONGEST_FIRST.index(group) if group in LONGEST_FIRST else len(LONGEST_FIRST)


# --- nothing left running -------------------------------------------------------------------------------------------


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _is_own_spark(pid: int) -> bool:
    """Spark's JVM and its Python workers end with the test process, not with the session."""
    spark = False
    while pid > 1:
        if pid == os.getpid():
            return spark
        spark = spark or "org.apache.spark" in _command(pid)
        pid = _parent(pid)
    return False


def _leftovers(run: str) -> list[int]:
    """Processes that this run started: known by their environment, servers (who overwrite it) by their directory."""
    needle = f"{MARKER}={run}".encode()
    pids = {int(entry.name) for entry in Path("/proc").glob("[0-9]*")} - {os.getpid()}
    marked = {pid for pid in pids if needle in _environment(pid)}
    for base in {Path(tempfile.gettempdir()), Path("/tmp"), Path(_MEMORY)}:
        for directory in base.glob(f"{BASE_PREFIX}{os.getpid()}-*"):
            marked.update(processes_in(directory))
    return sorted(pid for pid in marked if _command(pid) and not _is_own_spark(pid))


@pytest.fixture(scope="session", autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Each process that a test starts must be gone when the session ends; what is left is named, and killed."""
    run = uuid.uuid4().hex
    os.environ[MARKER] = run
    yield
    deadline = time.monotonic() + PATIENCE
    while (left := _leftovers(run)) and time.monotonic() < deadline:
        time.sleep(0.05)
    names = [f"{pid}: {_command(pid)}" for pid in left]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    sweep()  # folders in memory of Replicats that tests killed
    assert not names, "tests left processes running:\n" + "\n".join(names)


@pytest.fixture(scope="session", autouse=True)
def ggsci_is_warm(nothing_left_running: None) -> Iterator[None]:
    """Pipelines' commands run in children of a process that has loaded ggsci."""
    warm = WarmGgsci()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "ggsci_process", warm.run)
        yield
    warm.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A lock that nobody should hold: who has its file open? A child that was just forked has all that we have."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, LockedError):
        path = str(call.excinfo.value).partition(": held by")[0]
        report.sections.append(("who has it open", "\n".join(_who_has(path)) or "nobody any more"))
    return report


def _who_has(path: str) -> Iterator[str]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(os.readlink(one) == path for one in (entry / "fd").iterdir()):
                yield f"{entry.name}, child of {_parent(int(entry.name))}: {_command(int(entry.name))}"


@pytest.fixture(autouse=True)
def a_run_of_ggsci(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that works in databases is one run of ggsci, as far as it gives commands in its own process."""
    if any(request.path.is_relative_to(folder) for folder in OFFLINE):
        yield
        return
    with admin.kept():
        yield


@pytest.fixture(autouse=True)
def no_batch_gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever steps a Replicat by hand finds nothing left behind a step that did nothing. Processes do gather."""
    monkeypatch.setattr("replicat.batches.pipeline.MOST_GATHER_SECONDS", 0.0)


@pytest.fixture(params=["plain", "kernel"])
def either_form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a module whose tests make a Decoder: each runs with the plain form, and with the compiled one."""
    if request.param == "kernel":
        monkeypatch.setattr(request.module, "Decoder", ThroughKernel)


# --- no network, no database where none belongs ---------------------------------------------------------------------


def _is_local(family: int, address: Any) -> bool:
    if family == socket.AF_UNIX:
        return True
    host = address[0] if isinstance(address, tuple) else address
    return host == "localhost" or str(host).startswith("127.") or host == "::1"


def _guarded(original: Callable[..., Any]) -> Callable[..., Any]:
    def connect(self: socket.socket, address: Any) -> Any:
        if not _is_local(self.family, address):
            raise RuntimeError(f"a test of this folder must not use the network: {address}")
        return original(self, address)

    return connect


def _no_database(*args: object, **kwargs: object) -> NoReturn:
    raise RuntimeError("a test of this folder must not use a database")


class _NoPGconn:
    connect = connect_start = ping = staticmethod(_no_database)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tests under OFFLINE, with their fixtures, can't reach a network or a database by mistake.

    A hook and not a fixture: hypothesis refuses fixtures that are made once per test, not per example.
    Tests of Spark, and what they start, share an archive of classes: made here, outside of any test's time.
    """
    if item.get_closest_marker("spark"):
        share_classes()
    if not any(item.path.is_relative_to(folder) for folder in OFFLINE):
        return (yield)
    import psycopg

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", _guarded(socket.socket.connect))
        patch.setattr(socket.socket, "connect_ex", _guarded(socket.socket.connect_ex))
        patch.setattr(psycopg, "connect", _no_database)
        patch.setattr(psycopg.Connection, "connect", _no_database)
        patch.setattr(psycopg.AsyncConnection, "connect", _no_database)
        patch.setattr(psycopg.pq, "PGconn", _NoPGconn)
        return (yield)


# --- real servers ---------------------------------------------------------------------------------------------------


_LITTLE_LOG = {"max_wal_size": "256MB"}  # it may be in memory


@pytest.fixture(scope="session")
def postgres16() -> Iterator[PostgresServer]:
    """A PostgreSQL 16 for all tests of this worker."""
    with PostgresServer(version=16, options=_LITTLE_LOG, tcp=True) as server:
        yield server


@pytest.fixture(scope="session")
def postgres18() -> Iterator[PostgresServer]:
    """A PostgreSQL 18 for all tests of this worker."""
    with PostgresServer(version=18, options=_LITTLE_LOG, tcp=True) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_plain() -> Iterator[PostgresServer]:
    """A PostgreSQL without logical decoding, for all tests of this worker."""
    options = {"wal_level": "replica", "max_replication_slots": 0, "max_wal_senders": 0}
    with PostgresServer(version=16, tcp=True, options=options) as server:
        yield server


@pytest.fixture
def plain_db(postgres_plain: PostgresServer) -> Iterator[str]:
    """The URL of a new empty database without logical decoding, dropped after the test."""
    yield from _own_database(postgres_plain, "plain")


@pytest.fixture(scope="session")
def pg_source(postgres16: PostgresServer) -> PostgresServer:
    """The server of source databases."""
    return postgres16


@pytest.fixture(scope="session")
def pg_target(postgres18: PostgresServer) -> PostgresServer:
    """The server of target databases: another version, so that the path crosses them."""
    return postgres18


def _own_database(server: PostgresServer, prefix: str) -> Iterator[str]:
    server.start()  # a test may have killed it
    name = f"{prefix}{next(_numbers)}"
    server.sql(f"CREATE DATABASE {name} {QUICKLY}")
    yield server.url(name)
    server.start()
    _drop_slots(server, name)
    server.sql(f"DROP DATABASE {name} WITH (FORCE)")


def _drop_slots(server: PostgresServer, database: str) -> None:
    """A slot in use can't be dropped, and its walsender may take a moment to end."""
    deadline = time.monotonic() + PATIENCE
    where = f"WHERE database = '{database}'"
    while server.sql(f"SELECT 1 FROM pg_replication_slots {where}"):
        server.sql(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots {where} AND active")
        server.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots {where} AND NOT active")
        assert time.monotonic() < deadline, f"slots of {database} stay in use"


@pytest.fixture
def source_db(pg_source: PostgresServer) -> Iterator[str]:
    """The URL of a new empty source database, dropped with its slots after the test."""
    yield from _own_database(pg_source, "source")


@pytest.fixture
def target_db(pg_target: PostgresServer) -> Iterator[str]:
    """The URL of a new empty target database, dropped after the test."""
    yield from _own_database(pg_target, "target")


# They do not wait for the disk: tests kill the server, not the machine.
_KILLED_ONLY: dict[str, object] = {"innodb-flush-method": "nosync"}


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaServer]:
    """A MariaDB for all tests of this worker; where none is installed they fail with one line that says what to do."""
    with MariaServer(options=_KILLED_ONLY) as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[MysqlServer]:
    """A MySQL for all tests of this worker; where none can be had they are skipped, and the end of the run says so."""
    yield from _mysql(_KILLED_ONLY)


@pytest.fixture(scope="session")
def mariadb_source() -> Iterator[MariaServer]:
    """A MariaDB with a binary log, for all tests of this worker."""
    with MariaServer(options=MariaServer.BINLOG | _KILLED_ONLY) as server:
        yield server


@pytest.fixture(scope="session")
def mysql_source() -> Iterator[MysqlServer]:
    """A MySQL with a binary log, for all tests of this worker; skipped as `mysql` is."""
    yield from _mysql(MysqlServer.BINLOG | _KILLED_ONLY)


@pytest.fixture(
    scope="session", params=[MariaServer, pytest.param(MysqlServer, marks=pytest.mark.soak)], ids=["mariadb", "mysql"]
)
def own_mysql(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A MariaDB or MySQL with a binary log whose settings a test may change; its next one sets them right again."""
    with made(request.param) as found:
        yield found


def _mysql(options: dict[str, object]) -> Iterator[MysqlServer]:
    try:
        MysqlServer.find_server()
    except ServerError as error:
        pytest.skip(f"NO MYSQL: {error}")
    with MysqlServer(options=options) as server:
        yield server


@pytest.fixture
def maria_db(mariadb: MariaServer) -> Iterator[str]:
    """The name of a new empty MariaDB database, dropped after the test."""
    yield from _own_schema(mariadb)


@pytest.fixture
def mysql_db(mysql: MysqlServer) -> Iterator[str]:
    """The name of a new empty MySQL database, dropped after the test."""
    yield from _own_schema(mysql)


@pytest.fixture
def mariadb_source_db(mariadb_source: MariaServer) -> Iterator[str]:
    """The name of a new empty database of the MariaDB with a binary log."""
    yield from _own_schema(mariadb_source)


@pytest.fixture
def mysql_source_db(mysql_source: MysqlServer) -> Iterator[str]:
    """The name of a new empty database of the MySQL with a binary log."""
    yield from _own_schema(mysql_source)


def _own_schema(server: Mysqld) -> Iterator[str]:
    server.start()  # a test may have killed it
    name = f"target{next(_numbers)}"
    server.sql(f"CREATE DATABASE {name}")
    yield name
    server.start()
    server.sql(f"DROP DATABASE {name}")


# --- Spark ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def spark_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One engine for the session, for tests of xdist group "spark": a start takes seconds, and a process has one."""
    from replicat.batches.engine import SparkEngine, SparkSettings

    folder = tmp_path_factory.mktemp("engine")
    made = SparkEngine(SparkSettings("test", str(folder / "scratch"), str(folder / "spark.log")))
    made.start()
    yield made
    made.close()
