"""A Replicat whose tables are paused and resumed, in the test's own process; it can die at each commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo.patience import PATIENCE
from replicat.load.pausedtable import PausedRow, PausedTable
from replicat.load.rounds import LoadSettings
from replicat.run.replicat import Replicat
from replicat.targets.contract import Target
from replicat.targets.kinds import admin_for, kind_of
from tests.support.replicat_bench import REG, Bench


class PauseBench(Bench):
    """`dies`: at which commit from now on the process dies, and whether that commit lands."""

    def __init__(self, folder: Path, url: str, schema: str) -> None:
        super().__init__(folder, url, schema)
        self.process: Replicat | None = None
        self.dies: tuple[int, bool] | None = None
        self.paused_table = PausedTable(kind_of(url), self.table, REG.name, REG.group_key)

    def options(self, target: Target) -> dict[str, Any]:
        """What a Replicat needs so that a table can be paused."""
        _mortal(self, target)
        return {"load": LoadSettings(table=self.table), "warn": self.notes.append}

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """In the target, `@` for its schema; the rows of the last one, each value as text."""
        found: list[tuple[Any, ...]] = []
        with admin_for(self.url).statements(self.url) as run:
            for statement in statements:
                found = run(statement.replace("@", f"{self.schema}."))
        return [tuple(None if value is None else str(value) for value in row) for row in found]

    def rows(self) -> dict[str, PausedRow]:
        """What the target says of paused tables, by the source's name."""
        with admin_for(self.url).statements(self.url) as run:
            there = run(*self.paused_table.there())
            return {one.source: one for one in self.paused_table.read(run)} if there else {}

    def states(self) -> dict[str, str]:
        """The same, the state alone."""
        return {name: one.state for name, one in self.rows().items()}

    def start(self) -> Replicat:
        """The process, or its next life."""
        if self.process is None:
            self.process = self.replicat()
        return self.process

    def kill(self) -> None:
        """As SIGKILL: what is open is lost with the connection."""
        assert self.process is not None
        self.process._target.close()
        self.process._turns.drop()
        self.process = None

    def order(self, verb: str, table: str, **args: Any) -> dict[str, Any]:
        """As ggsci sends it to the process."""
        return self.start().command(verb, {"table": table, **args})

    def all(self) -> None:
        """Apply all there is, through any death; the checkpoint is saved too."""
        self.until(self._is_idle)

    def _is_idle(self) -> bool:
        pipeline = self.start()._pipeline
        row = self.start()._row
        return pipeline is not None and pipeline.at_end and self.start()._pausing.next(row) is None

    def until(self, done: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Turns until something is so."""
        deadline = time.monotonic() + seconds
        while True:
            assert time.monotonic() < deadline, (self.states(), self.notes[-5:])
            try:
                process = self.start()
                if not process.step() and done():
                    process.flush()
                    return
            except Died:
                self.process = None

    def stop(self) -> None:
        """As STOP does."""
        if self.process is not None:
            self.process.flush()
            self.process.close()
            self.process = None


class Died(BaseException):
    """The process is no more."""


def _mortal(bench: PauseBench, target: Target) -> None:
    """Its commits count, and one of them is the last."""
    commit, flush = target.commit, target.flush

    def counted(does: Callable[..., None]) -> Callable[..., None]:
        def do(*args: Any) -> None:
            if bench.dies is None:
                does(*args)
                return
            left, lands = bench.dies
            bench.dies = (left - 1, lands) if left > 1 else None
            if left > 1 or lands:
                does(*args)
            if left <= 1:
                target.close()
                raise Died

        return do

    target.commit = counted(commit)  # type: ignore[method-assign]
    target.flush = counted(flush)  # type: ignore[method-assign]
