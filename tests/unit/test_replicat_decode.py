"""Records to steps: what one block's tables mean for what is open from the blocks before."""

from __future__ import annotations

from pathlib import Path

import pytest

from replicat.batch import Batcher
from replicat.decode import Task, run_partition
from replicat.net.builder import Builder
from replicat.plan import TablePlan
from replicat.target import Layout, Work
from tests.support.replicat_trail import TrailFeed, table
from trails.errors import AwayError, OperatorError
from trails.fs import RealFs
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import BlockReader
from trails.record import Op


def plan(name: str, *columns: str) -> TablePlan:
    layout = Layout("public", name, columns, ("text",) * len(columns), ("id",))
    return TablePlan(f"src.{name}", f"public.{name}", layout, (0,))


def test_a_changed_table_loses_nothing_of_the_tables_named_before_it():
    """A block that brings a new shape of one table closes what is open; the block's other tables begin anew too."""
    builder = Builder(
        {b"x": (plan("x", "id", "a"),), b"t1": (plan("t", "id", "a"),), b"t2": (plan("t", "id", "a", "b"),)}
    )
    builder.add([b"x", b"t1"], [(Op.INSERT, 0, ["1", "a"]), (Op.INSERT, 1, ["1", "a"])])
    builder.add([b"x", b"t2"], [(Op.INSERT, 0, ["2", "a"]), (Op.INSERT, 1, ["2", "a", "b"])])
    part = builder.finish()
    rows = [r for step in part.steps if isinstance(step, Work) for r in step.rows]
    assert b"".join(r.inserts.data for r in rows if r.layout.name == "x") == b"1\ta\n2\ta\n"
    assert b"".join(r.inserts.data for r in rows if r.layout.name == "t") == b"1\ta\n2\ta\tb\n"
    assert part.counts[("src.x", "public.x")] == [2, 0, 0, 0]


def test_no_space_for_a_result_is_told_with_the_place_where_to_make_some(tmp_path: Path):
    """Raised in a Spark worker it would come out as a stack trace; waiting can mend it."""
    wide = table("s", "wide", "id a", "id")
    feed = TrailFeed(RealFs(), TrailName(str(tmp_path / "dirdat"), "rt"))
    feed.tx((Op.INSERT, wide, ["1", "x" * (2 << 20)]))
    reader = BlockReader(RealFs(), feed.trail)
    batch = Batcher(Planner(reader), 100, 64 << 20).next()
    assert batch is not None and reader.header is not None
    (block,) = batch.jobs[0].tasks[0]
    layout = Layout("s", "wide", ("id", "a"), ("text",) * 2, ("id",))
    plans = {wide.id: (TablePlan("s.wide", "s.wide", layout, (0,)),)}
    place = (block.start.seqno, block.start.rba, block.end.rba)
    task = Task(
        feed.trail.folder, feed.trail.prefix, reader.header.trail_id, (place,), plans, str(tmp_path / "no folder")
    )
    (found,) = run_partition([task])
    assert isinstance(found, AwayError)
    assert "no folder" in str(found)
    reader.close()
    feed.close()


def test_a_long_run_of_places_without_changes_is_not_gathered(tmp_path: Path):
    """An Extract of an idle source writes one a second; a Replicat that was down for weeks passes over them."""
    feed = TrailFeed(RealFs(), TrailName(str(tmp_path / "dirdat"), "rt"))
    kv = table("s", "kv", "id", "id")
    feed.tx((Op.INSERT, kv, ["1"]))
    for number in range(1000):
        feed.writer.append_place(Position(0, 10 + number), number)
    feed.writer.sync()
    reader = BlockReader(RealFs(), feed.trail)
    batcher = Batcher(Planner(reader), 100, 64 << 20)
    batch = batcher.next()
    assert batch is not None
    assert [len(job.tasks[0]) for job in batch.jobs] == [1]
    assert batch.end == batcher.position == feed.writer.durable
    reader.close()
    feed.close()


def test_a_truncate_of_one_of_two_tables_that_share_a_target_is_refused():
    """Such as one partition of many: the target's table would lose the others' rows too."""
    layout = Layout("public", "t", ("id",), ("text",), ("id",))
    plans = {name.encode(): (TablePlan(f"src.{name}", "public.t", layout, (0,)),) for name in ("t1", "t2")}
    with pytest.raises(OperatorError, match=r"TRUNCATE of src.t1: it would empty public.t, .* rows of src.t2"):
        Builder(plans).add([b"t1"], [(Op.TRUNCATE, [0], 0)])
    builder = Builder(plans)
    builder.add([b"t1", b"t2"], [(Op.TRUNCATE, [0, 1], 0)])
    assert len(builder.finish().steps) == 1
