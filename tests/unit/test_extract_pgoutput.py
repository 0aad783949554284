"""The pgoutput decoder, message by message."""

from __future__ import annotations

import pytest

from extract.sources.postgres.pgoutput import (
    Decoder,
    ManyTablesError,
    PgoutputError,
    Relation,
    Shape,
    fix_bool,
    fix_bytea,
    lsn_text,
    parse_lsn,
)
from tests.support import pgwire
from tests.support.pgwire import UNCHANGED, ListSink, shape_of
from trails.codec import binary
from trails.errors import OperatorError
from trails.record import Column, Op, TableDef

pytestmark = pytest.mark.usefixtures("either_form")
KEYED = pgwire.table(1, "t", "d", "id* v")
FULL = pgwire.table(1, "t", "f", "id* v*")


def decoder(
    relation: Relation, key: tuple[str, ...] = (), after: int = 0, befores: str = ""
) -> tuple[Decoder, ListSink]:
    """Inside a transaction at 100; `key` is what the catalogue says of a table with identity full."""

    def describe(r: Relation, xid: int) -> Shape:
        columns = tuple(
            Column(c.name, "text", "text", c.key if r.identity in "di" else c.name in key) for c in r.columns
        )
        return Shape(TableDef(r.schema, r.name, columns), befores=befores)

    sink = ListSink()
    made = Decoder(sink, describe, after)
    made.decode(pgwire.begin(100))
    made.decode(pgwire.relation(relation))
    return made, sink


def test_an_update_without_an_old_row_kept_its_key() -> None:
    """Identity default: the server sends no old row when the key is as it was."""
    made, sink = decoder(KEYED)
    made.decode(pgwire.update(1, [b"1", b"x"]))
    assert sink.records == [(Op.UPDATE, 0, [b"1", b"x"], None)]


def test_a_key_change_names_the_old_key_and_nothing_else() -> None:
    """The other columns of a K row are placeholders: MISSING, not NULL."""
    made, sink = decoder(KEYED)
    made.decode(pgwire.update(1, [b"2", b"x"], [b"1", None], b"K"))
    assert sink.records == [(Op.UPDATE, 0, [b"2", b"x"], [b"1", False])]


def test_an_old_row_with_the_same_key_is_dropped() -> None:
    """Identity full with a primary key: the whole old row is only kept when the key changed."""
    made, sink = decoder(FULL, key=("id",))
    made.decode(pgwire.update(1, [b"1", b"y"], [b"1", b"x"]))
    made.decode(pgwire.update(1, [b"2", b"y"], [b"1", b"y"]))
    assert sink.records == [(Op.UPDATE, 0, [b"1", b"y"], None), (Op.UPDATE, 0, [b"2", b"y"], [b"1", b"y"])]


@pytest.mark.parametrize(
    "filler", [b"", b"N", b"NNNN", b"\3" * 0x4E, b"x" * 0x4DFF, b"N" * 0x4E00, b"x" * 0x4E4E, b"y" * 0x14E02]
)
def test_an_old_row_is_passed_over_to_its_very_end(filler: bytes) -> None:
    """Whatever stands in it, and however long it is: lengths and text may look like what stands between both rows."""
    made, sink = decoder(pgwire.table(1, "t", "f", "a* id* v*"), key=("id",))
    for old, new in (([None, b"1", filler], [None, b"1", b"N"]), ([b"\3N", b"1", b"N" + filler], [filler, b"1", None])):
        made.decode(pgwire.update(1, new, old))
        assert sink.records.pop() == (Op.UPDATE, 0, new, None)
        old[1] = b"2"
        made.decode(pgwire.update(1, new, old))
        assert sink.records.pop() == (Op.UPDATE, 0, new, old)


def test_an_old_row_that_is_needed_is_parsed_and_checked() -> None:
    """Another key, another width, no new row behind it."""
    made, sink = decoder(FULL, key=("id",))
    whole = pgwire.update(1, [b"1", b"x"], [b"2", UNCHANGED])
    for message in (whole, whole.replace(b"O\0\2", b"O\0\3"), whole.replace(b"N\0\2", b"X\0\2")):
        with pytest.raises(PgoutputError):
            made.decode(message)
    assert sink.records == []


@pytest.mark.parametrize("width", [255, 256, 300])
def test_tables_of_many_columns(width: int) -> None:
    """Their width takes two bytes: then old rows are parsed."""
    made, sink = decoder(pgwire.table(1, "t", "f", " ".join(f"c{n}*" for n in range(width))), key=("c0",))
    old, new = [b"1"] * width, [b"1"] + [b"N\1,"] * (width - 1)
    made.decode(pgwire.update(1, new, old))
    made.decode(pgwire.update(1, old, new))
    assert sink.records == [(Op.UPDATE, 0, new, None), (Op.UPDATE, 0, old, None)]


def test_old_rows_that_are_asked_for() -> None:
    """GETUPDATEBEFORES: whole, in all updates and deletes, also with values that were filled in."""
    made, sink = decoder(FULL, key=("id",), befores="e.prm:5")
    made.decode(pgwire.update(1, [b"1", b"y"], [b"1", b"x"]))
    made.decode(pgwire.update(1, [b"1", UNCHANGED], [b"1", b"y"]))
    made.decode(pgwire.delete(1, [b"1", b"y"]))
    assert sink.records == [
        (Op.UPDATE, 0, [b"1", b"y"], [b"1", b"x"]),
        (Op.UPDATE, 0, [b"1", b"y"], [b"1", b"y"]),
        (Op.DELETE, 0, [b"1", b"y"]),
    ]


@pytest.mark.parametrize(
    ("message", "row"),
    [
        (pgwire.update(1, [b"1", b"x"]), r"\(1\).* an update"),
        (pgwire.update(1, [b"1", UNCHANGED]), r"\(1\).* an update"),
        (pgwire.update(1, [b"2", b"x"], [b"1", None], b"K"), r"\(2\).* an update"),
        (pgwire.delete(1, [b"1", None], b"K"), r"\(1\).* a delete"),
    ],
)
def test_an_old_row_that_is_asked_for_and_does_not_come(message: bytes, row: str) -> None:
    """Table, row, CSN, who asks, and what mends it; an insert needs none."""
    made, sink = decoder(KEYED, befores="e.prm:5")
    made.decode(pgwire.insert(1, [b"1", b"x"]))
    with pytest.raises(
        OperatorError,
        match=rf"public\.t, row {row}.*GETUPDATEBEFORES asks for \(e\.prm:5\).*ADD TRANDATA public\.t, ALLCOLS",
    ):
        made.decode(message)
    assert len(sink.records) == 1


def test_a_table_without_a_key_keeps_every_old_row() -> None:
    """Nothing else tells which row it was."""
    made, sink = decoder(FULL)
    made.decode(pgwire.update(1, [b"1", b"y"], [b"1", b"x"]))
    assert sink.records == [(Op.UPDATE, 0, [b"1", b"y"], [b"1", b"x"])]


def test_an_unchanged_value_is_filled_from_the_old_row() -> None:
    """TOAST: whole rows always, also when the key changes."""
    made, sink = decoder(FULL, key=("id",))
    made.decode(pgwire.update(1, [b"1", UNCHANGED], [b"1", b"long"]))
    made.decode(pgwire.update(1, [b"2", UNCHANGED], [b"1", b"long"]))
    assert sink.records == [(Op.UPDATE, 0, [b"1", b"long"], None), (Op.UPDATE, 0, [b"2", b"long"], [b"1", b"long"])]


@pytest.mark.parametrize("old", [None, [b"1", None]])
def test_an_unchanged_value_without_an_old_row_is_refused(old: list[bytes | None] | None) -> None:
    """Never lost, never null: the error names table, column and the statement that mends it."""
    made, sink = decoder(KEYED)
    with pytest.raises(OperatorError, match=r"table public\.t, row \(2\).* column v.*ADD TRANDATA public\.t"):
        made.decode(pgwire.update(1, [b"2", UNCHANGED], old, b"K"))
    assert sink.records == []


def test_tables_are_not_kept_for_ever() -> None:
    """The next session names those again that are in use. Never inside a transaction, and none before one was done."""
    sink = ListSink()
    tables = [pgwire.table(n, f"t{n}", "d", "id*") for n in range(1, 5)]
    made = Decoder(sink, shape_of, 0, most_tables=2)
    for final, relations in ((100, tables[:2]), (200, tables[2:])):
        made.decode(pgwire.begin(final))
        for relation in relations:
            made.decode(pgwire.relation(relation))
            made.decode(pgwire.insert(relation.oid, [b"1"]))
        made.decode(pgwire.commit(final))
    assert len(sink.records) == 4
    with pytest.raises(ManyTablesError, match="4 tables"):
        made.decode(pgwire.begin(300))
    assert not made.open


def test_a_transaction_that_is_in_the_trail_already_is_dropped_whole() -> None:
    """It committed before the place we start from; its tables are learnt all the same."""
    made, sink = decoder(KEYED, after=150)
    made.decode(pgwire.insert(1, [b"1", b"x"]))
    made.decode(pgwire.commit(100))
    made.decode(pgwire.begin(150))
    made.decode(pgwire.insert(1, [b"2", b"y"]))
    made.decode(pgwire.commit(150))
    assert sink.records == [(Op.INSERT, 0, [b"2", b"y"])]
    assert (sink.begins, sink.commits) == ([lsn_text(150)], [(158, lsn_text(150))])


def test_a_truncate_names_the_captured_tables_only() -> None:
    """The others are as if they were not there; with none captured there is no record."""
    sink = ListSink()
    made = Decoder(sink, lambda r, xid: shape_of(r, xid) if r.name != "u" else None, 0)
    made.decode(pgwire.begin(1))
    for oid, name in ((1, "t"), (2, "u"), (3, "w")):
        made.decode(pgwire.relation(pgwire.table(oid, name)))
    made.decode(pgwire.truncate([1, 2, 3], 2))
    made.decode(pgwire.truncate([2]))
    assert sink.records == [(Op.TRUNCATE, (0, 1), 2)]


def test_rows_follow_the_last_relation_before_them() -> None:
    """A column was added: the same oid has another definition from here on."""
    made, sink = decoder(KEYED)
    made.decode(pgwire.insert(1, [b"1", b"x"]))
    made.decode(pgwire.relation(pgwire.table(1, "t", "d", "id* v w")))
    made.decode(pgwire.insert(1, [b"2", b"y", b"z"]))
    assert [len(t.columns) for t in sink.tables] == [2, 3]
    assert [record[1] for record in sink.records] == [0, 1]


def test_a_provisional_shape_is_asked_for_again_with_the_next_transaction() -> None:
    """A key that could not be believed yet may be later."""
    asked: list[int] = []

    def describe(relation: Relation, xid: int) -> Shape:
        asked.append(xid)
        return Shape(shape_of(relation, xid).definition, provisional=len(asked) == 1)

    made = Decoder(ListSink(), describe, 0)
    for xid in (5, 6, 7):
        made.decode(pgwire.begin(xid, xid))
        made.decode(pgwire.relation(KEYED)) if xid == 5 else None
        made.decode(pgwire.insert(1, [b"1", b"x"]))
        made.decode(pgwire.commit(xid))
    assert asked == [5, 6]


@pytest.mark.parametrize(
    "message",
    [
        b"", b"Z", b"S\0\0\0\1\1", pgwire.begin(100), pgwire.commit(101), pgwire.commit(100, 50),
        pgwire.commit(100)[:-1],
        pgwire.insert(9, [b"1", b"x"]), pgwire.insert(1, [b"1"]), pgwire.insert(1, [b"1", UNCHANGED]),
        pgwire.insert(1, [b"1", b"x"]) + b"x", pgwire.insert(1, [b"1", b"x"])[:-1],
        pgwire.insert(1, [b"1", b"x"]).replace(b"t", b"b"),
        pgwire.update(1, [b"1", b"x"], [b"1", b"x"], b"X"), pgwire.update(1, [b"1", b"x"], [b"2", UNCHANGED]),
        pgwire.delete(1, [b"1", None], b"N"), pgwire.truncate([1], 4), pgwire.truncate([1])[:-1],
        pgwire.relation(KEYED)[:-1],
        pgwire.relation(pgwire.table(1, identity="x")), b"Y\0\0\0\1a", b"O\0", b"M\0",
    ],
)  # fmt: skip
def test_what_the_protocol_does_not_have_is_an_error(message: bytes) -> None:
    """Unknown, cut off, too long, out of place: one error, no record."""
    made, sink = decoder(KEYED)
    with pytest.raises(PgoutputError):
        made.decode(message)
    assert sink.records == []


def test_a_row_outside_a_transaction_is_an_error() -> None:
    """Also after a commit."""
    made, _ = decoder(KEYED)
    made.decode(pgwire.commit(100))
    with pytest.raises(PgoutputError, match="outside a transaction"):
        made.decode(pgwire.insert(1, [b"1", b"x"]))


def test_types_origins_and_messages_are_read_to_their_end_and_passed_over() -> None:
    """They change no row."""
    made, sink = decoder(KEYED)
    made.decode(b"Y\0\0\0\1public\0mood\0")
    made.decode(b"O" + bytes(8) + b"elsewhere\0")
    made.decode(b"M\1" + bytes(8) + b"prefix\0" + b"\0\0\0\2hi")
    assert sink.records == []


def test_booleans_and_bytea_get_their_canonical_form() -> None:
    """And anything else in such a column is an error."""
    assert (fix_bool(b"t"), fix_bool(b"f")) == (b"true", b"false")
    assert fix_bytea(rb"\x00ff") == binary(b"\x00\xff")
    for broken in (lambda: fix_bool(b"yes"), lambda: fix_bytea(b"00"), lambda: fix_bytea(rb"\x0")):
        with pytest.raises(PgoutputError):
            broken()


def test_lsns_read_from_both_forms() -> None:
    """PostgreSQL's own and ours."""
    assert parse_lsn("1/2A") == parse_lsn("00000001/0000002A") == (1 << 32) + 42
    for text in ("", "1", "1/", "/1", "x/1", "123456789/0"):
        with pytest.raises(ValueError, match=r"LSN|invalid"):
            parse_lsn(text)
