"""The parser: what a line becomes, and what a wrong one is told."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggsci.commands.session import masked
from ggsci.table.grammar import CommandError, tokens
from ggsci.table.table import COMMANDS, GRAMMAR
from tests.support.hostile import hostile
from trails.errors import GateError


@pytest.mark.parametrize(
    ("line", "name", "operand", "values"),
    [
        ("info all", "INFO ALL", "", {}),
        ("INFO EXTRACT ext1, SHOWCH", "INFO EXTRACT", "EXT1", {"SHOWCH": True}),
        ("info extract ext1 showch 3", "INFO EXTRACT", "EXT1", {"SHOWCH": 3}),
        ("INFO EXT1,DETAIL", "INFO ER", "EXT1", {"DETAIL": True}),
        ("start *", "START ER", "*", {}),
        ("start mgr", "START MANAGER", "", {}),
        ("add extract e, tranlog, begin now", "ADD EXTRACT", "E", {"TRANLOG": True, "BEGIN": "now"}),
        (
            "ADD REPLICAT r1 EXTTRAIL ./dirdat/rt CHECKPOINTTABLE gg.ck EXTSEQNO 3 EXTRBA 0",
            "ADD REPLICAT", "R1",
            {"EXTTRAIL": "./dirdat/rt", "CHECKPOINTTABLE": "gg.ck", "EXTSEQNO": 3, "EXTRBA": 0},
        ),
        ("add extract e tranlog desc 'it''s, mine'", "ADD EXTRACT", "E", {"TRANLOG": True, "DESC": "it's, mine"}),
        ('ADD TRANDATA sales."Order Lines"', "ADD TRANDATA", 'sales."Order Lines"', {}),
        ("shell ls -l, 'a  b'", "SHELL", "ls -l, 'a  b'", {}),
        ("dblogin sourcedb postgresql://a@h1,h2/db", "DBLOGIN", "", {"SOURCEDB": "postgresql://a@h1,h2/db"}),
        ("quit", "EXIT", "", {}),
        ("history", "HISTORY", "", {}),
        ("info exttrail", "INFO EXTTRAIL", "", {}),
        ("! -2", "!", "-2", {}),
        ("info ext ext1, detail", "INFO EXTRACT", "EXT1", {"DETAIL": True}),
        ("STATS REP *", "STATS REPLICAT", "*", {}),
        ("add extt ./dirdat/lt extract e", "ADD EXTTRAIL", "./dirdat/lt", {"EXTRACT": "E"}),
        ("add ext e, tranlog;", "ADD EXTRACT", "E", {"TRANLOG": True}),
        ("info ext, detail", "INFO ER", "EXT", {"DETAIL": True}),
        ("stats rep", "STATS ER", "REP", {}),
        ("exit;", "EXIT", "", {}),
        ("info all ;", "INFO ALL", "", {}),
        ("dblogin sourcedb postgresql://h/d userid u password a;", "DBLOGIN", "",
         {"SOURCEDB": "postgresql://h/d", "USERID": "u", "PASSWORD": "a;"}),
        ("dblogin sourcedb postgresql://h/d userid u password 'a;''b';", "DBLOGIN", "",
         {"SOURCEDB": "postgresql://h/d", "USERID": "u", "PASSWORD": "a;'b"}),
    ],
)  # fmt: skip
def test_a_line_becomes_a_command(line, name, operand, values):
    """Any case, commas or none, synonyms, the kind of group left out or cut short, a `;` at the end."""
    parsed = GRAMMAR.parse(line)
    assert (parsed.command.name, parsed.operand, parsed.values) == (name, operand, values)


@pytest.mark.parametrize("line", ["stop mgr!", "STOP MANAGER !", "delete extract e1!", "DELETE EXTRACT * !"])
def test_a_trailing_mark_means_dont_ask(line):
    """It may stand alone or at the end of the last word, also of the command's own words."""
    assert GRAMMAR.parse(line).force


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("inof all", "Did you mean INFO ALL?"),
        ("strat ext1", "Did you mean START?"),
        ("INFO EXTRAT ext1", "Did you mean INFO EXTRACT?"),
        ("ADD EXTRAKT ext1", "Did you mean ADD EXTRACT?"),
        ("INFO EXTRACT e, DETIAL", "Did you mean DETAIL?"),
        ("ADD EXTRACT toolongname1, TRANLOG", "'toolongname1' is no group name"),
        ("ADD TABLE s.t", "expected REPLICAT"),
        ("ADD EXTRACT e, TRANLOG, EXTTRAILSOURCE ./dirdat/lt", "TRANLOG and EXTTRAILSOURCE exclude each other"),
        ("ADD EXTRACT e, TRANLOG, TRANLOG", "TRANLOG is given twice"),
        ("ADD REPLICAT r, EXTTRAIL", "EXTTRAIL expects a value"),
        ("ADD EXTRACT e, TRANLOG, EXTSEQNO x", "expected a number, found 'x'"),
        ("ADD EXTRACT e, TRANLOG, DESC 'open", "a quote ' is opened and never closed"),
        ("START EXTRACT", "expected a group"),
        ("INFO", "Expected one of ALL"),
        ("START EXTRACT e --json", "has no --json form"),
        ("", "no command given"),
    ],
)
def test_a_wrong_line_is_told_what_was_expected(line, told):
    """Typing errors are answered with the nearest command, object or option."""
    with pytest.raises(CommandError) as error:
        GRAMMAR.parse(line)
    assert told in str(error.value)


@hostile(100)
@given(st.text(alphabet=string.printable))
def test_any_text_is_a_command_or_a_command_error(line):
    """No input makes the parser fail in another way."""
    try:
        GRAMMAR.parse(line)
    except CommandError:
        pass
    assert isinstance(masked(line), str)


@given(st.lists(st.text(alphabet=string.ascii_letters + "./*_", min_size=1), min_size=1))
def test_words_survive_blanks_and_commas(words):
    """Splitting gives back the words, whatever parts them."""
    assert [token.raw for token in tokens(" , ".join(words))] == words


@pytest.mark.parametrize(
    "line",
    [
        "DBLOGIN USERID gg, PASSWORD s3cret",
        "dblogin userid gg password 's3cret word'",
        'dblogin userid gg password "s3cret"',
        "DBLOGIN SOURCEDB postgresql://gg:s3cret@host/db",
        "DBLOGIN SOURCEDB postgresql://gg:a@s3cret@host/db",
        "DBLOGIN SOURCEDB postgresql://host/db?user=gg&password=s3cret",
        "DBLOGIN USERID gg, PASWORD s3cret",
        "DBLOGN SOURCEDB postgresql://gg:s3cret@host/db",
        "DBLOGIN USERID gg, PASSWORD 's3cret",
        "DBLOGIN USERID gg, PASSWORD ab'c d's3cret",
        "DBLOGIN USERID gg, PASSWORD 'ab'\"c, s3cret\"",
    ],
)
def test_no_password_is_left_in_a_masked_line(line):
    """What is echoed, kept in the history and logged holds no password, also where the line is mistyped."""
    assert "s3cret" not in masked(line)
    told = ""
    try:
        GRAMMAR.parse(line)
    except GateError as error:
        told = str(error)
    assert "s3cret" not in told


def test_every_command_has_what_help_needs():
    """Summary, syntax, and examples that parse as this very command."""
    for command in COMMANDS:
        assert command.summary.endswith("."), command.name
        assert command.syntax().startswith(command.name)
        assert command.examples
        for example in command.examples:
            assert GRAMMAR.parse(example).command.section == command.section, example
