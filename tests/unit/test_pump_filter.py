"""TABLE clauses on blocks: what stays, what vanishes, what is counted."""

from __future__ import annotations

import pytest

from pump.filter import Filter, empty_middle
from tests.support.link import AUDIT, ITEMS, ORDERS
from trails.codec import decode_data, encode_data
from trails.errors import DamageError
from trails.format import BlockHeader, BlockKind, Indicator
from trails.record import Op

KNOWN = {table.id: table for table in (ORDERS, ITEMS, AUDIT)}
IDS = [AUDIT.id, ORDERS.id, ITEMS.id]
BEGIN, ROW = [Op.BEGIN, "10", "7", 5], ["1", "x"]
SALES = lambda schema, name: schema == "sales"  # noqa: E731


def block(indicator, records):
    payload = encode_data(IDS, records)
    changes = sum(r[:1] not in ([Op.BEGIN], [Op.COMMIT]) for r in records)
    header = BlockHeader(
        BlockKind.DATA, indicator, payload.flags, len(payload.data), payload.raw_len, changes,
        sum(r[:1] == [Op.COMMIT] for r in records), csn="10", time_us=9, payload_crc=payload.crc,
    )  # fmt: skip
    return header, payload.data


def kept(rules, indicator, records):
    """(table ids, records, header) of what is left, or None."""
    found = rules.data(*block(indicator, records), KNOWN, "here")
    if found is None:
        return None
    assert found.header.payload_len == len(found.payload)
    return *decode_data(found.header, found.payload), found.header


def rules(passes=SALES):
    counted = []
    made = Filter(passes, lambda table, op, n: counted.append((table.full_name, op, n)))
    made.counted = counted
    return made


def test_records_of_other_tables_go_and_the_rest_is_renumbered():
    """Table list, indexes, COMMIT count and header counts all name what is left."""
    f = rules()
    records = [BEGIN, [Op.INSERT, 0, ROW], [Op.UPDATE, 2, ROW, None], [Op.DELETE, 1, ROW], [Op.COMMIT, 3]]
    ids, found, header = kept(f, Indicator.WHOLE, records)
    assert ids == [ITEMS.id, ORDERS.id]
    assert found == [BEGIN, [Op.UPDATE, 0, ROW, None], [Op.DELETE, 1, ROW], [Op.COMMIT, 2]]
    assert (header.changes, header.transactions, header.csn, header.time_us) == (2, 1, "10", 9)
    assert f.counted == [("sales.items", Op.UPDATE, 1), ("sales.orders", Op.DELETE, 1)]


def test_a_transaction_that_keeps_nothing_vanishes():
    """BEGIN and COMMIT go with it; a block of such transactions goes whole."""
    nothing = [BEGIN, [Op.INSERT, 0, ROW], [Op.COMMIT, 1]]
    assert kept(rules(), Indicator.WHOLE, nothing) is None
    _, found, header = kept(rules(), Indicator.WHOLE, [*nothing, BEGIN, [Op.INSERT, 1, ROW], [Op.COMMIT, 1]])
    assert found == [BEGIN, [Op.INSERT, 0, ROW], [Op.COMMIT, 1]]
    assert header.transactions == 1


def test_CW_05_begin_and_end_of_a_large_transaction_stay_even_when_empty():
    """CW-05: it begins and ends at the remote side; COMMIT counts what was kept in all its blocks."""
    f = rules()
    assert kept(f, Indicator.BEGIN, [BEGIN, [Op.INSERT, 0, ROW]])[1] == [BEGIN]
    assert kept(f, Indicator.MIDDLE, [[Op.INSERT, 0, ROW]]) is None
    assert kept(f, Indicator.MIDDLE, [[Op.INSERT, 1, ROW], [Op.INSERT, 0, ROW]])[1] == [[Op.INSERT, 0, ROW]]
    assert kept(f, Indicator.END, [[Op.INSERT, 0, ROW], [Op.COMMIT, 5]])[1] == [[Op.COMMIT, 1]]


def test_truncate_names_the_tables_that_are_left():
    """A TRUNCATE of several tables keeps some, or goes."""
    f = rules()
    records = [BEGIN, [Op.TRUNCATE, [0, 2, 1], 1], [Op.TRUNCATE, [0], 0], [Op.COMMIT, 2]]
    ids, found, _ = kept(f, Indicator.WHOLE, records)
    assert ids == [ITEMS.id, ORDERS.id]
    assert found == [BEGIN, [Op.TRUNCATE, [0, 1], 1], [Op.COMMIT, 1]]


def test_a_block_whose_tables_all_pass_is_sent_as_it_stands():
    """The same payload object: nothing is encoded again; but a table that is left out is not even named."""
    header, payload = block(Indicator.WHOLE, [BEGIN, [Op.INSERT, 1, ROW], [Op.COMMIT, 1]])
    assert rules(lambda s, n: True).data(header, payload, KNOWN, "here").payload is payload
    found = rules().data(header, payload, KNOWN, "here")
    assert decode_data(found.header, found.payload)[0] == [ORDERS.id]


def test_values_stay_exact():
    """bytea stays binary, NULL stays NULL, missing stays missing, bytes that are no UTF-8 stay what they are."""
    from trails.codec import binary

    images = [["\udcff", binary(b"\0\xff")], [None, False]]
    f = rules(lambda s, n: n != "items")
    records = [BEGIN, [Op.INSERT, 2, ROW], [Op.UPDATE, 0, *images], [Op.COMMIT, 2]]
    _, found, _ = kept(f, Indicator.WHOLE, records)
    plain = [["\udcff", b"\0\xff"], [None, False]]
    assert found[1] == [Op.UPDATE, 0, *plain]


def test_blocks_sent_before_are_not_counted_again():
    """A pump that resumes inside a large transaction counts its COMMIT from the begin, its statistics not."""
    f = rules()
    header, payload = block(Indicator.BEGIN, [BEGIN, [Op.INSERT, 1, ROW]])
    f.data(header, payload, KNOWN, "here", again=True)
    assert f.counted == []
    assert kept(f, Indicator.END, [[Op.COMMIT, 1]])[1] == [[Op.COMMIT, 1]]


def test_definitions_are_filtered():
    """METADATA names only what passes."""
    assert rules().definitions([AUDIT, ITEMS]) == [ITEMS]


@pytest.mark.parametrize(
    ("record", "kind"),
    [([Op.INSERT, 9, ROW], DamageError), ([77, 1], DamageError), ([Op.INSERT], DamageError), ([], DamageError)],
)
def test_records_that_make_no_sense_are_named_errors(record, kind):
    """Never a plain exception."""
    with pytest.raises(kind, match="here"):
        kept(rules(), Indicator.WHOLE, [BEGIN, record, [Op.COMMIT, 1]])


def test_a_table_without_definition_is_damage():
    """Its id is in the message."""
    header, payload = block(Indicator.WHOLE, [])
    with pytest.raises(DamageError, match=AUDIT.id.hex()):
        rules().data(header, payload, {}, "here")


def test_an_empty_middle_is_a_valid_block():
    """It carries a place inside an open transaction."""
    made = empty_middle(BlockHeader(BlockKind.DATA, Indicator.MIDDLE, changes=4, csn="9"))
    assert decode_data(made.header, made.payload) == ([], [])
    assert (made.header.changes, made.header.csn) == (0, "9")
