"""Every PostgreSQL type with a text form arrives unchanged: in new rows, in updates, and in tables without a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from replicat.model.copytext import rows_of
from replicat.targets.postgres.sql import SESSION
from tests.e2e.test_replicat_postgres import Bench
from trails.record import Column, Op, TableDef

pytestmark = pytest.mark.e2e

SETUP = """
CREATE TYPE mood AS ENUM ('sad', 'so "so"', 'häppy, yes');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN posint AS int CHECK (VALUE > 0);
"""
VALUES: dict[str, list[str]] = {
    "numeric": ["'NaN'", "'Infinity'", "'-Infinity'", "1e-1000", "repeat('9', 2000)::numeric", "1.10", "0"],
    "numeric(14,2)": ["12345.60", "-0.01"],
    "numeric(5,-2)": ["12300"],
    "smallint": ["-32768"],
    "bigint": ["9223372036854775807"],
    "real": ["'NaN'", "'-Infinity'", "'-0'", "1.1", "3.4e38"],
    "double precision": ["'NaN'", "'Infinity'", "'-0'", "0.1", "1e308", "5e-324"],
    "boolean": ["true", "false"],
    "money": ["'-12345.67'"],
    "char(5)": ["'ab'", "''", "'äöü'"],
    "varchar(10)": ["'ab  '"],
    "text": ["''", r"'\N'", r"E'tab\tnl\ncr\rbs\\ end'", "'ünïcödé 𝄞 ''q'' \"d\"'", "'NULL'", "repeat('x', 100000)"],
    '"char"': ["'c'", "''"],
    "name": ["'nämé'"],
    "bytea": [r"'\x00ff0a0d5c09'", "''", r"'\\x41'"],
    "date": ["'infinity'", "'-infinity'", "'0002-11-30 BC'", "'5874897-12-31'", "'4713-01-01 BC'"],
    "time": ["'24:00:00'", "'12:00:00.123456'"],
    "timetz": ["'12:00:00+05:30:15'", "'24:00:00-15:59'"],
    "timestamp": ["'infinity'", "'294276-12-31 23:59:59.999999'", "'4713-01-01 00:00:00 BC'"],
    "timestamptz": ["'-infinity'", "'2024-03-31 02:30:00+02'", "'0044-03-15 12:00:00+00 BC'"],
    "interval": ["'-1 mons +2 days -03:04:05.678'", "'178000000 years'", "'0'", "'1 month 30 days'"],
    "bit(5)": ["B'10101'"],
    "bit varying": ["B''", "B'1'"],
    "json": ["""'{"b": 1, "a": 12345678901234567890, "b": [null]}'""", "'  null'"],
    "jsonb": ["""'{"b": 1e400, "a": "\\u00e9\\n"}'"""],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "inet": ["'10.0.0.1/8'", "'::1'"],
    "cidr": ["'10.0.0.0/8'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "macaddr8": ["'08:00:2b:01:02:03:04:05'"],
    "oid": ["4294967295"],
    "pg_lsn": ["'16/B374D848'"],
    "tsvector": ["'''it''''s'':1A ''a b'':2'"],
    "tsquery": ["'fat & !(rat | ''c d'')'"],
    "point": ["'(1,-0)'"],
    "path": ["'((0,0),(1,1))'", "'[(0,0),(1,1)]'"],
    "polygon": ["'((0,0),(1,1),(2,0))'"],
    "circle": ["'<(0,0),1.5>'"],
    "int4range": ["'empty'", "'[1,)'", "'(,)'"],
    "tstzrange": ["""'["2024-01-01 00:00:00+00",infinity)'"""],
    "nummultirange": ["'{[1,2),[3,)}'", "'{}'"],
    "integer[]": ["'{}'", "'[0:1]={1,NULL}'", "'{{1,2},{3,4}}'"],
    "text[]": [r"""ARRAY['a"b', 'c\d', 'NULL', NULL, '', 'e,f']"""],
    "bytea[]": [r"""ARRAY['\x00'::bytea, NULL]"""],
    "mood": ["'so \"so\"'", "'häppy, yes'"],
    "mood[]": ["ARRAY['sad', 'häppy, yes']::mood[]"],
    "pair": ["""ROW(1, 'x "y", (z)\\')""", "ROW(NULL, '')"],
    "pair[]": ["ARRAY[ROW(1, NULL)::pair]"],
    "posint": ["7"],
}


_NATIVE = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'v'"


def test_every_type_arrives_unchanged(tmp_path: Path, source_db: str, target_db: str):
    """From PostgreSQL 16 to 18: the text that the source's session gives is the text of the target's."""
    bench = Bench(tmp_path, target_db)
    kinds = list(VALUES)
    for url in (source_db, target_db):
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(SETUP)
            for number, kind in enumerate(kinds):
                conn.execute(f"CREATE TABLE public.k{number} (id int PRIMARY KEY, v {kind})".encode())
                conn.execute(f"CREATE TABLE public.b{number} (id int, v {kind})".encode())
    expected: dict[str, list[Any]] = {}
    natives: dict[str, str] = {}
    with psycopg.connect(source_db, autocommit=True) as conn:
        conn.execute(SESSION)
        for number, kind in enumerate(kinds):
            for row, value in enumerate([*VALUES[kind], "NULL"]):
                insert = f"INSERT INTO k{number} VALUES ({row}, CAST({value} AS {kind}))"
                conn.execute(f"SET search_path = public; {insert}".encode())
            conn.execute("SET search_path = pg_catalog")
            expected[kind] = _texts(conn, f"k{number}")
            (natives[kind],) = conn.execute(_NATIVE, [f"public.k{number}"]).fetchone() or ("",)
    for number, kind in enumerate(kinds):
        _feed(bench, number, natives[kind], expected[kind])
    bench.run()
    with psycopg.connect(target_db, autocommit=True) as conn:
        conn.execute(SESSION)
        for number, kind in enumerate(kinds):
            assert _texts(conn, f"k{number}") == expected[kind], kind
            assert _texts(conn, f"b{number}") == [("-1", expected[kind][0][1]), *expected[kind][1:]], kind
    bench.feed.close()


def _texts(conn: psycopg.Connection[Any], table: str) -> list[Any]:
    """The rows as COPY gives them: by the types' output functions, unlike a cast to text (char(n))."""
    with conn.cursor().copy(f"COPY (SELECT * FROM public.{table} ORDER BY id) TO STDOUT".encode()) as copy:
        return [tuple(row) for row in rows_of(b"".join(bytes(piece) for piece in copy))]


def _feed(bench: Bench, number: int, kind: str, rows: list[Any]) -> None:
    """New rows; an update of each by key; a bag whose first row is changed, and one that is deleted again."""
    columns = (Column("id", "integer", "integer", True), Column("v", "text", kind))
    keyed = TableDef("src", f"k{number}", columns)
    bag = TableDef("src", f"b{number}", (Column("id", "integer", "integer"), columns[1]))
    images = [list(row) for row in rows]
    wrong = [[key, images[-2][1]] for key, _ in images]
    bench.feed.tx(*((Op.INSERT, keyed, image) for image in wrong), (Op.INSERT, keyed, ["99", images[0][1]]))
    bench.feed.tx(*((Op.UPDATE, keyed, image) for image in images), (Op.DELETE, keyed, ["99", images[0][1]]))
    bench.feed.tx(*((Op.INSERT, bag, image) for image in [*images, ["77", images[0][1]], ["77", images[-2][1]]]))
    bench.feed.tx(
        (Op.UPDATE, bag, ["-1", images[0][1]], images[0]),
        (Op.DELETE, bag, ["77", images[0][1]]),
        (Op.DELETE, bag, ["77", images[-2][1]]),
    )
    bench.run()
