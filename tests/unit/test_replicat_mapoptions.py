"""MAP's options: what each becomes, and what each mistake is told as, with the line it is in."""

from __future__ import annotations

import pickle

import pytest

from replicat.maps.clauses import Clause, ClauseReader
from replicat.maps.options import MAP_OPTIONS, parse_map
from replicat.model.mapparams import (
    Assignment,
    CompareCols,
    Comparison,
    Condition,
    ExceptionRule,
    MapRule,
    ResolveGroup,
    ResolveRule,
)
from replicat.model.reperror import ErrorRule
from trails.errors import ParamError
from trails.runtime.language.params import ParamErrors, Pattern, parse_text


def one(options: str) -> MapRule:
    """A MAP with these options; they begin in line 2."""
    (statement,) = parse_text(f"MAP s.t, TARGET p.t,\n{options};\n", "r.prm")
    assert not statement.fault
    return parse_map(statement)


@pytest.mark.parametrize("option", MAP_OPTIONS.values(), ids=MAP_OPTIONS)
def test_every_option_has_help_and_an_example_that_is_accepted(option):
    """What HELP and docs/parameters.md print is right."""
    assert option.help
    (statement,) = parse_text(option.example, "example")
    assert f", {option.name}" in option.example
    assert not statement.fault
    parse_map(statement)


def test_a_plain_map_asks_for_nothing():
    """All columns by name."""
    (statement,) = parse_text("MAP s.t, TARGET p.t;", "r.prm")
    assert parse_map(statement) == MapRule(Pattern("s.t"), Pattern("p.t"), "r.prm:1")


def test_colmap_keeps_expressions_as_they_are_with_their_lines():
    """Operators, nested parentheses, quotes, CASE: any text up to the next comma at top level."""
    rule = one("""COLMAP (USEDEFAULTS,
  total = price * (1 + coalesce(tax, 0)) || 'a,)',
  "Mixed, name" =
     CASE WHEN a >= 1 AND b <> ')' THEN data -> 'x' ELSE '(' END,
  flag = a = b, `odd``one` = "Col, 1")""")
    assert rule.use_defaults
    assert rule.colmap == (
        Assignment("total", "price * (1 + coalesce(tax, 0)) || 'a,)'", "r.prm:3"),
        Assignment('"Mixed, name"', "CASE WHEN a >= 1 AND b <> ')' THEN data -> 'x' ELSE '(' END", "r.prm:4"),
        Assignment("flag", "a = b", "r.prm:6"),
        Assignment("`odd``one`", '"Col, 1"', "r.prm:6"),
    )
    assert not one("COLMAP (a = b)").use_defaults


def test_filters_say_which_operations_they_are_for():
    """ON names operations, IGNORE all others; WHERE is a FILTER without either. All of a MAP's hold."""
    rule = one("WHERE (a = 1), FILTER (b IN (1, 2)), FILTER (ON INSERT, on  update, c > 1),\nFILTER (d, IGNORE DELETE)")
    assert rule.conditions == (
        Condition("a = 1", "r.prm:2", keyword="WHERE"),
        Condition("b IN (1, 2)", "r.prm:2"),
        Condition("c > 1", "r.prm:2", frozenset({"INSERT", "UPDATE"})),
        Condition("d", "r.prm:3", frozenset({"INSERT", "UPDATE"})),
    )


def test_lists_switches_and_numbers():
    """Names keep their quotes; commas between options may be left out."""
    rule = one('KEYCOLS (id, "No 1") COLS (a)\nINSERTALLRECORDS, HANDLECOLLISIONS, WEIGHT 7, EXCEPTIONSONLY')
    assert rule.key_columns == ("id", '"No 1"')
    assert rule.columns == ("a",)
    assert rule.overrides == (("insert_all", True), ("collisions", True))
    assert (rule.weight, rule.exceptions_only) == (7, True)
    assert one("COLSEXCEPT (a, b)").columns_except == ("a", "b")
    assert one("NOHANDLECOLLISIONS").overrides == (("collisions", False),)


def test_error_rules_and_exceptions():
    """REPERROR as the parameter, several of them; MAPEXCEPTION is a MAP in a MAP."""
    rule = one("""REPERROR (23505, EXCEPTION), REPERROR (DEFAULT, DISCARD),
  MAPEXCEPTION (TARGET x.errors_*, INSERTALLRECORDS,
     COLMAP (USEDEFAULTS, op = change.operation))""")
    assert [(r.code, r.action) for r in rule.error_rules] == [("23505", "EXCEPTION"), ("DEFAULT", "DISCARD")]
    assert isinstance(rule.error_rules[0], ErrorRule)
    assert rule.exception == ExceptionRule(
        Pattern("x.errors_*"), "r.prm:3", True, (Assignment("op", "change.operation", "r.prm:4"),)
    )
    assert one("MAPEXCEPTION (TARGET x.e)").exception == ExceptionRule(Pattern("x.e"), "r.prm:2")


def test_conflicts():
    """COMPARECOLS and RESOLVECONFLICT as goldengate.md 7.4 has them."""
    rule = one("""COMPARECOLS (ON UPDATE KEYINCLUDING (a, b), ON DELETE ALL),
  RESOLVECONFLICT (UPDATEROWEXISTS,
     (sums, USEDELTA, COLS (total, paid)), (note, overwrite, COLS (note)), (DEFAULT, USEMAX (changed))),
  RESOLVECONFLICT (DELETEROWMISSING, (DEFAULT, DISCARD))""")
    assert rule.compare == CompareCols("r.prm:2", Comparison("KEYINCLUDING", ("a", "b")), Comparison("ALL"))
    assert rule.resolve == (
        ResolveRule(
            "UPDATEROWEXISTS",
            ResolveGroup("DEFAULT", "USEMAX", "changed"),
            (
                ResolveGroup("sums", "USEDELTA", cols=("total", "paid")),
                ResolveGroup("note", "OVERWRITE", cols=("note",)),
            ),
            "r.prm:3",
        ),
        ResolveRule("DELETEROWMISSING", ResolveGroup("DEFAULT", "DISCARD"), (), "r.prm:5"),
    )
    assert pickle.loads(pickle.dumps(rule)) == rule


CASES = [
    ("KEYCOL (id)", "MAP has no option KEYCOL; did you mean KEYCOLS?"),
    ("SQLEXEC (ID a, QUERY 'b')", "option SQLEXEC is not supported"),
    ("(id)", "expected an option of MAP, found '(id)'"),
    ("KEYCOLS", "expected KEYCOLS (target column, ...), found no argument"),
    ("KEYCOLS id", "expected KEYCOLS (target column, ...), found no argument"),
    ("KEYCOLS ()", "expected (column, ...), found '()'"),
    ("KEYCOLS (a, a)", "column a is named twice"),
    ("KEYCOLS (a = b)", "expected a column name, found 'a = b'"),
    ("KEYCOLS (a), KEYCOLS (b)", "expected KEYCOLS once, found again (first in line 2)"),
    ("COLS (a), COLSEXCEPT (b)", "expected COLS or COLSEXCEPT, found both"),
    ("COLMAP ()", "COLMAP names no column"),
    ("COLMAP (a)", "expected column = expression, found 'a'"),
    ("COLMAP (a =)", "expected an expression behind a ="),
    ("COLMAP (a = 1, a = 2)", "COLMAP names column a twice"),
    ("COLMAP (a = @STRCT (b))", "did you mean STRCAT?"),
    ("COLMAP (a = f(b)", "expected ')' to this '(', found the end"),
    ("COLMAP (a = 1))", "expected no ')' here"),
    ("COLMAP (a = `b)", "expected a closing `"),
    ("WHERE ()", "expected"),
    ("FILTER (a > 1, b > 1)", "found 'a > 1, b > 1'"),
    ("FILTER (ON INSERT)", "expected ([ON INSERT | UPDATE | DELETE, ...] condition), found nothing"),
    ("FILTER (IGNORE INSERT, IGNORE UPDATE, IGNORE DELETE, a)", "FILTER ignores every operation"),
    ("FILTER (a, RAISEERROR 21000)", "RAISEERROR is not supported"),
    ("WEIGHT much", "expected a whole number from 0 to 1000000, found 'much'"),
    ("REPERROR (23505, DISCARDS)", "did you mean DISCARD?"),
    ("REPERROR 23505", "expected REPERROR"),
    ("MAPEXCEPTION (p.t)", "expected (TARGET schema.table"),
    ("MAPEXCEPTION (TARGET p.*_*)", "expected a target with at most one *"),
    ("MAPEXCEPTION (TARGET p.t, KEYCOLS (a))", "MAPEXCEPTION has no option KEYCOLS"),
    ("EXCEPTIONSONLY, MAPEXCEPTION (TARGET p.t)", "MAPEXCEPTION has no meaning in a MAP with EXCEPTIONSONLY"),
    ("COMPARECOLS ()", "expected ON {UPDATE"),
    ("COMPARECOLS (ON INSERT ALL)", "expected ON {UPDATE"),
    ("COMPARECOLS (ON UPDATE KEYINCLUDING)", "expected ON {UPDATE"),
    ("COMPARECOLS (ON UPDATE ALL (a))", "expected ON {UPDATE"),
    ("COMPARECOLS (ON UPDATE ALL, ON UPDATE KEY)", "expected ON UPDATE once"),
    ("RESOLVECONFLICT ()", "expected one of INSERTROWEXISTS"),
    ("RESOLVECONFLICT (UPDATEROWEXIST, (DEFAULT, IGNORE))", "did you mean UPDATEROWEXISTS?"),
    ("RESOLVECONFLICT (UPDATEROWEXISTS)", "expected (DEFAULT, method) for the other columns, found none"),
    ("RESOLVECONFLICT (UPDATEROWEXISTS, IGNORE)", "expected (name, method, COLS (column, ...)) or (DEFAULT, method)"),
    ("RESOLVECONFLICT (UPDATEROWEXISTS, (DEFAULT, OVERRIDE))", "did you mean OVERWRITE?"),
    ("RESOLVECONFLICT (UPDATEROWEXISTS, (DEFAULT, USEMAX))", "expected USEMAX (column)"),
    ("RESOLVECONFLICT (UPDATEROWEXISTS, (DEFAULT, IGNORE (a)))", "expected IGNORE without a column"),
    ("RESOLVECONFLICT (UPDATEROWEXISTS, (DEFAULT, USEDELTA))", "USEDELTA needs COLS"),
    ("RESOLVECONFLICT (UPDATEROWMISSING, (DEFAULT, USEMAX (a)))", "USEMAX can't resolve UPDATEROWMISSING"),
    ("RESOLVECONFLICT (DELETEROWMISSING, (DEFAULT, OVERWRITE))", "OVERWRITE can't resolve DELETEROWMISSING"),
    ("RESOLVECONFLICT (UPDATEROWEXISTS, (a, IGNORE), (DEFAULT, IGNORE))", "expected (name, method, COLS"),
    ("RESOLVECONFLICT (UPDATEROWEXISTS, (DEFAULT, IGNORE, COLS (a)))", "expected (DEFAULT, method) without COLS"),
    ("RESOLVECONFLICT (UPDATEROWEXISTS, (DEFAULT, IGNORE), (DEFAULT, IGNORE))", "expected DEFAULT once"),
    (
        "RESOLVECONFLICT (UPDATEROWEXISTS, (a, IGNORE, COLS (x)), (b, IGNORE, COLS (x)), (DEFAULT, IGNORE))",
        "column x is in two groups",
    ),
    (
        "RESOLVECONFLICT (INSERTROWEXISTS, (DEFAULT, IGNORE)), RESOLVECONFLICT (INSERTROWEXISTS, (DEFAULT, DISCARD))",
        "expected RESOLVECONFLICT for INSERTROWEXISTS once",
    ),
]


@pytest.mark.parametrize(("options", "message"), CASES)
def test_mistakes(options: str, message: str):
    """File, line, expected, found, and the nearest word that is known."""
    with pytest.raises(ParamErrors) as caught:
        one(options)
    assert message in str(caught.value)
    assert all(str(error).startswith("r.prm:") for error in caught.value.errors)


def test_a_mistake_is_told_with_its_own_line():
    """Each of several in one MAP."""
    with pytest.raises(ParamErrors) as caught:
        one("KEYCOLS (id),\n\nCOLMAP (a = 1,\n b,\n c = @NO (1)),\nNOSUCH,\nMAPEXCEPTION (\n TARGET p.t,\n COLMAP (x))")
    assert [str(error).split(": ")[0] for error in caught.value.errors] == [
        "r.prm:5", "r.prm:6", "r.prm:7", "r.prm:10"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MAP s.t;", "r.prm:1: MAP: expected source.table, TARGET target.table"),
        ("MAP;", "r.prm:1: MAP: expected source.table, TARGET target.table"),
        ("MAP s.t, TO p.t;", "r.prm:1: MAP: expected source.table, TARGET target.table"),
        ("MAP (s.t), TARGET p.t;", "r.prm:1: MAP: expected source.table, TARGET target.table"),
        ("MAP t, TARGET p.t;", "r.prm:1: MAP: expected schema.table, such as sales.*"),
        ("MAP s.t,\nTARGET 'p.t';", "r.prm:2: MAP: expected schema.table, such as sales.*"),
    ],
)
def test_names_that_are_none(text: str, message: str):
    """What stands in front of the options."""
    (statement,) = parse_text(text, "r.prm")
    with pytest.raises(ParamError) as caught:
        parse_map(statement)
    assert message in str(caught.value)


def test_pieces_know_their_place():
    """Blanks and commas around them do not count."""
    (statement,) = parse_text("MAP\n\n  a.b , (x,\n  'y,z' , (u, v) ),,\n c;", "r.prm")
    reader = ClauseReader(Clause(statement, statement.text))
    word = reader.word()
    assert word is not None
    assert (word.text, word.where) == ("a.b", "r.prm:3")
    assert reader.group() is None
    assert not reader.rest_is_empty()
    group = reader.group()
    assert group is not None
    assert [(item.text, item.line) for item in group.items()] == [("x", 3), ("'y,z'", 4), ("(u, v)", 4)]
    last = reader.word()
    assert last is not None
    assert (last.text, last.line) == ("c", 5)
    assert reader.rest_is_empty()
    assert reader.word() is None
