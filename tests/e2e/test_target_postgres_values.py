"""PostgreSQL as a target of any source: what becomes of a value whose type is not the column's own.

The server rounds, cuts and shifts what it is given without a word. Each row of RULES is a value that it would change,
or one beside it that must pass; each goes as a new row, as an update of few rows and of many, and as a key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo.servers import PostgresServer
from replicat.model.target import Bag, Layout, Match, RefusedError, Work
from replicat.targets.kinds import admin_for
from replicat.targets.postgres.asked import _array
from replicat.targets.sql.canonical import double_back
from tests.support.ddl_target import definition, feed_ddl
from tests.support.direct_target import Direct
from tests.support.replicat_bench import Bench
from tests.support.replicat_trail import IDENTITY, TrailFeed
from trails.ddl import CREATE, DdlChange, DdlColumn, TableShape
from trails.errors import OperatorError
from trails.fs import RealFs
from trails.record import Op

pytestmark = pytest.mark.e2e

SETUP = """
CREATE DOMAIN amount AS numeric(6,2);
CREATE DOMAIN price AS amount;
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TYPE pair AS (a numeric(6,2), b text);
"""

# Logical type, column, value, and what is there then: its text, `=` for the value itself, `+` before what is counted,
# an SQLSTATE for what is refused.
RULES = """
smallint     | bigint                        | 7                             | =
bigint       | smallint                      | 40000                         | 22003
bigint       | numeric(5,-2)                 | 12345                         | 22003
bigint       | numeric(5,-2)                 | 12300                         | =
integer      | real                          | 16777217                      | 22003
bigint       | double precision              | 9007199254740993              | 22003
bigint       | double precision              | 9223372036854775807           | 22003
bigint       | double precision              | 9007199254740992              | 9.007199254740992e+15
bigint       | boolean                       | 1                             | t
bigint       | boolean                       | 2                             | 22P02
bigint       | oid                           | -1                            | 22018
bigint       | char(5)                       | 42                            | 42___
bigint       | money                         | 5                             | $5.00
decimal      | numeric(14,2)                 | 1.2345                        | 22003
decimal      | numeric(14,2)                 | 1.2300                        | 1.23
decimal      | numeric(4,2)                  | 100                           | 22003
decimal      | numeric                       | 1.230                         | =
decimal      | numeric(14,2)                 | NaN                           | =
decimal      | integer                       | 1.5                           | 22P02
decimal      | integer                       | 15                            | =
decimal      | double precision              | 0.1                           | =
decimal      | double precision              | 0.12345678901234567890        | 22003
decimal      | double precision              | 1.50                          | + 1.5
decimal      | real                          | 0.1234567891                  | 22003
decimal      | money                         | 1.234                         | 22003
decimal      | money                         | 1.23                          | $1.23
decimal      | boolean                       | 0                             | f
decimal      | price                         | 1.239                         | 22003
decimal      | price                         | 1.23                          | =
double       | real                          | 0.1                           | 22003
double       | real                          | 0.5                           | =
double       | real                          | NaN                           | =
double       | real                          | 1e+300                        | 22003
double       | numeric                       | 1e+16                         | 10000000000000000
double       | numeric(14,2)                 | 0.125                         | 22003
double       | numeric(14,2)                 | -0                            | + 0.00
double       | bigint                        | -0                            | + 0
real         | double precision              | 0.1                           | =
real         | numeric(6,3)                  | 1.0000001                     | 22003
text         | varchar(3)                    | ab                            | =
text         | varchar(3)                    | ab_                           | =
text         | varchar(3)                    | abc__                         | 22001
text         | varchar(3)                    | abcd                          | 22001
text         | char(3)                       | ab                            | + ab_
text         | char(3)                       | abc                           | =
text         | char(3)                       | ab_                           | 22001
text         | name                          | NAME64                        | 22018
text         | "char"                        | ab                            | 22018
text         | integer                       | 0012                          | 22018
text         | integer                       | 12                            | =
text         | numeric(6,2)                  | 1.239                         | 22003
text         | numeric(6,2)                  | 1.2                           | 1.20
text         | numeric                       | 007                           | 22003
text         | boolean                       | yes                           | 22018
text         | boolean                       | true                          | t
text         | date                          | today                         | 22018
text         | date                          | 20240229                      | 22018
text         | date                          | 2024-02-29                    | =
text         | timestamp                     | now                           | 22008
text         | timestamp                     | 2024-02-29 10:00:00.500000    | 2024-02-29 10:00:00.5
text         | timestamptz                   | 2024-02-29 10:00:00           | 2024-02-29 10:00:00+00
text         | timestamp                     | 2024-02-29T10:00:00           | 22008
text         | time                          | 2024-02-29 10:00:00           | 22008
text         | timestamp                     | 2024-02-29 23:59:60           | 22008
text         | timestamptz                   | 2024-02-29 24:00:00           | 22008
text         | timestamp                     | 02024-02-29 10:00:00          | 22008
text         | timestamp                     | 12024-02-29 10:00:00          | =
text         | timestamp                     | +infinity                     | 22008
text         | timestamp                     | -infinity                     | =
text         | time                          | 10:00:60.5                    | 22008
text         | time                          | 24:00:00                      | =
text         | numeric(6,2)                  | -0.00                         | 22003
text         | uuid                          | A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11 | 22018
text         | mood                          | mad                           | 22P02
text         | mood                          | sad                           | =
text         | bit(4)                        | x5                            | 22018
text         | inet                          | 10.0.0.1/32                   | 22018
text         | text                          | NUL                           | 22021
char         | char(3)                       | ab___                         | ab_
char         | varchar(3)                    | ab___                         | 22001
char         | text                          | ab___                         | =
date         | date                          | 0000-00-00                    | 22008
date         | date                          | 2024-00-15                    | 22008
date         | date                          | 2023-02-31                    | 22008
date         | text                          | 0000-00-00                    | =
timestamptz  | timestamptz                   | 0000-00-00 00:00:00+00        | 22008
timestamptz  | timestamp                     | 0000-00-00 00:00:00+00        | 22008
timestamp    | timestamp                     | 2024-00-15 12:34:56           | 22008
time         | time                          | -00:00:00.5                   | 22007
time         | time                          | 24:00:00                      | =
time         | interval                      | -838:59:59.999999             | =
time         | interval                      | -00:00:00.5                   | =
geometry     | text                          | 0101000000                    | =
geometry     | point                         | 0101000000                    | 22P02
date         | timestamp                     | 2024-02-29                    | 2024-02-29 00:00:00
date         | timestamptz                   | infinity                      | =
date         | timestamp                     | 5874897-12-31                 | 22008
time         | time(3)                       | 10:00:00.1234                 | 22008
time         | time(3)                       | 10:00:00.123                  | =
time         | time                          | 10:00:00.123456789            | 22008
time         | interval                      | 838:59:59                     | =
time         | time                          | 838:59:59                     | 22008
timetz       | timetz(0)                     | 10:00:00.5+01                 | 22008
timestamp    | timestamp                     | 2024-02-29 10:00:00.123456789 | 22008
timestamp    | timestamp                     | 2024-02-29 10:00:00.123456000 | 2024-02-29 10:00:00.123456
timestamp    | timestamp                     | 0044-03-15 10:00:00.1234567 BC | 22008
timestamp    | timestamp(0)                  | 2024-02-29 10:00:00.5         | 22008
timestamp    | timestamp(0)                  | infinity                      | =
timestamp    | timestamp                     | 0000-00-00 00:00:00           | 22008
timestamp    | timestamptz                   | 2024-02-29 10:00:00           | 2024-02-29 10:00:00+00
timestamp    | date                          | 2024-02-29 10:00:00           | 22008
timestamp    | date                          | 2024-02-29 00:00:00           | 2024-02-29
timestamptz  | timestamp                     | 2024-02-29 10:00:00+00        | 2024-02-29 10:00:00
timestamptz  | timestamp                     | 2024-02-29 10:00:00+05        | 22008
timestamptz  | timestamptz(3)                | 2024-02-29 10:00:00.1234+00   | 22008
interval     | interval year to month        | 1 mon 3 days                  | 22008
interval     | interval year to month        | 1 year 2 mons                 | =
interval     | interval(2)                   | 00:00:01.239                  | 22008
interval     | interval                      | -1 mons +2 days -03:04:05.678 | =
bits         | bit(3)                        | 10101                         | 22026
bits         | varbit(3)                     | 10101                         | 22001
bits         | bit(3)                        | 101                           | =
json         | jsonb                         | {"b": 1, "a": [1.50, null]}   | + {"a": [1.50, null], "b": 1}
json         | jsonb                         | {"a": 1, "b": {"c": 1, "c": 2}} | 22030
json         | jsonb                         | [1, "é"]                      | =
json         | json                          | {"a": 1, "a":  2}             | =
json         | jsonb                         | {"a": 1e-20000}               | 22003
array        | numeric(6,2)[]                | {1.239}                       | 22018
array        | numeric(6,2)[]                | {1.23,NULL}                   | =
array        | price[]                       | {1.239}                       | 22018
array        | varchar(2)[]                  | {"ab   "}                     | 22018
array        | timestamp(3)[]                | {"2024-02-29 10:00:00.1239"}  | 22018
array        | mood[]                        | {sad,mad}                     | 22P02
composite    | pair                          | (1.239,x)                     | 22018
composite    | pair                          | (1.23,x)                      | =
range        | int4range                     | [1,5)                         | =
range        | int4range                     | [1,4]                         | 22018
other        | cidr                          | 10.0.0.1/8                    | 22P02
other        | cidr                          | 10.0.0.1                      | 22018
other        | inet                          | 10.0.0.1                      | =
money        | money                         | -$1,234.50                    | =
enum         | varchar(2)                    | sad                           | 22001
bytes        | text                          | \\x00ff                       | =
"""
UNFIT = """
any text; bytes integer; text bytea; boolean integer; boolean numeric; date time; timestamp time; timestamptz date
timetz time; integer date; bigint interval; money numeric; double money; uuid bytea; json bytea; interval time
"""
_SPECIAL = {"NAME64": "n" * 64, "NUL": "a\0b"}


@pytest.fixture(scope="module")
def direct(pg_target: Any) -> Iterator[Direct]:
    pg_target.sql("CREATE DATABASE values_target")
    made = Direct("postgresql", pg_target.url("values_target"), "public")
    made.sql(SETUP)
    made.open()
    yield made
    made.close()
    pg_target.sql("DROP DATABASE values_target")


def _cases() -> Iterator[tuple[int, str, str, str, str]]:
    """`_` is a blank."""
    for n, line in enumerate(RULES.strip().split("\n")):
        logical, kind, value, becomes = (part.strip().replace("_", " ") for part in line.split(" | "))
        value = _SPECIAL.get(value, value)
        yield n, logical, kind, value, value if becomes == "=" else becomes


def test_each_value_arrives_as_the_rule_says_or_is_refused(direct: Direct):
    """By COPY into the table, as JSON in the statement, by a staging table; refused by the same SQLSTATE each time."""
    faults = []
    for n, logical, kind, value, becomes in _cases():
        direct.sql(f"CREATE TABLE t{n} (id bigint PRIMARY KEY, v {kind})")
        layout = direct.layout(f"t{n}", "id v", "id", f"bigint {logical}")
        direct.do(direct.rows(layout, inserts=[[str(i), None] for i in range(300)]))
        many = [[str(i), None] for i in range(298)]
        for how, rows in (
            ("new", {"inserts": [["1000", value]]}),
            ("few", {"updates": [["0", value]]}),
            ("many", {"updates": [*many, ["298", value]]}),
        ):
            key, found, counted = rows[next(iter(rows))][-1][0], "", False
            try:
                direct.begin()
                direct.target.apply((direct.rows(layout, **rows),))
                counted = direct.target.tally.converted == {("public", f"t{n}"): 1}
                direct.target.commit()
                direct.row = direct.target.load_row()
                ((found,),) = direct.sql(f"SELECT concat(v) FROM t{n} WHERE id = {key}")
                found = f"+ {found}" if counted else found
            except RefusedError as error:
                found = error.sqlstate
                direct.target.commit()
                direct.row = direct.target.load_row()
            if found != becomes:
                faults.append(f"{logical} -> {kind}, {how}: {value!r} becomes {found!r}, expected {becomes!r}")
    assert not faults, "\n".join(faults)


def test_types_that_no_value_fits_are_told_before_the_first_row(direct: Direct):
    """Where a value could only arrive as another one, or never."""
    for n, pair in enumerate(UNFIT.replace("\n", ";").strip(";").split(";")):
        logical, kind = pair.split()
        direct.sql(f"CREATE TABLE u{n} (id bigint PRIMARY KEY, v {kind})")
        with pytest.raises(OperatorError, match=f"u{n}, column v: values of type {logical} can't go into {kind}"):
            direct.target.check_layout(direct.layout(f"u{n}", "id v", "id", f"bigint {logical}"))


def test_a_refusal_names_table_column_and_key_and_shows_no_value(direct: Direct):
    """The report gets a text without the value; the discard file gets all."""
    direct.sql("CREATE TABLE named (a bigint, b text, v numeric(6,2), PRIMARY KEY (a, b))")
    layout = direct.layout("named", "v a b", "a b", "decimal bigint text")
    direct.begin()
    with pytest.raises(RefusedError) as refused:
        direct.target.apply((direct.rows(layout, inserts=[["1.00", "7", "x"], ["1.239", "8", "y\tz"]]),))
    direct.target.commit()
    direct.row = direct.target.load_row()
    about = "public.named: column v (numeric(6,2)) of row (8, y\tz)"
    assert (
        str(refused.value) == f"{about}: decimal value '1.239': the column's scale is 2, this number needs more digits"
    )
    assert refused.value.shown.startswith(about) and "1.239" not in refused.value.shown


@pytest.mark.parametrize("value", ["838:59:59", "-838:59:59", "-00:00:00.5"])
def test_a_refused_duration_names_the_type_that_takes_it(direct: Direct, value: str):
    """MySQL's TIME is no time of a day; the server itself speaks of fields, of time zones, or of the syntax."""
    direct.sql("DROP TABLE IF EXISTS clock; CREATE TABLE clock (id bigint PRIMARY KEY, v time)")
    layout = direct.layout("clock", "id v", "id", "bigint time")
    direct.begin()
    with pytest.raises(RefusedError, match="interval takes longer and negative times") as refused:
        direct.target.apply((direct.rows(layout, inserts=[["1", value]]),))
    direct.target.commit()
    direct.row = direct.target.load_row()
    assert "interval takes" in refused.value.shown
    assert value not in refused.value.shown


def test_a_key_that_the_column_would_round_finds_no_other_row(direct: Direct):
    """A delete and an update by a key that is another one in the target, and a row without a key."""
    direct.sql("CREATE TABLE keyed (v numeric(6,2) PRIMARY KEY, n bigint); INSERT INTO keyed VALUES (1.24, 1)")
    direct.sql("CREATE TABLE bag (v numeric(6,2), n bigint); INSERT INTO bag VALUES (1.24, 1)")
    layout = direct.layout("keyed", "v n", "v", "decimal bigint")
    bag = direct.layout("bag", "v n", "", "decimal bigint")
    steps = [
        direct.rows(layout, deletes=[["1.239"]]),
        direct.rows(layout, updates=[["1.239", "2"]]),
        Work(bags=(Bag(bag, (Match((), bag.blob([["0", "1.239", "1"]])[0]),)),)),
    ]
    for step in steps:
        direct.begin()
        with pytest.raises(RefusedError) as refused:
            direct.target.apply((step,))
        assert refused.value.sqlstate == "22003"
        direct.target.commit()
        direct.row = direct.target.load_row()
    assert direct.sql("SELECT v::text, n FROM keyed UNION ALL SELECT v::text, n FROM bag") == [("1.24", 1)] * 2


def test_columns_of_the_sources_own_type_are_not_looked_at(direct: Direct):
    """Nothing is asked; of all others the server is asked once for a piece of rows, if a value has digits enough."""
    direct.sql("CREATE TABLE own (id bigint PRIMARY KEY, a numeric(6,2), b timestamp(3), c varchar(5), d mood)")
    own = ("bigint", "numeric(6,1)", "timestamp(3) without time zone", "character varying(5)", "public.mood")
    more = {"logical": "bigint decimal timestamp text enum"}
    short, long = (["1", "1.2", f"2024-02-29 10:00:00.{digits}", "ab", "sad"] for digits in ("5", "5000"))
    for natives, row, expected in ((own, long, 0), ((), short, 0), ((), long, 1)):
        layout = direct.layout("own", "id a b c d", "id", more["logical"], natives=natives)
        asked: list[str] = []
        ask = direct.target.database._asked._ask
        direct.target.database._asked._ask = lambda text, params, ask=ask, asked=asked: (
            asked.append(text) or ask(text, params)
        )
        direct.do(direct.rows(layout, upserts=[row]))
        direct.target.database._asked._ask = ask
        assert len([text for text in asked if "unnest" in text]) == expected


def test_a_row_is_read_back_as_the_logical_types_have_it(direct: Direct):
    """What conflict rules compare with a change's values."""
    columns = {
        "a": ("timestamptz", "timestamp", "2024-02-29 10:00:00.5+00"), "b": ("date", "timestamp", "2024-02-29"),
        "c": ("boolean", "text", "true"), "d": ("bigint", "boolean", "0"), "e": ("text", "char(5)", "ab"),
        "f": ("decimal", "money", "1234.50"), "g": ("bytes", "text", b"\x00\xff"), "h": ("boolean", "boolean", "true"),
        "i": ("bigint", "double precision", "1000000000000000"),
    }  # fmt: skip
    direct.sql(f"CREATE TABLE read (id bigint PRIMARY KEY, {', '.join(f'{n} {c[1]}' for n, c in columns.items())})")
    logicals = " ".join(c[0] for c in columns.values())
    layout = direct.layout("read", f"id {' '.join(columns)}", "id", f"bigint {logicals}")
    row = ["1", *(c[2] for c in columns.values())]
    direct.do(direct.rows(layout, inserts=[row]))
    direct.begin()
    assert list(direct.target.current(layout, ("1",))) == row
    direct.target.commit()
    direct.row = direct.target.load_row()


def test_I8_what_somebody_else_wrote_is_read_as_it_is(direct: Direct):
    """No value of the source's type became it, and conflict rules must see that."""
    columns = {
        "a": ("date", "timestamptz", "2024-02-29 15:30:00+00"), "b": ("integer", "money", "5.55"),
        "c": ("time", "timetz", "10:00:00+05"), "d": ("boolean", "text", "maybe"),
        "e": ("date", "timestamp", "infinity"),
    }  # fmt: skip
    direct.sql(f"CREATE TABLE theirs (id bigint PRIMARY KEY, {', '.join(f'{n} {c[1]}' for n, c in columns.items())})")
    direct.sql(f"INSERT INTO theirs VALUES (1, {', '.join(repr(c[2]) for c in columns.values())})")
    logicals = " ".join(c[0] for c in columns.values())
    layout = direct.layout("theirs", f"id {' '.join(columns)}", "id", f"bigint {logicals}")
    new = direct.begin()
    assert direct.target.current(layout, ("1",)) == ("1", *(c[2] for c in columns.values()))
    direct.target.commit()
    direct.row = new


def test_native_types_of_another_kind_of_source_are_not_believed(tmp_path: Path, target_db: str):
    """An SQLite source declares what it does not hold values to: its words make no column and no value pass unseen."""
    bench = Bench(tmp_path, target_db, "public", feed=False)
    bench.lines = ["DDL INCLUDE MAPPED", "REPERROR (22003, IGNORE)"]
    admin_for(target_db).add_row_table(target_db, bench.table)
    bench.feed = TrailFeed(RealFs(), bench.trail, identity=replace(IDENTITY, source={"kind": "sqlite"}))
    columns = (
        DdlColumn(1, "id", "bigint", "INTEGER", default="datetime('now')"),
        DdlColumn(2, "n", "decimal", "numeric(6,2)", default="1.5"), DdlColumn(3, "v", "text", "varchar(2)"),
        DdlColumn(4, "at", "text", "timestamp", default="CURRENT_TIMESTAMP"),
    )  # fmt: skip
    shape = TableShape("src", "made", columns, ("id",))
    by_hand = replace(shape, name="by_hand", columns=(columns[0], replace(columns[1], native="numeric(6,2)")))
    with psycopg.connect(target_db, autocommit=True) as conn:
        conn.execute("CREATE TABLE by_hand (id bigint PRIMARY KEY, n numeric(6,2))")
        row = ["1", "1.239", "longer", "2024-02-29T10:00"]
        feed_ddl(bench.feed, DdlChange(CREATE, None, shape), (Op.INSERT, definition(shape), row))
        for number in ("1.239", "1.23"):
            bench.feed.tx((Op.INSERT, definition(by_hand), [number[-1], number]))
        bench.run()
        bench.feed.close()
        types = (
            "SELECT string_agg(format_type(atttypid, NULL), ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = "
        )
        assert conn.execute(types + "'made'::regclass AND attnum > 0").fetchone() == ("bigint numeric text text",)
        assert conn.execute("SELECT id::text, n::text, v, at FROM made").fetchall() == [tuple(row)]
        assert conn.execute("SELECT n::text FROM by_hand").fetchall() == [("1.23",)]


def _refused(direct: Direct, table: str, column: str, logical: str, value: str) -> str:
    """The table has this value alone then; else the SQLSTATE of its refusal."""
    name, _, kind = column.partition(" ")
    layout = Layout("pg_temp", table, (name,), (kind,), (), logical=(logical,))
    direct.target.database.run(f"TRUNCATE {layout.full_name}")
    try:
        direct.target.apply((Work(bags=(Bag(layout, inserts=layout.blob([[value]])[0]),)),))
    except RefusedError as error:
        return error.sqlstate
    return ""


_DECIMALS = st.decimals(allow_nan=False, allow_infinity=False).filter(lambda number: abs(number.adjusted()) < 30)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.one_of(_DECIMALS, _FLOATS, st.floats(width=32, allow_nan=False, allow_infinity=False)))
@settings(max_examples=60)
def test_a_number_arrives_as_itself_or_is_refused(direct: Direct, number: Decimal | float):
    """Of any scale, into columns of any: an independent reading of what stands there is the number that was sent."""
    logical, sent = ("decimal", format(number, "f")) if isinstance(number, Decimal) else ("double", double_back(number))
    direct.begin()
    direct.target.database.run(
        "CREATE TEMPORARY TABLE IF NOT EXISTS numbers (a numeric(20,4), b float8, c real, d numeric(9,-2))"
    )
    for name, kind in (("a", "numeric(20,4)"), ("b", "double precision"), ("c", "real"), ("d", "numeric(9,-2)")):
        if state := _refused(direct, "numbers", f"{name} {kind}", logical, sent):
            assert state == "22003"
            continue
        ((found,),) = direct.target.database.ask(f"SELECT {name}::text FROM pg_temp.numbers")
        if (logical, name) == ("double", "c"):
            assert struct.unpack("<f", struct.pack("<f", float(found)))[0] == number
        elif logical == "double":
            assert float(found) == number
        else:
            assert Decimal(found) == number
    direct.target.commit()
    direct.row = direct.target.load_row()


_SECONDS = st.integers(0, 10**9 - 1)


@given(st.datetimes(), _SECONDS, st.sampled_from(["timestamp", "timestamptz"]))
@settings(max_examples=40)
def test_a_moment_arrives_as_itself_or_is_refused(direct: Direct, moment: datetime, nanoseconds: int, logical: str):
    """With up to nine digits of a second, into columns that keep fewer, and into those with and without a zone."""
    fraction = f".{nanoseconds:09}".rstrip("0").rstrip(".")
    plain = moment.isoformat(" ", "seconds").zfill(19) + fraction
    sent = plain + ("+00" if logical == "timestamptz" else "")
    direct.begin()
    direct.target.database.run(
        "CREATE TEMPORARY TABLE IF NOT EXISTS moments (a timestamp, b timestamptz(3), c timestamp(0), d date)"
    )
    kinds = {
        "a": "timestamp without time zone",
        "b": "timestamp(3) with time zone",
        "c": "timestamp(0) without time zone",
    }
    kinds |= {"d": "date"} if logical == "timestamp" else {}
    for name, kind in kinds.items():
        if state := _refused(direct, "moments", f"{name} {kind}", logical, sent):
            assert state == "22008"
            continue
        ((found,),) = direct.target.database.ask(f"SELECT {name}::timestamp::text FROM pg_temp.moments")
        assert found == plain
    direct.target.commit()
    direct.row = direct.target.load_row()


@settings(max_examples=200)
@given(
    st.lists(st.one_of(st.none(), st.sampled_from(["", "NULL", '"', "\\", "{a,b}", " "]), st.text()), min_size=1).map(
        lambda values: [value and value.replace("\0", "") for value in values]
    )
)
def test_values_that_are_asked_about_arrive_as_they_are(link: psycopg.Connection[Any], values: list[str | None]):
    """Whatever an array's text gives a meaning to."""
    assert link.execute("SELECT %s::text[]", [_array(values)]).fetchone() == (values,)


@pytest.fixture(scope="module")
def link(pg_target: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """To a database of this file's own; nothing is kept in it."""
    with psycopg.connect(pg_target.url("postgres"), autocommit=True) as made:
        yield made
