"""`python -m demo.loadsoak [--kills 200]`: tables are loaded while applications write, and everything is killed.

Round by round: four new tables with rows (keys of a number, a uuid, a text and two columns), an INSTANTIATE, and then
kills at random until all are live: Spark's JVM, its Python workers, Replicat, Extract, pump, Collector, Managers, both
servers; now and then a worker is frozen. At the end each table must be equal, row by row.
Exit codes: 0 they are, 1 something is not, 2 it can't run here.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from demo.__main__ import make_servers, prepare
from demo.embedded import ServerError
from demo.guard import end_now
from demo.patience import PATIENCE, WaitError, wait_for
from demo.pipeline import Options, Pipeline, PipelineError
from demo.screen import Screen
from demo.servers import PostgresServer

SCHEMA = "soak"
ROUND_SECONDS = 900.0
SPARK = {"jvm": "org.apache.spark.deploy.SparkSubmit", "worker": "replicat.work.sparkdaemon"}
VICTIMS = {
    "replicat": 3, "jvm": 2, "worker": 4, "freeze": 1, "extract": 1, "pump": 1, "collector": 1, "target manager": 1,
    "source server": 1, "target server": 1,
}  # fmt: skip
"""What is killed, and how often beside the others."""
KEYS = {
    "number": ("id bigint", "n"),
    "uuid": ("id uuid", "md5(n::text)::uuid"),
    "text": ('id text COLLATE "C"', "'key ' || md5(n::text)"),
    "two": ("id int, part text", "n % 97, 'part ' || n"),
}
"""Kinds of keys: the columns, and their values of row n."""


def names(round_: int) -> dict[str, str]:
    """The round's tables, and the kind of key of each."""
    return {f"{SCHEMA}.{kind}{round_}": kind for kind in KEYS}


def make(url: str, round_: int, rows: int) -> None:
    """The round's tables, filled."""
    with psycopg.connect(url, autocommit=True) as conn:
        for table, kind in names(round_).items():
            columns, values = KEYS[kind]
            key = ", ".join(column.split()[0] for column in columns.split(", "))
            conn.execute(
                f"CREATE TABLE {table} ({columns}, code text, amount numeric(12,2), seen timestamptz, note text,"
                f" PRIMARY KEY ({key}))".encode()
            )
            conn.execute(f"CREATE INDEX ON {table} (code)".encode())
            conn.execute(
                f"INSERT INTO {table} SELECT {values}, 'c' || n, n / 7.0, now(), repeat('x', n % 150)"
                f" FROM generate_series(1, {rows}) n".encode()
            )


@dataclass(slots=True)
class Writer:
    """An application: small transactions over all tables of the rounds, and it rides out a server's death."""

    url: str
    rows: int
    dice: random.Random
    tables: dict[str, str] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)
    transactions: int = 0
    new: int = 10_000_000

    def run(self) -> None:
        """Until `done`."""
        while not self.done.wait(0.1):
            with suppress(psycopg.OperationalError), psycopg.connect(self.url) as conn:
                while not self.done.wait(0.02):
                    for statement in self._transaction():
                        conn.execute(statement.encode())
                    conn.commit()
                    self.transactions += 1

    def _transaction(self) -> list[str]:
        found = []
        for table, kind in self.dice.sample(sorted(self.tables.items()), min(2, len(self.tables))):
            self.new += 1
            mine, fresh = (re.sub(r"\bn\b", str(n), KEYS[kind][1]) for n in (self.dice.randint(1, self.rows), self.new))
            key = "(id, part)" if kind == "two" else "id"
            row, new = (f"({text})" if kind == "two" else text for text in (mine, fresh))
            found += self.dice.choice(
                [
                    [f"UPDATE {table} SET amount = coalesce(amount, 0) + 1, note = 'w{self.new}' WHERE {key} = {row}"],
                    [f"DELETE FROM {table} WHERE {key} = {row}", f"INSERT INTO {table} VALUES ({fresh}, 'new', 1)"],
                    [f"UPDATE {table} SET {key} = {new} WHERE {key} = {row}"],
                    [f"DELETE FROM {table} WHERE {key} = {row}", f"INSERT INTO {table} VALUES ({mine}, 'again', 2)"],
                ]
            )
        return found


class LoadSoak:
    """One run."""

    def __init__(
        self, pipeline: Pipeline, servers: list[PostgresServer], screen: Screen, dice: random.Random, rows: int
    ) -> None:
        self.pipeline = pipeline
        self.servers = dict(zip(("source server", "target server"), servers, strict=True))
        self.screen = screen
        self.dice = dice
        self.kills: Counter[str] = Counter()
        self.last = ""
        """What INSTANTIATE said last."""
        self.writer = Writer(servers[0].url(), rows, dice)

    def run(self, kills: int) -> None:
        """Rounds until so many kills are done; then nothing is killed, and all must become equal."""
        thread = threading.Thread(target=self.writer.run)
        with self.screen.phase("Load") as line:
            thread.start()
            try:
                round_ = 0
                while self.kills.total() < kills:
                    round_ += 1
                    self._round(round_, kills, line.update)
            finally:
                self.writer.done.set()
                thread.join()
        with self.screen.phase("Compare") as line:
            for host in (self.pipeline.source, self.pipeline.target):
                host.run("START MANAGER", check=False)
                host.run("START ER *", check=False)
            found = self.pipeline.wait_until_equal([SCHEMA], timeout=PATIENCE)
            rows = sum(table.rows for table in found)
            line.update(f"{self.writer.transactions} transactions, {rows} rows in {len(found)} tables, all equal")

    def _round(self, round_: int, kills: int, tell: Callable[[str], None]) -> None:
        make(self.servers["source server"].url(), round_, self.writer.rows)
        self.writer.tables.update(names(round_))
        wait_for(lambda: self._instantiated(round_), lambda: f"INSTANTIATE is not taken\n{self.last}", every=1.0)
        end = time.monotonic() + ROUND_SECONDS
        while not self._live(round_):
            if time.monotonic() > end:
                raise PipelineError(f"round {round_} is not live in time\n{self.pipeline.state()}")
            if self.kills.total() < kills:
                self._kill()
            tell(f"round {round_}, {self.kills.total()} kills: {dict(self.kills)}")
            time.sleep(self.dice.choice([0.2, 1, 2, 4, 8]))

    def _instantiated(self, round_: int) -> bool:
        """Without stopping if it can be so, else stopped, as the command says."""
        login = f"DBLOGIN TARGETDB {self.pipeline.target_url}"
        tables = [login, *(f"INSTANTIATE REPLICAT REP1, TABLE {table}, CREATE" for table in names(round_))]
        target = self.pipeline.target
        # A row of a table that was not there yet may have come before it, and ended Replicat.
        target.run(*tables, "START REP1", check=False, timeout=PATIENCE)
        if not self._known(round_):
            target.run("STOP REP1!", check=False)
            self.last = target.run(*tables, "START REP1", check=False, timeout=PATIENCE).text
        return self._known(round_)

    def _states(self) -> dict[str, str]:
        """Of each table; none while the target is away. Raises PipelineError where a load has failed."""
        found = self.pipeline.target.run("INFO TABLES REP1 --json", check=False, timeout=PATIENCE)
        states = {one["source"]: one["state"] for one in json.loads(found.out)} if found.code == 0 else {}
        if "failed" in states.values():
            raise PipelineError(f"a table failed\n{self.pipeline.target.look('INFO TABLES REP1').text}")
        return states

    def _known(self, round_: int) -> bool:
        return set(names(round_)) <= set(self._states())

    def _live(self, round_: int) -> bool:
        states = self._states()
        return all(states.get(table) == "live" for table in names(round_))

    def _kill(self) -> None:
        victim = self.dice.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        if self._killed(victim):
            self.kills[victim] += 1

    def _killed(self, victim: str) -> bool:
        if victim in self.servers:
            self.servers[victim].kill()
            time.sleep(self.dice.random() * 3)
            self.servers[victim].start()
            return True
        if victim == "freeze":
            return self._frozen()
        if victim in SPARK:
            return any(end_now(pid) for pid in self._spark(victim)[:1])
        killed = self.pipeline.kill(victim) is not None
        if victim.endswith("manager"):
            self.pipeline.host_of(victim).run("START MANAGER", check=False)
        return killed

    def _spark(self, what: str) -> list[int]:
        found = []
        for pid in self.pipeline.guard.pids():
            with suppress(OSError):
                if SPARK[what].encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        self.dice.shuffle(found)
        return found

    def _frozen(self) -> bool:
        """A worker stands still for some seconds, wherever it is; others may have done its chunk by then."""
        for pid in self._spark("worker")[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self.dice.choice([1.0, 6.0]))
                os.kill(pid, signal.SIGCONT)
                return True
        return False


def run(folder: Path, kills: int, rows: int, seed: int, screen: Screen) -> int:
    """Prepare, load under kills, compare, stop everything."""
    prepare(folder)
    with ExitStack() as stack:
        servers = make_servers(folder)
        for server in servers:
            stack.callback(server.stop)
            server.start()
        with psycopg.connect(servers[0].url(), autocommit=True) as conn:
            conn.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        with psycopg.connect(servers[1].url(), autocommit=True) as conn:
            conn.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        urls = [server.url() for server in servers]
        options = Options(
            tables=(f"{SCHEMA}.*",), megabytes=20, checkpoint_seconds=2, restart_seconds=1,
            replicat=(f"SOURCEDB {urls[0]}", f"LOADCHUNK {max(100, rows // 12)}", "LOADTASKS 2"),
        )  # fmt: skip
        pipeline = Pipeline(folder, urls[0], urls[1], options, servers=[server.data for server in servers])
        stack.callback(pipeline.close)
        with screen.phase("Set up") as line:
            line.update(f"two servers, two homes; seed {seed}")
            make(urls[0], 0, 1)
            pipeline.create()
            pipeline.target.run(f"DBLOGIN TARGETDB {urls[1]}", "INSTANTIATE REPLICAT REP1, CREATE")
            pipeline.start()
        soak = LoadSoak(pipeline, servers, screen, random.Random(seed), rows)
        soak.writer.tables.update(names(0))
        soak.run(kills)
    screen.say(f"\nEQUAL after {soak.kills.total()} kills: {dict(soak.kills)}")
    return 0


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m demo.loadsoak", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, default=Path("loadsoak-homes"), help="where homes and servers are kept")
    parser.add_argument("--kills", type=int, default=200, help="how many")
    parser.add_argument("--rows", type=int, default=60_000, help="rows of each table")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="repeat a run's choices")
    given = parser.parse_args(argv)
    screen = Screen()
    try:
        return run(given.folder, given.kills, given.rows, given.seed, screen)
    except (PipelineError, WaitError) as error:
        screen.say(f"\nFAILED: {error}")
        return 1
    except ServerError as error:
        screen.say(f"\nThe soak can't run here: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
