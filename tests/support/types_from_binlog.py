"""Types and edge values of MySQL and MariaDB (pitfalls E2) as a source, observed as types_observed.py has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo.mysql import MysqlServer
from demo.mysqld import Mysqld
from demo.servers import PostgresServer
from extract.extract import Extract
from replicat.targets.mysql.grammar import GRAMMAR
from tests.support.mysql_source import MysqlCapture
from tests.support.type_cases import Case
from tests.support.types_observed import Observer, places


def _case(kind: str, *values: str, mysql: str = "", postgresql: str = "", key: bool = True) -> Case:
    split = [tuple(part.strip() for part in text.split(";") if part.strip()) for text in (mysql, postgresql)]
    return Case(kind, values, split[0], (), split[1], key)


_MOMENTS = ("'2024-02-29 23:59:59'", "'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'")
_ZERO = "'0000-00-00 00:00:00'"
CASES: tuple[Case, ...] = (
    _case("tinyint", "-128", "127"),
    _case("tinyint unsigned", "0", "255", mysql="tinyint"),
    _case("tinyint(1)", "0", "1", "-7", postgresql="boolean"),
    _case("smallint unsigned", "65535"),
    _case("mediumint", "-8388608", "8388607"),
    _case("mediumint unsigned", "16777215"),
    _case("int", "-2147483648", "2147483647", "0"),
    _case("int unsigned", "4294967295", postgresql="integer"),
    _case("bigint", "-9223372036854775808", "9223372036854775807"),
    _case("bigint unsigned", "18446744073709551615", "0", postgresql="bigint"),
    _case("decimal(65,30)", "-12345678901234567890123456789012345.123456789012345678901234567891", "0.1"),
    _case("decimal(10,2)", "-99999999.99", "0.10", "0", mysql="decimal(12,1)", postgresql="numeric(10,2)"),
    _case("float", "0.1", "'-0'", "3.40282e38", "1.5e-42", "16777216", mysql="double"),
    _case("double", "0.1", "'-0'", "1.7976931348623157e308", "5e-324", "1e22"),
    _case("bit(1)", "b'0'", "b'1'", postgresql="boolean"),
    _case("bit(64)", "b'1'", "0xFFFFFFFFFFFFFFFF", "0x8000000000000000"),
    _case("year", "1901", "2155", "'0000'", "70"),
    _case("date", "'2024-02-29'", "'1000-01-01'", "'9999-12-31'", "'0000-00-00'", "'2024-00-15'", postgresql="text"),
    _case("time", "'23:59:59'", "'838:59:59'", "'-838:59:59'", "'-00:00:01'", postgresql="interval"),
    _case("time(6)", "'23:59:59.999999'", "'-838:59:58.000001'", "'-00:00:00.5'", mysql="time(3)"),
    _case("datetime", *_MOMENTS, _ZERO, "'2024-00-15 01:02:03'", mysql="timestamp NULL", postgresql="text"),
    _case("datetime(6)", "'2024-02-29 23:59:59.999999'", "'1000-01-01 00:00:00.000001'", mysql="datetime(3)"),
    _case("timestamp NULL", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", _ZERO, postgresql="text"),
    _case("timestamp(3) NULL", "'2024-03-31 02:30:00.5'", mysql="datetime"),
    _case("char(5)", "'a'", "'a b'", "''", "'ünï'", postgresql="character(5)"),
    _case("varchar(10)", "'a'", "'b '", "''", "'NULL'", "'a\\\\b'", "'日本🙂'"),
    _case("varchar(10) CHARACTER SET latin1", "'café'", "'€'"),
    _case("varchar(10) CHARACTER SET sjis", "'表示'"),
    _case("varchar(10) CHARACTER SET utf16", "'🙂é'", mysql="varchar(10) CHARACTER SET latin1"),
    _case("longtext", "''", "repeat('x', 70000)", "'日本🙂'", key=False),
    _case("binary(4)", "'a'", "0x00000000", "0x62000000"),
    _case("varbinary(4)", "''", "0x00", "0x6100", "0xFF", mysql="binary(2)"),
    _case("longblob", "''", "0x00FF5C27", key=False),
    _case("enum('a','b,c','it''s')", "'a'", "'b,c'", "'it''s'", "0", mysql="varchar(9)"),
    _case("set('a','b','c d')", "''", "'a'", "'a,c d'", mysql="varchar(9)"),
    _case("json", """'{"b": 1.5, "a": [18446744073709551615, null]}'""", "'\"x\"'", mysql="json",
          postgresql="json; jsonb", key=False),
    _case("point", "ST_GeomFromText('POINT(1 -0.5)', 4326)", "POINT(1e300, 0)", key=False),
)  # fmt: skip
"""Values that a strict server would not take are stored with its strictness off."""
MARIADB = (
    *CASES,
    _case("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'"),
    _case("inet4", "'10.0.0.1'", "'255.255.255.255'", postgresql="inet"),
    _case("inet6", "'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:10.0.0.1'", postgresql="inet"),
)


class BinlogObserver(Observer):
    """Tables in database `shop` of a server with a binary log."""

    schema, kind, grammar = "shop", "mysql", GRAMMAR

    def __init__(self, server: Mysqld, folder: Path) -> None:
        self._server, self.name = server, server.NAME
        self.cases = CASES if isinstance(server, MysqlServer) else MARIADB
        super().__init__(server.url("mysql", tcp=False), folder)

    def _captured(self, source: str, folder: Path) -> MysqlCapture:
        return MysqlCapture(source, folder)

    def cast(self, case: Case, value: str) -> str:
        return value

    @contextmanager
    def _written(self) -> Iterator[Callable[[str], Any]]:
        conn = self._server.connect(self.schema)
        try:
            with conn.cursor() as cursor:
                cursor.execute("SET sql_mode = 'NO_ENGINE_SUBSTITUTION'")
                yield cursor.execute
        finally:
            conn.close()

    def _make_source(self) -> None:
        self._server.sql(f"CREATE DATABASE {self.schema} CHARACTER SET utf8mb4")
        with self._written() as run:
            for n, case in enumerate(self.cases):
                run(f"CREATE TABLE v{n} (id bigint PRIMARY KEY, v {case.type})")
                run(f"CREATE TABLE b{n} (id bigint, v {case.type})")
                if case.key:
                    key = case.type.removesuffix(" NULL")
                    run(f"CREATE TABLE k{n} (v {key} {self._exact(key)} PRIMARY KEY, n bigint)")
        self.capture.register()

    def _exact(self, declared: str) -> str:
        """A key's collation that tells its texts apart."""
        if not declared.startswith(("char", "varchar", "enum", "set")) or " SET " in declared:
            return ""
        return "COLLATE utf8mb4_bin" if isinstance(self._server, MysqlServer) else "COLLATE utf8mb4_nopad_bin"

    def _change(self, extract: Extract, transactions: Callable[[int, Case], list[list[str]]]) -> None:
        for n, case in enumerate(self.cases):
            with self._written() as run:
                for statements in transactions(n, case):
                    for statement in ("BEGIN", *statements, "COMMIT"):
                        run(statement)
            self.capture.drain(extract, 60)

    def drop(self) -> None:
        """The server is others' too."""
        self._server.sql(f"DROP DATABASE {self.schema}")


def observe_binlogs(
    server: PostgresServer, sources: Iterable[Mysqld], targets: Sequence[Mysqld], folders: Iterable[Path]
) -> list[BinlogObserver]:
    """Each source to each target; columns that people choose are tried from the first alone."""
    found: list[BinlogObserver] = []
    for source, folder in zip(sources, folders, strict=True):
        observer = BinlogObserver(source, folder)
        observer.observe(f"from_{source.NAME.lower()}", *places(server, *targets, chosen=not found))
        observer.drop()
        found.append(observer)
    return found
