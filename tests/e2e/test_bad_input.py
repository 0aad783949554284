"""What people, disks and servers do wrong, against real processes.

Each case: the group ends with one clear message that names the thing, with a fitting exit code (2 somebody must act, 3
something is away), nothing is lost, and after the cause is mended START goes on: every row is compared.
There is no AUTORESTART here, so what ends stays down until START. Replicat runs without Spark, which has no part in any
of this, so that its starts cost a second (tests/support/sparkless.py).
"""

from __future__ import annotations

import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from demo.embedded import processes_in
from demo.patience import PATIENCE, wait_for
from demo.pipeline import Host, Options, Pipeline
from demo.servers import PostgresServer
from demo.workload import large_transaction
from tests.support import sparkless
from tests.support.pipelines import DISK, Rig, remount, rig
from trails.fs import RealFs
from trails.position import TrailName
from trails.reader import BlockReader

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.xdist_group("pipeline-bad")]

OPERATOR, AWAY = 2, 3
ROWS = 400


@pytest.fixture(scope="module")
def shared(postgres16: PostgresServer, postgres18: PostgresServer) -> Iterator[Rig]:
    """One pipeline for this file; what goes away is given up soon."""
    options = Options(
        megabytes=20,
        extract=["RECONNECTSECS 1"],
        pump=["PASSTHRU", "RETRYSECS 300"],
        replicat=["RECONNECTSECS 1"],
        restart_seconds=None,
        checkpoint_seconds=1,
        environment=sparkless.ENVIRONMENT,
    )
    with rig(postgres16, postgres18, options) as made:
        made.pipeline.start()
        arrive(made.pipeline, made.pipeline.target, "rt")  # every group has a checkpoint, every trail its writer
        yield made


@pytest.fixture
def running(shared: Rig) -> Rig:
    """The pipeline with everything running, its parameter files right."""
    shared.pipeline.write_params()
    shared.pipeline.start()
    return shared


@pytest.fixture
def resting(shared: Rig) -> Rig:
    """The same, but for Replicat: the test starts it."""
    pipeline = shared.pipeline
    pipeline.write_params()
    pipeline.start()
    stop(pipeline.target, "REP1")
    return shared


@pytest.fixture
def pipeline(running: Rig) -> Pipeline:
    """The running pipeline alone."""
    return running.pipeline


def change(pipeline: Pipeline) -> None:
    """Something to replicate."""
    large_transaction(pipeline.source_url, ROWS)


def arrive(pipeline: Pipeline, host: Host, prefix: str) -> None:
    """A transaction stands in this host's trail, with its COMMIT: a Replicat may leave one without unread."""
    before = _transactions(host, prefix)
    change(pipeline)
    wait_for(lambda: _transactions(host, prefix) > before, pipeline.state)


def _transactions(host: Host, prefix: str) -> int:
    """How many have ended in a trail, by the headers of its blocks."""
    reader = BlockReader(RealFs(), TrailName.parse(f"./dirdat/{prefix}", str(host.home)))
    with closing(reader):
        return sum(block.header.transactions for block in iter(lambda: reader.read(payload=False), None))


def stop(host: Host, *groups: str) -> None:
    """Stop groups in order."""
    host.run(*[f"STOP {group}" for group in groups])


def abends(pipeline: Pipeline, host: Host, group: str, code: int, *words: str) -> str:
    """Wait until the group is down; its message, which is one line, no trace, and holds all `words`."""
    row = pipeline.wait_status(host, group, "ABENDED")
    message = str(row["message"])
    assert row["exit_code"] == code, f"{row['exit_code']}: {message}"
    assert "\n" not in message.strip()
    assert "Traceback" not in message
    assert "bug in" not in message
    missing = [word for word in words if word.lower() not in message.lower()]
    assert not missing, f"{missing} not in: {message}"
    return message


def fails_to_start(pipeline: Pipeline, host: Host, group: str, code: int, *words: str) -> str:
    """START tells at once why it did not work, in the same words as INFO."""
    result = host.run(f"START {group}", check=False)
    message = abends(pipeline, host, group, code, *words)
    assert result.code == 1, result.text
    assert message in result.text
    return message


def goes_on(running: Rig, host: Host, *groups: str) -> None:
    """After the cause is mended START goes on, and nothing is lost or doubled."""
    host.run(*[f"START {group}" for group in groups])
    running.pipeline.wait_running()
    change(running.pipeline)
    running.ends_equal()


# --- damaged, truncated, foreign and newer files --------------------------------------------------------------------


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _newer(data: bytes, _at: int) -> bytes:
    return data[:8] + b"\x00\x63" + data[10:]


Damage = tuple[str, Callable[[bytes, int], bytes], tuple[str, ...]]
DAMAGES: list[Damage] = [
    ("flipped", _flip, ("damaged", "expected", "found")),
    ("truncated", lambda data, at: data[:at], ("damaged", "expected", "found")),
    ("foreign", lambda data, _: b"Dear diary, this is not a file of yours.\n" * (len(data) // 41), ("expected",)),
    ("newer", _newer, ("version 99", "reads version 1")),
]


@contextmanager
def damaged(file: Path, change_: Callable[[bytes, int], bytes], at: int) -> Iterator[None]:
    """The file is damaged inside, and restored afterwards."""
    good = file.read_bytes()
    file.write_bytes(change_(good, at))
    try:
        yield
    finally:
        file.write_bytes(good)


def _last_file(host: Host, prefix: str) -> Path:
    return max((host.home / "dirdat").glob(f"{prefix}[0-9]*"))


def test_damaged_local_trail(running: Rig, pipeline: Pipeline) -> None:
    """The pump stops at each damage and never skips it, and Extract does not write behind it."""
    source = pipeline.source
    stop(source, "PMP1")
    arrive(pipeline, source, "lt")
    stop(source, "EXT1")
    file = _last_file(source, "lt")
    for name, damage, words in DAMAGES:
        with damaged(file, damage, file.stat().st_size - 5000):
            fails_to_start_or_abends(pipeline, source, "PMP1", file.name, *words)
            if name != "flipped":  # a payload is not read again by its writer
                fails_to_start_or_abends(pipeline, source, "EXT1", file.name, *words)
    goes_on(running, source, "EXT1", "PMP1")


def fails_to_start_or_abends(pipeline: Pipeline, host: Host, group: str, *words: str) -> None:
    """The group may meet the damage only after it runs."""
    host.run(f"START {group}", check=False)
    abends(pipeline, host, group, OPERATOR, *words)


@pytest.mark.parametrize(("group", "damages"), [("EXT1", DAMAGES), ("PMP1", DAMAGES[:1])], ids=["EXT1", "PMP1"])
def test_damaged_checkpoint_file(running: Rig, pipeline: Pipeline, group: str, damages: Sequence[Damage]) -> None:
    """Refused by name; INFO still works and says it too. Deleting the file mends it, as the output knows the place."""
    stop(pipeline.source, group)
    _meets_damaged_checkpoint_file(pipeline, pipeline.source, group, damages)
    goes_on(running, pipeline.source, group)


def _meets_damaged_checkpoint_file(pipeline: Pipeline, host: Host, group: str, damages: Sequence[Damage]) -> None:
    (file,) = (host.home / "dirchk").glob(f"{group}.cp?")
    good = file.read_bytes()
    for _, damage, words in damages:
        file.write_bytes(damage(good, 60))
        assert file.name in host.look(f"INFO {group}").text
        fails_to_start(pipeline, host, group, OPERATOR, file.name, *words)
    file.unlink()


# --- parameter files ------------------------------------------------------------------------------------------------


def test_all_mistakes_of_a_parameter_file_are_told_at_once(running: Rig, pipeline: Pipeline) -> None:
    """Unknown word, wrong value, missing semicolon: each with file and line; also by the process itself."""
    source = pipeline.source
    stop(source, "EXT1")
    source.params(
        "EXT1",
        "EXTRACT EXT1",
        f"SOURCEDB {pipeline.source_url}",
        "EXTRAIL ./dirdat/lt",
        "CHECKPOINTSECS soon",
        "TABLE shop.*",
    )
    told = source.run("START EXT1", check=False)
    assert told.code == 1
    process = _run_directly("extract", source, "EXT1")
    assert process.returncode == OPERATOR
    for text in (told.text, process.stderr):
        for line, word in ((3, "EXTTRAIL"), (4, "soon"), (5, ";")):
            assert any(f"ext1.prm:{line}" in row and word in row for row in text.splitlines()), text
    pipeline.write_params()
    goes_on(running, source, "EXT1")


def _run_directly(module: str, host: Host, group: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", module, "--home", str(host.home), group],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=dict(host.environment),
    )


def test_wrong_url_and_missing_group(pipeline: Pipeline) -> None:
    """A mistyped group or command fails by name and changes nothing."""
    told = pipeline.source.run("START EXT9", "STRAT EXT1", "DBLOGIN SOURCEDB oracle://x@y/z", check=False)
    assert told.code == 1
    assert "EXT9" in told.text
    assert "START" in told.text
    assert "postgresql://" in told.text


# --- two of a kind --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("module", "side", "group"), [("extract", "source", "EXT1"), ("replicat", "target", "REP1")])
def test_two_processes_for_one_group(running: Rig, pipeline: Pipeline, module: str, side: str, group: str) -> None:
    """The second is refused with the first one's pid, and the first goes on undisturbed."""
    host: Host = getattr(pipeline, side)
    pid = host.statuses()[group]["pid"]
    second = _run_directly(module, host, group)
    assert second.returncode == OPERATOR
    assert f"{group} is already running as process {pid}" in second.stderr
    assert host.statuses()[group]["pid"] == pid
    change(pipeline)
    running.ends_equal()


def test_two_managers_for_one_home(pipeline: Pipeline) -> None:
    """The second ends at once."""
    told = subprocess.run(
        [sys.executable, "-P", "-m", "ggsci.manager", "--home", str(pipeline.source.home)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert told.returncode == OPERATOR
    assert "already running as process" in told.stderr


def test_two_writers_for_one_trail(running: Rig, pipeline: Pipeline) -> None:
    """ADD refuses a second local writer; a writer that meets a held lock names its holder; a second pump is refused."""
    source = pipeline.source
    refused = source.run("ADD EXTRACT EXT2, TRANLOG", "ADD EXTTRAIL ./dirdat/lt, EXTRACT EXT2", check=False)
    assert refused.code == 1
    assert "./dirdat/lt" in refused.text and "EXT1" in refused.text
    source.run("DELETE EXTRACT EXT2")
    stop(source, "EXT1")
    lock = RealFs().lock(TrailName.parse("./dirdat/lt", str(source.home)).lock_path())
    try:
        fails_to_start(pipeline, source, "EXT1", OPERATOR, "dirdat", "lt", "process")
    finally:
        lock.release()
    goes_on(running, source, "EXT1")


def test_second_pump_for_a_remote_trail(running: Rig, pipeline: Pipeline) -> None:
    """Another pump may not write the trail of the first, which stays as it was."""
    source = pipeline.source
    lines = (source.home / "dirprm" / "pmp1.prm").read_text().replace("PMP1", "PMP2").splitlines()
    source.params("PMP2", *lines)
    source.run("ADD EXTRACT PMP2, EXTTRAILSOURCE ./dirdat/lt", "ADD RMTTRAIL ./dirdat/rt, EXTRACT PMP2", check=False)
    try:
        source.run("START PMP2", check=False)
        abends(pipeline, source, "PMP2", OPERATOR, "/dirdat/rt", "PMP1", "one pump")
    finally:
        source.run("STOP PMP2", "DELETE EXTRACT PMP2", check=False)
    goes_on(running, source, "PMP1")


# --- ports ----------------------------------------------------------------------------------------------------------


def _occupy(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def test_managers_port_in_use(running: Rig, pipeline: Pipeline) -> None:
    """START MANAGER names the port; groups go on without it; once it is free START works."""
    source = pipeline.source
    source.run("STOP MANAGER!")
    with _occupy(source.port):
        told = source.run("START MANAGER", check=False)
    assert told.code == 1
    assert str(source.port) in told.text
    source.run("START MANAGER")
    goes_on(running, source)


def test_all_collector_ports_in_use(running: Rig, pipeline: Pipeline) -> None:
    """The pump says which ports are taken and tries again; nobody has to start it when one gets free."""
    first, last = pipeline.collector_ports
    with ExitStack() as stack:
        stop(pipeline.source, "PMP1")
        wait_for(lambda: pipeline.pid("collector") is None, pipeline.state)
        for port in range(first, last + 1):
            stack.enter_context(_occupy(port))
        pipeline.source.run("START PMP1")
        change(pipeline)
        wait_for(lambda: f"{first}-{last}" in pipeline.source.report("PMP1"), pipeline.state)
    running.ends_equal()


# --- databases ------------------------------------------------------------------------------------------------------


def test_target_tables_that_do_not_fit(running: Rig, pipeline: Pipeline) -> None:
    """A table that goes under a running Replicat, and one that lacks a column: named; the change waits in the trail."""
    target = pipeline.target
    _sql(pipeline.target_url, "ALTER TABLE shop.readings RENAME TO elsewhere")
    change(pipeline)
    abends(pipeline, target, "REP1", OPERATOR, "shop.readings")
    _sql(pipeline.target_url, "ALTER TABLE shop.elsewhere RENAME COLUMN remark TO notes")
    _sql(pipeline.target_url, "ALTER TABLE shop.elsewhere RENAME TO readings")
    target.run("START REP1", check=False)
    abends(pipeline, target, "REP1", OPERATOR, "shop.readings", "remark")
    _sql(pipeline.target_url, "ALTER TABLE shop.readings RENAME COLUMN notes TO remark")
    goes_on(running, target, "REP1")


def _sql(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_source_goes_away_inside_a_transaction(running: Rig, pipeline: Pipeline) -> None:
    """Exit code 3; the half transaction is dropped and comes whole after START."""
    with running.workload(ride_out=True):
        for _ in range(3):
            large_transaction(pipeline.source_url, 1500)
        running.source_server.kill()
        try:
            abends(pipeline, pipeline.source, "EXT1", AWAY)
        finally:
            running.source_server.start()
    goes_on(running, pipeline.source, "EXT1")


def test_target_goes_away_inside_a_transaction(running: Rig, pipeline: Pipeline) -> None:
    """Exit code 3; the batch is applied again, once, after START."""
    with running.workload():
        for _ in range(3):
            large_transaction(pipeline.source_url, 1500)
        running.target_server.stop("immediate")
        try:
            abends(pipeline, pipeline.target, "REP1", AWAY)
        finally:
            running.target_server.start()
    goes_on(running, pipeline.target, "REP1")


@contextmanager
def passwords(server: PostgresServer) -> Iterator[None]:
    """The server asks the role `gate` for a password, and nobody else."""
    hba = server.data / "pg_hba.conf"
    trust = hba.read_text()
    server.sql("CREATE ROLE gate LOGIN SUPERUSER PASSWORD 'Right,1'")
    rules = (
        "local all gate scram-sha-256\nlocal replication gate scram-sha-256\nhost all gate 127.0.0.1/32 scram-sha-256\n"
    )
    hba.write_text(rules + trust)
    server.reload()
    try:
        yield
    finally:
        hba.write_text(trust)
        server.reload()
        server.sql("DROP ROLE gate")


@pytest.mark.parametrize(("side", "group", "keyword"), [("source", "EXT1", "SOURCEDB"), ("target", "REP1", "TARGETDB")])
def test_wrong_password(running: Rig, pipeline: Pipeline, side: str, group: str, keyword: str) -> None:
    """DBLOGIN and START name the user and never show the password; the right one goes on."""
    host: Host = getattr(pipeline, side)
    server = running.source_server if side == "source" else running.target_server
    url = pipeline.source_url if side == "source" else pipeline.target_url
    stop(host, group)
    with passwords(server):
        wrong, right = (url.replace("postgres@", f"gate:{word}@") for word in ("Wrong%2C1", "Right%2C1"))
        login = host.run(f"DBLOGIN {keyword} {wrong}", check=False)
        assert login.code == 1
        assert "gate" in login.text
        file = host.home / "dirprm" / f"{group.lower()}.prm"
        good = file.read_text()
        file.write_text(good.replace(url, wrong))
        change(pipeline)
        message = fails_to_start(pipeline, host, group, OPERATOR, "password", "gate")
        for text in (login.text, message, host.report(group), (host.home / "ggserr.log").read_text()):
            assert "Wrong" not in text
        file.write_text(good.replace(url, right))
        goes_on(running, host, group)
        stop(host, group)  # the next test starts it without a password


# --- disks ----------------------------------------------------------------------------------------------------------


def _fill(host: Host) -> None:
    """Not one byte more goes into this home."""
    remount(host.home, f"size={shutil.disk_usage(host.home).used + 100_000}")
    with suppress(OSError), (host.home / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass


def _make_room(host: Host) -> None:
    (host.home / "filler").unlink()
    remount(host.home, f"size={DISK}")


def test_full_disk_under_collector(resting: Rig) -> None:
    """CW-28: the pump is told why the other side does not take more, and goes on when it does."""
    pipeline = resting.pipeline
    source, target = pipeline.source, pipeline.target
    if not resting.own_disks:
        pid = pipeline.pid("collector")
        assert pid is not None
        _limit_files(pid, _last_file(target, "rt").stat().st_size + 10_000)
        change(pipeline)
    else:
        _fill(target)
        change(pipeline)
        wait_for(lambda: "space" in source.report("PMP1").lower(), pipeline.state)
        _make_room(target)
    target.run("START REP1")
    if source.statuses()["PMP1"]["status"] != "RUNNING":
        source.run("START PMP1")
    resting.ends_equal()


def test_damage_on_the_targets_host(resting: Rig) -> None:
    """Replicat stops at a damaged checkpoint file, and at a damage in the trail: nothing behind that is applied."""
    pipeline = resting.pipeline
    target = pipeline.target
    arrive(pipeline, target, "rt")
    stop(pipeline.source, "PMP1")
    wait_for(lambda: pipeline.pid("collector") is None, pipeline.state)
    _meets_damaged_checkpoint_file(pipeline, target, "REP1", DAMAGES[1:2])
    file = _last_file(target, "rt")
    for _, damage, words in (DAMAGES[0], DAMAGES[3]):
        with damaged(file, damage, file.stat().st_size - 5000):
            fails_to_start_or_abends(pipeline, target, "REP1", file.name, *words)
    pipeline.source.run("START PMP1")
    goes_on(resting, target, "REP1")


def test_full_disk_under_extract(running: Rig, pipeline: Pipeline) -> None:
    """CW-28: Extract ends in the middle of a block; START says it again until there is space, then goes on."""
    source = pipeline.source
    if not running.own_disks:
        _limit_files(source.statuses()["EXT1"]["pid"], _last_file(source, "lt").stat().st_size + 10_000)
        change(pipeline)
        abends(pipeline, source, "EXT1", OPERATOR, "dirdat/lt")
    else:
        stop(source, "PMP1")
        _fill(source)
        change(pipeline)
        pipeline.wait_status(source, "EXT1", "ABENDED")
        told = source.run("START EXT1", check=False)
        pipeline.wait_status(source, "EXT1", "ABENDED")
        assert "space" in (told.text + source.run("INFO EXT1", check=False).text).lower()
        _make_room(source)
    goes_on(running, source, "EXT1", "PMP1")


def _limit_files(pid: int, size: int) -> None:
    """The largest file this process may write: as near to a full disk as one comes without a disk of one's own."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def test_read_only_home(running: Rig, pipeline: Pipeline) -> None:
    """Nothing starts in a home that can't be written, and each says so; made writable, all goes on."""
    if not running.own_disks:
        pytest.skip("only who may mount can make a home read-only for root; others can't be root")
    pipeline.source.run("STOP ER *", "STOP MANAGER!")
    wait_for(lambda: not processes_in(pipeline.source.home), pipeline.state)
    change(pipeline)
    remount(pipeline.source.home, "ro")
    try:
        told = pipeline.source.run("START MANAGER", check=False)
        assert told.code == 1
        assert "read-only" in told.text.lower(), told.text
        process = _run_directly("extract", pipeline.source, "EXT1")
        assert process.returncode == OPERATOR
        assert "read-only" in process.stderr.lower()
        assert len(process.stderr.strip().splitlines()) == 1, process.stderr
        assert "EXT1" in pipeline.source.run("INFO ALL", check=False).out
    finally:
        remount(pipeline.source.home, "rw")
    pipeline.start()
    running.ends_equal()
