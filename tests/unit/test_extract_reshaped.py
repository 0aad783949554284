"""Another shape where no DDL is captured: what is told, and of which transaction."""

from __future__ import annotations

from collections.abc import Sequence

from extract import reshaped
from extract.assemble import Assembler
from tests.support.trail_script import open_writer
from trails.position import Position
from trails.record import Column, Op, TableDef
from trails.testing import FaultFs


def table(*columns: str, key: str = "id") -> TableDef:
    """`name type` each."""
    pairs = [column.split(maxsplit=1) for column in columns]
    return TableDef("s", "t", tuple(Column(name, kind, kind, name == key) for name, kind in pairs))


def test_types_and_columns_are_compared_and_neither_keys_nor_tokens() -> None:
    """At most three differences are shown, and the message has no more than forty words with them."""
    old = table("id integer", "a text", "b text", "c text", "tk token")
    assert reshaped.text(old, table("id integer", "a text", "b text", "c text", key="a"), "7") == ""
    assert reshaped.text(old, table("id bigint", "a text", "d text", "c text"), "7") == (
        "s.t has another shape from CSN 7 on: id was integer, is bigint; d is new; b is gone. DDL is not captured: "
        "change the targets, and the rows that they have, by hand"
    )
    many = reshaped.text(old, table("id bigint", "x text", "y text"), "7")
    assert ": id was integer, is bigint; x is new; y is new; 3 more. DDL" in many
    assert len(many.split()) <= 40


def test_each_new_shape_is_told_once_with_the_transaction_that_has_its_first_row() -> None:
    """Inside a block of several transactions, and by a new process from what the trail says."""
    fs, told = FaultFs(), list[str]()
    shapes = [table("id integer"), table("id bigint"), table("id bigint", "a text")]

    def life(first: int, given: Sequence[TableDef]) -> None:
        writer = open_writer(fs)
        sink = Assembler(
            writer, writer.last.origin, writer.last.csn,
            reshaped=lambda old, new, csn: told.append(reshaped.text(old, new, csn)),
        )  # fmt: skip
        for number, shape in enumerate(given, first):
            sink.begin(f"{number:08d}", str(number), number)
            index = sink.table(shape)
            sink.records.append((int(Op.INSERT), index, ["1"] * len(shape.columns)))
            sink.grew(10)
            sink.commit(Position(0, number), f"{number:08d}", number)
        sink.cut()
        writer.close()

    life(1, [shapes[0], shapes[0], shapes[1], shapes[1]])
    life(5, [shapes[1], shapes[2], shapes[2]])
    assert [text.partition(".t has ")[2].partition(". DDL")[0] for text in told] == [
        "another shape from CSN 00000003 on: id was integer, is bigint",
        "another shape from CSN 00000006 on: a is new",
    ]
