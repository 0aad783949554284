"""The assembler under TABLE options: records change when their block goes out, and other tables' never do."""

from __future__ import annotations

from typing import Any

import pytest

from extract.assemble import Assembler
from extract.params import ExtractParams
from extract.sources.postgres.pgoutput import Decoder
from tests.support import pgwire
from tests.support.pgwire import UNCHANGED, shape_of
from tests.unit.test_extract_assemble import Blocks
from trails.ddl import ALTER, DdlChange, DdlColumn, TableShape
from trails.errors import OperatorError
from trails.position import Position
from trails.record import Column, Op, TableDef
from trails.runtime.language.params import parse_text
from trails.runtime.language.tableparams import environment

TABLES = """TABLE s.*, COLSEXCEPT (v, secret), TOKENS (x = @GETENV ('TRANSACTION', 'XID'));
TABLE s.plain;
TABLE public.t, COLSEXCEPT (v);
"""
PLAIN = TableDef("s", "plain", (Column("id", "integer", "integer", key=True), Column("v", "text", "text")))
RULED = TableDef("s", "ruled", PLAIN.columns)
WIDER = TableDef("s", "ruled", (*PLAIN.columns, Column("secret", "text", "text")))
SENT = TableDef("s", "ruled", (PLAIN.columns[0], Column("X", "token", "")))


def assembler(block_bytes: int = 1000) -> tuple[Assembler, Blocks]:
    """Behind place 10, under TABLES."""
    head = "EXTRACT e\nSOURCEDB postgresql://h/d\nEXTTRAIL ./dirdat/lt\n"
    rules = ExtractParams.from_statements(parse_text(head + TABLES, "e.prm")).tables
    blocks = Blocks()
    project = rules.projector(environment("E", "here"))
    return Assembler(blocks, Position(0, 10), "csn10", block_bytes=block_bytes, project=project), blocks


def insert(sink: Assembler, table: TableDef, *values: Any, size: int = 10) -> None:
    """One row."""
    sink.records.append((int(Op.INSERT), sink.table(table), list(values)))
    sink.grew(size)


def begin(sink: Assembler, place: int) -> None:
    """A transaction, known by its number."""
    sink.begin(f"csn{place}", f"x{place}", place)


def commit(sink: Assembler, place: int) -> None:
    """Its end."""
    sink.commit(Position(0, place), f"csn{place}", place)


def rows(block: dict[str, Any]) -> list[Any]:
    """(table index, image) of a block's inserts."""
    return [record[1:] for record in block["records"] if record[0] == Op.INSERT]


def test_small_transactions_in_one_block() -> None:
    """Each row has the facts of its own transaction; a plain table's record is the very same object."""
    sink, blocks = assembler()
    for place in (11, 12):
        begin(sink, place)
        insert(sink, PLAIN, "1", "v")
        insert(sink, RULED, "2", "v")
        commit(sink, place)
    plain = sink.records[1]
    sink.cut()
    (block,) = blocks.blocks
    assert rows(block) == [(0, ["1", "v"]), (1, ("2", "x11")), (0, ["1", "v"]), (1, ("2", "x12"))]
    assert block["records"][1] is plain
    assert block["tables"] == [PLAIN.id, SENT.id]
    assert block["changes"] == 4
    assert sink.keeps(PLAIN, 1)
    assert not sink.keeps(RULED, 1)


def test_a_block_without_such_tables_is_not_looked_at() -> None:
    """The list of records goes out as it stands."""
    sink, _ = assembler()
    given: list[Any] = []
    sink._output.append_data = lambda i, t, records, **facts: given.append(records)  # type: ignore[method-assign]
    begin(sink, 11)
    insert(sink, PLAIN, "1", "v")
    commit(sink, 11)
    sink.cut()
    assert given[0] is sink.records


def test_later_blocks_of_a_large_transaction_know_its_facts() -> None:
    """CW-03: also where the begin block held no such table."""
    sink, blocks = assembler(block_bytes=100)
    begin(sink, 11)
    for n in range(10):
        insert(sink, PLAIN, str(n), "v", size=20)
    for n in range(20):
        insert(sink, RULED, str(n), "v", size=20)
    commit(sink, 11)
    begin(sink, 12)
    insert(sink, RULED, "last", "v")
    commit(sink, 12)
    sink.cut()
    assert blocks.indicators()[0] == "BEGIN"
    assert blocks.indicators()[-2:] == ["END", "WHOLE"]
    found = [image for block in blocks.blocks for _, image in rows(block) if len(image) == 2 and image[1] != "v"]
    assert found == [*((str(n), "x11") for n in range(20)), ("last", "x12")]


def test_shapes_that_look_alike_when_cut_stay_apart() -> None:
    """An added column that is left out gives the same definition, but its rows are cut in another way."""
    sink, blocks = assembler()
    begin(sink, 11)
    insert(sink, RULED, "1", "v")
    insert(sink, WIDER, "2", "v", "s")
    commit(sink, 11)
    assert [block["tables"] for block in blocks.blocks] == [[SENT.id], [SENT.id]]
    assert [rows(block) for block in blocks.blocks] == [[(0, ("1", "x11"))], [(0, ("2", "x11"))]]


def test_ddl_of_a_column_that_is_left_out_is_none() -> None:
    """DB-02: it makes no block; another one goes on without that column."""
    one = TableShape("s", "ruled", (DdlColumn(1, "id", "integer", "integer"),), ("id",))
    secret = TableShape("s", "ruled", (*one.columns, DdlColumn(2, "secret", "text", "text")), ("id",))
    both = TableShape("s", "ruled", (*secret.columns, DdlColumn(3, "w", "text", "text")), ("id",))
    sink, blocks = assembler()
    begin(sink, 11)
    sink.ddl(DdlChange(ALTER, one, secret))
    commit(sink, 11)
    assert blocks.blocks == []
    begin(sink, 12)
    sink.ddl(DdlChange(ALTER, one, both))
    commit(sink, 12)
    (block,) = blocks.blocks
    change = DdlChange.from_wire(block["records"][1][1])
    assert change.new is not None
    assert [column.name for column in change.new.columns] == ["id", "w"]


def test_an_unchanged_value_of_a_column_that_is_left_out_need_not_be_known() -> None:
    """TOAST: no old row, no error; of any other column it is refused as ever."""
    sink, blocks = assembler()
    relation = pgwire.table(1, "t", "d", "id* v w")
    decoder = Decoder(sink, shape_of, 0)
    for message in (pgwire.begin(100), pgwire.relation(relation), pgwire.update(1, [b"1", UNCHANGED, b"w"])):
        decoder.decode(message)
    with pytest.raises(OperatorError, match=r"public\.t.* column w.*ADD TRANDATA"):
        decoder.decode(pgwire.update(1, [b"1", UNCHANGED, UNCHANGED]))
    sink.cut()
    sink._put_out_all()
    assert blocks.blocks[0]["records"][1] == (Op.UPDATE, 0, (b"1", b"w"), None)
