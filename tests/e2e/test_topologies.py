"""GG-03, OT-25: middle hosts, many targets and many sources, every process killed at random moments: all ends equal.

    home near (database one)        home middle                       home far
    EXT1 -> lt -> PMP1 ──────────>  mt ─┬─ PMP2 ───────────────────>  rt ─┬─ REP1 -> database all
                                        │                                 └─ REP2 -> database copy
                                        └─ PMP3 -> ml -> REP3 -> database beside
    home branch (database two)
    EXT2 -> lt -> PMP4 ────────────────────────────────────────────>  rb ─── REP4 -> database all

PMP2 and PMP3 read a trail that a Collector wrote; PMP3 writes a trail of its own home, by the Manager there. REP1 and
REP2 are two live readers of one trail; REP1 and REP4 fill one database, and share its checkpoint table.
Replicats run without Spark (tests/support/sparkless.py), so a life costs a second; the rest is as on real hosts.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import psycopg
import pytest

from demo import workload
from demo.compare import compare, tables_of
from demo.guard import Guard, end_now
from demo.patience import wait_for
from demo.pipeline import Host
from demo.ports import free_ports
from demo.servers import PostgresServer
from demo.workload import SCHEMA, Watcher, Workload
from replicat.batches.scratch import sweep
from tests.support.pipelines import folder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.xdist_group("pipeline-topologies")]

ROOT = Path(__file__).parents[2]
HOMES = ("near", "branch", "middle", "far")
SOURCES = {"near": "one", "branch": "two"}
REPLICATS = {
    "REP1": ("far", "rt", "all"),
    "REP2": ("far", "rt", "copy"),
    "REP3": ("middle", "ml", "beside"),
    "REP4": ("far", "rb", "all"),
}
PUMPS = {
    "PMP1": ("near", "lt", "middle", "mt"),
    "PMP2": ("middle", "mt", "far", "rt"),
    "PMP3": ("middle", "mt", "middle", "ml"),
    "PMP4": ("branch", "lt", "far", "rb"),
}
EXTRACTS = {"EXT1": "near", "EXT2": "branch"}
PATHS = (("one", "all"), ("one", "copy"), ("one", "beside"), ("two", "all"))
BRANCH = "CREATE SCHEMA branch; CREATE TABLE branch.sales (id bigint PRIMARY KEY, what text, cents bigint)"


class Net:
    """All of it, set up by commands of ggsci."""

    def __init__(self, homes: Path, urls: Mapping[str, str]) -> None:
        self.urls = urls
        self.guard = Guard()
        ports = free_ports(64)
        self.hosts = {
            name: Host(homes / name, ports[16 * n], self.guard.environment) for n, name in enumerate(HOMES)
        }  # fmt: skip
        self.collectors = {name: f"{ports[16 * n + 1]}-{ports[16 * n + 15]}" for n, name in enumerate(HOMES)}
        self.replicats: dict[str, subprocess.Popen[bytes]] = {}
        self.note = ""

    def create(self) -> None:
        """Homes, certificates of one authority, parameter files, groups."""
        for host in self.hosts.values():
            host.home.mkdir()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda host: host.run("CREATE SUBDIRS"), self.hosts.values()))
        peers = [f"CREATE CERTIFICATES, PEER '{self.hosts[name].home}'" for name in HOMES if name != "middle"]
        self.hosts["middle"].run("CREATE CERTIFICATES", *peers)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self._add, HOMES))

    def _add(self, name: str) -> None:
        host = self.hosts[name]
        (host.home / "GLOBALS").write_text("CHECKPOINTTABLE gate.checkpoint\n")
        host.params(
            "mgr", f"PORT {host.port}", f"DYNAMICPORTLIST {self.collectors[name]}",
            "AUTORESTART EXTRACT *, RETRIES 1000, WAITSECONDS 0",
            "PURGEOLDEXTRACTS ./dirdat/*, USECHECKPOINTS, MINKEEPFILES 1", "CHECKSECONDS 1",
        )  # fmt: skip
        lines = [line for group, where in EXTRACTS.items() if where == name for line in self._extract(group, host)]
        lines += [line for group, where in PUMPS.items() if where[0] == name for line in self._pump(group, host)]
        for group, (where, trail, database) in REPLICATS.items():
            if where == name:
                lines += self._replicat(group, host, trail, self.urls[database])
        host.run(*lines)

    def _extract(self, group: str, host: Host) -> list[str]:
        url = self.urls[SOURCES[host.home.name]]
        tables = ("shop.*", "branch.*")["near" not in host.home.name]
        host.params(
            group, f"EXTRACT {group}", f"SOURCEDB {url}", "EXTTRAIL ./dirdat/lt", "CHECKPOINTSECS 1", f"TABLE {tables};"
        )
        return [
            f"DBLOGIN SOURCEDB {url}", f"ADD TRANDATA {tables}", f"ADD EXTRACT {group}, TRANLOG, BEGIN NOW",
            f"ADD EXTTRAIL ./dirdat/lt, EXTRACT {group}, MEGABYTES 1", f"REGISTER EXTRACT {group}, DATABASE",
        ]  # fmt: skip

    def _pump(self, group: str, host: Host) -> list[str]:
        _, source, to, remote = PUMPS[group]
        host.params(
            group, f"EXTRACT {group}", f"RMTHOST localhost, MGRPORT {self.hosts[to].port}, TIMEOUT 5", "RETRYDELAY 1",
            f"RMTTRAIL ./dirdat/{remote}", "CHECKPOINTSECS 1", "PASSTHRU",
        )  # fmt: skip
        return [
            f"ADD EXTRACT {group}, EXTTRAILSOURCE ./dirdat/{source}",
            f"ADD RMTTRAIL ./dirdat/{remote}, EXTRACT {group}, MEGABYTES 1",
        ]

    def _replicat(self, group: str, host: Host, trail: str, url: str) -> list[str]:
        host.params(
            group, f"REPLICAT {group}", f"TARGETDB {url}", "CHECKPOINTSECS 1", "MAP *.*, TARGET *.*;"
        )  # fmt: skip
        table = [] if group == "REP4" else ["ADD CHECKPOINTTABLE"]  # REP1 has made that of their database
        return [f"DBLOGIN TARGETDB {url}", *table, f"ADD REPLICAT {group}, EXTTRAIL ./dirdat/{trail}"]

    def start(self) -> None:
        """Everything."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda host: host.run("START MANAGER"), self.hosts.values()))
            list(pool.map(lambda name: self.hosts[name].run("START EXTRACT *"), (*SOURCES, "middle")))
        for group in REPLICATS:
            self.start_replicat(group)

    def start_replicat(self, group: str) -> None:
        """The real Replicat without Spark; the Manager starts none, as it would start one with Spark."""
        host = self.hosts[REPLICATS[group][0]]
        self.replicats[group] = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.support.sparkless", "--home", str(host.home), group],
            env={**host.environment, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def kill(self, victim: str) -> bool:
        """SIGKILL one process, and see to it that it comes back; False if it is down just now."""
        if victim in REPLICATS:
            process = self.replicats[victim]
            process.kill()
            process.wait()
            self.start_replicat(victim)
            return True
        kind, _, name = victim.partition(" ")
        host = self.hosts[name]
        if kind == "MANAGER":
            pid = host.statuses()["MGR"]["pid"]
            killed = bool(pid) and end_now(pid)
            host.run("START MANAGER", check=False)
            return killed
        if kind == "COLLECTOR":
            found = host.look("SEND MANAGER GETPORTINFO --json")
            pids = [row["pid"] for row in json.loads(found.out)["collectors"]] if found.code == 0 else []
            ended = [end_now(pid) for pid in pids if pid]
            return any(ended)
        pid = host.statuses()[kind]["pid"]
        return bool(pid) and end_now(pid)

    def wait(self) -> None:
        """WAIT, from the sources on: what was committed before is applied in all targets when it comes back."""
        for name, kind in (("near", "EXTRACT"), ("branch", "EXTRACT"), ("middle", "ER"), ("far", "REPLICAT")):
            self.hosts[name].run(f"WAIT {kind} *, SECONDS 200")

    def all_run(self) -> bool:
        """Whether each group does; a Replicat that has just been killed may not yet."""
        return all(row["status"] == "RUNNING" for host in self.hosts.values() for row in host.statuses().values())

    def state(self) -> str:
        """For a failure: INFO ALL and the log of each home."""
        parts = [self.note]
        for name, host in self.hosts.items():
            lines = (host.home / "ggserr.log").read_text().splitlines()
            told = [line for line in lines if "GGSCI command" not in line][-15:]
            parts += [f"--- {name}", host.run("INFO ALL", check=False).text, *told]
        return "\n".join(parts)

    def close(self) -> None:
        """End everything."""
        self.guard.kill_rest(patience=0)
        self.guard.dismiss()
        for process in self.replicats.values():
            process.wait()
        sweep()


VICTIMS = (
    *(f"{group} {home}" for group, home in EXTRACTS.items()),
    *(f"{group} {where[0]}" for group, where in PUMPS.items()),
    *REPLICATS,
    "COLLECTOR middle", "COLLECTOR far", "MANAGER middle", "MANAGER far",
)  # fmt: skip


@pytest.fixture(scope="module")
def urls(postgres16: PostgresServer, postgres18: PostgresServer) -> Iterator[dict[str, str]]:
    """Two sources and three targets, with the tables of each path."""
    servers = {"one": postgres16, "two": postgres16, "all": postgres18, "copy": postgres18, "beside": postgres18}
    made = {}
    for name, server in servers.items():
        server.start()
        server.sql(f'CREATE DATABASE "topology_{name}"')
        made[name] = server.url(f"topology_{name}")
        if name != "two":
            workload.create_tables(made[name])
        if name in ("two", "all"):
            with psycopg.connect(made[name], autocommit=True) as link:
                link.execute(BRANCH)
    yield made
    for name, server in servers.items():
        slots = f"pg_replication_slots WHERE database = 'topology_{name}'"
        wait_for(lambda: not server.sql(f"SELECT 1 FROM {slots} AND active"))  # noqa: B023
        server.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM {slots}")
        server.sql(f'DROP DATABASE "topology_{name}" WITH (FORCE)')


@pytest.fixture
def net(urls: dict[str, str]) -> Iterator[Net]:
    """All homes, everything running."""
    with folder() as homes:
        made = Net(homes, urls)
        try:
            made.create()
            workload.fill(urls["one"])
            made.start()
            yield made
        finally:
            made.close()


@pytest.mark.soak
def test_GG_03_a_middle_host_two_targets_two_sources_and_two_readers_of_a_trail(net: Net) -> None:
    """Each process is killed once, in random order and at random moments, under load; all targets end as their sources.

    No target ever shows a state that its source never had: two watchers look all the while. And WAIT tells the truth:
    each time it comes back, what was committed before is there, three stages away.
    """
    dice = random.Random(seed := int(os.environ.get("TOPOLOGY_SEED", "27")))
    net.note = f"seed {seed}"
    victims = dice.sample(VICTIMS, len(VICTIMS))
    with (
        Watcher(net.urls["copy"]) as copy,
        Watcher(net.urls["beside"]) as beside,
        Workload(net.urls["one"], rate=30, seed=dice.randrange(1000)) as load,
        Branch(net.urls["two"]) as branch,
    ):
        for watcher in (copy, beside):
            wait_for(lambda: bool(watcher.last and watcher.last.transfers), net.state)  # noqa: B023
        for victim in victims:
            done = load.transactions + dice.randrange(20)
            wait_for(lambda: load.transactions > done)  # noqa: B023
            branch.sell()
            wait_for(lambda: net.kill(victim), net.state)  # noqa: B023
        load.stop()
        wait_for(net.all_run, net.state)
        for _ in range(2):
            branch.sell()
            workload.large_transaction(net.urls["one"], 300)
            net.wait()
            _is_equal(net)
    assert copy.looks
    assert beside.looks
    assert not copy.faults
    assert not beside.faults


class Branch:
    """The second source's work: a few rows between one kill and the next."""

    def __init__(self, url: str) -> None:
        self._link = psycopg.connect(url)
        self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._link.close()

    def sell(self) -> None:
        """One transaction of all kinds of changes."""
        first = self._last + 1
        self._last += 20
        with self._link.transaction():
            rows = f"generate_series({first}, {self._last})"
            self._link.execute(f"INSERT INTO branch.sales SELECT n, 'thing', n FROM {rows} n".encode())
            self._link.execute("UPDATE branch.sales SET cents = cents + 1, id = -id WHERE id % 7 = 0 AND id > 0")
            self._link.execute("DELETE FROM branch.sales WHERE id % 11 = 3")


def _is_equal(net: Net) -> None:
    """At once: nobody waits here."""
    schemas = {"one": SCHEMA, "two": "branch"}
    for source, target in PATHS:
        tables = tables_of(net.urls[source], [schemas[source]])
        found = [compare(net.urls[source], net.urls[target], table) for table in tables]
        assert all(one.equal for one in found), "\n".join([*map(str, found), net.state()])
        assert sum(one.rows for one in found) > 0
