"""The rules by which values go into SQLite and MySQL/MariaDB columns: exact, by a declared rule, or refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from replicat.net.copytext import render
from replicat.target import RefusedError
from replicat.targets import canonical
from replicat.targets.codec import Codec, Spec
from replicat.targets.types import UnfitError, mysql_type, rule_for, sqlite_type
from trails.errors import OperatorError

REFUSED = UnfitError


def _sent(logical: str, native: Any, text: str) -> Any:
    rule = rule_for(logical, native)
    assert rule is not None
    return text if rule.convert is None else rule.convert(text)


MYSQL = [
    ("integer", "bigint(20)", "-7", "-7"),
    ("boolean", "tinyint(1)", "true", "1"),
    ("boolean", "varchar(5)", "false", "false"),
    ("decimal", "decimal(10,2)", "1.10", "1.10"),
    ("decimal", "decimal(10,2)", "NaN", REFUSED),
    ("decimal", "bigint(20)", "12.00", "12"),
    ("decimal", "bigint(20)", "12.5", REFUSED),
    ("decimal", "double", "0.1", "0.1"),
    ("decimal", "double", "0.12345678901234567", REFUSED),
    ("double", "float", "0.1", REFUSED),
    ("double", "float", "0.5", "0.5"),
    ("real", "float", "0.1", "0.10000000149011612"),
    ("double", "double", "Infinity", REFUSED),
    ("double", "decimal(20,3)", "1e+16", "10000000000000000"),
    ("text", "char(3)", "a ", REFUSED),
    ("char", "char(3)", "a  ", "a"),
    ("char", "varchar(3)", "a  ", "a  "),
    ("text", "enum('a','b')", "a", "a"),
    ("text", "enum('a','b')", "1", REFUSED),
    ("text", "enum('a','b')", "A", REFUSED),
    ("enum", "enum('it''s','x')", "it's", "it's"),
    ("text", "set('a','b')", "b,a", REFUSED),
    ("text", "int(11)", "007", REFUSED),
    ("text", "int(11)", "-0", REFUSED),
    ("text", "int(11)", "7", "7"),
    ("smallint", "year(4)", "99", REFUSED),
    ("smallint", "year(4)", "0", "0000"),
    ("date", "date", "0002-11-30 BC", REFUSED),
    ("date", "date", "infinity", REFUSED),
    ("date", "date", "10000-01-01", REFUSED),
    ("date", "datetime", "2024-02-29", "2024-02-29"),
    ("timestamp", "datetime(3)", "2024-01-01 00:00:00.1234", REFUSED),
    ("timestamp", "datetime(3)", "2024-01-01 00:00:00.123", "2024-01-01 00:00:00.123"),
    ("timestamptz", "datetime(6)", "2024-01-01 00:00:00.5+00", "2024-01-01 00:00:00.5"),
    ("timestamptz", "datetime(6)", "-infinity", REFUSED),
    ("timestamptz", "datetime(6)", "0044-03-15 12:00:00+00 BC", REFUSED),
    ("time", "time(2)", "24:00:00", "24:00:00"),
    ("time", "time(2)", "12:00:00.123", REFUSED),
    ("bits", "bit(5)", "10101", "10101"),
    ("bits", "bit(5)", "101", REFUSED),
    ("bytes", "binary(2)", "\\x00ff", "\\x00ff"),
    ("bytes", "binary(3)", "\\x00ff", REFUSED),
    ("money", "decimal(19,2)", "-$1,234,567.89", "-1234567.89"),
    ("uuid", "binary(16)", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc999c0b4ef8bb6d6bb9bd380a11"),
    ("other", "inet6", "10.0.0.1", REFUSED),
]
SQLITE = [
    ("bigint", "INTEGER", "9223372036854775807", 9223372036854775807),
    ("bigint", "REAL", "9223372036854775807", REFUSED),
    ("boolean", "BOOLEAN", "true", 1),
    ("decimal", "TEXT", "1.10", "1.10"),
    ("decimal", "DECIMAL(10,2)", "1.10", 1.1),
    ("decimal", "DECIMAL(10,2)", "2.00", 2),
    ("decimal", "NUMERIC", "12345678901234567.5", REFUSED),
    ("decimal", "NUMERIC", "NaN", REFUSED),
    ("decimal", "NUMERIC", "9" * 5000, REFUSED),
    ("decimal", "INTEGER", "9" * 5000, REFUSED),
    ("text", "INTEGER", "9" * 5000, REFUSED),
    ("double", "REAL", "NaN", REFUSED),
    ("double", "REAL", "-Infinity", -math.inf),
    ("double", "NUMERIC", "0.30000000000000004", 0.30000000000000004),
    ("text", "INTEGER", "12", "12"),
    ("text", "INTEGER", "1e3", REFUSED),
    ("text", "NUMERIC", " 12", REFUSED),
    ("text", "REAL", "12", REFUSED),
    ("text", "NUMERIC", "2024-01-01", "2024-01-01"),
    ("timestamp", "DATETIME", "2024-01-01 00:00:00", "2024-01-01 00:00:00"),
    ("bytes", "BLOB", "\\x00ff", b"\x00\xff"),
    ("bytes", "TEXT", "\\x00ff", b"\x00\xff"),
]


@pytest.mark.parametrize(("logical", "column", "text", "expected"), MYSQL)
def test_mysql_rules(logical: str, column: str, text: str, expected: Any):
    if expected is REFUSED:
        with pytest.raises(UnfitError):
            _sent(logical, mysql_type(column), text)
    else:
        assert _sent(logical, mysql_type(column), text) == expected


@pytest.mark.parametrize(("logical", "column", "text", "expected"), SQLITE)
def test_sqlite_rules(logical: str, column: str, text: str, expected: Any):
    if expected is REFUSED:
        with pytest.raises(UnfitError):
            _sent(logical, sqlite_type(column), text)
    else:
        sent = _sent(logical, sqlite_type(column), text)
        assert (type(sent), sent) == (type(expected), expected)


def test_strict_sqlite_types():
    assert sqlite_type("INT", strict=True).family == "integer"
    assert sqlite_type("ANY", strict=True).family == "any"
    assert _sent("bytes", sqlite_type("TEXT", strict=True), "\\x00ff") == "\\x00ff"
    with pytest.raises(UnfitError):
        _sent("decimal", sqlite_type("INTEGER", strict=True), "1.5")


@pytest.mark.parametrize(
    "text", ["1e+16", "0.1", "1e-05", "123456789012345", "1e+15", "5e-324", "-0", "0", "-Infinity"]
)
def test_a_double_is_printed_as_postgresql_does(text: str):
    assert canonical.double_back(float(text)) == text


@pytest.mark.parametrize("text", ["3.4028235e+38", "1e-45", "0.1", "1.6777216e+07", "-0", "100000", "1e+06"])
def test_a_real_is_printed_as_postgresql_does(text: str):
    assert canonical.real_back(canonical.real_text(text)) == text


def test_what_cannot_go_into_a_column_at_all_is_told_before_any_row():
    with pytest.raises(OperatorError, match=r"s\.t, column p: values of type bytes can't go into date"):
        Codec("s.t", [Spec("p", "bytes", mysql_type("date"))])


def test_a_refusal_names_table_column_value_and_key():
    specs = [Spec("id", "integer", mysql_type("int(11)")), Spec("d", "date", mysql_type("date"))]
    data, _, _ = render([["1", "2024-01-01"], ["2", None], ["3", "infinity"]])
    with pytest.raises(RefusedError, match=r"s\.t: column d \(date\) of row \(3\): date value 'infinity'") as caught:
        Codec("s.t", specs, ["id"]).rows(data)
    assert caught.value.sqlstate == "22008"


def test_null_where_the_column_would_make_up_a_value():
    codec = Codec("s.t", [Spec("id", "integer", mysql_type("int(11) auto_increment"), required=True)])
    with pytest.raises(RefusedError) as caught:
        codec.rows(b"1\n\\N\n")
    assert caught.value.sqlstate == "23502"


def test_text_comes_back_from_copy_text_as_it_was_and_losses_are_counted():
    rows = [["a\\\t\n\r\\N", "1.50"], [None, "-0"], ["\x00 é𝄞", "2"], ["\\x41", None]]
    specs = [Spec("v", "text", sqlite_type("TEXT")), Spec("n", "double", sqlite_type("REAL"))]
    codec = Codec("s.t", specs)
    data, _, _ = render(rows)
    assert codec.rows(data) == [("a\\\t\n\r\\N", 1.5), (None, -0.0), ("\x00 é𝄞", 2.0), ("\\x41", None)]
    assert codec.lost == 1
    with pytest.raises(RefusedError) as caught:
        codec.rows(b"\xff\t1\n")
    assert caught.value.sqlstate == "22021"
