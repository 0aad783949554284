"""A source that is written to, its Extract and a Replicat that loads, all in the test's process and turn by turn.

Rule: nothing happens unless the test says so, so any crash and any order can be set up; the databases are real ones.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

from demo.patience import PATIENCE
from extract.admin import answer
from replicat.load.group import LoadingGroup
from replicat.load.instantiating import InstantiateOrder, instantiate_group
from replicat.load.loadtables import LIVE, LoadState, LoadTables, TableRow
from replicat.load.reloading import reload_group, shapes_of
from replicat.load.rounds import LoadSettings
from replicat.run.replicat import Replicat
from replicat.targets.contract import Target, TargetSettings
from replicat.targets.kinds import admin_for, kind_of
from tests.support.homes import make_home
from tests.support.replicat_bench import REG, Bench
from trails.position import TrailName
from trails.record import TableDef
from trails.runtime.home.home import Home
from trails.runtime.language.params import Pattern


class Captured(Protocol):
    """A source, and the trail that its Extract writes."""

    url: str

    @property
    def trail(self) -> TrailName: ...


class LoadBench(Bench):
    """From tables of one schema of a source, `schema_there`, to tables of the same name in any target."""

    def __init__(
        self, folder: Path, capture: Captured, url: str, schema: str, *, rows: int = 100, tasks: int = 2,
        schema_there: str = "public",
    ) -> None:  # fmt: skip
        super().__init__(folder, url, schema, feed=False)
        self.capture = capture
        self.trail = capture.trail
        self.there = schema_there
        self.maps = f"MAP {schema_there}.*, TARGET {schema}.*;"
        self.rows, self.tasks = rows, tasks
        self.rate = 0
        self.turn = 0.0
        self.pipes = True
        self.process: Replicat | None = None
        admin_for(url).add_row_table(url, self.table)
        self.tables = LoadTables(kind_of(url), self.table, REG.name, REG.group_key)

    def options(self, target: Target) -> dict[str, Any]:
        """See Bench."""
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        settings = LoadSettings(
            self.capture.url, TargetSettings(self.url, self.table, "REP1", 77) if self.pipes else None, self.table,
            self.tasks, self.rows, self.rate, str(scratch), self.turn,
        )  # fmt: skip
        return {"load": settings, "warn": self.notes.append}

    def describe(self, table: str) -> TableDef:
        """A source table as the source tells it."""
        return TableDef.from_wire(self._told(table)[0]["definition"])

    def instantiate(self, *names: str, behind: tuple[str, ...] = ()) -> None:
        """Tables to be loaded, as INSTANTIATE writes them down."""
        with admin_for(self.url).statements(self.url) as run:
            if not run(*self.tables.there()):
                for statement in self.tables.create():
                    run(statement)
                run(*self.tables.add_load())
            for name in names:
                row = TableRow(f"{self.there}.{name}", f"{self.schema}.{name}", self.describe(name), behind=behind)
                run(*self.tables.add_table(row))

    def command(self, table: str, **options: bool) -> list[dict[str, Any]]:
        """INSTANTIATE, as ggsci has it done for a group that does not run."""
        order = InstantiateOrder(pattern=self._pattern(table), **options)
        return list(instantiate_group(self._home(), self._group(), self._told(table), order)["tables"])

    def reload(self, table: str, **changed: Any) -> list[dict[str, Any]]:
        """RELOAD TABLE, as ggsci has it done beside the process. `changed`: of the Replicat's parameters."""
        home, group, pattern = self._home(), self._group(**changed), self._pattern(table)
        shapes = shapes_of(home, group, pattern)
        return list(reload_group(home, group, self._told(table), shapes, pattern)["tables"])

    def _home(self) -> Home:
        return make_home(self.folder / "home")

    def _group(self, **changed: Any) -> LoadingGroup:
        params = self.params()
        for name, value in {"source_url": self.capture.url, **changed}.items():
            object.__setattr__(params, name, value)
        return LoadingGroup(params, self.target(), self.tables, REG.name, self.trail)

    def _pattern(self, table: str) -> Pattern:
        return Pattern(f'{self.there}."{table}"')

    def _told(self, table: str) -> list[Any]:
        asked = {"verb": "describe_tables", "url": self.capture.url, "pattern": str(self._pattern(table))}
        reply = answer(asked)
        assert reply["ok"], reply
        return list(reply["tables"])

    def state(self) -> LoadState:
        """What the target's tables say."""
        with admin_for(self.url).statements(self.url) as run:
            return self.tables.read(run)

    def states(self) -> dict[str, str]:
        """Of each source table."""
        return {row.source.removeprefix(f"{self.there}."): row.state for row in self.state().tables}

    def start(self) -> Replicat:
        """A Replicat's next life."""
        self.process = self.replicat()
        return self.process

    def kill(self) -> None:
        """As SIGKILL: what is open is lost with the connection."""
        assert self.process is not None
        self.process._target.close()
        self.process._rounds.drop()
        self.process = None

    def step(self, number: int = 1) -> None:
        """So many turns of its loop."""
        assert self.process is not None
        for _ in range(number):
            self.process.step()

    def until(self, done: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Turns until something is so."""
        assert self.process is not None
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, (self.states(), self.notes[-5:])
            if not self.process.step():
                time.sleep(0.002)

    def all_done(self) -> bool:
        """Whether every table is live, and nothing waits to be applied."""
        assert self.process is not None
        pipeline = self.process._pipeline
        return set(self.states().values()) == {LIVE} and pipeline is not None and pipeline.at_end


class Writer:
    """Changes a table of (id bigint, v text) at random, key changes among them, one transaction after the other."""

    def __init__(self, url: str, table: str, seed: int, keys: int) -> None:
        self.random = random.Random(seed)
        self.table, self.keys = table, keys
        self.conn = psycopg.connect(url, autocommit=True)

    def write(self, transactions: int = 1) -> None:
        """So many transactions of a few changes."""
        for _ in range(transactions):
            with self.conn.transaction():
                for _ in range(self.random.randint(1, 4)):
                    self._one()

    def _one(self) -> None:
        key, new, value = self.random.randrange(self.keys), self.random.randrange(self.keys), self.random.random()
        match self.random.randrange(5):
            case 0:
                self.conn.execute(f"DELETE FROM {self.table} WHERE id = %s", [key])
            case 1:
                self.conn.execute(
                    f"UPDATE {self.table} SET id = %s WHERE id = %s "
                    f"AND NOT EXISTS (SELECT FROM {self.table} WHERE id = %s)",
                    [new, key, new],
                )
            case _:
                self.conn.execute(
                    f"INSERT INTO {self.table} VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = excluded.v",
                    [key, f"{value}"],
                )

    def close(self) -> None:
        """Disconnect."""
        self.conn.close()


@contextmanager
def writing(url: str, table: str, seed: int, keys: int) -> Iterator[Writer]:
    """A writer, closed in the end."""
    writer = Writer(url, table, seed, keys)
    try:
        yield writer
    finally:
        writer.close()
