"""Each source type and edge value of E1, E2, E5 and E6 through the whole path to each target: docs/types.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.mariadb import MariaServer
from demo.mysql import MysqlServer
from demo.servers import PostgresServer
from tests.support.types_from_binlog import observe_binlogs
from tests.support.types_observed import EXACT, REFUSED, Observer, Seen, places
from tests.support.types_page import of_binlogs, of_postgres
from tests.support.types_round_trip import TABLES, RoundTrip

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]
PAGE = (Path(__file__).parents[2] / "docs" / "types.md").read_text()
ANEW = "make it anew: python -m tests.support.types_page > docs/types.md"


@pytest.fixture
def system_pg() -> Iterator[PostgresServer]:
    """Debian's server, which has extensions, xml and ICU."""
    with PostgresServer(version="system", tcp=True) as server:
        yield server


@pytest.mark.parametrize("kinds", ["", pytest.param("mysql", marks=pytest.mark.soak)], ids=["two", "and-mysql"])
def test_e1_e5_e6_every_value_arrives_exact_or_by_rule_or_is_refused(
    tmp_path: Path, system_pg: PostgresServer, mariadb: MariaServer, request: pytest.FixtureRequest, kinds: str
):
    """As an insert, an update's after image, a before image, a key and beside a NULL; the page says what was seen."""
    mariadb.start()
    system_pg.sql("CREATE DATABASE source")
    observer = Observer(system_pg.url("source"), tmp_path)
    mysql = [request.getfixturevalue(kind).start() for kind in kinds.split()]
    observer.observe("types", *places(system_pg, mariadb, *mysql))
    _all_told(observer)
    like_to_like = [seen for seen in observer.seen if seen.own]
    assert {outcome.verdict for seen in like_to_like for outcome in seen.outcomes} == {EXACT}
    assert PAGE.startswith(of_postgres(observer)), ANEW
    if mysql:
        maria = _fates(observer, "MariaDB")
        other = {column: fate for column, fate in _fates(observer, "MySQL").items() if fate != maria.get(column)}
        assert other == {}


@pytest.mark.soak
def test_e2_values_of_mysql_and_mariadb_arrive_exact_or_by_rule_or_are_refused(
    tmp_path: Path,
    system_pg: PostgresServer,
    mariadb: MariaServer,
    mysql: MysqlServer,
    mariadb_source: MariaServer,
    mysql_source: MysqlServer,
):
    """Zero dates, unsigned numbers, character sets, bits and the rest, from each server to each."""
    servers = [server.start() for server in (mariadb_source, mysql_source, mysql, mariadb)]
    folders = [tmp_path / "mariadb", tmp_path / "mysql"]
    for folder in folders:
        folder.mkdir()
    observers = observe_binlogs(system_pg, servers[:2], servers[2:], folders)
    for observer in observers:
        _all_told(observer)
    assert PAGE.endswith(of_binlogs(*observers)), ANEW


def test_e6_postgresql_to_mariadb_to_postgresql_is_equal_by_rule(
    tmp_path: Path, system_pg: PostgresServer, mariadb_source: MariaServer
):
    """Inserts, updates, changed keys, deletes, a table without a key; a zero's sign is what MariaDB loses."""
    mariadb_source.start()
    trip = RoundTrip(tmp_path, system_pg, mariadb_source)
    try:
        trip.run()
        there, back = [{table: trip.rows(url, table) for table in TABLES} for url in trip.urls]
    finally:
        trip.drop()
    for table, rows in there.items():
        assert len(rows) > 3
        assert back[table] == sorted(row.replace(",-0,", ",0,") for row in rows)
    captured = {change.table.name for found in trip.second.changes() for change in found}
    assert captured == set(TABLES)


def _all_told(observer: Observer) -> None:
    assert observer.faults == []
    assert all(outcome.sqlstate for seen in observer.seen for outcome in seen.outcomes if outcome.verdict == REFUSED)


def _fates(observer: Observer, place: str) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """What became of each value in each column there, and what the server shows of it; MySQL keeps a zero's sign."""

    def fate(seen: Seen) -> list[tuple[str, str]]:
        return [(outcome.verdict, "0" if outcome.stored == "-0" else outcome.stored) for outcome in seen.outcomes]

    return {(seen.case.type, seen.column): fate(seen) for seen in observer.seen if seen.place == place}
