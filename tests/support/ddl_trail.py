"""A trail with schema changes in it, and what its readers must see: for dump, planner, pump and golden files."""

from __future__ import annotations

from extract.assemble import Assembler
from tests.support.trail_script import IDENTITY, payload_of
from trails.codec import decode_data
from trails.ddl import ALTER, CREATE, DDL_FILLED, DDL_USING, DROP, RENAME, DdlChange, DdlColumn, TableShape
from trails.fs import Fs
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import BlockReader
from trails.record import Column, Op, TableDef
from trails.recovery import Mark
from trails.writer import TrailWriter

ID = DdlColumn(1, "id", "integer", "integer", not_null=True)
NAME = DdlColumn(2, "naïve", "text", "character varying(9)", default="'x'::character varying", missing="x")
NOTE = DdlColumn(3, "note", "bigint", "bigint", identity="d", not_null=True)
SUM = DdlColumn(4, "sum", "integer", "integer", default="(id + 1)", generated=True)
BARE = TableShape("sales", "orders", (ID,), ("id",))
WIDE = TableShape("sales", "orders", (ID, NAME, NOTE, SUM), ("id",))
MOVED = TableShape("sales", "old orders", (ID, NAME, NOTE, SUM), ("id",))
MADE = DdlChange(CREATE, None, BARE, "CREATE TABLE sales.orders (id int PRIMARY KEY)")
WIDENED = DdlChange(ALTER, BARE, WIDE, "ALTER TABLE sales.orders ADD ...", DDL_USING | DDL_FILLED)
RENAMED = DdlChange(RENAME, WIDE, MOVED, 'ALTER TABLE sales.orders RENAME TO "old orders"')
DROPPED = DdlChange(DROP, MOVED, None, 'DROP TABLE sales."old orders"')

BEFORE = TableDef("sales", "orders", (Column("id", "integer", "integer", key=True),))
AFTER = TableDef("sales", "orders", (*BEFORE.columns, Column("naïve", "text", "character varying(9)")))
OTHER = TableDef("sales", "items", BEFORE.columns)

SCRIPT: list[list[DdlChange | tuple[TableDef, str]]] = [
    [MADE],
    [(BEFORE, "1"), (OTHER, "1")],
    [(BEFORE, "2"), WIDENED, (AFTER, "3"), (OTHER, "2")],
    [RENAMED, DROPPED],
    [(OTHER, "3")],
]
"""Transactions: changes of shape, and inserts by table and first column."""


def write_ddl_trail(fs: Fs, trail: TrailName) -> None:
    """SCRIPT, as an Extract writes it."""
    writer = TrailWriter.open(fs, trail, IDENTITY, max_bytes=1 << 20, start=Mark(), restart_open=True)
    sink = Assembler(writer, Position(0, 0), "", now_us=lambda: 5)
    for number, transaction in enumerate(SCRIPT, 1):
        sink.begin(f"{number:08d}", str(number), number)
        for item in transaction:
            if isinstance(item, DdlChange):
                sink.ddl(item)
            else:
                table, key = item
                rest = ["v"] * (len(table.columns) - 1)
                sink.records.append((int(Op.INSERT), sink.table(table), [key, *rest]))
                sink.grew(10)
        sink.commit(Position(0, number), f"{number:08d}", number)
    sink.cut()
    writer.close()


def read_ddl_trail(fs: Fs, trail: TrailName) -> list[list[DdlChange | tuple[TableDef, str]]]:
    """The transactions of a trail as SCRIPT has them; checks that the header tells a DDL block from others."""
    reader = BlockReader(fs, trail)
    planner = Planner(reader)
    found: list[list[DdlChange | tuple[TableDef, str]]] = []
    while (unit := planner.next()) is not None:
        assert unit.has_ddl == any(block.header.is_ddl for block in unit.blocks)
        for block in unit.blocks:
            ids, records = decode_data(block.header, payload_of(fs, trail, block))
            kinds = [Op(record[0]) for record in records if record[0] not in (Op.BEGIN, Op.COMMIT)]
            assert kinds == [Op.DDL] if block.header.is_ddl else Op.DDL not in kinds
            assert block.header.changes == len(kinds)
            for record in records:
                if record[0] == Op.BEGIN:
                    found.append([])
                elif record[0] == Op.COMMIT:
                    assert record[1] == len(found[-1])
                elif record[0] == Op.DDL:
                    found[-1].append(DdlChange.from_wire(record[1]))
                else:
                    found[-1].append((planner.definitions[ids[record[1]]], record[2][0]))
    reader.close()
    return found
