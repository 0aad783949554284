"""WHERE and FILTER of TABLE: what is read, what a row answers, and what is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest

from extract.params import ExtractParams
from pump.params import PumpParams
from trails.codec import binary
from trails.conditions import bind
from trails.errors import OperatorError, ParamError
from trails.record import DELETE, INSERT, MISSING, UPDATE, Column, TableDef
from trails.rowvalues import UnknownError
from trails.runtime.language.params import parse_text
from trails.runtime.language.tableparams import environment

EXTRACT = "EXTRACT e\nSOURCEDB postgresql://h/d\nEXTTRAIL ./dirdat/lt\n"
PUMP = "EXTRACT p\nRMTHOST h, MGRPORT 1\nRMTTRAIL ./dirdat/rt\n"


def rule(option: str) -> Any:
    """What an Extract's TABLE says."""
    return ExtractParams.from_statements(parse_text(f"{EXTRACT}TABLE s.t, {option};", "e.prm")).tables.clauses[0].rule


def answer(text: str, **columns: Any) -> Any:
    """What a row says to a condition; each column as (logical type, value)."""
    table = TableDef("s", "t", tuple(Column(name, kind, "") for name, (kind, _) in columns.items()))
    return bind(rule(f"WHERE ({text})").filters[0].condition, table)([value for _, value in columns.values()])


NUMBERS = ("integer", "bigint", "decimal", "double")


@pytest.mark.parametrize(
    ("kind", "value", "text", "said"),
    [
        *((kind, "10", "a = 10", True) for kind in NUMBERS),
        ("integer", "10", "a > 9", True),
        ("integer", "-10", "a<-9.5", True),
        ("decimal", "12.50", "a = 12.5", True),
        ("decimal", "12.50", "a = '12.5'", True),
        ("decimal", "9007199254740993", "a = 9007199254740992", False),
        ("decimal", "NaN", "a > 1e400", True),
        ("decimal", "NaN", "a = 'NaN'", True),
        ("double", "-Infinity", "a < -1e300", True),
        ("double", "1e+16", "a >= 10000000000000000", True),
        ("double", "-0", "a = 0", True),
        ("real", "0.1", "a = 0.1", True),
        ("boolean", "true", "a = TRUE", True),
        ("boolean", "false", "a <> 'true'", True),
        ("text", "CA", "a = 'CA'", True),
        ("text", b"CA", "a = 'CA'", True),
        ("text", "ca", "a = 'CA'", False),
        ("text", "it's", "a='it''s'", True),
        ("text", "é", "a > 'z'", True),
        ("text", "CA ", "a = 'CA'", False),
        ("char", "CA   ", "a = 'CA'", True),
        ("enum", "new", "a != 'old'", True),
        ("uuid", "0a0a0a0a-0b0b-0c0c-0d0d-0e0e0e0e0e0e", "a = '0A0A0A0A0B0B0C0C0D0D0E0E0E0E0E0E'", True),
        ("date", "2024-02-29", "a < '2024-03-01'", True),
        ("date", "0044-03-15 BC", "a < '0001-01-01'", True),
        ("date", "10000-01-01", "a > '9999-12-31'", True),
        ("date", "infinity", "a > '9999-12-31'", True),
        ("date", "0000-00-00", "a < '0001-01-01'", True),
        ("timestamp", "2024-02-29 23:59:59.5", "a = '2024-02-29 23:59:59.500000'", True),
        ("timestamp", "2024-02-29 00:00:00", "a = '2024-02-29'", True),
        ("timestamptz", "2024-02-29 12:00:00+00", "a >= '2024-02-29 12:00:00'", True),
        ("timestamptz", "0044-03-15 12:00:00+00 BC", "a < '2024-02-29 12:00:00+00'", True),
        ("time", "-838:59:59", "a < '00:00:00'", True),
        ("time", "24:00:00", "a > '23:59:59.999999'", True),
        ("json", None, "a = @NULL", True),
        ("bytes", binary(b"x"), "a <> @NULL", True),
        ("text", None, "a IS NULL", True),
        ("text", "x", "a is not null", True),
        ("text", MISSING, "a = @ABSENT", True),
        ("text", MISSING, "a <> @PRESENT", True),
        ("text", None, "a = @PRESENT", True),
        ("text", None, "a = 'x'", None),
        ("text", None, "NOT a = 'x'", None),
        ("text", None, "a = 'x' OR a = @NULL", True),
        ("text", None, "a = 'x' AND a = @NULL", None),
        ("text", MISSING, "a = @PRESENT AND a = 'x'", False),
        ("text", MISSING, "a = @ABSENT OR a = 'x'", True),
        ("integer", "5", "NOT (a = 4 OR a = 5) OR a=5 AND a<6", True),
        ("integer", "5", "NOT NOT a = 5", True),
    ],
)
def test_what_a_row_answers(kind: str, value: Any, text: str, said: Any) -> None:
    """By the column's logical type, exactly; NULL is unknown, as in SQL."""
    assert answer(text, a=(kind, value)) is said


def test_names_of_columns() -> None:
    """In any case, their exact spelling first; "so" exactly so; a word of the language in quotes is a column too."""
    assert answer(
        'A = 1 AND "Order No" = 2 AND "and" = \'3\' AND def = 4',
        a=("integer", "1"),
        **{"Order No": ("integer", "2")},
        **{"and": ("text", "3"), "def": ("integer", "4")},
    )


@pytest.mark.parametrize("text", ["a = 'x'", "a <> @NULL", "a = 'x' OR a = @ABSENT"])
def test_a_column_that_did_not_come_is_not_guessed(text: str) -> None:
    """Where nothing to the left has decided."""
    with pytest.raises(UnknownError):
        answer(text, a=("text", MISSING))


@pytest.mark.parametrize(("program", "head"), [(ExtractParams, EXTRACT), (PumpParams, PUMP)])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "WHERE (a + 1 > 5)",
            r"WHERE: expected an operator such as =, found '\+'\. TABLE takes column = constant.*MAP takes more",
        ),
        ("FILTER (@NOSUCH (a, 'x') = 'y')", r"TABLE computes no function @NOSUCH\. docs/extract.md has those"),
        ("FILTER (@DATENOW () > 'y')", "@DATENOW: a row that passes now must pass at any time"),
        ("FILTER (@BEFORE (a) = 1)", "@BEFORE: a condition is asked about one row"),
        ("FILTER (@STRCAT ())", "@STRCAT: expected 1 arguments, and 1 more as often as you like, found 0"),
        ("FILTER (@STRSUB (a, 'x', 'y', 'z') = 'y')", "@STRSUB: expected 3 arguments, and 2 more .* found 4"),
        ("FILTER (@STRNUM (a, RIGHT) = '1')", "@STRNUM: expected a length behind RIGHT"),
        ("FILTER (@STRNUM (a, UP, 2) = '1')", "@STRNUM: expected LEFT or LEFTSPACE or RIGHT or RIGHTZERO, found 'UP'"),
        ("FILTER (@DATE ('QQ', 'YY', a) = '1')", "@DATE: expected a format of YYYY, .* in quotes, found 'QQ'"),
        ("FILTER (@DATE ('YY', 'JUL MM', a) = '1')", "@DATE: expected a format of .* found 'JUL MM'"),
        ("FILTER (@DATE (YY, 'YY', a) = '1')", "@DATE: expected a format of .* found 'YY'"),
        ("FILTER (@DATEDIFF ('MM', a, b) = 1)", "@DATEDIFF: expected DD or SS, found 'MM'"),
        ("FILTER (@IF (a, 1, 2) = 1)", "FILTER: expected an operator"),
        ("FILTER (@IF (a = 1, 1) = 1)", "@IF: expected a value, found its end"),
        ("FILTER (@IF (a = 1, 1, 2, 3) = 1)", "@IF: expected its end, found '3'"),
        ("FILTER (@COLTEST (a) = 1)", "@COLTEST: expected a column, and what to test"),
        ("FILTER (@COLTEST (a, THERE) = 1)", "@COLTEST: expected PRESENT or MISSING or NULL or INVALID, found 'THERE'"),
        ("FILTER (" + "@STRUP (" * 150 + "a" + ")" * 150 + " = 'x')", "@STRUP: functions are more than 100 deep"),
        ("FILTER (" + "@IF (" * 30 + "a" + " = 1, 1, 2)" * 30 + " = 1)", "parentheses are more than 100 deep"),
        ("FILTER (" + "(" * 150 + "a = 1" + ")" * 150 + ")", "parentheses are more than 100 deep"),
        ("FILTER (" + "(" * 5000 + "a = 1" + ")" * 5000 + ")", "parentheses 200 deep at most, found more"),
        ("FILTER (@COMPUTE (" + "a + " * 200 + "a) = 1)", "@COMPUTE: expected 150 words at most"),
        ("FILTER (@CASE (a, 1) = 1)", "@CASE: expected a value, found its end"),
        ("FILTER (@STREQ (a, b) =)", "FILTER: expected a value, found its end"),
        ("WHERE (a > @COMPUTE (b + 1))", "such as @COMPUTE|a constant, or @NULL"),
        ("WHERE (@STRFIND (a, 'x') > 0)", "TABLE computes nothing such as @STRFIND here; only FILTER takes"),
        ("FILTER (@STRFIND (a) > 0)", "@STRFIND: expected 2 to 3 arguments, found 1"),
        ("FILTER (@STRLEN ((a)) > 0)", r"@STRLEN: expected a column, found \(\.\.\.\)"),
        ("FILTER (@RANGE (4, 3))", "@RANGE: expected two whole numbers, part of how many"),
        ("FILTER (@RANGE (1, 3, 'a'))", "@RANGE: expected a column, found 'a'"),
        ("FILTER (@COMPUTE (a 2) > 1)", "@COMPUTE: expected \\+, -, \\*, / or the end, found '2'"),
        ("FILTER (@COMPUTE (a +) > 1)", "@COMPUTE: expected a column or a number, found its end"),
        ("FILTER (@COMPUTE (a + 'x') > 1)", "@COMPUTE: expected a column, found 'x'"),
        ("FILTER (a IN (1, 2))", "found 'IN'"),
        ("FILTER (a LIKE 'x%')", "found 'LIKE'"),
        ("FILTER (a BETWEEN 1 AND 2)", "found 'BETWEEN'"),
        ("WHERE (5 = a)", "expected a column, found '5'"),
        ("WHERE (a = b)", "expected a constant, as 'text' or a number, found 'b'"),
        ("WHERE (a = 1 b = 2)", "expected AND, OR or the end, found 'b'"),
        ("WHERE (a =)", "expected a constant, found its end"),
        ("WHERE (a)", "expected an operator"),
        ("WHERE (AND a = 1)", "expected a column, found 'AND'"),
        ("WHERE (a = NULL)", "expected @NULL or IS NULL"),
        ("WHERE (a = @DATENOW)", "nothing such as @DATENOW"),
        ("WHERE (a > @NULL)", "expected = or <> before @NULL"),
        ("WHERE (before.a = 1)", "expected a column, found 'before.a'"),
        ("FILTER (IGNORE INSERT, IGNORE UPDATE, IGNORE DELETE, a = 1)", "FILTER ignores every operation"),
        ("WHERE (ON INSERT, a = 1)", "expected an operator"),
        ("FILTER ()", "a list in parentheses after FILTER"),
        ("FILTER (a = (1))", r"found \(\.\.\.\)"),
    ],
)
def test_what_is_not_taken_is_refused_by_name(program: Any, head: str, option: str, message: str) -> None:
    """With its line, and where else it may stand."""
    with pytest.raises(ParamError, match=f"(?s)4: TABLE: .*{message}") as error:
        program.from_statements(parse_text(f"{head}TABLE s.t, {option};", "e.prm"))
    assert len(str(error.value).split()) <= 40


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("json", "a = '{}'", "WHERE: a is of type json, which is not compared here"),
        ("bytes", "a = 'x'", "a is of type bytes"),
        ("integer", "a = 'x'", "'x' is no integer, which a is"),
        ("text", "a = 5", "a is of type text, and 5 is none"),
        ("enum", "a < 'x'", "a is of type enum, which has no order here"),
        ("boolean", "a = 'maybe'", "'maybe' is no boolean"),
        ("date", "a = '2024-02-29 12:00'", "is no date"),
        ("timestamptz", "a = '2024-02-29 12:00:00+02'", "is no timestamptz"),
        ("time", "a = '12'", "is no time"),
        ("text", "b = 'x'", "the table has no column b"),
        ("token", "a = 'x'", "the table has no column a"),
    ],
)
def test_what_a_table_can_not_be_asked(kind: str, text: str, message: str) -> None:
    """Told when it is met, before any row, with the clause's line."""
    rules = ExtractParams.from_statements(parse_text(f"{EXTRACT}TABLE s.*, WHERE ({text});", "e.prm")).tables
    project = rules.projector(environment("E", "here"))
    assert project is not None
    (error,) = project.faults([TableDef("s", "t", (Column("id", "integer", ""), Column("a", kind, "")))])
    assert isinstance(error, OperatorError)
    assert message in str(error)
    assert str(error).startswith("e.prm:4: TABLE s.t: WHERE: ")


def test_operations_of_a_filter() -> None:
    """ON names those that are asked, IGNORE all others; only who asks how a row was needs old rows."""
    found = rule("FILTER (ON INSERT, on update, a > 1), FILTER (IGNORE DELETE, a > 2), FILTER (ON DELETE a = 3)")
    assert [one.ops for one in found.filters] == [{INSERT, UPDATE}, {INSERT, UPDATE}, {DELETE}]
    assert [rule(f"FILTER ({text})").befores for text in ("a = 1", "ON UPDATE, a = 1", "ON DELETE, a = 1")] == [
        True,
        False,
        True,
    ]
    assert rule("WHERE (a = 1)").befores
