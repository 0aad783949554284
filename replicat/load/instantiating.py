"""INSTANTIATE REPLICAT at the target: tables made, emptied or looked at, and noted as to be loaded.

    there is a row for it already      left alone, or refused where it was named or is to be emptied; see _is_left
    the target table is missing        made (CREATE), or refused
    it has rows                        emptied (TRUNCATE), or refused
    else                               a row `waiting`

Rule: everything that can be refused is, by name and all at once, before anything is changed. What is changed is one
transaction where the target makes tables in one, else the tables come first: whoever repeats it finds them made. That
transaction moves the numbers that a running Replicat's batches and chunks are checked by (loadtables.py), so a batch
lies before it, and what it wrote is seen as rows; or behind it, and is begun again with the new tables. A process that
found no row of its group when it began checks no number: then the group must be stopped, and the number of its row in
the checkpoint table is raised, so that a process of it that nobody knows of, such as a frozen one, moves nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from replicat.batches.planning import Planning
from replicat.ddl.definition import CannotError
from replicat.ddl.shapes import Carry, MappedTable
from replicat.load.creating import BehindLoad, behind, created
from replicat.load.group import LoadingGroup
from replicat.load.loadtables import FAILED, LIVE, LoadState, TableRow, again
from replicat.load.looking import SourceLook
from replicat.load.pausedtable import PausedRow
from replicat.maps.rules import rules_for
from replicat.model.mapparams import MapRule
from replicat.model.target import CheckpointRow, RefusedError, TargetTable, Truncate
from replicat.reading.kinds import check_readable
from replicat.targets.kinds import SOURCES
from replicat.targets.sql import rowtable
from trails.described import DescribedTable
from trails.errors import OperatorError
from trails.position import Position
from trails.record import TableId
from trails.runtime.home.home import Home
from trails.runtime.language.params import Pattern

Reply = dict[str, Any]
MADE, EMPTIED, EMPTY, LEFT = "created", "emptied", "empty", "left alone"
_SHOWN: Final = 20
BATCH_SECONDS: Final = 120.0
"""So long a batch that is being applied is waited for."""
IDLE_SECONDS: Final = 60.0
"""After so long a server that can do so ends a transaction of which nothing is heard any more."""


@dataclass(frozen=True, slots=True)
class InstantiateOrder:
    """What the command says. `pattern`: which source tables, None for all; `running`: the group's process lives."""

    create: bool = False
    truncate: bool = False
    pattern: Pattern | None = None
    running: bool = False


@dataclass(slots=True)
class LoadWish:
    """A source table and a MAP that takes it. `row`, `paused`: what was noted of it before; `made`: how it is to be
    made.
    """

    table: DescribedTable
    mapped: MappedTable
    present: TargetTable | None = None
    row: TableRow | None = None
    paused: PausedRow | None = None
    made: Carry | None = None
    behind: BehindLoad = field(default_factory=BehindLoad)

    @property
    def target(self) -> str:
        """`schema.table` there."""
        return ".".join(self.mapped.place)

    @property
    def pair(self) -> tuple[str, str]:
        """By which its row is found."""
        return self.table.full_name, self.target


# --- INSTANTIATE ------------------------------------------------------------------------------------------------------


def instantiate(home: Home, name: str, told: Sequence[Any], order: InstantiateOrder) -> Reply:
    """What becomes of each table that a MAP takes. `told`: what describe_tables answered."""
    return instantiate_group(home, LoadingGroup.of(home, name), told, order)


def instantiate_group(home: Home, group: LoadingGroup, told: Sequence[Any], order: InstantiateOrder) -> Reply:
    """The same."""
    check_readable(group.params.source_url)
    tables = [DescribedTable.from_wire(wire) for wire in told]
    with SourceLook.at(home.fs, group) as source, closing(group.target):
        group.target.connect()
        return Instantiation(group, tables, order, source).run()


class Instantiation:
    """One INSTANTIATE; the target is connected, and closed by whoever has opened it."""

    may_run = False
    """Whether tables are emptied under a Replicat that runs."""

    def __init__(
        self, group: LoadingGroup, tables: Sequence[DescribedTable], order: InstantiateOrder, source: SourceLook
    ) -> None:
        self._group = group
        self._source = source
        self._target = group.target
        self._params = group.params
        self._tables = tables
        self._order = order
        scheme = group.params.source_url.partition("://")[0]
        self._dialect = self._target.dialect(SOURCES.get(scheme))
        self._planning = Planning(group.params, self._target, source=lambda: scheme)
        self._errors: list[OperatorError] = []
        self._left: list[LoadWish] = []

    def run(self) -> Reply:
        """Look at all, refuse or do all."""
        self._target.bound_waits(BATCH_SECONDS, IDLE_SECONDS)
        state = self._group.state()
        if self._order.truncate and self._order.running and not self.may_run:
            raise OperatorError(f"{self._group.name} is running, and TRUNCATE would empty its tables", hint=self._stop)
        wishes = [wish for wish in self._wishes(state) if not self._is_left(wish)]
        for wish in wishes:
            self._check(wish)
            if self._order.truncate and wish.present is not None:
                self._errors += self._source.refusal(wish.table.definition)
        self._check_shared(state, wishes)
        self._refuse()
        if wishes:
            self._change(wishes)
        return {"tables": [*map(self._done, wishes), *map(_left, self._left)]}

    @property
    def _stop(self) -> str:
        return f"STOP REPLICAT {self._group.name} first"

    # Looking

    def _wishes(self, state: LoadState) -> list[LoadWish]:
        rows = {row.pair: row for row in state.tables}
        found = []
        for table in self._tables:
            if self._order.pattern is not None and not self._order.pattern.matches(*table.place):
                continue
            try:
                found += [
                    LoadWish(table, MappedTable(r, r.target.fill(*table.place))) for r in self._rules(*table.place)
                ]
            except OperatorError as error:
                self._errors.append(error)
        pairs = [wish.pair for wish in found]
        for source, target in dict.fromkeys(pair for pair in pairs if pairs.count(pair) > 1):
            what = f"{source} goes to {target} by several MAPs, and can be loaded by one of them"
            self._errors.append(OperatorError(what, hint="Load it by hand, or give each MAP a target of its own"))
        if not found and not self._errors:
            which = f"TABLE {self._order.pattern}" if self._order.pattern else "any table of the source"
            raise OperatorError(
                f"no MAP of {self._group.name} takes {which}",
                hint="LIST TABLES after DBLOGIN SOURCEDB shows how the source writes their names",
            )
        paused = {one.pair: one for one in self._group.paused_rows()}
        present = self._target.tables(sorted({wish.mapped.place for wish in found}))
        for wish in found:
            wish.present, wish.row = present.get(wish.mapped.place), rows.get(wish.pair)
            wish.paused = paused.get(wish.pair)
        return found

    def _rules(self, schema: str, name: str) -> Sequence[MapRule]:
        return rules_for(self._params.maps, self._params.excludes, schema, name).rules

    def _is_left(self, wish: LoadWish) -> bool:
        """Whether it is loaded already, or will be; who names it, or wants it emptied, is told so."""
        if wish.paused is not None:
            return self._is_left_paused(wish, wish.paused)
        if wish.row is None or wish.row.state == FAILED:
            return False
        if self._order.pattern is not None or self._order.truncate:
            source, state = wish.pair[0], wish.row.state
            what = "is loaded already" if state == LIVE else f"is being loaded already ({state})"
            hint = "Leave it out by TABLE" if state == LIVE else f"INFO TABLES {self._group.name} shows how far it is"
            self._errors.append(OperatorError(f"{source} {what}", hint=hint))
        self._left.append(wish)
        return True

    def _is_left_paused(self, wish: LoadWish, paused: PausedRow) -> bool:
        """One that is paused is loaded anew if that is asked for, in the same words as for one whose load failed."""
        if self._order.running and self._order.pattern is not None:
            what = f"{paused.source} is {paused.state}, and {self._group.name} is running"
            self._errors.append(OperatorError(what, hint=self._stop))
        if self._order.pattern is not None or self._order.truncate:
            return False
        self._left.append(wish)
        return True

    def _check(self, wish: LoadWish) -> None:
        if wish.table.unfit:
            self._errors.append(
                OperatorError(
                    f"{wish.table.full_name} can't be loaded: {wish.table.unfit}", hint="Mend that, or MAPEXCLUDE it"
                )
            )
        elif wish.present is None:
            self._check_missing(wish)
        elif not self._order.truncate and self._has_rows(wish.mapped.place):
            self._errors.append(_has_rows_error(wish))
        else:
            self._check_plan(wish)

    def _check_missing(self, wish: LoadWish) -> None:
        if not self._order.create:
            self._errors.append(
                OperatorError(
                    f"target table {wish.target} of {wish.pair[0]} does not exist",
                    hint="CREATE makes it; or make it yourself",
                )
            )
            return
        try:
            wish.made = created(wish.table, wish.mapped, lambda place: self._target.table(*place), self._dialect)
            wish.behind = behind(wish.table, wish.mapped, self._dialect, self._rules)
        except CannotError as error:
            what = f"target table {wish.target} of {wish.pair[0]} can't be created: {error}"
            self._errors.append(OperatorError(what, hint="Make it yourself"))

    def _check_plan(self, wish: LoadWish) -> None:
        """Whether the source's columns fit into the table. Expressions need Spark: START checks those."""
        if wish.mapped.rule.colmap or wish.mapped.rule.conditions:
            return
        for plan in self._planning.plan(wish.table.definition):
            if plan.error and plan.target in ("", wish.target):
                self._errors.append(OperatorError(plan.error))

    def _check_shared(self, state: LoadState, wishes: Sequence[LoadWish]) -> None:
        """A table that others fill too can't be emptied for one of them."""
        pairs = {wish.pair for wish in wishes}
        others = {row.target: row.source for row in state.tables if row.pair not in pairs}
        for wish in wishes:
            if wish.target in others and self._order.truncate:
                what = f"target table {wish.target} of {wish.pair[0]} also has the rows of {others[wish.target]}"
                self._errors.append(OperatorError(what, hint="TRUNCATE would lose them: delete by hand what may go"))

    def _has_rows(self, place: TableId) -> bool:
        table = rowtable.quoted(self._target.kind, place)
        return bool(self._target.read(f"SELECT 1 FROM {table} LIMIT 1"))

    def _refuse(self) -> None:
        found = list(dict.fromkeys(map(str, self._errors)))
        if len(found) == 1:
            raise self._errors[0]
        if found:
            more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
            raise OperatorError(
                "nothing is instantiated:\n" + "\n".join(f"- {e}" for e in [*found[:_SHOWN], *more]),
                hint="Mend these, then INSTANTIATE again",
            )

    # Changing

    def _change(self, wishes: Sequence[LoadWish]) -> None:
        """A row of our own has two INSTANTIATEs come one after the other."""
        target = self._target
        target.speak_for(f"{self._group.name} instantiate", 0)
        own = target.load_row()
        if own is None:
            own = CheckpointRow(Position(0, 0))
            target.add_row(own)
        together = target.kind.can.ddl_in_transaction
        if together:
            target.begin(own, own)
            self._make_own()
            self._join()
            self._make(wishes)
        else:
            self._make_own()
            self._make(wishes)
            target.begin(own, own)
            self._join()
        self._sure(wishes)
        self._empty(wishes)
        for wish in wishes:
            self._note(wish)
        target.commit()
        target.flush(own, own)

    def _sure(self, wishes: Sequence[LoadWish]) -> None:
        """A last look, under the lock: a stopped Replicat changes nothing, and one that runs has none of the tables."""

    def _make_own(self) -> None:
        """The load's tables, beside the checkpoint table."""
        if self._group.are_there():
            return
        try:
            self._target.ddl(tuple(self._group.tables.create()))
        except RefusedError as error:
            raise OperatorError(
                f"the load's tables can't be made beside the checkpoint table: {error.shown}",
                hint="GRANT the user of TARGETDB to create tables in that schema",
            ) from error

    def _make(self, wishes: Sequence[LoadWish]) -> None:
        """Target tables, each once."""
        done = set()
        for wish in wishes:
            if wish.made is None or wish.target in done:
                continue
            done.add(wish.target)
            try:
                self._target.ddl(tuple(self._target.kind.words.make_schema(wish.mapped.place[0])))
                if wish.made.types:
                    self._target.check_types(dict(wish.made.types))
                if wish.made.statements:
                    self._target.ddl(wish.made.statements)
            except RefusedError as error:
                raise OperatorError(
                    f"target table {wish.target} can't be created: {error.shown}",
                    hint="Make it yourself, then INSTANTIATE again",
                ) from error

    def _join(self) -> None:
        """First of all: batches of a running Replicat wait from here on.

        What lies before was applied, or passed over, and the trail does not come back to it. A commit of it may still
        wait at the source, for a standby, where no snapshot shows it: so a later one must see all that began by now.
        """
        tables = self._group.tables
        if not self._target.write(*tables.joined()):
            if self._order.running:
                what = f"{self._group.name} is running, and began before any of its tables was to be loaded"
                raise OperatorError(what, hint=self._stop)
            self._target.write(*tables.outrun())
            self._target.write(*tables.add_load())
        if (newest := self._source.newest()) is not None:
            self._target.write(*tables.sees_all(newest))

    def _empty(self, wishes: Sequence[LoadWish]) -> None:
        places = sorted({wish.mapped.place for wish in wishes if wish.present is not None})
        if self._order.truncate and places:
            try:
                self._target.apply((Truncate(tuple(places)),))
            except RefusedError as error:
                raise OperatorError(
                    f"the target does not empty its tables: {error.shown}",
                    hint="Empty them yourself, then INSTANTIATE again without TRUNCATE",
                ) from error
        for wish in wishes:
            if self._has_rows(wish.mapped.place):
                raise _has_rows_error(wish)

    def _note(self, wish: LoadWish) -> None:
        tables, statements = self._group.tables, wish.behind.statements
        made = TableRow(*wish.pair, wish.table.definition, behind=statements, estimate=wish.table.rows)
        if wish.paused is not None and self._group.paused is not None:  # the load is behind all that it missed
            self._target.write(*self._group.paused.drop(wish.paused))
        if wish.row is None:
            self._target.write(*tables.add_table(made))
            return
        left = statements or wish.row.behind
        self._target.write(*tables.drop_chunks(wish.pair))
        self._target.write(*tables.set_table(replace(again(made), behind=left)))

    def _done(self, wish: LoadWish) -> Reply:
        done = MADE if wish.made is not None else EMPTIED if self._order.truncate else EMPTY
        notes = [*(wish.made.notes if wish.made else ()), *wish.behind.notes]
        return {"source": wish.pair[0], "target": wish.target, "done": done, "rows": wish.table.rows, "notes": notes}


def _has_rows_error(wish: LoadWish) -> OperatorError:
    what = f"target table {wish.target} of {wish.pair[0]} has rows"
    return OperatorError(what, hint="TRUNCATE empties it; MAPEXCLUDE, or TABLE, leaves it out")


def _left(wish: LoadWish) -> Reply:
    known = wish.paused or wish.row
    assert known is not None
    rows = wish.row.rows if wish.row is not None else 0
    state = {"source": wish.pair[0], "target": wish.target, "done": LEFT, "rows": rows}
    return {**state, "notes": [f"is {known.state} already"]}
