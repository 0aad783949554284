"""The parameter language: what is read, and that every mistake of a file is told with file, line and expectation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trails.errors import ParamError
from trails.runtime.language.params import (
    Group,
    Keyword,
    Literal,
    ParamErrors,
    Pattern,
    Statement,
    check,
    group,
    nothing,
    number,
    parse_file,
    parse_text,
    pattern,
    table,
    text,
    word,
)
from trails.runtime.language.reportparams import SHARED, TIMED_VERBS
from trails.runtime.language.schedule import COUNT_SHAPE, ReportCount

KEYWORDS = SHARED | table(
    Keyword("EXTRACT", "group", "The group.", "EXTRACT ext1", group, required=True),
    Keyword("SOURCEDB", "url", "Where.", "SOURCEDB postgresql://u@h/d", text),
    Keyword("EXTTRAIL", "trail", "The trail.", "EXTTRAIL ./dirdat/lt", word, required=True),
    Keyword("TABLE", "pattern;", "Tables.", "TABLE s.*;", pattern, repeatable=True),
    Keyword("PASSTHRU", "", "A switch.", "PASSTHRU", nothing),
)


def only(source: str) -> Statement:
    """The one statement of a text."""
    (statement,) = parse_text(source, "x.prm")
    return statement


@pytest.mark.parametrize(
    ("source", "keyword", "words"),
    [
        ("extract ext1", "EXTRACT", ("ext1",)),
        ("  PASSTHRU  ", "PASSTHRU", ()),
        ("RMTHOST there, MGRPORT 7809 -- a comment", "RMTHOST", ("there", "MGRPORT", "7809")),
        ("RMTHOST there, &\n   MGRPORT 7809", "RMTHOST", ("there", "MGRPORT", "7809")),
        ("RMTHOST there, & -- goes on\n   MGRPORT 7809", "RMTHOST", ("there", "MGRPORT", "7809")),
        ("DYNAMICPORTLIST 7840-7850, 7900", "DYNAMICPORTLIST", ("7840-7850", "7900")),
        ("TABLE sales.*;", "TABLE", ("sales.*",)),
        ("TABLE a.b,\n\n  -- which has\n  COLS c ;", "TABLE", ("a.b", "COLS", "c")),
        ('TABLE sales."Order; Lines";', "TABLE", ('sales."Order; Lines"',)),
        ("MAP a.b, TARGET c.d, COLMAP (x = 'it''s; (so', y = f(z));", "MAP", ()),
        ("TABLE a.b, TOKENS (x = 'it''s; (so', y = f(z));", "TABLE", None),
        ("SOURCEDB postgresql://u:a,(b;--c'@h/d?o=1", "SOURCEDB", ("postgresql://u:a,(b;--c'@h/d?o=1",)),
        ("DESC 'two words'", "DESC", (Literal("two words"),)),
    ],
)  # fmt: skip
def test_a_statement_is_read(source: str, keyword: str, words: tuple[object, ...] | None) -> None:
    """Comments, continuation, quotes, URLs and the semicolon each end or don't end a word as they should."""
    statement = only(source)
    assert (statement.keyword, statement.fault) == (keyword, "")
    if words is not None:
        assert statement.words == words


def test_groups_nest_and_literals_lose_their_quotes() -> None:
    """Parentheses become Groups in Groups, '' in a literal becomes '."""
    words = only("TABLE a.b, TOKENS (x = 'it''s; (so', y = f(z));").words
    assert words[2] == Group(("x", "=", Literal("it's; (so"), "y", "=", "f", Group(("z",))))
    assert isinstance(words[2], Group)


def test_a_maps_expressions_are_another_language() -> None:
    """MAP is only cut out here; its text and the lines in it are for who reads it."""
    statement = only("MAP\n a.b,\n TARGET c.d, COLMAP (x = `q(` || ')]',\n y = 1) -- a comment\n;")
    assert (statement.fault, statement.words, statement.line, statement.line_at(0)) == ("", (), 1, 2)
    assert statement.line_at(statement.text.index("y = 1")) == 4
    inner = statement.inner("COLMAP", "y = (1)", statement.text.index("y = 1"))
    assert (inner.line, inner.words) == (4, ("y", "=", Group(("1",))))


def test_comments_and_blank_lines_are_no_statements() -> None:
    """Lines of the statements are counted from one, comments included."""
    source = "-- head\n\nCOMMENT don't parse ( this\nEXTRACT e\n   -- more\nPASSTHRU"
    assert [(s.keyword, s.line) for s in parse_text(source, "x")] == [("EXTRACT", 4), ("PASSTHRU", 6)]


def test_the_text_of_an_argument_stays_as_written() -> None:
    """`text` keeps commas and case, and joins what `&` joined."""
    assert only("SQLEXEC select 1,  2 &\n from T").text == "select 1,  2 \n from T"


def test_all_mistakes_of_a_file_are_told_at_once() -> None:
    """Unknown words with the nearest known, wrong values, repetition, a missing semicolon, what is missing."""
    source = """EXTRACT ext1
TABEL sales.*;
CHECKPOINTSECS soon
CHECKPOINTSECS 5
CHECKPOINTSECS 6
PASSTHRU now
TABLE sales.orders
TABLE nodots;
REPORTCOUNT EVERY 0 MINUTES
SOURCEDB 'unclosed
TABLE a.b; PASSTHRU
"""
    with pytest.raises(ParamErrors) as caught:
        check(parse_text(source, "ext1.prm"), KEYWORDS, "extract", first="EXTRACT")
    assert str(caught.value).splitlines() == [
        "ext1.prm:2: TABEL: extract has no such parameter; did you mean TABLE?",
        "ext1.prm:3: CHECKPOINTSECS: expected a whole number from 1 to 3600, found 'soon'",
        "ext1.prm:5: CHECKPOINTSECS: expected once, found again (first in line 4)",
        "ext1.prm:6: PASSTHRU: expected no argument, found 'now'",
        "ext1.prm:7: TABLE: expected ';' at its end, found none",
        "ext1.prm:8: TABLE: expected schema.table, such as sales.* or sales.\"Orders\", found 'nodots'",
        f"ext1.prm:9: REPORTCOUNT: expected {COUNT_SHAPE}, found 'EVERY 0 MINUTES'",
        "ext1.prm:10: SOURCEDB: expected a closing ', found the end of the line",
        "ext1.prm:11: TABLE: expected a new line after ';', found 'PASSTHRU'",
        "ext1.prm: EXTTRAIL is missing; expected EXTTRAIL trail, such as: EXTTRAIL ./dirdat/lt",
    ]
    assert len(caught.value.errors) == 10


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "x.prm:1: expected EXTRACT group first, found nothing"),
        ("EXTTRAIL ./dirdat/lt\nEXTRACT e", "x.prm:1: expected EXTRACT group first, found EXTTRAIL"),
        ("EXTRACT toolonganame\nEXTTRAIL x", "x.prm:1: EXTRACT: group name 'toolonganame': expected one to eight"),
        ("EXTRACT e\nEXTTRAIL x;", "x.prm:2: EXTTRAIL: expected no ';' after this parameter"),
        ("EXTRACT e\nEXTTRAIL x\nSOURCEDB postgresql://h/d;", "x.prm:3: SOURCEDB: expected no ';' after"),
        ("EXTRACT e\nEXTTRAIL (x", "x.prm:2: EXTTRAIL: expected ')', found the end"),
        ("EXTRACT e\nEXTTRAIL x)", "x.prm:2: EXTTRAIL: expected a word or the end, found ')'"),
        ("EXTRACT e\nEXTTRAIL x &", "x.prm:2: EXTTRAIL: expected a line after '&', found the end of the file"),
        ("EXTRACT e\nEXTTRAIL", "x.prm:2: EXTTRAIL: expected one word, found nothing"),
        ("EXTRACT e\nEXTTRAIL x\nTABLE a.b,\n c.d", "x.prm:3: TABLE: expected ';' at its end, found none"),
        ("EXTRACT e\nEXTTRAIL x\n;", "x.prm:3: ;: extract has no such parameter"),
    ],
)
def test_one_mistake_one_message(source: str, message: str) -> None:
    """Each mistake names its place and what was expected."""
    with pytest.raises(ParamErrors) as caught:
        check(parse_text(source, "x.prm"), KEYWORDS, "extract", first="EXTRACT", file="x.prm")
    assert message in str(caught.value)


def test_messages_hide_passwords() -> None:
    """A mistake in a line with a password does not print the password."""
    error = only("SOURCEDB postgresql://u:secret@h/d too much").error("one word")
    other = only("USERID u, PASSWORD secret").error("one word")
    assert "secret" not in f"{error}{other}"
    assert "postgresql://u:********@h/d too much" in str(error)


def test_values_come_in_file_order() -> None:
    """one, all, has, statements."""
    source = "EXTRACT e1\nEXTTRAIL ./dirdat/lt\nTABLE a.*;\nTABLE b.*;\nCHECKPOINTSECS 7\nREPORTCOUNT EVERY 2 MINUTES\n"
    values = check(parse_text(source, "x.prm"), KEYWORDS, "extract", first="EXTRACT")
    assert values.one("EXTRACT") == "E1"
    assert [str(p) for p in values.all("TABLE")] == ["a.*", "b.*"]
    assert values.one("CHECKPOINTSECS", 10) == 7
    assert values.one("REPORTCOUNT") == ReportCount(seconds=120)
    assert not values.has("PASSTHRU")
    assert [s.line for s in values.statements("TABLE")] == [3, 4]


def test_every_common_keyword_has_help_and_an_example_that_it_accepts() -> None:
    """The examples that HELP prints are right."""
    for keyword in (SHARED | TIMED_VERBS).values():
        assert keyword.help
        for statement in parse_text(keyword.example, "example"):
            assert check([statement], SHARED | TIMED_VERBS, "common").has(keyword.name)


@pytest.mark.parametrize(
    ("written", "schema", "name", "matches"),
    [
        ("sales.*", "sales", "orders", True),
        ("SALES.Orders", "sales", "orders", True),
        ("sales.*", "Sales", "orders", False),
        ('"Sales".*', "Sales", "orders", True),
        ('sales."Or""d*r"', "sales", 'Or"d*r', True),
        ('sales."o*"', "sales", "orders", False),
        ("sales.or?ers", "sales", "orders", True),
        ("s*s.o*s", "sales", "orders", True),
        ("sales.order", "sales", "orders", False),
        ("sales.a+b", "sales", "a+b", True),
        ('a."x.y"', "a", "x.y", True),
    ],
)
def test_patterns_match_names(written: str, schema: str, name: str, matches: bool) -> None:
    """Wildcards outside quotes, folding to lower case outside quotes, nothing special inside."""
    assert Pattern(written).matches(schema, name) is matches


@pytest.mark.parametrize("written", ["orders", "a.b.c", "a.", ".b", 'a."b', 'a."b"c', 'a."b".c', "a..b", ""])
def test_what_is_no_table_name(written: str) -> None:
    """Exactly two parts."""
    with pytest.raises(ValueError, match=r"schema\.table"):
        Pattern(written)


def test_targets_are_filled_from_sources() -> None:
    """In each part one * takes the source's whole name; other wildcards can't be a target; no wildcard is exact."""
    assert Pattern("copy.*").fill("Sales", "Orders") == ("copy", "Orders")
    assert Pattern("*.*").fill("Sales", "Orders") == ("Sales", "Orders")
    assert Pattern("old_*.copy_*_1").fill("Sales", "Orders") == ("old_Sales", "copy_Orders_1")
    assert Pattern('copy."X*"').fill("Sales", "Orders") == ("copy", "X*")
    assert Pattern('copy."X*"').exact == ("copy", "X*")
    assert Pattern("copy.*").exact is None
    good = ("copy.*", "copy.o*", 'copy."o**?"', "a.b", "*.*")
    assert [Pattern(p).is_target for p in (*good, "copy.*_*", "copy.o?")] == [True] * 5 + [False] * 2


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing, a folder, not UTF-8: each named with what is wrong."""
    with pytest.raises(ParamError, match="does not exist"):
        parse_file(str(tmp_path / "none.prm"))
    with pytest.raises(ParamError, match="Is a directory"):
        parse_file(str(tmp_path))
    bad = tmp_path / "bad.prm"
    bad.write_bytes(b"EXTRACT e\nCOMMENT caf\xe9\n")
    with pytest.raises(ParamError, match=r"bad\.prm:2: expected UTF-8 text, found byte 0xe9"):
        parse_file(str(bad))


def test_a_byte_order_mark_is_no_keyword(tmp_path: Path) -> None:
    """Editors of other systems write one."""
    file = tmp_path / "x.prm"
    file.write_bytes(b"\xef\xbb\xbfEXTRACT e\r\nPASSTHRU\r\n")
    assert [s.keyword for s in parse_file(str(file))] == ["EXTRACT", "PASSTHRU"]


def test_importing_the_runtime_loads_no_lark() -> None:
    """ggsci's prompt must not wait for the parser."""
    code = "import sys, trails.runtime.process.startup, trails.runtime.home.purge; print('lark' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_numbers_refuse_what_only_looks_like_one() -> None:
    """Signs, fractions, other digits, and numbers too long for anybody."""
    parse = number(1, 10)
    for shown in ("-1", "1.0", "\u0661", "0", "11", "9" * 30, "(1)", "1 2"):
        with pytest.raises(ParamError, match="from 1 to 10"):
            parse(only(f"N {shown}"))
    assert parse(only("N 10")) == 10
