"""MariaDB and MySQL as a target: what is their own: collations, strict mode, LOAD DATA, engines, lost connections."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest

from demo.mysql import MysqlServer
from demo.mysqld import Mysqld
from demo.patience import wait_for
from demo.proxy import Proxy
from replicat.model.target import Bag, Match, RefusedError, Truncate, Work
from replicat.targets.kinds import admin_for
from replicat.targets.mysql.link import MysqlUrl, connect
from tests.support.direct_target import Direct, blob
from trails.errors import AwayError, OperatorError
from trails.position import Position

pytestmark = pytest.mark.e2e
MANY = """
INSERT INTO kv WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)
SELECT n FROM numbers
"""


ONLY_MARIADB = pytest.mark.parametrize("server", ["mariadb"], indirect=True)
ONLY_MYSQL = pytest.mark.parametrize("server", ["mysql"], indirect=True)


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.soak)])
def server(request: pytest.FixtureRequest) -> Mysqld:
    """Each server in turn."""
    found: Mysqld = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def database(server: Mysqld, request: pytest.FixtureRequest) -> str:
    """A new empty database of that server."""
    name: str = request.getfixturevalue("mysql_db" if isinstance(server, MysqlServer) else "maria_db")
    return name


@pytest.fixture
def direct(server: Mysqld, database: str) -> Iterator[Direct]:
    made = Direct("mysql", server.url(database), database, server)
    made.open()
    yield made
    made.close()


# --- keys as the target compares them -------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [("a", "A"), ("a", "á"), ("a", "a "), ("ss", "ß")])
def test_e2_keys_that_the_collation_takes_for_one(direct: Direct, keys: tuple[str, str]):
    """'a' = 'A' = 'á' = 'a ' (E2): never a wrong row: refused as one batch, and applied right one change at a time."""
    one, other = keys
    collation = " COLLATE utf8mb4_unicode_520_ci" if "ß" in keys or " " in other else ""  # else the server's own
    direct.sql(f"CREATE TABLE kv (id varchar(10) PRIMARY KEY, v varchar(10)) CHARACTER SET utf8mb4{collation}")
    layout = direct.layout("kv", "id v", "id")
    assert layout.soft_key
    direct.do(direct.rows(layout, inserts=[[one, "1"], ["z", "z"]]))
    new = direct.begin()
    for what in ({"inserts": [[other, "2"]]}, {"updates": [[one, "x"], [other, "y"]]}, {"deletes": [[one], [other]]}):
        with pytest.raises(RefusedError):
            direct.target.apply((direct.rows(layout, **what),))
    for what in ({"updates": [[other, "y"]]}, {"deletes": [[other]]}):  # another row at the source: not here
        with pytest.raises(RefusedError, match="not there"):
            direct.target.apply((direct.rows(layout, **what),), single=True)
    direct.target.apply((direct.rows(layout, deletes=[[one]], inserts=[[other, "moved"]]),), single=True)
    direct.target.commit()
    direct.row = new
    assert set(direct.sql("SELECT id, v FROM kv")) == {(other, "moved"), ("z", "z")}


@ONLY_MARIADB
def test_keys_under_a_binary_collation_are_plain(direct: Direct):
    """Only a NO PAD binary collation tells all texts apart. MySQL has one since 8.0.17. Our own tables have it."""
    own = direct.sql("SELECT DISTINCT table_collation FROM information_schema.tables WHERE table_schema = database()")
    assert own == [("utf8mb4_nopad_bin",)]
    direct.sql(
        "CREATE TABLE kv (id varchar(9) COLLATE utf8mb4_nopad_bin PRIMARY KEY, w varchar(9) COLLATE utf8mb4_bin UNIQUE)"
    )
    columns = {column.name: column.soft for column in direct.target.table(direct.schema, "kv").columns}
    assert columns == {"id": False, "w": True}
    layout = direct.layout("kv", "id", "id")
    direct.do(direct.rows(layout, inserts=[["a"], ["A"], ["á"], ["a "]]))
    direct.do(direct.rows(layout, deletes=[["a "], ["A"]]))
    assert direct.sql("SELECT id FROM kv ORDER BY id") == [("a",), ("á",)]


def test_a_table_without_a_key_tells_text_apart_byte_by_byte(direct: Direct):
    direct.sql("CREATE TABLE bag (v varchar(10))")
    layout = direct.layout("bag", "v")
    direct.do(Work(bags=(Bag(layout, inserts=blob(["a"], ["A"], ["á"])),)))
    direct.do(Work(bags=(Bag(layout, (Match((), blob(["0", "á"])), Match((), blob(["0", "A", "B"]), update=True))),)))
    assert sorted(direct.sql("SELECT v FROM bag")) == [("B",), ("a",)]


# --- strict: refused, never cut, rounded or zeroed --------------------------------------------------------------------


@pytest.mark.parametrize("infile", [True, False])
def test_e2_dates_times_and_shapes_of_the_same_kind_of_source_arrive_exact(direct: Direct, infile: bool):
    """Zero, partial and impossible dates, times of 838 hours, geometry: stored as new rows and by updates."""
    direct.target.database._infile = infile
    direct.sql("CREATE TABLE e (id int PRIMARY KEY, d date, m datetime(6), s timestamp(6) NULL, t time(6), g geometry)")
    layout = direct.layout("e", "id d m s t g", "id", "integer date timestamp timestamptz time geometry")
    point, placed = "0101000000000000000000F03F0000000000000040", "0101000020E6100000000000000000F03F0000000000000040"
    rows = [
        ["1", "0000-00-00", "0000-00-00 00:00:00", "0000-00-00 00:00:00+00", "-838:59:58.999999", point],
        ["2", "2024-00-15", "2024-02-00 12:34:56.5", "2024-02-29 23:59:59.123456+00", "838:59:59", placed],
        ["3", "2023-02-31", "2023-02-31 00:00:00", "2038-01-19 03:14:07+00", "-00:00:00.5", None],
    ]
    direct.do(direct.rows(layout, inserts=rows))
    read = direct.sql("SELECT id, d, m, s, t, HEX(g) FROM e ORDER BY id")
    assert read[0] == (
        "1", "0000-00-00", "0000-00-00 00:00:00.000000", "0000-00-00 00:00:00.000000", "-838:59:58.999999",
        "00000000" + point,
    )  # fmt: skip
    assert read[1][1:5] == (
        "2024-00-15",
        "2024-02-00 12:34:56.500000",
        "2024-02-29 23:59:59.123456",
        "838:59:59.000000",
    )
    assert read[1][5] == "E6100000" + placed[:10].replace("20", "00") + placed[18:]
    assert read[2][1:] == (
        "2023-02-31", "2023-02-31 00:00:00.000000", "2038-01-19 03:14:07.000000", "-00:00:00.500000", None
    )  # fmt: skip
    direct.do(direct.rows(layout, updates=[[*row[:5], point] for row in rows]))
    assert {row[0] for row in direct.sql("SELECT HEX(g) FROM e")} == {"00000000" + point}


@pytest.mark.parametrize("infile", [True, False])
@pytest.mark.parametrize(
    ("column", "logical", "value", "sqlstate"),
    [
        ("tinyint", "integer", "300", "22003"),
        ("int unsigned", "integer", "-1", "22003"),
        ("decimal(5,2)", "decimal", "1.005", "22001"),
        ("decimal(5,2)", "decimal", "12345", "22003"),
        ("varchar(3)", "text", "abcd", "22001"),
        ("varchar(3)", "text", "abc ", "22001"),
        ("char(3)", "text", "a ", "22001"),
        ("varchar(9) CHARACTER SET utf8mb3", "text", "𝄞", "22018"),
        ("varchar(9) CHARACTER SET latin1", "text", "Ω", "22018"),
        ("float", "real", "1e+39", "22003"),
        ("double", "double", "NaN", "22003"),
        ("date", "date", "infinity", "22008"),
        ("timestamp NULL", "timestamptz", "1901-01-01 00:00:00+00", "22008"),
        ("datetime(3)", "timestamp", "2024-01-01 00:00:00.1234", "22008"),
        ("varbinary(2)", "bytes", b"abc", "22001"),
        ("json", "text", "{bad", "23514"),
        ("uuid", "other", None, ""),
        ("enum('a','b')", "text", "c", "22018"),
    ],
)
def test_what_does_not_fit_is_refused(
    direct: Direct, column: str, logical: str, value: Any, sqlstate: str, infile: bool
):
    """In new rows and updates, by LOAD DATA and without it; the message names table, column and row."""
    own = isinstance(direct.server, MysqlServer)
    column = "json" if own and column == "uuid" else column
    direct.sql(f"CREATE TABLE kv (id bigint PRIMARY KEY, v {column})")
    direct.target.database._infile = infile
    sqlstate = "22032" if own and column == "json" else sqlstate  # MariaDB's json is a longtext with a CHECK
    if value is None:
        with pytest.raises(OperatorError, match=rf"column v: values of type {logical} can't go into {column}"):
            direct.target.check_layout(direct.layout("kv", "id v", "id", f"bigint {logical}"))
        return
    layout = direct.layout("kv", "id v", "id", f"bigint {logical}")
    direct.sql("INSERT INTO kv VALUES (2, NULL)")
    for what in ({"inserts": [["1", None], ["7", value]]}, {"updates": [["2", value]]}):
        direct.begin()
        with pytest.raises(RefusedError, match=r"(?i)\bv\b") as caught:
            direct.target.apply((direct.rows(layout, **what),))
        assert caught.value.sqlstate == sqlstate, caught.value
        direct.target.close()
        direct.open()
    assert direct.sql("SELECT * FROM kv") == [("2", None)]


@ONLY_MYSQL
@pytest.mark.parametrize("infile", [True, False])
def test_e2_json_of_mysql_is_exact_or_refused(direct: Direct, infile: bool):
    """New rows, updates, tables without a key; the server itself says which numbers it would read as others."""
    direct.target.database._infile = infile
    direct.sql("CREATE TABLE kv (id int PRIMARY KEY, v json)")
    direct.sql("CREATE TABLE bag (v json, n int)")
    layout = direct.layout("kv", "id v", "id", "integer json")
    values = ['{"a": "é🙂\\\\ \\"", "bb": [18446744073709551615, null, 0.3, 1e20]}', "null", '"0"', "1", "1.0"]
    direct.do(direct.rows(layout, inserts=[[str(i), value] for i, value in enumerate(values)] + [["9", None]]))
    assert direct.sql("SELECT id, v FROM kv") == [*((str(i), value) for i, value in enumerate(values)), ("9", None)]
    direct.do(direct.rows(layout, updates=[["0", None], ["9", values[0]]]))
    assert direct.sql("SELECT id, v FROM kv WHERE id IN (0, 9)") == [("0", None), ("9", values[0])]
    direct.begin()
    assert direct.target.current(layout, ("9",)) == ("9", values[0])
    for other in ("0.21548116922473226", '"\\ud800"', "[" * 101 + "]" * 101):
        with pytest.raises(RefusedError) as caught:
            direct.target.apply((direct.rows(layout, inserts=[["7", other]]),))
        assert caught.value.sqlstate == "22032"
        direct.target.close()
        direct.open()
        direct.begin()
    direct.target.close()
    direct.open()
    direct.target.database._infile = infile
    bag = direct.layout("bag", "v n", "", "json integer")
    direct.do(Work(bags=(Bag(bag, inserts=blob(["1", "1"], ["1.0", "1"], [values[0], "1"])),)))
    found = blob(["0", "1.0", "1", "[1.0]", "2"], ["1", values[0], "1", values[0], "3"])
    direct.do(Work(bags=(Bag(bag, (Match((), found, update=True), Match((), blob(["2", "1", "1"])))),)))
    assert direct.sql("SELECT v, n FROM bag ORDER BY n") == [("[1.0]", "2"), (values[0], "3")]


@pytest.mark.parametrize(
    "setting", ["sql_notes = 0", "max_error_count = 0", "sql_select_limit = 1", "sql_safe_updates = 1"]
)
@pytest.mark.parametrize(
    ("column", "logical", "value"), [("decimal(5,2)", "decimal", "0.001"), ("varchar(3)", "text", "abc ")]
)
def test_a_servers_own_settings_hide_nothing(direct: Direct, setting: str, column: str, logical: str, value: str):
    """Rounding a decimal and cutting blanks are notes: a server that is told to keep notes to itself tells us."""
    name = setting.partition(" ")[0]
    direct.sql(f"CREATE TABLE kv (id bigint PRIMARY KEY, v {column})")
    direct.close()
    try:
        direct.sql(f"SET GLOBAL {setting}")
        direct.open()
        layout = direct.layout("kv", "id v", "id", f"bigint {logical}")
        direct.begin()
        with pytest.raises(RefusedError, match="Data truncated for column 'v'") as caught:
            direct.target.apply((direct.rows(layout, inserts=[["1", value]]),))
        assert caught.value.sqlstate == "22001"
        direct.target.apply((Truncate(((direct.schema, "kv"),)),))
    finally:
        direct.close()
        direct.sql(f"SET GLOBAL {name} = DEFAULT")


@pytest.mark.parametrize("kind", ["varchar(16000)", "varbinary(40000)"])
def test_the_widest_rows_of_a_table_without_a_key(direct: Direct, kind: str):
    """A row as it was and as it became are more than one row of a table may be."""
    direct.sql(f"CREATE TABLE bag (n int, v {kind}) CHARACTER SET utf8mb4")
    layout = direct.layout("bag", "n v", "", "integer bytes" if "bin" in kind else "integer text")
    long = b"x" * 9000 if "bin" in kind else "é " * 8000
    direct.do(Work(bags=(Bag(layout, inserts=blob(["1", long], ["1", long], ["2", None])),)))
    direct.do(Work(bags=(Bag(layout, (Match((), blob(["0", "1", long, "3", long]), update=True),)),)))
    assert sorted(direct.sql("SELECT n, length(v) > 8000 FROM bag")) == [("1", "1"), ("2", None), ("3", "1")]


def test_a_user_who_may_do_anything_is_warned_of(direct: Direct, server: Mysqld):
    """One with rights on the target's schema alone is not."""
    database = direct.url.rpartition("/")[2]
    server.sql("CREATE USER few@'127.0.0.1' IDENTIFIED BY 'x'")
    server.sql(f"GRANT ALL PRIVILEGES ON {database}.* TO few@'127.0.0.1'")
    few = Direct("mysql", f"mysql://few:x@127.0.0.1:{server.port}/{database}", database, server)
    try:
        (said,) = direct.target.cautions()
        assert "TARGETDB's user root@" in said and "on the whole server" in said
        assert few.open().cautions() == []
    finally:
        few.close()
        server.sql("DROP USER few@'127.0.0.1'")


def test_a_table_that_a_staging_table_would_hide(direct: Direct):
    """Staging tables are temporary tables in the target's database."""
    direct.sql("CREATE TABLE tg_r0 (id bigint PRIMARY KEY)")
    with pytest.raises(OperatorError, match=r"tg_r0 has the name of a staging table"):
        direct.target.table(direct.schema, "tg_r0")


def test_zero_in_an_auto_increment_column_is_zero_and_null_is_refused(direct: Direct):
    direct.sql("CREATE TABLE kv (id bigint AUTO_INCREMENT PRIMARY KEY, v varchar(9))")
    layout = direct.layout("kv", "id v", "id", "bigint text")
    direct.do(direct.rows(layout, inserts=[["0", "zero"]]))
    assert direct.sql("SELECT id FROM kv") == [("0",)]
    bag = direct.layout("kv", "id v", "", "bigint text")
    with pytest.raises(RefusedError) as caught:
        direct.do(Work(bags=(Bag(bag, inserts=blob([None, "made up"])),)))
    assert caught.value.sqlstate == "23502"


def test_without_local_infile_rows_go_as_statements(direct: Direct):
    """Every kind of value survives, thousands of rows too."""
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY, v longtext, b longblob, t bit(3))")
    direct.target.database._infile = False
    layout = direct.layout("kv", "id v b t", "id", "bigint text bytes bits")
    rows: list[list[Any]] = [[str(i), f"it's {{}} %s \\ {i}", bytes([i % 256, 39, 92]), "101"] for i in range(2000)]
    direct.do(direct.rows(layout, inserts=[*rows, ["5000", None, None, None]]))
    found = direct.sql("SELECT id, v, hex(b), t+0 FROM kv WHERE id IN (39, 5000) ORDER BY id")
    assert found == [("39", "it's {} %s \\ 39", "27275C", "5"), ("5000", None, None, None)]


def test_a_value_larger_than_max_allowed_packet(direct: Direct):
    """LOAD DATA has no such limit; a statement has, and says so."""
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY, v longtext)")
    layout = direct.layout("kv", "id v", "id", "bigint text")
    direct.do(direct.rows(layout, inserts=[["1", "x" * (17 << 20)]]))
    assert direct.sql("SELECT length(v) FROM kv") == [(str(17 << 20),)]
    direct.target.database._infile = False
    with pytest.raises(RefusedError, match=r"max_allowed_packet is 16777216: raise it"):
        direct.do(direct.rows(layout, inserts=[["2", "x" * (17 << 20)]]))


# --- tables that can't be targets -----------------------------------------------------------------------------------


def test_e2_myisam_is_refused(direct: Direct):
    """Rows without transaction (E2)."""
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY) ENGINE = MyISAM")
    with pytest.raises(OperatorError, match=r"engine MyISAM.*ENGINE = InnoDB"):
        direct.target.table(direct.schema, "kv")
    direct.sql("ALTER TABLE chk ENGINE = MyISAM")
    with pytest.raises(OperatorError, match="chk is of engine MyISAM"):
        direct.target.database.connect()
    direct.sql("CREATE VIEW v AS SELECT 1")
    assert direct.target is not None


def test_shapes(direct: Direct):
    """Unique sets without prefixes, computed columns, a name that is not there."""
    direct.sql(
        "CREATE TABLE kv (id int PRIMARY KEY, a varchar(9), b int AS (id + 1) STORED, "
        f"c int{'' if isinstance(direct.server, MysqlServer) else ' INVISIBLE'}, UNIQUE (a(3)), UNIQUE (a, id))"
    )
    table = direct.target.table(direct.schema, "kv")
    assert {column.name for column in table.columns if column.generated} == {"b"}
    assert set(table.unique) == {frozenset({"id"}), frozenset({"a", "id"})}
    assert direct.target.table(direct.schema, "KV") is None
    assert direct.target.tables([(direct.schema, "kv"), (direct.schema, "nosuch")]) == {(direct.schema, "kv"): table}


# --- connections ------------------------------------------------------------------------------------------------------


def test_urls():
    assert MysqlUrl.parse("mysql://a%40b:p%2Fw@db:3307/shop") == MysqlUrl("shop", "db", 3307, "a@b", "p/w")
    assert MysqlUrl.parse("mysql:///shop?unix_socket=/s&user=u") == MysqlUrl("shop", user="u", unix_socket="/s")
    for wrong in ("mysql://db", "mysql://db/a/b", "mysql://db/shop?x=1", "mysql://db:port/shop"):
        with pytest.raises(OperatorError, match="TARGETDB"):
            MysqlUrl.parse(wrong)


def test_who_must_act_when_connecting(server: Mysqld, database: str):
    with pytest.raises(OperatorError, match="Access denied"):
        connect(server.url(database, user="nobody", password="wrong"))
    with pytest.raises(OperatorError, match="Unknown database"):
        connect(server.url("nosuch"))
    with pytest.raises(AwayError, match="can't be reached"):
        connect("mysql://root@127.0.0.1:1/shop")
    link = connect(server.url(database, tcp=False))
    assert link.open
    link.close()


def test_a_commit_whose_answer_is_lost(direct: Direct, server: Mysqld):
    """CW-01: the connection is cut around COMMIT, byte by byte; the row read after connecting again tells the truth.

    The proxy may count bytes of the connection before, too: so it goes on until COMMIT itself was cut for a while.
    """
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY)")
    direct.close()
    limits: list[int | None] = [None]
    proxy = Proxy(lambda: ("127.0.0.1", server.port), lambda: limits[0])
    url = f"mysql://root@127.0.0.1:{proxy.port}/{direct.schema}?ssl_mode=disabled"
    through = Direct("mysql", url, direct.schema, server)
    outcomes: list[bool] = []
    try:
        through.open()
        layout, before = through.layout("kv", "id", "id", "bigint"), 0
        for less in range(2_000):
            number = 1_000 + less
            limits[0] = before - less if before else None
            start = proxy.forwarded
            through.target.connect()
            through.row = through.target.load_row()
            new = replace(through.row, position=Position(0, number * 100))
            with contextlib.suppress(AwayError):
                through.target.begin(through.row, new)
                through.target.apply((through.rows(layout, inserts=[[str(number)]]),))
                through.target.commit()
            before = before or proxy.forwarded - start
            limits[0] = None
            through.target.connect()
            landed = direct.sql(f"SELECT count(*) FROM kv WHERE id = {number}") == [("1",)]
            assert (through.target.load_row().position == new.position) == landed
            outcomes.append(landed)
            if outcomes[-12:].count(False) == 12:
                break
    finally:
        through.close()
        proxy.close()
    assert outcomes[0]
    assert not outcomes[-1]


def test_a_lock_that_is_not_given_and_a_deadlock_are_tried_again(direct: Direct):
    """Both lose the transaction and nothing else: AwayError, the batch comes again from the row."""
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY, v int)")
    direct.sql("INSERT INTO kv VALUES (1, 0), (2, 0)")
    layout = direct.layout("kv", "id v", "id", "bigint integer")
    assert direct.server is not None
    other = direct.server.connect(direct.schema, autocommit=False)
    with contextlib.closing(other), other.cursor() as cursor:
        cursor.execute("UPDATE kv SET v = 9 WHERE id = 1")
        direct.begin()
        direct.target.database.run("SET SESSION innodb_lock_wait_timeout = 1")
        with pytest.raises(AwayError, match="1205"):
            direct.target.apply((direct.rows(layout, updates=[["1", "1"]]),))
        direct.target.connect()
        direct.target.load_row()
        direct.begin()
        direct.target.apply((direct.rows(layout, updates=[["2", "2"]]),))
        late = threading.Thread(target=_quietly, args=(cursor, "UPDATE kv SET v = 8 WHERE id = 2"), daemon=True)
        late.start()
        own = isinstance(direct.server, MysqlServer)
        waits = "performance_schema.data_lock_waits" if own else "information_schema.innodb_lock_waits"
        # MariaDB looks anew only where nobody has asked for a tenth of a second: who asks faster sees the old for ever.
        wait_for(lambda: direct.sql(f"SELECT 1 FROM {waits}"), "the other's wait for our lock", every=0.25)
        # One of both is the victim; if it is we, that is AwayError, and nothing else.
        lost = None
        try:
            direct.target.apply((direct.rows(layout, updates=[["1", "1"]]),))
            direct.target.commit()
        except AwayError as error:
            lost = str(error)
            direct.target.close()
        late.join()
        assert lost is None or "1213" in lost


def _quietly(cursor: Any, statement: str) -> None:
    with contextlib.suppress(pymysql.MySQLError):
        cursor.execute(statement)


def test_a_server_that_asks_for_a_file_gets_none(direct: Direct, tmp_path: Path):
    """LOAD DATA LOCAL lets the server name any path: only rows that we are sending are ever sent."""
    secret = tmp_path / "secret"
    secret.write_text("1\n")
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY)")
    load = f"LOAD DATA LOCAL INFILE '{secret}' INTO TABLE kv"
    assert direct.target.database.conn.load(load, [b"7\n"]) == (1, 0)
    with pytest.raises(AwayError, match="asked for a file"), direct.target.database.mapped():
        direct.target.database.run(load)
    assert direct.sql("SELECT * FROM kv") == [("7",)]


def test_a_server_that_does_not_sync_each_commit(direct: Direct):
    """flush() returns when the log is on disk, as the server tells, also where the setting changes under a connection.

    A user who may not have it done is told what to grant.
    """
    assert direct.server is not None

    def log(place: str) -> int:
        ((_, _, status),) = direct.sql("SHOW ENGINE INNODB STATUS")
        found = re.search(rf"^{place} +(\d+)$", status, re.MULTILINE)
        assert found is not None
        return int(found[1])

    try:
        for setting in (2, 0):
            direct.sql(f"SET GLOBAL innodb_flush_log_at_trx_commit = {setting}")
            direct.sql(f"CREATE TABLE kv{setting} (id bigint PRIMARY KEY)")
            direct.sql(f"INSERT INTO kv{setting} VALUES (1)")
            committed = log("Log sequence number")
            direct.target.flush(direct.row, direct.row)
            assert log("Log flushed up to") > committed
            direct.target.connect()
            direct.target.load_row()
        direct.sql("CREATE USER plain@'%' IDENTIFIED BY 'x'")
        direct.sql(f"GRANT ALL ON {direct.schema}.* TO plain@'%'")
        plain = Direct("mysql", direct.server.url(direct.schema, user="plain", password="x"), direct.schema)
        with pytest.raises(OperatorError, match="GRANT RELOAD"):
            plain.open()
    finally:
        direct.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        direct.sql("DROP USER IF EXISTS plain@'%'")


def test_a_server_that_syncs_each_commit_is_not_waited_for(direct: Direct, monkeypatch: pytest.MonkeyPatch):
    """Somebody else has written behind the commit, and nothing syncs that before flush() returns."""
    assert direct.server is not None
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY)")
    other, run, written = direct.server.connect(direct.schema), direct.target.database.run, []

    def run_and_write(statement: str, params: Sequence[object] = ()) -> int:
        done = run(statement, params)
        if statement == "COMMIT":
            other.query("BEGIN")
            written.append(other.query(MANY))
        return done

    monkeypatch.setattr(direct.target.database, "run", run_and_write)
    try:
        direct.sql("SET GLOBAL innodb_flush_log_at_timeout = 2700")
        direct.target.flush(direct.row, direct.row)
        assert written == [1000]
    finally:
        direct.sql("SET GLOBAL innodb_flush_log_at_timeout = 1")
        other.close()


def test_a_user_with_no_more_than_it_needs(direct: Direct):
    """SELECT, INSERT, UPDATE, DELETE, CREATE TEMPORARY TABLES; without TRIGGER nobody would see what fires."""
    assert direct.server is not None
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY, v varchar(9))")
    needs = "SELECT, INSERT, UPDATE, DELETE, CREATE TEMPORARY TABLES"
    direct.sql("CREATE USER least@'%' IDENTIFIED BY 'x'")
    direct.sql(f"GRANT {needs} ON {direct.schema}.* TO least@'%'")
    try:
        least = Direct("mysql", direct.server.url(direct.schema, user="least", password="x"), direct.schema)
        least.open()
        assert "GRANT TRIGGER" in least.target.table(direct.schema, "kv").fires[0]
        direct.sql(f"GRANT TRIGGER ON {direct.schema}.* TO least@'%'")
        assert least.target.table(direct.schema, "kv").fires == ()
        layout = least.layout("kv", "id v", "id", "bigint text")
        least.do(least.rows(layout, inserts=[["1", "a"]]))
        least.do(least.rows(layout, updates=[["1", "b"]]), rewrite=True)
        least.target.flush(least.row, least.row)
        least.close()
    finally:
        direct.sql("DROP USER least@'%'")
    assert direct.sql("SELECT v FROM kv") == [("b",)]


def test_a_checkpoint_table_in_a_database_of_its_own(direct: Direct):
    admin = admin_for(direct.url)
    table = (f"{direct.schema}_gg", "chk")
    assert admin.rows_of_table(direct.url, table) is None
    try:
        admin.add_row_table(direct.url, table)
        assert admin.rows_of_table(direct.url, table) == []
    finally:
        direct.sql(f"DROP DATABASE {table[0]}")
