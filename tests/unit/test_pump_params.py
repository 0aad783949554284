"""The pump's parameter file, checked whole."""

from __future__ import annotations

import pytest

from pump.params import KEYWORDS, PumpParams
from trails.errors import ParamError
from trails.runtime.language.params import parse_text
from trails.runtime.language.remotehost import RemoteHost

HEAD = "EXTRACT pmp1\nRMTHOST there, MGRPORT 7809\nRMTTRAIL ./dirdat/rt\n"


def read(text: str) -> PumpParams:
    return PumpParams.from_statements(parse_text(text, "p.prm"))


def test_defaults():
    """What a file of three lines means."""
    found = read(HEAD)
    assert found.group == "PMP1"
    assert found.remote == RemoteHost("there", 7809, 10)
    assert (found.window_bytes, found.retry_delay, found.retry_seconds) == (32 << 20, 10, 86_400)
    assert not found.filters


def test_everything_said():
    """Every parameter has its place."""
    more = "RMTHOST h, MGRPORT 1, TIMEOUT 3\nRMTTRAIL ./dirdat/rt\nWINDOW 4\nRETRYDELAY 2\nRETRYSECS 9\n"
    found = read("EXTRACT pmp1\n" + more + "NOPASSTHRU\nTABLE a.*, b.x;\nTABLEEXCLUDE a.y;\n")
    assert found.remote == RemoteHost("h", 1, 3)
    assert (found.window_bytes, found.retry_delay, found.retry_seconds) == (4 << 20, 2, 9)
    assert found.filters
    assert [found.passes(*t) for t in (("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"))] == [True, False, True, False]


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("", False),
        ("PASSTHRU\n", False),
        ("TABLE *.*;\n", False),
        ("PASSTHRU\nTABLE *.*;\n", False),
        ("NOPASSTHRU\n", True),
        ("TABLE s.*;\n", True),
        ("PASSTHRU\nTABLE s.*;\n", True),
        ("TABLEEXCLUDE s.t;\n", True),
    ],
)
def test_blocks_are_decoded_only_where_a_table_may_be_left_out(text, filters):
    """PASSTHRU with TABLE clauses filters, as operators know it."""
    assert read(HEAD + text).filters is filters


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("EXTRACT p\nRMTTRAIL ./dirdat/rt\n", "RMTHOST is missing"),
        ("EXTRACT p\nRMTHOST h\nRMTTRAIL ./dirdat/rt\n", "p.prm:2: RMTHOST: expected host, MGRPORT n"),
        ("EXTRACT p\nRMTHOST h, PORT 1\nRMTTRAIL ./dirdat/rt\n", "p.prm:2: RMTHOST"),
        ("EXTRACT p\nRMTHOST h, MGRPORT 99999\nRMTTRAIL ./dirdat/rt\n", "from 1 to 65535"),
        ("EXTRACT p\nRMTTRAIL ./dirdat/rt\nRMTHOST h, MGRPORT 1\n", "expected after RMTHOST"),
        (HEAD + "PASSTHRU\nNOPASSTHRU\n", "found both"),
        (HEAD + "WINDOW 0\n", "from 1 to 1024"),
        (HEAD + "TABLE s.t, TARGET x.y;\n", "TABLE"),
        (HEAD.replace("/rt", "/toolong"), "two-character prefix"),
    ],
)
def test_mistakes_are_named_with_their_line(text, message):
    """What was expected, where."""
    with pytest.raises(ParamError, match=message):
        read(text)


def test_every_example_is_valid():
    """The examples that the documentation shows."""
    for keyword in KEYWORDS.values():
        if keyword.name == "COMMENT" or keyword.refused:
            continue
        (statement,) = parse_text(keyword.example, "p.prm")
        keyword.parse(statement)
