"""docs/functions.md is the table of @functions, and every example in it is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from replicat.maps.expressions.functions import FUNCTIONS, Function, reference, translate

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"


def test_the_page_is_made_from_the_table():
    """Run `python -m replicat.maps.expressions.functions > docs/functions.md` after a change of the table."""
    assert PAGE.read_text() == reference()


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda function: function.name)
def test_every_example_is_translated(function: Function):
    """Help and an example for every function; what comes out has no @function any more."""
    assert function.help
    assert f"@{function.name} " in function.example
    assert "@" not in translate(function.example, "example")
