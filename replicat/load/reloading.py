"""RELOAD TABLE: the target table is emptied and loaded anew, by a process of its own, whether or not the Replicat runs.

    never loaded by INSTANTIATE, or paused   refused
    live or failed                           emptied, and noted as waiting with the source's definition of now
    being loaded, and of the source's shape  left alone: so a command that is given twice empties once
    being loaded by another shape            as if it were live

Rule: one transaction of the target, as INSTANTIATE's is, or nothing. It begins by the lock that each batch takes: a
batch lies before it, and its rows are emptied; or behind it, and is begun again with the table's chunks. All that was
applied before must be seen by each snapshot of later, also a commit that the source does not show yet (looking.py).

What was looked at without the lock is looked at again under it: the table's row, its target's shape, and its source's
shape, which must be what it was before the source was asked for the definition. So no change of shape lies between the
definition and the lock; one that comes later finds a table that is loaded, and begins its load anew.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from replicat.load.group import LoadingGroup
from replicat.load.instantiating import IDLE_SECONDS, InstantiateOrder, Instantiation, LoadWish, Reply
from replicat.load.loadtables import FAILED, LIVE, WAITING, LoadState
from replicat.load.looking import SourceLook
from replicat.load.sharing import keeps_more, others_of
from replicat.model.again import PlaceLostError, ShapeChangedError
from replicat.reading.kinds import check_readable
from trails.described import DescribedTable
from trails.errors import AwayError, OperatorError
from trails.runtime.home.home import Home
from trails.runtime.language.params import Pattern
from trails.taming import tame

TRIES: Final = 8
PAUSE_SECONDS: Final = 2.0
"""So long the Replicat goes on between two tries."""
READER_SECONDS: Final = 2.0
"""So long readers and writers of the target table are waited for, and the Replicat with it."""
Shapes = Mapping[str, Any]
"""By source table: its columns, as the source has them."""


def table_shapes(home: Home, name: str, pattern: Pattern) -> Reply:
    """How the source has those of the group's tables, before anybody asks for their definitions."""
    group = LoadingGroup.of(home, name)
    check_readable(group.params.source_url)
    return {"shapes": shapes_of(home, group, pattern)}


def shapes_of(home: Home, group: LoadingGroup, pattern: Pattern) -> Shapes:
    """The same."""
    with SourceLook.at(home.fs, group) as source, closing(group.target):
        group.target.connect()
        tables = [row.definition for row in group.state().tables]
        asked = [table for table in tables if pattern.matches(table.schema, table.name)]
        return {table.full_name: source.shape(table.schema, table.name) for table in asked}


def reload_tables(home: Home, name: str, told: Sequence[Any], shapes: Shapes, pattern: Pattern) -> Reply:
    """What becomes of each table. `told`: what describe_tables answered, behind `shapes`."""
    return reload_group(home, LoadingGroup.of(home, name), told, shapes, pattern)


def reload_group(home: Home, group: LoadingGroup, told: Sequence[Any], shapes: Shapes, pattern: Pattern) -> Reply:
    """The same."""
    tables = [DescribedTable.from_wire(wire) for wire in told]
    order = InstantiateOrder(truncate=True, pattern=pattern, running=True)
    tried = 1
    while True:
        try:
            with SourceLook.at(home.fs, group) as source, closing(group.target):
                group.target.connect()
                return Reloading(home, group, tables, order, source, shapes).run()
        except AwayError as error:
            if tried == TRIES:
                what = f"nothing was emptied in {TRIES} tries, and all is as it was: {error.message}"
                raise AwayError(what, hint="End what holds a lock on the target table, then try again") from error
            print(tame(f"try {tried} of {TRIES}: {error.message}"), file=sys.stderr, flush=True)
        except (PlaceLostError, ShapeChangedError) as error:
            raise OperatorError(f"something else came first: {error}", hint="Nothing is changed: try again") from error
        tried += 1
        time.sleep(PAUSE_SECONDS)


class Reloading(Instantiation):
    """One RELOAD TABLE; the target is connected."""

    may_run = True

    def __init__(
        self,
        home: Home,
        group: LoadingGroup,
        tables: Sequence[DescribedTable],
        order: InstantiateOrder,
        source: SourceLook,
        shapes: Shapes,
    ) -> None:
        super().__init__(group, tables, order, source)
        self._home = home
        self._shapes = shapes

    def _is_left(self, wish: LoadWish) -> bool:
        """Whether that is under way."""
        if wish.paused is not None:
            what = f"{wish.pair[0]} is {wish.paused.state}, so its target is not emptied under a Replicat that may run"
            hint = f"RESUME TABLE it; or STOP, INSTANTIATE REPLICAT {self._group.name} with TABLE and TRUNCATE, START"
            self._errors.append(OperatorError(what, hint=hint))
            return False
        if wish.row is None and self._order.pattern is not None and self._order.pattern.exact is None:
            return True
        if wish.row is None:
            what = f"{wish.pair[0]} was never loaded to {wish.target} by {self._group.name}"
            self._errors.append(OperatorError(what, hint="ADD TABLE has it loaded"))
            return False
        if wish.row.state in (LIVE, FAILED) or wish.row.definition != wish.table.definition:
            return False
        self._left.append(wish)
        return True

    def _check(self, wish: LoadWish) -> None:
        if wish.row is None or wish.paused is not None:
            return
        super()._check(wish)
        if wish.present is None:
            return
        why = others_of(self._home, self._group, wish.table.place, wish.mapped.place)
        if option := keeps_more(wish.mapped.rule):
            why = f"{option} has it keep rows that the source has no more"
        if wish.present.cascades:
            why = "a delete of its rows takes rows of another table along"
        if why:
            what = f"{wish.target} can't be emptied for {wish.pair[0]}: {why}"
            self._errors.append(OperatorError(what, hint="Load it by hand"))

    def _sure(self, wishes: Sequence[LoadWish]) -> None:
        """Under the lock all is as it was looked at. From here on nobody waits long for what readers hold."""
        self._same_rows(self._group.state(), wishes)
        for wish in wishes:
            table = wish.table.definition
            if self._source.shape(table.schema, table.name) != self._shapes.get(table.full_name):
                raise ShapeChangedError(f"the shape of {table.full_name} changed at the source")
            if self._target.table(*wish.mapped.place) != wish.present:
                raise ShapeChangedError(f"the shape of {wish.target} changed at the target")
        self._target.bound_waits(READER_SECONDS, IDLE_SECONDS)

    def _same_rows(self, state: LoadState, wishes: Sequence[LoadWish]) -> None:
        rows = {row.pair: row for row in state.tables}
        paused = {row.pair for row in self._group.paused_rows()}
        for wish in wishes:
            if wish.pair in paused:
                raise PlaceLostError(f"{wish.pair[0]} was paused")
            if rows.get(wish.pair) != wish.row:
                now = rows[wish.pair].state if wish.pair in rows else "not loaded"
                raise PlaceLostError(f"{wish.pair[0]} is {now} by now, expected {wish.row and wish.row.state}")

    def _done(self, wish: LoadWish) -> Reply:
        was = wish.row.state if wish.row is not None else WAITING
        return {**super()._done(wish), "notes": [f"was {was}"]}
