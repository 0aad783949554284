"""A statement of the log, as a QUERY event has it, and what becomes of it: the border to whoever decodes events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trails.ddl import DdlChange
from trails.position import Position
from trails.record import TableDef


@dataclass(frozen=True, slots=True)
class QueryText:
    """What a QUERY event says.

    `where`: file and position, for messages; `origin`: the place just behind the event. `sql_mode`: its bits.
    `charset`: the number of the collation of the client's text; 0 where the event does not say. `zone`: the session's
    time zone, such as `+02:00` or `SYSTEM`; empty where it does not say.
    `time_us`: when it began. `error`: the server's error number, 0 of a statement that did all of its work.
    """

    where: str
    origin: Position
    schema: str
    sql: bytes
    sql_mode: int = 0
    charset: int = 0
    zone: str = ""
    time_us: int = 0
    error: int = 0


@dataclass(frozen=True, slots=True)
class Truncated:
    """A captured table lost all of its rows; `definition` as of that place."""

    definition: TableDef


class Statements(Protocol):
    """Told of every statement in the log that is no BEGIN, COMMIT, ROLLBACK, SAVEPOINT or XA, in the log's order.

    A transaction that was handed over already is passed over whole: its statements are not told again.
    """

    def run(self, query: QueryText) -> Sequence[DdlChange | Truncated]:
        """What it changes, in order; most change nothing. What it changed is durable when this returns.

        The changes that nobody wants are left out. Raises OperatorError for rows changed by a statement, and where the
        statement is not understood and may concern a captured table.
        """
        ...
