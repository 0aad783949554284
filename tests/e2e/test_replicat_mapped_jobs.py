"""Mapped tables through a Spark job: both stages and the JVM between them; a row whose expression fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.patience import PATIENCE
from replicat.batches.batch import Batcher, tasks_of
from replicat.batches.engine import SparkEngine
from replicat.maps.expressions.compiling import Compiler
from replicat.model.plan import MapProgram, RowFilter, Slot, TablePlan
from replicat.model.target import Layout, RefusedError, Work
from replicat.work.decode import columns_of, run_each, run_some
from replicat.work.evaluate import BATCH_ROWS, MappedJobs
from replicat.work.net.part import Part, Unmapped
from replicat.work.projected import Projections
from tests.support.list_target import parse
from tests.support.replicat_trail import TrailFeed, table
from trails.errors import DamageError
from trails.fs import RealFs
from trails.plan import Planner
from trails.position import TrailName
from trails.reader import BlockReader
from trails.record import Op, TableDef

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.xdist_group("spark")]

KV = table("s", "kv", "id v n", "id")
WHERE = "dirprm/REP1.prm:7"


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[TrailFeed]:
    """A trail of its own."""
    made = TrailFeed(RealFs(), TrailName(str(tmp_path / "dirdat"), "rt"), max_bytes=10 << 20)
    yield made
    made.close()


def planned(
    engine: SparkEngine, value: str, condition: str = "", source: TableDef = KV, name: str = "kv", **more: Any
) -> TablePlan:
    """`id` and one expression, filtered."""
    compiler = Compiler(engine.sql, source)
    slots = (Slot("column", 0), compiler.slot(value, WHERE, "COLMAP x"))
    filters = (RowFilter(compiler.condition(condition, WHERE, "FILTER")),) if condition else ()
    layout = Layout("t", name, ("id", "x"), ("text",) * 2, () if more.get("insert_all") else ("id",))
    program = MapProgram(slots, tuple(compiler.expressions), filters, source_key=(0,), **more)
    key = (0,) if layout.key else ()
    columns = tuple(column.name for column in source.columns)
    return TablePlan(source.full_name, layout.full_name, layout, key, columns=columns, mapping=program)


def jobs(feed: TrailFeed, plans: dict[bytes, tuple[TablePlan, ...]], rows: int = 1_000_000) -> Any:
    """The tasks of each job for all that is in the trail."""
    reader = BlockReader(RealFs(), feed.trail)
    batcher = Batcher(Planner(reader), rows, 64 << 20)
    while (batch := batcher.next()) is not None:
        for job in batch.jobs:
            assert reader.header is not None
            yield tasks_of(job, feed.trail, reader.header.trail_id, plans, columns_of(reader.definitions), "")
    reader.close()


def rows_of(part: Part | Unmapped) -> list[tuple[str | None, ...]]:
    """All rows that a part inserts, sorted."""
    assert isinstance(part, Part), part
    found: list[tuple[str | None, ...]] = []
    for step in part.steps:
        assert isinstance(step, Work)
        found += [row for rows in step.rows for row in parse(rows.inserts.read())]
        found += [row for bag in step.bags for row in parse(bag.inserts.read())]
    return sorted(found, key=str)


def test_a_mapped_job_gives_the_filtered_net_effect(spark_engine: SparkEngine, feed: TrailFeed):
    """More rows than one Arrow batch, several MAPs of a table, a table without one; one job for all."""
    plain = table("s", "plain", "id v n", "id")
    size = BATCH_ROWS + 100
    changes: list[Any] = []
    for i in range(size):
        changes += [(Op.INSERT, KV, [str(i), f"v{i}", str(i % 3)]), (Op.INSERT, plain, [str(i), "p", None])]
    feed.tx(*changes)
    layout = Layout("t", "plain", ("id", "v", "n"), ("text",) * 3, ("id",))
    plans = {
        KV.id: (planned(spark_engine, "upper(v) || change.index", "n = '1'"), planned(spark_engine, "n + 1", name="m")),
        plain.id: (TablePlan("s.plain", "t.plain", layout, (0,)),),
    }
    (tasks,) = jobs(feed, plans)
    (part,) = spark_engine.submit(tasks).result(timeout=PATIENCE)
    assert isinstance(part, Part)
    by_target = {rows.layout.name: parse(rows.inserts.read()) for rows in part.steps[0].rows}  # type: ignore[union-attr]
    assert sorted(by_target["kv"]) == sorted((str(i), f"V{i}{2 * i}") for i in range(size) if i % 3 == 1)
    assert sorted(by_target["m"]) == sorted((str(i), str(i % 3 + 1)) for i in range(size))
    assert len(by_target["plain"]) == size
    kept = len(by_target["kv"])
    assert part.counts[("s.kv", "t.kv")] == [kept, 0, 0, 0]
    assert part.filtered == {("s.kv", "t.kv"): [size - kept, 0, 0, 0]}


def test_a_failing_row_is_found_and_told(spark_engine: SparkEngine, feed: TrailFeed):
    """The job says only that some row fails; then exactly the changes that fail are refused, all others applied."""
    for i in range(200):
        feed.tx((Op.INSERT, KV, [str(i), "v", "0" if i in (7, 150) else "4"]), (Op.DELETE, KV, [f"x{i}", "v", "1"]))
    feed.tx((Op.INSERT, KV, ["text", "v", "no number"]))
    plans = {KV.id: (planned(spark_engine, "CAST(100 / CAST(n AS INT) AS INT)"),)}
    (tasks,) = jobs(feed, plans)
    (task,) = tasks
    (part,) = spark_engine.submit(tasks).result(timeout=PATIENCE)
    assert isinstance(part, Unmapped)
    assert part.sqlstate in ("22012", "22018")
    evaluated = spark_engine.evaluate(task)
    with pytest.raises(RefusedError) as caught:
        run_some(task, 0, 201, None, evaluated)
    assert caught.value.sqlstate == "22012"
    assert f"{WHERE}: COLMAP x: CAST(100 / CAST(n AS INT) AS INT) fails for n = '0': [DIVIDE_BY_ZERO]" in str(
        caught.value
    )
    assert len(rows_of(run_some(task, 8, 150, None, evaluated))) == 142
    assert rows_of(run_some(task, 3, 4, None, evaluated)) == [("3", "25")]
    failed = []
    for number in range(201):
        for spot, alone in run_each(task, number, None, evaluated):
            if alone.error is not None:
                failed.append((spot.key, spot.op, alone.error.sqlstate, alone.counts))
    assert failed == [
        ("7", "insert", "22012", {("s.kv", "t.kv"): [1, 0, 0, 0]}),
        ("150", "insert", "22012", {("s.kv", "t.kv"): [1, 0, 0, 0]}),
        ("text", "insert", "22018", {("s.kv", "t.kv"): [1, 0, 0, 0]}),
    ]


def test_a_filter_guards_the_values(spark_engine: SparkEngine, feed: TrailFeed):
    """What a filter leaves out is not evaluated: FILTER (n <> 0) makes 1 / n safe."""
    feed.tx((Op.INSERT, KV, ["1", "v", "0"]), (Op.INSERT, KV, ["2", "v", "4"]), (Op.INSERT, KV, ["3", "v", None]))
    plans = {KV.id: (planned(spark_engine, "8 / CAST(n AS INT)", "CAST(n AS INT) <> 0"),)}
    (tasks,) = jobs(feed, plans)
    assert rows_of(spark_engine.submit(tasks).result(timeout=PATIENCE)[0]) == [("2", "2")]


def test_text_that_is_no_utf8_is_refused_alone(spark_engine: SparkEngine, feed: TrailFeed):
    """SQL_ASCII: such a text passes where nothing looks at it, and fails the change whose expression does."""
    broken = b"\xff\xfe".decode("utf-8", "surrogateescape")
    feed.tx((Op.INSERT, KV, ["1", broken, "1"]), (Op.INSERT, KV, [broken, "v", "1"]))
    plans = {KV.id: (planned(spark_engine, "upper(v)"),)}
    (tasks,) = jobs(feed, plans)
    (part,) = spark_engine.submit(tasks).result(timeout=PATIENCE)
    assert isinstance(part, Unmapped)
    assert "no UTF-8" in part.message
    found = list(run_each(tasks[0], 0, None, spark_engine.evaluate(tasks[0])))
    assert [alone.error is not None for _, alone in found] == [True, False]
    assert [rows_of(alone) for _, alone in found[1:]] == [[(broken, "V")]]


def test_facts_of_a_transaction_that_began_in_an_earlier_job(spark_engine: SparkEngine, feed: TrailFeed):
    """CW: a transaction larger than a job; every piece knows its CSN, its id, and where it stands in it."""
    csn = feed.tx(*((Op.INSERT, KV, [str(i), "v", "1"]) for i in range(1000)), pieces=10, time_us=1_000_000)
    text = "concat_ws(' ', change.csn, change.xid, change.index, change.commit_time, id = change.index)"
    plans = {KV.id: (planned(spark_engine, text, insert_all=True),)}
    rows = []
    for tasks in jobs(feed, plans, 250):
        for part in spark_engine.submit(tasks).result(timeout=PATIENCE):
            rows += rows_of(part)
    assert sorted(rows) == sorted((str(i), f"{csn} 1 {i} 1970-01-01 00:00:01+00 true") for i in range(1000))


def test_damage_met_by_a_mapped_job_is_told_as_damage(spark_engine: SparkEngine, feed: TrailFeed):
    """CW-22: by the first stage, through the second."""
    feed.tx((Op.INSERT, KV, ["1", "x" * 50, "1"]))
    plans = {KV.id: (planned(spark_engine, "upper(v)"),)}
    (tasks,) = jobs(feed, plans)
    path = Path(feed.trail.path(0))
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamageError, match=r"rt000000000, RBA \d+: damaged: expected CRC"):
        spark_engine.submit(tasks).result(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("text", "anew"),
    [
        ("uuid()", True),
        ("rand()", True),
        ("current_timestamp()", True),
        ("concat(v, CAST(unix_micros(now()) AS STRING))", True),
        ("CAST('now' AS TIMESTAMP)", True),
        ("TIMESTAMP 'now'", True),
        ("concat(v, 'known')", False),
    ],
)
def test_every_job_draws_anew_and_knows_the_time(spark_engine: SparkEngine, feed: TrailFeed, text: str, anew: bool):
    """What Spark plans is kept from job to job, but not what it would put into the plan as a constant."""
    plans = {KV.id: (planned(spark_engine, text),)}
    feed.tx((Op.INSERT, KV, ["1", "v", "1"]))
    (tasks,) = jobs(feed, plans)
    found = {rows_of(spark_engine.submit(tasks).result(timeout=PATIENCE)[0])[0][1] for _ in range(2)}
    assert len(found) == 1 + anew
    assert spark_engine._mapped is not None
    assert bool(spark_engine._mapped._frames) is not anew


def test_jobs_at_the_same_time_keep_to_their_own_tasks(spark_engine: SparkEngine, feed: TrailFeed):
    """They share what Spark made of the expressions, and nothing else."""
    for n in range(8):
        feed.tx(*((Op.INSERT, KV, [f"{n}-{i}", f"v{n}", "1"]) for i in range(300)))
    plans = {KV.id: (planned(spark_engine, "upper(v)"),)}
    running = [spark_engine.submit(tasks) for tasks in jobs(feed, plans, 300)]
    found = [[row for part in each.result(timeout=PATIENCE) for row in rows_of(part)] for each in running]
    assert [(len(rows), {v for _, v in rows}) for rows in found] == [(300, {f"V{n}"}) for n in range(8)]


def test_many_programs_in_one_job(spark_engine: SparkEngine, feed: TrailFeed):
    """150 tables with a COLMAP each of its own."""
    tables = [table("s", f"t{i}", "id v n", "id") for i in range(150)]
    compiled = Compiler(spark_engine.sql, KV)
    plans = {}
    for i, definition in enumerate(tables):
        compiled.expressions.clear()
        slots = (Slot("column", 0), compiled.slot(f"concat(upper(v), '-{i}', n)", WHERE, "COLMAP x"))
        layout = Layout("t", f"t{i}", ("id", "x"), ("text",) * 2, ("id",))
        program = MapProgram(slots, tuple(compiled.expressions), source_key=(0,))
        plans[definition.id] = (
            TablePlan(definition.full_name, layout.full_name, layout, (0,), columns=("id", "v", "n"), mapping=program),
        )
    feed.tx(*((Op.INSERT, definition, ["1", "v", "n"]) for definition in tables))
    (tasks,) = jobs(feed, plans)
    found = rows_of(spark_engine.submit(tasks).result(timeout=PATIENCE)[0])
    assert found == sorted((("1", f"V-{i}n") for i in range(150)), key=str)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tasks of each mapped job that Spark runs."""
    found: list[int] = []
    by_job = MappedJobs._by_job

    def counting(self: MappedJobs, tasks: Any) -> Any:
        found.append(len(tasks))
        return by_job(self, tasks)

    monkeypatch.setattr(MappedJobs, "_by_job", counting)
    return found


def test_small_batches_cost_no_job(spark_engine: SparkEngine, feed: TrailFeed, counted: list[int]):
    """The first one shows that projections give the same. Rows, failures and damage are told as by a job."""
    plans = {KV.id: (planned(spark_engine, "concat(v, CAST(CAST(n AS INT) + 1 AS STRING))", "n <> '7'"),)}
    for i in range(30):
        feed.tx((Op.INSERT, KV, [str(i), "\u00e4 \t\\", str(i % 8)]), (Op.UPDATE, KV, ["0", f"v{i}", "3"]))
    batches = list(jobs(feed, plans, 8))
    assert len(batches) > 5
    found = [row for tasks in batches for row in rows_of(spark_engine.submit(tasks).result(timeout=PATIENCE)[0])]
    wanted = [(str(i), f"\u00e4 \t\\{i % 8 + 1}") for i in range(1, 30) if i % 8 != 7]
    assert sorted(row for row in found if row[0] != "0") == sorted(wanted)
    assert counted == [1]

    feed.tx((Op.INSERT, KV, ["bad", "v", "no number"]))
    (tasks,) = list(jobs(feed, plans, 8))[-1:]
    (part,) = spark_engine.submit(tasks).result(timeout=PATIENCE)
    assert isinstance(part, Unmapped)
    assert part.sqlstate == "22018"
    assert rows_of(spark_engine.submit(batches[0]).result(timeout=PATIENCE)[0])

    path = Path(feed.trail.path(0))
    data = bytearray(path.read_bytes())
    data[batches[2][0].blocks[-1].end.rba - 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamageError, match="expected CRC"):
        spark_engine.submit(batches[2]).result(timeout=PATIENCE)
    assert counted == [1]


def test_projections_that_give_something_else_are_never_used(
    spark_engine: SparkEngine, feed: TrailFeed, counted: list[int], monkeypatch: pytest.MonkeyPatch
):
    """The way to them is Spark's inner one: another release may understand it otherwise, or not have it."""
    feed.tx((Op.INSERT, KV, ["1", "v", "0"]))
    results = Projections.results
    wrongs: list[Any] = [lambda self, batch: [(True, "x") for _ in results(self, batch)], _missing]
    for number, wrong in enumerate(wrongs):
        monkeypatch.setattr(Projections, "results", wrong)
        plans = {KV.id: (planned(spark_engine, f"upper(v) || '{number}'"),)}
        (tasks,) = jobs(feed, plans)
        for _ in range(3):
            assert rows_of(spark_engine.submit(tasks).result(timeout=PATIENCE)[0]) == [("1", f"V{number}")]
    assert counted == [1] * 6


def _missing(*_: object) -> Any:
    raise TypeError("'JavaPackage' object is not callable")


def test_projections_that_break_later_are_given_up(
    spark_engine: SparkEngine, feed: TrailFeed, counted: list[int], monkeypatch: pytest.MonkeyPatch
):
    """The batch itself, and all behind it, go as jobs."""
    feed.tx((Op.INSERT, KV, ["1", "v", "0"]))
    (tasks,) = jobs(feed, {KV.id: (planned(spark_engine, "upper(v) || 'later'"),)})
    wanted = [("1", "Vlater")]
    for _ in range(2):
        assert rows_of(spark_engine.submit(tasks).result(timeout=PATIENCE)[0]) == wanted
    assert counted == [1]
    monkeypatch.setattr(Projections, "results", _missing)
    assert rows_of(spark_engine.submit(tasks).result(timeout=PATIENCE)[0]) == wanted
    monkeypatch.undo()
    assert rows_of(spark_engine.submit(tasks).result(timeout=PATIENCE)[0]) == wanted


def test_large_batches_and_what_is_drawn_go_as_jobs(
    spark_engine: SparkEngine, feed: TrailFeed, counted: list[int], monkeypatch: pytest.MonkeyPatch
):
    """A plan that draws is another each time."""
    feed.tx(*((Op.INSERT, KV, [str(i), "v", "0"]) for i in range(20)))
    (drawn,) = jobs(feed, {KV.id: (planned(spark_engine, "concat(v, uuid())"),)})
    values = {row[1] for _ in range(2) for row in rows_of(spark_engine.submit(drawn).result(timeout=PATIENCE)[0])}
    assert len(values) == 40
    monkeypatch.setattr("replicat.work.evaluate.SMALL_CHANGES", 19)
    (large,) = jobs(feed, {KV.id: (planned(spark_engine, "upper(v) || 'large'"),)})
    for _ in range(3):
        assert len(rows_of(spark_engine.submit(large).result(timeout=PATIENCE)[0])) == 20
    assert counted == [1] * 5
