"""docs/parameters.md is the programs' keyword tables, and every example in it is accepted by its program's parser."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggsci.parameters import PROGRAMS, about, reference
from replicat.maps.options import MAP_OPTIONS
from trails.errors import ParamError
from trails.runtime.language.params import LANGUAGE, parse_file, parse_text

PAGE = Path(__file__).parents[2] / "docs" / "parameters.md"
EXAMPLES = [
    pytest.param(keywords, keyword, id=f"{program} {keyword.name}")
    for program, _, keywords in PROGRAMS
    for keyword in keywords.values()
    if keyword.name not in LANGUAGE
]


def test_the_page_is_made_from_the_tables():
    """Run `python -m ggsci.parameters > docs/parameters.md` after a change of a table."""
    assert PAGE.read_text() == reference()


@pytest.mark.parametrize(("keywords", "keyword"), EXAMPLES)
def test_every_example_is_accepted(keywords, keyword):
    """Help and an example for every keyword; the example parses as that keyword (a comment as nothing)."""
    assert keyword.help
    statements = parse_text(keyword.example, "example")
    if keyword.name == "COMMENT":
        assert not statements
        return
    assert [statement.keyword for statement in statements] == [keyword.name]
    assert not statements[0].fault
    if keyword.refused:
        with pytest.raises(ParamError, match="is not supported: "):
            keyword.parse(statements[0])
        return
    keyword.parse(statements[0])


@pytest.mark.parametrize("keyword", LANGUAGE.values(), ids=LANGUAGE)
def test_every_example_of_the_language_is_obeyed(keyword, tmp_path):
    """A word of the language leaves no statement of its own, and its example no fault."""
    folder = tmp_path / "dirprm"
    folder.mkdir()
    for name in ("library.inc", "common.prm"):
        (folder / name).write_text("-- nothing\n")
    (folder / "x.prm").write_text(f"{keyword.example}\n")
    assert keyword.help
    assert parse_file(str(folder / "x.prm"), {}) == []


def test_help_explains_parameters_and_the_options_of_map():
    """Those of several programs once for each; what is none gives nothing."""
    text = "\n".join(about("map"))
    assert "Replicat: MAP source.table, TARGET target.table" in text
    assert all(f"    {name}" in text for name in MAP_OPTIONS)
    assert "MAP ..., KEYCOLS (target column, ...)" in about("KEYCOLS")
    both = "\n".join(about("checkpointtable"))
    assert "Replicat: CHECKPOINTTABLE" in both
    assert "GLOBALS: CHECKPOINTTABLE" in both
    assert about("nothing") == []
