"""ListTarget with shapes that change: it obeys the statements of replicat/ddl/dialect.py, in a transaction or without.

`kind` "postgresql" keeps shapes and rows of an open transaction apart until its commit; "mysql" changes them at once,
and has no transaction open then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from replicat.model.target import RefusedError, TargetColumn, TargetTable
from replicat.targets.kinds import kind_of
from tests.support.list_target import ListTarget, Store, copied, shape
from tests.support.replicat_trail import TrailFeed
from trails.ddl import DdlChange, DdlColumn, TableShape
from trails.format import Indicator
from trails.position import Position
from trails.record import Column, Op, TableDef

Shapes = dict[tuple[str, str], TargetTable]


@dataclass
class ShapedStore(Store):
    """Shapes survive a connection too."""

    shapes: Shapes = field(default_factory=dict)


class DdlTarget(ListTarget):
    """See above."""

    def __init__(self, store: ShapedStore, kind: str = "postgresql") -> None:
        super().__init__(store, [])
        self.kind = kind_of(kind)
        self.refuses = ""  # statements that hold this text
        self._own = store
        self.shapes = store.shapes

    def connect(self) -> None:
        super().connect()
        self.shapes = self._own.shapes

    def begin(self, old: Any, new: Any) -> None:
        super().begin(old, new)
        self.shapes = dict(self._own.shapes)  # a shape is replaced, never changed

    def commit(self) -> None:
        self._call("commit")
        assert self._tables is not None
        self._own.shapes = self.shapes
        self.store.tables, self.store.row, self._tables = self._tables, self._new, None
        self.faults("committed")

    def ddl(self, statements: tuple[str, ...]) -> None:
        if not self.kind.can.ddl_in_transaction:
            assert self._tables is None, "a transaction is open"
            self._tables, self.shapes = self.store.tables, self._own.shapes
        before = copied(self._tables or {}), dict(self.shapes)
        try:
            for statement in statements:
                self._call("ddl")
                if self.refuses and self.refuses in statement:
                    raise RefusedError("s.kv", f"{statement}: refused", "55P03", "1205")
                self._obey(statement.replace("`", '"'))
        except RefusedError:
            if self.kind.can.ddl_in_transaction:
                self._tables, self.shapes = before
            raise
        finally:
            if not self.kind.can.ddl_in_transaction:
                self._tables = None

    def _obey(self, statement: str) -> None:
        names = re.findall(r'"([^"]*)"', statement)
        place = (names[0], names[1])
        if statement.startswith("CREATE TABLE"):
            columns, _, key = statement.partition("PRIMARY KEY")
            made = re.findall(r'"([^"]*)"', columns)[2:]
            self.shapes[place] = shape(*place, " ".join(made), " ".join(re.findall(r'"([^"]*)"', key)))
        elif statement.startswith("DROP TABLE"):
            del self.shapes[place]
            self._rows.pop(place, None)
        elif statement.startswith("RENAME TABLE") or "RENAME TO" in statement:
            new = (place[0], names[-1])
            self.shapes[new] = replace(self.shapes.pop(place), name=new[1])
            if place in self._rows:
                self._rows[new] = self._rows.pop(place)
        else:
            self._column(statement, place, names[2:])

    @property
    def _rows(self) -> Any:
        assert self._tables is not None
        return self._tables

    def _column(self, statement: str, place: tuple[str, str], names: list[str]) -> None:
        table = self.shapes[place]
        columns = [column.name for column in table.columns]
        if "ADD COLUMN" in statement:
            assert names[0] not in columns, statement
            self._shaped(place, [*table.columns, TargetColumn(names[0], "text")])
            value = _value(statement)
            self._each(place, lambda row: (*row, value))
        elif "DROP COLUMN" in statement:
            at = columns.index(names[0])
            self._shaped(place, [column for column in table.columns if column.name != names[0]])
            self._each(place, lambda row: row[:at] + row[at + 1 :])
        elif "RENAME COLUMN" in statement:
            self._shaped(place, [replace(c, name=names[1] if c.name == names[0] else c.name) for c in table.columns])

    def _shaped(self, place: tuple[str, str], columns: list[TargetColumn]) -> None:
        self.shapes[place] = replace(self.shapes[place], columns=tuple(columns))

    def _each(self, place: tuple[str, str], change: Any) -> None:
        rows = self._rows.get(place)
        if isinstance(rows, dict):
            self._rows[place] = {key: change(row) for key, row in rows.items()}
        elif rows:
            self._rows[place] = [change(row) for row in rows]


def _value(statement: str) -> str | None:
    if found := re.search(r"DEFAULT \(?'([^']*)'", statement):
        return found[1]
    found = re.search(r"X'([0-9a-f]*)'", statement)
    return bytes.fromhex(found[1]).decode() if found else None


# --- changes of shape in a trail -------------------------------------------------------------------------------------


def table_shape(schema: str, name: str, columns: str, key: str = "id", **more: DdlColumn) -> TableShape:
    """`table_shape("s", "t", "1:id 2:v")`: text columns by number; `more`: others by name."""
    made = []
    for item in columns.split():
        number, _, column = item.partition(":")
        made.append(more.get(column) or DdlColumn(int(number), column, "text", "text"))
    return TableShape(schema, name, tuple(made), tuple(key.split()))


def definition(made: TableShape) -> TableDef:
    """What rows of this shape are named by."""
    columns = tuple(Column(c.name, c.type, c.native, key=c.name in made.key) for c in made.columns)
    return TableDef(made.schema, made.name, columns)


def feed_ddl(feed: TrailFeed, *items: DdlChange | tuple[Any, ...]) -> str:
    """One transaction of changes of shape and rows (op, TableDef, image ...), as an Extract cuts it into blocks."""
    feed.number += 1
    csn = f"{feed.number:016d}"
    runs: list[list[DdlChange] | list[tuple[Any, ...]]] = []
    for item in items:
        if not isinstance(item, DdlChange) and runs and not isinstance(runs[-1][0], DdlChange):
            runs[-1].append(item)  # type: ignore[arg-type]
        else:
            runs.append([item])  # type: ignore[list-item]
    for number, run in enumerate(runs):
        first, last = number == 0, number == len(runs) - 1
        records: list[Any] = [(Op.BEGIN, csn, str(feed.number), feed.number)] if first else []
        tables: dict[TableDef, int] = {}
        for item in run:
            if isinstance(item, DdlChange):
                records.append((Op.DDL, item.to_wire()))
            else:
                op, named, *rest = item
                rest += [None] if op == Op.UPDATE and len(rest) == 1 else []
                records.append((op, tables.setdefault(named, len(tables)), *rest))
        records += [(Op.COMMIT, len(items))] if last else []
        feed.writer.define(list(tables))
        before = feed.writer.last
        kind = Indicator.WHOLE if first and last else Indicator.BEGIN if first else Indicator.MIDDLE
        feed.writer.append_data(
            Indicator.END if last and not first else kind,
            [each.id for each in tables],
            records,
            changes=len(run),
            transactions=int(last),
            origin=Position(0, feed.number) if last else before.origin,
            csn=csn if last else before.csn,
            time_us=feed.number,
            ddl=isinstance(run[0], DdlChange),
        )
    feed.writer.sync()
    return csn
