"""@functions as text: nesting, conditions, and what is wrong with one. What they give is shown on Spark, in e2e."""

from __future__ import annotations

import pytest

from replicat.maps.expressions.functions import parse, translate
from trails.errors import ParamError

WHERE = "dirprm/REP1.prm:7"


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("a + 1", "a + 1"),
        ("  @STRUP(a)  ", "upper(CAST(a AS STRING))"),
        ("@STRUP (@STRTRIM (a)) || 'x@y'", "upper(CAST(trim(CAST(a AS STRING)) AS STRING)) || 'x@y'"),
        ("@strcat ('a,b', \"c)d\", `e(f`)", "concat('a,b', CAST(\"c)d\" AS STRING), CAST(`e(f` AS STRING))"),
        ("@COMPUTE (a * (b - 1))", "(a * (b - 1))"),
        ("array(a)[@STRLEN (b)]", "array(a)[length(CAST(b AS STRING))]"),
        ("r'\\d' || '\\'' || 'it''s'", "r'\\d' || '\\'' || 'it''s'"),
        ("@IF (a, 'x', b)", "CASE WHEN CAST((a) AS /*condition*/ BOOLEAN) THEN 'x' ELSE CAST(b AS STRING) END"),
        ("@IF (a, 1, b)", "CASE WHEN CAST((a) AS /*condition*/ BOOLEAN) THEN 1 ELSE b END"),
        ("@TOKEN ('TK`1')", "token.`TK``1`"),
        ("@GETENV ('transaction', 'csn')", "change.csn"),
    ],
)
def test_translation(text: str, sql: str):
    """Everything that is no @function passes as it is."""
    assert translate(text, WHERE) == sql


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("@STRLEN (a)", "CAST((length(CAST(a AS STRING))) AS BOOLEAN)"),
        ("(@STRLEN (a)) AND NOT b", "(CAST((length(CAST(a AS STRING))) AS BOOLEAN)) AND NOT b"),
        ("@STRLEN (a) > 3 OR b", "length(CAST(a AS STRING)) > 3 OR b"),
        ("a = @PRESENT", "((NOT gg_missing(a) AND a IS NOT NULL))"),
        ('"A b" <> @NULL', '(NOT ((NOT gg_missing("A b") AND "A b" IS NULL)))'),
    ],
)
def test_conditions(text: str, sql: str):
    """In GoldenGate a number is a condition, and WHERE has tests of its own."""
    assert translate(text, WHERE, condition=True) == sql


def test_a_column_that_is_left_out():
    """COLSTAT(MISSING) is told apart from the value, through IF, CASE and EVAL."""
    assert parse("@COLSTAT (MISSING)", WHERE).left_out == "true"
    made = parse("@IF (a, @EVAL (b, @COLSTAT (MISSING), 1), c)", WHERE)
    a, b = (f"CASE WHEN CAST(({name}) AS /*condition*/ BOOLEAN) THEN" for name in "ab")
    assert made.sql == f"{a} {b} NULL ELSE 1 END ELSE c END"
    assert made.left_out == f"{a} {b} true ELSE false END ELSE false END"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected an expression, found nothing"),
        ("'abc", "expected a closing ', found the end of: 'abc"),
        ('"abc', 'expected a closing ", found the end of: "abc'),
        ("(a", "expected ), found the end of: (a"),
        ("a]", "expected no ] here, in: a]"),
        ("@STRCATT (a)", "there is no function @STRCATT; did you mean STRCAT?"),
        ("@GETVAL (a)", "@GETVAL is not supported: there is no SQLEXEC"),
        ("@STRCAT", "@STRCAT: expected (text, text [, ...]) behind it"),
        ("@STRUP ()", "@STRUP: expected (text), found 0 arguments"),
        ("@IF (a, b)", "@IF: expected (condition, value, otherwise), found 2 arguments"),
        ("@IF (a,, b)", "@IF: expected an argument between the commas, found nothing"),
        ("@STRSUB (a, 'x', 'y', 'z')", "@STRSUB: expected a text, then pairs"),
        ("@STRNCAT (a, 1, b)", "@STRNCAT: expected pairs of a text and a length, found b"),
        ("@STRNUM (a, LEFTY)", "@STRNUM: expected LEFT, LEFTSPACE, RIGHT or RIGHTZERO, found LEFTY"),
        ("@STRNUM (a, RIGHT)", "@STRNUM: expected a length behind RIGHT, found RIGHT"),
        ("@COLTEST (a + 1, NULL)", "@COLTEST: expected a column's name, found a + 1"),
        ("@COLTEST (a, ABSENT)", "@COLTEST: expected PRESENT, MISSING, NULL, INVALID, found ABSENT"),
        ("@COLSTAT (INVALID)", "@COLSTAT: expected NULL or MISSING"),
        ("@STRUP (@COLSTAT (MISSING))", "must be a whole value, or a result of @IF, @CASE or @EVAL"),
        ("@RANGE (4, 3)", "@RANGE: expected two whole numbers, part of how many"),
        ("@DATE (a, 'YYYY', b)", "@DATE: expected a format as 'literal', such as 'YYYY-MM-DD HH:MI:SS', found a"),
        ("@DATE ('QQ', 'YYYY', b)", "@DATE: expected a format of YYYY, YY"),
        ("@DATE ('YYYY', 'YYYYJUL', b)", "@DATE: expected JUL, JTS or CDATE alone"),
        ("@DATEDIFF ('MM', a, b)", "@DATEDIFF: expected 'DD' or 'SS', found 'MM'"),
        ("@GETENV ('TRANSACTION', 'CSM')", "one of TRANSACTIONID, XID, CSN; did you mean CSN?"),
        ("@GETENV ('LAGG')", "@GETENV: expected one of TRANSACTION, GGHEADER"),
        ("a > @NULL", "@NULL: expected it behind a column and = or <>"),
    ],
)
def test_mistakes(text: str, message: str):
    """File and line, the function, what was expected and found."""
    with pytest.raises(ParamError) as caught:
        translate(text, WHERE, condition=True)
    assert caught.value.message.startswith(f"{WHERE}: ")
    assert message in caught.value.message
