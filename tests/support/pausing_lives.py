"""A random life of three tables: changes, orders, errors of one table, and deaths at any commit, in a seed's order."""

from __future__ import annotations

import random
from typing import Any

from tests.support.pausing import Died, PauseBench
from tests.support.replicat_trail import table
from trails.errors import OperatorError
from trails.record import Column, Op, TableDef

KEY = (Column("id", "integer", "integer", True), Column("a", "text", "text"))
KEYED = {name: TableDef("src", name, KEY) for name in ("kv", "kw")}
LOG = table("src", "log", "t")
LINES = ([], ["GROUPTRANSOPS 3"], ["MAXTRANSOPS 3"], ["GROUPTRANSOPS 2", "MAXTRANSOPS 4"])


class PausedLife:
    """`rows`: by keyed table what it must hold in the end; `log`: the rows of the table without a key."""

    def __init__(self, bench: PauseBench, seed: int) -> None:
        self.bench, self.random = bench, random.Random(seed)
        self.rows: dict[str, dict[str, str]] = {name: {} for name in KEYED}
        self.log: list[str] = []
        bench.lines = [*self.random.choice(LINES), "TABLEERROR (src.*, PAUSE)"]

    def live(self, steps: int = 40) -> None:
        """So many random things happen, then all is mended and resumed."""
        for _ in range(steps):
            if self.random.random() < 0.4:
                self.bench.dies = self.random.randrange(1, 7), self.random.random() < 0.5
            try:
                self._one()
            except Died:
                self.bench.process = None
            except OperatorError as error:  # an order that does not fit the state, as an operator may give it
                if "paused" not in str(error) and "resuming" not in str(error):
                    raise
        self.bench.dies = None
        for _ in range(60):
            self.bench.all()
            self.bench.sql(*(f"DELETE FROM @{name} WHERE a = 'evil'" for name in KEYED))
            behind = self.bench.states()
            if not behind:
                return
            for name in (name for name, state in behind.items() if state == "paused"):
                self.bench.order("RESUMETABLE", name)
        raise AssertionError(self.bench.rows())

    def found(self) -> tuple[dict[str, dict[str, str]], list[str]]:
        """What the target holds, as `rows` and the sorted log."""
        rows = {name: dict(self.bench.sql(f"SELECT id, a FROM @{name}")) for name in KEYED}
        return rows, sorted(t for (t,) in self.bench.sql("SELECT t FROM @log"))

    def _one(self) -> None:
        act, name = self.random.randrange(8), self.random.choice(("kv", "kw", "log"))
        if act < 4:
            self._transaction()
        elif act < 6:
            self.bench.order("PAUSETABLE" if act == 4 else "RESUMETABLE", f"src.{name}")
        elif act == 6:
            for _ in range(self.random.randrange(6)):
                self.bench.start().step()
        else:
            key = self.random.randrange(16)
            if name in KEYED and not self.bench.sql(f"SELECT 1 FROM @{name} WHERE id = {key}"):
                self.bench.sql(f"INSERT INTO @{name} VALUES ({key}, 'evil')")
            self.bench.all()

    def _transaction(self) -> None:
        if self.random.random() < 0.05:
            emptied = self.random.choice((["kv"], ["kv", "kw"]))
            for name in emptied:
                self.rows[name].clear()
            self.bench.feed.tx((Op.TRUNCATE, [KEYED[name] for name in emptied], 0))
            return
        number = self.random.choice((1, 2, 3, 12))
        pieces = self.random.choice((1, 2, 4)) if number > 3 else 1
        self.bench.feed.tx(*(self._change() for _ in range(number)), pieces=pieces)

    def _change(self) -> tuple[Any, ...]:
        name, key = self.random.choice(("kv", "kw", "log")), str(self.random.randrange(8))
        if name == "log":
            self.log.append(key)
            return Op.INSERT, LOG, [key]
        rows, value = self.rows[name], str(self.random.random())[:8]
        if key not in rows:
            rows[key] = value
            return Op.INSERT, KEYED[name], [key, value]
        old, kind = rows.pop(key), self.random.randrange(3)
        if kind == 0:
            return Op.DELETE, KEYED[name], [key, old]
        new = str(self.random.randrange(8, 16)) if kind == 1 else key
        new = key if new in rows else new
        rows[new] = value
        return Op.UPDATE, KEYED[name], [new, value], [key, old]
