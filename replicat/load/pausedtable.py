"""The table of paused tables beside the checkpoint table, in any database's words.

    <checkpoint table>_paused   a row for each table that is paused, catches up, or has failed since

Rule: pure text and plain values, no driver. A row is written only in a transaction that holds the group's checkpoint
row, so by one process after the other; `moves` counts its changes, and who changes it says from which number on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from replicat.load.loadtables import Ask, Statement
from replicat.model.pausing import KEEP_HOURS, Pair, PausePlace
from replicat.targets.contract import Kind, Table
from replicat.targets.sql import rowtable
from replicat.targets.sql.forbidden import PAUSED as SUFFIX
from trails.position import Position

PAUSED: Final = "paused"
RESUMING: Final = "resuming"
LOST: Final = "failed"
_KEY = ("group_name", "group_key", "source", "target")
_PLACE = ("seqno", "rba", "split", "trail_id", "csn", "skip_until")
_VALUES = ("state", "reason", *_PLACE, "since_us", "hours")
COLUMNS = (
    ("group_name", "varchar(64) NOT NULL"), ("group_key", "numeric(20) NOT NULL"), ("source", "varchar(130) NOT NULL"),
    ("target", "varchar(130) NOT NULL"), ("state", "varchar(20) NOT NULL"), ("reason", "clob NOT NULL"),
    ("seqno", "bigint NOT NULL"), ("rba", "bigint NOT NULL"), ("split", "bigint NOT NULL"),
    ("trail_id", "varchar(32) NOT NULL"), ("csn", "varchar(128) NOT NULL"), ("skip_until", "varchar(140) NOT NULL"),
    ("since_us", "bigint NOT NULL"), ("hours", "bigint NOT NULL"), ("moves", "bigint NOT NULL"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PausedRow:
    """A table's row. `at`: behind it nothing of the table is applied. `since_us`: when it was paused; `hours`: how long
    the trail is kept for it from then on. `moves`: how often the row was changed.
    """

    source: str
    target: str
    at: PausePlace
    state: str = PAUSED
    reason: str = ""
    since_us: int = 0
    hours: int = KEEP_HOURS
    moves: int = 0

    @property
    def pair(self) -> Pair:
        """Which table it is."""
        return self.source, self.target


class PausedTable:
    """The statements for one group."""

    def __init__(self, kind: Kind, checkpoint_table: Table, group: str, key: int) -> None:
        schema, name = checkpoint_table
        self.name = schema, f"{name}_{SUFFIX}"
        self._words = kind.words
        self._table = rowtable.quoted(kind, self.name)
        self._who: list[Any] = [group, key]
        self._here = f"group_name = '{group}' AND group_key = {key}"

    def create(self) -> str:
        """The table."""
        return self._words.create_table(self._table, COLUMNS, _KEY)

    def there(self) -> Statement:
        """Finds rows if the table exists."""
        return self._words.columns, list(self.name)

    def read(self, ask: Ask) -> tuple[PausedRow, ...]:
        """Every row of the group."""
        names = ", ".join(("source", "target", *_VALUES, "moves"))
        found = ask(f"SELECT {names} FROM {self._table} WHERE {self._here} ORDER BY source, target")
        return tuple(map(_row, found))

    def add(self, row: PausedRow) -> Statement:
        """A table is paused that was not."""
        names = (*_KEY, *_VALUES, "moves")
        marks = ", ".join([self._words.mark] * len(names))
        values = [*self._who, *row.pair, *_values(row), row.moves]
        return f"INSERT INTO {self._named} ({', '.join(names)}) VALUES ({marks})", values

    def change(self, row: PausedRow) -> Statement:
        """The row as it is from now on; of the number that it had. It changes one row, or somebody was quicker."""
        sets = ", ".join(f"{name} = {self._words.mark}" for name in _VALUES)
        where = f"{self._of} AND moves = {row.moves}"
        return f"UPDATE {self._named} SET {sets}, moves = moves + 1 WHERE {where}", [*_values(row), *row.pair]

    def drop(self, row: PausedRow) -> Statement:
        """The table is like any other again; as change()."""
        return f"DELETE FROM {self._named} WHERE {self._of} AND moves = {row.moves}", list(row.pair)

    @property
    def _of(self) -> str:
        mark = self._words.mark
        return f"{self._here} AND source = {mark} AND target = {mark}"

    @property
    def _named(self) -> str:
        """The table's name beside parameters."""
        return self._table.replace("%", "%%") if self._words.mark == "%s" else self._table


def _values(row: PausedRow) -> list[Any]:
    at = row.at
    place = [at.position.seqno, at.position.rba, at.split, at.trail_id.hex(), at.csn, at.skip_until]
    return [row.state, row.reason, *place, row.since_us, row.hours]


def _row(found: Sequence[Any]) -> PausedRow:
    source, target, state, reason, seqno, rba, split, trail_id, csn, skip_until, since_us, hours, moves = found
    at = PausePlace(Position(int(seqno), int(rba)), int(split), bytes.fromhex(trail_id), csn or "", skip_until or "")
    return PausedRow(source, target, at, state, reason, int(since_us), int(hours), int(moves))
