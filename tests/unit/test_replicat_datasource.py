"""Rows of `format("trail")` from records, without a Spark session."""

from __future__ import annotations

from replicat.datasource import _images
from trails.ddl import CREATE, DdlChange, TableShape
from trails.record import MISSING, Column, Op, TableDef

TABLE = TableDef("s", "t", (Column("id", "integer", "", key=True), Column("X", "text", ""), Column("X", "token", "")))
PLAIN = TableDef("s", "p", TABLE.columns[:2])


def test_tokens_stand_in_a_column_of_their_own() -> None:
    """Those of the change, from whichever image it has; a column of the same name does not clash."""
    tables = [TABLE, PLAIN]
    assert list(_images([Op.INSERT, 0, ["1", "x", "token"]], tables)) == [
        ("s.t", None, {"id": "1", "X": "x"}, {"X": "token"})
    ]
    update = [Op.UPDATE, 0, ["1", MISSING, "token"], ["0", "x", "token"]]
    assert list(_images(update, tables)) == [("s.t", {"id": "0", "X": "x"}, {"id": "1"}, {"X": "token"})]
    assert next(_images([Op.DELETE, 0, ["1", None, "token"]], tables))[3] == {"X": "token"}
    assert list(_images([Op.DELETE, 1, ["1", None]], tables)) == [("s.p", {"id": "1", "X": None}, None, None)]


def test_a_change_of_shape_is_one_row_without_images() -> None:
    """It has no rows of its own, but a place among them."""
    change = DdlChange(CREATE, None, TableShape("s", "t", ()))
    assert list(_images([Op.DDL, change.to_wire()], [])) == [("s.t", None, None, None)]
