"""TABLE options on blocks in the pump: definitions, images, tokens, and what is refused when."""

from __future__ import annotations

from typing import Any

import pytest

from pump.filter import Filter
from pump.params import PumpParams
from tests.support.link import AUDIT, ITEMS, ORDERS
from tests.unit.test_pump_filter import BEGIN, KNOWN, ROW, block
from trails.codec import binary, decode_data
from trails.errors import OperatorError
from trails.format import Indicator
from trails.record import Column, Op, TableDef
from trails.runtime.language.params import parse_text
from trails.runtime.language.tableparams import environment

HEAD = "EXTRACT p\nRMTHOST h, MGRPORT 1\nRMTTRAIL ./dirdat/rt\n"
TABLES = """TABLE *.*;
TABLE sales.orders, COLSEXCEPT (note), TOKENS (csn = @GETENV ('TRANSACTION', 'CSN'));
TABLE sys.audit, COLS (raw);
"""
SENT = TableDef("sales", "orders", (ORDERS.columns[0], Column("CSN", "token", "")))


def rules(tables: str = TABLES) -> Filter:
    """As the pump makes it."""
    params = PumpParams.from_statements(parse_text(HEAD + tables, "p.prm"))
    assert params.filters
    return Filter(params.passes, lambda table, op, n: None, params.tables.projector(environment("P", "here")))


def kept(rules: Filter, indicator: Indicator, records: list[Any]) -> tuple[list[bytes], list[Any]]:
    """(table ids, records) of what is left."""
    found = rules.data(*block(indicator, records), KNOWN, "here")
    assert found is not None
    return decode_data(found.header, found.payload)


def test_rows_go_as_their_clauses_say() -> None:
    """Each under its new definition; binary stays binary; the header's counts hold."""
    audit = ["at", binary(b"\0\xff")]
    records = [BEGIN, [Op.INSERT, 1, ROW], [Op.UPDATE, 2, ROW, None], [Op.DELETE, 0, audit], [Op.COMMIT, 3]]
    ids, found = kept(rules(), Indicator.WHOLE, records)
    raw = TableDef("sys", "audit", (AUDIT.columns[1],))
    assert ids == [SENT.id, ITEMS.id, raw.id]
    assert found[1:4] == [[Op.INSERT, 0, ["1", "10"]], [Op.UPDATE, 1, ROW, None], [Op.DELETE, 2, [b"\0\xff"]]]


def test_later_blocks_of_a_large_transaction_know_its_facts() -> None:
    """CW-05: a resumed pump has read its begin again."""
    made = rules()
    kept(made, Indicator.BEGIN, [BEGIN, [Op.INSERT, 2, ROW]])
    assert kept(made, Indicator.MIDDLE, [[Op.INSERT, 1, ROW]])[1] == [[Op.INSERT, 0, ["1", "10"]]]
    assert kept(made, Indicator.END, [[Op.INSERT, 1, ROW], [Op.COMMIT, 3]])[1][0] == [Op.INSERT, 0, ["1", "10"]]
    second = [Op.BEGIN, "20", "8", 5]
    assert kept(made, Indicator.WHOLE, [second, [Op.INSERT, 1, ROW], [Op.COMMIT, 1]])[1][1][2] == ["1", "20"]


def test_a_block_of_plain_tables_is_sent_as_it_stands() -> None:
    """The same payload object, though other tables of the trail have options."""
    from trails.codec import encode_data
    from trails.format import BlockHeader, BlockKind

    payload = encode_data([ITEMS.id], [BEGIN, [Op.INSERT, 0, ROW], [Op.COMMIT, 1]])
    header = BlockHeader(
        BlockKind.DATA,
        Indicator.WHOLE,
        payload.flags,
        len(payload.data),
        payload.raw_len,
        1,
        1,
        payload_crc=payload.crc,
    )
    found = rules().data(header, payload.data, KNOWN, "here")
    assert found is not None
    assert found.payload is payload.data


def test_definitions_are_sent_as_rows_will_have_them() -> None:
    """In METADATA; the filter's own word for a kept table."""
    assert rules().definitions([ITEMS, ORDERS]) == [ITEMS, SENT]


def test_a_clause_that_cannot_be_obeyed() -> None:
    """At START for the shape in force; in the stream with the first row, as a file may name old shapes once more."""
    made = rules("TABLE sales.orders, COLS (id, zip);")
    assert made.definitions([ITEMS, ORDERS]) == []
    with pytest.raises(OperatorError, match=r"p\.prm:4: TABLE sales\.orders: COLS: the table has no column zip"):
        made.definitions([ORDERS], strict=True)
    with pytest.raises(OperatorError, match=r"p\.prm:4"):
        kept(made, Indicator.WHOLE, [BEGIN, [Op.INSERT, 1, ROW], [Op.COMMIT, 1]])


def test_a_missing_column_of_a_group_is_refused_with_its_row() -> None:
    """A source that leaves out what an update did not change; an old row that has it is as good."""
    made = rules("TABLE *.*, COLGROUP (id, note);")
    lacking, old = ["1", False], ["1", "old"]
    found = kept(made, Indicator.WHOLE, [BEGIN, [Op.UPDATE, 1, lacking, old], [Op.COMMIT, 1]])
    assert found[1][1] == [Op.UPDATE, 0, ["1", "old"], old]
    with pytest.raises(OperatorError, match=r"sales\.orders, row id=1, CSN 10: .*column note.*ADD TRANDATA"):
        kept(made, Indicator.WHOLE, [BEGIN, [Op.UPDATE, 1, lacking, None], [Op.COMMIT, 1]])
