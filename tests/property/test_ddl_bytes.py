"""Any schema change round-trips through a block; anything else gives a change of the same bytes or the named error."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.hostile import hostile
from trails.codec import decode_data, encode_data
from trails.ddl import CREATE, DROP, IDENTITIES, OPS, DdlChange, DdlColumn, TableShape
from trails.errors import DamageError
from trails.format import FLAG_DDL, BlockHeader, BlockKind
from trails.record import Op

TEXT = st.text(max_size=9)
MAYBE = st.none() | TEXT
COLUMNS = st.lists(
    st.builds(
        DdlColumn, st.integers(1, 1600), TEXT, TEXT, TEXT, st.booleans(), MAYBE, MAYBE, st.sampled_from(IDENTITIES),
        st.booleans(),
    ),
    max_size=5, unique_by=(lambda column: column.number, lambda column: column.name),
)  # fmt: skip


@st.composite
def shapes(draw: st.DrawFn) -> TableShape:
    """A table."""
    columns = draw(COLUMNS)
    names = [column.name for column in columns]
    key = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    return TableShape(draw(TEXT), draw(TEXT), tuple(columns), tuple(key))


@st.composite
def changes(draw: st.DrawFn) -> DdlChange:
    """A change."""
    op = draw(st.sampled_from(OPS))
    old = None if op == CREATE else draw(shapes())
    new = None if op == DROP else draw(shapes())
    return DdlChange(op, old, new, draw(TEXT), draw(st.integers(0, 2**40)))


def stored(wire: Any) -> Any:
    """As it comes back from a block."""
    payload = encode_data([], [(int(Op.DDL), wire)])
    flags = payload.flags | FLAG_DDL
    header = BlockHeader(BlockKind.DATA, flags=flags, raw_len=payload.raw_len, payload_len=len(payload.data), changes=1)
    return decode_data(header, payload.data)[1][0][1]


@given(changes())
def test_changes_round_trip(change: DdlChange) -> None:
    """Equal, field by field; flags of later releases too."""
    assert DdlChange.from_wire(stored(change.to_wire())) == change


@given(changes(), st.sets(TEXT))
def test_leaving_columns_out_twice_is_leaving_them_out_once(change: DdlChange, names: set[str]) -> None:
    """And what is left has none of them, also in its key; nothing left means that the two shapes are one."""
    left = change.without(names)
    if left is None:
        assert change.op not in (CREATE, DROP)
        return
    for shape in (left.old, left.new):
        assert shape is None or not names & ({column.name for column in shape.columns} | set(shape.key))
    assert left.without(names) == left and DdlChange.from_wire(left.to_wire()) == left


WIRE = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | TEXT | st.sampled_from(OPS) | st.floats() | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(TEXT, inner, max_size=2), max_leaves=30,
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A change's wire form with something else in one place."""
    wire: Any = draw(changes()).to_wire()
    at = wire
    for _ in range(draw(st.integers(0, 4))):
        inner = [item for item in at if isinstance(item, list) and item]
        if not inner:
            break
        at = draw(st.sampled_from(inner))
    if draw(st.booleans()):
        at[draw(st.integers(0, len(at) - 1))] = draw(WIRE)
    else:
        at.append(draw(WIRE))
    return wire


@hostile(200)
@given(WIRE | damaged())
def test_anything_gives_a_change_or_the_named_error(wire: Any) -> None:
    """Nothing else comes out, and nothing is taken for something it is not."""
    found: str | Any
    try:
        found = DdlChange.from_wire(wire, "here").to_wire()
    except DamageError as error:
        found = str(error)
    assert found == wire or str(found).startswith("here: damaged DDL record: expected")
