"""Values compared by logical type."""

from __future__ import annotations

import pytest

from replicat.work.conflicts.comparing import below, number, same


@pytest.mark.parametrize(
    ("logical", "one", "other"),
    [
        ("integer", "7", "07"), ("decimal", "1.50", "1.5"), ("decimal", "NaN", "NaN"),
        ("double", "1e+16", "10000000000000000"),
        ("double", "-0", "0"), ("money", "-$1,234.50", "-$1234.5"), ("boolean", "t", "true"), ("char", "a  ", "a"),
        ("timestamp", "2024-01-01 10:00:00.500", "2024-01-01 10:00:00.5"),
        ("timestamp", "2024-01-01T10:00:00", "2024-01-01 10:00:00"),
        ("timestamptz", "2024-01-01 12:00:00+02", "2024-01-01 10:00:00+00"),
        ("timetz", "12:00:00+02:00", "10:00:00+00"),
        ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc999c0b4ef8bb6d6bb9bd380a11"),
        ("json", '{"a": 1, "b": [1.0]}', '{"b":[1.00],"a":1}'), ("bytes", b"\x00\xff", "\\x00ff"), ("text", None, None),
    ],
)  # fmt: skip
def test_equal(logical: str, one: str, other: str):
    """Different texts of one value."""
    assert same(logical, one, other)
    assert not below(logical, one, other)


@pytest.mark.parametrize(
    ("logical", "low", "high"),
    [
        ("bigint", "9", "10"), ("integer", "-10", "-9"), ("decimal", "Infinity", "NaN"), ("decimal", "-Infinity", "0"),
        ("text", "10", "9"), ("text", "a", "a "), ("boolean", "false", "true"), ("date", "0002-11-30 BC", "0001-01-01"),
        ("date", "0003-01-01 BC", "0002-11-30 BC"), ("date", "9999-12-31", "10000-01-01"),
        ("date", "-infinity", "0001-01-01 BC"),
        ("timestamp", "2024-02-29 23:59:59.999999", "2024-03-01 00:00:00"),
        ("timestamp", "2024-01-01 10:00:00", "infinity"),
        ("timestamp", "2024-01-01 10:00:00", "2024-01-01 10:00:00.1"), ("time", "23:59:59", "24:00:00"),
        ("text", None, ""), ("bytes", b"\x01", b"\x02"), ("double", "2", "1e1"),
    ],
)  # fmt: skip
def test_ordered(logical: str, low: str, high: str):
    """NULL is below everything, NaN above all numbers."""
    assert below(logical, low, high)
    assert not below(logical, high, low)
    assert not same(logical, low, high)


def test_what_is_no_value_of_its_type_is_compared_as_text():
    """Nothing raises: the text is all there is."""
    assert same("date", "noon", "noon")
    assert not same("date", "noon", "night")
    assert below("integer", "7", "seven")


def test_numbers():
    """Finite ones only."""
    assert str(number("decimal", "1.50")) == "1.50"
    assert [number(*each) for each in (("decimal", "NaN"), ("text", "1"), ("integer", None))] == [None] * 3
