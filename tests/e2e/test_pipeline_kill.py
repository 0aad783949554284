"""Everything may be killed at any moment: the target ends as the source, and never looks like no state of the source.

Each test takes the one running pipeline of this file, has it work, does its harm, and compares every row at the end. A
watcher looks at the target all the while (demo/workload.py says for what): torn, doubled and lost changes show at once.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from demo.guard import end_now
from demo.patience import WaitError, wait_for
from demo.pipeline import Host, Options, Pipeline
from demo.proxy import Proxy
from demo.servers import PostgresServer
from demo.workload import large_transaction
from tests.support.pipelines import Rig, rig
from tests.support.shown import Shown, group_of
from trails.runtime.home import registration
from trails.runtime.home.home import Home

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.xdist_group("pipeline-kill")]

PROXY_HOST = "127.0.0.2"
GROUPS = ("extract", "pump", "replicat")
# A Replicat takes seconds to come back, so the others are killed more often.
DEATHS = {"extract": 2, "pump": 2, "collector": 2, "replicat": 1, "source manager": 1, "target manager": 1}
SEEDS = [int(seed) for seed in os.environ.get("PIPELINE_SEEDS", "27").split(",")]
"""Each is a run of these deaths at other moments: for more, name several."""


@pytest.fixture(scope="module")
def shared(postgres16: PostgresServer, postgres18: PostgresServer) -> Iterator[Rig]:
    """One pipeline with small trail files, which are purged all the time, and a link that a test can cut.

    Heartbeats pass through it each second, whatever is done to it.
    """
    options = Options(
        megabytes=1,
        remote_host=PROXY_HOST,
        extract=["BLOCKSIZE 64"],
        replicat=["BATCHROWS 2000", "SPARKMEMORY 512M"],
        restart_seconds=0,
        checkpoint_seconds=1,
        purge_seconds=1,
    )
    with rig(postgres16, postgres18, options) as made:
        pipeline = made.pipeline
        said = pipeline.source.run(
            f"DBLOGIN SOURCEDB {pipeline.source_url}", "ADD HEARTBEATTABLE, FREQUENCY 1", "ADD HEARTBEATTABLE"
        ).out
        assert "Successfully created table gg.gg_heartbeat_seed." in said
        assert "Heartbeats each 1 s" in said
        assert "were there already" in said
        assert "view gg.gg_lag" in pipeline.target.run(_login(pipeline), "ADD HEARTBEATTABLE").out
        yield made


def _login(pipeline: Pipeline) -> str:
    return f"DBLOGIN TARGETDB {pipeline.target_url}"


@pytest.fixture(scope="module")
def link(shared: Rig) -> Iterator[Link]:
    """The pump reaches the target host only through this."""
    with Link(shared) as made:
        yield made


@pytest.fixture
def running(shared: Rig, link: Link) -> Rig:
    """The pipeline, with everything running."""
    shared.pipeline.start()
    return shared


class Link:
    """Proxies for the Manager's and all Collectors' ports, at another address of this host."""

    def __init__(self, made: Rig) -> None:
        pipeline = made.pipeline
        first, last = pipeline.collector_ports
        self._limit: int | None = None
        self._chance = random.Random(7)
        self.proxies = [self._proxy(port) for port in (pipeline.target.port, *range(first, last + 1))]

    def _proxy(self, port: int) -> Proxy:
        return Proxy(lambda: ("127.0.0.1", port), self._next_limit, listen=(PROXY_HOST, port))

    def _next_limit(self) -> int | None:
        return None if self._limit is None else self._chance.randint(1, self._limit)

    def cut_within(self, bytes_: int | None) -> None:
        """Cut each new connection at a random byte below this; None leaves them whole."""
        self._limit = bytes_

    @property
    def cuts(self) -> int:
        """How often a connection was cut."""
        return sum(proxy.cuts for proxy in self.proxies)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for proxy in self.proxies:
            proxy.close()


def kill(pipeline: Pipeline, name: str) -> None:
    """Kill it once it is up. Groups come back by AUTORESTART, a Manager by START."""
    wait_for(lambda: pipeline.kill(name) is not None, lambda: f"{name} is not up:\n{pipeline.state()}")
    if name.endswith("manager"):
        pipeline.host_of(name).run("START MANAGER")


@pytest.mark.parametrize("seed", SEEDS)
def test_DA_01_DA_02_random_kills_under_load(running: Rig, seed: int) -> None:
    """A SIGKILL again and again, at any process and any moment, under load and inside large transactions."""
    chance = random.Random(seed)
    plan = [name for name, times in DEATHS.items() for _ in range(times)]
    chance.shuffle(plan)
    with running.watched(), running.workload() as load:
        for number, name in enumerate(plan):
            if number % 10 == 0:
                large_transaction(running.pipeline.source_url, 1000)
            time.sleep(chance.random() * 0.2)
            kill(running.pipeline, name)
        load.stop()
        running.ends_equal()


@pytest.mark.soak
def test_CW_26_all_processes_of_a_host_and_its_manager_die_together(running: Rig) -> None:
    """Groups under AUTORESTART and their Manager are killed at once; the next Manager brings them all back."""
    pipeline = running.pipeline
    with running.workload():
        for host, groups in ((pipeline.source, ("EXT1", "PMP1")), (pipeline.target, ("REP1",))):
            before = host.statuses()
            for name in ("MGR", *groups):
                assert end_now(before[name]["pid"]), pipeline.state()
            assert {host.statuses()[name]["status"] for name in groups} == {"ABENDED"}
            host.run("START MANAGER")
            pipeline.wait_running()
            after = host.statuses()
            assert all(after[name]["pid"] != before[name]["pid"] for name in groups)
    running.ends_equal()


def test_groups_outlive_their_manager(running: Rig) -> None:
    """A killed Manager takes nobody with it, and the next one watches what it finds: a kill after it is mended too.

    Replicat is killed under the Manager that found it by the next test that kills it.
    """
    pipeline = running.pipeline
    for host in (pipeline.source, pipeline.target):
        before = host.statuses()
        assert end_now(before.pop("MGR")["pid"])
        host.run("START MANAGER")
        after = host.statuses()
        assert {name: after[name]["pid"] for name in before} == {name: before[name]["pid"] for name in before}
        watched = host.json("SEND MANAGER CHILDSTATUS DEBUG")["children"]
        assert {one["group"]: one["watched"] for one in watched} == dict.fromkeys(before, "adopted")
    kill(pipeline, "pump")
    with running.workload():
        pipeline.wait_running()
    running.ends_equal()


@pytest.mark.soak
def test_link_cut_at_random_bytes(running: Rig, link: Link) -> None:
    """Every connection is cut after some random number of bytes; what gets through is enough, nothing comes twice."""
    before = link.cuts
    pipeline = running.pipeline
    with running.watched(), running.workload():
        link.cut_within(60_000)
        kill(pipeline, "pump")  # the session that stands was never limited
        large_transaction(pipeline.source_url, 3000)
        wait_for(lambda: link.cuts - before >= 10, lambda: f"{link.cuts - before} cuts only")
        link.cut_within(None)
    running.ends_equal()


@pytest.mark.soak
def test_GG_18_restored_old_checkpoint_files(running: Rig, tmp_path: Path) -> None:
    """Checkpoint files of long ago are put in place of the present ones: more work, but no change lost or doubled."""
    pipeline = running.pipeline
    hosts = (pipeline.source, pipeline.target)
    with running.workload():
        for host in hosts:
            shutil.copytree(host.home / "dirchk", tmp_path / host.home.name, ignore=shutil.ignore_patterns("*.tmp"))
        _roll_over(pipeline)
        for process in GROUPS:
            kill(pipeline, process)
        for host in hosts:
            host.run("STOP ER *", check=False)
            for file in (tmp_path / host.home.name).iterdir():
                shutil.copy(file, host.home / "dirchk" / file.name)
    pipeline.start()
    _work_a_while(running)
    running.ends_equal()


def _work_a_while(rig_: Rig) -> None:
    with rig_.workload() as load:
        wait_for(lambda: load.transactions > 50)
        load.stop()


def _roll_over(pipeline: Pipeline) -> None:
    """A large transaction, and then new trail files on both hosts."""
    large_transaction(pipeline.source_url, 2000)
    for host, group in ((pipeline.source, "EXT1"), (pipeline.target, "PMP1")):
        before = _trail_files(host)
        wait_for(lambda h=host, g=group, b=before: _rolled(pipeline, h, g, b), pipeline.state)


def _rolled(pipeline: Pipeline, host: Host, group: str, before: list[str]) -> bool:
    """Whether a newer file is there; else one is asked for, again and again: a pump without a link can't make it."""
    newer = _trail_files(host)[-1] > before[-1]
    if not newer:
        pipeline.source.look(f"SEND {group}, ROLLOVER")
    return newer


def _trail_files(host: Host) -> list[str]:
    return sorted(path.name for path in (host.home / "dirdat").iterdir())


def _delete_checkpoints(rig_: Rig) -> None:
    for host in (rig_.pipeline.source, rig_.pipeline.target):
        for file in (host.home / "dirchk").iterdir():
            file.unlink(missing_ok=True)


def test_CW_17_all_checkpoint_files_deleted_under_running_groups(running: Rig) -> None:
    """Everything in dirchk goes while groups run, the Managers purge each second, and all is killed then."""
    with running.watched(), running.workload():
        for process in GROUPS:
            _delete_checkpoints(running)
            large_transaction(running.pipeline.source_url, 3000)
            _delete_checkpoints(running)
            kill(running.pipeline, process)
            _delete_checkpoints(running)
    running.ends_equal()


@pytest.mark.soak
def test_CW_17_all_checkpoint_files_deleted_under_stopped_groups(running: Rig) -> None:
    """Stopped groups lose their checkpoint files; the Managers purge nothing unread, and all go on where they stood."""
    pipeline = running.pipeline
    pipeline.target.run("STOP REPLICAT REP1")
    _work_a_while(running)
    for _ in range(2):  # several files that Replicat has not read
        _roll_over(pipeline)
    pipeline.source.run("STOP ER *")
    for host in (pipeline.source, pipeline.target):  # what was read by then goes
        host.run("REFRESH MANAGER", "SEND MANAGER CHILDSTATUS")
    _delete_checkpoints(running)
    files = [_trail_files(host) for host in (pipeline.source, pipeline.target)]
    for host in (pipeline.source, pipeline.target):
        host.run("REFRESH MANAGER", "SEND MANAGER CHILDSTATUS")  # purges at once, and answers then
        assert not [file for file in host.json("SEND MANAGER GETPURGEOLDEXTRACTS")["files"] if file["goes"]]
    assert [_trail_files(host) for host in (pipeline.source, pipeline.target)] == files
    pipeline.start()
    running.ends_equal()


def test_CW_16_target_server_crashes(running: Rig) -> None:
    """The target's server is killed under load: commits that had not reached its disk are applied again, once."""
    chance = random.Random(16)
    with running.watched(), running.workload():
        for _ in range(2):
            large_transaction(running.pipeline.source_url, 2000)
            time.sleep(chance.random())
            running.target_server.kill()
            running.target_server.start()
    running.ends_equal()


def test_source_server_crashes(running: Rig) -> None:
    """The source's server is killed under load: Extract connects anew and goes on at what stands in its trail."""
    with running.watched(), running.workload(ride_out=True) as load:
        for _ in range(2):
            done = load.transactions
            wait_for(lambda d=done: load.transactions > d + 20)
            running.source_server.kill()
            running.source_server.start()
            large_transaction(running.pipeline.source_url, 2000)
        load.stop()
    running.ends_equal()


def test_its_lag_by_heartbeats(running: Rig) -> None:
    """After all of that LAG, INFO and HISTORY tell the path with each stage's time; of a stopped stage its age."""
    pipeline = running.pipeline
    source, target = pipeline.source, pipeline.target

    row: dict[str, Any] = {}

    def fresh() -> bool:
        row.update(*target.json("LAG REPLICAT REP1")[0]["heartbeats"][:1])
        return row.get("lag_us") is not None

    wait_for(fresh, pipeline.state)
    assert row["path"] == "EXT1 ==> PMP1 ==> REP1"
    assert [stage["to"] for stage in row["stages"]] == ["EXT1", "PMP1", "REP1"]
    assert row["lag_us"] == sum(stage["us"] for stage in row["stages"])
    text = target.run("INFO REP1", "LAG REPLICAT REP1", _login(pipeline), "LAG REPLICAT REP1, HISTORY").out
    assert "Heartbeat Lag" in text
    assert "Lag Information From Heartbeat Table" in text
    assert len(text.split("DATE ")[1].splitlines()) >= 3
    text = source.run("STOP PMP1", "LAG EXTRACT PMP1", "START PMP1", check=False).text
    assert "not currently running" in text
    assert "EXT1 ==> PMP1" in text


def told(shown: Shown, state: str, why: str) -> None:
    """Every place says so in the end."""

    def where() -> dict[str, bool]:
        return shown.told(state, why)

    wait_for(lambda: all(where().values()), lambda: f"{where()}\n{shown.everything()}", every=0.5)


@pytest.fixture(scope="module")
def shown(shared: Rig, link: Link) -> Shown:
    """What each place says of the pipeline."""
    shared.pipeline.start()
    return Shown(shared.pipeline)


@pytest.mark.parametrize("side", ["source", "target"])
def test_who_waits_for_a_database_says_so(running: Rig, shown: Shown, side: str) -> None:
    """INFO, SEND STATUS, INFO ALL and the page name the database that is away, and the last error; then no more."""
    host, group = (running.pipeline.source, "EXT1") if side == "source" else (running.pipeline.target, "REP1")
    server = running.source_server if side == "source" else running.target_server
    waits = f"Waiting for the {side} database: "

    def told() -> dict[str, bool]:
        whole = host.info(group)["waits"] or ""
        return {
            "INFO": whole.startswith(waits) and len(whole) > len(waits) and waits in host.look(f"INFO {group}").out,
            "SEND": waits in host.look(f"SEND {group} STATUS").out,
            "INFO ALL": waits in host.look("INFO ALL, DETAIL").out,
            "the page": waits in shown.page(),
        }

    def said() -> str:
        return f"{told()}\n{host.look(f'INFO {group}').out}{shown.everything()}"

    server.stop("immediate")
    try:
        if side == "target":  # who has nothing to apply does not ask
            large_transaction(running.pipeline.source_url, 10)
        wait_for(lambda: all(told().values()), said, every=0.2)
    finally:
        server.start()
    wait_for(lambda: not any(told().values()), said, every=0.2)


def test_GG_19_nothing_is_green_where_nothing_is_captured(running: Rig, shown: Shown) -> None:
    """Extract stopped, and then deleted; pump and Replicat idle: no home, page or figure says lag 0 or RUNNING."""
    pipeline = running.pipeline
    source, target = pipeline.source, pipeline.target
    wait_for(lambda: shown.state() == "RUNNING", shown.everything, every=0.5)
    source.run("STOP EXT1")
    told(shown, "STOPPED", "EXTRACT EXT1 is STOPPED")
    assert group_of(source, "PMP1")["status"] == "RUNNING"
    wait_for(lambda: "no heartbeat for" in group_of(target, "REP1")["lag_why"], pipeline.state)
    assert group_of(target, "REP1")["status"] == "RUNNING"
    text = target.run("INFO ALL, DETAIL", "SEND REPLICAT REP1, GETLAG").out
    assert "Is   UNKNOWN, last seen 00:00:" in text
    assert "Last record lag UNKNOWN: no heartbeat for" in text
    (path,) = target.json("INFO ALL, DETAIL")["pipelines"]
    assert (path["state"], path["lag_us"]) == ("UNKNOWN", None)

    home = Home(str(source.home))
    registered = registration.load(home, "EXT1")
    source.run("DELETE EXTRACT EXT1!")
    told(shown, "UNKNOWN", "EXTRACT EXT1 is MISSING")
    assert re.search(r"EXT1 .*MISSING", source.run("INFO ALL, DETAIL").out)
    assert "Extract MISSING EXT1" in shown.page()
    registration.save(home, registered)
    source.run("START EXT1")
    wait_for(lambda: shown.state() == "RUNNING", shown.everything, every=0.5)
    wait_for(lambda: group_of(target, "REP1")["lag_us"] is not None, pipeline.state)


def test_nothing_runs_after_stop(running: Rig) -> None:
    """STOP ER * and STOP MANAGER leave no process: no Collector, no JVM, no worker of Spark."""
    pipeline = running.pipeline
    wait_for(running.is_linked, pipeline.state)  # a Collector whose pump never comes waits for it
    pipeline.stop()
    try:
        wait_for(lambda: not pipeline.guard.pids())
    except WaitError:
        pytest.fail(f"still there: {[Path(f'/proc/{pid}/cmdline').read_text() for pid in pipeline.guard.pids()]}")
    assert {group["status"] for group in pipeline.source.json("INFO ALL")["groups"]} == {"STOPPED"}
