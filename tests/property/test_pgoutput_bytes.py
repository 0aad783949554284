"""Any bytes give records or the one named error; any valid message gives its records, and no part of it does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extract.sources.postgres.pgoutput import Decoder, PgoutputError, Shape, lsn_text, parse_lsn
from tests.support import pgwire
from tests.support.hostile import hostile
from tests.support.pgwire import ListSink, shape_of
from trails.errors import OperatorError
from trails.record import Column, Op, TableDef

pytestmark = pytest.mark.usefixtures("either_form")
VALUES = st.none() | st.binary(max_size=40)
ROW = st.tuples(VALUES, VALUES, VALUES).map(list)
FULL = pgwire.table(1, "full", "f", "a b c")
KEYED = pgwire.table(2, "keyed", "d", "a* b c")


def change() -> st.SearchStrategy[tuple[bytes, tuple[Any, ...] | None]]:
    """(message, record) pairs on the two tables; FULL has no key, so it keeps its whole old rows."""
    return st.one_of(
        ROW.map(lambda row: (pgwire.insert(1, row), (Op.INSERT, 0, row))),
        ROW.map(lambda row: (pgwire.insert(2, row), (Op.INSERT, 1, row))),
        st.tuples(ROW, ROW).map(lambda r: (pgwire.update(1, r[1], r[0]), (Op.UPDATE, 0, r[1], r[0]))),
        ROW.map(lambda row: (pgwire.update(2, row), (Op.UPDATE, 1, row, None))),
        ROW.map(lambda row: (pgwire.delete(1, row), (Op.DELETE, 0, row))),
        st.binary(max_size=9).map(
            lambda key: (pgwire.delete(2, [key, None, None], b"K"), (Op.DELETE, 1, [key, False, False]))
        ),
        st.integers(0, 3).map(lambda flags: (pgwire.truncate([1, 2], flags), (Op.TRUNCATE, (0, 1), flags))),
    )


def ready() -> tuple[Decoder, ListSink]:
    """A decoder inside a transaction that knows both tables, whose indexes are 0 and 1."""
    sink = ListSink()
    decoder = Decoder(sink, shape_of, 0)
    for message in (pgwire.relation(FULL), pgwire.relation(KEYED), pgwire.begin(100)):
        decoder.decode(message)
    for relation in (FULL, KEYED):
        decoder.decode(pgwire.insert(relation.oid, [None] * 3))
    sink.records.clear()
    return decoder, sink


@given(st.lists(change(), max_size=20))
def test_messages_give_their_records(changes: list[tuple[bytes, Any]]) -> None:
    """Every value arrives as the bytes that were sent."""
    decoder, sink = ready()
    for message, _ in changes:
        decoder.decode(b"header" + message, 6)
    decoder.decode(pgwire.commit(100))
    assert sink.records == [record for _, record in changes]
    assert sink.commits == [(108, lsn_text(100))]


TEXT = st.none() | st.binary(max_size=40).map(lambda text: text.replace(b"\0", b"N"))
"""What a server sends: no text has a zero byte in it."""


@given(st.lists(st.tuples(*[st.tuples(TEXT, TEXT, TEXT).map(list)] * 2), max_size=9), st.booleans(), st.integers(0, 2))
def test_a_whole_old_row_is_there_when_the_key_changed_or_it_is_asked_for(
    rows: list[tuple[list[Any], list[Any]]], befores: bool, key: int
) -> None:
    """REPLICA IDENTITY FULL and a key at any place: old rows that are passed over change nothing of the new ones."""
    sink = ListSink()
    columns = tuple(Column(c.name, "text", "text", i == key) for i, c in enumerate(FULL.columns))
    shape = Shape(TableDef("public", "full", columns), befores="e.prm:4" if befores else "")
    decoder = Decoder(sink, lambda *_: shape, 0)
    decoder.decode(pgwire.relation(FULL))
    decoder.decode(pgwire.begin(100))
    for old, new in rows:
        decoder.decode(pgwire.update(1, new, old))
    assert sink.records == [(Op.UPDATE, 0, new, old if befores or old[key] != new[key] else None) for old, new in rows]


@given(change(), st.data())
def test_no_part_of_a_message_and_nothing_behind_it_is_taken(pair: tuple[bytes, Any], data: st.DataObject) -> None:
    """Each message ends where it must: shorter or longer is an error, and no record comes of it."""
    message, _ = pair
    decoder, sink = ready()
    cut = data.draw(st.integers(0, len(message) - 1))
    with pytest.raises(PgoutputError):
        decoder.decode(message[:cut])
    with pytest.raises(PgoutputError):
        ready()[0].decode(message + data.draw(st.binary(min_size=1, max_size=9)))
    assert sink.records == []


@hostile(250)
@given(st.lists(st.one_of(st.binary(max_size=60), change().map(lambda pair: pair[0])), max_size=6), st.booleans())
def test_any_bytes_give_records_or_the_named_error(messages: list[bytes], inside: bool) -> None:
    """Nothing else comes out of the decoder, whatever goes in."""
    decoder, _ = ready() if inside else (Decoder(ListSink(), shape_of, 0), None)
    for message in messages:
        try:
            decoder.decode(message)
        except (PgoutputError, OperatorError):
            return


@hostile(250)
@given(change(), st.data())
def test_a_changed_byte_gives_records_or_the_named_error(pair: tuple[bytes, Any], data: st.DataObject) -> None:
    """Nearly valid messages reach deeper than random ones."""
    message = bytearray(pair[0])
    at = data.draw(st.integers(0, len(message) - 1))
    message[at] = data.draw(st.integers(0, 255))
    try:
        ready()[0].decode(bytes(message))
    except (PgoutputError, OperatorError):
        pass


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_csns_sort_as_their_lsns_do(a: int, b: int) -> None:
    """And turn back into them."""
    assert (lsn_text(a) < lsn_text(b)) == (a < b)
    assert parse_lsn(lsn_text(a)) == a
