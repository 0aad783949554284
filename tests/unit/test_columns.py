"""COLS, COLSEXCEPT, COLGROUP and TOKENS on definitions and images: what is kept, what is refused, what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trails.codec import binary
from trails.columns import ColumnRule, Projection, Token, project, project_ddl
from trails.ddl import ALTER, CREATE, DDL_FILLED, DDL_USING, RENAME, DdlChange, DdlColumn, TableShape
from trails.errors import OperatorError
from trails.naming import TOKEN, ColumnName
from trails.record import MISSING, Column, Op, TableDef

TABLE = TableDef(
    "sales", "orders",
    (Column("id", "integer", "integer", key=True), *(Column(name, "text", "text") for name in ("a", "b", "c", "Odd"))),
)  # fmt: skip
BEGIN = (Op.BEGIN, "0/10", "77", 1_700_000_000_123_456)


def names(text: str) -> tuple[ColumnName, ...]:
    """`a "B"` as a parameter file's names."""
    return tuple(ColumnName(word.strip('"'), word.startswith('"')) for word in text.split())


def rule(only: str = "", without: str = "", groups: tuple[str, ...] = (), **more: Any) -> ColumnRule:
    """A clause of file x.prm, line 4."""
    return ColumnRule(names(only), names(without), tuple(map(names, groups)), where="x.prm:4", **more)


def made(options: ColumnRule, table: TableDef = TABLE) -> Projection | None:
    """Projected under an environment that says what was asked."""
    return project(options, table, lambda group, name: f"{group}/{name}")


def kept(options: ColumnRule, table: TableDef = TABLE) -> list[str]:
    """Names of the columns that are left."""
    projection = made(options, table)
    return [column.name for column in (projection.definition if projection else table).columns]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (rule(only="c id"), ["id", "c"]),
        (rule(only="ID odd"), ["id", "Odd"]),
        (rule(without="b"), ["id", "a", "c", "Odd"]),
        (rule(without='"Odd" c'), ["id", "a", "b"]),
        (rule(only="id a", groups=("a b",)), ["id", "a", "b"]),
        (rule(only="id a", groups=("b c",)), ["id", "a"]),
        (rule(only="id a", groups=("a b", "b c")), ["id", "a", "b", "c"]),
        (rule(without="a", groups=("a b",)), ["id", "c", "Odd"]),
        (rule(only="id a nothing", strict=False), ["id", "a"]),
        (rule(without="nothing b", strict=False), ["id", "a", "c", "Odd"]),
    ],
)
def test_which_columns_are_left(options: ColumnRule, left: list[str]) -> None:
    """In the table's order; OT-36: a group goes whole, or stays whole; a wildcard passes over what a table lacks."""
    assert kept(options) == left


@pytest.mark.parametrize(
    "options",
    [rule(), rule(only="id a b c odd"), rule(without="nothing", strict=False), rule(groups=("x y",), strict=False)],
)
def test_a_table_that_stays_as_it_is_has_no_projection(options: ColumnRule) -> None:
    """Nobody looks at its rows then."""
    assert made(options) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            rule(only="id zip"),
            r"x\.prm:4: TABLE sales\.orders: COLS: the table has no column zip; its columns are id, a",
        ),
        (rule(without="zip"), r"COLSEXCEPT: the table has no column zip"),
        (rule(groups=("a zip",)), r"COLGROUP: the table has no column zip"),
        (rule(only='id "odd"'), r'the table has no column "odd"'),
        (rule(only="a b"), r"x\.prm:4: TABLE sales\.orders: COLS leaves out key column id.*Name it in COLS"),
        (rule(without="id"), r"COLSEXCEPT leaves out key column id.*out of COLSEXCEPT"),
        (rule(without="a", groups=("a id",)), r"COLSEXCEPT leaves out key column id: .*\(or its COLGROUP\)"),
        (rule(without="id", strict=False), r"leaves out key column id"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_with_its_line(options: ColumnRule, message: str) -> None:
    """When the definition is met, before any row of it."""
    with pytest.raises(OperatorError, match=message) as error:
        made(options)
    assert error.value.hint


def test_names_that_differ_in_case_only() -> None:
    """The exact spelling goes first; where there is none, quotes must say which."""
    twins = TableDef(
        "s", "t", (Column("id", "text", "text", key=True), Column("A", "text", ""), Column("a", "text", ""))
    )
    assert kept(rule(without="a"), twins) == ["id", "A"]
    assert kept(rule(without='"A"'), twins) == ["id", "a"]
    upper = TableDef("s", "t", (*twins.columns[:2], Column("aB", "text", ""), Column("Ab", "text", "")))
    with pytest.raises(OperatorError, match='COLSEXCEPT: ab may be "aB", "Ab"'):
        kept(rule(without="ab"), upper)


def test_a_table_without_a_key_may_lose_any_column_but_the_last() -> None:
    """A row of it is known by all that is left."""
    keyless = TableDef("s", "t", (Column("a", "text", "text"), Column("b", "text", "text")))
    projection = made(rule(without="a"), keyless)
    assert projection is not None
    assert projection.record((Op.DELETE, 0, [b"1", b"2"]), BEGIN) == (Op.DELETE, 0, (b"2",))
    with pytest.raises(OperatorError, match=r"no column is left.*TABLEEXCLUDE"):
        made(rule(without="a b"), keyless)


def test_all_images_are_cut_alike() -> None:
    """Insert, update with and without its old row, delete; MISSING, NULL and binary values stay what they are."""
    projection = made(rule(without="a c"))
    assert projection is not None
    blob = binary(b"\0")
    row = [b"1", b"a", None, b"c", blob]
    assert projection.record((Op.INSERT, 3, row), BEGIN) == (Op.INSERT, 3, (b"1", None, blob))
    assert projection.record((Op.UPDATE, 3, row, None), BEGIN) == (Op.UPDATE, 3, (b"1", None, blob), None)
    old = [b"0", MISSING, MISSING, MISSING, MISSING]
    assert projection.record((Op.UPDATE, 3, row, old), BEGIN)[3] == (b"0", MISSING, MISSING)
    assert projection.record([Op.DELETE, 3, old], BEGIN) == (Op.DELETE, 3, (b"0", MISSING, MISSING))
    assert projection.definition.key == (0,)


def test_a_whole_old_row_is_cut_and_has_the_tokens_of_the_new_one() -> None:
    """GETUPDATEBEFORES: nothing that is left out travels in an old row, and its tokens are those of the change."""
    projection = made(rule(without="a c", tokens=(Token("OP", fact=("GGHEADER", "OPTYPE")),)))
    assert projection is not None
    update = projection.record((Op.UPDATE, 0, ["1", "a", "b", "c", "o"], ["1", "A", "B", "C", "O"]), BEGIN)
    assert update == (Op.UPDATE, 0, ("1", "b", "o", "UPDATE"), ("1", "B", "O", "UPDATE"))


def test_a_groups_missing_column_comes_from_the_old_row() -> None:
    """OT-36: whoever gets one column of the group gets all; the columns of no group may stay missing."""
    projection = made(rule(groups=("a b",)))
    assert projection is not None
    assert projection.definition == TABLE
    after, before = ["1", MISSING, "b", MISSING, "o"], ["1", "a", "x", "c", "o"]
    found = projection.record((Op.UPDATE, 0, after, before), BEGIN)
    assert found == (Op.UPDATE, 0, ("1", "a", "b", MISSING, "o"), tuple(before))
    assert after[1] is MISSING  # the record that came is not touched
    assert projection.record((Op.INSERT, 0, after), BEGIN)[2] == tuple(after)


@pytest.mark.parametrize("before", [None, ["1", MISSING, "x", "c", "o"]])
def test_a_groups_missing_column_that_nobody_knows_is_refused(before: list[Any] | None) -> None:
    """Table, row, CSN, column and the command that mends it; also for a source's bytes."""
    projection = made(rule(only="id a b", groups=("a b",)))
    assert projection is not None
    message = r"table sales\.orders, row id=1, CSN 0/10: .*column a .*ADD TRANDATA sales\.orders"
    for key in ("1", b"1"):
        with pytest.raises(OperatorError, match=message):
            projection.record((Op.UPDATE, 0, [key, MISSING, "b", "c", "o"], before), BEGIN)


def test_a_group_that_is_left_out_asks_for_nothing() -> None:
    """COLSEXCEPT of one member."""
    projection = made(rule(without="a", groups=("a b",)))
    assert projection is not None
    assert projection.record((Op.UPDATE, 0, ["1", MISSING, MISSING, "c", "o"], None), BEGIN)[2] == ("1", "c", "o")


TOKENS = (
    Token("SHOP", "Porto"),
    Token("ID", fact=("TRANSACTION", "XID")),
    Token("CSN", fact=("TRANSACTION", "CSN")),
    Token("AT", fact=("GGHEADER", "COMMITTIMESTAMP")),
    Token("OP", fact=("GGHEADER", "OPTYPE")),
    Token("TBL", fact=("GGHEADER", "TABLENAME")),
    Token("GRP", fact=("GGENVIRONMENT", "GROUPNAME")),
    Token("VAR", fact=("OSVARIABLE", "HOME")),
)


def test_tokens_stand_behind_all_columns() -> None:
    """In both images of an update; a column of the same name does not clash: the type tells them apart."""
    projection = made(rule(only="id a", tokens=TOKENS))
    assert projection is not None
    columns = projection.definition.columns
    assert [c.name for c in columns] == ["id", "a", "SHOP", "ID", "CSN", "AT", "OP", "TBL", "GRP", "VAR"]
    assert [c.type for c in columns[2:]] == [TOKEN] * 8
    stamp, group = "2023-11-14 22:13:20.123456", "GGENVIRONMENT/GROUPNAME"
    tail = ("Porto", "77", "0/10", stamp, "UPDATE", "sales.orders", group, "OSVARIABLE/HOME")
    found = projection.record((Op.UPDATE, 0, [*"1abcd"], [*"0abcd"]), BEGIN)
    assert found == (Op.UPDATE, 0, ("1", "a", *tail), ("0", "a", *tail))
    assert projection.record((Op.DELETE, 0, [*"1abcd"]), BEGIN)[2][6] == "DELETE"


def test_facts_are_those_of_the_changes_own_transaction() -> None:
    """They are made once a transaction, and again for the next."""
    projection = made(rule(tokens=TOKENS))
    assert projection is not None
    found = [projection.record((Op.INSERT, 0, [*"1abcd"]), (Op.BEGIN, f"c{n}", f"x{n}", n))[2][6:8] for n in range(3)]
    assert found == [("x0", "c0"), ("x1", "c1"), ("x2", "c2")]


def test_a_pump_adds_to_extracts_tokens() -> None:
    """Rules for columns don't concern tokens that came along; one of the same name is given anew."""
    first = made(rule(tokens=(Token("ONE", "1"), Token("TWO", "2"))))
    assert first is not None
    second = made(rule(without="a", tokens=(Token("TWO", "ii"), Token("A", "iii"))), first.definition)
    assert second is not None
    assert [c.name for c in second.definition.columns] == ["id", "b", "c", "Odd", "ONE", "TWO", "A"]
    row = first.record((Op.INSERT, 0, [*"1abcd"]), BEGIN)
    assert second.record(row, BEGIN)[2] == (*"1bcd", "1", "ii", "iii")
    with pytest.raises(OperatorError, match="no column ONE"):
        made(rule(without="ONE"), first.definition)


def shape(*columns: str) -> TableShape:
    """Columns numbered by their letter; `id` is the key."""
    made = tuple(DdlColumn(ord(name[0]), name, "text", "text") for name in columns)
    return TableShape("sales", "orders", made, ("id",))


def test_ddl_shows_the_columns_that_are_sent_and_no_others() -> None:
    """A secret column is made in no target, nor told of; a change of it alone is no change; nothing is refused here."""
    change = DdlChange(ALTER, shape("id", "a"), shape("id", "a", "b"), "ALTER TABLE orders ADD b text")
    assert project_ddl(change, lambda *_: rule(without="b")) is None
    assert project_ddl(change, lambda *_: rule(without="a")) == DdlChange(ALTER, shape("id"), shape("id", "b"))
    made = DdlChange(CREATE, None, shape("id", "a"))
    assert project_ddl(made, lambda *_: rule(only="id zip")) == DdlChange(CREATE, None, shape("id"))
    assert project_ddl(change, lambda *_: rule(tokens=TOKENS)) == change
    assert project_ddl(change, lambda *_: None) == change


def test_a_renamed_table_may_fall_under_another_clause() -> None:
    """The columns that it gains or loses by that are part of the change."""
    columns = shape("id", "a")
    change = DdlChange(RENAME, columns, replace(columns, name="old_orders"))
    found = project_ddl(change, lambda _, name: rule(without="a") if name == "orders" else None)
    # What `a` held so far is not in the trail.
    assert found == DdlChange(RENAME, shape("id"), replace(columns, name="old_orders"), flags=DDL_FILLED)


def test_ddl_flags_are_those_of_the_columns_that_are_sent() -> None:
    """What was done to a column that is left out is no reason to refuse; one that comes into sight by a rename is."""

    def column(number: int, name: str, native: str = "text") -> DdlColumn:
        return DdlColumn(number, name, "text", native)

    def flags(old: list[DdlColumn], new: list[DdlColumn], given: int) -> int:
        before, after = (TableShape("sales", "orders", tuple(columns)) for columns in (old, new))
        found = project_ddl(DdlChange(ALTER, before, after, "", given), lambda *_: rule(without="secret", strict=False))
        assert found is not None
        return found.flags

    one, secret, w = column(1, "id"), column(2, "secret"), column(3, "w")
    both = DDL_USING | DDL_FILLED
    assert flags([one, secret], [one, column(2, "secret", "json"), w], DDL_USING) == 0
    assert flags([one, secret, w], [column(1, "id", "json"), column(2, "secret", "json"), w], DDL_USING) == DDL_USING
    assert flags([one, w], [one, secret, column(3, "v")], DDL_FILLED) == 0
    assert flags([one], [one, secret, w], both) == DDL_FILLED
    assert flags([one, secret], [one, column(2, "known")], 0) == DDL_FILLED
