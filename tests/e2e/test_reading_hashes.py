"""Hashes that databases make of ranges: equal exactly where reading finds equal rows, at servers of any settings."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest

from demo.mariadb import MariaServer
from demo.mysql import MysqlServer
from replicat.model.loading import INT
from replicat.reading.contract import Range, Reader
from replicat.reading.hashing import RangeHash
from replicat.reading.kinds import open_reader
from trails.record import Column, TableDef

pytestmark = pytest.mark.e2e

POSTGRES = {
    "t": ("text", "text"), "v": ("varchar(9)", "text"), "c": ("char(4)", "char"), "n": ("numeric", "decimal"),
    "f": ("float8", "double"), "r": ("float4", "real"), "b": ("bytea", "bytes"), "k": ("pair", "composite"),
    "a": ("text[]", "array"), "o": ("boolean", "boolean"), "s": ("timestamptz", "timestamptz"),
    "i": ("interval", "interval"), "w": ("integer", "integer"), "e": ("mood", "enum"), "j": ("json", "json"),
    "d": ("positive", "integer"),
}  # fmt: skip
POSTGRES_ROWS = (
    "t=''", "t=' '", "t='a'; v='b'", "t='ab'; v=''", "t='a'", "v='a'", "t='a,b'", r"t='\'", "t='\"'", "t='(,)'",
    r"t='\N'", "c=''", "c='a'", "c='a'; v=' '", "v='a '", r"t=E'a\tb'", "t='é'", "t='Ã©'", "n=1.1", "n=1.10", "n=0",
    "n='NaN'", "n=-1.1", "f=0", "f='-0'", "f='NaN'", "f=0.1", "f=0.10000000000000002", "r=0", "r='-0'", "b=''",
    r"b='\x00'", r"b='\x0000'", r"b='\x5c78'", "k=ROW(NULL, NULL)", "k=ROW('', NULL)", "k=ROW(NULL, '')", "a='{}'",
    "a='{NULL}'", "a='{\"NULL\"}'", "a='{\"\"}'", "a='[2:2]={\"\"}'", "o=true", "o=false", "s='infinity'",
    "s='2024-03-31 01:30:00+00'", "s='2024-03-31 01:30:00.000001+00'", "i='1 day'", "i='24 hours'", "w=0", "w=1",
    "w=-1", "e='sad'", "e='glad'", "j='1'", "j=' 1'", "j='null'", "d=1", "t=NULL",
    # Once more: the only ones that have a like.
    "t='a'; v='b'", "f='-0'", "k=ROW(NULL, NULL)", "s='2024-03-31 03:30:00+02'",
)  # fmt: skip
ODD = (
    "DateStyle = German", "IntervalStyle = iso_8601", "TimeZone = 'Asia/Kathmandu'", "extra_float_digits = '-9'",
    "bytea_output = escape",
)  # fmt: skip

MYSQL = {
    "t": ("text", "text"), "l": ("varchar(9) CHARACTER SET latin1", "text"), "c": ("char(4)", "char"),
    "n": ("decimal(9,2)", "decimal"), "f": ("double", "double"), "r": ("float", "real"), "b": ("longblob", "bytes"),
    "x": ("binary(2)", "bytes"), "s": ("timestamp(6) NULL", "timestamptz"), "w": ("int", "integer"),
    "z": ("int(9) zerofill", "bigint"), "e": ("enum('n','NULL')", "enum"), "i": ("bit(9)", "bits"),
    "y": ("year", "smallint"), "p": ("point", "geometry"),
}  # fmt: skip
MYSQL_ROWS = (
    "t=''", "t=' '", "t='a'; l='b'", "t='ab'; l=''", "t='a'", "l='a'", "t='a,n'", "t='n'", "t='NULL'", "t='''a'",
    "t='a'''", "t=x'5c'", "t=x'00'", "t=x'5c30'", "t='a'',''b'", "c=''", "c='a'", "t='é'", "t='Ã©'", "l='é'", "l='Ã©'",
    "n=1", "n=1.1", "n=0", "f=0", "f=-0e0", "f=0.1", "f=0.10000000000000002", "r=0", "r=-0e0", "r=0.1", "r=16777216",
    "b=''", "b=x'00'", "b=x'0000'", "b='00'", "x=x'0000'", "x=x'2020'", "s='2024-03-31 01:30:00'",
    "s='2024-03-31 01:30:00.000001'", "w=0", "w=1", "w=-1", "z=0", "z=5", "e='n'", "e='NULL'", "i=0", "i=b'1'", "y=0",
    "y=2000", "p=ST_GeomFromText('POINT(1 2)')", "p=ST_GeomFromText('POINT(2 1)')", "t=NULL", "t='a'; l='b'", "f=-0e0",
)  # fmt: skip


def _table(schema: str, columns: dict[str, tuple[str, str]]) -> TableDef:
    made = [Column(column, logical, native) for column, (native, logical) in columns.items()]
    return TableDef(schema, "h", (Column("id", "integer", "integer", True), *made))


def _inserts(name: str, rows: Sequence[str]) -> list[str]:
    """Each row's assignments as an INSERT; what is not named is NULL."""
    found = []
    for number, row in enumerate(rows):
        parts = [part.partition("=") for part in row.split("; ")]
        names, values = ", ".join(part[0] for part in parts), ", ".join(part[2] for part in parts)
        found.append(f"INSERT INTO {name} (id, {names}) VALUES ({number}, {values})")
    return found


def _hashes(reader: Reader, table: TableDef, rows: int) -> list[RangeHash | None]:
    """One for each row; the key is not in it."""
    names = [column.name for column in table.columns[1:]]
    assert reader.hashing(table, names)
    return reader.hashes(table, names, Range((INT,)), [(str(number),) for number in range(1, rows)], "secret")


def _agree(reader: Reader, table: TableDef, rows: int) -> list[tuple[tuple[object, ...], RangeHash | None]]:
    """Each row and its hash. Two rows have the same hash if, and only if, the reader gives the same values for both."""
    names = [column.name for column in table.columns]
    read = {int(str(row[0])): tuple(row[1:]) for row in reader.rows(table, names, Range())}
    found = _hashes(reader, table, rows)
    assert all(one is not None and one.rows == 1 for one in found)
    by_hash: dict[RangeHash | None, set[tuple[object, ...]]] = {}
    for number, one in enumerate(found):
        by_hash.setdefault(one, set()).add(read[number])
    assert all(len(values) == 1 for values in by_hash.values()), by_hash
    assert len(by_hash) == len(set(read.values())) < rows
    return [(read[number], one) for number, one in enumerate(found)]


def test_B1_postgres_hashes_are_equal_where_rows_are_and_nowhere_else(source_db: str, target_db: str):
    """Two versions, settings of the database that change every text, types that are other ones and mean the same."""
    columns = ", ".join(f"{name} {native}" for name, (native, _) in POSTGRES.items())
    other = columns.replace("v varchar(9)", "v text").replace("w integer", "w bigint").replace("t text", "t varchar")
    found = []
    for url, shape in ((source_db, columns), (target_db, other)):
        with psycopg.connect(url, autocommit=True) as conn:
            for statement in (
                "CREATE TYPE pair AS (a text, b text)", "CREATE TYPE mood AS ENUM ('sad', 'glad')",
                "CREATE DOMAIN positive AS int CHECK (value > 0)", f"CREATE TABLE h (id int PRIMARY KEY, {shape})",
                *_inserts("h", POSTGRES_ROWS),
            ):  # fmt: skip
                conn.execute(statement.encode())
            for setting in ODD if url == target_db else ():
                conn.execute(f"ALTER DATABASE {conn.info.dbname} SET {setting}".encode())
        reader = open_reader(url)
        try:
            table = _table("public", POSTGRES)
            found.append((reader.hashing(table, list(POSTGRES)), _agree(reader, table, len(POSTGRES_ROWS))))
        finally:
            reader.close()
    assert found[0] == found[1]


def test_B1_mysql_and_mariadb_hash_alike_where_rows_are_equal_and_nowhere_else(
    mysql: MysqlServer, mysql_db: str, mariadb: MariaServer, maria_db: str
):
    """Character sets of their own; a row that is too long for a server's text is like nothing."""
    columns = ", ".join(f"{name} {native}" for name, (native, _) in MYSQL.items())
    utf8 = columns.replace("latin1", "utf8mb4")
    found = []
    for server, place, shape in ((mysql, mysql_db, columns), (mariadb, maria_db, utf8)):
        server.sql(f"CREATE TABLE {place}.h (id int PRIMARY KEY, {shape}) CHARACTER SET utf8mb4")
        for statement in _inserts(f"{place}.h", MYSQL_ROWS):
            server.sql(statement)
        table = _table(place, MYSQL)
        reader = open_reader(server.url(place))
        try:
            found.append(_agree(reader, table, len(MYSQL_ROWS)))
            if server is mariadb:
                server.sql(f"UPDATE {place}.h SET b = REPEAT('a', @@max_allowed_packet / 2 + 9) WHERE id = 0")
                assert _hashes(reader, table, 3)[0] is None
        finally:
            reader.close()
    same = [(mine[0] == theirs[0], mine[1] == theirs[1]) for mine, theirs in zip(*found, strict=True)]
    # MySQL makes -0 a zero where a statement has it as a number.
    assert set(same) <= {(True, True), (False, False)} and sum(one for one, _ in same) >= len(same) - 3
