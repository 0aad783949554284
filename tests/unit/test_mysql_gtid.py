"""Sets of GTIDs, places and the state: values of the MySQL source that stand in trails, so their text must stay."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extract.sources.mysql import gtid
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.gtid import DomainGtid, DomainSet, UuidGtid, UuidSet
from extract.sources.mysql.places import csn_of, csn_text, file_name, file_number, origin_of, parse_csn, parts
from extract.sources.mysql.state import MOST, Again, State
from tests.support.hostile import hostile
from trails.errors import DamageError, OperatorError
from trails.position import Position

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
SOURCES = st.sampled_from([A, B, f"{A}:tag", f"{A}:other", f"{B}:tag"])
UUIDS = st.lists(st.tuples(SOURCES, st.integers(1, 30)), max_size=60)
DOMAINS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 40)), max_size=20)


def uuid_set(pairs: list[tuple[str, int]]) -> UuidSet:
    made = UuidSet()
    for pair in pairs:
        made = made.add(UuidGtid(*pair))
    return made


@given(UUIDS, UUIDS)
def test_sets_of_mysql_do_what_sets_do(first: list[tuple[str, int]], second: list[tuple[str, int]]) -> None:
    """Against Python's own: membership, inclusion, difference, equality, whatever the order; text and bytes invert."""
    one, two = uuid_set(first), uuid_set(second)
    for source in (A, B, f"{A}:tag"):
        for number in (1, 7, 30):
            assert one.contains(UuidGtid(source, number)) == ((source, number) in first)
    assert one.contains_all(two) == (set(second) <= set(first))
    assert one.minus(two) == uuid_set([pair for pair in first if pair not in second])
    assert bool(one) == bool(first)
    for made in (UuidSet.parse(str(one)), UuidSet.decode(one.encode()), uuid_set(first[::-1])):
        assert made == one and str(made) == str(one) and hash(made) == hash(one)


@given(DOMAINS)
def test_sets_of_mariadb_say_where_each_domain_stands(given: list[tuple[int, int, int]]) -> None:
    """The last of each domain holds all before it."""
    made = DomainSet()
    for one in given:
        made = made.add(DomainGtid(*one))
    last = {one[0]: one for one in given}
    assert str(made) == ",".join("-".join(map(str, last[domain])) for domain in sorted(last))
    assert gtid.parse(Flavour.MARIADB, str(made)) == made
    for domain in range(4):
        assert made.contains(DomainGtid(domain, 9, 20)) == (domain in last and last[domain][2] >= 20)


def test_sets_are_written_as_the_servers_write_them() -> None:
    text = f"{A}:1-5:9:other:1:tag:3-4,{B}:tag:7"
    found = UuidSet.parse(f"{B.upper()}:TAG:7,\n {A}:9:4-5:1-4:tag:3-4:other:1")
    assert str(found) == text
    assert str(found.minus(UuidSet.parse(f"{A}:2-4:9,{B}:tag:1-9"))) == f"{A}:1:5:other:1:tag:3-4"
    assert UuidSet.parse(f"{A}:1-3").encode() == bytes.fromhex("01" + "00" * 7 + A.replace("-", "")) + (
        bytes.fromhex("01" + "00" * 7 + "01" + "00" * 7 + "04" + "00" * 7)
    )
    assert str(DomainSet.parse("7-1-1, 0-2-25,0-1-26")) == "0-1-26,7-1-1"
    listed = bytes.fromhex("020000100000000002000000090000000000000000000000010000000a00000000000000")
    assert str(DomainSet.decode(listed)) == "0-1-10"


@pytest.mark.parametrize(
    "wrong",
    [f"{A}", f"{A}:0", f"{A}:5-4", f"{A}:1-", f"{A}:-tag:1", "x:1", "0-1-26", f"{A}:1-99999999999999999999"],
)
def test_what_is_no_set_of_mysql_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="GTID set: expected"):
        UuidSet.parse(wrong)


@hostile(100)
@given(st.binary(max_size=80))
def test_any_bytes_are_a_set_or_a_named_error(data: bytes) -> None:
    for made in (UuidSet, DomainSet):
        with contextlib.suppress(ValueError):
            assert made.parse(str(made.decode(data))) == made.decode(data)


def test_what_a_new_server_does_not_have_is_found() -> None:
    """Its binlog state knows the last one of each domain and server; a higher number of another server is no proof."""
    mine = DomainSet.parse("0-1-28,5-3-7")
    assert not mine.missing_in("0-1-28,0-2-30,5-3-9")
    assert str(mine.missing_in("0-1-26,0-2-30,5-3-9")) == "0-1-28"
    assert str(mine.missing_in("0-1-30")) == "5-3-7"


@given(st.integers(0, 9999), st.integers(1, 2**31), st.integers(4, 10**14))
def test_places_order_as_their_texts_do(epoch: int, number: int, pos: int) -> None:
    origin = origin_of(epoch, number, pos)
    assert parts(origin) == (epoch, number, pos)
    assert parse_csn(csn_of(origin)) == (epoch, number, pos)
    later = origin_of(epoch + 1, 1, 4)
    assert origin < later and (epoch == 9999 or csn_of(origin) < csn_of(later))
    assert len(csn_text(epoch, number, pos)) <= 40


def test_file_names() -> None:
    assert file_number("my.binlog.000007") == 7 and file_name("my.binlog.000007", 1234567) == "my.binlog.1234567"
    for wrong in ("binlog", "binlog.x", ".7", "b.4294967296"):
        with pytest.raises(ValueError, match="expected a name that ends in a number"):
            file_number(wrong)


@given(UUIDS, UUIDS, st.booleans())
def test_a_state_is_read_as_it_was_written(
    first: list[tuple[str, int]], second: list[tuple[str, int]], xa: bool
) -> None:
    state = State(uuid_set(first), Again(Position(1 << 32 | 7, 120), uuid_set(second)) if xa else None)
    assert State.parse(Flavour.MYSQL, str(state)) == state and str(state).isascii()


def test_a_long_set_is_packed_and_one_that_is_too_long_is_refused_by_name() -> None:
    many = [(f"{number:08x}-71ca-11e1-9e33-c80aa9429562", number * 7919) for number in range(1, 150)]
    text = str(State(uuid_set(many)))
    assert text.startswith("z ") and len(text) <= MOST
    assert State.parse(Flavour.MYSQL, text) == State(uuid_set(many))
    gaps = UuidSet({A: tuple((number**2 * 10, number**2 * 10 + 1) for number in range(1, 4000))})
    with pytest.raises(
        OperatorError, match=r"has \d+ characters, packed: a trail keeps 4096 .*empty transactions close gaps"
    ):
        str(State(gaps))


@pytest.mark.parametrize("wrong", ["", "2 -", "1", f"1 {A}", "1 - 1/2", "1 - x -", "z ", "z abc", "1 - 1/2 - -"])
def test_what_is_no_state_is_refused(wrong: str) -> None:
    with pytest.raises(DamageError, match="the trail's state"):
        State.parse(Flavour.MYSQL, wrong)
