"""The model's steps (loadmodel.py) done by the product's own code, on a real target: what is there must be the same.

Load, its tables, the checkpoint row, the judge of Replicat's worker, what a snapshot must see and INSTANTIATE are the
product's. The source is the model's, as its snapshots are what the model says. The target is an SQLite file: others can
read while a transaction is open, and a COMMIT on its way is a transaction of a process that is gone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from extract.admin import answer
from replicat.ddl.shapes import MappedTable
from replicat.load.chunk import Must
from replicat.load.group import LoadingGroup
from replicat.load.instantiating import InstantiateOrder, Instantiation, LoadWish
from replicat.load.load import Load
from replicat.load.loadtables import CATCHING_UP, ChunkRow, LoadTables
from replicat.model.again import PlaceLostError
from replicat.model.loading import INT, LoadAgainError, Seen
from replicat.model.plan import TablePlan
from replicat.model.target import CheckpointRow
from replicat.params import ReplicatParams
from replicat.reading.contract import KeyBounds
from replicat.targets.contract import Target, TargetSettings
from replicat.targets.kinds import admin_for, kind_of, open_target
from replicat.work.builder import Builder
from tests.support.loadmodel import COPYING, UNKNOWN, LoadModel, State, Task
from trails.described import DescribedTable
from trails.position import Position, TrailName
from trails.record import BEGIN, COMMIT, DELETE, INSERT, TRUNCATE, UPDATE
from trails.runtime.language.params import parse_text
from trails.testing import Crash

CHECKPOINTS = ("main", "chk")
FIRST_XID = 1000
ID = b"t" * 16
GROUP = ("REP1", 77)
KV = "CREATE TABLE kv (id INTEGER NOT NULL PRIMARY KEY, v INTEGER NOT NULL)"


@dataclass(eq=False)
class RealProcess:
    """A Replicat's target, load and row."""

    target: Target
    load: Load
    row: CheckpointRow


class RealLoad:
    """The real target of a scenario; `do` takes the same step as the model."""

    def __init__(self, folder: Path, model: LoadModel) -> None:
        self.model = model
        self.url = f"sqlite:///{folder}/there.db"
        source = f"sqlite:///{folder}/here.db"
        for url in (self.url, source):
            with admin_for(url).statements(url) as run:
                run(KV)
        self.admin = admin_for(self.url)
        self.admin.add_row_table(self.url, CHECKPOINTS)
        told = answer({"verb": "describe_tables", "url": source, "pattern": "main.kv"})
        self.table = DescribedTable.from_wire(told["tables"][0])
        self.tables = LoadTables(kind_of(self.url), CHECKPOINTS, *GROUP)
        text = f"REPLICAT rep1\nTARGETDB '{self.url}'\nSOURCEDB '{source}'\nMAP main.*, TARGET main.*;\n"
        self.params = ReplicatParams.from_statements(parse_text(text, "rep1.prm"))
        self.processes: list[RealProcess | None] = [None] * model.c.processes
        self.gone: list[RealProcess] = []
        """Whose COMMIT is on its way."""
        self._told: list[RealProcess] = []
        self.tasks: list[tuple[Task, int, ChunkRow]] = []
        """The model's task, the fence under which it began, and how its chunk is marked."""
        if model.c.known:
            self._instantiate(model.initial())
        else:
            self._look(0)

    def close(self) -> None:
        """All connections."""
        for one in [*self.processes, *self.gone]:
            if one is not None:
                one.target.close()

    # Looking

    def shows(self) -> tuple[str, tuple[bool, ...], tuple[tuple[int, int], ...], int]:
        """The table's state, which chunks are copied, its rows, and the group's place, as the model has them."""
        with self.admin.statements(self.url) as run:
            rows = tuple((int(key), int(value)) for key, value in run("SELECT id, v FROM kv ORDER BY id"))
            place = [int(rba) for (rba,) in run("SELECT rba FROM chk WHERE group_name = 'REP1' AND group_key = 77")]
            state = self.tables.read(run) if run(*self.tables.there()) else None
        chunks = tuple(bool(chunk.seen) for chunk in state.chunks) if state else ()
        table = state.tables[0].state if state and state.tables else UNKNOWN
        return COPYING if table == CATCHING_UP else table, chunks, rows, place[0] if place else 0

    @staticmethod
    def expected(s: State) -> tuple[str, tuple[bool, ...], tuple[tuple[int, int], ...], int]:
        """The same of the model."""
        return s.known.state, tuple(chunk is not None for chunk in s.known.chunks), s.rows, s.known.place

    def must_agrees(self, s: State) -> None:
        """Whether a snapshot of now sees what it must, and whether a table may be live, is the same to both."""
        for at, known in enumerate(s.processes):
            process = self.processes[at]
            if known is None or process is None or known.state != COPYING:
                continue
            if None not in known.chunks:
                passed = all(chunk is not None and known.place >= chunk.past for chunk in known.chunks)
                assert process.load._is_past(process.load.tables[0], process.row.position) == passed
            must: Must = process.load.must(process.row)
            lacks = bool((known.left_out | known.below) & ~self.model.seen(s))
            assert bool(must.lacks(self._snapshot(s))) == lacks, (must, s)

    def _snapshot(self, s: State) -> Seen:
        hidden = {self._xid(s, number) for number, shown in enumerate(s.shown) if shown == 1}
        top = FIRST_XID + len(s.log)
        return Seen("xid", "", min(hidden, default=top), top, frozenset(hidden))

    @staticmethod
    def _xid(s: State, number: int) -> int:
        return FIRST_XID + s.log.index(number)

    def refuses(self, s: State) -> None:
        """Who has missed something moves nothing, and is told so."""
        for at, known in enumerate(s.processes):
            process = self.processes[at]
            if known is None or process is None or s.sent or process in self._told or self.model.is_told(s, known):
                continue
            self._told.append(process)
            move = process.load.write if process.load.there else partial(process.target.begin, process.row)
            with pytest.raises(PlaceLostError):
                move(process.row)
            process.target.close()

    # Steps

    def do(self, label: str, before: State, after: State) -> None:
        """The step that took the model from one state to the other."""
        if found := re.fullmatch(r"process (\d) (looks|looks anew)", label):
            self._look(int(found[1]))
        elif found := re.fullmatch(r"process (\d) is cut off: (.*)", label):
            self._cut(int(found[1]), found[2], before)
        elif found := re.fullmatch(r"process (\d) (.*)", label):
            self._transaction(self._of(int(found[1])), found[2], before)
        elif found := re.fullmatch(r"chunk (\d) is read", label):
            self._read(int(found[1]), before, after)
        elif found := re.fullmatch(r"chunk (\d) (commits|is rolled back)", label):
            assert self._commit(before, after) == (found[2] == "commits"), label
        elif label in ("the COMMIT lands", "the COMMIT is lost"):
            self._end(landed=label.endswith("lands"))
        elif label == "INSTANTIATE":
            self._instantiate(before)
        else:
            assert re.fullmatch(r"T\d is (logged|seen)", label), label

    def _of(self, at: int) -> RealProcess:
        found = self.processes[at]
        assert found is not None
        return found

    def _open(self) -> Target:
        target = open_target(TargetSettings(self.url, CHECKPOINTS, *GROUP, "/home"))
        target.connect()
        return target

    def _look(self, at: int) -> None:
        """As a Replicat that connects: the row first, then the load's tables."""
        old = self.processes[at]
        if old is not None:
            old.target.close()
        target = self._open()
        row = target.load_row()
        if row is None:
            row = CheckpointRow(Position(0, 0))
            target.add_row(row)
        load = Load(target, self.tables, lambda _: None, lambda _: None, lambda: 5, lambda *place: [place])
        load.branch = lambda: ""
        load.look()
        self.processes[at] = RealProcess(target, load, row)

    def _transaction(self, process: RealProcess, what: str, s: State) -> None:
        load, tables = process.load, process.load.tables
        if what == "plans":
            low = ((str(self.model.c.border),),) if self.model.c.border else ()
            load.plan(process.row, tables[0], KeyBounds((INT,), low))
        elif what == "says live":
            if tables[0].state != CATCHING_UP:
                load.done(process.row, tables[0])
            assert load.tend(process.row, process.row.position)
        elif what == "fails over":
            error = LoadAgainError("main.kv", ("main", "kv"), "its source failed over")
            load.begin_again(process.row, error, set())
        elif what == "begins anew":
            with_error = self._applied(process, s, 1) or self._applied(process, s, 2)
            assert with_error is not None, "no TRUNCATE comes"
            load.begin_again(process.row, with_error, set())
        else:
            assert self._applied(process, s, int(what.removeprefix("applies "))) is None

    def _applied(self, process: RealProcess, s: State, size: int) -> LoadAgainError | None:
        """A batch, as Replicat applies it; the error that a TRUNCATE of a table in load is, before anything is open."""
        target, load, row = process.target, process.load, process.row
        found = target.table("main", "kv")
        assert found is not None
        layout = found.layout(["id", "v"], ["id"], [])
        plan = load.judging(TablePlan("main.kv", "main.kv", layout, (0,)), self.table.definition)
        builder = Builder({ID: (plan,)})
        try:
            builder.add([ID], self._records(s, row.position.rba, size))
        except LoadAgainError as error:
            return error
        part = builder.finish()
        new = replace(row, position=Position(0, row.position.rba + size))
        target.begin(row, new)
        if load.there:
            load.check()
        target.apply(tuple(part.steps))
        load.left_out(part.waits)
        left_out = load.commit() if load.there else None
        target.commit()
        if load.there:
            load.committed(left_out)
        process.row = new
        return None

    def _records(self, s: State, place: int, size: int) -> list[Any]:
        found: list[Any] = []
        for number in s.log[place : place + size]:
            ops = self.model.c.txns[number]
            found.append((BEGIN, f"{place:020}", str(self._xid(s, number)), 0))
            found += [_record(op, number) for op in ops]
            found.append((COMMIT, len(ops)))
        return found

    def _cut(self, at: int, what: str, s: State) -> None:
        """The process has sent COMMIT."""
        process = self._of(at)
        database: Any = process.target.database  # type: ignore[attr-defined]
        finish = database.finish

        def send(*, durable: bool) -> None:
            database.finish = finish
            raise Crash(f"COMMIT is sent, {durable=}")

        database.finish = send
        try:
            self._transaction(process, what, s)
            raise AssertionError(f"{what}: no COMMIT was sent")
        except Crash:
            self.gone.append(process)
            self.processes[at] = None

    def _end(self, *, landed: bool) -> None:
        process = self.gone.pop()
        if landed:
            process.target.commit()
        process.target.close()

    def _read(self, number: int, before: State, after: State) -> None:
        (task,) = [task for task in after.tasks if task not in before.tasks] or after.tasks[-1:]
        at = next(at for at, one in enumerate(before.processes) if one is not None and one.state == COPYING
                  and one.chunks[number] is None and one.fence == task.fence)  # fmt: skip
        load = self._of(at).load
        chunk = load.chunks_of(load.tables[0].pair)[number]
        seen = str(self._snapshot(before))
        done = replace(chunk, seen=seen, past=str(Position(0, len(before.log))), rows=1)
        self.tasks.append((task, load.fence, done))

    def _commit(self, before: State, after: State) -> bool:
        """As a task that pipes: its rows, and then the two marks, or nothing."""
        left = list(after.tasks)
        (task,) = [one for one in before.tasks if one not in left or left.remove(one)]  # type: ignore[func-returns-value]
        found = next(one for one in self.tasks if one[0] == task)
        self.tasks.remove(found)
        _, fence, done = found
        rows = [
            row for row in self.model.source(before.log, task.copied.seen) if self.model.chunk_of(row[0]) == done.number
        ]
        target = self._open()
        try:
            with target.alone():
                for row in rows:
                    target.write("INSERT OR IGNORE INTO kv VALUES (?, ?)", row)
                marks = self.tables.set_chunk(done), self.tables.chunk_done(fence)
                if [target.write(*statement) for statement in marks] != [1, 1]:
                    raise Crash
        except Crash:
            return False
        finally:
            target.close()
        return True

    def _instantiate(self, s: State) -> None:
        """What INSTANTIATE changes once it has looked, of a table that is emptied."""
        target = self._open()
        trail = TrailName("/home/dirdat", "rt")
        group = LoadingGroup(self.params, target, self.tables, GROUP[0], trail)
        newest = FIRST_XID + len(s.log) - 1 if s.log else None
        source: Any = SimpleNamespace(newest=lambda: newest)
        try:
            known = {row.pair: row for row in group.state().tables}
            wish = LoadWish(self.table, MappedTable(self.params.maps[0], ("main", "kv")), target.table("main", "kv"))
            wish.row = known.get(wish.pair)
            Instantiation(group, [self.table], InstantiateOrder(truncate=True), source)._change([wish])
        finally:
            target.close()


def _record(op: Sequence[Any], number: int) -> Any:
    if op[0] == "T":
        return (TRUNCATE, (0,), 0)
    key = str(op[1])
    if op[0] == "d":
        return (DELETE, 0, (key, "0"))
    return (INSERT, 0, (key, str(number))) if op[0] == "i" else (UPDATE, 0, (key, str(number)), None)
