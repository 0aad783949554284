"""Ranges of keys: each row of a source is in the one chunk that Python finds for its key, whatever its type is."""

from __future__ import annotations

import random
import sqlite3
import string
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from demo.mysqld import Mysqld
from demo.servers import PostgresServer
from replicat.model.loading import BYTES, INT, ordered
from replicat.reading.contract import WHOLE, Range, Reader
from replicat.reading.kinds import open_reader
from trails.record import Column, TableDef

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
DICE = random.Random(20261123)
LETTERS = string.ascii_letters + string.digits + " _-'\"\\%\t\n~äÄßéÉøŁž€中文\u0301\ufeff\uffff𝄞👩👧"


def _texts(count: int, longest: int = 8) -> list[str]:
    drawn = ["".join(DICE.choices(LETTERS, k=DICE.randint(1, longest))) for _ in range(count)]
    fixed = ["", "a", "A", "a ", "a  ", "b", "B", "a\x01", "á", "Á", "ab", "aB", "Ab", "ß", "ss", "z", "Z",
             "\U0001f600", "\uff21", "a-b", "ab-", "a'b", "a\\b", "%s", "co-op", "coop"]  # fmt: skip
    return list(dict.fromkeys(fixed + drawn))


WHOLE_NUMBERS = sorted({0, -1, 1, 9, 10, -9, -10, 99, 100, *(DICE.randint(-(2**63), 2**63 - 1) for _ in range(60))})
SMALL = sorted({-32768, 32767, *(DICE.randint(-500, 500) for _ in range(60))})
PLUS = sorted({0, 2**63, 2**64 - 1, *(DICE.randint(0, 2**64 - 1) for _ in range(60))})
UUIDS = [str(uuid.UUID(int=DICE.getrandbits(128), version=DICE.choice((1, 4)))) for _ in range(60)]
BLOBS = [b"", b"\0", b"\0\0", b"\xff", b"a", *(DICE.randbytes(DICE.randint(1, 6)) for _ in range(60))]
PAIRS = [(a, b) for a in (-2, 10, 9, 3) for b in _texts(16)]


@dataclass(frozen=True)
class Keyed:
    """A table's key: columns as (SQL type, logical type, native type), values, and the orders to be found.

    `indexed`: an index finds its ranges, so that there may be many of them.
    """

    name: str
    columns: tuple[tuple[str, str, str], ...]
    rows: Sequence[tuple[Any, ...]]
    orders: tuple[str, ...] | None
    index: str = ""

    @property
    def definition(self) -> tuple[Column, ...]:
        return (*(Column(f"k{n}", kind, native, True) for n, (_, kind, native) in enumerate(self.columns)),
                Column("other", "text", "text"))  # fmt: skip


def _one(name: str, sql: str, kind: str, values: Sequence[Any], order: str | None, native: str = "") -> Keyed:
    return Keyed(name, ((sql, kind, native or sql),), [(value,) for value in values], (order,) if order else None)


MOMENTS = [f"20{DICE.randint(10, 24)}-0{DICE.randint(1, 9)}-1{DICE.randint(0, 9)} 1{DICE.randint(0, 9)}:00:0"
           f"{DICE.randint(0, 9)}.{DICE.choice(['5', '05', '000001', '45', '0'])}" for _ in range(60)]  # fmt: skip

POSTGRES = [
    _one("p_int", "bigint", "bigint", WHOLE_NUMBERS, INT),
    _one("p_small", "smallint", "smallint", SMALL, INT),
    _one("p_uuid", "uuid", "uuid", UUIDS, BYTES),
    _one("p_bytes", "bytea", "bytes", BLOBS, BYTES),
    _one("p_plain", 'text COLLATE "C"', "text", _texts(150), BYTES),
    _one("p_default", "text", "text", _texts(150), BYTES),
    _one("p_de", 'varchar(40) COLLATE "de-x-icu"', "text", _texts(150), BYTES),
    _one("p_fold", "text COLLATE folded", "text", ["a", "B", "c", "Z", "á", "x ", "10", "9"], BYTES),
    _one("p_char", 'char(9) COLLATE "C"', "char", ["a", "a\x01", "b", "B", "ä", "", "a b", *"qwertyuio"], BYTES),
    _one("p_moment", "timestamp", "timestamp", [*MOMENTS, "infinity", "-infinity", "0044-03-15 12:00:00 BC"], BYTES),
    _one("p_numeric", "numeric(20,2)", "decimal", [f"{n}.5" for n in range(-30, 30)], BYTES),
    _one("p_truth", "boolean", "boolean", [True, False], BYTES),
    Keyed("p_pair", (("integer", "integer", "integer"), ('text COLLATE "C"', "text", "text")), PAIRS, (INT, BYTES)),
    Keyed("p_half", (("integer", "integer", "integer"), ('text COLLATE "de-x-icu"', "text", "text")), PAIRS, (INT,)),
    Keyed("p_turned", (("integer", "integer", "integer"), ("bigint", "bigint", "bigint")),
          [(a, b) for a in range(8) for b in range(8)], (INT,), "k1, k0"),
]  # fmt: skip
_FOLDED = list(
    {text.casefold().rstrip(): text for text in _texts(60) if text.isascii() and "\x01" not in text}.values()
)
BOTH = [
    _one("m_int", "bigint", "bigint", WHOLE_NUMBERS, INT),
    _one("m_plus", "bigint unsigned", "decimal", PLUS, INT),
    _one("m_zeros", "int(9) zerofill", "bigint", range(0, 600, 7), INT, "int(9) unsigned zerofill"),
    _one("m_whole", "decimal(20,0)", "decimal", WHOLE_NUMBERS, INT),
    _one("m_part", "decimal(20,2)", "decimal", [f"{n}.50" for n in range(-30, 30)], BYTES),
    _one("m_year", "year", "smallint", [0, *range(1990, 2060)], INT),
    _one("m_general", "varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", "text", _FOLDED, BYTES),
    _one("m_bin", "varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "text",
         [text for text in _texts(150) if text == text.rstrip(" ")], BYTES),
    _one("m_latin", "char(20) CHARACTER SET latin1 COLLATE latin1_general_cs", "text",
         ["ä", "b", "€", "z", "ÿ", "1", "Z", "é", "a b"], BYTES),
    _one("m_bytes", "varbinary(9)", "bytes", BLOBS, BYTES),
    _one("m_fixed", "binary(3)", "bytes", [bytes((n, n * 3 % 256, 1)) for n in range(0, 256, 5)], BYTES),
    _one("m_bits", "bit(9)", "bits", [f"b'{n:b}'" for n in range(0, 511, 7)], BYTES),
    _one("m_date", "date", "date", [f"2024-0{n % 9 + 1}-{n % 28 + 1:02d}" for n in range(60)], BYTES),
    _one("m_moment", "datetime(6)", "timestamp", MOMENTS, BYTES),
    _one("m_stamp", "timestamp(6)", "timestamptz", MOMENTS, BYTES),
    _one("m_enum", "enum('z','b','m','a','ö')", "enum", ["z", "b", "m", "a", "ö"], BYTES),
    _one("m_double", "double", "double", [n / 3 for n in range(60)], None),
    Keyed("m_pair", (("int", "integer", "int"), ("varbinary(90)", "bytes", "varbinary(90)")),
          [(a, b.encode()) for a, b in PAIRS], (INT, BYTES)),
    Keyed("m_triple", (("int", "integer", "int"), ("int", "integer", "int"), ("date", "date", "date")),
          [(a, b, f"2024-01-0{c}") for a in (-1, 2, 10) for b in (-5, 7) for c in range(1, 9)], (INT, INT, BYTES)),
    Keyed("m_half", (("int", "integer", "int"), ("double", "double", "double")),
          [(n % 3, n / 2) for n in range(60)], (INT,)),
]  # fmt: skip
MYSQL_ONLY = [
    _one("m_nopad", "varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci", "text", _FOLDED, BYTES),
]
MARIA_ONLY = [
    _one("m_nopad", "varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", "text", _texts(150), BYTES),
    _one("m_uuid", "uuid", "uuid", UUIDS, BYTES),
]
SQLITE = [
    _one("s_int", "INTEGER", "bigint", WHOLE_NUMBERS, INT),
    _one("s_text", "TEXT", "text", _texts(150), BYTES),
    _one("s_fold", "TEXT COLLATE NOCASE", "text", _FOLDED, BYTES),
    _one("s_bytes", "BLOB", "bytes", BLOBS, BYTES),
    _one("s_number", "DECIMAL(10,2)", "decimal", [n / 4 for n in range(-40, 40)], BYTES),
    _one("s_real", "REAL", "double", [n / 3 for n in range(-40, 40)], BYTES),
    _one("s_any", "", "any", [1, 2.5, "x", b"\xff", -7, "'", *range(20, 60)], BYTES),
    Keyed("s_pair", (("INT", "bigint", "INT"), ("TEXT", "text", "TEXT")), PAIRS, (INT, BYTES)),
]


def _made(keyed: Keyed, run: Callable[[str, Sequence[Any]], object], mark: str) -> None:
    names = [f"k{n}" for n in range(len(keyed.columns))]
    columns = ", ".join(f"{name} {sql} NOT NULL" for name, (sql, _, _) in zip(names, keyed.columns, strict=True))
    run(f"CREATE TABLE {keyed.name} ({columns}, other varchar(9), PRIMARY KEY ({keyed.index or ', '.join(names)}))", ())
    for row in dict.fromkeys(tuple(row) for row in keyed.rows):
        if isinstance(row[0], str) and row[0].startswith("b'"):
            run(f"INSERT INTO {keyed.name} VALUES ({row[0]}, NULL)", ())
        else:
            run(f"INSERT INTO {keyed.name} VALUES ({', '.join([mark] * len(row))}, NULL)", row)


def _check(reader: Reader, schema: str, keyed: Keyed) -> None:
    """Chunks of the reader's own bounds, and ranges between any two keys."""
    table = TableDef(schema, keyed.name, keyed.definition)
    names = [column.name for column in table.columns]
    whole = [tuple(row) for row in reader.rows(table, names, WHOLE)]
    assert len(whole) == len(set(map(tuple, keyed.rows)))
    bounds = reader.bounds(table, 5)
    if keyed.orders is None:
        assert not bounds.lows
        return
    assert not bounds.lows or bounds.orders == keyed.orders, bounds.orders
    count = len(keyed.orders)
    texts = [tuple(v.hex() if isinstance(v, bytes) else v for v in row[:count]) for row in whole]
    keys = [ordered(keyed.orders, text) for text in texts]
    if len(whole) > 20:
        assert bounds.lows, "a table of so many rows has chunks"
    some = DICE.sample(texts, min(6, len(texts)))
    for lows in (bounds.lows, sorted(set(some), key=lambda text: ordered(keyed.orders or (), text))):
        edges = [ordered(keyed.orders, low) for low in lows]
        assert edges == sorted(set(edges))
        chunks: list[list[tuple[Any, ...]]] = [[] for _ in range(len(lows) + 1)]
        for key, row in zip(keys, whole, strict=True):
            chunks[bisect_right(edges, key)].append(row)
        for n, expected in enumerate(chunks):
            part = Range(keyed.orders, lows[n - 1] if n else (), lows[n] if n < len(lows) else None)
            found = [tuple(row) for row in reader.rows(table, names, part)]
            assert sorted(found, key=repr) == sorted(expected, key=repr), (keyed.name, part)
    reader.end()


@pytest.fixture(scope="module")
def with_collations() -> Iterator[PostgresServer]:
    """Debian's server, which has collations of ICU."""
    with PostgresServer(version="system", tcp=True) as server:
        yield server


def test_ranges_of_postgresql_are_those_of_python(with_collations: PostgresServer) -> None:
    """Also where a language sorts otherwise, where a padded value is compared without its blanks, and by BC."""
    import psycopg

    url = with_collations.url("postgres")
    reader = open_reader(url)
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
        for keyed in POSTGRES:
            _made(keyed, lambda sql, values: conn.execute(sql.encode(), values or None), "%s")
            _check(reader, "public", keyed)
    reader.close()


@pytest.mark.parametrize("kind", ["mariadb", pytest.param("mysql", marks=pytest.mark.soak)])
def test_ranges_of_mysql_and_mariadb_are_those_of_python(request: pytest.FixtureRequest, kind: str) -> None:
    """Also where case, accents and blanks at the end count for nothing."""
    server: Mysqld = request.getfixturevalue(kind)
    server.sql("CREATE DATABASE ranges")
    reader, connection = open_reader(server.url("ranges")), server.connect("ranges")
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for keyed in BOTH + (MYSQL_ONLY if kind == "mysql" else MARIA_ONLY):
            _made(keyed, lambda sql, values: cursor.execute(sql, values or None), "%s")
            cursor.execute(f"ANALYZE TABLE {keyed.name}")
            cursor.fetchall()
            _check(reader, "ranges", keyed)
    reader.close()
    connection.close()
    server.sql("DROP DATABASE ranges")


def test_ranges_of_sqlite_are_those_of_python(tmp_path: Path) -> None:
    """Also of reals and of columns without a type, whose text no file sorts by."""
    from extract.sources.sqlite import queue

    path = tmp_path / "s.db"
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("PRAGMA synchronous = OFF")
    queue.install(conn)
    reader = open_reader(f"sqlite:///{path}")
    for keyed in SQLITE:
        _made(keyed, conn.execute, "?")
        _check(reader, "main", keyed)
    reader.close()
    conn.close()
