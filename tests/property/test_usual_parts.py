"""A task's part by the kernel and by the plain code: equal rows, texts and counts, and every block checked alike."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicat.model.plan import TablePlan
from replicat.model.target import Layout
from replicat.work import usual
from replicat.work.decode import Task, attempt, payloads
from replicat.work.net.part import Part, Unmapped
from tests.support.hostile import hostile
from tests.support.replicat_trail import drawn_task, table
from trails.codec import binary
from trails.errors import DamageError
from trails.position import TrailName
from trails.record import MISSING, Op, TableDef
from trails.testing import FaultFs

TRAIL = TrailName("dirdat", "rt")
NUMBERED, TEXTUAL, PAIR, PICKED, LEFT, WIDE = (
    table("s", "numbered", "id a b", "id"), table("s", "textual", "a id", "id"), table("s", "pair", "a b c", "a c"),
    table("s", "picked", "id a b c", "id"), table("s", "left", "id a", "id"),
    table("s", "wide", " ".join(f"c{i}" for i in range(20)), "c3"),
)  # fmt: skip
TABLES = (NUMBERED, TEXTUAL, PAIR, PICKED, LEFT, WIDE)
TEXTS = (
    "", "a", "ab\tc", "d\\e", "\r\n", "äöü", "\udcff\udcfe", "x" * 31, "y" * 300, "z" * 70_000, "\u20ac", "\U0001f600",
)  # fmt: skip
BINARIES = tuple(map(binary, (b"", b"\0\xff", b"b" * 16, b"c" * 300)))
KEYS = ("", "a", "a\x01", "ab", "b\tc", "é", "\u20ac", "\ue000", "\U0001f600")
ODD_KEYS = (None, "007", "+1", "-0", "9" * 19, "-9223372036854775808", "1.5", "\udcff", "a\0b", binary(b"k"))


def plan_of(definition: TableDef, **how: Any) -> TablePlan:
    pick = (0, 2) if definition is PICKED else None
    columns = tuple(c.name for i, c in enumerate(definition.columns) if pick is None or i in pick)
    key = tuple(definition.columns[i].name for i in definition.key)
    extras = {"extras": ("own",), "extra_types": ("text",)} if definition is TEXTUAL else {}
    layout = Layout("t", definition.name, columns, ("text",) * len(columns), key, **extras)  # type: ignore[arg-type]
    return TablePlan(
        definition.full_name, f"t.{definition.name}", layout, definition.key, pick=pick,
        integer_key=definition in (NUMBERED, PICKED), skipped=("a", "c") if pick else (),
        columns=tuple(c.name for c in definition.columns) if pick else (), **how,
    )  # fmt: skip


PLANS = {one.id: () if one is LEFT else (plan_of(one),) for one in TABLES}


class Script:
    """Random transactions of a source: rows that are there are changed, and now and then what no source can do."""

    def __init__(self, chance: Random, odd: float) -> None:
        self._chance, self._odd = chance, odd
        self._there: dict[TableDef, dict[Any, list[Any]]] = {one: {} for one in TABLES}

    def changes(self) -> list[Any]:
        """Of one transaction."""
        return [self._change(self._chance.choice(TABLES)) for _ in range(self._chance.choice([1, 1, 2, 8, 60]))]

    def _change(self, one: TableDef) -> Any:
        chance, there = self._chance, self._there[one]
        if chance.random() < self._odd:
            return self._strange(one)
        if there and chance.random() < 0.6:
            key, row = chance.choice(list(there.items()))
            if chance.random() < 0.4:
                del there[key]
                return (Op.DELETE, one, [v if i in one.key else chance.choice([MISSING, v]) for i, v in enumerate(row)])
            changed = self._row(one, key)
            there[key] = changed
            return (Op.UPDATE, one, changed)
        row = self._row(one, None)
        key = tuple(row[i] for i in one.key)
        op = Op.UPDATE if key in there or chance.random() < 0.3 else Op.INSERT
        there[key] = row
        return (op, one, row)

    def _strange(self, one: TableDef) -> Any:
        chance, row = self._chance, self._row(one, None)
        kind = chance.randrange(5)
        if kind == 0:
            return (Op.TRUNCATE, [one], 0)
        if kind == 1:
            return (Op.UPDATE, one, row, self._row(one, None))
        if kind == 2:
            return (Op.UPDATE, one, [MISSING if i not in one.key else v for i, v in enumerate(row)])
        if kind == 3:
            row[one.key[0]] = chance.choice(ODD_KEYS)
        return (chance.choice([Op.INSERT, Op.DELETE]), one, row)

    def _row(self, one: TableDef, key: Any) -> list[Any]:
        chance = self._chance
        row: list[Any] = [chance.choice([None, *BINARIES, *TEXTS]) for _ in one.columns]
        for place, i in enumerate(one.key):
            row[i] = key[place] if key else self._key(one)
        return row

    def _key(self, one: TableDef) -> str:
        number = self._chance.choice([self._chance.randint(-30, 30), self._chance.randint(-(2**63), 2**63 - 1)])
        if one in (NUMBERED, PICKED):
            return str(number)
        return self._chance.choice([str(number % 40), *KEYS])


def written(script: Script, chance: Random) -> tuple[FaultFs, list[Task]]:
    """Some transactions in a trail; all of it as one task, or as two."""
    fs, task = drawn_task(TRAIL, script.changes, chance)
    task = replace(task, plans=PLANS)
    at = chance.randrange(len(task.blocks))
    return fs, [task, replace(task, blocks=task.blocks[:at]), replace(task, blocks=task.blocks[at:])]


def plain(task: Task, fs: FaultFs) -> Any:
    """By the plain code; an error as its text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(usual, "part_of", lambda *_: None)
        return told(task, fs)


def told(task: Task, fs: FaultFs) -> Part | Unmapped | str:
    """What a task comes to; an error as its text."""
    try:
        return attempt(task, fs)
    except DamageError as error:
        return str(error)


@hostile(300)
@given(st.integers(0, 2**32))
def test_both_forms_come_to_the_same(seed: int) -> None:
    """Whatever a source may send, and what it can't."""
    chance = Random(seed)
    fs, tasks = written(Script(chance, chance.choice([0, 0, 0.02, 0.2])), chance)
    for task in tasks:
        assert told(task, fs) == plain(task, fs)


def test_what_is_usual_is_done_by_the_kernel() -> None:
    """Whatever else is proved here would hold for one that hands everything over."""
    chance, done = Random(1), 0
    for _ in range(50):
        fs, tasks = written(Script(chance, 0), chance)
        done += usual.part_of(tasks[0], payloads(tasks[0], fs)) is not None
    assert done > 25
