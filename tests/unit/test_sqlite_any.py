"""Values of type `any` at an SQLite target: exact with their storage class, or refused."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extract.sources.sqlite.values import decimal
from extract.sources.sqlite.values import literal as of_source
from replicat.targets.sql.canonical import UnfitError
from replicat.targets.sql.types import rule_for
from replicat.targets.sqlite.numbers import literal, number_of, value_of
from replicat.targets.sqlite.types import sqlite_type

VALUES = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(), st.binary())


@given(VALUES)
def test_source_and_target_mean_the_same(value: Any) -> None:
    """What the source writes the target reads, and writes again so."""
    text = of_source(value)
    assert text is not None
    back = value_of(text)
    assert type(back) is type(value) and back == value
    assert literal(back) == text


@pytest.mark.parametrize("declared", ["INTEGER", "NUMERIC", "REAL", "TEXT", "BLOB", ""])
@given(VALUES)
def test_a_column_keeps_the_class_or_the_value_is_refused(declared: str, value: Any) -> None:
    """Held against SQLite's own affinity."""
    rule = rule_for("any", sqlite_type(declared))
    assert rule is not None and rule.convert is not None
    try:
        converted = rule.convert(of_source(value) or "")
    except UnfitError:
        return
    conn = sqlite3.connect(":memory:")
    conn.execute(f"CREATE TABLE t (c {declared})")
    try:
        conn.execute("INSERT INTO t VALUES (?)", (converted,))
    except UnicodeEncodeError:
        return  # a lone surrogate: the target refuses it by name
    (found,) = conn.execute("SELECT c FROM t").fetchone()
    conn.close()
    assert type(found) is type(value) and found == value


@pytest.mark.parametrize(
    ("declared", "text"),
    [("INTEGER", "'12'"), ("INTEGER", "1.0"), ("TEXT", "1"), ("TEXT", "1.5"), ("REAL", "1"), ("NUMERIC", "' 1e3 '")],
)
def test_what_an_affinity_would_change_is_refused(declared: str, text: str) -> None:
    """Never another class in silence."""
    rule = rule_for("any", sqlite_type(declared))
    assert rule is not None and rule.convert is not None
    with pytest.raises(UnfitError):
        rule.convert(text)


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_number_of_a_numeric_column_comes_back_as_it_was(value: float) -> None:
    """As SQLite itself keeps it there: digits of a double are up to 17, and none is lost."""
    conn = sqlite3.connect(":memory:")
    conn.execute("CREATE TABLE t (c NUMERIC)")
    conn.execute("INSERT INTO t VALUES (?)", (value,))
    (kept,) = conn.execute("SELECT c FROM t").fetchone()
    conn.execute("UPDATE t SET c = ?", (number_of(decimal(kept) or ""),))
    (found,) = conn.execute("SELECT c FROM t").fetchone()
    conn.close()
    assert type(found) is type(kept) and found == kept


@pytest.mark.parametrize("text", ["0.12345678901234567", "123456789012345678901234567890.5", "NaN", "Infinity"])
def test_a_number_that_no_double_is_is_refused(text: str) -> None:
    """As before: it would be another number."""
    with pytest.raises(UnfitError):
        number_of(text)
