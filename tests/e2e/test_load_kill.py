"""A load beside changes while everything is killed: Replicat, Spark's JVM and workers, Extract, both servers.

Once the table is live it is emptied and loaded anew, so that kills meet all states of a load. The interleavings are the
model's (tests/property/test_load_model.py); what is real here are snapshots, commits, processes and crash recovery.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from demo.guard import Guard, end_now
from demo.patience import wait_for
from demo.pipeline import Host, PipelineError
from demo.ports import free_ports
from demo.servers import PostgresServer
from replicat.batches.scratch import sweep
from tests.support.pipelines import folder

pytestmark = [
    pytest.mark.e2e, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(0), pytest.mark.xdist_group("spark"),
]  # fmt: skip

KILLS = int(os.environ.get("LOAD_KILLS", "200"))
ROWS = 12_000
VICTIMS = ("replicat", "worker", "jvm", "extract", "worker", "target", "replicat", "jvm", "source", "worker")
EVERY = 8
"""After so many kills the load is let come to its end."""
LONGEST = 3.0
"""Seconds between two kills, at most: a Replicat takes about so long to begin."""


class Rig:
    """Two servers, a home with a Manager that starts again what died, and a table that is written to."""

    def __init__(self, host: Host, guard: Guard, source: PostgresServer, target: PostgresServer) -> None:
        self.host, self.guard = host, guard
        self.source, self.target = source, target

    @property
    def state(self) -> str:
        """Of the table; empty while nobody can say."""
        with suppress(PipelineError, ValueError):
            return "".join(one["state"] for one in self.host.json("INFO TABLES rep1"))
        return ""

    def told(self) -> str:
        """All that helps to see why it does not go on."""
        shown = [self.host.look(f"INFO {what}").out for what in ("ALL", "TABLES rep1", "EXTRACT ext1, SHOWCH")]
        asked = (
            "SELECT now(), pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn()",
            "SELECT slot_name, active, restart_lsn, confirmed_flush_lsn FROM pg_replication_slots",
            "SELECT pid, state, wait_event, xact_start, left(query, 80) FROM pg_stat_activity WHERE datname = 'shop'",
            "SELECT max(id), sum(kind) FROM item",
        )
        source = [str(self.source.sql(one, "shop")) for one in asked]
        threads = [thread.name for thread in threading.enumerate()]
        reports = [self.host.report("ext1")[-2000:], self.host.report("rep1")[-5000:]]
        return "\n".join([*shown, *source, str(threads), *reports])

    def kill(self, victim: str) -> bool:
        """SIGKILL it; False if it was not there."""
        if victim in ("source", "target"):
            server = self.source if victim == "source" else self.target
            server.kill()
            server.start()
            return True
        found = [pid for pid in self.guard.pids() if IS[victim](_command(pid))]
        return bool(found) and end_now(random.choice(found))

    def reload(self) -> None:
        """Load anew; whoever is down just now is waited for."""
        said = wait_for(self._reloaded, self.told, every=0.5)
        assert "emptied" in said

    def _reloaded(self) -> str:
        said = self.host.run("RELOAD TABLE public.item, REPLICAT rep1!", check=False)
        return said.out if "emptied" in said.out else ""

    def rows(self, server: PostgresServer) -> list[tuple[object, ...]]:
        """All of the table."""
        return server.sql("SELECT id, kind, name FROM item ORDER BY id", "shop")


IS: dict[str, Callable[[str], bool]] = {
    "replicat": lambda command: "-m replicat " in command,
    "extract": lambda command: "-m extract " in command,
    "jvm": lambda command: "SparkSubmit" in command,
    "worker": lambda command: "sparkdaemon" in command,
}


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    guard = Guard()
    options = {"wal_level": "logical"}
    with (
        folder() as place,
        PostgresServer(options=options).start() as source,
        PostgresServer(version=18).start() as target,
    ):
        for server in (source, target):
            server.sql("CREATE DATABASE shop")
        source.sql("CREATE TABLE item (id bigint PRIMARY KEY, kind int, name text)", "shop")
        source.sql(f"INSERT INTO item SELECT n, n % 7, repeat('old ', 20) FROM generate_series(1, {ROWS}) n", "shop")
        host = Host(place / "home", free_ports(1)[0], guard.environment)
        host.home.mkdir()
        try:
            there, here = f"TARGETDB '{target.url('shop')}'", f"SOURCEDB '{source.url('shop')}'"
            host.run("CREATE SUBDIRS")
            host.params("mgr", f"PORT {host.port}", "AUTORESTART ER *, RETRIES 5000, WAITSECONDS 0")
            host.params("ext1", "EXTRACT ext1", here, "EXTTRAIL ./dirdat/lt", "TABLE public.*;")
            host.params(
                "rep1", "REPLICAT rep1", there, here, "LOADCHUNK 250", "CHECKPOINTTABLE gg.chk",
                "MAP public.*, TARGET public.*;",
            )  # fmt: skip
            host.run(
                "START MANAGER", f"DBLOGIN {here}", "ADD TRANDATA public.*", "ADD EXTRACT ext1, TRANLOG, BEGIN NOW",
                "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1", "REGISTER EXTRACT ext1", "START EXTRACT ext1",
                f"DBLOGIN {there}", "ADD CHECKPOINTTABLE gg.chk",
                "ADD REPLICAT rep1, EXTTRAIL ./dirdat/lt, CHECKPOINTTABLE gg.chk",
                "INSTANTIATE REPLICAT rep1, CREATE", "START REPLICAT rep1",
            )  # fmt: skip
            yield Rig(host, guard, source, target)
        finally:
            host.run("STOP ER *", "STOP MANAGER!", check=False)
            guard.kill_rest()
            guard.dismiss()
            sweep()


@contextmanager
def writing(server: PostgresServer) -> Iterator[None]:
    """Inserts, updates, key changes and deletes, one small transaction after the other, over the server's crashes."""
    done, dice = threading.Event(), random.Random(5)

    def write() -> None:
        new = ROWS
        while not done.is_set():
            with suppress(psycopg.Error), psycopg.connect(server.url("shop"), autocommit=True) as conn:
                while not done.wait(0.02):
                    new += 1
                    one, other = dice.randrange(1, ROWS), dice.randrange(1, ROWS)
                    conn.execute(f"INSERT INTO item VALUES ({new}, 1, 'new')".encode())
                    conn.execute(f"UPDATE item SET kind = kind + 1, name = 'now' WHERE id = {one}".encode())
                    conn.execute(f"UPDATE item SET id = -id WHERE id = {other}".encode())
                    conn.execute(f"DELETE FROM item WHERE id = {-dice.randrange(1, ROWS)}".encode())

    writer = threading.Thread(target=write, name="writer")
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


def test_GG_01_DB_12_a_load_is_killed_at_random(rig: Rig) -> None:
    """Nothing lost, nothing doubled; and the kills met tables that were copied, that caught up, and that were live."""
    dice, met = random.Random(28), Counter[str]()
    with writing(rig.source):
        for number in range(KILLS):
            if number % EVERY == EVERY - 1:
                wait_for(lambda: rig.state == "live", rig.told, every=0.5)
            time.sleep(dice.random() * LONGEST)
            state = rig.state
            wait_for(lambda n=number: rig.kill(VICTIMS[n % len(VICTIMS)]), rig.told)
            met[state] += 1
            if state == "live":
                rig.reload()
    wait_for(lambda: rig.state == "live", rig.told, every=1.0)
    wait_for(
        lambda: rig.rows(rig.target) == rig.rows(rig.source),
        rig.told, every=1.0,
    )  # fmt: skip
    print(f"{KILLS} kills: {dict(met)}")
    assert met["copying"] > KILLS // 10 and met["live"] >= KILLS // EVERY, met
