"""COMPARE ..., REPAIR: rows that are out of sync become what the source has, while changes are applied.

    1  the group's checkpoint row is noted, the rows are read from the source by a snapshot of which is known what it
       sees, and the row is waited for until it is past that
    2  one target transaction, a turn: it locks the checkpoint row, and reads in it how far the group is
    3  it searches the trail up to that place: a row with a change that the snapshot does not see is left for later
    4  it reads the others' rows in the target, writes what is not as it should be, and commits

Why that is right: a row that no change behind the snapshot is about is, at the place of 2, what the snapshot shows. And
the lock is the one that Replicat begins each of its transactions with: it is before the turn as a whole, or behind it.

Rule: a turn is short, as Replicat waits for it: few rows, half a second, and nobody's lock is waited for long. What is
not committed is not told as repaired. What can't be proved is not written.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from replicat.compare.comparing import PASSES
from replicat.compare.flight import Flight, Touched
from replicat.compare.pairing import Wish
from replicat.compare.ranges import Key, Pair, read
from replicat.compare.repairqueue import RepairQueue, jobs_of
from replicat.compare.rowrepair import KEPT, Outcome, RowJob, RowRepair
from replicat.load.chunk import SourceOf
from replicat.load.loadtables import LIVE, LoadTables
from replicat.load.pausedtable import PausedTable
from replicat.load.staging import opened
from replicat.model.again import ShapeChangedError
from replicat.model.target import CheckpointRow
from replicat.reading.contract import Range, Reader
from replicat.targets.contract import Target
from trails.errors import AwayError, GateError, OperatorError
from trails.record import Value

TURN_SECONDS = 0.5
LOCK_SECONDS = 1.0
"""So long a turn waits for what somebody else holds, and Replicat with it."""
PLACE_SECONDS = 30.0
"""So long it waits for the checkpoint row, while nothing waits for it."""
IDLE_SECONDS = 30.0
"""After so long the server ends a turn of which nothing is heard any more, if it can do so."""
MOST_BYTES = 32 << 20
"""Rows of the source that are held at once."""
SourceRows = dict[Key, tuple[Value, ...] | None]
"""The source's rows; None: it has none with that key."""


@dataclass(frozen=True, slots=True)
class Repairing:
    """How one REPAIR is done. `connection`: makes a target, not connected, for one turn."""

    source: SourceOf
    flight: Flight = field(repr=False)
    connection: Callable[[], Target]
    loads: LoadTables = field(repr=False)
    tell: Callable[[str], None] = lambda _line: None
    passes: int = PASSES
    paused: PausedTable | None = field(default=None, repr=False)

    def table(self, wish: Wish, wanted: Mapping[Range, Collection[Key]]) -> dict[Key, Outcome]:
        """What became of each of these rows of one table, which nothing speaks against (repairfit.py)."""
        every = [key for keys in wanted.values() for key in keys]
        outcomes: dict[Key, Outcome] = {
            key: (KEPT, "it differs in two ranges of keys") for key, number in Counter(every).items() if number > 1
        }
        why = "it changes all the time"
        idle = 0
        try:
            while idle < self.passes and (left := _left(wanted, outcomes)):
                before = len(outcomes)
                self._pass(wish, left, outcomes)
                idle = 0 if len(outcomes) > before else idle + 1
        except (GateError, ShapeChangedError) as error:
            why = str(error)
        return {key: outcomes.get(key, (KEPT, why)) for key in every}

    def _pass(self, wish: Wish, left: Mapping[Range, Collection[Key]], outcomes: dict[Key, Outcome]) -> None:
        """One look at the source, and turns for what was read."""
        assert wish.pair is not None
        self.tell(f"{wish.source}: {sum(map(len, left.values()))} rows are to be repaired")
        begin = self.flight.row()
        source = opened(self.source)
        try:
            snapshot = source.begin(wish.pair.source, begin.csn)
            rows = rows_of(source, wish.pair, left)
        finally:
            source.close()
        there = self.flight.wait(begin, snapshot.past)
        if there is None:
            raise OperatorError(self.flight.late(snapshot.past))
        touched = Touched.since(self.flight, begin, wish.pair, snapshot)
        touched.up_to(there)  # from here on the group is never further back: the snapshot's changes are applied
        queue = RepairQueue(jobs_of(rows, wish), outcomes)
        while (batch := queue.batch()) and touched.up_to(self.flight.row()) is not None:
            target = self.connection()
            target.connect()
            try:
                queue.done(self._turn(target, wish, batch, touched))
            except AwayError as error:  # a lock, or the connection: nothing of the turn is there, or all of it
                queue.lost(batch, str(error))
            finally:
                target.close()

    def _turn(
        self, target: Target, wish: Wish, batch: Sequence[RowJob], touched: Touched
    ) -> list[tuple[RowJob, Outcome | None]]:
        """What became of the first of these; None: a change of it may be on its way."""
        assert wish.pair is not None and wish.plan is not None
        done: list[tuple[RowJob, Outcome | None]] = []
        target.bound_waits(PLACE_SECONDS, IDLE_SECONDS)
        with target.alone():
            keys = touched.up_to(_locked(target))
            target.bound_waits(LOCK_SECONDS, IDLE_SECONDS)
            self._check_live(target, wish)
            repair = RowRepair(target, wish.plan, wish.pair)
            ends = time.monotonic() + TURN_SECONDS
            for job in batch:
                free = keys is not None and keys.isdisjoint(job.keys)
                done.append((job, repair.do(job) if free else None))
                if time.monotonic() > ends:
                    break
        return done

    def _check_live(self, target: Target, wish: Wish) -> None:
        """The load's row stays locked as well: no chunk is committed meanwhile, and no load begins. Nor is the table
        paused meanwhile, as that takes the checkpoint row.
        """
        behind = self.paused.read(target.read) if self.paused and target.read(*self.paused.there()) else ()
        if any(one.pair == (wish.source, wish.target) for one in behind):
            raise OperatorError("it was paused, and lacks changes", hint="RESUME TABLE, then COMPARE again")
        if not target.read(*self.loads.there()):
            return
        target.read(self.loads.locked())
        states = {row.pair: row.state for row in self.loads.read(target.read).tables}
        state = states.get((wish.source, wish.target), LIVE)
        if state != LIVE:
            raise OperatorError(f"its load is not done ({state})", hint="INFO TABLES shows how far it is")


def _locked(target: Target) -> CheckpointRow:
    """Where the group stands, and stays until the turn ends."""
    row = target.lock_row()
    if row is None:
        raise OperatorError("the group's row in the checkpoint table is gone", hint="INFO CHECKPOINTTABLE shows them")
    if row.split:
        raise OperatorError("a transaction larger than MAXTRANSOPS is applied in part", hint="COMPARE again later")
    if row.skip_until:
        raise OperatorError(
            f"START ordered to leave out what comes up to CSN {row.skip_until.lstrip('>=')}, and that is not reached",
            hint="COMPARE again later",
        )
    return row


def _left(wanted: Mapping[Range, Collection[Key]], outcomes: Mapping[Key, Outcome]) -> dict[Range, frozenset[Key]]:
    found = {part: frozenset(key for key in keys if key not in outcomes) for part, keys in wanted.items()}
    return {part: keys for part, keys in found.items() if keys}


def rows_of(source: Reader, pair: Pair, wanted: Mapping[Range, Collection[Key]]) -> SourceRows:
    """The source's rows with these keys, as its snapshot shows them; not all of them where they are large."""
    rows: SourceRows = {}
    size = 0
    for part, keys in wanted.items():
        found: SourceRows = {}
        more: set[Key] = set()
        for row in read(source, pair.source, part):
            key = pair.key_of(row)
            if key in keys and size >= MOST_BYTES:
                more.add(key)
            elif key in keys:
                found[key] = tuple(row)
                size += sum(len(value) for value in row if value)
        rows |= found | {key: None for key in keys if key not in found and key not in more}
        if size >= MOST_BYTES:
            break
    return rows
