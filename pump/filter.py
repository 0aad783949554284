"""TABLE and TABLEEXCLUDE applied to blocks: pure functions of a block, and the begin and count of an open transaction.

Rule: one block in, at most one block out, with the same indicator; so the remote trail's blocks follow the local one's
and a place in one says a place in the other. A transaction that keeps nothing vanishes; a large one always keeps its
begin and its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trails.codec import Payload, binary, decode_data, encode_data
from trails.columns import Project, Projection
from trails.ddl import DdlChange
from trails.errors import OperatorError
from trails.format import FLAG_DDL, BlockHeader, Indicator
from trails.reader import shapes_of, widths_in
from trails.record import Op, TableDef
from trails.wellformed import Opened

Passes = Callable[[str, str], bool]
Count = Callable[[TableDef, Op, int], None]


@dataclass(frozen=True, slots=True)
class KeptBlock:
    """What is left of a DATA block, and its payload."""

    header: BlockHeader
    payload: bytes


class Filter:
    """Keeps the tables that `passes` allows, and of them what `project` leaves (None: all).

    `begun` is the begin of the open large transaction, `changes` counts what is kept of it.
    """

    def __init__(self, passes: Passes, count: Count, project: Project | None = None) -> None:
        self._passes = passes
        self._count = count
        self._project = project
        self._known: dict[bytes, bool] = {}
        self._opened = Opened()
        self.begun: Any = None
        self.changes = 0

    def passes(self, definition: TableDef) -> bool:
        """Whether the table is kept; asked once for each definition."""
        known = self._known.get(definition.id)
        if known is None:
            known = self._known[definition.id] = self._passes(definition.schema, definition.name)
        return known

    def projection(self, definition: TableDef) -> Projection | None:
        """What becomes of a kept table's rows; None: they stay as they are. Raises what `project` raises."""
        return None if self._project is None else self._project(definition)

    def ddl(self, change: DdlChange) -> DdlChange | None:
        """What is left of a change of shape, for those who don't see all tables and columns; None: nothing.

        A renamed table passes by either of its names.
        """
        if not any(self._passes(schema, name) for schema, name in change.names):
            return None
        return change if self._project is None else self._project.ddl(change)

    def definitions(self, defs: Sequence[TableDef], *, strict: bool = False) -> list[TableDef]:
        """Those of the tables that are kept, as they are sent.

        A shape that its TABLE can't be obeyed for is left out, unless `strict`: it may be an old one, named once more
        at the begin of a file. Its first row raises the error.
        """
        kept = []
        for definition in defs:
            if self.passes(definition):
                try:
                    projection = self.projection(definition)
                except OperatorError:
                    if strict:
                        raise
                    continue
                kept.append(definition if projection is None else projection.definition)
        return kept

    def data(
        self, header: BlockHeader, payload: bytes, known: Mapping[bytes, TableDef], where: str, *, again: bool = False
    ) -> KeptBlock | None:
        """What is left of a DATA block; None if nothing is. `again`: it was sent before, don't count it."""
        ids, records = decode_data(header, payload, where, widths_in(known, where), self._opened)
        tables = shapes_of(ids, known, where)
        work = _Work(self, tables, header.indicator)
        work.run(records)
        for (table, op), n in ({} if again else work.counted).items():
            self._count(table, op, n)
        if not work.out:
            return None
        if not work.dropped and work.keeps_all:
            return KeptBlock(header, payload)
        return _kept(header, encode_data(work.ids, work.out), work.changes, work.transactions, ddl=work.ddl)


def empty_middle(header: BlockHeader) -> KeptBlock:
    """A middle block without records: it only carries a place inside an open transaction."""
    return _kept(header, encode_data([], []), 0, 0)


def _kept(header: BlockHeader, payload: Payload, changes: int, transactions: int, *, ddl: bool = False) -> KeptBlock:
    made = replace(
        header,
        flags=payload.flags | (FLAG_DDL if ddl else 0),
        payload_len=len(payload.data),
        raw_len=payload.raw_len,
        changes=changes,
        transactions=transactions,
        payload_crc=payload.crc,
    )
    return KeptBlock(made, payload.data)


class _Work:
    """One block under way: the records that are left, with table indexes of the new, shorter table list."""

    def __init__(self, rules: Filter, tables: list[TableDef], indicator: Indicator) -> None:
        self._rules = rules
        self._tables = tables
        self._keep = [rules.passes(table) for table in tables]
        self._projections = [
            rules.projection(table) if keep else None for table, keep in zip(tables, self._keep, strict=True)
        ]
        self._new: dict[int, int] = {}
        self._large = indicator is not Indicator.WHOLE
        self._begin: Any = None
        self.dropped = False
        self.ddl = False
        self.ids: list[bytes] = []
        self.out: list[Any] = []
        self.changes = 0
        self.transactions = 0
        self.counted: dict[tuple[TableDef, Op], int] = {}

    @property
    def keeps_all(self) -> bool:
        """Whether no table of the list is left out or changed: then the block may go as it stands."""
        return all(self._keep) and not any(self._projections)

    def run(self, records: list[Any]) -> None:
        """Take every record of the block."""
        for record in records:
            self._take(record)

    def _take(self, record: Any) -> None:
        op = record[0]
        if op in (Op.INSERT, Op.UPDATE, Op.DELETE):
            self._change(record, op)
        elif op == Op.TRUNCATE:
            self._truncate(record)
        elif op == Op.DDL:
            self._shape(record)
        elif op == Op.BEGIN:
            self._open(record)
        elif op == Op.COMMIT:
            self._commit(record)

    def _open(self, record: Any) -> None:
        self._rules.changes = 0
        self._rules.begun = self._begin = record
        if self._large:
            self._emit_begin()

    def _emit_begin(self) -> None:
        if self._begin is not None:
            self.out.append(self._begin)
            self._begin = None

    def _change(self, record: Any, op: int) -> None:
        table = record[1]
        if not self._keep[table]:
            self.dropped = True
            return
        projection = self._projections[table]
        if projection is not None:
            chosen = record if projection.choice is None else projection.choice.record(record, self._rules.begun)
            if chosen is None:
                self.dropped = True
                return
            op = chosen[0]
            record = projection.record(chosen, self._rules.begun)
        images = [
            [binary(v) if type(v) is bytes else v for v in image] if image and bytes in map(type, image) else image
            for image in record[2:]
        ]
        self._emit([op, self._index(table), *images], table, Op(op))

    def _truncate(self, record: Any) -> None:
        kept = [table for table in record[1] if self._keep[table] and self._truncates(table)]
        if len(kept) < len(record[1]):
            self.dropped = True
        if kept:
            self._emit([Op.TRUNCATE, [self._index(table) for table in kept], record[2]], kept[0], Op.TRUNCATE)

    def _truncates(self, table: int) -> bool:
        projection = self._projections[table]
        return projection is None or projection.choice is None or projection.choice.truncates

    def _shape(self, record: Any) -> None:
        change = DdlChange.from_wire(record[1])
        left = self._rules.ddl(change)
        if left != change:
            self.dropped = True
        if left is not None:
            self.ddl = True
            self._put([Op.DDL, left.to_wire()], TableDef(left.shape.schema, left.shape.name, ()), Op.DDL)

    def _emit(self, record: list[Any], table: int, op: Op) -> None:
        self._put(record, self._tables[table], op)

    def _put(self, record: list[Any], table: TableDef, op: Op) -> None:
        self._emit_begin()
        self.out.append(record)
        self.changes += 1
        self._rules.changes += 1
        self.counted[table, op] = self.counted.get((table, op), 0) + 1

    def _commit(self, record: Any) -> None:
        if self._begin is not None:
            self._begin = None
            self.dropped = True
            return
        self.out.append([Op.COMMIT, self._rules.changes])
        self.transactions += 1
        if record[1] != self._rules.changes:
            self.dropped = True

    def _index(self, table: int) -> int:
        new = self._new.get(table)
        if new is None:
            new = self._new[table] = len(self.ids)
            projection = self._projections[table]
            self.ids.append((projection.definition if projection else self._tables[table]).id)
        return new
