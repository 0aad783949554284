"""Records to steps: what one block's tables mean for what is open from the blocks before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from replicat.batches.batch import Batcher
from replicat.model.plan import TablePlan
from replicat.model.target import Blob, Compare, Fill, Layout, Patch, Rows, Truncate, Work
from replicat.work.builder import Builder
from replicat.work.decode import Task, run_partition
from replicat.work.net.part import SPILL_BYTES, Part, discard, spilled
from tests.support.list_target import parse
from tests.support.replicat_trail import TrailFeed, table
from trails.errors import AwayError, MismatchError, OperatorError
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
    made = [(r.layout.name, row) for r in rows for row in parse(r.inserts.data)]
    assert [row for name, row in made if name == "x"] == [("1", "a"), ("2", "a")]
    assert [row for name, row in made if name == "t"] == [("1", "a"), ("2", "a", "b")]
    assert part.counts[("src.x", "public.x")] == [2, 0, 0, 0]


def test_a_part_whose_large_blobs_are_files_is_the_same_part(tmp_path: Path):
    """Borders between layers and comparisons too: a result that goes through files lost the borders once."""
    large, small = Blob(b"x" * SPILL_BYTES, 2), Blob(b"1\n", 1)
    rows = Rows(
        plan("t", "id").layout, updates=large, inserts=small, compares=(Compare((0,), large),),
        patches=(Patch((0,), large),), fills=(Fill(("1",), ("2",), there=True),),
    )  # fmt: skip
    part = Part((Truncate((("s", "t"),)), Work((rows,), border=True), Work((rows,))), ends=True)
    made = spilled(part, str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 6
    steps = [step for step in made.steps if isinstance(step, Work)]
    assert [step.border for step in steps] == [True, False]
    found = steps[0].rows[0]
    assert (found.inserts, found.fills, found.layout) == (rows.inserts, rows.fills, rows.layout)
    for blob in (found.updates, found.compares[0].rows, found.patches[0].rows):
        assert (blob.data, blob.rows, blob.read()) == (b"", 2, large.data)
    discard(made)
    assert list(tmp_path.iterdir()) == []


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
    task = Task(
        feed.trail.folder,
        feed.trail.prefix,
        reader.header.trail_id,
        (block,),
        plans,
        {wide.id: 2},
        str(tmp_path / "no folder"),
    )
    (found,) = run_partition([task])
    assert isinstance(found, AwayError)
    assert "no folder" in str(found)
    reader.close()
    feed.close()


def test_a_worker_that_keeps_its_last_file_open_meets_each_file_as_it_stands(tmp_path: Path):
    """What failed at a file leaves nothing behind for the next task; a file that was replaced is not the one kept."""
    kv = table("s", "kv", "id", "id")
    feed, other = (TrailFeed(RealFs(), TrailName(str(tmp_path / name), "rt")) for name in ("dirdat", "other"))
    for number in range(2):
        feed.tx((Op.INSERT, kv, [str(number)]))
        feed.writer.roll()
    reader = BlockReader(RealFs(), feed.trail)
    batch = Batcher(Planner(reader), 100, 64 << 20).next()
    assert batch is not None and reader.header is not None
    (found,) = batch.jobs[0].tasks
    assert [block.start.seqno for block in found] == [0, 1]
    plans = {kv.id: (plan("kv", "id"),)}
    task = Task(feed.trail.folder, "rt", reader.header.trail_id, found, plans, {kv.id: 1})
    first, second, aside = Path(feed.trail.path(0)), Path(feed.trail.path(1)), tmp_path / "aside"

    def run(what: Task = task) -> str:
        (result,) = run_partition([what])
        return str(result) if isinstance(result, MismatchError) else str(result.counts[("src.kv", "public.kv")][0])

    assert run() == "2"
    second.rename(aside)
    assert "was removed while it was read" in run()
    aside.rename(second)
    assert run() == "2"
    assert run(replace(task, blocks=found[:1])) == "1"
    first.rename(aside)
    first.write_bytes(Path(other.trail.path(0)).read_bytes())
    assert "expected trail" in run(replace(task, blocks=found[:1]))
    aside.rename(first)
    assert run() == "2"
    reader.close()
    feed.close()
    other.close()


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
