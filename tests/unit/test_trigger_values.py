"""TRIGGERLOG's plain parts: rows as text, snapshots as states, shapes that only add columns, rows put in order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extract.sources.postgres.triggers.reader import LoggedRow, in_order
from extract.sources.postgres.triggers.rowtext import fields
from extract.sources.postgres.triggers.shapes import only_adds
from extract.sources.postgres.triggers.snapshot import Tick, XidSnapshot, between, seen
from trails.errors import AwayError, MismatchError

SPECIAL = b'"\\(), \t\n\r\x0b\x0c'


def row_text(values: list[bytes | None]) -> bytes:
    """As the server writes a row."""
    return b"(" + b",".join(map(_quoted, values)) + b")"


def _quoted(value: bytes | None) -> bytes:
    if value is None:
        return b""
    if value and not any(byte in SPECIAL for byte in value):
        return value
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'""') + b'"'


@given(st.lists(st.none() | st.binary(max_size=8) | st.text('",\\()a ', max_size=6).map(str.encode), min_size=1))
def test_a_row_is_read_as_it_was_written(values: list[bytes | None]) -> None:
    """Whatever stands in it."""
    assert fields(row_text(values)) == values


@given(st.integers(3, 1 << 60), st.lists(st.integers(1, 1000), max_size=20), st.lists(st.integers(1, 1 << 60)))
def test_a_state_is_read_as_it_was_written(xmin: int, steps: list[int], due: list[int]) -> None:
    """With the transactions that were open, and those of heartbeats that are due."""
    opened = [xmin + sum(steps[:n]) for n in range(len(steps))]
    tick = Tick(XidSnapshot(xmin, xmin + sum(steps) + 1, tuple(opened)), 1795370645256013, tuple(due[:5]))
    assert Tick.of(tick.state) == tick
    assert tick.state.isascii()
    assert XidSnapshot.of(str(tick.snapshot)) == tick.snapshot


def test_a_state_has_room_for_a_thousand_open_transactions() -> None:
    """With ten times as many the source is looked at again later: a snapshot is never cut short."""
    assert Tick.of(Tick(XidSnapshot(1 << 40, (1 << 40) + 9000, tuple(range(1 << 40, (1 << 40) + 9000, 9))), 1).state)
    with pytest.raises(AwayError, match="9000 transactions are open in the source at once"):
        _ = Tick(XidSnapshot(1 << 40, (1 << 40) + 9000, tuple(range(1 << 40, (1 << 40) + 9000))), 1).state


@pytest.mark.parametrize("state", ["", "0/16B3748", "at=2460000.5", "1:2", "1:2:@", "a:b:@1", "1:2:3,x@1"])
def test_the_state_of_another_kind_of_source_is_refused(state: str) -> None:
    """Nothing of it is guessed."""
    with pytest.raises(MismatchError, match="it belongs to another kind of source"):
        Tick.of(state)


def test_what_lies_between_two_snapshots_in_sql() -> None:
    """The late ones of before, and all that are newer."""
    first, then = XidSnapshot(5, 9, (5, 7)), XidSnapshot(7, 12, (7,))
    assert between(first, then) == f"(xid >= '9'::xid8 OR xid = ANY ('{{5,7}}'::xid8[])) AND {seen(then)}"
    assert seen(then) == "xid < '12'::xid8 AND pg_visible_in_snapshot(xid, '7:12:7'::pg_snapshot)"


@given(st.data())
def test_a_border_at_a_heartbeat_sees_it_and_all_of_before(data: st.DataObject) -> None:
    """And covers another snapshot exactly if it sees each transaction that the other one sees."""

    def drawn() -> XidSnapshot:
        xmax = data.draw(st.integers(3, 12))
        opened = tuple(sorted(data.draw(st.sets(st.integers(3, xmax - 1))))) if xmax > 3 else ()
        return XidSnapshot(opened[0] if opened else xmax, xmax, opened)

    one, other, xid = drawn(), drawn(), data.draw(st.integers(3, 14))
    everybody = range(1, 20)
    border = one.seeing(xid)
    assert [n for n in everybody if border.sees(n)] == sorted({n for n in everybody if one.sees(n)} | {xid})
    assert one.covers(other) == all(one.sees(n) for n in everybody if other.sees(n))


def shape(*columns: tuple[int, str], key: tuple[str, ...] = ("id",), name: str = "t") -> dict[str, Any]:
    """As it is noted."""
    made = [{"number": n, "name": column, "typid": 25, "typmod": -1} for n, column in columns]
    return {"schema": "s", "name": name, "columns": made, "key": list(key)}


OLD = shape((1, "id"), (3, "v"))


@pytest.mark.parametrize(
    ("new", "adds"),
    [
        (shape((1, "id"), (3, "v"), (4, "w")), True),
        (shape((1, "id"), (3, "v"), (4, "w"), (5, "x")), True),
        (shape((1, "id"), (3, "v"), (5, "w")), False),  # column 4 came and went
        (shape((1, "id"), (3, "x"), (4, "w")), False),
        (shape((1, "id"), (4, "w")), False),
        (shape((1, "id"), (3, "v"), (4, "w"), key=()), False),
        (shape((1, "id"), (3, "v"), (4, "w"), name="u"), False),
    ],
)
def test_a_change_that_only_adds_columns_is_told_from_others(new: dict[str, Any], adds: bool) -> None:
    """Only then the number of a row's fields says which shape it has."""
    assert only_adds(OLD, new) is adds
    assert not only_adds(None, new)
    assert not only_adds(OLD, None)


@pytest.mark.parametrize(
    ("moved", "order"),
    [({}, "12345"), ({1: 4}, "23415"), ({2: 4, 1: 2}, "34215"), ({1: 3, 2: 3}, "31245")],
)
def test_a_row_comes_behind_the_one_that_it_builds_upon(moved: dict[int, int], order: str) -> None:
    """Also a chain of them."""
    rows = [LoggedRow(n, b"7", 1, b"U", b"", b"") for n in range(1, 6)]
    assert "".join(str(row.id) for row in in_order(iter(rows), moved)) == order


def test_what_builds_upon_a_row_that_waits_waits_too() -> None:
    """Row 3 changes what row 1 made, and row 1 what row 4 made."""
    steps = [(1, b"a", b"b"), (2, b"x", b"y"), (3, b"b", b"c"), (4, b"_", b"a"), (5, b"c", b"d")]
    rows = [LoggedRow(n, b"7", 1, b"U", b"", b"", old_at, new_at) for n, old_at, new_at in steps]
    assert [row.id for row in in_order(iter(rows), {1: 4})] == [2, 4, 1, 3, 5]
