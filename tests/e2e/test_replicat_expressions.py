"""Expressions as Spark takes them: @functions by GoldenGate's documented results, names, types, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replicat.batches.engine import SparkEngine
from replicat.maps.expressions import sparknames
from replicat.maps.expressions.compiling import Compiler
from replicat.maps.expressions.functions import FUNCTIONS
from replicat.model.plan import MapProgram, Slot, TablePlan
from replicat.model.programs import Programs, programs
from replicat.model.target import Layout
from replicat.work.evaluate import evaluate
from replicat.work.mapped import RowMapper
from replicat.work.roles import NOTHING, ChangeFacts
from tests.support.documented import DOCUMENTED, ROW, TABLE, TYPES
from trails.errors import OperatorError
from trails.position import Position
from trails.record import MISSING, Column, TableDef, Value

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.xdist_group("spark")]

WHERE = "dirprm/REP1.prm:7"
FACTS = ChangeFacts("0/1A2B", "741", 1_709_251_199_500_000, Position(3, 4096), 2)


@pytest.fixture(scope="module")
def sql(spark_engine: SparkEngine) -> Any:
    return spark_engine.sql


HOSTILE = "`\"'\\\x1f\x00\n\r\t\x1b -;()/*@$.,0a\u00e4\U0001f600\u2028"


@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    names=st.lists(
        st.text(st.sampled_from(HOSTILE) | st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
        min_size=1, max_size=10, unique=True,
    )
)  # fmt: skip
def test_no_name_of_a_column_leaves_its_quotes(sql: Any, names: list[str]):
    """Whatever a source calls its columns: each name stands for its own column, in either kind of quotes."""
    columns = (Column("id", "integer", "integer", True), *(Column(name, "decimal", "numeric") for name in names))
    definition = TableDef("s", "odd", columns)
    quoted_ = [('"' + name.replace('"', '""') + '"', "`" + name.replace("`", "``") + "`") for name in names]
    compiler = Compiler(sql, definition)
    slots = [
        Slot("column", 0),
        compiler.slot(" || '/' || ".join(f"{two} || before.{back}" for two, back in quoted_), WHERE, "COLMAP x"),
        compiler.slot(" + ".join(f"{two} + {back}" for two, back in quoted_), WHERE, "COLMAP x"),
        *(compiler.slot(back, WHERE, "COLMAP x") for _, back in quoted_),
    ]
    row = ["7", *(f"{number}.50" for number in range(len(names)))]
    layout = Layout("t", "x", tuple(map(str, range(len(slots)))), ("text",) * len(slots), ("0",))
    program = MapProgram(tuple(slots), tuple(compiler.expressions), source_key=(0,))
    plan = TablePlan("s.odd", "t.x", layout, (0,), columns=tuple(c.name for c in columns), mapping=program)
    found = Programs(programs([plan]))
    ask, _ = RowMapper(plan, found).asks(3, row, row)
    (result,) = evaluate(sql, found, [ask.role.operands(ask.image, ask.before, FACTS, ask.mask)])
    made = ask.role.known(ask, result, FACTS).row
    total = sum(2 * number + 1 for number in range(len(names)))
    assert list(made[1:]) == ["/".join(value * 2 for value in row[1:]), str(total), *row[1:]]


def values(
    sql: Any, texts: Sequence[str], op: int = 2, old: dict[str, Value] | None = None, **columns: Value
) -> list[Value]:
    """What expressions give for ROW with these columns changed.

    `op` 2: the row is inserted, 3: updated (from `old`, if given), 4: deleted.
    """
    compiler = Compiler(sql, TABLE, group="REP1")
    slots = (Slot("column", 0), *(compiler.slot(text, WHERE, "COLMAP x") for text in texts))
    names = ("id", *(f"x{i}" for i in range(len(texts))))
    program = MapProgram(slots, tuple(compiler.expressions), insert_deletes=True, source_key=(0,))
    layout = Layout("t", "x", names, ("text",) * len(names), ("id",))
    plan = TablePlan("sales.people", "t.x", layout, (0,), columns=tuple(TYPES), mapping=program)
    found = Programs(programs([plan]))
    after = [(ROW | columns)[name] for name in TYPES]
    before = None if old is None else [(ROW | old)[name] for name in TYPES]
    ask, _ = RowMapper(plan, found).asks(op, after, before)
    (result,) = (
        evaluate(sql, found, [ask.role.operands(ask.image, ask.before, FACTS, ask.mask)])
        if ask.evaluates
        else [NOTHING]
    )
    return list(ask.role.known(ask, result, FACTS).row[1:])


def value(sql: Any, text: str, op: int = 2, old: dict[str, Value] | None = None, **columns: Value) -> Value:
    """What one expression gives."""
    return values(sql, [text], op, old, **columns)[0]


def refused(sql: Any, text: str, *, condition: bool = False) -> str:
    """The message at plan time."""
    compiler = Compiler(sql, TABLE, group="REP1")
    with pytest.raises(OperatorError) as caught:
        (compiler.condition if condition else compiler.slot)(text, WHERE, "COLMAP x")
    return caught.value.message


def test_functions_give_what_goldengate_documents(sql: Any, monkeypatch: pytest.MonkeyPatch):
    """Each @function, translated and evaluated by Spark."""
    monkeypatch.setenv("TG_TEST_EXPRESSION", "it's \\ here")
    texts = [text for text, _ in DOCUMENTED]
    assert dict(zip(texts, values(sql, texts), strict=True)) == dict(DOCUMENTED)


def test_every_function_is_shown_here():
    """Nothing in the table without an example that was evaluated; RANGE, DATENOW and BEFORE have tests of their own."""
    shown = " ".join(text for text, _ in DOCUMENTED)
    apart = {"RANGE", "DATENOW", "BEFORE", "BEFOREAFTER"}
    assert [name for name in FUNCTIONS if f"@{name} " not in shown and name not in apart] == []


def test_functions_of_two_images(sql: Any):
    """BEFORE and BEFOREAFTER on insert, update and delete; a column that is not there."""
    assert value(sql, "@BEFORE (first)") is None
    assert value(sql, "@STRUP (@BEFORE (first))", 3, {"first": "Ann"}) == "ANN"
    assert value(sql, "@BEFORE (first)", 4) == "Jane"
    assert value(sql, "@BEFOREAFTER (first)") == "Jane"
    assert value(sql, "@BEFOREAFTER (first)", 3, {"first": "Ann"}) == "Ann"
    assert value(sql, "@BEFOREAFTER (first)", 3, {"first": MISSING}) == "Jane"
    assert value(sql, "before.first <=> after.first", 3, {"first": "Ann"}) == "false"


def test_missing_columns(sql: Any):
    """An expression over a missing column is missing, unless it tests for that; COLSTAT(MISSING) leaves out."""
    gone = {"first": MISSING, "last": MISSING}
    assert value(sql, "upper(first)", 4, **gone) is MISSING
    assert value(sql, "first", 4, **gone) is MISSING
    assert value(sql, "@IF (@COLTEST (first, MISSING), 'none', first)", 4, **gone) == "none"
    assert value(sql, "@VALONEOF (first, last, phone)", 4, **gone) == "4155551212"
    assert value(sql, "@COLTEST (first, PRESENT)", 4, **gone) == "false"
    assert value(sql, "@COLSTAT (MISSING)", 3) is MISSING
    assert value(sql, "@IF (amount > 0, @COLSTAT (MISSING), first)", 3) is MISSING
    assert value(sql, "@IF (amount < 0, @COLSTAT (MISSING), first)", 3) == "Jane"
    assert value(sql, "@CASE (first, 'Jane', @COLSTAT (MISSING), 'x', @COLSTAT (NULL), first)", 3) is MISSING
    assert value(sql, "@EVAL (amount < 0, 'x', @COLSTAT (NULL))", 3) is None


def test_range_parts_a_table(sql: Any):
    """Each row belongs to exactly one part, whichever group asks."""
    for key in ("1", "2", "77"):
        assert sorted(str(value(sql, f"@RANGE ({part}, 3)", id=key)) for part in (1, 2, 3)) == [
            "false",
            "false",
            "true",
        ]
    assert value(sql, "@RANGE (1, 1, last, first)") == "true"


def test_date_now(sql: Any):
    """GoldenGate's form."""
    import re

    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", str(value(sql, "@DATENOW ()")))
    assert value(sql, "year(current_timestamp) > 2000 AND current_date IS NOT NULL") == "true"
    assert int(str(value(sql, "@GETENV ('JULIANTIMESTAMP')"))) > 212_000_000_000_000_000


VALUES = [
    ("id + 1", "8"),
    ("n + 1", "9007199254740994"),
    ("s", "-3"),
    ("amount", "12.50"),
    ("amount + 0.005", "12.505"),
    ("wide", "123.4500"),
    ("wide * 2", "246.9"),
    ("r * 2", "3"),
    ("d * 1", "1e+16"),
    ("CAST(1.25e-7 AS FLOAT)", "1.25e-07"),
    ("CAST('NaN' AS DOUBLE)", "NaN"),
    ("CAST('-Infinity' AS DOUBLE)", "-Infinity"),
    ("NOT flag", "false"),
    ("raw", b"\x01\xff"),
    ("concat(raw, raw)", b"\x01\xff\x01\xff"),
    ("date_add(day, 1)", "2024-03-01"),
    ("at + INTERVAL 1 SECOND", "2024-03-01 00:00:00.5"),
    ("date_trunc('DAY', atz)", "2024-02-29 00:00:00+00"),
    ("atz + INTERVAL 500 MILLISECONDS", "2024-03-01 00:00:00+00"),
    ("DATE'-0043-03-15'", "0044-03-15 BC"),
    ("DATE'+12345-01-01'", "12345-01-01"),
    ("TIMESTAMP'0000-01-02 03:04:05Z'", "0001-01-02 03:04:05+00 BC"),
    ("NULL", None),
    ("CAST(NULL AS INT)", None),
    ("'it''s'", "it's"),
    ("-012.50", "-12.50"),
    ("true", "true"),
    ("get_json_object(doc, '$.a')", "1"),
    ("to_json(named_struct('a', id))", '{"a":7}'),
    ("aggregate(transform(array(1, 2), x -> x + id), 0, (a, x) -> a + x)", "17"),
    ('"Odd Name"', "odd"),
    ("`Odd Name` || '!'", "odd!"),
    ("Case", "one"),
    ("CASE", "two"),
    ('upper("CASE")', "TWO"),
    ('"before"', "b"),
    ("change || `before`", "cb"),
    ("before.id", None),
    ("AMOUNT", "12.50"),
    ("after.First || 'x'", "Janex"),
    ("change.operation || change.index", "INSERT2"),
    ("change.csn", "0/1A2B"),
    ("change.commit_time", "2024-02-29 23:59:59.5+00"),
    ("change.commit_time + INTERVAL 1 DAY", "2024-03-01 23:59:59.5+00"),
    ("change.position", "3/4096"),
    ("change.schema || '.' || change.table", "sales.people"),
    ("change.schema", "sales"),
    ("token.`TK-HOST`", "host1"),
    ("extract(YEAR FROM day)", "2024"),
    ("id -- as it is", "7"),
    ("id /* ' */ + 1", "8"),
]


def test_values_and_names(sql: Any):
    """Results come back as docs/values.md has them; names are columns in any case, structs, facts."""
    texts = [text for text, _ in VALUES]
    assert dict(zip(texts, values(sql, texts), strict=True)) == dict(VALUES)


EXACT = [
    ("@STREQ (wide, '123.4500')", "1"),
    ("@STRCAT ('n=', wide)", "n=123.4500"),
    ("@STRNUM (wide, RIGHTZERO, 10)", "00123.4500"),
    ("@STRLEN (wide)", "8"),
    ("@STREXT (wide, 5, 8)", "4500"),
    ("@STRFIND (wide, '.4')", "4"),
    ("@IF (wide > 1, wide, 'small')", "123.4500"),
    ("@IF (wide < 1, wide, 'small')", "small"),
    ("@IF (wide, 'yes', 'no')", "yes"),
    ("@IF (s + 3, 'yes', 'no')", "no"),
    ("@IF (amount, 'yes', 'no') || @IF (amount - '12.50', 'yes', 'no') || @IF (d, 'yes', 'no')", "yesnoyes"),
    ("@EVAL (wide - 123.45, 'yes', amount, 'amount')", "amount"),
    ("@CASE (wide, '123.45', 'equal', 'other')", "equal"),
    ("@CASE (wide, 123.45, wide, 'other')", "123.4500"),
    ("@VALONEOF (wide, amount)", "123.4500"),
    ("@VALONEOF (@COLSTAT (NULL), wide, 'none')", "123.4500"),
    ("@STRCAT ('n=', @IF (wide > 1, wide, 0))", "n=123.4500"),
    ("@STRCAT ('n=', @COMPUTE (wide * 2))", "n=246.9"),
    ("@STRCAT ('n=', @NUMSTR ('1.50'))", "n=1.5"),
    ("concat('n=', wide)", "n=123.4500"),
    ("'n=' || amount", "n=12.50"),
    ("wide || '/' || wide * 2 || '/' || (amount + 1) || '/' || d * 1 || '/' || r", "123.4500/246.9/13.5/1E16/1.5"),
    ("CAST(wide AS STRING) || CAST(amount * 3 AS DECIMAL(10,2))", "123.450037.50"),
    ("CAST(amount * 4 AS DECIMAL(10,2))", "50.00"),
    ("CAST(wide AS DECIMAL(10,1)) || ''", "123.5"),
    ("upper(d) || d", "1E+161e+16"),
    ("coalesce(wide, 0)", "123.4500"),
    ("coalesce(before.wide, 0)", "0"),
    ("coalesce(before.wide, amount * 2, 0)", "25"),
    ("CASE WHEN id > 1 THEN wide WHEN id > 0 THEN amount ELSE d END", "123.4500"),
    ("IF(id > 1, atz, before.atz)", "2024-02-29 23:59:59.5+00"),
    ("atz || '|' || at || '|' || day", "2024-02-29 23:59:59.5+00|2024-02-29 23:59:59.5|2024-02-29"),
    ("wide = '123.45'", "true"),
    ("wide IN ('123.45', 3)", "true"),
    ("wide + '0.55'", "124"),
    ("id * 1000000000 * id", "49000000000"),
    ("n * n", "81129638414606699710187514626049"),
    ("id / 2", "3.5"),
    ("n / 1", "9007199254740993"),
    ("(n + 1) / id", "1286742750677284.857142857142857143"),
    ("s + id - n", "-9007199254740989"),
    ("substring(phone, id + 1, 2)", "21"),
    ("substring(phone, id + 1, 2) || id * 1000000000", "217000000000"),
    ("aggregate(array(1, 2), id * 1, (a, x) -> a + x)", "10"),
    ("wide * wide", "15239.9025"),
    ("wide * amount * id", "10801.875"),
    ("wide + wide * wide * wide", "1881489.413625"),
    ("round(wide * 1.1, 2)", "135.8"),
    ("wide BETWEEN '1' AND 200", "true"),
    ('"n`\x1f1\x1f""\'" * id || `n``\x1f1\x1f"\'`', "87.512.5"),
    ('upper("Case") || "CASE" || Case', "ONEtwoone"),
    # What is no column is wide enough too.
    ("coalesce(id, 0) * 1000000000", "7000000000"),
    ("@COMPUTE (@VALONEOF (id, 0) * 1000000000)", "7000000000"),
    ("@IF (id > 1, id, 0) * 1000000000 + @STRLEN (first)", "7000000004"),
    ("100000 * 100000 + CAST(id AS INT) * 1000000000", "17000000000"),
    ("coalesce(n, 0) / 1", "9007199254740993"),
    ("1 / 3", "0.333333333333333333"),
    ("coalesce(id, 0) / 3 * (coalesce(n, 0) / 7)", "3002399751151416.749774237761904762"),
    ("@NUMSTR ('12.5') * @NUMSTR ('12.5') * wide", "19289.0625"),
    ("round(huge / 3, 4)", "4.3333"),
    ("date_add(day, @STRLEN (first) + id)", "2024-03-11"),
    ("format_string('%03d', id * 2)", "014"),
    # Texts made of several.
    ("format_string('%s %s', wide, at)", "123.4500 2024-02-29 23:59:59.5"),
    ("array_join(array(wide, amount), '/')", "123.4500/12.50"),
]


def test_numbers_and_times_keep_the_source_s_own_digits(sql: Any):
    """Text of a column is the source's text; what is computed is exact; a number counts as a condition."""
    texts = [text for text, _ in EXACT]
    assert dict(zip(texts, values(sql, texts), strict=True)) == dict(EXACT)


def test_numbers_of_any_size_pass_where_nothing_is_computed(sql: Any):
    """More digits than any decimal of Spark's has, NaN, infinity: as text they are what they are."""
    for number in ("0." + "1" * 60, "9" * 60 + ".5", "NaN", "-Infinity", "-0.0000000000000000000000001"):
        made = values(sql, ["@STRCAT ('<', wide, '>')", "coalesce(wide, 0)", "@IF (id, wide, 'x')"], wide=number)
        assert made == [f"<{number}>", number, number]
    assert value(sql, "day || at", day="infinity", at="2024-02-29 23:59:59.123456789") == (
        "infinity2024-02-29 23:59:59.123456789"
    )
    assert value(sql, "'<' || raw || '>'", raw="é".encode()) == "<é>"


def test_what_cannot_be_computed_exactly_fails_its_row(sql: Any):
    """Never rounded without a word: the message has the value and what there is room for."""
    from replicat.work.evaluate import EvaluationError

    for text, columns in (
        ("wide + 1", {"wide": "0." + "1" * 19}),
        ("wide * 2", {"wide": "9" * 21}),
        ("wide * wide", {"wide": "0.1234567891"}),
        ("wide * wide", {"wide": "99999999999"}),
        ("n * n * n", {"n": "9" * 18}),
        ("@NUMSTR (first)", {"first": "0." + "1" * 19}),
        ("@NUMSTR (first)", {"first": "1e-30"}),
        ("@NUMSTR (first) * @NUMSTR (first)", {"first": "0.1234567891"}),
        ("huge / 3", {"huge": "9" * 21}),
        ("abs(n) * abs(n) * abs(n)", {"n": "9" * 18}),
        ("wide = first", {"first": "0." + "1" * 19}),
        ("wide + 1", {"wide": "NaN"}),
        ("at + INTERVAL 1 DAY", {"at": "2024-02-29 23:59:59.1234567"}),
        ("'x' || raw", {"raw": b"\xff"}),
    ):
        with pytest.raises(EvaluationError) as caught:
            value(sql, text, **columns)
        assert "spark.sql" not in str(caught.value)
    assert value(sql, "wide + 1", wide="0." + "1" * 18 + "000") == "1." + "1" * 18
    assert value(sql, "at + INTERVAL 1 DAY", at="2024-02-29 23:59:59.123456000") == "2024-03-01 23:59:59.123456"


def test_old_dates_and_odd_values_as_operands(sql: Any):
    """Years before Christ go in and out; bytes in a text column don't break anything."""
    assert value(sql, "date_add(day, 1)", day="0044-03-15 BC") == "0044-03-16 BC"
    assert value(sql, "at", at="infinity") == "infinity"
    assert value(sql, "upper(first)", first=None) is None
    assert (
        value(sql, "abs(wide)", wide="12345678901234567890.123456789012345678")
        == "12345678901234567890.123456789012345678"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("amout * 2", "there is no column amout; did you mean amount?"),
        ("cAsE || 'x'", 'cAsE may be "Case", "CASE": name it exactly'),
        ("CAST(huge AS DECIMAL(38,0)) / 3", "a division keeps 2 digits behind the point: CAST to fewer"),
        ("before.nam || 'x'", "there is no column nam; there are"),
        ("change.scn", "change has no scn; it has operation, csn, xid, commit_time, position, index, schema, table"),
        ("token.x", "the trail has no token x for this table; there are TK-HOST"),
        ("lasterr.dberrmsg", "lasterr is known in MAPEXCEPTION and EXCEPTIONSONLY alone"),
        ("people.id", "there is no people.id; expected a column's name, or one of before, after, change, token"),
        ("array(id)", "a result of type array<int> has no place in a column; use to_json(...)"),
        ("map('a', id)", "use to_json(...)"),
        ("at - atz", "use CAST(... AS STRING)"),
        ("nosuch(id)", "[UNRESOLVED_ROUTINE] Cannot resolve routine `nosuch`"),
        ("first +", "[PARSE_SYNTAX_ERROR]"),
        ("date_add(first)", "[WRONG_NUM_ARGS"),
        ("flag + 1", '[DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES] Cannot resolve "(flag + 1)"'),
        ("@IF (first, 1, 2)", "expected a condition or a number, found a text"),
        ("concat('\x1f0\x1f', first)", "there is a control character in it"),
        ("(SELECT 1)", "a subquery reads other rows"),
        ("id IN (SELECT 1)", "a subquery reads other rows"),
        ("sum(id)", "it takes several rows together, or makes several of one"),
        ("explode(array(1, 2))", "it takes several rows together, or makes several of one"),
        ("row_number() OVER (ORDER BY id)", "a window function reads other rows"),
        ("concat(*)", "* stands for several columns"),
        ("id) FROM x --", "expected no ) here"),
        ("@STRCATT (first)", "there is no function @STRCATT; did you mean STRCAT?"),
        ("@STREXT (first, 1)", "@STREXT: expected (text, first, last), found 2 arguments"),
    ],
)
def test_a_wrong_expression_names_its_place(sql: Any, text: str, message: str):
    """File and line, keyword, the expression, and what is wrong with it: before any row."""
    found = refused(sql, text)
    assert found.startswith(f"{WHERE}: COLMAP x: ")
    assert message in found


def test_the_names_told_without_spark_are_those_of_this_spark(sql: Any):
    """Each function, and each word of its language: a list that is not Spark's own would refuse what is right."""
    names = [row[0] for row in sql.session.sql("SHOW FUNCTIONS").collect()]
    words = {row[0].lower() for row in sql.session.sql("SELECT keyword FROM sql_keywords()").collect()}
    assert {name for name in names if name.isidentifier()} == sparknames.FUNCTIONS
    assert words - sparknames.FUNCTIONS == sparknames.WORDS
    assert sql.session.version == sparknames.RELEASE


def test_a_condition_must_be_one(sql: Any):
    """WHERE and FILTER; numbers of @functions count as in GoldenGate."""
    assert "expected a condition, found a value of type bigint" in refused(sql, "id + 1", condition=True)
    assert "expected a condition, found a value of type text" in refused(sql, "first", condition=True)
    compiler = Compiler(sql, TABLE)
    for text in (
        "amount > 0",
        "flag",
        "@STREQ (first, 'x')",
        "first = @PRESENT AND last <> @NULL",
        "@RANGE (1, 2)",
        "amount = @ABSENT",
    ):
        compiler.condition(text, WHERE, "FILTER")
    with pytest.raises(OperatorError, match=r"@COLSTAT \(MISSING\) is a value"):
        compiler.condition("@COLSTAT (MISSING)", WHERE, "FILTER")


def test_what_needs_no_spark_needs_none():
    """Names, literals, numbers, NULL and plain facts; everything else says that Spark is not there."""
    compiler = Compiler(None, TABLE, group="REP1")
    for text in (
        "first",
        '"Odd Name"',
        "before.first",
        "after.first",
        "'x'",
        "1.50",
        "NULL",
        "change.csn",
        "token.`TK-HOST`",
        "@TOKEN ('TK-HOST')",
        "@GETENV ('TRANSACTION', 'CSN')",
        "@GETENV ('GGENVIRONMENT', 'HOSTNAME')",
    ):
        assert compiler.slot(text, WHERE, "COLMAP x").kind != "expr"
    assert compiler.expressions == []
    with pytest.raises(OperatorError, match="it needs Spark"):
        compiler.slot("first || last", WHERE, "COLMAP x")
