"""Mapped tables by the kernel and by the plain code: equal operands for Spark, and equal parts of equal results.

Spark has no part here: results are drawn, one for each row of operands, so that every verdict meets every change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from replicat.model.plan import Expression, MapProgram, Operand, RowFilter, Slot, TablePlan
from replicat.model.programs import FAILS, OUT, PASSES, Programs, mark, programs_of
from replicat.model.target import Layout
from replicat.work import evaluate, kernel, usual
from replicat.work.decode import Task, attempt, payloads
from replicat.work.resultcolumns import ResultColumns
from tests.support.hostile import hostile
from tests.support.replicat_trail import drawn_task, table
from trails.codec import binary
from trails.errors import GateError
from trails.position import TrailName
from trails.record import MISSING, Op, TableDef
from trails.testing import FaultFs

TRAIL = TrailName("dirdat", "rt")
VALUED, FILTERED, BOTH, RENAMED, OPERATIONS, PLAIN, TWICE = (
    table("s", name, "id a b", "id")
    for name in ("valued", "filtered", "both", "renamed", "operations", "plain", "twice")
)
TABLES = (VALUED, FILTERED, BOTH, RENAMED, OPERATIONS, PLAIN, TWICE)


def expression(type_: str, *operands: tuple[int, str], **how: Any) -> Expression:
    """Over columns of the image, each cast to a type."""
    found = tuple(Operand("column", i, type=kind) for i, kind in operands)
    return Expression(" + ".join(map(mark, range(len(found)))), "m.prm:1", "x", found, type_, **how)


COLUMNS = tuple(Slot("column", i) for i in range(3))
UPPER, MONEY, DAY = (
    expression("text", (1, "STRING")), expression("decimal", (1, "DECIMAL(38,18)"), (2, "STRING")),
    expression("timestamp", (2, "TIMESTAMP_NTZ")),
)  # fmt: skip
SMALL, KEY_ALONE = expression("boolean", (1, "INT")), expression("boolean", (0, "BIGINT"))
MAPS: dict[TableDef, MapProgram | None] = {
    VALUED: MapProgram((Slot("expr", 0), Slot("column", 0), Slot("expr", 1)), (MONEY, DAY), source_key=(0,)),
    FILTERED: MapProgram(COLUMNS, (SMALL,), (RowFilter(0),), source_key=(0,)),
    BOTH: MapProgram(
        (Slot("column", 0), Slot("expr", 1), Slot("const", value="it\\s"), Slot("const")), (SMALL, UPPER),
        (RowFilter(0),), source_key=(0,)),
    RENAMED: MapProgram((Slot("column", 2), Slot("column", 0), Slot("const", value="")), source_key=(0,)),
    OPERATIONS: MapProgram(
        COLUMNS, (SMALL, KEY_ALONE), (RowFilter(0, frozenset({"INSERT", "UPDATE"})), RowFilter(1)), source_key=(0,)),
    PLAIN: None,
    TWICE: MapProgram((*COLUMNS[:2], Slot("expr", 0)), (UPPER,), source_key=(0,)),
}  # fmt: skip
KEY_AT = {VALUED: 1, RENAMED: 1}
TEXTS = (
    "", "a", "ab\tc", "d\\e", "\r\n", "1.50", "2.000", "-0.10", "12", "9" * 25, "0." + "1" * 20, "\udcff", "z" * 5000,
    "2001-02-03 04:05:06.789", "0044-03-15 BC", "\u20ac",
)  # fmt: skip
RESULTS = (None, "", "1.50", "2.0", "7", "100", "x\ty", "2001-02-03 04:05:06", "A" * 300, "\u20ac", "1.5e", ".0")
TIMES = (None, "2001-02-03 04:05:06", "0001-01-01 00:00:00.5")
ODD_TIMES = ("+12001-02-03 04:05:06", "-0001-01-01 00:00:00", "0000-01-01 00:00:00")


def plan_of(definition: TableDef, *, extras: bool, numbered: bool) -> TablePlan:
    """To a table of its own."""
    mapping = MAPS[definition]
    width = 3 if mapping is None else len(mapping.slots)
    columns, at = tuple(f"t{i}" for i in range(width)), KEY_AT.get(definition, 0)
    own = {"extras": ("own",), "extra_types": ("text",)} if extras else {}
    layout = Layout("t", definition.name, columns, ("text",) * width, (columns[at],), **own)  # type: ignore[arg-type]
    return TablePlan(
        definition.full_name, f"t.{definition.name}", layout, (at,), integer_key=numbered, mapping=mapping,
        columns=("id", "a", "b"),
    )  # fmt: skip


class Script:
    """Random transactions of a source: rows that are there are changed, and now and then what no source can do."""

    def __init__(self, chance: Random, odd: float, tables: tuple[TableDef, ...]) -> None:
        self._chance, self._odd, self._tables = chance, odd, tables
        self._there: dict[TableDef, set[str]] = {one: set() for one in tables}

    def changes(self) -> list[Any]:
        """Of one transaction."""
        return [self._change(self._chance.choice(self._tables)) for _ in range(self._chance.choice([1, 2, 8, 40]))]

    def _change(self, one: TableDef) -> Any:
        chance, there = self._chance, self._there[one]
        row = [str(chance.randint(-9, 9)), *(chance.choice([None, *TEXTS]) for _ in range(2))]
        if chance.random() < self._odd:
            row[chance.randrange(3)] = chance.choice([MISSING, binary(b"\0x"), None, "k\0"])
            return (chance.choice([Op.INSERT, Op.UPDATE, Op.DELETE]), one, row)
        if chance.random() < self._odd:
            return (Op.UPDATE, one, row, [str(chance.randint(-9, 9)), "was", MISSING])
        if row[0] in there and chance.random() < 0.4:
            there.discard(row[0])
            gone = [row[0], MISSING, MISSING] if chance.random() < 0.7 else row
            return (Op.DELETE, one, gone)
        op = Op.UPDATE if row[0] in there else Op.INSERT
        there.add(row[0])
        return (op, one, row)


def written(script: Script, chance: Random) -> tuple[FaultFs, Task]:
    """Some transactions in a trail, as one task."""
    fs, task = drawn_task(TRAIL, script.changes, chance)
    plans: dict[bytes, tuple[TablePlan, ...]] = {}
    for one in TABLES:
        how = {"extras": chance.random() < 0.2, "numbered": chance.random() < 0.7}
        plans[one.id] = (plan_of(one, **how),)
    if chance.random() < 0.05:  # two MAPs of one table, or two tables to one
        plans[TWICE.id] *= 2
    return fs, replace(task, plans=plans)


def drawn(chance: Random, rows: list[Any], programs: Programs) -> list[tuple[Any, ...]]:
    """A result for each operand row, with a verdict that its program can come to."""
    times = TIMES if chance.random() < 0.9 else (*TIMES, *ODD_TIMES)
    texts = [times if at == 1 else RESULTS for at in range(programs.values)]  # the second value is VALUED's time
    may = chance.choice([(), (FAILS,), (FAILS, OUT)])
    verdicts = {
        number: [PASSES, PASSES, *(one for one in may if f"THEN {one}Y" in verdict)]
        for (verdict, *_), number in programs.numbers.items()
    }

    def one(number: int) -> tuple[Any, ...]:
        verdict = chance.choice(verdicts[number])
        return (verdict, *(chance.choice(some) if verdict == PASSES else None for some in texts))

    return [one(row[0]) for row in rows]


def batches(chance: Random, rows: list[tuple[Any, ...]], values: int) -> Iterator[Any]:
    """Arrow's, of any size, the first row nobody's."""
    rows, at = [(PASSES, *[None] * values), *rows], 0
    while at < len(rows):
        some = rows[at : at + chance.choice([1, 2, 7, 1000])]
        at += len(some)
        numbers, *texts = (list(column) for column in zip(*some, strict=True))
        arrays = [pa.array(numbers, pa.int8()), *(pa.array(column, pa.string()) for column in texts)]
        yield pa.RecordBatch.from_arrays(arrays, names=[f"n{i}" for i in range(1 + values)])


def told(task: Task, fs: FaultFs, results: Any) -> Any:
    """What a task comes to; an error as its text."""
    try:
        return attempt(task, fs, results)
    except GateError as error:
        return f"{type(error).__name__}: {error}"


def operands(task: Task, fs: FaultFs) -> list[Any]:
    """By the plain code."""
    rows: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "Taker", None)
        try:
            for _ in evaluate.gather(task, fs, programs_of(task.plans), rows):
                pass
        except GateError:
            return rows
    return rows


def lived(seed: int) -> tuple[bool, bool]:
    """Both forms of one task are compared; whether the kernel did the operands, and the part."""
    chance = Random(seed)
    count = chance.randint(1, len(TABLES))
    fs, task = written(Script(chance, chance.choice([0, 0, 0, 0.05]), tuple(chance.sample(TABLES, count))), chance)
    programs = programs_of(task.plans)
    rows = operands(task, fs)
    usual_rows = usual.operands_of(task, payloads(task, fs), programs)
    if usual_rows is not None:
        columns = [array.to_pylist() for array in evaluate.arrays_of(usual_rows)]
        assert [*zip(*columns, strict=True)] == [tuple(row) for row in rows]
    results = drawn(chance, rows[: len(rows) - (chance.random() < 0.02)], programs)
    again = Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(usual, "part_of", lambda *_: None)
        plain = told(task, fs, iter(results))
        assert told(task, fs, ResultColumns(batches(again, results, programs.values), skip=1)) == plain
    assert told(task, fs, ResultColumns(batches(again, results, programs.values), skip=1)) == plain
    columns = ResultColumns(batches(again, results, programs.values), skip=1)
    return usual_rows is not None, usual.part_of(task, payloads(task, fs), columns) is not None


@hostile(300)
@example(155)  # a key that came, went and came again, where a filter reads it alone
@given(st.integers(0, 2**32))
def test_both_forms_come_to_the_same(seed: int) -> None:
    """Whatever a source may send, whatever Spark makes of it, and what neither can."""
    lived(seed)


def test_results_of_another_form_are_left_to_the_plain_code() -> None:
    """As Spark gives them where somebody asks it for texts beyond two gigabytes."""
    batch = pa.RecordBatch.from_arrays([pa.array([2], pa.int8()), pa.array(["a"], pa.large_string())], names=["f", "r"])
    texts = pa.RecordBatch.from_arrays([pa.array([2, 2], pa.int8()), pa.array(["a", "b"])], names=["f", "r"])
    for odd in (batch, batch.slice(1), texts.slice(1)):
        columns = ResultColumns([odd], skip=0)
        assert columns.fetch() is None
        assert [*columns.rows()] == [tuple(row.values()) for row in odd.to_pylist()]


def test_what_is_usual_is_done_by_the_kernel() -> None:
    """Whatever else is proved here would hold for one that hands everything over."""
    done = [lived(seed) for seed in range(100)]
    assert sum(operands for operands, _ in done) > 20
    assert sum(part for _, part in done) > 20
