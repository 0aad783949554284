"""The rules by which values go into SQLite and MySQL/MariaDB columns: exact, by a declared rule, or refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from replicat.model.copytext import render
from replicat.model.target import RefusedError
from replicat.targets.mysql.types import mysql_type
from replicat.targets.postgres import asked
from replicat.targets.postgres.types import AskedRule, keeps, postgres_type
from replicat.targets.sql import canonical
from replicat.targets.sql.canonical import UnfitError
from replicat.targets.sql.codec import Codec, Spec
from replicat.targets.sql.types import rule_for
from replicat.targets.sqlite.types import sqlite_type
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
    ("text", "decimal(6,2)", "-0.00", REFUSED),
    ("text", "decimal(6,2)", "-0.05", "-0.05"),
    ("text", "decimal(6,2)", "0", "0"),
    ("smallint", "year(4)", "99", REFUSED),
    ("smallint", "year(4)", "0", "0000"),
    ("date", "date", "0002-11-30 BC", REFUSED),
    ("json", "json", ' {"b":1e400} ', REFUSED),
    ("json", "json", '{"a": 1, "\\u0061": 1}', REFUSED),
    ("json", "json", "18446744073709551615", "18446744073709551615"),
    ("json", "json", "18446744073709551616", REFUSED),
    ("json", "json", "[1e20, -0.0, 1e-16, 100000000000000000000]", "[1e20, -0.0, 1e-16, 1e20]"),
    ("json", "json", "0.1234567890123456789", REFUSED),
    ("json", "json", "NaN", REFUSED),
    ("json", "json", '"\\ud800"', REFUSED),
    ("json", "json", "{bad", REFUSED),
    ("json", "json", "[" * 100000, REFUSED),
    ("text", "json", '{"a": 1}', '{"a": 1}'),
    ("text", "json", '{"a":1}', REFUSED),
    ("date", "date", "infinity", REFUSED),
    ("date", "date", "10000-01-01", REFUSED),
    ("date", "datetime", "2024-02-29", "2024-02-29"),
    ("timestamp", "datetime(3)", "2024-01-01 00:00:00.1234", REFUSED),
    ("timestamp", "datetime(3)", "2024-01-01 00:00:00.123", "2024-01-01 00:00:00.123"),
    ("timestamptz", "datetime(6)", "2024-01-01 00:00:00.5+00", "2024-01-01 00:00:00.5"),
    ("timestamptz", "datetime(6)", "-infinity", REFUSED),
    ("timestamptz", "datetime(6)", "0044-03-15 12:00:00+00 BC", REFUSED),
    ("date", "date", "0000-00-00", "0000-00-00"),
    ("date", "date", "2024-02-31", "2024-02-31"),
    ("text", "date", "2024-02-31", REFUSED),
    ("text", "date", "0000-00-00", REFUSED),
    ("text", "datetime", "2024-00-15 00:00:00", REFUSED),
    ("text", "datetime", "2024-02-29 00:00:00", "2024-02-29 00:00:00"),
    ("timestamp", "datetime", "2024-00-15 12:34:56", "2024-00-15 12:34:56"),
    ("timestamptz", "timestamp(6)", "0000-00-00 00:00:00+00", "0000-00-00 00:00:00"),
    ("timestamptz", "timestamp(6)", "1969-12-31 23:59:59+00", REFUSED),
    ("time", "time(6)", "-838:59:59.999999", "-838:59:59.999999"),
    ("time", "time(6)", "839:00:00", REFUSED),
    (
        "geometry",
        "point",
        "0101000000000000000000F03F0000000000000040",
        "000000000101000000000000000000F03F0000000000000040",
    ),
    (
        "geometry",
        "geometry",
        "0101000020E6100000000000000000F03F0000000000000040",
        "E61000000101000000000000000000F03F0000000000000040",
    ),
    ("geometry", "geometry", "0101000080" + "00" * 24, REFUSED),
    ("geometry", "geometry", "00" * 21, REFUSED),
    ("geometry", "longtext", "0101", "0101"),
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
    ("geometry", "BLOB", "0101000000", "0101000000"),
    ("date", "DATE", "0000-00-00", "0000-00-00"),
    ("time", "TEXT", "-838:59:59.999999", "-838:59:59.999999"),
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


@pytest.mark.parametrize(
    ("back", "value", "text"),
    [
        (canonical.boolean_back, 1, "true"), (canonical.boolean_back, 0.0, "false"), (canonical.boolean_back, 5, "5"),
        (canonical.boolean_back, "maybe", "maybe"), (canonical.whole_back, 7.0, "7"),
        (canonical.whole_back, 7.5, "7.5"),
        (canonical.date_of_moment, "2024-02-29 00:00:00.000000", "2024-02-29"),
        (canonical.date_of_moment, "2024-02-29 15:30:00.000000", "2024-02-29 15:30:00"),
        (canonical.money_back, "-1234.5", "-$1,234.50"), (canonical.money_back, "1.239", "$1.239"),
    ],
)  # fmt: skip
def test_I8_what_somebody_else_wrote_is_read_as_it_is(back: Any, value: Any, text: str):
    """No value of the source's type became it, and conflict rules must see that."""
    assert back(value) == text


def test_what_cannot_go_into_a_column_at_all_is_told_before_any_row():
    with pytest.raises(OperatorError, match=r"s\.t, column p: values of type bytes can't go into date"):
        Codec("s.t", [Spec("p", "bytes", mysql_type("date"))])


def test_I8_mysqls_own_json_counts_what_it_changes():
    """Blanks, order of keys, a zero behind the point; as MySQL prints it, nothing is lost. Numbers: no JSON."""
    codec = Codec("s.t", [Spec("p", "json", mysql_type("json"))])
    rows = codec.rows(render([['{"b":1.10,"aa":2,"a":"\\u00e9"}'], ['{"a": [0.3, null]}'], [None]])[0])
    assert rows == [('{"a": "é", "b": 1.1, "aa": 2}',), ('{"a": [0.3, null]}',), (None,)]
    assert codec.take_lost() == 1
    with pytest.raises(OperatorError, match="values of type integer can't go into json"):
        Codec("s.t", [Spec("p", "integer", mysql_type("json"))])


def test_a_refusal_names_table_column_value_and_key():
    specs = [Spec("id", "integer", mysql_type("int(11)")), Spec("d", "date", mysql_type("date"))]
    data, _, _ = render([["1", "2024-01-01"], ["2", None], ["3", "infinity"]])
    with pytest.raises(RefusedError, match=r"s\.t: column d \(date\) of row \(3\): date value 'infinity'") as caught:
        Codec("s.t", specs, ["id"]).rows(data)
    assert caught.value.sqlstate == "22008"


def test_null_where_the_column_would_make_up_a_value():
    codec = Codec("s.t", [Spec("id", "integer", mysql_type("int(11) auto_increment"), required=True)])
    with pytest.raises(RefusedError) as caught:
        codec.rows(render([["1"], [None]])[0])
    assert caught.value.sqlstate == "23502"


def test_text_comes_back_as_it_was_and_losses_are_counted():
    rows = [["a\\\t\n\r\\N", "1.50"], [None, "-0"], ["\x00 é𝄞", "2"], ["\\x41", None]]
    specs = [Spec("v", "text", sqlite_type("TEXT")), Spec("n", "double", sqlite_type("REAL"))]
    codec = Codec("s.t", specs)
    data, _, _ = render(rows)
    assert codec.rows(data) == [
        ("a\\\t\n\r\\N", 1.5),
        (None, -0.0),
        ("\x00 é𝄞", 2.0),
        ("\\x41", None),
    ]
    assert codec.take_lost() == 1
    with pytest.raises(RefusedError) as caught:
        codec.rows(render([["\udcff", "1"]])[0])
    assert caught.value.sqlstate == "22021"


@pytest.mark.parametrize(
    ("native", "column", "kept"),
    [
        ("numeric(10,2)", "numeric(10,2)", True),
        ("numeric(10,2)", "numeric(6,4)", True),
        ("numeric(10,2)", "numeric", True),
        ("numeric(10,4)", "numeric(12,2)", False),
        ("numeric", "numeric(12,2)", False),
        ("character varying(5)", "character varying(9)", True),
        ("character varying", "character varying(9)", False),
        ("character(5)", "character varying(5)", False),
        ("timestamp(3) without time zone", "timestamp(6) without time zone", True),
        ("timestamp without time zone", "timestamp(6) without time zone", False),
        ("timestamp(3) without time zone", "timestamp(3) with time zone", False),
        ("numeric(6,4)[]", "numeric(6,2)[]", False),
        ("public.mood", "public.mood", False),
        ("", "text", False),
    ],
)
def test_a_source_type_that_a_postgresql_column_keeps(native: str, column: str, kept: bool):
    """The same type, or a wider one: no value of it is looked at. A type of a user's says nothing by its name."""
    assert keeps(native, column) is kept


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize(("value", "odd"), [("1.234", True), ("1e5", True), ("1.23", False), ("\\N", False)])
def test_a_number_with_more_digits_than_its_column_keeps_is_found(
    at: int, value: str, odd: bool, monkeypatch: pytest.MonkeyPatch
):
    """In each row, on both sides of each border of pieces; not where another column has such a text."""
    monkeypatch.setattr(asked, "_PIECE", 2)
    native = postgres_type("numeric(14,2)")
    rule = rule_for("decimal", native)
    assert isinstance(rule, AskedRule)
    column = asked.AskedColumn(at, "n", native, rule)
    for row in range(5):
        rows = [["1.234"] * 3 for _ in range(5)]
        for one in rows:
            one[at] = "-1.50"
        rows[row][at] = value
        assert column.has_shape(["\t".join(one).encode() for one in rows]) == odd
