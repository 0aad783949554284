"""Changes through a MAP's program: filters and their transitions, conversions, missing columns, facts, fan out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from replicat.model.plan import Expression, MapProgram, Operand, RowFilter, Slot, TablePlan
from replicat.model.programs import FAILS, OUT, PASSES, mark, programs_of
from replicat.model.target import Layout, RefusedError, Truncate, Work
from replicat.work.builder import Builder
from replicat.work.net.part import Part
from replicat.work.roles import ChangeFacts, Failure, commit_text
from tests.support.list_target import parse
from trails.errors import AwayError, OperatorError
from trails.position import Position
from trails.record import MISSING, Op

COLUMNS = ("id", "v", "n")
LAYOUT = Layout("t", "kv", COLUMNS, ("text",) * 3, ("id",), logical=("text",) * 3)
PLAIN = tuple(Slot("column", i) for i in range(3))


def column(index: int, kind: str = "column") -> Operand:
    return Operand(kind, index, COLUMNS[index])


def expression(*operands: Operand, kind: str = "text", left_out: str = "") -> Expression:
    sql = " + ".join(mark(i) for i in range(len(operands)))
    return Expression(sql, "REP1.prm:7", "the text", operands, kind, left_out, "COLMAP x")


def plan(program: MapProgram, layout: Layout = LAYOUT, key: tuple[int, ...] = (0,), **more: Any) -> TablePlan:
    return TablePlan("s.kv", layout.full_name, layout, key, columns=COLUMNS, mapping=program, **more)


def program(
    *expressions: Expression, slots: Sequence[Slot] = PLAIN, filters: tuple[RowFilter, ...] = (), **more: Any
) -> MapProgram:
    return MapProgram(tuple(slots), expressions, filters, source_key=(0,), **more)


def keep(*ops: str) -> tuple[RowFilter, ...]:
    return (RowFilter(0, frozenset(ops)),)


def built(
    plans: TablePlan | tuple[TablePlan, ...], *records: Sequence[Any], results: Sequence[Any] = (), **more: Any
) -> Part:
    """The part of one block; all results must be taken."""
    given = iter(results)
    builder = Builder({b"t": plans if isinstance(plans, tuple) else (plans,)}, results=given, **more)
    builder.add([b"t"], [list(record) for record in records], Position(3, 4096))
    part = builder.finish()
    assert list(given) == []
    return part


def works(part: Part) -> list[tuple[str, Any]]:
    """What a part does, by the blobs of its one table."""
    found: list[tuple[str, Any]] = []
    for step in part.steps:
        assert isinstance(step, Work)
        for rows in step.rows:
            for name in ("deletes", "removes", "void", "updates", "upserts", "inserts"):
                found += [(name, row) for row in parse(getattr(rows, name).read())]
            found += [("patch", (patch.given, row)) for patch in rows.patches for row in parse(patch.rows.read())]
        for bag in step.bags:
            found += [("append", row) for row in parse(bag.inserts.read())]
    return found


INSERT = (Op.INSERT, 0, ["1", "a", "5"])
BEFORE = ["1", "a", "5"]
UPDATE = (Op.UPDATE, 0, ["1", "b", "6"], BEFORE)
BLIND = (Op.UPDATE, 0, ["1", "b", "6"], None)
DELETE = (Op.DELETE, 0, BEFORE)
KEY_ONLY = (Op.DELETE, 0, ["1", MISSING, MISSING])
FILTERED = plan(program(expression(column(2), kind="boolean"), filters=keep()))


@pytest.mark.parametrize(
    ("record", "results", "done"),
    [
        (INSERT, [(PASSES,)], [("inserts", ("1", "a", "5"))]),
        (INSERT, [(FAILS,)], []),
        (DELETE, [(PASSES,)], [("deletes", ("1",))]),
        (DELETE, [(FAILS,)], []),
        (KEY_ONLY, [], [("removes", ("1",))]),
        (UPDATE, [(PASSES,), (PASSES,)], [("updates", ("1", "b", "6"))]),
        (UPDATE, [(PASSES,), (FAILS,)], [("inserts", ("1", "b", "6"))]),
        (UPDATE, [(FAILS,), (PASSES,)], [("deletes", ("1",))]),
        (UPDATE, [(FAILS,), (FAILS,)], []),
        (BLIND, [(PASSES,)], [("upserts", ("1", "b", "6"))]),
        (BLIND, [(FAILS,)], [("removes", ("1",))]),
        ((Op.UPDATE, 0, ["1", "b", "5"], BEFORE), [(PASSES,)], [("updates", ("1", "b", "5"))]),
        ((Op.UPDATE, 0, ["1", "b", "5"], BEFORE), [(FAILS,)], []),
        ((Op.UPDATE, 0, ["1", "b", MISSING], BEFORE), [(PASSES,)], [("updates", ("1", "b", "5"))]),
    ],
)
def test_a_filter_says_which_rows_belong_to_the_target(record: Any, results: Any, done: Any):
    """Entering is an insert, leaving a delete; what can't be known may be there or not. Equal images are asked once."""
    part = built(FILTERED, record, results=results)
    assert works(part) == done
    pair = ("s.kv", "t.kv")
    op = {Op.INSERT: 0, Op.UPDATE: 1, Op.DELETE: 2}[record[0]]
    assert part.counts[pair][op] == bool(done)
    assert (pair in part.filtered) == (not done)


def test_a_new_row_that_no_filter_can_judge_is_refused():
    """Its column did not come: nothing is guessed."""
    with pytest.raises(OperatorError, match=r"REP1.prm:7: COLMAP x: the text: an INSERT of s.kv came without a column"):
        built(FILTERED, (Op.INSERT, 0, ["1", "a", MISSING]))


@pytest.mark.parametrize("record", [INSERT, UPDATE, DELETE])
def test_a_filter_of_operations_leaves_the_operation_out(record: Any):
    """FILTER (ON UPDATE, ...): other operations are not asked; a row is never moved in or out by it."""
    made = plan(program(expression(column(2), kind="boolean"), filters=keep("UPDATE")))
    if record is UPDATE:
        part = built(made, record, results=[(OUT,)])
        assert works(part) == [] and part.filtered == {("s.kv", "t.kv"): [0, 1, 0, 0]}
        assert works(built(made, record, results=[(PASSES,)])) == [("updates", ("1", "b", "6"))]
    else:
        assert works(built(made, record)) != []


def test_values_and_their_places():
    """Constants, facts, before images, expressions; a value that Spark writes otherwise comes back canonical."""
    layout = Layout("t", "w", ("id", "c", "f", "b", "e", "at"), ("text",) * 6, ("id",))
    slots = [
        Slot("column", 0), Slot("const", value="x"), Slot("fact", name="operation"), Slot("before", 1), Slot("expr", 0),
        Slot("expr", 1),
    ]  # fmt: skip
    made = plan(program(expression(column(1)), expression(kind="timestamptz"), slots=slots), layout)
    part = built(made, INSERT, UPDATE, results=[(PASSES, "A", "2024-01-01 00:00:00"), (PASSES, "B", None)])
    assert works(part) == [("inserts", ("1", "x", "UPDATE", "a", "B", None))]
    part = built(made, INSERT, results=[(PASSES, "A", "2024-01-01 00:00:00")])
    assert works(part) == [("inserts", ("1", "x", "INSERT", None, "A", "2024-01-01 00:00:00+00"))]


def test_facts_of_a_change():
    """CSN, transaction, position, time, and the change's number in it, also behind blocks of other tables."""
    names = ("csn", "xid", "commit_time", "position", "index")
    layout = Layout("t", "h", ("id", *names), ("text",) * 6, ())
    slots = [Slot("column", 0), *(Slot("fact", name=name) for name in names)]
    history = plan(program(slots=slots, insert_all=True), layout, ())
    builder = Builder({b"t": (history,), b"o": ()}, facts=ChangeFacts("0", "0", 0, None, 7))
    builder.add([b"t"], [[Op.DELETE, 0, ["1", MISSING, MISSING]], [Op.COMMIT, 8]], Position(3, 1))
    builder.add([b"o"], [[Op.BEGIN, "A", "x", 1], [Op.INSERT, 0, ["9"]], [Op.TRUNCATE, [0], 0]], Position(3, 2))
    builder.add([b"t"], [[Op.UPDATE, 0, ["2", "b", "6"], None], [Op.COMMIT, 3]], Position(3, 3))
    builder.add([b"o"], [[Op.BEGIN, "B", "y", 2], [Op.COMMIT, 0]], Position(3, 4))
    builder.add([b"t"], [[Op.BEGIN, "C", "z", 1_500_000], [Op.INSERT, 0, ["3", "b", "6"]]], Position(3, 5))
    assert works(builder.finish()) == [
        ("append", ("1", "0", "0", "1970-01-01 00:00:00+00", "3/1", "7")),
        ("append", ("2", "A", "x", "1970-01-01 00:00:00.000001+00", "3/3", "2")),
        ("append", ("3", "C", "z", "1970-01-01 00:00:01.5+00", "3/5", "0")),
    ]
    assert commit_text(-1) == "1969-12-31 23:59:59.999999+00"


def test_every_change_becomes_a_row():
    """INSERTALLRECORDS: order kept, nothing compacted, missing columns NULL; a TRUNCATE empties no history."""
    layout = Layout("t", "h", COLUMNS, ("text",) * 3, ())
    history = plan(program(insert_all=True), layout, ())
    part = built(history, INSERT, BLIND, KEY_ONLY, (Op.TRUNCATE, [0], 0), INSERT)
    assert works(part) == [
        ("append", ("1", "a", "5")), ("append", ("1", "b", "6")), ("append", ("1", None, None)),
        ("append", ("1", "a", "5")),
    ]  # fmt: skip
    assert part.counts == {("s.kv", "t.h"): [2, 1, 1, 0]}
    assert part.filtered == {("s.kv", "t.h"): [0, 0, 0, 1]}


@pytest.mark.parametrize(
    ("switches", "record", "done"),
    [
        ({"insert_deletes": True}, KEY_ONLY, [("inserts", ("1", None, None))]),
        ({"insert_updates": True}, UPDATE, [("inserts", ("1", "b", "6"))]),
        ({"update_deletes": True}, KEY_ONLY, [("patch", ((0,), ("1",)))]),
        ({"update_deletes": True}, DELETE, [("updates", ("1", "a", "5"))]),
        ({"update_inserts": True}, INSERT, [("upserts", ("1", "a", "5"))]),
        ({"insert_deletes": True}, UPDATE, [("updates", ("1", "b", "6"))]),
    ],
)
def test_conversions(switches: Any, record: Any, done: Any):
    """INSERTDELETES, INSERTUPDATES, UPDATEDELETES, UPDATEINSERTS."""
    assert works(built(plan(program(**switches)), record)) == done


def test_a_truncate_of_rows_that_are_kept_is_refused():
    """UPDATEDELETES marks rows; a TRUNCATE does not say which."""
    for switches in ({"update_deletes": True}, {"insert_deletes": True}):
        with pytest.raises(OperatorError, match="keeps its deleted rows"):
            built(plan(program(**switches)), (Op.TRUNCATE, [0], 0))
    part = built(FILTERED, (Op.TRUNCATE, [0], 0))
    assert part.steps == (Truncate((("t", "kv"),)),)


def test_a_key_that_moves_by_its_expression():
    """Both rows are mapped: the old one is found under its old key."""
    made = plan(program(expression(column(1)), slots=(Slot("expr", 0), Slot("column", 1), Slot("column", 2))))
    part = built(made, UPDATE, results=[(PASSES, "B"), (PASSES, "A")])
    assert works(part) == [("deletes", ("A",)), ("inserts", ("B", "b", "6"))]
    part = built(made, (Op.UPDATE, 0, ["1", "a", "6"], BEFORE), results=[(PASSES, "A")])
    assert works(part) == [("updates", ("A", "a", "6"))]


def test_a_key_from_elsewhere_that_did_not_come_is_refused():
    """KEYCOLS beside the source's key, and only that was sent: which row it is of can't be known."""
    made = plan(program(slots=(Slot("column", 1), Slot("column", 0), Slot("column", 2)), needs_before=True))
    with pytest.raises(
        OperatorError, match=r"came without what key column id of t.kv comes from.*REPLICA IDENTITY FULL"
    ):
        built(made, BLIND)
    with pytest.raises(OperatorError, match="came without what key column id"):
        built(made, KEY_ONLY)
    part = built(made, UPDATE)
    assert works(part) == [("deletes", ("a",)), ("inserts", ("b", "1", "6"))]


def test_an_old_row_that_nobody_needs_is_not_mapped():
    """GETUPDATEBEFORES, and a MAP that only computes columns: one evaluation a row, unless the key changed."""
    made = plan(program(expression(column(1)), slots=(Slot("column", 0), Slot("expr", 0), Slot("column", 2))))
    assert works(built(made, UPDATE, results=[(PASSES, "B")])) == [("updates", ("1", "B", "6"))]
    moved = (Op.UPDATE, 0, ["2", "b", "6"], BEFORE)
    assert works(built(made, moved, results=[(PASSES, "B")])) == [("deletes", ("1",)), ("inserts", ("2", "B", "6"))]


def test_an_old_row_has_the_tokens_of_its_change():
    """They are facts of the change: a filter by a token judges both rows alike, and a column takes the change's own."""
    layout = Layout("t", "kv", ("id", "v", "tok"), ("text",) * 3, ("id",), logical=("text",) * 3)
    slots = (Slot("column", 0), Slot("column", 1), Slot("token", 2))
    token = expression(Operand("token", 2, "TOK"), kind="boolean")
    filtered = plan(program(token, slots=slots, filters=keep()), layout)
    record = (Op.UPDATE, 0, ["1", "b", "here"], ["1", "a", "here"])
    assert works(built(filtered, record, results=[(PASSES,)])) == [("updates", ("1", "b", "here"))]
    assert works(built(filtered, record, results=[(FAILS,)])) == []
    gone = (Op.DELETE, 0, ["1", "a", "here"])
    assert works(built(filtered, gone, results=[(PASSES,)])) == [("deletes", ("1",))]


def test_missing_columns_stay_missing():
    """A column that no update sent is not written; an expression over it neither; @COLSTAT (MISSING) likewise."""
    loose = expression(column(2), left_out=mark(0))
    made = plan(program(expression(column(1)), loose, slots=(Slot("column", 0), Slot("expr", 0), Slot("expr", 1))))
    part = built(made, (Op.UPDATE, 0, ["1", MISSING, "6"], None), results=[(PASSES, None, "=x")])
    assert works(part) == [("patch", ((0, 2), ("1", "x")))]
    part = built(made, (Op.UPDATE, 0, ["1", "b", "6"], None), results=[(PASSES, "B", "!")])
    assert works(part) == [("patch", ((0, 1), ("1", "B")))]
    part = built(made, (Op.UPDATE, 0, ["1", MISSING, MISSING], None))
    assert works(part) == [("patch", ((0,), ("1",)))]
    assert works(built(made, INSERT, results=[(PASSES, "B", "!")])) == [("inserts", ("1", "B", None))]


def test_several_maps_take_one_table():
    """Each its own plan, in their order; results come change by change, then plan by plan."""
    layout = Layout("t", "h", COLUMNS, ("text",) * 3, ())
    plain = TablePlan("s.kv", "t.copy", Layout("t", "copy", COLUMNS, ("text",) * 3, ("id",)), (0,))
    upper = plan(program(expression(column(1)), slots=(Slot("column", 0), Slot("expr", 0), Slot("column", 2))))
    part = built((plain, plan(program(insert_all=True), layout, ()), upper), INSERT, UPDATE,
                 results=[(PASSES, "A"), (PASSES, "B")])  # fmt: skip
    assert sorted(works(part)) == [
        ("append", ("1", "a", "5")), ("append", ("1", "b", "6")), ("inserts", ("1", "B", "6")),
        ("inserts", ("1", "b", "6")),
    ]  # fmt: skip
    assert part.counts == {(("s.kv", target)): [1, 1, 0, 0] for target in ("t.copy", "t.h", "t.kv")}


def test_two_maps_of_one_table_into_one_target_in_two_shapes():
    """ALLOWDUPTARGETMAP: one change and one MAP at a time, so nothing overtakes."""
    narrow = Layout("t", "kv", ("id", "v"), ("text",) * 2, ("id",))
    one = plan(program(slots=PLAIN[:2]), narrow)
    two = plan(program(slots=(Slot("column", 0), Slot("const", value="z"), Slot("fact", name="index"))))
    part = built((one, two), (Op.BEGIN, "A", "x", 1), INSERT, BLIND, (Op.COMMIT, 2))
    assert works(part) == [
        ("inserts", ("1", "a")), ("inserts", ("1", "z", "0")), ("updates", ("1", "b")), ("updates", ("1", "z", "1")),
    ]  # fmt: skip


def test_what_fails_is_told_as_a_refusal():
    """With the SQLSTATE that Spark gave, for REPERROR."""
    made = plan(program(expression(column(1)), slots=(Slot("column", 0), Slot("expr", 0), Slot("column", 2))))
    with pytest.raises(RefusedError, match=r"t\.kv: it fails") as caught:
        built(made, INSERT, results=[Failure("22012", "it fails")])
    assert caught.value.sqlstate == "22012"
    builder = Builder({b"t": (made,)})
    with pytest.raises(OperatorError, match="there is no Spark to evaluate them"):
        builder.add([b"t"], [list(INSERT)])


def test_results_that_end_too_early_are_told():
    """The worker that sends operands met what the one that maps did not: a file that only one of both can read."""
    builder = Builder({b"t": (FILTERED,)}, results=iter([(PASSES,)]))
    with pytest.raises(AwayError, match=r"s.kv: the results of its expressions end too early"):
        builder.add([b"t"], [list(INSERT), list(INSERT)])


def test_columns_that_the_target_lacks_are_counted():
    """IGNOREMISSINGCOLUMNS: not in silence."""
    made = TablePlan("s.kv", "t.kv", LAYOUT, (0,), skipped=("extra",))
    assert built(made, INSERT, DELETE).skipped == {("s.kv", "t.kv"): 2}


def test_plans_that_read_alike_share_a_program():
    """A MAP with wildcards is one program for all its tables."""
    one = plan(program(expression(column(1)), slots=(Slot("column", 0), Slot("expr", 0), Slot("column", 2))))
    other = plan(program(expression(column(2)), slots=(Slot("column", 0), Slot("expr", 0), Slot("column", 1))))
    assert len(programs_of({b"1": (one,), b"2": (other, one)}).numbers) == 1


def test_a_filter_and_none_meet_in_one_net_effect():
    """Two MAPs of one target, only one of which has a filter."""
    builder = Builder({b"1": (FILTERED,), b"2": (plan(program()),)}, results=iter([(FAILS,)]))
    builder.add([b"2", b"1"], [[Op.INSERT, 0, ["2", "b", "6"]], [Op.INSERT, 1, ["1", "a", "5"]]])
    assert works(builder.finish()) == [("inserts", ("2", "b", "6"))]


def test_an_update_that_may_have_to_be_an_insert_must_be_whole():
    """Nothing tells if the row was in the target; without all its columns it can't be made."""
    with pytest.raises(OperatorError, match="came without v, and without what tells if the filter let its row into"):
        built(FILTERED, (Op.UPDATE, 0, ["1", MISSING, "6"], None), results=[(PASSES,)])
