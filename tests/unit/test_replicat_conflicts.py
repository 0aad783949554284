"""Conflict detection and resolution: pure decisions over a change and the target's row."""

from __future__ import annotations

import pytest

from replicat.model.mapparams import CompareCols, MapRule, ResolveGroup, ResolveRule
from replicat.model.plan import Conflict
from replicat.model.target import Layout
from replicat.work.conflicts.deciding import Case, Decision, decide
from trails.record import MISSING, Image

COLUMNS = ("id", "name", "n", "seen")
LOGICAL = ("integer", "text", "decimal", "timestamp")
LAYOUT = Layout("p", "t", COLUMNS, ("int", "text", "numeric", "timestamp"), ("id",), logical=LOGICAL)
BEFORE: Image = ("1", "old", "10", "2024-01-01 10:00:00")
AFTER: Image = ("1", "new", "15", "2024-01-02 10:00:00")
OTHER: Image = ("1", "theirs", "100", "2024-01-03 10:00:00")
__all__ = ["CompareCols", "MapRule"]


def rule(kind: str, method: str, column: str = "", *groups: ResolveGroup) -> ResolveRule:
    """A RESOLVECONFLICT."""
    return ResolveRule(kind, ResolveGroup("DEFAULT", method, column), groups)


def case(op: str, *rules: ResolveRule, before: Image | None = BEFORE, after: Image | None = AFTER) -> Case:
    """A change that is compared in all columns."""
    conflict = Conflict((1, 2, 3), (1, 2, 3), rules)
    if op == "insert":
        before = None
    return Case(LAYOUT, conflict, op, before, None if op == "delete" else after)


def outcome(decision: Decision) -> tuple[str, str]:
    """Kind and conflict."""
    return decision.kind, decision.conflict


@pytest.mark.parametrize(
    ("op", "current"),
    [("insert", None), ("update", BEFORE), ("delete", BEFORE), ("update", ("1", "old", "10.0", BEFORE[3]))],
)
def test_what_is_as_expected_is_no_conflict(op: str, current: Image | None):
    """Values are compared by type: 10 is 10.0."""
    assert outcome(decide(case(op), current)) == ("plain", "")


@pytest.mark.parametrize(
    ("op", "current", "conflict", "sqlstate"),
    [
        ("insert", OTHER, "INSERTROWEXISTS", "23505"),
        ("update", OTHER, "UPDATEROWEXISTS", "02000"),
        ("update", None, "UPDATEROWMISSING", "02000"),
        ("delete", OTHER, "DELETEROWEXISTS", "02000"),
        ("delete", None, "DELETEROWMISSING", "02000"),
    ],
)
def test_a_conflict_without_a_rule_is_refused(op: str, current: Image | None, conflict: str, sqlstate: str):
    """It meets REPERROR by the SQLSTATE that a strict target gives."""
    decision = decide(case(op), current)
    assert (outcome(decision), decision.sqlstate) == (("refuse", conflict), sqlstate)
    assert decision.why


@pytest.mark.parametrize("method", ["IGNORE", "DISCARD"])
@pytest.mark.parametrize(
    ("op", "current", "conflict"),
    [
        ("insert", OTHER, "INSERTROWEXISTS"), ("update", OTHER, "UPDATEROWEXISTS"),
        ("update", None, "UPDATEROWMISSING"), ("delete", OTHER, "DELETEROWEXISTS"),
        ("delete", None, "DELETEROWMISSING"),
    ],
)  # fmt: skip
def test_ignore_and_discard_leave_the_target_as_it_is(method: str, op: str, current: Image | None, conflict: str):
    """DISCARD asks for a record too."""
    decision = decide(case(op, rule(conflict, method)), current)
    assert (outcome(decision), decision.discard) == (("keep", conflict), method == "DISCARD")


def test_overwrite_writes_the_change():
    """An insert and an update as the row they bring, a delete by key."""
    put = Decision("put", "INSERTROWEXISTS", tuple(AFTER))
    assert decide(case("insert", rule("INSERTROWEXISTS", "OVERWRITE")), OTHER) == put
    assert decide(case("update", rule("UPDATEROWEXISTS", "OVERWRITE")), OTHER).row == tuple(AFTER)
    assert decide(case("delete", rule("DELETEROWEXISTS", "OVERWRITE")), OTHER).kind == "remove"


def test_a_missing_row_is_inserted_by_overwrite_only_if_all_of_it_is_known():
    """What the update left out comes from before it."""
    overwrite = rule("UPDATEROWMISSING", "OVERWRITE")
    partly = ("1", "new", MISSING, MISSING)
    found = decide(case("update", overwrite, after=partly), None)
    assert list(found.row or ()) == ["1", "new", "10", BEFORE[3]]
    lost = decide(case("update", overwrite, before=("1", "old", MISSING, "x"), after=partly), None)
    assert (lost.kind, lost.why) == ("refuse", "OVERWRITE would insert the row, but the trail does not have its n")


@pytest.mark.parametrize(
    ("method", "theirs", "wins"),
    [
        ("USEMAX", "9", True), ("USEMAX", "15.0", False), ("USEMAX", "16", False), ("USEMAX", None, True),
        ("USEMAXEQ", "15.0", True), ("USEMAXEQ", "16", False),
        ("USEMIN", "9", False), ("USEMIN", "15.0", False), ("USEMIN", "16", True), ("USEMIN", None, True),
        ("USEMINEQ", "15.0", True), ("USEMINEQ", "9", False),
    ],
)  # fmt: skip
def test_the_greater_or_smaller_value_wins(method: str, theirs: str | None, wins: bool):
    """As numbers, not as text: 9 is below 15. A value beats NULL."""
    current = ("1", "theirs", theirs, OTHER[3])
    for op, kind in (("insert", "INSERTROWEXISTS"), ("update", "UPDATEROWEXISTS")):
        decision = decide(case(op, rule(kind, method, "n")), current)
        assert (decision.kind, decision.row) == (("put", tuple(AFTER)) if wins else ("keep", None))


def test_null_never_wins_over_a_value():
    """And two NULLs are equal."""
    after = ("1", "new", None, AFTER[3])
    for method in ("USEMAX", "USEMAXEQ", "USEMIN", "USEMINEQ"):
        made = case("insert", rule("INSERTROWEXISTS", method, "n"), after=after)
        assert decide(made, OTHER).kind == "keep"
        assert decide(made, ("1", "x", None, "y")).kind == ("put" if method.endswith("EQ") else "keep")


def test_usedelta_adds_what_the_source_added():
    """Exact over numbers of any length; other columns by their own methods."""
    delta = ResolveGroup("sums", "USEDELTA", "", ("n",))
    made = case("update", rule("UPDATEROWEXISTS", "IGNORE", "", delta))
    assert decide(made, OTHER).row == ("1", MISSING, "105", MISSING)
    long = "1" + "0" * 60 + ".000000001"
    assert decide(made, ("1", "theirs", long, OTHER[3])).row == ("1", MISSING, long[:60] + "5.000000001", MISSING)


@pytest.mark.parametrize(
    ("before", "current"),
    [(("1", "old", None, "t"), OTHER), (BEFORE, ("1", "x", None, "t")), (BEFORE, ("1", "x", "NaN", "t"))],
)
def test_usedelta_over_what_is_no_number_is_refused(before: Image, current: Image):
    """NULL and NaN have no difference."""
    delta = ResolveGroup("sums", "USEDELTA", "", ("n",))
    decision = decide(case("update", rule("UPDATEROWEXISTS", "OVERWRITE", "", delta), before=before), current)
    assert decision.kind == "refuse"
    assert "USEDELTA needs numbers, which n does not have" in decision.why


def test_groups_decide_over_their_own_columns():
    """The documentation's own example: a sum, a newer time with its column, and the rest kept."""
    rules = rule(
        "UPDATEROWEXISTS", "IGNORE", "",
        ResolveGroup("sums", "USEDELTA", "", ("n",)), ResolveGroup("newest", "USEMAX", "seen", ("seen",)),
    )  # fmt: skip
    current = ("1", "theirs", "100", "2024-01-01 23:00:00")
    assert decide(case("update", rules), current).row == ("1", MISSING, "105", AFTER[3])
    assert decide(case("update", rules), OTHER).row == ("1", MISSING, "105", MISSING)


def test_a_group_that_discards_keeps_its_columns_and_asks_for_a_record():
    """The other columns are written all the same."""
    rules = rule("UPDATEROWEXISTS", "OVERWRITE", "", ResolveGroup("kept", "DISCARD", "", ("name",)))
    decision = decide(case("update", rules), OTHER)
    assert (decision.row, decision.discard) == (("1", MISSING, "15", AFTER[3]), True)


def test_columns_that_the_trail_lacks_stay():
    """OVERWRITE has nothing to write there; USEMAX looks at the value before, which did not change."""
    after = ("1", "new", MISSING, MISSING)
    assert decide(case("update", rule("UPDATEROWEXISTS", "OVERWRITE"), after=after), OTHER).row == (
        "1", "new", MISSING, MISSING,
    )  # fmt: skip
    wins = case("update", rule("UPDATEROWEXISTS", "USEMAX", "n"), after=after)
    assert decide(wins, ("1", "x", "9", "t")).row == ("1", "new", MISSING, MISSING)


def test_under_handlecollisions_only_what_is_compared_is_a_conflict():
    """A row that is there, or not, is overlaid as ever."""
    layout = Layout("p", "t", COLUMNS, LAYOUT.types, ("id",), logical=LOGICAL, collisions=True)
    conflict = Conflict((1,), (1,))
    kinds = [
        decide(Case(layout, conflict, op, before, after), current).kind
        for op, before, after, current in (
            ("insert", None, AFTER, OTHER), ("update", BEFORE, AFTER, None), ("delete", BEFORE, None, None),
            ("update", BEFORE, AFTER, OTHER),
        )
    ]  # fmt: skip
    assert kinds == ["plain", "plain", "plain", "refuse"]
