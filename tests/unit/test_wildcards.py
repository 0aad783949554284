"""Unit tests of `Pattern.covers` and `narrowest`: which TABLE or MAP is the narrower one."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trails.runtime.language.params import Pattern, narrowest
from trails.runtime.language.wildcards import covers, glob


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("sales.*", "sales.orders", True),
        ("sales.orders", "sales.*", False),
        ("*.*", "sales.*", True),
        ("sales.*", "*.orders", False),
        ("sales.ord*", "sales.order_*", True),
        ("sales.*s", "sales.ord*", False),
        ("sales.?*", "sales.*a", True),
        ("sales.*?", "sales.?*", True),
        ("sales.*a*", "sales.b?*a", True),
        ("sales.??", "sales.*", False),
        ('sales."*"', "sales.*", False),
        ("sales.*", 'sales."*"', True),
        ("sales.orders", 'sales."Orders"', False),
    ],
)
def test_covers(wide: str, narrow: str, expected: bool) -> None:
    """Covering is decided for all names, quoted and not, whatever tables exist."""
    assert Pattern(wide).covers(Pattern(narrow)) is expected


@given(st.text("ab*?", max_size=4), st.text("ab*?", max_size=4))
def test_covers_is_inclusion(wide: str, narrow: str) -> None:
    """Against the definition: every name of up to five letters (z is one that neither pattern names)."""
    a, b = Pattern(f"s.x{wide}"), Pattern(f"s.x{narrow}")
    names = ["x" + "".join(letters) for n in range(6) for letters in product("abz", repeat=n)]
    assert a.covers(b) == all(a.matches("s", name) for name in names if b.matches("s", name))


def test_long_patterns_are_decided_at_once() -> None:
    """Names of the greatest length a database has: the work does not grow with the number of texts they match."""
    tail = "?" * 60
    assert covers(glob("*a" + tail, False), glob("b*a" + tail, False))
    assert not covers(glob("*b" + tail, False), glob("*a" + tail, False))
    assert covers(glob("*a*b*c" + tail, False), glob("x*a?b*a*b??c" + tail, False))


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        (["*.*", "sales.*", "sales.orders"], [2]),
        (["sales.ord*", "sales.*s"], [0, 1]),
        (["sales.ord*", "sales.*s", "sales.orders"], [2]),
        (["sales.*", "*.*", "SALES.*"], [0, 2]),
        (["sales.*"], [0]),
        ([], []),
    ],
)
def test_narrowest(patterns: list[str], left: list[int]) -> None:
    """Exact beats wildcard, narrower beats wider; equals and mere overlaps stay side by side."""
    assert narrowest([Pattern(text) for text in patterns]) == left
