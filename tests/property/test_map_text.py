"""Any text in a Replicat's parameter file gives a value or ParamErrors, each with its place, and no other exception."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from replicat.maps.options import MAP_OPTIONS
from replicat.model.mapparams import CONFLICTS, MapRule
from replicat.params import KEYWORDS, ReplicatParams
from tests.support.hostile import hostile
from trails.runtime.language.params import ParamErrors, parse_text

HEAD = "REPLICAT r\nTARGETDB postgresql://u@h/d\n"
WORDS = st.sampled_from(
    [
        *MAP_OPTIONS, "SQLEXEC", "EVENTACTIONS", *CONFLICTS, "USEDEFAULTS", "ON", "UPDATE", "DELETE", "ALL",
        "KEYINCLUDING", "DEFAULT", "USEMAX", "USEDELTA", "DISCARD", "TARGET", "s.*", "p.t", "a", "b", "@IF", "@STRCAT",
        "@NONE", "=", "||", "->", "'", '"', "`", "(", ")", ",", ";", "--", "&", "\n", "'x'", '"X y"', "5", "\\", "\x00",
        "é", "CASE WHEN a THEN 1 END",
    ]
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(WORDS, max_size=25).map(" ".join), st.lists(WORDS, max_size=25).map("".join), st.text(max_size=60)
)


def check(text: str) -> None:
    """A value, or mistakes with their places."""
    mistakes: list[str] = []
    try:
        params = ReplicatParams.from_statements(parse_text(text, "r.prm"), "r.prm")
        assert all(isinstance(rule, MapRule) for rule in params.maps)
    except ParamErrors as error:
        mistakes = [str(one) for one in error.errors]
    lines = max(1, len(text.splitlines()))
    for mistake in mistakes:
        place = re.match(r"r\.prm(?::(\d+))?: ", mistake)
        assert place is not None, mistake
        assert int(place[1] or 1) <= lines, mistake


@hostile(300)
@given(TEXTS)
@example("COLMAP (a = @IF (b")
@example("FILTER (ON INSERT, ')'")
def test_any_options_of_a_map(text: str) -> None:
    """Whatever stands behind MAP s.t, TARGET p.t."""
    check(f"{HEAD}MAP s.t, TARGET p.t,\n{text};\n")


@hostile(200)
@given(st.sampled_from([name for name in MAP_OPTIONS if MAP_OPTIONS[name].takes == "group"]), TEXTS)
def test_any_argument_of_an_option(option: str, text: str) -> None:
    """Whatever stands in its parentheses."""
    check(f"{HEAD}MAP s.t, TARGET p.t, {option} ({text});\n")


@hostile(200)
@given(st.sampled_from(sorted(KEYWORDS)), TEXTS)
def test_any_argument_of_a_parameter(keyword: str, text: str) -> None:
    """Whatever stands behind a keyword."""
    check(f"{HEAD}{keyword} {text}\nMAP s.t, TARGET p.t;\n")
