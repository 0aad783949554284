"""A chunk on its way: what a task that copies it is told, and what it tells. Plain data that goes to Spark's workers.

Rule: a chunk's snapshot must see every transaction of which a change was left out because the chunk was planned. A
commit can stand in the log before the source shows it (it waits for a standby), so this is looked at, not hoped for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from replicat.load.loadtables import NONE, ChunkRow
from replicat.model.loading import Seen
from trails.controlflow import ControlFlowError
from trails.errors import AwayError
from trails.position import Position
from trails.record import TableDef


class ChangedAwayError(AwayError):
    """The table is not what it was at the source: the place in the trail that says so may still come."""


class SourceAwayError(AwayError):
    """The source database is away, or does not show what it must: the round is tried again later."""

    changed = False
    """Whether it is one table that is not what it was."""

    @classmethod
    def of(cls, error: AwayError) -> SourceAwayError:
        """What a task or thread came to."""
        made = cls(error.message, hint=error.hint)
        made.changed = isinstance(error, ChangedAwayError)
        return made


class FailedError(ControlFlowError):
    """The load of a table can't go on before somebody acts; its text is for them."""


@dataclass(frozen=True, slots=True)
class Must:
    """What a snapshot must see: all up to the CSN of Replicat's row, and these transactions; also `below` and all that
    began before it, unless it is NONE.
    """

    csn: str = ""
    xids: frozenset[int] = frozenset()
    below: int = NONE

    def lacks(self, seen: Seen) -> int:
        """How many of these the snapshot does not see yet; it may be more than that."""
        if seen.kind == "xid":
            open_before = 0 if self.below == NONE or seen.is_past(self.below) else max(1, len(seen.open))
            return open_before + sum(not seen.sees_xid(xid) for xid in self.xids)
        return int(seen.csn < self.csn)


@dataclass(frozen=True, slots=True)
class SourceOf:
    """The source database: its URL, and what the headers of the trail say of it, by which it must agree."""

    url: str = field(default="", repr=False)
    trail: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """One chunk to copy. `high`: where the next one begins; None for the last. `folder`: where its rows are staged."""

    source: SourceOf
    table: TableDef
    chunk: ChunkRow
    high: tuple[str, ...] | None
    must: Must
    folder: str


@dataclass(frozen=True, slots=True)
class Copied:
    """What came of it: `seen` and `past` as the chunk's row has them, and how much was read."""

    chunk: ChunkRow
    seen: str
    past: Position
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The target refuses a chunk that was piped. It is staged then, which finds the row and asks REPERROR."""

    chunk: ChunkRow
    shown: str
