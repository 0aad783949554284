"""Shapes of every target's tables: looked at, made and changed by its dialect, changed by somebody else."""

from __future__ import annotations

from typing import Any

import pytest

from replicat.ddl.dialect import Script
from replicat.model.again import ShapeChangedError
from replicat.model.target import RefusedError
from tests.contract.targets.bench import Bench, images
from trails.errors import OperatorError

pytestmark = pytest.mark.e2e


def _dropped(bench: Bench, column: str) -> tuple[str, ...]:
    script = Script()
    bench.dialect.drop_column(script, (bench.place.schema, "kv"), column)
    return tuple(script.statements)


def test_a_shape_is_what_the_dialect_made(bench: Bench, kv: Any):
    """Columns in order, the key, and no table where there is none."""
    schema = bench.place.schema
    shape = bench.shape("kv")
    assert [column.name for column in shape.columns] == ["id", "a", "b"]
    assert frozenset({"id"}) in shape.unique
    assert (shape.primary, shape.fires, shape.across) == (("id",), (), False)
    assert bench.target.table(schema, "nosuch") is None
    assert bench.target.tables([(schema, "nosuch"), (schema, "kv")]) == {(schema, "kv"): shape}
    bench.target.check_layout(kv)


def test_rows_never_go_to_the_checkpoint_table(bench: Bench):
    """I11: a wildcard takes whatever name a trail brings, and that table has other groups' places."""
    with pytest.raises(OperatorError, match="takes no replicated rows"):
        bench.target.table(*bench.checkpoints)


def test_a_table_that_changed_under_us(bench: Bench, kv: Any):
    """Neither a refusal of rows, nor the operator's fault: look again, and go on from the row."""
    bench.do(bench.rows(kv, inserts=images(["1 a b"])))
    for statement in _dropped(bench, "b"):
        bench.place.sql(statement)
    for how in ({"inserts": images(["2 a b"])}, {"updates": images(["1 x b"])}, {"upserts": images(["1 x b"])}):
        bench.begin()
        with pytest.raises(ShapeChangedError):
            bench.target.apply((bench.rows(kv, **how),))
        bench.again()
    bench.begin()
    with pytest.raises(ShapeChangedError):
        bench.target.current(kv, ("1",))
    bench.again()
    layout = bench.layout(columns="id a")
    bench.do(bench.rows(layout, updates=images(["1 x"])))
    assert bench.look(columns="id a") == [("1", "x")]


def test_statements_are_part_of_the_transaction_or_stand_alone(bench: Bench, kv: Any):
    """As the kind says: a refused one leaves the transaction as it was, or what came before it stays."""
    inside = bench.kind.can.ddl_in_transaction
    made = tuple(bench.script("other", "id:bigint a:short", "id").statements)
    wrong = _dropped(bench, "nosuch")
    if inside:
        bench.begin()
        bench.target.ddl(made)
        bench.again()
        assert bench.target.table(bench.place.schema, "other") is None
        new = bench.begin()
        bench.target.apply((bench.rows(kv, inserts=images(["1 a b"])),))
    with pytest.raises(RefusedError) as caught:
        bench.target.ddl((*made, *wrong))
    assert caught.value.code or caught.value.sqlstate
    assert (bench.target.table(bench.place.schema, "other") is None) == inside
    if inside:
        bench.target.ddl(made)
        bench.target.apply((bench.rows(bench.layout("other", "id a"), inserts=images(["1 a"])),))
        bench.commit(new)
        assert bench.look() == [("1", "a", "b")]
        assert bench.look("other", "id a") == [("1", "a")]


def test_what_the_kind_says_of_triggers_is_so(bench: Bench, kv: Any):
    """Their effects are in the trail already: they don't fire, or the shape names them, so that START can tell."""
    for statement in bench.place.trigger:
        bench.place.sql(statement)
    fires = bench.shape("kv").fires
    bench.do(bench.rows(kv, inserts=images(["1 a b"])))
    if bench.kind.can.holds_triggers:
        assert fires == ()
        assert bench.look() == [("1", "a", "b")]
    else:
        assert fires == ("trigger fire",)


def test_CW_20_cascades_do_not_fire(bench: Bench):
    """Their effects are in the trail already; and a child may come before its parent."""
    bench.make("p", "id:bigint", "id")
    p, key = bench.quoted("p"), bench.quoted("id")
    bench.place.sql(
        f"CREATE TABLE {bench.at('c')} ({key} bigint PRIMARY KEY, {p} bigint, "
        f"FOREIGN KEY ({p}) REFERENCES {p} ({key}) ON DELETE CASCADE)"
    )
    bench.logical["c"] = {"id": "bigint", "p": "bigint"}
    above, below = bench.layout("p", "id"), bench.layout("c", "id p")
    bench.do(bench.rows(below, inserts=images(["1 1", "2 1"])), bench.rows(above, inserts=images(["1"])))
    bench.do(bench.rows(above, deletes=images(["1"])))
    assert len(bench.look("c", "id p")) == 2
