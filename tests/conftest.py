"""Fixtures of all tests: real servers, databases of their own, no network where none belongs, nothing left running."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from demo.embedded import BASE_PREFIX, processes_in
from demo.mariadb import MariaServer
from demo.servers import PostgresServer
from replicat.scratch import sweep
from tests.support.spark_archive import share_classes

TESTS = Path(__file__).parent
OFFLINE = tuple(TESTS / name for name in ("unit", "property", "fault", "compat"))
MARKER = "TRAILGATE_TEST_RUN"
_numbers = itertools.count(1)

# How long an example, or making it, takes says nothing on a loaded machine.
settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("untimed")


# --- the order --------------------------------------------------------------------------------------------------------

LONGEST_FIRST = ("pipeline-kill", "spark", "pipeline-bad", "pipeline-demo", "pipeline-hosts", "pipeline-secrets", "web")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups that one process must run from end to end come first, so that none is left over at the end."""
    items.sort(key=_group_rank)


def _group_rank(item: pytest.Item) -> int:
    marker = item.get_closest_marker("xdist_group")
    group = marker.args[0] if marker else ""
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
    for base in {Path(tempfile.gettempdir()), Path("/tmp")}:
        for directory in base.glob(f"{BASE_PREFIX}{os.getpid()}-*"):
            marked.update(processes_in(directory))
    return sorted(pid for pid in marked if _command(pid) and not _is_own_spark(pid))


@pytest.fixture(scope="session", autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Each process that a test starts must be gone when the session ends; what is left is named, and killed."""
    run = uuid.uuid4().hex
    os.environ[MARKER] = run
    yield
    deadline = time.monotonic() + 60
    while (left := _leftovers(run)) and time.monotonic() < deadline:
        time.sleep(0.05)
    names = [f"{pid}: {_command(pid)}" for pid in left]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    sweep()  # folders in memory of Replicats that tests killed
    assert not names, "tests left processes running:\n" + "\n".join(names)


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


@pytest.fixture(scope="session")
def postgres16() -> Iterator[PostgresServer]:
    """A PostgreSQL 16 for all tests of this worker."""
    with PostgresServer(version=16, tcp=True) as server:
        yield server


@pytest.fixture(scope="session")
def postgres18() -> Iterator[PostgresServer]:
    """A PostgreSQL 18 for all tests of this worker."""
    with PostgresServer(version=18, tcp=True) as server:
        yield server


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
    server.sql(f"CREATE DATABASE {name}")
    yield server.url(name)
    server.start()
    _drop_slots(server, name)
    server.sql(f"DROP DATABASE {name} WITH (FORCE)")


def _drop_slots(server: PostgresServer, database: str) -> None:
    """A slot in use can't be dropped, and its walsender may take a moment to end."""
    deadline = time.monotonic() + 60
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


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaServer]:
    """A MariaDB for all tests of this worker; where none is installed they fail with one line that says what to do.

    It does not wait for the disk: tests kill the server, not the machine.
    """
    with MariaServer(options={"innodb-flush-method": "nosync"}) as server:
        yield server


@pytest.fixture
def maria_db(mariadb: MariaServer) -> Iterator[str]:
    """The name of a new empty MariaDB database, dropped after the test."""
    mariadb.start()  # a test may have killed it
    name = f"target{next(_numbers)}"
    mariadb.sql(f"CREATE DATABASE {name}")
    yield name
    mariadb.start()
    mariadb.sql(f"DROP DATABASE {name}")


# --- Spark ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def spark_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One engine for the session, for tests of xdist group "spark": a start takes seconds, and a process has one."""
    from replicat.engine import SparkEngine, SparkSettings

    folder = tmp_path_factory.mktemp("engine")
    made = SparkEngine(SparkSettings("test", str(folder / "scratch"), str(folder / "spark.log")))
    made.start()
    yield made
    made.close()
