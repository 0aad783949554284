"""A filtered table equals the filtered source at any time, whatever comes and however batches are cut.

Both stages of evaluation are used as they are (rows for Spark, results in their order); only what Spark would say of a
row is said by Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replicat.model.plan import Expression, MapProgram, Operand, RowFilter, Slot, TablePlan
from replicat.model.programs import FAILS, PASSES, mark, programs_of
from replicat.model.target import CheckpointRow, Layout
from replicat.work.builder import Builder
from replicat.work.evaluate import _mapper, _rows
from replicat.work.roles import ChangeFacts
from tests.support.list_target import ListTarget, Store, shape
from trails.position import Position
from trails.record import MISSING, Op

IDS, VALUES, NUMBERS = ("1", "2", "3"), ("a", "b"), (None, "1", "2", "3")
COLUMNS = ("id", "v", "n")
LAYOUT = Layout("t", "kv", ("key", "shout", "n"), ("text",) * 3, ("key",), logical=("text",) * 3)


def _operand(index: int) -> Operand:
    return Operand("column", index, COLUMNS[index])


PASSES_FILTER = Expression(f"{mark(0)} >= 2", "w", "n >= 2", (_operand(2),), "boolean")
KEY = Expression(f"concat('k', {mark(0)})", "w", "'k' || id", (_operand(0),), "text")
SHOUT = Expression(f"upper({mark(0)})", "w", "upper(v)", (_operand(1),), "text")
PLAN = TablePlan(
    "s.kv", "t.kv", LAYOUT, (0,), columns=COLUMNS,
    mapping=MapProgram(
        (Slot("expr", 1), Slot("expr", 2), Slot("column", 2)), (PASSES_FILTER, KEY, SHOUT), (RowFilter(0),),
        source_key=(0,),
    ),
)  # fmt: skip
PLANS = {b"t": (PLAN,)}
PROGRAMS = programs_of(PLANS)
SAYS = {
    PASSES_FILTER: lambda n: n is not None and n >= "2",
    KEY: lambda key: f"k{key}",
    SHOUT: lambda text: None if text is None else text.upper(),
}


def spark(row: Any) -> tuple[Any, ...]:
    """What Spark says of a row of operands."""
    program = next(p for p in BY_NUMBER if PROGRAMS.number(p) == row[0])
    operands = dict(zip(program.operands, row[2:], strict=False))

    def said(at: int, expression: Expression) -> Any:
        if row[1] is not None and row[1][at] == "1":
            return True  # not evaluated; a condition then passes
        return SAYS[expression](operands[expression.operands[0]])  # type: ignore[no-untyped-call]

    filters = len(program.row_filters)
    if not all(said(i, e) for i, e in enumerate(program.row_filters)):
        return (FAILS, *(None for _ in program.values))
    return (PASSES, *(said(filters + i, e) for i, e in enumerate(program.values)))


BY_NUMBER = [role.program for role in _mapper(PLAN, PROGRAMS).roles.values()]  # type: ignore[union-attr]


class Source:
    """A table that gives its changes as a trail has them. `full`: with whole before images."""

    def __init__(self, full: bool) -> None:
        self.full = full
        self.rows: dict[str, list[Any]] = {}

    def change(self, kind: str, key: str, other: str, value: str, number: str | None) -> list[Any] | None:
        """One change, if it can be made of what is there."""
        old = self.rows.get(key)
        if kind == "insert":
            if old is not None:
                return None
            self.rows[key] = [key, value, number]
            return [Op.INSERT, 0, [key, value, number]]
        if old is None:
            return None
        if kind == "delete":
            del self.rows[key]
            return [Op.DELETE, 0, old if self.full else [key, MISSING, MISSING]]
        target = other if kind == "move" else key
        if target != key and target in self.rows:
            return None
        del self.rows[key]
        new = self.rows[target] = [target, value, number]
        before = old if self.full else None if target == key else [key, MISSING, MISSING]
        after = [target, MISSING if self.full and value == old[1] else value, number]
        return [Op.UPDATE, 0, after if self.full else new, before]

    def filtered(self) -> dict[tuple[str], tuple[Any, ...]]:
        """What the target must hold."""
        return {
            (f"k{key}",): (f"k{key}", value.upper(), number)
            for key, value, number in self.rows.values()
            if number is not None and number >= "2"
        }


STEP = st.tuples(
    st.sampled_from(("insert", "update", "update", "move", "delete")), st.sampled_from(IDS), st.sampled_from(IDS),
    st.sampled_from(VALUES), st.sampled_from(NUMBERS), st.booleans(),
)  # fmt: skip


@settings(max_examples=200)
@given(full=st.booleans(), steps=st.lists(STEP, max_size=14))
def test_the_target_is_the_filtered_source_behind_each_batch(full: bool, steps: list[Any]):
    """Inserts, updates, key changes and deletes; whole before images, or none but of a changed key."""
    source = Source(full)
    target = ListTarget(Store(), [shape("t", "kv", "key shout n", "key")])
    batch: list[Any] = []
    for *change, ends in steps:
        record = source.change(*change)
        if record is not None:
            batch.append(record)
        if ends:
            _apply(target, batch)
            batch = []
            assert target.store.tables.get(("t", "kv"), {}) == source.filtered()
    _apply(target, batch)
    assert target.store.tables.get(("t", "kv"), {}) == source.filtered()


def _apply(target: ListTarget, records: list[Any]) -> None:
    facts, rows = ChangeFacts(), list[Any]()
    mapper = _mapper(PLAN, PROGRAMS)
    assert mapper is not None
    for record in records:
        _rows(mapper, record, facts, rows)

    def results() -> Iterator[Any]:
        yield from map(spark, rows)

    given_results = results()
    builder = Builder(PLANS, results=given_results)
    builder.add([b"t"], records)
    part = builder.finish()
    assert list(given_results) == []
    old = target.store.row or CheckpointRow(Position(0, 0))
    target.store.row = old
    target.begin(old, old)
    target.apply(part.steps)
    target.commit()
