"""Blocks to (transaction, change): here is found out which transaction each record is of.

    for transaction, change in walk(blocks): ...

Rule: a transaction is one value from its first record to its last, and grows while it is walked. BEGIN and COMMIT are
given as well, so that a transaction without changes is seen too. Two loops do this work by themselves, as a generator
before them would add a tenth to a Spark worker's time: Builder._add and `gather` (both in replicat/work). So does who
rewrites a block record by record (pump/filter.py), or reads backwards (logdump's cursor).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from trails.position import Position
from trails.record import BEGIN, COMMIT, HEARTBEAT, Op

NO_CHANGES: Final = frozenset((BEGIN, COMMIT, HEARTBEAT))

Records = tuple[Position, list[bytes], list[Any]]
"""A decoded block: its place, the tables that its records name by number, and the records."""


@dataclass(slots=True)
class Walked:
    """What was walked of one transaction. `number`: from 0 on, in the order of the walk.

    `csn`, `xid` and `time_us` are empty where it began before the walk. `changes`: how many came before the record that
    was given last, and all of them once the next transaction is given. `ends`: its COMMIT was met.
    """

    number: int = 0
    csn: str = ""
    xid: str = ""
    time_us: int | None = None
    changes: int = 0
    ends: bool = False


class WalkedRecord(NamedTuple):
    """One record, and where it stands."""

    position: Position
    tables: list[bytes]
    record: Any

    @property
    def op(self) -> Op:
        """Its kind."""
        return Op(self.record[0])


def walk(blocks: Iterable[Records], opened: Walked | None = None) -> Iterator[tuple[Walked, WalkedRecord]]:
    """Each record with its transaction. `opened`: that of the walk before, which these blocks may go on with."""
    now = opened
    for position, tables, records in blocks:
        for record in records:
            op = record[0]
            if op == BEGIN:
                now = Walked(0 if now is None else now.number + 1, record[1], record[2], record[3])
            now = now or Walked()
            now.ends = now.ends or op == COMMIT
            yield now, WalkedRecord(position, tables, record)
            now.changes += op not in NO_CHANGES


def transactions(blocks: Iterable[Records]) -> list[Walked]:
    """Each transaction of which a record stands in the blocks."""
    return list({transaction.number: transaction for transaction, _ in walk(blocks)}.values())
