"""Schema changes of MySQL and MariaDB sources at real targets: the table there is the source's, as far as it can be."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from demo.mariadb import MariaServer
from demo.mysqld import Mysqld
from extract.sources.mysql.ddl.asking import ask_server, ask_tables
from extract.sources.mysql.ddl.known import KnownTable
from extract.sources.mysql.ddl.query import QueryText
from extract.sources.mysql.ddl.shapes import ShapeRules, Shapes
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.link import MysqlSession
from replicat.ddl.definition import CannotError
from replicat.ddl.dialect import Script
from replicat.ddl.shapes import MappedTable, carry
from replicat.params import ReplicatParams
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import SOURCES, admin_for, kind_of, open_target
from replicat.targets.mysql.shapes import tables_of
from trails.ddl import DdlChange, TableShape
from trails.fs import RealFs
from trails.position import Position
from trails.runtime.language.params import parse_text

pytestmark = pytest.mark.e2e
STRICT = 0x200000
CREATE = """CREATE TABLE d.t (id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
    a varchar(20) NOT NULL DEFAULT 'x''y\\\\z', c char(3) CHARACTER SET latin1 COLLATE latin1_bin,
    d decimal(10,2) DEFAULT 1.5, e enum('a','b''c','d\\\\e') DEFAULT 'a', s set('q','r'), b bit(4) DEFAULT b'101',
    y year, f float, g double, ti tinyint(1) DEFAULT 1, dt datetime DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP,
    ts timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
    vb varbinary(5) DEFAULT x'4142', bl blob, tx mediumtext, gen int GENERATED ALWAYS AS (ti + 1) STORED,
    gen2 varchar(30) AS (concat(a, 'k')) VIRTUAL,
    bu bigint unsigned zerofill, u3 varchar(4) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin, KEY (a))"""
CHANGES = (
    "ALTER TABLE d.t ADD n1 int NOT NULL DEFAULT 5 AFTER id, ADD n2 varchar(5) DEFAULT 'q', ADD n3 bit(3) DEFAULT b'1'",
    "ALTER TABLE d.t ADD n4 datetime NOT NULL DEFAULT CURRENT_TIMESTAMP",
    "ALTER TABLE d.t MODIFY e enum('a','b''c','d\\\\e','new') DEFAULT 'new', MODIFY a varchar(40), CHANGE n1 n9 bigint",
    "ALTER TABLE d.t ALTER n2 SET DEFAULT 'zz', ALTER d DROP DEFAULT",
    "ALTER TABLE d.t MODIFY ts timestamp(3) NULL, MODIFY n4 datetime DEFAULT now() ON UPDATE now()",
    "ALTER TABLE d.t CONVERT TO CHARACTER SET latin1",
    "ALTER TABLE d.t ADD g3 int AS (ti * 2) STORED, DROP gen2",
    "ALTER TABLE d.t MODIFY id bigint unsigned NOT NULL AUTO_INCREMENT",
    "ALTER TABLE d.t RENAME COLUMN n2 TO b2, RENAME COLUMN c TO n2",
    "RENAME TABLE d.t TO d.t2",
    "CREATE TABLE d.k (a varchar(10) NOT NULL, b int NOT NULL, PRIMARY KEY (a, b))",
    "ALTER TABLE d.k DROP PRIMARY KEY, ADD PRIMARY KEY (b)",
)


class NoTables:
    """A server that is empty."""

    def query(self, sql: str) -> Sequence[Sequence[Any]]:
        """Of Asks."""
        return [("d", "utf8mb4_general_ci")] if "schemata" in sql else []


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.soak)])
def target(request: pytest.FixtureRequest) -> Iterator[Mysqld]:
    """Each of the two."""
    found: Mysqld = request.getfixturevalue(request.param)
    found.sql("DROP DATABASE IF EXISTS d")
    found.sql("CREATE DATABASE d")
    yield found
    found.sql("DROP DATABASE IF EXISTS d")


def _shapes(session: MysqlSession, folder: str) -> Shapes:
    server = ask_server(session, session.flavour, "one")
    shapes = Shapes(RealFs(), folder + "/journal", server, ShapeRules(lambda _s, _n: True, lambda _: True))
    shapes.resume(Position(1, 1), NoTables(), lambda: Position(1, 1), continues=False)
    return shapes


def _told(shapes: Shapes) -> Iterator[DdlChange]:
    for number, text in enumerate((CREATE, *CHANGES), 2):
        query = QueryText(
            f"{number}", Position(1, number), "", text.encode(), STRICT, 45, zone="+00:00", time_us=10**15
        )
        for change in shapes.run(query):
            assert isinstance(change, DdlChange)
            yield change


def _maps(shape: TableShape | None) -> list[MappedTable]:
    params = ReplicatParams.from_statements(
        parse_text("REPLICAT rep1\nTARGETDB mysql://x/y\nMAP d.*, TARGET d.*;\n", "p")
    )
    return [MappedTable(params.maps[0], ("d", shape.name))] if shape else []


@pytest.mark.parametrize("source", ["mariadb", "mysql"])
def test_like_to_like_a_table_is_the_sources_own(target: Mysqld, source: str, tmp_path: Any) -> None:
    """Types, defaults, AUTO_INCREMENT, ON UPDATE, generated columns, labels, character sets: statement by statement."""
    session = MysqlSession(target.url("d"), "test")
    shapes = _shapes(session, str(tmp_path))
    dialect = kind_of("mysql").dialect(SOURCES[source])
    with closing(target.connect("d")) as connection, connection.cursor() as cursor:

        def rows(sql: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
            cursor.execute(sql, values)
            return list(cursor.fetchall())

        for change in _told(shapes):
            look = lambda place: tables_of(rows, [place], folds=False).get(place)  # noqa: E731
            for item in carry(change, _maps(change.old), _maps(change.new), look, dialect):
                for statement in item.statements:
                    cursor.execute(statement)
    made = ask_tables(session, ask_server(session, session.flavour, "one")).tables
    session.close()
    for name in ("t2", "k"):
        found, wanted = made["d", name], shapes.current("d", name)
        assert isinstance(found, KnownTable)
        assert wanted is not None
        there = {c.name: c for c in found.shape.columns}
        for column in wanted.columns:
            same = there[column.name]
            assert (same.native, same.not_null, same.identity, same.generated) == (
                column.native, column.not_null, column.identity, column.generated
            )  # fmt: skip
            assert bool(same.default) == bool(column.default)
        assert found.shape.key == wanted.key


def test_a_server_without_the_sources_own_types_gets_texts(target: Mysqld, tmp_path: Any) -> None:
    """MariaDB has uuid, inet4 and inet6, each from some version on; MySQL has none of them."""
    shapes = Shapes(RealFs(), "", _server(), ShapeRules(lambda _s, _n: True, lambda _: True))
    shapes.resume(Position(1, 1), NoTables(), lambda: Position(1, 1), continues=False)
    create = "CREATE TABLE d.u (u uuid PRIMARY KEY DEFAULT uuid(), a inet4, b inet6)"
    text = QueryText("2", Position(1, 2), "", create.encode(), STRICT, 45, zone="+00:00", time_us=10**15)
    (change,) = shapes.run(text)
    assert isinstance(change, DdlChange)
    found = open_target(TargetSettings(target.url("d"), ("d", "chk"), "REP1", 77, str(tmp_path)))
    admin_for(target.url("d")).add_row_table(target.url("d"), ("d", "chk"))
    found.connect()
    with closing(found):
        dialect = found.dialect(SOURCES["mariadb"])
        for item in carry(change, [], _maps(change.new), lambda _: None, dialect):
            found.ddl(item.statements)
        types = {column.name: column.type.split()[0] for column in found.tables([("d", "u")])["d", "u"].columns}
    texts = {"u": "char(36)", "a": "longtext", "b": "longtext"}
    assert types == ({"u": "uuid", "a": "inet4", "b": "inet6"} if isinstance(target, MariaServer) else texts)


def test_a_table_of_another_kind_gets_types_and_constants_of_its_own(tmp_path: Any) -> None:
    """SQLite takes each statement; PostgreSQL is told its own types, identity and present time."""
    shapes = Shapes(RealFs(), "", _server(), ShapeRules(lambda _s, _n: True, lambda _: True))
    shapes.resume(Position(1, 1), NoTables(), lambda: Position(1, 1), continues=False)
    create, *_ = _told(shapes)
    assert create.new is not None
    script = Script()
    dialect = kind_of("sqlite").dialect(SOURCES["mariadb"])
    dialect.create(script, ("main", "t"), [dialect.defined(c) for c in create.new.columns], create.new.key)
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        database.execute(script.statements[0])
        found = {row[1]: (row[2], row[4]) for row in database.execute("PRAGMA table_xinfo(t)")}
    assert found["a"] == ("TEXT", "'x''y\\z'")
    assert (found["id"][0], found["bl"][0], found["gen"][0], found["d"]) == (
        "INTEGER",
        "BLOB",
        "INTEGER",
        ("TEXT", "'1.5'"),
    )
    script = Script()
    dialect = kind_of("postgresql").dialect(SOURCES["mysql"])
    dialect.create(script, ("s", "t"), [dialect.defined(c) for c in create.new.columns], create.new.key)
    (statement,) = script.statements
    for part in (
        '"id" bigint GENERATED BY DEFAULT AS IDENTITY NOT NULL', """"a" text DEFAULT 'x''y\\z'::text NOT NULL""",
        '"ts" timestamp with time zone DEFAULT CURRENT_TIMESTAMP(3) NOT NULL', '"gen" integer', '"bu" numeric',
        """"b" bit varying DEFAULT '101'::bit varying""", '"dt" timestamp without time zone,',
    ):  # fmt: skip
        assert part in statement
    added = next(c for c in create.new.columns if c.name == "gen")
    with pytest.raises(CannotError, match="generated"):
        dialect.add(Script(), ("s", "t"), dialect.defined(added))


def _server() -> Any:
    class Answers(NoTables):
        def query(self, sql: str) -> Sequence[Sequence[Any]]:
            if "version" in sql:
                return [("10.11.6-MariaDB", "0", "utf8mb4_general_ci")]
            return [("utf8mb4", "utf8mb4_general_ci"), ("latin1", "latin1_swedish_ci")]

    return ask_server(Answers(), Flavour.MARIADB, "one")
