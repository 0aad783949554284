"""REPLAY DISCARDS: a discard file's changes applied again, once what refused them is mended.

    a record                                            becomes
    that was replayed before, by anybody                nothing
    whose change may still come again from the trail    kept: START the group first
    whose target row is not as the change found it      kept: somebody was there since
    that the target refuses again                       kept, with the database's words
    of a transaction that was discarded whole           applied with all its records, or kept with all of them
    of such a one that the file has only a part of      kept (recorded.py)
    any other                                           applied: its change, and its row in the checkpoint table

Rule: a record is applied at most once, ever. It has a row of its own in the checkpoint table, found by what the record
says of its place (never by where it stands: files are moved, cut and joined), and moved in the very transaction of its
change. Records are taken in order, one transaction each (or one for all records of a transaction that was discarded
whole); what is kept can be replayed another time. Nothing is written to the file. How many rows are kept is said in
replayed.py. A dry run is one transaction that is rolled back: each record sees what those before it would do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from replicat.apply.recorded import INSERT, UPDATE, UPSERT, DiscardedUnit, Recorded, units
from replicat.apply.replayed import FREE, KEPT_ROWS, Replayed
from replicat.apply.resolving import key_before, key_of
from replicat.model.again import PlaceLostError
from replicat.model.plan import TablePlan
from replicat.model.target import Bag, CheckpointRow, Layout, Match, RefusedError, Step, TargetTable, Work
from replicat.params import ReplicatParams, exact_table
from replicat.targets.contract import Target, TargetSettings
from replicat.targets.kinds import open_target
from replicat.targets.sql import rowtable
from replicat.work.conflicts.comparing import same
from replicat.work.net.overlay import Overlay
from replicat.work.workers import Worker, result_of, worker_of
from trails.errors import OperatorError
from trails.fs import File, RealFs
from trails.record import MISSING
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.language import params as language

APPLIED = "applied"
BEFORE = "applied before"
KEPT = "kept"
FORGOTTEN = (
    "it may have been replayed before: the checkpoint table knows of the newest that were, and this record is older; "
    "look at the target, and apply it by hand"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a record."""

    recorded: Recorded
    outcome: str
    why: str = ""

    def told(self) -> dict[str, Any]:
        """For JSON."""
        one = self.recorded
        return {
            "record": one.number, "seqno": one.position.seqno, "rba": one.position.rba, "csn": one.csn,
            "change": one.index, "table": ".".join(one.table), "op": one.op, "outcome": self.outcome, "why": self.why,
        }  # fmt: skip


def replay_group(
    home: Home, name: str, path: str, *, dry: bool, compare: bool, tell: Callable[[Outcome], None]
) -> list[Outcome]:
    """Replay a group's discard file, or the one at `path` in the home; the target and its options are the group's."""
    fs = RealFs()
    group = next((reg for reg in registrations.all(home) if reg.name == name.upper() and reg.kind == "REPLICAT"), None)
    if group is None:
        raise OperatorError(f"there is no Replicat {name} in this home", hint="INFO ALL lists the groups")
    path_of_file = home.prm(group.name)
    params = ReplicatParams.from_statements(language.parse_file(path_of_file), path_of_file).resolved(home)
    table = params.checkpoint_table or (exact_table(group.checkpoint_table) if group.checkpoint_table else None)
    if table is None:
        raise OperatorError(
            f"no checkpoint table for {group.name}, in which to keep what was replayed",
            hint="ADD CHECKPOINTTABLE schema.table, then name it by CHECKPOINTTABLE in the parameter file",
        )
    path = os.path.join(home.root, path) if path else params.discard_path(home)
    if not fs.exists(path):
        raise OperatorError(f"there is no discard file {path}", hint="Name it by FILE")
    options = params.db_options
    target = open_target(
        TargetSettings(
            params.target_url, table, group.name, group.group_key, home.root,
            suppress_triggers=options.suppress_triggers, follow_sequences=options.follow_sequences,
        )
    )  # fmt: skip
    lock = fs.lock(os.path.join(home.folder("dirpcs"), f"{group.name}.replay.lock"))
    file = fs.open(path)
    try:
        return Replay(target, group.name, group.group_key, compare, dry, tell).run(file)
    finally:
        file.close()
        lock.release()


@dataclass(slots=True)
class Replay:
    """One run over a discard file.

    `compare`: rows must be as the change found them. `dry`: only say what would become of each record. `keep`: how many
    rows of what was replayed the checkpoint table keeps, of each trail.
    """

    target: Target
    group: str
    group_key: int
    compare: bool = True
    dry: bool = False
    tell: Callable[[Outcome], None] = lambda _outcome: None
    keep: int = KEPT_ROWS
    _replayed: Replayed = field(init=False)
    _tables: dict[tuple[str, str], TargetTable | None] = field(default_factory=dict)
    _row: CheckpointRow | None = None
    _would: set[int] = field(default_factory=set)  # what a dry run has said would be applied

    def __post_init__(self) -> None:
        self._replayed = Replayed(self.target, self._own, self.keep)

    def run(self, file: File) -> list[Outcome]:
        """Every record, in the order of the file."""
        self.target.connect()
        try:
            self._row = self._row_of(self.group, self.group_key)
            if self.dry:
                outcomes = self._rolled_back(file)
            else:
                outcomes = list(self._all(file))
                applied = dict.fromkeys(one.recorded.trail_id for one in outcomes if one.outcome == APPLIED)
                self._replayed.bound(self._control(), applied, self._added)
                control = self._control()
                self.target.flush(control, control)  # and with it all commits before
            return sorted(outcomes, key=lambda one: one.recorded.number)
        finally:
            self.target.close()

    def _rolled_back(self, file: File) -> list[Outcome]:
        control = self._control()
        self.target.begin(control, control)
        place = self.target.mark()
        outcomes = list(self._all(file))
        self.target.undo(place)
        self.target.speak_for(self._own, 0)
        self.target.commit()
        return outcomes

    def _all(self, file: File) -> Iterator[Outcome]:
        for unit in units(file):
            for outcome in self._together(unit) if unit.whole else map(self._one, unit.records):
                self.tell(outcome)
                if self.dry and outcome.outcome == APPLIED:
                    self._would.add(outcome.recorded.identity)
                yield outcome

    def _one(self, recorded: Recorded) -> Outcome:
        ready = self._ready(recorded)
        if isinstance(ready, Outcome):
            return ready
        plan, row = ready
        if why := self._attempt([(recorded, plan)]) if self.dry else self._look(recorded, plan):
            return Outcome(recorded, KEPT, why)
        return Outcome(recorded, APPLIED) if self.dry else self._apply(recorded, plan, row)

    def _together(self, unit: DiscardedUnit) -> list[Outcome]:
        """All of them or none."""
        found = [(recorded, self._ready(recorded)) for recorded in unit.records]
        pairs: dict[str, tuple[Recorded, TablePlan]] = {}  # by place: a joined file has a record twice
        why = unit.lacks
        for recorded, ready in found:
            if not isinstance(ready, Outcome):
                pairs.setdefault(recorded.place, (recorded, ready[0]))
            elif ready.outcome == KEPT:
                why = why or f"record {recorded.number}: {ready.why}"
        if pairs and not why:
            todo = list(pairs.values())
            why = self._attempt(todo) if self.dry else self._apply_all(todo)
        if why:
            why = f"its transaction is replayed whole or not at all: {why}"
        return [ready if isinstance(ready, Outcome) else self._done(recorded, pairs, why) for recorded, ready in found]

    def _done(self, recorded: Recorded, pairs: Mapping[str, tuple[Recorded, TablePlan]], why: str) -> Outcome:
        if why:
            return Outcome(recorded, KEPT, why)
        return Outcome(recorded, APPLIED if pairs[recorded.place][0] is recorded else BEFORE)

    def _ready(self, recorded: Recorded) -> Outcome | tuple[TablePlan, CheckpointRow | None]:
        """What there is to apply it by; or what becomes of it already."""
        if why := recorded.why or self._not_ours(recorded):
            return Outcome(recorded, KEPT, why)
        row = self._row_of(self._own, recorded.identity)
        if row is None and self._replayed.is_forgotten(recorded.trail_id, recorded.position):
            return Outcome(recorded, KEPT, FORGOTTEN)
        if row is not None and (row.csn, row.trail_id) != (recorded.csn, recorded.trail_id):
            return Outcome(recorded, KEPT, "another record has its row in the checkpoint table")
        if recorded.identity in self._would or (row is not None and row.position != FREE):
            return Outcome(recorded, BEFORE)
        plan, why = self._plan(recorded)
        return Outcome(recorded, KEPT, why) if plan is None else (plan, row)

    def _not_ours(self, recorded: Recorded) -> str:
        if recorded.group != self.group:
            return f"it is of group {recorded.group}"
        row = self._row
        if row is not None and row.trail_id == recorded.trail_id and recorded.position >= row.position:
            return "its change is not committed as skipped, and comes again: START the group, then replay"
        return ""

    # Looking

    def _look(self, recorded: Recorded, plan: TablePlan) -> str:
        """Why the change does not fit the target's row; empty if it does. All of it is rolled back."""
        control = self._control()
        self.target.begin(control, control)
        place = self.target.mark()
        try:
            why = self._misfit(recorded, plan)
        except RefusedError as error:
            why = str(error)
        self.target.undo(place)
        self.target.commit()
        return why

    def _attempt(self, pairs: Sequence[tuple[Recorded, TablePlan]]) -> str:
        """Apply all of these in the open transaction; or why not, and nothing is."""
        place = self.target.mark()
        recorded, why = pairs[0][0], ""
        try:
            for recorded, plan in pairs:
                if why := self._misfit(recorded, plan):
                    break
                self.target.apply(_steps(recorded, plan), single=True)
            else:
                self.target.check_commit()
        except RefusedError as error:
            why = str(error)
        if why:
            self.target.undo(place)
        return f"record {recorded.number}: {why}" if why and len(pairs) > 1 else why

    def _misfit(self, recorded: Recorded, plan: TablePlan) -> str:
        layout, before, after = plan.layout, recorded.before, recorded.after
        if not layout.key:
            return self._equal_row(recorded, layout)
        key = key_of(layout, after) if recorded.op == INSERT else key_before(layout, before, after)
        current = self.target.current(layout, key)
        if recorded.op == INSERT:
            return "" if current is None else f"a row with key ({_shown(key)}) is there already"
        if current is None:
            makes = recorded.op == UPSERT and MISSING not in after
            return "" if makes else f"there is no row with key ({_shown(key)})"
        if after is not None and (new := key_of(layout, after)) != key and self.target.current(layout, new) is not None:
            return f"a row with the new key ({_shown(new)}) is there already"
        if not self.compare:
            return ""
        if before is None or MISSING in before:
            return (
                "the record does not have the whole row before the change, so nobody knows whether it is still so "
                "(GETUPDATEBEFORES in the Extract sends it; NOCOMPARE applies it all the same)"
            )
        changed = [
            name
            for name, logical, old, now in zip(layout.columns, layout.logical, before, current, strict=True)
            if not same(logical, old, now)
        ]
        return f"the row is not as it was before the change: {', '.join(changed)}" if changed else ""

    def _equal_row(self, recorded: Recorded, layout: Layout) -> str:
        """A table without a key: an insert must not be there yet, as far as anybody can tell."""
        if recorded.op != INSERT or not self.compare:
            return ""
        place = self.target.mark()
        try:
            self.target.apply((Work(bags=(_without(layout, recorded.after),)),), single=True)
        except RefusedError:
            return ""
        self.target.undo(place)
        return "an equal row is there already, and the table has no key to tell them apart (NOCOMPARE applies it)"

    # Applying

    def _apply_all(self, pairs: Sequence[tuple[Recorded, TablePlan]]) -> str:
        """In one transaction, with their rows in the checkpoint table; why not, if they don't fit."""
        for one, _ in pairs:
            if self._row_of(self._own, one.identity) is None:
                self._added(CheckpointRow(FREE, trail_id=one.trail_id, csn=one.csn, xid=str(one.index)))
        control = self._control()
        self.target.begin(control, control)  # another replay waits for it
        rows = [self._row_of(self._own, one.identity) for one, _ in pairs]
        lost = any(row is None or row.position != FREE for row in rows)
        why = "another replay has applied a part of it just now" if lost else self._attempt(pairs)
        for one, _ in pairs if not why else ():
            values = [one.position.seqno, one.position.rba, self._own, one.identity]
            self.target.write(rowtable.place(self.target.row_table, self.target.kind.words), values)
        self.target.speak_for(self._own, 0)
        self.target.commit()
        return why

    def _apply(self, recorded: Recorded, plan: TablePlan, row: CheckpointRow | None) -> Outcome:
        self.target.speak_for(self._own, recorded.identity)
        if row is None:
            row = self._added(
                CheckpointRow(FREE, trail_id=recorded.trail_id, csn=recorded.csn, xid=str(recorded.index))
            )
        if row.position != FREE:
            return Outcome(recorded, BEFORE, "by somebody else, just now")
        try:
            self.target.begin(row, replace(row, position=recorded.position))
            why = self._misfit(recorded, plan)
            if not why:
                self.target.apply(_steps(recorded, plan), single=True, border=True)
                self.target.commit()
                return Outcome(recorded, APPLIED)
        except RefusedError as error:
            why = str(error)
        except PlaceLostError:
            self.target.connect()
            return Outcome(recorded, BEFORE, "by somebody else, just now")
        self.target.connect()  # and what was open is rolled back
        return Outcome(recorded, KEPT, why)

    def _plan(self, recorded: Recorded) -> tuple[TablePlan | None, str]:
        """The target table as it is now; why the record does not fit it."""
        if recorded.table not in self._tables:
            self._tables[recorded.table] = self.target.table(*recorded.table)
        table = self._tables[recorded.table]
        if table is None:
            return None, f"target table {'.'.join(recorded.table)} does not exist"
        columns = {column.name for column in table.columns}
        lacking = [name for name in (*recorded.columns, *recorded.key) if name not in columns]
        if lacking or any(len(row) != len(recorded.columns) for row in (recorded.before, recorded.after) if row):
            return None, f"{table.full_name} lacks column {', '.join(lacking)}" if lacking else "its rows are not whole"
        layout = table.layout(recorded.columns, recorded.key, recorded.logical)
        return TablePlan("", table.full_name, layout, tuple(recorded.columns.index(name) for name in recorded.key)), ""

    # Rows of the checkpoint table

    @property
    def _own(self) -> str:
        return f"{self.group} replay"

    def _row_of(self, group: str, group_key: int) -> CheckpointRow | None:
        self.target.speak_for(group, group_key)
        return self.target.load_row()

    def _control(self) -> CheckpointRow:
        """A row that never moves: to open transactions by, and so that two replays wait for each other."""
        return self._row_of(self._own, 0) or self._added(CheckpointRow(FREE))

    def _added(self, row: CheckpointRow) -> CheckpointRow:
        """A new row for whom the target speaks for; that of another replay, if it was quicker."""
        try:
            self.target.add_row(row)
        except OperatorError:
            self.target.connect()
            found = self.target.load_row()
            if found is None:
                raise
            return found
        return row


def _steps(recorded: Recorded, plan: TablePlan) -> tuple[Step, ...]:
    worker: Worker = worker_of(plan)
    if recorded.op == INSERT:
        worker.insert(recorded.after)
    elif recorded.op == UPSERT:
        worker = Overlay(plan.key, tolerant=False)
        worker.update(recorded.after, recorded.before, may=True)
    elif recorded.op == UPDATE:
        worker.update(recorded.after, recorded.before)
    else:
        worker.delete(recorded.before)
    result = result_of(plan, worker)
    return (Work(bags=(result,)) if isinstance(result, Bag) else Work(rows=(result,)),)


def _without(layout: Layout, row: Any) -> Bag:
    """Delete one row that is equal in all columns."""
    nulls = tuple(i for i, value in enumerate(row) if value is None)
    one, _ = layout.blob([["0", *(value for value in row if value is not None)]])
    return Bag(layout, (Match(nulls, one),))


def _shown(key: Sequence[Any]) -> str:
    return ", ".join(map(str, key))
