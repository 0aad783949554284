"""Replicat's parameter file: what is taken, and how what is wrong is said."""

from __future__ import annotations

import subprocess
import sys

import pytest

from replicat.mapping import find_rule, plan_table
from replicat.params import KEYWORDS, ReplicatParams
from replicat.target import TargetColumn, TargetTable
from trails.errors import OperatorError, ParamError
from trails.record import Column, TableDef
from trails.runtime.params import parse_text

GOOD = "REPLICAT rep1\nTARGETDB postgresql://u@h/d\nMAP s.*, TARGET p.*;\n"


def read(text: str) -> ReplicatParams:
    return ReplicatParams.from_statements(parse_text(text, "rep1.prm"))


def test_all_parameters():
    """Each keyword's own example is accepted, all together."""
    examples = [k.example for k in KEYWORDS.values() if k.name != "REPLICAT"]
    text = "REPLICAT rep1\n" + "\n".join(examples)
    params = read(text)
    assert params.group == "REP1"
    assert params.batch_bytes == 64 << 20
    assert params.commit_wait
    assert params.spark_options == (("spark.executor.cores", "2"),)
    assert params.checkpoint_table == ("ggadmin", "checkpoint")


def test_defaults():
    """A small file is enough."""
    params = read(GOOD)
    assert (params.batch_rows, params.batch_bytes, params.commit_wait) == (100_000, 64 << 20, False)
    assert (params.spark_master, params.reconnect_seconds) == ("local[2]", 3600)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("TARGETDB mysql://h/d", "rep1.prm:4: TARGETDB: expected a URL postgresql"),
        ("MAP s.t TARGET;", "rep1.prm:4: MAP: expected source.table, TARGET target.table;"),
        ("MAP s.*, TARGET p.a*;", "rep1.prm:4: MAP: expected a target whose only wildcards are lone *"),
        ("MAP s.*, TARGET p.*", "rep1.prm:4: MAP: expected ';'"),
        ("BATCHBYTES 5T", "rep1.prm:4: BATCHBYTES: expected a whole number"),
        ("SPARKOPTIONS master=local", "rep1.prm:4: SPARKOPTIONS: expected spark.name=value"),
        ("CHECKPOINTTABLE g.*", "rep1.prm:4: CHECKPOINTTABLE: expected one table without wildcards"),
        ("GROUPTRANSOPS 5", "rep1.prm:4: GROUPTRANSOPS: REPLICAT has no such parameter"),
    ],
)
def test_mistakes(line: str, message: str):
    """File, line, expected, found."""
    text = GOOD.replace("TARGETDB postgresql://u@h/d\n", "\n") if "TARGETDB" in line else GOOD
    with pytest.raises(ParamError) as caught:
        read(text + line + "\n")
    assert message in str(caught.value)


def test_neither_spark_nor_a_driver_is_loaded():
    """ggsci checks a file without waiting for either."""
    code = "import sys, replicat.params; print([m for m in ('pyspark', 'psycopg', 'py4j') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_first_map_that_matches_counts_and_excludes_come_before():
    """As in GoldenGate."""
    params = read(GOOD + "MAP s.a, TARGET q.b;\nMAPEXCLUDE s.x*;\n")
    rule = find_rule(params.maps, params.excludes, "s", "a")
    assert rule is not None
    assert rule.target.fill("s", "a") == ("p", "a")
    assert rule.where == "rep1.prm:3"
    assert find_rule(params.maps, params.excludes, "s", "xyz") is None
    assert find_rule(params.maps, params.excludes, "other", "a") is None


def test_columns_by_name():
    """Computed target columns are left out, other target columns are extras, a missing one is named with the MAP."""
    (rule,) = read(GOOD).maps
    source = TableDef("s", "t", (Column("id", "int", "int", True), Column("a", "t", "t"), Column("g", "t", "t")))
    columns = (
        TargetColumn("note", "text"), TargetColumn("g", "text", generated=True), TargetColumn("a", "text"),
        TargetColumn("id", "bigint"),
    )  # fmt: skip
    target = TargetTable("p", "t", columns, (frozenset(["id"]),))
    plan = plan_table(rule, source, target)
    assert (plan.pick, plan.key, plan.integer_key) == ((0, 1), (0,), True)
    assert (plan.layout.columns, plan.layout.extras, plan.layout.arbiter) == (("id", "a"), ("note",), True)
    with pytest.raises(OperatorError, match=r"rep1\.prm:3: MAP s\.t: target table p\.t lacks column a"):
        plan_table(rule, source, TargetTable("p", "t", (*columns[:2], columns[3])))
    with pytest.raises(OperatorError, match="computes key column id"):
        plan_table(rule, source, TargetTable("p", "t", (TargetColumn("id", "int", True), *columns[:3])))
