"""What is given up does not depend on how far behind Replicat is: any cut of a trail into batches ends in the same
target, the same exceptions rows and the same discard records.

The source takes everything; the target has a check on values, and values that are unique. So what the target refuses
has consequences: an update of a row whose insert was refused finds none, a value that was never taken is free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicat.apply.discardfile import whole_records
from replicat.batches import batch
from replicat.model.target import TargetTable
from replicat.params import ReplicatParams
from tests.support.list_target import ListTarget, shape
from tests.support.replicat_lives import DISCARDS, Lives
from tests.support.replicat_trail import TrailFeed, table
from trails.record import MISSING, Op
from trails.runtime.language.params import parse_text

KV, BAG, PARENT = table("s", "kv", "id v", "id"), table("s", "bag", "v"), table("s", "parent", "id", "id")
TEXT = """REPLICAT rep1
TARGETDB postgresql://x/y
{cut}
{rules}
MAP s.kv, TARGET s.kv, MAPEXCEPTION (TARGET s.exc, COLMAP (USEDEFAULTS, why = lasterr.dberrnum, at = change.csn));
MAP s.bag, TARGET s.bag;
"""
CUTS = ("", "GROUPTRANSOPS 1", "GROUPTRANSOPS 2", "GROUPTRANSOPS 3", "GROUPTRANSOPS 5", "BATCHROWS 4", "BATCHROWS 9")
TASK_ROWS = 4  # as large as the largest transaction here
RULES = "REPERROR (23514, EXCEPTION)\nREPERROR (DEFAULT2, DISCARD)\nREPERROR (DEFAULT, DISCARD)"
WHOLE = "REPERROR (23514, TRANSDISCARD)\nREPERROR (DEFAULT, DISCARD)"

Change = tuple[Any, ...]
Chosen = list[list[tuple[int, str, str]]]
VALUES = st.sampled_from(["a", "b", "c", "bad"])
CHOSEN = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from("123"), VALUES), min_size=1, max_size=3),
    min_size=2, max_size=9,
)  # fmt: skip


def history(chosen: Chosen) -> list[list[Change]]:
    """What a source without constraints makes of it."""
    rows: dict[str, str] = {}
    bag: list[str] = []
    made: list[list[Change]] = []
    for some in chosen:
        changes: list[Change] = []
        for what, key, value in some:
            if what == 5:
                if value in bag:
                    bag.remove(value)
                    changes.append((Op.DELETE, BAG, [value]))
                else:
                    bag.append(value)
                    changes.append((Op.INSERT, BAG, [value]))
            elif key not in rows:
                rows[key] = value
                changes.append((Op.INSERT, KV, [key, value]))
            elif what == 0:
                changes.append((Op.DELETE, KV, [key, MISSING]))
                del rows[key]
            elif what == 1 and (other := str(int(key) % 3 + 1)) not in rows:
                changes.append((Op.UPDATE, KV, [other, value], [key, rows.pop(key)]))
                rows[other] = value
            else:
                rows[key] = value
                changes.append((Op.UPDATE, KV, [key, value]))
        made.append(changes)
    return made


class Refusing(Lives):
    """A target with a check, and unique values if `unique`."""

    def __init__(self, made: list[list[Change]], params: ReplicatParams, *, unique: bool) -> None:
        def script(feed: TrailFeed) -> None:
            for changes in made:
                feed.tx(*changes, pieces=len(changes))

        sets = (frozenset({"id"}), *([frozenset({"v"})] if unique else []))
        shapes: list[TargetTable] = [
            replace(shape("s", "kv", "id v", "id"), unique=sets), shape("s", "bag", "v"),
            shape("s", "exc", "id v why at"),
        ]  # fmt: skip
        super().__init__(script, params, shapes, {}, [])
        self.unique = unique

    def target(self, faults: Any = None) -> ListTarget:
        target = super().target(faults)
        target.unique = (("s.kv", "v"),) if self.unique else ()
        target.checks = lambda table, row: "bad" if table == "s.kv" and row[1] == "bad" else ""
        return target


def ended(made: list[list[Change]], cut: str, rules: str, *, unique: bool) -> Any:
    """Target, exceptions rows, discard records."""
    params = ReplicatParams.from_statements(parse_text(TEXT.format(cut=cut, rules=rules), "p"))
    lives = Refusing(made, params, unique=unique)
    with mock.patch.object(batch, "TASK_ROWS", TASK_ROWS):
        lives()
    tables = dict(lives.store.tables)
    records = list(whole_records(lives.fs.open(DISCARDS))) if lives.fs.exists(DISCARDS) else []
    begins = (b"Operation failed", b"Discarding record on")
    told = sorted(line.split(b", trail")[0] for record in records for line in record if line.startswith(begins))
    bag, exceptions = (sorted(map(str, tables.get(("s", name), []))) for name in ("bag", "exc"))
    return tables.get(("s", "kv"), {}), bag, exceptions, told


@settings(max_examples=40, deadline=None)
@given(CHOSEN, st.booleans(), st.sampled_from([RULES, WHOLE]))
def test_every_cut_gives_up_the_same(chosen: Chosen, unique: bool, rules: str):
    """One rule: a source transaction is judged by its net effect, change by change if the target refuses that."""
    made = history(chosen)
    wanted = ended(made, "GROUPTRANSOPS 1", rules, unique=unique)
    for cut in CUTS:
        assert ended(made, cut, rules, unique=unique) == wanted, cut


@pytest.mark.parametrize("cut", CUTS)
def test_a_refused_change_is_an_exception_although_a_later_one_of_its_row_is_good(cut: str):
    """Two refused changes of a row and a good one: two exceptions rows, however many of them stand in a batch."""
    made = [[(Op.INSERT, KV, ["1", "a"])], *([(Op.UPDATE, KV, ["1", value])] for value in ("bad", "bad", "b"))]
    kv, _, exceptions, _ = ended(made, cut, RULES, unique=False)
    assert kv == {("1",): ("1", "b")}
    assert len(exceptions) == 2


@pytest.mark.parametrize("cut", CUTS)
def test_tables_that_only_abend_are_no_help_to_those_that_give_up(cut: str):
    """What a later transaction brings into another table, whose MAP has no rule, makes no earlier change good."""
    params = ReplicatParams.from_statements(parse_text(APART.format(cut=cut), "p"))
    made: list[list[Change]] = [[(Op.INSERT, table_, row)] for table_, row in (
        (PARENT, ["8"]), (KV, ["1", "child"]), (PARENT, ["9"]), (KV, ["2", "child"]),
    )]  # fmt: skip
    lives = Dependent(made, params, unique=False)
    lives()
    assert lives.store.tables["s", "kv"] == {("2",): ("2", "child")}


APART = """REPLICAT rep1
TARGETDB postgresql://x/y
{cut}
MAP s.kv, TARGET s.kv, REPERROR (DEFAULT, DISCARD);
MAP s.parent, TARGET s.parent;
"""


class Dependent(Refusing):
    """A target where rows of one table refer to another, and that is checked."""

    def target(self, faults: Any = None) -> ListTarget:
        target = super().target(faults)
        target.shapes["s", "parent"] = shape("s", "parent", "id", "id")
        target.shapes["s", "kv"] = replace(target.shapes["s", "kv"], across=True)

        def orphaned(table: str, row: Any) -> str:
            assert target._tables is not None
            parents = target._tables.get(("s", "parent"), {})
            return "no parent" if table == "s.kv" and ("9",) not in parents else ""

        target.checks = orphaned
        return target
