"""Values in the binary logs of real servers: what the row decoder makes of them is what SELECT gives, type by type."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import c_float
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from demo.mysqld import Mysqld
from extract.sources.mysql.columns import column, definition
from extract.sources.mysql.events import BinlogError, UncapturedError
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.rowcode import MOST_PATTERNS, compile_rows
from extract.sources.mysql.tablemap import MapColumn, TableMap
from extract.sources.mysql.values import charsets
from extract.sources.mysql.values.unread import UnreadValueError
from tests.support.binlog_file import Rows, rows_of
from tests.support.mysql_source import STRIDE
from tests.support.mysql_values import BOTH, CASES, MARIA, MYSQL, Case
from trails.ddl import DdlColumn
from trails.record import DELETE, INSERT, UPDATE

DATABASE = "edges"
FLAVOURS = {MARIA: Flavour.MARIADB, MYSQL: Flavour.MYSQL}
RUNS = [(server, n) for server in (MARIA, MYSQL) for n, case in enumerate(CASES) if case.only in (BOTH, server)]


@dataclass(frozen=True)
class Seen:
    """What a server logged, by table; and what its SELECT gave."""

    events: dict[str, list[Rows]]
    selected: dict[int, list[tuple[Any, ...]]]
    flavour: Flavour


def _written(server: Mysqld, name: str) -> dict[int, list[tuple[Any, ...]]]:
    """Write all values: inserted, then moved to another key, then deleted."""
    selected = {}
    server.sql(f"CREATE DATABASE {DATABASE}")
    connection = server.connect(DATABASE)
    with connection.cursor() as run:
        run.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
        for n, case in enumerate(CASES):
            if case.only not in (BOTH, name):
                continue
            run.execute(f"CREATE TABLE v{n} (id INT PRIMARY KEY, v {case.type}, w INT)")
            for i, value in enumerate(case.values):
                run.execute(f"INSERT INTO v{n} VALUES ({i}, {value}, NULL)")
            run.execute(f"INSERT INTO v{n} VALUES ({len(case.values)}, NULL, 1)")
            run.execute(f"SELECT id, {case.read} FROM v{n} ORDER BY id")
            selected[n] = list(run.fetchall())
            run.execute(f"UPDATE v{n} SET w = 2")
            run.execute(f"UPDATE v{n} SET id = id + 1000")
            run.execute(f"DELETE FROM v{n}")
    connection.close()
    return selected


@pytest.fixture(scope="module")
def seen(mariadb_source: Mysqld, mysql_source: Mysqld) -> Iterator[dict[str, Seen]]:
    """Both servers, written to and read once."""
    found = {}
    for name, server in ((MARIA, mariadb_source), (MYSQL, mysql_source)):
        selected = _written(server, name)
        events: dict[str, list[Rows]] = {}
        for rows in rows_of(server, DATABASE, FLAVOURS[name]):
            events.setdefault(rows.table.name, []).append(rows)
        found[name] = Seen(events, selected, FLAVOURS[name])
    yield found
    for server in (mariadb_source, mysql_source):
        server.sql(f"DROP DATABASE {DATABASE}")


def _single(value: str) -> str:
    """A FLOAT, which SELECT gives as a double: the shortest text of its four bytes, found the slow way."""
    number = float(value)
    return next(t for t in (f"{number:.{n}g}" for n in range(1, 18)) if c_float(float(t)).value == number)


def _same(case: Case, got: Any, value: Any) -> bool:
    if value is None or case.logical not in ("real", "double"):
        return bool(got == (None if value is None else case.expected(value)))
    return _same_number(got, value, case.logical)


def _same_number(text: str, expected: str, logical: str) -> bool:
    """The servers lay floating-point numbers out in another way than the trail does."""
    shortest = Decimal(_single(expected) if logical == "real" else repr(float(expected)))
    return Decimal(text) == shortest and Decimal(text).is_signed() == shortest.is_signed()


@pytest.mark.parametrize(("server", "n"), RUNS, ids=[f"{server}-{CASES[n].title}" for server, n in RUNS])
def test_CA_01_a_value_in_the_log_is_what_select_gives(seen: dict[str, Seen], server: str, n: int) -> None:
    """As a new row, as the row before and after a change, and of a deleted row; and NULL."""
    case, found = CASES[n], seen[server]
    events = found.events[f"v{n}"]
    table = events[0].table
    known = (None, DdlColumn(2, "v", "", case.type), None)
    code = compile_rows(table, found.flavour, known)
    records = [record for rows in events for record in rows.records(code)]
    count = len(case.values) + 1
    inserted, updated, moved, deleted = (records[i * count : (i + 1) * count] for i in range(4))
    assert len(records) == 4 * count and [r[0] for r in records[::count]] == [INSERT, UPDATE, UPDATE, DELETE]
    assert column(table.columns[1], known[1], found.flavour).type == case.logical
    for i, (key, value) in enumerate(found.selected[n]):
        got = _text_of(inserted[i][2][1])
        same = _same(case, got, value)
        assert same, (case.values[i : i + 1], f"{got!r:.200} is not {value!r:.200}")
        image = inserted[i][2]
        w = None if value is not None or i < count - 1 else "1"
        changed = (UPDATE, 7, [image[0], image[1], "2"], None)
        assert image[0] == key and image[2] == w and updated[i] == changed, key
        after = [str(int(key) + 1000), image[1], "2"]
        was = (UPDATE, 7, after, [key, image[1], "2"])
        kept = moved[i] == was and deleted[i] == (DELETE, 7, after)
        assert kept, key
    befores = compile_rows(table, found.flavour, known, befores=True)
    whole = [record for rows in events[count:] for record in rows.records(befores)][:count]
    kept = whole == [(UPDATE, 7, new[2], old[2]) for new, old in zip(updated, inserted, strict=True)]
    assert kept, "asked for, updates have their whole old rows"


def _text_of(value: Any) -> Any:
    return value.decode() if type(value) is bytes else value


def test_the_log_alone_names_most_types(seen: dict[str, Seen]) -> None:
    """Without a known shape: the native type as information_schema has it, but for its lengths in bytes."""
    found = seen[MYSQL]
    natives = {}
    for name, events in found.events.items():
        case: Case = CASES[int(name[1:])]
        natives[case.type] = definition(events[0].table, None, found.flavour).columns[1].native
    for plain in ("tinyint", "int unsigned", "bigint", "decimal(65,30)", "bit(9)", "time(3)", "datetime", "year",
                  "date",
                  "varbinary(300)", "binary(16)", "mediumblob", "longtext", "json", "point", "double"):  # fmt: skip
        assert natives[plain] == plain
    assert natives["timestamp(6) NULL"] == "timestamp(6)" and natives["char(255) CHARACTER SET utf8mb4"] == "char(1020)"


# --- rows of many columns, NULLs, bytes that are no rows ------------------------------------------------------------

_WIDE = (
    "id INT PRIMARY KEY", "a TINYINT", "b SMALLINT", "c MEDIUMINT", "d BIGINT UNSIGNED", "e DECIMAL(20,5)", "f FLOAT",
    "g DOUBLE", "h BIT(9)", "i YEAR", "j DATE", "k DATETIME(3)", "l TIMESTAMP(6) NULL", "m TIME(2)", "n CHAR(9)",
    "o VARCHAR(300)", "p BINARY(7)", "q VARBINARY(9)", "r TEXT", "s BLOB", "t ENUM('x','y')", "u SET('x','y','z')",
    "v GEOMETRY", "w JSON", "x VARCHAR(9) CHARACTER SET sjis",
)  # fmt: skip
_ROW = (
    "{}", "-1", "2", "-3", "18446744073709551615", "-1.5", "0.5", "1e9", "b'101'", "2024", "'2024-02-29'",
    "'2024-02-29 01:02:03.004'", "'2024-02-29 01:02:03.000005'", "'-1:02:03.04'", "'char'", "'varchar'", "x'01'",
    "x'02'", "'text'", "x'03'", "'y'", "'x,z'", "ST_GeomFromText('POINT(1 2)')",
    """'{{"a": [1, "b", 1.5]}}'""", "'日本'",
)  # fmt: skip


def _wide(server: Mysqld, name: str, flavour: Flavour) -> list[Rows]:
    """A table of all kinds of columns: a row without NULLs, rows with each one NULL, all changed, and all deleted."""
    database = f"wide_{name}"
    server.sql(f"DROP DATABASE IF EXISTS {database}")
    server.sql(f"CREATE DATABASE {database}")
    server.sql(f"CREATE TABLE wide ({', '.join(_WIDE)})", database)
    rows = [[value.format(at) if value == "{}" else value.replace("{{", "{").replace("}}", "}")
             for value in _ROW] for at in range(len(_ROW))]  # fmt: skip
    for at in range(1, len(_ROW)):
        rows[at][at] = "NULL"
    server.sql(f"INSERT INTO wide VALUES {', '.join(f'({chr(44).join(row)})' for row in rows)}", database)
    server.sql("UPDATE wide SET a = 7, o = NULL", database)
    server.sql("UPDATE wide SET id = id + 100 WHERE id < 3", database)
    server.sql("DELETE FROM wide", database)
    found = list(rows_of(server, database, flavour))
    server.sql(f"DROP DATABASE {database}")
    return found


@pytest.fixture(scope="module", params=[MARIA, MYSQL])
def wide(request: pytest.FixtureRequest) -> list[Rows]:
    """Its events, of either server."""
    fixture = "mariadb_source" if request.param == MARIA else "mysql_source"
    return _wide(request.getfixturevalue(fixture), request.param.lower(), FLAVOURS[request.param])


def _flavour(rows: Rows) -> Flavour:
    return Flavour.MARIADB if rows.table.schema.endswith("mariadb") else Flavour.MYSQL


def test_more_sets_of_nulls_than_functions_give_the_same_rows(wide: list[Rows]) -> None:
    """Each row's values are those of the row without NULLs, but for its own NULL; one function for all does it too."""
    defined = definition(wide[0].table, None, _flavour(wide[0]))
    assert defined.key == (0,) and len(defined.columns) == len(_WIDE)
    code = compile_rows(wide[0].table, _flavour(wide[0]))
    inserts, updates, moves, deletes = (
        [r for rows in wide if rows.verb == verb for r in rows.records(code)][part]
        for verb, part in (("inserts", slice(None)), ("updates", slice(0, len(_ROW))),
                           ("updates", slice(len(_ROW), None)), ("deletes", slice(None)))
    )  # fmt: skip
    assert MOST_PATTERNS < len(inserts) == len(_ROW)
    first = inserts[0][2]
    for at, (_op, _number, image) in enumerate(inserts):
        expected = [str(at), *first[1:]]
        if at:
            expected[at] = None
        assert image == expected
    changed = [[*image[:1], "7", *image[2:15], None, *image[16:]] for _op, _number, image in inserts]
    assert [r[2:] for r in updates] == [(after, None) for after in changed]
    assert [r[2:] for r in moves] == [([str(100 + i), *image[1:]], image) for i, image in enumerate(changed[:3])]
    kept = sorted([r[2] for r in moves] + changed[3:], key=lambda image: int(image[0]))
    assert sorted((r[2] for r in deletes), key=lambda image: int(image[0])) == kept


@pytest.mark.hostile  # in `make soak` each byte
def test_bytes_that_are_no_rows_are_one_named_error(wide: list[Rows]) -> None:
    """Bytes of the first rows turned over, by all bits or by one, and rows cut anywhere: never another error."""
    code = compile_rows(wide[0].table, _flavour(wide[0]))
    named = 0
    for rows in (wide[0], next(rows for rows in wide if rows.verb == "updates")):
        whole = rows.data[rows.at : min(rows.at + 900, rows.upto)]
        damaged = [
            whole[:i] + bytes([whole[i] ^ bits]) + whole[i + 1 :]
            for bits in (0xFF, 0x01, 0x80)
            for i in range(0, len(whole), STRIDE)
        ]
        for data in [*damaged, *(whole[:i] for i in range(0, len(whole), STRIDE))]:
            try:
                getattr(code, rows.verb)(data, 0, len(data), 7, lambda _record: None)
            except (BinlogError, UncapturedError) as error:
                named += 1
                placed = error.placed("binlog.000001:4")
                assert placed.message.startswith("binlog.000001:4: ") and rows.table.full_name in placed.message
    assert named > 3000 / STRIDE


def test_text_that_is_none_of_its_character_set_is_refused_by_column(wide: list[Rows]) -> None:
    """It is no text, so nothing stands for it; the table, the column, and what was found are named."""
    rows = wide[0]
    code = compile_rows(rows.table, _flavour(rows))
    at = rows.data.index(b"varchar", rows.at)
    data = rows.data[:at] + b"v\xff\xfechar"[:7] + rows.data[at + 7 :]
    with pytest.raises(UncapturedError) as refused:
        code.inserts(data, rows.at, rows.upto, 7, lambda _record: None)
    assert f"table {rows.table.full_name}, column o: " in str(refused.value)
    assert "expected text in utf8mb4, found ff at byte 1" in str(refused.value)


def test_a_type_that_is_not_read_is_refused_by_table_and_column() -> None:
    """Such as MySQL's VECTOR."""
    vector = TableMap("s", "t", (MapColumn("id", 3, 0, False), MapColumn("v", 242, 4, True)), (0,))
    with pytest.raises(UncapturedError, match=r"table s.t, column v: it is of the type 242 of the binary log"):
        definition(vector, None, Flavour.MYSQL)


# --- character sets -------------------------------------------------------------------------------------------------

_EVERY = 5
"""Of the codes of two and three bytes one in so many is asked about; all of them take a minute."""
_REPLACED = {"big5": frozenset("╴￣ˍ／＼十卅")}
"""Characters for which the servers print a replacement, and which are kept here."""


def _codes(charset: str) -> list[bytes]:
    """Codes that there may be in a character set: of one byte all, of more some."""
    if charset in ("ucs2", "utf16", "utf16le"):
        wide = [n.to_bytes(2, "big") for n in range(0, 1 << 16, _EVERY)]
        return [code for code in wide if not 0xD8 <= code[charset == "utf16le"] <= 0xDF]
    pairs = [bytes((a, b)) for a in range(0x81, 0xFF) for b in range(0x40, 0xFF)][::_EVERY]
    if charset in ("ujis", "eucjpms"):
        pairs += [bytes((0x8F, a, b)) for a in range(0xA1, 0xF3) for b in range(0xA1, 0xFF)][::_EVERY]
    many = ("big5", "cp932", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis", "eucjpms")
    return pairs if charset in many else [bytes([n]) for n in range(256)]


@pytest.mark.parametrize("server", [MARIA, MYSQL])
def test_each_code_is_the_character_that_the_server_has_or_is_refused(
    request: pytest.FixtureRequest, server: str
) -> None:
    """By its own conversion; what it prints as a question mark is no character."""
    fixture = "mariadb_source" if server == MARIA else "mysql_source"
    connection = request.getfixturevalue(fixture).connect()
    faults, met = [], 0
    with connection.cursor() as run:
        run.execute("SET sql_mode = ''")
        run.execute("SELECT character_set_name FROM information_schema.character_sets")
        known = {name for (name,) in run.fetchall()} - {"binary", "utf8", "utf8mb3", "utf8mb4", "utf32"}
        for charset in sorted(known):
            decode, codes = charsets.decoder(charset), _codes(charset)
            for at in range(0, len(codes), 2000):
                part = codes[at : at + 2000]
                casts = [f"CAST(x'{code.hex()}' AS CHAR CHARACTER SET {charset})" for code in part]
                run.execute(f"SELECT {', '.join(f'CAST(CONVERT({one} USING utf8mb4) AS BINARY)' for one in casts)}")
                met += len(part)
                for code, found in zip(part, run.fetchone(), strict=True):
                    try:
                        made: str | None = decode(code)
                    except UnreadValueError:
                        made = None
                    text = (found or b"").decode("utf-8", "replace")
                    fits = made is None and (len(code) > 1 or "?" in text or "\ufffd" in text or not text)
                    if made != text and not fits and made not in _REPLACED.get(charset, ()):
                        faults.append(f"{charset} {code.hex()}: {made!r} is not {text!r}")
    connection.close()
    assert met > 30_000 and not faults, "\n".join(faults[:20])


# --- what only one of the servers has -------------------------------------------------------------------------------

_CHANGES = (
    "JSON_SET(v, '$.a', 1)", "JSON_SET(v, '$.b[1]', 'x')", "JSON_REPLACE(v, '$.c.d', JSON_ARRAY(1.5, NULL))",
    "JSON_REMOVE(v, '$.a')", "JSON_SET(v, '$.\"k e y\"', TRUE)", "JSON_REMOVE(v, '$.b[0]')",
    "JSON_SET(v, '$.z', 9, '$.y', 8)",
    "JSON_REPLACE(v, '$.b[0]', CAST(1.10 AS DECIMAL(5,2)))", "JSON_SET(JSON_REMOVE(v, '$.c.d'), '$.c.e', '\u00e4')",
    "JSON_SET(v, '$.\"q\\\\\"uote\"', 1)", "JSON_SET(v, '$', 5)", "NULL",
    "JSON_OBJECT('a', REPEAT('x', 300), 'b', JSON_ARRAY(1, 2))",
    "JSON_REPLACE(v, '$.a', REPEAT('y', 20))", "JSON_SET(v, '$.b[9]', 'end')",
)  # fmt: skip


def test_partial_json_is_applied_to_the_whole_value_before(mysql_source: Mysqld) -> None:
    """Each change as the server itself prints it; the log has but the difference of most of them."""
    database = "partial"
    mysql_source.sql(f"CREATE DATABASE {database}")
    mysql_source.sql("CREATE TABLE j (id INT PRIMARY KEY, v JSON, o JSON, n INT)", database)
    connection = mysql_source.connect(database)
    seen_values = []
    with connection.cursor() as run:
        run.execute("SET SESSION binlog_row_value_options = PARTIAL_JSON")
        padding = "x" * 500
        run.execute(f"""INSERT INTO j VALUES (1, '{{"a": "{padding}", "b": [10, 20, 30, 40], "c": {{"d": "{padding}"}},
            "bb": "{padding}", "k e y": 1, "q\\\\\\"uote": 2}}', '{{"p": "{padding}"}}', 0)""")
        for change in _CHANGES:
            run.execute(
                f"UPDATE j SET v = {change}, o = JSON_SET(o, '$.p', 'short', '$.new', 1), n = n + 1, id = id + (n % 2)"
            )
            run.execute("SELECT id, v, o, n FROM j")
            seen_values.append([None if value is None else value for value in run.fetchone()])
    connection.close()
    events = list(rows_of(mysql_source, database, Flavour.MYSQL))
    mysql_source.sql(f"DROP DATABASE {database}")
    code = compile_rows(events[0].table, Flavour.MYSQL, befores=True)
    records = [record for rows in events[1:] for record in rows.records(code)]
    assert sum(rows.partial for rows in events) >= len(_CHANGES) - 2
    assert [record[2] for record in records] == seen_values
    assert [record[3] for record in records[1:]] == seen_values[:-1]


def test_times_of_the_old_format_are_read_where_they_have_no_fraction(mariadb_source: Mysqld) -> None:
    """The log does not tell their digits, so a column is refused unless its shape says that it has none."""
    database = "oldtimes"
    mariadb_source.sql(f"CREATE DATABASE {database}")
    mariadb_source.sql("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        mariadb_source.sql("CREATE TABLE o (a TIMESTAMP NULL, b DATETIME, c TIME, d TIME, e DATETIME)", database)
        mariadb_source.sql(
            "INSERT INTO o VALUES "
            "('2024-02-29 01:02:03', '9999-12-31 23:59:59', '-838:59:59', '23:00:01', '2024-02-29')",
            database,
        )
    finally:
        mariadb_source.sql("SET GLOBAL mysql56_temporal_format = ON")
    natives = mariadb_source.sql(
        "SELECT column_type FROM information_schema.columns "
        f"WHERE table_schema = '{database}' ORDER BY ordinal_position"
    )
    (rows,) = rows_of(mariadb_source, database, Flavour.MARIADB)
    mariadb_source.sql(f"DROP DATABASE {database}")
    known = tuple(DdlColumn(i + 1, "abcde"[i], "", native) for i, (native,) in enumerate(natives))
    image = rows.records(compile_rows(rows.table, Flavour.MARIADB, known))[0][2]
    assert image == [
        "2024-02-29 01:02:03+00", "9999-12-31 23:59:59", "-838:59:59", "23:00:01", "2024-02-29 00:00:00"
    ]  # fmt: skip
    with_fraction = (known[0], DdlColumn(2, "b", "", "datetime(3) /* mariadb-5.3 */"), *known[2:])
    for shape in ((), with_fraction):
        with pytest.raises(UncapturedError, match=r"table oldtimes.o, column [ab]: expected a time of the format"):
            compile_rows(rows.table, Flavour.MARIADB, shape)
