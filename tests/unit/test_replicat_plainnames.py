"""Names in expressions, told at START before Spark is there: a wrong one by name, a right one never taken for wrong."""

from __future__ import annotations

import pytest

from replicat.batches.planning import Planning
from replicat.maps.columns import MapErrors
from replicat.maps.expressions import sparknames
from replicat.maps.expressions.compiling import Compiler
from replicat.maps.expressions.plainnames import plain_calls, plain_names
from replicat.params import ReplicatParams
from tests.e2e.test_replicat_expressions import DOCUMENTED, EXACT, TABLE, VALUES
from tests.support.list_target import ListTarget, Store, shape
from tests.support.replicat_trail import TrailFeed, table
from trails.errors import OperatorError
from trails.position import TrailName
from trails.record import Op
from trails.runtime.language.params import parse_text
from trails.testing import FaultFs

KNOWN = sparknames.FUNCTIONS | sparknames.OURS


@pytest.mark.parametrize("text", sorted({str(case[0]) for case in (*DOCUMENTED, *VALUES, *EXACT)}))
def test_what_spark_takes_is_never_refused_without_it(text: str) -> None:
    """Every expression that the tests of Spark evaluate."""
    Compiler(None, TABLE, group="REP1").look_at_names(text, "rep1.prm:7", "COLMAP x", known=KNOWN)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("first || ' ' || last", ["first", "last"]),
        ("CAST(id AS DECIMAL(10, 2)) + id::int", ["id", "id"]),
        ("DATE '2024-01-01' + INTERVAL '1' DAY", []),
        ("extract(DOW FROM day)", []),  # day is a word of the language too: left to Spark
        ('"Odd Name" || `Case`', ["Odd Name", "Case"]),
        ("transform(array(id), x -> x + 1)", []),
        ("mask(first, upperChar => 'Q')", ["first"]),
        ("to_json(parse_json(first):a.b)", ["first"]),
        ("before.first = 'it''s -- no comment' /* nor this */", ["before.first"]),
        ("1.5e3 + 2L + x'1F'", []),
    ],
)
def test_names_of_a_text(text: str, names: list[str]) -> None:
    """Columns, and nothing that only looks like one."""
    assert [".".join(parts) for parts in plain_names(text)] == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Upper(first) || lower (last)", ["Upper", "lower"]),
        ("CAST(amount AS DECIMAL(10, 2)) + id::decimal(9)", ["CAST"]),
        ("my.own(id) + system.builtin.abs(id)", []),
        ("id IN (1, 2) AND (n > 1)", ["IN", "AND"]),
        ("transform(array(id), x -> uper(x))", []),  # left to Spark
        ("'uper(1)' || first -- uper(1)", []),
    ],
)
def test_functions_of_a_text(text: str, names: list[str]) -> None:
    """Words of the language among them; no types, nothing of a catalog."""
    assert plain_calls(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "TIMESTAMPADD(DAY, 1, at)",
        "EXTRACT(YEAR FROM day)",
        "if(flag, 1, 2)",
        "first LIKE ANY ('a', 'b')",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY n)",
    ],
)
def test_what_only_the_grammar_knows_is_left_to_spark(text: str) -> None:
    """Never taken for a wrong name."""
    Compiler(None, TABLE, group="REP1").look_at_names(text, "rep1.prm:7", "COLMAP x", known=KNOWN)


def test_where_another_spark_runs_its_functions_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extension, a catalog, another release: then Spark alone says what there is."""
    assert sparknames.functions((("spark.executor.cores", "2"),)) == KNOWN
    assert not sparknames.functions((("spark.sql.extensions", "my.Functions"),))
    monkeypatch.setattr(sparknames, "RELEASE", "4.0.0")
    assert not sparknames.functions()
    monkeypatch.undo()
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert not sparknames.functions()
    Compiler(None, TABLE, group="REP1").look_at_names("uper(first)", "rep1.prm:7", "COLMAP x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("amout * 2", "there is no column amout; did you mean amount?"),
        ("before.nam || 'x'", "there is no column nam; there are"),
        ("change.scn", "change has no scn"),
        ("token.x", "the trail has no token x"),
        ("people.id", "there is no people.id"),
        ("upper(frist)", "there is no column frist; did you mean first?"),
        ("@STRCATT (first)", "there is no function @STRCATT; did you mean STRCAT?"),
        ("uper(first)", "there is no function uper; did you mean upper?"),
        ("@STRCAT (first, `inicap` (last))", "there is no function inicap; did you mean initcap?"),
        ("decode(first, 'a', nosuchthing(last))", "there is no function nosuchthing"),
    ],
)
def test_a_wrong_name_is_told_without_spark(text: str, message: str) -> None:
    """In the words in which Spark's own analysis is told."""
    with pytest.raises(OperatorError) as caught:
        Compiler(None, TABLE, group="REP1").look_at_names(text, "rep1.prm:7", "COLMAP x", known=KNOWN)
    assert str(caught.value).startswith("rep1.prm:7: COLMAP x: ")
    assert message in str(caught.value)


def test_start_tells_wrong_names_before_spark_is_started() -> None:
    """Every one of them, with file and line; nobody asks for Spark."""
    fs, trail = FaultFs(), TrailName("/home/dirdat", "rt")
    feed = TrailFeed(fs, trail)
    feed.tx((Op.INSERT, table("s", "kv", "id v", "id"), ["1", "a"]))
    maps = "MAP s.kv, TARGET s.kv, FILTER (idd > 1), COLMAP (id = uper(id), v = upper(w));"
    text = f"REPLICAT rep1\nTARGETDB postgresql://x/y\n{maps}\n"
    params = ReplicatParams.from_statements(parse_text(text, "rep1.prm"))

    def spark() -> None:
        raise AssertionError("Spark was asked for")

    planning = Planning(params, ListTarget(Store(), [shape("s", "kv", "id v")]), spark)
    with pytest.raises(MapErrors) as caught:
        planning.check_start(fs, trail, None, b"")
    told = " ".join(str(error) for error in caught.value.errors)
    assert "rep1.prm:3: FILTER" in told
    assert "there is no column idd" in told
    assert "there is no column w" in told
    assert "there is no function uper; did you mean upper?" in told
    feed.close()
