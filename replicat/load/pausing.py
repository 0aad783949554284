"""Which tables of a group are paused, as the target has them, and every way from one state to another.

    paused     nothing of it is applied; `at` says from where on
    resuming   Replicat takes turns: what the table has missed is read from `at` on, and applied (catchup.py)
    failed     what it has missed can't be had any more: it is to be loaded anew
    (no row)   a table like any other

Rule: each change of a state is one transaction that holds the checkpoint row, and is on the target's disk before
anybody is told. docs/tables.md has the table of crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from replicat.load.loadtables import Statement
from replicat.load.pausedtable import LOST, PAUSED, RESUMING, PausedRow, PausedTable
from replicat.model.again import PlaceLostError
from replicat.model.pausing import ChangesGoneError, Pair, PausePlace, TablePausedError
from replicat.model.target import CheckpointRow, RefusedError
from replicat.targets.contract import Target
from trails.ddl import DdlChange
from trails.errors import OperatorError
from trails.fs import Fs
from trails.position import Position, TrailName
from trails.reader import first_seqno

Note = Callable[[str], None]
HOUR_US = 3_600_000_000
_FRESH = Position(0, 0)


class Pausing:
    """The paused tables of one group."""

    def __init__(
        self,
        target: Target,
        table: PausedTable | None,
        fs: Fs,
        trail: TrailName,
        warn: Note,
        now_us: Callable[[], int],
        loads: Callable[[], Collection[Pair]] = tuple,
    ) -> None:
        """`table`: None where there can be none. `loads`: the tables that are being loaded."""
        self._loads = loads
        self._target = target
        self._table = table
        self._fs = fs
        self._trail = trail
        self._warn = warn
        self._now_us = now_us
        self._there = False
        self.reshaping = False
        self._told: set[Pair] = set()
        self.rows: tuple[PausedRow, ...] = ()
        self.hold: Position | None = None
        """The oldest place in the trail that one of them needs, as it stands on the target's disk."""

    # What there is

    def look(self, row: CheckpointRow) -> None:
        """Read the table anew: after each connection and each turn, with nothing open."""
        self.reshaping = False
        self._there = self._table is not None and bool(self._target.read(*self._table.there()))
        self.rows = self._statements.read(self._target.read) if self._there else ()
        held = [one.at.position for one in self.rows if one.state != LOST]
        if held:  # what was read may not be on the disk yet, and files before it are about to be purged
            self._target.flush(row, row)
        self.hold = min(held, default=None)
        if anew := [one for one in self.rows if one.pair in self._loads()]:
            self._warn(f"{', '.join(one.source for one in anew)}: loaded anew, and so paused no more")
            self._write(row, *map(self._statements.drop, anew))
            return
        for one in self.rows:
            if one.pair not in self._told:
                self._told.add(one.pair)
                self._warn(f"{one.source} to {one.target} is {one.state}: its changes are left out. {one.reason}")

    @property
    def _statements(self) -> PausedTable:
        assert self._table is not None
        return self._table

    @property
    def left_out(self) -> frozenset[Pair]:
        """The tables whose changes the group leaves out."""
        return frozenset(one.pair for one in self.rows)

    def of(self, pair: Pair) -> PausedRow | None:
        """A table's row; None if it is like any other."""
        return next((one for one in self.rows if one.pair == pair), None)

    def next(self, row: CheckpointRow) -> PausedRow | None:
        """The table that is to catch up next; none that is ahead of the group, which was sent back by ALTER.

        Inside a large transaction that is applied in parts the group stands nowhere that another could come to.
        """
        if row.split:
            return None
        here = row.position, 0
        resumed = (one for one in self.rows if one.state == RESUMING)
        return next((one for one in resumed if (one.at.position, one.at.split) <= here), None)

    def named(self, *states: str) -> list[str] | None:
        """The source's names of the tables in these states, for STATUS; None for no table."""
        return [one.source for one in self.rows if one.state in states] or None

    def says(self) -> str:
        """What is amiss, in one line; empty if nothing is."""
        parts = [
            f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {state}"
            for state in (PAUSED, RESUMING, LOST)
            if (names := [one.source for one in self.rows if one.state == state])
        ]
        return "; ".join(parts)

    # From state to state

    def pause(self, row: CheckpointRow, pair: Pair, reason: str, hours: int) -> None:
        """From here on nothing of the table is applied; one that catches up stays where it has come to."""
        self.make(row)
        now, found = self._now_us(), self.of(pair)
        if found is None:
            made = PausedRow(*pair, self._place(row), PAUSED, reason, now, hours)
            self._write(row, self._statements.add(made))
        elif found.state == RESUMING:
            stopped = replace(found, state=PAUSED, reason=reason, since_us=now, hours=hours)
            self._write(row, self._statements.change(stopped))
        else:
            raise OperatorError(f"{pair[0]} to {pair[1]} is {found.state} already", hint="INFO TABLES says why")
        self._told.add(pair)
        self._warn(
            f"{pair[0]} to {pair[1]} is paused: {reason}. Its changes are left out, and kept in the trail for {hours} "
            "hours. Mend that, then RESUME TABLE"
        )

    def pause_again(self, row: CheckpointRow, error: TablePausedError) -> None:
        """As the error says; a table that was catching up keeps the limit that it had."""
        found = self.of(error.pair)
        self.pause(row, error.pair, str(error), error.hours if found is None else found.hours)

    def _place(self, row: CheckpointRow) -> PausePlace:
        """Of a group that has applied nothing yet: the trail's first file, so that it is missed if it goes."""
        place = PausePlace.of(row)
        if place.position != _FRESH:
            return place
        return replace(place, position=Position(first_seqno(self._fs, self._trail) or 0, 0))

    def resume(self, row: CheckpointRow, pair: Pair) -> None:
        """The table is to catch up."""
        found = self._known(pair)
        if found.state == LOST:
            raise OperatorError(
                f"{pair[0]} to {pair[1]} has failed: {found.reason}",
                hint="INSTANTIATE REPLICAT ..., TABLE ..., TRUNCATE loads it anew; or load it by hand, then RESUME "
                "TABLE ..., SKIP",
            )
        if found.state == PAUSED:
            self._write(row, self._statements.change(replace(found, state=RESUMING)))

    def skip(self, row: CheckpointRow, pair: Pair) -> None:
        """What the table has missed is given up: it is like any other from the group's place on."""
        self._write(row, self._statements.drop(self._known(pair)))
        self._told.discard(pair)
        self._warn(f"{pair[0]} to {pair[1]} goes on at position {row.position}: what it missed is not applied")

    def _known(self, pair: Pair) -> PausedRow:
        found = self.of(pair)
        if found is None:
            raise OperatorError(f"{pair[0]} to {pair[1]} is not paused", hint="INFO TABLES shows which tables are")
        return found

    def fail(self, row: CheckpointRow, error: ChangesGoneError) -> None:
        """What the table has missed can't be had any more."""
        found = self._known(error.pair)
        reason = f"{error}; it was paused because: {found.reason}" if found.reason else str(error)
        self._write(row, self._statements.change(replace(found, state=LOST, reason=reason)))
        self._warn(f"{found.source} to {found.target} has failed: {reason}. Load it anew (INSTANTIATE, TRUNCATE)")

    def tend(self, row: CheckpointRow) -> None:
        """What can't be caught up any more has failed, and holds no file."""
        for one in self.rows:
            if one.state != LOST and (why := self.gone(one, row)):
                self.fail(row, ChangesGoneError(one.pair, why))

    def gone(self, one: PausedRow, row: CheckpointRow) -> str:
        """Why a table can't catch up any more; empty if it can."""
        if one.at.trail_id and row.trail_id and one.at.trail_id != row.trail_id:
            return "the group reads another trail than that which has its changes"
        files, needed = self._trail.seqnos(self._fs.listdir(self._trail.folder)), one.at.position.seqno
        if needed not in files and any(number > needed for number in files):
            return f"{self._trail.path(one.at.position.seqno)}, which has its changes, is gone"
        if one.state == PAUSED and self._now_us() > one.since_us + one.hours * HOUR_US:
            return f"it was paused for more than {one.hours} hours (MAXKEEPHOURS)"
        return ""

    # Catching up

    def moved(self, one: PausedRow, at: PausePlace) -> PausedRow:
        """In the open transaction, which has applied the table's changes up to there. Raises PlaceLostError."""
        new = replace(one, at=at)
        self._change(self._statements.change(new))
        return replace(new, moves=one.moves + 1)

    def done(self, row: CheckpointRow, one: PausedRow) -> None:
        """The table has all that the group has."""
        self._write(row, self._statements.drop(one))
        self._told.discard(one.pair)

    # Changes of shape

    def reshaped(self, change: DdlChange, targets: Sequence[str]) -> None:
        """A change of shape is applied in the open transaction: what a paused table of its name has missed is rows of
        the shape before, and the target's is the new one. `targets`: where its MAPs go from now on.
        """
        names = {".".join(name) for name in change.names}
        for one in [one for one in self.rows if one.source in names]:
            self.reshaping = True
            target = one.target if one.target in targets or len(targets) != 1 else targets[0]
            new = self._misshapen(one, change.new.full_name if change.new else one.source, target)
            for other in [other for other in self.rows if other is one or other.pair == new.pair]:
                self._change(self._statements.drop(other))
            self._change(self._statements.add(new))
            self.rows = (*(other for other in self.rows if other is not one and other.pair != new.pair), new)

    def _misshapen(self, one: PausedRow, source: str, target: str) -> PausedRow:
        reason = one.reason
        if one.state != LOST:
            reason = f"its shape changed at the source, or it was dropped; it was paused because: {reason}"
            self._warn(f"{source} to {target} has failed: {reason}. Load it anew (INSTANTIATE, TRUNCATE)")
        return PausedRow(source, target, one.at, LOST, reason, one.since_us, one.hours)

    # Transactions

    def make(self, row: CheckpointRow) -> None:
        """The table of paused tables, if it is not there."""
        if self._there:
            return
        together = self._target.kind.can.ddl_in_transaction
        if together:
            self._target.begin(row, row)
        try:
            self._target.ddl((self._statements.create(),))
        except RefusedError as error:
            if not self._target.read(*self._statements.there()):  # else another group was quicker
                name = ".".join(self._statements.name)
                raise OperatorError(
                    f"{name}, which says what tables are paused, can't be made: {error.shown}",
                    hint="GRANT the user of TARGETDB to create tables in that schema",
                ) from error
        if together:
            self._target.commit()
        self._there = True

    def _write(self, row: CheckpointRow, *statements: Statement) -> None:
        """All of them, durably; the checkpoint row stays, and must be ours."""
        self._target.begin(row, row)
        for statement in statements:
            self._change(statement)
        self._target.commit()
        self._target.flush(row, row)
        self.look(row)

    def _change(self, statement: Statement) -> None:
        if self._target.write(*statement) != 1:
            raise PlaceLostError("what is said of a paused table was changed by another process meanwhile")
