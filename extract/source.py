"""What a source of changes is, and how it resumes: the contract between Extract and one capture method.

A source hands over committed transactions, whole and in commit order, by calling a sink. It never looks at the trail:
it is told where the trail ends and goes on just behind, and it is told what is durable and only then lets the database
forget.

The resume contract
- `identify(known)` connects, checks everything that capturing needs (each failure names the statement that mends it),
  and returns what names this source (kind, system, database, slot, ...) for the trail's headers. `known` is what the
  trail's last header says; if this is another source, MismatchError is raised before anything is read or written.
- `start(origin)` goes on with the first transaction that committed at or behind `origin`. Origins are borders between
  transactions: the origin of a commit is the place just behind it. Resuming there gives the next transaction: none
  twice, none left out. A source that has already let go of changes behind `origin` (another slot, a gap) raises
  MismatchError: it never starts behind a hole.
- `poll` hands over what is ready, a bounded piece, and never waits for more than a moment.
- Lost connections are the source's own affair: it calls `sink.abandon()`, which drops the open transaction, and goes on
  at `sink.origin` by the rules of `start`, as often as its parameters allow; then it raises AwayError.
- `release(origin)` says: everything before `origin` is synced. No other call, and no library, may let the database
  forget.
- `close` may never be called: a killed process resumes by the same rules.
"""

from __future__ import annotations

from typing import Any, Protocol

from extract.longtrans import Outstanding
from trails.checkpoint import Place
from trails.ddl import DdlChange
from trails.position import Position
from trails.record import Record, TableDef


class Sink(Protocol):
    """Where a source puts changes; `extract.assemble.Assembler` is the one there is."""

    records: list[Record]
    """Records are appended here: between `begin` and `commit` the changes of that transaction, in order."""
    cache: dict[Any, Any]
    """The source's own look-up by table; emptied by the sink whenever table indexes begin anew."""

    @property
    def origin(self) -> Position:
        """Everything that committed before this place was handed over."""
        ...

    def table(self, definition: TableDef) -> int:
        """The index by which the next record names this table. May close a block, and so empty `cache`."""
        ...

    def ddl(self, change: DdlChange) -> None:
        """Inside a transaction: a table changes its shape here. Empties `cache`."""
        ...

    def keeps(self, definition: TableDef, column: int) -> bool:
        """Whether the trail gets this column (by its index) of a table: if not, its value need not be known."""
        ...

    def begin(self, csn: str, xid: str, commit_us: int) -> None:
        """A transaction, known committed, begins."""
        ...

    def commit(self, origin: Position, csn: str, commit_us: int) -> None:
        """It ends; the next one begins at or behind `origin`."""
        ...

    def grew(self, size: int) -> None:
        """About so many bytes were appended since the last call; called at least every 256 KiB or single change."""
        ...

    def reached(self, origin: Position, time_us: int) -> None:
        """Outside a transaction: nothing that committed before `origin` is still to come."""
        ...

    def abandon(self) -> None:
        """The open transaction, if any, will be handed over again from its begin, or never."""
        ...


class Source(Protocol):
    """One capture method on one database; the module's docstring has the rules."""

    title: str
    """How SHOWCH names the kind of log, such as `PostgreSQL WAL`."""

    def identify(self, known: dict[str, str] | None) -> dict[str, str]:
        """Connect, check, and say who answers."""
        ...

    def first_origin(self) -> Position:
        """Where a new trail begins."""
        ...

    def origin_of(self, order: dict[str, Any]) -> Position:
        """The place an ALTER names. Raises OperatorError where the source can't go on from there."""
        ...

    def fits(self, origin: Position) -> None:
        """After `identify`: raise MismatchError if the trail holds what this source never had. `start` asks it too."""
        ...

    def start(self, origin: Position, sink: Sink) -> None:
        """Begin to capture just behind `origin`."""
        ...

    def poll(self) -> bool:
        """Hand over a bounded piece of what is ready; True if there is more at once."""
        ...

    def release(self, origin: Position) -> None:
        """Everything before `origin` is durable in the trail."""
        ...

    def waits(self) -> list[int]:
        """File descriptors that become readable when there is something to poll."""
        ...

    def idle_seconds(self) -> float:
        """The longest time until `poll` must be called again, readable or not."""
        ...

    def state(self) -> str:
        """What it is doing, for STATUS, when that is more than reading."""
        ...

    def read_place(self) -> Place:
        """The last record read."""
        ...

    def place(self, origin: Position, time_us: int | None) -> Place:
        """An origin in the source's own terms."""
        ...

    def measures(self) -> dict[str, Any]:
        """For METRICS: `backlog_bytes` of log that is not read yet, if known; and what only this source knows."""
        ...

    def about(self) -> list[str]:
        """For the report, after `identify`: the database's version and character set."""
        ...

    def outstanding(self) -> Outstanding:
        """Transactions that are open in the database, for SHOWTRANS. Asked by a thread of its own, whatever else runs.

        Raises AwayError or OperatorError.
        """
        ...

    def close(self) -> None:
        """Let go in order, so that the next start need not wait."""
        ...
