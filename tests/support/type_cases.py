"""Source types and edge values of pitfalls E1, E5 and E6, and the target columns they are tried with.

Each target has the column that Replicat makes by DDL (replicat/targets/*/ddl.py) and those that people choose besides.
"""

from __future__ import annotations

from dataclasses import dataclass

SETUP = """
CREATE TYPE mood AS ENUM ('sad', 'so "so"', 'häppy, yes');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN posint AS int CHECK (VALUE > 0);
CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE EXTENSION ltree; CREATE EXTENSION cube;
CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE DOMAIN folded AS text COLLATE nocase;
"""
"""Extensions, xml and collations of ICU: what Debian's server has, and those of the wheel lack."""


@dataclass(frozen=True)
class Case:
    """A source type: SQL of its values, and other columns to try. `key`: it can be a primary key."""

    type: str
    values: tuple[str, ...]
    mysql: tuple[str, ...] = ()
    sqlite: tuple[str, ...] = ()
    postgresql: tuple[str, ...] = ()
    key: bool = True


def _case(kind: str, *values: str, mysql: str = "", sqlite: str = "", key: bool = True) -> Case:
    texts = (mysql, sqlite, POSTGRESQL.get(kind, ""))
    split = [tuple(part.strip() for part in text.split(";") if part.strip()) for text in texts]
    return Case(kind, values, *split, key)


# As format_type() writes them.
POSTGRESQL: dict[str, str] = {
    "smallint": "integer; numeric(5,-2)",
    "integer": "smallint; real; text",
    "bigint": "integer; double precision; boolean",
    "numeric": "numeric(14,2); double precision; bigint",
    "numeric(14,2)": "numeric(10,2); numeric(20,4); numeric(14,1)",
    "real": "double precision; numeric",
    "double precision": "real; numeric(30,5); bigint",
    "money": "text; numeric",
    "boolean": "text; integer",
    "text": "character varying(20); character(20); timestamp with time zone",
    "varchar(10)": "integer; character varying(3); bytea",
    "char(5)": "text; character varying(3); character(8)",
    "mood": "text; character varying(3)",
    "json": "jsonb; text",
    "jsonb": "json",
    "bytea": "text; integer",
    "bit(5)": "bit(8); bit varying(3)",
    "uuid": "text; bytea",
    "date": "timestamp without time zone; timestamp with time zone",
    "time": "time(3) without time zone; interval; time with time zone",
    "timetz": "time without time zone; text",
    "timestamp": "timestamp(0) without time zone; timestamp with time zone; date",
    "timestamptz": "timestamp without time zone; timestamp(0) with time zone; date",
    "interval": "interval year to month; interval(0)",
    "integer[]": "smallint[]; text",
    "text[]": "character varying(2)[]",
    "int4range": "int8range",
    "pair": "text",
    "inet": "cidr; text",
}


CASES: tuple[Case, ...] = (
    # numbers
    _case("smallint", "-32768", "32767", mysql="tinyint; year", sqlite="TEXT"),
    _case("integer", "-2147483648", "0", "2147483647", mysql="int unsigned; decimal(10)", sqlite="REAL; TEXT"),
    _case("bigint", "-9223372036854775808", "9223372036854775807", "9007199254740993", mysql="double", sqlite="REAL"),
    _case("numeric", "'NaN'", "'Infinity'", "'-Infinity'", "1e-1000", "repeat('9', 2000)::numeric", "1.10", "0",
          repr("9" * 35 + "." + "1" * 30) + "::numeric", "-0.5", mysql="decimal(65,30); double; bigint",
          sqlite="NUMERIC; REAL; INTEGER"),
    _case("numeric(14,2)", "12345.60", "-0.01", "999999999999.99", mysql="decimal(10,2); decimal(20,4)",
          sqlite="DECIMAL(14,2)"),
    _case("numeric(5,-2)", "12300", mysql="int"),
    _case("real", "'NaN'", "'Infinity'", "'-0'", "1.1", "3.4028235e38", "1e-45", "16777216", mysql="double",
          sqlite="NUMERIC"),
    _case("double precision", "'NaN'", "'-Infinity'", "'-0'", "0.1", "1.7976931348623157e308", "5e-324", "1e15",
          "0.30000000000000004", mysql="float; decimal(30,5)", sqlite="NUMERIC; TEXT"),
    _case("money", "'-12345.67'", "0", mysql="decimal(19,2)"),
    _case("oid", "4294967295", mysql="int unsigned"),
    # truth
    _case("boolean", "true", "false", mysql="bit(1); enum('false','true'); varchar(5)", sqlite="TEXT"),
    # text
    _case("text", "''", r"'\N'", r"E'tab\tnl\ncr\rbs\\ end'", "'ünïcödé 𝄞 ''q'' \"d\"'", "'NULL'", "'a'", "'A'", "'a '",
          "'á'", "repeat('x', 700)", "E'\\u00e9 e\\u0301'",
          mysql="varchar(20); varchar(20) CHARACTER SET utf8mb3; varchar(20) CHARACTER SET latin1; "
          "varchar(20) COLLATE utf8mb4_nopad_bin; char(20); varbinary(20); enum('a','A1')",
          sqlite="VARCHAR(20); BLOB; INTEGER; TEXT COLLATE NOCASE"),
    _case("varchar(10)", "'ab  '", "'0012'", "'12'", "'1e3'", mysql="int", sqlite="INTEGER; NUMERIC"),
    _case("char(5)", "'ab'", "''", "'äöü'", mysql="char(5); varchar(3)"),
    _case('"char"', "'c'", "''"),
    _case("name", "'nämé'"),
    _case("citext", "'Straße'", "'ab'", "''", "'ÁB'", mysql="varchar(20)", sqlite="TEXT COLLATE NOCASE"),
    _case("folded", "'Ab'", "'á'", "''", mysql="varchar(20)", sqlite="TEXT COLLATE NOCASE"),
    _case("mood", "'sad'", "'so \"so\"'", "'häppy, yes'", mysql="enum('sad','so \"so\"','häppy, yes'); enum('sad')"),
    _case("posint", "7"),
    _case("json", """'{"b": 1, "a": 12345678901234567890, "b": [null]}'""", "'  null'", key=False),
    _case("jsonb", """'{"b": 1e400, "a": "\\u00e9\\n"}'""", "'[]'"),
    _case("jsonpath", "'$.a[*] ? (@ > 1)'", key=False),
    _case("xml", """'<a b="1">x &amp; <![CDATA[<y>]]></a>'""", "'text'", "''", key=False),
    _case("hstore", r"""'"a"=>"1", "b c"=>NULL, "q"=>"x\"y"'""", "''"),
    _case("ltree", "'Top.Science.Astronomy'", "''"),
    # bytes and bits
    _case("bytea", r"'\x00ff0a0d5c09'", "''", r"'\\x41'", mysql="varbinary(10); binary(6); longtext; bit(8)",
          sqlite="TEXT"),
    _case("bit(5)", "B'10101'", "B'00000'", mysql="bit(5); bit(8)"),
    _case("bit varying", "B''", "B'1'", "repeat('10', 50)::bit varying"),
    _case("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", mysql="uuid; binary(16)"),
    # time
    _case("date", "'2024-02-29'", "'infinity'", "'-infinity'", "'0002-11-30 BC'", "'0001-01-01'", "'9999-12-31'",
          "'5874897-12-31'", mysql="datetime; varchar(20)", sqlite="DATE"),
    _case("time", "'24:00:00'", "'12:00:00.123456'", "'00:00:00'", mysql="time(3)"),
    _case("timetz", "'12:00:00+05:30:15'", "'24:00:00-15:59'", mysql="time(6)"),
    _case("timestamp", "'infinity'", "'294276-12-31 23:59:59.999999'", "'4713-01-01 00:00:00 BC'",
          "'1969-12-31 23:59:59.5'", "'2024-02-29 23:59:59.123456'",
          mysql="datetime; timestamp(6) NULL", sqlite="DATETIME"),
    _case("timestamptz", "'-infinity'", "'2024-03-31 02:30:00+02'", "'0044-03-15 12:00:00+00 BC'",
          "'2038-01-19 03:14:08+00'", mysql="timestamp(6) NULL; varchar(40)", sqlite="DATETIME"),
    _case("interval", "'-1 mons +2 days -03:04:05.678'", "'178000000 years'", "'0'", "'1 month 30 days'",
          mysql="time(6)"),
    # arrays, ranges, records
    _case("integer[]", "'{}'", "'[0:1]={1,NULL}'", "'{{1,2},{3,4}}'"),
    _case("text[]", r"""ARRAY['a"b', 'c\d', 'NULL', NULL, '', 'e,f']"""),
    _case("bytea[]", r"""ARRAY['\x00'::bytea, NULL]"""),
    _case("mood[]", "ARRAY['sad', 'häppy, yes']::mood[]"),
    _case("int4range", "'empty'", "'[1,)'", "'(,)'"),
    _case("tstzrange", """'["2024-01-01 00:00:00+00",infinity)'"""),
    _case("nummultirange", "'{[1,2),[3,)}'", "'{}'"),
    _case("pair", """ROW(1, 'x "y", (z)\\')""", "ROW(NULL, '')"),
    _case("pair[]", "ARRAY[ROW(1, NULL)::pair]"),
    # others
    _case("inet", "'10.0.0.1/8'", "'::1'", "'10.0.0.1'", mysql="inet6; inet4"),
    _case("cidr", "'10.0.0.0/8'"),
    _case("macaddr", "'08:00:2b:01:02:03'"),
    _case("macaddr8", "'08:00:2b:01:02:03:04:05'"),
    _case("pg_lsn", "'16/B374D848'"),
    _case("tsvector", "'''it''''s'':1A ''a b'':2'"),
    _case("tsquery", "'fat & !(rat | ''c d'')'"),
    _case("point", "'(1,-0)'", mysql="point", key=False),
    _case("path", "'((0,0),(1,1))'", "'[(0,0),(1,1)]'", key=False),
    _case("polygon", "'((0,0),(1,1),(2,0))'", key=False),
    _case("circle", "'<(0,0),1.5>'", key=False),
    _case("box", "'(1,1),(0,-0.5)'", key=False),
    _case("lseg", "'[(0,0),(1,1)]'", key=False),
    _case("line", "'{1,-1,0}'", key=False),
    _case("cube", "'(1,2),(3,4)'"),
    _case("xid8", "'18446744073709551615'"),
)  # fmt: skip
