"""Canonical text to what Spark casts: exactly, or so that the cast fails that row and no other."""

from __future__ import annotations

import pytest

from replicat.maps.expressions.sparktext import to_spark


@pytest.mark.parametrize("type_", ["DATE", "TIMESTAMP", "TIMESTAMP_NTZ"])
@pytest.mark.parametrize(
    ("text", "cast"),
    [
        ("2001-02-03", "2001-02-03"), ("0044-03-15 BC", "-0043-03-15"), ("0001-12-31 BC", "0000-12-31"), (None, None),
        # Nothing that a source writes: a trail may have been made by anybody.
        ("", ""), ("C", "C"), (" BC", " BC"), ("x-1 BC", "x-1 BC"), ("\u0664-1 BC", "\u0664-1 BC"), ("-1 BC", "-1 BC"),
    ],
)  # fmt: skip
def test_a_year_before_christ_is_a_number_and_anything_else_is_left_alone(type_: str, text: str, cast: str) -> None:
    convert = to_spark(type_)
    assert convert is not None
    assert convert(text) == cast
