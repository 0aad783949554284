"""One row of the target made what the source has, in an open transaction that holds the group's checkpoint row.

    the source has it    the target has              written
    yes                  nothing                     INSERT
    yes                  another row                 UPDATE, so that columns that only the target has stay
    no                   a row                       DELETE
    yes                  its key in another form     that row moves to the key, and takes those columns along
    as the target        the same                    nothing

Rule: it is written as Replicat writes a change of that row: strict, by the same steps. Then it is read again, and must
be the source's row; else it is undone, as is what the target refuses. Each row is done or undone by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from replicat.compare.ranges import Key, Pair
from replicat.model.plan import TablePlan
from replicat.model.target import Bag, RefusedError, Work
from replicat.targets.contract import Target
from replicat.work.conflicts.comparing import same
from replicat.work.workers import Worker, result_of, worker_of
from trails.errors import OperatorError
from trails.record import Image, Value

REPAIRED, EQUAL_NOW, KEPT = "repaired", "equal by now", "not repaired"
Outcome = tuple[str, str]
"""What became of a row, and why."""


@dataclass(frozen=True, slots=True)
class RowJob:
    """A row to be repaired. `row`: the source's, None if it has none; `base`: the key that the target has it at."""

    key: Key
    row: tuple[Value, ...] | None
    base: Key | None = None

    @property
    def keys(self) -> tuple[Key, ...]:
        """Those that it is about."""
        return (self.key,) if self.base is None else (self.key, self.base)


class RowRepair:
    """Repairs rows of one table, in the target's open transaction."""

    def __init__(self, target: Target, plan: TablePlan, pair: Pair) -> None:
        layout = replace(plan.layout, collisions=False, insert_missing=False)
        self._at = tuple(layout.columns.index(name) for name in layout.key)
        self._plan = TablePlan(plan.source, plan.target, layout, self._at)
        self._target = target
        names = [pair.target.columns[i].name for i in pair.source.key]
        self._order = [names.index(name) for name in layout.key]

    def do(self, job: RowJob) -> Outcome:
        """Repair one row."""
        place = self._target.mark()
        try:
            done = self._place(job) if job.base is None else self._move(job, job.base)
        except RefusedError as error:
            why = error.shown
        except OperatorError as error:
            why = str(error)
        else:
            return (REPAIRED if done else EQUAL_NOW), ""
        self._target.undo(place)
        return KEPT, why

    def _place(self, job: RowJob) -> bool:
        key = self._ordered(job.key)
        if None in key:
            raise self._refused("its key has a NULL, so nothing tells it from others")
        now = self._current(key)
        if now is not None and self._key(now) != key:
            if job.row is None:
                return False  # a row whose key only equals this one for the target
            raise self._refused("the target has a row whose key it takes for the same, in another form")
        if now == job.row:
            return False
        worker = worker_of(self._plan)
        if job.row is None:
            assert now is not None
            self._check_cascades()
            worker.delete(now)
        elif now is None:
            worker.insert(job.row)
        else:
            if self._plan.layout.rewrite:
                self._check_cascades()
            worker.update(job.row, None)
        self._write(worker, key, job.row)
        return True

    def _move(self, job: RowJob, base: Key) -> bool:
        """Where the target has rows at both keys, or none at the old one, each key is looked at by itself."""
        key, old = self._ordered(job.key), self._ordered(base)
        was, now = self._current(old), self._current(key)
        assert job.row is not None
        if was is None or self._key(was) != old or (now is not None and self._key(now) == key):
            gone = self._place(RowJob(base, None))
            return self._place(RowJob(job.key, job.row)) or gone
        self._check_cascades()
        worker = worker_of(self._plan)
        worker.update(job.row, was)
        self._write(worker, key, job.row)
        return True

    def _write(self, worker: Worker, key: Key, row: tuple[Value, ...] | None) -> None:
        result = result_of(self._plan, worker)
        assert not isinstance(result, Bag)
        self._target.apply((Work(rows=(result,)),), single=True, border=True)
        self._check(self._current(key), key, row)

    def _check(self, now: Image | None, key: Key, row: tuple[Value, ...] | None) -> None:
        """Whether a trigger, a rule or a conversion of the target's has made something else of it."""
        layout = self._plan.layout
        if now is None or row is None:
            if now is not row:
                raise self._refused("the target did not keep what was written: a trigger or rule there changes it")
            return
        zipped = zip(layout.columns, layout.logical, now, row, strict=True)
        other = [name for name, logical, mine, wanted in zipped if not same(logical, mine, wanted)]
        if other or self._key(now) != key:
            names = ", ".join(other or layout.key)
            raise self._refused(f"the target makes another value of column {names}: a trigger, or its type")

    def _check_cascades(self) -> None:
        if self._plan.layout.cascades:
            raise self._refused("a row deleted there takes rows of other tables along, which were not compared")

    def _current(self, key: Key) -> tuple[Value, ...] | None:
        """The target's row, locked."""
        found = self._target.current(self._plan.layout, key)
        return None if found is None else tuple(found)

    def _ordered(self, key: Key) -> Key:
        """A key of the pair in the order of the layout's."""
        return tuple(key[i] for i in self._order)

    def _key(self, row: Image) -> Key:
        return tuple(row[i] for i in self._at)

    def _refused(self, what: str) -> RefusedError:
        return RefusedError(self._plan.layout.full_name, what)
