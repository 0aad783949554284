"""Values of an SQLite source: each storage class by its column's affinity, exact or refused by name."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extract.sources.sqlite.tables import logical
from extract.sources.sqlite.values import decimal, literal
from tests.support.mirror import Mirror
from tests.support.sqlite_source import SourceFile, capture
from tests.support.trail_script import TRAIL
from trails.errors import OperatorError
from trails.floats import double_text
from trails.testing import FaultFs

COLUMNS = (
    "CREATE TABLE v (id INTEGER PRIMARY KEY, i INT, r REAL, t VARCHAR(10), b BLOB, n DECIMAL(10, 2), d DATETIME, x, "
    "g AS (i * 2), s TEXT AS (t || '!') STORED)"
)

EXACT: list[tuple[str, Any, Any]] = [
    ("i", 2**63 - 1, "9223372036854775807"), ("i", -(2**63), "-9223372036854775808"), ("i", None, None),
    ("i", "12", "12"),  # SQLite makes a number of it
    ("r", 1, "1"), ("r", 0.1, "0.1"), ("r", 5e-324, "5e-324"), ("r", 1e16, "1e+16"), ("r", 1e15, "1e+15"),
    ("r", 123456789012345.0, "123456789012345"), ("r", -1234567890123456.0, "-1.234567890123456e+15"),
    ("r", -0.0, "0"), ("r", math.inf, "Infinity"), ("r", -math.inf, "-Infinity"), ("r", math.nan, None),
    ("t", "", ""), ("t", "a\0b", "a\0b"), ("t", "ünïcödé 𝄞", "ünïcödé 𝄞"), ("t", 7, "7"),
    ("b", b"", b""), ("b", b"\0\xff", b"\0\xff"),
    ("n", 7, "7"), ("n", 0.30000000000000004, "0.30000000000000004"), ("n", 1e300, "1" + "0" * 300),
    ("n", "1.50", "1.5"),
    ("d", "2024-02-29 23:59:59", "2024-02-29 23:59:59"),
    ("x", 1, "1"), ("x", 1.0, "1.0"), ("x", "it's", "'it''s'"), ("x", b"\x00\xff", "x'00ff'"),
    ("x", math.inf, "Infinity"),
]  # fmt: skip


def captured(file: SourceFile, *lines: str, table: str = "TABLE main.*;") -> Mirror:
    """Capture what is there."""
    fs = FaultFs()
    capture(file, fs, TRAIL, file.source(*lines, table=table))
    return Mirror.of(fs, TRAIL)


def put(file: SourceFile, column: str, value: Any) -> None:
    """One row."""
    conn = file.connect()
    conn.execute(f"INSERT INTO v ({column}) VALUES (?)", (value,))
    conn.close()


def test_every_value_arrives_exact(tmp_path: Path) -> None:
    """In the trail's canonical text; generated columns too."""
    file = SourceFile.make(tmp_path, (COLUMNS,))
    for column, value, _ in EXACT:
        put(file, column, value)
    file.run("INSERT INTO v (i, t) VALUES (21, 'gen')")
    mirror = captured(file)
    names = [column.name for column in mirror.definitions["v"].columns]
    found = [record[2][names.index(column)] for record, (column, _, _) in zip(mirror.records, EXACT, strict=False)]
    assert found == [text for _, _, text in EXACT]
    last = dict(zip(names, mirror.records[-1][2], strict=True))
    assert (last["g"], last["s"]) == ("42", "gen!")


REFUSED = [
    ("i", 1.5, "column i holds real 1.5, expected integer"),
    ("i", "many", "column i holds text 'many', expected integer"),
    ("r", "abc", "column r holds text 'abc', expected real"),
    ("t", b"\xff", "column t holds blob"),
    ("b", "text", "column b holds text 'text', expected blob"),
    ("n", "n/a", "column n holds text 'n/a', expected integer or real"),
    ("d", 1700000000, "column d holds integer 1700000000, expected text"),
]


@pytest.mark.parametrize(("column", "value", "expected"), REFUSED)
def test_another_storage_class_is_refused_by_name_unless_any(
    tmp_path: Path, column: str, value: Any, expected: str
) -> None:
    """The message names table, key, column, and the TABLE clause that takes it; with that it arrives as it is."""
    file = SourceFile.make(tmp_path, (COLUMNS,))
    put(file, column, value)
    with pytest.raises(OperatorError, match=r"table main.v, row \(1\), change \d+") as caught:
        captured(file)
    assert expected in str(caught.value)
    assert f"TABLE main.v, ANY ({column});" in str(caught.value)
    mirror = captured(file, table=f"TABLE main.v, ANY ({column});")
    names = [c.name for c in mirror.definitions["v"].columns]
    assert mirror.records[0][2][names.index(column)] == literal(value)


def test_a_null_in_the_key_is_refused(tmp_path: Path) -> None:
    """SQLite lets several rows have it."""
    file = SourceFile.make(tmp_path, ("CREATE TABLE v (k TEXT PRIMARY KEY, b)",))
    file.run("INSERT INTO v VALUES (NULL, 1), (NULL, 2)")
    with pytest.raises(OperatorError, match="column k of the key is NULL"):
        captured(file)


def test_keys_of_blobs_and_keys_in_another_case(tmp_path: Path) -> None:
    """A key that changes only its case is another key to everybody but SQLite: the old one goes along."""
    file = SourceFile.make(
        tmp_path,
        (
            "CREATE TABLE b (k BLOB PRIMARY KEY NOT NULL, v)",
            "CREATE TABLE c (k TEXT PRIMARY KEY COLLATE NOCASE NOT NULL)",
        ),
    )
    file.run(
        "INSERT INTO b VALUES (x'00', 1), (x'0001', 2)", "REPLACE INTO b VALUES (x'00', 3)",
        "UPDATE b SET k = x'ff' WHERE k = x'0001'",
        "INSERT INTO c VALUES ('a')", "UPDATE c SET k = 'A'", "REPLACE INTO c VALUES ('a')",
    )  # fmt: skip
    mirror = captured(file)
    assert mirror.sorted("b") == [(b"\x00", "3"), (b"\xff", "2")]
    assert mirror.sorted("c") == [("a",)]


def test_text_that_is_no_utf_8_keeps_its_bytes(tmp_path: Path) -> None:
    """As from an SQL_ASCII database."""
    file = SourceFile.make(tmp_path, ("CREATE TABLE v (k INTEGER PRIMARY KEY, t TEXT)",))
    file.run("INSERT INTO v VALUES (1, CAST(x'61ff62' AS TEXT)), (2, 'ok')")
    assert captured(file).sorted("v") == [("1", "a\udcffb"), ("2", "ok")]


def test_strict_tables_have_their_own_types(tmp_path: Path) -> None:
    """ANY is any; the others are what they say."""
    file = SourceFile.make(tmp_path, ("CREATE TABLE v (k INTEGER PRIMARY KEY, a ANY, i INT, t TEXT) STRICT",))
    file.run("INSERT INTO v VALUES (1, '1', 2, 'x')")
    assert captured(file).sorted("v") == [("1", "'1'", "2", "x")]


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("INTEGER", "bigint"), ("UNSIGNED BIG INT", "bigint"), ("CHARINT", "bigint"), ("NVARCHAR(9)", "text"),
        ("CLOB", "text"), ("", "any"), ("BLOB", "bytes"), ("DOUBLE PRECISION", "double"), ("FLOAT", "double"),
        ("DATE", "text"), ("TIMESTAMP", "text"), ("BOOLEAN", "decimal"), ("NUMERIC(10,5)", "decimal"),
    ],
)  # fmt: skip
def test_a_declared_type_gives_an_affinity(declared: str, expected: str) -> None:
    """By SQLite's own rules, in SQLite's own order."""
    assert logical(declared) == expected


@given(st.floats(allow_nan=False))
def test_a_doubles_text_reads_back_as_the_same_number(value: float) -> None:
    """Each of them, also as plain digits."""
    back = float(double_text(value).replace("Infinity", "inf"))
    assert math.copysign(1, back) == math.copysign(1, value) and back == value
    if math.isfinite(value):
        plain = decimal(value)
        assert plain is not None and "e" not in plain and float(plain) == value


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(), st.binary()))
def test_a_literal_reads_back_as_the_same_value_and_class(value: Any) -> None:
    """As SQLite reads it. It takes no NUL in a statement, no lone surrogate, and rounds the digits of a real."""
    made = literal(value)
    assert made is not None
    if "\0" in made or any(0xD800 <= ord(c) < 0xE000 for c in made):
        return
    (back,) = sqlite3.connect(":memory:").execute(f"SELECT {made}").fetchone()
    assert type(back) is type(value) and back == value
