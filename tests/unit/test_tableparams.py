"""TABLE's options in parameter files, for Extract and pump alike: meanings, mistakes, and which clause counts."""

from __future__ import annotations

import os

import pytest

from extract.params import ExtractParams
from pump.params import PumpParams
from trails.columns import ColumnRule, Token
from trails.errors import OperatorError, ParamError
from trails.naming import ColumnName
from trails.record import Column, TableDef
from trails.runtime.language import accepted
from trails.runtime.language.params import parse_text
from trails.runtime.language.tableparams import TableRules, environment

EXTRACT = "EXTRACT ext1\nSOURCEDB postgresql://gate@db/shop\nEXTTRAIL ./dirdat/lt\n"
PUMP = "EXTRACT pmp1\nRMTHOST there, MGRPORT 7809\nRMTTRAIL ./dirdat/rt\n"
PROGRAMS = [(ExtractParams, EXTRACT), (PumpParams, PUMP)]


def read(text: str) -> TableRules:
    """As an Extract's file, from line 4 on."""
    return ExtractParams.from_statements(parse_text(EXTRACT + text, "e.prm")).tables


@pytest.mark.parametrize(("program", "head"), PROGRAMS)
def test_all_options_at_once(program, head) -> None:
    """Over several lines, with and without blanks around `=`; the same for both programs."""
    text = """TABLE sales.orders, sales."Old Orders",
        COLS (id, "Total Sum", place),  -- no more
        COLGROUP (place, country) COLGROUP (a, b),
        TOKENS (shop='Porto''s', Csn = @GETENV('TRANSACTION','CSN'), who =@getenv ("GGENVIRONMENT", osUserName));
    """
    text = text.replace('("GGENVIRONMENT", osUserName)', "('ggenvironment', 'osUserName')")
    rules = program.from_statements(parse_text(head + text, "e.prm")).tables
    assert [clause.pattern.exact for clause in rules.clauses] == [("sales", "orders"), ("sales", "Old Orders")]
    place, country = ColumnName("place"), ColumnName("country")
    expected = ColumnRule(
        only=(ColumnName("id"), ColumnName("Total Sum", quoted=True), place),
        groups=((place, country), (ColumnName("a"), ColumnName("b"))),
        tokens=(
            Token("SHOP", "Porto's"),
            Token("CSN", fact=("TRANSACTION", "CSN")),
            Token("WHO", fact=("GGENVIRONMENT", "OSUSERNAME")),
        ),
    )
    assert [clause.rule for clause in rules.clauses] == [expected, expected]
    assert rules.clauses[0].rule.where == "e.prm:4"
    assert rules.has_columns


@pytest.mark.parametrize(("program", "head"), PROGRAMS)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("TABLE s.t, COLS;", r"expected a list in parentheses after COLS"),
        ("TABLE s.t, COLS ();", r"e\.prm:4: TABLE: expected a list in parentheses after COLS"),
        ("TABLE s.t, COLS id;", r"expected a list in parentheses after COLS"),
        ("TABLE s.t, COL (id);", r"e\.prm:4: TABLE: TABLE has no option COL; did you mean COLS\?.*COLSEXCEPT"),
        ("TABLE s.t, TARGET x.y;", r"option TARGET is not supported: write it in the MAP of a Replicat"),
        ("TABLE COLS (id);", r"expected schema\.table"),
        ("TABLE s.t, (id);", r"expected schema\.table"),
        ("TABLE s.t, COLS (id), COLSEXCEPT (a);", r"expected COLS or COLSEXCEPT, found both"),
        ("TABLE s.t, COLS (id), COLS (a);", r"COLS is given twice"),
        ("TABLE s.t, COLS (id, id);", r"COLS names a column twice"),
        ("TABLE s.t, COLS (id, 'a');", r"names of columns in COLS, such as id or \"Order No\", found 'a'"),
        ("TABLE s.t, COLS (id, s.a);", r"names of columns in COLS"),
        ("TABLE s.t, COLS (i*);", r"names of columns in COLS"),
        ("TABLE s.t, COLGROUP (a);", r"COLGROUP expected two columns or more"),
        ("TABLE s.t, TOKENS (a);", r"expected TOKENS \(name = 'text'"),
        ("TABLE s.t, TOKENS (a 'b');", r"expected TOKENS \(name = 'text'"),
        ("TABLE s.t, TOKENS (a = 5);", r"expected 'text' or @GETENV \(\.\.\.\) for token a, found '5'"),
        ("TABLE s.t, TOKENS (a =);", r"expected 'text' or @GETENV"),
        ("TABLE s.t, TOKENS (a = 'x', A = 'y');", r"TOKENS: A is given twice"),
        ("TABLE s.t, TOKENS (\"a b\" = 'x');", r"expected TOKENS \(name"),
        ("TABLE s.t, TOKENS (a = @STRCAT ('x', 'y'));", r"function @STRCAT is not known here.*COLMAP"),
        ("TABLE s.t, TOKENS (a = @GETENV);", r"expected @GETENV \('group', 'fact'\)"),
        ("TABLE s.t, TOKENS (a = @GETENV ('LASTERR', 'DBERRNUM'));", r"expected one of TRANSACTION.*found LASTERR"),
        ("TABLE s.t, TOKENS (a = @GETENV ('TRANSACTON', 'CSN'));", r"did you mean TRANSACTION\?"),
        ("TABLE s.t, TOKENS (a = @GETENV ('TRANSACTION', 'CNS'));", r"TRANSACTION: XID.*found CNS; did you mean CSN\?"),
        ("TABLE s.t, TOKENS (a = @GETENV ('GGHEADER', 'LOGRBA'));", r"know of GGHEADER: .*found LOGRBA"),
        ("TABLE s.t, TOKENS (a = @GETENV ('TRANSACTION'));", r"expected two arguments"),
        ("TABLE s.t, COLS (id)\n", r"expected ';' at its end"),
        (
            "TABLE s.t, COLS (id);\nTABLE s.t;",
            r"e\.prm:5: TABLE: expected s\.t once, or with the same options; found s\.t in e\.prm:4",
        ),
        ("TABLE s.*, COLS (id);\nTABLE S.*, COLS (no);", r"e\.prm:5: .*found s\.\* in e\.prm:4 with others"),
        ("TABLEEXCLUDE;\nTABLE s.t;", r"e\.prm:4: TABLEEXCLUDE: expected schema\.table"),
    ],
)
def test_mistakes_are_named_with_their_line(program, head, text: str, message: str) -> None:
    """What was expected, and what stood there."""
    with pytest.raises(ParamError, match=message):
        program.from_statements(parse_text(head + text, "e.prm"))


def test_a_pump_with_options_decodes() -> None:
    """Also where every table passes; PASSTHRU beside them is a contradiction."""
    every = "TABLE *.*, COLSEXCEPT (secret);\n"
    assert PumpParams.from_statements(parse_text(PUMP + every, "p.prm")).filters
    assert not PumpParams.from_statements(parse_text(PUMP + "TABLE *.*;\n", "p.prm")).filters
    with pytest.raises(ParamError, match=r"p\.prm:4: PASSTHRU: options of TABLE, and IGNORE switches, need decoded"):
        PumpParams.from_statements(parse_text(f"{PUMP}PASSTHRU\n{every}", "p.prm"))


def test_the_narrowest_clause_counts_alone() -> None:
    """Exact beats wildcard, narrower beats wider; nothing is added up."""
    rules = read(
        "TABLE *.*, TOKENS (a = 'x');\nTABLE sales.*, COLSEXCEPT (secret);\nTABLE sales.orders;\n"
        "TABLE sales.ord*, COLS (id);\nTABLEEXCLUDE sales.log, *.tmp_*;\n"
    )
    assert rules.rule("other", "t").tokens
    assert rules.rule("sales", "items").without == (ColumnName("secret"),)
    assert rules.rule("sales", "order_lines").only == (ColumnName("id"),)
    assert rules.rule("sales", "orders") is None
    assert [rules.wants(*t) for t in (("sales", "log"), ("x", "tmp_1"), ("x", "y"))] == [False, False, True]


def test_clauses_that_neither_beats_must_agree() -> None:
    """Overlap with different options is told with both lines, when such a table is met; with equal ones it is none."""
    rules = read("TABLE s.a*, COLS (id);\nTABLE s.*b;\nTABLE s.c*, COLS (id);\nTABLE s.*d, COLS (id);\n")
    assert rules.rule("s", "ax").only
    assert rules.rule("s", "xb") is None
    assert rules.rule("s", "cd").only
    with pytest.raises(
        OperatorError, match=r"e\.prm:5: TABLE s\.ab: ambiguous: s\.a\* of e\.prm:4 and s\.\*b of e\.prm:5 .*of its own"
    ):
        rules.rule("s", "ab")


def test_a_toggle_holds_for_the_tables_behind_it() -> None:
    """GETUPDATEBEFORES: where the clause stands counts that decides for a table; it is no option for columns."""
    rules = read(
        "TABLE a.*;\nGETUPDATEBEFORES\nTABLE b.*;\nTABLE c.*, COLS (id);\nIGNOREUPDATEBEFORES\nTABLE b.log;\n"
        "LOGALLSUPCOLS\nTABLE d.*;\nignoreupdatebefores\nTABLE e.*, GETBEFORECOLS (on update all);\nTABLE f.*;\n"
    )
    assert {name: rules.befores(name, "t") for name in "abcdefg"} == {
        "a": "", "b": "e.prm:6", "c": "e.prm:7", "d": "e.prm:11", "e": "e.prm:13", "f": "", "g": "",
    }  # fmt: skip
    assert rules.befores("b", "log") == ""
    assert rules.rule("b", "t") is None
    assert rules.rule("c", "t") is not None
    assert read("GETUPDATEBEFORES\nTABLE a.*;").projector(environment("EXT1", "here")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("TABLE s.t;\nGETUPDATEBEFORES\n", r"e\.prm:5: GETUPDATEBEFORES: no TABLE stands behind it"),
        ("TABLE s.t;\nLOGALLSUPCOLS\nIGNOREUPDATEBEFORES\n", r"e\.prm:5: LOGALLSUPCOLS: no TABLE stands behind it"),
        ("GETUPDATEBEFORES s.t\nTABLE s.t;", r"e\.prm:4: GETUPDATEBEFORES: expected no argument"),
        ("TABLE s.t, GETBEFORECOLS;", r"expected a list in parentheses after GETBEFORECOLS"),
        ("TABLE s.t, GETBEFORECOLS (ON UPDATE KEY);", r"expected GETBEFORECOLS \(ON UPDATE ALL\)"),
        (
            "TABLE s.a*;\nTABLE s.*b, GETBEFORECOLS (ON UPDATE ALL, ON DELETE ALL);\nTABLE s.x;",
            r"e\.prm:5: TABLE s\.ab: ambiguous",
        ),
        ("TABLE s.t;\nGETUPDATEBEFORES\nTABLE s.t;", r"e\.prm:6: TABLE: expected s\.t once, or with the same options"),
    ],
)
def test_mistakes_about_old_rows(text: str, message: str) -> None:
    """Each with its line."""
    with pytest.raises(OperatorError, match=message):
        read(text).befores("s", "ab")


def test_a_pump_sends_the_old_rows_it_has() -> None:
    """So it has no say."""
    with pytest.raises(ParamError, match="no option GETBEFORECOLS"):
        PumpParams.from_statements(parse_text(PUMP + "TABLE s.t, GETBEFORECOLS (ON UPDATE ALL);", "p.prm"))
    statements = parse_text(PUMP + "GETUPDATEBEFORES\nTABLE s.t;", "p.prm")
    PumpParams.from_statements(statements)
    (note,) = accepted.notes(statements, "PUMP")
    assert "a pump sends the old rows that its trail has" in note


def test_only_an_exact_name_is_strict() -> None:
    """One statement's tables may be of both kinds."""
    exact, wild = read("TABLE s.t, s.*, COLSEXCEPT (nothing);").clauses
    assert (exact.rule.strict, wild.rule.strict) == (True, False)


def test_projections_are_made_once_a_shape() -> None:
    """And none at all where no clause has options."""
    facts = environment("EXT1", "here")
    assert read("TABLE *.*;").projector(facts) is None
    made = read("TABLE *.*;\nTABLE s.t, COLSEXCEPT (a);").projector(facts)
    table = TableDef("s", "t", (Column("id", "", "", key=True), Column("a", "", "")))
    assert made(table) is made(table)
    assert made(TableDef("s", "other", table.columns)) is None
    gone = TableDef("s", "t", table.columns[:1])
    assert [str(error)[:32] for error in made.faults([table, gone])] == ["e.prm:5: TABLE s.t: COLSEXCEPT: "]


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """GGENVIRONMENT and OSVARIABLE; a variable that is not set is NULL, and its name's case counts."""
    monkeypatch.setenv("SHOP", "Porto")
    monkeypatch.delenv("shop", raising=False)
    facts = environment("EXT1", "here")
    group = [facts("GGENVIRONMENT", name) for name in ("GROUPNAME", "GROUPTYPE", "HOSTNAME", "PROCESSID")]
    assert group == ["EXT1", "EXTRACT", "here", str(os.getpid())]
    assert facts("GGENVIRONMENT", "OSUSERNAME")
    assert (facts("OSVARIABLE", "SHOP"), facts("OSVARIABLE", "shop")) == ("Porto", None)
