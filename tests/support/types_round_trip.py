"""PostgreSQL to MariaDB, and from its binary log to PostgreSQL again: all types of the types page in three tables.

`wide` has a key, `bag` has none, both with a column for each type; each row has a value in one of them. The key of
`moved` is of texts and numbers, and changes. Values that MariaDB's columns refuse (docs/types.md) are left out, so
nothing may be refused on the whole way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from demo.mysqld import Mysqld
from demo.servers import PostgresServer
from replicat.ddl.dialect import Script
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import admin_for, kind_of, open_target
from replicat.targets.postgres.sql import SESSION
from tests.support.capturing import Capture
from tests.support.mysql_source import MysqlCapture
from tests.support.replicat_bench import Bench
from tests.support.type_cases import CASES, SETUP, Case
from trails.ddl import DdlColumn
from trails.position import TrailName
from trails.record import TableDef

DATABASE = "trip"
TABLES = {"wide": ("id",), "bag": (), "moved": ("k", "m", "u")}
"""Each with its key."""
_REFUSED = ("nan", "infinity", "bc'", "294276", "5874897")
_NUMBERS_AND_TIMES = ("real", "double precision", "date", "timestamp", "timestamptz")
# Text that ends in blanks can't be told from padding: such a column comes back as text (docs/types.md).
_BACK_AS = {"char(5)": "text"}


def _values(case: Case) -> list[str]:
    """SQL of those values of a type that MariaDB's column takes."""
    values = case.values
    if case.type in _NUMBERS_AND_TIMES:
        values = tuple(one for one in values if not any(word in one.lower() for word in _REFUSED))
    return [f"CAST({one} AS {case.type})" for one in values]


def _tables(back: bool) -> list[str]:
    types = [_BACK_AS.get(case.type, case.type) if back else case.type for case in CASES]
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(types))
    return [
        f"CREATE TABLE wide (id int PRIMARY KEY, {columns})",
        f"CREATE TABLE bag (n int, {columns})",
        "CREATE TABLE moved (k text, m numeric(14,2), u uuid, v text, PRIMARY KEY (k, m, u))",
    ]


def _inserts() -> Iterator[str]:
    number = 0
    for n, case in enumerate(CASES):
        for value in _values(case):
            number += 1
            yield f"INSERT INTO wide (id, c{n}) VALUES ({number}, {value})"
            yield f"INSERT INTO bag (n, c{n}) VALUES ({number % 7}, {value}), ({number % 7}, {value})"
    uuid = "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"
    keys = ("a", "A", "á", "a ", "ä", "")
    yield f"INSERT INTO moved VALUES {', '.join(f'($${key}$$, 1.50, {uuid}, $${key}$$)' for key in keys)}"


def _updates() -> Iterator[str]:
    number = 0
    for n, case in enumerate(CASES):
        values = _values(case)
        for i in range(len(values)):
            number += 1
            other = values[(i + 1) % len(values)]
            yield f"UPDATE wide SET c{n} = {other} WHERE id = {number}"
            first = f"(SELECT min(ctid) FROM bag WHERE c{n} IS NOT NULL)"
            yield f"UPDATE bag SET c{n} = {other}, n = -1 WHERE ctid = {first}"
    yield "UPDATE wide SET id = id + 1000 WHERE id % 3 = 0"
    yield "UPDATE wide SET id = id + 1 WHERE id > 1000 AND id % 2 = 0"
    yield "DELETE FROM wide WHERE id % 5 = 0"
    yield "DELETE FROM bag WHERE n = 3"
    yield "UPDATE bag SET n = NULL WHERE n = 4"
    yield "UPDATE moved SET k = 'A' || m, m = -m WHERE k = 'A'"
    swaps = [("a", "#"), ("á", "a"), ("#", "á")]  # statements without a BEGIN are one transaction
    yield "; ".join(f"UPDATE moved SET k = '{new}' WHERE k = '{old}'" for old, new in swaps)
    yield "DELETE FROM moved WHERE k = 'ä'"


class RoundTrip:
    """Both Extracts and both Replicats; each hop is done when it is asked for."""

    def __init__(self, folder: Path, server: PostgresServer, maria: Mysqld) -> None:
        self._maria = maria
        for name in ("there", "back"):
            (folder / name / "dirdat").mkdir(parents=True, mode=0o700)
            server.sql(f"CREATE DATABASE trip_{name}")
        self.urls = [server.url("trip_there"), server.url("trip_back")]
        self.first = Capture(self.urls[0], folder / "there" / "dirdat")
        tables = f"TABLE {DATABASE}.*;\nTABLEEXCLUDE {DATABASE}.chk;\n"  # the first Replicat's checkpoint table
        self.second = MysqlCapture(maria.url("mysql", tcp=False), folder / "back" / "dirdat", tables=tables)
        self._there, self._back = folder / "there", folder / "back"

    def run(self) -> None:
        """Twice there and back: what is new, and what has changed."""
        for number, url in enumerate(self.urls):
            with psycopg.connect(url, autocommit=True) as link:
                link.execute(SETUP.encode())
                for statement in _tables(back=bool(number)):
                    link.execute(statement.encode())
        self.first.sql(*(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in TABLES))
        self._maria.sql(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        self.first.register()
        self.second.register()
        there = back = None
        with self.first.running() as first, self.second.running() as second:
            for statements in (_inserts(), _updates()):
                self.first.sql(*statements)
                self.first.drain(first)
                there = there or self._make_there()
                there.run()
                self.second.drain(second)
                back = back or self._made(self._back, self.urls[1], "public", DATABASE, self.second)
                back.run()

    def _make_there(self) -> Bench:
        url = self._maria.url(DATABASE)
        bench = self._made(self._there, url, DATABASE, "public", self.first)
        target = open_target(TargetSettings(url, bench.table, "REP1", 77))
        target.connect()
        with closing(target):
            dialect = target.dialect(kind_of("postgresql"))
            shapes = {change.table.name: change.table for found in self.first.changes() for change in found}
            for table in shapes.values():
                target.ddl(tuple(_script(dialect, table).statements))
        return bench

    def _made(self, folder: Path, url: str, schema: str, source: str, capture: Capture) -> Bench:
        bench = Bench(folder, url, schema, feed=False, checkpoints="gg" if schema == "public" else schema)
        bench.trail = TrailName(str(folder / "dirdat"), "lt")
        bench.maps = "\n".join(f"MAP {source}.{table}, TARGET {schema}.{table};" for table in TABLES)
        admin_for(url).add_row_table(url, bench.table)
        return bench

    def rows(self, url: str, table: str) -> list[str]:
        """What a table holds, as PostgreSQL prints it."""
        with psycopg.connect(url) as link:
            link.execute(SESSION.encode())
            rows = link.execute(f"SELECT ROW(found.*)::text FROM public.{table} AS found".encode())
            return sorted(text for (text,) in rows)

    def drop(self) -> None:
        """The server is others' too."""
        self._maria.sql(f"DROP DATABASE IF EXISTS {DATABASE}")


def _script(dialect: Any, table: TableDef) -> Script:
    """The table as Replicat makes it."""
    key = TABLES[table.name]
    made = [
        dialect.defined(DdlColumn(number, column.name, column.type, column.native, not_null=column.name in key))
        for number, column in enumerate(table.columns, 1)
    ]
    script = Script()
    dialect.create(script, (DATABASE, table.name), made, key)
    return script
