"""Keys, names and messages of any length: whatever looks through them takes time as they are long, and no more.

There is no clock here: what takes the square of these lengths takes hours, and meets the time limit of every test.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replicat.targets.sqlite.numbers import _LOOKS_NUMERIC
from tests.support.homes import make_home
from trails.clock import RealClock
from trails.record import TableDef
from trails.runtime.language import params, prmtext
from trails.runtime.language.params import Pattern
from trails.runtime.masking import mask, mask_parameters
from trails.runtime.report.report import MAX_TEXT, Log, Report
from trails.runtime.secrets import credentials

LONG = 400_000
UNITS = [
    "a", "1", " ", "\n", ".", "@", "=", "'", '"', "a.", "://", "a://", "a://:", "://:", "a://b:c", "spark.", "password",
    "spark.token", "password ", "password=", "password='", "a=", "PASSWORD ", "PASSWORD &\n", "é", "a:b@",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_hiding_passwords_is_linear(unit: str) -> None:
    """One refused row with a key of 100,000 letters kept Replicat busy for minutes."""
    text = (unit * LONG)[:LONG]
    for hidden in (mask(text), mask_parameters(text), mask(text + "@"), mask(text + "=")):
        assert hidden


def test_what_is_hidden_is_what_always_was() -> None:
    """The signs of a password, one after the other and inside one another."""
    for text, hidden in (
        ("postgresql://me:p@ss/w@h/d", "postgresql://me:********@ss/w@h/d"),
        ("a://u:p#w@h", "a://u:********@h"),
        ("a://u:p@h,b://v:q@i", "a://u:********@h,b://v:********@i"),
        ("a://u:p@h/d,b://v:q@i/e", "a://u:********@h/d,b://v:********@i/e"),
        ("options=x?password=s&a=b", "options=x?password=********&a=b"),
        ("my-pwd = 'it''s' x", "my-pwd = ******** x"),
        ("spark.hadoop.fs.s3a.access.key=abc", "spark.hadoop.fs.s3a.access.key=********"),
        ("a=password=b", "a=password=********"),
        ("password=='x'", "password=********"),
        ("keyword=5 pass=6", "keyword=5 pass=6"),
    ):
        assert mask(text) == hidden, text


def test_a_log_line_is_for_people(tmp_path: Path) -> None:
    """A key of a million letters is cut in the middle, in text and in JSON; what is hidden stays so."""
    home = make_home(tmp_path / "home")
    Path(home.globals).write_text("LOGFORMAT BOTH\n")
    report = Report(home, "REP1")
    log = Log(home, "Trailgate Replicat", "rep1.prm", RealClock(), report)
    say = log.error
    say("TG-00446", f"key {'k' * LONG} refused, password={'s' * 50}", key="k" * LONG)
    event = json.loads(Path(home.ggserr_json).read_text())
    assert event["text"].startswith("key kkk") and event["text"].endswith("refused, password=********")
    assert "characters left out" in event["text"] and "characters left out" in event["fields"]["key"]
    for written in (home.ggserr, home.ggserr_json, report.path):
        assert Path(written).stat().st_size < 4 * MAX_TEXT


def test_wildcards_go_one_way_only() -> None:
    """A peer's table names meet them: a star takes the first place that fits, and never another."""
    pattern = Pattern("s." + "*a" * 30 + "*b")
    assert not pattern.matches("s", "a" * 100_000)
    assert pattern.matches("s", "a" * 100_000 + "b")
    for text, name, found in (
        ("s.*", "", True), ("s.a*", "b", False), ("s.*a", "aba", True), ("s.a*a", "a", False), ("s.a*a", "aa", True),
        ("s.a*b*c", "aXbXbc", True), ("s.*ab*ab", "ab", False), ("s.*ab*ab", "abab", True), ("s.?*?", "a", False),
        ("s.?*?", "ab", True), ("s.*a?b*", "xaab\ny", True), ("s.**a", "ba", True),
    ):  # fmt: skip
        assert Pattern(text).matches("s", name) is found, (text, name)


def test_names_in_a_trail_are_bounded() -> None:
    """No database's are longer than a few hundred characters."""
    for wire in (["s" * 1001, "t", []], ["s", "t" * 1001, []], ["s", "t", [["c" * 1001, "text", "text", False]]]):
        with pytest.raises(TypeError, match="more than 1000 characters"):
            TableDef.from_wire(wire)


def test_numbers_and_parameter_lines_are_looked_through_once(tmp_path: Path) -> None:
    """Values of rows that look like numbers; lines that look like URLs."""
    assert _LOOKS_NUMERIC.match("1" * LONG + "x") is None
    assert all(_LOOKS_NUMERIC.match(text) for text in ("1", " +1.5e7 ", ".5", "1.", "-0"))
    assert not any(_LOOKS_NUMERIC.match(text) for text in ("", ".", "1e", "x1", "1 1"))
    path = tmp_path / "long.prm"
    path.write_text(f"EXTRACT ext1\n-- {'a.' * 50_000}\nTABLE {'a.' * 50_000};\n")
    credentials.hide_file(str(path))
    assert prmtext.read(str(path)).lines
    assert params.parse_text(path.read_text(), "long.prm")
