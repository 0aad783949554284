"""REPLAY DISCARDS: a discard file's changes applied again, once what refused them is mended.

    a record                                            becomes
    that was replayed before, by anybody                nothing
    whose change may still come again from the trail    kept: START the group first
    whose target row is not as the change found it      kept: somebody was there since
    that the target refuses again                       kept, with the database's words
    any other                                           applied: its change, and its row in the checkpoint table

Rule: a record is applied at most once, ever. It has a row of its own in the checkpoint table, found by what the record
says of its place (never by where it stands: files are moved, cut and joined), and moved in the very transaction of its
change. Records are taken in order, one transaction each; what is kept can be replayed another time. Nothing is written
to the file. How many rows are kept is said in replayed.py.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from replicat.conflicts.comparing import same
from replicat.conflicts.resolving import key_before, key_of
from replicat.net.copytext import render
from replicat.net.overlay import Overlay
from replicat.net.workers import Worker, result_of, worker_of
from replicat.params import ReplicatParams, exact_table
from replicat.plan import TablePlan
from replicat.refused.discardfile import whole_records
from replicat.refused.discardrecord import TARGET, VERSION, image_of
from replicat.refused.replayed import FREE, KEPT_ROWS, Replayed, identity
from replicat.target import Bag, Blob, Layout, Match, PlaceLostError, RefusedError, Row, Step, Target, TargetTable, Work
from replicat.targets import TargetSettings, open_target
from trails.errors import OperatorError
from trails.fs import File, RealFs
from trails.position import Position
from trails.record import MISSING
from trails.runtime import params as language
from trails.runtime import registration as registrations
from trails.runtime.home import Home

APPLIED = "applied"
BEFORE = "applied before"
KEPT = "kept"
INSERT, UPDATE, DELETE, UPSERT, REMOVE = OPS = "insert", "update", "delete", "upsert", "remove"
FORGOTTEN = (
    "it may have been replayed before: the checkpoint table knows of the newest that were, and this record is older; "
    "look at the target, and apply it by hand"
)
_PLACE = re.compile(
    r"Operation failed at seqno (\d+) rba (\d+), CSN (\S+), change (\d+) of its transaction, group (\S+), "
    r"trail ([0-9a-f]*)"
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A record of a discard file, read. `why`: what makes it one that can't be replayed, or empty."""

    number: int
    place: str
    position: Position
    csn: str
    index: int
    group: str
    trail_id: bytes
    table: tuple[str, str] = ("", "")
    op: str = ""
    columns: tuple[str, ...] = ()
    logical: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    before: Any = None
    after: Any = None
    why: str = ""

    @property
    def identity(self) -> int:
        """What its row in the checkpoint table is found by."""
        return identity(self.place)


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


def read_records(file: File) -> Iterator[Recorded]:
    """The whole records of a file, in order."""
    for number, raw in enumerate(whole_records(file), 1):
        lines = [line.decode("utf-8", "replace") for line in raw]
        place = next(line for line in lines if line.startswith("Operation failed at "))
        match = _PLACE.match(place)
        if match is None:
            yield Recorded(number, place, FREE, "?", 0, "?", b"", why="its place can't be read")
            continue
        seqno, rba, csn, index, group, trail = match.groups()
        made = Recorded(number, place, Position(int(seqno), int(rba)), csn, int(index), group, bytes.fromhex(trail))
        yield _with_target(made, [line.removeprefix(TARGET) for line in lines if line.startswith(TARGET)])


def _with_target(made: Recorded, texts: Sequence[str]) -> Recorded:
    if len(texts) != 1:
        why = "a TRUNCATE, or written by an older release" if not texts else "it changes several rows"
        return replace(made, why=f"the record does not hold the one row of its target ({why})")
    try:
        known = json.loads(texts[0])
        if known["version"] != VERSION:
            return replace(made, why=f"it is of version {known['version']}; this program knows {VERSION}")
        if known["op"] not in OPS:
            return replace(made, why=f"its operation is {known['op']!r}; this program knows {', '.join(OPS)}")
        schema, name = known["table"]
        op = DELETE if known["op"] == REMOVE else known["op"]
        return replace(
            made, table=(schema, name), op=op, columns=tuple(known["columns"]), key=tuple(known["key"]),
            logical=tuple(known["logical"]), before=image_of(known["before"]), after=image_of(known["after"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        return replace(made, why=f"its target record can't be read: {error}")


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
    _row: Row | None = None

    def __post_init__(self) -> None:
        self._replayed = Replayed(self.target, self._own, self.keep)

    def run(self, file: File) -> list[Outcome]:
        """Every record, in order."""
        self.target.connect()
        try:
            self._row = self._row_of(self.group, self.group_key)
            outcomes = []
            for recorded in read_records(file):
                outcomes.append(self._one(recorded))
                self.tell(outcomes[-1])
            if not self.dry:
                applied = dict.fromkeys(one.recorded.trail_id for one in outcomes if one.outcome == APPLIED)
                self._replayed.bound(self._control(), applied, self._added)
                control = self._control()
                self.target.flush(control, control)  # and with it all commits before
            return outcomes
        finally:
            self.target.close()

    def _one(self, recorded: Recorded) -> Outcome:
        if why := recorded.why or self._not_ours(recorded):
            return Outcome(recorded, KEPT, why)
        row = self._row_of(self._own, recorded.identity)
        if row is None and self._replayed.is_forgotten(recorded.trail_id, recorded.position):
            return Outcome(recorded, KEPT, FORGOTTEN)
        if row is not None and (row.csn, row.trail_id) != (recorded.csn, recorded.trail_id):
            return Outcome(recorded, KEPT, "another record has its row in the checkpoint table")
        if row is not None and row.position != FREE:
            return Outcome(recorded, BEFORE)
        plan, why = self._plan(recorded)
        if plan is None or (why := self._look(recorded, plan)):
            return Outcome(recorded, KEPT, why)
        return Outcome(recorded, APPLIED) if self.dry else self._apply(recorded, plan, row)

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
            if not why and self.dry:
                self.target.apply(_steps(recorded, plan), single=True, border=True)
        except RefusedError as error:
            why = str(error)
        self.target.undo(place)
        self.target.commit()
        return why

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

    def _apply(self, recorded: Recorded, plan: TablePlan, row: Row | None) -> Outcome:
        self.target.speak_for(self._own, recorded.identity)
        if row is None:
            row = self._added(Row(FREE, trail_id=recorded.trail_id, csn=recorded.csn, xid=str(recorded.index)))
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
        columns = {column.name: column for column in table.columns}
        lacking = [name for name in (*recorded.columns, *recorded.key) if name not in columns]
        if lacking or any(len(row) != len(recorded.columns) for row in (recorded.before, recorded.after) if row):
            return None, f"{table.full_name} lacks column {', '.join(lacking)}" if lacking else "its rows are not whole"
        extras = [c for c in table.columns if c.name not in recorded.columns and not c.generated]
        layout = Layout(
            *recorded.table,
            columns=recorded.columns,
            types=tuple(columns[name].type for name in recorded.columns),
            key=recorded.key,
            arbiter=frozenset(recorded.key) in table.unique,
            extras=tuple(c.name for c in extras),
            extra_types=tuple(c.type for c in extras),
            fixed=tuple(c.name for c in extras if c.always),
            key_equal=tuple(columns[name].equal for name in recorded.key),
            rank=table.rank,
            logical=recorded.logical,
            rewrite=any(columns[name].always for name in recorded.columns if name not in recorded.key),
        )
        return TablePlan("", table.full_name, layout, tuple(recorded.columns.index(name) for name in recorded.key)), ""

    # Rows of the checkpoint table

    @property
    def _own(self) -> str:
        return f"{self.group} replay"

    def _row_of(self, group: str, group_key: int) -> Row | None:
        self.target.speak_for(group, group_key)
        return self.target.load_row()

    def _control(self) -> Row:
        """A row that never moves: to open transactions by, and so that two replays wait for each other."""
        return self._row_of(self._own, 0) or self._added(Row(FREE))

    def _added(self, row: Row) -> Row:
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
    data, count, _ = render([["0", *(value for value in row if value is not None)]])
    return Bag(layout, (Match(nulls, Blob(data, count)),))


def _shown(key: Sequence[Any]) -> str:
    return ", ".join(map(str, key))
