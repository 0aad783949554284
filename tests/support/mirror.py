"""What a source's trail says, applied.

The mirror is strict: a row that is inserted must not be there, one that is updated or deleted must be. So it fails on
a change that comes twice, or not at all, and on one that comes too early.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.trail_script import payload_of
from trails.codec import decode_data
from trails.ddl import DROP, RENAME, DdlChange
from trails.fs import Fs
from trails.plan import Planner
from trails.position import TrailName
from trails.reader import BlockReader
from trails.record import MISSING, Op, TableDef


@dataclass
class Mirror:
    """Rows by table and key, as the trail's transactions have made them; and those' CSNs, numbers and DDL."""

    tables: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=dict)
    csns: list[str] = field(default_factory=list)
    xids: list[str] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)
    ddl: list[DdlChange] = field(default_factory=list)
    definitions: dict[str, TableDef] = field(default_factory=dict)
    records: list[tuple[Any, ...]] = field(default_factory=list)
    heartbeats: int = 0
    told: list[tuple[Any, ...]] = field(default_factory=list)
    strict: bool = True

    @classmethod
    def of(cls, fs: Fs, trail: TrailName, *, strict: bool = True) -> Mirror:
        """Apply a whole trail; or, if not `strict`, only note what it tells."""
        made = cls(strict=strict)
        reader = BlockReader(fs, trail)
        planner = Planner(reader)
        while (unit := planner.next()) is not None:
            for block in unit.blocks:
                ids, records = decode_data(block.header, payload_of(fs, trail, block))
                tables = [planner.definitions[one] for one in ids]
                for record in records:
                    made._apply(record, tables)
        reader.close()
        return made

    def _apply(self, record: Any, tables: list[TableDef]) -> None:
        op = record[0]
        if op == Op.BEGIN:
            assert not self.csns or record[1] > self.csns[-1], f"{record[1]} comes behind {self.csns[-1]}"
            self.csns.append(record[1])
            self.xids.append(record[2])
            self.changes.append(0)
        elif op == Op.DDL:
            change = DdlChange.from_wire(record[1])
            self.ddl.append(change)
            self.told.append((op, change.shape.name, change.op))
            if change.op == RENAME and change.old is not None:
                self.tables[change.shape.name] = self.tables.pop(change.old.name, {})
            elif change.op == DROP:
                self.tables.pop(change.shape.name, None)
        elif op == Op.HEARTBEAT:
            self.heartbeats += 1
        elif op != Op.COMMIT:
            self.changes[-1] += 1
            self.records.append(tuple(record))
            some = record[1] if op == Op.TRUNCATE else (record[1],)
            names = tuple(tables[one].name for one in some)
            self.told.append((op, names if op == Op.TRUNCATE else names[0], *record[2:]))
            if op == Op.TRUNCATE:
                for name in names:
                    self.tables.pop(name, None)
            elif self.strict:
                self._row(op, tables[record[1]], record)

    def _row(self, op: int, table: TableDef, record: Any) -> None:
        self.definitions[table.name] = table
        rows = self.tables.setdefault(table.name, {})
        key = tuple(record[2][i] for i in table.key)
        if op == Op.INSERT:
            assert key not in rows, f"{table.name} {key} is inserted twice, in {self.csns[-1]}"
            rows[key] = tuple(record[2])
        elif op == Op.DELETE:
            assert key in rows, f"{table.name} {key} is deleted and was not there, in {self.csns[-1]}"
            del rows[key]
        else:
            old = key if record[3] is None else tuple(record[3][i] for i in table.key)
            assert MISSING not in record[2]
            assert old in rows, f"{table.name} {old} is updated and was not there, in {self.csns[-1]}"
            del rows[old]
            assert key not in rows, f"{table.name} {old} becomes {key}, which is there, in {self.csns[-1]}"
            rows[key] = tuple(record[2])

    def sorted(self, table: str) -> list[tuple[Any, ...]]:
        """The rows of a table."""
        return sorted(self.tables.get(table, {}).values(), key=repr)
